//! Options of `fallow preferences set` for what goes on in and around hosts: people, batteries, other
//! programs, the network. One list makes them, what they set, and what `--json` shows.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use clap::Args;
use fallow_domain::{Bytes, Duration, Fraction, GpuExclusion, Hours, LocalPreferences};
use serde_json::{Map, Value, json};

use super::units::{self, ArgumentError};

/// A value that was given. Clap would take a bare option of an option for one that may go without a value.
#[derive(Clone, Debug)]
struct Given<T>(T);

fn given<T: Word>(text: &str) -> Result<Given<T>, ArgumentError> {
    T::read(text).map(Given)
}

/// A kind of value, as it is written on the command line and in JSON.
trait Word: Clone + Send + Sync + 'static {
    /// What its key in JSON ends in.
    const UNIT: &'static str = "";
    /// What stands for it in help.
    const NAME: &'static str;

    fn read(text: &str) -> Result<Self, ArgumentError>;

    fn json(&self) -> Value;
}

impl Word for bool {
    const NAME: &'static str = "true|false";

    fn read(text: &str) -> Result<Self, ArgumentError> {
        text.parse().map_err(|_| "expected true or false".into())
    }

    fn json(&self) -> Value {
        json!(self)
    }
}

impl Word for Fraction {
    const NAME: &'static str = "PART";

    fn read(text: &str) -> Result<Self, ArgumentError> {
        units::fraction(text)
    }

    fn json(&self) -> Value {
        json!(self.get())
    }
}

impl Word for NonZeroU32 {
    const NAME: &'static str = "NUMBER";

    fn read(text: &str) -> Result<Self, ArgumentError> {
        text.parse().map_err(|_| "expected a whole number of 1 or more".into())
    }

    fn json(&self) -> Value {
        json!(self)
    }
}

impl Word for Duration {
    const UNIT: &'static str = "_seconds";
    const NAME: &'static str = "TIME";

    fn read(text: &str) -> Result<Self, ArgumentError> {
        units::time(text).map_err(Into::into)
    }

    fn json(&self) -> Value {
        json!(self.as_secs_f64())
    }
}

impl Word for Bytes {
    const UNIT: &'static str = "_bytes";
    const NAME: &'static str = "SIZE";

    fn read(text: &str) -> Result<Self, ArgumentError> {
        units::size(text).map(Self).map_err(Into::into)
    }

    fn json(&self) -> Value {
        json!(self.0)
    }
}

impl Word for Hours {
    const NAME: &'static str = "HOURS";

    fn read(text: &str) -> Result<Self, ArgumentError> {
        text.parse().map_err(Into::into)
    }

    fn json(&self) -> Value {
        json!(self)
    }
}

/// Names of programs, parted by commas: a name may have blanks.
impl Word for BTreeSet<String> {
    const NAME: &'static str = "NAMES";

    fn read(text: &str) -> Result<Self, ArgumentError> {
        Ok(parted(text)?.into_iter().map(str::to_owned).collect())
    }

    fn json(&self) -> Value {
        json!(self)
    }
}

impl Word for BTreeSet<GpuExclusion> {
    const NAME: &'static str = "DEVICES";

    fn read(text: &str) -> Result<Self, ArgumentError> {
        let all = parted(text)?.into_iter().map(str::parse);
        let all: Result<_, fallow_domain::Invalid> = all.collect();
        all.map_err(|error| {
            format!("{error}; a project and a device are written as \"https://example.org/p/ nvidia:0\"")
                .into()
        })
    }

    fn json(&self) -> Value {
        json!(self)
    }
}

/// Nothing is no limit.
impl<T: Word> Word for Option<T> {
    const UNIT: &'static str = T::UNIT;
    const NAME: &'static str = T::NAME;

    fn read(text: &str) -> Result<Self, ArgumentError> {
        // As in tables and in files, too.
        if ["none", "no limit"].contains(&text) {
            return Ok(None);
        }
        T::read(text).map(Some).map_err(|error| format!("{error}; or none, for no limit").into())
    }

    fn json(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::json)
    }
}

/// What commas part; `none` alone is nothing, and beside others it is a slip.
fn parted(text: &str) -> Result<Vec<&str>, ArgumentError> {
    let parts: Vec<&str> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        [] => Err("expected one or more, parted by commas, or none".into()),
        ["none" | "no limit"] => Ok(Vec::new()),
        several if several.contains(&"none") => Err("expected none alone, or a list without it".into()),
        _ => Ok(parts),
    }
}

macro_rules! options {
    ($($(#[$help:meta])+ $field:ident: $kind:ty;)*) => {
        #[derive(Args, Debug)]
        pub(super) struct LocalChanges {
            $(
                $(#[$help])+
                #[arg(long, value_parser = given::<$kind>, value_name = <$kind as Word>::NAME)]
                $field: Option<Given<$kind>>,
            )*
        }

        impl LocalChanges {
            pub(super) fn is_empty(&self) -> bool {
                let Self { $($field),* } = self;
                $($field.is_none())&&*
            }

            pub(super) fn apply(&self, to: &LocalPreferences) -> LocalPreferences {
                // All of them, so that none is without an option.
                LocalPreferences {
                    $($field: match &self.$field {
                        Some(Given(value)) => value.clone(),
                        None => to.$field.clone(),
                    },)*
                }
            }
        }

        /// Puts them beside others.
        pub(super) fn add_json(local: &LocalPreferences, to: &mut Map<String, Value>) {
            let LocalPreferences { $($field),* } = local;
            $(to.insert(format!("{}{}", stringify!($field), <$kind as Word>::UNIT), $field.json());)*
        }
    };
}

options! {
    /// Part of the CPUs while somebody uses the host, where --run-in-use is true; the smaller part holds.
    cpu_fraction_in_use: Fraction;
    /// Part of each second that jobs may run then.
    cpu_time_fraction_in_use: Fraction;
    /// Part of the memory that jobs may use then.
    memory_fraction_in_use: Fraction;
    /// Part of the swap space that jobs may hold.
    swap_fraction: Fraction;
    /// The most CPUs that jobs may use, whatever part of all they are; or none.
    cpus_max: Option<NonZeroU32>;
    /// Leave GPUs alone that are hotter than so many degrees Celsius, from 30 to 110; or none.
    gpu_temperature_max: Option<NonZeroU32>;
    /// Use GPUs at all.
    use_gpus: bool;
    /// GPUs on which jobs of a project do not run, all of them, such as "https://example.org/p/ nvidia:0"; or
    /// none.
    excluded_of_projects: BTreeSet<GpuExclusion>;
    /// Compute while a host runs on its battery.
    run_on_batteries: bool;
    /// No computing while the battery is charged to less, such as 50%; or none.
    battery_charge_min: Option<Fraction>;
    /// No computing while the battery is hotter than so many degrees Celsius, from 20 to 100; or none.
    battery_temperature_max: Option<NonZeroU32>;
    /// No computing while other programs use more than this part of all CPUs; or none.
    other_load_max: Option<Fraction>;
    /// The same while somebody uses the host.
    other_load_max_in_use: Option<Fraction>;
    /// No computing while one of these programs runs, all of them by the names of their files, such as
    /// blender,matlab; or none.
    exclusive_programs: BTreeSet<String>;
    /// No computing on GPUs while one of these runs.
    exclusive_gpu_programs: BTreeSet<String>;
    /// No computing for so long after a host's agent was started.
    start_delay: Duration;
    /// No computing after so long without input, so that a host can go to sleep; or none.
    stop_without_input: Option<Duration>;
    /// The most of the disk that may be used, such as 20GiB; or none.
    disk_max: Option<Bytes>;
    /// When hosts may contact projects, by their own clocks; or always. The coordinator is reached at any
    /// hour.
    network_hours: Hours;
    /// Contact projects and transfer files only on WiFi.
    network_wifi_only: bool;
    /// No files while other programs move more than this over the network in a second; or none.
    other_network_max: Option<Bytes>;
    /// The most that a host sends to projects in a second, such as 100kB; or none.
    upload_max: Option<Bytes>;
    /// The most that it fetches from them in a second; or none.
    download_max: Option<Bytes>;
    /// The most that its files may come to in the last days, both ways together; or none.
    transfer_max: Option<Bytes>;
    /// How many days these are, such as 30days.
    transfer_period: Duration;
    /// How many files a host sends, and how many it fetches, at once; at most 8 of them are.
    files_at_once: NonZeroU32;
    /// The same of one project; at most 2 of them are.
    files_at_once_of_project: NonZeroU32;
    /// Report each job at once when it is done.
    report_at_once: bool;
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use fallow_domain::Preferences;
    use fallow_fleet::PREFERENCE_KEYS;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        changes: LocalChanges,
    }

    fn read(words: &[&str]) -> Result<LocalChanges, clap::Error> {
        Line::try_parse_from([&["set"][..], words].concat()).map(|line| line.changes)
    }

    /// For each a value that is not the default, and the same in JSON.
    const WORDS: &[(&str, &str, &str)] = &[
        ("--cpu-fraction-in-use", "25%", "0.25"),
        ("--cpu-time-fraction-in-use", "30%", "0.3"),
        ("--memory-fraction-in-use", "0.5", "0.5"),
        ("--swap-fraction", "40%", "0.4"),
        ("--cpus-max", "2", "2"),
        ("--gpu-temperature-max", "75", "75"),
        ("--use-gpus", "false", "false"),
        (
            "--excluded-of-projects",
            "https://example.org/p/ nvidia:0",
            "[\"https://example.org/p/ nvidia:0\"]",
        ),
        ("--run-on-batteries", "true", "true"),
        ("--battery-charge-min", "50%", "0.5"),
        ("--battery-temperature-max", "45", "45"),
        ("--other-load-max", "50%", "0.5"),
        ("--other-load-max-in-use", "25%", "0.25"),
        ("--exclusive-programs", "matlab, blender", "[\"blender\",\"matlab\"]"),
        ("--exclusive-gpu-programs", "blender", "[\"blender\"]"),
        ("--start-delay", "5m", "300.0"),
        ("--stop-without-input", "2h", "7200.0"),
        ("--disk-max", "20GB", "20000000000"),
        ("--network-hours", "22:00-06:00", "\"22:00-06:00\""),
        ("--network-wifi-only", "true", "true"),
        ("--other-network-max", "1MB", "1000000"),
        ("--upload-max", "100kB", "100000"),
        ("--download-max", "2MB", "2000000"),
        ("--transfer-max", "10GB", "10000000000"),
        ("--transfer-period", "30days", "2592000.0"),
        ("--files-at-once", "4", "4"),
        ("--files-at-once-of-project", "1", "1"),
        ("--report-at-once", "true", "true"),
    ];

    #[test]
    fn r6_4_every_preference_of_what_goes_on_around_a_host_is_set_by_an_option_and_shown() {
        let usual = LocalPreferences::default();
        let shown = |local: &LocalPreferences| {
            let mut all = Map::new();
            add_json(local, &mut all);
            all
        };
        let keys: Vec<String> =
            WORDS.iter().map(|(option, ..)| option.trim_start_matches('-').replace('-', "_")).collect();
        assert!(PREFERENCE_KEYS.ends_with(&keys.iter().map(String::as_str).collect::<Vec<_>>()), "{keys:?}");
        let before = shown(&usual);
        for ((option, value, expected), key) in WORDS.iter().zip(&keys) {
            let changes = read(&[option, value]).unwrap();
            assert!(!changes.is_empty());
            let local = changes.apply(&usual);
            assert_eq!(local.check_set(), Ok(()), "{option}");
            let after = shown(&local);
            let differing: Vec<_> = after.iter().filter(|(key, now)| before[*key] != **now).collect();
            let [(name, now)] = differing[..] else { panic!("{option}: {differing:?}") };
            let expected: Value = serde_json::from_str(expected).unwrap();
            assert!(name.starts_with(key.as_str()) && *now == expected, "{option}: {name} {now}");
            // What is not named stays as it is.
            assert_eq!(read(&[]).unwrap().apply(&local), local);
        }
        assert!(read(&[]).unwrap().is_empty());
        assert_eq!(Preferences::default().local, usual);
    }

    #[test]
    fn r6_4_limits_and_lists_are_taken_back_by_none_and_what_makes_no_sense_is_named_with_its_option() {
        let mut local = LocalPreferences { upload_max: Some(Bytes(5_000)), ..LocalPreferences::default() };
        local.exclusive_programs = ["blender".to_owned()].into();
        for none in ["none", "no limit"] {
            let none = read(&["--upload-max", none, "--exclusive-programs", none]).unwrap();
            assert_eq!(none.apply(&local), LocalPreferences::default());
        }
        for (option, bad, expected) in [
            ("--run-on-batteries", "yes", "true or false"),
            ("--upload-max", "100", "with its unit"),
            ("--upload-max", "unlimited", "or none, for no limit"),
            ("--cpus-max", "0", "whole number"),
            ("--battery-charge-min", "150%", "from 0 to 1"),
            ("--network-hours", "18-8", "18-8"),
            ("--start-delay", "soon", "90s"),
            ("--exclusive-programs", ",", "parted by commas"),
            ("--exclusive-programs", "blender,none", "none alone"),
            ("--excluded-of-projects", "gpu", "nvidia:0"),
        ] {
            let said = read(&[option, bad]).unwrap_err().to_string();
            assert!(said.contains(option) && said.contains(expected), "{said}");
        }
    }
}
