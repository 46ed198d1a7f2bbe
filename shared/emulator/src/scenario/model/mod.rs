//! The parts of a scenario, one file each.

pub(crate) mod availability;
pub(crate) mod client;
pub(crate) mod host;
pub(crate) mod job;
pub(crate) mod project;
