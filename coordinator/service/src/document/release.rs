//! Which version each host is to have: the newest, or the one before while a rollout has not reached it.

use std::sync::Arc;

use fallow_domain::{AgentId, DocumentVersion, Instant, Labels};
use fallow_rollout::{Phase, Plan, Rollout};
use fallow_store::{Format, KeyRange, Store, StoreError, no_migration};

use super::Published;

/// Rollouts as they are stored.
pub(super) const ROLLOUT: Format = Format { name: "rollout", version: 1, migrate: no_migration };
pub(super) const ROLLOUTS: &[u8] = b"rollout/";
/// How changes go out, where operators said so.
const PLAN: Format = Format { name: "rollout plan", version: 1, migrate: no_migration };
pub(crate) const PLAN_KEY: &[u8] = b"rollout-plan";

/// What is released, at an instant.
#[derive(Clone, Debug, Default)]
pub struct Release {
    /// The newest version; none before the first.
    pub newest: Option<Arc<Published>>,
    /// The newest rollout, open or over.
    pub rollout: Option<Arc<Rollout>>,
    /// While that is open, the version that hosts have which it has not reached.
    pub base: Option<Arc<Published>>,
    /// Whether the newest version waits for the signature of the fleet's organisation. No rollout is open
    /// then.
    pub is_held: bool,
    /// While it waits, the version that hosts have; none if they have none.
    pub followed: Option<Arc<Published>>,
    /// While it waits, whether it is to go to all hosts at once when it is signed.
    pub is_urgent: bool,
}

impl Release {
    /// What a host is to have that says that it has a version now. `was_given` tells whether it was given a
    /// version; none where that is not known.
    #[must_use]
    pub fn of(
        &self,
        host: &AgentId,
        has: DocumentVersion,
        was_given: impl FnOnce(DocumentVersion) -> Option<bool>,
        labels: impl FnOnce() -> Labels,
    ) -> Option<&Arc<Published>> {
        if self.is_held {
            // What a host has beyond that it keeps: it would refuse what is older.
            return self.followed.as_ref().filter(|followed| has <= followed.audited.set.fleet.version);
        }
        let Some((rollout, base)) = self.open() else { return self.newest.as_ref() };
        // One that has it keeps it, also if its labels have it in another wave now. But who says so and was
        // not given it is not sent it for that.
        let groups = || if rollout.groups.is_empty() { Vec::new() } else { rollout.groups_of(&labels()) };
        let is_begun = rollout.phase != Phase::Waiting;
        let has_it = || is_begun && has == rollout.candidate && was_given(has) != Some(false);
        let is_released = has_it() || rollout.is_released_to(host, &groups());
        if is_released { self.newest.as_ref() } else { Some(base) }
    }

    /// What hosts have that nothing goes out to now.
    #[must_use]
    pub fn base(&self) -> Option<&Arc<Published>> {
        match self.open() {
            _ if self.is_held => self.followed.as_ref(),
            Some((_, base)) => Some(base),
            None => self.newest.as_ref(),
        }
    }

    /// The rollout that is open, with the version of the hosts that it has not reached.
    #[must_use]
    pub fn open(&self) -> Option<(&Arc<Rollout>, &Arc<Published>)> {
        let rollout = self.rollout.as_ref().filter(|rollout| rollout.is_open())?;
        Some((rollout, self.base.as_ref()?))
    }

    /// Whether what a host is to have depends on its labels.
    #[must_use]
    pub fn asks_for_labels(&self) -> bool {
        let has_groups = |version: &Arc<Published>| !version.audited.set.groups.0.is_empty();
        let open = self.open();
        [&self.newest, &self.followed].into_iter().flatten().any(has_groups)
            || open.is_some_and(|(rollout, base)| !rollout.groups.is_empty() || has_groups(base))
    }
}

/// Twenty digits, so that rollouts sort as they began.
pub(super) fn rollout_key(number: u64) -> Vec<u8> {
    format!("rollout/{number:020}").into_bytes()
}

/// A rollout with the time at which it began, for lists.
pub(super) fn rollouts(store: &dyn Store, newest: u64, limit: usize) -> Result<Vec<Rollout>, StoreError> {
    let before = newest.saturating_sub(limit as u64);
    let range = KeyRange::prefix(ROLLOUTS).after(&rollout_key(before));
    let page = store.scan(&range, limit)?;
    page.iter().map(|(key, value)| ROLLOUT.read(key, value)).collect()
}

/// How changes go out; none: at once.
pub(super) fn plan(store: &dyn Store) -> Result<Option<Plan>, StoreError> {
    let stored = store.get(PLAN_KEY)?;
    let plan: Option<Option<Plan>> = stored.map(|value| PLAN.read(PLAN_KEY, &value)).transpose()?;
    Ok(plan.flatten())
}

/// The change that stores it.
pub(super) fn plan_entry(plan: Option<&Plan>) -> Result<(Vec<u8>, Vec<u8>), StoreError> {
    Ok((PLAN_KEY.to_vec(), PLAN.write(PLAN_KEY, &plan)?))
}

/// Who can say for how many hosts of the fleet documents make a difference.
pub trait Reach: Send + Sync {
    /// How many there are for which these say something else. Blocks.
    fn changed_hosts(&self, before: &fallow_fleet::DocumentSet, after: &fallow_fleet::DocumentSet) -> u64;
    /// The versions that its hosts say that they follow. Blocks.
    fn followed(&self) -> Vec<DocumentVersion>;
    /// What all hosts are like now, for a rollout. Blocks.
    fn hosts_now(&self, rollout: &Rollout) -> Vec<fallow_rollout::HostNow>;
}

/// Told to the audit log of a rollout, beside its number.
pub(super) fn said(rollout: &Rollout) -> String {
    format!("rollout {} of version {}", rollout.number, rollout.candidate)
}

/// When a rollout's newest step was.
pub(super) fn newest_step(rollout: &Rollout) -> (Instant, &str) {
    rollout.steps.last().map_or((rollout.begun_at, ""), |step| (step.at, step.what.as_str()))
}
