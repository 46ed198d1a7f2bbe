//! Jobs that cannot be in time any more, whatever happens: to be aborted instead of computed in vain.
//!
//! Why: CPU scheduling runs what is in danger first. A job that is lost already is in the greatest danger of
//! all, so it takes the time with which others would still be in time.
//!
//! Model: a job is hopeless if the host would have to be on for longer, from now to its deadline, than it is
//! in even the luckiest three of a hundred such times (`on_time`, *hope*), and than its usual part of them.
//! What it needs is taken as low as it may be:
//! - A task that says how far it is, a tenth at least, by the time that it took so far. That goes before any
//!   estimate by size, and counts for more the further the task is: half at first, all at the end.
//! - One that does not, or was not started, by its size and the shortest of the last jobs of its application
//!   version, less the time that it took so far. Where only few jobs of that version have ended, its estimate
//!   is uncertain and it is never hopeless. With it goes one that took as long as the shortest already.
//!   And it is not given up before half of its time has passed. A job that its server thinks the host can
//!   finish and the host does not would else be given up as soon as it came, and so would the next one that
//!   is asked for in its place, without end.
//!
//! *Late results*: a server may still take one that comes late, as long as the copy that it made at the
//! deadline is not back. So a task is finished, deadline or not, that needs no more than a tenth of what it
//! took so far: that is cheap, and the result may be of use. Beyond that the chance is not worth the time,
//! and a server that hears of an abort can send the job to somebody else before the deadline has passed.
//!
//! Source: this project's own. BOINC's client has no such rule; its projects may ask for jobs to be aborted
//! that were not started by their deadlines.
//!
//! Not in here: other jobs, behind which one may have to wait; transfers and the report, which take time too;
//! checkpoints, to which a task falls back.

use std::fmt;

use fallow_domain::{Duration, Fraction};
use serde::{Deserialize, Serialize};

/// Which jobs are aborted by the client itself: the switch `abort=` of compositions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AbortWhich {
    /// None: as the published policies, and BOINC's client.
    #[default]
    None,
    /// Those that cannot be in time any more.
    Hopeless,
}

/// A task that says less of itself says nothing yet.
const FRACTION_MIN: f64 = 0.1;
/// What needs no more than this part of what it took is finished.
const CHEAP: f64 = 0.1;
/// Whoever needs no more than this part of the time to its deadline has hope on every host.
const EASY: f64 = 0.02;

/// A job, as far as its prospects go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prospects {
    /// What its application says is done.
    pub fraction_done: Fraction,
    /// The running time that it took so far.
    pub ran: Duration,
    /// How long the host has had it.
    pub had: Duration,
    /// The time until its deadline.
    pub time_left: Duration,
}

/// Why a job is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WhyHopeless {
    /// The running time that it still needs, at least.
    pub needs: Duration,
    /// The time until its deadline.
    pub time_left: Duration,
    /// For how long of it the host can be hoped to compute.
    pub hope: Duration,
}

impl fmt::Display for WhyHopeless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { needs, time_left, hope } = self;
        if !time_left.is_positive() {
            return write!(f, "given up, for its deadline has passed and it needs {needs} more at least");
        }
        write!(
            f,
            "given up, for it needs {needs} more at least, and in the {time_left} to its deadline this host \
             computes for {hope} at best"
        )
    }
}

/// Why a job cannot be in time, if it cannot. `shortest` gives the whole running time of the shortest of its
/// kind, if enough of them are known, and `hope` the on-time that can be hoped for within a time to come.
/// Both are asked only where it matters.
pub fn why_hopeless(
    job: &Prospects,
    shortest: impl FnOnce() -> Option<Duration>,
    hope: impl FnOnce(Duration) -> Duration,
) -> Option<WhyHopeless> {
    let time_left = job.time_left.max(Duration::ZERO);
    let needs = needs_at_least(job, time_left, shortest)?;
    if needs <= job.ran.mul_f64(CHEAP) || needs <= time_left.mul_f64(EASY) {
        return None;
    }
    let hope = hope(time_left).min(time_left);
    (needs > hope).then_some(WhyHopeless { needs, time_left, hope })
}

/// The running time that a job still needs, taken as low as it may be; none if nothing is sure of it.
fn needs_at_least(
    job: &Prospects,
    time_left: Duration,
    shortest: impl FnOnce() -> Option<Duration>,
) -> Option<Duration> {
    let (done, ran) = (job.fraction_done.get(), job.ran.max(Duration::ZERO));
    let needs = if done >= FRACTION_MIN && ran.is_positive() {
        ran.mul_f64((1.0 - done) / done * (1.0 + done) / 2.0)
    } else if job.had >= time_left {
        shortest()? - ran
    } else {
        return None;
    };
    needs.is_positive().then_some(needs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOUR: Duration = Duration::from_hours(1);

    /// A job that the host has had for half of its time, and the shortest of its kind.
    fn job(done: f64, ran: i64, shortest: Option<i64>, time_left: i64) -> (Prospects, Option<Duration>) {
        let prospects = Prospects {
            fraction_done: Fraction::clamped(done),
            ran: HOUR * ran,
            had: HOUR * time_left.max(0),
            time_left: HOUR * time_left,
        };
        (prospects, shortest.map(|hours| HOUR * hours))
    }

    /// On a host that is on for half of the time at best.
    fn is_hopeless((job, shortest): (Prospects, Option<Duration>)) -> bool {
        why_hopeless(&job, || shortest, |time| time.mul_f64(0.5)).is_some()
    }

    #[test]
    fn a_task_is_judged_by_how_far_it_is_and_by_its_size_only_as_long_as_it_does_not_say() {
        // Half done after ten hours: ten more, of which it is believed three quarters.
        assert!(!is_hopeless(job(0.5, 10, Some(1_000), 15)));
        assert!(is_hopeless(job(0.5, 10, Some(1), 14)));
        // What it says at its start says nothing.
        assert!(!is_hopeless(job(0.01, 10, None, 1)));
        assert!(!is_hopeless(job(0.01, 10, Some(20), 20)) && is_hopeless(job(0.01, 10, Some(20), 19)));
    }

    #[test]
    fn a_job_whose_estimate_is_uncertain_is_never_hopeless() {
        for time_left in [-100, 0, 1] {
            assert!(!is_hopeless(job(0.0, 0, None, time_left)));
            assert!(!is_hopeless(job(0.0, 20, Some(20), time_left)), "it took as long as the shortest");
        }
        assert!(is_hopeless(job(0.0, 0, Some(20), 39)) && !is_hopeless(job(0.0, 0, Some(20), 40)));
    }

    #[test]
    fn a_job_that_did_not_get_anywhere_is_given_up_no_sooner_than_half_of_its_time_has_passed() {
        let after = |had: i64, done: f64, ran: i64| {
            let (prospects, shortest) = job(done, ran, Some(20), 30 - had);
            is_hopeless((Prospects { had: HOUR * had, ..prospects }, shortest))
        };
        assert!(!after(0, 0.0, 0) && !after(14, 0.0, 0) && after(15, 0.0, 0));
        assert!(after(1, 0.1, 5), "one that did says how long it takes");
    }

    #[test]
    fn what_is_nearly_finished_is_finished_though_it_is_late() {
        assert!(!is_hopeless(job(0.95, 20, None, -5)));
        assert!(is_hopeless(job(0.8, 20, None, -5)));
        let why = why_hopeless(&job(0.8, 20, None, -5).0, || None, |time| time).unwrap();
        assert_eq!(why.time_left, Duration::ZERO);
        assert!(why.to_string().contains("deadline has passed and it needs"), "{why}");
    }

    #[test]
    fn the_reason_names_what_it_needs_and_what_there_is() {
        let why = why_hopeless(&job(0.5, 16, None, 8).0, || None, |time| time.mul_f64(0.5)).unwrap();
        assert_eq!((why.needs, why.time_left, why.hope), (HOUR * 12, HOUR * 8, HOUR * 4));
        let text = why.to_string();
        assert!(text.contains("needs 12") && text.contains("for 4"), "{text}");
    }

    proptest! {
        /// Nothing is given up that could be in time if the host were on throughout.
        #[test]
        fn what_fits_before_its_deadline_is_never_hopeless_on_a_host_that_is_always_on(
            done in any::<f64>(), ran in any::<i64>(), shortest in any::<Option<i64>>(), left in any::<i64>(),
            had in any::<i64>(),
        ) {
            let [ran, time_left, had] = [ran, left, had].map(Duration::from_micros);
            let shortest = shortest.map(Duration::from_micros);
            let job = Prospects { fraction_done: Fraction::clamped(done), ran, had, time_left };
            if let Some(why) = why_hopeless(&job, || shortest, |time| time) {
                prop_assert!(why.needs > why.time_left && why.needs.is_positive());
            }
        }
    }
}
