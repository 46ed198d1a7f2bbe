//! How much may be transferred in some days (R6.4; BOINC: `daily_xfer_limit_mb`, `daily_xfer_period_days`).
//!
//! Model: what files come to, both ways together, is added up by days of the host's clock on the wall. When
//! the last days, today among them, come to the limit, no more is transferred until enough of them are over:
//! at midnight the oldest one counts no more. So much is kept of each day for a year, whether there is a
//! limit or not, so that a new one holds at once.
//!
//! A clock that is wrong for a moment, as on a host that begins in 1970 until the network tells it the time,
//! makes nothing be forgotten: days that seem to be yet to come count as well, nothing is dropped by its
//! date, and a clock is believed only once it has been seen to run through a midnight.

use std::collections::BTreeMap;
use std::fmt;

use fallow_domain::{Bytes, Duration, Instant, LocalPreferences, LocalTime};
use serde::{Deserialize, Serialize};

/// A day of the clock on the wall.
const DAY: Duration = Duration::from_hours(24);

/// So many days are kept that have anything: those of a year, and today.
const KEPT: usize = LocalPreferences::TRANSFER_DAYS_MAX.unsigned_abs() as usize + 1;

/// What was transferred on each day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferDays {
    /// Days since 1970, by the clock on the wall, with what was sent and what was fetched.
    days: BTreeMap<i64, (Bytes, Bytes)>,
    /// Today, when that was looked at last; none since the start.
    #[serde(skip)]
    seen: Option<i64>,
}

/// No more is transferred for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    /// So much was.
    pub moved: Bytes,
    /// So much may be.
    pub most: Bytes,
    /// In so many days, today among them.
    pub days: i64,
    /// Until then, if the clock on the wall is not set.
    pub until: Instant,
}

impl TransferDays {
    /// So much was sent and fetched just now.
    pub fn add(&mut self, now: Instant, local: &LocalTime, up: Bytes, down: Bytes) {
        self.observe(now, local);
        let today = today(now, local);
        let (sent, fetched) = self.days.entry(today).or_default();
        *sent = Bytes(sent.0.saturating_add(up.0));
        *fetched = Bytes(fetched.0.saturating_add(down.0));
        while self.days.len() > KEPT {
            self.days.pop_first();
        }
    }

    /// A clock that was ahead before is believed no more once the present one has run through a midnight:
    /// what it counted for days that are yet to come counts for today. True if there was anything.
    pub fn observe(&mut self, now: Instant, local: &LocalTime) -> bool {
        let today = today(now, local);
        let was = self.seen.replace(today);
        if was != Some(today - 1) {
            return false;
        }
        let ahead = self.days.split_off(&(today + 1));
        for (up, down) in ahead.values().copied() {
            self.add(now, local, up, down);
        }
        !ahead.is_empty()
    }

    /// What the last days come to, today among them.
    #[must_use]
    pub fn moved(&self, now: Instant, local: &LocalTime, days: i64) -> Bytes {
        let first = today(now, local) - days + 1;
        Bytes(self.days.range(first..).fold(0, |all: u64, (_, of_day)| all.saturating_add(both(*of_day))))
    }

    /// What may still be transferred, or that nothing may be.
    ///
    /// # Errors
    /// [`Spent`] with how long that holds.
    pub fn left(&self, now: Instant, local: &LocalTime, most: Bytes, days: i64) -> Result<Bytes, Spent> {
        let (today, moved) = (today(now, local), self.moved(now, local, days));
        if moved < most {
            return Ok(Bytes(most.0 - moved.0));
        }
        let mut holds = moved.0;
        // The day without which it is less.
        let ends = self.days.range(today - days + 1..today).find_map(|(day, of_day)| {
            holds -= both(*of_day).min(holds);
            (holds < most.0).then_some(*day)
        });
        let midnight = (ends.unwrap_or(today) + days) * DAY.as_micros();
        let until = Instant::from_micros(midnight) - local.offset;
        Err(Spent { moved, most, days, until })
    }
}

fn both((up, down): (Bytes, Bytes)) -> u64 {
    up.0.saturating_add(down.0)
}

fn today(now: Instant, local: &LocalTime) -> i64 {
    (now + local.offset).as_micros().div_euclid(DAY.as_micros())
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { moved, most, days, .. } = self;
        match days {
            1 => write!(f, "files came to {moved} today"),
            days => write!(f, "files came to {moved} in the last {days} days"),
        }?;
        write!(f, ", of {most} that may be transferred (`transfer_max`)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MB: Bytes = Bytes(1_000_000);
    const MOST: Bytes = Bytes(10 * MB.0);
    const NONE: Bytes = Bytes(0);

    /// Two hours ahead of UTC.
    const LOCAL: LocalTime = LocalTime { offset: Duration::from_hours(2), until: Instant::FAR_FUTURE };

    /// A Friday, at so many hours by its clock on the wall.
    fn at(hours: i64) -> Instant {
        Instant::from_micros(20_000 * DAY.as_micros()) + Duration::from_hours(hours) - LOCAL.offset
    }

    #[test]
    fn r6_4_both_ways_count_together_and_the_days_are_those_of_the_wall() {
        let mut days = TransferDays::default();
        assert_eq!(days.left(at(1), &LOCAL, MOST, 1), Ok(MOST));
        days.add(at(1), &LOCAL, MB, Bytes(3 * MB.0));
        days.add(at(23), &LOCAL, NONE, MB);
        assert_eq!(days.left(at(23), &LOCAL, MOST, 1), Ok(Bytes(5 * MB.0)));
        days.add(at(23), &LOCAL, Bytes(5 * MB.0), NONE);
        let spent = days.left(at(23), &LOCAL, MOST, 1).unwrap_err();
        assert_eq!((spent.moved, spent.until), (MOST, at(24)));
        assert_eq!(days.left(at(24), &LOCAL, MOST, 1), Ok(MOST));
        assert!(days.left(at(24), &LOCAL, MOST, 2).is_err());
    }

    #[test]
    fn r6_4_it_goes_on_when_enough_days_have_passed() {
        let mut days = TransferDays::default();
        for day in 0..4 {
            days.add(at(24 * day + 12), &LOCAL, Bytes(3 * MB.0), MB);
        }
        // 16 MB in seven days: two of these days have to be over.
        let spent = days.left(at(80), &LOCAL, MOST, 7).unwrap_err();
        assert_eq!((spent.moved, spent.until), (Bytes(16 * MB.0), at(24 * 8)));
        assert!(days.left(at(24 * 8 - 1), &LOCAL, MOST, 7).is_err());
        assert_eq!(days.left(at(24 * 8), &LOCAL, MOST, 7), Ok(Bytes(2 * MB.0)));
        assert_eq!(
            spent.to_string(),
            "files came to 16 MB in the last 7 days, of 10 MB that may be transferred (`transfer_max`)"
        );
    }

    #[test]
    fn r6_4_what_a_clock_counted_that_was_ahead_is_todays_and_what_is_stored_comes_back() {
        let mut days = TransferDays::default();
        days.add(at(24 * 4_000), &LOCAL, MOST, NONE);
        let spent = days.left(at(1), &LOCAL, MOST, 3).unwrap_err();
        assert_eq!(spent.until, at(24 * 3), "it waits for no year that is far away");
        // It may be this clock that is wrong: first it is to run through a midnight.
        assert!(!days.observe(at(2), &LOCAL) && !days.observe(at(23), &LOCAL));
        assert_eq!(days.moved(at(23), &LOCAL, 1), MOST);
        assert!(days.observe(at(25), &LOCAL) && !days.observe(at(26), &LOCAL));
        assert_eq!(days.moved(at(26), &LOCAL, 1), MOST);
        let stored = serde_json::to_string(&days).unwrap();
        assert_eq!(serde_json::from_str::<TransferDays>(&stored).unwrap().days, days.days);
        assert_eq!(days.moved(at(48), &LOCAL, 1), NONE);
    }

    #[test]
    fn r6_4_a_clock_that_is_wrong_for_a_moment_forgets_nothing_of_what_was_moved() {
        let mut days = TransferDays::default();
        days.add(at(-40), &LOCAL, MB, NONE);
        days.add(at(1), &LOCAL, MOST, NONE);
        // A host without a clock of its own begins in 1970, until it hears from the network what day it is.
        let begin = Instant::EPOCH + Duration::from_hours(1);
        assert!(!days.observe(begin, &LOCAL));
        days.add(begin, &LOCAL, MB, NONE);
        assert!(days.left(begin, &LOCAL, MOST, 1).is_err());
        days.observe(at(2), &LOCAL);
        assert_eq!(days.moved(at(2), &LOCAL, 1), MOST);
        assert_eq!(days.moved(at(2), &LOCAL, 3), Bytes(11 * MB.0));
        // And one that is ahead by years.
        days.add(at(24 * 30_000), &LOCAL, MB, NONE);
        days.observe(at(3), &LOCAL);
        assert_eq!(days.moved(at(3), &LOCAL, 1), Bytes(11 * MB.0));
        assert_eq!(days.moved(at(3), &LOCAL, 3), Bytes(12 * MB.0));
    }

    #[test]
    fn r6_4_no_more_days_are_kept_than_a_year_has() {
        let mut days = TransferDays::default();
        for day in 0..800 {
            days.add(at(24 * day + 12), &LOCAL, MB, NONE);
        }
        let year = LocalPreferences::TRANSFER_DAYS_MAX;
        assert_eq!(days.moved(at(24 * 799 + 13), &LOCAL, year), Bytes(year.unsigned_abs() * MB.0));
        assert_eq!(days.days.len(), KEPT);
    }

    proptest! {
        #[test]
        fn r6_4_whatever_was_moved_whenever_the_wait_ends_when_it_says_and_not_before(
            moved in prop::collection::vec((0_i64..2_000, 0_u64..8), 0..60),
            days in 1_i64..40,
            now in 0_i64..2_000,
        ) {
            let mut kept = TransferDays::default();
            for (hours, megabytes) in moved {
                kept.add(at(hours % (now + 1)), &LOCAL, Bytes(megabytes * MB.0), NONE);
                kept.observe(at(now), &LOCAL);
            }
            if let Err(spent) = kept.left(at(now), &LOCAL, MOST, days) {
                prop_assert!(spent.until > at(now));
                prop_assert!(kept.left(spent.until, &LOCAL, MOST, days).is_ok());
                let just_before = spent.until - Duration::from_micros(1);
                prop_assert!(kept.left(just_before, &LOCAL, MOST, days).is_err());
            }
        }
    }
}
