//! `fallow-agent`: the agent and the commands that control it.

use std::io::Write;

use fallow_agent::{cli::Cli, commands};

fn main() -> std::process::ExitCode {
    match commands::execute(Cli::read()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            let mut text = format!("fallow-agent: {error}\n");
            let mut next = std::error::Error::source(&error);
            while let Some(cause) = next {
                text += &format!("  because: {cause}\n");
                next = cause.source();
            }
            // Nobody listens: the exit code still tells.
            let _ = std::io::stderr().write_all(text.as_bytes());
            error.exit_code().into()
        }
    }
}
