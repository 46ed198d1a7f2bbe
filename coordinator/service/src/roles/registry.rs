//! All operators: in the store for good, and at hand for every call.
//!
//! ```text
//! fleet/operator/NAME     an operator: what [`Operator`] has, and the hash of his secret
//! ```
//! A secret has 256 random bits, is told once, and only its SHA-256 is kept. An operator is found by that
//! hash: what a stranger can vary is the secret, of whose hash he chooses no digit, so that the time of a
//! search tells him nothing.
//!
//! Who is changed is changed in one batch with the entry in the audit log. Whoever waits in a call of an
//! operator that was revoked is told at once ([`Admitted::over`]).
//!
//! Bounds: [`OPERATORS_MAX`] operators. Those that were revoked or have expired stay listed until others need
//! their places, or their names.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time;

use fallow_daemon::{clock, lock};
use fallow_domain::{Duration, Instant, Invalid};
use fallow_store::{Batch, BatchResult, Format, KeyRange, Store, StoreError, no_migration};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::operator::{Operator, OperatorName, Refusal};
use super::rights::Role;
use crate::audit::{self, Action};
use crate::document::Author;
use crate::secret::{self, NoRandomness, SecretHash};

/// Operators of one coordinator.
pub const OPERATORS_MAX: usize = 1_000;
/// Projects of one submitter.
pub const PROJECTS_MAX: usize = 64;
/// The longest life of a token.
pub const LIFE_MAX: Duration = Duration::from_hours(366 * 24);

const PREFIX: &[u8] = b"fleet/operator/";
const FORMAT: Format = Format { name: "operator", version: 1, migrate: no_migration };
/// The clock may be set while somebody waits for a token's end.
const LOOK: time::Duration = time::Duration::from_secs(60);

/// No operator is made, or none is ended.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// No name, or no life.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// Somebody is called so.
    #[error(
        "there is an operator {0} already: end his token first (`fallow operators revoke {0}`), or choose another name"
    )]
    Taken(OperatorName),
    /// A submitter without a project.
    #[error("a submitter submits to projects that are named: name at least one with --project")]
    NoProject,
    /// Too many.
    #[error(
        "a submitter is named for at most {PROJECTS_MAX} projects: an operator may submit to all of them"
    )]
    ManyProjects,
    /// Projects of somebody whose role is for all.
    #[error(
        "the role {0} is for all projects, so that none can be named: a submitter's is for those that are"
    )]
    Projects(Role),
    /// This coordinator does not host the project.
    #[error(
        "this coordinator hosts no project {project:?} (it hosts: {known}): `fallow projects` lists them"
    )]
    UnknownProject {
        /// As given.
        project: String,
        /// Those there are.
        known: String,
    },
    /// There are as many as there can be.
    #[error(
        "there are {OPERATORS_MAX} operators, and no more can be: end the token of one who needs it no longer (`fallow \
         operators revoke NAME`)"
    )]
    Full,
    /// Nobody is called so.
    #[error("there is no operator {0:?}: `fallow operators list` shows them")]
    Unknown(String),
    /// No secret could be made.
    #[error(transparent)]
    Random(#[from] NoRandomness),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a new operator may do, and for how long.
#[derive(Clone, Debug)]
pub struct OperatorTerms {
    /// What he is called.
    pub name: String,
    /// What he may do.
    pub role: Role,
    /// A submitter's projects.
    pub projects: Vec<String>,
    /// How long his token is good.
    pub life: Duration,
}

/// An operator as he is stored.
#[derive(Serialize, Deserialize)]
struct Stored {
    operator: Operator,
    secret_hash: String,
}

/// An operator at hand.
struct Held {
    operator: Arc<Operator>,
    hash: SecretHash,
    /// Told when he is revoked, or another one has his name.
    over: watch::Sender<bool>,
}

/// All of them, by their names; and the names by the hashes of their secrets.
#[derive(Default)]
struct All {
    operators: BTreeMap<OperatorName, Held>,
    names: BTreeMap<SecretHash, OperatorName>,
}

impl All {
    fn put(&mut self, operator: Operator, hash: SecretHash) {
        let name = operator.name.clone();
        self.remove(&name);
        self.names.insert(hash.clone(), name.clone());
        self.operators
            .insert(name, Held { operator: Arc::new(operator), hash, over: watch::Sender::new(false) });
    }

    fn remove(&mut self, name: &OperatorName) {
        if let Some(before) = self.operators.remove(name) {
            self.names.remove(&before.hash);
            before.over.send_replace(true);
        }
    }
}

/// The operators of a coordinator.
pub struct Operators {
    store: Arc<dyn Store>,
    all: Mutex<All>,
    /// Held by whoever changes something: what is at hand is what is stored.
    changing: Mutex<()>,
}

/// An operator whose secret was shown.
pub struct Admitted {
    /// Who it is, as he was then.
    pub operator: Arc<Operator>,
    over: watch::Receiver<bool>,
}

impl Admitted {
    /// Returns when his token is good for nothing any more, with why.
    pub async fn over(mut self) -> Refusal {
        let name = self.operator.name.clone();
        loop {
            let left = self.operator.expires_at.since(clock::now());
            if !left.is_positive() {
                return Refusal::Expired { name };
            }
            let left = time::Duration::from_micros(left.as_micros().unsigned_abs()).min(LOOK);
            tokio::select! {
                // Also when nobody is left who could say so.
                _ = self.over.wait_for(|over| *over) => return Refusal::Revoked { name },
                () = tokio::time::sleep(left) => {}
            }
        }
    }
}

fn key(name: &OperatorName) -> Vec<u8> {
    [PREFIX, name.as_str().as_bytes()].concat()
}

impl Operators {
    /// Reads all of them.
    ///
    /// # Errors
    /// What the store says.
    pub fn open(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        let mut all = All::default();
        // Page by page: another version may have made more than this one does.
        let mut range = KeyRange::prefix(PREFIX);
        loop {
            let page = store.scan(&range, OPERATORS_MAX)?;
            for (key, value) in &page {
                let Stored { operator, secret_hash } = FORMAT.read(key, value)?;
                let hash = SecretHash::from_hex(&secret_hash)
                    .ok_or_else(|| FORMAT.bad_value(key, "the hash of the secret is none"))?;
                all.put(operator, hash);
            }
            match page.last() {
                Some((last, _)) => range = range.after(last),
                None => return Ok(Self { store, all: Mutex::new(all), changing: Mutex::default() }),
            }
        }
    }

    /// Whose secret this is, whether or not it is good for anything now.
    #[must_use]
    pub fn find(&self, secret: &str) -> Option<Admitted> {
        let hash = SecretHash::of(secret);
        let all = lock(&self.all);
        let held = all.operators.get(all.names.get(&hash)?)?;
        Some(Admitted { operator: held.operator.clone(), over: held.over.subscribe() })
    }

    /// All of them, by their names.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<Operator>> {
        lock(&self.all).operators.values().map(|held| held.operator.clone()).collect()
    }

    /// Makes an operator and gives his secret. `hosted` are the projects of this coordinator.
    ///
    /// # Errors
    /// [`OperatorError`]; nobody is made then.
    pub fn create(
        &self,
        by: &Author,
        now: Instant,
        terms: OperatorTerms,
        hosted: &[String],
    ) -> Result<(String, Arc<Operator>), OperatorError> {
        let operator = permitted(by, now, terms, hosted)?;
        let name = operator.name.clone();
        let _alone = lock(&self.changing);
        let goes = self.place_for(&name, now)?;
        let secret = secret::generate()?;
        let hash = SecretHash::of(&secret);
        let key_of_name = key(&name);
        let stored = Stored { operator: operator.clone(), secret_hash: hash.to_hex() };
        let mut batch = Batch::new();
        batch.add_put(key_of_name.clone(), FORMAT.write(&key_of_name, &stored)?);
        if let Some(goes) = &goes {
            batch = batch.delete(key(goes));
        }
        let said = said(&operator);
        self.apply(&batch, &by.record(Action::OperatorCreated, name.as_str()).changed("", &said))?;
        let mut all = lock(&self.all);
        if let Some(goes) = &goes {
            all.remove(goes);
        }
        all.put(operator, hash);
        let operator = all.operators.get(&name).map(|held| held.operator.clone());
        drop(all);
        operator.map(|operator| (secret, operator)).ok_or_else(|| OperatorError::Unknown(name.to_string()))
    }

    /// Whether there is a place for a new one, and who has to go for it: the one who has been over for
    /// longest.
    fn place_for(&self, name: &OperatorName, now: Instant) -> Result<Option<OperatorName>, OperatorError> {
        let all = lock(&self.all);
        if let Some(held) = all.operators.get(name) {
            return match held.operator.is_current(now) {
                Ok(()) => Err(OperatorError::Taken(name.clone())),
                Err(_) => Ok(None),
            };
        }
        if all.operators.len() < OPERATORS_MAX {
            return Ok(None);
        }
        let since = |operator: &Operator| operator.revoked_at.unwrap_or(operator.expires_at);
        let over = all.operators.values().filter(|held| held.operator.is_current(now).is_err());
        let longest = over.min_by_key(|held| since(&held.operator));
        longest.map(|held| Some(held.operator.name.clone())).ok_or(OperatorError::Full)
    }

    /// Ends an operator's token, and what he calls for now. One that was revoked before stays so.
    ///
    /// # Errors
    /// [`OperatorError`].
    pub fn revoke(&self, by: &Author, name: &str, now: Instant) -> Result<(), OperatorError> {
        let unknown = || OperatorError::Unknown(name.to_owned());
        let operator_name = OperatorName::new(name).map_err(|_| unknown())?;
        let _alone = lock(&self.changing);
        let (operator, hash) = {
            let all = lock(&self.all);
            let held = all.operators.get(&operator_name).ok_or_else(unknown)?;
            (held.operator.clone(), held.hash.clone())
        };
        if operator.revoked_at.is_some() {
            return Ok(());
        }
        let revoked = Operator { revoked_at: Some(now), ..Operator::clone(&operator) };
        let key = key(&operator_name);
        let stored = Stored { operator: revoked.clone(), secret_hash: hash.to_hex() };
        let batch = Batch::new().put(key.clone(), FORMAT.write(&key, &stored)?);
        self.apply(&batch, &by.record(Action::OperatorRevoked, name).changed(&said(&operator), ""))?;
        lock(&self.all).put(revoked, hash);
        Ok(())
    }

    fn apply(&self, batch: &Batch, record: &audit::Record) -> Result<(), StoreError> {
        match audit::apply(&*self.store, batch, record)? {
            BatchResult::Applied { .. } => Ok(()),
            // Nothing is asked of the store that could be otherwise.
            BatchResult::Conflict { key, .. } => {
                Err(FORMAT.bad_value(&key, "it changed while an operator was changed"))
            }
        }
    }
}

/// The operator that these terms are of.
fn permitted(
    by: &Author,
    now: Instant,
    terms: OperatorTerms,
    hosted: &[String],
) -> Result<Operator, OperatorError> {
    let OperatorTerms { name, role, mut projects, life } = terms;
    let name = OperatorName::new(&name)?;
    if !life.is_positive() || life > LIFE_MAX {
        return Err(
            Invalid::new("life of an operator's token", life, "more than no time, 366 days at most").into()
        );
    }
    match (role.is_confined(), projects.len()) {
        (true, 0) => return Err(OperatorError::NoProject),
        (true, count) if count > PROJECTS_MAX => return Err(OperatorError::ManyProjects),
        (false, 1..) => return Err(OperatorError::Projects(role)),
        _ => {}
    }
    if let Some(project) = projects.iter().find(|project| !hosted.contains(project)) {
        let known = if hosted.is_empty() { "none".to_owned() } else { hosted.join(", ") };
        return Err(OperatorError::UnknownProject { project: project.clone(), known });
    }
    projects.sort();
    projects.dedup();
    Ok(Operator {
        name,
        role,
        projects,
        made_at: now,
        made_by: by.actor.name().to_owned(),
        expires_at: now + life,
        revoked_at: None,
    })
}

/// What an operator is, for the audit log.
fn said(operator: &Operator) -> String {
    let Operator { role, projects, made_at, expires_at, .. } = operator;
    let of = if projects.is_empty() { String::new() } else { format!(" for {}", projects.join(", ")) };
    format!("role {role}{of}, life {}", expires_at.since(*made_at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fallow_store::SledStore;

    fn terms(name: &str, role: Role) -> OperatorTerms {
        let projects = if role.is_confined() { vec!["sieve".into()] } else { Vec::new() };
        OperatorTerms { name: name.into(), role, projects, life: Duration::from_hours(1) }
    }

    fn start() -> (tempfile::TempDir, Arc<dyn Store>, Operators) {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SledStore::open(dir.path()).unwrap());
        let operators = Operators::open(store.clone()).unwrap();
        (dir, store, operators)
    }

    fn make(operators: &Operators, terms: OperatorTerms) -> Result<String, OperatorError> {
        let hosted = ["primes".to_owned(), "sieve".to_owned()];
        Ok(operators.create(&Author::default(), Instant::EPOCH, terms, &hosted)?.0)
    }

    #[test]
    fn r6_10_operators_are_there_after_a_restart_and_the_store_holds_no_secret() {
        let (_dir, store, operators) = start();
        let secret = make(&operators, terms("ann", Role::Submitter)).unwrap();
        let [ann] = &operators.list()[..] else { panic!("one operator") };
        assert_eq!(
            (ann.projects.as_slice(), ann.expires_at.as_micros()),
            (&["sieve".to_owned()][..], 3_600_000_000)
        );
        for (key, value) in store.scan(&KeyRange::prefix(b""), 1_000).unwrap() {
            let held = [key, value].concat();
            assert!(!held.windows(secret.len()).any(|part| part == secret.as_bytes()));
        }
        let again = Operators::open(store).unwrap();
        assert_eq!(again.find(&secret).unwrap().operator, *ann);
        assert!(again.find(&"0".repeat(64)).is_none() && again.find("").is_none());
    }

    #[test]
    fn r6_10_a_submitter_names_projects_that_there_are_and_nobody_else_names_any() {
        let (_dir, _store, operators) = start();
        let with = |role, projects: &[&str]| OperatorTerms {
            projects: projects.iter().map(|&project| project.to_owned()).collect(),
            ..terms("ann", role)
        };
        let refused = |terms| make(&operators, terms).unwrap_err().to_string();
        assert!(refused(with(Role::Submitter, &[])).contains("at least one with --project"));
        assert!(refused(with(Role::Submitter, &["sieve", "none"])).contains("it hosts: primes, sieve"));
        assert!(refused(with(Role::Submitter, &["sieve"; PROJECTS_MAX + 1])).contains("at most 64"));
        for role in [Role::Viewer, Role::Operator, Role::Administrator] {
            assert!(refused(with(role, &["sieve"])).contains("is for all projects"));
        }
        for life in [Duration::ZERO, LIFE_MAX + Duration::from_secs(1)] {
            assert!(refused(OperatorTerms { life, ..terms("ann", Role::Viewer) }).contains("366 days"));
        }
        assert!(operators.list().is_empty());
        make(&operators, with(Role::Submitter, &["sieve", "primes", "sieve"])).unwrap();
        assert_eq!(operators.list()[0].projects, ["primes", "sieve"]);
    }

    #[test]
    fn r6_10_a_name_is_one_operators_until_he_is_revoked_and_then_the_next_ones() {
        let (_dir, _store, operators) = start();
        let first = make(&operators, terms("ann", Role::Viewer)).unwrap();
        assert!(matches!(make(&operators, terms("ann", Role::Operator)), Err(OperatorError::Taken(_))));
        let by = Author::default();
        operators.revoke(&by, "ann", Instant::EPOCH).unwrap();
        operators.revoke(&by, "ann", Instant::EPOCH).unwrap();
        assert!(operators.find(&first).unwrap().operator.revoked_at.is_some());
        let second = make(&operators, terms("ann", Role::Operator)).unwrap();
        assert!(operators.find(&first).is_none());
        assert_eq!(operators.find(&second).unwrap().operator.role, Role::Operator);
        for unknown in ["bob", "", "../ann"] {
            assert!(matches!(operators.revoke(&by, unknown, Instant::EPOCH), Err(OperatorError::Unknown(_))));
        }
    }

    #[test]
    fn r6_10_there_are_so_many_operators_and_one_that_is_over_makes_room() {
        let (_dir, _store, operators) = start();
        // Without the store: that a thousand are written is not what this shows.
        for number in 0..OPERATORS_MAX {
            let name = format!("o{number}");
            let operator =
                permitted(&Author::default(), Instant::EPOCH, terms(&name, Role::Viewer), &[]).unwrap();
            lock(&operators.all).put(operator, SecretHash::of(&name));
        }
        assert!(matches!(make(&operators, terms("ann", Role::Viewer)), Err(OperatorError::Full)));
        operators.revoke(&Author::default(), "o7", Instant::EPOCH).unwrap();
        make(&operators, terms("ann", Role::Viewer)).unwrap();
        let names: Vec<_> = operators.list().iter().map(|operator| operator.name.to_string()).collect();
        assert_eq!((names.len(), names.contains(&"o7".to_owned())), (OPERATORS_MAX, false));
    }

    #[tokio::test]
    async fn r6_10_whoever_waits_in_a_call_hears_that_his_token_was_revoked_or_has_expired() {
        let (_dir, _store, operators) = start();
        let now = clock::now();
        let create = |name: &str, life| {
            let terms = OperatorTerms { life, ..terms(name, Role::Viewer) };
            operators.create(&Author::default(), now, terms, &[]).unwrap().0
        };
        let short = create("short", Duration::from_micros(1));
        assert!(matches!(operators.find(&short).unwrap().over().await, Refusal::Expired { .. }));
        let ann = create("ann", Duration::from_hours(1));
        let admitted = operators.find(&ann).unwrap();
        operators.revoke(&Author::default(), "ann", now).unwrap();
        assert!(matches!(admitted.over().await, Refusal::Revoked { .. }));
        // Who comes later is told as well.
        assert!(operators.find(&ann).unwrap().operator.is_current(now).is_err());
    }
}
