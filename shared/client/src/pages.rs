//! Master pages of projects that are being read. Not stored: after a restart none is.

use std::collections::BTreeSet;

use fallow_domain::ProjectId;

/// Whose page is being read.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    being_read: BTreeSet<ProjectId>,
}

impl Pages {
    /// A project's page is to be read.
    pub(crate) fn begin(&mut self, project: ProjectId) {
        self.being_read.insert(project);
    }

    /// It was read, or nobody wants to know any more. Says whether it was being read.
    pub(crate) fn end(&mut self, project: ProjectId) -> bool {
        self.being_read.remove(&project)
    }

    pub(crate) fn is_being_read(&self, project: ProjectId) -> bool {
        self.being_read.contains(&project)
    }

    /// Whether any is.
    pub(crate) fn any(&self) -> bool {
        !self.being_read.is_empty()
    }
}
