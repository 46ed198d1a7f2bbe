//! JC1: as the project says (R5.7).

use super::{CompletionPolicy, DurationCorrection};

/// JC1.
#[derive(Clone, Copy, Debug)]
pub struct BySize;

impl CompletionPolicy for BySize {
    fn name(&self) -> &'static str {
        "JC1"
    }

    fn summary(&self) -> &'static str {
        "as the project says"
    }

    fn factor(&self, _learned: DurationCorrection) -> DurationCorrection {
        DurationCorrection::default()
    }
}
