//! Whether hosts of its own have tried a wave's version.

use fallow_domain::Duration;

use crate::judge::Judgement;
use crate::rollout::Placed;
use crate::{HostNow, Rollout, Soak};

/// A wave none of whose hosts is there is waited for over a long weekend.
pub(crate) const WEEKEND: Duration = Duration::from_hours(72);

/// The hosts of the wave that was released last. What hosts of earlier waves show says nothing of them: with
/// these off, as at night, one host could release a version to all.
pub(crate) struct Own<'h> {
    /// All of them.
    all: usize,
    /// Those that are waited for: who was off for a long weekend already when the wave began is not.
    awaited: usize,
    /// One is there that has the version.
    is_there: bool,
    /// Those that are there and do not take it.
    lacking: Vec<&'h HostNow>,
}

impl<'h> Own<'h> {
    pub(crate) fn of(rollout: &Rollout, soak: &Soak, hosts: &[Placed<'h>]) -> Self {
        let mut own = Self { all: 0, awaited: 0, is_there: false, lacking: Vec::new() };
        for host in hosts.iter().filter(|at| at.is_newest && at.host.changed).map(|at| at.host) {
            own.all += 1;
            own.awaited += usize::from(host.connected || !soak.was_long_gone(host));
            own.is_there |= host.connected && host.version == rollout.candidate;
            own.lacking.extend(soak.lacks(&host.id, rollout.plan.soak).then_some(host));
        }
        own
    }

    /// What is to be said as long as none of them has tried it. `is_over`: those that are there and do not
    /// take it had time enough.
    ///
    /// # Errors
    /// The same as [`Judgement`].
    pub(crate) fn are_seen(&self, rollout: &Rollout, soak: &Soak, is_over: bool) -> Result<(), Judgement> {
        // Copies that do not speak for their machine try it like any other host.
        if self.awaited == 0 || self.is_there && soak.was_tried(rollout.plan.soak) {
            return Ok(());
        }
        if self.is_there || !is_over {
            return Err(Judgement::Watch);
        }
        match self.lacking.first() {
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
        match (self.all, self.awaited) {
            (0, _) | (_, 1..) => String::new(),
            (all, 0) => format!(
                " (but none of the wave's own {}: off for three days when it began)",
                crate::hosts(all)
            ),
        }
    }
}
