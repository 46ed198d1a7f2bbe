//! Lucas-Lehmer tests of all prime exponents in a range: the arithmetic, without files and clients.
//!
//! The executable `mersenne` turns a [`Search`] under a BOINC client; whoever makes jobs uses [`split`],
//! [`estimated_flops`] and [`Range`]'s text (the input), and reads outputs with [`Report::parse`].
#![forbid(unsafe_code)]

mod cost;
mod lucas_lehmer;
mod primes;
mod range;
mod report;
mod search;

pub use cost::{SPEED, estimated_flops, split};
pub use lucas_lehmer::Test;
pub use range::{EXPONENT_MAX, Range, RangeError};
pub use report::Report;
pub use search::Search;
