//! Long-term debt: processing owed to projects over days and weeks, by project and resource type (R3.3 to
//! R3.6; BOINC's design note "Work fetch and GPUs"). WF2 of R5.4 ranks projects by it.
//!
//! Model: the debt of a project for a type *accumulates* while the project would probably supply a job of
//! that type if it were asked. That is so if it has supplied one before (the flag of R3.5), is not backed
//! off for the type, and may be asked for work at all. Such a project earns its part e(P, R) of the host in
//! the fair division of the host's total speed (`due`) of what all of them used of the type, and pays what
//! its own jobs used. A debt that does not accumulate stays as it is: what the project could have been given
//! meanwhile was not to be had. Whenever it begins or ceases to accumulate, the mean over those that do is
//! subtracted, so that their debts for the type sum to 0. Only where the owner never lets a project have its
//! share of a type, its debt for it is 0.
//!
//! Only what was used is divided, and not what the host could have computed: a limit on CPU time, tasks that
//! wait for a disk, or jobs that do not fill all CPUs leave less. Were everybody owed the part of that which
//! nobody could get, and the mean subtracted, those with small shares would lose as much as those with large
//! ones: all that they had.
//!
//! What decides is the *overall* debt: the sum over types, weighted by their speeds. It stays bounded as
//! long as the project that is owed most is asked first. The debts by type might still grow without bound.
//! Of two projects that can use both types, one may get all CPUs and the other all GPUs, and both are
//! content. So opposite debts of two projects are *netted*: set off against each other. That changes no
//! overall debt and no sum over a type, and keeps the debts by type as small as the overall ones. Nothing
//! is cut off at a limit.

use std::collections::BTreeMap;

use fallow_domain::{Duration, PerType, ProjectId, ResourceType, Share};
use serde::{Deserialize, Serialize};

use super::Debt;
use crate::due::{DueClaim, LastRates};
use crate::plan_host::PlanHost;
use crate::type_backoff::{AfterReply, ReplyForType};

/// What one project did in a period, and what it might have supplied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LongTermPeriod {
    /// The project.
    pub project: ProjectId,
    /// Its share.
    pub share: Share,
    /// Instance time of each type that its jobs used.
    pub used: PerType<Duration>,
    /// Types for which it may be asked: not backed off, not suspended, not told to send none. Whether it has
    /// shown that it supplies them (R3.5) is known here.
    pub may_supply: PerType<bool>,
    /// Types of which the owner never lets it have its share. There it is owed nothing, and owes nothing: it
    /// could not be asked for more, and what it owes from before would keep it from what it is let have.
    pub forgotten: PerType<bool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Account {
    /// Instance-seconds.
    debts: PerType<f64>,
    /// The flags of R3.5.
    supplies: PerType<bool>,
}

/// The long-term debts of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LongTermDebts {
    accounts: BTreeMap<ProjectId, Account>,
    #[serde(skip)]
    due: LastRates,
}

impl LongTermDebts {
    /// What a project is owed of a type.
    pub fn of(&self, project: ProjectId, kind: ResourceType) -> Debt {
        Debt::from_secs(self.secs_of(project, kind))
    }

    fn secs_of(&self, project: ProjectId, kind: ResourceType) -> f64 {
        self.accounts.get(&project).map_or(0.0, |account| account.debts[kind])
    }

    /// A project's overall debt (R3.4), in CPU seconds: `speeds` are relative to one CPU.
    pub fn overall(&self, project: ProjectId, speeds: &PerType<f64>) -> Debt {
        self.accounts.get(&project).map_or(Debt::ZERO, |account| account.overall(speeds))
    }

    /// Whether a project owes or is owed anything, of whatever type.
    pub fn has_debts(&self, project: ProjectId) -> bool {
        self.accounts.get(&project).is_some_and(|account| account.debts != PerType::default())
    }

    /// The types of which a project has shown that it supplies jobs (R3.5).
    pub fn supplied(&self, project: ProjectId) -> PerType<bool> {
        self.accounts.get(&project).map(|account| account.supplies).unwrap_or_default()
    }

    /// Whether a project has shown that it supplies jobs of a type (R3.5).
    pub fn supplies(&self, project: ProjectId, kind: ResourceType) -> bool {
        self.accounts.get(&project).is_some_and(|account| account.supplies[kind])
    }

    /// Takes in what a reply brought for a type, and what followed for its backoff (R3.5, R3.11): a job sets
    /// the flag; a type that is not supported, or of which none came until the backoff reached its maximum,
    /// loses it.
    pub fn on_reply(
        &mut self,
        project: ProjectId,
        kind: ResourceType,
        reply: ReplyForType,
        after: AfterReply,
    ) {
        let supplies = match (reply, after) {
            (ReplyForType::Jobs(1..), _) => true,
            (ReplyForType::NotSupported, _) | (_, AfterReply::BackedOff { at_maximum: true, .. }) => false,
            (ReplyForType::Jobs(_) | ReplyForType::NoneNow | ReplyForType::RefusedLate, _) => return,
        };
        self.accounts.entry(project).or_default().supplies[kind] = supplies;
    }

    /// Forgets a project that is detached.
    pub fn forget(&mut self, project: ProjectId) {
        self.accounts.remove(&project);
    }

    /// Settles a period. `periods` names every attached project once.
    pub fn settle(&mut self, host: &PlanHost, periods: &[LongTermPeriod]) {
        for period in periods {
            let Some(account) = self.accounts.get_mut(&period.project) else { continue };
            account.debts = account.debts.map(|kind, debt| if period.forgotten[kind] { 0.0 } else { *debt });
        }
        let accumulates = |p: &LongTermPeriod| {
            let account = self.accounts.get(&p.project).copied().unwrap_or_default();
            account.supplies.map(|kind, yes| *yes && p.may_supply[kind] && host.instances[kind] > 0)
        };
        let claims: Vec<DueClaim> = periods
            .iter()
            .map(|p| {
                let all = |kind, yes: &bool| if *yes { f64::from(host.instances[kind]) } else { 0.0 };
                DueClaim { project: p.project, share: p.share, limit: accumulates(p).map(all) }
            })
            .collect();
        if claims.iter().all(|claim| claim.limit == PerType::default()) {
            return;
        }
        let due = self.due.of(host, &claims);
        let paid = |p: &LongTermPeriod, kind| p.used[kind].max(Duration::ZERO).as_secs_f64();
        for kind in ResourceType::ALL {
            let pairs =
                || periods.iter().zip(&claims).zip(due).filter(|((_, claim), _)| claim.limit[kind] > 0.0);
            let used: f64 = pairs().map(|((p, _), _)| paid(p, kind)).sum();
            let speed: f64 = pairs().map(|(_, due)| due[kind]).sum();
            for ((p, _), due) in pairs() {
                let Some(account) = self.accounts.get_mut(&p.project) else { continue };
                let earned = if speed > 0.0 { used * (due[kind] / speed) } else { 0.0 };
                account.debts[kind] += earned - paid(p, kind);
            }
        }
        for kind in ResourceType::ALL {
            self.centre(kind, &claims);
        }
        self.net_opposites(host, &claims);
    }

    /// Subtracts the mean over the projects that accumulate for a type (R3.6).
    fn centre(&mut self, kind: ResourceType, claims: &[DueClaim]) {
        let pairs = || claims.iter().filter(|claim| claim.limit[kind] > 0.0).map(|claim| claim.project);
        let count = pairs().count();
        if count == 0 {
            return;
        }
        let mean = pairs().map(|project| self.secs_of(project, kind)).sum::<f64>() / count as f64;
        for project in pairs() {
            if let Some(account) = self.accounts.get_mut(&project) {
                account.debts[kind] -= mean;
            }
        }
    }

    /// Sets opposite parts of debts off against each other, for every two types.
    fn net_opposites(&mut self, host: &PlanHost, claims: &[DueClaim]) {
        for one in host.types() {
            for other in host.types().filter(|other| *other != one) {
                let both = claims.iter().filter(|claim| claim.limit[one] > 0.0 && claim.limit[other] > 0.0);
                let projects: Vec<ProjectId> = both.map(|claim| claim.project).collect();
                self.net_pair(one, other, &host.speeds, &projects);
            }
        }
    }

    /// Projects that are owed `one` and owe `other` trade with those of whom the opposite is true.
    fn net_pair(
        &mut self,
        one: ResourceType,
        other: ResourceType,
        speeds: &PerType<f64>,
        projects: &[ProjectId],
    ) {
        // What a project could trade, in CPU seconds: positive if it is owed `one`.
        let tradable = |debts: &Self, project: ProjectId| {
            let (a, b) =
                (debts.secs_of(project, one) * speeds[one], debts.secs_of(project, other) * speeds[other]);
            if a * b < 0.0 { a.signum() * a.abs().min(b.abs()) } else { 0.0 }
        };
        let sides = projects.iter().map(|project| tradable(self, *project));
        let (gives, takes) = sides
            .fold((0.0, 0.0), |(gives, takes), side: f64| (gives + side.max(0.0), takes + (-side).max(0.0)));
        let traded = gives.min(takes);
        if traded <= 0.0 {
            return;
        }
        for project in projects {
            let side = tradable(self, *project);
            let part = if side > 0.0 { side * (traded / gives) } else { side * (traded / takes) };
            if let Some(account) = self.accounts.get_mut(project) {
                account.debts[one] -= part / speeds[one];
                account.debts[other] += part / speeds[other];
            }
        }
    }
}

impl Account {
    fn overall(&self, speeds: &PerType<f64>) -> Debt {
        Debt::from_secs(self.debts.iter().map(|(kind, debt)| debt * speeds[kind]).sum())
    }
}

#[cfg(test)]
mod tests;
