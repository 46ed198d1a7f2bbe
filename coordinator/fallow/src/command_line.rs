//! `fallow`: what operators type.
//!
//! Arguments are parsed here and handed to the command that they name. Errors go to standard error; the exit
//! status is one of [`ExitCode`].

use std::process::ExitCode as ProcessExit;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use fallow_domain::ExitCode;

use crate::cli::{
    Failure, UNPRINTABLE, Unacceptable, apply, audit, backup, block_on, coordinator, create, documents,
    evaluate, groups, hosts, jobs, manual, openapi, operators, organisation, preferences, projects, results,
    rollout, shares, simulate, submit, tokens, warn,
};
use crate::up;

/// Columns of the help. Fixed, because a terminal's own width would break examples, which are there to be
/// pasted; their lines are no longer than this.
const WIDTH: usize = 80;

const AFTER: &str = "\
Examples:
  fallow up --until-done
  fallow coordinator run --dir lab/coordinator
  fallow hosts --dir lab
  fallow shares set mersenne=25 totient=75 --dir lab

Exit status:
  0  done                       5  refused (token, key, not allowed)
  1  internal fault             6  directory or port in use
  2  unreadable command line    7  store corrupted, missing or newer
  3  bad input or value         8  no space, or not writable
  4  coordinator unreachable    9  jobs failed (`fallow up --until-done`)
                               10  taken back (`fallow rollout watch`)
                              130  interrupted (Ctrl-C, or a signal)

The coordinator is looked for in --dir, else FALLOW_DIR, else ./fallow-data; or
at --coordinator. NO_COLOR, FALLOW_LOG, FALLOW_LOG_FORMAT and the OTEL_
variables are honoured.";

const MAN_EXAMPLE: &str = "\
Example:
  fallow man > fallow.1
  man ./fallow.1";

const OPENAPI_EXAMPLE: &str = "\
Example:
  fallow openapi > fallow.openapi.json

A coordinator gives out its own at https://HOST:PORT/v1/openapi.json, to whoever
has an operator's token.";

/// Lab machines that compute when nobody needs them: the coordinator and its operators' tools.
#[derive(Parser, Debug)]
#[command(name = "fallow", version, after_help = AFTER, term_width = WIDTH)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Runs a demonstration on this machine: a coordinator, two projects with work, and agents as separate
    /// processes.
    Up(up::UpArguments),
    /// The coordinator itself.
    #[command(subcommand, after_help = coordinator::EXAMPLE)]
    Coordinator(coordinator::Command),
    /// Lists the agents of the fleet and what they do; shows and labels single ones.
    Hosts(hosts::Arguments),
    /// Lists the projects: shares, CPU time, debt, work.
    Projects(projects::Arguments),
    /// Lists workunits and their jobs.
    Jobs(jobs::Arguments),
    /// Gives out the canonical outputs of validated workunits.
    Results(results::Arguments),
    /// Shows or changes the projects' resource shares.
    Shares(shares::Arguments),
    /// Shows or changes what agents may do.
    Preferences(preferences::Arguments),
    /// Puts groups of hosts in place, from files: what is different for them.
    Apply(apply::Apply),
    /// Says what files of groups would change, for how many hosts.
    Diff(apply::Diff),
    /// Lists or removes groups of hosts.
    Groups(groups::Arguments),
    /// Lists the versions of the fleet's documents: who made each, when and why; shows what they say.
    Documents(documents::Arguments),
    /// Shows how changes of documents reach the hosts, in waves; says how, and stops them.
    Rollout(rollout::Arguments),
    /// Lists who did what, and who was refused; checks that the log is as it was written.
    Audit(audit::Arguments),
    /// Writes the coordinator's whole state into a file, while it works.
    Backup(backup::Backup),
    /// Puts a backup of a coordinator back in its place; begins a new term of the documents.
    Restore(backup::Restore),
    /// Makes enrolment tokens.
    #[command(subcommand, after_help = tokens::EXAMPLE)]
    Tokens(tokens::Command),
    /// Gives people tokens of their own, with roles: who may see, submit, operate, administer.
    #[command(subcommand, after_help = operators::EXAMPLE)]
    Operators(operators::Command),
    /// Has an organisation sign documents with a key that the coordinator does not have.
    #[command(subcommand, after_help = organisation::EXAMPLE)]
    Organisation(organisation::Command),
    /// Adds a project of the lab's own.
    #[command(subcommand, after_help = create::PROJECT_EXAMPLE)]
    Project(create::ProjectCommand),
    /// Adds versions of applications.
    #[command(subcommand, after_help = create::APP_EXAMPLE)]
    App(create::AppCommand),
    /// Adds workunits: one by options, or a batch of them from a file.
    Submit(submit::Arguments),
    /// Simulates hosts and projects over months, with the policies that agents run.
    Simulate(simulate::Arguments),
    /// Repeats the evaluation of the policies by Kondo, Anderson and McLeod: tables and figures of published
    /// against measured.
    Evaluate(evaluate::Arguments),
    /// Writes the description (OpenAPI) of the operators' API in JSON to standard output.
    #[command(after_help = OPENAPI_EXAMPLE)]
    Openapi,
    /// Writes completions for a shell to standard output.
    Completions(manual::Completions),
    /// Writes the manual page to standard output.
    #[command(after_help = MAN_EXAMPLE)]
    Man,
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ProcessExit {
    let parsed = negative_numbers(Arguments::command()).try_get_matches();
    let arguments = match parsed.and_then(|matches| Arguments::from_arg_matches(&matches)) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version come this way too. A reader that has gone away is no failure, and a complaint
            // that nobody can read keeps its status.
            return match error.print() {
                Err(unsaid) if !error.use_stderr() && unsaid.kind() != std::io::ErrorKind::BrokenPipe => {
                    fail(&Failure::unwritable(UNPRINTABLE, &unsaid))
                }
                _ => status_of(&error),
            };
        }
    };
    match run(arguments) {
        Ok(code) => code,
        Err(failure) => fail(&failure),
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

/// Tells of a failure and gives its status.
fn fail(failure: &Failure) -> ProcessExit {
    warn(&failure.to_string());
    failure.code().into()
}

/// Clap's own status, but that of bad input for a value that can be read and is not acceptable.
fn status_of(error: &clap::Error) -> ProcessExit {
    let source = std::error::Error::source(error);
    match source.is_some_and(|source| source.is::<Unacceptable>()) {
        true => ExitCode::BadInput.into(),
        false => u8::try_from(error.exit_code()).map_or(ExitCode::Usage.into(), ProcessExit::from),
    }
}

fn run(arguments: Arguments) -> Result<ProcessExit, Failure> {
    let done = |()| ProcessExit::from(ExitCode::Success);
    match arguments.command {
        Command::Up(arguments) => block_on(up::run(arguments))?,
        Command::Coordinator(command) => coordinator::run(command).map(done),
        Command::Hosts(arguments) => block_on(hosts::run(arguments))?.map(done),
        Command::Projects(arguments) => block_on(projects::run(arguments))?.map(done),
        Command::Jobs(arguments) => block_on(jobs::run(arguments))?.map(done),
        Command::Results(arguments) => block_on(results::run(arguments))?.map(done),
        Command::Shares(arguments) => block_on(shares::run(arguments))?.map(done),
        Command::Preferences(arguments) => block_on(preferences::run(arguments))?.map(done),
        Command::Apply(arguments) => block_on(apply::apply(arguments))?.map(done),
        Command::Diff(arguments) => block_on(apply::diff(arguments))?.map(done),
        Command::Groups(arguments) => block_on(groups::run(arguments))?.map(done),
        Command::Documents(arguments) => block_on(documents::run(arguments))?.map(done),
        Command::Rollout(arguments) => block_on(rollout::run(arguments))?.map(done),
        Command::Audit(arguments) => block_on(audit::run(arguments))?.map(done),
        Command::Backup(arguments) => block_on(backup::backup(arguments))?,
        Command::Restore(arguments) => block_on(backup::restore(arguments))?.map(done),
        Command::Tokens(command) => block_on(tokens::run(command))?.map(done),
        Command::Operators(command) => block_on(operators::run(command))?.map(done),
        Command::Organisation(command) => block_on(organisation::run(command))?.map(done),
        Command::Project(command) => block_on(create::project(command))?.map(done),
        Command::App(command) => block_on(create::app(command))?.map(done),
        Command::Submit(arguments) => block_on(submit::run(arguments))?,
        Command::Simulate(arguments) => simulate::run(&arguments),
        Command::Evaluate(arguments) => evaluate::run(&arguments),
        Command::Openapi => openapi::run().map(done),
        Command::Completions(arguments) => manual::completions(&arguments, Arguments::command()).map(done),
        Command::Man => manual::man(&Arguments::command()).map(done),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    /// Shows R6.11.
    #[test]
    fn what_cannot_be_a_command_line_is_a_usage_error() {
        for bad in [
            &["fallow"][..],
            &["fallow", "shares", "set"],
            &["fallow", "shares", "set", "mersenne"],
            &["fallow", "shares", "set", "mersenne=much"],
            &["fallow", "shares", "set", "mersenne="],
            &["fallow", "up", "--agents", "few"],
            &["fallow", "up", "--exponents", "ten"],
            &["fallow", "submit", "mersenne"],
            &["fallow", "coordinator", "run", "--listen", "here"],
            &["fallow", "simulate"],
            &["fallow", "simulate", "base", "--json", "--csv"],
            &["fallow", "simulate", "base", "--seed", "first"],
            &["fallow", "evaluate"],
        ] {
            let error = Arguments::try_parse_from(bad).unwrap_err();
            assert_eq!(status_of(&error), ExitCode::Usage.into(), "{bad:?}: {error}");
        }
    }

    #[test]
    fn a_value_that_can_be_read_but_is_not_acceptable_is_bad_input() {
        for bad in [
            &["fallow", "up", "--agents", "1"][..],
            &["fallow", "up", "--exponents", "10..2"],
            &["fallow", "submit", "mersenne", "--app", "a", "--flops", "1e9", "--quorum", "0"],
            &["fallow", "tokens", "create", "--count", "0"],
            &["fallow", "preferences", "set", "--cpu-fraction", "150%"],
            &["fallow", "coordinator", "run", "--heartbeat", "1ms"],
            &["fallow", "simulate", "base", "--repeat", "0"],
        ] {
            let error = Arguments::try_parse_from(bad).unwrap_err();
            assert_eq!(status_of(&error), ExitCode::BadInput.into(), "{bad:?}: {error}");
        }
    }

    #[test]
    fn every_command_has_examples_whose_lines_no_terminal_breaks() {
        fn check(command: &mut clap::Command, path: &str) {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(after.contains("Example"), "{path} has no example");
            let shown = command.render_long_help().to_string();
            for line in after.lines() {
                assert!(line.chars().count() <= WIDTH, "{path}: {line}");
                assert!(shown.lines().any(|shown| shown.trim_end() == line), "{path}: {line}");
            }
            for sub in command.get_subcommands_mut().filter(|sub| sub.get_name() != "help") {
                let path = format!("{path} {}", sub.get_name());
                check(sub, &path);
            }
        }
        let mut command = Arguments::command();
        command.build();
        check(&mut command, "fallow");
    }

    #[test]
    fn shares_and_preferences_alone_are_shown() {
        for alone in ["shares", "preferences"] {
            for arguments in
                [&["fallow", alone][..], &["fallow", alone, "--json"], &["fallow", alone, "show", "--json"]]
            {
                assert!(Arguments::try_parse_from(arguments).is_ok(), "{arguments:?}");
            }
        }
    }
}
