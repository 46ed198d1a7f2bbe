//! From the start of the agent to its end.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration as StdDuration;

use fallow_boinc::app_config::APP_CONFIG;
use fallow_boinc::scheduler::ClientVersion;
use fallow_client::{Benchmarks, Client, ClientConfig, Event, FileKey, Startup};
use fallow_daemon::clock;
use fallow_daemon::file_lock::FileLock;
use fallow_domain::{
    Bytes, Coprocessor, DocumentVersion, Duration, HostFacts, HostSpeed, OrganisationKey, Virtualization,
};
use fallow_fleet::SIGNED_KEYS_MAX;
use fallow_policy::composition::Composition;
use fallow_tls::{AccessString, Address, Proxies};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval_at, sleep, timeout, timeout_at};

use super::benchmark::{Benchmark, Turn};
use super::gpus::{self, Gpus};
use super::metrics::Metrics;
use super::{Asked, Engine, Input, QUEUE, ToEngine};
use crate::confine::{self, Allowed, Confinement, Layer};
use crate::control::people;
use crate::control::places::Peers;
use crate::control::protocol::Request;
use crate::control::server::{self, Door};
use crate::dir::{DataDir, PARTIAL};
use crate::error::AgentError;
use crate::fleet::identity::Identity;
use crate::fleet::link::Link;
use crate::fleet::membership::{self, Membership};
use crate::fleet::process::Process;
use crate::fleet::separation::{self, Separated};
use crate::guard::GuardHandle;
use crate::host::alarm::Alarm;
use crate::host::clock_set::ClockSet;
use crate::host::local_time::WallClock;
use crate::host::owner::{OwnerSensors, Sensors, Tell};
use crate::host::surroundings::{Places, Watcher};
use crate::host::virtualization::Programs;
use crate::records::{HostIdentity, Records};
use crate::supervise::groups::{self, Groups};
use crate::supervise::{Context, Supervisor, agent_mark, leftovers, life_mark};
use crate::transfer::{Transfers, Web};
use crate::users::Users;
use crate::{host, owner, proc, taking};

/// The version that projects are told, which is the one whose protocol is spoken: servers gate features by
/// it.
const VERSION: ClientVersion = ClientVersion { major: 8, minor: 3, release: 0 };
/// How often the host is measured again.
const MEASURE: StdDuration = StdDuration::from_secs(600);
/// How long after its start, or after the first thing that it did since, an agent without tasks gives back
/// what it does not need at rest.
const AT_REST: StdDuration = StdDuration::from_secs(60);
/// How long somebody who has let computing go on waits for a look at what could keep it from that.
const LOOK_TAKES: StdDuration = StdDuration::from_secs(1);
/// How long the last answers may take to be read, at the agent's end.
const LAST_ANSWERS: StdDuration = StdDuration::from_secs(2);

/// How an agent runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its data directory.
    pub dir: DataDir,
    /// Its fleet.
    pub enrolment: Enrolment,
    /// The proxies that it connects through.
    pub proxies: Proxies,
    /// The policies to follow.
    pub policy: Composition,
    /// The program that is run as the guard: `fallow-agent` itself.
    pub guard: PathBuf,
    /// What jobs may do beside computing.
    pub allowed: Allowed,
    /// Whether nothing is computed on a host that lacks a layer of confinement.
    pub require_confinement: bool,
    /// Whether a root agent runs even where jobs can be confined by nothing.
    pub root_without_confinement: bool,
    /// Whether no job is confined (for tests).
    pub unconfined: bool,
    /// Layers of confinement that are left away although the host has them.
    pub without_layers: Vec<String>,
    /// How long applications have to leave after the agent was killed.
    pub guard_grace: StdDuration,
    /// How long they have at a clean end.
    pub stop_grace: StdDuration,
    /// How long after the start the CPUs are measured, if they have to be.
    pub benchmark_after: StdDuration,
    /// How long each of the two programs runs that measure them.
    pub benchmark_phase: StdDuration,
    /// Where GPUs are looked for.
    pub gpus: host::gpu::Sources,
    /// How long a new version of the fleet's document is on trial before the agent goes back from it, in time
    /// in which it is up (R6.5).
    pub confirm_within: StdDuration,
    /// Where the kernel says what the machine is fed by.
    pub power: PathBuf,
    /// Where it says what each interface of the network is.
    pub interfaces: PathBuf,
    /// Where it lists routes.
    pub routes: PathBuf,
    /// Where it says how much memory there is.
    pub memory: PathBuf,
    /// How long between two looks at that and at other programs.
    pub look_every: StdDuration,
    /// How long the system is not asked again for directories or a control group of a job's own that it could
    /// not give (R6.10).
    pub layers_again: StdDuration,
    /// How often the disk is measured (R4.1).
    pub measure_disk: StdDuration,
    /// What senses whether somebody uses the machine.
    pub owner: OwnerSensors,
    /// Where people of the machine may ask, if anywhere.
    pub people_socket: Option<PathBuf>,
}

/// What is said of the fleet to join, or to go on in.
#[derive(Clone, Debug, Default)]
pub struct Enrolment {
    /// Where the coordinator is, if not where the token says or where it was.
    pub coordinator: Option<Address>,
    /// An enrolment token; none where the agent is enrolled already, or in no fleet.
    pub token: Option<AccessString>,
    /// The keys by which documents must be signed, as the owner of the host says it; none: as the token says.
    pub organisation: Vec<OrganisationKey>,
}

/// A data directory that is this process's own, and what is stored in it.
pub struct Opened {
    settings: Settings,
    _lock: FileLock,
    records: Records,
    host_identity: HostIdentity,
    identity: Option<Identity>,
    separated: Option<Separated>,
}

/// How an agent ended that nothing went wrong with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// As somebody asked.
    Asked,
    /// To be started again at once: it is another host.
    Separated,
}

impl Opened {
    /// What this agent is called in telemetry: its name in the fleet, else the name of its store.
    pub fn instance_id(&self) -> String {
        self.identity
            .as_ref()
            .map_or_else(|| self.host_identity.epoch.clone(), |identity| identity.agent_id().0.clone())
    }
}

/// Takes the data directory and opens the store.
///
/// # Errors
/// [`AgentError`]: in use, not writable, corrupted, newer.
pub fn open(settings: Settings) -> Result<Opened, AgentError> {
    let lock = settings.dir.lock()?;
    let records = Records::open(&settings.dir)?;
    let separated = separation::finish(&settings.dir, &records)?;
    let host_identity = records.host_identity()?;
    let identity = Identity::read(&settings.dir.identity())?;
    Ok(Opened { settings, _lock: lock, records, host_identity, identity, separated })
}

/// Runs the agent until it is told to stop.
///
/// # Errors
/// [`AgentError`]: what kept it from starting, or ended it.
pub async fn run(opened: Opened) -> Result<Finished, AgentError> {
    let Opened { settings, _lock, records, host_identity, identity, separated } = opened;
    let dir = settings.dir.clone();
    let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if let Some(Separated { first, agent }) = separated {
        let first = first.map(|first| first.0).unwrap_or_default();
        tracing::warn!(%agent, first, "this agent was a copy of another host, and is one of its own now: it begins without jobs");
    }
    let process = Process::draw(hostname.clone())?;
    let confinement = confinement(&settings)?;
    // Before the first process is started that is to be in the same group.
    let life = life();
    let groups = Arc::new(groups(&settings, &life));
    let (ends, mut signals) = count_signals()?;
    let client = restore(&settings, &records, &host_identity)?;
    tracing::info!(policy = %settings.policy, "the policies that are followed");
    require_identity(&settings, identity.as_ref(), &client)?;
    let prepared = async {
        let member = enrolled(&settings, identity, &hostname).await?;
        let mut gpus = Gpus::new(settings.guard.clone(), settings.gpus.clone());
        let found = gpus.at_start().await;
        Ok::<_, AgentError>((member, measured(&dir, &records, &host_identity, found).await?, gpus))
    };
    let (member, facts, gpus) = tokio::select! {
        prepared = prepared => prepared?,
        () = another(&mut signals) => {
            tracing::info!("asked to end before it had begun");
            return Ok(Finished::Asked);
        }
    };

    let (inputs, incoming) = mpsc::channel(QUEUE);
    let (to_requests, requests) = mpsc::channel(QUEUE);
    for view in client.project_views() {
        dir.name_project(&view.url, &view.directory);
    }
    if let Some(users) = confinement.users() {
        dir.run_jobs_as(users.clone());
    }
    // Leftovers first: no process of an earlier life may meet one of this.
    let slots = blocking({
        let (dir, records, groups) = (dir.clone(), records.clone(), Arc::clone(&groups));
        let stems = client.project_views().into_iter().map(|view| view.directory).collect();
        let signals = signals.clone();
        move || {
            let slots = leftovers::take_over(&dir, &|| *signals.borrow() > 0);
            groups.sweep();
            delete_forsaken(&dir, &records, &stems).map(|()| slots)
        }
    })
    .await??;
    if *signals.borrow() > 0 {
        // What was found may not be all, so nothing is noted of it: the next start finds it once more.
        tracing::info!("asked to end before it had begun");
        return Ok(Finished::Asked);
    }
    let supervisor =
        supervisor(&settings, &facts, &confinement, (life, Arc::clone(&groups)), inputs.clone())?;
    let web = Web::new(settings.proxies.clone())
        .map_err(|why| AgentError::system(why, std::io::Error::other("TLS")))?;
    let fleet = member.as_ref().map(|member| member.identity().authority.to_string());
    let fleet_projects = web.fleet_projects();
    if let Some(identity) = member.as_ref().map(Membership::identity) {
        fleet_projects.note(&identity.projects_url, identity.projects_behind_proxy, identity.authority);
    }
    let transfers = Transfers::new(web, dir.clone(), VERSION, inputs.clone());
    let (stop_link, stop) = watch::channel(false);
    let (link, link_task) = match member {
        Some(member) => {
            let (link, task) = Link::start(
                member,
                process,
                host_identity.epoch.clone(),
                host_identity.seed,
                ToEngine(inputs.clone()),
                stop,
            );
            (Some(link), Some(task))
        }
        None => (None, None),
    };
    // Whoever is answered over the socket meets an agent that nothing keeps from running any more, whatever
    // becomes of its disk.
    dir.write_daemon_file()?;
    let listener =
        server::bind(&dir.control_socket(), Door::Owner).inspect_err(|_| dir.remove_daemon_files())?;
    let peers = Peers::at(Door::Owner);
    let wary = !settings.unconfined && !confinement.keeps_from_sockets();
    let for_people = settings.people_socket.as_deref().and_then(people::open).map(|(listener, opened)| {
        let to_requests = to_requests.clone();
        let task = tokio::spawn(server::serve(
            listener,
            Door::People,
            Peers::at(Door::People),
            wary,
            move |request, reply| {
                let to_requests = to_requests.clone();
                async move { drop(to_requests.send((request, reply)).await) }
            },
        ));
        (task, opened)
    });
    let control =
        tokio::spawn(server::serve(listener, Door::Owner, peers.clone(), wary, move |request, reply| {
            if matches!(request, Request::Stop {}) {
                // Also heard by an engine that waits for disk space. The first one counts; patience is not
                // to be measured by how often a tool asks.
                ends.send_if_modified(|count| {
                    *count == 0 && {
                        *count = 1;
                        true
                    }
                });
            }
            let to_requests = to_requests.clone();
            async move { drop(to_requests.send((request, reply)).await) }
        }));

    let mut engine = Engine {
        client,
        records,
        dir: dir.clone(),
        hostname,
        transfers,
        fleet_projects,
        supervisor,
        link,
        metrics: Metrics::new(),
        keys: std::collections::BTreeMap::new(),
        notices: crate::control::notices::Notices::default(),
        wake_at: None,
        known: BTreeSet::new(),
        is_new_project: false,
        waiters: super::attach::Waiters::default(),
        requests,
        asking: None,
        wants_line: None,
        has_acted: false,
        store_trouble: None,
        owner_wish: None,
        pause_wish: None,
        snoozed_by: None,
        departure: None,
        departing: std::collections::VecDeque::new(),
        deletions: super::deletions::Deletions::default(),
        disk: super::disk::DiskLooks::new(inputs.clone()),
        gpus,
        measures_speed: false,
        gives_up_measuring: false,
        stopping: false,
        stop_asked: false,
        separated: false,
        signals: signals.clone(),
        wall_clock: WallClock::default(),
        confinement,
        groups,
        told_layers: None,
        sensors: None,
        surroundings: None,
    };
    let tell = owner_tells(&engine.supervisor, inputs.clone());
    let doomed = engine.records.doomed()?;
    let files = complete_files(&dir, &engine.client);
    let startup = Startup { files, host: facts.clone(), slots, doomed: doomed.clone() };
    tracing::info!(dir = %dir.path().display(), version = env!("CARGO_PKG_VERSION"), cpus = facts.ncpus, "agent started");
    let mut life = Life { engine: &mut engine, incoming, signals, grace: settings.stop_grace };
    let result = async {
        let files = crate::preferences::read_all(&dir);
        life.engine.turn(Event::PreferenceFilesRead(Box::new(files)), None).await?;
        let found = crate::preferences::read_app_configs(&dir, &life.engine.client);
        life.engine.turn(Event::AppConfigsRead(found), None).await?;
        life.engine.tell_layers().await?;
        let sensors = Sensors::start(&settings.owner, &tell);
        sensors.looked().await;
        life.engine.sensors = Some(sensors);
        while let Ok(input) = life.incoming.try_recv() {
            life.engine.take(input).await?;
        }
        let places = Places {
            power: settings.power.clone(),
            memory: settings.memory.clone(),
            pressure: "/proc/pressure/memory".into(),
            traffic: "/proc/net/dev".into(),
            interfaces: settings.interfaces.clone(),
            routes: settings.routes.clone(),
            every: settings.look_every,
            mark: dir.mark(),
        };
        let transfers = life.engine.transfers.clone();
        let own = Arc::new(move || transfers.crossed());
        life.engine.surroundings = Some(Watcher::start(places, own, tell));
        life.engine.turn(Event::Started(Box::new(startup)), None).await?;
        life.engine.deletions.seen_to(doomed);
        if let Some(authority) = fleet {
            life.engine.turn(Event::FleetJoined { authority }, None).await?;
        }
        let (phase, after) = (settings.benchmark_phase, settings.benchmark_after);
        let now = clock::now().as_secs_f64();
        let benchmark = Benchmark::new(settings.guard.clone(), phase, after, &facts.speed, now);
        life.compute(&dir, facts, benchmark).await
    }
    .await;
    if life.engine.separated {
        // What they have done is not this host's.
        life.grace = StdDuration::ZERO;
    }
    life.engine.sensors = None;
    life.engine.surroundings = None;
    // Also after an error: nothing may be left behind.
    life.leave().await;
    life.say_goodbye(&stop_link, link_task).await;
    control.abort();
    if let Some((people, opened)) = for_people {
        people.abort();
        opened.remove();
    }
    engine.answer_no_more();
    peers.answered(LAST_ANSWERS).await;
    engine.supervisor.join();
    let flushed = engine.records.flush();
    dir.remove_daemon_files();
    result?;
    flushed?;
    tracing::info!("agent ended");
    Ok(if engine.separated { Finished::Separated } else { Finished::Asked })
}

/// Looks how jobs can be confined here, and says it.
fn confinement(settings: &Settings) -> Result<Confinement, AgentError> {
    let confinement = match settings.unconfined {
        true => Confinement::none(),
        false => Confinement::probe(settings.allowed, settings.dir.path())
            .without(&settings.without_layers)
            .asked_again(settings.layers_again),
    };
    let layers = confinement.layers();
    let on: Vec<&str> = layers.iter().filter(|layer| layer.on).map(|layer| layer.name.as_str()).collect();
    tracing::info!(on = on.join(" "), "jobs are confined");
    let is_root = rustix::process::geteuid().is_root();
    for layer in layers.iter().filter(|layer| !layer.on) {
        if layer.name == confine::USER && !is_root {
            // Nobody else can have it.
            tracing::info!("jobs have no users of their own: {}", layer.why);
            continue;
        }
        if layer.name == confine::TMP {
            tracing::info!("jobs have no /tmp of their own: {}", layer.why);
            continue;
        }
        tracing::warn!(layer = layer.name, "jobs are not confined in one respect: {}", layer.why);
    }
    let missing = confinement.missing();
    if settings.require_confinement && !missing.is_empty() {
        let named: Vec<String> =
            missing.iter().map(|layer| format!("{} ({})", layer.name, layer.why)).collect();
        return Err(AgentError::bad_input(format!(
            "jobs cannot be confined on this host as --require-confinement asks for: {}; mend that, or leave the option out to \
             compute all the same",
            named.join("; ")
        )));
    }
    if is_root && !settings.unconfined && !settings.root_without_confinement && confinement.is_bare() {
        let why = missing.iter().map(|layer| layer.why.as_str()).collect::<BTreeSet<_>>();
        return Err(AgentError::bad_input(format!(
            "this agent is root's, and nothing on this host keeps its jobs from what is root's: {}; mend that, run the agent as \
             another user, who owns nothing else, or give it --root-without-confinement to compute all the same",
            why.into_iter().collect::<Vec<_>>().join("; ")
        )));
    }
    Ok(confinement)
}

/// Names this life of the agent, as no other life of an agent on this host is named.
fn life() -> String {
    let pid = std::process::id();
    format!("{pid}.{}", proc::find(pid).map_or(0, |me| me.start))
}

/// Looks whether tasks can be in control groups here, and says it.
fn groups(settings: &Settings, life: &str) -> Groups {
    let is_unwanted =
        settings.unconfined || settings.without_layers.iter().any(|layer| layer == groups::LAYER);
    let groups = match is_unwanted {
        true => Groups::none("switched off"),
        false => Groups::at_start(&agent_mark(&settings.dir), life, settings.layers_again),
    };
    let Layer { on, why, .. } = groups.layer();
    match on {
        true => tracing::info!("jobs are in {why}"),
        // Nothing is missing: other means do the same.
        false => tracing::info!("jobs are in no control groups: {why}"),
    }
    groups
}

/// How the sensors tell: what is to be stopped for somebody is stopped before the engine has heard of it,
/// which may just have much to store.
fn owner_tells(supervisor: &Supervisor, inputs: mpsc::Sender<Input>) -> Tell {
    let freezer = Arc::clone(supervisor.freezer());
    Arc::new(move |event| {
        match &event {
            Event::OwnerInput { ago } if *ago == Duration::ZERO => freezer.input(),
            Event::OwnerUnseen(true) => freezer.input(),
            _ => {}
        }
        // Where the engine has ended, nobody is left who could be told.
        !matches!(inputs.try_send(event.into()), Err(TrySendError::Full(_)))
    })
}

/// Sees to it that an agent that was in a fleet does not go on outside it because its identity was lost.
fn require_identity(
    settings: &Settings,
    identity: Option<&Identity>,
    client: &Client,
) -> Result<(), AgentError> {
    let document = client.host_view().document_version;
    if identity.is_some() || settings.enrolment.token.is_some() || document == DocumentVersion::default() {
        return Ok(());
    }
    Err(AgentError::damaged(format!(
        "this agent belongs to a fleet (its store holds document {document} of a coordinator), but its identity {} is missing: \
         restore it from a copy; or enrol anew with `fallow-agent run --dir {} --token-file FILE`: to the \
         coordinator it is another agent then, and its projects and jobs go on",
        settings.dir.identity().display(),
        settings.dir.path().display()
    )))
}

async fn enrolled(
    settings: &Settings,
    identity: Option<Identity>,
    hostname: &str,
) -> Result<Option<Membership>, AgentError> {
    let Enrolment { coordinator, token, organisation } = &settings.enrolment;
    if let (Some(identity), Some(token)) = (&identity, token)
        && token.authority != identity.authority
    {
        return Err(AgentError::bad_input(format!(
            "this agent is a host of another fleet ({}), and the token that was given is not of that one: start it in another, empty \
             directory for the new fleet; or, to leave the old one, delete {} first",
            identity.coordinator(),
            settings.dir.identity().display()
        )));
    }
    match identity {
        Some(mut identity) => {
            if believes(&mut identity, organisation)? {
                identity.write(&settings.dir.identity())?;
            }
            if token.is_some() {
                tracing::info!(agent = %identity.agent_id(), "enrolled already: the token that was given is not used");
            }
            let from = identity.coordinator();
            let is_there = |address: &Address| identity.addresses.contains(address);
            let to = coordinator.clone().filter(|address| !is_there(address));
            let mut member = Membership::new(identity, &settings.dir, settings.proxies.clone())?;
            let Some(to) = to else { return Ok(Some(member)) };
            if member.move_to(to.clone()).await? {
                tracing::info!(from, %to, "the coordinator has moved");
            } else {
                // Kept as it was until a coordinator has answered: the address may be mistyped.
                tracing::warn!(from, %to, "no coordinator answers where it is said to be now; going on alone");
            }
            Ok(Some(member))
        }
        None => {
            let Some(token) = token else {
                return match coordinator {
                    None => {
                        tracing::info!("in no fleet: `fallow-agent run --token-file FILE` joins one");
                        Ok(None)
                    }
                    Some(coordinator) => Err(AgentError::bad_input(format!(
                        "this agent is not enrolled at {coordinator} yet: give a token with --token-file FILE or in FALLOW_TOKEN"
                    ))),
                };
            };
            // Before a use of the token is spent: what would keep the agent from running shows first.
            drop(server::bind(&settings.dir.control_socket(), Door::Owner)?);
            let _ = std::fs::remove_file(settings.dir.control_socket());
            require_few(organisation)?;
            let mut token = token.clone();
            if let Some(coordinator) = coordinator {
                token.addresses = vec![coordinator.clone()];
            }
            if let (Some(given), Some(said)) = (organisation.first(), token.organisation.first())
                && !organisation.iter().any(|key| token.organisation.contains(key))
            {
                return Err(AgentError::bad_input(format!(
                    "the token says that documents are signed by {said}, and --organisation-key names {given}: one of them is \
                     mistyped, or of another organisation; the token was not spent"
                )));
            }
            if !organisation.is_empty() {
                token.organisation.clone_from(organisation);
            }
            let member =
                membership::enroll(&token, &settings.dir, hostname, settings.proxies.clone()).await?;
            let coordinator = member.identity().coordinator();
            tracing::info!(agent = %member.identity().agent_id(), coordinator, "enrolled");
            Ok(Some(member))
        }
    }
}

/// Has the host follow only what the keys have signed that its owner names. False where it does so already,
/// or none are named.
fn believes(identity: &mut Identity, organisation: &[OrganisationKey]) -> Result<bool, AgentError> {
    let [first, ..] = organisation else { return Ok(false) };
    require_few(organisation)?;
    match &identity.trust {
        None => {
            identity.believe(organisation.to_vec());
            Ok(true)
        }
        // Also one that has brought in its successor: it still stands where the agent is started.
        Some(trust) if organisation.iter().any(|key| trust.knows(key)) => Ok(false),
        Some(trust) => {
            let known = trust.keys.iter().map(OrganisationKey::short).collect::<Vec<_>>().join(", ");
            Err(AgentError::bad_input(format!(
                "this host follows what the key {known} has signed, and {} was given: leave --organisation-key out; or, if another \
                 organisation has the host now, start it in an empty directory with a new token",
                first.short()
            )))
        }
    }
}

/// Sees to it that there are no more keys than a statement may name.
fn require_few(organisation: &[OrganisationKey]) -> Result<(), AgentError> {
    match organisation.len() > SIGNED_KEYS_MAX {
        true => Err(AgentError::bad_input(format!(
            "{} keys were given with --organisation-key, and an organisation has at most {SIGNED_KEYS_MAX}",
            organisation.len()
        ))),
        false => Ok(()),
    }
}

fn restore(
    settings: &Settings,
    records: &Records,
    host_identity: &HostIdentity,
) -> Result<Client, AgentError> {
    let config = ClientConfig {
        composition: settings.policy,
        confirm_within: Some(Duration::from_secs_f64(settings.confirm_within.as_secs_f64())),
        measure_disk: Some(Duration::from_secs_f64(settings.measure_disk.as_secs_f64())),
        jobs_network: settings.allowed.network,
        answers_looks: true,
        ..ClientConfig::new(host_identity.seed, VERSION)
    };
    Client::restore(config, records.client()?).map_err(|error| AgentError::Records {
        dir: settings.dir.store(),
        why: match std::error::Error::source(&error) {
            Some(source) => format!("{error} ({source})"),
            None => error.to_string(),
        },
    })
}

async fn measured(
    dir: &DataDir,
    records: &Records,
    host_identity: &HostIdentity,
    coprocessors: Vec<Coprocessor>,
) -> Result<HostFacts, AgentError> {
    let speed = match records.speed() {
        Some(speed) => speed,
        None => {
            let fail = || std::io::Error::other("the system tells no CPU times");
            let speed: HostSpeed = blocking(host::glance)
                .await?
                .ok_or_else(|| AgentError::system("cannot measure the speed of this host", fail()))?;
            tracing::debug!(
                fpops = speed.fpops.get(),
                iops = speed.iops.get(),
                "looked at the speed of a CPU"
            );
            speed
        }
    };
    let virtualization = blocking(|| host::virtualization::look(Path::new("/"))).await?;
    let found = host::Found { speed, coprocessors, virtualization };
    Ok(host::facts(dir.path(), &host_identity.host_cpid, found))
}

fn supervisor(
    settings: &Settings,
    facts: &HostFacts,
    confinement: &Confinement,
    (life, groups): (String, Arc<Groups>),
    inputs: mpsc::Sender<Input>,
) -> Result<Supervisor, AgentError> {
    let fail = |what: &str| {
        let what = what.to_owned();
        move |error| AgentError::system(what, error)
    };
    let mark = life_mark(&settings.dir, &life);
    let place = groups.jobs().map(Path::to_path_buf);
    let users = confinement.users().map(Users::block);
    let guard = GuardHandle::start(settings.guard.clone(), mark, settings.guard_grace, place, users)
        .map_err(fail("cannot start the guard process"))?;
    let for_offers = inputs.clone();
    let offer = move |event: Event| {
        // The other half is for what must not be lost, and must not hold up heartbeats.
        for_offers.capacity() > QUEUE / 2 && for_offers.try_send(event.into()).is_ok()
    };
    let report = move |event: Event| match inputs.try_reserve() {
        Ok(place) => {
            place.send(event.into());
            None
        }
        Err(TrySendError::Full(())) => Some(event),
        // The engine has ended: nobody is left who could be told.
        Err(TrySendError::Closed(())) => None,
    };
    let context = Context {
        dir: settings.dir.clone(),
        life,
        guard,
        confinement: confinement.clone(),
        groups,
        memory: facts.memory,
        send_event: Arc::new(report),
        try_send_event: Arc::new(offer),
    };
    Supervisor::start(context).map_err(fail("cannot start the supervisor"))
}

/// Deletes the directories of projects that the client does not have: they were to be deleted, and the agent
/// went down before.
///
/// What else lies there was not made by this agent, and is left alone.
fn delete_forsaken(dir: &DataDir, records: &Records, stems: &BTreeSet<String>) -> Result<(), AgentError> {
    let known = records.stems()?;
    for entry in std::fs::read_dir(dir.projects()).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if stems.contains(&name) {
            continue;
        }
        if !known.contains(&name) {
            tracing::warn!(
                path = crate::files::shown_path(&path),
                "left alone: no project of this agent has or had it"
            );
            continue;
        }
        match dir.trash().take(&path) {
            Ok(()) => {
                tracing::info!(path = %path.display(), "deleted the files of a project that is detached");
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot delete a project's directory");
            }
        }
    }
    for stem in known.difference(stems).filter(|stem| !dir.projects().join(stem).exists()) {
        records.forget_stem(stem)?;
    }
    Ok(())
}

/// Takes a file that a job's user has made there: an earlier life was killed after it had moved it there. One
/// that others could change goes. What cannot be looked at now stays, and is no file of the project.
fn taken(dir: &DataDir, path: &Path) -> bool {
    let shown = crate::files::shown_path(path);
    match taking::take_over_at(path) {
        Ok(true) => return true,
        Ok(false) => {
            tracing::warn!(path = shown, "deleting what others than the agent could change");
            if let Err(error) = dir.trash().take(path) {
                tracing::error!(path = shown, %error, "cannot delete it");
            }
        }
        Err(error) => tracing::warn!(path = shown, %error, "cannot take this from its job's user"),
    }
    false
}

/// Every complete file in the directories of the client's projects. All are the agent's own then.
fn complete_files(dir: &DataDir, client: &Client) -> Vec<(FileKey, Bytes)> {
    let mut found = Vec::new();
    for project in client.project_views() {
        dir.open_project(&project.url);
        crate::dir::remove_copies(&dir.partial(&project.url));
        for entry in std::fs::read_dir(dir.project(&project.url)).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            match entry.metadata() {
                Ok(data) if data.is_file() && name != PARTIAL && name != APP_CONFIG => {
                    if owner::is_jobs(data.uid()) && !taken(dir, &entry.path()) {
                        continue;
                    }
                    found.push((FileKey { project: project.id, name }, Bytes(data.len())));
                }
                _ => {}
            }
        }
    }
    found
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, AgentError> {
    let fail = |error: tokio::task::JoinError| {
        AgentError::system("a worker thread failed", std::io::Error::other(error))
    };
    tokio::task::spawn_blocking(work).await.map_err(fail)
}

/// Counts the signals that ask for the end: SIGTERM, SIGINT, SIGHUP.
fn count_signals() -> Result<(watch::Sender<u32>, watch::Receiver<u32>), AgentError> {
    let on = |kind| signal(kind).map_err(|error| AgentError::system("cannot listen to signals", error));
    let (mut terminate, mut interrupt, mut hang_up) =
        (on(SignalKind::terminate())?, on(SignalKind::interrupt())?, on(SignalKind::hangup())?);
    let (count, counted) = watch::channel(0);
    let ends = count.clone();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hang_up.recv() => {}
            }
            count.send_modify(|count| *count += 1);
        }
    });
    Ok((ends, counted))
}

/// Waits for the next signal.
async fn another(signals: &mut watch::Receiver<u32>) {
    if signals.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

struct Life<'a> {
    engine: &'a mut Engine,
    incoming: mpsc::Receiver<Input>,
    signals: watch::Receiver<u32>,
    grace: StdDuration,
}

impl Life<'_> {
    /// Turns the client until somebody wants the end.
    async fn compute(
        &mut self,
        dir: &DataDir,
        facts: HostFacts,
        mut benchmark: Benchmark,
    ) -> Result<(), AgentError> {
        let HostFacts { host_cpid, mut speed, mut coprocessors, mut virtualization, .. } = facts;
        let programs = Programs::of_system(!confine::keeps_programs(&self.engine.confinement.layers()));
        let mut looking = pin!({
            let known = virtualization.clone();
            async move { programs.look(known).await }
        });
        let mut has_looked = false;
        let mut clock_set = ClockSet::watch();
        let alarm = Alarm::new();
        let mut measure = interval_at(Instant::now() + MEASURE, MEASURE);
        let mut rest = pin!(sleep(AT_REST));
        let mut is_at_rest = false;
        loop {
            self.engine.keep_owner_wish().await?;
            self.engine.keep_departures().await?;
            let nap = self.engine.nap(clock_set.is_told());
            // All but the wake-ups of an agent that waits: they run little.
            let mut does_something = true;
            tokio::select! {
                biased;
                () = another(&mut self.signals) => {
                    tracing::info!("asked to end");
                    return Ok(());
                }
                Some(asked) = self.engine.requests.recv() => {
                    self.engine.serve(asked).await?;
                    self.tell_line().await?;
                }
                Some(input) = self.incoming.recv() => self.engine.take(input).await?,
                () = alarm.after(nap) => {
                    does_something = false;
                    self.engine.turn(Event::WakeUp, None).await?;
                }
                () = clock_set.changed() => {
                    if let Some(link) = &self.engine.link {
                        link.wake();
                    }
                    self.engine.turn(Event::WakeUp, None).await?;
                }
                _ = measure.tick() => {
                    self.measured(dir, &host_cpid, speed, &virtualization).await?;
                }
                found = &mut looking, if !has_looked => {
                    has_looked = true;
                    if found != virtualization {
                        virtualization = found;
                        self.measured(dir, &host_cpid, speed, &virtualization).await?;
                    }
                }
                () = &mut rest, if !is_at_rest => {
                    (is_at_rest, does_something) = (true, false);
                    self.rests();
                }
                turn = self.engine.gpus.turn() => {
                    let before = std::mem::take(&mut coprocessors);
                    coprocessors = self.engine.gpus.found();
                    if coprocessors != before {
                        self.measured(dir, &host_cpid, speed, &virtualization).await?;
                    }
                    if let gpus::Turn::Looked(look) = turn {
                        // First: nothing is begun on a device that is too hot.
                        let felt = Event::DevicesFelt(gpus::temperatures(&look));
                        self.engine.turn(felt, None).await?;
                        let users = gpus::users(&self.engine.client, &look, dir.path());
                        self.engine.turn(Event::DevicesSeen(users), None).await?;
                    }
                }
                turn = benchmark.turn() => match turn {
                    Turn::Due => {
                        self.engine.turn(Event::BenchmarksRun(benchmark.begins()), None).await?;
                        match std::mem::take(&mut self.engine.measures_speed) {
                            true => benchmark.start(),
                            false => benchmark.postpone(),
                        }
                    }
                    Turn::Measured(None) => self.engine.turn(Event::BenchmarksRun(Benchmarks::End), None).await?,
                    Turn::Measured(Some(new)) => {
                        self.engine.turn(Event::BenchmarksRun(Benchmarks::End), None).await?;
                        tracing::info!(fpops = new.fpops.get(), iops = new.iops.get(), "measured the speed of the CPUs");
                        if let Err(error) = self.engine.records.keep_speed(&new) {
                            tracing::warn!(%error, "cannot store the speed of the CPUs: it is measured again after the next start");
                        }
                        speed = new;
                        self.measured(dir, &host_cpid, speed, &virtualization).await?;
                    }
                },
            }
            // A wake-up may begin something, too.
            does_something |= std::mem::take(&mut self.engine.has_acted);
            // Counted from the first thing: whoever types, or asks every second, keeps it from nothing.
            if does_something && is_at_rest {
                is_at_rest = false;
                crate::sys::works();
                rest.as_mut().reset(Instant::now() + AT_REST);
            }
            if std::mem::take(&mut self.engine.gives_up_measuring) {
                benchmark.give_up();
            }
            if self.engine.separated {
                tracing::info!("starting anew, as another host");
                return Ok(());
            }
            if self.engine.stop_asked {
                tracing::info!("asked over the control socket to end");
                return Ok(());
            }
        }
    }

    /// Tells whoever has let computing go on what follows from that. Where jobs wait for a look at the
    /// battery and other programs, it is known after that look, which takes an instant.
    async fn tell_line(&mut self) -> Result<(), AgentError> {
        let until = Instant::now() + LOOK_TAKES;
        while self.engine.wants_line.is_some() && self.engine.client.awaits_look() {
            match timeout_at(until, self.incoming.recv()).await {
                Ok(Some(input)) => self.engine.take(input).await?,
                Ok(None) | Err(_) => break,
            }
        }
        self.engine.tell_line();
        Ok(())
    }

    /// While there is no task, what the agent ran is not to take memory of its machine.
    fn rests(&self) {
        if !self.engine.client.has_processes() {
            // Some milliseconds, in which nothing waits: a thread for it would have to be woken, and to end.
            crate::sys::rests();
        }
    }

    /// Tells the client what the host is like now.
    async fn measured(
        &mut self,
        dir: &DataDir,
        host_cpid: &str,
        speed: HostSpeed,
        virtualization: &Virtualization,
    ) -> Result<(), AgentError> {
        let (coprocessors, virtualization) = (self.engine.gpus.found(), virtualization.clone());
        let facts = host::facts(dir.path(), host_cpid, host::Found { speed, coprocessors, virtualization });
        self.engine.turn(Event::HostMeasured(Box::new(facts)), None).await
    }

    /// Has all tasks leave, storing what becomes of them. A second signal kills them at once.
    async fn leave(&mut self) {
        self.engine.stopping = true;
        if let Err(error) = self.engine.stop_attaching().await {
            tracing::error!(%error, "cannot store that an attachment is taken back");
        }
        self.engine.transfers.cancel_all();
        if let Err(error) = self.engine.files_moved().await {
            tracing::error!(%error, "cannot store what was transferred last");
        }
        self.engine.supervisor.stop(self.grace);
        while !self.engine.supervisor.is_stopped() {
            tokio::select! {
                Some(input) = self.incoming.recv() => self.take(input).await,
                Some(asked) = self.engine.requests.recv() => self.serve(asked).await,
                () = another(&mut self.signals) => {
                    tracing::warn!("asked again to end: killing the tasks");
                    self.engine.supervisor.stop(StdDuration::ZERO);
                }
                () = sleep(StdDuration::from_millis(20)) => {}
            }
        }
        // What the tasks said last.
        while let Ok(input) = self.incoming.try_recv() {
            self.take(input).await;
        }
    }

    /// Tells the coordinator what there is left to tell.
    async fn say_goodbye(&mut self, stop: &watch::Sender<bool>, link: Option<JoinHandle<()>>) {
        let _ = stop.send(true);
        let Some(mut link) = link else { return };
        let _ = timeout(StdDuration::from_secs(2), async {
            loop {
                tokio::select! {
                    _ = &mut link => return,
                    Some(input) = self.incoming.recv() => self.take(input).await,
                    Some(asked) = self.engine.requests.recv() => self.serve(asked).await,
                }
            }
        })
        .await;
        link.abort();
    }

    async fn serve(&mut self, asked: Asked) {
        if let Err(error) = self.engine.serve(asked).await {
            tracing::error!(%error, "cannot answer a request during the end");
        }
        self.engine.tell_line();
    }

    async fn take(&mut self, input: Input) {
        if let Err(error) = self.engine.take(input).await {
            tracing::error!(%error, "cannot store what happened during the end; it is found again at the next start");
        }
    }
}

#[cfg(test)]
mod tests {
    use fallow_fleet::Trust;
    use fallow_tls::HostKey;

    use super::*;

    #[test]
    fn r6_10_an_agent_that_is_still_started_with_a_former_key_of_its_organisation_goes_on() {
        let [old, new, other] = [1, 2, 3].map(|byte| OrganisationKey::new([byte; 32]));
        let mut identity = crate::fleet::identity::tests::sample(&HostKey::generate().unwrap());
        assert!(believes(&mut identity, &[old]).unwrap());
        let trust = Trust { former: vec![old], ..Trust::new(identity.authority.to_string(), vec![new]) };
        identity.trust = Some(trust.clone());
        for key in [old, new] {
            assert!(!believes(&mut identity, &[key]).unwrap());
            assert_eq!(identity.trust.as_ref(), Some(&trust));
        }
        assert!(believes(&mut identity, &[other]).is_err());
    }
}
