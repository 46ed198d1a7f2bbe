//! What a decision costs (R2.16, R3.8, R5.2), by queued jobs and projects: the round-robin simulation, the
//! choice of what runs, both with work fetch, and a change to the queue. At the end the growth is fitted.
//!
//! Run with `cargo bench -p fallow-policy --bench decisions`. The queue is kept by its caller, so a decision
//! does not pay for building it; `change_one_job` is what keeping it costs. "Far" deadlines are those of a
//! host that keeps up, as most do; with "near" ones about every other job would be late, so that none can be
//! passed over.

#[path = "decisions/growth.rs"]
mod growth;
#[path = "decisions/world.rs"]
mod world;

use divan::{Bencher, black_box};
use fallow_domain::{Bytes, Duration, JobId, PerType, ProjectId, ResourceType};
use fallow_policy::cpu_schedule::choose;
use fallow_policy::fetch::starvation::{FetchHost, Supplier, WorkBuffer, check};
use world::{CPUS, Deadlines, World, now, schedule_host};

const SIZES: [(u64, u32); 13] = [
    (4, 1),
    (100, 1),
    (100, 20),
    (100, 100),
    (1_000, 1),
    (1_000, 20),
    (1_000, 100),
    (10_000, 1),
    (10_000, 20),
    (10_000, 100),
    (100_000, 1),
    (100_000, 20),
    (100_000, 100),
];

fn main() {
    divan::main();
    // `cargo test --benches` and listings want no figures.
    if std::env::args().any(|arg| arg == "--bench") {
        growth::report();
    }
}

#[divan::bench(args = SIZES)]
fn full_decision_far(bencher: Bencher<'_, '_>, (jobs, count): (u64, u32)) {
    let mut world = World::new(jobs, count, Deadlines::Far);
    bencher.bench_local(|| world.decide());
}

#[divan::bench(args = SIZES)]
fn full_decision_near(bencher: Bencher<'_, '_>, (jobs, count): (u64, u32)) {
    let mut world = World::new(jobs, count, Deadlines::Near);
    bencher.bench_local(|| world.decide());
}

/// Of a single project half of the CPUs idle by that, and all its jobs come to an end in the simulation.
#[divan::bench(args = [(100, 1), (1_000, 1), (10_000, 1), (10_000, 20)])]
fn full_decision_far_of_limited_projects(bencher: Bencher<'_, '_>, (jobs, count): (u64, u32)) {
    let mut world = World::new(jobs, count, Deadlines::Far).limit_each(4);
    bencher.bench_local(|| world.decide());
}

#[divan::bench(args = [(10_000, 1), (10_000, 20)])]
fn full_decision_near_of_limited_projects(bencher: Bencher<'_, '_>, (jobs, count): (u64, u32)) {
    let mut world = World::new(jobs, count, Deadlines::Near).limit_each(4);
    bencher.bench_local(|| world.decide());
}

#[divan::bench(args = SIZES)]
fn full_decision_when_nothing_changed(bencher: Bencher<'_, '_>, (jobs, count): (u64, u32)) {
    let mut world = World::new(jobs, count, Deadlines::Far);
    world.decide();
    bencher.bench_local(|| world.decide_again());
}

#[divan::bench(args = SIZES)]
fn round_robin_simulation_far(bencher: Bencher<'_, '_>, (jobs, count): (u64, u32)) {
    let mut world = World::new(jobs, count, Deadlines::Far);
    bencher.bench_local(|| world.simulate());
}

#[divan::bench(args = SIZES)]
fn round_robin_simulation_near(bencher: Bencher<'_, '_>, (jobs, count): (u64, u32)) {
    let mut world = World::new(jobs, count, Deadlines::Near);
    bencher.bench_local(|| world.simulate());
}

#[divan::bench(args = SIZES)]
fn scheduling_decision(bencher: Bencher<'_, '_>, (jobs, count): (u64, u32)) {
    let world = World::new(jobs, count, Deadlines::Far);
    let used = PerType::cpu(Duration::from_hours(8));
    let snapshots = world.snapshots();
    bencher.bench(|| {
        choose(&schedule_host(), &used, black_box(&snapshots), black_box(&world.queue), now()).run.len()
    });
}

/// The worst that servers can do: no two jobs need the same memory, so that no bucket holds more than one.
#[divan::bench(args = [100, 1_000, 10_000])]
fn scheduling_decision_when_no_two_jobs_are_alike(bencher: Bencher<'_, '_>, jobs: u64) {
    let mut world = World::new(jobs, 20, Deadlines::Far);
    for id in 0..jobs {
        world.queue.update(JobId(id), |job| job.working_set = Bytes(job.working_set.0 + id));
    }
    let used = PerType::cpu(Duration::from_hours(8));
    let snapshots = world.snapshots();
    bencher.bench(|| {
        choose(&schedule_host(), &used, black_box(&snapshots), black_box(&world.queue), now()).run.len()
    });
}

#[divan::bench(args = [(100, 20), (1_000, 20), (10_000, 20), (10_000, 100)])]
fn work_fetch_by_starvation(bencher: Bencher<'_, '_>, (jobs, count): (u64, u32)) {
    let world = World::new(jobs, count, Deadlines::Far);
    let may_supply = PerType::cpu(true);
    let supplier = |id| Supplier { id: ProjectId(id), share: fallow_domain::Share::DEFAULT, may_supply };
    let projects: Vec<_> = (0..count).map(supplier).collect();
    let host = FetchHost {
        usable: PerType::cpu(CPUS),
        active_fraction: fallow_domain::Fraction::ONE,
        buffer: WorkBuffer::marks(Duration::from_hours(2), Duration::from_hours(6)),
    };
    bencher.bench(|| check(&host, black_box(&projects), black_box(&world.queue)));
}

#[divan::bench(args = [(100, 20), (1_000, 20), (10_000, 20), (100_000, 20)])]
fn change_one_job(bencher: Bencher<'_, '_>, (jobs, count): (u64, u32)) {
    let mut world = World::new(jobs, count, Deadlines::Far);
    let mut minute = 0;
    bencher.bench_local(|| {
        minute = (minute + 1) % 50;
        world.queue.update(JobId(5), |job| job.remaining = black_box(Duration::from_mins(60 - minute)));
    });
}

#[divan::bench(args = [(100, 20), (1_000, 20), (10_000, 20), (100_000, 20)])]
fn a_job_goes_and_another_comes(bencher: Bencher<'_, '_>, (jobs, count): (u64, u32)) {
    let mut world = World::new(jobs, count, Deadlines::Far);
    let mut id = 0;
    bencher.bench_local(|| {
        id = (id + 7_919) % jobs;
        if let Some(job) = world.queue.remove(JobId(id)) {
            world.queue.insert(black_box(job));
        }
    });
    assert!(!world.queue.instances(ResourceType::Cpu).eq(&fallow_policy::job_queue::Instances::ZERO));
}
