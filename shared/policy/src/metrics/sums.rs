//! Sums over some time, in seconds of one CPU where they are instance time.

use std::collections::BTreeMap;

use fallow_domain::{Duration, Fraction, PerType, ProjectId};
use serde::{Deserialize, Serialize};

use super::absence::Absences;
use super::due::DueSources;
use super::{Figures, Observation, weighted_secs};

/// What one project got and what was due to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "StoredPart")]
pub(super) struct Part {
    pub(super) got: f64,
    /// By the work that it had: a part of what all got.
    pub(super) due: f64,
    /// By the work that it could have had: a part of what all could have got.
    pub(super) due_of_supply: f64,
}

/// A part as it is read: an older one does not say what was due by supply, and what was due by the work at
/// hand stands in for it.
#[derive(Deserialize)]
struct StoredPart {
    got: f64,
    due: f64,
    due_of_supply: Option<f64>,
}

impl From<StoredPart> for Part {
    fn from(stored: StoredPart) -> Self {
        let StoredPart { got, due, due_of_supply } = stored;
        Self { got, due, due_of_supply: due_of_supply.unwrap_or(due) }
    }
}

/// The parts of all projects, by id. A list and not a map: it is short, and is gone through at each booking.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<ProjectId, Part>", into = "BTreeMap<ProjectId, Part>")]
pub(super) struct Parts(Vec<(ProjectId, Part)>);

impl From<BTreeMap<ProjectId, Part>> for Parts {
    fn from(parts: BTreeMap<ProjectId, Part>) -> Self {
        Self(parts.into_iter().collect())
    }
}

impl From<Parts> for BTreeMap<ProjectId, Part> {
    fn from(parts: Parts) -> Self {
        parts.0.into_iter().collect()
    }
}

impl Parts {
    /// The part of a project, which is probably the one at `place`.
    fn of(&mut self, project: ProjectId, place: usize) -> &mut Part {
        let found = self.0.get(place).is_some_and(|(id, _)| *id == project);
        let place = match found {
            true => place,
            false => match self.0.binary_search_by_key(&project, |(id, _)| *id) {
                Ok(place) => place,
                Err(place) => {
                    self.0.insert(place, (project, Part::default()));
                    place
                }
            },
        };
        &mut self.0[place].1
    }
}

/// Sums over some time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Sums {
    pub(super) available: f64,
    pub(super) starved: f64,
    pub(super) throttled: f64,
    pub(super) parts: Parts,
    pub(super) settled: f64,
    pub(super) missed: f64,
    pub(super) jobs: f64,
    pub(super) rpcs: f64,
    /// Project seconds in which a project was away while others ran, and those beyond what is necessary.
    pub(super) away: f64,
    pub(super) monotonous: f64,
}

impl Sums {
    pub(super) fn add_observation(
        &mut self,
        observation: &Observation<'_>,
        secs: f64,
        due: &mut DueSources,
        absences: &mut Absences,
    ) {
        for (kind, count) in observation.available.iter().filter(|(_, count)| **count > 0) {
            let available = f64::from(*count);
            let worth = observation.speeds[kind] * secs;
            self.available += available * worth;
            self.starved += observation.starved[kind].clamp(0.0, available) * worth;
        }
        self.throttled += observation.throttled.max(Duration::ZERO).as_secs_f64();
        let mut total = 0.0;
        for (place, project) in observation.projects.iter().enumerate() {
            let got = weighted_secs(&project.used, &observation.speeds);
            self.parts.of(project.project, place).got += got;
            total += got;
        }
        let by_work = (total > 0.0).then(|| due.work.of(observation, secs));
        let is_on = observation.available != PerType::default();
        let by_supply = is_on.then(|| due.supply.of(observation, secs));
        for (place, project) in observation.projects.iter().enumerate() {
            let part = self.parts.of(project.project, place);
            if let Some((rates, all)) = by_work {
                let all = if all > 0.0 { all } else { 1.0 };
                part.due += total * (rates[place] / all);
            }
            if let Some((rates, _)) = by_supply {
                part.due_of_supply += rates[place] * secs;
            }
        }
        let (away, monotonous) = absences.observe(observation, secs);
        self.away += away;
        self.monotonous += monotonous;
    }

    pub(super) fn add(&mut self, other: &Self, weight: f64) {
        self.available += other.available * weight;
        self.starved += other.starved * weight;
        self.throttled += other.throttled * weight;
        self.settled += other.settled * weight;
        self.missed += other.missed * weight;
        self.jobs += other.jobs * weight;
        self.rpcs += other.rpcs * weight;
        self.away += other.away * weight;
        self.monotonous += other.monotonous * weight;
        for (place, (id, part)) in other.parts.0.iter().enumerate() {
            let mine = self.parts.of(*id, place);
            mine.got += part.got * weight;
            mine.due += part.due * weight;
            mine.due_of_supply += part.due_of_supply * weight;
        }
    }

    /// Back to nothing, with the memory for the parts kept.
    pub(super) fn clear(&mut self) {
        let mut parts = std::mem::take(&mut self.parts);
        parts.0.clear();
        *self = Self { parts, ..Self::default() };
    }

    pub(super) fn figures(&self) -> Figures {
        let over = |part: f64, whole: f64| (whole > 0.0).then(|| Fraction::clamped(part / whole));
        let parts = || self.parts.0.iter();
        let got: f64 = parts().map(|(_, part)| part.got).sum();
        let apart: f64 = parts().map(|(_, part)| (part.got - part.due).abs()).sum();
        let supply: f64 = parts().map(|(_, part)| part.due_of_supply).sum();
        let off = |part: &Part| (part.got / got - part.due_of_supply / supply).abs();
        let deviation = (got > 0.0 && supply > 0.0).then(|| parts().map(|(_, part)| off(part)).sum::<f64>());
        let nobody_away = got > 0.0 && self.away <= 0.0;
        Figures {
            idleness: over(self.starved, self.available),
            waste: over(self.missed, self.settled),
            share_violation: over(apart / 2.0, got),
            share_deviation: deviation.map(|sum| Fraction::clamped(sum / 2.0)),
            monotony: if nobody_away { Some(Fraction::ZERO) } else { over(self.monotonous, self.away) },
            rpcs_per_job: (self.jobs > 0.0).then(|| self.rpcs / self.jobs),
            throttled: Duration::from_secs_f64(self.throttled),
            used: parts().map(|(id, part)| (*id, Duration::from_secs_f64(part.got))).collect(),
            due: parts().map(|(id, part)| (*id, Duration::from_secs_f64(part.due))).collect(),
            due_of_supply: parts()
                .map(|(id, part)| (*id, Duration::from_secs_f64(part.due_of_supply)))
                .collect(),
        }
    }
}
