//! `fallow project` and `fallow app add`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use fallow_domain::{Duration, ResourceType, Usage};
use fallow_proto::operator::v1::{
    AddAppVersionRequest, CreateProjectRequest, GetDocumentRequest, GetProjectRequest, ProjectSettings,
    SetProjectRequest, Setting,
};
use fallow_work_server::SETTINGS;
use serde_json::json;

use super::code_sign_key::{self, NewKey};
use super::connect::{Client, Target};
use super::going_out::{self, GoingOut};
use super::projects::project_json;
use super::reach;
use super::table::{self, Column::Text};
use super::why::Why;
use super::{Failure, Unacceptable, print, print_json, units, upload};
use crate::printable;

pub(crate) const PROJECT_EXAMPLE: &str = "\
Example:
  fallow project create sieve --share 50
  fallow app add sieve sieve ./target/release/sieve --version 1.0
  fallow submit sieve --file batch.toml

The whole fleet is attached to it at once; each agent has an account of its own.
Unmodified BOINC clients can attach to its URL too, with accounts that their
owners make, once you allow that:
  fallow project set sieve account-creation=true
With --code-sign-key the project's programs are signed by a key that the
coordinator never has: `fallow project new-key --help`.
Results of one account count once towards a quorum, and an account gets a second
job of a workunit only if its first one failed or was lost: a quorum of 2 over
such clients needs two accounts. Who can make one can make two: against
strangers, a quorum proves nothing.";

const SHOW_EXAMPLE: &str = "\
Example:
  fallow project show sieve
  fallow project show sieve --json";

const SET_EXAMPLE: &str = "\
Examples:
  fallow project set sieve poll=1m request-delay=10s
  fallow project set sieve send=WS2,ws2=published

Settings:
  name                the project's name for people
  request-delay       how long a client waits between two scheduler RPCs
  poll                how soon a client that asked in vain comes again; 0s: as
                      it likes. Agents of this fleet hear of new jobs at once
  report-immediately  jobs are reported one by one: true or false
  account-creation    anybody may make an account, for clients outside the
                      fleet: true or false. Results of one account count once
                      towards a quorum
  jobs-per-cpu        jobs in progress that a host may have per CPU
  send                WS1 (fills requests), WS2 (only what meets its deadline),
                      WS3 (the default: the same by the hours at which hosts
                      compute, and tries what nobody knows);
                      ws2=published, counted or scaled: with less foresight
  spread              of a batch that is small against what hosts ask for, each
                      has its part, and comes again soon: true or false. Not
                      for hosts that are seldom connected
  deletion-policy     files that clients delete first: lru, priority, expire
  delete-from-self    jobs may push out the project's own files: true or false";

pub(crate) const APP_EXAMPLE: &str = "\
Example:
  fallow app add sieve sieve ./target/release/sieve --version 1.0
  fallow app add sieve sieve ./sieve-gpu --version 1.0 --uses nvidia=0.5,cpu=0.1

The first file is the main program. Files are sent to the coordinator and
signed there, or here with --code-sign-key; a version never changes once it is
made.

An application is a program or script that was written for BOINC: it reads and
writes where link files say, and says itself that it has finished.
docs/applications.md shows one of fifteen lines.";

/// How long sending an application may take.
const UPLOAD: std::time::Duration = std::time::Duration::from_secs(600);

#[derive(Subcommand, Debug)]
pub(crate) enum ProjectCommand {
    /// Adds a project of the lab's own, with its keys, and attaches the fleet to it.
    #[command(after_help = PROJECT_EXAMPLE)]
    Create(Create),
    /// Shows the settings of a project, its URL and its account key.
    #[command(after_help = SHOW_EXAMPLE)]
    Show(Show),
    /// Changes settings of a project; they hold from the next request of a client on.
    #[command(after_help = SET_EXAMPLE)]
    Set(Set),
    /// Makes a code-signing key for a project, to be kept off the coordinator's machine.
    #[command(after_help = code_sign_key::NEW_KEY)]
    NewKey(NewKey),
}

#[derive(Args, Debug)]
pub(crate) struct Create {
    /// Its name in URLs and directories: lower-case letters, digits, `-` and `_`.
    name: String,
    /// Its resource share.
    #[arg(long, default_value_t = 100.0, value_name = "NUMBER", allow_negative_numbers = true)]
    share: f64,
    /// How long clients wait between two scheduler RPCs.
    #[arg(long, default_value = "7s", value_parser = units::time, value_name = "TIME")]
    request_delay: Duration,
    /// A key that signs the project's programs, whose private part the coordinator is not to have.
    #[arg(long, value_name = "FILE")]
    code_sign_key: Option<PathBuf>,
    #[command(flatten)]
    how: GoingOut,
    #[command(flatten)]
    why: Why,
    #[command(flatten)]
    target: Target,
    /// One JSON object instead of a line.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Show {
    /// The project.
    name: String,
    #[command(flatten)]
    target: Target,
    /// One JSON object instead of a table. Both show the account's key, which is a secret.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Set {
    /// The project.
    name: String,
    /// Settings and their new values; all are taken, or none.
    #[arg(required = true, value_name = "KEY=VALUE", value_parser = setting)]
    settings: Vec<Setting>,
    #[command(flatten)]
    why: Why,
    #[command(flatten)]
    target: Target,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

fn setting(text: &str) -> Result<Setting, String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let pair = pair.map(|(key, value)| Setting { key: key.to_owned(), value: value.to_owned() });
    pair.ok_or_else(|| "expected KEY=VALUE, such as poll=5m".to_owned())
}

#[derive(Subcommand, Debug)]
pub(crate) enum AppCommand {
    /// Registers a version of an application.
    #[command(after_help = APP_EXAMPLE)]
    Add(Add),
}

#[derive(Args, Debug)]
pub(crate) struct Add {
    /// The project.
    project: String,
    /// The application's name.
    name: String,
    /// Its files; the first is the main program.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Its version, such as 1.0 or 2.15.
    #[arg(long, value_parser = units::version, value_name = "MAJOR.MINOR")]
    version: u32,
    /// Takes a main program that is neither an executable nor a script.
    #[arg(long)]
    any_file: bool,
    /// Its name for people.
    #[arg(long, default_value = "", hide_default_value = true)]
    friendly_name: String,
    /// What a job of it uses: CPUs, and one kind of nvidia, amd, intel or apple.
    #[arg(long, default_value = "cpu=1", value_parser = uses, value_name = "KIND=NUMBER,...")]
    uses: Usage,
    /// Its jobs need the network while they run: hosts give it to them only where their owners and
    /// preferences allow it.
    #[arg(long)]
    needs_network: bool,
    /// The BOINC platform that it runs on.
    #[arg(long, default_value = PLATFORM)]
    platform: String,
    /// The project's code-signing key, if the coordinator does not have it: the files are signed here.
    #[arg(long, value_name = "FILE")]
    code_sign_key: Option<PathBuf>,
    #[command(flatten)]
    why: Why,
    #[command(flatten)]
    target: Target,
    /// One JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

/// `nvidia=0.5,cpu=0.1`; without a number of CPUs, one.
fn uses(text: &str) -> Result<Usage, Box<dyn std::error::Error + Send + Sync>> {
    let mut usage = Usage::ONE_CPU;
    for part in text.split(',') {
        let read =
            part.split_once('=').and_then(|(kind, count)| Some((kind.trim(), count.trim().parse().ok()?)));
        let (kind, count): (&str, f64) =
            read.ok_or("expected KIND=NUMBER, such as nvidia=0.5 or nvidia=1,cpu=0.2")?;
        let is_sane = count.is_finite() && count > 0.0;
        let kind = match kind {
            "cpu" | "cpus" => ResourceType::Cpu,
            other => ResourceType::from_name(other).ok_or("expected cpu, nvidia, amd, intel or apple")?,
        };
        match (kind, usage.coprocessor) {
            _ if !is_sane => {
                let text = format!("{part}: expected a number above 0, such as 0.5");
                return Err(Unacceptable(text).into());
            }
            (ResourceType::Cpu, _) => usage.cpus = count,
            (_, None) => usage.coprocessor = Some((kind, count)),
            (_, Some(_)) => {
                let text = format!("{text}: a job uses one kind of coprocessor at most");
                return Err(Unacceptable(text).into());
            }
        }
    }
    Ok(usage)
}

/// The BOINC platform of this machine.
pub(crate) const PLATFORM: &str =
    if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-gnu" } else { "x86_64-pc-linux-gnu" };

pub(crate) async fn project(command: ProjectCommand) -> Result<(), Failure> {
    let create = match command {
        ProjectCommand::Create(create) => create,
        ProjectCommand::NewKey(new) => return code_sign_key::make(&new),
        ProjectCommand::Show(Show { name, target, json }) => {
            let mut client = target.connect().await?;
            let shown = client.get_project(GetProjectRequest { name }).await?.into_inner();
            let key = account_key(&mut client, &shown.name).await?;
            return print_settings(&shown, Some(&key), json);
        }
        ProjectCommand::Set(Set { name, settings, why, target, json }) => {
            let mut client = target.connect().await?;
            let request = why.of(SetProjectRequest { name, settings });
            let shown = client.set_project(request).await?.into_inner();
            return print_settings(&shown, None, json);
        }
    };
    let key = create.code_sign_key.as_deref().map(code_sign_key::public).transpose()?;
    let mut client = create.target.connect().await?;
    let request = CreateProjectRequest {
        name: create.name,
        share: create.share,
        request_delay_micros: create.request_delay.as_micros(),
        settings: Vec::new(),
        emergency: create.how.emergency,
        code_sign_key: key.as_ref().map(|key| key.to_text()).unwrap_or_default(),
    };
    let project = client.create_project(create.why.of(request)).await?.into_inner();
    if key.is_none() {
        code_sign_key::tell_kept(&mut client, Some(&project.name)).await;
    }
    if create.json {
        return print_json(&project_json(&project));
    }
    print(&format!("project {} at {}\n", project.name, project.url))?;
    reach::tell_of_project(&project.url);
    going_out::tell_of_newest(&mut client).await;
    Ok(())
}

/// The key with which any BOINC client is attached by hand; empty for a project that the fleet is not
/// attached to, and where whoever asks is no administrator.
async fn account_key(client: &mut Client, name: &str) -> Result<String, Failure> {
    let document = client.get_document(GetDocumentRequest::default()).await?.into_inner().document;
    let projects = document.unwrap_or_default().projects;
    let found = projects.into_iter().find(|project| project.name == name);
    Ok(found.map(|project| project.account_key).unwrap_or_default())
}

/// Settings; with a key the account too, which only an operator who asks for it is shown.
fn print_settings(shown: &ProjectSettings, key: Option<&str>, json: bool) -> Result<(), Failure> {
    if json {
        let pair = |setting: &Setting| (setting.key.clone(), setting.value.clone().into());
        let settings: serde_json::Map<_, _> = shown.settings.iter().map(pair).collect();
        let mut value = json!({
            "name": shown.name,
            "url": shown.url,
            "settings": settings,
            "code_sign_key": shown.code_sign_key,
            "code_sign_key_is_elsewhere": shown.code_sign_key_is_elsewhere,
        });
        if let Some(key) = key {
            value["account_key"] = json!(key);
        }
        return print_json(&value);
    }
    let meaning =
        |key: &str| SETTINGS.iter().find(|(name, _)| *name == key).map_or("", |(_, meaning)| meaning);
    let row = |setting: &Setting| {
        vec![setting.key.clone(), setting.value.clone(), meaning(&setting.key).to_owned()]
    };
    let columns = [Text("setting"), Text("value"), Text("what it is")];
    let settings = table::render(&columns, shown.settings.iter().map(row).collect());
    let account = key.map(|key| account_text(&shown.url, key)).unwrap_or_default();
    print(&format!("{settings}{}{account}", signed_by(shown)))
}

/// By which key its programs are signed, and where that is.
fn signed_by(shown: &ProjectSettings) -> String {
    let place =
        if shown.code_sign_key_is_elsewhere { "kept elsewhere" } else { "in the coordinator's directory" };
    let key = printable::line(&shown.code_sign_key, usize::MAX);
    format!("\nIts programs are signed by this key, which is {place}:\n  {key}\n")
}

/// What any BOINC client is attached with.
fn account_text(url: &str, key: &str) -> String {
    if key.is_empty() {
        return String::new();
    }
    let (url, key) = (printable::line(url, usize::MAX), printable::line(key, usize::MAX));
    let text = format!(
        "\nTo attach any BOINC client by hand; the key is a secret:\n  URL          {url}\n  account key  {key}\n"
    );
    match url.starts_with("https://") {
        true => {
            text + "A client that does not trust the certificate there (of the fleet's authority, authority.pem,\n\
                    unless a proxy shows its own) comes by http:// at the port of --http, where\n\
                    `fallow coordinator run --allow-plain-http` allows it.\n"
        }
        false => text,
    }
}

/// How programs begin: ELF, a script, Windows' and Apple's own.
const PROGRAMS: [&[u8]; 7] = [
    b"\x7fELF",
    b"#!",
    b"MZ",
    b"\xcf\xfa\xed\xfe",
    b"\xce\xfa\xed\xfe",
    b"\xca\xfe\xba\xbe",
    b"\xfe\xed\xfa\xcf",
];

/// Refuses what no host could run: every job of it would fail there.
fn require_program(path: &Path) -> Result<(), Failure> {
    use std::io::Read as _;
    let mut head = Vec::new();
    if path.is_dir() {
        let text = format!(
            "{} is a directory: name the application's files, the main program first",
            path.display()
        );
        return Err(Failure::bad_input(text));
    }
    let read = std::fs::File::open(path).and_then(|file| file.take(4).read_to_end(&mut head));
    read.map_err(|error| Failure::file("read", path, error))?;
    if PROGRAMS.iter().any(|program| head.starts_with(program)) {
        return Ok(());
    }
    let text = format!(
        "{} is neither an executable nor a script (#!), so no host could run it: name the main program first, or say --any-file if it is one",
        path.display()
    );
    Err(Failure::bad_input(text))
}

pub(crate) async fn app(command: AppCommand) -> Result<(), Failure> {
    let AppCommand::Add(add) = command;
    if let Some(program) = add.files.first().filter(|_| !add.any_file) {
        require_program(program)?;
    }
    let key = add.code_sign_key.as_deref().map(code_sign_key::private).transpose()?;
    let mut client = add.target.connect_for(UPLOAD).await?;
    let version = AddAppVersionRequest {
        project: add.project,
        application: add.name,
        friendly_name: add.friendly_name,
        version: add.version,
        platform: add.platform,
        cpus: add.uses.cpus,
        coprocessor: add.uses.coprocessor.map_or("", |(kind, _)| kind.name()).to_owned(),
        coprocessor_count: add.uses.coprocessor.map_or(0.0, |(_, count)| count),
        files: Vec::new(),
        needs_network: add.needs_network,
    };
    let file_names =
        upload::add_app_version(&mut client, version, &add.files, key.as_ref(), &add.why).await?;
    if add.json {
        return print_json(&json!({ "file_names": file_names }));
    }
    print(&file_names.iter().map(|name| format!("{name}\n")).collect::<String>())
}
