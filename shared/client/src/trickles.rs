//! Messages between running jobs and their projects, and outputs that are sent before their job is done.
//!
//! Model: a message to a project (BOINC: trickle-up) is a file in the project's directory, named after its
//! job and its time. The file is the record: it is there before the client hears of it, is found again after
//! a restart, and is deleted when the project acknowledges it. A message brings about contact with its
//! project as soon as the project allows any; one that was told and not acknowledged goes with every later
//! request (BOINC likewise). Their text is the shell's to put in.
//!
//! Left out: handlers of trickles apart from the scheduler (BOINC: `trickle_up_urls`).

use std::collections::BTreeMap;

use fallow_boinc::runtime::files;
use fallow_boinc::scheduler::{TrickleDown, TrickleUp};
use fallow_domain::{Bytes, Duration, Instant, JobId, ProjectId};

use crate::machine::Client;
use crate::state::FileStatus;
use crate::{Cause, Effect, FileKey, NoticeLevel, OutputFound};

/// The longest message that is kept: applications send a few kilobytes.
pub const TRICKLE_MAX: Bytes = Bytes(1 << 20);
/// Messages of one job that wait at most.
pub const TRICKLES_OF_JOB: usize = 50;
/// Messages to one project that wait at most.
const PER_PROJECT: usize = 500;
/// What the messages of one request hold at most.
const PER_REQUEST: Bytes = Bytes(4 << 20);

/// The messages that wait for their acknowledgement.
#[derive(Debug, Default)]
pub(crate) struct Trickles {
    waiting: BTreeMap<FileKey, Trickle>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Trickle {
    /// Its job.
    result_name: String,
    /// When it was made.
    time: Instant,
    nbytes: Bytes,
    /// Not in any request yet that was answered.
    fresh: bool,
}

/// Why a file is not kept as a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotKept {
    /// Its name is no message's.
    NoMessage,
    /// It is too long, or there are too many; so many of its job wait.
    TooMuch { of_job: usize },
}

impl Trickles {
    /// Those to a project.
    fn of(&self, project: ProjectId) -> impl Iterator<Item = (&FileKey, &Trickle)> {
        let from = FileKey { project, name: String::new() };
        self.waiting.range(from..).take_while(move |(key, _)| key.project == project)
    }

    /// A project is detached.
    pub(crate) fn forget(&mut self, project: ProjectId) {
        self.waiting.retain(|key, _| key.project != project);
    }
}

impl Client {
    /// A file in a project's directory that may be a message. Says why it is not kept, if it is not.
    pub(crate) fn put_trickle(&mut self, key: &FileKey, nbytes: Bytes) -> Result<(), NotKept> {
        let Some((result_name, secs)) = files::trickle_up_of(&key.name) else {
            return Err(NotKept::NoMessage);
        };
        let waiting = || self.state.trickles.of(key.project).map(|(_, trickle)| trickle);
        let of_job = waiting().filter(|trickle| trickle.result_name == result_name).count();
        if nbytes > TRICKLE_MAX || of_job >= TRICKLES_OF_JOB || waiting().count() >= PER_PROJECT {
            return Err(NotKept::TooMuch { of_job });
        }
        let time = Instant::EPOCH + Duration::from_secs(secs);
        let trickle = Trickle { result_name: result_name.to_owned(), time, nbytes, fresh: true };
        self.state.trickles.waiting.insert(key.clone(), trickle);
        Ok(())
    }

    /// How long a message was when it was taken in: what came to it since is none of it.
    pub fn trickle_size(&self, file: &FileKey) -> Option<Bytes> {
        self.state.trickles.waiting.get(file).map(|trickle| trickle.nbytes)
    }

    /// A running job has a message for its project.
    pub(crate) fn trickle_found(&mut self, id: JobId, name: &str, nbytes: Bytes) {
        let Some(job) = self.state.jobs.get(&id) else { return };
        let (project, job_name) = (job.project, job.result.name.clone());
        let key = FileKey { project, name: name.to_owned() };
        match self.put_trickle(&key, nbytes) {
            Ok(()) => {}
            Err(NotKept::NoMessage) => return self.delete_trickle(&key, Cause::NoMessage),
            Err(NotKept::TooMuch { of_job }) => {
                let text = format!(
                    "a message of {job_name} to its project is dropped: {nbytes} long, with {of_job} of it waiting; at \
                     most {TRICKLE_MAX} and {TRICKLES_OF_JOB} are kept"
                );
                self.notice(NoticeLevel::Warn, Some(project), text);
                return self.delete_trickle(&key, Cause::TooManyMessages);
            }
        }
        let text = self.said(|| format!("{job_name} has a message for its project"));
        self.notice(NoticeLevel::Info, Some(project), text);
    }

    /// Whether a project is to be contacted for a message.
    pub(crate) fn has_news_for(&self, project: ProjectId) -> bool {
        self.state.trickles.of(project).any(|(_, trickle)| trickle.fresh)
    }

    /// The messages that the next request carries, new ones first, without their text.
    pub(crate) fn trickles_for(&self, project: ProjectId) -> Vec<(FileKey, TrickleUp)> {
        let mut waiting: Vec<_> = self.state.trickles.of(project).collect();
        waiting.sort_by_key(|(_, trickle)| (!trickle.fresh, trickle.time));
        let mut room = PER_REQUEST;
        // One that does not fit is in no other's way.
        let fits = |(_, trickle): &(&FileKey, &Trickle)| {
            let left = room.0.checked_sub(trickle.nbytes.0);
            room = left.map_or(room, Bytes);
            left.is_some()
        };
        let told = |(key, trickle): (&FileKey, &Trickle)| {
            let (result_name, time) = (trickle.result_name.clone(), trickle.time);
            (key.clone(), TrickleUp { result_name, time, text: String::new() })
        };
        waiting.into_iter().filter(fits).map(told).collect()
    }

    /// The project has answered the request that carried these messages.
    pub(crate) fn trickles_told(&mut self, project: ProjectId, acknowledged: bool) {
        for key in self.carried.take_messages(project) {
            if acknowledged {
                self.state.trickles.waiting.remove(&key);
                self.delete_trickle(&key, Cause::MessageAcknowledged);
            } else if let Some(trickle) = self.state.trickles.waiting.get_mut(&key) {
                trickle.fresh = false;
            }
        }
    }

    fn delete_trickle(&mut self, key: &FileKey, why: Cause) {
        let Some(url) = self.state.projects.get(&key.project).map(|project| project.url.clone()) else {
            return;
        };
        self.act(Effect::DeleteFile { file: key.clone(), url }, why);
        self.disk.deleted(key);
    }

    /// Messages of a project to jobs (BOINC: `trickle_down`). One for a job that has not begun has nobody to
    /// read it.
    pub(crate) fn apply_trickles(&mut self, project: ProjectId, trickles: Vec<TrickleDown>) {
        for trickle in trickles.into_iter().take(TRICKLES_OF_JOB) {
            let key = FileKey { project, name: trickle.result_name };
            let job = self.state.jobs.named(&key).and_then(|id| self.state.jobs.get(&id));
            let Some((job, slot)) = job.and_then(|job| Some((job.id, job.slot?))) else {
                let text =
                    format!("a message of the project to {} is dropped: no such job has begun", key.name);
                self.notice(NoticeLevel::Warn, Some(project), text);
                continue;
            };
            let name = format!("{}{}", files::TRICKLE_DOWN, trickle.time.as_secs_f64().trunc());
            let effect = Effect::DeliverTrickle { job, slot, name, text: trickle.text };
            self.act(effect, Cause::MessageToJob);
        }
    }

    /// An application wants an output to be sent before it is done.
    pub(crate) fn upload_wanted(&mut self, id: JobId, output: OutputFound) {
        let Some(job) = self.state.jobs.get(&id).filter(|job| job.process.exists()) else { return };
        let key = FileKey { project: job.project, name: output.name };
        if !job.output_files().contains(&key) {
            return;
        }
        let Some(file) = self.state.files.get(&key) else { return };
        let is_too_big = file.info.max_nbytes.is_some_and(|max| max > Bytes(0) && output.nbytes > max);
        let found = Some((output.nbytes, output.md5));
        if is_too_big || file.info.upload_urls.is_empty() || file.transfer.is_some() {
            return;
        }
        if file.status == FileStatus::Uploaded {
            return self.tell_upload(&key);
        }
        self.edit_file(&key, |file| {
            if matches!(file.status, FileStatus::Failed(..)) && file.found != found {
                file.stale = file.stale.max(file.found.as_ref().map_or(Bytes(0), |before| before.0));
            }
            file.found = found;
            file.status = FileStatus::Present;
        });
        self.start_upload(&key);
    }

    /// The application whose output this is hears what became of it, if it still runs.
    pub(crate) fn tell_upload(&mut self, key: &FileKey) {
        let status = match self.state.files.get(key).map(|file| &file.status) {
            Some(FileStatus::Uploaded) => 0,
            Some(FileStatus::Failed(number, _)) => *number,
            _ => return,
        };
        let tell = |id: JobId| {
            let job = self.state.jobs.get(&id).filter(|job| job.process.exists() && job.outcome.is_none())?;
            let output = job.result.files.iter().find(|file| file.file_name == key.name)?;
            let open_name = output.open_name.clone().unwrap_or_else(|| key.name.clone());
            Some((job.id, job.slot?, open_name))
        };
        let told: Vec<_> = self.state.jobs.writers(key).filter_map(tell).collect();
        for (job, slot, open_name) in told {
            let ended = Cause::UploadEnded { file: key.name.clone(), status };
            self.act(Effect::TellUpload { job, slot, open_name, status }, ended);
        }
    }
}
