//! Monotony (R5.33): how much longer than necessary projects are away.
//!
//! Why there is such a metric: whoever gives two projects the same share and sees the host compute for one of
//! them for days on end is not content, however right the sums are in the long run. Switches are counted only
//! as far as they end an absence: two projects that have a CPU each need no switch at all.
//!
//! Model: a project is *away* while none of its tasks runs and another project's does. An absence is
//! necessary as long as a host that switches as often as its scheduling period allows would make it: with n
//! instances, and f its fraction of the shares, a project runs for one period on one instance and is then
//! away until its turn comes again, 1 / (f x n) periods after the last; but at least for one period. What an
//! absence lasts beyond that is monotonous, and monotony is the monotonous part of all absences: 0 if the
//! host switches as often as possible, towards 1 if it never does.
//!
//! All attached projects with a share count, whether or not they have work: a host that only ever gets work
//! of one of its two projects is monotonous. Time in which the host is off, or in which nothing runs, does
//! not count. With one project nobody is ever away.

use fallow_domain::ProjectId;
use serde::{Deserialize, Serialize};

use super::Observation;

/// How long each project has been away, in seconds of time in which others ran; in the order of the
/// stretches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Absences(Vec<(ProjectId, f64)>);

impl Absences {
    /// Takes in a stretch. Returns the project seconds that projects with a share were away in it, and those
    /// of them that were monotonous.
    pub(super) fn observe(&mut self, observation: &Observation<'_>, secs: f64) -> (f64, f64) {
        self.follow(observation);
        if !observation.projects.iter().any(|p| p.running) {
            return (0.0, 0.0);
        }
        let period = observation.scheduling_period.as_secs_f64().max(1.0);
        let shares: f64 = observation.projects.iter().map(|p| p.share.get()).sum();
        let instances: u32 = observation.available.iter().map(|(_, count)| count).sum();
        let (mut away, mut monotonous) = (0.0, 0.0);
        for ((_, absence), project) in self.0.iter_mut().zip(observation.projects) {
            if project.running {
                *absence = 0.0;
            } else if project.share.get() > 0.0 {
                let turns = project.share.get() / shares * f64::from(instances.max(1));
                let necessary = period * (1.0 / turns - 1.0).max(1.0);
                away += secs;
                monotonous += (*absence + secs - necessary).max(0.0) - (*absence - necessary).max(0.0);
                *absence += secs;
            }
        }
        (away, monotonous)
    }

    /// Keeps the list in step with the attached projects.
    fn follow(&mut self, observation: &Observation<'_>) {
        let ids = || observation.projects.iter().map(|p| p.project);
        if self.0.len() != observation.projects.len() || !self.0.iter().map(|(id, _)| *id).eq(ids()) {
            let before = std::mem::take(&mut self.0);
            let absence =
                |id| before.iter().find(|(known, _)| *known == id).map_or(0.0, |(_, absence)| *absence);
            self.0 = ids().map(|id| (id, absence(id))).collect();
        }
    }
}
