//! What a project's jobs are like, by the last few that it sent.

use std::collections::VecDeque;

use fallow_domain::{Duration, Instant, PerType, ResourceType};
use serde::{Deserialize, Serialize};

/// So many jobs of a project and main type are remembered.
const REMEMBERED: usize = 8;
/// And for so long. A project whose jobs could not be in time is not asked, and so sends none that would show
/// that they could be now: without an end to what is remembered it would never be asked again.
const REMEMBERED_FOR: Duration = Duration::from_hours(24);

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

/// The last jobs that a project sent, by main type, and when they came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RecentJobs(PerType<VecDeque<(Instant, TypicalJob)>>);

impl RecentJobs {
    /// Takes in another one.
    pub fn came(&mut self, now: Instant, kind: ResourceType, job: TypicalJob) {
        let jobs = &mut self.0[kind];
        if jobs.len() >= REMEMBERED {
            jobs.pop_front();
        }
        jobs.push_back((now, job));
    }

    /// Of those of a type that came within a day, the one with the least slack.
    pub fn typical(&self, now: Instant, kind: ResourceType) -> Option<TypicalJob> {
        let is_recent = |came: Instant| (came - REMEMBERED_FOR..=came + REMEMBERED_FOR).contains(&now);
        let recent = self.0[kind].iter().filter(|(came, _)| is_recent(*came)).map(|(_, job)| *job);
        recent.min_by(|one, other| one.slack().total_cmp(&other.slack()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fallow_domain::ResourceType::Cpu;

    const HOUR: Duration = Duration::from_hours(1);

    #[test]
    fn the_typical_job_has_the_least_slack_of_the_last_eight_and_is_forgotten_after_a_day() {
        let mut jobs = RecentJobs::default();
        let now = Instant::from_secs_f64(1.8e9);
        let like = |bound| TypicalJob { running_time: HOUR, latency_bound: HOUR * bound, instances: 1.0 };
        let bound = |jobs: &RecentJobs, at| jobs.typical(at, Cpu).map(|job| job.latency_bound);
        assert_eq!(bound(&jobs, now), None);
        jobs.came(now, Cpu, like(2));
        (10..16).for_each(|bound| jobs.came(now + HOUR, Cpu, like(bound)));
        assert_eq!(bound(&jobs, now + HOUR), Some(HOUR * 2));
        assert_eq!(bound(&jobs, now + HOUR * 25), Some(HOUR * 10), "the first is forgotten");
        assert_eq!(bound(&jobs, now + HOUR * 26), None);
        // Nor does one from a future that a clock has left say anything.
        assert_eq!(bound(&jobs, now - HOUR * 100), None);
        (20..28).for_each(|bound| jobs.came(now + HOUR, Cpu, like(bound)));
        assert_eq!(bound(&jobs, now + HOUR), Some(HOUR * 20), "eight others came");
    }
}
