//! Scenarios and the simulator as their users meet them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod engine_faults;
mod engine_fleet;
mod engine_runs;
mod experiments;
mod scenario_boinc;
mod scenario_errors;
mod scenario_files;
mod scenario_vary;
mod starvation;
