//! The metrics of a host's history: idleness, waste, share violation, share deviation, monotony (R5.30 to
//! R5.35).
//!
//! The caller reports stretches of time in which nothing changed, jobs whose fate is known, and RPCs. They
//! are booked into buckets of an hour (the last day) and of a day (the last month), and into a sum since the
//! beginning; a window sums the buckets that overlap it, so it is exact to one bucket. The same code serves
//! an agent's real history and a simulated one. A booking touches the sums of the current hour only.
//!
//! Instance time of different types is added weighted by their speeds: seconds of one CPU (R3.4).
//!
//! Definitions, where R5 leaves room:
//! - *Idleness* is instance time without any runnable job over available instance time. The caller counts a
//!   host that is off or suspended as available with 0 instances. Throttled time (R2.8) is summed apart.
//! - *Waste* is judged when a job's fate is known: instance time of jobs that missed their deadline over that
//!   of all jobs with a known fate. A job past its deadline and not yet reported is known to be late. One
//!   that is given up after it was started misses it, whenever that is reported.
//! - *Share violation* compares what each project got with what was due to it: the used time of each stretch,
//!   divided in proportion to the fair division of the host's speed among the projects that had work in it,
//!   none getting more than its jobs could use (R3.3).
//! - *Share deviation* compares what each project got with what its user gave it: the fair division of the
//!   host's whole speed (R3.3) over the time in which it was on, among all attached projects with a share.
//!   Each could take all instances of a type, but while it was known to have no work of it for this host
//!   (`ProjectObservation::could_get`): then as much as the jobs of it that are here could use. What a
//!   contact showed is known for the wait that followed it, and for four hours if it is not asked again. A
//!   host that idles changes nothing in what is due. To a project without a share is due what it uses of what
//!   the others cannot take. Left out is what the host does not know: a project that went down unnoticed
//!   counts as able to take its part, and one that has work again does not until that is found out. A job
//!   that takes all CPUs makes a short time look unfair; it is a figure for days and weeks.
//! - *Monotony* is the part of the time that projects are away, none of their tasks running, by which they
//!   are away longer than the scheduling period makes necessary (`metrics/absence.rs`). It looks at wall time
//!   and not at CPU time, so it does not depend on how contended the CPUs are.

mod absence;
mod due;
mod sums;

use std::collections::BTreeMap;

use fallow_domain::{Duration, Fraction, Instant, PerType, ProjectId, Share};
use serde::{Deserialize, Serialize};

use absence::Absences;
use due::DueSources;
use sums::Sums;

const HOUR: Scale = Scale { length: Duration::from_hours(1), kept: 25 };
const DAY: Scale = Scale { length: Duration::from_hours(24), kept: 31 };

/// A project in a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProjectObservation {
    /// The project.
    pub project: ProjectId,
    /// Its share.
    pub share: Share,
    /// Instance time that its jobs used, of each type.
    pub used: PerType<Duration>,
    /// Whether a task of it ran: had instances to itself, whatever it got from a contended CPU.
    pub running: bool,
    /// Instances that its runnable jobs could have used at once; zero when it had no work.
    pub could_use: PerType<f64>,
    /// Instances that it could have used if it had been asked for work (R5.35): all of a type, but
    /// `could_use` of one of which it was known to have no work.
    pub could_get: PerType<f64>,
}

/// A stretch of time in which neither the jobs that run nor the jobs that could run changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation<'a> {
    /// Its beginning.
    pub from: Instant,
    /// Its end. A stretch that ends before it begins (the clock jumped back) is ignored.
    pub to: Instant,
    /// Instances available; none while the host is off or computing is suspended.
    pub available: PerType<u32>,
    /// Those of them that no runnable job could use (`Schedule::starved`).
    pub starved: PerType<f64>,
    /// Speed of one instance of each type relative to one CPU (R3.4).
    pub speeds: PerType<f64>,
    /// Instance time lost to the limit on CPU time (R2.8).
    pub throttled: Duration,
    /// The scheduling period in force.
    pub scheduling_period: Duration,
    /// Every attached project, in the same order each time.
    pub projects: &'a [ProjectObservation],
}

/// What became of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadlineOutcome {
    /// It was reported before its deadline.
    Met,
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
    /// Since the beginning.
    Whole,
}

impl Window {
    /// Those of an agent.
    pub const ALL: [Self; 3] = [Self::Day, Self::Week, Self::Month];
    /// Its length.
    pub const fn length(self) -> Duration {
        match self {
            Self::Day => Duration::from_hours(24),
            Self::Week => Duration::from_hours(7 * 24),
            Self::Month => Duration::from_hours(30 * 24),
            Self::Whole => Duration::MAX,
        }
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
    /// R5.35.
    #[serde(default)]
    pub share_deviation: Option<Fraction>,
    /// R5.33.
    pub monotony: Option<Fraction>,
    /// Scheduler RPCs per job with a known fate (R5.34).
    pub rpcs_per_job: Option<f64>,
    /// Instance time lost to the limit on CPU time (R2.8).
    pub throttled: Duration,
    /// Instance time used, by project, weighted by speed.
    pub used: BTreeMap<ProjectId, Duration>,
    /// The part of it that was due to each project (R5.32).
    #[serde(default)]
    pub due: BTreeMap<ProjectId, Duration>,
    /// What was due to each by what it could have supplied, used or not (R5.35).
    #[serde(default)]
    pub due_of_supply: BTreeMap<ProjectId, Duration>,
}

/// Instance time in seconds of one CPU: that of each type weighted by its speed.
fn weighted_secs(used: &PerType<Duration>, speeds: &PerType<f64>) -> f64 {
    used.iter().map(|(kind, used)| used.max(&Duration::ZERO).as_secs_f64() * speeds[kind]).sum()
}

/// The history that the metrics are made from. It is stored, and histories of several hosts can be merged.
///
/// A history stored before coprocessors counted is read; what it says about monotony, by another definition,
/// is not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Metrics {
    hours: BTreeMap<i64, Sums>,
    days: BTreeMap<i64, Sums>,
    whole: Sums,
    /// The bucket of the last booking, not yet in the others.
    current: Sums,
    current_hour: Option<i64>,
    absences: Absences,
    #[serde(skip)]
    due: DueSources,
}

impl Metrics {
    /// Books a stretch of time.
    pub fn observe(&mut self, observation: &Observation<'_>) {
        let length = observation.to - observation.from;
        if !length.is_positive() {
            return;
        }
        let secs = length.as_secs_f64();
        if self.current_hour.is_some_and(|hour| HOUR.holds(hour, observation.from, observation.to)) {
            self.current.add_observation(observation, secs, &mut self.due, &mut self.absences);
            return;
        }
        let mut sums = Sums::default();
        sums.add_observation(observation, secs, &mut self.due, &mut self.absences);
        // No further back than buckets reach: the clock may have jumped by years.
        let reach = (observation.to - DAY.length * i64::from(DAY.kept)).max(observation.from);
        self.whole.add(&sums, reach.since(observation.from).as_secs_f64() / secs);
        for hour in HOUR.bucket(reach)..=HOUR.bucket(observation.to) {
            let (begins, ends) = HOUR.bounds(hour);
            let inside = observation.to.min(ends) - reach.max(begins);
            if inside.is_positive() {
                self.turn_to(hour);
                self.current.add(&sums, inside.as_secs_f64() / secs);
            }
        }
    }

    /// Books a job whose fate is known, with all the instance time that it used (`weighted`). Once for each
    /// job.
    pub fn job_settled(&mut self, at: Instant, used: Duration, fate: DeadlineOutcome) {
        let settled = used.max(Duration::ZERO).as_secs_f64();
        let missed = if fate == DeadlineOutcome::Missed { settled } else { 0.0 };
        self.book(at, |sums| {
            sums.settled += settled;
            sums.missed += missed;
            sums.jobs += 1.0;
        });
    }

    /// Books a scheduler RPC, answered or not.
    pub fn rpc_made(&mut self, at: Instant) {
        self.book(at, |sums| sums.rpcs += 1.0);
    }

    /// Adds the history of another host, or of another time of this one.
    pub fn merge(&mut self, other: &Self) {
        let mut other = other.clone();
        other.put_away();
        for (mine, theirs) in [(&mut self.hours, &other.hours), (&mut self.days, &other.days)] {
            for (bucket, sums) in theirs {
                mine.entry(*bucket).or_default().add(sums, 1.0);
            }
        }
        self.whole.add(&other.whole, 1.0);
    }

    /// The metrics of the window that ends now. `late_unreported` is the instance time (`weighted`) that jobs
    /// have used which are past their deadline and not yet booked by `job_settled`.
    pub fn figures(&self, window: Window, now: Instant, late_unreported: Duration) -> Figures {
        let mut sums = Sums::default();
        if window == Window::Whole {
            sums.add(&self.whole, 1.0);
            sums.add(&self.current, 1.0);
        } else {
            let (scale, buckets) =
                if window == Window::Day { (HOUR, &self.hours) } else { (DAY, &self.days) };
            let covered = scale.bucket(now - window.length() + Duration::from_micros(1))..=scale.bucket(now);
            for (_, part) in buckets.range(covered.clone()) {
                sums.add(part, 1.0);
            }
            if self.current_hour.is_some_and(|hour| covered.contains(&scale.bucket(HOUR.bounds(hour).0))) {
                sums.add(&self.current, 1.0);
            }
        }
        let late = late_unreported.max(Duration::ZERO).as_secs_f64();
        sums.settled += late;
        sums.missed += late;
        sums.figures()
    }

    /// Bookings may come out of order; only those of the current hour or a later one are made there.
    fn book(&mut self, at: Instant, change: impl Fn(&mut Sums)) {
        let hour = HOUR.bucket(at);
        if self.current_hour.is_none_or(|current| hour > current) {
            self.turn_to(hour);
        }
        if self.current_hour == Some(hour) {
            change(&mut self.current);
        } else {
            change(self.hours.entry(hour).or_default());
            change(self.days.entry(DAY.bucket(at)).or_default());
            change(&mut self.whole);
            self.prune(at);
        }
    }

    /// Makes an hour the current one.
    fn turn_to(&mut self, hour: i64) {
        if self.current_hour != Some(hour) {
            self.put_away();
            self.current_hour = Some(hour);
            self.prune(HOUR.bounds(hour).0);
        }
    }

    /// Puts the current sums where they belong.
    fn put_away(&mut self) {
        if let Some(hour) = self.current_hour.take() {
            self.hours.entry(hour).or_default().add(&self.current, 1.0);
            self.days.entry(DAY.bucket(HOUR.bounds(hour).0)).or_default().add(&self.current, 1.0);
            self.whole.add(&self.current, 1.0);
            self.current.clear();
        }
    }

    fn prune(&mut self, now: Instant) {
        HOUR.prune(&mut self.hours, now);
        DAY.prune(&mut self.days, now);
    }
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
    fn holds(self, bucket: i64, from: Instant, to: Instant) -> bool {
        let (begins, ends) = self.bounds(bucket);
        begins <= from && to <= ends
    }
    /// Drops what is out of reach: too old, or so far in the future that it was booked before the clock
    /// jumped back. A little future is kept: bookings may come out of order, and what was booked did happen.
    fn prune(self, buckets: &mut BTreeMap<i64, Sums>, now: Instant) {
        let newest = self.bucket(now);
        let is_kept = |bucket: &i64| (bucket - newest).abs() < i64::from(self.kept);
        let ends = [buckets.first_key_value(), buckets.last_key_value()];
        if !ends.into_iter().flatten().all(|(bucket, _)| is_kept(bucket)) {
            buckets.retain(|bucket, _| is_kept(bucket));
        }
    }
}
