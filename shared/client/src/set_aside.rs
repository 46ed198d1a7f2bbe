//! Jobs that are held and keep no instance busy, for they cannot run: they wait before they are started
//! again, or are too large for what may be used here (R2.7, R2.16).
//!
//! No plan reckons with them, so that others are asked for what they leave idle. With ten thousand of them,
//! an event that concerns none must not look at them all: each change costs O(log n), and who is to be
//! started again next is the first of a set. Derived state: it is worked out again after a restart.

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::{Duration, Instant, JobId, PerType, ProjectId, ResourceType};

/// A clock that was set back must not keep a task waiting for longer than this (R1.12).
const WAIT_MAX: Duration = Duration::from_hours(24);

/// The jobs that are set aside.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct SetAside {
    /// Whose they are, what type they count for, and until when they wait, if they do.
    jobs: BTreeMap<JobId, (ProjectId, ResourceType, Option<Instant>)>,
    by_project: BTreeMap<ProjectId, PerType<usize>>,
    waits: BTreeSet<(Instant, JobId)>,
}

/// Whether what waits until then is to be looked at now.
pub(crate) fn is_due(until: Instant, now: Instant) -> bool {
    until <= now || until > now + WAIT_MAX
}

impl SetAside {
    /// Sets a job aside: until then, or until something else changes.
    pub(crate) fn insert(
        &mut self,
        id: JobId,
        project: ProjectId,
        kind: ResourceType,
        until: Option<Instant>,
    ) {
        self.remove(id);
        self.jobs.insert(id, (project, kind, until));
        self.by_project.entry(project).or_default()[kind] += 1;
        self.waits.extend(until.map(|until| (until, id)));
    }

    pub(crate) fn remove(&mut self, id: JobId) {
        let Some((project, kind, until)) = self.jobs.remove(&id) else { return };
        if let Some(until) = until {
            self.waits.remove(&(until, id));
        }
        if let Some(counts) = self.by_project.get_mut(&project) {
            counts[kind] -= 1;
            if counts.iter().all(|(_, count)| *count == 0) {
                self.by_project.remove(&project);
            }
        }
    }

    /// Whether any job is, and only until some time.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waits.is_empty()
    }

    /// Until when a job waits, if it is set aside and does.
    pub(crate) fn until(&self, id: JobId) -> Option<Instant> {
        self.jobs.get(&id).and_then(|(_, _, until)| *until)
    }

    /// How many jobs of a project are set aside, by the type that they count for.
    pub(crate) fn counts(&self, project: ProjectId) -> PerType<usize> {
        self.by_project.get(&project).copied().unwrap_or_default()
    }

    /// The jobs whose wait is over.
    pub(crate) fn due(&self, now: Instant) -> impl Iterator<Item = JobId> + '_ {
        let over = self.waits.iter().take_while(move |(until, _)| *until <= now);
        let too_long =
            self.waits.iter().rev().take_while(move |(until, _)| *until > now && is_due(*until, now));
        over.chain(too_long).map(|(_, id)| *id)
    }

    /// When the next wait is over.
    pub(crate) fn next(&self, now: Instant) -> Option<Instant> {
        self.waits.iter().map(|(until, _)| *until).find(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fallow_domain::ResourceType::Cpu;

    const NOW: Instant = Instant::from_micros(1_800_000_000_000_000);

    fn due(set_aside: &SetAside, now: Instant) -> Vec<u64> {
        set_aside.due(now).map(|id| id.0).collect()
    }

    #[test]
    fn jobs_are_due_at_the_end_of_their_waits_and_counted_until_they_are_taken_out() {
        let (a, b, soon) = (ProjectId(1), ProjectId(2), Duration::from_secs(10));
        let mut set_aside = SetAside::default();
        let gpu = ResourceType::Nvidia;
        set_aside.insert(JobId(1), a, Cpu, Some(NOW + soon * 2));
        set_aside.insert(JobId(2), a, gpu, None);
        set_aside.insert(JobId(3), b, Cpu, Some(NOW + soon));
        let (of_a, of_b) = (set_aside.counts(a), set_aside.counts(b));
        assert_eq!((of_a[Cpu], of_a[gpu], of_b), (1, 1, PerType::cpu(1)));
        assert_eq!((due(&set_aside, NOW), set_aside.next(NOW)), (vec![], Some(NOW + soon)));
        assert!(set_aside.has_waiting());
        assert_eq!(
            (due(&set_aside, NOW + soon), set_aside.next(NOW + soon)),
            (vec![3], Some(NOW + soon * 2))
        );
        // Another wait takes the place of the first, and none at all too.
        set_aside.insert(JobId(3), b, Cpu, Some(NOW + soon * 3));
        set_aside.insert(JobId(1), a, Cpu, None);
        assert_eq!((due(&set_aside, NOW + soon * 2), set_aside.counts(a)), (vec![], of_a));
        set_aside.remove(JobId(3));
        assert!(!set_aside.has_waiting(), "what is left waits for no time");
        for id in 0..5 {
            set_aside.remove(JobId(id));
        }
        assert_eq!((due(&set_aside, NOW + soon * 9), set_aside.next(NOW)), (vec![], None));
        assert!(set_aside.jobs.is_empty() && set_aside.by_project.is_empty() && set_aside.waits.is_empty());
    }

    #[test]
    fn r1_12_a_clock_that_was_set_back_keeps_no_task_waiting_for_longer_than_a_day() {
        let mut set_aside = SetAside::default();
        set_aside.insert(JobId(1), ProjectId(1), Cpu, Some(NOW));
        assert_eq!(due(&set_aside, NOW - Duration::from_hours(24)), Vec::<u64>::new());
        assert_eq!(due(&set_aside, NOW - Duration::from_hours(25)), [1]);
    }
}
