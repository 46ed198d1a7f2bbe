//! Which jobs a server sends for a request (R3.12, R5.5, R5.6).
//!
//! WS1 sends jobs until every type that was asked for has its seconds covered and its idle instances filled. WS2 sends
//! only jobs that, by a simulation of earliest-deadline-first on that host with all its jobs, meet their deadline and
//! harm no other: no job that met its deadline misses it now, and none that missed it misses it by more.
//!
//! Jobs count for their main type (R3.1); a job of a type that was not asked for is never sent, and a client that knows
//! no types asks with one number, which is filled from whatever types its host has.
//!
//! Estimates are the running times on that host, corrected for it by the caller.

mod load;
mod simulation;

use std::fmt;

use fallow_domain::{Duration, Fraction, Instant, PerType, ResourceType, Usage};

pub use load::Load;
use simulation::Workload;

/// A job that could be sent. `Id` is whatever the server calls its jobs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer<Id> {
    /// The job.
    pub id: Id,
    /// Its estimated running time on the host.
    pub estimate: Duration,
    /// Its deadline if it is sent now.
    pub deadline: Instant,
    /// What it uses.
    pub usage: Usage,
}

/// A job that the host already has, from any project.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InProgress {
    /// Its deadline.
    pub deadline: Instant,
    /// Its estimated running time left.
    pub remaining: Duration,
    /// What it uses.
    pub usage: Usage,
}

/// The host that asks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SendHost {
    /// Instances that its client may use.
    pub instances: PerType<u32>,
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
    /// It uses more instances of another type than the host has.
    TooManyInstances(ResourceType),
}

/// The outcome of WS2.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent<Id> {
    /// Jobs to send, in the order in which they were offered.
    pub send: Vec<Id>,
    /// Jobs that were looked at and refused. Those of a type that nothing was wanted of are not among them.
    pub refused: Vec<(Id, Refusal)>,
    /// What is left to be sent.
    pub open: Wanted,
}

/// What is wanted of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct WantedOfType {
    seconds: f64,
    instances: f64,
}

/// What a request asks for (R3.12), less what was sent for it so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wanted {
    types: PerType<WantedOfType>,
    /// The seconds of a client that knows no types.
    scalar: Option<f64>,
}

impl Wanted {
    /// From a request: seconds and idle instances per type, and the scalar beside them. A client that fills in no type
    /// is an old one, whose scalar counts. What is not a number above zero is nothing.
    pub fn new(seconds: &PerType<f64>, instances: &PerType<f64>, scalar: f64) -> Self {
        let sane = |value: f64| if value > 0.0 { value.min(1e12) } else { 0.0 };
        let types = PerType::from_fn(|kind| WantedOfType {
            seconds: sane(seconds[kind]),
            instances: sane(instances[kind]),
        });
        let old = types.iter().all(|(_, wanted)| !wanted.is_open()) && sane(scalar) > 0.0;
        Self { types, scalar: old.then(|| sane(scalar)) }
    }

    /// Work for CPUs only.
    pub fn cpu(seconds: Duration, instances: u32) -> Self {
        Self::new(&PerType::cpu(seconds.as_secs_f64()), &PerType::cpu(f64::from(instances)), 0.0)
    }

    /// Whether jobs of a type are wanted. Versions of applications are chosen for such types only.
    pub fn wants(&self, kind: ResourceType) -> bool {
        self.scalar.map_or_else(|| self.types[kind].is_open(), |seconds| seconds > 0.0)
    }

    /// Whether anything is wanted.
    pub fn is_open(&self) -> bool {
        ResourceType::ALL.into_iter().any(|kind| self.wants(kind))
    }

    /// Takes note of a job that is sent.
    pub fn fill(&mut self, usage: Usage, estimate: Duration) {
        let kind = usage.main_type();
        let running = estimate.max(Duration::ZERO).as_secs_f64();
        if let Some(seconds) = &mut self.scalar {
            *seconds -= running;
            return;
        }
        let wanted = &mut self.types[kind];
        wanted.seconds -= running * usage.of(kind);
        wanted.instances -= usage.of(kind);
    }

    /// Whether a project has something for any of the types wanted, given those that it has versions for. If not, its
    /// reply says so for each of them (R3.5's third state), and not just that there is no work.
    pub fn is_supported(&self, has_versions: &PerType<bool>) -> bool {
        ResourceType::ALL.into_iter().any(|kind| self.wants(kind) && has_versions[kind])
    }

    /// The types wanted that a project has no versions for.
    pub fn unsupported(&self, has_versions: &PerType<bool>) -> PerType<bool> {
        PerType::from_fn(|kind| self.scalar.is_none() && self.wants(kind) && !has_versions[kind])
    }
}

impl WantedOfType {
    /// A hair is left out: a fraction of an instance that rounding leaves wants no job.
    fn is_open(&self) -> bool {
        self.seconds > 1e-6 || self.instances > 1e-6
    }
}

/// WS1 (R5.5): jobs in the order offered, of the types that are wanted, until nothing more is.
pub fn ws1<Id>(mut wanted: Wanted, offers: impl IntoIterator<Item = Offer<Id>>) -> Vec<Id> {
    let mut send = Vec::new();
    for offer in offers {
        if !wanted.is_open() {
            break;
        }
        if wanted.wants(offer.usage.main_type()) {
            wanted.fill(offer.usage, offer.estimate);
            send.push(offer.id);
        }
    }
    send
}

/// WS2 (R5.6): as WS1, but of jobs that the host can finish in time only.
pub fn ws2<Id>(
    wanted: Wanted,
    host: &SendHost,
    in_progress: &[InProgress],
    offers: impl IntoIterator<Item = Offer<Id>>,
    switches: Ws2Switches,
    now: Instant,
) -> Sent<Id> {
    ws2_under(wanted, host, Load::of(in_progress), || in_progress.to_vec(), offers, switches, now)
}

/// The same for a caller that knows what the host's jobs come to: they are listed only where that is not enough.
pub fn ws2_under<Id>(
    wanted: Wanted,
    host: &SendHost,
    load: Load,
    in_progress: impl FnOnce() -> Vec<InProgress>,
    offers: impl IntoIterator<Item = Offer<Id>>,
    switches: Ws2Switches,
    now: Instant,
) -> Sent<Id> {
    let stretch = if switches.scale_by_availability { 1.0 / host.availability.get().max(0.01) } else { 1.0 };
    let mut judge = Judge {
        host,
        stretch,
        now,
        switches,
        load,
        list: Some(in_progress),
        jobs: Vec::new(),
        workloads: PerType::default(),
    };
    let mut sent = Sent { send: Vec::new(), refused: Vec::new(), open: wanted };
    for offer in offers {
        if !sent.open.is_open() {
            break;
        }
        if !sent.open.wants(offer.usage.main_type()) {
            continue;
        }
        let job = InProgress { deadline: offer.deadline, remaining: offer.estimate, usage: offer.usage };
        match judge.refuses(&job) {
            Some(refusal) => sent.refused.push((offer.id, refusal)),
            None => {
                sent.open.fill(offer.usage, offer.estimate);
                sent.send.push(offer.id);
            }
        }
    }
    sent
}

/// Tells which jobs a host can take.
struct Judge<'a, List> {
    host: &'a SendHost,
    stretch: f64,
    now: Instant,
    switches: Ws2Switches,
    /// Of all jobs that count.
    load: Load,
    /// Lists the host's jobs, the first time.
    list: Option<List>,
    /// The host's jobs once they are listed, and before that the jobs that were taken without looking at them.
    jobs: Vec<InProgress>,
    workloads: PerType<Option<Workload>>,
}

impl<List: FnOnce() -> Vec<InProgress>> Judge<'_, List> {
    /// Why a job should not be sent, if it should not. One that is sent counts from then on, if the chosen do.
    fn refuses(&mut self, job: &InProgress) -> Option<Refusal> {
        let kind = job.usage.main_type();
        let cpus = self.host.instances[ResourceType::Cpu];
        if self.workloads[kind].is_none() && self.load.has_room_for(job, cpus, self.stretch, self.now) {
            if self.switches.count_chosen {
                self.load.add(job);
                self.jobs.push(*job);
            }
            return None;
        }
        let workload = self.workload(kind);
        let refusal = workload.refuses(job);
        if refusal.is_none() && self.switches.count_chosen {
            self.workload(kind).add(job);
        }
        refusal
    }

    fn workload(&mut self, kind: ResourceType) -> &mut Workload {
        if let Some(list) = self.list.take() {
            // Those taken before count behind the host's own of the same deadline.
            let taken = std::mem::replace(&mut self.jobs, list());
            self.jobs.extend(taken);
        }
        let Self { host, stretch, now, jobs, .. } = self;
        self.workloads[kind].get_or_insert_with(|| Workload::new(kind, host, *stretch, *now, jobs))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissesDeadline(by) => write!(f, "it would miss its deadline by {by}"),
            Self::MakesAnotherLate => write!(f, "another job of the host would miss its deadline"),
            Self::MakesAnotherLater => write!(f, "another job of the host would miss its deadline by more"),
            Self::TooManyCpus => write!(f, "it uses more CPUs than the host has"),
            Self::TooManyInstances(kind) => write!(f, "it uses more than the host has of the {kind}"),
        }
    }
}

#[cfg(test)]
mod tests;
