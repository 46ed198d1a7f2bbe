//! What a server is told of the hours at which a host computes.
//!
//! On-time changes little within half an hour, and deadlines are of hours to weeks: so many rows are enough
//! for a straight line between each two to miss little, the nearer the denser, and take half a kilobyte.

use fallow_domain::{Duration, Instant, OnTimeTable, OnTimeWithin};

use crate::on_time::{OnTime, Sureness};

/// The times to come, in half hours.
const HALF_HOURS: [i64; 24] =
    [1, 2, 4, 6, 8, 12, 16, 20, 24, 30, 36, 42, 48, 60, 72, 96, 120, 144, 192, 240, 336, 480, 672, 1_008];
const HALF_HOUR: Duration = Duration::from_mins(30);

/// The on-time within times to come from an instant at which the host is on, in whole seconds. None if what
/// it has shown cannot be told.
pub fn told(on_time: &OnTime, from: Instant) -> Option<OnTimeTable> {
    let mut last = OnTimeWithin { length: Duration::ZERO, sure: Duration::ZERO, possible: Duration::ZERO };
    let row = |half_hours: i64| {
        let length = HALF_HOUR * half_hours;
        let within = |sureness| {
            let on = on_time.within(from, length, sureness).as_secs_f64();
            Duration::from_secs(on as i64).min(length)
        };
        // Each length is learned by itself; what a shorter one has, a longer one has too.
        let sure = within(Sureness::Sure).max(last.sure);
        let possible = within(Sureness::Possible).max(last.possible).max(sure);
        last = OnTimeWithin { length, sure, possible };
        last
    };
    OnTimeTable::new(HALF_HOURS.into_iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);
    const MONDAY: Instant = Instant::from_micros(1_800_230_400_000_000);

    /// A host that is on at these hours of the day, for so many days.
    fn learned(days: i64, is_on: impl Fn(i64) -> bool) -> OnTime {
        let mut on_time = OnTime::default();
        on_time.observe(MONDAY, is_on(0));
        for hour in 0..days * 24 {
            on_time.observe(MONDAY + HOUR * (hour + 1), is_on(hour.rem_euclid(24)));
        }
        on_time
    }

    #[test]
    fn of_a_host_of_which_nothing_is_known_or_that_is_always_on_all_is_possible() {
        for days in [0, 60] {
            let table = told(&learned(days, |_| true), MONDAY + HOUR * 24 * days).unwrap();
            assert_eq!(table.rows().len(), HALF_HOURS.len());
            assert_eq!(table.possible(HOUR * 24), HOUR * 24, "after {days} days");
            assert!(table.sure(HOUR * 24) >= HOUR * 18, "after {days} days");
        }
    }

    #[test]
    fn of_a_host_with_office_hours_the_hours_show() {
        let now = MONDAY + HOUR * (24 * 60 + 15);
        let table = told(&learned(60, |hour| (9..17).contains(&hour)), now).unwrap();
        let hours = |length| table.possible(HOUR * length).as_secs_f64() / 3_600.0;
        assert!((1.5..=2.0).contains(&hours(2)), "until five: {}", hours(2));
        assert!(hours(15) < 3.0, "over night: {}", hours(15));
        assert!((7.0..10.0).contains(&hours(24)), "a day: {}", hours(24));
        assert!(table.sure(HOUR * 24) <= table.possible(HOUR * 24));
    }
}
