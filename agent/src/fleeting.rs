//! Processes that fork and end so fast that no list of `/proc` has them (R6.10).
//!
//! Model: one that forks without pause, with each child going on in its stead, has another id by the time
//! when a list has been read to its end. But the kernel tells the id that it has given last. Where that is
//! the same before a list was read and after it, nobody has forked, and the list has all. Otherwise it is
//! asked for again and again, and each process that has one of the ids from the last one on, and that the
//! list did not have, is told at once what is to be told. This takes some hundredths of a millisecond, and
//! each try succeeds that falls into the first part of its life. Then a list is read again, for whoever
//! forks may not have had a CPU meanwhile. Where others fork all the time, that is done three times, some
//! tenths of a second in all.
//!
//! An id may be a thread's, which is none of those looked for. Whoever makes threads hides no process so.
//!
//! Left out: systems that do not tell the last id of the reader's own processes, or not the true one; and
//! what gets no CPU for a tenth of a second while others fork all that time, which the next look finds.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::proc;

/// Nobody forks now who has not done it for so long.
const QUIET: Duration = Duration::from_millis(5);
/// So long it is waited from one try to the next.
const PAUSE: Duration = Duration::from_micros(100);
/// After so many new ids in a row that are none of those wanted, and so long, it is somebody else who forks.
const VAIN_MAX: u32 = 50;
const VAIN: Duration = Duration::from_millis(30);
/// So many new ids in a second may be those of one who forks without pause: he takes more.
const MANY: u32 = 200;
/// So many ids are looked at in one try, the newest ones.
const IDS_MAX: u32 = 512;
/// The longest time that one chase takes, and one that finds something: a list may have the rest.
const LONGEST: Duration = Duration::from_millis(500);
const LONGEST_FINDING: Duration = Duration::from_millis(100);
/// So many lists in a row with nothing new have all, whoever forks.
const CALM: u32 = 3;

/// Tells whether lists of processes, read one after the other, have all that is looked for.
#[derive(Debug, Default)]
pub struct Lists {
    /// The last id when the present list was begun.
    before: Option<u32>,
    /// Lists in a row that may not have had all, with nothing found by its id.
    calm: u32,
    /// When the first one was begun, and how many there were.
    since: Option<Instant>,
    count: u32,
}

impl Lists {
    /// A list is to be read.
    pub fn begin(&mut self) {
        self.before = proc::last_id();
        self.since.get_or_insert_with(Instant::now);
        self.count += 1;
    }

    /// How many there were.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// How long ago the first one was begun.
    pub fn time(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// The list that was read last had something new, so it counts as none that has all.
    pub const fn had_news(&mut self) {
        self.calm = 0;
    }

    /// A list is read, of processes with these ids. Whether it has all, if it had nothing new. If it may not
    /// have all, this `tell`s something each other process that `is_wanted`, by its id, as long as there are
    /// such.
    pub fn have_all(
        &mut self,
        listed: &BTreeSet<u32>,
        is_wanted: impl Fn(u32) -> bool,
        tell: impl FnMut(u32),
    ) -> bool {
        if self.before.is_none() || self.before == proc::last_id() {
            return true;
        }
        // Once ids begin anew at the bottom, older processes have ids between new ones.
        let is_new = |id| !listed.contains(&id) && is_wanted(id);
        self.calm = if chase(is_new, tell) > 0 { 0 } else { self.calm + 1 };
        self.calm >= CALM
    }
}

/// How fast ids are given, from look to look.
#[derive(Debug, Default)]
pub struct Forks(Option<(u32, Instant)>);

impl Forks {
    /// Whether somebody may have forked without pause since it was asked last.
    pub fn are_many(&mut self) -> bool {
        let now = (proc::last_id().unwrap_or_default(), Instant::now());
        let Some((last, at)) = self.0.replace(now) else { return false };
        // They begin anew at the bottom once the highest is reached.
        let new = now.0.checked_sub(last).unwrap_or(u32::MAX);
        f64::from(new) >= f64::from(MANY) * now.1.duration_since(at).as_secs_f64().max(0.1)
    }
}

/// Tells each process something that `is_wanted`, by its id, and whose id is the last one or among those
/// given after that, as long as there are such. Returns how many there were.
pub(crate) fn chase(is_wanted: impl Fn(u32) -> bool, mut tell: impl FnMut(u32)) -> usize {
    let begun = Instant::now();
    let (mut last, mut new_at, mut told_at) = (None, begun, begun);
    let (mut told, mut vain) = (0, 0);
    while (vain < VAIN_MAX || told_at.elapsed() < VAIN)
        && begun.elapsed() < if told > 0 { LONGEST_FINDING } else { LONGEST }
    {
        let Some(newest) = proc::last_id() else { return told };
        let before = last.replace(newest);
        if before == Some(newest) {
            if new_at.elapsed() >= QUIET {
                return told;
            }
            std::thread::sleep(PAUSE);
            continue;
        }
        new_at = Instant::now();
        // They begin anew at the bottom once the highest is reached.
        let first = before.filter(|before| *before < newest).map_or(newest, |before| before + 1);
        let told_before = told;
        // The newest is there still, if any.
        for id in (first.max(newest.saturating_sub(IDS_MAX - 1))..=newest).rev() {
            if is_wanted(id) {
                tell(id);
                told += 1;
            }
        }
        if told > told_before {
            (vain, told_at) = (0, new_at);
        } else {
            vain += 1;
            std::thread::sleep(PAUSE);
        }
    }
    told
}

#[cfg(test)]
#[path = "fleeting_tests.rs"]
pub(crate) mod tests;
