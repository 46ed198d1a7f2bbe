//! Scenarios and the simulator as their users meet them.

mod scenario_errors;
mod scenario_files;
mod scenario_vary;
