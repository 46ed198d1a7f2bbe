//! The stream itself: connects, resumes, sends what changed, takes what comes; and does so again after every
//! loss.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fallow_client::Entity;
use fallow_daemon::{causes, clock, lock};
use fallow_domain::agent_state::{Entry, EntryKey};
use fallow_domain::{DocumentVersion, FleetDocument, Labels, MasterUrl, printable};
use fallow_fleet::labels_of;
use fallow_proto::PROTOCOL;
use fallow_proto::fleet::v1::fleet_client::FleetClient;
use fallow_proto::fleet::v1::{
    Delta, Document, FromAgent, FromCoordinator, Heartbeat, Hello, ProbeAnswer, SignedDocuments, Snapshot,
    Welcome, from_agent, from_coordinator,
};
use fallow_proto::fleet::{document, entry, entry_key, limits, signed};
use fallow_tls::{ConnectError, Dialled};
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{self, Sender};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use super::backoff::Backoff;
use super::membership::Membership;
use super::outbox::{Batch, Outbox};
use super::process::Process;
use super::thread::LinkThread;
use super::{Arrived, Ask, Entries, Followed};
use crate::host::alarm::Alarm;

/// Changes are gathered for this long before they are sent.
const GATHER: Duration = Duration::from_millis(200);
/// How long the coordinator may take to answer the hello.
const HELLO: Duration = Duration::from_secs(10);
/// How long it may take to acknowledge what was sent.
const ACKNOWLEDGE: Duration = Duration::from_secs(30);
/// A connection that held for this long was a good one.
const GOOD: Duration = Duration::from_secs(5);
/// How long after a certificate was not renewed it is tried again.
const RENEW_AGAIN: Duration = Duration::from_secs(60);
/// So many heartbeats of one's own go to a coordinator that says nothing, which is taken for gone at the next
/// one. An agent that itself stood still is due for one alone.
const SILENT: u32 = 2;
/// Not before that, for machines may be busy.
const SILENT_MIN: Duration = Duration::from_secs(30);
/// How often the coordinator may send heartbeats.
const INTERVAL: std::ops::RangeInclusive<i64> = 100_000..=3_600_000_000;

/// What the link says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Where the coordinator is.
    pub coordinator: String,
    /// The agent's name in the fleet.
    pub agent_id: String,
    /// The stream stands.
    pub connected: bool,
    /// The proxy that it goes through: host and port.
    #[serde(default)]
    pub proxy: Option<String>,
    /// Why it did not, the last time.
    pub last_error: Option<String>,
    /// The coordinator was there then, and does not want this agent: it was revoked, say, or its certificate
    /// is of no use there.
    #[serde(default)]
    pub refused: bool,
}

/// The engine's side of the link.
#[derive(Clone)]
pub struct Link {
    shared: Arc<Shared>,
}

struct Shared {
    outbox: Mutex<Outbox>,
    changed: Notify,
    urgent: AtomicBool,
    /// The link is to be begun anew, if it stands.
    anew: AtomicBool,
    /// The machine may have slept.
    woken: AtomicBool,
    /// The trace context of the change that made it urgent.
    trace: Mutex<Option<String>>,
    status: Mutex<LinkStatus>,
}

/// Where the link's questions and arrivals go.
pub trait Engine: Send + Sync + 'static {
    /// Hands over a question.
    fn ask(&self, ask: Ask) -> impl Future<Output = ()> + Send;
    /// Hands over what came.
    fn arrived(&self, arrived: Arrived) -> impl Future<Output = ()> + Send;
}

impl Link {
    /// Begins linking, in a thread of its own, until `stop` says true; it then tells what is left to tell, if
    /// it can within a second, and ends.
    ///
    /// # Errors
    /// An I/O error of the operating system, when it gives no thread or nothing to wait with.
    pub fn start(
        member: Membership,
        process: Process,
        epoch: String,
        seed: u64,
        engine: impl Engine,
        stop: watch::Receiver<bool>,
    ) -> io::Result<(Self, LinkThread)> {
        let status = LinkStatus {
            coordinator: member.identity().coordinator(),
            agent_id: member.identity().agent_id().0.clone(),
            ..LinkStatus::default()
        };
        let shared = Arc::new(Shared {
            outbox: Mutex::default(),
            changed: Notify::new(),
            urgent: AtomicBool::new(false),
            anew: AtomicBool::new(false),
            woken: AtomicBool::new(false),
            trace: Mutex::default(),
            status: Mutex::new(status),
        });
        let rng = StdRng::seed_from_u64(seed ^ u64::from(std::process::id()));
        let session = Session {
            shared: Arc::clone(&shared),
            member,
            process,
            must_renew: false,
            epoch,
            engine,
            stop,
            rng,
            untimely: None,
            takes_disk: true,
        };
        Ok((Self { shared }, LinkThread::start(session.run())?))
    }

    /// The entry under `key` changed. `urgent`: tell it at once, as part of the trace `trace`.
    pub fn touch(&self, key: EntryKey, entity: Entity, urgent: bool, trace: Option<String>) {
        lock(&self.shared.outbox).touch(key, entity);
        if urgent {
            *lock(&self.shared.trace) = trace;
            self.shared.urgent.store(true, Ordering::Release);
        }
        self.shared.changed.notify_one();
    }

    /// Begins the link anew, if it stands.
    pub fn begin_anew(&self) {
        self.shared.anew.store(true, Ordering::Release);
        self.shared.changed.notify_one();
    }

    /// The machine may have slept, or its clock was set: something is said at once, by which it shows whether
    /// the link still stands.
    pub fn wake(&self) {
        self.shared.woken.store(true, Ordering::Release);
        self.shared.changed.notify_one();
    }

    /// What the link says of itself.
    pub fn status(&self) -> LinkStatus {
        lock(&self.shared.status).clone()
    }
}

/// Why a connection ended.
enum End {
    /// As asked.
    Stopped,
    /// The other side is not there or went away.
    Lost(String),
    /// The coordinator does not want this agent: asking again soon cannot help.
    Refused(String),
    /// The coordinator wants a newer certificate first.
    Expired(String),
}

impl From<Status> for End {
    fn from(status: Status) -> Self {
        let why = format!("{} ({:?})", status.message(), status.code());
        match status.code() {
            Code::Unauthenticated => Self::Expired(why),
            Code::PermissionDenied | Code::Unimplemented | Code::FailedPrecondition => Self::Refused(why),
            _ => Self::Lost(why),
        }
    }
}

/// Why a document is not followed.
struct Disbelief {
    text: String,
    /// It may be at another time.
    is_untimely: bool,
}

impl Disbelief {
    fn of(why: &impl ToString) -> Self {
        Self { text: why.to_string(), is_untimely: false }
    }
}

struct Session<E> {
    shared: Arc<Shared>,
    member: Membership,
    process: Process,
    /// The coordinator says that the certificate is not good any more, whatever the clock here says.
    must_renew: bool,
    epoch: String,
    engine: E,
    stop: watch::Receiver<bool>,
    rng: StdRng,
    /// The newest document, where it was refused for the time at which it was signed.
    untimely: Option<Document>,
    /// The coordinator takes what was decided about the disk.
    takes_disk: bool,
}

impl<E: Engine> Session<E> {
    async fn run(mut self) {
        let mut backoff = Backoff::default();
        loop {
            let began = Instant::now();
            let end = self.connect().await;
            lock(&self.shared.outbox).lost();
            let was_connected = {
                let mut status = lock(&self.shared.status);
                status.proxy = None;
                status.refused = matches!(end, End::Refused(_) | End::Expired(_));
                std::mem::take(&mut status.connected)
            };
            let (why, wait) = match end {
                End::Stopped => return,
                End::Lost(why) => {
                    if was_connected && began.elapsed() >= GOOD {
                        backoff.reset();
                    }
                    let wait = backoff.next(&mut self.rng);
                    (why, wait)
                }
                End::Expired(why) => {
                    self.must_renew = true;
                    (why, backoff.next(&mut self.rng))
                }
                End::Refused(why) => {
                    let wait = backoff.longest(&mut self.rng);
                    (why, wait)
                }
            };
            self.say_lost(&why, wait, was_connected);
            if timeout(wait, stopped(&mut self.stop)).await.is_ok() {
                return;
            }
        }
    }

    /// Once at warning when the link goes or its trouble changes, in detail below that.
    fn say_lost(&self, why: &str, wait: Duration, was_connected: bool) {
        let news = lock(&self.shared.status).last_error.replace(why.to_owned()).as_deref() != Some(why);
        let (coordinator, wait) = (self.member.identity().coordinator(), wait.as_secs_f64());
        if was_connected || news {
            tracing::warn!(%coordinator, why, "no link to the coordinator; going on alone, trying again in {wait:.1} s");
        } else {
            tracing::debug!(%coordinator, why, "no link to the coordinator; trying again in {wait:.1} s");
        }
    }

    async fn connect(&mut self) -> End {
        if *self.stop.borrow() {
            return End::Stopped;
        }
        match self.talk().await {
            Ok(()) => End::Stopped,
            Err(end) => end,
        }
    }

    async fn talk(&mut self) -> Result<(), End> {
        let mut dialled = self.member.connect().await.map_err(|error| match &error {
            ConnectError::OtherAuthority { .. } => End::Refused(error.to_string()),
            _ => End::Lost(causes::line(&error)),
        })?;
        if self.must_renew || self.renews_in().is_zero() {
            let had_to = std::mem::take(&mut self.must_renew);
            match self.member.renew(dialled.channel.clone()).await {
                Ok(()) => {
                    say_renewed(&self.member);
                    // This connection shows the older one, which may have expired.
                    dialled = self.member.connect().await.map_err(|error| End::Lost(causes::line(&error)))?;
                }
                // As long as the older one is good, the link goes on with it.
                Err(status) if had_to || is_final(&status) => return Err(status.into()),
                Err(status) => say_not_renewed(&status),
            }
        }
        let Dialled { channel, proxy } = dialled;
        let proxy = proxy.map(|proxy| proxy.to_string());
        let (to, outgoing) = mpsc::channel(64);
        let (document_version, document_content) = self.ask(Ask::Version).await?;
        let hello = Hello {
            protocol: PROTOCOL,
            agent_id: self.member.identity().agent_id().0.clone(),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            epoch: self.epoch.clone(),
            document_version,
            document_content,
            boot: self.process.boot.to_vec(),
            machine: self.process.machine.clone(),
        };
        send(&to, from_agent::Body::Hello(hello), None).await?;
        let late = |_| End::Lost(format!("no answer to the hello within {} s", HELLO.as_secs()));
        let mut client = FleetClient::new(channel.clone());
        let opened = timeout(HELLO, client.link(ReceiverStream::new(outgoing))).await.map_err(late)?;
        let mut stream = opened?.into_inner();
        let first = timeout(HELLO, stream.message()).await.map_err(late)??;
        let welcome = match first.and_then(|first| first.body) {
            Some(from_coordinator::Body::Welcome(welcome)) => welcome,
            Some(from_coordinator::Body::Copied(copied)) => {
                return self.separate(channel, copied.ticket).await;
            }
            _ => return Err(End::Lost("the coordinator's first message is no welcome".into())),
        };
        self.note_projects(&welcome).await;
        self.resume(&welcome, proxy).await?;
        self.exchange(&to, &mut stream, &welcome, channel).await
    }

    /// Another live process has this identity: this one becomes a host of its own.
    async fn separate(&self, channel: Channel, ticket: String) -> Result<(), End> {
        tracing::warn!(
            agent = %self.member.identity().agent_id(),
            "another agent with this identity is linked to the coordinator, as of a disk image that was copied: this one becomes \
             a host of its own, without the jobs that it has"
        );
        let separated = self.member.separate(channel, ticket, &self.process.hostname).await;
        separated.map_err(|status| match status.code() {
            // So many did lately.
            Code::ResourceExhausted => End::Refused(status.message().to_owned()),
            _ => status.into(),
        })?;
        self.engine.arrived(Arrived::Separated).await;
        Ok(())
    }

    /// Before any document that names them.
    async fn note_projects(&mut self, welcome: &Welcome) {
        let url = printable::line(&welcome.projects_url, limits::TEXT_BYTES);
        if let Err(error) = self.member.projects_are_at(&url, welcome.projects_behind_proxy) {
            tracing::warn!(
                error = causes::line(&error),
                "where the coordinator's projects are is not stored"
            );
        }
        let authority = self.member.identity().authority;
        let behind_proxy = welcome.projects_behind_proxy;
        self.engine.arrived(Arrived::ProjectsAt { url, behind_proxy, authority }).await;
    }

    async fn resume(&mut self, welcome: &Welcome, proxy: Option<String>) -> Result<(), End> {
        if welcome.protocol != PROTOCOL {
            return Err(End::Refused(format!(
                "the coordinator speaks version {} of the fleet protocol, this agent version {PROTOCOL}: bring both to the same release",
                welcome.protocol
            )));
        }
        let snapshot =
            lock(&self.shared.outbox).resume(welcome.epoch == self.epoch, welcome.applied_sequence);
        self.tell_heard().await;
        if snapshot {
            let keys = self.ask(Ask::Keys).await?;
            lock(&self.shared.outbox).restart(keys);
        } else if welcome.takes_disk && !self.takes_disk {
            // It was left out so far.
            lock(&self.shared.outbox).touch(EntryKey::Disk, Entity::Disk);
        }
        self.takes_disk = welcome.takes_disk;
        // What it was to be begun anew for was before this one.
        self.shared.anew.store(false, Ordering::Release);
        let mut status = lock(&self.shared.status);
        (status.connected, status.last_error, status.refused) = (true, None, false);
        status.proxy.clone_from(&proxy);
        tracing::info!(
            coordinator = self.member.identity().coordinator(), agent = %self.member.identity().agent_id(), proxy,
            applied = welcome.applied_sequence, snapshot, "linked to the coordinator"
        );
        Ok(())
    }

    async fn exchange(
        &mut self,
        to: &Sender<FromAgent>,
        stream: &mut Streaming<FromCoordinator>,
        welcome: &Welcome,
        channel: Channel,
    ) -> Result<(), End> {
        let micros = welcome.heartbeat_interval_micros.clamp(*INTERVAL.start(), *INTERVAL.end());
        let interval = Duration::from_micros(micros.unsigned_abs());
        // The coordinator's beats are answered: so the host wakes once for both. Not all of a flood are.
        // One's own go where the next of these is missing, twice before the coordinator is taken for gone.
        let step = limits::silence(interval).saturating_sub(interval) / (SILENT + 1);
        let alarm = Alarm::new();
        let (mut heard, mut beat_at) = (Instant::now(), Instant::now() + interval);
        let (mut last_beat, mut unheard) = (None, 0);
        let mut flush_at = Some(Instant::now());
        let mut waiting_since: Option<Instant> = None;
        let mut renewal = Renewal::due(Instant::now() + self.renews_in());
        let shared = Arc::clone(&self.shared);
        let mut stop = self.stop.clone();
        loop {
            let now = Instant::now;
            tokio::select! {
                message = stream.message() => {
                    let message = message?.ok_or_else(|| End::Lost("the coordinator closed the stream".into()))?;
                    (heard, unheard) = (Instant::now(), 0);
                    if let Some(from_coordinator::Body::Heartbeat(_)) = &message.body {
                        if last_beat.is_none_or(|at: Instant| at.elapsed() >= interval / 2) {
                            last_beat = Some(heard);
                            beat_at = heard + interval + step;
                            self.beat(to).await?;
                        }
                    } else if let Some(from_coordinator::Body::Probe(probe)) = &message.body {
                        // Whoever asks waits for it.
                        let answer = ProbeAnswer { number: probe.number };
                        send(to, from_agent::Body::ProbeAnswer(answer), None).await?;
                    } else if self.take(message).await {
                        waiting_since = None;
                        // There may be room for more now.
                        if lock(&shared.outbox).is_dirty() {
                            flush_at.get_or_insert(Instant::now());
                        }
                    }
                }
                () = shared.changed.notified() => {
                    if shared.anew.swap(false, Ordering::AcqRel) {
                        return Err(End::Lost("the host went back from a version of the document".into()));
                    }
                    if shared.woken.swap(false, Ordering::AcqRel) {
                        self.beat(to).await?;
                    }
                    let urgent = shared.urgent.swap(false, Ordering::AcqRel);
                    let at = Instant::now() + if urgent { Duration::ZERO } else { GATHER };
                    flush_at = Some(flush_at.map_or(at, |other: Instant| other.min(at)));
                }
                () = sleep_until(flush_at.unwrap_or_else(now)), if flush_at.is_some() => {
                    flush_at = None;
                    self.flush(to).await?;
                }
                () = alarm.after(beat_at.saturating_duration_since(now())) => {
                    let silence = heard.elapsed();
                    if unheard >= SILENT && silence >= limits::silence(interval).max(SILENT_MIN) {
                        return Err(End::Lost(format!("nothing came from the coordinator for {} s", silence.as_secs())));
                    }
                    self.beat(to).await?;
                    (beat_at, unheard) = (now() + step, unheard + 1);
                }
                // It is looked below.
                () = sleep_until(waiting_since.unwrap_or_else(now) + ACKNOWLEDGE), if waiting_since.is_some() => {}
                certificate = renewal.next(&self.member, &channel) => {
                    let renewed = match certificate {
                        Ok(certificate) => self.member.renewed(certificate).await,
                        Err(status) => Err(status),
                    };
                    let again = match renewed {
                        Ok(()) => {
                            say_renewed(&self.member);
                            // By the time that passes: a clock that is ahead would have it renewed at once
                            // again.
                            self.member.identity().says.renew_after().into()
                        }
                        Err(status) => {
                            say_not_renewed(&status);
                            RENEW_AGAIN
                        }
                    };
                    renewal = Renewal::due(Instant::now() + again);
                }
                () = stopped(&mut stop) => return self.farewell(to, stream).await,
            }
            if !lock(&shared.outbox).is_waiting() {
                waiting_since = None;
            } else if waiting_since.get_or_insert_with(Instant::now).elapsed() >= ACKNOWLEDGE {
                return Err(End::Lost(format!("nothing was acknowledged for {} s", ACKNOWLEDGE.as_secs())));
            }
        }
    }

    async fn beat(&mut self, to: &Sender<FromAgent>) -> Result<(), End> {
        let beat = Heartbeat { sent_at_micros: clock::now().as_micros() };
        send(to, from_agent::Body::Heartbeat(beat), None).await?;
        self.look_again().await;
        Ok(())
    }

    /// How long until the certificate is to be renewed.
    fn renews_in(&self) -> Duration {
        self.member.identity().renews_in(clock::now()).into()
    }

    /// Takes a message in. True if it acknowledged something.
    async fn take(&mut self, message: FromCoordinator) -> bool {
        let FromCoordinator { traceparent, body } = message;
        match body {
            Some(from_coordinator::Body::Acknowledge(acknowledge)) => {
                lock(&self.shared.outbox).acknowledge(acknowledge.sequence);
                self.tell_heard().await;
                return true;
            }
            Some(from_coordinator::Body::Received(received)) => {
                // Nothing is acknowledged by it: it does not keep up a link on which nothing is stored.
                lock(&self.shared.outbox).received(received.sequence);
                self.tell_heard().await;
            }
            Some(from_coordinator::Body::Document(document)) => self.offered(document, traceparent).await,
            Some(from_coordinator::Body::ContactProject(contact)) => match MasterUrl::parse(&contact.url) {
                Ok(url) => self.engine.arrived(Arrived::Contact(url)).await,
                Err(error) => tracing::warn!(%error, "the coordinator wants an unusable URL contacted"),
            },
            Some(
                from_coordinator::Body::Heartbeat(_)
                | from_coordinator::Body::Welcome(_)
                | from_coordinator::Body::Copied(_)
                | from_coordinator::Body::Probe(_),
            )
            | None => {
                tracing::debug!("a message of the coordinator that means nothing here");
            }
        }
        false
    }

    async fn offered(&mut self, mut document: Document, traceparent: String) {
        let kept = self.member.identity().trust.is_some().then(|| document.clone());
        let (version, signed) = (DocumentVersion(document.version), document.signed.take());
        let outcome = match document::from_wire(document) {
            Ok(sent) => self.believed(signed, sent).await,
            Err(bad) => Err(Disbelief::of(&bad)),
        };
        let is_untimely = outcome.as_ref().is_err_and(|why| why.is_untimely);
        self.untimely = kept.filter(|_| is_untimely);
        // The coordinator is told of it, and takes no longer texts.
        let outcome = outcome.map(Box::new);
        let outcome = outcome.map_err(|why| printable::line(&why.text, limits::TEXT_BYTES));
        self.engine.arrived(Arrived::Document { version, outcome, traceparent }).await;
    }

    /// What was refused for its time is looked at again: somebody may have set the clock.
    async fn look_again(&mut self) {
        let good = |document: &Document| {
            let trust = self.member.identity().trust.as_ref()?;
            let (signed, _) = signed::from_wire(document.signed.clone()?).ok()?;
            trust.accept(Some(&signed), clock::now()).ok()
        };
        if self.untimely.as_ref().and_then(good).is_some()
            && let Some(document) = self.untimely.take()
        {
            self.offered(document, String::new()).await;
        }
    }

    /// What the host follows of what was sent: all of it, or where an organisation has to sign documents,
    /// what that has signed; or why it does not.
    async fn believed(
        &mut self,
        signed: Option<SignedDocuments>,
        sent: FleetDocument,
    ) -> Result<FleetDocument, Disbelief> {
        let Some(trust) = self.member.identity().trust.clone() else { return Ok(sent) };
        let signed = signed.map(signed::from_wire).transpose().map_err(|error| Disbelief::of(&error))?;
        let (signed, given) = signed.unzip();
        let accepted = trust.accept(signed.as_ref(), clock::now());
        let accepted = accepted
            .map_err(|error| Disbelief { is_untimely: error.is_untimely(), ..Disbelief::of(&error) })?;
        let asked = self.ask(|reply| Ask::Entries(vec![(EntryKey::Host, Entity::Host)], reply)).await;
        let Entries { entries, .. } = asked.map_err(|_| Disbelief::of(&"the agent is about to end"))?;
        let host = entries.into_iter().find_map(|entry| match entry {
            Entry::Host(host) => Some(host),
            _ => None,
        });
        let facts = labels_of(self.member.identity().agent_id(), &host.unwrap_or_default());
        let labels = Labels::merged(&given.unwrap_or_default(), &Labels::default(), &facts);
        let document = accepted.document(&labels, &sent).map_err(|error| Disbelief::of(&error))?;
        self.member.trusts(accepted.trust).map_err(|error| Disbelief::of(&causes::line(&error)))?;
        Ok(document)
    }

    /// Tells the client that the coordinator has heard which document is followed.
    async fn tell_heard(&self) {
        let heard = lock(&self.shared.outbox).take_heard();
        if let Some(followed) = heard {
            self.engine.arrived(Arrived::Acknowledged(followed)).await;
        }
    }

    async fn flush(&self, to: &Sender<FromAgent>) -> Result<(), End> {
        loop {
            let Some(batch) = lock(&self.shared.outbox).take_next() else { return Ok(()) };
            let trace = lock(&self.shared.trace).take();
            let Batch { sequence, is_snapshot, keys, .. } = batch;
            let Entries { mut entries, mut removed } = self.ask(|reply| Ask::Entries(keys, reply)).await?;
            if !self.takes_disk {
                entries.retain(|entry| !matches!(entry, Entry::Disk(_)));
                removed.retain(|key| *key != EntryKey::Disk);
            }
            for entry in &mut entries {
                if let (Entry::Host(host), Some(trust)) = (entry, &self.member.identity().trust) {
                    host.organisation.clone_from(&trust.keys);
                }
            }
            if let Some(follows) = entries.iter().find_map(followed) {
                lock(&self.shared.outbox).says(sequence, follows);
            }
            let entries = entries.iter().map(entry::to_wire).collect();
            let body = if is_snapshot {
                from_agent::Body::Snapshot(Snapshot { sequence, entries })
            } else {
                let removed = removed.iter().map(entry_key::to_wire).collect();
                from_agent::Body::Delta(Delta { sequence, entries, removed })
            };
            send(to, body, trace).await?;
        }
    }

    /// The last words before a clean end, and a moment for them to be heard.
    async fn farewell(
        &mut self,
        to: &Sender<FromAgent>,
        stream: &mut Streaming<FromCoordinator>,
    ) -> Result<(), End> {
        let _ = timeout(Duration::from_secs(1), async {
            self.flush(to).await?;
            while lock(&self.shared.outbox).is_waiting() {
                match stream.message().await {
                    Ok(Some(message)) => drop(self.take(message).await),
                    _ => break,
                }
            }
            Ok::<(), End>(())
        })
        .await;
        Ok(())
    }

    async fn ask<T>(&self, ask: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Result<T, End> {
        let (reply, answer) = oneshot::channel();
        self.engine.ask(ask(reply)).await;
        // The engine ends only with the agent.
        answer.await.map_err(|_| End::Stopped)
    }
}

/// A certificate that is not renewed while the link stands: asked for by the link's own connection, beside
/// what is said on the link.
enum Renewal {
    /// It is asked for at this time.
    At(Instant),
    /// It is asked for.
    Asked(JoinHandle<Result<Vec<u8>, Status>>),
}

impl Renewal {
    const fn due(at: Instant) -> Self {
        Self::At(at)
    }

    /// What came of it.
    async fn next(&mut self, member: &Membership, channel: &Channel) -> Result<Vec<u8>, Status> {
        if let Self::At(at) = self {
            sleep_until(*at).await;
            let (member, channel) = (member.clone(), channel.clone());
            *self = Self::Asked(tokio::spawn(async move { member.newer_certificate(channel).await }));
        }
        match self {
            Self::Asked(asked) => asked.await.unwrap_or_else(|died| Err(Status::internal(died.to_string()))),
            Self::At(_) => std::future::pending().await,
        }
    }
}

/// What an entry says that the host follows, if it is the host's.
fn followed(entry: &Entry) -> Option<Followed> {
    let Entry::Host(host) = entry else { return None };
    Some(Followed { version: host.document_version, taken_at: host.document_applied_at })
}

fn say_renewed(member: &Membership) {
    let until = member.identity().says.not_after.as_secs_f64();
    tracing::info!(serial = member.identity().says.serial, until, "the agent's certificate was renewed");
}

fn say_not_renewed(status: &Status) {
    tracing::warn!(why = status.message(), "the agent's certificate was not renewed; it is tried again");
}

/// Whether asking for the link makes no sense after this answer.
fn is_final(status: &Status) -> bool {
    matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated)
}

/// Waits until it is said to stop, or nobody is left who could say so.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|&stop| stop).await;
}

async fn send(to: &Sender<FromAgent>, body: from_agent::Body, trace: Option<String>) -> Result<(), End> {
    let message = FromAgent { traceparent: trace.unwrap_or_default(), body: Some(body) };
    to.send(message).await.map_err(|_| End::Lost("the coordinator takes no more".into()))
}
