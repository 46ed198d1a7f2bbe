//! What the fleet's projects have had, kept by difference: a question costs one look, whatever the fleet's
//! size.
//!
//! All amounts are whole microseconds in 128 bits, so that a sum over any number of changes stays exact
//! (R6.6).

use std::collections::BTreeMap;

use fallow_domain::agent_state::ProjectState;
use fallow_domain::{Duration, MasterUrl};
use serde::{Deserialize, Serialize};

/// What one project had, of one agent or of all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProjectTotals {
    /// CPU time as the kernels count it, microseconds.
    pub cpu: i128,
    /// Of that, what was used while every project of its host with a share had runnable work, microseconds.
    pub contested: i128,
    /// Short-term debt (R2.1), CPU microseconds; of agents that have the project now.
    pub debt: i128,
}

impl ProjectTotals {
    /// Of an agent's entry.
    #[must_use]
    pub fn of(project: &ProjectState) -> Self {
        Self {
            cpu: project.cpu_time.as_micros().into(),
            contested: project.cpu_contested.as_micros().into(),
            debt: project.debt.as_micros().into(),
        }
    }

    fn change(&mut self, before: Self, after: Self) {
        self.cpu += after.cpu - before.cpu;
        self.contested += after.contested - before.contested;
        self.debt += after.debt - before.debt;
    }
}

/// What an agent computed for a project and says no more: it was detached, or the agent's store was made
/// anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastTotals {
    /// CPU time.
    #[serde(rename = "cpu_micros")]
    pub cpu: Duration,
    /// Contested CPU time.
    #[serde(rename = "contested_micros")]
    pub contested: Duration,
}

impl PastTotals {
    /// With an entry that goes.
    #[must_use]
    pub fn with(self, gone: &ProjectState) -> Self {
        Self { cpu: self.cpu + gone.cpu_time, contested: self.contested + gone.cpu_contested }
    }

    /// As totals: what is past has no debt.
    #[must_use]
    pub fn totals(self) -> ProjectTotals {
        ProjectTotals {
            cpu: self.cpu.as_micros().into(),
            contested: self.contested.as_micros().into(),
            debt: 0,
        }
    }
}

/// The sums over all agents, by project URL.
#[derive(Debug, Default)]
pub struct Totals(BTreeMap<MasterUrl, ProjectTotals>);

impl Totals {
    /// One agent's amounts of a project went from `before` to `after`.
    pub fn change(&mut self, url: &MasterUrl, before: ProjectTotals, after: ProjectTotals) {
        if before == after {
            return;
        }
        match self.0.get_mut(url) {
            Some(sum) => sum.change(before, after),
            None => self.0.entry(url.clone()).or_default().change(before, after),
        }
    }

    /// The sums of the project at `url`.
    #[must_use]
    pub fn of(&self, url: &MasterUrl) -> ProjectTotals {
        self.0.get(url).copied().unwrap_or_default()
    }

    /// The sums of all projects that ever had any.
    pub fn iter(&self) -> impl Iterator<Item = (&MasterUrl, ProjectTotals)> {
        self.0.iter().map(|(url, amounts)| (url, *amounts))
    }
}

/// Microseconds for the wire.
#[must_use]
pub fn to_micros(amount: i128) -> i64 {
    i64::try_from(amount).unwrap_or(if amount < 0 { i64::MIN } else { i64::MAX })
}
