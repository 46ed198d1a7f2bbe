//! Enrolment tokens (R6.10): what an administrator hands out so that machines can join the fleet.
//!
//! A token has a number of uses, an end, and labels for the hosts that enrol with it. Its secret of 256 bits
//! is told once, and only the hash is stored. A use is spent in the batch that makes the agent
//! ([`super::enrol`]), and counted for each key, so that an agent that asks once more, as when the answer was
//! lost, spends no other.

use fallow_domain::{AgentId, Duration, Instant, Labels};
use fallow_store::{Batch, BatchResult, Format, Store, StoreError};
use serde::{Deserialize, Serialize};

use super::limits::{TOKEN_LIFE, TOKEN_USES, TOKENS};
use super::{keys, labels};
use crate::audit::{self, Action};
use crate::document::Author;
use crate::secret::{self, NoRandomness, SecretHash};

/// No tokens are made, or none is ended.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// Too many tokens or uses, or too long a life.
    #[error("{0}")]
    Absurd(String),
    /// No token of this id.
    #[error("there is no enrolment token {0:?}: `fallow tokens list` shows their ids")]
    Unknown(String),
    /// No secret could be made.
    #[error(transparent)]
    Random(#[from] NoRandomness),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a new token permits.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenTerms {
    /// How many agents may enrol by it.
    pub uses: u32,
    /// How long it is good.
    pub life: Duration,
    /// Labels of the hosts that enrol by it.
    pub labels: Labels,
}

impl Default for TokenTerms {
    /// One host, within a week.
    fn default() -> Self {
        Self { uses: 1, life: Duration::from_hours(7 * 24), labels: Labels::default() }
    }
}

/// A token as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct TokenRecord {
    pub(super) made_at: Instant,
    pub(super) expires_at: Instant,
    pub(super) uses: u32,
    /// By how many agents it was used.
    pub(super) used: u32,
    pub(super) labels: Labels,
    pub(super) revoked: bool,
}

/// A token as it is listed.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// The first digits of its secret's hash.
    pub id: String,
    /// When it was made.
    pub made_at: Instant,
    /// From then on nobody enrols by it.
    pub expires_at: Instant,
    /// How many agents may enrol by it.
    pub uses: u32,
    /// How many have.
    pub used: u32,
    /// Labels of the hosts that enrol by it.
    pub labels: Labels,
    /// An operator ended it.
    pub revoked: bool,
}

/// Ids of new tokens that the audit log names; of others it has the number.
const IDS_SAID: usize = 16;
/// Tokens that are listed: an answer has a size.
const LISTED: usize = 5_000;
/// Digits of an id: enough to tell millions of tokens apart.
const ID: usize = 12;

/// Makes `count` tokens of the same terms and gives their secrets.
///
/// # Errors
/// [`TokenError`]; no token is made then.
pub fn create(
    store: &dyn Store,
    by: &Author,
    now: Instant,
    count: u32,
    terms: &TokenTerms,
) -> Result<Vec<String>, TokenError> {
    let within = |what: &str, given: u32, most: u32| match (1..=most).contains(&given) {
        true => Ok(()),
        false => Err(TokenError::Absurd(format!("{given} {what}: ask for 1 to {most}"))),
    };
    within("tokens at once", count, TOKENS)?;
    within("uses of a token", terms.uses, TOKEN_USES)?;
    if !terms.life.is_positive() || terms.life > TOKEN_LIFE {
        let most = TOKEN_LIFE.as_days_f64();
        return Err(TokenError::Absurd(format!(
            "a token is good for more than no time, and for {most} days at most"
        )));
    }
    let mut batch = Batch::new();
    let mut secrets = Vec::with_capacity(count as usize);
    let mut ids = Vec::new();
    for _ in 0..count {
        let secret = secret::generate()?;
        let record = TokenRecord {
            made_at: now,
            expires_at: now + terms.life,
            uses: terms.uses,
            used: 0,
            labels: terms.labels.clone(),
            revoked: false,
        };
        let key = keys::token(&SecretHash::of(&secret).to_hex());
        if ids.len() < IDS_SAID {
            ids.push(id_of(&key));
        }
        batch.add_put(key.clone(), keys::TOKEN.write(&key, &record)?);
        secrets.push(secret);
    }
    let others = secrets.len() - ids.len();
    let others = if others == 0 { String::new() } else { format!(" and {others} others") };
    let record = by.record(Action::TokensCreated, &format!("{}{others}", ids.join(" ")));
    let terms = format!("uses {}, life {}, labels {}", terms.uses, terms.life, labels::said(&terms.labels));
    let _ = audit::apply(store, &batch, &record.changed("", &terms))?;
    Ok(secrets)
}

/// Whether a token enrols anybody now.
///
/// # Errors
/// What the store says.
pub(super) fn is_open(store: &dyn Store, id: &str, now: Instant) -> Result<bool, StoreError> {
    if id.is_empty() {
        return Ok(false);
    }
    let found = store.scan_prefix(&keys::token(id))?;
    let records = found.iter().map(|(key, value)| keys::TOKEN.read::<TokenRecord>(key, value));
    let mut open = false;
    for record in records {
        let record = record?;
        open |= !record.revoked && record.used < record.uses && now < record.expires_at;
    }
    Ok(open)
}

/// The newest tokens, some thousands at most, the newest first.
///
/// # Errors
/// What the store says.
pub fn list(store: &dyn Store) -> Result<Vec<Token>, StoreError> {
    let mut tokens = Vec::new();
    super::each(store, keys::TOKENS, |key, value| {
        let record: TokenRecord = keys::TOKEN.read(key, value)?;
        tokens.push(Token {
            id: id_of(key),
            made_at: record.made_at,
            expires_at: record.expires_at,
            uses: record.uses,
            used: record.used,
            labels: record.labels,
            revoked: record.revoked,
        });
        Ok(())
    })?;
    tokens.sort_by(|one, other| (other.made_at, &other.id).cmp(&(one.made_at, &one.id)));
    tokens.truncate(LISTED);
    Ok(tokens)
}

/// The id of the token under this key.
pub(super) fn id_of(key: &[u8]) -> String {
    String::from_utf8_lossy(key.get(keys::TOKENS.len()..).unwrap_or_default()).chars().take(ID).collect()
}

/// Ends a token.
///
/// # Errors
/// [`TokenError`].
pub fn revoke(store: &dyn Store, by: &Author, id: &str) -> Result<(), TokenError> {
    let unknown = || TokenError::Unknown(id.to_owned());
    if id.len() != ID || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(unknown());
    }
    loop {
        let mut found = store.scan_prefix(&keys::token(id))?;
        let (key, stored) = found.pop().ok_or_else(unknown)?;
        let record: TokenRecord = keys::TOKEN.read(&key, &stored)?;
        let revoked = keys::TOKEN.write(&key, &TokenRecord { revoked: true, ..record })?;
        let batch = Batch::new().require_value(key.clone(), stored).put(key, revoked);
        // An agent that enrolled meanwhile changed the record.
        let record = by.record(Action::TokenRevoked, id);
        if let BatchResult::Applied { .. } = audit::apply(store, &batch, &record)? {
            return Ok(());
        }
    }
}

/// How tokens are stored. Version 1 had one use each and no end.
pub(super) const FORMAT: Format = Format { name: "enrolment token", version: 2, migrate };

fn migrate(found: u16, bytes: &[u8]) -> Result<Vec<u8>, String> {
    #[derive(Deserialize)]
    struct Before {
        made_at: Instant,
        spent_by: Option<AgentId>,
    }
    if found != 1 {
        return Err(format!("version {found} was never written"));
    }
    let before: Before = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let record = TokenRecord {
        made_at: before.made_at,
        expires_at: before.made_at + TokenTerms::default().life,
        uses: 1,
        used: u32::from(before.spent_by.is_some()),
        labels: Labels::default(),
        revoked: false,
    };
    serde_json::to_vec(&record).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fallow_store::{SledStore, no_migration};

    fn store() -> (tempfile::TempDir, SledStore) {
        let dir = tempfile::tempdir().unwrap();
        let store = SledStore::open(dir.path()).unwrap();
        (dir, store)
    }

    #[test]
    fn r6_10_absurd_tokens_are_refused() {
        let (_dir, store) = store();
        let terms = TokenTerms::default();
        let long = TokenTerms { life: TOKEN_LIFE + Duration::from_secs(1), ..terms.clone() };
        let none = TokenTerms { life: Duration::ZERO, ..terms.clone() };
        let useless = TokenTerms { uses: 0, ..terms.clone() };
        for (count, terms) in [(0, &terms), (TOKENS + 1, &terms), (1, &long), (1, &none), (1, &useless)] {
            assert!(matches!(
                create(&store, &Author::default(), Instant::EPOCH, count, terms),
                Err(TokenError::Absurd(_))
            ));
        }
        assert!(list(&store).unwrap().is_empty());
    }

    #[test]
    fn r6_10_tokens_are_listed_without_their_secrets_and_ended_by_their_ids() {
        let (_dir, store) = store();
        let terms =
            TokenTerms { uses: 400, labels: Labels::read(["room=12"]).unwrap(), ..TokenTerms::default() };
        let secrets = create(&store, &Author::default(), Instant::EPOCH, 2, &terms).unwrap();
        let tokens = list(&store).unwrap();
        assert_eq!((tokens.len(), tokens[0].uses, &tokens[0].labels), (2, 400, &terms.labels));
        assert!(!secrets.iter().any(|secret| secret.contains(&tokens[0].id)));
        revoke(&store, &Author::default(), &tokens[0].id).unwrap();
        let after = list(&store).unwrap();
        assert_eq!((after[0].revoked, after[1].revoked), (true, false));
        for unknown in ["", "abc", "000000000000", "../../../../"] {
            assert!(
                matches!(revoke(&store, &Author::default(), unknown), Err(TokenError::Unknown(_))),
                "{unknown}"
            );
        }
    }

    #[test]
    fn a_token_of_an_earlier_version_is_good_for_what_it_was_good_for() {
        let before = Format { name: "enrolment token", version: 1, migrate: no_migration };
        for (spent_by, used) in [("null", 0), ("\"a\"", 1)] {
            let bytes = before.wrap(format!(r#"{{"made_at":5,"spent_by":{spent_by}}}"#).as_bytes());
            let read: TokenRecord = FORMAT.read(b"k", &bytes).unwrap();
            assert_eq!((read.uses, read.used, read.revoked), (1, used, false));
        }
    }
}
