//! Devices that are told one by one: their numbers, who uses them, and what is told of them.

use std::num::NonZeroU32;

use fallow_domain::{
    Bytes, Coprocessor, CoprocessorDevice, Device, Duration, HostFacts, JobId, OpenClDevice, ResourceType,
    SlotId, Usage,
};
use fallow_policy::fetch::WorkRequest;
use fallow_policy::job_queue::Devices;
use fallow_policy::looks::LookPace;
use fallow_preferences::Said;

use super::{NOW, client, host, id_of, put_job, speed};
use crate::machine::Client;
use crate::state::Process;
use crate::{
    DeviceState, DeviceTemperature, DeviceUser, Effect, Event, NoticeLevel, PreferenceFiles, Step,
    Surroundings,
};

const NVIDIA: ResourceType = ResourceType::Nvidia;

fn address(bus: u32) -> String {
    format!("0000:{bus:02x}:00.0")
}

/// A host with GPUs at these places of the bus, in this order.
fn with_gpus(buses: &[u32]) -> HostFacts {
    let device = |(number, bus): (u32, &u32)| CoprocessorDevice {
        number,
        address: address(*bus),
        model: format!("GPU {bus}"),
        speed: speed(2e9 + f64::from(*bus)),
        memory: Bytes::from_mebibytes(8_000),
        free: Bytes::from_mebibytes(7_000 + u64::from(*bus)),
        compute: Some((8, *bus)),
        clock_khz: 1_000_000,
        multiprocessors: 10,
        opencl: None,
        unfit: None,
    };
    let devices = (0..).zip(buses).map(device).collect();
    let gpus = Coprocessor::of_devices(NVIDIA, "535.129.03", 12_020, devices);
    HostFacts { coprocessors: gpus.into_iter().collect(), ..host(0) }
}

fn user(bus: u32, draws: bool, memory: u64) -> DeviceUser {
    let (kind, memory) = (NVIDIA, Some(Bytes::from_mebibytes(memory)));
    DeviceUser { kind, address: address(bus), process: 99, name: "blender".into(), draws, memory }
}

fn gpu_job() -> Usage {
    Usage::from_cpus(0.1).with_coprocessor(NVIDIA, 1.0)
}

/// A client of a host with GPUs at these places, and a job for them that is ready.
fn with_job(buses: &[u32]) -> (Client, JobId) {
    let mut client = client(0, &["a"]);
    client.handle(NOW, Event::HostMeasured(Box::new(with_gpus(buses))));
    let a = id_of(&client, "a");
    let id = put_job(&mut client, 1, a, gpu_job());
    client.want_schedule();
    (client, id)
}

fn usable(client: &Client) -> Devices {
    client.devices_to_begin_on()[NVIDIA]
}

fn states(client: &Client) -> Vec<String> {
    client.device_views().iter().map(|view| format!("{} {}", view.device, view.state)).collect()
}

fn count(step: &Step, is: impl Fn(&Effect) -> bool) -> usize {
    step.actions.iter().filter(|action| is(&action.effect)).count()
}

/// Puts a job's process on a device.
fn put_on(client: &mut Client, id: JobId, device: u32, process: Process) {
    client.edit_job(id, |job| {
        (job.process, job.slot, job.run.begun) = (process, Some(SlotId(0)), true);
        (job.run.devices, job.run.slice_since) = (Devices::NONE.with(device), NOW);
    });
}

#[test]
fn r3_14_devices_keep_their_numbers_while_others_come_and_go_and_applications_are_told_their_drivers() {
    let (mut client, _) = with_job(&[1, 3]);
    let told = |client: &Client| -> Vec<u32> {
        (0..3).map(|number| client.known_devices.driver_number(NVIDIA, number)).collect()
    };
    assert_eq!(
        (states(&client), told(&client)),
        (vec!["nvidia:0 usable".to_owned(), "nvidia:1 usable".into()], vec![0, 1, 2])
    );
    // The first falls off the bus: the driver counts the second as its first.
    client.handle(NOW, Event::HostMeasured(Box::new(with_gpus(&[3]))));
    assert_eq!(states(&client), ["nvidia:0 gone", "nvidia:1 usable"]);
    assert_eq!((told(&client)[1], client.plan_host().instances[NVIDIA]), (0, 1));
    // It comes back, and one between the two with it.
    client.handle(NOW, Event::HostMeasured(Box::new(with_gpus(&[1, 2, 3]))));
    assert_eq!(states(&client), ["nvidia:0 usable", "nvidia:1 usable", "nvidia:2 usable"]);
    assert_eq!((told(&client), client.plan_host().instances[NVIDIA]), (vec![0, 2, 1], 3));
    client.handle(NOW, Event::HostMeasured(Box::new(with_gpus(&[]))));
    assert_eq!(client.plan_host().instances[NVIDIA], 0, "the driver answers no more");
}

#[test]
fn r3_14_what_is_excluded_by_number_stays_so_when_another_device_goes() {
    let (mut client, _) = with_job(&[1, 3]);
    client.handle(NOW, Event::OwnerExcludedDevices([Device::new(NVIDIA, 1).unwrap()].into()));
    client.handle(NOW, Event::HostMeasured(Box::new(with_gpus(&[3]))));
    assert_eq!(client.plan_host().instances[NVIDIA], 0, "the one that is left is the excluded one");
    assert_eq!(states(&client), ["nvidia:0 gone", "nvidia:1 excluded by the owner"]);
}

#[test]
fn r3_14_nothing_is_begun_on_a_device_before_it_is_known_who_uses_it() {
    let (mut client, id) = with_job(&[1, 2]);
    let step = client.handle(NOW, Event::WakeUp);
    assert_eq!(count(&step, |effect| matches!(effect, Effect::WatchDevices(Some(_)))), 1);
    assert_eq!(usable(&client), Devices::NONE);
    assert_eq!(client.plan_host().instances[NVIDIA], 2, "but work is asked for");
    assert!(client.workload.queue().get(id).is_some(), "and the job is one that can run here");
    client.handle(NOW, Event::DevicesSeen(vec![user(1, false, 10)]));
    assert_eq!(usable(&client), Devices::NONE.with(1));
    // Nor on one that comes later, whatever is known of the others.
    let (mut client, _) = with_job(&[1]);
    client.handle(NOW, Event::WakeUp);
    client.handle(NOW, Event::DevicesSeen(Vec::new()));
    client.edit_host(with_gpus(&[1, 2]));
    assert_eq!(usable(&client), Devices::first(1));
    client.devices_seen(&[]);
    assert!(client.schedule.is_wanted() && usable(&client) == Devices::first(2));
    let (mut client, _) = with_job(&[1, 2]);
    client.handle(NOW, Event::WakeUp);
    let step = client.handle(NOW, Event::OwnerSuspended(true));
    assert_eq!(
        count(&step, |effect| matches!(effect, Effect::WatchDevices(None))),
        1,
        "nobody looks for nothing"
    );
    client.handle(NOW, Event::OwnerSuspended(false));
    assert_eq!(usable(&client), Devices::NONE, "what was seen before may be old");
}

#[test]
fn r3_14_without_devices_or_without_jobs_for_them_nobody_looks() {
    for (gpus, usage) in [(&[][..], gpu_job()), (&[1][..], Usage::ONE_CPU)] {
        let mut client = client(0, &["a"]);
        client.handle(NOW, Event::HostMeasured(Box::new(with_gpus(gpus))));
        let a = id_of(&client, "a");
        put_job(&mut client, 1, a, usage);
        client.want_schedule();
        let step = client.handle(NOW, Event::WakeUp);
        assert_eq!(count(&step, |effect| matches!(effect, Effect::WatchDevices(_))), 0, "{gpus:?}");
        assert_eq!(client.next_device(), None);
    }
}

#[test]
fn r3_14_a_task_leaves_a_device_at_once_that_the_owners_program_uses_and_says_why() {
    for process in [Process::Executing(7), Process::Suspended(7)] {
        let (mut client, id) = with_job(&[1]);
        client.handle(NOW, Event::WakeUp);
        put_on(&mut client, id, 0, process);
        let step = client.handle(NOW, Event::DevicesSeen(vec![user(1, false, 10)]));
        let warned = |effect: &Effect| matches!(effect, Effect::Notice { level: NoticeLevel::Warn, .. });
        assert_eq!(count(&step, warned), 0, "that the job cannot run now passes");
        let quit = step.actions.iter().find(|action| matches!(action.effect, Effect::QuitTask { .. }));
        let why = quit.unwrap().reason.to_string();
        assert!(why.contains("nvidia:0 is in use by blender (process 99)") && why.contains("R3.14"), "{why}");
        let state = client.device_views()[0].state.clone();
        assert_eq!(state, DeviceState::InUse("in use by blender (process 99)".into()));
    }
}

#[test]
fn r3_14_a_device_is_left_alone_for_a_minute_after_the_owners_program_was_seen_last() {
    let (mut client, _) = with_job(&[1]);
    client.handle(NOW, Event::WakeUp);
    let at = |secs| NOW + Duration::from_secs(secs);
    client.handle(at(0), Event::DevicesSeen(vec![user(1, false, 10)]));
    client.handle(at(10), Event::DevicesSeen(Vec::new()));
    // It begins again, and ends again.
    client.handle(at(20), Event::DevicesSeen(vec![user(1, false, 10)]));
    client.handle(at(30), Event::DevicesSeen(Vec::new()));
    assert_eq!(states(&client), ["nvidia:0 in use until a moment ago by blender (process 99)"]);
    let step = client.handle(at(89), Event::WakeUp);
    assert_eq!((usable(&client), step.wake_at), (Devices::NONE, Some(at(90))));
    client.handle(at(90), Event::WakeUp);
    assert_eq!(usable(&client), Devices::first(1));
    // A clock that is set back holds it no longer.
    client.handle(at(90), Event::DevicesSeen(vec![user(1, false, 10)]));
    client.handle(at(91), Event::DevicesSeen(Vec::new()));
    client.handle(NOW - Duration::from_hours(24), Event::WakeUp);
    assert_eq!(client.known_devices.free(NVIDIA), Some(Devices::first(1)));
}

#[test]
fn r3_14_a_desktop_may_draw_on_a_device_and_a_game_has_it_for_itself() {
    for (draws, memory, in_use) in [(true, 999, false), (true, 1_000, true), (false, 1, true)] {
        let (mut client, _) = with_job(&[1]);
        client.handle(NOW, Event::WakeUp);
        client.handle(NOW, Event::DevicesSeen(vec![user(1, draws, memory), user(2, false, 1)]));
        assert_eq!(usable(&client).is_empty(), in_use, "{draws} {memory}");
    }
}

#[test]
fn r3_14_a_desktop_on_a_device_whose_memory_nobody_tells_does_not_have_it_for_itself() {
    let mut facts = with_gpus(&[1]);
    facts.coprocessors[0].devices[0].memory = Bytes(0);
    let (mut client, _) = with_job(&[1]);
    client.handle(NOW, Event::HostMeasured(Box::new(facts)));
    client.handle(NOW, Event::DevicesSeen(vec![user(1, true, 100)]));
    assert!(!usable(&client).is_empty(), "{:?}", states(&client));
}

#[test]
fn r3_14_a_failed_job_says_on_which_device_it_ran() {
    let (client, _) = with_job(&[1, 3]);
    let told = client.ran_on(NVIDIA, Devices::NONE.with(1));
    assert_eq!(told, " on NVIDIA GPU 1 (GPU 3 at 0000:03:00.0)");
}

#[test]
fn r3_15_a_server_is_told_what_each_device_can_that_may_be_used() {
    let (mut client, _) = with_job(&[1, 2, 3]);
    let a = id_of(&client, "a");
    client.handle(NOW, Event::OwnerExcludedDevices([Device::new(NVIDIA, 0).unwrap()].into()));
    // What our own task holds meanwhile is not what a new one would find.
    let mut later = with_gpus(&[1, 2, 3]);
    later.coprocessors[0].devices.iter_mut().for_each(|device| device.free = Bytes(5));
    client.handle(NOW, Event::HostMeasured(Box::new(later)));
    let (request, _) = client.compose_request(a, &WorkRequest::default()).unwrap();
    let [gpus] = request.coprocs.as_slice() else { panic!("{:?}", request.coprocs) };
    let cuda = gpus.cuda.unwrap();
    assert_eq!((gpus.count, gpus.driver.as_str(), request.host_info.n_usable_coprocs), (2, "53599", 2));
    assert_eq!(
        (cuda.version, cuda.major, cuda.minor, cuda.clock_khz, cuda.multiprocessors),
        (12_020, 8, 2, 1_000_000, 10)
    );
    assert_eq!((gpus.name.as_str(), gpus.peak_flops), ("GPU 2", 2e9 + 2.0));
    assert_eq!((gpus.memory, gpus.available), (Bytes::from_mebibytes(8_000), Bytes::from_mebibytes(7_002)));
}

#[test]
fn r3_15_what_is_free_on_a_device_leads_to_no_decision() {
    let (mut client, _) = with_job(&[1]);
    client.handle(NOW, Event::WakeUp);
    let mut later = with_gpus(&[1]);
    later.coprocessors[0].devices[0].free = Bytes(5);
    client.edit_host(later);
    assert!(!client.schedule.is_wanted());
}

/// The owner's file says the most that a device may have, or nothing.
fn allow(client: &mut Client, most: Option<u32>) {
    let most = most.and_then(NonZeroU32::new);
    let said = Said { gpu_temperature_max: most.map(Some), ..Said::default() };
    let files = PreferenceFiles { owner: Some(said), ..PreferenceFiles::default() };
    client.handle(NOW, Event::PreferenceFilesRead(Box::new(files)));
}

/// Those at these places of the bus are so hot.
fn felt(client: &mut Client, degrees: &[(u32, u32)]) -> Step {
    let of = |(bus, degrees): &(u32, u32)| DeviceTemperature {
        kind: NVIDIA,
        address: address(*bus),
        degrees: *degrees,
    };
    client.handle(NOW, Event::DevicesFelt(degrees.iter().map(of).collect()))
}

#[test]
fn r3_14_a_device_that_is_hotter_than_the_owner_allows_is_left_alone_until_it_has_cooled_by_five_degrees() {
    let (mut client, id) = with_job(&[1, 2]);
    client.handle(NOW, Event::WakeUp);
    // On the other one, so that there is something for which devices are looked at.
    put_on(&mut client, id, 1, Process::Executing(7));
    client.handle(NOW, Event::DevicesSeen(Vec::new()));
    felt(&mut client, &[(1, 104), (2, 60)]);
    assert_eq!(usable(&client), Devices::first(2), "nobody has said how hot one may be");
    assert_eq!(
        client.device_views().iter().map(|view| view.temperature).collect::<Vec<_>>(),
        [Some(104), Some(60)]
    );
    allow(&mut client, Some(80));
    assert_eq!(usable(&client), Devices::NONE.with(1), "what is known already counts at once");
    let state = client.device_views()[0].state.clone();
    assert!(matches!(state, DeviceState::TooHot(_)), "{state:?}");
    for (degrees, is_usable) in [(81, false), (80, false), (76, false), (75, true), (80, true), (81, false)] {
        felt(&mut client, &[(1, degrees), (2, 60)]);
        assert_eq!(usable(&client).contains(0), is_usable, "{degrees}");
    }
    // What is not told any more may be anything.
    felt(&mut client, &[(2, 60)]);
    assert_eq!(usable(&client), Devices::NONE.with(1));
    assert_eq!(client.device_views()[0].temperature, None);
    allow(&mut client, None);
    assert_eq!(usable(&client), Devices::first(2), "the owner says nothing any more");
}

#[test]
fn r3_14_a_device_that_does_not_tell_its_temperature_is_used_whatever_the_owner_allows() {
    let (mut client, _) = with_job(&[1]);
    allow(&mut client, Some(40));
    client.handle(NOW, Event::WakeUp);
    felt(&mut client, &[]);
    client.handle(NOW, Event::DevicesSeen(Vec::new()));
    assert_eq!(usable(&client), Devices::first(1));
}

#[test]
fn r3_14_a_task_leaves_a_device_that_has_become_too_hot_and_says_why() {
    let (mut client, id) = with_job(&[1]);
    allow(&mut client, Some(80));
    client.handle(NOW, Event::WakeUp);
    put_on(&mut client, id, 0, Process::Executing(7));
    client.handle(NOW, Event::DevicesSeen(Vec::new()));
    let step = felt(&mut client, &[(1, 85)]);
    let quit = step.actions.iter().find(|action| matches!(action.effect, Effect::QuitTask { .. }));
    let why = quit.unwrap().reason.to_string();
    assert!(why.contains("nvidia:0 is too hot (85 °C, at most 80 °C"), "{why}");
    let warned = |effect: &Effect| matches!(effect, Effect::Notice { level: NoticeLevel::Warn, .. });
    assert_eq!(count(&step, warned), 0, "that the job cannot run now passes");
    // It goes on being looked at: or nobody would learn that it has cooled.
    assert_eq!(count(&step, |effect| matches!(effect, Effect::WatchDevices(None))), 0);
}

/// A host with AMD GPUs at these places of the bus, each with its place in OpenCL's order if it has one.
fn with_amd(gpus: &[(u32, Option<u32>)]) -> HostFacts {
    let devices = gpus.iter().map(|(bus, index)| CoprocessorDevice {
        number: index.unwrap_or(0),
        address: address(*bus),
        model: format!("Radeon {bus}"),
        speed: speed(1e12),
        memory: Bytes::from_mebibytes(8_000),
        free: Bytes::from_mebibytes(7_000),
        compute: None,
        clock_khz: 0,
        multiprocessors: 0,
        opencl: index.map(|index| {
            let (memory, device_version) = (Bytes::from_mebibytes(8_000), "OpenCL 2.0 ".to_owned());
            Box::new(OpenClDevice { index, memory, device_version, ..OpenClDevice::default() })
        }),
        unfit: index.is_none().then(|| "no OpenCL".to_owned()),
    });
    let gpus = Coprocessor::of_devices(ResourceType::Amd, "amdgpu", 0, devices.collect());
    HostFacts { coprocessors: gpus.into_iter().collect(), ..host(0) }
}

#[test]
fn r3_15_a_device_that_no_job_can_use_is_told_to_nobody_and_says_why() {
    let mut client = client(0, &["a"]);
    let step = client.handle(NOW, Event::HostMeasured(Box::new(with_amd(&[(1, None)]))));
    let news = "amd:0, Radeon 1 at 0000:01:00.0, is not usable: no OpenCL";
    let is_said = |effect: &Effect| matches!(effect, Effect::Notice { text, .. } if text == news);
    assert_eq!(count(&step, is_said), 1);
    assert_eq!(states(&client), ["amd:0 not usable: no OpenCL"]);
    assert_eq!(client.plan_host().instances[ResourceType::Amd], 0);
    assert_eq!(client.host_view().coprocessors.get(&ResourceType::Amd), None, "it is no label");
    let a = id_of(&client, "a");
    let (request, _) = client.compose_request(a, &WorkRequest::default()).unwrap();
    assert_eq!(request.coprocs, []);
    // OpenCL comes, and goes again.
    client.handle(NOW, Event::HostMeasured(Box::new(with_amd(&[(1, Some(0))]))));
    assert_eq!(
        (states(&client), client.plan_host().instances[ResourceType::Amd]),
        (vec!["amd:0 usable".into()], 1)
    );
    client.handle(NOW, Event::HostMeasured(Box::new(with_amd(&[(1, None)]))));
    assert_eq!(client.plan_host().instances[ResourceType::Amd], 0);
}

#[test]
fn r3_15_a_server_is_told_what_opencl_says_of_those_devices_that_jobs_can_use() {
    let mut client = client(0, &["a"]);
    client.handle(NOW, Event::HostMeasured(Box::new(with_amd(&[(1, None), (2, Some(4)), (3, Some(3))]))));
    let a = id_of(&client, "a");
    let (request, _) = client.compose_request(a, &WorkRequest::default()).unwrap();
    let [gpus] = request.coprocs.as_slice() else { panic!("{:?}", request.coprocs) };
    assert_eq!((gpus.kind.as_str(), gpus.count, gpus.driver.as_str()), ("ATI", 2, ""));
    assert_eq!(gpus.opencl.as_ref().unwrap().opencl_device_version, "OpenCL 2.0 ");
}

#[test]
fn r3_14_a_program_that_cannot_be_seen_has_no_number() {
    let (mut client, _) = with_job(&[1]);
    client.handle(NOW, Event::WakeUp);
    let unseen = DeviceUser { process: 0, name: "a program".into(), ..user(1, false, 10) };
    client.handle(NOW, Event::DevicesSeen(vec![unseen]));
    assert_eq!(states(&client), ["nvidia:0 in use by a program"]);
}

#[test]
fn r6_4_no_job_starts_on_an_old_look_because_its_device_came_back_with_time() {
    let (mut client, _) = with_job(&[1]);
    client.config.answers_looks = true;
    client.handle(NOW, Event::WakeUp);
    let seen = |client: &mut Client| {
        let number = client.looks_for().number;
        client.handle(NOW, Event::SurroundingsSeen(Surroundings { number, ..Surroundings::default() }));
    };
    client.handle(NOW, Event::DevicesSeen(vec![user(1, false, 4_000)]));
    seen(&mut client);
    client.handle(NOW, Event::DevicesSeen(Vec::new()));
    assert!(usable(&client).is_empty(), "it is held for a minute");
    client.handle(NOW, Event::WakeUp);
    seen(&mut client);
    assert_eq!(client.looks_for().pace, LookPace::Seldom, "no job can run");
    let step = client.handle(NOW + Duration::from_secs(61), Event::WakeUp);
    assert_eq!(count(&step, |effect| matches!(effect, Effect::StartTask { .. })), 0, "{:?}", step.actions);
    assert!(client.looks_for().pace == LookPace::Often && client.awaits_look());
}
