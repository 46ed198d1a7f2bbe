//! How far a job got before it was over.

use serde::{Deserialize, Serialize};

/// How far a job got before it was over, as its project is told (BOINC: `state` of a result). Stored as
/// BOINC's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "u8", into = "u8")]
pub(crate) enum EndState {
    /// A file that it needs could not be had.
    DownloadFailed,
    /// It failed.
    ComputeError,
    /// It is done. Its outputs may have yet to be uploaded.
    Done,
    /// Somebody did not want it any more.
    Aborted,
    /// An output could not be uploaded.
    UploadFailed,
}

impl From<EndState> for u8 {
    fn from(state: EndState) -> Self {
        match state {
            EndState::DownloadFailed => 1,
            EndState::ComputeError => 3,
            EndState::Done => 5,
            EndState::Aborted => 6,
            EndState::UploadFailed => 7,
        }
    }
}

impl From<u8> for EndState {
    /// What no job ends in is taken for a failure, and reported so.
    fn from(number: u8) -> Self {
        match number {
            1 => Self::DownloadFailed,
            5 => Self::Done,
            6 => Self::Aborted,
            7 => Self::UploadFailed,
            _ => Self::ComputeError,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_job_ended_in_is_stored_by_boincs_number() {
        let read = |number: &str| serde_json::from_str::<EndState>(number).unwrap();
        let pairs = [
            (EndState::DownloadFailed, "1"),
            (EndState::ComputeError, "3"),
            (EndState::Done, "5"),
            (EndState::Aborted, "6"),
            (EndState::UploadFailed, "7"),
        ];
        for (state, number) in pairs {
            assert_eq!((serde_json::to_string(&state).unwrap().as_str(), read(number)), (number, state));
        }
        assert_eq!(read("2"), EndState::ComputeError, "no job ends in that");
    }
}
