//! Hours of the week in which a host may compute (R6.2; BOINC: `start_hour`, `end_hour`, `day_prefs`), by the
//! host's own clock on the wall.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Duration, Instant, Invalid};

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const DAY_MINUTES: u32 = 24 * 60;
const WEEK_MINUTES: u32 = 7 * DAY_MINUTES;
const MINUTE_MICROS: i64 = 60_000_000;
/// The most stretches that are said of a week.
const STRETCHES_MAX: usize = 50;
const EXPECTED: &str = "such as \"mon-fri 18:00-08:00, sat-sun\"; \"always\" for every hour";

/// Stretches of the week, such as `mon-fri 18:00-08:00, sat-sun`; none of them: every hour.
///
/// A stretch says on which days it begins (each day, where it names none) and when: from a time to a time, or
/// to that of the next day if this is not later. Without times it is the whole of its days.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Hours {
    stretches: Vec<Stretch>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    /// Days on which it begins, from 0 for Monday; through the end of the week where the last is the smaller.
    first_day: u32,
    last_day: u32,
    /// Minutes of the day.
    from: u32,
    to: u32,
}

/// What a host's clock on the wall shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalTime {
    /// How far it is ahead of UTC.
    pub offset: Duration,
    /// Until when: then the offset is another, or is to be asked for again.
    pub until: Instant,
}

impl LocalTime {
    /// UTC for ever.
    pub const UTC: Self = Self { offset: Duration::ZERO, until: Instant::FAR_FUTURE };

    /// The minute of the week, from Monday 0:00, and the microseconds since it began.
    fn of_week(&self, now: Instant) -> (u32, i64) {
        let micros = (now + self.offset).as_micros();
        let minutes = micros.div_euclid(MINUTE_MICROS);
        // The first day of 1970 was a Thursday.
        let minute = (minutes + 3 * i64::from(DAY_MINUTES)).rem_euclid(i64::from(WEEK_MINUTES));
        (u32::try_from(minute).unwrap_or(0), micros.rem_euclid(MINUTE_MICROS))
    }

    /// An instant on that clock, such as `Mon 18:00`.
    #[must_use]
    pub fn show(&self, at: Instant) -> String {
        let (minute, _) = self.of_week(at);
        let (initial, rest) = day_name(minute / DAY_MINUTES).split_at(1);
        format!("{}{rest} {}", initial.to_uppercase(), clock(minute % DAY_MINUTES))
    }
}

impl Hours {
    /// Whether it is every hour.
    #[must_use]
    pub fn is_always(&self) -> bool {
        self.stretches.is_empty()
    }

    /// Whether `now` is one of these hours, and when that changes; none: never.
    #[must_use]
    pub fn at(&self, now: Instant, local: &LocalTime) -> (bool, Option<Instant>) {
        if self.is_always() {
            return (true, None);
        }
        let (minute, into) = local.of_week(now);
        let open = self.is_open(minute);
        let ends = self.stretches.iter().flat_map(|stretch| stretch.ends());
        let ahead = ends.filter(|at| self.is_open(*at) != open).map(|at| {
            match (at + WEEK_MINUTES - minute) % WEEK_MINUTES {
                0 => WEEK_MINUTES,
                ahead => ahead,
            }
        });
        let change =
            ahead.min().map(|ahead| now + Duration::from_micros(i64::from(ahead) * MINUTE_MICROS - into));
        (open, change)
    }

    /// Whether it is one of these hours in a minute of the week.
    fn is_open(&self, minute: u32) -> bool {
        self.stretches.iter().any(|stretch| stretch.covers(minute))
    }
}

impl Stretch {
    fn days(self) -> impl Iterator<Item = u32> {
        let count = (self.last_day + 7 - self.first_day) % 7 + 1;
        (0..count).map(move |day| (self.first_day + day) % 7)
    }

    /// Minutes from its beginning to its end.
    const fn length(self) -> u32 {
        if self.to > self.from { self.to - self.from } else { self.to + DAY_MINUTES - self.from }
    }

    fn covers(self, minute: u32) -> bool {
        let since = |day| (minute + WEEK_MINUTES - (day * DAY_MINUTES + self.from)) % WEEK_MINUTES;
        self.days().any(|day| since(day) < self.length())
    }

    /// The minutes of the week at which something may change by it.
    fn ends(self) -> impl Iterator<Item = u32> {
        self.days().flat_map(move |day| {
            let from = day * DAY_MINUTES + self.from;
            [from % WEEK_MINUTES, (from + self.length()) % WEEK_MINUTES]
        })
    }

    fn read(text: &str) -> Option<Self> {
        let (days, times) = match text.split_once(char::is_whitespace) {
            Some((days, times)) => (Some(days), Some(times.trim())),
            None if text.contains(':') => (None, Some(text)),
            None => (Some(text), None),
        };
        let day = |text: &str| {
            let number = DAYS.iter().position(|day| text.trim().eq_ignore_ascii_case(day))?;
            u32::try_from(number).ok()
        };
        let (first_day, last_day) = match days.map(|days| days.split_once('-').unwrap_or((days, days))) {
            Some((first, last)) => (day(first)?, day(last)?),
            None => (0, 6),
        };
        // Each day once, whichever is named first.
        let is_daily = (last_day + 7 - first_day) % 7 == 6;
        let (first_day, last_day) = if is_daily { (0, 6) } else { (first_day, last_day) };
        let (from, to) = match times {
            Some(times) => {
                let (from, to) = times.split_once('-')?;
                (minutes(from)?, minutes(to)?)
            }
            None => (0, DAY_MINUTES),
        };
        (from != to && from < DAY_MINUTES).then_some(Self { first_day, last_day, from, to })
    }
}

/// `18:00` as minutes of the day; `24:00` ends it.
fn minutes(text: &str) -> Option<u32> {
    let (hour, minute) = text.trim().split_once(':')?;
    let number = |text: &str, digits: std::ops::RangeInclusive<usize>| {
        let is_plain = digits.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u32>().ok().filter(|_| is_plain)
    };
    let (hour, minute) = (number(hour, 1..=2)?, number(minute, 2..=2)?);
    (minute < 60 && hour * 60 + minute <= DAY_MINUTES).then_some(hour * 60 + minute)
}

fn day_name(number: u32) -> &'static str {
    DAYS.get(number as usize).copied().unwrap_or("day")
}

fn clock(minutes: u32) -> String {
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

impl fmt::Display for Stretch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first_day, last_day, from, to } = *self;
        let is_whole = from == 0 && to == DAY_MINUTES;
        let days = match (first_day, last_day) {
            (0, 6) if !is_whole => String::new(),
            (first, last) if first == last => day_name(first).to_owned(),
            (first, last) => format!("{}-{}", day_name(first), day_name(last)),
        };
        let times = if is_whole { String::new() } else { format!("{}-{}", clock(from), clock(to)) };
        let gap = if days.is_empty() || times.is_empty() { "" } else { " " };
        write!(f, "{days}{gap}{times}")
    }
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stretches: Vec<String> = self.stretches.iter().map(ToString::to_string).collect();
        f.write_str(if stretches.is_empty() { "always" } else { "" })?;
        f.write_str(&stretches.join(", "))
    }
}

impl FromStr for Hours {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let bad = || Invalid::new("hours", text.chars().take(80).collect::<String>(), EXPECTED);
        if text.trim().eq_ignore_ascii_case("always") {
            return Ok(Self::default());
        }
        let parts: Vec<&str> = text.split(',').take(STRETCHES_MAX + 1).collect();
        if parts.len() > STRETCHES_MAX {
            return Err(Invalid::new(
                "hours",
                format_args!("{} stretches", parts.len()),
                "at most 50 of them",
            ));
        }
        let read = parts.iter().map(|part| Stretch::read(part.trim()).ok_or_else(bad));
        let hours = Self { stretches: read.collect::<Result<_, _>>()? };
        // What covers the week is every hour.
        let is_always = (0..WEEK_MINUTES).all(|minute| hours.is_open(minute));
        Ok(if is_always { Self::default() } else { hours })
    }
}

impl From<Hours> for String {
    fn from(hours: Hours) -> Self {
        hours.to_string()
    }
}

impl TryFrom<String> for Hours {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Monday 0:00 of some week, UTC.
    const MONDAY: Instant = Instant::from_micros(1_799_625_600_000_000);

    fn hours(text: &str) -> Hours {
        text.parse().unwrap()
    }

    fn at(days: i64, hour: i64, minute: i64) -> Instant {
        MONDAY + Duration::from_mins((days * 24 + hour) * 60 + minute)
    }

    #[test]
    fn r6_2_hours_over_midnight_belong_to_the_day_on_which_they_begin() {
        let lab = hours("mon-fri 18:00-08:00, sat-sun");
        for (day, hour, minute, open, next) in [
            (0, 7, 59, false, at(0, 18, 0)),
            (0, 18, 0, true, at(1, 8, 0)),
            (1, 7, 59, true, at(1, 8, 0)),
            (1, 8, 0, false, at(1, 18, 0)),
            // Friday's evening, the week's end, and Monday until midnight: Sunday's stretch ends there.
            (4, 18, 0, true, at(7, 0, 0)),
            (6, 23, 59, true, at(7, 0, 0)),
        ] {
            let now = at(day, hour, minute);
            assert_eq!(lab.at(now, &LocalTime::UTC), (open, Some(next)), "day {day} {hour}:{minute}");
        }
        let utc = LocalTime::UTC;
        assert_eq!(hours("sun 22:00-06:00").at(at(7, 5, 0), &utc), (true, Some(at(7, 6, 0))));
        assert_eq!(Hours::default().at(MONDAY, &utc), (true, None));
        assert_eq!((utc.show(MONDAY), utc.show(at(4, 18, 5))), ("Mon 00:00".into(), "Fri 18:05".into()));
    }

    #[test]
    fn r6_2_hours_are_those_of_the_hosts_own_clock() {
        let (night, east) =
            (hours("22:00-06:00"), LocalTime { offset: Duration::from_hours(2), ..LocalTime::UTC });
        assert_eq!(night.at(at(0, 19, 59), &east), (false, Some(at(0, 20, 0))));
        assert_eq!(night.at(at(0, 20, 0) + Duration::from_micros(7), &east), (true, Some(at(1, 4, 0))));
        let west = LocalTime { offset: Duration::from_mins(-210), ..LocalTime::UTC };
        assert_eq!(night.at(at(0, 1, 30), &west), (true, Some(at(0, 9, 30))));
        assert_eq!(west.show(at(0, 1, 30)), "Sun 22:00");
    }

    #[test]
    fn r6_2_hours_are_shown_as_they_are_read_and_what_means_nothing_is_refused() {
        for (text, shown) in [
            ("mon-fri 18:00-08:00, sat-sun", "mon-fri 18:00-08:00, sat-sun"),
            ("SAT-mon 8:00-24:00", "sat-mon 08:00-24:00"),
            ("wed", "wed"),
            ("mon-sun 22:00-06:00", "22:00-06:00"),
            ("tue-mon 22:00-06:00", "22:00-06:00"),
            ("always", "always"),
            ("mon-sun", "always"),
            ("06:00-18:00, 18:00-06:00", "always"),
        ] {
            assert_eq!(hours(text).to_string(), shown);
            assert_eq!(hours(shown), hours(text));
        }
        let many = vec!["mon"; 51].join(",");
        for text in [
            "",
            ",",
            "mon,",
            "monday",
            "18-8",
            "18:00-18:00",
            "24:00-08:00",
            "25:00-26:00",
            "08:60-09:00",
            "mon 18:00",
            "never",
            "mon-fri-sun",
            "1:1-2:00",
            &many,
        ] {
            let error = text.parse::<Hours>().unwrap_err().to_string();
            assert!(error.contains("hours"), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn r6_2_what_is_said_of_the_hours_is_what_a_look_at_each_minute_says(
            stretches in prop::collection::vec((0_u32..7, 0_u32..7, 0_u32..1440, 1_u32..=1440), 1..4),
            start in 0_i64..20_000,
            offset in -840_i64..840,
        ) {
            let stretches: Vec<_> = stretches.into_iter().filter(|(_, _, from, to)| from != to)
                .map(|(first_day, last_day, from, to)| Stretch { first_day, last_day, from, to }).collect();
            prop_assume!(!stretches.is_empty());
            let said = Hours { stretches };
            let local = LocalTime { offset: Duration::from_mins(offset), ..LocalTime::UTC };
            let now = MONDAY + Duration::from_mins(start);
            let minute = |at: Instant| local.of_week(at).0;
            let (open, change) = said.at(now, &local);
            prop_assert_eq!(open, said.is_open(minute(now)));
            let mut next = (1..=10_080).map(|ahead| now + Duration::from_mins(ahead));
            prop_assert_eq!(change, next.find(|at| said.is_open(minute(*at)) != open));
            prop_assert_eq!(said.to_string().parse::<Hours>().is_ok(), true);
        }
    }
}
