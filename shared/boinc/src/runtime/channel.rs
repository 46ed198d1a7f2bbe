//! The application channel: `boinc_mmap_file`, 8 KiB shared between a client and one application.
//!
//! Model: eight channels of 1,024 bytes, each with one direction. Byte 0 of a channel is a flag, the rest a
//! text that ends in a zero byte. The sender writes only while the flag is 0, then sets it to 1; the receiver
//! copies the text, then clears the flag. A channel thus holds one message and never more; a sender that
//! finds it full keeps its message for later or drops it, as the kind of message demands.
//!
//! The memory belongs to two processes at once. An end that maps it sees it as atomic bytes: the flag is
//! stored with release and loaded with acquire order, which makes the text complete for whoever sees the
//! flag. An end that must survive whatever the other one does to the file reads and writes the file instead
//! ([`ChannelMemory`]); both ways lead to the same pages. The other process may break every rule; then a text
//! is garbage, which the parsers of [`super::message`] take for absent.
//!
//! Left out: the overwriting send, which BOINC keeps for channels that nobody uses any more.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

/// Bytes of one channel, flag included.
pub const CHANNEL_LEN: usize = 1024;
/// Bytes of the whole file. A client creates it zeroed, in this length.
pub const FILE_LEN: usize = 8 * CHANNEL_LEN;

/// One of the eight channels, in the order of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Channel {
    /// To the application: suspend, resume, quit, abort, reread (BOINC: `process_control_request`).
    ControlRequest = 0,
    /// Not used by anybody (BOINC: `process_control_reply`).
    ControlReply = 1,
    /// Not used by anybody (BOINC: `graphics_request`).
    GraphicsRequest = 2,
    /// To the client: addresses of web graphics and remote desktops (BOINC: `graphics_reply`).
    GraphicsReply = 3,
    /// To the application, every second (BOINC: `heartbeat`).
    Heartbeat = 4,
    /// To the client, every second (BOINC: `app_status`).
    AppStatus = 5,
    /// To the client: a trickle message or an early upload waits (BOINC: `trickle_up`).
    TrickleUp = 6,
    /// To the application: a trickle message or the state of an upload waits (BOINC: `trickle_down`).
    TrickleDown = 7,
}

/// Shared memory that is reached by calls, such as a file that is read and written.
pub trait ChannelMemory {
    /// Fills `bytes` with what lies at `at`. False if that cannot be had.
    fn read(&self, at: usize, bytes: &mut [u8]) -> bool;
    /// Puts `bytes` to `at`, all of it seen by the other end before whatever a later call writes. False if
    /// that cannot be done.
    fn write(&self, at: usize, bytes: &[u8]) -> bool;
}

/// The whole shared memory, as both ends see it.
#[derive(Clone, Copy)]
pub struct Channels<'a>(Memory<'a>);

#[derive(Clone, Copy)]
enum Memory<'a> {
    Mapped(&'a [AtomicU8]),
    Reached(&'a dyn ChannelMemory),
}

impl<'a> Channels<'a> {
    /// Sees `memory` as channels; none if it is shorter than [`FILE_LEN`].
    pub fn new(memory: &'a [AtomicU8]) -> Option<Self> {
        memory.get(..FILE_LEN).map(|memory| Self(Memory::Mapped(memory)))
    }

    /// Sees what is reached by calls as channels.
    pub fn over(memory: &'a dyn ChannelMemory) -> Self {
        Self(Memory::Reached(memory))
    }

    /// Empties all channels, as a client does before it starts an application.
    pub fn clear(&self) {
        self.0.write(0, &[0; FILE_LEN]);
    }

    /// Puts a text into a channel, unless the last one is still unread.
    ///
    /// Returns false if it was, and nothing changed. A text too long for the channel (more than 1,022 bytes),
    /// or with a zero byte in it, is cut there.
    #[must_use = "a message that was not sent must be kept or dropped on purpose"]
    pub fn send(&self, channel: Channel, text: &str) -> bool {
        if self.is_full(channel) {
            return false;
        }
        // The final zero comes with the text, so that a text shorter than the last one ends where it should.
        let text = text.bytes().take_while(|&byte| byte != 0).take(CHANNEL_LEN - 2);
        let bytes: Vec<u8> = text.chain([0]).collect();
        let at = channel as usize * CHANNEL_LEN;
        self.0.write(at + 1, &bytes) && self.0.write(at, &[1])
    }

    /// Takes the text out of a channel and empties it; none if it is empty.
    pub fn receive(&self, channel: Channel) -> Option<String> {
        if !self.is_full(channel) {
            return None;
        }
        let at = channel as usize * CHANNEL_LEN;
        let mut bytes = [0; CHANNEL_LEN - 1];
        // Emptied after the copy, so that the sender's next text cannot overtake it.
        if !self.0.read(at + 1, &mut bytes) || !self.0.write(at, &[0]) {
            return None;
        }
        let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        Some(String::from_utf8_lossy(text).into_owned())
    }

    /// True while a text waits to be received. BOINC takes every flag but 0 for full. Memory that cannot be
    /// read holds nothing.
    pub fn is_full(&self, channel: Channel) -> bool {
        let mut flag = [0];
        self.0.read(channel as usize * CHANNEL_LEN, &mut flag) && flag != [0]
    }
}

impl Memory<'_> {
    fn read(self, at: usize, bytes: &mut [u8]) -> bool {
        match self {
            Self::Mapped(memory) => memory.get(at..at + bytes.len()).is_some_and(|cells| {
                cells.iter().zip(bytes).for_each(|(cell, byte)| *byte = cell.load(Ordering::Acquire));
                true
            }),
            Self::Reached(memory) => memory.read(at, bytes),
        }
    }

    fn write(self, at: usize, bytes: &[u8]) -> bool {
        match self {
            Self::Mapped(memory) => memory.get(at..at + bytes.len()).is_some_and(|cells| {
                cells.iter().zip(bytes).for_each(|(cell, byte)| cell.store(*byte, Ordering::Release));
                true
            }),
            Self::Reached(memory) => memory.write(at, bytes),
        }
    }
}

impl fmt::Debug for Channels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Channels")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn memory() -> Vec<AtomicU8> {
        (0..FILE_LEN).map(|_| AtomicU8::new(0)).collect()
    }

    const ALL: [Channel; 8] = [
        Channel::ControlRequest,
        Channel::ControlReply,
        Channel::GraphicsRequest,
        Channel::GraphicsReply,
        Channel::Heartbeat,
        Channel::AppStatus,
        Channel::TrickleUp,
        Channel::TrickleDown,
    ];

    #[test]
    fn a_message_lies_where_boinc_looks_for_it() {
        let memory = memory();
        assert!(Channels::new(&memory).unwrap().send(Channel::AppStatus, "<a/>"));
        let bytes: Vec<u8> = memory.iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
        assert_eq!(&bytes[0x1400..0x1406], b"\x01<a/>\0");
        assert!(bytes[..0x1400].iter().all(|&byte| byte == 0));
        assert!(bytes[0x1406..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn an_unread_message_is_never_overwritten() {
        let memory = memory();
        let channels = Channels::new(&memory).unwrap();
        assert!(channels.send(Channel::Heartbeat, "first and long"));
        assert!(!channels.send(Channel::Heartbeat, "second"));
        assert_eq!(channels.receive(Channel::Heartbeat).as_deref(), Some("first and long"));
        assert_eq!(channels.receive(Channel::Heartbeat), None);
        assert!(channels.send(Channel::Heartbeat, "third"));
        assert_eq!(channels.receive(Channel::Heartbeat).as_deref(), Some("third"));
    }

    #[test]
    fn memory_that_is_too_short_is_refused() {
        assert!(Channels::new(&memory()[1..]).is_none());
    }

    #[test]
    fn a_channel_without_a_final_zero_ends_at_its_own_end() {
        let memory: Vec<AtomicU8> = (0..FILE_LEN).map(|_| AtomicU8::new(b'x')).collect();
        let text = Channels::new(&memory).unwrap().receive(Channel::TrickleDown).unwrap();
        assert_eq!(text.len(), CHANNEL_LEN - 1);
    }

    proptest! {
        #[test]
        fn what_is_sent_is_received_and_no_other_channel_sees_it(
            which in 0_usize..8, first in "[ -~]{0,1022}", second in "[ -~]{0,1022}",
        ) {
            let memory = memory();
            let channels = Channels::new(&memory).unwrap();
            for text in [first, second] {
                prop_assert!(channels.send(ALL[which], &text));
                for (other, &channel) in ALL.iter().enumerate() {
                    prop_assert_eq!(channels.is_full(channel), other == which);
                }
                prop_assert_eq!(channels.receive(ALL[which]), Some(text));
            }
        }

        #[test]
        fn any_bytes_at_all_are_received_without_harm(bytes in prop::collection::vec(any::<u8>(), FILE_LEN)) {
            let memory: Vec<AtomicU8> = bytes.into_iter().map(AtomicU8::new).collect();
            let channels = Channels::new(&memory).unwrap();
            for channel in ALL {
                let _ = channels.receive(channel);
                prop_assert!(!channels.is_full(channel));
            }
        }
    }
}
