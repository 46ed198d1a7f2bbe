//! What is due to each project of each resource type: e(P, R) of R3.3.
//!
//! Model: the host's *total speed* is divided, and not each type by itself. This is max-min fairness over
//! projects, weighted by share: the project that has least for its share gets first, as much as it can use,
//! from whatever types it can use. So a project that has GPU jobs only gets more of the GPU when the others
//! have the CPUs to themselves (R3.13).
//!
//! The algorithm is water-filling. What each project has rises at a speed given by its share. A project
//! first takes types that nobody else needs for now. A set T of types runs out at the level at which what
//! the projects need of T, the sum of min(limits in T, level x share - limits outside T), equals the
//! capacity of T. The set that runs out at the lowest level does so first. (This is Hall's condition,
//! tested for every set of types.) The projects that need that set stop there; the others go on without its
//! types. There are at most five types, so all sets are tried.
//!
//! How much each project gets in all is unique. How that is spread over the types of one exhausted set is
//! not: it is spread in proportion, so that all projects get their plain share fraction of each type where
//! all can use all types.
//!
//! Projects with a share of zero get what all others cannot use, in equal parts.

mod spread;

use std::fmt;

use fallow_domain::{PerType, ProjectId, ResourceType, Share};

use crate::plan_host::PlanHost;

/// A project that takes part in the division.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DueClaim {
    /// The project.
    pub project: ProjectId,
    /// Its share.
    pub share: Share,
    /// Instances of each type that it could use at once; 0 where it does not take part. What is not finite,
    /// or more than the host has, counts as all of them.
    pub limit: PerType<f64>,
}

/// A project in the division. All quantities are speeds: instances x speed of one.
struct Seeker {
    index: usize,
    weight: f64,
    limit: PerType<f64>,
}

/// A set of types, as the sum of the bits of its members.
#[derive(Clone, Copy, PartialEq)]
struct TypeSet(u8);

impl TypeSet {
    fn has(self, kind: ResourceType) -> bool {
        self.0 & (1 << kind as u8) != 0
    }
    fn sum(self, of: &PerType<f64>) -> f64 {
        of.iter().filter(|(kind, _)| self.has(*kind)).map(|(_, value)| value).sum()
    }
    fn sum_outside(self, of: &PerType<f64>) -> f64 {
        of.iter().filter(|(kind, _)| !self.has(*kind)).map(|(_, value)| value).sum()
    }
    fn kinds(self) -> impl Iterator<Item = ResourceType> {
        ResourceType::ALL.into_iter().filter(move |kind| self.has(*kind))
    }
    /// All sets but the empty one within this one, the small ones first.
    fn subsets(self) -> impl Iterator<Item = Self> {
        (1..=self.0.count_ones())
            .flat_map(move |size| (1..=self.0).filter(move |bits| bits.count_ones() == size))
            .filter(move |bits| bits & !self.0 == 0)
            .map(Self)
    }
}

/// Instances of each type that are due to each project, in the order of the claims. Over a type they sum to
/// its instances, or to what all can use of it if that is less.
pub fn rates(host: &PlanHost, claims: &[DueClaim]) -> Vec<PerType<f64>> {
    let speeds = host.speeds.map(|_, speed| if speed.is_finite() && *speed > 0.0 { *speed } else { 1.0 });
    let instances = host.instances.map(|_, count| f64::from(*count));
    let mut left = instances.map(|kind, count| count * speeds[kind]);
    let mut due = vec![PerType::default(); claims.len()];
    let seekers = |counts: bool| {
        let taking = claims.iter().enumerate().filter(move |(_, claim)| (claim.share.get() > 0.0) == counts);
        taking.map(move |(index, claim)| Seeker {
            index,
            weight: if counts { claim.share.get() } else { 1.0 },
            limit: claim.limit.map(|kind, limit| usable(*limit, instances[kind]) * speeds[kind]),
        })
    };
    divide(seekers(true).collect(), &mut left, &mut due);
    divide(seekers(false).collect(), &mut left, &mut due);
    due.iter().map(|speed| speed.map(|kind, speed| speed / speeds[kind])).collect()
}

/// The last division. Mostly the same one is asked for again, and it takes long.
///
/// It follows from what was asked, so it is no part of what holds it: two of them are always equal.
#[derive(Clone, Default)]
pub struct LastRates {
    claims: Vec<DueClaim>,
    instances: PerType<u32>,
    speeds: PerType<f64>,
    rates: Vec<PerType<f64>>,
    /// How many were made.
    #[cfg(test)]
    pub(crate) made: u32,
}

impl LastRates {
    /// The same as [`rates`].
    pub fn of(&mut self, host: &PlanHost, claims: &[DueClaim]) -> &[PerType<f64>] {
        let is_known =
            self.claims == claims && self.instances == host.instances && self.speeds == host.speeds;
        if !is_known {
            self.rates = rates(host, claims);
            #[cfg(test)]
            (self.made += 1);
            self.claims.clear();
            self.claims.extend_from_slice(claims);
            (self.instances, self.speeds) = (host.instances, host.speeds);
        }
        &self.rates
    }
}

impl PartialEq for LastRates {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for LastRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LastRates").finish_non_exhaustive()
    }
}

fn usable(limit: f64, instances: f64) -> f64 {
    if limit.is_nan() { 0.0 } else { limit.clamp(0.0, instances) }
}

/// Divides what is `left` of each type, until nobody can use more.
fn divide(mut seekers: Vec<Seeker>, left: &mut PerType<f64>, due: &mut [PerType<f64>]) {
    loop {
        for seeker in &mut seekers {
            for (kind, limit) in seeker.limit.iter_mut() {
                *limit = limit.min(left[kind]);
            }
        }
        seekers.retain(|seeker| seeker.limit.iter().any(|(_, limit)| *limit > 0.0));
        let wanted = |kind: &ResourceType| seekers.iter().any(|seeker| seeker.limit[*kind] > 0.0);
        let open = ResourceType::ALL.into_iter().filter(wanted).map(|kind| 1_u8 << kind as u8).sum();
        let Some((level, exhausted)) = first_exhausted(&seekers, TypeSet(open), left) else {
            for seeker in &seekers {
                give(seeker, seeker.limit, left, due);
            }
            return;
        };
        let (stop, go_on): (Vec<Seeker>, Vec<Seeker>) = seekers
            .into_iter()
            .partition(|seeker| level * seeker.weight > exhausted.sum_outside(&seeker.limit));
        spread::spread(&stop, level, exhausted, left, due);
        for kind in exhausted.kinds() {
            left[kind] = 0.0;
        }
        seekers = go_on;
    }
}

fn give(seeker: &Seeker, part: PerType<f64>, left: &mut PerType<f64>, due: &mut [PerType<f64>]) {
    for (kind, part) in part.iter() {
        due[seeker.index][kind] += part;
        left[kind] = (left[kind] - part).max(0.0);
    }
}

/// The set of types that runs out first, and the level at which it does; none if there is enough of all.
fn first_exhausted(seekers: &[Seeker], open: TypeSet, left: &PerType<f64>) -> Option<(f64, TypeSet)> {
    let mut first: Option<(f64, TypeSet)> = None;
    let mut scratch = Vec::with_capacity(2 * seekers.len());
    for set in open.subsets() {
        // Of sets that run out at the same level the smaller one counts; the hair is for rounding.
        if let Some(level) = runs_out_at(seekers, set, set.sum(left), &mut scratch)
            && first.is_none_or(|(lowest, _)| level < lowest * (1.0 - 1e-12))
        {
            first = Some((level, set));
        }
    }
    first
}

/// The level at which what projects need of a set of types, beyond what the other types give them, equals
/// what there is of it. A project needs more of the set from the level on where the other types are at its
/// limit, up to the level where all are.
fn runs_out_at(seekers: &[Seeker], set: TypeSet, there: f64, steps: &mut Vec<(f64, f64)>) -> Option<f64> {
    let most: f64 = seekers.iter().map(|seeker| set.sum(&seeker.limit)).sum();
    if most <= there * (1.0 + 1e-12) {
        return None;
    }
    steps.clear();
    for seeker in seekers {
        let (inside, outside) = (set.sum(&seeker.limit), set.sum_outside(&seeker.limit));
        if inside > 0.0 {
            steps.push((outside / seeker.weight, seeker.weight));
            steps.push(((outside + inside) / seeker.weight, -seeker.weight));
        }
    }
    steps.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let (mut level, mut weights, mut needed) = (0.0, 0.0_f64, 0.0);
    for (next, weight) in steps.iter() {
        let then = needed + weights * (next - level);
        if then >= there && weights > 0.0 {
            return Some(level + (there - needed) / weights);
        }
        (level, needed, weights) = (*next, then, weights + weight);
    }
    Some(level)
}

#[cfg(test)]
mod tests;
