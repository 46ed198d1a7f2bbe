//! Periods of network activity (R1.13): with a connection interval, what needs the network is gathered and
//! done at once.

use std::collections::BTreeSet;

use fallow_domain::agent_state::NetworkRest;
use fallow_domain::{Duration, Instant, PerType, ProjectId, ResourceType};
use fallow_policy::network_period::{Connection, NetworkNeeds};
use fallow_policy::rpc_timing::RequestedBy;

use crate::Entity;
use crate::machine::Client;
use crate::record::Record;
use crate::state::{Job, Project};
use crate::timers::Timer;

/// A project that can be asked within this is waited for.
const SOON: Duration = Duration::from_mins(5);

/// How the network is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NetworkUse {
    #[default]
    Open,
    /// An RPC has just begun. Nothing is decided before its answer; only master pages are read meanwhile.
    Awaited,
    /// It is not to be used (R1.13).
    Closed,
}

/// Whether the network may be used, and how it is.
#[derive(Debug, Default)]
pub(crate) struct Access {
    /// It is not to be used before then.
    closed_until: Option<Instant>,
    /// By the last look.
    used: NetworkUse,
    /// What is known of the host: what in the preferences closes it.
    told_rest: Option<NetworkRest>,
    /// The types of which there was no chance to get work when it was closed.
    unserved_when_closed: PerType<bool>,
}

impl Access {
    #[cfg(test)]
    pub(crate) const fn closed_until(&self) -> Option<Instant> {
        self.closed_until
    }

    /// Whether it may be used, by what was found in this turn.
    pub(crate) const fn is_open(&self) -> bool {
        self.closed_until.is_none()
    }

    pub(crate) const fn used(&self) -> NetworkUse {
        self.used
    }

    pub(crate) const fn unserved_when_closed(&self) -> PerType<bool> {
        self.unserved_when_closed
    }
}

impl Client {
    /// Whether the network may be used now. Always, where there is no connection interval.
    pub(crate) fn is_connected(&mut self) -> bool {
        let interval = self.preferences().connection_interval;
        let was_open = self.access.closed_until.is_none();
        let by_hours = self.state.host.network_closed_until(self.now());
        let rest = self.rests_by(by_hours.is_some());
        if std::mem::replace(&mut self.access.told_rest, rest) != rest {
            self.touch(Entity::Host);
        }
        let by_wifi = self.wifi.forbids().then_some(Instant::FAR_FUTURE);
        let closed_until = by_hours.max(self.state.quota.spent_until()).max(by_wifi);
        if let Some(until) = closed_until.filter(|_| !self.is_wanted_here()) {
            // By its hours, where what is under way comes to its end, as enough was transferred, or off WiFi.
            self.refresh_work_fetch();
            if self.access.closed_until.replace(until) != Some(until) {
                self.timers.stale(Timer::Connection);
            }
            if was_open {
                self.reports_changed();
            }
            return false;
        }
        if !interval.is_positive() {
            self.access.closed_until = None;
            return true;
        }
        self.refresh_work_fetch();
        let needs = self.network_needs();
        let closed_until = match self.ledger.poll_network_period(self.clock.now(), interval, &needs) {
            Connection::Open(_) => None,
            Connection::Closed { until } => Some(until),
        };
        if std::mem::replace(&mut self.access.closed_until, closed_until) != closed_until {
            self.timers.stale(Timer::Connection);
        }
        let is_open = self.access.closed_until.is_none();
        if is_open != was_open {
            // While the host is connected, whatever is finished is reported.
            self.reports_changed();
            self.mark(Record::Ledger);
        }
        is_open
    }

    /// Whether somebody at this host wants contact with a project now, and waits for it: hours of the network
    /// are none for him.
    fn is_wanted_here(&self) -> bool {
        let is_owners = |id: &ProjectId| self.requested_by(*id) == RequestedBy::Owner;
        let mut wanted = self.wanted.projects().filter(is_owners);
        wanted.any(|id| self.contactable_at(id).is_some_and(|at| at <= self.now()))
            || self.attaching.any_waits()
    }

    /// Whether this is a time in which everything that is finished is reported.
    pub(crate) fn in_period(&self) -> bool {
        self.preferences().connection_interval.is_positive() && self.access.closed_until.is_none()
    }

    fn network_needs(&self) -> NetworkNeeds {
        let now = self.now();
        let page_due = |id: &ProjectId| {
            let project = self.state.projects.get(id);
            project.is_some_and(|project| project.rpc.master_page_due(now).is_some())
        };
        let any = self.sessions.any_in_flight()
            || self.pages.any()
            || (self.state.transfers.any() && !self.files_yield)
            || !self.state.jobs.reporting().is_empty()
            || self.fetch.made().wants_work()
            || self.is_served_soon()
            || self.state.projects.keys().any(page_due);
        NetworkNeeds {
            any,
            deadline: self.earliest_unreported_deadline(),
            requested: self.wanted.projects().any(|id| self.contactable_at(id).is_some_and(|at| at <= now)),
        }
    }

    /// Whether work is wanted, and who may have some cannot be asked before a moment is over: a period that
    /// began stays open for it.
    fn is_served_soon(&self) -> bool {
        let soon = self.now() + SOON;
        // What was decided before its wait was over says nothing.
        let is_outdated = self.fetch.made().check_by <= self.now();
        let wanted = self.fetch.made().wanted;
        let held = |id| self.ledger.type_backoffs().held(id, self.now());
        let may_be_asked = |project: &Project| {
            let wait = project.rpc.min_rpc_time(self.now(), RequestedBy::Client);
            let held = held(project.id);
            let serves = |(kind, wanted): (ResourceType, &bool)| {
                *wanted && !held[kind] && !project.lacks[kind] && !project.left_out()[kind]
            };
            wait.map_or(is_outdated, |wait| wait.at <= soon)
                && !project.detach_when_done
                && wanted.iter().any(serves)
        };
        self.in_period() && self.state.projects.values().any(may_be_asked)
    }

    /// The earliest deadline among finished jobs for which a period would help: a report that its project
    /// does not take now is none, nor are files that wait for people.
    fn earliest_unreported_deadline(&self) -> Option<Instant> {
        let takes = |job: &&Job| {
            let project = self.state.projects.get(&job.project);
            project.is_some_and(|project| project.rpc.min_rpc_time(self.now(), RequestedBy::Client).is_none())
        };
        let job = |id| self.state.jobs.get(id);
        let reporting = self.state.jobs.reporting().iter().filter_map(job).filter(takes);
        let uploading = self.state.jobs.uploading().iter().filter_map(job).filter(|_| !self.files_yield);
        uploading.chain(reporting).map(|job| job.result.report_deadline).min()
    }

    /// When a project with which contact is wanted can be contacted: not while it has asked for a delay and
    /// its owner has not (R1.4), nor while the page that names its schedulers cannot be read. Before then a
    /// period would be opened in vain.
    fn contactable_at(&self, id: ProjectId) -> Option<Instant> {
        let (now, project) = (self.now(), self.state.projects.get(&id)?);
        let asked = project.rpc.min_rpc_time(now, self.requested_by(id)).map_or(now, |wait| wait.at);
        let page = match project.scheduler_urls.is_empty() {
            true => project.rpc.master_page_due_at(now).unwrap_or(now),
            false => now,
        };
        Some(asked.max(page))
    }

    /// When the first project with which contact is wanted, or that does not take its reports now, can be
    /// contacted.
    pub(crate) fn next_contactable(&self) -> Option<Instant> {
        let waits = self.wanted.projects().filter_map(|id| self.contactable_at(id));
        let reporting = self.state.jobs.reporting().iter().filter_map(|id| self.state.jobs.get(id));
        let projects: BTreeSet<ProjectId> = reporting.map(|job| job.project).collect();
        let projects = projects.iter().filter_map(|id| self.state.projects.get(id));
        let takes = projects
            .filter_map(|project| Some(project.rpc.min_rpc_time(self.now(), RequestedBy::Client)?.at));
        waits.chain(takes).filter(|at| *at > self.now()).min()
    }

    /// The same while the network may not be used.
    pub(crate) fn next_contact(&self) -> Option<Instant> {
        if self.access.used == NetworkUse::Closed { self.next_contactable() } else { None }
    }

    /// When the network may be used again, if it may not now. Where the interval is over and nothing is
    /// needed, only a new need makes a difference.
    pub(crate) fn next_connection(&self) -> Option<Instant> {
        // Files wait also while the network is open for whoever is at the host.
        let ends = self.access.closed_until.into_iter().chain(self.state.quota.spent_until());
        ends.filter(|until| *until > self.now()).min()
    }

    /// Takes note of how the network is used, which says what is waited for.
    pub(crate) fn note_network_use(&mut self) {
        let used = match () {
            () if self.access.closed_until.is_some() => NetworkUse::Closed,
            () if self.sessions.has_just_begun(self.now()) => NetworkUse::Awaited,
            () => NetworkUse::Open,
        };
        if std::mem::replace(&mut self.access.used, used) != used {
            if used == NetworkUse::Closed {
                self.access.unserved_when_closed = self.fetch.made().unserved;
            }
            self.timers.all_stale(Timer::OF_NETWORK);
        }
    }
}
