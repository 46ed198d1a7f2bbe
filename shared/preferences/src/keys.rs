//! The list of all preferences: key, type, where it is kept, and which of two values is the tighter one.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use fallow_config::{Fields, Walk, write_duration};
use fallow_domain::{
    Bytes, Device, Duration, Fraction, GpuExclusion, Hours, Invalid, MasterUrl, OwnerLimits, Preferences,
    RequiredLayer,
};

use crate::merge::{Entry, Source, Trail};
use crate::tighter;

/// The values of all preferences.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values {
    /// As a coordinator's document has them.
    pub fleet: Preferences,
}

/// Makes the types from the list, so that none can be left out anywhere.
macro_rules! preferences {
    ($($field:ident: $kind:ty, $($part:ident).+, $tighter:ident;)*) => {
        /// The keys of all preferences, as files and `--json` have them.
        pub const KEYS: &[&str] = &[$(stringify!($field)),*];

        /// What a source says: some of the preferences.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Said {
            $(
                #[allow(missing_docs, reason = "as in `Preferences`")]
                pub $field: Option<$kind>,
            )*
            /// The lines of a file in which keys stand, from 1.
            pub lines: BTreeMap<&'static str, usize>,
        }

        impl Said {
            /// All of a document's preferences.
            #[must_use]
            pub fn all_of(values: &Values) -> Self {
                Self { $($field: Some(values.$($part).+.$field.clone()),)* lines: BTreeMap::new() }
            }

            /// All that a coordinator's document says. Days without a most that is transferred in them say
            /// nothing: an owner's most in a day is no most in a month.
            #[must_use]
            pub fn of_document(preferences: &Preferences) -> Self {
                let said = Self::all_of(&Values { fleet: preferences.clone() });
                let is_limited = preferences.local.transfer_max.is_some();
                Self { transfer_period: said.transfer_period.filter(|_| is_limited), ..said }
            }

            /// What an owner's commands say.
            #[must_use]
            pub fn of_owner(limits: &OwnerLimits) -> Self {
                // By name, so that no limit is forgotten.
                let OwnerLimits {
                    suspended,
                    cpu_fraction,
                    cpu_time_fraction,
                    memory_fraction,
                    disk_fraction,
                    excluded_devices,
                } = limits;
                Self {
                    suspended: suspended.then_some(true),
                    cpu_fraction: *cpu_fraction,
                    cpu_time_fraction: *cpu_time_fraction,
                    memory_fraction: *memory_fraction,
                    disk_fraction: *disk_fraction,
                    excluded_devices: (!excluded_devices.is_empty()).then(|| excluded_devices.clone()),
                    ..Self::default()
                }
            }

            /// Whether it says nothing.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                *self == Self { lines: self.lines.clone(), ..Self::default() }
            }

            /// Takes the keys that a table holds; what is wrong with them is noted.
            pub(crate) fn read(walk: &mut Walk<'_>, fields: &Fields<'_, '_>) -> Self {
                let mut said = Self::default();
                $(
                    if let Some(value) = walk.get::<$kind>(fields, stringify!($field)) {
                        let mut values = Values::default();
                        values.$($part).+.$field = value.clone();
                        match values.check() {
                            Ok(()) => {
                                let line = walk.line(stringify!($field)).unwrap_or(0);
                                said.lines.insert(stringify!($field), line);
                                said.$field = Some(value);
                            }
                            Err(wrong) => walk.error(
                                stringify!($field),
                                wrong.problem(),
                                wrong.expected,
                            ),
                        }
                    }
                )*
                said
            }
        }

        /// Goes through the sources in their order.
        pub(crate) fn merge(sources: &[Source]) -> (Values, Vec<Entry>) {
            let (mut values, mut entries) = (Values::default(), Vec::new());
            $({
                let mut trail = Trail::new(stringify!($field), values.$($part).+.$field.clone());
                for source in sources {
                    if let Some(said) = &source.said.$field {
                        trail.hear(source, said, tighter::$tighter);
                    }
                }
                values.$($part).+.$field = trail.value().clone();
                entries.push(trail.end());
            })*
            (values, entries)
        }
    };
}

preferences! {
    suspended: bool, fleet, on;
    required_layers: BTreeSet<RequiredLayer>, fleet, all_of_both;
    jobs_network: Option<BTreeSet<MasterUrl>>, fleet, those_of_both;
    hours: Hours, fleet, in_both;
    run_in_use: bool, fleet, off;
    run_gpu_in_use: bool, fleet, off;
    idle_after: Duration, fleet, more;
    stop_without_input: Option<Duration>, fleet.local, less_if_any;
    run_on_batteries: bool, fleet.local, off;
    battery_charge_min: Option<Fraction>, fleet.local, more_if_any;
    battery_temperature_max: Option<NonZeroU32>, fleet.local, less_if_any;
    exclusive_programs: BTreeSet<String>, fleet.local, all_of_both;
    exclusive_gpu_programs: BTreeSet<String>, fleet.local, all_of_both;
    start_delay: Duration, fleet.local, more;
    other_load_max: Option<Fraction>, fleet.local, less_if_any;
    other_load_max_in_use: Option<Fraction>, fleet.local, less_if_any;
    cpus_max: Option<NonZeroU32>, fleet.local, less_if_any;
    cpu_fraction: Fraction, fleet, less;
    cpu_fraction_in_use: Fraction, fleet.local, less;
    cpu_time_fraction: Fraction, fleet, less;
    cpu_time_fraction_in_use: Fraction, fleet.local, less;
    memory_fraction: Fraction, fleet, less;
    memory_fraction_in_use: Fraction, fleet.local, less;
    swap_fraction: Fraction, fleet.local, less;
    leave_in_memory: bool, fleet, off;
    use_gpus: bool, fleet.local, off;
    excluded_devices: BTreeSet<Device>, fleet, all_of_both;
    excluded_of_projects: BTreeSet<GpuExclusion>, fleet.local, all_of_both;
    gpu_temperature_max: Option<NonZeroU32>, fleet.local, less_if_any;
    disk_fraction: Fraction, fleet, less;
    disk_max: Option<Bytes>, fleet.local, less_if_any;
    disk_free_min: Bytes, fleet, more;
    checkpoint_period: Duration, fleet, more;
    network_hours: Hours, fleet.local, in_both;
    network_wifi_only: bool, fleet.local, on;
    other_network_max: Option<Bytes>, fleet.local, less_if_any;
    upload_max: Option<Bytes>, fleet.local, less_if_any;
    download_max: Option<Bytes>, fleet.local, less_if_any;
    transfer_max: Option<Bytes>, fleet.local, less_if_any;
    transfer_period: Duration, fleet.local, more;
    files_at_once: NonZeroU32, fleet.local, less;
    files_at_once_of_project: NonZeroU32, fleet.local, less;
    report_at_once: bool, fleet.local, on;
    buffer_min: Duration, fleet, less;
    buffer_additional: Duration, fleet, less;
    scheduling_period: Duration, fleet, neither;
    connection_interval: Duration, fleet, neither;
}

/// The keys that an owner's file may have: all that limit something.
pub const OWNER_KEYS: &[&str] = &[
    "suspended",
    "required_layers",
    "jobs_network",
    "hours",
    "run_in_use",
    "run_gpu_in_use",
    "idle_after",
    "stop_without_input",
    "run_on_batteries",
    "battery_charge_min",
    "battery_temperature_max",
    "exclusive_programs",
    "exclusive_gpu_programs",
    "start_delay",
    "other_load_max",
    "other_load_max_in_use",
    "cpus_max",
    "cpu_fraction",
    "cpu_fraction_in_use",
    "cpu_time_fraction",
    "cpu_time_fraction_in_use",
    "memory_fraction",
    "memory_fraction_in_use",
    "swap_fraction",
    "leave_in_memory",
    "use_gpus",
    "excluded_devices",
    "excluded_of_projects",
    "gpu_temperature_max",
    "disk_fraction",
    "disk_max",
    "disk_free_min",
    "checkpoint_period",
    "network_hours",
    "network_wifi_only",
    "other_network_max",
    "upload_max",
    "download_max",
    "transfer_max",
    "transfer_period",
    "files_at_once",
    "files_at_once_of_project",
    "report_at_once",
    "buffer_min",
    "buffer_additional",
];

impl Values {
    /// Refuses values that nobody can have meant.
    ///
    /// # Errors
    /// [`Invalid`] for the first of them.
    pub fn check(&self) -> Result<(), Invalid> {
        self.fleet.check_set()
    }

    /// What values that can be meant each by itself come to together, where nobody can have meant that: a
    /// line for each.
    #[must_use]
    pub fn cautions(&self) -> Vec<String> {
        let fleet = &self.fleet;
        let mut found = Vec::new();
        if let Some(stop) = fleet.stops_before_it_begins() {
            found.push(format!(
                "this machine would never compute: it stops after {} without input (stop_without_input), and begins after {} \
                 (idle_after): make stop_without_input the longer one (neither counts where nobody ever sits: --never-in-use)",
                write_duration(stop),
                write_duration(fleet.idle_after)
            ));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use fallow_domain::LocalPreferences;

    use super::*;

    #[test]
    fn r6_4_a_machine_that_would_never_compute_is_warned_of() {
        let of = |stop: i64, idle: i64, run_in_use| {
            let mut values = Values::default();
            values.fleet.local.stop_without_input = Some(Duration::from_mins(stop));
            values.fleet.idle_after = Duration::from_mins(idle);
            values.fleet.run_in_use = run_in_use;
            values.cautions()
        };
        let said = of(10, 15, false);
        assert!(
            said.len() == 1 && said[0].contains("10 min without input") && said[0].contains("15 min"),
            "{said:?}"
        );
        assert!(of(20, 15, false).is_empty() && of(10, 15, true).is_empty());
        assert!(Values::default().cautions().is_empty());
    }

    #[test]
    fn r6_4_every_preference_of_a_document_and_of_the_host_is_in_the_list() {
        // By name, so that whoever adds one says here that it has a key.
        let Preferences {
            cpu_fraction: _,
            cpu_time_fraction: _,
            buffer_min: _,
            buffer_additional: _,
            scheduling_period: _,
            checkpoint_period: _,
            leave_in_memory: _,
            suspended: _,
            memory_fraction: _,
            disk_fraction: _,
            disk_free_min: _,
            connection_interval: _,
            excluded_devices: _,
            hours: _,
            run_in_use: _,
            run_gpu_in_use: _,
            idle_after: _,
            required_layers: _,
            jobs_network: _,
            local: _,
        } = Preferences::default();
        let LocalPreferences {
            cpu_fraction_in_use: _,
            cpu_time_fraction_in_use: _,
            memory_fraction_in_use: _,
            swap_fraction: _,
            cpus_max: _,
            gpu_temperature_max: _,
            run_on_batteries: _,
            battery_charge_min: _,
            battery_temperature_max: _,
            other_load_max: _,
            other_load_max_in_use: _,
            exclusive_programs: _,
            exclusive_gpu_programs: _,
            start_delay: _,
            use_gpus: _,
            excluded_of_projects: _,
            stop_without_input: _,
            disk_max: _,
            network_hours: _,
            network_wifi_only: _,
            other_network_max: _,
            upload_max: _,
            download_max: _,
            transfer_max: _,
            transfer_period: _,
            files_at_once: _,
            files_at_once_of_project: _,
            report_at_once: _,
        } = LocalPreferences::default();
        assert_eq!(KEYS.len(), 19 + 28);
        let beside: Vec<_> = KEYS.iter().filter(|key| !OWNER_KEYS.contains(key)).collect();
        assert_eq!(beside, [&"scheduling_period", &"connection_interval"]);
    }

    #[test]
    fn r6_4_days_of_a_document_without_a_most_make_an_owners_most_no_tighter() {
        let days = |days: i64| Duration::from_hours(24 * days);
        let in_force = |document_max: Option<Bytes>| {
            let local = LocalPreferences {
                transfer_max: document_max,
                transfer_period: days(30),
                ..LocalPreferences::default()
            };
            let document = Preferences { local, ..Preferences::default() };
            let owner = Said { transfer_max: Some(Some(Bytes(1_000_000_000))), ..Said::default() };
            let version = fallow_domain::DocumentVersion(1);
            let sources = [
                Source::says(crate::Origin::Document(version), Said::of_document(&document)),
                Source::limits(crate::Origin::OwnerFile, owner),
            ];
            let local = crate::in_force(&sources).values.fleet.local;
            (local.transfer_max, local.transfer_period)
        };
        let most = Some(Bytes(1_000_000_000));
        assert_eq!(in_force(None), (most, days(1)));
        assert_eq!(in_force(Some(Bytes(9_000_000_000))), (most, days(30)));
    }

    #[test]
    fn r6_4_what_all_of_them_say_is_what_is_in_force() {
        let local = LocalPreferences { disk_max: Some(Bytes(7)), ..LocalPreferences::default() };
        let fleet = Preferences { run_in_use: true, suspended: true, local, ..Preferences::default() };
        let values = Values { fleet };
        let source = Source::says(crate::Origin::Override, Said::all_of(&values));
        assert_eq!(crate::in_force(&[source]).values, values);
    }
}
