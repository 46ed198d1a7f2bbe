//! What a version is judged by.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use fallow_domain::Invalid;
use serde::{Deserialize, Serialize};

/// Something that must not become worse on hosts with the new version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// Hosts refuse the version.
    Refused,
    /// Their link is lost.
    Lost,
    /// They offer fewer CPUs.
    Offered,
    /// Their CPUs compute less.
    Idle,
    /// Calls to their projects fail.
    CutOff,
    /// Their jobs fail.
    Failed,
    /// CPU time of their jobs is lost.
    Wasted,
    /// Their projects get less than is due to them (R5.32).
    Shares,
    /// Their owners tighten limits.
    Tightened,
}

impl Gate {
    /// Every gate.
    pub const ALL: [Self; 9] = [
        Self::Refused,
        Self::Lost,
        Self::Offered,
        Self::Idle,
        Self::CutOff,
        Self::Failed,
        Self::Wasted,
        Self::Shares,
        Self::Tightened,
    ];

    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Lost => "lost",
            Self::Offered => "offered",
            Self::Idle => "idle",
            Self::CutOff => "cut-off",
            Self::Failed => "failed",
            Self::Wasted => "wasted",
            Self::Shares => "shares",
            Self::Tightened => "tightened",
        }
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Gate {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let expected = "refused, lost, offered, idle, cut-off, failed, wasted, shares or tightened";
        Self::ALL
            .into_iter()
            .find(|gate| gate.as_str() == text)
            .ok_or_else(|| Invalid::new("gate", text, expected))
    }
}

/// The gates that count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Gates(BTreeSet<Gate>);

impl Default for Gates {
    /// All of them.
    fn default() -> Self {
        Self(Gate::ALL.into())
    }
}

impl Gates {
    /// All but these.
    #[must_use]
    pub fn without(gates: &[Gate]) -> Self {
        Self(Gate::ALL.into_iter().filter(|gate| !gates.contains(gate)).collect())
    }

    /// Whether it counts.
    #[must_use]
    pub fn has(&self, gate: Gate) -> bool {
        self.0.contains(&gate)
    }

    /// Those that count, in order.
    pub fn iter(&self) -> impl Iterator<Item = Gate> {
        self.0.iter().copied()
    }
}
