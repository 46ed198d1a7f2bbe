//! What a task leaves behind when its process is gone.

use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io::{self, Seek};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration as StdDuration, Instant};

use fallow_boinc::names;
use fallow_boinc::runtime::exit::{Ended, ExitMeaning};
use fallow_boinc::runtime::files;
use fallow_boinc::runtime::finish::{Finish, TemporaryExit};
use fallow_boinc::signature;
use fallow_client::{OutputFound, TaskEnd};
use fallow_domain::{Bytes, Duration, SlotId};
use flate2::read::GzDecoder;
use flate2::{Compression, GzBuilder};
use rustix::fs::{AtFlags, CWD, FileType, Stat, statat};

use super::record::{Output, SlotRecord};
use super::slot_dir::{Last, SlotDir};
use crate::dir::{DataDir, PARTIAL, make_closed};
use crate::files::{is_its_own, open_own, open_plain, shown};
use crate::tree;
use crate::walk::{Counted, Usage, Walk};

/// How much of `stderr.txt` is reported (BOINC: the last 63 KiB).
const STDERR_MAX: u64 = 63 * 1024;

/// The first delay before outputs that this host could not take are tried again, which doubles; and how often
/// a delay looks whether it is to be broken off.
const ROUND: StdDuration = StdDuration::from_millis(100);
/// The longest delay.
const WAIT_MAX: StdDuration = StdDuration::from_secs(60);
/// How long outputs are tried again.
const TROUBLE_MAX: StdDuration = StdDuration::from_mins(10);

/// For so long what a task has left is counted and read although it is to leave.
const LEAVING: StdDuration = StdDuration::from_secs(2);

/// So many entries of a slot are counted between two looks whether its task is to leave.
const TURN: u64 = 1_000;

/// The least that a thread gets where others want the CPU.
const NICEST: i32 = 19;

/// `boinc_finish_called` and `boinc_temporary_exit` hold a few lines.
const EXIT_FILE_MAX: u64 = 8 * 1024;

/// Gathers what the task of `record` left in its slot and its project's directory.
///
/// # Errors
/// What keeps this host from taking an output: too many open files, a full disk, or that the task is to leave
/// by now. It says nothing about the job.
#[expect(clippy::too_many_arguments, reason = "all that is known of a task that is gone")]
pub(super) fn collect(
    dir: &DataDir,
    slot: SlotId,
    place: Option<&SlotDir>,
    record: &SlotRecord,
    exit: Ended,
    cpu_time: Duration,
    peak: Bytes,
    last: Last<'_>,
) -> io::Result<TaskEnd> {
    // A task that is to leave has a few seconds left: what does not take long is taken all the same.
    let begun = Instant::now();
    let is_to_leave = || begun.elapsed() > LEAVING && (last.is_to_leave)();
    let last = Last { is_to_leave: &is_to_leave, ..last };
    dir.open_project(&record.url);
    let project = dir.project(&record.url);
    // Before outputs are moved from one to the other.
    let disk_usage = record
        .outputs
        .iter()
        .fold(usage_of_slot(&dir.slot(slot), &is_to_leave), |sum, output| {
            sum.plus(usage_of_output(&project, &dir.slot(slot), output))
        })
        .most();
    let stderr = slot_of(place, |place| place.tail(files::STDERR, STDERR_MAX)).unwrap_or_default();
    let mut stderr = String::from_utf8_lossy(&stderr).into_owned();
    let finish = exit_file(place, files::FINISH)?.map(|bytes| Finish::read(&bytes));
    let temporary_exit =
        exit_file(place, files::TEMPORARY_EXIT)?.and_then(|bytes| TemporaryExit::read(&bytes));
    // One that goes on later writes to its outputs again: they stay where and as they are (BOINC likewise).
    let is_over =
        !matches!(exit.meaning(finish.as_ref(), temporary_exit.as_ref()), ExitMeaning::Restart { .. });
    let in_slot = place.filter(|_| is_over);
    // All of them before the first is moved: what is tried again is tried with all in their places.
    record.outputs.iter().try_for_each(|output| try_to_read(in_slot, &project, output))?;
    let mut outputs: Vec<OutputFound> = Vec::new();
    for output in &record.outputs {
        let taken = outputs.iter().filter(|other| !other.md5.is_empty());
        let longest = output.longest_beside(taken.map(|other| other.nbytes).fold(Bytes(0), Bytes::plus));
        outputs.extend(found(in_slot, &project, (output, longest), is_over, last, &mut stderr)?);
    }
    Ok(TaskEnd {
        exit,
        finish,
        temporary_exit,
        cpu_time,
        is_charged: false,
        stderr,
        outputs,
        peak_working_set: peak,
        disk_usage,
        made_room: None,
        memory_exceeded: None,
        killed: None,
    })
}

/// Takes what a task left, for as long as this host has trouble with that: until it is to be gone, or for
/// [`TROUBLE_MAX`]. `collect` is told when it is not called again.
///
/// # Errors
/// The last trouble.
pub(super) fn patiently(
    task: &str,
    is_to_leave: &dyn Fn() -> bool,
    collect: impl Fn(Last<'_>) -> io::Result<TaskEnd>,
) -> io::Result<TaskEnd> {
    for_at_most(TROUBLE_MAX, task, is_to_leave, collect)
}

fn for_at_most<T>(
    most: StdDuration,
    task: &str,
    is_to_leave: &dyn Fn() -> bool,
    collect: impl Fn(Last<'_>) -> io::Result<T>,
) -> io::Result<T> {
    let begun = Instant::now();
    let mut wait = ROUND;
    loop {
        let is_last_try = begun.elapsed() >= most;
        let error = match collect(Last { is_to_leave, is_last_try }) {
            Err(error) => error,
            taken => return taken,
        };
        if is_last_try || is_to_leave() {
            tracing::error!(task = shown(task), %error, "cannot take what a task left: giving up for now");
            return Err(error);
        }
        tracing::warn!(task = shown(task), %error, "cannot take what a task left; trying again");
        let until = Instant::now() + wait;
        while Instant::now() < until && !is_to_leave() {
            std::thread::sleep(ROUND);
        }
        wait = (wait * 2).min(WAIT_MAX);
    }
}

/// From now on this thread, which ends when it has taken what a task left, comes after the owner's programs:
/// to read and compress outputs may take minutes.
pub(super) fn give_way() {
    let _ = rustix::process::setpriority_process(None, NICEST);
}

/// The end of a task whose outputs could not be taken: as if it had been stopped in the middle. Its next
/// start looks for them first.
pub(super) fn interrupted(cpu_time: Duration, peak: Bytes) -> TaskEnd {
    let number = rustix::process::Signal::KILL.as_raw();
    TaskEnd {
        exit: Ended::Signal { number, core_dumped: false },
        finish: None,
        temporary_exit: None,
        cpu_time,
        is_charged: false,
        stderr: String::new(),
        outputs: Vec::new(),
        peak_working_set: peak,
        disk_usage: Bytes(0),
        made_room: None,
        memory_exceeded: None,
        killed: None,
    }
}

/// What a slot takes. There may be millions of files in it, so if the task is to leave, not all of them are
/// counted.
fn usage_of_slot(slot: &Path, is_to_leave: &dyn Fn() -> bool) -> Usage {
    let (mut walk, mut counted) = (Walk::below(slot), Counted::default());
    while !walk.step(&mut counted, TURN) && !is_to_leave() {}
    walk.total()
}

/// What an output takes in the project's directory beyond what it takes in the slot.
fn usage_of_output(project: &Path, slot: &Path, output: &Output) -> Usage {
    if !has_names(output) {
        return Usage::default();
    }
    usage_beyond(&project.join(&output.name), slot, &output.place())
}

/// What a file takes beyond another one that was counted already, at a place in a slot: one of them is the
/// agent's copy of the other, and its job has made one. One that has other names is counted by these, in the
/// slot. And whatever has other names in the slot was counted once for all of them.
pub(super) fn usage_beyond(copy: &Path, slot: &Path, place: &str) -> Usage {
    let is_one = |data: &Stat| data.st_nlink <= 1;
    let of_copy = statat(CWD, copy, AtFlags::SYMLINK_NOFOLLOW).ok().filter(is_one);
    let of_counted = of_copy.and_then(|_| found_in(slot, place).ok()).filter(is_one);
    let usage = |data: Option<Stat>| data.map(|data| Usage::of(&data)).unwrap_or_default();
    usage(of_copy).less(usage(of_counted))
}

/// What an ordinary file in a slot is. No link is followed on the way to it, for that is the job's to make:
/// it would lead to what was not counted, or to where nobody answers.
fn found_in(slot: &Path, place: &str) -> io::Result<Stat> {
    let mut dir = tree::open_directory(CWD, &CString::new(slot.as_os_str().as_bytes())?)?;
    let (way, last) = place.rsplit_once('/').map_or((None, place), |(way, last)| (Some(way), last));
    for name in way.into_iter().flat_map(|way| way.split('/')) {
        dir = tree::open_directory(dir.as_fd(), &CString::new(name)?)?;
    }
    let data = statat(&dir, last, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(data.st_mode) {
        FileType::RegularFile => Ok(data),
        _ => Err(io::Error::other("not an ordinary file")),
    }
}

fn slot_of<T>(place: Option<&SlotDir>, read: impl FnOnce(&SlotDir) -> io::Result<T>) -> Option<T> {
    read(place?).ok()
}

/// What the application wrote about its end, if it did.
pub(super) fn exit_file(place: Option<&SlotDir>, name: &str) -> io::Result<Option<Vec<u8>>> {
    match place.map(|place| place.head(name, EXIT_FILE_MAX)).transpose() {
        Err(error) if is_the_jobs(&error) => Ok(None),
        read => read,
    }
}

/// Whether an error is about what the job left: it is not there, is no file, or is closed.
fn is_the_jobs(error: &io::Error) -> bool {
    is_its_own(error) || error.kind() == io::ErrorKind::PermissionDenied
}

/// `boinc_finish_called`, if the application wrote it.
pub(super) fn finish(place: &SlotDir) -> Option<Finish> {
    place.head(files::FINISH, EXIT_FILE_MAX).ok().map(|bytes| Finish::read(&bytes))
}

fn has_names(output: &Output) -> bool {
    names::is_file_name(&output.name) && names::is_open_name(&output.open_name)
}

/// Looks whether this host can read an output where it is now.
fn try_to_read(slot: Option<&SlotDir>, project: &Path, output: &Output) -> io::Result<()> {
    if !has_names(output) {
        return Ok(());
    }
    let opened = match slot.filter(|slot| slot.has(&output.place())) {
        Some(slot) => slot.read(&output.place()),
        None => open_plain(&project.join(&output.name)),
    };
    match opened {
        // One that is closed is opened up later.
        Err(error) if !is_the_jobs(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Says in the log, and to its project, why an output is none.
fn say_it_goes(output: &Output, error: &io::Error, stderr: &mut String) {
    let output = shown(&output.name);
    tracing::error!(output, %error, "an output cannot be taken from its job, and goes");
    let why = format!("\nfallow-agent: the output {output} cannot be taken: {error}\n");
    stderr.push_str(&why);
}

fn found(
    slot: Option<&SlotDir>,
    project: &Path,
    (output, longest): (&Output, Bytes),
    is_over: bool,
    last: Last<'_>,
    stderr: &mut String,
) -> io::Result<Option<OutputFound>> {
    let is_to_leave = last.is_to_leave;
    if !has_names(output) {
        return Ok(None);
    }
    let place = project.join(&output.name);
    let of_job = slot;
    let slot = slot.filter(|slot| slot.has(&output.place()));
    // Before it is moved: to another volume that is a copy, in which holes take space.
    let opened = slot.map_or_else(|| open_own(&place), |slot| slot.read(&output.place()));
    if let Ok(nbytes) = opened.and_then(|file| file.metadata()).map(|data| Bytes(data.len()))
        && nbytes > longest
    {
        return Ok(Some(OutputFound { name: output.name.clone(), nbytes, md5: String::new() }));
    }
    if let Some(slot) = slot
        && let Err(error) = slot.move_last(&output.place(), &place, last)
    {
        if !is_its_own(&error) {
            return Err(error);
        }
        // What was sent of it early is not what it has become.
        say_it_goes(output, &error, stderr);
        slot.take_away(&place)?;
        return Ok(None);
    }
    if let Some(Err(error)) = of_job.map(|slot| slot.take_rest(&place, last)) {
        if !is_its_own(&error) {
            return Err(error);
        }
        // Somebody writes to it, or it was never the job's: whoever that is may not change what is sent.
        say_it_goes(output, &error, stderr);
        of_job.map_or(Ok(()), |slot| slot.take_away(&place))?;
        return Ok(None);
    }
    // Also one that its job had closed: it is opened up here alone.
    let size = open_own(&place).and_then(|file| file.metadata()).map(|data| Bytes(data.len()));
    if let Some(nbytes) = size.ok().filter(|nbytes| *nbytes > longest) {
        return Ok(Some(OutputFound { name: output.name.clone(), nbytes, md5: String::new() }));
    }
    if output.gzip
        && is_over
        && let Err(error) = compress(&place, is_to_leave)
    {
        // Sent as it is: a server that asked for gzip can tell the two apart.
        tracing::warn!(output = shown(&output.name), %error, "cannot compress an output");
    }
    let read = open_own(&place).and_then(|file| signature::md5_of(Wanted { file, is_to_leave }));
    match read {
        Ok((md5, nbytes)) => Ok(Some(OutputFound { name: output.name.clone(), nbytes, md5 })),
        Err(error) if !is_its_own(&error) => Err(error),
        Err(error) => {
            tracing::debug!(output = shown(&output.name), %error, "an output is not there");
            Ok(None)
        }
    }
}

/// A file that is read only as long as its task is not to leave: a long one takes minutes.
pub(super) struct Wanted<'a> {
    pub(super) file: fs::File,
    pub(super) is_to_leave: &'a dyn Fn() -> bool,
}

impl io::Read for Wanted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if (self.is_to_leave)() {
            // No word about the file.
            return Err(rustix::io::Errno::CANCELED.into());
        }
        self.file.read(buffer)
    }
}

/// What marks a file as compressed here: a task may be gathered twice, by an agent that was killed in between
/// and its next life, and must not be compressed twice.
const COMPRESSED_HERE: &[u8] = b"gzip_when_done";

/// Replaces a file by itself compressed with gzip.
fn compress(path: &Path, is_to_leave: &dyn Fn() -> bool) -> io::Result<()> {
    let mut plain = open_plain(path)?;
    let is_done =
        GzDecoder::new(&plain).header().is_some_and(|header| header.comment() == Some(COMPRESSED_HERE));
    if is_done {
        return Ok(());
    }
    plain.rewind()?;
    // Among the parts, so that a half-written one is never taken for a file of the project.
    let parts = path.with_file_name(PARTIAL);
    make_closed(&parts)?;
    let packed = parts.join(path.file_name().unwrap_or_default());
    // One that was not finished before. A directory of that name is a job's doing: emptying it might not end.
    match fs::remove_file(&packed) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new().write(true).create_new(true).open(&packed)?;
    let mut encoder = GzBuilder::new().comment(COMPRESSED_HERE).write(file, Compression::default());
    io::copy(&mut Wanted { file: plain, is_to_leave }, &mut encoder)?;
    encoder.finish()?.sync_all()?;
    fs::rename(&packed, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::{FIRST, Owner};
    use fallow_domain::MasterUrl;
    use std::fs::File;
    use std::io::Read;

    #[test]
    fn r6_10_an_output_that_a_job_has_made_to_be_copied_is_none_where_there_is_no_space_for_long() {
        if !rustix::process::geteuid().is_root() {
            return; // Only root has copies of outputs made.
        }
        let root = tempfile::tempdir().unwrap();
        let (dir, slot, url) =
            (DataDir::at(root.path()), SlotId(0), MasterUrl::parse("http://127.0.0.1:9/p/").unwrap());
        fs::create_dir_all(dir.project(&url)).unwrap();
        fs::create_dir_all(dir.slots()).unwrap();
        let mut place = SlotDir::create(&dir.slot(slot), dir.trash()).unwrap();
        place.hand_over(Owner::numbered(FIRST + 1)).unwrap();
        let output = |name: &str| Output {
            name: name.to_owned(),
            open_name: name.to_owned(),
            copy: true,
            gzip: false,
            max_nbytes: None,
            disk_max: None,
        };
        // A file of holes is as long as it says, and takes nothing.
        place.make("large", 0o644).unwrap().set_len(1 << 43).unwrap();
        fs::hard_link(place.path().join("large"), place.path().join("kept")).unwrap();
        place.write("small", b"right", 0o644).unwrap();
        place.write(files::FINISH, b"0\n", 0o644).unwrap();
        place.write(files::STDERR, b"its own words", 0o644).unwrap();
        if super::super::copying::has_space(root.path(), 1 << 43).is_ok() {
            println!("skipped: there is space for anything here");
            return;
        }
        let record = SlotRecord {
            job: fallow_domain::JobId(1),
            start: Some(1),
            name: "job_1_0".to_owned(),
            url,
            outputs: vec![output("large"), output("small")],
            cpu_before: Duration::ZERO,
            shm_key: None,
            process: None,
            place: None,
        };
        let take = |is_last_try: bool| {
            let last = Last { is_to_leave: &|| false, is_last_try };
            collect(&dir, slot, Some(&place), &record, Ended::Code(0), Duration::ZERO, Bytes(0), last)
        };
        // For now it is the host's trouble, and all is left as it is.
        assert_eq!(take(false).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(place.has("large") && place.has("small") && place.has("kept"));
        let end = take(true).unwrap();
        assert_eq!(end.outputs.iter().map(|output| output.name.as_str()).collect::<Vec<_>>(), ["small"]);
        assert!(end.stderr.starts_with("its own words\n") && end.stderr.contains("large"), "{}", end.stderr);
        assert!(
            end.stderr.contains("it has other names") && end.stderr.contains("no space"),
            "{}",
            end.stderr
        );
    }

    #[test]
    fn r6_10_what_is_taken_again_and_again_is_told_when_it_is_taken_for_the_last_time() {
        let tries = std::cell::RefCell::new(Vec::new());
        let take = |last: Last<'_>| {
            tries.borrow_mut().push(last.is_last_try);
            Err::<(), _>(io::ErrorKind::StorageFull.into())
        };
        assert!(for_at_most(5 * ROUND, "job_1_0", &|| false, take).is_err());
        let (end, before) = tries.borrow().split_last().map(|(end, before)| (*end, before.to_vec())).unwrap();
        assert!(end && !before.is_empty() && !before.contains(&true), "{before:?} {end}");
    }

    #[test]
    fn r6_10_the_files_of_a_slot_are_counted_to_the_end_unless_its_task_is_to_leave() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..3 * TURN {
            File::create(dir.path().join(number.to_string())).unwrap().set_len(10).unwrap();
        }
        let count = |is_to_leave: bool| usage_of_slot(dir.path(), &|| is_to_leave).most();
        assert_eq!(count(false), Bytes(30 * TURN));
        assert!(count(true) <= Bytes(10 * TURN), "{}", count(true));
    }

    #[test]
    fn an_output_is_compressed_once_however_often_it_is_gathered() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        fs::write(&path, "result ".repeat(1000)).unwrap();
        compress(&path, &|| false).unwrap();
        let once = fs::read(&path).unwrap();
        compress(&path, &|| false).unwrap();
        assert_eq!(fs::read(&path).unwrap(), once);
        let mut text = String::new();
        GzDecoder::new(&once[..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, "result ".repeat(1000));
        assert_eq!(fs::read_dir(dir.path().join(PARTIAL)).unwrap().count(), 0);
    }
}
