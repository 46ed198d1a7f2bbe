//! Pauses: somebody on the host, who need not be its owner, wants it for himself for a while (R6.2).
//!
//! Other than a suspension a pause ends by itself, and it is never longer than a day, whatever becomes of the
//! clock. It holds over a restart.
//!
//! Whoever may ask can ask as often as he likes. An end that is hardly another one stays as it is, so that
//! this is neither stored nor said again.

use fallow_domain::{Duration, Instant};

use crate::machine::Client;
use crate::{Cause, Effect, Entity, NoticeLevel};

/// The longest pause.
pub const SNOOZE_MAX: Duration = Duration::from_hours(24);
/// An end that is less than so much away from the present one is the same.
pub const SNOOZE_SAME: Duration = Duration::from_secs(5);

impl Client {
    /// Nothing computes for so long; for none, what was paused may go on.
    pub(crate) fn snooze(&mut self, time: Duration) {
        let time = time.min(SNOOZE_MAX);
        let until = time.is_positive().then(|| self.now() + time);
        let was = self.state.host.is_snoozed();
        if is_same(self.state.host.snoozed_until, until, was) {
            return;
        }
        self.edit_meta(|meta| meta.snoozed_until = until);
        self.spare_tasks();
        match until {
            Some(_) => {
                self.act(Effect::FreezeTasks, Cause::InUse);
                self.notice(
                    NoticeLevel::Info,
                    None,
                    format!("computing is paused for {time} by somebody here"),
                );
            }
            None if was => self.snooze_ended(),
            None => {}
        }
    }

    /// A pause is over.
    pub(crate) fn snooze_ended(&mut self) {
        self.spare_tasks();
        self.touch(Entity::Host);
        self.notice(NoticeLevel::Info, None, "the pause is over: computing may go on");
    }
}

/// Whether a pause ends as it does already. `is_on`: the present one is not over.
fn is_same(present: Option<Instant>, wanted: Option<Instant>, is_on: bool) -> bool {
    match (present, wanted) {
        (Some(present), Some(wanted)) => {
            is_on && wanted - present < SNOOZE_SAME && present - wanted < SNOOZE_SAME
        }
        (present, wanted) => present == wanted,
    }
}
