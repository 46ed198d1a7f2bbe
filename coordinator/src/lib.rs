//! The coordinator, the lab's own project, and the operators' command line.
//!
//! - [`fleet`]: the agents, what they say of themselves, the link to each.
//! - [`document`]: what the fleet shall do, versioned.
//! - [`project`]: the lab's own BOINC-compatible projects.
//! - [`operator`], [`daemon`], [`cli`], [`up`]: the API, the process, the command line, the demonstration.
#![forbid(unsafe_code)]

pub mod cli;
pub mod clock;
pub mod daemon;
pub mod document;
pub mod fleet;
mod guests;
pub mod operator;
pub mod project;
mod records;
pub mod secret;
mod seldom;
pub mod up;

// What comes from hosts, jobs and peers is shown in many places here.
use fallow_domain::printable;
