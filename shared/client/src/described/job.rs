//! Workunits, and the jobs that compute them.

use fallow_domain::{Bytes, Flops, Instant};
use serde::{Deserialize, Serialize};

use super::FileReference;

/// What jobs of it compute (BOINC: `workunit`). What its project left out has BOINC's defaults where it is
/// used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Workunit {
    /// Its name.
    pub name: String,
    /// The short name of the application that computes it.
    #[serde(rename = "app_name")]
    pub app: String,
    /// How much there is to compute.
    #[serde(rename = "rsc_fpops_est")]
    pub flops_estimate: Option<Flops>,
    /// The amount after which a job is stopped.
    #[serde(rename = "rsc_fpops_bound")]
    pub flops_bound: Option<Flops>,
    /// Memory that a job is expected to need.
    #[serde(rename = "rsc_memory_bound")]
    pub memory_bound: Option<Bytes>,
    /// Disk space after which a job is stopped.
    #[serde(rename = "rsc_disk_bound")]
    pub disk_bound: Option<Bytes>,
    /// Arguments for the application.
    pub command_line: String,
    /// Its input files.
    pub files: Vec<FileReference>,
}

/// What a project says of a job that it gives to the host (BOINC: `result` in a reply).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct JobDescription {
    /// Its name.
    pub name: String,
    /// The name of the workunit that it computes.
    #[serde(rename = "wu_name")]
    pub workunit: String,
    /// By when the server wants its report.
    pub report_deadline: Instant,
    /// Its output files.
    pub files: Vec<FileReference>,
    /// The platform of the application version to use; empty for the primary platform and the newest version.
    pub platform: String,
    /// That version's number.
    #[serde(rename = "version_num")]
    pub version_number: u32,
    /// That version's plan class.
    pub plan_class: String,
    /// It is to be reported as soon as it is done.
    pub report_immediately: bool,
}
