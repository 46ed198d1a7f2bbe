//! CS1: weighted round-robin (R5.1).

use super::{CpuPolicy, CpuSituation, Schedule, choose};

/// CS1.
#[derive(Clone, Copy, Debug)]
pub struct ByShare;

impl CpuPolicy for ByShare {
    fn name(&self) -> &'static str {
        "CS1"
    }

    fn summary(&self) -> &'static str {
        "in turn by share"
    }

    fn looks_ahead(&self) -> bool {
        false
    }

    fn decide(&self, situation: &CpuSituation<'_>) -> Schedule {
        let CpuSituation { host, used, projects, queue, now, .. } = situation;
        choose(host, used, projects, queue, *now)
    }
}
