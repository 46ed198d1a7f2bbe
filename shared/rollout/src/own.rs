//! Whether hosts of its own have tried a wave's version.

use fallow_domain::Duration;

use crate::judge::{Judgement, PATIENCE};
use crate::rollout::Placed;
use crate::{HostNow, Rollout, Soak};

/// A wave none of whose hosts is there is waited for over a long weekend.
pub(crate) const WEEKEND: Duration = Duration::from_hours(72);

/// The hosts of the wave that was released last. What hosts of earlier waves show says nothing of them: with
/// these off, as at night, one host could release a version to all.
pub(crate) struct Own<'h> {
    /// All of them.
    all: usize,
    /// One is there that has the version.
    is_there: bool,
    /// Those that are there and do not take it.
    lacking: Vec<&'h HostNow>,
    /// One of these has not taken it for so long that it will not.
    lacks_for_long: bool,
    /// None is there nor ever had it, and they are few beside those that have tried it: nobody waits for
    /// them.
    is_passed_over: bool,
}

impl<'h> Own<'h> {
    /// `few`: so many are few beside those that have tried it.
    pub(crate) fn of(rollout: &Rollout, soak: &Soak, hosts: &[Placed<'h>], few: f64) -> Self {
        let mut own = Self {
            all: 0,
            is_there: false,
            lacking: Vec::new(),
            lacks_for_long: false,
            is_passed_over: true,
        };
        let long = rollout.plan.soak * PATIENCE;
        for host in hosts.iter().filter(|at| at.is_newest && at.host.changed).map(|at| at.host) {
            own.all += 1;
            // Who had it and went may have been stopped by it.
            let had_it = host.given == Some(true) || host.version == rollout.candidate;
            own.is_passed_over &= !host.connected && !had_it;
            own.is_there |= host.connected && host.version == rollout.candidate;
            if soak.lacks(&host.id, rollout.plan.soak) {
                own.lacking.push(host);
                own.lacks_for_long |= soak.has_lacked(&host.id, long);
            }
        }
        // Copies count one by one: those of a machine are rather waited for than passed over.
        own.is_passed_over &= own.lacking.is_empty() && own.all as f64 <= few;
        own
    }

    /// What is to be said as long as none of them has tried it. `is_over`: those that are there and do not
    /// take it had time enough.
    ///
    /// # Errors
    /// The same as [`Judgement`].
    pub(crate) fn are_seen(&self, rollout: &Rollout, soak: &Soak, is_over: bool) -> Result<(), Judgement> {
        // Copies that do not speak for their machine try it like any other host.
        if self.is_passed_over || self.is_there && soak.was_tried(rollout.plan.soak) {
            return Ok(());
        }
        if self.is_there || !is_over {
            return Err(Judgement::Watch);
        }
        match self.lacking.first() {
            Some(_) if !self.lacks_for_long => Err(Judgement::Watch),
            Some(first) => Err(Judgement::Uncertain(format!(
                "{lacking} of {} of this wave that are there do not take the version, such as {}",
                crate::hosts(self.lacking.len()),
                first.called(),
                lacking = self.lacking.len()
            ))),
            None if soak.watched() < WEEKEND => Err(Judgement::Watch),
            None => Err(Judgement::Uncertain(format!(
                "none of the wave's own {} is there: they are off, or their networks are",
                crate::hosts(self.all)
            ))),
        }
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
