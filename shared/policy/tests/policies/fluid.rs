//! The fluid of R3.8 the slow way, to compare with: all jobs in plain lists, everything worked out anew at
//! every end.

use std::collections::BTreeMap;

use fallow_domain::{Duration, Instant, JobId, PerType, ProjectId, ResourceType};
use fallow_policy::job_queue::{JobSnapshot, RunState};
use fallow_policy::plan_host::PlanHost;
use fallow_policy::round_robin::PlanProject;

/// What comes out of it.
#[derive(Debug, Default)]
pub(crate) struct Fluid {
    /// End of every job in seconds of computing.
    pub(crate) ends: BTreeMap<JobId, f64>,
    pub(crate) idle: PerType<f64>,
    pub(crate) shortfall: PerType<f64>,
    pub(crate) saturated: PerType<f64>,
    pub(crate) own_shortfall: BTreeMap<ProjectId, PerType<f64>>,
}

struct Job {
    id: JobId,
    project: usize,
    amount: f64,
    left: f64,
}

fn amount(usage: f64) -> f64 {
    f64::from(((usage * 1e6).floor().max(1e4) / 1e6) as f32)
}

fn rank(job: &JobSnapshot) -> (u8, Instant, Duration, JobId) {
    let state = match job.state {
        RunState::Running { .. } => 0,
        RunState::Preempted => 1,
        RunState::Unstarted | RunState::Downloading => 2,
    };
    (state, job.deadline, if state == 2 { job.remaining } else { Duration::ZERO }, job.id)
}

/// Share-weighted max-min division by halving the level; a share of zero gets what is over.
fn divide(total: f64, wants: &[(f64, f64)]) -> Vec<f64> {
    let pour = |total: f64, weight: &dyn Fn(f64) -> f64| -> Vec<f64> {
        let at = |level: f64| -> Vec<f64> {
            wants.iter().map(|(share, want)| want.min(weight(*share) * level)).collect()
        };
        let (mut low, mut high) = (0.0, 1e9);
        for _ in 0..200 {
            let middle = (low + high) / 2.0;
            if at(middle).iter().sum::<f64>() <= total { low = middle } else { high = middle }
        }
        at(low)
    };
    let first = pour(total, &|share| share);
    let over = (total - first.iter().sum::<f64>()).max(0.0);
    let second = pour(over, &|share| if share > 0.0 { 0.0 } else { 1.0 });
    first.iter().zip(second).map(|(a, b)| a + b).collect()
}

pub(crate) fn simulate(
    host: &PlanHost,
    projects: &[PlanProject],
    jobs: &[JobSnapshot],
    window: f64,
) -> Fluid {
    let mut fluid = Fluid::default();
    let mut taken: Vec<(f64, f64)> = Vec::new();
    for kind in ResourceType::COPROCESSORS.into_iter().chain([ResourceType::Cpu]) {
        if host.instances[kind] > 0 {
            one_type(kind, host, projects, jobs, window, &mut taken, &mut fluid);
        }
    }
    fluid
}

fn one_type(
    kind: ResourceType,
    host: &PlanHost,
    projects: &[PlanProject],
    jobs: &[JobSnapshot],
    window: f64,
    taken: &mut Vec<(f64, f64)>,
    fluid: &mut Fluid,
) {
    let instances = f64::from(host.instances[kind]);
    let mut mine: Vec<&JobSnapshot> = jobs
        .iter()
        .filter(|job| job.usage.main_type() == kind && job.usage.of(kind) <= instances)
        .filter(|job| job.usage.cpus.floor() <= f64::from(host.instances[ResourceType::Cpu]))
        .filter(|job| projects.iter().any(|p| p.id == job.project))
        .collect();
    mine.sort_by_key(|job| rank(job));
    let place = |id| projects.iter().position(|p| p.id == id).unwrap_or_default();
    let mut left: Vec<Job> = mine
        .iter()
        .map(|job| Job {
            id: job.id,
            project: place(job.project),
            amount: amount(job.usage.of(kind)),
            left: job.remaining.max(Duration::ZERO).as_secs_f64(),
        })
        .collect();
    let cpu_ratio: Vec<f64> = (0..projects.len())
        .map(|at| {
            let here = mine.iter().filter(|job| place(job.project) == at);
            let sum = |of: &dyn Fn(&JobSnapshot) -> f64| {
                here.clone().map(|job| job.remaining.as_secs_f64().max(0.0) * of(job)).sum::<f64>()
            };
            let gpu = sum(&|job| amount(job.usage.of(kind)));
            if gpu > 0.0 { sum(&|job| amount(job.usage.cpus)) / gpu } else { 0.0 }
        })
        .collect();
    let counted = |at: usize| projects[at].counts || left.iter().any(|job| job.project == at);
    let shares: f64 = (0..projects.len()).filter(|at| counted(*at)).map(|at| projects[at].share.get()).sum();
    let takers = (0..projects.len()).filter(|at| counted(*at)).count() as f64;
    let own: Vec<f64> = projects
        .iter()
        .map(|project| match () {
            () if !project.counts => 0.0,
            () if shares > 0.0 => instances * project.share.get() / shares,
            () => instances / takers,
        })
        .collect();

    let mut now = 0.0;
    let mut saturated = None;
    let mut steps: Vec<(f64, f64)> = Vec::new();
    loop {
        let cpus_taken: f64 = taken.iter().filter(|(from, _)| *from <= now).map(|(_, more)| more).sum();
        let total = match kind {
            ResourceType::Cpu => (instances - (cpus_taken + 1e-6).floor()).max(0.0),
            _ => instances,
        };
        let wants: Vec<(f64, f64)> = (0..projects.len())
            .map(|at| {
                let want = left.iter().filter(|job| job.project == at).map(|job| job.amount).sum();
                (projects[at].share.get(), want)
            })
            .collect();
        let rates = divide(total, &wants);
        let used: f64 = rates.iter().sum();
        let idle = if total - used > 1e-6 { total - used } else { 0.0 };
        if now == 0.0 {
            fluid.idle[kind] = idle;
        }
        if idle > 0.0 {
            saturated.get_or_insert(now);
        }
        steps.push((now, rates.iter().zip(&cpu_ratio).map(|(rate, ratio)| rate * ratio).sum()));
        // Each job's speed: in order, until the rate of its project is used up.
        let mut rest = rates.clone();
        let speeds: Vec<f64> = left
            .iter()
            .map(|job| {
                let given = job.amount.min(rest[job.project]);
                rest[job.project] -= given;
                given / job.amount
            })
            .collect();
        let ends =
            left.iter().zip(&speeds).map(|(job, speed)| if *speed > 1e-9 { job.left / speed } else { 1e18 });
        let mut dt = ends.fold(1e18_f64, f64::min);
        if kind == ResourceType::Cpu {
            for (from, _) in taken.iter().filter(|(from, _)| *from > now) {
                dt = dt.min(from - now);
            }
        }
        let then = if dt >= 1e17 { f64::INFINITY } else { now + dt };
        let within = then.min(window) - now.min(window);
        fluid.shortfall[kind] += idle * within;
        for (at, project) in projects.iter().enumerate() {
            let short = (own[at] - rates[at]).max(0.0) * within;
            let short = if short < 1e-6 * within { 0.0 } else { short };
            fluid.own_shortfall.entry(project.id).or_default()[kind] += short;
        }
        if then.is_infinite() {
            break;
        }
        now = then;
        for (job, speed) in left.iter_mut().zip(&speeds) {
            job.left -= dt * speed;
        }
        left.retain(|job| {
            let over = job.left <= 1e-7;
            if over {
                fluid.ends.insert(job.id, now);
            }
            !over
        });
    }
    fluid.saturated[kind] = saturated.unwrap_or(f64::INFINITY);
    if kind.is_coprocessor() {
        let mut before = 0.0;
        for (from, cpus) in steps {
            taken.push((from, cpus - before));
            before = cpus;
        }
    }
}
