//! The one door through which what concerns the host as a whole is changed: the owner's word, the
//! coordinator's document, what was measured. What follows is found by difference and seen to here.
//!
//! Numbers that are given out (of projects, jobs, draws) change all the time, and nothing but their record
//! follows.

use std::ops::Deref;

use fallow_domain::{HostFacts, JobId, Preferences, ProjectId};

use crate::Entity;
use crate::machine::Client;
use crate::record::Record;
use crate::state::Meta;
use crate::timers::Timer;

/// What is stored of the host, to be looked at, the preferences that follow from it, and what was measured.
#[derive(Debug, Default)]
pub(crate) struct HostRecord {
    meta: Meta,
    /// Kept because they are asked for at every turn.
    in_force: Preferences,
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

impl From<Meta> for HostRecord {
    fn from(meta: Meta) -> Self {
        Self { in_force: in_force(&meta), meta, facts: None }
    }
}

/// The document's preferences under the owner's limits.
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

    fn edit<T>(&mut self, change: impl FnOnce(&mut Meta) -> T) -> (T, Difference) {
        let was = self.meta.clone();
        let told = change(&mut self.meta);
        let is = &self.meta;
        let document = was.document != is.document;
        let rules = document || was.owner != is.owner;
        let durable = rules || was.declined != is.declined || was.fleet != is.fleet;
        let (store, mut fits) = (was != *is, false);
        if rules {
            let before = std::mem::replace(&mut self.in_force, in_force(&self.meta));
            fits = fits_others(&before, &self.in_force);
        }
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
    } = was;
    (cpu_fraction, memory_fraction, connection_interval)
        != (&is.cpu_fraction, &is.memory_fraction, &is.connection_interval)
        || *excluded_devices != is.excluded_devices
}

impl Client {
    /// Changes what is stored of the host, and sees to what follows.
    pub(crate) fn edit_meta<T>(&mut self, change: impl FnOnce(&mut Meta) -> T) -> T {
        let (told, found) = self.state.host.edit(change);
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
        }
        told
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
