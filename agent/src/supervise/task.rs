//! One task, as the supervisor knows it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration as StdDuration, Instant as StdInstant};

use fallow_boinc::names;
use fallow_boinc::runtime::channel::Channel;
use fallow_boinc::runtime::exit::{FINISH_GRACE, QUIT_GRACE};
use fallow_boinc::runtime::files;
use fallow_boinc::runtime::message::{AppStatus, Heartbeat, ProcessControl, TrickleUp};
use fallow_client::{DiskHeld, Event, Goes, Held, SlotFile, TaskSetup};
use fallow_domain::{Bytes, Instant, JobId, MasterUrl, SlotId};

use super::disk::Files;
use super::early_uploads::{self, EarlyLook};
use super::groups::TaskGroup;
use super::hearing::Hearing;
use super::members::{First, Members};
use super::meter::Meter;
use super::pace::{Rest, Stillness};
use super::record::{Output, SlotRecord};
use super::restless::Restless;
use super::task_thread::Process;
use super::unsent_messages::UnsentMessages;
use super::{Context, Delivery, Shared, killing, launch, messages};
use crate::files::shown;
use crate::proc::{Sessions, Used};
use crate::sys::Urgency;

/// How long a task that is to leave still has, when somebody wants the machine.
const HURRY: StdDuration = StdDuration::from_secs(5);
/// The message that a project's message lies in the slot.
const TRICKLE_DOWN: &str = "<have_trickle_down/>\n";
/// The message that there is news of an output that was to be sent early.
const UPLOAD_TOLD: &str = "<upload_file_status/>\n";

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

    /// How much more of the disk would be free without its files, as far as that was counted.
    pub(super) fn takes(&self) -> Option<Bytes> {
        self.meter.takes()
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
        killing::kill(process.pid, &self.meter);
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
        let (holds, is_unsized) = (disk.map(|held| held.all), self.meter.is_unsized());
        Held { holds, takes: self.meter.takes(), is_uncounted, is_unsized, is_going, ..Held::of(slot, job) }
    }

    /// Why it was killed, if it was.
    pub(super) fn killed(&self) -> Option<&str> {
        self.killed.as_deref()
    }

    /// Whether it is there, and was not told to leave.
    pub(super) fn stays(&self) -> bool {
        self.process.is_some() && !self.meter.is_leaving() && !self.meter.is_gone()
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

    /// Whether a look has found something of it that goes on and that no list has, although it is stopped.
    pub(super) fn note_fleeing(&mut self, flees: bool) {
        if flees {
            self.stillness.goes_on();
        }
        if self.restless.note_fleeing(flees && self.meter.is_frozen()) {
            self.kill("it goes on although it is stopped");
        }
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

    /// Whether it was told to rest.
    pub(super) const fn is_to_rest(&self) -> bool {
        self.is_to_rest
    }

    /// It goes on after it was stopped for a count.
    pub(super) fn was_counted(&mut self) {
        self.stillness.goes_on();
        self.restless.goes_on();
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
        if (self.announced || waited) && unsent.has_room_of(job) {
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
                let offer = |output| (shared.try_send_event)(Event::UploadWanted { job, output });
                early_uploads::offer(&place, &project, &made, meter.early(), offer)
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

#[cfg(test)]
#[path = "task_tests.rs"]
mod tests;
