//! A modelled host with modelled projects, in virtual time, one CPU second per second: what a test steers and
//! sees of it.
//!
//! `shell` carries effects out, `tasks` are the processes, `server` the projects.

mod disk;
mod server;
mod shadow;
mod shell;
mod tasks;

use std::collections::{BTreeMap, BTreeSet};

use fallow_boinc::scheduler::{ClientVersion, SchedulerReply};
use fallow_client::{
    AttachRequest, Client, ClientConfig, DiskHeld, Download, Event, FileKey, ProjectView, Startup,
    TransferError, Waiter,
};
use fallow_domain::{
    AccountKey, Bytes, Duration, HostFacts, HostSpeed, Instant, JobId, MasterUrl, ProjectId, Share, SlotId,
    Speed,
};

pub(crate) use disk::ModelVolume;
use fallow_policy::composition::Composition;
use fallow_policy::confinement::TaskLayers;
pub(crate) use server::CODE_SIGN_KEY;
use server::Project;
use shadow::Shadow;
use tasks::Task;

pub(crate) fn version() -> ClientVersion {
    ClientVersion { major: 8, minor: 3, release: 0 }
}

/// A project is attached at the owner's word, and nobody waits for what it says.
pub(crate) fn attach_unseen(url: MasterUrl, key: &str, share: Option<Share>) -> Event {
    let account_key = Some(AccountKey::new(key));
    Event::Attach(AttachRequest { waiter: Waiter(0), url, account_key, share, unseen: true })
}

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) client: Client,
    pub(crate) config: ClientConfig,
    /// One that keeps no records and is told the same.
    shadow: Option<Shadow>,
    pub(crate) store: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) projects: BTreeMap<String, Project>,
    tasks: BTreeMap<JobId, Task>,
    /// Checkpoints on the disk, by slot.
    disk: BTreeMap<SlotId, (Duration, Duration, bool)>,
    /// Whose they are.
    owners: BTreeMap<SlotId, JobId>,
    /// By which start of theirs.
    starts: BTreeMap<SlotId, u32>,
    pub(crate) files: BTreeSet<FileKey>,
    queue: Vec<(Instant, Event)>,
    wake_at: Instant,
    urls: BTreeMap<ProjectId, String>,
    pub(crate) cpu_used: Duration,
    pub(crate) notices: Vec<String>,
    pub(crate) log: Vec<String>,
    /// The requests as they were written.
    pub(crate) requests: Vec<String>,
    pub(crate) fail_download: Option<TransferError>,
    pub(crate) fail_upload: Option<TransferError>,
    /// Downloads from URLs with this in them fail.
    pub(crate) dead_mirror: Option<&'static str>,
    /// What was downloaded and uploaded, in order: when, the file, its URL.
    pub(crate) transfers: Vec<(Instant, String, String)>,
    pub(crate) downloads: Vec<Download>,
    pub(crate) uploads: Vec<fallow_client::Upload>,
    /// Transfers never end.
    pub(crate) stuck: Option<&'static str>,
    /// Which downloads fail then, by the end of their names.
    pub(crate) fail_suffix: &'static str,
    /// And by their beginning.
    pub(crate) fail_prefix: &'static str,
    /// How long a download takes, beyond what all take.
    pub(crate) download_takes: Duration,
    /// What every task holds in memory.
    pub(crate) working_set: Bytes,
    /// What every task has in the swap space, where that is looked at.
    pub(crate) swap: Option<Bytes>,
    /// Tasks do not leave yet when they are told to.
    pub(crate) leaves_late: bool,
    /// Only those have so much there whose names begin so; others have a page.
    pub(crate) swap_prefix: &'static str,
    /// How many processes and threads every task has.
    pub(crate) threads: u32,
    /// How many tasks were killed without being asked.
    pub(crate) killed: usize,
    /// Downloads of files that begin so never end.
    pub(crate) drip_prefix: Option<&'static str>,
    pub(crate) never_finishes: bool,
    /// Tasks exit with 0 within their first second.
    pub(crate) exits_at_once: bool,
    /// Which tasks do so then, by the beginning of their names.
    pub(crate) exits_prefix: &'static str,
    /// And ask to be started again so much later.
    pub(crate) asks_again_in: Option<Duration>,
    /// The next start fails like this.
    pub(crate) fault: Option<fallow_client::StartFault>,
    /// Projects acknowledge no messages of jobs.
    pub(crate) acks_no_trickles: bool,
    /// When tasks were to be started.
    pub(crate) start_times: Vec<Instant>,
    /// What a project changes in its reply, given the number of replies before.
    pub(crate) alter: Option<fn(&mut SchedulerReply, usize)>,
    /// What the shell cannot give to tasks that start.
    pub(crate) without: TaskLayers,
    /// Schedulers take requests and never answer.
    pub(crate) silent: bool,
    /// Scheduler URLs that a master page names.
    pub(crate) schedulers: usize,
    /// So many starts fail from now on.
    pub(crate) fail_starts: u32,
    /// How much longer jobs take than their projects say.
    pub(crate) slowness: f64,
    /// How often the client was called.
    pub(crate) turns: u64,
    /// What the files of every task hold.
    pub(crate) disk_held: Option<DiskHeld>,
    /// The disk is full from the next start of a task on: the shell holds every step back, and tells the
    /// client nothing.
    pub(crate) fill_disk_after_start: bool,
    disk_full: bool,
    /// The shell cannot take what finished tasks leave; it takes it at their next start.
    pub(crate) takes_nothing: bool,
    /// CPU time of tasks that were left so, from their beginning.
    untaken: BTreeMap<JobId, Duration>,
    /// The volume, where the client has it measured.
    pub(crate) volume: Option<ModelVolume>,
    /// Aborted processes that have not left yet.
    dying: BTreeMap<JobId, SlotId>,
}

const TICK: Duration = Duration::from_secs(1);

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        Self::of(ClientConfig::new(seed, version()), None)
    }

    /// A host that fills a buffer, as in CS2_WF2_WS2_JC2.
    pub(crate) fn with_a_buffer(seed: u64) -> Self {
        let composition = Composition::base();
        Self::with(ClientConfig { composition, ..ClientConfig::new(seed, version()) })
    }

    /// A host whose client is set up in a way of its own.
    pub(crate) fn with(config: ClientConfig) -> Self {
        Self::of(config, None)
    }

    /// A host whose client does what another does beside it that keeps no records.
    pub(crate) fn of_two_alike(config: ClientConfig) -> Self {
        let shadow = Shadow::new(&config, false, []);
        Self::of(config, Some(shadow))
    }

    /// The same, and the other learns only what its own policy looks at.
    pub(crate) fn of_one_that_learns_less_beside(config: ClientConfig) -> Self {
        let shadow = Shadow::new(&config, true, []);
        Self::of(config, Some(shadow))
    }

    fn of(config: ClientConfig, shadow: Option<Shadow>) -> Self {
        let client = Client::restore(config.clone(), []).unwrap();
        let mut world = Self {
            now: Instant::from_secs_f64(1_800_000_000.0),
            client,
            shadow,
            config,
            store: BTreeMap::new(),
            projects: BTreeMap::new(),
            tasks: BTreeMap::new(),
            disk: BTreeMap::new(),
            owners: BTreeMap::new(),
            starts: BTreeMap::new(),
            files: BTreeSet::new(),
            queue: Vec::new(),
            wake_at: Instant::FAR_FUTURE,
            urls: BTreeMap::new(),
            cpu_used: Duration::ZERO,
            notices: Vec::new(),
            log: Vec::new(),
            requests: Vec::new(),
            fail_download: None,
            fail_upload: None,
            dead_mirror: None,
            transfers: Vec::new(),
            downloads: Vec::new(),
            uploads: Vec::new(),
            stuck: None,
            fail_suffix: "_in",
            fail_prefix: "",
            download_takes: Duration::ZERO,
            working_set: Bytes::from_mebibytes(10),
            swap: None,
            swap_prefix: "",
            leaves_late: false,
            threads: 1,
            killed: 0,
            drip_prefix: None,
            never_finishes: false,
            exits_at_once: false,
            exits_prefix: "",
            asks_again_in: None,
            fault: None,
            acks_no_trickles: false,
            start_times: Vec::new(),
            alter: None,
            without: TaskLayers::default(),
            silent: false,
            schedulers: 1,
            fail_starts: 0,
            slowness: 1.0,
            turns: 0,
            disk_held: None,
            fill_disk_after_start: false,
            disk_full: false,
            takes_nothing: false,
            untaken: BTreeMap::new(),
            volume: None,
            dying: BTreeMap::new(),
        };
        world.start();
        world
    }

    pub(crate) fn add_project(&mut self, name: &str, supply: u64, cpu: Duration) {
        self.projects.insert(name.to_owned(), Project { supply, cpu, ..Project::default() });
    }

    /// A host whose client has the disk measured.
    pub(crate) fn on_a_volume(seed: u64, size: u64) -> Self {
        let measure_disk = Some(Duration::from_mins(10));
        let mut world = Self::with(ClientConfig { measure_disk, ..ClientConfig::new(seed, version()) });
        world.volume = Some(ModelVolume { size, ..ModelVolume::default() });
        // The look that was asked for before there was a volume.
        let found = world.look_at_disk().unwrap();
        world.later(Event::DiskMeasured(Ok(Box::new(found))));
        world
    }

    pub(crate) fn event(&mut self, mut event: Event) {
        if self.disk_full {
            return;
        }
        self.look_again(&mut event);
        let measured = matches!(event, Event::DiskMeasured(Ok(_)) | Event::VolumeSeen { .. });
        self.turns += 1;
        let alike = self.shadow.as_mut().map(|shadow| shadow.handle(self.now, event.clone()));
        let step = self.client.handle(self.now, event);
        if let (Some(shadow), Some(alike)) = (&self.shadow, alike) {
            shadow.assert_alike(&self.client, &step, &alike);
        }
        self.carry_out(step);
        if measured {
            self.assert_rests_for_space();
        }
    }

    pub(crate) fn run_for(&mut self, length: Duration) {
        let end = self.now + length;
        while self.now < end {
            self.tick();
        }
    }

    pub(crate) fn run_until(&mut self, what: &str, at_most: Duration, done: impl Fn(&Self) -> bool) {
        let end = self.now + at_most;
        while !done(self) {
            assert!(self.now < end, "not within {at_most}: {what}\n{}", self.log.join("\n"));
            self.tick();
        }
    }

    pub(crate) fn jump(&mut self, by: Duration) {
        self.now = self.now + by;
        // A shell sleeps for a length of time, whatever the clock says meanwhile.
        if self.wake_at < Instant::FAR_FUTURE {
            self.wake_at = self.wake_at + by;
        }
        for (at, _) in &mut self.queue {
            *at = *at + by;
        }
    }

    /// The host sleeps for so long, and says so.
    pub(crate) fn sleep(&mut self, length: Duration) {
        self.wake_at = Instant::FAR_FUTURE;
        self.event(Event::HostAway);
        self.now = self.now + length;
        self.event(Event::HostBack);
    }

    /// kill -9 and start again: processes are gone, slots and files are there.
    pub(crate) fn restart(&mut self) {
        for task in self.tasks.values() {
            self.disk.insert(task.setup.slot, (task.base + task.cpu, task.checkpoint, task.finished));
        }
        self.tasks.clear();
        self.dying.clear();
        self.queue.clear();
        self.client = self.restored();
        let another = self.shadow.as_ref().map(|shadow| shadow.restarted(&self.config, self.store.clone()));
        self.shadow = another;
        self.disk_full = false;
        self.start();
    }

    pub(crate) fn restored(&self) -> Client {
        Client::restore(self.config.clone(), self.store.clone()).unwrap()
    }

    /// When a project's scheduler was called.
    pub(crate) fn calls(&self, name: &str) -> Vec<Instant> {
        self.projects[name].calls.clone()
    }
    pub(crate) fn acknowledged(&self, name: &str) -> u64 {
        self.projects[name].reports.len() as u64
    }
    /// How many records the store holds under a prefix.
    pub(crate) fn stored(&self, prefix: &str) -> usize {
        self.store.keys().filter(|key| key.starts_with(prefix.as_bytes())).count()
    }
    /// A file in a project's directory that no record tells of.
    pub(crate) fn leave_behind(&mut self, file: FileKey) {
        self.files.insert(file);
    }
    pub(crate) fn has_file(&self, name: &str) -> bool {
        self.files.iter().any(|key| key.name == name)
    }
    pub(crate) fn computing(&self) -> usize {
        self.tasks.values().filter(|task| task.executing).count()
    }
    /// Tasks that compute and have the network.
    pub(crate) fn networked(&self) -> usize {
        self.tasks.values().filter(|task| task.executing && task.setup.network).count()
    }
    /// What tasks have to have to be started.
    pub(crate) fn required(&self) -> TaskLayers {
        self.tasks.values().next().map(|task| task.setup.required).unwrap_or_default()
    }
    pub(crate) fn slots_in_use(&self) -> usize {
        self.disk.len()
    }
    pub(crate) fn longest_task(&self) -> Duration {
        self.tasks.values().map(|task| task.base + task.cpu).max().unwrap_or_default()
    }
    pub(crate) fn view(&self, name: &str) -> ProjectView {
        self.client.project_views().into_iter().find(|view| view.name == name).unwrap()
    }
    pub(crate) fn notices(&self) -> impl Iterator<Item = &String> {
        self.notices.iter()
    }

    fn start(&mut self) {
        let files = self.files.iter().map(|key| (key.clone(), Bytes(10))).collect();
        let slots = self.disk.iter().map(|(slot, found)| self.slot_found(*slot, *found)).collect();
        self.event(Event::Started(Box::new(Startup { host: host(), slots, files, doomed: Vec::new() })));
    }

    fn tick(&mut self) {
        let end = self.now + TICK;
        self.see_volume();
        loop {
            let next =
                self.queue.iter().enumerate().min_by_key(|(_, (at, _))| *at).map(|(i, (at, _))| (i, *at));
            match next {
                Some((i, at)) if at <= end && at <= self.wake_at => {
                    self.now = self.now.max(at);
                    let (_, event) = self.queue.remove(i);
                    if let Event::TaskEnded { job, .. } = &event {
                        self.dying.remove(job);
                    }
                    self.event(event);
                }
                _ if self.wake_at <= end => {
                    self.now = self.now.max(self.wake_at);
                    self.wake_at = Instant::FAR_FUTURE;
                    self.event(Event::WakeUp);
                }
                _ => break,
            }
        }
        self.now = end;
        self.compute();
    }

    fn project_id(&self, url: &MasterUrl) -> ProjectId {
        *self.urls.iter().rfind(|(_, known)| **known == url.as_str()).unwrap().0
    }
}

pub(crate) fn host() -> HostFacts {
    let speed = Speed::new(1e9).unwrap();
    HostFacts {
        timezone: 0,
        domain_name: "host".to_owned(),
        ip_addr: "127.0.0.1".to_owned(),
        host_cpid: "0".repeat(32),
        ncpus: 2,
        cpu_vendor: "v".to_owned(),
        cpu_model: "m".to_owned(),
        cpu_features: String::new(),
        speed: HostSpeed { fpops: speed, iops: speed, membw: 1e9, measured_at: 0.0 },
        memory: Bytes::from_mebibytes(8_192),
        cache: Bytes::from_mebibytes(1),
        swap: Bytes(0),
        disk_total: Bytes(100_000_000_000),
        disk_free: Bytes(50_000_000_000),
        os_name: "Linux".to_owned(),
        os_version: "1".to_owned(),
        platforms: vec!["x86_64-pc-linux-gnu".to_owned()],
        coprocessors: Vec::new(),
        virtualization: fallow_domain::Virtualization::default(),
    }
}
