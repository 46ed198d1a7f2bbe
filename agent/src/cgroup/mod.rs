//! Control groups of the kernel (version 2), as files.
//!
//! Model: a group is a directory, held open. What is in it is reached by that, so nothing that is renamed or
//! put in its place by name matters. Directories and files of groups are the agent's user's, and a job is
//! that user, too: Landlock keeps it from writing, yet not from changing modes. So modes are put right where
//! they are in the way, and no other user comes to what is in a group that was made here.

mod ceiling;
mod directory;
mod killing;
mod place;
mod removal;
mod walk;

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use ceiling::{MEMORY, OTHERS_MEMORY, PROCESSES, below, memory_of_a_task, own_ceiling};
use directory::Directory;
pub use directory::{FILE, TRIES, opened};
pub use place::{mounts, path_in, place};

/// A file of a group is read no further than so far, in bytes.
const READ_MAX: usize = 256 * 1024;
/// How often it is looked whether a group is empty.
const LOOK: Duration = Duration::from_millis(2);
/// How long it takes at most to list the groups below one.
const LISTED: Duration = Duration::from_secs(1);

/// A control group.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
    dir: Directory,
}

impl Group {
    /// Opens a group that is there.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_path_buf(), dir: Directory::open(path)? })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a group below this one, which must not be there yet. Nobody but this user comes to what is in
    /// it. One that cannot be opened is removed again.
    ///
    /// # Errors
    /// The system's.
    pub fn make(&self, name: &str) -> io::Result<Self> {
        Ok(Self { path: self.path.join(name), dir: self.dir.make(name)? })
    }

    /// Opens a group below this one.
    ///
    /// # Errors
    /// The system's.
    pub fn child(&self, name: &str) -> io::Result<Self> {
        Ok(Self { path: self.path.join(name), dir: self.dir.child(name)? })
    }

    /// The names of the groups below it, as far as they are text. None where they cannot be listed, or are
    /// too many.
    pub fn children(&self) -> Vec<String> {
        let names = self.dir.names(Instant::now() + LISTED).unwrap_or_default();
        names.into_iter().filter_map(|name| name.into_string().ok()).collect()
    }

    /// Opens one of its files.
    ///
    /// # Errors
    /// The system's: above all where it has no such file.
    pub fn file(&self, name: &str, writes: bool) -> io::Result<File> {
        self.dir.file(name, writes)
    }

    /// Whether it has such a file.
    pub fn has(&self, name: &str) -> bool {
        self.dir.has(name)
    }

    /// What one of its files says.
    ///
    /// # Errors
    /// The system's.
    pub fn read(&self, name: &str) -> io::Result<String> {
        read(&self.file(name, false)?)
    }

    /// Says something to one of its files.
    ///
    /// # Errors
    /// The system's: what it will not have.
    pub fn write(&self, name: &str, text: &str) -> io::Result<()> {
        write(&self.file(name, true)?, text)
    }

    /// Its own processes, as they can be seen from here: not those of groups below it.
    ///
    /// # Errors
    /// The system's.
    pub fn processes(&self) -> io::Result<Vec<u32>> {
        processes(&self.dir)
    }

    /// Whether a process of its own is of another namespace of processes: the kernel calls it 0 here.
    ///
    /// # Errors
    /// The system's.
    pub fn has_unseen(&self) -> io::Result<bool> {
        Ok(self.read("cgroup.procs")?.lines().any(|line| line.trim() == "0"))
    }

    /// Whether a process is in it or below it.
    pub fn is_populated(&self) -> bool {
        self.read("cgroup.events").is_ok_and(|events| number(&events, "populated") == Some(1))
    }

    /// The names of those of its files whose modes a job may change, for they are this user's.
    ///
    /// # Errors
    /// The system's.
    pub fn own_files(&self) -> io::Result<Vec<CString>> {
        self.dir.own_files()
    }

    /// Takes from other users what lets them change something in it, in these of its files, or in these
    /// groups below it, which were made here. How many of them they could.
    pub fn close_to_others(&self, files: &[CString], below: &[&str]) -> usize {
        let files = files.iter().filter(|name| self.dir.close_file(name)).count();
        let below = below.iter().filter(|name| self.dir.close_child(name)).count();
        usize::from(self.dir.close()) + files + below
    }
}

impl AsFd for Group {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

fn processes(dir: &Directory) -> io::Result<Vec<u32>> {
    let text = read(&dir.file("cgroup.procs", false)?)?;
    Ok(text.lines().filter_map(|line| line.trim().parse().ok()).filter(|&pid| pid > 0).collect())
}

/// What a group's file says now, however often it was read. A list that is too long ends early, with a whole
/// line.
///
/// # Errors
/// The system's.
pub fn read(file: &File) -> io::Result<String> {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        match file.read_at(&mut part, bytes.len() as u64)? {
            0 => break,
            len => bytes.extend_from_slice(&part[..len]),
        }
        if bytes.len() >= READ_MAX {
            // Half a number is another process's.
            bytes.truncate(bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1));
            break;
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Says something to a group's file: in one call, as the kernel wants it.
///
/// # Errors
/// The system's.
pub fn write(file: &File, text: &str) -> io::Result<()> {
    rustix::io::write(file, text.as_bytes())?;
    Ok(())
}

/// The number that stands behind a word in a file of lines `WORD NUMBER`.
pub fn number(text: &str, word: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_what_is_in_a_group_and_below_it_is_killed_also_where_the_kernel_kills_no_groups() {
        let mounts = mounts(&std::fs::read_to_string("/proc/self/mountinfo").unwrap());
        let name = format!("guest-test-cgroup-{}", std::process::id());
        let made = mounts.iter().find_map(|(_, at)| {
            let parent = Group::open(at).ok()?;
            Some((parent.make(&name).ok()?, parent))
        });
        let Some((group, parent)) = made else {
            let must = std::env::var("FALLOW_REQUIRE_PEERS").is_ok_and(|value| value == "1");
            assert!(!must || !rustix::process::geteuid().is_root(), "no group can be made: {mounts:?}");
            return println!("skipped: this user can make no control group of version 2");
        };
        let inner = group.make("inner").unwrap();
        let sleeper = |group: &Group| {
            let door = group.file("cgroup.procs", true).unwrap();
            let mut command = std::process::Command::new("sleep");
            crate::sys::enter(&mut command, door.as_fd());
            command.arg("1000").spawn().unwrap()
        };
        let mut sleepers = [sleeper(&group), sleeper(&inner)];
        let pids = [group.processes().unwrap(), inner.processes().unwrap()];
        let is_populated = group.is_populated();
        group.kill_each();
        let ended = sleepers.each_mut().map(|sleeper| sleeper.wait().unwrap());
        parent.remove_within(&name, Duration::from_secs(60)).unwrap();
        assert!(is_populated && ended.iter().all(|status| !status.success()), "{ended:?}");
        assert_eq!(pids, [vec![sleepers[0].id()], vec![sleepers[1].id()]]);
        assert!(!group.path().exists());
    }

    #[test]
    fn a_list_that_is_too_long_ends_with_a_whole_number() {
        let file = tempfile::tempfile().unwrap();
        let line = "123456\n";
        let all = line.repeat(READ_MAX / line.len() + 100);
        file.write_all_at(all.as_bytes(), 0).unwrap();
        let read = read(&file).unwrap();
        assert!(read.len() <= READ_MAX && read.len() + line.len() > READ_MAX, "{}", read.len());
        assert!(read.lines().all(|line| line == "123456"));
        // One line alone is no list.
        file.write_all_at("1".repeat(all.len()).as_bytes(), 0).unwrap();
        assert_eq!(super::read(&file).unwrap(), "");
    }

    #[test]
    fn numbers_are_found_by_their_whole_word() {
        let text = "low 0\nmax 3\noom 1\noom_kill 2\noom_group_kill x\n";
        let found = ["oom", "oom_kill", "oom_group_kill", "kill", "max"].map(|word| number(text, word));
        assert_eq!(found, [Some(1), Some(2), None, None, Some(3)]);
    }
}
