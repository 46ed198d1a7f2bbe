//! How much disk the files of tasks take, for the limit that their projects set (BOINC: `rsc_disk_bound`).
//!
//! Model: about once a minute, and soon after a task has begun, all tasks are counted together, in a thread
//! of its own at idle priority: walking a large tree takes longer than the supervisor's second.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fallow_domain::Bytes;

use super::task::Meter;
use crate::files::size_below;
use crate::sys::{self, Urgency};

/// How often tasks are counted.
const PERIOD: Duration = Duration::from_secs(60);

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
    running: Option<JoinHandle<()>>,
}

impl DiskLook {
    /// Has the next look count.
    pub(super) fn hasten(&mut self) {
        self.last = None;
    }

    /// Counts if it is time to. `places` are asked for only then; `news` says that one was never counted.
    pub(super) fn look(&mut self, news: bool, places: impl FnOnce() -> Vec<Files>) {
        let is_due = news || self.last.is_none_or(|last| last.elapsed() >= PERIOD);
        if !is_due || self.running.as_ref().is_some_and(|running| !running.is_finished()) {
            return;
        }
        let places = places();
        let count = move || {
            sys::lower(Urgency::Idle);
            places.iter().for_each(Files::count);
        };
        self.last = Some(Instant::now());
        // No thread, no figures: the next look tries again.
        self.running = std::thread::Builder::new().name("disk".into()).spawn(count).ok();
    }
}

impl Files {
    fn count(&self) {
        let outputs =
            self.outputs.iter().filter_map(|path| Some(std::fs::symlink_metadata(path).ok()?.len()));
        self.meter.note_disk(outputs.fold(size_below(&self.slot), |sum, size| sum.plus(Bytes(size))));
    }
}
