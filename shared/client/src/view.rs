//! What can be seen of a client from outside: for `status`, the fleet link and metrics.

use fallow_domain::{DocumentVersion, Duration, Instant, JobId, MasterUrl, ProjectId, Share};
use fallow_policy::metrics::Figures;

/// The host as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct HostView {
    /// CPUs of the machine.
    pub cpus: u32,
    /// CPUs that may be used now.
    pub usable_cpus: u32,
    /// CPUs that nothing runs on, of those.
    pub idle_cpus: u32,
    /// Who suspended computing, if anybody: `owner` or `coordinator`.
    pub suspended_by: Option<&'static str>,
    /// The document that is followed.
    pub document_version: DocumentVersion,
    /// When it was applied.
    pub document_applied_at: Instant,
    /// The newest document that was refused since, and why.
    pub document_refused: Option<(DocumentVersion, String)>,
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
    /// Its weight.
    pub share: Share,
    /// Short-term debt in CPU seconds (R2.1).
    pub debt: f64,
    /// Totals.
    pub totals: crate::Totals,
    /// No scheduler RPC before this instant, and why.
    pub min_rpc_time: Option<(Instant, String)>,
    /// Attached by the coordinator's document.
    pub from_document: bool,
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
}

/// Where a job stands, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Its files are on their way.
    Downloading,
    /// It could run and has not begun.
    Ready,
    /// It runs.
    Running,
    /// It began and waits.
    Preempted,
    /// Its outputs are on their way.
    Uploading,
    /// Done, to be reported.
    ReadyToReport,
    /// Failed, to be reported.
    Failed,
}
