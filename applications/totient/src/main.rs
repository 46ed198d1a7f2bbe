//! `totient`: sums of Euler's phi over a range of whole numbers, as a BOINC application.
//!
//! Reads `in` (`from=A to=B`), writes `out`, keeps `checkpoint` in its slot. Without a client, `--from A --to B`
//! stands in for the input. Exit codes: 0 done, 64 bad command line, 65 bad input, 73 no start, 74 file error.
#![forbid(unsafe_code)]

use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

use fallow_application::{Application, Duration, resolve, write_output};
use fallow_totient::{Range, Summation};

const USAGE: &str = "usage: totient [--from A --to B]\n\
    Sums phi over the numbers from A to B, or those that the file \"in\" names with \"from=A to=B\",\n\
    and writes the file \"out\". Runs under a BOINC client, or alone.";

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

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let app = match Application::start() {
        Ok(app) => app,
        Err(error) => {
            eprintln!("totient: {error}");
            return ExitCode::from(NO_START);
        }
    };
    match run(&app, &arguments) {
        Ok(()) => app.finish(0),
        Err(failure) => {
            eprintln!("totient: {}", failure.message);
            app.finish_with_message(i32::from(failure.code), failure.message)
        }
    }
}

fn run(app: &Application, arguments: &[String]) -> Result<(), Failure> {
    let range = match from_arguments(arguments)? {
        Some(range) => range,
        None => from_file()?,
    };
    let mut summation = start(range);
    let report = loop {
        if let Some(report) = summation.report() {
            break report;
        }
        summation.advance();
        app.fraction_done(summation.fraction_done());
        if app.time_to_checkpoint()
            && let Err(error) = app.save_checkpoint(Path::new(CHECKPOINT), &summation.checkpoint())
        {
            // Work goes on; the next period tries again.
            eprintln!("totient: cannot write {CHECKPOINT}: {error}");
        }
    };
    match write_output("out", report.write().as_bytes()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::StorageFull => {
            app.temporary_exit(Duration::from_mins(5), "no space on the disk for the output")
        }
        Err(error) => Err(Failure { code: FILE_ERROR, message: format!("cannot write the output: {error}") }),
    }
}

/// The range that the command line names, if it names one.
fn from_arguments(arguments: &[String]) -> Result<Option<Range>, Failure> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let text = match words[..] {
        [] => return Ok(None),
        ["--from", from, "--to", to] | ["--to", to, "--from", from] => format!("from={from} to={to}"),
        _ => return Err(Failure { code: BAD_COMMAND_LINE, message: USAGE.to_owned() }),
    };
    let range = text.parse().map_err(|error| Failure { code: BAD_COMMAND_LINE, message: format!("{error}") });
    range.map(Some)
}

fn from_file() -> Result<Range, Failure> {
    let text = resolve("in").and_then(std::fs::read_to_string).map_err(|error| Failure {
        code: BAD_INPUT,
        message: format!("cannot read the input \"in\": {error}"),
    })?;
    text.parse().map_err(|error| Failure { code: BAD_INPUT, message: format!("bad input \"in\": {error}") })
}

/// The summation, from the checkpoint if there is one that can be used.
fn start(range: Range) -> Summation {
    let checkpoint = match std::fs::read_to_string(CHECKPOINT) {
        Ok(checkpoint) => checkpoint,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("totient: numbers {} to {}", range.from(), range.to());
            return Summation::new(range);
        }
        Err(error) => {
            eprintln!("totient: cannot read {CHECKPOINT}: {error}; starting over");
            return Summation::new(range);
        }
    };
    match Summation::resume(range, &checkpoint) {
        Ok(summation) => {
            eprintln!("totient: resumed from checkpoint at n={}", summation.next());
            summation
        }
        Err(error) => {
            eprintln!("totient: {error}; starting over");
            Summation::new(range)
        }
    }
}
