//! What the agent says of itself: as JSON for programs, as a table for people.

use std::collections::BTreeMap;
use std::fmt::Write;

use comfy_table::{Table, presets};
use fallow_client::{Client, DeviceState, DeviceView, Phase, Rests};
use fallow_domain::{DocumentVersion, Duration, Instant, ResourceType, printable};
use serde::{Deserialize, Serialize};

use super::machine::MachineStatus;
use super::notices::newest;
use super::preferences::PreferenceStatus;
use crate::confine::{self, Layer};
use crate::fleet::link::LinkStatus;
use crate::host::owner::{LastInput, SensorStatus};
use crate::supervise::groups;

/// Longest name in a table, in bytes.
const NAME_MAX: usize = 255;
/// Longest text of others, in bytes.
const TEXT_MAX: usize = 2_000;
/// Most jobs that a status tells of. With names and URLs of the greatest length each takes 1,000 bytes, and
/// all together less than an answer may (`protocol::LINE_MAX`).
const TASKS_MAX: usize = 10_000;
/// Most rows of the table of jobs. Who wants all of them asks for JSON.
const ROWS_MAX: usize = 200;
/// Notices that are looked through for warnings.
const NOTICES_SHOWN: usize = 5;

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
    /// Its data directory.
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
    /// Which layers of confinement are off that preferences require, for people; nothing where none is.
    pub fn lacking(&self) -> Option<String> {
        let lacks = self.lacks_layers.as_deref()?;
        let lacks = printable::line(lacks, TEXT_MAX);
        Some(format!("nothing is computed: preferences require layers of confinement that are off: {lacks}"))
    }

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

impl ProjectStatus {
    /// When it may be contacted, for what, and why not before. `rests`: no project is, which is said above.
    fn next_contact(&self, now: Instant, rests: bool) -> String {
        let ahead = |at: f64| Some(Instant::from_secs_f64(at)).filter(|at| *at > now).map(|at| at.since(now));
        let all = self.min_rpc.as_ref().and_then(|(at, why)| Some((*at, ahead(*at)?, why)));
        let mut parts: Vec<String> = all.iter().map(|(_, wait, why)| format!("in {wait} ({why})")).collect();
        for held in &self.held_types {
            // A wait that the other one covers says nothing.
            let covered = all.is_some_and(|(at, ..)| at >= held.until);
            if let Some(wait) = ahead(held.until).filter(|_| !covered) {
                let (resource, times) = (&held.resource, if held.failures == 1 { "" } else { "s in a row" });
                let failures = held.failures;
                parts.push(format!("{resource} work in {wait} ({failures} request{times} brought none)"));
            }
        }
        if let Some(why) = &self.enough {
            parts.push(format!("no more work ({why})"));
        }
        match (parts.is_empty(), rests) {
            (true, true) => "none now (see above)".to_owned(),
            (true, false) => "any time".to_owned(),
            (false, _) => parts.join("; "),
        }
    }
}

impl Status {
    /// For people. `now` is what deadlines are told against.
    pub fn text(&self, now: Instant) -> String {
        let mut out = String::new();
        let host = &self.host;
        if !self.line.is_empty() {
            let _ = writeln!(out, "{}", self.line);
        }
        let _ = writeln!(out, "agent {} (process {}) in {}", self.version, self.pid, self.dir);
        match &self.fleet {
            None => out.push_str("no coordinator\n"),
            Some(link) if link.connected => {
                let through = link.proxy.as_ref().map(|proxy| format!(" through the proxy at {proxy}"));
                let _ = writeln!(
                    out,
                    "linked to the coordinator at {} as {}{}",
                    link.coordinator,
                    link.agent_id,
                    through.unwrap_or_default()
                );
            }
            Some(link) => {
                let why = link.last_error.as_deref().unwrap_or("connecting");
                let _ = writeln!(out, "no link to the coordinator at {}: {why}", link.coordinator);
            }
        }
        if let Some((version, why)) = &host.document_refused {
            let _ = writeln!(out, "document {version} was refused: {why}");
        }
        if let Some((version, why)) = &host.document_rolled_back {
            let _ = writeln!(out, "went back from document {version}: {why}");
        }
        let _ = writeln!(
            out,
            "{} of {} CPUs usable, {} idle; document version {}{}; {} of CPU time; {} over",
            host.usable_cpus,
            host.cpus,
            host.idle_cpus,
            host.document_version,
            if host.document_on_trial { " (on trial)" } else { "" },
            Duration::from_secs_f64(host.cpu_time),
            count(host.jobs_finished, "job")
        );
        if let Some(machine) = host.machine.text() {
            let _ = writeln!(out, "{machine}");
        }
        if host.suspended_by.is_none() && host.hours_change.is_some() {
            let until = host.hours_change.as_ref().map(|at| format!(", until {at}")).unwrap_or_default();
            let _ = writeln!(out, "this host may compute now (its hours: {}){until}", host.hours);
        }
        if let Some(last) =
            self.last_input.as_ref().filter(|_| host.suspended_by.as_deref() == Some("in use"))
        {
            let ago = now.since(Instant::from_secs_f64(last.at)).max(Duration::ZERO);
            let _ = writeln!(out, "used last: {}, {ago} ago", printable::line(&last.of, NAME_MAX));
        }
        if !self.sensors.is_empty() {
            let (on, off): (Vec<_>, Vec<_>) = self.sensors.iter().partition(|sensor| sensor.on);
            let all: Vec<String> = on.into_iter().chain(off).map(sensed).collect();
            let _ = writeln!(out, "who uses the machine is sensed by: {}", all.join("; "));
        }
        for sensor in [&self.memory_pressure, &self.network_traffic].into_iter().flatten() {
            let _ = writeln!(out, "{}", sensed(sensor));
        }
        if let Some(why) = &host.network_rests {
            let _ = writeln!(out, "no project is contacted: {why}");
        }
        if let Some(why) = &host.files_wait {
            let _ = writeln!(out, "files wait: {why}");
        }
        if !host.excluded_devices.is_empty() {
            let _ = writeln!(out, "devices that are not used: {}", host.excluded_devices.join(", "));
        }
        if let Some(trouble) = &self.store_trouble {
            let _ = writeln!(out, "nothing new is begun: {trouble}");
        }
        for trouble in &self.preference_troubles {
            let _ = writeln!(out, "a preference file is wrong: {trouble}");
        }
        if let Some(text) = host.lacking() {
            let _ = writeln!(out, "{text}");
        }
        self.say_confinement(&mut out);
        for url in &host.declined {
            let _ = writeln!(
                out,
                "{url} is the coordinator's and detached by the owner; take it up again with: fallow-agent attach {url}"
            );
        }
        self.device_table(&mut out);
        self.project_table(&mut out, now);
        self.task_table(&mut out, now);
        for notice in newest(&self.notices, NOTICES_SHOWN).into_iter().filter(|notice| notice.level != "info")
        {
            let ago = now.since(Instant::from_secs_f64(notice.time));
            let about = notice.project_url.as_deref().map(|url| format!(", {}", self.project_name(url)));
            let _ = writeln!(
                out,
                "{} ({ago} ago{}): {}",
                notice.level,
                about.unwrap_or_default(),
                printable::line(&notice.text, TEXT_MAX)
            );
        }
        out
    }

    /// What keeps jobs in their slots, in a line, and in one more for each reason why something does not.
    fn say_confinement(&self, out: &mut String) {
        let named =
            |layers: &[&Layer]| layers.iter().map(|layer| layer.name.as_str()).collect::<Vec<_>>().join(", ");
        let (on, off): (Vec<&Layer>, Vec<&Layer>) = self.confinement.iter().partition(|layer| layer.on);
        if !on.is_empty() {
            let _ = writeln!(out, "jobs are confined: {}", named(&on));
        }
        let mut reasons: BTreeMap<&str, Vec<&Layer>> = BTreeMap::new();
        for layer in off {
            let without = match layer.name.as_str() {
                groups::LAYER => Some("jobs are in no control groups"),
                confine::USER => Some("jobs have no users of their own"),
                confine::TMP => Some("jobs have no /tmp of their own"),
                _ => None,
            };
            if let Some(without) = without {
                let _ = writeln!(out, "{without}: {}", printable::line(&layer.why, TEXT_MAX));
                continue;
            }
            reasons.entry(layer.why.as_str()).or_default().push(layer);
        }
        for (why, layers) in reasons {
            let _ = writeln!(
                out,
                "jobs are not confined: {} ({})",
                named(&layers),
                printable::line(why, TEXT_MAX)
            );
        }
    }

    /// What people call a project.
    fn project_name(&self, url: &str) -> String {
        let named = self.projects.iter().find(|project| project.url == url && !project.name.is_empty());
        named.map_or_else(|| url.to_owned(), |project| shown(&project.name))
    }

    fn device_table(&self, out: &mut String) {
        let mut table = table(&["DEVICE", "MODEL", "MEMORY", "DRIVER", "HEAT", "STATE", "JOBS"]);
        for device in &self.host.devices {
            let jobs: Vec<String> = device.jobs.iter().map(|name| shown(name)).collect();
            table.add_row([
                device.device.clone(),
                shown(&device.model),
                format!("{} MiB", device.memory >> 20),
                shown(&device.driver),
                device.temperature.map_or_else(|| "-".to_owned(), |degrees| format!("{degrees} °C")),
                printable::line(&device.state, TEXT_MAX),
                jobs.join(", "),
            ]);
        }
        // Before the first look at the machine nobody knows.
        if self.host.cpus > 0 {
            finish(out, &table, self.host.devices.is_empty(), "GPUs: none");
        }
    }

    fn project_table(&self, out: &mut String, now: Instant) {
        let mut table = table(&["PROJECT", "SHARE", "DEBT", "CPU TIME", "JOBS OK/ERR/LATE", "NEXT CONTACT"]);
        for project in &self.projects {
            let [ok, error, late] = project.jobs;
            table.add_row([
                self.project_name(&project.url),
                format!("{:.0}", project.share),
                format!("{:+.1} s", project.debt),
                Duration::from_secs_f64(project.cpu_time).to_string(),
                format!("{ok}/{error}/{late}"),
                project.next_contact(now, self.host.network_rests.is_some()),
            ]);
        }
        finish(
            out,
            &table,
            self.projects.is_empty(),
            "no projects; attach one with: fallow-agent attach URL",
        );
        for project in &self.projects {
            if let Some(file) = &project.app_config {
                Self::say_app_config(out, &self.project_name(&project.url), file);
            }
            if let Some((at, said)) = &project.no_work {
                let (name, ago) = (self.project_name(&project.url), now.since(Instant::from_secs_f64(*at)));
                let _ = writeln!(
                    out,
                    "{name} sent no work {ago} ago and said: {}",
                    printable::line(said, TEXT_MAX)
                );
            }
        }
    }

    /// Where a job stands, and for what one waits that might run.
    fn state_of(&self, task: &TaskStatus) -> String {
        let waits = matches!(task.phase.as_str(), "ready" | "preempted");
        let why = match () {
            () if !waits => "",
            () if self.host.suspended_by.is_some() => " (computing rests)",
            () if self.store_trouble.is_some() => " (nothing new is begun)",
            () => "",
        };
        format!("{}{why}", task.phase)
    }

    /// What the owner says of a project's applications, and what is wrong with how he says it.
    fn say_app_config(out: &mut String, name: &str, file: &AppConfigStatus) {
        if !file.says.is_empty() {
            let says = printable::line(&file.says.join("; "), TEXT_MAX);
            let _ = writeln!(out, "{name}, by app_config.xml: {says}");
        }
        for remark in &file.remarks {
            let remark = printable::line(remark, TEXT_MAX);
            let _ = match file.is_wrong {
                true => {
                    writeln!(out, "{name}: nothing is begun until its app_config.xml is mended: {remark}")
                }
                false => writeln!(out, "{name}, app_config.xml, {remark}"),
            };
        }
    }

    fn task_table(&self, out: &mut String, now: Instant) {
        let mut table = table(&["JOB", "PROJECT", "STATE", "DONE", "CPU TIME", "CHECKPOINT", "DUE IN"]);
        for task in self.tasks.iter().take(ROWS_MAX) {
            table.add_row([
                shown(&task.name),
                self.project_name(&task.project_url),
                self.state_of(task),
                format!("{:.1} %", task.fraction_done * 100.0),
                Duration::from_secs_f64(task.cpu_time).to_string(),
                Duration::from_secs_f64(task.checkpoint_cpu_time).to_string(),
                (Instant::from_secs_f64(task.deadline) - now).to_string(),
            ]);
        }
        finish(out, &table, self.tasks.is_empty(), "no jobs");
        let more = self.tasks.len().saturating_sub(ROWS_MAX) + self.tasks_left_out;
        if more > 0 {
            let mut phases: BTreeMap<&str, usize> = BTreeMap::new();
            for task in self.tasks.iter().skip(ROWS_MAX) {
                *phases.entry(task.phase.as_str()).or_default() += 1;
            }
            let phases: Vec<String> =
                phases.iter().map(|(phase, count)| format!("{count} {phase}")).collect();
            let _ =
                writeln!(out, "... and {more} jobs more ({}); status --json lists them", phases.join(", "));
        }
    }
}

/// Longest reason of a sensor in the text, in bytes; JSON has all of it.
const REASON_MAX: usize = 70;

/// A sensor for people: what it has, or in short why it is off.
fn sensed(SensorStatus { sensor, on, what }: &SensorStatus) -> String {
    // The system's number of an error says nothing that its words do not.
    let what = what.split(" (os error ").next().unwrap_or_default();
    match on {
        true => format!("{sensor} on ({})", printable::line(what, NAME_MAX)),
        false => format!("{sensor} off ({})", printable::line(what, REASON_MAX)),
    }
}

fn count(number: u64, of: &str) -> String {
    format!("{number} {of}{}", if number == 1 { "" } else { "s" })
}

/// A name, as it is shown in a table.
fn shown(name: &str) -> String {
    printable::line(name, NAME_MAX)
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    table
}

fn finish(out: &mut String, table: &Table, empty: bool, instead: &str) {
    if empty {
        let _ = writeln!(out, "{instead}");
    } else {
        for line in table.lines() {
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_contact_tells_of_types_for_which_no_work_is_asked_for() {
        let now = Instant::from_secs_f64(1e9);
        let held = |wait: f64, failures| HeldType { resource: "CPU".into(), until: 1e9 + wait, failures };
        let project = |min_rpc: Option<f64>, held_types| ProjectStatus {
            url: "http://127.0.0.1:9/p/".into(),
            name: "primes".into(),
            share: 100.0,
            debt: 0.0,
            cpu_time: 0.0,
            jobs: [0; 3],
            min_rpc: min_rpc.map(|wait| (1e9 + wait, "a delay".into())),
            enough: None,
            from_document: true,
            held_types,
            no_work: None,
            app_config: None,
        };
        let text = |min_rpc, held_types| project(min_rpc, held_types).next_contact(now, false);
        assert_eq!(text(None, vec![]), "any time");
        assert_eq!(project(None, vec![]).next_contact(now, true), "none now (see above)");
        assert_eq!(text(None, vec![held(-1.0, 1)]), "any time");
        let wait = Duration::from_secs(600);
        let one = format!("CPU work in {wait} (1 request brought none)");
        assert_eq!(text(None, vec![held(600.0, 1)]), one);
        assert_eq!(text(Some(600.0), vec![held(300.0, 1)]), format!("in {wait} (a delay)"));
        let both = text(Some(60.0), vec![held(600.0, 3)]);
        assert!(both.starts_with("in ") && both.contains("(a delay); CPU work in "), "{both}");
        assert!(both.ends_with("(3 requests in a row brought none)"), "{both}");
        let stalls = ProjectStatus { enough: Some("its downloads stall".into()), ..project(None, vec![]) };
        assert_eq!(stalls.next_contact(now, false), "no more work (its downloads stall)");
    }

    #[test]
    fn r6_4_why_a_sensor_is_off_is_said_in_short_and_without_numbers_of_errors() {
        let of = |on, what: &str| {
            sensed(&SensorStatus { sensor: "sessions".to_owned(), on, what: what.to_owned() })
        };
        let long = format!("no logind on the system bus: {}: No such file (os error 2)", "x".repeat(200));
        let said = of(false, &long);
        assert!(said.starts_with("sessions off (no logind") && said.len() < 100, "{said}");
        assert_eq!(of(false, "/dev/input: Not there (os error 2)"), "sessions off (/dev/input: Not there)");
        assert_eq!(of(true, "as logind has them"), "sessions on (as logind has them)");
        assert_eq!((count(1, "job"), count(2, "job")), ("1 job".to_owned(), "2 jobs".to_owned()));
    }

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
