//! Transfers that are held back because others of their project have failed, in one direction. Not stored.

use std::collections::BTreeMap;

use fallow_domain::{Duration, Instant, ProjectId};
use fallow_policy::transfer_backoff::ProjectTransferBackoff;
use rand_pcg::Pcg64Mcg;

use crate::Direction;

/// By project and direction.
#[derive(Debug, Default)]
pub(crate) struct HeldBack {
    by_project: BTreeMap<(ProjectId, Direction), ProjectTransferBackoff>,
}

impl HeldBack {
    /// A transfer of a project has failed.
    pub(crate) fn failed(
        &mut self,
        project: ProjectId,
        direction: Direction,
        now: Instant,
        rng: &mut Pcg64Mcg,
    ) {
        self.by_project.entry((project, direction)).or_default().on_failure(now, rng);
    }

    /// One has come to its end.
    pub(crate) fn succeeded(&mut self, project: ProjectId, direction: Direction) {
        self.by_project.remove(&(project, direction));
    }

    pub(crate) fn forget(&mut self, project: ProjectId) {
        self.by_project.retain(|(id, _), _| *id != project);
    }

    /// For how long they are held back.
    pub(crate) fn left(&self, project: ProjectId, direction: Direction, now: Instant) -> Duration {
        let held = self.by_project.get(&(project, direction));
        held.map_or(Duration::ZERO, |project| project.wait_left(now))
    }

    /// The clock was set back: no wait becomes longer by that.
    pub(crate) fn observe(&mut self, now: Instant) {
        self.by_project.values_mut().for_each(|project| project.observe(now));
    }
}
