//! What part of the time was due to each project, by the work that it had (R5.32) and by the work that it
//! could have had (R5.35), worked out again only when the answer may differ.

use fallow_domain::{Fraction, PerType, ProjectId, ResourceType, Share};

use super::{Observation, ProjectObservation};
use crate::due::{DueClaim, LastRates};
use crate::plan_host::PlanHost;

/// What limits a project's part.
#[derive(Clone, Copy, Debug)]
pub(super) enum DueBy {
    /// The work that it has here.
    Work,
    /// The work that it could have if it were asked.
    Supply,
}

impl DueBy {
    /// Instances that a project could use; more than there are make no difference.
    fn limit(self, observation: &Observation<'_>, project: &ProjectObservation, kind: ResourceType) -> f64 {
        let limit = match self {
            Self::Work => project.could_use[kind],
            // Nothing but what it uses of what the others leave.
            Self::Supply if project.share.get() <= 0.0 => 0.0,
            Self::Supply => project.could_get[kind],
        };
        limit.clamp(0.0, f64::from(observation.available[kind]))
    }
}

/// What is due by either.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DueSources {
    pub(super) work: DueParts,
    pub(super) supply: DueParts,
}

impl Default for DueSources {
    fn default() -> Self {
        Self { work: DueParts::by(DueBy::Work), supply: DueParts::by(DueBy::Supply) }
    }
}

/// The last answer, and what it was an answer to.
#[derive(Clone, Debug)]
pub(super) struct DueParts {
    by: DueBy,
    asked: Vec<(ProjectId, Share, PerType<f64>)>,
    available: PerType<u32>,
    speeds: PerType<f64>,
    rates: Vec<f64>,
    all: f64,
    /// Whoever uses time without a claim to it, as a project without a share, mostly does so evenly.
    division: LastRates,
}

/// It is derived from the history, and no part of it.
impl PartialEq for DueParts {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl DueParts {
    fn by(by: DueBy) -> Self {
        let (available, speeds) = (PerType::default(), PerType::default());
        let division = LastRates::default();
        Self { by, asked: Vec::new(), available, speeds, rates: Vec::new(), all: 0.0, division }
    }

    /// For each project of a stretch, the speed that was due to it, in CPUs, and what they come to.
    pub(super) fn of(&mut self, observation: &Observation<'_>, secs: f64) -> (&[f64], f64) {
        let available = &observation.available;
        let limit = |p: &ProjectObservation, kind| self.by.limit(observation, p, kind);
        // A project that used time had work for it, even if its last job ended on the way.
        let ended = |p: &ProjectObservation| {
            p.used.iter().any(|(kind, used)| used.is_positive() && limit(p, kind) <= 0.0)
        };
        let any_ended = observation.projects.iter().any(ended);
        let known = !any_ended
            && self.asked.len() == observation.projects.len()
            && self.available == *available
            && self.speeds == observation.speeds
            && self.asked.iter().zip(observation.projects).all(|((id, share, asked), p)| {
                *id == p.project
                    && *share == p.share
                    // What there is none of limits nobody.
                    && asked.iter().all(|(kind, asked)| available[kind] == 0 || *asked == limit(p, kind))
            });
        if !known {
            self.work_out(observation, secs);
            if any_ended {
                self.asked.clear();
            }
        }
        (&self.rates, self.all)
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
        let limits = |p: &ProjectObservation| PerType::from_fn(|kind| self.by.limit(observation, p, kind));
        let claims: Vec<DueClaim> = observation
            .projects
            .iter()
            .map(|p| {
                let limit = limits(p).map(|kind, limit| limit.max(p.used[kind].as_secs_f64() / secs));
                DueClaim { project: p.project, share: p.share, limit }
            })
            .collect();
        let asked = observation.projects.iter().map(|p| (p.project, p.share, limits(p))).collect();
        let due = self.division.of(&host, &claims);
        let speed =
            |rates: &PerType<f64>| rates.iter().map(|(kind, rate)| rate * observation.speeds[kind]).sum();
        self.rates.clear();
        self.rates.extend(due.iter().map(|rates| -> f64 { speed(rates) }));
        self.all = self.rates.iter().sum();
        self.asked = asked;
        (self.available, self.speeds) = (observation.available, observation.speeds);
    }
}

#[cfg(test)]
mod tests {
    use fallow_domain::{Duration, Instant};

    use super::*;

    /// Shows R5.35.
    #[test]
    fn what_is_due_beside_a_project_without_a_share_that_runs_is_not_divided_anew_at_every_booking() {
        let mut due = DueParts::by(DueBy::Supply);
        let from = Instant::from_secs_f64(1.8e9);
        let mut of = |secs: i64, uses: f64| {
            let length = Duration::from_secs(secs);
            let project = |id: u32, share: f64, used: f64| ProjectObservation {
                project: ProjectId(id),
                share: Share::new(share).unwrap(),
                used: PerType::cpu(length.mul_f64(used)),
                running: used > 0.0,
                could_use: PerType::cpu(used),
                could_get: PerType::cpu(1.0),
            };
            let projects = [project(1, 100.0, 0.0), project(2, 0.0, uses)];
            let observation = Observation {
                from,
                to: from + length,
                available: PerType::cpu(2),
                starved: PerType::default(),
                speeds: PerType::cpu(1.0),
                throttled: Duration::ZERO,
                scheduling_period: Duration::from_hours(1),
                projects: &projects,
            };
            let rates = due.of(&observation, length.as_secs_f64()).0.to_vec();
            (rates, due.division.made)
        };
        for secs in [10, 7, 3_600, 1] {
            assert_eq!(of(secs, 1.0), (vec![1.0, 1.0], 1), "{secs} s");
        }
        assert_eq!(of(10, 0.5), (vec![1.0, 0.5], 2));
    }
}
