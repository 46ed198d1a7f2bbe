//! Which jobs a server sends for a request (R3.12, R5.5, R5.6).
//!
//! WS1 sends jobs until every type that was asked for has its seconds covered and its idle instances
//! filled. WS2 sends only jobs that meet their deadline on that host and harm no other job there, by a
//! simulation of earliest-deadline-first with all of the host's jobs: no job that met its deadline misses
//! it now, and none that missed it misses it by more. WS3 makes that simulation on the clock of the time at
//! which the host computes.
//!
//! A job counts for its main type (R3.1), and is never sent if that type was not asked for. A client that
//! knows no types asks with one number of seconds, which jobs of any type that its host has can fill.
//!
//! Estimates are running times on that host, already corrected for it by the caller.
//!
//! Whether a job is tried on a host although it would be late there by an estimate that nothing has shown to
//! be right is decided in `trial`.
//!
//! How much of a small batch one host may hold, whatever policy it is sent by, is decided in [`spread`]; how
//! much it gets beyond that because instances idle, in `top_ups`; how much hosts may hold that have shown
//! nothing yet, in [`new_hosts`].
//!
//! A [`SendPolicy`] decides from a [`SendSituation`] and the jobs that could be sent ([`Offer`]); each
//! policy is a file here and a line in `registry`.

mod deadline_check;
mod demand;
mod host_clock;
mod load;
pub mod new_hosts;
mod simulation;
pub mod spread;
mod top_ups;
mod trial;

use std::fmt;

use fallow_domain::{Duration, Fraction, Instant, OnTimeTable, PerType, ResourceType, Usage};

use crate::choice::Policy;
pub use demand::Demand;
pub use fallow_domain::InProgress;
pub use in_time::Ws2Switches;
pub use load::Load;
pub use top_ups::TopUps;
pub use trial::Trials;

policies!(send);

/// The policy that is followed.
pub type SendChoice = Policy<dyn SendPolicy>;

/// Decides which jobs a host is sent.
pub trait SendPolicy: Send + Sync + 'static {
    /// Its name in compositions: `WS`, then letters or digits, four at most. `WS0` is for tests and examples.
    fn name(&self) -> &'static str;

    /// What it does, in a few words for `--help`: 48 bytes at most.
    fn summary(&self) -> &'static str;

    /// Decides. Offers are looked at in order, and only as many as it takes.
    fn decide(
        &self,
        situation: &SendSituation<'_>,
        offers: &mut dyn Iterator<Item = Offer<usize>>,
    ) -> SendDecision<usize>;

    /// Whether it judges by all jobs that a host has, so that clients are asked to list them. Without, it is
    /// never told of them.
    fn needs_workload(&self) -> bool {
        false
    }

    /// Whether it judges by the hours at which a host computes. Without, a client that never follows another
    /// policy does not learn them.
    fn needs_on_time(&self) -> bool {
        false
    }

    /// Whether a host would miss a job's deadline, which is so far off, if it began the job now and
    /// interrupted it for no other. Of a server's many jobs such are not offered.
    fn is_late_alone(
        &self,
        situation: &SendSituation<'_>,
        _kind: ResourceType,
        estimate: Duration,
        bound: Duration,
    ) -> bool {
        estimate.mul_f64(1.0 / situation.host.availability.get().max(0.01)) > bound
    }
}

/// A host that asks for work.
#[derive(Clone, Copy, Debug)]
pub struct SendSituation<'a> {
    /// The time.
    pub now: Instant,
    /// What it asks for.
    pub demand: Demand,
    /// What it is.
    pub host: SendHost,
    /// How long it computes within times to come, if it tells.
    pub on_time: Option<&'a OnTimeTable>,
    /// What a policy that simulates takes into account: the switch `ws2=` of compositions.
    pub switches: Ws2Switches,
    /// The jobs that it has, of all projects, if that is known.
    pub held: Option<HeldJobs<'a>>,
    /// Whether a job may be tried on it that would be late by its estimate ([`Trials::may_try`]).
    pub may_try: bool,
}

/// The jobs that a host has.
#[derive(Clone, Copy)]
pub struct HeldJobs<'a> {
    /// Sums over them.
    pub load: Load,
    /// Lists them. Costs time where they are many: to be asked for only where `load` does not say enough.
    pub list: &'a dyn Fn() -> Vec<InProgress>,
}

impl fmt::Debug for HeldJobs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldJobs").field("load", &self.load).finish_non_exhaustive()
    }
}

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

/// The host that asks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SendHost {
    /// Instances that its client may use.
    pub instances: PerType<u32>,
    /// Measured share of time that it computes.
    pub availability: Fraction,
}

/// Why a job is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyNotSent {
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

/// A decision.
#[derive(Clone, Debug, PartialEq)]
pub struct SendDecision<Id> {
    /// Jobs to send, in the order in which they were offered.
    pub send: Vec<Id>,
    /// Jobs that were looked at and refused, and why. Those of a type that nothing was wanted of are not
    /// among them.
    pub refused: Vec<(Id, WhyNotSent)>,
    /// The one among those sent that would be late by its estimate, which is tried.
    pub trial: Option<Id>,
    /// What is left to be sent.
    pub open: Demand,
}

impl WhyNotSent {
    /// Whether some job would be late: another host, or another time, may do.
    pub const fn is_for_lateness(self) -> bool {
        matches!(self, Self::MissesDeadline(_) | Self::MakesAnotherLate | Self::MakesAnotherLater)
    }
}

impl fmt::Display for WhyNotSent {
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
