//! Passing over whole chunks of a long queue by their sums, where no job of it can miss its deadline.
//!
//! What matters then is only when a project's jobs can no longer use its rate. Until that time jobs are
//! counted as an amount of work, a whole chunk of them where it fits. That work is taken to be done at the
//! project's rate, while the jobs that compute now are put off until after it. So the ends of single jobs
//! are not those of the exact simulation, but differ from them by no more than the longest job. In a queue
//! of hundreds of jobs that changes a shortfall by less than one job for each instance.

use super::{Flow, RATE_EPSILON, Subqueue, TypeCapacity};

/// Queues with fewer jobs are walked through, so that what is said of them is exact.
const LONG: usize = 200;
/// And so is what is left when the work is not many times that of the longest job on every instance: the
/// order of jobs then makes a difference, as with few jobs for many CPUs, or a long one among short ones.
const LENGTHS: f64 = 32.0;

impl Flow {
    /// Passes over the jobs that come next, not beyond `until`.
    pub(super) fn pass_over(&mut self, until: f64, subqueue: &Subqueue, capacity: &TypeCapacity) {
        let waits = self.part.is_some() || self.rate - self.full_rate <= RATE_EPSILON;
        if subqueue.count < LONG
            || self.is_uneven()
            || self.rate <= RATE_EPSILON
            || !self.pending.is_empty()
            || !waits
        {
            return;
        }
        while let Some(piece) = subqueue.piece(self.piece) {
            if self.at == piece.len() {
                (self.piece, self.at) = (self.piece + 1, 0);
                continue;
            }
            // Running and preempted tasks are few.
            let Some(chunk) = self.piece.checked_sub(2).and_then(|chunk| subqueue.queued.chunks().get(chunk))
            else {
                return;
            };
            let sum = &chunk.summary;
            if self.at == 0 && capacity.all(sum) && self.pass_work(sum.work, sum.amount, until) {
                self.order += chunk.entries.len() as u32;
                self.at = chunk.entries.len();
                continue;
            }
            while let Some(entry) = chunk.entries.get(self.at) {
                if capacity.job(entry) {
                    let amount = f64::from(entry.amount);
                    if !self.pass_work(entry.left.as_secs_f64() * amount, amount, until) {
                        return;
                    }
                    self.order += 1;
                }
                self.at += 1;
            }
        }
    }

    fn is_uneven(&self) -> bool {
        self.work_left() < LENGTHS * self.longest_left() * self.rate
    }

    /// Passes over work of jobs that could use so much at once, if that does not go beyond `until` and leaves
    /// enough jobs to use the rate.
    fn pass_work(&mut self, work: f64, amount: f64, until: f64) -> bool {
        let lasts = work / self.rate;
        if self.time + lasts > until || self.can_use - amount < self.rate || self.is_uneven() {
            return false;
        }
        self.work = (self.work - work).max(0.0);
        self.can_use -= amount;
        self.time += lasts;
        self.shift += lasts;
        true
    }
}
