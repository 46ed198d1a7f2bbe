//! How much work to ask of whom: expected starvation per project (R2.10 to R2.16 of BOINC's design note
//! "Client scheduling policies", version 4; WF1 of R5.3).
//!
//! Model: a project needs `min_results` jobs at once to use its share of the CPUs. It starves when fewer
//! are left. That happens when all its jobs but the `min_results - 1` of latest deadline are done, at the
//! rate at which the host computes for it. A project that will starve sooner than the *low* mark is asked
//! for as much as makes it last until the *high* mark.
//!
//! Low and high express three rules that have the same form: T and 2T, with the connection period T of
//! R2.14; the marks of the work buffer (R1.11: minimum, and minimum + additional); and WF1 as Kondo,
//! Anderson and McLeod evaluated it in 2007 (ask below the whole buffer, fill up to it). A project is asked
//! when it starves itself (R2.14), so that one project with much work does not hide another that has none.
//!
//! With coprocessors each type is looked at by itself, with the jobs of that main type: each project that
//! may supply a type is to hold its share of it. This policy is older than resource types, so work of one
//! type does not make up for another here; it does in WF2.
//!
//! A check looks at sums that the queue keeps, and at up to `min_results - 1` jobs per project. Over all
//! projects that is less than one job per CPU, however many jobs there are.

use std::fmt;

use fallow_domain::{Duration, Fraction, InstanceSeconds, PerType, ProjectId, ResourceType, Share};

use super::{
    CHECK_PERIOD, FetchDecision, FetchPolicy, FetchProject, FetchSituation, FetchWhen, ProjectRequest,
    REQUEST_MIN, RankedProject, WorkBackoff, WorkRequest,
};
use crate::decay::{Ranked, rank_projects};
use crate::job_queue::{Instances, JobQueue};
use crate::share_fraction::share_fractions;
use crate::why::Why;

/// WF1.
#[derive(Clone, Copy, Debug)]
pub struct Starvation;

/// When to ask, and how far to fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkBuffer {
    /// A project that starves before this is asked.
    pub low: Duration,
    /// And asked for as much as makes it last this long.
    pub high: Duration,
}

impl WorkBuffer {
    /// R1.11: the marks, minimum and minimum + additional; with both the same, R2.10's starvation between T
    /// and 2T from now.
    pub fn marks(min: Duration, additional: Duration) -> Self {
        Self { low: min, high: min + additional.max(Duration::ZERO) }
    }
    /// R5.3: asking below the whole buffer and filling up to it.
    pub fn whole(min: Duration, additional: Duration) -> Self {
        let whole = min + additional.max(Duration::ZERO);
        Self { low: whole, high: whole }
    }
    /// R1.13: with a connection interval, work for that much more is kept.
    #[must_use]
    pub fn beyond(self, connection_interval: Duration) -> Self {
        let more = connection_interval.max(Duration::ZERO);
        Self { low: self.low + more, high: self.high + more }
    }
}

/// The host as work fetch sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FetchHost {
    /// Instances that may be used.
    pub usable: PerType<u32>,
    /// Share of time that computing is allowed and running (R2.12).
    pub active_fraction: Fraction,
    /// The marks.
    pub buffer: WorkBuffer,
}

/// An attached project as this policy looks at it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Supplier {
    /// The project.
    pub id: ProjectId,
    /// Its share.
    pub share: Share,
    /// Types that it may supply work of at all: not suspended, not told to send none, not known not to
    /// support it. A backoff does not count: its place in the fractions is kept while it lasts.
    pub may_supply: PerType<bool>,
}

/// How pressing a need for work is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// There is enough.
    #[default]
    None,
    /// It will run out before the low mark.
    NeedWork,
    /// It has run out.
    NeedWorkImmediately,
}

/// What one project needs of a type, and the figures behind it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TypeStarvation {
    /// The type.
    pub kind: ResourceType,
    /// How pressing.
    pub urgency: Urgency,
    /// When it starves (R2.14).
    pub starves_in: Duration,
    /// Jobs it may need at once (R2.11).
    pub min_results: u32,
    /// Instance-seconds per second that the host computes for it (R2.12).
    pub rate: f64,
}

/// What one project needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Need {
    /// The project.
    pub project: ProjectId,
    /// How pressing, over all types.
    pub urgency: Urgency,
    /// What to ask for (R2.15), of the types that starve; nothing when nothing is needed.
    pub request: WorkRequest,
    /// What fills it up to the high mark, to ask for when an RPC happens anyway (R1.9).
    pub piggyback: WorkRequest,
    /// The type that is most pressing; of those the one that starves first.
    pub first: TypeStarvation,
    /// How long it takes at least until it starves of any type that it does not starve of now: were all
    /// instances to compute for it.
    lasts: Duration,
}

/// The outcome of a check: for every project that may supply work, by id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StarvationPlan {
    /// The largest urgency.
    pub urgency: Urgency,
    /// What each project needs.
    pub needs: Vec<Need>,
    /// Instances that no job, running, queued or on its way, would use: each should get a job.
    pub idle: PerType<f64>,
    /// So long no other project starves if the queue does not change, however fast tasks run.
    pub holds_for: Duration,
}

impl StarvationPlan {
    /// What one project needs, if it may supply work.
    pub fn of(&self, project: ProjectId) -> Option<&Need> {
        let place = self.needs.binary_search_by_key(&project, |need| need.project).ok()?;
        self.needs.get(place)
    }
}

impl FetchPolicy for Starvation {
    fn name(&self) -> &'static str {
        "WF1"
    }

    fn summary(&self) -> &'static str {
        "per project"
    }

    fn looks_ahead(&self) -> bool {
        false
    }

    fn backoff(&self) -> WorkBackoff {
        WorkBackoff::ByProject
    }

    fn looks_at_habits(&self) -> bool {
        false
    }

    /// By first-generation debt (R1.2).
    fn rank(&self, projects: &[RankedProject]) -> Vec<ProjectId> {
        let ranked = |p: &RankedProject| Ranked { project: p.id, share: p.share, recent: p.recent };
        rank_projects(&projects.iter().map(ranked).collect::<Vec<_>>())
    }

    fn decide(&self, situation: &FetchSituation<'_>) -> FetchDecision {
        let (min, additional) = (situation.buffer_min, situation.buffer_additional);
        let buffer = match situation.when {
            FetchWhen::AnyShortfall => WorkBuffer::whole(min, additional),
            FetchWhen::BelowMinimum => WorkBuffer::marks(min, additional),
        };
        let host = FetchHost {
            usable: situation.host.instances,
            active_fraction: situation.active_fraction,
            buffer: buffer.beyond(situation.connection_interval),
        };
        let suppliers: Vec<Supplier> =
            situation.projects().into_iter().map(|project| supplier(&host, &project)).collect();
        let mut plan = check(&host, &suppliers, situation.queue);
        // Where nobody who starves may be asked now, only the end of a wait or another's starvation makes a
        // difference.
        let may_be_asked = |need: &Need| {
            let contact = situation.contact(need.project);
            contact.may_contact && !contact.work_waits
        };
        let mut starving = plan.needs.iter().filter(|need| need.urgency > Urgency::None);
        let holds_for = match starving.any(may_be_asked) {
            false => plan.holds_for,
            true => CHECK_PERIOD,
        };
        // Most of the time everybody has enough.
        plan.needs.retain(|need| !need.piggyback.is_none());
        if plan.needs.is_empty() {
            return FetchDecision::nothing(situation.now + holds_for);
        }
        let mut asks: Vec<ProjectRequest> = plan.needs.iter().map(project_request).collect();
        for (project_request, why) in asks.iter_mut().zip(Why::each(plan.needs)) {
            project_request.why = Some(why);
        }
        FetchDecision::new(asks, situation.now + holds_for)
    }
}

fn supplier(host: &FetchHost, project: &FetchProject) -> Supplier {
    // One that has programs for nothing here is asked all the same, as BOINC does: it could never take it
    // back otherwise, and asking in vain backs off by itself.
    let lacks_all = host.usable.iter().all(|(kind, count)| *count == 0 || project.lacks[kind]);
    Supplier {
        id: project.id,
        share: project.share,
        may_supply: PerType::from_fn(|kind| {
            !project.detach_when_done
                && (lacks_all || !project.lacks[kind])
                && !project.left_out[kind]
                && !project.unrunnable[kind]
        }),
    }
}

fn project_request(need: &Need) -> ProjectRequest {
    let now = need.urgency == Urgency::NeedWorkImmediately;
    ProjectRequest {
        project: need.project,
        request: need.request,
        piggyback: need.piggyback,
        for_idle: if now { need.request } else { WorkRequest::default() },
        why: None,
    }
}

/// The jobs that a project may need at once (R2.11).
pub fn min_results(usable: u32, share_fraction: f64) -> u32 {
    // A hair of tolerance: 3 CPUs at a fraction of 1/3 need one job, whatever the rounding of 1/3.
    (f64::from(usable) * share_fraction - 1e-9).ceil().max(0.0) as u32
}

/// CPU seconds per second that the host computes for a project (R2.12).
pub fn avg_proc_rate(share_fraction: f64, usable: u32, active_fraction: Fraction) -> f64 {
    share_fraction * f64::from(usable) * active_fraction.get()
}

/// The time until a project has only `k` jobs of a type left (R2.13), at `rate` instance-seconds per second.
/// At rate 0 its work lasts for ever.
pub fn ettprc(queue: &JobQueue, project: ProjectId, kind: ResourceType, k: u32, rate: f64) -> Duration {
    let work = queue.remaining_on_but_latest(project, kind, k as usize);
    match () {
        () if !work.is_positive() => Duration::ZERO,
        () if rate <= 0.0 => Duration::MAX,
        () => Duration::from_secs_f64(work.as_secs_f64() / rate),
    }
}

/// Checks all projects (R2.14, R2.15).
pub fn check(host: &FetchHost, projects: &[Supplier], queue: &JobQueue) -> StarvationPlan {
    let fractions = PerType::from_fn(|kind| {
        let supplying = projects.iter().filter(|p| p.may_supply[kind] && host.usable[kind] > 0);
        share_fractions(supplying.map(|p| (p.id, p.share)))
    });
    let idle = host.usable.map(|kind, usable| match usable {
        0 => 0.0,
        usable => Instances::whole(*usable).minus(queue.instances(kind)).as_f64().ceil(),
    });
    let mut needs: Vec<Need> = projects
        .iter()
        .filter_map(|project| {
            let fraction = fractions.map(|_, fractions| fractions.get(&project.id).copied());
            need(host, project.id, &fraction, &idle, queue)
        })
        .collect();
    needs.sort_by_key(|need| need.project);
    let urgency = needs.iter().map(|need| need.urgency).max().unwrap_or_default();
    let holds_for = needs.iter().filter(|need| need.urgency == Urgency::None).map(|need| need.lasts);
    let holds_for = holds_for.min().unwrap_or(Duration::MAX);
    StarvationPlan { urgency, needs, idle, holds_for }
}

/// What a project needs, given its fraction of each type that it may supply; none if it supplies nothing.
fn need(
    host: &FetchHost,
    project: ProjectId,
    fraction: &PerType<Option<f64>>,
    idle: &PerType<f64>,
    queue: &JobQueue,
) -> Option<Need> {
    let mut need: Option<Need> = None;
    for (kind, fraction) in fraction.iter().filter_map(|(kind, fraction)| Some((kind, (*fraction)?))) {
        let starvation = starvation(host, project, kind, fraction, queue);
        let missing = (host.buffer.high - starvation.starves_in).max(Duration::ZERO).mul_f64(starvation.rate);
        let starves = starvation.urgency > Urgency::None;
        let fill = if starves { missing.max(REQUEST_MIN) } else { missing };
        let need = need.get_or_insert(Need {
            project,
            urgency: starvation.urgency,
            request: WorkRequest::default(),
            piggyback: WorkRequest::default(),
            first: starvation,
            lasts: Duration::MAX,
        });
        if !starves {
            need.lasts = need.lasts.min(lasts(host, &starvation));
        }
        if fill.is_positive() {
            need.piggyback.seconds[kind] = InstanceSeconds::of_one(fill);
            need.piggyback.instances[kind] = idle[kind];
        }
        if starves {
            need.request.seconds[kind] = InstanceSeconds::of_one(fill);
            need.request.instances[kind] = idle[kind];
        }
        if starvation.urgency > need.first.urgency
            || (starvation.urgency == need.first.urgency && starvation.starves_in < need.first.starves_in)
        {
            need.first = starvation;
        }
        need.urgency = need.urgency.max(starvation.urgency);
    }
    need
}

/// How long a project that does not starve of a type cannot do so, if all instances computed for it.
fn lasts(host: &FetchHost, starvation: &TypeStarvation) -> Duration {
    let usable = f64::from(host.usable[starvation.kind]);
    if starvation.rate <= 0.0 || usable <= 0.0 || starvation.starves_in == Duration::MAX {
        return Duration::MAX;
    }
    (starvation.starves_in - host.buffer.low).max(Duration::ZERO).mul_f64(starvation.rate / usable)
}

fn starvation(
    host: &FetchHost,
    project: ProjectId,
    kind: ResourceType,
    fraction: f64,
    queue: &JobQueue,
) -> TypeStarvation {
    let min_results = min_results(host.usable[kind], fraction);
    let rate = avg_proc_rate(fraction, host.usable[kind], host.active_fraction);
    let starves_in = ettprc(queue, project, kind, min_results.saturating_sub(1), rate);
    let urgency = match () {
        // A project whose share counts for nothing beside others starves nobody.
        () if rate <= 0.0 => Urgency::None,
        () if starves_in == Duration::ZERO => Urgency::NeedWorkImmediately,
        () if starves_in < host.buffer.low => Urgency::NeedWork,
        () => Urgency::None,
    };
    TypeStarvation { kind, urgency, starves_in, min_results, rate }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TypeStarvation { kind, starves_in, min_results, rate, .. } = self.first;
        match self.urgency {
            Urgency::None => write!(f, "there is enough: ")?,
            Urgency::NeedWork => write!(f, "it runs out: ")?,
            Urgency::NeedWorkImmediately => {
                return write!(f, "fewer than {min_results} jobs are left for the {kind}");
            }
        }
        match starves_in {
            Duration::MAX => write!(f, "at {rate:.2} of the {kind} it lasts for ever"),
            _ => {
                write!(f, "fewer than {min_results} jobs are left in {starves_in} at {rate:.2} of the {kind}")
            }
        }
    }
}
