//! Downloads that take a while and are no reason to ask others for more than a little, or to ask their
//! project for less.

use fallow_boinc::scheduler::{Coprocessor as Needed, SchedulerReply};
use fallow_client::Event;
use fallow_domain::{Bytes, Coprocessor, Duration, HostFacts, Instant, ResourceType, Speed};

use crate::life::document;
use crate::review::both_cpus;
use crate::world::{World, host};

const GIGABYTE: u64 = 1_000_000_000;

/// A world with this host and two projects: one with work, whose files take a minute, and one without.
fn beside_another(host: HostFacts, alter: fn(&mut SchedulerReply, usize)) -> World {
    let mut world = World::new(217);
    world.event(Event::HostMeasured(Box::new(host)));
    world.add_project("a", 10_000, Duration::from_secs(100));
    world.add_project("b", 0, Duration::from_secs(100));
    world.alter = Some(alter);
    world.working_set = Bytes(5 * GIGABYTE);
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0), ("b", 1.0)], both_cpus()).into()));
    world.run_until("a task", Duration::from_mins(1), |w| w.computing() == 1);
    world.download_takes = Duration::from_mins(1);
    world
}

/// Lets it run for an hour and sees to it that its project is asked on whatever is under way.
fn is_asked_on(world: &mut World) {
    let sent = world.projects["a"].sent;
    for _ in 0..3_600 {
        world.run_for(Duration::from_secs(1));
        assert_eq!(world.view("a").enough, None, "{}", world.log.join("\n"));
    }
    assert!(world.projects["a"].sent > sent + 10, "{} jobs", world.projects["a"].sent);
}

#[test]
fn r2_16_cpus_that_idle_beside_a_multithreaded_task_wait_for_no_files_of_its_like() {
    let three = |reply: &mut SchedulerReply, _| {
        reply.app_versions.iter_mut().for_each(|version| version.avg_ncpus = 3.0);
    };
    is_asked_on(&mut beside_another(HostFacts { ncpus: 4, ..host() }, three));
}

#[test]
fn r2_16_cpus_that_idle_for_lack_of_memory_wait_for_no_files() {
    let large = |reply: &mut SchedulerReply, _| {
        reply.workunits.iter_mut().for_each(|job| job.rsc_memory_bound = Some(Bytes(5 * GIGABYTE)));
    };
    is_asked_on(&mut beside_another(host(), large));
}

#[test]
fn r2_16_cpus_that_idle_beside_a_gpu_wait_for_no_files_of_its_jobs() {
    let on_gpu = |reply: &mut SchedulerReply, _| {
        for version in &mut reply.app_versions {
            version.avg_ncpus = 0.1;
            version.coproc = Some(Needed { kind: "NVIDIA".to_owned(), count: 1.0 });
        }
    };
    let gpu = Coprocessor {
        kind: ResourceType::Nvidia,
        count: 1,
        model: "M".to_owned(),
        speed: Speed::new(1e12).unwrap(),
        memory: Bytes(GIGABYTE),
        driver: "1".to_owned(),
        cuda_version: 0,
        devices: Vec::new(),
    };
    is_asked_on(&mut beside_another(HostFacts { coprocessors: vec![gpu], ..host() }, on_gpu));
}

/// Projects with work whose files take a minute, on a fresh host until it computes; when each was asked
/// first.
fn asked(seed: u64, count: usize) -> (World, Vec<Instant>) {
    let mut world = World::with_a_buffer(seed);
    let names: Vec<String> = (0..count).map(|n| format!("p{n}")).collect();
    names.iter().for_each(|name| world.add_project(name, 10_000, Duration::from_mins(5)));
    world.download_takes = Duration::from_mins(1);
    let shares: Vec<(&str, f64)> = names.iter().map(|name| (name.as_str(), 1.0)).collect();
    world.event(Event::DocumentOffered(document(1, &shares, both_cpus()).into()));
    world.run_until("both CPUs compute", Duration::from_mins(3), |w| w.computing() == 2);
    let mut calls: Vec<Instant> = names.iter().flat_map(|name| world.calls(name).first().copied()).collect();
    calls.sort();
    (world, calls)
}

fn sent(world: &World) -> u64 {
    world.projects.values().map(|project| project.sent).sum()
}

#[test]
fn r2_16_beside_projects_with_slow_files_a_third_is_asked_half_a_minute_later_and_for_no_more_than_its_part()
{
    let (mut world, calls) = asked(218, 3);
    // Each of the first two has sent a job for one of the CPUs; the third one, and then two for both of them.
    let apart = (calls[2] - calls[1]).as_secs_f64();
    assert!((30.0..40.0).contains(&apart), "{apart} s");
    assert!(sent(&world) <= 5, "{} jobs", sent(&world));
    world.run_for(Duration::from_mins(2));
    assert!(sent(&world) <= 6, "{} jobs", sent(&world));
}

#[test]
fn r2_16_slow_files_of_many_projects_bring_no_buffer_of_each_of_them() {
    let (world, calls) = asked(219, 12);
    assert!(calls.len() <= 6 && sent(&world) <= 6, "{} jobs of {} projects", sent(&world), calls.len());
    let later = calls.iter().filter(|call| (**call - calls[0]).as_secs_f64() > 3.0).copied();
    let soonest = later.min().map(|call| (call - calls[0]).as_secs_f64());
    assert!(soonest.is_none_or(|soonest| soonest >= 30.0), "{soonest:?}");
}
