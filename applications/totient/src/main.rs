//! `totient`: sums of Euler's phi over a range of whole numbers, as a BOINC application.
//!
//! Reads `in` (`from=A to=B`), writes `out`, keeps `checkpoint` in its slot. Without a client, `--from A --to
//! B` stands in for the input. Exit codes: 0 done, 64 bad command line, 65 bad input, 73 no start, 74 file
//! error.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use fallow_application::program;
use fallow_totient::Summation;

fn main() -> ExitCode {
    program::run::<Summation>()
}
