//! What is said over the control socket.

use std::collections::BTreeSet;
use std::time::Duration;

use fallow_domain::{AccountKey, Device, ExitCode};
use serde::{Deserialize, Serialize};

use super::disk::DiskStatus;
use super::for_people::NO_SPACE;
use super::status::Status;
use crate::error::AgentError;

/// Longest line in either direction; a status of ten thousand tasks fits.
pub const LINE_MAX: u64 = 16 << 20;

/// How long the agent may take over a request. All are answered at once but for [`Request::Attach`], which
/// waits for what the project says.
pub const ANSWER: Duration = Duration::from_secs(90);

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// What is going on?
    Status {},
    /// Who uses what of the disk?
    Disk {},
    /// Compute for a project.
    Attach {
        /// Its URL.
        url: String,
        /// The account; none for a project of the coordinator's document, or for the one that is known
        /// already.
        account_key: Option<AccountKey>,
        /// Its weight: 100 if none is given, or what it had.
        share: Option<f64>,
        /// Record it at once, without waiting for what the project says of the account.
        #[serde(default)]
        no_wait: bool,
    },
    /// Stop computing for a project and forget it.
    Detach {
        /// Its URL.
        url: String,
    },
    /// No computing until it is resumed.
    Suspend {},
    /// No computing for a while.
    Snooze {
        /// How long, in seconds; 0 ends it.
        seconds: u64,
        /// The user who asks. Nobody says that of himself: the agent knows it from the system.
        #[serde(skip)]
        by: Option<u32>,
    },
    /// Compute again.
    Resume {},
    /// Leave devices alone.
    Exclude {
        /// All that must not be used; none lifts the owner's limit.
        devices: BTreeSet<Device>,
    },
    /// Read the host's preference files anew.
    ReloadPreferences {},
    /// Contact a project now: a delay that it asked for, and backoffs, do not hold against the owner's word
    /// (R1.4).
    Update {
        /// Its URL.
        url: String,
    },
    /// End the agent.
    Stop {},
}

/// An answer: one of the two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// It is done.
    Done {
        /// What was done, for people.
        text: String,
        /// What people are told who do not administer the machine, if not that.
        #[serde(skip)]
        for_people: Option<String>,
        /// What was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<Box<Status>>,
        /// What was asked about the disk.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        disk: Option<Box<DiskStatus>>,
    },
    /// It is not done.
    Failed {
        /// Why not, and what to do.
        text: String,
        /// What people are told who do not administer the machine, if not that.
        #[serde(skip)]
        for_people: Option<String>,
        /// The exit code that says so.
        code: u8,
    },
}

impl Response {
    /// It is done.
    pub fn done(text: impl Into<String>) -> Self {
        Self::Done { text: text.into(), for_people: None, status: None, disk: None }
    }
    /// The agent ends, as it was asked to.
    pub fn ending() -> Self {
        Self::done("the agent is ending")
    }
    /// It is not done, or does not hold, since it cannot be stored. Where that is, people are not told.
    pub fn unstored(what: &str, why: &str) -> Self {
        let failed = Self::failed(&AgentError::no_space(format!("{what}: {why}")));
        failed.but_to_people(format!("{what}: {NO_SPACE}"))
    }
    /// The same, of which people are told this instead who do not administer the machine.
    #[must_use]
    pub fn but_to_people(mut self, said: String) -> Self {
        let (Self::Done { for_people, .. } | Self::Failed { for_people, .. }) = &mut self;
        *for_people = Some(said);
        self
    }
    /// As people see it who do not administer the machine: without what is its owner's own.
    #[must_use]
    pub fn for_people(self) -> Self {
        match self {
            Self::Done { text, for_people, status, disk: _ } => Self::Done {
                text: for_people.unwrap_or(text),
                for_people: None,
                status: status.map(|status| Box::new(status.for_people())),
                disk: None,
            },
            Self::Failed { text, for_people, code } => {
                Self::Failed { text: for_people.unwrap_or(text), for_people: None, code }
            }
        }
    }
    /// It is not done.
    pub fn failed(error: &AgentError) -> Self {
        Self::Failed { text: error.to_string(), for_people: None, code: error.exit_code().number() }
    }
    /// As a result again, on the side of whoever asked.
    ///
    /// # Errors
    /// What the agent refused, under the kind that has its exit code.
    pub fn into_result(self) -> Result<(String, Option<Box<Status>>), AgentError> {
        match self {
            Self::Done { text, status, .. } => Ok((text, status)),
            Self::Failed { text, code, .. } if code == ExitCode::Refused.number() => {
                Err(AgentError::refused(text))
            }
            Self::Failed { text, code, .. } if code == ExitCode::BadInput.number() => {
                Err(AgentError::bad_input(text))
            }
            Self::Failed { text, code, .. } if code == ExitCode::Unreachable.number() => {
                Err(AgentError::unreachable(text))
            }
            Self::Failed { text, code, .. } if code == ExitCode::NoSpace.number() => {
                Err(AgentError::no_space(text))
            }
            Self::Failed { text, .. } => {
                Err(AgentError::system("the agent could not do it", std::io::Error::other(text)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_read_as_they_are_written_and_show_no_key() {
        let request = Request::Attach {
            url: "http://127.0.0.1:1/p/".into(),
            account_key: Some(AccountKey::new("abc123")),
            share: Some(50.0),
            no_wait: false,
        };
        let text = serde_json::to_string(&request).unwrap();
        assert!(text.starts_with(r#"{"command":"attach","#), "{text}");
        assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), request);
        assert!(!format!("{request:?}").contains("abc123"));
        assert_eq!(serde_json::from_str::<Request>(r#"{"command":"status"}"#).unwrap(), Request::Status {});
    }

    #[test]
    fn r6_4_people_are_told_that_there_is_no_space_and_not_where() {
        let told = Response::unstored("computing is paused now", "no space left in /secret");
        let said = |told: Response| serde_json::to_value(told).unwrap()["failed"].clone();
        let text = "computing is paused now: no space left on the disk";
        assert_eq!(said(told.clone().for_people()), serde_json::json!({ "text": text, "code": 8 }));
        let text = "computing is paused now: no space left in /secret";
        assert_eq!(said(told), serde_json::json!({ "text": text, "code": 8 }));
        let other = Response::done("the agent is ending");
        assert_eq!(other.clone().for_people(), other);
    }

    #[test]
    fn nonsense_is_no_request() {
        for text in [
            "",
            "{}",
            "[]",
            r#"{"command":"dance"}"#,
            r#"{"command":"detach"}"#,
            r#"{"command":"stop","now":1}"#,
        ] {
            assert!(serde_json::from_str::<Request>(text).is_err(), "{text}");
        }
    }
}
