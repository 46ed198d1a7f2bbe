//! Rollouts as they go on: each step is stored before it holds.

use std::sync::Arc;

use fallow_domain::{DocumentVersion, Instant};
use fallow_rollout::{HostNow, Order, Phase, Plan, Rollout, Transition};
use fallow_store::{Batch, StoreError};

use super::release::{self, ROLLOUT, newest_step, said};
use super::{
    Author, DocumentError, Documents, MESSAGE_MAX, Making, Release, blocking, read_version, signing,
    under_way,
};
use crate::audit::{self, Action};

/// How often an order to take a rollout back is tried where that goes on at the same moment.
const TRIES: usize = 16;

impl Documents {
    /// How changes go out; none: to all hosts at once.
    ///
    /// # Errors
    /// What the store says.
    pub fn plan(&self) -> Result<Option<Plan>, StoreError> {
        release::plan(&*self.store)
    }

    /// Says how changes go out from now on. One that goes out now is not concerned.
    ///
    /// # Errors
    /// [`DocumentError`]; nothing is changed then.
    pub async fn set_plan(&self, author: Author, plan: Option<Plan>) -> Result<(), DocumentError> {
        let (store, alone) = (self.store.clone(), self.changing.clone().lock_owned().await);
        let groups = self.set().groups;
        super::require_planned(plan.as_ref(), &groups)?;
        blocking(move || {
            let _alone = alone;
            let words =
                |plan: Option<&Plan>| plan.map_or_else(|| "to all hosts at once".to_owned(), Plan::to_string);
            let before = words(release::plan(&*store)?.as_ref());
            let (key, value) = release::plan_entry(plan.as_ref())?;
            let record = author.record(Action::RolloutPlanned, "how changes go out");
            let record = record.changed(&before, &words(plan.as_ref()));
            let _ = audit::apply(&*store, &Batch::new().put(key, value), &record)?;
            Ok(())
        })
        .await
    }

    /// Sees to it that a change by this author would be taken now.
    ///
    /// # Errors
    /// [`DocumentError::UnderWay`], [`DocumentError::Urgent`].
    pub fn require_free(&self, author: &Author) -> Result<(), DocumentError> {
        let release = self.release();
        match release.open() {
            _ if author.emergency => Ok(()),
            Some((rollout, _)) => Err(under_way(rollout)),
            None if release.is_urgent => Err(DocumentError::Urgent(self.document().version)),
            None => Ok(()),
        }
    }

    /// The number of the rollout by which a version goes out; 0 where it went to all hosts at once, or is
    /// out.
    #[must_use]
    pub fn rollout_of(&self, version: DocumentVersion) -> u64 {
        let rollout = self.release().rollout.clone();
        let rollout = rollout.filter(|rollout| rollout.is_open() && rollout.candidate == version);
        rollout.map_or(0, |rollout| rollout.number)
    }

    /// The newest rollouts, at most so many, oldest first.
    ///
    /// # Errors
    /// What the store says.
    pub fn rollouts(&self, limit: usize) -> Result<Vec<Rollout>, StoreError> {
        let newest = self.release().rollout.as_ref().map_or(0, |newest| newest.number);
        release::rollouts(&*self.store, newest, limit)
    }

    /// Does what an operator wants of the newest rollout, and gives it as it is then. He may say which
    /// rollout and which next wave he means, as he saw it.
    ///
    /// # Errors
    /// [`DocumentError`]; nothing is changed then.
    pub async fn order(
        &self,
        author: Author,
        now: Instant,
        order: Order,
        seen: (Option<u64>, Option<usize>),
    ) -> Result<Arc<Rollout>, DocumentError> {
        let mut number = None;
        for _ in 0..TRIES {
            let rollout = self.release().rollout.clone().ok_or_else(|| {
                DocumentError::NoRollout(
                    "nothing was rolled out so far, so nothing was done: a change goes out in waves where there is a \
                     plan for it (`fallow rollout plan`)"
                        .to_owned(),
                )
            })?;
            rollout.require_seen(seen.0, seen.1)?;
            // Whoever said none meant the one that was the newest.
            if *number.get_or_insert(rollout.number) != rollout.number {
                break;
            }
            if let Some(after) = self.order_of(&rollout, author.clone(), now, order).await? {
                return Ok(after);
            }
            // To be told to stop means the same wherever it is by now; anything else may not.
            if order != Order::TakeBack {
                break;
            }
        }
        Err(DocumentError::NoRollout("the rollout has just gone on: look at it again".to_owned()))
    }

    /// The same of a rollout as it is now; none if it went on meanwhile.
    async fn order_of(
        &self,
        rollout: &Arc<Rollout>,
        author: Author,
        now: Instant,
        order: Order,
    ) -> Result<Option<Arc<Rollout>>, DocumentError> {
        let release = self.release();
        let newest = release.newest.as_ref().map(|newest| newest.audited.set.fleet.version);
        if rollout.phase == Phase::Completed && newest != Some(rollout.candidate) {
            let text = format!(
                "rollout {} is completed, and there are newer documents than its version {}: change them anew",
                rollout.number, rollout.candidate
            );
            return Err(DocumentError::NoRollout(text));
        }
        let hosts = self.hosts_now(rollout).await;
        let message = fallow_domain::printable::line(&author.message, MESSAGE_MAX);
        let transition = rollout.order(order, author.actor.name(), &hosts)?.saying(&message);
        self.advance(rollout, transition, author, now, hosts).await
    }

    async fn hosts_now(&self, rollout: &Arc<Rollout>) -> Vec<HostNow> {
        let Some(reach) = self.reach.get().and_then(std::sync::Weak::upgrade) else { return Vec::new() };
        let rollout = rollout.clone();
        blocking(move || reach.hosts_now(&rollout)).await
    }

    /// Goes on with a rollout, and gives it as it is then; none if it is not as `from` any more.
    ///
    /// # Errors
    /// [`DocumentError`]; nothing is changed then.
    pub async fn advance(
        &self,
        from: &Arc<Rollout>,
        transition: Transition,
        author: Author,
        now: Instant,
        hosts: Vec<HostNow>,
    ) -> Result<Option<Arc<Rollout>>, DocumentError> {
        let alone = self.changing.clone().lock_owned().await;
        let (making, from) = (self.making(author, now), from.clone());
        // Stored and published in one go, whether or not the caller goes away meanwhile.
        blocking(move || {
            let _alone = alone;
            making.advance(&from, &transition, &hosts)
        })
        .await
    }
}

impl Making {
    fn advance(
        self,
        from: &Rollout,
        transition: &Transition,
        hosts: &[HostNow],
    ) -> Result<Option<Arc<Rollout>>, DocumentError> {
        let release = self.current.borrow().clone();
        if release.rollout.as_deref() != Some(from) {
            return Ok(None);
        }
        let Some(newest) = release.newest.clone() else { return Ok(None) };
        let next = self.after(newest.audited.set.fleet.version);
        let after = from.after(transition, self.now, next, hosts);
        // Of one that is over, what was made since would go with it.
        if !from.is_open() && newest.audited.set.fleet.version != from.candidate {
            return Ok(None);
        }
        if let Transition::TakeBack { .. } = transition {
            let number = after.number;
            let current = self.current.clone();
            self.take_back(&release, after)?;
            let now = current.borrow().rollout.clone();
            return Ok(now.filter(|rollout| rollout.number == number));
        }
        let key = release::rollout_key(after.number);
        let value = ROLLOUT.write(&key, &after)?;
        let (_, what) = newest_step(&after);
        let record = self.author.record(Action::RolloutStepped, &format!("{}: {what}", said(&after)));
        let _ = audit::apply(&*self.store, &Batch::new().put(key, value), &record)?;
        tell(&after);
        let after = Arc::new(after);
        let base = release.base.clone().filter(|_| after.is_open());
        let release =
            Release { newest: Some(newest), rollout: Some(after.clone()), base, ..(*release).clone() };
        self.current.send_replace(Arc::new(release));
        Ok(Some(after))
    }

    /// The newest version says again what there was before a rollout, which is `after` then.
    pub(super) fn take_back(self, release: &Release, after: Rollout) -> Result<(), DocumentError> {
        let (mut set, before) = match &release.base {
            Some(base) => (base.audited.set.clone(), base.signed.clone()),
            None => {
                (read_version(&*self.store, after.base)?.set, signing::signed_of(&*self.store, after.base)?)
            }
        };
        let newest = release.newest.as_ref();
        // The statement about the candidate names what it may be taken back to.
        let signed = newest.and_then(|newest| newest.signed.as_ref()).zip(before);
        let signed = signed.map(|(newest, before)| Arc::new(newest.taken_back(&before.documents)));
        // The number that its end names.
        set.fleet.version = match after.phase {
            Phase::TakenBack { by, .. } => by,
            _ => self.after(newest.map(|newest| newest.audited.set.fleet.version).unwrap_or_default()),
        };
        let change = format!("version {} again, as it was before version {}", after.base, after.candidate);
        let made = self.made(set, change)?;
        tell(&after);
        self.publish(release, made, Some(after), signed)
    }
}

fn tell(rollout: &Rollout) {
    let (_, what) = newest_step(rollout);
    match rollout.phase {
        Phase::TakenBack { .. } | Phase::Paused { .. } => tracing::warn!(rollout = rollout.number, "{what}"),
        _ => tracing::info!(rollout = rollout.number, "{what}"),
    }
}
