//! What a coordinator asks of its agents: a versioned document.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{AccountKey, Invalid, KeyFingerprint, MasterUrl, Preferences, ResourceTypes, Share};

/// The version of a fleet document: a term and a number in it. Rises with every change; 0 means that no
/// document was ever accepted.
///
/// Terms order what one coordinator made before and after it was put back to an earlier state (R6.5): there
/// the numbers begin again, and agents follow older ones of them already. A new term begins then, and each
/// of its versions is newer than all of the terms before. The first term is 0.
///
/// The value is the term's 23 bits above the number's 40: it orders as versions do, is what versions were
/// before there were terms, and is exact where numbers have 53 bits, up to term 8,191.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DocumentVersion(pub u64);

/// Bits of a version that are its number.
const NUMBER_BITS: u32 = 40;

impl DocumentVersion {
    /// The last term that there can be.
    pub const TERM_MAX: u64 = (1 << (63 - NUMBER_BITS)) - 1;

    /// The first version of a term. One beyond the last term is taken for the last.
    #[must_use]
    pub const fn first_of(term: u64) -> Self {
        let term = if term > Self::TERM_MAX { Self::TERM_MAX } else { term };
        Self((term << NUMBER_BITS) + 1)
    }

    /// How often the coordinator was put back to an earlier state before.
    #[must_use]
    pub const fn term(self) -> u64 {
        self.0 >> NUMBER_BITS
    }

    /// Its number within the term.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0 & ((1 << NUMBER_BITS) - 1)
    }

    /// The next one of its term.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// `7` for the seventh of the first term, `2.7` for that of term 2.
impl fmt::Display for DocumentVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.term() {
            0 => self.0.fmt(f),
            term => f.pad(&format!("{term}.{}", self.number())),
        }
    }
}

/// As they are shown.
impl FromStr for DocumentVersion {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let wrong = || {
            let expected = "a version as `fallow documents` lists them, such as 7, or 2.7 for one of term 2";
            Invalid::new("document version", text, expected)
        };
        let digits = |text: &str| {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u64>().ok().filter(|_| is_number).ok_or_else(wrong)
        };
        let (term, number) = match text.split_once('.') {
            Some((term, number)) => (digits(term)?, digits(number)?),
            None => (0, digits(text)?),
        };
        if term > Self::TERM_MAX || number == 0 || number >> NUMBER_BITS > 0 {
            return Err(wrong());
        }
        Ok(Self((term << NUMBER_BITS) + number))
    }
}

/// A project that agents shall serve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProjectAssignment {
    /// Its name in the fleet, such as `mersenne`.
    pub name: String,
    /// Where it is.
    pub url: MasterUrl,
    /// The account that the agent computes for.
    pub account_key: AccountKey,
    /// Its weight against the other projects.
    pub share: Share,
    /// The key by which its programs must be signed (R6.10). Where none is named, the first one that its
    /// server shows is taken on trust, as BOINC's clients do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_sign_key: Option<KeyFingerprint>,
    /// Hosts ask it for no jobs that use one of these (R6.4).
    #[serde(default, skip_serializing_if = "ResourceTypes::is_empty")]
    pub without: ResourceTypes,
}

/// A coordinator's wishes for an agent: applied whole or not at all, kept when the coordinator is gone
/// (R6.1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FleetDocument {
    /// Its version.
    pub version: DocumentVersion,
    /// Names what it says, before an agent's own account keys are in it: documents of one version that are
    /// for hosts in other groups have other ones. Empty where nobody said it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub content: String,
    /// The projects to be attached to, each once. Others that came from a document are detached.
    pub projects: Vec<ProjectAssignment>,
    /// What the host may do, before its owner's limits.
    pub preferences: Preferences,
}

impl FleetDocument {
    /// Refuses a document that an agent could not follow.
    ///
    /// # Errors
    /// [`Invalid`] for the first value out of range, or a project named twice.
    pub fn check(&self) -> Result<(), Invalid> {
        self.preferences.check()?;
        let mut seen = BTreeSet::new();
        match self.projects.iter().find(|project| !seen.insert(&project.url)) {
            Some(twice) => Err(Invalid::new("project", &twice.url, "each project once in a document")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_5_versions_of_a_later_term_are_newer_and_say_so() {
        let (old, new) = (DocumentVersion(7), DocumentVersion::first_of(2));
        assert!(old < new && new < new.next() && old.next() == DocumentVersion(8));
        assert_eq!((old.to_string(), new.next().to_string()), ("7".to_owned(), "2.2".to_owned()));
        assert_eq!((new.term(), new.number(), old.term(), old.number()), (2, 1, 0, 7));
        assert_eq!(DocumentVersion::first_of(u64::MAX).term(), DocumentVersion::TERM_MAX);
        assert_eq!(format!("{old:>5}|{new:>5}"), "    7|  2.1");
    }

    #[test]
    fn r6_5_a_version_is_read_as_it_is_shown_and_what_is_none_is_refused() {
        for version in [DocumentVersion(1), DocumentVersion(7), DocumentVersion::first_of(2).next()] {
            assert_eq!(version.to_string().parse(), Ok(version));
        }
        for bad in ["", "0", "x", "-1", "+1", "1.", ".1", "2.0", "1.2.3", "1099511627776", "8388608.1"] {
            let error = bad.parse::<DocumentVersion>().unwrap_err();
            assert!(error.to_string().contains("such as 7, or 2.7"), "{bad}: {error}");
        }
        let last = DocumentVersion((DocumentVersion::TERM_MAX << NUMBER_BITS) + (1 << NUMBER_BITS) - 1);
        assert_eq!(last.to_string().parse(), Ok(last));
    }
}
