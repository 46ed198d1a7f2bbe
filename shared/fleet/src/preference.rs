//! One preference with its value: what a group may say of a host, key by key.

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU32;

use fallow_config::{Fields, Shown, Walk};
use fallow_domain::{
    Bytes, Device, Duration, Fraction, GpuExclusion, Hours, Invalid, LocalPreferences, MasterUrl,
    Preferences, RequiredLayer,
};
use serde::{Deserialize, Serialize};

/// Makes the type of the list of preferences, so that none can be left out anywhere. Those of the second part
/// are in [`Preferences::local`].
macro_rules! preferences {
    (
        always { $($(#[$doc:meta])* $variant:ident $field:ident $kind:ty;)* }
        local { $($(#[$local_doc:meta])* $local_variant:ident $local:ident $local_kind:ty;)* }
    ) => {
        /// One preference with its value, as [`Preferences`] has it.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Preference {
            $($(#[$doc])* $variant($kind),)*
            $($(#[$local_doc])* $local_variant($local_kind),)*
        }

        /// The keys of all preferences, as files and `--json` have them.
        pub const PREFERENCE_KEYS: &[&str] = &[$(stringify!($field),)* $(stringify!($local)),*];

        impl Preference {
            /// Its key, such as `cpu_fraction`.
            #[must_use]
            pub fn key(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => stringify!($field),)*
                    $(Self::$local_variant(_) => stringify!($local),)*
                }
            }

            /// Each of these preferences.
            #[must_use]
            pub fn all_of(preferences: &Preferences) -> Vec<Self> {
                let Preferences { local: LocalPreferences { $($local),* }, $($field),* } = preferences.clone();
                vec![$(Self::$variant($field),)* $(Self::$local_variant($local)),*]
            }

            /// Sets it among all preferences.
            pub fn put_in(self, preferences: &mut Preferences) {
                match self {
                    $(Self::$variant(value) => preferences.$field = value,)*
                    $(Self::$local_variant(value) => preferences.local.$local = value,)*
                }
            }

            /// The preference under a key of a file, if it is there; what is wrong with it is noted.
            pub(crate) fn read(walk: &mut Walk<'_>, fields: &Fields<'_, '_>, key: &str) -> Option<Self> {
                match key {
                    $(stringify!($field) => walk.get(fields, key).map(Self::$variant),)*
                    $(stringify!($local) => walk.get(fields, key).map(Self::$local_variant),)*
                    _ => None,
                }
            }

            fn value(&self) -> String {
                match self {
                    $(Self::$variant(value) => value.shown(),)*
                    $(Self::$local_variant(value) => value.shown(),)*
                }
            }
        }
    };
}

preferences! {
    always {
        /// Part of the CPUs that may be used.
        CpuFraction cpu_fraction Fraction;
        /// Part of each second that a CPU job may run.
        CpuTimeFraction cpu_time_fraction Fraction;
        /// Keep at least this much work.
        BufferMin buffer_min Duration;
        /// And up to this much more.
        BufferAdditional buffer_additional Duration;
        /// Switch between projects about this often.
        SchedulingPeriod scheduling_period Duration;
        /// Ask jobs to checkpoint at most this often.
        CheckpointPeriod checkpoint_period Duration;
        /// Keep preempted tasks in memory.
        LeaveInMemory leave_in_memory bool;
        /// No computing at all.
        Suspended suspended bool;
        /// Part of the memory that jobs may use.
        MemoryFraction memory_fraction Fraction;
        /// Part of the disk that may be used.
        DiskFraction disk_fraction Fraction;
        /// Free space to leave on the disk.
        DiskFreeMin disk_free_min Bytes;
        /// Minimum time between periods of network activity.
        ConnectionInterval connection_interval Duration;
        /// Devices that must not be used, all of them: a list replaces a list.
        ExcludedDevices excluded_devices BTreeSet<Device>;
        /// When hosts may compute.
        Hours hours Hours;
        /// Compute also while somebody uses the host.
        RunInUse run_in_use bool;
        /// Use GPUs also then.
        RunGpuInUse run_gpu_in_use bool;
        /// So long after the last input nobody uses the host any more.
        IdleAfter idle_after Duration;
        /// Layers of confinement without which nothing is computed, all of them: a list replaces a list.
        RequiredLayers required_layers BTreeSet<RequiredLayer>;
        /// Projects whose jobs may have the network, all of them: a list replaces a list. None: all projects.
        JobsNetwork jobs_network Option<BTreeSet<MasterUrl>>;
    }
    local {
        /// Part of the CPUs while somebody uses the host.
        CpuFractionInUse cpu_fraction_in_use Fraction;
        /// Part of each second that a CPU job may run then.
        CpuTimeFractionInUse cpu_time_fraction_in_use Fraction;
        /// Part of the memory that jobs may use then.
        MemoryFractionInUse memory_fraction_in_use Fraction;
        /// Part of the swap space that jobs may hold.
        SwapFraction swap_fraction Fraction;
        /// The most CPUs that jobs may use.
        CpusMax cpus_max Option<NonZeroU32>;
        /// No computing on a device that is hotter, in degrees Celsius.
        GpuTemperatureMax gpu_temperature_max Option<NonZeroU32>;
        /// Compute on GPUs at all.
        UseGpus use_gpus bool;
        /// Devices that jobs of single projects leave alone, all of them: a list replaces a list.
        ExcludedOfProjects excluded_of_projects BTreeSet<GpuExclusion>;
        /// Compute while the host runs on its battery.
        RunOnBatteries run_on_batteries bool;
        /// No computing while the battery is charged to less.
        BatteryChargeMin battery_charge_min Option<Fraction>;
        /// No computing while the battery is hotter, in degrees Celsius.
        BatteryTemperatureMax battery_temperature_max Option<NonZeroU32>;
        /// No computing while other programs use more than this part of all CPUs.
        OtherLoadMax other_load_max Option<Fraction>;
        /// The same while somebody uses the host.
        OtherLoadMaxInUse other_load_max_in_use Option<Fraction>;
        /// No computing while one of these programs runs, all of them: a list replaces a list.
        ExclusivePrograms exclusive_programs BTreeSet<String>;
        /// No computing on GPUs while one of these runs, likewise.
        ExclusiveGpuPrograms exclusive_gpu_programs BTreeSet<String>;
        /// No computing for so long after the agent was started.
        StartDelay start_delay Duration;
        /// No computing after so long without input.
        StopWithoutInput stop_without_input Option<Duration>;
        /// The most of the disk that may be used.
        DiskMax disk_max Option<Bytes>;
        /// When projects may be contacted.
        NetworkHours network_hours Hours;
        /// Contact projects and transfer files only on WiFi.
        NetworkWifiOnly network_wifi_only bool;
        /// No files while other programs move more than this over the network in a second.
        OtherNetworkMax other_network_max Option<Bytes>;
        /// The most that is sent to projects in a second.
        UploadMax upload_max Option<Bytes>;
        /// The most that is fetched from them in a second.
        DownloadMax download_max Option<Bytes>;
        /// The most that files may come to in the last days.
        TransferMax transfer_max Option<Bytes>;
        /// How many days these are.
        TransferPeriod transfer_period Duration;
        /// How many files are sent, and how many fetched, at once.
        FilesAtOnce files_at_once NonZeroU32;
        /// The same of one project.
        FilesAtOnceOfProject files_at_once_of_project NonZeroU32;
        /// Report finished jobs at once.
        ReportAtOnce report_at_once bool;
    }
}

impl Preference {
    /// Refuses a value that no operator can have meant.
    ///
    /// # Errors
    /// [`Invalid`] as [`Preferences::check_document`] says it.
    pub fn check(&self) -> Result<(), Invalid> {
        let mut preferences = Preferences::default();
        self.clone().put_in(&mut preferences);
        preferences.check_document()
    }
}

/// Its value, for people.
impl fmt::Display for Preference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self {
            Self::JobsNetwork(None) => return f.write_str("all"),
            Self::UploadMax(Some(_)) | Self::DownloadMax(Some(_)) | Self::OtherNetworkMax(Some(_)) => {
                " a second"
            }
            Self::GpuTemperatureMax(Some(_)) | Self::BatteryTemperatureMax(Some(_)) => " °C",
            _ => "",
        };
        write!(f, "{}{unit}", self.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_4_all_preferences_put_together_are_the_preferences() {
        let given = Preferences {
            cpu_fraction: Fraction::clamped(0.5),
            suspended: true,
            excluded_devices: ["nvidia:0".parse().unwrap()].into(),
            required_layers: ["files".parse().unwrap()].into(),
            jobs_network: Some([MasterUrl::parse("http://example.org/a/").unwrap()].into()),
            ..Preferences::default()
        };
        let mut built = Preferences::default();
        let all = Preference::all_of(&given);
        assert_eq!(all.iter().map(Preference::key).collect::<Vec<_>>(), PREFERENCE_KEYS);
        all.into_iter().for_each(|one| one.put_in(&mut built));
        assert_eq!(built, given);
    }

    #[test]
    fn r6_4_a_preference_that_nobody_can_mean_is_refused() {
        assert!(Preference::BufferMin(Duration::from_hours(24 * 365)).check().is_err());
        assert!(Preference::CpuFraction(Fraction::ZERO).check().is_err());
        assert!(Preference::CpuFraction(Fraction::ONE).check().is_ok());
        let count = |count| NonZeroU32::new(count).unwrap();
        for (all, of_project, is_good) in [(8, 2, true), (50, 3, false)] {
            assert_eq!(Preference::FilesAtOnce(count(all)).check().is_ok(), is_good);
            assert_eq!(Preference::FilesAtOnceOfProject(count(of_project)).check().is_ok(), is_good);
        }
    }
}
