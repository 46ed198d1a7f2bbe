//! A client that keeps records of its course, as an agent's does, and one that keeps none, as in a
//! simulation, are the same client: given the same events they do the same and count the same.

use fallow_boinc::scheduler::SchedulerReply;
use fallow_client::{Benchmarks, ClientConfig, Event, RequestedBy, TransferError, TransferErrorKind};
use fallow_domain::{Bytes, Duration, Preferences};
use proptest::prelude::*;

use crate::life::{document, small_buffers};
use crate::review::{attach, both_cpus, url};
use crate::world::{World, host, version};

/// Something that happens to a host.
#[derive(Clone, Copy, Debug)]
enum Move {
    Run(i64),
    Sleep(i64),
    Jump(i64),
    Restart,
    Suspend(bool),
    Document(f64, u8),
    BadDocument,
    Attach(bool),
    Detach(bool),
    Contact(RequestedBy),
    StartsFail(u32),
    DownloadsFail(Option<TransferErrorKind>),
    UploadsFail(bool),
    SchedulersAreSilent(bool),
    TasksExit(bool),
    TasksNeedMemory(u32),
    TasksAreSlow(bool),
    DeadlinesAreNear(bool),
    Benchmarks(bool),
    Memory(i32),
}

fn any_move() -> impl Strategy<Value = Move> {
    let requested_by = prop_oneof![Just(RequestedBy::Owner), Just(RequestedBy::Fleet)];
    let kind = prop_oneof![Just(TransferErrorKind::Transient), Just(TransferErrorKind::Permanent)];
    prop_oneof![
        20 => (1_i64..40).prop_map(Move::Run),
        1 => (1_i64..8_000).prop_map(Move::Sleep),
        1 => (-10_000_i64..10_000).prop_map(Move::Jump),
        1 => Just(Move::Restart),
        2 => prop::bool::weighted(0.3).prop_map(Move::Suspend),
        3 => (1.0..9.0, any::<u8>()).prop_map(|(share, kind)| Move::Document(share, kind)),
        1 => Just(Move::BadDocument),
        1 => any::<bool>().prop_map(Move::Attach),
        1 => any::<bool>().prop_map(Move::Detach),
        1 => requested_by.prop_map(Move::Contact),
        1 => (1_u32..3).prop_map(Move::StartsFail),
        2 => prop::option::of(kind).prop_map(Move::DownloadsFail),
        1 => any::<bool>().prop_map(Move::UploadsFail),
        1 => prop::bool::weighted(0.3).prop_map(Move::SchedulersAreSilent),
        1 => prop::bool::weighted(0.3).prop_map(Move::TasksExit),
        1 => (10_u32..9_000).prop_map(Move::TasksNeedMemory),
        2 => any::<bool>().prop_map(Move::TasksAreSlow),
        2 => any::<bool>().prop_map(Move::DeadlinesAreNear),
        1 => any::<bool>().prop_map(Move::Benchmarks),
        1 => (50_i32..8_192).prop_map(Move::Memory),
    ]
}

fn failure(kind: TransferErrorKind) -> TransferError {
    TransferError::new(kind, "it fails")
}

/// Deadlines of a project that gives its jobs two minutes instead of a week.
fn nearer(reply: &mut SchedulerReply, _: usize) {
    let by = Duration::from_hours(24 * 7) - Duration::from_mins(2);
    reply.results.iter_mut().for_each(|result| result.report_deadline = result.report_deadline - by);
}

/// Preferences of some kind.
fn preferences(kind: u8) -> Preferences {
    let preferences = if kind & 1 == 0 { both_cpus() } else { small_buffers() };
    let hours = if kind & 2 == 0 { 0 } else { 1 };
    let buffer = if kind & 4 == 0 { preferences.buffer_min } else { Duration::from_mins(10) };
    Preferences {
        connection_interval: Duration::from_hours(hours),
        buffer_min: buffer,
        leave_in_memory: kind & 8 == 0,
        ..preferences
    }
}

fn make(world: &mut World, versions: &mut u64, what: Move) {
    let name = |first| if first { "a" } else { "b" };
    match what {
        Move::Run(secs) => world.run_for(Duration::from_secs(secs)),
        Move::Sleep(secs) => world.sleep(Duration::from_secs(secs)),
        Move::Jump(secs) => world.jump(Duration::from_secs(secs)),
        Move::Restart => world.restart(),
        Move::Suspend(suspends) => world.event(Event::OwnerSuspended(suspends)),
        Move::Document(share, kind) => {
            *versions += 1;
            let shares = [("a", share), ("b", 1.0)];
            let shares = if kind & 16 == 0 { &shares[..] } else { &shares[..1] };
            world.event(Event::DocumentOffered(document(*versions, shares, preferences(kind)).into()));
        }
        Move::BadDocument => {
            let version = *versions + 1;
            world.event(Event::DocumentUnreadable {
                version: fallow_domain::DocumentVersion(version),
                reason: "nonsense".to_owned(),
            });
        }
        Move::Attach(first) => world.event(attach(name(first))),
        Move::Detach(first) => world.event(Event::Detach { url: url(name(first)) }),
        Move::Contact(by) => world.event(Event::ContactRequested { url: url("a"), by }),
        Move::StartsFail(times) => world.fail_starts = times,
        Move::DownloadsFail(kind) => world.fail_download = kind.map(failure),
        Move::UploadsFail(fail) => {
            world.fail_upload = fail.then(|| failure(TransferErrorKind::Transient));
        }
        Move::SchedulersAreSilent(silent) => world.silent = silent,
        Move::TasksExit(exit) => world.exits_at_once = exit,
        Move::TasksNeedMemory(mebibytes) => {
            world.working_set = Bytes::from_mebibytes(u64::from(mebibytes));
        }
        Move::TasksAreSlow(slow) => world.slowness = if slow { 8.0 } else { 1.0 },
        Move::DeadlinesAreNear(near) => world.alter = near.then_some(nearer),
        Move::Benchmarks(begin) => {
            let what = if begin { Benchmarks::Begin } else { Benchmarks::End };
            world.event(Event::BenchmarksRun(what));
        }
        Move::Memory(mebibytes) => {
            let memory = Bytes::from_mebibytes(mebibytes.unsigned_abs().into());
            let facts = fallow_domain::HostFacts { memory, ..host() };
            world.event(Event::HostMeasured(Box::new(facts)));
        }
    }
}

fn any_policy() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        3 => Just("CS2_WF2_WS2_JC2"),
        1 => Just("CS1_WF1_WS1_JC1"),
        1 => Just("CS2_WF1_WS2_JC2,fetch=below-minimum"),
        1 => Just("CS2_WF2_WS2_JC2,accounting=recent-credit"),
        2 => Just("CS2_WF3_WS2_JC2"),
        1 => Just("CS2_WF3_WS3_JC3"),
        3 => Just("CS2_WF2_WS2_JC3,abort=hopeless"),
    ]
}

/// The world asserts it after every event.
#[test]
fn r5_10_so_do_clients_that_give_jobs_up_and_learn_by_version_across_a_restart() {
    let composition = "CS2_WF2_WS2_JC3,abort=hopeless".parse().unwrap();
    let config = ClientConfig { composition, tells_away: true, ..ClientConfig::new(1, version()) };
    let mut world = World::of_two_alike(config);
    world.add_project("a", 60, Duration::from_secs(41));
    world.alter = Some(nearer);
    world.slowness = 8.0;
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], both_cpus()).into()));
    let given_up = |world: &World| world.notices().filter(|notice| notice.contains("given up, for")).count();
    world.run_for(Duration::from_mins(10));
    let before = given_up(&world);
    world.restart();
    world.run_for(Duration::from_mins(10));
    assert!(before > 0 && given_up(&world) > before, "{before} jobs, then {}", given_up(&world));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, ..ProptestConfig::default() })]

    /// The world asserts it after every event. Nor does it matter to what a client does whether it learns
    /// beside what its own policy looks at.
    #[test]
    fn r5_10_a_client_that_keeps_no_records_does_and_counts_what_one_that_keeps_them_does(
        seed in any::<u64>(),
        policy in any_policy(),
        tells_away in any::<bool>(),
        learns_less in any::<bool>(),
        moves in prop::collection::vec(any_move(), 20..80),
    ) {
        let composition = policy.parse().unwrap();
        let config = ClientConfig { composition, tells_away, ..ClientConfig::new(seed, version()) };
        let mut world = match learns_less {
            true => World::of_one_that_learns_less_beside(config),
            false => World::of_two_alike(config),
        };
        world.add_project("a", 60, Duration::from_secs(41));
        world.add_project("b", 60, Duration::from_secs(7));
        let mut versions = 1;
        world.event(Event::DocumentOffered(document(1, &[("a", 1.0), ("b", 1.0)], both_cpus()).into()));
        world.run_for(Duration::from_secs(20));
        for what in moves {
            make(&mut world, &mut versions, what);
        }
    }
}
