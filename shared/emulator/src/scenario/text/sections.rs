//! Which tables a scenario file has, and which keys they have.

use fallow_config::Section;

pub(crate) const FILE: Section = Section {
    title: "the file",
    keys: &["name", "duration", "hosts", "host", "client", "project", "outage"],
};
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
pub(crate) const AVAILABLE: Section =
    Section { title: "available", keys: &["fraction", "mean", "days", "hours", "jitter", "absent", "trace"] };
pub(crate) const OUTAGE: Section = Section { title: "[[outage]]", keys: &["name", "projects", "available"] };
pub(crate) const PROJECT: Section = Section {
    title: "[[project]]",
    keys: &[
        "name",
        "share",
        "available",
        "request_delay",
        "spread",
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
pub(crate) const TRUE_FLOPS: Section =
    Section { title: "true_flops", keys: &["mean", "deviation", "log_deviation"] };
pub(crate) const USES: Section =
    Section { title: "uses", keys: &["cpus", "nvidia", "amd", "intel", "apple"] };
pub(crate) const QUEUE: Section = Section {
    title: "[[project.queue]]",
    keys: &["name", "application", "received", "deadline", "fraction_done", "elapsed", "remaining", "state"],
};
/// Where a key that stands in the wrong table may belong.
pub(crate) const SECTIONS: &[&Section] =
    &[&FILE, &HOST, &CLIENT, &PROJECT, &APPLICATION, &QUEUE, &COPROCESSOR, &AVAILABLE, &BUFFER, &OUTAGE];

#[cfg(test)]
mod tests {
    use super::super::super::{NoFiles, Scenario};
    use super::*;

    const MANUAL: &str = include_str!("../../../../../docs/scenarios.md");

    /// The manual's chapter with that heading, up to the next heading.
    fn chapter(title: &str) -> &'static str {
        let whole = MANUAL.split("\n#").find(|chapter| {
            let heading = chapter.lines().next().unwrap_or_default();
            heading.trim_start_matches('#').trim().trim_matches('`').eq_ignore_ascii_case(title)
        });
        whole.unwrap_or_else(|| panic!("docs/scenarios.md has no chapter {title}"))
    }

    /// The keys that a chapter has rows for.
    fn described(chapter: &'static str) -> Vec<&'static str> {
        chapter.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect()
    }

    #[test]
    fn r5_13_the_manual_describes_every_key_that_is_read_and_no_other() {
        for section in SECTIONS.iter().chain(&[&NETWORK, &TRUE_FLOPS, &USES]) {
            let mut rows = described(chapter(section.title));
            if section.title == PROJECT.title {
                rows.extend(APPLICATION_KEYS);
            }
            let mut keys = section.keys.to_vec();
            rows.sort_unstable();
            keys.sort_unstable();
            assert_eq!(rows, keys, "docs/scenarios.md on {}", section.title);
        }
    }

    /// The lines that say what a chapter gives as the value of a key that is left out, where it gives one.
    fn defaults(section: &Section, keys: &[&str]) -> Vec<String> {
        let line = |row: &str| {
            let cells: Vec<&str> = row.strip_prefix('|')?.split('|').map(str::trim).collect();
            let (key, value) = (cells.first()?.trim_matches('`'), *cells.get(3)?);
            let written = value.strip_prefix('`').and_then(|value| value.strip_suffix('`'));
            let value = written.or_else(|| value.parse::<f64>().ok().map(|_| value))?;
            keys.contains(&key).then(|| format!("{key} = {value}"))
        };
        chapter(section.title).lines().filter_map(line).collect()
    }

    #[test]
    fn r5_13_what_the_manual_gives_for_keys_left_out_is_what_the_reader_takes() {
        let text = [
            vec!["name = \"base\"".to_owned()],
            defaults(&FILE, FILE.keys),
            vec!["[host]".to_owned()],
            defaults(&HOST, HOST.keys),
            vec!["[client]".to_owned()],
            defaults(&CLIENT, CLIENT.keys),
            vec!["[client.buffer]".to_owned()],
            defaults(&BUFFER, BUFFER.keys),
            vec!["[[project]]".to_owned(), "name = \"p1\"".to_owned()],
            defaults(&PROJECT, PROJECT.keys),
            defaults(&APPLICATION, &APPLICATION_KEYS),
        ]
        .concat();
        // Two names, and 28 keys of these tables whose value can be written.
        assert_eq!(text.iter().filter(|line| line.contains(" = ")).count(), 30, "{text:#?}");
        let loaded = Scenario::parse("manual", &text.join("\n"), &NoFiles);
        assert_eq!(loaded.map(|loaded| loaded.scenario), Ok(Scenario::base()));
    }
}
