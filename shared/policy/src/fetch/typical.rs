//! What a project's jobs are like, by the last few that it sent.

use std::collections::VecDeque;

use fallow_domain::{Duration, PerType, ResourceType};
use serde::{Deserialize, Serialize};

/// So many jobs of a project and main type are remembered.
const REMEMBERED: usize = 8;

/// A job as it came.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TypicalJob {
    /// Its estimated running time.
    pub running_time: Duration,
    /// The time that it has until its deadline.
    pub latency_bound: Duration,
    /// Instances of its main type that it uses.
    pub instances: f64,
}

impl TypicalJob {
    /// How many times over its running time fits before its deadline.
    fn slack(&self) -> f64 {
        self.latency_bound.as_secs_f64() / self.running_time.as_secs_f64().max(1e-6)
    }
}

/// The last jobs that a project sent, by main type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RecentJobs(PerType<VecDeque<TypicalJob>>);

impl RecentJobs {
    /// Takes in another one.
    pub fn came(&mut self, kind: ResourceType, job: TypicalJob) {
        let jobs = &mut self.0[kind];
        if jobs.len() >= REMEMBERED {
            jobs.pop_front();
        }
        jobs.push_back(job);
    }

    /// Of those of a type, the one with the least slack.
    pub fn typical(&self, kind: ResourceType) -> Option<TypicalJob> {
        self.0[kind].iter().min_by(|one, other| one.slack().total_cmp(&other.slack())).copied()
    }
}
