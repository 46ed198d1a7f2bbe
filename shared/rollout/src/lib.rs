//! How a new version of the fleet's documents reaches its hosts (R6.5): decisions as pure functions.
//!
//! A version is released in waves ([`Plan`]). Which wave a host is in follows from its id and stays so
//! however the fleet grows ([`Wave`]). After each wave its hosts are watched for a while ([`Soak`]) beside
//! those that still have the version before: [`Rollout::tick`] says whether the next wave follows, whether
//! somebody has to look, or whether the version harms and all hosts get back what they had.
//!
//! What is compared and how is said in [`judge`]. Nothing here knows a clock or a store: whoever drives a
//! rollout stores each [`Rollout`] before it holds, and says what time it is.
//!
//! Omitted: rollouts side by side. A fleet has one at a time.
#![forbid(unsafe_code)]

mod cohort;
mod gate;
mod host;
pub mod judge;
mod lost;
mod own;
mod plan;
mod rollout;
mod soak;
mod speaker;
mod statistics;
mod waiting;

pub use cohort::position;
pub use gate::{Gate, Gates};
pub use host::{Calls, HostNow, Load, Pause};
pub use plan::{Plan, SOAK_MAX, SOAK_MIN, WAVES_MAX, Wave};
pub use rollout::{Order, OrderError, Phase, Rollout, Step, Transition};
pub use soak::Soak;
pub use speaker::have_one_speak;

/// So many hosts, in words.
fn hosts(count: usize) -> String {
    format!("{count} host{}", if count == 1 { "" } else { "s" })
}
