//! From the start of the agent to its end.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration as StdDuration;

use fallow_boinc::scheduler::ClientVersion;
use fallow_client::{Client, ClientConfig, Event, Startup};
use fallow_daemon::clock;
use fallow_daemon::file_lock::FileLock;
use fallow_domain::{Coprocessor, Duration, HostFacts, HostSpeed};
use tokio::sync::{mpsc, watch};

use super::benchmark::Benchmark;
use super::confinement::{confinement, groups};
use super::enrolment::{enrolled, require_identity};
use super::gpus::Gpus;
use super::life::Life;
use super::metrics::Metrics;
use super::project_dirs::{complete_files, delete_forsaken};
use super::settings::Settings;
use super::signals::{another, count_signals};
use super::supervisor::{owner_tells, supervisor};
use super::{Engine, QUEUE, ToEngine};
use crate::control::people;
use crate::control::places::Peers;
use crate::control::protocol::Request;
use crate::control::server::{self, Door};
use crate::dir::DataDir;
use crate::error::AgentError;
use crate::fleet::identity::Identity;
use crate::fleet::link::Link;
use crate::fleet::membership::Membership;
use crate::fleet::process::Process;
use crate::fleet::separation::{self, Separated};
use crate::host::local_time::WallClock;
use crate::host::owner::Sensors;
use crate::host::surroundings::{Places, Watcher};
use crate::records::{HostIdentity, Records};
use crate::supervise::leftovers;
use crate::transfer::{Transfers, Web};
use crate::{host, proc};

/// The version that projects are told, which is the one whose protocol is spoken: servers gate features by
/// it.
const VERSION: ClientVersion = ClientVersion { major: 8, minor: 3, release: 0 };
/// How long the last answers may take to be read, at the agent's end.
const LAST_ANSWERS: StdDuration = StdDuration::from_secs(2);

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
            )
            .map_err(|error| AgentError::system("cannot start the thread of the link", error))?;
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
        stored: super::full_disk::StoredRests::of(&client),
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
        is_undecided: false,
        wants_line: None,
        has_acted: false,
        store_trouble: None,
        owner_wish: None,
        holds_tasks: false,
        pause_wish: None,
        snoozed_by: None,
        pauses: super::pauses::Pauses::default(),
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

/// Names this life of the agent, as no other life of an agent on this host is named.
fn life() -> String {
    let pid = std::process::id();
    format!("{pid}.{}", proc::find(pid).map_or(0, |me| me.start))
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
        senses_input: !settings.owner.never_in_use,
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

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, AgentError> {
    let fail = |error: tokio::task::JoinError| {
        AgentError::system("a worker thread failed", std::io::Error::other(error))
    };
    tokio::task::spawn_blocking(work).await.map_err(fail)
}
