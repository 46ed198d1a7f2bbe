//! Which jobs have the network (R6.10): those whose application asks for it (BOINC: `needs_network`), of
//! projects for which preferences allow it, where the owner allows it at all.
//!
//! A process that was started with the network has it until it ends. So when preferences take it back, tasks
//! that may have it leave, and start again without it from what they have saved.

use fallow_domain::{JobId, MasterUrl, Preferences};

use crate::machine::Client;
use crate::state::{Job, Process};
use crate::{Cause, Effect};

/// Whether preferences let a project's jobs have the network.
fn allows(preferences: &Preferences, project: &MasterUrl) -> bool {
    preferences.jobs_network.as_ref().is_none_or(|projects| projects.contains(project))
}

/// Whether some project's jobs may have the network under the one and not under the other.
pub(crate) fn takes_back(was: &Preferences, is: &Preferences) -> bool {
    match (&was.jobs_network, &is.jobs_network) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(was), Some(is)) => !was.is_subset(is),
    }
}

impl Client {
    /// Whether a job's process has the network if it is started now.
    pub(crate) fn has_network(&self, job: &Job) -> bool {
        let project = self.state.projects.get(&job.project);
        let version = self.state.versions.get(&job.version);
        let asks = self.config.jobs_network && version.is_some_and(|version| version.needs_network);
        asks && project.is_some_and(|project| allows(self.preferences(), &project.url))
    }

    /// Tasks that have the network, and are to have it no more, leave.
    pub(crate) fn take_network_back(&mut self) {
        self.have_leave(&Cause::NetworkTakenBack, |client, job| {
            job.given.network && !client.has_network(job)
        });
    }

    /// These tasks leave, and start again later from what they have saved.
    pub(crate) fn have_leave(&mut self, cause: &Cause, which: impl Fn(&Self, &Job) -> bool) {
        let held = self.state.jobs.slots().values().filter_map(|id| self.state.jobs.get(id));
        let leave: Vec<JobId> = held.filter(|job| which(self, job)).map(|job| job.id).collect();
        for id in leave {
            let Some(process) = self.state.jobs.get(&id).map(|job| job.process) else { continue };
            let (Process::Starting | Process::Executing(_) | Process::Suspended(_)) = process else {
                continue;
            };
            self.act(Effect::QuitTask { job: id }, cause.clone());
            self.steer_job(id, |job| job.process = Process::Quitting(process.pid()));
            self.refresh(id);
        }
    }
}
