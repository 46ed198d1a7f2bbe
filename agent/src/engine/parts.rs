//! Parts of downloads, given up where there is no space to store anything (R6.10).
//!
//! Model: the engine waits until that is done, and the owner with it, so it ends soon, whatever jobs have put
//! there. Every project has its share of the time. Where that is over and much is left, all that the project
//! has there goes to the trash at once, which takes one call; what is written to just now goes with it, and
//! is fetched again.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{AtFlags, CWD, Dir, statat};
use rustix::io::Errno;

use crate::files::shown_path;
use crate::trash::Trash;
use crate::tree;

/// A part that nothing was written to for so long stands still.
pub(super) const PARTS_STAY: Duration = Duration::from_secs(30);

/// So many things in a directory are looked at in any case. A project may have more parts, of a version of
/// hundreds of files; those that are left when time is up go together, and are fetched again.
const FEW: usize = 64;

/// What came of deleting something.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Freed {
    /// So many things are gone, or go when there is time.
    pub(super) gone: usize,
    /// So many stay.
    pub(super) stuck: usize,
    /// The first of these, and why.
    pub(super) trouble: Option<(PathBuf, String)>,
}

impl Freed {
    /// Deletes at once what can be deleted until `end`, for the space is wanted now; the rest goes when there
    /// is time.
    pub(super) fn delete(&mut self, trash: &Trash, path: &Path, end: Instant) {
        let result = match tree::remove_until(path, Some(end)) {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => trash.take(path),
        };
        self.count(path, result);
    }

    fn count(&mut self, path: &Path, result: std::io::Result<()>) -> bool {
        match result {
            Ok(()) => self.gone += 1,
            Err(error) => {
                self.stuck += 1;
                self.trouble.get_or_insert_with(|| (path.to_owned(), error.to_string()));
                return false;
            }
        }
        true
    }

    /// Says what stays, in one line, unless that was told last.
    pub(super) fn say_stuck(&self, told: &mut Option<(PathBuf, String)>) {
        if let Some((path, error)) = &self.trouble
            && self.trouble != *told
        {
            tracing::warn!(files = self.stuck, first = shown_path(path), %error, "cannot delete files");
        }
        told.clone_from(&self.trouble);
    }

    /// Empties a directory by its descriptor, for a job may put something else in its place.
    fn empty(&mut self, trash: &Trash, place: &Path, end: Instant) {
        let (dir, entries) = match open(place) {
            Ok(opened) => opened,
            Err(Errno::NOENT) => return,
            Err(errno) => {
                // What a job has put there goes: what a link leads to is not what downloads left.
                let is_other = matches!(errno, Errno::LOOP | Errno::NOTDIR);
                self.count(place, if is_other { trash.take(place) } else { Err(errno.into()) });
                return;
            }
        };
        let entries = entries.flatten().filter(|entry| !matches!(entry.file_name().to_bytes(), b"." | b".."));
        for (number, entry) in entries.enumerate() {
            let (name, is_late) = (entry.file_name(), Instant::now() >= end);
            if is_late && number >= FEW {
                self.count(place, trash.take(place));
                return;
            }
            if stands_still(&dir, name) {
                let result = match tree::remove_at_until(dir.as_fd(), name, end) {
                    Ok(true) => Ok(()),
                    Ok(false) | Err(_) => trash.take_at(dir.as_fd(), name),
                };
                let path = place.join(OsStr::from_bytes(name.to_bytes()));
                if !self.count(&path, result) && is_late {
                    return;
                }
            }
        }
    }
}

/// A directory, held open, and what is in it. One that a job closed is opened up.
fn open(place: &Path) -> Result<(OwnedFd, Dir), Errno> {
    let name = CString::new(place.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    let dir = tree::open_directory(CWD, &name)?;
    let entries = Dir::read_from(&dir)?;
    Ok((dir, entries))
}

/// Deletes the parts in these directories that stand still, and returns soon after `end`.
pub(super) fn give_up(trash: &Trash, places: &[PathBuf], end: Instant) -> Freed {
    let mut freed = Freed::default();
    for (place, left) in places.iter().zip((1..=places.len()).rev()) {
        let (now, left) = (Instant::now(), u32::try_from(left).unwrap_or(u32::MAX));
        freed.empty(trash, place, now + end.saturating_duration_since(now) / left);
    }
    freed
}

/// Whether nothing was written to a file for a while. One from the future was made under a wrong clock, or by
/// a job.
fn stands_still(dir: &OwnedFd, name: &CStr) -> bool {
    let Ok(data) = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else { return false };
    let modified =
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(data.st_mtime.try_into().unwrap_or(0)));
    modified.is_none_or(|at| at.elapsed().map_or(true, |age| age >= PARTS_STAY))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Two projects' directories: one with what a job has made, `much` of it, one with two parts.
    fn two(much: usize) -> (tempfile::TempDir, Trash, [PathBuf; 2]) {
        let dir = tempfile::tempdir().unwrap();
        let places = ["jobs", "parts"].map(|name| dir.path().join(name));
        for number in 0..much {
            fs::create_dir_all(places[0].join(format!("{number}/a/b/c"))).unwrap();
            age(&places[0].join(number.to_string()));
        }
        fs::create_dir(&places[1]).unwrap();
        for name in ["old", "young"] {
            fs::write(places[1].join(name), name).unwrap();
        }
        age(&places[1].join("old"));
        let trash = Trash::at(dir.path().join("trash"));
        (dir, trash, places)
    }

    fn age(path: &Path) {
        File::open(path).unwrap().set_modified(SystemTime::now() - 2 * PARTS_STAY).unwrap();
    }

    fn left(place: &Path) -> Vec<String> {
        let entries = fs::read_dir(place).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn r6_10_what_jobs_put_among_parts_of_downloads_goes_as_a_whole_once_time_is_up() {
        let (_dir, trash, places) = two(1000);
        let freed = give_up(&trash, &places, Instant::now());
        // One by one at first, then the rest in one call; and the other project's.
        assert_eq!((freed.gone, freed.stuck), (FEW + 2, 0));
        assert!(!places[0].exists());
        assert_eq!(left(&places[1]), ["young"]);
    }

    /// Shows R4.12.
    #[test]
    fn r6_10_what_a_job_puts_in_place_of_a_directory_of_parts_is_taken_away_and_leads_nowhere() {
        let (dir, trash, [link, file]) = two(1);
        let elsewhere = dir.path().join("elsewhere");
        fs::rename(&link, &elsewhere).unwrap();
        symlink(&elsewhere, &link).unwrap();
        fs::remove_dir_all(&file).unwrap();
        fs::write(&file, "x").unwrap();
        let places = [link, file];
        let freed = give_up(&trash, &places, Instant::now() + Duration::from_secs(600));
        assert_eq!((freed.gone, freed.stuck), (2, 0));
        assert_eq!(left(&elsewhere), ["0"]);
        assert!(places.iter().all(|place| place.symlink_metadata().is_err()));
    }

    /// Root opens what is closed: this tells something to other users only, and where root is without that
    /// power.
    #[test]
    fn r6_10_a_directory_of_parts_that_a_job_closed_is_opened_up() {
        let (_dir, trash, places) = two(0);
        fs::set_permissions(&places[1], fs::Permissions::from_mode(0o0)).unwrap();
        let freed = give_up(&trash, &places, Instant::now() + Duration::from_secs(600));
        assert_eq!((freed.gone, freed.stuck), (1, 0));
        assert_eq!(left(&places[1]), ["young"]);
    }

    #[test]
    fn parts_that_are_written_to_stay_while_there_is_time() {
        let (_dir, trash, places) = two(3);
        let freed = give_up(&trash, &places, Instant::now() + Duration::from_secs(600));
        assert_eq!((freed.gone, freed.stuck), (4, 0));
        assert_eq!(places.map(|place| left(&place)), [vec![], vec!["young".to_owned()]]);
    }
}
