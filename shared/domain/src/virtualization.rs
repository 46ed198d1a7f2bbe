//! What stands between a host and the machine that it runs on, and what on it could run other systems.

use serde::{Deserialize, Serialize};

/// Whether a host is a machine of its own. Nothing here is a wish or a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Virtualization {
    /// What runs the virtual machine that the host is, such as `kvm`, in the words of systemd; empty where it
    /// is none, or hides it.
    pub hypervisor: String,
    /// What the agent's container was made with, such as `docker`; empty where it is in none, or one that
    /// cannot be told.
    pub container: String,
    /// The program that runs containers here, if there is one.
    pub engine: Option<ContainerEngine>,
    /// VirtualBox, if it is installed (BOINC: `virtualbox_version`).
    pub virtualbox: Option<Installed>,
}

/// A program that runs containers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerEngine {
    /// Which one (BOINC: `docker_type`).
    pub kind: ContainerEngineKind,
    /// What is known of it (BOINC: `docker_version`).
    pub installed: Installed,
}

/// Which program runs containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContainerEngineKind {
    /// Docker.
    Docker,
    /// Podman.
    Podman,
}

impl ContainerEngineKind {
    /// Its name, such as `docker`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }
}

/// A program that is installed on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Installed {
    /// Its version, such as `24.0.7`.
    pub version: String,
    /// Jobs of this agent may use it. Projects are told of it only then: jobs that need it would fail.
    pub for_jobs: bool,
}
