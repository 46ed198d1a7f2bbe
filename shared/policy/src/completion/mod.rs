//! How long a job still needs (JC1 and JC2: R5.7, R5.8).
//!
//! Two estimates of a job's whole time are blended by the fraction done F: A, the time so far over F, and B,
//! its size over what it is computed with. The remaining time is the part not done, 1 - F, of F x A + (1 - F)
//! x B. JC2 multiplies B by the project's duration correction factor, learned from its finished jobs; JC1 has
//! no factor. JC3 multiplies it by a quantile over the last jobs of the application version
//! ([`Experience`]), which is of running times: so is its B.
//!
//! Plans are made with running time, wall time while a job runs with all that it uses. For a CPU job that is
//! CPU time over CPU efficiency, the measured part of its running time in which its tasks really compute: it
//! belongs to B, which knows nothing of the host's other users, and A is taken from CPU time for the same
//! reason and stretched likewise. For a coprocessor's job CPU time says nothing, and running time counts
//! throughout.
//!
//! A [`CompletionPolicy`] estimates from a [`JobProgress`]; each is a file here and a line in `registry`.

mod experience;

use std::fmt;

use fallow_domain::{Duration, Flops, Fraction, Speed};
use serde::{Deserialize, Serialize};

use crate::choice::Policy;
pub use experience::{EndedJob, Experience, REMEMBERED};

policies!(completion);

/// The policy that is followed.
pub type CompletionChoice = Policy<dyn CompletionPolicy>;

/// Estimates how long jobs take.
pub trait CompletionPolicy: Send + Sync + 'static {
    /// Its name in compositions: `JC`, then letters or digits, four at most. `JC0` is for tests and examples.
    fn name(&self) -> &'static str;

    /// What it does, in a few words for `--help`: 48 bytes at most.
    fn summary(&self) -> &'static str;

    /// The factor by which it multiplies what jobs of a project take by their size. `learned` is what the
    /// project's finished jobs took over that.
    ///
    /// A server has that from a request: it is what [`of_project`](Self::of_project) gave.
    fn factor(&self, learned: DurationCorrection) -> DurationCorrection;

    /// What finished jobs of a project took over what they were to take by their size, as its servers are
    /// told.
    fn of_project(&self, learned: &Learned) -> DurationCorrection {
        learned.correction
    }

    /// What its estimates of a project's jobs depend on beside the jobs themselves. Jobs that are held are
    /// estimated anew when it has [moved](Basis::has_moved): whoever writes an [`estimate`](Self::estimate)
    /// of his own says here what of `learned` that goes by. By default it is the factor over the CPU
    /// efficiency.
    fn depends_on(&self, learned: &Learned) -> Basis {
        Basis::new([self.factor(learned.correction).get() / learned.efficiency.get().get().max(0.01)])
    }

    /// Whether it looks at [`JobProgress::by_version`]. Without, no time is spent on finding it.
    fn looks_at_versions(&self) -> bool {
        false
    }

    /// The running time that a job still needs, by default the blend of its size and its progress (R5.7). It
    /// is asked for every job of a host at once, so it should take no longer than it has to.
    fn estimate(&self, job: &JobProgress) -> Estimate {
        let factor = self.factor(job.learned);
        let by_size = factor.apply(job.by_size);
        let left = running_time_left(job.fraction_done, job.progress, by_size);
        Estimate { left, why: WhyEstimate { by_size, factor, fraction_done: job.fraction_done } }
    }
}

/// What a host has learned from jobs that ended, of a project's jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Learned {
    /// What finished jobs of the project took over what they were to take by their size (R5.8).
    pub correction: DurationCorrection,
    /// The same as a quantile over the last of them.
    pub by_quantile: DurationCorrection,
    /// The numbers that quantiles by application version are made from ([`Experience::numbers`]).
    pub by_version: Vec<f64>,
    /// How much of their running time CPU jobs of the host compute.
    pub efficiency: CpuEfficiency,
}

/// What estimates were made from beside the jobs themselves, as numbers that tell how far it has moved since.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Basis(Vec<f64>);

impl Basis {
    /// A move of less than that of each number is let gather, so that what has settled costs nothing with ten
    /// thousand jobs.
    const STEP: f64 = 0.02;

    /// Of as many numbers as it takes, always the same ones in the same order.
    pub fn new(numbers: impl IntoIterator<Item = f64>) -> Self {
        Self(numbers.into_iter().collect())
    }

    /// Whether estimates made from `self` are to be made anew, now that they would be made from `now`.
    pub fn has_moved(&self, now: &Self) -> bool {
        let holds = |(was, is): (&f64, &f64)| was == is || (is / was - 1.0).abs() <= Self::STEP;
        self.0.len() != now.0.len() || !self.0.iter().zip(&now.0).all(holds)
    }
}

/// A job whose end is looked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobProgress {
    /// The running time of the whole job by its size.
    pub by_size: Duration,
    /// What its application says is done.
    pub fraction_done: Fraction,
    /// What it took so far.
    pub progress: Progress,
    /// What finished jobs of its project took over what they were to take by their size (R5.8).
    pub learned: DurationCorrection,
    /// The same as a quantile over the last jobs of its application version, if the policy looks at it
    /// ([`looks_at_versions`](CompletionPolicy::looks_at_versions)).
    pub by_version: DurationCorrection,
}

/// An estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The running time that the job still needs.
    pub left: Duration,
    /// What that was made from.
    pub why: WhyEstimate,
}

/// Why a job is thought to take so long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WhyEstimate {
    /// The running time of the whole job by its size, corrected.
    pub by_size: Duration,
    /// The factor that corrected it.
    pub factor: DurationCorrection,
    /// What its application says is done.
    pub fraction_done: Fraction,
}

impl fmt::Display for WhyEstimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by_size, factor, fraction_done } = self;
        write!(f, "{by_size} by its size times {:.2}, {:.0}% done", factor.get(), fraction_done.get() * 100.0)
    }
}

/// The CPU time of a whole job by its size (B): operations over the benchmark speed of a CPU. This is
/// the *original* estimate that a correction factor is learned against.
pub fn by_size_of(size: Flops, speed: Speed) -> Duration {
    size.at(speed)
}

/// CPU time over wall time of running tasks: a project whose tasks wait for the disk gets less done in an
/// hour. Divides a CPU time into the wall time that it takes.
pub fn wall_time(cpu_time: Duration, cpu_efficiency: Fraction) -> Duration {
    // A hundredth at least: nothing measured lower says anything about a job of tomorrow.
    cpu_time.mul_f64(1.0 / cpu_efficiency.get().max(0.01))
}

/// The measured CPU efficiency of a project's CPU jobs: CPU time over running time.
///
/// It moves a tenth of the way with each finished job, and a job that hardly ran moves nothing: it mostly
/// read files.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CpuEfficiency(Fraction);

impl Default for CpuEfficiency {
    fn default() -> Self {
        Self(Fraction::ONE)
    }
}

impl CpuEfficiency {
    /// A job that ran for less says nothing about efficiency; those of a small lab run for half a minute.
    pub const RUNNING_MIN: Duration = Duration::from_secs(10);

    /// The fraction.
    pub const fn get(self) -> Fraction {
        self.0
    }

    /// Learns from a finished CPU job: the CPU time that it used on each of its CPUs, and how long it ran.
    #[must_use]
    pub fn learned(self, cpu: Duration, running: Duration) -> Self {
        if running < Self::RUNNING_MIN {
            return self;
        }
        let seen = Fraction::clamped(cpu.as_secs_f64() / running.as_secs_f64()).get();
        Self(Fraction::clamped(self.0.get() * 0.9 + seen * 0.1))
    }
}

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress {
    /// A CPU job, by the CPU time that it used on each of its CPUs, on a project of this efficiency.
    Cpu(Duration, CpuEfficiency),
    /// A coprocessor's job, by its running time.
    Coprocessor(Duration),
}

impl Progress {
    /// For how long it has run towards its result.
    fn running_time(self) -> Duration {
        match self {
            Self::Cpu(cpu, efficiency) => wall_time(cpu, efficiency.get()),
            Self::Coprocessor(running) => running,
        }
    }
}

/// The running time that a job still needs (R5.7, R5.8). `by_size` is that of the whole job by its size,
/// corrected.
pub fn running_time_left(fraction_done: Fraction, progress: Progress, by_size: Duration) -> Duration {
    match progress {
        Progress::Cpu(cpu, efficiency) => wall_time(remaining(fraction_done, cpu, by_size), efficiency.get()),
        Progress::Coprocessor(running) => remaining(fraction_done, running, by_size),
    }
}

/// JC1 (R5.7): the remaining CPU time of a job whose whole is estimated at `by_size`, of which
/// `fraction_done` is done after `elapsed_cpu`. A task that reports no fraction keeps its estimate by size.
pub fn remaining(fraction_done: Fraction, elapsed_cpu: Duration, by_size: Duration) -> Duration {
    let done = fraction_done.get();
    // F x A is the CPU time so far: no division by a small F.
    let by_progress = if done > 0.0 { elapsed_cpu.max(Duration::ZERO) } else { Duration::ZERO };
    let blended = by_progress + by_size.max(Duration::ZERO).mul_f64(1.0 - done);
    blended.mul_f64(1.0 - done)
}

/// A project's duration correction factor: actual over originally estimated CPU time.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DurationCorrection(f64);

impl Default for DurationCorrection {
    fn default() -> Self {
        Self(1.0)
    }
}

impl DurationCorrection {
    /// Factors are kept from a hundredth to a hundred: beyond, one broken job would stop work from being
    /// fetched, or fetch without end.
    pub const RANGE: (f64, f64) = (0.01, 100.0);

    /// From a stored or received number; what is not in range is brought into it, and NaN is 1.
    pub fn new(factor: f64) -> Self {
        if factor.is_nan() { Self(1.0) } else { Self(factor.clamp(Self::RANGE.0, Self::RANGE.1)) }
    }

    /// The factor.
    pub const fn get(self) -> f64 {
        self.0
    }

    /// A corrected estimate, for JC2's B (R5.8).
    pub fn apply(self, by_size: Duration) -> Duration {
        by_size.mul_f64(Self::new(self.0).0)
    }

    /// Learns from a job that ended well: `original` is its estimate by size, uncorrected. The factor rises
    /// at once, since too much work misses deadlines, and falls by a tenth of the way per job, or a hundredth
    /// when the ratio is below a tenth of the factor: such a job probably ended early and says little.
    #[must_use]
    pub fn learned(self, original: Duration, actual: Duration) -> Self {
        if !original.is_positive() || !actual.is_positive() {
            return self;
        }
        let ratio = actual.as_secs_f64() / original.as_secs_f64();
        let weight = match ratio / self.0 {
            r if r >= 1.0 => 1.0,
            r if r >= 0.1 => 0.1,
            _ => 0.01,
        };
        Self::new(self.0 * (1.0 - weight) + ratio * weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOUR: Duration = Duration::from_hours(1);

    #[test]
    fn r5_7_the_estimate_moves_from_size_to_progress() {
        let at = |done: f64, hours: i64| {
            remaining(Fraction::clamped(done), HOUR * hours, HOUR * 10).as_secs_f64() / 3_600.0
        };
        // Nothing done: by size. A perfect estimate: linear. Twice as slow as thought: A takes over.
        assert_eq!(at(0.0, 0), 10.0);
        assert_eq!(at(0.5, 5), 5.0);
        assert_eq!(at(0.5, 10), 7.5);
        assert!((at(0.9, 18) - 1.9).abs() < 1e-6);
        assert_eq!(at(1.0, 20), 0.0);
    }

    #[test]
    fn r5_7_a_task_that_reports_no_fraction_keeps_its_estimate_by_size() {
        assert_eq!(remaining(Fraction::ZERO, HOUR * 50, HOUR * 10), HOUR * 10);
    }

    #[test]
    fn r5_7_low_cpu_efficiency_makes_a_job_take_longer() {
        assert_eq!(wall_time(HOUR, Fraction::clamped(0.5)), HOUR * 2);
        assert_eq!(wall_time(HOUR, Fraction::ZERO), HOUR * 100);
    }

    #[test]
    fn r5_7_a_cpu_jobs_time_is_stretched_by_its_efficiency_and_a_coprocessors_is_not() {
        let half = Fraction::clamped(0.5);
        let efficiency = CpuEfficiency(half);
        let left = |progress| running_time_left(half, progress, HOUR * 10);
        assert_eq!(left(Progress::Cpu(HOUR * 5, efficiency)), HOUR * 10);
        assert_eq!(left(Progress::Coprocessor(HOUR * 5)), HOUR * 5);
        let mut learned = CpuEfficiency::default();
        for _ in 0..100 {
            learned = learned.learned(HOUR, HOUR * 4);
        }
        assert!((learned.get().get() - 0.25).abs() < 1e-3);
        assert_eq!(
            learned.learned(Duration::ZERO, CpuEfficiency::RUNNING_MIN - Duration::from_secs(1)),
            learned
        );
    }

    #[test]
    fn r5_7_jc1_corrects_by_no_factor_jc2_by_the_projects_and_jc3_by_the_versions() {
        let factor = DurationCorrection::new(4.0);
        assert_eq!(by_size::BySize.factor(factor).get(), 1.0);
        assert_eq!(corrected::Corrected.factor(factor), factor);
        let job = JobProgress {
            by_size: HOUR,
            fraction_done: Fraction::clamped(0.5),
            progress: Progress::Coprocessor(HOUR),
            learned: factor,
            by_version: DurationCorrection::new(2.0),
        };
        let by_quantile = by_quantile::ByQuantile.estimate(&job);
        assert_eq!((by_quantile.left, by_quantile.why.by_size), (HOUR, HOUR * 2));
        let estimate = corrected::Corrected.estimate(&job);
        assert_eq!((estimate.left, estimate.why.by_size), (Duration::from_mins(90), HOUR * 4));
        assert_eq!(by_size::BySize.estimate(&job).left, Duration::from_mins(45));
    }

    #[test]
    fn r5_8_the_factor_rises_at_once_and_falls_slowly() {
        let learned =
            |from: f64, ratio: f64| DurationCorrection::new(from).learned(HOUR, HOUR.mul_f64(ratio)).get();
        assert_eq!(learned(1.0, 4.0), 4.0);
        assert!((learned(4.0, 1.0) - 3.7).abs() < 1e-9);
        assert!((learned(4.0, 0.2) - 3.962).abs() < 1e-9);
        assert_eq!(learned(1.0, 1e6), 100.0);
        assert_eq!(DurationCorrection::new(2.0).learned(Duration::ZERO, HOUR).get(), 2.0);
    }

    #[test]
    fn r5_7_a_policy_says_all_that_its_estimates_depend_on() {
        let job = |learned: &Learned, is_gpu| JobProgress {
            by_size: HOUR * 10,
            fraction_done: Fraction::clamped(0.25),
            progress: match is_gpu {
                true => Progress::Coprocessor(HOUR),
                false => Progress::Cpu(HOUR, learned.efficiency),
            },
            learned: learned.correction,
            by_version: learned.by_version.first().map(|f| DurationCorrection::new(*f)).unwrap_or_default(),
        };
        let correction = DurationCorrection::new(3.0);
        let efficiency = CpuEfficiency(Fraction::clamped(0.5));
        let before = Learned { by_version: vec![1.0, 1.0], ..Learned::default() };
        for policy in CompletionChoice::all() {
            let changed = [
                Learned { correction, ..before.clone() },
                Learned { efficiency, ..before.clone() },
                Learned { by_version: vec![3.0], ..before.clone() },
                Learned { by_version: vec![1.0, 3.0], ..before.clone() },
            ];
            for after in changed {
                let left = |learned, is_gpu| policy.estimate(&job(learned, is_gpu)).left;
                let differs = [false, true].iter().any(|gpu| left(&before, *gpu) != left(&after, *gpu));
                let moved = policy.depends_on(&before).has_moved(&policy.depends_on(&after));
                assert!(moved || !differs, "{policy}: its estimates change with {after:?}");
            }
        }
    }

    #[test]
    fn r5_7_a_basis_has_moved_when_one_of_its_numbers_has_by_more_than_a_fiftieth() {
        let moved = |was: &[f64], is: &[f64]| {
            Basis::new(was.iter().copied()).has_moved(&Basis::new(is.iter().copied()))
        };
        assert!(!moved(&[], &[]) && !moved(&[1.0, 0.0], &[1.019, 0.0]) && !moved(&[-1.0], &[-0.99]));
        assert!(moved(&[1.0, 1.0], &[1.0, 1.03]) && moved(&[0.0], &[0.1]) && moved(&[1.0], &[f64::NAN]));
        assert!(moved(&[1.0], &[]) && moved(&[1.0], &[-1.0]));
    }

    proptest! {
        #[test]
        fn r5_8_the_factor_stays_in_range_and_between_itself_and_the_ratio(
            factor in any::<f64>(), original in any::<i64>(), actual in any::<i64>(),
        ) {
            let before = DurationCorrection::new(factor);
            let (original, actual) = (Duration::from_micros(original), Duration::from_micros(actual));
            let after = before.learned(original, actual);
            prop_assert!((0.01..=100.0).contains(&after.get()));
        }

        #[test]
        fn r5_7_the_remaining_time_is_never_negative(f in any::<f64>(), cpu in any::<i64>(), size in any::<i64>()) {
            let left = remaining(Fraction::clamped(f), Duration::from_micros(cpu), Duration::from_micros(size));
            prop_assert!(left >= Duration::ZERO);
        }
    }
}
