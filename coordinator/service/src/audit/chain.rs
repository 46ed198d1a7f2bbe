//! The chain: each entry's hash is over the hash of the one before it and the entry itself.
//!
//! So no entry can be changed, taken out, put in or moved without all hashes behind it being others. What an
//! entry is hashed as depends on nothing but its content: every text stands behind its length, so that no two
//! entries are the same bytes.

use fallow_domain::{Instant, from_hex, hex};
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use super::record::{Actor, Outcome, Record};

/// Begins what is hashed, and names the layout.
const LAYOUT: &str = "fallow audit entry 1";

/// What an entry is known by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryHash([u8; 32]);

impl EntryHash {
    /// As hexadecimal digits.
    #[must_use]
    pub fn to_hex(self) -> String {
        hex(&self.0)
    }

    /// From hexadecimal digits.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        from_hex(text)?.try_into().ok().map(Self)
    }
}

impl Serialize for EntryHash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_hex())
    }
}

impl<'de> Deserialize<'de> for EntryHash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::from_hex(&text).ok_or_else(|| serde::de::Error::custom("a hash has 64 hexadecimal digits"))
    }
}

/// A record in its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Counts from 1, without gaps.
    pub sequence: u64,
    /// When.
    pub at: Instant,
    /// Refusals of the same kind that were not recorded since the last one that was.
    pub unrecorded: u64,
    /// What.
    pub record: Record,
    /// Over all of it and the hash of the entry before.
    pub hash: EntryHash,
}

/// The end of the chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The number of the newest entry; 0 for none.
    pub sequence: u64,
    /// Its hash; zeros for none.
    pub hash: EntryHash,
}

impl Head {
    /// The entry that follows, and the end after it.
    #[must_use]
    pub fn followed_by(self, at: Instant, unrecorded: u64, record: Record) -> Entry {
        let mut entry =
            Entry { sequence: self.sequence + 1, at, unrecorded, record, hash: EntryHash::default() };
        entry.hash = entry.hash_behind(self.hash);
        entry
    }
}

impl Entry {
    /// The end of a chain whose newest entry this is.
    #[must_use]
    pub fn head(&self) -> Head {
        Head { sequence: self.sequence, hash: self.hash }
    }

    fn hash_behind(&self, previous: EntryHash) -> EntryHash {
        let Self { sequence, at, unrecorded, record, hash: _ } = self;
        let Record { actor, from, action, object, before, after, message, outcome } = record;
        let kind = match actor {
            Actor::Operator(_) => "operator",
            Actor::Named(_) => "named operator",
            Actor::Coordinator => "coordinator",
            Actor::Agent(_) => "agent",
            Actor::Stranger => "stranger",
        };
        let (ended, why) = match outcome {
            Outcome::Done => ("done", ""),
            Outcome::Refused(why) => ("refused", why.as_str()),
        };
        let mut context = Context::new(&SHA256);
        context.update(&previous.0);
        for number in [*sequence, at.as_micros().cast_unsigned(), *unrecorded] {
            context.update(&number.to_be_bytes());
        }
        let texts =
            [LAYOUT, kind, actor.name(), from, action.words(), object, before, after, message, ended, why];
        for text in texts {
            context.update(&(text.len() as u64).to_be_bytes());
            context.update(text.as_bytes());
        }
        let mut hash = [0; 32];
        hash.copy_from_slice(context.finish().as_ref());
        EntryHash(hash)
    }
}

/// Where a chain is not whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainBroken {
    /// An entry is missing, or there are two of one number.
    #[error("after entry {whole} comes entry {found}: entries were taken out, put in or moved")]
    Gap {
        /// The last one up to which all is whole.
        whole: u64,
        /// The number of what stands behind it.
        found: u64,
    },
    /// An entry is not what it was when it was written, or what stood before it was another.
    #[error(
        "entry {entry} was changed, or is not the one that followed entry {whole}: its hash does not fit"
    )]
    Changed {
        /// The last one up to which all is whole.
        whole: u64,
        /// The entry.
        entry: u64,
    },
    /// There were more entries.
    #[error("the log ends after entry {whole}, and {head} were written")]
    CutOff {
        /// The last one up to which all is whole.
        whole: u64,
        /// The number of the newest one.
        head: u64,
    },
    /// The last entry is another than the one that was written.
    #[error("the newest entry, {whole}, is not the one that was written last: its hash is another")]
    OtherEnd {
        /// The number of the newest one.
        whole: u64,
    },
}

/// Follows a chain from its beginning.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chain(Head);

impl Chain {
    /// Takes the next entry.
    ///
    /// # Errors
    /// [`ChainBroken`].
    pub fn follow(&mut self, entry: &Entry) -> Result<(), ChainBroken> {
        let whole = self.0.sequence;
        if entry.sequence != whole + 1 {
            return Err(ChainBroken::Gap { whole, found: entry.sequence });
        }
        if entry.hash_behind(self.0.hash) != entry.hash {
            return Err(ChainBroken::Changed { whole, entry: entry.sequence });
        }
        self.0 = entry.head();
        Ok(())
    }

    /// Up to where it was followed.
    #[must_use]
    pub fn head(&self) -> Head {
        self.0
    }

    /// All of it was taken: whether that is all that was written.
    ///
    /// # Errors
    /// [`ChainBroken`].
    pub fn ends(&self, head: Head) -> Result<(), ChainBroken> {
        let whole = self.0.sequence;
        match () {
            () if whole < head.sequence => Err(ChainBroken::CutOff { whole, head: head.sequence }),
            () if whole > head.sequence => {
                Err(ChainBroken::Gap { whole: head.sequence, found: head.sequence + 1 })
            }
            () if self.0.hash != head.hash => Err(ChainBroken::OtherEnd { whole }),
            () => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use fallow_domain::AgentId;
    use proptest::prelude::*;

    use super::*;
    use crate::audit::record::Action;

    fn checked(entries: &[Entry], head: Head) -> Result<(), ChainBroken> {
        let mut chain = Chain::default();
        entries.iter().try_for_each(|entry| chain.follow(entry))?;
        chain.ends(head)
    }

    fn record() -> impl Strategy<Value = Record> {
        let actor = prop_oneof![
            "[a-c]{0,2}".prop_map(Actor::Operator),
            "[a-c]{0,2}".prop_map(Actor::Named),
            Just(Actor::Coordinator),
            "[a-c]{0,2}".prop_map(|id| Actor::Agent(AgentId(id))),
            Just(Actor::Stranger),
        ];
        let texts = ("[a-c]{0,2}", "[a-c]{0,2}", "[a-c]{0,2}", "[a-c]{0,2}", "[a-c]{0,2}");
        let outcome = prop_oneof![Just(Outcome::Done), "[a-c]{0,2}".prop_map(Outcome::Refused)];
        let action = (0..Action::ALL.len()).prop_map(|at| Action::ALL[at]);
        (actor, action, texts, outcome).prop_map(|(actor, action, texts, outcome)| {
            let (from, object, before, after, message) = texts;
            Record { actor, from, action, object, before, after, message, outcome }
        })
    }

    prop_compose! {
        fn entries()(records in prop::collection::vec((record(), 0..3_i64, 0..3_u64), 2..12)) -> Vec<Entry> {
            let mut head = Head::default();
            let mut follow = |(record, at, unrecorded)| {
                let entry = head.followed_by(Instant::from_micros(at), unrecorded, record);
                head = entry.head();
                entry
            };
            records.into_iter().map(&mut follow).collect()
        }
    }

    proptest! {
        #[test]
        fn r6_10_a_chain_that_nobody_touched_is_whole(entries in entries()) {
            prop_assert_eq!(checked(&entries, entries[entries.len() - 1].head()), Ok(()));
        }

        #[test]
        fn r6_10_any_change_of_an_entry_is_found_where_it_is(
            mut entries in entries(), at in any::<prop::sample::Index>(), other in record(), field in 0..4_u8,
        ) {
            let at = at.index(entries.len());
            let head = entries[entries.len() - 1].head();
            let before = entries[at].clone();
            match field {
                0 => entries[at].record = other,
                1 => entries[at].at = entries[at].at + fallow_domain::Duration::from_micros(1),
                2 => entries[at].unrecorded += 1,
                _ => entries[at].hash = EntryHash([7; 32]),
            }
            prop_assume!(entries[at] != before);
            let whole = at as u64;
            prop_assert_eq!(checked(&entries, head), Err(ChainBroken::Changed { whole, entry: whole + 1 }));
        }

        #[test]
        fn r6_10_a_changed_entry_with_a_hash_that_fits_it_does_not_fit_what_follows(
            mut entries in entries(), at in any::<prop::sample::Index>(), other in record(),
        ) {
            let at = at.index(entries.len());
            let head = entries[entries.len() - 1].head();
            prop_assume!(entries[at].record != other);
            let previous = if at == 0 { Head::default() } else { entries[at - 1].head() };
            entries[at] = previous.followed_by(entries[at].at, entries[at].unrecorded, other);
            prop_assert!(checked(&entries, head).is_err());
        }

        #[test]
        fn r6_10_entries_that_are_cut_out_or_off_are_missed(
            mut entries in entries(), at in any::<prop::sample::Index>(), count in 1..4_usize,
        ) {
            let at = at.index(entries.len());
            let head = entries[entries.len() - 1].head();
            entries.drain(at..entries.len().min(at + count));
            prop_assert!(checked(&entries, head).is_err());
        }

        #[test]
        fn r6_10_entries_that_change_places_are_found_also_with_each_others_numbers(
            mut entries in entries(), one in any::<prop::sample::Index>(),
            other in any::<prop::sample::Index>(),
            renumbered in any::<bool>(),
        ) {
            let (one, other) = (one.index(entries.len()), other.index(entries.len()));
            let head = entries[entries.len() - 1].head();
            prop_assume!(one != other);
            entries.swap(one, other);
            if renumbered {
                for at in [one, other] {
                    entries[at].sequence = at as u64 + 1;
                }
            }
            prop_assert!(checked(&entries, head).is_err());
        }
    }

    #[test]
    fn texts_that_run_into_each_other_are_other_bytes() {
        let record = |object: &str, before: &str| {
            Record::new(Actor::Stranger, "", Action::Enrolled, object).changed(before, "")
        };
        let hash = |record| Head::default().followed_by(Instant::EPOCH, 0, record).hash;
        assert_ne!(hash(record("ab", "c")), hash(record("a", "bc")));
    }

    /// The hash was made by another program, from the layout.
    #[test]
    fn what_is_hashed_stays_the_same_from_version_to_version() {
        let record = Record::new(Actor::Operator("ann".into()), "10.0.0.1:5", Action::HostRevoked, "pc-1");
        let entry = Head::default().followed_by(Instant::from_micros(7), 2, record.because("stolen"));
        assert_eq!(entry.hash.to_hex(), "d8c6f6b55d8f853c88bef2aa312de98aa776b0a79429f154ef3d92a3daebcd8d");
    }
}
