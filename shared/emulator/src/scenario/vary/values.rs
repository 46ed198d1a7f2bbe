//! The values of a `--vary` option: a list with commas, in which a range stands for its values.

use fallow_domain::amount;

/// Most values of one range.
const RANGE_MAX: usize = 10_000;

/// What is wrong with a list of values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ListError {
    #[error("one of its values is empty")]
    EmptyValue,
    #[error("{range} wants a count from 2 to {RANGE_MAX} behind the /")]
    BadCount { range: String },
    #[error("{range} is no range of numbers")]
    NoNumbers { range: String },
    #[error("{range} has two units, {low} and {high}")]
    TwoUnits { range: String, low: String, high: String },
    #[error("{range} wants a count, such as {range}/8")]
    NoCount { range: String },
}

/// The values of a list, ranges written out; or what is wrong with it.
pub(crate) fn split(list: &str) -> Result<Vec<String>, ListError> {
    let mut values = Vec::new();
    for item in items(list) {
        let item = item.trim();
        if item.is_empty() {
            return Err(ListError::EmptyValue);
        }
        match item.split_once("..") {
            // Other dots may be part of a file's name.
            Some((low, high)) if number(amount::split(low).0).is_some() => values.extend(range(low, high)?),
            _ => values.push(item.to_owned()),
        }
    }
    Ok(values)
}

/// What a value may mean, the likeliest first: what TOML takes it for, and the text itself.
pub(crate) fn meanings(value: &str) -> Vec<toml::Value> {
    let text = toml::Value::String(value.to_owned());
    let table = format!("value = {value}").parse::<toml::Table>();
    match table.ok().filter(|table| table.len() == 1).and_then(|mut table| table.remove("value")) {
        Some(meant) if meant != text => vec![meant, text],
        _ => vec![text],
    }
}

/// Parts between commas that stand in no brackets and no quotes.
fn items(list: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut from, mut depth, mut quote) = (0, 0_usize, None);
    for (at, c) in list.char_indices() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '{' | '[') => depth += 1,
            (None, '}' | ']') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                parts.push(&list[from..at]);
                from = at + 1;
            }
            (None, _) => {}
        }
    }
    parts.push(&list[from..]);
    parts
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// `LOW..HIGH/COUNT`, or every whole number of `LOW..HIGH`.
fn range(low: &str, high: &str) -> Result<Vec<String>, ListError> {
    let range = format!("{}..{}", low.trim(), high.trim());
    let (high, count) = match high.rsplit_once('/') {
        // The count is behind the last stroke; one of `MB/s` is followed by a letter.
        Some((high, count)) if count.trim().starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
            let count = count.trim().parse::<usize>().ok().filter(|count| (2..=RANGE_MAX).contains(count));
            (high, Some(count.ok_or_else(|| ListError::BadCount { range: range.clone() })?))
        }
        _ => (high, None),
    };
    let ((low, low_unit), (high, high_unit)) = (amount::split(low), amount::split(high));
    let (Some(low), Some(high)) = (number(low), number(high)) else {
        return Err(ListError::NoNumbers { range });
    };
    if low_unit != high_unit && !low_unit.is_empty() {
        let (low, high) = (low_unit.to_string(), high_unit.to_string());
        return Err(ListError::TwoUnits { range, low, high });
    }
    let count = match count {
        Some(count) => count,
        None if low.fract() == 0.0 && high.fract() == 0.0 && low <= high && high - low < RANGE_MAX as f64 => {
            (high - low) as usize + 1
        }
        None => return Err(ListError::NoCount { range }),
    };
    let step = if count > 1 { (high - low) / (count - 1) as f64 } else { 0.0 };
    let value = |index: usize| {
        let exact = if index + 1 == count { high } else { low + step * index as f64 };
        // Twelve digits, so that a third of a step does not show its rounding.
        let short: f64 = format!("{exact:.11e}").parse().unwrap_or(exact);
        if high_unit.is_empty() { short.to_string() } else { format!("{short} {high_unit}") }
    };
    Ok((0..count).map(value).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(list: &str, expected: &[&str]) {
        assert_eq!(split(list).unwrap(), expected, "{list}");
    }

    #[test]
    fn values_stand_between_commas() {
        check("3.67 h, 7.34 h", &["3.67 h", "7.34 h"]);
        check(
            "{ fraction = 0.8, mean = \"1 h\" },\"a,b\"",
            &["{ fraction = 0.8, mean = \"1 h\" }", "\"a,b\""],
        );
        check("{ trace = \"../x.csv\" }", &["{ trace = \"../x.csv\" }"]);
        check("../x.csv,a..b/3", &["../x.csv", "a..b/3"]);
    }

    #[test]
    fn a_range_is_written_out() {
        check("1..4", &["1", "2", "3", "4"]);
        check("1 h..8 h/8", &["1 h", "2 h", "3 h", "4 h", "5 h", "6 h", "7 h", "8 h"]);
        check("1..2 h/3", &["1 h", "1.5 h", "2 h"]);
        check("0.1..0.4/4,1", &["0.1", "0.2", "0.3", "0.4", "1"]);
        check("8 MB/s..1 MB/s/2", &["8 MB/s", "1 MB/s"]);
        check("1e3..1e4/2", &["1000", "10000"]);
    }

    #[test]
    fn a_bad_range_says_why() {
        let check = |list: &str, expected: &str| assert_eq!(split(list).unwrap_err().to_string(), expected);
        check("1 h..8 min/8", "1 h..8 min/8 has two units, h and min");
        check("1.5..3", "1.5..3 wants a count, such as 1.5..3/8");
        check("1..8/1", "1..8/1 wants a count from 2 to 10000 behind the /");
        check("1..b/3", "1..b/3 is no range of numbers");
        check("1,,2", "one of its values is empty");
    }

    #[test]
    fn a_value_means_what_toml_takes_it_for_and_else_a_text() {
        let text = |text: &str| toml::Value::String(text.into());
        assert_eq!(meanings("2"), [toml::Value::Integer(2), text("2")]);
        assert_eq!(meanings("3.67 h"), [text("3.67 h")]);
        assert_eq!(meanings("\"3.67 h\""), [text("3.67 h"), text("\"3.67 h\"")]);
        assert_eq!(meanings("true"), [toml::Value::Boolean(true), text("true")]);
    }
}
