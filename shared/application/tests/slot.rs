//! The library under a client: real processes, a real slot, the real channel. The tests play the client.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use fallow_application::mapping::Mapping;
use fallow_application::{API_VERSION, AppInitData, Duration as Length};
use fallow_boinc::runtime::channel::Channel;
use fallow_boinc::runtime::exit::{Ended, ExitMeaning, RestartReason};
use fallow_boinc::runtime::finish::{Finish, TemporaryExit};
use fallow_boinc::runtime::message::{AppStatus, ProcessControl};
use fallow_boinc::runtime::{files, softlink};

/// More rounds than any test waits for.
const ENDLESS: &str = "1000000000";

#[test]
fn a_job_runs_to_its_end_and_says_so() {
    let slot = Slot::new("200");
    let mut app = slot.start();
    let mut last = None;
    let status = wait_for("the application's end", || {
        // A client reads until the end, and once after it.
        last = slot.status().or(last);
        app.0.try_wait().unwrap()
    });
    last = slot.status().or(last);
    assert_eq!(slot.meaning(status), ExitMeaning::Finished, "{}", slot.stderr());
    // The output is behind the soft link, and the last status says that all is done.
    let output = std::fs::read_to_string(slot.root.path().join("projects/p/job_out")).unwrap();
    assert_eq!(output.trim().parse::<u64>().unwrap(), expected(200));
    let last = last.unwrap();
    assert_eq!(last.fraction_done.map(|fraction| fraction.get()), Some(1.0));
    assert!(last.current_cpu_time > Length::ZERO);
}

#[test]
fn progress_rises_and_checkpoints_become_known() {
    let slot = Slot::new("100000");
    let _app = slot.start();
    let next = || wait_for("a status", || slot.status());
    let first = next();
    wait_for("progress", || (next().fraction_done > first.fraction_done).then_some(()));
    let checkpoint = wait_for("a checkpoint", || {
        Some(next()).filter(|s| s.checkpoint_cpu_time > first.checkpoint_cpu_time)
    });
    assert!(slot.path("checkpoint").exists());
    assert!(checkpoint.current_cpu_time >= checkpoint.checkpoint_cpu_time);
}

#[test]
fn a_suspended_application_uses_no_cpu_until_it_is_resumed() {
    let slot = Slot::new(ENDLESS);
    let app = slot.start();
    wait_for("work", || (app.cpu_ticks() > 5).then_some(()));
    slot.send(ProcessControl::Suspend);
    // Suspended: over a whole second the kernel counts one tick of 10 ms at most, for the library's own
    // thread. One that does not come to its turn has as few, and is ready to run all the while.
    wait_for("rest", || app.rests(1).then_some(()));
    assert!(app.cpu_ticks_in(Duration::from_secs(2)) <= 2);
    // It is there all the same, and not stopped by a signal.
    assert_eq!(app.state(), Some('S'));
    assert!(slot.wait_status().is_some());
    slot.send(ProcessControl::Resume);
    let before = app.cpu_ticks();
    wait_for("more work", || (app.cpu_ticks() > before + 5).then_some(()));
}

#[test]
fn quit_means_zero_and_no_finish_file() {
    let slot = Slot::new(ENDLESS);
    let mut app = slot.start();
    slot.wait_status();
    slot.send(ProcessControl::Quit);
    let status = app.wait();
    assert_eq!(status.code(), Some(0));
    assert!(!slot.path(files::FINISH).exists());
    assert!(matches!(slot.meaning(status), ExitMeaning::Restart { reason: RestartReason::Premature, .. }));
}

#[test]
fn quit_and_abort_reach_a_suspended_application() {
    for (message, code) in [(ProcessControl::Quit, 0), (ProcessControl::Abort, 194)] {
        let slot = Slot::new(ENDLESS);
        let mut app = slot.start();
        slot.send(ProcessControl::Suspend);
        slot.send(message);
        assert_eq!(app.wait().code(), Some(code));
    }
}

#[test]
fn an_aborted_application_exits_with_194() {
    let slot = Slot::new(ENDLESS);
    let mut app = slot.start();
    slot.send(ProcessControl::Abort);
    let status = app.wait();
    assert!(matches!(slot.meaning(status), ExitMeaning::Failed { exit_status: 194, .. }));
}

#[test]
fn an_error_of_the_application_is_the_jobs_error() {
    let slot = Slot::new("many");
    let mut app = slot.start();
    let status = app.wait();
    assert!(matches!(slot.meaning(status), ExitMeaning::Failed { exit_status: 1, .. }));
    let finish = Finish::read(&std::fs::read(slot.path(files::FINISH)).unwrap());
    assert_eq!((finish.status, finish.message.as_deref()), (1, Some("invalid digit found in string")));
}

#[test]
fn an_application_ends_when_its_client_that_is_its_parent_is_killed() {
    let slot = Slot::new(ENDLESS);
    // The shell is the client: it says its number, waits for the slot to be ready, and starts the
    // application.
    let script = "echo $$ > pid.new; mv pid.new pid; read ready; \"$0\" 2>> stderr.txt & echo $! > app.new; mv app.new app; wait";
    let mut client = Command::new("sh")
        .args(["-c", script])
        .arg(counter())
        .current_dir(slot.dir())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let number = |name: &str| -> u32 {
        wait_for("a process number", || std::fs::read_to_string(slot.path(name)).ok()).trim().parse().unwrap()
    };
    slot.write_init_data(number("pid"));
    std::io::Write::write_all(&mut client.stdin.take().unwrap(), b"\n").unwrap();
    let app = number("app");
    slot.wait_status();
    client.kill().unwrap();
    client.wait().unwrap();
    assert_gone_within_10_s(app);
    assert!(slot.stderr().contains("the client is gone"), "{}", slot.stderr());
}

#[test]
fn an_application_ends_when_its_client_that_is_not_its_parent_is_killed() {
    let slot = Slot::new(ENDLESS);
    let mut client = Command::new("sleep").arg("1000").spawn().unwrap();
    slot.write_init_data(client.id());
    let mut app = slot.spawn();
    slot.wait_status();
    client.kill().unwrap();
    // Not waited for: a client that nobody has buried yet is gone, too.
    assert_gone_within_10_s(app.0.id());
    assert_eq!(app.wait().code(), Some(0));
    client.wait().unwrap();
}

#[test]
fn a_killed_application_resumes_and_ends_with_the_same_output() {
    let slot = loop {
        let slot = Slot::new("3000");
        let mut app = slot.start();
        wait_for("a checkpoint", || slot.path("checkpoint").exists().then_some(()));
        app.0.kill().unwrap();
        // It may have been done before this test came to its turn.
        match slot.meaning(app.wait()) {
            ExitMeaning::Finished => {}
            ExitMeaning::Restart { reason: RestartReason::Stopped(9), .. } => break slot,
            other => panic!("{other:?}"),
        }
    };
    let mut app = slot.start();
    assert!(app.wait().success());
    assert!(slot.stderr().contains("resumed from checkpoint at round"), "{}", slot.stderr());
    let output = std::fs::read_to_string(slot.root.path().join("projects/p/job_out")).unwrap();
    assert_eq!(output.trim().parse::<u64>().unwrap(), expected(3_000));
}

#[test]
fn a_second_instance_waits_until_the_first_has_left_the_slot() {
    let slot = Slot::new(ENDLESS);
    let mut first = slot.start();
    slot.wait_status();
    let second = slot.spawn();
    wait_for("the second to wait", || second.rests(0).then_some(()));
    let before = second.cpu_ticks();
    first.0.kill().unwrap();
    first.wait();
    wait_for("the second to work", || (second.cpu_ticks() > before + 5).then_some(()));
}

#[test]
#[ignore = "takes 35 s: BOINC's patience with another instance"]
fn a_second_instance_asks_for_ten_minutes_if_the_first_stays() {
    let slot = Slot::new(ENDLESS);
    let _first = slot.start();
    slot.wait_status();
    let mut second = slot.spawn();
    let status = second.wait();
    let exit = TemporaryExit::read(&std::fs::read(slot.path(files::TEMPORARY_EXIT)).unwrap()).unwrap();
    assert_eq!((status.code(), exit.delay), (Some(0), Length::from_mins(10)));
}

#[test]
fn without_a_client_the_same_program_runs_alone() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("in"), "50\n").unwrap();
    let output = Command::new(counter()).current_dir(dir.path()).output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("running standalone"));
    let number = std::fs::read_to_string(dir.path().join("out")).unwrap();
    assert_eq!(number.trim().parse::<u64>().unwrap(), expected(50));
    assert!(!dir.path().join(files::FINISH).exists());
}

#[test]
fn an_init_data_that_cannot_be_read_means_standalone() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("in"), "5\n").unwrap();
    std::fs::write(dir.path().join(files::INIT_DATA), "<app_init_data>\n<client_pid>1</client_pid>\n")
        .unwrap();
    let output = Command::new(counter()).current_dir(dir.path()).output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot read the init_data.xml"));
}

#[test]
fn servers_find_the_api_version_in_the_executable() {
    let executable = std::fs::read(counter()).unwrap();
    assert!(executable.windows(API_VERSION.len()).any(|window| window == API_VERSION));
}

// Helpers: the client.

/// What the counter writes after so many rounds.
fn expected(rounds: u64) -> u64 {
    (0..rounds * 100_000)
        .fold(1, |number: u64, _| number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1))
}

/// The example, which `cargo test` builds beside the tests.
fn counter() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let example = tests.parent().unwrap().parent().unwrap().join("examples/counter");
    assert!(
        example.exists(),
        "build {} first: cargo build -p fallow-application --examples",
        example.display()
    );
    example
}

/// A client's data directory with one slot in it, laid out as a client does.
struct Slot {
    root: tempfile::TempDir,
    mapping: Mapping,
}

impl Slot {
    fn new(input: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let (slot, project) = (root.path().join("slots/0"), root.path().join("projects/p"));
        std::fs::create_dir_all(&slot).unwrap();
        std::fs::create_dir_all(&project).unwrap();
        std::fs::write(project.join("job_in"), format!("{input}\n")).unwrap();
        std::fs::write(slot.join("in"), softlink::write(&softlink::target("p", "job_in"))).unwrap();
        std::fs::write(slot.join("out"), softlink::write(&softlink::target("p", "job_out"))).unwrap();
        let mapping = Mapping::create(&slot.join(files::CHANNEL)).unwrap();
        Self { root, mapping }
    }

    fn dir(&self) -> PathBuf {
        self.root.path().join("slots/0")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    fn write_init_data(&self, client_pid: u32) {
        let data =
            AppInitData { client_pid, checkpoint_period: Length::from_millis(200), ..AppInitData::default() };
        std::fs::write(self.path(files::INIT_DATA), data.write()).unwrap();
    }

    /// Starts the application with this process as its client.
    fn start(&self) -> App {
        self.write_init_data(std::process::id());
        self.mapping.channels().clear();
        self.spawn()
    }

    fn spawn(&self) -> App {
        let stderr =
            std::fs::OpenOptions::new().append(true).create(true).open(self.path(files::STDERR)).unwrap();
        let mut command = Command::new(counter());
        App(command.current_dir(self.dir()).stdin(Stdio::null()).stderr(stderr).spawn().unwrap())
    }

    fn send(&self, message: ProcessControl) {
        wait_for("an empty channel", || {
            self.mapping.channels().send(Channel::ControlRequest, message.text()).then_some(())
        });
    }

    fn status(&self) -> Option<AppStatus> {
        AppStatus::parse(&self.mapping.channels().receive(Channel::AppStatus)?)
    }

    fn wait_status(&self) -> Option<AppStatus> {
        Some(wait_for("a status", || self.status()))
    }

    fn stderr(&self) -> String {
        std::fs::read_to_string(self.path(files::STDERR)).unwrap_or_default()
    }

    /// What a client makes of the end.
    fn meaning(&self, status: ExitStatus) -> ExitMeaning {
        let finish = std::fs::read(self.path(files::FINISH)).ok().map(|bytes| Finish::read(&bytes));
        let pause = std::fs::read(self.path(files::TEMPORARY_EXIT)).ok();
        let pause = pause.and_then(|bytes| TemporaryExit::read(&bytes));
        Ended::from_wait_status(status.into_raw()).meaning(finish.as_ref(), pause.as_ref())
    }
}

/// A running application, killed with the test.
struct App(Child);

impl App {
    fn wait(&mut self) -> ExitStatus {
        wait_for("the application's end", || self.0.try_wait().unwrap())
    }

    fn state(&self) -> Option<char> {
        stat(self.0.id())?.first()?.chars().next()
    }

    /// User and system time in ticks of 10 ms.
    fn cpu_ticks(&self) -> u64 {
        let stat = stat(self.0.id()).unwrap();
        stat[11].parse::<u64>().unwrap() + stat[12].parse::<u64>().unwrap()
    }

    /// Whether it used so many ticks at most over a second, and is not ready to run after that.
    fn rests(&self, ticks: u64) -> bool {
        self.cpu_ticks_in(Duration::from_secs(1)) <= ticks && self.state() == Some('S')
    }

    fn cpu_ticks_in(&self, window: Duration) -> u64 {
        let before = self.cpu_ticks();
        pause(window);
        self.cpu_ticks() - before
    }
}

impl Drop for App {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The fields of `/proc/PID/stat` from the state on; none if there is no such process.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    Some(text.rsplit_once(") ")?.1.split(' ').map(str::to_owned).collect())
}

fn assert_gone_within_10_s(pid: u32) {
    let start = now();
    wait_for("the application's end", || match stat(pid) {
        None => Some(()),
        // Dead, and not yet buried by whoever inherited it.
        Some(fields) => (fields[0] == "Z").then_some(()),
    });
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

/// Looks again and again until there is something to see, for two minutes at most.
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(start.elapsed() < Duration::from_secs(120), "waited two minutes for {what}");
        pause(Duration::from_millis(20));
    }
}

#[expect(clippy::disallowed_methods, reason = "the tests play a client, which has a clock")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "the tests play a client, which has a clock")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
