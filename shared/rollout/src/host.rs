//! What is known of a host at an instant.

use std::collections::BTreeMap;

use fallow_domain::agent_state::{HostState, ProjectState, SuspendedBy};
use fallow_domain::{AgentId, DocumentVersion, Instant, LocalPreferences, MasterUrl, Preferences, printable};
use fallow_fleet::GroupName;
use serde::{Deserialize, Serialize};

/// A host of the fleet at an instant.
#[derive(Clone, Debug, PartialEq)]
pub struct HostNow {
    /// Its id.
    pub id: AgentId,
    /// Its machine: the host of which it and others are copies, by that one's id; itself, if it is no copy.
    pub machine: AgentId,
    /// What people call it.
    pub name: String,
    /// The groups that it is in, of those that waves name.
    pub groups: Vec<GroupName>,
    /// The new version says something else to it than the one before.
    pub changed: bool,
    /// It is a witness of what the version does. Of a machine and its copies one is, of those that have the
    /// version and of those that have not.
    pub speaks: bool,
    /// Whether it was given the new version, whatever it says; none where that is not known.
    pub given: Option<bool>,
    /// Its link stands.
    pub connected: bool,
    /// When it was heard of last; none where that is not known.
    pub seen: Option<Instant>,
    /// The version that it follows.
    pub version: DocumentVersion,
    /// The version that it refused last, and why.
    pub refused: Option<(DocumentVersion, String)>,
    /// The version that it went back from last by itself, and why.
    pub rolled_back: Option<(DocumentVersion, String)>,
    /// What keeps it from computing with all that its documents give it.
    pub pause: Option<Pause>,
    /// That it does not compute is not to be judged by.
    pub rests: bool,
    /// It rests by a pause that the new version makes more likely: that may be the version's doing, or have
    /// come without it.
    pub rests_by_version: bool,
    /// The part of the machine's CPUs that it may use, 0 to 1.
    pub offered: f64,
    /// The part of the machine's CPUs that computes, 0 to 1.
    pub computing: f64,
    /// CPU time of jobs over that were done in time, microseconds since the agent's store was made.
    pub cpu_useful: i64,
    /// CPU time of jobs that failed or were late, microseconds since then.
    pub cpu_wasted: i64,
    /// Jobs over, since then.
    pub jobs_over: u64,
    /// Jobs of those that failed.
    pub jobs_failed: u64,
    /// Its violation of shares over a day (R5.32), if anything can be said.
    pub share_violation: Option<f64>,
    /// Its projects' servers.
    pub calls: BTreeMap<MasterUrl, Calls>,
    /// How tight its owner's limits are: rises with each that is tightened.
    pub tightness: f64,
    /// How many preferences he says.
    pub said: u32,
    /// The version of the agent: an older one does not tell of all that its owner says.
    pub agent_version: String,
}

/// What keeps a host from computing with all that its documents give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Its owner suspended it, or has a file of preferences that cannot be read. It ends when he does
    /// something.
    Owner,
    /// Somebody on the host, for a while: what no document says.
    Passing,
    /// It runs on its battery, or that is charged to too little, or too hot.
    Battery,
    /// Other programs use it.
    OtherPrograms,
    /// There was no input for long.
    NoInput,
    /// Its agent was started a moment ago.
    StartDelay,
    /// It is none of its hours.
    Hours,
    /// Somebody uses it, so it does not compute.
    InUse,
    /// Somebody uses it, and less of it computes meanwhile: by its owner's files, or as its GPUs rest.
    Sharing,
    /// There is less space on its disk than it is to leave.
    Disk,
    /// It lacks layers of confinement that are required.
    Confinement,
}

impl Pause {
    /// Of a host that says this of itself.
    fn of(state: &HostState) -> Option<Self> {
        match state.suspended_by {
            Some(SuspendedBy::Owner | SuspendedBy::PreferenceFile) => Some(Self::Owner),
            Some(SuspendedBy::Snooze) => Some(Self::Passing),
            Some(SuspendedBy::Battery) => Some(Self::Battery),
            Some(SuspendedBy::OtherPrograms) => Some(Self::OtherPrograms),
            Some(SuspendedBy::NoInput) => Some(Self::NoInput),
            Some(SuspendedBy::StartDelay) => Some(Self::StartDelay),
            Some(SuspendedBy::Hours) => Some(Self::Hours),
            Some(SuspendedBy::InUse) => Some(Self::InUse),
            Some(SuspendedBy::Disk) => Some(Self::Disk),
            Some(SuspendedBy::Confinement) => Some(Self::Confinement),
            None => state.in_use.then_some(Self::Sharing),
            Some(SuspendedBy::Coordinator | SuspendedBy::Other) => None,
        }
    }

    /// Whether a version lets it come about more easily than the one before.
    fn is_more_likely(self, before: &Preferences, after: &Preferences) -> bool {
        let (was, is) = (&before.local, &after.local);
        match self {
            Self::Owner | Self::Passing => false,
            Self::Battery => {
                was.run_on_batteries && !is.run_on_batteries
                    || is_set_above(was.battery_charge_min, is.battery_charge_min)
                    || is_set_below(was.battery_temperature_max, is.battery_temperature_max)
            }
            Self::OtherPrograms => {
                is_set_below(was.other_load_max, is.other_load_max)
                    || is_set_below(was.other_load_max_in_use, is.other_load_max_in_use)
                    || !is.exclusive_programs.is_subset(&was.exclusive_programs)
            }
            Self::NoInput => is_set_below(was.stop_without_input, is.stop_without_input),
            Self::StartDelay => is.start_delay > was.start_delay,
            // GPUs rest then, or less of the host computes; and for how long what owners say of such hosts
            // holds.
            Self::Sharing => {
                let gpus_rested = !before.run_in_use || !before.run_gpu_in_use;
                let gpus_rest = after.run_in_use && !after.run_gpu_in_use;
                let shared = before.run_in_use && after.run_in_use;
                let is_longer = after.idle_after > before.idle_after;
                let parts = |of: &LocalPreferences| {
                    [of.cpu_fraction_in_use, of.cpu_time_fraction_in_use, of.memory_fraction_in_use]
                };
                let is_less = parts(was).into_iter().zip(parts(is)).any(|(was, is)| is < was);
                // Where nothing computed then before, any part of the host is more.
                gpus_rest && !gpus_rested || is_longer && (gpus_rest || shared) || is_less && shared
            }
            Self::Hours => before.hours.are_cut_by(&after.hours),
            Self::InUse => !after.run_in_use && (before.run_in_use || after.idle_after > before.idle_after),
            Self::Disk => {
                after.disk_fraction < before.disk_fraction
                    || after.disk_free_min > before.disk_free_min
                    || is_set_below(was.disk_max, is.disk_max)
            }
            Self::Confinement => !after.required_layers.is_subset(&before.required_layers),
        }
    }
}

/// Whether a limit that holds from above is new or lower, where nothing is no limit.
fn is_set_below<T: PartialOrd>(was: Option<T>, is: Option<T>) -> bool {
    is.is_some_and(|is| was.is_none_or(|was| is < was))
}

/// The same of one that holds from below.
fn is_set_above<T: PartialOrd>(was: Option<T>, is: Option<T>) -> bool {
    is.is_some_and(|is| was.is_none_or(|was| is > was))
}

/// Calls to a project's server since the agent's store was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Those that were answered.
    pub answered: u64,
    /// Those that failed. One that found no server is not among them.
    pub failed: u64,
    /// The agent waits before the next: after a failure, or because the project said so.
    pub waits: bool,
}

/// Parts of a machine's CPUs, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// May be used.
    pub offered: f64,
    /// Compute.
    pub computing: f64,
}

impl Load {
    /// That of a host, if its owner lets it compute and it is the hour for it; of one that is off what it
    /// said last.
    #[must_use]
    pub fn seen(host: &HostNow) -> Option<Self> {
        let load = Self { offered: host.offered, computing: host.computing };
        (!host.rests).then_some(load)
    }

    /// The same, to compare with later: of a host that has no pause now, whatever that may come from.
    #[must_use]
    pub fn before(host: &HostNow) -> Option<Self> {
        Self::seen(host).filter(|_| host.pause.is_none())
    }

    /// The mean; none of none.
    pub fn mean(loads: impl Iterator<Item = Self>) -> Option<Self> {
        let (mut sum, mut count) = (Self::default(), 0.0);
        for load in loads {
            sum.offered += load.offered;
            sum.computing += load.computing;
            count += 1.0;
        }
        (count > 0.0).then(|| Self { offered: sum.offered / count, computing: sum.computing / count })
    }
}

impl HostNow {
    /// A host of which nothing is known but its id.
    #[must_use]
    pub fn named(id: AgentId) -> Self {
        let (state, none) = (HostState::default(), [].iter());
        Self::of(id, "", false, &state, none)
    }

    /// Why it does not have a version that it was given: it refused it, or went back from it. One that has
    /// taken it once more has it, as long as it is there.
    #[must_use]
    pub fn turned_down(&self, candidate: DocumentVersion) -> Option<String> {
        let of = |said: &Option<(DocumentVersion, String)>| {
            said.as_ref().filter(|(version, _)| *version == candidate).map(|(_, why)| why.clone())
        };
        let went_back = || of(&self.rolled_back).map(|why| format!("it went back from it: {why}"));
        let has_it = self.version == candidate;
        let refused = of(&self.refused).filter(|_| !has_it);
        refused.or_else(|| went_back().filter(|_| !has_it || !self.connected))
    }

    /// Whether it counts for or against the version.
    #[must_use]
    pub const fn is_judged(&self) -> bool {
        self.changed && self.speaks
    }

    /// What it calls itself, and its id: another one may be called so, too.
    pub(crate) fn called(&self) -> String {
        match self.name.is_empty() || self.name == self.id.0 {
            true => self.id.0.clone(),
            false => format!("{} ({})", self.name, self.id.0),
        }
    }

    /// What an agent reports.
    #[must_use]
    pub fn of<'p>(
        id: AgentId,
        name: &str,
        connected: bool,
        state: &HostState,
        projects: impl Iterator<Item = &'p ProjectState>,
    ) -> Self {
        let all = f64::from(state.cpus.max(1));
        let mut host = Self {
            machine: id.clone(),
            id,
            name: printable::line(name, 100),
            groups: Vec::new(),
            changed: true,
            speaks: true,
            given: None,
            connected,
            seen: None,
            version: state.document_version,
            refused: state.document_refused.as_ref().map(|(version, why)| (*version, said(why))),
            rolled_back: state.rolled_back.as_ref().map(|one| (one.version, said(&one.why))),
            pause: Pause::of(state),
            rests: Pause::of(state).is_some(),
            rests_by_version: false,
            // Whatever an agent says.
            offered: (f64::from(state.usable_cpus) / all).min(1.0),
            computing: (f64::from(state.usable_cpus.saturating_sub(state.idle_cpus)) / all).min(1.0),
            cpu_useful: 0,
            cpu_wasted: 0,
            jobs_over: 0,
            jobs_failed: 0,
            share_violation: state.metrics.first().and_then(|day| day.share_violation).map(|part| part.get()),
            calls: BTreeMap::new(),
            tightness: tightness(state),
            said: state.owner_word.as_ref().map_or(0, |word| word.said),
            agent_version: state.agent_version.clone(),
        };
        for project in projects {
            host.cpu_useful = host.cpu_useful.saturating_add(project.cpu_success.as_micros());
            let wasted = project.cpu_error.as_micros().saturating_add(project.cpu_late.as_micros());
            host.cpu_wasted = host.cpu_wasted.saturating_add(wasted);
            host.jobs_failed = host.jobs_failed.saturating_add(project.jobs_error);
            let over = project.jobs_success.saturating_add(project.jobs_error);
            host.jobs_over = host.jobs_over.saturating_add(over.saturating_add(project.jobs_late));
            let calls = Calls {
                answered: project.scheduler_rpcs.saturating_sub(project.scheduler_failures),
                failed: project.scheduler_failures,
                waits: project.min_rpc_time.is_some(),
            };
            host.calls.insert(project.url.clone(), calls);
        }
        host
    }

    /// What it is asked for by the version before, and by the new one: a pause that the new one makes more
    /// likely may be its doing. That of hosts with the version before is noted likewise, to compare with.
    pub fn is_asked(&mut self, before: &Preferences, after: &Preferences) {
        self.rests_by_version =
            self.rests && self.pause.is_some_and(|pause| pause.is_more_likely(before, after));
    }
}

/// What an agent says, for a line of a log or a table: it may say anything.
fn said(text: &str) -> String {
    printable::line(text, 300)
}

/// Each limit counts by what it takes away; suspension, and projects that were detached, one each.
fn tightness(state: &HostState) -> f64 {
    let owner = &state.owner;
    let taken = |limit: Option<fallow_domain::Fraction>| limit.map_or(0.0, |limit| 1.0 - limit.get());
    let fractions = [owner.cpu_fraction, owner.cpu_time_fraction, owner.memory_fraction, owner.disk_fraction];
    let counted = owner.excluded_devices.len() + state.declined.len() + usize::from(owner.suspended);
    fractions.into_iter().map(taken).sum::<f64>() + counted as f64
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use fallow_domain::{Bytes, Duration, Fraction};

    use super::*;

    #[test]
    fn r6_5_a_version_makes_a_pause_more_likely_by_what_it_tightens_and_by_nothing_that_it_loosens() {
        let base = Preferences { run_in_use: true, run_gpu_in_use: true, ..Preferences::default() };
        let with = |change: fn(&mut Preferences)| {
            let mut changed = base.clone();
            change(&mut changed);
            changed
        };
        for (pause, tighter, looser) in [
            (
                Pause::Sharing,
                with(|one| one.local.cpu_fraction_in_use = Fraction::clamped(0.25)),
                with(|one| one.local.cpu_fraction_in_use = Fraction::clamped(0.5)),
            ),
            (
                Pause::Sharing,
                with(|one| one.local.cpu_time_fraction_in_use = Fraction::clamped(0.25)),
                base.clone(),
            ),
            (
                Pause::Sharing,
                with(|one| one.local.memory_fraction_in_use = Fraction::clamped(0.25)),
                base.clone(),
            ),
            (Pause::Battery, base.clone(), with(|one| one.local.run_on_batteries = true)),
            (
                Pause::Battery,
                with(|one| one.local.battery_charge_min = Some(Fraction::clamped(0.5))),
                base.clone(),
            ),
            (
                Pause::Battery,
                with(|one| one.local.battery_temperature_max = NonZeroU32::new(40)),
                base.clone(),
            ),
            (
                Pause::OtherPrograms,
                with(|one| one.local.other_load_max = Some(Fraction::clamped(0.25))),
                base.clone(),
            ),
            (
                Pause::OtherPrograms,
                with(|one| one.local.other_load_max_in_use = Some(Fraction::clamped(0.25))),
                base.clone(),
            ),
            (
                Pause::NoInput,
                with(|one| one.local.stop_without_input = Some(Duration::from_hours(1))),
                base.clone(),
            ),
            (Pause::Disk, with(|one| one.local.disk_max = Some(Bytes(1 << 30))), base.clone()),
        ] {
            let mut host = HostNow { pause: Some(pause), ..HostNow::named(AgentId("h".into())) };
            host.rests = true;
            host.is_asked(&looser, &tighter);
            assert!(host.rests_by_version, "{pause:?}: {tighter:?}");
            host.is_asked(&tighter, &looser);
            assert!(!host.rests_by_version, "{pause:?}: {looser:?}");
        }
        // Until then nothing of a host computed while somebody used it; now a part does.
        let mut host = HostNow { pause: Some(Pause::Sharing), ..HostNow::named(AgentId("h".into())) };
        host.rests = true;
        let part = with(|one| one.local.cpu_fraction_in_use = Fraction::clamped(0.25));
        host.is_asked(&Preferences { run_in_use: false, run_gpu_in_use: false, ..base.clone() }, &part);
        assert!(!host.rests_by_version);
    }
}
