//! What a scenario allows: how much loss no policy can avoid, and how much one would have that knows nothing.
//!
//! Both are worked out from the very times at which the host and the projects are there in a run from a seed.
//! Time is taken along the host's *on-time*, which is what jobs run in; a moment of it is *covered* by an
//! application if a whole job fits around it that is sent at the last contact before it begins and reported
//! at the first contact after it ends, both within the latency bound. A contact is possible while the host
//! and the project are there.
//!
//! - **Lower bound** of idleness and waste together: the part of the on-time that no application covers,
//!   weighted by the speed of the type. It knows the future, and all jobs as nearly the shortest: of sizes
//!   that vary, one and a half deviations below their mean. With a single application it is found by packing
//!   jobs one behind the other as soon as each can be sent; if that loses more, it counts. It ignores that
//!   instances are several, that jobs of some size have to follow each other in every case but that, the
//!   connection interval, and shares, but for one thing: on a host without coprocessors the part of a
//!   project's share in which it covers nothing is lost to idleness, waste or share deviation, whatever is
//!   done. It is near 0 in most scenarios.
//! - **Blind**: how often a job begun at a random moment of on-time, and never preempted, would be late; the
//!   applications weighted by their projects' shares. A policy that is better than that has learned
//!   something.
//!
//! Of several hosts the first is looked at, as if it were alone.

use fallow_domain::{Duration, Instant, PerType, ResourceType};
use fallow_policy::math::exp_minus;

use crate::engine::availability::OnOff;
use crate::engine::random::Stream;
use crate::scenario::{ApplicationModel, Availability, ProjectModel, Scenario};

/// Moments of on-time that are looked at.
const MOMENTS: usize = 4_000;
/// For rounding.
const HAIR: f64 = 1e-6;
/// How long a packer waits for the next chance, in seconds of on-time.
const PATIENCE: f64 = 60.0;

/// What a scenario allows from one seed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Yardstick {
    /// No policy gets idleness, waste and share deviation together below this.
    pub lower_bound: f64,
    /// The part of jobs that are late if they are begun blindly.
    pub blind: f64,
    /// The part of the time in which the host is on.
    pub on: f64,
}

/// From when to when something is there, in order, in seconds.
type Intervals = Vec<(f64, f64)>;

impl Yardstick {
    /// Works it out.
    #[must_use]
    pub fn of(scenario: &Scenario, seed: u64) -> Self {
        let end = scenario.duration.as_secs_f64();
        let stream = Stream::named(seed, &["host", "availability"]);
        let host = OnTime::new(intervals(&scenario.host.available, stream, end));
        if host.total <= 0.0 {
            return Self::default();
        }
        let mut kinds: PerType<Vec<Candidate>> = PerType::default();
        let shares: f64 = scenario.projects.iter().map(|project| project.share.get()).sum();
        for project in &scenario.projects {
            let up = up(scenario, project, seed, end);
            let share = if shares > 0.0 { project.share.get() / shares } else { 0.0 };
            for application in &project.applications {
                if let Some(candidate) = Candidate::new(scenario, project, application, share, &host, &up) {
                    let used = application.uses.coprocessor;
                    let kind = used.map_or(ResourceType::Cpu, |used| used.kind.resource());
                    kinds[kind].push(candidate);
                }
            }
        }
        let lower_bound = lower_bound(scenario, &host, &kinds);
        let (mut late, mut weight) = (0.0, 0.0);
        for candidate in kinds.iter().flat_map(|(_, candidates)| candidates) {
            if let Some(part) = candidate.late {
                late += candidate.share * part;
                weight += candidate.share;
            }
        }
        Self { lower_bound, blind: if weight > 0.0 { late / weight } else { 0.0 }, on: host.total / end }
    }
}

fn lower_bound(scenario: &Scenario, host: &OnTime, kinds: &PerType<Vec<Candidate>>) -> f64 {
    let (mut lost, mut all) = (0.0, 0.0);
    for (kind, candidates) in kinds.iter().filter(|(_, candidates)| !candidates.is_empty()) {
        let weight = speed_of(scenario, kind);
        let covered = covered(candidates.iter());
        lost += weight * (1.0 - covered);
        all += weight;
    }
    let mut bound = if all > 0.0 { lost / all } else { 0.0 };
    if scenario.host.coprocessors.is_empty() {
        let cpu = &kinds[ResourceType::Cpu];
        let short = scenario.projects.iter().map(|project| {
            let own: Vec<&Candidate> =
                cpu.iter().filter(|candidate| candidate.project == project.name).collect();
            let share = own.first().map_or(0.0, |candidate| candidate.share);
            (share - covered(own.into_iter())).max(0.0)
        });
        bound = bound.max(short.sum());
        if let [only] = cpu.as_slice() {
            bound = bound.max(1.0 - only.packed(host) / host.total);
        }
    }
    bound
}

/// Instances of a type times the speed of one.
fn speed_of(scenario: &Scenario, kind: ResourceType) -> f64 {
    let host = &scenario.host;
    let of = host.coprocessors.iter().find(|own| own.kind.resource() == kind);
    match of {
        Some(own) => f64::from(own.count.get()) * own.flops.get(),
        None => f64::from(host.cpus.get()) * host.flops.get(),
    }
}

/// The part of the moments that any of them covers.
fn covered<'a>(candidates: impl Iterator<Item = &'a Candidate>) -> f64 {
    let mut change = [0_i32; MOMENTS + 1];
    for candidate in candidates {
        for (sum, own) in change.iter_mut().zip(&candidate.change) {
            *sum += own;
        }
    }
    let (mut open, mut count) = (0, 0_u32);
    for own in &change[..MOMENTS] {
        open += own;
        count += u32::from(open > 0);
    }
    f64::from(count) / MOMENTS as f64
}

/// From when to when a project answers.
fn up(scenario: &Scenario, project: &ProjectModel, seed: u64, end: f64) -> Intervals {
    let stream = Stream::named(seed, &["project", &project.name, "availability"]);
    let own = intervals(&project.available, stream, end);
    let outages = scenario.outages.iter().filter(|outage| outage.concerns(&project.name));
    outages.fold(own, |up, outage| {
        let stream = Stream::named(seed, &["outage", &outage.name, "availability"]);
        both(&up, &intervals(&outage.available, stream, end))
    })
}

/// When a process is on until `end`.
fn intervals(available: &Availability, stream: Stream, end: f64) -> Intervals {
    let end = Instant::EPOCH + Duration::from_secs_f64(end);
    let mut process = OnOff::new(available, Instant::EPOCH, stream);
    let (mut on, mut now): (Intervals, _) = (Vec::new(), Instant::EPOCH);
    while now < end {
        let is_on = process.is_on(now);
        let next = process.changes_at().min(end);
        let [from, to] = [now, next].map(|at| (at - Instant::EPOCH).as_secs_f64());
        match on.last_mut() {
            Some(last) if is_on && from <= last.1 => last.1 = to,
            _ if is_on => on.push((from, to)),
            _ => {}
        }
        now = next;
    }
    on
}

/// When both are there.
fn both(a: &[(f64, f64)], b: &[(f64, f64)]) -> Intervals {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let mut both = Vec::new();
    while let (Some(one), Some(other)) = (a.peek(), b.peek()) {
        let (from, to) = (one.0.max(other.0), one.1.min(other.1));
        if from < to {
            both.push((from, to));
        }
        if one.1 < other.1 {
            a.next()
        } else {
            b.next()
        };
    }
    both
}

/// The host's on-time.
struct OnTime {
    on: Intervals,
    /// On-time at the beginning of each interval.
    before: Vec<f64>,
    total: f64,
}

impl OnTime {
    fn new(on: Intervals) -> Self {
        let mut total = 0.0;
        let mut before = Vec::with_capacity(on.len());
        for (from, to) in &on {
            before.push(total);
            total += to - from;
        }
        Self { on, before, total }
    }

    /// The on-time until a time.
    fn until(&self, time: f64) -> f64 {
        let passed = self.on.partition_point(|(from, _)| *from <= time);
        let Some(last) = passed.checked_sub(1) else { return 0.0 };
        self.before[last] + time.min(self.on[last].1) - self.on[last].0
    }

    /// The time at which there has been so much of it: of two, the earlier.
    fn time(&self, on_time: f64) -> f64 {
        let begun = self.before.partition_point(|before| *before < on_time);
        let last = begun.saturating_sub(1).min(self.on.len().saturating_sub(1));
        self.on[last].0 + (on_time - self.before[last])
    }
}

/// An application, as far as its jobs could be done in time.
struct Candidate {
    project: String,
    /// Its project's part of all shares.
    share: f64,
    /// How long a job runs.
    length: f64,
    bound: f64,
    /// When its project can be contacted, in on-time.
    contact: Intervals,
    /// By how much what covers each moment changes.
    change: Vec<i32>,
    /// The part of jobs that would be late; none if none could end before the run does.
    late: Option<f64>,
}

impl Candidate {
    fn new(
        scenario: &Scenario,
        project: &ProjectModel,
        application: &ApplicationModel,
        share: f64,
        host: &OnTime,
        up: &[(f64, f64)],
    ) -> Option<Self> {
        let speed = scenario.host.speed_for(application.uses)?.get();
        let sizes = application.true_flops;
        let mean = sizes.mean.get() / speed;
        let length = match (sizes.log_deviation, sizes.deviation.get()) {
            (log, _) if log > 0.0 => mean * exp_minus(1.5 * log),
            (_, deviation) => {
                (mean - 1.5 * deviation / speed).max(if deviation > 0.0 { mean * 0.05 } else { mean })
            }
        };
        let mut contact: Intervals = Vec::new();
        for (from, to) in both(&host.on, up) {
            let (from, to) = (host.until(from), host.until(to));
            match contact.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => contact.push((from, to)),
            }
        }
        let bound = application.latency_bound.as_secs_f64();
        let (change, late) = (vec![0; MOMENTS + 1], None);
        let mut new = Self { project: project.name.clone(), share, length, bound, contact, change, late };
        new.try_all(host);
        Some(new)
    }

    /// Tries a job at every moment.
    fn try_all(&mut self, host: &OnTime) {
        let step = host.total / MOMENTS as f64;
        let moments = ((self.length.min(host.total) / step).ceil() as usize).max(1);
        let (mut tried, mut good) = (0, 0);
        for moment in 0..MOMENTS {
            let from = moment as f64 * step;
            if from + self.length > host.total {
                // It ends with the run: nobody can say.
                self.change[moment] += 1;
                self.change[MOMENTS] -= 1;
                break;
            }
            tried += 1;
            if self.fits(from, host) {
                good += 1;
                self.change[moment] += 1;
                self.change[MOMENTS.min(moment + moments.max(1))] -= 1;
            }
        }
        self.late = (tried > 0).then(|| 1.0 - f64::from(good) / f64::from(tried));
    }

    /// Whether a job that begins then can be sent and reported in time.
    fn fits(&self, from: f64, host: &OnTime) -> bool {
        let (Some(sent), Some(reported)) = (self.last_contact(from), self.next_contact(from + self.length))
        else {
            return false;
        };
        host.time(reported + HAIR) - host.time(sent + HAIR) <= self.bound
    }

    fn begun(&self, at: f64) -> usize {
        self.contact.partition_point(|(from, _)| *from <= at + HAIR)
    }

    fn last_contact(&self, at: f64) -> Option<f64> {
        Some(at.min(self.contact.get(self.begun(at).checked_sub(1)?)?.1))
    }

    fn next_contact(&self, at: f64) -> Option<f64> {
        let begun = self.begun(at);
        let is_in = begun.checked_sub(1).is_some_and(|last| at <= self.contact[last].1 + HAIR);
        if is_in { Some(at) } else { self.contact.get(begun).map(|(from, _)| *from) }
    }

    /// On-time in which jobs are done in time, packed one behind the other; what cannot be judged counts.
    fn packed(&self, host: &OnTime) -> f64 {
        let (mut at, mut done) = (0.0, 0.0);
        while at + self.length <= host.total {
            let fits = self.fits(at, host);
            let step = if fits { self.length } else { PATIENCE };
            done += if fits { step } else { 0.0 };
            at += step;
        }
        done + (host.total - at)
    }
}

#[cfg(test)]
mod tests {
    use fallow_domain::Flops;

    use super::*;
    use crate::scenario::{Trace, TraceChange};

    const HOUR: Duration = Duration::from_hours(1);

    /// Hours of on and off in turn, beginning with on, over and over.
    fn turns(hours: &[i64]) -> Availability {
        let (mut at, mut changes) = (0, Vec::new());
        for (nth, length) in hours.iter().enumerate() {
            changes.push(TraceChange { at: HOUR * at, on: nth % 2 == 0 });
            at += length;
        }
        Availability::Trace(Trace { file: "t.csv".into(), changes, end: Some(HOUR * at) })
    }

    /// Forty hours with one project whose jobs take some hours, due so many hours after they were sent.
    fn scenario(host: Availability, project: Availability, length: f64, bound: f64) -> Scenario {
        let mut scenario = Scenario { duration: HOUR * 40, ..Scenario::base() };
        scenario.host.available = host;
        scenario.projects[0].available = project;
        let application = &mut scenario.projects[0].applications[0];
        application.true_flops.mean = Flops::new(length * 3_600e9).unwrap_or_default();
        application.latency_bound = HOUR.mul_f64(bound);
        scenario
    }

    fn check(scenario: &Scenario, lower_bound: f64, blind: f64, on: f64) {
        let found = Yardstick::of(scenario, 1);
        let near = |a: f64, b: f64| (a - b).abs() < 0.001;
        let all_near = near(found.lower_bound, lower_bound) && near(found.blind, blind) && near(found.on, on);
        assert!(all_near, "{found:?} instead of {lower_bound} {blind} {on}");
    }

    #[test]
    fn where_everything_is_always_there_nothing_need_be_lost_unless_a_job_is_longer_than_it_may_take() {
        check(&scenario(Availability::Always, Availability::Always, 2.0, 2.5), 0.0, 0.0, 1.0);
        // What begins in the last two hours cannot be judged.
        check(&scenario(Availability::Always, Availability::Always, 2.0, 1.5), 38.0 / 40.0, 1.0, 1.0);
    }

    #[test]
    fn a_job_that_would_wait_for_the_host_longer_than_it_may_is_lost_time_if_begun_blindly() {
        // On for four hours, off for six: a job of 1.9 hours fits if it begins in the first 2.1 of each four,
        // and until 14.1 of 16 hours it can be judged. Two of them leave 0.2 of each four but the last.
        let host = turns(&[4, 6]);
        check(&scenario(host.clone(), Availability::Always, 1.9, 3.0), 0.6 / 16.0, 5.7 / 14.1, 0.4);
        // With room for the time off, none is late.
        check(&scenario(host.clone(), Availability::Always, 1.9, 8.5), 0.0, 0.0, 0.4);
        // Of three hours one fits in each, and begins in the first hour. The last hour of each is lost.
        check(&scenario(host, Availability::Always, 3.0, 3.5), 3.0 / 16.0, 9.0 / 13.0, 0.4);
    }

    #[test]
    fn a_project_that_is_down_can_neither_send_nor_take_reports() {
        // Up for two hours of eight. A job of three hours is in time within seven hours if it begins from the
        // first hour on, sent then, until the sixth, sent at the end of the second: five of eight, four
        // times; nobody takes reports in the last six of 40 hours, and until 37 it can be judged.
        let project = turns(&[2, 6]);
        let found = Yardstick::of(&scenario(Availability::Always, project.clone(), 3.0, 7.0), 1);
        assert!((found.blind - 17.0 / 37.0).abs() < 0.001, "{found:?}");
        let found = Yardstick::of(&scenario(Availability::Always, project, 3.0, 5.9), 1);
        assert!(found.blind > 0.99 && found.lower_bound > 0.9, "{found:?}");
    }

    #[test]
    fn an_outage_counts_for_the_projects_that_depend_on_it() {
        let mut scenario = scenario(Availability::Always, Availability::Always, 3.0, 5.9);
        let net = crate::scenario::OutageModel {
            name: "net".into(),
            projects: vec!["p1".into()],
            available: turns(&[2, 6]),
        };
        scenario.outages = vec![net];
        assert!(Yardstick::of(&scenario, 1).blind > 0.99);
        scenario.outages[0].projects = vec!["p2".into()];
        check(&scenario, 0.0, 0.0, 1.0);
    }
}
