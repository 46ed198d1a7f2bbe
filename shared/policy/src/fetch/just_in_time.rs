//! Work is fetched just when something is about to idle, and ahead of time only as an insurance (WF3).
//!
//! Why: a job is given to a host with a deadline, and from that moment its time runs. A buffer that is filled
//! to what fits *on average* uses up all the slack that deadlines leave: projects with loose deadlines fill
//! it, and jobs of those with tight ones are late, or not sent at all. Work that is fetched when an instance
//! is about to idle begins at once, and has all its slack left for whatever the host's owner does. What that
//! risks is idle time while no project can be reached; for that, and for no more, work is held ahead.
//!
//! Model. What idles goes before what will idle soon, and that before what is lacking ahead; of each,
//! coprocessors go first. The request for the most urgent need is for whatever else its project is the best
//! for, too.
//! - *Just in time*: an instance idles, or will within five minutes of computing (a host that is not always
//!   connected cannot wait for that). The best project that may be asked is asked for what idles within
//!   twenty minutes, or within the buffer if that is shorter, so that short jobs take few requests; and for
//!   a job for each instance that idles now. Only a project whose typical job is *possibly* in time
//!   is asked: there is that much on-time within its deadline in three windows of ten (`on_time`). As long
//!   as nothing idles yet, it is to be *surely* in time: servers look at it so, too.
//! - *Ahead*: the host was without a chance to get work before (`droughts`). Work for half as long again as
//!   the longest such drought is held, within what its owner lets it hold. The best project is asked, if its
//!   typical job is *surely* in time behind the work held, and behind one job of each other project that has
//!   none waiting: so that no project's turn is taken by another's insurance. Half a drought is to be left
//!   then: its end may fall into one, too. If it is not in time, nobody is asked: its turn comes when
//!   something idles. Half of what is lacking is asked for at a time, or half a job (a server
//!   sends a whole one), so that projects take turns. It is asked for while something idles, too: its project
//!   may want no other request for longer than its jobs take.
//! - *Unfilled*: instances idle, and the jobs that wait need more of them at once. The best project is asked
//!   for a job, if its jobs fit. If they do not, it has its turn once enough instances idle at the same time,
//!   and nobody takes that before. (At a contact there is no later turn.)
//! - *Untried*: nobody knows whether a project has work. It is asked for a job as soon as it may be asked,
//!   so that its share is not withheld from it until something idles; but not while jobs of twice as many
//!   projects are held as there are instances, or a host of many projects would be late with the first of
//!   each.
//! - *At a contact* of a host that is not always connected there is no later turn. Work is held for as long
//!   as the host may be on until the next contact, as far as it will surely be in time; and beyond that as
//!   long as to idle without it is as likely as to be late with it. Each project is asked for its part of
//!   that; one of whose jobs nothing is known is asked for one.
//!
//! A project that had no work when it was last asked is left alone for ten minutes. If an RPC to it happens
//! anyway, and its turn it is, it is asked for what idles now or soon, or what is new would wait there.
//!
//! The best project: one with a share before one without; one that answers before one that lately did not;
//! one that was never tried; then by what it is owed, less the work of it that is held. One without a share
//! is asked only for what idles now.
//!
//! A typical job is, of the last few that a project sent, the one that left least slack. Of a project that
//! has sent none of late nothing is known: its turn, too, comes when something idles, and is not taken.
//!
//! Not in here: whether a job that begins at once can be *reported* in time; several jobs that begin
//! together and share a deadline; deadlines of jobs that are held already, which the server and CPU
//! scheduling look after.

mod ahead;
mod why;

use fallow_domain::{Duration, InstanceSeconds, Instant, PerType, ResourceType};

use super::unserved::{may_be_asked, may_supply};
use super::{
    CHECK_PERIOD, FetchContact, FetchDecision, FetchPolicy, FetchPriority, FetchProject, FetchSituation,
    IDLE_MIN, ProjectRequest, REQUEST_MIN, TypicalJob, WorkRequest, unserved,
};
use crate::on_time::Sureness;
use crate::why::Why;
use ahead::Asked;
pub use why::{Fit, Occasion, WhyJustInTime};

/// WF3.
#[derive(Clone, Copy, Debug)]
pub struct JustInTime;

/// That an instance will idle within so much computing is a reason to ask.
const SOON: Duration = Duration::from_mins(5);
/// While jobs of so many projects for each instance are held, none is asked only because it is not known.
const UNTRIED_FACTOR: usize = 2;
/// A drought that is shorter is no reason to hold work ahead.
pub const DROUGHT_MIN: Duration = Duration::from_mins(20);
/// As much longer than the longest drought is what is held.
const DROUGHT_FACTOR: f64 = 1.5;

/// An attached project.
#[derive(Clone, Copy, Debug)]
struct Candidate<'a> {
    project: &'a FetchProject,
    contact: &'a FetchContact,
    priority: FetchPriority,
    /// What its jobs are like, of each type, if any came of late.
    typical: PerType<Option<TypicalJob>>,
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
        SOON
    }

    fn decide(&self, situation: &FetchSituation<'_>) -> FetchDecision {
        let order = ResourceType::COPROCESSORS.into_iter().chain([ResourceType::Cpu]);
        let mut needs: Vec<(ResourceType, Occasion)> =
            order.filter_map(|kind| Some((kind, occasion(situation, kind)?))).collect();
        needs.sort_by_key(|(_, occasion)| occasion.urgency());
        let projects = situation.projects();
        let contacts: Vec<FetchContact> = projects.iter().map(|p| situation.contact(p.id)).collect();
        let candidates: Vec<Candidate<'_>> = projects
            .iter()
            .zip(&contacts)
            .zip(situation.priorities())
            .map(|((project, contact), priority)| {
                let typical = situation.typical(project.id);
                Candidate { project, contact, priority, typical }
            })
            .collect();
        let wanted = PerType::from_fn(|kind| needs.iter().any(|(of, _)| *of == kind));
        let unserved = unserved(wanted, &projects.iter().zip(&contacts));
        let mut chosen: Vec<Choice<'_>> = needs
            .iter()
            .filter_map(|(kind, occasion)| choose(situation, *kind, *occasion, &candidates))
            .collect();
        let order = ResourceType::COPROCESSORS.into_iter().chain([ResourceType::Cpu]);
        let others: Vec<Choice<'_>> = order
            .filter(|kind| chosen.iter().all(|choice| choice.kind != *kind))
            .filter_map(|kind| untried(situation, kind, &candidates))
            .collect();
        chosen.extend(others);
        chosen.sort_by_key(|choice| choice.occasion.urgency());
        let check_by = if needs.is_empty() && chosen.is_empty() {
            enough_until(situation).min(untried_from(situation, &candidates))
        } else {
            check_by(situation, !chosen.is_empty(), &contacts)
        };
        let mut asks = requests(&chosen, situation, &candidates);
        for (ask, candidate) in asks.iter_mut().zip(&candidates) {
            let is_asked = !ask.request.is_none();
            if !is_asked {
                ask.piggyback = piggyback(situation, candidate, &needs, &chosen);
            }
        }
        FetchDecision::new(asks, check_by).with_wanted(wanted, unserved)
    }
}

/// What a project is asked for that is left alone for a while, if an RPC to it happens anyway (R1.9, R3.7):
/// what idles now or soon, if it is its turn.
fn piggyback(
    situation: &FetchSituation<'_>,
    candidate: &Candidate<'_>,
    needs: &[(ResourceType, Occasion)],
    chosen: &[Choice<'_>],
) -> WorkRequest {
    let mut request = WorkRequest::default();
    for (kind, occasion) in needs.iter().copied().filter(|(kind, _)| candidate.is_left_alone(*kind)) {
        let by_another = chosen.iter().find(|choice| choice.kind == kind).map(|choice| choice.candidate);
        let is_its_turn = by_another.is_none_or(|other| is_better(situation, kind, candidate, other).is_lt());
        if !is_its_turn || occasion.lacking().get() <= 0.0 || !candidate.may_be_in_time(situation, kind) {
            continue;
        }
        request.seconds[kind] = occasion.lacking().max(InstanceSeconds::of_one(REQUEST_MIN));
        if let Occasion::Idle { idle, .. } = occasion {
            request.instances[kind] = idle.min(f64::from(situation.host.instances[kind]));
        }
    }
    request
}

/// What each project is asked for. One is asked, for the most urgent need and for whatever else it is the
/// best for.
fn requests(
    chosen: &[Choice<'_>],
    situation: &FetchSituation<'_>,
    candidates: &[Candidate<'_>],
) -> Vec<ProjectRequest> {
    let Some(first) = chosen.first() else {
        return candidates.iter().map(|candidate| ProjectRequest::none(candidate.project.id)).collect();
    };
    let best = first.candidate.project.id;
    let (mut request, mut for_idle) = (WorkRequest::default(), WorkRequest::default());
    for choice in chosen.iter().filter(|choice| choice.candidate.project.id == best) {
        let kind = choice.kind;
        request.seconds[kind] = choice.seconds;
        if let Occasion::Idle { idle, .. } | Occasion::Unfilled { idle } = choice.occasion {
            request.instances[kind] = idle.min(f64::from(situation.host.instances[kind]));
            (for_idle.seconds[kind], for_idle.instances[kind]) = (choice.seconds, request.instances[kind]);
        }
    }
    let Choice { kind, occasion, candidate, fit, .. } = *first;
    let why = WhyJustInTime { kind, occasion, priority: candidate.priority, job: fit };
    let ask = |asked: &Candidate<'_>| {
        let is_it = asked.project.id == best;
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
    let unfilled = situation.queue.unfilled(kind, situation.host.instances[kind]);
    if unfilled > 0.0 && is_always_connected(situation) {
        return Some(Occasion::Unfilled { idle: unfilled });
    }
    let held = covered(situation, kind);
    if is_always_connected(situation) && held < SOON {
        return Some(Occasion::Soon { after: held, lacking: outlook.near });
    }
    let wanted = ahead(situation, kind);
    (held < wanted).then_some(Occasion::Ahead { held, wanted })
}

fn is_always_connected(situation: &FetchSituation<'_>) -> bool {
    !situation.connection_interval.is_positive()
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
    let left = kinds.map(|kind| covered(situation, kind) - ahead(situation, kind).max(SOON));
    let left = left.min().unwrap_or(CHECK_PERIOD).max(CHECK_PERIOD);
    (situation.now + left).min(situation.outlook.valid_until.max(situation.now + CHECK_PERIOD))
}

impl Candidate<'_> {
    fn has_share(&self) -> bool {
        self.project.share.get() > 0.0
    }

    /// Whether it may have work of a type that the host may take.
    fn may_supply(&self, kind: ResourceType) -> bool {
        may_supply(self.project, self.contact, kind)
    }

    /// Whether it may not be asked now, and may by then; and for jobs that may be in time.
    fn may_be_asked_by(&self, situation: &FetchSituation<'_>, kind: ResourceType, by: Instant) -> bool {
        let FetchContact { may_contact, hung, contact_from, .. } = *self.contact;
        let is_soon = !may_contact && contact_from.is_some_and(|from| from <= by);
        is_soon && !hung && self.has_share() && self.may_supply(kind) && self.may_be_in_time(situation, kind)
    }

    /// Whether its jobs of a type may be in time, as far as anything is known of them.
    fn may_be_in_time(&self, situation: &FetchSituation<'_>, kind: ResourceType) -> bool {
        self.typical[kind].is_none_or(|job| possibly_in_time(situation, &job).is_in_time())
    }

    /// Whether it is not asked for a type because it had none lately.
    fn is_left_alone(&self, kind: ResourceType) -> bool {
        let FetchProject { detach_when_done, lacks, left_out, unrunnable, .. } = *self.project;
        let may_have = !(detach_when_done || lacks[kind] || left_out[kind] || unrunnable[kind]);
        let FetchContact { at_limit, hung, backed_off, .. } = *self.contact;
        self.has_share() && may_have && backed_off[kind] && !at_limit && !hung
    }

    /// Whether nobody knows if it has work of a type: it never had any, or had none for long. One that says
    /// that it has work, and for whom it is not, is known; one that does not answer is asked in its turn.
    fn is_unknown(&self, kind: ResourceType) -> bool {
        let FetchContact { hung, has_work, .. } = self.contact;
        self.has_share() && !self.project.supplies[kind] && !hung && !has_work[kind]
    }

    /// Whether its jobs are small enough for so many instances. Of one that has a job waiting here that is
    /// not, the next would be no smaller.
    fn fits(&self, situation: &FetchSituation<'_>, kind: ResourceType, idle: f64) -> bool {
        let is_small = self.typical[kind].is_none_or(|job| job.instances <= idle);
        is_small && !situation.queue.has_unstarted(self.project.id, kind)
    }

    fn may_be_asked(&self, kind: ResourceType) -> bool {
        may_be_asked(self.project, self.contact, kind)
    }
}

/// Whether it is the turn of a project that may be asked before anything idles. It does not lose its turn to
/// one that may be asked now.
fn is_turn_of_one_waiting(
    situation: &FetchSituation<'_>,
    kind: ResourceType,
    occasion: Occasion,
    candidates: &[Candidate<'_>],
    best: Option<&Candidate<'_>>,
) -> bool {
    let Occasion::Soon { after, .. } = occasion else { return false };
    let by = situation.now + after;
    let mut waiting = candidates.iter().filter(|c| c.may_be_asked_by(situation, kind, by));
    waiting.any(|c| best.is_none_or(|best| is_better(situation, kind, c, best).is_lt()))
}

/// The project to ask for a type, and for how much: the best of those whose jobs may be in time. Where it is
/// not sure that they will be, it is asked once something idles, and nobody takes its turn before.
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
    if is_turn_of_one_waiting(situation, kind, occasion, candidates, able.first().copied()) {
        return None;
    }
    let choice = |candidate, fit, seconds: InstanceSeconds| {
        let seconds = seconds.max(occasion.lacking()).max(InstanceSeconds::of_one(REQUEST_MIN));
        Some(Choice { kind, occasion, candidate, fit, seconds })
    };
    for candidate in able.iter().copied() {
        if matches!(occasion, Occasion::Unfilled { idle } if !candidate.fits(situation, kind, idle)) {
            // It has its turn once enough instances idle at the same time.
            return None;
        }
        let Some(job) = &candidate.typical[kind] else {
            match occasion {
                // What its jobs are like is learned from the first that it is asked for when something idles.
                Occasion::Ahead { .. } if is_always_connected(situation) => return None,
                _ => return choice(candidate, None, InstanceSeconds::ZERO),
            }
        };
        let possibly = possibly_in_time(situation, job);
        if !possibly.is_in_time() {
            continue;
        }
        let asked = Asked { situation, kind, candidate, job };
        let ahead = if candidate.has_share() { asked.ahead(candidates, &able) } else { None };
        return match (ahead, occasion) {
            (Some((seconds, fit)), _) => choice(candidate, Some(fit), seconds),
            (None, Occasion::Idle { .. } | Occasion::Unfilled { .. }) => {
                choice(candidate, Some(possibly), InstanceSeconds::ZERO)
            }
            (None, Occasion::Soon { .. }) => {
                let surely = begun_now(situation, job, Sureness::Sure);
                surely.is_in_time().then(|| choice(candidate, Some(surely), InstanceSeconds::ZERO))?
            }
            // Until the next contact nobody's turn comes.
            (None, Occasion::Ahead { .. }) if !is_always_connected(situation) => continue,
            (None, Occasion::Untried | Occasion::Ahead { .. }) => None,
        };
    }
    None
}

/// A project that is asked for a job although nothing is lacking: it may have work by now, and nobody knows.
fn untried<'a>(
    situation: &FetchSituation<'_>,
    kind: ResourceType,
    candidates: &'a [Candidate<'a>],
) -> Option<Choice<'a>> {
    let instances = situation.host.instances[kind] as usize;
    let held = candidates.iter().filter(|c| situation.queue.remaining_on(c.project.id, kind).is_positive());
    if !is_always_connected(situation) || held.count() >= instances * UNTRIED_FACTOR {
        return None;
    }
    let able = candidates.iter().filter(|c| c.is_unknown(kind) && c.may_be_asked(kind));
    let candidate = able.min_by(|a, b| is_better(situation, kind, a, b))?;
    let seconds = InstanceSeconds::of_one(REQUEST_MIN);
    Some(Choice { kind, occasion: Occasion::Untried, candidate, fit: None, seconds })
}

/// When a project may be asked of which it is not known whether it has work.
fn untried_from(situation: &FetchSituation<'_>, candidates: &[Candidate<'_>]) -> Instant {
    let kinds = || ResourceType::ALL.into_iter().filter(|kind| situation.host.instances[*kind] > 0);
    let unknown = candidates.iter().filter(|c| kinds().any(|kind| c.is_unknown(kind)));
    let waits = unknown.flat_map(|c| [c.contact.contact_from, situation.backoffs_end]).flatten();
    waits.filter(|end| *end > situation.now).min().unwrap_or(Instant::FAR_FUTURE)
}

/// How a job fits that is begun at once.
fn begun_now(situation: &FetchSituation<'_>, job: &TypicalJob, sureness: Sureness) -> Fit {
    let there = situation.on_time.within(situation.now, job.latency_bound, sureness);
    Fit { takes: job.running_time, there }
}

/// The same, with luck.
fn possibly_in_time(situation: &FetchSituation<'_>, job: &TypicalJob) -> Fit {
    begun_now(situation, job, Sureness::Possible)
}

/// The better one is less: it comes first.
fn is_better(
    situation: &FetchSituation<'_>,
    kind: ResourceType,
    one: &Candidate<'_>,
    other: &Candidate<'_>,
) -> std::cmp::Ordering {
    let untried = |c: &Candidate<'_>| !c.project.supplies[kind];
    let owed = |c: &Candidate<'_>| match c.priority {
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
