//! What still has to be told to the coordinator (R6.3): a set of keys, and what is under way.
//!
//! Model: a key is *dirty* when its entry changed since it was last sent. A message takes the dirty keys (not
//! values: those are looked up when it is written), gets the next sequence number and is *under way* until
//! that number is acknowledged. So memory is bounded by the number of entities and not by how often they
//! change or for how long the coordinator is away: when more than a batch of deltas has gathered in its
//! absence, the next connection begins with a snapshot instead, and until then nothing is kept. After a
//! reconnect the coordinator says up to which number it applied; what was under way behind that becomes dirty
//! again. Where the two sides do not agree on what was sent, a snapshot starts over.
//!
//! Amounts are totals, so that sending one again is harmless.

use std::collections::{BTreeMap, VecDeque};

use fallow_client::Entity;
use fallow_domain::agent_state::EntryKey;

use super::Followed;

/// Most entries in a message: some hundred kilobytes.
pub const BATCH_MAX: usize = 500;
/// Most changes that are kept while there is no connection.
pub const AWAY_MAX: usize = 2_000;
/// Most messages under way. A coordinator that acknowledges nothing gets no more than these.
pub const UNDER_WAY_MAX: usize = 8;

/// The state of one agent's report.
#[derive(Debug, Default)]
pub struct Outbox {
    dirty: BTreeMap<EntryKey, Entity>,
    under_way: VecDeque<Batch>,
    /// The last sequence number that was given.
    sent: u64,
    /// The last one that the coordinator is known to have applied.
    applied: u64,
    /// The sequence number of the last snapshot, which must be applied before a delta means anything; none
    /// while no snapshot was sent.
    snapshot: Option<u64>,
    /// A connection stands.
    linked: bool,
    /// What the last report of the host that has reached the coordinator said that it follows, until it is
    /// taken.
    heard: Option<Followed>,
}

/// A message to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Its sequence number.
    pub sequence: u64,
    /// It replaces all that was told before.
    pub is_snapshot: bool,
    /// The keys whose entries it carries, and whose they are.
    pub keys: Vec<(EntryKey, Entity)>,
    /// What it says that the host follows, if it says anything of the host.
    pub follows: Option<Followed>,
}

impl Outbox {
    /// The entry under `key` changed or is gone.
    pub fn touch(&mut self, key: EntryKey, entity: Entity) {
        if !self.linked {
            // Keys of what came and went while nobody listened would gather without end.
            if self.snapshot.is_none() {
                return;
            }
            if self.dirty.len() >= AWAY_MAX {
                return self.forget();
            }
        }
        self.dirty.insert(key, entity);
    }

    /// The connection is gone.
    pub fn lost(&mut self) {
        self.linked = false;
    }

    /// Forgets what was to be told: a snapshot tells it all.
    fn forget(&mut self) {
        self.snapshot = None;
        self.dirty.clear();
        self.under_way.clear();
    }

    /// A connection stands; the coordinator has applied up to `applied`, of this epoch if `same_epoch`.
    ///
    /// Returns true if a snapshot is needed: then [`Self::restart`] is to be called with all keys.
    #[must_use]
    pub fn resume(&mut self, same_epoch: bool, applied: u64) -> bool {
        let known = same_epoch
            && self.snapshot.is_some_and(|snapshot| snapshot <= applied)
            && (self.applied..=self.sent).contains(&applied);
        self.linked = true;
        if !known {
            // What is touched from now on may be too new for the keys that the snapshot will be made of.
            self.forget();
            self.sent = if same_epoch { applied } else { 0 };
            return true;
        }
        self.acknowledge(applied);
        for batch in std::mem::take(&mut self.under_way) {
            for (key, entity) in batch.keys {
                // What became dirty meanwhile names the newer entity.
                self.dirty.entry(key).or_insert(entity);
            }
        }
        self.sent = applied;
        false
    }

    /// Starts over with a snapshot of all of `keys`. The first batch of it is the snapshot, the rest are
    /// deltas.
    pub fn restart(&mut self, keys: impl IntoIterator<Item = (EntryKey, Entity)>) {
        for (key, entity) in keys {
            // What became dirty since the connection stands names the newer entity.
            self.dirty.entry(key).or_insert(entity);
        }
        self.applied = self.sent;
    }

    /// The next message, if there is something to tell and not too much under way.
    pub fn take_next(&mut self) -> Option<Batch> {
        let is_snapshot = self.snapshot.is_none();
        if self.under_way.len() >= UNDER_WAY_MAX || (self.dirty.is_empty() && !is_snapshot) {
            return None;
        }
        let mut keys = Vec::new();
        while keys.len() < BATCH_MAX
            && let Some(entry) = self.dirty.pop_first()
        {
            keys.push(entry);
        }
        self.sent += 1;
        if is_snapshot {
            self.snapshot = Some(self.sent);
        }
        let batch = Batch { sequence: self.sent, is_snapshot, keys, follows: None };
        self.under_way.push_back(batch.clone());
        Some(batch)
    }

    /// The coordinator has applied up to `sequence`. Numbers that were never sent are passed over.
    pub fn acknowledge(&mut self, sequence: u64) {
        if sequence > self.sent {
            return;
        }
        self.applied = self.applied.max(sequence);
        while let Some(batch) = self.under_way.pop_front_if(|batch| batch.sequence <= sequence) {
            self.heard = batch.follows.or(self.heard);
        }
    }

    /// Messages up to `sequence` have reached the coordinator, which could not store them: they stay under
    /// way. Numbers that were never sent are passed over.
    pub fn received(&mut self, sequence: u64) {
        if sequence <= self.sent {
            let reached = self.under_way.iter().take_while(|batch| batch.sequence <= sequence);
            self.heard = reached.filter_map(|batch| batch.follows).last().or(self.heard);
        }
    }

    /// The message with that number says that the host follows this.
    pub fn says(&mut self, sequence: u64, follows: Followed) {
        if let Some(batch) = self.under_way.iter_mut().find(|batch| batch.sequence == sequence) {
            batch.follows = Some(follows);
        }
    }

    /// What the coordinator is known to have heard last of the document that the host follows, once.
    pub fn take_heard(&mut self) -> Option<Followed> {
        self.heard.take()
    }

    /// True while something is under way.
    pub fn is_waiting(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// True while there is something to tell.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fallow_domain::{DocumentVersion, Instant, JobId, MasterUrl};
    use std::collections::BTreeSet;

    fn key(n: u64) -> (EntryKey, Entity) {
        let project = MasterUrl::parse("http://127.0.0.1:1/p/").unwrap();
        (EntryKey::Task { project, name: n.to_string() }, Entity::Job(JobId(n)))
    }
    fn touch(outbox: &mut Outbox, n: u64) {
        let (key, entity) = key(n);
        outbox.touch(key, entity);
    }
    fn started(applied: u64) -> Outbox {
        let mut outbox = Outbox::default();
        assert!(outbox.resume(true, applied));
        outbox.restart([key(1)]);
        outbox
    }

    #[test]
    fn r6_3_a_new_life_starts_with_a_snapshot_behind_what_was_applied() {
        let mut outbox = started(41);
        let batch = outbox.take_next().unwrap();
        assert_eq!((batch.sequence, batch.is_snapshot, batch.keys.len()), (42, true, 1));
        assert_eq!(outbox.take_next(), None);
    }

    #[test]
    fn r6_3_another_epoch_counts_from_one() {
        let mut outbox = Outbox::default();
        assert!(outbox.resume(false, 41));
        outbox.restart([]);
        assert_eq!(outbox.take_next().unwrap().sequence, 1);
    }

    #[test]
    fn r6_3_what_was_not_applied_is_told_again_after_a_reconnect() {
        let mut outbox = started(0);
        outbox.take_next().unwrap();
        outbox.acknowledge(1);
        for n in [2, 3] {
            touch(&mut outbox, n);
            outbox.take_next().unwrap();
        }
        // The acknowledgement of 2 was lost with the connection, message 3 never arrived.
        assert!(!outbox.resume(true, 2));
        let batch = outbox.take_next().unwrap();
        assert_eq!((batch.sequence, batch.is_snapshot, batch.keys), (3, false, vec![key(3)]));
    }

    #[test]
    fn r6_3_a_snapshot_that_did_not_arrive_is_made_again() {
        let mut outbox = started(7);
        outbox.take_next().unwrap();
        assert!(outbox.resume(true, 7));
    }

    #[test]
    fn r6_3_a_coordinator_that_lost_its_store_gets_a_snapshot() {
        let mut outbox = started(0);
        outbox.take_next().unwrap();
        touch(&mut outbox, 2);
        outbox.take_next().unwrap();
        outbox.acknowledge(2);
        assert!(outbox.resume(true, 1), "it is behind what it had acknowledged");
        assert!(outbox.resume(false, 0));
    }

    #[test]
    fn r6_5_what_a_report_says_that_the_host_follows_is_acknowledged_with_it_also_over_the_next_connection() {
        let follows = |version| Followed { version: DocumentVersion(version), taken_at: Instant::EPOCH };
        let mut outbox = started(0);
        let first = outbox.take_next().unwrap().sequence;
        outbox.says(first, follows(1));
        touch(&mut outbox, 7);
        let second = outbox.take_next().unwrap().sequence;
        assert_eq!(outbox.take_heard(), None);
        outbox.acknowledge(second);
        assert_eq!(outbox.take_heard(), Some(follows(1)), "the newest that was said");
        assert_eq!(outbox.take_heard(), None, "once");
        for applied in [second, second + 1] {
            touch(&mut outbox, 7);
            let third = outbox.take_next().unwrap().sequence;
            assert_eq!(third, second + 1);
            outbox.says(third, follows(2));
            outbox.lost();
            assert!(!outbox.resume(true, applied));
            let is_heard = applied == third;
            assert_eq!(outbox.take_heard().is_some(), is_heard);
        }
    }

    #[test]
    fn r6_5_what_reached_a_coordinator_that_could_not_store_it_is_heard_and_told_again() {
        let follows = |version| Followed { version: DocumentVersion(version), taken_at: Instant::EPOCH };
        let mut outbox = started(0);
        for number in 1..=3 {
            touch(&mut outbox, 7);
            let sequence = outbox.take_next().unwrap().sequence;
            outbox.says(sequence, follows(number));
        }
        outbox.acknowledge(1);
        assert_eq!(outbox.take_heard(), Some(follows(1)));
        outbox.received(99);
        assert_eq!(outbox.take_heard(), None, "what was never sent");
        outbox.received(2);
        assert_eq!(outbox.take_heard(), Some(follows(2)));
        outbox.received(3);
        assert_eq!(outbox.take_heard(), Some(follows(3)));
        assert!(!outbox.resume(true, 1));
        let again = outbox.take_next().unwrap();
        assert_eq!((again.sequence, again.keys), (2, vec![key(7)]));
    }

    #[test]
    fn r6_3_a_change_under_way_coalesces_into_one_key() {
        let mut outbox = started(0);
        outbox.take_next().unwrap();
        for _ in 0..1000 {
            touch(&mut outbox, 2);
        }
        assert_eq!(outbox.take_next().unwrap().keys, [key(2)]);
    }

    #[test]
    fn r6_3_a_coordinator_that_acknowledges_nothing_gets_no_more_than_a_window() {
        let mut outbox = started(0);
        let mut sent = 0;
        for n in 0..100 {
            touch(&mut outbox, n);
            sent += usize::from(outbox.take_next().is_some());
        }
        assert_eq!(sent, UNDER_WAY_MAX);
        outbox.acknowledge(99);
        assert!(outbox.take_next().is_none(), "an acknowledgement of what was never sent is none");
        outbox.acknowledge(1);
        assert!(outbox.take_next().is_some());
    }

    #[test]
    fn r6_3_what_changes_while_the_snapshot_is_being_made_is_told_too() {
        let mut outbox = Outbox::default();
        assert!(outbox.resume(false, 0));
        let all = [key(1)];
        touch(&mut outbox, 2);
        outbox.restart(all);
        assert_eq!(outbox.take_next().unwrap().keys, [key(1), key(2)]);
    }

    #[test]
    fn r6_3_an_absence_of_weeks_holds_no_more_than_a_snapshot_can_tell() {
        let mut outbox = started(0);
        outbox.take_next().unwrap();
        outbox.acknowledge(1);
        outbox.lost();
        for n in 0..10 * AWAY_MAX as u64 {
            touch(&mut outbox, n);
            assert!(outbox.dirty.len() <= AWAY_MAX);
        }
        assert!(outbox.resume(true, 1), "a snapshot is needed");
        let never = &mut Outbox::default();
        touch(never, 1);
        assert!(!never.is_dirty(), "the first snapshot will tell it");
    }

    #[test]
    fn r6_3_a_big_snapshot_comes_in_parts() {
        let mut outbox = Outbox::default();
        assert!(outbox.resume(false, 0));
        outbox.restart((0..1200).map(key));
        let parts: Vec<Batch> = std::iter::from_fn(|| outbox.take_next()).collect();
        assert_eq!(parts.iter().map(|part| part.is_snapshot).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!(parts.iter().map(|part| part.keys.len()).sum::<usize>(), 1200);
    }

    proptest::proptest! {
        /// Whatever is lost on the way: in the end the coordinator has been told of every key that was ever
        /// touched, after it was.
        #[test]
        fn r6_3_nothing_is_lost_whatever_connections_do(steps in proptest::collection::vec((0_u8..5, 0_u64..6), 1..200)) {
            let (mut outbox, mut applied) = (Outbox::default(), 0);
            let (mut told, mut untold) = (BTreeSet::new(), BTreeSet::new());
            let mut wire: VecDeque<Batch> = VecDeque::new();
            let mut all: BTreeSet<u64> = BTreeSet::new();
            let reconnect = |outbox: &mut Outbox, applied: u64, all: &BTreeSet<u64>| {
                if outbox.resume(true, applied) {
                    outbox.restart(all.iter().map(|&n| key(n)));
                }
            };
            reconnect(&mut outbox, applied, &all);
            let mut deliver = |wire: &mut VecDeque<Batch>, applied: &mut u64, untold: &mut BTreeSet<EntryKey>| {
                if let Some(batch) = wire.pop_front() {
                    *applied = batch.sequence;
                    for (key, _) in batch.keys {
                        untold.remove(&key);
                        told.insert(key);
                    }
                }
            };
            for (step, n) in steps {
                match step {
                    0 => { all.insert(n); untold.insert(key(n).0); touch(&mut outbox, n); }
                    1 => if let Some(batch) = outbox.take_next() { wire.push_back(batch); },
                    2 => { deliver(&mut wire, &mut applied, &mut untold); if n < 3 { outbox.acknowledge(applied); } }
                    3 => outbox.received(applied + n),
                    _ => { wire.clear(); if n < 3 { outbox.lost(); } reconnect(&mut outbox, applied, &all); }
                }
                // A key touched again while it was under way is untold only until the next message.
            }
            wire.clear();
            reconnect(&mut outbox, applied, &all);
            while let Some(batch) = outbox.take_next() { wire.push_back(batch); deliver(&mut wire, &mut applied, &mut untold); outbox.acknowledge(applied); }
            proptest::prop_assert!(untold.is_empty(), "{untold:?}");
        }
    }
}
