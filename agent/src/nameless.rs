//! Files that have no name any more, or never had one, and take space as long as a process has them open or
//! mapped (R4.1).
//!
//! Model: no directory leads to such a file. The kernel shows it under the descriptors of the processes that
//! hold it, of each thread, for a thread can have descriptors of its own, and as the program that a process
//! runs. One that is mapped and closed is shown among the mappings: with what is mapped of it, and its blocks
//! are told to root alone. To anybody else it may be of any size, which is said. Only what lies on the given
//! devices counts: files in memory are no matter of the disk.
//!
//! A file is also a link or a directory here, such as the one that a process works in.
//!
//! What a task can write counts, wherever its name was: in the slot, in the trash, under another mount. What
//! it can only read counts where its name was in the agent's directory, but for files of projects, or in a
//! place that is the task's own (see [`crate::confine`]): that the agent deleted or the system replaced one
//! meanwhile is not the task's doing. Files of projects are told apart: they take space as long as it has
//! them.
//!
//! A descriptor that waits in a socket can be one of such a file, and nobody sees of which: the kernel
//! tells, since Linux 5.6, how many there are. That is said to be what cannot be counted.
//!
//! Left out: a mapping on a file system that calls its device by several names.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fallow_domain::Bytes;
use rustix::fs::{FileType, OFlags, stat};

use crate::confine::FILES;
use crate::dir::{PROJECTS, SLOTS, TRASH};
use crate::proc::{self, Process};
use crate::sys;
use crate::walk::{Missed, Usage};

/// So many descriptors of a task are looked at: that takes a second or two.
const DESCRIPTORS_MAX: u32 = 1_000_000;
/// So much CPU time a look takes at most. What the kernel tells of one descriptor can be long: it names each
/// lock that the process holds of the file. And each of many processes can have very many mappings.
const WORK_MAX: Duration = Duration::from_secs(8);
/// Asking what waits in a socket takes as long as looking at so many more.
const SOCKET: u32 = 4;
/// So many bytes of the lists of a task's mappings are read: the kernel needs about a second to write them.
const MAPPINGS_MAX: u64 = 128 << 20;
/// So much is read of what the kernel tells of one descriptor: of any that holds no locks it is some hundred
/// bytes.
const TOLD_MAX: u64 = 64 << 10;
/// What is kept of a line of such a list. Names can be very much longer.
const LINE_MAX: usize = 16 << 10;
/// How the kernel marks a name that is gone.
const GONE: &[u8] = b" (deleted)";

/// What files without a name the processes of a task hold.
#[derive(Debug, Default)]
pub struct Nameless {
    seen: BTreeSet<(u64, u64)>,
    usage: Usage,
    /// Of files that are mapped and whose size is not told, what is mapped.
    mapped: BTreeMap<(u64, u64), Usage>,
    /// Files of its project's without a name.
    kept: BTreeMap<(u64, u64), Usage>,
    looked_at: u32,
    /// Bytes of lists of mappings.
    read: u64,
    /// A process that is there could not be looked at, or what waits in a socket.
    is_closed: bool,
    /// CPU time that this thread may have taken when the look is over; none where it is not told.
    work: Option<Duration>,
    /// It took too much.
    is_long: bool,
    /// How large one is that is mapped, is not told.
    is_unsized: bool,
}

impl Nameless {
    /// Those that these processes hold, each once, on these devices. `data` is the agent's directory.
    pub fn of(processes: &[Process], devices: &BTreeSet<u64>, data: &Path) -> Self {
        Self::within(WORK_MAX, processes, devices, data)
    }

    /// The same with at most so much CPU time for it.
    fn within(work: Duration, processes: &[Process], devices: &BTreeSet<u64>, data: &Path) -> Self {
        let mut found = Self { work: sys::thread_cpu_time().map(|now| now + work), ..Self::default() };
        let dir = Names::below(data);
        for process in processes {
            for thread in threads(process) {
                found.run(&thread, devices, &dir);
                found.open(&thread, devices, &dir);
            }
        }
        for process in processes {
            if !found.is_long {
                found.map(process, devices, &dir);
            }
        }
        found
    }

    /// Why a count of them is none, if it is none.
    pub fn missed(&self) -> Option<Missed> {
        if self.is_long || self.looked_at >= DESCRIPTORS_MAX || self.read >= MAPPINGS_MAX {
            return Some(Missed::TooMany);
        }
        self.is_closed.then_some(Missed::Closed)
    }

    /// A thread could not be looked at. It may have ended, or be about to; one that goes on and is closed to
    /// this user has a program that nobody may read, which the job executes.
    fn note(&mut self, thread: &Path, error: &io::Error) {
        let goes_on = || proc::thread_in(thread).is_some_and(|thread| !thread.zombie && thread.has_memory);
        self.is_closed |= error.kind() == io::ErrorKind::PermissionDenied && goes_on();
    }

    fn note_work(&mut self) {
        self.is_long |= is_over(self.work);
    }

    /// Whether one is among them that may be larger than it counts.
    pub const fn is_unsized(&self) -> bool {
        self.is_unsized
    }

    /// What they take that are the task's own doing.
    pub fn usage(&self) -> Usage {
        let mapped = self.mapped.iter().filter(|(file, _)| !self.seen.contains(file));
        mapped.fold(self.usage, |all, (_, usage)| all.plus(*usage))
    }

    /// What those take that others have deleted, and that are there because the task has them open.
    pub fn kept(&self) -> Usage {
        let others = self.kept.iter().filter(|(file, _)| !self.seen.contains(file));
        others.fold(Usage::default(), |all, (_, usage)| all.plus(*usage))
    }

    fn add(&mut self, file: (u64, u64), usage: Usage, doing: Doing) {
        match doing {
            Doing::Own if self.seen.insert(file) => self.usage = self.usage.plus(usage),
            Doing::Own => {}
            Doing::Others => {
                let known = self.kept.entry(file).or_default();
                *known = known.max(usage);
            }
        }
    }

    /// The files without a name that a process has mapped.
    fn map(&mut self, process: &Process, devices: &BTreeSet<u64>, dir: &Names) {
        let mut mapped: BTreeMap<(u64, u64), (u64, String, Option<Doing>)> = BTreeMap::new();
        // All threads have the same, but for those that have ended: of these nothing is told.
        for thread in threads(process) {
            let (work, is_apart) = (self.work, LazyCell::new(|| is_apart(&thread)));
            let mut is_long = self.is_long;
            let mut see = |line: &[u8]| {
                if let Some(mapping) = Mapping::of(line).filter(|mapping| devices.contains(&mapping.file.0)) {
                    let doing = match mapping.is_writable {
                        true => Some(Doing::Own),
                        false => dir.doing(mapping.name, || *is_apart),
                    };
                    if let Some(doing) = doing {
                        let (end, range, known) = mapped.entry(mapping.file).or_default();
                        *known = if *known == Some(Doing::Own) { *known } else { Some(doing) };
                        (*end, *range) = (mapping.end.max(*end), mapping.range());
                    }
                }
                is_long |= is_over(work);
                !is_long
            };
            let most = MAPPINGS_MAX.saturating_sub(self.read);
            let maps = File::open(thread.join("maps"));
            let read = maps.and_then(|maps| lines(BufReader::new(maps), most, &mut see));
            self.is_long = is_long;
            match read {
                Ok(0) => {}
                Ok(read) => {
                    self.read += read;
                    break;
                }
                Err(error) => self.note(&thread, &error),
            }
        }
        for (file, (end, range, doing)) in mapped {
            self.note_work();
            if self.seen.contains(&file) || self.is_long {
                continue;
            }
            let link = PathBuf::from(format!("/proc/{}/map_files", process.pid)).join(range);
            let data = stat(&link).ok().filter(|data| (data.st_dev, data.st_ino) == file);
            match (doing, data) {
                (Some(doing), Some(data)) => self.add(file, Usage::of(&data), doing),
                (Some(Doing::Own), None) => {
                    self.is_unsized = true;
                    // At least that is there, and another process may have more of it mapped.
                    let known = self.mapped.entry(file).or_default();
                    *known = known.max(Usage { length: Bytes(end), blocks: Bytes(end) });
                }
                // It may be mapped beyond its end.
                (Some(Doing::Others) | None, _) => {}
            }
        }
    }

    /// The program that a process runs, of which it may have no descriptor and no mapping any more, and the
    /// directories that it works in and takes for the root.
    fn run(&mut self, thread: &Path, devices: &BTreeSet<u64>, dir: &Names) {
        for what in ["exe", "cwd", "root"] {
            let link = thread.join(what);
            let doing = match fs::read_link(&link) {
                Ok(name) => {
                    let name = name.as_os_str().as_bytes();
                    Some(name)
                        .filter(|name| name.ends_with(GONE))
                        .and_then(|name| dir.doing(name, || is_apart(thread)))
                }
                Err(_) => Some(Doing::Own),
            };
            if let Some(doing) = doing
                && let Ok(data) = stat(&link)
                && data.st_nlink == 0
                && devices.contains(&data.st_dev)
            {
                self.add((data.st_dev, data.st_ino), Usage::of(&data), doing);
            }
        }
    }

    fn open(&mut self, thread: &Path, devices: &BTreeSet<u64>, dir: &Names) {
        let entries = match fs::read_dir(thread.join("fd")) {
            Ok(entries) => entries,
            Err(error) => return self.note(thread, &error),
        };
        for entry in entries.flatten() {
            if self.looked_at >= DESCRIPTORS_MAX || self.is_long {
                return;
            }
            self.looked_at += 1;
            let path = entry.path();
            // A name that is too long to be told can only be one that somebody made so.
            let name = fs::read_link(&path);
            self.note_work();
            if name.as_ref().is_ok_and(|name| name.as_os_str().as_bytes().starts_with(b"socket:")) {
                self.looked_at = self.looked_at.saturating_add(SOCKET);
                match told(thread, &entry.file_name(), "scm_fds:") {
                    // Older kernels do not say it.
                    Told::Said(count) => self.is_closed |= count != "0",
                    Told::Nothing => {}
                    Told::TooLong => self.is_long = true,
                    // It is closed by now, or this process has no descriptor left.
                    Told::Failed(Some(libc::ENOENT | libc::ESRCH | libc::EMFILE | libc::ENFILE)) => {}
                    Told::Failed(_) => self.is_closed = true,
                }
                self.note_work();
                continue;
            }
            let is_gone = |name: &PathBuf| name.as_os_str().as_bytes().ends_with(GONE);
            if name.as_ref().is_ok_and(|name| !is_gone(name)) {
                continue;
            }
            let Ok(data) = stat(&path) else { continue };
            // What takes blocks.
            let kind = FileType::from_raw_mode(data.st_mode);
            let is_kept = matches!(kind, FileType::RegularFile | FileType::Directory | FileType::Symlink);
            if !is_kept || data.st_nlink > 0 || !devices.contains(&data.st_dev) {
                continue;
            }
            let doing = match &name {
                Ok(name) => dir.doing(name.as_os_str().as_bytes(), || is_apart(thread)),
                Err(_) => Some(Doing::Own),
            };
            let writable = || is_writable(thread, &entry.file_name()).then_some(Doing::Own);
            let doing = doing.filter(|doing| *doing == Doing::Own).or_else(writable).or(doing);
            if let Some(doing) = doing {
                self.add((data.st_dev, data.st_ino), Usage::of(&data), doing);
            }
        }
    }
}

/// Whether this thread has taken so much CPU time.
fn is_over(work: Option<Duration>) -> bool {
    sys::thread_cpu_time().zip(work).is_some_and(|(now, work)| now >= work)
}

/// By whose doing a file that a task has open has no name any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// The task's.
    Own,
    /// The agent's: it was a file of a project.
    Others,
}

/// Where names are whose files are a task's own, even if it can only read them.
struct Names {
    its: Vec<PathBuf>,
    projects: PathBuf,
}

impl Names {
    fn below(data: &Path) -> Self {
        // As the kernel shows names: without links, of which an administrator may have made some.
        let real = |path: PathBuf| fs::canonicalize(&path).unwrap_or(path);
        let data = real(data.to_path_buf());
        let projects = real(data.join(PROJECTS));
        Self { its: vec![real(data.join(SLOTS)), real(data.join(TRASH)), data], projects }
    }

    /// Whose doing it is, by the name that a thread shows; none where it is no matter of the task's.
    /// `is_apart` says whether the thread has mounts of its own.
    fn doing(&self, name: &[u8], is_apart: impl FnOnce() -> bool) -> Option<Doing> {
        if is_below(name, &self.projects) {
            return Some(Doing::Others);
        }
        let is_own = || FILES.iter().any(|place| is_below(name, Path::new(place))) && is_apart();
        (self.its.iter().any(|dir| is_below(name, dir)) || is_own()).then_some(Doing::Own)
    }
}

/// Whether a thread has mounts of its own, so that a name means something else to it.
fn is_apart(thread: &Path) -> bool {
    let mounts = |process: &Path| fs::read_link(process.join("ns/mnt")).ok();
    mounts(thread) != mounts(Path::new("/proc/self"))
}

fn is_below(name: &[u8], dir: &Path) -> bool {
    name.strip_prefix(dir.as_os_str().as_bytes()).is_some_and(|rest| rest.starts_with(b"/"))
}

/// What the kernel tells of a descriptor.
enum Told {
    Said(String),
    /// There is no such key.
    Nothing,
    /// There is none in the beginning of a long text.
    TooLong,
    /// The text cannot be read, by this error of the system's.
    Failed(Option<i32>),
}

/// What the kernel tells of a thread's descriptor under a key.
fn told(thread: &Path, descriptor: &OsStr, key: &str) -> Told {
    let told = match proc::start_of(thread.join("fdinfo").join(descriptor), TOLD_MAX) {
        Ok(told) => told,
        Err(error) => return Told::Failed(error.raw_os_error()),
    };
    let is_long = told.len() as u64 >= TOLD_MAX;
    let told = String::from_utf8_lossy(&told);
    match told.lines().find_map(|line| line.strip_prefix(key)) {
        Some(value) => Told::Said(value.trim().to_owned()),
        None if is_long => Told::TooLong,
        None => Told::Nothing,
    }
}

/// Whether a thread has opened a file so that it can write it. If that is not told, it may have.
fn is_writable(thread: &Path, descriptor: &OsStr) -> bool {
    let Told::Said(flags) = told(thread, descriptor, "flags:") else { return true };
    u32::from_str_radix(&flags, 8).map_or(true, |flags| flags & ACCESS != OFlags::RDONLY.bits())
}

/// How a file was opened: to be read, to be written, or both.
const ACCESS: u32 = OFlags::RDWR.bits() | OFlags::WRONLY.bits();

/// Goes through lines, of which the beginning is kept and the end, until so many bytes were read, or `see`
/// says that it is enough. Says how many.
fn lines(mut list: impl io::BufRead, most: u64, see: &mut dyn FnMut(&[u8]) -> bool) -> io::Result<u64> {
    let (mut read, mut line) = (0, Vec::new());
    while read < most {
        let there = list.fill_buf()?;
        if there.is_empty() {
            break;
        }
        let end = there.iter().position(|byte| *byte == b'\n');
        let part = &there[..end.unwrap_or(there.len())];
        line.extend_from_slice(part);
        if line.len() > LINE_MAX {
            // The middle of a name says nothing.
            line.drain(LINE_MAX - GONE.len()..line.len() - GONE.len());
        }
        let (taken, is_whole) = (end.map_or(there.len(), |end| end + 1), end.is_some());
        read += taken as u64;
        list.consume(taken);
        if is_whole {
            if !see(&line) {
                break;
            }
            line.clear();
        }
    }
    Ok(read)
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
struct Mapping<'a> {
    file: (u64, u64),
    /// Where in the file it ends.
    end: u64,
    /// The addresses.
    from: u64,
    to: u64,
    /// What is written to it is the file's.
    is_writable: bool,
    name: &'a [u8],
}

impl<'a> Mapping<'a> {
    /// As a line of `/proc/PID/maps` tells it: addresses, rights, offset, device, inode, name.
    fn of(line: &'a [u8]) -> Option<Self> {
        let name = line.splitn(6, |byte| *byte == b' ').nth(5)?.trim_ascii_start();
        if !name.ends_with(GONE) {
            return None;
        }
        // What is written to a private mapping is not the file's.
        let rights = line.splitn(3, |byte| *byte == b' ').nth(1)?;
        let is_writable = rights.get(1) == Some(&b'w') && rights.get(3) == Some(&b's');
        let numbers = String::from_utf8_lossy(&line[..line.len() - name.len()]);
        let mut fields = numbers.split(' ');
        let (from, to) = fields.next()?.split_once('-')?;
        let offset = number(fields.nth(1)?)?;
        let (major, minor) = fields.next()?.split_once(':')?;
        let inode = fields.next()?.parse().ok()?;
        let narrow = |text: &str| u32::try_from(number(text)?).ok();
        let device = rustix::fs::makedev(narrow(major)?, narrow(minor)?);
        let (from, to) = (number(from)?, number(to)?);
        let end = offset.saturating_add(to.checked_sub(from)?);
        Some(Self { file: (device, inode), end, from, to, is_writable, name })
    }

    /// The addresses, as `/proc/PID/map_files` calls it.
    fn range(&self) -> String {
        format!("{:x}-{:x}", self.from, self.to)
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

    /// Runs a program of perl in `dir` until the test is over.
    fn with_program(dir: &Path, program: &str, test: impl FnOnce(&[Process], &BTreeSet<u64>)) {
        let mut command = Command::new("perl");
        command.args(["-e", &format!("$| = 1; {program}; print \"ready\\n\"; <STDIN>")]);
        with_command(dir, command, test);
    }

    /// Runs a command in `dir` until the test is over. It says when it is ready.
    fn with_command(dir: &Path, mut command: Command, test: impl FnOnce(&[Process], &BTreeSet<u64>)) {
        command.current_dir(dir);
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
    fn r4_1_a_task_that_leaves_descriptors_in_a_socket_cannot_be_counted_and_one_that_sends_bytes_can() {
        let dir = tempfile::tempdir().unwrap();
        let kinds = ["SOCK_STREAM", "SOCK_SEQPACKET", "SOCK_DGRAM"];
        let cases = [("[f.fileno()]", Some(Missed::Closed)), ("[]", None)];
        for (kind, (files, missed)) in kinds.into_iter().flat_map(|kind| cases.map(|case| (kind, case))) {
            let program = format!(
                "import os, socket, sys; f = open('f', 'wb'); f.write(b'x' * 3000000); f.flush(); os.unlink('f')\n\
                 a, b = socket.socketpair(socket.AF_UNIX, socket.{kind})\n\
                 socket.send_fds(a, [b'x'], {files}); f.close(); a.close()\n\
                 print('ready', flush=True); sys.stdin.readline()"
            );
            let mut command = Command::new("python3");
            command.args(["-c", &program]);
            with_command(dir.path(), command, |processes, devices| {
                let held = Nameless::of(processes, devices, dir.path());
                assert_eq!((held.missed(), held.usage()), (missed, Usage::default()), "{kind} {files}");
            });
        }
    }

    #[test]
    fn r4_1_descriptors_of_which_the_kernel_tells_very_much_take_no_more_work_than_others() {
        // Each of them names all locks that the process holds.
        let program = "use Fcntl; use Socket; socketpair my $s, my $other, AF_UNIX, SOCK_STREAM, 0; \
             for (1..800) { fcntl $s, F_SETLK, pack 's s x4 q q i x4', F_WRLCK, 0, 2 * $_, 1, 0 } \
             open $held[$_], '+>&', $s for 1..900";
        let dir = tempfile::tempdir().unwrap();
        with_program(dir.path(), program, |processes, devices| {
            let found = Nameless::within(Duration::from_millis(20), processes, devices, dir.path());
            assert_eq!(found.missed(), Some(Missed::TooMany));
            let few = found.looked_at / (1 + SOCKET);
            assert!(few < 900, "all {few} were looked at");
            // With time enough, however slow the machine is.
            let hours = Duration::from_hours(9);
            assert_eq!(Nameless::within(hours, processes, devices, dir.path()).missed(), None);
        });
    }

    #[test]
    fn r4_1_a_program_without_a_name_counts_as_long_as_it_runs() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        fs::copy("/bin/sh", &program).unwrap();
        let whole = fs::metadata(&program).unwrap().len();
        fs::OpenOptions::new().append(true).open(&program).unwrap().set_len(whole + 3_000_000).unwrap();
        let mut command = Command::new(&program);
        command.args(["-c", "rm program; echo ready; read line"]);
        with_command(dir.path(), command, |processes, devices| {
            let held = |data: &Path| Nameless::of(processes, devices, data).usage().length.0;
            assert_eq!(held(Path::new("/nowhere")), 0, "it can only be read, and lies elsewhere");
            assert_eq!(held(dir.path()), whole + 3_000_000);
        });
    }

    #[test]
    fn r4_1_a_file_without_a_name_of_which_little_is_mapped_counts_whole_or_is_said_to_be_of_any_size() {
        let dir = tempfile::tempdir().unwrap();
        let program = "import mmap, os, sys; f = open('f', 'wb+'); f.write(b'x' * 3000000); f.flush(); os.unlink('f')\n\
             held = mmap.mmap(f.fileno(), 4096); n = os.dup(f.fileno()); f.close(); os.close(n)\n\
             import ctypes; libc = ctypes.CDLL(None)\n\
             [os.close(int(n)) for n in os.listdir('/proc/self/fd') if int(n) > 2 and os.path.exists('/proc/self/fd/' + n)]\n\
             print('ready', flush=True); sys.stdin.readline()";
        let mut command = Command::new("python3");
        command.args(["-c", program]);
        with_command(dir.path(), command, |processes, devices| {
            let held = Nameless::of(processes, devices, dir.path());
            // Only root is told, and not in each container.
            let own = fs::read_dir("/proc/self/map_files").unwrap().flatten().next().unwrap();
            let is_told = fs::metadata(own.path()).is_ok();
            let least = if is_told { 3_000_000 } else { 4096 };
            assert!((least..least + 100_000).contains(&held.usage().length.0), "{held:?}");
            assert_eq!(held.is_unsized(), !is_told, "{held:?}");
        });
    }

    #[test]
    fn r4_1_a_mapped_file_without_a_name_counts_as_far_as_it_is_mapped_and_others_do_not() {
        let with = |rights: &str, name: &str| format!("7f00a000-7f10a000 {rights} 00002000 08:02 123 {name}");
        let line = |name: &str| with("r--s", name);
        let dir = Names::below(Path::new("/data"));
        let doing = |line: &str| {
            let mapping = Mapping::of(line.as_bytes())?;
            assert_eq!((mapping.file, mapping.end), ((rustix::fs::makedev(8, 2), 123), 0x10_2000));
            assert_eq!(mapping.range(), "7f00a000-7f10a000");
            Some((mapping.is_writable, dir.doing(mapping.name, || false)))
        };
        let own = Some(Doing::Own);
        assert_eq!(doing(&line("   /data/slots/0/a b (deleted)")), Some((false, own)));
        assert_eq!(doing(&line("/data/trash/7/a (deleted)")), Some((false, own)));
        assert_eq!(doing(&line("/data/projects/p/input (deleted)")), Some((false, Some(Doing::Others))));
        assert_eq!(doing(&with("rw-s", "/other/mount/a (deleted)")), Some((true, None)));
        assert_eq!(doing(&with("rw-p", "/lib/libc.so (deleted)")), Some((false, None)));
        assert_eq!(doing(&line("/data2/a (deleted)")), Some((false, None)));
        for name in ["/data/slots/0/named", "/data/slots/0/a (deleted) "] {
            assert_eq!(doing(&line(name)), None, "{name}");
        }
        assert_eq!(doing("7f00a000-7f10a000 rw-p 00000000 00:00 0"), None);
    }

    #[test]
    fn r6_10_what_a_task_keeps_of_a_project_when_the_agent_has_deleted_it_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join(PROJECTS).join("p");
        fs::create_dir_all(&project).unwrap();
        for name in ["input", "library"] {
            fs::write(project.join(name), vec![1; 3_000_000]).unwrap();
        }
        let program = "import mmap, os, sys\nf = open('projects/p/input', 'rb'); g = open('projects/p/library', 'rb')\n\
                       m = mmap.mmap(g.fileno(), 0, prot=mmap.PROT_READ); g.close()\n\
                       os.unlink('projects/p/input'); os.unlink('projects/p/library')\n\
                       print('ready', flush=True); sys.stdin.readline()";
        let mut command = Command::new("python3");
        command.args(["-c", program]);
        with_command(dir.path(), command, |processes, devices| {
            let held = Nameless::of(processes, devices, dir.path());
            assert_eq!((held.usage(), held.is_unsized()), (Usage::default(), false));
            // How large one is that is mapped is told to root alone, and not in each container.
            let kept = held.kept().blocks.0 / 1_000_000;
            assert!(kept == 6 || kept == 3, "{held:?}");
        });
    }

    #[test]
    fn r4_1_links_and_directories_without_a_name_count_as_well() {
        let dir = tempfile::tempdir().unwrap();
        let program = "import os, sys\nlink = 'x' * 4000\n\
                       for n in range(50):\n os.symlink(link, 'l'); os.open('l', os.O_PATH | os.O_NOFOLLOW); os.unlink('l')\n\
                       os.mkdir('d'); os.open('d', os.O_RDONLY); os.rmdir('d')\n\
                       os.mkdir('e'); os.chdir('e'); os.rmdir('../e')\n\
                       print('ready', flush=True); sys.stdin.readline()";
        let mut command = Command::new("python3");
        command.args(["-c", program]);
        with_command(dir.path(), command, |processes, devices| {
            let held = Nameless::of(processes, devices, dir.path()).usage();
            // A directory counts as a block at least.
            assert!(held.length.0 >= 200_000 + 2 * 4_096, "{held:?}");
        });
    }

    #[test]
    fn r6_10_who_has_more_mappings_than_can_be_looked_at_in_time_is_said_to_have_too_many() {
        let dir = tempfile::tempdir().unwrap();
        let program = "import ctypes, os, sys\nf = open('f', 'wb+'); f.write(b'x' * 8192); f.flush(); os.unlink('f')\n\
                       c = ctypes.CDLL(None); c.mmap.restype = ctypes.c_void_p\n\
                       for n in range(20000): c.mmap(None, 4096, 1, 1, f.fileno(), ctypes.c_long(4096 * (n % 2)))\n\
                       f.close(); print('ready', flush=True); sys.stdin.readline()";
        let mut command = Command::new("python3");
        command.args(["-c", program]);
        with_command(dir.path(), command, |processes, devices| {
            let within = |work| Nameless::within(work, processes, devices, dir.path());
            let (whole, part) = (within(Duration::from_secs(60)), within(Duration::from_millis(1)));
            assert_eq!((whole.missed(), part.missed()), (None, Some(Missed::TooMany)));
            assert!(part.read < whole.read, "{} of {}", part.read, whole.read);
        });
    }

    #[test]
    fn r4_1_what_lies_elsewhere_is_nobodys_doing_and_a_link_to_the_directory_hides_nothing() {
        let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let link = elsewhere.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        // Such as a library that was replaced while a program had it open.
        let other = elsewhere.path().join("library");
        let program = format!(
            "open F, '>', 'gone'; print F 'x' x 3000000; close F; open F, '<', 'gone'; unlink 'gone'; \
             open G, '>', '{0}'; print G 'x' x 9000000; close G; open G, '<', '{0}'; unlink '{0}'",
            other.display()
        );
        with_program(dir.path(), &program, |processes, devices| {
            let held = Nameless::of(processes, devices, &link);
            assert!((3_000_000..3_100_000).contains(&held.usage().length.0), "{held:?}");
            assert_eq!(held.missed(), None);
        });
    }

    #[test]
    fn r4_1_a_file_counts_that_the_task_can_write_wherever_its_name_was() {
        let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        // As when its directory was moved to the trash, or reached by another mount.
        let program = format!(
            "open F, '+>', '{0}/f'; print F 'x' x 3000000; F->flush; unlink '{0}/f'",
            elsewhere.path().display()
        );
        with_program(dir.path(), &program, |processes, devices| {
            let held = Nameless::of(processes, devices, dir.path()).usage();
            assert!((3_000_000..3_100_000).contains(&held.length.0), "{held:?}");
        });
    }

    #[test]
    fn r4_1_a_file_that_is_only_read_counts_where_its_name_is_too_long_to_be_told_or_slots_is_a_link() {
        let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink(elsewhere.path(), dir.path().join(SLOTS)).unwrap();
        let held = "open F, '>', 'f'; print F 'x' x 3000000; close F; open F, '<', 'f'; unlink 'f'";
        let deep = "for (1 .. 20) { my $d = 'd' x 250; mkdir $d; chdir $d }";
        for (place, program) in [(elsewhere.path(), held.to_owned()), (dir.path(), format!("{deep}; {held}"))]
        {
            with_program(place, &program, |processes, devices| {
                let held = Nameless::of(processes, devices, dir.path()).usage();
                assert!((3_000_000..3_100_000).contains(&held.length.0), "{program}: {held:?}");
            });
        }
    }

    #[test]
    fn r4_1_lines_of_any_length_are_read_with_little_memory_and_not_without_end() {
        let long = format!(
            "7f00a000-7f10a000 rw-s 00002000 08:02 123   /data/slots/0/{} (deleted)",
            "x".repeat(1 << 20)
        );
        let text = format!("{long}\nshort\n{long}\n");
        let mut seen = Vec::new();
        let read = lines(text.as_bytes(), u64::MAX, &mut |line| {
            let dir = Names::below(Path::new("/data"));
            let mapping = Mapping::of(line);
            let doing = mapping.and_then(|mapping| dir.doing(mapping.name, || false));
            seen.push((line.len() <= LINE_MAX, doing.is_some()));
            true
        });
        assert_eq!(read.unwrap(), text.len() as u64);
        assert_eq!(seen, [(true, true), (true, false), (true, true)]);
        let endless = BufReader::new(io::repeat(b'x'));
        assert!(lines(endless, 1 << 20, &mut |_| true).unwrap() < 2 << 20);
        assert_eq!(lines("a\nb\nc\n".as_bytes(), 1 << 20, &mut |line| line != b"b").unwrap(), 4);
    }
}
