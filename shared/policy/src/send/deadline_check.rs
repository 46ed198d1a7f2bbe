//! Which jobs a host can take beside those that it has.

use fallow_domain::{Instant, PerType, ResourceType};

use super::host_clock::HostClock;
use super::simulation::Workload;
use super::{InProgress, Load, SendHost, WhyNotSent};

/// Tells which jobs a host can take, by one clock.
pub(super) struct DeadlineCheck<'a, List> {
    host: &'a SendHost,
    clock: HostClock<'a>,
    now: Instant,
    /// Of all jobs that count, with their deadlines on that clock.
    load: Load,
    /// Lists the host's jobs, the first time.
    list: Option<List>,
    /// The host's jobs once they are listed, and before that the jobs that were taken without looking at
    /// them.
    jobs: Vec<InProgress>,
    workloads: PerType<Option<Workload>>,
}

impl<'a, List: FnOnce() -> Vec<InProgress>> DeadlineCheck<'a, List> {
    /// Of a host with these jobs.
    pub(super) fn new(
        host: &'a SendHost,
        clock: HostClock<'a>,
        now: Instant,
        load: Load,
        list: List,
    ) -> Self {
        let load = Load { earliest: clock.at(now, load.earliest), ..load };
        Self { host, clock, now, load, list: Some(list), jobs: Vec::new(), workloads: PerType::default() }
    }

    /// Why a job should not be sent, if it should not.
    pub(super) fn refuses(&mut self, job: &InProgress) -> Option<WhyNotSent> {
        let (kind, job) = (job.usage.main_type(), self.on_clock(job));
        if self.workloads[kind].is_none() && self.has_room_for(&job) {
            return None;
        }
        self.workload(kind).refuses(&job)
    }

    /// A job counts from now on.
    pub(super) fn add(&mut self, job: &InProgress) {
        let (kind, job) = (job.usage.main_type(), self.on_clock(job));
        match &mut self.workloads[kind] {
            Some(workload) => workload.add(&job),
            None => {
                if kind == ResourceType::Cpu {
                    self.load.add(&job);
                }
                self.jobs.push(job);
            }
        }
    }

    fn has_room_for(&self, job: &InProgress) -> bool {
        let cpus = self.host.instances[ResourceType::Cpu];
        self.load.has_room_for(job, cpus, self.clock.stretch(), self.now)
    }

    fn on_clock(&self, job: &InProgress) -> InProgress {
        InProgress { deadline: self.clock.at(self.now, job.deadline), ..*job }
    }

    fn workload(&mut self, kind: ResourceType) -> &mut Workload {
        if let Some(list) = self.list.take() {
            let held: Vec<InProgress> = list().iter().map(|job| self.on_clock(job)).collect();
            // Those taken before count behind the host's own of the same deadline.
            let taken = std::mem::replace(&mut self.jobs, held);
            self.jobs.extend(taken);
        }
        let Self { host, clock, now, jobs, .. } = self;
        self.workloads[kind].get_or_insert_with(|| Workload::new(kind, host, clock.stretch(), *now, jobs))
    }
}
