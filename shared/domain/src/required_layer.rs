//! Layers of confinement that preferences require: without them nothing is computed (R6.10).

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Invalid;

/// All that a host of its kind can have.
const ALL: &str = "all";
/// Longest name, in bytes.
const LENGTH_MAX: usize = 32;

/// What people may require: one of the layers that agents know, by its name, or all that a host of its kind
/// can have.
///
/// What is stored or comes over the wire may have names that only newer versions know. They stay, so that a
/// host that cannot know whether it has such a layer computes nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RequiredLayer(String);

impl RequiredLayer {
    /// The layers that agents of this version know.
    pub const KNOWN: [&str; 10] =
        ["privileges", "user", "files", "lengths", "tcp", "processes", "calls", "sockets", "tmp", "groups"];

    /// All that a host of its kind can have.
    pub fn all() -> Self {
        Self(ALL.to_owned())
    }

    /// One that was stored or sent, also by a newer version.
    ///
    /// # Errors
    /// [`Invalid`] for what no version calls a layer.
    pub fn of_stored(name: &str) -> Result<Self, Invalid> {
        let is_name = (1..=LENGTH_MAX).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        match is_name {
            true => Ok(Self(name.to_owned())),
            false => Err(Invalid::new("layer of confinement", name, Self::expected())),
        }
    }

    /// Whether it stands for all that a host of its kind can have.
    pub fn is_all(&self) -> bool {
        self.0 == ALL
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// What people may write.
    pub const fn expected() -> &'static str {
        "privileges, user, files, lengths, tcp, processes, calls, sockets, tmp or groups; or all of them: all"
    }

    /// Reads several of them, parted by commas or blanks; `none` for none.
    ///
    /// # Errors
    /// [`Invalid`] for the first that is none.
    pub fn read_list(text: &str) -> Result<BTreeSet<Self>, Invalid> {
        let names: Vec<&str> = text.split([',', ' ']).filter(|name| !name.is_empty()).collect();
        match names.as_slice() {
            [] => Err(Invalid::new("layer of confinement", text, Self::expected())),
            [none] if none.eq_ignore_ascii_case("none") => Ok(BTreeSet::new()),
            names => names.iter().map(|name| name.parse()).collect(),
        }
    }

    /// Several of them for people: `calls, files`, or `none`.
    pub fn list<'a>(layers: impl IntoIterator<Item = &'a Self>) -> String {
        let all: Vec<&str> = layers.into_iter().map(Self::name).collect();
        if all.is_empty() { "none".to_owned() } else { all.join(", ") }
    }
}

impl fmt::Display for RequiredLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What people write: names that this version knows.
impl FromStr for RequiredLayer {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let name = text.trim();
        match name == ALL || Self::KNOWN.contains(&name) {
            true => Ok(Self(name.to_owned())),
            false => Err(Invalid::new("layer of confinement", text, Self::expected())),
        }
    }
}

impl TryFrom<String> for RequiredLayer {
    type Error = Invalid;
    fn try_from(text: String) -> Result<Self, Invalid> {
        Self::of_stored(&text)
    }
}

impl From<RequiredLayer> for String {
    fn from(layer: RequiredLayer) -> Self {
        layer.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_people_require_layers_that_this_version_knows_and_are_told_which_these_are() {
        let list = |text: &str| RequiredLayer::read_list(text).map(|layers| RequiredLayer::list(&layers));
        assert_eq!(list("files,calls").unwrap(), "calls, files");
        assert_eq!((list("all").unwrap(), list("None").unwrap()), ("all".to_owned(), "none".to_owned()));
        for bad in ["", "fils", "none,files", "Files", "ALL"] {
            let error = list(bad).unwrap_err().to_string();
            assert!(error.contains("layer of confinement"), "{error}");
            for known in RequiredLayer::KNOWN {
                assert!(error.contains(known), "{known} in {error}");
            }
        }
    }

    #[test]
    fn r6_10_what_a_newer_version_requires_is_kept() {
        let layer = RequiredLayer::of_stored("name_spaces").unwrap();
        let stored = serde_json::to_string(&layer).unwrap();
        assert_eq!(
            (stored.as_str(), serde_json::from_str(&stored).unwrap()),
            ("\"name_spaces\"", layer.clone())
        );
        assert!(layer.name().parse::<RequiredLayer>().is_err());
        let long = "a".repeat(LENGTH_MAX + 1);
        for bad in ["", "a b", "a\n", "1", long.as_str()] {
            assert!(RequiredLayer::of_stored(bad).is_err(), "{bad:?}");
        }
    }
}
