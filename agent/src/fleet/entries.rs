//! What the agent says of itself, from the client's views.

use fallow_client::{Client, Entity, HostView, ProjectView, TaskView};
use fallow_domain::agent_state::{
    DiskDecision, DiskSpace, Entry, EntryKey, HostState, Metrics, OwnerWord, ProjectState, TaskState,
};
use fallow_domain::{Duration, Fraction, Preferences, Virtualization, printable};
use fallow_fleet::Preference;
use fallow_policy::metrics::Figures;
use fallow_proto::fleet::limits;

/// The key under which an entity is reported; none if the client has no such entity (any more).
pub fn key(client: &Client, entity: Entity) -> Option<EntryKey> {
    Some(match entity {
        Entity::Host => EntryKey::Host,
        Entity::Disk => EntryKey::Disk,
        Entity::Project(id) => EntryKey::Project(client.project_view(id)?.url),
        Entity::Job(id) => {
            let task = client.task_view(id)?;
            EntryKey::Task { project: task.project_url, name: task.name }
        }
    })
}

/// What is reported of an entity; none if it is gone.
pub fn entry(client: &Client, hostname: &str, name: &str, entity: Entity) -> Option<Entry> {
    Some(match entity {
        Entity::Host => {
            let mut host = host(client.host_view(), hostname, name);
            host.disk = client.disk_space().map(within_limits).map(Box::new);
            Entry::Host(Box::new(host))
        }
        Entity::Disk => Entry::Disk(decisions(client.disk_decisions())?),
        Entity::Project(id) => Entry::Project(project(client.project_view(id)?)),
        Entity::Job(id) => Entry::Task(task(client.task_view(id)?)),
    })
}

fn host(view: HostView, hostname: &str, name: &str) -> HostState {
    let Virtualization { hypervisor, container, engine, virtualbox: _ } = view.virtualization;
    HostState {
        hostname: hostname.to_owned(),
        name: name.to_owned(),
        cpus: view.cpus,
        usable_cpus: view.usable_cpus,
        idle_cpus: view.idle_cpus,
        suspended_by: view.suspended_by,
        network_rests: view.network_rest,
        document_version: view.document_version,
        document_content: view.document_content,
        document_applied_at: view.document_applied_at,
        document_refused: view.document_refused,
        rolled_back: view.rolled_back,
        metrics: view.figures.each_ref().map(metrics),
        cpu_time: view.cpu_time,
        scheduler_rpcs: view.scheduler_rpcs,
        jobs_finished: view.jobs_finished,
        started_at: view.started_at,
        os: std::env::consts::OS.to_owned(),
        arch: std::env::consts::ARCH.to_owned(),
        memory: view.memory,
        coprocessors: view.coprocessors,
        hypervisor,
        container,
        container_engine: engine.map(|engine| engine.kind.name().to_owned()).unwrap_or_default(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        in_use: view.is_less_in_use,
        owner: view.owner_limits,
        owner_word: view.owner_word.map(|word| Box::new(in_places(word))),
        declined: view.declined,
        // The link knows that.
        organisation: Vec::new(),
        disk: None,
    }
}

/// What an owner says, and none of the other preferences in force: what a user has said on a project's site,
/// say, is no coordinator's affair.
fn in_places(word: OwnerWord) -> OwnerWord {
    let mut preferences = Preferences::default();
    let said = Preference::all_of(&word.preferences).into_iter();
    said.filter(|one| word.places.contains_key(one.key())).for_each(|one| one.put_in(&mut preferences));
    OwnerWord { preferences, ..word }
}

/// How it stands with the disk, with words that the coordinator takes.
fn within_limits(mut space: DiskSpace) -> DiskSpace {
    space.limited_by = printable::line(&space.limited_by, limits::TEXT_BYTES);
    space
}

/// What was decided about the disk, as the coordinator takes it, whatever servers call their files; none
/// where nothing was.
fn decisions<'a>(all: impl ExactSizeIterator<Item = &'a DiskDecision>) -> Option<Vec<DiskDecision>> {
    let last = all.len().saturating_sub(limits::DISK_DECISIONS);
    let told = all.skip(last).map(|decision| DiskDecision {
        name: printable::line(&decision.name, limits::DISK_NAME_BYTES),
        rule: printable::line(&decision.rule, limits::DISK_RULE_BYTES),
        why: printable::line(&decision.why, limits::DISK_WHY_BYTES),
        ..decision.clone()
    });
    Some(told.collect()).filter(|told: &Vec<DiskDecision>| !told.is_empty())
}

fn metrics(figures: &Figures) -> Metrics {
    Metrics {
        idleness: figures.idleness,
        waste: figures.waste,
        share_violation: figures.share_violation,
        share_deviation: figures.share_deviation,
        monotony: figures.monotony,
        rpcs_per_job: figures.rpcs_per_job,
    }
}

fn project(view: ProjectView) -> ProjectState {
    let totals = view.totals;
    ProjectState {
        url: view.url,
        name: view.name,
        share: view.share,
        debt: Duration::from_secs_f64(view.debt),
        cpu_time: totals.cpu,
        cpu_in_progress: totals.cpu_in_progress,
        cpu_success: totals.cpu_success,
        cpu_error: totals.cpu_error,
        cpu_late: totals.cpu_late,
        cpu_contested: totals.cpu_contested,
        scheduler_rpcs: totals.rpcs,
        scheduler_failures: totals.rpc_failures,
        min_rpc_time: view.min_rpc_time,
        jobs_success: totals.jobs_success,
        jobs_error: totals.jobs_error,
        jobs_late: totals.jobs_late,
    }
}

fn task(view: TaskView) -> TaskState {
    TaskState {
        project: view.project_url,
        name: view.name,
        phase: Some(view.phase),
        cpu_time: view.cpu_time,
        checkpoint_cpu_time: view.checkpoint_cpu_time,
        fraction_done: Fraction::clamped(view.fraction_done),
        deadline: view.deadline,
    }
}

#[cfg(test)]
mod tests {
    use fallow_domain::agent_state::DiskAct;
    use fallow_domain::{Bytes, Instant};
    use fallow_proto::fleet::disk;

    use super::*;

    /// One that a coordinator refused would have it refuse all that the host says.
    #[test]
    fn r4_13_whatever_files_are_called_the_coordinator_takes_the_last_twenty_decisions() {
        let decision = |number: u64| DiskDecision {
            at: Instant::from_secs_f64(1e9),
            what: DiskAct::Deleted,
            project: None,
            name: format!("{number}\u{1b}[2J\u{202e}\n{}", "ž".repeat(300)),
            bytes: Bytes(number),
            rule: "R4.8 ".repeat(40),
            why: "w\r\0".repeat(1_000),
        };
        let all: Vec<DiskDecision> = (0..200).map(decision).collect();
        let told = decisions(all.iter()).unwrap();
        assert_eq!(told.iter().map(|one| one.bytes.0).collect::<Vec<_>>(), (180..200).collect::<Vec<_>>());
        assert!(told[0].name.starts_with("180�[2J��ž"), "{}", told[0].name);
        assert_eq!(disk::from_wire(disk::to_wire(&told)), Ok(told));
        assert_eq!(decisions([].iter()), None);
    }
}
