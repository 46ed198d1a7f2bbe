//! The coordinator's directory and what is secret in it are for its own user only.
//!
//! A directory may have been made beforehand, by a package or by hand, and be open to others; so its mode is
//! set at every start, and those of the store's files with it. What cannot be closed stops the start:
//! secrets would lie open.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use fallow_daemon::file;

use super::StartError;

/// What the group and others may do.
const OTHERS: u32 = 0o077;

/// What a coordinator has in its directory, what a volume of its own begins with, and what whoever starts it
/// puts there for it (`fallow up`: `log`); beside that, what ends in `.log` and what backups took the place
/// of.
const OWN_NAMES: [&str; 15] = [
    "store",
    "projects",
    "operator.token",
    "operator.token.new",
    "authority.pem",
    "authority.pem.new",
    "authority.key",
    "authority.key.new",
    "daemon.json",
    "daemon.json.new",
    "instance",
    "instance.new",
    "restored",
    "restore.lock",
    "lost+found",
];

/// Makes the directory if there is none, and closes it to others. One that is there has to be this user's
/// own and a coordinator's, or have nothing in it that a coordinator would not put there: any other may be
/// shared by many, and nothing in it is changed.
pub(super) fn take(dir: &Path) -> Result<(), StartError> {
    if dir.is_dir() {
        let fail = |source| StartError::Directory { dir: dir.to_path_buf(), source };
        require_own_directory(dir)?;
        // A token alone may be a copy for a tool.
        let has = |name: &str| dir.join(name).exists();
        let is_coordinators = has("store/sled") || (has("operator.token") && has("authority.key"));
        let foreign = list(dir).map_err(fail)?.into_iter().find(|path| !is_own_name(path));
        if let Some(foreign) = foreign.filter(|_| !is_coordinators) {
            return Err(StartError::NotOwn { dir: dir.to_path_buf(), foreign });
        }
        // Also all that a coordinator would read there: somebody else may have prepared it.
        require_owner(dir)?;
    }
    make(dir)
}

fn is_own_name(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    OWN_NAMES.contains(&&*name) || name == "log" || name.ends_with(".log") || name.starts_with("replaced-")
}

/// Of a link, where it leads counts: systemd makes one to the state directory of a service with a user of
/// its own (`DynamicUser`).
fn require_own_directory(dir: &Path) -> Result<(), StartError> {
    let data = fs::metadata(dir);
    let data = data.map_err(|source| StartError::Directory { dir: dir.to_path_buf(), source })?;
    match data.uid() == rustix::process::geteuid().as_raw() {
        true => Ok(()),
        false => Err(StartError::OfAnotherUser { path: dir.to_path_buf() }),
    }
}

fn make(dir: &Path) -> Result<(), StartError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|source| match dir.ancestors().find(|path| path.exists() && !path.is_dir()) {
        Some(path) => StartError::NotADirectory(path.to_path_buf()),
        None => StartError::Directory { dir: dir.to_path_buf(), source },
    })?;
    close(dir)
}

/// Refuses a directory in which another user has made something: he could put other files in the place of
/// those that are served or stored there. Looked at are the directory, what it holds, and what that holds in
/// turn: deeper down nobody else can have made anything.
pub(super) fn require_owner(dir: &Path) -> Result<(), StartError> {
    let user = rustix::process::geteuid().as_raw();
    let of_another = |path: &Path| -> io::Result<bool> { Ok(fs::symlink_metadata(path)?.uid() != user) };
    let fail = |source| StartError::Directory { dir: dir.to_path_buf(), source };
    let mut paths = Vec::new();
    for path in list(dir).map_err(fail)? {
        // The system's own, where the directory is a volume.
        if path.ends_with("lost+found") {
            continue;
        }
        let within =
            match fs::symlink_metadata(&path).map_err(fail)?.is_dir() && !of_another(&path).map_err(fail)? {
                true => list(&path).map_err(fail)?,
                false => Vec::new(),
            };
        paths.push(path);
        paths.extend(within);
    }
    require_own_directory(dir)?;
    for path in paths {
        if of_another(&path).map_err(fail)? {
            return Err(StartError::OfAnotherUser { path });
        }
    }
    Ok(())
}

fn list(dir: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect()
}

/// Closes all that the store consists of, as far as there is one.
pub(super) fn close_store(dir: &Path) -> Result<(), StartError> {
    let store = dir.join("store");
    if store.is_dir() { close_all(&store, 4) } else { Ok(()) }
}

/// A directory with its files, down to this depth: the store has two levels, and values of half a mebibyte a
/// third.
fn close_all(dir: &Path, depth: u32) -> Result<(), StartError> {
    close(dir)?;
    let fail = |source| StartError::Directory { dir: dir.to_path_buf(), source };
    for entry in fs::read_dir(dir).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let kind = entry.file_type().map_err(fail)?;
        match () {
            () if kind.is_dir() && depth > 0 => close_all(&entry.path(), depth - 1)?,
            () if kind.is_file() => close(&entry.path())?,
            () => {}
        }
    }
    Ok(())
}

/// Takes everything from the group and from others.
fn close(path: &Path) -> Result<(), StartError> {
    let closed = file::close(path, OTHERS);
    if let Some(mode) = closed.map_err(|source| StartError::Open { path: path.to_path_buf(), source })? {
        tracing::debug!(path = %path.display(), mode = format!("{mode:o}"), "closed to other users");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};

    use super::*;

    #[test]
    fn r6_10_a_directory_made_beforehand_is_closed_with_the_store_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("coordinator");
        let file = own.join("store/sled/db");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "x").unwrap();
        for path in [&own, &own.join("store"), &own.join("store/sled")] {
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        take(&own).unwrap();
        close_store(&own).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&own), mode(&own.join("store/sled")), mode(&file)), (0o700, 0o700, 0o600));
    }

    #[test]
    fn r6_10_a_directory_that_is_another_users_or_no_coordinators_is_refused_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let shared = |name: &str| {
            let shared = dir.path().join(name);
            fs::create_dir(&shared).unwrap();
            fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
            shared
        };
        let state =
            |dir: &Path| (fs::metadata(dir).unwrap().permissions().mode() & 0o7777, list(dir).unwrap().len());
        let of_many = shared("of-many");
        fs::write(of_many.join("letter"), "").unwrap();
        for refused in
            [take(&of_many), super::super::instance(&of_many).map(drop), unpack_nothing(&of_many).map(drop)]
        {
            let error = refused.unwrap_err();
            assert_eq!(error.exit_code(), fallow_domain::ExitCode::BadInput);
            assert!(error.to_string().contains("not empty (letter is in it)"), "{error}");
            assert_eq!(state(&of_many), (0o1777, 1));
        }
        // What an earlier start of a coordinator has left, whether or not it came to have a store.
        for names in [&["instance"][..], &["log"], &["notes", "operator.token", "authority.key"]] {
            let own = shared(names[0]);
            for name in names {
                fs::write(own.join(name), "").unwrap();
            }
            take(&own).unwrap();
            assert_eq!(state(&own).0, 0o1700);
        }
        if rustix::process::geteuid().is_root() {
            let anothers = shared("anothers");
            chown(&anothers, Some(12_345), None).unwrap();
            let error = super::super::instance(&anothers).unwrap_err();
            assert!(error.to_string().contains("anothers belongs to another user"), "{error}");
            assert_eq!(state(&anothers), (0o1777, 0));
        }
    }

    fn unpack_nothing(dir: &Path) -> Result<crate::backup::Restored, StartError> {
        super::super::unpack(io::empty(), dir, "ann", "")
    }

    #[test]
    fn r6_10_a_directory_in_which_another_user_has_made_something_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return; // Only root can give files away.
        }
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("projects/p")).unwrap();
        require_owner(dir.path()).unwrap();
        for foreign in ["projects/p", "projects"] {
            chown(dir.path().join(foreign), Some(12_345), None).unwrap();
            let error = require_owner(dir.path()).unwrap_err();
            assert!(error.to_string().contains(&format!("{foreign} belongs to another user")), "{error}");
        }
    }

    #[test]
    fn r6_10_of_a_link_to_the_directory_the_directorys_owner_counts() {
        if !rustix::process::geteuid().is_root() {
            return; // Only root can give files away.
        }
        let dir = tempfile::tempdir().unwrap();
        let (own, link) = (dir.path().join("own"), dir.path().join("link"));
        fs::create_dir(&own).unwrap();
        symlink(&own, &link).unwrap();
        lchown(&link, Some(12_345), None).unwrap();
        require_owner(&link).unwrap();
        chown(&own, Some(12_345), None).unwrap();
        let error = require_owner(&link).unwrap_err();
        assert!(error.to_string().contains("link belongs to another user"), "{error}");
    }
}
