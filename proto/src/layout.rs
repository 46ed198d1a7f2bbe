//! How messages lie in memory once they are decoded, and how much of it one may take (R6.10).
//!
//! A few bytes on the wire may become many: an empty entry has two, and takes 250 in a list. So each message
//! that is asked or answered has a bound for what it becomes, in proportion to its length, which is looked
//! at before it is decoded (`weight`).

/// How a message lies in memory.
#[derive(Debug)]
pub struct Layout {
    /// Bytes of the message, without what its fields keep elsewhere.
    pub(crate) bytes: usize,
    /// What its fields are, by their numbers.
    pub(crate) fields: &'static [Kind],
}

/// What a field keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Nothing elsewhere: a number, or a field that is not known here.
    Plain,
    /// A list of numbers.
    #[cfg_attr(not(test), expect(dead_code, reason = "no message has one so far"))]
    Numbers,
    /// A text or bytes.
    Text,
    /// A list of these.
    Texts,
    /// A message within this one.
    Message(&'static Layout),
    /// The same, kept elsewhere.
    Boxed(&'static Layout),
    /// A list of messages.
    Messages(&'static Layout),
}

/// How much memory a message may take.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// However short it is.
    least: usize,
    /// And so much for each of its bytes.
    for_each: usize,
    /// However long it is.
    most: usize,
}

impl Room {
    /// Between agents and coordinators. The shortest 20,000 entries, as many as one message may have, take 11
    /// MiB, twelve times their length; those of real jobs 14, three times theirs.
    pub(crate) const LINK: Self = Self { least: 16 << 20, for_each: 4, most: 48 << 20 };
    /// What operators ask. The shortest 100,000 workunits, a hundred times as many as are taken at once, take
    /// 40 MiB, 36 times their length; with a file in and one out each 110, which is fourteen times.
    pub(crate) const REQUEST: Self = Self { least: 64 << 20, for_each: 12, most: 256 << 20 };
    /// What they are answered: lists, of a coordinator of their own. 100,000 hosts that were never there
    /// take 230 MiB, 60 times their length.
    pub(crate) const ANSWER: Self = Self { least: 256 << 20, for_each: 16, most: 1 << 30 };

    /// Of a message of so many bytes.
    #[must_use]
    pub(crate) const fn of(self, bytes: usize) -> usize {
        let room = self.least.saturating_add(bytes.saturating_mul(self.for_each));
        if room > self.most { self.most } else { room }
    }
}

/// A message that is asked or answered.
pub trait Decodable {
    /// How much memory it may take.
    const ROOM: Room;

    /// How it lies in memory.
    fn layout() -> &'static Layout;
}

include!(concat!(env!("OUT_DIR"), "/layouts.rs"));
