//! Versions that wait until the fleet's organisation has signed them (R6.10).
//!
//! The coordinator knows the public part of the organisation's key and never the private one. A change makes
//! a version as ever, which is held back until somebody brings the signature; then it goes out as changes
//! do, at once or in waves. What says the same as what hosts have already needs no new signature, nor does a
//! version that is taken back to what its statement names.

use std::collections::BTreeSet;
use std::sync::Arc;

use fallow_domain::{DocumentVersion, Instant, OrganisationKey, SignedDocuments};
use fallow_fleet::{SIGNED_KEYS_MAX, Statement, Trust, content_of, is_signed_by, signed_form, utc};
use fallow_rollout::{Phase, Rollout};
use fallow_store::{Batch, Format, Store, StoreError, no_migration};
use serde::{Deserialize, Serialize};

use super::making::Making;
use super::release::{self, ROLLOUT};
use super::version::{Audited, FORMAT, Published};
use super::{Author, DocumentError, Documents, Release, blocking, key, under_way};
use crate::audit::{self, Action};

const ORGANISATION: Format = Format { name: "organisation", version: 1, migrate: no_migration };
pub(crate) const ORGANISATION_KEY: &[u8] = b"document-organisation";
const SIGNED: Format = Format { name: "signed documents", version: 1, migrate: no_migration };
const HELD: Format = Format { name: "held document", version: 1, migrate: no_migration };
const HELD_KEY: &[u8] = b"document-held";

/// What a coordinator knows of the organisation that its fleet belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Organisation {
    /// The public parts of its keys; empty where it signs nothing.
    pub keys: Vec<OrganisationKey>,
}

/// What there is to sign.
#[derive(Clone, Debug, PartialEq)]
pub struct ToSign {
    /// The newest version.
    pub version: DocumentVersion,
    /// Its documents, as they are signed.
    pub documents: String,
    /// Whether it is held back until it is signed.
    pub is_held: bool,
    /// What hosts have now, and may be taken back to; none where that was not signed.
    pub before: Option<Arc<SignedDocuments>>,
}

/// Where the newest version waits: the version that hosts have meanwhile; 0 for none.
#[derive(Serialize, Deserialize)]
pub(super) struct Held {
    pub(super) followed: DocumentVersion,
    /// Whether it is to go to all hosts at once.
    #[serde(default)]
    pub(super) is_urgent: bool,
}

/// Under which it is stored what was signed of a version.
fn signed_key(version: DocumentVersion) -> Vec<u8> {
    format!("document-signed/{:020}", version.0).into_bytes()
}

pub(super) fn organisation(store: &dyn Store) -> Result<Organisation, StoreError> {
    let stored = store.get(ORGANISATION_KEY)?;
    let stored = stored.map(|value| ORGANISATION.read(ORGANISATION_KEY, &value)).transpose()?;
    Ok(stored.unwrap_or_default())
}

/// What was signed of a stored version.
pub(super) fn signed_of(
    store: &dyn Store,
    version: DocumentVersion,
) -> Result<Option<Arc<SignedDocuments>>, StoreError> {
    let key = signed_key(version);
    let stored = store.get(&key)?.map(|value| SIGNED.read(&key, &value)).transpose()?;
    Ok(stored.map(Arc::new))
}

/// How the newest waits; none if it does not.
pub(super) fn held(store: &dyn Store) -> Result<Option<Held>, StoreError> {
    let stored = store.get(HELD_KEY)?;
    let held: Option<Option<Held>> = stored.map(|value| HELD.read(HELD_KEY, &value)).transpose()?;
    Ok(held.flatten())
}

/// Adds what was signed of a version, or that it waits.
pub(super) fn put(
    batch: Batch,
    version: DocumentVersion,
    signed: Option<&SignedDocuments>,
    held: Option<&Held>,
) -> Result<Batch, StoreError> {
    let batch = batch.put(HELD_KEY, HELD.write(HELD_KEY, &held)?);
    let Some(signed) = signed else { return Ok(batch) };
    let key = signed_key(version);
    let value = SIGNED.write(&key, signed)?;
    Ok(batch.put(key, value))
}

/// Adds a rollout that begins.
fn put_rollout(batch: Batch, rollout: Option<&Rollout>) -> Result<Batch, StoreError> {
    let Some(rollout) = rollout else { return Ok(batch) };
    let key = release::rollout_key(rollout.number);
    let value = ROLLOUT.write(&key, rollout)?;
    Ok(batch.put(key, value))
}

fn version_of(published: Option<&Arc<Published>>) -> DocumentVersion {
    published.map(|published| published.audited.set.fleet.version).unwrap_or_default()
}

impl Documents {
    /// What the coordinator knows of the fleet's organisation.
    ///
    /// # Errors
    /// What the store says.
    pub fn organisation(&self) -> Result<Organisation, StoreError> {
        organisation(&*self.store)
    }

    /// Why no host has a project yet, or any more, in words; none if those have it that follow what all may.
    #[must_use]
    pub fn why_nobody_has(&self, project: &str) -> Option<String> {
        let release = self.release();
        let names = |published: Option<&Arc<Published>>| {
            let projects = published.map(|published| &published.audited.set.fleet.projects);
            projects.is_some_and(|projects| projects.iter().any(|one| one.name == project))
        };
        let version = version_of(release.newest.as_ref());
        match release.open() {
            _ if names(release.base()) => None,
            _ if !names(release.newest.as_ref()) => Some(format!(
                "the fleet's documents do not name it (any more): `fallow project create {project}` puts it there"
            )),
            _ if release.is_held => Some(format!(
                "version {version} of the documents, which names it, waits to be signed: `fallow organisation sign`"
            )),
            Some((rollout, _)) if rollout.phase == Phase::Waiting => Some(format!(
                "rollout {} of the documents, which names it, waits until somebody approves it: `fallow rollout approve`",
                rollout.number
            )),
            _ => None,
        }
    }

    /// What there is to sign; none before the first version.
    ///
    /// # Errors
    /// [`DocumentError::Serialise`].
    pub fn to_sign(&self) -> Result<Option<ToSign>, DocumentError> {
        let release = self.release();
        let Some(newest) = &release.newest else { return Ok(None) };
        Ok(Some(ToSign {
            version: newest.audited.set.fleet.version,
            documents: signed_form(&newest.audited.set)?,
            is_held: release.is_held,
            before: release.base().and_then(|base| base.signed.clone()),
        }))
    }

    /// Says by which keys the fleet's organisation signs; none: it signs nothing, and what waits goes out,
    /// by the plan for rollouts if there is one.
    ///
    /// # Errors
    /// [`DocumentError`]; nothing is changed then.
    pub async fn set_organisation(
        &self,
        author: Author,
        now: Instant,
        keys: Vec<OrganisationKey>,
    ) -> Result<(), DocumentError> {
        if keys.len() > SIGNED_KEYS_MAX {
            return Err(DocumentError::NotSigned(format!(
                "an organisation has at most {SIGNED_KEYS_MAX} keys"
            )));
        }
        let making = self.making(author, now);
        let alone = self.changing.clone().lock_owned().await;
        blocking(move || {
            let _alone = alone;
            making.set_organisation(keys)
        })
        .await
    }

    /// Takes the signature of the newest version, which goes out then. Gives the version that does: where
    /// the newest was signed before, it is one that says the same.
    ///
    /// # Errors
    /// [`DocumentError`]; nothing is changed then.
    pub async fn sign(
        &self,
        author: Author,
        now: Instant,
        authority: String,
        version: DocumentVersion,
        signed: SignedDocuments,
    ) -> Result<DocumentVersion, DocumentError> {
        let (making, alone) = (self.making(author, now), self.changing.clone().lock_owned().await);
        blocking(move || {
            let _alone = alone;
            making.sign(authority, version, signed)
        })
        .await
    }
}

impl Making {
    /// What was signed that a version of the same content may go out with.
    pub(super) fn inherited(
        &self,
        release: &Release,
        made: &Audited,
    ) -> Result<Option<Arc<SignedDocuments>>, DocumentError> {
        let signed = release.base().and_then(|base| base.signed.clone());
        let signed = match (release.open(), &release.newest) {
            // Hosts that have the candidate's statement take no older one: it names what was before.
            (Some(_), Some(newest)) => newest
                .signed
                .as_ref()
                .zip(signed)
                .map(|(newest, before)| Arc::new(newest.taken_back(&before.documents))),
            _ => signed,
        };
        let Some(signed) = signed else { return Ok(None) };
        Ok(Some(signed).filter(|signed| signed_form(&made.set).is_ok_and(|form| form == signed.documents)))
    }

    fn set_organisation(mut self, keys: Vec<OrganisationKey>) -> Result<(), DocumentError> {
        let release = self.current.borrow().clone();
        let keys: Vec<_> = BTreeSet::from_iter(keys).into_iter().collect();
        if let Some((rollout, _)) = release.open() {
            return Err(under_way(rollout));
        }
        let before = organisation(&*self.store)?;
        // Who has said that nothing is signed any more insists.
        if !before.keys.is_empty() {
            require_believed(&release, &keys)?;
        }
        let said = |keys: &[OrganisationKey]| match keys {
            [] => "nothing is signed".to_owned(),
            keys => keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        };
        let signed = release.newest.as_ref().and_then(|newest| newest.signed.as_ref());
        let is_signed = signed.is_some_and(|signed| is_signed_by(signed, &keys));
        // What hosts have already they keep; what is new to them waits for the signature.
        let is_held = !keys.is_empty() && release.newest.is_some() && (release.is_held || !is_signed);
        let followed = release.base().cloned().filter(|_| is_held);
        let is_urgent = is_held && release.is_urgent;
        let held = is_held.then(|| Held { followed: version_of(followed.as_ref()), is_urgent });
        let mut object = "keys that documents are signed with".to_owned();
        let mut rollout = None;
        if release.is_held && !is_held {
            // Who made the change has said how it goes out.
            self.author.emergency = release.is_urgent;
            rollout = self.begun_of_held(&release, version_of(release.newest.as_ref()))?;
            let version = version_of(release.newest.as_ref());
            object.push_str(&format!(
                "; version {version}, which waited, goes out{}",
                self.how(rollout.as_ref())
            ));
        }
        let record = self.author.record(Action::OrganisationSet, &object);
        let record = record.changed(&said(&before.keys), &said(&keys));
        let batch =
            Batch::new().put(ORGANISATION_KEY, ORGANISATION.write(ORGANISATION_KEY, &Organisation { keys })?);
        let batch = put(batch, version_of(release.newest.as_ref()), None, held.as_ref())?;
        let batch = put_rollout(batch, rollout.as_ref())?;
        let _ = audit::apply(&*self.store, &batch, &record)?;
        let base = rollout.as_ref().and_then(|_| release.base().cloned());
        let rollout = rollout.map(Arc::new).or_else(|| release.rollout.clone());
        let newest = release.newest.clone();
        self.current.send_replace(Arc::new(Release { newest, rollout, base, is_held, followed, is_urgent }));
        Ok(())
    }

    /// The rollout of the version that waited, which has this number now. Those who made what it changes do
    /// not approve it, whoever has it go out.
    fn begun_of_held(
        &self,
        release: &Release,
        version: DocumentVersion,
    ) -> Result<Option<Rollout>, DocumentError> {
        let (Some(base), Some(newest)) = (release.base(), &release.newest) else { return Ok(None) };
        let made_by = self.authors_since(release, base.audited.set.fleet.version)?;
        let mut set = newest.audited.set.clone();
        set.fleet.version = version;
        self.begun(release, &base.audited.set, &set, made_by)
    }

    /// How a version goes out, for the audit log.
    fn how(&self, rollout: Option<&Rollout>) -> String {
        match rollout {
            Some(rollout) => format!(", by rollout {}", rollout.number),
            None if self.author.emergency => ", to all hosts at once".to_owned(),
            None => String::new(),
        }
    }

    fn sign(
        mut self,
        authority: String,
        version: DocumentVersion,
        signed: SignedDocuments,
    ) -> Result<DocumentVersion, DocumentError> {
        let not_signed = |why: String| Err(DocumentError::NotSigned(why));
        let release = self.current.borrow().clone();
        // Who made the change has said how it goes out.
        self.author.emergency |= release.is_urgent;
        let Some(newest) = release.newest.clone() else {
            return not_signed("there are no documents yet: there is nothing to sign".to_owned());
        };
        if newest.audited.set.fleet.version != version {
            return not_signed(format!(
                "the newest version is {}, and {version} was signed: look at it and sign it anew (`fallow organisation sign`)",
                newest.audited.set.fleet.version
            ));
        }
        let known = organisation(&*self.store)?;
        if known.keys.is_empty() {
            return not_signed(
                "this coordinator knows no key of an organisation: `fallow organisation set`".to_owned(),
            );
        }
        if let Some((rollout, _)) = release.open() {
            return not_signed(format!(
                "version {version} is signed already, and rollout {} {}: `fallow rollout` shows how it fares, `fallow rollout abort` \
                 takes it back; only a change can be made an emergency",
                rollout.number,
                rollout.stands()
            ));
        }
        let base = release.base().cloned();
        let before = base.as_ref().and_then(|base| base.signed.clone());
        let trust = Trust {
            newest: before.as_ref().map(|before| before.statement.clone()),
            ..Trust::new(authority, known.keys)
        };
        // A statement that hosts have taken before says nothing new.
        let is_known = before.as_ref().is_some_and(|before| before.statement == signed.statement);
        let trust = match trust.accept(Some(&signed), self.now) {
            Ok(accepted) if !is_known => accepted.trust,
            Ok(_) => {
                return not_signed(
                    "this was signed before: sign it anew (`fallow organisation sign`)".to_owned(),
                );
            }
            Err(error) => return not_signed(format!("hosts would refuse it: {error}")),
        };
        let statement = Statement::parse(&signed.statement)
            .map_err(|error| DocumentError::NotSigned(error.to_string()))?;
        if signed.documents != signed_form(&newest.audited.set)? {
            return not_signed(format!(
                "it is not version {version} that was signed: sign that (`fallow organisation sign`)"
            ));
        }
        let needed = before.as_ref().map(|before| content_of(&before.documents));
        if statement.before != needed {
            return not_signed(
                "it names something else than hosts have now as what they may be taken back to: sign it anew \
                 (`fallow organisation sign`)"
                    .to_owned(),
            );
        }
        let mut audited = newest.audited.clone();
        let mut batch = Batch::new();
        if !release.is_held || version_of(release.followed.as_ref()) == version {
            // Hosts may have it without the signature, or have refused it: they look at a newer one only.
            let next = self.after(version);
            audited.set.fleet.version = next;
            audited = self.made(audited.set, format!("version {version} again, signed anew"))?;
            let key = key(next);
            let value = FORMAT.write(&key, &audited)?;
            batch = batch.require_absent(key.clone()).put(key, value);
        }
        let made = audited.set.fleet.version;
        let rollout = self.begun_of_held(&release, made)?;
        batch = put_rollout(batch, rollout.as_ref())?;
        let organisation = Organisation { keys: trust.keys };
        batch = batch.put(ORGANISATION_KEY, ORGANISATION.write(ORGANISATION_KEY, &organisation)?);
        batch = put(batch, made, Some(&signed), None)?;
        let how = self.how(rollout.as_ref());
        let record = self.author.record(
            Action::DocumentSigned,
            &format!(
                "version {made}: signed at {}, good until {}{how}",
                utc(statement.signed_at),
                utc(statement.good_until)
            ),
        );
        let _ = audit::apply(&*self.store, &batch, &record)?;
        tracing::info!(version = %made, by = self.author.actor.name(), "document signed");
        let traceparent = self.author.traceparent.clone();
        let newest = Some(Arc::new(Published { audited, traceparent, signed: Some(Arc::new(signed)) }));
        let is_open = rollout.is_some();
        let rollout = rollout.map(Arc::new).or_else(|| release.rollout.clone());
        let base = if is_open { base } else { None };
        self.current.send_replace(Arc::new(Release {
            newest,
            rollout,
            base,
            is_held: false,
            followed: None,
            is_urgent: false,
        }));
        Ok(made)
    }
}

/// Sees to it that hosts that follow signed documents believe each of the keys by which others are to be
/// signed.
fn require_believed(release: &Release, keys: &[OrganisationKey]) -> Result<(), DocumentError> {
    let signed = release.base().and_then(|base| base.signed.clone());
    let Some(statement) = signed.and_then(|signed| Statement::parse(&signed.statement).ok()) else {
        return Ok(());
    };
    if keys.iter().all(|key| statement.keys.contains(key)) {
        return Ok(());
    }
    let known = statement.keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
    Err(DocumentError::NotSigned(format!(
        "hosts follow what {known} has signed, and would refuse what another key signs: have them believe the new one first \
         (`fallow organisation sign --good-key`, docs/signing.md); if the old key is lost, say --none first, and enrol hosts anew"
    )))
}
