//! Directories that a job has for itself in place of `/tmp`, `/var/tmp` and `/dev/shm`, and what it sees in
//! `/proc` (R6.10): with real jobs below the supervisor, as root and as an ordinary user.
//!
//! The place in which the agent's own directory lies stays everybody's: for root's tests mostly `/tmp`, for
//! an ordinary user's mostly `/dev/shm`. So files are looked for in `/var/tmp`.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use fallow_agent::confine::{Allowed, Confinement, TMP};
use fallow_agent::proc;
use fallow_agent::sys::{self, Limits};
use fallow_boinc::runtime::exit::Ended;
use fallow_client::{Event, StartFault};
use fallow_domain::{JobId, SlotId};

use crate::attach::{RIGHT, attach, status};
use crate::daemon::{Daemon, command, outcome};
use crate::hostile_jobs::{as_ordinary_user, as_user};
use crate::supervision::{Bench, SLOT};
use crate::support::{put, wait_for};
use crate::turns::working;

/// A job that never ends by itself.
const ENDLESS: &[u8] = b"#!/bin/sh\nwhile :; do sleep 1; done\n";

/// Processes of a group of their own, which end with this.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
        self.0.wait().unwrap();
    }
}

/// None where this host gives jobs no such directories.
fn bench() -> Option<Bench> {
    let dir = tempfile::tempdir().unwrap();
    let confinement = Confinement::probe(Allowed::default(), dir.path());
    let layer = confinement.layers().into_iter().find(|layer| layer.name == TMP).unwrap();
    if !layer.on {
        println!("skipped: {}", layer.why);
        assert!(std::env::var_os("FALLOW_REQUIRE_PEERS").is_none(), "{}", layer.why);
        return None;
    }
    println!("{}", layer.why);
    Some(Bench::confined_by(dir, confinement))
}

/// A file of this machine that everybody may read, as long as it is held.
struct OfAll(PathBuf);

impl OfAll {
    fn new(dir: &str, name: &str) -> Self {
        let path = Path::new(dir).join(format!("{name}-{}", std::process::id()));
        put(&path, b"of all");
        Self(path)
    }
}

impl Drop for OfAll {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Whether jobs have memory of their own, which they do not have where the agent's directory lies.
fn has_own_memory(bench: &Bench) -> bool {
    !bench.data.path().starts_with("/dev/shm")
}

#[test]
fn r6_10_a_job_and_others_see_nothing_of_each_other_in_var_tmp_and_dev_shm() {
    as_ordinary_user("private_tmp::r6_10_a_job_and_others_see_nothing_of_each_other_in_var_tmp_and_dev_shm");
    let Some(bench) = bench() else { return };
    let memory = if has_own_memory(&bench) { "/dev/shm" } else { "/var/tmp" };
    let of_all = [OfAll::new("/var/tmp", "fallow-of-all"), OfAll::new(memory, "fallow-too")];
    let text = format!(
        "ls -A /var/tmp {memory} >seen; echo mine >/var/tmp/mine-of-job; echo mine >{memory}/mine-in-memory; \
         cat /var/tmp/mine-of-job {memory}/mine-in-memory && echo >ready; until [ -f go ]; do sleep 0.1; done; exit 3"
    );
    let setup = bench.script(&text);
    let mut other = setup.clone();
    (other.job, other.slot) = (JobId(2), SlotId(1));
    bench.supervisor.start_task(setup);
    let slot = bench.data.slot(SLOT);
    wait_for("the job", || slot.join("ready").exists().then_some(()));
    // While the first has its files there.
    bench.supervisor.start_task(other);
    let second = bench.data.slot(SlotId(1));
    wait_for("its neighbour", || second.join("ready").exists().then_some(()));
    for slot in [&slot, &second] {
        let seen = std::fs::read_to_string(slot.join("seen")).unwrap();
        assert!(!seen.contains("fallow-") && !seen.contains("mine-"), "{seen}");
        assert_eq!(std::fs::read(slot.join(".fallow_tmp/mine-of-job")).unwrap(), b"mine\n");
    }
    assert!(of_all.iter().all(|file| std::fs::read(&file.0).unwrap() == b"of all"));
    assert!(
        !Path::new("/var/tmp/mine-of-job").exists() && !Path::new(memory).join("mine-in-memory").exists()
    );
    std::fs::write(slot.join("go"), "").unwrap();
    assert_eq!(bench.ended().exit, Ended::Code(3));
}

#[test]
fn r6_10_what_a_job_has_in_var_tmp_counts_as_its_slots_and_is_there_when_it_goes_on() {
    as_ordinary_user(
        "private_tmp::r6_10_what_a_job_has_in_var_tmp_counts_as_its_slots_and_is_there_when_it_goes_on",
    );
    let Some(bench) = bench() else { return };
    let once = "f=/var/tmp/kept; if [ -f $f ]; then [ $(wc -c <$f) = 5000000 ] && exit 4; exit 5; fi; \
                head -c 5000000 /dev/zero >$f && chmod 0 .fallow_tmp; until [ -f go ]; do sleep 0.1; done; exit 3";
    let setup = bench.script(once);
    let mut again = setup.clone();
    bench.supervisor.start_task(setup);
    bench.sample("a count", |sample| sample.disk.is_some_and(|disk| disk.all.0 >= 5_000_000));
    std::fs::write(bench.data.slot(SLOT).join("go"), "").unwrap();
    assert_eq!(bench.ended().exit, Ended::Code(3));
    (again.fresh, again.start) = (false, 2);
    bench.supervisor.start_task(again);
    let end = bench.ended();
    assert_eq!(end.exit, Ended::Code(4), "{}", end.stderr);
    bench.supervisor.clean(SLOT);
    wait_for("the slot to be emptied", || (!bench.data.slot(SLOT).exists()).then_some(()));
}

#[test]
fn r6_10_a_job_cannot_put_anything_in_the_place_of_its_tmp_and_what_is_there_leads_nowhere() {
    as_ordinary_user(
        "private_tmp::r6_10_a_job_cannot_put_anything_in_the_place_of_its_tmp_and_what_is_there_leads_nowhere",
    );
    let Some(bench) = bench() else { return };
    let home = tempfile::tempdir().unwrap();
    put(&home.path().join("letter"), b"precious");
    let text = format!(
        "mv .fallow_tmp moved && exit 5; rmdir .fallow_tmp && exit 6; mv -T . .fallow_tmp/x && exit 7; \
         ls -A /var/tmp >&2; echo x >/var/tmp/new && [ -e .fallow_tmp/new ] && [ ! -e {}/new ] && exit 4",
        home.path().display()
    );
    let setup = bench.script(&text);
    let slot = bench.data.slot(SLOT);
    bench.supervisor.start_task(setup.clone());
    assert_eq!(bench.ended().exit, Ended::Code(4));
    // As another who may write there has it be.
    let in_place: [&dyn Fn(&Path); 3] = [
        &|place| std::os::unix::fs::symlink(home.path(), place).unwrap(),
        &|place| std::fs::write(place, "file").unwrap(),
        &|place| std::fs::create_dir(place).unwrap(),
    ];
    for (start, put_there) in (2..).zip(in_place) {
        let place = slot.join(".fallow_tmp");
        if place.symlink_metadata().unwrap().is_dir() {
            std::fs::remove_dir_all(&place).unwrap();
        } else {
            std::fs::remove_file(&place).unwrap();
        }
        put_there(&place);
        let mut again = setup.clone();
        (again.fresh, again.start) = (false, start);
        bench.supervisor.start_task(again);
        let end = bench.ended();
        assert_eq!(end.exit, Ended::Code(4), "{}", end.stderr);
        assert!(!end.stderr.contains("letter"), "{}", end.stderr);
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
    }
}

#[test]
fn r6_10_a_file_of_a_jobs_tmp_that_has_no_name_any_more_counts_also_where_it_can_only_be_read() {
    as_ordinary_user(
        "private_tmp::r6_10_a_file_of_a_jobs_tmp_that_has_no_name_any_more_counts_also_where_it_can_only_be_read",
    );
    let Some(bench) = bench() else { return };
    let text =
        "head -c 6000000 /dev/zero >/var/tmp/f && exec 3</var/tmp/f && rm /var/tmp/f && exec sleep 1000 <&3";
    bench.supervisor.start_task(bench.script(text));
    bench.sample("a count", |sample| {
        sample.disk.is_some_and(|disk| disk.nameless.0 >= 6_000_000 && disk.all.0 >= 6_000_000)
    });
}

/// What needs memory that has a name: locks and shared memory of several processes.
const NAMED_MEMORY: &str = "import multiprocessing as m\nfrom multiprocessing import shared_memory\n\
     def add(lock, name):\n    held = shared_memory.SharedMemory(name=name)\n    with lock: held.buf[0] += 1\n    held.close()\n\
     m.set_start_method('fork')\nlock = m.Lock()\nheld = shared_memory.SharedMemory(create=True, size=100)\n\
     all = [m.Process(target=add, args=(lock, held.name)) for _ in range(4)]\n\
     [one.start() for one in all]; [one.join() for one in all]\nfound = held.buf[0]\nheld.close(); held.unlink()\n\
     exit(found + 10)";

#[test]
fn r6_10_programs_that_need_memory_with_a_name_have_it() {
    let Some(bench) = bench().filter(has_own_memory) else { return };
    let setup = bench.script(&format!("exec /usr/bin/python3 -c \"{NAMED_MEMORY}\""));
    bench.supervisor.start_task(setup);
    let end = bench.ended();
    assert_eq!(end.exit, Ended::Code(14), "{}", end.stderr);
    let left: Vec<_> =
        std::fs::read_dir("/dev/shm").unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with("psm_")), "{left:?}");
}

#[test]
fn r6_10_a_job_with_a_user_of_its_own_sees_no_process_but_its_own() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root has users for its jobs");
        return;
    }
    let Some(bench) = bench() else { return };
    let agent = std::process::id();
    let text = format!(
        "sleep 1000 & ls /proc | grep -c '^[0-9]' >&2; [ -e /proc/1 ] || [ -e /proc/{agent} ] && exit 5; \
         [ -e /proc/$! ] && kill $! && grep -q MemTotal /proc/meminfo && grep -q Name /proc/self/status && exit 4"
    );
    let setup = bench.script(&text);
    bench.supervisor.start_task(setup);
    let end = bench.ended();
    assert_eq!(end.exit, Ended::Code(4), "{}", end.stderr);
    let seen: u32 = end.stderr.trim().parse().unwrap();
    assert!((1..=5).contains(&seen), "{seen}");
}

#[test]
fn r6_10_a_job_in_namespaces_is_the_user_that_it_is_and_has_no_rights_in_them() {
    as_ordinary_user(
        "private_tmp::r6_10_a_job_in_namespaces_is_the_user_that_it_is_and_has_no_rights_in_them",
    );
    let Some(bench) = bench() else { return };
    let text = "id -u >&2; grep Cap /proc/self/status >&2; grep NoNewPrivs /proc/self/status >&2; \
                umount /var/tmp && exit 5; mount -t tmpfs none /var/tmp && exit 6; exit 4";
    bench.supervisor.start_task(bench.script(text));
    let end = bench.ended();
    assert_eq!(end.exit, Ended::Code(4), "{}", end.stderr);
    let none = ["CapInh", "CapPrm", "CapEff", "CapAmb"].map(|name| format!("{name}:\t0000000000000000"));
    assert!(none.iter().all(|line| end.stderr.contains(line)), "{}", end.stderr);
    if !rustix::process::geteuid().is_root() {
        let own = rustix::process::getuid().as_raw().to_string();
        assert_eq!(end.stderr.lines().next(), Some(own.as_str()), "{}", end.stderr);
    }
}

/// Runs the test of this name once more as root that may not mount anything. True if it was run so.
fn without_mounting(name: &str) -> bool {
    if std::env::var_os("FALLOW_TEST_NO_MOUNTS").is_some() {
        return false;
    }
    let output = Command::new("setpriv")
        .args(["--bounding-set=-sys_admin", "--inh-caps=-sys_admin"])
        .arg(std::env::current_exe().unwrap())
        .args([&format!("private_tmp::{name}"), "--exact", "--nocapture", "--test-threads=1"])
        .env("FALLOW_TEST_NO_MOUNTS", "1")
        .output()
        .unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{}: {said}", output.status);
    println!("without the right to mount:\n{said}");
    true
}

#[test]
fn r6_10_below_root_without_the_right_to_mount_a_job_that_has_a_user_of_its_own_has_them_all_the_same() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root has users for its jobs");
        return;
    }
    let name =
        "r6_10_below_root_without_the_right_to_mount_a_job_that_has_a_user_of_its_own_has_them_all_the_same";
    if without_mounting(name) {
        return;
    }
    let mine = std::fs::read_to_string("/proc/self/status").unwrap();
    let mine = mine.lines().find_map(|line| line.strip_prefix("CapEff:\t")).unwrap();
    assert_eq!(u64::from_str_radix(mine, 16).unwrap() & 1 << 21, 0, "the agent has CAP_SYS_ADMIN");
    let Some(bench) = bench() else { return };
    let of_all = OfAll::new("/var/tmp", "fallow-of-all");
    // Its program is read by a group of its project, so it has kept that.
    let text = format!(
        "id -u >&2; grep Cap /proc/self/status >&2; cat /proc/self/oom_score_adj >&2; \
         [ -e {} ] && exit 5; umount /var/tmp && exit 6; echo mine >/var/tmp/f && cat .fallow_tmp/f && exit 4",
        of_all.0.display()
    );
    bench.supervisor.start_task(bench.script(&text));
    let end = bench.ended();
    assert_eq!(end.exit, Ended::Code(4), "{}", end.stderr);
    let user: u32 = end.stderr.lines().next().unwrap().parse().unwrap();
    assert!(fallow_agent::owner::is_jobs(user), "{}", end.stderr);
    let none = ["CapInh", "CapPrm", "CapEff", "CapAmb"].map(|name| format!("{name}:\t0000000000000000"));
    assert!(none.iter().all(|line| end.stderr.contains(line)), "{}", end.stderr);
    assert!(end.stderr.contains("\n1000\n"), "{}", end.stderr);
}

#[test]
fn r6_10_below_root_without_the_right_to_mount_jobs_without_a_user_have_none_and_it_is_said() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root has users for its jobs");
        return;
    }
    if without_mounting(
        "r6_10_below_root_without_the_right_to_mount_jobs_without_a_user_have_none_and_it_is_said",
    ) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let confinement = Confinement::probe(Allowed::default(), dir.path()).without(&["user"]);
    let layer = confinement.layers().into_iter().find(|layer| layer.name == TMP).unwrap();
    assert!(!layer.on && layer.why.contains("users of jobs"), "{}", layer.why);
    assert!(confinement.places(None, dir.path(), fallow_domain::Bytes(0), false).is_none());
}

/// Runs the test of this name once more as root of a namespace of users, whose limits are its own to set.
/// True if it was run so.
fn in_own_namespace(name: &str) -> bool {
    if std::env::var_os("FALLOW_TEST_NAMESPACE").is_some() {
        return false;
    }
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user"])
        .arg(std::env::current_exe().unwrap())
        .args([&format!("private_tmp::{name}"), "--exact", "--nocapture", "--test-threads=1"])
        .env("FALLOW_TEST_NAMESPACE", "1")
        .output()
        .unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{}: {said}", output.status);
    println!("in a namespace of its own:\n{said}");
    true
}

#[test]
fn r6_10_where_namespaces_run_out_the_next_attempt_goes_without_and_the_layer_says_why() {
    if in_own_namespace("r6_10_where_namespaces_run_out_the_next_attempt_goes_without_and_the_layer_says_why")
    {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let confinement = Confinement::probe(Allowed::default(), dir.path());
    let state = || confinement.layers().into_iter().find(|layer| layer.name == TMP).unwrap();
    assert!(state().on, "{}", state().why);
    let bench = Bench::confined_by(dir, confinement.clone());
    let setup = bench.script("exit 3");
    let mut again = setup.clone();
    std::fs::write("/proc/sys/user/max_mnt_namespaces", "0").unwrap();
    bench.supervisor.start_task(setup);
    let failed = bench.next("a start that failed", |event| match event {
        Event::TaskStartFailed { fault, reason, .. } => Some((fault, reason)),
        _ => None,
    });
    assert!(failed.0 == StartFault::Host && failed.1.contains("No space left"), "{failed:?}");
    assert!(!state().on && state().why.contains("No space left"), "{}", state().why);
    again.start = 2;
    // One that must not go without does not.
    let mut strict = again.clone();
    strict.required.tmp = true;
    bench.supervisor.start_task(strict);
    let failed = bench.next("a start that failed", |event| match event {
        Event::TaskStartFailed { fault, reason, .. } => Some((fault, reason)),
        _ => None,
    });
    assert!(failed.0 == StartFault::Host && failed.1.contains("preferences require"), "{failed:?}");
    bench.supervisor.start_task(again);
    let without = bench.next("a start", |event| match event {
        Event::TaskStarted { without, .. } => Some(without),
        _ => None,
    });
    assert!(without.tmp);
    assert_eq!(bench.ended().exit, Ended::Code(3));
}

#[test]
fn r6_10_a_job_in_namespaces_counts_with_all_that_its_user_runs() {
    // A user whom no other test starts anything as, whom only root can be.
    if !rustix::process::geteuid().is_root() && std::env::var_os("FALLOW_TEST_ORDINARY").is_none() {
        println!("skipped: not root");
        return;
    }
    let name = "private_tmp::r6_10_a_job_in_namespaces_counts_with_all_that_its_user_runs";
    if as_user(name, 1024, (64_322, 64_322)) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let confinement = Confinement::probe(Allowed::default(), dir.path());
    let Some(places) = confinement.places(None, dir.path(), fallow_domain::Bytes(0), false) else {
        println!("skipped: this system gives no namespaces");
        return;
    };
    // Others of this user's, and a job that may have half as many more.
    let mut others = Command::new("sh");
    others.args(["-c", "for n in $(seq 20); do sleep 1000 & done; echo ready; wait"]);
    let mut others = Group(others.process_group(0).stdout(std::process::Stdio::piped()).spawn().unwrap());
    let mut said = [0; 6];
    others.0.stdout.take().unwrap().read_exact(&mut said).unwrap();
    let own = proc::threads_of_user(rustix::process::getuid());
    let begins_all = |limited_first: bool| {
        let slot = tempfile::tempdir_in(dir.path()).unwrap();
        std::fs::create_dir(slot.path().join(".fallow_tmp")).unwrap();
        let place = File::open(slot.path()).unwrap();
        let mut job = Command::new("/bin/sh");
        job.args(["-c", "for n in $(seq 30); do sleep 2 & done; true"]);
        job.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
        let limits = Limits { file: 0, processes: u64::from(own) + 10, brand: 0 };
        sys::work_in(&mut job, place.as_fd());
        if limited_first {
            sys::limit(&mut job, limits);
        }
        let placing = places.clone().give(&mut job).unwrap();
        if !limited_first {
            sys::limit(&mut job, limits);
        }
        let output = job.output();
        assert!(placing.failure().is_none(), "{:?}", placing.failure());
        let output = output.unwrap();
        !String::from_utf8_lossy(&output.stderr).contains("fork")
    };
    assert!(!begins_all(true));
    // In the other order, which is why there is one, where namespaces have counts of their own (Linux 5.14).
    println!("limited in the namespace alone, it began all: {}", begins_all(false));
}

#[test]
fn r6_10_a_host_that_requires_them_computes_again_when_the_system_gives_them_again() {
    if in_own_namespace("r6_10_a_host_that_requires_them_computes_again_when_the_system_gives_them_again") {
        return;
    }
    let most = |namespaces: &str| std::fs::write("/proc/sys/user/max_mnt_namespaces", namespaces).unwrap();
    let server = working(ENDLESS);
    let dir = tempfile::tempdir().unwrap();
    let dir = &dir.path().join("agent");
    put(&dir.join("preferences.toml"), b"required_layers = [\"tmp\"]\n");
    let mut run = command(dir, &["run", "--benchmark-after-ms", "10000000", "--layers-again-ms", "500"]);
    run.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let _daemon = Daemon::of(run, dir);
    let stands = |why: serde_json::Value, runs: bool| {
        wait_for(if runs { "a task that runs" } else { "that none does" }, || {
            let status = status(dir);
            let tasks = status["tasks"].as_array().map_or(&[][..], Vec::as_slice);
            let found = tasks.iter().any(|task| task["phase"] == "running");
            (status["host"]["suspended_by"] == why && found == runs).then_some(())
        });
    };
    assert_eq!(attach(dir, &server.url(""), RIGHT, &["--no-wait"]).0, 0);
    stands(serde_json::Value::Null, true);
    let pids =
        wait_for("its process", || Some(crate::spinning::running(dir)).filter(|pids| !pids.is_empty()));
    // The next start fails for want of one.
    most("0");
    for pid in pids {
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    stands("confinement".into(), false);
    let lost = || outcome(dir, &["status"]).1.contains("jobs have no /tmp of their own: ");
    assert!(lost());
    most("1000");
    stands(serde_json::Value::Null, true);
    assert!(!lost());
}

#[test]
fn r6_10_an_agent_whose_host_gives_no_namespaces_says_so_and_its_jobs_run_without() {
    let dir = tempfile::tempdir().unwrap();
    let dir = &dir.path().join("agent");
    let mut run = crate::confinement::without_namespaces(&command(dir, &["run"]));
    run.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let _daemon = Daemon::of(run, dir);
    let (code, said) = outcome(dir, &["status"]);
    let line =
        said.lines().find(|line| line.starts_with("jobs have no /tmp of their own: ")).unwrap_or_default();
    assert!(code == 0 && line.contains("the system gives no namespace for them"), "{said}");
    assert!(!said.contains("not confined: tmp"), "{said}");
    let other = tempfile::tempdir().unwrap();
    let strict = command(&other.path().join("agent"), &["run", "--require-confinement"]);
    let refused = crate::confinement::without_namespaces(&strict).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(3) && said.contains("tmp (the system gives no"), "{said}");
}
