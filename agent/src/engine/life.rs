//! Turns the client until somebody wants the end, and has all tasks leave then.

use std::pin::pin;
use std::time::Duration as StdDuration;

use fallow_client::{Benchmarks, Event};
use fallow_domain::{HostFacts, HostSpeed, Virtualization};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, interval_at, sleep, timeout, timeout_at};

use super::benchmark::{Benchmark, Turn};
use super::gpus;
use super::signals::another;
use super::{Asked, Engine, Input};
use crate::dir::DataDir;
use crate::error::AgentError;
use crate::fleet::thread::LinkThread;
use crate::host::alarm::Alarm;
use crate::host::clock_set::ClockSet;
use crate::host::virtualization::Programs;
use crate::{confine, host};

/// How often the host is measured again.
const MEASURE: StdDuration = StdDuration::from_secs(600);
/// How long after its start, or after the first thing that it did since, an agent without tasks gives back
/// what it does not need at rest.
const AT_REST: StdDuration = StdDuration::from_secs(60);
/// How long somebody who has let computing go on waits for a look at what could keep it from that.
const LOOK_TAKES: StdDuration = StdDuration::from_secs(1);

/// The engine, what comes in for it, and what asks for its end.
pub(super) struct Life<'a> {
    pub(super) engine: &'a mut Engine,
    pub(super) incoming: mpsc::Receiver<Input>,
    pub(super) signals: watch::Receiver<u32>,
    pub(super) grace: StdDuration,
}

impl Life<'_> {
    /// Turns the client until somebody wants the end.
    pub(super) async fn compute(
        &mut self,
        dir: &DataDir,
        facts: HostFacts,
        mut benchmark: Benchmark,
    ) -> Result<(), AgentError> {
        let HostFacts { host_cpid, mut speed, mut coprocessors, mut virtualization, .. } = facts;
        let programs = Programs::of_system(!confine::keeps_programs(&self.engine.confinement.layers()));
        let mut looking = pin!({
            let known = virtualization.clone();
            async move { programs.look(known).await }
        });
        let mut has_looked = false;
        let mut clock_set = ClockSet::watch();
        let alarm = Alarm::new();
        let mut measure = interval_at(Instant::now() + MEASURE, MEASURE);
        let mut rest = pin!(sleep(AT_REST));
        let mut is_at_rest = false;
        loop {
            self.engine.keep_wishes().await?;
            let nap = self.engine.nap(clock_set.is_told());
            // All but the wake-ups of an agent that waits: they run little.
            let mut does_something = true;
            tokio::select! {
                biased;
                () = another(&mut self.signals) => {
                    tracing::info!("asked to end");
                    return Ok(());
                }
                Some(asked) = self.engine.requests.recv() => {
                    self.engine.serve(asked).await?;
                    self.tell_line().await?;
                }
                Some(input) = self.incoming.recv() => self.engine.take(input).await?,
                () = alarm.after(nap) => {
                    does_something = false;
                    self.engine.turn(Event::WakeUp, None).await?;
                }
                () = clock_set.changed() => {
                    if let Some(link) = &self.engine.link {
                        link.wake();
                    }
                    self.engine.turn(Event::WakeUp, None).await?;
                }
                _ = measure.tick() => {
                    self.measured(dir, &host_cpid, speed, &virtualization).await?;
                }
                found = &mut looking, if !has_looked => {
                    has_looked = true;
                    if found != virtualization {
                        virtualization = found;
                        self.measured(dir, &host_cpid, speed, &virtualization).await?;
                    }
                }
                () = &mut rest, if !is_at_rest => {
                    (is_at_rest, does_something) = (true, false);
                    self.rests();
                }
                turn = self.engine.gpus.turn() => {
                    let before = std::mem::take(&mut coprocessors);
                    coprocessors = self.engine.gpus.found();
                    if coprocessors != before {
                        self.measured(dir, &host_cpid, speed, &virtualization).await?;
                    }
                    if let gpus::Turn::Looked(look) = turn {
                        // First: nothing is begun on a device that is too hot.
                        let felt = Event::DevicesFelt(gpus::temperatures(&look));
                        self.engine.turn(felt, None).await?;
                        let users = gpus::users(&self.engine.client, &look, dir.path());
                        self.engine.turn(Event::DevicesSeen(users), None).await?;
                    }
                }
                turn = benchmark.turn() => match turn {
                    Turn::Due => {
                        self.engine.turn(Event::BenchmarksRun(benchmark.begins()), None).await?;
                        match std::mem::take(&mut self.engine.measures_speed) {
                            true => benchmark.start(),
                            false => benchmark.postpone(),
                        }
                    }
                    Turn::Measured(None) => self.engine.turn(Event::BenchmarksRun(Benchmarks::End), None).await?,
                    Turn::Measured(Some(new)) => {
                        self.engine.turn(Event::BenchmarksRun(Benchmarks::End), None).await?;
                        tracing::info!(fpops = new.fpops.get(), iops = new.iops.get(), "measured the speed of the CPUs");
                        if let Err(error) = self.engine.records.keep_speed(&new) {
                            tracing::warn!(%error, "cannot store the speed of the CPUs: it is measured again after the next start");
                        }
                        speed = new;
                        self.measured(dir, &host_cpid, speed, &virtualization).await?;
                    }
                },
            }
            // A wake-up may begin something, too.
            does_something |= std::mem::take(&mut self.engine.has_acted);
            // Counted from the first thing: whoever types, or asks every second, keeps it from nothing.
            if does_something && is_at_rest {
                is_at_rest = false;
                crate::sys::works();
                rest.as_mut().reset(Instant::now() + AT_REST);
            }
            if std::mem::take(&mut self.engine.gives_up_measuring) {
                benchmark.give_up();
            }
            if self.engine.separated {
                tracing::info!("starting anew, as another host");
                return Ok(());
            }
            if self.engine.stop_asked {
                tracing::info!("asked over the control socket to end");
                return Ok(());
            }
        }
    }

    /// Tells whoever has let computing go on what follows from that. Where jobs wait for a look at the
    /// battery and other programs, it is known after that look, which takes an instant.
    async fn tell_line(&mut self) -> Result<(), AgentError> {
        let until = Instant::now() + LOOK_TAKES;
        while self.engine.wants_line.is_some() && self.engine.client.awaits_look() {
            match timeout_at(until, self.incoming.recv()).await {
                Ok(Some(input)) => self.engine.take(input).await?,
                Ok(None) | Err(_) => break,
            }
        }
        self.engine.tell_line();
        Ok(())
    }

    /// While there is no task, what the agent ran is not to take memory of its machine.
    fn rests(&self) {
        if !self.engine.client.has_processes() {
            // Some milliseconds, in which nothing waits: a thread for it would have to be woken, and to end.
            crate::sys::rests();
        }
    }

    /// Tells the client what the host is like now.
    async fn measured(
        &mut self,
        dir: &DataDir,
        host_cpid: &str,
        speed: HostSpeed,
        virtualization: &Virtualization,
    ) -> Result<(), AgentError> {
        let (coprocessors, virtualization) = (self.engine.gpus.found(), virtualization.clone());
        let facts = host::facts(dir.path(), host_cpid, host::Found { speed, coprocessors, virtualization });
        self.engine.turn(Event::HostMeasured(Box::new(facts)), None).await
    }

    /// Has all tasks leave, storing what becomes of them. A second signal kills them at once.
    pub(super) async fn leave(&mut self) {
        self.engine.stopping = true;
        if let Err(error) = self.engine.stop_attaching().await {
            tracing::error!(%error, "cannot store that an attachment is taken back");
        }
        self.engine.transfers.cancel_all();
        if let Err(error) = self.engine.files_moved().await {
            tracing::error!(%error, "cannot store what was transferred last");
        }
        self.engine.supervisor.stop(self.grace);
        while !self.engine.supervisor.is_stopped() {
            tokio::select! {
                Some(input) = self.incoming.recv() => self.take(input).await,
                Some(asked) = self.engine.requests.recv() => self.serve(asked).await,
                () = another(&mut self.signals) => {
                    tracing::warn!("asked again to end: killing the tasks");
                    self.engine.supervisor.stop(StdDuration::ZERO);
                }
                () = sleep(StdDuration::from_millis(20)) => {}
            }
        }
        // What the tasks said last.
        while let Ok(input) = self.incoming.try_recv() {
            self.take(input).await;
        }
    }

    /// Tells the coordinator what there is left to tell.
    pub(super) async fn say_goodbye(&mut self, stop: &watch::Sender<bool>, link: Option<LinkThread>) {
        let _ = stop.send(true);
        let Some(mut link) = link else { return };
        let _ = timeout(StdDuration::from_secs(2), async {
            loop {
                tokio::select! {
                    _ = &mut link => return,
                    Some(input) = self.incoming.recv() => self.take(input).await,
                    Some(asked) = self.engine.requests.recv() => self.serve(asked).await,
                }
            }
        })
        .await;
    }

    async fn serve(&mut self, asked: Asked) {
        if let Err(error) = self.engine.serve(asked).await {
            tracing::error!(%error, "cannot answer a request during the end");
        }
        self.engine.tell_line();
    }

    async fn take(&mut self, input: Input) {
        if let Err(error) = self.engine.take(input).await {
            tracing::error!(%error, "cannot store what happened during the end; it is found again at the next start");
        }
    }
}
