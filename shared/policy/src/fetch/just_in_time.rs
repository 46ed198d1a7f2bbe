//! Work is fetched just when something is about to idle, and ahead of time only as an insurance (WF3).
//!
//! Why: a job is given to a host with a deadline, and from that moment its time runs. A buffer that is filled
//! to what fits *on average* uses up all the slack that deadlines leave: projects with loose deadlines fill
//! it, and jobs of those with tight ones are late, or not sent at all. Work that is fetched when an instance
//! is about to idle begins at once, and has all its slack left for whatever the host's owner does. What that
//! risks is idle time while no project can be reached; for that, and for no more, work is held ahead.
//!
//! Model. For each type, coprocessors first:
//! - *Just in time*: an instance idles, or will within `SOON` (a host that is not always connected cannot
//!   wait for that). The best project that may be asked is asked for one second and the idle instances: a
//!   server sends a job for each. Only a project whose typical job is *possibly* in time is asked: there is
//!   that much on-time within its deadline in three windows of ten (`on_time`).
//! - *Ahead*: the host has stood idle before because nobody could be asked. Work for half as long again as
//!   its longest such drought is held, within what its owner lets it hold, and for the time between contacts
//!   besides. Only the very best project is asked, and only if its typical job is *surely* in time behind the
//!   work held, and behind one job of each other project that has none waiting: so that no project's turn is
//!   taken by another's insurance. On a host that is not always connected turns cannot be waited for: at a
//!   contact the best project whose typical job is surely in time is asked for all that is lacking.
//!
//! The best project: one with a share before one without; one that answers before one that lately did not;
//! one that was never tried; then by what it is owed, less the work of it that is held.
//!
//! A typical job is, of the last few that a project sent, the one that left least slack. Of a project that
//! has sent none nothing is known, and it is asked once something idles.
//!
//! Not in here: whether a project can be *reported to* in time; several jobs that begin together and share a
//! deadline; deadlines of jobs that are held already, which the server and CPU scheduling look after.

use std::fmt;

use fallow_domain::{Duration, InstanceSeconds, Instant, ResourceType};

use super::{
    CHECK_PERIOD, FetchAccount, FetchContact, FetchDecision, FetchPolicy, FetchPriority, FetchProject,
    FetchSituation, IDLE_MIN, ProjectRequest, REQUEST_MIN, TypicalJob, WorkRequest,
};
use crate::on_time::Sureness;
use crate::why::Why;

/// WF3.
#[derive(Clone, Copy, Debug)]
pub struct JustInTime;

/// An instance that will idle so soon is seen to now: a request and a download take time.
pub const SOON: Duration = Duration::from_mins(5);
/// A drought that is shorter is no reason to hold work ahead.
pub const DROUGHT_MIN: Duration = Duration::from_mins(20);
/// As much longer than the longest drought is what is held.
const DROUGHT_FACTOR: f64 = 1.5;

/// What makes the host ask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Occasion {
    /// So many instances idle.
    Idle(f64),
    /// An instance will idle after so much on-time.
    Soon(Duration),
    /// Less on-time than so much is covered by work held.
    Ahead {
        /// What is covered.
        held: Duration,
        /// What is to be.
        wanted: Duration,
    },
}

/// Why a project is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WhyJustInTime {
    /// The type that is needed.
    pub kind: ResourceType,
    /// What makes the host ask.
    pub occasion: Occasion,
    /// What the project is owed.
    pub priority: FetchPriority,
    /// On-time that its typical job takes, and what there is within its deadline; none if none is known.
    pub job: Option<Fit>,
}

/// Whether a job is in time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// On-time from now to its end.
    pub takes: Duration,
    /// On-time within its deadline.
    pub there: Duration,
}

impl Fit {
    fn is_in_time(&self) -> bool {
        self.takes <= self.there
    }
}

/// A project that may be asked for a type.
#[derive(Clone, Copy, Debug)]
struct Candidate<'a> {
    project: &'a FetchProject,
    contact: &'a FetchContact,
    account: &'a FetchAccount,
}

impl FetchPolicy for JustInTime {
    fn name(&self) -> &'static str {
        "WF3"
    }

    fn summary(&self) -> &'static str {
        "just in time, ahead only as insurance"
    }

    fn holds_late_refusals_against(&self) -> bool {
        false
    }

    fn decide(&self, situation: &FetchSituation<'_>) -> FetchDecision {
        let needs = || {
            let order = ResourceType::COPROCESSORS.into_iter().chain([ResourceType::Cpu]);
            order.filter_map(|kind| Some((kind, occasion(situation, kind)?)))
        };
        if needs().next().is_none() {
            return FetchDecision::nothing(enough_until(situation));
        }
        let projects = situation.projects();
        let contacts: Vec<FetchContact> = projects.iter().map(|p| situation.contact(p.id)).collect();
        let accounts = situation.accounts();
        let candidates: Vec<Candidate<'_>> = projects
            .iter()
            .zip(&contacts)
            .zip(&accounts)
            .map(|((project, contact), account)| Candidate { project, contact, account })
            .collect();
        let check_by = situation.now + CHECK_PERIOD;
        let asked = needs().find_map(|(kind, occasion)| {
            let (candidate, job) = choose(situation, kind, occasion, &candidates)?;
            Some((kind, occasion, candidate, job))
        });
        let Some((kind, occasion, candidate, job)) = asked else {
            return FetchDecision::nothing(check_by);
        };
        let request = request(situation, kind, occasion, candidate.account.typical[kind]);
        let why = WhyJustInTime { kind, occasion, priority: candidate.account.priority, job };
        let for_idle = if matches!(occasion, Occasion::Idle(_)) { request } else { WorkRequest::default() };
        let ask = |asked: &Candidate<'_>| {
            let is_it = asked.project.id == candidate.project.id;
            let own = if is_it { request } else { WorkRequest::default() };
            ProjectRequest {
                project: asked.project.id,
                request: own,
                piggyback: own,
                for_idle,
                why: is_it.then(|| Why::new(why)),
            }
        };
        FetchDecision::new(candidates.iter().map(ask).collect(), check_by)
    }
}

/// What makes the host ask for a type, if anything.
fn occasion(situation: &FetchSituation<'_>, kind: ResourceType) -> Option<Occasion> {
    if situation.host.instances[kind] == 0 {
        return None;
    }
    let outlook = situation.outlook.types[kind];
    if outlook.idle >= IDLE_MIN {
        return Some(Occasion::Idle(outlook.idle));
    }
    let held = covered(situation, kind);
    let is_always_connected = !situation.connection_interval.is_positive();
    if is_always_connected && held < SOON {
        return Some(Occasion::Soon(held));
    }
    let wanted = ahead(situation, kind);
    (held < wanted).then_some(Occasion::Ahead { held, wanted })
}

/// On-time for which no instance idles.
fn covered(situation: &FetchSituation<'_>, kind: ResourceType) -> Duration {
    // The outlook tells times by the clock, stretched by the share of time that the host is on.
    let active = situation.host.active_fraction.get().max(0.01);
    situation.outlook.types[kind].saturated.mul_f64(active)
}

/// On-time for which work is held ahead.
fn ahead(situation: &FetchSituation<'_>, kind: ResourceType) -> Duration {
    let buffer = situation.buffer_min + situation.buffer_additional;
    let drought = situation.droughts[kind];
    let insured = if drought < DROUGHT_MIN { Duration::ZERO } else { drought.mul_f64(DROUGHT_FACTOR) };
    insured.min(buffer) + situation.connection_interval
}

/// Until when nothing can be lacking, if nothing happens: were the host on all the time.
fn enough_until(situation: &FetchSituation<'_>) -> Instant {
    let kinds = ResourceType::ALL.into_iter().filter(|kind| situation.host.instances[*kind] > 0);
    let left = kinds.map(|kind| covered(situation, kind) - ahead(situation, kind).max(SOON));
    situation.now + left.min().unwrap_or(CHECK_PERIOD).max(CHECK_PERIOD)
}

/// The project to ask for a type, and how its typical job fits.
fn choose<'a>(
    situation: &FetchSituation<'_>,
    kind: ResourceType,
    occasion: Occasion,
    candidates: &'a [Candidate<'a>],
) -> Option<(&'a Candidate<'a>, Option<Fit>)> {
    let may_supply = |c: &Candidate<'_>| {
        !c.project.detach_when_done && !c.contact.at_limit && !c.project.closed(c.contact)[kind]
    };
    let mut able: Vec<&Candidate<'_>> =
        candidates.iter().filter(|c| may_supply(c) && c.contact.may_contact).collect();
    able.sort_by(|a, b| is_better(situation, kind, a, b));
    if let Occasion::Ahead { held, .. } = occasion {
        // Nobody without a share, and nobody of whom nothing is known.
        able.retain(|c| c.project.share.get() > 0.0);
        // Where nothing can be fetched until the next contact, whoever is in time will do.
        let takes_turns = !situation.connection_interval.is_positive();
        able.truncate(if takes_turns { 1 } else { able.len() });
        return able.into_iter().find_map(|candidate| {
            let job = candidate.account.typical[kind]?;
            let turns = if takes_turns {
                others_turns(situation, kind, candidate, candidates)
            } else {
                Duration::ZERO
            };
            let fit = fit(situation, &job, held + turns, Sureness::Sure);
            fit.is_in_time().then_some((candidate, Some(fit)))
        });
    }
    able.into_iter().find_map(|candidate| {
        let job = candidate.account.typical[kind];
        let fit = job.map(|job| fit(situation, &job, Duration::ZERO, Sureness::Possible));
        fit.is_none_or(|fit| fit.is_in_time()).then_some((candidate, fit))
    })
}

/// On-time that one typical job of each other project takes that has none waiting.
fn others_turns(
    situation: &FetchSituation<'_>,
    kind: ResourceType,
    best: &Candidate<'_>,
    candidates: &[Candidate<'_>],
) -> Duration {
    let others = candidates.iter().filter(|c| {
        let shares = c.project.share.get() > 0.0 && c.project.id != best.project.id;
        shares && !c.project.detach_when_done && !situation.queue.has_unstarted(c.project.id, kind)
    });
    let work: Duration = others
        .filter_map(|c| c.account.typical[kind])
        .map(|job| job.running_time.mul_f64(job.instances))
        .fold(Duration::ZERO, |sum, work| sum + work);
    work.mul_f64(1.0 / f64::from(situation.host.instances[kind].max(1)))
}

/// How a job fits that begins after so much on-time.
fn fit(situation: &FetchSituation<'_>, job: &TypicalJob, behind: Duration, sureness: Sureness) -> Fit {
    // What is finished between contacts is reported at the next one.
    let window = job.latency_bound - situation.connection_interval;
    let there = situation.on_time.within(situation.now, window, sureness);
    Fit { takes: behind + job.running_time, there }
}

fn request(
    situation: &FetchSituation<'_>,
    kind: ResourceType,
    occasion: Occasion,
    job: Option<TypicalJob>,
) -> WorkRequest {
    let mut request = WorkRequest::default();
    let least = InstanceSeconds::of_one(REQUEST_MIN);
    request.seconds[kind] = match (occasion, job) {
        // All that is lacking until the next contact.
        (Occasion::Ahead { held, wanted }, _) if situation.connection_interval.is_positive() => {
            let instances = f64::from(situation.host.instances[kind]);
            InstanceSeconds::of_one((wanted - held).mul_f64(instances)).max(least)
        }
        // Half a job: a server sends a whole one.
        (Occasion::Ahead { .. }, Some(job)) => {
            InstanceSeconds::of_one(job.running_time.mul_f64(job.instances * 0.5)).max(least)
        }
        _ => least,
    };
    if let Occasion::Idle(idle) = occasion {
        request.instances[kind] = idle.min(f64::from(situation.host.instances[kind]));
    }
    request
}

/// The better one is less: it comes first.
fn is_better(
    situation: &FetchSituation<'_>,
    kind: ResourceType,
    one: &Candidate<'_>,
    other: &Candidate<'_>,
) -> std::cmp::Ordering {
    let shares = |c: &Candidate<'_>| c.project.share.get() > 0.0;
    let untried = |c: &Candidate<'_>| !c.account.supplies[kind];
    let owed = |c: &Candidate<'_>| match c.account.priority {
        FetchPriority::Debt(debt) => {
            let held = situation.queue.remaining_on(c.project.id, kind);
            debt.as_secs() - held.as_secs_f64() * situation.host.speeds[kind]
        }
        FetchPriority::Score(score) => score,
    };
    shares(other)
        .cmp(&shares(one))
        .then(one.contact.hung.cmp(&other.contact.hung))
        .then(untried(other).cmp(&untried(one)))
        .then(owed(other).total_cmp(&owed(one)))
        .then(one.project.id.cmp(&other.project.id))
}

impl fmt::Display for WhyJustInTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, priority, .. } = self;
        match self.occasion {
            Occasion::Idle(idle) => write!(f, "{idle:.2} {kind} idle")?,
            Occasion::Soon(left) => write!(f, "a {kind} idles in {left}")?,
            Occasion::Ahead { held, wanted } => {
                write!(f, "{kind}: work for {held} is held, and {wanted} are to be covered")?;
            }
        }
        write!(f, "; it stands best ({priority})")?;
        match self.job {
            Some(Fit { takes, there }) => write!(f, ", its jobs take {takes}, and have {there}"),
            None => write!(f, ", nothing is known of its jobs"),
        }
    }
}
