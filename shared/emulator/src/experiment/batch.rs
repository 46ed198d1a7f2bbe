//! Many runs at once.
//!
//! Runs share nothing, so they go over all threads of rayon's pool; results come back in the order of the
//! cases, whatever the threads do (R5.12). What a run needs of the world (a clock, somebody who watches, a
//! way to be stopped) is handed in: this room has none of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use fallow_domain::Duration;
use fallow_policy::composition::Composition;
use rayon::prelude::*;

use crate::engine::{self, RunOptions, RunOutcome};
use crate::scenario::Scenario;

/// One run to be made.
#[derive(Clone, Debug)]
pub struct Case {
    /// What is simulated.
    pub scenario: Arc<Scenario>,
    /// Under which policies.
    pub composition: Composition,
    /// From which seed.
    pub seed: u64,
    /// Whether to record what ran when.
    pub timeline: bool,
}

/// A run that was made.
#[derive(Clone, Debug)]
pub struct FinishedRun {
    /// What came out.
    pub outcome: RunOutcome,
    /// How long it took, by the clock of its environment.
    pub wall: Duration,
}

/// What a run is given of the world.
#[derive(Clone, Copy)]
pub struct RunEnvironment<'a> {
    /// A clock that only goes forward.
    pub clock: &'a (dyn Fn() -> Duration + Sync),
    /// Told after each run how many are done.
    pub progress: &'a (dyn Fn(usize) + Sync),
    /// Told of each run as it is made, by its place among the cases. From any thread.
    pub finished: &'a (dyn Fn(usize, &FinishedRun) + Sync),
    /// Set to end early.
    pub stop: &'a AtomicBool,
}

/// Runs were stopped before all were done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped before all runs were done")]
pub struct Interrupted;

/// Makes all runs, as many at once as there are threads, and gives their results in the order of `cases`.
///
/// # Errors
/// [`Interrupted`] when its environment asked for it.
pub fn run_all(cases: &[Case], shell: RunEnvironment<'_>) -> Result<Vec<FinishedRun>, Interrupted> {
    let done = AtomicUsize::new(0);
    let one = |(nth, case): (usize, &Case)| {
        let goes_on = |_: Duration| !shell.stop.load(Ordering::Relaxed);
        if !goes_on(Duration::ZERO) {
            return Err(Interrupted);
        }
        let began = (shell.clock)();
        let options = RunOptions { timeline: case.timeline, watch: Some(&goes_on), ..RunOptions::default() };
        let outcome = engine::run(&case.scenario, case.composition, case.seed, options);
        let wall = (shell.clock)() - began;
        if !goes_on(Duration::ZERO) {
            return Err(Interrupted);
        }
        (shell.progress)(done.fetch_add(1, Ordering::Relaxed) + 1);
        let finished = FinishedRun { outcome, wall };
        (shell.finished)(nth, &finished);
        Ok(finished)
    };
    // One at a time from the queue: runs differ much in cost, and the dear ones often stand together.
    cases.par_iter().enumerate().with_max_len(1).map(one).collect()
}
