//! One project's jobs of one type while time goes by, at a rate that is given (R3.8).
//!
//! Jobs at full speed have known ends and stand in a heap. At most one job has only a part of what it uses:
//! the one that is next in order. While the rate does not fall, a job that once has full speed keeps it.

mod pass_over;

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use fallow_domain::{Instant, JobId};

use super::frame::{Findings, Horizon, RATE_EPSILON, TIME_EPSILON, TypeCapacity};
use crate::job_queue::{Subqueue, Summary};

/// A job that computes.
#[derive(Clone, Copy, Debug)]
struct Active {
    /// Its place in the order of the project.
    order: u32,
    amount: f64,
    /// Seconds left at full speed; its end, less the flow's shift, once it has full speed.
    time: f64,
    deadline: Instant,
    id: JobId,
}

/// A job at full speed. The earliest end is the greatest.
#[derive(Clone, Copy, Debug)]
struct Full(Active);

impl PartialEq for Full {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Full {}
impl PartialOrd for Full {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Full {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.time.total_cmp(&self.0.time).then(other.0.order.cmp(&self.0.order))
    }
}

/// One project's jobs of one type.
#[derive(Clone, Debug, Default)]
pub(super) struct Flow {
    /// Its place among the projects.
    pub(super) project: usize,
    pub(super) weight: f64,
    /// Its own share of the instances, against which it may be short.
    pub(super) own: f64,
    pub(super) rate: f64,
    pub(super) next_rate: f64,
    /// When its rate may become too much for it, at the earliest.
    pub(super) bound: f64,
    /// What its jobs could use at once.
    pub(super) can_use: f64,
    /// What they may use at once, by the places that the owner gives them.
    places: f64,
    /// How far it is.
    pub(super) time: f64,
    /// Instance-seconds left.
    work: f64,
    longest: f64,
    /// Instances of the smallest job, and of a CPU-second each GPU-second.
    smallest: f64,
    pub(super) cpu_ratio: f64,
    pub(super) shortfall: f64,
    pub(super) misses: u32,
    piece: usize,
    at: usize,
    order: u32,
    full: BinaryHeap<Full>,
    full_rate: f64,
    /// What the ends of jobs at full speed are put off by.
    shift: f64,
    part: Option<Active>,
    /// Jobs that lost what they had, the first in order last.
    pending: Vec<Active>,
}

impl Flow {
    /// Begins anew, keeping memory.
    pub(super) fn begin(&mut self, project: usize, weight: f64, summary: &Summary, places: f64) {
        let (mut full, mut pending) = (std::mem::take(&mut self.full), std::mem::take(&mut self.pending));
        full.clear();
        pending.clear();
        *self = Self {
            project,
            weight,
            can_use: summary.amount,
            places,
            work: summary.work,
            longest: summary.longest,
            smallest: f64::from(summary.smallest),
            cpu_ratio: if summary.work > 0.0 { summary.cpu_work / summary.work } else { 0.0 },
            full,
            pending,
            ..Self::default()
        };
    }

    /// Instance-seconds left.
    pub(super) const fn work_left(&self) -> f64 {
        self.work
    }

    /// The most seconds left of any of its jobs.
    pub(super) const fn longest_left(&self) -> f64 {
        self.longest
    }

    /// The most that it can be given.
    pub(super) const fn most(&self) -> f64 {
        self.can_use.min(self.places)
    }

    pub(super) fn is_over(&self) -> bool {
        self.can_use <= RATE_EPSILON
    }

    /// Whether its jobs can use no more than its rate.
    pub(super) fn is_limited(&self) -> bool {
        self.can_use <= self.rate + RATE_EPSILON
    }

    fn next_job(&mut self, subqueue: &Subqueue, capacity: &TypeCapacity) -> Option<Active> {
        if let Some(job) = self.pending.pop() {
            return Some(job);
        }
        loop {
            let piece = subqueue.piece(self.piece)?;
            match piece.get(self.at) {
                None => (self.piece, self.at) = (self.piece + 1, 0),
                Some(entry) => {
                    self.at += 1;
                    if capacity.job(entry) {
                        self.order += 1;
                        return Some(Active {
                            order: self.order,
                            amount: f64::from(entry.amount),
                            time: entry.left.as_secs_f64(),
                            deadline: entry.deadline,
                            id: entry.id,
                        });
                    }
                }
            }
        }
    }

    /// Goes on at another rate.
    pub(super) fn set_rate(&mut self, rate: f64, subqueue: &Subqueue, capacity: &TypeCapacity) {
        if rate < self.rate - RATE_EPSILON && !self.full.is_empty() {
            // Those at full speed stand before the one with a part, in order.
            let from = self.pending.len();
            self.pending.extend(self.part.take());
            let time = self.time - self.shift;
            self.pending.extend(self.full.drain().map(|Full(job)| Active { time: job.time - time, ..job }));
            self.full_rate = 0.0;
            if let Some(taken) = self.pending.get_mut(from..) {
                taken.sort_unstable_by_key(|job| std::cmp::Reverse(job.order));
            }
        }
        self.rate = rate;
        self.fill(subqueue, capacity);
    }

    /// Hands the rate to jobs in order.
    fn fill(&mut self, subqueue: &Subqueue, capacity: &TypeCapacity) {
        loop {
            if self.part.is_none() {
                if self.rate - self.full_rate <= RATE_EPSILON {
                    return;
                }
                self.part = self.next_job(subqueue, capacity);
            }
            match self.part {
                Some(job) if job.amount <= self.rate - self.full_rate + RATE_EPSILON => {
                    self.part = None;
                    self.full_rate += job.amount;
                    self.full.push(Full(Active { time: self.time - self.shift + job.time, ..job }));
                }
                _ => return,
            }
        }
    }

    /// When the job with a part of its instances ends.
    fn part_end(&self) -> f64 {
        match &self.part {
            Some(job) if self.rate - self.full_rate > RATE_EPSILON => {
                self.time + job.time * job.amount / (self.rate - self.full_rate)
            }
            _ => f64::INFINITY,
        }
    }

    /// When the next job at full speed ends.
    fn full_end(&self) -> f64 {
        self.full.peek().map_or(f64::INFINITY, |full| full.0.time + self.shift)
    }

    /// When the next job ends at this rate.
    fn next_end(&self) -> f64 {
        self.full_end().min(self.part_end())
    }

    /// The earliest time at which its jobs may not be able to use the rate any more: what they could use is
    /// then less, and so is the work left.
    pub(super) fn limited_at(&self) -> f64 {
        if self.rate <= RATE_EPSILON {
            return f64::INFINITY;
        }
        if self.is_limited() {
            return self.next_end();
        }
        let empty = self.time + self.work / self.rate;
        if self.rate <= self.smallest {
            // One job at a time: until the last has ended.
            return empty.max(self.next_end());
        }
        (empty - self.longest).max(self.next_end())
    }

    fn pass(&mut self, until: f64) {
        let dt = until - self.time;
        if dt > 0.0 {
            if let Some(job) = &mut self.part {
                job.time = (job.time - dt * (self.rate - self.full_rate) / job.amount).max(0.0);
            }
            self.work = (self.work - dt * self.rate).max(0.0);
            self.time = until;
        }
    }

    /// Lets time go by at the rate, until then or until a job ends that leaves less than the rate can use.
    pub(super) fn advance(
        &mut self,
        until: f64,
        horizon: &Horizon,
        found: &mut Findings,
        subqueue: &Subqueue,
        capacity: &TypeCapacity,
    ) {
        let from = self.time;
        loop {
            if found.none_late {
                self.pass_over(until, subqueue, capacity);
            }
            let (part_end, full_end) = (self.part_end(), self.full_end());
            let end = part_end.min(full_end);
            if end > until {
                self.pass(until);
                break;
            }
            self.pass(end);
            let ended = if full_end <= part_end {
                let ended = self.full.pop().map(|full| full.0);
                self.full_rate -= ended.map_or(0.0, |job| job.amount);
                if self.full.is_empty() {
                    self.full_rate = 0.0;
                }
                ended
            } else {
                self.part.take()
            };
            let Some(job) = ended else { break };
            self.judge(&job, horizon, found);
            self.can_use = (self.can_use - job.amount).max(0.0);
            self.fill(subqueue, capacity);
            if self.full.is_empty() && self.part.is_none() {
                // Nothing is left, whatever rounding made of the sums.
                self.can_use = 0.0;
            }
            if self.is_slack() {
                break;
            }
        }
        if self.rate < self.own {
            let within = self.time.min(horizon.window) - from.min(horizon.window);
            self.shortfall += (self.own - self.rate) * within;
        }
    }

    /// Whether its jobs can use less than its rate: then all rates change.
    pub(super) fn is_slack(&self) -> bool {
        self.can_use < self.rate - RATE_EPSILON
    }

    /// Lets time go by until then, whatever rounding makes end before.
    pub(super) fn catch_up(
        &mut self,
        until: f64,
        horizon: &Horizon,
        found: &mut Findings,
        subqueue: &Subqueue,
        capacity: &TypeCapacity,
    ) {
        self.advance(until, horizon, found, subqueue, capacity);
        while self.time < until && !self.is_over() {
            self.set_rate(self.can_use.min(self.rate), subqueue, capacity);
            self.advance(until, horizon, found, subqueue, capacity);
        }
    }

    fn judge(&mut self, job: &Active, horizon: &Horizon, found: &mut Findings) {
        if found.none_late {
            return;
        }
        let slack = horizon.until(job.deadline) - self.time;
        if slack < -TIME_EPSILON {
            self.misses += 1;
            found.late.push((self.project, job.order, job.id));
        } else {
            found.slack = found.slack.min(slack.max(0.0));
        }
    }

    /// What it is short of in all, once it is over.
    pub(super) fn short_of(&self, horizon: &Horizon) -> f64 {
        self.shortfall + self.own * (horizon.window - self.time.min(horizon.window))
    }
}
