//! The memory that is shared with one application: its channel.
//!
//! Model: an application maps `boinc_mmap_file` of its slot, and may cut it short at any instant; whoever had
//! it mapped too would be killed by the kernel at the next touch. So this end maps nothing that an
//! application can change the length of: it reads and writes the file by its descriptor, which goes through
//! the same pages, and where the file is too short there is nothing to be read. Applications built before API
//! 6.0 use System V shared memory instead, whose length nobody can change: that is mapped.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use fallow_boinc::runtime::channel::{ChannelMemory, Channels, FILE_LEN};
use fallow_boinc::runtime::{files, init_data};

use super::slot_dir::SlotDir;
use crate::sys::Segment;

/// A channel's memory.
#[derive(Debug)]
pub(super) enum SharedMemory {
    /// `boinc_mmap_file`.
    Mapped(Reached),
    /// A System V segment.
    Segment(Segment),
}

impl SharedMemory {
    /// Makes the file anew, zeroed.
    pub(super) fn in_file(place: &SlotDir) -> io::Result<Self> {
        let file = place.make(files::CHANNEL, 0o600)?;
        // Written, not only made that long: on a full disk the application would be killed by touching what
        // has no place.
        file.write_all_at(&[0; FILE_LEN], 0)?;
        Ok(Self::Mapped(Reached(file)))
    }

    /// What `init_data.xml` says of it (BOINC: `shm_key`).
    pub(super) fn key(&self) -> i32 {
        match self {
            Self::Mapped(_) => init_data::MAPPED_CHANNEL,
            Self::Segment(segment) => segment.key(),
        }
    }

    /// The channels in it.
    pub(super) fn channels(&self) -> Channels<'_> {
        match self {
            Self::Mapped(file) => Channels::over(file),
            Self::Segment(segment) => segment.channels(),
        }
    }
}

/// A file that is read and written.
#[derive(Debug)]
pub(super) struct Reached(File);

impl ChannelMemory for Reached {
    fn read(&self, at: usize, bytes: &mut [u8]) -> bool {
        self.0.read_exact_at(bytes, at as u64).is_ok()
    }

    fn write(&self, at: usize, bytes: &[u8]) -> bool {
        // Not beyond its end, which would make it longer again behind the application's back.
        let is_whole = self.0.metadata().is_ok_and(|data| data.len() >= FILE_LEN as u64);
        is_whole && self.0.write_all_at(bytes, at as u64).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trash::Trash;
    use fallow_application::mapping::Mapping;
    use fallow_boinc::runtime::channel::Channel;

    #[test]
    fn what_one_end_maps_the_other_reads_and_writes() {
        let dir = tempfile::tempdir().unwrap();
        let place = SlotDir::create(&dir.path().join("slot"), &Trash::at(dir.path().join("trash"))).unwrap();
        let client = SharedMemory::in_file(&place).unwrap();
        let application = Mapping::open(&place.path().join(files::CHANNEL)).unwrap();
        assert!(client.channels().send(Channel::Heartbeat, "<heartbeat/>"));
        assert!(!client.channels().send(Channel::Heartbeat, "again"));
        assert_eq!(application.channels().receive(Channel::Heartbeat).as_deref(), Some("<heartbeat/>"));
        assert!(application.channels().send(Channel::AppStatus, "<status/>"));
        assert_eq!(client.channels().receive(Channel::AppStatus).as_deref(), Some("<status/>"));
        assert!(!application.channels().is_full(Channel::AppStatus));
    }

    #[test]
    fn a_file_that_is_cut_short_holds_nothing_and_takes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let place = SlotDir::create(&dir.path().join("slot"), &Trash::at(dir.path().join("trash"))).unwrap();
        let client = SharedMemory::in_file(&place).unwrap();
        File::options().write(true).open(place.path().join(files::CHANNEL)).unwrap().set_len(0).unwrap();
        assert!(!client.channels().send(Channel::Heartbeat, "<heartbeat/>"));
        assert_eq!(client.channels().receive(Channel::AppStatus), None);
    }
}
