//! The modes of what is the agent's own in its directory.
//!
//! A job runs as the agent's user unless the system has better, and nothing keeps one from changing modes: it
//! can close the store to the agent, which then neither answers nor starts, or open the key of its identity
//! to other users of the host. So modes are put right before anything is read at a start, and at each look
//! at tasks, once a second or more seldom while all are stopped. What is not this user's, or is a link, an
//! administrator has put there: it is left as it is.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, chmod, fstat, openat};

use crate::dir::DataDir;

/// What of the store is looked at: more than its engine makes, and few enough to be looked at.
const STORE_MAX: usize = 10_000;
/// How deep the engine's directories are.
const STORE_DEPTH: u32 = 4;

/// What a file or directory grants: the first to its user at least, the second to nobody else.
#[derive(Clone, Copy)]
struct Rights {
    is_dir: bool,
    own: Mode,
    never: Mode,
}

const OTHERS: Mode = Mode::RWXG.union(Mode::RWXO);
/// The directory itself: its group may enter it.
const TOP: Rights = Rights { is_dir: true, own: Mode::RWXU, never: Mode::WGRP.union(Mode::RWXO) };
const SECRET_DIR: Rights = Rights { is_dir: true, own: Mode::RWXU, never: OTHERS };
const SECRET: Rights = Rights { is_dir: false, own: Mode::RUSR.union(Mode::WUSR), never: OTHERS };
/// What somebody else writes: others may read it, and a group may write it if an administrator wants it so.
const WORD: Rights = Rights { is_dir: false, own: Mode::RUSR, never: Mode::WOTH };

/// Opens to the agent what says whose the directory is, as far as to read it: at a start, before that is
/// known. Root needs nothing opened.
pub(crate) fn open_up(dir: &DataDir) {
    if rustix::process::geteuid().is_root() || !dir.path().is_dir() {
        return;
    }
    let enter = Rights { is_dir: true, own: Mode::RUSR.union(Mode::XUSR), never: Mode::empty() };
    let read = Rights { is_dir: false, own: Mode::RUSR, never: Mode::empty() };
    let store = dir.store();
    let all =
        [(dir.path(), enter), (&store, enter), (&store.join("kind"), read), (&store.join("sled"), enter)];
    tell(dir, all.into_iter().filter(|(path, rights)| put_right(path, *rights)).count());
}

/// Opens to the agent what is its own, and all of its store: when it is known that the directory is an
/// agent's or empty. Nothing is closed to anybody.
pub(crate) fn open_all(dir: &DataDir) {
    let open = |path: &Path, rights| put_right(path, Rights { never: Mode::empty(), ..rights });
    let mut changed = each(dir, open);
    if !dir.store().is_symlink() {
        changed += below(&dir.store(), STORE_DEPTH, &mut STORE_MAX.clone(), &open);
    }
    tell(dir, changed);
}

/// Puts right all that belongs to the agent itself. Into its store nobody else comes, whatever modes the
/// engine gives the files in it.
pub(crate) fn put_all_right(dir: &DataDir) {
    tell(dir, keep(dir));
}

/// The same of what keeps the rest, a handful of files and directories: how many were not right.
pub(crate) fn keep(dir: &DataDir) -> usize {
    each(dir, put_right)
}

/// Says that modes were not right.
pub(crate) fn tell(dir: &DataDir, changed: usize) {
    if changed > 0 {
        let dir = dir.path().display();
        tracing::warn!(
            %dir, changed,
            "modes of the agent's own files were changed, by a job or by somebody: they are put right"
        );
    }
}

fn each(dir: &DataDir, with: impl Fn(&Path, Rights) -> bool) -> usize {
    const SECRETS: [&str; 6] =
        ["identity.json", "identity.key", "separation.json", "separation.key", "control.sock", "lock"];
    const WORDS: [&str; 4] =
        ["daemon.json", "preferences.toml", "global_prefs_override.xml", "cc_config.xml"];
    let at = |names: &'static [&'static str], rights| {
        names.iter().map(move |name| (dir.path().join(name), rights))
    };
    // From the top down, for what lies below a closed directory cannot be looked at.
    let (store, sled) = (dir.store(), dir.store().join("sled"));
    let blobs = sled.join("blobs");
    let dirs = [(dir.path().to_path_buf(), TOP)];
    let all = dirs
        .into_iter()
        .chain([store, sled, blobs].map(|path| (path, SECRET_DIR)))
        .chain(at(&SECRETS, SECRET))
        .chain(at(&WORDS, WORD));
    all.filter(|(path, rights)| with(path, *rights)).count()
}

fn below(dir: &Path, depth: u32, left: &mut usize, with: &impl Fn(&Path, Rights) -> bool) -> usize {
    let mut changed = 0;
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if *left == 0 {
            return changed;
        }
        *left -= 1;
        let path: PathBuf = entry.path();
        if kind.is_dir() {
            changed += usize::from(with(&path, SECRET_DIR));
            if depth > 0 {
                changed += below(&path, depth - 1, left, with);
            }
        } else if kind.is_file() {
            changed += usize::from(with(&path, SECRET));
        }
    }
    changed
}

/// Whether it was not right, and is now. Where that cannot be done, what is then done there fails, and says
/// so.
fn put_right(path: &Path, rights: Rights) -> bool {
    let Ok(seen) = path.symlink_metadata() else { return false };
    let kind = seen.file_type();
    let is_meant = if rights.is_dir { kind.is_dir() } else { kind.is_file() || kind.is_socket() };
    if !is_meant || seen.uid() != rustix::process::geteuid().as_raw() || is_right(seen.mode(), rights) {
        return false;
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(file) = openat(CWD, path, flags, Mode::empty()) else { return false };
    // It may be another one by now.
    let Ok(now) = fstat(&file) else { return false };
    if (now.st_uid, now.st_ino, now.st_dev) != (seen.uid(), seen.ino(), seen.dev()) {
        return false;
    }
    let mode = Mode::from_raw_mode(now.st_mode).union(rights.own).difference(rights.never);
    // The descriptor itself cannot change a mode; its name in /proc can, and leads to that very file.
    let changed = chmod(format!("/proc/self/fd/{}", file.as_raw_fd()), mode).is_ok();
    // There are file systems without modes.
    let changed = changed && fstat(&file).is_ok_and(|now| is_right(now.st_mode, rights));
    tracing::debug!(path = %path.display(), was = now.st_mode & 0o7777, is = mode.bits(), changed, "a mode is put right");
    changed
}

fn is_right(mode: u32, rights: Rights) -> bool {
    let mode = Mode::from_raw_mode(mode);
    mode.contains(rights.own) && !mode.intersects(rights.never)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    /// A directory of an agent's, whose modes are then changed by a job.
    fn agents() -> (tempfile::TempDir, DataDir, Vec<PathBuf>) {
        let top = tempfile::tempdir().unwrap();
        let dir = DataDir::at(&top.path().join("agent"));
        drop(dir.lock().unwrap());
        let sled = dir.store().join("sled");
        fs::create_dir_all(sled.join("blobs")).unwrap();
        let files = [sled.join("db"), sled.join("blobs/7"), dir.store().join("kind"), dir.identity_key()];
        files.iter().for_each(|path| fs::write(path, "agent").unwrap());
        let dirs = [sled.join("blobs"), sled, dir.store(), dir.path().to_path_buf()];
        (top, dir, files.into_iter().chain(dirs).collect())
    }

    #[test]
    fn r6_10_a_directory_that_a_job_has_closed_to_the_agent_is_the_agents_at_its_next_start() {
        let (_top, dir, all) = agents();
        all.iter().for_each(|path| set(path, 0));
        let lock = dir.lock().unwrap();
        let modes: Vec<u32> = all.iter().map(|path| mode(path)).collect();
        assert_eq!(modes, [0o600, 0o600, 0o600, 0o600, 0o700, 0o700, 0o700, 0o700]);
        drop(lock);
    }

    #[test]
    fn r6_10_what_a_job_has_opened_to_others_is_closed_again() {
        let (_top, dir, all) = agents();
        all.iter().rev().for_each(|path| set(path, 0o777));
        keep(&dir);
        assert_eq!((mode(dir.path()), mode(&dir.store()), mode(&dir.identity_key())), (0o750, 0o700, 0o700));
        drop(dir.lock().unwrap());
        assert_eq!(mode(&dir.store().join("sled/blobs")), 0o700);
    }

    #[test]
    fn r6_10_a_directory_that_is_no_agents_stays_as_it_is() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("sources");
        fs::create_dir_all(dir.join("store/deeper")).unwrap();
        let files = ["identity.key", "token", "store/deeper/object"].map(|name| dir.join(name));
        files.iter().for_each(|path| fs::write(path, "x").unwrap());
        fs::write(dir.join("letter"), "x").unwrap();
        let all: Vec<_> =
            files.into_iter().chain([dir.join("store/deeper"), dir.join("store"), dir.clone()]).collect();
        all.iter().for_each(|path| set(path, 0o555));
        let refused = DataDir::at(&dir).lock().unwrap_err();
        assert!(refused.to_string().contains("is not an agent's directory"), "{refused}");
        assert!(all.iter().all(|path| mode(path) == 0o555));
        // Nor one in which an agent worked, and that lacks what it had.
        let dir = top.path().join("volume");
        fs::create_dir_all(dir.join("projects/x")).unwrap();
        set(&dir, 0o755);
        DataDir::at(&dir).lock().unwrap_err();
        assert_eq!(mode(&dir), 0o755);
        let plain = top.path().join("notes.txt");
        fs::write(&plain, "").unwrap();
        set(&plain, 0o644);
        let refused = DataDir::at(&plain).lock().unwrap_err();
        assert!(refused.to_string().contains("is not a directory"), "{refused}");
        assert_eq!(mode(&plain), 0o644);
    }

    #[test]
    fn r6_10_a_link_that_an_administrator_has_put_there_is_left_as_it_is() {
        let (top, dir, _) = agents();
        let other = top.path().join("preferences");
        fs::write(&other, "").unwrap();
        set(&other, 0o666);
        std::os::unix::fs::symlink(&other, dir.path().join("preferences.toml")).unwrap();
        keep(&dir);
        assert_eq!(mode(&other), 0o666);
    }
}
