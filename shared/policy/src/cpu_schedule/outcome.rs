//! What a deal comes to.

use fallow_domain::{Duration, Instant, JobId, PerType, ResourceType};

use super::deal::Deal;
use super::{Passed, Schedule, WhyChosen, WhyNot};
use crate::accounting::Debt;
use crate::job_queue::{Instances, JobSnapshot};

impl Deal<'_> {
    /// What no runnable job could use of a type: jobs that could never run do not count as such.
    fn starved(&self, kind: ResourceType) -> Instances {
        if self.host.instances(kind) == 0 {
            return Instances::ZERO;
        }
        let mut could_use = Instances::ZERO;
        for lane in self.projects.iter().filter_map(|p| self.queue.lane(p.id, kind)) {
            could_use = could_use.plus(lane.runnable_instances);
            let tasks = lane.tasks().filter_map(|id| self.queue.get(id)).map(|job| (job.needs(), 1));
            let unstarted = lane.unstarted.iter().map(|(needs, bucket)| (*needs, bucket.len()));
            for (needs, count) in tasks.chain(unstarted) {
                if self.room.hopeless(&needs).is_some() {
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
            None => WhyNot::ProjectOut,
            Some(at) => self.passed.get(&job.id).copied().unwrap_or(WhyNot::Outranked {
                anticipated: self
                    .anticipated
                    .get(at)
                    .map_or(Debt::ZERO, |of| Debt::from_secs(of[job.usage.main_type()])),
            }),
        };
        let preempt: Vec<Passed> = self
            .queue
            .running()
            .filter(|job| !self.picked.contains(&job.id))
            .map(|job| Passed { job: job.id, reason: why(job) })
            .collect();
        let is_running = |id: &JobId| self.queue.get(*id).is_some_and(JobSnapshot::is_running);
        let waiting = self
            .passed
            .iter()
            .filter(|(id, _)| !is_running(id))
            .map(|(id, reason)| Passed { job: *id, reason: *reason })
            .collect();
        let period = self.host.scheduling_period;
        let ends = self.run.iter().filter_map(|chosen| match chosen.reason {
            WhyChosen::InTimeSlice { ends } => Some(ends),
            WhyChosen::BeforeCheckpoint { latest } => Some(latest),
            WhyChosen::Endangered { .. } => Some(chosen.slice_began + period),
            WhyChosen::MostOwed { .. } => None,
        });
        // A task whose device is gone is free for another one as soon as it is preempted.
        let moves = preempt.iter().any(|passed| matches!(passed.reason, WhyNot::DeviceGone { .. }));
        let at_latest = self.now + if moves { Duration::from_secs(1) } else { period };
        Schedule {
            waiting,
            idle: PerType::from_fn(|kind| self.room.idle(kind)),
            starved: PerType::from_fn(|kind| self.starved(kind)),
            decide_by: ends.fold(at_latest, Instant::min),
            preempt,
            run: self.run,
        }
    }
}
