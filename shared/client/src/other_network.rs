//! Other programs that use the network, for which files wait (R6.4): what is under way is broken off and
//! goes on from there when they use it less. Projects are contacted all the same: a finished job has a
//! deadline, and calls are small.

use fallow_policy::other_network::{Change, NetworkMoved};

use crate::machine::Client;
use crate::timers::Timer;
use crate::{Cause, NoticeLevel};

impl Client {
    /// So much was moved over the network so far.
    pub(crate) fn network_seen(&mut self, moved: NetworkMoved) {
        let Some(most) = self.local_preferences().other_network_max else { return };
        let now = self.now();
        self.other_network.look(now, moved, most);
        self.timers.stale(Timer::OtherNetwork);
    }

    /// Begins or ends the wait for other programs.
    pub(crate) fn poll_other_network(&mut self) {
        let (now, most) = (self.now(), self.local_preferences().other_network_max);
        let Some(change) = self.other_network.decide(now, most) else { return };
        self.timers.all_stale([Timer::OtherNetwork, Timer::Transfer]);
        let text = match change {
            Change::Wait(others) => {
                self.break_off_transfers(&Cause::OthersUseNetwork(others));
                format!("files wait: {others}")
            }
            Change::GoOn => "files no longer wait for other programs that use the network".to_owned(),
        };
        self.notice(NoticeLevel::Info, None, text);
    }
}
