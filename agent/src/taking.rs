//! Taking a file from the job that made it: it is the agent's from then on, and what is in it changes no more
//! (R6.10).
//!
//! Model: it is given to the agent first, so that nobody can open it for writing any more or make another
//! name of it; after that it is looked who had done so before. What others could still change is not taken.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, chmod, fstat, open, openat};

use crate::owner::{Owner, in_proc, is_jobs, taken_mode};
use crate::sys::Lease;

/// Takes a file that a job's user made, and that is open: it is the agent's from now on, so that no later job
/// of the same slot can change it. False where it has other names, which may lie anywhere, or where somebody
/// has it open for writing: then it stays the job's, and what is in it has to be copied.
pub(crate) fn take_over(file: &OwnedFd) -> io::Result<bool> {
    let data = fstat(file.as_fd())?;
    if !is_jobs(data.st_uid) || FileType::from_raw_mode(data.st_mode) != FileType::RegularFile {
        return Ok(true);
    }
    if data.st_nlink != 1 {
        return Ok(false);
    }
    Owner::own().give(file.as_fd())?;
    let is_nobodys = is_nobodys(file, &data);
    // Also where that cannot be said now: what is the agent's is not looked at again.
    if !matches!(is_nobodys, Ok(true)) {
        Owner::numbered(data.st_uid).give(file.as_fd())?;
    }
    is_nobodys
}

/// Whether nobody else can change a file that has just become the agent's: only now can nobody make another
/// name of it any more, or open it for writing.
fn is_nobodys(file: &OwnedFd, before: &Stat) -> io::Result<bool> {
    chmod(in_proc(file.as_fd()), taken_mode(before))?;
    Ok(fstat(file.as_fd())?.st_nlink == 1 && !is_written(file)?)
}

/// The same of what lies at `path`, and of no link there.
pub(crate) fn take_over_at(path: &Path) -> io::Result<bool> {
    take_over(&openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

/// Whether anybody has a file open for writing, or mapped so. Where the file system cannot say so, nobody
/// has.
fn is_written(file: &OwnedFd) -> io::Result<bool> {
    let opened = open(in_proc(file.as_fd()), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(Lease::take(&opened.into()).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::{MetadataExt as _, chown};

    use rustix::process::{Resource, Rlimit};

    use crate::owner::FIRST;

    #[test]
    fn r6_10_a_file_is_taken_from_its_job_only_when_nobody_else_can_change_it() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can give files away");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = dir.path().join(name);
            fs::write(&path, "x").unwrap();
            chown(&path, Some(FIRST + 1), Some(FIRST + 1)).unwrap();
            path
        };
        let uid = |path: &Path| fs::metadata(path).unwrap().uid();
        let (alone, named, open) = (file("alone"), file("named"), file("open"));
        fs::hard_link(&named, dir.path().join("other")).unwrap();
        let writes = fs::File::options().append(true).open(&open).unwrap();
        let taken = [&alone, &named, &open].map(|path| take_over_at(path).unwrap());
        assert_eq!(taken, [true, false, false]);
        assert_eq!([uid(&alone), uid(&named), uid(&open)], [0, FIRST + 1, FIRST + 1]);
        drop(writes);
        assert!(take_over_at(&open).unwrap() && uid(&open) == 0);
    }

    /// Says that a test runs in a process of its own.
    const ALONE: &str = "FALLOW_TEST_ALONE";

    #[test]
    fn r6_10_a_file_of_which_it_cannot_be_said_who_writes_it_stays_its_jobs() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can give files away");
            return;
        }
        if std::env::var_os(ALONE).is_none() {
            // It has too many files open, which no other test is to feel.
            let name = "taking::tests::r6_10_a_file_of_which_it_cannot_be_said_who_writes_it_stays_its_jobs";
            let mut test = std::process::Command::new(std::env::current_exe().unwrap());
            let ran = test.args(["--exact", name]).env(ALONE, "1").output().unwrap();
            let said = String::from_utf8_lossy(&ran.stdout).into_owned();
            assert!(ran.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("open");
        fs::write(&path, "x").unwrap();
        chown(&path, Some(FIRST + 1), Some(FIRST + 1)).unwrap();
        let _writes = fs::File::options().append(true).open(&path).unwrap();
        let limit = rustix::process::getrlimit(Resource::Nofile);
        let next = fs::File::open("/dev/null").unwrap();
        let one_more = Some(u64::try_from(next.as_raw_fd()).unwrap() + 1);
        drop(next);
        rustix::process::setrlimit(Resource::Nofile, Rlimit { current: one_more, ..limit }).unwrap();
        let taken = take_over_at(&path);
        rustix::process::setrlimit(Resource::Nofile, limit).unwrap();
        assert_eq!(taken.unwrap_err().raw_os_error(), Some(rustix::io::Errno::MFILE.raw_os_error()));
        assert!(!take_over_at(&path).unwrap(), "somebody writes to it");
        assert_eq!(fs::metadata(&path).unwrap().uid(), FIRST + 1);
    }
}
