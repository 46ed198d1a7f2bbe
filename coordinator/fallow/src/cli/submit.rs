//! `fallow submit`.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode as ProcessExit;

use clap::Args;
use fallow_domain::{Duration, ExitCode};
use fallow_proto::operator::v1::{InputFile, NewWorkunit, OutputFile};
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::connect::Target;
use super::submission::{
    self, InputContents, PendingWorkunit, Submission, SubmissionOutcome, SubmissionProgress,
};
use super::why::Why;
use super::{Failure, batch, print, print_json, runs, table, units, warn};
use crate::printable;

/// How long a piece may take: it waits for its turn behind those of others, whatever these take.
const LONGEST: std::time::Duration = std::time::Duration::from_mins(10);
/// Digits of a fingerprint that are a batch's key: enough that no two batches share one.
const KEY_DIGITS: usize = 32;
/// Names that a terminal shows of many.
const NAMES_SHOWN: usize = 5;
/// This many are shown whole.
const NAMES_FEW: usize = 10;

const USAGE: &str = "\
fallow submit <PROJECT> --file <FILE> [OPTIONS]
       fallow submit <PROJECT> --app <NAME> --flops <NUMBER> [OPTIONS]";

const EXAMPLE: &str = "\
Examples:
  fallow submit mersenne --file batch.toml
  fallow submit mersenne --app mersenne --input in=range.txt --output out \\
      --flops 6e10 --quorum 2

A batch holds [[workunits]] with application and flops, and where the default
in brackets will not do:
  name            [one is made]
  command_line    [none]
  inputs          each { open_name, text | path, keep_as } [none]
  outputs         each { open_name, max_size [10 MiB] } [none]
  flops_bound     how long a job may run, see below [10 times flops]
  memory, disk    the most that a job may take [256 MiB, 100 MiB]
  deadline        time for each job, from when it is sent [7days]
  quorum          jobs on different hosts that must agree [1]
  initial_jobs    jobs that are made at once [as many as the quorum]
  max_error_jobs  more jobs in error than this fail the workunit [3]
  max_total_jobs  the most jobs there may be [6; 3 times initial_jobs if more]
  comparator      how outputs are compared [bytewise]
A job may run for as long as its host needs to compute flops_bound. Leave room:
jobs get only what other programs leave, and slow down by it.
A job that its host loses for good is none in error. Nor do such jobs count in
max_total_jobs: 10 of a workunit, and 4 more for each job that has to succeed.
Further ones do, and so does each that is not reported by its deadline.
An input with keep_as stays on hosts under that name, and workunits that read it
go there first. A batch with a mistake is not taken at all.

Comparators:
  bytewise        equal byte for byte
  numeric-lines   equal but for numbers that differ by less than one part in a
                  billion

A long batch is taken in pieces. One that was cut off is completed by the same
command, and one that was taken is not taken twice: its key, which is made from
its contents unless --key gives one, tells. Options that are typed again without
--key are a new workunit.";

/// Adds workunits: one by options, or a batch of them from a file.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE, override_usage = USAGE)]
pub(crate) struct Arguments {
    /// The project.
    project: String,
    /// A batch of workunits, TOML or JSON (a name that ends in .json); `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "app", required_unless_present = "app")]
    file: Option<PathBuf>,
    /// The application of a single workunit.
    #[arg(long, value_name = "NAME", requires = "flops")]
    app: Option<String>,
    /// Its name; one is made if there is none.
    #[arg(long, requires = "app", default_value = "", hide_default_value = true)]
    name: String,
    /// What the application is started with.
    #[arg(long, requires = "app", default_value = "", allow_hyphen_values = true)]
    command_line: String,
    /// A file that it reads, and the name under which it opens it.
    #[arg(long, requires = "app", value_name = "OPEN_NAME=PATH", value_parser = input)]
    input: Vec<(String, PathBuf)>,
    /// The name under which it opens a file that it writes.
    #[arg(long, requires = "app", value_name = "OPEN_NAME")]
    output: Vec<String>,
    /// Estimated size in floating-point operations.
    #[arg(long, requires = "app", value_name = "NUMBER", allow_negative_numbers = true)]
    flops: Option<f64>,
    /// Jobs on different hosts that must agree.
    #[arg(long, requires = "app", default_value_t = 1, value_name = "NUMBER", value_parser = units::count(1, 100), allow_negative_numbers = true)]
    quorum: u32,
    /// Time for each job, from when it is sent.
    #[arg(long, requires = "app", default_value = "7days", value_parser = units::deadline, value_name = "TIME")]
    deadline: Duration,
    /// Names this submission: what is repeated under its key is taken once.
    #[arg(long)]
    key: Option<String>,
    /// How outputs are compared: bytewise or numeric-lines.
    #[arg(long, requires = "app", default_value = "bytewise", value_name = "NAME")]
    comparator: String,
    #[command(flatten)]
    why: Why,
    #[command(flatten)]
    target: Target,
    /// One JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

fn input(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok((name.to_owned(), path.into())),
        _ => Err("expected OPEN_NAME=PATH, such as in=range.txt".to_owned()),
    }
}

pub(crate) async fn run(arguments: Arguments) -> Result<ProcessExit, Failure> {
    let drafts = match &arguments.file {
        Some(file) => batch::read(file)?,
        None => vec![single(&arguments)?],
    };
    let mut client = arguments.target.connect_for(LONGEST).await?;
    // A batch that is submitted again is the same batch; options that are typed again are a new workunit.
    let made = match &arguments.file {
        Some(_) => submission::fingerprint(&arguments.project, &drafts).chars().take(KEY_DIGITS).collect(),
        None => ulid::Ulid::new().to_string(),
    };
    let key = arguments.key.as_deref().unwrap_or(&made);
    let again = match (&arguments.file, &arguments.key) {
        (None, None) => format!("repeat the command with --key {key}"),
        _ => "repeat the command".to_owned(),
    };
    let submission =
        Submission { project: &arguments.project, key, drafts: &drafts, again: &again, why: &arguments.why };
    let progress_so_far = SubmissionProgress::default();
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    let sent = tokio::select! {
        sent = submission.send_watched(&mut client, &progress_so_far) => Some(sent),
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
    };
    let Some(sent) = sent else {
        warn(&submission.interrupted(&progress_so_far));
        return Ok(runs::INTERRUPTED.into());
    };
    let sent = sent.map_err(|failure| match &arguments.file {
        Some(file) if failure.code() == ExitCode::BadInput => {
            Failure::bad_input(format!("{}: {failure}", batch::shown(file)))
        }
        _ => failure,
    })?;
    match arguments.json {
        true => print_json(&json!({
            "project": arguments.project,
            "key": key,
            "taken_before": sent.known,
            "workunits": sent.names,
        }))?,
        false => print(&listed(&sent.names, std::io::stdout().is_terminal()))?,
    }
    if arguments.file.is_some() || arguments.key.is_some() {
        warn(&told(key, &sent));
    }
    if let Some(warning) = lacking(&drafts, &sent) {
        warn(&warning);
    }
    if !sent.nobody_has_project.is_empty() {
        let why = printable::line(&sent.nobody_has_project, usize::MAX);
        warn(&format!("warning: it is taken, and waits: no host has project {}: {why}", arguments.project));
    }
    Ok(ExitCode::Success.into())
}

/// What is said of workunits that more hosts must agree on than there are. An agent counts as one, a host
/// and its copies together as one, and outside the fleet an account does.
fn lacking(drafts: &[PendingWorkunit], sent: &SubmissionOutcome) -> Option<String> {
    let there = sent.agents.saturating_sub(sent.copied_agents).saturating_add(sent.accounts_outside);
    let lacks = |draft: &&PendingWorkunit| draft.quorum() > 1 && u64::from(draft.quorum()) > there;
    let (count, most) = drafts
        .iter()
        .filter(lacks)
        .fold((0, 0), |(count, most), draft| (count + 1, draft.quorum().max(most)));
    let what = match count {
        0 => return None,
        1 => format!("on 1 workunit {most} hosts must agree"),
        count => format!("on {count} workunits up to {most} hosts must agree"),
    };
    let mut agents = table::counted(sent.agents, "agent");
    let mut anew = "";
    if sent.copied_agents > 0 {
        let (copied, counts) = (sent.copied_agents, if sent.copied_agents == 1 { "counts" } else { "count" });
        agents +=
            &format!(" ({copied} of which {counts} as one with others, as copies of a host: `fallow hosts`)");
        anew = ". A copy counts by itself once its host is enrolled anew with one, in an empty directory";
    }
    let outside = table::counted(sent.accounts_outside, "account");
    Some(format!(
        "warning: {what}, and there are {agents} and {outside} outside the fleet that asked for work lately. It is taken, \
         and waits until more come: `fallow tokens create` makes tokens for agents{anew}"
    ))
}

/// From now on the signal no longer ends the process by itself.
pub(super) fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::internal("signals cannot be listened to", error))
}

/// Names in lines. Nobody reads thousands on a terminal: it shows the first of many, and how many there are.
fn listed(names: &[String], is_terminal: bool) -> String {
    let shown = if is_terminal && names.len() > NAMES_FEW { NAMES_SHOWN } else { names.len() };
    let mut text: String = names.iter().take(shown).map(|name| format!("{name}\n")).collect();
    if shown < names.len() {
        let more = names.len() - shown;
        text.push_str(&format!("and {more} more; a file, a pipe or --json gets all names\n"));
    }
    text
}

/// What became of it, for people.
fn told(key: &str, sent: &SubmissionOutcome) -> String {
    let (all, known) = (sent.names.len() as u64, sent.known);
    let began = table::instant(sent.begun_at_micros);
    match known {
        0 => format!("submission {key}: {} taken", table::counted(all, "workunit")),
        known if known == all => format!(
            "submission {key} was taken before, on {began}: nothing is added; to have it computed once more, give another --key"
        ),
        known => format!(
            "submission {key}, begun on {began}: {known} of {all} workunits were there, the rest is taken now"
        ),
    }
}

fn single(arguments: &Arguments) -> Result<PendingWorkunit, Failure> {
    let (mut inputs, mut contents, mut files) = (Vec::new(), Vec::new(), InputContents::default());
    for (open_name, path) in &arguments.input {
        contents.push(files.of_file(path)?);
        inputs.push(InputFile { open_name: open_name.clone(), ..InputFile::default() });
    }
    let outputs = arguments.output.iter().map(|name| OutputFile { open_name: name.clone(), max_bytes: 0 });
    let workunit = NewWorkunit {
        name: arguments.name.clone(),
        application: arguments.app.clone().unwrap_or_default(),
        command_line: arguments.command_line.clone(),
        inputs,
        outputs: outputs.collect(),
        flops_estimate: arguments.flops.unwrap_or_default(),
        quorum: arguments.quorum,
        delay_bound_micros: arguments.deadline.as_micros(),
        comparator: arguments.comparator.clone(),
        ..NewWorkunit::default()
    };
    PendingWorkunit::new(workunit, contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_11_a_quorum_is_not_met_by_copies_of_a_host_and_the_warning_says_what_makes_them_count() {
        let workunit = NewWorkunit { quorum: 3, ..NewWorkunit::default() };
        let drafts = [PendingWorkunit::new(workunit, Vec::new()).unwrap()];
        let said = |agents, copied_agents| {
            lacking(&drafts, &SubmissionOutcome { agents, copied_agents, ..SubmissionOutcome::default() })
        };
        assert_eq!((said(3, 0), said(5, 2)), (None, None));
        let plain = said(2, 0).unwrap();
        assert!(plain.contains("2 agents and 0 accounts") && !plain.contains("cop"), "{plain}");
        let copied = said(4, 2).unwrap();
        for part in ["4 agents (2 of which count as one with others", "enrolled anew", "`fallow hosts`"] {
            assert!(copied.contains(part), "{part}: {copied}");
        }
        assert!(said(3, 1).unwrap().contains("(1 of which counts as one"));
    }

    #[test]
    fn r6_11_the_help_tells_the_defaults_that_hold_and_the_comparators_there_are() {
        let default = fallow_work_server::NewWorkunit::new("a", fallow_domain::Flops::new(1.0).unwrap());
        let (rules, size) = (default.rules, units::shown_size);
        for (key, told) in [
            ("flops_bound", format!("[{} times flops]", default.flops_bound.get())),
            ("memory, disk", format!("[{}, {}]", size(default.memory_bound.0), size(default.disk_bound.0))),
            ("deadline", "[7days]".to_owned()),
            ("quorum", format!("[{}]", rules.quorum)),
            ("max_error_jobs", format!("[{}]", rules.max_error_jobs)),
            ("max_total_jobs", format!("[{}; 3 times initial_jobs if more]", rules.max_total_jobs)),
            ("comparator", format!("[{}]", default.comparator)),
        ] {
            let line = EXAMPLE.lines().find(|line| line.trim_start().starts_with(key)).unwrap();
            assert!(line.ends_with(&told), "{line}: {told}");
        }
        assert_eq!(default.delay_bound, units::deadline("7days").unwrap());
        let help = EXAMPLE.split_whitespace().collect::<Vec<_>>().join(" ");
        let (first, each) = (fallow_work_server::LOST_FREE, fallow_work_server::LOST_FREE_EACH);
        let lost = format!("max_total_jobs: {first} of a workunit, and {each} more for each job");
        assert!(help.contains(&lost), "{help}");
        for (name, meaning) in fallow_work_server::COMPARATORS {
            assert!(help.contains(&format!("{name} {meaning}")), "{name}");
        }
    }

    #[test]
    fn a_terminal_shows_a_few_names_of_many_and_how_many_there_are_and_a_pipe_gets_all() {
        let names = |count: usize| -> Vec<String> { (0..count).map(|n| format!("w{n}")).collect() };
        let all = listed(&names(10_000), false);
        assert_eq!((all.lines().count(), all.lines().last()), (10_000, Some("w9999")));
        let few = listed(&names(10_000), true);
        assert_eq!(few.lines().take(5).collect::<Vec<_>>(), ["w0", "w1", "w2", "w3", "w4"]);
        assert!(few.lines().nth(5).unwrap().starts_with("and 9995 more;"), "{few}");
        assert_eq!(few.lines().count(), 6);
        assert_eq!(listed(&names(10), true).lines().count(), 10);
    }
}
