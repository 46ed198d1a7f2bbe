//! Other programs that use the network, for which files wait (R6.4): what is under way is broken off and
//! goes on from there when they use it less. Projects are contacted all the same: their calls are small, and
//! a job whose files are sent has a deadline.

use fallow_policy::other_network::{Change, NetworkMoved};

use crate::machine::Client;
use crate::timers::Timer;
use crate::{Cause, NoticeLevel};

impl Client {
    /// So much was moved over the network so far.
    pub(crate) fn network_moved(&mut self, moved: NetworkMoved) {
        let Some(most) = self.local_preferences().other_network_max else { return };
        let now = self.now();
        self.other_network.look(now, moved, most);
    }

    /// Begins or ends the wait for other programs.
    pub(crate) fn poll_other_network(&mut self) {
        let (now, most) = (self.now(), self.local_preferences().other_network_max);
        // What was seen, what is decided now, and files that could begin change it.
        self.timers.stale(Timer::OtherNetwork);
        let Some(change) = self.other_network.decide(now, most) else { return };
        self.timers.stale(Timer::Transfer);
        let (others, text) = match change {
            Change::Wait(others) => {
                self.break_off_transfers(&Cause::OthersUseNetwork(others));
                (others, format!("files wait: {others}"))
            }
            Change::GoOn(others) => {
                (others, "files no longer wait for other programs that use the network".to_owned())
            }
        };
        // One that comes and goes is said once.
        if others.is_news() {
            self.notice(NoticeLevel::Info, None, text);
        }
    }

    /// Whether files that could begin wait until it is known whether other programs use the network. While
    /// some are under way, it is looked all the time.
    pub(crate) fn awaits_looks(&mut self) -> bool {
        let now = self.now();
        self.local_preferences().other_network_max.is_some()
            && !self.state.transfers.any_active()
            && self.could_begin_files()
            && self.other_network.await_looks(now)
    }

    /// Whether it is to be looked what goes over the network: a file is transferred, or would be but for
    /// other programs.
    pub(crate) fn watches_network(&self) -> bool {
        let is_held = || self.other_network.holds(self.now()) && self.could_begin_files();
        self.local_preferences().other_network_max.is_some()
            && (self.state.transfers.any_active() || is_held())
    }

    /// The same where they wait for other programs.
    pub(crate) fn wait_for_others(&self) -> Option<String> {
        let others = self.other_network.waits().filter(|_| self.could_begin_files());
        others.map(|others| others.to_string())
    }
}
