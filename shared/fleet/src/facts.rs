//! The labels that an agent's report amounts to.

use std::collections::BTreeMap;

use fallow_domain::agent_state::HostState;
use fallow_domain::{AgentId, LabelValue, Labels};

/// The facts of a host as labels: `agent_id`, `agent_name`, `agent_version`, `arch`, `container`,
/// `container_engine`, `cores`, `gpu` and such as `gpu.nvidia` (how many), `hostname`, `memory_mib`, `os`,
/// `virtual`. What the agent does not say, and devices that it has none of, give no label. But for the id,
/// which the coordinator gave, facts are the agent's own word.
#[must_use]
pub fn labels_of(agent: &AgentId, host: &HostState) -> Labels {
    let HostState { hostname, name, cpus, os, arch, memory, coprocessors, agent_version, .. } = host;
    let HostState { hypervisor, container, container_engine, .. } = host;
    let number = |number: u64| (number > 0).then(|| number.to_string());
    let text = |text: &str| LabelValue::fitted(text).map(String::from);
    let mut facts = BTreeMap::from([
        ("agent_id".to_owned(), text(&agent.0)),
        ("agent_name".to_owned(), text(name)),
        ("agent_version".to_owned(), text(agent_version)),
        ("arch".to_owned(), text(arch)),
        ("container".to_owned(), text(container)),
        ("container_engine".to_owned(), text(container_engine)),
        ("cores".to_owned(), number(u64::from(*cpus))),
        ("gpu".to_owned(), number(coprocessors.values().map(|count| u64::from(*count)).sum())),
        ("hostname".to_owned(), text(hostname)),
        ("memory_mib".to_owned(), number(memory.0 >> 20)),
        ("os".to_owned(), text(os)),
        ("virtual".to_owned(), text(hypervisor)),
    ]);
    facts.extend(
        coprocessors.iter().map(|(kind, count)| (format!("gpu.{}", kind.name()), number(u64::from(*count)))),
    );
    let mut labels = Labels::default();
    for (name, value) in facts {
        let label = value.and_then(|value| Some((name.parse().ok()?, value.parse().ok()?)));
        if let Some((name, value)) = label {
            // There are fewer of them than a host may have.
            let _ = labels.set(name, value);
        }
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use fallow_domain::{Bytes, FACTS, ResourceType};

    #[test]
    fn r6_4_what_an_agent_reports_becomes_labels_with_the_names_of_facts() {
        let host = HostState {
            hostname: "lab1.example.org".into(),
            name: "agent 1".into(),
            cpus: 8,
            os: "linux".into(),
            arch: "x86_64".into(),
            memory: Bytes::from_mebibytes(15_900),
            coprocessors: [(ResourceType::Nvidia, 2), (ResourceType::Amd, 1)].into(),
            hypervisor: "kvm".into(),
            container: "systemd-nspawn".into(),
            container_engine: "podman".into(),
            agent_version: "0.1.0".into(),
            ..HostState::default()
        };
        let labels = labels_of(&AgentId("01ABC".into()), &host);
        assert_eq!(
            labels.to_string(),
            "agent_id=01ABC agent_name=agent_1 agent_version=0.1.0 arch=x86_64 container=systemd-nspawn container_engine=podman \
             cores=8 gpu=3 gpu.amd=1 gpu.nvidia=2 hostname=lab1.example.org memory_mib=15900 os=linux virtual=kvm"
        );
        assert!(labels.iter().all(|(name, _)| name.is_fact()));
        assert!(FACTS.iter().all(|fact| labels.get(fact).is_some()));
    }

    #[test]
    fn r6_4_what_an_agent_does_not_say_gives_no_label() {
        let none = AgentId(String::new());
        assert!(labels_of(&none, &HostState::default()).is_empty());
        let hostile = HostState { hostname: "\u{202e}\n=,".into(), ..HostState::default() };
        assert!(labels_of(&none, &hostile).is_empty());
    }
}
