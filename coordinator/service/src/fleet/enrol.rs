//! Enrolment and what follows from it: which key an agent has, which certificate, and whether it is still one
//! of the fleet (R6.10).
//!
//! An agent is known by its key, which it made itself. It asks with a token and a request to certify the key.
//! Whoever asks again with the same token and the same key is told the same agent, and no other use is spent:
//! nothing is lost where the answer was. A certificate is a statement of the coordinator's that it may
//! repeat, so none is stored. An agent that is revoked, or forgotten, stays on record, so that its
//! certificate, which is still valid, is known to mean nothing.

use fallow_domain::{AgentId, Duration, Instant, Labels};
use fallow_proto::fleet::limits::TEXT_BYTES;
use fallow_store::{Batch, BatchResult, Format, Store, StoreError};
use fallow_tls::{Authority, Fingerprint, Issued, TlsError};
use serde::{Deserialize, Serialize};

use super::copies::CopyOf;
use super::token::{self, TokenRecord};
use super::{keys, labels};
use crate::audit::{self, Action, Actor, Record};
use crate::secret::SecretHash;

/// An agent is not enrolled, or gets no newer certificate.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// No such token was ever made here.
    #[error("this enrolment token is not one of this coordinator's: make one with `fallow tokens create`")]
    Unknown,
    /// It was used as often as it may be.
    #[error(
        "this enrolment token was used before, {0} of {0} times: make another with `fallow tokens create`"
    )]
    Spent(u32),
    /// It is too old.
    #[error("this enrolment token has expired: make another with `fallow tokens create`")]
    Expired,
    /// An operator ended it.
    #[error("this enrolment token was revoked: make another with `fallow tokens create`")]
    RevokedToken,
    /// The agent that enrolled with this token and key was revoked or forgotten.
    #[error(
        "the host with this key was taken out of the fleet: start the agent in another, empty directory with a new token if it \
         is to join again"
    )]
    TakenOut,
    /// Too long a name, or one that is no text.
    #[error("{0}")]
    Absurd(String),
    /// The request to certify a key is none.
    #[error("the request to certify the agent's key is refused")]
    Request(#[source] TlsError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An agent as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentRecord {
    /// What its key is known by, as hexadecimal digits; empty for an agent that enrolled before agents had
    /// keys and has to do so again.
    pub key: String,
    /// When it was enrolled.
    pub enrolled_at: Instant,
    /// What it called its host then.
    pub hostname: String,
    /// Labels that its token gave it.
    pub labels: Labels,
    /// The id of that token; empty for an agent from before tokens had ids.
    #[serde(default)]
    pub token: String,
    /// That it was taken out of the fleet.
    pub revoked: Option<Revocation>,
    /// It is not listed any more.
    pub forgotten: bool,
    /// Whose copy it was; none for one that enrolled with a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_of: Option<CopyOf>,
}

/// That a host was taken out of the fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    /// When.
    pub at: Instant,
    /// Why, in an operator's words; may be empty.
    pub reason: String,
}

/// Version 1 had the hash of a secret in place of a key.
pub(super) const AGENT: Format = Format { name: "agent", version: 2, migrate };

fn migrate(found: u16, bytes: &[u8]) -> Result<Vec<u8>, String> {
    #[derive(Deserialize)]
    struct Before {
        enrolled_at: Instant,
        hostname: String,
    }
    if found != 1 {
        return Err(format!("version {found} was never written"));
    }
    let Before { enrolled_at, hostname } =
        serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let record = AgentRecord {
        key: String::new(),
        enrolled_at,
        hostname,
        labels: Labels::default(),
        token: String::new(),
        revoked: None,
        forgotten: false,
        copy_of: None,
    };
    serde_json::to_vec(&record).map_err(|error| error.to_string())
}

/// Who signs certificates, and how long they are good.
#[derive(Debug)]
pub struct Issuer {
    /// The fleet's authority.
    pub authority: Authority,
    /// The life of a certificate.
    pub life: Duration,
}

impl Issuer {
    pub(super) fn issue(&self, request: &[u8], agent: &AgentId, now: Instant) -> Result<Issued, EnrolError> {
        self.authority.issue_host(request, agent, now, self.life).map_err(EnrolError::Request)
    }
}

/// An agent that has enrolled, now or before.
#[derive(Debug)]
pub(super) struct Enrolled {
    pub(super) id: AgentId,
    pub(super) record: AgentRecord,
    pub(super) issued: Issued,
    /// It was not one before.
    pub(super) is_new: bool,
}

/// What an agent asks with.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) token: String,
    pub(super) hostname: String,
    pub(super) certificate_request: Vec<u8>,
    /// The address at the other end; empty for none.
    pub(super) from: String,
}

impl Asked {
    /// Whether it can be meant at all.
    ///
    /// # Errors
    /// [`EnrolError::Absurd`].
    pub(super) fn check(&self) -> Result<(), EnrolError> {
        let Self { token, hostname, .. } = self;
        if hostname.len() > TEXT_BYTES || token.len() > TEXT_BYTES || hostname.chars().any(char::is_control) {
            return Err(EnrolError::Absurd(format!(
                "a token and a host name have up to {TEXT_BYTES} printable bytes"
            )));
        }
        Ok(())
    }
}

/// Trades a use of a token for an identity.
///
/// # Errors
/// [`EnrolError`]; the token is as good as before then.
pub(super) fn enrol(
    store: &dyn Store,
    issuer: &Issuer,
    now: Instant,
    asked: &Asked,
) -> Result<Enrolled, EnrolError> {
    asked.check()?;
    let Asked { token, hostname, certificate_request, from } = asked;
    let hash = SecretHash::of(token).to_hex();
    let token_key = keys::token(&hash);
    if store.get(&token_key)?.is_none() {
        return Err(EnrolError::Unknown);
    }
    let key = Authority::key_in(certificate_request).map_err(EnrolError::Request)?;
    let use_key = keys::token_use(&hash, &key);
    let id = AgentId(ulid::Ulid::new().to_string());
    let mut issued = None;
    loop {
        // Whoever has enrolled with it before may ask again, also when it is spent or has expired.
        if let Some(stored) = store.get(&use_key)? {
            let id: AgentId = keys::TOKEN_USE.read(&use_key, &stored)?;
            return again(store, issuer, now, id, certificate_request);
        }
        let stored = store.get(&token_key)?.ok_or(EnrolError::Unknown)?;
        let open: TokenRecord = keys::TOKEN.read(&token_key, &stored)?;
        match () {
            () if open.revoked => return Err(EnrolError::RevokedToken),
            () if open.used >= open.uses => return Err(EnrolError::Spent(open.uses)),
            () if now >= open.expires_at => return Err(EnrolError::Expired),
            () => {}
        }
        // Once, however often others come first.
        let certificate = match issued.take() {
            Some(issued) => issued,
            None => issuer.issue(certificate_request, &id, now)?,
        };
        let record = AgentRecord {
            key: key.to_string(),
            enrolled_at: now,
            hostname: hostname.clone(),
            labels: open.labels.clone(),
            token: token::id_of(&token_key),
            revoked: None,
            forgotten: false,
            copy_of: None,
        };
        let spent = TokenRecord { used: open.used + 1, ..open };
        let agent_key = keys::agent(&id);
        let batch = Batch::new()
            .yielding()
            .require_value(token_key.clone(), stored)
            .require_absent(use_key.clone())
            .put(token_key.clone(), keys::TOKEN.write(&token_key, &spent)?)
            .put(use_key.clone(), keys::TOKEN_USE.write(&use_key, &id)?)
            .put(agent_key.clone(), keys::AGENT.write(&agent_key, &record)?);
        // Of those that ask at the same time with one token, one comes first each time.
        let given = format!("token {} {}", token::id_of(&token_key), labels::said(&record.labels));
        let done = Record::new(Actor::Agent(id.clone()), from, Action::Enrolled, hostname);
        if let BatchResult::Applied { .. } = audit::apply(store, &batch, &done.changed("", given.trim_end()))?
        {
            return Ok(Enrolled { id, record, issued: certificate, is_new: true });
        }
        issued = Some(certificate);
    }
}

/// The agent that was given this id before, for the key in this request.
pub(super) fn again(
    store: &dyn Store,
    issuer: &Issuer,
    now: Instant,
    id: AgentId,
    request: &[u8],
) -> Result<Enrolled, EnrolError> {
    let agent_key = keys::agent(&id);
    let stored = store.get(&agent_key)?.ok_or(EnrolError::TakenOut)?;
    let record: AgentRecord = keys::AGENT.read(&agent_key, &stored)?;
    if record.revoked.is_some() || record.forgotten {
        return Err(EnrolError::TakenOut);
    }
    let issued = issuer.issue(request, &id, now)?;
    Ok(Enrolled { id, record, issued, is_new: false })
}

/// The key in a request to renew a certificate.
///
/// # Errors
/// [`EnrolError::Request`].
pub(super) fn key_in(request: &[u8]) -> Result<Fingerprint, EnrolError> {
    Authority::key_in(request).map_err(EnrolError::Request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Author;
    use crate::fleet::token::TokenTerms;
    use fallow_store::SledStore;
    use fallow_tls::HostKey;

    struct World {
        _dir: tempfile::TempDir,
        store: SledStore,
        issuer: Issuer,
    }

    fn at(seconds: i64) -> Instant {
        Instant::EPOCH + Duration::from_secs(seconds)
    }

    impl World {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let store = SledStore::open(dir.path()).unwrap();
            let (authority, ..) = Authority::create(at(0)).unwrap();
            Self { _dir: dir, store, issuer: Issuer { authority, life: Duration::from_hours(1) } }
        }

        fn token(&self, uses: u32) -> String {
            let terms = TokenTerms { uses, life: Duration::from_secs(100), ..TokenTerms::default() };
            token::create(&self.store, &Author::default(), at(0), 1, &terms).unwrap().remove(0)
        }

        fn ask(&self, seconds: i64, token: &str, key: &HostKey) -> Result<Enrolled, EnrolError> {
            let asked = Asked {
                token: token.to_owned(),
                hostname: "host".into(),
                certificate_request: key.certificate_request().unwrap(),
                from: String::new(),
            };
            enrol(&self.store, &self.issuer, at(seconds), &asked)
        }
    }

    fn key() -> HostKey {
        HostKey::generate().unwrap()
    }

    #[test]
    fn r6_10_a_token_enrols_as_many_hosts_as_it_has_uses_and_is_nowhere_in_the_store() {
        let world = World::new();
        let token = world.token(2);
        let ids = [key(), key()].map(|key| world.ask(1, &token, &key).unwrap().id);
        assert_ne!(ids[0], ids[1]);
        assert!(matches!(world.ask(1, &token, &key()), Err(EnrolError::Spent(2))));
        assert!(matches!(world.ask(1, "guess", &key()), Err(EnrolError::Unknown)));
        for (key, value) in world.store.scan_prefix(b"").unwrap() {
            assert!(!String::from_utf8_lossy(&[key, value].concat()).contains(&token));
        }
    }

    #[test]
    fn r6_10_whoever_asks_again_with_the_same_key_is_the_same_host_and_spends_no_other_use() {
        let world = World::new();
        let (token, mine) = (world.token(2), key());
        let first = world.ask(1, &token, &mine).unwrap();
        // Also after its end, and after the last use.
        world.ask(2, &token, &key()).unwrap();
        let again = world.ask(1_000, &token, &mine).unwrap();
        assert_eq!((&again.id, &again.record), (&first.id, &first.record));
        assert_eq!(again.issued.says.key, mine.fingerprint());
        // Nor is it told of in the log once more.
        assert!(first.is_new && !again.is_new);
        assert_eq!(token::list(&world.store).unwrap()[0].used, 2);
    }

    #[test]
    fn r6_10_a_token_that_has_expired_or_was_revoked_enrols_nobody_and_says_so() {
        let world = World::new();
        let token = world.token(5);
        assert!(matches!(world.ask(100, &token, &key()), Err(EnrolError::Expired)));
        world.ask(99, &token, &key()).unwrap();
        token::revoke(&world.store, &Author::default(), &token::list(&world.store).unwrap()[0].id).unwrap();
        assert!(matches!(world.ask(1, &token, &key()), Err(EnrolError::RevokedToken)));
    }

    #[test]
    fn r6_10_a_request_that_proves_no_key_spends_nothing() {
        let world = World::new();
        let token = world.token(1);
        let asked = |certificate_request| Asked {
            token: token.clone(),
            hostname: "h".into(),
            certificate_request,
            from: String::new(),
        };
        for bad in [vec![], vec![0x30; 64]] {
            let refused = enrol(&world.store, &world.issuer, at(1), &asked(bad));
            assert!(matches!(refused, Err(EnrolError::Request(_))));
        }
        world.ask(1, &token, &key()).unwrap();
    }

    #[test]
    fn r6_10_many_hosts_that_ask_at_once_with_one_token_are_all_enrolled() {
        let world = World::new();
        let token = world.token(20);
        std::thread::scope(|scope| {
            let asking: Vec<_> =
                (0..20).map(|_| scope.spawn(|| world.ask(1, &token, &key()).unwrap().id)).collect();
            let ids: std::collections::BTreeSet<_> =
                asking.into_iter().map(|thread| thread.join().unwrap()).collect();
            assert_eq!(ids.len(), 20);
        });
        assert!(matches!(world.ask(1, &token, &key()), Err(EnrolError::Spent(20))));
    }

    #[test]
    fn an_agent_of_an_earlier_version_is_read_and_has_no_key() {
        let before = Format { name: "agent", version: 1, migrate: fallow_store::no_migration };
        let bytes = before.wrap(br#"{"secret_hash":"ab","enrolled_at":5,"hostname":"h"}"#);
        let read: AgentRecord = AGENT.read(b"k", &bytes).unwrap();
        assert_eq!((read.key.as_str(), read.hostname.as_str()), ("", "h"));
    }
}
