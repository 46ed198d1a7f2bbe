//! The one door through which what concerns the host as a whole is changed: the owner's word, the
//! coordinator's document, what was measured. What follows is found by difference and seen to here.
//!
//! Numbers that are given out (of projects, jobs, draws) change all the time, and nothing but their record
//! follows.

use std::ops::Deref;

use fallow_domain::{HostFacts, Hours, Instant, JobId, LocalTime, Preferences, ProjectId};

use crate::machine::Client;
use crate::record::Record;
use crate::state::Meta;
use crate::timers::Timer;
use crate::{Entity, NoticeLevel};

/// What is stored of the host, to be looked at, the preferences that follow from it, and what was measured.
#[derive(Debug)]
pub(crate) struct HostRecord {
    meta: Meta,
    /// Kept because they are asked for at every turn. Outside of their hours they say that computing is
    /// suspended.
    in_force: Preferences,
    /// Whether it is none of their hours, and when that changes.
    rests: bool,
    /// Whether that was told.
    told_rests: bool,
    changes_at: Option<Instant>,
    /// What its clock on the wall shows; not stored.
    local: LocalTime,
    /// What was measured of it; not stored, for it is measured anew at every start.
    facts: Option<HostFacts>,
}

/// What follows from an edit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Difference {
    /// The record is to be written, and the host's view to be sent.
    store: bool,
    /// The record must survive a power cut: it is the owner's word, or a document was accepted.
    durable: bool,
    /// The preferences in force may be others, and are to be decided by.
    rules: bool,
    /// Jobs that fit here may not any more, or are planned for another time.
    fits: bool,
    /// Deadlines of reports are to be worked out.
    reports: bool,
}

impl Deref for HostRecord {
    type Target = Meta;
    fn deref(&self) -> &Self::Target {
        &self.meta
    }
}

impl Default for HostRecord {
    fn default() -> Self {
        Meta::default().into()
    }
}

impl From<Meta> for HostRecord {
    /// Until the clock is looked at it rests, where there are hours: nobody knows whether it is one of them.
    fn from(meta: Meta) -> Self {
        let mut in_force = in_force(&meta);
        let rests = !in_force.hours.is_always();
        in_force.suspended |= rests;
        Self {
            in_force,
            rests,
            told_rests: false,
            changes_at: None,
            local: LocalTime::UTC,
            meta,
            facts: None,
        }
    }
}

/// The document's preferences under the owner's limits, at every hour.
fn in_force(meta: &Meta) -> Preferences {
    let wished = meta.document.as_ref().map(|document| document.preferences.clone());
    wished.unwrap_or_default().tightened(&meta.owner)
}

impl HostRecord {
    /// The preferences in force.
    pub(crate) const fn preferences(&self) -> &Preferences {
        &self.in_force
    }

    /// What was measured of it last; nothing until the shell has done so.
    pub(crate) const fn facts(&self) -> Option<&HostFacts> {
        self.facts.as_ref()
    }

    /// What its clock on the wall shows.
    pub(crate) const fn local_time(&self) -> &LocalTime {
        &self.local
    }

    /// Whether it is none of the hours in which it may compute.
    pub(crate) const fn rests(&self) -> bool {
        self.rests
    }

    /// When that changes; none: never.
    pub(crate) const fn hours_change_at(&self) -> Option<Instant> {
        self.changes_at
    }

    /// Works out the preferences in force anew, as they are now.
    fn look_at_hours(&mut self, now: Instant) -> Difference {
        let mut preferences = in_force(&self.meta);
        let (open, changes_at) = preferences.hours.at(now, &self.local);
        (self.rests, self.changes_at) = (!open, changes_at);
        preferences.suspended |= self.rests;
        let before = std::mem::replace(&mut self.in_force, preferences);
        let rules = before != self.in_force;
        Difference { rules, fits: fits_others(&before, &self.in_force), ..Difference::default() }
    }

    fn edit<T>(&mut self, now: Instant, change: impl FnOnce(&mut Meta) -> T) -> (T, Difference) {
        let was = self.meta.clone();
        let told = change(&mut self.meta);
        let is = &self.meta;
        let document = was.document != is.document;
        let rules = document || was.owner != is.owner;
        let durable = rules || was.declined != is.declined || was.fleet != is.fleet;
        let store = was != *is;
        let fits = rules && self.look_at_hours(now).fits;
        (told, Difference { store, durable, rules, fits, reports: document })
    }
}

/// Whether jobs that fit this host under some preferences may not under others, or are planned for another
/// time.
fn fits_others(was: &Preferences, is: &Preferences) -> bool {
    // Taken apart, so that whoever adds a preference says here whether it is one of these.
    let Preferences {
        // More or fewer jobs fit here at all (R2.6).
        cpu_fraction,
        memory_fraction,
        excluded_devices,
        // Deadlines are planned for that much earlier (R1.13).
        connection_interval,
        cpu_time_fraction: _,
        buffer_min: _,
        buffer_additional: _,
        scheduling_period: _,
        checkpoint_period: _,
        leave_in_memory: _,
        suspended: _,
        disk_fraction: _,
        disk_free_min: _,
        hours: _,
    } = was;
    (cpu_fraction, memory_fraction, connection_interval)
        != (&is.cpu_fraction, &is.memory_fraction, &is.connection_interval)
        || *excluded_devices != is.excluded_devices
}

impl Client {
    /// Changes what is stored of the host, and sees to what follows.
    pub(crate) fn edit_meta<T>(&mut self, change: impl FnOnce(&mut Meta) -> T) -> T {
        let (told, found) = self.state.host.edit(self.now(), change);
        self.see_to(found);
        told
    }

    fn see_to(&mut self, found: Difference) {
        if found.durable {
            self.mark_durable(Record::Meta);
        } else if found.store {
            self.mark(Record::Meta);
        }
        if found.reports {
            self.reports_changed();
        }
        if found.rules {
            self.timers.stale(Timer::Throttle);
            self.host_changed();
            if found.fits {
                self.reassess_all();
            }
            self.shares_changed();
            self.timers.stale(Timer::Hours);
        }
    }

    /// The clock on the wall shows this.
    pub(crate) fn set_local_time(&mut self, local: LocalTime) {
        self.state.host.local = local;
        self.timers.stale(Timer::Hours);
    }

    /// Begins or ends the hours in which the host may compute.
    pub(crate) fn poll_hours(&mut self) {
        let now = self.now();
        if !self.timers.may_be_due(Timer::Hours, now) {
            return;
        }
        let found = self.state.host.look_at_hours(now);
        self.see_to(found);
        let rests = self.state.host.rests();
        if std::mem::replace(&mut self.state.host.told_rests, rests) != rests {
            // Which hour it is is no document's doing.
            self.spare_tasks();
            self.touch(Entity::Host);
            self.notice(NoticeLevel::Info, None, self.hours_text());
        }
    }

    fn hours_text(&self) -> String {
        let host = &self.state.host;
        let hours: &Hours = &host.preferences().hours;
        let until = host.hours_change_at().map(|at| format!(", until {}", host.local_time().show(at)));
        let until = until.unwrap_or_default();
        match (host.rests(), hours.is_always()) {
            (true, _) => format!("computing rests outside of its hours ({hours}){until}"),
            (false, true) => "it may compute at every hour".to_owned(),
            (false, false) => format!("its hours have begun ({hours}){until}"),
        }
    }

    /// When the hours begin or end, or the clock on the wall is put to another time.
    pub(crate) fn next_hours(&self) -> Option<Instant> {
        let host = &self.state.host;
        let change = host.hours_change_at();
        let until = Some(host.local_time().until).filter(|_| change.is_some());
        change.into_iter().chain(until).min()
    }

    /// Takes in what was measured of the host.
    pub(crate) fn edit_host(&mut self, facts: HostFacts) {
        let before = self.state.host.facts.replace(facts);
        self.host_changed();
        self.touch(Entity::Host);
        let made_of = |facts: &HostFacts| (facts.ncpus, facts.memory, facts.coprocessors.clone());
        if before.as_ref().map(made_of) != self.state.host.facts().map(made_of) {
            self.reassess_all();
            self.want_schedule();
            self.want_fetch();
        }
    }

    /// A number for a new project, which no other had.
    pub(crate) fn new_project_id(&mut self) -> ProjectId {
        let next = &mut self.state.host.meta.next_project;
        *next += 1;
        let id = ProjectId(*next - 1);
        self.mark_durable(Record::Meta);
        id
    }

    /// The same for a job.
    pub(crate) fn new_job_id(&mut self) -> JobId {
        let next = &mut self.state.host.meta.next_job;
        *next += 1;
        let id = JobId(*next - 1);
        self.mark(Record::Meta);
        id
    }

    /// Takes note of a draw from the host's stream, so that a restart knows how far it was. Its view does not
    /// show it.
    pub(crate) fn note_draw(&mut self) {
        self.state.host.meta.draws += 1;
        self.store_only(Record::Meta);
    }
}
