//! How much memory entries take, as it is counted for an agent's bounds (R6.10).
//!
//! A key is held beside its value, which has the same names in it: so texts of a key count twice. What the
//! store keeps of an entry, written as JSON, is about as much.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fallow_domain::agent_state::{
    DiskDecision, DiskSpace, Entry, EntryKey, HostState, ProjectState, TaskState,
};
use fallow_domain::{LocalPreferences, MasterUrl};

use super::limits::BYTES_PER_MACHINE;
use super::totals::PastTotals;

/// Bytes of an entry with its key.
pub(super) fn of(entry: &Entry) -> usize {
    let texts = match entry {
        Entry::Host(host) => size_of::<HostState>() + of_host(host),
        Entry::Disk(decisions) => decisions.iter().map(of_decision).sum(),
        Entry::Project(ProjectState { url, name, min_rpc_time, .. }) => {
            let reason = min_rpc_time.as_ref().map_or(0, |(_, why)| why.len());
            2 * url.as_str().len() + name.len() + reason
        }
        Entry::Task(TaskState { project, name, .. }) => 2 * (project.as_str().len() + name.len()),
    };
    size_of::<(EntryKey, Entry)>() + texts
}

/// Bytes of what a project had that is no entry any more.
pub(super) fn of_past(url: &MasterUrl) -> usize {
    size_of::<(MasterUrl, PastTotals)>() + url.as_str().len()
}

fn of_decision(decision: &DiskDecision) -> usize {
    let DiskDecision { project, name, rule, why, .. } = decision;
    let url = project.as_ref().map_or(0, |url| url.as_str().len());
    size_of::<DiskDecision>() + url + name.len() + rule.len() + why.len()
}

/// What a host says beside figures.
fn of_host(host: &HostState) -> usize {
    let texts = [
        &host.hostname,
        &host.name,
        &host.document_content,
        &host.os,
        &host.arch,
        &host.hypervisor,
        &host.container,
        &host.container_engine,
        &host.agent_version,
    ];
    let refused = host.document_refused.as_ref().map_or(0, |(_, why)| why.len());
    let rolled_back = host.rolled_back.as_ref().map_or(0, |one| one.why.len());
    let declined: usize = host.declined.iter().map(|url| size_of_val(url) + url.as_str().len()).sum();
    let devices: usize = host.owner.excluded_devices.iter().map(size_of_val).sum();
    let word = host.owner_word.as_ref().map_or(0, |word| {
        let places = word.places.iter().map(|(key, place)| 2 * size_of::<String>() + key.len() + place.len());
        let required = &word.preferences.required_layers;
        let layers = required.iter().map(|layer| size_of_val(layer) + layer.name().len());
        let projects = word.preferences.jobs_network.iter().flatten();
        let projects = projects.map(|url| size_of_val(url) + url.as_str().len());
        let local = of_local(&word.preferences.local);
        size_of_val(&**word) + places.sum::<usize>() + layers.sum::<usize>() + projects.sum::<usize>() + local
    });
    texts.map(String::len).iter().sum::<usize>()
        + refused
        + rolled_back
        + declined
        + devices
        + word
        + host.disk.as_ref().map_or(0, |disk| size_of::<DiskSpace>() + disk.limited_by.len())
        + size_of_val(&*host.organisation)
}

/// The lists among preferences of what goes on in and around a host.
fn of_local(local: &LocalPreferences) -> usize {
    let programs = local.exclusive_programs.iter().chain(&local.exclusive_gpu_programs);
    let programs = programs.map(|name| size_of_val(name) + name.len());
    let exclusions = local.excluded_of_projects.iter();
    let exclusions = exclusions.map(|one| size_of_val(one) + one.to_string().len());
    programs.sum::<usize>() + exclusions.sum::<usize>()
}

/// What a machine's agents hold together, and are about to: the agent and its copies have one of these.
#[derive(Clone, Debug, Default)]
pub(super) struct MachineWeight(Arc<AtomicUsize>);

impl MachineWeight {
    /// One agent's bytes went from `before` to `after`.
    pub(super) fn change(&self, before: usize, after: usize) {
        // Modulo the size of the type, so that less is a large number more.
        self.0.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Room for so many bytes more, until it is dropped; none if there is no such room.
    pub(super) fn reserve(&self, bytes: usize) -> Option<Reserved> {
        let within =
            |held: usize| held.checked_add(bytes).filter(|all| bytes == 0 || *all <= BYTES_PER_MACHINE);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).ok()?;
        Some(Reserved { machine: self.clone(), bytes })
    }

    /// The same without a bound.
    pub(super) fn reserve_in_any_case(&self, bytes: usize) -> Reserved {
        self.change(0, bytes);
        Reserved { machine: self.clone(), bytes }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Room for what is on its way to the store.
#[derive(Debug)]
pub(super) struct Reserved {
    machine: MachineWeight,
    bytes: usize,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.machine.change(self.bytes, 0);
    }
}
