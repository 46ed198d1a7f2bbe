//! What the commands do.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::CommandFactory;
use fallow_boinc::account::{AccountOut, error_num, lookup_query, passwd_hash};
use fallow_client::TransferErrorKind;
use fallow_domain::{AccountKey, MasterUrl, Share};
use fallow_telemetry::Service;

use crate::cli::{Attach, Cli, Command, DirArg, ProjectArg, Run, Status};
use crate::control::client::ask;
use crate::control::protocol::Request;
use crate::dir::DataDir;
use crate::engine::{self, Enrolment, Settings};
use crate::error::AgentError;
use crate::transfer::Web;
use crate::{clock, guard};

/// Longest file that holds a key, a token or a password.
const SECRET_MAX: u64 = 4096;
/// How long `stop` waits: tasks may take a minute to leave.
const STOP: Duration = Duration::from_secs(90);

/// Does what the command line asks for.
///
/// # Errors
/// [`AgentError`], which knows its exit code.
pub fn execute(cli: Cli) -> Result<(), AgentError> {
    match cli.command {
        Command::Run(arguments) => run(&arguments),
        Command::Status(arguments) => status(&arguments),
        Command::Attach(arguments) => attach(&arguments),
        Command::Detach(ProjectArg { dir, url }) => tell(&dir, &Request::Detach { url }),
        Command::Update(ProjectArg { dir, url }) => tell(&dir, &Request::Update { url }),
        Command::Suspend(dir) => tell(&dir, &Request::Suspend {}),
        Command::Resume(dir) => tell(&dir, &Request::Resume {}),
        Command::Stop(dir) => stop(&dir.dir()),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "fallow-agent", &mut std::io::stdout());
            Ok(())
        }
        Command::Man => clap_mangen::Man::new(Cli::command())
            .render(&mut std::io::stdout())
            .map_err(|error| AgentError::system("cannot write the manual page", error)),
        Command::Guard { mark, grace_ms } => {
            guard::watch(std::io::stdin().lock(), &mark, Duration::from_millis(grace_ms));
            Ok(())
        }
    }
}

fn run(arguments: &Run) -> Result<(), AgentError> {
    let dir = arguments.dir.dir();
    let enrolment = arguments.coordinator.as_ref().map(|coordinator| {
        let token = token(arguments, &dir)?;
        Ok::<_, AgentError>(Enrolment { coordinator: coordinator.clone(), token })
    });
    let settings = Settings {
        dir,
        enrolment: enrolment.transpose()?,
        guard: own_program(),
        guard_grace: Duration::from_millis(arguments.guard_grace_ms),
        stop_grace: Duration::from_millis(arguments.stop_grace_ms),
    };
    let opened = engine::open(settings)?;
    let service = Service {
        name: "fallow-agent",
        version: env!("CARGO_PKG_VERSION"),
        instance_id: opened.instance_id(),
    };
    let telemetry =
        fallow_telemetry::init(&service).map_err(|error| AgentError::bad_input(error.to_string()))?;
    let result = runtime()?.block_on(engine::run(opened));
    if let Err(error) = &result {
        tracing::error!(%error, "the agent ends");
    }
    telemetry.shutdown();
    result
}

fn token(arguments: &Run, dir: &DataDir) -> Result<Option<String>, AgentError> {
    match &arguments.token_file {
        // The file may be gone once it has served.
        Some(file) => match secret(file, "token") {
            Err(_) if dir.identity().exists() => Ok(None),
            other => other.map(Some),
        },
        None => {
            Ok(arguments.token.clone().map(|token| token.trim().to_owned()).filter(|token| !token.is_empty()))
        }
    }
}

/// The very program that runs, also when its file was replaced meanwhile.
fn own_program() -> PathBuf {
    std::env::current_exe()
        .ok()
        .filter(|path| path.exists())
        .unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
}

fn runtime() -> Result<tokio::runtime::Runtime, AgentError> {
    tokio::runtime::Builder::new_multi_thread()
        // One turns the client, one moves bytes: an agent is to be light.
        .worker_threads(2)
        .thread_name("agent")
        .enable_all()
        .build()
        .map_err(|error| AgentError::system("cannot start the runtime", error))
}

fn tell(dir: &DirArg, request: &Request) -> Result<(), AgentError> {
    let (text, _) = ask(&dir.dir(), request)?;
    say(&text)
}

fn status(arguments: &Status) -> Result<(), AgentError> {
    let status = match ask(&arguments.dir.dir(), &Request::Status {}) {
        Ok((_, Some(status))) => status,
        Ok((_, None)) => return Err(AgentError::unreachable("the agent answers without a status")),
        Err(error @ AgentError::Unreachable { .. }) if arguments.json => {
            say(r#"{"running":false}"#)?;
            return Err(error);
        }
        Err(error) => return Err(error),
    };
    if !arguments.json {
        return say(status.text(clock::now()).trim_end());
    }
    let mut value = serde_json::to_value(&status).unwrap_or_default();
    if let Some(object) = value.as_object_mut() {
        object.insert("running".to_owned(), true.into());
    }
    say(&serde_json::to_string_pretty(&value).unwrap_or_default())
}

fn attach(arguments: &Attach) -> Result<(), AgentError> {
    let url =
        MasterUrl::parse(&arguments.project.url).map_err(|error| AgentError::bad_input(error.to_string()))?;
    let account_key = match (&arguments.account_key_file, &arguments.email, &arguments.password_file) {
        (Some(file), ..) => AccountKey::new(secret(file, "account key")?),
        (None, Some(email), Some(file)) => {
            runtime()?.block_on(look_up(&url, email, &secret(file, "password")?))?
        }
        _ => match std::env::var("FALLOW_ACCOUNT_KEY") {
            Ok(key) if !key.trim().is_empty() => AccountKey::new(key.trim()),
            _ => {
                return Err(AgentError::bad_input(
                    "no account is named: give --account-key-file FILE, or FALLOW_ACCOUNT_KEY, or --email and --password-file",
                ));
            }
        },
    };
    // JSON has no word for NaN and infinities: they would reach the agent as "none given".
    if let Some(share) = arguments.share {
        Share::new(share).map_err(|error| AgentError::bad_input(error.to_string()))?;
    }
    let request = Request::Attach { url: url.to_string(), account_key, share: arguments.share };
    tell(&arguments.project.dir, &request)
}

/// Asks a project for an account's key.
async fn look_up(url: &MasterUrl, email: &str, password: &str) -> Result<AccountKey, AgentError> {
    let web = Web::new().map_err(AgentError::unreachable)?;
    let query = format!("{url}{}", lookup_query(email, &passwd_hash(password, email)));
    let page = web.page(&query).await.map_err(|error| match error.kind {
        // The query holds the password's hash, which is as good as the password: it is not shown.
        TransferErrorKind::Permanent => {
            AgentError::bad_input(format!("{url} does not look up accounts: is it a project's URL?"))
        }
        _ => AgentError::unreachable(format!("{url} does not answer: check the URL and the network")),
    })?;
    match AccountOut::parse(&page) {
        Ok(AccountOut::Authenticator(key)) => Ok(key),
        Ok(AccountOut::Exists) => {
            Err(AgentError::refused(format!("{url} knows the account, but gave no key")))
        }
        Ok(AccountOut::Error { num, message }) => Err(AgentError::refused(match num {
            error_num::NOT_FOUND => {
                format!("{url} knows no account of {email}: check the address, or create the account there")
            }
            error_num::BAD_PASSWD => format!("{url} does not accept the password of {email}"),
            _ => format!("{url} does not look up the account of {email}: {message} ({num})"),
        })),
        Err(error) => {
            Err(AgentError::bad_input(format!("{url} answers, but not as a project does: {error}")))
        }
    }
}

fn stop(dir: &DataDir) -> Result<(), AgentError> {
    let daemon = dir.daemon_file();
    let (text, _) = ask(dir, &Request::Stop {})?;
    let give_up = Instant::now() + STOP;
    while daemon.as_ref().is_some_and(crate::dir::DaemonFile::is_alive) {
        if Instant::now() > give_up {
            return Err(AgentError::unreachable(format!(
                "the agent in {} has not ended within {} s: look at its log",
                dir.path().display(),
                STOP.as_secs()
            )));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    say(&text.replace("is ending", "has ended"))
}

fn secret(file: &Path, what: &str) -> Result<String, AgentError> {
    let bad = |why: String| {
        AgentError::bad_input(format!("the {what} in {} cannot be used: {why}", file.display()))
    };
    let open = std::fs::File::open(file).map_err(|error| bad(error.to_string()))?;
    let mut text = String::new();
    std::io::Read::read_to_string(&mut std::io::Read::take(open, SECRET_MAX), &mut text)
        .map_err(|error| bad(error.to_string()))?;
    match text.trim() {
        "" => Err(bad("the file is empty".into())),
        text => Ok(text.to_owned()),
    }
}

fn say(text: &str) -> Result<(), AgentError> {
    match writeln!(std::io::stdout(), "{text}") {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|error| AgentError::system("cannot write to standard output", error)),
    }
}
