//! Names of the files in a slot that client and application agree on.

/// What the client tells the application at start; [`super::init_data`].
pub const INIT_DATA: &str = "init_data.xml";
/// The shared memory of the channel; see [`super::channel`].
pub const CHANNEL: &str = "boinc_mmap_file";
/// Locked by the application for as long as it lives, so that no two instances run in one slot.
pub const LOCK: &str = "boinc_lockfile";
/// Written by an application that has finished; see [`super::finish::Finish`].
pub const FINISH: &str = "boinc_finish_called";
/// Written by an application that wants to be started again later; see [`super::finish::TemporaryExit`].
pub const TEMPORARY_EXIT: &str = "boinc_temporary_exit";
/// Written by the client once all links of the slot exist (client 8.3).
pub const SETUP_COMPLETE: &str = "boinc_setup_complete";
/// The application's standard error, appended to.
pub const STDERR: &str = "stderr.txt";
/// A message to the server, named by the application before it sends `<have_new_trickle_up/>`.
pub const TRICKLE_UP: &str = "trickle_up.xml";
/// The beginning of the name that [`TRICKLE_UP`] gets in its project's directory; its job and its time
/// follow.
const TRICKLE_UP_KEPT: &str = "trickle_up_";
/// The beginning of the name of a message from the server, put into the slot; its time follows.
pub const TRICKLE_DOWN: &str = "trickle_down_";
/// The beginning of the name of a file by which an application asks to send an output early; its open name
/// follows.
pub const UPLOAD_REQUEST: &str = "boinc_ufr_";
/// The beginning of the name of a file that tells what became of that; likewise.
pub const UPLOAD_STATUS: &str = "boinc_ufs_";

/// The name of a message to the server in its project's directory, given its job and the second in which it
/// was made.
pub fn trickle_up(result_name: &str, secs: i64) -> String {
    format!("{TRICKLE_UP_KEPT}{result_name}_{secs}.xml")
}

/// Takes such a name apart; none if it is none.
pub fn trickle_up_of(name: &str) -> Option<(&str, i64)> {
    let (result_name, secs) = name.strip_prefix(TRICKLE_UP_KEPT)?.strip_suffix(".xml")?.rsplit_once('_')?;
    let secs = secs.parse().ok().filter(|secs| (0..1 << 40).contains(secs))?;
    (!result_name.is_empty()).then_some((result_name, secs))
}

/// What `boinc_ufs_NAME` says: 0 for an output that the server has, else an error number.
pub fn upload_status(status: i32) -> String {
    format!("<status>{status}</status>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_kept_message_says_whose_it_is_and_when_it_was_made() {
        let name = trickle_up("job_1_0", 1_700_000_000);
        assert_eq!(name, "trickle_up_job_1_0_1700000000.xml");
        assert_eq!(trickle_up_of(&name), Some(("job_1_0", 1_700_000_000)));
        for other in [
            "trickle_up.xml",
            "trickle_up_.xml",
            "trickle_up__1.xml",
            "trickle_up_a_x.xml",
            "trickle_up_a_-1.xml",
            "a",
        ] {
            assert_eq!(trickle_up_of(other), None, "{other}");
        }
    }
}
