//! Applications and their versions.

use fallow_domain::Speed;
use serde::{Deserialize, Serialize};

use super::FileReference;

/// An application of a project (BOINC: `app`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Application {
    /// Its short name.
    pub name: String,
    /// Its name for people.
    pub user_friendly_name: String,
    /// Its jobs use next to no CPU and always run.
    pub non_cpu_intensive: bool,
    /// The fraction done that its jobs report is proportional to time.
    pub fraction_done_exact: bool,
    /// Its jobs compute only now and then.
    pub sporadic: bool,
}

/// A version of an application for one platform (BOINC: `app_version`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ApplicationVersion {
    /// The application's short name.
    #[serde(rename = "app_name")]
    pub app: String,
    /// 100 times the major plus the minor number.
    #[serde(rename = "version_num")]
    pub number: u32,
    /// The platform that it runs on.
    pub platform: String,
    /// The kind of resources that it needs; empty for a plain CPU application.
    pub plan_class: String,
    /// The version of the application library in it, as the project wrote it.
    pub api_version: Option<String>,
    /// Its files, one of them the main program.
    pub files: Vec<FileReference>,
    /// CPUs that a job of it uses, possibly a fraction, as the project wrote it: any number.
    #[serde(rename = "avg_ncpus")]
    pub cpus: f64,
    /// What a job of it achieves, if the project says so.
    #[serde(rename = "flops")]
    pub speed: Option<Speed>,
    /// Added to the command line of its jobs.
    #[serde(rename = "cmdline")]
    pub command_line: String,
    /// The coprocessors that a job of it uses.
    #[serde(rename = "coproc")]
    pub coprocessor: Option<CoprocessorUse>,
    /// Put before the names under which its files are opened.
    pub file_prefix: String,
    /// Limits on CPU time per second do not apply to its jobs.
    pub dont_throttle: bool,
    /// Its main program only runs another one.
    pub is_wrapper: bool,
    /// Its jobs need a network while they run.
    pub needs_network: bool,
}

/// Coprocessors that a job uses, as the project wrote it (BOINC: `coproc`). Requests tell them in the same
/// words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CoprocessorUse {
    /// BOINC's word for their type, such as `NVIDIA`, or one that is unknown here.
    pub kind: String,
    /// How many instances, possibly a fraction: any number.
    pub count: f64,
}
