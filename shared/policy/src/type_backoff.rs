//! When a project may be asked for work of a resource type again (R3.7, R3.11).
//!
//! Model: each request for a type that brings no job of it doubles a wait, from ten minutes up to a day,
//! drawn from the upper half of the interval so that hosts that were refused together do not come back
//! together. A job of the type ends it. The project's own waits (R1.3) hold in addition; they are not in
//! here.
//!
//! Nothing else that happens on the host does. BOINC's client ends it whenever a job of the type ends on the
//! host, and so asks a project that refuses work once for each job that it still has of it.
//!
//! A reply has three states for a type (R3.5): jobs, none now, and not supported. The last two back off
//! alike; what they mean for debts is `long_term_debt`'s affair.
//!
//! A project that spreads a small batch over its hosts (`send::spread`) says that this one has its part. That
//! is no lack of work, and when a job of it ends here there may be more: it is asked again then.
//!
//! The state is stored; after a restart, or a jump of the clock, no wait is longer than it was meant to be
//! (R1.12).

use std::collections::BTreeMap;

use fallow_domain::{Duration, Instant, PerType, ProjectId, ResourceType};
use rand::Rng;
use serde::{Deserialize, Serialize};

use crate::backoff::{Backoff, Wait};

/// The backoff of requests for work of a type that brought none (R3.7).
pub const BACKOFF: Backoff = Backoff { first: Duration::from_mins(10), max: Duration::from_hours(24) };

/// A project that refused its jobs because they would be late is not asked for so long: what is held changes,
/// and the host's hours do, but not at once.
pub const LATE_REFUSAL_WAIT: Duration = Duration::from_mins(10);

/// What a reply said about a type that it was asked for (R3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyForType {
    /// It brought so many jobs of it; zero is as good as `NoneNow`.
    Jobs(u32),
    /// It has none now, but supports the type.
    NoneNow,
    /// It has some, but they would be late here, and that is held against it as if it had none.
    RefusedLate,
    /// It has nothing that could run on this type.
    NotSupported,
}

/// What followed from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterReply {
    /// Jobs came; nothing holds the type back.
    Cleared,
    /// None came.
    BackedOff {
        /// Requests in a row that brought none, this one included.
        failures: u32,
        /// The wait drawn for it.
        wait: Duration,
        /// Whether the interval has reached its maximum: then the type counts as not supported (R3.5).
        at_maximum: bool,
    },
}

/// What is known of a project that sent no work of a type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Known {
    /// It had none then.
    #[default]
    NoneNow,
    /// It has nothing for such instances.
    NotSupported,
    /// It has some, which would be late here.
    Late,
}

impl Known {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Refused {
    failures: u32,
    wait: Wait,
    /// Its jobs would be late here, which is not held against it: it goes on earning.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    late: bool,
    #[serde(default, skip_serializing_if = "Known::is_default")]
    known: Known,
    /// The host has its part of the project's jobs: it may ask again when one of them ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    until_job_ends: bool,
}

/// The backoffs of a host, by project and type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TypeBackoffs(BTreeMap<ProjectId, PerType<Option<Refused>>>);

impl TypeBackoffs {
    /// Takes note of the time. To be called on every turn, so that a clock that jumped back lengthens no
    /// wait.
    pub fn observe(&mut self, now: Instant) {
        for refused in
            self.0.values_mut().flat_map(PerType::iter_mut).filter_map(|(_, refused)| refused.as_mut())
        {
            refused.wait.observe(now);
        }
    }

    /// Takes in what a reply said about a type that was asked for. For a type that was not asked for, only
    /// jobs are news.
    pub fn on_reply(
        &mut self,
        project: ProjectId,
        kind: ResourceType,
        reply: ReplyForType,
        now: Instant,
        rng: &mut (impl Rng + ?Sized),
    ) -> AfterReply {
        if matches!(reply, ReplyForType::Jobs(1..)) {
            self.clear(project, kind);
            return AfterReply::Cleared;
        }
        let known = match reply {
            ReplyForType::Jobs(_) | ReplyForType::NoneNow => Known::NoneNow,
            ReplyForType::NotSupported => Known::NotSupported,
            ReplyForType::RefusedLate => Known::Late,
        };
        let refused = &mut self.0.entry(project).or_default()[kind];
        if let Some(before) = refused.as_mut().filter(|before| before.wait.holds(now) && !before.late) {
            // It was asked because an RPC happened anyway: the wait goes on.
            before.known = known;
            let (failures, wait) = (before.failures, before.wait.left(now));
            return AfterReply::BackedOff {
                failures,
                wait,
                at_maximum: BACKOFF.interval(failures) == BACKOFF.max,
            };
        }
        let failures = refused.map_or(0, |refused| refused.failures).saturating_add(1);
        let wait = BACKOFF.draw(failures, rng);
        *refused =
            Some(Refused { failures, wait: Wait::new(now, wait), late: false, known, until_job_ends: false });
        AfterReply::BackedOff { failures, wait, at_maximum: BACKOFF.interval(failures) == BACKOFF.max }
    }

    /// A project refused jobs of a type because they would be late. That it had none before is not forgotten.
    pub fn on_late_refusal(&mut self, project: ProjectId, kind: ResourceType, now: Instant) {
        let (wait, failures) = (Wait::new(now, LATE_REFUSAL_WAIT), self.failures(project, kind));
        self.0.entry(project).or_default()[kind] =
            Some(Refused { failures, wait, late: true, known: Known::Late, until_job_ends: false });
    }

    /// A project sent no jobs of a type because the host has its part of them. It goes on earning, and is
    /// asked again when one of its jobs ends here, after [`LATE_REFUSAL_WAIT`] at the latest.
    pub fn on_part(&mut self, project: ProjectId, kind: ResourceType, now: Instant) {
        self.on_late_refusal(project, kind, now);
        if let Some(refused) = &mut self.0.entry(project).or_default()[kind] {
            refused.until_job_ends = true;
        }
    }

    /// A job of a project ended here. Says whether that ends a wait.
    pub fn on_job_ended(&mut self, project: ProjectId) -> bool {
        let waits = |kind: &ResourceType| self.refused(project, *kind).is_some_and(|r| r.until_job_ends);
        let ended: Vec<ResourceType> = ResourceType::ALL.into_iter().filter(waits).collect();
        ended.iter().for_each(|kind| self.clear(project, *kind));
        !ended.is_empty()
    }

    /// Whether a project is held back for lack of work of a type: it has none for this host.
    pub fn lacks_work(&self, project: ProjectId, kind: ResourceType, now: Instant) -> bool {
        let has_some = self.refused(project, kind).is_some_and(|refused| refused.late);
        !has_some && self.holds(project, kind, now)
    }

    /// Whether a project is known to have no work of a type for this host (R5.35): it said so when it was
    /// last asked, and is not to be asked again yet, or that was not long ago; or it has nothing for such
    /// instances at all. `must_wait` says whether it wants no request now. Whatever a policy makes of it, a
    /// refusal because jobs would be late says that there are some.
    pub fn has_none(&self, project: ProjectId, kind: ResourceType, now: Instant, must_wait: bool) -> bool {
        self.refused(project, kind).is_some_and(|refused| match refused.known {
            // Older versions stored only that it would be late.
            _ if refused.late => false,
            Known::NoneNow => must_wait || refused.wait.is_known(now),
            Known::NotSupported => true,
            Known::Late => false,
        })
    }

    /// Ends the backoff of one type.
    pub fn clear(&mut self, project: ProjectId, kind: ResourceType) {
        if let Some(types) = self.0.get_mut(&project) {
            types[kind] = None;
            if types.iter().all(|(_, refused)| refused.is_none()) {
                self.0.remove(&project);
            }
        }
    }

    /// Ends all backoffs of a project: its user asked for contact, or it was detached.
    pub fn clear_project(&mut self, project: ProjectId) {
        self.0.remove(&project);
    }

    /// Whether a project is not to be asked for a type now.
    pub fn holds(&self, project: ProjectId, kind: ResourceType, now: Instant) -> bool {
        self.left(project, kind, now).is_positive()
    }

    /// How long it still lasts, never more than a day; zero when nothing holds the type back.
    pub fn left(&self, project: ProjectId, kind: ResourceType, now: Instant) -> Duration {
        self.refused(project, kind).map_or(Duration::ZERO, |refused| refused.wait.left(now).min(BACKOFF.max))
    }

    /// The types for which a project is held back now.
    pub fn held(&self, project: ProjectId, now: Instant) -> PerType<bool> {
        PerType::from_fn(|kind| self.holds(project, kind, now))
    }

    /// Types of which a project has work, by what it said lately: work that would be late here, or of which
    /// this host has its part.
    pub fn has_work(&self, project: ProjectId, now: Instant) -> PerType<bool> {
        PerType::from_fn(|kind| {
            let refused = self.refused(project, kind);
            refused.is_some_and(|refused| refused.known == Known::Late && refused.wait.is_known(now))
        })
    }

    /// Requests for a type in a row that brought no job of it.
    pub fn failures(&self, project: ProjectId, kind: ResourceType) -> u32 {
        self.refused(project, kind).map_or(0, |refused| refused.failures)
    }

    /// When the next of all backoffs ends: the time at which a decision may come out differently.
    pub fn next_end(&self, now: Instant) -> Option<Instant> {
        let waits = self.0.values().flat_map(PerType::iter).filter_map(|(_, refused)| refused.as_ref());
        waits
            .map(|refused| refused.wait.left(now))
            .filter(|left| left.is_positive())
            .map(|left| now + left)
            .min()
    }

    fn refused(&self, project: ProjectId, kind: ResourceType) -> Option<&Refused> {
        self.0.get(&project)?[kind].as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backoff::KNOWN_FOR;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    use ResourceType::{Cpu, Nvidia};

    const P: ProjectId = ProjectId(1);

    fn at(secs: i64) -> Instant {
        Instant::from_secs_f64(1.8e9) + Duration::from_secs(secs)
    }
    fn rng() -> Pcg64 {
        Pcg64::seed_from_u64(7)
    }

    #[test]
    fn r3_7_a_late_refusal_holds_for_ten_minutes_however_often_and_is_no_lack_of_work() {
        let mut backoffs = TypeBackoffs::default();
        let (a, kind) = (ProjectId(1), ResourceType::Cpu);
        for times in 0..20 {
            let now = Instant::from_secs_f64(f64::from(times) * 600.0);
            assert!(!backoffs.holds(a, kind, now), "{times}");
            backoffs.on_late_refusal(a, kind, now);
            assert_eq!(backoffs.left(a, kind, now), LATE_REFUSAL_WAIT);
            assert!(backoffs.holds(a, kind, now) && !backoffs.lacks_work(a, kind, now));
        }
        assert_eq!(backoffs.failures(a, kind), 0);
        let b = ProjectId(2);
        const DAY: f64 = 86_400.0;
        for day in 0..3 {
            let now = Instant::from_secs_f64(DAY * f64::from(day));
            backoffs.on_reply(b, kind, ReplyForType::NoneNow, now, &mut rng());
        }
        let now = Instant::from_secs_f64(DAY * 3.0);
        backoffs.on_late_refusal(b, kind, now);
        assert_eq!((backoffs.failures(b, kind), backoffs.left(b, kind, now)), (3, LATE_REFUSAL_WAIT));
        let text = serde_json::to_string(&backoffs).unwrap();
        assert_eq!(serde_json::from_str::<TypeBackoffs>(&text).unwrap(), backoffs);
    }

    #[test]
    fn r3_7_who_has_its_part_of_a_batch_asks_again_when_a_job_of_it_ends_and_holds_nothing_against_it() {
        let mut backoffs = TypeBackoffs::default();
        backoffs.on_part(P, Cpu, at(0));
        backoffs.on_late_refusal(ProjectId(2), Cpu, at(0));
        assert!(backoffs.holds(P, Cpu, at(1)) && !backoffs.lacks_work(P, Cpu, at(1)));
        assert!(!backoffs.has_none(P, Cpu, at(1), true));
        assert_eq!(backoffs.left(P, Cpu, at(0)), LATE_REFUSAL_WAIT, "should its jobs take longer");
        let text = serde_json::to_string(&backoffs).unwrap();
        assert_eq!(serde_json::from_str::<TypeBackoffs>(&text).unwrap(), backoffs);
        assert!(!backoffs.on_job_ended(ProjectId(2)) && backoffs.holds(ProjectId(2), Cpu, at(1)));
        assert!(backoffs.on_job_ended(P) && !backoffs.holds(P, Cpu, at(1)));
        assert!(!backoffs.on_job_ended(P));
        backoffs.on_reply(P, Cpu, ReplyForType::NoneNow, at(1), &mut rng());
        assert!(
            !backoffs.on_job_ended(P) && backoffs.holds(P, Cpu, at(1)),
            "a lack of work is another thing"
        );
    }

    #[test]
    fn r5_35_a_project_has_no_work_while_it_says_so_and_none_for_what_it_does_not_support_at_all() {
        let (mut backoffs, mut rng) = (TypeBackoffs::default(), rng());
        assert!(!backoffs.has_none(P, Cpu, at(0), false), "nobody has asked");
        backoffs.on_reply(P, Cpu, ReplyForType::NoneNow, at(0), &mut rng);
        backoffs.on_reply(P, Nvidia, ReplyForType::NotSupported, at(0), &mut rng);
        assert!(backoffs.has_none(P, Cpu, at(1), false) && backoffs.has_none(P, Nvidia, at(1), false));
        let text = serde_json::to_string(&backoffs).unwrap();
        let mut backoffs: TypeBackoffs = serde_json::from_str(&text).unwrap();
        assert!(backoffs.has_none(P, Cpu, at(0) + KNOWN_FOR - Duration::from_secs(1), false));
        let later = at(0) + KNOWN_FOR;
        assert!(!backoffs.has_none(P, Cpu, later, false), "it could have been asked again");
        assert!(backoffs.has_none(P, Cpu, later, true), "it does not want to be asked");
        assert!(backoffs.has_none(P, Nvidia, later, false));
        for kind in [Cpu, Nvidia] {
            backoffs.on_reply(P, kind, ReplyForType::Jobs(1), later, &mut rng);
            assert!(!backoffs.has_none(P, kind, later, true), "it sent some");
        }
    }

    #[test]
    fn r5_35_a_refusal_for_lateness_says_that_there_is_work_whatever_is_made_of_it() {
        let (mut backoffs, mut rng) = (TypeBackoffs::default(), rng());
        let after = backoffs.on_reply(P, Cpu, ReplyForType::RefusedLate, at(0), &mut rng);
        assert!(matches!(after, AfterReply::BackedOff { failures: 1, .. }), "{after:?}");
        assert!(backoffs.lacks_work(P, Cpu, at(1)), "held against it");
        assert!(!backoffs.has_none(P, Cpu, at(1), true));
        backoffs.on_late_refusal(P, Cpu, at(0));
        assert!(backoffs.holds(P, Cpu, at(1)) && !backoffs.has_none(P, Cpu, at(1), true));
    }

    #[test]
    fn r5_35_a_refusal_for_lateness_that_an_older_version_stored_says_that_there_is_work() {
        let mut backoffs = TypeBackoffs::default();
        backoffs.on_late_refusal(P, Cpu, at(0));
        let stored = serde_json::to_string(&backoffs).unwrap();
        let older = stored.replace(r#","known":"Late""#, "");
        assert_ne!(older, stored);
        let backoffs: TypeBackoffs = serde_json::from_str(&older).unwrap();
        assert!(backoffs.holds(P, Cpu, at(1)) && !backoffs.has_none(P, Cpu, at(1), true));
    }

    #[test]
    fn r3_7_the_wait_doubles_from_ten_minutes_to_a_day_for_that_type_only() {
        let (mut backoffs, mut rng) = (TypeBackoffs::default(), rng());
        let mut now = at(0);
        for n in 1..=12 {
            now = now + backoffs.left(P, Nvidia, now);
            let after = backoffs.on_reply(P, Nvidia, ReplyForType::NoneNow, now, &mut rng);
            let AfterReply::BackedOff { failures, wait, at_maximum } = after else { panic!("{after:?}") };
            let interval = BACKOFF.interval(n);
            assert!(failures == n && wait >= interval / 2 && wait <= interval);
            assert_eq!(at_maximum, n >= 9, "10 minutes x 2^8 are more than a day");
        }
        assert!(backoffs.holds(P, Nvidia, now) && !backoffs.holds(P, Cpu, now));
        assert!(!backoffs.holds(ProjectId(2), Nvidia, now));
    }

    /// As with the report of each of many jobs, or when a project wants to hear of the host every minute.
    #[test]
    fn r3_7_who_is_asked_during_the_wait_because_an_rpc_happens_anyway_is_not_waited_for_longer() {
        let (mut backoffs, mut rng) = (TypeBackoffs::default(), rng());
        backoffs.on_reply(P, Cpu, ReplyForType::NoneNow, at(0), &mut rng);
        let left = backoffs.left(P, Cpu, at(0));
        for secs in 1..100 {
            backoffs.on_reply(P, Cpu, ReplyForType::NoneNow, at(secs), &mut rng);
        }
        assert_eq!(backoffs.failures(P, Cpu), 1);
        assert_eq!(backoffs.left(P, Cpu, at(99)), left - Duration::from_secs(99));
        backoffs.on_reply(P, Cpu, ReplyForType::Jobs(1), at(100), &mut rng);
        assert!(!backoffs.holds(P, Cpu, at(100)));
    }

    #[test]
    fn r3_11_a_job_of_a_type_clears_its_backoff_and_no_other() {
        let (mut backoffs, mut rng) = (TypeBackoffs::default(), rng());
        backoffs.on_reply(P, Cpu, ReplyForType::NoneNow, at(0), &mut rng);
        backoffs.on_reply(P, Nvidia, ReplyForType::NotSupported, at(0), &mut rng);
        assert_eq!(backoffs.on_reply(P, Cpu, ReplyForType::Jobs(1), at(1), &mut rng), AfterReply::Cleared);
        assert_eq!((backoffs.failures(P, Cpu), backoffs.failures(P, Nvidia)), (0, 1));
    }

    #[test]
    fn r3_7_the_next_contact_is_the_earliest_of_its_types() {
        let (mut backoffs, mut rng) = (TypeBackoffs::default(), rng());
        backoffs.on_reply(P, Nvidia, ReplyForType::NoneNow, at(0), &mut rng);
        let first = at(0) + backoffs.left(P, Nvidia, at(0));
        assert_eq!((backoffs.next_end(at(0)), backoffs.next_end(at(100_000))), (Some(first), None));
        backoffs.on_reply(P, Cpu, ReplyForType::NoneNow, at(1_000), &mut rng);
        backoffs.on_reply(P, Nvidia, ReplyForType::NoneNow, at(1_000), &mut rng);
        let ends = [Cpu, Nvidia].map(|kind| at(1_000) + backoffs.left(P, kind, at(1_000)));
        assert_eq!(backoffs.next_end(at(1_000)), ends.into_iter().min());
        let after = ends[0].min(ends[1]);
        assert!(backoffs.holds(P, Cpu, after) != backoffs.holds(P, Nvidia, after), "one may be asked for");
    }

    #[test]
    fn r1_12_backoffs_survive_being_stored() {
        let mut backoffs = TypeBackoffs::default();
        backoffs.on_reply(P, Nvidia, ReplyForType::NoneNow, at(0), &mut rng());
        let stored = serde_json::to_string(&backoffs).unwrap();
        assert_eq!(serde_json::from_str::<TypeBackoffs>(&stored).unwrap(), backoffs);
    }

    proptest! {
        #[test]
        fn r1_12_no_backoff_lasts_longer_than_a_day_under_any_clock_jumps(
            seed in any::<u64>(),
            turns in prop::collection::vec((any::<bool>(), 1_i64..5_000, prop::option::of(-4_000_000_i64..4_000_000)), 1..200),
        ) {
            let (mut backoffs, mut rng) = (TypeBackoffs::default(), Pcg64::seed_from_u64(seed));
            let (mut clock, mut undisturbed) = (at(0), Duration::ZERO);
            for (asks, step, jump) in turns {
                clock = clock + Duration::from_secs(step);
                undisturbed += Duration::from_secs(step);
                if let Some(jump) = jump {
                    clock = clock + Duration::from_secs(jump);
                    undisturbed = Duration::ZERO;
                }
                backoffs.observe(clock);
                prop_assert!(backoffs.left(P, Cpu, clock) <= BACKOFF.max);
                if undisturbed > BACKOFF.max {
                    prop_assert!(!backoffs.holds(P, Cpu, clock));
                }
                if asks && !backoffs.holds(P, Cpu, clock) {
                    backoffs.on_reply(P, Cpu, ReplyForType::NoneNow, clock, &mut rng);
                    let left = backoffs.left(P, Cpu, clock);
                    prop_assert!(left >= BACKOFF.first / 2 && left <= BACKOFF.max);
                    undisturbed = Duration::ZERO;
                }
            }
        }
    }
}
