//! What this machine's clock on the wall shows (R6.2).

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
    use super::*;

    #[test]
    fn r6_2_the_offset_of_summer_holds_until_it_ends() {
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

    #[test]
    fn r6_2_the_local_time_is_told_again_after_an_hour_and_when_the_clock_is_set_back() {
        let (mut clock, start) = (WallClock::default(), Instant::from_secs_f64(1.8e9));
        let told = clock.due(start).unwrap();
        assert_eq!(clock.due(start), None);
        assert_eq!(clock.due(told.until - Duration::from_secs(1)), None);
        assert!(clock.due(told.until).is_some() && clock.due(start).is_some());
    }
}
