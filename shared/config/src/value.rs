//! Single values of a file: what each kind accepts, and what is said when it does not.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use fallow_domain::{
    Bytes, Device, Duration, Flops, Fraction, GpuExclusion, Hours, Invalid, MasterUrl, RequiredLayer, Share,
    Speed,
};
use toml::de::DeValue;

use crate::shown::NO_LIMIT;
use crate::suggest::suggest;
use crate::units::{BadAmount, parse_bytes, parse_duration};

/// What is wrong with a value.
#[derive(Debug)]
pub struct BadValue {
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub expected: String,
    /// What may have been meant.
    pub suggestion: Option<String>,
}

/// A value that can stand behind a key.
pub trait FromValue: Sized {
    /// What says that there is no limit, where the value may be left out.
    const UNLIMITED: &'static str = NO_LIMIT;

    /// Takes the value.
    ///
    /// # Errors
    /// [`BadValue`] with what is wrong with it.
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue>;
}

/// A value as it is called in messages, such as `a string` or `-3`.
fn called(value: &DeValue<'_>) -> String {
    match value {
        DeValue::Integer(_) | DeValue::Float(_) => number_text(value).unwrap_or_default(),
        DeValue::String(text) => format!("{:?}", text.chars().take(60).collect::<String>()),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(_) => "a date".into(),
        DeValue::Array(_) => "a list".into(),
        DeValue::Table(_) => "a table".into(),
    }
}

fn number_text(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::Integer(number) => Some(match number.radix() {
            10 => number.as_str().to_owned(),
            radix => i64::from_str_radix(number.as_str(), radix).ok()?.to_string(),
        }),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        _ => None,
    }
}

/// That `value` is not what was expected.
#[must_use]
pub fn unexpected(value: &DeValue<'_>, expected: &str) -> BadValue {
    let problem = format!("{} makes no sense here", called(value));
    BadValue { problem, expected: expected.into(), suggestion: None }
}

fn number(value: &DeValue<'_>, expected: &str) -> Result<f64, BadValue> {
    let number = number_text(value).and_then(|text| text.replace('_', "").parse::<f64>().ok());
    number.filter(|number| number.is_finite()).ok_or_else(|| unexpected(value, expected))
}

/// A whole number of 0 or more.
///
/// # Errors
/// [`BadValue`] for anything else.
pub fn whole(value: &DeValue<'_>, expected: &str) -> Result<u64, BadValue> {
    let text = value.as_integer().and_then(|_| number_text(value));
    let number = text.and_then(|text| text.replace('_', "").trim_start_matches('+').parse().ok());
    number.ok_or_else(|| unexpected(value, expected))
}

/// A text.
///
/// # Errors
/// [`BadValue`] for anything else.
pub fn text<'a>(value: &'a DeValue<'_>, expected: &str) -> Result<&'a str, BadValue> {
    value.as_str().ok_or_else(|| unexpected(value, expected))
}

/// One of a few words.
///
/// # Errors
/// [`BadValue`] for anything else, with the word that may have been meant.
pub fn word<T: Copy>(value: &DeValue<'_>, words: &[(&str, T)]) -> Result<T, BadValue> {
    let quoted: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
    let expected = match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.join(""),
    };
    // A word that TOML takes for a truth value, such as the estimate "true".
    if let Some(bare) = value.as_bool().map(|bare| bare.to_string()) {
        let meant = words.iter().find(|(word, _)| *word == bare);
        let suggestion = meant.map(|(word, _)| format!("{word:?}, in quotes"));
        return Err(BadValue { suggestion, ..unexpected(value, &expected) });
    }
    let given = text(value, &expected)?;
    words.iter().find(|(word, _)| *word == given).map(|(_, meant)| *meant).ok_or_else(|| BadValue {
        suggestion: suggest(given, words.iter().map(|(word, _)| *word)).map(|word| format!("{word:?}")),
        ..unexpected(value, &expected)
    })
}

/// An amount with its unit; a bare number is met with a request for one.
///
/// # Errors
/// [`BadValue`] for what is no amount.
pub fn amount_value<T>(
    value: &DeValue<'_>,
    parse: fn(&str) -> Result<T, BadAmount>,
    expected: &str,
) -> Result<T, BadValue> {
    let (given, bare) = match (value.as_str(), number_text(value)) {
        (Some(text), _) => (text.to_owned(), false),
        (None, Some(number)) => (number, true),
        (None, None) => return Err(unexpected(value, expected)),
    };
    parse(&given).map_err(|BadAmount { problem, suggestion }| {
        let problem = if bare { format!("{given} has no unit") } else { problem };
        BadValue {
            problem,
            expected: expected.into(),
            suggestion: suggestion.map(|text| format!("{text:?}")),
        }
    })
}

impl FromValue for Duration {
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        let units = "weeks, days, h, min, s, ms or us";
        amount_value(
            value,
            parse_duration,
            &format!("a duration with its unit ({units}), such as \"60 min\""),
        )
    }
}

impl FromValue for Bytes {
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        amount_value(
            value,
            parse_bytes,
            "a size with its unit (B, kB, MB, GB, TB, KiB, MiB, GiB or TiB), such as \"1 MB\"",
        )
    }
}

/// Numbers that have a type of their own, which refuses what is out of its range.
macro_rules! checked {
    ($($kind:ty: $expected:literal;)*) => {$(
        impl FromValue for $kind {
            fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
                <$kind>::new(number(value, $expected)?).map_err(|_| unexpected(value, $expected))
            }
        }
    )*};
}
checked! {
    Share: "a resource share: a number from 0 to 1,000,000,000";
    Speed: "floating-point operations per second: a number above 0, such as 1e9";
    Flops: "a number of floating-point operations of 0 or more, such as 1.3e13";
}

impl FromValue for Fraction {
    /// A number, or per cents as people write them elsewhere.
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        let expected = "a fraction: a number from 0 to 1, or such as \"50%\"";
        let percent = value.as_str().and_then(|text| text.trim().strip_suffix('%'));
        let number = match percent {
            Some(text) => text.trim().parse::<f64>().map_err(|_| unexpected(value, expected))? / 100.0,
            None => number(value, expected).map_err(|bad| per_cent(value, bad))?,
        };
        Self::new(number).map_err(|_| per_cent(value, unexpected(value, expected)))
    }
}

/// A number that is no part of anything was meant as so many per cent, if it can be.
fn per_cent(value: &DeValue<'_>, bad: BadValue) -> BadValue {
    let text = value.as_str().map(str::to_owned).or_else(|| number_text(value));
    let meant =
        text.filter(|text| text.trim().parse::<f64>().is_ok_and(|part| (2.0..=100.0).contains(&part)));
    BadValue { suggestion: meant.map(|text| format!("\"{}%\"", text.trim())), ..bad }
}

impl FromValue for f64 {
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        number(value, "a number")
    }
}

impl FromValue for u64 {
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        // TOML's whole numbers end here; a larger one could not be written back.
        let expected = "a whole number of 0 or more";
        whole(value, expected).and_then(|number| match i64::try_from(number) {
            Ok(_) => Ok(number),
            Err(_) => Err(unexpected(value, expected)),
        })
    }
}

impl FromValue for NonZeroU32 {
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        let expected = "a whole number of 1 or more";
        let number = u32::try_from(whole(value, expected)?).ok().and_then(Self::new);
        number.ok_or_else(|| unexpected(value, expected))
    }
}

impl FromValue for bool {
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        value.as_bool().ok_or_else(|| unexpected(value, "true or false"))
    }
}

impl FromValue for String {
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        text(value, "a text in quotes").map(Into::into)
    }
}

impl FromValue for Vec<String> {
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        let expected = "a list of names, such as [\"a\", \"b\"]";
        let DeValue::Array(items) = value else { return Err(unexpected(value, expected)) };
        items.iter().map(|item| text(item.get_ref(), expected).map(Into::into)).collect()
    }
}

impl FromValue for Hours {
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        let given = text(value, "hours in quotes, such as \"mon-fri 18:00-08:00, sat-sun\" or \"always\"")?;
        given.parse().map_err(|error: Invalid| {
            let bad = unexpected(value, error.expected);
            // A day or a time in it, or the whole.
            match error.given == given.trim() {
                true => bad,
                false => BadValue { problem: format!("{:?} makes no sense here", error.given), ..bad },
            }
        })
    }
}

/// What is no limit where the key is absent. A file that goes before another one may take that one's limit
/// back by `"no limit"`, or in the word of its kind.
impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        if value.as_str().is_some_and(|text| text == NO_LIMIT || text == T::UNLIMITED) {
            return Ok(None);
        }
        T::from_value(value)
            .map(Some)
            .map_err(|bad| BadValue { expected: format!("{}, or {:?}", bad.expected, T::UNLIMITED), ..bad })
    }
}

/// Blanks around a name are none of it, as on the command line.
impl FromValue for BTreeSet<String> {
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        Vec::from_value(value).map(|names: Vec<String>| names.iter().map(|name| name.trim().into()).collect())
    }
}

impl FromValue for BTreeSet<GpuExclusion> {
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        let expected =
            "a list of a project's URL with a device each, such as [\"https://example.org/p/ nvidia:0\"]";
        let DeValue::Array(items) = value else { return Err(unexpected(value, expected)) };
        let exclusion = |text: &str| text.parse().ok();
        items
            .iter()
            .map(|item| {
                item.get_ref()
                    .as_str()
                    .and_then(exclusion)
                    .ok_or_else(|| unexpected(item.get_ref(), expected))
            })
            .collect()
    }
}

impl FromValue for BTreeSet<Device> {
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        let expected = "a list of devices, such as [\"nvidia:0\", \"amd:1\"], or [] for none";
        let DeValue::Array(items) = value else { return Err(unexpected(value, expected)) };
        let device = |text: &str| text.parse().ok();
        items
            .iter()
            .map(|item| {
                item.get_ref().as_str().and_then(device).ok_or_else(|| unexpected(item.get_ref(), expected))
            })
            .collect()
    }
}

/// A list, or `"all"` alone.
impl FromValue for BTreeSet<RequiredLayer> {
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        let words: Vec<(&str, &str)> = RequiredLayer::KNOWN.into_iter().map(|name| (name, name)).collect();
        let expected =
            "\"all\", or a list of layers of confinement, such as [\"files\", \"calls\"], or [] for none";
        if let Some(text) = value.as_str() {
            let meant = words.iter().find(|(name, _)| *name == text).map(|(name, _)| format!("[{name:?}]"));
            return match text == RequiredLayer::all().name() {
                true => Ok([RequiredLayer::all()].into()),
                false => Err(BadValue { suggestion: meant, ..unexpected(value, expected) }),
            };
        }
        let DeValue::Array(items) = value else { return Err(unexpected(value, expected)) };
        let all = [("all", "all")];
        let words: Vec<(&str, &str)> = words.into_iter().chain(all).collect();
        items
            .iter()
            .map(|item| {
                let name = word(item.get_ref(), &words)?;
                name.parse().map_err(|_| unexpected(item.get_ref(), expected))
            })
            .collect()
    }
}

impl FromValue for BTreeSet<MasterUrl> {
    const UNLIMITED: &'static str = "all";

    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        let expected = "a list of projects' URLs, such as [\"https://example.org/project/\"], or [] for none";
        let DeValue::Array(items) = value else { return Err(unexpected(value, expected)) };
        let url = |text: &str| MasterUrl::parse(text).ok();
        items
            .iter()
            .map(|item| {
                item.get_ref().as_str().and_then(url).ok_or_else(|| unexpected(item.get_ref(), expected))
            })
            .collect()
    }
}
