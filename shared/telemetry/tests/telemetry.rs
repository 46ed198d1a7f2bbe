//! Telemetry as a daemon has it: a process of its own. Beside a real collector the end-to-end tests show it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests: failures are panics, and the processes they wait for are real"
)]

use std::net::TcpListener;
use std::process::{Command, Output};
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
    let endpoint = "http://127.0.0.1:9";
    let output = ends_soon(|| {
        let mut child = child("agent");
        child.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).env("OTEL_METRIC_EXPORT_INTERVAL", "50");
        child
    });
    let text = log(&output);
    assert_eq!(text.matches("the collector does not take telemetry").count(), 1, "{text}");
    assert!(text.contains(endpoint), "{text}");
}

#[test]
fn r6_7_a_collector_that_never_answers_holds_the_end_up_for_seconds_only() {
    // Accepts connections (the kernel does) and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    ends_soon(|| {
        let mut child = child("agent");
        child.env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint);
        child
    });
}

/// Runs it. Something else on this machine may hold one of them up, but not one after the other.
fn ends_soon(child: impl Fn() -> Command) -> Output {
    let mut runs = (0..15).map(|_| {
        let start = Instant::now();
        let output = child().output().unwrap();
        assert!(output.status.success());
        (output, start.elapsed())
    });
    let soon = runs.find(|(_, took)| *took < Duration::from_secs(8));
    soon.expect("each takes longer than eight seconds").0
}
