//! What passes between a running application and its project beside the channel: files of the slot.
//!
//! Model: an application writes `trickle_up.xml` and says so; the file gets another name, so that the next
//! message does not take its place, and is moved, whole, to its project's directory, where it survives the
//! job and the agent. It names outputs to be sent early by empty files `boinc_ufr_NAME`. The other way,
//! `trickle_down_TIME` and `boinc_ufs_NAME` are put into the slot, and the channel says that they are there.

use std::io;
use std::path::Path;

use fallow_boinc::names;
use fallow_boinc::runtime::channel::{CHANNEL_LEN, Channel};
use fallow_boinc::runtime::files;
use fallow_boinc::runtime::message::TrickleUp;
use fallow_boinc::signature;
use fallow_client::{OutputFound, TRICKLE_MAX};
use fallow_domain::Bytes;

use super::collect::Wanted;
use super::copying::lacks_space;
use super::early_door::EarlyDoor;
use super::record::Output;
use super::slot_dir::SlotDir;
use crate::dir::DataDir;
use crate::files::{is_its_own, open_own, open_plain, shown};

/// What a message is called in its slot from when it was announced until it is taken: what its job writes
/// meanwhile is another one.
const TAKING: &str = "fallow_taking_trickle_up.xml";

/// A message that carries the same second as others gets one of the next.
const SAME_SECOND: i64 = 60;

/// Whether a message waits that was announced and could not be taken.
pub(super) fn trickle_waits(place: &SlotDir) -> bool {
    place.has(TAKING)
}

/// Moves `trickle_up.xml` to the project's directory, or the one that waits. Gives its name there and its
/// size; none where there is none to move, and what is there is taken away then (BOINC likewise).
///
/// # Errors
/// The job `runs`, and could still change it, or it cannot be taken now for a reason that is not its own: it
/// waits, to be taken later.
pub(super) fn take_trickle(
    place: &SlotDir,
    project: &Path,
    result_name: &str,
    runs: bool,
) -> io::Result<Option<(String, Bytes)>> {
    if !trickle_waits(place) && place.has(files::TRICKLE_UP) {
        // Where it cannot have that name, it is taken by its own.
        let _ = place.rename(files::TRICKLE_UP, TAKING);
    }
    let from = if trickle_waits(place) { TAKING } else { files::TRICKLE_UP };
    let size = place.read(from).and_then(|file| file.metadata()).map(|data| Bytes(data.len()));
    let moved = match size {
        Err(error) if runs && !is_its_own(&error) => return Err(error),
        Ok(size) if size <= TRICKLE_MAX => {
            let now = fallow_daemon::clock::now().as_secs_f64() as i64;
            let free = (now..now + SAME_SECOND)
                .map(|secs| files::trickle_up(result_name, secs))
                .find(|name| names::is_file_name(name) && project.join(name).symlink_metadata().is_err());
            let moved = free.as_ref().map(|name| match runs {
                true => place.move_out_of_open(from, &project.join(name)),
                false => place.move_out(from, &project.join(name)).map(|()| true),
            });
            match moved {
                Some(Ok(false)) => return Err(io::ErrorKind::ResourceBusy.into()),
                Some(Err(error)) if runs && !is_its_own(&error) => return Err(error),
                moved => free.filter(|_| matches!(moved, Some(Ok(true)))),
            }
            // Only now is it certain how long it is.
            .map(|name| (length_of(&project.join(&name)), name))
            .filter(|(size, name)| *size <= TRICKLE_MAX || place.take_away(&project.join(name)).is_err())
            .map(|(size, name)| (name, size))
        }
        _ => None,
    };
    if moved.is_none() {
        tracing::warn!(
            task = shown(result_name),
            ?size,
            "a message to the project cannot be taken, or is longer than {TRICKLE_MAX}"
        );
        let _ = place.remove(from);
    }
    Ok(moved)
}

/// The outputs that the application wants sent early. The requests are taken away. Those for anything else
/// stay: nobody reads through a slot for them, which may hold any number of files.
pub(super) fn upload_requests<'a>(place: &SlotDir, outputs: &'a [Output]) -> Vec<&'a Output> {
    let asked = |output: &&Output| {
        let request = format!("{}{}", files::UPLOAD_REQUEST, output.open_name);
        let is_there = place.has(&request);
        // Also what is there and is no file.
        let _ = place.remove(&request);
        is_there
    };
    outputs
        .iter()
        .filter(|output| !output.copy && names::is_open_name(&output.open_name))
        .filter(asked)
        .collect()
}

/// Asks once more for an output that could not be looked at before its job's end, for when it goes on.
pub(super) fn ask_again(place: &SlotDir, output: &Output) {
    let request = format!("{}{}", files::UPLOAD_REQUEST, output.open_name);
    if let Err(error) = place.write(&request, b"", 0o644) {
        tracing::debug!(output = shown(&output.name), %error, "a request to send an output early is lost");
    }
}

/// What is there of an output now, put where it is sent from beside the `others` of its job, as long as the
/// door is open. None where there is nothing to send.
///
/// # Errors
/// There is no space for it.
pub(super) fn output_now(
    place: &SlotDir,
    project: &Path,
    output: &Output,
    others: &[Output],
    door: &EarlyDoor,
) -> io::Result<Option<OutputFound>> {
    if !names::is_file_name(&output.name) {
        return Ok(None);
    }
    let path = project.join(&output.name);
    let beside = others.iter().filter(|other| other.name != output.name && names::is_file_name(&other.name));
    let beside = beside.map(|other| length_of(&project.join(&other.name))).fold(Bytes(0), Bytes::plus);
    let longest = output.longest_beside(beside);
    // The application goes on with its own name of it.
    if place.has(&output.place())
        && let Err(error) = place.link_out(&output.place(), &path, longest.0, door)
    {
        if door.is_open() {
            let output = shown(&output.name);
            tracing::warn!(output, %error, "cannot take an output that is to be sent early");
        }
        return if lacks_space(&error) { Err(error) } else { Ok(None) };
    }
    let Ok(size) = open_plain(&path).and_then(|file| file.metadata()).map(|data| Bytes(data.len())) else {
        return Ok(None);
    };
    if output.max_nbytes.is_some_and(|max| max > Bytes(0) && size > max) || size > longest {
        return Ok(None);
    }
    let is_to_leave = || !door.is_open();
    let sum = open_own(&path).and_then(|file| signature::md5_of(Wanted { file, is_to_leave: &is_to_leave }));
    Ok(sum.ok().map(|(md5, nbytes)| OutputFound { name: output.name.clone(), nbytes, md5 }))
}

/// The length of what is in the project's directory, 0 where nothing is.
fn length_of(path: &Path) -> Bytes {
    Bytes(path.symlink_metadata().map_or(0, |data| data.len()))
}

/// Takes a message that an application had announced when the agent went down. It is found in the project's
/// directory then.
pub(super) fn take_left(dir: &DataDir, place: &SlotDir, url: &fallow_domain::MasterUrl, result_name: &str) {
    let at = Channel::TrickleUp as usize * CHANNEL_LEN;
    if trickle_waits(place) {
        let _ = take_trickle(place, &dir.project(url), result_name, false);
    }
    let bytes = place.head(files::CHANNEL, (at + CHANNEL_LEN) as u64).unwrap_or_default();
    let Some([flag, text @ ..]) = bytes.get(at..) else { return };
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    if *flag != 0 && TrickleUp::parse(&String::from_utf8_lossy(text)).new_trickle_up {
        let _ = take_trickle(place, &dir.project(url), result_name, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trash::Trash;
    use std::fs;

    #[test]
    fn messages_of_one_second_are_all_kept_and_one_that_is_none_is_taken_away() {
        let dir = tempfile::tempdir().unwrap();
        let place = SlotDir::create(&dir.path().join("slot"), &Trash::at(dir.path().join("trash"))).unwrap();
        for number in 0..3 {
            fs::write(place.path().join(files::TRICKLE_UP), number.to_string()).unwrap();
            assert!(take_trickle(&place, dir.path(), "job_1_0", true).unwrap().is_some());
        }
        let kept = fs::read_dir(dir.path()).unwrap().flatten();
        assert_eq!(
            kept.filter(|entry| entry.file_name().to_string_lossy().starts_with("trickle_up_job_1_0_"))
                .count(),
            3
        );
        std::os::unix::fs::symlink("/etc/passwd", place.path().join(files::TRICKLE_UP)).unwrap();
        assert_eq!(take_trickle(&place, dir.path(), "job_1_0", true).unwrap(), None);
        fs::File::create(place.path().join(files::TRICKLE_UP)).unwrap().set_len(TRICKLE_MAX.0 + 1).unwrap();
        assert_eq!(take_trickle(&place, dir.path(), "job_1_0", true).unwrap(), None);
        assert!(!place.path().join(files::TRICKLE_UP).exists());
    }

    #[test]
    fn only_outputs_of_the_job_are_sent_early() {
        let dir = tempfile::tempdir().unwrap();
        let place = SlotDir::create(&dir.path().join("slot"), &Trash::at(dir.path().join("trash"))).unwrap();
        for name in ["boinc_ufr_out", "boinc_ufr_other", "boinc_ufr_..", "boinc_ufr_"] {
            fs::write(place.path().join(name), "").unwrap();
        }
        let (name, open_name) = ("job_1_0_0".to_owned(), "out".to_owned());
        let outputs =
            [Output { name, open_name, copy: false, gzip: false, max_nbytes: None, disk_max: None }];
        let asked = upload_requests(&place, &outputs);
        assert_eq!(asked.iter().map(|output| output.open_name.as_str()).collect::<Vec<_>>(), ["out"]);
        assert!(!place.has("boinc_ufr_out"), "the request is gone");
        assert!(upload_requests(&place, &outputs).is_empty());
    }

    #[test]
    fn r6_10_an_output_to_be_sent_early_for_which_there_is_no_space_is_said_to_be_so() {
        if !rustix::process::geteuid().is_root() {
            return; // Only root has copies of outputs made.
        }
        let dir = tempfile::tempdir().unwrap();
        let mut place =
            SlotDir::create(&dir.path().join("slot"), &Trash::at(dir.path().join("trash"))).unwrap();
        place.hand_over(crate::owner::Owner::numbered(crate::owner::FIRST + 1)).unwrap();
        let (name, open_name) = ("job_1_0_0".to_owned(), "out".to_owned());
        let output = Output { name, open_name, copy: false, gzip: false, max_nbytes: None, disk_max: None };
        // A file of holes is as long as it says, and takes nothing.
        place.make(&output.place(), 0o644).unwrap().set_len(1 << 43).unwrap();
        if super::super::copying::has_space(dir.path(), 1 << 43).is_ok() {
            println!("skipped: there is space for anything here");
            return;
        }
        let look = |output: &Output| output_now(&place, dir.path(), output, &[], &EarlyDoor::default());
        assert!(look(&output).is_err_and(|error| lacks_space(&error)));
        place.write(&output.place(), b"x", 0o644).unwrap();
        assert_eq!(look(&output).unwrap().map(|found| found.nbytes), Some(Bytes(1)));
    }

    #[test]
    fn no_number_of_other_requests_hides_one() {
        let dir = tempfile::tempdir().unwrap();
        let place = SlotDir::create(&dir.path().join("slot"), &Trash::at(dir.path().join("trash"))).unwrap();
        let output = |number: u32| Output {
            name: format!("job_1_0_{number}"),
            open_name: format!("out{number}"),
            copy: false,
            gzip: false,
            max_nbytes: None,
            disk_max: None,
        };
        let outputs: Vec<Output> = (0..20).map(output).collect();
        for number in 0..3_000 {
            fs::write(place.path().join(format!("boinc_ufr_other{number}")), "").unwrap();
        }
        for output in &outputs {
            fs::write(place.path().join(format!("boinc_ufr_{}", output.open_name)), "").unwrap();
        }
        assert_eq!(upload_requests(&place, &outputs).len(), 20);
        assert_eq!(upload_requests(&place, &outputs).len(), 0, "the requests are gone");
    }
}
