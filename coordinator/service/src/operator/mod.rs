//! What operators' tools can ask of the coordinator: the gRPC face of fleet, document and projects (R6.11).
//!
//! Every call carries an operator's token, which `guard` looks at before anything else; has a span that
//! continues the caller's trace; and is counted. What comes in is turned into domain types here; what goes
//! wrong becomes a status whose message says what to do.

mod audit;
mod auth;
mod backups;
mod call;
mod convert;
mod documents;
mod giving_back;
mod groups;
mod guard;
mod health;
mod incoming;
mod listed;
mod memory;
mod message;
mod metered;
mod operators;
mod organisation;
mod pace;
mod projects;
mod rollouts;
mod service;
mod status;
mod taken;
mod told;
mod turns;

use crate::kept::on_a_thread;

pub use auth::{AUTHOR, TokenError, TokenFile};
pub(crate) use call::code_name;
pub(crate) use giving_back::give_back;
pub use guard::{Guard, Guarded};
pub use health::HealthService;
pub(crate) use memory::Kept;
pub use message::{MESSAGE, MESSAGE_BYTES, encoded};
pub(crate) use pace::{IsPaced, Paced};
pub use service::OperatorService;
pub(crate) use taken::Taken;
pub(crate) use turns::Turns;

/// Runs what blocks, or computes for long, on a thread where that is fine.
pub(crate) async fn unblocked<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, tonic::Status> {
    let done = on_a_thread(work).await;
    done.map_err(|died| tonic::Status::internal(died.to_string()))
}
