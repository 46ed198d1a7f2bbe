//! The command line: what can be asked for, and its help.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::dir::{DataDir, default_dir};

/// The agent of a fleet that computes: serves BOINC projects on this host, in what nobody else needs of it.
#[derive(Debug, Parser)]
#[command(
    name = "fallow-agent",
    version,
    max_term_width = 100,
    after_help = "Exit codes: 0 done, 1 internal fault, 2 usage, 3 bad input, 4 not reachable, 5 refused, 6 in use, \
                  7 store corrupted or newer, 8 no space or not writable."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What can be asked for.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the agent, in the foreground, until it is told to stop
    #[command(after_help = "Examples:\n  \
        fallow-agent run --dir /var/lib/fallow-agent --coordinator http://127.0.0.1:4000 --token-file token\n  \
        fallow-agent run                      # later: everything is kept in the directory\n\n\
        SIGTERM, SIGINT or `fallow-agent stop` end it cleanly: tasks leave at their last checkpoint. A second signal \
        kills them.\n\nEnvironment: FALLOW_LOG (such as debug), FALLOW_LOG_FORMAT (compact, json), \
        OTEL_EXPORTER_OTLP_ENDPOINT (exports metrics, traces and logs).")]
    Run(Run),
    /// Show what the agent does
    #[command(after_help = "Examples:\n  fallow-agent status\n  fallow-agent status --json | jq .tasks\n\n\
        Exit code 4 when no agent runs in the directory.")]
    Status(Status),
    /// Compute for a project
    #[command(after_help = "Examples:\n  \
        fallow-agent attach http://127.0.0.1:4001/mersenne/ --account-key-file key\n  \
        FALLOW_ACCOUNT_KEY=0123456789abcdef0123456789abcdef fallow-agent attach http://127.0.0.1:4001/mersenne/\n  \
        fallow-agent attach https://project.example.org/ --email me@example.org --password-file password")]
    Attach(Attach),
    /// Stop computing for a project: aborts its jobs and deletes its files
    #[command(after_help = "Example:\n  fallow-agent detach http://127.0.0.1:4001/mersenne/")]
    Detach(ProjectArg),
    /// Stop all computing until `resume`, whatever the coordinator says
    #[command(after_help = "Example:\n  fallow-agent suspend\n\nHolds over restarts of the agent.")]
    Suspend(DirArg),
    /// Compute again after `suspend`
    #[command(after_help = "Example:\n  fallow-agent resume")]
    Resume(DirArg),
    /// Contact a project as soon as it allows
    #[command(after_help = "Example:\n  fallow-agent update http://127.0.0.1:4001/mersenne/")]
    Update(ProjectArg),
    /// End the agent cleanly, and wait until it has
    #[command(after_help = "Example:\n  fallow-agent stop --dir /var/lib/fallow-agent")]
    Stop(DirArg),
    /// Write a completion script for a shell to standard output
    #[command(after_help = "Example:\n  fallow-agent completions bash > /etc/bash_completion.d/fallow-agent")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual page to standard output
    #[command(hide = true)]
    Man,
    /// Watch over the tasks of an agent (started by the agent itself)
    #[command(hide = true)]
    Guard {
        /// The beginning of the mark of processes to be watched
        #[arg(long)]
        mark: String,
        /// How long they have to leave by themselves, in milliseconds
        #[arg(long)]
        grace_ms: u64,
    },
}

/// Where the agent's data is.
#[derive(Debug, Args)]
pub struct DirArg {
    /// The agent's data directory [default: /var/lib/fallow-agent for root, else
    /// $XDG_STATE_HOME/fallow-agent or ~/.local/state/fallow-agent]
    #[arg(long, value_name = "DIR", env = "FALLOW_AGENT_DIR")]
    dir: Option<PathBuf>,
}

impl DirArg {
    /// The directory meant.
    pub fn dir(&self) -> DataDir {
        DataDir::at(&self.dir.clone().unwrap_or_else(default_dir))
    }
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Where the data is.
    #[command(flatten)]
    pub dir: DirArg,
    /// The coordinator of the fleet to join; kept, so needed once. Only addresses of this machine are taken, such as
    /// http://127.0.0.1:4000
    #[arg(long, value_name = "URL", env = "FALLOW_COORDINATOR")]
    pub coordinator: Option<String>,
    /// File with the enrolment token, which works once; not needed after that
    #[arg(long, value_name = "FILE", requires = "coordinator")]
    pub token_file: Option<PathBuf>,
    /// The enrolment token itself (seen by everybody on this host: rather use --token-file or the environment)
    #[arg(
        long,
        value_name = "TOKEN",
        env = "FALLOW_TOKEN",
        hide_env_values = true,
        conflicts_with = "token_file"
    )]
    pub token: Option<String>,
    /// How long tasks have to leave after a kill of the agent, in milliseconds
    #[arg(long, hide = true, default_value_t = 11_000)]
    pub guard_grace_ms: u64,
    /// How long tasks have to leave at a clean end, in milliseconds
    #[arg(long, hide = true, default_value_t = 15_000)]
    pub stop_grace_ms: u64,
}

/// Arguments of `status`.
#[derive(Debug, Args)]
pub struct Status {
    /// Where the data is.
    #[command(flatten)]
    pub dir: DirArg,
    /// As JSON: {"running": true, ...}, or {"running": false}
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `attach`.
#[derive(Debug, Args)]
pub struct Attach {
    /// Where the data is, and the project.
    #[command(flatten)]
    pub project: ProjectArg,
    /// File with the account key; without it and without --email, the key is taken from FALLOW_ACCOUNT_KEY
    #[arg(long, value_name = "FILE", alias = "key-file", conflicts_with = "email")]
    pub account_key_file: Option<PathBuf>,
    /// E-mail address of the account, whose key is then asked of the project
    #[arg(long, requires = "password_file")]
    pub email: Option<String>,
    /// File with the account's password
    #[arg(long, value_name = "FILE", requires = "email")]
    pub password_file: Option<PathBuf>,
    /// Record it without asking the project: for a host that is off the network. A wrong key then shows in `status` only
    #[arg(long)]
    pub no_wait: bool,
    /// The project's weight against other projects, from 0 [default: 100, or what it had]
    #[arg(long, allow_negative_numbers = true)]
    pub share: Option<f64>,
}

/// A project on an agent.
#[derive(Debug, Args)]
pub struct ProjectArg {
    /// Where the data is.
    #[command(flatten)]
    pub dir: DirArg,
    /// The project's URL
    pub url: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_that_shows_has_help_with_an_example() {
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{}", command.get_name());
        }
    }
}
