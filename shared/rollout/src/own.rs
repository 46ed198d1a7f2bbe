//! Whether hosts of its own have tried a wave's version.

use crate::judge::{Judgement, MISSING_USUAL};
use crate::rollout::Placed;
use crate::waiting::{PATIENCE, coming};
use crate::{HostNow, Rollout, Soak, Wave};

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
        let released = || hosts.iter().filter(|at| at.is_released && at.host.changed);
        for host in released().filter(|at| at.is_newest).map(|at| at.host) {
            own.all += 1;
            // Who had it and went may have been stopped by it.
            let had_it = host.given == Some(true) || host.version == rollout.candidate;
            own.is_passed_over &= !host.connected && !had_it;
            if soak.lacks(&host.id, time) {
                own.lacking.push(host);
                own.all_lack_for_long &= soak.has_lacked(&host.id, time * PATIENCE);
            }
        }
        // Hosts beside hosts, with all copies: a lab may be set up from one image.
        let has_it = |at: &&Placed<'_>| at.host.connected && at.host.version == rollout.candidate;
        let few = MISSING_USUAL * released().filter(has_it).count() as f64;
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
        // Copies that do not speak for their machine try it like any other host.
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
