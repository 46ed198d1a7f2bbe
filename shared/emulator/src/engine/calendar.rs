//! What will happen on the host, in the order of a clock that runs while the host is on.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use fallow_boinc::scheduler::SchedulerRequest;
use fallow_client::FileKey;
use fallow_domain::{Duration, JobId, MasterUrl, ProjectId};

/// Something that will happen.
#[derive(Debug)]
pub(crate) enum CalendarEvent {
    /// A task reaches its end, if it has run without a break since `turn`.
    End {
        /// The task.
        job: JobId,
        /// Which stretch of running this is about.
        turn: u32,
    },
    /// A task reaches a checkpoint, likewise.
    Checkpoint {
        /// The task.
        job: JobId,
        /// Which stretch of running this is about.
        turn: u32,
    },
    /// A request reaches its server, and the answer the client.
    Answer {
        /// The project.
        project: ProjectId,
        /// The request.
        request: Box<SchedulerRequest>,
    },
    /// A master page was read.
    Page {
        /// The project.
        project: ProjectId,
        /// Its URL.
        url: MasterUrl,
    },
    /// A transfer ends.
    Transfer {
        /// The file.
        file: FileKey,
        /// An upload.
        upload: bool,
        /// How often the project's server had gone down or up when it began.
        changes: u64,
    },
}

/// What is to come, by time on the host's clock; of the same time what was entered first.
#[derive(Debug, Default)]
pub(crate) struct Calendar {
    heap: BinaryHeap<Entry>,
    entered: u64,
}

#[derive(Debug)]
struct Entry {
    at: Duration,
    number: u64,
    event: CalendarEvent,
}

impl Calendar {
    pub(crate) fn enter(&mut self, at: Duration, event: CalendarEvent) {
        self.entered += 1;
        self.heap.push(Entry { at, number: self.entered, event });
    }

    /// When the next thing happens, if one will.
    pub(crate) fn next_at(&self) -> Option<Duration> {
        self.heap.peek().map(|entry| entry.at)
    }

    /// The next thing that happens until `at`.
    pub(crate) fn pop(&mut self, at: Duration) -> Option<CalendarEvent> {
        if self.next_at()? > at { None } else { self.heap.pop().map(|entry| entry.event) }
    }
}

impl Ord for Entry {
    /// The earliest is the greatest, since the heap gives the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Entry {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_comes_in_order_of_time_and_then_of_entry() {
        let mut calendar = Calendar::default();
        for (at, job) in [(5, 1), (3, 2), (5, 3), (9, 4)] {
            calendar.enter(Duration::from_secs(at), CalendarEvent::End { job: JobId(job), turn: 0 });
        }
        let mut next = |at| match calendar.pop(Duration::from_secs(at)) {
            Some(CalendarEvent::End { job, .. }) => Some(job.0),
            _ => None,
        };
        assert_eq!([next(4), next(4), next(5), next(5), next(5)], [Some(2), None, Some(1), Some(3), None]);
        assert_eq!(calendar.next_at(), Some(Duration::from_secs(9)));
    }
}
