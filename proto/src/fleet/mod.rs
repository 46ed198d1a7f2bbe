//! The link between an agent and its coordinator: its messages ([`v1`]), and what they mean in domain types.
//!
//! Of each message that has a meaning outside the link there is a file here, with a function each way.
//! Numbers on the wire have no unit and no bounds; both are given here and nowhere else. Sequence numbers,
//! epochs and heartbeats belong to the link itself and stay as they are.

mod check;
pub mod disk;
pub mod document;
pub mod entry;
pub mod entry_key;
pub mod host;
pub mod limits;
mod local_preferences;
pub mod owner;
pub mod preferences;
pub mod project;
pub mod signed;
pub mod task;
mod url;

/// Generated.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
pub mod v1 {
    tonic::include_proto!("fallow.fleet.v1");
}
