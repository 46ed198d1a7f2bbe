//! `fallow-agent`: the agent and the commands that control it.

use std::io::Write;
use std::path::Path;

use fallow_agent::{cli::Cli, commands, control::hints};
use fallow_daemon::causes;

fn main() -> std::process::ExitCode {
    let cli = Cli::read();
    let named = cli.named().map(Path::to_path_buf);
    match commands::execute(cli) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            let mut texts = causes::texts(&error).into_iter();
            let first = texts.next().unwrap_or_default();
            let mut text = format!("fallow-agent: {first}\n");
            text.extend(texts.map(|cause| format!("  because: {cause}\n")));
            if let Some(dir) = named {
                text = hints::about(&dir, &text);
            }
            // Nobody listens: the exit code still tells.
            let _ = std::io::stderr().write_all(text.as_bytes());
            error.exit_code().into()
        }
    }
}
