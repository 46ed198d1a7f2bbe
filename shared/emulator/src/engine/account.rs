//! What a run counts from the truth, apart from what the client believes.

use fallow_domain::{Duration, Instant, PerType, ProjectId, ResourceType, Speed, Usage};
use fallow_policy::metrics::Figures;

use super::outcome::{BatchOutcome, HostOutcome, ProjectOutcome, RunFigures, RunOutcome, Timeline};
use super::server::Server;
use crate::scenario::HostModel;

/// Running totals.
#[derive(Debug)]
pub(crate) struct Account {
    /// Instance time that each project's jobs used.
    used: Vec<PerType<Duration>>,
    pub(crate) lost: Duration,
    pub(crate) events: u64,
    /// Jobs held, and since when, and job-microseconds held before that.
    held: usize,
    held_since: Instant,
    held_micros: i128,
}

/// What the run itself was.
pub(crate) struct RunSummary {
    pub(crate) simulated: Duration,
    /// What each host has of each type.
    pub(crate) instances: PerType<u32>,
    /// The clients' numbers of the projects.
    pub(crate) ids: Vec<ProjectId>,
    pub(crate) hosts: Vec<HostOutcome>,
    pub(crate) batch: Option<BatchOutcome>,
    pub(crate) timeline: Option<Timeline>,
}

impl Account {
    pub(crate) fn new(projects: usize, beginning: Instant) -> Self {
        Self {
            used: vec![PerType::default(); projects],
            lost: Duration::ZERO,
            events: 0,
            held: 0,
            held_since: beginning,
            held_micros: 0,
        }
    }

    /// Books running time of a project's job.
    pub(crate) fn ran(&mut self, project: usize, usage: Usage, ran: Duration) {
        let Some(used) = self.used.get_mut(project) else { return };
        let cpus = if usage.cpus == 1.0 { ran } else { ran.mul_f64(usage.cpus) };
        used[ResourceType::Cpu] += cpus;
        if let Some((kind, count)) = usage.coprocessor {
            used[kind] += ran.mul_f64(count);
        }
    }

    /// So many jobs are held from now on.
    pub(crate) fn holds(&mut self, held: usize, now: Instant) {
        let since = now.since(self.held_since).as_micros();
        self.held_micros += i128::from(since) * self.held as i128;
        (self.held, self.held_since) = (held, now);
    }

    /// Sums up.
    pub(crate) fn close(
        mut self,
        summary: RunSummary,
        host: &HostModel,
        servers: &[Server<'_>],
        figures: &Figures,
        now: Instant,
    ) -> RunOutcome {
        self.holds(self.held, now);
        let sum = |count: fn(&Server<'_>) -> u64| servers.iter().map(count).sum::<u64>();
        let rpcs = sum(|server| server.counts.rpcs);
        let reported = sum(|server| server.counts.finished + server.counts.failed);
        let simulated = summary.simulated;
        let host_on = summary.hosts.iter().map(|host| host.on).sum::<Duration>();
        let hosts = summary.hosts.len().max(1);
        let mut used = PerType::<Duration>::default();
        for (kind, used) in used.iter_mut() {
            *used = self.used.iter().map(|project| project[kind]).sum();
        }
        RunOutcome {
            figures: run_figures(figures),
            rpcs,
            rpcs_failed: sum(|server| server.counts.rpcs_failed),
            rpcs_per_job: (reported > 0).then(|| rpcs as f64 / reported as f64),
            jobs_sent: sum(|server| server.counts.sent),
            jobs_finished: sum(|server| server.counts.finished),
            jobs_late: sum(|server| server.counts.late),
            jobs_failed: sum(|server| server.counts.failed),
            mean_queue: self.held_micros as f64 / (simulated.as_micros().max(1)) as f64 / hosts as f64,
            simulated,
            host_on,
            capacity: summary.instances.map(|_, count| host_on * i64::from(*count)),
            used,
            lost: self.lost,
            events: self.events,
            projects: self.projects(host, servers, &summary.ids, figures),
            hosts: summary.hosts,
            batch: summary.batch,
            timeline: summary.timeline,
        }
    }

    fn projects(
        &self,
        host: &HostModel,
        servers: &[Server<'_>],
        ids: &[ProjectId],
        figures: &Figures,
    ) -> Vec<ProjectOutcome> {
        let speeds = speeds(host);
        let processing = |used: &PerType<Duration>| -> f64 {
            used.iter().map(|(kind, used)| used.as_secs_f64() * speeds[kind]).sum()
        };
        let all: f64 = self.used.iter().map(processing).sum();
        let outcome = |(place, (server, used)): (usize, (&Server<'_>, &PerType<Duration>))| ProjectOutcome {
            name: server.model.name.clone(),
            used: *used,
            wasted: server.counts.wasted,
            rpcs: server.counts.rpcs,
            jobs_sent: server.counts.sent,
            jobs_finished: server.counts.finished,
            jobs_late: server.counts.late,
            jobs_failed: server.counts.failed,
            jobs_refused: server.counts.refused,
            correction: server.counts.correction,
            received: (all > 0.0).then(|| processing(used) / all),
            due: due(ids.get(place), figures),
        };
        servers.iter().zip(&self.used).enumerate().map(outcome).collect()
    }
}

/// Speeds of one instance of each type, in FLOPS.
fn speeds(host: &HostModel) -> PerType<f64> {
    let mut speeds = PerType::cpu(Speed::get(host.flops));
    for coprocessor in &host.coprocessors {
        speeds[coprocessor.kind.resource()] = coprocessor.flops.get();
    }
    speeds
}

/// The part of all processing that was due to a project.
fn due(id: Option<&ProjectId>, figures: &Figures) -> Option<f64> {
    let all: f64 = figures.due.values().map(|due| due.as_secs_f64()).sum();
    let due = figures.due.get(id?).map_or(0.0, |due| due.as_secs_f64());
    (all > 0.0).then(|| due / all)
}

fn run_figures(figures: &Figures) -> RunFigures {
    let get = |fraction: Option<fallow_domain::Fraction>| fraction.map(fallow_domain::Fraction::get);
    RunFigures {
        idleness: get(figures.idleness),
        waste: get(figures.waste),
        share_violation: get(figures.share_violation),
        share_deviation: get(figures.share_deviation),
        monotony: get(figures.monotony),
    }
}
