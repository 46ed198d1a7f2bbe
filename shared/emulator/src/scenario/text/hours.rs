//! Days of the week and hours of the day, as people write them: `mon-fri`, `9:30-17`.

use fallow_domain::Duration;

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const DAY_MINUTES: i64 = 24 * 60;

/// Reads days such as `mon-fri` or `mon,wed,sat-sun`, Monday first; none if that is not what it says.
pub(crate) fn parse_days(text: &str) -> Option<[bool; 7]> {
    let day = |name: &str| DAYS.iter().position(|day| day.eq_ignore_ascii_case(name.trim()));
    let mut days = [false; 7];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (day(first)?, day(last)?);
        // Over the end of the week, if it is written so.
        let count = (last + 7 - first) % 7;
        (first..=first + count).for_each(|day| days[day % 7] = true);
    }
    Some(days)
}

/// Writes days so that they read back equal.
pub(crate) fn write_days(days: [bool; 7]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut day = 0;
    while day < 7 {
        let run = days[day..].iter().take_while(|on| **on).count();
        match run {
            0 => {}
            1 => parts.push(DAYS[day].to_owned()),
            _ => parts.push(format!("{}-{}", DAYS[day], DAYS[day + run - 1])),
        }
        day += run.max(1);
    }
    parts.join(",")
}

/// Reads hours such as `9-17`, `9:30-17:15` or, over midnight, `22-6`: from when and until when, from the
/// midnight before.
pub(crate) fn parse_hours(text: &str) -> Option<(Duration, Duration)> {
    let (from, to) = text.split_once('-')?;
    let (from, to) = (minutes(from)?, minutes(to)?);
    if from >= DAY_MINUTES || from == to {
        return None;
    }
    let to = if to > from { to } else { to + DAY_MINUTES };
    Some((Duration::from_mins(from), Duration::from_mins(to)))
}

/// Minutes from midnight to `H` or `H:MM`, 24 hours at most.
fn minutes(text: &str) -> Option<i64> {
    let (hours, minutes) = text.trim().split_once(':').unwrap_or((text.trim(), "0"));
    let (hours, minutes): (u16, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
    let all = i64::from(hours) * 60 + minutes;
    ((0..60).contains(&minutes) && (0..=DAY_MINUTES).contains(&all)).then_some(all)
}

/// Writes hours so that they read back equal, if they are whole minutes.
pub(crate) fn write_hours(from: Duration, to: Duration) -> String {
    let time = |time: Duration| {
        let minutes = time.as_micros() / 60_000_000;
        let within = if minutes > DAY_MINUTES { minutes - DAY_MINUTES } else { minutes };
        match within % 60 {
            0 => (within / 60).to_string(),
            rest => format!("{}:{rest:02}", within / 60),
        }
    };
    format!("{}-{}", time(from), time(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r5_13_days_are_names_and_ranges_and_read_back_equal() {
        let days = |text| parse_days(text).map(|days| days.map(u8::from));
        assert_eq!(days("mon-fri"), Some([1, 1, 1, 1, 1, 0, 0]));
        assert_eq!(days("Mon, wed,sat-sun"), Some([1, 0, 1, 0, 0, 1, 1]));
        assert_eq!(days("sat-mon"), Some([1, 0, 0, 0, 0, 1, 1]));
        assert_eq!((days("mon-fry"), days(""), days("1-5")), (None, None, None));
        for bits in 1..128_u32 {
            let days: [bool; 7] = std::array::from_fn(|day| bits >> day & 1 == 1);
            assert_eq!(parse_days(&write_days(days)), Some(days));
        }
    }

    #[test]
    fn r5_13_hours_are_two_times_of_the_day_and_may_go_over_midnight() {
        let hours =
            |text| parse_hours(text).map(|(from, to)| [from, to].map(|at| at.as_micros() / 60_000_000));
        assert_eq!(hours("9-17"), Some([540, 1_020]));
        assert_eq!(hours("9:30 - 17:05"), Some([570, 1_025]));
        assert_eq!(hours("22-6"), Some([1_320, 1_800]));
        assert_eq!(hours("0-24"), Some([0, 1_440]));
        for bad in [
            "9",
            "9-9",
            "24-8",
            "9-25",
            "9:60-10",
            "a-b",
            "-1-3",
            "",
            "999999999999999999-17",
            "4611686018427387904-17",
        ] {
            assert_eq!(hours(bad), None, "{bad}");
        }
        for (from, to) in [(0, 1), (540, 1_020), (1_439, 1_440), (1_439, 2_878), (60, 1_499)] {
            let (from, to) = (Duration::from_mins(from), Duration::from_mins(to));
            assert_eq!(parse_hours(&write_hours(from, to)), Some((from, to)));
        }
    }
}
