//! What operators' tools can ask of the coordinator: the gRPC face of fleet, document and projects (R6.11).
//!
//! Every call carries the operator's token, has a span that continues the caller's trace, and is counted.
//! What comes in is turned into domain types here; what goes wrong becomes a status whose message says what
//! to do.
//!
//! Omitted: roles. Whoever has the token may do everything.

mod audit;
mod auth;
mod convert;
mod groups;
mod incoming;
mod service;
mod status;

pub use auth::{AUTHOR, Authorised, TokenError, TokenFile};
pub use service::OperatorService;
