//! What a task leaves behind when its process is gone.

use std::fs;
use std::path::Path;

use fallow_boinc::names;
use fallow_boinc::runtime::exit::Ended;
use fallow_boinc::runtime::files;
use fallow_boinc::runtime::finish::{Finish, TemporaryExit};
use fallow_client::{OutputFound, TaskEnd};
use fallow_domain::{Bytes, Duration, SlotId};

use super::record::{Output, SlotRecord};
use crate::dir::DataDir;
use crate::files::{head, md5_of, size_below, tail};

/// How much of `stderr.txt` is reported (BOINC: the last 63 KiB).
const STDERR_MAX: u64 = 63 * 1024;

/// `boinc_finish_called` and `boinc_temporary_exit` hold a few lines.
const EXIT_FILE_MAX: u64 = 8 * 1024;

/// Gathers what the task of `record` left in its slot and its project's directory.
pub(super) fn collect(
    dir: &DataDir,
    slot: SlotId,
    record: &SlotRecord,
    exit: Ended,
    cpu_time: Duration,
    peak: Bytes,
) -> TaskEnd {
    let slot = dir.slot(slot);
    // Before the outputs are moved out of it.
    let disk_usage = size_below(&slot);
    let project = dir.project(&record.url);
    let stderr = tail(&slot.join(files::STDERR), STDERR_MAX).unwrap_or_default();
    TaskEnd {
        exit,
        finish: finish(&slot),
        temporary_exit: head(&slot.join(files::TEMPORARY_EXIT), EXIT_FILE_MAX)
            .ok()
            .and_then(|bytes| TemporaryExit::read(&bytes)),
        cpu_time,
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
        outputs: record.outputs.iter().filter_map(|output| found(&slot, &project, output)).collect(),
        peak_working_set: peak,
        disk_usage,
    }
}

/// `boinc_finish_called`, if the application wrote it.
pub(super) fn finish(slot: &Path) -> Option<Finish> {
    head(&slot.join(files::FINISH), EXIT_FILE_MAX).ok().map(|bytes| Finish::read(&bytes))
}

fn found(slot: &Path, project: &Path, output: &Output) -> Option<OutputFound> {
    if !names::is_file_name(&output.name) || !names::is_open_name(&output.open_name) {
        return None;
    }
    let place = project.join(&output.name);
    if output.copy {
        let made = slot.join(&output.open_name);
        // Slots and projects lie in one directory, so in one volume unless somebody mounted between them.
        if fs::symlink_metadata(&made).is_ok_and(|data| data.is_file())
            && fs::rename(&made, &place).is_err()
            && let Err(error) = fs::copy(&made, &place)
        {
            tracing::error!(output = %output.name, %error, "cannot move an output to its project's directory");
        }
    }
    match md5_of(&place) {
        Ok((md5, nbytes)) => Some(OutputFound { name: output.name.clone(), nbytes, md5 }),
        Err(error) => {
            tracing::debug!(output = %output.name, %error, "an output is not there");
            None
        }
    }
}
