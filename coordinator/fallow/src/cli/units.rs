//! Amounts as people write them on the command line and in batch files.

use std::net::SocketAddr;

use fallow_domain::amount::{self, SIZES};
use fallow_domain::{Duration, Fraction};

/// A value that can be read but is not acceptable. The command line ends with status 3 for it, and with 2 for
/// what cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unacceptable(pub(crate) String);

/// Why an argument is refused.
pub(crate) type ArgumentError = Box<dyn std::error::Error + Send + Sync>;

fn unacceptable<T>(expected: &str) -> Result<T, ArgumentError> {
    Err(Unacceptable(expected.to_owned()).into())
}

/// A whole number from `low` to `high`, for clap.
pub(crate) fn count(
    low: u32,
    high: u32,
) -> impl Fn(&str) -> Result<u32, ArgumentError> + Clone + Send + Sync + 'static {
    move |text| {
        let expected = format!("expected a whole number from {low} to {high}");
        // As wide as possible first: a number that is too large is still a number.
        match text.parse::<i128>() {
            Ok(number) => match u32::try_from(number).ok().filter(|number| (low..=high).contains(number)) {
                Some(number) => Ok(number),
                None => unacceptable(&expected),
            },
            Err(_) => Err(expected.into()),
        }
    }
}

/// Where to listen: `127.0.0.1:24001`.
pub(crate) fn listen(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected an IP address and a port, such as 127.0.0.1:24001 or [::]:24001 (a name goes to --advertise)".to_owned())
}

/// A time such as `90s`, `2h 30m` or `1day`.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) => Ok(Duration::from(time)),
        Err(_) => Err("expected a time such as 90s or 2h".to_owned()),
    }
}

/// Time that a job has, from a second to ten years. What is longer or nothing is a slip, and clients refuse
/// it.
pub(crate) fn deadline(text: &str) -> Result<Duration, ArgumentError> {
    let (low, high) = (Duration::from_secs(1), Duration::from_hours(10 * 365 * 24));
    match time(text) {
        Ok(time) if (low..=high).contains(&time) => Ok(time),
        Ok(_) => unacceptable("expected a time from 1s to 3650days"),
        Err(error) => Err(error.into()),
    }
}

/// A part of a whole: `0.5` or `50%`.
pub(crate) fn fraction(text: &str) -> Result<Fraction, ArgumentError> {
    let expected = "expected a part from 0 to 1, such as 0.5 or 50%";
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse(),
    };
    let number = number.map_err(|_| expected)?;
    Fraction::new(number).or_else(|_| unacceptable(expected))
}

/// A size such as `64MiB` or `100kB`, or 0. A bare number is mostly one of gigabytes that somebody forgot to
/// say so of.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let expected = || "expected a size with its unit such as 1GiB, 64MiB or 5000B, or 0".to_owned();
    match amount::split(text) {
        (number, "") if number.parse() != Ok(0_u64) => Err(expected()),
        _ => size_or_bytes(text).map_err(|_| expected()),
    }
}

/// A size such as `64MiB`, `100kB`, or `5000` for as many bytes.
pub(crate) fn size_or_bytes(text: &str) -> Result<u64, String> {
    let expected = || "expected a size such as 64MiB, 100kB or 5000".to_owned();
    let (number, unit) = amount::split(text);
    let unit = if unit.is_empty() { "B" } else { unit };
    // Sizes are whole numbers of bytes, so that none is rounded.
    let factor = amount::factor(SIZES, unit).ok_or_else(expected)? as u64;
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)).ok_or_else(expected)
}

/// A size as people type it: whole binary units where it is made of them, such as `1 GiB`.
pub(crate) fn shown_size(bytes: u64) -> String {
    let units = [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let whole = units.into_iter().find(|(_, unit)| bytes >= *unit && bytes.is_multiple_of(*unit));
    whole.map_or_else(
        || fallow_domain::Bytes(bytes).to_string(),
        |(name, unit)| format!("{} {name}", bytes / unit),
    )
}

/// BOINC's version number from `MAJOR.MINOR`: 1.0 and 1.00 are 100, 1.07 is 107, 1.7 is 170 as BOINC prints
/// them.
pub(crate) fn version(text: &str) -> Result<u32, String> {
    let expected = || "expected MAJOR.MINOR with two digits of MINOR at most, such as 1.0 or 2.15".to_owned();
    let (major, minor) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(major) || !is_number(minor) || minor.len() > 2 || major.len() > 5 {
        return Err(expected());
    }
    let scale = if minor.len() == 1 { 10 } else { 1 };
    let (major, minor): (u32, u32) =
        (major.parse().map_err(|_| expected())?, minor.parse().map_err(|_| expected())?);
    Ok(major * 100 + minor * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_sort_as_boinc_prints_them() {
        for (text, number) in
            [("1.0", 100), ("1", 100), ("1.00", 100), ("1.07", 107), ("1.7", 170), ("20.15", 2015)]
        {
            assert_eq!(version(text), Ok(number), "{text}");
        }
        for bad in ["", "a", "1.", "1.123", "-1.0", "1.0.0", "999999.0"] {
            assert!(version(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_apart_from_what_is_not_acceptable() {
        let is_unacceptable = |refusal: ArgumentError| refusal.is::<Unacceptable>();
        assert!(is_unacceptable(count(1, 9)("0").unwrap_err()));
        assert!(is_unacceptable(count(1, 9)("99999999999").unwrap_err()));
        assert!(!is_unacceptable(count(1, 9)("few").unwrap_err()));
        assert_eq!(count(1, 9)("9").unwrap(), 9);
        assert!(is_unacceptable(fraction("150%").unwrap_err()));
        assert!(!is_unacceptable(fraction("half").unwrap_err()));
        for bad in ["0s", "1ms", "100000years"] {
            assert!(is_unacceptable(deadline(bad).unwrap_err()), "{bad}");
        }
        assert!(!is_unacceptable(deadline("soon").unwrap_err()) && deadline("2h").is_ok());
        assert!(listen("24999").unwrap_err().contains("such as 127.0.0.1:24001"));
    }

    #[test]
    fn parts_and_sizes_and_times_are_read_as_people_write_them() {
        assert_eq!(fraction("50%").unwrap(), fraction("0.5").unwrap());
        assert!(fraction("1.5").is_err() && fraction("-1%").is_err() && fraction("NaN").is_err());
        assert_eq!([size("64MiB"), size("1 GiB"), size("0")], [Ok(64 << 20), Ok(1 << 30), Ok(0)]);
        assert!(size("1").unwrap_err().contains("with its unit such as 1GiB"));
        assert_eq!((size_or_bytes("5000"), size_or_bytes("5kB")), (Ok(5_000), Ok(5_000)));
        assert!(size("99999999999GiB").is_err() && size("MiB").is_err() && size("1 parsec").is_err());
        assert_eq!([1 << 30, 64 << 20, 5_000].map(shown_size), ["1 GiB", "64 MiB", "5000 B"]);
        assert_eq!(time("1m 30s"), Ok(Duration::from_secs(90)));
        assert!(time("soon").is_err());
    }
}
