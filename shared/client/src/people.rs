//! Somebody has the machine for himself, for he uses it or has paused computing: no file is transferred
//! meanwhile (R6.2, R6.4; BOINC suspends the network where `run_if_user_active` is 0 and somebody is there).
//! What is under way is broken off and goes on from there. Projects are contacted all the same: their calls
//! are small, and a job whose files are sent has a deadline.

use crate::machine::Client;
use crate::timers::Timer;
use crate::{Cause, Entity};

impl Client {
    /// Breaks off what is transferred when somebody comes, and has it go on when he has left.
    pub(crate) fn poll_people(&mut self) {
        let is_wanted = self.is_wanted_by_people();
        if std::mem::replace(&mut self.files_yield, is_wanted) == is_wanted {
            return;
        }
        self.timers.all_stale([Timer::Transfer, Timer::Connection, Timer::OtherNetwork]);
        self.touch(Entity::Host);
        if is_wanted {
            self.break_off_transfers(&Cause::InUse);
        }
    }

    /// Why files wait that could begin otherwise, if there are any.
    pub(crate) fn files_wait(&self) -> Option<String> {
        if self.files_yield {
            let why = match self.state.host.gives_way() {
                true => "somebody uses this machine",
                false => "somebody has paused computing",
            };
            return self.could_begin_but_for_people().then(|| why.to_owned());
        }
        self.wait_for_others()
    }
}
