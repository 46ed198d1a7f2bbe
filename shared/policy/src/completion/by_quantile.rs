//! JC3: as 0.7 of the last jobs turned out, by application version.
//!
//! Why: the duration correction factor of JC2 rises at once with the longest job and falls by a tenth of the
//! way with each shorter one. One outlier makes all jobs of a project look long for weeks; servers that send
//! only what is in time then send nothing, no job ends, and the factor hardly falls. A quantile is moved by
//! an outlier no more than by any other job.
//!
//! Model: a job takes its estimate by size, times the 0.7 quantile of the ratios of actual to estimated
//! running time of the last 30 jobs of its application version ([`Experience`](super::Experience)): seven of
//! ten jobs are in time where their estimates are. What it has done and used moves the estimate as under JC2.
//! Servers are told one factor for a project: the same quantile over all its jobs.
//!
//! What a job took is how long it ran by the clock, and not its CPU time, which has to be divided by CPU
//! efficiency (R5.7). That is one figure for the whole host, which follows slowly and never falls below a
//! hundredth: of jobs that wait, for a disk or for the owner's programs, a quantile of CPU times would say
//! that they take next to nothing.
//!
//! Many servers say that no correction factor is to be used (BOINC: `dont_use_dcf`), for they correct the
//! speeds of versions themselves. They are told 1, and the host's own estimates are made as anywhere: what is
//! left to correct is where the server aims at the mean.
//!
//! Source: none that is published; quantiles instead of a factor are this project's own.
//!
//! Not in here: a spread about the quantile, by which tight deadlines could be told from loose ones.

use super::{
    Basis, CompletionPolicy, DurationCorrection, Estimate, JobProgress, Learned, WhyEstimate, remaining,
};

/// JC3.
#[derive(Clone, Copy, Debug)]
pub struct ByQuantile;

impl CompletionPolicy for ByQuantile {
    fn name(&self) -> &'static str {
        "JC3"
    }

    fn summary(&self) -> &'static str {
        "as 7 in 10 of its last jobs took at most"
    }

    fn looks_at_versions(&self) -> bool {
        true
    }

    /// What a server is told of a project is what it goes by.
    fn factor(&self, learned: DurationCorrection) -> DurationCorrection {
        learned
    }

    fn of_project(&self, learned: &Learned) -> DurationCorrection {
        learned.by_quantile
    }

    fn depends_on(&self, learned: &Learned) -> Basis {
        let efficiency = learned.efficiency.get().get().max(0.01);
        Basis::new([efficiency].into_iter().chain(learned.by_version.iter().copied()))
    }

    fn estimate(&self, job: &JobProgress) -> Estimate {
        let factor = job.by_version;
        let by_size = factor.apply(job.by_size);
        let left = remaining(job.fraction_done, job.progress.running_time(), by_size);
        Estimate { left, why: WhyEstimate { by_size, factor, fraction_done: job.fraction_done } }
    }
}
