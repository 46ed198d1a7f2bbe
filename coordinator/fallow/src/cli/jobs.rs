//! `fallow jobs`.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use fallow_proto::operator::v1::{Job, ListJobsRequest, Workunit, WorkunitState};
use serde_json::{Value, json};

use super::connect::{Client, Target};
use super::fitted::Ranked;
use super::table::{self, Column::Number, Column::Text};
use super::{Failure, fitted, job, print_json, print_table, print_told};

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  fallow jobs mersenne\n  fallow jobs --state failed\n  fallow jobs mersenne --job mersenne_00000007_0\n  fallow jobs --json | jq '.workunits | length'"
)]
pub(crate) struct Arguments {
    /// Only this project's.
    project: Option<String>,
    /// Only workunits in this state.
    #[arg(long, value_parser = state_parser())]
    state: Option<WorkunitState>,
    /// One job with all that is known of it: its host, what its exit status means, what it wrote to standard
    /// error.
    #[arg(long, value_name = "NAME", requires = "project", conflicts_with = "state")]
    job: Option<String>,
    #[command(flatten)]
    target: Target,
    /// All columns, however narrow the terminal is.
    #[arg(long)]
    wide: bool,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// What is said of copied hosts beside jobs that wait for hosts to agree.
pub(super) const COPIED: &str = "\
A host and its copies count as one where several hosts must agree; `fallow hosts` marks copies. To make one count by \
itself, take it out with `fallow hosts revoke` and start its agent in an empty directory, with a token from `fallow \
tokens create`.";

/// Takes the words for the states that a workunit can be in.
fn state_parser() -> impl TypedValueParser<Value = WorkunitState> {
    let states = [WorkunitState::Active, WorkunitState::Validated, WorkunitState::Failed];
    let words = PossibleValuesParser::new(states.map(WorkunitState::words));
    words.map(|word| WorkunitState::from_words(&word).unwrap_or_default())
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    let mut client = arguments.target.connect().await?;
    if let Some(name) = &arguments.job {
        let project = arguments.project.as_deref().unwrap_or_default();
        return job::show(&mut client, project, name, arguments.json).await;
    }
    let mut workunits = all(&mut client, arguments.project.as_deref().unwrap_or_default()).await?;
    if let Some(state) = arguments.state {
        workunits.retain(|workunit| workunit.read_state() == state);
    }
    if arguments.json {
        let workunits: Vec<_> = workunits.iter().map(workunit_json).collect();
        return print_json(&json!({ "workunits": workunits }));
    }
    // A job is named after its workunit.
    let (columns, rows) = table(&workunits);
    let nothing = match arguments.state {
        Some(_) => "No workunit is in that state.",
        None => "No jobs yet: `fallow submit` makes some.",
    };
    print_table(rows.is_empty(), nothing, || fitted::render(columns, rows, arguments.wide))?;
    let copied = workunits.iter().flat_map(|workunit| &workunit.jobs).any(|job| job.copied_hosts > 0);
    if copied { print_told(&format!("{COPIED}\n")) } else { Ok(()) }
}

/// All jobs, with what they wait for in the last column, which alone is cut: it may be long. Where none
/// waits, there is no such column.
fn table(workunits: &[Workunit]) -> (Vec<Ranked>, Vec<Vec<String>>) {
    let mut columns = vec![
        (Text("project"), 6),
        (Text("workunit"), 7),
        (Text("workunit state"), 5),
        (Text("job"), 0),
        (Text("state"), 0),
        (Text("outcome"), 1),
        (Text("validation"), 3),
        (Text("host"), 2),
        (Number("CPU time"), 4),
        (Number("times sent"), 8),
    ];
    let jobs = || workunits.iter().flat_map(|workunit| workunit.jobs.iter().map(move |job| (workunit, job)));
    let mut rows: Vec<_> = jobs().map(|(workunit, job)| row(workunit, job)).collect();
    if jobs().any(|(_, job)| !job.waits_for.is_empty()) {
        columns.push((Text("waits for"), 0));
        rows.iter_mut().zip(jobs()).for_each(|(row, (_, job))| row.push(job.waits_for.clone()));
    }
    (columns, rows)
}

/// All workunits of a project, or of all with an empty name.
pub(crate) async fn all(client: &mut Client, project: &str) -> Result<Vec<Workunit>, Failure> {
    let mut workunits: Vec<Workunit> = Vec::new();
    loop {
        let after = match (workunits.last(), project) {
            (None, _) => String::new(),
            (Some(last), "") => format!("{}/{}", last.project, last.name),
            (Some(last), _) => last.name.clone(),
        };
        let request = ListJobsRequest { project: project.to_owned(), after, limit: 0 };
        let page = client.list_jobs(request).await?.into_inner();
        let is_last = !page.more || page.workunits.is_empty();
        workunits.extend(page.workunits);
        if is_last {
            return Ok(workunits);
        }
    }
}

/// The host of a job: an agent by the name that `fallow hosts` lists; numbers of hosts are each project's
/// own.
pub(crate) fn host(job: &Job) -> String {
    match (job.host_id, job.agent_name.as_str()) {
        (0, _) => String::new(),
        (number, "") => format!("{} (outside the fleet, {number})", job.host_name),
        (_, name) => name.to_owned(),
    }
}

/// Where a job stands, and what it waits for.
pub(crate) fn state(job: &Job) -> String {
    match job.waits_for.as_str() {
        "" => job.state_words().to_owned(),
        waits_for => format!("{}, waits for {waits_for}", job.state_words()),
    }
}

fn row(workunit: &Workunit, job: &Job) -> Vec<String> {
    vec![
        workunit.project.clone(),
        workunit.name.clone(),
        workunit.state_words().to_owned(),
        job.name.clone(),
        job.state_words().to_owned(),
        job.outcome_words().to_owned(),
        job.validation_words().to_owned(),
        host(job),
        table::micros(job.cpu_time_micros),
        job.times_sent.to_string(),
    ]
}

pub(crate) fn job_json(job: &Job) -> Value {
    json!({
        "name": job.name,
        "state": job.state_words(),
        "outcome": job.outcome_words(),
        "validation": job.validation_words(),
        "waits_for": job.waits_for,
        "copied_hosts": job.copied_hosts,
        "waits_until": table::instant(job.waits_until_micros),
        "agent_id": job.agent_id,
        "agent_name": job.agent_name,
        "host_id": job.host_id,
        "host_name": job.host_name,
        "sent_at": table::instant(job.sent_at_micros),
        "deadline": table::instant(job.deadline_micros),
        "received_at": table::instant(job.received_at_micros),
        "cpu_time_micros": job.cpu_time_micros,
        "exit_status": job.exit_status,
        "times_sent": job.times_sent,
    })
}

fn workunit_json(workunit: &Workunit) -> Value {
    let jobs: Vec<_> = workunit.jobs.iter().map(job_json).collect();
    json!({
        "project": workunit.project,
        "name": workunit.name,
        "application": workunit.application,
        "state": workunit.state_words(),
        "error": workunit.error,
        "quorum": workunit.quorum,
        "canonical_job": workunit.canonical_job,
        "jobs": jobs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_11_a_job_that_waits_leaves_a_narrow_terminal_room_for_whose_job_it_is() {
        let job = |name: &str, waits_for: &str| Job {
            name: name.into(),
            waits_for: waits_for.into(),
            host_id: 1,
            agent_name: "lab-pc-1".into(),
            ..Job::default()
        };
        let waits = "another host: 9 needed, 3 ask for work, 2 of them copies of one machine".to_owned();
        let workunit =
            |jobs| Workunit { project: "primes".into(), name: "w_1".into(), jobs, ..Workunit::default() };
        let (columns, rows) = table(&[workunit(vec![job("w_1_0", ""), job("w_1_1", &waits)])]);
        for width in [80, 120] {
            let shown = fitted::shown_at(width, &columns, &rows);
            assert!(shown.lines().all(|line| line.chars().count() <= width), "{shown}");
            for said in ["w_1_1", "lab-pc-1", "another host: 9"] {
                assert!(shown.contains(said), "{said} at {width}: {shown}");
            }
        }
        let (columns, _) = table(&[workunit(vec![job("w_1_0", "")])]);
        assert!(!columns.iter().any(|(column, _)| matches!(column, Text("waits for"))), "none waits");
    }
}
