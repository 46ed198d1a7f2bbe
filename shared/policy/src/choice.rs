//! A policy chosen among those of its kind, by name.
//!
//! Which there are stands in `registry`, and nowhere else. A chosen policy is a value: it is copied,
//! compared, stored and written as its name.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A kind of policies, such as `dyn FetchPolicy`: what there is to choose from.
pub trait PolicyKind: Send + Sync + 'static {
    /// What names of this kind begin with, such as `WF`.
    const PREFIX: &'static str;
    /// All of them, in the order in which people are told of them.
    const ALL: &'static [&'static Self];
    /// The one that is followed where none is named.
    const DEFAULT: &'static Self;
    /// A policy's name.
    fn name(&self) -> &'static str;
    /// What it does, in a few words for people: 48 bytes at most, so that a line of help fits 80 columns.
    fn summary(&self) -> &'static str;
}

/// One policy of a kind.
pub struct Policy<K: ?Sized + 'static>(&'static K);

impl<K: PolicyKind + ?Sized> Policy<K> {
    /// A policy, whether or not the registry has it: an experiment can bring its own.
    pub const fn new(policy: &'static K) -> Self {
        Self(policy)
    }

    /// The one of that name, in capitals or not.
    pub fn named(name: &str) -> Option<Self> {
        K::ALL.iter().find(|policy| policy.name().eq_ignore_ascii_case(name)).map(|policy| Self(*policy))
    }

    /// All that the registry has.
    pub fn all() -> impl Iterator<Item = Self> {
        K::ALL.iter().map(|policy| Self(*policy))
    }

    /// All their names, for a message.
    pub fn names() -> String {
        K::ALL.iter().map(|policy| policy.name()).collect::<Vec<_>>().join(" or ")
    }

    /// A line of help for each: what it is called behind `switch`, `width` wide, and what it does about
    /// `what`.
    pub fn help(switch: &str, width: usize, what: &str) -> String {
        let line = |policy: &&K| {
            let name = format!("{switch}{}", policy.name());
            format!("  {name:<width$}  {what}{}\n", policy.summary())
        };
        K::ALL.iter().map(line).collect()
    }
}

impl<K: ?Sized> Deref for Policy<K> {
    type Target = K;
    fn deref(&self) -> &K {
        self.0
    }
}
impl<K: ?Sized> Clone for Policy<K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K: ?Sized> Copy for Policy<K> {}
impl<K: PolicyKind + ?Sized> Default for Policy<K> {
    fn default() -> Self {
        Self(K::DEFAULT)
    }
}
impl<K: PolicyKind + ?Sized> PartialEq for Policy<K> {
    fn eq(&self, other: &Self) -> bool {
        self.0.name() == other.0.name()
    }
}
impl<K: PolicyKind + ?Sized> Eq for Policy<K> {}
impl<K: PolicyKind + ?Sized> fmt::Debug for Policy<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}
impl<K: PolicyKind + ?Sized> fmt::Display for Policy<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

/// No policy has that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no policy {name:?}; expected {expected}")]
pub struct NoSuchPolicy {
    name: String,
    expected: String,
}

impl<K: PolicyKind + ?Sized> FromStr for Policy<K> {
    type Err = NoSuchPolicy;
    fn from_str(name: &str) -> Result<Self, NoSuchPolicy> {
        Self::named(name).ok_or_else(|| NoSuchPolicy { name: name.to_owned(), expected: Self::names() })
    }
}
impl<K: PolicyKind + ?Sized> Serialize for Policy<K> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.0.name())
    }
}
impl<'de, K: PolicyKind + ?Sized> Deserialize<'de> for Policy<K> {
    /// Records of earlier versions have names such as `Wf2`.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::AccountingPolicy;
    use crate::completion::CompletionPolicy;
    use crate::cpu_schedule::CpuPolicy;
    use crate::fetch::FetchPolicy;
    use crate::send::SendPolicy;

    fn check<K: PolicyKind + ?Sized>(longest: usize) {
        for (place, policy) in K::ALL.iter().enumerate() {
            let name = policy.name();
            let own = name.strip_prefix(K::PREFIX).unwrap_or_else(|| panic!("{name}: not {}...", K::PREFIX));
            let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
            assert!(!own.is_empty() && own.chars().all(is_plain), "{name}: letters, digits and - only");
            assert!(name.len() <= longest, "{name}: names of its kind have {longest} letters at most");
            assert!(own != "0" && own != "toy", "{name}: that is what tests and examples call theirs");
            let summary = policy.summary();
            assert!(!summary.trim().is_empty() && !summary.contains('\n'), "{name}: its summary");
            assert!(summary.len() <= 48, "{name}: its summary has more than 48 bytes");
            let first = K::ALL.iter().position(|other| other.name().eq_ignore_ascii_case(name));
            assert_eq!(first, Some(place), "{name}: twice");
            let found: Policy<K> = name.to_ascii_lowercase().parse().unwrap();
            assert_eq!((found, found.to_string().as_str()), (Policy::new(*policy), name));
        }
        assert!(Policy::<K>::all().any(|policy| policy == Policy::default()), "the default is none of them");
        assert!("none".parse::<Policy<K>>().unwrap_err().to_string().contains(&Policy::<K>::names()));
    }

    #[test]
    fn every_policy_has_a_name_of_its_own_by_which_it_is_found_and_fits_a_line_of_help() {
        check::<dyn CpuPolicy>(6);
        check::<dyn FetchPolicy>(6);
        check::<dyn SendPolicy>(6);
        check::<dyn CompletionPolicy>(6);
        check::<dyn AccountingPolicy>(16);
    }

    #[test]
    fn what_earlier_versions_stored_is_read() {
        let stored: Policy<dyn FetchPolicy> = serde_json::from_str("\"Wf1\"").unwrap();
        assert_eq!(stored.to_string(), "WF1");
        assert_eq!(serde_json::to_string(&stored).unwrap(), "\"WF1\"");
    }
}
