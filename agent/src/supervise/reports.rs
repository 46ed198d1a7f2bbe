//! What the engine must be told, in order, by a thread that cannot wait for it.
//!
//! Model: while nothing can be stored the engine takes nothing in, and its queue fills. Applications give up
//! when they hear no heartbeat, so the supervisor keeps what there is no room for, and tells it when there
//! is. Its size: a task that was ordered has at most a start, a last sample and an end.

use std::collections::VecDeque;

use fallow_client::Event;

use super::SendEvent;

#[derive(Debug, Default)]
pub(super) struct Reports(VecDeque<Event>);

impl Reports {
    /// Tells it now if there is room, and else later, after what waits already.
    pub(super) fn push(&mut self, event: Event, send_event: &SendEvent) {
        self.0.push_back(event);
        self.tell(send_event);
    }

    /// Tells as much as there is room for.
    pub(super) fn tell(&mut self, send_event: &SendEvent) {
        while let Some(event) = self.0.pop_front() {
            if let Some(event) = send_event(event) {
                self.0.push_front(event);
                return;
            }
        }
    }

    /// True when all is told.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
