//! One connection of one agent, from its Hello to its end.
//!
//! The loop waits for whatever comes first: a message, a change that is stored, room in the outgoing channel,
//! a new document, a heartbeat, a newer connection, the end of the coordinator. What has to be said is kept
//! as "the newest of each kind" and never as a list, so a connection's memory has a bound whatever the agent
//! does. An acknowledgement stands for all messages up to its number.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fallow_domain::agent_state::{Entry, EntryKey};
use fallow_domain::{DocumentVersion, FleetDocument, Labels, MasterUrl, SignedDocuments};
use fallow_proto::PROTOCOL;
use fallow_proto::fleet::entry::BadEntry;
use fallow_proto::fleet::limits::TEXT_BYTES;
use fallow_proto::fleet::{document, signed, v1 as wire};
use fallow_telemetry::RateLimit;
use fallow_telemetry::propagation;
use fallow_tls::Peer;
use fallow_work_server::connections::ConnectionHandle;
use prost::Message as _;
use rand::TryRng as _;
use rand::rngs::SysRng;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tonic::{Status, Streaming};
use tracing::Instrument as _;
use wire::from_agent::Body as FromAgent;
use wire::from_coordinator::Body as FromCoordinator;

use super::commit::{CommitSequence, Stored};
use super::given::Given;
use super::hearing::{Heard, Hearing};
use super::keys;
use super::limits::{DOUBT, HELLO, LINKS, PIPELINE, SEEN_KEPT, SLOW, WAITING};
use super::seat::{Process, Seat};
use super::service::{record_refused, say_refused};
use super::state::{PlannedUpdate, Position, State, Update, UpdateCheck, check_update};
use super::takeover::{is_taken, take_seat, tell_copy};
use super::weight::Reserved;
use super::{Agent, Fleet, entry, pace};
use crate::audit::{Action, Actor, Record};
use crate::document::Release;
use fallow_daemon::{clock, lock};

static WITHHELD: RateLimit = RateLimit::new();
static TOO_MUCH: RateLimit = RateLimit::new();
static MEANINGLESS: RateLimit = RateLimit::new();
static NOT_STORED: RateLimit = RateLimit::new();

/// A link that lasted longer than this is told of at its end, also if its begin was one too many to be told.
const LASTED: Duration = Duration::from_secs(10);

/// What goes to an agent. A channel keeps room for 32 messages however few it may hold: in boxes these are
/// 300 bytes for each agent, without 10 kB.
pub(super) type Outgoing = mpsc::Sender<Box<Result<wire::FromCoordinator, Status>>>;

/// Who is at the other end.
pub(super) struct Caller {
    pub(super) guest: Option<ConnectionHandle>,
    pub(super) peer: Option<Arc<Peer>>,
    /// His address; empty where it is not known.
    pub(super) from: String,
}

/// Serves a connection until it ends.
pub(super) async fn serve(
    fleet: Arc<Fleet>,
    Caller { guest, peer, from }: Caller,
    mut incoming: Streaming<wire::FromAgent>,
    outgoing: Outgoing,
) {
    let end = match greet(&fleet, peer.as_ref(), &mut incoming, &outgoing).await {
        Err(status) => {
            use tonic::Code::{PermissionDenied, Unauthenticated};
            if matches!(status.code(), PermissionDenied | Unauthenticated) {
                record_refused(&fleet, peer.as_deref(), &from, "a link", &status);
            }
            status
        }
        Ok((agent, hello)) => {
            guest.inspect(|guest| guest.authenticated_as(&agent.id.0, LINKS));
            let span = tracing::info_span!("fleet.link", agent = agent.id.0);
            let end = attend(&fleet, &agent, hello, from, incoming, &outgoing).instrument(span).await;
            fleet.let_go_after_link(&agent).await;
            end
        }
    };
    if end.code() != tonic::Code::Ok {
        // If the agent takes nothing, not even this, it will notice by itself.
        let _ = timeout(Duration::from_secs(1), outgoing.send(Box::new(Err(end)))).await;
    }
}

/// Checks who it is and reads the Hello.
async fn greet(
    fleet: &Fleet,
    peer: Option<&Arc<Peer>>,
    incoming: &mut Streaming<wire::FromAgent>,
    outgoing: &Outgoing,
) -> Result<(Arc<Agent>, wire::Hello), Status> {
    let (agent, certificate) = match fleet.member(peer) {
        Ok(member) => member,
        Err(status) => {
            say_refused(&status);
            tokio::select! {
                () = fleet.guesses.slow_down() => {}
                // Who is gone takes no memory while others wait.
                () = outgoing.closed() => {}
            }
            return Err(status);
        }
    };
    if clock::now() > certificate.not_after {
        return Err(expired());
    }
    let first = timeout(HELLO, incoming.message()).await;
    let first = first.map_err(|_| Status::deadline_exceeded("no Hello came"))??;
    let Some(wire::FromAgent { body: Some(FromAgent::Hello(hello)), .. }) = first else {
        return Err(Status::invalid_argument("the first message must be a Hello"));
    };
    if hello.protocol != PROTOCOL {
        let text = format!(
            "the agent speaks version {} of the fleet protocol, this coordinator {PROTOCOL}: update the older of the two",
            hello.protocol
        );
        return Err(Status::failed_precondition(text));
    }
    if hello.epoch.is_empty() || hello.epoch.len() > 64 {
        return Err(Status::invalid_argument("an epoch has 1 to 64 bytes"));
    }
    if hello.agent_id != agent.id.0 {
        return Err(Status::permission_denied("the Hello names another host than the certificate"));
    }
    if ![0, 16].contains(&hello.boot.len()) || ![0, 32].contains(&hello.machine.len()) {
        return Err(Status::invalid_argument("a boot has 16 bytes, and what stands for a machine 32"));
    }
    if [&hello.agent_version, &hello.document_content].into_iter().any(|text| !is_text(text)) {
        let text = format!("texts in a Hello have up to {TEXT_BYTES} printable bytes");
        return Err(Status::invalid_argument(text));
    }
    agent.certified(&certificate);
    Ok((agent, hello))
}

fn is_text(text: &str) -> bool {
    text.len() <= TEXT_BYTES && !text.chars().any(char::is_control)
}

/// Waits for the agent's older connection to end, then serves this one.
async fn attend(
    fleet: &Fleet,
    agent: &Arc<Agent>,
    hello: wire::Hello,
    from: String,
    incoming: Streaming<wire::FromAgent>,
    outgoing: &Outgoing,
) -> Status {
    let process = Process { boot: hello.boot.clone(), machine: hello.machine.clone(), from };
    let rate = fleet.settings.messages_a_second;
    // Who has the link is held up by none of the others, who may be copies.
    let line = agent.arrivals.line(agent.seat.borrow().is_of(&process));
    let Some(place) = line.place() else {
        return Status::unavailable(format!(
            "{WAITING} other connections wait for the link of this host already: its agent comes again"
        ));
    };
    let number = async {
        line.turn(rate).await;
        take_seat(agent, &process).await
    };
    let number = tokio::select! {
        number = number => number,
        // Who is gone takes the link from nobody.
        () = outgoing.closed() => return Status::cancelled("the agent is gone"),
    };
    let number = match number {
        Ok(number) => number,
        Err(first) => return tell_copy(agent, &process, &first, outgoing).await,
    };
    let mut seat = agent.seat.subscribe();
    let turn = agent.turn.lock().await;
    drop(place);
    // What comes after this look is seen as a change later.
    if seat.borrow_and_update().number() != number {
        return taken_over();
    }
    let mut seated = Seated { agent, number, leaves: true };
    let linked = Linked::new(fleet, agent);
    agent.seen(clock::now());
    fleet.note_return(agent);
    // One that comes and goes all the time fills no log.
    let (times, begun) = (agent.comings.allow(), Instant::now());
    if let Some(times) = times {
        let (version, document) = (&hello.agent_version, DocumentVersion(hello.document_version));
        tracing::info!(version, %document, times, "agent connected");
    }
    let mut connection = Connection::new(fleet, agent, hello, &process.from, outgoing);
    let end = connection.run(incoming, seat, number).await;
    // What could not be stored is sent again over the next connection.
    let _ = connection.settle_all().await;
    if connection.is_unstored {
        // The coordinator itself ends the link, and its agent comes again at once.
        seated.stays();
    }
    keep_seen(fleet, agent).await;
    // It counts as connected again as soon as the next one has the turn.
    drop(linked);
    // Both before the seat is left: who waits for that finds the turn free.
    drop((connection, turn));
    drop(seated);
    if times.is_some() || begun.elapsed() > LASTED {
        tracing::info!(reason = end.message(), code = ?end.code(), "agent disconnected");
    }
    end
}

/// An agent that counts as connected until this is dropped, whatever ends its connection.
struct Linked<'a> {
    fleet: &'a Fleet,
    agent: &'a Agent,
}

impl<'a> Linked<'a> {
    fn new(fleet: &'a Fleet, agent: &'a Agent) -> Self {
        agent.connected.store(true, Ordering::Relaxed);
        fleet.connected.fetch_add(1, Ordering::Relaxed);
        Self { fleet, agent }
    }
}

impl Drop for Linked<'_> {
    fn drop(&mut self) {
        self.agent.connected.store(false, Ordering::Relaxed);
        self.fleet.connected.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that has the agent's seat until this is dropped.
struct Seated<'a> {
    agent: &'a Agent,
    number: u64,
    leaves: bool,
}

impl Seated<'_> {
    /// Its process has the seat beyond this: another one gets it only when nobody has answered for a while.
    const fn stays(&mut self) {
        self.leaves = false;
    }
}

impl Drop for Seated<'_> {
    fn drop(&mut self) {
        if self.leaves {
            self.agent.seat.send_modify(|seat| seat.leave(self.number));
        }
    }
}

/// When the agent was seen last, as it is kept: of messages that change nothing, such as heartbeats, nothing
/// else is stored.
fn seen(agent: &Agent) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let position = {
        let mut state = lock(&agent.state);
        state.position.at = agent.last_seen();
        state.position.clone()
    };
    let key = keys::position(&agent.id);
    let value = keys::POSITION.write(&key, &position).ok()?;
    Some((key, Some(value)))
}

/// Keeps when the agent was seen last.
async fn keep_seen(fleet: &Fleet, agent: &Agent) {
    let Some(seen) = seen(agent) else { return };
    // If it cannot be stored, an earlier time is shown after a restart, and that is all.
    let _ = fleet.commits.send(&CommitSequence::default(), vec![seen]).await.await;
}

pub(super) fn expired() -> Status {
    Status::unauthenticated("this host's certificate has expired: its agent renews it when it calls Renew")
}

fn taken_over() -> Status {
    Status::aborted("a newer connection of this agent took over")
}

struct Connection<'a> {
    fleet: &'a Fleet,
    agent: &'a Agent,
    outgoing: &'a Outgoing,
    /// The agent's address.
    from: &'a str,
    epoch: String,
    /// The document that the agent follows, and its content, as it said in its Hello; none once it was
    /// compared with the newest.
    follows: Option<(DocumentVersion, String)>,
    /// The document that was the last to be sent, and the labels that it is for.
    offered: Option<(FleetDocument, Labels)>,
    /// The newest document cannot be sent now; it is tried again with every heartbeat.
    is_withheld: bool,
    /// Up to where messages were taken in; what is stored may lag behind by the pipeline.
    received: Position,
    pipeline: VecDeque<InFlight>,
    commit_sequence: CommitSequence,
    documents: watch::Receiver<Arc<Release>>,
    /// The version that the agent said that it has in its Hello.
    has: DocumentVersion,
    pending: PendingMessages,
    hearing: Hearing,
    /// When it was stored last that the agent was heard of.
    kept: Instant,
    /// That, on its way to the store.
    seen: Option<oneshot::Receiver<Stored>>,
    /// Until when nothing is read of what the agent says; none if it keeps its pace.
    held_until: Option<Instant>,
    /// What the agent said last could not be stored.
    is_unstored: bool,
}

/// A change on its way to the store.
struct InFlight {
    sequence: u64,
    /// What the entries take that it brings.
    bytes: usize,
    change: PlannedUpdate,
    answer: oneshot::Receiver<Stored>,
}

/// A document with the agent's own accounts in it.
struct Addressed {
    document: FleetDocument,
    /// What it follows from, with the labels that it is for; none where nothing is signed.
    signed: Option<(Arc<SignedDocuments>, Labels)>,
    traceparent: String,
}

/// What has to be said: the newest of each kind.
struct PendingMessages {
    welcome: Option<wire::Welcome>,
    acknowledge: Option<u64>,
    /// The newest message that came and cannot be stored.
    unstored: Option<u64>,
    document: Option<Addressed>,
    heartbeat: bool,
    /// The newest question whether the agent is there.
    probe: Option<u64>,
    /// Projects that the agent is to contact.
    contacts: BTreeSet<MasterUrl>,
    /// Since when there is something to be said and no room.
    waiting_since: Option<Instant>,
}

impl<'a> Connection<'a> {
    fn new(
        fleet: &'a Fleet,
        agent: &'a Agent,
        hello: wire::Hello,
        from: &'a str,
        outgoing: &'a Outgoing,
    ) -> Self {
        let documents = fleet.documents.watch();
        let held = lock(&agent.state).position.clone();
        let (projects_url, projects_behind_proxy) = fleet.projects_url.get().cloned().unwrap_or_default();
        let welcome = wire::Welcome {
            protocol: PROTOCOL,
            epoch: held.epoch.clone(),
            applied_sequence: held.sequence,
            heartbeat_interval_micros: i64::try_from(fleet.settings.heartbeat.as_micros())
                .unwrap_or(i64::MAX),
            projects_url,
            projects_behind_proxy,
            takes_disk: true,
        };
        let pending = PendingMessages {
            welcome: Some(welcome),
            acknowledge: None,
            unstored: None,
            document: None,
            heartbeat: false,
            probe: None,
            contacts: BTreeSet::new(),
            waiting_since: None,
        };
        let has = DocumentVersion(hello.document_version);
        fleet.look_for_newer(agent, has);
        let follows = Some((has, hello.document_content));
        let (epoch, received) = (hello.epoch, held);
        Self {
            fleet,
            agent,
            outgoing,
            from,
            epoch,
            follows,
            offered: None,
            is_withheld: false,
            received,
            pipeline: VecDeque::new(),
            commit_sequence: CommitSequence::default(),
            documents,
            has,
            pending,
            hearing: Hearing::new(Instant::now()),
            kept: Instant::now(),
            seen: None,
            held_until: None,
            is_unstored: false,
        }
    }

    fn charge(&self, cost: u32) {
        self.agent.pace.charge(cost, self.fleet.settings.messages_a_second, Instant::now());
    }

    async fn run(
        &mut self,
        mut incoming: Streaming<wire::FromAgent>,
        mut seat: watch::Receiver<Seat>,
        number: u64,
    ) -> Status {
        let mut probe = self.agent.probe.subscribe();
        let mut stopping = self.fleet.stopping.subscribe();
        let mut removed = self.agent.removed.subscribe();
        let mut ticks = interval(self.fleet.settings.heartbeat);
        // Those of many links do not fall together because the coordinator stood still.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        ticks.reset();
        // Of what was not stored: how the link ends, and when.
        let mut end: Option<(Instant, Status)> = None;
        // Whatever it follows: its accounts must be there.
        self.take_document().await;
        loop {
            if *stopping.borrow_and_update() {
                return Status::unavailable("the coordinator is stopping: connect again later");
            }
            if let Some(why) = &*removed.borrow_and_update() {
                return Status::permission_denied(why.clone());
            }
            self.held_until = self.agent.pace.held_until(Instant::now());
            let turn = tokio::select! {
                message = incoming.message(), if self.reads() => match message {
                    Ok(Some(message)) => self.take(message).await,
                    Ok(None) => return Status::ok("the agent closed the link"),
                    // It would take too much.
                    Err(status) if status.code() == tonic::Code::ResourceExhausted => return status,
                    Err(status) => return Status::cancelled(format!("the link broke: {}", status.message())),
                },
                () = sleep_until(self.held_until.unwrap_or_else(Instant::now)), if self.held_until.is_some() => Ok(()),
                stored = answer(&mut self.pipeline) => self.settle(stored),
                permit = self.outgoing.reserve(), if !self.pending.is_empty() => match permit {
                    Ok(permit) => {
                        if let Some(message) = self.pending.next() {
                            permit.send(Box::new(Ok(message)));
                        }
                        Ok(())
                    }
                    Err(_) => return Status::cancelled("the agent is gone"),
                },
                changed = self.documents.changed() => match changed {
                    Ok(()) => {
                        self.take_document().await;
                        Ok(())
                    }
                    Err(_) => Err(Status::unavailable("the coordinator is stopping")),
                },
                () = self.agent.relabelled.notified() => {
                    self.take_document().await;
                    Ok(())
                }
                () = self.agent.contact_wanted.notified() => {
                    self.pending.contacts.append(&mut lock(&self.agent.contacts));
                    Ok(())
                }
                due = ticks.tick() => {
                    let turn = self.tick(due).map(|sooner| sooner.into_iter().for_each(|after| ticks.reset_after(after)));
                    // Before what waits for the store: while that stands still, agents hear something.
                    self.say_pending();
                    if self.is_withheld {
                        self.take_document().await;
                    }
                    if self.agent.has_expired(clock::now()) {
                        return expired();
                    }
                    turn
                }
                _ = probe.changed() => {
                    self.pending.probe = Some(*probe.borrow_and_update());
                    Ok(())
                }
                () = is_taken(&mut seat, number) => return taken_over(),
                _ = stopping.changed() => Ok(()),
                _ = removed.changed() => Ok(()),
                () = sleep_until(end.as_ref().map_or_else(Instant::now, |(at, _)| *at)), if end.is_some() => {
                    return end.map_or_else(|| Status::unavailable("the store failed"), |(_, why)| why);
                }
            };
            match turn {
                Ok(()) => {}
                // Whoever stops the fleet because the disk is full reaches it all the same.
                Err(status) if self.is_unstored && end.is_none() => {
                    end = Some((Instant::now() + at_random(self.fleet.settings.unstored), status));
                }
                Err(status) => return status,
            }
            self.pending.note_waiting();
        }
    }

    /// Makes what the newest documents say to the agent the next to be sent, if it is not what was sent last.
    /// One that cannot be addressed to the agent now is withheld, and the link goes on without.
    async fn take_document(&mut self) {
        let release = self.documents.borrow_and_update().clone();
        let has_groups = release.asks_for_labels();
        let said = lock(&self.agent.state).host().map(|host| host.document_version);
        if has_groups && said.is_none() {
            // What it has to do depends on what it reports: its first report calls again.
            return;
        }
        let labels = self.agent.labels();
        let has = said.unwrap_or_default().max(self.has);
        let was_given = |version| self.agent.was_given(version);
        let Some(newest) = release.of(&self.agent.id, has, was_given, || labels.clone()).cloned() else {
            return;
        };
        let was_withheld = self.is_withheld;
        match self.fleet.addressed(self.agent, &newest).await {
            Ok(document) => {
                self.is_withheld = false;
                if was_withheld {
                    tracing::info!(
                        version = %document.version,
                        "the agent has its accounts now and gets its document"
                    );
                }
                // What the agent has under this number may be for labels that it had before. An older agent
                // does not say what it is.
                let is_followed = self.follows.take().is_some_and(|(version, content)| {
                    let is_same = if content.is_empty() { !has_groups } else { content == document.content };
                    version == document.version && is_same
                });
                let is_offered = self.offered.as_ref().is_some_and(|(offered, _)| *offered == document);
                if !is_followed && !is_offered {
                    let traceparent = newest.traceparent.clone();
                    let signed = newest.signed.clone().map(|signed| (signed, labels.clone()));
                    self.pending.document =
                        Some(Addressed { document: document.clone(), signed, traceparent });
                }
                // Not what it has got by saying that it has it.
                let is_its_own = release.open().is_none_or(|(rollout, _)| {
                    document.version != rollout.candidate
                        || rollout.is_released_to(&self.agent.id, &rollout.groups_of(&labels))
                });
                if is_its_own && let Some(given) = self.agent.give(document.version) {
                    self.keep_given(&given).await;
                }
                self.offered = Some((document, labels));
            }
            Err(why) => {
                self.is_withheld = true;
                // With a full disk all agents are in the same plight.
                if !was_withheld && let Some(times) = WITHHELD.allow() {
                    tracing::warn!(
                        agent = self.agent.id.0,
                        version = %newest.audited.set.fleet.version,
                        error = why,
                        times,
                        "an agent's account cannot be made: the agent is not sent the document until it can; it is \
                         tried again with every heartbeat"
                    );
                }
            }
        }
    }

    /// Keeps that the agent was given a version. What it will say of that is stored behind it.
    async fn keep_given(&self, given: &Given) {
        let key = keys::given(&self.agent.id);
        let Ok(value) = keys::GIVEN.write(&key, given) else { return };
        // If it cannot be stored, nor what the agent is given later, it is known until a restart only. After
        // one the version may be taken for one that was not given: then what the agent says of it counts for
        // nothing.
        drop(self.fleet.commits.send(&CommitSequence::default(), vec![(key, Some(value))]).await);
    }

    /// Takes in a message: what it changes goes to the store.
    async fn take(&mut self, message: wire::FromAgent) -> Result<(), Status> {
        self.hearing.heard(Instant::now());
        self.agent.seen(clock::now());
        let bytes = message.encoded_len();
        let wire::FromAgent { traceparent, body } = message;
        let (sequence, is_snapshot, entries, removed) = match body {
            Some(FromAgent::Snapshot(snapshot)) => (snapshot.sequence, true, snapshot.entries, Vec::new()),
            Some(FromAgent::Delta(delta)) => (delta.sequence, false, delta.entries, delta.removed),
            Some(FromAgent::Heartbeat(_)) => {
                self.charge(pace::message(0, bytes));
                self.keep_seen();
                return Ok(());
            }
            Some(FromAgent::ProbeAnswer(answer)) => {
                self.charge(pace::message(0, bytes));
                self.note_answer(answer.number);
                return Ok(());
            }
            Some(FromAgent::Hello(_)) => return Err(Status::invalid_argument("a second Hello")),
            // A newer agent may know kinds that this coordinator does not; it must not depend on them.
            None => {
                self.charge(pace::message(0, bytes));
                return Ok(());
            }
        };
        self.charge(pace::message(entries.len() + removed.len(), bytes));
        let bad = |error: BadEntry| {
            if let Some(times) = MEANINGLESS.allow() {
                tracing::warn!(sequence, error = %error, times, "a message that means nothing was refused");
            }
            Status::invalid_argument(format!("message {sequence} is refused: {error}"))
        };
        let mut entries = entry::read_all(entries).map_err(bad)?;
        self.heed(&mut entries);
        let removed = entry::read_removed(&removed).map_err(bad)?;
        if self.is_unstored {
            // It says so again on its next link.
            self.pending.unstored(sequence);
            return Ok(());
        }
        let update = Update { sequence, is_snapshot, entries, removed };
        if traceparent.is_empty() {
            return self.apply(update).await;
        }
        let span = tracing::info_span!(
            "fleet.apply",
            agent = self.agent.id.0,
            sequence,
            entries = update.entries.len()
        );
        propagation::set_parent(&span, &traceparent);
        self.apply(update).instrument(span).await
    }

    /// Takes out what the agent says of a version that it was not given: neither a refusal nor that it went
    /// back can be true of that. What it said when it had been given it holds on, also over a restart here.
    fn heed(&self, entries: &mut BTreeMap<EntryKey, Entry>) {
        let Some(Entry::Host(host)) = entries.get_mut(&EntryKey::Host) else { return };
        if host.document_refused.is_none() && host.rolled_back.is_none() {
            return;
        }
        // Where it is not known what it was given, the versions that all have been given.
        let first = {
            let release = self.documents.borrow();
            let newest = release.newest.as_ref().map(|newest| newest.audited.set.fleet.version);
            let newest = newest.unwrap_or_default();
            let waits = release.is_held.then_some(newest);
            let open = release.open().map(|(rollout, _)| rollout.candidate);
            open.or(waits).unwrap_or_else(|| newest.next())
        };
        let is_known = |version: DocumentVersion| self.agent.was_given(version).unwrap_or(version < first);
        let state = lock(&self.agent.state);
        let held = state.host();
        let was_refused = held.and_then(|held| held.document_refused.as_ref()).map(|(version, _)| *version);
        if let Some((version, _)) = host.document_refused
            && !is_known(version)
            && was_refused != Some(version)
        {
            host.document_refused = held.and_then(|held| held.document_refused.clone());
        }
        let had_gone_back = held.and_then(|held| held.rolled_back.as_ref()).map(|one| one.version);
        if let Some(version) = host.rolled_back.as_ref().map(|one| one.version)
            && !is_known(version)
            && had_gone_back != Some(version)
        {
            host.rolled_back = held.and_then(|held| held.rolled_back.clone());
        }
    }

    /// The agent is there. It cannot have answered what was not asked.
    fn note_answer(&self, number: u64) {
        let number = number.min(*self.agent.probe.borrow());
        self.agent.probe_answer.send_if_modified(|newest| {
            let is_newer = number > *newest;
            *newest = number.max(*newest);
            is_newer
        });
    }

    async fn apply(&mut self, update: Update) -> Result<(), Status> {
        let sequence = update.sequence;
        match check_update(&self.received, &self.epoch, &update) {
            UpdateCheck::Refuse(why) => return Err(Status::aborted(why)),
            UpdateCheck::AlreadyApplied => {
                // It may still be on its way to the store, and fail there.
                self.settle_all().await?;
                self.pending.acknowledge(sequence);
                return Ok(());
            }
            UpdateCheck::Next => {}
        }
        // These need to know what is held now, and nothing may be planned on what was before them.
        let brings_project = |key: &EntryKey| matches!(key, EntryKey::Project(_));
        let alone = update.is_snapshot
            || update.entries.keys().any(brings_project)
                && lock(&self.agent.state)
                    .lacks_one_of(update.entries.keys().filter(|key| brings_project(key)))
            || update.removed.iter().any(|key| matches!(key, EntryKey::Project(_)));
        let behind = if alone || self.pipeline.is_empty() { None } else { self.reserve_behind(&update) };
        if behind.is_none() {
            // Then it is known what the agent holds, and so how much more it may.
            let settled = self.settle_all().await;
            if self.is_unstored {
                self.pending.unstored(sequence);
            }
            settled?;
        }
        let position = Position { epoch: self.epoch.clone(), sequence, at: clock::now() };
        let planned = {
            let (state, id) = (lock(&self.agent.state), &self.agent.id);
            match behind {
                Some(reserved) => state.plan_behind(id, position.clone(), update, reserved),
                None => state.plan(id, position.clone(), update),
            }
        };
        let (change, writes) = planned.map_err(|error| {
            if let Some(times) = TOO_MUCH.allow() {
                tracing::warn!(sequence, error = %error, times, "a message that would take too much was refused");
            }
            Status::resource_exhausted(error.to_string())
        })?;
        // Keys that it removes are kept until then, too, be they of entries or of none.
        let removed: usize =
            writes.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| key.len()).sum();
        let bytes = change.bytes().saturating_add(removed);
        let answer = self.fleet.commits.send(&self.commit_sequence, writes).await;
        self.received = position;
        self.kept = Instant::now();
        self.pipeline.push_back(InFlight { sequence, bytes, change, answer });
        if alone { self.settle_all().await } else { Ok(()) }
    }

    /// Room for an update behind those that are still on their way to the store; none where the agent, or its
    /// machine, could come to hold too much.
    fn reserve_behind(&self, update: &Update) -> Option<Reserved> {
        let on_their_way = self.pipeline.iter().map(|message| message.bytes).sum();
        lock(&self.agent.state).reserve_behind(update, on_their_way)
    }

    /// Takes over the oldest change in the pipeline, whose answer came.
    fn settle(&mut self, stored: Result<Stored, oneshot::error::RecvError>) -> Result<(), Status> {
        let Some(InFlight { sequence, change, .. }) = self.pipeline.pop_front() else { return Ok(()) };
        let is_full = matches!(&stored, Ok(Err(error)) if error.is_full());
        let failed = match stored {
            Ok(Ok(())) => {
                let tells_of_host = change.tells_of_host();
                let refused = {
                    let mut state = lock(&self.agent.state);
                    let refused = |state: &State| state.host().and_then(|host| host.document_refused.clone());
                    let before = if tells_of_host { refused(&state) } else { None };
                    state.take(change, &mut lock(&self.fleet.totals));
                    self.agent.unstored.store(false, Ordering::Relaxed);
                    refused(&state).filter(|after| tells_of_host && before.as_ref() != Some(after))
                };
                if let Some((version, why)) = refused {
                    let actor = Actor::Agent(self.agent.id.clone());
                    let what = format!("version {version}");
                    let record = Record::new(actor, self.from, Action::DocumentRefused, &what);
                    self.fleet.audit.refused(record.refused(&why));
                }
                if tells_of_host && self.is_for_other_labels() {
                    self.charge(pace::RELABELLED);
                    self.agent.relabelled.notify_one();
                }
                self.pending.acknowledge(sequence);
                return Ok(());
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the store is closed".to_owned(),
        };
        // Later changes rest on this one, and the stream stores none of them.
        let last = self.pipeline.back().map_or(sequence, |last| last.sequence);
        self.pipeline.clear();
        self.is_unstored = is_full;
        if is_full {
            self.agent.unstored.store(true, Ordering::Relaxed);
            self.pending.unstored(last);
        }
        if let Some(times) = NOT_STORED.allow() {
            tracing::error!(error = failed, times, "the fleet's state cannot be stored");
        }
        Err(Status::unavailable(failed))
    }

    /// Whether the document that was sent last is for labels that the agent has no more. Without groups none
    /// is for any labels; one that is withheld is tried again anyway.
    fn is_for_other_labels(&self) -> bool {
        let has_groups = self.documents.borrow().asks_for_labels();
        let offered_for = self.offered.as_ref().map(|(_, labels)| labels);
        has_groups && !self.is_withheld && offered_for != Some(&self.agent.labels())
    }

    /// Waits for all changes that are on their way to the store.
    async fn settle_all(&mut self) -> Result<(), Status> {
        while !self.pipeline.is_empty() {
            let stored = answer(&mut self.pipeline).await;
            self.settle(stored)?;
        }
        Ok(())
    }

    /// Keeps every few heartbeats that the agent was heard of: a coordinator that is killed cannot do so at
    /// its end. It is not waited for: the link goes on however slow the store is.
    fn keep_seen(&mut self) {
        // What is on its way to the store holds a later position than the one that would be written here.
        // It is asked when heartbeats are answered, each a little sooner or later.
        let heartbeat = self.fleet.settings.heartbeat;
        let is_due = self.kept.elapsed() + heartbeat / 2 >= heartbeat * SEEN_KEPT;
        // Of a link there is one at a time, however slow the store is.
        let is_under_way =
            |seen: &mut oneshot::Receiver<Stored>| matches!(seen.try_recv(), Err(TryRecvError::Empty));
        if !is_due || !self.pipeline.is_empty() || self.seen.as_mut().is_some_and(is_under_way) {
            return;
        }
        self.seen = seen(self.agent).and_then(|seen| self.fleet.commits.hand_in(vec![seen]));
        if self.seen.is_some() {
            self.kept = Instant::now();
        }
    }

    /// Says what there is room for.
    fn say_pending(&mut self) {
        while let Ok(permit) = self.outgoing.try_reserve() {
            let Some(message) = self.pending.next() else { return };
            permit.send(Box::new(Ok(message)));
        }
    }

    /// Whether it is listened to what the agent says.
    fn reads(&self) -> bool {
        self.pipeline.len() < PIPELINE && self.held_until.is_none()
    }

    /// A heartbeat was due. Returns after how long the next one is, where that is not the usual time.
    fn tick(&mut self, due: Instant) -> Result<Option<Duration>, Status> {
        let heartbeat = self.fleet.settings.heartbeat;
        let is_late = due.elapsed() >= DOUBT.min(heartbeat);
        let next = match self.hearing.heartbeat(Instant::now(), heartbeat, self.reads() && !is_late) {
            Heard::Waits(next) => next,
            Heard::Gone(silent) => {
                let why = format!("nothing came from the agent for {} s", silent.as_secs());
                return Err(Status::deadline_exceeded(why));
            }
        };
        if self.pending.waiting_since.is_some_and(|since| since.elapsed() > SLOW) {
            return Err(Status::resource_exhausted("the agent does not take its messages"));
        }
        self.pending.heartbeat = true;
        Ok(next)
    }
}

/// The answer to the oldest change; never, if there is none.
async fn answer(pipeline: &mut VecDeque<InFlight>) -> Result<Stored, oneshot::error::RecvError> {
    match pipeline.front_mut() {
        Some(oldest) => (&mut oldest.answer).await,
        None => std::future::pending().await,
    }
}

impl PendingMessages {
    fn is_empty(&self) -> bool {
        self.welcome.is_none()
            && self.acknowledge.is_none()
            && self.unstored.is_none()
            && self.document.is_none()
            && self.contacts.is_empty()
            && !self.heartbeat
            && self.probe.is_none()
    }

    fn acknowledge(&mut self, sequence: u64) {
        self.acknowledge = self.acknowledge.max(Some(sequence));
    }

    fn unstored(&mut self, sequence: u64) {
        self.unstored = self.unstored.max(Some(sequence));
    }

    fn note_waiting(&mut self) {
        self.waiting_since =
            if self.is_empty() { None } else { self.waiting_since.or_else(|| Some(Instant::now())) };
    }

    /// The next thing to say.
    fn next(&mut self) -> Option<wire::FromCoordinator> {
        let mut traceparent = String::new();
        let body = if let Some(welcome) = self.welcome.take() {
            FromCoordinator::Welcome(welcome)
        } else if let Some(number) = self.probe.take() {
            FromCoordinator::Probe(wire::Probe { number })
        } else if let Some(addressed) = self.document.take() {
            traceparent = addressed.traceparent;
            let signed = addressed.signed.map(|(signed, labels)| signed::to_wire(&signed, &labels));
            FromCoordinator::Document(wire::Document { signed, ..document::to_wire(&addressed.document) })
        } else if let Some(sequence) = self.acknowledge.take() {
            FromCoordinator::Acknowledge(wire::Acknowledge { sequence })
        } else if let Some(sequence) = self.unstored.take() {
            FromCoordinator::Received(wire::Received { sequence })
        } else if let Some(url) = self.contacts.pop_first() {
            FromCoordinator::ContactProject(wire::ContactProject { url: url.into() })
        } else if std::mem::take(&mut self.heartbeat) {
            FromCoordinator::Heartbeat(wire::Heartbeat { sent_at_micros: clock::now().as_micros() })
        } else {
            return None;
        };
        // Something got out: the agent takes its messages.
        self.waiting_since = None;
        Some(wire::FromCoordinator { traceparent, body: Some(body) })
    }
}

/// Between three fifths of a time and all of it.
fn at_random(most: Duration) -> Duration {
    let drawn = SysRng.try_next_u32().unwrap_or(u32::MAX);
    most.mul_f64(0.6 + 0.4 * f64::from(drawn) / f64::from(u32::MAX))
}
