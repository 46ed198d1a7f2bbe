//! Sums of Euler's phi over ranges of whole numbers: the arithmetic, without files and clients.
//!
//! Another character than `mersenne`'s: word-sized integers, and tables that a processor's caches do not
//! hold. The executable `totient` turns a [`Summation`] under a BOINC client; whoever makes jobs uses
//! [`split`], [`estimated_flops`] and [`Range`]'s text (the input), and reads outputs with [`Report::parse`].
#![forbid(unsafe_code)]

mod cost;
mod range;
mod report;
mod sieve;
mod summation;

pub use cost::{SPEED, estimated_flops, split};
pub use range::{LENGTH_MAX, NUMBER_MAX, Range, RangeError};
pub use report::{ROW, Report};
pub use sieve::{SEGMENT, Sieve};
pub use summation::Summation;
