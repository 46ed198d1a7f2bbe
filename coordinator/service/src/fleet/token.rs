//! Enrolment: a token that works once is traded for an identity (R6.10).
//!
//! Tokens and identities are secrets of 256 bits; only their hashes are stored. A token is spent in the same
//! batch that makes the agent, under the precondition that it was open: of two that come at once, one is
//! refused.

use fallow_domain::{AgentId, Instant, Labels};
use fallow_store::{Batch, BatchResult, Store, StoreError};
use serde::{Deserialize, Serialize};

use super::keys;
use super::limits::TOKENS;
use crate::secret::{self, NoRandomness, SecretHash};
use fallow_proto::fleet::limits::TEXT_BYTES;

/// An agent is not enrolled, or no tokens are made.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// No such token was ever made here.
    #[error("this enrolment token is not one of this coordinator's: make one with `fallow tokens create`")]
    Unknown,
    /// It was used before.
    #[error(
        "this enrolment token was used before, and each works once: make another with `fallow tokens create`"
    )]
    Spent,
    /// Too long a name, or too many tokens.
    #[error("{0}")]
    Absurd(String),
    /// No secret could be made.
    #[error(transparent)]
    Random(#[from] NoRandomness),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Token {
    made_at: Instant,
    /// The agent that it made.
    spent_by: Option<AgentId>,
}

/// An agent as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentRecord {
    /// Hash of its secret, hexadecimal.
    pub secret_hash: String,
    /// When it was enrolled.
    pub enrolled_at: Instant,
    /// What it called its host then.
    pub hostname: String,
    /// The labels that it was enrolled with (R6.4).
    #[serde(default)]
    pub labels: Labels,
}

/// A new identity. The secret is told once and not kept.
#[derive(Debug)]
pub struct Identity {
    /// The agent's id.
    pub id: AgentId,
    /// Its secret.
    pub secret: String,
    /// Its record.
    pub record: AgentRecord,
}

/// Makes `count` tokens.
///
/// # Errors
/// [`EnrolError`]; no token is made then.
pub fn create(store: &dyn Store, now: Instant, count: u32) -> Result<Vec<String>, EnrolError> {
    if !(1..=TOKENS).contains(&count) {
        return Err(EnrolError::Absurd(format!("{count} tokens: ask for 1 to {TOKENS} at once")));
    }
    let mut batch = Batch::new();
    let mut tokens = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let token = secret::generate()?;
        let record = Token { made_at: now, spent_by: None };
        let key = keys::token(&SecretHash::of(&token).to_hex());
        let value = keys::TOKEN.write(&key, &record)?;
        batch.add_put(key, value);
        tokens.push(token);
    }
    let _ = store.apply_durable(batch)?;
    Ok(tokens)
}

/// Trades `token` for an identity.
///
/// # Errors
/// [`EnrolError`]; the token is as good as before then.
pub fn enrol(store: &dyn Store, now: Instant, token: &str, hostname: &str) -> Result<Identity, EnrolError> {
    if hostname.len() > TEXT_BYTES || token.len() > TEXT_BYTES || hostname.chars().any(char::is_control) {
        return Err(EnrolError::Absurd(format!(
            "a token and a host name have up to {TEXT_BYTES} printable bytes"
        )));
    }
    let token_key = keys::token(&SecretHash::of(token).to_hex());
    let stored = store.get(&token_key)?.ok_or(EnrolError::Unknown)?;
    let open: Token = keys::TOKEN.read(&token_key, &stored)?;
    if open.spent_by.is_some() {
        return Err(EnrolError::Spent);
    }
    let id = AgentId(ulid::Ulid::new().to_string());
    let secret = secret::generate()?;
    let secret_hash = SecretHash::of(&secret).to_hex();
    let record = AgentRecord {
        secret_hash,
        enrolled_at: now,
        hostname: hostname.to_owned(),
        labels: Labels::default(),
    };
    let spent = Token { spent_by: Some(id.clone()), ..open };
    let agent_key = keys::agent(&id);
    let (spent, agent) = (keys::TOKEN.write(&token_key, &spent)?, keys::AGENT.write(&agent_key, &record)?);
    let batch =
        Batch::new().require_value(token_key.clone(), stored).put(token_key, spent).put(agent_key, agent);
    match store.apply_durable(batch)? {
        BatchResult::Applied { .. } => Ok(Identity { id, secret, record }),
        BatchResult::Conflict { .. } => Err(EnrolError::Spent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fallow_store::SledStore;

    /// Shows R6.10.
    #[test]
    fn a_token_works_once_and_is_nowhere_in_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let store = SledStore::open(dir.path()).unwrap();
        let tokens = create(&store, Instant::EPOCH, 2).unwrap();
        let identity = enrol(&store, Instant::EPOCH, &tokens[0], "host").unwrap();
        assert!(matches!(enrol(&store, Instant::EPOCH, &tokens[0], "host"), Err(EnrolError::Spent)));
        assert!(matches!(enrol(&store, Instant::EPOCH, "guess", "host"), Err(EnrolError::Unknown)));
        assert!(enrol(&store, Instant::EPOCH, &tokens[1], "host").is_ok());
        for (key, value) in store.scan_prefix(b"").unwrap() {
            let text = String::from_utf8_lossy(&[key, value].concat()).into_owned();
            assert!(!tokens.iter().chain([&identity.secret]).any(|secret| text.contains(secret)), "{text}");
        }
    }

    #[test]
    fn an_absurd_number_of_tokens_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let store = SledStore::open(dir.path()).unwrap();
        for count in [0, TOKENS + 1] {
            assert!(matches!(create(&store, Instant::EPOCH, count), Err(EnrolError::Absurd(_))));
        }
    }
}
