//! R3.13 in a closed loop: debts, backoffs and work fetch drive a host of a CPU and a GPU, in plain steps of
//! a minute.
//!
//! What the real scheduler and simulation add is left out: per type the project with the largest short-term
//! debt runs for a slice, and a shortfall is the buffer less what is queued.

use fallow_domain::{Duration, InstanceSeconds, Instant, PerType, ProjectId, ResourceType, Share};
use fallow_policy::accounting::{Debts, LongTermDebts, LongTermPeriod, ShortTermPeriod};
use fallow_policy::due::{DueClaim, rates};
use fallow_policy::fetch::shortfall::{FetchCandidate, FetchRules, TypeNeed, over_served, plan};
use fallow_policy::fetch::{FetchContact, FetchPriority, FetchWhen};
use fallow_policy::plan_host::PlanHost;
use fallow_policy::type_backoff::{ReplyForType, TypeBackoffs};
use rand::SeedableRng;
use rand_pcg::Pcg64;

use ResourceType::{Cpu, Nvidia};

const STEP: Duration = Duration::from_secs(60);
const SLICE_STEPS: u32 = 60;
const TYPES: [ResourceType; 2] = [Cpu, Nvidia];

struct Project {
    id: ProjectId,
    share: Share,
    supplies: PerType<bool>,
    job_secs: f64,
    /// Seconds queued.
    queued: PerType<f64>,
    used: PerType<f64>,
}

struct Host {
    plan: PlanHost,
    buffer: Duration,
    projects: Vec<Project>,
    debts: Debts,
    long: LongTermDebts,
    backoffs: TypeBackoffs,
    rng: Pcg64,
    running: PerType<Option<usize>>,
    now: Instant,
    rpcs: u32,
}

impl Host {
    fn new(gpu_speed: f64, projects: &[(f64, bool, bool, f64)]) -> Self {
        let mut plan = PlanHost::cpus(1);
        (plan.instances[Nvidia], plan.speeds[Nvidia]) = (1, gpu_speed);
        let project = |(id, (share, cpu, gpu, hours)): (u32, &(f64, bool, bool, f64))| {
            let mut supplies = PerType::cpu(*cpu);
            supplies[Nvidia] = *gpu;
            Project {
                id: ProjectId(id),
                share: crate::world::share(*share),
                supplies,
                job_secs: hours * 3_600.0,
                queued: PerType::default(),
                used: PerType::default(),
            }
        };
        Self {
            plan,
            buffer: Duration::from_days_f64(0.35),
            projects: (1..).zip(projects).map(project).collect(),
            debts: Debts::default(),
            long: LongTermDebts::default(),
            backoffs: TypeBackoffs::default(),
            rng: Pcg64::seed_from_u64(1),
            running: PerType::default(),
            now: Instant::from_secs_f64(1.8e9),
            rpcs: 0,
        }
    }

    fn run(&mut self, days: f64) {
        let steps = (days * 86_400.0 / STEP.as_secs_f64()) as u32;
        for step in 0..steps {
            self.fetch();
            self.compute(step % SLICE_STEPS == 0);
            self.now = self.now + STEP;
        }
    }

    fn fetch(&mut self) {
        let window = self.buffer.as_secs_f64();
        let claims: Vec<DueClaim> = self
            .projects
            .iter()
            .map(|p| {
                let may = |kind: ResourceType| !self.backoffs.holds(p.id, kind, self.now);
                let limit =
                    PerType::from_fn(
                        |kind| if may(kind) { f64::from(self.plan.instances[kind]) } else { 0.0 },
                    );
                DueClaim { project: p.id, share: p.share, limit }
            })
            .collect();
        let due = rates(&self.plan, &claims);
        let queued = |kind: ResourceType| self.projects.iter().map(|p| p.queued[kind]).sum::<f64>();
        let needs = PerType::from_fn(|kind| {
            let instances = f64::from(self.plan.instances[kind]);
            let idle = if queued(kind) <= 0.0 { instances } else { 0.0 };
            let saturated = Duration::from_secs_f64(queued(kind));
            TypeNeed {
                idle,
                shortfall: InstanceSeconds::new((window * instances - queued(kind)).max(0.0)),
                saturated,
            }
        });
        let candidates: Vec<FetchCandidate> = self
            .projects
            .iter()
            .zip(&due)
            .map(|(p, due)| {
                let priority = FetchPriority::Debt(self.long.overall(p.id, &self.plan.speeds));
                FetchCandidate {
                    id: p.id,
                    share: p.share,
                    priority,
                    over_served: over_served(priority, Duration::from_hours(1), self.buffer),
                    tight: false,
                    may_supply: true,
                    contact: FetchContact { may_contact: true, ..FetchContact::default() },
                    backed_off: self.backoffs.held(p.id, self.now),
                    untried: PerType::from_fn(|kind| !self.long.supplies(p.id, kind)),
                    shortfall: PerType::from_fn(|kind| {
                        InstanceSeconds::new((due[kind] * window - p.queued[kind]).max(0.0))
                    }),
                }
            })
            .collect();
        let rules =
            FetchRules { speeds: self.plan.speeds, when: FetchWhen::AnyShortfall, buffer_min: self.buffer };
        let Some(ask) = plan(&rules, &needs, &candidates).ask else { return };
        self.rpcs += 1;
        let Some(project) = self.projects.iter_mut().find(|p| p.id == ask.project) else { return };
        for kind in ask.request.types() {
            let reply = if project.supplies[kind] {
                let jobs = (ask.request.seconds[kind].get() / project.job_secs).ceil();
                project.queued[kind] += jobs * project.job_secs;
                ReplyForType::Jobs(jobs as u32)
            } else {
                ReplyForType::NotSupported
            };
            let after = self.backoffs.on_reply(project.id, kind, reply, self.now, &mut self.rng);
            self.long.on_reply(project.id, kind, reply, after);
        }
    }

    fn compute(&mut self, decides: bool) {
        for kind in TYPES {
            let ended = self.running[kind].is_some_and(|i| self.projects[i].queued[kind] <= 0.0);
            if decides || ended || self.running[kind].is_none() {
                let runnable = (0..self.projects.len()).filter(|i| self.projects[*i].queued[kind] > 0.0);
                let debt = |i: usize| self.debts.of(self.projects[i].id)[kind].as_secs();
                self.running[kind] = runnable.max_by(|a, b| debt(*a).total_cmp(&debt(*b)).then(b.cmp(a)));
            }
        }
        let mut used = vec![PerType::<Duration>::default(); self.projects.len()];
        for kind in TYPES {
            if let Some(i) = self.running[kind] {
                let project = &mut self.projects[i];
                project.queued[kind] = (project.queued[kind] - STEP.as_secs_f64()).max(0.0);
                project.used[kind] += STEP.as_secs_f64();
                used[i][kind] = STEP;
            }
        }
        let rows = || self.projects.iter().zip(&used);
        let short: Vec<ShortTermPeriod> = rows()
            .map(|(p, used)| ShortTermPeriod {
                project: p.id,
                share: p.share,
                used: *used,
                runnable: p.queued.map(|_, queued| *queued > 0.0),
            })
            .collect();
        let long: Vec<LongTermPeriod> = rows()
            .map(|(p, used)| LongTermPeriod {
                project: p.id,
                share: p.share,
                used: *used,
                may_supply: self.backoffs.held(p.id, self.now).map(|_, held| !held),
                forgotten: PerType::default(),
            })
            .collect();
        self.debts.update(&self.plan, &short);
        self.long.settle(&self.plan, &long);
    }

    /// Percentages of a type that each project got.
    fn parts(&self, kind: ResourceType) -> Vec<f64> {
        let all: f64 = self.projects.iter().map(|p| p.used[kind]).sum();
        self.projects.iter().map(|p| 100.0 * p.used[kind] / all).collect()
    }
}

fn check(parts: &[f64], expected: &[f64]) {
    for (part, expected) in parts.iter().zip(expected) {
        assert!((part - expected).abs() < 2.0, "{parts:?}, expected {expected:?}");
    }
}

#[test]
fn r3_13_a_project_with_gpu_jobs_only_gets_three_quarters_of_a_gpu_twice_as_fast_as_the_cpu() {
    let mut host = Host::new(2.0, &[(100.0, false, true, 1.0), (100.0, true, true, 1.0)]);
    host.run(10.0);
    check(&host.parts(Cpu), &[0.0, 100.0]);
    check(&host.parts(Nvidia), &[75.0, 25.0]);
    for kind in TYPES {
        let used: f64 = host.projects.iter().map(|p| p.used[kind]).sum();
        assert!(used > 9.9 * 86_400.0, "{kind} is idle");
    }
    assert!(host.rpcs < 10 * 24 * 3, "{} requests", host.rpcs);
}

#[test]
fn r3_13_holds_with_jobs_of_other_lengths_than_the_slice() {
    let mut host = Host::new(2.0, &[(100.0, false, true, 2.7), (100.0, true, true, 0.4)]);
    host.run(10.0);
    check(&host.parts(Nvidia), &[75.0, 25.0]);
}

#[test]
fn r3_3_shares_hold_over_types_with_three_projects() {
    // Speeds 1 and 2: of 3 in all the first is due 1.5 of the GPU, the others 0.75 each.
    let mut host =
        Host::new(2.0, &[(200.0, false, true, 1.0), (100.0, true, false, 1.0), (100.0, true, true, 1.0)]);
    host.run(20.0);
    check(&host.parts(Cpu), &[0.0, 75.0, 25.0]);
    check(&host.parts(Nvidia), &[75.0, 0.0, 25.0]);
}
