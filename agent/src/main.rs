//! `fallow-agent`: the agent and the commands that control it.

use std::io::Write;

use fallow_agent::{cli::Cli, commands};
use fallow_daemon::causes;

fn main() -> std::process::ExitCode {
    match commands::execute(Cli::read()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            let mut texts = causes::texts(&error).into_iter();
            let first = texts.next().unwrap_or_default();
            let mut text = format!("fallow-agent: {first}\n");
            text.extend(texts.map(|cause| format!("  because: {cause}\n")));
            // Nobody listens: the exit code still tells.
            let _ = std::io::stderr().write_all(text.as_bytes());
            error.exit_code().into()
        }
    }
}
