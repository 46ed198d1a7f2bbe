//! Trees of files that somebody else made: removed and measured, however deep, wide or closed they are.
//!
//! Model: everything goes by descriptors and single names, never by a path through the tree, so that no link
//! is followed and no depth is too deep. Neither call recurses, and both hold a handful of descriptors at
//! most.
//!
//! - Removing flattens: the subdirectories of a subdirectory are lifted to the top until there are none, so
//!   the tree itself is the list of what there is to do, and who is interrupted goes on where he was.
//! - Measuring remembers, for each level above, the place in its list of entries, and goes up by `..`, where
//!   it looks whether it is the directory that it came from.
//!
//! Directories that their owner closed to himself are opened again. What belongs to another user, or is
//! mounted there, stays, and is an error.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use fallow_domain::Bytes;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, StatxAttributes, StatxFlags, chmod, fchmod, fstat, open,
    openat, renameat, statat, statx, unlinkat,
};
use rustix::io::Errno;

/// Entries that are counted at most: more of them than any job has good use for, in some seconds.
const COUNTED_MAX: u64 = 5_000_000;
/// Files with several names that are remembered at most, some megabytes.
const SHARED_MAX: usize = 1 << 17;
/// What a directory itself counts: a block, so that nesting them without end is no way around a limit.
const DIRECTORY: Bytes = Bytes(4096);
/// Entries between two looks at the clock.
const STRIDE: u32 = 64;

/// Removes a file or a directory with all that is in it, and follows no link; what is not there is no error.
/// There is no end to it while somebody goes on creating files there: where that may be and others wait, see
/// [`crate::trash`].
///
/// # Errors
/// The system's, for the first thing that could not be removed; everything else is gone then.
pub fn remove(path: &Path) -> io::Result<()> {
    remove_until(path, None).map(drop)
}

/// The same, but no longer than until `end`. False when something is left to be done.
///
/// # Errors
/// As for [`remove`].
pub fn remove_until(path: &Path, end: Option<Instant>) -> io::Result<bool> {
    let Some(name) = path.file_name() else { return Err(io::ErrorKind::InvalidInput.into()) };
    let name = CString::new(name.as_bytes())?;
    let parent = match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => match open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(true),
            parent => Some(parent?),
        },
        None => None,
    };
    let parent = parent.as_ref().map_or(CWD, AsFd::as_fd);
    Ok(Removal::new(end).run(parent, &name)?)
}

/// Removes what is called `name` in the directory `parent`, but no longer than until `end`. False when
/// something is left to be done.
///
/// # Errors
/// As for [`remove`].
pub fn remove_at_until(parent: BorrowedFd<'_>, name: &CStr, end: Instant) -> io::Result<bool> {
    Ok(Removal::new(Some(end)).run(parent, name)?)
}

/// One call's work.
struct Removal {
    end: Option<Instant>,
    /// Makes the names under which directories are lifted its own.
    stamp: u128,
    lifted: u64,
    stride: u32,
    removed: bool,
    trouble: Option<Errno>,
}

/// Time is up.
struct Late;

impl Removal {
    fn new(end: Option<Instant>) -> Self {
        let stamp = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_nanos());
        Self { end, stamp, lifted: 0, stride: 0, removed: false, trouble: None }
    }

    fn run(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> Result<bool, Errno> {
        match unlinkat(parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(true),
            // What unlinking a directory gives, and a directory that may not be written.
            Err(Errno::ISDIR | Errno::PERM | Errno::ACCESS) => {}
            Err(errno) => return Err(errno),
        }
        if !is_directory(&statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?) {
            return unlinkat(parent, name, AtFlags::empty()).map(|()| true);
        }
        if self.rmdir(parent, name) {
            return Ok(true);
        }
        if is_mounted(parent, name) {
            return Err(Errno::BUSY);
        }
        let top = open_directory(parent, name)?;
        let device = fstat(&top)?.st_dev;
        loop {
            self.removed = false;
            self.trouble = None;
            match self.pass(top.as_fd(), device) {
                Err(Late) => return Ok(false),
                Ok(true) => {}
                // Nothing was found any more, or nothing could be done about it.
                Ok(false) => break,
            }
        }
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(errno) => Err(self.trouble.unwrap_or(errno)),
        }
    }

    /// Removes what is in `top`; subdirectories that are not empty leave their own behind in it. True if
    /// another pass can do more.
    fn pass(&mut self, top: BorrowedFd<'_>, device: u64) -> Result<bool, Late> {
        self.each(top, |removal, entry| removal.remove_entry(top, entry, device))?;
        Ok(self.removed)
    }

    /// Calls `act` for every entry of a directory.
    fn each(
        &mut self,
        dir: BorrowedFd<'_>,
        mut act: impl FnMut(&mut Self, &CStr) -> Result<(), Late>,
    ) -> Result<(), Late> {
        let mut entries = match Dir::read_from(dir) {
            Ok(entries) => entries,
            Err(errno) => {
                self.trouble.get_or_insert(errno);
                return Ok(());
            }
        };
        while let Some(entry) = entries.read() {
            let Ok(entry) = entry else { break };
            self.look_at_the_clock()?;
            if !is_dots(entry.file_name()) {
                act(self, entry.file_name())?;
            }
        }
        Ok(())
    }

    fn remove_entry(&mut self, top: BorrowedFd<'_>, name: &CStr, device: u64) -> Result<(), Late> {
        if self.unlink(top, name) || self.rmdir(top, name) {
            return Ok(());
        }
        if is_mounted(top, name) {
            return self.note(Errno::XDEV);
        }
        let sub = match open_directory(top, name) {
            Ok(sub) if fstat(&sub).is_ok_and(|data| data.st_dev == device) => sub,
            Ok(_) => return self.note(Errno::XDEV),
            Err(errno) => return self.note(errno),
        };
        self.each(sub.as_fd(), |removal, entry| {
            if !(removal.unlink(sub.as_fd(), entry) || removal.rmdir(sub.as_fd(), entry)) {
                removal.lift(sub.as_fd(), entry, top);
            }
            Ok(())
        })?;
        self.rmdir(top, name);
        Ok(())
    }

    /// Moves a directory to the top.
    fn lift(&mut self, from: BorrowedFd<'_>, name: &CStr, top: BorrowedFd<'_>) {
        // Who moves a directory writes into it: its `..` changes.
        let opened = open_up(from, name);
        loop {
            self.lifted += 1;
            let lifted = format!(".{:x}.{}", self.stamp, self.lifted);
            match renameat(from, name, top, lifted.as_str()) {
                Ok(()) => return self.removed = true,
                // The name is taken, which only somebody who wants to be in the way could bring about.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                Err(errno) => {
                    self.trouble.get_or_insert(opened.err().unwrap_or(errno));
                    return;
                }
            }
        }
    }

    fn unlink(&mut self, dir: BorrowedFd<'_>, name: &CStr) -> bool {
        match unlinkat(dir, name, AtFlags::empty()) {
            Ok(()) => self.removed = true,
            Err(Errno::NOENT) => {}
            Err(Errno::ISDIR | Errno::PERM) => return false,
            Err(errno) => {
                self.trouble.get_or_insert(errno);
                return false;
            }
        }
        true
    }

    fn rmdir(&mut self, dir: BorrowedFd<'_>, name: &CStr) -> bool {
        let gone = unlinkat(dir, name, AtFlags::REMOVEDIR);
        self.removed |= gone.is_ok();
        matches!(gone, Ok(()) | Err(Errno::NOENT))
    }

    fn note(&mut self, errno: Errno) -> Result<(), Late> {
        self.trouble.get_or_insert(errno);
        Ok(())
    }

    fn look_at_the_clock(&mut self) -> Result<(), Late> {
        self.stride += 1;
        let late = || self.end.is_some_and(|end| Instant::now() >= end);
        if self.stride.is_multiple_of(STRIDE) && late() { Err(Late) } else { Ok(()) }
    }
}

/// What files take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Their lengths, as BOINC counts them, and a block for each directory.
    pub length: Bytes,
    /// The blocks that are theirs on the disk.
    pub blocks: Bytes,
}

impl Usage {
    /// Both of them with those of others.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self { length: self.length.plus(other.length), blocks: self.blocks.plus(other.blocks) }
    }

    /// What counts against a bound on lengths: tiny files without end, or more blocks than a length says, are
    /// no way around it; nor is a length without blocks.
    pub fn most(self) -> Bytes {
        self.length.max(self.blocks)
    }

    fn of(data: &Stat) -> Self {
        let bytes = |number: i64| Bytes(u64::try_from(number).unwrap_or(0));
        // The unit of `st_blocks` is 512 bytes whatever the file system's own is.
        let usage = Self { length: bytes(data.st_size), blocks: bytes(data.st_blocks.saturating_mul(512)) };
        match is_directory(data) {
            true => Self { length: DIRECTORY, blocks: usage.blocks.max(DIRECTORY) },
            false => usage,
        }
    }
}

/// The files with several names that were counted: each counts once. Those that are too many to be remembered
/// count by each name.
#[derive(Debug, Default)]
pub struct Counted(BTreeSet<(u64, u64)>);

impl Counted {
    /// What a file or a directory counts, but for what is in it.
    pub fn count(&mut self, data: &Stat) -> Usage {
        let is_known = data.st_nlink > 1
            && !is_directory(data)
            && !(self.0.len() < SHARED_MAX && self.0.insert((data.st_dev, data.st_ino)))
            && self.0.contains(&(data.st_dev, data.st_ino));
        if is_known { Usage::default() } else { Usage::of(data) }
    }
}

/// Bytes of all files below a directory, links not followed, and a block for each directory in it. What
/// cannot be read counts as nothing.
pub fn size_below(dir: &Path) -> Bytes {
    usage_below(dir).length
}

/// The same, with their blocks.
pub fn usage_below(dir: &Path) -> Usage {
    let mut walk = Walk::below(dir);
    let mut counted = Counted::default();
    while !walk.step(&mut counted, u64::MAX) {}
    walk.total()
}

/// How directories are opened.
const LIST: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

/// A walk through a tree, which can be made in steps, so that somebody else's tree has its turn in between.
#[derive(Debug)]
pub struct Walk {
    /// None when it is over.
    dir: Option<Dir>,
    above: Vec<Level>,
    left: u64,
    total: Usage,
    /// Whether directories that are closed to their owner are opened up.
    opens: bool,
}

/// A directory above the present one, and how far it is read.
#[derive(Debug)]
struct Level {
    device: u64,
    inode: u64,
    next: i64,
}

impl Walk {
    /// Through what is below a directory that a job had: what it closed is opened up.
    pub fn below(dir: &Path) -> Self {
        let opened = match open(dir, LIST, Mode::empty()) {
            Err(Errno::ACCESS) => open_up(CWD, dir).and_then(|()| open(dir, LIST, Mode::empty())),
            opened => opened,
        };
        Self::of(opened, true)
    }

    /// Through what is below the directory `name` in `parent`. What is closed to its owner is opened up if
    /// `opens` says so; else it stays as it is, and what cannot be read is not counted.
    pub fn below_at(parent: BorrowedFd<'_>, name: &CStr, opens: bool) -> Self {
        Self::of(list_directory(parent, name, opens), opens)
    }

    fn of(opened: Result<OwnedFd, Errno>, opens: bool) -> Self {
        let dir = opened.and_then(Dir::new).ok();
        Self { dir, above: Vec::new(), left: COUNTED_MAX, total: Usage::default(), opens }
    }

    /// What was counted so far.
    pub const fn total(&self) -> Usage {
        self.total
    }

    /// Goes on by at most so many entries. True when it is over.
    pub fn step(&mut self, counted: &mut Counted, most: u64) -> bool {
        let steps = most.min(self.left);
        self.left -= steps;
        for _ in 0..steps {
            let Some(dir) = &mut self.dir else { return true };
            match dir.read() {
                Some(Ok(entry)) if is_dots(entry.file_name()) => {}
                Some(Ok(entry)) => {
                    let usage = self.enter(entry.file_name(), entry.offset(), counted);
                    self.total = self.total.plus(usage);
                }
                Some(Err(_)) | None => {
                    if self.leave().is_none() {
                        self.dir = None;
                    }
                }
            }
        }
        self.left == 0 || self.dir.is_none()
    }

    /// What an entry counts. A directory is gone into.
    fn enter(&mut self, name: &CStr, next: i64, counted: &mut Counted) -> Usage {
        let Some(Ok(at)) = self.dir.as_ref().map(Dir::fd) else { return Usage::default() };
        let Ok(data) = statat(at, name, AtFlags::SYMLINK_NOFOLLOW) else { return Usage::default() };
        if is_directory(&data) {
            let here = fstat(at);
            if let (Ok(here), Ok(dir)) = (here, list_directory(at, name, self.opens).and_then(Dir::new)) {
                self.above.push(Level { device: here.st_dev, inode: here.st_ino, next });
                self.dir = Some(dir);
            }
        }
        counted.count(&data)
    }

    /// Goes up and on from there; none at the top, or where the tree was moved under the walk.
    fn leave(&mut self) -> Option<()> {
        let level = self.above.pop()?;
        let up = openat(self.dir.as_ref()?.fd().ok()?, c"..", LIST, Mode::empty()).ok()?;
        let data = fstat(&up).ok()?;
        if (data.st_dev, data.st_ino) != (level.device, level.inode) {
            return None;
        }
        let dir = self.dir.insert(Dir::new(up).ok()?);
        dir.seek(level.next).ok()
    }
}

/// Opens a directory for all that can be done with it. One that is closed to its owner is opened up first.
pub fn open_directory(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let dir = match openat(parent, name, LIST, Mode::empty()) {
        Err(Errno::ACCESS) => {
            open_up(parent, name)?;
            openat(parent, name, LIST, Mode::empty())?
        }
        opened => opened?,
    };
    let mode = Mode::from_raw_mode(fstat(&dir)?.st_mode);
    if !mode.contains(Mode::RWXU) {
        // Where it is somebody else's, what cannot be done says so by itself.
        let _ = fchmod(&dir, mode.union(Mode::RWXU));
    }
    Ok(dir)
}

/// Opens a directory to list what is in it. One that is closed to its owner is opened up first if `opens`
/// says so, unless it is somebody's who mounted it there.
pub fn list_directory(parent: BorrowedFd<'_>, name: &CStr, opens: bool) -> Result<OwnedFd, Errno> {
    let dir = openat(parent, name, LIST, Mode::empty());
    let is_open = |dir: &OwnedFd| {
        let reads = Mode::RUSR.union(Mode::XUSR);
        fstat(dir).is_ok_and(|data| Mode::from_raw_mode(data.st_mode).contains(reads))
    };
    if !opens || dir.as_ref().is_ok_and(is_open) || is_mounted(parent, name) {
        return dir;
    }
    open_directory(parent, name)
}

/// Gives the owner of a directory all rights to it.
pub fn open_up<P: rustix::path::Arg>(parent: BorrowedFd<'_>, name: P) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = openat(parent, name, flags, Mode::empty())?;
    let mode = Mode::from_raw_mode(fstat(&dir)?.st_mode);
    if mode.contains(Mode::RWXU) {
        return Ok(());
    }
    // A descriptor of a directory that may not be read cannot change its mode; its name in /proc can, and
    // leads to that very directory.
    chmod(format!("/proc/self/fd/{}", dir.as_raw_fd()), mode.union(Mode::RWXU))
}

/// Whether something is mounted at `name` in the directory `parent`: another volume, or a directory from
/// elsewhere on this one, which a kernel before 5.8 does not say.
pub fn is_mounted(parent: BorrowedFd<'_>, name: &CStr) -> bool {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let is_root = statx(parent, name, flags, StatxFlags::TYPE)
        .is_ok_and(|data| data.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
    let device = |name: &CStr| statat(parent, name, flags).map(|data| data.st_dev);
    is_root || matches!((device(c"."), device(name)), (Ok(here), Ok(there)) if here != there)
}

fn is_directory(data: &Stat) -> bool {
    FileType::from_raw_mode(data.st_mode) == FileType::Directory
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::Duration;

    /// Nests directories without ever having a path for them.
    fn nest(dir: &Path, depth: usize) {
        let mut at = open(dir, LIST, Mode::empty()).unwrap();
        for _ in 0..depth {
            rustix::fs::mkdirat(&at, c"d", Mode::RWXU).unwrap();
            at = openat(&at, c"d", LIST, Mode::empty()).unwrap();
        }
        let file = openat(&at, c"f", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).unwrap();
        rustix::io::write(file, &[0; 100]).unwrap();
    }

    #[test]
    fn no_depth_is_too_deep_to_be_measured_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("deep");
        fs::create_dir(&deep).unwrap();
        nest(&deep, 3_000);
        // On a thread with little stack: neither call may need more with depth.
        let work = move || {
            assert_eq!(size_below(&deep), Bytes(3_000 * 4096 + 100));
            remove(&deep).unwrap();
            assert!(!deep.exists());
        };
        std::thread::Builder::new().stack_size(128 * 1024).spawn(work).unwrap().join().unwrap();
    }

    #[test]
    fn a_removal_can_be_interrupted_and_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("deep");
        fs::create_dir(&deep).unwrap();
        nest(&deep, 2_000);
        let mut slices = 0;
        while !remove_until(&deep, Some(Instant::now() + Duration::from_millis(2))).unwrap() {
            slices += 1;
        }
        assert!(slices > 0 && !deep.exists());
    }

    #[test]
    fn a_wide_tree_is_measured_whole_and_links_lead_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("outside"), [0; 5000]).unwrap();
        let tree = dir.path().join("tree");
        for number in 0..50 {
            let sub = tree.join(format!("{number}/a/b"));
            fs::create_dir_all(&sub).unwrap();
            fs::write(sub.join("f"), [0; 10]).unwrap();
            std::os::unix::fs::symlink("../../../../outside", sub.join("l")).unwrap();
            std::os::unix::fs::symlink("../..", sub.join("m")).unwrap();
        }
        let links = 50 * ("../../../../outside".len() + "../..".len()) as u64;
        assert_eq!(size_below(&tree), Bytes(50 * 10 + 150 * 4096 + links));
        remove(&tree).unwrap();
        assert!(!tree.exists() && dir.path().join("outside").exists());
    }

    #[test]
    fn r4_1_each_file_counts_once_with_its_blocks_whatever_its_length_says_and_however_many_names_it_has() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("sub")).unwrap();
        fs::write(tree.join("full"), vec![1; 1 << 20]).unwrap();
        for number in 0..20 {
            fs::hard_link(tree.join("full"), tree.join(format!("sub/{number}"))).unwrap();
        }
        let once = usage_below(&tree);
        assert!(once.blocks.0 >= 1 << 20 && once.blocks.0 < 2 << 20, "{once:?}");
        assert!(once.length.0 >= 1 << 20 && once.length.0 < 2 << 20, "{once:?}");
        // A hole has a length and no blocks; tiny files have blocks and next to no length.
        fs::File::create(tree.join("hole")).unwrap().set_len(1 << 40).unwrap();
        let holed = usage_below(&tree);
        assert!(holed.blocks.0 < once.blocks.0 + (1 << 20) && holed.most().0 > 1 << 40, "{holed:?}");
        fs::remove_file(tree.join("hole")).unwrap();
        for number in 0..1_000 {
            fs::write(tree.join(format!("sub/tiny{number}")), [1]).unwrap();
        }
        let tiny = usage_below(&tree);
        assert!(
            tiny.length.0 < once.length.0 + 100_000 && tiny.most().0 > once.length.0 + 400_000,
            "{tiny:?}"
        );
    }

    #[test]
    fn r4_1_a_walk_that_is_made_in_steps_counts_what_one_in_a_go_does() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..300 {
            let sub = dir.path().join(format!("{}/{number}", number % 7));
            fs::create_dir_all(&sub).unwrap();
            fs::write(sub.join("f"), vec![0; number]).unwrap();
        }
        let (mut walk, mut counted, mut steps) = (Walk::below(dir.path()), Counted::default(), 0);
        while !walk.step(&mut counted, 10) {
            steps += 1;
        }
        assert!(steps > 50, "{steps}");
        assert_eq!(walk.total(), usage_below(dir.path()));
    }

    #[test]
    fn what_is_not_there_is_removed_already_and_a_link_is_removed_itself() {
        let dir = tempfile::tempdir().unwrap();
        remove(&dir.path().join("a/b")).unwrap();
        fs::create_dir(dir.path().join("kept")).unwrap();
        std::os::unix::fs::symlink("kept", dir.path().join("link")).unwrap();
        remove(&dir.path().join("link")).unwrap();
        assert!(dir.path().join("kept").exists() && !dir.path().join("link").exists());
    }
}
