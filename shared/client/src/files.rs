//! The files of projects: what is here, what is on its way, what is no longer needed.
//!
//! A file is needed while a job or an application version refers to it. A job can run when all the files it
//! refers to are here. What nobody needs is deleted, unless the project made it sticky.

use fallow_boinc::scheduler::NetStats;
use fallow_domain::{Bytes, Instant, JobId, ProjectId};
use fallow_policy::net_rate::NetRates;
use fallow_policy::transfer_backoff::{AfterTransferFailure, TransferBackoff};

use crate::connection::NetworkUse;
use crate::described::{ApplicationVersion, FileDescription};
use crate::end_state::EndState;
use crate::libraries::could_be_library;
use crate::machine::Client;
use crate::state::{File, FileStatus, Kept, Transfer};
use crate::timers::Timer;
use crate::transfers::{Places, Rank, Use};
use crate::{
    Cause, Direction, Download, Effect, FileKey, NoticeLevel, RequiredSignature, Traffic, TransferError,
    TransferErrorKind, Upload,
};

/// BOINC's error numbers for files.
pub(crate) mod error {
    pub(super) const NOT_FOUND: i32 = -224;
    pub(super) const MD5: i32 = -119;
    pub(super) const SIGNATURE: i32 = -120;
    pub(crate) const NO_SIGNATURE: i32 = -123;
    pub(super) const SIZE: i32 = -221;
    pub(super) const GAVE_UP: i32 = -114;
    pub(super) const TOO_BIG: i32 = -131;
}

impl Client {
    /// Takes in what a project says about a file. What is already here stays; only its URLs and signatures
    /// are renewed.
    pub(crate) fn put_file(&mut self, project: ProjectId, info: FileDescription) {
        let key = FileKey { project, name: info.name.clone() };
        if !self.state.files.contains_key(&key) {
            // A version may have come before the description of its files.
            let is_of_version =
                |version: &ApplicationVersion| version.files.iter().any(|file| file.file_name == info.name);
            let is_program = self.state.file_use.is_used(&key)
                && self.state.versions.of(project).any(|(_, version)| is_of_version(version));
            // The loader finds what lies in the project's directory, whichever job it came for.
            let needs_key =
                self.state.projects.get(&project).is_some_and(|known| known.required_key.is_some());
            let is_library = needs_key && could_be_library(&info.name);
            let file = File {
                signed: info.signature_required || is_program || is_library,
                status: FileStatus::Absent,
                proof: None,
                found: None,
                stale: Bytes(0),
                transfer: None,
                kept: Kept { sticky_until: self.sticky_until(&info), ..Kept::default() },
                info,
            };
            return self.insert_file(key, file);
        }
        let sticky_until = self.sticky_until(&info);
        self.describe_file(&key, |known| {
            if info.sticky {
                known.kept.sticky_until = sticky_until;
            }
            known.info.download_urls = info.download_urls;
            known.info.upload_urls = info.upload_urls;
            known.info.gzipped_urls = info.gzipped_urls;
            known.info.signature = info.signature.or(known.info.signature.take());
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
        });
    }

    /// Until when a file that was described now is to be kept, if its project says so.
    fn sticky_until(&self, info: &FileDescription) -> Option<Instant> {
        let lifetime = info.sticky_lifetime.filter(|lifetime| info.sticky && lifetime.is_positive());
        lifetime.map(|lifetime| self.now() + lifetime)
    }

    /// One more user of a file.
    pub(crate) fn use_file(&mut self, key: &FileKey) {
        self.state.file_use.add_user(key);
    }

    /// One user less; the last one's file is deleted.
    pub(crate) fn unuse_file(&mut self, key: &FileKey) {
        let is_last = self.state.file_use.remove_user(key);
        if !is_last {
            return;
        }
        if self.state.files.get(key).is_some_and(|file| file.info.sticky) {
            let now = self.now();
            self.edit_file(key, |file| file.kept.last_used = Some(now));
            return;
        }
        let Some(file) = self.remove_file(key) else { return };
        if file.transfer.is_some_and(|transfer| transfer.active) {
            self.act(Effect::CancelTransfer { file: key.clone() }, Cause::FileNotNeeded);
        }
        if let Some(project) = self.state.projects.get(&key.project) {
            let effect = Effect::DeleteFile { file: key.clone(), url: project.url.clone() };
            self.act(effect, Cause::FileNotNeeded);
        }
    }

    /// Starts getting a file for a job unless it is here or already on its way. Says whether it is here.
    pub(crate) fn want_file(&mut self, key: &FileKey, job: JobId) -> bool {
        let now = self.now();
        let Some(file) = self.state.files.get(key) else { return false };
        let rank = self.rank(if file.signed { Use::Application } else { Use::Job }, job);
        match file.status {
            FileStatus::Present | FileStatus::Uploaded => return true,
            // One that was given up is tried once more for a job that came since: nothing else would ever
            // move the job.
            FileStatus::Absent | FileStatus::Failed(..) if file.transfer.is_none() => {
                self.edit_file_wanted(key, rank, |file| {
                    file.status = FileStatus::Absent;
                    file.transfer = Some(new_transfer(Direction::Download, now));
                });
            }
            _ => self.state.transfers.hasten(key, rank),
        }
        false
    }

    /// Puts all transfers into their order, which is not stored.
    pub(crate) fn place_transfers(&mut self) {
        let unfinished = self.state.files.iter().filter(|(_, file)| file.transfer.is_some());
        let keys: Vec<FileKey> = unfinished.map(|(key, _)| key.clone()).collect();
        for key in keys {
            let rank = match self.state.files[&key].transfer.as_ref().map(|transfer| transfer.direction) {
                Some(Direction::Upload) => self.upload_rank(&key),
                Some(Direction::Download) | None => self.download_rank(&key),
            };
            self.place_transfer(&key, Some(rank));
        }
    }

    /// How soon a job wants a file.
    fn rank(&self, purpose: Use, id: JobId) -> Rank {
        let Some(job) = self.state.jobs.get(&id) else { return Rank::LAST };
        let left =
            self.workload.queue().get(id).map_or_else(|| self.running_time_left(job), |job| job.remaining);
        Rank { purpose, deadline: job.result.report_deadline, left, job: id }
    }

    /// The same of the first of the jobs that wait for it.
    fn download_rank(&self, key: &FileKey) -> Rank {
        let signed = self.state.files.get(key).is_some_and(|file| file.signed);
        let purpose = if signed { Use::Application } else { Use::Job };
        let waiting = self.state.file_use.waiting(key);
        waiting.map(|job| self.rank(purpose, job)).min().unwrap_or(Rank::LAST)
    }

    fn upload_rank(&self, key: &FileKey) -> Rank {
        self.state.jobs.writers(key).map(|job| self.rank(Use::Job, job)).min().unwrap_or(Rank::LAST)
    }

    /// Starts sending an output.
    pub(crate) fn start_upload(&mut self, key: &FileKey) {
        let now = self.now();
        let rank = self.upload_rank(key);
        self.edit_file_wanted(key, rank, |file| file.transfer = Some(new_transfer(Direction::Upload, now)));
    }

    /// Hands the transfers that are due to the shell, within the limits.
    pub(crate) fn poll_transfers(&mut self) {
        if self.files_rest() || self.other_network.waits().is_some() || self.awaits_looks() {
            return;
        }
        let now = self.now();
        let places = Places::under(self.local_preferences());
        if self.state.transfers.set_places(places, now) {
            self.timers.stale(Timer::Transfer);
        }
        for direction in Direction::BOTH {
            self.state.transfers.of(direction).wake(now);
            if direction == Direction::Download && self.awaits_disk() {
                continue;
            }
            while let Some((key, rank)) = self.next_transfer(direction) {
                // The job that it was wanted for first may be gone; then others may be in greater haste.
                let is_wanted = |job| self.state.file_use.is_awaited_by(&key, job);
                let holds = direction == Direction::Upload || is_wanted(rank.job);
                let true_rank = if holds { rank } else { self.download_rank(&key) };
                if true_rank > rank {
                    self.place_transfer(&key, Some(true_rank));
                } else {
                    self.begin_transfer(&key, true_rank);
                }
            }
        }
    }

    fn next_transfer(&mut self, direction: Direction) -> Option<(FileKey, Rank)> {
        let (now, held) = (self.now(), &self.held_back);
        let is_held = |project| held.left(project, direction, now).is_positive();
        self.state.transfers.of(direction).next(now, is_held)
    }

    /// The clock was set back: no wait becomes longer by that (R1.12).
    pub(crate) fn transfers_observe(&mut self) {
        let now = self.now();
        self.state.files.observe(now);
        self.held_back.observe(now);
        self.state.transfers.observe(now);
        let failed = Direction::BOTH.map(|direction| self.state.transfers.failed(direction).clone());
        for key in failed.iter().flatten() {
            self.place_transfer(key, None);
        }
    }

    fn begin_transfer(&mut self, key: &FileKey, rank: Rank) {
        if let Some((is_for_ever, why)) = self.misfit(key) {
            return match is_for_ever {
                true => self.fail_file(key, error::TOO_BIG, &why),
                false => self.transfer_failed(key, &TransferError::new(TransferErrorKind::DiskFull, why)),
            };
        }
        let room = match self.is_download(key).then(|| self.make_room_for(key)).transpose() {
            Ok(room) => room.flatten(),
            Err(why) => {
                return self.transfer_failed(key, &TransferError::new(TransferErrorKind::DiskFull, why));
            }
        };
        let Some(project) = self.state.projects.get(&key.project) else { return };
        let keep_free = self.preferences().disk_free_min;
        let by_host = room.unwrap_or_else(|| self.room_for(key));
        let by_project = self.most_announced(key).filter(|most| room.is_none_or(|room| *most <= room));
        let limit = by_project.unwrap_or(by_host);
        let (url, code_key) = (project.url.clone(), project.code_sign_key.clone().unwrap_or_default());
        let Some(file) = self.state.files.get(key) else { return };
        let Some(transfer) = &file.transfer else { return };
        let direction = transfer.direction;
        let due = Cause::TransferDue { file: key.name.clone(), failures: transfer.backoff.failures() };
        let effect = if direction == Direction::Upload {
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
                    stale: file.stale,
                }))
            })
        } else {
            let gzipped = file.info.gzipped_urls.len();
            let from = match transfer.url_index {
                index if index < gzipped => file.info.gzipped_urls.get(index),
                index => file.info.download_urls.get(index - gzipped),
            };
            let signature = file.signed.then(|| RequiredSignature {
                signature: file.info.signature.clone().unwrap_or_default(),
                key: code_key,
            });
            from.cloned().map(|from| {
                Effect::Download(Box::new(Download {
                    file: key.clone(),
                    url,
                    from,
                    gzipped: transfer.url_index < gzipped,
                    nbytes: file.info.nbytes,
                    limit,
                    limited_by_host: by_project.is_none(),
                    keep_free,
                    md5: file.info.md5.clone(),
                    signature,
                    executable: file.info.executable,
                }))
            })
        };
        match effect {
            Some(effect) => {
                self.edit_file_wanted(key, rank, |file| {
                    file.transfer.iter_mut().for_each(|transfer| transfer.active = true);
                });
                self.act(effect, due);
            }
            None => {
                let verb = if direction == Direction::Upload { "sent" } else { "had" };
                self.fail_file(
                    key,
                    error::NOT_FOUND,
                    &format!("there is no URL left where it could be {verb}"),
                );
            }
        }
    }

    fn is_download(&self, key: &FileKey) -> bool {
        let transfer = self.state.files.get(key).and_then(|file| file.transfer.as_ref());
        transfer.is_some_and(|transfer| transfer.direction == Direction::Download)
    }

    /// Why a file would be too large for this host even if nothing else were on its disk; and whether that
    /// can never change. What preferences keep out waits: they may be tightened for a while.
    fn misfit(&self, key: &FileKey) -> Option<(bool, String)> {
        let file = self.state.files.get(key)?;
        if file.transfer.as_ref()?.direction == Direction::Upload {
            return None;
        }
        let (host, nbytes) = (self.state.host.facts()?, file.info.nbytes?);
        let total = host.disk_total;
        let most = self.owner_disk().most_of(total);
        if total == Bytes(0) || nbytes <= most {
            return None;
        }
        let allowed = || format!("the {most} that projects may use here by preferences");
        Some(match nbytes > total {
            true => (true, format!("its {nbytes} are more than the {total} of this host's disk")),
            false => (false, format!("its {nbytes} are more than {}", allowed())),
        })
    }

    /// What a file becomes at most by what its project says.
    pub(crate) fn most_announced(&self, key: &FileKey) -> Option<Bytes> {
        self.state.files.get(key)?.info.max_nbytes.filter(|most| *most > Bytes(0))
    }

    /// What a file may become of which its project says no size: the project's share of what is left to
    /// projects on the disk. A share of 0 keeps new work away and not the files of the work that is here:
    /// then it is all that is left.
    fn room_for(&self, key: &FileKey) -> Bytes {
        let (Some(host), Some(project)) = (self.state.host.facts(), self.state.projects.get(&key.project))
        else {
            return Bytes(0);
        };
        let owner = self.owner_disk();
        let by_free = host.disk_free.as_f64() - owner.free_min.as_f64();
        let room = owner.most_of(host.disk_total).as_f64().min(by_free).max(0.0);
        let share = self.share_fraction(project, |_| true);
        Bytes::from_f64(room * if share > 0.0 { share } else { 1.0 })
    }

    /// The files of a project that it could give again if they were gone.
    pub fn refetchable(&self, project: ProjectId) -> Vec<String> {
        let from = FileKey { project, name: String::new() };
        let files = self.state.files.range(from..).take_while(|(key, _)| key.project == project);
        let again = files.filter(|(_, file)| {
            file.found.is_none() && !(file.info.download_urls.is_empty() && file.info.gzipped_urls.is_empty())
        });
        again.map(|(key, _)| key.name.clone()).collect()
    }

    /// Takes note of how fast transfers are.
    pub(crate) fn traffic_measured(&mut self, traffic: &[Traffic]) {
        for part in traffic {
            self.ledger.transferred(self.clock.now(), part);
        }
    }

    /// What servers are told of it.
    pub(crate) fn net_stats(&self) -> NetStats {
        let NetRates { up, down } = self.ledger.net_rates();
        NetStats {
            bwup: up.speed,
            avg_up: up.average,
            avg_time_up: up.at.unwrap_or_default(),
            bwdown: down.speed,
            avg_down: down.average,
            avg_time_down: down.at.unwrap_or_default(),
        }
    }

    pub(crate) fn download_ended(&mut self, key: &FileKey, outcome: Result<Bytes, TransferError>) {
        let code_key =
            self.state.projects.get(&key.project).and_then(|project| project.code_sign_key.clone());
        let nbytes = match outcome {
            Ok(nbytes) => nbytes,
            Err(error) => {
                if error.kind == TransferErrorKind::DiskFull {
                    self.disk_was_full();
                }
                return self.transfer_failed(key, &error);
            }
        };
        let now = self.now();
        self.disk.arrived(key);
        let had_failed = self.edit_file(key, |file| {
            let signature = file.info.signature.clone().filter(|_| file.signed);
            file.proof = signature.zip(code_key).map(|(signature, key)| RequiredSignature { signature, key });
            file.status = FileStatus::Present;
            file.kept.arrived = Some(now);
            file.info.nbytes = Some(nbytes);
            file.transfer.take().is_some_and(|transfer| transfer.backoff.failures() > 0)
        });
        let Some(had_failed) = had_failed else { return };
        self.transfer_succeeded(key.project, Direction::Download);
        self.file_arrived(key, had_failed);
    }

    pub(crate) fn upload_ended(&mut self, key: &FileKey, outcome: Result<(), TransferError>) {
        if let Err(error) = outcome {
            return self.transfer_failed(key, &error);
        }
        let sent = self.edit_file(key, |file| (file.status, file.transfer) = (FileStatus::Uploaded, None));
        if sent.is_none() {
            return;
        }
        self.transfer_succeeded(key.project, Direction::Upload);
        self.tell_upload(key);
        self.output_settled(key);
    }

    /// A transfer ended well: those of its project are held back no longer. It may have been one that nobody
    /// wanted any more, so that no file's transfer changes by it.
    fn transfer_succeeded(&mut self, project: ProjectId, direction: Direction) {
        self.held_back.succeeded(project, direction);
        self.timers.stale(Timer::Transfer);
    }

    /// A file came: jobs that waited for nothing else can run, and no others stall because of it.
    fn file_arrived(&mut self, key: &FileKey, had_failed: bool) {
        let waiting = self.state.file_use.end_wait(key);
        for job in &waiting {
            self.settle_job_files(*job);
        }
        if had_failed {
            self.stall_changed(waiting);
        }
    }

    /// The next URL is tried at once: what one server does not give, another may. When all have failed, in
    /// the order in which the project gave them, the file is given up if the last one refused for good;
    /// otherwise it waits.
    fn transfer_failed(&mut self, key: &FileKey, failure: &TransferError) {
        use TransferErrorKind::{
            BadReply, Changed, DiskFull, LocalFile, Permanent, Transient, WrongMd5, WrongSignature, WrongSize,
        };
        let Some(file) = self.state.files.get(key) else { return };
        let (unsigned, urls) = (file.info.signature.is_none(), file.urls());
        let Some(transfer) = &file.transfer else { return };
        // A failure of this host is not the URL's.
        let is_local = matches!(failure.kind, DiskFull | LocalFile | Changed);
        let is_last = transfer.url_index + 1 >= urls || failure.kind == WrongSignature;
        let upload = transfer.direction == Direction::Upload;
        let tries_next = !is_local && !is_last;
        self.edit_transfer(key, |transfer, _| {
            transfer.active = false;
            transfer.url_index += usize::from(tries_next);
        });
        let verdict = match failure.kind {
            Changed if upload => Some(fallow_boinc::runtime::exit::UPLOAD_FAILED),
            _ if tries_next => {
                let text = format!("{}: {failure}; trying the next of its {urls} URLs", key.name);
                self.notice(NoticeLevel::Info, Some(key.project), text);
                None
            }
            Permanent if upload => Some(fallow_boinc::runtime::exit::UPLOAD_FAILED),
            Permanent => Some(error::NOT_FOUND),
            WrongMd5 => Some(error::MD5),
            WrongSize => Some(error::SIZE),
            WrongSignature if unsigned => Some(error::NO_SIGNATURE),
            WrongSignature => Some(error::SIGNATURE),
            Transient | BadReply | DiskFull | LocalFile | Changed => self.back_off(key, failure, is_local),
        };
        match verdict {
            Some(number) => self.fail_file(key, number, &failure.what),
            None => {
                let waiting: Vec<JobId> = self.state.file_use.waiting(key).collect();
                self.stall_changed(waiting);
            }
        }
    }

    /// Lets a file that failed wait; gives its error number when that has been going on for too long.
    fn back_off(&mut self, key: &FileKey, failure: &TransferError, is_local: bool) -> Option<i32> {
        let now = self.now();
        let (direction, then) = self.edit_transfer(key, |transfer, rng| {
            transfer.url_index = 0;
            (transfer.direction, transfer.backoff.on_failure(now, rng))
        })?;
        match then {
            AfterTransferFailure::GiveUp => Some(error::GAVE_UP),
            AfterTransferFailure::RetryIn(delay) => {
                if !is_local {
                    self.held_back.failed(key.project, direction, now, self.random.stream());
                }
                self.note_draw();
                let text = format!("{}: {failure}; trying again in {delay}", key.name);
                self.notice(NoticeLevel::Warn, Some(key.project), text);
                None
            }
        }
    }

    /// A file is given up: the jobs that need it have failed.
    pub(crate) fn fail_file(&mut self, key: &FileKey, number: i32, why: &str) {
        let upload = self.edit_file(key, |file| {
            file.status = FileStatus::Failed(number, why.to_owned());
            file.transfer.take().is_some_and(|transfer| transfer.direction == Direction::Upload)
        });
        let Some(upload) = upload else { return };
        self.notice(NoticeLevel::Error, Some(key.project), format!("{} is given up: {why}", key.name));
        if upload {
            self.tell_upload(key);
            self.output_settled(key);
        } else {
            // What there is of it is of no use to anybody.
            if let Some(project) = self.state.projects.get(&key.project) {
                let effect = Effect::DeleteFile { file: key.clone(), url: project.url.clone() };
                self.act(effect, Cause::DownloadGivenUp);
            }
            let waiting = self.state.file_use.end_wait(key);
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
        self.job_failed(job, fallow_boinc::runtime::exit::DOWNLOAD_FAILED, EndState::DownloadFailed, message);
    }

    /// Whether no file may be transferred, even where projects are contacted: somebody has the machine for
    /// himself, enough was transferred, the host is not on WiFi and has to be, or a preference file cannot be
    /// read that may have been the one to limit it.
    fn files_rest(&self) -> bool {
        self.files_yield || self.files_rest_in_any_case()
    }

    /// The same, where nobody has the machine for himself.
    fn files_rest_in_any_case(&self) -> bool {
        self.state.quota.is_spent() || self.wifi.forbids() || !self.preference_troubles().is_empty()
    }

    /// Whether a transfer could begin now but for other programs that use the network.
    pub(crate) fn could_begin_files(&self) -> bool {
        !self.files_yield && self.could_begin_but_for_people()
    }

    /// The same, and but for somebody who has the machine for himself.
    pub(crate) fn could_begin_but_for_people(&self) -> bool {
        let now = self.now();
        let any_ready = |direction| {
            let is_held = |project| self.held_back.left(project, direction, now).is_positive();
            !(direction == Direction::Download && self.awaits_disk())
                && self.state.transfers.any_ready(direction, now, is_held)
        };
        self.access.is_open() && !self.files_rest_in_any_case() && Direction::BOTH.into_iter().any(any_ready)
    }

    /// When a transfer can begin that cannot now.
    pub(crate) fn next_transfer_wake_up(&self) -> Option<Instant> {
        if self.access.used() == NetworkUse::Closed
            || self.files_rest()
            || self.other_network.waits().is_some()
        {
            return None;
        }
        let now = self.now();
        self.state
            .transfers
            .next_wake_up(now, |project, direction| now + self.held_back.left(project, direction, now))
    }
}

fn new_transfer(direction: Direction, now: Instant) -> Transfer {
    Transfer { direction, url_index: 0, backoff: TransferBackoff::new(now), active: false }
}
