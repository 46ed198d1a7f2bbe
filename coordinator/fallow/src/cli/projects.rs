//! `fallow projects`.

use clap::Args;
use fallow_proto::operator::v1::{ListProjectsRequest, ProjectSummary};
use serde_json::{Value, json};

use super::connect::Target;
use super::table::{self, Column::Number, Column::Text};
use super::{Failure, fitted, print_json, print_table};

#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  fallow projects\n  fallow projects --json\n\nContested CPU time is what was used while every project of its host with a\nshare had runnable work: only then can shares be kept, so the part of it is what\nto compare with them."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: Target,
    /// All columns, however narrow the terminal is.
    #[arg(long)]
    wide: bool,
    /// One JSON object instead of a table. It shows administrators the accounts' keys, which are secrets.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    let mut client = arguments.target.connect().await?;
    let projects = client.list_projects(ListProjectsRequest {}).await?.into_inner().projects;
    if arguments.json {
        let projects: Vec<_> = projects.iter().map(project_json).collect();
        return print_json(&json!({ "projects": projects }));
    }
    let columns = vec![
        (Text("project"), 0),
        (Number("share"), 1),
        (Number("of all shares"), 7),
        (Number("CPU time"), 5),
        (Number("contested"), 9),
        (Number("of contested"), 8),
        (Number("debt"), 10),
        (Number("workunits"), 2),
        (Number("validated"), 0),
        (Number("failed"), 0),
        (Number("unsent"), 6),
        (Number("in progress"), 4),
        (Text("URL"), 11),
    ];
    let shares: f64 = projects.iter().map(|project| project.share).sum();
    let contested: f64 = projects.iter().map(|project| project.cpu_contested_micros as f64).sum();
    let row = |project: &ProjectSummary| {
        vec![
            project.name.clone(),
            table::number(project.share),
            percent(project.share, shares),
            table::micros(project.cpu_time_micros),
            table::micros(project.cpu_contested_micros),
            percent(project.cpu_contested_micros as f64, contested),
            table::debt(project.debt_seconds),
            project.workunits.to_string(),
            project.workunits_validated.to_string(),
            project.workunits_failed.to_string(),
            project.jobs_unsent.to_string(),
            project.jobs_in_progress.to_string(),
            project.url.clone(),
        ]
    };
    let nothing = "No projects yet: `fallow project create NAME` makes one.";
    print_table(projects.is_empty(), nothing, || {
        fitted::render(columns, projects.iter().map(row).collect(), arguments.wide)
    })
}

/// A part of a whole in percent; a dash where there is no whole.
pub(crate) fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.1} %", 100.0 * part / whole) } else { "-".to_owned() }
}

pub(crate) fn project_json(project: &ProjectSummary) -> Value {
    json!({
        "name": project.name,
        "url": project.url,
        "share": project.share,
        "hosted": project.hosted,
        "account_key": project.account_key,
        "cpu_time_micros": project.cpu_time_micros,
        "cpu_contested_micros": project.cpu_contested_micros,
        "debt_seconds": project.debt_seconds,
        "workunits": project.workunits,
        "workunits_validated": project.workunits_validated,
        "workunits_failed": project.workunits_failed,
        "jobs_unsent": project.jobs_unsent,
        "jobs_in_progress": project.jobs_in_progress,
        "jobs_over": project.jobs_over,
        "last_refusal": project.last_refusal.as_ref().map(|refusal| json!({
            "at_micros": refusal.at_micros,
            "agent_id": refusal.agent_id,
            "agent_name": refusal.agent_name,
            "host_id": refusal.host_id,
            "host_name": refusal.host_name,
            "reason": refusal.reason,
        })),
    })
}
