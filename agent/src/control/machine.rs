//! What the agent says of the machine that it is on: which system and hardware, and whether it is a machine
//! of its own (R6.2).

use fallow_domain::{Bytes, HostFacts, Installed, Virtualization, printable};
use serde::{Deserialize, Serialize};

/// Longest text of the system's that is shown in the line, in bytes.
const TEXT_MAX: usize = 200;

/// The machine, as projects are told of it. Sizes are bytes; a text is empty and a size 0 where it is not
/// known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineStatus {
    /// Operating system, such as `Linux Debian`.
    pub os: String,
    /// Its version, with those of the kernel and the C library.
    pub os_version: String,
    /// CPU vendor.
    pub cpu_vendor: String,
    /// CPU model.
    pub cpu_model: String,
    /// CPU features, separated by blanks.
    pub cpu_features: String,
    /// CPU cache.
    pub cache: u64,
    /// Main memory.
    pub memory: u64,
    /// Swap space.
    pub swap: u64,
    /// What runs the virtual machine that it is, such as `kvm`; absent where it is none, or hides it.
    pub hypervisor: Option<String>,
    /// What the agent's container was made with, such as `docker`; absent where it is in none.
    pub container: Option<String>,
    /// The program that runs containers here, if there is one.
    pub container_engine: Option<ProgramStatus>,
    /// VirtualBox, if it is installed.
    pub virtualbox: Option<ProgramStatus>,
}

/// A program that runs other systems.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramStatus {
    /// Its name, such as `docker`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Jobs may use it. Projects are told of it only then.
    pub for_jobs: bool,
}

impl ProgramStatus {
    fn of(name: &str, installed: &Installed) -> Self {
        Self { name: name.to_owned(), version: installed.version.clone(), for_jobs: installed.for_jobs }
    }

    fn text(&self) -> String {
        let kept = if self.for_jobs { "" } else { " (not for jobs)" };
        format!("{} {}{kept}", self.name, self.version)
    }
}

impl MachineStatus {
    /// As it was found.
    pub fn of(facts: &HostFacts) -> Self {
        let Virtualization { hypervisor, container, engine, virtualbox } = &facts.virtualization;
        let said = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        Self {
            os: facts.os_name.clone(),
            os_version: facts.os_version.clone(),
            cpu_vendor: facts.cpu_vendor.clone(),
            cpu_model: facts.cpu_model.clone(),
            cpu_features: facts.cpu_features.clone(),
            cache: facts.cache.0,
            memory: facts.memory.0,
            swap: facts.swap.0,
            hypervisor: said(hypervisor),
            container: said(container),
            container_engine: engine
                .as_ref()
                .map(|engine| ProgramStatus::of(engine.kind.name(), &engine.installed)),
            virtualbox: virtualbox.as_ref().map(|installed| ProgramStatus::of("VirtualBox", installed)),
        }
    }

    /// In a line for people; none before it is known.
    pub fn text(&self) -> Option<String> {
        let memory = format!("{} of memory", Bytes(self.memory));
        let hypervisor = self.hypervisor.as_ref().map(|name| format!("a virtual machine ({name})"));
        let container = self.container.as_ref().map(|name| format!("the agent is in a container ({name})"));
        let programs = [&self.container_engine, &self.virtualbox].into_iter().flatten();
        let programs: Vec<String> = programs.map(ProgramStatus::text).collect();
        let programs = (!programs.is_empty()).then(|| programs.join(", "));
        let first = [self.cpu_model.clone(), memory, self.os_version.clone()];
        let first: Vec<String> = first.into_iter().filter(|text| !text.is_empty()).collect();
        let parts = [Some(first.join(", ")), hypervisor, container, programs];
        let parts: Vec<String> =
            parts.into_iter().flatten().map(|part| printable::line(&part, TEXT_MAX)).collect();
        (self.memory > 0).then(|| format!("this machine: {}", parts.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_2_a_line_says_what_the_machine_is_and_whether_it_is_one_of_its_own() {
        let plain = MachineStatus {
            os_version: "Debian GNU/Linux 12 (bookworm) [6.1.0|libc 2.36]".into(),
            cpu_model: "A CPU".into(),
            memory: 8 << 30,
            ..MachineStatus::default()
        };
        let memory = Bytes(8 << 30);
        let own = format!(
            "this machine: A CPU, {memory} of memory, Debian GNU/Linux 12 (bookworm) [6.1.0|libc 2.36]"
        );
        assert_eq!(plain.text(), Some(own.clone()));
        let program =
            |name: &str, for_jobs| ProgramStatus { name: name.into(), version: "7.1".into(), for_jobs };
        let guest = MachineStatus {
            hypervisor: Some("kvm".into()),
            container: Some("docker".into()),
            container_engine: Some(program("podman", false)),
            virtualbox: Some(program("VirtualBox", true)),
            ..plain
        };
        let more = "; a virtual machine (kvm); the agent is in a container (docker); podman 7.1 (not for jobs), VirtualBox 7.1";
        assert_eq!(guest.text(), Some(own + more));
        assert_eq!(MachineStatus::default().text(), None);
    }
}
