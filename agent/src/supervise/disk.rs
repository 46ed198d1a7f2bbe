//! How much disk the files of tasks take, for the limit that their projects set (BOINC: `rsc_disk_bound`).
//!
//! Model: about once a minute, and soon after a task has begun, all tasks are counted together, in a thread
//! of its own at idle priority: walking a large tree takes longer than the supervisor's second. Where the
//! disk's free space falls faster, they are counted sooner, whoever fills it. Each has its turn for so many
//! entries, so that one with a million files does not keep the others from being counted; one that holds more
//! by then than when it was counted last is told so before its end.
//!
//! What counts is the larger of lengths, as BOINC counts them, and blocks: else a job could hide what it
//! holds in tiny files. Holes count with their length.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::collect::usage_of_one;
use super::task::Meter;
use crate::sys::{self, Urgency};
use crate::tree::{Counted, Usage, Walk};

/// How often tasks are counted.
const PERIOD: Duration = Duration::from_secs(60);
/// How often at most.
const PERIOD_LEAST: Duration = Duration::from_secs(3);
/// So much less space, and they are counted again.
const FALL: u64 = 256 << 20;

/// Entries of a turn: some tenths of a second.
const TURN: u64 = 50_000;

/// Where the files of a task are.
#[derive(Debug)]
pub(super) struct Files {
    /// Its slot, counted with all that is in it.
    pub(super) slot: PathBuf,
    /// Its outputs outside of the slot.
    pub(super) outputs: Vec<PathBuf>,
    /// Where the figure goes.
    pub(super) meter: Arc<Meter>,
}

/// Counts now and then.
#[derive(Debug, Default)]
pub(super) struct DiskLook {
    last: Option<Instant>,
    /// The free space at that time, in bytes.
    free: u64,
    running: Option<JoinHandle<()>>,
}

impl DiskLook {
    /// Has the next look count.
    pub(super) fn hasten(&mut self) {
        self.last = None;
    }

    /// Counts if it is time to. `places` are asked for only then; `news` says that one was never counted, and
    /// all of them lie on the volume of `slots`.
    pub(super) fn look(&mut self, news: bool, slots: &Path, places: impl FnOnce() -> Vec<Files>) {
        let free = rustix::fs::statvfs(slots)
            .map_or(self.free, |volume| volume.f_bavail.saturating_mul(volume.f_frsize));
        let falls = free.saturating_add(FALL) <= self.free;
        let period = if falls { PERIOD_LEAST } else { PERIOD };
        let is_due = news || self.last.is_none_or(|last| last.elapsed() >= period);
        if !is_due || self.running.as_ref().is_some_and(|running| !running.is_finished()) {
            return;
        }
        let places = places();
        let count = move || {
            sys::lower(Urgency::Idle);
            count_in_turn(&places);
        };
        (self.last, self.free) = (Some(Instant::now()), free);
        // No thread, no figures: the next look tries again.
        self.running = std::thread::Builder::new().name("disk".into()).spawn(count).ok();
    }
}

/// Counts all of them, each for so many entries at a time.
fn count_in_turn(places: &[Files]) {
    let mut walks = Vec::new();
    for files in places {
        walks.push((files, Walk::below(&files.slot), Counted::default()));
    }
    while !walks.is_empty() {
        walks.retain_mut(|(files, walk, counted)| {
            let is_over = walk.step(counted, TURN);
            files.note(walk.total(), is_over);
            !is_over
        });
    }
}

impl Files {
    fn note(&self, in_slot: Usage, is_over: bool) {
        let outputs = self.outputs.iter().map(|path| usage_of_one(path));
        let held = outputs.fold(in_slot, Usage::plus).most();
        if is_over {
            self.meter.note_disk(held);
        } else {
            self.meter.note_disk_of_at_least(held);
        }
    }
}
