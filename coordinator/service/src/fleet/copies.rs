//! Copies of a host: how one that has been told that it is a copy becomes a host of its own (R6.10).
//!
//! Whoever is told so ([`super::seat`]) gets a ticket with it, and asks with the ticket and a new key. The
//! key is what the new host is known by, so whoever asks again with it is told the same host, also when the
//! ticket has been spent or forgotten. The new host has the labels that the first one was enrolled with, and
//! none that operators gave that machine since.
//!
//! Bounds: a ticket is good for one host and some minutes, and is in memory only: a copy that comes back
//! after a restart of the coordinator is told again. A host, its copies and theirs become so many hosts in an
//! hour, so that a certificate that was stolen does not make hosts without end; a copy beyond that goes on as
//! the copy that it is, without a link, and tries again. Where many ask for tickets, those from one place
//! (IPv4 address, or network of IPv6) wait for each other, so that one that asks without end has none of
//! those that others got; and few of them are told of in the log. Not told apart: two processes that came
//! from one running machine with its memory (a snapshot that was resumed twice) have drawn one number, and
//! take the link from each other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};

use fallow_daemon::{causes, lock};
use fallow_domain::{AgentId, Duration, Instant};
use fallow_proto::fleet::limits::TEXT_BYTES;
use fallow_store::{Batch, BatchResult, StoreError};
use fallow_telemetry::RateLimit;
use fallow_tls::{Authority, Peer};
use fallow_work_server::connections::Source;
use serde::{Deserialize, Serialize};
use tonic::Status;

use super::enrol::{self, AgentRecord, EnrolError, Enrolled};
use super::limits::{COPIES, COPIES_AN_HOUR, TICKET_KEPT, TICKET_LIFE, TICKETS};
use super::seat::Process;
use super::{Agent, Fleet, keys};
use crate::audit::{self, Action, Actor, Record};
use crate::secret::{self, NoRandomness, SecretHash};

static NOT_STORED: RateLimit = RateLimit::new();

/// Whose copy a host was before it became one of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyOf {
    /// The agent whose identity it had.
    pub agent: AgentId,
    /// From where the two were connected, and what their machines' ids say; in words.
    pub note: String,
}

/// Tickets of one host's copies.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    /// By the copies' boots: a copy that asks again has one ticket.
    by_boot: BTreeMap<Vec<u8>, Ticket>,
}

#[derive(Clone, Debug)]
struct Ticket {
    hash: SecretHash,
    until: Instant,
    note: String,
    /// Where it is; none where that is not known.
    source: Option<Source>,
}

/// What came of a wish for a ticket.
#[derive(Debug, PartialEq, Eq)]
enum Given {
    /// The copy has its first one.
    First,
    /// It had one, in whose place this one is.
    Again,
    /// There are too many.
    None,
}

impl Tickets {
    /// Gives a copy a ticket in place of any that it had.
    fn give(&mut self, boot: &[u8], ticket: Ticket, now: Instant) -> Given {
        self.by_boot.retain(|_, held| now < held.until);
        if let Some(held) = self.by_boot.get_mut(boot) {
            *held = ticket;
            return Given::Again;
        }
        if self.by_boot.len() >= TICKETS {
            let Some(boot) = self.gives_way(ticket.source, now) else { return Given::None };
            self.by_boot.remove(&boot);
        }
        self.by_boot.insert(boot.to_owned(), ticket);
        Given::First
    }

    /// Whose ticket gives way to one of a newcomer from there. Tickets from where most come from do: the
    /// newest, if the newcomer is from elsewhere; else the oldest, if there was time to use it.
    fn gives_way(&self, newcomer: Option<Source>, now: Instant) -> Option<Vec<u8>> {
        let mut counts: BTreeMap<_, usize> = BTreeMap::new();
        self.by_boot.values().for_each(|held| *counts.entry(held.source).or_default() += 1);
        let beside = counts.get(&newcomer).copied().unwrap_or_default();
        let (most, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        let theirs = self.by_boot.iter().filter(|(_, held)| held.source == most);
        let gone = if beside + 1 < count {
            theirs.max_by_key(|(_, held)| held.until)
        } else {
            let had_time = |held: &Ticket| held.until <= now + TICKET_LIFE - TICKET_KEPT;
            theirs.filter(|(_, held)| had_time(held)).min_by_key(|(_, held)| held.until)
        };
        gone.map(|(boot, _)| boot.clone())
    }

    fn find(&self, secret: &str, now: Instant) -> Option<&Ticket> {
        self.by_boot.values().find(|held| now < held.until && held.hash.admits(secret))
    }

    fn spend(&mut self, secret: &str) {
        self.by_boot.retain(|_, held| !held.hash.admits(secret));
    }
}

/// What a copy asks with.
#[derive(Debug)]
pub(super) struct Parting {
    pub(super) ticket: String,
    pub(super) hostname: String,
    pub(super) certificate_request: Vec<u8>,
    /// The address at the other end; empty for none.
    pub(super) from: String,
}

/// A copy does not become a host of its own.
#[derive(Debug, thiserror::Error)]
pub(super) enum CopyError {
    /// The certificate is no host's, or means nothing any more.
    #[error("{}", .0.message())]
    Caller(Status),
    /// It was not told that it is a copy, or too long ago.
    #[error(
        "only who was just told on its link that it is a copy becomes a host of its own: its agent connects again and is told"
    )]
    Ticket,
    /// Too many did so.
    #[error(
        "{COPIES_AN_HOUR} copies of this host became hosts of their own within an hour: its agent tries again later; or \
         start it in another, empty directory with a new token"
    )]
    TooMany,
    /// There are too many.
    #[error(
        "there are {COPIES} copies of this host: revoke those that should not be there (`fallow hosts revoke`), or start \
         the agent in another, empty directory with a new token"
    )]
    TooManyInAll,
    /// The same key.
    #[error("a copy becomes a host of its own with a new key: this one is the first host's")]
    OldKey,
    /// As for whoever enrols.
    #[error(transparent)]
    Enrol(#[from] EnrolError),
}

/// A copy is not told that it is one.
#[derive(Debug, thiserror::Error)]
pub(super) enum TicketError {
    /// There is no secret to be had.
    #[error(transparent)]
    Randomness(#[from] NoRandomness),
    /// Too many ask.
    #[error(
        "{TICKETS} copies of this host were just told that they are copies: this one comes again and is told then"
    )]
    TooMany,
}

impl From<StoreError> for CopyError {
    fn from(error: StoreError) -> Self {
        Self::Enrol(error.into())
    }
}

impl From<CopyError> for Status {
    fn from(error: CopyError) -> Self {
        match error {
            CopyError::Caller(status) => status,
            CopyError::Ticket | CopyError::Enrol(EnrolError::TakenOut) => {
                Self::permission_denied(error.to_string())
            }
            CopyError::TooMany | CopyError::TooManyInAll => Self::resource_exhausted(error.to_string()),
            CopyError::OldKey | CopyError::Enrol(EnrolError::Absurd(_) | EnrolError::Request(_)) => {
                Self::invalid_argument(causes::line(&error))
            }
            CopyError::Enrol(_) => {
                if let Some(times) = NOT_STORED.allow() {
                    tracing::error!(error = %error, times, "a new host cannot be stored");
                }
                Self::unavailable(error.to_string())
            }
        }
    }
}

impl Agent {
    /// Tells a process with this host's identity that it is a copy: gives it a ticket. The first time people
    /// are told, if they were not just told of others.
    ///
    /// # Errors
    /// [`TicketError`].
    pub(super) fn found_copy(
        &self,
        copy: &Process,
        first: &Process,
        now: Instant,
    ) -> Result<String, TicketError> {
        let secret = secret::generate()?;
        let place = copy.machine_beside(first);
        let note = format!("from {}, beside the first one from {}, {place}", copy.from, first.from);
        let source = copy.from.parse().ok().map(|address: SocketAddr| Source::of(address.ip()));
        let ticket = Ticket { hash: SecretHash::of(&secret), until: now + TICKET_LIFE, note, source };
        let given = lock(&self.tickets).give(&copy.boot, ticket, now);
        if given == Given::None {
            return Err(TicketError::TooMany);
        }
        if given == Given::First
            && let Some(times) = self.copies_told.allow()
        {
            tracing::warn!(
                agent = self.id.0,
                host = self.hostname(),
                first = first.from,
                copy = copy.from,
                place,
                times,
                "two live processes have one host's identity, as of a disk image that was copied: the first one goes on, the \
                 other is told to become a host of its own"
            );
        } else {
            tracing::debug!(agent = self.id.0, copy = copy.from, "a copy is told again that it is one");
        }
        Ok(secret)
    }
}

impl Fleet {
    /// Makes a copy a host of its own, for good.
    pub(super) fn separate(
        &self,
        peer: Option<&Arc<Peer>>,
        asked: &Parting,
        now: Instant,
    ) -> Result<Enrolled, CopyError> {
        let Parting { ticket, hostname, certificate_request, from } = asked;
        if hostname.len() > TEXT_BYTES || hostname.chars().any(char::is_control) {
            let why = format!("a host name has up to {TEXT_BYTES} printable bytes");
            return Err(EnrolError::Absurd(why).into());
        }
        // It is looked through for each ticket.
        if ticket.len() > TEXT_BYTES {
            return Err(CopyError::Ticket);
        }
        // Before others wait for this.
        let key = Authority::key_in(certificate_request).map_err(EnrolError::Request)?;
        // Nobody is taken out of the fleet meanwhile, and no two are counted as one.
        let _alone = lock(&self.changing);
        let (first, certificate) = self.member(peer).map_err(CopyError::Caller)?;
        if now > certificate.not_after {
            return Err(CopyError::Caller(super::link::expired()));
        }
        if key == certificate.key {
            return Err(CopyError::OldKey);
        }
        let use_key = keys::copy_use(&first.id, &key);
        if let Some(stored) = self.store.get(&use_key)? {
            let id: AgentId = keys::TOKEN_USE.read(&use_key, &stored)?;
            return Ok(enrol::again(&*self.store, &self.issuer, now, id, certificate_request)?);
        }
        let given = lock(&first.tickets).find(ticket, now).cloned().ok_or(CopyError::Ticket)?;
        if self.copies_beside(&first) >= COPIES {
            return Err(CopyError::TooManyInAll);
        }
        if self.parted_since(&first, now - Duration::from_hours(1)) >= COPIES_AN_HOUR {
            return Err(CopyError::TooMany);
        }
        let id = AgentId(ulid::Ulid::new().to_string());
        let issued = self.issuer.issue(certificate_request, &id, now)?;
        let record = AgentRecord {
            key: key.to_string(),
            enrolled_at: now,
            hostname: hostname.clone(),
            labels: first.enrolled_with.clone(),
            token: lock(&first.record).token.clone(),
            revoked: None,
            forgotten: false,
            copy_of: Some(CopyOf { agent: first.id.clone(), note: given.note.clone() }),
        };
        let agent_key = keys::agent(&id);
        let batch = Batch::new()
            .yielding()
            .require_absent(use_key.clone())
            .put(use_key.clone(), keys::TOKEN_USE.write(&use_key, &id)?)
            .put(agent_key.clone(), keys::AGENT.write(&agent_key, &record)?);
        let done = Record::new(Actor::Agent(first.id.clone()), from, Action::HostCopied, &first.said());
        let done = done.changed("", &format!("host {} ({hostname}) {}", id.0, given.note));
        let BatchResult::Applied { .. } = audit::apply(&*self.store, &batch, &done)? else {
            return Err(keys::TOKEN_USE.bad_value(&use_key, "it was made at the same time").into());
        };
        lock(&first.tickets).spend(ticket);
        let enrolled = Enrolled { id, record, issued, is_new: true };
        self.add(&enrolled);
        tracing::warn!(
            agent = enrolled.id.0,
            host = hostname,
            first = first.id.0,
            note = given.note,
            "a copy of a host has become a host of its own"
        );
        Ok(enrolled)
    }

    /// How many hosts came of one, its copies and theirs, and of those that it is a copy of, since then.
    fn parted_since(&self, agent: &Agent, since: Instant) -> usize {
        let agents = self.agents.read().unwrap_or_else(PoisonError::into_inner);
        let of = eldest(&agents, &agent.id);
        let is_new = |agent: &&Arc<Agent>| {
            let record = lock(&agent.record);
            record.copy_of.is_some() && record.enrolled_at > since
        };
        agents.values().filter(is_new).filter(|agent| eldest(&agents, &agent.id) == of).count()
    }

    /// How many hosts of the fleet are copies of one, or of those that it is a copy of, or theirs.
    fn copies_beside(&self, agent: &Agent) -> usize {
        let agents = self.agents.read().unwrap_or_else(PoisonError::into_inner);
        let of = eldest(&agents, &agent.id);
        let is_copy = |agent: &&Arc<Agent>| agent.is_member() && lock(&agent.record).copy_of.is_some();
        agents.values().filter(is_copy).filter(|agent| eldest(&agents, &agent.id) == of).count()
    }

    /// The agent of the host that an agent's is a copy of, or a copy of a copy: the first of them all. None
    /// for one that is no copy.
    pub(super) fn first_of(&self, agent: &Agent) -> Option<AgentId> {
        let agents = self.agents.read().unwrap_or_else(PoisonError::into_inner);
        lineage(&agents, &agent.id).last()
    }

    /// The first one of an agent's machine: itself, if it is no copy.
    pub(super) fn machine(&self, of: &AgentId) -> AgentId {
        eldest(&self.agents.read().unwrap_or_else(PoisonError::into_inner), of)
    }

    /// Of each of these, in their order, the first one of its machine: itself, if it is no copy.
    pub(super) fn machines<'a>(&self, of: impl Iterator<Item = &'a AgentId>) -> Vec<AgentId> {
        let agents = self.agents.read().unwrap_or_else(PoisonError::into_inner);
        of.map(|id| eldest(&agents, id)).collect()
    }

    /// Agents that were enrolled and neither revoked nor forgotten, and that count as one with another such
    /// agent where several must agree on a result: of a host and its copies all but one.
    #[must_use]
    pub fn copied(&self) -> usize {
        let agents = self.agents.read().unwrap_or_else(PoisonError::into_inner);
        let is_copy = |agent: &&Arc<Agent>| agent.is_member() && lock(&agent.record).copy_of.is_some();
        let eldest: Vec<AgentId> =
            agents.values().filter(is_copy).filter_map(|copy| lineage(&agents, &copy.id).last()).collect();
        let copies = eldest.len();
        // Where the first one is gone, one of its copies is the one that counts.
        let is_gone = |first: &&AgentId| agents.get(*first).is_none_or(|first| !first.is_member());
        copies - eldest.iter().filter(is_gone).collect::<BTreeSet<_>>().len()
    }

    /// The hosts of the fleet that were copies of this one, or copies of its copies.
    pub(super) fn copies_of(&self, id: &AgentId) -> Vec<AgentId> {
        let agents = self.agents.read().unwrap_or_else(PoisonError::into_inner);
        let is_copy =
            |agent: &&Arc<Agent>| agent.is_member() && lineage(&agents, &agent.id).any(|of| of == *id);
        agents.values().filter(is_copy).map(|agent| agent.id.clone()).collect()
    }
}

/// The first one of a host's machine: itself, if it is no copy.
pub(super) fn eldest(agents: &BTreeMap<AgentId, Arc<Agent>>, id: &AgentId) -> AgentId {
    lineage(agents, id).last().unwrap_or_else(|| id.clone())
}

/// The hosts that this one is a copy of: first its own, then that one's. A host is made after the one that it
/// is a copy of, so they end.
fn lineage(agents: &BTreeMap<AgentId, Arc<Agent>>, id: &AgentId) -> impl Iterator<Item = AgentId> {
    let parent = |id: &AgentId| Some(lock(&agents.get(id)?.record).copy_of.as_ref()?.agent.clone());
    std::iter::successors(parent(id), move |id| parent(id)).take(agents.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Instant {
        Instant::EPOCH + Duration::from_secs(seconds)
    }

    fn ticket(secret: &str, now: Instant) -> Ticket {
        Ticket { hash: SecretHash::of(secret), until: now + TICKET_LIFE, note: String::new(), source: None }
    }

    fn from(number: u8, ticket: Ticket) -> Ticket {
        Ticket { source: Some(Source::of([192, 0, 2, number].into())), ..ticket }
    }

    #[test]
    fn r6_10_a_ticket_is_good_for_some_minutes_and_once() {
        let mut tickets = Tickets::default();
        assert_eq!(tickets.give(b"b", ticket("one", at(0)), at(0)), Given::First);
        assert!(tickets.find("one", at(0)).is_some() && tickets.find("two", at(0)).is_none());
        assert!(tickets.find("one", at(0) + TICKET_LIFE).is_none());
        tickets.spend("one");
        assert!(tickets.find("one", at(0)).is_none());
    }

    #[test]
    fn r6_10_a_copy_that_asks_again_and_again_has_one_ticket_and_is_news_once() {
        let mut tickets = Tickets::default();
        assert_eq!(tickets.give(b"b", ticket("one", at(0)), at(0)), Given::First);
        assert_eq!(tickets.give(b"b", ticket("two", at(1)), at(1)), Given::Again);
        assert!(tickets.find("one", at(1)).is_none() && tickets.find("two", at(1)).is_some());
    }

    /// One that says at each connection that it is another.
    fn flood(tickets: &mut Tickets, source: u8, now: Instant) -> usize {
        let numbers = 0..3 * TICKETS as i64;
        let given = numbers.filter(|number| {
            let boot = [&now.as_micros().to_be_bytes()[..], &[source], &number.to_be_bytes()].concat();
            let given = tickets.give(&boot, from(source, ticket("other", now)), now);
            assert!(tickets.by_boot.len() <= TICKETS);
            given != Given::None
        });
        given.count()
    }

    #[test]
    fn r6_10_a_copy_that_is_another_one_at_each_connection_takes_no_ticket_from_others() {
        let mut tickets = Tickets::default();
        tickets.give(b"near", from(1, ticket("near", at(0))), at(0));
        tickets.give(b"far", from(2, ticket("far", at(0))), at(0));
        assert_eq!(flood(&mut tickets, 1, at(1)), TICKETS - 2);
        // Who is elsewhere gets one at once, and who is where it is has some time to use his.
        assert_eq!(tickets.give(b"new", from(3, ticket("new", at(2))), at(2)), Given::First);
        for secret in ["near", "far", "new"] {
            assert!(tickets.find(secret, at(29)).is_some(), "{secret}");
        }
        assert_eq!(tickets.give(b"later", from(1, ticket("later", at(29))), at(29)), Given::None);
        // Whoever did not use his in time gives way to others there, and to nobody else.
        assert_eq!(tickets.give(b"later", from(1, ticket("later", at(31))), at(31)), Given::First);
        flood(&mut tickets, 1, at(90));
        assert!(tickets.find("near", at(90)).is_none());
        for secret in ["far", "new"] {
            assert!(tickets.find(secret, at(90)).is_some(), "{secret}");
        }
    }

    /// Counts what is said in the log.
    #[derive(Clone, Default)]
    struct Lines(Arc<std::sync::atomic::AtomicUsize>);

    impl tracing::Subscriber for Lines {
        fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
            *metadata.level() <= tracing::Level::INFO
        }
        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn event(&self, _: &tracing::Event<'_>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[test]
    fn r6_10_a_copy_that_is_another_one_at_each_connection_fills_no_log() {
        let record = AgentRecord {
            key: "ab".repeat(32),
            enrolled_at: Instant::EPOCH,
            hostname: "h".to_owned(),
            labels: fallow_domain::Labels::default(),
            token: String::new(),
            revoked: None,
            forgotten: false,
            copy_of: None,
        };
        let agent = Agent::new(AgentId("A".into()), record);
        let process = |boot: u64, from: &str| Process {
            boot: boot.to_be_bytes().repeat(2),
            machine: Vec::new(),
            from: from.to_owned(),
        };
        let first = process(0, "192.0.2.1:4000");
        let lines = Lines::default();
        let secret = tracing::subscriber::with_default(lines.clone(), || {
            let honest = agent.found_copy(&process(1, "192.0.2.2:4000"), &first, at(0)).unwrap();
            for boot in 2..2_000 {
                let _ = agent.found_copy(&process(boot, "192.0.2.3:4000"), &first, at(1));
            }
            honest
        });
        let said = lines.0.load(std::sync::atomic::Ordering::Relaxed);
        // One, unless the machine is so slow that some pauses pass meanwhile.
        assert!((1..5).contains(&said), "{said}");
        assert!(lock(&agent.tickets).find(&secret, at(2)).is_some());
    }
}
