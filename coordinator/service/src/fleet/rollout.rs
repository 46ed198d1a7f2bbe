//! What a rollout sees of the fleet's hosts (R6.5), and what drives it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fallow_daemon::{clock, lock};
use fallow_domain::agent_state::HostState;
use fallow_domain::{DocumentVersion, Duration, Labels, Preferences};
use fallow_fleet::{Contents, DocumentSet, Effective, GroupName};
use fallow_rollout::{HostNow, Phase, Rollout, Soak, Transition, have_one_speak};
use tokio::sync::watch;

use super::{Agent, Fleet};
use crate::audit::Actor;
use crate::document::{Author, Documents, Reach, blocking, set_of};

/// Hosts are looked at so many times while a wave is watched.
const LOOKS: i64 = 40;
/// And so often at least, and at most.
const OFTEN: std::time::Duration = std::time::Duration::from_secs(1);
const SELDOM: std::time::Duration = std::time::Duration::from_secs(15);

impl Reach for Fleet {
    fn changed_hosts(&self, before: &DocumentSet, after: &DocumentSet) -> u64 {
        let mut differs = Differs::between(before, after);
        self.members().iter().filter(|agent| differs.for_labels(&agent.labels())).count() as u64
    }

    fn followed(&self) -> Vec<DocumentVersion> {
        self.members().iter().map(|agent| agent.follows()).collect()
    }

    fn hosts_now(&self, rollout: &Rollout) -> Vec<HostNow> {
        let mut hosts = self.hosts_listed(rollout);
        have_one_speak(rollout, &mut hosts, &mut lock(&self.speakers));
        hosts
    }
}

impl Fleet {
    /// What all hosts are like now, for a rollout that is open.
    pub(crate) fn hosts_of(&self, rollout: &Rollout) -> Vec<HostNow> {
        if rollout.is_open() { self.hosts_now(rollout) } else { Vec::new() }
    }

    /// What all hosts are like now, whoever speaks for a machine: nobody who judges is kept waiting.
    pub(crate) fn hosts_listed(&self, rollout: &Rollout) -> Vec<HostNow> {
        let release = self.documents.release();
        let (newest, base) = (set_of(release.newest.as_deref()), set_of(release.base.as_deref()));
        let mut differs = Differs::between(&base, &newest);
        let (mut newest, mut base) = (Asked::by(&newest), Asked::by(&base));
        let now = |agent: &Arc<Agent>| {
            let labels = agent.labels();
            let mut host = agent.now(rollout, &labels);
            host.changed = differs.for_labels(&labels);
            let (before, after) = (base.to(&labels), newest.to(&labels));
            let [time, part] = allowed(if host.version == rollout.candidate { after } else { before });
            // Of few CPUs one is always used, however small the part that is said.
            host.offered = (host.offered * time).min(part);
            host.is_asked(before, after);
            host
        };
        let members = self.members();
        let mut hosts: Vec<HostNow> = members.iter().map(now).collect();
        let machines = self.machines(members.iter().map(|agent| &agent.id));
        hosts.iter_mut().zip(machines).for_each(|(host, machine)| host.machine = machine);
        hosts
    }
}

/// Whether two sets of documents say something else to a host: also where a project is, and with which
/// account.
struct Differs<'s> {
    before: Contents<'s>,
    after: Contents<'s>,
}

impl<'s> Differs<'s> {
    fn between(before: &'s DocumentSet, after: &'s DocumentSet) -> Self {
        Self { before: Contents::of(before), after: Contents::of(after) }
    }

    fn for_labels(&mut self, labels: &Labels) -> bool {
        match (self.before.for_labels(labels), self.after.for_labels(labels)) {
            (Ok(before), Ok(after)) => before != after,
            // What cannot be compared is tried with care.
            _ => true,
        }
    }
}

/// The part of the time that preferences let a host compute, and the part of its CPUs over all of the time.
fn allowed(preferences: &Preferences) -> [f64; 2] {
    let time = if preferences.suspended { 0.0 } else { preferences.cpu_time_fraction.get() };
    [time, time * preferences.cpu_fraction.get()]
}

/// What documents ask of hosts, each kind of host once.
struct Asked<'s> {
    set: &'s DocumentSet,
    known: BTreeMap<Vec<&'s GroupName>, Preferences>,
}

impl<'s> Asked<'s> {
    const fn by(set: &'s DocumentSet) -> Self {
        Self { set, known: BTreeMap::new() }
    }

    fn to(&mut self, labels: &Labels) -> &Preferences {
        let groups: Vec<_> = self.set.groups.of(labels).into_iter().map(|(name, _)| name).collect();
        self.known.entry(groups).or_insert_with(|| Effective::of(self.set, labels).preferences())
    }
}

impl Agent {
    fn follows(&self) -> DocumentVersion {
        lock(&self.state).host().map_or_else(DocumentVersion::default, |host| host.document_version)
    }

    fn now(&self, rollout: &Rollout, labels: &Labels) -> HostNow {
        let groups = if rollout.groups.is_empty() { Vec::new() } else { rollout.groups_of(labels) };
        let name = self.name();
        let given = self.was_given(rollout.candidate);
        let unknown = HostState::default();
        let state = lock(&self.state);
        let host = state.host().unwrap_or(&unknown);
        // Of one whose reports find no space nothing is seen, as of one that is off.
        let is_seen = self.is_connected() && !self.unstored.load(Ordering::Relaxed);
        let now = HostNow::of(self.id.clone(), &name, is_seen, host, state.projects());
        HostNow { groups, given, seen: Some(self.last_seen()), ..now }
    }
}

/// Drives rollouts, one after the other, until the coordinator stops.
pub(crate) async fn drive(fleet: Arc<Fleet>, documents: Arc<Documents>, mut stop: watch::Receiver<bool>) {
    let mut releases = documents.watch();
    let mut soak = Soak::default();
    // The rollout as this watch over it knows it.
    let mut watched: Option<Arc<Rollout>> = None;
    loop {
        let rollout = releases.borrow_and_update().rollout.clone();
        let open = rollout.filter(|rollout| rollout.phase == Phase::Watching);
        let wait = match open {
            None => None,
            Some(rollout) => {
                // In a large fleet a look takes long, and keeps nobody waiting.
                let look = {
                    let (fleet, rollout) = (fleet.clone(), rollout.clone());
                    let is_watched = watched.as_ref() == Some(&rollout);
                    let mut soak = std::mem::take(&mut soak);
                    move || {
                        let hosts = fleet.hosts_now(&rollout);
                        if !is_watched {
                            soak = Soak::after(soak, &rollout, &hosts);
                        }
                        let transition = rollout.tick(&mut soak, clock::now(), &hosts);
                        let releases_wave = matches!(transition, Some(Transition::Release { .. }));
                        let before = if releases_wave { hosts.clone() } else { Vec::new() };
                        (soak, transition.map(|transition| (transition, hosts)), before)
                    }
                };
                let (looked, follows, before) = blocking(look).await;
                soak = looked;
                watched = Some(rollout.clone());
                match follows {
                    None => Some(pause(rollout.plan.soak)),
                    Some((transition, hosts)) => {
                        let releases_wave = matches!(transition, Transition::Release { .. });
                        let author = Author { actor: Actor::Coordinator, ..Author::default() };
                        match documents.advance(&rollout, transition, author, clock::now(), hosts).await {
                            Ok(Some(after)) if releases_wave => {
                                // What its hosts were like before it reached them.
                                let (last, next) = (std::mem::take(&mut soak), after.clone());
                                soak = blocking(move || Soak::after(last, &next, &before)).await;
                                watched = Some(after);
                                Some(OFTEN)
                            }
                            Ok(_) => Some(OFTEN),
                            Err(error) => {
                                let error = fallow_daemon::causes::line(&error);
                                tracing::error!(
                                    rollout = rollout.number,
                                    error,
                                    "a rollout cannot go on: trying again"
                                );
                                Some(SELDOM)
                            }
                        }
                    }
                }
            }
        };
        tokio::select! {
            changed = releases.changed() => if changed.is_err() { return },
            () = async { tokio::time::sleep(wait.unwrap_or_default()).await }, if wait.is_some() => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

fn pause(soak: Duration) -> std::time::Duration {
    let micros = u64::try_from((soak / LOOKS).as_micros()).unwrap_or_default();
    std::time::Duration::from_micros(micros).clamp(OFTEN, SELDOM)
}
