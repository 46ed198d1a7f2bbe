//! A host with eight CPUs and its queue.

use std::num::NonZeroU32;

use divan::black_box;
use fallow_domain::{Bytes, Duration, Instant, JobId, PerType, ProjectId, ResourceType, Share, Usage};
use fallow_policy::accounting::Debt;
use fallow_policy::cpu_schedule::{ProjectSnapshot, ScheduleHost, choose};
use fallow_policy::fetch::shortfall::{FetchCandidate, FetchRules, TypeNeed, plan};
use fallow_policy::fetch::{FetchContact, FetchPriority, FetchWhen};
use fallow_policy::job_queue::{AtOnce, Devices, JobQueue, JobSnapshot, RunState};
use fallow_policy::plan_host::PlanHost;
use fallow_policy::round_robin::{PlanProject, RoundRobin};

pub(crate) const CPUS: u32 = 8;

/// How near deadlines are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Deadlines {
    /// All jobs will be in time.
    Far,
    /// About every other job will be late.
    Near,
}

pub(crate) fn now() -> Instant {
    Instant::from_secs_f64(1.8e9)
}

pub(crate) fn schedule_host() -> ScheduleHost {
    ScheduleHost {
        usable: CPUS,
        devices: PerType::default(),
        scheduling_period: Duration::from_hours(1),
        memory_limit: Bytes::from_mebibytes(16_000),
        preempt_only_at_checkpoint: true,
    }
}

/// A host with its queue.
pub(crate) struct World {
    pub(crate) queue: JobQueue,
    host: PlanHost,
    robin: RoundRobin,
    projects: Vec<PlanProject>,
    snapshots: Vec<ProjectSnapshot>,
    candidates: Vec<FetchCandidate>,
    turn: i64,
}

impl World {
    /// Of the jobs one in fifty is preempted; eight run, past their slices, so that nothing is settled before
    /// debts are compared. Jobs take 45 to 75 minutes.
    pub(crate) fn new(jobs: u64, count: u32, deadlines: Deadlines) -> Self {
        let all = Duration::from_hours(1).mul_f64(jobs as f64 / f64::from(CPUS));
        let spread = match deadlines {
            Deadlines::Far => all * 4 + Duration::from_hours(24 * 14),
            Deadlines::Near => all,
        };
        let job = |id: u64| {
            let place = (id * 7_919 % 1_000_003 % jobs.max(1)) as f64 / jobs as f64;
            JobSnapshot {
                id: JobId(id),
                project: ProjectId((id % u64::from(count)) as u32),
                application: None,
                barred: Devices::NONE,
                usage: Usage::ONE_CPU,
                state: match id {
                    0..8 => {
                        let slice_began = now() - Duration::from_hours(2);
                        RunState::Running { slice_began, checkpointed_at: now(), devices: Devices::NONE }
                    }
                    _ if id.is_multiple_of(50) => RunState::Preempted,
                    _ => RunState::Unstarted,
                },
                deadline: match deadlines {
                    Deadlines::Far => now() + all * 2 + Duration::from_hours(48) + spread.mul_f64(place),
                    Deadlines::Near => now() + spread.mul_f64(place),
                },
                working_set: Bytes::from_mebibytes(100 + id % 5 * 50),
                remaining: Duration::from_mins(45 + (id * 31 % 31) as i64),
            }
        };
        let priority = |id: u32| PerType::cpu(Debt::from_secs(f64::from(id * 7_919 % 10_007) - 5_000.0));
        let misses = PerType::default();
        Self {
            queue: (0..jobs).map(job).collect(),
            host: PlanHost::cpus(CPUS),
            robin: RoundRobin::default(),
            projects: (0..count)
                .map(|id| PlanProject { id: ProjectId(id), share: Share::DEFAULT, counts: true })
                .collect(),
            snapshots: (0..count)
                .map(|id| ProjectSnapshot {
                    id: ProjectId(id),
                    share: Share::DEFAULT,
                    priority: priority(id),
                    misses,
                })
                .collect(),
            candidates: (0..count)
                .map(|id| FetchCandidate {
                    id: ProjectId(id),
                    share: Share::DEFAULT,
                    priority: FetchPriority::Debt(priority(id)[ResourceType::Cpu]),
                    over_served: false,
                    tight: false,
                    may_supply: true,
                    contact: FetchContact { may_contact: true, ..FetchContact::default() },
                    backed_off: PerType::default(),
                    untried: PerType::default(),
                    shortfall: PerType::default(),
                })
                .collect(),
            turn: 0,
        }
    }

    /// The owner lets so many jobs of each project run at once.
    pub(crate) fn limit_each(mut self, most: u32) -> Self {
        for project in &self.projects {
            self.queue.limit(project.id, AtOnce { project: NonZeroU32::new(most), ..AtOnce::default() });
        }
        self
    }

    pub(crate) fn snapshots(&self) -> Vec<ProjectSnapshot> {
        self.snapshots.clone()
    }

    /// Simulates after a change: the estimate of a task moves up or down.
    pub(crate) fn simulate(&mut self) {
        self.turn += 1;
        let minutes = 40 + self.turn % 2 * 10;
        self.queue.update(JobId(3), |job| job.remaining = Duration::from_mins(minutes));
        let runs = self.robin.runs();
        self.look();
        assert!(self.robin.runs() > runs, "nothing was simulated");
    }

    fn look(&mut self) {
        let window = Duration::from_hours(8);
        let (host, queue) = (black_box(&self.host), black_box(&self.queue));
        self.robin.simulate(host, &self.projects, queue, window, Duration::ZERO, now());
    }

    /// A full decision after a change: simulation, deadline check, choice, work fetch.
    pub(crate) fn decide(&mut self) {
        self.simulate();
        self.carry_on();
    }

    /// The same when nothing changed.
    pub(crate) fn decide_again(&mut self) {
        self.look();
        self.carry_on();
    }

    fn carry_on(&mut self) {
        let outlook = self.robin.outlook();
        let places = self.snapshots.iter_mut().zip(&mut self.candidates).zip(&outlook.projects);
        for ((snapshot, candidate), of) in places {
            snapshot.misses = of.misses;
            candidate.tight = of.misses.iter().any(|(_, misses)| *misses > 0);
            candidate.shortfall = of.shortfall;
        }
        for id in self.queue.limited() {
            for kind in ResourceType::ALL {
                black_box(self.queue.cut_to(id, kind, &self.host.instances));
            }
        }
        let used = PerType::cpu(Duration::from_hours(8));
        black_box(choose(&schedule_host(), &used, &self.snapshots, &self.queue, now()));
        let rules = FetchRules {
            speeds: self.host.speeds,
            when: FetchWhen::AnyShortfall,
            buffer_min: Duration::from_hours(2),
        };
        let needs = outlook.types.map(|_, of| TypeNeed {
            idle: of.idle,
            shortfall: of.shortfall,
            saturated: of.saturated,
        });
        black_box(plan(&rules, &needs, &self.candidates));
    }
}
