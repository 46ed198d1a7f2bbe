//! One task: its thread, which starts it and waits for it, and what the supervisor knows of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use fallow_boinc::names;
use fallow_boinc::runtime::channel::{Channel, Channels};
use fallow_boinc::runtime::exit::{Ended, FINISH_GRACE, QUIT_GRACE};
use fallow_boinc::runtime::files;
use fallow_boinc::runtime::message::{AppStatus, Heartbeat, ProcessControl, TrickleUp};
use fallow_client::{DiskHeld, Event, Goes, Held, SlotFile, StartFault, TaskEnd, TaskSetup, Uncounted};
use fallow_domain::{Bytes, Duration, Instant, JobId, MasterUrl, SlotId};
use fallow_policy::confinement::TaskLayers;
use rand::TryRng;
use rustix::process::{WaitId, WaitIdOptions};

use super::disk::{Files, Misses};
use super::early_door::EarlyDoor;
use super::early_uploads::EarlyLook;
use super::groups::TaskGroup;
use super::hearing::Hearing;
use super::members::{First, Members};
use super::memory::SharedMemory;
use super::pace::{Rest, Stillness};
use super::record::{Leader, Output, SlotRecord};
use super::restless::Restless;
use super::slot::StartFailure;
use super::slot_dir::{Last, SlotDir};
use super::unsent_messages::UnsentMessages;
use super::{Context, Delivery, Order, Shared, collect, launch, messages, slot, verify};
use crate::brand;
use crate::files::shown;
use crate::owner::Owner;
use crate::proc::{self, Sessions, Used};
use crate::sys::{self, Segment, Urgency};
use crate::walk::Missed;

/// How long a task that is to leave still has, when somebody wants the machine.
const HURRY: StdDuration = StdDuration::from_secs(5);
/// How often processes that left a task's session are looked for and killed at its end, at most.
const STRAY_ROUNDS: u32 = 20;
/// After this long, the engine is offered again what it had no room for.
const NO_ROOM: StdDuration = StdDuration::from_secs(1);
/// The message that a project's message lies in the slot.
const TRICKLE_DOWN: &str = "<have_trickle_down/>\n";
/// The message that there is news of an output that was to be sent early.
const UPLOAD_TOLD: &str = "<upload_file_status/>\n";

/// The most that a task was ever seen to use. Shared by the supervisor, which looks, and the task's thread,
/// which reports.
#[derive(Debug, Default)]
pub(super) struct Meter {
    cpu_micros: AtomicI64,
    peak_bytes: AtomicU64,
    /// What its files hold; none before the first count.
    disk: Mutex<(Option<DiskHeld>, Misses)>,
    /// When its first process was started, as the kernel counts; 0 before that.
    start: AtomicU64,
    /// The number of its processes (see [`crate::brand`]); 0 where it has none.
    brand: AtomicU64,
    /// The sessions that its processes made for themselves.
    strays: Mutex<Sessions>,
    /// It was told to go, or killed.
    leaving: AtomicBool,
    /// Its processes are stopped (see [`super::freezer`]).
    frozen: AtomicBool,
    /// Its process is gone for good: its id may be another's by now.
    gone: AtomicBool,
    /// The control group of its processes, where it has one.
    group: OnceLock<Arc<TaskGroup>>,
    /// By what its outputs are sent early; closed once it is over.
    early: EarlyDoor,
}

impl Meter {
    /// Notes a look. CPU time never falls.
    fn note(&self, used: Used) -> Used {
        // Its group has counted what came and went between two looks, too.
        let seen = used.cpu.max(self.group().and_then(TaskGroup::cpu).unwrap_or_default()).as_micros();
        let cpu = seen.max(self.cpu_micros.fetch_max(seen, Ordering::Relaxed));
        self.peak_bytes.fetch_max(used.memory.0, Ordering::Relaxed);
        Used { cpu: Duration::from_micros(cpu), ..used }
    }
    /// Notes what its files hold.
    pub(super) fn note_disk(&self, held: DiskHeld) {
        fallow_daemon::lock(&self.disk).0 = Some(held);
    }
    /// Notes what they hold as far as it is counted, if that is more than was known.
    pub(super) fn note_disk_of_at_least(&self, bytes: Bytes) {
        let known = &mut fallow_daemon::lock(&self.disk).0;
        let held = known.unwrap_or_default();
        if bytes > held.all {
            *known = Some(DiskHeld { all: bytes, ..held });
        }
    }
    /// Notes what a count has missed, and says what follows from that.
    pub(super) fn note_miss(&self, missed: Option<Missed>) -> Option<Uncounted> {
        fallow_daemon::lock(&self.disk).1.note(missed)
    }
    /// What its files hold, as they were counted last.
    pub(super) fn disk(&self) -> Option<DiskHeld> {
        fallow_daemon::lock(&self.disk).0
    }
    fn is_unsure(&self) -> bool {
        fallow_daemon::lock(&self.disk).1.is_unsure()
    }
    fn cpu(&self) -> Duration {
        Duration::from_micros(self.cpu_micros.load(Ordering::Relaxed))
    }
    pub(super) fn strays(&self) -> MutexGuard<'_, Sessions> {
        fallow_daemon::lock(&self.strays)
    }
    pub(super) fn set_start(&self, start: u64) {
        self.start.store(start, Ordering::Relaxed);
    }
    fn start(&self) -> u64 {
        self.start.load(Ordering::Relaxed)
    }
    pub(super) fn brand(&self) -> u64 {
        self.brand.load(Ordering::Relaxed)
    }
    pub(super) fn set_brand(&self, brand: u64) {
        self.brand.store(brand, Ordering::Relaxed);
    }
    /// Whether a process has its first process's id and is another.
    pub(super) fn is_other(&self, first: &proc::Process) -> bool {
        let start = self.start();
        start > 0 && first.start != start
    }
    pub(super) fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::Relaxed)
    }
    pub(super) fn set_frozen(&self, frozen: bool) {
        self.frozen.store(frozen, Ordering::Relaxed);
    }
    pub(super) fn set_leaving(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }
    /// Its processes are to be in this group.
    pub(super) fn set_group(&self, group: Arc<TaskGroup>) {
        let _ = self.group.set(group);
    }
    fn group(&self) -> Option<&TaskGroup> {
        self.group.get().map(Arc::as_ref)
    }
    fn peak(&self) -> Bytes {
        Bytes(self.peak_bytes.load(Ordering::Relaxed))
    }
}

/// A task's process.
#[derive(Debug)]
pub(super) struct Process {
    /// Its id, which is that of its session.
    pub(super) pid: u32,
    /// None where the system gave no memory for it.
    channel: Option<SharedMemory>,
    /// Its slot.
    place: Arc<SlotDir>,
    /// The layers that it goes without.
    pub(super) without: TaskLayers,
}

impl Process {
    fn channels(&self) -> Option<Channels<'_>> {
        self.channel.as_ref().map(SharedMemory::channels)
    }
}

/// What the supervisor knows of a task.
#[derive(Debug)]
pub(super) struct Task {
    name: String,
    slot: SlotId,
    urgency: Urgency,
    meter: Arc<Meter>,
    url: MasterUrl,
    /// Outputs that it writes into its project's directory.
    outputs: Vec<String>,
    /// All that it is to make.
    made: Vec<Output>,
    process: Option<Process>,
    /// Its first look is to come.
    is_new: bool,
    /// The looks at outputs to be sent early.
    early: EarlyLook,
    /// It has announced a message to its project that was not taken yet.
    announced: bool,
    /// It is to be told of a message of its project.
    trickled: bool,
    /// It is to be told what became of an output.
    upload_told: bool,
    hearing: Hearing,
    /// What the application said last.
    said: Option<AppStatus>,
    /// When it gets killed, if it was told to leave.
    leave_by: Option<StdInstant>,
    /// And as long as somebody wants the machine.
    hurry_by: Option<StdInstant>,
    /// Whether it goes on although it is stopped.
    restless: Restless,
    /// For how many looks it was stopped.
    stillness: Stillness,
    /// It was told to rest by a message.
    is_to_rest: bool,
    /// For how many looks it has rested since.
    rest: Rest,
    /// Whether it goes on although it was told that.
    heedless: Restless,
    is_heedless: bool,
    was_heedless: bool,
    /// When its finish file was first seen.
    finished_since: Option<StdInstant>,
    /// It was stopped when that was looked at last.
    was_frozen: bool,
    /// Why it was killed, if it was.
    killed: Option<String>,
    /// Why its slot is emptied when it is gone, if it is.
    discarded: Option<Goes>,
}

impl Task {
    /// A task whose thread is about to start it.
    pub(super) fn new(setup: &TaskSetup) -> Self {
        let named = |file: &&SlotFile| file.output && !file.copy && names::is_file_name(&file.name);
        let outputs = setup.files.iter().filter(named);
        Self {
            name: setup.name.clone(),
            slot: setup.slot,
            urgency: launch::urgency(setup),
            meter: Arc::default(),
            url: setup.url.clone(),
            outputs: outputs.map(|file| file.name.clone()).collect(),
            made: SlotRecord::of(setup).outputs,
            process: None,
            is_new: true,
            early: EarlyLook::default(),
            announced: false,
            trickled: false,
            upload_told: false,
            hearing: Hearing::default(),
            said: None,
            leave_by: None,
            hurry_by: None,
            restless: Restless::stopped(),
            stillness: Stillness::default(),
            is_to_rest: false,
            rest: Rest::default(),
            heedless: Restless::told(),
            is_heedless: false,
            was_heedless: false,
            finished_since: None,
            was_frozen: false,
            killed: None,
            discarded: None,
        }
    }

    /// What its thread reports from.
    pub(super) fn meter(&self) -> Arc<Meter> {
        Arc::clone(&self.meter)
    }

    /// What its files hold, if they were counted yet.
    pub(super) fn disk(&self) -> Option<DiskHeld> {
        self.meter.disk()
    }

    /// True when the last count missed something that another one may see.
    pub(super) fn is_unsurely_counted(&self) -> bool {
        self.process.is_some() && self.meter.is_unsure()
    }

    /// True when it has a process, and its files were never counted.
    pub(super) fn is_uncounted(&self) -> bool {
        self.process.is_some() && self.meter.disk().is_none()
    }

    /// Where its files are.
    pub(super) fn files(&self, context: &Context) -> Files {
        let project = context.dir.project(&self.url);
        Files {
            slot: context.dir.slot(self.slot),
            outputs: self.outputs.iter().map(|name| project.join(name)).collect(),
            sessions: self.sessions(),
            meter: self.meter(),
        }
    }

    /// The sessions of its processes, as far as they are known.
    fn sessions(&self) -> Sessions {
        let mut sessions = self.meter.strays().clone();
        if let Some((pid, _)) = self.leader() {
            sessions.insert(pid, self.meter.start());
        }
        sessions
    }

    /// Its process runs.
    pub(super) fn is_up(&mut self, process: Process) {
        self.process = Some(process);
        if self.discarded.is_some() {
            self.kill("it was evicted while it was being started");
        }
        self.turn();
    }

    /// Queues a message, and sends it if the application has read the one before. One that is stopped is told
    /// nothing: see [`super::freezer`], which has it go on before it is told to.
    pub(super) fn tell(&mut self, message: ProcessControl) {
        tracing::debug!(task = shown(&self.name), ?message, "telling a task");
        self.is_to_rest |= message == ProcessControl::Suspend;
        self.hearing.push(message);
        if matches!(message, ProcessControl::Quit | ProcessControl::Abort) {
            self.meter.set_leaving();
            self.leave_by.get_or_insert(StdInstant::now() + StdDuration::from(QUIT_GRACE));
        }
        self.turn();
    }

    /// Kills all of its processes.
    pub(super) fn kill(&mut self, why: &str) {
        let Some(process) = self.process.as_ref().filter(|_| !self.meter.is_gone()) else { return };
        self.meter.set_leaving();
        if self.killed.is_none() {
            self.killed = Some(why.to_owned());
            let (task, pid) = (shown(&self.name), process.pid);
            match self.leave_by.is_some() && self.is_deaf() {
                // It can leave in no other way.
                true => tracing::info!(task, pid, "killing a task: {why}"),
                false => tracing::warn!(task, pid, "killing a task: {why}"),
            }
        }
        if let Some(group) = self.meter.group() {
            group.kill();
        }
        let mut strays = self.meter.strays();
        let all = proc::all();
        strays.extend(proc::offspring(process.pid, &all));
        // The group first, all of it at once. What is left waits stopped until nothing is that forks.
        let mut known = strays.clone();
        // Nobody who stops the tasks for their owner waits for this.
        drop(strays);
        let first = all.iter().find(|first| first.pid == process.pid);
        // Once its group is empty, its id may be another's.
        match first.filter(|first| self.meter.is_other(first)) {
            Some(_) => {}
            None => proc::kill_group(process.pid),
        }
        known.extend(first.filter(|first| !self.meter.is_other(first)).map(|first| (first.pid, first.start)));
        proc::end(|all| of_task(all, &known, self.meter.brand()));
    }

    /// Kills it to make room on a full disk, and has its slot emptied. What it has left is not waited for any
    /// more, and if it is only being started, it is killed when it is up.
    pub(super) fn discard(&mut self, why: Goes) {
        self.discarded.get_or_insert(why);
        self.meter.set_leaving();
        self.kill(&format!("{why}, and there is no space on the disk"));
    }

    /// Its project.
    pub(super) fn url(&self) -> &MasterUrl {
        &self.url
    }

    /// Where it is.
    pub(super) fn slot(&self) -> SlotId {
        self.slot
    }

    /// What its files hold, and how it stands.
    pub(super) fn held(&self, job: JobId) -> Held {
        let (slot, disk, is_going) = (self.slot, self.meter.disk(), self.discarded.is_some());
        let is_uncounted = disk.is_some_and(|held| held.uncounted.is_some());
        Held { slot, job, holds: disk.map(|held| held.all), is_uncounted, is_finished: false, is_going }
    }

    /// Why it was killed, if it was.
    pub(super) fn killed(&self) -> Option<&str> {
        self.killed.as_deref()
    }

    /// Why its slot is to be emptied when it is gone, if it is.
    pub(super) fn discarded(&self) -> Option<Goes> {
        self.discarded
    }

    /// Notes the sessions that its processes made for themselves, so that they end with it.
    pub(super) fn note_strays(&self, members: &Members) {
        if let Some(process) = self.process.as_ref().filter(|_| !self.meter.is_gone()) {
            *self.meter.strays() = members.strays(process.pid);
        }
    }

    /// Its first process, be it gone or not.
    pub(super) fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(|process| process.pid)
    }

    /// Its first process, and how much of the machine all of them may take. None once it is gone: its id may
    /// be another's.
    pub(super) fn leader(&self) -> Option<(u32, First)> {
        if self.meter.is_gone() {
            return None;
        }
        let (urgency, brand) = (self.urgency, self.meter.brand());
        Some((self.process.as_ref()?.pid, First { urgency, brand }))
    }

    /// Whether there is nothing to look at: all of it is stopped, has been for some looks, and is to stay.
    pub(super) fn is_still(&self) -> bool {
        let is_to_stay = self.killed.is_none() && self.discarded.is_none() && !self.meter.is_leaving();
        self.process.is_some()
            && !self.meter.is_gone()
            && self.meter.is_frozen()
            && is_to_stay
            && self.stillness.is_so()
    }

    /// Whether the kernel bounds what it could take of the memory and how many processes it could have.
    pub(super) fn is_bound(&self) -> bool {
        let is_in_group = self.process.as_ref().is_some_and(|process| !process.without.groups);
        is_in_group && self.meter.group().is_some_and(TaskGroup::is_bound)
    }

    /// A look: what it uses, what its application says; messages and a heartbeat go the
    /// other way.
    pub(super) fn look(
        &mut self,
        shared: &Arc<Shared>,
        job: JobId,
        used: &BTreeMap<u32, Used>,
        now: Instant,
        unsent: &mut UnsentMessages,
        is_wanted: bool,
    ) -> Option<(Used, Option<AppStatus>)> {
        let pid = self.process.as_ref()?.pid;
        let used = self.meter.note(used.get(&pid).copied().unwrap_or_default());
        let frozen = self.is_frozen();
        let mut status = None;
        if let Some(channels) = self.process.as_ref().and_then(Process::channels) {
            if !frozen {
                self.hearing.turn(channels, now);
            }
            let beat = Heartbeat { wss: used.memory, max_wss: shared.memory, network_suspended: false };
            // One that is not read yet is as good as a new one.
            let _ = channels.send(Channel::Heartbeat, &beat.text());
            status = channels.receive(Channel::AppStatus).and_then(|text| AppStatus::parse(&text));
            if channels.receive(Channel::GraphicsReply).is_some() {
                tracing::debug!(
                    task = shown(&self.name),
                    "the application offers graphics, which nobody looks at"
                );
            }
            for (pending, text) in [(&mut self.trickled, TRICKLE_DOWN), (&mut self.upload_told, UPLOAD_TOLD)]
            {
                *pending = *pending && !channels.send(Channel::TrickleDown, text);
            }
        }
        self.take_messages(shared, job, unsent);
        self.said = status.or(self.said);
        self.hearing.look(status.is_some(), frozen, now);
        if !frozen {
            self.kill_if_overdue(now, is_wanted);
        }
        self.stillness.look(frozen, used.cpu);
        if self.restless.look(frozen, used.cpu) {
            self.kill("it goes on although it is stopped");
        }
        let is_to_rest = self.is_to_rest && !frozen;
        self.rest.look(is_to_rest, used.cpu);
        self.is_heedless = self.heedless.look(is_to_rest, used.cpu) || (is_to_rest && self.is_deaf());
        Some((used, status))
    }

    /// Its first process, where it goes on although it was told to rest, or hears nothing, and has now to be
    /// stopped. The log has it once: it may be so in each pause of a limit on CPU time.
    pub(super) fn heedless(&mut self) -> Option<u32> {
        let goes_on = self.is_heedless && !self.meter.is_leaving() && !self.meter.is_gone();
        let pid = self.pid().filter(|_| goes_on)?;
        if !std::mem::replace(&mut self.was_heedless, true) {
            match self.is_deaf() {
                true => tracing::info!(task = shown(&self.name), pid, "it reads no messages: stopping it"),
                false => tracing::warn!(
                    task = shown(&self.name),
                    pid,
                    "it goes on although it is to rest: stopping it"
                ),
            }
        }
        Some(pid)
    }

    /// Its first process, where it was told to rest and has done so for some looks. It is stopped then: one
    /// that rests by itself wakes ten times a second to look whether it may go on, and wants a heartbeat. One
    /// that has finished is about to end.
    pub(super) fn has_rested(&self) -> Option<u32> {
        let stays = self.finished_since.is_none() && !self.meter.is_leaving() && !self.meter.is_gone();
        let stays = stays && self.rest.is_so();
        self.pid().filter(|_| stays && !self.meter.is_frozen())
    }

    /// Something of it goes on although it is stopped.
    pub(super) fn is_restless(&mut self) {
        self.stillness.goes_on();
    }

    /// Whether it hears no messages: there is no channel, or nobody has ever read it.
    fn is_deaf(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.channel.is_none()) || self.hearing.is_deaf()
    }

    /// Its first process, where a message is not enough to have it rest.
    pub(super) fn rests_by_force(&self) -> Option<u32> {
        let leader = self.pid().filter(|_| !self.meter.is_leaving() && !self.meter.is_gone());
        leader.filter(|_| self.is_deaf() || self.was_heedless)
    }

    /// Whether its processes are stopped. The time in which they were counts as nobody's fault.
    pub(super) fn is_frozen(&mut self) -> bool {
        let frozen = self.meter.is_frozen();
        if std::mem::replace(&mut self.was_frozen, frozen) && !frozen {
            self.hearing.excuse(fallow_daemon::clock::now());
            self.finished_since = self.finished_since.map(|_| StdInstant::now());
        }
        frozen
    }

    /// It is let go on.
    pub(super) fn goes_on(&mut self) {
        self.stillness.goes_on();
        self.restless.goes_on();
        self.heedless.goes_on();
        self.rest = Rest::default();
        self.is_to_rest = false;
    }

    /// Something lies in the slot that the application is to be told of.
    pub(super) fn note_delivery(&mut self, what: &Delivery) {
        match what {
            Delivery::Trickle { .. } => self.trickled = true,
            Delivery::UploadStatus { .. } => self.upload_told = true,
        }
    }

    /// Carries out what the application announced: messages to its project, outputs to be sent early.
    fn take_messages(&mut self, shared: &Arc<Shared>, job: JobId, unsent: &mut UnsentMessages) {
        let Some(process) = &self.process else { return };
        let text = process.channels().and_then(|channels| channels.receive(Channel::TrickleUp));
        let said = text.map_or_else(TrickleUp::default, |text| TrickleUp::parse(&text));
        let project = shared.dir.project(&self.url);
        self.announced |= said.new_trickle_up;
        let waited = messages::trickle_waits(&process.place);
        if (self.announced || waited) && !unsent.is_full() {
            let taken = messages::take_trickle(&process.place, &project, &self.name, true);
            // The one that waited was announced before.
            self.announced &= waited || (taken.is_err() && !messages::trickle_waits(&process.place));
            if let Ok(Some((name, nbytes))) = taken {
                unsent.push(job, name, nbytes);
            }
        }
        // Also at its first look: what was asked for in an earlier run may not have been seen.
        let news = said.new_upload_file || std::mem::take(&mut self.is_new);
        let (place, made, shared) = (Arc::clone(&process.place), &self.made, Arc::clone(shared));
        let meter = self.meter();
        self.early.look(news, || {
            let made = made.clone();
            move || {
                let mut lacks_space = false;
                for output in messages::upload_requests(&place, &made) {
                    let look = || messages::output_now(&place, &project, output, &made, &meter.early);
                    let now = meter.early.is_open().then(look).unwrap_or(Ok(None));
                    lacks_space |= now.is_err();
                    if now.is_err() || !meter.early.is_open() {
                        messages::ask_again(&place, output);
                        continue;
                    }
                    let Ok(Some(output)) = now else { continue };
                    while !(shared.try_send_event)(Event::UploadWanted { job, output: output.clone() }) {
                        std::thread::sleep(NO_ROOM);
                    }
                }
                lacks_space
            }
        });
    }

    /// Messages to its project that the application announced last. Its process is gone.
    pub(super) fn last_trickles(&self, shared: &Shared) -> Vec<(String, Bytes)> {
        let Some(process) = self.process.as_ref() else { return Vec::new() };
        let text = process.channels().and_then(|channels| channels.receive(Channel::TrickleUp));
        let project = shared.dir.project(&self.url);
        let is_announced = self.announced || text.is_some_and(|text| TrickleUp::parse(&text).new_trickle_up);
        let take = || messages::take_trickle(&process.place, &project, &self.name, false).ok()?;
        let waited = messages::trickle_waits(&process.place).then(take).flatten();
        waited.into_iter().chain(is_announced.then(take).flatten()).collect()
    }

    /// What the application said last, if anything: also at an earlier look, whose sample may not have been
    /// passed on. Its process is gone.
    pub(super) fn last_words(&self) -> Option<(Used, Option<AppStatus>)> {
        let channels = self.process.as_ref()?.channels();
        let text = channels.and_then(|channels| channels.receive(Channel::AppStatus));
        let status = text.and_then(|text| AppStatus::parse(&text)).or(self.said)?;
        Some((Used { cpu: self.meter.cpu(), ..Used::default() }, Some(status)))
    }

    /// A task whose process has ended is never overdue: collecting its outputs takes as long as it takes.
    fn kill_if_overdue(&mut self, now: Instant, is_wanted: bool) {
        if self.meter.is_gone() {
            return;
        }
        let since = |start: Option<StdInstant>| start.map(|start| start.elapsed());
        if self.finished_since.is_none()
            && self.process.as_ref().is_some_and(|process| process.place.has(files::FINISH))
        {
            self.finished_since = Some(StdInstant::now());
        }
        let hurries = is_wanted && self.leave_by.is_some();
        self.hurry_by = hurries.then(|| self.hurry_by.unwrap_or_else(|| StdInstant::now() + HURRY));
        let is_over = |by: Option<StdInstant>| by.is_some_and(|by| by <= StdInstant::now());
        if is_over(self.leave_by) {
            self.kill("it was told to leave a minute ago");
        } else if is_over(self.hurry_by) {
            self.kill("somebody wants the machine, and it is to leave");
        } else if self.leave_by.is_some() && self.finished_since.is_none() && self.is_deaf() {
            self.kill("it was told to leave, and reads no messages");
        } else if self.hearing.is_stuck(now) {
            self.kill("it has left a message unread for three minutes");
        } else if since(self.finished_since).is_some_and(|age| age > StdDuration::from(FINISH_GRACE)) {
            self.kill("it said that it had finished five minutes ago");
        }
    }

    fn turn(&mut self) {
        if self.is_frozen() {
            return;
        }
        if let Some(channels) = self.process.as_ref().and_then(Process::channels) {
            self.hearing.turn(channels, fallow_daemon::clock::now());
        }
    }
}

/// The life of a task's thread.
pub(super) fn live(shared: &Shared, setup: &TaskSetup, meter: &Meter, say: impl Fn(Order)) {
    if let Some(taken) = shared.uncollected.take(shared, setup, || meter.is_leaving()) {
        return say(match taken {
            Ok(end) => Order::Gone(setup.job, Box::new(end)),
            Err(failure) => Order::Failed(setup.job, failure),
        });
    }
    shared.uncollected.forget(setup.slot);
    let mut record = SlotRecord::of(setup);
    meter.set_brand(shared.brand(setup.slot).value());
    let (leader, place) = match start(shared, setup, &mut record, meter) {
        Ok(Begun { leader, channel, place, without }) => {
            meter.set_start(leader.start);
            let process = Process { pid: leader.pid, channel, place: Arc::clone(&place), without };
            say(Order::Up(setup.job, process));
            lower_group(&leader, launch::urgency(setup));
            (leader, place)
        }
        Err(failure) => {
            if let Some(group) = meter.group() {
                group.end();
            }
            // Half of what belongs into it: nothing in it is worth its space.
            if setup.fresh && failure.fault != StartFault::Slot {
                shared.clean(setup.slot);
            }
            return say(Order::Failed(setup.job, failure));
        }
    };
    // While it is open the kernel keeps the very place that the rule of a job on a GPU is about.
    let threads = setup.special.then(|| std::fs::File::open(format!("/proc/{}/task", leader.pid)));
    let (exit, cpu, young) = wait(&leader, meter);
    drop(threads);
    let (strays, ended) = kill_strays(meter, young, &shared.mark(setup.slot), place.owner());
    meter.gone.store(true, Ordering::Relaxed);
    // First of all what is left in its group: nothing of it is to meddle with what that says.
    meter.group().inspect(|group| group.kill());
    let memory_exceeded = meter.group().and_then(TaskGroup::memory_exceeded);
    meter.group().inspect(|group| group.end());
    strays.keys().chain([&leader.pid]).for_each(|&session| shared.guard.remove(session));
    let peak = meter.peak();
    // Before the first of them is taken.
    meter.early.close();
    let is_to_leave = || meter.is_leaving();
    let collect = |last: Last<'_>| {
        collect::collect(&shared.dir, setup.slot, Some(&place), &record, exit, cpu, peak, last)
    };
    collect::give_way();
    // What still runs could change what is taken.
    let ended = ended.inspect_err(
        |error| tracing::error!(task = shown(&setup.name), %error, "a task has not ended as a whole"),
    );
    let taken = ended.and_then(|()| collect::patiently(&setup.name, &is_to_leave, collect));
    let mut end = taken.unwrap_or_else(|_| {
        shared.uncollected.note(setup, exit, cpu, peak);
        collect::interrupted(cpu, peak)
    });
    end.memory_exceeded = memory_exceeded;
    say_end(setup, &leader, &end);
    // From now on nobody runs under this id, so no later start of the agent may look for it.
    record.process = None;
    if let Err(error) = record.write(&shared.dir, setup.slot) {
        tracing::warn!(slot = %setup.slot, %error, "cannot write a slot's record");
    }
    say(Order::Gone(setup.job, Box::new(end)));
}

/// The living processes that have a task's number, or are of its sessions.
fn of_task(all: &[proc::Process], sessions: &Sessions, brand: u64) -> Vec<proc::Process> {
    let by_session: Vec<u32> = proc::of_sessions(all, sessions).map(|process| process.pid).collect();
    let is_own = |process: &&proc::Process| {
        !process.zombie && (by_session.contains(&process.pid) || brand::of(process) == Some(brand))
    };
    all.iter().filter(is_own).copied().collect()
}

/// Kills what left the session: it is known by its number, by the session that it made for itself, by its
/// mark, or by the user that nobody but this task has, and ends with its task all the same. `young` were made
/// since the last look. Returns those sessions, and whether nothing runs as that user any more.
fn kill_strays(
    meter: &Meter,
    young: Sessions,
    mark: &str,
    user: Option<Owner>,
) -> (Sessions, std::io::Result<()>) {
    let mut strays = meter.strays().clone();
    strays.extend(young);
    // Several rounds, for one may fork between the look and the kill.
    for _ in 0..STRAY_ROUNDS {
        let all = proc::all();
        proc::follow(&mut strays, &all);
        let known = proc::end(|all| of_task(all, &strays, meter.brand()));
        if known + proc::kill_marked(mark) == 0 {
            break;
        }
        std::thread::sleep(StdDuration::from_millis(20));
    }
    (strays, user.map_or(Ok(()), |user| proc::end_of_users(&proc::only(user.uid))))
}

/// A task that was started.
struct Begun {
    leader: Leader,
    channel: Option<SharedMemory>,
    place: Arc<SlotDir>,
    /// The layers that it goes without.
    without: TaskLayers,
}

fn start(
    shared: &Shared,
    setup: &TaskSetup,
    record: &mut SlotRecord,
    meter: &Meter,
) -> Result<Begun, StartFailure> {
    let path = shared.dir.slot_record(setup.slot);
    let fail = |error: std::io::Error| StartFailure::from_io("write", &path, &error);
    let place = slot::fill(shared, setup)?;
    place.remove(files::CHANNEL).map_err(fail)?;
    // After the old channel is gone: the record says which start's it is. And before the new one is made:
    // should the agent be killed, the record says what is to be removed.
    record.shm_key = (!setup.mapped_channel).then(segment_key);
    record.write(&shared.dir, setup.slot).map_err(fail)?;
    let channel = match record.shm_key {
        None => Some(
            SharedMemory::in_file(&place)
                .map_err(|error| StartFailure::from_io("make the channel in", place.path(), &error))?,
        ),
        Some(key) => Segment::create(key, slot::owner(shared, setup)?)
            .map(SharedMemory::Segment)
            .map_err(|error| unshared(setup, &error))
            .ok(),
    };
    // An application that finds nothing under the key goes on by itself.
    let key = channel.as_ref().map_or(record.shm_key.unwrap_or_default(), SharedMemory::key);
    slot::write_init_data(shared, setup, &place, key)?;
    let program = verify::verify(shared, &shared.known, setup)?;
    let user = launch::user(shared, setup, &place)?;
    let (pid, without) = launch::launch(shared, setup, &place, (&program, user.as_ref()), meter)?;
    let start = proc::find(pid).map_or(0, |process| process.start);
    let leader = Leader { pid, start, boot: fallow_daemon::proc::boot().unwrap_or_default() };
    shared.guard.add(leader.pid, leader.start);
    record.process = Some(leader.clone());
    if let Err(error) = record.write(&shared.dir, setup.slot) {
        // It runs, and the guard knows it: not worth an end.
        tracing::warn!(slot = %setup.slot, %error, "cannot write a slot's record");
    }
    say_start(setup, pid);
    Ok(Begun { leader, channel, place: Arc::new(place), without })
}

/// A key that nobody is likely to have: positive, and not that of a channel in a file.
fn segment_key() -> i32 {
    let mut bytes = [0; 4];
    // Without randomness the time does: a key that is taken is an error, and never another's memory.
    if rand::rngs::SysRng.try_fill_bytes(&mut bytes).is_err() {
        bytes =
            fallow_daemon::clock::now().as_micros().to_le_bytes().first_chunk().copied().unwrap_or_default();
    }
    (i32::from_le_bytes(bytes) & i32::MAX).max(1)
}

fn unshared(setup: &TaskSetup, error: &std::io::Error) {
    let task = shown(&setup.name);
    tracing::warn!(task, %error, "no System V memory for the channel of an old application: it runs without one");
}

/// Lowers the priority of the task's session (autogroup). Tried again for two seconds where many tasks of an
/// ordinary user start at once, because the kernel takes one change in 100 ms from all of them. After that
/// the looks of each second try.
fn lower_group(leader: &Leader, urgency: Urgency) {
    for _ in 0..100 {
        if sys::lower_group(leader.pid, urgency) {
            return;
        }
        std::thread::sleep(StdDuration::from_millis(20));
    }
}

/// Waits for the first process to end, kills what it left in its session, and takes its remains. Returns also
/// the sessions that were made since the last look and can be known now only, while whoever made them lives.
fn wait(leader: &Leader, meter: &Meter) -> (Ended, Duration, Sessions) {
    let Some(pid) = proc::to_pid(leader.pid) else {
        return (Ended::Code(255), Duration::ZERO, Sessions::new());
    };
    // First without taking the remains: as long as they are there, the id is nobody else's.
    while let Err(error) =
        rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
    {
        if error != rustix::io::Errno::INTR {
            break;
        }
    }
    let all = proc::all();
    meter.note(proc::used(&all, leader.pid));
    let young = proc::offspring(leader.pid, &all);
    proc::kill_session(leader.pid);
    if let Some(group) = meter.group() {
        group.kill();
    }
    match sys::wait_with_usage(pid) {
        Ok((status, cpu)) => (Ended::from_wait_status(status), cpu.max(meter.cpu()), young),
        Err(error) => {
            tracing::error!(pid = leader.pid, %error, "cannot wait for a process");
            (
                Ended::Signal { number: rustix::process::Signal::KILL.as_raw(), core_dumped: false },
                meter.cpu(),
                young,
            )
        }
    }
}

fn say_start(setup: &TaskSetup, pid: u32) {
    let (task, project, slot) = (shown(&setup.name), &setup.url, setup.slot);
    if setup.fresh {
        tracing::info!(%task, %project, %slot, pid, "started task {task}");
    } else if !setup.init_data.wu_cpu_time.is_positive() {
        tracing::info!(%task, %project, %slot, pid, "started task {task} again from the beginning: it has no checkpoint");
    } else {
        let at = setup.init_data.wu_cpu_time.as_secs_f64();
        tracing::info!(%task, %project, %slot, pid, "resumed task {task} from its checkpoint at {at:.1} CPU s");
    }
}

fn say_end(setup: &TaskSetup, leader: &Leader, end: &TaskEnd) {
    let (task, cpu) = (shown(&setup.name), end.cpu_time.as_secs_f64());
    let how = match end.exit {
        _ if let Some(most) = end.memory_exceeded => {
            format!("was killed by the system, for it needed more memory than {most},")
        }
        Ended::Code(code) if end.finish.is_some() => format!("finished, exit code {code}"),
        Ended::Code(code) => format!("left with exit code {code}"),
        Ended::Signal { number, .. } => format!("ended by signal {number}"),
    };
    tracing::info!(%task, pid = leader.pid, cpu_s = cpu, "task {task} {how} after {cpu:.1} CPU s");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dir::DataDir;

    #[test]
    fn r6_10_a_task_that_is_gone_is_late_with_nothing_and_nobodys_process_is_taken_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::at(dir.path());
        std::fs::create_dir_all(data.slots()).unwrap();
        let place = SlotDir::create(&data.slot(SlotId(0)), data.trash()).unwrap();
        place.write(files::FINISH, b"0\n", 0o644).unwrap();
        // Its id is that of another session by now.
        let mut other = std::process::Command::new("/bin/sleep");
        sys::isolate(other.arg("1000"), Urgency::Inherited, None);
        let mut other = other.spawn().unwrap();
        let mut task = Task::new(&setup());
        task.is_up(Process {
            pid: other.id(),
            channel: None,
            place: Arc::new(place),
            without: TaskLayers::default(),
        });
        let first = First { urgency: Urgency::Idle, brand: 0 };
        assert_eq!(task.leader(), Some((other.id(), first)));
        task.meter.gone.store(true, Ordering::Relaxed);
        task.leave_by = Some(StdInstant::now());
        task.kill_if_overdue(fallow_daemon::clock::now(), false);
        let (is_leaving, leader, ended) = (task.meter.is_leaving(), task.leader(), other.try_wait().unwrap());
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!((is_leaving, leader, ended), (false, None, None));
    }

    #[test]
    fn r4_12_what_a_task_has_left_is_not_waited_for_once_it_is_not_wanted() {
        let mut task = Task::new(&setup());
        let meter = task.meter();
        // Its process is gone, and this host cannot take what it has left.
        meter.gone.store(true, Ordering::Relaxed);
        let begun = StdInstant::now();
        let waits = std::thread::spawn(move || {
            let is_to_leave = || meter.is_leaving() || begun.elapsed().as_secs() > 5;
            let full = |_: Last<'_>| Err(std::io::ErrorKind::StorageFull.into());
            collect::patiently("job_1_0", &is_to_leave, full)
        });
        task.discard(Goes::NotWanted);
        assert!(task.meter.is_leaving());
        assert!(waits.join().unwrap().is_err());
    }

    #[test]
    fn r4_12_a_task_that_is_not_wanted_is_killed_as_soon_as_it_is_up() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::at(dir.path());
        std::fs::create_dir_all(data.slots()).unwrap();
        let place = Arc::new(SlotDir::create(&data.slot(SlotId(0)), data.trash()).unwrap());
        let mut process = std::process::Command::new("/bin/sleep");
        sys::isolate(process.arg("1000"), Urgency::Inherited, None);
        let mut task = Task::new(&setup());
        task.discard(Goes::NotWanted);
        let mut process = process.spawn().unwrap();
        task.is_up(Process { pid: process.id(), channel: None, place, without: TaskLayers::default() });
        let is_killed = task.killed;
        process.kill().unwrap();
        let ended = process.wait().unwrap();
        assert!(is_killed.is_some() && !ended.success());
    }

    fn setup() -> TaskSetup {
        TaskSetup {
            job: JobId(1),
            name: "job_1_0".into(),
            slot: SlotId(0),
            start: 1,
            fresh: true,
            url: MasterUrl::parse("http://127.0.0.1:9/p/").unwrap(),
            program: "app".into(),
            arguments: Vec::new(),
            application: Vec::new(),
            files: Vec::new(),
            init_data: Box::default(),
            environment: Vec::new(),
            mapped_channel: true,
            disk_max: Bytes(u64::MAX),
            special: false,
            network: false,
            required: TaskLayers::default(),
        }
    }
}
