//! Where the fleet's records lie in the store, and in which format.
//!
//! ```text
//! fleet/token/HASH        an enrolment token: its terms, how often it was used
//! fleet/use/HASH/KEY      the agent that enrolled with this token and this key
//! fleet/copy/ID/KEY       the agent that a copy of this one became with this key
//! fleet/agent/ID          an agent: its key, when it was enrolled, whether it was revoked
//! fleet/position/ID       how far its stream was applied: epoch and sequence number
//! fleet/entry/ID/KEY      an entry of its state ([`super::stored`])
//! fleet/labels/ID         the labels that operators gave an agent
//! fleet/given/ID          the versions of the documents that an agent was given
//! fleet/past/ID/URL       what a project had of it in what is no longer among its entries
//! document/VERSION        all documents of a version, with who made it, when and why
//! ```
//! An agent's id holds no slash, so the parts cannot run into each other.

use fallow_domain::agent_state::EntryKey;
use fallow_domain::{AgentId, MasterUrl};
use fallow_proto::fleet::entry_key;
use fallow_store::{Format, no_migration};
use fallow_tls::Fingerprint;

pub(crate) const TOKEN: Format = super::token::FORMAT;
pub(crate) const TOKEN_USE: Format = Format { name: "use of a token", version: 1, migrate: no_migration };
pub(crate) const AGENT: Format = super::enrol::AGENT;
pub(crate) const POSITION: Format =
    Format { name: "position of a stream", version: 1, migrate: no_migration };
pub(crate) const PAST: Format = Format { name: "past of an agent", version: 1, migrate: no_migration };
pub(crate) const LABELS: Format = Format { name: "labels of an agent", version: 1, migrate: no_migration };
pub(crate) const GIVEN: Format =
    Format { name: "versions that an agent was given", version: 1, migrate: no_migration };

pub(crate) const TOKENS: &[u8] = b"fleet/token/";
pub(crate) const AGENTS: &[u8] = b"fleet/agent/";
pub(crate) const POSITIONS: &[u8] = b"fleet/position/";
pub(crate) const ENTRIES: &[u8] = b"fleet/entry/";
pub(crate) const LABELLED: &[u8] = b"fleet/labels/";
pub(crate) const GIVENS: &[u8] = b"fleet/given/";
pub(crate) const PASTS: &[u8] = b"fleet/past/";

pub(crate) fn token(hash: &str) -> Vec<u8> {
    [TOKENS, hash.as_bytes()].concat()
}

pub(crate) fn token_use(hash: &str, key: &Fingerprint) -> Vec<u8> {
    format!("fleet/use/{hash}/{key}").into_bytes()
}

pub(crate) fn copy_use(first: &AgentId, key: &Fingerprint) -> Vec<u8> {
    format!("fleet/copy/{}/{key}", first.0).into_bytes()
}

pub(crate) fn agent(id: &AgentId) -> Vec<u8> {
    [AGENTS, id.0.as_bytes()].concat()
}

pub(crate) fn labels(id: &AgentId) -> Vec<u8> {
    [LABELLED, id.0.as_bytes()].concat()
}

pub(crate) fn given(id: &AgentId) -> Vec<u8> {
    [GIVENS, id.0.as_bytes()].concat()
}

pub(crate) fn position(id: &AgentId) -> Vec<u8> {
    [POSITIONS, id.0.as_bytes()].concat()
}

pub(crate) fn entry(id: &AgentId, key: &EntryKey) -> Vec<u8> {
    [ENTRIES, id.0.as_bytes(), b"/", entry_key::to_wire(key).as_bytes()].concat()
}

pub(crate) fn past(id: &AgentId, url: &MasterUrl) -> Vec<u8> {
    [PASTS, id.0.as_bytes(), b"/", url.as_str().as_bytes()].concat()
}

/// What follows a prefix: an agent's id and, behind a slash, the rest.
pub(crate) fn split<'a>(prefix: &[u8], key: &'a [u8]) -> Option<(AgentId, &'a str)> {
    let text = std::str::from_utf8(key.get(prefix.len()..)?).ok()?;
    let (id, rest) = text.split_once('/').unwrap_or((text, ""));
    Some((AgentId(id.to_owned()), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_key_gives_back_its_agent_and_name() {
        let id = AgentId("01J".into());
        let project = MasterUrl::parse("http://a.b/c/").unwrap();
        let key = entry(&id, &EntryKey::Task { project, name: "job_1".into() });
        assert_eq!(split(ENTRIES, &key), Some((id.clone(), "task/http://a.b/c//job_1")));
        assert_eq!(split(AGENTS, &agent(&id)), Some((id, "")));
    }
}
