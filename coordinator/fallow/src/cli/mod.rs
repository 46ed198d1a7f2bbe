//! The commands, each in a file of its own, and what several of them need (R6.11).
//!
//! Listings are tables for people, or one JSON object with `--json`. Errors say what, where and what to do.

pub(crate) mod apply;
pub(crate) mod audit;
pub(crate) mod backup;
mod batch;
mod batch_parts;
mod bounded;
mod changes;
mod code_sign_key;
mod connect;
pub(crate) mod coordinator;
pub(crate) mod create;
pub(crate) mod documents;
mod drift;
pub(crate) mod evaluate;
mod failure;
mod fitted;
mod going_out;
mod group_files;
pub(crate) mod groups;
mod host_label;
mod host_removal;
mod host_show;
pub(crate) mod hosts;
mod job;
pub(crate) mod jobs;
mod key_file;
mod local_preferences;
pub(crate) mod manual;
pub(crate) mod openapi;
pub(crate) mod operators;
pub(crate) mod organisation;
mod organisation_sign;
mod overruled;
pub(crate) mod preferences;
pub(crate) mod projects;
mod reach;
pub(crate) mod results;
pub(crate) mod rollout;
mod runs;
pub(crate) mod screen;
pub(crate) mod shares;
pub(crate) mod simulate;
pub(crate) mod submission;
pub(crate) mod submit;
pub(crate) mod table;
mod threads;
pub(crate) mod tokens;
mod units;
pub(crate) mod upload;
pub(crate) mod why;

pub(crate) use connect::root;
pub use connect::{Client, Target, connect};
pub(crate) use create::PLATFORM;
pub use failure::Failure;
pub(crate) use hosts::{host_json, metrics_json};
pub(crate) use projects::{percent, project_json};
pub(crate) use results::all as results_of;
pub(crate) use table::figure;
pub(crate) use units::{Unacceptable, count};

/// What is said when nobody can be told anything.
pub(crate) const UNPRINTABLE: &str = "cannot write to standard output";

/// Writes a line to standard error. Nobody is told when nobody reads it.
pub(crate) fn warn(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "fallow: {text}");
}

/// Says that a list may go on: it has as many lines as were asked for.
pub(crate) fn tell_limit(listed: usize, limit: u32) {
    if listed == limit as usize {
        warn(&format!("the newest {limit} are listed, there may be more: --limit lists as many as you say"));
    }
}

/// One thread is enough for a tool.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(|error| Failure::internal("the runtime does not start", error))?.block_on(work))
}

/// Writes a text to standard output. A reader that has gone away is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    // What waits in the buffer would be lost at the end without a word.
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::unwritable(UNPRINTABLE, &error))
        }
        _ => Ok(()),
    }
}

/// Writes sentences: on a terminal broken between words, so that none is wider than it.
pub(crate) fn print_told(text: &str) -> Result<(), Failure> {
    use std::io::IsTerminal as _;
    print(&told(text, std::io::stdout().is_terminal()))
}

/// Prints a table; of one without rows, a sentence.
pub(crate) fn print_table(
    is_empty: bool,
    nothing: &str,
    table: impl FnOnce() -> String,
) -> Result<(), Failure> {
    if is_empty { print_told(&format!("{nothing}\n")) } else { print(&table()) }
}

/// Sentences as they are told: to a terminal broken between words.
pub(crate) fn told(text: &str, is_terminal: bool) -> String {
    match is_terminal {
        true => screen::told(text, screen::width()) + if text.ends_with('\n') { "\n" } else { "" },
        false => text.to_owned(),
    }
}

/// Writes a JSON value on lines of its own.
pub(crate) fn print_json(value: &serde_json::Value) -> Result<(), Failure> {
    print(&format!("{value:#}\n"))
}
