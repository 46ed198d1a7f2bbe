//! What each preference is, in plain words: for tables, for the template of the owner's file.

/// A preference, explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explained {
    /// Its key.
    pub key: &'static str,
    /// What it says, for an owner, in lines of at most 76 columns.
    pub text: &'static str,
    /// How it may be written in an owner's file; none for what is no limit.
    pub example: Option<&'static str>,
    /// What stands behind it where it is shown: the time that an amount is of, or its unit.
    pub unit: &'static str,
}

const fn limit(key: &'static str, example: &'static str, text: &'static str) -> Explained {
    Explained { key, text, example: Some(example), unit: "" }
}

const fn rate(key: &'static str, example: &'static str, text: &'static str) -> Explained {
    Explained { unit: " a second", ..limit(key, example, text) }
}

const fn degrees(key: &'static str, example: &'static str, text: &'static str) -> Explained {
    Explained { unit: " °C", ..limit(key, example, text) }
}

const fn wish(key: &'static str, text: &'static str) -> Explained {
    Explained { key, text, example: None, unit: "" }
}

/// All of them, in the order in which they are shown.
const ALL: &[Explained] = &[
    limit("suspended", "true", "No computing at all."),
    limit(
        "required_layers",
        "[\"files\", \"calls\"]",
        "No computing while one of these layers of confinement is off, which\n\
         `fallow-agent status` shows; or \"all\".",
    ),
    limit(
        "jobs_network",
        "[\"https://example.org/project/\"]",
        "The only projects whose jobs may use the network: those jobs that ask for\n\
         it, where the agent runs with --allow-network.",
    ),
    limit(
        "hours",
        "\"mon-fri 18:00-08:00, sat-sun\"",
        "When this machine may compute, by its own clock. A stretch over midnight\n\
         belongs to the day on which it begins. Days with the same times are joined\n\
         without a blank: \"mon,wed 18:00-20:00\".",
    ),
    limit("run_in_use", "false", "Compute also while somebody uses this machine."),
    limit("run_gpu_in_use", "false", "Use GPUs also then."),
    limit("idle_after", "\"15 min\"", "So long after the last input nobody uses it any more."),
    limit(
        "stop_without_input",
        "\"2 h\"",
        "Stop computing after so long without input, so that the machine can go to\n\
         sleep.",
    ),
    limit("run_on_batteries", "false", "Compute while the machine runs on its battery."),
    limit(
        "battery_charge_min",
        "\"50%\"",
        "No computing while its battery is charged to less than this, also while it\n\
         is being charged.",
    ),
    degrees(
        "battery_temperature_max",
        "45",
        "No computing while its battery is hotter than so many degrees Celsius, from\n\
         20 to 100, until it has cooled by five.",
    ),
    limit(
        "exclusive_programs",
        "[\"steam\", \"blender\"]",
        "No computing while one of these programs runs: the names of their files.",
    ),
    limit("exclusive_gpu_programs", "[\"steam\"]", "No computing on GPUs while one of these programs runs."),
    limit("start_delay", "\"5 min\"", "No computing for so long after the agent was started."),
    limit(
        "other_load_max",
        "\"50%\"",
        "No computing while other programs use more than this part of all CPUs.",
    ),
    limit("other_load_max_in_use", "\"25%\"", "The same while somebody uses the machine."),
    limit("cpus_max", "2", "Use at most so many CPUs, whatever part of all they are."),
    limit("cpu_fraction", "\"50%\"", "Use at most this part of the CPUs, and one of them at the least."),
    limit("cpu_fraction_in_use", "\"25%\"", "The same while somebody uses the machine."),
    limit(
        "cpu_time_fraction",
        "\"60%\"",
        "Run at most this part of the time, to keep the machine cool and quiet.",
    ),
    limit("cpu_time_fraction_in_use", "\"30%\"", "The same while somebody uses the machine."),
    limit("memory_fraction", "\"50%\"", "Use at most this part of the memory."),
    limit("memory_fraction_in_use", "\"25%\"", "The same while somebody uses the machine."),
    limit(
        "swap_fraction",
        "\"50%\"",
        "Use at most this part of the swap space: of tasks that hold more together\n\
         some leave memory, and go on from their saved state ten minutes later.",
    ),
    limit(
        "leave_in_memory",
        "false",
        "Keep tasks in memory that do not run. Without that they leave it once they\n\
         have saved their state.",
    ),
    limit("use_gpus", "false", "Use GPUs at all."),
    limit("excluded_devices", "[\"nvidia:0\"]", "GPUs that are left alone."),
    limit(
        "excluded_of_projects",
        "[\"https://example.org/p/ nvidia:0\"]",
        "GPUs on which jobs of a project do not run: its URL, then `nvidia:0`,\n\
         `nvidia` for all of a kind or `all`, then the name of an application if it\n\
         is for that alone.",
    ),
    degrees(
        "gpu_temperature_max",
        "75",
        "Leave GPUs alone that are hotter than so many degrees Celsius, from 30 to\n\
         110, until they have cooled by five.",
    ),
    limit("disk_fraction", "\"20%\"", "Use at most this part of the disk."),
    limit("disk_max", "\"20 GB\"", "Use at most so much of the disk."),
    limit("disk_free_min", "\"50 GB\"", "Leave at least so much of the disk free."),
    limit("checkpoint_period", "\"10 min\"", "Have tasks save their state at most this often."),
    limit("network_hours", "\"22:00-06:00\"", "When projects may be contacted. The coordinator always is."),
    limit(
        "network_wifi_only",
        "true",
        "Contact projects and transfer files only while this machine is on WiFi.\n\
         The coordinator is reached all the time.",
    ),
    rate(
        "other_network_max",
        "\"1 MB\"",
        "Transfer no files while other programs of this machine move more than this\n\
         over the network, both ways together.",
    ),
    rate("upload_max", "\"100 kB\"", "Send at most so much to projects in a second."),
    rate("download_max", "\"1 MB\"", "Fetch at most so much from projects in a second."),
    limit(
        "transfer_max",
        "\"10 GB\"",
        "Move at most so much of projects' files, both ways together, in the last\n\
         days, which `transfer_period` counts. What is under way then is broken off\n\
         and goes on from there when days pass; projects are not contacted either.",
    ),
    limit(
        "transfer_period",
        "\"30 days\"",
        "How many days these are, from 1 to 365, today among them. The longer, the\n\
         less may be moved.",
    ),
    limit("files_at_once", "4", "Send, and fetch, at most so many files at the same time."),
    limit("files_at_once_of_project", "1", "The same of one project."),
    limit("report_at_once", "true", "Report each job at once when it is done."),
    limit("buffer_min", "\"0.1 days\"", "Keep at most this much work ready."),
    limit("buffer_additional", "\"0.25 days\"", "And at most this much more."),
    wish("scheduling_period", "Switch between projects about this often."),
    wish("connection_interval", "The least time between contacts with projects."),
];

/// What a preference is.
#[must_use]
pub fn explain(key: &str) -> Option<Explained> {
    ALL.iter().find(|one| one.key == key).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KEYS, OWNER_KEYS};

    #[test]
    fn r6_4_every_preference_is_explained_and_every_limit_has_an_example() {
        let all: Vec<_> = ALL.iter().map(|one| one.key).collect();
        assert_eq!(all, KEYS);
        let limits: Vec<_> = ALL.iter().filter(|one| one.example.is_some()).map(|one| one.key).collect();
        assert_eq!(limits, OWNER_KEYS);
        assert!(ALL.iter().flat_map(|one| one.text.lines()).all(|line| line.len() <= 76));
    }
}
