//! A fleet that a rollout goes through, in virtual time.

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::{AgentId, DocumentVersion, Duration, Instant};
use fallow_rollout::{HostNow, Order, Plan, Rollout, Soak, Transition, have_one_speak};

pub(crate) const OLD: DocumentVersion = DocumentVersion(1);
pub(crate) const NEW: DocumentVersion = DocumentVersion(2);
const NEWEST: DocumentVersion = DocumentVersion(3);
pub(crate) const SOAK: Duration = Duration::from_mins(4);

pub(crate) fn id(number: usize) -> AgentId {
    AgentId(format!("{number:06}"))
}

/// A host that is there, computes and has the version before.
pub(crate) fn host(number: usize) -> HostNow {
    HostNow {
        connected: true,
        version: OLD,
        offered: 1.0,
        computing: 0.9,
        name: format!("pc-{number}"),
        ..HostNow::named(id(number))
    }
}

pub(crate) struct Fleet {
    pub(crate) rollout: Rollout,
    pub(crate) hosts: Vec<HostNow>,
    pub(crate) now: Instant,
    soak: Soak,
    speakers: BTreeSet<AgentId>,
}

impl Fleet {
    /// Its first wave is released.
    pub(crate) fn with(number: u64, waves: &str, hosts: Vec<HostNow>) -> Self {
        Self::soaked(number, (waves, SOAK), hosts)
    }

    /// The same, where each wave is watched for so long.
    pub(crate) fn soaked(number: u64, (waves, soak): (&str, Duration), hosts: Vec<HostNow>) -> Self {
        let plan = Plan::new(waves, soak).unwrap();
        let now = Instant::EPOCH + Duration::from_hours(24 * 365);
        let begun = ("anna".to_owned(), now);
        let rollout = Rollout::begin(number, (OLD, NEW), plan, BTreeMap::new(), begun, 9);
        let (soak, speakers) = (Soak::default(), BTreeSet::new());
        let mut fleet = Self { rollout, hosts, now, soak, speakers };
        fleet.hear();
        fleet.speak();
        let first = fleet.rollout.tick(&mut fleet.soak, now, &fleet.hosts).unwrap();
        fleet.apply(&first);
        fleet
    }

    /// The coordinator hears of those that are there, and notes whom it gives the version.
    fn hear(&mut self) {
        for at in 0..self.hosts.len() {
            let host = &self.hosts[at];
            let is_given =
                host.given == Some(true) || (host.connected || host.version == NEW) && self.has_reached(host);
            let host = &mut self.hosts[at];
            let last = host.seen.unwrap_or(Instant::EPOCH);
            host.seen = Some(if host.connected { self.now } else { last });
            host.given = Some(is_given);
        }
    }

    fn speak(&mut self) {
        have_one_speak(&self.rollout, &mut self.hosts, &mut self.speakers);
    }

    pub(crate) fn apply(&mut self, transition: &Transition) {
        self.speak();
        self.rollout = self.rollout.after(transition, self.now, NEWEST, &self.hosts);
        self.soak = Soak::after(std::mem::take(&mut self.soak), &self.rollout, &self.hosts);
    }

    /// Somebody releases the next wave.
    pub(crate) fn promote(&mut self) {
        self.speak();
        let promoted = self.rollout.order(Order::Promote, "bob", &self.hosts).unwrap();
        self.apply(&promoted);
    }

    /// The coordinator starts anew: it remembers what is stored.
    pub(crate) fn start_anew(&mut self) {
        (self.soak, self.speakers) = (Soak::default(), BTreeSet::new());
    }

    /// Whether the version was released to a host.
    pub(crate) fn has_reached(&self, host: &HostNow) -> bool {
        self.rollout.is_released_to(&host.id, &host.groups)
    }

    /// Those of a wave, counted from 1.
    pub(crate) fn of_wave(&self, wave: usize) -> Vec<usize> {
        let is_in = |host: &HostNow| self.rollout.wave_of(&host.id, &host.groups) + 1 == wave;
        (0..self.hosts.len()).filter(|at| is_in(&self.hosts[*at])).collect()
    }

    /// Those that are there and that it was released to take it.
    pub(crate) fn take(&mut self) {
        for host in &mut self.hosts {
            if host.connected && self.rollout.is_released_to(&host.id, &host.groups) {
                host.version = NEW;
            }
        }
    }

    /// Looks at them so long, every quarter of a minute; in waits of hours, and at very many, once a minute.
    pub(crate) fn watch(&mut self, time: Duration) -> Option<Transition> {
        let step = Duration::from_secs(if time > SOAK * 4 || self.hosts.len() > 5_000 { 60 } else { 15 });
        let end = self.now + time;
        while self.now < end {
            self.now = self.now + step;
            self.hear();
            self.speak();
            let follows = self.rollout.tick(&mut self.soak, self.now, &self.hosts);
            if follows.is_some() {
                return follows;
            }
        }
        None
    }
}

pub(crate) fn released(transition: Option<Transition>) -> String {
    match transition {
        Some(Transition::Release { why, .. } | Transition::Complete { why }) => why,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn paused(transition: Option<Transition>) -> String {
    match transition {
        Some(Transition::Pause { why }) => why,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn taken_back(transition: Option<Transition>) -> String {
    match transition {
        Some(Transition::TakeBack { why }) => why,
        other => panic!("{other:?}"),
    }
}
