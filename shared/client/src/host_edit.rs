//! The one door through which what concerns the host as a whole is changed: the owner's word, the
//! coordinator's document, what was measured. What follows is found by difference and seen to here.
//!
//! Numbers that are given out (of projects, jobs, draws) change all the time, and nothing but their record
//! follows.

use std::ops::Deref;

use fallow_domain::agent_state::{OwnerWord, SuspendedBy};
use fallow_domain::{
    Bytes, Coprocessor, FleetDocument, Fraction, HostFacts, Hours, Instant, JobId, LocalPreferences,
    LocalTime, MasterUrl, OwnerLimits, Preferences, ProjectId,
};
use fallow_policy::confinement::{HostLayer, Lacking, TaskLayers, lacking, required_of_tasks};
use fallow_policy::looks::Stakes;
use fallow_preferences::{InForce, Origin, Place, Said};

use crate::in_force::{PreferenceFiles, Sources};
use crate::in_use::{InUse, InUseView, Rests};
use crate::jobs_network::takes_back;
use crate::machine::Client;
use crate::record::Record;
use crate::snooze::SNOOZE_MAX;
use crate::state::Meta;
use crate::surroundings::Around;
use crate::timers::Timer;
use crate::{Entity, NoticeLevel};

/// What is stored of the host, to be looked at, the preferences that follow from it, and what was measured.
#[derive(Debug)]
pub(crate) struct HostRecord {
    meta: Meta,
    /// What files and web sites say.
    sources: Sources,
    /// What all sources come to, at every hour.
    merged: InForce,
    /// The same of what a document has, on this host's CPUs: what holds while nobody uses it, at any hour.
    unused: Preferences,
    /// Kept because they are asked for at every turn. Outside of their hours, and while the host gives
    /// way to somebody who uses it, they say that computing is suspended.
    in_force: Preferences,
    /// Whether it is none of their hours, and when that changes.
    rests: bool,
    /// Whether that was told.
    told_rests: bool,
    changes_at: Option<Instant>,
    /// What the shell says of people who use it; not stored.
    in_use: InUse,
    /// Whether it was told that the host gives way to them.
    told_in_use: bool,
    /// What else goes on around the tasks; not stored.
    around: Around,
    /// What looks at that would be for, as far as jobs and projects say; not stored.
    stakes: Stakes,
    /// What stops computing by that, and in words.
    stop: Option<(SuspendedBy, String)>,
    /// Whether that is a program that preferences name.
    is_program_named: bool,
    /// When there was no input for so long that it stops.
    silent_at: Option<Instant>,
    /// Until when it waits since the agent was started.
    delayed_until: Option<Instant>,
    /// What was told of it.
    told_stop: Option<SuspendedBy>,
    /// What stops coprocessors alone by what goes on around the tasks, in words.
    devices_stop: Option<String>,
    /// Whether that was told.
    told_devices_stop: bool,
    /// Somebody has paused computing, by the last look.
    is_snoozed: bool,
    /// There is less space on the disk than the owner's limit asks for (R4.8); not stored.
    lacks_disk: bool,
    /// Which layers of confinement it has; none until it was looked, and not stored.
    layers: Option<Vec<HostLayer>>,
    /// What it lacks of those that are required.
    lacking: Lacking,
    /// What its clock on the wall shows; not stored.
    local: LocalTime,
    /// What was measured of it; not stored, for it is measured anew at every start.
    facts: Option<HostFacts>,
}

/// What follows from an edit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
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
    /// Jobs of some project may have the network no more.
    network: bool,
    /// A document says something else of what goes on in and around the host, or says nothing of it any more.
    local: bool,
    /// Jobs wait for a look, or for another one, or for none any more.
    awaits: bool,
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
        let sources = Sources::default();
        let merged = sources.in_force(&meta);
        let mut in_force = merged.values.fleet.clone();
        let rests = !in_force.hours.is_always();
        in_force.suspended |= rests || meta.snoozed_until.is_some();
        Self {
            sources,
            unused: merged.values.fleet.clone(),
            merged,
            in_force,
            rests,
            told_rests: false,
            changes_at: None,
            in_use: InUse::default(),
            told_in_use: false,
            around: Around::default(),
            stakes: Stakes::default(),
            stop: None,
            silent_at: None,
            delayed_until: None,
            told_stop: None,
            is_program_named: false,
            devices_stop: None,
            told_devices_stop: false,
            is_snoozed: false,
            lacks_disk: false,
            layers: None,
            lacking: Lacking::default(),
            local: LocalTime::UTC,
            meta,
            facts: None,
        }
    }
}

impl HostRecord {
    /// The preferences in force.
    pub(crate) const fn preferences(&self) -> &Preferences {
        &self.in_force
    }

    /// What all sources come to, with where each preference comes from.
    pub(crate) const fn merged(&self) -> &InForce {
        &self.merged
    }

    /// What they come to together where nobody can have meant that, a line for each.
    pub(crate) fn cautions(&self) -> Vec<String> {
        // Nothing waits for input that nobody looks for.
        if self.in_use.is_sensed() { self.merged.values.cautions() } else { Vec::new() }
    }

    /// Whether it is the document that says a preference which is in force.
    pub(crate) fn is_of_document(&self, key: &str) -> bool {
        let is_documents = |place: &Place| matches!(place.origin, Origin::Document(_));
        self.merged.entries.iter().any(|entry| entry.key == key && is_documents(&entry.place))
    }

    /// Whether a file of its owner says that nothing computes, and nothing else does.
    pub(crate) fn is_suspended_by_file(&self) -> bool {
        let wished = self.meta.document.as_ref().is_some_and(|document| document.preferences.suspended);
        self.merged.values.fleet.suspended && !wished
    }

    /// Somebody uses it, and less of its CPUs and its memory may be used meanwhile than if nobody did.
    pub(crate) fn is_less_in_use(&self) -> bool {
        let (unused, now) = (&self.unused, &self.in_force);
        let less = now.cpu_fraction < unused.cpu_fraction || now.cpu_time_fraction < unused.cpu_time_fraction;
        self.in_use.is_so() && (less || now.memory_fraction < unused.memory_fraction)
    }

    /// What its owner takes away, by commands and by files.
    pub(crate) fn owner_limits(&self) -> OwnerLimits {
        self.sources.owner_limits(&self.meta)
    }

    /// The same with all that he says, and where.
    pub(crate) fn owner_word(&self) -> Option<OwnerWord> {
        Sources::owner_word(&self.merged, self.meta.document.as_ref())
    }

    /// What of its files cannot be read.
    pub(crate) fn preference_troubles(&self) -> &[String] {
        self.sources.troubles()
    }

    /// Its files say this from now on. None if that is what they said before.
    pub(crate) fn set_files(&mut self, files: PreferenceFiles, now: Instant) -> Option<Difference> {
        let before = self.merged.values.fleet.local.clone();
        let found = self.sources.set_files(files).then(|| self.merge(now))?;
        let local = &self.merged.values.fleet.local;
        let reports = before.report_at_once != local.report_at_once;
        Some(Difference { reports: found.reports || reports, ..found })
    }

    /// The same of the web site that counts.
    pub(crate) fn set_site(
        &mut self,
        site: Option<(MasterUrl, Option<String>, Said)>,
        now: Instant,
    ) -> Option<Difference> {
        self.sources.set_site(site).then(|| self.merge(now))
    }

    /// Works out anew what all sources come to.
    fn merge(&mut self, now: Instant) -> Difference {
        self.merged = self.sources.in_force(&self.meta);
        Difference { rules: true, ..self.look_at_clock(now) }
    }

    /// What goes on around the tasks.
    pub(crate) const fn around_mut(&mut self) -> &mut Around {
        &mut self.around
    }

    /// What looks at that would be for, and whether the shell answers each. True if that is new.
    pub(crate) fn set_stakes(&mut self, stakes: Stakes, answers: bool) -> bool {
        self.around.set_answers(answers);
        std::mem::replace(&mut self.stakes, stakes) != stakes
    }

    /// The same, to be looked at.
    pub(crate) const fn around(&self) -> &Around {
        &self.around
    }

    /// Whether other programs use too much, by the last look.
    pub(crate) const fn is_busy(&self) -> bool {
        self.around.busy_until().is_some()
    }

    /// What around the tasks stops computing.
    pub(crate) fn stopped_by(&self) -> Option<SuspendedBy> {
        self.stop.as_ref().map(|(by, _)| *by)
    }

    /// The same in words.
    pub(crate) fn stopped_for(&self) -> Option<String> {
        self.stop.as_ref().map(|(_, why)| why.clone())
    }

    /// Whether these words name a program that preferences name.
    pub(crate) const fn is_program_named(&self) -> bool {
        self.is_program_named
    }

    /// What is to be told of that: why, or that it is over. None if that was told.
    pub(crate) fn tell_stop(&mut self) -> Option<Option<String>> {
        let is = self.stopped_by();
        if is.is_none() && self.told_stop.is_some_and(is_seen_by_looks) && !self.around.is_known() {
            // It is not over: nobody has looked.
            return None;
        }
        let is_new = std::mem::replace(&mut self.told_stop, is) != is;
        is_new.then(|| self.stop.as_ref().map(|(_, why)| why.clone()))
    }

    /// Why coprocessors rest by what goes on around the tasks, if they do.
    pub(crate) fn devices_stopped_for(&self) -> Option<&str> {
        self.devices_stop.as_deref()
    }

    /// What is to be told of that: why, or that it is over. None if that was told.
    pub(crate) fn tell_devices_stop(&mut self) -> Option<Option<String>> {
        let is = self.devices_stop.is_some();
        if !is && !self.around.is_known() {
            return None;
        }
        let is_new = std::mem::replace(&mut self.told_devices_stop, is) != is;
        is_new.then(|| self.devices_stop.clone())
    }

    /// Until when projects may not be contacted, if they may not now.
    pub(crate) fn network_closed_until(&self, now: Instant) -> Option<Instant> {
        match self.merged.values.fleet.local.network_hours.at(now, &self.local) {
            (true, _) => None,
            (false, until) => Some(until.unwrap_or(Instant::FAR_FUTURE)),
        }
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

    /// Whether it computes nothing because somebody uses it.
    pub(crate) const fn gives_way(&self) -> bool {
        self.in_use.is_so() && !self.in_force.run_in_use
    }

    /// Whether it leaves its coprocessors alone because somebody uses it.
    pub(crate) const fn gives_way_with_devices(&self) -> bool {
        self.in_use.is_so() && !self.in_force.run_gpu_in_use
    }

    /// Whether it leaves its coprocessors alone for that or for another program.
    pub(crate) const fn spares_devices(&self) -> bool {
        self.gives_way_with_devices() || self.devices_stop.is_some()
    }

    /// Whether somebody has paused computing for a while, by the last look.
    pub(crate) const fn is_snoozed(&self) -> bool {
        self.is_snoozed
    }

    /// Whether computing is suspended for want of space on the disk.
    pub(crate) const fn lacks_disk(&self) -> bool {
        self.lacks_disk
    }

    /// It is from now on, or is no more.
    pub(crate) const fn set_lacks_disk(&mut self, lacks: bool) {
        self.lacks_disk = lacks;
    }

    /// It has these layers of confinement.
    pub(crate) fn set_layers(&mut self, layers: Vec<HostLayer>, now: Instant) -> Difference {
        self.layers = Some(layers);
        self.look_at_clock(now)
    }

    /// What it lacks of the layers of confinement that are required.
    pub(crate) const fn lacking(&self) -> &Lacking {
        &self.lacking
    }

    /// What each task has to have of the layers that are required.
    pub(crate) fn required_of_tasks(&self) -> TaskLayers {
        required_of_tasks(&self.in_force.required_layers, self.layers.as_deref())
    }

    /// Whether it lacks layers that a document requires.
    pub(crate) fn lacks_layers_of(&self, document: &FleetDocument) -> bool {
        !lacking(&document.preferences.required_layers, self.layers.as_deref()).is_nothing()
    }

    /// When nobody uses it any more, if there is no further input, or a pause ends.
    pub(crate) fn next_in_use(&self) -> Option<Instant> {
        let snoozed = self.meta.snoozed_until.filter(|_| self.is_snoozed);
        let of_looks = self.around.busy_until().into_iter().chain(self.around.awaited_until());
        let others = of_looks.chain(self.silent_at).chain(self.delayed_until);
        self.in_use.until().into_iter().chain(snoozed).chain(others).min()
    }

    /// For people.
    pub(crate) fn in_use(&self) -> InUseView {
        let Preferences { run_in_use, run_gpu_in_use, idle_after, .. } = self.in_force;
        let rests = if !run_in_use {
            Rests::Computing
        } else if !run_gpu_in_use {
            Rests::Coprocessors
        } else {
            Rests::Nothing
        };
        InUseView { is_so: self.in_use.is_so(), until: self.in_use.until(), idle_after, rests }
    }

    /// What the shell says of people who use it.
    pub(crate) const fn in_use_mut(&mut self) -> &mut InUse {
        &mut self.in_use
    }

    /// The preferences that hold while nobody uses the host, at any hour.
    pub(crate) const fn unused(&self) -> &Preferences {
        &self.unused
    }

    /// Whether somebody was told for whom the host gives way, and what is so now.
    pub(crate) fn tell_in_use(&mut self) -> Option<bool> {
        let is_so = self.gives_way();
        (std::mem::replace(&mut self.told_in_use, is_so) != is_so).then_some(is_so)
    }

    /// The clock was set back. True if the record has changed.
    pub(crate) fn observe(&mut self, now: Instant) -> bool {
        self.in_use.observe(now);
        self.around.observe(now);
        let until = self.meta.snoozed_until.map(|until| until.min(now + SNOOZE_MAX));
        std::mem::replace(&mut self.meta.snoozed_until, until) != until
    }

    /// When that changes; none: never.
    pub(crate) const fn hours_change_at(&self) -> Option<Instant> {
        self.changes_at
    }

    /// Works out the preferences in force anew, as they are now.
    pub(crate) fn look_at_clock(&mut self, now: Instant) -> Difference {
        let spared = self.spares_devices();
        let (mut preferences, local) = (self.merged.values.fleet.clone(), &self.merged.values.fleet.local);
        if let Some((facts, most)) = self.facts.as_ref().zip(local.cpus_max) {
            let part = Fraction::clamped(f64::from(most.get()) / f64::from(facts.ncpus.max(1)));
            least(&mut preferences.cpu_fraction, part);
        }
        let unused_before = std::mem::replace(&mut self.unused, preferences.clone());
        let (open, changes_at) = preferences.hours.at(now, &self.local);
        (self.rests, self.changes_at) = (!open, changes_at);
        self.in_use.look(now, preferences.idle_after);
        self.is_snoozed = self.meta.snoozed_until.is_some_and(|until| now < until);
        let in_use = self.in_use.is_so();
        self.around.look(now, local, in_use);
        let silent_at = self.in_use.silent_at(local.stop_without_input);
        // One that has come waits for nothing.
        self.silent_at = silent_at.filter(|at| now < *at);
        let delayed_until = self.in_use.watched_since().map(|since| since + local.start_delay);
        self.delayed_until = delayed_until.filter(|until| now < *until);
        self.devices_stop = self.around.stops_devices(local);
        self.lacking = lacking(&preferences.required_layers, self.layers.as_deref());
        let stop = match () {
            () if !self.sources.troubles().is_empty() => {
                Some((SuspendedBy::PreferenceFile, "a preference file cannot be read".to_owned()))
            }
            () if let Some(until) = self.delayed_until => Some((
                SuspendedBy::StartDelay,
                format!("the agent waits after its start, until {}", self.local.show(until)),
            )),
            () if !self.lacking.is_nothing() => Some((
                SuspendedBy::Confinement,
                format!("layers of confinement that are required are off: {}", self.lacking),
            )),
            () if silent_at.is_some_and(|at| at <= now) => Some((
                SuspendedBy::NoInput,
                // Where it would never end, that is said.
                self.cautions().into_iter().next().unwrap_or_else(|| {
                    "nobody has used the machine for long, so that it may go to sleep (stop_without_input); goes on when somebody has used it"
                        .to_owned()
                }),
            )),
            () => None,
        };
        let gives_way = in_use && !preferences.run_in_use;
        preferences.suspended |=
            self.rests || self.is_snoozed || gives_way || stop.is_some() || self.lacks_disk;
        let awaited = self.around.awaited_until();
        self.around.ask(Stakes { rests: preferences.suspended, ..self.stakes }, local, now);
        let awaits = awaited != self.around.awaited_until();
        self.stop = stop.or_else(|| self.around.stops(local));
        let is_program = self.stopped_by() == Some(SuspendedBy::OtherPrograms);
        self.is_program_named = is_program && self.around.exclusive(local).is_some();
        preferences.suspended |= self.stop.is_some() || self.around.is_awaited();
        if in_use {
            least(&mut preferences.cpu_fraction, local.cpu_fraction_in_use);
            least(&mut preferences.cpu_time_fraction, local.cpu_time_fraction_in_use);
            least(&mut preferences.memory_fraction, local.memory_fraction_in_use);
        }
        let before = std::mem::replace(&mut self.in_force, preferences);
        let rules = before != self.in_force || spared != self.spares_devices();
        let network = takes_back(&before, &self.in_force);
        // What can run here at all is what can while nobody uses the host.
        let fits = fits_others(&before, &self.in_force) || fits_others(&unused_before, &self.unused);
        Difference { rules, network, fits, awaits, ..Difference::default() }
    }

    fn edit<T>(&mut self, now: Instant, change: impl FnOnce(&mut Meta) -> T) -> (T, Difference) {
        let was = self.meta.clone();
        let told = change(&mut self.meta);
        let is = &self.meta;
        let document = was.document != is.document;
        let rules = document || was.owner != is.owner || was.snoozed_until != is.snoozed_until;
        let durable = rules || was.declined != is.declined || was.fleet != is.fleet;
        let store = was != *is;
        let mut local = false;
        if document || was.owner != is.owner {
            let before = std::mem::replace(&mut self.merged, self.sources.in_force(&self.meta)).values;
            local = before.fleet.local != self.merged.values.fleet.local;
        }
        let found = if rules { self.look_at_clock(now) } else { Difference::default() };
        let Difference { fits, network, awaits, .. } = found;
        (told, Difference { store, durable, rules, fits, network, reports: document, local, awaits })
    }
}

/// Whether it is a look that shows this, and that it is over.
const fn is_seen_by_looks(by: SuspendedBy) -> bool {
    matches!(by, SuspendedBy::Battery | SuspendedBy::OtherPrograms)
}

fn least(one: &mut Fraction, other: Fraction) {
    if other < *one {
        *one = other;
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
        run_in_use: _,
        run_gpu_in_use: _,
        idle_after: _,
        required_layers: _,
        jobs_network: _,
        // Of these, whether devices are there at all, and for which projects. A number of CPUs is in the part
        // of them, and what holds in use is in force while somebody uses the host.
        local:
            LocalPreferences {
                use_gpus,
                excluded_of_projects,
                cpu_fraction_in_use: _,
                cpu_time_fraction_in_use: _,
                memory_fraction_in_use: _,
                swap_fraction: _,
                cpus_max: _,
                gpu_temperature_max: _,
                run_on_batteries: _,
                battery_charge_min: _,
                battery_temperature_max: _,
                other_load_max: _,
                other_load_max_in_use: _,
                exclusive_programs: _,
                exclusive_gpu_programs: _,
                start_delay: _,
                stop_without_input: _,
                disk_max: _,
                network_hours: _,
                network_wifi_only: _,
                other_network_max: _,
                upload_max: _,
                download_max: _,
                transfer_max: _,
                transfer_period: _,
                files_at_once: _,
                files_at_once_of_project: _,
                report_at_once: _,
            },
    } = was;
    (cpu_fraction, memory_fraction, connection_interval)
        != (&is.cpu_fraction, &is.memory_fraction, &is.connection_interval)
        || *excluded_devices != is.excluded_devices
        || (use_gpus, excluded_of_projects) != (&is.local.use_gpus, &is.local.excluded_of_projects)
}

impl Client {
    /// Changes what is stored of the host, and sees to what follows.
    pub(crate) fn edit_meta<T>(&mut self, change: impl FnOnce(&mut Meta) -> T) -> T {
        let (told, found) = self.state.host.edit(self.now(), change);
        self.see_to(found);
        told
    }

    pub(crate) fn see_to(&mut self, found: Difference) {
        if found.durable {
            self.mark_durable(Record::Meta);
        } else if found.store {
            self.mark(Record::Meta);
        }
        if found.reports {
            self.reports_changed();
        }
        if found.network {
            self.take_network_back();
        }
        if found.awaits {
            self.timers.stale(Timer::InUse);
        }
        // Before the start all is worked out anyway once the host was measured.
        if found.local && self.state.host.facts().is_some() {
            self.bar_projects();
            self.preferences_may_differ();
        }
        if found.rules {
            self.take_unconfined_off();
            self.timers.stale(Timer::Throttle);
            self.host_changed();
            if found.fits {
                self.reassess_all();
            }
            self.shares_changed();
            self.timers.all_stale([Timer::Hours, Timer::InUse, Timer::Disk]);
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
        let found = self.state.host.look_at_clock(now);
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
        let of_network = &self.local_preferences().network_hours;
        let is_asked = change.is_some() || !(of_network.is_always() || of_network.is_never());
        let until = Some(host.local_time().until).filter(|_| is_asked);
        // What is told of the host changes with the hours of the network.
        let (_, of_network) = of_network.at(self.now(), host.local_time());
        change.into_iter().chain(of_network).chain(until).min()
    }

    /// Takes in what was measured of the host.
    pub(crate) fn edit_host(&mut self, facts: HostFacts) {
        let news = self.known_devices.take_in(&facts.coprocessors);
        let before = self.state.host.facts.replace(facts);
        self.bar_projects();
        if before.as_ref().map(|facts| facts.ncpus) != self.state.host.facts().map(|facts| facts.ncpus) {
            // A number of CPUs is another part of them.
            let found = self.state.host.look_at_clock(self.now());
            self.see_to(found);
        }
        for text in news {
            self.notice(NoticeLevel::Info, None, text);
        }
        self.host_changed();
        self.touch(Entity::Host);
        // But for what is free on devices, which changes all the time.
        let lasting = |mut coprocessors: Vec<Coprocessor>| {
            let devices = coprocessors.iter_mut().flat_map(|one| &mut one.devices);
            devices.for_each(|device| device.free = Bytes(0));
            coprocessors
        };
        let made_of = |facts: &HostFacts| (facts.ncpus, facts.memory, lasting(facts.coprocessors.clone()));
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
