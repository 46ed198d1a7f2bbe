//! What trees of files take, however deep, wide or closed they are (R4.1).
//!
//! Model: everything goes by descriptors and single names, see [`crate::tree`]. A walk remembers, for each
//! level above, the place in its list of entries, and goes up by `..`, where it looks whether it is the
//! directory that it came from. Where it is not, its tree was moved under the walk: then it goes back from
//! the top, by the names that led there, as far down as that is still the way, and on from there.
//!
//! A walk says if it could not see all there is ([`Missed`]): what it counted is then the least that there
//! is. What the system refused first it keeps with its place, for whoever gives a tree to another user.
//!
//! Left out: a file that is moved from where the walk is to come to where it has been, an instant before it
//! comes, or an open one that goes from process to process in that way. A task that watches its directories
//! can do that each time, and is seen only when it stands still: as long as it is stopped, or before a task
//! has to go on a full disk (see `supervise/still_count.rs`).

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use fallow_domain::Bytes;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, Stat, fstat, open, openat, statat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};

use crate::owner::{self, Handover};
use crate::tree::{LIST, is_mounted, list_directory, open_up};

/// Entries that are counted at most: more of them than any job has good use for, in some seconds.
pub const COUNTED_MAX: u64 = 5_000_000;
/// Files with several names that are remembered at most, some megabytes.
const SHARED_MAX: usize = 1 << 17;
/// What a directory itself counts: a block, so that nesting them without end is no way around a limit.
const DIRECTORY: Bytes = Bytes(4096);
/// So many devices of a tree are remembered: a job can mount none, and some file systems make up a few.
const DEVICES_MAX: usize = 16;
/// So many directories on the way to what was refused are named.
const NAMED_MAX: usize = 8;

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

    /// The larger of both figures.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { length: self.length.max(other.length), blocks: self.blocks.max(other.blocks) }
    }

    /// What of it is beyond others.
    #[must_use]
    pub const fn less(self, others: Self) -> Self {
        Self {
            length: Bytes(self.length.0.saturating_sub(others.length.0)),
            blocks: Bytes(self.blocks.0.saturating_sub(others.blocks.0)),
        }
    }

    /// What counts against a bound on lengths: tiny files without end, or more blocks than a length says, are
    /// no way around it; nor is a length without blocks.
    pub fn most(self) -> Bytes {
        self.length.max(self.blocks)
    }

    /// What a file takes, or a directory without what is in it.
    pub fn of(data: &Stat) -> Self {
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

/// Why a walk has not seen all there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// More things than can be counted.
    TooMany,
    /// A part that was moved elsewhere while the walk was in it.
    Moved,
    /// A directory that is closed again as soon as it is opened up, a process that nobody may look at, or
    /// what waits in a socket.
    Closed,
    /// Processes came and went all the time, which may be nobody's fault.
    Unsure,
}

/// What the system refused to a walk first.
#[derive(Debug)]
pub(crate) struct Trouble {
    /// Where, from the directory that the walk began at.
    pub(crate) at: PathBuf,
    /// Why.
    pub(crate) errno: Errno,
}

/// A walk through a tree, which can be made in steps, so that somebody else's tree has its turn in between.
#[derive(Debug)]
pub struct Walk {
    /// The directory that it began at.
    top: Option<OwnedFd>,
    /// None when it is over.
    dir: Option<Dir>,
    above: Vec<Level>,
    left: u64,
    total: Usage,
    /// Whether directories that are closed to their owner are opened up.
    opens: bool,
    missed: Option<Missed>,
    devices: BTreeSet<u64>,
    /// To whom all of it is given, if it is.
    gives: Option<Handover>,
    /// A file was not given, for it has other names.
    keeps: bool,
    trouble: Option<Trouble>,
}

/// A directory above the present one, and how far it is read.
#[derive(Debug)]
struct Level {
    device: u64,
    inode: u64,
    next: i64,
    /// What of it was gone into.
    name: CString,
}

impl Level {
    fn is(&self, data: &Stat) -> bool {
        (data.st_dev, data.st_ino) == (self.device, self.inode)
    }
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
        let missed = (opens && opened.as_ref().is_err_and(is_closed)).then_some(Missed::Closed);
        let read = opened.as_ref().map_err(|errno| *errno).and_then(Dir::read_from);
        let mut trouble = None;
        if let Err(errno) = read {
            note(&mut trouble, &[], c".", errno);
        }
        let (top, dir) = (opened.ok(), read.ok());
        let data = top.as_ref().and_then(|top| fstat(top).ok());
        let devices = data.map(|data| data.st_dev).into_iter().collect();
        let total = Usage::default();
        Self {
            top,
            dir,
            above: Vec::new(),
            left: COUNTED_MAX,
            total,
            opens,
            missed,
            devices,
            gives: None,
            keeps: false,
            trouble,
        }
    }

    /// The same, which counts no more entries than so many.
    #[must_use]
    pub fn of_at_most(self, entries: u64) -> Self {
        Self { left: entries, ..self }
    }

    /// The same, which gives what it comes to from one user to another (see [`owner::give_at`]).
    #[must_use]
    pub(crate) fn giving(self, handover: Handover) -> Self {
        Self { gives: Some(handover), ..self }
    }

    /// Whether a file was not given so far, for it has other names.
    pub(crate) const fn keeps(&self) -> bool {
        self.keeps
    }

    /// What the system refused first, if anything: what comes after it may not have been seen or given. What
    /// is gone when the walk comes to it is none.
    pub(crate) const fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// What was counted so far.
    pub const fn total(&self) -> Usage {
        self.total
    }

    /// Why it has not seen all there is. None before its end, if nothing was missed so far.
    pub fn missed(&self) -> Option<Missed> {
        if self.left == 0 && self.dir.is_some() { Some(Missed::TooMany) } else { self.missed }
    }

    /// The devices that the tree lies on.
    pub const fn devices(&self) -> &BTreeSet<u64> {
        &self.devices
    }

    /// Goes on by at most so many entries. True when it is over.
    pub fn step(&mut self, counted: &mut Counted, most: u64) -> bool {
        let until = self.left.saturating_sub(most);
        while self.left > until {
            self.left -= 1;
            let Some(dir) = &mut self.dir else { return true };
            match dir.read() {
                Some(Ok(entry)) if is_dots(entry.file_name()) => {}
                Some(Ok(entry)) => {
                    let usage = self.enter(entry.file_name(), entry.offset(), counted);
                    self.total = self.total.plus(usage);
                }
                end => {
                    if let Some(Err(errno)) = end {
                        note(&mut self.trouble, &self.above, c".", errno);
                    }
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
        let data = match statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(data) => data,
            Err(errno) => {
                if errno != Errno::NOENT {
                    note(&mut self.trouble, &self.above, name, errno);
                }
                return Usage::default();
            }
        };
        if let Some(handover) = self.gives {
            match owner::give_at(at, name, handover) {
                Ok(is_given) => self.keeps |= !is_given,
                Err(errno) => note(&mut self.trouble, &self.above, name, errno),
            }
            if is_directory(&data) && is_mounted(at, name) {
                return Usage::default();
            }
        }
        if self.devices.len() < DEVICES_MAX {
            self.devices.insert(data.st_dev);
        }
        if is_directory(&data) {
            match (fstat(at), list_directory(at, name, self.opens).and_then(Dir::new)) {
                (Ok(here), Ok(dir)) => {
                    let name = name.to_owned();
                    self.above.push(Level { device: here.st_dev, inode: here.st_ino, next, name });
                    self.dir = Some(dir);
                }
                (_, Err(Errno::NOENT)) => {}
                (_, Err(errno)) | (Err(errno), _) => {
                    // What is mounted there is an administrator's.
                    if self.opens && is_closed(&errno) && !is_mounted(at, name) {
                        self.missed = Some(Missed::Closed);
                    }
                    note(&mut self.trouble, &self.above, name, errno);
                }
            }
        }
        counted.count(&data)
    }

    /// Goes up and on from there; none at the top, and where there is no way on.
    fn leave(&mut self) -> Option<()> {
        let level = self.above.pop()?;
        let dir = self.dir.as_ref()?;
        let up = dir.fd().and_then(|dir| openat(dir, c"..", LIST, Mode::empty()));
        let on = match up {
            Ok(up) if fstat(&up).is_ok_and(|data| level.is(&data)) => self.go_on(up, level.next),
            _ => self.go_back(level),
        };
        if let Err(errno) = on {
            note(&mut self.trouble, &self.above, c".", errno);
        }
        on.ok()
    }

    /// Goes on where a directory was left.
    fn go_on(&mut self, dir: OwnedFd, next: i64) -> Result<(), Errno> {
        self.dir.insert(Dir::new(dir)?).seek(next)
    }

    /// The tree was moved under the walk: goes down from the top to the directory that was to come next, or
    /// as far as that is still the way.
    fn go_back(&mut self, level: Level) -> Result<(), Errno> {
        self.above.push(level);
        // Whoever moves it again and again does not have the walk go on for ever.
        self.left = self.left.saturating_sub(self.above.len() as u64);
        let mut at = fcntl_dupfd_cloexec(self.top.as_ref().ok_or(Errno::BADF)?, 0)?;
        let mut depth = 0;
        while let (Some(here), Some(below)) = (self.above.get(depth), self.above.get(depth + 1)) {
            match list_directory(at.as_fd(), &here.name, self.opens) {
                Ok(dir) if fstat(&dir).is_ok_and(|data| below.is(&data)) => at = dir,
                _ => {
                    self.missed = Some(Missed::Moved);
                    break;
                }
            }
            depth += 1;
        }
        let next = self.above.get(depth).ok_or(Errno::NOENT)?.next;
        self.above.truncate(depth);
        // A descriptor of its own: the one of the top is where it was read to.
        let dir = openat(&at, c".", LIST, Mode::empty())?;
        self.go_on(dir, next)
    }
}

/// Keeps what the system refused at `name` in the present directory, if it is the first of all.
fn note(first: &mut Option<Trouble>, above: &[Level], name: &CStr, errno: Errno) {
    first.get_or_insert_with(|| {
        let way = above.iter().take(NAMED_MAX).map(|level| level.name.as_c_str());
        let cut = (above.len() > NAMED_MAX).then_some(c"...");
        let names = way.chain(cut).chain([name]);
        Trouble { at: names.map(|name| OsStr::from_bytes(name.to_bytes())).collect(), errno }
    });
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

fn is_closed(errno: &Errno) -> bool {
    matches!(*errno, Errno::ACCESS | Errno::PERM)
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

    /// Walks through `dir` entry by entry, and has `act` happen in between.
    fn disturbed(dir: &Path, mut act: impl FnMut(u32)) -> Walk {
        let (mut walk, mut counted, mut steps) = (Walk::below(dir), Counted::default(), 0);
        while !walk.step(&mut counted, 1) {
            act(steps);
            steps += 1;
        }
        walk
    }

    /// Whether a walk of this process is in a directory.
    fn is_in(dir: &Path) -> bool {
        let mut open = fs::read_dir("/proc/self/fd").unwrap().flatten();
        open.any(|open| fs::read_link(open.path()).is_ok_and(|path| path == dir))
    }

    const TOPS: [&str; 3] = ["a", "b", "c"];

    fn three_trees() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for top in TOPS.map(|top| dir.path().join(top)) {
            fs::create_dir_all(top.join("sub/deep")).unwrap();
            fs::write(top.join("file"), [1; 100_000]).unwrap();
            fs::write(top.join("sub/deep/file"), [1; 1]).unwrap();
        }
        fs::create_dir(dir.path().join("elsewhere")).unwrap();
        dir
    }

    #[test]
    fn r4_1_what_is_moved_while_a_walk_is_in_it_is_counted_and_so_is_the_rest() {
        let dir = three_trees();
        let whole = usage_below(dir.path());
        let mut moved = BTreeSet::new();
        let walk = disturbed(dir.path(), |_| {
            for top in TOPS.into_iter().filter(|top| is_in(&dir.path().join(top).join("sub/deep"))) {
                let to = dir.path().join("elsewhere").join(top);
                fs::rename(dir.path().join(top).join("sub"), to).unwrap();
                moved.insert(top);
            }
        });
        assert!(moved.len() == 3 && walk.missed().is_none(), "{moved:?} {walk:?}");
        assert!(walk.total().blocks >= whole.blocks, "{walk:?} of {whole:?}");
    }

    #[test]
    fn r4_1_a_walk_whose_way_back_is_gone_goes_on_as_far_down_as_it_can_and_says_that_it_missed_something() {
        let (dir, aside) = (three_trees(), tempfile::tempdir().unwrap());
        let mut moved = None;
        let walk = disturbed(dir.path(), |_| {
            let mut tops = TOPS.iter().map(|top| dir.path().join(top));
            if let (None, Some(top)) = (&moved, tops.find(|top| is_in(&top.join("sub/deep")))) {
                // They go different ways.
                fs::rename(top.join("sub/deep"), aside.path().join("deep")).unwrap();
                fs::rename(&top, aside.path().join("top")).unwrap();
                moved = Some(top);
            }
        });
        assert!(moved.is_some() && walk.missed() == Some(Missed::Moved), "{moved:?} {walk:?}");
        assert!(walk.total().blocks.0 >= 200_000, "the two others: {walk:?}");
    }

    #[test]
    fn r4_1_a_walk_that_ends_before_its_tree_does_says_so() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..100 {
            fs::write(dir.path().join(number.to_string()), [1]).unwrap();
        }
        let missed = |most| {
            let mut walk = Walk::below(dir.path()).of_at_most(most);
            while !walk.step(&mut Counted::default(), 7) {}
            walk.missed()
        };
        assert_eq!((missed(50), missed(200)), (Some(Missed::TooMany), None));
    }

    #[test]
    fn r6_10_a_walk_keeps_what_was_refused_first_and_where_and_what_is_gone_by_then_is_nothing() {
        let closed = Walk::of(Err(Errno::MFILE), true);
        let top = closed.trouble().unwrap();
        assert_eq!((top.at.as_path(), top.errno), (Path::new("."), Errno::MFILE));
        let level = |number: usize| Level {
            device: 0,
            inode: 0,
            next: 0,
            name: CString::new(format!("d{number}")).unwrap(),
        };
        let (above, mut first) = ((0..12).map(level).collect::<Vec<_>>(), None);
        note(&mut first, &above[..2], c"file", Errno::IO);
        note(&mut first, &[], c"later", Errno::PERM);
        let first = first.unwrap();
        assert_eq!((first.at.as_path(), first.errno), (Path::new("d0/d1/file"), Errno::IO));
        let mut deep = None;
        note(&mut deep, &above, c"file", Errno::IO);
        assert!(deep.unwrap().at.ends_with("d7/.../file"));
        let dir = three_trees();
        let walk = disturbed(dir.path(), |_| {
            let _ = fs::remove_dir_all(dir.path().join("elsewhere"));
            TOPS.iter().for_each(|top| drop(fs::remove_file(dir.path().join(top).join("file"))));
        });
        assert!(walk.trouble().is_none(), "{walk:?}");
        let own = owner::Owner::own();
        let gone = owner::give_at(walk.top.unwrap().as_fd(), c"gone", Handover { from: own.uid, to: own });
        assert_eq!(gone, Ok(true));
    }
}
