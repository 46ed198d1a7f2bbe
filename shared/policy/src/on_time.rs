//! How long a host computes within a time to come: a distribution, learned from when it was on and off.
//!
//! A mean says little about deadlines. A host that is on for half of the time in minutes computes nearly
//! twelve hours of any day; one that is on for half of the days computes none at all on many. Both have the
//! same active fraction (R2.12).
//!
//! Model, in two layers:
//! 1. *Habits*: the share of time that it is on, by the hour of the week, by the hour of the day, and over
//!    all time. Each foretells every half hour before it is seen, and the one whose errors were least of late
//!    is followed: a host without hours of its own is not taken to have some. Hours are those of UTC, so that
//!    a change of daylight saving moves habits by an hour, which the second layer bears until they are
//!    learned anew. From habits follows the *expected* on-time of any window of time.
//! 2. *Luck*: for windows of some lengths, from half an hour to three weeks, how much of the expected on-time
//!    there really was, in windows that began while the host was on (whoever plans is on). It is kept as a
//!    histogram for each length, in which old windows fade.
//!
//! A window of any length has the expected on-time of its hours, times a quantile of luck ([`Sureness`]). Of
//! a length of which few windows were seen, a guess counts beside the histogram.
//!
//! It is incremental: half an hour that is over costs a look at each hour of the week and at each length, and
//! nothing is ever made anew from the history. It takes about 20 kB. What is absurd (clocks that jump, gaps
//! of years) is passed over.
//!
//! Not in here: what the owner says about the hours of tomorrow.

mod habits;
mod luck;

use fallow_domain::{Duration, Fraction, Instant};
use serde::{Deserialize, Serialize};

use habits::Habits;
use luck::{LENGTHS, Luck, SLOTS_MAX};

/// What is off and on within it counts together.
pub const SLOT: Duration = Duration::from_mins(30);

/// A gap longer than this is no habit of the host's: a holiday, another clock. Windows that would span it are
/// forgotten.
const GAP_MAX: Duration = Duration::from_hours(7 * 24);
/// A clock that is set back by more than this is another one: it is not waited until it comes there again.
const SET_BACK_MAX: Duration = Duration::from_hours(1);

/// How sure on-time is to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sureness {
    /// 95% of windows had as much.
    Sure,
    /// Half of windows had as much.
    Even,
    /// 30% of windows had as much.
    Possible,
    /// 3% of windows had as much.
    Hope,
}

/// A half hour that is over. Stored as one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "u16", into = "u16")]
struct Past {
    /// Seconds on, at most 1,800.
    on_secs: u16,
    /// It began while the host was on.
    began_on: bool,
}

/// Set in the stored number of a half hour that began while the host was on.
const BEGAN_ON: u16 = 1 << 15;

impl From<u16> for Past {
    fn from(stored: u16) -> Self {
        Self { on_secs: stored & !BEGAN_ON, began_on: stored & BEGAN_ON != 0 }
    }
}

impl From<Past> for u16 {
    fn from(past: Past) -> Self {
        past.on_secs | if past.began_on { BEGAN_ON } else { 0 }
    }
}

/// When a host computes, as it has shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OnTime {
    /// Up to when it is known; none at first.
    seen_to: Option<Instant>,
    /// Of the half hour that goes on.
    on: Duration,
    began_on: bool,
    /// The last half hours, the latest last.
    past: Vec<Past>,
    habits: Habits,
    luck: Luck,
}

impl OnTime {
    /// The host was on, or off, up to an instant from the one up to which it is known. A clock that was set
    /// back a little says nothing until it has come there again. After a gap of more than a week, or by
    /// another clock, the host is looked at anew, and its habits stay.
    pub fn observe(&mut self, to: Instant, on: bool) {
        let Some(from) = self.seen_to else { return self.begin(to, on) };
        if to < from - SET_BACK_MAX || to > from + GAP_MAX {
            // Another clock, or another life: habits stay, windows do not.
            self.past.clear();
            return self.begin(to, on);
        }
        let mut from = from;
        while from < to {
            let ends = begin_of(slot_of(from) + 1);
            let until = ends.min(to);
            if from == begin_of(slot_of(from)) {
                self.began_on = on;
            }
            if on {
                self.on += until.since(from);
            }
            if until == ends {
                self.close(slot_of(from));
            }
            from = until;
        }
        self.seen_to = Some(self.seen_to.map_or(to, |seen| seen.max(to)));
    }

    /// Begins to look. What the host did before in this half hour is taken to be what it does now.
    fn begin(&mut self, at: Instant, on: bool) {
        self.seen_to = Some(at);
        self.began_on = on;
        self.on = if on { at.since(begin_of(slot_of(at))) } else { Duration::ZERO };
    }

    /// On-time within a window that begins at an instant at which the host is on: as much as windows of that
    /// length have had, as surely as is asked for. Never more than the window is long.
    pub fn within(&self, from: Instant, length: Duration, sureness: Sureness) -> Duration {
        if !length.is_positive() {
            return Duration::ZERO;
        }
        let expected = self.habits.expected_by_hour().of_window(from, length);
        let slots = length.as_secs_f64() / SLOT.as_secs_f64();
        let part = expected * self.luck.quantile(slots, sureness);
        Duration::from_secs_f64(part.clamp(0.0, length.as_secs_f64()))
    }

    /// Whether it is as this code leaves it, and no number in it is absurd. What is read from a store may be
    /// damaged.
    pub fn is_sound(&self) -> bool {
        let past = self.past.iter().all(|past| Duration::from_secs(i64::from(past.on_secs)) <= SLOT);
        past && self.past.len() <= 2 * SLOTS_MAX && self.habits.is_sound() && self.luck.is_sound()
    }

    /// The share of time that it is on, over all hours.
    pub fn share(&self) -> Fraction {
        Fraction::clamped(self.habits.share())
    }

    /// Takes note of a half hour that is over.
    fn close(&mut self, slot: i64) {
        let on = std::mem::take(&mut self.on).min(SLOT);
        self.habits.learn(slot, on.as_secs_f64() / SLOT.as_secs_f64());
        let on_secs = on.as_secs_f64() as u16;
        self.past.push(Past { on_secs, began_on: self.began_on });
        if self.past.len() > 2 * SLOTS_MAX {
            self.past.drain(..SLOTS_MAX);
        }
        let expected = self.habits.expected_by_hour();
        let (mut on_secs, mut from) = (0_u32, self.past.len());
        for (place, slots) in LENGTHS.into_iter().enumerate() {
            let Some(first) = self.past.len().checked_sub(slots) else { break };
            on_secs += self.past[first..from].iter().map(|past| u32::from(past.on_secs)).sum::<u32>();
            from = first;
            if self.past[first].began_on {
                let begins = slot + 1 - slots as i64;
                self.luck.learn(place, f64::from(on_secs), expected.of_slots(begins, slots));
            }
        }
    }
}

fn slot_of(at: Instant) -> i64 {
    at.as_micros().div_euclid(SLOT.as_micros())
}

fn begin_of(slot: i64) -> Instant {
    Instant::from_micros(slot.saturating_mul(SLOT.as_micros()))
}

#[cfg(test)]
mod tests;
