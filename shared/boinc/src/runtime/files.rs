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
