//! `totient` as a process: alone, and in a slot with the test as its client.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use fallow_application::mapping::Mapping;
use fallow_application::{AppInitData, Duration as Length};
use fallow_boinc::runtime::channel::Channel;
use fallow_boinc::runtime::files;
use fallow_boinc::runtime::message::{AppStatus, ProcessControl};
use fallow_totient::Report;

/// A second or two of work.
const INPUT: &str = "from=1000000000000 to=1000030000000\n";

#[test]
fn the_sum_up_to_a_million_comes_out() {
    let dir = tempfile::tempdir().unwrap();
    let output = alone(dir.path(), &["--from", "1", "--to", "1000000"]);
    assert!(output.status.success(), "{output:?}");
    let report = Report::parse(&std::fs::read_to_string(dir.path().join("out")).unwrap()).unwrap();
    assert_eq!(report.total(), 303_963_552_392);
}

#[test]
fn a_job_that_was_killed_and_one_that_was_told_to_quit_end_with_the_bytes_of_one_that_was_not() {
    let whole = Slot::new();
    let status = whole.start().wait().unwrap();
    assert_eq!(status.code(), Some(0), "{}", whole.stderr());

    let broken = Slot::new();
    let mut app = broken.start();
    wait_for("a checkpoint", || broken.path("checkpoint").exists().then_some(()));
    app.kill().unwrap();
    app.wait().unwrap();
    let mut app = broken.start();
    let status = wait_for("a status", || broken.status());
    assert!(status.fraction_done.is_some_and(|fraction| fraction.get() > 0.0));
    assert!(broken.mapping.channels().send(Channel::ControlRequest, ProcessControl::Quit.text()));
    assert_eq!(app.wait().unwrap().code(), Some(0));
    // Unless it was faster than the request.
    let finished = broken.path(files::FINISH).exists();
    if !finished {
        assert_eq!(broken.start().wait().unwrap().code(), Some(0));
    }

    assert!(broken.stderr().contains("resumed from checkpoint at n="), "{}", broken.stderr());
    assert_eq!(std::fs::read_to_string(broken.path(files::FINISH)).unwrap(), "0\n");
    assert_eq!(broken.output(), whole.output());
}

#[test]
fn a_torn_checkpoint_costs_time_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("in"), "from=1 to=1000\n").unwrap();
    std::fs::write(dir.path().join("checkpoint"), "totient checkpoint 1\nrange from=1 to=1000\ndo").unwrap();
    let output = alone(dir.path(), &[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("the checkpoint is damaged") && stderr.contains("starting over"), "{stderr}");
    assert!(std::fs::read_to_string(dir.path().join("out")).unwrap().contains("total 304192\n"));
}

#[test]
fn bad_input_is_refused_with_the_reason_and_a_code() {
    for (arguments, input, code, says) in [
        (&["--from", "2"][..], None, 64, "usage:"),
        (&["--from", "9", "--to", "2"], None, 64, "from <= to"),
        (&[], None, 65, "cannot read the input \"in\""),
        (&[], Some("sums please"), 65, "expected \"from=A to=B\""),
        (&[], Some("from=0 to=7"), 65, "1 <= from"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        if let Some(input) = input {
            std::fs::write(dir.path().join("in"), input).unwrap();
        }
        let output = alone(dir.path(), arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(says), "{stderr}");
        assert!(!dir.path().join("out").exists());
    }
}

#[test]
fn the_executable_names_the_api_that_clients_offer_the_mapped_channel_for() {
    let executable = std::fs::read(env!("CARGO_BIN_EXE_totient")).unwrap();
    assert!(executable.windows(18).any(|window| window == b"API_VERSION_8.0.0\0"));
}

// Helpers: the client.

fn alone(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_totient")).args(arguments).current_dir(dir).output().unwrap()
}

struct Slot {
    dir: tempfile::TempDir,
    mapping: Mapping,
}

impl Slot {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mapping = Mapping::create(&dir.path().join(files::CHANNEL)).unwrap();
        let data = AppInitData {
            client_pid: std::process::id(),
            checkpoint_period: Length::from_millis(100),
            ..AppInitData::default()
        };
        std::fs::write(dir.path().join(files::INIT_DATA), data.write()).unwrap();
        std::fs::write(dir.path().join("in"), INPUT).unwrap();
        Self { dir, mapping }
    }

    fn start(&self) -> Child {
        self.mapping.channels().clear();
        let stderr =
            std::fs::OpenOptions::new().append(true).create(true).open(self.path(files::STDERR)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_totient"));
        command.current_dir(self.dir.path()).stdin(Stdio::null()).stderr(stderr).spawn().unwrap()
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn status(&self) -> Option<AppStatus> {
        AppStatus::parse(&self.mapping.channels().receive(Channel::AppStatus)?)
    }

    fn stderr(&self) -> String {
        std::fs::read_to_string(self.path(files::STDERR)).unwrap_or_default()
    }

    fn output(&self) -> Vec<u8> {
        std::fs::read(self.path("out")).unwrap()
    }
}

/// Looks again and again until there is something to see, for two minutes at most.
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(start.elapsed() < Duration::from_secs(120), "waited two minutes for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
