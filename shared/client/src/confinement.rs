//! Layers of confinement that preferences require: while the host lacks one, nothing is computed (R6.10).
//!
//! Not stored: the shell looks at each start which layers the host has, before the client decides anything.

use fallow_policy::confinement::{HostLayer, TaskLayers};

use crate::Cause;

use crate::machine::Client;
use crate::timers::Timer;

impl Client {
    /// Whether nothing is computed because the host lacks layers that are required.
    pub fn lacks_layers(&self) -> bool {
        !self.state.host.lacking().is_nothing()
    }

    /// The shell has looked which layers the host has.
    pub(crate) fn layers_seen(&mut self, layers: Vec<HostLayer>) {
        let now = self.now();
        let found = self.state.host.set_layers(layers, now);
        // Before the start all is worked out anyway once the host was measured.
        if self.state.host.facts().is_some() {
            self.see_to(found);
            self.take_unconfined_off();
            self.timers.stale(Timer::InUse);
        }
    }

    /// What each task has to have to be started.
    pub(crate) fn required_of_tasks(&self) -> TaskLayers {
        self.state.host.required_of_tasks()
    }

    /// Tasks that were started without what is required leave, and start again with it. As long as the host
    /// itself lacks something, they rest in memory with all others: they could not start again.
    pub(crate) fn take_unconfined_off(&mut self) {
        if self.lacks_layers() {
            return;
        }
        let required = self.required_of_tasks();
        if required.any() {
            self.have_leave(&Cause::Unconfined, |_, job| job.given.without.and(required).any());
        }
    }
}
