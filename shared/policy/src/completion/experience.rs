//! What a project's jobs took over what they were to take: the last of them, by application version.
//!
//! Model: of the last [`REMEMBERED`] jobs of a version the ratios of actual to estimated running time are
//! kept, and their 0.7 quantile is the version's factor. A single outlier, high or low, never decides:
//! - Of a version of which fewer than [`ENOUGH`] jobs have ended, [`GUESSES`] guesses count among its ratios.
//!   They are the factor of the project, over all its versions, and of a project without jobs they are 1. So
//!   what is estimated too low is believed from the second job on, and what is estimated too high from the
//!   fifth: to wait with the latter costs little.
//! - A factor stays as it is while the quantile is within 5% of it. Jobs that are held are estimated anew
//!   only when it has moved.
//!
//! Ratios of a version are those by one speed. A server that has corrected the speed of a version by itself
//! changes what its jobs are to take, and not what they take: so does the factor.
//!
//! A project's own factor is what its servers are told. One that is too high locks the project out: nothing
//! is sent that could show that it is wrong. So once no job of it has ended for a week, that number goes half
//! of the way towards 1, by its logarithm, with each further week.
//!
//! Who gives up jobs that would be late (`abort=hopeless`) tells of those what they would have taken, by how
//! far they were. Without them only jobs would count that were short enough, and the next would be thought to
//! be as short. The quantile bears the error of such a figure as that of any one job.
//!
//! Not in here: other jobs that were aborted, which say only that they would have taken longer; ratios that
//! depend on what a job is given to do, where a project has several kinds of jobs under one version.

use std::collections::VecDeque;

use fallow_domain::{Duration, Instant, Speed};
use serde::{Deserialize, Serialize};

use super::DurationCorrection;

/// So many jobs are remembered of each version, and of the project.
pub const REMEMBERED: usize = 30;
/// So many versions of a project are remembered: those whose jobs ended last.
const VERSIONS_MAX: usize = 32;
/// The part of the jobs that are to take no longer than estimated.
const QUANTILE: f64 = 0.7;
/// So many jobs say enough by themselves.
const ENOUGH: usize = 8;
/// Until then so many guesses count among them.
const GUESSES: usize = 2;
/// A factor moves by no less than this.
const STEP: f64 = 1.05;
/// What a ratio by a version's first speed may come to, and at least its reciprocal, where its speed has
/// changed.
const RATIO_MAX: f64 = 1e9;
/// Without a job that ended for so long the project's factor fades.
const FADES_AFTER: Duration = Duration::from_hours(7 * 24);
/// What has faded so often is 1.
const FADINGS_MAX: u32 = 64;

/// The ratios of the last jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Ratios {
    /// The speed by which they were estimated, of the first of them, in operations per second.
    speed: f64,
    /// The latest last.
    last: VecDeque<f32>,
    /// The factor that follows from them, by that speed.
    factor: f64,
}

impl Ratios {
    const fn new(speed: f64, guess: f64) -> Self {
        Self { speed, last: VecDeque::new(), factor: guess }
    }

    /// Takes in a job that was estimated by a speed. `guess` is what a job by that speed is thought to take
    /// as long as nothing is known.
    fn learn(&mut self, ratio: f64, speed: f64, guess: f64) {
        let by_first = |ratio: f64| (ratio * (self.speed / speed)).clamp(1.0 / RATIO_MAX, RATIO_MAX);
        let (ratio, guess) = (by_first(ratio), by_first(guess));
        if self.last.len() >= REMEMBERED {
            self.last.pop_front();
        }
        self.last.push_back(ratio as f32);
        let found = self.quantile(guess);
        if !(1.0 / STEP..=STEP).contains(&(found / self.factor)) {
            self.factor = found;
        }
    }

    fn quantile(&self, guess: f64) -> f64 {
        let guesses = if self.last.len() < ENOUGH { GUESSES } else { 0 };
        let mut all: Vec<f64> = self.last.iter().map(|ratio| f64::from(*ratio)).collect();
        all.extend(std::iter::repeat_n(guess, guesses));
        all.sort_unstable_by(f64::total_cmp);
        // Of three or more never the highest.
        let place = (QUANTILE * all.len().saturating_sub(1) as f64 + 0.5) as usize;
        all.get(place).copied().unwrap_or(guess)
    }

    fn is_sound(&self) -> bool {
        let is_sane = |number: f64| (1e-12..=1e12).contains(&number);
        let is_speed = self.speed.is_finite() && self.speed > 0.0;
        is_speed
            && is_sane(self.factor)
            && self.last.len() <= REMEMBERED
            && self.last.iter().all(|ratio| is_sane(f64::from(*ratio)))
    }
}

impl Default for Ratios {
    fn default() -> Self {
        Self::new(1.0, 1.0)
    }
}

/// What was learned of a version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct OfVersion<V> {
    version: V,
    ratios: Ratios,
    /// How many jobs of the project had ended when the last of this version did.
    latest: u64,
}

/// What was learned of a project's jobs. `V` names its application versions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experience<V> {
    project: Ratios,
    /// In the order in which they came up. One that is forgotten leaves its place to the next.
    versions: Vec<OfVersion<V>>,
    /// Jobs that have ended.
    jobs: u64,
    /// When the last one did.
    last_at: Instant,
}

impl<V> Default for Experience<V> {
    fn default() -> Self {
        Self { project: Ratios::default(), versions: Vec::new(), jobs: 0, last_at: Instant::EPOCH }
    }
}

/// A job that ended well, or was given up when it could be told what it would have taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EndedJob {
    /// What it was to take by its size, uncorrected.
    pub by_size: Duration,
    /// How long it ran by the clock, or would have run.
    pub actual: Duration,
    /// The speed by which it was estimated.
    pub speed: Speed,
}

impl<V: PartialEq + Clone> Experience<V> {
    /// Learns from a job. One that was to take no time, or took none, says nothing.
    pub fn learn(&mut self, now: Instant, version: &V, job: EndedJob) {
        let speed = job.speed.get();
        if !job.by_size.is_positive() || !job.actual.is_positive() || !speed.is_finite() || speed <= 0.0 {
            return;
        }
        let ratio = DurationCorrection::new(job.actual.as_secs_f64() / job.by_size.as_secs_f64()).get();
        self.jobs += 1;
        self.last_at = now;
        self.project.learn(ratio, 1.0, 1.0);
        let (guess, jobs) = (self.project.factor, self.jobs);
        if let Some(known) = self.versions.iter_mut().find(|known| known.version == *version) {
            known.latest = jobs;
            return known.ratios.learn(ratio, speed, guess);
        }
        let mut ratios = Ratios::new(speed, guess);
        ratios.learn(ratio, speed, guess);
        let fresh = OfVersion { version: version.clone(), ratios, latest: jobs };
        if self.versions.len() < VERSIONS_MAX {
            return self.versions.push(fresh);
        }
        // In its place, so that the numbers of the others stay in theirs.
        if let Some(oldest) = self.versions.iter_mut().min_by_key(|known| known.latest) {
            *oldest = fresh;
        }
    }

    /// By what the estimate of a job by its size and a speed is to be multiplied.
    pub fn factor(&self, version: &V, speed: Speed) -> DurationCorrection {
        let known = self.versions.iter().find(|known| known.version == *version);
        let factor = known.map(|known| known.ratios.factor * (speed.get() / known.ratios.speed));
        DurationCorrection::new(factor.unwrap_or(self.project.factor))
    }

    /// The same by the shortest of the version's last jobs; none if few are known.
    pub fn least(&self, version: &V, speed: Speed) -> Option<DurationCorrection> {
        let known = self.versions.iter().find(|known| known.version == *version)?;
        let ratios = Some(&known.ratios).filter(|ratios| ratios.last.len() >= ENOUGH)?;
        let least = ratios.last.iter().copied().min_by(f32::total_cmp)?;
        Some(DurationCorrection::new(f64::from(least) * (speed.get() / ratios.speed)))
    }
}

impl<V> Experience<V> {
    /// What another client has learned is taken over, as if it came of enough jobs.
    pub fn adopted(factor: DurationCorrection) -> Self {
        let factor = factor.get();
        let last = [factor as f32; ENOUGH].into();
        Self { project: Ratios { speed: 1.0, last, factor }, ..Self::default() }
    }

    /// The clock was set back: no job has ended later than now (R1.12). Says whether that changes anything.
    pub fn clock_set_back(&mut self, now: Instant) -> bool {
        let was_ahead = self.last_at > now;
        self.last_at = self.last_at.min(now);
        was_ahead
    }

    /// The factor of the whole project, as its servers are told it.
    pub fn of_project(&self, now: Instant) -> DurationCorrection {
        let mut factor = self.project.factor;
        // Before the first job nothing has faded: what was adopted holds.
        let silent = if self.jobs == 0 { Duration::ZERO } else { now - self.last_at };
        let weeks = silent.max(Duration::ZERO).as_secs_f64() / FADES_AFTER.as_secs_f64();
        for _ in 0..(weeks as u32).min(FADINGS_MAX) {
            // Only one that is too high holds work off.
            factor = if factor > 1.0 { factor.sqrt() } else { factor };
        }
        DurationCorrection::new(factor)
    }

    /// All the numbers that estimates are made from, in an order that stays.
    pub fn numbers(&self) -> impl Iterator<Item = f64> {
        let of_versions = self.versions.iter().flat_map(|known| [known.ratios.factor, known.ratios.speed]);
        [self.project.factor].into_iter().chain(of_versions)
    }

    /// Whether it is as this code leaves it, and no number in it is absurd. What is read from a store may be
    /// damaged.
    pub fn is_sound(&self) -> bool {
        let are_sound = self.versions.iter().all(|known| known.ratios.is_sound());
        self.versions.len() <= VERSIONS_MAX && self.project.is_sound() && are_sound
    }
}

#[cfg(test)]
mod tests;
