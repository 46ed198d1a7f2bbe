//! How a version comes to be: edited, checked, stored with what it means for a rollout, and told to all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fallow_domain::{DocumentVersion, Instant, Invalid, SignedDocuments, printable};
use fallow_fleet::DocumentSet;
use fallow_rollout::{Rollout, Transition, Wave};
use fallow_store::{Batch, BatchResult, Store, StoreError};
use tokio::sync::{OwnedMutexGuard, watch};

use super::release::{self, ROLLOUT};
use super::version::{Audited, FORMAT, Published};
use super::{Author, DocumentError, MESSAGE_MAX, Reach, Release, key, no_group, set_of, signing, under_way};
use crate::audit::{self, Action};

/// Versions that hosts may claim to follow beyond the coordinator's newest: one that claims more is in
/// error, or lies so that no number is left.
const CLAIMED: u64 = 1_000;
/// Bytes of what a change is about in the audit log, at most.
const CHANGE_IN_LOG: usize = 300;

/// The making of a version.
#[derive(Clone)]
pub(super) struct Making {
    pub(super) store: Arc<dyn Store>,
    pub(super) current: Arc<watch::Sender<Arc<Release>>>,
    pub(super) reach: Option<Arc<dyn Reach>>,
    pub(super) author: Author,
    pub(super) now: Instant,
}

impl Making {
    /// Makes a version by an edit of the newest, and gives the documents before and after. Stored and
    /// published in one go: a caller that goes away meanwhile (its call is dropped then) must not leave a
    /// version in the store that nobody was told of and no other can follow.
    pub(super) fn make(
        self,
        _alone: OwnedMutexGuard<()>,
        edit: impl FnOnce(&mut DocumentSet) -> Result<String, DocumentError>,
    ) -> Result<(DocumentSet, DocumentSet), DocumentError> {
        let mut release = self.current.borrow().clone();
        let newest = set_of(release.newest.as_deref());
        let before = self.begins_from(&release)?;
        let mut set = before.clone();
        let mut change = edit(&mut set)?;
        if self.author.by_rule && before.fleet.version != newest.fleet.version {
            change.push_str(&format!(
                ", without version {}, which had not gone out to all",
                newest.fleet.version
            ));
        }
        // What waits for its signature can be said again as an emergency.
        let hurries = self.author.emergency && release.is_held && !release.is_urgent;
        if set == before && release.open().is_none() && !hurries {
            return Ok((before, set));
        }
        set.fleet.version = set.fleet.version.max(self.after(newest.fleet.version));
        let mut made = self.made(set, change)?;
        let signed = self.inherited(&release, &made)?;
        let waits = signed.is_none() && !signing::organisation(&*self.store)?.keys.is_empty();
        if let Some((rollout, _)) = release.open()
            && waits
        {
            // Where it was signed, nobody has to sign that hosts go back from what goes out now. In a new
            // term, too: hosts may have another version of a number that follows the newest here.
            let next = made.set.fleet.version;
            let superseded = self.superseded(rollout, next);
            let author = Author { emergency: false, ..self.author.clone() };
            Self { author, ..self.clone() }.take_back(&release, superseded)?;
            release = self.current.borrow().clone();
            made.set.fleet.version = next.next();
        }
        let rollout = match release.open() {
            Some((rollout, _)) => Some(self.superseded(rollout, made.set.fleet.version)),
            // It begins when there is a signature.
            None if waits => None,
            None => {
                let base = release.base().map_or(&before, |base| &base.audited.set);
                // What waited goes out with it, where the signature is good for both.
                let made_by = match release.is_held {
                    true => self.authors_since(&release, base.fleet.version)?,
                    false => BTreeSet::new(),
                };
                self.begun(&release, base, &made.set, made_by)?
            }
        };
        let after = made.set.clone();
        self.publish(&release, made, rollout, signed)?;
        Ok((before, after))
    }

    /// What an edit would make of the newest version, refused as where it is made; nothing is changed.
    pub(super) fn tried(
        &self,
        release: &Release,
        edit: impl FnOnce(&mut DocumentSet) -> Result<String, DocumentError>,
    ) -> Result<(DocumentSet, DocumentSet), DocumentError> {
        let before = self.begins_from(release)?;
        let mut set = before.clone();
        let change = edit(&mut set)?;
        Ok((before, self.made(set, change)?.set))
    }

    /// The documents that a change begins from. An emergency starts from what is known to be good: what goes
    /// out now is taken back. So does what the coordinator sends to all hosts at once by itself: what
    /// somebody else changed, and no host has, is not to go with it.
    fn begins_from(&self, release: &Release) -> Result<DocumentSet, DocumentError> {
        match release.open() {
            Some((rollout, _)) if !self.author.emergency => Err(under_way(rollout)),
            Some((_, base)) => Ok(base.audited.set.clone()),
            None if release.is_held && self.author.by_rule && release.followed.is_some() => {
                Ok(set_of(release.followed.as_deref()))
            }
            // It would go to all hosts at once with what waits.
            None if release.is_urgent && !self.author.emergency => {
                let newest = set_of(release.newest.as_deref()).fleet.version;
                Err(DocumentError::Urgent(newest))
            }
            None => Ok(set_of(release.newest.as_deref())),
        }
    }

    /// Who made the versions after one.
    pub(super) fn authors_since(
        &self,
        release: &Release,
        followed: DocumentVersion,
    ) -> Result<BTreeSet<String>, StoreError> {
        let newest = set_of(release.newest.as_deref()).fleet.version;
        let heads = super::heads(&*self.store, followed, newest)?;
        Ok(heads.into_iter().map(|head| head.made_by).collect())
    }

    /// A version, checked as a whole.
    pub(super) fn made(&self, set: DocumentSet, change: String) -> Result<Audited, DocumentError> {
        set.fleet.check()?;
        if let Some(problem) = set.problems().first() {
            return Err(DocumentError::Conflict(problem.to_string()));
        }
        Ok(Audited {
            hash: set.hash()?,
            set,
            made_at: self.now,
            made_by: self.author.actor.name().to_owned(),
            change,
            message: printable::line(&self.author.message, MESSAGE_MAX),
        })
    }

    /// The number of the version that is made after another one: also after all that hosts of the fleet say
    /// that they follow, or those would have it already that no rollout has reached. They may follow such as
    /// this coordinator does not know any more, if its disk was put back to an earlier day.
    pub(super) fn after(&self, newest: DocumentVersion) -> DocumentVersion {
        let followed = self.reach.as_ref().map(|reach| reach.followed()).unwrap_or_default();
        let is_believed = |followed: &DocumentVersion| {
            followed.term() == newest.term() && followed.number() <= newest.number().saturating_add(CLAIMED)
        };
        followed.into_iter().filter(is_believed).fold(newest, DocumentVersion::max).next()
    }

    /// The rollout that an emergency takes the place of.
    fn superseded(&self, open: &Rollout, newest: DocumentVersion) -> Rollout {
        let why = format!("{} sends another change to all hosts at once", self.author.actor.name());
        let hosts = self.reach.as_ref().map(|reach| reach.hosts_now(open)).unwrap_or_default();
        open.after(&Transition::TakeBack { why }, self.now, newest, &hosts)
    }

    /// The rollout of a new version, if changes go out by a plan and this one makes any host different.
    /// `made_by` are those who made it, where it waited.
    pub(super) fn begun(
        &self,
        release: &Release,
        before: &DocumentSet,
        after: &DocumentSet,
        made_by: BTreeSet<String>,
    ) -> Result<Option<Rollout>, DocumentError> {
        if self.author.emergency || release.newest.is_none() {
            return Ok(None);
        }
        let (Some(plan), Some(reach)) = (release::plan(&*self.store)?, self.reach.as_ref()) else {
            return Ok(None);
        };
        let changes_hosts = reach.changed_hosts(before, after);
        if changes_hosts == 0 {
            return Ok(None);
        }
        let mut groups = BTreeMap::new();
        for wave in &plan.waves {
            let Wave::Group(name) = wave else { continue };
            let group = before.groups.0.get(name).or_else(|| after.groups.0.get(name));
            groups.insert(name.clone(), group.ok_or_else(|| no_group(name))?.selector.clone());
        }
        let number = release.rollout.as_ref().map_or(1, |newest| newest.number + 1);
        let versions = (before.fleet.version, after.fleet.version);
        let by = (self.author.actor.name().to_owned(), self.now);
        Ok(Some(Rollout { made_by, ..Rollout::begin(number, versions, plan, groups, by, changes_hosts) }))
    }

    /// Stores a version, with what was signed of it, with its rollout or that which it ends, and tells
    /// everybody.
    pub(super) fn publish(
        self,
        release: &Release,
        audited: Audited,
        rollout: Option<Rollout>,
        signed: Option<Arc<SignedDocuments>>,
    ) -> Result<(), DocumentError> {
        let Self { store, current, author, .. } = self;
        let version = audited.set.fleet.version;
        let key = key(version);
        let value = FORMAT.write(&key, &audited)?;
        let mut batch = Batch::new().require_absent(key.clone()).put(key, value);
        let is_held = signed.is_none() && !signing::organisation(&*store)?.keys.is_empty();
        let followed = release.base().cloned().filter(|_| is_held);
        let is_urgent = is_held && (author.emergency || release.is_urgent);
        let held = is_held.then(|| signing::Held {
            followed: followed
                .as_ref()
                .map(|followed| followed.audited.set.fleet.version)
                .unwrap_or_default(),
            is_urgent,
        });
        batch = signing::put(batch, version, signed.as_deref(), held.as_ref())?;
        if let Some(rollout) = &rollout {
            let key = release::rollout_key(rollout.number);
            let value = ROLLOUT.write(&key, rollout)?;
            batch = batch.put(key, value);
        }
        let (action, mut object) = match (&rollout, author.emergency) {
            (Some(rollout), false) if !rollout.is_open() => {
                let (said, step) = (release::said(rollout), release::newest_step(rollout).1);
                let waits = if is_held { "; that is to be signed first" } else { "" };
                (Action::RolloutTakenBack, format!("{said}: {step}{waits}"))
            }
            (rollout, emergency) => {
                let called = if emergency && !author.by_rule { ", an emergency" } else { "" };
                let how = match (rollout, emergency) {
                    _ if is_held => format!("{called}, to be signed"),
                    (Some(rollout), true) => {
                        format!("{called}, to all hosts at once, in place of rollout {}", rollout.number)
                    }
                    (None, true) => format!("{called}, to all hosts at once"),
                    (Some(rollout), false) => format!(", by rollout {}", rollout.number),
                    (None, false) => String::new(),
                };
                // What follows is not to be cut off: the history of documents has all of it.
                let change = printable::shortened(&audited.change, CHANGE_IN_LOG);
                (Action::DocumentChanged, format!("version {version}: {change}{how}"))
            }
        };
        // Who may not change the plan may change the groups that it names: that is not to be overlooked.
        if let (Some(plan), Some(newest)) = (release::plan(&*store)?, &release.newest) {
            let selector =
                |set: &DocumentSet, name| set.groups.0.get(name).map(|group| group.selector.clone());
            for wave in &plan.waves {
                if let Wave::Group(name) = wave
                    && selector(&newest.audited.set, name) != selector(&audited.set, name)
                {
                    object += &format!("; wave {name} of the plan for rollouts chooses other hosts");
                }
            }
        }
        let record = author.record(action, &object);
        let before = release.newest.as_ref().map(|published| published.audited.hash.clone());
        let record = record.changed(before.unwrap_or_default().as_str(), audited.hash.as_str());
        if let BatchResult::Conflict { .. } = audit::apply(&*store, &batch, &record)? {
            let what = "a new version of the document";
            return Err(Invalid::new(what, version, "a version that is not there yet").into());
        }
        tracing::info!(%version, by = audited.made_by, change = audited.change, "document made");
        let newest = Some(Arc::new(Published { audited, traceparent: author.traceparent, signed }));
        let rollout = rollout.map(Arc::new).or_else(|| release.rollout.clone());
        let is_open = rollout.as_ref().is_some_and(|rollout| rollout.is_open());
        // Not what waited for its signature: nobody was to have that.
        let base = if is_open { release.base().cloned() } else { None };
        current.send_replace(Arc::new(Release { newest, rollout, base, is_held, followed, is_urgent }));
        Ok(())
    }
}
