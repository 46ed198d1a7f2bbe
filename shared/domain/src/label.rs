//! Labels of hosts (R6.4): what groups of the fleet are chosen by, as `room=12`.
//!
//! Three sources say labels of a host: the token it was enrolled with, the operators, and the agent itself,
//! which reports facts such as its system. Names of facts ([`FACTS`]) are nobody else's: [`Labels::read`],
//! which reads what people give, refuses them. Of the other two sources enrolment wins ([`Labels::merged`]).
//! So neither an agent nor an operator changes what a host was enrolled as.

use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Invalid;

/// Characters of a name or a value at most, as Kubernetes has it.
pub const LABEL_LENGTH_MAX: usize = 63;
/// Labels that one source may give a host.
pub const LABELS_MAX: usize = 64;

/// Names of the labels that agents report, and of `agent_id`, which the coordinator gave. A name that begins
/// with one of them and a dot is a fact as well, such as `gpu.nvidia`.
pub const FACTS: [&str; 12] = [
    "agent_id",
    "agent_name",
    "agent_version",
    "arch",
    "container",
    "container_engine",
    "cores",
    "gpu",
    "hostname",
    "memory_mib",
    "os",
    "virtual",
];

const NAME_EXPECTED: &str =
    "up to 63 letters, digits, '-', '_' and '.', a letter or a digit at both ends, such as room";
const VALUE_EXPECTED: &str =
    "up to 63 letters, digits, '-', '_' and '.', a letter or a digit at both ends, such as 12";
const COUNT_EXPECTED: &str = "at most 64 labels";
const LABEL_EXPECTED: &str = "NAME=VALUE, such as room=12";

/// The name of a label, such as `room`. Letters count as they are written: `Room` is another name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LabelName(String);

impl LabelName {
    /// The name as it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the name of a fact, which only agents report ([`FACTS`]).
    #[must_use]
    pub fn is_fact(&self) -> bool {
        let first = self.0.split_once('.').map_or(self.as_str(), |(first, _)| first);
        FACTS.contains(&first)
    }
}

/// The value of a label, such as `12`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LabelValue(String);

impl LabelValue {
    /// The value as it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The number that it is, if it is a whole one from 0.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        as_number(&self.0)
    }

    /// What an agent reports, made a value: other characters become `_`, what is too long is cut. None if
    /// nothing is left that could begin and end it.
    #[must_use]
    pub fn fitted(text: &str) -> Option<Self> {
        let fit = |c: char| if is_allowed(c) { c } else { '_' };
        let text: String = text.chars().map(fit).collect();
        let text = text.trim_start_matches(is_inner);
        let text = text.get(..LABEL_LENGTH_MAX).unwrap_or(text);
        text.trim_end_matches(is_inner).parse().ok()
    }
}

/// A whole number from 0, written with digits alone.
fn as_number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || is_inner(c)
}

/// What may stand inside a name or a value, but not at its ends.
fn is_inner(c: char) -> bool {
    matches!(c, '-' | '_' | '.')
}

fn is_label_text(text: &str) -> bool {
    (1..=LABEL_LENGTH_MAX).contains(&text.len())
        && text.chars().all(is_allowed)
        && !text.starts_with(is_inner)
        && !text.ends_with(is_inner)
}

macro_rules! label_text {
    ($name:ident, $what:literal, $expected:ident) => {
        impl FromStr for $name {
            type Err = Invalid;
            fn from_str(text: &str) -> Result<Self, Invalid> {
                if is_label_text(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(Invalid::new($what, text, $expected))
                }
            }
        }
        impl TryFrom<String> for $name {
            type Error = Invalid;
            fn try_from(text: String) -> Result<Self, Invalid> {
                text.parse()
            }
        }
        impl From<$name> for String {
            fn from(text: $name) -> Self {
                text.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}
label_text!(LabelName, "name of a label", NAME_EXPECTED);
label_text!(LabelValue, "value of a label", VALUE_EXPECTED);

/// Labels, each name once; at most [`LABELS_MAX`] of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<LabelName, LabelValue>", into = "BTreeMap<LabelName, LabelValue>")]
pub struct Labels(BTreeMap<LabelName, LabelValue>);

impl Labels {
    /// Reads labels that people give, each written `NAME=VALUE`.
    ///
    /// # Errors
    /// [`Invalid`] for the first that is none, that is named twice or that only agents report, and for too
    /// many.
    pub fn read<'a>(given: impl IntoIterator<Item = &'a str>) -> Result<Self, Invalid> {
        let mut labels = Self::default();
        for text in given {
            let bad = || Invalid::new("label", text, LABEL_EXPECTED);
            let (name, value) = text.split_once('=').ok_or_else(bad)?;
            let (name, value): (LabelName, LabelValue) = (name.trim().parse()?, value.trim().parse()?);
            if name.is_fact() {
                return Err(Invalid::new(
                    "label",
                    text,
                    "a name that agents do not report themselves, such as room",
                ));
            }
            if labels.get(name.as_str()).is_some() {
                return Err(Invalid::new("label", text, "each name once"));
            }
            labels.set(name, value)?;
        }
        Ok(labels)
    }

    /// The value of a label, if there is one of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&LabelValue> {
        // A text that is no name is the name of none.
        self.0.get(&name.parse::<LabelName>().ok()?)
    }

    /// Sets a label, in place of one of the same name.
    ///
    /// # Errors
    /// [`Invalid`] where there would be too many; nothing is changed then.
    pub fn set(&mut self, name: LabelName, value: LabelValue) -> Result<(), Invalid> {
        if self.0.len() == LABELS_MAX && !self.0.contains_key(&name) {
            return Err(Invalid::new("label", name, COUNT_EXPECTED));
        }
        self.0.insert(name, value);
        Ok(())
    }

    /// Removes a label and says whether there was one.
    pub fn remove(&mut self, name: &LabelName) -> bool {
        self.0.remove(name).is_some()
    }

    /// The labels, by name.
    pub fn iter(&self) -> btree_map::Iter<'_, LabelName, LabelValue> {
        self.0.iter()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The labels of a host. Facts are what the agent reports, all others what it was enrolled with or else
    /// what operators said; each source is heard only on its own names.
    #[must_use]
    pub fn merged(enrolment: &Self, operator: &Self, facts: &Self) -> Self {
        let mut all = BTreeMap::new();
        // Low to high.
        for (source, reports) in [(facts, true), (operator, false), (enrolment, false)] {
            let own = source.0.iter().filter(|(name, _)| name.is_fact() == reports);
            all.extend(own.map(|(name, value)| (name.clone(), value.clone())));
        }
        // Three sources, each bounded.
        Self(all)
    }
}

impl TryFrom<BTreeMap<LabelName, LabelValue>> for Labels {
    type Error = Invalid;
    fn try_from(labels: BTreeMap<LabelName, LabelValue>) -> Result<Self, Invalid> {
        match labels.len() {
            0..=LABELS_MAX => Ok(Self(labels)),
            many => Err(Invalid::new("number of labels", many, COUNT_EXPECTED)),
        }
    }
}

impl From<Labels> for BTreeMap<LabelName, LabelValue> {
    fn from(labels: Labels) -> Self {
        labels.0
    }
}

impl<'a> IntoIterator for &'a Labels {
    type Item = (&'a LabelName, &'a LabelValue);
    type IntoIter = btree_map::Iter<'a, LabelName, LabelValue>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// As people write them, parted by blanks: `room=12 site=brno`.
impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.iter().map(|(name, value)| format!("{name}={value}")).collect();
        f.pad(&all.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(given: &[&str]) -> Labels {
        Labels::read(given.iter().copied()).unwrap()
    }

    fn facts(given: &[(&str, &str)]) -> Labels {
        let mut labels = Labels::default();
        for (name, value) in given {
            labels.set(name.parse().unwrap(), value.parse().unwrap()).unwrap();
        }
        labels
    }

    #[test]
    fn r6_4_labels_read_as_they_are_written() {
        let read = labels(&["room=12", "site=brno-2"]);
        assert_eq!(read.to_string(), "room=12 site=brno-2");
        assert_eq!(read.get("room").map(LabelValue::as_str), Some("12"));
        let stored = serde_json::to_string(&read).unwrap();
        assert_eq!(stored, r#"{"room":"12","site":"brno-2"}"#);
        assert_eq!(serde_json::from_str::<Labels>(&stored).unwrap(), read);
    }

    #[test]
    fn r6_4_what_is_no_label_is_refused_with_what_would_be_one() {
        let long = format!("room={}", "1".repeat(LABEL_LENGTH_MAX + 1));
        for bad in ["", "room", "room=", "=12", "ro om=12", "room=-12", "room=1\u{202e}2", "room=1\n2", &long]
        {
            let error = Labels::read([bad]).unwrap_err().to_string();
            assert!(error.contains("expected") && error.len() < 500, "{bad}: {error}");
        }
        assert!(Labels::read(["room=12", "room=13"]).unwrap_err().to_string().contains("each name once"));
    }

    #[test]
    fn r6_4_a_host_has_a_bounded_number_of_labels_from_each_source() {
        let many: Vec<String> = (0..=LABELS_MAX).map(|n| format!("l{n}=1")).collect();
        assert!(Labels::read(many.iter().map(String::as_str)).is_err());
        assert!(Labels::read(many[1..].iter().map(String::as_str)).is_ok());
        let stored: BTreeMap<_, _> = many.iter().map(|label| label.split_once('=').unwrap()).collect();
        assert!(serde_json::from_str::<Labels>(&serde_json::to_string(&stored).unwrap()).is_err());
    }

    #[test]
    fn r6_4_nobody_but_the_agent_says_facts() {
        for bad in ["os=linux", "gpu.nvidia=1", "cores=64"] {
            assert!(Labels::read([bad]).unwrap_err().to_string().contains("do not report"), "{bad}");
        }
        assert!(Labels::read(["osx=1"]).is_ok());
    }

    #[test]
    fn r6_4_neither_facts_nor_operators_change_what_a_host_was_enrolled_as() {
        let enrolment = labels(&["room=12"]);
        let operator = labels(&["room=13", "rack=4"]);
        let reported = facts(&[("room", "14"), ("os", "linux")]);
        let all = Labels::merged(&enrolment, &operator, &reported);
        assert_eq!(all.to_string(), "os=linux rack=4 room=12");
        let forged = facts(&[("os", "plan9")]);
        assert_eq!(Labels::merged(&forged, &forged, &reported).to_string(), "os=linux");
    }

    #[test]
    fn r6_4_numbers_are_whole_and_without_a_sign() {
        let number = |text: &str| text.parse::<LabelValue>().unwrap().number();
        assert_eq!(
            (number("12"), number("007"), number("1.5"), number("1e3")),
            (Some(12), Some(7), None, None)
        );
    }

    proptest! {
        #[test]
        fn r6_4_whatever_an_agent_reports_becomes_a_value_or_nothing(text in "\\PC{0,100}") {
            if let Some(value) = LabelValue::fitted(&text) {
                prop_assert_eq!(value.as_str().parse::<LabelValue>().unwrap(), value);
            }
        }

        #[test]
        fn r6_4_a_value_that_is_reported_stays_as_it_is(text in "[a-zA-Z0-9]([-_.a-z0-9]{0,60}[a-z0-9])?") {
            prop_assert_eq!(LabelValue::fitted(&text).map(String::from), Some(text));
        }
    }
}
