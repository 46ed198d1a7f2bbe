//! A slot's directory, held open: everything in it is reached from there, one name at a time, and no link is
//! followed.
//!
//! What an application left under a name that is the client's, a pipe, a directory, a link to elsewhere, is
//! taken away before the name is used. Wherever the application moved its slot to, its end is looked for in
//! it.
//!
//! Where jobs run as users of their own, a slot is its job's, and so is whatever is made in it. The agent is
//! root there, and takes nothing in a slot for the job's that is not that user's: it may be another name of
//! somebody else's file.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, fchmod, fstat, linkat, mkdirat, openat, renameat, statat,
};
use rustix::io::Errno;

use super::copying;
use super::early_door::EarlyDoor;
use crate::dir::{PARTIAL, copy_name, make_closed};
use crate::owner::{self, Owner};
use crate::taking;
use crate::trash::Trash;
use crate::tree;
use crate::users;

/// The mode of a slot: others may pass through, as BOINC has it for applications of another user.
const SLOT_MODE: u32 = 0o771;

/// That of a slot of a user's own.
const OWN_MODE: u32 = 0o700;

/// How the outputs of a job that is over are taken.
#[derive(Clone, Copy)]
pub(super) struct Last<'a> {
    /// Whether the task is to leave by now: what takes long is given up then.
    pub(super) is_to_leave: &'a dyn Fn() -> bool,
    /// Whether they are not tried again. An output that has to be copied because of what its job has done
    /// with it, and for which there is no space, is given up then.
    pub(super) is_last_try: bool,
}

/// How a copy comes out of a slot.
#[derive(Clone, Copy)]
enum Way<'a> {
    /// An output, as long as the job may go on.
    Early(&'a EarlyDoor),
    /// A message, which is short, of a job that is over.
    Message,
    /// An output, for good.
    Last(Last<'a>),
}

impl Way<'_> {
    /// To be called between two pieces of a copy: it is given up once nobody waits for it any more. What the
    /// last copy of an output was made of goes, so the copy is on the disk by then. It is written there in
    /// pieces, for a wait for the disk cannot be given up.
    fn between(self, copy: &File) -> io::Result<()> {
        match self {
            Way::Early(door) if !door.is_open() => Err(Errno::CANCELED.into()),
            Way::Last(last) if (last.is_to_leave)() => Err(Errno::CANCELED.into()),
            Way::Last(_) => copy.sync_data(),
            Way::Early(_) | Way::Message => Ok(()),
        }
    }

    /// What an error says of a copy that had to be made only because of what the job has done with the file:
    /// where there is no space at the last try, that is the job's fault.
    fn said_of(self, error: io::Error) -> io::Error {
        match self {
            Way::Last(last) if last.is_last_try && copying::lacks_space(&error) => io::Error::other(format!(
                "it has other names, or somebody has it open, so it has to be copied: {error}"
            )),
            _ => error,
        }
    }
}

/// An open slot directory.
#[derive(Debug)]
pub(super) struct SlotDir {
    dir: OwnedFd,
    path: PathBuf,
    /// Where goes what is in the way.
    trash: Trash,
    /// The job's user whose it is, if it is not the agent's own.
    owner: Option<Owner>,
}

impl SlotDir {
    /// Opens a slot that is there; a link in its place is none.
    pub(super) fn open(path: &Path, trash: &Trash) -> io::Result<Self> {
        let name = CString::new(path.as_os_str().as_bytes())?;
        let dir = tree::open_directory(CWD, &name)?;
        let owner = Owner::jobs(&fstat(&dir)?);
        Ok(Self { dir, path: path.to_path_buf(), trash: trash.clone(), owner })
    }

    /// Makes a slot that is not there yet.
    pub(super) fn create(path: &Path, trash: &Trash) -> io::Result<Self> {
        mkdirat(CWD, path, Mode::RWXU)?;
        let place = Self::open(path, trash)?;
        fchmod(&place.dir, Mode::from_raw_mode(SLOT_MODE))?;
        Ok(place)
    }

    /// The job's user whose it is, if it is not the agent's own.
    pub(super) const fn owner(&self) -> Option<Owner> {
        self.owner
    }

    /// Gives it to a user with all that is in it, where it is another's. Nothing runs in it.
    pub(super) fn hand_over(&mut self, owner: Owner) -> io::Result<()> {
        if owner.check(&self.dir).is_err() {
            users::hand_over(&self.dir, owner)?;
        }
        // There are volumes that say they have done so.
        owner.check(&self.dir)?;
        self.owner = Owner::jobs(&fstat(&self.dir)?);
        if self.owner.is_some() {
            fchmod(&self.dir, Mode::from_raw_mode(OWN_MODE))?;
        }
        Ok(())
    }

    /// Gives what was made in it to its user.
    fn give(&self, file: impl AsFd) -> io::Result<()> {
        Ok(self.owner.map_or(Ok(()), |owner| owner.give(file))?)
    }

    /// Whether something in it belongs to its user.
    fn is_its(&self, uid: u32) -> bool {
        self.owner.is_none_or(|owner| owner.uid.as_raw() == uid)
    }

    /// Where it was when it was opened.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Its descriptor.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Makes a directory of this name for the job alone, if there is none. What is there and is no directory
    /// of its user's is taken away. Nothing runs in the slot.
    pub(super) fn keep_directory(&self, name: &CStr) -> io::Result<()> {
        let seen = statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW);
        let is_its = seen.is_ok_and(|data| {
            FileType::from_raw_mode(data.st_mode) == FileType::Directory && self.is_its(data.st_uid)
        });
        if !is_its {
            self.trash.take_at(self.dir.as_fd(), name)?;
            mkdirat(&self.dir, name, Mode::RWXU)?;
        }
        // Its job may have closed it.
        let dir = tree::open_directory(self.dir.as_fd(), name)?;
        let uid = fstat(&dir)?.st_uid;
        if !self.is_its(uid) && uid != Owner::own().uid.as_raw() {
            return Err(Errno::PERM.into());
        }
        fchmod(&dir, Mode::RWXU)?;
        self.give(dir)
    }

    /// Makes a file anew, with the directories on the way to it.
    pub(super) fn make(&self, name: &str, mode: u32) -> io::Result<File> {
        let (dir, last) = self.way(name, true)?;
        self.trash.take_at(dir.as_fd(), &last)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&dir, &last, flags, Mode::RUSR | Mode::WUSR)?;
        self.give(&file)?;
        fchmod(&file, Mode::from_raw_mode(mode))?;
        Ok(file.into())
    }

    /// The same, with this content.
    pub(super) fn write(&self, name: &str, content: &[u8], mode: u32) -> io::Result<()> {
        self.make(name, mode)?.write_all(content)
    }

    /// Opens a file to append to; what is there and is no ordinary file is taken away.
    pub(super) fn append(&self, name: &str) -> io::Result<File> {
        let (dir, last) = self.way(name, true)?;
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(&dir, &last, flags, Mode::empty()).map(File::from);
        match opened {
            Ok(file) if file.metadata().is_ok_and(|data| data.is_file() && self.is_its(data.uid())) => {
                Ok(file)
            }
            _ => {
                self.trash.take_at(dir.as_fd(), &last)?;
                let anew = flags | OFlags::CREATE | OFlags::EXCL;
                let file = openat(&dir, &last, anew, Mode::from_raw_mode(0o644))?;
                self.give(&file)?;
                Ok(file.into())
            }
        }
    }

    /// Opens an ordinary file for reading.
    pub(super) fn read(&self, name: &str) -> io::Result<File> {
        let (dir, last) = self.way(name, false)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(&dir, &last, flags, Mode::empty())?);
        let data = file.metadata()?;
        match data.is_file() && self.is_its(data.uid()) {
            true => Ok(file),
            false => Err(io::Error::other("not an ordinary file of the job's")),
        }
    }

    /// At most the first `max` bytes of a file.
    pub(super) fn head(&self, name: &str, max: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read(name)?.take(max).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// At most the last `max` bytes of a file.
    pub(super) fn tail(&self, name: &str, max: u64) -> io::Result<Vec<u8>> {
        let mut file = self.read(name)?;
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(max)))?;
        let mut bytes = Vec::new();
        file.take(max).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// True if there is an ordinary file of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        let Ok((dir, last)) = self.way(name, false) else { return false };
        let data = statat(&dir, &last, AtFlags::SYMLINK_NOFOLLOW);
        let is_file = |mode| FileType::from_raw_mode(mode) == FileType::RegularFile;
        data.is_ok_and(|data| is_file(data.st_mode) && self.is_its(data.st_uid))
    }

    /// Takes away whatever has this name.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        match self.way(name, false) {
            Ok((dir, last)) => self.trash.take_at(dir.as_fd(), &last),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Gives a file of the slot another name there. What has that name gives way.
    pub(super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (here, there) = (self.way(from, false)?, self.way(to, true)?);
        self.trash.take_at(there.0.as_fd(), &there.1)?;
        Ok(renameat(&here.0, &here.1, &there.0, &there.1)?)
    }

    /// Moves a file out of the slot, to where another file or a directory gives way to it. Where that fails,
    /// what is at `to` stays, and so does the file.
    pub(super) fn move_out(&self, name: &str, to: &Path) -> io::Result<()> {
        self.move_by(name, to, Way::Message)
    }

    /// The same of an output of a job that is over.
    pub(super) fn move_last(&self, name: &str, to: &Path, last: Last<'_>) -> io::Result<()> {
        self.move_by(name, to, Way::Last(last))
    }

    fn move_by(&self, name: &str, to: &Path, way: Way<'_>) -> io::Result<()> {
        let (dir, last) = self.way(name, false)?;
        let has_others = || statat(&dir, &last, AtFlags::SYMLINK_NOFOLLOW).map(|data| data.st_nlink != 1);
        if self.owner.is_some() && has_others()? {
            // It could not be taken over, so it is copied while it is still in its place: there may be no
            // space. Its other names stay, for the job may go on with them.
            return self.copy_out(name, to, way).map_err(|error| way.said_of(error));
        }
        match self.put(to, || renameat(&dir, &last, CWD, to)) {
            // Slots and projects lie in one directory, so in one volume unless somebody mounted between them.
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => self.copy_out(name, to, way),
            Ok(()) => self.take_over(to, way),
            Err(error) => Err(error),
        }
    }

    /// Moves a file out while the job runs, without waiting for the disk. False where the job is another user
    /// who could still change it, by another name or because it has it open: then it stays where it is.
    ///
    /// # Errors
    /// The system's: it stays where it is.
    pub(super) fn move_out_of_open(&self, name: &str, to: &Path) -> io::Result<bool> {
        if self.owner.is_none() {
            return self.move_out(name, to).map(|()| true);
        }
        let (dir, last) = self.way(name, false)?;
        if statat(&dir, &last, AtFlags::SYMLINK_NOFOLLOW)?.st_nlink != 1 {
            return Ok(false);
        }
        match self.put(to, || renameat(&dir, &last, CWD, to)) {
            // It would have to be copied.
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => return Ok(false),
            moved => moved?,
        }
        let taken = self.opened(to).and_then(|file| taking::take_over(&file));
        if !matches!(taken, Ok(true)) {
            self.put_back(to, &dir, &last)?;
        }
        taken
    }

    /// Moves back what was moved out of a directory of the slot, so that nothing of it stays outside.
    fn put_back(&self, from: &Path, dir: &OwnedFd, name: &CStr) -> io::Result<()> {
        let back = renameat(CWD, from, dir, name);
        // It is still there after a failure, and where both names are of that very file.
        self.trash.take(from)?;
        Ok(back?)
    }

    /// What came out of the slot. The job may have put another's file under that name, or none at all.
    fn opened(&self, path: &Path) -> io::Result<OwnedFd> {
        let file = openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let data = fstat(&file)?;
        match FileType::from_raw_mode(data.st_mode) {
            FileType::RegularFile if self.is_its(data.st_uid) => Ok(file),
            _ => Err(io::Error::other("not an ordinary file of the job's own")),
        }
    }

    /// Makes what came out of the slot the agent's own, where its job comes to it no more and is gone. It may
    /// have put another's file under that name: that goes again.
    fn take_over(&self, path: &Path, way: Way<'_>) -> io::Result<()> {
        if self.owner.is_none() {
            return Ok(());
        }
        let file = openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        if !self.is_its(fstat(&file)?.st_uid) {
            self.trash.take(path)?;
            return Err(io::Error::other("not the job's own file"));
        }
        self.take_open(&file, path, way)
    }

    /// The same of what was moved out before, and may still be the job's: whoever did it has died, or found
    /// no space.
    pub(super) fn take_rest(&self, path: &Path, last: Last<'_>) -> io::Result<()> {
        if self.owner.is_none() {
            return Ok(());
        }
        match openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT) => Ok(()),
            file => self.take_open(&file?, path, Way::Last(last)),
        }
    }

    /// Takes away what was moved out of it.
    pub(super) fn take_away(&self, path: &Path) -> io::Result<()> {
        self.trash.take(path)
    }

    fn take_open(&self, file: &OwnedFd, path: &Path, way: Way<'_>) -> io::Result<()> {
        if FileType::from_raw_mode(fstat(file)?.st_mode) != FileType::RegularFile {
            self.trash.take(path)?;
            return Err(io::Error::other("not an ordinary file of the job's"));
        }
        if taking::take_over(file)? {
            return Ok(());
        }
        let source = File::open(owner::in_proc(file.as_fd()))?;
        self.copy(&source, None, path, way).map_err(|error| way.said_of(error))
    }

    /// Gives a file of the slot a second name, where another file or a directory gives way to it, as long as
    /// the door is open. On another volume it is a copy of so much, and also where the job is another user,
    /// who could change it later.
    pub(super) fn link_out(&self, name: &str, to: &Path, max: u64, door: &EarlyDoor) -> io::Result<()> {
        if self.owner.is_some() {
            return self.copy(&self.read(name)?, Some(max), to, Way::Early(door));
        }
        let (dir, last) = self.way(name, false)?;
        let parts = to.with_file_name(PARTIAL);
        make_closed(&parts)?;
        let link = parts.join(name_of_copy(to));
        self.trash.take(&link)?;
        match linkat(&dir, &last, CWD, &link, AtFlags::empty()) {
            Ok(()) => {}
            Err(Errno::XDEV) => return self.copy(&self.read(name)?, Some(max), to, Way::Early(door)),
            Err(error) => return Err(error.into()),
        }
        let put = door.pass(|| self.put(to, || renameat(CWD, &link, CWD, to)));
        // It is still there after a failure, and where both names were of that very file before.
        let _ = std::fs::remove_file(&link);
        put
    }

    /// Moves a file from elsewhere into the slot; across volumes too.
    pub(super) fn move_in(&self, from: &Path, name: &str) -> io::Result<()> {
        let (dir, last) = self.way(name, true)?;
        self.trash.take_at(dir.as_fd(), &last)?;
        // Given first: whoever is interrupted finds it where it was, and moves it then.
        let file = openat(CWD, from, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        self.owner.map_or(Ok(()), |owner| owner::give_made_file(&file, owner))?;
        match renameat(CWD, from, &dir, &last) {
            Err(Errno::XDEV) => {
                io::copy(&mut crate::files::open_plain(from)?, &mut self.make(name, 0o644)?)?;
                std::fs::remove_file(from)
            }
            moved => Ok(moved?),
        }
    }

    /// Makes the directories on the way to a file.
    pub(super) fn make_way(&self, name: &str) -> io::Result<()> {
        self.way(name, true).map(drop)
    }

    /// Moves a file out as a copy, which takes its place when it is whole.
    fn copy_out(&self, name: &str, to: &Path, way: Way<'_>) -> io::Result<()> {
        self.copy(&self.read(name)?, None, to, way)?;
        self.remove(name)
    }

    /// Puts a copy of a file to `to`, whole or not at all. It has at most so much, or as much as the file has
    /// now: somebody may be making it longer meanwhile. It is given up once nobody waits for it any more,
    /// with `CANCELED`.
    fn copy(&self, source: &File, max: Option<u64>, to: &Path, way: Way<'_>) -> io::Result<()> {
        let data = fstat(source)?;
        let max = max.unwrap_or_else(|| u64::try_from(data.st_size).unwrap_or_default());
        let parts = to.with_file_name(PARTIAL);
        make_closed(&parts)?;
        let copy = parts.join(name_of_copy(to));
        // An earlier life may have left it.
        self.trash.take(&copy)?;
        let target = File::options().write(true).create_new(true).mode(0o600).open(&copy);
        let copied = target.and_then(|mut target| {
            copying::copy(source, (&mut target, &parts), max, &|copy| way.between(copy))?;
            fchmod(&target, owner::taken_mode(&data))?;
            let put = || self.put(to, || renameat(CWD, &copy, CWD, to));
            match way {
                Way::Early(door) => door.pass(put),
                Way::Message | Way::Last(_) => put(),
            }
        });
        if copied.is_err() {
            let _ = std::fs::remove_file(&copy);
        }
        copied
    }

    /// Renames to `to`. A directory that is there is taken away, and one around it that a job closed is
    /// opened up.
    fn put(&self, to: &Path, rename: impl Fn() -> Result<(), Errno>) -> io::Result<()> {
        match (rename(), to.parent()) {
            (Err(Errno::ISDIR), _) => self.trash.take(to)?,
            // What cannot be done shows in the next attempt.
            (Err(Errno::ACCESS), Some(parent)) => drop(tree::open_up(CWD, parent)),
            (done, _) => return Ok(done?),
        }
        Ok(rename()?)
    }

    /// The directory that holds `name`, which may lie some directories below the slot, and its last part.
    /// With `make`, whatever is in the way there is replaced by directories.
    fn way(&self, name: &str, make: bool) -> io::Result<(OwnedFd, CString)> {
        let mut dir = self.dir.try_clone()?;
        let mut parts = name.split('/').filter(|part| !part.is_empty());
        let mut last = parts.next().ok_or(io::ErrorKind::InvalidInput)?;
        for next in parts {
            dir = self.step(&dir, &CString::new(last)?, make)?;
            last = next;
        }
        if matches!(last, "." | "..") {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok((dir, CString::new(last)?))
    }

    fn step(&self, dir: &OwnedFd, name: &CStr, make: bool) -> io::Result<OwnedFd> {
        if name == c".." {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        match tree::open_directory(dir.as_fd(), name) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if make => self.make_directory(dir, name),
            // A job may have put another's there.
            Ok(there) if !self.is_its(fstat(&there)?.st_uid) => match make {
                true => self.make_directory(dir, name),
                false => Err(io::Error::other("not a directory of the job's")),
            },
            opened => Ok(opened?),
        }
    }

    /// Makes a directory, and gives it to the job's user if it is still the one that was made.
    fn make_directory(&self, dir: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
        self.trash.take_at(dir.as_fd(), name)?;
        mkdirat(dir, name, Mode::from_raw_mode(0o751))?;
        let made = tree::open_directory(dir.as_fd(), name)?;
        self.owner.map_or(Ok(()), |owner| owner::give_made(&made, owner))?;
        if !self.is_its(fstat(&made)?.st_uid) {
            return Err(io::Error::other("not the directory that was made"));
        }
        Ok(made)
    }
}

/// What a copy of the file that is to be at `to` is called while it is made. Each has a name of its own: a
/// task that was started again may have one made while one of its last start is still being given up.
fn name_of_copy(to: &Path) -> String {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    format!("{}-{number}", copy_name(to.file_name().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_is_made_where_it_belongs_whatever_is_in_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        let place = SlotDir::create(&dir.path().join("slot"), &Trash::at(dir.path().join("trash"))).unwrap();
        symlink("../outside", place.path().join("sub")).unwrap();
        place.write("sub/in", b"x", 0o644).unwrap();
        assert!(fs::read_dir(&outside).unwrap().next().is_none(), "nothing is written through a link");
        assert_eq!(place.head("sub/in", 9).unwrap(), b"x");
        fs::create_dir_all(place.path().join("init/a/b")).unwrap();
        place.write("init", b"y", 0o600).unwrap();
        assert_eq!(place.tail("init", 9).unwrap(), b"y");
    }

    #[test]
    fn nothing_is_read_or_moved_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("outside")).unwrap();
        fs::write(dir.path().join("outside/secret"), "s").unwrap();
        let place = SlotDir::create(&dir.path().join("slot"), &Trash::at(dir.path().join("trash"))).unwrap();
        symlink("../outside", place.path().join("sub")).unwrap();
        symlink("../outside/secret", place.path().join("file")).unwrap();
        for name in ["sub/secret", "file", "../outside/secret", "sub/../file"] {
            assert!(place.head(name, 9).is_err() && !place.has(name), "{name}");
        }
        assert!(place.move_out("sub/secret", &dir.path().join("taken")).is_err());
        assert!(dir.path().join("outside/secret").exists());
    }

    #[test]
    fn a_move_that_fails_leaves_what_is_at_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let place = SlotDir::create(&dir.path().join("slot"), &Trash::at(dir.path().join("trash"))).unwrap();
        let to = dir.path().join("out");
        fs::write(&to, "taken before").unwrap();
        fs::create_dir(place.path().join("directory")).unwrap();
        for name in ["nothing", "directory"] {
            assert!(place.move_out(name, &to).is_err(), "{name}");
            assert_eq!(fs::read(&to).unwrap(), b"taken before", "{name}");
        }
        place.write("file", b"new", 0o644).unwrap();
        fs::remove_file(&to).unwrap();
        fs::create_dir_all(to.join("in/the/way")).unwrap();
        place.move_out("file", &to).unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"new");
    }

    #[test]
    fn r6_10_nothing_stays_outside_of_what_is_put_back_also_where_its_job_has_made_another_name_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let place = SlotDir::create(&dir.path().join("slot"), &Trash::at(dir.path().join("trash"))).unwrap();
        for is_linked in [false, true] {
            let out = dir.path().join("out");
            fs::write(&out, "said").unwrap();
            if is_linked {
                fs::remove_file(place.path().join("message")).unwrap();
                fs::hard_link(&out, place.path().join("message")).unwrap();
            }
            place.put_back(&out, &place.dir, c"message").unwrap();
            assert_eq!((out.exists(), place.head("message", 9).unwrap()), (false, b"said".to_vec()));
        }
        // There is something in its way.
        fs::create_dir_all(place.path().join("message/in/the/way")).unwrap_err();
        fs::remove_file(place.path().join("message")).unwrap();
        fs::create_dir_all(place.path().join("message/in/the/way")).unwrap();
        let out = dir.path().join("out");
        fs::write(&out, "said").unwrap();
        assert!(place.put_back(&out, &place.dir, c"message").is_err() && !out.exists());
    }

    #[test]
    fn a_move_to_another_volume_is_whole_or_leaves_what_is_at_its_end() {
        let (dir, memory) = (tempfile::tempdir().unwrap(), Path::new("/dev/shm"));
        let device =
            |path: &Path| fs::metadata(path).map(|data| std::os::unix::fs::MetadataExt::dev(&data)).ok();
        if device(memory).is_none() || device(memory) == device(dir.path()) {
            eprintln!("there is one volume only here");
            return;
        }
        let slot = tempfile::tempdir_in(memory).unwrap();
        let place =
            SlotDir::create(&slot.path().join("slot"), &Trash::at(slot.path().join("trash"))).unwrap();
        let to = dir.path().join("out");
        fs::write(&to, "taken before").unwrap();
        fs::create_dir(place.path().join("directory")).unwrap();
        assert!(place.move_out("directory", &to).is_err());
        assert_eq!(fs::read(&to).unwrap(), b"taken before");
        place.write("file", b"new", 0o644).unwrap();
        place.move_out("file", &to).unwrap();
        assert_eq!((fs::read(&to).unwrap(), place.has("file")), (b"new".to_vec(), false));
        assert_eq!(fs::read_dir(dir.path().join(PARTIAL)).unwrap().count(), 0);
    }

    #[test]
    fn a_slot_that_was_moved_is_still_the_one_that_was_opened() {
        let dir = tempfile::tempdir().unwrap();
        let place = SlotDir::create(&dir.path().join("slot"), &Trash::at(dir.path().join("trash"))).unwrap();
        fs::rename(dir.path().join("slot"), dir.path().join("moved")).unwrap();
        symlink("outside", dir.path().join("slot")).unwrap();
        place.write("f", b"x", 0o644).unwrap();
        assert!(dir.path().join("moved/f").exists());
        assert!(
            SlotDir::open(&dir.path().join("slot"), &Trash::at(dir.path().join("trash"))).is_err(),
            "a link is no slot"
        );
    }

    #[test]
    fn r6_10_a_directory_is_given_to_a_job_only_if_the_agent_has_made_it() {
        if !rustix::process::geteuid().is_root() {
            return; // Only root can give files away.
        }
        use std::os::unix::fs::{PermissionsExt as _, chown};
        let dir = tempfile::tempdir().unwrap();
        let mut place =
            SlotDir::create(&dir.path().join("slot"), &Trash::at(dir.path().join("trash"))).unwrap();
        let job = Owner::numbered(owner::FIRST + 1);
        place.hand_over(job).unwrap();
        let whose = |path: &Path| fs::metadata(path).unwrap().uid();
        let (ours, open) = (dir.path().join("ours"), dir.path().join("open"));
        for (path, mode) in [(&ours, 0o755), (&open, 0o777)] {
            fs::create_dir(path).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            let there = File::open(path).unwrap().into();
            owner::give_made(&there, job).unwrap();
        }
        assert_eq!((whose(&ours), whose(&open)), (job.uid.as_raw(), 0), "the second may come from anywhere");
        // What somebody else owns is not gone into, and nothing in it is given.
        fs::rename(&open, place.path().join("sub")).unwrap();
        let held = File::open(place.path().join("sub")).unwrap();
        assert!(place.read("sub/in").is_err());
        place.write("sub/in", b"x", 0o644).unwrap();
        let made = place.path().join("sub");
        assert_eq!((whose(&made), whose(&made.join("in"))), (job.uid.as_raw(), job.uid.as_raw()));
        assert_eq!(held.metadata().unwrap().uid(), 0);
        // Nor is a file that has another name.
        let file = dir.path().join("file");
        fs::write(&file, "x").unwrap();
        fs::hard_link(&file, dir.path().join("letter")).unwrap();
        place.move_in(&file, "moved").unwrap();
        assert_eq!(whose(&dir.path().join("letter")), 0);
        // A volume that does not keep owners is found out.
        chown(place.path(), Some(0), Some(0)).unwrap();
        assert!(job.check(&place.dir).unwrap_err().to_string().contains("does not keep"));
    }

    #[test]
    fn r6_10_a_slot_whose_files_have_other_names_goes_to_no_other_user_of_jobs() {
        if !rustix::process::geteuid().is_root() {
            return; // Only root can give files away.
        }
        let dir = tempfile::tempdir().unwrap();
        let mut place =
            SlotDir::create(&dir.path().join("slot"), &Trash::at(dir.path().join("trash"))).unwrap();
        let [first, second] = [1, 2].map(|number| Owner::numbered(owner::FIRST + number));
        place.hand_over(first).unwrap();
        place.write("checkpoint", b"half", 0o644).unwrap();
        let other = place.path().join("checkpoint.old");
        fs::hard_link(place.path().join("checkpoint"), &other).unwrap();
        let error = place.hand_over(second).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge, "{error}");
        assert!(error.to_string().contains("other names"), "{error}");
        fs::remove_file(&other).unwrap();
        place.hand_over(second).unwrap();
        let whose = fs::metadata(place.path().join("checkpoint")).unwrap().uid();
        assert_eq!(whose, second.uid.as_raw());
    }

    #[test]
    fn r6_10_a_slot_stays_whose_it_is_as_long_as_something_in_it_cannot_be_given() {
        if !rustix::process::geteuid().is_root() {
            return; // Only root can give files away.
        }
        use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
        let dir = tempfile::tempdir().unwrap();
        let mut place =
            SlotDir::create(&dir.path().join("slot"), &Trash::at(dir.path().join("trash"))).unwrap();
        let [first, second] = [1, 2].map(|number| Owner::numbered(owner::FIRST + number));
        place.hand_over(first).unwrap();
        place.write("deep/checkpoint", b"half", 0o644).unwrap();
        let checkpoint = place.path().join("deep/checkpoint");
        let file = File::open(&checkpoint).unwrap();
        let flags = ioctl_getflags(&file);
        if !flags.is_ok_and(|flags| ioctl_setflags(&file, flags | IFlags::IMMUTABLE).is_ok()) {
            eprintln!("no file can be made immutable here");
            return;
        }
        let refused = place.hand_over(second);
        // First of all: nobody can remove it.
        ioctl_setflags(&file, flags.unwrap()).unwrap();
        let error = refused.unwrap_err();
        let says = error.to_string();
        assert!(
            says.contains("deep/checkpoint") && says.contains("os error 1") && says.contains("lsattr"),
            "{says}"
        );
        assert_ne!(error.kind(), io::ErrorKind::FileTooLarge, "it waits, and does not begin anew");
        let whose = |path: &Path| fs::metadata(path).unwrap().uid();
        assert_eq!(whose(place.path()), first.uid.as_raw());
        place.hand_over(second).unwrap();
        assert_eq!([place.path(), checkpoint.as_path()].map(whose), [second.uid.as_raw(); 2]);
    }

    #[test]
    fn r6_10_an_output_with_other_names_is_copied_and_they_stay_and_its_copy_is_given_up_when_its_task_leaves()
     {
        if !rustix::process::geteuid().is_root() {
            return; // Only root can give files away.
        }
        let dir = tempfile::tempdir().unwrap();
        let mut place =
            SlotDir::create(&dir.path().join("slot"), &Trash::at(dir.path().join("trash"))).unwrap();
        place.hand_over(Owner::numbered(owner::FIRST + 1)).unwrap();
        place.write("out", b"right", 0o644).unwrap();
        place.make_way("deep/er/kept").unwrap();
        fs::hard_link(place.path().join("out"), place.path().join("deep/er/kept")).unwrap();
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        let (first, second) = (dir.path().join("first"), dir.path().join("second"));
        let made = inode(&place.path().join("out"));
        let leaves = place.move_last("out", &first, Last { is_to_leave: &|| true, is_last_try: false });
        assert_eq!(leaves.unwrap_err().raw_os_error(), Some(Errno::CANCELED.raw_os_error()));
        assert!(place.has("out") && !first.exists());
        let last = Last { is_to_leave: &|| false, is_last_try: false };
        place.move_last("out", &first, last).unwrap();
        assert_eq!((fs::read(&first).unwrap(), fs::metadata(&first).unwrap().uid()), (b"right".to_vec(), 0));
        assert!(inode(&first) != made && !place.has("out") && place.has("deep/er/kept"));
        // What has one name only is taken as it is.
        place.move_last("deep/er/kept", &second, last).unwrap();
        assert_eq!((inode(&second), fs::metadata(&second).unwrap().uid()), (made, 0));
        assert_eq!(fs::read_dir(dir.path().join(PARTIAL)).unwrap().count(), 0);
    }

    #[test]
    fn r6_10_only_the_last_copy_of_an_output_waits_for_the_disk_and_no_message_does() {
        // Nothing of it can be written to a disk.
        let nowhere = File::open("/dev/null").unwrap();
        let last = Last { is_to_leave: &|| false, is_last_try: false };
        let waits = Way::Last(last).between(&nowhere).unwrap_err();
        assert_eq!(waits.raw_os_error(), Some(Errno::INVAL.raw_os_error()));
        Way::Message.between(&nowhere).unwrap();
        Way::Early(&EarlyDoor::default()).between(&nowhere).unwrap();
    }

    #[test]
    fn r6_10_what_was_moved_out_and_is_no_ordinary_file_goes() {
        if !rustix::process::geteuid().is_root() {
            return; // Only root can give files away.
        }
        let dir = tempfile::tempdir().unwrap();
        let mut place =
            SlotDir::create(&dir.path().join("slot"), &Trash::at(dir.path().join("trash"))).unwrap();
        place.hand_over(Owner::numbered(owner::FIRST + 1)).unwrap();
        let link = dir.path().join("out");
        symlink("letter", &link).unwrap();
        let taken = place.take_rest(&link, Last { is_to_leave: &|| false, is_last_try: false });
        assert!(taken.is_err() && link.symlink_metadata().is_err());
    }
}
