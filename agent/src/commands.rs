//! What the commands do.

use std::io::Write;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::CommandFactory;
use fallow_daemon::clock;
use fallow_domain::{Bytes, Device, MasterUrl, Share};
use fallow_store::StoreError;
use fallow_telemetry::Service;
use fallow_tls::{AccessString, Address, Proxies, Purpose};

use crate::cli::{
    Attach, AttachedArg, Cli, Command, DirArg, Disk, Exclude, Preferences, PreferencesCommand, Run, Snooze,
    Status,
};
use crate::confine::Allowed;
use crate::control::client::{ask, ask_at};
use crate::control::protocol::Request;
use crate::dir::DataDir;
use crate::engine::{self, Enrolment, Finished, Settings};
use crate::error::AgentError;
use crate::fleet::identity::Identity;
use crate::fleet::link::LinkStatus;
use crate::host::owner::{OwnerSensors, wayland_socket};
use crate::{account, control, guard, host, manual, preferences as files, sys};

/// Longest file that holds a key, a token or a password.
const SECRET_MAX: u64 = 4096;
/// What the store needs on its volume to be made and to go on, in megabytes.
const SPACE: u32 = 8;
/// How long an agent that has ended waits for looks at the machine that have not.
const LAST_LOOKS: Duration = Duration::from_secs(5);
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
        Command::Disk(arguments) => disk(&arguments),
        Command::Attach(arguments) => attach(&arguments),
        Command::Detach(AttachedArg { dir, project: url }) => tell(&dir, &Request::Detach { url }),
        Command::Update(AttachedArg { dir, project: url }) => tell(&dir, &Request::Update { url }),
        Command::Suspend(dir) => tell(&dir, &Request::Suspend {}),
        Command::Snooze(Snooze { dir, time }) => {
            let (text, _) = ask_as_anybody(
                &dir,
                &Request::Snooze { seconds: time.as_secs_f64().ceil() as u64, by: None },
            )?;
            say_about(&dir, &text)
        }
        Command::Resume(dir) => tell(&dir, &Request::Resume {}),
        Command::Exclude(arguments) => exclude(&arguments),
        Command::Preferences(arguments) => preferences(&arguments),
        Command::Stop(dir) => stop(&owned(&dir)?),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "fallow-agent", &mut text);
            say(String::from_utf8_lossy(&text).trim_end())
        }
        Command::Man => say(manual::page().trim_end()),
        Command::Benchmark { phase_ms, while_stdin_is_open } => {
            benchmark(Duration::from_millis(phase_ms), while_stdin_is_open)
        }
        Command::Gpus { nvml_library, opencl_library, sysfs, every_ms, limit_ms, while_stdin_is_open } => {
            let _ = sysfs_of(&sysfs)?;
            host::gpu::child::run(host::gpu::child::Looks {
                library: nvml_library.as_deref(),
                opencl: opencl_library.as_deref(),
                sysfs: &sysfs,
                every: every_ms.map(Duration::from_millis),
                limit: Duration::from_millis(limit_ms),
                while_stdin_is_open,
            })
            .map_err(|error| AgentError::system("cannot say what GPUs there are", error))
        }
        Command::Opencl { opencl_library } => host::gpu::opencl::run(opencl_library.as_deref())
            .map_err(|error| AgentError::system("cannot say what OpenCL says", error)),
        Command::Guard { mark, grace_ms, groups, users } => {
            // It waits from now on, for days.
            sys::give_back_code();
            let grace = Duration::from_millis(grace_ms);
            guard::watch(std::io::stdin().lock(), &mark, grace, groups.as_deref(), users);
            Ok(())
        }
    }
}

/// Measures the CPUs. Nothing may compute for an agent that is gone: its end is that of standard input.
fn benchmark(phase: Duration, while_stdin_is_open: bool) -> Result<(), AgentError> {
    if while_stdin_is_open {
        std::thread::spawn(|| {
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            std::process::exit(0);
        });
    }
    let why = || std::io::Error::other("hardly any CPU time was left for it");
    let speed = host::measure(phase).ok_or_else(|| AgentError::system("cannot measure the CPUs", why()))?;
    let text = serde_json::to_string(&speed)
        .map_err(|error| AgentError::system("cannot write the figures", std::io::Error::other(error)))?;
    say(&text)
}

fn run(arguments: &Run) -> Result<(), AgentError> {
    let dir = arguments.dir.dir();
    let coordinator = arguments.coordinator.as_deref().filter(|address| !address.trim().is_empty());
    let coordinator = coordinator.map(str::parse::<Address>).transpose();
    let enrolment = Enrolment {
        coordinator: coordinator.map_err(|error| AgentError::bad_input(error.to_string()))?,
        token: token(arguments, &dir)?,
        organisation: arguments.organisation.clone(),
    };
    let settings = Settings {
        dir,
        enrolment,
        proxies: Proxies::from_environment().map_err(|error| AgentError::bad_input(error.to_string()))?,
        guard: own_program(),
        policy: arguments.policy,
        allowed: Allowed { network: arguments.allow_network },
        require_confinement: arguments.require_confinement,
        root_without_confinement: arguments.root_without_confinement,
        unconfined: arguments.unconfined,
        without_layers: arguments.without_layers.clone(),
        guard_grace: Duration::from_millis(arguments.guard_grace_ms),
        stop_grace: Duration::from_millis(arguments.stop_grace_ms),
        benchmark_after: Duration::from_millis(arguments.benchmark_after_ms),
        benchmark_phase: Duration::from_millis(arguments.benchmark_phase_ms),
        gpus: host::gpu::Sources {
            nvml: driver_library(arguments.nvml_library.as_ref())?,
            opencl: driver_library(arguments.opencl_library.as_ref())?,
            sysfs: sysfs_of(&arguments.sysfs)?,
        },
        confirm_within: Duration::from_millis(arguments.confirm_within_ms),
        measure_disk: Duration::from_millis(arguments.measure_disk_ms),
        power: arguments.power_dir.clone(),
        interfaces: arguments.interfaces_dir.clone(),
        routes: arguments.routes_dir.clone(),
        memory: arguments.meminfo.clone(),
        look_every: Duration::from_millis(arguments.look_every_ms),
        layers_again: Duration::from_millis(arguments.layers_again_ms),
        people_socket: arguments.people_socket.clone(),
        owner: OwnerSensors {
            never_in_use: arguments.never_in_use,
            devices: arguments.devices_dir.clone(),
            bus: None,
            display: std::env::var("DISPLAY").ok().filter(|display| !display.is_empty()),
            wayland: wayland_socket(std::env::var_os("WAYLAND_DISPLAY"), std::env::var_os("XDG_RUNTIME_DIR")),
            session: std::env::var("XDG_SESSION_ID").ok().filter(|session| !session.is_empty()),
        },
    };
    let data = settings.dir.clone();
    let opened = engine::open(settings).map_err(|error| with_space_needed(error, &data))?;
    let service = Service {
        name: "fallow-agent",
        version: env!("CARGO_PKG_VERSION"),
        instance_id: opened.instance_id(),
    };
    let telemetry =
        fallow_telemetry::init(&service).map_err(|error| AgentError::bad_input(error.to_string()))?;
    let runtime = runtime()?;
    // On a thread that also waits for sockets and timers: an agent at rest wakes one thread, not two.
    let running = runtime.spawn(engine::run(opened));
    let result = match runtime.block_on(running) {
        Ok(result) => result,
        Err(error) => Err(AgentError::system("the agent ends by a fault of its own", error.into())),
    };
    if let Err(error) = &result
        && std::env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT").is_some()
    {
        // For the collector; whoever runs the command is told by `main`.
        tracing::error!(%error, "the agent ends");
    }
    telemetry.shutdown();
    // A look at a driver's file may never end, and nothing else is left to be waited for.
    runtime.shutdown_timeout(LAST_LOOKS);
    match result.map_err(|error| with_space_needed(error, &data))? {
        Finished::Asked => Ok(()),
        Finished::Separated => start_anew(),
    }
}

/// Where the owner says that a driver's library is, if he does.
fn driver_library(given: Option<&PathBuf>) -> Result<Option<PathBuf>, AgentError> {
    let given = given.filter(|path| !path.as_os_str().is_empty());
    if let Some(path) = given {
        host::gpu::check_library(path).map_err(AgentError::bad_input)?;
    }
    Ok(given.cloned())
}

/// Where sysfs is: the system's, or one that a test has made.
fn sysfs_of(given: &Path) -> Result<PathBuf, AgentError> {
    if given != Path::new(host::gpu::SYSFS) {
        host::gpu::check_dir(given).map_err(AgentError::bad_input)?;
    }
    Ok(given.to_path_buf())
}

/// This process begins again, by the same command line. Nothing of its life so far is left in it.
fn start_anew() -> Result<(), AgentError> {
    let mut arguments = std::env::args_os();
    let mut command = std::process::Command::new(own_program());
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    let error = command.args(arguments).exec();
    Err(AgentError::system(
        "the agent is another host now, and cannot start itself anew: start it again",
        error,
    ))
}

/// What a full disk means once nobody waits for space any more.
fn with_space_needed(error: AgentError, dir: &DataDir) -> AgentError {
    let AgentError::Store(StoreError::Full { .. }) = error else { return error };
    let megabytes = |bytes: u64| format!("{:.1} MB", Bytes(bytes).as_f64() / 1e6);
    let free = rustix::fs::statvfs(dir.path()).map_or_else(
        |_| "too little".to_owned(),
        |volume| megabytes(volume.f_bavail.saturating_mul(volume.f_frsize)),
    );
    AgentError::no_space(format!(
        "no space left for the agent in {}: {free} are free on its volume, and it needs {SPACE} MB there besides what the jobs \
         take. What it had stored is kept: free some space and start it again",
        dir.path().display()
    ))
}

fn token(arguments: &Run, dir: &DataDir) -> Result<Option<AccessString>, AgentError> {
    let (text, place) = match &arguments.token_file {
        // The file may be gone once it has served.
        Some(file) => match secret(file, "token") {
            Err(_) if dir.identity().exists() => return Ok(None),
            other => (other?, format!("the token in {}", file.display())),
        },
        None => {
            let given = arguments.token.clone().unwrap_or_default();
            (given, "the token that was given".to_owned())
        }
    };
    if text.trim().is_empty() {
        return Ok(None);
    }
    match AccessString::parse(&text, Purpose::Enrolment) {
        Ok(access) => Ok(Some(access)),
        // One of an earlier release has served, and is not needed any more.
        Err(_) if is_of_before(&text) && matches!(Identity::read(&dir.identity()), Ok(Some(_))) => Ok(None),
        Err(error) => Err(AgentError::bad_input(format!("{place}: {error}"))),
    }
}

/// Whether a token is of a release before coordinators had certificates: 64 hexadecimal digits.
fn is_of_before(token: &str) -> bool {
    let token = token.trim();
    token.len() == 64 && token.bytes().all(|byte| byte.is_ascii_hexdigit())
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
        .on_thread_park(sys::sleeps)
        .thread_keep_alive(sys::THREADS_STAY)
        .enable_all()
        .build()
        .map_err(|error| AgentError::system("cannot start the runtime", error))
}

fn tell(dir: &DirArg, request: &Request) -> Result<(), AgentError> {
    let (text, _) = ask(&owned(dir)?, request)?;
    say_about(dir, &text)
}

/// The directory of the agent that is meant, for what only its owner may ask.
///
/// # Errors
/// [`AgentError::Refused`] for somebody with no agent of his own who may ask that of the machine other
/// things.
fn owned(dir: &DirArg) -> Result<DataDir, AgentError> {
    let own = dir.dir();
    if !is_nobody_here(dir, &own) || !control::people::is_heard(&control::people::place()) {
        return Ok(own);
    }
    Err(AgentError::refused(format!(
        "no agent of yours runs ({}), and the agent of this machine is its administrator's: you may see its status and \
         snooze it (fallow-agent status, fallow-agent snooze 2h)",
        own.path().display()
    )))
}

/// Whether no directory is named, and no agent runs in the usual one. Root has the machine's there.
fn is_nobody_here(dir: &DirArg, own: &DataDir) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    dir.is_usual() && !(is_root && own.path().exists()) && !control::people::is_heard(&own.control_socket())
}

/// Asks for what anybody may ask: who has no agent of his own that runs, that of the machine.
fn ask_as_anybody(
    dir: &DirArg,
    request: &Request,
) -> Result<(String, Option<Box<control::status::Status>>), AgentError> {
    let (own, socket) = (dir.dir(), control::people::place());
    if !is_nobody_here(dir, &own) {
        return ask(&own, request);
    }
    if !socket.parent().is_some_and(Path::exists) {
        if own.path().exists() || rustix::process::geteuid().is_root() {
            return ask(&own, request);
        }
        // Somebody at the machine is not to start one only because he wants to know.
        return Err(AgentError::unreachable(format!(
            "no agent runs that you may ask: you have none of your own ({}), and this machine has none for everybody \
             ({} is not there). Its administrator knows whether one runs; name its directory with --dir if it is yours",
            own.path().display(),
            socket.display()
        )));
    }
    match ask_at(&socket, request) {
        // Neither answers: one's own is the one to be started.
        Err(AgentError::Unreachable { .. }) if own.path().exists() => ask(&own, request),
        other => other,
    }
}

/// One line of what runs and why. An agent of before says none: what it tells besides is enough for one.
fn line_of(status: &control::status::Status) -> String {
    match status.line.as_str() {
        "" => control::summary::line(status, clock::now(), &control::summary::WallClock::system()),
        line => line.to_owned(),
    }
}

fn status(arguments: &Status) -> Result<(), AgentError> {
    let status = match ask_as_anybody(&arguments.dir, &Request::Status {}) {
        Ok((_, Some(status))) => status,
        Ok((_, None)) => return Err(AgentError::unreachable("the agent answers without a status")),
        Err(error @ AgentError::Unreachable { .. }) if arguments.json => {
            say(r#"{"running":false}"#)?;
            return Err(error);
        }
        Err(error) => return Err(error),
    };
    if arguments.json {
        let mut value = serde_json::to_value(&status).unwrap_or_default();
        if let Some(object) = value.as_object_mut() {
            object.insert("running".to_owned(), true.into());
        }
        say(&serde_json::to_string_pretty(&value).unwrap_or_default())?;
    } else if arguments.line {
        say_about(&arguments.dir, &line_of(&status))?;
    } else {
        say_about(&arguments.dir, status.text(clock::now()).trim_end())?;
    }
    if !arguments.linked {
        return Ok(());
    }
    linked(status.fleet.as_ref())?;
    match &status.host.document_refused {
        None => Ok(()),
        Some((version, why)) => Err(AgentError::refused(format!(
            "this agent refused version {version} of the documents, the last that it was given: {why}; it follows version {}",
            status.host.document_version
        ))),
    }
}

/// Whether an agent has a link to its coordinator; as an error if not.
fn linked(fleet: Option<&LinkStatus>) -> Result<(), AgentError> {
    let Some(link) = fleet else {
        return Err(AgentError::unreachable(
            "this agent belongs to no fleet: there is no coordinator to be linked to",
        ));
    };
    let why = || {
        let why = link.last_error.as_deref().unwrap_or("it is still connecting");
        format!("no link to the coordinator at {}: {why}", link.coordinator)
    };
    match link.connected {
        true => Ok(()),
        false if link.refused => Err(AgentError::refused(why())),
        false => Err(AgentError::unreachable(why())),
    }
}

fn preferences(arguments: &Preferences) -> Result<(), AgentError> {
    match &arguments.what {
        Some(PreferencesCommand::Edit(dir)) => return say_about(dir, &files::edit(&editable(dir)?)?),
        Some(PreferencesCommand::Check { file }) => return say(&files::check(file)?),
        Some(PreferencesCommand::Reload(dir)) => return tell(dir, &Request::ReloadPreferences {}),
        Some(PreferencesCommand::Template) => return say(&files::give_template()),
        None => {}
    }
    let (_, status) = ask(&owned(&arguments.dir)?, &Request::Status {})?;
    let status = status.ok_or_else(|| AgentError::unreachable("the agent answers without a status"))?;
    if !arguments.json {
        let (all, troubles) = (&status.preferences, &status.preference_troubles);
        let text = control::preferences::text(all, troubles, status.host.lacking(), arguments.why);
        return say_about(&arguments.dir, text.trim_end());
    }
    let value = serde_json::json!({
        "preferences": status.preferences,
        "troubles": status.preference_troubles,
        "in_use": status.host.in_use,
        "suspended_by": status.host.suspended_by,
        "stopped_for": status.host.stopped_for,
        "lacks_layers": status.host.lacks_layers,
    });
    say(&serde_json::to_string_pretty(&value).unwrap_or_default())
}

/// The directory whose owner's file is edited: also one's own in which no agent runs now.
fn editable(dir: &DirArg) -> Result<DataDir, AgentError> {
    let own = dir.dir();
    if own.path().exists() { Ok(own) } else { owned(dir) }
}

fn disk(arguments: &Disk) -> Result<(), AgentError> {
    let disk = crate::control::client::ask_disk(&owned(&arguments.dir)?)?;
    match arguments.json {
        true => say(&serde_json::to_string_pretty(&disk).unwrap_or_default()),
        false => say_about(&arguments.dir, disk.text(clock::now(), arguments.why).trim_end()),
    }
}

fn attach(arguments: &Attach) -> Result<(), AgentError> {
    let url =
        MasterUrl::parse(&arguments.project.url).map_err(|error| AgentError::bad_input(error.to_string()))?;
    // JSON has no word for NaN and infinities: they would reach the agent as "none given".
    if let Some(share) = arguments.share {
        Share::given(share).map_err(|error| AgentError::bad_input(error.to_string()))?;
    }
    let no_wait = arguments.no_wait;
    let given = match (&arguments.account_key_file, std::env::var("FALLOW_ACCOUNT_KEY")) {
        (Some(file), _) => Some(account::checked(&secret(file, "account key")?)?),
        (None, Ok(key)) if arguments.email.is_none() && !key.trim().is_empty() => {
            Some(account::checked(&key)?)
        }
        _ => None,
    };
    // Before a project is asked on its behalf.
    ask(&owned(&arguments.project.dir)?, &Request::Status {})?;
    let account_key = match (&arguments.email, &arguments.password_file) {
        (Some(email), Some(file)) => {
            let password = secret(file, "password")?;
            Some(runtime()?.block_on(account::look_up(&url, email, &password))?)
        }
        _ if given.is_some() && !no_wait => {
            runtime()?.block_on(account::find_project(&url))?;
            given
        }
        _ => given,
    };
    let request = Request::Attach { url: url.to_string(), account_key, share: arguments.share, no_wait };
    tell(&arguments.project.dir, &request)
}

fn exclude(arguments: &Exclude) -> Result<(), AgentError> {
    let devices = Device::read_list(&arguments.devices.join(","))
        .map_err(|error| AgentError::bad_input(error.to_string()))?;
    tell(&arguments.dir, &Request::Exclude { devices })
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

/// Says what is so with the agent in a directory: commands in it are about the same one.
fn say_about(dir: &DirArg, text: &str) -> Result<(), AgentError> {
    match dir.named() {
        Some(dir) => say(&control::hints::about(dir, text)),
        None => say(text),
    }
}

fn say(text: &str) -> Result<(), AgentError> {
    match writeln!(std::io::stdout(), "{text}") {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::StorageFull => Err(AgentError::no_space(format!(
            "cannot write to standard output: {error}: free some space there"
        ))),
        other => other.map_err(|error| AgentError::system("cannot write to standard output", error)),
    }
}
