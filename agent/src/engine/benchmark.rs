//! When the host's speed is measured: a while after the start, and again when the figure is a month old (as
//! BOINC does).
//!
//! Model: the agent begins with what it knows or with a glance, so nothing waits for a measurement. That is a
//! process of its own, in a session of its own at idle priority, which ends with the agent. The client has
//! the tasks wait meanwhile, or does not have it measured now. A measurement that got too little CPU time is
//! tried again later, less and less often: the owner's programs may keep all CPUs busy for days.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use fallow_client::Benchmarks;
use fallow_domain::HostSpeed;
use fallow_policy::backoff::Backoff;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::host::SPEED_AGE_MAX;
use crate::sys::{self, Urgency};

/// After how long it is tried again; twice as long after each that came to nothing.
const RETRY: Backoff =
    Backoff { first: fallow_domain::Duration::from_secs(600), max: fallow_domain::Duration::from_hours(24) };

/// What is to be done.
pub(super) enum Turn {
    /// It is time to measure: [`Benchmark::start`] if the client wants it, else [`Benchmark::postpone`].
    Due,
    /// This came of it, if anything.
    Measured(Option<HostSpeed>),
}

/// The measurement, under way or to come.
pub(super) struct Benchmark {
    program: PathBuf,
    phase: Duration,
    due: Instant,
    /// So many in a row came to nothing.
    failures: u32,
    running: JoinSet<std::io::Result<HostSpeed>>,
}

impl Benchmark {
    /// `program` is `fallow-agent` itself. Begins `after` this, or when the figure that is known is old.
    pub(super) fn new(
        program: PathBuf,
        phase: Duration,
        after: Duration,
        known: &HostSpeed,
        now: f64,
    ) -> Self {
        let due = Instant::now() + after.max(left(known, now));
        Self { program, phase, due, failures: 0, running: JoinSet::new() }
    }

    /// Waits for what is to be done. May be dropped and called again.
    pub(super) async fn turn(&mut self) -> Turn {
        if self.running.is_empty() {
            sleep_until(self.due).await;
            return Turn::Due;
        }
        let measured = match self.running.join_next().await {
            Some(Ok(Ok(speed))) => Ok(speed),
            Some(Ok(Err(error))) => Err(error.to_string()),
            Some(Err(error)) if error.is_cancelled() => {
                self.postpone();
                return Turn::Measured(None);
            }
            Some(Err(error)) => Err(error.to_string()),
            None => Err("nothing ran".to_owned()),
        };
        match measured {
            Ok(speed) => {
                self.due = Instant::now() + Duration::from_secs_f64(SPEED_AGE_MAX);
                self.failures = 0;
                Turn::Measured(Some(speed))
            }
            Err(why) => {
                self.failures = self.failures.saturating_add(1);
                let wait = Duration::from(RETRY.interval(self.failures));
                let again = format!("trying again in {} min", wait.as_secs() / 60);
                tracing::warn!(why, "the speed of the CPUs could not be measured; {again}");
                self.due = Instant::now() + wait;
                Turn::Measured(None)
            }
        }
    }

    /// How the next one begins.
    pub(super) const fn begins(&self) -> Benchmarks {
        if self.failures == 0 { Benchmarks::Begin } else { Benchmarks::Retry }
    }

    /// Somebody wants the CPUs for himself: it ends at once, if it goes on.
    pub(super) fn give_up(&mut self) {
        self.running.abort_all();
    }

    /// Not now.
    pub(super) fn postpone(&mut self) {
        self.due = Instant::now() + Duration::from(RETRY.first);
    }

    /// Begins.
    pub(super) fn start(&mut self) {
        let mut command = Command::new(&self.program);
        command
            .arg("benchmark")
            .arg("--phase-ms")
            .arg(self.phase.as_millis().to_string())
            .arg("--while-stdin-is-open")
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        sys::isolate(&mut command, Urgency::Idle, None);
        self.running.spawn(run(command));
    }
}

/// How long a figure is good for.
fn left(known: &HostSpeed, now: f64) -> Duration {
    let age = now - known.measured_at;
    // One from the future was measured under a wrong clock.
    if (0.0..SPEED_AGE_MAX).contains(&age) {
        Duration::try_from_secs_f64(SPEED_AGE_MAX - age).unwrap_or_default()
    } else {
        Duration::ZERO
    }
}

async fn run(command: Command) -> std::io::Result<HostSpeed> {
    let mut command = tokio::process::Command::from(command);
    let mut child = command.kill_on_drop(true).spawn()?;
    // Held open until it has ended: by its end it knows that the agent is gone.
    let _line = child.stdin.take();
    yields(child.id()).await;
    let output = child.wait_with_output().await?;
    serde_json::from_slice(&output.stdout)
        .map_err(|_| std::io::Error::other("the CPUs were too busy with something else"))
}

/// Sees to it that its session yields, also where a task of an ordinary user has just been started: the
/// kernel lets one in a tenth of a second have its way.
async fn yields(pid: Option<u32>) {
    for _ in 0..100 {
        if pid.is_none_or(|pid| sys::lower_group(pid, Urgency::Idle)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fallow_domain::Speed;

    /// Shows R6.2.
    #[tokio::test]
    async fn a_measurement_that_comes_to_nothing_is_tried_less_and_less_often_down_to_once_a_day() {
        let one = Speed::new(1.0).unwrap();
        let known = HostSpeed { fpops: one, iops: one, membw: 1e9, measured_at: 0.0 };
        // A program that gives no figures.
        let mut benchmark = Benchmark::new("/bin/true".into(), Duration::ZERO, Duration::ZERO, &known, 1e9);
        let mut waits = Vec::new();
        for round in 0..10 {
            assert_eq!(benchmark.begins() == Benchmarks::Begin, round == 0, "round {round}");
            benchmark.start();
            let before = Instant::now();
            assert!(matches!(benchmark.turn().await, Turn::Measured(None)));
            let wait = benchmark.due.duration_since(before);
            waits.push(wait.as_secs() / 600);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 144, 144]);
    }

    #[test]
    fn a_figure_is_good_for_a_month_and_one_from_the_future_for_nothing() {
        let one = Speed::new(1.0).unwrap();
        let known = HostSpeed { fpops: one, iops: one, membw: 1e9, measured_at: 1e9 };
        assert_eq!(left(&known, 1e9).as_secs_f64(), SPEED_AGE_MAX);
        assert_eq!(left(&known, 1e9 + SPEED_AGE_MAX - 5.0), Duration::from_secs(5));
        assert_eq!(left(&known, 1e9 + SPEED_AGE_MAX), Duration::ZERO);
        assert_eq!(left(&known, 1e9 - 1.0), Duration::ZERO);
    }
}
