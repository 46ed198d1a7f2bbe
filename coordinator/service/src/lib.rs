//! The coordinator as a service: the fleet, what it shall do, and what operators can ask.
//!
//! - [`fleet`]: the agents, what they say of themselves, the link to each.
//! - [`document`]: what the fleet shall do, versioned.
//! - [`audit`]: who did what, and who was refused.
//! - [`roles`]: operators with tokens of their own, and what each may do.
//! - [`operator`], [`json`], [`daemon`]: the API, the same as JSON over HTTP, the process.
//!
//! The lab's own projects are the work server's (`fallow-work-server`), which is opened and served here.
#![forbid(unsafe_code)]

pub mod audit;
pub mod backup;
pub mod daemon;
pub mod document;
pub mod fleet;
pub mod json;
mod kept;
pub mod operator;
pub mod roles;
pub mod secret;
