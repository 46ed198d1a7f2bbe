//! Random histories of a host. After each of its events the table of timers comes to what follows from the
//! whole state: `handle` sees to that in these tests. So does what is stored, and who uses which file.

use std::collections::{BTreeMap, BTreeSet};

use fallow_boinc::scheduler::SchedulerReply;
use fallow_domain::{
    AccountKey, Bytes, DocumentVersion, Duration, FleetDocument, Fraction, HostFacts, MasterUrl, Preferences,
    ProjectAssignment, ResourceTypes, Share,
};
use fallow_policy::other_network::NetworkMoved;
use fallow_preferences::Said;
use proptest::prelude::*;

use super::job_edits::without_totals;
use super::world::{World, host};
use crate::file_use::FileUse;
use crate::machine::Client;
use crate::record::Record;
use crate::state::Job;
use crate::{
    AttachRequest, Benchmarks, Event, NetworkOver, PreferenceFiles, RequestedBy, StartFault, Surroundings,
    TransferError, TransferErrorKind, Waiter,
};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn url(n: u32) -> MasterUrl {
    super::url(NAMES[n as usize % NAMES.len()])
}

/// A document with some of the projects, and preferences of all kinds.
fn document(version: u64, n: u32) -> FleetDocument {
    let is = |bit: u32| n & (1 << bit) != 0;
    let preferences = Preferences {
        buffer_min: Duration::from_secs(if is(0) { 60 } else { 4_000 }),
        buffer_additional: Duration::from_secs(30),
        connection_interval: Duration::from_secs(if n.is_multiple_of(3) { 900 } else { 0 }),
        cpu_time_fraction: Fraction::clamped(if is(1) { 0.5 } else { 1.0 }),
        memory_fraction: Fraction::clamped(if n.is_multiple_of(11) { 0.01 } else { 0.9 }),
        leave_in_memory: is(2),
        suspended: n.is_multiple_of(7),
        ..Preferences::default()
    };
    let wanted = (0..3).filter(|project| is(3 + project) || *project == 0);
    let project = |project: u32| ProjectAssignment {
        name: NAMES[project as usize].to_owned(),
        url: url(project),
        account_key: AccountKey::new("0123456789abcdef0123456789abcdef"),
        share: Share::DEFAULT,
        code_sign_key: None,
        without: ResourceTypes::default(),
    };
    FleetDocument {
        content: String::new(),
        version: DocumentVersion(version),
        projects: wanted.map(project).collect(),
        preferences,
    }
}

/// What projects ask of a host in their replies.
fn alter(n: u32) -> Option<fn(&mut SchedulerReply, usize)> {
    match n % 4 {
        0 => Some(|reply, _| reply.request_delay = Duration::from_secs(600)),
        1 => Some(|reply, _| reply.next_rpc_delay = Some(Duration::from_secs(500))),
        2 => Some(|reply, _| {
            let jobs = &mut reply.workunits;
            jobs.iter_mut().step_by(2).for_each(|job| job.rsc_memory_bound = Some(Bytes(8_000_000_000)));
        }),
        _ => None,
    }
}

/// Something happens to a host, or to the projects that it serves.
fn happens(world: &mut World, what: u8, n: u32) {
    let is_even = n.is_multiple_of(2);
    let name = NAMES[n as usize % NAMES.len()];
    match what {
        0 => world.event(Event::DocumentOffered(document(u64::from(world.turns as u32) + 1, n).into())),
        1 => world.event(Event::Detach { url: url(n) }),
        2 => {
            let account_key = Some(AccountKey::new("0123456789abcdef0123456789abcdef"));
            let waiter = Waiter(u64::from(n));
            world.event(Event::Attach(AttachRequest {
                waiter,
                url: url(n),
                account_key,
                share: None,
                unseen: is_even,
            }));
        }
        3 => {
            let by = if is_even { RequestedBy::Fleet } else { RequestedBy::Owner };
            world.event(Event::ContactRequested { url: url(n / 2), by });
        }
        4 => world.event(Event::BenchmarksRun(match n % 3 {
            0 => Benchmarks::Begin,
            1 => Benchmarks::Retry,
            _ => Benchmarks::End,
        })),
        5 => world.event(Event::OwnerSuspended(is_even)),
        6 => world.event(Event::HostMeasured(Box::new(HostFacts { ncpus: 1 + n % 4, ..host() }))),
        7 => world.jump(Duration::from_secs((i64::from(n) - 30) * 100)),
        8 => world.restart(),
        9 => {
            let error = TransferError::new(TransferErrorKind::Transient, "no connection");
            world.fail_download = is_even.then_some(error.clone());
            world.fail_upload = n.is_multiple_of(3).then_some(error);
        }
        10 => world.drip_prefix = is_even.then_some("a_"),
        11 => world.download_takes = Duration::from_secs(i64::from(n) * 2),
        12 => {
            world.exits_at_once = is_even;
            world.asks_again_in = n.is_multiple_of(3).then(|| Duration::from_secs(i64::from(n) * 20));
        }
        13 => world.fault = Some(if is_even { StartFault::Host } else { StartFault::Slot }),
        14 => {
            let project = world.projects.get_mut(name).unwrap();
            (project.down, project.report_immediately) = (is_even, n.is_multiple_of(3));
            project.supply = if n.is_multiple_of(5) { 0 } else { 1_000 };
        }
        15 => {
            let project = world.projects.get_mut(name).unwrap();
            project.answers_in = Duration::from_secs(if is_even { 45 } else { 0 });
        }
        16 => world.alter = alter(n),
        17 => {
            world.event(Event::HostAway);
            world.jump(Duration::from_secs(i64::from(n) * 30));
            world.event(Event::HostBack);
        }
        18 => world.silent = is_even,
        19 => {
            let full = TransferError::new(TransferErrorKind::DiskFull, "no space");
            world.fail_download = is_even.then_some(full);
        }
        20 => {
            let limit = (!n.is_multiple_of(5)).then_some(Bytes(10_000));
            let owner = Some(Said { other_network_max: Some(limit), ..Said::default() });
            let files = PreferenceFiles { owner, ..PreferenceFiles::default() };
            world.event(Event::PreferenceFilesRead(Box::new(files)));
            let (before, moved) = (world.turns * 1_000_000_000, u64::from(n) * 1_000_000);
            for all in [before, before + moved] {
                let at = Duration::from_micros(world.now.as_micros());
                let (all, ours, interfaces) = (Bytes(all), Bytes(0), BTreeSet::new());
                world.event(Event::NetworkMoved(NetworkMoved { at, interfaces, all, ours }));
                world.run_for(Duration::from_secs(5));
            }
        }
        21 => {
            let owner = Some(Said { network_wifi_only: Some(!n.is_multiple_of(5)), ..Said::default() });
            let files = PreferenceFiles { owner, ..PreferenceFiles::default() };
            world.event(Event::PreferenceFilesRead(Box::new(files)));
            let over = if is_even { NetworkOver::Wifi } else { NetworkOver::Other("eth0".to_owned()) };
            world.event(Event::SurroundingsSeen(Surroundings {
                network: (!n.is_multiple_of(3)).then_some(over),
                ..Surroundings::default()
            }));
        }
        _ => {}
    }
    world.run_for(Duration::from_secs(i64::from(n) * 2));
}

/// All that is stored of a client, but for its accounts and the running totals of jobs, which are stored
/// every few seconds.
fn stored(client: &Client) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let state = &client.state;
    let projects = state.projects.keys().map(|id| Record::Project(*id));
    let versions = state.versions.keys().map(|key| Record::Version(key.clone()));
    let workunits = state.workunits.keys().map(|key| Record::Workunit(key.clone()));
    let files = state.files.keys().map(|key| Record::File(key.clone()));
    let jobs = state.jobs.keys().map(|id| Record::Job(*id));
    let experience = client.ledger.experience().keys().map(|id| Record::Experience(*id));
    let all = projects.chain(versions).chain(workunits).chain(files).chain(jobs);
    let all = all.chain(experience).chain([Record::Meta]);
    let changes = all.map(|record| record.change(state, &client.ledger));
    changes.filter_map(|change| Some((change.key, change.value?))).collect()
}

fn readable(records: &BTreeMap<Vec<u8>, Vec<u8>>) -> BTreeMap<String, serde_json::Value> {
    let kept =
        records.iter().filter(|(key, _)| !matches!(key.as_slice(), b"ledger" | b"metrics" | b"on_time"));
    let read = kept.map(|(key, value)| {
        let is_job = key.starts_with(b"job/");
        let read = if is_job { without_totals(value) } else { serde_json::from_slice(&value[1..]).unwrap() };
        (String::from_utf8(key.clone()).unwrap(), read)
    });
    read.collect()
}

/// What is stored is the state as it is, each workunit is some job's, and files are used by whoever refers to
/// them.
fn check(world: &World) {
    let (client, state) = (&world.client, &world.client.state);
    let (found, expected) = (readable(&world.store), readable(&stored(client)));
    for (key, value) in &expected {
        assert_eq!(found.get(key), Some(value), "{key}");
    }
    assert_eq!(found.len(), expected.len());
    assert!(state.workunits.keys().all(|workunit| state.jobs.any_of_workunit(workunit)));
    let mut anew = FileUse::default();
    state.versions.keys().flat_map(|key| client.version_files(key)).for_each(|key| anew.add_user(&key));
    let of_job = |job: &Job| client.input_files(job).into_iter().chain(job.output_files());
    state.jobs.values().flat_map(of_job).for_each(|key| anew.add_user(&key));
    assert!(state.file_use.is_like(&anew), "{:?} is not {anew:?}", state.file_use);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn the_next_wake_up_is_the_first_of_all_deadlines_after_every_event(
        seed in any::<u64>(),
        first in 0_u32..60,
        steps in prop::collection::vec((0_u8..24, 0_u32..60), 5..25),
    ) {
        let mut world = World::new(seed);
        for (name, cpu) in NAMES.into_iter().zip([30, 100, 400]) {
            world.add_project(name, 1_000, Duration::from_secs(cpu));
        }
        world.event(Event::DocumentOffered(document(1, first).into()));
        world.run_for(Duration::from_secs(20));
        let mut was_set_back = false;
        for (what, n) in steps {
            happens(&mut world, what, n);
            // Then waits are shorter than they were stored.
            was_set_back |= what == 7 && n < 30;
            if !was_set_back {
                check(&world);
            }
        }
    }
}
