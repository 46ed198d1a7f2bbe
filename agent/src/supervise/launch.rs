//! Starting a task's process.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use fallow_boinc::runtime::{files, softlink};
use fallow_client::TaskSetup;

use super::Context;
use super::slot::StartFailure;
use crate::proc;
use crate::sys::{self, Urgency};

/// Starts the program of `setup` in `slot`. Returns its process id.
pub(super) fn launch(context: &Context, setup: &TaskSetup, slot: &Path) -> Result<u32, StartFailure> {
    // Relative to the slot, as BOINC does it: what the kernel passes on to scripts is this path too. The child changes
    // its directory before it becomes the program.
    let program = softlink::target(&context.dir.project_name(&setup.url), &setup.program);
    let stderr = slot.join(files::STDERR);
    // An earlier run may have put a link or a pipe in its place; opening a pipe would wait for a reader.
    let careful = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits().cast_signed();
    if std::fs::symlink_metadata(&stderr).is_ok_and(|data| !data.is_file()) {
        crate::files::remove(&stderr).map_err(|error| StartFailure::from_io("replace", &stderr, &error))?;
    }
    let stderr = OpenOptions::new()
        .append(true)
        .create(true)
        .custom_flags(careful)
        .open(&stderr)
        .map_err(|error| StartFailure::from_io("open", &stderr, &error))?;
    let mut command = Command::new(&program);
    command
        .args(&setup.arguments)
        .current_dir(slot)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr);
    environment(&mut command, context, setup);
    let urgency = urgency(setup);
    let child = context.guard.with_line(|line| {
        sys::isolate(&mut command, urgency, line);
        command.spawn()
    });
    // The handle is dropped on purpose: the task's own thread takes the process's remains, with its resource usage.
    child.map(|child| child.id()).map_err(|error| {
        StartFailure::from_io("start", &context.dir.project(&setup.url).join(&setup.program), &error)
    })
}

/// How much of the machine a task may take.
pub(super) fn urgency(setup: &TaskSetup) -> Urgency {
    if setup.special { Urgency::Low } else { Urgency::Idle }
}

/// A clean environment: BOINC's library path, a plain locale, and the mark by which the guard knows the process.
/// What the agent's own environment holds (tokens, proxies' passwords) is not the application's business.
fn environment(command: &mut Command, context: &Context, setup: &TaskSetup) {
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("LANG", "C.UTF-8")
        .env("LD_LIBRARY_PATH", format!("../../projects/{}:.:../..", context.dir.project_name(&setup.url)))
        .env(proc::MARK, context.mark(setup.slot));
    if let Some(zone) = std::env::var_os("TZ") {
        command.env("TZ", zone);
    }
}
