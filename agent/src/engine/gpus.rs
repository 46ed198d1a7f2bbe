//! When GPUs are looked at: at the start, now and then, and every few seconds while the client wants to know
//! who uses them (R3.14, R3.15).
//!
//! Model: who looks is a process of its own (`host::gpu`), started here, heard here, and ended when it is not
//! wanted any more. While it looks again and again, it says only what has changed, so the agent sleeps. One
//! that ends badly or says nothing is started again later, less and less often; from its second failure in a
//! row on the host has no GPUs, until one succeeds. Where OpenCL alone cannot be asked, what it said before
//! holds, until the next such process cannot ask it either. Where nothing hints at a GPU, none is started.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use fallow_client::{Client, DeviceTemperature, DeviceUser};
use fallow_domain::{Coprocessor, ResourceType};
use fallow_policy::backoff::Backoff;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use crate::host::gpu::{self, LINE_MAX, Look, Said, Sources, strangers, unseen};
use crate::sys::{self, Urgency};

/// How often it is looked while nobody has to know more.
const REPEAT: Duration = Duration::from_secs(600);
/// How long the process lets a look take.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// How long it has to say something first; it ends by itself before.
const FIRST_MAX: Duration = Duration::from_secs(15);
/// How long the start of the agent waits for it.
const START_MAX: Duration = Duration::from_secs(3);
/// After how long it is tried again; twice as long after each failure.
const RETRY: Backoff =
    Backoff { first: fallow_domain::Duration::from_secs(5), max: fallow_domain::Duration::from_hours(1) };

/// What came of it.
#[derive(Debug)]
pub(super) enum Turn {
    /// It was looked, and this is there.
    Looked(Look),
    /// It could not be looked.
    Failed,
}

/// Who looks, and what was found last.
pub(super) struct Gpus {
    program: PathBuf,
    sources: Sources,
    /// How often it is to be looked; now and then if it is not said.
    every: Option<Duration>,
    looking: Option<Looking>,
    due: Instant,
    failures: u32,
    /// Processes in a row that could not ask OpenCL.
    opencl_failures: u32,
    found: Vec<Coprocessor>,
}

/// A process that looks. It ends when this is dropped.
struct Looking {
    said: mpsc::Receiver<Result<Look, String>>,
    /// It could not ask OpenCL.
    lacks_opencl: bool,
    reader: JoinHandle<()>,
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Gpus {
    /// `program` is `fallow-agent` itself.
    pub(super) fn new(program: PathBuf, sources: Sources) -> Self {
        Self {
            program,
            sources,
            every: None,
            looking: None,
            due: Instant::now(),
            failures: 0,
            opencl_failures: 0,
            found: Vec::new(),
        }
    }

    /// The first look, if it is over soon. It goes on otherwise, and nothing waits for it.
    pub(super) async fn at_start(&mut self) -> Vec<Coprocessor> {
        if gpu::is_worth_looking(&self.sources) {
            let _ = timeout(START_MAX, self.turn()).await;
        }
        self.found()
    }

    /// What was found last.
    pub(super) fn found(&self) -> Vec<Coprocessor> {
        self.found.clone()
    }

    /// Looks so often from now on.
    pub(super) fn watch(&mut self, every: Option<Duration>) {
        self.every = every;
        self.looking = None;
        self.due = Instant::now() + if every.is_some() { Duration::ZERO } else { REPEAT };
    }

    /// Waits for what is found. May be dropped and called again.
    pub(super) async fn turn(&mut self) -> Turn {
        loop {
            let Some(looking) = &mut self.looking else {
                sleep_until(self.due).await;
                match gpu::is_worth_looking(&self.sources) {
                    true => self.looking = Some(self.start()),
                    false => self.due = Instant::now() + REPEAT,
                }
                continue;
            };
            match looking.said.recv().await {
                Some(Ok(look)) => {
                    self.failures = 0;
                    match &look.opencl_trouble {
                        None => self.opencl_failures = 0,
                        Some(_) if looking.lacks_opencl => {}
                        Some(why) => {
                            looking.lacks_opencl = true;
                            self.opencl_failures = self.opencl_failures.saturating_add(1);
                            tracing::warn!(why, "OpenCL cannot be asked for GPUs");
                        }
                    }
                    let look = match self.opencl_failures {
                        1 => look.remembering(&self.found),
                        _ => look,
                    };
                    if self.every.is_none() {
                        self.looking = None;
                        self.due = Instant::now() + REPEAT;
                    }
                    self.found.clone_from(&look.coprocessors);
                    return Turn::Looked(look);
                }
                other => {
                    let why = other.and_then(Result::err).unwrap_or_else(|| "nothing was said".to_owned());
                    self.failures = self.failures.saturating_add(1);
                    let wait = Duration::from(RETRY.interval(self.failures));
                    tracing::warn!(why, "cannot look at GPUs; trying again in {} s", wait.as_secs());
                    self.looking = None;
                    self.due = Instant::now() + wait;
                    if self.failures > 1 {
                        self.found.clear();
                        return Turn::Failed;
                    }
                }
            }
        }
    }

    fn start(&self) -> Looking {
        let mut command = Command::new(&self.program);
        command.args(["gpus", "--while-stdin-is-open", "--limit-ms"]).arg(LOOK_MAX.as_millis().to_string());
        if let Some(every) = self.every {
            command.arg("--every-ms").arg(every.as_millis().to_string());
        }
        let Sources { nvml, opencl, sysfs } = &self.sources;
        if let Some(library) = nvml {
            command.arg("--nvml-library").arg(library);
        }
        if let Some(library) = opencl {
            command.arg("--opencl-library").arg(library);
        }
        if sysfs != Path::new(gpu::SYSFS) {
            command.arg("--sysfs").arg(sysfs);
        }
        command.env_clear().current_dir("/").stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        // Some systems have the driver's library where only this leads.
        if let Some(path) = std::env::var_os("LD_LIBRARY_PATH") {
            command.env("LD_LIBRARY_PATH", path);
        }
        sys::isolate(&mut command, Urgency::Low, None);
        let (to, said) = mpsc::channel(4);
        let reader = tokio::spawn(async move {
            if let Err(why) = hear(command, &to).await {
                let _ = to.send(Err(why)).await;
            }
        });
        Looking { said, lacks_opencl: false, reader }
    }
}

/// Runs the process and passes on what it says.
async fn hear(command: Command, to: &mpsc::Sender<Result<Look, String>>) -> Result<(), String> {
    let fail = |error: std::io::Error| format!("the process that looks at them: {error}");
    let mut child = tokio::process::Command::from(command).kill_on_drop(true).spawn().map_err(fail)?;
    // Held open until it has ended: by its end it knows that the agent is gone.
    let _line = child.stdin.take();
    let out = child.stdout.take().ok_or("it has no output")?;
    let mut out = BufReader::new(out);
    let mut first = true;
    loop {
        let line = match first {
            true => timeout(FIRST_MAX, line(&mut out)).await.map_err(|_| "it says nothing".to_owned())?,
            false => line(&mut out).await,
        };
        let Some(line) = line.map_err(fail)? else { break };
        first = false;
        let said =
            serde_json::from_slice(&line).map_err(|error| format!("what it says is nonsense: {error}"))?;
        match said {
            Said::Look(look) => to.send(Ok(look.cleaned())).await.map_err(|error| error.to_string())?,
            Said::Trouble(why) => return Err(fallow_domain::printable::line(&why, 500)),
        }
    }
    let status =
        timeout(LOOK_MAX, child.wait()).await.map_err(|_| "it does not end".to_owned())?.map_err(fail)?;
    match status.success() && !first {
        true => Ok(()),
        false => Err(format!("the process that looks at them ended with {status}")),
    }
}

/// The next line; none at the end. One that is too long is an error.
async fn line(out: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    out.take(LINE_MAX as u64 + 1).read_until(b'\n', &mut line).await?;
    match line.last() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(line)),
        Some(_) => Err(std::io::Error::other("a line of it has no end")),
    }
}

/// How hot devices are.
pub(super) fn temperatures(look: &Look) -> Vec<DeviceTemperature> {
    let of = |gpu::Temperature { kind, address, degrees }: &gpu::Temperature| DeviceTemperature {
        kind: *kind,
        address: address.clone(),
        degrees: *degrees,
    };
    look.temperatures.iter().map(of).collect()
}

/// Those who use devices and are none of the client's tasks.
pub(super) fn users(client: &Client, look: &Look, dir: &Path) -> Vec<DeviceUser> {
    let mut users = Vec::new();
    if !look.processes.is_empty() {
        let leaders: BTreeSet<u32> = client.task_views().into_iter().filter_map(|view| view.pid).collect();
        users = tokio::task::block_in_place(|| strangers(&look.processes, &leaders, dir));
    }
    if !look.loads.is_empty() {
        let held = client.device_views().into_iter().filter(|view| !view.jobs.is_empty());
        let held: BTreeSet<(ResourceType, String)> =
            held.map(|view| (view.device.kind(), view.address)).collect();
        users.extend(unseen(look, &users, &held));
    }
    users
}
