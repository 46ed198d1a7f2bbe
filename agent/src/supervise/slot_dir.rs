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
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, fchmod, fstat, linkat, mkdirat, openat, renameat, statat,
};
use rustix::io::Errno;

use crate::dir::{PARTIAL, copy_name};
use crate::owner::{self, Handover, Owner};
use crate::trash::Trash;
use crate::tree;
use crate::users;

/// The mode of a slot: others may pass through, as BOINC has it for applications of another user.
const SLOT_MODE: u32 = 0o771;

/// That of a slot of a user's own.
const OWN_MODE: u32 = 0o700;

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

    /// Gives it to a user with all that is in it, where it is another's. Nothing runs in it.
    pub(super) fn hand_over(&mut self, owner: Owner) -> io::Result<()> {
        let data = fstat(&self.dir)?;
        if data.st_uid != owner.uid.as_raw() {
            users::hand_over(&self.dir, owner)?;
        }
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

    /// Moves a file out of the slot, to where another file or a directory gives way to it. Where that fails,
    /// what is at `to` stays.
    pub(super) fn move_out(&self, name: &str, to: &Path) -> io::Result<()> {
        let (dir, last) = self.way(name, false)?;
        match self.put(to, || renameat(&dir, &last, CWD, to)) {
            // Slots and projects lie in one directory, so in one volume unless somebody mounted between them.
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => self.copy_out(name, to),
            Ok(()) => self.look_at(to, owner::take_over),
            Err(error) => Err(error),
        }
    }

    /// Looks at what came out of the slot, where its job comes to it no more, and does something about it. A
    /// job that runs may have put another's file under that name just then: that goes again.
    fn look_at(&self, path: &Path, act: impl FnOnce(&OwnedFd) -> Result<(), Errno>) -> io::Result<()> {
        if self.owner.is_none() {
            return Ok(());
        }
        let file = openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        if !self.is_its(fstat(&file)?.st_uid) {
            std::fs::remove_file(path)?;
            return Err(io::Error::other("not the job's own file"));
        }
        Ok(act(&file)?)
    }

    /// Gives a file of the slot a second name, where another file or a directory gives way to it. On another
    /// volume it is a copy.
    pub(super) fn link_out(&self, name: &str, to: &Path) -> io::Result<()> {
        let (dir, last) = self.way(name, false)?;
        let parts = to.with_file_name(PARTIAL);
        std::fs::create_dir_all(&parts)?;
        let link = parts.join(copy_name(to.file_name().unwrap_or_default()));
        self.trash.take(&link)?;
        match linkat(&dir, &last, CWD, &link, AtFlags::empty()) {
            Ok(()) => self.look_at(&link, |_| Ok(()))?,
            Err(Errno::XDEV) => {
                let mut copy = File::options().write(true).create_new(true).open(&link)?;
                io::copy(&mut self.read(name)?, &mut copy)?;
            }
            Err(error) => return Err(error.into()),
        }
        let put = self.put(to, || renameat(CWD, &link, CWD, to));
        // It is still there after a failure, and where both names were of that very file before.
        let _ = std::fs::remove_file(&link);
        put
    }

    /// Moves a file from elsewhere into the slot; across volumes too.
    pub(super) fn move_in(&self, from: &Path, name: &str) -> io::Result<()> {
        let (dir, last) = self.way(name, true)?;
        self.trash.take_at(dir.as_fd(), &last)?;
        match renameat(CWD, from, &dir, &last) {
            Err(Errno::XDEV) => {
                io::copy(&mut crate::files::open_plain(from)?, &mut self.make(name, 0o644)?)?;
                std::fs::remove_file(from)
            }
            Ok(()) => {
                let from = Owner::own().uid;
                let give = |to| owner::give_at(dir.as_fd(), &last, Handover { from, to });
                Ok(self.owner.map_or(Ok(()), give)?)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the directories on the way to a file.
    pub(super) fn make_way(&self, name: &str) -> io::Result<()> {
        self.way(name, true).map(drop)
    }

    /// The same to another volume: the copy takes its place when it is whole.
    fn copy_out(&self, name: &str, to: &Path) -> io::Result<()> {
        let mut source = self.read(name)?;
        let parts = to.with_file_name(PARTIAL);
        std::fs::create_dir_all(&parts)?;
        let copy = parts.join(copy_name(to.file_name().unwrap_or_default()));
        self.trash.take(&copy)?;
        let target = File::options().write(true).create_new(true).open(&copy);
        let copied = target
            .and_then(|mut target| io::copy(&mut source, &mut target))
            .and_then(|_| self.put(to, || renameat(CWD, &copy, CWD, to)));
        if copied.is_err() {
            let _ = std::fs::remove_file(&copy);
        }
        copied.and_then(|()| self.remove(name))
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
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if make => {
                self.trash.take_at(dir.as_fd(), name)?;
                mkdirat(dir, name, Mode::from_raw_mode(0o771))?;
                let made = tree::open_directory(dir.as_fd(), name)?;
                self.give(&made)?;
                Ok(made)
            }
            opened => Ok(opened?),
        }
    }
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
}
