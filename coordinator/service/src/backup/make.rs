//! Makes a backup of a coordinator that is at work.

use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use fallow_domain::Instant;
use fallow_store::{Copied, Store};
use fallow_work_server::ProjectServer;

use super::archive::{self, ArchiveWriter, Head};
use super::{BackupError, FILES, PROJECTS};

/// Bytes of records that are written at once; a record that is larger is written by itself.
const PART: usize = 4 << 20;

/// What a backup is made of.
#[derive(Clone)]
pub struct Source {
    /// The coordinator's directory.
    pub dir: PathBuf,
    /// All records.
    pub store: Arc<dyn Store>,
    /// The projects, whose files are not removed meanwhile.
    pub projects: ProjectServer,
    /// The fingerprint of the fleet's authority.
    pub authority: String,
}

/// Writes a backup. Blocks, for as long as reading all takes; nobody else waits for it.
///
/// # Errors
/// [`BackupError`]; what was written is no whole backup then.
pub fn make(source: &Source, now: Instant, out: impl Write) -> Result<(), BackupError> {
    // Whatever the records speak of at their instant stays until it is in the backup.
    let _held = source.projects.hold_files();
    let head = Head {
        format: archive::FORMAT,
        made_at: now,
        made_by: env!("CARGO_PKG_VERSION").to_owned(),
        authority: source.authority.clone(),
    };
    let mut archive = ArchiveWriter::begin(out, &head).map_err(BackupError::BrokenOff)?;
    let mut parts = Parts { number: 0, waiting: Vec::new(), bytes: 0 };
    let mut failed = None;
    source.store.copy(&mut |part| match parts.take(&mut archive, part) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    })?;
    failed.map_or_else(|| parts.write(&mut archive), Err).map_err(BackupError::BrokenOff)?;
    for name in FILES {
        let path = source.dir.join(name);
        match path.symlink_metadata() {
            Ok(_) => add(&mut archive, &source.dir, Path::new(name))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(BackupError::file(path, "read")(error)),
        }
    }
    add_all(&mut archive, &source.dir, Path::new(PROJECTS))?;
    archive.end().map_err(BackupError::BrokenOff)
}

/// The records on their way into the archive.
struct Parts {
    number: u64,
    waiting: Vec<Copied>,
    bytes: usize,
}

impl Parts {
    fn take(&mut self, archive: &mut ArchiveWriter<impl Write>, part: Vec<Copied>) -> io::Result<()> {
        for (key, value) in part {
            self.bytes += key.len() + value.as_ref().map_or(0, Vec::len);
            self.waiting.push((key, value));
            if self.bytes >= PART {
                self.write(archive)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, archive: &mut ArchiveWriter<impl Write>) -> io::Result<()> {
        self.number += 1;
        let part = std::mem::take(&mut self.waiting);
        self.bytes = 0;
        archive.records(self.number, &part)
    }
}

/// Whether something in the projects' directory is not whole yet, by its place: `NAME/incoming`, and files
/// that are being uploaded.
fn is_unfinished(path: &Path) -> bool {
    let parts: Vec<_> = path.components().map(Component::as_os_str).collect();
    match parts[..] {
        [_, _, within] => within == "incoming",
        [_, _, within, ..] => within == "upload" && path.extension().is_some_and(|end| end == "part"),
        _ => false,
    }
}

/// Adds a directory with all that is in it, but for what is not whole yet.
fn add_all(archive: &mut ArchiveWriter<impl Write>, root: &Path, dir: &Path) -> Result<(), BackupError> {
    let shown = root.join(dir);
    let entries = match fs::read_dir(&shown) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(BackupError::file(shown, "read")(error)),
    };
    for entry in entries {
        let entry = entry.map_err(BackupError::file(&shown, "read"))?;
        let path = dir.join(entry.file_name());
        let kind = entry.file_type().map_err(BackupError::file(root.join(&path), "read"))?;
        match () {
            () if is_unfinished(&path) => {}
            () if kind.is_dir() => add_all(archive, root, &path)?,
            () if kind.is_file() => add(archive, root, &path)?,
            () => {}
        }
    }
    Ok(())
}

fn add(archive: &mut ArchiveWriter<impl Write>, root: &Path, path: &Path) -> Result<(), BackupError> {
    let shown = root.join(path);
    let file = match File::open(&shown) {
        Ok(file) => file,
        // No record speaks of a file that goes meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(BackupError::file(shown, "read")(error)),
    };
    let metadata = file.metadata().map_err(BackupError::file(&shown, "read"))?;
    let name = Path::new(archive::FILES).join(path);
    archive.add(&name, metadata.len(), metadata.mode() & 0o777, file).map_err(BackupError::BrokenOff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_9_what_is_not_whole_is_left_out_by_its_place_and_not_by_its_name() {
        for (path, is_left_out) in [
            ("projects/p/incoming", true),
            ("projects/p/upload/ab/result_0.part", true),
            ("projects/incoming", false),
            ("projects/incoming/keys", false),
            ("projects/incoming/incoming", true),
            ("projects/p/download/kept_table.part", false),
            ("projects/p/upload/ab/result_0", false),
            ("projects/p/upload", false),
        ] {
            assert_eq!(is_unfinished(Path::new(path)), is_left_out, "{path}");
        }
    }
}
