//! Starting a task's process.

use std::ffi::OsString;
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use fallow_boinc::runtime::{files, softlink};
use fallow_client::{StartFault, TaskSetup};
use fallow_domain::Bytes;
use fallow_policy::confinement::TaskLayers;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use super::Context;
use super::meter::Meter;
use super::slot::{self, StartFailure};
use super::slot_dir::SlotDir;
use super::verify::Program;
use crate::confine::{self, Reach};
use crate::owner::JobUser;
use crate::proc;
use crate::sys::{self, Limits, Urgency};

/// What a single file of a task may hold at least. The kernel's limit holds for files in memory too, of which
/// no project thinks when it sets `rsc_disk_bound`.
const FILE_FLOOR: u64 = 4 << 30;

/// So many processes and threads may come to those that the job's user has when a task starts before the
/// kernel gives the task no more: what a job does that forks without end comes to this before it is found
/// out. Root has no such limit.
const THREADS_BESIDE: u32 = 8_192;

/// What users of jobs are called in their environment.
const USER: &str = "fallow-job";

/// The user that the job of `setup` runs as, if not as the agent's own. What there is for it in its project's
/// directory is opened to it.
///
/// # Errors
/// Also that this user cannot do on this host what its job needs. That is no job's fault, and would look as
/// if it were.
pub(super) fn user(
    context: &Context,
    setup: &TaskSetup,
    place: &SlotDir,
) -> Result<Option<JobUser>, StartFailure> {
    let Some(owner) = slot::owner(context, setup)? else { return Ok(None) };
    let user = JobUser { owner, groups: slot::let_read(context, setup)? };
    let program = context.dir.project(&setup.url).join(&setup.program);
    let cannot = |error: io::Error| {
        let why = format!("{} cannot be read by its job's user: {error}", program.display());
        StartFailure::new(StartFault::Host, why)
    };
    // On the way that the job has to it.
    let slot = place.fd().try_clone_to_owned().map_err(cannot)?;
    let way = way_to_program(context, setup);
    sys::as_user(user.clone(), move || Ok(accessat(slot, way, Access::READ_OK, AtFlags::empty())?))
        .map_err(cannot)?;
    let closed = || confine::closed_gpu(Path::new("/dev"), &setup.init_data.gpu_type);
    match setup.special.then(closed).flatten() {
        None => Ok(Some(user)),
        Some(node) => {
            let why = format!(
                "{} is root's alone, and the job's user cannot use it: open it to a group, such as render",
                node.display()
            );
            Err(StartFailure::new(StartFault::Host, why))
        }
    }
}

/// Starts the program of `setup` in its slot as `user`, if there is one, and where it can have one in a
/// control group, which `meter` is told. Returns its process id, and which layers it goes without.
pub(super) fn launch(
    context: &Context,
    setup: &TaskSetup,
    place: &SlotDir,
    (program, user): (&Program, Option<&JobUser>),
    meter: &Meter,
) -> Result<(u32, TaskLayers), StartFailure> {
    // Relative to the slot, as BOINC does it: what the kernel passes on to scripts is this path too. The
    // child goes into the slot before it becomes the program.
    let mut command = Command::new(way_to_program(context, setup));
    let stderr = place
        .append(files::STDERR)
        .map_err(|error| StartFailure::from_io("open", &place.path().join(files::STDERR), &error))?;
    command.args(&setup.arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    environment(&mut command, context, setup, place);
    if user.is_some() {
        // The system has no name for that user, and there are programs that end where they find none.
        command.env("USER", USER).env("LOGNAME", USER);
    }
    let urgency = urgency(setup);
    let at = context.dir.project(&setup.url).join(&setup.program);
    let file = (setup.init_data.rsc_disk_bound >= 1.0)
        .then(|| file_max(setup.init_data.rsc_disk_bound.min(setup.disk_max.as_f64()), context.memory));
    let runs_as = user.map_or_else(rustix::process::getuid, |user| user.owner.uid);
    let limits = Limits {
        file: file.unwrap_or_default(),
        processes: proc::threads_of_user(runs_as).saturating_add(THREADS_BESIDE).into(),
        brand: context.brand(setup.slot).value(),
    };
    let door = match context.groups.make(setup.slot, urgency) {
        Ok(made) => made.map(|(group, door)| {
            meter.set_group(group);
            door
        }),
        Err(error) => {
            without_group(context, setup, &error)?;
            None
        }
    };
    let project = context.dir.project(&setup.url);
    let places = context.confinement.places(user, &project, memory_said(context, setup), setup.special);
    let mut without = TaskLayers { tmp: places.is_none(), groups: door.is_none() };
    keep_required(setup, without)?;
    if places.is_some() {
        place.keep_directory(confine::TEMPORARY).map_err(|error| {
            let path = place.path().join(confine::TEMPORARY.to_string_lossy().as_ref());
            StartFailure::from_io("make", &path, &error)
        })?;
    }
    let mut placing = None;
    let mut entry = None;
    let child = context.guard.with_line(|line| {
        sys::work_in(&mut command, place.fd());
        // A namespace of users counts the processes in it alone, and holds all of its user's to the limit
        // that its maker had.
        sys::limit(&mut command, limits);
        if let Some(places) = &places {
            placing = Some(places.clone().give(&mut command)?);
        }
        if let Some(door) = &door {
            let must = setup.required.groups;
            entry = Some(sys::Entry::of(&mut command, door.procs(), door.above(), must)?);
        }
        sys::isolate(&mut command, urgency, line);
        let reach = Reach {
            slot: place.fd(),
            project: &project,
            gpu: setup.special,
            user,
            places: places.as_ref(),
            system_v: !setup.mapped_channel,
            network: setup.network,
        };
        context.confinement.confine(&mut command, &reach)?;
        if names_what_it_executes() {
            sys::execute_open(&mut command, &program.file)?;
        }
        command.spawn()
    });
    let executes = || match user {
        None => accessat(CWD, &at, Access::EXEC_OK, AtFlags::empty()).is_ok(),
        Some(user) => executes_in(place, &way_to_program(context, setup), user),
    };
    let unentered = entry.as_ref().and_then(sys::Entry::failure);
    match &unentered {
        // Where it has to be in its group, it is not executed.
        Some(error) => {
            without.groups = true;
            without_group(context, setup, error)?;
        }
        None if entry.is_some() && child.is_ok() => context.groups.entered(),
        None => {}
    }
    let child = child.map_err(|error| match placing.as_ref().and_then(sys::Placing::failure) {
        Some(why) => without_places(context, setup, &why),
        None => failure(&at, &error, executes),
    })?;
    if placing.is_some() {
        context.confinement.had_places();
    }
    // The handle is dropped on purpose: the task's own thread takes the process's remains, with its resource
    // usage.
    let pid = child.id();
    if !program.is_in_place() {
        proc::kill_session(pid);
        let _ = proc::to_pid(pid).map(sys::wait_with_usage);
        if let Some(user) = user {
            // What it has begun meanwhile. Whatever cannot be ended is found at the next start.
            let _ = proc::end_of_users(&proc::only(user.owner.uid));
        }
        let reason = format!("{} was replaced while it was started", at.display());
        return Err(StartFailure::new(StartFault::Files(vec![setup.program.clone()]), reason));
    }
    Ok((pid, without))
}

/// Whether a task may go without a control group of its own, which it cannot have for this reason.
fn without_group(context: &Context, setup: &TaskSetup, why: &io::Error) -> Result<(), StartFailure> {
    context.groups.lack(setup.slot, why);
    if setup.required.groups {
        let reason = format!("it can have no control group of its own ({why}); preferences require it");
        return Err(StartFailure::new(StartFault::Host, reason));
    }
    Ok(())
}

/// Whether a task that is to go without these layers may do so.
fn keep_required(setup: &TaskSetup, without: TaskLayers) -> Result<(), StartFailure> {
    let lacks = setup.required.and(without);
    let what = match (lacks.tmp, lacks.groups) {
        (false, false) => return Ok(()),
        (true, false) => "no /tmp of its own (tmp)",
        (false, true) => "no control group of its own (groups)",
        (true, true) => "no /tmp (tmp) and no control group (groups) of its own",
    };
    Err(StartFailure::new(StartFault::Host, format!("it can have {what} now, which preferences require")))
}

/// What it means that a job could not be given directories of its own in place of the system's.
fn without_places(context: &Context, setup: &TaskSetup, why: &io::Error) -> StartFailure {
    if !context.confinement.lack_places(why) {
        let reason = format!("its own /tmp could not be made: {why}");
        return StartFailure::new(StartFault::Host, reason);
    }
    tracing::warn!("jobs have no /tmp of their own for a while: {why}");
    let next = match setup.required.tmp {
        true => "preferences require it",
        false => "the next attempt goes without",
    };
    let reason = format!("its own /tmp could not be made ({why}); {next}");
    StartFailure::new(StartFault::Host, reason)
}

/// How much memory a job says that it needs, and half of the machine's at most.
fn memory_said(context: &Context, setup: &TaskSetup) -> Bytes {
    Bytes(setup.init_data.rsc_memory_bound.max(0.0) as u64).min(Bytes(context.memory.0 / 2))
}

/// What a single file of a task may hold: twice what all of them together may, and never less than a file in
/// memory can. The bound itself is judged by the client, by what it counts now and then; this keeps a file
/// from filling the disk before.
fn file_max(disk_bound: f64, memory: Bytes) -> u64 {
    ((disk_bound * 2.0) as u64).max(memory.0).max(FILE_FLOOR)
}

/// Whether a program that is executed from a descriptor shows under its own name in `top` and the like: Linux
/// from 6.14 on. Before, it would show under the descriptor's number.
fn names_what_it_executes() -> bool {
    let name = rustix::system::uname();
    let mut numbers = name.release().to_str().unwrap_or_default().split(['.', '-']).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (6, 14),
        _ => false,
    }
}

/// The way to a job's program, from its slot.
fn way_to_program(context: &Context, setup: &TaskSetup) -> String {
    softlink::target(&context.dir.project_name(&setup.url), &setup.program)
}

/// Whether the user of a slot's job may execute what lies there, by this way from the slot, and programs of
/// the system: where that user may not, the host has closed them to all but some.
fn executes_in(place: &SlotDir, way: &str, user: &JobUser) -> bool {
    let Ok(slot) = place.fd().try_clone_to_owned() else { return false };
    let way = way.to_owned();
    let asks = move || {
        accessat(slot, way, Access::EXEC_OK, AtFlags::empty())?;
        match accessat(CWD, "/bin/sh", Access::EXEC_OK, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            asked => Ok(asked?),
        }
    };
    sys::as_user(user.clone(), asks).is_ok()
}

/// What it means that a program that is there could not be executed. `executes` says whether the user that it
/// was to run as may execute it by itself.
fn failure(program: &Path, error: &io::Error, executes: impl FnOnce() -> bool) -> StartFailure {
    let fault = match error.raw_os_error().map(Errno::from_raw_os_error) {
        // No program at all, or one whose interpreter is not there; arguments that are none.
        Some(Errno::NOEXEC | Errno::NOENT | Errno::INVAL | Errno::TOOBIG | Errno::LIBBAD) => StartFault::Job,
        Some(Errno::ACCESS) if !is_kept_from_executing(program, executes) => StartFault::Job,
        _ => StartFault::Host,
    };
    StartFailure::new(fault, format!("cannot start {}: {error}", program.display()))
}

/// Whether a program could be executed by its mode, and the system does not let us: a volume mounted
/// `noexec`, for example. That is no job's fault. A script that may be executed while its interpreter may not
/// is.
fn is_kept_from_executing(program: &Path, executes: impl FnOnce() -> bool) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let may = std::fs::metadata(program).is_ok_and(|data| data.permissions().mode() & 0o100 != 0);
    may && !executes()
}

/// How much of the machine a task may take.
pub(super) fn urgency(setup: &TaskSetup) -> Urgency {
    if setup.special { Urgency::Low } else { Urgency::Idle }
}

/// A clean environment: BOINC's library path, a plain locale, a place for temporary files where the system's
/// is out of reach, and the mark by which the guard knows the process. What the agent's own environment holds
/// (tokens, proxies' passwords) is not the application's business; but where it leads to libraries, jobs for
/// GPUs may find the driver's there alone, as in many containers.
fn environment(command: &mut Command, context: &Context, setup: &TaskSetup, place: &SlotDir) {
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("LANG", "C.UTF-8")
        .env("LD_LIBRARY_PATH", library_path(context.dir.project_name(&setup.url), setup.special))
        .env(proc::MARK, context.mark(setup.slot))
        .envs(setup.environment.iter().copied());
    if let Some(temporary) = context.confinement.temporary(place.path()) {
        command.env("TMPDIR", temporary);
    }
    if let Some(zone) = std::env::var_os("TZ") {
        command.env("TZ", zone);
    }
}

/// Where the loader looks for libraries, seen from a slot: in the project's directory, the slot, the agent's
/// directory; for jobs on GPUs also where the agent's own environment has it look.
fn library_path(project: impl Display, for_gpus: bool) -> OsString {
    let mut path = OsString::from(format!("../../projects/{project}:.:../.."));
    let own = std::env::var_os("LD_LIBRARY_PATH").filter(|_| for_gpus).unwrap_or_default();
    // A relative one would mean another place there.
    for place in std::env::split_paths(&own).filter(|place| place.is_absolute()) {
        path.push(":");
        path.push(place);
    }
    path
}
