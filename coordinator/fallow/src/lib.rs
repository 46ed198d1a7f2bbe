//! `fallow`: the operators' command line.
//!
//! - `command_line`: what can be typed.
//! - [`cli`]: the commands. They speak to a coordinator by its operators' API, run one, or simulate.
//! - [`up`]: the demonstration, a coordinator and agents as processes of their own.
#![forbid(unsafe_code)]

pub mod cli;
mod command_line;
pub mod up;

pub use command_line::main;

// What comes from hosts, jobs and peers is shown in many places here.
use fallow_domain::printable;
