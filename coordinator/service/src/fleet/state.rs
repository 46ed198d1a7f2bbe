//! What is held of one agent, and what a message changes in it.
//!
//! A change is planned first, as writes for the store, and taken over into memory when they are stored:
//! nobody reads what a crash could take back.
//!
//! Sequence numbers: a delta must carry the next one, a snapshot any later one (the deltas in between are in
//! it). An earlier one is old news, acknowledged again. A snapshot of another epoch starts anew.

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::agent_state::{Entry, EntryKey, HostState, ProjectState, TaskState};
use fallow_domain::{AgentId, Instant, MasterUrl};
use serde::{Deserialize, Serialize};

use super::entry::Entries;
use super::limits::{ENTRIES_PER_AGENT, PASTS_PER_AGENT, PROJECTS_PER_AGENT};
use super::totals::{PastTotals, ProjectTotals, Totals};
use super::{keys, stored};

/// How far an agent's stream was applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The agent's store that the numbers belong to; empty before the first snapshot.
    pub epoch: String,
    /// The last message applied.
    pub sequence: u64,
    /// When.
    #[serde(rename = "at_micros")]
    pub at: Instant,
}

/// A checked message that changes entries.
#[derive(Debug)]
pub struct Update {
    /// The message's number.
    pub sequence: u64,
    /// All entries (a snapshot), or changed ones (a delta).
    pub is_snapshot: bool,
    /// New values.
    pub entries: Entries,
    /// Keys that are gone.
    pub removed: BTreeSet<EntryKey>,
}

/// What to do with an update.
#[derive(Debug, PartialEq, Eq)]
pub enum UpdateCheck {
    /// It is the next.
    Next,
    /// It was applied before: acknowledge it again.
    AlreadyApplied,
    /// It cannot be applied; the agent has to connect again and go on from what is held.
    Refuse(String),
}

/// Checks an update of an agent whose stream stands at `position` and belongs to `epoch`.
#[must_use]
pub fn check_update(position: &Position, epoch: &str, update: &Update) -> UpdateCheck {
    let (got, held) = (update.sequence, position.sequence);
    if position.epoch != epoch {
        return match update.is_snapshot {
            true => UpdateCheck::Next,
            false => {
                UpdateCheck::Refuse(format!("delta {got} came before the first snapshot of epoch {epoch:?}"))
            }
        };
    }
    match () {
        () if got <= held => UpdateCheck::AlreadyApplied,
        () if update.is_snapshot || got == held + 1 => UpdateCheck::Next,
        () => UpdateCheck::Refuse(format!(
            "delta {got} came where {} was due: connect again to resume",
            held + 1
        )),
    }
}

/// Writes for the store.
pub type Writes = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// Why an update cannot be taken in.
#[derive(Debug, thiserror::Error)]
pub enum UpdateError {
    /// The agent would hold too many entries.
    #[error("an agent may hold {ENTRIES_PER_AGENT} entries")]
    TooManyEntries,
    /// More projects than documents could name.
    #[error("an agent may hold {PROJECTS_PER_AGENT} projects")]
    TooManyProjects,
    /// The agent would have left too many projects.
    #[error("an agent may have left {PASTS_PER_AGENT} projects")]
    TooManyPasts,
    /// An entry cannot be written.
    #[error(transparent)]
    Store(#[from] fallow_store::StoreError),
}

/// A change that is ready to be stored and then taken over.
#[derive(Debug)]
pub struct PlannedUpdate {
    position: Position,
    entries: Entries,
    removed: BTreeSet<EntryKey>,
    pasts: BTreeMap<MasterUrl, PastTotals>,
}

/// One agent's entries.
#[derive(Debug, Default)]
pub struct State {
    /// How far its stream was applied.
    pub position: Position,
    entries: Entries,
    pasts: BTreeMap<MasterUrl, PastTotals>,
}

impl State {
    /// The change that `update` makes, and what to store for it. It must have been checked.
    ///
    /// # Errors
    /// [`UpdateError`] when the agent would hold too much, or an entry cannot be written.
    pub fn plan(
        &self,
        id: &AgentId,
        position: Position,
        update: Update,
    ) -> Result<(PlannedUpdate, Writes), UpdateError> {
        let Update { is_snapshot, entries, removed, .. } = update;
        let anew = position.epoch != self.position.epoch;
        let removed = if is_snapshot { self.keys_besides(&entries) } else { removed };
        let mut pasts = BTreeMap::new();
        if anew {
            self.entries.values().for_each(|entry| self.retire(&mut pasts, entry));
        } else {
            let gone = removed.iter().filter_map(|key| self.entries.get(key));
            gone.for_each(|entry| self.retire(&mut pasts, entry));
        }
        let change = PlannedUpdate { position, entries, removed, pasts };
        if self.len_after(&change) > ENTRIES_PER_AGENT {
            return Err(UpdateError::TooManyEntries);
        }
        if self.projects_after(&change) > PROJECTS_PER_AGENT {
            return Err(UpdateError::TooManyProjects);
        }
        let pasts = change.pasts.keys().filter(|url| !self.pasts.contains_key(*url)).count();
        if self.pasts.len() + pasts > PASTS_PER_AGENT {
            return Err(UpdateError::TooManyPasts);
        }
        let writes = change.writes(id)?;
        Ok((change, writes))
    }

    /// How many entries there are after `change`. A removal counts only where something is removed: an agent
    /// may name keys that never got here.
    fn len_after(&self, change: &PlannedUpdate) -> usize {
        let new = change.entries.keys().filter(|key| !self.entries.contains_key(*key)).count();
        let is_gone = |key: &&EntryKey| self.entries.contains_key(*key) && !change.entries.contains_key(*key);
        let gone = change.removed.iter().filter(is_gone).count();
        self.entries.len() + new - gone
    }

    /// Whether one of these entries is not held.
    pub fn lacks_one_of<'k>(&self, mut keys: impl Iterator<Item = &'k EntryKey>) -> bool {
        keys.any(|key| !self.entries.contains_key(key))
    }

    /// How many projects there are after a change that brings new ones; 0 after any other.
    fn projects_after(&self, change: &PlannedUpdate) -> usize {
        let is_project = |key: &&EntryKey| matches!(key, EntryKey::Project(_));
        let brought = || change.entries.keys().filter(is_project);
        if brought().all(|key| self.entries.contains_key(key)) {
            return 0;
        }
        let stay = self.entries.keys().filter(is_project);
        let stay = stay.filter(|key| !change.removed.contains(*key) && !change.entries.contains_key(*key));
        stay.count() + brought().count()
    }

    fn keys_besides(&self, entries: &Entries) -> BTreeSet<EntryKey> {
        self.entries.keys().filter(|key| !entries.contains_key(*key)).cloned().collect()
    }

    fn retire(&self, pasts: &mut BTreeMap<MasterUrl, PastTotals>, gone: &Entry) {
        if let Entry::Project(project) = gone {
            let past = pasts.get(&project.url).or_else(|| self.pasts.get(&project.url));
            let past = past.copied().unwrap_or_default().with(project);
            pasts.insert(project.url.clone(), past);
        }
    }

    /// Takes over a change that is stored, and tells the totals.
    pub fn take(&mut self, change: PlannedUpdate, totals: &mut Totals) {
        let PlannedUpdate { position, entries, removed, pasts } = change;
        self.position = position;
        for (url, past) in pasts {
            let before = self.pasts.insert(url.clone(), past).unwrap_or_default();
            totals.change(&url, before.totals(), past.totals());
        }
        for key in removed {
            if let Some(Entry::Project(gone)) = self.entries.remove(&key) {
                totals.change(&gone.url, ProjectTotals::of(&gone), ProjectTotals::default());
            }
        }
        for (key, entry) in entries {
            self.replace(key, entry, totals);
        }
    }

    /// Takes over a stored entry, at start.
    pub fn put(&mut self, entry: Entry, totals: &mut Totals) {
        self.replace(entry.key(), entry, totals);
    }

    fn replace(&mut self, key: EntryKey, entry: Entry, totals: &mut Totals) {
        if let Entry::Project(project) = &entry {
            let before = match self.entries.get(&key) {
                Some(Entry::Project(before)) => ProjectTotals::of(before),
                _ => ProjectTotals::default(),
            };
            totals.change(&project.url, before, ProjectTotals::of(project));
        }
        self.entries.insert(key, entry);
    }

    /// Takes over a stored past, at start.
    pub fn put_past(&mut self, url: MasterUrl, past: PastTotals, totals: &mut Totals) {
        totals.change(&url, ProjectTotals::default(), past.totals());
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

    /// What the agent says of its host.
    #[must_use]
    pub fn host(&self) -> Option<&HostState> {
        match self.entries.get(&EntryKey::Host) {
            Some(Entry::Host(host)) => Some(host),
            _ => None,
        }
    }

    /// What it says of its projects, in order of their URLs.
    pub fn projects(&self) -> impl Iterator<Item = &ProjectState> {
        self.entries.values().filter_map(|entry| match entry {
            Entry::Project(project) => Some(project),
            _ => None,
        })
    }

    /// Whether it has a project.
    #[must_use]
    pub fn has_project(&self, url: &MasterUrl) -> bool {
        self.entries.contains_key(&EntryKey::Project(url.clone()))
    }

    /// What it says of its tasks, in order of their projects' URLs and their names.
    pub fn tasks(&self) -> impl Iterator<Item = &TaskState> {
        self.entries.values().filter_map(|entry| match entry {
            Entry::Task(task) => Some(task),
            _ => None,
        })
    }
}

impl PlannedUpdate {
    /// How many entries it gives.
    #[must_use]
    pub fn given(&self) -> usize {
        self.entries.len()
    }

    /// Whether it says anew what the host is.
    #[must_use]
    pub fn tells_of_host(&self) -> bool {
        self.entries.contains_key(&EntryKey::Host)
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
        for (key, entry) in &self.entries {
            let key = keys::entry(id, key);
            let value = stored::write(&key, entry)?;
            writes.push((key, Some(value)));
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
    use fallow_domain::{Duration, Fraction, Share};
    use proptest::prelude::*;

    use super::*;

    const URL: &str = "http://127.0.0.1:1/a/";

    fn id() -> AgentId {
        AgentId("A".into())
    }

    fn project(cpu: i64) -> Entry {
        let cpu = Duration::from_micros(cpu);
        Entry::Project(ProjectState {
            url: url(),
            name: String::new(),
            share: Share::ZERO,
            debt: Duration::from_millis(1_500),
            cpu_time: cpu,
            cpu_in_progress: Duration::ZERO,
            cpu_success: Duration::ZERO,
            cpu_error: Duration::ZERO,
            cpu_late: Duration::ZERO,
            cpu_contested: cpu / 2,
            scheduler_rpcs: 0,
            scheduler_failures: 0,
            min_rpc_time: None,
            jobs_success: 0,
            jobs_error: 0,
            jobs_late: 0,
        })
    }

    fn url() -> MasterUrl {
        MasterUrl::parse(URL).unwrap()
    }

    fn keyed(entries: Vec<Entry>) -> Entries {
        entries.into_iter().map(|entry| (entry.key(), entry)).collect()
    }

    fn snapshot(sequence: u64, entries: Vec<Entry>) -> Update {
        Update { sequence, is_snapshot: true, entries: keyed(entries), removed: BTreeSet::new() }
    }

    fn delta(sequence: u64, entries: Vec<Entry>, removed: &[EntryKey]) -> Update {
        let removed = removed.iter().cloned().collect();
        Update { sequence, is_snapshot: false, entries: keyed(entries), removed }
    }

    fn position(epoch: &str, sequence: u64) -> Position {
        Position { epoch: epoch.into(), sequence, at: Instant::EPOCH }
    }

    fn apply(state: &mut State, totals: &mut Totals, epoch: &str, update: Update) {
        let (change, _) = state.plan(&id(), position(epoch, update.sequence), update).unwrap();
        state.take(change, totals);
    }

    #[test]
    fn r6_3_a_gap_is_refused_and_an_old_message_is_acknowledged_again() {
        let held = position("e", 7);
        assert_eq!(check_update(&held, "e", &delta(8, vec![], &[])), UpdateCheck::Next);
        assert_eq!(check_update(&held, "e", &delta(7, vec![], &[])), UpdateCheck::AlreadyApplied);
        assert_eq!(check_update(&held, "e", &snapshot(7, vec![])), UpdateCheck::AlreadyApplied);
        assert_eq!(check_update(&held, "e", &snapshot(12, vec![])), UpdateCheck::Next);
        assert!(
            matches!(check_update(&held, "e", &delta(9, vec![], &[])), UpdateCheck::Refuse(why) if why.contains("8 was due"))
        );
        assert_eq!(check_update(&held, "new", &snapshot(1, vec![])), UpdateCheck::Next);
        assert!(matches!(check_update(&held, "new", &delta(8, vec![], &[])), UpdateCheck::Refuse(_)));
    }

    #[test]
    fn r6_6_cpu_time_of_a_detached_project_and_of_an_earlier_store_is_not_forgotten() {
        let (mut state, mut totals) = (State::default(), Totals::default());
        apply(&mut state, &mut totals, "e", snapshot(1, vec![project(100)]));
        apply(&mut state, &mut totals, "e", delta(2, vec![project(150)], &[]));
        assert_eq!(totals.of(&url()), ProjectTotals { cpu: 150, contested: 75, debt: 1_500_000 });
        apply(&mut state, &mut totals, "e", delta(3, vec![], &[EntryKey::Project(url())]));
        assert_eq!(totals.of(&url()), ProjectTotals { cpu: 150, contested: 75, debt: 0 });
        apply(&mut state, &mut totals, "e", delta(4, vec![project(10)], &[]));
        assert_eq!(totals.of(&url()).cpu, 160);
        apply(&mut state, &mut totals, "other", snapshot(1, vec![project(20)]));
        assert_eq!(totals.of(&url()).cpu, 180);
    }

    #[test]
    fn a_snapshot_removes_what_it_does_not_name() {
        let (mut state, mut totals) = (State::default(), Totals::default());
        apply(&mut state, &mut totals, "e", snapshot(1, vec![project(100)]));
        let (change, writes) = state.plan(&id(), position("e", 2), snapshot(2, vec![])).unwrap();
        assert!(writes.iter().any(|(key, value)| key.ends_with(URL.as_bytes()) && value.is_none()));
        state.take(change, &mut totals);
        assert!(state.is_empty());
    }

    fn task(number: usize) -> Entry {
        Entry::Task(TaskState {
            project: url(),
            name: number.to_string(),
            phase: None,
            cpu_time: Duration::ZERO,
            checkpoint_cpu_time: Duration::ZERO,
            fraction_done: Fraction::ZERO,
            deadline: Instant::EPOCH,
        })
    }

    fn task_key(name: &str) -> EntryKey {
        EntryKey::Task { project: url(), name: name.to_owned() }
    }

    #[test]
    fn an_agent_holds_as_many_entries_as_it_may_and_no_more_whatever_it_says_is_gone() {
        let (mut state, mut totals) = (State::default(), Totals::default());
        apply(&mut state, &mut totals, "e", snapshot(1, (0..ENTRIES_PER_AGENT).map(task).collect()));
        // News of entries that are there make no more of them.
        apply(&mut state, &mut totals, "e", delta(2, (0..20_000).map(task).collect(), &[]));
        let one_more = |removed: &[EntryKey]| delta(3, vec![task(ENTRIES_PER_AGENT)], removed);
        let refused = |update| state.plan(&id(), position("e", 3), update).unwrap_err();
        assert!(matches!(refused(one_more(&[])), UpdateError::TooManyEntries));
        assert!(matches!(
            refused(one_more(&[task_key("never_there"), task_key("nor_this")])),
            UpdateError::TooManyEntries
        ));
        apply(&mut state, &mut totals, "e", one_more(&[task_key("0")]));
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
                    2 => delta(sequence, vec![], &[EntryKey::Project(url())]),
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
                    read.put(stored::read(key, value).unwrap(), &mut sums);
                } else if key.starts_with(keys::PASTS) {
                    let (_, url) = keys::split(keys::PASTS, key).unwrap();
                    read.put_past(MasterUrl::parse(url).unwrap(), keys::PAST.read(key, value).unwrap(), &mut sums);
                }
            }
            prop_assert_eq!(totals.of(&url()), sums.of(&url()));
        }
    }
}
