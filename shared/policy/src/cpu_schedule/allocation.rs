//! The allocation of instances to jobs: one decision in progress. The parent module says by which rules.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use fallow_domain::{Duration, Instant, JobId, PerType, ProjectId, ResourceType};

use super::endangered::endangered;
use super::free_resources::{FreeResources, HeldDevices};
use super::{CHECKPOINT_FRESH, ProjectSnapshot, RunAction, ScheduleHost, WhyNotRun, WhyRun};
use crate::accounting::Debt;
use crate::job_queue::{Devices, Instances, JobQueue, JobSnapshot, Places, RunState, Subqueue};

/// Endangered jobs that do not fit are passed over, but no more than so many in a decision: a bound on work.
const ENDANGERED_PASSED_MAX: usize = 256;

/// A project that competes for instances of a type. The next one to be served is the greatest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Contender {
    pub(super) counts: bool,
    pub(super) anticipated: f64,
    pub(super) id: ProjectId,
    /// Its place among the projects.
    pub(super) at: usize,
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

/// A job to take, where, and why if it is not that its project is owed most.
type Pick = (JobSnapshot, Devices, Option<WhyRun>);

/// A job that was allocated what it needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlacedJob {
    pub(super) job: JobId,
    pub(super) project: ProjectId,
    pub(super) action: RunAction,
    pub(super) slice_began: Instant,
    pub(super) devices: Devices,
    pub(super) reason: WhyRun,
}

/// An allocation in progress.
pub(super) struct Allocation<'a> {
    pub(super) host: &'a ScheduleHost,
    pub(super) queue: &'a JobQueue,
    pub(super) projects: &'a [ProjectSnapshot],
    pub(super) now: Instant,
    payoff_secs: PerType<f64>,
    /// By place among the projects: what they are owed less what they were given here.
    pub(super) anticipated: Vec<PerType<f64>>,
    pub(super) free: FreeResources,
    /// The places taken of those that the owner limits.
    places: Places,
    /// Running tasks on devices, with what they hold of each.
    on_devices: Vec<(JobId, ResourceType, Devices, Instances)>,
    pub(super) picked: BTreeSet<JobId>,
    pub(super) passed: BTreeMap<JobId, WhyNotRun>,
    pub(super) run: Vec<PlacedJob>,
}

impl<'a> Allocation<'a> {
    pub(super) fn new(
        host: &'a ScheduleHost,
        used: &PerType<Duration>,
        projects: &'a [ProjectSnapshot],
        queue: &'a JobQueue,
        now: Instant,
    ) -> Self {
        let period = host.scheduling_period.as_secs_f64();
        let payoff = used
            .map(|kind, used| used.as_secs_f64() / f64::from(host.instances(kind).max(1)))
            .map(|_, each| each.max(period));
        let on_devices = queue.running().filter_map(|job| match (job.state, job.usage.coprocessor) {
            (RunState::Running { devices, .. }, Some((kind, _))) => {
                Some((job.id, kind, devices, job.main_instances().min(Instances::ONE)))
            }
            _ => None,
        });
        Self {
            host,
            queue,
            projects,
            now,
            payoff_secs: payoff,
            anticipated: projects.iter().map(|p| p.priority.map(|_, owed| owed.as_secs())).collect(),
            free: FreeResources::new(host),
            places: Places::default(),
            on_devices: on_devices.collect(),
            picked: BTreeSet::new(),
            passed: BTreeMap::new(),
            run: Vec::new(),
        }
    }

    pub(super) fn finish(mut self, hold: &PerType<bool>) -> Self {
        for kind in ResourceType::COPROCESSORS.into_iter().chain([ResourceType::Cpu]) {
            if self.host.instances(kind) == 0 || self.host.usable == 0 {
                continue;
            }
            self.take_endangered(kind);
            if hold[kind] {
                self.allocate(kind, Self::held);
            }
            self.allocate(kind, Self::next_job);
        }
        self
    }

    fn take_endangered(&mut self, kind: ResourceType) {
        let mut misfits = 0;
        let (queue, now, period) = (self.queue, self.now, self.host.scheduling_period);
        let in_slice = move |id| queue.get(id).is_some_and(|job| job.state.is_in_slice(now, period));
        for (id, misses) in endangered(self.projects, queue, kind, in_slice) {
            if self.free.idle(kind) == Instances::ZERO || misfits > ENDANGERED_PASSED_MAX {
                break;
            }
            let Some(job) = self.queue.get(id) else { continue };
            // However many of a project have no place, the others are looked at.
            if self.lacks_place(job) {
                continue;
            }
            match self.place(job) {
                Some(devices) => {
                    let at = self.projects.iter().position(|project| project.id == job.project);
                    let reason = WhyRun::Endangered { deadline: job.deadline, misses };
                    self.take(at.unwrap_or_default(), job, devices, reason);
                }
                None => misfits += 1,
            }
        }
    }

    fn contender(&self, at: usize, project: &ProjectSnapshot, kind: ResourceType) -> Contender {
        let anticipated = self.anticipated.get(at).map_or(0.0, |of| of[kind]);
        Contender { counts: project.share.get() > 0.0, anticipated, id: project.id, at }
    }

    /// Serves the project that is owed most until nothing is left or nothing fits.
    fn allocate(&mut self, kind: ResourceType, pick: fn(&mut Self, &'a Subqueue) -> Option<Pick>) {
        let mut heap: BinaryHeap<Contender> =
            self.projects.iter().enumerate().map(|(at, project)| self.contender(at, project, kind)).collect();
        while self.free.idle(kind) > Instances::ZERO {
            let Some(mut top) = heap.pop() else { break };
            let Some(subqueue) = self.queue.subqueue(top.id, kind) else { continue };
            if let Some((job, devices, reason)) = pick(self, subqueue) {
                let reason =
                    reason.unwrap_or(WhyRun::MostOwed { anticipated: Debt::from_secs(top.anticipated) });
                self.take(top.at, &job, devices, reason);
                top.anticipated = self.anticipated.get(top.at).map_or(0.0, |of| of[kind]);
                heap.push(top);
            }
        }
    }

    fn take(&mut self, at: usize, job: &JobSnapshot, devices: Devices, reason: WhyRun) {
        let needs = job.needs();
        self.free.take(&needs, devices);
        self.places.take(self.queue, job);
        self.picked.insert(job.id);
        self.passed.remove(&job.id);
        if let Some(of) = self.anticipated.get_mut(at) {
            let kind = job.usage.main_type();
            of[kind] -= self.payoff_secs[kind] * needs.of(kind).as_f64();
        }
        let (action, slice_began) = match job.state {
            RunState::Running { slice_began, .. } => {
                let renewed = match reason {
                    WhyRun::MostOwed { .. } => true,
                    WhyRun::Endangered { .. } => {
                        !job.state.is_in_slice(self.now, self.host.scheduling_period)
                    }
                    _ => false,
                };
                (RunAction::Continue, if renewed { self.now } else { slice_began })
            }
            RunState::Preempted => (RunAction::Resume, self.now),
            _ => (RunAction::Start, self.now),
        };
        self.run.push(PlacedJob { job: job.id, project: job.project, action, slice_began, devices, reason });
    }

    /// The next running task of a project that keeps its instances.
    fn held(&mut self, subqueue: &'a Subqueue) -> Option<Pick> {
        let queue = self.queue;
        subqueue.running.iter().filter_map(|entry| queue.get(entry.id)).find_map(|job| {
            let reason = self.why_held(job)?;
            Some((*job, self.place(job)?, Some(reason)))
        })
    }

    fn why_held(&self, job: &JobSnapshot) -> Option<WhyRun> {
        let RunState::Running { slice_began, checkpointed_at, .. } = job.state else { return None };
        if slice_began > self.now {
            return None;
        }
        let ends = slice_began + self.host.scheduling_period;
        let latest = ends + self.host.scheduling_period;
        let at_checkpoint =
            checkpointed_at > slice_began && self.now.since(checkpointed_at) < CHECKPOINT_FRESH;
        // A task on a coprocessor leaves memory whatever the preferences say.
        let leaves = self.host.preempt_only_at_checkpoint || job.usage.coprocessor.is_some();
        match () {
            () if job.state.is_in_slice(self.now, self.host.scheduling_period) => {
                Some(WhyRun::InTimeSlice { ends })
            }
            () if leaves && !at_checkpoint && self.now < latest => Some(WhyRun::BeforeCheckpoint { latest }),
            () => None,
        }
    }

    /// The next job of a project (R2.3): a running task, else a preempted one, else the unstarted job of
    /// earliest deadline, of those that fit.
    fn next_job(&mut self, subqueue: &'a Subqueue) -> Option<Pick> {
        let queue = self.queue;
        for id in subqueue.tasks() {
            if let Some(job) = queue.get(id)
                && let Some(devices) = self.place(job)
            {
                return Some((*job, devices, None));
            }
        }
        let mut earliest: Option<(&JobSnapshot, Devices)> = None;
        for bucket in subqueue.unstarted.values() {
            let first = bucket.iter().map(|(_, _, id)| id).find(|id| !self.picked.contains(id));
            let Some(job) = first.and_then(|id| queue.get(*id)) else { continue };
            let earlier = |than: &JobSnapshot| {
                (job.deadline, job.left(), job.id) < (than.deadline, than.left(), than.id)
            };
            if let Some(devices) = self.place(job)
                && earliest.is_none_or(|(than, _)| earlier(than))
            {
                earliest = Some((job, devices));
            }
        }
        earliest.map(|(job, devices)| (*job, devices, None))
    }

    /// Where a job not yet picked fits into what is left; notes why if nowhere.
    fn place(&mut self, job: &JobSnapshot) -> Option<Devices> {
        if self.picked.contains(&job.id) || self.lacks_place(job) {
            return None;
        }
        let keep = match job.state {
            RunState::Running { devices, .. } => Some(devices),
            _ => None,
        };
        let held = match job.usage.coprocessor {
            Some((kind, _)) if keep.is_none() => self.held_by_others(kind),
            _ => HeldDevices::new(),
        };
        match self.free.place(&job.needs(), keep, &held) {
            Ok(devices) => Some(devices),
            Err(reason) => {
                self.passed.insert(job.id, reason);
                None
            }
        }
    }

    /// Whether as many run already as the owner lets run at once; notes it.
    fn lacks_place(&mut self, job: &JobSnapshot) -> bool {
        let why = self.places.none_for(self.queue, job);
        if let Some(why) = why {
            self.passed.insert(job.id, WhyNotRun::NoPlace(why));
        }
        why.is_some()
    }

    /// Whether a project could have another job of a type run, or has one run, by what the owner lets run at
    /// once.
    pub(super) fn has_places(&self, project: ProjectId, kind: ResourceType) -> bool {
        if self.queue.at_once(project).is_none() {
            return true;
        }
        let Some(subqueue) = self.queue.subqueue(project, kind) else { return false };
        let unstarted = subqueue.unstarted.values().filter_map(|bucket| bucket.first());
        let mut jobs = subqueue.tasks().chain(unstarted.map(|(_, _, id)| *id));
        jobs.any(|id| {
            let job = self.queue.get(id);
            self.picked.contains(&id)
                || job.is_some_and(|job| self.places.none_for(self.queue, job).is_none())
        })
    }

    fn held_by_others(&self, kind: ResourceType) -> HeldDevices {
        let mut held = HeldDevices::new();
        let waiting = self.on_devices.iter().filter(|(id, of, ..)| *of == kind && !self.picked.contains(id));
        for (_, _, devices, part) in waiting {
            for device in devices.iter() {
                let held = held.entry(device).or_default();
                *held = held.plus(*part);
            }
        }
        held
    }
}
