//! A quick check that mostly shows that nothing is wrong (R3.8). It costs a few steps for each hundred jobs.
//!
//! A project's rate rises when others run out and leave theirs to it. It falls only when its own jobs
//! cannot use it, and then they all run at full speed. So a job ends at the latest when all the work before
//! it has been done at today's rate and it then takes its own time: `work before / rate + left x max(1,
//! amount / rate)`. If nobody is late by that bound, there are no misses. As long as the jobs of every
//! project could use more than its rate, rates do not change. If that lasts for the window there are no
//! shortfalls either, and no job's end has to be known. Whole chunks of jobs are passed over by their sums.
//!
//! Where that is not so, or where GPU jobs take CPUs now that become free later, the simulation has to be
//! made.

use super::flow::Flow;
use super::frame::{Horizon, RATE_EPSILON, TypeCapacity};
use crate::job_queue::{Entry, Subqueue};

/// The least time by which every job of flows whose rates have been divided is sure to be early; none when
/// one is not.
pub(super) fn slack<'q>(
    flows: &[Flow],
    horizon: &Horizon,
    subqueues: &impl Fn(usize) -> Option<&'q Subqueue>,
    capacity: &TypeCapacity,
) -> Option<f64> {
    let mut least = f64::INFINITY;
    for flow in flows {
        if flow.next_rate <= RATE_EPSILON {
            return None;
        }
        let subqueue = subqueues(flow.project)?;
        least = least.min(Line { rate: flow.next_rate, horizon, capacity, before: 0.0 }.slack(subqueue)?);
    }
    Some(least)
}

/// How long all instances are sure to be busy and each project to have its own share, in seconds of
/// computing, if that is the window at least.
pub(super) fn busy(flows: &[Flow], horizon: &Horizon) -> Option<f64> {
    let mut busy = f64::INFINITY;
    for flow in flows {
        let rate = flow.next_rate;
        if rate <= RATE_EPSILON || rate >= flow.most() || rate < flow.own - RATE_EPSILON {
            return None;
        }
        // What is left when the rate is too much is less than the rate, for the longest of the jobs.
        busy = busy.min(flow.work_left() / rate - flow.longest_left());
    }
    (!flows.is_empty() && busy >= horizon.window).then_some(busy)
}

/// The jobs of one flow in a line.
struct Line<'a> {
    rate: f64,
    horizon: &'a Horizon,
    capacity: &'a TypeCapacity,
    /// Work before the next job, in instance-seconds.
    before: f64,
}

impl Line<'_> {
    /// The least time by which every job is sure to be early; none when one is not.
    fn slack(mut self, subqueue: &Subqueue) -> Option<f64> {
        let mut least = self.each(&subqueue.running, f64::INFINITY)?;
        least = self.each(&subqueue.preempted, least)?;
        for chunk in subqueue.queued.chunks() {
            let sum = &chunk.summary;
            let until = self.horizon.until(chunk.entries.first()?.deadline);
            let after = self.before + sum.work;
            let alone = sum.longest * (1.0 - f64::from(sum.smallest) / self.rate).max(0.0);
            let slack = until - after / self.rate - alone;
            // Near the deadlines it is worth while to look at each job, for a plan that stays good longer.
            if self.capacity.all(sum) && slack > self.horizon.window {
                least = least.min(slack);
                self.before = after;
            } else {
                least = self.each(&chunk.entries, least)?;
            }
        }
        Some(least)
    }

    fn each(&mut self, entries: &[Entry], mut least: f64) -> Option<f64> {
        for entry in entries.iter().filter(|entry| self.capacity.job(entry)) {
            let (left, amount) = (entry.left.as_secs_f64(), f64::from(entry.amount));
            let end = self.before / self.rate + left * (amount / self.rate).max(1.0);
            let slack = self.horizon.until(entry.deadline) - end;
            if slack < 0.0 {
                return None;
            }
            least = least.min(slack);
            self.before += left * amount;
        }
        Some(least)
    }
}
