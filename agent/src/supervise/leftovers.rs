//! What an earlier life of the agent left: processes, which are killed, and slots, which are looked through.

use std::fs;
use std::io;
use std::time::{Duration as StdDuration, Instant as StdInstant};

use fallow_boinc::runtime::channel::{CHANNEL_LEN, Channel, FILE_LEN};
use fallow_boinc::runtime::exit::Ended;
use fallow_boinc::runtime::files;
use fallow_boinc::runtime::message::AppStatus;
use fallow_client::SlotFound;
use fallow_domain::{Bytes, Duration, SlotId};

use super::collect::{collect, finish};
use super::record::{Leader, SlotRecord};
use super::slot_dir::{Last, SlotDir};
use super::{agent_mark, messages};
use crate::brand::Brand;
use crate::dir::DataDir;
use crate::proc::{self, Process};
use crate::sys::Segment;

/// Kills what is left of tasks of earlier lives, looks through the slots, and tells what is in them.
///
/// On return no such process runs any more, unless the system cannot kill it (a process in uninterruptible
/// sleep) or it forks faster than it can be killed, which is said in the log. A finished task is said to
/// be so only if what it left was taken. Once the agent `is_to_end`, nothing more is taken, and what takes
/// long is given up: its next start takes it.
pub fn take_over(dir: &DataDir, is_to_end: &dyn Fn() -> bool) -> Vec<SlotFound> {
    let slots = slots(dir);
    let records: Vec<_> =
        slots.iter().map(|&slot| (slot, SlotRecord::read(&dir.slot_record(slot)))).collect();
    let boot = fallow_daemon::proc::boot().unwrap_or_default();
    let leaders: Vec<Leader> = records
        .iter()
        .filter_map(|(_, record)| record.as_ref().filter(|record| record.is_own(dir))?.process.clone())
        .filter(|leader| leader.boot == boot)
        .collect();
    // What a task had used is known as long as it lives; after that only its own word is left.
    let before = proc::all();
    let used: Vec<_> = leaders
        .iter()
        .filter(|leader| before.iter().any(|process| is_of(process, leader, &before)))
        .map(|leader| (leader.pid, proc::used(&before, leader.pid).cpu))
        .collect();
    kill_all(dir, &leaders);
    end_users(dir);
    remove_stray_records(dir, &slots);
    records
        .into_iter()
        .map(|(slot, record)| {
            let place = SlotDir::open(&dir.slot(slot), dir.trash()).ok();
            let last_status = place.as_ref().and_then(last_status);
            if let (Some(place), Some(record)) = (&place, &record) {
                messages::take_left(dir, place, &record.url, &record.name);
            }
            let own = record.as_ref().filter(|record| record.is_own(dir));
            if let Some(key) = own.and_then(|record| record.shm_key) {
                // Nobody is left who could use it.
                Segment::remove_left(key);
            }
            let job = record.as_ref().map(|record| record.job);
            let start = record.as_ref().and_then(|record| record.start);
            let finish = place.as_ref().and_then(finish).filter(|_| !is_to_end());
            let finished = record.zip(finish).and_then(|(record, finish)| {
                let leader = record.process.as_ref();
                let kernel = leader.and_then(|leader| used.iter().find(|(pid, _)| *pid == leader.pid));
                let own_word = || {
                    last_status
                        .map(|status| (status.current_cpu_time - record.cpu_before).max(Duration::ZERO))
                };
                let cpu = kernel.map(|(_, cpu)| *cpu).or_else(own_word).unwrap_or(Duration::ZERO);
                let exit = Ended::Code(finish.status);
                // Where this host has trouble with them, it goes on from its checkpoint and makes them once
                // more.
                let last = Last { is_to_leave: is_to_end, is_last_try: false };
                let end = collect(dir, slot, place.as_ref(), &record, exit, cpu, Bytes(0), last);
                let say = |error: &io::Error| {
                    tracing::error!(%slot, %error, "cannot take what a finished task left: it goes on from its checkpoint");
                };
                end.inspect_err(say).ok().map(Box::new)
            });
            SlotFound { slot, job, start, last_status, finished }
        })
        .collect()
}

/// Removes records without a slot, with the memory that they speak of, and those that were not written to
/// their end: the agent was killed while it emptied a slot, or wrote its record.
fn remove_stray_records(dir: &DataDir, slots: &[SlotId]) {
    for path in fs::read_dir(dir.slots()).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let (is_whole, stem) = match name.strip_suffix(".json") {
            Some(stem) => (true, Some(stem)),
            None => (false, name.strip_suffix(".json.new")),
        };
        let Some(slot) = stem.and_then(|stem| stem.parse().ok()).map(SlotId) else { continue };
        if is_whole && slots.contains(&slot) {
            continue;
        }
        let record = SlotRecord::read(&path).filter(|record| is_whole && record.is_own(dir));
        if let Some(key) = record.and_then(|record| record.shm_key) {
            Segment::remove_left(key);
        }
        if let Err(error) = dir.trash().take(&path) {
            tracing::warn!(%slot, %error, "cannot remove a record without a slot");
        }
    }
}

/// All slot directories, in order.
fn slots(dir: &DataDir) -> Vec<SlotId> {
    let mut slots: Vec<SlotId> = fs::read_dir(dir.slots())
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| Some(SlotId(entry.file_name().to_str()?.parse().ok()?)))
        .collect();
    slots.sort_unstable();
    slots
}

/// True for a process in the session of a task whose first process still lives. Where that is gone, the id
/// may have been given to another session meanwhile (after a restart of the machine that is likely), whose
/// processes are nobody's to kill: what a task's first process left behind is known by its mark.
fn is_of(process: &Process, leader: &Leader, all: &[Process]) -> bool {
    process.session == leader.pid
        && all.iter().any(|first| first.pid == leader.pid && first.start == leader.start)
}

fn kill_all(dir: &DataDir, leaders: &[Leader]) {
    let me = std::process::id();
    let mark = agent_mark(dir);
    let brand = Brand::of_agent(&mark);
    let of_earlier = |all: &[Process]| {
        let others = all.iter().filter(|process| !process.zombie && process.pid != me).copied();
        let is_known = |process: &Process| {
            leaders.iter().any(|leader| is_of(process, leader, all)) || brand.is_on(process)
        };
        let (mut left, rest): (Vec<Process>, Vec<Process>) = others.partition(is_known);
        left.extend(proc::marked(rest, &mark));
        left
    };
    let give_up = StdInstant::now() + StdDuration::from_secs(5);
    loop {
        let left = of_earlier(&proc::all());
        if !left.is_empty() {
            tracing::info!(processes = left.len(), "killing what an earlier life of the agent left running");
        }
        if proc::end_all(of_earlier, |pid| brand.is_on_id(pid)) == 0 {
            return;
        }
        if StdInstant::now() > give_up
            && let Some(first) = of_earlier(&proc::all()).first()
        {
            tracing::error!(first = first.pid, "processes of an earlier life cannot be killed");
            return;
        }
        if StdInstant::now() > give_up + proc::FLEEING_MAX {
            tracing::error!("processes of an earlier life fork faster than they can be killed");
            return;
        }
        std::thread::sleep(StdDuration::from_millis(50));
    }
}

/// Ends what runs as users of slots all the same: these are no other agent's.
fn end_users(dir: &DataDir) {
    let Some(users) = dir.users() else { return };
    if let Err(error) = proc::end_of_users(&users.of_slots()) {
        tracing::error!(%error, "what an earlier life of the agent left is there still");
    }
}

/// The last status that an application wrote into its channel, read or not: a reader clears the flag and
/// leaves the text.
fn last_status(slot: &SlotDir) -> Option<AppStatus> {
    let bytes = slot.head(files::CHANNEL, FILE_LEN as u64).ok()?;
    let at = Channel::AppStatus as usize * CHANNEL_LEN;
    let text = bytes.get(at + 1..at + CHANNEL_LEN)?.split(|&byte| byte == 0).next()?;
    AppStatus::parse(&String::from_utf8_lossy(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r4_12_records_of_slots_go_that_a_kill_left_without_their_slots_or_half_written() {
        let place = tempfile::tempdir().unwrap();
        let dir = DataDir::at(place.path());
        fs::create_dir_all(dir.slot(SlotId(3))).unwrap();
        for name in ["3.json", "3.json.new", "4.json", "5.json.new", "somebodys.json", "6"] {
            fs::write(dir.slots().join(name), "{}").unwrap();
        }
        let found: Vec<SlotId> = take_over(&dir, &|| false).into_iter().map(|found| found.slot).collect();
        let mut left: Vec<String> = fs::read_dir(dir.slots())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(
            (found, left),
            (vec![SlotId(3)], ["3", "3.json", "6", "somebodys.json"].map(str::to_owned).to_vec())
        );
    }
}
