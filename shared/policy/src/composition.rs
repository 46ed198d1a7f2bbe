//! Which policies a client and a server are composed of: CSx_WFy_WSz_JCw, and the switches beside them (R5).
//!
//! A composition is a value: an agent's configuration, a scenario and an experiment name one, and all of them run the
//! same code. It is written as `CS2_WF2_WS2_JC2`, followed by the switches that differ from the default, as in
//! `CS2_WF2_WS2_JC2,ws2=published,fetch=below-minimum,accounting=recent-credit`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use crate::fetch::{Fetch, FetchWhen};
use crate::work_send::Ws2Switches;

/// Which jobs run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum CpuPolicy {
    /// Weighted round-robin (R5.1).
    Cs1,
    /// The same, but what the round-robin simulation shows late runs earliest deadline first (R5.2).
    #[default]
    Cs2,
}

/// Which jobs a server sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SendPolicy {
    /// Until their estimates add up to the request (R5.5).
    Ws1,
    /// Of those, only what the host can finish in time (R5.6).
    #[default]
    Ws2,
}

/// How long a job still takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum CompletionPolicy {
    /// From its size and its fraction done (R5.7).
    Jc1,
    /// The same with the project's duration correction factor (R5.8).
    #[default]
    Jc2,
}

/// By what account projects are compared for processing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Accounting {
    /// Debts: short-term for scheduling (R2.1), long-term for work fetch (R3.3).
    #[default]
    Debt,
    /// Recent estimated credit, for both: what BOINC's client does today.
    RecentCredit,
}

/// A complete set of policies. The default is CS2_WF2_WS2_JC2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Composition {
    /// Which jobs run.
    pub cpu: CpuPolicy,
    /// What is fetched.
    pub fetch: Fetch,
    /// What is sent.
    pub send: SendPolicy,
    /// How long jobs take.
    pub completion: CompletionPolicy,
    /// When a shortfall is a reason to ask.
    pub fetch_when: FetchWhen,
    /// What WS2 takes into account beyond what was published.
    pub ws2: Ws2Switches,
    /// How projects are compared.
    pub accounting: Accounting,
}

impl Default for Composition {
    fn default() -> Self {
        Self {
            cpu: CpuPolicy::Cs2,
            fetch: Fetch::default(),
            send: SendPolicy::Ws2,
            completion: CompletionPolicy::Jc2,
            fetch_when: FetchWhen::AnyShortfall,
            ws2: Ws2Switches::IMPROVED,
            accounting: Accounting::Debt,
        }
    }
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
    expected: &'static str,
}

impl fmt::Display for Composition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |second: bool| if second { 2 } else { 1 };
        write!(
            f,
            "CS{}_{}_WS{}_JC{}",
            number(self.cpu == CpuPolicy::Cs2),
            self.fetch,
            number(self.send == SendPolicy::Ws2),
            number(self.completion == CompletionPolicy::Jc2)
        )?;
        let default = Self::default();
        if self.ws2 != default.ws2 {
            let name =
                WS2_NAMES.iter().find(|(_, switches)| *switches == self.ws2).map_or("", |(name, _)| name);
            write!(f, ",ws2={name}")?;
        }
        if self.fetch_when != default.fetch_when {
            write!(f, ",fetch=below-minimum")?;
        }
        if self.accounting != default.accounting {
            write!(f, ",accounting=recent-credit")?;
        }
        Ok(())
    }
}

impl FromStr for Composition {
    type Err = UnknownPolicy;

    fn from_str(whole: &str) -> Result<Self, UnknownPolicy> {
        let mut composition = Self::default();
        let mut parts = whole.trim().split(',').map(str::trim);
        let mut said = BTreeSet::new();
        for part in parts.next().unwrap_or_default().split('_') {
            let name = part.to_ascii_uppercase();
            if !said.insert(name.get(..2).unwrap_or_default().to_owned()) {
                let expected = "each of CS, WF, WS and JC once";
                return Err(UnknownPolicy { part: part.to_owned(), whole: whole.to_owned(), expected });
            }
            if let Some(fetch) = Fetch::named(&name) {
                composition.fetch = fetch;
                continue;
            }
            match name.as_str() {
                "CS1" => composition.cpu = CpuPolicy::Cs1,
                "CS2" => composition.cpu = CpuPolicy::Cs2,
                "WS1" => composition.send = SendPolicy::Ws1,
                "WS2" => composition.send = SendPolicy::Ws2,
                "JC1" => composition.completion = CompletionPolicy::Jc1,
                "JC2" => composition.completion = CompletionPolicy::Jc2,
                _ => {
                    let expected = "CS1 or CS2, WF1 or WF2, WS1 or WS2, JC1 or JC2, joined by _, \
                                    such as CS2_WF2_WS2_JC2; what is left out is the second";
                    return Err(UnknownPolicy { part: part.to_owned(), whole: whole.to_owned(), expected });
                }
            }
        }
        for part in parts {
            composition.switch(part).map_err(|expected| UnknownPolicy {
                part: part.to_owned(),
                whole: whole.to_owned(),
                expected,
            })?;
        }
        Ok(composition)
    }
}

impl Composition {
    fn switch(&mut self, part: &str) -> Result<(), &'static str> {
        let expected = "ws2=published, counted, scaled or improved; fetch=any-shortfall or below-minimum; \
                        accounting=debt or recent-credit";
        match part.split_once('=').ok_or(expected)? {
            ("ws2", name) => {
                self.ws2 = WS2_NAMES.iter().find(|(known, _)| *known == name).ok_or(expected)?.1;
            }
            ("fetch", "any-shortfall") => self.fetch_when = FetchWhen::AnyShortfall,
            ("fetch", "below-minimum") => self.fetch_when = FetchWhen::BelowMinimum,
            ("accounting", "debt") => self.accounting = Accounting::Debt,
            ("accounting", "recent-credit") => self.accounting = Accounting::RecentCredit,
            _ => return Err(expected),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_composition_is_written_by_its_parts_and_by_the_switches_that_differ() {
        assert_eq!(Composition::default().to_string(), "CS2_WF2_WS2_JC2");
        for name in [
            "CS2_WF2_WS2_JC2",
            "CS1_WF1_WS1_JC1",
            "CS2_WF1_WS2_JC1,ws2=published",
            "CS2_WF2_WS2_JC2,ws2=counted,fetch=below-minimum,accounting=recent-credit",
        ] {
            assert_eq!(name.parse::<Composition>().unwrap().to_string(), name);
        }
        assert_eq!("cs1".parse::<Composition>().unwrap().to_string(), "CS1_WF2_WS2_JC2");
    }

    #[test]
    fn a_name_that_means_nothing_is_refused_with_what_was_expected() {
        let why = |name: &str| name.parse::<Composition>().unwrap_err().to_string();
        assert!(
            why("CS3_WF2")
                .starts_with("\"CS3\" in the policy \"CS3_WF2\" means nothing; expected CS1 or CS2")
        );
        assert!(why("CS1,ws2=best").contains("published, counted, scaled or improved"));
        assert!(why("").contains("CS1 or CS2"));
        assert!(why("CS1_CS2").contains("\"CS2\" in the policy") && why("WF1_JC2_WF1").contains("once"));
    }
}
