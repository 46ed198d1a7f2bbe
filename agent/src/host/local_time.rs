//! What this machine's clock on the wall shows (R6.4).

use fallow_domain::{Duration, Instant, LocalTime};
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The time zone may be set to another one while the agent runs: it is read again so often.
const READ_PERIOD: Duration = Duration::from_hours(1);

/// The clock on the wall, as it was last told.
#[derive(Debug)]
pub struct WallClock {
    told_at: Instant,
    until: Instant,
}

impl Default for WallClock {
    /// Nothing was told yet.
    fn default() -> Self {
        Self { told_at: Instant::FAR_FUTURE, until: Instant::EPOCH }
    }
}

impl WallClock {
    /// What it shows, where that is to be told: for the first time, after an hour, when summer begins or
    /// ends, and when the clock was set back.
    pub fn due(&mut self, now: Instant) -> Option<LocalTime> {
        if self.told_at <= now && now < self.until {
            return None;
        }
        let local = local_time(&TimeZone::system(), now);
        (self.told_at, self.until) = (now, local.until);
        Some(local)
    }

    /// When that is to be looked at again, unless the clock is set.
    pub const fn until(&self) -> Instant {
        self.until
    }
}

fn local_time(zone: &TimeZone, now: Instant) -> LocalTime {
    let at = Timestamp::from_microsecond(now.as_micros()).unwrap_or_default();
    let offset = Duration::from_secs(zone.to_offset(at).seconds().into());
    let next = zone.following(at).next().map(|next| Instant::from_micros(next.timestamp().as_microsecond()));
    let until = (now + READ_PERIOD).min(next.unwrap_or(Instant::FAR_FUTURE));
    LocalTime { offset, until }
}

#[cfg(test)]
mod tests {
    use fallow_domain::Hours;

    use super::*;

    #[test]
    fn r6_4_the_offset_of_summer_holds_until_it_ends() {
        // Central Europe, without a database: in summer from the last Sunday of March to that of October.
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let at = |text: &str| Instant::from_micros(text.parse::<Timestamp>().unwrap().as_microsecond());
        let (hour, end) = (Duration::from_hours, at("2026-10-25T01:00:00Z"));
        for (now, offset, until) in [
            (at("2026-10-24T12:00:00Z"), 2, at("2026-10-24T13:00:00Z")),
            (at("2026-10-25T00:30:00Z"), 2, end),
            (end, 1, at("2026-10-25T02:00:00Z")),
        ] {
            assert_eq!(local_time(&zone, now), LocalTime { offset: hour(offset), until });
        }
    }

    /// Whether it is one of these hours, minute by minute from an instant on, as somebody sees it who is told
    /// of the clock on the wall only when that is due and looks only when he was told to.
    fn seen(zone: &TimeZone, hours: &Hours, from: Instant, minutes: i64) -> Vec<bool> {
        let (mut local, mut look_at, mut open) = (LocalTime::UTC, Instant::EPOCH, false);
        local.until = Instant::EPOCH;
        let mut seen = Vec::new();
        for minute in 0..minutes {
            let now = from + Duration::from_mins(minute);
            if now >= local.until {
                local = local_time(zone, now);
                look_at = now;
            }
            if now >= look_at {
                let (is_open, change) = hours.at(now, &local);
                (open, look_at) = (is_open, change.unwrap_or(Instant::FAR_FUTURE));
            }
            seen.push(open);
        }
        seen
    }

    #[test]
    fn r6_4_hours_are_those_of_the_wall_also_on_days_on_which_clocks_are_put_forward_or_back() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let at = |text: &str| Instant::from_micros(text.parse::<Timestamp>().unwrap().as_microsecond());
        for day in ["2026-03-28T12:00:00Z", "2026-10-24T12:00:00Z", "2026-07-04T12:00:00Z"] {
            for (text, from, to) in [
                ("22:00-06:00", 22 * 60, 6 * 60),
                ("01:30-02:30", 90, 150),
                ("02:15-02:45", 135, 165),
                ("02:30-03:30", 150, 210),
                ("03:00-08:00", 180, 480),
            ] {
                let from_noon = seen(&zone, &text.parse().unwrap(), at(day), 36 * 60);
                for (minute, open) in (0_i64..).zip(from_noon) {
                    let now = at(day) + Duration::from_mins(minute);
                    let wall = Timestamp::from_microsecond(now.as_micros()).unwrap().to_zoned(zone.clone());
                    let shown = i64::from(wall.hour()) * 60 + i64::from(wall.minute());
                    let expected = match from < to {
                        true => (from..to).contains(&shown),
                        false => shown >= from || shown < to,
                    };
                    assert_eq!(open, expected, "{text} at {wall}");
                }
            }
        }
    }

    #[test]
    fn r6_4_a_sleep_over_the_end_of_summer_and_a_clock_that_is_set_leave_no_wrong_hour() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let at = |text: &str| Instant::from_micros(text.parse::<Timestamp>().unwrap().as_microsecond());
        let hours: Hours = "sun 02:00-03:00".parse().unwrap();
        // It sleeps from summer into winter, and wakes up in the second of the two hours.
        let before = local_time(&zone, at("2026-10-24T20:00:00Z"));
        let woken = at("2026-10-25T01:30:00Z");
        assert!(before.until <= woken, "it is to be told again");
        assert!(hours.at(woken, &local_time(&zone, woken)).0);
        // Set back by a day, or on by a year.
        for (text, open) in [("2026-10-24T01:30:00Z", false), ("2027-10-31T01:30:00Z", true)] {
            assert_eq!(hours.at(at(text), &local_time(&zone, at(text))).0, open, "{text}");
        }
    }

    #[test]
    fn r6_4_the_local_time_is_told_again_after_an_hour_and_when_the_clock_is_set_back() {
        let (mut clock, start) = (WallClock::default(), Instant::from_secs_f64(1.8e9));
        let told = clock.due(start).unwrap();
        assert_eq!(clock.due(start), None);
        assert_eq!(clock.due(told.until - Duration::from_secs(1)), None);
        assert!(clock.due(told.until).is_some() && clock.due(start).is_some());
    }
}
