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

use super::place::Place;
use super::record::{Output, SlotRecord};
use crate::dir::{DataDir, PARTIAL};
use crate::files::{md5_of, open_plain, remove, shown, size_below};

/// How much of `stderr.txt` is reported (BOINC: the last 63 KiB).
const STDERR_MAX: u64 = 63 * 1024;

/// `boinc_finish_called` and `boinc_temporary_exit` hold a few lines.
const EXIT_FILE_MAX: u64 = 8 * 1024;

/// Gathers what the task of `record` left in its slot and its project's directory.
pub(super) fn collect(
    dir: &DataDir,
    slot: SlotId,
    place: Option<&Place>,
    record: &SlotRecord,
    exit: Ended,
    cpu_time: Duration,
    peak: Bytes,
) -> TaskEnd {
    // Before the outputs are moved out of it.
    let disk_usage = size_below(&dir.slot(slot));
    let project = dir.project(&record.url);
    let stderr = slot_of(place, |place| place.tail(files::STDERR, STDERR_MAX)).unwrap_or_default();
    let finish = place.and_then(finish);
    let temporary_exit = slot_of(place, |place| place.head(files::TEMPORARY_EXIT, EXIT_FILE_MAX))
        .and_then(|bytes| TemporaryExit::read(&bytes));
    // One that goes on later writes to its outputs again: they stay where and as they are (BOINC likewise).
    let is_over = !matches!(exit.outcome(finish.as_ref(), temporary_exit.as_ref()), Outcome::Restart { .. });
    let outputs =
        record.outputs.iter().filter_map(|output| found(place, &project, output, is_over)).collect();
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

fn slot_of<T>(place: Option<&Place>, read: impl FnOnce(&Place) -> io::Result<T>) -> Option<T> {
    read(place?).ok()
}

/// `boinc_finish_called`, if the application wrote it.
pub(super) fn finish(place: &Place) -> Option<Finish> {
    place.head(files::FINISH, EXIT_FILE_MAX).ok().map(|bytes| Finish::read(&bytes))
}

fn found(slot: Option<&Place>, project: &Path, output: &Output, is_over: bool) -> Option<OutputFound> {
    if !names::is_file_name(&output.name) || !names::is_open_name(&output.open_name) {
        return None;
    }
    let place = project.join(&output.name);
    if output.copy
        && is_over
        && let Some(slot) = slot.filter(|slot| slot.has(&output.open_name))
        && let Err(error) = slot.move_out(&output.open_name, &place)
    {
        tracing::error!(output = shown(&output.name), %error, "cannot move an output to its project's directory");
    }
    let size = open_plain(&place).and_then(|file| file.metadata()).map(|data| Bytes(data.len()));
    if let (Ok(nbytes), Some(max)) = (&size, output.max_nbytes.filter(|&max| max > Bytes(0)))
        && !output.gzip
        && *nbytes > max
    {
        // Nobody will want it, and to read it all might take days: a file of holes is as long as it says it is.
        return Some(OutputFound { name: output.name.clone(), nbytes: *nbytes, md5: String::new() });
    }
    if output.gzip
        && is_over
        && let Err(error) = compress(&place)
    {
        // Sent as it is: a server that asked for gzip can tell the two apart.
        tracing::warn!(output = shown(&output.name), %error, "cannot compress an output");
    }
    match md5_of(&place) {
        Ok((md5, nbytes)) => Some(OutputFound { name: output.name.clone(), nbytes, md5 }),
        Err(error) => {
            tracing::debug!(output = shown(&output.name), %error, "an output is not there");
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
