//! Tasks whose processes are real, and go before or after they are wanted.

use fallow_policy::confinement::TaskLayers;

use super::*;
use crate::dir::DataDir;
use crate::supervise::collect;
use crate::supervise::slot_dir::{Last, SlotDir};
use crate::sys;

#[test]
fn r6_10_a_task_that_is_gone_is_late_with_nothing_and_nobodys_process_is_taken_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::at(dir.path());
    std::fs::create_dir_all(data.slots()).unwrap();
    let place = SlotDir::create(&data.slot(SlotId(0)), data.trash()).unwrap();
    place.write(files::FINISH, b"0\n", 0o644).unwrap();
    // Its id is that of another session by now.
    let mut other = std::process::Command::new("/bin/sleep");
    sys::isolate(other.arg("1000"), Urgency::Inherited, None);
    let mut other = other.spawn().unwrap();
    let mut task = Task::new(&setup());
    task.is_up(Process {
        pid: other.id(),
        channel: None,
        place: Arc::new(place),
        without: TaskLayers::default(),
    });
    let first = First { urgency: Urgency::Idle, brand: 0 };
    assert_eq!(task.leader(), Some((other.id(), first)));
    task.meter.set_gone();
    task.leave_by = Some(StdInstant::now());
    task.kill_if_overdue(fallow_daemon::clock::now(), false);
    let (is_leaving, leader, ended) = (task.meter.is_leaving(), task.leader(), other.try_wait().unwrap());
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!((is_leaving, leader, ended), (false, None, None));
}

#[test]
fn r4_12_what_a_task_has_left_is_not_waited_for_once_it_is_not_wanted() {
    let mut task = Task::new(&setup());
    let meter = task.meter();
    // Its process is gone, and this host cannot take what it has left.
    meter.set_gone();
    let begun = StdInstant::now();
    let waits = std::thread::spawn(move || {
        let is_to_leave = || meter.is_leaving() || begun.elapsed().as_secs() > 5;
        let full = |_: Last<'_>| Err(std::io::ErrorKind::StorageFull.into());
        collect::patiently("job_1_0", &is_to_leave, full)
    });
    task.discard(Goes::NotWanted);
    assert!(task.meter.is_leaving());
    assert!(waits.join().unwrap().is_err());
}

#[test]
fn r4_12_a_task_that_is_not_wanted_is_killed_as_soon_as_it_is_up() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::at(dir.path());
    std::fs::create_dir_all(data.slots()).unwrap();
    let place = Arc::new(SlotDir::create(&data.slot(SlotId(0)), data.trash()).unwrap());
    let mut process = std::process::Command::new("/bin/sleep");
    sys::isolate(process.arg("1000"), Urgency::Inherited, None);
    let mut task = Task::new(&setup());
    task.discard(Goes::NotWanted);
    let mut process = process.spawn().unwrap();
    task.is_up(Process { pid: process.id(), channel: None, place, without: TaskLayers::default() });
    let is_killed = task.killed;
    process.kill().unwrap();
    let ended = process.wait().unwrap();
    assert!(is_killed.is_some() && !ended.success());
}

fn setup() -> TaskSetup {
    TaskSetup {
        job: JobId(1),
        name: "job_1_0".into(),
        slot: SlotId(0),
        start: 1,
        fresh: true,
        url: MasterUrl::parse("http://127.0.0.1:9/p/").unwrap(),
        program: "app".into(),
        arguments: Vec::new(),
        application: Vec::new(),
        files: Vec::new(),
        init_data: Box::default(),
        environment: Vec::new(),
        mapped_channel: true,
        disk_max: Bytes(u64::MAX),
        special: false,
        network: false,
        required: TaskLayers::default(),
    }
}
