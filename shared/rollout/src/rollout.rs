//! A rollout: how far a version has come, and what follows.

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::{AgentId, DocumentVersion, Instant, Labels};
use fallow_fleet::{GroupName, Selector};
use serde::{Deserialize, Serialize};

use crate::judge::{Judgement, judge};
use crate::{Gate, HostNow, Load, Plan, Soak, Wave, cohort, have_one_speak};

/// Hosts of each kind whose doings before a wave are kept.
const BEFORE_KEPT: usize = 200;
/// Hosts that are kept of those that had a version which was taken back.
const HAD_KEPT: usize = 10_000;
/// Steps that are kept.
const STEPS_KEPT: usize = 100;

/// How a rollout stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// A second person has to approve it.
    Waiting,
    /// A wave is watched, or the first is about to be released.
    Watching,
    /// Nothing goes on until somebody says how.
    Paused {
        /// Why.
        why: String,
    },
    /// All hosts have the version, or get it when they come.
    Completed,
    /// All hosts get back what they had, under a new number.
    TakenBack {
        /// That number.
        by: DocumentVersion,
        /// Why.
        why: String,
        /// Hosts that had the version then.
        had: u64,
        /// Which ones these were: all of them, or of very many some. None are known of what was stored
        /// before they were kept.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        had_by: BTreeSet<AgentId>,
        /// Those of them that had gone back from it by themselves.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        went_back: BTreeSet<AgentId>,
    },
}

/// What happened, when and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// When.
    pub at: Instant,
    /// In words.
    pub what: String,
}

/// A rollout of a version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rollout {
    /// Its number: rollouts are counted from 1.
    pub number: u64,
    /// The version that hosts have which were not reached yet.
    pub base: DocumentVersion,
    /// The version that is released.
    pub candidate: DocumentVersion,
    /// How.
    pub plan: Plan,
    /// The groups of its waves, as they were when it began.
    pub groups: BTreeMap<GroupName, Selector>,
    /// Who began it.
    pub begun_by: String,
    /// Others who made changes that the version carries, where it waited for somebody before it began: none
    /// of them approves it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub made_by: BTreeSet<String>,
    /// When.
    pub begun_at: Instant,
    /// Hosts for which the version makes something different, when it began.
    pub changes_hosts: u64,
    /// How many waves are released.
    pub released: usize,
    /// When the newest of them was; none before the first, and in what was stored before it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_at: Option<Instant>,
    /// The hosts of waves that count them, by the number of the wave; of another wave the one that tries the
    /// version for it, where that concerns none of its own.
    pub counted: BTreeMap<usize, BTreeSet<AgentId>>,
    /// What some hosts of each wave, and some others, offered and computed when the wave was released: a
    /// coordinator that starts anew has seen nothing.
    pub before: BTreeMap<AgentId, Load>,
    /// How it stands.
    pub phase: Phase,
    /// The newest steps, oldest first.
    pub steps: Vec<Step>,
}

/// What a rollout does next.
#[derive(Clone, Debug, PartialEq)]
pub enum Transition {
    /// A wave gets the version.
    Release {
        /// How many waves are released then.
        released: usize,
        /// Its hosts, if it counts them, or the one that tries the version for it.
        counted: BTreeSet<AgentId>,
        /// Why.
        why: String,
    },
    /// All have it.
    Complete {
        /// Why.
        why: String,
    },
    /// It waits for somebody.
    Pause {
        /// Why.
        why: String,
    },
    /// It goes on, the wave is watched anew.
    Resume {
        /// Why.
        why: String,
    },
    /// All hosts get back what they had.
    TakeBack {
        /// Why.
        why: String,
    },
}

impl Transition {
    /// The same with what somebody says beside it.
    #[must_use]
    pub fn saying(mut self, message: &str) -> Self {
        let (Self::Release { why, .. }
        | Self::Complete { why }
        | Self::Pause { why }
        | Self::Resume { why }
        | Self::TakeBack { why }) = &mut self;
        if !message.is_empty() {
            why.push_str(&format!(" ({message})"));
        }
        self
    }

    /// Why.
    #[must_use]
    pub fn why(&self) -> &str {
        match self {
            Self::Release { why, .. }
            | Self::Complete { why }
            | Self::Pause { why }
            | Self::Resume { why }
            | Self::TakeBack { why } => why,
        }
    }
}

/// What somebody wants of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Begin, as the second person.
    Approve,
    /// Release no more.
    Pause,
    /// Watch the wave again, and go on.
    Resume,
    /// Release the next wave now.
    Promote,
    /// Give all hosts back what they had, also when all have the version.
    TakeBack,
}

impl Order {
    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Promote => "promote",
            Self::TakeBack => "abort",
        }
    }
}

/// An order that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// The rollout is not in the right state.
    #[error("rollout {number} cannot be told to {order}: it {stands}")]
    Stands {
        /// The rollout.
        number: u64,
        /// How it stands, in words.
        stands: String,
        /// What was wanted.
        order: &'static str,
    },
    /// Another rollout is the newest.
    #[error(
        "rollout {newest} is the newest now, and not {wanted}: nothing was done; look at it (`fallow rollout`)"
    )]
    Other {
        /// The one that is meant.
        wanted: u64,
        /// The newest.
        newest: u64,
    },
    /// Another wave is the next.
    #[error(
        "the next wave of rollout {number} is not wave {wanted}: it {stands}; nothing was done; look at it (`fallow rollout`)"
    )]
    Wave {
        /// The rollout.
        number: u64,
        /// The wave that is meant, counted from 1.
        wanted: usize,
        /// How it stands, in words.
        stands: String,
    },
    /// Who began it cannot approve it, nor can who made a change that goes out with it.
    #[error(
        "{by} {} rollout {number}: somebody else has to approve it",
        if *began { "began" } else { "made a change that goes out with" }
    )]
    SamePerson {
        /// The rollout.
        number: u64,
        /// Who wants to.
        by: String,
        /// Whether he began it.
        began: bool,
    },
}

/// A host and where it stands: that costs a hash each time, and a look asks often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed<'h> {
    pub(crate) host: &'h HostNow,
    /// Its wave, counted from 0.
    pub(crate) wave: usize,
    /// It is to have the version.
    pub(crate) is_released: bool,
    /// It is in the wave that was released last.
    pub(crate) is_newest: bool,
}

impl Rollout {
    /// A rollout that begins.
    #[must_use]
    pub fn begin(
        number: u64,
        (base, candidate): (DocumentVersion, DocumentVersion),
        plan: Plan,
        groups: BTreeMap<GroupName, Selector>,
        (begun_by, begun_at): (String, Instant),
        changes_hosts: u64,
    ) -> Self {
        let waits = plan.approval_over.is_some_and(|most| changes_hosts > most);
        let (phase, next) = match waits {
            true => (Phase::Waiting, "; a second person has to approve it"),
            false => (Phase::Watching, ""),
        };
        let what = format!(
            "version {candidate} begins, which makes {} different, in waves of {}{next}",
            crate::hosts(usize::try_from(changes_hosts).unwrap_or(usize::MAX)),
            plan.written()
        );
        let mut begun = Self {
            number,
            base,
            candidate,
            plan,
            groups,
            begun_by,
            made_by: BTreeSet::new(),
            begun_at,
            changes_hosts,
            released: 0,
            released_at: None,
            counted: BTreeMap::new(),
            before: BTreeMap::new(),
            phase,
            steps: Vec::new(),
        };
        begun.note(begun_at, what);
        begun
    }

    /// Whether it is not over.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Waiting | Phase::Watching | Phase::Paused { .. })
    }

    /// The groups of its waves that a host with these labels is in.
    #[must_use]
    pub fn groups_of(&self, labels: &Labels) -> Vec<GroupName> {
        let chosen = self.groups.iter().filter(|(_, selector)| selector.chooses(labels));
        chosen.map(|(name, _)| name.clone()).collect()
    }

    /// The wave that a host is in, counted from 0. Of waves that count their hosts and are not released yet
    /// it is not known who will be in them.
    #[must_use]
    pub fn wave_of(&self, host: &AgentId, groups: &[GroupName]) -> usize {
        let last = self.plan.waves.len().saturating_sub(1);
        let mut known = None;
        let mut position = || *known.get_or_insert_with(|| cohort::position(self.number, host));
        let is_counted = |at| self.counted.get(&at).is_some_and(|counted| counted.contains(host));
        let is_in = |(at, wave): (usize, &Wave)| match wave {
            _ if is_counted(at) => true,
            Wave::Hosts(_) => false,
            Wave::Part(part) => cohort::is_in_part(&mut position, *part),
            Wave::Group(name) => groups.contains(name),
        };
        self.plan.waves.iter().enumerate().position(is_in).unwrap_or(last)
    }

    /// Whether the hosts of a wave, counted from 0, are to have the version.
    pub(crate) const fn has_released(&self, wave: usize) -> bool {
        match self.phase {
            Phase::Completed => true,
            Phase::TakenBack { .. } => false,
            Phase::Waiting | Phase::Watching | Phase::Paused { .. } => wave < self.released,
        }
    }

    /// Hosts with where they stand.
    pub(crate) fn placed<'h>(&self, hosts: &'h [HostNow]) -> Vec<Placed<'h>> {
        let placed = |host: &'h HostNow| {
            let wave = self.wave_of(&host.id, &host.groups);
            Placed { host, wave, is_released: self.has_released(wave), is_newest: wave + 1 == self.released }
        };
        hosts.iter().map(placed).collect()
    }

    /// Whether a host is to have the version.
    #[must_use]
    pub fn is_released_to(&self, host: &AgentId, groups: &[GroupName]) -> bool {
        match self.phase {
            Phase::Completed => true,
            Phase::TakenBack { .. } => false,
            _ => self.has_released(self.wave_of(host, groups)),
        }
    }

    /// Of a rollout that was taken back: whether a host had its version then; none where that was not kept.
    #[must_use]
    pub fn was_taken_from(&self, host: &AgentId) -> Option<bool> {
        let Phase::TakenBack { had, had_by, .. } = &self.phase else { return None };
        match had_by.contains(host) {
            true => Some(true),
            // Of some hosts that had it nothing is known: it may be one of them.
            false => (had_by.len() as u64 == *had).then_some(false),
        }
    }

    /// Of a rollout that was taken back: whether a host had gone back from its version by itself by then.
    #[must_use]
    pub fn went_back(&self, host: &AgentId) -> bool {
        matches!(&self.phase, Phase::TakenBack { went_back, .. } if went_back.contains(host))
    }

    /// What follows from what hosts are like now, if anything. `soak` is the watch over the wave.
    pub fn tick(&self, soak: &mut Soak, now: Instant, hosts: &[HostNow]) -> Option<Transition> {
        if self.phase != Phase::Watching {
            return None;
        }
        if self.released == 0 {
            return Some(self.next("it begins".to_owned(), hosts));
        }
        let placed = self.placed(hosts);
        soak.sample(self, now, &placed);
        match judge(self, soak, &placed) {
            Judgement::Watch => None,
            Judgement::Pass(why) => Some(self.next(why, hosts)),
            Judgement::Fail(gate, why) => Some(Transition::TakeBack { why: told(gate, &why) }),
            Judgement::Uncertain(why) => Some(Transition::Pause { why }),
        }
    }

    /// The next wave that has hosts; the end, if there is none. Before any host has tried the version, a wave
    /// is not passed over because it has none: another one tries it then, or all would get it at once.
    fn next(&self, why: String, hosts: &[HostNow]) -> Transition {
        // A host to which the version says nothing new is no trial of it.
        let changed = || hosts.iter().filter(|host| host.changed);
        let open = || changed().filter(|host| !self.is_released_to(&host.id, &host.groups));
        let reached = || changed().filter(|host| self.is_released_to(&host.id, &host.groups));
        let counted = |host: &AgentId| self.counted.values().any(|wave| wave.contains(host));
        let first = |count| cohort::first(self.number, count, counted, reached(), open());
        for (at, wave) in self.plan.waves.iter().enumerate().skip(self.released) {
            let released = at + 1;
            if let Wave::Hosts(count) = wave {
                let counted = first(*count);
                if !counted.is_empty() {
                    return Transition::Release { released, counted, why };
                }
            } else if open().any(|host| self.wave_of(&host.id, &host.groups) == at) {
                return Transition::Release { released, counted: BTreeSet::new(), why };
            } else if reached().next().is_none() {
                let counted = first(1);
                if !counted.is_empty() {
                    let why = format!("{why}; none of its hosts is concerned, so another one tries it");
                    return Transition::Release { released, counted, why };
                }
            }
        }
        Transition::Complete { why }
    }

    /// Sees to it that this rollout is as somebody saw it who gives an order: it may have gone on since.
    /// None for what he did not say.
    ///
    /// # Errors
    /// [`OrderError::Other`] and [`OrderError::Wave`].
    pub fn require_seen(&self, rollout: Option<u64>, next_wave: Option<usize>) -> Result<(), OrderError> {
        if let Some(wanted) = rollout.filter(|wanted| *wanted != self.number) {
            return Err(OrderError::Other { wanted, newest: self.number });
        }
        match next_wave.filter(|wanted| *wanted != self.released + 1) {
            Some(wanted) => Err(OrderError::Wave { number: self.number, wanted, stands: self.stands() }),
            None => Ok(()),
        }
    }

    /// What follows from an order.
    ///
    /// # Errors
    /// [`OrderError`] when it means nothing now.
    pub fn order(&self, order: Order, by: &str, hosts: &[HostNow]) -> Result<Transition, OrderError> {
        let why = match order {
            Order::Approve => format!("{by} approves it"),
            Order::Pause => format!("{by} pauses it"),
            Order::Resume => format!("{by} resumes it"),
            Order::Promote => format!("{by} releases the next wave"),
            Order::TakeBack => format!("{by} takes it back"),
        };
        match (order, &self.phase) {
            (Order::Approve, Phase::Waiting) if by == self.begun_by || self.made_by.contains(by) => {
                Err(OrderError::SamePerson {
                    number: self.number,
                    by: by.to_owned(),
                    began: by == self.begun_by,
                })
            }
            (Order::Approve, Phase::Waiting) | (Order::Resume, Phase::Paused { .. }) => {
                Ok(Transition::Resume { why })
            }
            (Order::Pause, Phase::Watching) => Ok(Transition::Pause { why }),
            (Order::Promote, Phase::Watching | Phase::Paused { .. }) => Ok(self.next(why, hosts)),
            (Order::TakeBack, Phase::Waiting | Phase::Watching | Phase::Paused { .. } | Phase::Completed) => {
                Ok(Transition::TakeBack { why })
            }
            _ => {
                Err(OrderError::Stands { number: self.number, stands: self.stands(), order: order.as_str() })
            }
        }
    }

    /// The rollout after a transition. `newest` is the number of the version that gives hosts back what they
    /// had, where it is taken back.
    #[must_use]
    pub fn after(
        &self,
        transition: &Transition,
        now: Instant,
        newest: DocumentVersion,
        hosts: &[HostNow],
    ) -> Self {
        let mut after = self.clone();
        let what = match transition {
            Transition::Release { released, counted, why } => {
                if !counted.is_empty() {
                    after.counted.insert(released - 1, counted.clone());
                }
                after.released = *released;
                after.released_at = Some(now);
                after.phase = Phase::Watching;
                after.note_before(hosts);
                // Waves without a host of their own are not waited for.
                let empty = match released - self.released {
                    0 | 1 => String::new(),
                    2 => format!(" (no host is in wave {} alone)", self.released + 1),
                    _ => format!(" (no host is in waves {} to {} alone)", self.released + 1, released - 1),
                };
                format!("{} is released{empty}: {why}", after.wave_in_words())
            }
            Transition::Complete { why } => {
                after.released = after.plan.waves.len();
                after.phase = Phase::Completed;
                format!("version {} is that of all hosts: {why}", after.candidate)
            }
            Transition::Pause { why } => {
                after.phase = Phase::Paused { why: why.clone() };
                format!("paused: {why}")
            }
            Transition::Resume { why } => {
                after.phase = Phase::Watching;
                format!("goes on: {why}")
            }
            Transition::TakeBack { why } => {
                // Also those that went back from it by themselves.
                let went_back = |host: &&HostNow| {
                    host.version != self.candidate
                        && host.rolled_back.as_ref().is_some_and(|(version, _)| *version == self.candidate)
                };
                let says_so = |host: &HostNow| host.version == self.candidate || went_back(&host);
                let had_it = |host: &&HostNow| host.given != Some(false) && says_so(host);
                let had_by = || hosts.iter().filter(had_it);
                let had = had_by().count();
                let had_hosts = crate::hosts(had);
                let kept = || had_by().take(HAD_KEPT);
                let went_back = kept().filter(went_back).map(|host| host.id.clone()).collect();
                let had_by = kept().map(|host| host.id.clone()).collect();
                let (by, had) = (newest, had as u64);
                after.phase = Phase::TakenBack { by, why: why.clone(), had, had_by, went_back };
                format!(
                    "version {} is taken back, which {had_hosts} had; all get version {newest} instead: {why}",
                    after.candidate
                )
            }
        };
        after.note(now, what);
        after
    }

    /// Keeps what hosts do that have the version before: of those that get the new one now, and of others.
    fn note_before(&mut self, hosts: &[HostNow]) {
        // Those that speak from now on, as one of a machine's copies is reached and others are not. One of
        // an earlier wave has the version and gives way to one that gets it now.
        let has_old = |host: &&HostNow| host.version != self.candidate;
        let mut hosts: Vec<HostNow> = hosts.iter().filter(has_old).cloned().collect();
        let mut speaking = hosts.iter().filter(|host| host.speaks).map(|host| host.id.clone()).collect();
        have_one_speak(self, &mut hosts, &mut speaking);
        let (now, later): (Vec<_>, Vec<_>) = hosts
            .iter()
            .filter(|host| host.is_judged())
            .partition(|host| self.is_released_to(&host.id, &host.groups));
        for kind in [now, later] {
            let loads = kind.into_iter().filter_map(|host| Some((host.id.clone(), Load::before(host)?)));
            self.before.extend(loads.take(BEFORE_KEPT));
        }
    }

    /// The wave that was released last, in words.
    #[must_use]
    pub fn wave_in_words(&self) -> String {
        let (at, all) = (self.released, self.plan.waves.len());
        let wave = at.checked_sub(1).and_then(|at| self.plan.waves.get(at));
        match wave {
            Some(wave) => format!("wave {at} of {all} ({wave})"),
            None => format!("no wave of {all}"),
        }
    }

    /// How it stands, in words.
    #[must_use]
    pub fn stands(&self) -> String {
        match &self.phase {
            Phase::Waiting => {
                "waits until a second person approves it (`fallow rollout approve`), or aborts it".to_owned()
            }
            Phase::Watching if self.released == 0 => "is about to begin".to_owned(),
            Phase::Watching => format!("is at {}", self.wave_in_words()),
            Phase::Paused { why } => format!(
                "is paused at {} until somebody resumes, promotes or aborts it: {why}",
                self.wave_in_words()
            ),
            Phase::Completed => "is completed".to_owned(),
            Phase::TakenBack { by, why, .. } => format!("was taken back by version {by}: {why}"),
        }
    }

    fn note(&mut self, at: Instant, what: String) {
        if self.steps.len() >= STEPS_KEPT {
            // How it began stays.
            self.steps.remove(1);
        }
        self.steps.push(Step { at, what });
    }
}

fn told(gate: Gate, why: &str) -> String {
    format!("{why} (gate {gate})")
}

#[cfg(test)]
#[path = "rollout_tests.rs"]
mod tests;
