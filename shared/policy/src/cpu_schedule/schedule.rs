//! The decision that an allocation leads to.

use fallow_domain::{Duration, Instant, JobId, PerType, ResourceType};

use super::allocation::{Allocation, PlacedJob};
use super::{Schedule, ScheduledJob, UnscheduledJob, WhyNotRun, WhyRun};
use crate::accounting::Debt;
use crate::job_queue::{Instances, JobSnapshot, Needs};
use crate::why::Why;

impl Allocation<'_> {
    /// What no runnable job could use of a type: jobs that could never run do not count as such.
    fn starved(&self, kind: ResourceType) -> Instances {
        if self.host.instances(kind) == 0 {
            return Instances::ZERO;
        }
        let instances = PerType::from_fn(|kind| self.host.instances(kind));
        let mut could_use = Instances::ZERO;
        for project in self.projects {
            let can_run = |needs: &Needs| self.free.can_never_run(needs).is_none();
            if let Some(limited) = self.queue.usable_now(project.id, kind, &instances, can_run) {
                could_use = could_use.plus(limited);
                continue;
            }
            let Some(subqueue) = self.queue.subqueue(project.id, kind) else { continue };
            could_use = could_use.plus(subqueue.runnable_instances);
            let tasks = subqueue.tasks().filter_map(|id| self.queue.get(id)).map(|job| (job.needs(), 1));
            let unstarted = subqueue.unstarted.iter().map(|(needs, bucket)| (*needs, bucket.len()));
            for (needs, count) in tasks.chain(unstarted) {
                if self.free.can_never_run(&needs).is_some() {
                    could_use = could_use.minus(needs.of(kind).times(count));
                }
            }
        }
        if kind == ResourceType::Cpu {
            let chosen = self.run.iter().filter_map(|chosen| self.queue.get(chosen.job));
            let gpu_jobs = chosen.filter(|job| job.usage.coprocessor.is_some());
            could_use = gpu_jobs.fold(could_use, |sum, job| sum.plus(job.needs().cpus));
        }
        Instances::whole(self.host.instances(kind)).minus(could_use)
    }

    pub(super) fn into_schedule(self) -> Schedule {
        let why = |job: &JobSnapshot| match self.projects.iter().position(|p| p.id == job.project) {
            None => WhyNotRun::ProjectOut,
            Some(at) => self.passed.get(&job.id).copied().unwrap_or(WhyNotRun::Outranked {
                anticipated: self
                    .anticipated
                    .get(at)
                    .map_or(Debt::ZERO, |of| Debt::from_secs(of[job.usage.main_type()])),
            }),
        };
        let preempt: Vec<(JobId, WhyNotRun)> = self
            .queue
            .running()
            .filter(|job| !self.picked.contains(&job.id))
            .map(|job| (job.id, why(job)))
            .collect();
        let is_running = |id: &JobId| self.queue.get(*id).is_some_and(JobSnapshot::is_running);
        let waiting = self.passed.iter().filter(|(id, _)| !is_running(id)).map(|(id, why)| (*id, *why));
        let period = self.host.scheduling_period;
        let ends = self.run.iter().filter_map(|placed| match placed.reason {
            WhyRun::InTimeSlice { ends } => Some(ends),
            WhyRun::BeforeCheckpoint { latest } => Some(latest),
            WhyRun::Endangered { .. } => Some(placed.slice_began + period),
            WhyRun::MostOwed { .. } => None,
        });
        // A task whose device is gone is free for another one as soon as it is preempted.
        let moves = preempt.iter().any(|(_, why)| why.is_device_gone());
        let at_latest = self.now + if moves { Duration::from_secs(1) } else { period };
        Schedule {
            waiting: passed(&waiting.collect::<Vec<_>>()),
            idle: PerType::from_fn(|kind| self.free.idle(kind)),
            starved: PerType::from_fn(|kind| self.starved(kind)),
            decide_by: ends.fold(at_latest, Instant::min),
            preempt: passed(&preempt),
            run: chosen(&self.run),
        }
    }
}

/// The jobs that run, with the reasons as values of any type.
fn chosen(run: &[PlacedJob]) -> Vec<ScheduledJob> {
    let whys = Why::each(run.iter().map(|placed| placed.reason).collect());
    let chosen = |(placed, why): (&PlacedJob, Why)| ScheduledJob {
        job: placed.job,
        project: placed.project,
        action: placed.action,
        slice_began: placed.slice_began,
        devices: placed.devices,
        until_checkpoint: matches!(placed.reason, WhyRun::BeforeCheckpoint { .. }),
        rule: placed.reason.rule(),
        why,
    };
    run.iter().zip(whys).map(chosen).collect()
}

/// The jobs that do not run, likewise.
fn passed(jobs: &[(JobId, WhyNotRun)]) -> Vec<UnscheduledJob> {
    // Mostly there are none, and reasons take an allocation.
    if jobs.is_empty() {
        return Vec::new();
    }
    let whys = Why::each(jobs.iter().map(|(_, reason)| *reason).collect());
    let passed = |((job, reason), why): (&(JobId, WhyNotRun), Why)| UnscheduledJob {
        job: *job,
        gives_up_devices: reason.is_device_gone(),
        why,
    };
    jobs.iter().zip(whys).map(passed).collect()
}
