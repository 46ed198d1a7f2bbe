//! Carries the disk's plans out (R4.4, R4.8), believes the disk over the records (R4.12), and says why
//! (R4.13).
//!
//! Nothing that a job needs is ever deleted: whose files go is planned by `fallow_policy::disk`, and each is
//! looked at once more before it goes. A file that its project or an application version still names is only
//! taken from the disk, and fetched again when a job needs it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fallow_boinc::runtime::exit;
use fallow_domain::agent_state::{DiskAct, DiskDecision};
use fallow_domain::{Bytes, Instant, JobId, ProjectId};
use fallow_policy::disk::reconcile::{FileLocation, Mismatch, Orphans, Recorded, reconcile};
use fallow_policy::disk::{
    Admission, Deletion, DeletionRule, OwnerDisk, ReturnedJob, ShrinkStep, TotalLimit, Volume, WhyNotAdmitted,
};

use crate::disk::{DiskDeed, Measured};
use crate::machine::Client;
use crate::state::{FileStatus, Process, Stage};
use crate::timers::Timer;
use crate::{Cause, DiskFound, Effect, Entity, FileFound, FileKey, NoticeLevel, Rule};

/// So many files without an owner at once are a reason to look soon again.
const MANY: usize = 1_000;

/// Files that no job needs go between two tries to store something until they come to so much, and so many at
/// most: of the smallest ones many have to go before there is space for anything.
const GIVEN_UP_AT_ONCE: (Bytes, usize) = (Bytes::from_mebibytes(4), 256);

/// So many files that go together are named.
const NAMED_MAX: usize = 20;

/// So much is made free, if nothing is, before a file comes of which nobody says how large it is.
const UNSAID: Bytes = Bytes::from_mebibytes(1);

fn key_of(deletion: &Deletion) -> FileKey {
    FileKey { project: deletion.project, name: deletion.name.clone() }
}

impl Client {
    /// Does what the owner's limit asks for when that or what counts has changed (R4.8), and has the disk
    /// measured when that is due.
    pub(crate) fn poll_disk(&mut self) {
        let Some(period) = self.config.measure_disk else { return };
        let now = self.now();
        let may_be_due = self.timers.may_be_due(Timer::Disk, now);
        if may_be_due && self.set_disk_limit() || self.disk.has_news() && self.is_over_disk_limit() {
            self.shrink_disk();
        }
        if !may_be_due {
            return;
        }
        if self.disk.due_at(period).is_some_and(|at| at <= now) {
            self.disk.ask(now, self.state.jobs.slots());
            self.act(Effect::MeasureDisk, Cause::DiskMeasured);
        }
    }

    /// Whether the limit is exceeded. Where it no longer is because a task has left its slot, that space is
    /// yet to be freed: computing goes on when the volume shows it.
    fn is_over_disk_limit(&mut self) -> bool {
        self.settle_disk();
        self.set_disk_limit();
        self.disk.books().is_some_and(|disk| disk.over() > Bytes(0))
    }

    /// So much is free on the volume: others fill it too, and that is not to wait for a measurement (R4.8).
    pub(crate) fn volume_seen(&mut self, free: Bytes) {
        self.settle_disk();
        let (owner, now) = (self.owner_disk(), self.now());
        let is_short = self.disk.see(&owner, free, now);
        if self.set_disk_limit() || self.disk.suspension().is_some() {
            self.shrink_disk();
        }
        if is_short {
            // Who has taken it is told by a measurement alone.
            self.disk_was_full();
        }
    }

    /// Whether nothing is known of the disk that is to be measured: no file comes before that (R4.4).
    pub(crate) fn awaits_disk(&self) -> bool {
        self.config.measure_disk.is_some() && self.disk.books().is_none()
    }

    /// When the disk is to be measured.
    pub(crate) fn next_disk(&self) -> Option<Instant> {
        self.config.measure_disk.and_then(|period| self.disk.due_at(period))
    }

    /// Somebody has met a full disk: it is measured soon.
    pub(crate) fn disk_was_full(&mut self) {
        self.disk.want();
        self.timers.stale(Timer::Disk);
    }

    /// Brings the books up to date.
    pub(crate) fn settle_disk(&mut self) {
        self.disk.settle(&self.state, self.clock.now(), self.clock.started_at());
    }

    /// The disk was measured, or could not be.
    pub(crate) fn disk_measured(&mut self, found: Result<DiskFound, String>) {
        self.timers.stale(Timer::Disk);
        let now = self.now();
        if found.is_ok() && self.disk.settles(now) {
            return;
        }
        let usable = found.and_then(|mut found| {
            self.disk.complete(&mut found, &self.state);
            let volume = Volume::measured(now, found.size, found.free, found.ours);
            volume.map(|volume| (found, volume)).map_err(|error| error.to_string())
        });
        let (found, volume) = match usable {
            Ok(usable) => usable,
            Err(why) => {
                self.disk.failed(now);
                self.notice(NoticeLevel::Warn, None, format!("the disk cannot be measured: {why}"));
                return;
            }
        };
        self.end_lifetimes();
        self.believe_disk(&found);
        let (mut whole, mut parts) = (BTreeMap::new(), BTreeMap::new());
        let mut beside: BTreeMap<ProjectId, Bytes> = found.projects.iter().copied().collect();
        for file in found.files.iter().filter(|file| !found.unseen.contains(&file.key.project)) {
            let known = self.state.files.get(&file.key);
            let is_here =
                known.is_some_and(|file| matches!(file.status, FileStatus::Present | FileStatus::Uploaded));
            // What was decided to go by what was found takes nothing any more, either.
            let goes = self.disk.is_gone(&file.key)
                && known.is_none_or(|file| !is_here && file.transfer.as_ref().is_none_or(|it| !it.active));
            if known.is_none() && !goes || file.is_part && is_here {
                continue;
            }
            if let Some(rest) = beside.get_mut(&file.key.project) {
                *rest = Bytes(rest.0.saturating_sub(file.blocks.0));
            }
            if goes {
                continue;
            }
            let held: &mut Bytes =
                if file.is_part { &mut parts } else { &mut whole }.entry(file.key.clone()).or_default();
            *held = held.plus(file.blocks);
        }
        let slots = found.slots.into_iter().collect();
        let (took, own, trash, unseen) = (found.took, found.own, found.trash, found.unseen);
        let measured = Measured { volume, took, own, trash, whole, parts, slots, beside, unseen };
        self.disk.measured(measured, &self.state);
        self.set_disk_limit();
        self.shrink_disk();
        if let Some(space) = self.disk_space()
            && self.disk.is_news(space)
        {
            self.touch(Entity::Host);
        }
    }

    /// What all may use together, by the preferences in force. Says whether that has changed.
    fn set_disk_limit(&mut self) -> bool {
        let Some(volume) = self.disk.volume().copied() else { return false };
        let limit = TotalLimit::new(&self.owner_disk(), &volume);
        self.disk.set_limit(limit)
    }

    /// What the owner allows of the disk.
    pub(crate) fn owner_disk(&self) -> OwnerDisk {
        OwnerDisk::from((self.preferences(), self.local_preferences()))
    }

    /// Does what an exceeded limit asks for (R4.8), and says whether computing may go on.
    fn shrink_disk(&mut self) {
        self.settle_disk();
        let plan = self.disk.shrink();
        let suspension = plan.as_ref().and_then(|plan| plan.suspension);
        let mut steps: VecDeque<ShrinkStep> = plan.into_iter().flat_map(|plan| plan.steps).collect();
        while let Some(step) = steps.pop_front() {
            match step {
                ShrinkStep::GiveBack(job) => self.give_back_for_room(job),
                ShrinkStep::Delete(first) => {
                    let mut deletions = vec![first];
                    while let Some(ShrinkStep::Delete(_)) = steps.front() {
                        let Some(ShrinkStep::Delete(next)) = steps.pop_front() else { break };
                        deletions.push(next);
                    }
                    self.delete_for_room(&deletions);
                }
            }
        }
        let text = suspension.as_ref().map_or_else(
            || "there is space on the disk again: computing may go on".to_owned(),
            |why| self.disk_suspended(why),
        );
        if !self.disk.set_suspension(suspension) {
            return;
        }
        let is_short = suspension.is_some();
        self.state.host.set_lacks_disk(is_short);
        let found = self.state.host.look_at_clock(self.now());
        self.see_to(found);
        // What fills a disk is no document's doing, mostly.
        self.spare_tasks();
        self.touch(Entity::Host);
        let level = if is_short { NoticeLevel::Warn } else { NoticeLevel::Info };
        let what = if is_short { DiskAct::Suspended } else { DiskAct::Resumed };
        let missing = suspension.map_or(Bytes(0), |why| why.missing.plus(why.limit.short()));
        self.disk_decided(what, None, "", missing, Rule::DiskLimit, text.clone());
        self.disk_deed(level, None, text);
    }

    /// Makes room for a file that is to come whole. Says why it cannot come, if it cannot.
    /// Gives what it may become on this host, where its project does not say its size.
    pub(crate) fn make_room_for(&mut self, key: &FileKey) -> Result<Option<Bytes>, String> {
        if self.config.measure_disk.is_none() {
            return Ok(None);
        }
        let said = self.state.files.get(key).and_then(|file| file.info.nbytes);
        let most = self.most_announced(key);
        self.settle_disk();
        if let (None, Some(room)) = (said, self.disk.grant(key, most)) {
            return Ok(Some(room));
        }
        match self.disk.admit(key, said.unwrap_or(UNSAID)) {
            None => return Err(WhyNotAdmitted::NotMeasured.to_string()),
            Some(Admission::Fits { .. }) => {}
            Some(Admission::AfterDeleting(deletions)) => {
                self.delete_for_room(&deletions);
                self.settle_disk();
            }
            Some(Admission::Refused(why)) => return Err(why.to_string()),
        }
        match said {
            Some(_) => Ok(None),
            None => self.disk.grant(key, most).map(Some).ok_or_else(|| "nothing is free for it".to_owned()),
        }
    }

    /// Deletes files by a plan, but for what is needed after all.
    fn delete_for_room(&mut self, deletions: &[Deletion]) {
        let keys: Vec<FileKey> = deletions.iter().map(key_of).collect();
        let needed = self.needed(&keys);
        for (deletion, key) in deletions.iter().zip(&keys).filter(|(_, key)| !needed.contains(key)) {
            let why = format!("{}; {}", self.rule_in_words(&deletion.rule), deletion.why);
            let text = format!("deleted {} ({}): {why}", deletion.name, deletion.bytes);
            let cause = Cause::Deleted(Box::new(deletion.clone()));
            let rule = cause.rule();
            self.take_from_disk(key, cause);
            self.disk.frees(self.now());
            self.disk_decided(DiskAct::Deleted, Some(key.project), &key.name, deletion.bytes, rule, why);
            self.disk_deed(NoticeLevel::Info, Some(key.project), text);
        }
    }

    /// What a file that is here is known to hold.
    pub(crate) fn file_bytes(&self, key: &FileKey) -> Bytes {
        self.state.files.get(key).map_or(Bytes(0), |file| self.disk.size_of(key, file))
    }

    /// Says that files of a project go which were kept, however many there are, as one decision.
    pub(crate) fn kept_no_more(&mut self, project: ProjectId, files: &[(String, Bytes)], cause: &Cause) {
        let Some((first, _)) = files.first() else { return };
        let bytes = files.iter().fold(Bytes(0), |sum, (_, bytes)| sum.plus(*bytes));
        let more = files.len() - 1;
        let name = if more == 0 { first.clone() } else { format!("{first} and {more} others") };
        let mut text = format!("deleted {name} ({bytes}): {cause}");
        if more > 0 {
            let names: Vec<&str> = files.iter().take(NAMED_MAX).map(|(name, _)| name.as_str()).collect();
            text = format!("{text}: {}", names.join(", "));
            if files.len() > NAMED_MAX {
                text.push_str(", ...");
            }
        }
        let (what, project) = (DiskAct::Deleted, Some(project));
        self.disk_decided(what, project, &name, bytes, cause.rule(), cause.to_string());
        self.disk.deleted_more(more);
        self.disk_deed(NoticeLevel::Info, project, text);
    }

    /// Takes a file from the disk. It is forgotten, unless an application or a job on its way out names it:
    /// then it is one that may be fetched again.
    fn take_from_disk(&mut self, key: &FileKey, why: Cause) {
        let active =
            self.state.files.get(key).and_then(|file| file.transfer.as_ref()).is_some_and(|t| t.active);
        if active {
            self.act(Effect::CancelTransfer { file: key.clone() }, why.clone());
        }
        if self.state.file_use.is_used(key) {
            self.edit_file(key, |file| {
                (file.status, file.found, file.proof) = (FileStatus::Absent, None, None);
                file.transfer = None;
            });
        } else {
            self.remove_file(key);
        }
        self.disk.deleted(key);
        if let Some(project) = self.state.projects.get(&key.project) {
            let effect = Effect::DeleteFile { file: key.clone(), url: project.url.clone() };
            self.act(effect, why);
        }
    }

    /// Which of some files a job that is wanted reads or writes, and which are being sent. Each job of their
    /// projects is looked at once, and each version that has one, however many files are asked for.
    fn needed<'a>(&self, keys: &'a [FileKey]) -> BTreeSet<&'a FileKey> {
        let sends = |key: &FileKey| {
            let transfer = self.state.files.get(key).and_then(|file| file.transfer.as_ref());
            transfer.is_some_and(|transfer| transfer.direction == crate::Direction::Upload)
        };
        let mut needed: BTreeSet<&FileKey> = keys.iter().filter(|key| sends(key)).collect();
        // Without users there is nothing to be looked for.
        let mut asked: BTreeMap<ProjectId, BTreeMap<&str, &FileKey>> = BTreeMap::new();
        for key in keys.iter().filter(|key| self.state.file_use.is_used(key)) {
            asked.entry(key.project).or_default().insert(&key.name, key);
        }
        for (project, names) in &asked {
            let mut versions = BTreeSet::new();
            for job in self.state.jobs.of(*project).filter_map(|id| self.state.jobs.get(&id)) {
                needed.extend(job.result.files.iter().filter_map(|file| names.get(file.file_name.as_str())));
                let is_aborted =
                    |end: &crate::state::Outcome| end.state == crate::end_state::EndState::Aborted;
                if job.outcome.as_ref().is_some_and(is_aborted) && !job.process.exists() {
                    // It leaves.
                    continue;
                }
                versions.insert(&job.version);
                let workunit = self.state.workunits.get(&job.workunit());
                let inputs = workunit.into_iter().flat_map(|workunit| &workunit.files);
                needed.extend(inputs.filter_map(|file| names.get(file.file_name.as_str())));
            }
            for version in versions.into_iter().filter_map(|version| self.state.versions.get(version)) {
                needed.extend(version.files.iter().filter_map(|file| names.get(file.file_name.as_str())));
            }
        }
        needed
    }

    /// Gives a queued job back to its server (R4.8).
    fn give_back_for_room(&mut self, returned: ReturnedJob) {
        let id = returned.job;
        let Some(job) = self.state.jobs.get(&id) else { return };
        if job.run.begun || job.process.exists() || job.outcome.is_some() {
            return;
        }
        let (name, files) = (job.result.name.clone(), self.input_files(job));
        for key in self.disk.give_back(id, &files) {
            self.edit_file(&key, |file| file.transfer = None);
            self.act(Effect::CancelTransfer { file: key.clone() }, Cause::GivenBack(returned));
        }
        self.abort_job(id, exit::ABORTED_BY_CLIENT, &Cause::GivenBack(returned));
        let frees = returned.frees;
        let why = format!(
            "the disk limit is exceeded and only files that jobs need are left; of its project's queued jobs it has the latest \
             deadline; this frees {frees}"
        );
        let text = format!("gave {name} back: {why}");
        self.disk_decided(DiskAct::GivenBack, Some(returned.project), &name, frees, Rule::DiskLimit, why);
        self.disk_deed(NoticeLevel::Warn, Some(returned.project), text);
    }

    /// A rule with the project that it is about called by its URL.
    fn rule_in_words(&self, rule: &DeletionRule) -> String {
        match rule {
            DeletionRule::OffenderGivesWay { to, excess, limit } => {
                let who = self.state.projects.get(to).map_or_else(|| to.to_string(), |p| p.url.to_string());
                format!("it exceeds its disk limit of {limit} by {excess} and {who} needs room")
            }
            other => other.to_string(),
        }
    }

    /// Says what was done about the disk, and remembers it for who asks later.
    fn disk_deed(&mut self, level: NoticeLevel, project: Option<ProjectId>, text: String) {
        self.disk.note(DiskDeed { at: self.now(), project, text: text.clone() });
        self.notice(level, project, text);
    }

    /// Remembers a decision for the coordinator (R4.13).
    fn disk_decided(
        &mut self,
        what: DiskAct,
        project: Option<ProjectId>,
        name: &str,
        bytes: Bytes,
        rule: Rule,
        why: String,
    ) {
        // By its URL, which the coordinator knows it by, also when it was detached since.
        let project = project.and_then(|id| self.state.projects.get(&id)).map(|project| project.url.clone());
        let (at, name, rule) = (self.clock.now(), name.to_owned(), rule.id().to_owned());
        self.disk.decided(DiskDecision { at, what, project, name, bytes, rule, why });
        self.touch(Entity::Disk);
        // It has how many there were.
        self.touch(Entity::Host);
    }

    /// Files that their projects wanted kept until now (BOINC: `sticky_lifetime`).
    fn end_lifetimes(&mut self) {
        let now = self.now();
        let over =
            self.state.files.iter().filter(|(_, file)| {
                file.info.sticky && file.kept.sticky_until.is_some_and(|until| until < now)
            });
        let over: Vec<FileKey> = over.map(|(key, _)| key.clone()).collect();
        self.unstick(over, &Cause::LifetimeOver);
    }

    /// Believes the disk over the records (R4.12): what is recorded and not there is fetched again where it
    /// is needed, what nobody owns goes after a while.
    fn believe_disk(&mut self, look: &DiskFound) {
        let place = |key: &FileKey| FileLocation { project: Some(key.project), name: key.name.clone() };
        let key = |place: &FileLocation| Some(FileKey { project: place.project?, name: place.name.clone() });
        let state = &self.state;
        let recorded = state.files.iter().map(|(key, file)| {
            // An output is what its task made of it, and one that is sent fails by itself.
            let is_whole =
                file.status == FileStatus::Present && file.found.is_none() && file.transfer.is_none();
            let nbytes = file.info.nbytes.filter(|_| is_whole);
            (place(key), nbytes.map_or(Recorded::Arriving(Bytes(u64::MAX)), Recorded::Whole))
        });
        let recorded: BTreeMap<FileLocation, Recorded> = recorded.collect();
        // Parts of known files and messages of jobs are somebody's. What the owner says of the project is not
        // among them: no file of a project has that name.
        let mine = |file: &&FileFound| {
            let is_seen = !look.unseen.contains(&file.key.project);
            let is_part = file.is_part && state.files.contains_key(&file.key);
            // What goes for another reason is told once.
            let goes = !state.files.contains_key(&file.key) && self.disk.is_gone(&file.key);
            is_seen && !is_part && !goes && self.trickle_size(&file.key).is_none()
        };
        let found: Vec<&FileFound> = look.files.iter().filter(mine).collect();
        let orphans = Orphans::since(found.iter().map(|file| (place(&file.key), file.changed)));
        let on_disk = found.iter().map(|file| (place(&file.key), file.length)).collect();
        let told = reconcile(&recorded, &on_disk, &orphans, self.now());
        let news = self.disk.new_strays(told.remove.iter().filter_map(|one| key(&one.location)).collect());
        if told.remove.len() >= MANY && !news.is_empty() {
            // Not all that lies there was named. Where all of it was tried before, there is no hurry.
            self.disk.want();
        }
        for removal in told.remove {
            let Some(key) = key(&removal.location) else { continue };
            let Some(project) = self.state.projects.get(&key.project) else { continue };
            let effect = Effect::DeleteFile { file: key.clone(), url: project.url.clone() };
            self.act(effect, Cause::Orphan(removal.age));
            // What was tried before is there to stay.
            if !news.contains(&key) {
                continue;
            }
            self.disk.deleted(&key);
            let why = format!("nothing has owned it for {}", removal.age);
            let text = format!("removed {} ({}): {why}", key.name, removal.bytes);
            let (project, rule) = (Some(key.project), Rule::DiskBelieved);
            self.disk_decided(DiskAct::Deleted, project, &key.name, removal.bytes, rule, why);
            self.disk_deed(NoticeLevel::Info, Some(key.project), text);
        }
        let mut gone = BTreeSet::new();
        for mismatch in told.mismatches {
            let (Mismatch::Missing { location, .. } | Mismatch::Resized { location, .. }) = &mismatch;
            let Some(key) = key(location) else { continue };
            if look.unseen.contains(&key.project) || look.unsure.contains(&key) {
                continue;
            }
            let text = match &mismatch {
                Mismatch::Missing { .. } => format!("{} is gone from the disk", key.name),
                Mismatch::Resized { recorded, found, .. } => {
                    format!("{} has {found} on the disk and not the {recorded} that came", key.name)
                }
            };
            self.disk_deed(NoticeLevel::Warn, Some(key.project), text);
            gone.insert(key);
        }
        if !gone.is_empty() {
            self.lost(&gone);
        }
    }

    /// The names that are known in the directories of projects, for who looks what is there.
    pub fn known_files(&self) -> BTreeMap<ProjectId, BTreeSet<String>> {
        let mut known: BTreeMap<ProjectId, BTreeSet<String>> = BTreeMap::new();
        for key in self.state.files.keys() {
            known.entry(key.project).or_default().insert(key.name.clone());
        }
        known
    }

    /// Files that should be there and are not among what was found, or are not what came, those that were
    /// given up for want of space, and those that are on their way: a look takes a while, and they may have
    /// come, grown or gone meanwhile. An output may have
    /// moved there from a slot; where the slot was looked at before that, it counts twice for a moment, so
    /// that the limit is larger by it until the free space is next looked at.
    pub fn doubtful_files(&self, found: &DiskFound) -> Vec<FileKey> {
        let whole = found.files.iter().filter(|file| !file.is_part);
        let whole: BTreeMap<&FileKey, Bytes> = whole.map(|file| (&file.key, file.length)).collect();
        let is_doubtful = |(key, file): &(&FileKey, &crate::state::File)| match &file.transfer {
            Some(transfer) if transfer.direction == crate::Direction::Download => transfer.active,
            _ if matches!(file.status, FileStatus::Present | FileStatus::Uploaded) => match whole.get(key) {
                None => true,
                Some(_) if self.disk.is_given_up(key) => true,
                // An output is what its task made of it.
                Some(length) => {
                    file.found.is_none() && file.info.nbytes.is_some_and(|nbytes| nbytes != *length)
                }
            },
            _ => false,
        };
        let seen = self.state.files.iter().filter(|(key, _)| !found.unseen.contains(&key.project));
        seen.filter(is_doubtful).map(|(key, _)| key.clone()).collect()
    }

    /// Some files that no job needs, to be deleted now because nothing can be stored for want of space; each
    /// is named once. Of the project that exceeds its limit by most, or leaves least of it, they are the
    /// first to go. That needs no storing: what is recorded and not there is believed to be gone. It is
    /// `now`: the client's own clock stands still while nothing can be stored.
    pub fn give_up_files(&mut self, now: Instant) -> Vec<FileKey> {
        self.settle_disk();
        // It is measured soon.
        self.timers.stale(Timer::Disk);
        loop {
            let next = self.disk.give_up(GIVEN_UP_AT_ONCE, &self.state, self.clock.now());
            if next.is_empty() {
                return Vec::new();
            }
            let all: Vec<FileKey> = next.iter().map(key_of).collect();
            let needed = self.needed(&all);
            let mut keys = Vec::new();
            for (Deletion { bytes, rule, .. }, key) in next.iter().zip(&all) {
                if !needed.contains(key) {
                    let why = rule.to_string();
                    let text = format!("deleted {} ({bytes}): {why}", key.name);
                    let project = Some(key.project);
                    self.disk.note(DiskDeed { at: self.clock.now(), project, text });
                    let what = DiskAct::Deleted;
                    self.disk_decided(what, project, &key.name, *bytes, Rule::FullDisk, why);
                    self.disk.was_given_up(key);
                    keys.push(key.clone());
                }
            }
            if !keys.is_empty() {
                // The file system may take a moment to have their space.
                self.disk.frees(now);
                return keys;
            }
        }
    }

    /// Files are not on the disk any more, or are not what they were.
    fn lost(&mut self, gone: &BTreeSet<FileKey>) {
        for key in gone {
            self.take_from_disk(key, Cause::NotAsRecorded);
        }
        let waits = |job: &&crate::state::Job| {
            job.stage == Stage::Runnable && job.process == Process::None && job.outcome.is_none()
        };
        let waiting = self.state.jobs.values().filter(waits);
        let lacking = waiting.filter(|job| self.input_files(job).iter().any(|key| gone.contains(key)));
        let lacking: Vec<JobId> = lacking.map(|job| job.id).collect();
        for id in lacking {
            self.edit_job(id, |job| job.stage = Stage::Downloading);
            self.settle_job_files(id);
            self.reassess(id);
        }
    }
}
