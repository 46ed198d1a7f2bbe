//! Hosts that a version may have switched off (gate `lost`).
//!
//! One rule for both sides: only such hosts are missed as were heard of since the newest wave was released.
//! Of those that have been off for longer, be it since the evening or for months, neither version can be
//! the reason, and they would hide what is lost now. Of few hosts some go at any time: what is more than of
//! those others, and no more than of all of them, has to be more than chance explains (Fisher's exact test).
//!
//! When no host with the version before was there, as in the last wave, the newest wave's hosts are compared
//! with those of earlier waves that are parts of the fleet. These have the version as well, but they have
//! survived it; and as chance has drawn them, they go home in the evening as the others do. Waves that count
//! hosts prefer such as are there, and groups are what they are, so neither is a sample of the rest. What is
//! not seen so: a version that switches hosts off later, as when they start anew, so that those of earlier
//! waves go likewise.

use std::collections::BTreeMap;

use fallow_domain::{AgentId, Duration, Instant};

use crate::judge::{ALPHA, MISSING_USUAL};
use crate::rollout::Placed;
use crate::statistics::fisher;
use crate::{Rollout, Wave};

/// Agents are heard of within this time while their links stand, unless heartbeats are further apart than
/// half of it.
const SILENCE: Duration = Duration::from_secs(60);

/// Hosts that are not there, of those that a wave has reached and of the others.
pub(crate) struct Off {
    new: OffOf,
    old: OffOf,
    /// The old ones, and those that have been off for longer.
    all_old: OffOf,
    /// The new ones are those of the newest wave, the old ones those that had the version before.
    is_among_reached: bool,
}

/// Hosts on one side of a wave.
#[derive(Clone, Copy, Default)]
struct OffOf {
    /// Those that are off, and all of them.
    hosts: (usize, usize),
    /// Their machines, of which one with copies is off by the part of these that is: many copies of one
    /// machine are no proof of more than it, and one that is there is none that they all are.
    machines: (f64, usize),
}

impl OffOf {
    fn part(self) -> f64 {
        let (off, all) = self.machines;
        off / all.max(1) as f64
    }

    /// Machines, of which one counts as off if half of it is.
    fn counted(self) -> (usize, usize) {
        let (off, all) = self.machines;
        (off.round() as usize, all)
    }
}

impl Off {
    pub(crate) fn of(rollout: &Rollout, hosts: &[Placed<'_>]) -> Self {
        let since = rollout.released_at.map_or(Instant::EPOCH, |at| at - SILENCE);
        let changed = || hosts.iter().filter(|at| at.host.changed);
        let missed = || changed().filter(|at| is_missed(at, since));
        let [new, old] = sides(missed().map(|at| (at, at.is_released)));
        if old.hosts.1 > 0 {
            let [_, all_old] = sides(changed().filter(|at| !at.is_released).map(|at| (at, false)));
            return Self { new, old, all_old, is_among_reached: false };
        }
        let is_part = |at: &Placed<'_>| matches!(rollout.plan.waves.get(at.wave), Some(Wave::Part(_)));
        // One that tries the version for a part was chosen because it was there.
        let is_chosen = |at: &Placed<'_>| rollout.counted.values().any(|wave| wave.contains(&at.host.id));
        let is_drawn = |at: &&Placed<'_>| at.host.groups.is_empty() && is_part(at) && !is_chosen(at);
        let [new, old] = sides(missed().filter(is_drawn).map(|at| (at, at.is_newest)));
        Self { new, old, all_old: OffOf::default(), is_among_reached: true }
    }

    /// Whether more of the new ones are off than of the old ones. In the evening all of them go.
    pub(crate) fn looks_lost(&self) -> bool {
        let is_more_than_of = |old: OffOf| old.hosts.1 > 0 && self.new.part() > old.part() + MISSING_USUAL;
        let is_no_chance = || fisher(self.new.counted(), self.old.counted()) < ALPHA;
        is_more_than_of(self.old) && (is_more_than_of(self.all_old) || is_no_chance())
    }

    pub(crate) fn why(&self) -> String {
        let (new, old) = (self.new, self.old);
        let has_copies = [new, old].iter().any(|side| side.machines.1 < side.hosts.1);
        let copies = if has_copies { " (a machine and its copies count as one)" } else { "" };
        let (of_new, of_old) = match self.is_among_reached {
            false => ("that it has reached", "others"),
            true => ("of the newest wave", "that had it before"),
        };
        format!(
            "{} of {} {of_new} are off, {} of the {} {of_old}{copies}: they may just be switched off",
            new.hosts.0,
            crate::hosts(new.hosts.1),
            old.hosts.0,
            old.hosts.1
        )
    }
}

/// The new ones and the old ones, of hosts of each of which it is said whether it is a new one.
fn sides<'p, 'h: 'p>(hosts: impl Iterator<Item = (&'p Placed<'h>, bool)>) -> [OffOf; 2] {
    let mut machines: BTreeMap<(&AgentId, bool), (usize, usize)> = BTreeMap::new();
    for (Placed { host, .. }, is_new) in hosts {
        let (off, all) = machines.entry((&host.machine, is_new)).or_default();
        *off += usize::from(!host.connected);
        *all += 1;
    }
    let mut sides = [OffOf::default(); 2];
    let [new, old] = &mut sides;
    for ((_, is_new), (off, all)) in machines {
        let side = if is_new { &mut *new } else { &mut *old };
        side.hosts = (side.hosts.0 + off, side.hosts.1 + all);
        side.machines = (side.machines.0 + off as f64 / all as f64, side.machines.1 + 1);
    }
    sides
}

/// Whether a host was heard of since then; and if the version was released to it, whether it was given it.
fn is_missed(Placed { host, is_released, is_newest, .. }: &Placed<'_>, since: Instant) -> bool {
    // Whoever was given it in the newest wave was heard of then, also if a coordinator that was killed did
    // not keep when.
    let is_given = *is_newest && host.given == Some(true);
    let is_heard = is_given || host.connected || host.seen.is_none_or(|seen| seen >= since);
    is_heard && (!is_released || host.given != Some(false))
}
