//! The channel's file in memory. The one place of this crate with unsafe code; a client can use it as well.

#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::path::Path;
use std::sync::atomic::AtomicU8;

use fallow_boinc::runtime::channel::{Channels, FILE_LEN};
use memmap2::{MmapOptions, MmapRaw};

/// `boinc_mmap_file`, mapped shared: the other process sees what is written here at once.
#[derive(Debug)]
pub struct Mapping(MmapRaw);

impl Mapping {
    /// Makes the file, empty channels and all, as a client does before it starts an application. A file that
    /// an earlier start has left is replaced, so that its late readers see nothing of this one.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn create(path: &Path) -> Result<Self> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => (),
        }
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        file.set_len(FILE_LEN as u64)?;
        Self::map(&file)
    }

    /// Maps a file that is there, as an application does.
    ///
    /// # Errors
    /// When it cannot be opened, or is shorter than a channel file.
    pub fn open(path: &Path) -> Result<Self> {
        Self::map(&OpenOptions::new().read(true).write(true).open(path)?)
    }

    fn map(file: &File) -> Result<Self> {
        if file.metadata()?.len() < FILE_LEN as u64 {
            return Err(Error::new(
                ErrorKind::InvalidData,
                "the file is shorter than the channel's 8192 bytes",
            ));
        }
        MmapOptions::new().len(FILE_LEN).map_raw(file).map(Self)
    }

    /// The channels in it.
    pub fn channels(&self) -> Channels<'_> {
        // SAFETY: the mapping is FILE_LEN bytes long, readable and writable, and lives as long as `self`, to
        // which the slice is bound. An AtomicU8 has the size and alignment of a byte, and every access from
        // this process goes through these atomics, so the other process's writes cannot be a data race here.
        // A file cut short by somebody after `map` has looked at its length would end this process with
        // SIGBUS; no client does that, and one that wants this process gone has simpler means.
        let bytes = unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast::<AtomicU8>(), FILE_LEN) };
        match Channels::new(bytes) {
            Some(channels) => channels,
            None => unreachable!("the slice is FILE_LEN bytes long"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fallow_boinc::runtime::channel::Channel;

    #[test]
    fn two_mappings_of_one_file_are_two_ends_of_a_channel() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("boinc_mmap_file");
        let client = Mapping::create(&path).unwrap();
        let application = Mapping::open(&path).unwrap();
        assert!(client.channels().send(Channel::ControlRequest, "<quit/>"));
        assert_eq!(application.channels().receive(Channel::ControlRequest).as_deref(), Some("<quit/>"));
        assert!(!client.channels().is_full(Channel::ControlRequest));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 8192);
    }

    #[test]
    fn a_file_too_short_to_be_a_channel_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("boinc_mmap_file");
        std::fs::write(&path, [0; 8191]).unwrap();
        assert_eq!(Mapping::open(&path).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn a_new_start_does_not_see_messages_of_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("boinc_mmap_file");
        let old = Mapping::create(&path).unwrap();
        let new = Mapping::create(&path).unwrap();
        assert!(old.channels().send(Channel::AppStatus, "late"));
        assert!(!new.channels().is_full(Channel::AppStatus));
    }
}
