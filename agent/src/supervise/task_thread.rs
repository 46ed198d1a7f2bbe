//! One task's thread: starts its process, waits for it, and tells what it has left.

use std::sync::Arc;
use std::time::Duration as StdDuration;

use fallow_boinc::runtime::channel::Channels;
use fallow_boinc::runtime::exit::Ended;
use fallow_boinc::runtime::files;
use fallow_client::{StartFault, TaskEnd, TaskSetup};
use fallow_domain::Duration;
use fallow_policy::confinement::TaskLayers;
use rand::TryRng;
use rustix::process::{WaitId, WaitIdOptions};

use super::groups::TaskGroup;
use super::killing::kill_strays;
use super::memory::SharedMemory;
use super::meter::Meter;
use super::record::{Leader, SlotRecord};
use super::slot::StartFailure;
use super::slot_dir::{Last, SlotDir};
use super::{Order, Shared, collect, launch, slot, verify};
use crate::files::shown;
use crate::proc::{self, Sessions};
use crate::sys::{self, Segment, Urgency};

/// A task's process.
#[derive(Debug)]
pub(super) struct Process {
    /// Its id, which is that of its session.
    pub(super) pid: u32,
    /// None where the system gave no memory for it.
    pub(super) channel: Option<SharedMemory>,
    /// Its slot.
    pub(super) place: Arc<SlotDir>,
    /// The layers that it goes without.
    pub(super) without: TaskLayers,
}

impl Process {
    pub(super) fn channels(&self) -> Option<Channels<'_>> {
        self.channel.as_ref().map(SharedMemory::channels)
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
            // Before the next one in its slot is begun, which has the same number.
            meter.set_gone();
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
    meter.set_gone();
    // First of all what is left in its group: nothing of it is to meddle with what that says.
    meter.group().inspect(|group| group.kill());
    let memory_exceeded = meter.group().and_then(TaskGroup::memory_exceeded);
    meter.group().inspect(|group| group.end());
    strays.keys().chain([&leader.pid]).for_each(|&session| shared.guard.remove(session));
    let peak = meter.peak();
    // Before the first of them is taken.
    meter.early().close();
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
