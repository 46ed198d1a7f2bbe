//! The one door through which files and their transfers are changed: what follows is found by difference
//! (`file_table`) and seen to here.

use rand_pcg::Pcg64Mcg;

use crate::FileKey;
use crate::file_table::Difference;
use crate::machine::Client;
use crate::record::Record;
use crate::state::{File, Transfer};
use crate::timers::Timer;
use crate::transfers::Rank;

impl Client {
    /// Changes a file, and sees to what follows. Nothing, if there is none of that name.
    pub(crate) fn edit_file<T>(&mut self, key: &FileKey, change: impl FnOnce(&mut File) -> T) -> Option<T> {
        let (told, found) = self.state.files.edit(key, change)?;
        self.note_file_difference(key, None, found);
        Some(told)
    }

    /// The same where its transfer is wanted so soon.
    pub(crate) fn edit_file_wanted<T>(
        &mut self,
        key: &FileKey,
        rank: Rank,
        change: impl FnOnce(&mut File) -> T,
    ) -> Option<T> {
        let (told, found) = self.state.files.edit(key, change)?;
        self.note_file_difference(key, Some(rank), found);
        Some(told)
    }

    /// The same of its transfer alone, by something that may need a draw.
    pub(crate) fn edit_transfer<T>(
        &mut self,
        key: &FileKey,
        change: impl FnOnce(&mut Transfer, &mut Pcg64Mcg) -> T,
    ) -> Option<T> {
        let rng = self.random.stream();
        let change = |file: &mut File| file.transfer.as_mut().map(|transfer| change(transfer, rng));
        let (told, found) = self.state.files.edit(key, change)?;
        self.note_file_difference(key, None, found);
        told
    }

    /// Its project describes a file anew.
    pub(crate) fn describe_file(&mut self, key: &FileKey, change: impl FnOnce(&mut File)) {
        if let Some(found) = self.state.files.describe(key, change) {
            self.note_file_difference(key, None, found);
        }
    }

    /// Takes in a new file.
    pub(crate) fn insert_file(&mut self, key: FileKey, file: File) {
        self.state.files.insert(key.clone(), file);
        self.disk.file_changed(&key);
        self.mark(Record::File(key));
    }

    /// Takes out a file. Nobody waits for it any more.
    pub(crate) fn remove_file(&mut self, key: &FileKey) -> Option<File> {
        self.state.file_use.forget(key);
        let file = self.state.files.remove(key)?;
        self.disk.deleted(key);
        if file.transfer.is_some() {
            self.place_transfer(key, None);
        }
        self.mark(Record::File(key.clone()));
        Some(file)
    }

    fn note_file_difference(&mut self, key: &FileKey, rank: Option<Rank>, found: Difference) {
        if found.transfer || found.store {
            self.disk.file_changed(key);
        }
        if found.transfer {
            self.place_transfer(key, rank);
        }
        if found.durable {
            self.mark_durable(Record::File(key.clone()));
        } else if found.store {
            self.mark(Record::File(key.clone()));
        }
    }

    /// Keeps the order of transfers in step with a file's own. Without a rank it keeps the one that it has.
    ///
    /// A transfer that begins, ends, waits or fails changes here, so here the timer of transfers is marked.
    /// Three other things mark it as well: a transfer that ends well, for it lets others of its project
    /// begin; another use of the network; and a clock that was set back.
    pub(crate) fn place_transfer(&mut self, key: &FileKey, rank: Option<Rank>) {
        let transfer = self.state.files.get(key).and_then(|file| file.transfer.as_ref());
        self.state.transfers.place(key, transfer, rank, self.clock.now());
        self.timers.stale(Timer::Transfer);
    }
}
