//! Scenario files: TOML in, a [`Scenario`](super::Scenario) or everything that is wrong with the file out;
//! and back.

mod hours;
pub(crate) mod load;
pub(crate) mod read;
mod read_project;
pub(crate) mod sections;
pub(crate) mod trace;
pub(crate) mod units;
pub(crate) mod value;
pub(crate) mod write;
