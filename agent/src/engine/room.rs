//! Tasks that fill the disk, while there is no space to store anything (R6.10).
//!
//! Model: what the client decides is carried out when it is stored, and a task may be why nothing can be. So
//! whose files go before that is asked of the client as it stands ([`fallow_client::Room`], which says also
//! what is lost if the agent ends before anything could be stored), and done by the supervisor.

use fallow_client::Press;
use fallow_domain::MasterUrl;

use super::Engine;

impl Engine {
    /// Makes room by tasks, also by those of a project that leaves. `press`: whether that was not enough
    /// for a while.
    pub(super) fn take_from_tasks(&self, leaving: Option<&MasterUrl>, press: Press) {
        let leave = self.departing.iter().map(|(url, _)| url).chain(leaving);
        let leave: Vec<_> = leave.filter_map(|url| self.client.standing(url).attached).collect();
        let room = self.client.room(&leave);
        self.supervisor.make_room(Some(room.pressing(press)));
    }
}
