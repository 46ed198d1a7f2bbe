//! Which attempt at a transfer has ended.

use fallow_client::{FileKey, Traffic};
use fallow_domain::ProjectId;

/// What a transfer is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    Page(ProjectId),
    Rpc(ProjectId),
    File(FileKey),
}

impl What {
    pub(super) fn project(&self) -> ProjectId {
        match self {
            Self::Page(project) | Self::Rpc(project) => *project,
            Self::File(file) => file.project,
        }
    }
}

/// Which attempt an event is the end of.
#[derive(Debug)]
pub struct Ticket {
    pub(super) what: What,
    pub(super) attempt: u64,
    pub(super) traffic: Vec<Traffic>,
}

impl Ticket {
    /// What was measured on the way.
    pub fn traffic(&mut self) -> Vec<Traffic> {
        std::mem::take(&mut self.traffic)
    }
}
