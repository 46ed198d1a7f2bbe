//! Users of their own for the jobs of a root agent (R6.10): what that layer does by itself, with none of the
//! others, and what an agent that is root does not do to a job's files.
//!
//! Whoever is not root has no other users: then these tests say so.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration as StdDuration;

use fallow_agent::confine::{Allowed, Confinement, LAYERS};
use fallow_agent::owner::is_jobs;
use fallow_boinc::runtime::exit::Ended;
use fallow_client::{Event, SlotFile, StartFault, TaskEnd, TaskSetup};
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use crate::confinement::Scene;
use crate::supervision::{Bench, JOB, SLOT};
use crate::support::{is_alive, put, wait_for};

pub(crate) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: only root has users for its jobs");
    }
    is_root
}

/// With the layer `user` and nothing else, or with nothing at all.
fn confinement(dir: &Path, has_users: bool) -> Confinement {
    let others: Vec<&str> = LAYERS.into_iter().filter(|layer| *layer != "user").collect();
    match has_users {
        true => Confinement::probe(Allowed { network: true }, dir).without(&others),
        false => Confinement::none(),
    }
}

pub(crate) fn bench(has_users: bool) -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let confinement = confinement(dir.path(), has_users);
    let layers = confinement.layers();
    let user = layers.iter().find(|layer| layer.name == "user").unwrap();
    assert_eq!(user.on, has_users, "{}", user.why);
    Bench::confined_by(dir, confinement)
}

pub(crate) fn output(copy: bool) -> SlotFile {
    SlotFile {
        name: "output_1".into(),
        open_name: "out".into(),
        copy,
        output: true,
        gzip: false,
        max_nbytes: None,
    }
}

pub(crate) fn ended(bench: &Bench) -> Box<TaskEnd> {
    bench.next("end", |event| match event {
        Event::TaskEnded { job: JOB, end } => Some(end),
        Event::TaskStartFailed { reason, .. } => panic!("not started: {reason}"),
        _ => None,
    })
}

/// What a job must not do to what is not its own; in its words stand for themselves what they do in
/// `confinement.rs`.
const ATTEMPTS: &[(&str, &str)] = &[
    ("kills a neighbour", "kill -9 PID"),
    ("signals a neighbour", "kill -CONT PID"),
    ("signals the agent", "kill -CONT AGENT"),
    ("traces a neighbour", "perl -e 'exit !(syscall(PTRACE, 16, PID, 0, 0) == 0)'"),
    ("reads the environment of a neighbour", "grep -q FALLOW /proc/PID/environ"),
    ("limits a neighbour", "prlimit --pid PID --nofile=500:500"),
    ("makes a neighbour wait", "renice -n 19 -p PID"),
    ("chooses the CPUs of a neighbour", "taskset -p 1 PID"),
    ("reads what is root's alone", "grep -q root /etc/shadow"),
    ("reads the agent's identity", "grep -q secret DIR/identity.key"),
    ("lists the agent's directory", "ls ../.. | grep -q store"),
    ("lists the slots", "ls .. | grep -q 1"),
    ("reads another slot", "grep -q app_init_data ../1/init_data.xml"),
    ("reads another project's files", "grep -q bin/sh ../../projects/127.0.0.1_9_neighbour/app"),
    ("writes to a file of root's", "echo evil >> HOME/letter"),
    ("changes the mode of a file of root's", "chmod 777 HOME/letter"),
    ("changes the times of a file of root's", "touch -d @0 HOME/letter"),
    ("writes into a file of its project", "echo evil > ../../projects/127.0.0.1_9_test/data"),
    ("makes a file in its project's directory", "echo evil > ../../projects/127.0.0.1_9_test/new"),
    ("takes another slot away", "mv ../1 ../2 && mv ../2 ../1"),
    ("writes over its slot's record", "echo evil > ../0.json"),
    ("makes a device", "mknod n c 1 8"),
];

/// Makes all attempts, the first last: its neighbour is gone then. Gives those that succeeded.
fn attempted(has_users: bool) -> Vec<&'static str> {
    let scene = Scene::of(bench(has_users), &format!("users-{has_users}"));
    // Others may come to it, and read it.
    std::fs::set_permissions(scene.home.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let text: String = ATTEMPTS
        .iter()
        .enumerate()
        .rev()
        .map(|(number, (_, attempt))| {
            format!("if ( {attempt} ) >tried 2>&1; then echo did: {number} >&2; fi\n")
        })
        .collect();
    scene.bench.supervisor.start_task(scene.bench.script(&scene.script(&text)));
    let end = ended(&scene.bench);
    if has_users {
        assert!(is_alive(scene.neighbour), "the neighbour is gone");
    }
    fallow_agent::proc::kill_session(scene.neighbour);
    let numbers = end.stderr.lines().filter_map(|line| line.strip_prefix("did: ")?.parse::<usize>().ok());
    let did = numbers.map(|number| ATTEMPTS[number].0).collect();
    let mut bench = scene.bench;
    bench.supervisor.stop(StdDuration::ZERO);
    bench.supervisor.join();
    did
}

#[test]
fn r6_10_a_user_of_its_own_keeps_a_root_agents_job_from_neighbours_and_from_what_is_roots_by_itself() {
    if !is_root() {
        return;
    }
    assert_eq!(attempted(true), Vec::<&str>::new());
    // Each would succeed without, or it would show nothing.
    let all: Vec<&str> = ATTEMPTS.iter().rev().map(|(name, _)| *name).collect();
    assert_eq!(attempted(false), all);
}

#[test]
fn r6_10_each_slot_of_a_root_agent_has_a_user_who_owns_what_is_in_it_and_outputs_are_the_agents() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let confinement = Confinement::probe(Allowed::default(), dir.path());
    let bench = Bench::confined_by(dir, confinement);
    let program = "echo $(id -u) $(id -g) $(id -G) >&2; grep Cap /proc/self/status >&2; : <in || exit 8; \
                   until [ -f go ]; do sleep 0.1; done; \
                   to=$(sed 's/<[^>]*>//g' out) && echo right > $to && chmod 777 $to; echo 0 > boinc_finish_called";
    let mut setup = bench.script(program);
    let input = SlotFile { name: "data".into(), open_name: "in".into(), output: false, ..output(false) };
    put(&bench.data.project(&setup.url).join("data"), b"input");
    // As a umask of 077 makes them.
    let closed = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(bench.data.project(&setup.url).join("data"), closed).unwrap();
    setup.files = vec![SlotFile { copy: true, ..input }, output(false)];
    let (url, mut other) = (setup.url.clone(), setup.clone());
    (other.job, other.slot) = (fallow_domain::JobId(2), fallow_domain::SlotId(1));
    bench.supervisor.start_task(setup);
    bench.started();
    bench.supervisor.start_task(other);
    bench.started();
    let owner = |slot: u32| {
        let data = std::fs::metadata(bench.data.slot(fallow_domain::SlotId(slot))).unwrap();
        assert!(is_jobs(data.uid()) && data.mode() & 0o7777 == 0o700, "{} {:o}", data.uid(), data.mode());
        data.uid()
    };
    let (one, two) = (owner(0), owner(1));
    assert_eq!(two, one + 1);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(bench.data.path()), mode(&bench.data.slots())), (0o710, 0o710));
    assert_eq!((mode(&bench.data.projects()), mode(&bench.data.project(&url))), (0o710, 0o750));
    for name in ["init_data.xml", "boinc_mmap_file", "stderr.txt", "in", "fallow_outputs"] {
        let data = std::fs::metadata(bench.data.slot(SLOT).join(name)).unwrap();
        assert_eq!((data.uid(), data.gid()), (one, one), "{name}");
    }
    for slot in [1, 0] {
        std::fs::write(bench.data.slot(fallow_domain::SlotId(slot)).join("go"), "").unwrap();
    }
    let end = ended(&bench);
    let told: Vec<u32> =
        end.stderr.lines().next().unwrap().split(' ').map(|number| number.parse().unwrap()).collect();
    assert_eq!(told[..2], [one, one], "{}", end.stderr);
    // Its own, that by which it passes, and that of its project.
    assert_eq!(told[2..].len(), 3, "{}", end.stderr);
    assert!(told[2..].iter().all(|group| is_jobs(*group)), "{}", end.stderr);
    let rights = end.stderr.lines().filter(|line| line.starts_with("CapEff") || line.starts_with("CapPrm"));
    assert!(rights.clone().count() == 2 && rights.clone().all(|line| line.ends_with("\t0000000000000000")));
    assert_eq!(end.outputs.len(), 1, "{}", end.stderr);
    let output = std::fs::metadata(bench.data.project(&url).join("output_1")).unwrap();
    assert_eq!((output.uid(), output.mode() & 0o7777), (0, 0o755));
}

/// The job waits until the test, which is root as a job that is not confined was, has made another name of
/// somebody's file in its slot. Then it ends as `how` says.
fn with_another_name(name: &str, how: &str, copy: bool) -> (Box<TaskEnd>, PathBuf, tempfile::TempDir, Bench) {
    let bench = bench(true);
    let text = format!("echo > ready; until [ -f go ]; do sleep 0.1; done; {how}");
    let mut setup = bench.script(&text);
    setup.files = vec![output(copy)];
    bench.supervisor.start_task(setup);
    bench.started();
    let slot = bench.data.slot(SLOT);
    wait_for("the job", || slot.join("ready").exists().then_some(()));
    let home = tempfile::tempdir_in(bench.data.path().parent().unwrap()).unwrap();
    let letter = home.path().join("letter");
    put(&letter, b"precious");
    std::fs::set_permissions(&letter, std::fs::Permissions::from_mode(0o600)).unwrap();
    let _ = std::fs::remove_file(slot.join(name));
    std::fs::hard_link(&letter, slot.join(name)).unwrap();
    put(&slot.join("go"), b"");
    let end = ended(&bench);
    (end, letter, home, bench)
}

/// It is as it was.
fn is_unharmed(letter: &Path) {
    let data = std::fs::metadata(letter).unwrap();
    assert_eq!((data.uid(), data.gid(), data.mode() & 0o7777), (0, 0, 0o600));
    assert_eq!(std::fs::read(letter).unwrap(), b"precious");
}

#[test]
fn r6_10_another_name_of_somebodys_file_is_no_output_of_a_job_that_runs_as_another_user() {
    if !is_root() {
        return;
    }
    let end = "echo 0 > boinc_finish_called";
    for (name, copy) in [("out", true), ("fallow_outputs/output_1", false)] {
        let (end, letter, _home, bench) = with_another_name(name, end, copy);
        assert!(end.finish.is_some() && end.outputs.is_empty(), "{end:?}");
        is_unharmed(&letter);
        assert!(!bench.data.project(&crate::support::project()).join("output_1").exists());
    }
}

#[test]
fn r6_10_what_a_job_is_to_write_to_when_it_goes_on_is_no_other_name_of_somebodys_file() {
    if !is_root() {
        return;
    }
    let (end, letter, _home, bench) = with_another_name("stderr.txt", "exit 3", true);
    assert_eq!((end.exit, end.stderr.as_str()), (Ended::Code(3), ""));
    let mut setup = bench.script("echo evil >&2; exit 4");
    setup.fresh = false;
    bench.supervisor.start_task(setup);
    let end = ended(&bench);
    assert_eq!((end.exit, end.stderr.as_str()), (Ended::Code(4), "evil\n"));
    is_unharmed(&letter);
}

#[test]
fn r6_10_a_slot_of_before_is_given_to_its_jobs_user_and_what_has_other_names_elsewhere_is_not() {
    if !is_root() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let letter = home.path().join("letter");
    put(&letter, b"precious");
    std::fs::set_permissions(&letter, std::fs::Permissions::from_mode(0o600)).unwrap();
    let bench = bench(true);
    let slot = bench.data.slot(SLOT);
    put(&slot.join("boinc_setup_complete"), b"");
    put(&slot.join("deep/er/checkpoint"), b"half");
    std::fs::set_permissions(slot.join("deep"), std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::hard_link(&letter, slot.join("link")).unwrap();
    std::os::unix::fs::symlink(&letter, slot.join("soft")).unwrap();
    let mut setup = bench.script(
        "echo more >> deep/er/checkpoint && echo > new || exit 8; echo evil >> link; echo evil >> soft; exit 3",
    );
    setup.fresh = false;
    let again = Box::new(TaskSetup { ..*setup.clone() });
    bench.supervisor.start_task(setup);
    let end = ended(&bench);
    assert_eq!(end.exit, Ended::Code(3), "{}", end.stderr);
    assert_eq!(std::fs::read(slot.join("deep/er/checkpoint")).unwrap(), b"halfmore\n");
    is_unharmed(&letter);
    // And once more where its files are its user's already.
    bench.supervisor.start_task(again);
    assert_eq!(ended(&bench).exit, Ended::Code(3));
    is_unharmed(&letter);
}

#[test]
fn r6_10_a_directory_that_other_users_cannot_come_to_has_no_users_for_jobs_and_the_agent_says_so() {
    if !is_root() {
        return;
    }
    let closed = tempfile::tempdir().unwrap();
    std::fs::set_permissions(closed.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let dir = closed.path().join("agent");
    std::fs::create_dir(&dir).unwrap();
    let layers = Confinement::probe(Allowed::default(), &dir).layers();
    let user = layers.iter().find(|layer| layer.name == "user").unwrap();
    assert!(!user.on && user.why.contains("closed to other users"), "{}", user.why);
}

/// An output that is not copied, with its script's way to it.
pub(crate) const TO: &str = "to=$(sed 's/<[^>]*>//g' out)";
/// Waits until the test has seen what there is to see.
pub(crate) const WAIT: &str = "until [ -f go ]; do sleep 0.1; done";

/// The first user of jobs, as the layer tells it.
fn first_user(confinement: &Confinement) -> u32 {
    let layers = confinement.layers();
    let user = layers.iter().find(|layer| layer.name == "user").unwrap();
    assert!(user.on, "{}", user.why);
    user.why.split(' ').find_map(|word| word.parse().ok()).unwrap()
}

#[test]
fn r6_10_a_start_of_the_agent_closes_nothing_to_jobs_of_an_earlier_life_that_still_run() {
    if !is_root() {
        return;
    }
    let bench = bench(true);
    let mut setup =
        bench.script(&format!(": > ready; {WAIT}; cat ../../projects/127.0.0.1_9_test/data >&2; exit 3"));
    put(&bench.data.project(&setup.url).join("data"), b"right");
    setup.files =
        vec![SlotFile { name: "data".into(), open_name: "in".into(), output: false, ..output(false) }];
    bench.supervisor.start_task(setup);
    bench.started();
    let slot = bench.data.slot(SLOT);
    wait_for("the job", || slot.join("ready").exists().then_some(()));
    // As the next start does it, before it has ended what is left.
    fallow_agent::dir::DataDir::at(bench.data.path()).make_usable().unwrap();
    put(&slot.join("go"), b"");
    let end = ended(&bench);
    assert_eq!((end.exit, end.stderr.as_str()), (Ended::Code(3), "right"));
    // To others they are closed all the same.
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&bench.data.slots()), mode(&bench.data.projects())), (0o710, 0o710));
}

#[test]
fn r6_10_what_the_agent_takes_of_a_job_is_no_other_name_of_a_file_and_open_to_nobody() {
    if !is_root() {
        return;
    }
    let bench = bench(true);
    let told = crate::messages::say(6, "<have_new_trickle_up/>\\n");
    let again = WAIT.replace("go", "more");
    let mut setup = bench.script(&format!(
        "echo one > trickle_up.xml; {told} {WAIT}; exec 3>trickle_up.xml; echo two >&3; {told} {again}; echo three >&3; \
         {TO}; echo right > $to; chmod 777 $to; ln $to kept; echo 0 > boinc_finish_called"
    ));
    setup.files = vec![output(false)];
    let (project, slot) = (bench.data.project(&setup.url), bench.data.slot(SLOT));
    bench.supervisor.start_task(setup);
    let message = || {
        bench.next("a message", |event| match event {
            Event::TrickleFound { name, nbytes, .. } => Some((project.join(name), nbytes.0)),
            Event::TaskStartFailed { reason, .. } => panic!("not started: {reason}"),
            _ => None,
        })
    };
    let one = message();
    assert_eq!((std::fs::metadata(&one.0).unwrap().uid(), one.1), (0, 4));
    put(&slot.join("go"), b"");
    // One that its job still has open waits for the job's end.
    wait_for("the next message", || slot.join("fallow_taking_trickle_up.xml").exists().then_some(()));
    put(&slot.join("more"), b"");
    let two = message();
    let end = ended(&bench);
    assert_eq!((end.exit, end.outputs.len()), (Ended::Code(0), 1), "{}", end.stderr);
    let said = [&one.0, &two.0].map(|path| std::fs::read_to_string(path).unwrap());
    assert_eq!((said, two.1), (["one\n", "two\nthree\n"].map(str::to_owned), 10));
    assert_eq!(std::fs::metadata(&two.0).unwrap().uid(), 0);
    let (taken, kept) = (project.join("output_1"), slot.join("kept"));
    let data = [&taken, &kept].map(|path| std::fs::metadata(path).unwrap());
    assert!(data[0].uid() == 0 && is_jobs(data[1].uid()), "{} {}", data[0].uid(), data[1].uid());
    assert!(data[0].ino() != data[1].ino() && data[0].nlink() == 1 && data[0].mode() & 0o7777 == 0o755);
    assert_eq!(std::fs::read(&taken).unwrap(), b"right\n");
    assert_eq!(std::fs::read_dir(project.join(".partial")).unwrap().count(), 0);
}

#[test]
fn r6_10_an_output_that_is_sent_early_is_the_agents_whatever_its_job_does_with_its_own() {
    if !is_root() {
        return;
    }
    let bench = bench(true);
    let told = crate::messages::say(6, "<have_new_upload_file/>\\n");
    let mut setup = bench.script(&format!(
        "{TO}; echo part > $to; : > boinc_ufr_out; {told} {WAIT}; echo evil >> $to; rm $to; echo 0 > boinc_finish_called"
    ));
    setup.files = vec![output(false)];
    let place = bench.data.project(&setup.url).join("output_1");
    bench.supervisor.start_task(setup);
    let early = bench.next("an early output", |event| match event {
        Event::UploadWanted { output, .. } => Some(output),
        Event::TaskStartFailed { reason, .. } => panic!("not started: {reason}"),
        _ => None,
    });
    let owner = || std::fs::metadata(&place).unwrap().uid();
    assert_eq!(owner(), 0);
    put(&bench.data.slot(SLOT).join("go"), b"");
    let end = ended(&bench);
    assert_eq!((end.outputs.len(), owner()), (1, 0), "{}", end.stderr);
    assert_eq!((std::fs::read(&place).unwrap(), &end.outputs[0].md5), (b"part\n".to_vec(), &early.md5));
}

#[test]
fn r6_10_nothing_runs_as_the_user_of_a_slot_after_its_job_has_ended_nor_when_the_next_begins() {
    if !is_root() {
        return;
    }
    let bench = bench(true);
    // It has left by all means: its session, its parents, its environment, and its number.
    let stray = "prlimit --pid $$ --locks=7:7; echo $$ >stray; exec sleep 1000";
    let detached = format!("(setsid env -i /bin/sh -c '(/bin/sh -c \"$0\" &)' '{stray}' >/dev/null 2>&1 &)");
    let text = format!("{detached}; until [ -s stray ]; do sleep 0.1; done; sleep 2; exit 3");
    bench.supervisor.start_task(bench.script(&text));
    let end = ended(&bench);
    assert_eq!(end.exit, Ended::Code(3), "{}", end.stderr);
    let stray = std::fs::read_to_string(bench.data.slot(SLOT).join("stray")).unwrap();
    assert!(!is_alive(stray.trim().parse().unwrap()), "it is there still");
    let user = std::fs::metadata(bench.data.slot(SLOT)).unwrap().uid();
    for fresh in [true, false] {
        let mut left = std::process::Command::new("sleep");
        std::os::unix::process::CommandExt::uid(&mut left, user);
        let mut left = left.arg("1000").spawn().unwrap();
        let mut setup = bench.script(&format!("kill -0 {} && exit 4; exit 3", left.id()));
        setup.fresh = fresh;
        bench.supervisor.start_task(setup);
        let waited = left.wait().unwrap();
        assert_eq!((ended(&bench).exit, waited.success()), (Ended::Code(3), false), "fresh: {fresh}");
    }
}

#[test]
fn r6_10_a_project_that_no_job_has_begun_of_is_closed_to_the_jobs_of_others() {
    if !is_root() {
        return;
    }
    let bench = bench(true);
    let other = bench.data.projects().join("127.0.0.1_9_other");
    put(&other.join("key"), b"secret");
    for path in [&other, &other.join("key")] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let text =
        "ls ../../projects/127.0.0.1_9_other || cat ../../projects/127.0.0.1_9_other/key && exit 4; exit 3";
    bench.supervisor.start_task(bench.script(text));
    let end = ended(&bench);
    assert_eq!(end.exit, Ended::Code(3), "{}", end.stderr);
    assert_eq!(std::fs::metadata(&other).unwrap().mode() & 0o027, 0);
    // And one that is made now is closed from the beginning.
    let made = bench.data.projects().join("127.0.0.1_9_new");
    fallow_agent::dir::make_closed(&made.join(".partial")).unwrap();
    assert_eq!(std::fs::metadata(&made).unwrap().mode() & 0o777, 0o700);
}

#[test]
fn r6_10_a_copy_of_an_agents_directory_has_other_users_than_the_original_that_runs() {
    if !is_root() {
        return;
    }
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let probe = |number: usize| Confinement::probe(Allowed::default(), dirs[number].path());
    let original = probe(0);
    let first = first_user(&original);
    let group = std::fs::metadata(dirs[0].path()).unwrap().gid();
    assert_eq!(group, first - 1);
    std::os::unix::fs::chown(dirs[1].path(), None, Some(group)).unwrap();
    assert_ne!(first_user(&probe(1)), first);
    // It was killed, and jobs of it are there still.
    drop(original);
    let mut job = std::process::Command::new("sleep");
    std::os::unix::process::CommandExt::uid(&mut job, first);
    let mut job = job.arg("1000").spawn().unwrap();
    let other = first_user(&probe(1));
    job.kill().unwrap();
    job.wait().unwrap();
    assert_ne!(other, first);
    assert_eq!(first_user(&probe(0)), first, "nobody has them, and they are its own");
}

/// A right of one user's to a directory, by an access control list: to do nothing there.
fn close_to(user: u32, dir: &Path) -> rustix::io::Result<()> {
    let mut list = 2_u32.to_le_bytes().to_vec();
    // The owner, that user, the group, what is granted at most, and all others.
    for (tag, rights, id) in
        [(1, 7, u32::MAX), (2, 0, user), (4, 1, u32::MAX), (16, 1, u32::MAX), (32, 0, u32::MAX)]
    {
        list.extend([tag, 0, rights, 0]);
        list.extend(id.to_le_bytes());
    }
    rustix::fs::setxattr(dir, "system.posix_acl_access", &list, rustix::fs::XattrFlags::empty())
}

#[test]
fn r6_10_where_jobs_could_not_work_as_other_users_they_have_none_and_the_agent_says_where() {
    if !is_root() {
        return;
    }
    for sub in ["slots", "projects"] {
        let dir = tempfile::tempdir().unwrap();
        for name in ["slots", "projects"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let group = first_user(&Confinement::probe(Allowed::default(), dir.path())) - 1;
        // As they were before the agent had such users.
        std::os::unix::fs::chown(dir.path(), None, Some(0)).unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o750)).unwrap();
        let place = std::fs::metadata(dir.path()).unwrap();
        if let Err(error) = close_to(group, &dir.path().join(sub)) {
            println!("skipped: no access control lists here: {error}");
            return;
        }
        let layers = Confinement::probe(Allowed::default(), dir.path()).layers();
        let user = layers.iter().find(|layer| layer.name == "user").unwrap();
        assert!(!user.on && user.why.contains(&format!("{sub}/.trial")), "{}", user.why);
        assert!(!dir.path().join(sub).join(".trial").exists());
        let now = std::fs::metadata(dir.path()).unwrap();
        assert_eq!((now.gid(), now.mode()), (place.gid(), place.mode()), "nobody is let through for nothing");
    }
}

/// A process of that user's, which nothing else tells whose it is.
fn process_of(user: u32) -> std::process::Child {
    let mut command = std::process::Command::new("sleep");
    std::os::unix::process::CommandExt::uid(&mut command, user);
    command.arg("1000").env_clear().spawn().unwrap()
}

#[test]
fn r6_10_what_is_left_as_a_user_of_the_agents_own_is_its_own_and_ends_at_its_next_start() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let probe = || Confinement::probe(Allowed::default(), dir.path());
    let before = probe();
    let first = first_user(&before);
    before.users().unwrap().of_slot(7).unwrap();
    drop(before);
    // A job of it has left by all means, and the agent was killed.
    let mut left = process_of(first + 7);
    let is_same = starts_again(dir.path()) == first;
    let is_left = is_alive(left.id());
    left.kill().unwrap();
    left.wait().unwrap();
    assert!(is_same && !is_left, "its own users: {is_same}; left: {is_left}");
}

/// The agent starts again, and ends what it takes for left. Gives its first user.
fn starts_again(dir: &Path) -> u32 {
    let now = Confinement::probe(Allowed::default(), dir);
    let data = fallow_agent::dir::DataDir::at(dir);
    data.run_jobs_as(now.users().unwrap().clone());
    fallow_agent::supervise::leftovers::take_over(&data, &|| false);
    first_user(&now)
}

#[test]
fn r6_10_who_has_the_number_of_a_slot_that_was_never_used_is_not_ended_and_the_agent_takes_other_numbers() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let before = Confinement::probe(Allowed::default(), dir.path());
    let first = first_user(&before);
    before.users().unwrap().of_slot(7).unwrap();
    drop(before);
    // And a job of the agent's has left by all means, and would not be found among the other numbers.
    let (mut somebody, mut left) = (process_of(first + 5000), process_of(first + 7));
    let now = starts_again(dir.path());
    let (is_there, is_left) = (is_alive(somebody.id()), is_alive(left.id()));
    for process in [&mut somebody, &mut left] {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    assert!(now != first && is_there && !is_left, "{now} {first}; there: {is_there}; left: {is_left}");
}

#[test]
fn r6_10_the_processes_of_a_container_with_the_same_users_are_not_ended_and_the_agent_takes_others() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let before = Confinement::probe(Allowed::default(), dir.path());
    let first = first_user(&before);
    before.users().unwrap().of_slot(7).unwrap();
    drop(before);
    let user = (first + 7).to_string();
    let mut container = std::process::Command::new("unshare");
    container.args(["--pid", "--fork", "setpriv", "--clear-groups", "--reuid", &user]);
    let mut container = container.args(["sleep", "1000"]).spawn().unwrap();
    let id = container.id();
    let inside = wait_for("the container", || {
        if container.try_wait().unwrap().is_some() {
            return Some(None);
        }
        let inside = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
        let inside: u32 = inside.trim().parse().ok()?;
        let data = std::fs::metadata(format!("/proc/{inside}")).ok()?;
        (data.uid() == first + 7).then_some(Some(inside))
    });
    let Some(inside) = inside else {
        println!("skipped: no namespaces of processes can be made here");
        return;
    };
    let now = starts_again(dir.path());
    let is_there = is_alive(inside);
    // Its first process: with it ends the container, and what waits for that.
    let first_inside = rustix::process::Pid::from_raw(inside.try_into().unwrap()).unwrap();
    let _ = rustix::process::kill_process(first_inside, rustix::process::Signal::KILL);
    container.wait().unwrap();
    assert!(now != first && is_there, "{now} {first}; there: {is_there}");
}

#[test]
fn r6_10_the_guard_ends_what_is_left_as_a_user_of_a_slot_unless_an_agent_has_these_users_again() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let users = Confinement::probe(Allowed::default(), dir.path());
    let first = users.users().unwrap().block();
    users.users().unwrap().of_slot(2).unwrap();
    let left_by_guard = |user: u32| {
        let mut left = process_of(user);
        let mut guard = std::process::Command::new(crate::support::agent());
        guard.args(["guard", "--mark", "no such mark", "--grace-ms", "1", "--users", &first.to_string()]);
        let mut guard = guard.stdin(std::process::Stdio::piped()).spawn().unwrap();
        // A task that is gone since.
        std::io::Write::write_all(&mut guard.stdin.take().unwrap(), b"+4194304 1\n").unwrap();
        assert!(guard.wait().unwrap().success());
        let is_left = is_alive(left.id());
        left.kill().unwrap();
        left.wait().unwrap();
        is_left
    };
    assert!(left_by_guard(first + 3), "an agent has them");
    drop(users);
    assert!(!left_by_guard(first + 3));
    assert!(left_by_guard(first + 4), "no job of the agent was ever that user");
}

#[test]
fn r6_10_a_slot_changes_its_owner_only_when_nothing_runs_as_the_former_one() {
    if !is_root() {
        return;
    }
    for has_users in [true, false] {
        let bench = bench(has_users);
        // A user of a slot in a block that no agent has now.
        let unused = tempfile::tempdir().unwrap();
        let former = first_user(&Confinement::probe(Allowed::default(), unused.path()));
        let slot = bench.data.slot(SLOT);
        let start = |text: &str| {
            put(&slot.join("boinc_setup_complete"), b"");
            std::os::unix::fs::chown(&slot, Some(former), Some(former)).unwrap();
            let mut setup = bench.script(text);
            setup.fresh = false;
            bench.supervisor.start_task(setup);
        };
        let mut left = process_of(former);
        start("exit 3");
        let end = ended(&bench);
        let is_left = is_alive(left.id());
        left.kill().unwrap();
        left.wait().unwrap();
        assert_eq!((end.exit, is_left), (Ended::Code(3), false), "users: {has_users}");
        // Another agent's job is not for this one to end, and its files may be open to it.
        let held = Confinement::probe(Allowed::default(), unused.path());
        assert_eq!(first_user(&held), former);
        let mut job = process_of(former);
        start("exit 4");
        let fault = bench.next("a start that failed", |event| match event {
            Event::TaskStartFailed { fault, .. } => Some(fault),
            Event::TaskEnded { end, .. } => panic!("it ran: {:?}", end.exit),
            _ => None,
        });
        let is_there = is_alive(job.id());
        job.kill().unwrap();
        job.wait().unwrap();
        assert!(fault == StartFault::Slot && is_there, "users: {has_users}; {fault:?}");
    }
}

/// A file that not even root can give away, until this is dropped.
struct Immutable(std::fs::File, IFlags);

impl Immutable {
    /// None where there are no such files.
    fn make(path: &Path) -> Option<Self> {
        let file = std::fs::File::open(path).unwrap();
        let flags = ioctl_getflags(&file).ok()?;
        ioctl_setflags(&file, flags | IFlags::IMMUTABLE).ok()?;
        Some(Self(file, flags))
    }
}

impl Drop for Immutable {
    fn drop(&mut self) {
        let _ = ioctl_setflags(&self.0, self.1);
    }
}

#[test]
fn r6_10_a_job_whose_slot_cannot_be_given_to_its_user_begins_anew_or_waits_and_says_why() {
    if !is_root() {
        return;
    }
    for has_users in [true, false] {
        let bench = bench(has_users);
        // A user of a slot in a block that no agent has now.
        let unused = tempfile::tempdir().unwrap();
        let former = first_user(&Confinement::probe(Allowed::default(), unused.path()));
        let slot = bench.data.slot(SLOT);
        let (checkpoint, other) = (slot.join("checkpoint"), slot.join("checkpoint.old"));
        put(&slot.join("boinc_setup_complete"), b"");
        put(&checkpoint, b"half");
        for path in [&checkpoint, &slot] {
            std::os::unix::fs::chown(path, Some(former), Some(former)).unwrap();
        }
        let start = || {
            let mut setup = bench.script("exit 3");
            setup.fresh = false;
            bench.supervisor.start_task(setup);
        };
        let refused = || {
            start();
            bench.next("a start that failed", |event| match event {
                Event::TaskStartFailed { fault, reason, .. } => Some((fault, reason)),
                Event::TaskEnded { end, .. } => panic!("it ran: {:?}", end.exit),
                _ => None,
            })
        };
        let is_said =
            |reason: &str, why: &str| reason.contains(slot.to_str().unwrap()) && reason.contains(why);
        // As it will always be.
        std::fs::hard_link(&checkpoint, &other).unwrap();
        let (fault, reason) = refused();
        assert!(fault == StartFault::Slot && is_said(&reason, "other names"), "{fault:?} {reason}");
        std::fs::remove_file(&other).unwrap();
        // Until somebody does something.
        match Immutable::make(&checkpoint) {
            None => println!("skipped: no file can be made immutable here"),
            Some(_immutable) => {
                let (fault, reason) = refused();
                assert!(fault == StartFault::Host && is_said(&reason, "checkpoint"), "{fault:?} {reason}");
            }
        }
        start();
        assert_eq!(ended(&bench).exit, Ended::Code(3), "users: {has_users}");
        assert_ne!(std::fs::metadata(&checkpoint).unwrap().uid(), former, "users: {has_users}");
    }
}

#[test]
fn r6_10_a_project_that_other_users_cannot_come_to_is_the_hosts_fault_and_not_its_jobs() {
    if !is_root() {
        return;
    }
    let bench = bench(true);
    let closed = tempfile::tempdir().unwrap();
    std::fs::set_permissions(closed.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let volume = closed.path().join("volume");
    std::fs::create_dir(&volume).unwrap();
    std::os::unix::fs::symlink(&volume, bench.data.project(&crate::support::project())).unwrap();
    bench.supervisor.start_task(bench.script("exit 3"));
    let (fault, reason) = bench.next("a start that failed", |event| match event {
        Event::TaskStartFailed { fault, reason, .. } => Some((fault, reason)),
        Event::TaskEnded { end, .. } => panic!("it ran: {:?} {}", end.exit, end.stderr),
        _ => None,
    });
    assert!(fault == StartFault::Host && reason.contains("/app"), "{fault:?} {reason}");
}

#[test]
fn r6_10_a_script_whose_interpreter_may_not_be_executed_has_failed_with_and_without_users() {
    if !is_root() {
        return;
    }
    for has_users in [true, false] {
        let bench = bench(has_users);
        let mut setup = bench.script("");
        let project = bench.data.project(&crate::support::project());
        std::fs::write(project.join("app"), "#!/etc/passwd\n").unwrap();
        setup.application = crate::support::signed(&project, "app");
        bench.supervisor.start_task(setup);
        let fault = bench.next("a start that failed", |event| match event {
            Event::TaskStartFailed { fault, .. } => Some(fault),
            Event::TaskEnded { end, .. } => panic!("it ran: {:?} {}", end.exit, end.stderr),
            _ => None,
        });
        assert_eq!(fault, StartFault::Job, "users: {has_users}");
    }
}

#[test]
fn r6_10_a_person_who_has_the_number_of_a_jobs_user_runs_an_agent_as_others_do() {
    let name = "job_users::r6_10_a_person_who_has_the_number_of_a_jobs_user_runs_an_agent_as_others_do";
    if crate::hostile_jobs::as_user(name, 1024, (2_010_000_001, 100)) {
        return;
    }
    let bench = Bench::new();
    let mut setup =
        bench.script(&format!("{TO}; echo right > $to; ln $to kept; echo 0 > boinc_finish_called"));
    setup.files = vec![output(false)];
    let project = bench.data.project(&setup.url);
    bench.supervisor.start_task(setup);
    let end = ended(&bench);
    assert_eq!((end.exit, end.outputs.len()), (Ended::Code(0), 1), "{}", end.stderr);
    // It is moved, and no copy is made of it.
    assert_eq!(std::fs::metadata(project.join("output_1")).unwrap().nlink(), 2);
}
