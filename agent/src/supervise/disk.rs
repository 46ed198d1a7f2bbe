//! How much disk the files of tasks take, for the limit that their projects set (BOINC: `rsc_disk_bound`).
//!
//! Model: about once a minute, and soon after a task has begun, all tasks are counted together, in a thread
//! of its own at idle priority: walking a large tree takes longer than the supervisor's second. Where the
//! disk's free space falls faster, they are counted sooner, whoever fills it. Each has its turn for so many
//! entries, so that one with a million files does not keep the others from being counted; one that holds more
//! by then than when it was counted last is told so before its end.
//!
//! What counts is the larger of lengths, as BOINC counts them, and blocks: else a job could hide what it
//! holds in tiny files. Holes count with their length. An output that was sent early and its file in the slot
//! count once, as the larger of the two. Files without a name count that its processes hold open
//! ([`crate::nameless`]), also those of processes that no list has ([`crate::fleeting`]). One whose files
//! cannot be counted to their end is said to be so: at once if they are too many, and after some counts in a
//! row if it moves or closes directories meanwhile, for an honest one may do so once.
//!
//! What tasks take together is known by counts that are over: while one goes on, the one before it stands.
//! Otherwise, if one task gives space back that another takes, it could be seen with both for long.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fallow_client::{DiskHeld, Uncounted};
use fallow_domain::{Bytes, JobId};
use rustix::process::Signal;

use super::collect::usage_beyond;
use super::meter::Meter;
use super::record;
use crate::brand;
use crate::dir::SLOTS;
use crate::fleeting::Lists;
use crate::nameless::Nameless;
use crate::proc::{self, Process, Sessions};
use crate::sys::{self, Urgency};
use crate::walk::{COUNTED_MAX, Counted, Missed, Usage, Walk};

/// How often tasks are counted.
const PERIOD: Duration = Duration::from_secs(60);
/// How often at most.
const PERIOD_LEAST: Duration = Duration::from_secs(3);
/// So much less space, and they are counted again.
const FALL: u64 = 256 << 20;
/// Entries of a turn: some tenths of a second.
const TURN: u64 = 50_000;
/// After so long all processes of a task are stopped for its count, if they come and go; or as soon as one is
/// found that no list has.
const HOLD_AFTER: Duration = Duration::from_secs(1);
/// So long they are looked for, and in so many lists: this thread may get little of a CPU.
const CHASE_MAX: Duration = Duration::from_secs(5);
const LISTS_MIN: u32 = 20;
/// After so long there is no further list, nor after so much CPU time of this thread and all were stopped.
const CHASE_LONGEST: Duration = Duration::from_secs(60);
const WORK_MAX: Duration = Duration::from_secs(15);
/// What is new so many lists after all were stopped goes on although it is stopped: what one has that was
/// not, is in a list by then, and stopped as well. Where lists take long to be looked at, it is so many.
const HELD_MIN: u32 = 5;
const HELD_MIN_COSTLY: u32 = 2;
/// A task is said to go on after so many such lists; or after one where they take long to be looked at.
const MOVED_MIN: u32 = 3;
/// So many counts in a row may miss something.
const MISSES_MAX: u32 = 3;

/// Where the files of a task are.
#[derive(Debug)]
pub(super) struct Files {
    /// Its slot, counted with all that is in it.
    pub(super) slot: PathBuf,
    /// Its outputs outside of the slot, and the messages that it has sent since there is no space.
    pub(super) outputs: Vec<PathBuf>,
    /// The sessions of its processes.
    pub(super) sessions: Sessions,
    /// Where the figure goes.
    pub(super) meter: Arc<Meter>,
}

/// What was found by a count of all tasks that is over.
#[derive(Clone, Debug)]
pub(super) struct Count {
    /// When it began.
    pub(super) begun: Instant,
    /// What the files of each task take of the disk. A task of whose files something was missed is left out.
    pub(super) blocks: BTreeMap<JobId, Bytes>,
}

/// Counts now and then.
#[derive(Debug, Default)]
pub(super) struct DiskLook {
    /// The last count that is over.
    counted: Arc<Mutex<Option<Count>>>,
    last: Option<Instant>,
    /// The free space at that time, in bytes.
    free: u64,
    running: Option<JoinHandle<()>>,
    /// The next one is to come soon.
    is_hasty: bool,
}

impl DiskLook {
    /// Has the next look count, or the first one that may after the last count.
    pub(super) fn hasten(&mut self) {
        self.is_hasty = true;
    }

    /// The last count that is over, if it began after that time.
    pub(super) fn counted_after(&self, time: Instant) -> Option<Count> {
        fallow_daemon::lock(&self.counted).as_ref().filter(|count| count.begun > time).cloned()
    }

    /// Counts if it is time to. `places` are asked for only then; `news` says that one was never counted, and
    /// `unsure` that the last count missed something. `data` is the agent's directory.
    pub(super) fn look(
        &mut self,
        (news, unsure): (bool, bool),
        data: &Path,
        places: impl FnOnce() -> Vec<(JobId, Files)>,
    ) {
        let free = rustix::fs::statvfs(data.join(SLOTS))
            .map_or(self.free, |volume| volume.f_bavail.saturating_mul(volume.f_frsize));
        let falls = free.saturating_add(FALL) <= self.free;
        let period = if falls || unsure || self.is_hasty { PERIOD_LEAST } else { PERIOD };
        let is_due = news || self.last.is_none_or(|last| last.elapsed() >= period);
        if !is_due || self.is_counting() {
            return;
        }
        (self.free, self.is_hasty) = (free, false);
        self.count(places(), data);
    }

    /// When the last one was begun.
    pub(super) fn begun(&self) -> Option<Instant> {
        self.last
    }

    /// Whether a count goes on.
    pub(super) fn is_counting(&self) -> bool {
        self.running.as_ref().is_some_and(|running| !running.is_finished())
    }

    /// Counts now. None may go on. False where no thread can be had for it.
    pub(super) fn count(&mut self, places: Vec<(JobId, Files)>, data: &Path) -> bool {
        let (data, counted) = (data.to_path_buf(), Arc::clone(&self.counted));
        let count = move || {
            sys::lower(Urgency::Idle);
            let begun = Instant::now();
            let blocks = count_in_turn(&places, &data, COUNTED_MAX);
            *fallow_daemon::lock(&counted) = Some(Count { begun, blocks });
        };
        self.last = Some(Instant::now());
        // No thread, no figures: the next look tries again.
        self.running = std::thread::Builder::new().name("disk".into()).spawn(count).ok();
        self.running.is_some()
    }
}

/// Counts all of them, each for so many entries at a time, and at most for so many. Gives what each takes of
/// the disk where nothing was missed.
fn count_in_turn(places: &[(JobId, Files)], data: &Path, most: u64) -> BTreeMap<JobId, Bytes> {
    let (mut blocks, mut walks) = (BTreeMap::new(), Vec::new());
    for (job, files) in places {
        walks.push((*job, files, Walk::below(&files.slot).of_at_most(most), Counted::default()));
    }
    while !walks.is_empty() {
        walks.retain_mut(|(job, files, walk, counted)| {
            let is_over = walk.step(counted, TURN);
            if is_over {
                if let Some(taken) = files.note(walk, data) {
                    blocks.insert(*job, taken);
                }
            } else {
                files.meter.note_disk_of_at_least(files.held(walk.total()));
            }
            !is_over
        });
    }
    blocks
}

impl Files {
    fn held(&self, in_slot: Usage) -> Usage {
        let beyond = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            usage_beyond(path, &self.slot, &record::linked(&name))
        };
        self.outputs.iter().map(beyond).fold(in_slot, Usage::plus)
    }

    /// Takes note of its count that is over. Gives what its files take of the disk, if nothing was missed.
    fn note(&self, walk: &Walk, data: &Path) -> Option<Bytes> {
        let (nameless, fled) = self.nameless(walk, data);
        let missed = walk.missed().or(nameless.missed()).or(fled);
        self.meter.set_unsized(nameless.is_unsized());
        let all = self.held(walk.total()).plus(nameless.usage());
        // It cannot be seen that it has given back what was not looked at.
        let known = self.meter.disk().filter(|_| missed.is_some()).unwrap_or_default().all;
        let took = self.meter.takes().filter(|_| missed.is_some()).unwrap_or_default();
        let held = DiskHeld {
            all: all.most().max(known),
            nameless: nameless.usage().most(),
            uncounted: self.meter.note_miss(missed),
        };
        self.meter.note_disk(held, all.plus(nameless.kept()).blocks.max(took));
        missed.is_none().then_some(all.blocks)
    }

    /// What its processes hold open, by a look between two lists of which the second has nothing new. Where
    /// they come and go, or fork so fast that no list has them, all of them are stopped meanwhile; if one
    /// goes on all the same, something has moved. What was seen in any look counts then.
    fn nameless(&self, walk: &Walk, data: &Path) -> (Nameless, Option<Missed>) {
        let number = self.meter.brand();
        let (mut lists, mut nameless) = (Lists::default(), Nameless::default());
        let mut caught = Caught { meter: &self.meter, all: Vec::new() };
        let mut before: Option<BTreeSet<(u32, u64)>> = None;
        let work = sys::thread_cpu_time().map(|now| now + WORK_MAX);
        // The look that saw most.
        let mut largest = Nameless::default();
        // Lists since all were stopped, and how often the agent had told the task to go on by then.
        let mut held: Option<(u32, u64)> = None;
        // Lists that had what goes on although it is stopped.
        let mut moved = 0;
        loop {
            lists.begin();
            let woken = self.meter.woken();
            let (processes, known) = self.listed();
            let now: BTreeSet<(u32, u64)> = processes.iter().map(|one| (one.pid, one.start)).collect();
            // It is told as soon as possible, and threads are no processes.
            let is_new = |id| !self.ends() && brand::of_id(id) == Some(number) && proc::is_process(id);
            let caught_before = caught.all.len();
            let have_all = lists.have_all(&known, is_new, |pid| caught.stop(pid));
            let has_news = before.as_ref().is_none_or(|before| !now.is_subset(before));
            if have_all && !has_news {
                return (nameless, None);
            }
            // One that was found by its id is no news a second time.
            let is_caught = |one| caught.all.iter().any(|caught| (caught.pid, caught.start) == one);
            let flees = caught.all.len() > caught_before
                || before.as_ref().is_some_and(|before| now.difference(before).any(|one| !is_caught(*one)));
            held =
                held.filter(|(_, then)| *then == self.meter.woken()).map(|(lists, then)| (lists + 1, then));
            let has_worked = sys::thread_cpu_time().zip(work).is_some_and(|(now, work)| now > work);
            let least = if has_worked { HELD_MIN_COSTLY } else { HELD_MIN };
            let is_held = held.is_some_and(|(lists, _)| lists >= least);
            moved += u32::from(flees && is_held);
            let is_long = lists.time() > CHASE_MAX && lists.count() > LISTS_MIN;
            let is_costly = has_worked && is_held;
            if is_long || is_costly || lists.time() > CHASE_LONGEST || self.ends() {
                let has_moved = moved >= MOVED_MIN || (is_costly && moved > 0);
                let seen = if largest.usage().most() > nameless.usage().most() { largest } else { nameless };
                return (seen, Some(if has_moved { Missed::Moved } else { Missed::Unsure }));
            }
            if !caught.all.is_empty() || (flees && lists.time() > HOLD_AFTER) {
                let is_to_hold = |one: &&Process| !one.stopped && !self.ends();
                processes.iter().filter(is_to_hold).for_each(|one| caught.hold(one));
                // Where the agent has let it go on since the list was read, it says too many to be stopped.
                held = held.or_else(|| (self.meter.woken() == woken).then_some((0, woken)));
            }
            if has_news && !self.ends() {
                lists.had_news();
                let last = std::mem::replace(&mut nameless, Nameless::of(&processes, walk.devices(), data));
                largest = if last.usage().most() > largest.usage().most() { last } else { largest };
                before = Some(now);
            }
        }
    }

    /// Whether it is not to be held for a count: it is to leave, or it is gone, and what has its number is of
    /// the next task in its slot.
    fn ends(&self) -> bool {
        self.meter.is_leaving() || self.meter.is_gone()
    }

    /// Its processes, as far as they are known.
    pub(super) fn processes(&self) -> Vec<Process> {
        self.listed().0
    }

    /// The same, and the ids of all that there are.
    fn listed(&self) -> (Vec<Process>, BTreeSet<u32>) {
        let all = proc::all();
        let by_session: BTreeSet<u32> =
            proc::of_sessions(&all, &self.sessions).map(|process| process.pid).collect();
        let number = self.meter.brand();
        let is_own = |process: &&Process| {
            let by_number = || number > 0 && brand::of(process) == Some(number);
            !process.zombie && (by_session.contains(&process.pid) || by_number())
        };
        let own = all.iter().filter(is_own).copied().collect();
        (own, all.iter().map(|process| process.pid).collect())
    }
}

/// Processes that were stopped so that they could be counted. They go on when that is over, unless their task
/// is stopped by then.
struct Caught<'a> {
    meter: &'a Meter,
    all: Vec<Process>,
}

impl Caught<'_> {
    /// Stops one that no list has.
    fn stop(&mut self, pid: u32) {
        proc::signal(pid, Signal::STOP);
        match proc::find(pid) {
            // It is over, and has an id until somebody asks for that.
            Some(process) if process.zombie => {}
            Some(process) => self.all.push(process),
            // Nobody would have it go on.
            None => proc::signal(pid, Signal::CONT),
        }
    }

    /// Stops one that a list had, if it is there still, and nobody else has its id.
    fn hold(&mut self, one: &Process) {
        let is_there = || proc::find(one.pid).is_some_and(|now| now.start == one.start);
        if is_there() {
            proc::signal(one.pid, Signal::STOP);
            match is_there() {
                true => self.all.push(*one),
                false => proc::signal(one.pid, Signal::CONT),
            }
        }
    }
}

impl Drop for Caught<'_> {
    fn drop(&mut self) {
        loop {
            let is_frozen = self.meter.is_frozen();
            let what = if is_frozen { Signal::STOP } else { Signal::CONT };
            let is_there = |one: &&Process| {
                let is_next_tasks = is_frozen && self.meter.is_gone();
                proc::find(one.pid).map_or(!is_frozen, |now| now.start == one.start && !is_next_tasks)
            };
            // Somebody may stop it meanwhile, or have it go on.
            let is_so = || self.meter.is_frozen() == is_frozen;
            self.all
                .iter()
                .take_while(|_| is_so())
                .filter(is_there)
                .for_each(|one| proc::signal(one.pid, what));
            if is_so() {
                break;
            }
        }
    }
}

/// How often in a row something was missed, and what follows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Misses {
    in_a_row: u32,
    /// The last count says nothing of that.
    is_void: bool,
}

impl Misses {
    /// Whether the last count has missed something.
    pub(super) const fn are_any(self) -> bool {
        self.in_a_row > 0
    }

    /// Whether another count may say more.
    pub(super) const fn is_unsure(self) -> bool {
        !self.is_void && self.in_a_row > 0 && self.in_a_row < MISSES_MAX
    }

    /// After another count.
    pub(super) fn note(&mut self, missed: Option<Missed>) -> Option<Uncounted> {
        self.is_void = missed == Some(Missed::Unsure);
        self.in_a_row = match missed {
            Some(Missed::Unsure) => self.in_a_row,
            Some(_) => self.in_a_row.saturating_add(1),
            None => 0,
        };
        match missed? {
            Missed::TooMany => Some(Uncounted::TooMany),
            Missed::Moved if self.in_a_row >= MISSES_MAX => Some(Uncounted::Moved),
            Missed::Closed if self.in_a_row >= MISSES_MAX => Some(Uncounted::Closed),
            Missed::Moved | Missed::Closed | Missed::Unsure => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleeting::tests::Chain;

    #[test]
    fn r4_8_whoever_hastens_counts_has_them_no_closer_than_they_may_be() {
        let dir = tempfile::tempdir().unwrap();
        let mut look = DiskLook::default();
        let counts = |look: &mut DiskLook| {
            let mut has_begun = false;
            look.look((false, false), dir.path(), || {
                has_begun = true;
                Vec::new()
            });
            look.running.take().into_iter().for_each(|count| count.join().unwrap());
            has_begun
        };
        assert!(counts(&mut look), "the first one");
        let now = Instant::now();
        for (hasty, last, expected) in [
            (false, now - PERIOD_LEAST, false),
            (true, now + PERIOD, false),
            // It is not forgotten.
            (false, now - PERIOD_LEAST, true),
            (true, now - PERIOD_LEAST, true),
            (false, now - PERIOD_LEAST, false),
            (false, now - PERIOD, true),
        ] {
            if hasty {
                look.hasten();
            }
            look.last = Some(last);
            assert_eq!(counts(&mut look), expected, "{hasty} {:?}", now.checked_duration_since(last));
        }
    }

    #[test]
    fn r6_10_what_tasks_take_is_known_by_whole_counts_that_began_after_space_ran_out() {
        let dir = tempfile::tempdir().unwrap();
        let slots = [1, 2].map(|slot| dir.path().join(slot.to_string()));
        for slot in &slots {
            std::fs::create_dir(slot).unwrap();
        }
        let places = || {
            let files = |slot: &PathBuf| Files {
                slot: slot.clone(),
                outputs: Vec::new(),
                sessions: Sessions::new(),
                meter: Arc::default(),
            };
            vec![(JobId(1), files(&slots[0])), (JobId(2), files(&slots[1]))]
        };
        let mut look = DiskLook::default();
        let mut counts = |taken: [usize; 2]| {
            for (slot, bytes) in slots.iter().zip(taken) {
                std::fs::write(slot.join("file"), vec![1; bytes]).unwrap();
            }
            let before = Instant::now();
            look.look((true, false), dir.path(), places);
            look.running.take().unwrap().join().unwrap();
            assert!(look.counted_after(Instant::now()).is_none());
            let blocks = look.counted_after(before).unwrap().blocks;
            [1, 2].map(|job| blocks[&JobId(job)].0)
        };
        let (first, second) = (counts([3_000_000, 1_000_000]), counts([1_000_000, 3_000_000]));
        assert_eq!(first.map(|bytes| bytes / 1_000_000), [3, 1]);
        assert_eq!(second.map(|bytes| bytes / 1_000_000), [1, 3]);
    }

    #[test]
    fn r4_8_too_many_files_are_said_at_once_and_what_is_moved_or_closed_after_some_counts_in_a_row() {
        let mut misses = Misses::default();
        assert_eq!(misses.note(Some(Missed::TooMany)), Some(Uncounted::TooMany));
        assert_eq!(misses.note(None), None);
        let moved = [0, 1, 2].map(|_| misses.note(Some(Missed::Moved)));
        assert_eq!(moved, [None, None, Some(Uncounted::Moved)]);
        assert!(!misses.is_unsure());
        misses.note(None);
        let unsure = [Missed::Moved, Missed::Moved, Missed::Unsure].map(|missed| misses.note(Some(missed)));
        assert_eq!((unsure, misses.is_unsure()), ([None; 3], false));
        assert_eq!(misses.note(Some(Missed::Moved)), Some(Uncounted::Moved), "that says nothing");
        misses.note(None);
        assert_eq!(misses.note(Some(Missed::Closed)), None);
        assert!(misses.is_unsure());
        assert_eq!(misses.note(None), None);
        assert!(!misses.is_unsure(), "an honest one");
    }

    #[test]
    fn r4_8_a_task_with_more_files_than_can_be_counted_is_said_to_be_so() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..100 {
            std::fs::write(dir.path().join(number.to_string()), [1]).unwrap();
        }
        let meter = Arc::<Meter>::default();
        let (slot, outputs) = (dir.path().to_path_buf(), Vec::new());
        let files = Files { slot, outputs, sessions: Sessions::new(), meter: Arc::clone(&meter) };
        let files = [(JobId(1), files)];
        let mut all = Bytes(0);
        let too_many = Some(Uncounted::TooMany);
        for (most, uncounted) in [(50, too_many), (1_000, None), (50, too_many)] {
            let blocks = count_in_turn(&files, dir.path(), most);
            assert_eq!(blocks.contains_key(&JobId(1)), uncounted.is_none());
            let held = meter.disk().unwrap();
            assert_eq!((held.uncounted, held.nameless), (uncounted, Bytes(0)));
            assert!(held.all >= all.max(Bytes(30)), "{held:?} {all:?}");
            all = held.all;
        }
    }

    #[test]
    fn r4_8_an_output_that_was_sent_early_counts_once_and_by_what_is_larger_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let (slot, output) = (dir.path().join("slot"), dir.path().join("output_1"));
        let in_slot = slot.join(record::linked("output_1"));
        std::fs::create_dir_all(in_slot.parent().unwrap()).unwrap();
        let meter = Arc::<Meter>::default();
        let outputs = vec![output.clone()];
        let files = Files { slot, outputs, sessions: Sessions::new(), meter: Arc::clone(&meter) };
        let files = [(JobId(1), files)];
        for (now, early) in [(3_000_000, 3_000_000), (3_000_000, 1_000_000), (1_000_000, 3_000_000)] {
            std::fs::write(&in_slot, vec![1; now]).unwrap();
            std::fs::write(&output, vec![1; early]).unwrap();
            count_in_turn(&files, dir.path(), COUNTED_MAX);
            let held = meter.disk().unwrap().all.0;
            assert!((3_000_000..3_100_000).contains(&held), "{now} {early}: {held}");
        }
    }

    #[test]
    fn r4_8_a_job_cannot_have_what_it_holds_counted_as_what_was_sent_early() {
        let dir = tempfile::tempdir().unwrap();
        let (slot, project) = (dir.path().join("slot"), dir.path().join("project"));
        let outputs: Vec<PathBuf> = ["output_1", "output_2"].map(|name| project.join(name)).to_vec();
        let in_slot = slot.join("fallow_outputs");
        std::fs::create_dir_all(&in_slot).unwrap();
        std::fs::create_dir(&project).unwrap();
        for output in &outputs {
            std::fs::write(output, vec![1; 3_000_000]).unwrap();
        }
        let meter = Arc::<Meter>::default();
        let files = Files { slot, outputs, sessions: Sessions::new(), meter: Arc::clone(&meter) };
        let files = [(JobId(1), files)];
        let held = || {
            count_in_turn(&files, dir.path(), COUNTED_MAX);
            meter.disk().unwrap().all.0
        };
        // Two names of one file, which counts once.
        std::fs::write(in_slot.join("output_1"), vec![1; 3_000_000]).unwrap();
        std::fs::hard_link(in_slot.join("output_1"), in_slot.join("output_2")).unwrap();
        let named = held();
        // The copies themselves.
        std::fs::remove_dir_all(&in_slot).unwrap();
        std::os::unix::fs::symlink("../project", &in_slot).unwrap();
        let linked = held();
        assert!(named >= 9_000_000 && linked >= 6_000_000, "{named} {linked}");
    }

    /// A task with a number and an empty slot.
    fn numbered(dir: &Path, slot: u32) -> (brand::Brand, Arc<Meter>, [(JobId, Files); 1]) {
        let brand = brand::Brand::of_life("/nowhere:counted:").of_slot(slot);
        let place = dir.join(SLOTS).join(slot.to_string());
        std::fs::create_dir_all(&place).unwrap();
        let meter = Arc::<Meter>::default();
        meter.set_brand(brand.value());
        let (outputs, sessions) = (Vec::new(), Sessions::new());
        let files = Files { slot: place, outputs, sessions, meter: Arc::clone(&meter) };
        (brand, meter, [(JobId(1), files)])
    }

    /// Has it hold a file without a name.
    const HOLDS: &str = "open F, '>', 'f'; print F 'x' x 3_000_000; F->flush; unlink 'f'";

    #[test]
    fn r4_8_what_is_held_by_one_that_forks_and_ends_so_fast_that_no_list_has_it_counts() {
        let dir = tempfile::tempdir().unwrap();
        let (brand, meter, files) = numbered(dir.path(), 2);
        let chain = Chain::start(brand, &files[0].1.slot, HOLDS);
        let mut held = Vec::new();
        for _ in 0..5 {
            count_in_turn(&files, dir.path(), COUNTED_MAX);
            held.push(meter.disk().unwrap().nameless.0);
        }
        let end = Instant::now() + Duration::from_secs(60);
        let seen = || crate::fleeting::chase(|pid| brand.is_on_id(pid), |_| {}) > 0;
        let goes_on = std::iter::repeat_with(seen).take_while(|_| Instant::now() < end).any(|seen| seen);
        chain.end();
        assert!(held.iter().all(|&held| held >= 3_000_000), "{held:?}");
        assert!(goes_on);
    }

    #[test]
    fn r4_8_what_is_held_by_one_that_goes_on_whenever_it_is_stopped_counts_or_is_said_to_move() {
        let dir = tempfile::tempdir().unwrap();
        let (brand, meter, files) = numbered(dir.path(), 6);
        let chain = Chain::start_woken(brand, &files[0].1.slot, HOLDS);
        let begun = Instant::now();
        let counts: Vec<_> = (0..3)
            // It does not go on for long.
            .take_while(|_| begun.elapsed() < Duration::from_secs(40))
            .map(|_| (count_in_turn(&files, dir.path(), COUNTED_MAX).len(), meter.disk().unwrap().nameless.0))
            .collect();
        chain.end();
        assert!(counts.iter().all(|&(whole, held)| whole == 0 || held >= 3_000_000), "{counts:?}");
    }

    /// Runs one short command after the other while it is counted three times. Tells whether anything was
    /// missed, and whether it is stopped in the end.
    fn counted(brand: brand::Brand, files: &[(JobId, Files)], data: &Path) -> ([Option<Uncounted>; 3], bool) {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "while :; do sleep 0.001; done"]).stdin(std::process::Stdio::null());
        sys::isolate(&mut command, Urgency::Inherited, None);
        sys::limit(&mut command, sys::Limits { brand: brand.value(), ..sys::Limits::default() });
        let mut first = command.spawn().unwrap();
        let counts = [(); 3].map(|()| {
            count_in_turn(files, data, COUNTED_MAX);
            files[0].1.meter.disk().unwrap().uncounted
        });
        let is_stopped = || proc::find(first.id()).is_none_or(|process| process.stopped);
        let end = Instant::now() + Duration::from_secs(20);
        while is_stopped() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        let was_left = is_stopped();
        while proc::end(|_| brand::find(brand)) > 0 {}
        first.wait().unwrap();
        (counts, was_left)
    }

    #[test]
    fn r4_8_a_program_that_runs_one_short_command_after_the_other_is_counted_and_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let (brand, _, files) = numbered(dir.path(), 7);
        assert_eq!(counted(brand, &files, dir.path()), ([None; 3], false));
    }

    #[test]
    fn r6_10_a_count_of_a_task_that_is_gone_stops_nothing_of_the_next_one_in_its_slot() {
        let dir = tempfile::tempdir().unwrap();
        let (brand, meter, files) = numbered(dir.path(), 8);
        meter.set_gone();
        assert_eq!(counted(brand, &files, dir.path()), ([None; 3], false));
    }

    #[test]
    fn r6_10_a_count_stops_no_program_that_makes_threads_without_pause() {
        use std::process::{Command, Stdio};
        use std::sync::atomic::{AtomicBool, Ordering};

        let dir = tempfile::tempdir().unwrap();
        let slot = dir.path().join(SLOTS).join("1");
        std::fs::create_dir_all(&slot).unwrap();
        let brand = brand::Brand::of_life("/nowhere:threads:").of_slot(3);
        let mut command = Command::new("python3");
        let program = "import threading, time\nend = time.time() + 120\nprint('.', flush=True)\n\
                       while time.time() < end:\n t = threading.Thread(target=len, args=('',)); t.start(); t.join()";
        command.args(["-c", program]).stdin(Stdio::null()).stdout(Stdio::piped());
        sys::isolate(&mut command, Urgency::Inherited, None);
        sys::limit(&mut command, sys::Limits { brand: brand.value(), ..sys::Limits::default() });
        let mut first = command.spawn().unwrap();
        std::io::Read::read_exact(first.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let meter = Arc::<Meter>::default();
        meter.set_brand(brand.value());
        let files = Files { slot, outputs: Vec::new(), sessions: Sessions::new(), meter };
        let (files, is_over) = ([(JobId(1), files)], AtomicBool::new(false));
        let has_stopped = std::thread::scope(|scope| {
            let looks = scope.spawn(|| {
                let mut has_stopped = false;
                while !is_over.load(Ordering::Relaxed) {
                    has_stopped |= proc::find(first.id()).is_some_and(|process| process.stopped);
                }
                has_stopped
            });
            for _ in 0..20 {
                count_in_turn(&files, dir.path(), COUNTED_MAX);
            }
            is_over.store(true, Ordering::Relaxed);
            looks.join().unwrap()
        });
        first.kill().unwrap();
        first.wait().unwrap();
        assert!(!has_stopped);
    }
}
