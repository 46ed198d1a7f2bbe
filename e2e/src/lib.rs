//! What the end-to-end tests share: real binaries, real processes, waiting on conditions.
//!
//! Nothing here is a model of Fallow: a test starts the programs that a user starts, reads what a user reads,
//! and looks at `/proc` for the rest.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "helpers of tests fail the test"
)]

mod lab;
mod ports;
mod processes;
mod programs;
mod rotel;
mod up;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub use lab::Lab;
pub use ports::free_port;
pub use processes::{Killed, Process, processes_in};
pub use programs::binary;
pub use rotel::Rotel;
pub use up::Up;

/// A command of this workspace with a quiet, known environment.
pub fn command(name: &str) -> Command {
    let mut command = Command::new(binary(name));
    for (variable, _) in std::env::vars_os() {
        let variable = variable.to_string_lossy().into_owned();
        let names_proxies = variable.to_ascii_lowercase().ends_with("_proxy");
        if variable.starts_with("OTEL_") || variable.starts_with("FALLOW_") || names_proxies {
            command.env_remove(variable);
        }
    }
    // Whoever runs tests sits at the machine.
    command.env("FALLOW_NEVER_IN_USE", "true");
    command.env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

/// BOINC's client as Debian ships it, which finds no X server where that can be had.
///
/// It speaks with each one whose socket it finds, to learn whether somebody types, and ends when that server
/// does, as those of other tests do.
pub fn boinc() -> Command {
    const HIDE: &str = "mkdir -p -m 1777 /tmp/.X11-unix && mount -t tmpfs none /tmp/.X11-unix";
    let hidden = |then: &str| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", &format!("{HIDE} && {then}"), "sh"]);
        command
    };
    let can_hide = hidden("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    if can_hide { hidden("exec boinc \"$@\"") } else { Command::new("boinc") }
}

/// What has to come is waited for at least so long: it costs nothing where it comes, and a machine may be
/// slow.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Looks again and again until there is something, for at most so long.
///
/// Every 50 ms at first; less often when it takes long, once a second at least: a look may start a program,
/// and is not to take the CPUs from what is waited for.
///
/// # Panics
/// When there is nothing by then; `what` says what was waited for.
pub fn wait_for<T>(what: &str, at_most: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < at_most, "waited {at_most:?} in vain: {what}");
        let pause = begin.elapsed() / 20;
        std::thread::sleep(pause.clamp(Duration::from_millis(50), Duration::from_secs(1)));
    }
}

/// Runs `fallow` with `--dir` and `--json`, and gives what it printed.
///
/// # Panics
/// When it fails or prints no JSON.
pub fn fallow_json(dir: &Path, arguments: &[&str]) -> serde_json::Value {
    let output = command("fallow").args(arguments).arg("--dir").arg(dir).arg("--json").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "fallow {arguments:?} ended with {}: {stderr}", output.status);
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error} in {}", String::from_utf8_lossy(&output.stdout)))
}

/// Whether a missing peer fails a test (`FALLOW_REQUIRE_PEERS=1`) instead of skipping it.
pub fn peers_required() -> bool {
    std::env::var("FALLOW_REQUIRE_PEERS").is_ok_and(|value| value == "1")
}
