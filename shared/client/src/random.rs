//! The host's own stream of random numbers.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

/// The stream. The stored state counts the occasions on which something may be drawn from it.
#[derive(Debug)]
pub(crate) struct Random {
    stream: Pcg64Mcg,
}

impl Random {
    /// The stream of a host by its seed. `draws` counts the occasions before this start on which something
    /// may have been drawn, not the numbers. A restart gets another stream by it, and does not repeat the
    /// draws of the last one.
    pub(crate) fn after(seed: u64, draws: u64) -> Self {
        Self { stream: Pcg64Mcg::seed_from_u64(seed ^ draws.wrapping_mul(0x9E37_79B9_7F4A_7C15)) }
    }

    /// The stream, to draw from.
    pub(crate) fn stream(&mut self) -> &mut Pcg64Mcg {
        &mut self.stream
    }
}
