//! Hours of the week in which a host may compute (R6.4; BOINC: `start_hour`, `end_hour`, `day_prefs`), by the
//! host's own clock on the wall.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Duration, Instant, Invalid};

/// No hour at all, as it is written.
const NEVER: &str = "never";
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const DAY_MINUTES: u32 = 24 * 60;
const WEEK_MINUTES: u32 = 7 * DAY_MINUTES;
const MINUTE_MICROS: i64 = 60_000_000;
/// The most stretches that are said of a week.
const STRETCHES_MAX: usize = 50;
const A_STRETCH: &str = "such as \"mon-fri 18:00-08:00, sat-sun\"; \"always\" for every hour";
const A_DAY: &str = "mon, tue, wed, thu, fri, sat or sun, or two of them as in mon-fri";
const A_TIME: &str = "a time from 00:00 to 24:00 such as 18:00, and a comma before what follows";
const A_SPAN: &str = "two times as HH:MM-HH:MM, with colons and no blanks in it, as in 08:00-17:00";
const APART: &str = "two times that differ, as in 18:00-08:00; a day without times is the whole day";
const NO_HOURS: &str = "hours that come at some time, such as \"mon-fri 18:00-08:00\", or \"always\"; no computing at all is \
    `suspended = true`";
const ONE_MEANING: &str = "days that share times joined without a blank, as in \"mon,tue 18:00-20:00\", \
    and days that are whole after all others, as in \"tue 18:00-20:00, mon\"";
const TIMES: &str = "from a time to another, as in 18:00-08:00; a day without times is the whole day";

/// Stretches of the week, such as `mon-fri 18:00-08:00, sat-sun`; none of them: every hour.
///
/// A stretch says on which days it begins (each day, where it names none) and when: from a time to a time, or
/// to that of the next day if this is earlier. Without times it is the whole of its days. Days that have the
/// same times are joined by a comma without a blank, as in `mon,wed,fri 18:00-20:00`.
///
/// Whoever writes `mon, wed 18:00-20:00` means one of two things, so that is refused. What was stored before
/// that was so is still read ([`Hours::of_stored`]): there Monday is a whole day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Hours {
    stretches: Vec<Stretch>,
    /// No hour at all. Nobody writes that; it is left where hours that are asked for have none in common.
    is_never: bool,
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
        self.stretches.is_empty() && !self.is_never
    }

    /// Whether it is no hour at all.
    #[must_use]
    pub fn is_never(&self) -> bool {
        self.is_never
    }

    /// The hours that are in both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        match (self.is_always(), other.is_always()) {
            (true, _) => other.clone(),
            (_, true) => self.clone(),
            _ => Self::of_minutes(|minute| self.is_open(minute) && other.is_open(minute)),
        }
    }

    /// Whether there is a minute of these that others leave out, however they are written.
    #[must_use]
    pub fn are_cut_by(&self, others: &Self) -> bool {
        self != others && (0..WEEK_MINUTES).any(|minute| self.is_open(minute) && !others.is_open(minute))
    }

    /// The hours whose minutes are named, each by its number in the week from Monday 0:00.
    #[must_use]
    pub fn of_minutes(is_open: impl Fn(u32) -> bool) -> Self {
        // From a minute at which nothing goes on, so that no run is cut in two.
        let Some(start) = (0..WEEK_MINUTES).find(|at| !is_open(*at)) else { return Self::default() };
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for ahead in 1..WEEK_MINUTES {
            let at = (start + ahead) % WEEK_MINUTES;
            match runs.last_mut() {
                _ if !is_open(at) => {}
                Some((from, length)) if (*from + *length) % WEEK_MINUTES == at => *length += 1,
                _ => runs.push((at, 1)),
            }
        }
        Self { is_never: runs.is_empty(), stretches: stretches(&runs) }
    }

    /// Whether `now` is one of these hours, and when that changes; none: never.
    #[must_use]
    pub fn at(&self, now: Instant, local: &LocalTime) -> (bool, Option<Instant>) {
        if self.is_always() || self.is_never {
            return (!self.is_never, None);
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
        self.is_always() || self.stretches.iter().any(|stretch| stretch.covers(minute))
    }

    /// Reads hours as they are stored and sent: what was written before days could share times means what it
    /// meant then.
    ///
    /// # Errors
    /// [`Invalid`] for what are no hours.
    pub fn of_stored(text: &str) -> Result<Self, Invalid> {
        // Nobody may say that, but hours of two may have no minute in common.
        if text == NEVER {
            return Ok(Self { stretches: Vec::new(), is_never: true });
        }
        Self::read(text, |items| items.into_iter().map(|item| vec![item]).collect())
    }

    /// `grouped` says which items of a list share their times: those of a group have the last one's.
    fn read<'t>(text: &'t str, grouped: fn(Vec<&'t str>) -> Vec<Vec<&'t str>>) -> Result<Self, Invalid> {
        if text.trim().eq_ignore_ascii_case("always") {
            return Ok(Self::default());
        }
        let items: Vec<&str> = text.split(',').take(STRETCHES_MAX + 1).collect();
        if items.len() > STRETCHES_MAX {
            return Err(Invalid::new(
                "hours",
                format_args!("{} stretches", items.len()),
                "at most 50 of them",
            ));
        }
        let mut stretches = Vec::new();
        for group in grouped(items) {
            let Some((last, others)) = group.split_last() else { continue };
            let last = Stretch::read(last.trim())?;
            for days in others {
                let days = Stretch::read(days.trim())?;
                stretches.push(Stretch { from: last.from, to: last.to, ..days });
            }
            stretches.push(last);
        }
        let hours = Self { stretches, is_never: false };
        // What covers the week is every hour: a gap would begin where some stretch ends.
        let is_always = hours.stretches.iter().flat_map(|stretch| stretch.ends()).all(|at| hours.is_open(at));
        Ok(if is_always { Self::default() } else { hours })
    }
}

/// Whether an item of a list begins with days, and not with a time.
fn names_days(item: &str) -> bool {
    item.trim().starts_with(|first: char| first.is_ascii_alphabetic())
}

/// Items that a comma without a blank joins, up to the one with times.
fn joined(items: Vec<&str>) -> Vec<Vec<&str>> {
    let mut groups: Vec<Vec<&str>> = Vec::new();
    for item in items {
        let is_apart = item.starts_with(char::is_whitespace);
        match groups.last_mut() {
            Some(group) if !is_apart && names_days(item) && group.iter().all(|one| !one.contains(':')) => {
                group.push(item);
            }
            _ => groups.push(vec![item]),
        }
    }
    groups
}

/// Runs of minutes of the week, none a whole week, as stretches: cut at midnight where they are longer than
/// a day, and said once for days in a row.
fn stretches(runs: &[(u32, u32)]) -> Vec<Stretch> {
    let mut days: Vec<((u32, u32), [bool; 7])> = Vec::new();
    for &(mut at, mut left) in runs {
        while left > 0 {
            let (day, from) = (at / DAY_MINUTES, at % DAY_MINUTES);
            let piece = if left < DAY_MINUTES { left } else { DAY_MINUTES - from };
            let to = match (from + piece) % DAY_MINUTES {
                0 => DAY_MINUTES,
                to => to,
            };
            let found = days.iter_mut().find(|(times, _)| *times == (from, to));
            match found {
                Some((_, on)) => on[day as usize] = true,
                None => days.push(((from, to), std::array::from_fn(|other| other == day as usize))),
            }
            at = (at + piece) % WEEK_MINUTES;
            left -= piece;
        }
    }
    let mut found = Vec::new();
    for ((from, to), on) in days {
        let is_on = |day: u32| on[(day % 7) as usize];
        if on.iter().all(|on| *on) {
            found.push(Stretch { first_day: 0, last_day: 6, from, to });
            continue;
        }
        for first_day in (0..7).filter(|day| is_on(*day) && !is_on(day + 6)) {
            let length = (1..7).find(|ahead| !is_on(first_day + ahead)).unwrap_or(1);
            found.push(Stretch { first_day, last_day: (first_day + length - 1) % 7, from, to });
        }
    }
    found.sort_by_key(|stretch| (stretch.first_day, stretch.from));
    found
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

    fn read(text: &str) -> Result<Self, Invalid> {
        let bad = |given: &str, expected| Invalid::new("hours", given.trim(), expected);
        if text.is_empty() {
            return Err(bad(text, A_STRETCH));
        }
        if text.eq_ignore_ascii_case(NEVER) {
            return Err(bad(text, NO_HOURS));
        }
        // No day begins with a digit: times with a blank or with points in them.
        let is_time = |text: &str| text.starts_with(|first: char| first.is_ascii_digit());
        if is_time(text) && (text.contains(char::is_whitespace) || !text.contains(':')) {
            return Err(bad(text, A_SPAN));
        }
        let (days, times) = match text.split_once(char::is_whitespace) {
            Some((days, times)) => (Some(days), Some(times.trim())),
            None if text.contains(':') => (None, Some(text)),
            None => (Some(text), None),
        };
        let day = |text: &str| {
            let number = DAYS.iter().position(|day| text.trim().eq_ignore_ascii_case(day));
            number.and_then(|number| u32::try_from(number).ok()).ok_or_else(|| bad(text, A_DAY))
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
                let (from, to) = times.split_once('-').ok_or_else(|| bad(times, TIMES))?;
                let minutes = |text| minutes(text).ok_or_else(|| bad(text, A_TIME));
                (minutes(from)?, minutes(to)?)
            }
            None => (0, DAY_MINUTES),
        };
        match (from == to, from < DAY_MINUTES) {
            (true, _) => Err(bad(times.unwrap_or(text), APART)),
            (false, true) => Ok(Self { first_day, last_day, from, to }),
            (false, false) => Err(bad(times.unwrap_or(text), TIMES)),
        }
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

impl Stretch {
    const fn is_whole(self) -> bool {
        self.from == 0 && self.to == DAY_MINUTES
    }

    /// As it is written; whole days with their times where times follow, which could be taken for theirs.
    fn show(self, times_follow: bool) -> String {
        let Self { first_day, last_day, from, to } = self;
        let is_whole = self.is_whole() && !times_follow;
        let days = match (first_day, last_day) {
            (0, 6) if !is_whole => String::new(),
            (first, last) if first == last => day_name(first).to_owned(),
            (first, last) => format!("{}-{}", day_name(first), day_name(last)),
        };
        let times = if is_whole { String::new() } else { format!("{}-{}", clock(from), clock(to)) };
        let gap = if days.is_empty() || times.is_empty() { "" } else { " " };
        format!("{days}{gap}{times}")
    }
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_never {
            return f.write_str(NEVER);
        }
        let all = &self.stretches;
        let follow = |index: usize| all[index + 1..].iter().any(|later| !later.is_whole());
        let shown: Vec<String> = all.iter().enumerate().map(|(index, one)| one.show(follow(index))).collect();
        f.write_str(if shown.is_empty() { "always" } else { "" })?;
        f.write_str(&shown.join(", "))
    }
}

impl FromStr for Hours {
    type Err = Invalid;

    /// Reads hours as people write them.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let items: Vec<&str> = text.split(',').collect();
        let groups = joined(items);
        let has_times = |group: &Vec<&str>| group.iter().any(|item| item.contains(':'));
        let mut followed = groups.iter().zip(groups.iter().skip(1));
        match followed.any(|(days, next)| !has_times(days) && has_times(next)) {
            true => Err(Invalid::new("hours", text.trim(), ONE_MEANING)),
            false => Self::read(text, joined),
        }
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
        Self::of_stored(&text)
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
    fn r6_4_hours_are_cut_by_those_that_leave_a_minute_out_however_they_are_written() {
        let hours = |text: &str| text.parse::<Hours>().unwrap();
        let lab = hours("mon-fri 18:00-08:00, sat-sun");
        for others in
            ["mon-thu 18:00-08:00, fri 18:00-24:00, sat-sun", "mon-fri 17:00-08:00, sat-sun", "always"]
        {
            assert!(!lab.are_cut_by(&hours(others)), "{others}");
        }
        for others in ["mon-fri 18:00-07:59, sat-sun", "sat-sun"] {
            assert!(lab.are_cut_by(&hours(others)), "{others}");
        }
        assert!(hours("always").are_cut_by(&lab) && !lab.are_cut_by(&lab));
        assert_ne!(lab.and(&lab), lab, "the same hours, written in another way");
    }

    #[test]
    fn r6_4_hours_over_midnight_belong_to_the_day_on_which_they_begin() {
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
    fn r6_4_hours_are_those_of_the_hosts_own_clock() {
        let (night, east) =
            (hours("22:00-06:00"), LocalTime { offset: Duration::from_hours(2), ..LocalTime::UTC });
        assert_eq!(night.at(at(0, 19, 59), &east), (false, Some(at(0, 20, 0))));
        assert_eq!(night.at(at(0, 20, 0) + Duration::from_micros(7), &east), (true, Some(at(1, 4, 0))));
        let west = LocalTime { offset: Duration::from_mins(-210), ..LocalTime::UTC };
        assert_eq!(night.at(at(0, 1, 30), &west), (true, Some(at(0, 9, 30))));
        assert_eq!(west.show(at(0, 1, 30)), "Sun 22:00");
    }

    #[test]
    fn r6_4_hours_are_shown_as_they_are_read_and_what_means_nothing_is_refused() {
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

    #[test]
    fn r6_4_days_that_a_comma_joins_have_the_same_times_and_what_may_mean_two_things_is_refused() {
        let both = hours("mon,tue 18:00-20:00");
        assert_eq!(both, hours("mon 18:00-20:00, tue 18:00-20:00"));
        assert_eq!(hours("mon,wed-fri 18:00-08:00, sun").to_string(), {
            "mon 18:00-08:00, wed-fri 18:00-08:00, sun"
        });
        assert_eq!(hours("sat,sun"), hours("sat, sun"));
        for text in
            ["mon, tue 18:00-20:00", "sat-sun, mon-fri 18:00-08:00", "sat, 18:00-20:00", "sat,18:00-20:00"]
        {
            let error = text.parse::<Hours>().unwrap_err().to_string();
            assert!(error.contains("without a blank"), "{text}: {error}");
        }
        // What was stored before stays what it was, and is shown so that it is read as that.
        let stored: Hours = serde_json::from_str("\"sat-sun, mon-fri 18:00-08:00\"").unwrap();
        assert_eq!(stored, hours("mon-fri 18:00-08:00, sat-sun").reordered());
        assert_eq!(stored.to_string(), "sat-sun 00:00-24:00, mon-fri 18:00-08:00");
        assert_eq!(hours(&stored.to_string()), stored);
    }

    #[test]
    fn r6_4_what_is_wrong_with_hours_is_said_of_the_part_that_is_wrong() {
        for (text, given, expected) in [
            ("mon 25:00-26:00", "25:00", "from 00:00 to 24:00"),
            ("8:00 - 17:00", "8:00 - 17:00", "no blanks in it"),
            ("sat, 18.00-08.00", "18.00-08.00", "HH:MM-HH:MM"),
            ("mon 23:00-23:00", "23:00-23:00", "two times that differ"),
            ("Never", "Never", "suspended = true"),
            ("mon-fry 08:00-12:00", "fry", "mon, tue"),
        ] {
            let error = text.parse::<Hours>().unwrap_err();
            assert!(error.given == given && error.expected.contains(expected), "{text}: {error}");
        }
    }

    impl Hours {
        fn reordered(mut self) -> Self {
            self.stretches.reverse();
            self
        }
    }

    #[test]
    fn r6_4_hours_in_common_are_shown_as_people_write_them() {
        for (one, other, both) in [
            // The weekend ends with Sunday.
            ("mon-fri 18:00-08:00, sat-sun", "22:00-06:00", "mon-sat 22:00-06:00, sun 22:00-24:00"),
            ("mon-fri 18:00-08:00", "always", "mon-fri 18:00-08:00"),
            ("mon-fri", "12:00-13:00", "mon-fri 12:00-13:00"),
            ("sat-mon", "sun-tue", "sun-mon"),
            ("mon-fri", "sat-sun", "never"),
            ("08:00-12:00", "12:00-14:00", "never"),
        ] {
            assert_eq!(hours(one).and(&hours(other)).to_string(), both, "{one} and {other}");
        }
        let never = hours("mon").and(&hours("tue"));
        assert!(never.is_never() && !never.is_always());
        assert_eq!(Hours::of_stored(&never.to_string()).unwrap(), never);
        assert_eq!(never.at(MONDAY, &LocalTime::UTC), (false, None));
        assert!(hours("mon").and(&never).is_never() && never.and(&Hours::default()).is_never());
    }

    proptest! {
        #[test]
        fn r6_4_hours_in_common_are_those_that_both_have(
            stretches in prop::collection::vec((0_u32..7, 0_u32..7, 0_u32..1440, 1_u32..=1440), 2..5),
        ) {
            let said: Vec<Hours> = stretches.into_iter().filter(|(_, _, from, to)| from != to)
                .map(|(first_day, last_day, from, to)| Stretch { first_day, last_day, from, to })
                .map(|stretch| Hours { stretches: vec![stretch], is_never: false }).collect();
            let both = said.iter().fold(Hours::default(), |both, one| both.and(one));
            for minute in 0..WEEK_MINUTES {
                prop_assert_eq!(both.is_open(minute), said.iter().all(|one| one.is_open(minute)));
            }
            if !both.is_never() {
                prop_assert_eq!(Hours::of_stored(&both.to_string()).unwrap().at(MONDAY, &LocalTime::UTC),
                    both.at(MONDAY, &LocalTime::UTC));
            }
        }

        #[test]
        fn r6_4_what_is_said_of_the_hours_is_what_a_look_at_each_minute_says(
            stretches in prop::collection::vec((0_u32..7, 0_u32..7, 0_u32..1440, 1_u32..=1440), 1..4),
            start in 0_i64..20_000,
            offset in -840_i64..840,
        ) {
            let stretches: Vec<_> = stretches.into_iter().filter(|(_, _, from, to)| from != to)
                .map(|(first_day, last_day, from, to)| Stretch { first_day, last_day, from, to }).collect();
            prop_assume!(!stretches.is_empty());
            let said = Hours { stretches, is_never: false };
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
