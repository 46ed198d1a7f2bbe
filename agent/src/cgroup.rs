//! Control groups of the kernel (version 2), as files.
//!
//! Model: a group is a directory, held open. What is in it is reached by that, so nothing that is renamed or
//! put in its place by name matters. Directories and files of groups are the agent's user's, and a job is
//! that user, too: Landlock keeps it from writing, yet not from changing modes. So what is needed at the end
//! of a task is opened at its beginning, and modes are put right where they are in the way.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, chmodat, fchmod, mkdirat, open, openat, unlinkat};
use rustix::io::Errno;

use crate::proc;

/// The mode of a group's directory.
pub const OWN: Mode = Mode::from_raw_mode(0o755);
/// The mode of one of its files.
pub const FILE: Mode = Mode::from_raw_mode(0o644);
/// So often modes are put right for one call: a job may close them again meanwhile.
const TRIES: u32 = 16;
/// A file of a group tells no more than so much.
const READ_MAX: usize = 256 * 1024;
/// How often the processes of a group are killed one by one, where the kernel cannot kill a group.
const ROUNDS: u32 = 20;
/// How often it is looked whether a group is empty.
const LOOK: Duration = Duration::from_millis(2);

/// A control group.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
    dir: OwnedFd,
}

impl Group {
    /// Opens a group that is there.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &Path) -> io::Result<Self> {
        let dir = match open(path, directory(), Mode::empty()) {
            // Closed itself.
            Err(Errno::ACCESS) if chmodat(CWD, path, OWN, AtFlags::empty()).is_ok() => {
                open(path, directory(), Mode::empty())
            }
            opened => opened,
        }?;
        Ok(Self { path: path.to_path_buf(), dir })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a group below this one, which must not be there yet.
    ///
    /// # Errors
    /// The system's.
    pub fn make(&self, name: &str) -> io::Result<Self> {
        self.anyway(|dir| mkdirat(dir, name, OWN))?;
        self.child(name)
    }

    /// Opens a group below this one.
    ///
    /// # Errors
    /// The system's.
    pub fn child(&self, name: &str) -> io::Result<Self> {
        let dir = self.anyway(|dir| match openat(dir, name, directory(), Mode::empty()) {
            // Closed itself.
            Err(Errno::ACCESS) if chmodat(dir, name, OWN, AtFlags::empty()).is_ok() => {
                openat(dir, name, directory(), Mode::empty())
            }
            opened => opened,
        })?;
        Ok(Self { path: self.path.join(name), dir })
    }

    /// The names of the groups below it.
    pub fn children(&self) -> Vec<String> {
        let Ok(listed) = self.anyway(|dir| openat(dir, ".", directory(), Mode::empty())) else {
            return Vec::new();
        };
        let entries = rustix::fs::Dir::new(listed).into_iter().flatten().flatten();
        let directories = entries.filter(|entry| entry.file_type() == rustix::fs::FileType::Directory);
        let names = directories.filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned));
        names.filter(|name| name != "." && name != "..").collect()
    }

    /// Opens one of its files.
    ///
    /// # Errors
    /// The system's: above all where it has no such file.
    pub fn file(&self, name: &str, writes: bool) -> io::Result<File> {
        let how = if writes { OFlags::WRONLY } else { OFlags::RDONLY };
        let opened = self.anyway(|dir| {
            let open = || openat(dir, name, how | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty());
            let mut opened = open();
            for _ in 0..TRIES {
                let is_closed = opened.as_ref().is_err_and(|&error| error == Errno::ACCESS);
                if !is_closed || chmodat(dir, name, FILE, AtFlags::empty()).is_err() {
                    break;
                }
                opened = open();
            }
            opened
        });
        Ok(opened?.into())
    }

    /// Whether it has such a file.
    pub fn has(&self, name: &str) -> bool {
        rustix::fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
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
        let text = self.read("cgroup.procs")?;
        Ok(text.lines().filter_map(|line| line.trim().parse().ok()).filter(|&pid| pid > 0).collect())
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

    /// Kills everything in it and below it.
    pub fn kill(&self) {
        match self.write("cgroup.kill", "1") {
            Ok(()) => {}
            // Before Linux 5.14.
            Err(_) => self.kill_each(),
        }
    }

    /// In rounds, for a process may fork between the look and the kill.
    fn kill_each(&self) {
        for _ in 0..ROUNDS {
            let mut pids = self.processes().unwrap_or_default();
            let below = self.children().into_iter().filter_map(|name| self.child(&name).ok());
            below.for_each(|group| {
                pids.extend(group.processes().unwrap_or_default());
                group.kill_each();
            });
            let pids: Vec<_> = pids.into_iter().filter_map(proc::to_pid).collect();
            if pids.is_empty() {
                return;
            }
            for pid in pids {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            // Those that were killed take a moment to be gone.
            std::thread::sleep(LOOK);
        }
    }

    /// Removes a group below this one, with all that are below that. What has a process stays.
    ///
    /// # Errors
    /// The system's, above all `ResourceBusy`: a process is in it.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        let mut at = match self.child(name) {
            Ok(group) => group,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        // However deep they lie, no more than two are open: from the innermost outwards.
        let mut below = Vec::new();
        loop {
            if let Some(inner) = at.children().into_iter().next() {
                at = at.child(&inner)?;
                below.push(inner);
                continue;
            }
            let Some(inner) = below.pop() else { break };
            at = at.child("..")?;
            at.remove_empty(&inner)?;
        }
        self.remove_empty(name)
    }

    /// Removes a group below this one that has neither a process nor a group below it.
    ///
    /// # Errors
    /// The system's, above all `ResourceBusy`: it has.
    pub fn remove_empty(&self, name: &str) -> io::Result<()> {
        match self.anyway(|dir| unlinkat(dir, name, AtFlags::REMOVEDIR)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Removes a group below this one as soon as its last process is gone.
    ///
    /// # Errors
    /// As [`Self::remove`], if something is left in it after so long.
    pub fn remove_within(&self, name: &str, patience: Duration) -> io::Result<()> {
        let end = Instant::now() + patience;
        loop {
            match self.remove(name) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < end => {
                    std::thread::sleep(LOOK);
                }
                removed => return removed,
            }
        }
    }

    /// Does something in its directory. Where that was closed to its owner, it is opened first.
    fn anyway<T>(&self, act: impl Fn(&OwnedFd) -> Result<T, Errno>) -> io::Result<T> {
        match act(&self.dir) {
            Err(Errno::ACCESS) if fchmod(&self.dir, OWN).is_ok() => Ok(act(&self.dir)?),
            done => Ok(done?),
        }
    }
}

impl AsFd for Group {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

fn directory() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// What a group's file says now, however often it was read.
///
/// # Errors
/// The system's.
pub fn read(file: &File) -> io::Result<String> {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    while bytes.len() < READ_MAX {
        match file.read_at(&mut part, bytes.len() as u64)? {
            0 => break,
            len => bytes.extend_from_slice(&part[..len]),
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

/// Where control groups of version 2 are mounted: which group is seen there, by its path, and the directory.
pub fn mounts(mountinfo: &str) -> Vec<(PathBuf, PathBuf)> {
    let mount = |line: &str| {
        let (place, kind) = line.split_once(" - ")?;
        (kind.split_whitespace().next() == Some("cgroup2")).then_some(())?;
        let mut fields = place.split(' ').skip(3);
        Some((unescaped(fields.next()?), unescaped(fields.next()?)))
    };
    mountinfo.lines().filter_map(mount).collect()
}

/// As the kernel writes names there: what would end a field is a backslash and three octal digits.
fn unescaped(field: &str) -> PathBuf {
    let bytes = field.as_bytes();
    let (mut name, mut at) = (Vec::new(), 0);
    while let Some(&byte) = bytes.get(at) {
        let code = bytes.get(at + 1..at + 4).filter(|_| byte == b'\\');
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(meant) => {
                name.push(meant);
                at += 4;
            }
            None => {
                name.push(byte);
                at += 1;
            }
        }
    }
    std::ffi::OsString::from_vec(name).into()
}

/// The path of a process's group of version 2, by its `/proc/PID/cgroup`.
pub fn path_in(cgroup: &str) -> Option<PathBuf> {
    cgroup.lines().find_map(|line| line.strip_prefix("0::")).map(PathBuf::from)
}

/// The directory of the group of this path. None where no mount shows it.
pub fn place(mounts: &[(PathBuf, PathBuf)], path: &Path) -> Option<PathBuf> {
    // What lies outside of this process's view of groups.
    if path.components().any(|part| part == Component::ParentDir) {
        return None;
    }
    let seen = |(root, at): &(PathBuf, PathBuf)| Some(at.join(path.strip_prefix(root).ok()?));
    // Joined with nothing, a path ends in a slash.
    mounts.iter().find_map(seen).map(|place| place.components().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_group_follows_from_where_groups_are_mounted() {
        let mixed = "\
            24 23 0:20 / /sys rw - sysfs sysfs rw\n\
            31 24 0:27 / /sys/fs/cgroup ro,nosuid shared:5 - tmpfs tmpfs ro,mode=755\n\
            32 31 0:28 / /sys/fs/cgroup/unified rw,relatime shared:6 - cgroup2 cgroup2 rw\n\
            33 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let bound =
            "40 39 0:28 /a.slice/my\\040unit /mnt/my\\040groups rw master:1 shared:2 - cgroup2 none rw\n";
        let place_of = |text: &str, path: &str| place(&mounts(text), Path::new(path));
        let cases = [
            (mixed, "/", Some("/sys/fs/cgroup/unified")),
            (mixed, "/a.slice/b.service", Some("/sys/fs/cgroup/unified/a.slice/b.service")),
            (bound, "/a.slice/my unit", Some("/mnt/my groups")),
            (bound, "/a.slice/my unit/leaf", Some("/mnt/my groups/leaf")),
            (bound, "/a.slice", None),
            // Of a process outside of the namespace of groups.
            (mixed, "/../b", None),
            ("", "/", None),
        ];
        for (text, path, expected) in cases {
            assert_eq!(place_of(text, path), expected.map(PathBuf::from), "{path}");
        }
    }

    #[test]
    fn the_group_of_version_2_is_read_beside_others() {
        let mixed = "9:name=systemd:/x\n4:memory:/y:z\n0::/a.slice/b:c.service\n";
        assert_eq!(path_in(mixed), Some("/a.slice/b:c.service".into()));
        assert_eq!(path_in("4:memory:/y\n"), None);
        assert_eq!(path_in(""), None);
    }

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
    fn numbers_are_found_by_their_whole_word() {
        let text = "low 0\nmax 3\noom 1\noom_kill 2\noom_group_kill x\n";
        let found = ["oom", "oom_kill", "oom_group_kill", "kill", "max"].map(|word| number(text, word));
        assert_eq!(found, [Some(1), Some(2), None, None, Some(3)]);
    }
}
