//! What part of the used time was due to each project (R5.32), worked out again only when the answer may
//! differ.

use fallow_domain::{Fraction, PerType, ProjectId, Share};

use super::{Observation, ProjectObservation};
use crate::due::{DueClaim, rates};
use crate::plan_host::PlanHost;

/// The last answer, and what it was an answer to.
#[derive(Clone, Debug, Default)]
pub(super) struct DueParts {
    asked: Vec<(ProjectId, Share, PerType<f64>)>,
    available: PerType<u32>,
    speeds: PerType<f64>,
    parts: Vec<f64>,
}

/// It is derived from the history, and no part of it.
impl PartialEq for DueParts {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl DueParts {
    /// For each project of a stretch, its part; they sum to 1 if anybody could use anything.
    pub(super) fn of(&mut self, observation: &Observation<'_>, secs: f64) -> &[f64] {
        // A project that used time had work for it, even if its last job ended on the way.
        let ended = |p: &ProjectObservation| {
            p.used.iter().any(|(kind, used)| used.is_positive() && p.could_use[kind] <= 0.0)
        };
        let known = self.asked.len() == observation.projects.len()
            && self.available == observation.available
            && self.speeds == observation.speeds
            && self.asked.iter().zip(observation.projects).all(|((id, share, limit), p)| {
                *id == p.project
                    && *share == p.share
                    && limit.iter().all(|(kind, limit)| *limit == usable(observation, p, kind))
                    && !ended(p)
            });
        if !known {
            self.work_out(observation, secs);
            if observation.projects.iter().any(ended) {
                self.asked.clear();
            }
        }
        &self.parts
    }

    fn work_out(&mut self, observation: &Observation<'_>, secs: f64) {
        let host = PlanHost {
            // Time that was used on instances that are gone by now was theirs to give all the same.
            instances: observation.available.map(|kind, count| {
                let used = observation.projects.iter().any(|p| p.used[kind].is_positive());
                if used { (*count).max(1) } else { *count }
            }),
            speeds: observation.speeds,
            active_fraction: Fraction::ONE,
        };
        let claims: Vec<DueClaim> = observation
            .projects
            .iter()
            .map(|p| {
                let limit = PerType::from_fn(|kind| {
                    usable(observation, p, kind).max(p.used[kind].as_secs_f64() / secs)
                });
                DueClaim { project: p.project, share: p.share, limit }
            })
            .collect();
        let due = rates(&host, &claims);
        let speed =
            |rates: &PerType<f64>| rates.iter().map(|(kind, rate)| rate * observation.speeds[kind]).sum();
        self.parts.clear();
        self.parts.extend(due.iter().map(|rates| -> f64 { speed(rates) }));
        let all: f64 = self.parts.iter().sum();
        if all > 0.0 {
            self.parts.iter_mut().for_each(|part| *part /= all);
        }
        self.asked.clear();
        self.asked.extend(
            observation
                .projects
                .iter()
                .map(|p| (p.project, p.share, PerType::from_fn(|kind| usable(observation, p, kind)))),
        );
        (self.available, self.speeds) = (observation.available, observation.speeds);
    }
}

/// Instances that a project could use; more jobs than instances make no difference.
fn usable(
    observation: &Observation<'_>,
    project: &ProjectObservation,
    kind: fallow_domain::ResourceType,
) -> f64 {
    project.could_use[kind].clamp(0.0, f64::from(observation.available[kind]))
}
