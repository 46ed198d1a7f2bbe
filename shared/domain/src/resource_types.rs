//! Some of the resource types.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Invalid, ResourceType};

/// A set of [`ResourceType`]s. Written as their words, `cpu, nvidia`, and `none` for the empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResourceTypes(BTreeSet<ResourceType>);

impl ResourceTypes {
    /// Whether there is none in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it has a type in it.
    #[must_use]
    pub fn contains(&self, kind: ResourceType) -> bool {
        self.0.contains(&kind)
    }

    /// Those in it, the CPU first.
    pub fn iter(&self) -> impl Iterator<Item = ResourceType> {
        self.0.iter().copied()
    }

    /// From the words for its types.
    ///
    /// # Errors
    /// [`Invalid`] for the first that is no such word.
    pub fn from_names<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<Self, Invalid> {
        let read = |name: &str| ResourceType::from_name(name).ok_or_else(|| Self::invalid(name));
        names.into_iter().map(read).collect()
    }

    fn invalid(name: &str) -> Invalid {
        Invalid::new("resource type", name, "one of cpu, nvidia, amd, intel, apple")
    }
}

impl FromIterator<ResourceType> for ResourceTypes {
    fn from_iter<I: IntoIterator<Item = ResourceType>>(kinds: I) -> Self {
        Self(kinds.into_iter().collect())
    }
}

impl fmt::Display for ResourceTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        for (number, kind) in self.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{}", kind.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_4_types_are_written_by_their_words_and_read_again() {
        let some = ResourceTypes::from_names(["nvidia", "cpu", "nvidia"]).unwrap();
        assert_eq!(ResourceTypes::from_names(some.iter().map(ResourceType::name)), Ok(some.clone()));
        assert_eq!(some.to_string(), "cpu, nvidia");
        assert_eq!(ResourceTypes::default().to_string(), "none");
        assert!(some.contains(ResourceType::Cpu) && !some.contains(ResourceType::Amd));
        let error = ResourceTypes::from_names(["gpu"]).unwrap_err().to_string();
        assert!(error.contains("cpu, nvidia, amd, intel, apple"), "{error}");
    }
}
