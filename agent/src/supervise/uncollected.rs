//! Outputs that this host could not collect when their task ended: too many open files, a full disk
//! (R6.10).
//!
//! Model: they stay in the task's slot, with the finish file. The next start of the task collects them
//! instead of computing once more, as an agent does at its own start with what it finds. If that cannot be
//! done either, the task is computed again from its checkpoint.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use fallow_boinc::runtime::exit::Ended;
use fallow_boinc::runtime::files;
use fallow_client::{TaskEnd, TaskSetup};
use fallow_domain::{Bytes, Duration, JobId, SlotId};

use super::record::SlotRecord;
use super::slot::{self, StartFailure};
use super::slot_dir::Last;
use super::{Context, collect};

/// The end of a task whose outputs could not be taken.
#[derive(Clone, Copy, Debug)]
struct UncollectedEnd {
    job: JobId,
    exit: Ended,
    /// CPU time of the whole job up to its end.
    cpu: Duration,
    peak: Bytes,
}

/// Such ends, by slot.
#[derive(Debug, Default)]
pub(super) struct UncollectedOutputs(Mutex<BTreeMap<SlotId, UncollectedEnd>>);

impl UncollectedOutputs {
    fn slots(&self) -> MutexGuard<'_, BTreeMap<SlotId, UncollectedEnd>> {
        fallow_daemon::lock(&self.0)
    }

    /// Takes note of what is left in a task's slot. One that was stopped from outside has not come to its
    /// end.
    pub(super) fn note(&self, setup: &TaskSetup, exit: Ended, cpu: Duration, peak: Bytes) {
        if matches!(exit, Ended::Code(_)) {
            let cpu = cpu + setup.init_data.wu_cpu_time;
            self.slots().insert(setup.slot, UncollectedEnd { job: setup.job, exit, cpu, peak });
        }
    }

    /// A slot was emptied, or its task begins to compute.
    pub(super) fn forget(&self, slot: SlotId) {
        self.slots().remove(&slot);
    }

    /// Takes what the last run of a task has left, in place of its start. None where there is nothing to
    /// take.
    pub(super) fn take(
        &self,
        context: &Context,
        setup: &TaskSetup,
        is_to_leave: impl Fn() -> bool,
    ) -> Option<Result<TaskEnd, StartFailure>> {
        let known = self.slots().get(&setup.slot).copied();
        let left = known.filter(|left| left.job == setup.job && !setup.fresh)?;
        let place = match slot::kept(context, setup) {
            Ok(place) => place,
            Err(failure) => return Some(Err(failure)),
        };
        match collect::exit_file(Some(&place), files::FINISH) {
            Ok(Some(_)) => {}
            Ok(None) => return None,
            Err(error) => return Some(Err(StartFailure::from_io("look into", place.path(), &error))),
        }
        let record = SlotRecord::of(setup);
        let cpu = (left.cpu - setup.init_data.wu_cpu_time).max(Duration::ZERO);
        let take = |last: Last<'_>| {
            let (slot, place) = (setup.slot, Some(&place));
            collect::collect(&context.dir, slot, place, &record, left.exit, cpu, left.peak, last)
        };
        collect::give_way();
        let taken = collect::patiently(&setup.name, &is_to_leave, take);
        if taken.is_ok() || !is_to_leave() {
            self.forget(setup.slot);
        }
        // What it used was charged at its end: nothing is charged twice.
        let taken = taken.map(|end| TaskEnd { is_charged: true, ..end });
        Some(Ok(taken.unwrap_or_else(|_| collect::interrupted(Duration::ZERO, left.peak))))
    }
}
