//! Free space: how much a demonstration needs, and whether it is running out.

use std::path::Path;

use fallow_domain::{Bytes, ExitCode};

use crate::cli::Failure;

/// A daemon's store, its log and the files of its jobs, generously: a run of ten minutes leaves a few MiB of each.
const PER_DAEMON: u64 = 12 << 20;
/// What agents are told to leave free, and somewhat more, as they stop before it.
const RESERVE: u64 = 32 << 20;
/// With less than this, stores refuse batches soon.
pub(super) const LOW: u64 = 16 << 20;

/// What a demonstration of so many agents takes. Each daemon gets a copy of the applications, which have `applications`
/// bytes together.
pub(super) fn needed(agents: u32, applications: u64) -> u64 {
    RESERVE + (u64::from(agents) + 1) * (PER_DAEMON + applications)
}

/// Bytes that this user can still write below `dir`; `None` where the system does not say.
pub(super) fn free(dir: &Path) -> Option<u64> {
    let figures = rustix::fs::statvfs(dir).ok()?;
    figures.f_bavail.checked_mul(figures.f_frsize)
}

/// Refuses to begin where there is too little.
pub(super) fn require(dir: &Path, needed: u64) -> Result<(), Failure> {
    match free(dir) {
        Some(free) if free < needed => {
            let text = format!(
                "{} has {} of free space, and this takes {}: free some, run fewer --agents, or give a --dir on another disk",
                dir.display(),
                Bytes(free),
                Bytes(needed)
            );
            Err(Failure::new(ExitCode::NoSpace, text))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_space_is_refused_with_how_much_is_needed() {
        let dir = tempfile::tempdir().unwrap();
        assert!(require(dir.path(), 1).is_ok());
        let failure = require(dir.path(), u64::MAX).unwrap_err();
        assert_eq!(failure.code(), ExitCode::NoSpace);
        assert!(failure.to_string().contains("of free space, and this takes"), "{failure}");
        assert!(needed(3, 2 << 20) > needed(2, 2 << 20) && needed(2, 0) > LOW);
    }
}
