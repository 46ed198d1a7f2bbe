//! A project's directory: `keys/`, `download/`, `upload/`, `incoming/`, and how files get into it whole.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use fallow_boinc::signature::md5_hex;
use fallow_daemon::file;

use super::error::ProjectError;

/// Where a project's files are.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The directory of project `name` under `dir`. Makes it and what belongs in it.
    pub(crate) fn open(dir: &Path, name: &str) -> Result<Self, ProjectError> {
        let layout = Self { root: dir.join(name) };
        let incoming = layout.incoming();
        match fs::remove_dir_all(&incoming) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(ProjectError::file("empty", &incoming)(error));
            }
            _ => {}
        }
        for (path, mode) in [
            (layout.root.clone(), 0o755),
            (layout.keys(), 0o700),
            (layout.downloads(), 0o755),
            // What volunteers send is nobody's business but the operator's.
            (layout.root.join("upload"), 0o700),
            (incoming, 0o700),
        ] {
            if !path.is_dir() {
                let made = DirBuilder::new().recursive(true).mode(mode).create(&path);
                // Keys and files are on the medium only if their directories are.
                let made = made.and_then(|()| file::sync_directory_of(&path));
                made.map_err(ProjectError::file("create", &path))?;
            }
            if mode == 0o700 {
                close(&path)?;
            }
        }
        Ok(layout)
    }

    /// The directory of the key files, for this user only.
    pub(crate) fn keys(&self) -> PathBuf {
        self.root.join("keys")
    }

    /// The directory of all files for download.
    pub(crate) fn downloads(&self) -> PathBuf {
        self.root.join("download")
    }

    /// Where files that are being received lie until they are whole. Emptied when the project is opened.
    pub(crate) fn incoming(&self) -> PathBuf {
        self.root.join("incoming")
    }

    /// A file for clients to download. `name` has been checked to be a file name.
    pub(crate) fn download(&self, name: &str) -> PathBuf {
        self.downloads().join(name)
    }

    /// A file that a client has uploaded, in one of 256 directories, as there may be millions. `name` has
    /// been checked.
    pub(crate) fn upload(&self, name: &str) -> PathBuf {
        let fan = &md5_hex(name)[..2];
        self.root.join("upload").join(fan).join(name)
    }

    /// The same while its upload is not complete. No finished file is named so: a `.part` is never offered
    /// for upload.
    pub(crate) fn partial(&self, name: &str) -> PathBuf {
        let mut path = self.upload(name).into_os_string();
        path.push(".part");
        path.into()
    }
}

/// Takes from others what they could do with a file or a directory.
pub(crate) fn close(path: &Path) -> Result<(), ProjectError> {
    file::close(path, 0o077).map_err(ProjectError::file("close", path)).map(drop)
}

/// Writes a file in one step: after a crash it is there whole or not at all.
pub(crate) fn write_whole(path: &Path, content: &[u8], mode: u32) -> Result<(), ProjectError> {
    file::write_whole(path, content, mode).map_err(ProjectError::file("write", path))
}

/// The same by a file of another name, on the same file system.
pub(crate) fn write_by(path: &Path, new: &Path, content: &[u8], mode: u32) -> Result<(), ProjectError> {
    file::write_by(path, new, content, mode).map_err(ProjectError::file("write", path))
}

/// Writes a file of which no record speaks yet. It is on the medium only after [`sync_filesystem`]; a crash
/// before leaves it whole, in part or not at all, and whoever writes it again replaces it.
pub(crate) fn write_unsynced(path: &Path, content: &[u8], mode: u32) -> Result<(), ProjectError> {
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?;
        file.write_all(content)
    };
    write().map_err(ProjectError::file("write", path))
}

/// Puts all that was written on the medium: thousands of small files with one wait, where each by itself
/// would wait for the drive. Linux tells of failed writes here since 5.8.
pub(crate) fn sync_filesystem(dir: &Path) -> Result<(), ProjectError> {
    let sync = || -> io::Result<()> { Ok(rustix::fs::syncfs(File::open(dir)?)?) };
    sync().map_err(ProjectError::file("sync", dir))
}

/// That so many bytes more in a directory, which somebody who submits brings, leave the volume what operators
/// need to stop it all ([`fallow_store::leaves_enough`]).
///
/// # Errors
/// [`ProjectError::File`] of a full disk.
pub(crate) fn leave_space(dir: &Path, bytes: u64, files: u64) -> Result<(), ProjectError> {
    // Where that cannot be said, the write says what is wrong.
    match fallow_store::leaves_enough(dir, bytes, files).unwrap_or(true) {
        true => Ok(()),
        false => Err(ProjectError::file("write", dir)(rustix::io::Errno::NOSPC.into())),
    }
}

/// Removes a file that may be gone already.
pub(crate) fn remove_if_there(path: &Path) -> Result<(), ProjectError> {
    file::remove_if_there(path).map_err(ProjectError::file("remove", path))
}
