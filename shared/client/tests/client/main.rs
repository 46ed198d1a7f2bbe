//! Tests of the whole machine.

mod life;
mod requests;
mod world;
