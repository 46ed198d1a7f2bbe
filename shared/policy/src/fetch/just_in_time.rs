//! Work is fetched just when something is about to idle, and ahead of time only as an insurance (WF3).
//!
//! Why: a job is given to a host with a deadline, and from that moment its time runs. A buffer that is filled
//! to what fits *on average* uses up all the slack that deadlines leave: projects with loose deadlines fill
//! it, and jobs of those with tight ones are late, or not sent at all. Work that is fetched when an instance
//! is about to idle begins at once, and has all its slack left for whatever the host's owner does. What that
//! risks is idle time while no project can be reached; for that, and for no more, work is held ahead.
//!
//! Model. For each type, coprocessors first:
//! - *Just in time*: an instance idles, or will within `NEAR` of computing (a host that is not always
//!   connected cannot wait for that). The best project that may be asked is asked for what idles until then,
//!   and for a job for each instance that idles now. Only a project whose typical job is *possibly* in time
//!   is asked: there is that much on-time within its deadline in three windows of ten (`on_time`).
//! - *Ahead*: the host was without a chance to get work before (`droughts`). Work for half as long again as
//!   the longest such drought is held, within what its owner lets it hold, and at least for the time between
//!   contacts: for as much of that as the host may be on, when it is on for long. The best
//!   project is asked whose typical job is *surely* in time behind the work held, and behind one job of each
//!   other project that has none waiting: so that no project's turn is taken by another's insurance. Half of
//!   what is lacking is asked for at a time, or half a job (a server sends a whole one), so that projects
//!   take turns. On a host that is not always connected turns cannot be waited for: at a contact the best
//!   project whose typical job is surely in time is asked for all that is lacking.
//!
//! The best project: one with a share before one without; one that answers before one that lately did not;
//! one that was never tried; then by what it is owed, less the work of it that is held. One without a share
//! is asked only for what idles now.
//!
//! A typical job is, of the last few that a project sent, the one that left least slack. Of a project that
//! has sent none nothing is known, and it is asked once something idles.
//!
//! Not in here: whether a project can be *reported to* in time; several jobs that begin together and share a
//! deadline; deadlines of jobs that are held already, which the server and CPU scheduling look after.

mod why;

use fallow_domain::{Duration, InstanceSeconds, Instant, PerType, ResourceType};

use super::{
    CHECK_PERIOD, FetchAccount, FetchContact, FetchDecision, FetchPolicy, FetchPriority, FetchProject,
    FetchSituation, IDLE_MIN, ProjectRequest, REQUEST_MIN, TypicalJob, WorkRequest,
};
use crate::on_time::Sureness;
use crate::round_robin::NEAR;
use crate::why::Why;
pub use why::{Fit, Occasion, WhyJustInTime};

/// WF3.
#[derive(Clone, Copy, Debug)]
pub struct JustInTime;

/// A drought that is shorter is no reason to hold work ahead.
pub const DROUGHT_MIN: Duration = Duration::from_mins(20);
/// As much longer than the longest drought is what is held.
const DROUGHT_FACTOR: f64 = 1.5;
/// Of what is lacking ahead, so much is asked for at a time where projects take turns.
const PART: f64 = 0.5;

/// An attached project.
#[derive(Clone, Copy, Debug)]
struct Candidate<'a> {
    project: &'a FetchProject,
    contact: &'a FetchContact,
    account: &'a FetchAccount,
}

/// Whom to ask for what.
#[derive(Clone, Copy, Debug)]
struct Choice<'a> {
    kind: ResourceType,
    occasion: Occasion,
    candidate: &'a Candidate<'a>,
    /// How its typical job fits, if any is known.
    fit: Option<Fit>,
    seconds: InstanceSeconds,
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

    fn looks_at_least(&self) -> Duration {
        NEAR
    }

    fn decide(&self, situation: &FetchSituation<'_>) -> FetchDecision {
        let order = ResourceType::COPROCESSORS.into_iter().chain([ResourceType::Cpu]);
        let needs: Vec<(ResourceType, Occasion)> =
            order.filter_map(|kind| Some((kind, occasion(situation, kind)?))).collect();
        if needs.is_empty() {
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
        let unserved = unserved(&needs, &candidates);
        let chosen =
            needs.iter().find_map(|(kind, occasion)| choose(situation, *kind, *occasion, &candidates));
        let check_by = check_by(situation, chosen.is_some(), &contacts);
        let asks = chosen.map(|choice| requests(&choice, situation, &candidates)).unwrap_or_default();
        FetchDecision::new(asks, check_by).with_unserved(unserved)
    }
}

/// What each project is asked for, now that one is chosen.
fn requests(
    choice: &Choice<'_>,
    situation: &FetchSituation<'_>,
    candidates: &[Candidate<'_>],
) -> Vec<ProjectRequest> {
    let Choice { kind, occasion, candidate, fit, seconds } = *choice;
    let mut request = WorkRequest::default();
    request.seconds[kind] = seconds;
    if let Occasion::Idle { idle, .. } = occasion {
        request.instances[kind] = idle.min(f64::from(situation.host.instances[kind]));
    }
    let why = WhyJustInTime { kind, occasion, priority: candidate.account.priority, job: fit };
    let for_idle = if matches!(occasion, Occasion::Idle { .. }) { request } else { WorkRequest::default() };
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
    candidates.iter().map(ask).collect()
}

/// What makes the host ask for a type, if anything.
fn occasion(situation: &FetchSituation<'_>, kind: ResourceType) -> Option<Occasion> {
    if situation.host.instances[kind] == 0 {
        return None;
    }
    let outlook = situation.outlook.types[kind];
    if outlook.idle >= IDLE_MIN {
        return Some(Occasion::Idle { idle: outlook.idle, lacking: outlook.near });
    }
    let held = covered(situation, kind);
    let is_always_connected = !situation.connection_interval.is_positive();
    if is_always_connected && held < NEAR {
        return Some(Occasion::Soon { after: held, lacking: outlook.near });
    }
    let wanted = ahead(situation, kind);
    (held < wanted).then_some(Occasion::Ahead { held, wanted })
}

/// On-time for which no instance idles.
fn covered(situation: &FetchSituation<'_>, kind: ResourceType) -> Duration {
    // The outlook tells times by the clock, stretched by the share of time that the host is on.
    situation.outlook.types[kind].saturated.mul_f64(active(situation))
}

/// The share of time that the host is on; never nothing.
fn active(situation: &FetchSituation<'_>) -> f64 {
    situation.host.active_fraction.get().max(0.01)
}

/// On-time for which work is held ahead.
fn ahead(situation: &FetchSituation<'_>, kind: ResourceType) -> Duration {
    let buffer = (situation.buffer_min + situation.buffer_additional).mul_f64(active(situation));
    let drought = situation.droughts[kind];
    let insured = if drought < DROUGHT_MIN { Duration::ZERO } else { drought.mul_f64(DROUGHT_FACTOR) };
    // Until the next contact the host may be on for longer than usual. What it went without a contact before
    // is a drought, too.
    let alone = situation.on_time.within(situation.now, situation.connection_interval, Sureness::Hope);
    insured.min(buffer + alone).max(alone)
}

/// When to decide again while something is lacking. Where nobody is asked, the end of a wait may change that.
fn check_by(situation: &FetchSituation<'_>, is_asked: bool, contacts: &[FetchContact]) -> Instant {
    let waits = contacts.iter().filter_map(|contact| contact.contact_from).chain(situation.backoffs_end);
    let later = waits.filter(|end| !is_asked && *end > situation.now);
    later.fold(situation.now + CHECK_PERIOD, Instant::min)
}

/// Until when nothing can be lacking, if nothing happens: were the host on all the time.
fn enough_until(situation: &FetchSituation<'_>) -> Instant {
    let kinds = ResourceType::ALL.into_iter().filter(|kind| situation.host.instances[*kind] > 0);
    let left = kinds.map(|kind| covered(situation, kind) - ahead(situation, kind).max(NEAR));
    situation.now + left.min().unwrap_or(CHECK_PERIOD).max(CHECK_PERIOD)
}

impl Candidate<'_> {
    fn has_share(&self) -> bool {
        self.project.share.get() > 0.0
    }

    /// Whether it may have work of a type that the host may take.
    fn may_supply(&self, kind: ResourceType) -> bool {
        !self.project.detach_when_done && !self.contact.at_limit && !self.project.closed(self.contact)[kind]
    }

    /// Whether it would have been asked for a type if it could be reached, or had any.
    fn is_missed(&self, kind: ResourceType) -> bool {
        let FetchProject { detach_when_done, lacks, left_out, unrunnable, .. } = self.project;
        let never = *detach_when_done || lacks[kind] || left_out[kind] || unrunnable[kind];
        !never && !self.contact.at_limit && self.has_share()
    }

    fn may_be_asked(&self, kind: ResourceType) -> bool {
        self.contact.may_contact && self.may_supply(kind)
    }
}

/// The types of which work is wanted and nobody can be asked who might have some.
fn unserved(needs: &[(ResourceType, Occasion)], candidates: &[Candidate<'_>]) -> PerType<bool> {
    PerType::from_fn(|kind| {
        let is_wanted = needs.iter().any(|(of, _)| *of == kind);
        let missed = || candidates.iter().any(|c| c.is_missed(kind));
        is_wanted && missed() && !candidates.iter().any(|c| c.may_be_asked(kind))
    })
}

/// The project to ask for a type, and for how much.
fn choose<'a>(
    situation: &FetchSituation<'_>,
    kind: ResourceType,
    occasion: Occasion,
    candidates: &'a [Candidate<'a>],
) -> Option<Choice<'a>> {
    let mut able: Vec<&Candidate<'_>> = candidates.iter().filter(|c| c.may_be_asked(kind)).collect();
    if !matches!(occasion, Occasion::Idle { .. }) {
        able.retain(|c| c.has_share());
    }
    able.sort_by(|a, b| is_better(situation, kind, a, b));
    let least = InstanceSeconds::of_one(REQUEST_MIN);
    let choice = |candidate, fit, seconds: InstanceSeconds| {
        Some(Choice { kind, occasion, candidate, fit, seconds: seconds.max(least) })
    };
    match occasion {
        Occasion::Idle { lacking, .. } | Occasion::Soon { lacking, .. } => {
            able.into_iter().find_map(|candidate| {
                let job = situation.typical(candidate.project.id)[kind];
                let fit = job.map(|job| fit(situation, &job, Duration::ZERO, Sureness::Possible));
                fit.is_none_or(|fit| fit.is_in_time()).then(|| choice(candidate, fit, lacking))?
            })
        }
        Occasion::Ahead { held, wanted } => able.into_iter().find_map(|candidate| {
            let job = situation.typical(candidate.project.id)[kind]?;
            let (seconds, behind) =
                ahead_of_turns(situation, kind, candidate, candidates, &job, held, wanted);
            let fit = fit(situation, &job, behind, Sureness::Sure);
            fit.is_in_time().then(|| choice(candidate, Some(fit), seconds))?
        }),
    }
}

/// How much to ask of a project ahead of time, and behind how much on-time the last of it begins.
fn ahead_of_turns(
    situation: &FetchSituation<'_>,
    kind: ResourceType,
    candidate: &Candidate<'_>,
    candidates: &[Candidate<'_>],
    job: &TypicalJob,
    held: Duration,
    wanted: Duration,
) -> (InstanceSeconds, Duration) {
    let instances = f64::from(situation.host.instances[kind].max(1));
    let lacking = wanted - held;
    // Where nothing can be fetched until the next contact, no turn is waited for.
    if situation.connection_interval.is_positive() {
        return (InstanceSeconds::of_one(lacking.mul_f64(instances)), held);
    }
    let part = lacking.mul_f64(PART);
    let half_a_job = job.running_time.mul_f64(job.instances * 0.5);
    let seconds = part.mul_f64(instances).max(half_a_job);
    let turns = others_turns(situation, kind, candidate, candidates).min(wanted);
    (InstanceSeconds::of_one(seconds), held + turns)
}

/// On-time that one typical job of each other project takes that may be asked and has none waiting.
fn others_turns(
    situation: &FetchSituation<'_>,
    kind: ResourceType,
    best: &Candidate<'_>,
    candidates: &[Candidate<'_>],
) -> Duration {
    let others = candidates.iter().filter(|c| {
        let is_other = c.has_share() && c.project.id != best.project.id;
        is_other && c.may_supply(kind) && !situation.queue.has_unstarted(c.project.id, kind)
    });
    let work: Duration = others
        .filter_map(|c| situation.typical(c.project.id)[kind])
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

/// The better one is less: it comes first.
fn is_better(
    situation: &FetchSituation<'_>,
    kind: ResourceType,
    one: &Candidate<'_>,
    other: &Candidate<'_>,
) -> std::cmp::Ordering {
    let untried = |c: &Candidate<'_>| !c.account.supplies[kind];
    let owed = |c: &Candidate<'_>| match c.account.priority {
        FetchPriority::Debt(debt) => {
            let held = situation.queue.remaining_on(c.project.id, kind);
            debt.as_secs() - held.as_secs_f64() * situation.host.speeds[kind]
        }
        FetchPriority::Score(score) => score,
    };
    other
        .has_share()
        .cmp(&one.has_share())
        .then(one.contact.hung.cmp(&other.contact.hung))
        .then(untried(other).cmp(&untried(one)))
        .then(owed(other).total_cmp(&owed(one)))
        .then(one.project.id.cmp(&other.project.id))
}
