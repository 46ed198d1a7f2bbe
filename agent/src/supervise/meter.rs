//! What the supervisor and a task's thread both know of the task.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Instant;

use fallow_client::{DiskHeld, Uncounted};
use fallow_domain::{Bytes, Duration};

use super::disk::Misses;
use super::early_door::EarlyDoor;
use super::groups::TaskGroup;
use crate::proc::{self, Sessions, Used};
use crate::walk::{Missed, Usage};

/// The most that a task was ever seen to use. Shared by the supervisor, which looks, and the task's thread,
/// which reports.
#[derive(Debug, Default)]
pub(super) struct Meter {
    cpu_micros: AtomicI64,
    peak_bytes: AtomicU64,
    /// What its files hold; none before the first count.
    disk: Mutex<(Option<DiskHeld>, Misses)>,
    /// How much more of the disk would be free without it, in bytes, as far as that was counted.
    takes: AtomicU64,
    /// When they were counted to the end last.
    counted_at: Mutex<Option<Instant>>,
    /// How large one of these files is, cannot be told.
    is_unsized: AtomicBool,
    /// When its first process was started, as the kernel counts; 0 before that.
    start: AtomicU64,
    /// The number of its processes (see [`crate::brand`]); 0 where it has none.
    brand: AtomicU64,
    /// The sessions that its processes made for themselves.
    strays: Mutex<Sessions>,
    /// It was told to go, or killed.
    leaving: AtomicBool,
    /// Its processes are stopped (see [`super::freezer`]) for somebody, or to rest.
    frozen: AtomicBool,
    /// They are stopped to be counted.
    counted_still: AtomicBool,
    /// How often they were told to go on.
    woken: AtomicU64,
    /// Its process is gone for good: its id may be another's by now.
    gone: AtomicBool,
    /// The control group of its processes, where it has one.
    group: OnceLock<Arc<TaskGroup>>,
    /// By what its outputs are sent early; closed once it is over.
    early: EarlyDoor,
}

impl Meter {
    /// Notes a look. CPU time never falls.
    pub(super) fn note(&self, used: Used) -> Used {
        // Its group has counted what came and went between two looks, too.
        let seen = used.cpu.max(self.group().and_then(TaskGroup::cpu).unwrap_or_default()).as_micros();
        let cpu = seen.max(self.cpu_micros.fetch_max(seen, Ordering::Relaxed));
        self.peak_bytes.fetch_max(used.memory.0, Ordering::Relaxed);
        Used { cpu: Duration::from_micros(cpu), ..used }
    }
    /// Notes what its files hold, and what of the disk that takes.
    pub(super) fn note_disk(&self, held: DiskHeld, takes: Bytes) {
        self.takes.store(takes.0, Ordering::Relaxed);
        fallow_daemon::lock(&self.disk).0 = Some(held);
        *fallow_daemon::lock(&self.counted_at) = Some(Instant::now());
    }
    /// Whether they were counted to the end after that time.
    pub(super) fn was_counted_after(&self, time: Instant) -> bool {
        fallow_daemon::lock(&self.counted_at).is_some_and(|at| at > time)
    }
    /// Notes what they hold as far as it is counted, if that is more than was known.
    pub(super) fn note_disk_of_at_least(&self, counted: Usage) {
        self.takes.fetch_max(counted.blocks.0, Ordering::Relaxed);
        let known = &mut fallow_daemon::lock(&self.disk).0;
        let held = known.unwrap_or_default();
        if counted.most() > held.all {
            *known = Some(DiskHeld { all: counted.most(), ..held });
        }
    }
    /// Notes what a count has missed, and says what follows from that.
    pub(super) fn note_miss(&self, missed: Option<Missed>) -> Option<Uncounted> {
        fallow_daemon::lock(&self.disk).1.note(missed)
    }
    /// Notes whether the size of one of them cannot be told.
    pub(super) fn set_unsized(&self, is_unsized: bool) {
        self.is_unsized.store(is_unsized, Ordering::Relaxed);
    }
    pub(super) fn is_unsized(&self) -> bool {
        self.is_unsized.load(Ordering::Relaxed)
    }
    /// What its files hold, as they were counted last.
    pub(super) fn disk(&self) -> Option<DiskHeld> {
        fallow_daemon::lock(&self.disk).0
    }
    /// How much more of the disk would be free without it, as far as that was counted.
    pub(super) fn takes(&self) -> Option<Bytes> {
        self.disk().map(|_| Bytes(self.takes.load(Ordering::Relaxed)))
    }
    /// Whether the last count has missed something.
    pub(super) fn has_missed(&self) -> bool {
        fallow_daemon::lock(&self.disk).1.are_any()
    }
    pub(super) fn is_unsure(&self) -> bool {
        fallow_daemon::lock(&self.disk).1.is_unsure()
    }
    pub(super) fn cpu(&self) -> Duration {
        Duration::from_micros(self.cpu_micros.load(Ordering::Relaxed))
    }
    pub(super) fn strays(&self) -> MutexGuard<'_, Sessions> {
        fallow_daemon::lock(&self.strays)
    }
    pub(super) fn set_start(&self, start: u64) {
        self.start.store(start, Ordering::Relaxed);
    }
    pub(super) fn start(&self) -> u64 {
        self.start.load(Ordering::Relaxed)
    }
    pub(super) fn brand(&self) -> u64 {
        self.brand.load(Ordering::Relaxed)
    }
    pub(super) fn set_brand(&self, brand: u64) {
        self.brand.store(brand, Ordering::Relaxed);
    }
    /// Whether a process has its first process's id and is another.
    pub(super) fn is_other(&self, first: &proc::Process) -> bool {
        let start = self.start();
        start > 0 && first.start != start
    }
    /// Whether its processes are stopped, whatever for.
    pub(super) fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::Relaxed) || self.is_counted_still()
    }
    pub(super) fn is_counted_still(&self) -> bool {
        self.counted_still.load(Ordering::Relaxed)
    }
    pub(super) fn set_counted_still(&self, still: bool) {
        self.counted_still.store(still, Ordering::Relaxed);
    }
    pub(super) fn set_frozen(&self, frozen: bool) {
        self.frozen.store(frozen, Ordering::Relaxed);
    }
    pub(super) fn woken(&self) -> u64 {
        self.woken.load(Ordering::Relaxed)
    }
    pub(super) fn note_woken(&self) {
        self.woken.fetch_add(1, Ordering::Relaxed);
    }
    pub(super) fn set_leaving(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }
    pub(super) fn set_gone(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }
    /// Its processes are to be in this group.
    pub(super) fn set_group(&self, group: Arc<TaskGroup>) {
        let _ = self.group.set(group);
    }
    pub(super) fn group(&self) -> Option<&TaskGroup> {
        self.group.get().map(Arc::as_ref)
    }
    pub(super) fn early(&self) -> &EarlyDoor {
        &self.early
    }
    pub(super) fn peak(&self) -> Bytes {
        Bytes(self.peak_bytes.load(Ordering::Relaxed))
    }
}
