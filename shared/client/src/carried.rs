//! What the RPC in flight to each project carries: jobs that it reports, and messages of jobs. Not stored:
//! after a restart none is in flight.

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::{JobId, ProjectId};

use crate::FileKey;

/// What is on its way to projects.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    jobs: BTreeMap<ProjectId, BTreeSet<JobId>>,
    messages: BTreeMap<ProjectId, Vec<FileKey>>,
}

impl Carried {
    /// An RPC to a project begins.
    pub(crate) fn begin(&mut self, project: ProjectId, jobs: BTreeSet<JobId>, messages: Vec<FileKey>) {
        self.jobs.insert(project, jobs);
        self.messages.insert(project, messages);
    }

    /// The jobs that are being reported to a project.
    pub(crate) fn jobs(&self, project: ProjectId) -> Option<&BTreeSet<JobId>> {
        self.jobs.get(&project)
    }

    /// The same when the project has answered.
    pub(crate) fn take_jobs(&mut self, project: ProjectId) -> BTreeSet<JobId> {
        self.jobs.remove(&project).unwrap_or_default()
    }

    /// The messages that it has got then.
    pub(crate) fn take_messages(&mut self, project: ProjectId) -> Vec<FileKey> {
        self.messages.remove(&project).unwrap_or_default()
    }

    /// No RPC to the project is in flight any more.
    pub(crate) fn forget(&mut self, project: ProjectId) {
        self.jobs.remove(&project);
        self.messages.remove(&project);
    }
}
