//! Control groups of tasks (R6.10), in real ones: below a group that the test makes for itself where version
//! 2 is mounted. It need have no controllers there; the virtual machine of `e2e/vm/unit` has them.

use std::os::fd::AsFd as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fallow_agent::cgroup::{self, Group};
use fallow_agent::confine::{Allowed, Confinement};
use fallow_agent::supervise::groups::Groups;
use fallow_agent::sys;
use fallow_boinc::runtime::exit::Ended;

use crate::daemon::{self, Daemon, outcome};
use crate::hostile_jobs::{NOBODY, quick_dir};
use crate::supervision::{Bench, SLOT};
use crate::support::{agent, is_alive, wait_for};

/// Tells a test that it runs once more as an ordinary user, in the leaf of this group.
const GROUP: &str = "FALLOW_TEST_GROUP";

/// A control group of a test's own.
pub(crate) struct Place {
    parent: Group,
    name: String,
    pub(crate) path: PathBuf,
}

impl Place {
    /// None where this machine gives no group to whoever tests.
    pub(crate) fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mounts = cgroup::mounts(&std::fs::read_to_string("/proc/self/mountinfo").unwrap());
        let name = format!("guest-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let made = mounts.iter().find_map(|(_, at)| {
            let parent = Group::open(at).ok()?;
            let path = parent.make(&name).ok()?.path().to_path_buf();
            Some(Self { parent, name: name.clone(), path })
        });
        let must = std::env::var("FALLOW_REQUIRE_PEERS").is_ok_and(|value| value == "1");
        let is_root = rustix::process::geteuid().is_root();
        assert!(
            made.is_some() || !(must && is_root),
            "no control group of version 2 can be made: {mounts:?}"
        );
        if made.is_none() {
            println!("skipped: this user can make no control group of version 2");
        }
        made
    }

    /// The same, with a controller that it can hand on, whichever this machine has.
    fn with_controller() -> Option<(Self, String)> {
        let place = Self::new()?;
        let first = |group: &Group| {
            group.read("cgroup.controllers").unwrap().split_whitespace().next().map(str::to_owned)
        };
        // The group above may have one that it has not handed on yet.
        if let (None, Some(controller)) = (first(&place.group()), first(&place.parent)) {
            let _ = place.parent.write("cgroup.subtree_control", &format!("+{controller}"));
        }
        let controller = first(&place.group());
        if controller.is_none() {
            println!("skipped: no controller of version 2 can be had");
        }
        Some((place, controller?))
    }

    pub(crate) fn group(&self) -> Group {
        Group::open(&self.path).unwrap()
    }

    /// A process in one of the groups below it.
    pub(crate) fn sleeper(group: &Group) -> Child {
        let door = group.file("cgroup.procs", true).unwrap();
        let mut command = Command::new("sleep");
        sys::enter(&mut command, door.as_fd());
        command.arg("1000").spawn().unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.group().kill();
        let _ = self.parent.remove_within(&self.name, Duration::from_secs(10));
    }
}

/// The group that a process is in, as its path ends.
fn group_of(pid: u32) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    cgroup::path_in(&text).unwrap().display().to_string()
}

fn only(group: &Group) -> Group {
    let children = group.children();
    assert_eq!(children.len(), 1, "{children:?}");
    group.child(&children[0]).unwrap()
}

#[test]
fn r6_10_a_task_is_in_a_group_of_its_own_and_ends_with_whatever_nothing_else_tells_of() {
    let Some(place) = Place::new() else { return };
    let bench = Bench::in_groups(tempfile::tempdir().unwrap(), Confinement::none(), &place.path);
    let jobs = only(&place.group());
    let sign = tempfile::NamedTempFile::new().unwrap();
    let prlimit = if cfg!(target_arch = "aarch64") { 261 } else { 302 };
    // Neither session nor environment nor number nor name say whose it is.
    let text = format!(
        "setsid env -i perl -e 'my $less = pack(\"QQ\", 5, 5); syscall({prlimit}, 0, 10, $less, 0) == 0 or die; \
         fork and exit; \
         setpgrp; $0 = \"kworker/0:1\"; open F, \">\", \"{0}\"; print F $$; close F; sleep 1000' &\n\
         until [ -s {0} ]; do sleep 0.01; done; until [ -e go ]; do sleep 0.05; done; exit 3",
        sign.path().display()
    );
    bench.supervisor.start_task(bench.script(&text));
    let first = bench.started();
    let left: u32 = wait_for("what it leaves", || std::fs::read_to_string(sign.path()).ok()?.parse().ok());
    let in_groups = [group_of(first), group_of(left)];
    std::fs::write(bench.data.slot(SLOT).join("go"), "").unwrap();
    let end = bench.ended();
    assert!(in_groups[0].ends_with("/slot-0-0") && in_groups[0] == in_groups[1], "{in_groups:?}");
    assert_eq!((end.exit, end.memory_exceeded), (Ended::Code(3), None));
    assert!(!is_alive(left), "{left} is left");
    assert_eq!(jobs.children(), Vec::<String>::new());
    bench.supervisor.stop(Duration::ZERO);
    wait_for("the end of all groups", || place.group().children().is_empty().then_some(()));
}

#[test]
fn the_time_of_children_that_nobody_waits_for_counts_in_a_group() {
    let Some(place) = Place::new() else { return };
    let bench = Bench::in_groups(tempfile::tempdir().unwrap(), Confinement::none(), &place.path);
    // Each has ended before the next look, and is taken away by the kernel.
    let text = "exec perl -e '$SIG{CHLD} = \"IGNORE\"; for (1..5) { my $child = fork; \
                if (!$child) { 1 while (times)[0] < 0.1; exit } waitpid $child, 0 }'";
    bench.supervisor.start_task(bench.script(text));
    bench.started();
    let end = bench.ended();
    assert_eq!(end.exit, Ended::Code(0));
    assert!(end.cpu_time.as_secs_f64() >= 0.45, "{} of half a second", end.cpu_time);
}

/// Runs a test once more as an ordinary user, in the leaf of a group that is that user's. Returns the group
/// to that run, and None to the first.
pub(crate) fn as_nobody(name: &str) -> Option<PathBuf> {
    if let Some(place) = std::env::var_os(GROUP) {
        return Some(place.into());
    }
    let place = Place::new().filter(|_| rustix::process::geteuid().is_root())?;
    let leaf = place.group().make("leaf").unwrap();
    for file in ["", "cgroup.procs", "cgroup.subtree_control", "leaf", "leaf/cgroup.procs"] {
        chown(place.path.join(file), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let dir = quick_dir();
    chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    std::fs::set_permissions(&place.path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let door = leaf.file("cgroup.procs", true).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture"]).env(GROUP, &place.path).env("TMPDIR", dir.path());
    command.uid(NOBODY).gid(NOBODY);
    sys::enter(&mut command, door.as_fd());
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let _ = fallow_agent::tree::remove(dir.path());
    assert!(output.status.success() && text[0].contains("1 passed"), "{text:?}");
    None
}

/// What a job tries with its group, each by name.
const TRIES: &str = r#"
leaves() { echo 0 >GROUP/leaf/cgroup.procs; }
divides() { mkdir "$own/mine" && rmdir "$own/mine"; }
thaws() { echo 0 >"$own/cgroup.freeze"; }
closes() { chmod 0 "$own/cgroup.kill" "$own/cgroup.procs" "$own" "${own%/*}" GROUP/cgroup.procs GROUP; }
own=$(ls -d GROUP/fallow-jobs-*/slot-*)
for what in divides thaws leaves closes; do
    if ($what) 2>/dev/null; then echo "$what"; fi
done >said
(setsid sleep 1000 >/dev/null 2>&1 &)
exit 3
"#;

#[test]
fn r6_10_a_confined_job_of_an_ordinary_user_changes_nothing_of_its_group_and_what_it_closes_is_removed_all_the_same()
 {
    let Some(place) = as_nobody(&format!("groups::{NAME}")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let all = Confinement::probe(Allowed::default(), dir.path());
    let is_on = |layer: &str| all.layers().iter().any(|it| it.name == layer && it.on);
    let confined = if is_on("files") { "closes\n" } else { "divides\nthaws\nleaves\ncloses\n" };
    drop(dir);
    // One that nothing confines shows that the rest is there to be tried; one that has left cannot be held.
    for (is_confined, can) in [(false, "divides\nthaws\nleaves\ncloses\n"), (true, confined)] {
        let dir = tempfile::tempdir().unwrap();
        let confinement = if is_confined {
            Confinement::probe(Allowed::default(), dir.path())
        } else {
            Confinement::none()
        };
        let bench = Bench::in_groups(dir, confinement, &place);
        bench.supervisor.start_task(bench.script(&TRIES.replace("GROUP", &place.display().to_string())));
        bench.started();
        let end = bench.ended();
        let said = || std::fs::read_to_string(bench.data.slot(SLOT).join("said")).unwrap();
        assert_eq!((end.exit, said().as_str()), (Ended::Code(3), can), "confined: {is_confined}");
        // The next one has a group all the same.
        bench.supervisor.start_task(bench.script("cat /proc/self/cgroup >said; exit 4"));
        bench.started();
        assert_eq!(bench.ended().exit, Ended::Code(4), "confined: {is_confined}");
        assert!(said().trim_end().ends_with("/slot-0-1"), "confined: {is_confined}: {}", said());
        let jobs = Group::open(&place).unwrap();
        let name = jobs.children().into_iter().find(|name| name.starts_with("fallow-jobs-")).unwrap();
        assert_eq!(jobs.child(&name).unwrap().children(), Vec::<String>::new(), "confined: {is_confined}");
        bench.supervisor.stop(Duration::ZERO);
        wait_for("the end of the bench's groups", || (jobs.children() == ["leaf"]).then_some(()));
    }
}

const NAME: &str = "r6_10_a_confined_job_of_an_ordinary_user_changes_nothing_of_its_group_and_what_it_closes_is_removed_all_the_same";

#[test]
fn r6_10_what_a_neighbour_closes_of_a_group_before_it_is_opened_is_opened_all_the_same() {
    let name = "groups::r6_10_what_a_neighbour_closes_of_a_group_before_it_is_opened_is_opened_all_the_same";
    let Some(place) = as_nobody(name) else { return };
    let above = Group::open(&place).unwrap();
    let group = above.make("closed").unwrap();
    let close = |file: &str| {
        std::fs::set_permissions(group.path().join(file), std::fs::Permissions::from_mode(0o000)).unwrap();
    };
    for closed in ["cgroup.procs", "cgroup.events", "."] {
        close(closed);
    }
    assert_eq!(group.read("cgroup.procs").unwrap(), "");
    group.file("cgroup.procs", true).unwrap();
    assert!(!group.is_populated() && group.read("cgroup.events").is_ok());
    // As the guard opens it that is started while jobs run.
    close(".");
    drop(Group::open(group.path()).unwrap());
    assert!(above.read("cgroup.controllers").is_ok());
    above.remove_within("closed", Duration::from_secs(1)).unwrap();
}

#[test]
fn r6_10_a_task_for_which_no_group_can_be_made_runs_without() {
    let Some(place) = Place::new() else { return };
    let bench = Bench::in_groups(tempfile::tempdir().unwrap(), Confinement::none(), &place.path);
    place.group().remove_within(&place.group().children()[0], Duration::from_secs(1)).unwrap();
    for code in [3, 4] {
        bench.supervisor.start_task(bench.script(&format!("exit {code}")));
        bench.started();
        assert_eq!(bench.ended().exit, Ended::Code(code));
    }
}

#[test]
fn r6_10_groups_that_an_earlier_life_left_are_killed_and_removed_and_others_are_left_alone() {
    let Some(place) = Place::new() else { return };
    let group = place.group();
    // As a kill leaves it.
    let before =
        std::mem::ManuallyDrop::new(Groups::below(&place.path, "/agent:1.2:", "before", Duration::ZERO));
    let jobs = Group::open(before.jobs().unwrap()).unwrap();
    let inner = jobs.make("slot-0-0").unwrap().make("inner").unwrap();
    let others = group.make("fallow-jobs-0-another").unwrap();
    group.make("somebodys").unwrap();
    group.make("fallow-agent-1.1").unwrap();
    // What only begins as the agents' own do, empty as it is.
    group.make("fallow-agent-2.service").unwrap().make("inner").unwrap();
    group.make("fallow-agent-2.2").unwrap().make("inner").unwrap();
    let (mut own, mut other) = (Place::sleeper(&inner), Place::sleeper(&others));
    let now = Groups::below(&place.path, "/agent:1.2:", "now", Duration::ZERO);
    now.sweep();
    wait_for("the end of what was left", || own.try_wait().unwrap());
    let mut left = group.children();
    left.sort();
    let named = now.jobs().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    let others = ["fallow-agent-2.2", "fallow-agent-2.service", "fallow-jobs-0-another", "somebodys"];
    let mut expected: Vec<String> = others.into_iter().map(str::to_owned).chain([named]).collect();
    expected.sort();
    assert_eq!(left, expected);
    assert_eq!(group.child("fallow-agent-2.service").unwrap().children(), ["inner"]);
    assert!(other.try_wait().unwrap().is_none(), "another agent's process was killed");
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn r6_10_the_guard_ends_what_is_in_the_groups_of_tasks_and_removes_them() {
    let Some(place) = Place::new() else { return };
    let group = place.group();
    let jobs = group.make("fallow-jobs-1-guarded").unwrap();
    let mut task = Place::sleeper(&jobs.make("slot-0-0").unwrap());
    let mut guard = Command::new(agent())
        .args(["guard", "--mark", "no such mark", "--grace-ms", "300", "--groups"])
        .arg(jobs.path())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(task.try_wait().unwrap().is_none());
    drop(guard.stdin.take());
    wait_for("the task's end", || task.try_wait().unwrap());
    assert!(guard.wait().unwrap().success());
    assert_eq!(group.children(), Vec::<String>::new());
}

#[test]
fn r6_10_after_a_kill_of_the_agent_alone_its_group_takes_processes_again() {
    let Some((place, controller)) = Place::with_controller() else { return };
    let group = place.group();
    let jobs = group.make("fallow-jobs-1-divided").unwrap();
    for divided in [&group, &jobs] {
        divided.write("cgroup.subtree_control", &format!("+{controller}")).unwrap();
    }
    let mut task = Place::sleeper(&jobs.make("slot-0-0").unwrap());
    let guard = Command::new(agent())
        .args(["guard", "--mark", "no such mark", "--grace-ms", "300", "--groups"])
        .arg(jobs.path())
        .stdin(Stdio::null())
        .status()
        .unwrap();
    assert!(guard.success() && !task.wait().unwrap().success());
    // As a launcher puts the next agent there.
    let mut next = Place::sleeper(&group);
    next.kill().unwrap();
    next.wait().unwrap();
}

#[test]
fn r6_10_a_group_takes_processes_again_also_while_something_is_left_below_it() {
    let Some((place, controller)) = Place::with_controller() else { return };
    let group = place.group();
    let jobs = group.make("fallow-jobs-1-left").unwrap();
    let slot = jobs.make("slot-0-0").unwrap();
    // The job has divided its own group besides.
    for divided in [&group, &jobs, &slot] {
        divided.write("cgroup.subtree_control", &format!("+{controller}")).unwrap();
    }
    // As if nothing could end it.
    let mut left = Place::sleeper(&slot.make("inner").unwrap());
    let busy = group.remove_within("fallow-jobs-1-left", Duration::from_secs(1)).unwrap_err();
    assert_eq!(busy.kind(), std::io::ErrorKind::ResourceBusy);
    group.write("cgroup.subtree_control", &format!("-{controller}")).unwrap();
    let mut next = Place::sleeper(&group);
    for process in [&mut left, &mut next] {
        process.kill().unwrap();
        process.wait().unwrap();
    }
}

#[test]
fn r6_10_groups_are_removed_however_deep_they_lie() {
    let Some(place) = Place::new() else { return };
    let group = place.group();
    let jobs = group.make("fallow-jobs-1-deep").unwrap();
    let mut inner = jobs.make("slot-0-0").unwrap();
    for _ in 0..100 {
        inner = inner.make("inner").unwrap();
    }
    jobs.make("slot-1-0").unwrap().make("beside").unwrap();
    // It may not hold each of them open.
    let guard = Command::new("sh")
        .args(["-c", "ulimit -n 40; exec \"$0\" \"$@\""])
        .arg(agent())
        .args(["guard", "--mark", "no such mark", "--grace-ms", "300", "--groups"])
        .arg(jobs.path())
        .stdin(Stdio::null())
        .status()
        .unwrap();
    assert!(guard.success());
    assert_eq!(group.children(), Vec::<String>::new());
}

#[test]
fn r6_10_an_agent_divides_its_group_if_it_is_alone_there_and_leaves_it_as_it_was() {
    let Some(place) = Place::new() else { return };
    if Path::new("/run/systemd/system").exists() {
        return println!("skipped: systemd manages the groups of this machine (see e2e/vm/unit)");
    }
    let layer = |dir: &Path| {
        let (code, said) = outcome(dir, &["status", "--json"]);
        assert_eq!(code, 0, "{said}");
        let status: serde_json::Value = serde_json::from_str(&said).unwrap();
        let layers = status["confinement"].as_array().unwrap().clone();
        let layer = layers.into_iter().find(|layer| layer["name"] == "groups").unwrap();
        (layer["on"].as_bool().unwrap(), layer["why"].as_str().unwrap().to_owned())
    };
    let start = |dir: &Path| {
        let mut run = daemon::command(dir, &["run"]);
        run.stdout(Stdio::null()).stderr(Stdio::null());
        let door = place.group().file("cgroup.procs", true).unwrap();
        sys::enter(&mut run, door.as_fd());
        Daemon::of(run, dir)
    };
    let dir = tempfile::tempdir().unwrap();
    {
        let mut agent = start(dir.path());
        let (is_on, why) = layer(dir.path());
        assert!(is_on && why.starts_with("control groups"), "{why}");
        assert_eq!(place.group().processes().unwrap(), Vec::<u32>::new(), "it has moved");
        let mut names = place.group().children();
        names.sort();
        assert!(
            matches!(&names[..], [a, b] if a.starts_with("fallow-agent-") && b.starts_with("fallow-jobs-"))
        );
        assert_eq!(outcome(dir.path(), &["stop"]).0, 0);
        assert_eq!(agent.code(), Some(0));
        assert_eq!(place.group().children(), Vec::<String>::new());
    }
    let mut beside = Place::sleeper(&place.group());
    let mut agent = start(dir.path());
    let (is_on, why) = layer(dir.path());
    assert!(!is_on && why.contains("other processes are in the agent's control group"), "{why}");
    assert_eq!(outcome(dir.path(), &["stop"]).0, 0);
    assert_eq!(agent.code(), Some(0));
    beside.kill().unwrap();
    beside.wait().unwrap();
}
