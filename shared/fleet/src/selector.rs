//! Which hosts a group is for, by their labels: `room=12, os in (linux, freebsd), !gpu, cores >= 8`.
//!
//! Terms are parted by commas, and a host must meet all of them; a selector without terms chooses every host.
//! As Kubernetes has it, `!=` and `notin` also choose hosts that have no such label. Comparisons are of whole
//! numbers; a host whose label is missing or no number does not meet them.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use fallow_domain::{Invalid, LabelName, LabelValue, Labels};
use serde::{Deserialize, Serialize};

/// Characters of a selector at most: bounds how many terms and values there are.
pub const SELECTOR_MAX: usize = 1_024;

const EXPECTED: &str = "terms parted by commas, each such as room=12, room!=12, gpu, !gpu, os in (linux, freebsd), room notin (1, 2) or cores>=8";

/// What is said of a term that is not there.
const NO_TERM: &str = "nothing beside a comma";

/// Chooses hosts by their labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Selector(Vec<Term>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    name: LabelName,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Present,
    Missing,
    Equal(LabelValue),
    Unequal(LabelValue),
    In(BTreeSet<LabelValue>),
    NotIn(BTreeSet<LabelValue>),
    AtLeast(u64),
    AtMost(u64),
    Above(u64),
    Below(u64),
}

impl Selector {
    /// Whether a host with these labels is chosen.
    #[must_use]
    pub fn chooses(&self, labels: &Labels) -> bool {
        self.0.iter().all(|Term { name, test }| test.is_met(labels.get(name.as_str())))
    }
}

impl Test {
    fn is_met(&self, value: Option<&LabelValue>) -> bool {
        let number = value.and_then(LabelValue::number);
        match self {
            Self::Present => value.is_some(),
            Self::Missing => value.is_none(),
            Self::Equal(wanted) => value == Some(wanted),
            Self::Unequal(unwanted) => value != Some(unwanted),
            Self::In(wanted) => value.is_some_and(|value| wanted.contains(value)),
            Self::NotIn(unwanted) => value.is_none_or(|value| !unwanted.contains(value)),
            Self::AtLeast(limit) => number.is_some_and(|number| number >= *limit),
            Self::AtMost(limit) => number.is_some_and(|number| number <= *limit),
            Self::Above(limit) => number.is_some_and(|number| number > *limit),
            Self::Below(limit) => number.is_some_and(|number| number < *limit),
        }
    }
}

impl FromStr for Selector {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        if text.len() > SELECTOR_MAX {
            return Err(Invalid::new("selector", text, "at most 1,024 characters"));
        }
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let terms: Vec<_> =
            parts(text).into_iter().map(|term| (term.trim(), read_term(term.trim()))).collect();
        // All that is wrong at once. An empty selector chooses every host, and an empty term is none.
        let bad = terms.iter().filter(|(_, read)| read.is_err()).map(|(term, _)| *term);
        let bad: Vec<_> = bad.map(|term| if term.is_empty() { NO_TERM } else { term }).collect();
        if bad.len() > 1 || bad.contains(&NO_TERM) {
            return Err(Invalid::new("selector", bad.join("; "), EXPECTED));
        }
        terms.into_iter().map(|(_, read)| read).collect::<Result<_, _>>().map(Self)
    }
}

/// The terms as they stand; commas within parentheses part none.
fn parts(text: &str) -> Vec<&str> {
    let mut open = false;
    let mut between = |c: char| {
        open = match c {
            '(' => true,
            ')' => false,
            _ => open,
        };
        c == ',' && !open
    };
    text.split(&mut between).collect()
}

fn read_term(text: &str) -> Result<Term, Invalid> {
    let bad = || Invalid::new("selector", text, EXPECTED);
    if let Some(name) = text.strip_prefix('!') {
        return Ok(Term { name: name.trim().parse()?, test: Test::Missing });
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let end = text.find(|c| !is_name(c)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let (name, rest) = (name.parse().map_err(|_| bad())?, rest.trim());
    let value = |text: &str| text.trim().parse::<LabelValue>().map_err(|_| bad());
    let number = |text: &str| value(text)?.number().ok_or_else(bad);
    // The longer sign first where one begins with the other.
    let test = if rest.is_empty() {
        Test::Present
    } else if let Some(rest) = rest.strip_prefix("!=") {
        Test::Unequal(value(rest)?)
    } else if let Some(rest) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
        Test::Equal(value(rest)?)
    } else if let Some(rest) = rest.strip_prefix(">=") {
        Test::AtLeast(number(rest)?)
    } else if let Some(rest) = rest.strip_prefix("<=") {
        Test::AtMost(number(rest)?)
    } else if let Some(rest) = rest.strip_prefix('>') {
        Test::Above(number(rest)?)
    } else if let Some(rest) = rest.strip_prefix('<') {
        Test::Below(number(rest)?)
    } else if let Some(rest) = rest.strip_prefix("notin") {
        Test::NotIn(values(rest).ok_or_else(bad)?)
    } else if let Some(rest) = rest.strip_prefix("in") {
        Test::In(values(rest).ok_or_else(bad)?)
    } else {
        return Err(bad());
    };
    Ok(Term { name, test })
}

/// `(a, b)`.
fn values(text: &str) -> Option<BTreeSet<LabelValue>> {
    let inner = text.trim().strip_prefix('(')?.strip_suffix(')')?;
    inner.split(',').map(|value| value.trim().parse().ok()).collect()
}

impl TryFrom<String> for Selector {
    type Error = Invalid;
    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}

impl From<Selector> for String {
    fn from(selector: Selector) -> Self {
        selector.to_string()
    }
}

/// As people write it; empty for every host.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terms: Vec<String> = self.0.iter().map(Term::to_string).collect();
        f.write_str(&terms.join(", "))
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, test } = self;
        let list = |values: &BTreeSet<LabelValue>| {
            values.iter().map(LabelValue::as_str).collect::<Vec<_>>().join(", ")
        };
        match test {
            Test::Present => write!(f, "{name}"),
            Test::Missing => write!(f, "!{name}"),
            Test::Equal(value) => write!(f, "{name}={value}"),
            Test::Unequal(value) => write!(f, "{name}!={value}"),
            Test::In(values) => write!(f, "{name} in ({})", list(values)),
            Test::NotIn(values) => write!(f, "{name} notin ({})", list(values)),
            Test::AtLeast(limit) => write!(f, "{name}>={limit}"),
            Test::AtMost(limit) => write!(f, "{name}<={limit}"),
            Test::Above(limit) => write!(f, "{name}>{limit}"),
            Test::Below(limit) => write!(f, "{name}<{limit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(given: &[(&str, &str)]) -> Labels {
        let mut labels = Labels::default();
        for (name, value) in given {
            labels.set(name.parse().unwrap(), value.parse().unwrap()).unwrap();
        }
        labels
    }

    #[test]
    fn r6_4_a_selector_chooses_by_every_term() {
        let host = labels(&[("room", "12"), ("os", "linux"), ("cores", "8"), ("gpu", "1")]);
        for (text, chosen) in [
            ("", true),
            ("room=12", true),
            ("room == 12", true),
            ("room=13", false),
            ("room!=13", true),
            ("rack!=4", true),
            ("room!=12", false),
            ("gpu", true),
            ("!gpu", false),
            ("!rack", true),
            ("os in (linux, freebsd)", true),
            ("os in(freebsd)", false),
            ("os notin (freebsd)", true),
            ("rack notin (4)", true),
            ("os notin (linux, freebsd)", false),
            ("cores >= 8", true),
            ("cores>8", false),
            ("cores<=8, cores>7, cores<9", true),
            ("cores < 8", false),
            ("os >= 8", false),
            ("rack <= 8", false),
            ("room=12, os in (linux, freebsd), !gpu", false),
            ("room=12,os in (linux,freebsd),gpu,cores>=8", true),
            ("in in (a)", false),
        ] {
            let selector: Selector = text.parse().unwrap();
            assert_eq!(selector.chooses(&host), chosen, "{text}");
            assert_eq!(selector.to_string().parse::<Selector>().unwrap(), selector, "{text}");
        }
    }

    #[test]
    fn r6_4_what_is_no_selector_is_refused_with_what_would_be_one() {
        let long = "a".repeat(SELECTOR_MAX + 1);
        for bad in [
            ",",
            "room=",
            "=12",
            "room=12,",
            "!",
            "room~12",
            "cores>=many",
            "os in linux",
            "os in (linux",
            "os in ()",
            "room=12 os=linux",
            "room 12",
            "ro om=1",
            "(a)",
            "a=(b)",
            "a in (b) c",
            &long,
        ] {
            let error = bad.parse::<Selector>().unwrap_err().to_string();
            assert!(error.contains("expected") && error.len() < 600, "{bad}: {error}");
        }
    }

    #[test]
    fn r6_4_all_that_is_wrong_in_a_selector_is_named_at_once() {
        let said = |text: &str| text.parse::<Selector>().unwrap_err().given;
        assert_eq!(said("room=12,, os in linux"), "nothing beside a comma; os in linux");
        assert_eq!(said("room~12, gpu, cores>=many"), "room~12; cores>=many");
        assert_eq!(said("room=12, os in linux"), "os in linux");
    }

    proptest! {
        #[test]
        fn r6_4_no_text_makes_a_selector_panic_and_what_is_read_is_written_again(text in "[a-c!=<>()., 0-9in]{0,24}") {
            if let Ok(selector) = text.parse::<Selector>() {
                prop_assert_eq!(selector.to_string().parse::<Selector>().unwrap(), selector);
            }
        }
    }
}
