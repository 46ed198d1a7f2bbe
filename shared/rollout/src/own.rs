//! Whether hosts of its own have tried a wave's version.

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::{AgentId, Duration, Instant};

use crate::judge::{Judgement, MISSING_USUAL};
use crate::rollout::Placed;
use crate::waiting::{PATIENCE, coming};
use crate::{HostNow, Rollout, Soak, Wave};

/// Whoever was not heard of for so long before a wave was released is waited for by nobody: a lab keeps hosts
/// in its list that it has thrown away.
const GONE: Duration = Duration::from_hours(72);

/// The machines of a fleet that there are copies of.
pub(crate) struct Copied<'h>(BTreeSet<&'h AgentId>);

impl<'h> Copied<'h> {
    pub(crate) fn of(hosts: &[Placed<'h>]) -> Self {
        let copies = hosts.iter().map(|at| at.host).filter(|host| host.machine != host.id);
        Self(copies.map(|host| &host.machine).collect())
    }

    fn is_alone(&self, host: &HostNow) -> bool {
        host.machine == host.id && !self.0.contains(&host.id)
    }

    /// The hosts of the wave that was released last which are a trial of it. Whoever has one machine can have
    /// made its copies, so these are none beside machines without copies: such a host would carry a version
    /// through all waves while everybody else is off. Where the latter are less than a fifth, as in labs that
    /// were set up from images, those copies are as well whose machine has a fifth of the wave.
    pub(crate) fn trial(&self, rollout: &Rollout, hosts: &[Placed<'h>]) -> Vec<&'h HostNow> {
        let newest = hosts.iter().filter(|at| at.is_released && at.is_newest && at.host.changed);
        let own: Vec<&HostNow> = newest.map(|at| at.host).collect();
        let (mut trial, copies): (Vec<_>, Vec<_>) = own.iter().partition(|host| self.is_alone(host));
        let since = rollout.released_at.map_or(Instant::EPOCH, |at| at - GONE);
        let is_kept = |host: &&&HostNow| host.connected || host.seen.is_none_or(|seen| seen >= since);
        let kept = trial.iter().filter(is_kept).count();
        let part = |count: usize| count as f64 >= MISSING_USUAL * own.len() as f64;
        if copies.is_empty() || part(kept) {
            return trial;
        }
        let mut of_machine: BTreeMap<&AgentId, Vec<&HostNow>> = BTreeMap::new();
        for host in copies {
            of_machine.entry(&host.machine).or_default().push(host);
        }
        let most = of_machine.values().map(Vec::len).max().unwrap_or_default();
        let many = of_machine.into_values().filter(|copies| copies.len() == most || part(copies.len()));
        trial.extend(many.flatten());
        trial
    }
}

/// The hosts of the wave that was released last. What hosts of earlier waves show says nothing of them: with
/// these off, as at night, one host could release a version to all.
pub(crate) struct Own<'h> {
    /// Those that are a trial of it, and all of them.
    all: usize,
    of_wave: usize,
    /// Those that are there and do not take it.
    lacking: Vec<&'h HostNow>,
    /// All of these have had time enough to take it.
    all_lack_for_long: bool,
    /// None is there nor ever had it, and they are few beside those that have it: nobody waits for them.
    is_passed_over: bool,
}

impl<'h> Own<'h> {
    pub(crate) fn of(rollout: &Rollout, soak: &Soak, hosts: &[Placed<'h>]) -> Self {
        let is_own = |at: &&Placed<'_>| at.is_released && at.is_newest && at.host.changed;
        let of_wave = hosts.iter().filter(is_own).count();
        let mut own =
            Self { all: 0, of_wave, lacking: Vec::new(), all_lack_for_long: true, is_passed_over: true };
        let time = rollout.plan.soak;
        let copied = Copied::of(hosts);
        let trial = copied.trial(rollout, hosts);
        for host in &trial {
            own.all += 1;
            // Who had it and went may have been stopped by it.
            let had_it = host.given == Some(true) || host.version == rollout.candidate;
            own.is_passed_over &= !host.connected && !had_it;
            if soak.lacks(&host.id, time) {
                own.lacking.push(host);
                own.all_lack_for_long &= soak.has_lacked(&host.id, time * PATIENCE);
            }
        }
        // Beside hosts of their kind: copies, where a lab was set up from one image.
        let is_alone = trial.iter().all(|host| copied.is_alone(host));
        let has_it = |at: &&Placed<'_>| at.host.connected && at.host.version == rollout.candidate;
        let is_like = |at: &&Placed<'_>| !is_alone || copied.is_alone(at.host);
        let released = hosts.iter().filter(|at| at.is_released && at.host.changed);
        let few = MISSING_USUAL * released.filter(has_it).filter(is_like).count() as f64;
        // Whoever names a group wants it tried there.
        let newest = rollout.released.checked_sub(1).and_then(|at| rollout.plan.waves.get(at));
        let may_pass = own.all == 0 || own.all as f64 <= few && !matches!(newest, Some(Wave::Group(_)));
        own.is_passed_over &= own.lacking.is_empty() && may_pass;
        own
    }

    /// What is to be said as long as none of them has tried it. `is_over`: those that are there and do not
    /// take it had time enough.
    ///
    /// # Errors
    /// The same as [`Judgement`].
    pub(crate) fn are_seen(&self, rollout: &Rollout, soak: &Soak, is_over: bool) -> Result<(), Judgement> {
        if self.is_passed_over || soak.was_tried(rollout.plan.soak) {
            return Ok(());
        }
        let first = self.lacking.first().filter(|_| !soak.is_tried());
        Err(match first {
            _ if !is_over => Judgement::Watch,
            Some(_) if !self.all_lack_for_long => Judgement::Watch,
            Some(first) => Judgement::Uncertain(format!(
                "{lacking} of {} of this wave that are there do not take the version, such as {}",
                crate::hosts(self.lacking.len()),
                first.called(),
                lacking = self.lacking.len()
            )),
            None => {
                let who = self.called();
                coming(soak, rollout.plan.soak, soak.own_there(), &who)
            }
        })
    }

    /// What is to be known of a wave that is passed: that none of its hosts was waited for.
    pub(crate) fn said(&self) -> String {
        match self.is_passed_over && self.all > 0 {
            false => String::new(),
            true => {
                format!(" (but none of {}: they are off, and few)", self.called())
            }
        }
    }

    fn called(&self) -> String {
        let hosts = crate::hosts(self.all);
        match self.all == self.of_wave {
            true => format!("the wave's own {hosts}"),
            false => format!("the wave's own {hosts} that are not copies of few machines"),
        }
    }
}
