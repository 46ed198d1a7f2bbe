//! Devices that preferences keep from jobs of single projects (R6.4; BOINC: `exclude_gpu` in
//! `cc_config.xml`).
//!
//! A job is placed on none of them. A project that may use no device of a type at all is asked for no jobs
//! of it. Not foreseen: one that may use some of them is asked as if it could have all.

use fallow_domain::{Barred, MasterUrl, PerType, ProjectId, ResourceType};
use fallow_policy::job_queue::Devices;

use crate::devices::devices_of;
use crate::machine::Client;
use crate::state::Job;

/// All that there can be.
const EVERY: Devices = Devices::first(64);

impl Client {
    /// The devices that a job must not use, of the type that it uses.
    pub(crate) fn barred(&self, job: &Job) -> Devices {
        let exclusions = &self.local_preferences().excluded_of_projects;
        let kind = job.usage.coprocessor.map(|(kind, _)| kind).filter(|_| !exclusions.is_empty());
        let project = self.state.projects.get(&job.project);
        let barred = kind.zip(project);
        barred.map_or(Devices::NONE, |(kind, project)| {
            self.barred_of(&project.url, Some(&job.version.app), kind)
        })
    }

    /// Those of an application of a project, or of all of them.
    fn barred_of(&self, url: &MasterUrl, app: Option<&str>, kind: ResourceType) -> Devices {
        let exclusions = self.local_preferences().excluded_of_projects.iter();
        exclusions.filter_map(|one| one.bars(url, app, kind)).fold(
            Devices::NONE,
            |all, barred| match barred {
                Barred::All => EVERY,
                Barred::One(number) => all.with(number),
            },
        )
    }

    /// Whether a job stands on a device that is not for it.
    pub(crate) fn is_barred(&self, job: &Job) -> bool {
        devices_of(job).is_some_and(|(_, devices)| devices.meet(self.barred(job)))
    }

    /// Works out of which types projects may use no device: exclusions, the host's devices or projects may
    /// be others.
    pub(crate) fn bar_projects(&mut self) {
        let ids: Vec<ProjectId> = self.state.projects.keys().copied().collect();
        for id in ids {
            let Some(project) = self.state.projects.get(&id) else { continue };
            let barred = PerType::from_fn(|kind| {
                let barred = self.barred_of(&project.url, None, kind);
                let mut devices = self.known_devices.all(kind).map(|(number, _)| number).peekable();
                barred == EVERY || devices.peek().is_some() && devices.all(|number| barred.contains(number))
            });
            if barred != project.barred {
                self.edit_project(id, |project| project.barred = barred);
            }
        }
    }
}
