//! Transfers that are not over, kept by what they wait for.
//!
//! A transfer that never failed begins as soon as there is room; one that failed waits for its time. With ten thousand
//! of either, an event that concerns none of them must not look at them all: so the ones under way are few and counted,
//! the fresh ones are taken in order, and the failed ones are looked through only when one may be due.

use std::collections::BTreeSet;

use fallow_domain::{Instant, ProjectId};

use crate::FileKey;
use crate::state::Transfer;

/// At most this many transfers of a project at once in one direction (BOINC: `max_file_xfers_per_project`).
const ACTIVE_PER_PROJECT: usize = 2;
/// At most this many transfers at once in one direction (BOINC: `max_file_xfers`).
const ACTIVE_MAX: usize = 8;

/// The transfers of a client.
#[derive(Debug, Default)]
pub(crate) struct Transfers {
    down: Direction,
    up: Direction,
}

/// Those of one direction.
#[derive(Debug, Default)]
pub(crate) struct Direction {
    active: BTreeSet<FileKey>,
    fresh: BTreeSet<FileKey>,
    failed: BTreeSet<FileKey>,
    /// Before this none of the failed ones is due; none when that has to be worked out again.
    pub retry_at: Option<Instant>,
}

impl Transfers {
    pub(crate) fn of(&mut self, upload: bool) -> &mut Direction {
        if upload { &mut self.up } else { &mut self.down }
    }

    /// Takes note of where a file's transfer stands, or that it has none any more.
    pub(crate) fn place(&mut self, key: &FileKey, transfer: Option<&Transfer>) {
        for direction in [&mut self.down, &mut self.up] {
            direction.remove(key);
        }
        let Some(transfer) = transfer else { return };
        let direction = self.of(transfer.upload);
        let set = match () {
            () if transfer.active => &mut direction.active,
            () if transfer.backoff.failures() > 0 => &mut direction.failed,
            () => &mut direction.fresh,
        };
        set.insert(key.clone());
        if transfer.backoff.failures() > 0 && !transfer.active {
            direction.retry_at = None;
        }
    }

    /// Whether there are any.
    pub(crate) fn any(&self) -> bool {
        [&self.down, &self.up].into_iter().any(|direction| {
            !(direction.active.is_empty() && direction.fresh.is_empty() && direction.failed.is_empty())
        })
    }

    /// Those that failed before.
    pub(crate) fn failed(&self, upload: bool) -> &BTreeSet<FileKey> {
        if upload { &self.up.failed } else { &self.down.failed }
    }

    /// Waits have changed.
    pub(crate) fn look_again(&mut self) {
        self.down.retry_at = None;
        self.up.retry_at = None;
    }

    /// When a failed transfer may be due, for all that is known.
    pub(crate) fn next_retry(&self, now: Instant) -> Instant {
        let at = |direction: &Direction| direction.retry_at.unwrap_or(now);
        at(&self.down).min(at(&self.up))
    }
}

impl Direction {
    fn remove(&mut self, key: &FileKey) {
        // An end makes room for another.
        if self.active.remove(key) {
            self.retry_at = None;
        }
        self.fresh.remove(key);
        self.failed.remove(key);
    }

    /// Whether one more transfer of a project may begin.
    pub(crate) fn has_room(&self, project: ProjectId) -> bool {
        self.active.len() < ACTIVE_MAX
            && self.active.iter().filter(|key| key.project == project).count() < ACTIVE_PER_PROJECT
    }

    /// The first of a project's transfers that never failed, if there is room for one.
    pub(crate) fn first_fresh(&self, project: ProjectId) -> Option<FileKey> {
        if !self.has_room(project) {
            return None;
        }
        let from = FileKey { project, name: String::new() };
        self.fresh.range(from..).next().filter(|key| key.project == project).cloned()
    }
}
