//! Counts what tasks hold of the disk while they stand still (R6.10).
//!
//! Model: a task that computes can move its files out of the way of a count, and another one would have to go
//! in its stead. So before one has to go that holds no more than it may, all are stopped, counted, and let go
//! on. That takes as long as counting them, and happens only while nothing can be stored.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::Supervision;

/// After so long they go on, and what is known by then has to do.
const LONGEST: Duration = Duration::from_secs(120);
/// So long such a count says what tasks hold.
const HOLDS: Duration = Duration::from_secs(20);

/// Where such a count stands.
#[derive(Debug)]
pub(super) enum StillCount {
    /// These were stopped for it, by their first processes. It `counts` once a count of others is over that
    /// had begun before.
    GoesOn { since: Instant, stopped: BTreeSet<u32>, counts: bool },
    /// It was over at that time.
    Over(Instant),
}

impl Supervision {
    /// Whether all tasks were counted just now while they stood still. If not, they are.
    pub(super) fn has_counted_still(&mut self) -> bool {
        let (since, stopped, counts) = match self.still_count.take() {
            Some(StillCount::Over(at)) if at.elapsed() < HOLDS => {
                self.still_count = Some(StillCount::Over(at));
                return true;
            }
            Some(StillCount::GoesOn { since, stopped, counts }) => (since, stopped, counts),
            _ => (Instant::now(), self.freezer.stop_all(), false),
        };
        let is_counting = self.disk.is_counting();
        if (counts && !is_counting) || since.elapsed() >= LONGEST {
            self.go_on_after(&stopped);
            self.still_count = Some(StillCount::Over(Instant::now()));
            return true;
        }
        if !counts && !is_counting {
            let places = self.places();
            self.disk.count(places, self.shared.dir.path());
        }
        self.still_count = Some(StillCount::GoesOn { since, stopped, counts: counts || !is_counting });
        false
    }

    /// Whether tasks stand still for a count.
    pub(super) fn counts_still(&self) -> bool {
        matches!(self.still_count, Some(StillCount::GoesOn { .. }))
    }

    /// Nobody has to go any more.
    pub(super) fn give_up_still_count(&mut self) {
        if let Some(StillCount::GoesOn { stopped, .. }) = self.still_count.take() {
            self.go_on_after(&stopped);
        }
    }

    /// Has tasks go on that were stopped for a count, unless they are to rest by now.
    fn go_on_after(&self, stopped: &BTreeSet<u32>) {
        // Whoever wants the machine has each of them go on when he has it no more.
        if self.freezer.is_wanted() {
            return;
        }
        let tasks = self.tasks.values().filter(|task| !task.is_to_rest());
        let leaders = tasks.filter_map(|task| task.pid()).filter(|pid| stopped.contains(pid));
        leaders.for_each(|pid| self.freezer.thaw(pid));
    }
}
