//! JC2: as it turned out before (R5.8).

use super::{CompletionPolicy, DurationCorrection};

/// JC2.
#[derive(Clone, Copy, Debug)]
pub struct Corrected;

impl CompletionPolicy for Corrected {
    fn name(&self) -> &'static str {
        "JC2"
    }

    fn summary(&self) -> &'static str {
        "as it turned out before"
    }

    fn factor(&self, learned: DurationCorrection) -> DurationCorrection {
        learned
    }
}
