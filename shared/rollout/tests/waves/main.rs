//! Whole waves over whole fleets, as the coordinator drives them (R6.5): who is waited for, who speaks, and
//! who is counted.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests: failures are panics")]

mod copies;
mod fleet;
mod large;
mod lost;
mod own_hosts;
mod waiting;
