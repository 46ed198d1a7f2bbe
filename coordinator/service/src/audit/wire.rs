//! Entries as operators' tools are told them, and back, so that a tool follows the chain by itself.

use fallow_domain::{AgentId, Instant};
use fallow_proto::operator::v1 as wire;

use super::chain::{Entry, EntryHash, Head};
use super::record::{Action, Actor, Outcome, Record};

/// An entry that came and is none.
#[derive(Debug, thiserror::Error)]
#[error("entry {sequence} of the audit log: {problem}")]
pub struct BadEntry {
    /// The number that it says.
    pub sequence: u64,
    /// What is wrong.
    pub problem: String,
}

/// Where a call comes from: the address at the other end of its connection; empty where that is not known.
#[must_use]
pub fn address_of<T>(request: &tonic::Request<T>) -> String {
    request.remote_addr().map(|address| address.to_string()).unwrap_or_default()
}

/// An entry as it is told.
#[must_use]
pub fn to_wire(entry: Entry) -> wire::AuditEntry {
    let Entry { sequence, at, unrecorded, record, hash } = entry;
    let Record { actor, from, action, object, before, after, message, outcome } = record;
    let (kind, actor) = match actor {
        Actor::Operator(name) => (wire::AuditActor::Operator, name),
        Actor::Named(name) => (wire::AuditActor::NamedOperator, name),
        Actor::Coordinator => (wire::AuditActor::Coordinator, String::new()),
        Actor::Agent(id) => (wire::AuditActor::Agent, id.0),
        Actor::Stranger => (wire::AuditActor::Stranger, String::new()),
    };
    let (refused, reason) = match outcome {
        Outcome::Done => (false, String::new()),
        Outcome::Refused(why) => (true, why),
    };
    wire::AuditEntry {
        sequence,
        at_micros: at.as_micros(),
        actor_kind: kind.into(),
        actor,
        from,
        action: action.words().to_owned(),
        object,
        before,
        after,
        message,
        refused,
        reason,
        unrecorded,
        hash: hash.to_hex(),
    }
}

/// An entry that was told.
///
/// # Errors
/// [`BadEntry`], also for what only a newer coordinator knows.
pub fn from_wire(entry: wire::AuditEntry) -> Result<Entry, BadEntry> {
    let sequence = entry.sequence;
    let bad = |problem: String| BadEntry { sequence, problem };
    let actor = match entry.actor_kind() {
        wire::AuditActor::Operator => Actor::Operator(entry.actor),
        wire::AuditActor::NamedOperator => Actor::Named(entry.actor),
        wire::AuditActor::Coordinator => Actor::Coordinator,
        wire::AuditActor::Agent => Actor::Agent(AgentId(entry.actor)),
        wire::AuditActor::Stranger => Actor::Stranger,
        wire::AuditActor::Unspecified => {
            return Err(bad("it says of nobody that he did it: update this tool".to_owned()));
        }
    };
    let action = Action::from_words(&entry.action)
        .ok_or_else(|| bad(format!("the action {:?} is not known here: update this tool", entry.action)))?;
    let hash = EntryHash::from_hex(&entry.hash)
        .ok_or_else(|| bad("its hash is not 64 hexadecimal digits".to_owned()))?;
    let record = Record {
        actor,
        from: entry.from,
        action,
        object: entry.object,
        before: entry.before,
        after: entry.after,
        message: entry.message,
        outcome: if entry.refused { Outcome::Refused(entry.reason) } else { Outcome::Done },
    };
    let at = Instant::from_micros(entry.at_micros);
    Ok(Entry { sequence, at, unrecorded: entry.unrecorded, record, hash })
}

/// The end of the log that came with a page.
///
/// # Errors
/// [`BadEntry`] for a hash that is none.
pub fn head(reply: &wire::ListAuditReply) -> Result<Head, BadEntry> {
    let sequence = reply.head_sequence;
    let hash = EntryHash::from_hex(&reply.head_hash);
    let problem = "the hash of the end is not 64 hexadecimal digits".to_owned();
    hash.map(|hash| Head { sequence, hash }).ok_or(BadEntry { sequence, problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_comes_back_as_it_was_told_whoever_did_what() {
        let actors = [
            Actor::Operator("ann@lab".into()),
            Actor::Named("ann".into()),
            Actor::Coordinator,
            Actor::Agent(AgentId("01J".into())),
            Actor::Stranger,
        ];
        for actor in actors {
            for &action in Action::ALL {
                let record = Record::new(actor.clone(), "10.0.0.1:5", action, "pc-1").changed("a", "b");
                for record in [record.clone().because("why"), record.refused("no")] {
                    let entry = Head::default().followed_by(Instant::from_micros(9), 3, record);
                    assert_eq!(from_wire(to_wire(entry.clone())).unwrap(), entry);
                }
            }
        }
    }

    #[test]
    fn an_entry_that_is_not_understood_is_named() {
        let record = Record::new(Actor::Stranger, "", Action::Enrolled, "");
        let told = to_wire(Head::default().followed_by(Instant::EPOCH, 0, record));
        for (bad, said) in [
            (wire::AuditEntry { action: "danced".into(), ..told.clone() }, "\"danced\" is not known here"),
            (wire::AuditEntry { actor_kind: 99, ..told.clone() }, "update this tool"),
            (wire::AuditEntry { hash: "12".into(), ..told }, "64 hexadecimal digits"),
        ] {
            let text = from_wire(bad).unwrap_err().to_string();
            assert!(text.starts_with("entry 1 of the audit log") && text.contains(said), "{text}");
        }
    }
}
