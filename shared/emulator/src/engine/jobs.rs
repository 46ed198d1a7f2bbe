//! The jobs that a project has sent and that are not over, whichever host has them.

use std::collections::VecDeque;

use fallow_domain::{Duration, Instant};

/// A job that a host has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentJob {
    /// The host's place among them.
    pub(crate) host: usize,
    pub(crate) application: usize,
    pub(crate) sent: Instant,
    pub(crate) deadline: Instant,
    /// How long it runs until it is done.
    pub(crate) length: Duration,
    /// How long it runs until it fails.
    pub(crate) fails_at: Option<Duration>,
    /// Running time towards its result that would survive the end of its process.
    pub(crate) kept: Duration,
    /// Running time altogether, lost work included.
    pub(crate) ran: Duration,
    /// When it came to its end.
    pub(crate) computed: Option<Instant>,
}

/// A job's number, from its name.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    name.rsplit('_').next()?.parse().ok()
}

/// The jobs of a project that hosts have, by number. Numbers rise and jobs end roughly in that order, so
/// what is held is a stretch with a few holes; what is over is freed.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    first: u64,
    held: VecDeque<Option<SentJob>>,
    count: usize,
}

impl Jobs {
    pub(crate) fn next_number(&self) -> u64 {
        self.first + self.held.len() as u64
    }

    pub(crate) fn push(&mut self, job: SentJob) {
        self.held.push_back(Some(job));
        self.count += 1;
    }

    fn place(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.first)?).ok()
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut SentJob> {
        let place = self.place(number)?;
        self.held.get_mut(place)?.as_mut()
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<SentJob> {
        let place = self.place(number)?;
        let job = self.held.get_mut(place)?.take()?;
        self.count -= 1;
        while let Some(None) = self.held.front() {
            self.held.pop_front();
            self.first += 1;
        }
        Some(job)
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &SentJob)> {
        (self.first..).zip(&self.held).filter_map(|(number, job)| Some((number, job.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_is_freed_whatever_the_order() {
        let job = SentJob {
            host: 0,
            application: 0,
            sent: Instant::EPOCH,
            deadline: Instant::EPOCH,
            length: Duration::ZERO,
            fails_at: None,
            kept: Duration::ZERO,
            ran: Duration::ZERO,
            computed: None,
        };
        let mut jobs = Jobs::default();
        for round in 0..10_000 {
            for number in [4 * round, 4 * round + 1, 4 * round + 2, 4 * round + 3] {
                assert_eq!(jobs.next_number(), number);
                jobs.push(job);
            }
            for place in [2, 0, 3, 1] {
                assert!(jobs.remove(4 * round + place).is_some());
                assert!(jobs.remove(4 * round + place).is_none());
            }
        }
        assert_eq!((jobs.len(), jobs.held.len()), (0, 0));
        assert!(jobs.held.capacity() < 100);
    }
}
