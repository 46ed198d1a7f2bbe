//! Processes that fork and end so fast that no list of `/proc` has them (R6.10).
//!
//! Model: one that forks without pause, with each child going on in its stead, has another id by the time
//! when a list has been read to its end. But the kernel tells the id that it has given last. Where that is
//! the same before a list was read and after it, nobody has forked, and the list has all. Otherwise the
//! youngest process there is has that id: so it is asked for again and again, and the process told at once
//! what is to be told. This takes some hundredths of a millisecond, and each try succeeds that falls into the
//! first part of its life. Then a list is read again, for whoever forks may not have had a CPU meanwhile.
//! Where others fork all the time, that is done three times, a tenth of a second in all.
//!
//! An id may be a thread's, which is none of those looked for.
//!
//! Left out: systems that do not tell the last id of the reader's own processes, or not the true one; and
//! what gets no CPU for a tenth of a second while others fork all that time, which the next look finds.

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
/// The longest time that one chase takes.
const LONGEST: Duration = Duration::from_millis(500);
/// So many lists in a row with nothing new have all, whoever forks.
const CALM: u32 = 3;

/// Tells whether lists of processes, read one after the other, have all that is looked for.
#[derive(Debug, Default)]
pub struct Lists {
    /// The last id when the present list was begun.
    before: Option<u32>,
    /// Lists in a row with nothing new, although somebody has forked.
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

    /// A list is read, and had nothing new. Whether it has all. If it may not, it `tell`s something each new
    /// process that `is_wanted`, by its id, as long as there are such.
    pub fn have_all(&mut self, is_wanted: impl Fn(u32) -> bool, tell: impl FnMut(u32)) -> bool {
        if self.before.is_none() || self.before == proc::last_id() {
            return true;
        }
        self.calm = if chase(is_wanted, tell) > 0 { 0 } else { self.calm + 1 };
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

/// Tells each new process something that `is_wanted`, by its id, as long as there are such. Returns how many
/// there were.
pub(crate) fn chase(is_wanted: impl Fn(u32) -> bool, mut tell: impl FnMut(u32)) -> usize {
    let begun = Instant::now();
    let (mut last, mut new_at, mut told_at) = (None, begun, begun);
    let (mut told, mut vain) = (0, 0);
    while (vain < VAIN_MAX || told_at.elapsed() < VAIN) && begun.elapsed() < LONGEST {
        let Some(newest) = proc::last_id() else { return told };
        if last.replace(newest) == Some(newest) {
            if new_at.elapsed() >= QUIET {
                return told;
            }
            std::thread::sleep(PAUSE);
            continue;
        }
        new_at = Instant::now();
        if is_wanted(newest) {
            tell(newest);
            (told, vain, told_at) = (told + 1, 0, new_at);
        } else {
            vain += 1;
            std::thread::sleep(PAUSE);
        }
    }
    told
}
