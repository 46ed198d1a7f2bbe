//! Whether a host keeps a version of its fleet's document: by itself it goes back from one under which it
//! loses its coordinator, or under which all work is refused (R6.5). Operators know this from network gear as
//! *commit confirmed*. Pure: what a trial comes to follows from values alone; `trial.rs` gathers them and
//! carries out what follows.
//!
//! **The rule.** A document that was just taken is a *candidate*, on trial for so much time (10 minutes in an
//! agent). The one before it that was confirmed is stored beside it, and all of that before anything follows
//! from it.
//! - The candidate is *confirmed* when the coordinator has acknowledged a report that names it, and the work
//!   that was at stake goes on. A coordinator that has no space to store the report says that it came. That
//!   is as good: it shows that the two reach each other.
//! - If that has not come when the time is over, the host *goes back* to the confirmed document. Never to
//!   another candidate: what was merely taken is proven by nothing. A newer candidate begins a trial of its
//!   own, before the same confirmed document.
//! - A candidate that *suspends* is not gone back from for that: it stays on trial. A coordinator that can
//!   answer nothing must not have its fleet compute again because of that. So does one that requires layers
//!   of confinement that the host lacks.
//! - A host without a confirmed document of this fleet has nothing to go back to, and stays. A version that
//!   says the same as the confirmed one is as good as that.
//!
//! **The time** is time in which the agent was up, as it sees by looking at the clock 60 times in it. Between
//! two looks no more counts than twice what should lie between them. So a machine that is off or asleep uses
//! none of the time, and a clock that jumps next to none. An agent that is killed may have used time since
//! its last look: each start counts for one. So does one end that its candidate kills again and again.
//!
//! **The acknowledgement** counts once the agent has been up with the candidate for a twentieth of the time
//! in one life. The first one comes within a second, and would confirm a version that ends the agent in
//! the next.
//!
//! **What is at stake.** What could go wrong without the version is not held against it:
//! - Tasks: some could run when the version came. It harms when none computes at the end, and none of the
//!   jobs that are here may run at all by what it permits, or some were aborted for that. Whoever suspends
//!   says so: a version that suspends, and an owner who changes his limits meanwhile, harm nothing.
//! - Projects: the host had work from the document before, and every project of the new one is new to it, or
//!   has another account. It harms when some contact with these has failed, and no scheduler has accepted
//!   the account. A server of an older project that is down would be down under the old version, too.
//!
//! **Taken again.** A coordinator that is down and a network that the version has cut look alike from here,
//! and going back is safe either way. But a coordinator that stood still in that minute must not leave its
//! fleet behind: a version that lacked only the acknowledgement may be taken once more when it is offered
//! again. The offer shows that the version before reaches the coordinator. After a second time, or where work
//! was refused, the host refuses it for good; a newer version is another matter. An acknowledgement that
//! comes after the host went back is too late: what was said of a trial is not taken back.
//!
//! **What is not seen.** A version that harms only later, such as at the next connection, or when the jobs of
//! today are done. One under which tasks compute and all of them fail. A project of several that is refused.
//! Rollouts compare hosts for those.

use std::fmt;

use fallow_domain::{DocumentVersion, Duration, FleetDocument, Instant, ProjectAssignment};
use serde::{Deserialize, Serialize};

/// Looks at the clock in a trial.
const LOOKS: f64 = 60.0;
/// The part of the time after which an acknowledgement counts.
const SETTLED: f64 = 0.05;
/// Most versions that are remembered. Those below the confirmed one are refused as older, and forgotten; so
/// this many newer ones in a row have failed.
const REMEMBERED: usize = 16;

/// A document on trial, which the host follows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trial {
    /// The document that was confirmed last.
    pub before: FleetDocument,
    /// Time used so far.
    pub used: Duration,
    /// The coordinator has acknowledged a report that names the candidate, or said that it came.
    pub acknowledged: bool,
    pub stake: Stake,
    /// Projects that are the owner's own, and that a candidate took over: as they were.
    pub taken_over: Vec<ProjectAssignment>,
}

/// What the version puts at stake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stake {
    /// Tasks could run before it.
    pub tasks: bool,
    /// A task was aborted under it, for more memory than this host permits.
    pub aborted: bool,
    /// Every project that it names is new, or has another account, and there was work before.
    pub projects: bool,
    /// One of these has accepted the host.
    pub accepted: bool,
    /// Contact with one of these has failed.
    pub failed: bool,
}

/// What is seen of a host at an instant.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Tasks compute.
    pub computes: bool,
    /// Somebody said so: the document, or the owner.
    pub suspended: bool,
    /// There are jobs, and none of them may run at all by what is permitted.
    pub forbidden: bool,
    /// The candidate suspends, and the document before it does not: going back would begin to compute again.
    pub halted: bool,
}

/// What a trial comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing yet.
    Open,
    /// The candidate is confirmed.
    Confirmed,
    /// The host goes back.
    GoBack(Fault),
}

/// What a candidate is found to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fault {
    /// The coordinator has acknowledged nothing.
    Unacknowledged,
    /// No job that is here may run.
    Tasks,
    /// No project accepts the host.
    Projects,
}

/// A version that the host went back from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RolledBack {
    pub version: DocumentVersion,
    /// Which document of that version.
    pub content: String,
    /// When it had been taken, which tells one trial of it from another.
    pub taken_at: Instant,
    /// When the host went back.
    pub at: Instant,
    pub why: String,
    /// It is not taken once more.
    pub is_final: bool,
    /// It was acknowledged when it was too late.
    pub late: bool,
}

/// How long lies between two looks at the clock.
pub(crate) fn look_period(limit: Duration) -> Duration {
    limit.mul_f64(1.0 / LOOKS)
}

/// How much of the time since the last look counts.
pub(crate) fn counted(limit: Duration, since_last_look: Duration) -> Duration {
    since_last_look.max(Duration::ZERO).min(look_period(limit) * 2)
}

/// Whether an acknowledgement counts from an agent that has been up with the candidate for so long.
pub(crate) fn is_settled(limit: Duration, up: Duration) -> bool {
    up >= limit.mul_f64(SETTLED)
}

impl Stake {
    /// What the candidate does to it, if it is to be judged now.
    const fn harm(self, seen: Seen) -> Option<Fault> {
        if self.tasks && !seen.computes && !seen.suspended && (seen.forbidden || self.aborted) {
            Some(Fault::Tasks)
        } else if self.projects && self.failed && !self.accepted {
            Some(Fault::Projects)
        } else {
            None
        }
    }

    /// Whether it is shown to go on.
    const fn is_safe(self, seen: Seen) -> bool {
        (!self.tasks || seen.computes) && (!self.projects || self.accepted)
    }
}

impl Trial {
    /// What it comes to by now.
    pub(crate) fn verdict(&self, limit: Duration, seen: Seen) -> Verdict {
        if self.acknowledged && self.stake.is_safe(seen) {
            return Verdict::Confirmed;
        }
        if self.used < limit {
            return Verdict::Open;
        }
        match (self.acknowledged, self.stake.harm(seen)) {
            (false, _) if seen.halted => Verdict::Open,
            (false, _) => Verdict::GoBack(Fault::Unacknowledged),
            (true, Some(fault)) => Verdict::GoBack(fault),
            (true, None) => Verdict::Confirmed,
        }
    }
}

impl Fault {
    /// For people, of a trial of so much time.
    pub(crate) fn said(self, limit: Duration) -> impl fmt::Display {
        fmt::from_fn(move |f| match self {
            Self::Unacknowledged => write!(f, "the coordinator acknowledged nothing for {limit} of time on"),
            Self::Tasks => {
                f.write_str("no job that is here may run by what it permits, and some could before")
            }
            Self::Projects => f.write_str("none of its projects accepts this host, and those before it did"),
        })
    }

    /// Whether a version with this fault is taken once more: `before` is how it went the last time, if it was
    /// taken before.
    const fn is_final(self, before: Option<&RolledBack>) -> bool {
        !matches!(self, Self::Unacknowledged) || before.is_some()
    }
}

impl RolledBack {
    fn is_of(&self, document: &FleetDocument) -> bool {
        self.version == document.version && self.content == document.content
    }
}

/// Why a document that is offered is not taken: the host went back from it for good.
pub(crate) fn refusal(remembered: &[RolledBack], offered: &FleetDocument) -> Option<String> {
    let failed = remembered.iter().find(|one| one.is_final && one.is_of(offered))?;
    Some(format!("this host went back from it: {}; a newer version is taken", failed.why))
}

/// Takes note that the host goes back from a candidate that was taken then.
pub(crate) fn remember(
    remembered: &mut Vec<RolledBack>,
    candidate: &FleetDocument,
    (taken_at, at): (Instant, Instant),
    fault: Fault,
    limit: Duration,
) {
    let before = remembered.iter().position(|one| one.is_of(candidate)).map(|place| remembered.remove(place));
    let is_final = fault.is_final(before.as_ref());
    let twice = if before.is_some() { ", for the second time" } else { "" };
    remembered.push(RolledBack {
        version: candidate.version,
        content: candidate.content.clone(),
        taken_at,
        at,
        why: format!("{}{twice}", fault.said(limit)),
        is_final,
        late: false,
    });
    if remembered.len() > REMEMBERED
        && let Some(oldest) = (0..remembered.len()).min_by_key(|place| remembered[*place].version)
    {
        remembered.remove(oldest);
    }
}

/// Forgets what a version makes void that is confirmed now.
pub(crate) fn forget(remembered: &mut Vec<RolledBack>, confirmed: &FleetDocument) {
    remembered.retain(|one| one.version >= confirmed.version && !one.is_of(confirmed));
}

#[cfg(test)]
mod tests {
    use fallow_domain::Preferences;

    use super::*;

    const LIMIT: Duration = Duration::from_mins(10);

    fn document(version: u64) -> FleetDocument {
        FleetDocument {
            version: DocumentVersion(version),
            content: String::new(),
            projects: Vec::new(),
            preferences: Preferences::default(),
        }
    }

    #[test]
    fn r6_5_a_trial_comes_to_what_was_acknowledged_and_what_became_of_the_work_at_stake() {
        let (goes, stands, forbidden) = (
            Seen { computes: true, ..Seen::default() },
            Seen::default(),
            Seen { forbidden: true, ..Seen::default() },
        );
        let suspended = Seen { suspended: true, ..forbidden };
        let halted = Seen { halted: true, ..suspended };
        let none = Stake::default();
        let tasks = Stake { tasks: true, ..none };
        let aborted = Stake { aborted: true, ..tasks };
        let projects = Stake { projects: true, ..none };
        let accepted = Stake { accepted: true, ..projects };
        let failed = Stake { failed: true, ..projects };
        let one_of_two = Stake { failed: true, ..accepted };
        let (open, confirmed) = (Verdict::Open, Verdict::Confirmed);
        let silent = Verdict::GoBack(Fault::Unacknowledged);
        let [no_task, no_project] = [Fault::Tasks, Fault::Projects].map(Verdict::GoBack);
        // Acknowledged or not; what is at stake; what is seen; before the time is over, and then.
        let cases = [
            (false, none, goes, open, silent),
            (false, tasks, forbidden, open, silent),
            (false, tasks, halted, open, open),
            (true, tasks, halted, open, confirmed),
            (true, none, stands, confirmed, confirmed),
            (true, tasks, goes, confirmed, confirmed),
            (true, tasks, stands, open, confirmed),
            (true, tasks, forbidden, open, no_task),
            (true, tasks, suspended, open, confirmed),
            (true, aborted, stands, open, no_task),
            (true, aborted, goes, confirmed, confirmed),
            (true, none, forbidden, confirmed, confirmed),
            (true, projects, goes, open, confirmed),
            (true, accepted, stands, confirmed, confirmed),
            (true, failed, goes, open, no_project),
            (true, one_of_two, stands, confirmed, confirmed),
        ];
        for (acknowledged, stake, seen, early, late) in cases {
            let trial =
                |used| Trial { before: document(1), used, acknowledged, stake, taken_over: Vec::new() };
            let verdicts =
                [LIMIT - Duration::from_micros(1), LIMIT].map(|used| trial(used).verdict(LIMIT, seen));
            assert_eq!(verdicts, [early, late], "{acknowledged} {stake:?} {seen:?}");
        }
    }

    #[test]
    fn r6_5_time_counts_as_far_as_looks_vouch_for_it() {
        let counts = |secs| counted(LIMIT, Duration::from_secs(secs)).as_secs_f64();
        assert_eq!([-5, 0, 9, 10, 20, 21, 100_000].map(counts), [0.0, 0.0, 9.0, 10.0, 20.0, 20.0, 20.0]);
        let settled = |secs| is_settled(LIMIT, Duration::from_secs(secs));
        assert_eq!([0, 29, 30, 600].map(settled), [false, false, true, true]);
    }

    #[test]
    fn r6_5_only_a_missing_acknowledgement_is_forgiven_and_that_once() {
        let mut remembered = Vec::new();
        let mut goes_back = |version, fault| {
            let candidate = document(version);
            remember(&mut remembered, &candidate, (Instant::EPOCH, Instant::EPOCH), fault, LIMIT);
            refusal(&remembered, &candidate)
        };
        assert_eq!(goes_back(2, Fault::Unacknowledged), None);
        assert!(goes_back(3, Fault::Tasks).unwrap().contains("no job that is here may run"));
        assert!(goes_back(4, Fault::Projects).unwrap().contains("none of its projects accepts this host"));
        let second = goes_back(2, Fault::Unacknowledged).unwrap();
        assert!(second.contains("for the second time; a newer version is taken"), "{second}");
        let other = FleetDocument { content: "of other labels".to_owned(), ..document(2) };
        assert_eq!((remembered.len(), refusal(&remembered, &other)), (3, None));
        forget(&mut remembered, &document(3));
        assert_eq!(remembered.iter().map(|one| one.version.0).collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn r6_5_of_many_versions_that_failed_the_newest_are_remembered() {
        let mut remembered = Vec::new();
        for version in (1..=20).chain([5]) {
            let when = (Instant::EPOCH, Instant::EPOCH);
            remember(&mut remembered, &document(version), when, Fault::Tasks, LIMIT);
        }
        assert_eq!(remembered.len(), REMEMBERED);
        assert_eq!(refusal(&remembered, &document(4)), None);
        assert!((6..=20).all(|version| refusal(&remembered, &document(version)).is_some()));
    }
}
