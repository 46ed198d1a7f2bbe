//! What a scenario is: the whole and its parts, one file each.

pub(crate) mod availability;
pub(crate) mod client;
pub(crate) mod host;
pub(crate) mod job;
pub(crate) mod outage;
pub(crate) mod project;
pub(crate) mod scenario;
