//! What can be seen of a client from outside: for `status`, the fleet link and metrics.

use std::collections::{BTreeMap, BTreeSet};

pub use fallow_domain::agent_state::Phase;
use fallow_domain::agent_state::{NetworkRest, OwnerWord, RolledBack, SuspendedBy};
use fallow_domain::{
    Bytes, Device, DocumentVersion, Duration, HostFacts, Hours, Instant, JobId, MasterUrl, OwnerLimits,
    ProjectAssignment, ProjectId, ResourceType, Share, Virtualization,
};
use fallow_policy::metrics::{Figures, Metrics};

/// The host as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct HostView {
    /// CPUs of the machine.
    pub cpus: u32,
    /// CPUs that may be used now.
    pub usable_cpus: u32,
    /// CPUs that nothing runs on, of those.
    pub idle_cpus: u32,
    /// Who suspended computing, if anybody.
    pub suspended_by: Option<SuspendedBy>,
    /// What around the tasks stops computing, in words; said also where somebody has suspended it besides.
    pub stopped_for: Option<String>,
    /// What stops it is a program that preferences name, and those words say which.
    pub is_program_named: bool,
    /// Jobs wait for a look at the battery and other programs, which was asked for.
    pub awaits_look: bool,
    /// Layers of confinement that preferences require and that are off, with why: nothing is computed then.
    pub lacks_layers: Option<String>,
    /// When it may compute.
    pub hours: Hours,
    /// When these hours begin or end next, by its clock on the wall, such as `Mon 18:00`.
    pub hours_change: Option<String>,
    /// Until when somebody on the host has paused computing, if that holds.
    pub snoozed_until: Option<Instant>,
    /// Whether somebody uses the host, and what follows from it.
    pub in_use: InUseView,
    /// What in the preferences of the network keeps it from contacting projects, if anything does.
    pub network_rest: Option<NetworkRest>,
    /// Why no project is contacted now by preferences of the network, if none is: in words.
    pub network_rests: Option<String>,
    /// Why files wait although projects are contacted, if they do: in words.
    pub files_wait: Option<String>,
    /// Devices that must not be used, by the document or the owner (R3.14).
    pub excluded_devices: BTreeSet<Device>,
    /// The limits of the owner that he set by commands.
    pub owner: OwnerLimits,
    /// Somebody uses the host, and less of it may compute meanwhile by what its files say.
    pub is_less_in_use: bool,
    /// All limits of the owner: those, and what the files of the host say.
    pub owner_limits: OwnerLimits,
    /// All that the owner says, with where; none where he says nothing.
    pub owner_word: Option<OwnerWord>,
    /// Main memory; 0 until it was measured.
    pub memory: Bytes,
    /// Whether it is a machine of its own.
    pub virtualization: Virtualization,
    /// Coprocessors, how many of each kind.
    pub coprocessors: BTreeMap<ResourceType, u32>,
    /// The document that is followed.
    pub document_version: DocumentVersion,
    /// Its content, as the coordinator named it.
    pub document_content: String,
    /// When it was applied.
    pub document_applied_at: Instant,
    /// The newest document that was refused since, and why.
    pub document_refused: Option<(DocumentVersion, String)>,
    /// The version that the host went back from last by itself, unless a newer one was confirmed since.
    pub rolled_back: Option<RolledBack>,
    /// The document is on trial: it is not confirmed yet.
    pub is_on_trial: bool,
    /// Projects of the document that the owner detached: they stay so until he attaches them.
    pub declined: Vec<MasterUrl>,
    /// The metrics over one day, seven and thirty (R5.34).
    pub figures: [Figures; 3],
    /// CPU time of all tasks since the store was made, detached projects included.
    pub cpu_time: Duration,
    /// Scheduler RPCs made since the store was made.
    pub scheduler_rpcs: u64,
    /// Jobs over since the store was made.
    pub jobs_finished: u64,
    /// When this life of the agent began.
    pub started_at: Instant,
}

/// One project.
#[derive(Clone, Debug, PartialEq)]
pub struct ProjectView {
    /// The project.
    pub id: ProjectId,
    /// Its URL.
    pub url: MasterUrl,
    /// Its name, as it or the coordinator gave it.
    pub name: String,
    /// The name of its directory, which no other project shares.
    pub directory: String,
    /// Its weight.
    pub share: Share,
    /// Short-term debt in CPU seconds (R2.1).
    pub debt: f64,
    /// Totals.
    pub totals: crate::Totals,
    /// No scheduler RPC before this instant, and why.
    pub min_rpc_time: Option<(Instant, String)>,
    /// Why it is asked for no more work, whatever is lacking, if it is not.
    pub enough: Option<String>,
    /// Attached by the coordinator's document.
    pub from_document: bool,
}

/// How a project stands with this host.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// The project, if it is attached.
    pub attached: Option<ProjectId>,
    /// What the coordinator's document says of it: then it is the coordinator's, attached or declined by the
    /// owner.
    pub assigned: Option<ProjectAssignment>,
}

/// One job.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskView {
    /// The job.
    pub id: JobId,
    /// Its project.
    pub project: ProjectId,
    /// Its project's URL.
    pub project_url: MasterUrl,
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub phase: Phase,
    /// CPU time towards its result, lost work excluded.
    pub cpu_time: Duration,
    /// The same at its last checkpoint.
    pub checkpoint_cpu_time: Duration,
    /// From 0 to 1, as the application says.
    pub fraction_done: f64,
    /// When its report is due.
    pub deadline: Instant,
    /// Its process, while it has one.
    pub pid: Option<u32>,
    /// The devices that it is on, while it has a process.
    pub devices: Vec<Device>,
}

use crate::in_use::InUseView;
use crate::machine::Client;
use crate::messages::NoWork;
use crate::state::{Job, Process, Stage};
use crate::{Entity, Totals};
use fallow_policy::metrics::Window;

impl Client {
    /// The host as a whole.
    pub fn host_view(&self) -> HostView {
        let all = self.ledger.all();
        let usable = self.usable_cpus();
        let meta = &self.state.host;
        let facts = meta.facts();
        let late = self.late_unreported();
        let wished = meta.document.as_ref().is_some_and(|document| document.preferences.suspended);
        HostView {
            cpus: facts.map_or(0, |host| host.ncpus),
            usable_cpus: usable,
            idle_cpus: self.idle_cpus(),
            suspended_by: [
                (meta.owner.suspended || meta.is_suspended_by_file(), SuspendedBy::Owner),
                (wished, SuspendedBy::Coordinator),
                (!meta.lacking().is_nothing(), SuspendedBy::Confinement),
                (meta.rests(), SuspendedBy::Hours),
                (meta.is_snoozed(), SuspendedBy::Snooze),
                (meta.gives_way(), SuspendedBy::InUse),
                (meta.lacks_disk(), SuspendedBy::Disk),
            ]
            .into_iter()
            .find_map(|(is_so, by)| is_so.then_some(by))
            .or_else(|| meta.stopped_by()),
            stopped_for: meta.stopped_for(),
            is_program_named: meta.is_program_named(),
            awaits_look: self.awaits_look(),
            lacks_layers: Some(meta.lacking()).filter(|one| !one.is_nothing()).map(ToString::to_string),
            snoozed_until: self.snoozed_until(),
            in_use: meta.in_use(),
            hours: self.preferences().hours.clone(),
            hours_change: meta.hours_change_at().map(|at| meta.local_time().show(at)),
            network_rest: self.network_rest(),
            network_rests: self.network_rests(),
            files_wait: self.files_wait(),
            excluded_devices: self.preferences().excluded_devices.clone(),
            owner: meta.owner.clone(),
            // A job on a coprocessor takes its part of the CPUs with it.
            is_less_in_use: meta.is_less_in_use()
                || meta.gives_way_with_devices() && self.has_usable_devices(),
            owner_limits: meta.owner_limits(),
            owner_word: meta.owner_word(),
            memory: facts.map_or(Bytes(0), |host| host.memory),
            virtualization: facts.map(|host| host.virtualization.clone()).unwrap_or_default(),
            coprocessors: facts
                .iter()
                .flat_map(|host| &host.coprocessors)
                .filter(|one| one.count > 0)
                .map(|one| (one.kind, one.count))
                .collect(),
            document_version: meta.document.as_ref().map_or(DocumentVersion(0), |document| document.version),
            document_content: meta.document.as_ref().map(|one| one.content.clone()).unwrap_or_default(),
            document_applied_at: meta.document_applied_at,
            document_refused: meta.document_refused.clone(),
            rolled_back: meta.rolled_back.last().map(|last| RolledBack {
                version: last.version,
                at: last.at,
                why: last.why.clone(),
            }),
            is_on_trial: meta.trial.is_some(),
            declined: meta.declined.iter().filter(|url| self.assigned(url).is_some()).cloned().collect(),
            figures: Window::ALL.map(|window| self.ledger.figures(window, self.now(), late)),
            cpu_time: all.cpu,
            scheduler_rpcs: all.rpcs,
            jobs_finished: all.jobs_success + all.jobs_error + all.jobs_late,
            started_at: self.clock.started_at(),
        }
    }

    /// What the host is like; none until that was measured.
    pub const fn host_facts(&self) -> Option<&HostFacts> {
        self.state.host.facts()
    }

    /// All projects, in the order in which they were attached.
    pub fn project_views(&self) -> Vec<ProjectView> {
        self.state.projects.keys().filter_map(|id| self.project_view(*id)).collect()
    }

    /// One project.
    pub fn project_view(&self, id: ProjectId) -> Option<ProjectView> {
        let project = self.state.projects.get(&id)?;
        Some(ProjectView {
            id,
            url: project.url.clone(),
            name: project.name.clone(),
            directory: project.directory(),
            share: project.share,
            debt: self.ledger.cpu_debt(id).as_secs(),
            totals: self.ledger.totals_of(id),
            min_rpc_time: project.rpc.min_work_time(self.now()).map(|wait| (wait.at, wait.cause.to_string())),
            enough: self.why_enough(id),
            from_document: project.from_document,
        })
    }

    /// What keeps a project from being contacted now, and until when: what its owner overrides by asking for
    /// contact (R1.4).
    pub fn contact_held_by(&self, url: &MasterUrl) -> Vec<(Instant, String)> {
        let project = self.project_of(url).and_then(|id| self.state.projects.get(&id));
        let waits = project.map(|project| project.rpc.held_by(self.now())).unwrap_or_default();
        waits.into_iter().map(|wait| (wait.at, wait.cause.to_string())).collect()
    }

    /// Whether an answer of a project's scheduler is awaited: contact asked for now is made when it has
    /// failed or is overdue.
    pub fn awaits_answer(&self, url: &MasterUrl) -> bool {
        self.project_of(url).is_some_and(|id| self.sessions.in_flight(id).is_some())
    }

    /// The resource types for which a project is not asked for work now, until when, and how many requests in
    /// a row brought none (R3.7).
    pub fn held_types(&self, id: ProjectId) -> Vec<(ResourceType, Instant, u32)> {
        let backoffs = self.ledger.type_backoffs();
        let held = |kind: &ResourceType| backoffs.holds(id, *kind, self.now());
        let until =
            |kind| (kind, self.now() + backoffs.left(id, kind, self.now()), backoffs.failures(id, kind));
        ResourceType::ALL.into_iter().filter(held).map(until).collect()
    }

    /// What a project said when it sent no work the last time, unless it has sent some since.
    pub fn no_work(&self, id: ProjectId) -> Option<&NoWork> {
        self.hearings.no_work(id)
    }

    /// The metrics of a window that ends now, by the events so far.
    pub fn figures(&self, window: Window) -> Figures {
        self.ledger.figures(window, self.now(), self.late_unreported())
    }

    /// The history that the metrics are made from, which can be merged with other hosts'.
    pub const fn history(&self) -> &Metrics {
        self.ledger.metrics()
    }

    /// Whether the owner has suspended computing.
    pub fn owner_suspended(&self) -> bool {
        self.state.host.owner.suspended
    }

    /// Until when somebody has paused computing, while that is not over.
    pub fn snoozed_until(&self) -> Option<Instant> {
        let host = &self.state.host;
        host.snoozed_until.filter(|_| host.is_snoozed())
    }

    /// How a project stands with this host.
    pub fn standing(&self, url: &MasterUrl) -> Standing {
        Standing { attached: self.project_of(url), assigned: self.assigned(url).cloned() }
    }

    /// All jobs, in the order in which they came.
    pub fn task_views(&self) -> Vec<TaskView> {
        self.state.jobs.values().filter_map(|job| self.task_view(job.id)).collect()
    }

    /// One job.
    pub fn task_view(&self, id: JobId) -> Option<TaskView> {
        let job = self.state.jobs.get(&id)?;
        let project = self.state.projects.get(&job.project)?;
        Some(TaskView {
            id,
            project: job.project,
            project_url: project.url.clone(),
            name: job.result.name.clone(),
            phase: phase(job),
            cpu_time: job.run.cpu(),
            checkpoint_cpu_time: job.run.checkpoint_cpu,
            fraction_done: job.run.fraction_done,
            deadline: job.result.report_deadline,
            pid: job.process.pid(),
            devices: self.devices_held(id),
        })
    }

    /// Everything that has a view.
    pub fn entities(&self) -> Vec<Entity> {
        let projects = self.state.projects.keys().map(|id| Entity::Project(*id));
        let jobs = self.state.jobs.keys().map(|id| Entity::Job(*id));
        let disk = (self.disk_decisions().len() > 0).then_some(Entity::Disk);
        std::iter::once(Entity::Host).chain(disk).chain(projects).chain(jobs).collect()
    }

    /// Totals over all projects, detached ones too.
    pub fn totals(&self) -> Totals {
        self.ledger.all()
    }

    /// CPUs that may be used and on which no task runs.
    fn idle_cpus(&self) -> u32 {
        let busy: f64 = self.computing().map(|job| job.usage.cpus).sum();
        self.usable_cpus().saturating_sub(busy.ceil() as u32)
    }

    fn computing(&self) -> impl Iterator<Item = &Job> {
        self.state
            .jobs
            .slots()
            .values()
            .filter_map(|id| self.state.jobs.get(id))
            .filter(|job| job.process.computes())
    }

    /// Instance time of jobs that are late already, and not reported yet.
    pub fn late_unreported(&self) -> Duration {
        let (slots, over) = (
            self.state.jobs.slots().values(),
            self.state.jobs.uploading().iter().chain(self.state.jobs.reporting()),
        );
        let held: BTreeSet<&JobId> = slots.chain(over).collect();
        let late = held.into_iter().filter_map(|id| self.state.jobs.get(id));
        late.filter(|job| job.result.report_deadline < self.now()).map(|job| self.worth(job)).sum()
    }
}

fn phase(job: &Job) -> Phase {
    let failed = job.outcome.as_ref().is_some_and(|outcome| outcome.exit_status != 0);
    match (job.stage, job.process) {
        (Stage::Downloading, _) => Phase::Downloading,
        (Stage::Runnable, _) if failed => Phase::Failed,
        (Stage::Runnable, Process::Starting | Process::Executing(_)) => Phase::Running,
        (Stage::Runnable, _) if job.run.begun => Phase::Preempted,
        (Stage::Runnable, _) => Phase::Ready,
        (Stage::Uploading, _) => Phase::Uploading,
        (Stage::Reporting, _) if failed => Phase::Failed,
        (Stage::Reporting, _) => Phase::ReadyToReport,
    }
}
