//! The policies together, CS2 and WF2 with debts, on a host of a CPU and a GPU: R3.13 (and R2.1 on CPUs) with
//! the real simulation and scheduler, servers that send what is asked for, and time in steps of five minutes.

use fallow_domain::{Duration, Fraction, Instant, JobId, PerType, ProjectId, ResourceType, Usage};
use fallow_policy::accounting::{Debts, LongTermDebts, LongTermPeriod, ShortTermPeriod};
use fallow_policy::cpu_schedule::{ProjectSnapshot, ScheduleHost, choose};
use fallow_policy::fetch::FetchPriority;
use fallow_policy::fetch::shortfall::Shortfall;
use fallow_policy::job_queue::{Devices, JobQueue, RunState};
use fallow_policy::plan_host::PlanHost;
use fallow_policy::round_robin::{PlanProject, RoundRobin};
use fallow_policy::type_backoff::{ReplyForType, TypeBackoffs};
use rand::SeedableRng;
use rand_pcg::Pcg64;

use ResourceType::{Cpu, Nvidia};

use crate::fetch_world::{Attached, FetchWorld, attached};
use crate::world::{With, at_min, carry_out, host, job, share};

const STEP: Duration = Duration::from_mins(5);
/// How much work is to be held.
const WINDOW: Duration = Duration::from_mins(504);

struct Project {
    id: ProjectId,
    weight: f64,
    supplies: PerType<bool>,
    length: Duration,
    deadline_hours: i64,
    used: PerType<f64>,
}

struct World {
    plan: PlanHost,
    schedule: ScheduleHost,
    projects: Vec<Project>,
    queue: JobQueue,
    round_robin: RoundRobin,
    debts: Debts,
    long: LongTermDebts,
    backoffs: TypeBackoffs,
    rng: Pcg64,
    period: Vec<PerType<Duration>>,
    now: Instant,
    next_job: u64,
    late: u32,
}

fn gpus(kind: ResourceType) -> Usage {
    if kind.is_coprocessor() { Usage::from_cpus(0.05).with_coprocessor(kind, 1.0) } else { Usage::ONE_CPU }
}

impl World {
    fn new(cpus: u32, gpu: Option<f64>, projects: &[(f64, bool, bool, i64, i64)]) -> Self {
        let mut plan = PlanHost::cpus(cpus);
        let mut schedule = host(cpus);
        if let Some(speed) = gpu {
            (plan.instances[Nvidia], plan.speeds[Nvidia]) = (1, speed);
            schedule.devices[Nvidia] = Devices::first(1);
        }
        plan.active_fraction = Fraction::ONE;
        let project =
            |(id, (weight, cpu, gpu, minutes, deadline_hours)): (u32, &(f64, bool, bool, i64, i64))| {
                let mut supplies = PerType::cpu(*cpu);
                supplies[Nvidia] = *gpu;
                let length = Duration::from_mins(*minutes);
                let (weight, deadline_hours) = (*weight, *deadline_hours);
                Project {
                    id: ProjectId(id),
                    weight,
                    supplies,
                    length,
                    deadline_hours,
                    used: PerType::default(),
                }
            };
        let projects: Vec<Project> = (1..).zip(projects).map(project).collect();
        Self {
            plan,
            schedule,
            period: vec![PerType::default(); projects.len()],
            projects,
            queue: JobQueue::default(),
            round_robin: RoundRobin::default(),
            debts: Debts::default(),
            long: LongTermDebts::default(),
            backoffs: TypeBackoffs::default(),
            rng: Pcg64::seed_from_u64(1),
            now: at_min(0),
            next_job: 1,
            late: 0,
        }
    }

    fn run(&mut self, days: i64) {
        while self.now < at_min(days * 24 * 60) {
            while self.fetch() {}
            self.decide();
            self.compute();
        }
    }

    fn look_ahead(&mut self) {
        let row = |p: &Project| PlanProject { id: p.id, share: share(p.weight), counts: true };
        let projects: Vec<PlanProject> = self.projects.iter().map(row).collect();
        self.round_robin.simulate(&self.plan, &projects, &self.queue, WINDOW, Duration::ZERO, self.now);
    }

    /// One request, if there is one to make.
    fn fetch(&mut self) -> bool {
        let known = |p: &Project| {
            let mut known = attached(p.id.0, p.weight);
            known.priority = FetchPriority::Debt(self.long.overall(p.id, &self.plan.speeds));
            known.project.supplies = PerType::from_fn(|kind| self.long.supplies(p.id, kind));
            known.contact.backed_off = self.backoffs.held(p.id, self.now);
            known
        };
        let projects: Vec<Attached> = self.projects.iter().map(known).collect();
        let world = FetchWorld {
            now: self.now,
            host: self.plan,
            buffer_min: Duration::ZERO,
            buffer_additional: WINDOW,
            ..FetchWorld::new(0, &projects, &self.queue)
        };
        let decision = world.decision(&Shortfall);
        let asked = self.projects.iter().filter_map(|p| Some((p, decision.of(p.id)?.request)));
        let Some((project, request)) = asked.into_iter().find(|(_, request)| !request.is_none()) else {
            return false;
        };
        for kind in request.types() {
            let mut jobs = 0;
            if project.supplies[kind] {
                let length = project.length.as_secs_f64();
                let wanted = (request.seconds[kind].get() / length).max(request.instances[kind]).ceil();
                while f64::from(jobs) < wanted {
                    let mut sent = job(self.next_job, project.id.0, 0).left(project.length);
                    sent.usage = gpus(kind);
                    sent.deadline = self.now + Duration::from_hours(project.deadline_hours);
                    self.queue.insert(sent);
                    self.next_job += 1;
                    jobs += 1;
                }
            }
            let reply =
                if project.supplies[kind] { ReplyForType::Jobs(jobs) } else { ReplyForType::NotSupported };
            let after = self.backoffs.on_reply(project.id, kind, reply, self.now, &mut self.rng);
            self.long.on_reply(project.id, kind, reply, after);
        }
        true
    }

    fn decide(&mut self) {
        let row = |(p, used): (&Project, &PerType<Duration>)| ShortTermPeriod {
            project: p.id,
            share: share(p.weight),
            used: *used,
            runnable: PerType::from_fn(|kind| self.queue.is_runnable_on(p.id, kind)),
        };
        let period: Vec<ShortTermPeriod> = self.projects.iter().zip(&self.period).map(row).collect();
        let used = self.debts.update(&self.plan, &period);
        self.period.fill(PerType::default());
        self.look_ahead();
        let outlook = self.round_robin.outlook();
        let row = |p: &Project| ProjectSnapshot {
            id: p.id,
            share: share(p.weight),
            priority: self.debts.of(p.id),
            misses: outlook.of(p.id).map(|of| of.misses).unwrap_or_default(),
        };
        let projects: Vec<ProjectSnapshot> = self.projects.iter().map(row).collect();
        let decision = choose(&self.schedule, &used, &projects, &self.queue, self.now);
        carry_out(&mut self.queue, &decision, self.now);
    }

    fn compute(&mut self) {
        let running: Vec<JobId> = self.queue.running().map(|job| job.id).collect();
        self.now = self.now + STEP;
        let mut used = vec![PerType::<Duration>::default(); self.projects.len()];
        for id in running {
            let Some(job) = self.queue.get(id).copied() else { continue };
            let place = job.project.0 as usize - 1;
            for kind in [Cpu, Nvidia] {
                let time = STEP.mul_f64(job.usage.of(kind));
                used[place][kind] += time;
                self.period[place][kind] += time;
                self.projects[place].used[kind] += time.as_secs_f64();
            }
            if job.remaining <= STEP {
                self.queue.remove(id);
                self.late += u32::from(self.now > job.deadline);
            } else {
                self.queue.update(id, |job| {
                    job.remaining -= STEP;
                    if let RunState::Running { checkpointed_at, .. } = &mut job.state {
                        *checkpointed_at = self.now;
                    }
                });
            }
        }
        let row = |(p, used): (&Project, &PerType<Duration>)| LongTermPeriod {
            project: p.id,
            share: share(p.weight),
            used: *used,
            may_supply: self.backoffs.held(p.id, self.now).map(|_, held| !held),
            forgotten: PerType::default(),
        };
        let period: Vec<LongTermPeriod> = self.projects.iter().zip(&used).map(row).collect();
        self.long.settle(&self.plan, &period);
    }

    /// Percentages of a type's instances that each project got.
    fn parts(&self, kind: ResourceType) -> Vec<f64> {
        let there = (self.now - at_min(0)).as_secs_f64() * f64::from(self.plan.instances[kind]);
        self.projects.iter().map(|p| 100.0 * p.used[kind] / there).collect()
    }
}

fn check(parts: &[f64], expected: &[f64]) {
    for (part, expected) in parts.iter().zip(expected) {
        assert!((part - expected).abs() < 2.0, "{parts:?}, expected {expected:?}");
    }
}

#[test]
fn r3_13_the_policies_together_give_the_gpu_three_to_one_and_each_project_equal_flops() {
    let mut world = World::new(1, Some(2.0), &[(100.0, false, true, 60, 240), (100.0, true, true, 60, 240)]);
    world.run(10);
    check(&world.parts(Nvidia), &[75.0, 25.0]);
    // Beside its own jobs the CPU does a twentieth of each GPU job.
    assert!(world.parts(Cpu)[1] > 98.0, "{:?}", world.parts(Cpu));
    assert_eq!(world.late, 0);
}

#[test]
fn r2_1_the_policies_together_keep_shares_on_cpus_with_jobs_of_any_length() {
    let mut world = World::new(
        4,
        None,
        &[(50.0, true, false, 35, 240), (30.0, true, false, 600, 240), (20.0, true, false, 150, 240)],
    );
    world.run(20);
    check(&world.parts(Cpu), &[50.0, 30.0, 20.0]);
    assert_eq!(world.late, 0);
}
