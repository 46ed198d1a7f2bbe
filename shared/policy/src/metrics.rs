//! The four metrics of a host's history: idleness, waste, share violation, monotony (R5.30 to R5.34).
//!
//! The caller reports stretches of time in which nothing changed, jobs whose fate is known, and RPCs. They are
//! booked into buckets of an hour (the last day) and of a day (the last month); a window sums the buckets that
//! overlap it, so it is exact to one bucket. The same code serves an agent's real history and a simulated one.
//!
//! Definitions, where R5 leaves room:
//! - *Idleness* is instance time without any runnable job over available instance time. The caller counts a host
//!   that is off or suspended as available with 0 instances. Throttled time (R2.8) is summed apart.
//! - *Waste* is judged when a job's fate is known: instance time of jobs that missed their deadline over that of
//!   all jobs with a known fate. A job past its deadline and not yet reported is known to be late.
//! - *Share violation* compares what each project got with what was due to it: the used time of each stretch,
//!   divided by share among the projects that had work in it, none getting more than its jobs could use (R3.3).
//! - *Monotony* is 1 - switches made / switches possible, not below 0. A switch is one CPU going from one project
//!   to another. Possible is one for each busy instance in each scheduling period while at least two projects
//!   with a share are attached, whether or not they have work: a host that only ever gets work of one of its two
//!   projects is monotonous. With one project it is 0.

use std::collections::BTreeMap;

use fallow_domain::{Duration, Fraction, Instant, ProjectId, Share};
use serde::{Deserialize, Serialize};

use crate::fair_division::{Claim, fair_division};
use crate::job_queue::Cpus;

const HOUR: Scale = Scale { length: Duration::from_hours(1), kept: 25 };
const DAY: Scale = Scale { length: Duration::from_hours(24), kept: 31 };

/// A project in a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProjectStretch {
    /// The project.
    pub project: ProjectId,
    /// Its share.
    pub share: Share,
    /// Instance time that its jobs used.
    pub used: Duration,
    /// Instances that its runnable jobs could have used at once; zero when it had no work.
    pub could_use: Cpus,
}

/// A stretch of time in which neither the jobs that run nor the jobs that could run changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch<'a> {
    /// Its beginning.
    pub from: Instant,
    /// Its end. A stretch that ends before it begins (the clock jumped back) is ignored.
    pub to: Instant,
    /// Instances available; none while the host is off or computing is suspended.
    pub available: Cpus,
    /// Those of them that no runnable job could use (`Schedule::starved`).
    pub starved: Cpus,
    /// Instance time lost to the limit on CPU time (R2.8).
    pub throttled: Duration,
    /// The scheduling period in force.
    pub scheduling_period: Duration,
    /// Every attached project.
    pub projects: &'a [ProjectStretch],
}

/// What became of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was reported before its deadline.
    InTime,
    /// It was reported late, or it is certain that it never will be.
    Missed,
}

/// The lengths of time that metrics are given for (R5.34).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Window {
    /// The last 24 hours.
    Day,
    /// The last 7 days.
    Week,
    /// The last 30 days.
    Month,
}

impl Window {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Day, Self::Week, Self::Month];
    /// Its length.
    pub const fn length(self) -> Duration {
        Duration::from_hours(match self {
            Self::Day => 24,
            Self::Week => 7 * 24,
            Self::Month => 30 * 24,
        })
    }
}

/// The metrics of a window. None where nothing happened that could be judged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// R5.30.
    pub idleness: Option<Fraction>,
    /// R5.31.
    pub waste: Option<Fraction>,
    /// R5.32.
    pub share_violation: Option<Fraction>,
    /// R5.33.
    pub monotony: Option<Fraction>,
    /// Scheduler RPCs per job with a known fate (R5.34).
    pub rpcs_per_job: Option<f64>,
    /// Instance time lost to the limit on CPU time (R2.8).
    pub throttled: Duration,
    /// Instance time used, by project.
    pub used: BTreeMap<ProjectId, Duration>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Part {
    got: f64,
    due: f64,
}

/// Sums over some time, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Sums {
    available: f64,
    starved: f64,
    throttled: f64,
    parts: BTreeMap<ProjectId, Part>,
    settled: f64,
    missed: f64,
    jobs: f64,
    rpcs: f64,
    switches: f64,
    switches_possible: f64,
}

/// The history that the metrics are made from. It is stored, and histories of several hosts can be merged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    hours: BTreeMap<i64, Sums>,
    days: BTreeMap<i64, Sums>,
}

impl Metrics {
    /// Books a stretch of time.
    pub fn observe(&mut self, stretch: &Stretch<'_>) {
        let length = stretch.to - stretch.from;
        if !length.is_positive() {
            return;
        }
        let sums = Sums::of(stretch, length.as_secs_f64());
        for (scale, buckets) in self.scales() {
            // No further back than buckets reach: the clock may have jumped by years.
            let reach = stretch.to - scale.length * i64::from(scale.kept);
            let (first, last) = (scale.bucket(stretch.from.max(reach)), scale.bucket(stretch.to));
            for bucket in first..=last {
                let (begins, ends) = scale.bounds(bucket);
                let inside = stretch.to.min(ends) - stretch.from.max(begins);
                if inside.is_positive() {
                    let weight = inside.as_secs_f64() / length.as_secs_f64();
                    buckets.entry(bucket).or_default().add(&sums, weight);
                }
            }
            scale.prune(buckets, stretch.to);
        }
    }

    /// Books a job whose fate is known, with all the instance time that it used. Once for each job.
    pub fn job_settled(&mut self, at: Instant, used: Duration, fate: Fate) {
        let settled = used.max(Duration::ZERO).as_secs_f64();
        let missed = if fate == Fate::Missed { settled } else { 0.0 };
        self.book(at, &Sums { settled, missed, jobs: 1.0, ..Sums::default() });
    }

    /// Books a scheduler RPC, answered or not.
    pub fn rpc_made(&mut self, at: Instant) {
        self.book(at, &Sums { rpcs: 1.0, ..Sums::default() });
    }

    /// Books CPUs that went from one project to another in a decision (`cpus_switched`).
    pub fn switched(&mut self, at: Instant, cpus: f64) {
        self.book(at, &Sums { switches: cpus.max(0.0), ..Sums::default() });
    }

    /// Adds the history of another host, or of another time of this one.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in [(&mut self.hours, &other.hours), (&mut self.days, &other.days)] {
            for (bucket, sums) in theirs {
                mine.entry(*bucket).or_default().add(sums, 1.0);
            }
        }
    }

    /// The metrics of the window that ends now. `late_unreported` is the instance time that jobs have used which
    /// are past their deadline and not yet booked by `job_settled`.
    pub fn figures(&self, window: Window, now: Instant, late_unreported: Duration) -> Figures {
        let (scale, buckets) = if window == Window::Day { (HOUR, &self.hours) } else { (DAY, &self.days) };
        let first = scale.bucket(now - window.length() + Duration::from_micros(1));
        let mut sums = Sums::default();
        for sums_of_bucket in buckets.range(first..=scale.bucket(now)).map(|(_, sums)| sums) {
            sums.add(sums_of_bucket, 1.0);
        }
        let late = late_unreported.max(Duration::ZERO).as_secs_f64();
        sums.settled += late;
        sums.missed += late;
        sums.figures()
    }

    fn book(&mut self, at: Instant, sums: &Sums) {
        for (scale, buckets) in self.scales() {
            buckets.entry(scale.bucket(at)).or_default().add(sums, 1.0);
            scale.prune(buckets, at);
        }
    }

    fn scales(&mut self) -> [(Scale, &mut BTreeMap<i64, Sums>); 2] {
        [(HOUR, &mut self.hours), (DAY, &mut self.days)]
    }
}

/// CPUs that went from one project to another between two decisions: what some gained, as far as others lost it.
pub fn cpus_switched(before: &BTreeMap<ProjectId, f64>, after: &BTreeMap<ProjectId, f64>) -> f64 {
    let of = |side: &BTreeMap<ProjectId, f64>, id: &ProjectId| side.get(id).copied().unwrap_or(0.0);
    let gained: f64 = after.iter().map(|(id, cpus)| (cpus - of(before, id)).max(0.0)).sum();
    let lost: f64 = before.iter().map(|(id, cpus)| (cpus - of(after, id)).max(0.0)).sum();
    gained.min(lost)
}

#[derive(Clone, Copy)]
struct Scale {
    length: Duration,
    kept: u32,
}

impl Scale {
    fn bucket(self, at: Instant) -> i64 {
        at.as_micros().div_euclid(self.length.as_micros())
    }
    fn bounds(self, bucket: i64) -> (Instant, Instant) {
        let begins = Instant::from_micros(bucket.saturating_mul(self.length.as_micros()));
        (begins, begins + self.length)
    }
    /// Drops what is out of reach: too old, or so far in the future that it was booked before the clock jumped
    /// back. A little future is kept: bookings may come out of order, and what was booked did happen.
    fn prune(self, buckets: &mut BTreeMap<i64, Sums>, now: Instant) {
        let newest = self.bucket(now);
        buckets.retain(|bucket, _| (bucket - newest).abs() < i64::from(self.kept));
    }
}

impl Sums {
    fn of(stretch: &Stretch<'_>, secs: f64) -> Self {
        let used = |p: &ProjectStretch| p.used.max(Duration::ZERO).as_secs_f64();
        let total: f64 = stretch.projects.iter().map(used).sum();
        // A project that used time had work for it, even if its last job ended on the way.
        let claims: Vec<Claim> = stretch
            .projects
            .iter()
            .map(|p| Claim {
                project: p.project,
                share: p.share,
                limit: (p.could_use.as_f64() * secs).max(used(p)),
            })
            .collect();
        let due = fair_division(total, &claims);
        let part =
            |p: &ProjectStretch| Part { got: used(p), due: due.get(&p.project).copied().unwrap_or(0.0) };
        let rivals = stretch.projects.iter().filter(|p| p.share.get() > 0.0).count();
        let period = stretch.scheduling_period.as_secs_f64();
        Self {
            available: stretch.available.as_f64() * secs,
            starved: stretch.starved.as_f64().min(stretch.available.as_f64()) * secs,
            throttled: stretch.throttled.max(Duration::ZERO).as_secs_f64(),
            parts: stretch.projects.iter().map(|p| (p.project, part(p))).collect(),
            switches_possible: if rivals > 1 && period > 0.0 { total / period } else { 0.0 },
            ..Self::default()
        }
    }

    fn add(&mut self, other: &Self, weight: f64) {
        self.available += other.available * weight;
        self.starved += other.starved * weight;
        self.throttled += other.throttled * weight;
        self.settled += other.settled * weight;
        self.missed += other.missed * weight;
        self.jobs += other.jobs * weight;
        self.rpcs += other.rpcs * weight;
        self.switches += other.switches * weight;
        self.switches_possible += other.switches_possible * weight;
        for (id, part) in &other.parts {
            let mine = self.parts.entry(*id).or_default();
            mine.got += part.got * weight;
            mine.due += part.due * weight;
        }
    }

    fn figures(&self) -> Figures {
        let over = |part: f64, whole: f64| (whole > 0.0).then(|| Fraction::clamped(part / whole));
        let got: f64 = self.parts.values().map(|part| part.got).sum();
        let apart: f64 = self.parts.values().map(|part| (part.got - part.due).abs()).sum();
        let alone = got > 0.0 && self.switches_possible <= 0.0;
        Figures {
            idleness: over(self.starved, self.available),
            waste: over(self.missed, self.settled),
            share_violation: over(apart / 2.0, got),
            monotony: if alone {
                Some(Fraction::ZERO)
            } else {
                over((self.switches_possible - self.switches).max(0.0), self.switches_possible)
            },
            rpcs_per_job: (self.jobs > 0.0).then(|| self.rpcs / self.jobs),
            throttled: Duration::from_secs_f64(self.throttled),
            used: self.parts.iter().map(|(id, part)| (*id, Duration::from_secs_f64(part.got))).collect(),
        }
    }
}
