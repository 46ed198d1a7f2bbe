//! Sums over a host's jobs. They mostly show that one job more does no harm.
//!
//! On CPUs, where each job takes one, no job ends later than this: all the work is done on all CPUs, and
//! then the longest job takes its own time once more. If that is before every deadline, a simulation would
//! find nothing, and is not made. So a long queue with distant deadlines is not looked at job by job.

use fallow_domain::{Duration, Instant, ResourceType, Usage};

use super::InProgress;
use super::simulation::PROCESSORS_MAX;

/// Nearer than this to a deadline jobs are looked at one by one, whatever rounding does to sums.
const MARGIN: Duration = Duration::from_secs(1);

/// The CPU jobs of a host, as sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Running time left of all of them.
    pub(crate) work: Duration,
    /// Of the one with most left.
    pub(crate) longest: Duration,
    /// The first deadline.
    pub(crate) earliest: Instant,
    /// Whether each of them uses no more than one CPU.
    pub(crate) one_cpu_each: bool,
}

impl Load {
    /// Of a host without jobs.
    pub const NONE: Self = Self {
        work: Duration::ZERO,
        longest: Duration::ZERO,
        earliest: Instant::FAR_FUTURE,
        one_cpu_each: true,
    };

    /// Adds up jobs.
    pub fn of(jobs: &[InProgress]) -> Self {
        let mut load = Self::NONE;
        for job in jobs.iter().filter(|job| job.usage.main_type() == ResourceType::Cpu) {
            load.add(job);
        }
        load
    }

    /// Whether it says enough of its jobs to spare a look at each.
    pub const fn is_reliable(&self) -> bool {
        self.one_cpu_each
    }

    /// The same with all deadlines later by so much, as those of the servers are where a client plans with
    /// earlier ones (R1.13).
    #[must_use]
    pub fn with_deadlines_later(self, by: Duration) -> Self {
        Self { earliest: self.earliest + by, ..self }
    }

    /// Takes a CPU job in.
    pub(super) fn add(&mut self, job: &InProgress) {
        let left = job.remaining.max(Duration::ZERO);
        self.work += left;
        self.longest = self.longest.max(left);
        self.earliest = self.earliest.min(job.deadline);
        self.one_cpu_each &= uses_one_cpu(job.usage);
    }

    /// Whether all jobs, with one more, end before all their deadlines on so many CPUs, each taking `stretch`
    /// times as long as it says. No says nothing.
    pub(super) fn has_room_for(&self, job: &InProgress, cpus: u32, stretch: f64, now: Instant) -> bool {
        if job.usage.main_type() != ResourceType::Cpu || cpus == 0 {
            return false;
        }
        let mut with = *self;
        with.add(job);
        if !with.is_reliable() {
            return false;
        }
        let cpus = f64::from(cpus.min(PROCESSORS_MAX));
        let last = with.work.as_secs_f64() / cpus + with.longest.as_secs_f64() * (1.0 - 1.0 / cpus);
        now + Duration::from_secs_f64(last * stretch) + MARGIN <= with.earliest
    }
}

/// Whether a job takes one CPU in the simulation.
fn uses_one_cpu(usage: Usage) -> bool {
    usage.cpus <= 1.0
}
