//! With which projects somebody wants contact, and who (R1.4).

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::ProjectId;
use fallow_policy::rpc_timing::RequestedBy;

/// Requests for contact that no RPC has met yet. Not stored.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    by: BTreeMap<ProjectId, RequestedBy>,
    /// Those that came after the RPC in flight had begun: its failure is none of theirs.
    meanwhile: BTreeSet<ProjectId>,
}

impl Wanted {
    /// Somebody wants contact with a project, to which an RPC may be in flight.
    pub(crate) fn ask(&mut self, project: ProjectId, by: RequestedBy, is_in_flight: bool) {
        if is_in_flight {
            self.meanwhile.insert(project);
        }
        let requested_by = self.by.entry(project).or_default();
        *requested_by = by.max(*requested_by);
    }

    /// Who wants contact with a project; the client itself, if nobody does.
    pub(crate) fn by(&self, project: ProjectId) -> RequestedBy {
        self.by.get(&project).copied().unwrap_or_default()
    }

    /// The projects with which contact is wanted.
    pub(crate) fn projects(&self) -> impl Iterator<Item = ProjectId> + '_ {
        self.by.keys().copied()
    }

    /// Whether somebody wants contact with a project.
    pub(crate) fn has(&self, project: ProjectId) -> bool {
        self.by.contains_key(&project)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by.is_empty()
    }

    /// Those for which it was wanted while an RPC was in flight.
    pub(crate) fn meanwhile(&self) -> impl Iterator<Item = ProjectId> + '_ {
        self.meanwhile.iter().copied()
    }

    /// The RPC in flight is given up, or another begins: who asked meanwhile has asked before that one.
    pub(crate) fn next_rpc(&mut self, project: ProjectId) {
        self.meanwhile.remove(&project);
    }

    /// An RPC has failed. Contact that was wanted before it began has been tried.
    pub(crate) fn failed(&mut self, project: ProjectId) {
        if !self.meanwhile.remove(&project) {
            self.by.remove(&project);
        }
    }

    /// There was contact, or the project is detached.
    pub(crate) fn forget(&mut self, project: ProjectId) {
        self.by.remove(&project);
        self.meanwhile.remove(&project);
    }
}
