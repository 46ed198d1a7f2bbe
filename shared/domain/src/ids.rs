//! Names of things. One type per kind, so that a job cannot be taken for a slot.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident, $inner:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number_id!(
    /// A project on one host: given at attach in rising order, never used again. Breaks ties.
    ProjectId, u32);
number_id!(
    /// A job on one host: given on arrival in rising order, never used again. Breaks ties.
    JobId, u64);
number_id!(
    /// A slot directory, `slots/N` (BOINC: `slot`).
    SlotId, u32);

/// An agent's name in its fleet, given by the coordinator at enrolment. Sorts by the time it was given.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AgentId(pub String);

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A project's account key (BOINC: `authenticator`). A secret: it never shows in logs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AccountKey(String);

impl AccountKey {
    /// Takes the key as the project gave it. The client treats it as opaque.
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }
    /// The secret itself, for the wire and the account file only.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccountKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_key_does_not_show_in_debug_output() {
        assert!(!format!("{:?}", AccountKey::new("dd53bc9d")).contains("dd53"));
    }
}
