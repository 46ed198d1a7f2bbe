//! `fallow up`: a fleet on this machine, from nothing to validated results.
//!
//! A supervisor: it starts a coordinator and agents as processes of their own, gives them two projects with
//! work, shows what happens, and stops everything at the end. It owns no state of the fleet: it asks by the
//! operator API like any other tool. A daemon that dies is reported with the command that starts it again,
//! and all goes on; one that a person restarted is found by its `daemon.json`, and stopped at the end like
//! the others.
//!
//! A directory of an earlier run is continued: same ports, projects, workunits, agents. Asking for other work
//! in it is refused, because its workunits are already cut. A directory that is neither empty nor of an
//! earlier run is refused: a coordinator and agents that somebody runs there would be stopped at the end.

mod alarm;
mod daemon;
mod eta;
mod interrupt;
mod progress;
mod setup;
mod site;
mod space;
mod summary;
mod sweep;
mod watch;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode as ProcessExit;

use clap::Args;
use fallow_domain::ExitCode;

use crate::cli::{Client, Failure};
use daemon::Daemons;
use interrupt::Interrupts;
use progress::Reporter;
use site::DemoDirectory;
use watch::WatchEnd;

const EXAMPLE: &str = "\
Examples:
  fallow up --until-done
  fallow up --quick --until-done --dir /tmp/demo
  fallow up --agents 5 --exponents 2..20000        (Ctrl-C stops everything)

While it runs, in another terminal:
  fallow hosts; fallow projects; fallow shares set mersenne=25 totient=75

A process that was killed is started again by hand with the command that is
shown for it, such as
  fallow coordinator run --dir ./fallow-data/coordinator
  fallow-agent run --dir ./fallow-data/agent-2

A directory of an earlier run is continued; to begin anew, delete it or give
another --dir, one that is empty or does not exist yet. With --until-done it
ends with status 0 when all workunits are validated and 9 when one failed; after
Ctrl-C with 130.";

/// Options of `fallow up`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLE)]
pub struct UpArguments {
    /// Agents to run, each with one CPU; two at least, because each workunit is computed on two hosts.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = crate::cli::count(2, 64), allow_negative_numbers = true)]
    pub agents: u32,
    /// Exponents to test for Mersenne primes; the work of the other project is cut to fit.
    #[arg(long, value_name = "FROM..TO", value_parser = workload::exponents)]
    pub exponents: Option<(u64, u64)>,
    /// Two CPU minutes of work instead of more than ten.
    #[arg(long)]
    pub quick: bool,
    /// Ends when all work is done, instead of waiting for Ctrl-C.
    #[arg(long)]
    pub until_done: bool,
    /// Where everything is kept [default: FALLOW_DIR, else ./fallow-data].
    #[arg(long, default_value_os_t = crate::cli::root(), hide_default_value = true, value_name = "DIR")]
    pub dir: PathBuf,
    /// One JSON object per line, instead of text.
    #[arg(long)]
    pub json: bool,
}

/// What a shell gives for a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Runs the demonstration.
///
/// # Errors
/// [`Failure`] when it does not get going, or something is left at the end.
pub async fn run(arguments: UpArguments) -> Result<ProcessExit, Failure> {
    let mut interrupts = Interrupts::listen()?;
    let site = DemoDirectory::prepare(&arguments)?;
    let reporter = Reporter::new(arguments.json);
    let mut daemons = Daemons::new(&site, arguments.agents);
    let outcome = tokio::select! {
        outcome = work(&site, &mut daemons, &reporter, &arguments) => outcome,
        is_key = interrupts.next() => {
            if is_key {
                reporter.clear_after_key();
            }
            Ok(WatchEnd::Interrupted)
        }
    };
    reporter.clear();
    reporter.leave_figures();
    reporter.say("stopping", "stopping everything (Ctrl-C again kills)");
    tokio::select! {
        () = daemons.stop(&reporter) => {}
        _ = interrupts.next() => daemons.kill(&reporter).await,
    }
    let left = sweep::clean(site.dir(), &mut interrupts, &reporter).await;
    let end = outcome?;
    if left > 0 {
        let text = format!("{left} processes of {} could not be ended: see `ps`", site.dir().display());
        return Err(Failure::new(ExitCode::Internal, text));
    }
    reporter.say("stopped", "all processes have ended");
    Ok(match end {
        WatchEnd::Done => ExitCode::Success.into(),
        WatchEnd::Failed => ExitCode::JobsFailed.into(),
        WatchEnd::Interrupted if arguments.until_done => INTERRUPTED.into(),
        WatchEnd::Interrupted => ExitCode::Success.into(),
    })
}

async fn work(
    site: &DemoDirectory,
    daemons: &mut Daemons,
    reporter: &Reporter,
    arguments: &UpArguments,
) -> Result<WatchEnd, Failure> {
    reporter.say("directory", &format!("everything is in {}", site.dir().display()));
    let began = begin(site, daemons, reporter).await;
    let client = began.map_err(|failure| setup::with_cause(failure, &mut daemons.coordinator))?;
    watch::until_end(site.dir(), daemons, client, reporter, arguments.until_done).await
}

async fn begin(site: &DemoDirectory, daemons: &mut Daemons, reporter: &Reporter) -> Result<Client, Failure> {
    let mut client = setup::coordinator(site, daemons, reporter).await?;
    setup::projects(site, u32::try_from(daemons.agents.len()).unwrap_or(1), &mut client, reporter).await?;
    setup::agents(daemons, &mut client, reporter).await?;
    Ok(client)
}
