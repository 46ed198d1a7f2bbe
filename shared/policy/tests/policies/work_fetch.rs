//! R2.10 to R2.16, R1.11.

use fallow_domain::{Duration, Fraction, PerType, ProjectId, ResourceType, Usage};
use fallow_policy::fetch::starvation::{
    FetchHost, StarvationPlan, Supplier, Urgency, WorkBuffer, avg_proc_rate, check, ettprc, min_results,
};
use fallow_policy::fetch::{REQUEST_MIN, WorkRequest};
use fallow_policy::job_queue::{JobQueue, JobSnapshot, RunState};
use proptest::prelude::*;

use ResourceType::{Cpu, Nvidia};

use crate::world::{With, any_jobs, job};

const HOUR: Duration = Duration::from_hours(1);

fn project(id: u32, share: f64) -> Supplier {
    Supplier { id: ProjectId(id), share: crate::world::share(share), may_supply: PerType::cpu(true) }
}

fn host(usable: u32, buffer: WorkBuffer) -> FetchHost {
    FetchHost { usable: PerType::cpu(usable), active_fraction: Fraction::ONE, buffer }
}

fn plan(host: FetchHost, projects: &[Supplier], jobs: &[JobSnapshot]) -> StarvationPlan {
    check(&host, projects, &jobs.iter().copied().collect())
}

fn asked_hours(request: &WorkRequest) -> f64 {
    hours(Duration::from_secs_f64(request.seconds[Cpu].get()))
}

fn hours(need: Duration) -> f64 {
    (need.as_secs_f64() / 36.0).round() / 100.0
}

#[test]
fn r2_11_the_jobs_that_a_project_may_need_at_once() {
    for (cpus, fraction, expected) in [
        (1, 1.0, 1),
        (2, 0.75, 2),
        (2, 0.25, 1),
        (4, 0.5, 2),
        (3, 1.0 / 3.0, 1),
        (49, 1.0 / 49.0, 1),
        (8, 0.0, 0),
    ] {
        assert_eq!(min_results(cpus, fraction), expected, "{cpus} x {fraction}");
    }
}

#[test]
fn r2_12_the_rate_is_the_share_of_the_cpus_while_computing_is_on() {
    assert_eq!(avg_proc_rate(0.75, 4, Fraction::clamped(0.5)), 1.5);
}

#[test]
fn r2_13_the_jobs_of_latest_deadline_are_left_out() {
    let queue: JobQueue = [job(1, 1, 9).left(HOUR * 5), job(2, 1, 1).left(HOUR), job(3, 1, 5).left(HOUR * 2)]
        .into_iter()
        .collect();
    let left = |k, rate| hours(ettprc(&queue, ProjectId(1), Cpu, k, rate));
    assert_eq!((left(0, 1.0), left(1, 1.0), left(2, 0.5), left(3, 1.0)), (8.0, 3.0, 2.0, 0.0));
    assert_eq!(ettprc(&queue, ProjectId(1), Cpu, 0, 0.0), Duration::MAX);
    assert_eq!(ettprc(&queue, ProjectId(2), Cpu, 0, 1.0), Duration::ZERO);
}

#[test]
fn r2_14_urgency_is_the_largest_and_is_never_lowered() {
    let buffer = WorkBuffer::marks(HOUR * 4, HOUR * 4);
    let projects = [project(1, 50.0), project(2, 50.0)];
    // Project 1 has nothing, project 2 starves in two hours: immediately, whatever comes second.
    let first = plan(host(1, buffer), &projects, &[job(1, 2, 9)]);
    let second = plan(host(1, buffer), &projects, &[job(1, 1, 9)]);
    assert_eq!(first.urgency, Urgency::NeedWorkImmediately);
    assert_eq!(second.urgency, Urgency::NeedWorkImmediately);
    let enough = [job(1, 1, 9).left(HOUR * 2), job(2, 2, 9).left(HOUR * 2)];
    assert_eq!(plan(host(1, buffer), &projects, &enough).urgency, Urgency::None);
    let low = [job(1, 1, 9).left(HOUR), job(2, 2, 9).left(HOUR * 2)];
    assert_eq!(plan(host(1, buffer), &projects, &low).urgency, Urgency::NeedWork);
}

/// Shows R2.10 and R5.3 as well.
#[test]
fn r2_15_a_request_moves_starvation_to_twice_the_period() {
    let buffer = WorkBuffer::marks(HOUR * 4, HOUR * 4);
    let jobs = [job(1, 1, 9).left(HOUR), job(2, 2, 9).left(HOUR * 3)];
    let plan = plan(host(1, buffer), &[project(1, 50.0), project(2, 50.0)], &jobs);
    let need = plan.of(ProjectId(1)).unwrap();
    assert_eq!((hours(need.first.starves_in), asked_hours(&need.request)), (2.0, 3.0));
    // Project 2 starves in six hours: not asked, but filled up to eight when an RPC happens anyway.
    let need = plan.of(ProjectId(2)).unwrap();
    assert_eq!((need.request.is_none(), asked_hours(&need.piggyback)), (true, 1.0));
}

/// Shows R5.3 as well.
#[test]
fn r1_11_the_marks_ask_below_the_minimum_and_fill_up_to_the_whole_buffer() {
    let marks = WorkBuffer::marks(HOUR * 2, HOUR * 6);
    let asked = |buffer, left| {
        let plan = plan(host(1, buffer), &[project(1, 100.0)], &[job(1, 1, 9).left(HOUR * left)]);
        asked_hours(&plan.needs[0].request)
    };
    assert_eq!((asked(marks, 1), asked(marks, 2)), (7.0, 0.0));
    let whole = WorkBuffer::whole(HOUR * 2, HOUR * 6);
    assert_eq!((asked(whole, 2), asked(whole, 8)), (6.0, 0.0));
    assert_eq!(asked(marks.beyond(HOUR * 24), 2), 30.0);
}

#[test]
fn r2_14_with_no_buffer_at_all_a_starving_project_is_still_asked() {
    let none = WorkBuffer::marks(Duration::ZERO, Duration::ZERO);
    let plan = plan(host(2, none), &[project(1, 100.0)], &[]);
    assert_eq!(plan.urgency, Urgency::NeedWorkImmediately);
    assert_eq!(plan.needs[0].request, WorkRequest::cpu(REQUEST_MIN, 2.0));
}

#[test]
fn r2_11_fractions_go_over_projects_that_may_supply_work() {
    let buffer = WorkBuffer::marks(HOUR, HOUR);
    let silent = Supplier { may_supply: PerType::default(), ..project(2, 300.0) };
    let plan = plan(host(1, buffer), &[project(1, 100.0), silent, project(3, 0.0)], &[]);
    assert_eq!(plan.of(ProjectId(1)).unwrap().first.rate, 1.0);
    assert!(plan.of(ProjectId(2)).is_none());
    assert_eq!(plan.of(ProjectId(3)).unwrap().urgency, Urgency::None);
}

#[test]
fn r5_3_with_a_gpu_each_type_is_split_by_share_among_those_that_supply_it() {
    let gpu = |id, hours| JobSnapshot {
        usage: Usage::from_cpus(0.1).with_coprocessor(Nvidia, 1.0),
        ..job(id, 1, 9).left(HOUR * hours)
    };
    let mut host = host(2, WorkBuffer::whole(HOUR * 2, HOUR * 6));
    host.usable[Nvidia] = 1;
    let mut both = project(1, 50.0);
    both.may_supply[Nvidia] = true;
    // Project 1 alone supplies the GPU: it is to have eight hours of it. Of two CPUs it is to have one.
    let plan = plan(host, &[both, project(2, 50.0)], &[gpu(1, 3), job(2, 1, 9).left(HOUR * 8)]);
    let need = plan.of(ProjectId(1)).unwrap();
    let asked = |kind| hours(Duration::from_secs_f64(need.request.seconds[kind].get()));
    assert_eq!((asked(Nvidia), asked(Cpu)), (5.0, 0.0));
    assert_eq!((plan.idle[Nvidia], plan.idle[Cpu]), (0.0, 1.0));
    assert_eq!(need.first.kind, Nvidia);
    let other = plan.of(ProjectId(2)).unwrap();
    assert_eq!((asked_hours(&other.request), other.request.asks(Nvidia)), (8.0, false));
}

#[test]
fn jobs_on_their_way_count_as_work_held() {
    let buffer = WorkBuffer::marks(HOUR, HOUR);
    let coming = job(1, 1, 9).state(RunState::Downloading).left(HOUR * 3);
    let plan = plan(host(1, buffer), &[project(1, 100.0)], &[coming]);
    assert_eq!((plan.urgency, plan.idle[Cpu]), (Urgency::None, 0.0));
}

proptest! {
    #[test]
    fn r2_15_what_is_asked_for_ends_the_need(
        jobs in any_jobs(40), shares in prop::collection::vec(1.0..100.0_f64, 6), usable in 1_u32..9,
    ) {
        let buffer = WorkBuffer::marks(HOUR * 3, HOUR * 9);
        let projects: Vec<_> = (1..).zip(&shares).map(|(id, share)| project(id, *share)).collect();
        let mut queue: JobQueue = jobs.into_iter().collect();
        let before = check(&host(usable, buffer), &projects, &queue);
        for need in &before.needs {
            let (request, fill) = (need.request.seconds[Cpu].get(), need.piggyback.seconds[Cpu].get());
            prop_assert!(request <= fill && request >= 0.0);
            prop_assert_eq!(request > 0.0, need.urgency > Urgency::None);
            // It comes as one long job of earliest deadline, beside what is needed at once.
            let id = 1_000 + u64::from(need.project.0) * 100;
            if request > 0.0 {
                queue.insert(job(id, need.project.0, -1).left(Duration::from_secs_f64(request) + REQUEST_MIN));
                for extra in 1..u64::from(need.first.min_results) {
                    queue.insert(job(id + extra, need.project.0, 10_000).left(HOUR));
                }
            }
        }
        let after = check(&host(usable, buffer), &projects, &queue);
        prop_assert_eq!(after.urgency, Urgency::None);
    }
}
