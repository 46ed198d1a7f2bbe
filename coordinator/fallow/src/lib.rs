//! `fallow`: the operators' command line.
//!
//! - [`cli`]: the commands. They speak to a coordinator by its operators' API, run one, or simulate.
//! - [`up`]: the demonstration, a coordinator and agents as processes of their own.
#![forbid(unsafe_code)]

pub mod cli;
pub mod up;

// What comes from hosts, jobs and peers is shown in many places here.
use fallow_domain::printable;
