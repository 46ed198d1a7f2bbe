//! Tasks as real processes. The application is this test binary itself, run with the name of an ignored test.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Duration as StdDuration;

use fallow_agent::confine::{Allowed, Confinement};
use fallow_agent::dir::DataDir;
use fallow_agent::guard::GuardHandle;
use fallow_agent::proc;
use fallow_agent::supervise::groups::Groups;
use fallow_agent::supervise::{Context, Supervisor, agent_mark, leftovers, life_mark};
use fallow_agent::users::Users;
use fallow_boinc::runtime::exit::Ended;
use fallow_boinc::runtime::init_data::AppInitData;
use fallow_boinc::runtime::message::ProcessControl;
use fallow_boinc::runtime::softlink;
use fallow_client::{Event, Goes, Press, Room, SlotFile, StartFault, TaskEnd, TaskSample, TaskSetup};
use fallow_domain::{Bytes, Duration, JobId, ProjectId, SlotId};
use fallow_policy::confinement::TaskLayers;

use crate::support::{PATIENCE, agent, is_alive, project, put, signed, wait_for};

pub(crate) const JOB: JobId = JobId(1);
pub(crate) const SLOT: SlotId = SlotId(0);
/// Where in its slot a job makes an output that is not copied.
pub(crate) const OUTPUT: &str = "fallow_outputs/output_1";
/// More than the application counts while a test looks, however seldom that comes to its turn.
pub(crate) const ENDLESS: u64 = 1_000_000_000;

/// The application: counts in its input file's name up to a number, a tenth of a CPU second at a time, with a
/// checkpoint after each, and writes the sum.
#[test]
#[ignore = "not a test: run as an application by the tests below"]
fn application_that_counts() {
    let app = fallow_application::Application::start().unwrap();
    let goal: u64 =
        std::fs::read_to_string(fallow_application::resolve("in").unwrap()).unwrap().trim().parse().unwrap();
    let mut done: u64 =
        std::fs::read_to_string("count").ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    eprintln!("starting at {done}");
    while done < goal {
        // CPU time and not the clock: idle priority may mean hardly any of it.
        let start = app.cpu_time();
        while app.cpu_time() - start < Duration::from_millis(100) {
            app.poll();
        }
        done += 1;
        app.fraction_done(done as f64 / goal as f64);
        // A quit in the midst of it would leave an empty file.
        app.uninterrupted(|| std::fs::write("count", done.to_string())).unwrap();
        app.checkpoint_completed();
    }
    fallow_application::write_output("out", format!("{done}\n").as_bytes()).unwrap();
    app.finish(0)
}

pub(crate) struct Bench {
    _dir: tempfile::TempDir,
    pub(crate) data: DataDir,
    pub(crate) events: Receiver<Event>,
    pub(crate) supervisor: Supervisor,
    /// They end with the supervisor.
    pub(crate) groups: Weak<Groups>,
}

impl Drop for Bench {
    /// However deep what a job left in it is.
    fn drop(&mut self) {
        let _ = fallow_agent::tree::remove(self.data.path());
    }
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::at(tempfile::tempdir().unwrap())
    }

    /// With its data in this directory.
    pub(crate) fn at(dir: tempfile::TempDir) -> Self {
        Self::with(dir, None, Arc::new(AtomicBool::new(true)), Arc::default())
    }

    /// Whose jobs nothing confines.
    pub(crate) fn unconfined() -> Self {
        Self::confined_by(tempfile::tempdir().unwrap(), Confinement::none())
    }

    /// Whose jobs are confined by so much.
    pub(crate) fn confined_by(dir: tempfile::TempDir, confinement: Confinement) -> Self {
        Self::of(dir, confinement, None, None, Arc::new(AtomicBool::new(true)), Arc::default())
    }

    /// The same, with tasks in control groups below this one.
    pub(crate) fn in_groups(dir: tempfile::TempDir, confinement: Confinement, place: &Path) -> Self {
        let room = Arc::new(AtomicBool::new(true));
        Self::of(dir, confinement, Some(place), None, room, Arc::default())
    }

    /// Nothing is taken in but what must not be lost, unless there is `room`.
    pub(crate) fn with_room(room: &Arc<AtomicBool>) -> Self {
        Self::with(tempfile::tempdir().unwrap(), None, Arc::clone(room), Arc::default())
    }

    /// Nothing at all is taken in while `full` is not zero. It counts what was not.
    fn with_queue(full: &Arc<AtomicUsize>) -> Self {
        let room = Arc::new(AtomicBool::new(true));
        Self::with(tempfile::tempdir().unwrap(), None, room, Arc::clone(full))
    }

    /// Samples go to `dropped` instead, if there is one.
    fn with(
        dir: tempfile::TempDir,
        dropped: Option<Sender<Event>>,
        room: Arc<AtomicBool>,
        full: Arc<AtomicUsize>,
    ) -> Self {
        let confinement = Confinement::probe(Allowed::default(), dir.path());
        Self::of(dir, confinement, None, dropped, room, full)
    }

    fn of(
        dir: tempfile::TempDir,
        confinement: Confinement,
        groups: Option<&Path>,
        dropped: Option<Sender<Event>>,
        room: Arc<AtomicBool>,
        full: Arc<AtomicUsize>,
    ) -> Self {
        let data = DataDir::at(dir.path());
        std::mem::forget(data.lock().unwrap());
        let (sender, events) = channel();
        let life = format!("test{:?}", std::thread::current().id());
        let groups = groups.map(|place| Groups::below(place, &agent_mark(&data), &life, StdDuration::ZERO));
        let groups = groups.unwrap_or_else(|| Groups::none("not wanted"));
        let groups = Arc::new(groups);
        let its_groups = Arc::downgrade(&groups);
        let jobs = groups.jobs().map(Path::to_path_buf);
        let mark = life_mark(&data, &life);
        let users = confinement.users().map(Users::block);
        let guard = GuardHandle::start(agent(), mark, StdDuration::from_millis(300), jobs, users).unwrap();
        let for_samples = std::sync::Mutex::new(dropped.unwrap_or_else(|| sender.clone()));
        let sender = std::sync::Mutex::new(sender);
        let context = Context {
            dir: data.clone(),
            life,
            guard,
            confinement,
            groups,
            memory: Bytes::from_mebibytes(1024),
            send_event: Arc::new(move |event| {
                if full.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n > 0).then(|| n + 1)).is_ok()
                {
                    return Some(event);
                }
                let _ = sender.lock().unwrap().send(event);
                None
            }),
            try_send_event: Arc::new(move |event| {
                room.load(Ordering::Relaxed) && for_samples.lock().unwrap().send(event).is_ok()
            }),
        };
        let supervisor = Supervisor::start(context).unwrap();
        Self { _dir: dir, data, events, supervisor, groups: its_groups }
    }

    /// Puts the application and an input into the project's directory.
    pub(crate) fn stock(&self, goal: u64) {
        let place = self.data.project(&project());
        put(&place.join("input_1"), format!("{goal}\n").as_bytes());
        std::fs::copy(std::env::current_exe().unwrap(), place.join("app")).unwrap();
    }

    pub(crate) fn setup(&self, fresh: bool, copy: bool) -> Box<TaskSetup> {
        let file = |name: &str, open_name: &str, output| SlotFile {
            name: name.into(),
            open_name: open_name.into(),
            copy,
            output,
            gzip: false,
            max_nbytes: None,
        };
        Box::new(TaskSetup {
            job: JOB,
            name: "job_1_0".into(),
            slot: SLOT,
            start: 1,
            fresh,
            url: project(),
            program: "app".into(),
            arguments: ["supervision::application_that_counts", "--exact", "--ignored", "--nocapture"]
                .map(Into::into)
                .into(),
            application: signed(&self.data.project(&project()), "app"),
            files: vec![file("input_1", "in", false), file("output_1", "out", true)],
            init_data: Box::new(AppInitData {
                checkpoint_period: Duration::from_secs(1),
                ..AppInitData::default()
            }),
            environment: Vec::new(),
            mapped_channel: true,
            disk_max: Bytes(u64::MAX),
            special: false,
            network: false,
            required: TaskLayers::default(),
        })
    }

    pub(crate) fn script(&self, text: &str) -> Box<TaskSetup> {
        let path = self.data.project(&project()).join("app");
        put(&path, format!("#!/bin/sh\n{text}\n").as_bytes());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut setup = self.setup(true, false);
        (setup.arguments, setup.files) = (vec![], vec![]);
        setup
    }

    pub(crate) fn next<T>(&self, what: &str, mut pick: impl FnMut(Event) -> Option<T>) -> T {
        loop {
            let event = self.events.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no {what}"));
            if let Some(found) = pick(event) {
                return found;
            }
        }
    }

    pub(crate) fn started(&self) -> u32 {
        self.next("start", |event| match event {
            Event::TaskStarted { pid, .. } => Some(pid),
            Event::TaskStartFailed { reason, .. } => panic!("{reason}"),
            _ => None,
        })
    }

    pub(crate) fn ended(&self) -> Box<TaskEnd> {
        self.next("end", |event| match event {
            Event::TaskEnded { end, .. } => Some(end),
            _ => None,
        })
    }

    pub(crate) fn sample(&self, what: &str, mut is: impl FnMut(&TaskSample) -> bool) -> TaskSample {
        self.next(what, |event| match event {
            Event::TasksSampled(samples) => samples.into_iter().find(|sample| is(sample)),
            _ => None,
        })
    }
}

#[test]
fn a_task_runs_reports_and_leaves_its_output() {
    let bench = Bench::new();
    bench.stock(25);
    bench.supervisor.start_task(bench.setup(true, false));
    let pid = bench.started();
    assert_eq!(proc::find(pid).unwrap().session, pid, "it has a session of its own");
    let sample =
        bench.sample("status", |sample| sample.status.is_some_and(|status| status.fraction_done.is_some()));
    assert!(sample.cpu_time > Duration::ZERO && sample.working_set.0 > 0, "{sample:?}");
    let end = bench.ended();
    assert_eq!((end.exit, end.finish.as_ref().map(|finish| finish.status)), (Ended::Code(0), Some(0)));
    assert!(end.cpu_time >= Duration::from_millis(2_000), "the kernel counts {}", end.cpu_time);
    assert!(end.stderr.contains("starting at 0"), "{}", end.stderr);
    assert_eq!(end.outputs.len(), 1);
    assert_eq!((end.outputs[0].name.as_str(), end.outputs[0].nbytes), ("output_1", Bytes(3)));
    assert_eq!(end.outputs[0].md5, fallow_boinc::signature::md5_hex(b"25\n"));
}

#[test]
fn r4_12_tasks_are_looked_after_while_the_agent_can_take_nothing_in() {
    let full = Arc::new(AtomicUsize::new(1));
    let bench = Bench::with_queue(&full);
    let other = SlotId(7);
    std::fs::create_dir_all(bench.data.slot(other)).unwrap();
    bench.supervisor.start_task(bench.script("sleep 1000"));
    // Its start is told, to nobody. What is ordered next is carried out all the same.
    wait_for("a start that nobody hears of", || (full.load(Ordering::Relaxed) > 1).then_some(()));
    bench.supervisor.clean(other);
    wait_for("the other slot to be emptied", || (!bench.data.slot(other).exists()).then_some(()));
    bench.supervisor.stop(StdDuration::ZERO);
    full.store(0, Ordering::Relaxed);
    // In order, and none is lost.
    bench.started();
    bench.ended();
    wait_for("the supervisor to end", || bench.supervisor.is_stopped().then_some(()));
}

#[test]
fn r6_10_a_task_that_makes_room_leaves_no_output_either() {
    let bench = Bench::new();
    let output = bench.data.slot(SLOT).join(OUTPUT);
    let script = bench.script(&format!("echo much > {OUTPUT}; sleep 1000"));
    let files = bench.setup(true, false).files.into_iter().filter(|file| file.output).collect();
    bench.supervisor.start_task(Box::new(TaskSetup { files, ..*script }));
    wait_for("an output", || output.exists().then_some(()));
    // No job is wanted.
    bench.supervisor.make_room(Some(Room::default()));
    assert_eq!(bench.ended().made_room, Some(Goes::NotWanted));
    assert!(!output.exists() && !bench.data.slot(SLOT).exists());
}

#[test]
fn r6_10_what_a_finished_task_has_left_in_its_slot_goes_before_another_task_has_to() {
    let bench = Bench::new();
    let output = bench.data.project(&project()).join("output_1");
    let script = bench.script(&format!(
        "[ \"$1\" = sit ] && {{ head -c 5000000 /dev/zero >file; exec sleep 1000; }}\n\
         printf '0\\n' >boinc_finish_called; echo result >{OUTPUT}; exec head -c 30000000 /dev/zero >rubbish"
    ));
    let files: Vec<_> = bench.setup(true, false).files.into_iter().filter(|file| file.output).collect();
    let finishes = TaskSetup { files, job: JobId(1), ..*script.clone() };
    let sits = TaskSetup { job: JobId(2), slot: SlotId(9), arguments: vec!["sit".to_owned()], ..*script };
    bench.supervisor.start_task(Box::new(sits));
    let other = bench.started();
    bench.supervisor.start_task(Box::new(finishes));
    bench.ended();
    let job = |id: u32| (JobId(id.into()), (ProjectId(id), Bytes(1_000_000_000)));
    bench.supervisor.make_room(Some(Room::of([1, 2].map(job)).pressing(Press::Now)));
    let slot = bench.data.slot(SLOT);
    wait_for("what it has left to go", || (!slot.join("rubbish").exists()).then_some(()));
    // If the agent ends now, what has finished is found all the same.
    assert_eq!(std::fs::read(slot.join("boinc_finish_called")).unwrap(), b"0\n");
    assert_eq!(std::fs::read(&output).unwrap(), b"result\n");
    // The other one goes on, although it was stopped to be counted.
    wait_for("the other one", || proc::find(other).is_some_and(|task| !task.stopped).then_some(()));
    assert!(bench.data.slot(SlotId(9)).join("file").exists());
}

#[test]
fn r6_10_a_task_that_has_left_makes_room_with_its_outputs_unless_it_has_finished_and_is_wanted() {
    let too_large = Room::of([(JobId(1), (ProjectId(1), Bytes(1_000_000)))]);
    let finish = "printf '0\n' > boinc_finish_called; exit 0";
    for (leave, room, goes) in [
        // As if it were to go on later.
        ("exit 0", too_large.clone(), true),
        // It found no space.
        ("exit 1", too_large.clone(), true),
        ("exit 0", Room::default(), true),
        // Finished, and yet its result is refused.
        (finish, Room::default(), true),
        (finish, too_large, false),
    ] {
        let bench = Bench::new();
        let output = bench.data.project(&project()).join("output_1");
        let script = bench.script(&format!("head -c 2000000 /dev/zero > {OUTPUT}; {leave}"));
        let files = bench.setup(true, false).files.into_iter().filter(|file| file.output).collect();
        bench.supervisor.start_task(Box::new(TaskSetup { files, job: JobId(1), ..*script }));
        let end = bench.ended();
        assert!(end.disk_usage >= Bytes(2_000_000), "{end:?}");
        bench.supervisor.make_room(Some(room));
        if goes {
            let gone = bench.next("outputs that are gone", |event| match event {
                Event::OutputsGone { job } => Some(job),
                _ => None,
            });
            assert_eq!(gone, JobId(1));
        }
        wait_for("the slot to be emptied", || (!bench.data.slot(SLOT).exists()).then_some(()));
        assert_eq!(output.exists(), !goes, "{leave}");
    }
}

#[test]
fn r6_10_an_output_that_a_task_of_an_earlier_version_began_in_its_projects_directory_goes_on_in_its_slot() {
    let bench = Bench::new();
    let mut setup =
        bench.script("to=$(sed 's/<[^>]*>//g' out); echo rest >> $to; echo 0 > boinc_finish_called");
    setup.files = bench.setup(true, false).files.into_iter().filter(|file| file.output).collect();
    setup.fresh = false;
    let (slot, output) = (bench.data.slot(SLOT), bench.data.project(&project()).join("output_1"));
    let link = softlink::write(&softlink::target("127.0.0.1_9_test", "output_1"));
    put(&slot.join("out"), link.as_bytes());
    put(&slot.join("boinc_setup_complete"), b"");
    put(&output, b"part\n");
    bench.supervisor.start_task(setup);
    let end = bench.ended();
    assert_eq!(
        (end.outputs.len(), std::fs::read(&output).unwrap()),
        (1, b"part\nrest\n".to_vec()),
        "{}",
        end.stderr
    );
}

#[test]
fn a_copied_output_is_moved_to_the_project() {
    let bench = Bench::new();
    bench.stock(1);
    bench.supervisor.start_task(bench.setup(true, true));
    let end = bench.ended();
    assert_eq!(end.outputs.len(), 1, "{}", end.stderr);
    assert_eq!(std::fs::read(bench.data.project(&project()).join("output_1")).unwrap(), b"1\n");
    assert!(!bench.data.slot(SLOT).join("out").exists());
}

#[test]
fn a_task_suspends_resumes_and_after_a_quit_goes_on_from_its_checkpoint() {
    let bench = Bench::new();
    bench.stock(ENDLESS);
    bench.supervisor.start_task(bench.setup(true, false));
    bench.started();
    bench.sample("first status", |sample| sample.status.is_some());
    bench.supervisor.tell(JOB, ProcessControl::Suspend);
    let mut last = None;
    // Two looks a second apart that show the same CPU time, but for the library's own ticks.
    let resting = bench.sample("rest", |sample| {
        let before = last.replace(sample.cpu_time);
        before.is_some_and(|before| sample.cpu_time - before < Duration::from_millis(300))
    });
    let later = resting.cpu_time;
    bench.supervisor.tell(JOB, ProcessControl::Resume);
    bench.sample("work and a checkpoint", |sample| {
        let has_checkpoint = sample.status.is_some_and(|status| status.checkpoint_cpu_time > Duration::ZERO);
        sample.cpu_time > later + Duration::from_millis(300) && has_checkpoint
    });
    bench.supervisor.tell(JOB, ProcessControl::Quit);
    let end = bench.ended();
    assert_eq!((end.exit, end.finish), (Ended::Code(0), None));

    bench.stock(0);
    bench.supervisor.start_task(bench.setup(false, false));
    let end = bench.ended();
    assert!(end.finish.is_some());
    let starts: Vec<&str> = end.stderr.lines().filter(|line| line.contains("starting at")).collect();
    assert_eq!(starts.len(), 2, "{}", end.stderr);
    assert_ne!(starts[1], "starting at 0", "the checkpoint is kept");
}

/// Tells a task to rest, and waits until it has rested for so long that its process is stopped. Its CPU time
/// then.
fn is_stopped_at_rest(bench: &Bench, pid: u32) -> Duration {
    bench.supervisor.tell(JOB, ProcessControl::Suspend);
    let is_stopped = || proc::find(pid).is_some_and(|process| process.stopped);
    wait_for("it to be stopped", || is_stopped().then_some(()));
    let samples = bench.events.try_iter().filter_map(|event| match event {
        Event::TasksSampled(samples) => samples.last().map(|sample| sample.cpu_time),
        _ => None,
    });
    samples.last().expect("it was looked at while it rested")
}

#[test]
fn r6_2_a_task_that_was_stopped_at_its_rest_goes_on_quits_and_aborts_when_it_is_told_to() {
    let bench = Bench::new();
    bench.stock(ENDLESS);
    bench.supervisor.start_task(bench.setup(true, false));
    let pid = bench.started();
    bench.sample("first status", |sample| sample.status.is_some());
    let rested = is_stopped_at_rest(&bench, pid);
    bench.supervisor.tell(JOB, ProcessControl::Resume);
    bench.sample("work and a checkpoint", |sample| {
        let has_checkpoint = sample.status.is_some_and(|status| status.checkpoint_cpu_time > Duration::ZERO);
        sample.cpu_time > rested + Duration::from_millis(500) && has_checkpoint
    });
    is_stopped_at_rest(&bench, pid);
    bench.supervisor.tell(JOB, ProcessControl::Quit);
    let end = bench.ended();
    assert_eq!((end.exit, end.finish), (Ended::Code(0), None));

    bench.supervisor.start_task(bench.setup(false, false));
    let pid = bench.started();
    bench.sample("first status", |sample| sample.status.is_some());
    is_stopped_at_rest(&bench, pid);
    bench.supervisor.tell(JOB, ProcessControl::Abort);
    let end = bench.ended();
    assert_eq!(end.exit, Ended::Code(194));
    let starts: Vec<&str> = end.stderr.lines().filter(|line| line.contains("starting at")).collect();
    assert!(starts.len() == 2 && starts[1] != "starting at 0", "the checkpoint is kept: {}", end.stderr);
}

#[test]
fn the_last_checkpoint_of_a_task_arrives_although_its_samples_were_dropped() {
    let (dropped, samples) = channel();
    let room = Arc::new(AtomicBool::new(true));
    let bench = Bench::with(tempfile::tempdir().unwrap(), Some(dropped), room, Arc::default());
    bench.stock(ENDLESS);
    bench.supervisor.start_task(bench.setup(true, false));
    bench.started();
    let checkpointed = |sample: &TaskSample| {
        sample.status.is_some_and(|status| status.checkpoint_cpu_time >= Duration::from_secs(1))
    };
    loop {
        match samples.recv_timeout(PATIENCE).unwrap() {
            Event::TasksSampled(samples) if samples.iter().any(checkpointed) => break,
            _ => {}
        }
    }
    bench.supervisor.tell(JOB, ProcessControl::Quit);
    let last = bench.sample("last words", |sample| sample.status.is_some());
    let status = last.status.unwrap();
    assert!(status.checkpoint_cpu_time >= Duration::from_secs(1), "{status:?}");
    assert!(status.fraction_done.is_some_and(|done| done.get() > 0.0), "{status:?}");
    bench.ended();
}

#[test]
fn an_abort_ends_with_194_and_a_clean_stop_is_no_premature_exit() {
    let mut bench = Bench::new();
    bench.stock(ENDLESS);
    bench.supervisor.start_task(bench.setup(true, false));
    bench.started();
    // One that has said nothing yet is soon taken for deaf on a busy machine.
    bench.sample("first status", |sample| sample.status.is_some());
    bench.supervisor.tell(JOB, ProcessControl::Abort);
    assert_eq!(bench.ended().exit, Ended::Code(194));
    bench.supervisor.clean(SLOT);
    bench.supervisor.start_task(bench.setup(true, false));
    bench.started();
    bench.sample("first status", |sample| sample.status.is_some());
    bench.supervisor.stop(StdDuration::from_secs(100));
    assert_eq!(bench.ended().exit, Ended::Signal { number: 15, core_dumped: false });
    bench.supervisor.join();
}

#[test]
fn an_application_that_does_not_leave_is_killed_with_its_children() {
    let mut bench = Bench::new();
    let setup = bench.script("sleep 1000 & echo $! > child; wait");
    bench.supervisor.start_task(setup);
    let pid = bench.started();
    let child = wait_for("the child", || {
        std::fs::read_to_string(bench.data.slot(SLOT).join("child")).ok()?.trim().parse().ok()
    });
    bench.supervisor.stop(StdDuration::ZERO);
    assert_eq!(bench.ended().exit, Ended::Signal { number: 9, core_dumped: false });
    wait_for("the child's end", || (!is_alive(child)).then_some(()));
    assert!(!is_alive(pid));
    bench.supervisor.join();
}

#[test]
fn cpu_time_of_children_is_counted_and_orphans_are_killed() {
    let bench = Bench::new();
    // The child computes and is waited for; another one is left behind.
    let work = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    let setup = bench.script(&format!("sh -c '{work}'; sleep 1000 & echo $! > orphan; exit 3"));
    bench.supervisor.start_task(setup);
    let end = bench.ended();
    assert_eq!(end.exit, Ended::Code(3));
    assert!(end.cpu_time > Duration::from_millis(50), "{}", end.cpu_time);
    let orphan =
        std::fs::read_to_string(bench.data.slot(SLOT).join("orphan")).unwrap().trim().parse().unwrap();
    wait_for("the orphan's end", || (!is_alive(orphan)).then_some(()));
}

#[test]
fn an_application_sees_a_clean_environment_and_no_descriptors() {
    let bench = Bench::new();
    let setup = bench.script(
        "env > env.txt; ls /proc/self/fd > fds.txt; pwd > pwd.txt; echo $0 > name.txt; nice > nice.txt",
    );
    bench.supervisor.start_task(setup);
    bench.ended();
    let read = |name: &str| std::fs::read_to_string(bench.data.slot(SLOT).join(name)).unwrap();
    let env = read("env.txt");
    assert!(
        !env.contains("CARGO") && env.contains("LD_LIBRARY_PATH=../../projects/127.0.0.1_9_test:.:../.."),
        "{env}"
    );
    // 0, 1, 2, and the directory that ls reads.
    assert_eq!(read("fds.txt").split_whitespace().count(), 4, "{}", read("fds.txt"));
    assert_eq!(read("name.txt").trim(), "../../projects/127.0.0.1_9_test/app");
    assert_eq!(read("nice.txt").trim(), "19");
}

#[test]
fn a_program_that_is_not_executable_fails_for_good_and_a_missing_one_is_fetched_again() {
    let bench = Bench::new();
    let failure = || {
        bench.next("failure", |event| match event {
            Event::TaskStartFailed { reason, fault, .. } => Some((reason, fault)),
            _ => None,
        })
    };
    let mut setup = bench.script("");
    let program = bench.data.project(&project()).join("app");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o644)).unwrap();
    setup.application[0].executable = false;
    bench.supervisor.start_task(setup.clone());
    assert_eq!(failure().1, StartFault::Job);
    setup.application[0].name = "absent".into();
    bench.supervisor.start_task(setup.clone());
    let (reason, fault) = failure();
    assert_eq!(fault, StartFault::Files(vec!["absent".into()]), "{reason}");
    // Its project describes other files, but not this one.
    setup.application = signed(program.parent().unwrap(), "app");
    setup.program = "absent".into();
    bench.supervisor.start_task(setup.clone());
    let (reason, fault) = failure();
    assert_eq!(fault, StartFault::Job, "{reason}");
    setup.program = "../../../bin/sh".into();
    bench.supervisor.start_task(setup);
    assert_eq!(failure().1, StartFault::Job, "a program outside of the project is refused");
}

#[test]
fn an_output_that_is_a_link_to_elsewhere_is_no_output() {
    let bench = Bench::new();
    bench.stock(1);
    let mut setup = bench.script(&format!("ln -sf /etc/passwd {OUTPUT}; exit 1"));
    setup.files = bench.setup(true, false).files;
    bench.supervisor.start_task(setup);
    assert_eq!(bench.ended().outputs, []);
}

#[test]
fn what_an_earlier_life_left_is_killed_and_a_finished_task_is_found() {
    let mut bench = Bench::new();
    bench.stock(3);
    bench.supervisor.start_task(bench.setup(true, false));
    bench.started();
    bench.ended();
    bench.supervisor.stop(StdDuration::ZERO);
    bench.supervisor.join();
    // As if the agent had been killed before it saw the end, with a process of the task still there.
    let mut stray = std::process::Command::new("sleep")
        .arg("1000")
        .env(proc::MARK, format!("{}old:0:", agent_mark(&bench.data)))
        .spawn()
        .unwrap();
    let found = leftovers::take_over(&bench.data, &|| false);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].slot, SLOT);
    assert!(found[0].last_status.is_some(), "the channel's last status is read");
    assert_eq!(found[0].start, Some(1), "and which start's it is");
    let end = found[0].finished.as_ref().expect("a finish file means that the task is done");
    assert_eq!(end.outputs.len(), 1);
    wait_for("the stray's end", || stray.try_wait().unwrap());
}

#[test]
fn r6_10_an_agent_that_is_to_end_does_not_stay_for_what_an_earlier_life_left_and_its_next_start_finds_it() {
    let mut bench = Bench::new();
    let mut setup = bench.script("echo 0 > boinc_finish_called; exit 0");
    setup.files = bench.setup(true, true).files.into_iter().filter(|file| file.output).collect();
    let slot = bench.data.slot(SLOT);
    bench.supervisor.start_task(setup);
    assert!(bench.ended().outputs.is_empty());
    bench.supervisor.stop(StdDuration::ZERO);
    bench.supervisor.join();
    // As if the agent had been killed before it saw the end. To read all of it would take an hour.
    std::fs::File::create(slot.join("out")).unwrap().set_len(1 << 42).unwrap();
    let owner = slot.metadata().unwrap();
    std::os::unix::fs::chown(slot.join("out"), Some(owner.uid()), Some(owner.gid())).unwrap();
    let found = leftovers::take_over(&bench.data, &|| true);
    assert!(found.len() == 1 && found[0].finished.is_none() && slot.join("out").exists());
    // It is told so while it reads it.
    let looks = std::cell::Cell::new(0);
    let found = leftovers::take_over(&bench.data, &|| looks.replace(looks.get() + 1) > 0);
    let end = found[0].finished.as_ref();
    assert!(end.is_none() && looks.get() > 1, "{end:?} {}", looks.get());
    let moved = bench.data.project(&project()).join("output_1");
    std::fs::File::options().write(true).open(moved).unwrap().set_len(5).unwrap();
    let found = leftovers::take_over(&bench.data, &|| false);
    let end = found[0].finished.as_ref().expect("it had finished");
    assert_eq!(end.outputs.iter().map(|output| output.nbytes).collect::<Vec<_>>(), [Bytes(5)]);
}

#[test]
fn an_output_stays_in_the_slot_as_it_is_while_its_task_goes_on_later() {
    let bench = Bench::new();
    bench.stock(1);
    let wait = "echo part > out; echo 1 > boinc_temporary_exit; echo later >> boinc_temporary_exit; exit 0";
    let end = "echo rest >> out; echo 0 > boinc_finish_called; exit 0";
    let mut setup = bench.script(&format!("if [ -f out ]; then {end}; else {wait}; fi"));
    setup.files = bench.setup(true, true).files;
    setup.files.iter_mut().for_each(|file| file.gzip = file.output);
    let output = bench.data.project(&project()).join("output_1");
    bench.supervisor.start_task(setup.clone());
    assert!(bench.ended().temporary_exit.is_some());
    assert!(!output.exists());
    setup.fresh = false;
    bench.supervisor.start_task(setup);
    assert!(bench.ended().finish.is_some());
    let mut text = String::new();
    let file = std::fs::File::open(output).unwrap();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(file), &mut text).unwrap();
    assert_eq!(text, "part\nrest\n");
}

#[test]
fn the_disk_that_a_task_takes_is_its_slot_and_its_outputs() {
    let mut bench = Bench::new();
    bench.stock(1);
    let place = bench.data.project(&project());
    put(&place.join("input_1"), &[0; 1_000_000]);
    put(&place.join("output_1"), &[0; 500_000]);
    let mut setup = bench.script("sleep 1000");
    setup.files = bench.setup(true, false).files;
    setup.files[0].copy = true;
    bench.supervisor.start_task(setup);
    let sample = bench.sample("a count", |sample| sample.disk.is_some());
    let counted = sample.disk.unwrap().all.0;
    assert!((1_500_000..1_600_000).contains(&counted), "{counted}");
    bench.supervisor.stop(StdDuration::ZERO);
    bench.supervisor.join();
}

#[test]
fn a_process_that_left_its_tasks_session_ends_with_the_task() {
    let bench = Bench::new();
    let setup = bench
        .script("setsid sh -c 'echo $$ > stray; exec sleep 1000' & while [ ! -s stray ]; do :; done; exit 3");
    bench.supervisor.start_task(setup);
    bench.ended();
    let text = std::fs::read_to_string(bench.data.slot(SLOT).join("stray")).unwrap();
    let stray = text.trim().parse().unwrap();
    wait_for("the stray's end", || (!is_alive(stray)).then_some(()));
}

#[test]
fn r6_10_a_process_without_session_and_mark_ends_with_its_task_with_all_that_it_started() {
    for kill in [false, true] {
        let bench = Bench::new();
        // The second comes from the first, after it was seen, and is an orphan.
        let stray = "env -i setsid sh -c 'echo $$ > first; while [ ! -f go ]; do sleep 0.1; done; \
                     sh -c \"sleep 1000 & echo \\$! > second\"; sleep 1000'";
        let setup = bench.script(&format!("{stray} & while [ ! -f end ]; do sleep 0.1; done; exit 3"));
        bench.supervisor.start_task(setup);
        let slot = bench.data.slot(SLOT);
        let pid = |name: &str| -> u32 {
            wait_for(name, || std::fs::read_to_string(slot.join(name)).ok()?.trim().parse().ok())
        };
        let first = pid("first");
        for _ in 0..3 {
            bench.sample("a look", |_| true);
        }
        put(&slot.join("go"), b"");
        let second = pid("second");
        if kill {
            bench.supervisor.stop(StdDuration::ZERO);
        } else {
            put(&slot.join("end"), b"");
        }
        bench.ended();
        let left: Vec<u32> = [first, second].into_iter().filter(|&pid| is_alive(pid)).collect();
        proc::kill(left.iter().filter_map(|&pid| proc::find(pid)));
        assert_eq!(left, [0_u32; 0], "kill {kill}: first {first}, second {second}");
    }
}

#[test]
fn r6_10_what_a_task_put_into_a_session_of_its_own_an_instant_before_its_end_ends_with_it() {
    let bench = Bench::new();
    // Who made the session lives on, in that of the task, until that is killed.
    let stray = "env -i setsid sh -c 'echo $$ > stray; exec sleep 1000'";
    let setup = bench.script(&format!("({stray}; :) & while [ ! -s stray ]; do :; done; exit 3"));
    bench.supervisor.start_task(setup);
    bench.ended();
    let text = std::fs::read_to_string(bench.data.slot(SLOT).join("stray")).unwrap();
    let stray: u32 = text.trim().parse().unwrap();
    let lives = is_alive(stray);
    proc::kill(proc::find(stray).into_iter());
    assert!(!lives, "{stray}");
}

#[test]
fn r6_2_a_file_far_beyond_a_small_limit_of_the_disk_can_be_written_and_one_beyond_all_bounds_cannot() {
    let bench = Bench::new();
    let write = |gib: u64| format!("dd if=/dev/zero of=big bs=1 count=1 seek={} 2> /dev/null", gib << 30);
    let mut setup = bench.script(&format!("{} || exit 4; {} && exit 5; exit 3", write(3), write(3_000)));
    setup.init_data.rsc_disk_bound = 1e6;
    bench.supervisor.start_task(setup);
    assert_eq!(bench.ended().exit, Ended::Code(3));
}

#[test]
fn a_pipe_in_place_of_stderr_holds_nobody_up() {
    let bench = Bench::new();
    bench.supervisor.start_task(bench.script("rm stderr.txt; mkfifo stderr.txt; exit 0"));
    bench.ended();
    let mut setup = bench.script("echo hello >&2; exit 3");
    setup.fresh = false;
    bench.supervisor.start_task(setup);
    assert!(bench.ended().stderr.contains("hello"));
}

#[test]
fn r6_10_a_copy_of_the_directory_that_is_started_beside_the_agent_leaves_its_tasks_alone() {
    let bench = Bench::new();
    bench.supervisor.start_task(bench.script("sleep 1000"));
    let pid = bench.started();
    let copy = tempfile::tempdir().unwrap();
    let copied = std::process::Command::new("cp").arg("-a").arg(bench.data.path()).arg(copy.path()).status();
    assert!(copied.unwrap().success());
    let copy = DataDir::at(&copy.path().join(bench.data.path().file_name().unwrap()));
    assert_eq!(leftovers::take_over(&copy, &|| false).len(), 1, "the copy has the slot");
    assert!(is_alive(pid), "the task is the first one's");
    assert_eq!(leftovers::take_over(&bench.data, &|| false).len(), 1);
    wait_for("the task's end after a start where it was begun", || (!is_alive(pid)).then_some(()));
}

#[test]
fn suspending_and_resuming_every_second_loses_neither() {
    let bench = Bench::new();
    bench.stock(ENDLESS);
    bench.supervisor.start_task(bench.setup(true, false));
    bench.started();
    bench.sample("first status", |sample| sample.status.is_some());
    // Faster than an application reads: the last word counts.
    for _ in 0..20 {
        bench.supervisor.tell(JOB, ProcessControl::Suspend);
        bench.supervisor.tell(JOB, ProcessControl::Resume);
    }
    let now = bench.sample("a look", |_| true).cpu_time;
    bench.sample("work", |sample| sample.cpu_time > now + Duration::from_millis(500));
    for _ in 0..20 {
        bench.supervisor.tell(JOB, ProcessControl::Resume);
        bench.supervisor.tell(JOB, ProcessControl::Suspend);
    }
    let (mut last, mut still) = (None, 0);
    bench.sample("rest for good", |sample| {
        let before = last.replace(sample.cpu_time);
        let rests = before.is_some_and(|before| sample.cpu_time - before < Duration::from_millis(300));
        still = if rests { still + 1 } else { 0 };
        still == 3
    });
    bench.supervisor.tell(JOB, ProcessControl::Abort);
    assert_eq!(bench.ended().exit, Ended::Code(194));
}

#[test]
fn a_later_session_with_the_id_of_an_earlier_lifes_task_is_left_alone() {
    let bench = Bench::new();
    // A session whose first process is gone, as every daemon has one.
    let output = std::process::Command::new("setsid")
        .args(["sh", "-c", "sleep 1000 > /dev/null 2>&1 & echo $$ $!"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let ids: Vec<u32> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let (leader, innocent) = (ids[0], ids[1]);
    assert_eq!(proc::find(innocent).unwrap().session, leader);
    std::fs::create_dir(bench.data.slot(SLOT)).unwrap();
    let record = serde_json::json!({
        "job": 7, "name": "old", "url": project(), "outputs": [], "cpu_before": 0,
        "process": {"pid": leader, "start": 12_345},
    });
    put(&bench.data.slot_record(SLOT), record.to_string().as_bytes());
    let found = leftovers::take_over(&bench.data, &|| false);
    let survived = is_alive(innocent);
    proc::kill([proc::find(innocent)].into_iter().flatten());
    assert!(survived, "it is no task's");
    assert_eq!(found[0].job, Some(JobId(7)), "whose slot it is comes from the record");
}
