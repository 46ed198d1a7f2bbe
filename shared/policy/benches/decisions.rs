//! What a decision costs (R2.16): CPU scheduling and work fetch on 8 CPUs, by queued jobs and projects.
//!
//! Run with `cargo bench -p fallow-policy`. The queue is kept by its caller, so a decision does not pay for
//! building it; `change_one_job` is what keeping it costs.

use divan::{Bencher, black_box};
use fallow_domain::{Bytes, Duration, Fraction, Instant, JobId, ProjectId, Share, Usage};
use fallow_policy::cpu_schedule::{HostCpus, ProjectSnapshot, choose};
use fallow_policy::debt::Debt;
use fallow_policy::job_queue::{JobQueue, JobSnapshot, JobState};
use fallow_policy::work_fetch::{FetchHost, FetchProject, WorkBuffer, check};

const SIZES: [(u64, u32); 9] = [
    (100, 1),
    (100, 20),
    (100, 100),
    (1_000, 1),
    (1_000, 20),
    (1_000, 100),
    (10_000, 1),
    (10_000, 20),
    (10_000, 100),
];

const CPUS: u32 = 8;

fn main() {
    divan::main();
}

fn now() -> Instant {
    Instant::from_secs_f64(1.8e9)
}

/// Of each project's jobs one in fifty is preempted; eight jobs run, past their slices, so that nothing is settled
/// before debts are compared.
fn queue(jobs: u64, projects: u32) -> JobQueue {
    let job = |id: u64| JobSnapshot {
        id: JobId(id),
        project: ProjectId((id % u64::from(projects)) as u32),
        usage: Usage::ONE_CPU,
        state: match id {
            0..8 => {
                JobState::Running { slice_began: now() - Duration::from_hours(2), checkpointed_at: now() }
            }
            _ if id.is_multiple_of(50) => JobState::Preempted,
            _ => JobState::Unstarted,
        },
        deadline: now() + Duration::from_secs((id * 7_919 % 1_000_003) as i64),
        working_set: Bytes::from_mebibytes(100 + id % 5 * 50),
        remaining: Duration::from_hours(1),
    };
    (0..jobs).map(job).collect()
}

fn projects(count: u32) -> Vec<ProjectSnapshot> {
    let debt = |id: u32| Debt::from_cpu_secs(f64::from(id * 7_919 % 10_007) - 5_000.0);
    (0..count)
        .map(|id| ProjectSnapshot { id: ProjectId(id), share: Share::DEFAULT, debt: debt(id) })
        .collect()
}

#[divan::bench(args = SIZES)]
fn cpu_scheduling_decision(bencher: Bencher<'_, '_>, (jobs, count): (u64, u32)) {
    let (queue, projects) = (queue(jobs, count), projects(count));
    let host = HostCpus {
        usable: CPUS,
        scheduling_period: Duration::from_hours(1),
        memory_limit: Bytes::from_mebibytes(16_000),
        preempt_only_at_checkpoint: true,
    };
    bencher.bench(|| choose(&host, Duration::from_hours(8), black_box(&projects), black_box(&queue), now()));
}

/// The worst that servers can do: no two jobs need the same memory, so that no bucket holds more than one.
#[divan::bench(args = [100, 1_000, 10_000])]
fn cpu_scheduling_decision_when_no_two_jobs_are_alike(bencher: Bencher<'_, '_>, jobs: u64) {
    let mut queue = queue(jobs, 20);
    for id in 0..jobs {
        queue.update(JobId(id), |job| job.working_set = Bytes(job.working_set.0 + id));
    }
    let projects = projects(20);
    let host = HostCpus {
        usable: CPUS,
        scheduling_period: Duration::from_hours(1),
        memory_limit: Bytes::from_mebibytes(16_000),
        preempt_only_at_checkpoint: true,
    };
    bencher.bench(|| choose(&host, Duration::from_hours(8), black_box(&projects), black_box(&queue), now()));
}

#[divan::bench(args = SIZES)]
fn work_fetch_check(bencher: Bencher<'_, '_>, (jobs, count): (u64, u32)) {
    let queue = queue(jobs, count);
    let supplier = |id| FetchProject { id: ProjectId(id), share: Share::DEFAULT, may_supply: true };
    let projects: Vec<_> = (0..count).map(supplier).collect();
    let host = FetchHost {
        usable: CPUS,
        active_fraction: Fraction::ONE,
        buffer: WorkBuffer::marks(Duration::from_hours(2), Duration::from_hours(6)),
    };
    bencher.bench(|| check(&host, black_box(&projects), black_box(&queue)));
}

#[divan::bench(args = [(100, 20), (1_000, 20), (10_000, 20)])]
fn change_one_job(bencher: Bencher<'_, '_>, (jobs, count): (u64, u32)) {
    let mut queue = queue(jobs, count);
    bencher.bench_local(|| {
        queue.update(JobId(5), |job| job.remaining = black_box(Duration::from_mins(30)));
    });
}
