//! The client in virtual time: the very policies of the agent, judged on hosts and projects that a scenario
//! describes.
//!
//! - [`engine`] · turns the client through virtual time, and says what came of it.
//! - [`experiment`] · the published experiments, and what many runs say together.
//! - [`labs`] · how policies fare on whole scenarios as labs have them, and what those allow.
//! - [`scenario`] · what is simulated: a host, a client's preferences, projects and their jobs; read from a
//!   scenario file, from a BOINC client's data directory, or built in; and the ranges that an experiment
//!   varies.
#![forbid(unsafe_code)]

pub mod engine;
pub mod experiment;
pub mod labs;
pub mod plot;
pub mod scenario;

/// The page that shows how a policy is added: what it shows is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/policies.md")]
pub struct Policies;
