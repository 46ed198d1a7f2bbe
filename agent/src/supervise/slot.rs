//! Filling a slot directory, as BOINC lays it out.
//!
//! Model: a fresh task gets a directory that was made for it this moment; whatever was there before is set
//! aside first, so nothing that an earlier job left can be in its way. What goes wrong here is the host's
//! trouble and never the job's: it waits and is tried again. The exceptions are said where they are: names
//! that no slot can hold, and files of the project that are missing, which are to be fetched again.

use std::io;
use std::path::Path;

use fallow_boinc::names;
use fallow_boinc::runtime::{files, softlink};
use fallow_client::{SlotFile, StartFault, TaskSetup};

use rustix::fs::Gid;

use super::copying::has_space;
use super::slot_dir::SlotDir;
use super::{Context, Shared, record};
use crate::files::open_plain;
use crate::owner::Owner;
use crate::proc;
use crate::users;

/// Why a task could not be started.
#[derive(Debug)]
pub(super) struct StartFailure {
    /// What went wrong, where.
    pub(super) reason: String,
    /// Whose fault it is, and so what helps.
    pub(super) fault: StartFault,
}

impl StartFailure {
    pub(super) fn new(fault: StartFault, reason: String) -> Self {
        Self { reason, fault }
    }

    /// A failure of the system, which says nothing about the job.
    pub(super) fn from_io(what: &str, path: &Path, error: &io::Error) -> Self {
        Self::new(StartFault::Host, format!("cannot {what} {}: {error}", path.display()))
    }
}

/// Makes a slot ready for a start: all files that the application expects. The channel and `init_data.xml`
/// come later.
pub(super) fn fill(context: &Shared, setup: &TaskSetup) -> Result<SlotDir, StartFailure> {
    for file in &setup.files {
        check(file)?;
    }
    if !names::is_file_name(&setup.program) {
        let reason = format!("the main program's name {:?} is no file name", setup.program);
        return Err(StartFailure::new(StartFault::Job, reason));
    }
    let dir = &context.dir;
    dir.make_usable().map_err(|error| StartFailure::from_io("use", dir.path(), &error))?;
    dir.open_project(&setup.url);
    let place = if setup.fresh { fresh(context, setup)? } else { kept(context, setup)? };
    let fail = |error: io::Error| StartFailure::from_io("write into", place.path(), &error);
    if setup.fresh || !place.has(files::SETUP_COMPLETE) {
        for file in &setup.files {
            put(context, setup, &place, file)?;
        }
        place.write(files::SETUP_COMPLETE, b"", 0o644).map_err(fail)?;
    } else {
        for file in setup.files.iter().filter(|file| file.output && !file.copy) {
            take_in(context, setup, &place, file).map_err(fail)?;
        }
    }
    // What the last run said of its end is not true of this one.
    for old in [files::FINISH, files::TEMPORARY_EXIT] {
        place.remove(old).map_err(fail)?;
    }
    Ok(place)
}

/// A slot with nothing in it.
fn fresh(context: &Shared, setup: &TaskSetup) -> Result<SlotDir, StartFailure> {
    let path = context.dir.slot(setup.slot);
    let spoilt = |error: io::Error| {
        let reason = format!("what an earlier job left in {} cannot be moved away: {error}", path.display());
        StartFailure::new(StartFault::Slot, reason)
    };
    context.dir.trash().take(&path).map_err(spoilt)?;
    let mut place = SlotDir::create(&path, context.dir.trash())
        .map_err(|error| StartFailure::from_io("create", &path, &error))?;
    hand_over(context, setup, &mut place)?;
    Ok(place)
}

/// Gives a slot to the user that its job runs as, where it is another's. Nothing runs in it: whatever runs as
/// that user, or as the one whose it was, is left of a job before, and ends.
fn hand_over(context: &Context, setup: &TaskSetup, place: &mut SlotDir) -> Result<(), StartFailure> {
    // Whoever is not root has one user for all.
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let path = place.path().to_path_buf();
    let user = owner(context, setup)?;
    let fail = |error: io::Error| StartFailure::from_io("give to its job's user", &path, &error);
    if let Some(user) = user {
        proc::end_of_users(&proc::only(user.uid)).map_err(fail)?;
    }
    if let Some(before) = place.owner().filter(|before| user != Some(*before)) {
        // What of it is open to others' processes they could change while the job uses it.
        users::end_former(before).map_err(|error| {
            let reason = format!("{} cannot be used any more: {error}", path.display());
            StartFailure::new(StartFault::Slot, reason)
        })?;
    }
    place.hand_over(user.unwrap_or_else(Owner::own)).map_err(|error| match error.kind() {
        // What its job has made there cannot be given: it begins anew.
        io::ErrorKind::FileTooLarge => StartFailure { fault: StartFault::Slot, ..fail(error) },
        _ => fail(error),
    })
}

/// The user that the job of a slot runs as, if not as the agent's own.
pub(super) fn owner(context: &Context, setup: &TaskSetup) -> Result<Option<Owner>, StartFailure> {
    let Some(users) = context.dir.users() else { return Ok(None) };
    let none = |error: io::Error| StartFailure::new(StartFault::Host, error.to_string());
    users.of_slot(setup.slot.0).map(Some).map_err(none)
}

/// Lets the user of a job read what is there for it in its project's directory, once all of that is known to
/// be right. Gives the groups by which that user comes to it.
pub(super) fn let_read(context: &Context, setup: &TaskSetup) -> Result<Vec<Gid>, StartFailure> {
    let Some(all) = context.dir.users() else { return Ok(Vec::new()) };
    let project = context.dir.project(&setup.url);
    let fail = |path: &Path, error: io::Error| StartFailure::from_io("let its job read", path, &error);
    let group = all.let_read(&project).map_err(|error| fail(&project, error))?;
    let inputs = setup.files.iter().filter(|file| !file.output && names::is_file_name(&file.name));
    let application = setup.application.iter().map(|file| &file.name);
    for name in application.chain(inputs.map(|file| &file.name)) {
        let path = project.join(name);
        open_plain(&path).and_then(|file| users::let_read(&file)).map_err(|error| fail(&path, error))?;
    }
    Ok(vec![all.passing(), group])
}

/// The slot that the task had, with what it had done.
pub(super) fn kept(context: &Context, setup: &TaskSetup) -> Result<SlotDir, StartFailure> {
    let path = context.dir.slot(setup.slot);
    let opened = SlotDir::open(&path, context.dir.trash()).map_err(|error| {
        match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            // It is gone, or something else by now: the job itself has seen to that.
            Some(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => {
                StartFailure::new(StartFault::Slot, format!("the slot {} is gone: {error}", path.display()))
            }
            _ => StartFailure::from_io("open", &path, &error),
        }
    });
    let mut place = opened?;
    hand_over(context, setup, &mut place)?;
    Ok(place)
}

/// Writes `init_data.xml` as of now.
pub(super) fn write_init_data(
    context: &Context,
    setup: &TaskSetup,
    place: &SlotDir,
    shm_key: i32,
) -> Result<(), StartFailure> {
    let mut init_data = setup.init_data.clone();
    init_data.shm_key = shm_key;
    init_data.client_pid = std::process::id();
    init_data.boinc_dir = context.dir.path().display().to_string();
    init_data.project_dir = context.dir.project(&setup.url).display().to_string();
    let fail = |error: io::Error| StartFailure::from_io("write init_data.xml into", place.path(), &error);
    place.write(files::INIT_DATA, init_data.write().as_bytes(), 0o600).map_err(fail)
}

fn check(file: &SlotFile) -> Result<(), StartFailure> {
    if !names::is_file_name(&file.name) || !names::is_open_name(&file.open_name) {
        let (name, open_name) = (&file.name, &file.open_name);
        let reason = format!("the file {name:?} (opened as {open_name:?}) may not be put into a slot");
        return Err(StartFailure::new(StartFault::Job, reason));
    }
    Ok(())
}

/// Has the application find an output in its slot, in a directory that holds nothing else.
fn link_output(place: &SlotDir, file: &SlotFile) -> io::Result<()> {
    let output = record::linked(&file.name);
    place.make_way(&output)?;
    place.write(&file.open_name, softlink::write(&output).as_bytes(), 0o644)
}

/// A task that an agent of an earlier version began was led to its project's directory with its outputs: what
/// it has made there goes on in its slot.
fn take_in(context: &Context, setup: &TaskSetup, place: &SlotDir, file: &SlotFile) -> io::Result<()> {
    let before = softlink::write(&softlink::target(&context.dir.project_name(&setup.url), &file.name));
    if place.head(&file.open_name, before.len() as u64 + 1).ok().is_none_or(|link| link != before.as_bytes())
    {
        return Ok(());
    }
    let made = context.dir.project(&setup.url).join(&file.name);
    let linked = record::linked(&file.name);
    // First what it has made: whoever dies between the two does the rest at the next start.
    if made.symlink_metadata().is_ok_and(|data| data.is_file()) {
        place.make_way(&linked)?;
        place.move_in(&made, &linked)?;
    }
    link_output(place, file)
}

/// Puts one file where the application will open it.
fn put(context: &Context, setup: &TaskSetup, place: &SlotDir, file: &SlotFile) -> Result<(), StartFailure> {
    let at = place.path().join(&file.open_name);
    let fail = |error: io::Error| StartFailure::from_io("put a file to", &at, &error);
    match (file.copy, file.output) {
        (false, true) => link_output(place, file).map_err(fail),
        (false, false) => {
            let link = softlink::write(&softlink::target(&context.dir.project_name(&setup.url), &file.name));
            place.write(&file.open_name, link.as_bytes(), 0o644).map_err(fail)
        }
        // An output that is moved back at the end does not exist before; a directory for it does.
        (true, true) => {
            place.make(&file.open_name, 0o644).and_then(|_| place.remove(&file.open_name)).map_err(fail)
        }
        (true, false) => {
            let source = context.dir.project(&setup.url).join(&file.name);
            let missing = |error: io::Error| {
                let reason = format!("cannot read {}: {error}", source.display());
                StartFailure::new(StartFault::Files(vec![file.name.clone()]), reason)
            };
            let mut source = open_plain(&source).map_err(missing)?;
            let mode =
                std::os::unix::fs::PermissionsExt::mode(&source.metadata().map_err(fail)?.permissions());
            // The application may change its copy.
            has_space(place.path(), source.metadata().map_err(fail)?.len()).map_err(fail)?;
            let mut copy = place.make(&file.open_name, mode & 0o777 | 0o600).map_err(fail)?;
            let copied = io::copy(&mut source, &mut copy).map(drop);
            if copied.is_err() {
                // The space that it took is wanted.
                let _ = place.remove(&file.open_name);
            }
            copied.map_err(fail)
        }
    }
}
