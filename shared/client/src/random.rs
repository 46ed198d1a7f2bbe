//! The host's own stream of random numbers.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

/// The stream. What is drawn from it is counted in the stored state.
#[derive(Debug)]
pub(crate) struct Random {
    stream: Pcg64Mcg,
}

impl Random {
    /// The stream of a host by its seed. A restart, before which so many numbers were drawn, goes on with
    /// another part of it instead of repeating the last one's draws.
    pub(crate) fn after(seed: u64, draws: u64) -> Self {
        Self { stream: Pcg64Mcg::seed_from_u64(seed ^ draws.wrapping_mul(0x9E37_79B9_7F4A_7C15)) }
    }

    /// The stream, to draw from.
    pub(crate) fn stream(&mut self) -> &mut Pcg64Mcg {
        &mut self.stream
    }
}
