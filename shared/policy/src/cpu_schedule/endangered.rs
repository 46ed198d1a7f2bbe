//! The jobs that run because deadlines are in danger (R5.2).
//!
//! Of a project with n simulated misses these are the n jobs of earliest deadline. They need not be the jobs
//! that the simulation showed late: if only those ran, the others would become late in their place. A task
//! of the same deadline as the last of them joins them while its time slice lasts: else a job of its project
//! that was started meanwhile could take its place, and an equally urgent job of another project would
//! preempt it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fallow_domain::{Duration, Instant, JobId, ResourceType};

use super::ProjectSnapshot;
use crate::job_queue::{Entry, JobQueue, Subqueue};

/// Earliest deadline first; of equal ones what has been started, then what needs least.
type Rank = (Instant, bool, Duration, JobId);

fn started(entry: &Entry) -> Rank {
    (entry.deadline, false, entry.left, entry.id)
}

fn unstarted(entry: &Entry) -> Rank {
    (entry.deadline, true, entry.left, entry.id)
}

/// The first jobs of one subqueue by rank: as many as would miss their deadlines, and the tasks that are as
/// urgent as the last of them and in their slices.
fn ranked(subqueue: &Subqueue, misses: u32, in_slice: impl Fn(JobId) -> bool) -> impl Iterator<Item = Rank> {
    let mut tasks: Vec<Rank> = subqueue.running.iter().chain(&subqueue.preempted).map(started).collect();
    tasks.sort_unstable();
    let mut tasks = tasks.into_iter().peekable();
    let mut queued = subqueue.queued.iter().filter(|entry| entry.ready).map(unstarted).peekable();
    let mut left = misses;
    let mut latest = None;
    std::iter::from_fn(move || {
        if left == 0 {
            return tasks
                .by_ref()
                .take_while(|(due, ..)| Some(*due) == latest)
                .find(|(.., id)| in_slice(*id));
        }
        left -= 1;
        let rank = match (tasks.peek(), queued.peek()) {
            (Some(task), Some(job)) if job < task => queued.next(),
            (None, _) => queued.next(),
            _ => tasks.next(),
        };
        latest = rank.map(|(due, ..)| due);
        rank
    })
}

/// The endangered jobs of all projects for one type, with the misses of their project.
pub(super) fn endangered<'a>(
    projects: &'a [ProjectSnapshot],
    queue: &'a JobQueue,
    kind: ResourceType,
    in_slice: impl Fn(JobId) -> bool + Copy + 'a,
) -> impl Iterator<Item = (JobId, u32)> + 'a {
    let mut subqueues: Vec<_> = projects
        .iter()
        .filter(|project| project.misses[kind] > 0)
        .filter_map(|p| Some((ranked(queue.subqueue(p.id, kind)?, p.misses[kind], in_slice), p.misses[kind])))
        .collect();
    let mut next: BinaryHeap<Reverse<(Rank, usize)>> = BinaryHeap::new();
    for (at, (subqueue, _)) in subqueues.iter_mut().enumerate() {
        next.extend(subqueue.next().map(|rank| Reverse((rank, at))));
    }
    std::iter::from_fn(move || {
        let Reverse(((_, _, _, id), at)) = next.pop()?;
        let (subqueue, misses) = subqueues.get_mut(at)?;
        next.extend(subqueue.next().map(|rank| Reverse((rank, at))));
        Some((id, *misses))
    })
}
