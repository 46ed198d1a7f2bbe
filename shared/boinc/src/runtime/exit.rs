//! What it means that an application's process has ended.
//!
//! Model: an application that is done writes `boinc_finish_called` and exits with 0; everything else is a
//! restart or an error. The finish file alone is no success, and neither is the 0 alone. Ends by a signal
//! with which people and systems stop programs (HUP, INT, QUIT, KILL, TERM, STOP) say nothing about the job,
//! so it is restarted in silence; other signals are the application's own fault.
//!
//! Left out: Windows' exit codes, and killing on a limit, after which the client knows the cause without
//! asking.

use fallow_domain::Duration;

use super::finish::{Finish, TemporaryExit};

/// The client told the application to abort.
pub const ABORTED_BY_CLIENT: i32 = 194;
/// A process that the application started has failed.
pub const CHILD_FAILED: i32 = 195;
/// The slot and the outputs took more than `rsc_disk_bound`.
pub const DISK_LIMIT_EXCEEDED: i32 = 196;
/// The job ran longer than `rsc_fpops_bound` allows.
pub const TIME_LIMIT_EXCEEDED: i32 = 197;
/// The job took more memory than the preferences allow.
pub const MEM_LIMIT_EXCEEDED: i32 = 198;
/// The client was exiting.
pub const CLIENT_EXITING: i32 = 199;
/// The job had not been started by its deadline.
pub const UNSTARTED_LATE: i32 = 200;
/// The host lacks a coprocessor that the job needs.
pub const MISSING_COPROC: i32 = 201;
/// The project asked for the job to be aborted.
pub const ABORTED_BY_PROJECT: i32 = 202;
/// A user of this host aborted the job.
pub const ABORTED_VIA_GUI: i32 = 203;
/// Nobody knows.
pub const UNKNOWN: i32 = 204;
/// The application could not get memory.
pub const OUT_OF_MEMORY: i32 = 205;
/// The application could not initialise.
pub const INIT_FAILURE: i32 = 206;
/// A part of the job could not be run.
pub const NO_SUB_TASKS: i32 = 207;
/// A part of the job has failed.
pub const SUB_TASK_FAILURE: i32 = 208;
/// The job's deadline had passed.
pub const OVERDUE_EXCEEDED: i32 = 209;
/// The library caught a signal such as SEGV in the application.
pub const SIGNAL: i32 = 193;
/// The client could not start the application.
pub const START_FAILED: i32 = -185;
/// An input could not be downloaded.
pub const DOWNLOAD_FAILED: i32 = -186;
/// An output could not be uploaded.
pub const UPLOAD_FAILED: i32 = -187;
/// The application exited too often without a finish file and without a checkpoint in between.
pub const TOO_MANY_EXITS: i32 = -226;
/// An output was missing at the end.
pub const OUTPUT_MISSING: i32 = -161;
/// An output was larger than the project allows.
pub const OUTPUT_TOO_BIG: i32 = -131;

/// How many premature and temporary exits without a checkpoint in between are put up with (BOINC's figure).
pub const PREMATURE_EXITS_MAX: u32 = 100;
/// How long after its finish file an application may still live before it is killed.
pub const FINISH_GRACE: Duration = Duration::from_secs(300);
/// How long after a quit or an abort a process may still live before it gets SIGKILL.
pub const QUIT_GRACE: Duration = Duration::from_secs(60);

/// How a process ended, as `wait` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this code.
    Code(i32),
    /// A signal ended it.
    Signal {
        /// Its number on this system.
        number: i32,
        /// True if a core was dumped.
        core_dumped: bool,
    },
}

/// What that means for the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExitMeaning {
    /// The job is done; its outputs are to be checked and uploaded.
    Finished,
    /// The application is to be started again from its last checkpoint.
    Restart {
        /// Not before this time has passed.
        delay: Duration,
        /// Why it has ended.
        reason: RestartReason,
    },
    /// The job has failed.
    Failed {
        /// What to report (BOINC: `exit_status`).
        exit_status: i32,
        /// What to say about it in the report's `<message>`.
        message: String,
    },
}

/// Why an application is started again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestartReason {
    /// It exited with 0 without a finish file. After [`PREMATURE_EXITS_MAX`] of those the job has failed,
    /// with [`TOO_MANY_EXITS`]. An expected quit looks the same; the client knows whether it had asked for
    /// one.
    Premature,
    /// It asked for a pause. Counts like a premature exit.
    Temporary(TemporaryExit),
    /// Somebody stopped it with this signal. Does not count.
    Stopped(i32),
}

impl Ended {
    /// Takes a wait status apart, as Unix packs it.
    pub const fn from_wait_status(raw: i32) -> Self {
        match raw & 0x7f {
            0 => Self::Code((raw >> 8) & 0xff),
            number => Self::Signal { number, core_dumped: raw & 0x80 != 0 },
        }
    }

    /// Decides what the end means, given the two files of the slot. A wish to be started again later goes
    /// before the exit code and the finish file, as with the original.
    pub fn meaning(self, finish: Option<&Finish>, temporary: Option<&TemporaryExit>) -> ExitMeaning {
        match (self, finish, temporary) {
            (Self::Code(_), _, Some(exit)) => {
                ExitMeaning::Restart { delay: exit.delay, reason: RestartReason::Temporary(exit.clone()) }
            }
            (Self::Code(0), Some(_), None) => ExitMeaning::Finished,
            (Self::Code(0), None, None) => {
                ExitMeaning::Restart { delay: Duration::ZERO, reason: RestartReason::Premature }
            }
            (Self::Code(code), ..) => ExitMeaning::Failed { exit_status: code, message: code_message(code) },
            (Self::Signal { number, .. }, ..) if is_stop(number) => {
                ExitMeaning::Restart { delay: Duration::ZERO, reason: RestartReason::Stopped(number) }
            }
            // Only the limit on the size of files that the client sets leads to this one.
            (Self::Signal { number: FILE_SIZE_SIGNAL, .. }, ..) => ExitMeaning::Failed {
                exit_status: DISK_LIMIT_EXCEEDED,
                message: "one of its files outgrew by far what its project allows all of them together"
                    .to_owned(),
            },
            (Self::Signal { number, core_dumped }, ..) => ExitMeaning::Failed {
                // BOINC reports the raw wait status here.
                exit_status: number | if core_dumped { 0x80 } else { 0 },
                message: format!("process got signal {number}"),
            },
        }
    }
}

/// SIGHUP, SIGINT, SIGQUIT, SIGKILL, SIGTERM, and SIGSTOP as Linux numbers it.
const fn is_stop(signal: i32) -> bool {
    matches!(signal, 1 | 2 | 3 | 9 | 15 | 19)
}

/// SIGXFSZ, as Linux numbers it.
const FILE_SIZE_SIGNAL: i32 = 25;

/// BOINC's words, which servers' tools know: decimal, hexadecimal, and as the signed byte that exit codes
/// were when they were negative.
fn code_message(code: i32) -> String {
    format!("process exited with code {code} (0x{code:x}, {})", code | !0xff)
}

/// The name of an exit status that a client or this library gives, for people.
pub const fn name(exit_status: i32) -> Option<&'static str> {
    Some(match exit_status {
        SIGNAL => "the application crashed",
        ABORTED_BY_CLIENT => "aborted by the client",
        CHILD_FAILED => "a child process failed",
        DISK_LIMIT_EXCEEDED => "disk limit exceeded",
        TIME_LIMIT_EXCEEDED => "time limit exceeded",
        MEM_LIMIT_EXCEEDED => "memory limit exceeded",
        CLIENT_EXITING => "the client was exiting",
        UNSTARTED_LATE => "not started by its deadline",
        MISSING_COPROC => "missing coprocessor",
        ABORTED_BY_PROJECT => "aborted by the project",
        ABORTED_VIA_GUI => "aborted by the user",
        UNKNOWN => "unknown",
        OUT_OF_MEMORY => "out of memory",
        INIT_FAILURE => "initialisation failed",
        NO_SUB_TASKS => "a part could not be run",
        SUB_TASK_FAILURE => "a part failed",
        OVERDUE_EXCEEDED => "deadline passed",
        START_FAILED => "could not be started",
        DOWNLOAD_FAILED => "download failed",
        UPLOAD_FAILED => "upload failed",
        TOO_MANY_EXITS => "too many exits without `boinc_finish_called`",
        OUTPUT_MISSING => "an output is missing where its link file says",
        OUTPUT_TOO_BIG => "an output is too big",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pause() -> TemporaryExit {
        TemporaryExit { delay: Duration::from_secs(600), reason: "locked".into(), notice: false }
    }

    #[test]
    fn success_takes_the_zero_and_the_finish_file() {
        assert_eq!(Ended::Code(0).meaning(Some(&Finish::SUCCESS), None), ExitMeaning::Finished);
        let failed = Ended::Code(3).meaning(Some(&Finish::SUCCESS), None);
        let message = "process exited with code 3 (0x3, -253)".to_owned();
        assert_eq!(failed, ExitMeaning::Failed { exit_status: 3, message });
    }

    #[test]
    fn a_zero_alone_means_another_start() {
        let expected = ExitMeaning::Restart { delay: Duration::ZERO, reason: RestartReason::Premature };
        assert_eq!(Ended::Code(0).meaning(None, None), expected);
    }

    #[test]
    fn a_temporary_exit_waits_as_long_as_it_asks() {
        let expected = ExitMeaning::Restart {
            delay: Duration::from_secs(600),
            reason: RestartReason::Temporary(pause()),
        };
        assert_eq!(Ended::Code(0).meaning(None, Some(&pause())), expected);
        assert_eq!(Ended::Code(0).meaning(Some(&Finish::SUCCESS), Some(&pause())), expected);
        assert_eq!(Ended::Code(1).meaning(None, Some(&pause())), expected);
    }

    #[test]
    fn a_stop_signal_restarts_in_silence_and_a_crash_is_an_error() {
        for number in [1, 2, 3, 9, 15, 19] {
            let expected =
                ExitMeaning::Restart { delay: Duration::ZERO, reason: RestartReason::Stopped(number) };
            assert_eq!(Ended::from_wait_status(number).meaning(None, None), expected);
        }
        let ExitMeaning::Failed { exit_status, .. } = Ended::from_wait_status(11 | 0x80).meaning(None, None)
        else {
            panic!("a crash is an error");
        };
        assert_eq!(exit_status, 139);
    }

    proptest! {
        #[test]
        fn nothing_but_zero_and_a_finish_file_is_success(raw in 0_i32..0x1_0000, finished: bool, paused: bool) {
            let (finish, temporary) = (Finish::SUCCESS, pause());
            let meaning = Ended::from_wait_status(raw)
                .meaning(finished.then_some(&finish), paused.then_some(&temporary));
            prop_assert_eq!(meaning == ExitMeaning::Finished, raw == 0 && finished && !paused);
        }
    }
}
