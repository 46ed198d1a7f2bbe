//! Getting a demonstration going: the coordinator, the projects with their work, the agents. Each step finds
//! out what an earlier run has done already.

use std::path::Path;
use std::time::Duration;

use fallow_coordinator::daemon::DaemonFile;
use fallow_coordinator::operator::TokenFile;
use fallow_domain::{Duration as Span, ExitCode, Fraction, Preferences};
use fallow_proto::fleet::preferences::to_set;
use fallow_proto::operator::v1::{
    AddAppVersionRequest, CreateProjectRequest, CreateTokensRequest, GetDocumentRequest, ListProjectsRequest,
    SetPreferencesRequest, Setting,
};
use tokio::time::{Instant, sleep};
use tonic::Code;

use super::daemon::{Daemon, Daemons, describe};
use super::progress::Reporter;
use super::site::DemoDirectory;
use super::workload::{DemoSize, ProjectPlan};
use crate::cli::submission::{PendingWorkunit, Submission};
use crate::cli::upload::{self, UploadError};
use crate::cli::why::Why;
use crate::cli::{Client, Failure, PLATFORM, connect};

/// How long the coordinator may take to open its store and listen.
const START: Duration = Duration::from_secs(60);
/// How long an agent may take to enrol.
const ENROL: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);
/// Clients of the demonstration's projects may ask again so soon: jobs are short.
const REQUEST_DELAY: Span = Span::from_secs(1);
/// And those that asked in vain come again so soon.
const POLL_SETTING: &str = "10s";

/// Starts the coordinator, or finds it running, and connects to it.
pub(super) async fn coordinator(
    site: &DemoDirectory,
    daemons: &mut Daemons,
    reporter: &Reporter,
) -> Result<Client, Failure> {
    let daemon = &mut daemons.coordinator;
    if daemon.adopt() {
        reporter.say("coordinator", "the coordinator of an earlier run still runs and is used");
    } else {
        daemon.start(&[])?;
    }
    let end = Instant::now() + START;
    let dir = site.coordinator();
    let running = loop {
        if let Some(status) = daemon.ended() {
            return Err(not_started(&daemon.name, &daemon.last_words(), &daemon.log(), status));
        }
        match DaemonFile::read(&dir) {
            Ok(file) if Some(file.process.pid) == daemon.pid() => break file,
            _ if Instant::now() > end => {
                let text = format!(
                    "the coordinator did not start in {} s: see {}",
                    START.as_secs(),
                    daemon.log().display()
                );
                return Err(Failure::new(ExitCode::Unreachable, text));
            }
            _ => sleep(POLL).await,
        }
    };
    let token = TokenFile::read(&dir.join("operator.token"))
        .map_err(|error| Failure::caused(ExitCode::Refused, "no operator's token", error))?;
    reporter.say(
        "coordinator",
        &format!("coordinator at {}, projects at {}", running.told.fleet, running.told.http),
    );
    connect(&token).await
}

/// A daemon that ended at once has said why; its status becomes ours.
fn not_started(name: &str, last_words: &str, log: &Path, status: std::process::ExitStatus) -> Failure {
    let number = status.code().and_then(|code| u8::try_from(code).ok());
    let code =
        ExitCode::ALL.into_iter().find(|code| Some(code.number()) == number && *code != ExitCode::Success);
    let said = if last_words.is_empty() { "its log is empty" } else { last_words };
    let text = format!("{name} {} ({}): {said}", describe(status), log.display());
    Failure::new(code.unwrap_or(ExitCode::Internal), text)
}

/// A coordinator that ended while it was being set up has said why.
pub(super) fn with_cause(failure: Failure, coordinator: &mut Daemon) -> Failure {
    match coordinator.ended() {
        Some(status) if failure.code() == ExitCode::Unreachable => {
            not_started(&coordinator.name, &coordinator.last_words(), &coordinator.log(), status)
        }
        _ => failure,
    }
}

/// Makes the projects with their applications and workunits, and says what agents may do.
pub(super) async fn projects(
    site: &DemoDirectory,
    agents: u32,
    client: &mut Client,
    reporter: &Reporter,
) -> Result<(), Failure> {
    let document =
        client.get_document(GetDocumentRequest::default()).await?.into_inner().document.unwrap_or_default();
    if document.version == 0 {
        let preferences = Some(to_set(&preferences(site.wanted, agents)));
        client.set_preferences(SetPreferencesRequest { preferences, ..Default::default() }).await?;
    }
    let existing = client.list_projects(ListProjectsRequest {}).await?.into_inner().projects;
    for plan in site.wanted.projects() {
        let made = existing.iter().find(|project| project.name == plan.name);
        if made.is_none() {
            let request = CreateProjectRequest {
                code_sign_key: String::new(),
                name: plan.name.to_owned(),
                share: plan.share,
                request_delay_micros: REQUEST_DELAY.as_micros(),
                settings: vec![Setting { key: "poll".to_owned(), value: POLL_SETTING.to_owned() }],
                emergency: false,
            };
            client.create_project(request).await?;
        }
        application(site, client, &plan).await?;
        let (name, count) = (plan.name, plan.workunits.len());
        if made.is_none_or(|project| project.workunits < count as u64) {
            // Under one key: a start that was cut off here is completed by the next.
            let drafts: Vec<PendingWorkunit> =
                plan.workunits.into_iter().map(PendingWorkunit::from).collect();
            let again = "start it again";
            let why = Why::default();
            Submission { project: name, key: "up", drafts: &drafts, again, why: &why }.send(client).await?;
            reporter
                .say("project", &format!("project {name}: {count} workunits, each computed on two hosts"));
        } else {
            reporter.say("project", &format!("project {name} goes on where it was"));
        }
    }
    Ok(())
}

async fn application(site: &DemoDirectory, client: &mut Client, plan: &ProjectPlan) -> Result<(), Failure> {
    let request = AddAppVersionRequest {
        project: plan.name.to_owned(),
        application: plan.name.to_owned(),
        friendly_name: plan.friendly_name.to_owned(),
        version: 100,
        platform: PLATFORM.to_owned(),
        ..AddAppVersionRequest::default()
    };
    match upload::add_app_version(client, request, &[site.binary(plan.name)], None, &Why::default()).await {
        Err(UploadError::Status(status)) if status.code() == Code::AlreadyExists => Ok(()),
        Err(refused) => Err(refused.into()),
        Ok(_) => Ok(()),
    }
}

/// One CPU for each agent, work for a minute and a half, quick turns: so that much happens in ten minutes.
fn preferences(wanted: DemoSize, agents: u32) -> Preferences {
    let (buffer_min, buffer_additional) = wanted.buffers(agents);
    Preferences {
        cpu_fraction: Fraction::clamped(1.0 / f64::from(cpus())),
        buffer_min,
        buffer_additional,
        scheduling_period: wanted.scheduling_period(),
        checkpoint_period: Span::from_secs(5),
        leave_in_memory: true,
        // Whoever asked for it sits at this very machine.
        run_in_use: true,
        run_gpu_in_use: true,
        // A demonstration needs little, and disks of test machines are often nearly full.
        disk_fraction: Fraction::ONE,
        disk_free_min: fallow_domain::Bytes::from_mebibytes(10),
        ..Preferences::default()
    }
}

/// CPUs of the machine: those that are there, however few of them this process may use, as an agent that is
/// started by hand may be allowed more.
fn cpus() -> u32 {
    let listed = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let listed = listed.lines().filter(|line| line.starts_with("processor")).count();
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(listed.max(allowed)).unwrap_or(u32::MAX)
}

/// Starts the agents, or finds them running. New ones get a token each.
pub(super) async fn agents(
    daemons: &mut Daemons,
    client: &mut Client,
    reporter: &Reporter,
) -> Result<(), Failure> {
    let mut enrolling = Vec::new();
    for agent in &mut daemons.agents {
        if agent.adopt() {
            reporter.say("agent", &format!("{} of an earlier run still runs and is used", agent.name));
            continue;
        }
        if agent.dir().join("identity.json").exists() {
            agent.start(&[])?;
            continue;
        }
        let request = CreateTokensRequest { count: 1, ..CreateTokensRequest::default() };
        let tokens = client.create_tokens(request).await?.into_inner().strings;
        let path = agent.dir().with_extension("token");
        write_token(&path, &tokens.concat())?;
        let more = ["--token-file", &path.to_string_lossy()];
        agent.start(&more.map(str::to_owned))?;
        enrolling.push(path);
    }
    // A token is no use once its agent has an identity; until then a restart by hand needs it.
    let end = Instant::now() + ENROL;
    for agent in &mut daemons.agents {
        while !agent.dir().join("identity.json").exists() {
            if let Some(status) = agent.ended() {
                return Err(not_started(&agent.name, &agent.last_words(), &agent.log(), status));
            }
            if Instant::now() > end {
                let text = format!(
                    "{} did not enrol in {} s: see {}",
                    agent.name,
                    ENROL.as_secs(),
                    agent.log().display()
                );
                return Err(Failure::new(ExitCode::Unreachable, text));
            }
            sleep(POLL).await;
        }
    }
    for path in enrolling {
        // It is spent; that it lies there does no harm.
        let _ = std::fs::remove_file(path);
    }
    let pids: Vec<_> =
        daemons.agents.iter().filter_map(|agent| agent.pid()).map(|pid| pid.to_string()).collect();
    reporter.say("agents", &format!("{} agents run (processes {})", pids.len(), pids.join(", ")));
    Ok(())
}

fn write_token(path: &Path, token: &str) -> Result<(), Failure> {
    fallow_daemon::file::write_whole(path, format!("{token}\n").as_bytes(), 0o600)
        .map_err(|error| Failure::file("write", path, error))
}
