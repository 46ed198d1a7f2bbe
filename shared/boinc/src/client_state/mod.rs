//! The file in which a stock client keeps its state (BOINC: `client_state.xml`), as far as it describes a
//! host, its projects and its queue. Read only: our agent has a store of its own.
//!
//! **Model.** Elements at the top level belong to the project before them (`app`, `file`, `app_version`,
//! `workunit`, `result`); the tasks that have run stand at the end, with the master URL of their project. The
//! client writes the file whole, so one that ends early is refused: what is missing could be anything.
//!
//! **Left out:** transfers, credit, keys, messages, backoffs, the properties of coprocessors that no
//! simulation needs, and preferences, which are in files of their own ([`overlay_preferences`]). Venues are
//! passed over: which one holds is said in another place.
//!
//! **Tolerance.** A result of a workunit that is not there, a task of a result that is not there, an unknown
//! kind of coprocessor: all are kept as they stand, and it is for the caller to say what they mean. Names are
//! not looked at: nothing here becomes a file.

mod read;

use fallow_domain::{Bytes, Duration, Flops, Instant, Speed};

use crate::FormatError;
use crate::scheduler::{Coprocessor, GlobalPreferences, HostCoprocessors, HostInfo, NetStats, TimeStats};
use crate::xml::Reader;

/// What a client's state says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientState {
    /// The machine (BOINC: `host_info`).
    pub host: HostInfo,
    /// Its coprocessors (BOINC: `coprocs` of `host_info`).
    pub coprocessors: Vec<HostCoprocessors>,
    /// How much of the time it is there (BOINC: `time_stats`).
    pub time_stats: TimeStats,
    /// When the client last looked at the clock for these (BOINC: `last_update`).
    pub last_update: Instant,
    /// Measured transfer speeds (BOINC: `net_stats`).
    pub net_stats: NetStats,
    /// The projects, each with what belongs to it.
    pub projects: Vec<StateProject>,
}

/// A project and what the client holds of it.
#[derive(Clone, Debug, PartialEq)]
pub struct StateProject {
    /// Its URL as the client writes it.
    pub master_url: String,
    /// Its name for people.
    pub project_name: String,
    /// Its weight against the others.
    pub resource_share: f64,
    /// Actual over estimated run time of its jobs (BOINC: `duration_correction_factor`).
    pub duration_correction_factor: f64,
    /// True if the project asks clients to leave that factor alone.
    pub dont_use_dcf: bool,
    /// True if no work is to be fetched.
    pub dont_request_more_work: bool,
    /// True if its owner suspended it.
    pub suspended_via_gui: bool,
    /// Requests that failed in a row.
    pub nrpc_failures: u32,
    /// When it was last asked.
    pub last_rpc_time: Instant,
    /// Not to be asked before this.
    pub min_rpc_time: Instant,
    /// Space that its files take.
    pub disk_usage: Bytes,
    /// Versions of its applications.
    pub versions: Vec<StateVersion>,
    /// Its files, with their sizes.
    pub files: Vec<StateFile>,
    /// Its workunits.
    pub workunits: Vec<StateWorkunit>,
    /// Its jobs.
    pub results: Vec<StateResult>,
}

impl Default for StateProject {
    /// What BOINC takes for what is not said.
    fn default() -> Self {
        Self {
            master_url: String::new(),
            project_name: String::new(),
            resource_share: 100.0,
            duration_correction_factor: 1.0,
            dont_use_dcf: false,
            dont_request_more_work: false,
            suspended_via_gui: false,
            nrpc_failures: 0,
            last_rpc_time: Instant::EPOCH,
            min_rpc_time: Instant::EPOCH,
            disk_usage: Bytes(0),
            versions: Vec::new(),
            files: Vec::new(),
            workunits: Vec::new(),
            results: Vec::new(),
        }
    }
}

/// A version of an application (BOINC: `app_version`).
#[derive(Clone, Debug, PartialEq)]
pub struct StateVersion {
    /// The application.
    pub app_name: String,
    /// Its number: 100 times the major plus the minor one.
    pub version_num: u32,
    /// The platform that it runs on.
    pub platform: String,
    /// The kind of resources that it needs, empty for a plain CPU application.
    pub plan_class: String,
    /// CPUs that a job of it uses.
    pub avg_ncpus: f64,
    /// What a job of it achieves.
    pub flops: Option<Speed>,
    /// The coprocessors that a job of it uses.
    pub coproc: Option<Coprocessor>,
}

impl Default for StateVersion {
    fn default() -> Self {
        Self {
            app_name: String::new(),
            version_num: 0,
            platform: String::new(),
            plan_class: String::new(),
            avg_ncpus: 1.0,
            flops: None,
            coproc: None,
        }
    }
}

/// A file (BOINC: `file`, `file_info`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateFile {
    /// Its name.
    pub name: String,
    /// Its size.
    pub nbytes: Bytes,
}

/// What jobs of it compute (BOINC: `workunit`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateWorkunit {
    /// Its name.
    pub name: String,
    /// The application that computes it.
    pub app_name: String,
    /// How much there is to compute.
    pub rsc_fpops_est: Option<Flops>,
    /// Memory that a job needs.
    pub rsc_memory_bound: Bytes,
    /// The names of its input files.
    pub files: Vec<String>,
}

/// A job (BOINC: `result`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateResult {
    /// Its name.
    pub name: String,
    /// Its workunit.
    pub wu_name: String,
    /// How far it is: 0 new, 1 downloading, 2 downloaded, 3 failed, 4 uploading, 5 uploaded, 6 aborted, 7
    /// upload failed.
    pub state: u32,
    /// The version that computes it.
    pub version_num: u32,
    /// That version's platform.
    pub platform: String,
    /// That version's kind.
    pub plan_class: String,
    /// When it arrived.
    pub received_time: Instant,
    /// By when the server wants its report.
    pub report_deadline: Instant,
    /// How long it took, once it has ended.
    pub final_elapsed_time: Duration,
    /// True if its owner suspended it.
    pub suspended_via_gui: bool,
    /// The names of its output files.
    pub files: Vec<String>,
    /// Its task, if it was started.
    pub task: Option<StateTask>,
}

/// A task of a job that was started (BOINC: `active_task`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateTask {
    /// 0 not running, 1 running, 9 suspended; others have ended.
    pub active_task_state: u32,
    /// How long it has run (BOINC: `checkpoint_elapsed_time`; `elapsed_time` where the client is asked).
    pub elapsed_time: Duration,
    /// How much of it is done (BOINC: `checkpoint_fraction_done`, `fraction_done`).
    pub fraction_done: f64,
}

impl ClientState {
    /// Reads the file.
    ///
    /// # Errors
    /// When there is no `<client_state>` in it, or an element that is read has no end.
    pub fn parse(input: &[u8]) -> Result<Self, FormatError> {
        read::client_state(&mut Reader::new("client state", input))
    }
}

/// Takes what a preference file says (BOINC: `global_prefs.xml`, `global_prefs_override.xml`) over what
/// `preferences` hold; the rest stays.
///
/// # Errors
/// When there is no `<global_preferences>` in it, or an element in it has no end.
pub fn overlay_preferences(preferences: &mut GlobalPreferences, input: &[u8]) -> Result<(), FormatError> {
    let mut reader = Reader::new("preference file", input);
    let root = reader.root("global_preferences")?;
    preferences.fill(&mut reader, &root)
}

#[cfg(test)]
mod tests;
