//! The fleet link (R6.3): enrolment, one long-lived stream to the coordinator, documents one way, state the
//! other.
//!
//! The link asks the engine for what it sends ([`Ask`]) and hands it what came ([`Arrived`]); it holds no
//! copy of the client's state. Both ends prove who they are by certificates of the fleet's authority
//! ([`membership`]).

pub mod backoff;
pub mod entries;
pub mod identity;
pub mod link;
pub mod membership;
pub mod outbox;
pub mod process;
pub mod separation;
pub mod thread;

use fallow_client::Entity;
use fallow_domain::agent_state::{Entry, EntryKey};
use fallow_domain::{DocumentVersion, FleetDocument, Instant, MasterUrl};
use fallow_tls::Fingerprint;
use tokio::sync::oneshot;

/// What the link needs of the client.
#[derive(Debug)]
pub enum Ask {
    /// The entries of these, and which of the keys have none any more.
    Entries(Vec<(EntryKey, Entity)>, oneshot::Sender<Entries>),
    /// The keys of everything there is.
    Keys(oneshot::Sender<Vec<(EntryKey, Entity)>>),
    /// The version of the document that is followed.
    Version(oneshot::Sender<(u64, String)>),
}

/// What was asked for.
#[derive(Debug, Default)]
pub struct Entries {
    /// What there is.
    pub entries: Vec<Entry>,
    /// Keys of what is gone.
    pub removed: Vec<EntryKey>,
}

/// Which document a report of the host says that it follows, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Followed {
    /// The document's version.
    pub version: DocumentVersion,
    /// When it was taken, which tells one trial of it from another.
    pub taken_at: Instant,
}

/// What came from the coordinator.
#[derive(Debug)]
pub enum Arrived {
    /// A document, or why it cannot be read; with the trace context of the change that it carries.
    Document {
        /// The document's version, as far as known.
        version: DocumentVersion,
        /// The document itself.
        outcome: Result<Box<FleetDocument>, String>,
        /// W3C trace context, possibly empty.
        traceparent: String,
    },
    /// The agent was a copy of a host that goes on, and is to start anew as a host of its own
    /// ([`separation`]).
    Separated,
    /// Somebody wants a project contacted soon.
    Contact(MasterUrl),
    /// A report of the host has reached the coordinator, stored or not.
    Acknowledged(Followed),
    /// Under which URL the coordinator's own projects are reached, and the authority of their certificate.
    ProjectsAt {
        /// The URL; empty where the coordinator did not say.
        url: String,
        /// Another server may stand there.
        behind_proxy: bool,
        /// The authority.
        authority: Fingerprint,
    },
}
