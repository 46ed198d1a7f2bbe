//! CS2: weighted round-robin, but before it what the simulation shows late, earliest deadline first (R5.2).

use fallow_domain::PerType;

use super::{CpuPolicy, CpuSituation, ProjectSnapshot, Schedule, choose};
use crate::round_robin::ProjectOutlook;

/// CS2.
#[derive(Clone, Copy, Debug)]
pub struct LateFirst;

impl CpuPolicy for LateFirst {
    fn name(&self) -> &'static str {
        "CS2"
    }

    fn summary(&self) -> &'static str {
        "those that would be late first"
    }

    fn decide(&self, situation: &CpuSituation<'_>) -> Schedule {
        let CpuSituation { host, used, projects, outlook, queue, now } = situation;
        let late = outlook.projects.iter().filter(|project| project.misses != PerType::default());
        let late: Vec<&ProjectOutlook> = late.collect();
        if late.is_empty() {
            return choose(host, used, projects, queue, *now);
        }
        let misses = |project: &ProjectSnapshot| {
            let of = late.iter().find(|of| of.id == project.id);
            ProjectSnapshot { misses: of.map(|of| of.misses).unwrap_or_default(), ..*project }
        };
        let projects: Vec<ProjectSnapshot> = projects.iter().map(misses).collect();
        choose(host, used, &projects, queue, *now)
    }
}
