//! Transfers that are not over: which of them begins next.
//!
//! Model: at most two of a project at once in each direction, at most eight of all (BOINC's figures), or
//! fewer where the host's preferences say so; more than that they cannot say.
//! Projects take turns, so that a thousand files of one never keep the one file of another waiting. Within a
//! project comes first what lets a job run soonest: the files of applications, then the inputs of the job
//! that the scheduler would run first; uploads go by the deadlines of their jobs. One place of a project's
//! two is for files that failed before and whose wait is over, the other for files that never did, as far as
//! there are both: neither kind keeps the other out.
//!
//! Four projects whose servers trickle could hold all eight places for days. So when no place became free for
//! five minutes, each project that has none gets one beside them, up to [`BESIDE_MAX`] in all; not where the
//! preferences say fewer.
//!
//! With ten thousand of them, an event that concerns none must not look at them all: each change costs O(log
//! n), and what begins next is the first of a set.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use fallow_domain::{Duration, Instant, JobId, LocalPreferences, ProjectId};

use crate::state::Transfer;
use crate::{Direction, FileKey};

/// When all places were taken for so long, those beside them are given out.
const STUCK: Duration = Duration::from_mins(5);
/// At most this many with those.
const BESIDE_MAX: usize = 32;

/// How many may be under way in a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// In all (BOINC: `max_file_xfers`).
    all: usize,
    /// Beside these, when all are stuck.
    with_beside: usize,
    /// Of a project (BOINC: `max_file_xfers_per_project`).
    of_project: usize,
}

impl Places {
    /// As the host's preferences have it. No more than BOINC's figures, whoever says more: servers of
    /// projects count on them.
    pub(crate) fn under(local: &LocalPreferences) -> Self {
        let number =
            |said: NonZeroU32, most: NonZeroU32| usize::try_from(said.min(most).get()).unwrap_or(usize::MAX);
        let all = number(local.files_at_once, LocalPreferences::FILES_AT_ONCE);
        let is_limited = local.files_at_once < LocalPreferences::FILES_AT_ONCE;
        let with_beside = if is_limited { all } else { BESIDE_MAX };
        let of_project = number(local.files_at_once_of_project, LocalPreferences::FILES_AT_ONCE_OF_PROJECT);
        Self { all, with_beside, of_project }
    }
}

impl Default for Places {
    fn default() -> Self {
        Self::under(&LocalPreferences::default())
    }
}

/// What a file is for, in the order in which it is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Use {
    /// A job cannot run without the application, and many wait for the same one.
    Application,
    /// A job's input or output.
    Job,
    /// No job waits for it.
    None,
}

/// How soon a file is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub purpose: Use,
    /// Of the first job that it is for, in the scheduler's order: by deadline, of equal ones the shortest.
    pub deadline: Instant,
    pub left: Duration,
    pub job: JobId,
}

impl Rank {
    /// Of a file that nobody waits for.
    pub(crate) const LAST: Self = Self {
        purpose: Use::None,
        deadline: Instant::FAR_FUTURE,
        left: Duration::ZERO,
        job: JobId(u64::MAX),
    };
}

/// The transfers of a client.
#[derive(Debug, Default)]
pub(crate) struct Transfers {
    down: OneWay,
    up: OneWay,
}

/// The transfers of one direction.
#[derive(Debug, Default)]
pub(crate) struct OneWay {
    active: BTreeMap<FileKey, Active>,
    projects: BTreeMap<ProjectId, Waiting>,
    /// Where each one that is not active is.
    index: BTreeMap<FileKey, (Rank, Queue)>,
    /// Those that failed before and are not active.
    failed: BTreeSet<FileKey>,
    /// Whose turn it was last.
    last: Option<ProjectId>,
    /// Since when every place is taken and none became free.
    full_since: Option<Instant>,
    places: Places,
}

/// One that is under way.
#[derive(Clone, Copy, Debug)]
struct Active {
    has_failed: bool,
    /// Kept for the case that it fails.
    rank: Rank,
}

/// Those of one project that are not active.
#[derive(Debug, Default)]
struct Waiting {
    /// Those that never failed.
    fresh: BTreeSet<(Rank, String)>,
    /// Those that failed and have waited.
    due: BTreeSet<(Rank, String)>,
    /// Those that failed and wait, by when that ends.
    later: BTreeSet<(Instant, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Fresh,
    Due,
    Later(Instant),
}

impl Transfers {
    pub(crate) fn of(&mut self, direction: Direction) -> &mut OneWay {
        match direction {
            Direction::Download => &mut self.down,
            Direction::Upload => &mut self.up,
        }
    }

    fn one_way(&self, direction: Direction) -> &OneWay {
        match direction {
            Direction::Download => &self.down,
            Direction::Upload => &self.up,
        }
    }

    /// Takes note of where a file's transfer stands, or that it has none any more. Without a rank it keeps
    /// its own.
    pub(crate) fn place(
        &mut self,
        key: &FileKey,
        transfer: Option<&Transfer>,
        rank: Option<Rank>,
        now: Instant,
    ) {
        let [down, up] = [&mut self.down, &mut self.up].map(|one_way| one_way.take_out(key, now));
        let Some(transfer) = transfer else { return };
        let known = match transfer.direction {
            Direction::Download => down,
            Direction::Upload => up,
        };
        let rank = rank.or(known).unwrap_or(Rank::LAST);
        self.of(transfer.direction).put(key, transfer, rank, now);
    }

    /// A job came that wants a file sooner than those before.
    pub(crate) fn hasten(&mut self, key: &FileKey, rank: Rank) {
        self.down.hasten(key, rank);
    }

    /// Whether there are any.
    pub(crate) fn any(&self) -> bool {
        [&self.down, &self.up]
            .into_iter()
            .any(|one_way| !(one_way.active.is_empty() && one_way.index.is_empty()))
    }

    /// Whether some are under way.
    pub(crate) fn any_active(&self) -> bool {
        [&self.down, &self.up].into_iter().any(|one_way| !one_way.active.is_empty())
    }

    /// Whether there is one that could begin if none were under way. `is_held` says whether a project's
    /// failures hold back what failed before.
    pub(crate) fn any_ready(
        &self,
        direction: Direction,
        now: Instant,
        is_held: impl Fn(ProjectId) -> bool,
    ) -> bool {
        let is_ready =
            |(project, waiting): (&ProjectId, &Waiting)| waiting.is_ready(now, || is_held(*project));
        self.one_way(direction).projects.iter().any(is_ready)
    }

    /// Those that are under way.
    pub(crate) fn active(&self, direction: Direction) -> impl Iterator<Item = &FileKey> {
        self.one_way(direction).active.keys()
    }

    /// A project's downloads that wait after a failure, and those under way.
    pub(crate) fn downloads_in_trouble(&self, project: ProjectId) -> impl Iterator<Item = &FileKey> {
        let from = FileKey { project, name: String::new() };
        let failed = self.down.failed.range(from..).take_while(move |key| key.project == project);
        failed.chain(self.down.active.keys().filter(move |key| key.project == project))
    }

    /// Those that failed before and are not under way.
    pub(crate) fn failed(&self, direction: Direction) -> &BTreeSet<FileKey> {
        &self.one_way(direction).failed
    }

    /// So many places there are from now on. What is under way goes on. True if there were others.
    pub(crate) fn set_places(&mut self, places: Places, now: Instant) -> bool {
        let mut is_new = false;
        for one_way in [&mut self.down, &mut self.up] {
            if std::mem::replace(&mut one_way.places, places) != places {
                one_way.full_since = (one_way.active.len() >= places.all).then_some(now);
                is_new = true;
            }
        }
        is_new
    }

    /// The clock was set back: nothing waits longer by that.
    pub(crate) fn observe(&mut self, now: Instant) {
        for one_way in [&mut self.down, &mut self.up] {
            one_way.full_since = one_way.full_since.map(|since| since.min(now));
        }
    }

    /// When something may begin that may not now, given how long a project's own failures hold its transfers
    /// back.
    pub(crate) fn next_wake_up(
        &self,
        now: Instant,
        held_until: impl Fn(ProjectId, Direction) -> Instant,
    ) -> Option<Instant> {
        let at =
            |direction| self.one_way(direction).next_wake_up(now, |project| held_until(project, direction));
        Direction::BOTH.into_iter().filter_map(at).min()
    }
}

impl OneWay {
    /// Takes the next one to begin, if there is room for it. `is_held` says whether a project's failures hold
    /// back what failed before. The caller says by [`Transfers::place`] what becomes of it.
    pub(crate) fn next(
        &mut self,
        now: Instant,
        is_held: impl Fn(ProjectId) -> bool,
    ) -> Option<(FileKey, Rank)> {
        // Whoever comes after the last one, then from the beginning.
        let after = self.last.map_or(0, |last| last.0.saturating_add(1));
        let turns = self.projects.range(ProjectId(after)..).chain(self.projects.range(..ProjectId(after)));
        let mut turns = turns.filter(|(id, _)| self.has_room(**id, now));
        let (rank, key) = turns.find_map(|(&project, waiting)| {
            let (rank, name) = self.choose(project, waiting, is_held(project))?;
            Some((*rank, FileKey { project, name: name.clone() }))
        })?;
        self.last = Some(key.project);
        self.take_out(&key, now);
        Some((key, rank))
    }

    fn choose<'a>(
        &self,
        project: ProjectId,
        waiting: &'a Waiting,
        is_held: bool,
    ) -> Option<&'a (Rank, String)> {
        let (fresh, due) = (waiting.fresh.first(), waiting.due.first().filter(|_| !is_held));
        let active = self.active_of(project).count();
        let retries = self.active_of(project).filter(|active| active.has_failed).count();
        if active > 0 && retries == 0 { due.or(fresh) } else { fresh.or(due) }
    }

    /// Waits that are over by now.
    pub(crate) fn wake(&mut self, now: Instant) {
        for (project, waiting) in &mut self.projects {
            while waiting.later.first().is_some_and(|(at, _)| *at <= now) {
                let Some((_, name)) = waiting.later.pop_first() else { break };
                let key = FileKey { project: *project, name };
                if let Some((rank, queue)) = self.index.get_mut(&key) {
                    *queue = Queue::Due;
                    waiting.due.insert((*rank, key.name));
                }
            }
        }
    }

    fn active_of(&self, project: ProjectId) -> impl Iterator<Item = &Active> {
        let from = FileKey { project, name: String::new() };
        self.active.range(from..).take_while(move |(key, _)| key.project == project).map(|(_, active)| active)
    }

    fn has_room(&self, project: ProjectId, now: Instant) -> bool {
        let own = self.active_of(project).count();
        if self.active.len() < self.places.all {
            return own < self.places.of_project;
        }
        let is_stuck = self.full_since.is_some_and(|since| now >= since + STUCK);
        is_stuck && own == 0 && self.active.len() < self.places.with_beside
    }

    fn put(&mut self, key: &FileKey, transfer: &Transfer, rank: Rank, now: Instant) {
        let has_failed = transfer.backoff.failures() > 0;
        if transfer.active {
            self.active.insert(key.clone(), Active { has_failed, rank });
            if self.active.len() == self.places.all {
                self.full_since = Some(now);
            }
            return;
        }
        let left = transfer.backoff.left(now);
        let queue = match (has_failed, left.is_positive()) {
            (false, _) => Queue::Fresh,
            (true, false) => Queue::Due,
            (true, true) => Queue::Later(now + left),
        };
        if has_failed {
            self.failed.insert(key.clone());
        }
        self.index.insert(key.clone(), (rank, queue));
        self.projects.entry(key.project).or_default().put(&key.name, rank, queue);
    }

    /// Its rank, if it had one.
    fn take_out(&mut self, key: &FileKey, now: Instant) -> Option<Rank> {
        let active = self.active.remove(key);
        if active.is_some() {
            self.full_since = (self.active.len() >= self.places.all).then_some(now);
        }
        self.failed.remove(key);
        let Some((rank, queue)) = self.index.remove(key) else { return active.map(|active| active.rank) };
        if let Some(waiting) = self.projects.get_mut(&key.project) {
            waiting.take_out(&key.name, rank, queue);
            if waiting.is_empty() {
                self.projects.remove(&key.project);
            }
        }
        Some(rank)
    }

    fn hasten(&mut self, key: &FileKey, rank: Rank) {
        if let Some(active) = self.active.get_mut(key) {
            active.rank = active.rank.min(rank);
        }
        let Some((known, queue)) = self.index.get_mut(key).filter(|(known, _)| rank < *known) else { return };
        if let Some(waiting) = self.projects.get_mut(&key.project) {
            waiting.take_out(&key.name, *known, *queue);
            waiting.put(&key.name, rank, *queue);
        }
        *known = rank;
    }

    /// What could begin now has begun, or waits for another to end.
    fn next_wake_up(&self, now: Instant, held_until: impl Fn(ProjectId) -> Instant) -> Option<Instant> {
        let gives_more = self.places.with_beside > self.places.all;
        let stuck_at = self.full_since.filter(|_| gives_more).map(|since| since + STUCK);
        let waits = self.projects.iter().flat_map(|(&project, waiting)| {
            let held_until = held_until(project);
            let later = waiting.later.first().map(|(at, _)| (*at).max(held_until));
            let due = waiting.due.first().map(|_| held_until);
            let beside = stuck_at.filter(|_| self.active_of(project).next().is_none());
            [later, due, beside]
        });
        waits.flatten().filter(|at| *at > now).min()
    }
}

impl Waiting {
    fn put(&mut self, name: &str, rank: Rank, queue: Queue) {
        match queue {
            Queue::Fresh => self.fresh.insert((rank, name.to_owned())),
            Queue::Due => self.due.insert((rank, name.to_owned())),
            Queue::Later(at) => self.later.insert((at, name.to_owned())),
        };
    }

    fn take_out(&mut self, name: &str, rank: Rank, queue: Queue) {
        match queue {
            Queue::Fresh => self.fresh.remove(&(rank, name.to_owned())),
            Queue::Due => self.due.remove(&(rank, name.to_owned())),
            Queue::Later(at) => self.later.remove(&(at, name.to_owned())),
        };
    }

    fn is_ready(&self, now: Instant, is_held: impl Fn() -> bool) -> bool {
        let has_waited = || !self.due.is_empty() || self.later.first().is_some_and(|(at, _)| *at <= now);
        !self.fresh.is_empty() || has_waited() && !is_held()
    }

    fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.due.is_empty() && self.later.is_empty()
    }
}

#[cfg(test)]
#[path = "transfers_tests.rs"]
mod tests;
