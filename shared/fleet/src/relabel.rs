//! A change of a host's labels, as operators write it: `room=12 gpu-`.

use std::collections::BTreeSet;

use fallow_domain::{Invalid, LabelName, Labels};

/// Labels to set and to remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelEdit {
    set: Labels,
    remove: BTreeSet<LabelName>,
}

impl LabelEdit {
    /// Reads a change: `NAME=VALUE` sets a label, `NAME-` removes one.
    ///
    /// # Errors
    /// [`Invalid`] for the first that is neither, or that only agents report.
    pub fn read<'a>(given: impl IntoIterator<Item = &'a str>) -> Result<Self, Invalid> {
        let (removals, labels): (Vec<&str>, Vec<&str>) =
            given.into_iter().partition(|text| text.ends_with('-') && !text.contains('='));
        let set = Labels::read(labels.iter().copied()).map_err(|bad| match bad.what {
            "label" if !bad.given.contains('=') => Invalid::new(
                "label",
                bad.given,
                "NAME=VALUE to set it, such as room=12, or NAME- to remove it",
            ),
            _ => bad,
        })?;
        let remove = removals.iter().map(|text| text.trim_end_matches('-').parse::<LabelName>());
        let remove: BTreeSet<LabelName> = remove.collect::<Result<_, _>>()?;
        match remove.iter().find(|name| set.get(name.as_str()).is_some()) {
            Some(twice) => Err(Invalid::new("label", twice, "to be set or to be removed, not both")),
            None => Ok(Self { set, remove }),
        }
    }

    /// The names that it is about.
    pub fn names(&self) -> impl Iterator<Item = &LabelName> {
        self.set.iter().map(|(name, _)| name).chain(&self.remove)
    }

    /// What it makes of labels. To remove one that is not there changes nothing.
    ///
    /// # Errors
    /// [`Invalid`] where there would be too many.
    pub fn applied(&self, labels: &Labels) -> Result<Labels, Invalid> {
        let mut after = labels.clone();
        for name in &self.remove {
            after.remove(name);
        }
        self.set.iter().try_for_each(|(name, value)| after.set(name.clone(), value.clone()))?;
        Ok(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_4_labels_are_set_and_removed_in_one_change() {
        let before = Labels::read(["room=11", "gpus=1", "rack=4"]).unwrap();
        let edit = LabelEdit::read(["room=12", "gpus-", "site=brno", "never-"]).unwrap();
        assert_eq!(edit.applied(&before).unwrap().to_string(), "rack=4 room=12 site=brno");
        assert_eq!(edit.names().count(), 4);
    }

    #[test]
    fn r6_4_what_is_no_change_of_labels_is_refused_with_what_would_be_one() {
        for (bad, expected) in [
            (vec!["room"], "NAME- to remove it"),
            (vec!["-"], "such as room"),
            (vec!["os=plan9"], "do not report"),
            (vec!["room=1", "room-"], "not both"),
        ] {
            let error = LabelEdit::read(bad.iter().copied()).unwrap_err().to_string();
            assert!(error.contains(expected), "{bad:?}: {error}");
        }
    }
}
