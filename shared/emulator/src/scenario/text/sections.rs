//! Which tables a scenario file has, and which keys they have.

use super::walk::Section;

pub(crate) const FILE: Section =
    Section { title: "the file", keys: &["name", "duration", "host", "client", "project"] };
pub(crate) const HOST: Section = Section {
    title: "[host]",
    keys: &[
        "cpus",
        "flops",
        "available",
        "off",
        "connection_interval",
        "memory",
        "disk",
        "network",
        "coprocessor",
    ],
};
pub(crate) const COPROCESSOR: Section =
    Section { title: "[[host.coprocessor]]", keys: &["type", "count", "flops"] };
pub(crate) const NETWORK: Section = Section { title: "network", keys: &["down", "up"] };
pub(crate) const CLIENT: Section = Section {
    title: "[client]",
    keys: &[
        "scheduling_period",
        "buffer",
        "leave_in_memory",
        "checkpoint_period",
        "cpu_fraction",
        "cpu_time_fraction",
        "memory_fraction",
        "disk_fraction",
        "disk_free_min",
    ],
};
pub(crate) const BUFFER: Section = Section { title: "buffer", keys: &["min", "additional"] };
pub(crate) const AVAILABLE: Section = Section { title: "available", keys: &["fraction", "mean", "trace"] };
pub(crate) const PROJECT: Section = Section {
    title: "[[project]]",
    keys: &[
        "name",
        "share",
        "available",
        "request_delay",
        "correction",
        "latency_bound",
        "estimated_flops",
        "true_flops",
        "estimate",
        "uses",
        "checkpoint",
        "input",
        "output",
        "memory",
        "jobs",
        "failure",
        "application",
        "queue",
    ],
};
/// Those of a project's keys that are in fact its only application's.
pub(crate) const APPLICATION_KEYS: [&str; 11] = [
    "latency_bound",
    "estimated_flops",
    "true_flops",
    "estimate",
    "uses",
    "checkpoint",
    "input",
    "output",
    "memory",
    "jobs",
    "failure",
];
pub(crate) const APPLICATION: Section = Section {
    title: "[[project.application]]",
    keys: &[
        "name",
        "weight",
        "latency_bound",
        "estimated_flops",
        "true_flops",
        "estimate",
        "uses",
        "checkpoint",
        "input",
        "output",
        "memory",
        "jobs",
        "failure",
    ],
};
pub(crate) const TRUE_FLOPS: Section = Section { title: "true_flops", keys: &["mean", "deviation"] };
pub(crate) const USES: Section =
    Section { title: "uses", keys: &["cpus", "nvidia", "amd", "intel", "apple"] };
pub(crate) const QUEUE: Section = Section {
    title: "[[project.queue]]",
    keys: &["name", "application", "received", "deadline", "fraction_done", "elapsed", "remaining", "state"],
};
/// Where a key that stands in the wrong table may belong.
pub(crate) const SECTIONS: &[&Section] =
    &[&FILE, &HOST, &CLIENT, &PROJECT, &APPLICATION, &QUEUE, &COPROCESSOR, &AVAILABLE, &BUFFER];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_described_beside_the_shipped_scenarios() {
        let manual = include_str!("../../../scenarios/README.md");
        for section in SECTIONS.iter().chain(&[&NETWORK, &TRUE_FLOPS, &USES]) {
            for key in section.keys {
                let named = [
                    format!("`{key}`"),
                    format!("{{ {key}"),
                    format!(", {key} }}"),
                    format!("[{key}]"),
                    format!(".{key}]"),
                ];
                assert!(named.iter().any(|named| manual.contains(named)), "{key} of {}", section.title);
            }
        }
    }
}
