//! CPU jobs whose files are not all here, by what they need: whether one of them would run in what is left of
//! a host (R2.16, R6.10).
//!
//! That is asked at every event while files are under way, and must not look at every job, let alone at every
//! file that each of two thousand jobs waits for. So jobs are kept by their CPUs, in sixteenths, and those of
//! equal CPUs by memory; of each number of CPUs the first one answers for all. However many jobs there are,
//! no more steps are made than there are sixteenths of the host's CPUs. Needs are rounded up and what is left
//! is rounded down, so at worst a job of less than a whole CPU is said not to fit where it would, by up to
//! two sixteenths, and is waited for as if all CPUs were busy. Derived state: it is worked out again after a
//! restart.

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::{Bytes, JobId, ProjectId};

/// Parts of a CPU that needs are told apart by.
const PARTS: f64 = 16.0;
/// Sums of CPUs are taken for equal so far.
const TINY: f64 = 1e-3;

/// The CPU jobs that wait for files.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Incoming {
    /// Whose they are, and what they need: sixteenths of CPUs, and memory.
    jobs: BTreeMap<JobId, (ProjectId, u32, Bytes)>,
    by_project: BTreeMap<ProjectId, BTreeMap<u32, BTreeSet<(Bytes, JobId)>>>,
}

impl Incoming {
    /// Takes in a job that waits for files.
    pub(crate) fn insert(&mut self, id: JobId, project: ProjectId, cpus: f64, memory: Bytes) {
        self.remove(id);
        // `as` saturates.
        let parts = (cpus * PARTS - TINY).ceil() as u32;
        self.jobs.insert(id, (project, parts, memory));
        self.by_project.entry(project).or_default().entry(parts).or_default().insert((memory, id));
    }

    /// Its files are here, or it is over.
    pub(crate) fn remove(&mut self, id: JobId) {
        let Some((project, parts, memory)) = self.jobs.remove(&id) else { return };
        let Some(by_parts) = self.by_project.get_mut(&project) else { return };
        if let Some(alike) = by_parts.get_mut(&parts) {
            alike.remove(&(memory, id));
            if alike.is_empty() {
                by_parts.remove(&parts);
            }
        }
        if by_parts.is_empty() {
            self.by_project.remove(&project);
        }
    }

    /// Whether a project has one that needs no more than this.
    pub(crate) fn any_fits(&self, project: ProjectId, cpus: f64, memory: Bytes) -> bool {
        self.least_memory(project, cpus).any(|least| least <= memory)
    }

    /// The least memory of its jobs for each number of CPUs up to this.
    fn least_memory(&self, project: ProjectId, cpus: f64) -> impl Iterator<Item = Bytes> + '_ {
        let parts = (cpus * PARTS + TINY).floor() as u32;
        let alike = self.by_project.get(&project).into_iter().flat_map(move |of| of.range(..=parts));
        alike.filter_map(|(_, jobs)| jobs.first()).map(|(memory, _)| *memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: ProjectId = ProjectId(1);
    const MB: u64 = 1_000_000;

    #[test]
    fn r2_16_of_jobs_that_wait_for_files_the_one_that_needs_least_answers_for_all() {
        let mut incoming = Incoming::default();
        let fits = |incoming: &Incoming, cpus, memory| incoming.any_fits(P, cpus, Bytes(memory * MB));
        for (id, cpus, memory) in [(1, 1.0, 500), (2, 1.0, 300), (3, 0.333_333, 800), (4, 4.0, 100)] {
            incoming.insert(JobId(id), P, cpus, Bytes(memory * MB));
        }
        let table = [
            // CPUs and megabytes left; whether a job fits
            (1.0, 300, true),
            (1.0, 299, false),
            (0.999_999_9, 300, true),
            (0.9, 300, false),
            (0.9, 800, true),
            (0.25, 8_000, false),
            (3.9, 299, false),
            (4.0, 100, true),
            // It needs 5.3 sixteenths, counted as 6; and 5.4 are counted as 5.
            (0.34, 8_000, false),
            (-1.0, 8_000, false),
        ];
        for (cpus, memory, expected) in table {
            assert_eq!(fits(&incoming, cpus, memory), expected, "{cpus} {memory}");
        }
        assert!(!incoming.any_fits(ProjectId(2), 8.0, Bytes(8_000 * MB)));
        incoming.remove(JobId(2));
        assert!(!fits(&incoming, 1.0, 499) && fits(&incoming, 1.0, 500));
        // What is put in twice is there once.
        incoming.insert(JobId(1), P, 2.0, Bytes(900 * MB));
        assert!(!fits(&incoming, 1.0, 500) && fits(&incoming, 2.0, 900));
        (1..9).for_each(|id| incoming.remove(JobId(id)));
        assert!(incoming.jobs.is_empty() && incoming.by_project.is_empty());
    }

    #[test]
    fn r6_10_thousands_of_jobs_that_wait_for_files_are_not_looked_at_one_by_one() {
        let mut incoming = Incoming::default();
        for id in 0..10_000_u32 {
            // As many different needs as a server cares to invent.
            let cpus = 0.25 + f64::from(id) * 0.0011;
            incoming.insert(JobId(id.into()), P, cpus, Bytes(u64::from(id) + 9_000 * MB));
        }
        assert!(!incoming.any_fits(P, 8.0, Bytes(8_000 * MB)));
        assert!(incoming.least_memory(P, 8.0).count() <= 8 * 16);
    }
}
