//! The scheduler RPC: what a client says about itself and its jobs, and what a project gives it.
//!
//! Every type is read and written here, because the agent and the work server stand on opposite sides of it.
//! Elements come in any order; the last of several wins. A message is acted on only when it has been read
//! whole: an error anywhere gives no message at all.
//!
//! **Read and dropped** (a client or server of ours has no use for them yet): of requests
//! `daily_xfer_history`, `time_stats_log`, `job_log`, `user_keywords`, `global_prefs_source_email_hash` and a
//! `global_preferences` outside of `working_global_preferences`; of `host_info` all of
//! `docker_compose_*`, `opencl_cpu_prop`, `product_name`, `mac_address`, `wsl` lists; of a reported job
//! `fpops_*` and `intops_*`; of replies, in `workunit`, what belongs to BUDA applications (`sub_appname`,
//! `plan_class`, ...) and `job_keyword_ids`; in `app_version`, `gpu_ram`.

mod app;
mod coprocs;
mod file;
mod holdings;
mod host;
mod message;
mod on_time;
mod opencl;
mod preference_file;
mod preferences;
mod reply;
mod report;
mod request;
mod stats;
mod web_preferences;
mod work;

pub use app::{App, AppVersion, Coprocessor, FileRef};
pub use coprocs::{Cuda, HostCoprocessors, type_name, type_of};
pub use file::FileInfo;
pub use holdings::{AppVersionRef, InProgressResult, OtherResult, StickyFile, TrickleUp};
pub use host::HostInfo;
pub use message::{Message, Priority, RssFeed, TrickleDown};
pub use opencl::OpenCl;
pub use preference_file::{DayPreferences, PreferenceFile};
pub use preferences::GlobalPreferences;
pub use reply::{PART_REFUSAL, SchedulerReply};
pub use report::{ReportedFile, ReportedResult, ResultState, StderrOut};
pub use request::{ClientVersion, SchedulerRequest};
pub use stats::{DiskUsage, FreeSpace, NetStats, TimeStats};
pub use web_preferences::WebPreferences;
pub use work::{ResultJob, Workunit};

use crate::FormatError;
use crate::names::{NAME_RULE, OPEN_NAME_RULE, is_file_name, is_open_name};
use crate::xml::{Reader, Tag};

/// Refuses an element whose name could not be a file's.
fn check_name(reader: &Reader<'_>, element: &Tag<'_>, child: &str, name: &str) -> Result<(), FormatError> {
    if is_file_name(name) {
        Ok(())
    } else {
        Err(reader.error_at(element, format!("<{child}> in it with {NAME_RULE}")))
    }
}

/// Refuses an element whose open name could leave the slot.
fn check_open_name(reader: &Reader<'_>, element: &Tag<'_>, name: &str) -> Result<(), FormatError> {
    if is_open_name(name) {
        Ok(())
    } else {
        Err(reader.error_at(element, format!("<open_name> in it with {OPEN_NAME_RULE}")))
    }
}

/// The `<name>` of a wrapper such as `<result_ack>`, if it has one.
fn name_in<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>) -> Result<Option<String>, FormatError> {
    let mut name = None;
    while let Some(tag) = reader.next_child(parent)? {
        match tag.name {
            "name" => reader.set(&tag, &mut name)?,
            _ => reader.skip(&tag)?,
        }
    }
    Ok(name)
}

/// A raw block without the white space around it, if anything is left.
fn block(reader: &mut Reader<'_>, tag: &Tag<'_>) -> Result<Option<String>, FormatError> {
    let text = reader.raw_text(tag)?;
    let text = text.trim();
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

#[cfg(test)]
mod tests;
