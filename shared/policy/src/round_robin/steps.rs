//! The simulation of one type: from one change of rates to the next (R3.8).
//!
//! Rates change when what is left of a project's jobs cannot use its rate any more. Until the first time at
//! which that can happen to any project, the projects do not affect each other. So the cost is that of the
//! jobs, and that of dividing the rates once for each project that runs out.

use fallow_domain::{Duration, InstanceSeconds, PerType, ResourceType};

use super::flow::Flow;
use super::frame::{Findings, Horizon, RATE_EPSILON, TypeCapacity};
use super::taken::Taken;
use super::{Outlook, PlanProject, level, screen};
use crate::job_queue::{Instances, JobQueue, Subqueue, Summary};
use crate::plan_host::PlanHost;

/// The memory of a simulation, kept from one to the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Simulation {
    instances: PerType<u32>,
    horizon: Horizon,
    flows: Vec<Flow>,
    found: Findings,
    /// CPUs that GPU jobs use.
    taken: Taken,
    own: Vec<f64>,
}

/// One type in progress.
struct Run<'a, L> {
    horizon: &'a Horizon,
    capacity: TypeCapacity,
    subqueues: L,
    found: &'a mut Findings,
}

/// What a type lacks, in seconds of computing.
#[derive(Clone, Copy, Debug, Default)]
struct Lack {
    /// Until when all instances are busy.
    busy: f64,
    /// Instances that idle now.
    idle: f64,
    /// Instance-seconds that are not used within the window.
    shortfall: f64,
    /// Those of them that are near.
    near: f64,
}

impl Simulation {
    pub(super) fn begin(&mut self, host: &PlanHost, horizon: Horizon) {
        self.instances = host.instances;
        self.horizon = horizon;
        self.taken.clear();
    }

    /// Simulates one type and notes what comes of it. Returns for how many seconds that stays good.
    pub(super) fn run(
        &mut self,
        kind: ResourceType,
        projects: &[PlanProject],
        queue: &JobQueue,
        outlook: &mut Outlook,
    ) -> f64 {
        let cpus = self.instances[ResourceType::Cpu] as f32;
        let capacity = TypeCapacity {
            instances: self.instances[kind] as f32,
            // The fractional part of a GPU job's CPUs may exceed them (R2.5).
            cpus: if kind.is_coprocessor() { cpus + 0.999_999 } else { cpus },
        };
        let subqueues = |at: usize| projects.get(at).and_then(|project| queue.subqueue(project.id, kind));
        let count = self.gather(kind, projects, queue, &subqueues, &capacity);
        let Self { horizon, flows, found, taken, instances, own } = self;
        let Some(flows) = flows.get_mut(..count) else { return 0.0 };
        found.late.clear();
        let instances = f64::from(instances[kind]);
        // GPU jobs are simulated in any case, since it matters when they leave CPUs free.
        let (mut slack, mut busy) = (None, None);
        if kind == ResourceType::Cpu && taken.is_nothing() {
            level::divide(instances, flows);
            slack = screen::slack(flows, horizon, &subqueues, &capacity);
            busy = screen::busy(flows, horizon);
        }
        found.slack = slack.unwrap_or(f64::INFINITY);
        found.none_late = slack.is_some();
        let Lack { busy, idle, shortfall, near } = match busy.filter(|_| found.none_late) {
            Some(busy) => {
                flows.iter_mut().for_each(|flow| flow.time = horizon.window);
                Lack { busy, ..Lack::default() }
            }
            None => Run { horizon, capacity, subqueues, found }.through(instances, kind, flows, taken),
        };

        // What idles is counted by the clock, as the window is: dt x idle instances.
        let by_clock = |computing_secs: f64| InstanceSeconds::new(computing_secs / horizon.active);
        for (of, own) in outlook.projects.iter_mut().zip(own.iter()) {
            of.shortfall[kind] = by_clock(own * horizon.window);
        }
        for flow in flows.iter() {
            if let Some(of) = outlook.projects.get_mut(flow.project) {
                of.misses[kind] = flow.misses;
                of.shortfall[kind] = by_clock(flow.short_of(horizon));
            }
        }
        found.late.sort_unstable();
        outlook.late.extend(found.late.iter().map(|(_, _, id)| *id));
        let of = &mut outlook.types[kind];
        of.idle = idle;
        of.shortfall = by_clock(shortfall);
        of.near = InstanceSeconds::new(near);
        of.saturated = Duration::from_secs_f64(busy / horizon.active);
        // Deadlines come nearer as time goes by, and computing may go on all the time until then.
        let spare = if shortfall > 0.0 { f64::INFINITY } else { busy - horizon.window };
        spare.min(found.slack / horizon.active).max(0.0)
    }

    /// Makes a flow of each project with jobs, and each project's own share. Returns the number of flows.
    fn gather<'q>(
        &mut self,
        kind: ResourceType,
        projects: &[PlanProject],
        queue: &JobQueue,
        subqueues: &impl Fn(usize) -> Option<&'q Subqueue>,
        capacity: &TypeCapacity,
    ) -> usize {
        let mut count = 0;
        self.own.clear();
        let (mut shares, mut takers) = (0.0, 0.0_f64);
        for (at, project) in projects.iter().enumerate() {
            let summary = subqueues(at).map_or(Summary::NONE, |subqueue| summary(subqueue, capacity));
            let has_jobs = summary.amount > 0.0;
            if has_jobs || project.counts {
                shares += project.share.get();
                takers += 1.0;
            }
            self.own.push(if project.counts { 1.0 } else { 0.0 });
            let places = queue.usable_at_once(project.id, kind, &self.instances);
            let cut = places.filter(|places| *places < queue.held_instances(project.id, kind));
            // Without any place, for jobs on GPUs have them all, it is as if there were no jobs.
            if has_jobs && cut != Some(Instances::ZERO) {
                if self.flows.len() == count {
                    self.flows.push(Flow::default());
                }
                if let Some(flow) = self.flows.get_mut(count) {
                    let places = cut.map_or(f64::INFINITY, Instances::as_f64);
                    flow.begin(at, project.share.get(), &summary, places);
                    count += 1;
                }
            }
        }
        let instances = f64::from(self.instances[kind]);
        for (own, project) in self.own.iter_mut().zip(projects) {
            *own *=
                instances * if shares > 0.0 { project.share.get() / shares } else { 1.0 / takers.max(1.0) };
            // What the owner keeps it from using it is not short of.
            *own = queue.never_more(project.id, kind, &self.instances).map_or(*own, |most| own.min(most));
        }
        for flow in self.flows.iter_mut().take(count) {
            flow.own = self.own.get(flow.project).copied().unwrap_or_default();
        }
        count
    }
}

/// Sums over the jobs of a subqueue that can run at all.
fn summary(subqueue: &Subqueue, capacity: &TypeCapacity) -> Summary {
    let mut sum = Summary::NONE;
    for entry in subqueue.running.iter().chain(&subqueue.preempted).filter(|entry| capacity.job(entry)) {
        sum.add(entry);
    }
    for chunk in subqueue.queued.chunks() {
        if capacity.all(&chunk.summary) {
            sum.merge(&chunk.summary);
        } else {
            for entry in chunk.entries.iter().filter(|entry| capacity.job(entry)) {
                sum.add(entry);
            }
        }
    }
    sum
}

impl<'q, L: Fn(usize) -> Option<&'q Subqueue>> Run<'_, L> {
    /// Goes on until nothing is left.
    fn through(&mut self, instances: f64, kind: ResourceType, flows: &mut [Flow], taken: &mut Taken) -> Lack {
        let Horizon { window, near, .. } = *self.horizon;
        let on_cpus = kind == ResourceType::Cpu;
        let (mut now, mut alive) = (0.0_f64, flows.len());
        let mut lack = Lack { busy: f64::INFINITY, ..Lack::default() };
        let mut cpus_before = 0.0;
        loop {
            let total = if on_cpus { (instances - taken.at(now)).max(0.0) } else { instances };
            let active = flows.get_mut(..alive).unwrap_or_default();
            level::divide(total, active);
            let (mut used, mut cpus) = (0.0, 0.0);
            for flow in active.iter_mut() {
                used += flow.next_rate;
                cpus += flow.next_rate * flow.cpu_ratio;
                if (flow.next_rate - flow.rate).abs() > RATE_EPSILON
                    && let Some(subqueue) = (self.subqueues)(flow.project)
                {
                    flow.set_rate(flow.next_rate, subqueue, &self.capacity);
                }
            }
            if !on_cpus {
                taken.add(now, cpus - cpus_before);
                cpus_before = cpus;
            }
            let idle = if total - used > RATE_EPSILON { total - used } else { 0.0 };
            if now == 0.0 {
                lack.idle = idle;
            }
            if idle > 0.0 {
                lack.busy = lack.busy.min(now);
            }
            let change = if on_cpus { taken.next_after(now) } else { f64::INFINITY };
            let then = self.next_change(active, change);
            let until = then.unwrap_or(f64::INFINITY);
            lack.shortfall += idle * (until.min(window) - now.min(window));
            lack.near += idle * (until.min(near) - now.min(near));
            let Some(then) = then else { return lack };
            now = then;
            for flow in active.iter_mut() {
                if let Some(subqueue) = (self.subqueues)(flow.project) {
                    flow.catch_up(now, self.horizon, self.found, subqueue, &self.capacity);
                }
            }
            let mut at = 0;
            while at < alive {
                if flows.get(at).is_some_and(Flow::is_over) {
                    alive -= 1;
                    flows.swap(at, alive);
                } else {
                    at += 1;
                }
            }
        }
    }

    /// Finds when rates change next, and lets the flows that make them change come as far. None when they
    /// never do.
    fn next_change(&mut self, flows: &mut [Flow], change: f64) -> Option<f64> {
        for flow in flows.iter_mut() {
            flow.bound = flow.limited_at();
        }
        loop {
            let first = flows.iter_mut().min_by(|a, b| a.bound.total_cmp(&b.bound));
            let Some(flow) = first.filter(|flow| flow.bound <= change) else {
                return change.is_finite().then_some(change);
            };
            if flow.bound == f64::INFINITY {
                return None;
            }
            let until = flow.bound;
            let subqueue = (self.subqueues)(flow.project)?;
            flow.advance(until, self.horizon, self.found, subqueue, &self.capacity);
            if flow.is_slack() {
                return Some(flow.time);
            }
            flow.bound = flow.limited_at();
        }
    }
}
