//! Copying what jobs have made, which may be as long as their disk is large.
//!
//! Model: in pieces. Before each of them it is looked whether the whole rest finds space beside what the
//! agent needs, and whoever wants the copy may give it up, or have what there is of it written to the disk:
//! so no job fills the disk by what is copied for it, and nobody waits long for the end of a copy that has
//! become useless.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// So much is copied between two looks: a tenth of a second on a slow disk, and enough for a file system that
/// shares blocks instead of copying them.
const PIECE: u64 = 16 << 20;

/// So much stays free where files are copied: what the agent's store asks for, several times over, for others
/// write too.
const KEEP_FREE: u64 = 8 * fallow_store::SPARE;

/// Looks whether a copy leaves the space that the agent needs, so that it can store what comes of it.
/// Downloads leave much more; but each job has copies of its own.
///
/// # Errors
/// `StorageFull`: it does not.
pub(super) fn has_space(place: &Path, nbytes: u64) -> io::Result<()> {
    let free =
        rustix::fs::statvfs(place).map_or(u64::MAX, |volume| volume.f_bavail.saturating_mul(volume.f_frsize));
    if free >= nbytes.saturating_add(KEEP_FREE) {
        return Ok(());
    }
    let what = format!("no space for {nbytes} bytes: {free} are free, {KEEP_FREE} of which have to stay so");
    Err(io::Error::new(io::ErrorKind::StorageFull, what))
}

/// Whether an error says that there is no space for a copy.
pub(super) fn lacks_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Copies what is in `source` to `target`, in the directory `place`. Somebody may be making it longer
/// meanwhile. `between` is called with what there is of the copy before each piece, and at the end.
///
/// # Errors
/// `FileTooLarge` where it holds more than `max` bytes, `StorageFull` where there is no space; and what
/// `between` says.
pub(super) fn copy(
    source: &File,
    (target, place): (&mut File, &Path),
    max: u64,
    between: &dyn Fn(&File) -> io::Result<()>,
) -> io::Result<()> {
    let mut done = 0_u64;
    loop {
        between(target)?;
        // One that is too long is not even begun.
        let rest = source.metadata()?.len().saturating_sub(done);
        if rest > max.saturating_sub(done) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        has_space(place, rest)?;
        let copied = io::copy(&mut source.take(PIECE.min(rest)), target)?;
        if copied == 0 {
            return Ok(());
        }
        done = done.saturating_add(copied);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::fs;

    use rustix::io::Errno;

    #[test]
    fn r6_10_a_copy_is_whole_or_said_to_be_none_and_is_given_up_between_two_pieces() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        let content: Vec<u8> = (0..PIECE + 5).map(|at| at as u8).collect();
        fs::write(&from, &content).unwrap();
        let there = RefCell::new(Vec::new());
        let copied = |max: u64, rounds: u32| {
            let left = Cell::new(rounds);
            let between = |target: &File| {
                there.borrow_mut().push(target.metadata()?.len());
                let is_wanted = left.replace(left.get().saturating_sub(1)) > 0;
                if is_wanted { Ok(()) } else { Err(Errno::CANCELED.into()) }
            };
            let mut target = File::create(&to).unwrap();
            copy(&File::open(&from).unwrap(), (&mut target, dir.path()), max, &between)
        };
        copied(PIECE + 5, 9).unwrap();
        assert_eq!(fs::read(&to).unwrap(), content);
        // Whoever writes to the disk what is there has never more than a piece to wait for.
        assert_eq!(*there.borrow(), [0, PIECE, PIECE + 5]);
        assert_eq!(copied(PIECE + 4, 9).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(fs::metadata(&to).unwrap().len(), 0);
        assert_eq!(copied(u64::MAX, 1).unwrap_err().raw_os_error(), Some(Errno::CANCELED.raw_os_error()));
        assert_eq!(fs::metadata(&to).unwrap().len(), PIECE);
    }

    #[test]
    fn r6_10_what_would_leave_the_agent_no_space_is_not_even_begun() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        // A file of holes is as long as it says, and takes nothing.
        let source = File::create_new(&from).unwrap();
        source.set_len(1 << 43).unwrap();
        if has_space(dir.path(), 1 << 43).is_ok() {
            println!("skipped: there is space for anything here");
            return;
        }
        let mut target = File::create_new(&to).unwrap();
        let copied = copy(&File::open(&from).unwrap(), (&mut target, dir.path()), u64::MAX, &|_| Ok(()));
        let error = copied.unwrap_err();
        assert_eq!((error.kind(), fs::metadata(&to).unwrap().len()), (io::ErrorKind::StorageFull, 0));
        assert!(!crate::files::is_its_own(&error), "it says nothing about the file");
    }
}
