//! Dealing the CPUs out: one decision in progress. The rules are told in the parent.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use fallow_domain::{Bytes, Duration, Instant, JobId, ProjectId};

use super::{
    Action, CHECKPOINT_FRESH, Chosen, HostCpus, Passed, ProjectSnapshot, Schedule, WhyChosen, WhyNot,
};
use crate::debt::Debt;
use crate::job_queue::{Cpus, JobQueue, JobSnapshot, JobState, Needs};

/// A project in the deal, ordered so that the next one to be served is the greatest.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Contender {
    counts: bool,
    anticipated: f64,
    id: ProjectId,
}

impl Eq for Contender {}
impl PartialOrd for Contender {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Contender {
    fn cmp(&self, other: &Self) -> Ordering {
        self.counts
            .cmp(&other.counts)
            .then(self.anticipated.total_cmp(&other.anticipated))
            .then(other.id.cmp(&self.id))
    }
}

impl Contender {
    fn new(project: &ProjectSnapshot) -> Self {
        Self { counts: project.share.get() > 0.0, anticipated: project.debt.as_cpu_secs(), id: project.id }
    }
}

/// A job to take, and why if it is not that its project is owed most.
type Pick = (JobSnapshot, Option<WhyChosen>);

/// A deal in progress.
pub(super) struct Deal<'a> {
    host: &'a HostCpus,
    queue: &'a JobQueue,
    now: Instant,
    payoff_secs: f64,
    contenders: BTreeMap<ProjectId, Contender>,
    free: Needs,
    picked: BTreeSet<JobId>,
    passed: BTreeMap<JobId, WhyNot>,
    run: Vec<Chosen>,
}

impl<'a> Deal<'a> {
    pub(super) fn new(
        host: &'a HostCpus,
        used: Duration,
        projects: &[ProjectSnapshot],
        queue: &'a JobQueue,
        now: Instant,
    ) -> Self {
        let per_cpu = used.as_secs_f64() / f64::from(host.usable.max(1));
        Self {
            host,
            queue,
            now,
            payoff_secs: per_cpu.max(host.scheduling_period.as_secs_f64()),
            contenders: projects.iter().map(|p| (p.id, Contender::new(p))).collect(),
            free: Needs { cpus: Cpus::whole(host.usable), memory: host.memory_limit },
            picked: BTreeSet::new(),
            passed: BTreeMap::new(),
            run: Vec::new(),
        }
    }

    pub(super) fn finish(mut self, hold: bool) -> Self {
        if hold {
            self.deal(Self::held);
        }
        self.deal(Self::next_job);
        self
    }

    /// Serves the project that is owed most until nothing is left or nothing fits.
    fn deal(&mut self, pick: fn(&mut Self, ProjectId) -> Option<Pick>) {
        let mut heap: BinaryHeap<Contender> = self.contenders.values().copied().collect();
        while self.free.cpus > Cpus::ZERO {
            let Some(mut top) = heap.pop() else { break };
            if let Some((job, reason)) = pick(self, top.id) {
                let anticipated = Debt::from_cpu_secs(top.anticipated);
                self.take(&job, reason.unwrap_or(WhyChosen::MostOwed { anticipated }));
                top.anticipated -= self.payoff_secs * job.needs().cpus.as_f64();
                self.contenders.insert(top.id, top);
                heap.push(top);
            }
        }
    }

    fn take(&mut self, job: &JobSnapshot, reason: WhyChosen) {
        let needs = job.needs();
        self.free.cpus = self.free.cpus.minus(needs.cpus);
        self.free.memory = Bytes(self.free.memory.0.saturating_sub(needs.memory.0));
        self.picked.insert(job.id);
        self.passed.remove(&job.id);
        let (action, slice_began) = match (job.state, reason) {
            (JobState::Running { .. }, WhyChosen::MostOwed { .. }) => (Action::Continue, self.now),
            (JobState::Running { slice_began, .. }, _) => (Action::Continue, slice_began),
            (JobState::Preempted, _) => (Action::Resume, self.now),
            _ => (Action::Start, self.now),
        };
        self.run.push(Chosen { job: job.id, project: job.project, action, slice_began, reason });
    }

    /// The next running task of a project that keeps its CPU.
    fn held(&mut self, project: ProjectId) -> Option<Pick> {
        let queue = self.queue;
        let running = &queue.project(project)?.running;
        running.iter().filter_map(|(_, id)| queue.get(*id)).find_map(|job| {
            let reason = self.why_held(job)?;
            self.fits(job).then_some((*job, Some(reason)))
        })
    }

    fn why_held(&self, job: &JobSnapshot) -> Option<WhyChosen> {
        let JobState::Running { slice_began, checkpointed_at } = job.state else { return None };
        // A slice that begins in the future comes from a clock that jumped back: it is over (R1.12).
        if slice_began > self.now {
            return None;
        }
        let ends = slice_began + self.host.scheduling_period;
        let latest = ends + self.host.scheduling_period;
        let at_checkpoint =
            checkpointed_at > slice_began && self.now.since(checkpointed_at) < CHECKPOINT_FRESH;
        match () {
            () if self.now < ends => Some(WhyChosen::InTimeSlice { ends }),
            () if self.host.preempt_only_at_checkpoint && !at_checkpoint && self.now < latest => {
                Some(WhyChosen::BeforeCheckpoint { latest })
            }
            () => None,
        }
    }

    /// The next job of a project (R2.3): a running task, else a preempted one, else the unstarted job of
    /// earliest deadline, of those that fit.
    fn next_job(&mut self, project: ProjectId) -> Option<Pick> {
        let queue = self.queue;
        let jobs = queue.project(project)?;
        for (_, id) in jobs.running.iter().chain(&jobs.preempted) {
            if let Some(job) = queue.get(*id)
                && self.fits(job)
            {
                return Some((*job, None));
            }
        }
        let mut earliest: Option<&JobSnapshot> = None;
        for bucket in jobs.unstarted.values() {
            let first = bucket.iter().map(|(_, id)| id).find(|id| !self.picked.contains(id));
            let Some(job) = first.and_then(|id| queue.get(*id)) else { continue };
            let earlier = |than: &JobSnapshot| (job.deadline, job.id) < (than.deadline, than.id);
            if self.fits(job) && earliest.is_none_or(earlier) {
                earliest = Some(job);
            }
        }
        earliest.map(|job| (*job, None))
    }

    /// Whether a job not yet picked fits into what is left; notes why if not.
    fn fits(&mut self, job: &JobSnapshot) -> bool {
        if self.picked.contains(&job.id) {
            return false;
        }
        let (needs, free) = (job.needs(), self.free);
        let usable = Cpus::whole(self.host.usable);
        let limit = self.host.memory_limit;
        let reason = match () {
            () if needs.cpus > usable => WhyNot::CpusUsable { needed: needs.cpus, usable },
            () if needs.memory > limit => WhyNot::MemoryLimit { needed: needs.memory, limit },
            () if needs.cpus > free.cpus => WhyNot::CpusLeft { needed: needs.cpus, left: free.cpus },
            () if needs.memory > free.memory => {
                WhyNot::MemoryLeft { needed: needs.memory, left: free.memory }
            }
            () => return true,
        };
        self.passed.insert(job.id, reason);
        false
    }

    /// Whether the project that is owed most got nothing because of tasks in their slices, although it is owed
    /// at least one slice of a job that would fit without them.
    pub(super) fn crowded_out(&self, projects: &[ProjectSnapshot], queue: &JobQueue) -> bool {
        let taking_part = projects.iter().filter(|p| queue.is_runnable(p.id));
        let Some(most) = taking_part.map(Contender::new).max() else { return false };
        if self.run.iter().any(|chosen| chosen.project == most.id) {
            return false;
        }
        let period = self.host.scheduling_period.as_secs_f64();
        let room = Needs { cpus: Cpus::whole(self.host.usable), memory: self.host.memory_limit };
        queue.project(most.id).is_some_and(|jobs| {
            let tasks = jobs.running.iter().chain(&jobs.preempted).filter_map(|(_, id)| queue.get(*id));
            let mut needs = tasks.map(JobSnapshot::needs).chain(jobs.unstarted.keys().copied());
            needs.any(|needs| {
                needs.fit(room)
                    && most.anticipated >= period * needs.cpus.as_f64()
                    && !self.fits_after_one_slice(needs)
            })
        })
    }

    /// Whether the end of a single task's slice makes enough room, so that waiting for it is enough.
    fn fits_after_one_slice(&self, needs: Needs) -> bool {
        let chosen = self.run.iter().filter_map(|chosen| self.queue.get(chosen.job));
        let mut rooms = chosen.map(|job| Needs {
            cpus: self.free.cpus.plus(job.needs().cpus),
            memory: self.free.memory.plus(job.needs().memory),
        });
        needs.fit(self.free) || rooms.any(|room| needs.fit(room))
    }

    pub(super) fn into_schedule(self) -> Schedule {
        let why = |job: &JobSnapshot| match self.contenders.get(&job.project) {
            None => WhyNot::ProjectOut,
            Some(c) => self
                .passed
                .get(&job.id)
                .copied()
                .unwrap_or(WhyNot::Outranked { anticipated: Debt::from_cpu_secs(c.anticipated) }),
        };
        let preempt: Vec<Passed> = self
            .queue
            .running()
            .filter(|job| !self.picked.contains(&job.id))
            .map(|job| Passed { job: job.id, reason: why(job) })
            .collect();
        let is_running =
            |id: &JobId| matches!(self.queue.get(*id).map(|j| j.state), Some(JobState::Running { .. }));
        let waiting = self
            .passed
            .iter()
            .filter(|(id, _)| !is_running(id))
            .map(|(id, reason)| Passed { job: *id, reason: *reason })
            .collect();
        let ends = self.run.iter().filter_map(|chosen| match chosen.reason {
            WhyChosen::InTimeSlice { ends } => Some(ends),
            WhyChosen::BeforeCheckpoint { latest } => Some(latest),
            WhyChosen::MostOwed { .. } => None,
        });
        let runnable =
            self.contenders.keys().fold(Cpus::ZERO, |sum, id| sum.plus(self.queue.runnable_cpus(*id)));
        Schedule {
            preempt,
            waiting,
            idle: self.free.cpus,
            starved: Cpus::whole(self.host.usable).minus(runnable),
            decide_by: ends.fold(self.now + self.host.scheduling_period, Instant::min),
            run: self.run,
        }
    }
}
