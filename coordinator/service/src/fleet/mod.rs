//! The fleet: which agents there are, what they say of themselves, and the link to each (R6.1, R6.3, R6.6).
//!
//! Model: the store holds every agent's entries and position; memory holds the same, so that a listing costs
//! no disk. A message of an agent becomes one change, stored together with those of other agents
//! ([`commit`]), then taken over into memory and the totals, then acknowledged. One connection per agent
//! counts: a newer one of the same process replaces it, and waits until the older has settled what it began.
//! One of another process does so only if the first is gone (`seat.rs`), and is its copy otherwise
//! (`copies.rs`).
//!
//! Bounds: channels have a size, a slow agent is told only the newest document, entries are weighed and
//! checked ([`limits`]). Omitted: history.

mod accounts;
mod arrivals;
pub mod commit;
mod contact;
mod copies;
pub mod enrol;
mod entry;
mod first;
mod given;
mod guesses;
mod hearing;
mod host;
mod keys;
pub mod labels;
mod leaving;
pub mod limits;
mod link;
mod membership;
mod newer;
mod pace;
pub mod preview;
mod retelling;
mod returns;
pub(crate) mod rollout;
mod seat;
mod service;
pub mod state;
mod stored;
mod strangers;
mod takeover;
pub mod token;
pub mod totals;
mod weight;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use fallow_daemon::lock;
use fallow_domain::{AccountKey, AgentId, DocumentVersion, Instant, Labels, MasterUrl};
use fallow_store::{KeyRange, Store, StoreError};
use fallow_telemetry::RateLimit;
use tokio::sync::{Semaphore, watch};

use crate::audit::AuditLog;
use crate::document::Documents;
use commit::Commits;
use enrol::{AgentRecord, Enrolled};
use guesses::FailedAuthDelay;
use state::{Position, State, Writes};
use totals::{PastTotals, ProjectTotals, Totals};
use weight::MachineWeight;

pub use accounts::Accounts;
pub use copies::CopyOf;
pub use enrol::Issuer;
pub use first::ShortFirst;
pub use host::Host;
pub use membership::{MembershipError, Revoked};
pub use service::FleetService;
pub(crate) use stored::followed;

/// How the link behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSettings {
    /// The coordinator sends something this often, and agents answer. How much silence it takes until the
    /// other is taken for gone: [`fallow_proto::fleet::limits::silence`], and for agents half a minute at
    /// least.
    pub heartbeat: Duration,
    /// What one agent may say in a second, in messages.
    pub messages_a_second: u32,
    /// How long a link is kept at most of whose news nothing can be stored, on a full disk: its agent is
    /// still sent documents. Agents wait half a minute for an acknowledgement. Each link draws how much of
    /// it, so that those which failed together do not come again together.
    pub unstored: Duration,
}

impl Default for LinkSettings {
    /// Half a minute: a dead host shows a moment after a minute, 100,000 agents cost a twelfth of a core, and
    /// an idle host wakes twice a minute for it.
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(30),
            messages_a_second: limits::MESSAGES_A_SECOND,
            unstored: Duration::from_secs(25),
        }
    }
}

/// The fleet could not be read from its store, or its thread not started.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No thread for the group commit.
    #[error("the system gives no thread for writing the fleet's state")]
    Thread(#[source] std::io::Error),
}

/// All agents of this coordinator.
pub struct Fleet {
    store: Arc<dyn Store>,
    audit: Arc<AuditLog>,
    commits: Commits,
    documents: Arc<Documents>,
    issuer: Arc<Issuer>,
    accounts: OnceLock<Arc<dyn Accounts>>,
    /// Under which the coordinator's own projects are reached, and whether another server may stand there;
    /// empty as long as nobody said so.
    projects_url: OnceLock<(String, bool)>,
    guesses: FailedAuthDelay,
    settings: LinkSettings,
    agents: RwLock<BTreeMap<AgentId, Arc<Agent>>>,
    totals: Mutex<Totals>,
    connected: AtomicU64,
    calls: Mutex<BTreeMap<MasterUrl, contact::ContactCalls>>,
    returns: Mutex<returns::ReturningAgents>,
    /// The hosts that spoke for their machines when a rollout was looked at last.
    speakers: Mutex<BTreeSet<AgentId>>,
    /// A call keeps its place until its work is done, also where its caller has given up.
    strangers: strangers::Strangers,
    /// The newest certificates of those to whom one was just given, and when.
    renewed: Mutex<BTreeMap<AgentId, (Instant, Vec<u8>)>>,
    /// Held by who changes an agent's record.
    changing: Mutex<()>,
    // One change of labels at a time: each starts from the newest.
    relabelling: Arc<tokio::sync::Mutex<()>>,
    stopping: watch::Sender<bool>,
}

/// One agent.
pub(crate) struct Agent {
    id: AgentId,
    /// What its key is known by.
    key: String,
    record: Mutex<AgentRecord>,
    /// Its labels of enrolment.
    enrolled_with: Labels,
    /// Its labels by operators.
    given_labels: Mutex<Labels>,
    /// The call of its connection to see what its labels lead to.
    relabelled: tokio::sync::Notify,
    state: Mutex<State>,
    /// Microseconds since the epoch, 0 for never.
    last_seen: AtomicI64,
    connected: AtomicBool,
    /// What it said last could not be stored: what is held of it is old.
    unstored: AtomicBool,
    /// Its newest certificate is good until then, in microseconds since the epoch; 0 where it was not seen
    /// yet.
    certificate_until: AtomicI64,
    /// The versions of the documents that it was given; none where that was not kept yet.
    given: Mutex<Option<given::Given>>,
    /// Why it may not be linked any more; none as long as it may.
    removed: watch::Sender<Option<String>>,
    /// Which process has its link.
    seat: watch::Sender<seat::Seat>,
    /// The newest question to that process whether it is there, and the newest that it answered.
    probe: watch::Sender<u64>,
    probe_answer: watch::Sender<u64>,
    /// Of its copies that are to become hosts of their own.
    tickets: Mutex<copies::Tickets>,
    /// Of its copies that are told of in the log.
    copies_told: RateLimit,
    /// Places for work on its calls beside the link, as for strangers.
    calls: Arc<Semaphore>,
    /// The place to renew its certificate, which waits for none of these.
    renewing: Arc<Semaphore>,
    /// Of what the process says that has its link.
    pace: pace::Pace,
    /// The connections that want the link.
    arrivals: arrivals::Arrivals,
    /// Of its connections that are told of in the log.
    comings: RateLimit,
    /// Held by the connection that changes the state.
    turn: tokio::sync::Mutex<()>,
    /// Projects that it is to contact, and the call of its connection to take them.
    contacts: Mutex<BTreeSet<MasterUrl>>,
    contact_wanted: tokio::sync::Notify,
    /// When it was told so last, for those of the last minute.
    told: Mutex<BTreeMap<MasterUrl, std::time::Instant>>,
    /// Of its own accounts, by the names of projects.
    keys: Mutex<BTreeMap<String, AccountKey>>,
}

impl Fleet {
    /// Reads the fleet from its store.
    ///
    /// # Errors
    /// [`FleetError`].
    pub fn open(
        store: Arc<dyn Store>,
        documents: Arc<Documents>,
        issuer: Arc<Issuer>,
        settings: LinkSettings,
    ) -> Result<Arc<Self>, FleetError> {
        let mut totals = Totals::default();
        let audit = Arc::new(AuditLog::open(store.clone())?);
        let agents = load(&*store, &mut totals)?;
        let commits = Commits::start(store.clone()).map_err(FleetError::Thread)?;
        let fleet = Arc::new(Self {
            store,
            audit,
            commits,
            documents,
            issuer,
            accounts: OnceLock::new(),
            projects_url: OnceLock::new(),
            guesses: FailedAuthDelay::default(),
            settings,
            agents: RwLock::new(agents),
            totals: Mutex::new(totals),
            connected: AtomicU64::new(0),
            calls: Mutex::default(),
            returns: Mutex::default(),
            speakers: Mutex::default(),
            strangers: strangers::Strangers::default(),
            renewed: Mutex::default(),
            changing: Mutex::default(),
            relabelling: Arc::default(),
            stopping: watch::Sender::new(false),
        });
        let reach: std::sync::Weak<Self> = Arc::downgrade(&fleet);
        fleet.documents.set_reach(reach);
        fleet.let_go_all();
        Ok(fleet)
    }

    /// The coordinator's audit log.
    #[must_use]
    pub fn audit(&self) -> &Arc<AuditLog> {
        &self.audit
    }

    /// Under which the coordinator's own projects are reached, and whether another server may stand there:
    /// agents are told. Said once, before anybody is served.
    pub fn set_projects_url(&self, url: &str, behind_proxy: bool) {
        if self.projects_url.set((url.to_owned(), behind_proxy)).is_err() {
            tracing::error!("where the projects are is said already");
        }
    }

    /// Ends all links, so that the agents know at once.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Agents whose stream is open.
    #[must_use]
    pub fn connected(&self) -> u64 {
        self.connected.load(Ordering::Relaxed)
    }

    /// Agents that were enrolled and neither revoked nor forgotten.
    #[must_use]
    pub fn enrolled(&self) -> usize {
        let agents = self.agents.read().unwrap_or_else(PoisonError::into_inner);
        agents.values().filter(|agent| agent.is_member()).count()
    }

    /// What a project had of all agents.
    #[must_use]
    pub fn project_totals(&self, url: &MasterUrl) -> ProjectTotals {
        lock(&self.totals).of(url)
    }

    /// All agents but those that were forgotten, in order of their ids, which is that of their enrolment.
    pub fn hosts(&self) -> impl Iterator<Item = Host> + use<> {
        self.all().into_iter().map(|agent| agent.host())
    }

    fn all(&self) -> Vec<Arc<Agent>> {
        let agents = self.agents.read().unwrap_or_else(PoisonError::into_inner);
        agents.values().filter(|agent| !lock(&agent.record).forgotten).cloned().collect()
    }

    /// The agents that are asked for anything: neither revoked nor forgotten.
    fn members(&self) -> Vec<Arc<Agent>> {
        let agents = self.agents.read().unwrap_or_else(PoisonError::into_inner);
        agents.values().filter(|agent| agent.is_member()).cloned().collect()
    }

    /// An agent's name, as hosts are listed: what it calls itself, or else its host; empty for one that is
    /// not known.
    #[must_use]
    pub fn name_of(&self, id: &str) -> String {
        self.agent(id).map(|agent| agent.name()).unwrap_or_default()
    }

    fn connected_agents(&self) -> Vec<Arc<Agent>> {
        let agents = self.agents.read().unwrap_or_else(PoisonError::into_inner);
        agents.values().filter(|agent| agent.is_connected()).cloned().collect()
    }

    pub(crate) fn agent(&self, id: &str) -> Option<Arc<Agent>> {
        self.agents.read().unwrap_or_else(PoisonError::into_inner).get(&AgentId(id.to_owned())).cloned()
    }

    /// Takes up an agent that has enrolled, if it was not there before.
    fn add(&self, enrolled: &Enrolled) {
        let mut agents = self.agents.write().unwrap_or_else(PoisonError::into_inner);
        let first = enrolled.record.copy_of.as_ref().and_then(|copy| agents.get(&copy.agent));
        let machine = first.map(|first| lock(&first.state).machine().clone()).unwrap_or_default();
        let new = || {
            let agent = Agent::new(enrolled.id.clone(), enrolled.record.clone());
            *lock(&agent.state) = State::on(machine);
            Arc::new(agent)
        };
        agents.entry(enrolled.id.clone()).or_insert_with(new).certified(&enrolled.issued.says);
    }
}

impl Agent {
    fn new(id: AgentId, record: AgentRecord) -> Self {
        let removed = membership::removed(&record);
        Self {
            id,
            key: record.key.clone(),
            enrolled_with: record.labels.clone(),
            record: Mutex::new(record),
            given_labels: Mutex::default(),
            relabelled: tokio::sync::Notify::new(),
            state: Mutex::new(State::default()),
            last_seen: AtomicI64::new(0),
            connected: AtomicBool::new(false),
            unstored: AtomicBool::new(false),
            certificate_until: AtomicI64::new(0),
            given: Mutex::new(Some(given::Given::default())),
            removed: watch::Sender::new(removed),
            seat: watch::Sender::default(),
            probe: watch::Sender::default(),
            probe_answer: watch::Sender::default(),
            tickets: Mutex::default(),
            copies_told: RateLimit::new(),
            calls: Arc::new(Semaphore::new(limits::AT_WORK)),
            renewing: Arc::new(Semaphore::new(1)),
            pace: pace::Pace::default(),
            arrivals: arrivals::Arrivals::default(),
            comings: RateLimit::new(),
            turn: tokio::sync::Mutex::new(()),
            contacts: Mutex::new(BTreeSet::new()),
            contact_wanted: tokio::sync::Notify::new(),
            told: Mutex::default(),
            keys: Mutex::new(BTreeMap::new()),
        }
    }

    fn hostname(&self) -> String {
        lock(&self.record).hostname.clone()
    }

    /// What it is listed by.
    fn name(&self) -> String {
        let said = lock(&self.state).host().map(|host| host.name.clone()).unwrap_or_default();
        if said.is_empty() { self.hostname() } else { said }
    }

    /// As the audit log names it: its id, and what it is listed by.
    fn said(&self) -> String {
        format!("{} ({})", self.id.0, self.name())
    }

    /// Notes that it is given a version: what is to be stored, if that is news.
    fn give(&self, version: DocumentVersion) -> Option<given::Given> {
        let mut given = lock(&self.given);
        let is_news = match &mut *given {
            Some(given) => given.give(version),
            none => none.replace(given::Given::since(version)).is_none(),
        };
        given.as_ref().filter(|_| is_news).cloned()
    }

    /// Whether it was given a version; none where that is not known.
    fn was_given(&self, version: DocumentVersion) -> Option<bool> {
        lock(&self.given).as_ref().and_then(|given| given.has(version))
    }

    fn seen(&self, now: Instant) {
        self.last_seen.store(now.as_micros(), Ordering::Relaxed);
    }

    fn last_seen(&self) -> Instant {
        Instant::from_micros(self.last_seen.load(Ordering::Relaxed))
    }

    fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }
}

/// Entries read from the store at once: bounds the memory of a start beside what is kept.
const PAGE: usize = 10_000;

fn load(store: &dyn Store, totals: &mut Totals) -> Result<BTreeMap<AgentId, Arc<Agent>>, StoreError> {
    let mut agents = BTreeMap::new();
    each(store, keys::AGENTS, |key, value| {
        let record: AgentRecord = keys::AGENT.read(key, value)?;
        let id = keys::split(keys::AGENTS, key).map(|(id, _)| id);
        let id = id.ok_or_else(|| keys::AGENT.bad_value(key, "it has no usable id"))?;
        agents.insert(id.clone(), Arc::new(Agent::new(id, record)));
        Ok(())
    })?;
    // A host and its copies count as one machine.
    let mut machines: BTreeMap<AgentId, MachineWeight> = BTreeMap::new();
    for (id, agent) in &agents {
        let machine = machines.entry(copies::eldest(&agents, id)).or_default();
        *lock(&agent.state) = State::on(machine.clone());
    }
    let owner = |prefix: &[u8], key: &[u8]| {
        let (id, rest) = keys::split(prefix, key)?;
        Some((Arc::clone(agents.get(&id)?), rest.to_owned()))
    };
    each(store, keys::POSITIONS, |key, value| {
        let position: Position = keys::POSITION.read(key, value)?;
        if let Some((agent, _)) = owner(keys::POSITIONS, key) {
            agent.seen(position.at);
            lock(&agent.state).position = position;
            // It was linked, perhaps when it was not kept yet what it was given.
            *lock(&agent.given) = None;
        }
        Ok(())
    })?;
    each(store, keys::GIVENS, |key, value| {
        let given: given::Given = keys::GIVEN.read(key, value)?;
        if let Some((agent, _)) = owner(keys::GIVENS, key) {
            *lock(&agent.given) = Some(given);
        }
        Ok(())
    })?;
    each(store, keys::LABELLED, |key, value| {
        let labels: Labels = keys::LABELS.read(key, value)?;
        if let Some((agent, _)) = owner(keys::LABELLED, key) {
            *lock(&agent.given_labels) = labels;
        }
        Ok(())
    })?;
    let mut jobs = Vec::new();
    each(store, keys::ENTRIES, |key, value| {
        let agent = owner(keys::ENTRIES, key);
        // Of one that is no member, which may have said much, jobs are not even read.
        if agent.as_ref().is_some_and(|(agent, key)| !agent.is_member() && key.starts_with("task/")) {
            jobs.push((key.to_owned(), None));
            if jobs.len() >= PAGE {
                forget(store, std::mem::take(&mut jobs));
            }
            return Ok(());
        }
        let entry = stored::read(key, value)?;
        if let Some((agent, _)) = agent {
            lock(&agent.state).put(entry, totals);
        }
        Ok(())
    })?;
    forget(store, jobs);
    each(store, keys::PASTS, |key, value| {
        let past: PastTotals = keys::PAST.read(key, value)?;
        if let Some((agent, url)) = owner(keys::PASTS, key) {
            let url = MasterUrl::try_from(url).map_err(|error| keys::PAST.bad_value(key, error))?;
            lock(&agent.state).put_past(url, past, totals);
        }
        Ok(())
    })?;
    Ok(agents)
}

/// Removes jobs of agents that are no members. Where they cannot be, they are in nobody's way.
fn forget(store: &dyn Store, jobs: Writes) {
    let count = jobs.len();
    match leaving::remove(store, jobs) {
        Ok(()) if count == 0 => {}
        Ok(()) => tracing::info!(
            count,
            "jobs of hosts that are no members of the fleet were removed from the store"
        ),
        Err(error) => {
            tracing::warn!(error = %error, "jobs of hosts that are no members of the fleet stay in the store");
        }
    }
}

fn each(
    store: &dyn Store,
    prefix: &[u8],
    mut take: impl FnMut(&[u8], &[u8]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut range = KeyRange::prefix(prefix);
    loop {
        let page = store.scan(&range, PAGE)?;
        for (key, value) in &page {
            take(key, value)?;
        }
        match page.last() {
            Some((last, _)) if page.len() == PAGE => range = range.after(last),
            _ => return Ok(()),
        }
    }
}
