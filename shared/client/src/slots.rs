//! Slots that no job is in, and that none can be put into yet. Not stored: after a restart no process of a
//! forgotten job is left, and a slot that could not be made empty may be tried again.

use std::collections::BTreeMap;

use fallow_domain::{Duration, Instant, JobId, ResourceType, SlotId};
use fallow_policy::job_queue::Devices;

/// How long a slot that could not be made empty is left alone.
const SPOILT_FOR: Duration = Duration::from_secs(3600);

/// Those slots.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    /// The shell could not make them empty; and when to try them again.
    spoilt: BTreeMap<SlotId, Instant>,
    /// Their job is forgotten, and its process has yet to end.
    leaving: BTreeMap<JobId, Leaving>,
}

/// What the process of a forgotten job holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaving {
    pub slot: SlotId,
    /// The devices that it was started on.
    pub on: Option<(ResourceType, Devices)>,
}

impl Slots {
    /// The shell could not make a slot empty.
    pub(crate) fn spoil(&mut self, slot: SlotId, now: Instant) {
        self.spoilt.insert(slot, now + SPOILT_FOR);
    }

    /// A job is forgotten whose process is still there.
    pub(crate) fn leave(&mut self, job: JobId, what: Leaving) {
        self.leaving.insert(job, what);
    }

    /// Its process has ended: what it held.
    pub(crate) fn left(&mut self, job: JobId) -> Option<Leaving> {
        self.leaving.remove(&job)
    }

    /// Whether a job may be put into a slot that no other job has.
    pub(crate) fn is_free(&self, slot: SlotId, now: Instant) -> bool {
        self.spoilt.get(&slot).is_none_or(|until| *until <= now)
            && !self.leaving.values().any(|left| left.slot == slot)
    }

    /// The devices that processes of forgotten jobs hold.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (ResourceType, Devices)> + '_ {
        self.leaving.values().filter_map(|leaving| leaving.on)
    }
}
