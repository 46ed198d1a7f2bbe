//! Small worlds for tests: jobs and projects in a line each.

use fallow_domain::{Bytes, Duration, Instant, JobId, PerType, ProjectId, ResourceType, Share, Usage};
use fallow_policy::accounting::Debt;
use fallow_policy::cpu_schedule::{ProjectSnapshot, Schedule, ScheduleHost, ScheduledJob, WhyRun};
use fallow_policy::job_queue::{Devices, JobQueue, JobSnapshot, RunState};
use proptest::prelude::*;

pub(crate) const PERIOD: Duration = Duration::from_mins(60);

pub(crate) fn at_min(minutes: i64) -> Instant {
    Instant::from_secs_f64(1.8e9) + Duration::from_mins(minutes)
}

/// An unstarted one-CPU job of an hour with a deadline in so many hours.
pub(crate) fn job(id: u64, project: u32, deadline_hours: i64) -> JobSnapshot {
    JobSnapshot {
        id: JobId(id),
        project: ProjectId(project),
        application: None,
        barred: Devices::NONE,
        usage: Usage::ONE_CPU,
        state: RunState::Unstarted,
        deadline: at_min(60 * deadline_hours),
        working_set: Bytes::from_mebibytes(100),
        remaining: Duration::from_hours(1),
    }
}

pub(crate) trait With {
    fn state(self, state: RunState) -> Self;
    fn running_since(self, minute: i64) -> Self;
    fn checkpointed(self, minute: i64) -> Self;
    fn cpus(self, cpus: f64) -> Self;
    fn memory(self, mib: u64) -> Self;
    fn left(self, left: Duration) -> Self;
    fn nvidia(self, count: f64) -> Self;
    fn on(self, device: u32) -> Self;
}

impl With for JobSnapshot {
    fn state(self, state: RunState) -> Self {
        Self { state, ..self }
    }
    fn running_since(self, minute: i64) -> Self {
        let slice_began = at_min(minute);
        self.state(RunState::Running { slice_began, checkpointed_at: slice_began, devices: Devices::NONE })
    }
    fn checkpointed(self, minute: i64) -> Self {
        match self.state {
            RunState::Running { slice_began, devices, .. } => {
                self.state(RunState::Running { slice_began, checkpointed_at: at_min(minute), devices })
            }
            _ => self,
        }
    }
    fn cpus(self, cpus: f64) -> Self {
        Self { usage: Usage::from_cpus(cpus), ..self }
    }
    fn memory(self, mib: u64) -> Self {
        Self { working_set: Bytes::from_mebibytes(mib), ..self }
    }
    fn left(self, remaining: Duration) -> Self {
        Self { remaining, ..self }
    }
    fn nvidia(self, count: f64) -> Self {
        Self { usage: self.usage.with_coprocessor(ResourceType::Nvidia, count), ..self }
    }
    fn on(self, device: u32) -> Self {
        match self.state {
            RunState::Running { slice_began, checkpointed_at, devices } => {
                let devices = devices.with(device);
                self.state(RunState::Running { slice_began, checkpointed_at, devices })
            }
            _ => self,
        }
    }
}

pub(crate) fn host(usable: u32) -> ScheduleHost {
    ScheduleHost {
        usable,
        devices: PerType::default(),
        scheduling_period: PERIOD,
        memory_limit: Bytes::from_mebibytes(4_000),
        preempt_only_at_checkpoint: false,
    }
}

/// A project with share 100 and a debt in minutes.
pub(crate) fn project(id: u32, debt_min: f64) -> ProjectSnapshot {
    let priority = PerType::from_fn(|_| Debt::from_secs(debt_min * 60.0));
    ProjectSnapshot { id: ProjectId(id), share: Share::DEFAULT, priority, misses: PerType::default() }
}

pub(crate) fn share(weight: f64) -> Share {
    Share::new(weight).expect("a test gives sensible shares")
}

/// Carries a decision out: what it started, resumed or chose again runs with its new time slice, and what it
/// preempted is preempted.
pub(crate) fn carry_out(queue: &mut JobQueue, schedule: &Schedule, now: Instant) {
    for chosen in &schedule.run {
        queue.update(chosen.job, |job| {
            let checkpointed_at = match job.state {
                RunState::Running { checkpointed_at, .. } => checkpointed_at,
                _ => now,
            };
            let (slice_began, devices) = (chosen.slice_began, chosen.devices);
            job.state = RunState::Running { slice_began, checkpointed_at, devices };
        });
    }
    for passed in &schedule.preempt {
        queue.update(passed.job, |job| job.state = RunState::Preempted);
    }
}

/// Why a job runs.
pub(crate) fn why(chosen: &ScheduledJob) -> WhyRun {
    *chosen.why.reason().expect("of the deal")
}

pub(crate) fn ran(schedule: &Schedule) -> Vec<u64> {
    schedule.run.iter().map(|chosen| chosen.job.0).collect()
}

pub(crate) fn any_state() -> impl Strategy<Value = RunState> {
    prop_oneof![
        Just(RunState::Downloading),
        Just(RunState::Unstarted),
        Just(RunState::Preempted),
        (-200_i64..10, 0_i64..200).prop_map(|(began, later)| RunState::Running {
            slice_began: at_min(began),
            checkpointed_at: at_min(began + later),
            devices: Devices::NONE,
        }),
    ]
}

/// Jobs of up to six projects, with ids from 1.
pub(crate) fn any_jobs(max: usize) -> impl Strategy<Value = Vec<JobSnapshot>> {
    let cpus = prop_oneof![4 => Just(1.0), 1 => 0.1..1.0_f64, 1 => 1.0..5.0_f64];
    let row = (1_u32..7, any_state(), 0_i64..200, cpus, 0_u64..3_000, 0_i64..100_000);
    prop::collection::vec(row, 0..max).prop_map(|rows| {
        (1..)
            .zip(rows)
            .map(|(id, (project, state, deadline, cpus, mib, secs))| {
                job(id, project, deadline).state(state).cpus(cpus).memory(mib).left(Duration::from_secs(secs))
            })
            .collect()
    })
}

/// Projects 1 to 5 (6 takes no part) with debts in minutes.
pub(crate) fn any_projects() -> impl Strategy<Value = Vec<ProjectSnapshot>> {
    prop::collection::vec((-500.0..500.0_f64, prop_oneof![4 => Just(100.0), 1 => Just(0.0)]), 5).prop_map(
        |rows| {
            (1..)
                .zip(rows)
                .map(|(id, (debt, share))| ProjectSnapshot { share: self::share(share), ..project(id, debt) })
                .collect()
        },
    )
}
