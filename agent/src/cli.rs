//! The command line: what can be asked for, excluded devices among it, and its help (R6.11, R3.14).

use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::Shell;
use fallow_client::SNOOZE_MAX;
use fallow_domain::{Duration, ExitCode, OrganisationKey};
use fallow_policy::accounting::AccountingChoice;
use fallow_policy::completion::CompletionChoice;
use fallow_policy::composition::{Composition, UnknownPolicy};
use fallow_policy::cpu_schedule::CpuChoice;
use fallow_policy::fetch::FetchChoice;

use crate::confine::LAYERS;
use crate::dir::{DataDir, default_dir};
use crate::host::gpu::SYSFS;
use crate::supervise::groups;

/// Columns of help. Fixed, so that examples, whose lines are shorter, stay as they are and can be pasted.
const WIDTH: usize = 80;

const ABOUT: &str = r"Examples:
  fallow-agent run --token-file token
  fallow-agent status
  fallow-agent suspend

Exit status:
  0  done                        5  refused (token, account key, not yours)
  1  internal fault              6  directory in use by another process
  2  bad command line            7  files damaged, missing, or too new
  3  bad input or value          8  no space, or not writable
  4  agent, coordinator or project does not answer
A signal ends `run` cleanly, with 0. Other commands end by it, which shells show
as 128 and its number: 130 for Ctrl-C.

fallow-agent COMMAND --help shows examples of a command; fallow-agent man shows
all of them.";

const RUN: &str = r"Examples:
  fallow-agent run --token-file token  # what `fallow tokens create` printed
  fallow-agent run --dir lab/agent-1   # later: who it is is in the directory
  FALLOW_LOG=debug fallow-agent run 2>>agent.log &

SIGTERM, SIGINT or `fallow-agent stop` end it cleanly: tasks are asked to leave
and go on from their last checkpoint after the next start; what they computed
since is computed again. A second signal kills them.

Environment:
  FALLOW_LOG                   what is logged, such as debug
  FALLOW_LOG_FORMAT            compact or json
  FALLOW_POLICY                as --policy
  FALLOW_NVML_LIBRARY          as --nvml-library
  FALLOW_OPENCL_LIBRARY        as --opencl-library
  HTTPS_PROXY                  proxy to coordinator and https projects, such as
                               http://HOST:PORT or http://USER:PW@HOST:PORT
  http_proxy                   proxy to http projects
  ALL_PROXY                    proxy to all of them, where these are not set
  NO_PROXY                     hosts, domains and networks that are reached
                               without a proxy, parted by commas; * for all
  OTEL_EXPORTER_OTLP_ENDPOINT  where metrics, logs and traces are exported to";

/// The policies that there are for an agent to follow, and the switches beside them.
fn policies() -> String {
    let mut help = "Policies (--policy) are joined by _, and switches follow with commas, as in\n\
                    CS2_WF2,fetch=below-minimum:\n"
        .to_owned();
    help.push_str(&Composition::help_of_words());
    help.push_str(&CpuChoice::help("", 6, "which jobs run: "));
    help.push_str(&FetchChoice::help("", 6, "what to fetch: "));
    help.push_str(&CompletionChoice::help("", 6, "how long jobs take: "));
    help.push_str("  fetch=any-shortfall     work is asked for as soon as the buffer is not full\n");
    help.push_str("  fetch=below-minimum     once less than the minimum buffer is left\n");
    help.push_str("  abort=none              no job is given up for its deadline\n");
    help.push_str("  abort=hopeless          jobs that cannot be in time any more are given up\n");
    help.push_str(AccountingChoice::help("accounting=", 22, "").trim_end());
    help
}

const STATUS: &str = r"Examples:
  fallow-agent status
  fallow-agent status --line
  fallow-agent status --json | jq .tasks
  fallow-agent status --linked >/dev/null || echo 'not in touch'

DEBT is the CPU time that a project is owed by its share (+) or has had beyond
it (-). OK/ERR/LATE are jobs that succeeded in time, failed, and came too late.
CHECKPOINT is the CPU time that is saved: a job that ends early goes on there.

Exit status 4 when no agent runs in the directory. With --linked also when it
has no link to its coordinator, and 5 when the coordinator does not want it, or
it refused the last documents that the coordinator gave it.";

const DISK: &str = r"Examples:
  fallow-agent disk
  fallow-agent disk --why
  fallow-agent disk --json | jq .limit

SLOTS are the directories of running jobs and files that nobody owns. ITS PART
is what a project may use while all use theirs; one that uses more gives way
first. CAN GO are files that no job needs.";

const ATTACH: &str = r"Examples:
  fallow-agent attach http://127.0.0.1:4001/primes/ --account-key-file key
  fallow-agent attach http://127.0.0.1:4001/primes/ --share 50
  fallow-agent attach https://project.example.org/ \
      --email me@example.org --password-file password

The project is asked. Nothing is kept when it does not answer (exit status 4),
is no project (3), or does not accept the account (5). A project that the
fleet's coordinator manages has the account and the share that the coordinator
gives it. One that you detached is taken up again by its URL alone.";

const DETACH: &str = r"Examples:
  fallow-agent detach http://127.0.0.1:4001/primes/
  fallow-agent detach primes

A project that the fleet's coordinator manages stays detached until you attach
it.";

const SUSPEND: &str = r"Examples:
  fallow-agent suspend

Holds over restarts of the agent.";

const SNOOZE: &str = r"Examples:
  fallow-agent snooze 2h
  fallow-agent snooze off

It ends by itself, after a day at the latest, and holds over restarts of the
agent. It is for whoever may ask the agent for its status: people who have no
agent of their own ask that of the machine, if it has a socket for them.";

const RESUME: &str = r"Examples:
  fallow-agent resume";

const EXCLUDE: &str = r"Examples:
  fallow-agent exclude nvidia:0
  fallow-agent exclude nvidia:0 nvidia:1
  fallow-agent exclude none

What is named replaces what was named before. It holds over restarts of the
agent, and beside what the fleet's preferences exclude. A task on such a device
leaves it, and goes on elsewhere or later.";

const PREFERENCES: &str = r"Examples:
  fallow-agent preferences
  fallow-agent preferences --why
  fallow-agent preferences --json | jq '.preferences[] | select(.line)'
  fallow-agent preferences edit
  fallow-agent preferences check new.toml && sudo install -m 644 new.toml \
      /var/lib/fallow-agent/preferences.toml && \
      sudo fallow-agent preferences reload
  fallow-agent preferences template >new.toml

The owner's file, preferences.toml in the agent's directory, only tightens what
the coordinator or a project's web site says. `edit` opens VISUAL or EDITOR on a
copy, checks it, and has the running agent take it.

Exit status 3 when a file is wrong, 4 when no agent runs in the directory.";

const UPDATE: &str = r"Examples:
  fallow-agent update http://127.0.0.1:4001/primes/
  fallow-agent update primes

It goes out at once: a delay that the project asked for, and waits after
failures, do not hold. What is overridden is said.";

const STOP: &str = r"Examples:
  fallow-agent stop --dir lab/agent-1";

const COMPLETIONS: &str = r"Examples:
  fallow-agent completions bash >/etc/bash_completion.d/fallow-agent";

const MAN: &str = r"Examples:
  fallow-agent man | man -l -
  fallow-agent man >/usr/local/share/man/man1/fallow-agent.1";

/// The agent of a fleet that computes: serves BOINC projects on this host, in what nobody else needs of it.
#[derive(Debug, Parser)]
#[command(name = "fallow-agent", version, term_width = WIDTH, after_help = ABOUT)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What can be asked for.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the agent, in the foreground, until it is told to stop
    #[command(after_help = format!("{RUN}\n\n{}", policies()))]
    Run(Box<Run>),
    /// Show what the agent does
    #[command(after_help = STATUS)]
    Status(Status),
    /// Show who uses what of the disk, and what may be used
    #[command(after_help = DISK)]
    Disk(Disk),
    /// Compute for a project
    #[command(after_help = ATTACH)]
    Attach(Attach),
    /// Stop computing for a project: aborts its jobs and deletes its files
    #[command(after_help = DETACH)]
    Detach(AttachedArg),
    /// Stop all computing until `resume`, whatever the coordinator says
    #[command(after_help = SUSPEND)]
    Suspend(DirArg),
    /// Stop all computing for a while
    #[command(after_help = SNOOZE)]
    Snooze(Snooze),
    /// Compute again after `suspend`
    #[command(after_help = RESUME)]
    Resume(DirArg),
    /// Leave devices such as GPUs alone, whatever the coordinator says
    #[command(after_help = EXCLUDE)]
    Exclude(Exclude),
    /// Show which preferences are in force and where each comes from; edit the owner's own
    #[command(after_help = PREFERENCES)]
    Preferences(Preferences),
    /// Contact a project now, whatever it has put that off for
    #[command(after_help = UPDATE)]
    Update(AttachedArg),
    /// End the agent cleanly, and wait until it has
    #[command(after_help = STOP)]
    Stop(DirArg),
    /// Write a completion script for a shell to standard output
    #[command(after_help = COMPLETIONS)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual page to standard output
    #[command(after_help = MAN)]
    Man,
    /// Measure the CPUs and write the figures as JSON (started by the agent itself)
    #[command(hide = true)]
    Benchmark {
        /// How long each of the two programs runs, in milliseconds
        #[arg(long, default_value_t = 10_000)]
        phase_ms: u64,
        /// End when standard input does
        #[arg(long)]
        while_stdin_is_open: bool,
    },
    /// Look at GPUs and write what is found as JSON (started by the agent itself)
    #[command(hide = true)]
    Gpus {
        /// Where NVIDIA's management library is
        #[arg(long)]
        nvml_library: Option<PathBuf>,
        /// Where OpenCL's library is
        #[arg(long)]
        opencl_library: Option<PathBuf>,
        /// Where sysfs is (for tests)
        #[arg(long, default_value = SYSFS)]
        sysfs: PathBuf,
        /// Look so often, in milliseconds, and write what has changed; else once
        #[arg(long)]
        every_ms: Option<u64>,
        /// How long a look may take, in milliseconds
        #[arg(long, default_value_t = 5_000)]
        limit_ms: u64,
        /// End when standard input does
        #[arg(long)]
        while_stdin_is_open: bool,
    },
    /// Ask OpenCL for GPUs and write what it says as JSON (started by the agent itself)
    #[command(hide = true)]
    Opencl {
        /// Where OpenCL's library is
        #[arg(long)]
        opencl_library: Option<PathBuf>,
    },
    /// Watch over the tasks of an agent (started by the agent itself)
    #[command(hide = true)]
    Guard {
        /// The beginning of the mark of processes to be watched
        #[arg(long)]
        mark: String,
        /// How long they have to leave by themselves, in milliseconds
        #[arg(long)]
        grace_ms: u64,
        /// The control group that they are in
        #[arg(long, value_name = "DIR")]
        groups: Option<PathBuf>,
        /// The first of the users that they run as
        #[arg(long, value_name = "UID")]
        users: Option<u32>,
    },
}

/// Where the agent's data is.
#[derive(Debug, Args)]
pub struct DirArg {
    /// The agent's data directory [default: FALLOW_AGENT_DIR, else /var/lib/fallow-agent for root, else
    /// $XDG_STATE_HOME/fallow-agent or ~/.local/state/fallow-agent]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl DirArg {
    /// The directory meant.
    pub fn dir(&self) -> DataDir {
        // Not by clap's own means: in its usage lines an option that the environment gives looks as if it
        // were needed.
        let given = std::env::var_os("FALLOW_AGENT_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
        DataDir::at(&self.dir.clone().or(given).unwrap_or_else(default_dir))
    }

    /// The directory that the command line names.
    pub fn named(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// No directory is named: the usual one is meant.
    pub fn is_usual(&self) -> bool {
        self.dir.is_none() && std::env::var_os("FALLOW_AGENT_DIR").is_none_or(|dir| dir.is_empty())
    }
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Where the data is.
    #[command(flatten)]
    pub dir: DirArg,
    /// Where the coordinator is, such as lab.example.org:24001, if not where the token says or where it was.
    /// It is kept once it has answered there
    #[arg(long, value_name = "HOST:PORT", env = "FALLOW_COORDINATOR")]
    pub coordinator: Option<String>,
    /// File with the enrolment token, one line, by which the agent joins a fleet; not needed after that
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The enrolment token itself (seen by everybody on this host: rather use --token-file or the
    /// environment)
    #[arg(
        long,
        value_name = "TOKEN",
        env = "FALLOW_TOKEN",
        hide_env_values = true,
        conflicts_with = "token_file"
    )]
    pub token: Option<String>,
    /// Follow only what this key of an organisation has signed, whatever the coordinator says; may be given
    /// more than once. From then on it holds for good. `fallow tokens create` puts it into tokens, too
    #[arg(
        long = "organisation-key",
        value_name = "KEY",
        env = "FALLOW_ORGANISATION_KEY",
        value_delimiter = ','
    )]
    pub organisation: Vec<OrganisationKey>,
    /// NVIDIA's management library, if not where the system finds it. It is loaded as a program is: it has to
    /// be root's or the agent's user's, and nobody else may write to it
    #[arg(long, value_name = "FILE", env = "FALLOW_NVML_LIBRARY")]
    pub nvml_library: Option<PathBuf>,
    /// OpenCL's library, if not where the system finds it; what holds of NVIDIA's holds of it
    #[arg(long, value_name = "FILE", env = "FALLOW_OPENCL_LIBRARY")]
    pub opencl_library: Option<PathBuf>,
    /// The policies to follow (below), joined by _; what is left out is as in CS2_WF2_JC2
    #[arg(long, value_name = "NAME", env = "FALLOW_POLICY", default_value_t = Composition::default())]
    pub policy: Composition,
    /// Let jobs use the network whose application asks for it, of all projects or of those that the
    /// preference `jobs_network` names: without this option they reach nothing but their own files
    #[arg(long)]
    pub allow_network: bool,
    /// Do not run where jobs cannot be kept in their slots by all means that there are: `fallow-agent status`
    /// names them
    #[arg(long)]
    pub require_confinement: bool,
    /// Run as root even where the system has no layer of confinement: jobs can do there what root can
    #[arg(long, conflicts_with = "require_confinement")]
    pub root_without_confinement: bool,
    /// Confine no job (for tests)
    #[arg(long, hide = true, conflicts_with = "require_confinement")]
    pub unconfined: bool,
    /// Socket at which people of this machine may see what the agent does and pause it, whoever may open it:
    /// an administrator makes its directory with mode 2750, for the agent's user and their group. `status`
    /// and `snooze` of somebody who has no agent of his own find it in /run/fallow-agent/people.sock
    #[arg(long, value_name = "FILE", env = "FALLOW_PEOPLE_SOCKET")]
    pub people_socket: Option<PathBuf>,
    /// Leave layers of confinement away that this host has (for tests)
    #[arg(
        long,
        hide = true,
        value_name = "LAYERS",
        value_delimiter = ',',
        value_parser = clap::builder::PossibleValuesParser::new(LAYERS.into_iter().chain([groups::LAYER])),
        conflicts_with = "require_confinement"
    )]
    pub without_layers: Vec<String>,
    /// Nobody ever sits at this machine (a server): do not look whether somebody uses it. To be said at each
    /// start (in the environment true or false)
    #[arg(long, env = "FALLOW_NEVER_IN_USE", value_parser = clap::builder::BoolishValueParser::new())]
    pub never_in_use: bool,
    /// Where the kernel says what the machine is fed by (for tests)
    #[arg(long, hide = true, value_name = "DIR", default_value = "/sys/class/power_supply")]
    pub power_dir: PathBuf,
    /// Where it says what each interface of the network is (for tests)
    #[arg(long, hide = true, value_name = "DIR", default_value = "/sys/class/net")]
    pub interfaces_dir: PathBuf,
    /// Where it lists routes (for tests)
    #[arg(long, hide = true, value_name = "DIR", default_value = "/proc/net")]
    pub routes_dir: PathBuf,
    /// Where it says how much memory there is (for tests)
    #[arg(long, hide = true, value_name = "FILE", default_value = "/proc/meminfo")]
    pub meminfo: PathBuf,
    /// How long between two looks at batteries and other programs, in milliseconds (for tests)
    #[arg(long, hide = true, default_value_t = 10_000)]
    pub look_every_ms: u64,
    /// How long the system is not asked again for directories or a control group of a job's own that it could
    /// not give, in milliseconds (for tests)
    #[arg(long, hide = true, default_value_t = 600_000)]
    pub layers_again_ms: u64,
    /// Where devices and terminals are (for tests)
    #[arg(long, hide = true, value_name = "DIR", default_value = "/dev")]
    pub devices_dir: PathBuf,
    /// Where sysfs is, for GPUs (for tests); it has to be root's or the agent's user's as a library has to be
    #[arg(long, hide = true, value_name = "DIR", default_value = SYSFS)]
    pub sysfs: PathBuf,
    /// How long tasks have to leave after a kill of the agent, in milliseconds
    #[arg(long, hide = true, default_value_t = 11_000)]
    pub guard_grace_ms: u64,
    /// How long tasks have to leave at a clean end, in milliseconds
    #[arg(long, hide = true, default_value_t = 15_000)]
    pub stop_grace_ms: u64,
    /// How long after the start the CPUs are measured, in milliseconds
    #[arg(long, hide = true, default_value_t = 60_000)]
    pub benchmark_after_ms: u64,
    /// How long each of the two programs runs that measure the CPUs, in milliseconds
    #[arg(long, hide = true, default_value_t = 10_000)]
    pub benchmark_phase_ms: u64,
    /// How long a new version of the fleet's document is on trial before the agent goes back from it, in
    /// milliseconds in which it is up (for tests)
    #[arg(long, hide = true, default_value_t = 600_000)]
    pub confirm_within_ms: u64,
    /// How often the disk is measured, in milliseconds; every ten minutes at the least (for tests)
    #[arg(long, hide = true, default_value_t = 600_000)]
    pub measure_disk_ms: u64,
}

/// Arguments of `disk`.
#[derive(Debug, Args)]
pub struct Disk {
    /// Where the data is.
    #[command(flatten)]
    pub dir: DirArg,
    /// Show what was deleted, given back and suspended, and why; and which files would go next
    #[arg(long)]
    pub why: bool,
    /// As JSON, all of it
    #[arg(long)]
    pub json: bool,
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
    /// One line only: what runs and why, or why nothing does; for a panel or a prompt
    #[arg(long, conflicts_with = "json")]
    pub line: bool,
    /// End with a status that says whether it has a link to its coordinator, and takes what comes from there
    #[arg(long)]
    pub linked: bool,
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
    /// Record it without asking the project: for a host that is off the network. A wrong key then shows in
    /// `status` only
    #[arg(long)]
    pub no_wait: bool,
    /// The project's weight against other projects, from 0 [default: 100, or what it had]
    #[arg(long, allow_negative_numbers = true)]
    pub share: Option<f64>,
}

/// Arguments of `snooze`.
#[derive(Debug, Args)]
pub struct Snooze {
    /// Where the data is.
    #[command(flatten)]
    pub dir: DirArg,
    /// How long, such as 30m or 2h; or off
    #[arg(value_name = "TIME", value_parser = pause, allow_hyphen_values = true)]
    pub time: Duration,
}

/// A time of up to a day; none for `off`.
fn pause(text: &str) -> Result<Duration, NoPause> {
    match text {
        "off" => Ok(Duration::ZERO),
        _ => match humantime::parse_duration(text).map(Duration::from) {
            Ok(time) if time.is_positive() && time <= SNOOZE_MAX => Ok(time),
            _ => Err(NoPause),
        },
    }
}

/// What is no time for a pause.
#[derive(Debug, thiserror::Error)]
#[error("expected a time with its unit in small letters, such as 30m or 2h, of up to 24h, or off")]
struct NoPause;

/// Arguments of `preferences`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Preferences {
    /// What to do instead of showing them.
    #[command(subcommand)]
    pub what: Option<PreferencesCommand>,
    /// Where the data is.
    #[command(flatten)]
    pub dir: DirArg,
    /// Show what else was said of each, by whom, and why it is not in force
    #[arg(long)]
    pub why: bool,
    /// As JSON: {"preferences": [...], ...}, with what else was said
    #[arg(long)]
    pub json: bool,
}

/// What can be done with the owner's file.
#[derive(Debug, Subcommand)]
pub enum PreferencesCommand {
    /// Edit the owner's file: it is checked, and the running agent takes it
    Edit(DirArg),
    /// Check a file without using it
    Check {
        /// The file
        file: PathBuf,
    },
    /// Have the running agent read its files of preferences anew
    Reload(DirArg),
    /// Write a file that explains every key to standard output
    Template,
}

/// Arguments of `exclude`.
#[derive(Debug, Args)]
pub struct Exclude {
    /// Where the data is.
    #[command(flatten)]
    pub dir: DirArg,
    /// All devices that must not be used: type (nvidia, amd, intel or apple) and number, parted by blanks or
    /// commas; or none
    #[arg(value_name = "DEVICE", required = true)]
    pub devices: Vec<String>,
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

/// A project that an agent is attached to.
#[derive(Debug, Args)]
pub struct AttachedArg {
    /// Where the data is.
    #[command(flatten)]
    pub dir: DirArg,
    /// The project's URL, or its name as `status` shows it
    #[arg(value_name = "URL or NAME")]
    pub project: String,
}

impl Cli {
    /// The agent's directory, where the command line names it.
    #[must_use]
    pub fn named(&self) -> Option<&Path> {
        let dir = match &self.command {
            Command::Run(asked) => &asked.dir,
            Command::Status(asked) => &asked.dir,
            Command::Disk(asked) => &asked.dir,
            Command::Attach(asked) => &asked.project.dir,
            Command::Detach(asked) | Command::Update(asked) => &asked.dir,
            Command::Suspend(dir) | Command::Resume(dir) | Command::Stop(dir) => dir,
            Command::Snooze(asked) => &asked.dir,
            Command::Exclude(asked) => &asked.dir,
            Command::Preferences(asked) => match &asked.what {
                Some(PreferencesCommand::Edit(dir) | PreferencesCommand::Reload(dir)) => dir,
                Some(PreferencesCommand::Check { .. } | PreferencesCommand::Template) => return None,
                None => &asked.dir,
            },
            _ => return None,
        };
        dir.named()
    }

    /// The command line of this process; ends it where there is nothing to be done.
    #[must_use]
    pub fn read() -> Self {
        let parsed = negative_numbers(Self::command()).try_get_matches();
        parsed.and_then(|matches| Self::from_arg_matches(&matches)).unwrap_or_else(|error| {
            // Nobody listens: the exit code still tells.
            let _ = error.print();
            std::process::exit(status_of(&error));
        })
    }
}

/// Clap's own status, but that of bad input for a value that can be read and means nothing.
fn status_of(error: &clap::Error) -> i32 {
    let source = std::error::Error::source(error);
    match source.is_some_and(|source| source.is::<UnknownPolicy>() || source.is::<NoPause>()) {
        true => ExitCode::BadInput.number().into(),
        false => error.exit_code(),
    }
}

/// A number with a minus is a value everywhere, and the value's own check says what would do: to clap it
/// looks like an option that there is not.
fn negative_numbers(command: clap::Command) -> clap::Command {
    let takes = |arg: clap::Arg| match arg.get_action().takes_values() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    };
    command.mut_args(takes).mut_subcommands(negative_numbers)
}

#[cfg(test)]
mod tests {
    use fallow_policy::accounting::AccountingPolicy;
    use fallow_policy::choice::{Policy, PolicyKind};
    use fallow_policy::completion::CompletionPolicy;
    use fallow_policy::cpu_schedule::CpuPolicy;
    use fallow_policy::fetch::FetchPolicy;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_default_needs_no_configuration_and_a_policy_that_means_nothing_is_refused() {
        let policy = |arguments: &[&str]| {
            let all = ["fallow-agent", "run"].into_iter().chain(arguments.iter().copied());
            Cli::try_parse_from(all).map(|cli| match cli.command {
                Command::Run(run) => run.policy.to_string(),
                _ => String::new(),
            })
        };
        assert_eq!(policy(&[]).unwrap(), "CS2_WF3_WS3_JC3,abort=hopeless");
        assert_eq!(policy(&["--policy", "published"]).unwrap(), "CS2_WF2_WS2_JC2,ws2=published");
        assert_eq!(policy(&["--policy", "CS1_WF1"]).unwrap(), "CS1_WF1_WS2_JC2");
        let error = policy(&["--policy", "CS0"]).unwrap_err();
        assert!(status_of(&error) == 3 && error.to_string().contains("CS1 or CS2"), "{error}");
    }

    #[test]
    fn a_pause_that_means_nothing_is_bad_input_whatever_it_begins_with() {
        let snooze = |time: &str| Cli::try_parse_from(["fallow-agent", "snooze", time]);
        for time in ["2h", "1h30min", "off"] {
            snooze(time).unwrap();
        }
        for time in ["-1h", "25h", "soon"] {
            let error = snooze(time).unwrap_err();
            let text = error.to_string();
            assert!(
                status_of(&error) == 3 && text.contains("of up to 24h") && !text.contains("tip"),
                "{text}"
            );
        }
    }

    #[test]
    fn the_help_of_run_tells_of_every_policy_that_an_agent_can_follow() {
        fn told<K: PolicyKind + ?Sized>(help: &str, switch: &str) {
            for policy in Policy::<K>::all() {
                let line = help.lines().find(|line| line.starts_with(&format!("  {switch}{policy} ")));
                let tells = line.is_some_and(|line| line.ends_with(policy.summary()) && line.len() <= WIDTH);
                assert!(tells, "{policy}: {line:?} in\n{help}");
            }
        }
        let mut cli = Cli::command();
        let help = cli.find_subcommand_mut("run").unwrap().render_long_help().to_string();
        told::<dyn CpuPolicy>(&help, "");
        told::<dyn FetchPolicy>(&help, "");
        told::<dyn CompletionPolicy>(&help, "");
        told::<dyn AccountingPolicy>(&help, "accounting=");
    }

    #[test]
    fn every_command_that_shows_has_help_with_an_example() {
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Examples:\n  fallow-agent "), "{}", command.get_name());
        }
    }

    #[test]
    fn examples_in_help_can_be_pasted() {
        let mut cli = Cli::command();
        cli.build();
        let all = std::iter::once(cli.clone()).chain(cli.get_subcommands().cloned());
        for mut command in all {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let shown = command.render_long_help().to_string();
            let lines: Vec<&str> = shown.lines().collect();
            for line in after.lines() {
                assert!(lines.contains(&line), "{}: {line:?} is broken in\n{shown}", command.get_name());
            }
        }
    }
}
