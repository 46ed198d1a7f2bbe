//! Amounts with their unit, as people write them: `3.67 h`, `1 MB`.
//!
//! Written amounts read back equal: a unit is chosen in which the number is short, down to microseconds and
//! bytes.

use fallow_domain::amount::{self, SIZES, TIMES, Units};
use fallow_domain::{Bytes, Duration, Fraction};

use crate::suggest::suggest;

/// The largest whole number that a floating-point number holds exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// What is wrong with an amount.
#[derive(Debug, PartialEq, Eq)]
pub struct BadAmount {
    /// What is wrong.
    pub problem: String,
    /// The amount that may have been meant.
    pub suggestion: Option<String>,
}

/// Reads a duration such as `3.67 h`, or `1h30min`, in parts. It may be negative, unless it has parts.
///
/// # Errors
/// [`BadAmount`] for what is none.
pub fn parse_duration(text: &str) -> Result<Duration, BadAmount> {
    let whole = |parts: &[&str]| -> Result<f64, BadAmount> {
        let mut sum = 0.0;
        for part in parts {
            sum += amount(part, TIMES, "a duration")?;
        }
        if sum.abs() > EXACT { Err(bad(format!("{text:?} is too much"))) } else { Ok(sum) }
    };
    whole(&parts(text)).map(|micros| Duration::from_micros(micros as i64))
}

/// The parts of a duration such as `1 h 30 min`: each a number and its unit. What has none is one part.
fn parts(text: &str) -> Vec<&str> {
    let (mut found, mut rest) = (Vec::new(), text.trim());
    loop {
        let (number, unit) = amount::split(rest);
        let tail = unit.trim_start_matches(char::is_alphabetic).trim_start();
        let goes_on = tail.starts_with(|first: char| first.is_ascii_digit()) && tail.len() < unit.len();
        if !goes_on || number.is_empty() || rest.starts_with('-') {
            found.push(rest);
            return found;
        }
        let (part, next) = rest.split_at(rest.len() - tail.len());
        found.push(part);
        rest = next;
    }
}

/// Reads a size such as `2 GiB`.
///
/// # Errors
/// [`BadAmount`] for what is none.
pub fn parse_bytes(text: &str) -> Result<Bytes, BadAmount> {
    not_negative(amount(text, SIZES, "a size")?, "a size").map(Bytes)
}

/// Writes a duration so that it reads back equal, if it is shorter than 285 years.
#[must_use]
pub fn write_duration(duration: Duration) -> String {
    write_amount(duration.as_micros(), TIMES, &["days", "h", "min", "s"], "us")
}

/// Writes a size so that it reads back equal.
#[must_use]
pub fn write_bytes(bytes: Bytes) -> String {
    write_amount(
        i64::try_from(bytes.0).unwrap_or(i64::MAX),
        SIZES,
        &["TB", "GB", "GiB", "MB", "MiB", "kB"],
        "B",
    )
}

/// Shows a duration as everything else is shown that is no file, if that reads back equal; else as
/// [`write_duration`].
#[must_use]
pub fn show_duration(duration: Duration) -> String {
    let shown = duration.to_string();
    if parse_duration(&shown) == Ok(duration) { shown } else { write_duration(duration) }
}

/// The same of a size.
#[must_use]
pub fn show_bytes(bytes: Bytes) -> String {
    let shown = bytes.to_string();
    if parse_bytes(&shown) == Ok(bytes) { shown } else { write_bytes(bytes) }
}

/// Shows a part of a whole in per cents, to a thousandth of one: 0.29 is not 28.999999999999996%.
#[must_use]
pub fn show_fraction(fraction: Fraction) -> String {
    format!("{}%", (fraction.get() * 1e5).round() / 1e3)
}

fn bad(problem: String) -> BadAmount {
    BadAmount { problem, suggestion: None }
}

/// The amount in whole units.
///
/// # Errors
/// [`BadAmount`] for a negative one; `what` is what it is an amount of.
pub fn not_negative(amount: f64, what: &str) -> Result<u64, BadAmount> {
    if amount < 0.0 { Err(bad(format!("{what} cannot be negative"))) } else { Ok(amount as u64) }
}

/// An amount in the smallest unit, a whole number.
///
/// # Errors
/// [`BadAmount`] for what is none; `what` is what it is an amount of.
pub fn amount(text: &str, units: Units, what: &str) -> Result<f64, BadAmount> {
    let (number, unit) = amount::split(text);
    let Ok(value) = number.replace('_', "").parse::<f64>() else {
        return Err(bad(format!("{text:?} does not begin with a number")));
    };
    if unit.is_empty() {
        return Err(bad(format!("{what} needs a unit")));
    }
    let Some(factor) = amount::factor(units, unit) else {
        let problem = format!("{unit:?} is no unit of {what}");
        let suggestion = meant(unit, units).map(|unit| format!("{number} {unit}"));
        return Err(BadAmount { problem, suggestion });
    };
    let amount = (value * factor).round();
    if amount.abs() > EXACT { Err(bad(format!("{text:?} is too much"))) } else { Ok(amount) }
}

/// The unit that somebody meant, if it can be no other: a symbol in other letters' case, a word with a slip
/// of the pen. Units that are a letter apart differ a thousandfold.
fn meant(unit: &str, units: Units) -> Option<&'static str> {
    // A small b is a bit to some.
    let bits = unit.contains('b') && (unit.contains('/') || unit.contains(char::is_uppercase));
    let mut same = units.iter().map(|(name, _)| *name).filter(|name| !bits || name.contains('b'));
    same.find(|name| name.eq_ignore_ascii_case(unit)).or_else(|| {
        let is_word = |name: &&str| name.len() >= 3 && name.chars().all(|c| c.is_ascii_lowercase());
        let begins = |name: &&str| unit.chars().next().is_some_and(|first| name.starts_with(first));
        let words = units.iter().map(|(name, _)| *name).filter(is_word).filter(begins);
        if unit.chars().count() >= 4 { suggest(unit, words) } else { None }
    })
}

/// Writes an amount in the first of the preferred units in which it is short, or else in the smallest.
#[must_use]
pub fn write_amount(amount: i64, units: Units, preferred: &[&str], smallest: &str) -> String {
    for name in preferred {
        let Some(factor) = amount::factor(units, name) else { continue };
        let value = amount as f64 / factor;
        let text = value.to_string();
        // Parts of days are how people give buffers; of other units there is a smaller one.
        let least = if *name == "days" { 0.1 } else { 1.0 };
        let short = text.len() <= 6 && (value.abs() >= least || value == 0.0);
        if short && (value * factor).round() as i64 == amount && (value != 0.0 || *name == "s") {
            let name = if *name == "days" && text == "1" { "day" } else { name };
            return format!("{text} {name}");
        }
    }
    let seconds = amount as f64 / 1e6;
    if smallest == "us" && amount % 1000 == 0 && (seconds * 1e6).round() as i64 == amount {
        // Long, but seconds are easier to read than microseconds.
        return format!("{seconds} s");
    }
    format!("{amount} {smallest}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn secs(text: &str) -> f64 {
        parse_duration(text).unwrap().as_secs_f64()
    }

    #[test]
    fn durations_take_the_units_people_write() {
        for (text, expected) in [
            ("100 days", 8_640_000.0),
            ("60 min", 3600.0),
            ("0.1 days", 8640.0),
            ("3.67 h", 13_212.0),
            ("1000 s", 1000.0),
            ("1e3s", 1000.0),
            ("1 day", 86_400.0),
            ("2 weeks", 1_209_600.0),
            ("-1.5 h", -5400.0),
            ("0 s", 0.0),
            ("250 ms", 0.25),
            ("1_000 s", 1000.0),
            ("15m", 900.0),
            ("1h30min", 5400.0),
            ("1 h 30 m 5s", 5405.0),
            ("2d 1e1s", 172_810.0),
        ] {
            assert_eq!(secs(text), expected, "{text}");
        }
    }

    #[test]
    fn sizes_take_decimal_and_binary_units() {
        assert_eq!(parse_bytes("1 MB"), Ok(Bytes(1_000_000)));
        assert_eq!(parse_bytes("2 GiB"), Ok(Bytes(2 << 30)));
        assert_eq!(parse_bytes("0 B"), Ok(Bytes(0)));
    }

    #[test]
    fn a_bad_amount_says_what_is_wrong_with_it() {
        let check = |text: &str, problem: &str, suggestion: Option<&str>| {
            let bad = parse_duration(text).unwrap_err();
            assert_eq!((bad.problem.as_str(), bad.suggestion.as_deref()), (problem, suggestion), "{text}");
        };
        check("60", "a duration needs a unit", None);
        check("60 minuts", "\"minuts\" is no unit of a duration", Some("60 minutes"));
        check("soon", "\"soon\" does not begin with a number", None);
        check("", "\"\" does not begin with a number", None);
        check("1e300 days", "\"1e300 days\" is too much", None);
        check("1 é", "\"é\" is no unit of a duration", None);
        check("1h 5 parsec", "\"parsec\" is no unit of a duration", None);
        check("1h 5", "a duration needs a unit", None);
        check("-1h30min", "\"h30min\" is no unit of a duration", None);
        check("5 usec", "\"usec\" is no unit of a duration", None);
        check("5 years", "\"years\" is no unit of a duration", None);
        for (text, suggestion) in
            [("2 PB", None), ("2 gb", Some("2 GB")), ("2 Mb", None), ("2 mib", Some("2 MiB"))]
        {
            assert_eq!(parse_bytes(text).unwrap_err().suggestion.as_deref(), suggestion, "{text}");
        }
        assert_eq!(parse_bytes("-1 B").unwrap_err().problem, "a size cannot be negative");
    }

    #[test]
    fn amounts_are_written_in_a_unit_that_suits_them() {
        assert_eq!(write_duration(Duration::from_hours(2400)), "100 days");
        assert_eq!(write_duration(Duration::from_secs(86_400)), "1 day");
        assert_eq!(write_duration(Duration::from_days_f64(0.25)), "0.25 days");
        assert_eq!(write_duration(Duration::from_mins(60)), "1 h");
        assert_eq!(write_duration(Duration::from_secs(1000)), "1000 s");
        assert_eq!(write_duration(Duration::ZERO), "0 s");
        assert_eq!(write_duration(Duration::from_micros(1)), "1 us");
        assert_eq!(write_duration(Duration::from_mins(30)), "30 min");
        assert_eq!(write_bytes(Bytes(1_000_000)), "1 MB");
        assert_eq!(write_bytes(Bytes(101_000_000_000)), "101 GB");
        assert_eq!(write_bytes(Bytes::from_mebibytes(2048)), "2 GiB");
        assert_eq!(write_bytes(Bytes(0)), "0 B");
    }

    #[test]
    fn what_is_shown_reads_back_equal_and_is_said_as_elsewhere() {
        let shown =
            [60.0, 90.0, 3_600.0, 8_640.0, 86_400.0, 1.25].map(Duration::from_secs_f64).map(show_duration);
        assert_eq!(shown, ["1 min", "90 s", "1 h", "2.4 h", "1 day", "1.25 s"]);
        let shown = [1_u64 << 30, 10 << 20, 5_000, 1_500_000].map(Bytes).map(show_bytes);
        assert_eq!(shown, ["1 GiB", "10 MiB", "5000 B", "1.5 MB"]);
        assert_eq!(
            [0.5, 0.29, 1.0].map(|part| show_fraction(Fraction::clamped(part))),
            ["50%", "29%", "100%"]
        );
    }

    proptest! {
        #[test]
        fn a_duration_reads_back_equal(micros in -(1_i64 << 52)..(1_i64 << 52)) {
            let duration = Duration::from_micros(micros);
            prop_assert_eq!(parse_duration(&write_duration(duration)), Ok(duration));
        }
        #[test]
        fn a_size_reads_back_equal(bytes in 0..(1_u64 << 53)) {
            prop_assert_eq!(parse_bytes(&write_bytes(Bytes(bytes))), Ok(Bytes(bytes)));
        }
        #[test]
        fn no_text_makes_an_amount_panic(text in "\\PC{0,12}") {
            let _ = (parse_duration(&text), parse_bytes(&text));
        }
    }
}
