//! Which projects have finished jobs that are due for reporting (R1.8). Worked out when it is asked for,
//! once, until a job or the connection interval changes.

use std::collections::BTreeMap;

use fallow_domain::{Instant, ProjectId};
use fallow_policy::report_due::{self, FinishedJob, WhyDue};

use crate::connection::NetworkUse;
use crate::machine::Client;
use crate::state::Job;
use crate::timers::Timer;

/// What is known of it; nothing when that has to be worked out again.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    known: Option<Due>,
}

/// Why finished jobs are due for reporting, by project, and when that may change although nothing happens.
#[derive(Debug)]
struct Due {
    by_project: BTreeMap<ProjectId, WhyDue>,
    next: Instant,
}

impl Reports {
    /// It is to be worked out again.
    pub(crate) fn forget(&mut self) {
        self.known = None;
    }

    /// Whether any project has.
    pub(crate) fn any(&self) -> bool {
        self.known.as_ref().is_some_and(|due| !due.by_project.is_empty())
    }

    /// Why a project has, if it does.
    pub(crate) fn why(&self, project: ProjectId) -> Option<WhyDue> {
        self.known.as_ref()?.by_project.get(&project).copied()
    }

    /// When another may have.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.known.as_ref().map(|due| due.next)
    }
}

impl Client {
    /// Other jobs may be due for reporting, or at another time.
    pub(crate) fn reports_changed(&mut self) {
        self.reports.forget();
        self.timers.all_stale(Timer::OF_REPORTS);
    }

    /// Works out what is due, unless what is known of it still holds.
    pub(crate) fn refresh_reports(&mut self) {
        if self.reports.next().is_none_or(|next| next <= self.now()) {
            // The timer has passed, or is stale since the reports changed. While the network was not free for
            // use, the timer had no instant: `note_network_use` marks it before the timers are read again.
            self.reports.known = Some(self.due_reports());
        }
    }

    fn due_reports(&self) -> Due {
        let interval = self.preferences().connection_interval;
        let mut due = Due { by_project: BTreeMap::new(), next: Instant::FAR_FUTURE };
        let mut ready: BTreeMap<ProjectId, usize> = BTreeMap::new();
        for job in self.state.jobs.reporting().iter().filter_map(|id| self.state.jobs.get(id)) {
            let Some(report) = self.finished(job) else { continue };
            let count = ready.entry(job.project).or_default();
            *count += 1;
            let why = report_due::report_due(self.now(), &report, interval).or(report_due::many_due(*count));
            if let Some(why) = why.or_else(|| self.in_period().then_some(WhyDue::Connected)) {
                let first = due.by_project.entry(job.project).or_insert(why);
                *first = why.min(*first);
            } else {
                due.next = due.next.min(report_due::report_due_at(&report, interval).0);
            }
        }
        due
    }

    /// When another finished job is due for reporting.
    pub(crate) fn next_report(&self) -> Option<Instant> {
        if self.access.used() == NetworkUse::Open { self.reports.next() } else { None }
    }

    fn finished(&self, job: &Job) -> Option<FinishedJob> {
        let outcome = job.outcome.as_ref()?;
        let wanted = self.local_preferences().report_at_once
            || self.app_configs.reports_at_once(job.project, &job.version.app);
        Some(FinishedJob {
            completed_at: outcome.at,
            deadline: job.result.report_deadline,
            report_at_once: job.result.report_immediately || wanted,
        })
    }
}
