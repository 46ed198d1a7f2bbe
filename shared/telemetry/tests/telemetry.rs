//! Telemetry as a daemon has it: a process of its own, and a real collector where one is installed.
//!
//! The collector is rotel (`e2e/peers/install.sh`), found by `FALLOW_ROTEL`, in `PATH`, or where that script puts it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests: failures are panics, and the processes they wait for are real"
)]

use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use fallow_telemetry::{KeyValue, Service, names, propagation};

const ROLE: &str = "FALLOW_TELEMETRY_TEST_ROLE";
const PARENT: &str = "FALLOW_TELEMETRY_TEST_PARENT";

/// Run as a child only: a small daemon that does one thing, says its trace context, and ends.
#[test]
fn child_that_is_a_daemon() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let name = if role == "agent" { "fallow-agent" } else { "fallow-coordinator" };
    let service = Service { name, version: "9.8.7", instance_id: format!("{role}-1") };
    let guard = match fallow_telemetry::init(&service) {
        Ok(guard) => guard,
        Err(error) => {
            println!("\nfailed: {error}");
            return;
        }
    };
    let span = tracing::info_span!("apply document", role = %role);
    if let Ok(parent) = std::env::var(PARENT) {
        assert!(propagation::set_parent(&span, &parent));
    }
    span.in_scope(|| {
        tracing::info!(version = 7, "document applied");
        tracing::debug!("a detail");
        println!("\ntraceparent {}", propagation::current_traceparent().unwrap_or_default());
    });
    let meter = fallow_telemetry::meter("test");
    names::CPU_TIME.f64_counter(&meter).add(12.5, &[KeyValue::new(names::PROJECT, "anchor")]);
    let _debt =
        names::DEBT.observed(&meter, |debt| debt.observe(300.0, &[KeyValue::new(names::PROJECT, "anchor")]));
    drop(span);
    guard.shutdown();
}

fn child(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child_that_is_a_daemon", "--nocapture", "--test-threads=1"]).env(ROLE, role);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("OTEL_") {
            command.env_remove(name);
        }
    }
    for name in ["FALLOW_LOG", "FALLOW_LOG_FORMAT"] {
        command.env_remove(name);
    }
    command
}

fn said(output: &Output, start: &str) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix(start));
    line.unwrap_or_else(|| panic!("no {start:?} in {text} {}", String::from_utf8_lossy(&output.stderr)))
        .to_owned()
}

fn log(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_log_is_for_people_by_default_and_plain_when_not_on_a_terminal() {
    let output = child("agent").output().unwrap();
    let text = log(&output);
    assert!(
        text.contains("INFO") && text.contains("document applied") && text.contains("version=7"),
        "{text}"
    );
    assert!(!text.contains("a detail") && !text.contains('\x1b'), "{text}");
    assert_eq!(said(&output, "traceparent "), "", "nothing is traced without a collector");
}

#[test]
fn the_log_is_one_json_object_a_line_if_asked() {
    let output = child("agent").env("FALLOW_LOG_FORMAT", "json").env("FALLOW_LOG", "debug").output().unwrap();
    let text = log(&output);
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('{') && line.ends_with('}')).collect();
    assert!(lines.iter().any(|line| line.contains(r#""message":"document applied""#)), "{text}");
    assert!(lines.iter().any(|line| line.contains(r#""level":"DEBUG""#)), "{text}");
}

#[test]
fn a_setting_that_means_nothing_is_named() {
    for (name, value) in [
        ("FALLOW_LOG", "fallow=loud"),
        ("FALLOW_LOG_FORMAT", "xml"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "not a place"),
    ] {
        let message = said(&child("agent").env(name, value).output().unwrap(), "failed: ");
        assert!(message.contains(name) && message.contains(value), "{message}");
    }
}

#[test]
fn r6_7_a_collector_that_is_not_there_is_reported_once_and_holds_nothing_up() {
    let endpoint = format!("http://127.0.0.1:{}", free_port());
    let start = Instant::now();
    let output = child("agent")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)
        .env("OTEL_METRIC_EXPORT_INTERVAL", "50")
        .output()
        .unwrap();
    assert!(output.status.success());
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    let text = log(&output);
    assert_eq!(text.matches("the collector does not take telemetry").count(), 1, "{text}");
    assert!(text.contains(&endpoint), "{text}");
}

#[test]
fn r6_7_a_collector_that_never_answers_holds_the_end_up_for_seconds_only() {
    // Accepts connections (the kernel does) and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let start = Instant::now();
    let output = child("agent").env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).output().unwrap();
    assert!(output.status.success());
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
}

#[test]
fn r6_7_a_real_collector_gets_traces_metrics_and_logs_in_one_trace_over_two_daemons() {
    let Some(mut rotel) = Rotel::start() else { return };
    let run = |role: &str, parent: Option<&str>| {
        let mut command = child(role);
        command
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", &rotel.endpoint)
            .env("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=lab7");
        if let Some(parent) = parent {
            command.env(PARENT, parent);
        }
        let output = command.output().unwrap();
        let traceparent = said(&output, "traceparent ");
        assert!(traceparent.starts_with("00-"), "{traceparent} {}", log(&output));
        traceparent
    };
    let change = run("coordinator", None);
    let applied = run("agent", Some(&change));
    assert_eq!(applied[3..35], change[3..35], "one trace");

    let got = rotel.everything_after(&[
        "fallow-coordinator",
        "fallow-agent",
        "service.version",
        "9.8.7",
        "agent-1",
        "deployment.environment.name",
        "lab7",
        "apply document",
        "fallow.cpu.time",
        "fallow.debt",
        "document applied",
    ]);
    // The trace id in the agent's and the coordinator's span, and in the logs that stand in them.
    assert!(got.matches(&change[3..35]).count() >= 4, "trace {} in:\n{got}", &change[3..35]);
}

/// A running collector that prints what it gets.
struct Rotel {
    process: Child,
    lines: mpsc::Receiver<String>,
    endpoint: String,
    _files: tempfile::TempDir,
}

impl Rotel {
    /// Starts it; `None`, said on standard output, where there is none and none is required.
    fn start() -> Option<Self> {
        let Some(program) = find_rotel() else {
            let missing = "rotel is not installed (e2e/peers/install.sh installs it)";
            assert!(std::env::var_os("FALLOW_REQUIRE_PEERS").is_none_or(|value| value != "1"), "{missing}");
            println!("skipped: {missing}");
            return None;
        };
        let files = tempfile::tempdir().unwrap();
        let (grpc, http) = (free_port(), free_port());
        let mut process = Command::new(program)
            .arg("start")
            .args(["--debug-log", "traces", "--debug-log", "metrics", "--debug-log", "logs"])
            .args(["--debug-log-verbosity", "detailed", "--exporter", "blackhole"])
            .args(["--otlp-grpc-endpoint", &format!("127.0.0.1:{grpc}")])
            .args(["--otlp-http-endpoint", &format!("127.0.0.1:{http}")])
            .arg("--pid-file")
            .arg(files.path().join("pid"))
            .arg("--log-file")
            .arg(files.path().join("log"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = mpsc::channel();
        forward(process.stdout.take().unwrap(), sender.clone());
        forward(process.stderr.take().unwrap(), sender);
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", grpc)).is_err() {
            assert!(Instant::now() < deadline, "rotel did not listen on port {grpc} within 20 s");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(Self { process, lines, endpoint: format!("http://127.0.0.1:{grpc}"), _files: files })
    }

    /// All it printed until each of `wanted` was in it; ends it.
    fn everything_after(&mut self, wanted: &[&str]) -> String {
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut got = String::new();
        while !wanted.iter().all(|text| got.contains(text)) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => got.push_str(&(line + "\n")),
                Err(_) => {
                    let missing: Vec<_> = wanted.iter().filter(|text| !got.contains(**text)).collect();
                    panic!("rotel did not get {missing:?} but:\n{got}");
                }
            }
        }
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        got.extend(self.lines.iter().map(|line| line + "\n"));
        got
    }
}

impl Drop for Rotel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn forward(from: impl Read + Send + 'static, to: mpsc::Sender<String>) {
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if to.send(line).is_err() {
                return;
            }
        }
    });
}

fn find_rotel() -> Option<PathBuf> {
    let given = std::env::var_os("FALLOW_ROTEL").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join("rotel"));
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home);
    let peers = std::env::var_os("FALLOW_PEERS").map(PathBuf::from);
    let installed = peers.or(cache.map(|cache| cache.join("fallow/peers"))).map(|peers| peers.join("rotel"));
    given.into_iter().chain(in_path).chain(installed).find(|program| program.is_file())
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
