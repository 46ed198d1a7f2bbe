//! Jobs that mean harm, as real processes of an ordinary user under the real supervisor, and confined by
//! nothing, as on a system that has nothing for it (`confinement.rs` has those that are confined).
//!
//! Each leaves something else behind. After each the same must hold: the agent lives, the jobs of another
//! project in the next slot and in the very same one finish, nothing leaks, and nothing outside of the slots
//! was touched or read.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::Duration as StdDuration;

use fallow_boinc::runtime::exit::Ended;
use fallow_boinc::runtime::message::ProcessControl;
use fallow_client::{ApplicationFile, Event, SlotFile, TaskEnd, TaskSetup};
use fallow_domain::{Bytes, JobId, MasterUrl, SlotId};

use crate::supervision::{Bench, JOB, OUTPUT, SLOT};
use crate::support::{is_alive, put, signed, wait_for};

/// The number of an ordinary user that owns nothing here.
pub(crate) const NOBODY: u32 = 65534;
/// Descriptors that the ordinary user's agent may have.
const DESCRIPTORS: u32 = 128;

/// A directory in memory where programs in it can be executed: removing a hundred thousand files from a disk
/// takes minutes, whoever does it.
pub(crate) fn quick_dir() -> tempfile::TempDir {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let executes = |line: &str| line.contains(" /dev/shm tmpfs ") && !line.contains("noexec");
    let in_memory = mounts.lines().any(executes).then(|| tempfile::tempdir_in("/dev/shm").ok());
    in_memory.flatten().unwrap_or_else(|| tempfile::tempdir().unwrap())
}

/// Runs the test of this name once more as an ordinary user with few descriptors, when this is root, whom no
/// permission stops. True if it was run so.
pub(crate) fn as_ordinary_user(name: &str) -> bool {
    as_ordinary_user_with(name, DESCRIPTORS)
}

/// The same with so many descriptors.
pub(crate) fn as_ordinary_user_with(name: &str, descriptors: u32) -> bool {
    as_user(name, descriptors, (NOBODY, NOBODY))
}

/// The same as a user and a group of these numbers.
pub(crate) fn as_user(name: &str, descriptors: u32, (user, group): (u32, u32)) -> bool {
    if std::env::var_os("FALLOW_TEST_ORDINARY").is_some() {
        return false;
    }
    let name = if name.contains("::") { name.to_owned() } else { format!("hostile_jobs::{name}") };
    let dir = quick_dir();
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", &format!("ulimit -n {descriptors}; exec \"$@\""), "sh"])
        .arg(std::env::current_exe().unwrap())
        .args([&name, "--exact", "--nocapture", "--test-threads=1"])
        .env("FALLOW_TEST_ORDINARY", "1")
        .env("TMPDIR", dir.path());
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(dir.path(), Some(user), Some(group)).unwrap();
        command.uid(user).gid(group);
    }
    let output = command.output().unwrap();
    // The standard library's own removal recurses, and would end this test too.
    fallow_agent::tree::remove(dir.path()).unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{}: {said}", output.status);
    println!("as an ordinary user:\n{said}");
    true
}

fn neighbour() -> MasterUrl {
    MasterUrl::parse("http://127.0.0.1:9/neighbour/").unwrap()
}

fn output(name: &str, copy: bool) -> SlotFile {
    SlotFile {
        name: "output_1".into(),
        open_name: name.into(),
        copy,
        output: true,
        gzip: false,
        max_nbytes: None,
    }
}

/// A job of the hostile project, run by this test binary itself.
fn own(bench: &Bench, application: &str) -> Box<TaskSetup> {
    bench.stock(0);
    let mut setup = bench.setup(true, false);
    setup.arguments = [&format!("hostile_jobs::{application}"), "--exact", "--ignored", "--nocapture"]
        .map(Into::into)
        .into();
    setup.files = vec![output("out", true)];
    setup
}

/// The program of another project's well-behaved jobs: succeeds in an empty slot only.
fn stock_neighbour(bench: &Bench) -> Vec<ApplicationFile> {
    let path = bench.data.project(&neighbour()).join("app");
    let own = "^init_data.xml$\\|^boinc_mmap_file$\\|^boinc_setup_complete$\\|^stderr.txt$\\|^.fallow_tmp$";
    let text = format!(
        "#!/bin/sh\nif ls -A | grep -v '{own}' >&2; then exit 9; fi\necho right > out\necho 0 > boinc_finish_called\n"
    );
    put(&path, text.as_bytes());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    signed(&bench.data.project(&neighbour()), "app")
}

/// A well-behaved job of another project.
fn innocent(bench: &Bench, application: &[ApplicationFile], job: JobId, slot: SlotId) -> Box<TaskSetup> {
    let mut setup = bench.setup(true, false);
    (setup.job, setup.slot, setup.url, setup.arguments) = (job, slot, neighbour(), vec![]);
    setup.name = format!("innocent_{job}");
    setup.application = application.to_vec();
    setup.files = vec![SlotFile { name: format!("innocent_{job}"), ..output("out", true) }];
    setup
}

fn end_of(bench: &Bench, job: JobId) -> Box<TaskEnd> {
    bench.next("end", |event| match event {
        Event::TaskEnded { job: ended, end } if ended == job => Some(end),
        Event::TaskStartFailed { job, reason, .. } => panic!("job {job} was not started: {reason}"),
        _ => None,
    })
}

fn succeeds(bench: &Bench, application: &[ApplicationFile], job: JobId, slot: SlotId) {
    bench.supervisor.start_task(innocent(bench, application, job, slot));
    let end = end_of(bench, job);
    let how = (end.exit, end.finish.is_some(), end.outputs.len());
    assert_eq!(how, (Ended::Code(0), true, 1), "job {job} in slot {slot}: {}", end.stderr);
}

/// What is open in the bench's directory.
fn descriptors(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    entries
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter(|to| to.starts_with(dir))
        .collect()
}

/// Runs a hostile job to its end, and says how it ended; then sees to it that it has harmed nobody.
fn harms_nobody(bench: &mut Bench, hostile: Box<TaskSetup>) -> Box<TaskEnd> {
    let dir = bench.data.path().to_path_buf();
    let secret = dir.parent().unwrap().join("outside");
    put(&secret.join("secret"), b"the owner's");
    let neighbours = stock_neighbour(bench);
    bench.supervisor.start_task(hostile);
    let end = end_of(bench, JOB);
    // A neighbour, at once, in the next slot.
    succeeds(bench, &neighbours, JobId(2), SlotId(1));
    bench.supervisor.clean(SLOT);
    // And those who get the slot after it, one after the other.
    for job in 3..6 {
        succeeds(bench, &neighbours, JobId(job), SLOT);
        bench.supervisor.clean(SLOT);
    }
    bench.supervisor.clean(SlotId(1));
    bench.supervisor.stop(StdDuration::ZERO);
    bench.supervisor.join();
    assert_eq!(std::fs::read(secret.join("secret")).unwrap(), b"the owner's");
    assert_eq!(std::fs::read_dir(&secret).unwrap().count(), 1, "something was put outside of the slots");
    wait_for("the removal of what it left", || {
        std::fs::read_dir(bench.data.trash().path()).unwrap().next().is_none().then_some(())
    });
    let left = fallow_agent::proc::marked(fallow_agent::proc::all(), &format!("{}:", dir.display()));
    assert_eq!(left, [], "processes are left");
    let left: Vec<_> =
        std::fs::read_dir(bench.data.slots()).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "slots are left: {left:?}");
    // The lock, which the bench holds.
    wait_for("closed descriptors", || (descriptors(&dir) == [dir.join("lock")]).then_some(()));
    end
}

/// The same of a script.
fn script_harms_nobody(name: &str, text: &str, change: impl FnOnce(&mut TaskSetup)) -> Option<Box<TaskEnd>> {
    if as_ordinary_user(name) {
        return None;
    }
    let mut bench = Bench::unconfined();
    let mut setup = bench.script(text);
    change(&mut setup);
    Some(harms_nobody(&mut bench, setup))
}

#[test]
#[ignore = "not a test: run as an application by the tests below"]
fn application_that_nests() {
    for _ in 0..60_000 {
        std::fs::create_dir("d").unwrap();
        std::env::set_current_dir("d").unwrap();
    }
    std::process::exit(3);
}

#[test]
#[ignore = "not a test: run as an application by the tests below"]
fn application_that_litters() {
    for number in 0..100_000 {
        std::fs::write(number.to_string(), "").unwrap();
    }
    std::process::exit(3);
}

#[test]
fn r6_10_sixty_thousand_nested_directories_are_removed_with_little_stack_and_few_descriptors() {
    if as_ordinary_user(
        "r6_10_sixty_thousand_nested_directories_are_removed_with_little_stack_and_few_descriptors",
    ) {
        return;
    }
    let mut bench = Bench::unconfined();
    let setup = own(&bench, "application_that_nests");
    assert_eq!(harms_nobody(&mut bench, setup).exit, Ended::Code(3));
}

#[test]
fn r6_10_a_hundred_thousand_files_in_a_slot_hold_nobody_up() {
    if as_ordinary_user("r6_10_a_hundred_thousand_files_in_a_slot_hold_nobody_up") {
        return;
    }
    let mut bench = Bench::unconfined();
    let setup = own(&bench, "application_that_litters");
    assert_eq!(harms_nobody(&mut bench, setup).exit, Ended::Code(3));
}

#[test]
fn r6_10_directories_that_nobody_may_read_or_write_do_not_fail_the_next_job() {
    let text = "mkdir -p a/b c/d; echo x > a/b/f; echo x > c/d/f; chmod 500 c/d; chmod 000 c; chmod 000 a/b; chmod 000 a; \
                mkdir e; chmod 000 e; chmod 500 .; exit 3";
    script_harms_nobody(
        "r6_10_directories_that_nobody_may_read_or_write_do_not_fail_the_next_job",
        text,
        |_| (),
    );
}

/// Takes all descriptors that this process may still have.
pub(crate) fn all_descriptors() -> Vec<std::fs::File> {
    std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect()
}

#[test]
fn r6_10_a_projects_directory_that_another_job_has_closed_fails_nobodys_job() {
    let text = "chmod 000 ../../projects/127.0.0.1_9_neighbour; exit 3";
    script_harms_nobody(
        "r6_10_a_projects_directory_that_another_job_has_closed_fails_nobodys_job",
        text,
        |_| (),
    );
}

#[test]
fn r6_10_outputs_are_taken_although_the_projects_directory_was_closed_meanwhile() {
    let name = "r6_10_outputs_are_taken_although_the_projects_directory_was_closed_meanwhile";
    if as_ordinary_user(name) {
        return;
    }
    let bench = Bench::unconfined();
    let text = "while [ ! -d go ]; do sleep 0.1; done; echo right > out; chmod 000 out; \
                echo 0 > boinc_finish_called; chmod 000 ../../projects/*; exit 0";
    let mut setup = bench.script(text);
    setup.files = vec![output("out", true)];
    bench.supervisor.start_task(setup);
    bench.started();
    std::fs::create_dir(bench.data.slot(SLOT).join("go")).unwrap();
    let end = end_of(&bench, JOB);
    assert_eq!(end.outputs.len(), 1, "{end:?}");
    assert_eq!(end.outputs[0].md5, fallow_boinc::signature::md5_hex(b"right\n"));
}

#[test]
fn r6_10_a_job_that_ends_while_the_agent_can_open_no_file_keeps_its_outputs() {
    let name = "r6_10_a_job_that_ends_while_the_agent_can_open_no_file_keeps_its_outputs";
    if as_ordinary_user(name) {
        return;
    }
    let bench = Bench::unconfined();
    let text =
        "while [ ! -d go ]; do sleep 0.1; done; echo right > out; echo 0 > boinc_finish_called; exit 0";
    let mut setup = bench.script(text);
    setup.files = vec![output("out", true)];
    bench.supervisor.start_task(setup);
    let pid = bench.started();
    let all = all_descriptors();
    std::fs::create_dir(bench.data.slot(SLOT).join("go")).unwrap();
    let pid = rustix::process::Pid::from_raw(pid.cast_signed());
    wait_for("its end", || rustix::process::test_kill_process(pid.unwrap()).is_err().then_some(()));
    let until = std::time::Instant::now() + StdDuration::from_secs(2);
    while let Ok(event) =
        bench.events.recv_timeout(until.saturating_duration_since(std::time::Instant::now()))
    {
        assert!(!matches!(event, Event::TaskEnded { .. }), "{event:?}");
    }
    drop(all);
    let end = end_of(&bench, JOB);
    assert!(end.finish.is_some() && end.outputs.len() == 1, "{end:?}");
}

#[test]
fn r6_10_a_finished_job_whose_outputs_wait_is_not_computed_again_when_it_is_to_make_way() {
    let name = "r6_10_a_finished_job_whose_outputs_wait_is_not_computed_again_when_it_is_to_make_way";
    if as_ordinary_user(name) {
        return;
    }
    let bench = Bench::unconfined();
    let text = "while [ ! -d go ]; do sleep 0.1; done; [ ! -f ran ] || exit 7; echo right > out; \
                echo > ran; echo 0 > boinc_finish_called; exit 0";
    let mut setup = bench.script(text);
    setup.files = vec![output("out", true)];
    let again = Box::new(TaskSetup { fresh: false, ..*setup.clone() });
    bench.supervisor.start_task(setup);
    let pid = bench.started();
    let all = all_descriptors();
    std::fs::create_dir(bench.data.slot(SLOT).join("go")).unwrap();
    let pid = rustix::process::Pid::from_raw(pid.cast_signed());
    wait_for("its end", || rustix::process::test_kill_process(pid.unwrap()).is_err().then_some(()));
    bench.supervisor.tell(JOB, ProcessControl::Quit);
    let end = end_of(&bench, JOB);
    assert!(end.finish.is_none() && end.outputs.is_empty() && !end.is_charged, "{end:?}");
    drop(all);
    bench.supervisor.start_task(again);
    let end = end_of(&bench, JOB);
    assert_eq!((end.exit, end.is_charged), (Ended::Code(0), true));
    assert!(end.finish.is_some() && end.outputs.len() == 1, "{end:?}");
}

/// Finishes at once, with an output of a terabyte of nothing.
const HOLES: &str = "truncate -s 1T out; echo 0 > boinc_finish_called; exit 0";
/// The same, and closes it.
const CLOSED: &str = "truncate -s 1T out; chmod 0 out; echo 0 > boinc_finish_called; exit 0";

#[test]
fn r6_10_an_output_longer_than_its_job_may_hold_is_not_read_also_where_it_was_closed() {
    let name = "r6_10_an_output_longer_than_its_job_may_hold_is_not_read_also_where_it_was_closed";
    if as_ordinary_user(name) {
        return;
    }
    let bench = Bench::unconfined();
    let mut setup = bench.script(CLOSED);
    setup.files = vec![output("out", true)];
    setup.disk_max = Bytes(1_000_000);
    bench.supervisor.start_task(setup);
    let end = end_of(&bench, JOB);
    let [found] = &end.outputs[..] else { panic!("{end:?}") };
    assert_eq!((found.nbytes, found.md5.as_str()), (Bytes(1 << 40), ""));
}

#[test]
fn r6_10_an_output_longer_than_its_job_may_hold_is_not_read_also_where_it_would_be_compressed() {
    let bench = Bench::unconfined();
    let mut setup = bench.script(HOLES);
    setup.files = vec![SlotFile { gzip: true, ..output("out", true) }];
    setup.disk_max = Bytes(1_000_000);
    bench.supervisor.start_task(setup);
    let end = end_of(&bench, JOB);
    let [found] = &end.outputs[..] else { panic!("{end:?}") };
    assert_eq!((found.nbytes, found.md5.as_str()), (Bytes(1 << 40), ""));
}

#[test]
fn r6_10_a_long_output_that_is_being_read_holds_up_no_end_of_its_task() {
    let bench = Bench::unconfined();
    let mut setup = bench.script(HOLES);
    setup.files = vec![output("out", true)];
    bench.supervisor.start_task(setup);
    let pid = rustix::process::Pid::from_raw(bench.started().cast_signed()).unwrap();
    wait_for("the process's end", || rustix::process::test_kill_process(pid).is_err().then_some(()));
    bench.supervisor.tell(JOB, ProcessControl::Quit);
    let end = end_of(&bench, JOB);
    assert!(
        end.finish.is_none() && end.outputs.is_empty(),
        "its outputs are taken at the next start: {end:?}"
    );
}

#[test]
fn r6_10_a_slot_and_its_parent_made_unusable_are_mended() {
    let text = "chmod 000 ../../projects ../../slots . ; exit 3";
    script_harms_nobody("r6_10_a_slot_and_its_parent_made_unusable_are_mended", text, |_| ());
}

#[test]
fn r6_10_what_a_job_closes_to_the_agent_or_opens_to_others_is_put_right_while_it_runs() {
    let name = "r6_10_what_a_job_closes_to_the_agent_or_opens_to_others_is_put_right_while_it_runs";
    if as_ordinary_user(name) {
        return;
    }
    let bench = Bench::unconfined();
    let (dir, store, key) = (bench.data.path(), bench.data.store(), bench.data.identity_key());
    std::fs::create_dir_all(&store).unwrap();
    put(&key, b"key");
    let mode = |path: &std::path::Path| {
        std::os::unix::fs::MetadataExt::mode(&std::fs::symlink_metadata(path).unwrap()) & 0o777
    };
    let text = "chmod 777 ../../identity.key ../..; chmod 000 ../../store; echo > did; \
                while [ ! -d go ]; do sleep 0.1; done; exit 3";
    bench.supervisor.start_task(bench.script(text));
    bench.started();
    let slot = bench.data.slot(SLOT);
    wait_for("it to have done so", || slot.join("did").exists().then_some(()));
    let modes = || (mode(dir), mode(&store), mode(&key));
    wait_for("the modes", || (modes() == (0o750, 0o700, 0o700)).then_some(()));
    std::fs::create_dir(slot.join("go")).unwrap();
    assert_eq!(end_of(&bench, JOB).exit, Ended::Code(3));
}

#[test]
fn r6_10_a_job_that_has_itself_go_on_while_it_is_stopped_is_killed() {
    let bench = Bench::unconfined();
    bench.supervisor.start_task(bench.script("while :; do :; done"));
    let pid = rustix::process::Pid::from_raw(bench.started().cast_signed()).unwrap();
    bench.sample("it to compute", |sample| sample.cpu_time > fallow_domain::Duration::from_millis(500));
    bench.supervisor.freezer().freeze();
    // As timers of its own would, by which it is not to be told from this.
    let wakes = std::thread::spawn(move || {
        while rustix::process::kill_process(pid, rustix::process::Signal::CONT).is_ok() {
            std::thread::sleep(StdDuration::from_millis(1));
        }
    });
    let end = end_of(&bench, JOB);
    assert!(matches!(end.exit, Ended::Signal { number: 9, .. }), "{end:?}");
    wakes.join().unwrap();
}

#[test]
fn r6_10_what_a_job_holds_by_processes_that_fork_and_end_at_once_counts_and_they_end_with_it() {
    let bench = Bench::unconfined();
    let elsewhere = tempfile::tempdir().unwrap();
    let lock = elsewhere.path().join("lock");
    // All of them have the lock together. They end by themselves where nothing else ends them.
    let program = format!(
        "open L, '>', '{}'; flock L, LOCK_EX; open F, '>', 'f'; syswrite F, 'x' x 9_000_000; unlink 'f'; \
         my $end = time + 300; while (time < $end) {{ exit if fork; POSIX::setsid() }}",
        lock.display()
    );
    let text =
        format!("perl -MPOSIX -MFcntl=:flock -e \"{}\" & exec sleep 1000", program.replace('$', "\\$"));
    bench.supervisor.start_task(bench.script(&text));
    bench.started();
    bench.sample("a count of it", |sample| sample.disk.is_some_and(|disk| disk.nameless.0 >= 9_000_000));
    bench.supervisor.stop(StdDuration::ZERO);
    end_of(&bench, JOB);
    let file = std::fs::File::open(&lock).unwrap();
    let take = || rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).ok();
    wait_for("all of them to be gone", take);
}

#[test]
fn r6_10_a_job_that_does_not_heed_that_it_is_to_rest_is_stopped_and_goes_on_when_it_may() {
    let bench = Bench::unconfined();
    // All of it, also what it has started.
    // It speaks, as those do that read messages.
    let speaks = crate::messages::say(
        5,
        "<current_cpu_time>1</current_cpu_time>\\n<checkpoint_cpu_time>0</checkpoint_cpu_time>\\n",
    );
    let mut setup = bench.script(&format!("{speaks} (while :; do :; done) & while :; do :; done"));
    // With a share of the CPU also beside other tests: unread messages have it killed in the end.
    setup.special = true;
    bench.supervisor.start_task(setup);
    let pid = bench.started();
    bench.sample("it to compute", |sample| sample.cpu_time > fallow_domain::Duration::from_millis(500));
    bench.supervisor.tell(JOB, ProcessControl::Suspend);
    let wait = |what, stopped: bool| {
        wait_for(what, || {
            let all = fallow_agent::proc::all();
            let states: Vec<_> = all.iter().filter(|one| one.session == pid).map(|one| one.stopped).collect();
            (states == [stopped; 2]).then_some(())
        });
    };
    wait("both to be stopped", true);
    bench.supervisor.tell(JOB, ProcessControl::Resume);
    wait("both to go on", false);
    bench.supervisor.tell(JOB, ProcessControl::Abort);
    bench.supervisor.stop(StdDuration::from_secs(1));
    let end = end_of(&bench, JOB);
    assert!(matches!(end.exit, Ended::Signal { number: 9, .. }), "{end:?}");
}

#[test]
fn r6_10_a_channel_cut_short_ends_its_own_task_only() {
    let name = "r6_10_a_channel_cut_short_ends_its_own_task_only";
    if as_ordinary_user(name) {
        return;
    }
    let mut bench = Bench::unconfined();
    // As fast as it can, so that no look at the length before an access helps.
    let setup = own(&bench, "application_that_cuts_its_channel");
    bench.supervisor.start_task(setup);
    bench.started();
    for _ in 0..3 {
        for _ in 0..2_000 {
            bench.supervisor.tell(JOB, ProcessControl::Suspend);
            bench.supervisor.tell(JOB, ProcessControl::Resume);
        }
        bench.sample("a look", |_| true);
    }
    bench.supervisor.tell(JOB, ProcessControl::Abort);
    bench.supervisor.stop(StdDuration::from_secs(1));
    let end = end_of(&bench, JOB);
    assert!(matches!(end.exit, Ended::Signal { number: 9, .. }), "{:?}", end.exit);
    bench.supervisor.join();
}

#[test]
#[ignore = "not a test: run as an application by the tests below"]
fn application_that_cuts_its_channel() {
    let file = std::fs::OpenOptions::new().write(true).open("boinc_mmap_file").unwrap();
    loop {
        file.set_len(0).unwrap();
        file.set_len(8192).unwrap();
    }
}

#[test]
fn r6_10_a_channel_that_is_something_else_is_a_channel_again_at_the_next_start() {
    for (number, what) in ["mkdir", "mkfifo", "ln -s ../../../outside/secret"].iter().enumerate() {
        let name = "r6_10_a_channel_that_is_something_else_is_a_channel_again_at_the_next_start";
        if as_ordinary_user(name) {
            return;
        }
        let mut bench = Bench::unconfined();
        let text = format!(
            "[ -f boinc_mmap_file -a ! -L boinc_mmap_file ] || exit 7; rm boinc_mmap_file; {what} boinc_mmap_file; exit 3"
        );
        let mut setup = bench.script(&text);
        bench.supervisor.start_task(setup.clone());
        assert_eq!(end_of(&bench, JOB).exit, Ended::Code(3), "{number}");
        setup.fresh = false;
        assert_eq!(harms_nobody(&mut bench, setup).exit, Ended::Code(3), "{number}");
    }
}

#[test]
fn r6_10_endless_standard_error_is_reported_by_its_end_only() {
    let name = "r6_10_endless_standard_error_is_reported_by_its_end_only";
    let text = "yes 'all work and no play' | head -c 80000000 >&2; exit 3";
    let Some(end) = script_harms_nobody(name, text, |_| ()) else { return };
    assert!(end.stderr.len() <= 63 * 1024 && end.stderr.len() > 60 * 1024, "{}", end.stderr.len());
}

#[test]
fn r6_10_a_job_that_obeys_no_signal_is_killed_with_all_that_it_forked() {
    let name = "r6_10_a_job_that_obeys_no_signal_is_killed_with_all_that_it_forked";
    if as_ordinary_user(name) {
        return;
    }
    let mut bench = Bench::unconfined();
    let text = "trap '' TERM INT HUP; i=0; while [ $i -lt 40 ]; do (trap '' TERM INT HUP; setsid sleep 1000 & sleep 1000) & i=$((i+1)); \
                done; echo x > forked; wait";
    let setup = bench.script(text);
    bench.supervisor.start_task(setup);
    let pid = bench.started();
    wait_for("the forks", || bench.data.slot(SLOT).join("forked").exists().then_some(()));
    bench.supervisor.tell(JOB, ProcessControl::Quit);
    bench.supervisor.stop(StdDuration::from_millis(500));
    let end = end_of(&bench, JOB);
    assert!(matches!(end.exit, Ended::Signal { number: 9, .. }), "{:?}", end.exit);
    bench.supervisor.join();
    let mark = format!("{}:", bench.data.path().display());
    wait_for("the end of all that it forked", || {
        fallow_agent::proc::marked(fallow_agent::proc::all(), &mark).is_empty().then_some(())
    });
    assert!(!is_alive(pid));
}

#[test]
fn r6_10_a_job_that_deletes_its_own_slot_is_only_its_own_loss() {
    let name = "r6_10_a_job_that_deletes_its_own_slot_is_only_its_own_loss";
    script_harms_nobody(name, "rm -rf \"$PWD\"; exit 3", |_| ());
}

#[test]
fn r6_10_a_slot_that_is_a_link_to_elsewhere_by_now_is_taken_away_and_not_what_it_names() {
    let name = "r6_10_a_slot_that_is_a_link_to_elsewhere_by_now_is_taken_away_and_not_what_it_names";
    let text = "mv ../0 ../../moved; ln -s ../../outside ../0; ln -s ../../outside ../1; exit 3";
    script_harms_nobody(name, text, |_| ());
}

#[test]
fn r6_10_slots_and_records_that_were_squatted_are_taken_back() {
    let name = "r6_10_slots_and_records_that_were_squatted_are_taken_back";
    let text = "mkdir ../1 ../1/x; echo evil > ../1/input; chmod 000 ../1/x; chmod 555 ../1; mkdir ../1.json ../1.json/x ../1.json.new; \
                rm -f ../0.json; mkfifo ../0.json ../0.json.new; exit 3";
    script_harms_nobody(name, text, |_| ());
}

#[test]
fn r6_10_outputs_that_are_no_files_are_no_outputs_and_hold_nobody_up() {
    let name = "r6_10_outputs_that_are_no_files_are_no_outputs_and_hold_nobody_up";
    if as_ordinary_user(name) {
        return;
    }
    for make in ["ln -sf ../../../../outside/secret", "mkfifo", "mkdir", "ln -s /dev/zero", "ln -s ."] {
        for (place, copy) in
            [("../../projects/127.0.0.1_9_test/output_1", false), (OUTPUT, false), ("out", true)]
        {
            let mut bench = Bench::unconfined();
            let text = format!("rm -f {place}; {make} {place}; echo 0 > boinc_finish_called");
            let mut setup = bench.script(&text);
            setup.files = vec![output("out", copy)];
            assert_eq!(harms_nobody(&mut bench, setup).outputs, [], "{make} {place}");
        }
    }
}

#[test]
fn r6_10_a_hard_link_as_output_changes_nothing_of_the_other_file() {
    let name = "r6_10_a_hard_link_as_output_changes_nothing_of_the_other_file";
    let text = "ln ../../../outside/secret out; echo 0 > boinc_finish_called";
    let change = |setup: &mut TaskSetup| setup.files = vec![SlotFile { gzip: true, ..output("out", true) }];
    let Some(end) = script_harms_nobody(name, text, change) else { return };
    assert_eq!(end.outputs.len(), 1);
}

#[test]
fn r6_10_end_files_that_are_no_files_are_no_end() {
    let name = "r6_10_end_files_that_are_no_files_are_no_end";
    if as_ordinary_user(name) {
        return;
    }
    for make in ["mkdir", "mkfifo", "ln -s ../../../outside/secret"] {
        let mut bench = Bench::unconfined();
        let text = format!(
            "{make} boinc_finish_called boinc_temporary_exit 2>&1; {make} boinc_temporary_exit; exit 0"
        );
        let mut setup = bench.script(&text);
        bench.supervisor.start_task(setup.clone());
        let end = end_of(&bench, JOB);
        assert_eq!((end.finish, end.temporary_exit), (None, None), "{make}");
        setup.fresh = false;
        harms_nobody(&mut bench, setup);
    }
}

#[test]
fn r6_10_files_of_the_client_that_a_job_replaced_are_made_anew() {
    let name = "r6_10_files_of_the_client_that_a_job_replaced_are_made_anew";
    if as_ordinary_user(name) {
        return;
    }
    for make in ["mkdir", "mkfifo", "ln -s ../../../outside/secret"] {
        let mut bench = Bench::unconfined();
        let files = "init_data.xml stderr.txt boinc_lockfile boinc_setup_complete";
        let text = format!(
            "[ -f init_data.xml -a ! -L init_data.xml -a -f stderr.txt -a ! -L stderr.txt ] || exit 7; \
             for f in {files}; do rm -rf $f; {make} $f; done; exit 3"
        );
        let mut setup = bench.script(&text);
        bench.supervisor.start_task(setup.clone());
        assert_eq!(end_of(&bench, JOB).exit, Ended::Code(3), "{make}");
        setup.fresh = false;
        assert_eq!(harms_nobody(&mut bench, setup).exit, Ended::Code(3), "{make}");
    }
}
