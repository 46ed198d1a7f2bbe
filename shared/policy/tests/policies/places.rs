//! R6.4: how many jobs the owner lets run at once, in what runs, in looking ahead and in what is fetched.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use fallow_domain::{Duration, InstanceSeconds, Instant, JobId, PerType, ProjectId, ResourceType};
use fallow_policy::cpu_schedule::{
    CpuChoice, CpuSituation, ProjectSnapshot, Schedule, ScheduleHost, WhyNotRun, choose,
};
use fallow_policy::fetch::bounds::{PlacesLeft, cut_to_places, within_places};
use fallow_policy::fetch::{FetchChoice, REQUEST_MIN, WorkRequest};
use fallow_policy::job_queue::{AtOnce, Devices, Instances, JobQueue, JobSnapshot, NoPlace, RunState};
use fallow_policy::plan_host::PlanHost;
use fallow_policy::round_robin::{Outlook, PlanProject, RoundRobin};
use proptest::prelude::*;

use crate::fetch_world::{FetchWorld, attached, is_asked};
use crate::world::{With, any_jobs, any_projects, at_min, carry_out, host, job, project, ran, share};

const CPU: ResourceType = ResourceType::Cpu;
const GPU: ResourceType = ResourceType::Nvidia;

fn of(job: JobSnapshot, application: u32) -> JobSnapshot {
    JobSnapshot { application: Some(application), ..job }
}

/// At most so many of a project, and of its applications 0, 1, ...
fn limits(project: u32, applications: &[u32]) -> AtOnce {
    let most = |(number, most): (u32, &u32)| Some((number, NonZeroU32::new(*most)?));
    AtOnce {
        project: NonZeroU32::new(project),
        applications: (0..).zip(applications).filter_map(most).collect(),
        ..AtOnce::default()
    }
}

fn queue(jobs: &[JobSnapshot], limited: &[(u32, AtOnce)]) -> JobQueue {
    let mut queue: JobQueue = jobs.iter().copied().collect();
    for (id, limits) in limited {
        queue.limit(ProjectId(*id), limits.clone());
    }
    queue
}

fn decide(host: &ScheduleHost, projects: &[ProjectSnapshot], queue: &JobQueue, now: Instant) -> Schedule {
    choose(host, &PerType::default(), projects, queue, now)
}

fn why_not(schedule: &Schedule, id: u64) -> Option<WhyNotRun> {
    let mut passed = schedule.preempt.iter().chain(&schedule.waiting);
    passed.find(|passed| passed.job == JobId(id))?.why.reason().copied()
}

#[test]
fn r6_4_no_more_of_a_project_run_than_its_owner_lets_and_the_others_get_the_rest() {
    let jobs: Vec<_> = (1..=8).map(|id| job(id, 1 + (id as u32 - 1) / 4, 5)).collect();
    let projects = [project(1, 900.0), project(2, 0.0)];
    let limited = queue(&jobs, &[(1, limits(1, &[]))]);
    let schedule = decide(&host(4), &projects, &limited, at_min(0));
    assert_eq!(ran(&schedule), [1, 5, 6, 7]);
    assert_eq!(why_not(&schedule, 2), Some(WhyNotRun::NoPlace(NoPlace::OfProject(1))));
    // With nobody else, CPUs idle, and for want of jobs that may use them.
    let alone = queue(&jobs[..4], &[(1, limits(1, &[]))]);
    let schedule = decide(&host(4), &projects, &alone, at_min(0));
    assert_eq!((ran(&schedule), schedule.starved[CPU].as_f64()), (vec![1], 3.0));
}

#[test]
fn r6_4_a_limit_of_one_application_hides_no_job_of_another() {
    // All need the same; those of the limited one come first by deadline.
    let mut jobs: Vec<_> = (1..=50).map(|id| of(job(id, 1, 5), 0)).collect();
    jobs.extend([job(60, 1, 90), of(job(61, 1, 91), 1), of(job(62, 1, 92), 1)]);
    let limited = queue(&jobs, &[(1, limits(0, &[1, 1]))]);
    let schedule = decide(&host(8), &[project(1, 0.0)], &limited, at_min(0));
    assert_eq!(ran(&schedule), [1, 60, 61]);
    assert_eq!(why_not(&schedule, 2), Some(WhyNotRun::NoPlace(NoPlace::OfApplication(1))));
    assert_eq!(schedule.starved[CPU].as_f64(), 5.0);
}

#[test]
fn r6_4_a_limit_that_becomes_smaller_holds_at_once_also_for_tasks_in_their_slices() {
    let jobs: Vec<_> = (1..=3).map(|id| of(job(id, 1, 5), 0).running_since(-1)).collect();
    let limited = queue(&jobs, &[(1, limits(0, &[2]))]);
    let schedule = decide(&host(4), &[project(1, 0.0)], &limited, at_min(0));
    assert_eq!((ran(&schedule).len(), schedule.preempt.len()), (2, 1));
}

#[test]
fn r6_4_jobs_on_gpus_take_places_too() {
    let jobs = [job(1, 1, 5).cpus(0.1).nvidia(1.0), job(2, 1, 5), job(3, 2, 5)];
    let gpus = ScheduleHost {
        devices: PerType::from_fn(|kind| if kind == GPU { Devices::first(1) } else { Devices::NONE }),
        ..host(2)
    };
    let limited = queue(&jobs, &[(1, limits(1, &[]))]);
    assert_eq!(ran(&decide(&gpus, &[project(1, 50.0), project(2, 0.0)], &limited, at_min(0))), [1, 3]);
}

/// A thousand jobs that are late and have no place come before another project's one that has.
#[test]
fn r6_4_endangered_jobs_without_a_place_keep_no_other_projects_from_running() {
    let mut jobs: Vec<_> = (1..=1_000).map(|id| job(id, 1, 1)).collect();
    jobs.push(job(2_000, 2, 2).left(Duration::from_hours(9)));
    jobs.push(job(2_001, 3, 900));
    let limited = queue(&jobs, &[(1, limits(1, &[]))]);
    let mut projects = [project(1, 0.0), project(2, -500.0), project(3, 500.0)];
    (projects[0].misses, projects[1].misses) = (PerType::cpu(1_000), PerType::cpu(1));
    assert_eq!(ran(&decide(&host(2), &projects, &limited, at_min(0))), [1, 2_000]);
}

/// The project that is owed most has all it may run; the second one is crowded out by tasks in their slices.
#[test]
fn r6_4_a_project_that_has_its_places_does_not_hide_one_that_is_crowded_out() {
    let jobs = [
        job(1, 1, 5).cpus(0.1).nvidia(1.0).running_since(-10).on(0),
        job(2, 1, 5),
        job(3, 2, 50).running_since(-10),
        job(4, 2, 50).running_since(-20),
        job(5, 3, 50).cpus(2.5),
    ];
    let gpus = ScheduleHost {
        devices: PerType::from_fn(|kind| if kind == GPU { Devices::first(1) } else { Devices::NONE }),
        ..host(3)
    };
    let limited = queue(&jobs, &[(1, limits(1, &[]))]);
    let projects = [project(1, 900.0), project(2, -500.0), project(3, 500.0)];
    assert_eq!(ran(&decide(&gpus, &projects, &limited, at_min(0))), [1, 5]);
}

fn look(host: &PlanHost, queue: &JobQueue, window: Duration) -> Outlook {
    let plan = |id| PlanProject { id: ProjectId(id), share: share(100.0), counts: true };
    RoundRobin::default()
        .simulate(host, &[plan(1), plan(2)], queue, window, Duration::ZERO, at_min(0))
        .clone()
}

/// Shows R3.8.
#[test]
fn r6_4_looking_ahead_knows_that_instances_idle_beside_limited_jobs_and_that_these_end_later() {
    let jobs: Vec<_> = (1..=6).map(|id| job(id, 1, 4)).collect();
    let day = Duration::from_hours(24);
    let free = look(&PlanHost::cpus(2), &queue(&jobs, &[]), day);
    assert_eq!((free.types[CPU].idle, free.late.len()), (0.0, 0));
    let limited = look(&PlanHost::cpus(2), &queue(&jobs, &[(1, limits(1, &[]))]), day);
    assert_eq!((limited.types[CPU].idle, limited.late.len()), (1.0, 2));
    assert_eq!(limited.types[CPU].saturated, Duration::ZERO);
    // It is short of what it may use, and not of its share.
    let hours = |outlook: &Outlook, id| outlook.of(ProjectId(id)).unwrap().shortfall[CPU].get() / 3_600.0;
    assert!((hours(&limited, 1) - 18.0).abs() < 1e-6 && (hours(&limited, 2) - 24.0).abs() < 1e-6);
}

#[test]
fn r6_4_a_project_is_asked_for_no_more_than_its_places_come_to_within_the_buffer() {
    let (hour, host) = (Duration::from_hours(1), PlanHost::cpus(4));
    let places = |limits: AtOnce, jobs: &[JobSnapshot], window| {
        let queue = queue(jobs, &[(1, limits)]);
        let room = within_places(&queue, ProjectId(1), CPU, &host, window, 0)?;
        Some((room.seconds.get() / 3_600.0, room.instances))
    };
    let jobs: Vec<_> = (1..=3).map(|id| job(id, 1, 100)).collect();
    assert_eq!(places(limits(2, &[]), &[], hour * 5), Some((10.0, 2.0)));
    assert_eq!(places(limits(2, &[]), &jobs, hour * 5), Some((7.0, 0.0)));
    assert_eq!(places(limits(2, &[]), &jobs, hour), Some((0.0, 0.0)));
    assert_eq!(places(limits(9, &[]), &[], hour), Some((4.0, 4.0)), "there are no more CPUs");
    let least = REQUEST_MIN.as_secs_f64() / 3_600.0;
    assert_eq!(places(limits(2, &[]), &jobs[..1], Duration::ZERO), Some((least, 1.0)));
    // One whose other applications have no limit may send what runs.
    assert_eq!(places(limits(0, &[1]), &jobs, hour), None);
    let all = AtOnce { limits_all: true, ..limits(0, &[1, 1]) };
    assert_eq!(places(all, &[], hour), Some((2.0, 2.0)));
    let two = WorkRequest::cpu(hour * 10, 4.0);
    let room = PlacesLeft { seconds: two.seconds[CPU] / 5.0, instances: 1.0, jobs: 1 };
    let cut = cut_to_places(two, |kind, _| (kind == CPU).then_some(room));
    assert_eq!((cut.seconds[CPU].get(), cut.instances[CPU]), (7_200.0, 1.0));
}

/// A host with so many CPUs and a GPU.
fn with_gpu(cpus: u32) -> (ScheduleHost, PlanHost) {
    let devices = PerType::from_fn(|kind| if kind == GPU { Devices::first(1) } else { Devices::NONE });
    let mut plan = PlanHost::cpus(cpus);
    plan.instances[GPU] = 1;
    (ScheduleHost { devices, ..host(cpus) }, plan)
}

#[test]
fn r6_4_places_that_jobs_on_gpus_take_are_none_of_the_cpus_in_plans_and_in_what_is_fetched_either() {
    let ((host, plan), day) = (with_gpu(2), Duration::from_hours(24));
    let jobs = [job(1, 1, 50).cpus(0.1).nvidia(1.0), job(2, 1, 50), job(3, 2, 50)];
    let projects = [project(1, 50.0), project(2, 0.0)];
    let limited = queue(&jobs, &[(1, limits(1, &[]))]);
    let outlook = look(&plan, &limited, day);
    let schedule = decide(&host, &projects, &limited, at_min(0));
    assert_eq!(ran(&schedule), [1, 3]);
    // The one CPU beside the job of the other project and what the GPU job uses of them.
    assert_eq!((outlook.types[CPU].idle, outlook.types[CPU].saturated), (1.0, Duration::ZERO));
    assert_eq!(schedule.starved[CPU].as_f64(), 0.9);
    let places = |queue: &JobQueue, kind| {
        let room = within_places(queue, ProjectId(1), kind, &plan, Duration::from_hours(5), 0)?;
        Some((room.seconds.get() / 3_600.0, room.instances))
    };
    assert_eq!((places(&limited, CPU), places(&limited, GPU)), (Some((0.0, 0.0)), Some((4.0, 0.0))));
    // Without its job the place is for what comes, on a CPU as well.
    let one = queue(&jobs[1..], &[(1, limits(1, &[]))]);
    assert_eq!((places(&one, CPU), look(&plan, &one, day).types[CPU].idle), (Some((4.0, 0.0)), 0.0));
    // However many wait for the GPU, there is one of it; two that need a part fit side by side.
    let part = |id| job(id, 1, 50).cpus(0.1).nvidia(0.4);
    let many: Vec<_> = (10..20).map(part).chain([job(2, 1, 50), job(4, 1, 50)]).collect();
    let idle = |most| look(&plan, &queue(&many, &[(1, limits(most, &[]))]), day).types[CPU].idle;
    assert_eq!([2, 3, 4].map(idle), [2.0, 1.0, 0.0]);
    // The places of an application are its own on whatever they are.
    let both: Vec<_> = jobs.iter().map(|job| of(*job, 0)).chain([of(job(4, 1, 50), 1)]).collect();
    let limited = queue(&both[..3], &[(1, limits(0, &[1])), (2, AtOnce::default())]);
    assert_eq!(look(&plan, &limited, day).types[CPU].idle, 1.0);
    let limited = queue(&both, &[(1, limits(0, &[1]))]);
    assert_eq!(look(&plan, &limited, day).types[CPU].idle, 0.0);
}

/// What is asked for in one request comes together: a place is asked for once.
#[test]
fn r6_4_places_for_which_a_request_asks_jobs_on_gpus_are_not_asked_for_on_cpus_too() {
    let ((_, plan), hour) = (with_gpu(8), Duration::from_hours(1));
    let seconds = |_| InstanceSeconds::of_one(hour);
    let wanted = |gpu: f64| WorkRequest {
        seconds: PerType::from_fn(|kind| {
            if kind == CPU || gpu > 0.0 { seconds(kind) * 9.0 } else { InstanceSeconds::ZERO }
        }),
        instances: PerType::from_fn(|kind| if kind == CPU { 8.0 } else { gpu }),
    };
    let asked = |most, jobs: &[JobSnapshot], gpu| {
        let queue = queue(jobs, &[(1, limits(most, &[]))]);
        let cut = cut_to_places(wanted(gpu), |kind, asked| {
            within_places(&queue, ProjectId(1), kind, &plan, hour, asked)
        });
        (
            (cut.seconds[GPU].get() / 3_600.0, cut.instances[GPU]),
            (cut.seconds[CPU].get() / 3_600.0, cut.instances[CPU]),
        )
    };
    assert_eq!(asked(1, &[], 1.0), ((1.0, 1.0), (0.0, 0.0)));
    assert_eq!(asked(1, &[], 0.0), ((0.0, 0.0), (1.0, 1.0)), "it is asked for CPU jobs only");
    assert_eq!(asked(4, &[], 1.0), ((1.0, 1.0), (3.0, 3.0)));
    // One on the GPU is here and has the place; more of them is asked for beside it, and takes no other one.
    let short = job(1, 1, 50).nvidia(1.0).left(Duration::from_mins(6));
    assert_eq!(asked(4, &[short], 1.0), ((0.9, 0.0), (3.0, 3.0)));
    // Halves of a GPU: two jobs of the kind that is here have room on it.
    let half = job(1, 1, 50).nvidia(0.5).left(Duration::from_mins(6));
    assert_eq!(asked(4, &[half], 1.0), ((0.95, 0.5), (2.0, 2.0)));
}

#[test]
fn r6_4_what_the_owner_lets_a_project_use_is_by_the_jobs_that_are_here_or_by_its_versions_without_any() {
    let mut limited = queue(&[job(1, 1, 50).cpus(8.0)], &[]);
    let largest = PerType::from_fn(|kind| if kind == CPU { Instances::whole(8) } else { Instances::ZERO });
    limited.limit(ProjectId(1), AtOnce { largest, ..limits(1, &[]) });
    let host = PlanHost::cpus(16);
    let most = |queue: &JobQueue, kind| queue.never_more(ProjectId(1), kind, &host.instances);
    assert_eq!((most(&limited, CPU), most(&limited, GPU)), (Some(8.0), Some(1.0)));
    limited.remove(JobId(1));
    assert_eq!(most(&limited, CPU), Some(8.0), "it has none of them, and gets as large ones");
    let hour = Duration::from_hours(1);
    let asked = within_places(&limited, ProjectId(1), CPU, &host, hour, 0).unwrap();
    assert_eq!((asked.seconds.get() / 3_600.0, asked.instances, asked.jobs), (8.0, 8.0, 1));
    limited.insert(job(2, 1, 50));
    assert_eq!(most(&limited, CPU), Some(1.0), "those that are here say it better");
    assert_eq!(limited.lets_run(ProjectId(1), CPU), Some(8.0), "but others may come");
}

#[test]
fn r6_4_a_limit_cuts_a_project_where_more_jobs_could_run_than_have_a_place() {
    let cpus = PerType::cpu(8);
    let cut =
        |limits: AtOnce, jobs: &[JobSnapshot]| queue(jobs, &[(1, limits)]).cut_to(ProjectId(1), CPU, &cpus);
    let of_limited: Vec<_> = (1..=40).map(|id| of(job(id, 1, 50), 0)).collect();
    let other: Vec<_> = (50..=52).map(|id| job(id, 1, 50)).collect();
    let both = [of_limited.clone(), other.clone()].concat();
    // One application is limited, another may come without end: what counts are the jobs that are here.
    let one = || limits(0, &[1]);
    assert_eq!((cut(one(), &of_limited), cut(one(), &both)), (Some(1.0), Some(4.0)));
    assert_eq!((cut(one(), &other), cut(one(), &of_limited[..1])), (None, None), "nothing is cut");
    let coming = |job: &JobSnapshot| job.state(RunState::Downloading);
    let coming: Vec<_> = other.iter().chain(&of_limited).map(coming).collect();
    assert_eq!(cut(one(), &coming), None, "what is still to come could not run anyway");
    // All are limited, to more than comes.
    let all = |most: &[u32]| AtOnce { limits_all: true, ..limits(0, most) };
    assert_eq!((cut(all(&[1, 8]), &of_limited), cut(all(&[1, 8]), &[])), (Some(1.0), Some(9.0)));
    assert_eq!((cut(limits(2, &[]), &other), cut(limits(9, &[]), &other)), (Some(2.0), Some(9.0)));
    assert_eq!(queue(&other, &[]).cut_to(ProjectId(1), CPU, &cpus), None);
    // A job on a GPU takes its place when it can run, and not while it is still to come.
    let plan = with_gpu(8).1;
    let beside = |state| {
        let jobs = [job(1, 1, 50).nvidia(1.0).state(state), job(2, 1, 50)];
        queue(&jobs, &[(1, limits(1, &[]))]).cut_to(ProjectId(1), CPU, &plan.instances)
    };
    assert_eq!((beside(RunState::Unstarted), beside(RunState::Downloading)), (Some(0.0), Some(1.0)));
}

#[test]
fn r6_4_jobs_that_would_not_begin_within_the_buffer_are_those_beyond_the_limit() {
    let jobs: Vec<_> = (1..=20).map(|id| of(job(id, 1, 100), 0)).chain([job(50, 1, 1)]).collect();
    let queue = queue(&jobs, &[(1, limits(0, &[2]))]);
    let beyond = |hours: f64| queue.beyond_limits(ProjectId(1), CPU, hours * 3_600.0);
    assert_eq!((beyond(0.0), beyond(1.0), beyond(5.0), beyond(10.0)), (18, 18, 10, 0));
    assert_eq!(queue.beyond_limits(ProjectId(2), CPU, 0.0), 0);
}

/// What idles beside a limited project is asked of others, by every policy.
#[test]
fn r6_4_every_fetch_policy_asks_others_for_what_idles_beside_a_limited_project() {
    let jobs: Vec<_> = (1..=20).map(|id| job(id, 1, 1_000)).collect();
    let limited = queue(&jobs, &[(1, limits(1, &[]))]);
    for policy in FetchChoice::all() {
        let mut full = attached(1, 100.0);
        full.project.unrunnable = PerType::cpu(true);
        let world = FetchWorld::new(2, &[full, attached(2, 100.0)], &limited);
        let decision = world.decision(&*policy);
        assert!(is_asked(&decision, 2) && !is_asked(&decision, 1), "{policy}");
    }
}

/// Limits of projects 1 to 6: of all their jobs and of applications 0 to 2, none where it is 0.
fn any_limits() -> impl Strategy<Value = BTreeMap<u32, AtOnce>> {
    let one = (0_u32..4, prop::collection::vec(0_u32..3, 3));
    prop::collection::vec(one, 6)
        .prop_map(|rows| (1..).zip(rows.into_iter().map(|(all, each)| limits(all, &each))).collect())
}

fn any_applications(jobs: Vec<JobSnapshot>) -> impl Strategy<Value = Vec<JobSnapshot>> {
    let numbers = prop::collection::vec(prop::option::of(0_u32..3), jobs.len());
    numbers.prop_map(move |numbers| {
        let numbered = |(job, application): (&JobSnapshot, _)| JobSnapshot { application, ..*job };
        jobs.iter().zip(numbers).map(numbered).collect()
    })
}

/// How many jobs of a project, and of its application if it says which, a decision runs.
fn count(schedule: &Schedule, queue: &JobQueue, project: u32, application: Option<u32>) -> u32 {
    let all = schedule.run.iter().filter_map(|chosen| queue.get(chosen.job));
    let own = all.filter(|job| job.project == ProjectId(project));
    own.filter(|job| application.is_none() || job.application == application).count() as u32
}

/// Whether one more job would still keep to the limits.
fn has_place(schedule: &Schedule, queue: &JobQueue, limits: &AtOnce, job: &JobSnapshot) -> bool {
    let below = |most: Option<&NonZeroU32>, of| {
        most.is_none_or(|most| count(schedule, queue, job.project.0, of) < most.get())
    };
    below(limits.project.as_ref(), None)
        && job.application.is_none_or(|number| below(limits.applications.get(&number), Some(number)))
}

proptest! {
    #[test]
    fn r6_4_no_limit_is_ever_exceeded_and_no_job_with_a_place_waits_beside_an_idle_cpu(
        jobs in any_jobs(40).prop_flat_map(any_applications),
        projects in any_projects(),
        limited in any_limits(),
        usable in 0_u32..9,
        misses in prop::collection::vec(0_u32..6, 5),
    ) {
        let mut queue = queue(&jobs, &[]);
        for (id, limits) in &limited {
            queue.limit(ProjectId(*id), limits.clone());
        }
        let mut projects = projects;
        for (project, misses) in projects.iter_mut().zip(misses) {
            project.misses = PerType::cpu(misses);
        }
        let host = host(usable);
        for turn in 0..4 {
            let now = at_min(turn * 30);
            let schedule = decide(&host, &projects, &queue, now);
            for (id, limits) in &limited {
                for (number, most) in &limits.applications {
                    prop_assert!(count(&schedule, &queue, *id, Some(*number)) <= most.get());
                }
                let all = count(&schedule, &queue, *id, None);
                prop_assert!(limits.project.is_none_or(|most| all <= most.get()));
            }
            // Whoever has a place, takes part and fits beside what runs, runs.
            let memory: u64 = schedule.run.iter().filter_map(|one| queue.get(one.job)).map(|job| job.working_set.0).sum();
            let runs: std::collections::BTreeSet<JobId> = schedule.run.iter().map(|one| one.job).collect();
            for job in queue.iter().filter(|job| job.is_runnable() && !runs.contains(&job.id)) {
                let takes_part = projects.iter().any(|project| project.id == job.project);
                let place = limited.get(&job.project.0).is_none_or(|limits| has_place(&schedule, &queue, limits, job));
                let fits = job.needs().cpus <= schedule.idle[CPU]
                    && memory + job.working_set.0 <= host.memory_limit.0;
                prop_assert!(!(usable > 0 && takes_part && place && fits), "{:?} waits in {:?}", job, schedule);
            }
            // It says no more is starved than is idle.
            prop_assert!(schedule.starved[CPU] <= schedule.idle[CPU] || usable == 0);
            carry_out(&mut queue, &schedule, now);
        }
    }

    #[test]
    fn r6_4_limits_that_nothing_comes_to_change_nothing(
        jobs in any_jobs(30).prop_flat_map(any_applications),
        projects in any_projects(),
        usable in 1_u32..6,
    ) {
        let far: Vec<_> = (1..7).map(|id| (id, limits(1_000, &[1_000, 1_000, 1_000]))).collect();
        let (free, limited) = (queue(&jobs, &[]), queue(&jobs, &far));
        let plan: Vec<PlanProject> =
            projects.iter().map(|p| PlanProject { id: p.id, share: p.share, counts: true }).collect();
        let host_of = PlanHost::cpus(usable);
        let outlook = |queue: &JobQueue| {
            let day = Duration::from_hours(24);
            RoundRobin::default().simulate(&host_of, &plan, queue, day, Duration::ZERO, at_min(0)).clone()
        };
        prop_assert_eq!(outlook(&free), outlook(&limited));
        for policy in CpuChoice::all() {
            let run = |queue: &JobQueue| {
                let outlook = outlook(queue);
                let situation = CpuSituation {
                    now: at_min(0),
                    host: host(usable),
                    used: PerType::default(),
                    projects: &projects,
                    outlook: &outlook,
                    queue,
                };
                let schedule = policy.decide(&situation);
                let devices: Vec<_> = schedule.run.iter().map(|one| (one.job, one.action, one.slice_began)).collect();
                (devices, schedule.idle, schedule.starved, schedule.decide_by)
            };
            prop_assert_eq!(run(&free), run(&limited), "{}", policy);
        }
    }

    /// A project is asked again and again, and sends what it likes: what it holds stays within what its
    /// places come to, but for the last request's jobs.
    #[test]
    fn r6_4_what_is_fetched_of_a_limited_project_has_an_end(
        most in 1_u32..4,
        cpus in 1_u32..6,
        minutes in 1_i64..300,
        window_hours in 0_i64..30,
        sent in 1_usize..5,
    ) {
        let host = PlanHost::cpus(cpus);
        let window = Duration::from_hours(window_hours);
        let mut queue = queue(&[], &[(1, limits(most, &[]))]);
        let mut id = 0;
        let mut requests = 0;
        while let Some(room) = within_places(&queue, ProjectId(1), CPU, &host, window, 0)
            .filter(|room| room.seconds.is_positive())
        {
            prop_assert!(room.seconds.get() <= f64::from(most.min(cpus)) * window.as_secs_f64().max(1.0));
            for _ in 0..sent {
                id += 1;
                queue.insert(job(id, 1, 1_000).state(RunState::Downloading).left(Duration::from_mins(minutes)));
            }
            requests += 1;
            prop_assert!(requests < 10_000);
        }
        let holds = queue.remaining_on(ProjectId(1), CPU).as_secs_f64();
        let places = f64::from(most.min(cpus));
        let last = (sent as f64 + places) * Duration::from_mins(minutes).as_secs_f64();
        prop_assert!(holds <= places * window.as_secs_f64() + last, "{holds}");
        prop_assert!(queue.count(ProjectId(1)) >= most.min(cpus) as usize, "each place has a job");
    }
}
