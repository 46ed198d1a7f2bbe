//! What is held of one agent, and what a message changes in it.
//!
//! A change is planned first, as writes for the store, and taken over into memory when they are stored:
//! nobody reads what a crash could take back.
//!
//! Sequence numbers: a delta must carry the next one, a snapshot any later one (the deltas in between are in
//! it). An earlier one is old news, acknowledged again. A snapshot of another epoch starts anew.

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::agent_state::{DiskDecision, Entry, EntryKey, HostState, ProjectState, TaskState};
use fallow_domain::{AgentId, Instant, MasterUrl, OwnerLimits};
use serde::{Deserialize, Serialize};

use super::entry::Entries;
use super::limits::{
    BYTES_OF_EACH, BYTES_PER_AGENT, BYTES_PER_MACHINE, PASTS_KEPT, PASTS_PER_AGENT, PROJECTS_PER_AGENT,
};
use super::totals::{PastTotals, ProjectTotals, Totals};
use super::weight::{self, MachineWeight, Reserved};
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
    /// The agent would hold too much.
    #[error(
        "an agent's entries may take {} MiB, and with this message they would take {} KiB: have fewer jobs on this host, or \
         leave projects",
        BYTES_PER_AGENT >> 20, .0 >> 10
    )]
    TooHeavy(usize),
    /// The agent and its copies would hold too much together.
    #[error(
        "the entries of a host and of its copies may take {} MiB together: revoke copies that should not be there \
         (`fallow hosts revoke`), or have fewer jobs on them",
        BYTES_PER_MACHINE >> 20
    )]
    MachineTooHeavy,
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
    /// Projects of which it is forgotten what they had.
    dropped: BTreeSet<MasterUrl>,
    /// Room for what it brings, until it is taken over.
    reserved: Option<Reserved>,
}

/// One agent's entries.
#[derive(Debug, Default)]
pub struct State {
    /// How far its stream was applied.
    pub position: Position,
    entries: Entries,
    pasts: BTreeMap<MasterUrl, PastTotals>,
    /// What these take ([`weight`]), and what all agents of the machine do.
    bytes: usize,
    machine: MachineWeight,
}

impl State {
    /// Nothing yet, of an agent on this machine.
    pub(super) fn on(machine: MachineWeight) -> Self {
        Self { machine, ..Self::default() }
    }

    /// What its machine's agents hold.
    pub(super) fn machine(&self) -> &MachineWeight {
        &self.machine
    }

    /// The change that `update` makes, and what to store for it. It must have been checked, and nothing may
    /// be on its way before it.
    ///
    /// # Errors
    /// [`UpdateError`] when the agent would hold too much, or an entry cannot be written.
    pub fn plan(
        &self,
        id: &AgentId,
        position: Position,
        update: Update,
    ) -> Result<(PlannedUpdate, Writes), UpdateError> {
        self.plan_in(id, position, update, None)
    }

    /// The same for a change that comes behind others which are not taken over yet, in the room that
    /// [`Self::reserve_behind`] gave.
    ///
    /// # Errors
    /// As [`Self::plan`].
    pub(super) fn plan_behind(
        &self,
        id: &AgentId,
        position: Position,
        update: Update,
        reserved: Reserved,
    ) -> Result<(PlannedUpdate, Writes), UpdateError> {
        self.plan_in(id, position, update, Some(reserved))
    }

    /// Room for a delta that comes behind others which bring so many bytes and are not taken over yet; none
    /// where it may be too much. What any of them removes counts for nothing: it may be the same.
    pub(super) fn reserve_behind(&self, update: &Update, on_their_way: usize) -> Option<Reserved> {
        let brought = update.entries.values().map(weight::of).sum();
        match self.bytes.saturating_add(on_their_way).saturating_add(brought) {
            most if most > BYTES_PER_AGENT => None,
            most if most <= BYTES_OF_EACH => Some(self.machine.reserve_in_any_case(brought)),
            _ => self.machine.reserve(brought),
        }
    }

    fn plan_in(
        &self,
        id: &AgentId,
        position: Position,
        update: Update,
        reserved: Option<Reserved>,
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
        let dropped = BTreeSet::new();
        let mut change = PlannedUpdate { position, entries, removed, pasts, dropped, reserved: None };
        change.reserved = Some(match reserved {
            Some(reserved) => reserved,
            None => self.reserve(&change)?,
        });
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

    /// Room for a change, where nothing is on its way before it.
    fn reserve(&self, change: &PlannedUpdate) -> Result<Reserved, UpdateError> {
        // Whoever held more before there was this bound may go on, and come to less.
        let after = self.bytes_after(change);
        if after > BYTES_PER_AGENT && after > self.bytes {
            return Err(UpdateError::TooHeavy(after));
        }
        let more = after.saturating_sub(self.bytes);
        let reserved = match after <= BYTES_OF_EACH {
            true => Some(self.machine.reserve_in_any_case(more)),
            false => self.machine.reserve(more),
        };
        reserved.ok_or(UpdateError::MachineTooHeavy)
    }

    /// What is left of an agent that is no member of the fleet any more: what its host is, in short, for
    /// those who list hosts, and what the projects had that had the most. The change, the writes that remove
    /// its jobs, which may be stored in parts, and all others, which have to be stored together behind them.
    ///
    /// # Errors
    /// What cannot be written.
    pub fn plan_rest(
        &self,
        id: &AgentId,
    ) -> Result<(PlannedUpdate, Writes, Writes), fallow_store::StoreError> {
        let mut pasts = BTreeMap::new();
        let is_host = |key: &&EntryKey| matches!(key, EntryKey::Host);
        let removed: BTreeSet<_> = self.entries.keys().filter(|key| !is_host(key)).cloned().collect();
        removed.iter().filter_map(|key| self.entries.get(key)).for_each(|gone| self.retire(&mut pasts, gone));
        let mut all: Vec<_> =
            self.pasts.iter().filter(|(url, _)| !pasts.contains_key(*url)).chain(&pasts).collect();
        all.sort_by_key(|(_, past)| std::cmp::Reverse(past.cpu));
        let dropped: BTreeSet<_> = all.into_iter().skip(PASTS_KEPT).map(|(url, _)| url.clone()).collect();
        pasts.retain(|url, _| !dropped.contains(url));
        let host = self.host().map(|host| Entry::Host(Box::new(in_short(host))));
        let entries = host.filter(|host| self.entries.get(&EntryKey::Host) != Some(host));
        let entries = entries.map(|host| (EntryKey::Host, host)).into_iter().collect();
        let position = self.position.clone();
        let change = PlannedUpdate { position, entries, removed, pasts, dropped, reserved: None };
        let is_job =
            |key: &[u8]| keys::split(keys::ENTRIES, key).is_some_and(|(_, entry)| entry.starts_with("task/"));
        let (jobs, rest) = change.writes(id)?.into_iter().partition(|(key, _)| is_job(key));
        Ok((change, jobs, rest))
    }

    /// What it takes after `change`. A removal counts only where something is removed: an agent may name keys
    /// that never got here.
    fn bytes_after(&self, change: &PlannedUpdate) -> usize {
        let held = |key: &EntryKey| self.entries.get(key).map_or(0, weight::of);
        let new_past = |url: &&MasterUrl| !self.pasts.contains_key(*url);
        let brought: usize = change.entries.values().map(weight::of).sum();
        let pasts: usize = change.pasts.keys().filter(new_past).map(weight::of_past).sum();
        let replaced: usize = change.entries.keys().map(held).sum();
        let gone = change.removed.iter().filter(|key| !change.entries.contains_key(*key));
        let gone: usize = gone.map(held).sum();
        (self.bytes + brought + pasts).saturating_sub(replaced + gone)
    }

    /// What all of it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
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
        let PlannedUpdate { position, entries, removed, pasts, dropped, reserved } = change;
        self.position = position;
        for (url, past) in pasts {
            self.put_past(url, past, totals);
        }
        for url in dropped {
            if let Some(past) = self.pasts.remove(&url) {
                self.weigh(weight::of_past(&url), 0);
                totals.change(&url, past.totals(), ProjectTotals::default());
            }
        }
        for key in removed {
            let Some(gone) = self.entries.remove(&key) else { continue };
            self.weigh(weight::of(&gone), 0);
            if let Entry::Project(gone) = gone {
                totals.change(&gone.url, ProjectTotals::of(&gone), ProjectTotals::default());
            }
        }
        for (_, entry) in entries {
            self.put(entry, totals);
        }
        // It is counted as held by now.
        drop(reserved);
    }

    /// Something of it took `before` and takes `after`.
    fn weigh(&mut self, before: usize, after: usize) {
        self.bytes = (self.bytes + after).saturating_sub(before);
        self.machine.change(before, after);
    }

    /// Takes over an entry.
    pub fn put(&mut self, entry: Entry, totals: &mut Totals) {
        let key = entry.key();
        let after = weight::of(&entry);
        if let Entry::Project(project) = &entry {
            let before = match self.entries.get(&key) {
                Some(Entry::Project(before)) => ProjectTotals::of(before),
                _ => ProjectTotals::default(),
            };
            totals.change(&project.url, before, ProjectTotals::of(project));
        }
        let before = self.entries.insert(key, entry).map_or(0, |before| weight::of(&before));
        self.weigh(before, after);
    }

    /// Takes over what a project had that is no entry any more.
    pub fn put_past(&mut self, url: MasterUrl, past: PastTotals, totals: &mut Totals) {
        let before = self.pasts.get(&url).copied();
        totals.change(&url, before.unwrap_or_default().totals(), past.totals());
        let bytes = weight::of_past(&url);
        self.weigh(if before.is_some() { bytes } else { 0 }, bytes);
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

    /// What it says was decided about its disk, the last at the end.
    #[must_use]
    pub fn disk_decisions(&self) -> &[DiskDecision] {
        match self.entries.get(&EntryKey::Disk) {
            Some(Entry::Disk(decisions)) => decisions,
            _ => &[],
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

/// A host without its lists.
fn in_short(host: &HostState) -> HostState {
    HostState {
        owner: OwnerLimits::default(),
        owner_word: None,
        declined: Vec::new(),
        organisation: Vec::new(),
        disk: None,
        ..host.clone()
    }
}

impl PlannedUpdate {
    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { entries, removed, pasts, dropped, .. } = self;
        entries.is_empty() && removed.is_empty() && pasts.is_empty() && dropped.is_empty()
    }

    /// What the entries take that it gives.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.entries.values().map(weight::of).sum()
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
        writes.extend(self.dropped.iter().map(|url| (keys::past(id, url), None)));
        Ok(writes)
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
