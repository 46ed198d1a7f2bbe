//! The users that jobs of a root agent run as: one for each slot, who owns nothing else (R6.10).
//!
//! Model: numbers that no user of a system has. Whoever gives numbers out in bulk (systemd, containers,
//! directories of a company) ends below the first or begins above the last. Each agent has a block of them,
//! chosen by its directory's place; the group of that directory says later which it was. In a block come
//! first the group by which jobs pass through the agent's directories, then a user and a group for each slot,
//! then a group for each project, by which its own jobs alone read its files.
//!
//! How files come to these users is in [`crate::owner`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, chmod, chownat, fstat, open};
use rustix::thread::CapabilitySet;

use crate::owner::{BLOCK, BLOCKS, FIRST, Handover, Owner, in_proc, is_jobs};
use crate::sys;
use crate::walk::{Counted, Walk};

/// Where in a block the groups of projects begin.
const PROJECTS: u32 = BLOCK / 2;

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
        let dir = fs::canonicalize(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let first = block(&dir)?;
        // The group of the block is no job's user: nobody is there who could do anything to the attempt.
        let (user, group) = (Uid::from_raw(first), Gid::from_raw(first));
        sys::try_user(user, group)
            .map_err(|error| format!("users such as {first} cannot be had here: {error}"))?;
        way(&dir)?;
        try_to_give(&dir, Owner { uid: user, gid: group }).map_err(|error| {
            format!("what lies in {} cannot be given to another user: {error}", dir.display())
        })?;
        Ok(Self { first, giving: Arc::default() })
    }

    /// The user of a slot; none where there are more slots than users.
    pub fn of_slot(&self, slot: u32) -> Option<Owner> {
        slot.checked_add(1)
            .filter(|number| *number < PROJECTS)
            .map(|number| Owner::numbered(self.first + number))
    }

    /// The first user, for those who want to know.
    pub(crate) const fn first(&self) -> u32 {
        self.first + 1
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
        let groups = self.first + PROJECTS..self.first + BLOCK;
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
/// What cannot be given, and what is not whose the slot is, stays as it is.
pub(crate) fn hand_over(slot: &OwnedFd, owner: Owner) -> io::Result<()> {
    let handover = Handover { from: Uid::from_raw(fstat(slot)?.st_uid), to: owner };
    let mut walk = Walk::below_at(slot.as_fd(), c".", true).giving(handover);
    let mut counted = Counted::default();
    while !walk.step(&mut counted, u64::MAX) {}
    // At last: who is interrupted does it once more.
    Ok(owner.give(slot)?)
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
            let (dir, above) = (dir.display(), above.display());
            return Err(format!(
                "{above} is closed to other users (chmod o+x {above}), and {dir} lies in it"
            ));
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

/// Gives a file away that has no name: there are volumes that know no users.
fn try_to_give(dir: &Path, owner: Owner) -> io::Result<()> {
    let path = dir.join(format!(".owner-{}", std::process::id()));
    let _ = fs::remove_file(&path);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    owner.give(&file)?;
    match fstat(&file)?.st_uid == owner.uid.as_raw() {
        true => Ok(()),
        false => Err(io::Error::other("its volume knows no users")),
    }
}
