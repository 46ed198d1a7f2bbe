//! Whether hosts of its own have tried a wave's version.

use std::collections::BTreeMap;

use fallow_domain::AgentId;

use crate::judge::{Judgement, MISSING_USUAL};
use crate::rollout::Placed;
use crate::waiting::{PATIENCE, coming};
use crate::{HostNow, Rollout, Soak, Wave};

/// How many hosts of the fleet each machine is.
pub(crate) struct Machines<'h>(BTreeMap<&'h AgentId, usize>);

impl<'h> Machines<'h> {
    pub(crate) fn of(hosts: &[Placed<'h>]) -> Self {
        let mut machines: BTreeMap<&AgentId, usize> = BTreeMap::new();
        for at in hosts {
            *machines.entry(&at.host.machine).or_default() += 1;
        }
        Self(machines)
    }

    fn is_single(&self, host: &HostNow) -> bool {
        self.0.get(&host.machine).is_none_or(|copies| *copies <= 1)
    }

    /// The hosts of the wave that was released last which are a trial of it. Whoever has one machine can have
    /// made its copies, so these are none beside machines without copies: such a host would carry a version
    /// through all waves while everybody else is off. Where the latter are few, as in a lab that was set up
    /// from one image, it is beside them the machine of which the wave has most copies.
    pub(crate) fn trial(&self, hosts: &[Placed<'h>]) -> Vec<&'h HostNow> {
        let newest = hosts.iter().filter(|at| at.is_released && at.is_newest && at.host.changed);
        let own: Vec<&HostNow> = newest.map(|at| at.host).collect();
        let (mut trial, copies): (Vec<_>, Vec<_>) = own.iter().partition(|host| self.is_single(host));
        if copies.is_empty() || trial.len() as f64 >= MISSING_USUAL * own.len() as f64 {
            return trial;
        }
        let mut of_machine: BTreeMap<&AgentId, Vec<&HostNow>> = BTreeMap::new();
        for host in copies {
            of_machine.entry(&host.machine).or_default().push(host);
        }
        trial.extend(of_machine.into_values().max_by_key(Vec::len).unwrap_or_default());
        trial
    }
}

/// The hosts of the wave that was released last. What hosts of earlier waves show says nothing of them: with
/// these off, as at night, one host could release a version to all.
pub(crate) struct Own<'h> {
    /// All of them.
    all: usize,
    /// Those that are there and do not take it.
    lacking: Vec<&'h HostNow>,
    /// All of these have had time enough to take it.
    all_lack_for_long: bool,
    /// None is there nor ever had it, and they are few beside those that have it: nobody waits for them.
    is_passed_over: bool,
}

impl<'h> Own<'h> {
    pub(crate) fn of(rollout: &Rollout, soak: &Soak, hosts: &[Placed<'h>]) -> Self {
        let mut own = Self { all: 0, lacking: Vec::new(), all_lack_for_long: true, is_passed_over: true };
        let time = rollout.plan.soak;
        let machines = Machines::of(hosts);
        let trial = machines.trial(hosts);
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
        let is_alone = trial.iter().all(|host| machines.is_single(host));
        let has_it = |at: &&Placed<'_>| at.host.connected && at.host.version == rollout.candidate;
        let is_like = |at: &&Placed<'_>| !is_alone || machines.is_single(at.host);
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
                let who = format!("the wave's own {}", crate::hosts(self.all));
                coming(soak, rollout.plan.soak, soak.own_there(), &who)
            }
        })
    }

    /// What is to be known of a wave that is passed: that none of its hosts was waited for.
    pub(crate) fn said(&self) -> String {
        match self.is_passed_over && self.all > 0 {
            false => String::new(),
            true => {
                format!(" (but none of the wave's own {}: they are off, and few)", crate::hosts(self.all))
            }
        }
    }
}
