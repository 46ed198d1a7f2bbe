//! Free space: how much a demonstration needs, and whether it is running out.

use std::path::Path;

use fallow_domain::{Bytes, ExitCode};

use super::workload::{DISK_BOUND, SHARES};
use crate::cli::Failure;

/// A daemon's store, its log and the files of its jobs, generously: a run of ten minutes leaves a few MiB of
/// each.
const PER_DAEMON: u64 = 12 << 20;
/// What agents are told to leave free, and somewhat more, as they stop before it.
const RESERVE: u64 = 32 << 20;
/// With less than this, stores refuse batches soon.
pub(super) const LOW: u64 = 16 << 20;

/// Free space that a demonstration needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    agents: u32,
    /// What daemons write, and what they must not touch.
    written: u64,
    /// What each agent must find free for a job of the project that has the least for its jobs.
    for_jobs: u64,
}

impl Need {
    /// Of so many agents and both applications' sizes. Each daemon gets a copy of the applications. An agent
    /// divides what it may use among the projects by their shares, and gets no job whose bound is more than
    /// what is left of that. All agents look at the same volume, so what one finds free for jobs is there for
    /// every other.
    pub(super) fn of(agents: u32, applications: [u64; 2]) -> Self {
        let all: u64 = applications.iter().sum();
        let shares: f64 = SHARES.iter().sum();
        let for_project = |(share, application): (&f64, u64)| {
            Bytes::from_f64((DISK_BOUND + application) as f64 * shares / share).0
        };
        let for_jobs = SHARES.iter().zip(applications).map(for_project).max().unwrap_or(0);
        Self { agents, written: RESERVE + (u64::from(agents) + 1) * (PER_DAEMON + all), for_jobs }
    }

    fn all(&self) -> u64 {
        self.written.saturating_add(self.for_jobs)
    }
}

/// Bytes that this user can still write below `dir`; `None` where the system does not say.
pub(super) fn free(dir: &Path) -> Option<u64> {
    let figures = rustix::fs::statvfs(dir).ok()?;
    figures.f_bavail.checked_mul(figures.f_frsize)
}

/// Refuses to begin where there is too little.
pub(super) fn require(dir: &Path, need: &Need) -> Result<(), Failure> {
    match free(dir) {
        Some(free) if free < need.all() => Err(too_little(dir, free, need)),
        _ => Ok(()),
    }
}

fn too_little(dir: &Path, free: u64, need: &Need) -> Failure {
    let text = format!(
        "{} has {} of free space, and this takes {}: {} for a coordinator and {} agents, and {} that agents must have free to be given jobs; free some, run fewer --agents, or give a --dir on another disk",
        dir.display(),
        Bytes(free),
        Bytes(need.all()),
        Bytes(need.written),
        need.agents,
        Bytes(need.for_jobs),
    );
    Failure::new(ExitCode::NoSpace, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_space_is_refused_with_how_much_is_needed_and_for_what() {
        let dir = tempfile::tempdir().unwrap();
        assert!(require(dir.path(), &Need { agents: 3, written: 1, for_jobs: 0 }).is_ok());
        let need = Need { agents: 3, written: u64::MAX, for_jobs: 64 << 20 };
        let failure = require(dir.path(), &need).unwrap_err();
        assert_eq!(failure.code(), ExitCode::NoSpace);
        let text = failure.to_string();
        assert!(text.contains("of free space, and this takes"), "{text}");
        assert!(text.contains(&format!("{} that agents must have free", Bytes(64 << 20))), "{text}");
        assert!(Need::of(3, [0, 2 << 20]).all() > Need::of(2, [0, 2 << 20]).all());
    }

    #[test]
    fn what_agents_must_have_free_suffices_for_a_job_of_the_project_with_the_smaller_share() {
        let applications = [1 << 20, 2 << 20];
        let need = Need::of(3, applications);
        for (share, application) in SHARES.iter().zip(applications) {
            let part = need.for_jobs as f64 * share / SHARES.iter().sum::<f64>();
            assert!(part + 1.0 >= (DISK_BOUND + application) as f64, "{part}");
        }
    }
}
