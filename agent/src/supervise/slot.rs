//! Filling a slot directory, as BOINC lays it out.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use fallow_boinc::names;
use fallow_boinc::runtime::{files, softlink};
use fallow_client::{SlotFile, TaskSetup};

use crate::dir::DataDir;
use crate::files::remove;

/// Why a task could not be started.
#[derive(Debug)]
pub(super) struct StartFailure {
    /// What went wrong, where.
    pub(super) reason: String,
    /// Trying again cannot help.
    pub(super) permanent: bool,
}

impl StartFailure {
    fn permanent(reason: String) -> Self {
        Self { reason, permanent: true }
    }

    /// A failure of the system: lasting only when the thing itself is wrong, such as a program that is none.
    pub(super) fn from_io(what: &str, path: &Path, error: &io::Error) -> Self {
        let permanent = matches!(
            error.kind(),
            io::ErrorKind::NotFound
                | io::ErrorKind::PermissionDenied
                | io::ErrorKind::InvalidInput
                | io::ErrorKind::IsADirectory
        ) || error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error());
        Self { reason: format!("cannot {what} {}: {error}", path.display()), permanent }
    }
}

/// Makes a slot ready for a start: all files that the application expects, and `init_data.xml` as of now.
pub(super) fn fill(dir: &DataDir, setup: &TaskSetup) -> Result<PathBuf, StartFailure> {
    let slot = dir.slot(setup.slot);
    let fail = |what: &'static str| {
        let slot = slot.clone();
        move |error: io::Error| StartFailure::from_io(what, &slot, &error)
    };
    for file in &setup.files {
        check(file)?;
    }
    if !names::is_file_name(&setup.program) {
        return Err(StartFailure::permanent(format!(
            "the main program's name {:?} is no file name",
            setup.program
        )));
    }
    if setup.fresh {
        remove(&slot).map_err(fail("empty"))?;
    }
    // 0771 as BOINC: applications of another user may pass through.
    fs::DirBuilder::new().recursive(true).mode(0o771).create(&slot).map_err(fail("create"))?;
    if setup.fresh || !slot.join(files::SETUP_COMPLETE).exists() {
        for file in &setup.files {
            place(dir, setup, &slot, file)?;
        }
        write(&slot.join(files::SETUP_COMPLETE), b"", 0o644).map_err(fail("mark as complete"))?;
    }
    // What the last run said of its end is not true of this one.
    for old in [files::FINISH, files::TEMPORARY_EXIT] {
        remove(&slot.join(old)).map_err(fail("clean"))?;
    }
    let mut init_data = setup.init_data.clone();
    init_data.client_pid = std::process::id();
    init_data.boinc_dir = dir.path().display().to_string();
    init_data.project_dir = dir.project(&setup.url).display().to_string();
    // The account key is in it.
    write(&slot.join(files::INIT_DATA), init_data.write().as_bytes(), 0o600)
        .map_err(fail("write init_data.xml into"))?;
    Ok(slot)
}

/// Empties a slot, and forgets its task.
pub(super) fn clean(dir: &DataDir, slot: fallow_domain::SlotId) -> io::Result<()> {
    remove(&dir.slot(slot))?;
    remove(&dir.slot_record(slot))
}

fn check(file: &SlotFile) -> Result<(), StartFailure> {
    if !names::is_file_name(&file.name) || !names::is_open_name(&file.open_name) {
        return Err(StartFailure::permanent(format!(
            "the file {:?} (opened as {:?}) may not be put into a slot",
            file.name, file.open_name
        )));
    }
    Ok(())
}

/// Puts one file where the application will open it.
fn place(dir: &DataDir, setup: &TaskSetup, slot: &Path, file: &SlotFile) -> Result<(), StartFailure> {
    let at = slot.join(&file.open_name);
    let fail = |error: io::Error| StartFailure::from_io("put a file to", &at, &error);
    if let Some(parent) = at.parent() {
        fs::create_dir_all(parent).map_err(fail)?;
    }
    match (file.copy, file.output) {
        (false, _) => write(
            &at,
            softlink::write(&softlink::target(&dir.project_name(&setup.url), &file.name)).as_bytes(),
            0o644,
        )
        .map_err(fail),
        // An output that is moved back at the end does not exist before.
        (true, true) => Ok(()),
        (true, false) => {
            let source = dir.project(&setup.url).join(&file.name);
            let mode = fs::metadata(&source)
                .map_err(|error| StartFailure::from_io("read", &source, &error))?
                .permissions();
            remove(&at).map_err(fail)?;
            fs::copy(&source, &at).map_err(fail)?;
            // The application may change its copy.
            fs::set_permissions(&at, fs::Permissions::from_mode(mode.mode() | 0o600)).map_err(fail)
        }
    }
}

/// Writes a file anew. Whatever an application left under its name, a link perhaps, is taken away first.
fn write(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    remove(path)?;
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?.write_all(content)
}
