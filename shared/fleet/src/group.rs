//! Groups of hosts, and what each says of them.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use fallow_domain::{
    AccountKey, Invalid, KeyFingerprint, LabelName, Labels, MasterUrl, ResourceTypes, Share,
};
use serde::{Deserialize, Serialize};

use crate::effective::Wish;
use crate::{Preference, Selector};

/// The highest precedence.
pub const PRECEDENCE_MAX: u32 = 1_000_000;

/// The name of a group, written as names of labels are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GroupName(LabelName);

impl GroupName {
    /// The name as it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl FromStr for GroupName {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let expected = "up to 63 letters, digits, '-', '_' and '.', a letter or a digit at both ends";
        text.parse().map(Self).map_err(|_| Invalid::new("name of a group", text, expected))
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A group: hosts, and what is different for them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Which group prevails where two say the same value: the higher. No two groups have the same.
    pub precedence: u32,
    /// Its hosts.
    pub selector: Selector,
    /// What it says of projects, by their names.
    pub projects: BTreeMap<String, ProjectWish>,
    /// The preferences that it says, each once, in the order of [`crate::PREFERENCE_KEYS`].
    pub preferences: Vec<Preference>,
}

/// What a group says of a project.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProjectWish {
    /// Whether hosts serve it, and with which share; none where the group leaves that as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wish: Option<Wish>,
    /// The types of which hosts ask it for no jobs, instead of those that lower groups say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without: Option<ResourceTypes>,
    /// Where it is, if no document of the fleet knows it.
    pub foreign: Option<Foreign>,
}

/// A project that is not in the fleet-wide document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Foreign {
    /// Where it is.
    pub url: MasterUrl,
    /// The account that all agents of the group compute for.
    pub account_key: AccountKey,
    /// As [`ProjectAssignment::code_sign_key`](fallow_domain::ProjectAssignment::code_sign_key).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_sign_key: Option<KeyFingerprint>,
}

impl ProjectWish {
    /// Serve it with this share.
    #[must_use]
    pub fn share(share: Share) -> Self {
        Self { wish: Some(Wish::Share(share)), without: None, foreign: None }
    }
}

/// All groups, by their names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Groups(pub BTreeMap<GroupName, Group>);

impl Groups {
    /// The groups that a host with these labels is in, from the lowest precedence to the highest.
    #[must_use]
    pub fn of(&self, labels: &Labels) -> Vec<(&GroupName, &Group)> {
        let mut groups: Vec<_> = self.0.iter().filter(|(_, group)| group.selector.chooses(labels)).collect();
        groups.sort_by_key(|(_, group)| group.precedence);
        groups
    }

    /// What is different after a change from these to others.
    #[must_use]
    pub fn changed<'a>(&'a self, after: &'a Self) -> GroupsChanged<'a> {
        let put = after.0.iter().filter(|(name, group)| self.0.get(*name) != Some(*group));
        let removed = self.0.keys().filter(|name| !after.0.contains_key(*name));
        GroupsChanged { put: put.map(|(name, _)| name).collect(), removed: removed.collect() }
    }
}

/// Names of groups that a change is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupsChanged<'a> {
    /// Those that are new or others.
    pub put: Vec<&'a GroupName>,
    /// Those that are gone.
    pub removed: Vec<&'a GroupName>,
}
