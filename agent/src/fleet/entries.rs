//! From the client's views to the wire.

use fallow_client::{Client, Entity, HostView, Phase, ProjectView, TaskView};
use fallow_domain::Fraction;
use fallow_policy::metrics::Figures;
use fallow_proto::fleet::v1 as wire;

/// The key under which an entity is reported; none if the client has no such entity (any more).
pub fn key(client: &Client, entity: Entity) -> Option<String> {
    Some(match entity {
        Entity::Host => "host".to_owned(),
        Entity::Project(id) => format!("project/{}", client.project_view(id)?.url),
        Entity::Job(id) => {
            let task = client.task_view(id)?;
            format!("task/{}/{}", task.project_url, task.name)
        }
    })
}

/// What is reported of an entity; none if it is gone.
pub fn entry(client: &Client, hostname: &str, name: &str, key: &str, entity: Entity) -> Option<wire::Entry> {
    let value = match entity {
        Entity::Host => wire::entry::Value::Host(host(&client.host_view(), hostname, name)),
        Entity::Project(id) => wire::entry::Value::Project(project(&client.project_view(id)?)),
        Entity::Job(id) => wire::entry::Value::Task(task(&client.task_view(id)?)),
    };
    Some(wire::Entry { key: key.to_owned(), value: Some(value) })
}

fn host(view: &HostView, hostname: &str, name: &str) -> wire::HostState {
    let (refused_version, refusal) =
        view.document_refused.as_ref().map_or((0, String::new()), |(version, why)| (version.0, why.clone()));
    let [day, week, month] = view.figures.each_ref().map(|figures| Some(metrics(figures)));
    wire::HostState {
        hostname: hostname.to_owned(),
        cpus: view.cpus,
        usable_cpus: view.usable_cpus,
        suspended_by: view.suspended_by.unwrap_or_default().to_owned(),
        document_version: view.document_version.0,
        document_refusal: refusal,
        document_refused_version: refused_version,
        document_applied_at_micros: view.document_applied_at.as_micros(),
        day,
        week,
        month,
        scheduler_rpcs: view.scheduler_rpcs,
        jobs_finished: view.jobs_finished,
        cpu_time_micros: view.cpu_time.as_micros(),
        started_at_micros: view.started_at.as_micros(),
        idle_cpus: view.idle_cpus,
        name: name.to_owned(),
    }
}

fn metrics(figures: &Figures) -> wire::Metrics {
    let of = |fraction: Option<Fraction>| fraction.map(Fraction::get);
    wire::Metrics {
        idleness: of(figures.idleness),
        waste: of(figures.waste),
        share_violation: of(figures.share_violation),
        monotony: of(figures.monotony),
        rpcs_per_job: figures.rpcs_per_job,
    }
}

fn project(view: &ProjectView) -> wire::ProjectState {
    let totals = &view.totals;
    let (min_rpc_time, min_rpc_reason) =
        view.min_rpc_time.as_ref().map_or((0, String::new()), |(at, why)| (at.as_micros(), why.clone()));
    wire::ProjectState {
        url: view.url.to_string(),
        name: view.name.clone(),
        share: view.share.get(),
        debt_seconds: view.debt,
        cpu_time_micros: totals.cpu.as_micros(),
        cpu_in_progress_micros: totals.cpu_in_progress.as_micros(),
        cpu_success_micros: totals.cpu_success.as_micros(),
        cpu_error_micros: totals.cpu_error.as_micros(),
        cpu_late_micros: totals.cpu_late.as_micros(),
        scheduler_rpcs: totals.rpcs,
        scheduler_failures: totals.rpc_failures,
        min_rpc_time_micros: min_rpc_time,
        min_rpc_reason,
        jobs_success: totals.jobs_success,
        jobs_error: totals.jobs_error,
        jobs_late: totals.jobs_late,
        cpu_contested_micros: totals.cpu_contested.as_micros(),
    }
}

fn task(view: &TaskView) -> wire::TaskState {
    let phase = match view.phase {
        Phase::Downloading => wire::TaskPhase::Downloading,
        Phase::Ready => wire::TaskPhase::Ready,
        Phase::Running => wire::TaskPhase::Running,
        Phase::Preempted => wire::TaskPhase::Preempted,
        Phase::Uploading => wire::TaskPhase::Uploading,
        Phase::ReadyToReport => wire::TaskPhase::ReadyToReport,
        Phase::Failed => wire::TaskPhase::Failed,
    };
    wire::TaskState {
        project_url: view.project_url.to_string(),
        name: view.name.clone(),
        phase: phase.into(),
        cpu_time_micros: view.cpu_time.as_micros(),
        fraction_done: view.fraction_done,
        deadline_micros: view.deadline.as_micros(),
        checkpoint_cpu_micros: view.checkpoint_cpu_time.as_micros(),
    }
}
