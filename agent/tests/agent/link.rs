//! The fleet link through a real gRPC server that plays the coordinator.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fallow_daemon::clock;
use fallow_domain::AgentId;
use fallow_fleet::{DocumentSet, Groups, KeyPair, Statement, content_of, signed_form};
use fallow_proto::PROTOCOL;
use fallow_proto::fleet::v1::fleet_server::{Fleet, FleetServer};
use fallow_proto::fleet::v1::{
    Acknowledge, Copied, Document, EnrollReply, EnrollRequest, Entry, FromAgent, FromCoordinator, Heartbeat,
    Hello, Preferences, ProjectAssignment, Received, RenewReply, RenewRequest, SeparateReply,
    SeparateRequest, SuspendedBy, Welcome, entry, from_agent, from_coordinator,
};
use fallow_tls::{AccessString, Authority, CoordinatorCertificate, Peer, Purpose};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::support::{PATIENCE, agent};

type Out = mpsc::Sender<Result<FromCoordinator, Status>>;

/// What the coordinator holds of the one agent.
#[derive(Default)]
pub(crate) struct Held {
    /// The agent's present id ends so; those before it are told that they are copies.
    pub(crate) copies: u32,
    /// Of hosts that copies have become, the keys.
    pub(crate) separated: Vec<fallow_tls::Fingerprint>,
    /// Messages are applied, and not acknowledged.
    pub(crate) is_silent: bool,
    /// The disk is full: messages are not applied, and it is only said that they came.
    pub(crate) is_full: bool,
    /// Of the messages that came then, the entries.
    pub(crate) unstored: Vec<Entry>,
    /// What it said to who asked whether it is there.
    pub(crate) probe_answers: Vec<u64>,
    epoch: String,
    applied: u64,
    pub(crate) entries: BTreeMap<String, Entry>,
    /// What was decided about disks is taken, and how often it came.
    pub(crate) takes_disk: bool,
    pub(crate) disk_told: u32,
    pub(crate) snapshots: u32,
    /// By how much the sequence of the last snapshot was beyond what was applied; none for a host that begins
    /// anew.
    beyond: Option<u64>,
    pub(crate) hellos: Vec<Hello>,
    pub(crate) heartbeats: u32,
    /// In microseconds; 0 for `BEAT`.
    heartbeat_interval: i64,
    /// It sends no heartbeats, as if it had gone without a word.
    is_mute: bool,
    /// How often the certificate was renewed, and the life of those that are made; 0 for an hour.
    renewals: u32,
    life: fallow_domain::Duration,
    /// Newer certificates are made, and not handed out yet.
    keeps_certificates: bool,
    traces: Vec<String>,
    out: Option<Out>,
    talk: Option<tokio::task::AbortHandle>,
}

#[derive(Clone)]
pub(crate) struct Coordinator(pub(crate) Arc<Mutex<Held>>, Arc<Authority>);

impl Default for Coordinator {
    fn default() -> Self {
        let (authority, ..) = Authority::create(clock::now()).unwrap();
        Self(Arc::default(), Arc::new(authority))
    }
}

/// What tokens are for: of these texts, as secrets, the first is taken.
pub(crate) const GOOD: &str = "1";
const SPENT: &str = "2";

pub(crate) fn token(coordinator: &Coordinator, address: SocketAddr, digit: &str) -> String {
    let access = AccessString {
        purpose: Purpose::Enrolment,
        addresses: vec![address.to_string().parse().unwrap()],
        authority: coordinator.1.fingerprint(),
        secret: digit.repeat(64),
        organisation: Vec::new(),
    };
    access.reveal()
}

impl Coordinator {
    pub(crate) async fn serve(
        &self,
        address: Option<SocketAddr>,
    ) -> (SocketAddr, tokio::task::JoinHandle<()>) {
        let address = address.unwrap_or_else(|| ([127, 0, 0, 1], 0).into());
        let end = Instant::now() + PATIENCE;
        // A port that was left may be that of somebody's connection for a moment.
        let listener = loop {
            match tokio::net::TcpListener::bind(address).await {
                Ok(listener) => break listener,
                Err(error) => assert!(Instant::now() < end, "{address}: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        let address = listener.local_addr().unwrap();
        let service = FleetServer::new(self.clone());
        let life = fallow_domain::Duration::from_hours(1);
        let shown = CoordinatorCertificate::issue(&self.1, &[], clock::now(), life).unwrap();
        let tls = fallow_tls::server_config(&self.1, Arc::new(shown)).unwrap();
        let incoming = crate::incoming::incoming(listener, tls);
        let serving = tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming);
        (address, tokio::spawn(async move { serving.await.unwrap() }))
    }

    pub(crate) fn authority(&self) -> fallow_tls::Fingerprint {
        self.1.fingerprint()
    }

    fn certificate(&self, request: &[u8]) -> Vec<u8> {
        let life = self.0.lock().unwrap().life;
        let life = if life.is_positive() { life } else { fallow_domain::Duration::from_hours(1) };
        let agent = self.0.lock().unwrap().agent();
        self.1.issue_host(request, &AgentId(agent), clock::now(), life).unwrap().der
    }

    /// From now on the agent's identity is another process's: its link ends.
    pub(crate) fn is_copied(&self) {
        let mut held = self.0.lock().unwrap();
        held.copies += 1;
        held.lose();
    }

    pub(crate) async fn send(&self, body: from_coordinator::Body, traceparent: &str) {
        let out = self.0.lock().unwrap().out.clone().unwrap();
        out.send(Ok(FromCoordinator { traceparent: traceparent.into(), body: Some(body) })).await.unwrap();
    }

    pub(crate) async fn until<T>(&self, what: &str, mut look: impl FnMut(&Held) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look(&self.0.lock().unwrap()) {
                return found;
            }
            assert!(Instant::now() < end, "waited for {what}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The number of a report that comes when the disk is full.
    fn leave_unstored(&self, message: &FromAgent) -> Option<u64> {
        let mut held = self.0.lock().unwrap();
        let (sequence, entries) = match message.body.as_ref()? {
            from_agent::Body::Snapshot(snapshot) => (snapshot.sequence, &snapshot.entries),
            from_agent::Body::Delta(delta) => (delta.sequence, &delta.entries),
            _ => return None,
        };
        held.is_full.then(|| {
            held.unstored.extend_from_slice(entries);
            sequence
        })
    }

    fn take(&self, message: FromAgent) -> Option<u64> {
        let mut held = self.0.lock().unwrap();
        if !message.traceparent.is_empty() {
            held.traces.push(message.traceparent);
        }
        let of_disk = match message.body.as_ref()? {
            from_agent::Body::Snapshot(snapshot) => snapshot.entries.iter().any(|one| one.key == "disk"),
            from_agent::Body::Delta(delta) => {
                delta.entries.iter().any(|one| one.key == "disk")
                    || delta.removed.contains(&"disk".to_owned())
            }
            _ => false,
        };
        assert!(held.takes_disk || !of_disk, "an older coordinator refuses that");
        held.disk_told += u32::from(of_disk);
        match message.body? {
            from_agent::Body::Snapshot(snapshot) => {
                held.snapshots += 1;
                held.beyond = snapshot.sequence.checked_sub(held.applied);
                held.entries = snapshot.entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
                held.applied = snapshot.sequence;
            }
            from_agent::Body::Delta(delta) => {
                assert_eq!(delta.sequence, held.applied + 1, "no delta is skipped");
                held.entries.extend(delta.entries.into_iter().map(|entry| (entry.key.clone(), entry)));
                delta.removed.iter().for_each(|key| drop(held.entries.remove(key)));
                held.applied = delta.sequence;
            }
            from_agent::Body::Heartbeat(_) => {
                held.heartbeats += 1;
                return None;
            }
            from_agent::Body::ProbeAnswer(answer) => {
                held.probe_answers.push(answer.number);
                return None;
            }
            from_agent::Body::Hello(_) => panic!("a second hello"),
        }
        Some(held.applied)
    }
}

#[tonic::async_trait]
impl Fleet for Coordinator {
    async fn enroll(&self, request: Request<EnrollRequest>) -> Result<Response<EnrollReply>, Status> {
        let EnrollRequest { token, certificate_request, .. } = request.into_inner();
        if token != GOOD.repeat(64) {
            return Err(Status::permission_denied("this token is spent"));
        }
        Ok(Response::new(EnrollReply {
            agent_id: "agent-1".into(),
            certificate: self.certificate(&certificate_request),
        }))
    }

    async fn renew(&self, request: Request<RenewRequest>) -> Result<Response<RenewReply>, Status> {
        let certificate = self.certificate(&request.into_inner().certificate_request);
        self.0.lock().unwrap().renewals += 1;
        while self.0.lock().unwrap().keeps_certificates {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(Response::new(RenewReply { certificate }))
    }

    async fn separate(&self, request: Request<SeparateRequest>) -> Result<Response<SeparateReply>, Status> {
        let SeparateRequest { ticket, certificate_request, hostname } = request.into_inner();
        assert!(ticket == "a ticket" && !hostname.is_empty());
        let certificate = self.certificate(&certificate_request);
        let key = Authority::key_in(&certificate_request).unwrap();
        let mut held = self.0.lock().unwrap();
        if !held.separated.contains(&key) {
            held.separated.push(key);
        }
        Ok(Response::new(SeparateReply { agent_id: held.agent(), certificate }))
    }

    type LinkStream = ReceiverStream<Result<FromCoordinator, Status>>;

    async fn link(
        &self,
        request: Request<Streaming<FromAgent>>,
    ) -> Result<Response<Self::LinkStream>, Status> {
        let peer = request.extensions().get::<Arc<Peer>>().cloned();
        let Some(Peer::Host(shown)) = peer.as_deref() else { return Err(Status::unauthenticated("who?")) };
        let mut incoming = request.into_inner();
        let Some(FromAgent { body: Some(from_agent::Body::Hello(hello)), .. }) = incoming.message().await?
        else {
            return Err(Status::invalid_argument("no hello"));
        };
        assert_eq!(hello.agent_id, shown.agent.0);
        let (out, stream) = mpsc::channel(16);
        if hello.agent_id != self.0.lock().unwrap().agent() {
            self.0.lock().unwrap().hellos.push(hello);
            let body = Some(from_coordinator::Body::Copied(Copied { ticket: "a ticket".into() }));
            out.send(Ok(FromCoordinator { traceparent: String::new(), body })).await.unwrap();
            return Ok(Response::new(ReceiverStream::new(stream)));
        }
        let welcome = {
            let mut held = self.0.lock().unwrap();
            let welcome = Welcome {
                projects_url: String::new(),
                projects_behind_proxy: false,
                takes_disk: held.takes_disk,
                protocol: PROTOCOL,
                epoch: held.epoch.clone(),
                applied_sequence: held.applied,
                heartbeat_interval_micros: match held.heartbeat_interval {
                    0 => i64::try_from(BEAT.as_micros()).unwrap(),
                    micros => micros,
                },
            };
            held.epoch.clone_from(&hello.epoch);
            held.hellos.push(hello);
            welcome
        };
        let body = Some(from_coordinator::Body::Welcome(welcome));
        out.send(Ok(FromCoordinator { traceparent: String::new(), body })).await.unwrap();
        self.0.lock().unwrap().out = Some(out.clone());
        let this = self.clone();
        let talk = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(BEAT);
            loop {
                let message = tokio::select! {
                    message = incoming.message() => message,
                    _ = ticks.tick() => {
                        if !this.0.lock().unwrap().is_mute {
                            // Where the agent does not take it, it gets the next one.
                            let _ = out.try_send(Ok(beat()));
                        }
                        continue;
                    }
                };
                let Ok(Some(message)) = message else { return };
                if let Some(sequence) = this.leave_unstored(&message) {
                    let body = Some(from_coordinator::Body::Received(Received { sequence }));
                    let _ = out.send(Ok(FromCoordinator { traceparent: String::new(), body })).await;
                } else if let Some(sequence) = this.take(message)
                    && !this.0.lock().unwrap().is_silent
                {
                    let body = Some(from_coordinator::Body::Acknowledge(Acknowledge { sequence }));
                    let _ = out.send(Ok(FromCoordinator { traceparent: String::new(), body })).await;
                }
            }
        });
        self.0.lock().unwrap().talk = Some(talk.abort_handle());
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

impl Held {
    /// The link is gone.
    pub(crate) fn lose(&mut self) {
        self.out = None;
        if let Some(talk) = self.talk.take() {
            talk.abort();
        }
    }

    pub(crate) fn agent(&self) -> String {
        format!("agent-{}", self.copies + 1)
    }
}

/// How often it sends heartbeats.
const BEAT: Duration = Duration::from_millis(200);

fn beat() -> FromCoordinator {
    let body = Some(from_coordinator::Body::Heartbeat(Heartbeat { sent_at_micros: 1 }));
    FromCoordinator { traceparent: String::new(), body }
}

pub(crate) struct Agent(pub(crate) Child);

impl Agent {
    pub(crate) fn start(dir: &std::path::Path, token: &str) -> Self {
        Self::start_with(dir, token, &[])
    }

    pub(crate) fn start_with(dir: &std::path::Path, token: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(agent());
        command.arg("run").arg("--dir").arg(dir).args(arguments);
        command.env("FALLOW_TOKEN", token).env_remove("OTEL_EXPORTER_OTLP_ENDPOINT");
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn document(version: u64, share: f64) -> from_coordinator::Body {
    from_coordinator::Body::Document(Document {
        signed: None,
        version,
        content: format!("c{version}"),
        projects: vec![ProjectAssignment {
            name: "p".into(),
            url: "http://127.0.0.1:9/p/".into(),
            account_key: "0123456789abcdef0123456789abcdef".into(),
            share,
            code_sign_key: String::new(),
            without: Vec::new(),
        }],
        preferences: Some(Preferences {
            cpu_fraction: 1.0,
            cpu_time_fraction: 1.0,
            buffer_min_micros: 60_000_000,
            buffer_additional_micros: 30_000_000,
            scheduling_period_micros: 15_000_000,
            checkpoint_period_micros: 5_000_000,
            leave_in_memory: true,
            suspended: false,
            memory_fraction: 0.9,
            disk_fraction: 0.9,
            disk_free_min_bytes: 0,
            connection_interval_micros: 0,
            excluded_devices: Vec::new(),
            hours: String::new(),
            run_in_use: false,
            run_gpu_in_use: false,
            idle_after_micros: 0,
            required_layers: Vec::new(),
            jobs_network: None,
            local: None,
        }),
    })
}

pub(crate) fn host(held: &Held) -> Option<fallow_proto::fleet::v1::HostState> {
    host_of(held.entries.get("host")?)
}

pub(crate) fn host_of(entry: &Entry) -> Option<fallow_proto::fleet::v1::HostState> {
    match entry.value.clone()? {
        entry::Value::Host(host) => Some(*host),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_3_an_agent_enrols_reports_applies_documents_and_resumes_after_a_loss() {
    let (dir, coordinator) = (tempfile::tempdir().unwrap(), Coordinator::default());
    let (address, serving) = coordinator.serve(None).await;
    let process = Agent::start(dir.path(), &token(&coordinator, address, GOOD));
    let cpus = coordinator.until("the snapshot", |held| host(held).map(|host| host.cpus)).await;
    assert!(cpus > 0);
    coordinator.until("heartbeats", |held| (held.heartbeats >= 2).then_some(())).await;

    // A good document is followed within a second, and the agent says so. Something else on this machine may
    // hold one of them up, but not one after the other.
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let follows = |version| move |held: &Held| (host(held)?.document_version == version).then_some(());
    let mut good = 0;
    loop {
        good += 1;
        let sent = Instant::now();
        coordinator.send(document(good, 75.0), trace).await;
        coordinator.until("the version", follows(good)).await;
        if sent.elapsed() < Duration::from_secs(1) {
            break;
        }
        assert!(good < 30, "each takes longer than a second");
    }
    coordinator
        .until("the project", |held| held.entries.get("project/http://127.0.0.1:9/p/").map(drop))
        .await;

    // A bad one is refused, with the reason; the good one stays.
    coordinator.send(document(good + 1, -1.0), "not a trace").await;
    let refused = coordinator
        .until("the refusal", |held| host(held).filter(|host| host.document_refused_version == good + 1))
        .await;
    assert!(refused.document_version == good && refused.document_refusal.contains("share"), "{refused:?}");

    // The coordinator goes and comes back with what it had stored: no second snapshot, nothing skipped.
    serving.abort();
    let _ = serving.await;
    {
        let mut held = coordinator.0.lock().unwrap();
        held.out = None;
        held.talk.take().unwrap().abort();
    }
    let (_, serving) = coordinator.serve(Some(address)).await;
    coordinator.until("a new link", |held| held.out.as_ref().map(drop)).await;
    coordinator.send(document(good + 2, 25.0), "").await;
    coordinator.until("the last version", follows(good + 2)).await;
    {
        let held = coordinator.0.lock().unwrap();
        assert_eq!((held.snapshots, held.hellos.len()), (1, 2));
        assert_eq!(held.hellos[1].document_version, good);
        assert_eq!(held.hellos[1].document_content, format!("c{good}"));
    }

    // Another life of the agent begins with a snapshot behind what was applied; it needs no token any more.
    drop(process);
    coordinator.0.lock().unwrap().entries.insert("task/stale".into(), Entry::default());
    let _process = Agent::start(dir.path(), "");
    coordinator.until("a second snapshot", |held| (held.snapshots == 2).then_some(())).await;
    {
        let held = coordinator.0.lock().unwrap();
        assert_eq!(held.beyond, Some(1));
        assert!(!held.entries.contains_key("task/stale"), "a snapshot replaces everything");
        assert_eq!(held.hellos[2].document_version, good + 2, "the document is kept");
        assert_eq!(held.hellos[2].document_content, format!("c{}", good + 2));
    }
    serving.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_10_a_document_that_requires_a_layer_suspends_hosts_that_lack_it_and_they_say_so() {
    let (dir, coordinator) = (tempfile::tempdir().unwrap(), Coordinator::default());
    let (address, _serving) = coordinator.serve(None).await;
    let token = token(&coordinator, address, GOOD);
    let _process = Agent::start_with(dir.path(), &token, &["--without-layers", "files"]);
    let required = |version, layers: &[&str]| {
        let from_coordinator::Body::Document(mut document) = document(version, 75.0) else { unreachable!() };
        let preferences = document.preferences.as_mut().unwrap();
        preferences.required_layers = layers.iter().map(ToString::to_string).collect();
        from_coordinator::Body::Document(document)
    };
    coordinator.until("the snapshot", |held| host(held).map(drop)).await;
    for (version, layers, by) in [
        (1, &["privileges"][..], SuspendedBy::Unspecified),
        (2, &["privileges", "files"], SuspendedBy::Confinement),
        (3, &["newer"], SuspendedBy::Confinement),
        (4, &[], SuspendedBy::Unspecified),
    ] {
        coordinator.send(required(version, layers), "").await;
        let is_so = |held: &Held| {
            let host = host(held)?;
            (host.document_version == version && host.suspended() == by).then_some(())
        };
        coordinator.until(&format!("{layers:?}"), is_so).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_3_a_heartbeat_is_answered_by_one_and_a_flood_of_them_by_no_more() {
    let (dir, coordinator) = (tempfile::tempdir().unwrap(), Coordinator::default());
    {
        let mut held = coordinator.0.lock().unwrap();
        (held.is_mute, held.heartbeat_interval) = (true, 600_000_000);
    }
    let (address, _serving) = coordinator.serve(None).await;
    let _process = Agent::start(dir.path(), &token(&coordinator, address, GOOD));
    let out = coordinator.until("the link", |held| held.out.clone()).await;
    for _ in 0..50 {
        out.send(Ok(beat())).await.unwrap();
    }
    coordinator.send(document(1, 75.0), "").await;
    let follows = |held: &Held| (host(held)?.document_version == 1).then_some(held.heartbeats);
    assert_eq!(coordinator.until("what came after them", follows).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_3_a_coordinator_that_has_gone_without_a_word_is_noticed_and_looked_for() {
    let (dir, coordinator) = (tempfile::tempdir().unwrap(), Coordinator::default());
    let (address, _serving) = coordinator.serve(None).await;
    let _process = Agent::start(dir.path(), &token(&coordinator, address, GOOD));
    coordinator.until("heartbeats", |held| (held.heartbeats >= 5).then_some(())).await;
    let before = {
        let mut held = coordinator.0.lock().unwrap();
        held.is_mute = true;
        held.hellos.len()
    };
    coordinator.until("another link", |held| (held.hellos.len() > before).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spent_token_is_refused_with_exit_code_5() {
    let (dir, coordinator) = (tempfile::tempdir().unwrap(), Coordinator::default());
    let (address, _serving) = coordinator.serve(None).await;
    let mut process = Agent::start(dir.path(), &token(&coordinator, address, SPENT));
    let ended = timeout(PATIENCE, async {
        loop {
            if let Some(status) = process.0.try_wait().unwrap() {
                return status.code();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert_eq!(ended.await.unwrap(), Some(5));
    assert!(!dir.path().join("identity.json").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_is_no_coordinators_is_said_to_be_so_also_to_an_agent_that_is_enrolled() {
    let dir = tempfile::tempdir().unwrap();
    // As the port of the projects answers whoever speaks TLS there.
    let projects = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at_projects = projects.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in projects.incoming().flatten() {
            let _ = stream.read(&mut [0; 2_048]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let at = |arguments: &[&str]| {
        let all: Vec<&str> =
            ["run", "--coordinator", &at_projects].iter().chain(arguments).copied().collect();
        let (dir, all) = (dir.path().to_owned(), all.into_iter().map(str::to_owned).collect::<Vec<_>>());
        tokio::task::spawn_blocking(move || {
            crate::daemon::outcome(&dir, &all.iter().map(String::as_str).collect::<Vec<_>>())
        })
    };
    let coordinator = Coordinator::default();
    let any = token(&coordinator, ([127, 0, 0, 1], 9).into(), GOOD);
    let (code, text) = at(&["--token", &any]).await.unwrap();
    assert!(code == 4 && text.contains("not a coordinator's gRPC port"), "{code}: {text}");
    assert!(!dir.path().join("identity.json").exists());

    let (address, _serving) = coordinator.serve(None).await;
    let process = Agent::start(dir.path(), &token(&coordinator, address, GOOD));
    coordinator.until("the snapshot", |held| host(held).map(drop)).await;
    drop(process);
    let before = std::fs::read(dir.path().join("identity.json")).unwrap();
    let (code, text) = at(&[]).await.unwrap();
    assert!(code == 4 && text.contains("not a coordinator's gRPC port"), "{code}: {text}");
    assert_eq!(std::fs::read(dir.path().join("identity.json")).unwrap(), before);
}

#[test]
fn nobody_at_the_coordinators_address_is_said_once_and_then_exit_code_4() {
    let dir = tempfile::tempdir().unwrap();
    let any = token(&Coordinator::default(), ([127, 0, 0, 1], 9).into(), GOOD);
    let (code, text) = crate::daemon::outcome(dir.path(), &["run", "--token", &any]);
    assert!(code == 4 && text.contains("check that it runs"), "{code}: {text}");
    assert_eq!(text.matches("does not answer yet").count(), 1, "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_a_fleet_that_lost_its_identity_says_so_and_goes_on_with_a_new_token() {
    let (dir, coordinator) = (tempfile::tempdir().unwrap(), Coordinator::default());
    let (address, _serving) = coordinator.serve(None).await;
    let process = Agent::start(dir.path(), &token(&coordinator, address, GOOD));
    coordinator.until("the snapshot", |held| host(held).map(drop)).await;
    coordinator.send(document(1, 75.0), "").await;
    coordinator.until("version 1", |held| (host(held)?.document_version == 1).then_some(())).await;
    drop(process);
    std::fs::remove_file(dir.path().join("identity.json")).unwrap();
    for _ in 0..2 {
        let path = dir.path().to_owned();
        let run = tokio::task::spawn_blocking(move || crate::daemon::outcome(&path, &["run"]));
        let (code, text) = run.await.unwrap();
        assert!(code == 7 && text.contains("identity.json is missing"), "{code}: {text}");
        assert!(text.contains("restore it") && text.contains("--token-file"), "{text}");
    }
    let hellos = coordinator.0.lock().unwrap().hellos.len();
    let _process = Agent::start(dir.path(), &token(&coordinator, address, GOOD));
    coordinator.until("another link", |held| (held.hellos.len() > hellos).then_some(())).await;
    assert_eq!(coordinator.0.lock().unwrap().hellos[hellos].document_version, 1, "the rest is kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_10_an_agent_renews_its_certificate_under_the_link_and_shows_the_newest_when_it_connects_again() {
    let (dir, coordinator) = (tempfile::tempdir().unwrap(), Coordinator::default());
    coordinator.0.lock().unwrap().life = fallow_domain::Duration::from_secs(6);
    let (address, serving) = coordinator.serve(None).await;
    let _process = Agent::start(dir.path(), &token(&coordinator, address, GOOD));
    coordinator.until("the snapshot", |held| host(held).map(drop)).await;
    coordinator.until("two renewals", |held| (held.renewals >= 2).then_some(())).await;
    assert_eq!(coordinator.0.lock().unwrap().hellos.len(), 1, "no other connection was needed");
    // The newest is on the disk, too.
    let text = std::fs::read_to_string(dir.path().join("identity.json")).unwrap();
    assert!(text.contains("\"certificate\""), "{text}");
    serving.abort();
    let _ = serving.await;
    {
        let mut held = coordinator.0.lock().unwrap();
        held.out = None;
        held.talk.take().unwrap().abort();
    }
    let (_, serving) = coordinator.serve(Some(address)).await;
    coordinator.until("a new link", |held| held.out.as_ref().map(drop)).await;
    serving.abort();
}

/// The first key of RFC 8032, section 7.1.
fn organisation() -> KeyPair {
    let seed = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
    let der = fallow_domain::from_hex(&format!("302e020100300506032b657004220420{seed}")).unwrap();
    KeyPair::from_der(&der).unwrap()
}

/// A document of one project, signed so many seconds from now.
fn signed(coordinator: &Coordinator, version: u64, share: f64, seconds: i64) -> from_coordinator::Body {
    let from_coordinator::Body::Document(mut sent) = document(version, share) else { unreachable!() };
    let fleet = fallow_proto::fleet::document::from_wire(sent.clone()).unwrap();
    let documents = signed_form(&DocumentSet { fleet, groups: Groups::default() }).unwrap();
    let signed_at = clock::now() + fallow_domain::Duration::from_secs(seconds);
    let statement = Statement {
        authority: coordinator.authority().to_string(),
        content: content_of(&documents),
        before: None,
        keys: vec![organisation().public()],
        signed_at,
        good_until: signed_at + fallow_domain::Duration::from_hours(1),
    };
    let signed = organisation().sign(&statement, &documents);
    sent.signed = Some(fallow_proto::fleet::signed::to_wire(&signed, &fallow_domain::Labels::default()));
    from_coordinator::Body::Document(sent)
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_10_a_certificate_that_comes_late_does_not_bring_back_what_the_host_believed_when_it_was_asked_for()
 {
    let (dir, coordinator) = (tempfile::tempdir().unwrap(), Coordinator::default());
    {
        let mut held = coordinator.0.lock().unwrap();
        (held.life, held.keeps_certificates) = (fallow_domain::Duration::from_secs(6), true);
    }
    let (address, serving) = coordinator.serve(None).await;
    let key = organisation().public().to_string();
    let token = token(&coordinator, address, GOOD);
    let _process = Agent::start_with(dir.path(), &token, &["--organisation-key", &key]);
    coordinator.until("the snapshot", |held| host(held).map(drop)).await;
    coordinator.until("a renewal", |held| (held.renewals == 1).then_some(())).await;
    coordinator.send(signed(&coordinator, 2, 20.0, 0), "").await;
    coordinator.until("it follows", |held| (host(held)?.document_version == 2).then_some(())).await;
    coordinator.0.lock().unwrap().keeps_certificates = false;
    coordinator.until("the next renewal", |held| (held.renewals == 2).then_some(())).await;
    // What was signed before that.
    coordinator.send(signed(&coordinator, 3, 30.0, -60), "").await;
    let refusal = coordinator.until("an answer", |held| {
        let host = host(held)?;
        (host.document_refused_version == 3 || host.document_version == 3).then_some(host.document_refusal)
    });
    let refusal = refusal.await;
    assert!(refusal.contains("has followed some that were signed at"), "{refusal:?}");
    serving.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_10_what_was_refused_for_its_time_is_followed_when_its_time_has_come() {
    let (dir, coordinator) = (tempfile::tempdir().unwrap(), Coordinator::default());
    let (address, serving) = coordinator.serve(None).await;
    let key = organisation().public().to_string();
    let token = token(&coordinator, address, GOOD);
    let _process = Agent::start_with(dir.path(), &token, &["--organisation-key", &key]);
    coordinator.until("the snapshot", |held| host(held).map(drop)).await;
    // Two days ahead is the most that is taken.
    coordinator.send(signed(&coordinator, 2, 20.0, 2 * 86_400 + 4), "").await;
    let refused = coordinator.until("a refusal", |held| {
        host(held).filter(|host| host.document_refused_version == 2).map(|host| host.document_refusal)
    });
    let refused = refused.await;
    assert!(refused.contains("set the clock of this host"), "{refused}");
    coordinator.until("it follows", |held| (host(held)?.document_version == 2).then_some(())).await;
    serving.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_10_an_agent_enrols_with_no_coordinator_but_that_of_its_token_and_tells_it_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (Coordinator::default(), Coordinator::default());
    let (address, _serving) = theirs.serve(None).await;
    let misled = token(&ours, address, GOOD);
    let path = dir.path().to_owned();
    let run =
        tokio::task::spawn_blocking(move || crate::daemon::outcome(&path, &["run", "--token", &misled]));
    let (code, text) = run.await.unwrap();
    assert!(code == 5 && text.contains("is of another authority"), "{code}: {text}");
    assert!(!dir.path().join("identity.json").exists());
    assert!(theirs.0.lock().unwrap().hellos.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_10_a_token_of_another_fleet_does_not_move_an_agent_without_a_word() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (Coordinator::default(), Coordinator::default());
    let (address, _serving) = ours.serve(None).await;
    let (other, _serving_other) = theirs.serve(None).await;
    let process = Agent::start(dir.path(), &token(&ours, address, GOOD));
    ours.until("the snapshot", |held| host(held).map(drop)).await;
    drop(process);
    let before = std::fs::read(dir.path().join("identity.json")).unwrap();
    let (path, token) = (dir.path().to_owned(), token(&theirs, other, GOOD));
    let run = tokio::task::spawn_blocking(move || crate::daemon::outcome(&path, &["run", "--token", &token]));
    let (code, text) = run.await.unwrap();
    assert!(code == 3 && text.contains("host of another fleet"), "{code}: {text}");
    assert_eq!(std::fs::read(dir.path().join("identity.json")).unwrap(), before);
    assert!(theirs.0.lock().unwrap().hellos.is_empty());
}
