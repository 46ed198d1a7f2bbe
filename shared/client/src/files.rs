//! The files of projects: what is here, what is on its way, what is no longer needed.
//!
//! A file is needed while a job or an application version refers to it. A job can run when all the files it refers to
//! are here. What nobody needs is deleted, unless the project made it sticky.

use fallow_boinc::scheduler::FileInfo;
use fallow_domain::{Bytes, Duration, Instant, JobId, ProjectId};
use fallow_policy::transfer_backoff::{AfterFailure, TransferBackoff};

use crate::machine::Client;
use crate::record::Record;
use crate::state::{File, FileStatus, Transfer};
use crate::{
    Download, Effect, FileKey, NoticeLevel, Reason, RequiredSignature, TransferError, TransferErrorKind,
    Upload,
};

/// BOINC's error numbers for files.
mod error {
    pub(super) const NOT_FOUND: i32 = -224;
    pub(super) const MD5: i32 = -119;
    pub(super) const SIGNATURE: i32 = -120;
    pub(super) const NO_SIGNATURE: i32 = -123;
    pub(super) const SIZE: i32 = -221;
    pub(super) const GAVE_UP: i32 = -114;
}

impl Client {
    /// Takes in what a project says about a file. What is already here stays; only its URLs and signatures are renewed.
    pub(crate) fn put_file(&mut self, project: ProjectId, info: FileInfo) {
        let key = FileKey { project, name: info.name.clone() };
        match self.state.files.get_mut(&key) {
            Some(known) => {
                known.info.download_urls = info.download_urls;
                known.info.upload_urls = info.upload_urls;
                known.info.gzipped_urls = info.gzipped_urls;
                known.info.file_signature = info.file_signature.or(known.info.file_signature.take());
                known.info.xml_signature = info.xml_signature.or(known.info.xml_signature.take());
                known.info.sticky |= info.sticky;
                // A place in the old list of URLs says nothing about the new one.
                if let Some(transfer) = &mut known.transfer {
                    transfer.url_index = 0;
                }
                // A file that had failed may come right now that the project names it again.
                if matches!(known.status, FileStatus::Failed(..)) {
                    known.status = FileStatus::Absent;
                }
            }
            None => {
                let signed = info.signature_required;
                let file = File { info, signed, status: FileStatus::Absent, found: None, transfer: None };
                self.state.files.insert(key.clone(), file);
            }
        }
        self.mark(Record::File(key));
    }

    /// One more user of a file.
    pub(crate) fn use_file(&mut self, key: &FileKey) {
        *self.state.file_users.entry(key.clone()).or_default() += 1;
    }

    /// One user less; the last one's file is deleted.
    pub(crate) fn unuse_file(&mut self, key: &FileKey) {
        if let Some(users) = self.state.file_users.get_mut(key) {
            *users -= 1;
            if *users > 0 {
                return;
            }
        }
        self.state.file_users.remove(key);
        if self.state.files.get(key).is_some_and(|file| file.info.sticky) {
            return;
        }
        if let Some(file) = self.state.files.remove(key) {
            if file.transfer.is_some_and(|transfer| transfer.active) {
                let reason = Reason::new("files", "no job needs it any more");
                self.act(Effect::CancelTransfer { file: key.clone() }, reason);
            }
            if let Some(project) = self.state.projects.get(&key.project) {
                let effect = Effect::DeleteFile { file: key.clone(), url: project.url.clone() };
                self.act(effect, Reason::new("files", "no job needs it any more"));
            }
        }
        self.place_transfer(key);
        self.state.waiting.remove(key);
        self.mark(Record::File(key.clone()));
    }

    /// Starts getting a file unless it is here or already on its way. Says whether it is here.
    pub(crate) fn want_file(&mut self, key: &FileKey) -> bool {
        let now = self.now;
        let Some(file) = self.state.files.get_mut(key) else { return false };
        match file.status {
            FileStatus::Present | FileStatus::Uploaded => return true,
            // One that was given up is tried once more for a job that came since: nothing else would ever move the job.
            FileStatus::Absent | FileStatus::Failed(..) if file.transfer.is_none() => {
                file.status = FileStatus::Absent;
                file.transfer = Some(new_transfer(false, now));
                self.place_transfer(key);
                self.mark(Record::File(key.clone()));
            }
            _ => {}
        }
        false
    }

    /// Keeps the order of transfers in step with a file's own.
    pub(crate) fn place_transfer(&mut self, key: &FileKey) {
        let transfer = self.state.files.get(key).and_then(|file| file.transfer.as_ref());
        self.state.transfers.place(key, transfer);
    }

    /// Starts sending an output.
    pub(crate) fn start_upload(&mut self, key: &FileKey) {
        let now = self.now;
        if let Some(file) = self.state.files.get_mut(key) {
            file.transfer = Some(new_transfer(true, now));
            self.place_transfer(key);
            self.mark(Record::File(key.clone()));
        }
    }

    /// Hands the transfers that are due to the shell, within the limits.
    pub(crate) fn poll_transfers(&mut self) {
        for upload in [false, true] {
            self.poll_failed_transfers(upload);
            let projects: Vec<ProjectId> = self.state.projects.keys().copied().collect();
            for project in projects {
                while let Some(key) = self.state.transfers.of(upload).first_fresh(project) {
                    self.begin_transfer(&key);
                }
            }
        }
    }

    fn poll_failed_transfers(&mut self, upload: bool) {
        let now = self.now;
        if self.state.transfers.of(upload).retry_at.is_some_and(|at| at > now) {
            return;
        }
        let mut retry_at = Instant::FAR_FUTURE;
        let mut due = Vec::new();
        for key in self.state.transfers.failed(upload) {
            let Some(transfer) = self.state.files.get(key).and_then(|file| file.transfer.as_ref()) else {
                continue;
            };
            let left = self.wait_left(key, transfer);
            if left.is_positive() {
                retry_at = retry_at.min(now + left);
            } else {
                due.push(key.clone());
            }
        }
        // One that is due and finds no room waits for another to end, not for the clock.
        self.state.transfers.of(upload).retry_at = Some(retry_at);
        for key in due {
            if self.state.transfers.of(upload).has_room(key.project) {
                self.begin_transfer(&key);
            }
        }
    }

    /// The clock was set back: no wait becomes longer by that (R1.12).
    pub(crate) fn transfers_observe(&mut self) {
        let now = self.now;
        for transfer in self.state.files.values_mut().filter_map(|file| file.transfer.as_mut()) {
            transfer.backoff.observe(now);
        }
        for project in self.net.transfers.values_mut() {
            project.observe(now);
        }
        self.state.transfers.look_again();
    }

    /// How long until a transfer may be tried, by its own and its project's failures.
    fn wait_left(&self, key: &FileKey, transfer: &Transfer) -> Duration {
        match self.net.transfers.get(&(key.project, transfer.upload)) {
            Some(project) => project.left(&transfer.backoff, self.now),
            None => transfer.backoff.left(self.now),
        }
    }

    fn begin_transfer(&mut self, key: &FileKey) {
        let Some(project) = self.state.projects.get(&key.project) else { return };
        let (url, code_key) = (project.url.clone(), project.code_sign_key.clone().unwrap_or_default());
        let Some(file) = self.state.files.get_mut(key) else { return };
        let Some(transfer) = file.transfer.as_mut() else { return };
        let why = format!("{}, after {} failures in a row", key.name, transfer.backoff.failures());
        let effect = if transfer.upload {
            let (nbytes, md5) = file.found.clone().unwrap_or_default();
            let to = file.info.upload_urls.get(transfer.url_index).cloned();
            to.map(|to| {
                Effect::Upload(Box::new(Upload {
                    file: key.clone(),
                    url,
                    to,
                    xml_signature: file.info.xml_signature.clone().unwrap_or_default(),
                    max_nbytes: file.info.max_nbytes.map_or(0.0, Bytes::as_f64),
                    nbytes,
                    md5,
                }))
            })
        } else {
            let gzipped = file.info.gzipped_urls.len();
            let from = match transfer.url_index {
                index if index < gzipped => file.info.gzipped_urls.get(index),
                index => file.info.download_urls.get(index - gzipped),
            };
            let signature = file.signed.then(|| RequiredSignature {
                signature: file.info.file_signature.clone().unwrap_or_default(),
                key: code_key,
            });
            from.cloned().map(|from| {
                Effect::Download(Box::new(Download {
                    file: key.clone(),
                    url,
                    from,
                    gzipped: transfer.url_index < gzipped,
                    nbytes: file.info.nbytes,
                    md5: file.info.md5_cksum.clone(),
                    signature,
                    executable: file.info.executable,
                }))
            })
        };
        match effect {
            Some(effect) => {
                transfer.active = true;
                self.place_transfer(key);
                self.act(effect, Reason::new("BOINC transfers", why));
            }
            None => {
                let upload = transfer.upload;
                let verb = if upload { "sent" } else { "had" };
                self.fail_file(
                    key,
                    error::NOT_FOUND,
                    &format!("there is no URL left where it could be {verb}"),
                );
            }
        }
    }

    pub(crate) fn download_ended(&mut self, key: &FileKey, outcome: Result<Bytes, TransferError>) {
        let Some(file) = self.state.files.get_mut(key) else { return };
        match outcome {
            Ok(nbytes) => {
                file.status = FileStatus::Present;
                file.transfer = None;
                file.info.nbytes = Some(nbytes);
                self.place_transfer(key);
                self.net.transfers.remove(&(key.project, false));
                self.mark(Record::File(key.clone()));
                self.file_arrived(key);
            }
            Err(error) => self.transfer_failed(key, &error),
        }
    }

    pub(crate) fn upload_ended(&mut self, key: &FileKey, outcome: Result<(), TransferError>) {
        let Some(file) = self.state.files.get_mut(key) else { return };
        match outcome {
            Ok(()) => {
                file.status = FileStatus::Uploaded;
                file.transfer = None;
                self.place_transfer(key);
                self.net.transfers.remove(&(key.project, true));
                self.mark_durable(Record::File(key.clone()));
                self.output_settled(key);
            }
            Err(error) => self.transfer_failed(key, &error),
        }
    }

    /// A file came: jobs that waited for nothing else can run.
    fn file_arrived(&mut self, key: &FileKey) {
        let waiting = self.state.waiting.remove(key).unwrap_or_default();
        for job in waiting {
            self.settle_job_files(job);
        }
    }

    fn transfer_failed(&mut self, key: &FileKey, failure: &TransferError) {
        use TransferErrorKind::{
            BadReply, DiskFull, LocalFile, Permanent, Transient, WrongMd5, WrongSignature, WrongSize,
        };
        let now = self.now;
        let Some(file) = self.state.files.get_mut(key) else { return };
        let unsigned = file.info.file_signature.is_none();
        let Some(transfer) = file.transfer.as_mut() else { return };
        let urls = if transfer.upload {
            file.info.upload_urls.len()
        } else {
            file.info.gzipped_urls.len() + file.info.download_urls.len()
        };
        transfer.active = false;
        let verdict = match failure.kind {
            // The next URL may have what this one has not.
            Permanent | WrongMd5 | WrongSize if transfer.url_index + 1 < urls => {
                transfer.url_index += 1;
                None
            }
            Permanent | LocalFile if transfer.upload => Some(fallow_boinc::runtime::exit::UPLOAD_FAILED),
            Permanent => Some(error::NOT_FOUND),
            WrongMd5 => Some(error::MD5),
            WrongSize => Some(error::SIZE),
            WrongSignature if unsigned => Some(error::NO_SIGNATURE),
            WrongSignature => Some(error::SIGNATURE),
            Transient | BadReply | DiskFull | LocalFile => {
                // The next attempt begins with the next URL, where there are several.
                transfer.url_index = (transfer.url_index + 1) % urls.max(1);
                match transfer.backoff.on_failure(now, &mut self.rng) {
                    AfterFailure::GiveUp => Some(error::GAVE_UP),
                    AfterFailure::RetryIn(delay) => {
                        let direction = (key.project, transfer.upload);
                        self.net.transfers.entry(direction).or_default().on_failure(now, &mut self.rng);
                        self.draw();
                        let text = format!("{}: {failure}; trying again in {delay}", key.name);
                        self.notice(NoticeLevel::Warn, Some(key.project), text);
                        None
                    }
                }
            }
        };
        self.place_transfer(key);
        self.mark(Record::File(key.clone()));
        if let Some(number) = verdict {
            self.fail_file(key, number, &failure.what);
        }
    }

    /// A file is given up: the jobs that need it have failed.
    fn fail_file(&mut self, key: &FileKey, number: i32, why: &str) {
        let Some(file) = self.state.files.get_mut(key) else { return };
        let upload = file.transfer.take().is_some_and(|transfer| transfer.upload);
        file.status = FileStatus::Failed(number, why.to_owned());
        self.place_transfer(key);
        self.mark(Record::File(key.clone()));
        self.notice(NoticeLevel::Error, Some(key.project), format!("{} is given up: {why}", key.name));
        if upload {
            self.output_settled(key);
        } else {
            let waiting = self.state.waiting.remove(key).unwrap_or_default();
            for job in waiting {
                self.job_lacks_file(job, key, number, why);
            }
        }
    }

    /// A job needs a file of which its project has said nothing.
    pub(crate) fn job_lacks_unknown_file(&mut self, job: JobId, key: &FileKey) {
        self.job_lacks_file(job, key, error::NOT_FOUND, "its project has not said where it is");
    }

    fn job_lacks_file(&mut self, job: JobId, key: &FileKey, number: i32, why: &str) {
        let message = format!(
            "<file_xfer_error>\n  <file_name>{}</file_name>\n  <error_code>{number}</error_code>\n  \
             <error_message>{why}</error_message>\n</file_xfer_error>",
            key.name
        );
        self.job_failed(job, fallow_boinc::runtime::exit::DOWNLOAD_FAILED, 1, message);
    }

    pub(crate) fn next_transfer_wake_up(&self) -> Instant {
        self.state.transfers.next_retry(self.now)
    }
}

fn new_transfer(upload: bool, now: Instant) -> Transfer {
    Transfer { upload, url_index: 0, backoff: TransferBackoff::new(now), active: false }
}
