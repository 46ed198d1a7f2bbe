//! The process that talks to drivers: `fallow-agent gpus`.
//!
//! It looks once, or again and again and then says only what has changed. A look that takes too long is the
//! end of it: a second thread says so, for the first one hangs in the driver. It also ends with its standard
//! input, that is with the agent.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::others::Others;
use super::{Look, Said, nvml};
use crate::sys;

/// After so many looks the library is set up anew: it finds new devices only then.
const LOOKS_OF_ONE: u32 = 30;

/// How it looks.
#[derive(Clone, Copy, Debug)]
pub struct Looks<'a> {
    /// Where NVIDIA's management library is, if not where the system's loader finds it.
    pub library: Option<&'a Path>,
    /// Where OpenCL's library is, if not there.
    pub opencl: Option<&'a Path>,
    /// Where sysfs is.
    pub sysfs: &'a Path,
    /// How often; once if it is not said.
    pub every: Option<Duration>,
    /// How long one may take.
    pub limit: Duration,
    /// End when standard input does.
    pub while_stdin_is_open: bool,
}

/// Looks, and says what it found on standard output.
///
/// # Errors
/// An I/O error of the operating system, when nobody can be told.
pub fn run(looks: Looks<'_>) -> io::Result<()> {
    let mut said = only_output()?;
    let watchdog = said.try_clone()?;
    // Since when a look is under way.
    static BEGUN: Mutex<Option<Instant>> = Mutex::new(None);
    let limit = looks.limit;
    std::thread::spawn(move || watch(&BEGUN, limit, watchdog));
    if looks.while_stdin_is_open {
        std::thread::spawn(|| {
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            sys::exit_at_once(0);
        });
    }
    let mut library = None;
    let mut others = Others::new(looks.opencl, looks.sysfs, limit);
    let mut told: Option<Look> = None;
    for number in 0_u32.. {
        *fallow_daemon::lock(&BEGUN) = Some(Instant::now());
        if number % LOOKS_OF_ONE == 0 {
            // Before it is loaded again.
            drop(library.take());
        }
        let look = look(&mut library, looks.library);
        let seen = others.look();
        *fallow_daemon::lock(&BEGUN) = None;
        // OpenCL, which is asked here, has a limit of its own.
        match look.map(|look| others.beside(look, seen).cleaned()) {
            Ok(look) => {
                if !told.as_ref().is_some_and(|before| before.tells_as_much_as(&look)) {
                    say(&mut said, &Said::Look(look.clone()))?;
                    told = Some(look);
                }
            }
            Err(why) => {
                say(&mut said, &Said::Trouble(why))?;
                return Ok(());
            }
        }
        match looks.every {
            Some(every) => std::thread::sleep(every),
            None => break,
        }
    }
    Ok(())
}

/// Standard output, which from now on is nobody else's in this process: what a library prints must not pass
/// for what is said here.
pub(super) fn only_output() -> io::Result<File> {
    let said = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    let nowhere = File::options().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    Ok(File::from(said))
}

fn look(library: &mut Option<nvml::Library>, path: Option<&Path>) -> Result<Look, String> {
    if let Some(path) = path {
        super::check_library(path)?;
    }
    if library.is_none() {
        *library = nvml::load(path)?;
    }
    Ok(match library {
        Some(library) => library.look()?,
        None => Look::default(),
    })
}

/// Ends the process when a look takes too long.
fn watch(begun: &Mutex<Option<Instant>>, limit: Duration, mut said: File) {
    loop {
        let left = match *fallow_daemon::lock(begun) {
            Some(at) => limit.checked_sub(at.elapsed()),
            None => Some(limit),
        };
        let Some(left) = left.filter(|left| !left.is_zero()) else {
            let why = format!("the driver has not answered for {} s", limit.as_secs_f32());
            let _ = say(&mut said, &Said::Trouble(why));
            sys::exit_at_once(3);
        };
        std::thread::sleep(left);
    }
}

fn say(to: &mut File, said: &Said) -> io::Result<()> {
    let mut line = serde_json::to_string(said)?;
    line.push('\n');
    to.write_all(line.as_bytes())
}
