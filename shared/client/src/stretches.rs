//! What the metrics are told of the time since the last look: how projects stood in it, and what they used.
//!
//! How they stood is noted before the event that ends that time, which may end jobs too; what they used, when
//! it is seen.

use std::collections::BTreeMap;

use fallow_domain::{Duration, PerType, ProjectId, ResourceType};
use fallow_policy::metrics::ProjectObservation;

/// The time since the last look, by project. Not stored.
#[derive(Debug, Default)]
pub(crate) struct Stretches {
    /// Kept from look to look, for there is one at every event.
    projects: Vec<ProjectObservation>,
    /// Instance time that was seen to be used, and is not booked yet.
    used: BTreeMap<ProjectId, PerType<Duration>>,
}

impl Stretches {
    /// Projects stood like this.
    pub(crate) fn note(&mut self, projects: impl Iterator<Item = ProjectObservation>) {
        self.projects.clear();
        self.projects.extend(projects);
    }

    /// A project has used an instance for so long.
    pub(crate) fn use_up(&mut self, project: ProjectId, kind: ResourceType, time: Duration) {
        self.used.entry(project).or_default()[kind] += time;
    }

    /// Books what was used in that time.
    pub(crate) fn book(&mut self) {
        for stretch in &mut self.projects {
            if let Some(used) = self.used.get_mut(&stretch.project) {
                stretch.used = std::mem::take(used);
            }
        }
    }

    /// How projects stood, and what was booked.
    pub(crate) fn projects(&self) -> &[ProjectObservation] {
        &self.projects
    }

    /// The agent was down: what was used before is not booked any more.
    pub(crate) fn come_up(&mut self) {
        self.used.clear();
    }

    /// A project is detached.
    pub(crate) fn forget(&mut self, project: ProjectId) {
        self.used.remove(&project);
    }
}
