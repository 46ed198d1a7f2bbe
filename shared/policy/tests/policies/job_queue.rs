//! The queue that is changed bit by bit against one that is built at once.

use fallow_domain::{Duration, JobId, ProjectId, ResourceType, Usage};
use fallow_policy::job_queue::{JobQueue, JobSnapshot};
use fallow_policy::send::{InProgress, Load};
use proptest::prelude::*;

use crate::world::{any_jobs, job};

fn check_sums(queue: &JobQueue, jobs: &[JobSnapshot]) -> Result<(), TestCaseError> {
    prop_assert_eq!(queue.len(), jobs.len());
    for id in (1..7).map(ProjectId) {
        let mut mine: Vec<_> = jobs.iter().filter(|job| job.project == id).collect();
        mine.sort_by_key(|job| (job.deadline, job.remaining, job.id));
        let runnable = mine.iter().filter(|job| job.is_runnable());
        let cpus: f64 = runnable.clone().map(|job| job.needs().cpus.as_f64()).sum();
        prop_assert_eq!(queue.is_runnable(id), runnable.count() > 0);
        prop_assert!((queue.runnable_cpus(id).as_f64() - cpus).abs() < 1e-9);
        for k in 0..4 {
            let kept = mine.len().saturating_sub(k);
            let left = mine[..kept].iter().map(|job| job.remaining.mul_f64(job.needs().cpus.as_f64())).sum();
            let held = queue.remaining_on_but_latest(id, ResourceType::Cpu, k);
            prop_assert_eq!(held, left, "{} {}", id, k);
        }
    }
    check_load(queue, jobs)
}

/// What the queue says that its jobs come to is what they come to, where it says that it can be relied on.
fn check_load(queue: &JobQueue, jobs: &[JobSnapshot]) -> Result<(), TestCaseError> {
    let held =
        |job: &JobSnapshot| InProgress { deadline: job.deadline, remaining: job.remaining, usage: job.usage };
    if queue.load().is_reliable() {
        prop_assert_eq!(queue.load(), Load::of(&jobs.iter().map(held).collect::<Vec<_>>()));
    }
    let whole: Vec<_> = jobs.iter().map(|job| JobSnapshot { usage: Usage::ONE_CPU, ..*job }).collect();
    let load = whole.iter().copied().collect::<JobQueue>().load();
    prop_assert!(load.is_reliable());
    prop_assert_eq!(load, Load::of(&whole.iter().map(held).collect::<Vec<_>>()));
    Ok(())
}

proptest! {
    #[test]
    fn sums_hold_after_any_changes(
        first in any_jobs(30), then in any_jobs(30), removed in prop::collection::vec(1_u64..40, 0..20),
    ) {
        let mut queue: JobQueue = first.iter().copied().collect();
        check_sums(&queue, &first)?;
        let mut jobs = first;
        for change in then {
            queue.insert(change);
            jobs.retain(|job| job.id != change.id);
            jobs.push(change);
        }
        for id in removed {
            queue.remove(JobId(id));
            jobs.retain(|job| job.id != JobId(id));
        }
        check_sums(&queue, &jobs)?;
    }
}

#[test]
fn an_absurd_estimate_spoils_no_sum() {
    let mut queue = JobQueue::default();
    queue.insert(JobSnapshot { remaining: Duration::MAX, ..job(1, 1, 1) });
    queue.insert(JobSnapshot { remaining: Duration::from_secs(-5), ..job(2, 1, 1) });
    queue.insert(job(3, 1, 1));
    queue.remove(JobId(1));
    assert_eq!(queue.remaining(ProjectId(1)), Duration::from_hours(1));
}

#[test]
fn a_change_to_an_unknown_job_does_nothing() {
    let mut queue = JobQueue::default();
    queue.update(JobId(7), |job| job.remaining = Duration::ZERO);
    assert!(queue.is_empty() && queue.remove(JobId(7)).is_none());
}
