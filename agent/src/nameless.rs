//! Files that have no name any more, or never had one, and take space as long as a process has them open or
//! mapped (R4.1).
//!
//! Model: no directory leads to such a file. The kernel shows it under the descriptors of the processes that
//! hold it, of each thread, for a thread can have descriptors of its own. One that is mapped and closed is
//! shown among the mappings: with what is mapped of it, for its blocks are told to root alone. Only what lies
//! on the given devices counts: files in memory are no matter of the disk.
//!
//! Left out: a file that is on its way between two processes, in a socket, and a mapping on a file system
//! that calls its device by several names. Processes that are closed to this user: a job that is confined
//! cannot make them so.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use fallow_domain::Bytes;
use rustix::fs::{FileType, stat};

use crate::proc::Process;
use crate::walk::Usage;

/// So many descriptors of a task are looked at: that takes a second or two.
const DESCRIPTORS_MAX: u32 = 1_000_000;
/// How the kernel marks a name that is gone.
const GONE: &str = " (deleted)";

/// What files without a name the processes of a task hold.
#[derive(Debug, Default)]
pub struct Nameless {
    seen: BTreeSet<(u64, u64)>,
    usage: Usage,
    looked_at: u32,
}

impl Nameless {
    /// Those that these processes hold, each once, on these devices. Mapped ones are known by the name that
    /// they had below `dir`.
    pub fn of(processes: &[Process], devices: &BTreeSet<u64>, dir: &Path) -> Self {
        let mut found = Self::default();
        for process in processes {
            for thread in threads(process) {
                found.open(&thread.join("fd"), devices);
            }
        }
        let mut mapped: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        for process in processes {
            let maps = fs::read(format!("/proc/{}/maps", process.pid)).unwrap_or_default();
            for line in maps.split(|byte| *byte == b'\n') {
                let Some(mapping) = Mapping::of(&String::from_utf8_lossy(line), dir) else { continue };
                if devices.contains(&mapping.file.0) && !found.seen.contains(&mapping.file) {
                    let end = mapped.entry(mapping.file).or_default();
                    *end = mapping.end.max(*end);
                }
            }
        }
        for (_, end) in mapped {
            found.usage = found.usage.plus(Usage { length: Bytes(end), blocks: Bytes(end) });
        }
        found
    }

    /// What they take.
    pub const fn usage(&self) -> Usage {
        self.usage
    }

    /// Whether there are more descriptors than are looked at.
    pub const fn are_too_many(&self) -> bool {
        self.looked_at >= DESCRIPTORS_MAX
    }

    fn open(&mut self, descriptors: &Path, devices: &BTreeSet<u64>) {
        for entry in fs::read_dir(descriptors).into_iter().flatten().flatten() {
            if self.are_too_many() {
                return;
            }
            self.looked_at += 1;
            let Ok(data) = stat(entry.path()) else { continue };
            let is_plain = FileType::from_raw_mode(data.st_mode) == FileType::RegularFile;
            if is_plain
                && data.st_nlink == 0
                && devices.contains(&data.st_dev)
                && self.seen.insert((data.st_dev, data.st_ino))
            {
                self.usage = self.usage.plus(Usage::of(&data));
            }
        }
    }
}

/// The directories of a process's threads.
fn threads(process: &Process) -> Vec<PathBuf> {
    let dir = PathBuf::from(format!("/proc/{}", process.pid));
    if process.threads <= 1 {
        return vec![dir];
    }
    fs::read_dir(dir.join("task")).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// A mapped file whose name is gone.
#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    file: (u64, u64),
    /// Where in the file it ends.
    end: u64,
}

impl Mapping {
    /// As a line of `/proc/PID/maps` tells it: addresses, rights, offset, device, inode, name.
    fn of(line: &str, dir: &Path) -> Option<Self> {
        let mut fields = line.splitn(6, ' ');
        let (from, to) = fields.next()?.split_once('-')?;
        let offset = number(fields.nth(1)?)?;
        let (major, minor) = fields.next()?.split_once(':')?;
        let inode = fields.next()?.parse().ok()?;
        let name = fields.next()?.trim_start().strip_suffix(GONE)?;
        let is_below = name.as_bytes().starts_with(dir.as_os_str().as_bytes());
        let narrow = |text: &str| u32::try_from(number(text)?).ok();
        let device = rustix::fs::makedev(narrow(major)?, narrow(minor)?);
        let length = number(to)?.checked_sub(number(from)?)?;
        is_below.then(|| Self { file: (device, inode), end: offset.saturating_add(length) })
    }
}

fn number(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;
    use std::process::{Command, Stdio};

    use crate::proc;

    /// Runs a program of perl in `dir` until the test is over. It says when it is ready.
    fn with_program(dir: &Path, program: &str, test: impl FnOnce(&[Process], &BTreeSet<u64>)) {
        let mut command = Command::new("perl");
        command.args(["-e", &format!("$| = 1; {program}; print \"ready\\n\"; <STDIN>")]).current_dir(dir);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
        let devices = BTreeSet::from([dir.metadata().unwrap().dev()]);
        let file = dir.join("probe");
        fs::write(&file, b"x").unwrap();
        let devices = devices.into_iter().chain([file.metadata().unwrap().dev()]).collect();
        test(&[proc::find(child.id()).unwrap()], &devices);
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn r4_1_what_a_process_holds_open_without_a_name_counts_once_and_what_has_a_name_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let program = "open F, '>', 'gone'; print F 'x' x 3000000; F->flush; open G, '<', 'gone'; unlink 'gone'; \
                       open H, '>', 'named'; print H 'x' x 5000000; H->flush";
        with_program(dir.path(), program, |processes, devices| {
            let held = Nameless::of(processes, devices, dir.path()).usage();
            assert!((3_000_000..3_100_000).contains(&held.length.0), "{held:?}");
            assert!((3_000_000..3_100_000).contains(&held.blocks.0), "{held:?}");
            let elsewhere = Nameless::of(processes, &BTreeSet::new(), dir.path()).usage();
            assert_eq!(elsewhere, Usage::default());
        });
    }

    #[test]
    fn r4_1_a_mapped_file_without_a_name_counts_as_far_as_it_is_mapped_and_others_do_not() {
        let line = |name: &str| format!("7f00a000-7f10a000 rw-s 00002000 08:02 123 {name}");
        let dir = Path::new("/data/slots");
        let mapped = Mapping { file: (rustix::fs::makedev(8, 2), 123), end: 0x10_2000 };
        assert_eq!(Mapping::of(&line("   /data/slots/0/a b (deleted)"), dir), Some(mapped));
        for name in ["/data/slots/0/named", "/lib/libc.so (deleted)", "/data/slots/0/a (deleted) "] {
            assert_eq!(Mapping::of(&line(name), dir), None, "{name}");
        }
        assert_eq!(Mapping::of("7f00a000-7f10a000 rw-p 00000000 00:00 0", dir), None);
    }
}
