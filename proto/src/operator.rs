//! What operators' tools ask of a coordinator.
//!
//! States of workunits and jobs travel twice: as a value, and in words for peers that are older than the
//! value. Whoever reads one takes the value, and the words where there is none; a value that is not known
//! here, of a newer peer, is shown in the words beside it.

use v1::{Job, JobOutcome, JobReport, JobState, JobValidation, Workunit, WorkunitState};

/// Generated.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
pub mod v1 {
    tonic::include_proto!("fallow.operator.v1");
}

/// The words for the values of an enumeration, both ways.
macro_rules! words {
    ($name:ident: $($value:ident = $words:literal,)+) => {
        impl $name {
            /// In words; empty for none.
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self {
                    Self::Unspecified => "",
                    $(Self::$value => $words,)+
                }
            }

            /// From words; `None` for others than these.
            #[must_use]
            pub fn from_words(words: &str) -> Option<Self> {
                match words {
                    $($words => Some(Self::$value),)+
                    _ => None,
                }
            }

            /// The value, or what the words say where there is none that is known here.
            fn read(number: i32, words: &str) -> Self {
                match Self::try_from(number) {
                    Ok(value) if value != Self::Unspecified => value,
                    // Of an older peer, or of a newer one with a finer value beside words that are known.
                    _ => Self::from_words(words).unwrap_or(Self::Unspecified),
                }
            }
        }
    };
}

words! { WorkunitState: Active = "active", Validated = "validated", Failed = "failed", }
words! { JobState: Unsent = "unsent", InProgress = "in progress", Over = "over", }
words! { JobOutcome:
    Success = "success",
    Error = "error",
    Late = "late",
    NotNeeded = "not needed",
    Aborted = "aborted",
}
words! { JobValidation: Valid = "valid", Invalid = "invalid", Inconclusive = "inconclusive", }

/// The words for a value that was read, or those that came with it where it is not known here.
const fn shown<'a>(known: &'static str, came: &'a str) -> &'a str {
    if known.is_empty() { came } else { known }
}

impl Workunit {
    /// Where it stands.
    #[must_use]
    pub fn read_state(&self) -> WorkunitState {
        WorkunitState::read(self.state_value, &self.state)
    }
    /// The same in words.
    #[must_use]
    pub fn state_words(&self) -> &str {
        shown(self.read_state().words(), &self.state)
    }
}

impl Job {
    /// Where it stands.
    #[must_use]
    pub fn read_state(&self) -> JobState {
        JobState::read(self.state_value, &self.state)
    }
    /// The same in words.
    #[must_use]
    pub fn state_words(&self) -> &str {
        shown(self.read_state().words(), &self.state)
    }
    /// How it ended.
    #[must_use]
    pub fn read_outcome(&self) -> JobOutcome {
        JobOutcome::read(self.outcome_value, &self.outcome)
    }
    /// The same in words; empty before its end.
    #[must_use]
    pub fn outcome_words(&self) -> &str {
        shown(self.read_outcome().words(), &self.outcome)
    }
    /// What came of comparing it.
    #[must_use]
    pub fn read_validation(&self) -> JobValidation {
        JobValidation::read(self.validation_value, &self.validation)
    }
    /// The same in words; empty before that.
    #[must_use]
    pub fn validation_words(&self) -> &str {
        shown(self.read_validation().words(), &self.validation)
    }
}

impl JobReport {
    /// Where the job's workunit stands, in words.
    #[must_use]
    pub fn workunit_state_words(&self) -> &str {
        let state = WorkunitState::read(self.workunit_state_value, &self.workunit_state);
        shown(state.words(), &self.workunit_state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_from_its_value_and_from_the_words_of_peers_that_are_older() {
        let new = Job { outcome_value: JobOutcome::NotNeeded.into(), ..Job::default() };
        assert_eq!((new.read_outcome(), new.outcome_words()), (JobOutcome::NotNeeded, "not needed"));
        let old = Job { state: "in progress".into(), outcome: "error".into(), ..Job::default() };
        assert_eq!((old.read_state(), old.read_outcome()), (JobState::InProgress, JobOutcome::Error));
        let old = Workunit { state: "failed".into(), ..Workunit::default() };
        assert_eq!((old.read_state(), old.state_words()), (WorkunitState::Failed, "failed"));
        let report = JobReport { workunit_state: "active".into(), ..JobReport::default() };
        assert_eq!(report.workunit_state_words(), "active");
    }

    #[test]
    fn a_state_of_a_newer_peer_is_shown_in_its_own_words_and_taken_for_none_that_is_known() {
        let newer = Job { state: "on hold".into(), state_value: 99, ..Job::default() };
        assert_eq!((newer.read_state(), newer.state_words()), (JobState::Unspecified, "on hold"));
        let finer = Job { outcome: "error".into(), outcome_value: 99, ..Job::default() };
        assert_eq!(finer.read_outcome(), JobOutcome::Error);
        assert_eq!((newer.read_validation(), newer.validation_words()), (JobValidation::Unspecified, ""));
    }

    #[test]
    fn all_words_are_read_back() {
        for number in 1..6 {
            if let Ok(outcome) = JobOutcome::try_from(number) {
                assert_eq!(JobOutcome::from_words(outcome.words()), Some(outcome));
            }
            if let Ok(state) = JobState::try_from(number) {
                assert_eq!(JobState::from_words(state.words()), Some(state));
            }
            if let Ok(validation) = JobValidation::try_from(number) {
                assert_eq!(JobValidation::from_words(validation.words()), Some(validation));
            }
            if let Ok(state) = WorkunitState::try_from(number) {
                assert_eq!(WorkunitState::from_words(state.words()), Some(state));
            }
        }
    }
}
