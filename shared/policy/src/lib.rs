//! The decisions of a volunteer-computing client, as pure functions.
//!
//! Every policy is a function of a state, an event and a time, all of which are handed to it. So is the
//! generator from which a backoff draws its random numbers. Nothing here reads a clock, a file or a socket.
//! Every decision carries its reason, so that whoever asks "why" gets the rule and the figures that
//! applied.
//!
//! Five decisions have several policies to choose from: which jobs run, what work is fetched, which jobs a
//! server sends, how long a job still takes, and by what account projects are compared. Each of these kinds
//! is a folder with one interface; `registry` lists the policies of each kind, and nothing else does. A
//! `composition` names one of each kind. Beside them stand the timing of RPCs, disk space and the four
//! metrics. One policy per file, named after it.
//!
//! Requirement ids such as R2.3 are those of `docs/requirements.md`, which names the documents that they
//! come from. The policies CS, WF, WS and JC are those of D. Kondo, D. P. Anderson and J. McLeod VII,
//! "Performance Evaluation of Scheduling Policies for Volunteer Computing", 2007.
//!
//! Arithmetic that decides uses additions, multiplications, divisions and square roots only, which are the
//! same on every machine; the one exponential function is our own (R5.12).
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
pub mod confinement;
pub mod cpu_schedule;
pub mod decay;
pub mod disk;
pub mod droughts;
pub mod due;
pub mod fetch;
pub mod hopeless;
pub mod job_queue;
pub mod looks;
pub mod math;
pub mod metrics;
pub mod net_rate;
pub mod network_period;
pub mod on_time;
pub mod on_time_told;
pub mod other_network;
pub mod plan_host;
pub mod report_due;
pub mod round_robin;
pub mod rpc_session;
pub mod rpc_timing;
pub mod send;
pub mod share_fraction;

pub mod swap_limit;
pub mod transfer_backoff;
pub mod transfer_quota;
pub mod type_backoff;
pub mod why;
