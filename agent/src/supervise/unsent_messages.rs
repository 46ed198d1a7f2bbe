//! Messages of jobs to their projects that the engine does not know of yet (R6.10).
//!
//! Model: the engine may take nothing in for a long time, on a full disk for example, and heartbeats and the
//! owner's orders must not wait for that. So it is told of a message when it has room. A message is a file in
//! its project's directory: what was not told when the agent ends is found there at the next start.

use std::collections::VecDeque;

use fallow_client::Event;
use fallow_domain::{Bytes, JobId};

use super::TrySendEvent;

/// Messages that wait at most; more stay where their jobs wrote them.
const MAX: usize = 500;

/// The messages, in the order in which they were found.
#[derive(Debug, Default)]
pub(super) struct UnsentMessages(VecDeque<(JobId, String, Bytes)>);

impl UnsentMessages {
    /// True when no more messages are to be taken from jobs.
    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= MAX
    }

    /// True when there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A job's message, by the name of its file, was found.
    pub(super) fn push(&mut self, job: JobId, name: String, nbytes: Bytes) {
        if !self.is_full() {
            self.0.push_back((job, name, nbytes));
        }
    }

    /// Tells of as many as there is room for.
    pub(super) fn tell(&mut self, try_send_event: &TrySendEvent) {
        while let Some((job, name, nbytes)) = self.0.front() {
            if !try_send_event(Event::TrickleFound { job: *job, name: name.clone(), nbytes: *nbytes }) {
                return;
            }
            self.0.pop_front();
        }
    }
}
