//! What is held of one agent, and what a message changes in it.
//!
//! A change is planned first, as writes for the store, and taken over into memory when they are stored: nobody reads
//! what a crash could take back.
//!
//! Sequence numbers: a delta must carry the next one, a snapshot any later one (the deltas in between are in it).
//! An earlier one is old news, acknowledged again. A snapshot of another epoch starts anew.

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::AgentId;
use fallow_proto::fleet::v1 as wire;
use prost::Message as _;
use serde::{Deserialize, Serialize};
use wire::entry::Value;

use super::entry::Entry;
use super::keys;
use super::limits::{ENTRIES_PER_AGENT, PASTS_PER_AGENT};
use super::totals::{Amounts, Past, Totals};

/// How far an agent's stream was applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The agent's store that the numbers belong to; empty before the first snapshot.
    pub epoch: String,
    /// The last message applied.
    pub sequence: u64,
    /// When, microseconds since the epoch.
    pub at_micros: i64,
}

/// A checked message that changes entries.
#[derive(Debug)]
pub struct Update {
    /// The message's number.
    pub sequence: u64,
    /// All entries (a snapshot), or changed ones (a delta).
    pub is_snapshot: bool,
    /// New values.
    pub entries: Vec<Entry>,
    /// Keys that are gone.
    pub removed: Vec<String>,
}

/// What to do with an update.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the next.
    Apply,
    /// It was applied before: acknowledge it again.
    Old,
    /// It cannot be applied; the agent has to connect again and go on from what is held.
    Refuse(String),
}

/// Judges an update of an agent whose stream stands at `position` and belongs to `epoch`.
#[must_use]
pub fn judge(position: &Position, epoch: &str, update: &Update) -> Verdict {
    let (got, held) = (update.sequence, position.sequence);
    if position.epoch != epoch {
        return match update.is_snapshot {
            true => Verdict::Apply,
            false => {
                Verdict::Refuse(format!("delta {got} came before the first snapshot of epoch {epoch:?}"))
            }
        };
    }
    match () {
        () if got <= held => Verdict::Old,
        () if update.is_snapshot || got == held + 1 => Verdict::Apply,
        () => {
            Verdict::Refuse(format!("delta {got} came where {} was due: connect again to resume", held + 1))
        }
    }
}

/// Writes for the store.
pub type Writes = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// A change that is ready to be stored and then taken over.
#[derive(Debug)]
pub struct Change {
    position: Position,
    entries: Vec<Entry>,
    removed: Vec<String>,
    pasts: BTreeMap<String, Past>,
}

/// One agent's entries.
#[derive(Debug, Default)]
pub struct State {
    /// How far its stream was applied.
    pub position: Position,
    entries: BTreeMap<String, Entry>,
    pasts: BTreeMap<String, Past>,
}

impl State {
    /// The change that `update` makes, and what to store for it. It must have been judged.
    ///
    /// # Errors
    /// With the reason when the agent would hold too much.
    pub fn plan(&self, id: &AgentId, position: Position, update: Update) -> Result<(Change, Writes), String> {
        let Update { is_snapshot, entries, removed, .. } = update;
        let anew = position.epoch != self.position.epoch;
        let removed = if is_snapshot { self.keys_besides(&entries) } else { removed };
        let mut change = Change { position, entries, removed, pasts: BTreeMap::new() };
        if anew {
            self.entries.values().for_each(|entry| self.bury(&mut change, entry));
        } else {
            for key in change.removed.clone() {
                if let Some(entry) = self.entries.get(&key) {
                    self.bury(&mut change, entry);
                }
            }
        }
        if self.len_after(&change) > ENTRIES_PER_AGENT {
            return Err(format!("an agent may hold {ENTRIES_PER_AGENT} entries"));
        }
        let pasts = change.pasts.keys().filter(|url| !self.pasts.contains_key(*url)).count();
        if self.pasts.len() + pasts > PASTS_PER_AGENT {
            return Err(format!("an agent may have left {PASTS_PER_AGENT} projects"));
        }
        let writes = change.writes(id).map_err(|error| error.to_string())?;
        Ok((change, writes))
    }

    /// How many entries there are after `change`. A removal counts only where something is removed: an agent may name
    /// keys that never got here.
    fn len_after(&self, change: &Change) -> usize {
        let given: BTreeSet<&str> = change.entries.iter().map(Entry::key).collect();
        let new = given.iter().filter(|key| !self.entries.contains_key(**key)).count();
        let is_gone = |key: &&str| self.entries.contains_key(*key) && !given.contains(key);
        let gone: BTreeSet<&str> = change.removed.iter().map(String::as_str).filter(is_gone).collect();
        self.entries.len() + new - gone.len()
    }

    fn keys_besides(&self, entries: &[Entry]) -> Vec<String> {
        let kept: BTreeSet<&str> = entries.iter().map(Entry::key).collect();
        self.entries.keys().filter(|key| !kept.contains(key.as_str())).cloned().collect()
    }

    fn bury(&self, change: &mut Change, gone: &Entry) {
        if let Value::Project(project) = gone.value() {
            let past = change.pasts.get(&project.url).or_else(|| self.pasts.get(&project.url));
            let past = past.copied().unwrap_or_default().with(project);
            change.pasts.insert(project.url.clone(), past);
        }
    }

    /// Takes over a change that is stored, and tells the totals.
    pub fn take(&mut self, change: Change, totals: &mut Totals) {
        let Change { position, entries, removed, pasts } = change;
        self.position = position;
        for (url, past) in pasts {
            let before = self.pasts.insert(url.clone(), past).unwrap_or_default();
            totals.change(&url, before.amounts(), past.amounts());
        }
        for key in removed {
            if let Some(Value::Project(gone)) = self.entries.remove(&key).as_ref().map(Entry::value) {
                totals.change(&gone.url, Amounts::of(gone), Amounts::default());
            }
        }
        for entry in entries {
            self.put(entry, totals);
        }
    }

    /// Takes over a stored entry, at start.
    pub fn put(&mut self, entry: Entry, totals: &mut Totals) {
        let before = match self.entries.get(entry.key()).map(Entry::value) {
            Some(Value::Project(project)) => Amounts::of(project),
            _ => Amounts::default(),
        };
        if let Value::Project(project) = entry.value() {
            totals.change(&project.url, before, Amounts::of(project));
        }
        self.entries.insert(entry.key().to_owned(), entry);
    }

    /// Takes over a stored past, at start.
    pub fn put_past(&mut self, url: String, past: Past, totals: &mut Totals) {
        totals.change(&url, Amounts::default(), past.amounts());
        self.pasts.insert(url, past);
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries in order of their keys: the host, projects, tasks.
    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.entries.values().map(Entry::value)
    }

    /// What the agent says of its host.
    #[must_use]
    pub fn host(&self) -> Option<&wire::HostState> {
        match self.entries.get("host").map(Entry::value) {
            Some(Value::Host(host)) => Some(host),
            _ => None,
        }
    }
}

impl Change {
    /// How many entries it gives.
    #[must_use]
    pub fn given(&self) -> usize {
        self.entries.len()
    }

    fn writes(&self, id: &AgentId) -> Result<Writes, fallow_store::StoreError> {
        let mut writes: Writes = Vec::with_capacity(self.entries.len() + self.removed.len() + 1);
        let position = keys::position(id);
        let value = keys::POSITION.write(&position, &self.position)?;
        writes.push((position, Some(value)));
        // Removals first: a key both removed and given ends as given, here as in memory.
        for key in &self.removed {
            writes.push((keys::entry(id, key), None));
        }
        for entry in &self.entries {
            let bytes = entry.to_wire().encode_to_vec();
            writes.push((keys::entry(id, entry.key()), Some(keys::ENTRY.wrap(&bytes))));
        }
        for (url, past) in &self.pasts {
            let key = keys::past(id, url);
            let value = keys::PAST.write(&key, past)?;
            writes.push((key, Some(value)));
        }
        Ok(writes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const URL: &str = "http://127.0.0.1:1/a/";

    fn id() -> AgentId {
        AgentId("A".into())
    }

    fn project(cpu: i64) -> Entry {
        let state = wire::ProjectState {
            url: URL.into(),
            cpu_time_micros: cpu,
            cpu_contested_micros: cpu / 2,
            debt_seconds: 1.5,
            ..Default::default()
        };
        Entry::check(wire::Entry { key: format!("project/{URL}"), value: Some(Value::Project(state)) })
            .unwrap()
    }

    fn snapshot(sequence: u64, entries: Vec<Entry>) -> Update {
        Update { sequence, is_snapshot: true, entries, removed: vec![] }
    }

    fn delta(sequence: u64, entries: Vec<Entry>, removed: &[&str]) -> Update {
        let removed = removed.iter().map(|key| (*key).to_owned()).collect();
        Update { sequence, is_snapshot: false, entries, removed }
    }

    fn position(epoch: &str, sequence: u64) -> Position {
        Position { epoch: epoch.into(), sequence, at_micros: 0 }
    }

    fn apply(state: &mut State, totals: &mut Totals, epoch: &str, update: Update) {
        let (change, _) = state.plan(&id(), position(epoch, update.sequence), update).unwrap();
        state.take(change, totals);
    }

    #[test]
    fn r6_3_a_gap_is_refused_and_an_old_message_is_acknowledged_again() {
        let held = position("e", 7);
        assert_eq!(judge(&held, "e", &delta(8, vec![], &[])), Verdict::Apply);
        assert_eq!(judge(&held, "e", &delta(7, vec![], &[])), Verdict::Old);
        assert_eq!(judge(&held, "e", &snapshot(7, vec![])), Verdict::Old);
        assert_eq!(judge(&held, "e", &snapshot(12, vec![])), Verdict::Apply);
        assert!(
            matches!(judge(&held, "e", &delta(9, vec![], &[])), Verdict::Refuse(why) if why.contains("8 was due"))
        );
        assert_eq!(judge(&held, "new", &snapshot(1, vec![])), Verdict::Apply);
        assert!(matches!(judge(&held, "new", &delta(8, vec![], &[])), Verdict::Refuse(_)));
    }

    #[test]
    fn r6_6_cpu_time_of_a_detached_project_and_of_an_earlier_store_is_not_forgotten() {
        let (mut state, mut totals) = (State::default(), Totals::default());
        apply(&mut state, &mut totals, "e", snapshot(1, vec![project(100)]));
        apply(&mut state, &mut totals, "e", delta(2, vec![project(150)], &[]));
        assert_eq!(totals.of(URL), Amounts { cpu: 150, contested: 75, debt: 1_500_000 });
        apply(&mut state, &mut totals, "e", delta(3, vec![], &[&format!("project/{URL}")]));
        assert_eq!(totals.of(URL), Amounts { cpu: 150, contested: 75, debt: 0 });
        apply(&mut state, &mut totals, "e", delta(4, vec![project(10)], &[]));
        assert_eq!(totals.of(URL).cpu, 160);
        apply(&mut state, &mut totals, "other", snapshot(1, vec![project(20)]));
        assert_eq!(totals.of(URL).cpu, 180);
    }

    #[test]
    fn a_snapshot_removes_what_it_does_not_name() {
        let (mut state, mut totals) = (State::default(), Totals::default());
        apply(&mut state, &mut totals, "e", snapshot(1, vec![project(100)]));
        let (change, writes) = state.plan(&id(), position("e", 2), snapshot(2, vec![])).unwrap();
        assert!(writes.iter().any(|(key, value)| key.ends_with(URL.as_bytes()) && value.is_none()));
        state.take(change, &mut totals);
        assert_eq!(state.values().count(), 0);
    }

    fn task(number: usize) -> Entry {
        let state =
            wire::TaskState { project_url: URL.into(), name: number.to_string(), ..Default::default() };
        Entry::check(wire::Entry { key: format!("task/{URL}/{number}"), value: Some(Value::Task(state)) })
            .unwrap()
    }

    #[test]
    fn an_agent_holds_as_many_entries_as_it_may_and_no_more_whatever_it_says_is_gone() {
        let (mut state, mut totals) = (State::default(), Totals::default());
        apply(&mut state, &mut totals, "e", snapshot(1, (0..ENTRIES_PER_AGENT).map(task).collect()));
        // News of entries that are there make no more of them.
        apply(&mut state, &mut totals, "e", delta(2, (0..20_000).map(task).collect(), &[]));
        let one_more = |removed: &[&str]| delta(3, vec![task(ENTRIES_PER_AGENT)], removed);
        let refused = |update| state.plan(&id(), position("e", 3), update).unwrap_err();
        assert!(refused(one_more(&[])).contains("may hold"));
        assert!(refused(one_more(&["task/never/there", "task/nor/this"])).contains("may hold"));
        let first = format!("task/{URL}/0");
        apply(&mut state, &mut totals, "e", one_more(&[&first, &first]));
        assert_eq!(state.len(), ENTRIES_PER_AGENT);
    }

    proptest! {
        /// Totals kept by difference are those of a fleet that is read anew from its store.
        #[test]
        fn r6_6_totals_by_difference_are_the_sums_of_what_is_held(steps in prop::collection::vec((0..4, 0..1_000_i64), 1..40)) {
            let (mut state, mut totals) = (State::default(), Totals::default());
            let mut store: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            let (mut sequence, mut epoch) = (0, 0);
            for (kind, cpu) in steps {
                sequence += 1;
                let update = match kind {
                    0 => snapshot(sequence, vec![project(cpu)]),
                    1 => { epoch += 1; snapshot(sequence, vec![project(cpu)]) }
                    2 => delta(sequence, vec![], &[&format!("project/{URL}")]),
                    _ => delta(sequence, vec![project(cpu)], &[]),
                };
                let (change, writes) = state.plan(&id(), position(&epoch.to_string(), sequence), update).unwrap();
                for (key, value) in writes {
                    match value {
                        Some(value) => store.insert(key, value),
                        None => store.remove(&key),
                    };
                }
                state.take(change, &mut totals);
            }
            let (mut read, mut sums) = (State::default(), Totals::default());
            for (key, value) in &store {
                if key.starts_with(keys::ENTRIES) {
                    let bytes = keys::ENTRY.open(key, value).unwrap();
                    let entry = Entry::check(wire::Entry::decode(&bytes[..]).unwrap()).unwrap();
                    read.put(entry, &mut sums);
                } else if key.starts_with(keys::PASTS) {
                    let (_, url) = keys::split(keys::PASTS, key).unwrap();
                    read.put_past(url.to_owned(), keys::PAST.read(key, value).unwrap(), &mut sums);
                }
            }
            prop_assert_eq!(totals.of(URL), sums.of(URL));
        }
    }
}
