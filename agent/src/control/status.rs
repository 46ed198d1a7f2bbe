//! What the agent says of itself, for programs: as JSON. For people it is in `status_text`.

use fallow_client::{Client, DeviceState, DeviceView, Phase, Rests};
use fallow_domain::{DocumentVersion, Instant, ResourceType};
use serde::{Deserialize, Serialize};

use super::machine::MachineStatus;
use super::preferences::PreferenceStatus;
use crate::confine::Layer;
use crate::fleet::link::LinkStatus;
use crate::host::owner::{LastInput, SensorStatus};

/// Most jobs that a status tells of. With names and URLs of the greatest length each takes 1,000 bytes, and
/// all together less than an answer may (`protocol::LINE_MAX`).
const TASKS_MAX: usize = 10_000;

/// Everything that `fallow-agent status` tells. Times are seconds, instants seconds since the epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// What runs and why, or why nothing does: one line for people.
    #[serde(default)]
    pub line: String,
    /// The agent's version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Its data directory; empty for people who do not administer the machine.
    pub dir: String,
    /// The link to the coordinator, if the agent belongs to a fleet.
    pub fleet: Option<LinkStatus>,
    /// The host.
    pub host: HostStatus,
    /// The projects.
    pub projects: Vec<ProjectStatus>,
    /// The jobs: those that have begun first. At most ten thousand, so that a status fits into one answer.
    pub tasks: Vec<TaskStatus>,
    /// Jobs that are not among them.
    #[serde(default)]
    pub tasks_left_out: usize,
    /// The last notices, oldest first.
    pub notices: Vec<Notice>,
    /// Why the store cannot be written, while the agent waits for that to change: a full disk. Nothing is
    /// begun meanwhile.
    #[serde(default)]
    pub store_trouble: Option<String>,
    /// What keeps jobs in their slots, and why what of it is off is off (R6.10).
    #[serde(default)]
    pub confinement: Vec<Layer>,
    /// What senses whether somebody uses the machine, and what does not.
    #[serde(default)]
    pub sensors: Vec<SensorStatus>,
    /// Whether the kernel tells when programs wait for memory.
    #[serde(default)]
    pub memory_pressure: Option<SensorStatus>,
    /// Whether the kernel tells what goes over the network, and of which interfaces.
    #[serde(default)]
    pub network_traffic: Option<SensorStatus>,
    /// What somebody used last; absent where nothing was seen since the agent was started.
    #[serde(default)]
    pub last_input: Option<LastInput>,
    /// The preferences in force, whatever time it is and whoever uses the host (R6.4).
    #[serde(default)]
    pub preferences: Vec<PreferenceStatus>,
    /// Preference files that cannot be read, and why: nothing computes meanwhile.
    #[serde(default)]
    pub preference_troubles: Vec<String>,
}

/// The host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostStatus {
    /// What machine it is.
    #[serde(default)]
    pub machine: MachineStatus,
    /// CPUs of the machine.
    pub cpus: u32,
    /// CPUs that may be used now.
    pub usable_cpus: u32,
    /// Of those, idle ones.
    pub idle_cpus: u32,
    /// `owner` or `coordinator`, when computing is suspended; `hours` outside of these;
    /// `in use` while somebody uses the machine; `snooze` while somebody has paused it; `battery`,
    /// `other programs`, `no input`, `preference file` and `confinement` for what stops computing beside
    /// people.
    pub suspended_by: Option<String>,
    /// What stops computing beside people: the battery, other programs, a file that cannot be read; in words.
    #[serde(default)]
    pub stopped_for: Option<String>,
    /// These words name a program that preferences name, which is not for everybody.
    #[serde(skip)]
    pub is_program_named: bool,
    /// Jobs wait for a look at the battery and other programs, which is about to be made.
    #[serde(default)]
    pub awaits_look: bool,
    /// Layers of confinement that preferences require and that are off, with why; absent where none is.
    #[serde(default)]
    pub lacks_layers: Option<String>,
    /// When it may compute: `always`, or such as `mon-fri 18:00-08:00, sat-sun`.
    #[serde(default)]
    pub hours: String,
    /// When these hours begin or end next by the host's clock on the wall, such as `Mon 18:00`.
    #[serde(default)]
    pub hours_change: Option<String>,
    /// Until when somebody has paused computing, if that holds.
    #[serde(default)]
    pub snoozed_until: Option<f64>,
    /// Which user of the machine did that, where it was since the agent was started.
    #[serde(default)]
    pub snoozed_by: Option<String>,
    /// Somebody uses the machine.
    #[serde(default)]
    pub in_use: bool,
    /// Until when, if there is no further input; absent where nobody does, or somebody whose input cannot be
    /// seen.
    #[serde(default)]
    pub in_use_until: Option<f64>,
    /// So long after the last input it is idle.
    #[serde(default)]
    pub idle_after: f64,
    /// What rests while it is used: `computing`, `coprocessors` or `nothing`.
    #[serde(default)]
    pub rests_in_use: String,
    /// Why no project is contacted now by preferences of the network, if none is.
    #[serde(default)]
    pub network_rests: Option<String>,
    /// Why files wait although projects are contacted, if they do.
    #[serde(default)]
    pub files_wait: Option<String>,
    /// Devices that must not be used, such as `nvidia:0`.
    #[serde(default)]
    pub excluded_devices: Vec<String>,
    /// The devices that are known one by one, such as GPUs, also those that are gone.
    #[serde(default)]
    pub devices: Vec<DeviceStatus>,
    /// Those of them that the owner of the host excludes; the others the fleet's preferences do.
    #[serde(default)]
    pub owner_excluded_devices: Vec<String>,
    /// Version of the document that is followed, 0 for none.
    pub document_version: DocumentVersion,
    /// It is on trial: the agent goes back from it if the coordinator does not acknowledge it in time.
    #[serde(default)]
    pub document_on_trial: bool,
    /// The newest document that was refused since, and why.
    pub document_refused: Option<(DocumentVersion, String)>,
    /// The version that the agent went back from last by itself, and why; none once a newer one is confirmed.
    #[serde(default)]
    pub document_rolled_back: Option<(DocumentVersion, String)>,
    /// Projects of the document that the owner detached.
    #[serde(default)]
    pub declined: Vec<String>,
    /// CPU time of all tasks since the store was made.
    pub cpu_time: f64,
    /// Scheduler RPCs since then.
    pub scheduler_rpcs: u64,
    /// Jobs over since then.
    pub jobs_finished: u64,
    /// The metrics over one day, seven and thirty (R5.34).
    pub metrics: [MetricsStatus; 3],
}

/// A device, such as a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// Its name, such as `nvidia:0`.
    pub device: String,
    /// Model, as its driver names it.
    pub model: String,
    /// Where it is, such as `0000:01:00.0`.
    pub address: String,
    /// Its memory in bytes, 0 if that is not known.
    pub memory: u64,
    /// Version of its driver.
    pub driver: String,
    /// Its temperature in degrees Celsius when it was looked at last: every two seconds while there are jobs
    /// for GPUs, else every ten minutes. Absent where it is not told.
    #[serde(default)]
    pub temperature: Option<u32>,
    /// It may be used.
    pub usable: bool,
    /// How it stands: `usable`, or why it is not used.
    pub state: String,
    /// That names a program of others, which is not for everybody.
    #[serde(skip)]
    pub is_program_named: bool,
    /// The jobs that have a process on it.
    pub jobs: Vec<String>,
}

/// R5.30 to R5.33 and R5.35; absent where nothing can be said yet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricsStatus {
    /// R5.30.
    pub idleness: Option<f64>,
    /// R5.31.
    pub waste: Option<f64>,
    /// R5.32.
    pub share_violation: Option<f64>,
    /// R5.35.
    pub share_deviation: Option<f64>,
    /// R5.33.
    pub monotony: Option<f64>,
}

/// A project.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProjectStatus {
    /// Its URL.
    pub url: String,
    /// Its name.
    pub name: String,
    /// Its weight.
    pub share: f64,
    /// Short-term debt in CPU seconds.
    pub debt: f64,
    /// CPU time since the store was made, as the kernel counts it.
    pub cpu_time: f64,
    /// Jobs that succeeded in time, failed, were late.
    pub jobs: [u64; 3],
    /// No scheduler RPC before this instant, and why.
    pub min_rpc: Option<(f64, String)>,
    /// Why no more work is asked of it, whatever is lacking, if none is.
    #[serde(default)]
    pub enough: Option<String>,
    /// Attached by the coordinator.
    pub from_document: bool,
    /// Resource types for which no work is asked for yet, because it brought none (R3.7).
    #[serde(default)]
    pub held_types: Vec<HeldType>,
    /// When the project sent no work the last time, and what it said; absent once it has sent some.
    #[serde(default)]
    pub no_work: Option<(f64, String)>,
    /// What the owner's `app_config.xml` of the project says, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_config: Option<AppConfigStatus>,
}

/// What an `app_config.xml` says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppConfigStatus {
    /// It cannot be read: nothing of the project is begun until it is mended.
    pub is_wrong: bool,
    /// What holds by it, in words.
    pub says: Vec<String>,
    /// What is wrong with it or says nothing, with the line.
    pub remarks: Vec<String>,
}

/// A resource type for which a project is not asked for work yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldType {
    /// The type, such as `CPU`.
    pub resource: String,
    /// Until when.
    pub until: f64,
    /// Requests in a row that brought none.
    pub failures: u32,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskStatus {
    /// Its project's URL.
    pub project_url: String,
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub phase: String,
    /// From 0 to 1.
    pub fraction_done: f64,
    /// CPU time towards its result.
    pub cpu_time: f64,
    /// The same at its last checkpoint.
    pub checkpoint_cpu_time: f64,
    /// When its report is due.
    pub deadline: f64,
    /// Its process, while it has one.
    pub pid: Option<u32>,
    /// The devices that it is on, such as `nvidia:0`, while it has a process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
}

/// Something that the client said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Notice {
    /// When.
    pub time: f64,
    /// `info`, `warn` or `error`.
    pub level: String,
    /// The project's URL, if it is about one.
    pub project_url: Option<String>,
    /// The message.
    pub text: String,
}

/// A phase in words.
pub const fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Downloading => "downloading",
        Phase::Ready => "ready",
        Phase::Running => "running",
        Phase::Preempted => "preempted",
        Phase::Uploading => "uploading",
        Phase::ReadyToReport => "ready to report",
        Phase::Failed => "failed",
    }
}

impl HostStatus {
    /// As the client sees it.
    pub fn of(client: &Client) -> Self {
        let view = client.host_view();
        let fraction = |value: Option<fallow_domain::Fraction>| value.map(fallow_domain::Fraction::get);
        let metrics = view.figures.each_ref().map(|figures| MetricsStatus {
            idleness: fraction(figures.idleness),
            waste: fraction(figures.waste),
            share_violation: fraction(figures.share_violation),
            share_deviation: fraction(figures.share_deviation),
            monotony: fraction(figures.monotony),
        });
        Self {
            machine: client.host_facts().map(MachineStatus::of).unwrap_or_default(),
            cpus: view.cpus,
            usable_cpus: view.usable_cpus,
            idle_cpus: view.idle_cpus,
            suspended_by: view.suspended_by.map(|who| who.to_string()),
            stopped_for: view.stopped_for,
            is_program_named: view.is_program_named,
            awaits_look: view.awaits_look,
            lacks_layers: view.lacks_layers,
            hours: view.hours.to_string(),
            hours_change: view.hours_change,
            snoozed_until: view.snoozed_until.map(Instant::as_secs_f64),
            snoozed_by: None,
            in_use: view.in_use.is_so,
            in_use_until: view.in_use.until.map(Instant::as_secs_f64),
            idle_after: view.in_use.idle_after.as_secs_f64(),
            rests_in_use: match view.in_use.rests {
                Rests::Computing => "computing",
                Rests::Coprocessors => "coprocessors",
                Rests::Nothing => "nothing",
            }
            .to_owned(),
            network_rests: view.network_rests,
            files_wait: view.files_wait,
            excluded_devices: view.excluded_devices.iter().map(ToString::to_string).collect(),
            devices: devices(client),
            owner_excluded_devices: view.owner.excluded_devices.iter().map(ToString::to_string).collect(),
            document_version: view.document_version,
            document_on_trial: view.is_on_trial,
            document_refused: view.document_refused,
            document_rolled_back: view.rolled_back.map(|one| (one.version, one.why)),
            declined: view.declined.iter().map(ToString::to_string).collect(),
            cpu_time: view.cpu_time.as_secs_f64(),
            scheduler_rpcs: view.scheduler_rpcs,
            jobs_finished: view.jobs_finished,
            metrics,
        }
    }
}

fn devices(client: &Client) -> Vec<DeviceStatus> {
    let of = |view: DeviceView| DeviceStatus {
        device: view.device.to_string(),
        model: view.model,
        address: view.address,
        memory: view.memory.0,
        driver: view.driver,
        temperature: view.temperature,
        usable: view.state == DeviceState::Usable,
        is_program_named: matches!(view.state, DeviceState::InUse(_)),
        state: view.state.to_string(),
        jobs: view.jobs.into_iter().filter_map(|id| Some(client.task_view(id)?.name)).collect(),
    };
    client.device_views().into_iter().map(of).collect()
}

/// The projects, as the client sees them.
pub fn projects(client: &Client) -> Vec<ProjectStatus> {
    let held = |(kind, until, failures): (ResourceType, Instant, u32)| HeldType {
        resource: kind.to_string(),
        until: until.as_secs_f64(),
        failures,
    };
    let of = |view: fallow_client::ProjectView| ProjectStatus {
        held_types: client.held_types(view.id).into_iter().map(held).collect(),
        no_work: client.no_work(view.id).map(|no_work| (no_work.at.as_secs_f64(), no_work.said.clone())),
        app_config: client.app_config_view(view.id).map(|view| AppConfigStatus {
            is_wrong: view.is_wrong,
            says: view.says,
            remarks: view.remarks,
        }),
        url: view.url.to_string(),
        name: view.name,
        share: view.share.get(),
        debt: view.debt,
        cpu_time: view.totals.cpu.as_secs_f64(),
        jobs: [view.totals.jobs_success, view.totals.jobs_error, view.totals.jobs_late],
        min_rpc: view.min_rpc_time.map(|(at, why)| (at.as_secs_f64(), why)),
        enough: view.enough,
        from_document: view.from_document,
    };
    client.project_views().into_iter().map(of).collect()
}

/// The jobs, as the client sees them, and how many more there are than a status tells.
pub fn tasks(client: &Client) -> (Vec<TaskStatus>, usize) {
    let of = |view: fallow_client::TaskView| TaskStatus {
        project_url: view.project_url.to_string(),
        name: view.name,
        phase: phase(view.phase).to_owned(),
        fraction_done: view.fraction_done,
        cpu_time: view.cpu_time.as_secs_f64(),
        checkpoint_cpu_time: view.checkpoint_cpu_time.as_secs_f64(),
        deadline: view.deadline.as_secs_f64(),
        pid: view.pid,
        devices: view.devices.iter().map(ToString::to_string).collect(),
    };
    let mut views = client.task_views();
    let left_out = views.len().saturating_sub(TASKS_MAX);
    if left_out > 0 {
        // Stable, so that among the others the order stays that in which they came.
        views.sort_by_key(|view| matches!(view.phase, Phase::Downloading | Phase::Ready));
        views.truncate(TASKS_MAX);
    }
    (views.into_iter().map(of).collect(), left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_metrics_are_told_by_the_keys_that_they_have_everywhere() {
        let none = MetricsStatus {
            idleness: None,
            waste: None,
            share_violation: None,
            share_deviation: None,
            monotony: None,
        };
        let told = serde_json::to_value(none).unwrap();
        let told: std::collections::BTreeSet<&str> =
            told.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(told, fallow_domain::Metric::ALL.map(fallow_domain::Metric::key).into());
    }
}
