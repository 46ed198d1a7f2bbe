//! The frame of a program that does one range of work: input, checkpoints, output and exit codes.
//!
//! The input is the file `in` (`from=A to=B`); without a client, `--from A --to B` stands in for it. The
//! output is the file `out`; a `checkpoint` is kept in the slot, and one that cannot be used costs time and
//! nothing else. Exit codes: 0 done, 64 bad command line, 65 bad input, 73 no start, 74 file error.

use std::fmt::Display;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;
use std::str::FromStr;

use fallow_domain::Duration;

use crate::checkpoint::Unusable;
use crate::{Application, resolve, write_output};

/// Work that is done step by step. It knows no files and no client.
pub trait Work: Sized {
    /// The program's name, before each line that it says.
    const NAME: &'static str;
    /// How it is called, for people.
    const USAGE: &'static str;
    /// What it is about, as the input says it.
    type Range: FromStr<Err: Display> + Copy;

    /// The work at its beginning.
    fn new(range: Self::Range) -> Self;

    /// The work where a checkpoint was made.
    ///
    /// # Errors
    /// [`Unusable`] when the checkpoint is damaged, of another format or of another range.
    fn resume(range: Self::Range, checkpoint: &str) -> Result<Self, Unusable>;

    /// Does a step, of a tenth of a second at most. Nothing happens at the end.
    fn advance(&mut self);

    /// How much of the cost is behind, from 0 to 1.
    fn fraction_done(&self) -> f64;

    /// The text to resume from.
    fn checkpoint(&self) -> String;

    /// The text of the output; none before the end.
    fn output(&self) -> Option<String>;

    /// A range, for people.
    fn describe(range: Self::Range) -> String;

    /// Where the work stands, for people.
    fn place(&self) -> String;
}

/// Why an input names no range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// A number is missing.
    #[error("the input has no {0:?}; expected \"from=A to=B\" with two whole numbers")]
    Missing(&'static str),
    /// A word that means nothing.
    #[error("the input says {0:?}; expected \"from=A to=B\" with two whole numbers")]
    Unknown(String),
}

/// Reads an input, `from=A to=B`, in any order, with white space between and around.
///
/// # Errors
/// [`InputError`].
pub fn from_to(text: &str) -> Result<(u64, u64), InputError> {
    let (mut from, mut to) = (None, None);
    for word in text.split_whitespace() {
        // A word of an input that is something else altogether may be long.
        let unknown = || InputError::Unknown(word.chars().take(40).collect());
        let (name, number) = word.split_once('=').ok_or_else(unknown)?;
        let number: u64 = number.parse().map_err(|_| unknown())?;
        match name {
            "from" => from = Some(number),
            "to" => to = Some(number),
            _ => return Err(unknown()),
        }
    }
    Ok((from.ok_or(InputError::Missing("from"))?, to.ok_or(InputError::Missing("to"))?))
}

const BAD_COMMAND_LINE: u8 = 64;
const BAD_INPUT: u8 = 65;
const NO_START: u8 = 73;
const FILE_ERROR: u8 = 74;

const CHECKPOINT: &str = "checkpoint";

/// Why a job cannot be done, and what to exit with.
struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    fn new(code: u8, message: impl Display) -> Self {
        Self { code, message: message.to_string() }
    }
}

/// A whole program: does the work that its command line or its input names.
pub fn run<W: Work>() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        println!("{}", W::USAGE);
        return ExitCode::SUCCESS;
    }
    let app = match Application::start() {
        Ok(app) => app,
        Err(error) => {
            say::<W>(error);
            return ExitCode::from(NO_START);
        }
    };
    match work::<W>(&app, &arguments) {
        Ok(()) => app.finish(0),
        Err(failure) => {
            say::<W>(&failure.message);
            app.finish_with_message(i32::from(failure.code), failure.message)
        }
    }
}

fn say<W: Work>(what: impl Display) {
    eprintln!("{}: {what}", W::NAME);
}

fn work<W: Work>(app: &Application, arguments: &[String]) -> Result<(), Failure> {
    let range = match from_arguments::<W>(arguments)? {
        Some(range) => range,
        None => from_file::<W>()?,
    };
    let mut work: W = start(range);
    let output = loop {
        if let Some(output) = work.output() {
            break output;
        }
        work.advance();
        app.fraction_done(work.fraction_done());
        if app.time_to_checkpoint()
            && let Err(error) = app.save_checkpoint(Path::new(CHECKPOINT), &work.checkpoint())
        {
            // Work goes on; the next period tries again.
            say::<W>(format_args!("cannot write {CHECKPOINT}: {error}"));
        }
    };
    match write_output("out", output.as_bytes()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::StorageFull => {
            app.temporary_exit(Duration::from_mins(5), "no space on the disk for the output")
        }
        Err(error) => Err(Failure::new(FILE_ERROR, format_args!("cannot write the output: {error}"))),
    }
}

/// The range that the command line names, if it names one.
fn from_arguments<W: Work>(arguments: &[String]) -> Result<Option<W::Range>, Failure> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let text = match words[..] {
        [] => return Ok(None),
        ["--from", from, "--to", to] | ["--to", to, "--from", from] => format!("from={from} to={to}"),
        _ => return Err(Failure::new(BAD_COMMAND_LINE, W::USAGE)),
    };
    text.parse().map(Some).map_err(|error| Failure::new(BAD_COMMAND_LINE, error))
}

fn from_file<W: Work>() -> Result<W::Range, Failure> {
    let text = resolve("in")
        .and_then(std::fs::read_to_string)
        .map_err(|error| Failure::new(BAD_INPUT, format_args!("cannot read the input \"in\": {error}")))?;
    text.parse().map_err(|error| Failure::new(BAD_INPUT, format_args!("bad input \"in\": {error}")))
}

/// The work, from the checkpoint if there is one that can be used.
fn start<W: Work>(range: W::Range) -> W {
    let checkpoint = match std::fs::read_to_string(CHECKPOINT) {
        Ok(checkpoint) => checkpoint,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            say::<W>(W::describe(range));
            return W::new(range);
        }
        Err(error) => {
            say::<W>(format_args!("cannot read {CHECKPOINT}: {error}; starting over"));
            return W::new(range);
        }
    };
    match W::resume(range, &checkpoint) {
        Ok(work) => {
            say::<W>(format_args!("resumed from checkpoint at {}", work.place()));
            work
        }
        Err(error) => {
            say::<W>(format_args!("{error}; starting over"));
            W::new(range)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_read_in_any_order_and_one_that_means_nothing_is_named() {
        assert_eq!(from_to("\n to=4423\tfrom=2 \r\n"), Ok((2, 4_423)));
        for (text, said) in [
            ("", "has no \"from\""),
            ("from=2", "has no \"to\""),
            ("from=2 to", "says \"to\""),
            ("from=2 to=x", "says \"to=x\""),
            ("from=-1 to=5", "says \"from=-1\""),
            ("from=2 to=5 by=2", "says \"by=2\""),
            ("from=2 to=99999999999999999999", "says \"to=9"),
        ] {
            assert!(from_to(text).unwrap_err().to_string().contains(said), "{text}");
        }
        let long = from_to(&"x".repeat(1_000)).unwrap_err().to_string();
        assert!(long.len() < 200, "{long}");
    }
}
