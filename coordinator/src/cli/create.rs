//! `fallow project create` and `fallow app add`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use fallow_domain::Duration;
use fallow_proto::operator::v1::{AddAppVersionRequest, CreateProjectRequest};
use serde_json::json;

use super::connect::Target;
use super::projects::project_json;
use super::{Failure, print, print_json, units};

pub(super) const PROJECT_EXAMPLE: &str = "\
Example:
  fallow project create sieve --share 50
  fallow app add sieve sieve ./target/release/sieve --version 1.0
  fallow submit sieve --file batch.toml

The whole fleet is attached to it at once. Unmodified BOINC clients can attach
to its URL with their own account.";

pub(super) const APP_EXAMPLE: &str = "\
Example:
  fallow app add sieve sieve ./target/release/sieve --version 1.0

The first file is the main program. Files are copied and signed; a version never
changes once it is made.";

#[derive(Subcommand, Debug)]
pub(super) enum ProjectCommand {
    /// Adds a project of the lab's own, with its keys, and attaches the fleet to it.
    #[command(after_help = PROJECT_EXAMPLE)]
    Create(Create),
}

#[derive(Args, Debug)]
pub(super) struct Create {
    /// Its name in URLs and directories: lower-case letters, digits, `-` and `_`.
    name: String,
    /// Its resource share.
    #[arg(long, default_value_t = 100.0)]
    share: f64,
    /// How long clients wait between two scheduler RPCs.
    #[arg(long, default_value = "7s", value_parser = units::time, value_name = "TIME")]
    request_delay: Duration,
    #[command(flatten)]
    target: Target,
    /// One JSON object instead of a line.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand, Debug)]
pub(super) enum AppCommand {
    /// Registers a version of an application.
    #[command(after_help = APP_EXAMPLE)]
    Add(Add),
}

#[derive(Args, Debug)]
pub(super) struct Add {
    /// The project.
    project: String,
    /// The application's name.
    name: String,
    /// Its files on the coordinator's machine; the first is the main program.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Its version, such as 1.0 or 2.15.
    #[arg(long, value_parser = units::version, value_name = "MAJOR.MINOR")]
    version: u32,
    /// Its name for people.
    #[arg(long, default_value = "")]
    friendly_name: String,
    /// The BOINC platform that it runs on.
    #[arg(long, default_value = PLATFORM)]
    platform: String,
    #[command(flatten)]
    target: Target,
    /// One JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

/// The BOINC platform of this machine.
pub(crate) const PLATFORM: &str =
    if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-gnu" } else { "x86_64-pc-linux-gnu" };

pub(super) async fn project(command: ProjectCommand) -> Result<(), Failure> {
    let ProjectCommand::Create(create) = command;
    let mut client = create.target.connect().await?;
    let request = CreateProjectRequest {
        name: create.name,
        share: create.share,
        request_delay_micros: create.request_delay.as_micros(),
    };
    let project = client.create_project(request).await?.into_inner();
    if create.json {
        return print_json(&project_json(&project));
    }
    print(&format!("project {} at {}\n", project.name, project.url))
}

pub(super) async fn app(command: AppCommand) -> Result<(), Failure> {
    let AppCommand::Add(add) = command;
    let absolute = |path: &PathBuf| {
        let path = std::fs::canonicalize(path).map_err(|error| Failure::file("find", path, error))?;
        if path.is_dir() {
            let text = format!(
                "{} is a directory: name the application's files, the main program first",
                path.display()
            );
            return Err(Failure::bad_input(text));
        }
        Ok(path.to_string_lossy().into_owned())
    };
    let files = add.files.iter().map(absolute).collect::<Result<Vec<_>, Failure>>()?;
    let mut client = add.target.connect().await?;
    let request = AddAppVersionRequest {
        project: add.project,
        application: add.name,
        friendly_name: add.friendly_name,
        version: add.version,
        platform: add.platform,
        files,
    };
    let file_names = client.add_app_version(request).await?.into_inner().file_names;
    if add.json {
        return print_json(&json!({ "file_names": file_names }));
    }
    print(&file_names.iter().map(|name| format!("{name}\n")).collect::<String>())
}
