//! When tasks give way although their time slices are not over: slices that never end at the same time would
//! starve a job that needs several instances.

use fallow_domain::{ProjectId, ResourceType};

use super::allocation::{Allocation, Contender, PlacedJob};
use super::free_resources::{FreeResources, HeldDevices};
use crate::job_queue::{JobSnapshot, Needs};

impl Allocation<'_> {
    /// Whether the project that is owed most of a type got nothing because of tasks in their slices, although
    /// it is owed at least one slice of a job that would fit without them.
    pub(super) fn crowded_out(&self, kind: ResourceType) -> bool {
        if self.host.instances(kind) == 0 {
            return false;
        }
        let Some(most) = self.most_owed(kind) else { return false };
        if self.serves(most.id, kind) {
            return false;
        }
        let period = self.host.scheduling_period.as_secs_f64();
        let Some(subqueue) = self.queue.subqueue(most.id, kind) else { return false };
        let tasks = subqueue.tasks().filter_map(|id| self.queue.get(id)).map(JobSnapshot::needs);
        let mut needs = tasks.chain(subqueue.unstarted.keys().copied());
        needs.any(|needs| {
            self.free.can_never_run(&needs).is_none()
                && most.anticipated >= period * needs.of(kind).as_f64()
                && !self.fits_after_one_slice(&needs)
        })
    }

    /// Whether the project that is owed most of a type got something of it.
    pub(super) fn serves_most_owed(&self, kind: ResourceType) -> bool {
        self.most_owed(kind).is_some_and(|most| self.serves(most.id, kind))
    }

    fn most_owed(&self, kind: ResourceType) -> Option<Contender> {
        // What keeps one out that runs as many jobs as it may is not the others' tasks.
        let takes_part = |id| self.queue.is_runnable_on(id, kind) && self.has_places(id, kind);
        let taking_part = self.projects.iter().filter(|p| takes_part(p.id));
        let owed = taking_part.map(|p| Contender {
            counts: p.share.get() > 0.0,
            anticipated: p.priority[kind].as_secs(),
            id: p.id,
            at: 0,
        });
        owed.max()
    }

    fn serves(&self, project: ProjectId, kind: ResourceType) -> bool {
        let is_kind =
            |chosen: &&PlacedJob| self.queue.get(chosen.job).is_some_and(|job| job.usage.main_type() == kind);
        self.run.iter().filter(is_kind).any(|chosen| chosen.project == project)
    }

    /// Whether the end of a single task's slice makes enough room, so that waiting for it is enough.
    fn fits_after_one_slice(&self, needs: &Needs) -> bool {
        let fits = |free: &FreeResources| free.place(needs, None, &HeldDevices::new()).is_ok();
        fits(&self.free)
            || self.run.iter().any(|chosen| {
                self.queue.get(chosen.job).is_some_and(|job| {
                    let mut free = self.free.clone();
                    free.give_back(&job.needs(), chosen.devices);
                    fits(&free)
                })
            })
    }
}
