//! The files of projects, to be looked at by anybody and changed by [`Files::edit`] alone, which says what
//! follows.
//!
//! **Model.** An edit takes note of what a file was to others, and all that follows is its [`Difference`]
//! from what the file has become. What its project says of a file, long lists of URLs, changes only when the
//! project says it anew, and by an edit of its own.

use std::collections::BTreeMap;
use std::ops::Deref;

use fallow_domain::{Bytes, Instant};
use fallow_policy::transfer_backoff::TransferBackoff;

use crate::described::FileDescription;
use crate::state::{File, FileStatus, Kept, Transfer};
use crate::{Direction, FileKey, RequiredSignature};

/// The files, to be looked at as a map.
#[derive(Debug, Default)]
pub(crate) struct Files {
    all: BTreeMap<FileKey, File>,
}

/// What follows from an edit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Its record is to be written.
    pub store: bool,
    /// And must survive a power cut: its server has it, and would not take it again.
    pub durable: bool,
    /// Its transfer stands elsewhere among all transfers, or is none of them any more.
    pub transfer: bool,
}

/// A file as it was, but for what its project says of it.
#[derive(Debug)]
struct Outline {
    sticky: bool,
    nbytes: Option<Bytes>,
    signed: bool,
    status: FileStatus,
    proof: Option<RequiredSignature>,
    found: Option<(Bytes, String)>,
    stale: Bytes,
    transfer: Option<Transfer>,
    kept: Kept,
}

impl Deref for Files {
    type Target = BTreeMap<FileKey, File>;
    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl Files {
    /// Takes in a file, in place of another of the same name.
    pub(crate) fn insert(&mut self, key: FileKey, file: File) {
        self.all.insert(key, file);
    }

    pub(crate) fn remove(&mut self, key: &FileKey) -> Option<File> {
        self.all.remove(key)
    }

    /// Changes a file. Of what its project says of it only its size and whether it stays may change.
    pub(crate) fn edit<T>(
        &mut self,
        key: &FileKey,
        change: impl FnOnce(&mut File) -> T,
    ) -> Option<(T, Difference)> {
        let file = self.all.get_mut(key)?;
        let before = Outline::of(file);
        let told = change(file);
        Some((told, before.until(file)))
    }

    /// The same where its project describes it anew.
    pub(crate) fn describe(&mut self, key: &FileKey, change: impl FnOnce(&mut File)) -> Option<Difference> {
        let info = self.all.get(key)?.info.clone();
        let ((), found) = self.edit(key, change)?;
        let is_other = self.all.get(key).is_some_and(|file| file.info != info);
        Some(Difference { store: found.store || is_other, ..found })
    }

    /// The clock was set back: no wait becomes longer by that. That follows from what is stored, and is no
    /// difference to anybody.
    pub(crate) fn observe(&mut self, now: Instant) {
        for transfer in self.all.values_mut().filter_map(|file| file.transfer.as_mut()) {
            transfer.backoff.observe(now);
        }
    }
}

/// What is stored of a transfer, and where it stands among all. Whether it is under way is not stored, and
/// its URL makes no difference to others.
fn stored(transfer: &Transfer) -> (Direction, usize, TransferBackoff) {
    (transfer.direction, transfer.url_index, transfer.backoff)
}

fn place(transfer: &Transfer) -> (Direction, bool, TransferBackoff) {
    (transfer.direction, transfer.active, transfer.backoff)
}

impl Outline {
    fn of(file: &File) -> Self {
        Self {
            sticky: file.info.sticky,
            nbytes: file.info.nbytes,
            signed: file.signed,
            status: file.status.clone(),
            proof: file.proof.clone(),
            found: file.found.clone(),
            stale: file.stale,
            transfer: file.transfer.clone(),
            kept: file.kept,
        }
    }

    /// What follows when a file that was like this is like that.
    fn until(&self, file: &File) -> Difference {
        // Taken apart whole, so that whoever adds something to a file says here what follows when it changes.
        let File { info, signed, status, proof, found, stale, transfer, kept } = file;
        let FileDescription { sticky, nbytes, .. } = info;
        let was = self.transfer.as_ref();
        let store = self.status != *status
            || self.found != *found
            || was.map(stored) != transfer.as_ref().map(stored)
            || (self.sticky, self.nbytes, self.signed, self.stale) != (*sticky, *nbytes, *signed, *stale)
            || self.proof != *proof
            || self.kept != *kept;
        Difference {
            store,
            durable: self.status != *status && *status == FileStatus::Uploaded,
            transfer: was.map(place) != transfer.as_ref().map(place),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fallow_domain::ProjectId;

    const NOW: Instant = Instant::from_micros(1_800_000_000_000_000);

    /// The names of what follows from an edit of a file that is being downloaded.
    fn follows(edit: impl FnOnce(&mut File)) -> String {
        let key = FileKey { project: ProjectId(0), name: "f".to_owned() };
        let transfer = Transfer {
            direction: Direction::Download,
            url_index: 0,
            backoff: TransferBackoff::new(NOW),
            active: true,
        };
        let file = File {
            info: FileDescription { name: "f".to_owned(), ..FileDescription::default() },
            signed: false,
            status: FileStatus::Absent,
            proof: None,
            found: None,
            stale: Bytes(0),
            transfer: Some(transfer),
            kept: Kept::default(),
        };
        let mut files = Files::default();
        files.insert(key.clone(), file);
        let ((), found) = files.edit(&key, edit).unwrap();
        let Difference { store, durable, transfer } = found;
        let flags = [(store, "store"), (durable, "durable"), (transfer, "transfer")];
        flags.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_follows_from_an_edit_of_a_file_is_said_by_its_difference() {
        let moved =
            |change: fn(&mut Transfer)| follows(move |file| file.transfer.iter_mut().for_each(change));
        assert_eq!(follows(|_| {}), "");
        assert_eq!(follows(|file| file.status = FileStatus::Present), "store");
        assert_eq!(follows(|file| file.status = FileStatus::Uploaded), "store durable");
        assert_eq!(follows(|file| file.status = FileStatus::Failed(-1, String::new())), "store");
        assert_eq!(follows(|file| file.signed = true), "store");
        assert_eq!(follows(|file| file.stale = Bytes(1)), "store");
        assert_eq!(follows(|file| file.found = Some((Bytes(1), String::new()))), "store");
        assert_eq!(
            follows(|file| {
                file.proof = Some(RequiredSignature { signature: String::new(), key: String::new() });
            }),
            "store"
        );
        assert_eq!(follows(|file| file.info.nbytes = Some(Bytes(1))), "store");
        assert_eq!(follows(|file| file.info.sticky = true), "store");
        assert_eq!(follows(|file| file.kept.last_used = Some(NOW)), "store");
        assert_eq!(follows(|file| file.transfer = None), "store transfer");
        assert_eq!(moved(|transfer| transfer.direction = Direction::Upload), "store transfer");
        assert_eq!(moved(|transfer| transfer.url_index = 1), "store");
        assert_eq!(moved(|transfer| transfer.active = false), "transfer");
        let fail = |transfer: &mut Transfer| {
            use rand_pcg::rand_core::SeedableRng as _;
            transfer.backoff.on_failure(NOW, &mut rand_pcg::Pcg64Mcg::seed_from_u64(1));
        };
        assert_eq!(moved(fail), "store transfer");
    }
}
