//! The decisions of a volunteer-computing client, as pure functions.
//!
//! Every policy is a function of a state, an event and a time that are handed to it; the randomness of a
//! backoff is drawn from a generator handed to it as well. Nothing here reads a clock, a file or a socket,
//! and every decision carries its reason, so that whoever asks "why" gets the rule and the figures that
//! applied.
//!
//! Of each choice that a client and a server have to make there are the alternatives that a `composition`
//! names: what runs, what is fetched, what is sent, how long jobs take. Each kind is a folder with one
//! interface; `registry` lists what there is to choose from, and is the only place that does. Beside them
//! stand the timing of RPCs, disk space and the four metrics. One policy per file, named after it.
//!
//! Arithmetic that decides uses additions, multiplications, divisions and square roots only, which are the
//! same on every machine; the one exponential is our own (R5.12).
#![forbid(unsafe_code)]

// A policy's file reads the same in here as in the page that shows how one is added.
extern crate self as fallow_policy;

#[macro_use]
mod registry;

pub mod accounting;
pub mod active_fraction;
pub mod backoff;
pub mod choice;
pub mod completion;
pub mod composition;
pub mod cpu_schedule;
pub mod decay;
pub mod disk;
pub mod due;
pub mod fetch;
pub mod job_queue;
mod math;
pub mod metrics;
pub mod net_rate;
pub mod network_period;
pub mod plan_host;
pub mod report_due;
pub mod round_robin;
pub mod rpc_session;
pub mod rpc_timing;
pub mod send;
pub mod share_fraction;
pub mod transfer_backoff;
pub mod type_backoff;
pub mod why;
