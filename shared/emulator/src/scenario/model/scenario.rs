//! All of it: a host, a client and its projects.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use fallow_domain::{Duration, Hours, LocalPreferences, Preferences};

use super::client::{Buffer, ClientModel};
use super::host::HostModel;
use super::outage::OutageModel;
use super::project::ProjectModel;

/// Everything that is given to a simulation, but for its seed and its policies.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name, as shown in tables and files.
    pub name: String,
    /// How long is simulated.
    pub duration: Duration,
    /// How many hosts there are, all alike. They share the projects' jobs.
    pub hosts: NonZeroU32,
    /// The machine that each of them is.
    pub host: HostModel,
    /// The clients' preferences.
    pub client: ClientModel,
    /// The projects it is attached to, at least one, in the order of attachment. No two have the same name.
    pub projects: Vec<ProjectModel>,
    /// What several of them depend on. No two have the same name.
    pub outages: Vec<OutageModel>,
}

impl Scenario {
    /// Whether some project has a finite supply of jobs.
    #[must_use]
    pub fn has_batch(&self) -> bool {
        let mut applications = self.projects.iter().flat_map(|project| &project.applications);
        applications.any(|application| application.jobs.is_some_and(|jobs| jobs > 0))
    }

    /// The client's preferences as the product's own code takes them.
    #[must_use]
    pub fn preferences(&self) -> Preferences {
        // By name, so that none is forgotten.
        let ClientModel {
            scheduling_period,
            buffer: Buffer { min: buffer_min, additional: buffer_additional },
            leave_in_memory,
            checkpoint_period,
            cpu_fraction,
            cpu_time_fraction,
            memory_fraction,
            disk_fraction,
            disk_free_min,
        } = self.client;
        Preferences {
            cpu_fraction,
            cpu_time_fraction,
            buffer_min,
            buffer_additional,
            scheduling_period,
            checkpoint_period,
            leave_in_memory,
            suspended: false,
            memory_fraction,
            disk_fraction,
            disk_free_min,
            connection_interval: self.host.connection_interval,
            excluded_devices: BTreeSet::new(),
            hours: Hours::default(),
            // Simulated hosts say when they are available.
            run_in_use: true,
            run_gpu_in_use: true,
            idle_after: Preferences::default().idle_after,
            required_layers: BTreeSet::new(),
            jobs_network: None,
            local: LocalPreferences::default(),
        }
    }
}
