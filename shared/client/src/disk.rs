//! What the client knows of its disk (R4): the books that plans are made from, and what was done by them.
//!
//! Model: the shell measures the disk now and then and tells what it found. In between the books follow the
//! client's own changes: whoever changes a file, a job or a project says so at its door, and before a
//! question what has changed is told to the books. So an event costs nothing here until somebody asks.
//! Derived state, but for nothing: after a restart it is measured anew.
//!
//! A file counts with the blocks that were found; before that, and while it arrives, with the size that its
//! project says. What is only there in part counts as that part. Slots, files without an owner and what
//! directories take count as their project's as well, and cannot be deleted for room.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fallow_domain::agent_state::{DiskAct, DiskDecision, DiskSpace};
use fallow_domain::{Bytes, Duration, Instant, JobId, ProjectId, SlotId};
use fallow_policy::disk::{
    Admission, Deletion, DiskJob, DiskReport, DiskSuspension, DiskUse, FileAttributes, FileId, Hold,
    JobStage, MEASURE_PERIOD, OwnerDisk, Priority, ShrinkPlan, TotalLimit, Volume,
};

use crate::end_state::EndState;
use crate::state::{File, FileStatus, Job, Project, State};
use crate::{Direction, DiskFound, FileKey};

/// How many deeds are remembered for people.
const DEEDS_MAX: usize = 200;
/// And how many decisions for the coordinator.
const DECISIONS_MAX: usize = 20;
/// How it stands is told anew when an amount differs by such a part of the volume.
const NEWS_PART: u64 = 100;
/// While the disk is short it is measured again so soon, unless measuring takes long.
const SHORT_PERIOD: Duration = Duration::from_secs(15);
/// After so long without an answer a measurement is asked for again.
const ANSWER_MAX: Duration = Duration::from_mins(30);
/// So many files are remembered that were deleted during a measurement.
const GONE_MAX: usize = 10_000;
/// So long it may take until a file system is free of what was deleted.
const FREEING: Duration = Duration::from_mins(1);
/// A measurement that ends so soon after files were deleted for want of space is made once more: XFS and
/// others free what they took in the background.
const SETTLING: Duration = Duration::from_secs(5);
/// So many times as long as a measurement took passes before the next one at least.
const REST: i64 = 20;

/// Something that was done about the disk, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskDeed {
    /// When.
    pub at: Instant,
    /// Whose file or job it was, if anybody's.
    pub project: Option<ProjectId>,
    /// What was done, and why.
    pub text: String,
}

/// What the client knows of its disk.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    /// None until it was measured.
    books: Option<Books>,
    /// A measurement is under way, since then.
    asked: Option<Instant>,
    /// Whose each slot was when that began.
    holders: BTreeMap<SlotId, JobId>,
    /// What may be used at most by what was seen of the volume since the last measurement, and what was used
    /// then as far as that was known.
    seen: Option<(TotalLimit, Bytes)>,
    /// Outputs that became known since then.
    outputs: Bytes,
    /// Until then it is not believed that the volume is short: files were deleted, and some file systems take
    /// a while until they are free of them.
    freeing_until: Instant,
    /// Until then what they took may count as used: see [`SETTLING`].
    settles_at: Instant,
    /// A measurement came before that, and is made once more at this time.
    again_at: Option<Instant>,
    /// Files that a shell was told to delete while nothing could be stored, which no record tells of. They
    /// count as files of no size, until a look says what became of them.
    given_up: BTreeSet<FileKey>,
    /// Files that were deleted since then: a look may have seen them before.
    gone: BTreeSet<FileKey>,
    /// Somebody met a full disk since the last measurement.
    is_wanted: bool,
    /// What waited to be removed when it was measured last.
    trash: Bytes,
    /// The last measurement came to nothing, then.
    failed_at: Option<Instant>,
    suspension: Option<DiskSuspension>,
    /// Files without an owner that were to be removed at the last look: where they cannot be, that is told
    /// once.
    strays: BTreeSet<FileKey>,
    deeds: VecDeque<DiskDeed>,
    decisions: VecDeque<DiskDecision>,
    /// What was decided since the agent was started, in all.
    done: Done,
    /// How it stood when that was told last.
    told: Option<DiskSpace>,
}

/// What was decided, in all.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub deleted_files: u64,
    pub deleted: Bytes,
    pub jobs_given_back: u64,
}

#[derive(Clone, Debug)]
struct Books {
    disk: DiskUse,
    volume: Volume,
    took: Duration,
    changed: BTreeSet<Changed>,
    /// Blocks of the files that were found whole.
    whole: BTreeMap<FileKey, Bytes>,
    /// Blocks of what had come of those that were on their way.
    parts: BTreeMap<FileKey, Bytes>,
    /// What each slot held, and for which job: that is nobody else's who takes it later.
    slots: BTreeMap<SlotId, (JobId, Bytes)>,
    /// What each project has beside its known files and its slots.
    beside: BTreeMap<ProjectId, Bytes>,
    /// What files may become that are on their way, and of which their projects say no size.
    granted: BTreeMap<FileKey, Bytes>,
}

/// Something of which the books have not heard yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Changed {
    Project(ProjectId),
    File(FileKey),
    Job(JobId),
}

impl Changed {
    /// All that there is.
    fn all(state: &State) -> impl Iterator<Item = Self> {
        let projects = state.projects.keys().map(|id| Self::Project(*id));
        let files = state.files.keys().map(|key| Self::File(key.clone()));
        projects.chain(files).chain(state.jobs.keys().map(|id| Self::Job(*id)))
    }
}

/// What was measured, apart from files.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub volume: Volume,
    pub took: Duration,
    /// What the agent itself uses.
    pub own: Bytes,
    /// What waits to be removed.
    pub trash: Bytes,
    pub whole: BTreeMap<FileKey, Bytes>,
    pub parts: BTreeMap<FileKey, Bytes>,
    pub slots: BTreeMap<SlotId, Bytes>,
    pub beside: BTreeMap<ProjectId, Bytes>,
    /// Of these projects nothing was seen: what was known of them stays.
    pub unseen: BTreeSet<ProjectId>,
}

impl Disk {
    /// A measurement is under way from now on, while these jobs hold these slots.
    pub(crate) fn ask(&mut self, now: Instant, holders: &BTreeMap<SlotId, JobId>) {
        if self.asked.is_none() {
            self.holders.clone_from(holders);
        }
        (self.asked, self.is_wanted) = (Some(now), false);
    }

    /// It should be measured soon: somebody has met a full disk.
    pub(crate) fn want(&mut self) {
        self.is_wanted = true;
    }

    /// A measurement came to nothing.
    pub(crate) fn failed(&mut self, now: Instant) {
        (self.asked, self.again_at, self.failed_at) = (None, None, Some(now));
        self.gone.clear();
    }

    /// Whether what was measured now is not to be believed, for files that were deleted may still take their
    /// space: then it is measured once more, and that counts.
    pub(crate) fn settles(&mut self, now: Instant) -> bool {
        // Not by a time that a clock said which was far ahead.
        let is_soon = now < self.settles_at && self.settles_at <= now + SETTLING * 2;
        let settles = is_soon && self.again_at.is_none();
        if settles {
            (self.asked, self.again_at) = (None, Some(self.settles_at));
            self.gone.clear();
        }
        settles
    }

    /// When it is to be measured next. While that goes on: when to ask again, for the answer may never come.
    pub(crate) fn due_at(&self, period: Duration) -> Option<Instant> {
        if let Some(at) = self.asked {
            return Some(at + ANSWER_MAX);
        }
        if let Some(at) = self.again_at {
            return Some(at);
        }
        let period = period.min(MEASURE_PERIOD);
        let short = period.min(SHORT_PERIOD);
        let last = match (&self.books, self.failed_at) {
            (_, Some(at)) => return Some(at + short),
            (None, None) => return Some(Instant::EPOCH),
            (Some(books), None) => books,
        };
        let is_short = self.is_wanted || self.suspension.is_some();
        let rest = (last.took * REST).min(MEASURE_PERIOD);
        Some(last.volume.at() + if is_short { short.max(rest) } else { period.max(rest) })
    }

    /// The clock was set back: what was measured in the future is measured anew.
    pub(crate) fn observe(&mut self, now: Instant) {
        self.asked = self.asked.map(|at| at.min(now));
        self.failed_at = self.failed_at.map(|at| at.min(now));
        self.freeing_until = self.freeing_until.min(now + FREEING);
        self.settles_at = self.settles_at.min(now + SETTLING);
        self.again_at = self.again_at.map(|at| at.min(now + SETTLING));
        self.is_wanted |= self.books.as_ref().is_some_and(|books| books.volume.at() > now);
        if let Some(books) = &mut self.books
            && books.volume.at() > now
        {
            books.volume = books.volume.as_of(now);
        }
    }

    /// The disk was measured.
    pub(crate) fn measured(&mut self, measured: Measured, state: &State) {
        let Measured { volume, took, own, trash, mut whole, mut parts, slots, mut beside, unseen } = measured;
        let (mut disk, mut changed, mut granted) = match self.books.take() {
            Some(was) => {
                let is_unseen = |key: &FileKey| unseen.contains(&key.project);
                whole.extend(was.whole.into_iter().filter(|(key, _)| is_unseen(key)));
                parts.extend(was.parts.into_iter().filter(|(key, _)| is_unseen(key)));
                beside.extend(was.beside.into_iter().filter(|(id, _)| unseen.contains(id)));
                (was.disk, was.changed, was.granted)
            }
            None => Default::default(),
        };
        let of_job = |(slot, bytes)| Some((slot, (*self.holders.get(&slot)?, bytes)));
        let slots = slots.into_iter().filter_map(of_job).collect();
        disk.set_own_usage(own);
        self.trash = trash;
        // What went since is still to be told.
        changed.extend(Changed::all(state));
        granted.retain(|key, _| state.files.contains_key(key));
        self.books = Some(Books { disk, volume, took, changed, whole, parts, slots, beside, granted });
        (self.asked, self.again_at, self.failed_at, self.seen) = (None, None, None, None);
        self.gone.clear();
        self.given_up.clear();
    }

    /// Has a look tell how things are by now: what was deleted meanwhile is gone, and what it could not see
    /// counts as it was known before.
    pub(crate) fn complete(&self, found: &mut DiskFound, state: &State) {
        let is_gone = |key: &FileKey| self.gone.contains(key) && !state.files.contains_key(key);
        let DiskFound { files, projects, ours, .. } = found;
        files.retain(|file| {
            let goes = is_gone(&file.key);
            if goes {
                *ours = Bytes(ours.0.saturating_sub(file.blocks.0));
                let of = projects.iter_mut().filter(|(id, _)| *id == file.key.project);
                of.for_each(|(_, bytes)| *bytes = Bytes(bytes.0.saturating_sub(file.blocks.0)));
            }
            !goes
        });
        let Some(books) = &self.books else { return };
        for id in &found.unseen {
            let of = |files: &BTreeMap<FileKey, Bytes>| {
                let its = files.iter().filter(|(key, _)| key.project == *id);
                its.fold(Bytes(0), |sum, (_, bytes)| sum.plus(*bytes))
            };
            let was = of(&books.whole).plus(of(&books.parts));
            let was = was.plus(books.beside.get(id).copied().unwrap_or_default());
            for (_, bytes) in found.projects.iter_mut().filter(|(other, _)| other == id) {
                found.ours = Bytes(found.ours.0.saturating_sub(bytes.0)).plus(was);
                *bytes = was;
            }
        }
    }

    /// What a file takes or will take; before the disk was measured, what is said of it.
    pub(crate) fn size_of(&self, key: &FileKey, file: &File) -> Bytes {
        self.books.as_ref().map_or_else(|| said_of(file), |books| books.size_of(key, file))
    }

    /// The volume, as it was measured last.
    pub(crate) fn volume(&self) -> Option<&Volume> {
        self.books.as_ref().map(|books| &books.volume)
    }

    /// What waited to be removed then.
    pub(crate) const fn trash(&self) -> Bytes {
        self.trash
    }

    /// How long that took.
    pub(crate) fn took(&self) -> Duration {
        self.books.as_ref().map_or(Duration::ZERO, |books| books.took)
    }

    /// So much is free on the volume, as the shell sees it between two measurements. What our own files take
    /// of it since then is not known to the byte, but what counts as theirs is: what is missing beside it is
    /// missing, whoever wrote it. So the limit can only become less by this, until it is measured. Says
    /// whether it is exceeded by that.
    pub(crate) fn see(&mut self, owner: &OwnerDisk, free: Bytes, now: Instant) -> bool {
        let Some(books) = &self.books else { return false };
        let used = books.disk.used_total();
        let size = books.volume.size();
        let Ok(volume) = Volume::measured(now, size, free.min(size), used) else { return false };
        let limit = TotalLimit::new(owner, &volume);
        // Likewise.
        let is_freeing = now < self.freeing_until && self.freeing_until <= now + FREEING * 2;
        if limit.bytes < used && is_freeing {
            return false;
        }
        (self.seen, self.outputs) = (Some((limit, used)), Bytes(0));
        limit.bytes < used
    }

    /// Files are deleted for want of space.
    pub(crate) fn frees(&mut self, now: Instant) {
        (self.freeing_until, self.settles_at) = (now + FREEING, now + SETTLING);
    }

    /// An output has become known, which was written at some time.
    pub(crate) fn output_found(&mut self, bytes: Bytes) {
        self.outputs = Bytes(self.outputs.0.saturating_add(bytes.0));
    }

    /// Whether something has changed of which the books have not heard.
    pub(crate) fn has_news(&self) -> bool {
        self.books.as_ref().is_some_and(|books| !books.changed.is_empty())
    }

    /// What all may use together is this by the last measurement, and less if less was seen since. Says
    /// whether that is something else than before.
    pub(crate) fn set_limit(&mut self, measured: TotalLimit) -> bool {
        let Some(books) = &mut self.books else { return false };
        // The output of a job that has ended since then may have been written before: it had gone from the
        // free space already.
        let used = books.disk.used_total();
        let seen = self.seen.map(|(seen, then)| {
            let known_since = used.0.saturating_sub(then.0).min(self.outputs.0);
            TotalLimit { bytes: Bytes(seen.bytes.0.saturating_add(known_since)), ..seen }
        });
        let limit = seen.filter(|seen| seen.bytes < measured.bytes).unwrap_or(measured);
        let is_other = books.disk.total_limit() != Some(limit);
        if is_other {
            books.disk.set_total_limit(limit);
        }
        is_other
    }

    /// A file came, changed or went.
    pub(crate) fn file_changed(&mut self, key: &FileKey) {
        if let Some(books) = &mut self.books {
            books.changed.insert(Changed::File(key.clone()));
        }
    }

    /// A job came, changed or went.
    pub(crate) fn job_changed(&mut self, id: JobId) {
        if let Some(books) = &mut self.books {
            books.changed.insert(Changed::Job(id));
        }
    }

    /// A project came, changed or went.
    pub(crate) fn project_changed(&mut self, id: ProjectId) {
        if let Some(books) = &mut self.books {
            books.changed.insert(Changed::Project(id));
        }
    }

    /// Nothing of a file is on the disk any more.
    pub(crate) fn deleted(&mut self, key: &FileKey) {
        if let Some(books) = &mut self.books {
            books.whole.remove(key);
            books.parts.remove(key);
            books.granted.remove(key);
        }
        if self.asked.is_some() && self.gone.len() < GONE_MAX {
            self.gone.insert(key.clone());
        }
        self.file_changed(key);
    }

    /// Whether a file went since it was last begun to measure the disk.
    pub(crate) fn is_gone(&self, key: &FileKey) -> bool {
        self.gone.contains(key)
    }

    /// Whether a file was given up since the last measurement, so that a look may have found it before that.
    pub(crate) fn is_given_up(&self, key: &FileKey) -> bool {
        self.given_up.contains(key)
    }

    /// A file came whole just now: what was found of it before says nothing.
    pub(crate) fn arrived(&mut self, key: &FileKey) {
        self.given_up.remove(key);
        self.deleted(key);
    }

    /// Brings the books up to date. `unknown` is the time that counts for files that came before anybody
    /// noted when.
    pub(crate) fn settle(&mut self, state: &State, now: Instant, unknown: Instant) {
        if let Some(books) = &mut self.books {
            books.settle(state, now, unknown);
        }
    }

    /// The books, as they were brought up to date last.
    pub(crate) fn books(&self) -> Option<&DiskUse> {
        self.books.as_ref().map(|books| &books.disk)
    }

    /// What one project's server is told.
    pub(crate) fn report(&self, project: ProjectId) -> Option<DiskReport> {
        self.books().map(|disk| disk.report(project))
    }

    /// What is to be done about an exceeded limit, if it is.
    pub(crate) fn shrink(&self) -> Option<ShrinkPlan> {
        self.books().and_then(DiskUse::shrink)
    }

    /// Whether a file may become so large, and what goes for it; none while nothing was measured. What of it
    /// is there counts already.
    pub(crate) fn admit(&self, key: &FileKey, bytes: Bytes) -> Option<Admission> {
        let disk = self.books()?;
        let held = disk.file_id(key.project, &key.name).and_then(|id| disk.attributes(id));
        let held = held.map_or(Bytes(0), |file| file.size);
        Some(disk.admit(key.project, Bytes(bytes.0.saturating_sub(held.0))))
    }

    /// What a file may become of which nobody says how large it is: what its project says that it is at most,
    /// if there is so much room, else half of what is free, so that others can come beside it. It counts with
    /// that while it is on its way. None where nothing is free.
    pub(crate) fn grant(&mut self, key: &FileKey, most: Option<Bytes>) -> Option<Bytes> {
        let books = self.books.as_mut()?;
        let held = books.parts.get(key).copied().unwrap_or_default();
        let free = books.disk.free();
        let room = most.filter(|most| most.0 <= held.plus(free).0).unwrap_or(held.plus(Bytes(free.0 / 2)));
        let granted = (room > held).then_some(room);
        if let Some(bytes) = granted {
            books.granted.insert(key.clone(), bytes);
            books.changed.insert(Changed::File(key.clone()));
        }
        granted
    }

    /// The next files that go while nothing can be stored, the first to go first: until they come to
    /// `enough`, and at most so many. They count as gone from now on. Before the first measurement the
    /// records have to do.
    pub(crate) fn give_up(
        &mut self,
        (enough, most): (Bytes, usize),
        state: &State,
        now: Instant,
    ) -> Vec<Deletion> {
        let mut of_records = None;
        let books = match &mut self.books {
            Some(books) => books,
            None => match Books::of_records(state, now) {
                Some(books) => of_records.insert(books),
                None => return Vec::new(),
            },
        };
        let forget = |disk: &mut DiskUse, key: &FileKey| {
            if let Some(id) = disk.file_id(key.project, &key.name) {
                disk.remove_file(id);
            }
        };
        // A change of one of them may have brought it back.
        self.given_up.iter().for_each(|key| forget(&mut books.disk, key));
        let next = books.disk.first_to_go(enough, most);
        for gone in &next {
            let key = FileKey { project: gone.project, name: gone.name.clone() };
            // The volume has their space by now: what is free there and they would both count else.
            forget(&mut books.disk, &key);
            self.given_up.insert(key);
        }
        self.is_wanted |= !next.is_empty();
        next
    }

    /// A file of these is gone.
    pub(crate) fn was_given_up(&mut self, key: &FileKey) {
        if let Some(books) = &mut self.books {
            books.whole.insert(key.clone(), Bytes(0));
        }
    }

    /// A queued job is given back. Its downloads that no other job needs are to be cancelled.
    pub(crate) fn give_back(&mut self, id: JobId, files: &[FileKey]) -> Vec<FileKey> {
        let Some(books) = &mut self.books else { return Vec::new() };
        let disk = &mut books.disk;
        let ids: BTreeMap<FileId, &FileKey> =
            files.iter().filter_map(|key| Some((disk.file_id(key.project, &key.name)?, key))).collect();
        disk.give_back(id).into_iter().filter_map(|id| ids.get(&id).map(|key| (*key).clone())).collect()
    }

    /// What a job's slot held when the disk was measured last.
    pub(crate) fn measured_in(&self, slot: SlotId, job: JobId) -> Bytes {
        let held = self.books.as_ref().and_then(|books| books.slots.get(&slot));
        held.filter(|(holder, _)| *holder == job).map_or(Bytes(0), |(_, bytes)| *bytes)
    }

    /// Why computing is suspended for want of space, if it is.
    pub(crate) fn suspension(&self) -> Option<&DiskSuspension> {
        self.suspension.as_ref()
    }

    /// Takes note of that. Says whether it is so since now, or no more.
    pub(crate) fn set_suspension(&mut self, why: Option<DiskSuspension>) -> bool {
        let was = self.suspension.is_some();
        self.suspension = why;
        was != self.suspension.is_some()
    }

    /// These files without an owner are to be removed. Gives those that were not at the last look.
    pub(crate) fn new_strays(&mut self, strays: BTreeSet<FileKey>) -> BTreeSet<FileKey> {
        let news = strays.difference(&self.strays).cloned().collect();
        self.strays = strays;
        news
    }

    /// Remembers what was done, for people.
    pub(crate) fn note(&mut self, deed: DiskDeed) {
        if self.deeds.len() >= DEEDS_MAX {
            self.deeds.pop_front();
        }
        self.deeds.push_back(deed);
    }

    /// Counts a decision, and remembers it for the coordinator.
    pub(crate) fn decided(&mut self, decision: DiskDecision) {
        match decision.what {
            DiskAct::Deleted => {
                self.done.deleted_files += 1;
                self.done.deleted = self.done.deleted.plus(decision.bytes);
            }
            DiskAct::GivenBack => self.done.jobs_given_back += 1,
            DiskAct::Suspended | DiskAct::Resumed | DiskAct::Other => {}
        }
        if self.decisions.len() >= DECISIONS_MAX {
            self.decisions.pop_front();
        }
        self.decisions.push_back(decision);
    }

    /// The decisions of late, the last at the end.
    pub(crate) const fn decisions(&self) -> &VecDeque<DiskDecision> {
        &self.decisions
    }

    /// So many files more went by the last decision than one.
    pub(crate) const fn deleted_more(&mut self, files: usize) {
        self.done.deleted_files += files as u64;
    }

    /// What was decided, in all.
    pub(crate) const fn done(&self) -> Done {
        self.done
    }

    /// Whether how it stands is worth telling, and that it is told now.
    pub(crate) fn is_news(&mut self, space: DiskSpace) -> bool {
        let size = self.volume().map_or(0, |volume| volume.size().0);
        let differs = |one: Bytes, other: Bytes| one.0.abs_diff(other.0) > size / NEWS_PART;
        let is_news = self.told.as_ref().is_none_or(|told| {
            told.limited_by != space.limited_by
                || told.is_suspended != space.is_suspended
                || (told.missing == Bytes(0)) != (space.missing == Bytes(0))
                || [(told.limit, space.limit), (told.used, space.used), (told.missing, space.missing)]
                    .into_iter()
                    .any(|(one, other)| differs(one, other))
        });
        if is_news {
            self.told = Some(space);
        }
        is_news
    }

    /// What was done of late, the last at the end.
    pub(crate) fn deeds(&self) -> impl Iterator<Item = &DiskDeed> {
        self.deeds.iter()
    }
}

#[cfg(test)]
impl Disk {
    /// The books as they are once all that has changed is told to them, and as they would be if they were
    /// made anew.
    pub(crate) fn both_books(&self, state: &State, now: Instant, unknown: Instant) -> Option<[DiskUse; 2]> {
        let mut books = self.books.as_ref()?.clone();
        books.settle(state, now, unknown);
        let mut anew = books.clone();
        anew.disk = DiskUse::default();
        anew.disk.set_own_usage(books.disk.own_usage());
        if let Some(limit) = books.disk.total_limit() {
            anew.disk.set_total_limit(limit);
        }
        anew.changed = Changed::all(state).collect();
        anew.settle(state, now, unknown);
        Some([books.disk, anew.disk])
    }
}

/// What a file that is here holds, as far as that is known or was said.
fn said_of(file: &File) -> Bytes {
    let found = file.found.as_ref().map(|(bytes, _)| *bytes);
    found.or(file.info.nbytes).unwrap_or_default()
}

impl Books {
    /// As they are by the records alone. None where no volume could be.
    fn of_records(state: &State, now: Instant) -> Option<Self> {
        let volume = Volume::measured(now, Bytes(u64::MAX), Bytes(0), Bytes(0)).ok()?;
        let mut books = Self {
            disk: DiskUse::default(),
            volume,
            took: Duration::ZERO,
            changed: Changed::all(state).collect(),
            whole: BTreeMap::new(),
            parts: BTreeMap::new(),
            slots: BTreeMap::new(),
            beside: BTreeMap::new(),
            granted: BTreeMap::new(),
        };
        books.settle(state, now, now);
        Some(books)
    }

    fn settle(&mut self, state: &State, now: Instant, unknown: Instant) {
        self.disk.advance(now);
        // In the order of `Changed`: jobs refer to files, and files belong to projects.
        for changed in std::mem::take(&mut self.changed) {
            match changed {
                Changed::Project(id) => match state.projects.get(&id) {
                    Some(Project { share, deletes, .. }) => {
                        self.disk.set_project(id, *share, (*deletes).into());
                    }
                    None => self.disk.remove_project(id),
                },
                Changed::File(key) => self.settle_file(&key, state.files.get(&key), unknown),
                Changed::Job(id) => match state.jobs.get(&id) {
                    Some(job) => self.settle_job(job, state),
                    None => self.disk.end_job(id),
                },
            }
        }
        let mut others = self.beside.clone();
        for (slot, id) in state.jobs.slots() {
            if let (Some(job), Some((holder, bytes))) = (state.jobs.get(id), self.slots.get(slot))
                && holder == id
            {
                let other = others.entry(job.project).or_default();
                *other = other.plus(*bytes);
            }
        }
        for id in state.projects.keys() {
            self.disk.set_other_usage(*id, others.get(id).copied().unwrap_or_default());
        }
    }

    fn settle_file(&mut self, key: &FileKey, file: Option<&File>, unknown: Instant) {
        let known = self.disk.file_id(key.project, &key.name);
        let Some(file) = file else {
            if let Some(id) = known {
                self.disk.remove_file(id);
            }
            return;
        };
        let arrived = file.kept.arrived.unwrap_or(unknown);
        let mut attributes = FileAttributes {
            last_used: file.kept.last_used.unwrap_or(arrived),
            ..FileAttributes::arriving(self.size_of(key, file), arrived)
        };
        attributes = attributes.with_priority(Priority::nearest(file.info.priority.unwrap_or(1)));
        if let Some(after) = file.info.expires_after {
            attributes = attributes.with_lifetime_days(after.as_days_f64());
        }
        let id = self.disk.add_file(key.project, &key.name, attributes);
        let active = file.transfer.as_ref().is_some_and(|transfer| transfer.active);
        let upload = file.transfer.as_ref().is_some_and(|transfer| transfer.direction == Direction::Upload);
        self.disk.set_hold(id, Hold::Transfer, active || upload);
    }

    /// What a file takes or will take.
    fn size_of(&self, key: &FileKey, file: &File) -> Bytes {
        let (whole, part) = (self.whole.get(key).copied(), self.parts.get(key).copied().unwrap_or_default());
        let downloads = |file: &File| {
            file.transfer.as_ref().is_some_and(|t| t.active && t.direction == Direction::Download)
        };
        match file.status {
            FileStatus::Present | FileStatus::Uploaded => whole.unwrap_or_else(|| said_of(file)),
            _ if downloads(file) => {
                let said = file.info.nbytes.or_else(|| self.granted.get(key).copied());
                said.unwrap_or_default().max(part)
            }
            FileStatus::Absent | FileStatus::Failed(..) => whole.unwrap_or_default().plus(part),
        }
    }

    fn settle_job(&mut self, job: &Job, state: &State) {
        let over = job.outcome.as_ref();
        let aborted = over.is_some_and(|outcome| outcome.state == EndState::Aborted);
        // What an aborted one read is of no use to it any more; it may have been given back for that space.
        let mut keys = match aborted && !job.process.exists() {
            true => Vec::new(),
            false => state.input_files(job),
        };
        keys.extend(job.output_files());
        let stage = match () {
            () if over.is_some() && !job.process.exists() => JobStage::Unacknowledged,
            () if job.run.begun || job.slot.is_some() || job.process.exists() => JobStage::Running,
            () => JobStage::Queued,
        };
        let files = keys.iter().filter_map(|key| self.disk.file_id(key.project, &key.name)).collect();
        let deadline = job.result.report_deadline;
        self.disk.set_job(job.id, DiskJob { project: job.project, stage, deadline, files });
    }
}
