//! Tasks that fill the disk, while there is no space to store anything.
//!
//! Model: the client ends a task that holds more than it may, but what it decides is carried out when it is stored, and the
//! task itself is why nothing can be. So it is killed first and its slot emptied, as are tasks whose results nobody wants. This
//! can do no harm: were the agent to end now, the job would be started anew and be ended for the same reason.

use fallow_domain::MasterUrl;

use super::Engine;

impl Engine {
    /// Makes room by tasks: those of a project that leaves, those that hold more than they may, and those that are over.
    pub(super) fn take_from_tasks(&self, leaving: Option<&MasterUrl>) {
        let leave = self.departing.iter().map(|(url, _)| url).chain(leaving);
        let leave: Vec<_> = leave.filter_map(|url| self.client.standing(url).attached).collect();
        let bounds = self.client.disk_bounds().into_iter();
        let stay = bounds.filter(|(_, (project, _))| !leave.contains(project));
        self.supervisor.make_room(Some(stay.map(|(job, (_, most))| (job, most)).collect()));
    }
}
