//! When a finished job is due for reporting (R1.8).
//!
//! Reports wait a while, so that several finished jobs share an RPC; never for more work to be needed, and
//! never past a deadline, and not when so many have gathered that one more would make the RPC no cheaper.
//! When an RPC to the project happens anyway, the caller reports whatever is finished.

use std::fmt;

use fallow_domain::{Duration, Instant};

/// A finished job is reported after this long at the latest.
pub const REPORT_WITHIN: Duration = Duration::from_hours(1);

/// A deadline this near makes a job due, or the connection interval if that is longer.
pub const DEADLINE_NEAR: Duration = Duration::from_hours(24);

/// So many finished jobs of a project are reported at once (BOINC's number): each keeps files, and a record
/// at its server, and short jobs gather by the thousand in an hour.
pub const REPORT_AT_LEAST: usize = 64;

/// A job that is finished and uploaded, or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinishedJob {
    /// When it became ready to be reported.
    pub completed_at: Instant,
    /// By when the server wants it.
    pub deadline: Instant,
    /// Whether its project wants reports at once (BOINC: `report_immediately`), or the user does.
    pub report_at_once: bool,
}

/// Why a job is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WhyDue {
    /// It is to be reported at once.
    AtOnce,
    /// Its deadline is near.
    DeadlineNear,
    /// Many of its project are ready.
    Many,
    /// It has waited an hour.
    Waited,
    /// The host has a connection interval and is connected just now (R1.13).
    Connected,
}

/// Since when, or from when on, a job is due.
pub fn report_due_at(job: &FinishedJob, connection_interval: Duration) -> (Instant, WhyDue) {
    if job.report_at_once {
        return (job.completed_at, WhyDue::AtOnce);
    }
    let waited = job.completed_at + REPORT_WITHIN;
    let near = job.deadline - DEADLINE_NEAR.max(connection_interval);
    if near <= waited { (near.max(job.completed_at), WhyDue::DeadlineNear) } else { (waited, WhyDue::Waited) }
}

/// Why a job is due now, if it is. A job that seems to have been completed in the future, after a clock that
/// jumped back, is due: its wait cannot be measured any more (R1.12).
pub fn report_due(now: Instant, job: &FinishedJob, connection_interval: Duration) -> Option<WhyDue> {
    let (due_at, why) = report_due_at(job, connection_interval);
    (due_at <= now || job.completed_at > now).then_some(why)
}

/// Why so many finished jobs of a project are due, whatever each of them is.
pub fn many_due(ready: usize) -> Option<WhyDue> {
    (ready >= REPORT_AT_LEAST).then_some(WhyDue::Many)
}

impl fmt::Display for WhyDue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AtOnce => "it is to be reported at once",
            Self::DeadlineNear => "its deadline is near",
            Self::Many => "many of its project are ready",
            Self::Waited => "it has waited an hour",
            Self::Connected => "the host is connected just now",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(h: i64) -> Duration {
        Duration::from_hours(h)
    }

    #[test]
    fn r1_8_many_finished_jobs_are_due_together() {
        for (ready, expected) in
            [(0, None), (1, None), (63, None), (64, Some(WhyDue::Many)), (10_000, Some(WhyDue::Many))]
        {
            assert_eq!(many_due(ready), expected, "{ready}");
        }
    }

    #[test]
    fn r1_8_when_a_finished_job_is_due() {
        let t0 = Instant::from_secs_f64(1.8e9);
        let table = [
            // deadline, at once, connection interval, now; why
            (hours(240), false, hours(0), Duration::from_mins(59), None),
            (hours(240), false, hours(0), hours(1), Some(WhyDue::Waited)),
            (hours(23), false, hours(0), hours(0), Some(WhyDue::DeadlineNear)),
            (hours(48), false, hours(0), hours(0), None),
            (hours(48), false, hours(72), hours(0), Some(WhyDue::DeadlineNear)),
            (hours(240), true, hours(0), hours(0), Some(WhyDue::AtOnce)),
            (hours(-5), false, hours(0), hours(0), Some(WhyDue::DeadlineNear)),
            (hours(240), false, hours(0), hours(-1), Some(WhyDue::Waited)),
        ];
        for (deadline, report_at_once, interval, now, expected) in table {
            let job = FinishedJob { completed_at: t0, deadline: t0 + deadline, report_at_once };
            assert_eq!(report_due(t0 + now, &job, interval), expected, "{deadline} {now}");
        }
    }
}
