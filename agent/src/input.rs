//! What the engine is told by the parts around it.

use fallow_client::{DiskFound, Event};
use fallow_domain::ProjectId;

use crate::fleet::{Arrived, Ask};
use crate::ticket::Ticket;

/// Something for the engine.
#[derive(Debug)]
pub enum Input {
    /// Something for the client.
    Event(Box<Event>),
    /// The end of a transfer, for the client unless it was given up meanwhile.
    Transferred(Ticket, Box<Event>),
    /// Files came to so much that the client is to know of it.
    FilesMoved,
    /// Something that the owner is to hear of a project's server.
    Remark {
        /// The project.
        project: ProjectId,
        /// In words.
        text: String,
    },
    /// What a look at the disk found, or why it came to nothing.
    DiskFound(Result<Box<DiskFound>, String>),
    /// Something from the coordinator.
    Arrived(Arrived),
    /// The link wants to know.
    Ask(Ask),
}

impl From<Event> for Input {
    fn from(event: Event) -> Self {
        Self::Event(Box::new(event))
    }
}
