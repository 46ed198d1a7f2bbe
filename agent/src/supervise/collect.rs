//! What a task leaves behind when its process is gone.

use std::fs::{self, OpenOptions};
use std::io::{self, Seek};
use std::path::Path;

use fallow_boinc::names;
use fallow_boinc::runtime::exit::{Ended, Outcome};
use fallow_boinc::runtime::files;
use fallow_boinc::runtime::finish::{Finish, TemporaryExit};
use fallow_client::{OutputFound, TaskEnd};
use fallow_domain::{Bytes, Duration, SlotId};
use flate2::read::GzDecoder;
use flate2::{Compression, GzBuilder};

use super::record::{Output, SlotRecord};
use crate::dir::{DataDir, PARTIAL};
use crate::files::{head, md5_of, open_plain, remove, size_below, tail};

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
    let finish = finish(&slot);
    let temporary_exit = head(&slot.join(files::TEMPORARY_EXIT), EXIT_FILE_MAX)
        .ok()
        .and_then(|bytes| TemporaryExit::read(&bytes));
    // One that goes on later writes to its outputs again: they stay where and as they are (BOINC likewise).
    let is_over = !matches!(exit.outcome(finish.as_ref(), temporary_exit.as_ref()), Outcome::Restart { .. });
    let outputs =
        record.outputs.iter().filter_map(|output| found(&slot, &project, output, is_over)).collect();
    TaskEnd {
        exit,
        finish,
        temporary_exit,
        cpu_time,
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
        outputs,
        peak_working_set: peak,
        disk_usage,
    }
}

/// `boinc_finish_called`, if the application wrote it.
pub(super) fn finish(slot: &Path) -> Option<Finish> {
    head(&slot.join(files::FINISH), EXIT_FILE_MAX).ok().map(|bytes| Finish::read(&bytes))
}

fn found(slot: &Path, project: &Path, output: &Output, is_over: bool) -> Option<OutputFound> {
    if !names::is_file_name(&output.name) || !names::is_open_name(&output.open_name) {
        return None;
    }
    let place = project.join(&output.name);
    if output.copy && is_over {
        let made = slot.join(&output.open_name);
        // Slots and projects lie in one directory, so in one volume unless somebody mounted between them.
        if fs::symlink_metadata(&made).is_ok_and(|data| data.is_file())
            && fs::rename(&made, &place).is_err()
            && let Err(error) = fs::copy(&made, &place)
        {
            tracing::error!(output = %output.name, %error, "cannot move an output to its project's directory");
        }
    }
    if output.gzip
        && is_over
        && let Err(error) = compress(&place)
    {
        // Sent as it is: a server that asked for gzip can tell the two apart.
        tracing::warn!(output = %output.name, %error, "cannot compress an output");
    }
    match md5_of(&place) {
        Ok((md5, nbytes)) => Some(OutputFound { name: output.name.clone(), nbytes, md5 }),
        Err(error) => {
            tracing::debug!(output = %output.name, %error, "an output is not there");
            None
        }
    }
}

/// What marks a file as compressed here: a task may be gathered twice, by an agent that was killed in between and its
/// next life, and must not be compressed twice.
const COMPRESSED_HERE: &[u8] = b"gzip_when_done";

/// Replaces a file by itself compressed with gzip.
fn compress(path: &Path) -> io::Result<()> {
    let mut plain = open_plain(path)?;
    let is_done =
        GzDecoder::new(&plain).header().is_some_and(|header| header.comment() == Some(COMPRESSED_HERE));
    if is_done {
        return Ok(());
    }
    plain.rewind()?;
    // Among the parts, so that a half-written one is never taken for a file of the project.
    let parts = path.with_file_name(PARTIAL);
    fs::create_dir_all(&parts)?;
    let packed = parts.join(path.file_name().unwrap_or_default());
    remove(&packed)?;
    let file = OpenOptions::new().write(true).create_new(true).open(&packed)?;
    let mut encoder = GzBuilder::new().comment(COMPRESSED_HERE).write(file, Compression::default());
    io::copy(&mut plain, &mut encoder)?;
    encoder.finish()?.sync_all()?;
    fs::rename(&packed, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn an_output_is_compressed_once_however_often_it_is_gathered() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        fs::write(&path, "result ".repeat(1000)).unwrap();
        compress(&path).unwrap();
        let once = fs::read(&path).unwrap();
        compress(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), once);
        let mut text = String::new();
        GzDecoder::new(&once[..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, "result ".repeat(1000));
        assert_eq!(fs::read_dir(dir.path().join(PARTIAL)).unwrap().count(), 0);
    }
}
