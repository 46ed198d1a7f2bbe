//! The users that jobs of a root agent run as: one for each slot, who owns nothing else (R6.10).
//!
//! Model: numbers that no user of a system has. Systemd, containers and most directories of companies, which
//! give numbers out in bulk, end below the first or begin above the last; some (Kanidm) do not, and then an
//! administrator has to see to it. Each agent has a block of them,
//! chosen by its directory's place; the group of that directory says later which it was. In a block come
//! first the group by which jobs pass through the agent's directories, then a user and a group for each slot,
//! then a group for each project, by which its own jobs alone read its files.
//!
//! No two agents of a host have one block, for each ends whatever runs as a user of its slots: an agent holds
//! its block's lock in `/run/fallow-agent-users` as long as it runs, and takes no block in which another's
//! jobs run, also those of a container, which has no such lock. So a copy of a directory comes to another
//! block than the original. Beside the lock stands who had the block last, and how many slots' users it has
//! used: what runs as one of these is that agent's, also if nothing else tells so any more. Somebody may have
//! a number of the same block all the same: what runs as another user is not ended, and nor is what runs in a
//! container.
//!
//! How files come to these users is in [`crate::owner`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fallow_daemon::file;
use fallow_daemon::file_lock::{FileLock, LockError};
use fallow_domain::printable::shell_path;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, chmod, chownat, fstat, open};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use crate::brand::Brand;
use crate::dir::{DataDir, write_atomically};
use crate::files;
use crate::owner::{BLOCK, BLOCKS, FIRST, Handover, JobUser, Owner, block_of, in_proc, is_jobs};
use crate::proc;
use crate::sys;
use crate::tree;
use crate::walk::{Counted, Missed, Trouble, Walk};

/// Where in a block the groups of projects begin.
const PROJECTS: u32 = BLOCK / 2;

/// Where agents say which blocks are theirs while they run.
const HELD: &str = "/run/fallow-agent-users";

/// So many blocks are looked at for one that is nobody else's.
const LOOKED_AT: u32 = 16;

/// For so long the guard of an agent that is gone may hold its block: it kills, and waits until that is done.
const GUARD_MAX: Duration = Duration::from_secs(6);

/// What says who had a block last is no longer: a path and some numbers.
const HOLDER_MAX: u64 = 64 * 1024;

/// What is made in the directories of jobs to try them.
const TRIAL: &str = ".trial";

/// What the agent has to be able to do with processes and files that are not its user's.
const NEEDED: [(CapabilitySet, &str); 7] = [
    (CapabilitySet::CHOWN, "CHOWN"),
    (CapabilitySet::DAC_OVERRIDE, "DAC_OVERRIDE"),
    (CapabilitySet::FOWNER, "FOWNER"),
    (CapabilitySet::KILL, "KILL"),
    (CapabilitySet::SETGID, "SETGID"),
    (CapabilitySet::SETUID, "SETUID"),
    (CapabilitySet::SYS_PTRACE, "SYS_PTRACE"),
];

/// The users of one agent's jobs. Clones are the same.
#[derive(Clone, Debug)]
pub struct Users {
    first: u32,
    /// The groups of projects are given out one at a time.
    giving: Arc<Mutex<()>>,
    /// How many slots, from the first on, have had their users used.
    used: Arc<Mutex<u32>>,
    /// What tells this agent from others, and the system's start.
    mark: Arc<str>,
    /// Nobody else on this host has them.
    _held: Arc<FileLock>,
}

impl Users {
    /// Looks whether this system has them, for an agent whose data lies in `dir`.
    ///
    /// # Errors
    /// Why not.
    pub fn probe(dir: &Path) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("the agent is not root's, so its jobs run as its own user".into());
        }
        let has = rustix::thread::capabilities(None).map_err(|error| error.to_string())?.effective;
        if let Some((_, name)) = NEEDED.iter().find(|(needed, _)| !has.contains(*needed)) {
            return Err(format!("the agent lacks the capability {name}"));
        }
        let mark = DataDir::at(dir).mark();
        let dir = fs::canonicalize(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        way(&dir)?;
        let running = not_marked(&mark);
        let mark = format!("{} {mark}", fallow_daemon::proc::boot().unwrap_or_default());
        let Taken { first, used, held } = take_block(block(&dir)?, &running, &mark)?;
        // The group of the block is no job's user: nobody is there who could do anything to the attempt.
        let user = Owner::numbered(first);
        sys::as_user(JobUser { owner: user, groups: Vec::new() }, || Ok(()))
            .map_err(|error| format!("users such as {first} cannot be had here: {error}"))?;
        Trial::make(&dir, user)
            .and_then(Trial::run)
            .map_err(|error| format!("jobs of other users cannot work in {}: {error}", dir.display()))?;
        let (used, mark) = (Arc::new(Mutex::new(used)), mark.into());
        Ok(Self { first, giving: Arc::default(), used, mark, _held: Arc::new(held) })
    }

    /// The user of a slot, who is known from now on to be this agent's.
    ///
    /// # Errors
    /// There are more slots than users, or it cannot be written that this one is used.
    pub fn of_slot(&self, slot: u32) -> io::Result<Owner> {
        let number = slot.checked_add(1).filter(|number| *number < PROJECTS);
        let number = number.ok_or_else(|| io::Error::other(format!("there is no user for slot {slot}")))?;
        let mut used = fallow_daemon::lock(&self.used);
        if *used < number {
            write_holder(self.first, number, &self.mark)?;
            *used = number;
        }
        Ok(Owner::numbered(self.first + number))
    }

    /// The first user, for those who want to know.
    pub(crate) const fn first(&self) -> u32 {
        self.first + 1
    }

    /// The block, as the number that it begins with.
    pub const fn block(&self) -> u32 {
        self.first
    }

    /// The users of all slots that have ever been used.
    pub fn of_slots(&self) -> Range<u32> {
        of_slots(self.first, *fallow_daemon::lock(&self.used))
    }

    /// A user that no job has, and who may pass through the agent's directory as jobs do: nobody is there who
    /// could do anything to an attempt that is made as this one.
    pub(crate) fn nobody(&self, dir: &Path) -> JobUser {
        let group = fs::metadata(dir).ok().map(|data| data.gid()).filter(|group| is_jobs(*group));
        JobUser { owner: Owner::numbered(self.first), groups: group.map(Gid::from_raw).into_iter().collect() }
    }

    /// The group that may pass through the agent's directories, and list none of them.
    pub(crate) fn passing(&self) -> Gid {
        Gid::from_raw(self.first)
    }

    /// Lets jobs pass through a directory of the agent's own, and nobody else.
    pub(crate) fn let_pass(&self, dir: &Path) -> io::Result<()> {
        grant(dir, self.passing(), Mode::XGRP)
    }

    /// Lets the jobs of a project, and nobody else's, read its directory. Gives the group by which they do.
    pub(crate) fn let_read(&self, project: &Path) -> io::Result<Gid> {
        let _one_at_a_time = fallow_daemon::lock(&self.giving);
        let groups = self.of_projects();
        let mut taken: BTreeMap<u32, BTreeSet<std::ffi::OsString>> = BTreeMap::new();
        let all = project.parent().ok_or(io::ErrorKind::InvalidInput)?;
        for entry in fs::read_dir(all)?.flatten() {
            if let Ok(data) = fs::metadata(entry.path()) {
                taken.entry(data.gid()).or_default().insert(entry.file_name());
            }
        }
        let now = fs::metadata(project)?.gid();
        let is_its = groups.contains(&now) && taken.get(&now).is_none_or(|names| names.len() == 1);
        let free = || groups.clone().find(|group| !taken.contains_key(group));
        let group = if is_its { Some(now) } else { free() };
        let group = Gid::from_raw(group.ok_or_else(|| io::Error::other("there are too many projects"))?);
        grant(project, group, Mode::RGRP | Mode::XGRP)?;
        Ok(group)
    }
}

impl Users {
    fn of_projects(&self) -> std::ops::Range<u32> {
        self.first + PROJECTS..self.first + BLOCK
    }

    /// Closes the directories of projects to the jobs of others, also of those that no job has begun of.
    pub(crate) fn close_projects(&self, projects: &Path) {
        let own = rustix::process::geteuid().as_raw();
        for entry in fs::read_dir(projects).into_iter().flatten().flatten() {
            let Ok(data) = entry.metadata() else { continue };
            if data.is_dir() && data.uid() == own {
                let is_anothers = is_jobs(data.gid()) && !self.of_projects().contains(&data.gid());
                // What is another's way in is none of these jobs'.
                let _ = file::close(&entry.path(), if is_anothers { 0o077 } else { 0o027 });
            }
        }
    }
}

/// Lets jobs read a file of their project, which only those come to who may; none but the agent writes it.
/// What is not the agent's alone stays as it is.
pub(crate) fn let_read(file: &fs::File) -> io::Result<()> {
    let data = file.metadata()?;
    if data.uid() != rustix::process::geteuid().as_raw() || data.nlink() != 1 {
        return Ok(());
    }
    let mode = data.mode() & 0o777;
    let executes = if mode & 0o100 == 0 { 0 } else { 0o111 };
    let wanted = (mode | 0o444 | executes) & !0o022;
    if wanted != mode { file.set_permissions(fs::Permissions::from_mode(wanted)) } else { Ok(()) }
}

/// Gives all of a slot to a user: its directory, which is open, and what lies below it. Nothing runs in it.
/// What is not whose the slot is or is mounted there stays as it is, as does what has other names and was the
/// agent's own.
///
/// # Errors
/// `FileTooLarge` where there are more files than are counted, or one that was not the agent's own has
/// other names, so that it cannot be given: the job could not go on with it. Else the system's, of the first
/// thing that could not be given: then the slot is not given either, and the next call gives the rest.
pub(crate) fn hand_over(slot: &OwnedFd, owner: Owner) -> io::Result<()> {
    let handover = Handover { from: Uid::from_raw(fstat(slot)?.st_uid), to: owner };
    let was_a_jobs = handover.from != Owner::own().uid;
    let mut walk = Walk::below_at(slot.as_fd(), c".", true).giving(handover);
    let mut counted = Counted::default();
    while !walk.step(&mut counted, u64::MAX) {}
    check_given(&walk, was_a_jobs)?;
    // At last: who is interrupted does it once more.
    owner.give(slot)?;
    owner.check(slot)
}

/// Sees to it that a walk that is over has given all that it was to give.
fn check_given(walk: &Walk, was_a_jobs: bool) -> io::Result<()> {
    let never = |why: &str| Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    if walk.missed() == Some(Missed::TooMany) {
        return never("it holds more files than can be given to its job's user");
    }
    if walk.keeps() && was_a_jobs {
        return never("it holds a file that has other names, and was another user's");
    }
    match (walk.trouble(), walk.missed()) {
        (Some(trouble), _) => Err(not_given(trouble)),
        (None, Some(Missed::Moved)) => Err(io::Error::other("a part of it was moved while it was given")),
        (None, _) => Ok(()),
    }
}

/// What is said where something in a slot could not be given. Another try may do it.
fn not_given(Trouble { at, errno }: &Trouble) -> io::Error {
    let help = match *errno {
        Errno::PERM | Errno::ACCESS => "see what forbids it to root, such as attributes (lsattr, chattr -ia)",
        Errno::ROFS => "mount its volume for writing",
        Errno::NOSPC | Errno::DQUOT => "make room on its volume, or in the quota of its job's user",
        Errno::MFILE | Errno::NFILE => "raise the limit of open files",
        _ => "see what the system's log says of its volume",
    };
    io::Error::other(format!("{} stays as it is: {errno}: {help}", files::shown_path(at)))
}

/// Gives a group rights to a directory of the agent's, and all others none.
fn grant(dir: &Path, group: Gid, rights: Mode) -> io::Result<()> {
    let open = open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let data = fstat(&open)?;
    if data.st_uid != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("it is another user's"));
    }
    let now = Mode::from_raw_mode(data.st_mode & 0o777);
    let wanted = now.difference(Mode::RWXG | Mode::RWXO).union(Mode::RWXU | rights);
    if data.st_gid != group.as_raw() {
        // First nobody, then others than before.
        chmod(in_proc(open.as_fd()), wanted.difference(Mode::RWXG))?;
        chownat(&open, c"", None, Some(group), AtFlags::EMPTY_PATH)?;
        chmod(in_proc(open.as_fd()), wanted)?;
    } else if now != wanted {
        chmod(in_proc(open.as_fd()), wanted)?;
    }
    Ok(())
}

/// The block of the agent in `dir`: the one that it had, or one by the directory's place.
fn block(dir: &Path) -> Result<u32, String> {
    let data = fs::metadata(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let group = data.gid();
    if is_jobs(group) && (group - FIRST).is_multiple_of(BLOCK) {
        return Ok(group);
    }
    if group != rustix::process::getegid().as_raw() && group != 0 {
        let (dir, own) = (dir.display(), rustix::process::getegid().as_raw());
        return Err(format!("{dir} is opened to the group {group}: give it to the group {own} (chgrp)"));
    }
    // The multiplier is that of Fibonacci hashing: places that are near each other come to distant blocks.
    let place = (data.dev() ^ data.ino().rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = u32::try_from(place >> 51).unwrap_or_default();
    Ok(FIRST + number % BLOCKS * BLOCK)
}

/// Looks whether other users can come to `dir` at all, and whether what lies in it is the agent's own.
fn way(dir: &Path) -> Result<(), String> {
    for above in dir.ancestors().skip(1) {
        let is_open = fs::metadata(above).is_ok_and(|data| data.mode() & 0o001 != 0);
        if !is_open {
            let (dir, word, above) = (dir.display(), shell_path(above), above.display());
            return Err(format!("{above} is closed to other users (chmod o+x {word}), and {dir} lies in it"));
        }
    }
    for sub in [crate::dir::PROJECTS, crate::dir::SLOTS].map(|name| dir.join(name)) {
        if sub.symlink_metadata().is_ok_and(|data| !data.is_dir() || data.uid() != Owner::own().uid.as_raw())
        {
            return Err(format!("{} is not the agent's own directory", sub.display()));
        }
    }
    Ok(())
}

/// A block that was taken.
struct Taken {
    first: u32,
    /// How many slots' users this agent has used of it before.
    used: u32,
    held: FileLock,
}

/// The first block from the wished one on that nobody else has, for the agent with this mark.
fn take_block(wished: u32, running: &[Running], mark: &str) -> Result<Taken, String> {
    let cannot = |error: io::Error| {
        format!("{HELD}, by which agents keep from each other's users, cannot be written: {error}")
    };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(HELD).map_err(cannot)?;
    let number = (wished - FIRST) / BLOCK;
    'blocks: for first in (0..LOOKED_AT).map(|next| FIRST + (number + next) % BLOCKS * BLOCK) {
        let before = holder(first).filter(|holder| holder.mark == mark).map(|holder| holder.used);
        let give_up = Instant::now() + if before.is_some() { GUARD_MAX } else { Duration::ZERO };
        let held = loop {
            match FileLock::take(&lock_of(first)) {
                Ok(held) => break held,
                // It may be the guard of this agent's last life.
                Err(LockError::InUse(_)) if Instant::now() < give_up => {}
                Err(LockError::InUse(_)) => continue 'blocks,
                Err(LockError::Io(error)) => return Err(cannot(error)),
            }
        };
        // What runs there is left of this agent's own jobs, whatever they have done not to be known.
        let used = before.unwrap_or(0);
        let is_others = |one: &Running| {
            block_of(one.user) == first && (one.is_in_container || !of_slots(first, used).contains(&one.user))
        };
        if !running.iter().any(is_others) {
            write_holder(first, used, mark).map_err(cannot)?;
            return Ok(Taken { first, used, held });
        }
        // This agent comes to other users, and nobody would know later what its jobs have left here.
        if used > 0
            && let Err(error) = proc::end_of_users(&of_slots(first, used))
        {
            tracing::error!(%error, "what an earlier life of the agent left is there still");
        }
    }
    Err(format!("other agents have all users from {wished} on (see {HELD})"))
}

fn lock_of(first: u32) -> PathBuf {
    Path::new(HELD).join(first.to_string())
}

/// Where it stands who had a block last.
fn holder_of(first: u32) -> PathBuf {
    Path::new(HELD).join(format!("{first}.agent"))
}

/// Who had a block last.
struct Holder {
    /// How many slots' users it has used.
    used: u32,
    /// The system's start, and the mark of the agent.
    mark: String,
}

/// None where nobody had the block, or nothing can be said about that.
fn holder(first: u32) -> Option<Holder> {
    let text = String::from_utf8(files::whole(&holder_of(first), HOLDER_MAX).ok()?).ok()?;
    let (used, mark) = text.split_once(' ')?;
    Some(Holder { used: used.parse().ok()?, mark: mark.to_owned() })
}

fn write_holder(first: u32, used: u32, mark: &str) -> io::Result<()> {
    write_atomically(&holder_of(first), format!("{used} {mark}").as_bytes(), 0o600)
}

/// The users of so many slots in a block.
fn of_slots(first: u32, used: u32) -> Range<u32> {
    first + 1..first + 1 + used.min(PROJECTS - 1)
}

/// Ends what runs as users of slots that were used in a block whose agent is gone. Nothing, where an agent
/// has the block again: that one has seen to it.
pub fn end_left(first: u32) {
    if !is_jobs(first) || block_of(first) != first {
        return;
    }
    if let Ok(_held) = FileLock::take(&lock_of(first))
        && let Some(holder) = holder(first)
    {
        // What cannot be killed nobody can.
        let _ = proc::end_of_users(&of_slots(first, holder.used));
    }
}

/// Ends what runs as the user that a slot belonged to before, in another block.
///
/// # Errors
/// It cannot be ended, or may be a job of another agent, which has that block.
pub(crate) fn end_former(former: Owner) -> io::Result<()> {
    let uid = former.uid.as_raw();
    let is_gone = || proc::of_users(&proc::all(), &proc::only(former.uid)).is_empty();
    if is_gone() {
        return Ok(());
    }
    if let Ok(_held) = FileLock::take(&lock_of(block_of(uid))) {
        proc::end_of_users(&proc::only(former.uid))?;
        // Those of a container are there still.
        if is_gone() {
            return Ok(());
        }
    }
    Err(io::Error::other(format!("processes of the user {uid}, whose it was, are not this agent's")))
}

/// A process that runs as a user of jobs.
#[derive(Clone, Copy)]
struct Running {
    user: u32,
    is_in_container: bool,
}

/// What runs as users of jobs, and has no mark of the agent with this one here.
fn not_marked(mark: &str) -> Vec<Running> {
    let brand = Brand::of_agent(mark);
    let users = |process: &proc::Process| -> Vec<u32> {
        proc::users(process.pid).into_iter().filter(|id| is_jobs(*id)).collect()
    };
    let all = proc::all().into_iter().filter(|process| !process.zombie);
    let jobs: Vec<(proc::Process, Vec<u32>)> =
        all.map(|process| (process, users(&process))).filter(|(_, users)| !users.is_empty()).collect();
    let own: BTreeSet<u32> = proc::marked(jobs.iter().map(|(process, _)| *process), mark)
        .into_iter()
        .map(|process| process.pid)
        .collect();
    let others = jobs.iter().filter(|(process, _)| !own.contains(&process.pid) && !brand.is_on(process));
    let each = |(process, users): &(proc::Process, Vec<u32>)| {
        let is_in_container = proc::is_in_container(process.pid);
        users.iter().map(|&user| Running { user, is_in_container }).collect::<Vec<_>>()
    };
    others.flat_map(each).collect()
}

/// An attempt at all that jobs and the agent do with each other's files, where they do it: a volume may know
/// no users, or let root do nothing, and rights may be given that no mode says.
struct Trial {
    user: JobUser,
    /// In the directory of slots, and in that of projects.
    slot: PathBuf,
    project: PathBuf,
    /// Directories that were not there.
    made: Vec<PathBuf>,
    /// Whose group the others had, and with which mode.
    before: Vec<(PathBuf, u32, u32)>,
}

impl Trial {
    /// Lets jobs pass through the agent's directory and those in it, unless they were let through before: as
    /// long as jobs of an earlier life run, that stays as it is.
    fn make(dir: &Path, owner: Owner) -> io::Result<Self> {
        let subs = [crate::dir::SLOTS, crate::dir::PROJECTS].map(|name| dir.join(name));
        let user = JobUser { owner, groups: vec![owner.gid] };
        let [slot, project] = subs.each_ref().map(|sub| sub.join(TRIAL));
        let mut trial = Self { user, slot, project, made: Vec::new(), before: Vec::new() };
        for sub in &subs {
            if !sub.exists() {
                crate::dir::make_closed(sub)?;
                trial.made.push(sub.clone());
            }
        }
        for dir in subs.iter().map(PathBuf::as_path).chain([dir]) {
            let now = fs::metadata(dir)?;
            trial.before.push((dir.to_path_buf(), now.gid(), now.mode() & 0o7777));
            let group = if is_jobs(now.gid()) { Gid::from_raw(now.gid()) } else { owner.gid };
            grant(dir, group, Mode::XGRP)?;
            trial.user.groups.push(group);
        }
        trial.clear();
        Ok(trial)
    }

    /// Makes the attempt. Jobs stay let through if it succeeds.
    fn run(mut self) -> io::Result<()> {
        self.attempt()?;
        self.before.clear();
        Ok(())
    }

    fn attempt(&self) -> io::Result<()> {
        let said = |path: &Path| {
            let path = path.display().to_string();
            move |error: io::Error| io::Error::other(format!("{path}: {error}"))
        };
        // A slot is the job's, and what is in its project's directory it reads.
        for dir in [&self.slot, &self.project] {
            crate::dir::make_closed(dir).map_err(said(dir))?;
        }
        let slot = tree::open_directory(rustix::fs::CWD, &name_of(&self.slot)?).map_err(io::Error::from);
        let slot = slot.map_err(said(&self.slot))?;
        let owner = self.user.owner;
        owner.give(&slot).map_err(Into::into).and_then(|()| owner.check(&slot)).map_err(said(&self.slot))?;
        let input = self.project.join("input");
        fs::write(&input, b"input")
            .and_then(|()| let_read(&files::open_plain(&input)?))
            .map_err(said(&input))?;
        grant(&self.project, owner.gid, Mode::RGRP | Mode::XGRP).map_err(said(&self.project))?;
        let output = self.slot.join("output");
        let job = {
            let (output, cannot) = (output.clone(), (said(&input), said(&output)));
            move || {
                let read = fs::read(input).map_err(cannot.0)?;
                let closed = fs::Permissions::from_mode(0o600);
                let made = fs::write(&output, read).and_then(|()| fs::set_permissions(&output, closed));
                made.map_err(cannot.1)
            }
        };
        sys::as_user(self.user.clone(), job)?;
        // What it has made is its own, and the agent reads it and takes it.
        let take = || {
            let mut file = files::open_plain(&output)?;
            owner.check(&file)?;
            let mut made = Vec::new();
            file.read_to_end(&mut made)?;
            Owner::own().give(&file)?;
            Owner::own().check(&file)
        };
        take().map_err(said(&output))
    }

    fn clear(&self) {
        for dir in [&self.slot, &self.project] {
            let _ = tree::remove(dir);
        }
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        self.clear();
        for (dir, group, mode) in self.before.iter().rev() {
            let _ = std::os::unix::fs::chown(dir, None, Some(*group));
            let _ = fs::set_permissions(dir, fs::Permissions::from_mode(*mode));
        }
        for dir in &self.made {
            let _ = fs::remove_dir(dir);
        }
    }
}

fn name_of(path: &Path) -> io::Result<std::ffi::CString> {
    use std::os::unix::ffi::OsStrExt as _;
    Ok(std::ffi::CString::new(path.as_os_str().as_bytes())?)
}
