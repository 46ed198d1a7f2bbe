//! Recorded availability: a CSV file of on and off times (R5.11).
//!
//! One change a line, `SECONDS,STATE`: seconds from the beginning of the recording, rising; `on` (or `1`),
//! `off` (or `0`). Before the first line it is in the other state, so `0,on` begins on. A last line
//! `SECONDS,end` says where the recording ends: from there it begins anew; without it, the last state holds
//! for ever. Empty lines and lines that begin with `#` are passed over; the first line may be a heading: two
//! words, the second no state.
//!
//! ```text
//! seconds,state
//! 0,on
//! 28800,off
//! 61200,on
//! 86400,end
//! ```

use fallow_domain::Duration;

use super::super::{Trace, TraceChange};

const SEPARATORS: [char; 3] = [',', ';', '\t'];

/// What one line says.
enum Line {
    Change(bool),
    End,
}

/// What a trace consists of.
const SUCH_AS: &str = "expected lines such as 0,on and 3600,off";

/// Why a trace cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TraceError {
    #[error("{file}, line {line}: {error}")]
    Line { file: String, line: usize, error: LineError },
    #[error("{file} has nothing but a heading in line {line}: {SUCH_AS}")]
    OnlyHeading { file: String, line: usize },
    #[error("{file} is empty: {SUCH_AS}")]
    Empty { file: String },
}

/// What is wrong with a line of a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LineError {
    #[error("nothing may follow the end")]
    AfterEnd,
    #[error("expected a later time than in the line before")]
    NotLater,
    #[error("{0:?} is not of the form SECONDS,on or SECONDS,off")]
    Form(String),
    #[error("{0:?}: expected a time from 0 to 1,000,000,000 seconds")]
    Time(String),
}

/// Reads a trace; the error names the line, what is wrong with it, and what was expected.
pub(crate) fn parse_trace(file: &str, text: &str) -> Result<Trace, TraceError> {
    let mut trace = Trace { file: file.into(), changes: Vec::new(), end: None };
    let mut first = true;
    let mut heading = None;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start_matches('\u{feff}').trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if std::mem::take(&mut first) && is_heading(line) {
            heading = Some(index + 1);
            continue;
        }
        let wrong = |error| TraceError::Line { file: file.to_owned(), line: index + 1, error };
        if trace.end.is_some() {
            return Err(wrong(LineError::AfterEnd));
        }
        let (at, meaning) = parse_line(line).map_err(wrong)?;
        if at < Duration::ZERO || trace.changes.last().is_some_and(|last| at <= last.at) {
            return Err(wrong(LineError::NotLater));
        }
        match meaning {
            Line::Change(on) => trace.changes.push(TraceChange { at, on }),
            Line::End => trace.end = Some(at),
        }
    }
    if trace.changes.is_empty() {
        let file = file.to_owned();
        return Err(match heading {
            Some(line) => TraceError::OnlyHeading { file, line },
            None => TraceError::Empty { file },
        });
    }
    Ok(trace)
}

/// Writes a trace as it is read.
pub(crate) fn write_trace(trace: &Trace) -> String {
    let seconds = |at: Duration| at.as_micros() as f64 / 1e6;
    let mut text = String::from("seconds,state\n");
    for change in &trace.changes {
        text += &format!("{},{}\n", seconds(change.at), if change.on { "on" } else { "off" });
    }
    if let Some(end) = trace.end {
        text += &format!("{},end\n", seconds(end));
    }
    text
}

/// Whether a first line names the columns. A mistyped time beside a state does not, and is not passed over.
fn is_heading(line: &str) -> bool {
    line.split_once(SEPARATORS).is_some_and(|(seconds, state)| {
        !seconds.starts_with(|c: char| c.is_ascii_digit() || c == '-') && parse_state(state).is_none()
    })
}

fn parse_state(state: &str) -> Option<Line> {
    match state.trim().to_ascii_lowercase().as_str() {
        "on" | "1" => Some(Line::Change(true)),
        "off" | "0" => Some(Line::Change(false)),
        "end" => Some(Line::End),
        _ => None,
    }
}

fn parse_line(line: &str) -> Result<(Duration, Line), LineError> {
    let shown: String = line.chars().take(60).collect();
    let expected = || LineError::Form(shown.clone());
    let (seconds, state) = line.split_once(SEPARATORS).ok_or_else(expected)?;
    let seconds: f64 = seconds.trim().parse().map_err(|_| expected())?;
    // 31 years: beyond, floating-point seconds no longer hold microseconds.
    if !(0.0..=1e9).contains(&seconds) {
        return Err(LineError::Time(shown));
    }
    Ok((Duration::from_secs_f64(seconds), parse_state(state).ok_or_else(expected)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_reads_with_and_without_header_comments_and_end() {
        let trace =
            parse_trace("t", "seconds,state\n# night\n0,on\n\n28800 , off\n61200.5,1\n86400,end\n").unwrap();
        assert_eq!(trace.changes.len(), 3);
        assert_eq!(trace.changes[2], TraceChange { at: Duration::from_millis(61_200_500), on: true });
        assert_eq!(trace.end, Some(Duration::from_secs(86_400)));
        assert_eq!(parse_trace("t", &write_trace(&trace)), Ok(trace));
        assert_eq!(parse_trace("t", "0,off").unwrap().end, None);
    }

    #[test]
    fn a_bad_trace_says_in_which_line_what_is_wrong() {
        let check = |text: &str, expected: &str| {
            assert_eq!(parse_trace("t.csv", text).unwrap_err().to_string(), expected);
        };
        check("", "t.csv is empty: expected lines such as 0,on and 3600,off");
        check(
            "seconds,state\n",
            "t.csv has nothing but a heading in line 1: expected lines such as 0,on and 3600,off",
        );
        check("garbage", "t.csv, line 1: \"garbage\" is not of the form SECONDS,on or SECONDS,off");
        check("# x\no5,on\n9,off", "t.csv, line 2: \"o5,on\" is not of the form SECONDS,on or SECONDS,off");
        check("0,on\n5,maybe", "t.csv, line 2: \"5,maybe\" is not of the form SECONDS,on or SECONDS,off");
        check("0,on\n5,off\n5,on", "t.csv, line 3: expected a later time than in the line before");
        check("0,on\n5,end\n6,off", "t.csv, line 3: nothing may follow the end");
        check(
            "0,on\n1e99,off",
            "t.csv, line 2: \"1e99,off\": expected a time from 0 to 1,000,000,000 seconds",
        );
    }
}
