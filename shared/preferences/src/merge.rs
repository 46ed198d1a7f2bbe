//! Sources in their order, and what is in force by them.

use std::fmt;

use fallow_config::Shown;
use fallow_domain::{DocumentVersion, MasterUrl};

use crate::keys::{Said, Values, merge};

/// Where a preference may come from. The order is that in which sources are heard.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Nobody has said anything.
    Default,
    /// What a user set on a project's web site.
    Site {
        /// The project.
        url: MasterUrl,
        /// The venue whose preferences they are; none for those outside of venues.
        venue: Option<String>,
    },
    /// The coordinator's document.
    Document(DocumentVersion),
    /// `global_prefs_override.xml`.
    Override,
    /// `cc_config.xml`.
    ClientConfig,
    /// The owner's command, such as `fallow-agent suspend`.
    Command,
    /// The owner's file.
    OwnerFile,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Site { url, venue: None } => write!(f, "preferences on the web site of {url}"),
            Self::Site { url, venue: Some(venue) } => {
                write!(f, "preferences on the web site of {url} for venue {venue}")
            }
            Self::Document(version) => write!(f, "coordinator's document version {version}"),
            Self::Override => f.write_str("global_prefs_override.xml"),
            Self::ClientConfig => f.write_str("cc_config.xml"),
            Self::Command => f.write_str("owner's command (suspend, exclude)"),
            Self::OwnerFile => f.write_str("preferences.toml"),
        }
    }
}

/// Where a value stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The source.
    pub origin: Origin,
    /// The line in its file, from 1, where it has one.
    pub line: Option<usize>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}, line {line}", self.origin),
            None => self.origin.fmt(f),
        }
    }
}

/// What a source's word does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It takes the place of what was said before.
    Says,
    /// It only tightens.
    Limits,
}

/// A source, with what it says.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// Which one it is.
    pub origin: Origin,
    /// What its word does.
    pub role: Role,
    /// What it says.
    pub said: Said,
}

impl Source {
    /// One whose word takes the place of what was said before.
    #[must_use]
    pub fn says(origin: Origin, said: Said) -> Self {
        Self { origin, role: Role::Says, said }
    }

    /// One that only tightens.
    #[must_use]
    pub fn limits(origin: Origin, said: Said) -> Self {
        Self { origin, role: Role::Limits, said }
    }
}

/// Why a value that was said is not the one in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outdone {
    /// A source that goes before said another one.
    Replaced,
    /// A stricter one was said.
    Stricter,
    /// It would loosen what is in force, which its source cannot.
    WouldLoosen,
    /// It is what is in force anyway.
    Same,
    /// It holds beside another: what is in force is what both come to.
    Joined,
    /// Likewise; but they have no hour in common.
    Apart,
}

impl Outdone {
    /// For people, beside the value and where it stands.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Replaced => "replaced",
            Self::Stricter => "a stricter limit holds",
            Self::WouldLoosen => "not taken: it would loosen, and may only tighten",
            Self::Same => "the same",
            Self::Joined => "holds with the next: what both come to is in force",
            Self::Apart => "these hours and those of the other have none in common",
        }
    }
}

/// A value that was said and is not where the one in force comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Other {
    /// The value, for people.
    pub value: String,
    /// Where it stands.
    pub place: Place,
    /// Why it is not the one.
    pub why: Outdone,
}

/// A preference in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its key.
    pub key: &'static str,
    /// Its value with its unit, for people.
    pub value: String,
    /// Where it comes from.
    pub place: Place,
    /// What else was said, the strongest first.
    pub others: Vec<Other>,
}

/// All preferences in force.
#[derive(Clone, Debug, PartialEq)]
pub struct InForce {
    /// Their values.
    pub values: Values,
    /// Each with where it comes from, in the order in which they are shown.
    pub entries: Vec<Entry>,
}

/// What is in force by these sources, in their order.
#[must_use]
pub fn in_force(sources: &[Source]) -> InForce {
    let (values, entries) = merge(sources);
    InForce { values, entries }
}

/// One preference on its way through the sources.
pub(crate) struct Trail<T> {
    key: &'static str,
    value: T,
    place: Place,
    others: Vec<Other>,
}

impl<T: Shown + Clone + PartialEq> Trail<T> {
    pub(crate) fn new(key: &'static str, default: T) -> Self {
        let place = Place { origin: Origin::Default, line: None };
        Self { key, value: default, place, others: Vec::new() }
    }

    pub(crate) fn value(&self) -> &T {
        &self.value
    }

    /// Takes in what the next source says. `tighter` gives the value under both, if it is another.
    pub(crate) fn hear(&mut self, source: &Source, said: &T, tighter: fn(&T, &T) -> Option<T>) {
        let place = Place { origin: source.origin.clone(), line: source.said.lines.get(self.key).copied() };
        let (value, why) = match source.role {
            Role::Says => (Some(said.clone()), Outdone::Replaced),
            Role::Limits => (tighter(&self.value, said), Outdone::Stricter),
        };
        let other = match value {
            // Both hold: of hours what they have in common, of lists what either names.
            Some(value) if source.role == Role::Limits && tighter(said, &value).is_some() => {
                let before = std::mem::replace(&mut self.value, value);
                let from = std::mem::replace(&mut self.place, place.clone());
                let why = if self.value.is_nothing() { Outdone::Apart } else { Outdone::Joined };
                self.others.insert(0, Other { value: before.shown(), place: from, why });
                Other { value: said.shown(), place, why }
            }
            Some(value) => {
                let before = std::mem::replace(&mut self.value, value);
                let from = std::mem::replace(&mut self.place, place);
                Other { value: before.shown(), place: from, why }
            }
            None => {
                // Of hours and lists what is in force may hold more than what this one says.
                let is_same = *said == self.value || tighter(said, &self.value).is_none();
                let why = if is_same { Outdone::Same } else { Outdone::WouldLoosen };
                Other { value: said.shown(), place, why }
            }
        };
        self.others.insert(0, other);
    }

    pub(crate) fn end(self) -> Entry {
        Entry { key: self.key, value: self.value.shown(), place: self.place, others: self.others }
    }
}

#[cfg(test)]
mod tests {
    use fallow_domain::{Duration, Fraction};
    use proptest::prelude::*;

    use super::*;

    fn part(value: f64) -> Option<Fraction> {
        Some(Fraction::clamped(value))
    }

    fn entry(found: &InForce, key: &str) -> Entry {
        found.entries.iter().find(|entry| entry.key == key).unwrap().clone()
    }

    fn of_file(said: Said) -> Source {
        let lines = [("cpu_fraction", 7), ("run_in_use", 9), ("hours", 11)].into();
        Source::limits(Origin::OwnerFile, Said { lines, ..said })
    }

    #[test]
    fn r6_4_the_owners_file_tightens_and_what_would_loosen_is_named_and_not_taken() {
        let document = Said { cpu_fraction: part(0.5), run_in_use: Some(false), ..Said::default() };
        let document = Source::says(Origin::Document(DocumentVersion(4)), document);
        let strict = of_file(Said { cpu_fraction: part(0.25), run_in_use: Some(true), ..Said::default() });
        let found = in_force(&[document.clone(), strict]);
        assert_eq!(found.values.fleet.cpu_fraction, Fraction::clamped(0.25));
        let cpus = entry(&found, "cpu_fraction");
        assert_eq!(
            (cpus.value.as_str(), cpus.place.to_string().as_str()),
            ("25%", "preferences.toml, line 7")
        );
        let [said, default] = &cpus.others[..] else { panic!("{cpus:?}") };
        assert_eq!((said.value.as_str(), said.why), ("50%", Outdone::Stricter));
        assert_eq!((said.place.to_string().as_str()), "coordinator's document version 4");
        assert_eq!((default.value.as_str(), default.why), ("100%", Outdone::Replaced));
        let in_use = entry(&found, "run_in_use");
        assert_eq!(
            (in_use.value.as_str(), &in_use.place.origin),
            ("false", &Origin::Document(DocumentVersion(4)))
        );
        assert_eq!((in_use.others[0].why, in_use.others[0].place.line), (Outdone::WouldLoosen, Some(9)));
        let loose = of_file(Said { cpu_fraction: part(0.9), ..Said::default() });
        let found = in_force(&[document, loose]);
        assert_eq!(found.values.fleet.cpu_fraction, Fraction::clamped(0.5));
        assert_eq!(entry(&found, "cpu_fraction").others[0].why, Outdone::WouldLoosen);
    }

    #[test]
    fn r6_4_hours_of_several_limits_are_those_that_all_have() {
        let hours = |text: &str| Said { hours: Some(text.parse().unwrap()), ..Said::default() };
        let document = Source::says(Origin::Document(DocumentVersion(1)), hours("mon-fri 18:00-08:00"));
        let found = in_force(&[document.clone(), of_file(hours("22:00-06:00"))]);
        let both = entry(&found, "hours");
        assert_eq!(both.value, "mon-fri 22:00-06:00");
        let whys: Vec<_> = both.others.iter().map(|other| (other.value.as_str(), other.why)).collect();
        let joined = [("22:00-06:00", Outdone::Joined), ("mon-fri 18:00-08:00", Outdone::Joined)];
        assert_eq!(whys[..2], joined);
        let found = in_force(&[document.clone(), of_file(hours("mon-fri 18:00-08:00"))]);
        assert_eq!(entry(&found, "hours").others[0].why, Outdone::Same);
        let found = in_force(&[document.clone(), of_file(hours("mon-fri 17:00-09:00"))]);
        assert_eq!(entry(&found, "hours").others[0].why, Outdone::WouldLoosen);
        let found = in_force(&[document, of_file(hours("sun 12:00-13:00"))]);
        assert!(found.values.fleet.hours.is_never());
        let none = entry(&found, "hours");
        assert_eq!(none.value, "never");
        let whys: Vec<_> = none.others.iter().map(|other| (other.value.as_str(), other.why)).collect();
        let apart = [("sun 12:00-13:00", Outdone::Apart), ("mon-fri 18:00-08:00", Outdone::Apart)];
        assert_eq!(whys[..2], apart);
    }

    #[test]
    fn r6_4_an_override_without_a_document_says_and_so_may_loosen() {
        let said = Said { idle_after: Some(Duration::from_mins(1)), ..Said::default() };
        let found = in_force(&[Source::says(Origin::Override, said.clone())]);
        assert_eq!(found.values.fleet.idle_after, Duration::from_mins(1));
        let found = in_force(&[Source::limits(Origin::Override, said)]);
        assert_eq!(found.values.fleet.idle_after, Duration::from_mins(3));
    }

    proptest! {
        #[test]
        fn r6_4_no_source_that_limits_ever_loosens(
            first in (0.001..=1.0_f64, any::<bool>(), 10_i64..86_400, prop::option::of(0.01..=1.0_f64)),
            second in (0.001..=1.0_f64, any::<bool>(), 10_i64..86_400, prop::option::of(0.01..=1.0_f64)),
        ) {
            let said = |(cpus, flag, seconds, load): (f64, bool, i64, Option<f64>)| Said {
                cpu_fraction: part(cpus),
                run_in_use: Some(flag),
                suspended: Some(!flag),
                idle_after: Some(Duration::from_secs(seconds)),
                other_load_max: Some(load.map(Fraction::clamped)),
                ..Said::default()
            };
            let before = in_force(&[Source::says(Origin::Override, said(first))]).values;
            let after = in_force(&[Source::says(Origin::Override, said(first)), of_file(said(second))]).values;
            prop_assert!(after.fleet.cpu_fraction <= before.fleet.cpu_fraction);
            prop_assert!(!after.fleet.run_in_use || before.fleet.run_in_use);
            prop_assert!(after.fleet.suspended || !before.fleet.suspended);
            prop_assert!(after.fleet.idle_after >= before.fleet.idle_after);
            let load = |values: &Values| values.fleet.local.other_load_max;
            prop_assert!(load(&before).is_none_or(|was| load(&after).unwrap() <= was));
        }
    }
}
