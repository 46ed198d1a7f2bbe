//! How much work is asked for ahead of time, and whether it would be in time.

use fallow_domain::{Duration, InstanceSeconds, ResourceType};

use super::{Candidate, Fit, active, ahead, covered, is_always_connected, possibly_in_time};
use crate::fetch::{FetchPriority, FetchSituation, TypicalJob};
use crate::on_time::Sureness;

/// Of what is lacking ahead, so much is asked for at a time where projects take turns.
const PART: f64 = 0.5;

/// What is left on average of an outage when a job ends within it, and cannot be reported.
const OUTAGE_LEFT: f64 = 0.5;

/// Of what is lacking until the next contact, at least so much is asked of one project.
const LEAST_PART: f64 = 0.25;

/// A project whose turn it is, with its typical job.
pub(super) struct Asked<'a> {
    pub(super) situation: &'a FetchSituation<'a>,
    pub(super) kind: ResourceType,
    pub(super) candidate: &'a Candidate<'a>,
    pub(super) job: &'a TypicalJob,
}

impl Asked<'_> {
    /// How much to ask for ahead of time, and how the last job of it fits; none where nothing is lacking or
    /// it would not be in time. `able` are those that may be asked now.
    pub(super) fn ahead(
        &self,
        candidates: &[Candidate<'_>],
        able: &[&Candidate<'_>],
    ) -> Option<(InstanceSeconds, Fit)> {
        let held = covered(self.situation, self.kind);
        let lacking = ahead(self.situation, self.kind) - held;
        if !lacking.is_positive() {
            return None;
        }
        if !is_always_connected(self.situation) {
            return self.until_next_contact(held, lacking, able);
        }
        let turns = self.others_turns(candidates).min(held + lacking);
        let unreported = self.situation.droughts[self.kind].mul_f64(OUTAGE_LEFT);
        let fit = self.fit(held + turns, self.job.latency_bound - unreported, Sureness::Sure);
        // A server sends a whole job for half of one. Its typical job may be the longest of several.
        let whole = lacking.mul_f64(self.instances());
        let half_a_job = self.job.running_time.mul_f64(self.job.instances * 0.5).min(whole);
        let seconds = whole.mul_f64(PART).max(half_a_job);
        fit.is_in_time().then_some((InstanceSeconds::of_one(seconds), fit))
    }

    /// The same where nothing can be fetched until the next contact, so that no turn is waited for. Work is
    /// had that will surely be in time, however long the host may be on before it is connected again; and
    /// beyond that as long as it is as likely to idle without as to be late with it.
    fn until_next_contact(
        &self,
        held: Duration,
        lacking: Duration,
        able: &[&Candidate<'_>],
    ) -> Option<(InstanceSeconds, Fit)> {
        let Self { situation, kind, job, .. } = *self;
        let interval = situation.connection_interval;
        let alone = |sureness| situation.on_time.within(situation.now, interval, sureness);
        // A deadline that would be missed breaks the interval. Else it is planned to have jobs finished an
        // interval before their deadlines (R1.13).
        let tiers = [
            (alone(Sureness::Hope), job.latency_bound, Sureness::Sure),
            (alone(Sureness::Even), job.latency_bound, Sureness::Even),
            (held + lacking, job.latency_bound - interval, Sureness::Sure),
        ];
        let tier = |(to, window, sureness)| {
            let fit = self.fit(held, window, sureness);
            (fit.is_in_time() && to > held).then(|| (fit.there.min(to) - held, fit))
        };
        let (lacking, fit) = tiers.into_iter().filter_map(tier).max_by_key(|(lacking, _)| *lacking)?;
        let idles = situation.outlook.types[kind].shortfall.get();
        let lacking = (lacking.as_secs_f64() * self.instances()).min(idles * active(situation));
        let seconds = self.part(held.as_secs_f64() * self.instances(), lacking, able);
        // BOINC's servers reckon with the share of time that the host is on.
        let by_the_clock = situation.window().as_secs_f64() * self.instances();
        Some((InstanceSeconds::new((seconds / active(situation)).min(by_the_clock).max(seconds)), fit))
    }

    /// The part of what is lacking, in instance-seconds, that is asked of this project: its share, among
    /// those that may be asked now, of all that is to be held, less what is held of it, and what it is owed.
    /// At least a quarter of what is lacking, or half a job, so that few requests do.
    fn part(&self, held: f64, lacking: f64, able: &[&Candidate<'_>]) -> f64 {
        let Self { situation, kind, candidate, job } = *self;
        let shares: f64 = able.iter().map(|c| c.project.share.get()).sum();
        let part = candidate.project.share.get() / shares.max(f64::MIN_POSITIVE);
        let owed = match candidate.priority {
            FetchPriority::Debt(debt) => debt.as_secs() / situation.host.speeds[kind].max(1e-9),
            FetchPriority::Score(_) => 0.0,
        };
        let own = situation.queue.remaining_on(candidate.project.id, kind).as_secs_f64();
        let half_a_job = job.running_time.as_secs_f64() * job.instances * 0.5;
        let least = half_a_job.max(lacking * LEAST_PART).min(lacking);
        if part >= 1.0 { lacking } else { ((held + lacking) * part - own + owed).clamp(least, lacking) }
    }

    /// How a job fits that begins after so much on-time.
    fn fit(&self, behind: Duration, window: Duration, sureness: Sureness) -> Fit {
        let there = self.situation.on_time.within(self.situation.now, window, sureness);
        Fit { takes: behind + self.job.running_time, there }
    }

    fn instances(&self) -> f64 {
        f64::from(self.situation.host.instances[self.kind].max(1))
    }

    /// On-time that one typical job of each other project takes that may be asked and has none waiting.
    fn others_turns(&self, candidates: &[Candidate<'_>]) -> Duration {
        let others = candidates.iter().filter(|c| {
            let is_other = c.has_share() && c.project.id != self.candidate.project.id;
            let has_unstarted = || self.situation.queue.has_unstarted(c.project.id, self.kind);
            is_other && c.may_supply(self.kind) && !has_unstarted()
        });
        // One that cannot be in time anyway has no turn.
        let work: Duration = others
            .filter_map(|c| c.typical[self.kind])
            .filter(|job| possibly_in_time(self.situation, job).is_in_time())
            .map(|job| job.running_time.mul_f64(job.instances))
            .fold(Duration::ZERO, |sum, work| sum + work);
        work.mul_f64(1.0 / self.instances())
    }
}
