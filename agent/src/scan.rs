//! What the agent and its projects have on the disk: measured by descriptors, in a thread of its own at idle
//! priority (R4.1, R4.12).
//!
//! Model: every directory of a project is listed and each thing in it counted, with all that is in it; so are
//! slots, and what else is in the data directory. What waits to be removed is nobody's, as if others had it.
//! No link is followed, and no depth is too deep, see [`crate::walk`]. What has several names counts once. Of
//! files that nobody knows, so many are named that they can be removed in time, however many a job has made;
//! all of them count. Files and links alone are named: when a directory was changed last says nothing of the
//! files in it, so none is ever an orphan.
//!
//! Not seen: what is mounted below the data directory counts as if it were on its volume.

mod again;
mod known;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use fallow_boinc::names::is_file_name;
use fallow_client::{DiskFound, FileFound, FileKey};
use fallow_domain::{Bytes, Duration, Instant, ProjectId, SlotId};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, open, statat, statvfs};
use rustix::io::Errno;

use crate::brand::{self, Brand};
use crate::dir::{DataDir, PARTIAL};
use crate::nameless::Nameless;
use crate::proc::{self, Process};
use crate::supervise::agent_mark;
use crate::tree::list_directory;
use crate::walk::{Counted, Walk};

pub use again::look_again;
use known::Known;
use work::Work;

/// So many things that nobody knows are named in each project's directory.
const UNKNOWN_MAX: usize = 2_000;
/// So many things are looked at in a directory of a project.
const ENTRIES_MAX: u64 = 5_000_000;

/// Where to look.
#[derive(Debug)]
pub struct Places {
    dir: DataDir,
    projects: Vec<(ProjectId, PathBuf)>,
    known: BTreeMap<ProjectId, BTreeSet<String>>,
}

impl Places {
    /// The data directory `dir` with the directories of these projects, in which these names are known.
    pub const fn new(
        dir: DataDir,
        projects: Vec<(ProjectId, PathBuf)>,
        known: BTreeMap<ProjectId, BTreeSet<String>>,
    ) -> Self {
        Self { dir, projects, known }
    }

    /// Looks.
    ///
    /// # Errors
    /// Why the volume cannot be asked.
    pub fn scan(&self) -> Result<DiskFound, String> {
        self.scan_on(|| Space::of(self.dir.path()))
    }

    /// The same where `ask` asks the volume. The walk may take minutes, in which others write and delete:
    /// what is free at its end counts. Should the walk have counted too much or too little of what changed
    /// meanwhile, then that counts as used and as allowed alike, and what is left beside it stays right. What
    /// came from servers does not: that counts as used by its record, and the engine looks at it once more.
    /// What was free before would be held against files that are needed: a job may have ended since.
    fn scan_on(&self, mut ask: impl FnMut() -> Result<Space, String>) -> Result<DiskFound, String> {
        let work = Work::begin();
        let mut scan = Scan::default();
        for (id, path) in &self.projects {
            let none = BTreeSet::new();
            let total = scan.project(*id, path, self.known.get(id).unwrap_or(&none));
            if scan.is_blind {
                scan.found.unseen.insert(*id);
            }
            scan.found.projects.push((*id, total));
        }
        scan.slots(&self.dir);
        let ours: BTreeSet<&Path> = self.projects.iter().map(|(_, path)| path.as_path()).collect();
        scan.rest(&self.dir, &ours);
        let mut found = scan.found;
        let projects = found.projects.iter().map(|(_, bytes)| *bytes);
        let slots = found.slots.iter().map(|(_, bytes)| *bytes);
        found.ours = projects.chain(slots).fold(found.own, Bytes::plus);
        let Space { size, free } = ask()?;
        (found.size, found.free) = (size, free);
        found.took = work.so_far();
        Ok(found)
    }
}

/// What there is on a volume.
#[derive(Clone, Copy, Debug)]
struct Space {
    size: Bytes,
    free: Bytes,
}

impl Space {
    fn of(path: &Path) -> Result<Self, String> {
        let volume = statvfs(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let of = |blocks: u64| Bytes(blocks.saturating_mul(volume.f_frsize));
        // What is reserved for root is free for nobody here, and used by nobody either.
        let reserved = volume.f_bfree.saturating_sub(volume.f_bavail);
        Ok(Self { size: of(volume.f_blocks.saturating_sub(reserved)), free: of(volume.f_bavail) })
    }
}

/// What an ordinary user may still write to the volume of a directory, if that can be said.
pub fn free(dir: &Path) -> Option<Bytes> {
    Space::of(dir).ok().map(|space| space.free)
}

/// Whether that says that there is nothing. All else says that the disk, or the one behind a network, cannot
/// be read at present.
fn is_absence(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NOTDIR)
}

fn found(key: FileKey, data: &Stat, blocks: Bytes, is_part: bool) -> FileFound {
    let length = Bytes(u64::try_from(data.st_size).unwrap_or(0));
    // What a job cannot set: neither by writing nor by putting it back.
    let changed = Instant::EPOCH + Duration::from_secs(data.st_ctime.cast_signed_or_self());
    FileFound { key, blocks, length, changed, is_part }
}

/// Seconds as the system's headers have them on every machine.
trait Seconds {
    fn cast_signed_or_self(self) -> i64;
}

impl Seconds for i64 {
    fn cast_signed_or_self(self) -> i64 {
        self
    }
}

impl Seconds for u64 {
    fn cast_signed_or_self(self) -> i64 {
        i64::try_from(self).unwrap_or(i64::MAX)
    }
}

/// One look.
#[derive(Debug, Default)]
struct Scan {
    counted: Counted,
    found: DiskFound,
    /// The directory that was listed last could not be read.
    is_blind: bool,
    /// What the tree that was walked through last lies on.
    devices: BTreeSet<u64>,
}

impl Scan {
    /// Lists a project's directory. Gives what it takes in all.
    fn project(&mut self, id: ProjectId, path: &Path, known: &BTreeSet<String>) -> Bytes {
        let (known, mut unknown) = (&Known::new(known), 0);
        self.list(path, |scan, dir, name, data| {
            if name.to_bytes() == PARTIAL.as_bytes() && is_directory(data) {
                let Ok(parts) = list_directory(dir, name, false).and_then(Dir::new) else { return Bytes(0) };
                let own = scan.counted.count(data).blocks;
                let each = |scan: &mut Self, dir: BorrowedFd<'_>, name: &CStr, data: &Stat| {
                    scan.thing(id, (dir, name, data), known, &mut unknown, true)
                };
                return own.plus(scan.each(parts, each).0);
            }
            scan.thing(id, (dir, name, data), known, &mut unknown, false)
        })
    }

    /// Counts something in a project's directory, and names it.
    fn thing(
        &mut self,
        project: ProjectId,
        (dir, name, data): (BorrowedFd<'_>, &CStr, &Stat),
        known: &Known<'_>,
        unknown: &mut usize,
        is_part: bool,
    ) -> Bytes {
        let blocks = self.whole((dir, name, data), false);
        let Ok(name) = name.to_str() else { return blocks };
        // A file that comes compressed lies there under other names until it is expanded.
        let packed = Some(name).filter(|_| is_part).and_then(|name| known.unpacked(name));
        // What else the agent itself makes there under names of its own is none of the project's.
        if is_part && packed.is_none() && name.starts_with('%') {
            return blocks;
        }
        let name = packed.unwrap_or(name);
        let is_known = known.contains(name);
        let kind = FileType::from_raw_mode(data.st_mode);
        if !matches!(kind, FileType::RegularFile | FileType::Symlink) {
            return blocks;
        }
        if is_file_name(name) && (is_known || *unknown < UNKNOWN_MAX) {
            *unknown += usize::from(!is_known);
            let key = FileKey { project, name: name.to_owned() };
            self.found.files.push(found(key, data, blocks, is_part));
        }
        blocks
    }

    /// Lists slots. What has no name and is open there belongs to its task's slot as well: by the number that
    /// all processes of the task have.
    fn slots(&mut self, data_dir: &DataDir) {
        let path = &*data_dir.slots();
        let mut slots = Vec::new();
        let numbers = Brand::of_agent(&agent_mark(data_dir));
        let mut processes: BTreeMap<u32, Vec<Process>> = BTreeMap::new();
        for (number, its) in brand::sorted(&proc::all()) {
            if numbers.covers(number) {
                processes.entry(Brand::slot(number)).or_default().extend(its);
            }
        }
        let mut own = Bytes(0);
        self.list(path, |scan, dir, name, data| {
            let number = name.to_str().ok().and_then(|name| name.parse::<u32>().ok());
            let number = number.filter(|_| is_directory(data));
            let mut blocks = scan.whole((dir, name, data), number.is_some());
            match number {
                Some(number) => {
                    let its = processes.get(&number).map_or(&[][..], Vec::as_slice);
                    let devices = scan.devices.iter().copied().chain([data.st_dev]).collect();
                    blocks = blocks.plus(Nameless::of(its, &devices, data_dir.path()).usage().blocks);
                    slots.push((SlotId(number), blocks));
                }
                None => own = own.plus(blocks),
            }
            blocks
        });
        self.found.slots = slots;
        self.found.own = self.found.own.plus(own);
    }

    /// What is neither of a project that is known nor in a slot.
    fn rest(&mut self, dir: &DataDir, projects: &BTreeSet<&Path>) {
        let (at, slots, trash) = (dir.projects(), dir.slots(), dir.trash());
        let besides = [at.clone(), slots];
        let mut gone = Bytes(0);
        let own = self.list(dir.path(), |scan, parent, name, data| {
            let path = dir.path().join(os(name));
            if besides.contains(&path) {
                return Bytes(0);
            }
            let takes = scan.whole((parent, name, data), path == trash.path());
            if path != trash.path() {
                return takes;
            }
            gone = takes;
            Bytes(0)
        });
        self.found.trash = gone;
        let forsaken = self.list(&at, |scan, parent, name, data| {
            let path = at.join(os(name));
            if projects.contains(path.as_path()) { Bytes(0) } else { scan.whole((parent, name, data), false) }
        });
        self.found.own = self.found.own.plus(own).plus(forsaken);
    }

    /// What something takes with all that is in it. Of a job (`opens`) also what it closed; whatever else is
    /// closed stays so, for it may be an administrator's.
    fn whole(&mut self, (dir, name, data): (BorrowedFd<'_>, &CStr, &Stat), opens: bool) -> Bytes {
        let own = self.counted.count(data).blocks;
        if !is_directory(data) {
            return own;
        }
        let mut walk = Walk::below_at(dir, name, opens);
        while !walk.step(&mut self.counted, u64::MAX) {}
        self.devices.clone_from(walk.devices());
        own.plus(walk.total().blocks)
    }

    /// Adds up what `count` says of each thing in a directory. The directory itself may be a link that an
    /// administrator made.
    fn list(
        &mut self,
        path: &Path,
        count: impl FnMut(&mut Self, BorrowedFd<'_>, &CStr, &Stat) -> Bytes,
    ) -> Bytes {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let (total, is_blind) = match open(path, flags, Mode::empty()).and_then(Dir::new) {
            Ok(dir) => self.each(dir, count),
            Err(errno) => (Bytes(0), !is_absence(errno)),
        };
        self.is_blind = is_blind;
        total
    }

    /// Says beside that whether it could not be read to its end.
    fn each(
        &mut self,
        mut dir: Dir,
        mut count: impl FnMut(&mut Self, BorrowedFd<'_>, &CStr, &Stat) -> Bytes,
    ) -> (Bytes, bool) {
        let mut total = Bytes(0);
        for _ in 0..ENTRIES_MAX {
            let entry = match dir.read() {
                Some(Ok(entry)) => entry,
                Some(Err(_)) => return (total, true),
                None => break,
            };
            if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                continue;
            }
            let Ok(at) = dir.fd() else { break };
            if let Ok(data) = statat(at, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                total = total.plus(count(self, at.as_fd(), entry.file_name(), &data));
            }
        }
        (total, false)
    }
}

fn os(name: &CStr) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(name.to_bytes())
}

fn is_directory(data: &Stat) -> bool {
    FileType::from_raw_mode(data.st_mode) == FileType::Directory
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;
    use crate::sys;

    /// How many random trees, and from which seed on: `FALLOW_SCANS=5000 FALLOW_SCAN_SEED=1`.
    const TREES: u64 = 200;

    fn number(variable: &str, otherwise: u64) -> u64 {
        std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
    }

    /// Draws.
    struct Draws(u64);

    impl Draws {
        fn below(&mut self, most: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % most
        }
    }

    /// The blocks of all that is below a directory, each inode once, by the standard library.
    fn blocks_below(dir: &Path, seen: &mut BTreeSet<u64>) -> u64 {
        let mut total = 0;
        for entry in fs::read_dir(dir).unwrap().flatten() {
            let data = entry.path().symlink_metadata().unwrap();
            if data.is_dir() {
                total += (data.blocks() * 512).max(4096) + blocks_below(&entry.path(), seen);
            } else if seen.insert(data.ino()) {
                total += data.blocks() * 512;
            }
        }
        total
    }

    /// A data directory with two projects, slots, a store and things that jobs leave: holes, links, parts,
    /// trees. Returns the names that are known.
    fn grow(
        dir: &DataDir,
        projects: &[PathBuf; 2],
        draws: &mut Draws,
    ) -> BTreeMap<ProjectId, BTreeSet<String>> {
        for path in projects {
            fs::create_dir_all(path.join(PARTIAL)).unwrap();
        }
        for path in [dir.slots(), dir.store(), dir.trash().path().to_path_buf()] {
            fs::create_dir_all(path).unwrap();
        }
        let mut known: BTreeMap<ProjectId, BTreeSet<String>> = BTreeMap::new();
        for number in 0..draws.below(40) {
            let project = usize::from(draws.below(2) == 1);
            let slot = dir.slot(SlotId(u32::try_from(draws.below(3)).unwrap()));
            let place = match draws.below(6) {
                0 => projects[project].join(PARTIAL),
                1 => slot.join("deep/er"),
                2 => dir.store(),
                3 => dir.projects().join("foreign"),
                _ => projects[project].clone(),
            };
            fs::create_dir_all(&place).unwrap();
            let path = place.join(format!("f{number}"));
            match draws.below(5) {
                0 => fs::File::create(&path).unwrap().set_len(draws.below(1 << 40)).unwrap(),
                1 => {
                    fs::create_dir_all(&slot).unwrap();
                    fs::write(&path, vec![1; 5_000]).unwrap();
                    fs::hard_link(&path, slot.join(format!("l{number}"))).unwrap();
                }
                2 => std::os::unix::fs::symlink("/usr", &path).unwrap(),
                3 => {
                    fs::create_dir_all(path.join("a/b")).unwrap();
                    fs::write(path.join("a/b/c"), vec![1; 100]).unwrap();
                }
                _ => fs::write(&path, vec![1; usize::try_from(draws.below(30_000)).unwrap()]).unwrap(),
            }
            if draws.below(2) == 0 {
                let id = ProjectId(u32::try_from(project).unwrap());
                known.entry(id).or_default().insert(format!("f{number}"));
            }
        }
        known
    }

    fn tree(seed: u64) {
        let place = tempfile::tempdir().unwrap();
        let dir = DataDir::at(place.path());
        let projects = ["one", "two"].map(|name| dir.projects().join(name));
        let known = grow(&dir, &projects, &mut Draws(seed));
        let ids = [ProjectId(0), ProjectId(1)];
        let places = ids.into_iter().zip(projects.clone()).collect();
        let found = Places::new(dir.clone(), places, known).scan().unwrap();
        // What is there all in all, but for the two directories that the parts lie in.
        let tops = [dir.projects(), dir.slots()];
        let own = |path: &PathBuf| (path.symlink_metadata().unwrap().blocks() * 512).max(4096);
        let listed: u64 = tops.iter().chain(&projects).map(own).sum();
        let expected = blocks_below(place.path(), &mut BTreeSet::new()) - listed;
        assert_eq!(found.ours.plus(found.trash), Bytes(expected), "{found:?}");
        for file in &found.files {
            let project = &projects[file.key.project.0 as usize];
            let place = if file.is_part { project.join(PARTIAL) } else { project.clone() };
            let data = place.join(&file.key.name).symlink_metadata().unwrap();
            assert_eq!(file.length, Bytes(data.len()), "{file:?}");
            assert_eq!(file.changed, Instant::EPOCH + Duration::from_secs(data.ctime()));
        }
        let is_file = |entry: &fs::DirEntry| !entry.file_type().unwrap().is_dir();
        let listed = |path: &PathBuf| fs::read_dir(path).unwrap().flatten().filter(is_file).count();
        let names = projects.iter().map(|path| listed(path) + listed(&path.join(PARTIAL))).sum::<usize>();
        assert_eq!(found.files.len(), names);
    }

    #[test]
    fn r4_1_what_a_look_finds_is_what_is_there_in_random_trees() {
        let (first, count) = (number("FALLOW_SCAN_SEED", 1), number("FALLOW_SCANS", TREES));
        for seed in first..first + count {
            if let Err(why) = std::panic::catch_unwind(|| tree(seed)) {
                println!(
                    "replay: FALLOW_SCAN_SEED={seed} FALLOW_SCANS=1 cargo test -p fallow-agent r4_1_what_a_look"
                );
                std::panic::resume_unwind(why);
            }
        }
    }

    #[test]
    fn r4_1_however_many_files_nobody_knows_all_count_and_those_that_are_known_are_named() {
        let place = tempfile::tempdir().unwrap();
        let dir = DataDir::at(place.path());
        let project = dir.projects().join("one");
        fs::create_dir_all(&project).unwrap();
        for number in 0..3_000 {
            fs::write(project.join(format!("{number:05}")), [1; 10]).unwrap();
        }
        let known = (0..3_000).filter(|number| number % 10 == 0).map(|number| format!("{number:05}"));
        let known = BTreeMap::from([(ProjectId(0), known.collect())]);
        let found = Places::new(dir, vec![(ProjectId(0), project)], known).scan().unwrap();
        assert!(found.projects[0].1.0 >= 3_000 * 4096, "{:?}", found.projects);
        assert_eq!(found.files.len(), 300 + UNKNOWN_MAX);
    }

    #[test]
    fn r4_1_what_a_task_holds_open_without_a_name_counts_as_if_it_were_in_its_slot() {
        use std::io::Read as _;
        use std::process::{Command, Stdio};
        let place = tempfile::tempdir().unwrap();
        let dir = DataDir::at(place.path());
        let slot = dir.slot(SlotId(3));
        fs::create_dir_all(&slot).unwrap();
        // As the supervisor has it.
        let brand = Brand::of_life(&crate::supervise::life_mark(&dir, "life")).of_slot(3);
        let mut command = Command::new("/bin/sh");
        let hides = "exec 3> gone; rm gone; head -c 3000000 /dev/zero >&3; echo ready; read end";
        command.args(["-c", hides]).current_dir(slot).stdin(Stdio::piped()).stdout(Stdio::piped());
        sys::limit(&mut command, sys::Limits { brand: brand.value(), ..sys::Limits::default() });
        let mut task = command.spawn().unwrap();
        task.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
        let found = Places::new(dir, Vec::new(), BTreeMap::new()).scan();
        drop(task.stdin.take());
        task.wait().unwrap();
        let found = found.unwrap();
        assert!(found.slots[0].1.0 >= 3_000_000 && found.ours >= found.slots[0].1, "{found:?}");
    }

    #[test]
    fn r4_2_what_waits_to_be_removed_is_nobodys_and_leaves_projects_what_they_may_have() {
        let place = tempfile::tempdir().unwrap();
        let dir = DataDir::at(place.path());
        fs::create_dir_all(dir.store()).unwrap();
        fs::write(dir.store().join("state"), vec![1; 10_000]).unwrap();
        let before = Places::new(dir.clone(), Vec::new(), BTreeMap::new()).scan().unwrap();
        let left = dir.trash().path().join("1.0/deep");
        fs::create_dir_all(&left).unwrap();
        fs::write(left.join("file"), vec![1; 1 << 20]).unwrap();
        let found = Places::new(dir, Vec::new(), BTreeMap::new()).scan().unwrap();
        assert_eq!((found.own, found.ours), (before.own, before.ours));
        assert!(found.own.0 >= 10_000 && found.trash.0 > 1 << 20 && before.trash == Bytes(0), "{found:?}");
    }

    #[test]
    fn r4_12_a_directory_that_nobody_knows_counts_and_is_no_file_without_an_owner() {
        let place = tempfile::tempdir().unwrap();
        let dir = DataDir::at(place.path());
        let project = dir.projects().join("one");
        // An owner's own directory, in which files change while its own time stays, and one among the parts.
        for sub in [project.join("data/deep"), project.join(PARTIAL).join("data")] {
            fs::create_dir_all(&sub).unwrap();
            fs::write(sub.join("file"), vec![1; 1 << 20]).unwrap();
        }
        fs::write(project.join("stray"), [1]).unwrap();
        std::os::unix::fs::symlink("/usr", project.join("link")).unwrap();
        let _listening = std::os::unix::net::UnixListener::bind(project.join("socket")).unwrap();
        let found = Places::new(dir, vec![(ProjectId(0), project)], BTreeMap::new()).scan().unwrap();
        let mut named: Vec<&str> = found.files.iter().map(|file| file.key.name.as_str()).collect();
        named.sort_unstable();
        assert_eq!(named, ["link", "stray"]);
        assert!(found.projects[0].1.0 >= 2 << 20, "{:?}", found.projects);
    }

    #[test]
    fn r4_12_what_cannot_be_read_is_not_said_to_be_gone() {
        let place = tempfile::tempdir().unwrap();
        let dir = DataDir::at(place.path());
        // A loop is what nobody can open, root neither.
        let [absent, looped] = ["absent", "looped"].map(|name| dir.projects().join(name));
        fs::create_dir_all(dir.projects()).unwrap();
        std::os::unix::fs::symlink("looped", &looped).unwrap();
        let key = |project| FileKey { project: ProjectId(project), name: "f".to_owned() };
        assert_eq!(look_again(&absent, &key(0)), Ok(Vec::new()));
        assert_eq!(look_again(&looped, &key(1)), Err(Errno::LOOP));
        let places = vec![(ProjectId(0), absent), (ProjectId(1), looped)];
        let found = Places::new(dir, places, BTreeMap::new()).scan().unwrap();
        assert_eq!(found.unseen, BTreeSet::from([ProjectId(1)]));
    }

    #[test]
    fn r4_1_free_is_what_is_left_at_the_end_of_a_look() {
        let place = tempfile::tempdir().unwrap();
        let places = Places::new(DataDir::at(place.path()), Vec::new(), BTreeMap::new());
        let mut asked = 0;
        let mut ask = || {
            asked += 1;
            Ok(Space { size: Bytes(1_000), free: Bytes(100) })
        };
        assert_eq!((places.scan_on(&mut ask).unwrap().free, asked), (Bytes(100), 1));
    }

    #[test]
    fn r4_1_a_look_opens_up_what_a_job_closed_and_changes_nothing_else() {
        use std::os::unix::fs::PermissionsExt as _;
        let place = tempfile::tempdir().unwrap();
        let dir = DataDir::at(place.path());
        let project = dir.projects().join("one");
        let slot = dir.slot(SlotId(0)).join("closed");
        let foreign = dir.projects().join("foreign");
        let others = [foreign.clone(), foreign.join("deep"), project.join("data"), project.join(PARTIAL)];
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        others.iter().chain([&slot]).for_each(|path| fs::create_dir_all(path).unwrap());
        fs::write(slot.join("file"), vec![1; 1 << 20]).unwrap();
        others.iter().for_each(|path| set(path, 0o500));
        set(&slot, 0);
        let found = Places::new(dir, vec![(ProjectId(0), project)], BTreeMap::new()).scan().unwrap();
        assert!(found.slots[0].1.0 >= 1 << 20 && mode(&slot) == 0o700, "{found:?}");
        assert!(others.iter().all(|path| mode(path) == 0o500));
        set(&foreign, 0o700);
    }
}
