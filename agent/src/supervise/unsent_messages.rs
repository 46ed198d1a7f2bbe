//! Messages of jobs to their projects that the engine does not know of yet (R6.10).
//!
//! Model: the engine may take nothing in for a long time, on a full disk for example, and heartbeats and the
//! owner's orders must not wait for that. So it is told of a message when it has room. A message is a file in
//! its project's directory: what was not told when the agent ends is found there at the next start.
//!
//! While there is no space on the disk the client cannot say how many a job may send, so each job has as many
//! as it may have waiting, and they count as what it holds: else it could have the disk full of them.

use std::collections::{BTreeMap, VecDeque};

use fallow_client::{Event, TRICKLES_OF_JOB};
use fallow_domain::{Bytes, JobId};

use super::TrySendEvent;

/// Messages that wait at most; more stay where their jobs wrote them.
const MAX: usize = 500;

/// The messages, in the order in which they were found.
#[derive(Debug, Default)]
pub(super) struct UnsentMessages {
    waiting: VecDeque<(JobId, String, Bytes)>,
    /// Those of each job since there is no space, told or not; none while there is.
    taken: Option<BTreeMap<JobId, Vec<String>>>,
}

impl UnsentMessages {
    /// There is no space on the disk, or there is again.
    pub(super) fn set_short(&mut self, is_short: bool) {
        match is_short {
            true => drop(self.taken.get_or_insert_default()),
            false => self.taken = None,
        }
    }

    /// True where another message of a job may be taken.
    pub(super) fn has_room_of(&self, job: JobId) -> bool {
        self.waiting.len() < MAX && self.names(job).len() < TRICKLES_OF_JOB
    }

    /// The messages that a job has sent since there is no space.
    pub(super) fn names(&self, job: JobId) -> &[String] {
        self.taken.as_ref().and_then(|taken| taken.get(&job)).map_or(&[], Vec::as_slice)
    }

    /// True when there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A job's message, by the name of its file, was found.
    pub(super) fn push(&mut self, job: JobId, name: String, nbytes: Bytes) {
        if let Some(taken) = &mut self.taken {
            taken.entry(job).or_default().push(name.clone());
        }
        if self.waiting.len() < MAX {
            self.waiting.push_back((job, name, nbytes));
        }
    }

    /// Tells of as many as there is room for.
    pub(super) fn tell(&mut self, try_send_event: &TrySendEvent) {
        while let Some((job, name, nbytes)) = self.waiting.front() {
            if !try_send_event(Event::TrickleFound { job: *job, name: name.clone(), nbytes: *nbytes }) {
                return;
            }
            self.waiting.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_without_space_a_job_has_no_more_messages_than_may_wait_and_they_count_as_its_own() {
        let (one, other) = (JobId(1), JobId(2));
        let mut unsent = UnsentMessages::default();
        let sends = |unsent: &mut UnsentMessages, job, count: usize| {
            for number in 0..count {
                unsent.push(job, format!("{job}_{number}"), Bytes(1));
            }
            // That they are told makes no difference.
            let told: TrySendEvent = std::sync::Arc::new(|_| true);
            unsent.tell(&told);
        };
        sends(&mut unsent, one, TRICKLES_OF_JOB);
        assert!(unsent.has_room_of(one) && unsent.names(one).is_empty(), "there is space");
        unsent.set_short(true);
        sends(&mut unsent, one, TRICKLES_OF_JOB - 1);
        assert!(unsent.has_room_of(one));
        sends(&mut unsent, one, 1);
        // It is said again and again that there is none.
        unsent.set_short(true);
        assert!(!unsent.has_room_of(one) && unsent.has_room_of(other));
        assert_eq!((unsent.names(one).len(), unsent.names(other).len()), (TRICKLES_OF_JOB, 0));
        unsent.set_short(false);
        assert!(unsent.has_room_of(one));
    }
}
