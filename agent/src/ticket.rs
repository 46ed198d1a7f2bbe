//! Which attempt at a transfer has ended.

use fallow_client::{FileKey, Traffic};
use fallow_domain::ProjectId;

/// What is transferred: one attempt at each goes on at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Transfer {
    /// A project's master page.
    Page(ProjectId),
    /// A scheduler RPC.
    Rpc(ProjectId),
    /// A file, down or up.
    File(FileKey),
}

impl Transfer {
    /// The project that it is for.
    pub(crate) fn project(&self) -> ProjectId {
        match self {
            Self::Page(project) | Self::Rpc(project) => *project,
            Self::File(file) => file.project,
        }
    }
}

/// Which attempt an event is the end of.
#[derive(Debug)]
pub struct Ticket {
    transfer: Transfer,
    attempt: u64,
    traffic: Vec<Traffic>,
}

impl Ticket {
    /// Of an attempt that begins.
    pub(crate) fn new(transfer: Transfer, attempt: u64) -> Self {
        Self { transfer, attempt, traffic: Vec::new() }
    }

    /// What was transferred, or was to be.
    pub(crate) fn transfer(&self) -> &Transfer {
        &self.transfer
    }

    /// True if it is of that attempt.
    pub(crate) fn is_of(&self, attempt: u64) -> bool {
        self.attempt == attempt
    }

    /// With what was measured on the way.
    pub(crate) fn measured(self, traffic: Vec<Traffic>) -> Self {
        Self { traffic, ..self }
    }

    /// Takes out what was measured on the way.
    pub fn traffic(&mut self) -> Vec<Traffic> {
        std::mem::take(&mut self.traffic)
    }
}
