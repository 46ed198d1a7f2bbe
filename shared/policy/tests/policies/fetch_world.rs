//! A small world for fetch policies: what one looks at, in a few lines, and what every one keeps to.

use fallow_domain::{Duration, Fraction, Instant, PerType, ProjectId};
use fallow_policy::accounting::Debt;
use fallow_policy::fetch::{
    FetchChoice, FetchContact, FetchDecision, FetchPolicy, FetchPriority, FetchProject, FetchSituation,
    FetchWhen, TypicalJob,
};
use fallow_policy::job_queue::JobQueue;
use fallow_policy::on_time::OnTime;
use fallow_policy::plan_host::PlanHost;
use fallow_policy::round_robin::{Outlook, PlanProject, RoundRobin};

use crate::world::{PERIOD, With, at_min, job, share};

/// A host that may lack work, and all that fetch policies are told of it. A test changes what matters to it.
pub(crate) struct FetchWorld<'a> {
    pub(crate) now: Instant,
    pub(crate) host: PlanHost,
    pub(crate) buffer_min: Duration,
    pub(crate) buffer_additional: Duration,
    pub(crate) connection_interval: Duration,
    pub(crate) when: FetchWhen,
    pub(crate) on_time: OnTime,
    pub(crate) droughts: PerType<Duration>,
    pub(crate) queue: &'a JobQueue,
    pub(crate) projects: Vec<Attached>,
}

/// A project of it: what is known of it, how it stands, whether it may be asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attached {
    pub(crate) project: FetchProject,
    pub(crate) priority: FetchPriority,
    pub(crate) contact: FetchContact,
    pub(crate) typical: PerType<Option<TypicalJob>>,
}

/// A project that is owed nothing, supplies work of every type, and may be asked for it.
pub(crate) fn attached(id: u32, weight: f64) -> Attached {
    Attached {
        project: FetchProject {
            id: ProjectId(id),
            share: share(weight),
            detach_when_done: false,
            lacks: PerType::default(),
            supplies: PerType::from_fn(|_| true),
            left_out: PerType::default(),
            unrunnable: PerType::default(),
        },
        priority: FetchPriority::Debt(Debt::from_secs(0.0)),
        contact: FetchContact { may_contact: true, ..FetchContact::default() },
        typical: PerType::default(),
    }
}

impl<'a> FetchWorld<'a> {
    /// CPUs that are always on, with a buffer of two hours and none beyond it.
    pub(crate) fn new(cpus: u32, projects: &[Attached], queue: &'a JobQueue) -> Self {
        Self {
            now: at_min(0),
            host: PlanHost::cpus(cpus),
            buffer_min: Duration::from_hours(2),
            buffer_additional: Duration::ZERO,
            connection_interval: Duration::ZERO,
            when: FetchWhen::AnyShortfall,
            on_time: OnTime::default(),
            droughts: PerType::default(),
            queue,
            projects: projects.to_vec(),
        }
    }

    /// What becomes of the jobs.
    fn outlook(&self, least: Duration) -> Outlook {
        let plan = |of: &Attached| PlanProject { id: of.project.id, share: of.project.share, counts: true };
        let projects: Vec<PlanProject> = self.projects.iter().map(plan).collect();
        let least = least.mul_f64(1.0 / self.host.active_fraction.get());
        let window = (self.buffer_min + self.buffer_additional + self.connection_interval).max(least);
        let mut robin = RoundRobin::default();
        robin.simulate(&self.host, &projects, self.queue, window, Duration::ZERO, self.now).clone()
    }

    /// What a policy decides here.
    pub(crate) fn decision(&self, policy: &dyn FetchPolicy) -> FetchDecision {
        let outlook =
            if policy.looks_ahead() { self.outlook(policy.looks_at_least()) } else { Outlook::default() };
        let of = |id| self.projects.iter().find(|of| of.project.id == id);
        policy.decide(&FetchSituation {
            now: self.now,
            host: self.host,
            active_fraction: Fraction::ONE,
            buffer_min: self.buffer_min,
            buffer_additional: self.buffer_additional,
            connection_interval: self.connection_interval,
            when: self.when,
            on_time: &self.on_time,
            droughts: self.droughts,
            scheduling_period: PERIOD,
            queue: self.queue,
            outlook: &outlook,
            backoffs_end: None,
            projects: &|| self.projects.iter().map(|of| of.project).collect(),
            priorities: &|| self.projects.iter().map(|of| of.priority).collect(),
            contact: &|id| of(id).map(|of| of.contact).unwrap_or_default(),
            typical: &|id| of(id).map(|of| of.typical).unwrap_or_default(),
        })
    }
}

/// Whether a project is asked for work now.
pub(crate) fn is_asked(decision: &FetchDecision, id: u32) -> bool {
    decision.of(ProjectId(id)).is_some_and(|asking| !asking.request.is_none())
}

/// Shows R5.3 and R5.4 of what they have in common.
#[test]
fn every_fetch_policy_asks_for_what_an_idle_host_lacks_and_nobody_while_there_is_enough() {
    let enough: JobQueue =
        (1..=4).map(|id| job(id, 1 + id as u32 % 2, 1_000).left(Duration::from_hours(24))).collect();
    let empty = JobQueue::default();
    for policy in FetchChoice::all() {
        let asks = |queue| FetchWorld::new(2, &[attached(1, 100.0), attached(2, 100.0)], queue);
        assert!(asks(&empty).decision(&*policy).wants_work(), "{policy}");
        assert!(!asks(&enough).decision(&*policy).wants_work(), "{policy}");
    }
}

/// Shows R3.9 of every policy.
#[test]
fn no_fetch_policy_asks_whoever_is_leaving_or_may_send_none_of_the_type() {
    let empty = JobQueue::default();
    let [mut leaving, mut left_out, mut unrunnable] = [attached(1, 100.0); 3];
    leaving.project.detach_when_done = true;
    left_out.project.left_out = PerType::cpu(true);
    unrunnable.project.unrunnable = PerType::cpu(true);
    for policy in FetchChoice::all() {
        for closed in [leaving, left_out, unrunnable] {
            let decision = FetchWorld::new(1, &[closed, attached(2, 1.0)], &empty).decision(&*policy);
            assert!(!is_asked(&decision, 1) && is_asked(&decision, 2), "{policy}: {:?}", closed.project);
        }
    }
}
