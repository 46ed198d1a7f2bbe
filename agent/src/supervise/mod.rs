//! Tasks as processes: starts them, talks to them, watches them, and tells how they ended.
//!
//! Model: one thread holds all tasks. Once a second, or more seldom while all are stopped (`pace`), it
//! looks at the kernel's counters, turns the control queues, sends heartbeats, and reports samples. Each task
//! has a thread of its own, which fills the slot, starts the process and waits for its end, so that a large
//! copy or MD5 sum never holds up another task's heartbeat.
//!
//! The orders come from the client, which gives a bounded number of them per task; hence the queue has no
//! bound.
//!
//! Left out: graphics.

mod collect;
mod copying;
mod departed;
mod disk;
mod early_door;
mod early_uploads;
mod eviction;
pub mod freezer;
pub mod groups;
mod hearing;
mod killing;
mod launch;

pub mod leftovers;
mod members;
mod memory;
mod messages;
mod meter;
mod pace;
mod record;
mod reports;
mod restless;
mod slot;
mod slot_dir;
mod still_count;
mod swap_looks;
mod task;
mod task_thread;
mod uncollected;
mod unsent_messages;
mod verify;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration as StdDuration, Instant as StdInstant};

use fallow_boinc::runtime::exit::Ended;
use fallow_boinc::runtime::files;
use fallow_boinc::runtime::message::ProcessControl;
use fallow_client::{Event, Room, StartFault, TaskEnd, TaskLimits, TaskSample, TaskSetup};
use fallow_domain::{Bytes, JobId, SlotId};

use crate::brand::Brand;
use crate::confine::Confinement;
use crate::dir::DataDir;
use crate::files::shown;
use crate::fleeting::Forks;
use crate::guard::GuardHandle;
use crate::modes;
use crate::proc::Sessions;
use disk::DiskLook;
use eviction::{EndedTasks, Shortage};
use freezer::{Freezer, Reach};
use groups::Groups;
use members::Members;
use pace::Matters;
use reports::Reports;
use slot_dir::SlotDir;
use still_count::StillCount;
use swap_looks::SwapLooks;
use task::Task;
use uncollected::UncollectedOutputs;
use unsent_messages::UnsentMessages;
use verify::Known;

/// Passes on an event that must not be lost. If the engine has no room for it, it comes back, and is passed
/// on again later.
pub type SendEvent = Arc<dyn Fn(Event) -> Option<Event> + Send + Sync>;

/// Passes on an event only if the engine has room for it at once. False when it was not passed on.
pub type TrySendEvent = Arc<dyn Fn(Event) -> bool + Send + Sync>;

/// So often it is said that modes of the agent's own files are changed, while they are.
const TELL_MODES: StdDuration = StdDuration::from_hours(1);
/// Orders that are carried out before anything else is looked at, at most.
const AT_ONCE: usize = 100;
/// How soon the engine is told again what it had no room for.
const TELL_AGAIN: StdDuration = StdDuration::from_millis(50);

/// What all tasks share.
pub struct Context {
    /// The data directory.
    pub dir: DataDir,
    /// Names this life of the agent, as no other life of an agent on this host is named.
    pub life: String,
    /// Who cleans up after a `kill -9` of the agent.
    pub guard: GuardHandle,
    /// What keeps applications in their slots.
    pub confinement: Confinement,
    /// The control groups that they are in.
    pub groups: Arc<Groups>,
    /// The host's memory, which heartbeats tell to applications.
    pub memory: Bytes,
    /// Where events go that must not be lost.
    pub send_event: SendEvent,
    /// Where goes what must not hold up heartbeats: samples, of which another comes in a second, and what is
    /// told later if not now.
    pub try_send_event: TrySendEvent,
}

/// What all tasks share, with what the supervisor itself keeps.
struct Shared {
    context: Context,
    known: Known,
    uncollected: UncollectedOutputs,
}

impl std::ops::Deref for Shared {
    type Target = Context;
    fn deref(&self) -> &Context {
        &self.context
    }
}

impl Shared {
    /// Empties a slot, and forgets its task.
    fn clean(&self, slot: SlotId) {
        self.uncollected.forget(slot);
        for path in [self.dir.slot(slot), self.dir.slot_record(slot)] {
            if let Err(error) = self.dir.trash().take(&path) {
                // Whoever gets the number next finds it so too, and takes another.
                tracing::error!(%slot, path = %path.display(), %error, "cannot empty a slot");
            }
        }
    }
}

impl Context {
    /// The mark of a task's processes. No mark is the beginning of another one.
    fn mark(&self, slot: SlotId) -> String {
        format!("{}{slot}:", life_mark(&self.dir, &self.life))
    }

    /// The number of a task's processes.
    fn brand(&self, slot: SlotId) -> Brand {
        Brand::of_life(&life_mark(&self.dir, &self.life)).of_slot(slot.0)
    }
}

/// The beginning of the marks of all processes of one life of the agent.
pub fn life_mark(dir: &DataDir, life: &str) -> String {
    format!("{}{life}:", agent_mark(dir))
}

/// The beginning of the marks of all processes of an agent: `PATH:PLACE:`. In containers two directories can
/// have the same path, and never the same place.
pub fn agent_mark(dir: &DataDir) -> String {
    dir.mark()
}

/// The handle to the supervising thread.
pub struct Supervisor {
    orders: Sender<Order>,
    freezer: Arc<Freezer>,
    allowed: Mutex<Option<TaskLimits>>,
    wanted: AtomicBool,
    swap_wanted: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Something for an application, put into its slot.
#[derive(Debug)]
pub enum Delivery {
    /// A message of its project.
    Trickle {
        /// The name of its file.
        name: String,
        /// The message.
        text: String,
    },
    /// What became of an output that it wanted sent early.
    UploadStatus {
        /// The name by which it opens the output.
        open_name: String,
        /// 0 if the server has it, else BOINC's error number.
        status: i32,
    },
}

enum Order {
    Start(Box<TaskSetup>),
    Tell(JobId, ProcessControl),
    Kill(JobId),
    Freeze,
    Allow(TaskLimits),
    Clean(SlotId),
    Deliver(JobId, SlotId, Delivery),
    /// Somebody wants the machine for himself: what was to be looked at later is looked at soon.
    Wanted,
    /// Kill what has no room, and empty its slot; nothing is to be killed from now on if it is none.
    MakeRoom(Option<Room>),
    /// Quit all tasks; kill after the grace.
    Stop(StdDuration),
    Up(JobId, task_thread::Process),
    Failed(JobId, slot::StartFailure),
    Gone(JobId, Box<TaskEnd>),
}

impl Supervisor {
    /// Starts the thread.
    ///
    /// # Errors
    /// An I/O error of the operating system, when it gives no thread.
    pub fn start(context: Context) -> std::io::Result<Self> {
        if let Some(users) = context.confinement.users() {
            context.dir.run_jobs_as(users.clone());
            context.dir.make_usable()?;
        }
        let (orders, incoming) = channel();
        let own = orders.clone();
        let freezer = Arc::new(Freezer::default());
        let swap = SwapLooks::default();
        let swap_wanted = swap.wanted();
        let supervision = Supervision {
            shared: Arc::new(Shared {
                known: Known::default(),
                uncollected: UncollectedOutputs::default(),
                context,
            }),
            tasks: BTreeMap::new(),
            own,
            freezer: Arc::clone(&freezer),
            forks: Forks::default(),
            members: Members::default(),
            disk: DiskLook::default(),
            swap,
            ended_tasks: EndedTasks::default(),
            reports: Reports::default(),
            unsent: UnsentMessages::default(),
            to_stop: BTreeSet::new(),
            told_modes: None,
            kill_all_at: None,
            room: None,
            still_count: None,
            shortage: None,
            stopping: false,
        };
        let thread = std::thread::Builder::new()
            .name("supervisor".into())
            .spawn(move || supervision.run(&incoming))?;
        let (allowed, wanted) = (Mutex::new(None), AtomicBool::new(false));
        Ok(Self { orders, freezer, allowed, wanted, swap_wanted, thread: Some(thread) })
    }

    /// Starts a task: `TaskStarted` or `TaskStartFailed` follows.
    pub fn start_task(&self, setup: Box<TaskSetup>) {
        let _ = self.orders.send(Order::Start(setup));
    }
    /// What stops all tasks at once.
    pub fn freezer(&self) -> &Arc<Freezer> {
        &self.freezer
    }
    /// Whether it is to be looked from now on how much of the swap space tasks hold.
    pub fn look_at_swap(&self, wanted: bool) {
        self.swap_wanted.store(wanted, Ordering::Relaxed);
    }
    /// Stops all tasks, but those that were told to leave: at once, whatever the thread does just now. Each
    /// goes on when it is told anything but to suspend.
    pub fn freeze(&self) {
        self.freezer.freeze();
        // Once more where that has its place among the orders before: one of them may have a task go on.
        let _ = self.orders.send(Order::Freeze);
    }
    /// Queues a message to a task's application. After a quit or an abort it has a minute to leave; one that
    /// hears nothing is killed at once, and one that somebody who wants the machine waits for soon.
    pub fn tell(&self, job: JobId, message: ProcessControl) {
        let _ = self.orders.send(Order::Tell(job, message));
    }
    /// Kills a task with all its processes.
    pub fn kill(&self, job: JobId) {
        let _ = self.orders.send(Order::Kill(job));
    }
    /// Puts something into a task's slot, and tells its application if it runs.
    pub fn deliver(&self, job: JobId, slot: SlotId, what: Delivery) {
        let _ = self.orders.send(Order::Deliver(job, slot, what));
    }
    /// Has the tasks' files counted soon, and kills those that have no room; their slots are emptied when
    /// they are gone, as are those of tasks that are gone already. It goes on until it is told otherwise with
    /// `None`.
    pub fn make_room(&self, room: Option<Room>) {
        let _ = self.orders.send(Order::MakeRoom(room));
    }
    /// Whether somebody wants the machine for himself, from now on.
    pub fn want(&self, wanted: bool) {
        self.freezer.set_wanted(wanted);
        if self.wanted.swap(wanted, Ordering::Relaxed) != wanted && wanted {
            let _ = self.orders.send(Order::Wanted);
        }
    }

    /// What the system is to hold each task to, from now on. To be called before the first is started, and
    /// whenever that may have changed.
    pub fn allow(&self, limits: TaskLimits) {
        let mut allowed = fallow_daemon::lock(&self.allowed);
        if allowed.replace(limits) != Some(limits) {
            let _ = self.orders.send(Order::Allow(limits));
        }
    }
    /// Empties a slot.
    pub fn clean(&self, slot: SlotId) {
        let _ = self.orders.send(Order::Clean(slot));
    }
    /// Has all tasks leave, kills those that have not after `grace`, and ends the thread once all are gone.
    /// May be called again with a shorter grace.
    pub fn stop(&self, grace: StdDuration) {
        let _ = self.orders.send(Order::Stop(grace));
    }
    /// True once the thread has ended, after [`Self::stop`].
    pub fn is_stopped(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
    /// Waits for the thread to end.
    pub fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Supervision {
    shared: Arc<Shared>,
    tasks: BTreeMap<JobId, Task>,
    own: Sender<Order>,
    freezer: Arc<Freezer>,
    forks: Forks,
    members: Members,
    disk: DiskLook,
    swap: SwapLooks,
    /// What tasks that are gone have left.
    ended_tasks: EndedTasks,
    reports: Reports,
    unsent: UnsentMessages,
    /// The first processes of tasks that are to rest and do not by a message alone.
    to_stop: BTreeSet<u32>,
    /// When it was said last that modes of the agent's own files were changed.
    told_modes: Option<StdInstant>,
    kill_all_at: Option<StdInstant>,
    /// What tasks may hold while there is no space on the disk.
    room: Option<Room>,
    /// A count of tasks that stand still, if one has to go.
    still_count: Option<StillCount>,
    /// As long as there is no space.
    shortage: Option<Shortage>,
    stopping: bool,
}

impl Supervision {
    fn run(mut self, incoming: &Receiver<Order>) {
        let mut looked = StdInstant::now();
        loop {
            let next = looked + self.matters().pace();
            let mut wait = next.saturating_duration_since(StdInstant::now());
            if !self.reports.is_empty() {
                wait = wait.min(TELL_AGAIN);
            }
            match incoming.recv_timeout(wait) {
                Ok(order) => {
                    self.carry_out(order);
                    // All that are to rest are stopped together.
                    incoming.try_iter().take(AT_ONCE).for_each(|order| self.carry_out(order));
                    self.freezer.freeze_some(&std::mem::take(&mut self.to_stop));
                }
                Err(RecvTimeoutError::Timeout) if StdInstant::now() < next => {}
                Err(RecvTimeoutError::Timeout) => {
                    // From now on, not from the last tick: a machine that slept does not owe ticks.
                    looked = StdInstant::now();
                    self.look(looked);
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.reports.tell(&self.shared.send_event);
            if self.stopping && self.tasks.is_empty() && self.reports.is_empty() {
                return;
            }
        }
    }

    /// What there is to look at.
    fn matters(&self) -> Matters {
        let makes_room = self.room.is_some() && !self.tasks.is_empty();
        Matters {
            tasks: !self.tasks.is_empty(),
            all_stopped: self.tasks.values().all(Task::is_still),
            all_bound: self.tasks.values().all(Task::is_bound),
            wanted: self.freezer.is_wanted(),
            under_way: !self.unsent.is_empty() || self.stopping && !self.tasks.is_empty() || makes_room,
            swap: self.swap.is_wanted(),
        }
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Start(setup) => self.start(setup),
            Order::Tell(job, message) => {
                if let Some(task) = self.tasks.get_mut(&job) {
                    // First, or it could be stopped once more in between, and would never go.
                    if matches!(message, ProcessControl::Quit | ProcessControl::Abort) {
                        task.meter().set_leaving();
                    }
                    if message != ProcessControl::Suspend {
                        self.freezer.thaw(task.pid().unwrap_or_default());
                        task.goes_on();
                    }
                    task.tell(message);
                    let pid = task.pid().unwrap_or_default();
                    match message == ProcessControl::Suspend {
                        true => self.to_stop.extend(task.rests_by_force()),
                        false => drop(self.to_stop.remove(&pid)),
                    }
                }
            }
            Order::Kill(job) => {
                if let Some(task) = self.tasks.get_mut(&job) {
                    task.kill("it takes more than it may");
                }
            }
            Order::Freeze => self.freezer.freeze_again(),
            // The next look is reckoned anew after each order.
            Order::Wanted => {}
            Order::Allow(limits) => self.shared.groups.allow(limits),
            Order::Clean(slot) => {
                self.clean(slot);
            }
            Order::Deliver(job, slot, what) => self.deliver(job, slot, &what),
            // Whatever is there leaves, and loses nothing by it.
            Order::MakeRoom(_) if self.stopping => {}
            Order::MakeRoom(room) => {
                if room.is_some() {
                    self.disk.hasten();
                }
                self.set_room(room);
                self.make_room();
            }
            Order::Stop(grace) => {
                self.set_room(None);
                self.stopping = true;
                let at = StdInstant::now() + grace;
                self.kill_all_at = Some(self.kill_all_at.map_or(at, |other| other.min(at)));
                self.tasks.values().for_each(|task| task.meter().set_leaving());
                self.thaw();
                self.tasks.values_mut().for_each(|task| task.tell(ProcessControl::Quit));
            }
            Order::Up(job, process) => {
                if let Some(task) = self.tasks.get_mut(&job) {
                    let (pid, without) = (process.pid, process.without);
                    self.freezer.add(pid, task.meter());
                    task.is_up(process);
                    self.report(Event::TaskStarted { job, pid, without });
                }
            }
            Order::Failed(job, failure) => {
                let task = self.tasks.remove(&job).filter(|task| task.discarded().is_some());
                let slot::StartFailure { reason, fault } = failure;
                if let Some(task) = task {
                    self.clean(task.slot());
                    // Outputs of an earlier start.
                    self.delete(task.files(&self.shared).outputs);
                    self.report(Event::OutputsGone { job });
                }
                self.report(Event::TaskStartFailed { job, reason, fault });
            }
            Order::Gone(job, end) => self.gone(job, end),
        }
    }

    fn deliver(&mut self, job: JobId, slot: SlotId, what: &Delivery) {
        let (name, text) = match what {
            Delivery::Trickle { name, text } => (name.clone(), text.clone()),
            Delivery::UploadStatus { open_name, status } => {
                (format!("{}{open_name}", files::UPLOAD_STATUS), files::upload_status(*status))
            }
        };
        let written = SlotDir::open(&self.shared.dir.slot(slot), self.shared.dir.trash())
            .and_then(|place| place.write(&name, text.as_bytes(), 0o644));
        match written {
            Ok(()) => {
                if let Some(task) = self.tasks.get_mut(&job) {
                    task.note_delivery(what);
                }
            }
            Err(error) => {
                tracing::warn!(%slot, name = shown(&name), %error, "cannot put a message into a slot");
            }
        }
    }

    fn thaw(&self) {
        self.tasks.values().filter_map(Task::pid).for_each(|pid| self.freezer.thaw(pid));
    }

    fn report(&mut self, event: Event) {
        self.reports.push(event, &self.shared.send_event);
    }

    fn clean(&mut self, slot: SlotId) {
        self.ended_tasks.forget(slot);
        self.shared.clean(slot);
    }

    fn start(&mut self, setup: Box<TaskSetup>) {
        let job = setup.job;
        if self.stopping || self.tasks.contains_key(&job) {
            tracing::error!(%job, "a task was to be started twice, or during the stop");
            return;
        }
        self.ended_tasks.begins(job, setup.slot);
        let task = Task::new(&setup);
        let meter = task.meter();
        self.tasks.insert(job, task);
        let (shared, own) = (Arc::clone(&self.shared), self.own.clone());
        let life = move || task_thread::live(&shared, &setup, &meter, |order| drop(own.send(order)));
        if let Err(error) = std::thread::Builder::new().name(format!("task-{job}")).spawn(life) {
            self.tasks.remove(&job);
            let reason = format!("no thread for the task: {error}");
            self.report(Event::TaskStartFailed { job, reason, fault: StartFault::Host });
        }
    }

    fn gone(&mut self, job: JobId, mut end: Box<TaskEnd>) {
        // What the application said last, for no other look comes after this: a checkpoint, perhaps.
        let task = self.tasks.remove(&job);
        if let Some(task) = &task {
            self.freezer.remove(&task.meter());
            end.killed = task.killed().map(str::to_owned);
        }
        match &task {
            Some(task) if let Some(why) = task.discarded() => {
                self.clean(task.slot());
                self.take_outputs(task, why, &mut end);
                end.made_room = Some(why);
                // It was killed for this usage: the most that was seen of it is reported.
                end.disk_usage = end.disk_usage.max(task.disk().unwrap_or_default().all);
            }
            Some(task) => self.ended_tasks.note(job, task, &end, task.files(&self.shared).outputs),
            None => {}
        }
        for (name, nbytes) in task.iter().flat_map(|task| task.last_trickles(&self.shared)) {
            self.unsent.push(job, name, nbytes);
            self.unsent.tell(&self.shared.try_send_event);
        }
        if let Some((used, status)) = task.and_then(|task| task.last_words()) {
            let (cpu_time, working_set) = (used.cpu, used.memory);
            self.report(Event::TasksSampled(vec![TaskSample {
                job,
                cpu_time,
                working_set,
                swap: None,
                threads: used.threads,
                disk: None,
                status,
            }]));
        }
        if self.stopping && end.exit == Ended::Code(0) && end.finish.is_none() && end.temporary_exit.is_none()
        {
            // It left because the agent asked it to: no premature exit of its own, but a stop from outside.
            end.exit = Ended::Signal { number: rustix::process::Signal::TERM.as_raw(), core_dumped: false };
        }
        self.report(Event::TaskEnded { job, end });
        // No look may come for long.
        self.keep_modes();
    }

    /// Puts the modes right of what is the agent's own. A task may change them at any time, and is not to
    /// fill the log by that.
    fn keep_modes(&mut self) {
        let changed = modes::keep(&self.shared.dir) + self.shared.groups.keep_modes();
        if changed > 0 && self.told_modes.is_none_or(|at| at.elapsed() > TELL_MODES) {
            modes::tell(&self.shared.dir, changed);
            self.told_modes = Some(StdInstant::now());
        }
    }

    /// Where the files of all tasks are.
    fn places(&self) -> Vec<(JobId, disk::Files)> {
        places(&self.tasks, &self.shared, &self.unsent)
    }

    /// A look, which began then.
    fn look(&mut self, began: StdInstant) {
        self.shared.guard.check();
        self.shared.dir.trash().look();
        self.unsent.tell(&self.shared.try_send_event);
        if self.tasks.is_empty() {
            self.members = Members::default();
            self.shared.guard.keep_strays(&Sessions::new());
            return;
        }
        self.shared.groups.follow();
        self.keep_modes();
        let now = fallow_daemon::clock::now();
        let overdue = self.kill_all_at.is_some_and(|at| at <= StdInstant::now());
        let used = self.members.look(&self.tasks.values().filter_map(Task::leader).collect());
        self.tasks.values().for_each(|task| task.note_strays(&self.members));
        let mut goes_on = false;
        for task in self.tasks.values_mut() {
            if task.is_frozen() && task.pid().is_some_and(|pid| self.members.is_awake(pid)) {
                task.is_restless();
                goes_on = true;
            }
        }
        // What no list has is stopped as well.
        let forks_fast = self.forks.are_many() && self.freezer.has_stopped();
        let flee = match goes_on || forks_fast {
            true => self.freezer.enforce(if forks_fast { Reach::All } else { Reach::Listed }),
            false => BTreeSet::new(),
        };
        for task in self.tasks.values_mut() {
            let flees = task.pid().is_some_and(|pid| flee.contains(&pid));
            task.note_fleeing(flees);
        }
        self.shared.guard.keep_strays(&self.members.all_strays());
        let (looks_at_swap, is_wanted) = (self.swap.is_due(began), self.freezer.is_wanted());
        let samples: Vec<TaskSample> = self
            .tasks
            .iter_mut()
            .filter_map(|(&job, task)| {
                if overdue {
                    task.kill("it did not leave before the agent ends");
                }
                let (used, status) = task.look(&self.shared, job, &used, now, &mut self.unsent, is_wanted)?;
                let disk = task.disk();
                let (cpu_time, working_set, threads) = (used.cpu, used.memory, used.threads);
                let leader = task.leader().filter(|_| looks_at_swap);
                let swap = leader.map(|(leader, _)| self.members.swap(leader));
                Some(TaskSample { job, cpu_time, working_set, swap, threads, disk, status })
            })
            .collect();
        let heedless = self.tasks.values_mut().filter_map(Task::heedless).collect::<Vec<_>>();
        let rested = self.tasks.values().filter_map(Task::has_rested);
        self.freezer.freeze_some(&heedless.into_iter().chain(rested).collect());
        let (tasks, shared) = (&self.tasks, &self.shared);
        let (news, unsure) =
            (tasks.values().any(Task::is_uncounted), tasks.values().any(Task::is_unsurely_counted));
        if !self.counts_still() {
            let unsent = &self.unsent;
            self.disk.look((news, unsure), shared.dir.path(), || places(tasks, shared, unsent));
        }
        self.make_room();
        // None of a task before its start is told.
        if !samples.is_empty() && self.reports.is_empty() {
            let _ = (self.shared.try_send_event)(Event::TasksSampled(samples));
        }
        self.unsent.tell(&self.shared.try_send_event);
    }
}

/// Where the files of all these tasks are.
fn places(
    tasks: &BTreeMap<JobId, Task>,
    shared: &Shared,
    unsent: &UnsentMessages,
) -> Vec<(JobId, disk::Files)> {
    let files = |(&job, task): (&JobId, &Task)| {
        let mut files = task.files(shared);
        let project = shared.dir.project(task.url());
        files.outputs.extend(unsent.names(job).iter().map(|name| project.join(name)));
        (job, files)
    };
    tasks.iter().map(files).collect()
}
