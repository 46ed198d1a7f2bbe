//! Periods of network activity (R1.13): with a connection interval, what needs the network is gathered and done at once.

use fallow_domain::{Instant, ProjectId};
use fallow_policy::network_period::{Connection, NetworkNeeds};

use crate::machine::Client;
use crate::record::Record;
use crate::state::Stage;

impl Client {
    /// Whether the network may be used now. Always, where there is no connection interval.
    pub(crate) fn is_connected(&mut self) -> bool {
        let interval = self.preferences().connection_interval;
        let was_open = self.net.closed_until.is_none();
        if !interval.is_positive() {
            self.net.closed_until = None;
            return true;
        }
        self.refresh_work_fetch();
        let needs = self.network_needs();
        self.net.closed_until = match self.ledger.periods.poll(self.now, interval, &needs) {
            Connection::Open(_) => None,
            Connection::Closed { until } => Some(until),
        };
        let is_open = self.net.closed_until.is_none();
        if is_open != was_open {
            // While the host is connected, whatever is finished is reported.
            self.net.reports_due = None;
            self.mark(Record::Ledger);
        }
        is_open
    }

    /// Whether this is a time in which everything that is finished is reported.
    pub(crate) fn in_period(&self) -> bool {
        self.preferences().connection_interval.is_positive() && self.net.closed_until.is_none()
    }

    fn network_needs(&self) -> NetworkNeeds {
        let now = self.now;
        let page_due = |id: &ProjectId| {
            let project = self.state.projects.get(id);
            project.is_some_and(|project| project.rpc.master_page_due(now).is_some())
        };
        let any = self.net.sessions.in_flight().is_some()
            || !self.net.pages.is_empty()
            || self.state.transfers.any()
            || !self.state.reporting.is_empty()
            || self.net.plan.wants_work()
            || self.state.projects.keys().any(page_due);
        let done =
            self.state.jobs.values().filter(|job| matches!(job.stage, Stage::Uploading | Stage::Reporting));
        NetworkNeeds {
            any,
            deadline: done.map(|job| job.result.report_deadline).min(),
            requested: !self.net.requested.is_empty(),
        }
    }

    /// When the network may be used again, if it may not now.
    pub(crate) fn next_connection(&self) -> Option<Instant> {
        self.net.closed_until
    }
}
