//! The time in which a wave is watched, and what is seen of each host in it.

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::{AgentId, Duration, Instant, MasterUrl};

use crate::own::Copied;
use crate::rollout::Placed;
use crate::{Calls, HostNow, Load, Rollout, cohort};

/// How often a wave is judged by statistics: at equal distances while it is watched, and when it ends.
/// Each look could be wrong by chance: the chance is shared out among them.
pub(crate) const LOOKS: u32 = 4;
/// A look at hosts stands for so much time at most: what lies before it was not seen, or the clock was set.
const STEP_MAX: Duration = Duration::from_secs(60);
/// Hosts of each kind that are watched one by one: more would show nothing that these do not.
const SAMPLE: usize = 5_000;

/// The watch over a wave. It is not stored: a coordinator that starts anew watches the wave anew.
#[derive(Clone, Debug, Default)]
pub struct Soak {
    /// The number of the rollout.
    rollout: u64,
    watched: Duration,
    /// How long the wave had been watched when a host was there last that it was released to.
    there: Duration,
    /// Hosts of the wave itself that are a trial of it and have been there with the version.
    tried: BTreeMap<AgentId, Tried>,
    /// The same as `there` for hosts of the wave itself.
    own_there: Duration,
    last: Option<Instant>,
    looks: u32,
    /// Looks at counts alone, when the time is over.
    later_looks: u32,
    tracks: BTreeMap<AgentId, Track>,
    /// Hosts that were given the version, were there since and do not have it.
    lacking: BTreeMap<AgentId, Lacking>,
    /// What hosts offered and computed before they got the new version, as parts of their CPUs.
    before: BTreeMap<AgentId, Load>,
}

/// What is seen of a host since it has the version that it is judged with.
#[derive(Clone, Debug)]
pub(crate) struct Track {
    pub(crate) name: String,
    /// It has the new version.
    pub(crate) is_new: bool,
    /// How long it was there.
    present: Duration,
    /// How long of that it did not rest.
    awake: Duration,
    first: HostNow,
    newest: HostNow,
    samples: u32,
    /// Those in which it rested by a pause that the version makes more likely.
    samples_at_rest: u32,
    sum: Load,
    is_there: bool,
}

/// A host of the newest wave that has been there with the version.
#[derive(Clone, Copy, Debug)]
struct Tried {
    there: Duration,
    is_there: bool,
}

/// A host that does not take the version. It may come and go: its link is cut, perhaps by the version.
#[derive(Clone, Copy, Debug)]
struct Lacking {
    /// How long it has been there.
    there: Duration,
    /// How long the wave had been watched when it was there last.
    seen: Duration,
}

/// The hosts of a kind that are watched one by one: all of them, or so many of a large fleet, drawn anew for
/// each rollout.
struct Sample {
    /// The part of those that are judged.
    judged: f64,
    /// The part of the copies of their machines, which may come to speak for them.
    silent: f64,
}

impl Sample {
    fn of<'h>(hosts: impl Iterator<Item = &'h HostNow>) -> Self {
        let part = |all: usize| SAMPLE as f64 / all.max(1) as f64;
        let (judged, silent) = hosts.filter(|host| host.changed).fold((0, 0), |(judged, silent), host| {
            (judged + usize::from(host.speaks), silent + usize::from(!host.speaks))
        });
        Self { judged: part(judged), silent: part(silent) }
    }

    fn has(&self, rollout: &Rollout, host: &HostNow) -> bool {
        let part = if host.speaks { self.judged } else { self.silent };
        // Another order than that of the waves: these begin at its start.
        part >= 1.0 || (cohort::position(!rollout.number, &host.machine) as f64) < part * 2_f64.powi(64)
    }
}

impl Track {
    fn begin(host: &HostNow, is_new: bool) -> Self {
        Self {
            name: host.called(),
            is_new,
            present: Duration::ZERO,
            awake: Duration::ZERO,
            first: host.clone(),
            newest: host.clone(),
            samples: 0,
            samples_at_rest: 0,
            sum: Load::default(),
            is_there: true,
        }
    }

    fn sample(&mut self, host: &HostNow, since: Duration) {
        // Of one that does not speak now it is seen what it is like all the same: it may do so later.
        self.is_there = host.connected && host.speaks;
        if !host.connected {
            return;
        }
        self.present += since;
        // The agent's store was made anew: its counts begin anew.
        if host.jobs_over < self.newest.jobs_over || host.cpu_wasted < self.newest.cpu_wasted {
            self.first = host.clone();
        }
        self.newest = host.clone();
        self.samples_at_rest += u32::from(host.rests_by_version);
        if !host.rests {
            self.awake += since;
            self.samples += 1;
            self.sum.offered += host.offered;
            self.sum.computing += host.computing;
        }
    }

    /// How long it was there.
    pub(crate) const fn present(&self) -> Duration {
        self.present
    }

    pub(crate) const fn is_there(&self) -> bool {
        self.is_there
    }

    /// What it offered and computed on average while it did not rest; none if it always did.
    pub(crate) fn load(&self) -> Option<Load> {
        self.load_of(self.samples)
    }

    /// The same, where the time in which it rested by a pause that the version makes more likely counts as
    /// one in which it offered nothing.
    pub(crate) fn load_with_rest(&self) -> Option<Load> {
        self.load_of(self.samples.saturating_add(self.samples_at_rest))
    }

    fn load_of(&self, samples: u32) -> Option<Load> {
        let all = f64::from(samples);
        (samples > 0).then(|| Load { offered: self.sum.offered / all, computing: self.sum.computing / all })
    }

    /// Whether it ever rested by a pause that the version makes more likely.
    pub(crate) const fn rested_by_version(&self) -> bool {
        self.samples_at_rest > 0
    }

    /// Whether it rested for more than half of the time in which it was there: what it did in the rest of it
    /// says little.
    pub(crate) fn rested(&self) -> bool {
        self.samples == 0 || self.awake * 2 < self.present
    }

    /// What documents and the agent let it compute with now.
    pub(crate) const fn offered_now(&self) -> f64 {
        self.newest.offered
    }

    /// Whether half of the jobs that were over meanwhile had failed.
    pub(crate) const fn jobs_fail(&self) -> bool {
        let failed = self.newest.jobs_failed.saturating_sub(self.first.jobs_failed);
        let over = self.newest.jobs_over.saturating_sub(self.first.jobs_over);
        failed > 0 && failed.saturating_mul(2) >= over
    }

    /// The part of the CPU time of jobs over meanwhile that was lost.
    pub(crate) fn wasted(&self) -> Option<f64> {
        let wasted = self.newest.cpu_wasted.saturating_sub(self.first.cpu_wasted);
        let useful = self.newest.cpu_useful.saturating_sub(self.first.cpu_useful);
        let all = wasted.saturating_add(useful);
        (all > 0).then(|| wasted as f64 / all as f64)
    }

    /// By how much the violation of shares rose.
    pub(crate) fn shares(&self) -> Option<f64> {
        Some(self.newest.share_violation? - self.first.share_violation?)
    }

    /// A project that answered no call meanwhile: two failed at least, or it never answered and the agent
    /// waits before it tries again.
    pub(crate) fn cut_off(&self) -> Option<&MasterUrl> {
        let is_cut_off = |(url, now): &(&MasterUrl, &Calls)| {
            let before = self.first.calls.get(*url).copied().unwrap_or_default();
            let fails = now.failed >= before.failed.saturating_add(2) || (now.answered == 0 && now.waits);
            fails && now.answered <= before.answered
        };
        self.newest.calls.iter().find(is_cut_off).map(|(url, _)| url)
    }

    /// Whether its owner tightened his limits meanwhile.
    pub(crate) fn is_tightened(&self) -> bool {
        // Nor is it his doing that a newer agent tells more.
        let is_same_agent = self.newest.agent_version == self.first.agent_version;
        is_same_agent && self.newest.said > self.first.said
            || self.newest.tightness > self.first.tightness + 1e-9
    }
}

impl Soak {
    /// The watch over a wave that is released at this instant, after that over the wave before. What was
    /// seen of hosts before another rollout says nothing of this one.
    #[must_use]
    pub fn after(before: Self, rollout: &Rollout, hosts: &[HostNow]) -> Self {
        let mut loads = if before.rollout == rollout.number { before.before } else { BTreeMap::new() };
        for host in hosts.iter().filter(|host| host.version != rollout.candidate) {
            loads.extend(Load::before(host).map(|load| (host.id.clone(), load)));
        }
        Self { rollout: rollout.number, before: loads, ..Self::default() }
    }

    /// Takes in what hosts are like now.
    pub(crate) fn sample(&mut self, rollout: &Rollout, now: Instant, hosts: &[Placed<'_>]) {
        let since = self.last.map_or(Duration::ZERO, |last| now - last);
        self.last = Some(now);
        let since = since.clamp(Duration::ZERO, STEP_MAX);
        self.watched += since;
        self.note_there(rollout, hosts, since);
        // Who left the fleet speaks for nothing.
        let members: BTreeSet<&AgentId> = hosts.iter().map(|at| &at.host.id).collect();
        self.tracks.retain(|id, _| members.contains(id));
        let of = |is_new| hosts.iter().filter(move |at| at.is_released == is_new).map(|at| at.host);
        let [new, old] = [true, false].map(|is_new| Sample::of(of(is_new)));
        // Whoever is not looked at any more, as nothing differs for it by now, speaks for nothing either.
        for track in self.tracks.values_mut() {
            track.is_there = false;
        }
        self.note_lacking(rollout, of(true), since);
        for Placed { host, is_released, .. } in hosts.iter().copied() {
            if !host.changed {
                continue;
            }
            let is_new = is_released && host.version == rollout.candidate;
            let is_old = !is_released && host.version < rollout.candidate;
            // What somebody says that he has and was not given speaks for nothing, whatever he said before.
            let counts = is_new && new.has(rollout, host) || is_old && old.has(rollout, host);
            match self.tracks.get_mut(&host.id) {
                Some(track) if track.is_new == is_new && (is_new || is_old) => track.sample(host, since),
                _ if host.connected && counts => {
                    let mut track = Track::begin(host, is_new);
                    track.sample(host, Duration::ZERO);
                    self.tracks.insert(host.id.clone(), track);
                }
                // Off since before the wave: it is no proof of anything.
                _ => {}
            }
        }
    }

    /// Notes whether anybody is there to have the version, and how long each of the wave's own hosts has been
    /// there with it.
    fn note_there(&mut self, rollout: &Rollout, hosts: &[Placed<'_>], since: Duration) {
        let has_it = |host: &HostNow| host.connected && host.version == rollout.candidate;
        let released = || hosts.iter().filter(|at| at.is_released && at.host.changed);
        // Also without it: who comes, and has yet to take it, is not off.
        if released().any(|at| at.host.connected) {
            self.there = self.watched;
        }
        let now = |host: &HostNow| {
            let before = self.tried.get(&host.id).copied();
            let is_there = has_it(host);
            let since = before.filter(|before| before.is_there && is_there).map_or(Duration::ZERO, |_| since);
            let there = before.map_or(Duration::ZERO, |before| before.there) + since;
            (is_there || before.is_some()).then_some(Tried { there, is_there })
        };
        let own = Copied::of(hosts).trial(rollout, hosts);
        self.tried = own.iter().filter_map(|host| Some((host.id.clone(), now(host)?))).collect();
        if own.iter().any(|host| host.connected) {
            self.own_there = self.watched;
        }
    }

    /// Whoever comes is sent the version, and takes it in a moment: it is seen how long he does not.
    fn note_lacking<'h>(
        &mut self,
        rollout: &Rollout,
        released: impl Iterator<Item = &'h HostNow>,
        since: Duration,
    ) {
        let lacks = |host: &&HostNow| host.changed && host.version != rollout.candidate;
        let now = |host: &HostNow| {
            let before = self.lacking.get(&host.id).copied();
            match host.connected {
                true => {
                    let there = before.map_or(Duration::ZERO, |before| before.there + since);
                    Some(Lacking { there, seen: self.watched })
                }
                false => before,
            }
        };
        let lacking = released.filter(lacks).filter_map(|host| Some((host.id.clone(), now(host)?)));
        self.lacking = lacking.collect();
    }

    /// Whether a host was given the version, has been there for a minute or for the time of a wave since,
    /// and does not have it. One that is off for as long may just be switched off.
    pub(crate) fn lacks(&self, host: &AgentId, soak: Duration) -> bool {
        let enough = soak.min(STEP_MAX);
        let lacks = |one: &Lacking| one.there >= enough && self.watched - one.seen <= enough;
        self.lacking.get(host).is_some_and(lacks)
    }

    /// Whether a host that lacks the version has been there for so long without it.
    pub(crate) fn has_lacked(&self, host: &AgentId, long: Duration) -> bool {
        self.lacking.get(host).is_some_and(|one| one.there >= long)
    }

    /// How long the wave has been watched.
    #[must_use]
    pub const fn watched(&self) -> Duration {
        self.watched
    }

    /// How long it had been watched when a host was there last that the version was released to.
    pub(crate) const fn there(&self) -> Duration {
        self.there
    }

    /// The same for hosts of the wave itself.
    pub(crate) const fn own_there(&self) -> Duration {
        self.own_there
    }

    /// Whether a host of the wave itself is there with the version.
    pub(crate) fn is_tried(&self) -> bool {
        self.tried.values().any(|one| one.is_there)
    }

    /// Whether one of them has been there with it for half of the time. Of two in turn neither has.
    pub(crate) fn was_tried(&self, soak: Duration) -> bool {
        self.tried.values().any(|one| one.is_there && one.there * 2 >= soak)
    }

    /// Whether a look is due, which is taken then. The last one is not: it is taken when all is said.
    pub(crate) fn look(&mut self, soak: Duration) -> bool {
        let due = (self.watched.as_secs_f64() / soak.as_secs_f64() * f64::from(LOOKS)).floor();
        let due = due.min(f64::from(LOOKS - 1)) as u32;
        let is_due = due > self.looks;
        self.looks = self.looks.max(due);
        is_due
    }

    /// Whether a look at counts is due, one in each soak time after the first.
    pub(crate) fn look_later(&mut self, soak: Duration) -> bool {
        let due = (self.watched.as_secs_f64() / soak.as_secs_f64()).floor() as u32;
        let is_due = due > self.later_looks;
        self.later_looks = self.later_looks.max(due);
        is_due
    }

    /// Hosts with the new version that are there, and were for half of the time.
    pub(crate) fn voting(&self, soak: Duration) -> impl Iterator<Item = (&AgentId, &Track)> {
        let votes = move |track: &Track| track.is_new && track.is_there() && track.present * 2 >= soak;
        self.tracks.iter().filter(move |(_, track)| votes(track))
    }

    pub(crate) fn tracks(&self) -> impl Iterator<Item = (&AgentId, &Track)> {
        self.tracks.iter()
    }

    /// What a host offered and computed before it got the new version, if that was seen.
    pub(crate) fn before(&self, host: &AgentId) -> Option<Load> {
        self.before.get(host).copied()
    }
}

#[cfg(test)]
#[path = "soak_tests.rs"]
mod tests;
