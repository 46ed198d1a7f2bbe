//! Which policies a client and a server are composed of: CSx_WFy_WSz_JCw, and the switches beside them (R5).
//!
//! A composition is a value: an agent's configuration, a scenario and an experiment name one, and all of
//! them run the same code. It is written as `CS2_WF2_WS2_JC2`, followed by the switches that differ from
//! those of [`Composition::base`], as in
//! `CS2_WF2_WS2_JC2,ws2=published,fetch=below-minimum,accounting=recent-credit`. Two have a word of their
//! own: `default` and `published`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::accounting::AccountingChoice;
use crate::choice::{Policy, PolicyKind};
use crate::completion::CompletionChoice;
use crate::completion::by_quantile::ByQuantile;
use crate::cpu_schedule::CpuChoice;
use crate::fetch::just_in_time::JustInTime;
use crate::fetch::{FetchChoice, FetchWhen};
use crate::hopeless::AbortWhich;
use crate::send::by_on_time::ByOnTime;
use crate::send::{SendChoice, Ws2Switches};

/// A complete set of policies. The default is CS2_WF3_WS3_JC3,abort=hopeless: of all that were compared it
/// loses least on machines as laboratories have them (docs/policy.md has the comparison).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Composition {
    /// Which jobs run.
    pub cpu: CpuChoice,
    /// What is fetched.
    pub fetch: FetchChoice,
    /// What is sent.
    pub send: SendChoice,
    /// How long jobs take.
    pub completion: CompletionChoice,
    /// When a shortfall is a reason to ask.
    pub fetch_when: FetchWhen,
    /// What WS2 takes into account beyond what was published.
    pub ws2: Ws2Switches,
    /// How projects are compared.
    pub accounting: AccountingChoice,
    /// Which jobs the client aborts by itself.
    #[serde(default)]
    pub abort: AbortWhich,
}

impl Default for Composition {
    fn default() -> Self {
        Self {
            fetch: Policy::new(&JustInTime),
            send: Policy::new(&ByOnTime),
            completion: Policy::new(&ByQuantile),
            abort: AbortWhich::Hopeless,
            ..Self::base()
        }
    }
}

/// Compositions that have a word of their own.
const WORDS: [Word; 2] = [
    Word { name: "default", composition: Composition::default },
    Word { name: "published", composition: Composition::published },
];

struct Word {
    name: &'static str,
    composition: fn() -> Composition,
}

const WS2_NAMES: [(&str, Ws2Switches); 4] = [
    ("published", Ws2Switches::PUBLISHED),
    ("counted", Ws2Switches { count_chosen: true, scale_by_availability: false }),
    ("scaled", Ws2Switches { count_chosen: false, scale_by_availability: true }),
    ("improved", Ws2Switches::IMPROVED),
];

/// Why a name of a composition means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part:?} in the policy {whole:?} means nothing; expected {expected}")]
pub struct UnknownPolicy {
    part: String,
    whole: String,
    expected: String,
}

impl fmt::Display for Composition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}_{}_{}", self.cpu, self.fetch, self.send, self.completion)?;
        let base = Self::base();
        if self.ws2 != base.ws2 {
            let name =
                WS2_NAMES.iter().find(|(_, switches)| *switches == self.ws2).map_or("", |(name, _)| name);
            write!(f, ",ws2={name}")?;
        }
        if self.fetch_when != base.fetch_when {
            write!(f, ",fetch=below-minimum")?;
        }
        if self.accounting != base.accounting {
            write!(f, ",accounting={}", self.accounting)?;
        }
        if self.abort != base.abort {
            write!(f, ",abort=hopeless")?;
        }
        Ok(())
    }
}

impl FromStr for Composition {
    type Err = UnknownPolicy;

    fn from_str(whole: &str) -> Result<Self, UnknownPolicy> {
        let mut parts = whole.trim().split(',').map(str::trim);
        let unknown =
            |part: &str, expected| UnknownPolicy { part: part.to_owned(), whole: whole.to_owned(), expected };
        let policies = parts.next().unwrap_or_default();
        let word = WORDS.iter().find(|word| policies.eq_ignore_ascii_case(word.name));
        let mut composition = word.map_or_else(Self::base, |word| (word.composition)());
        let mut said = BTreeSet::new();
        for part in policies.split('_').filter(|_| word.is_none()) {
            let name = part.to_ascii_uppercase();
            if !said.insert(name.get(..2).unwrap_or_default().to_owned()) {
                return Err(unknown(part, "each of CS, WF, WS and JC once".to_owned()));
            }
            let Self { cpu, fetch, send, completion, .. } = &mut composition;
            if !(found(cpu, part) || found(fetch, part) || found(send, part) || found(completion, part)) {
                return Err(unknown(part, names()));
            }
        }
        for part in parts {
            composition.switch(part).map_err(|error| unknown(part, error.to_string()))?;
        }
        Ok(composition)
    }
}

/// Takes the policy of that name, if there is one of its kind.
fn found<K: PolicyKind + ?Sized>(policy: &mut Policy<K>, name: &str) -> bool {
    let named = Policy::named(name);
    *policy = named.unwrap_or(*policy);
    named.is_some()
}

/// What there is to choose from.
fn names() -> String {
    let kinds = [CpuChoice::names(), FetchChoice::names(), SendChoice::names(), CompletionChoice::names()];
    let base = Composition::base();
    format!(
        "{}, joined by _, such as {base}; what is left out is as in that; or default or published",
        kinds.join(", ")
    )
}

/// A switch that there is not, or that has no such value. It prints as what there is.
#[derive(Clone, Copy, Debug)]
struct UnknownSwitch;

impl fmt::Display for UnknownSwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ws2=published, counted, scaled or improved; fetch=any-shortfall or below-minimum; abort=none or \
             hopeless; accounting={}",
            AccountingChoice::names()
        )
    }
}

impl Composition {
    /// What a name leaves out is as in this: CS2_WF2_WS2_JC2, with WS2 improved.
    pub fn base() -> Self {
        Self {
            cpu: CpuChoice::default(),
            fetch: FetchChoice::default(),
            send: SendChoice::default(),
            completion: CompletionChoice::default(),
            fetch_when: FetchWhen::AnyShortfall,
            ws2: Ws2Switches::IMPROVED,
            accounting: AccountingChoice::default(),
            abort: AbortWhich::None,
        }
    }

    /// What D. Kondo, D. P. Anderson and J. McLeod VII found to be best in "Performance Evaluation of
    /// Scheduling Policies for Volunteer Computing" (2007), and nothing that is Fallow's own.
    pub fn published() -> Self {
        Self { ws2: Ws2Switches::PUBLISHED, ..Self::base() }
    }

    /// A line of help for each composition that has a word of its own.
    pub fn help_of_words() -> String {
        WORDS.iter().map(|word| format!("  {:<10}  {}\n", word.name, (word.composition)())).collect()
    }

    fn switch(&mut self, part: &str) -> Result<(), UnknownSwitch> {
        match part.split_once('=').ok_or(UnknownSwitch)? {
            ("ws2", name) => {
                self.ws2 = WS2_NAMES.iter().find(|(known, _)| *known == name).ok_or(UnknownSwitch)?.1;
            }
            ("fetch", "any-shortfall") => self.fetch_when = FetchWhen::AnyShortfall,
            ("fetch", "below-minimum") => self.fetch_when = FetchWhen::BelowMinimum,
            ("abort", "none") => self.abort = AbortWhich::None,
            ("abort", "hopeless") => self.abort = AbortWhich::Hopeless,
            ("accounting", name) if found(&mut self.accounting, name) => {}
            _ => return Err(UnknownSwitch),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_composition_is_written_by_its_parts_and_by_the_switches_that_differ() {
        assert_eq!(Composition::default().to_string(), "CS2_WF3_WS3_JC3,abort=hopeless");
        assert_eq!(Composition::base().to_string(), "CS2_WF2_WS2_JC2");
        for name in [
            "CS2_WF2_WS2_JC2",
            "CS1_WF1_WS1_JC1",
            "CS2_WF1_WS2_JC1,ws2=published",
            "CS2_WF2_WS2_JC2,ws2=counted,fetch=below-minimum,accounting=recent-credit",
            "CS2_WF3_WS3_JC3,abort=hopeless",
        ] {
            assert_eq!(name.parse::<Composition>().unwrap().to_string(), name);
        }
        assert_eq!("cs1".parse::<Composition>().unwrap().to_string(), "CS1_WF2_WS2_JC2");
    }

    #[test]
    fn the_default_and_what_was_published_are_one_word_away_and_take_switches() {
        let named = |name: &str| name.parse::<Composition>().unwrap();
        assert_eq!(named("default"), Composition::default());
        assert_eq!(named("Published").to_string(), "CS2_WF2_WS2_JC2,ws2=published");
        assert_eq!(named("default,abort=none").to_string(), "CS2_WF3_WS3_JC3");
        assert!("default_CS1".parse::<Composition>().is_err());
    }

    #[test]
    fn a_name_that_means_nothing_is_refused_with_what_was_expected() {
        let why = |name: &str| name.parse::<Composition>().unwrap_err().to_string();
        assert!(
            why("CS0_WF2")
                .starts_with("\"CS0\" in the policy \"CS0_WF2\" means nothing; expected CS1 or CS2")
        );
        assert!(why("CS1,ws2=best").contains("published, counted, scaled or improved"));
        assert!(why("").contains("CS1 or CS2"));
        assert!(why("CS1_CS2").contains("\"CS2\" in the policy") && why("WF1_JC2_WF1").contains("once"));
    }
}
