//! Which jobs a server sends for a request (R5.5, R5.6).
//!
//! WS1 sends jobs until their estimates add up to what was asked for. WS2 sends only jobs that, by a simulation of
//! earliest-deadline-first on that host with all its jobs, meet their deadline and harm no other: no job that met
//! its deadline misses it now, and none that missed it misses it by more.
//!
//! The simulated host has equal CPUs and runs jobs to their end in order of deadline, each on the CPUs that free
//! first; all jobs are there from the start, so no job would gain from preemption on one CPU.
//!
//! Estimates are the running times on that host, corrected for it by the caller.

use std::fmt;

use fallow_domain::{Duration, Fraction, Instant};

/// A job that could be sent. `Id` is whatever the server calls its jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer<Id> {
    /// The job.
    pub id: Id,
    /// Its estimated running time on the host.
    pub estimate: Duration,
    /// Its deadline if it is sent now.
    pub deadline: Instant,
    /// CPUs that it uses, at least one.
    pub cpus: u32,
}

/// A job that the host already has, from any project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InProgress {
    /// Its deadline.
    pub deadline: Instant,
    /// Its estimated running time left.
    pub remaining: Duration,
    /// CPUs that it uses, at least one.
    pub cpus: u32,
}

/// The host that asks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SendHost {
    /// CPUs that its client may use.
    pub cpus: u32,
    /// Measured share of time that it computes.
    pub availability: Fraction,
}

/// The two improvements over WS2 as it was published (R5.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Ws2Switches {
    /// Candidates already chosen for the same reply count as work of the host.
    pub count_chosen: bool,
    /// Running times are stretched by the host's availability.
    pub scale_by_availability: bool,
}

impl Ws2Switches {
    /// As published: each candidate is judged against the workload in the request.
    pub const PUBLISHED: Self = Self { count_chosen: false, scale_by_availability: false };
    /// Both improvements.
    pub const IMPROVED: Self = Self { count_chosen: true, scale_by_availability: true };
}

/// Why a job is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It would miss its deadline by this much.
    MissesDeadline(Duration),
    /// A job of the host that met its deadline would miss it.
    MakesAnotherLate,
    /// A job of the host that misses its deadline would miss it by more.
    MakesAnotherLater,
    /// It uses more CPUs than the host has.
    TooManyCpus,
}

/// The outcome of WS2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent<Id> {
    /// Jobs to send, in the order in which they were offered.
    pub send: Vec<Id>,
    /// Jobs that were looked at and refused.
    pub refused: Vec<(Id, Refusal)>,
}

/// WS1 (R5.5): jobs in the order offered, until their estimates add up to at least `wanted` and `idle` instances got
/// a job each. Nothing is sent when neither is asked for.
pub fn ws1<Id>(wanted: Duration, idle: u32, offers: impl IntoIterator<Item = Offer<Id>>) -> Vec<Id> {
    let mut request = Request::new(wanted, idle);
    offers
        .into_iter()
        .map_while(|offer| {
            request.is_open().then(|| {
                request.fill(&offer);
                offer.id
            })
        })
        .collect()
}

/// WS2 (R5.6): as WS1, but of jobs that the host can finish in time only.
pub fn ws2<Id>(
    wanted: Duration,
    idle: u32,
    host: &SendHost,
    in_progress: &[InProgress],
    offers: impl IntoIterator<Item = Offer<Id>>,
    switches: Ws2Switches,
    now: Instant,
) -> Sent<Id> {
    let mut request = Request::new(wanted, idle);
    let stretch = if switches.scale_by_availability { 1.0 / host.availability.get().max(0.01) } else { 1.0 };
    let mut workload = Workload::new(host.cpus, stretch, now, in_progress);
    let mut sent = Sent { send: Vec::new(), refused: Vec::new() };
    for offer in offers {
        if !request.is_open() {
            break;
        }
        let job = InProgress { deadline: offer.deadline, remaining: offer.estimate, cpus: offer.cpus };
        match workload.refuses(&job) {
            Some(refusal) => sent.refused.push((offer.id, refusal)),
            None => {
                request.fill(&offer);
                if switches.count_chosen {
                    workload.add(job);
                }
                sent.send.push(offer.id);
            }
        }
    }
    sent
}

/// What is still to be sent.
struct Request {
    wanted: Duration,
    idle: u32,
}

impl Request {
    fn new(wanted: Duration, idle: u32) -> Self {
        Self { wanted, idle }
    }
    fn is_open(&self) -> bool {
        self.wanted.is_positive() || self.idle > 0
    }
    fn fill<Id>(&mut self, offer: &Offer<Id>) {
        self.wanted -= offer.estimate.max(Duration::ZERO);
        self.idle = self.idle.saturating_sub(offer.cpus.max(1));
    }
}

/// The jobs of a host in order of deadline, with how late each is.
struct Workload {
    cpus: u32,
    stretch: f64,
    now: Instant,
    jobs: Vec<InProgress>,
    lateness: Vec<Duration>,
}

impl Workload {
    fn new(cpus: u32, stretch: f64, now: Instant, jobs: &[InProgress]) -> Self {
        let mut jobs = jobs.to_vec();
        jobs.sort_by_key(|job| job.deadline);
        let mut workload = Self { cpus: cpus.clamp(1, 4096), stretch, now, jobs, lateness: Vec::new() };
        workload.lateness = workload.simulate(&workload.jobs);
        workload
    }

    /// A job goes behind those of the same deadline, so that it never delays them.
    fn place(&self, job: &InProgress) -> usize {
        self.jobs.partition_point(|other| other.deadline <= job.deadline)
    }

    fn add(&mut self, job: InProgress) {
        self.jobs.insert(self.place(&job), job);
        self.lateness = self.simulate(&self.jobs);
    }

    fn refuses(&self, job: &InProgress) -> Option<Refusal> {
        if job.cpus > self.cpus {
            return Some(Refusal::TooManyCpus);
        }
        let place = self.place(job);
        let mut jobs = self.jobs.clone();
        jobs.insert(place, *job);
        let mut lateness = self.simulate(&jobs);
        let own = lateness.remove(place);
        if own.is_positive() {
            return Some(Refusal::MissesDeadline(own));
        }
        self.lateness.iter().zip(&lateness).find_map(|(before, after)| {
            match (before.is_positive(), after > before && after.is_positive()) {
                (_, false) => None,
                (false, true) => Some(Refusal::MakesAnotherLate),
                (true, true) => Some(Refusal::MakesAnotherLater),
            }
        })
    }

    /// How late each job is, earliest deadline first; zero or less means in time.
    fn simulate(&self, jobs: &[InProgress]) -> Vec<Duration> {
        let mut free_at = vec![self.now; self.cpus as usize];
        let run = |job: &InProgress| {
            let width = (job.cpus.max(1) as usize).min(free_at.len());
            free_at.select_nth_unstable(width - 1);
            let start = free_at[width - 1];
            let end = start + job.remaining.max(Duration::ZERO).mul_f64(self.stretch);
            free_at[..width].fill(end);
            end - job.deadline
        };
        jobs.iter().map(run).collect()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissesDeadline(by) => write!(f, "it would miss its deadline by {by}"),
            Self::MakesAnotherLate => write!(f, "another job of the host would miss its deadline"),
            Self::MakesAnotherLater => write!(f, "another job of the host would miss its deadline by more"),
            Self::TooManyCpus => write!(f, "it uses more CPUs than the host has"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn t0() -> Instant {
        Instant::from_secs_f64(1.8e9)
    }
    fn offer(id: u32, hours: i64, deadline: i64) -> Offer<u32> {
        Offer { id, estimate: HOUR * hours, deadline: t0() + HOUR * deadline, cpus: 1 }
    }
    fn has(hours: i64, deadline: i64) -> InProgress {
        InProgress { deadline: t0() + HOUR * deadline, remaining: HOUR * hours, cpus: 1 }
    }
    fn host(cpus: u32, availability: f64) -> SendHost {
        SendHost { cpus, availability: Fraction::clamped(availability) }
    }
    fn judge(
        host: SendHost,
        held: &[InProgress],
        offered: Offer<u32>,
        switches: Ws2Switches,
    ) -> Option<Refusal> {
        ws2(HOUR, 0, &host, held, [offered], switches, t0()).refused.first().map(|(_, why)| *why)
    }

    #[test]
    fn r5_5_jobs_are_sent_until_their_estimates_add_up() {
        let offers = || (1..9).map(|id| offer(id, 2, 99));
        assert_eq!(ws1(HOUR * 5, 0, offers()), [1, 2, 3]);
        assert_eq!(ws1(HOUR * 4, 0, offers()), [1, 2]);
        assert_eq!(ws1(Duration::from_secs(1), 3, offers()), [1, 2, 3]);
        assert!(ws1(Duration::ZERO, 0, offers()).is_empty());
    }

    #[test]
    fn r5_6_a_job_is_sent_only_if_it_meets_its_deadline_and_harms_no_other() {
        let published =
            |held: &[InProgress], offered| judge(host(1, 1.0), held, offered, Ws2Switches::PUBLISHED);
        assert_eq!(published(&[], offer(1, 4, 4)), None);
        assert_eq!(published(&[], offer(1, 4, 3)), Some(Refusal::MissesDeadline(HOUR)));
        assert_eq!(published(&[has(2, 9)], offer(1, 4, 6)), None);
        assert_eq!(published(&[has(4, 7)], offer(1, 4, 6)), Some(Refusal::MakesAnotherLate));
        assert_eq!(published(&[has(4, 3)], offer(1, 1, 2)), Some(Refusal::MakesAnotherLater));
        assert_eq!(published(&[has(4, 3)], offer(1, 1, 9)), None);
        assert_eq!(judge(host(2, 1.0), &[has(4, 3)], offer(1, 1, 2), Ws2Switches::PUBLISHED), None);
        let wide = Offer { cpus: 3, ..offer(1, 1, 99) };
        assert_eq!(judge(host(2, 1.0), &[], wide, Ws2Switches::PUBLISHED), Some(Refusal::TooManyCpus));
    }

    #[test]
    fn r5_6_the_two_switches() {
        let send = |switches| {
            ws2(HOUR * 8, 0, &host(1, 0.8), &[], [offer(1, 4, 5), offer(2, 4, 5)], switches, t0()).send
        };
        assert_eq!(send(Ws2Switches::PUBLISHED), [1, 2]);
        assert_eq!(send(Ws2Switches::IMPROVED), [1]);
        let unscaled = Ws2Switches { scale_by_availability: false, ..Ws2Switches::IMPROVED };
        assert_eq!(judge(host(1, 0.5), &[], offer(1, 4, 5), unscaled), None);
        assert_eq!(
            judge(host(1, 0.5), &[], offer(1, 4, 5), Ws2Switches::IMPROVED),
            Some(Refusal::MissesDeadline(HOUR * 3))
        );
    }

    proptest! {
        #[test]
        fn r5_6_what_improved_ws2_sends_is_all_in_time_and_delays_nobody(
            cpus in 1_u32..5,
            held in prop::collection::vec((0_i64..9, 0_i64..20), 0..8),
            offers in prop::collection::vec((0_i64..9, 0_i64..20), 0..12),
        ) {
            let held: Vec<_> = held.into_iter().map(|(hours, deadline)| has(hours, deadline)).collect();
            let offers: Vec<_> =
                (0..).zip(offers).map(|(id, (hours, deadline))| offer(id, hours, deadline)).collect();
            let host = host(cpus, 0.9);
            let sent = ws2(HOUR * 1_000, 0, &host, &held, offers.clone(), Ws2Switches::IMPROVED, t0());
            let before = Workload::new(cpus, 1.0 / 0.9, t0(), &held);
            let late_before = before.lateness.iter().filter(|late| late.is_positive()).count();
            let mut all = held;
            all.extend(sent.send.iter().map(|id| &offers[*id as usize]).map(|o| has(
                (o.estimate.as_secs_f64() / 3600.0) as i64, ((o.deadline - t0()).as_secs_f64() / 3600.0) as i64)));
            let after = Workload::new(cpus, 1.0 / 0.9, t0(), &all);
            prop_assert!(after.lateness.iter().filter(|late| late.is_positive()).count() <= late_before);
            prop_assert_eq!(sent.send.len() + sent.refused.len(), offers.len());
        }
    }
}
