//! One preference with its value: what a group may say of a host, key by key.

use std::collections::BTreeSet;
use std::fmt;

use fallow_config::{Fields, Walk, show_bytes, show_duration, show_fraction};
use fallow_domain::{
    Bytes, Device, Duration, Fraction, Hours, Invalid, MasterUrl, Preferences, RequiredLayer,
};
use serde::{Deserialize, Serialize};

/// Makes the type of the list of preferences, so that none can be left out anywhere.
macro_rules! preferences {
    ($($(#[$doc:meta])* $variant:ident $field:ident $kind:ty;)*) => {
        /// One preference with its value, as [`Preferences`] has it.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Preference {
            $($(#[$doc])* $variant($kind),)*
        }

        /// The keys of all preferences, as files and `--json` have them.
        pub const PREFERENCE_KEYS: &[&str] = &[$(stringify!($field)),*];

        impl Preference {
            /// Its key, such as `cpu_fraction`.
            #[must_use]
            pub fn key(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => stringify!($field),)*
                }
            }

            /// Each of these preferences.
            #[must_use]
            pub fn all_of(preferences: &Preferences) -> Vec<Self> {
                let Preferences { $($field),* } = preferences.clone();
                vec![$(Self::$variant($field)),*]
            }

            /// Sets it among all preferences.
            pub fn put_in(self, preferences: &mut Preferences) {
                match self {
                    $(Self::$variant(value) => preferences.$field = value,)*
                }
            }

            /// The preference under a key of a file, if it is there; what is wrong with it is noted.
            pub(crate) fn read(walk: &mut Walk<'_>, fields: &Fields<'_, '_>, key: &str) -> Option<Self> {
                match key {
                    $(stringify!($field) => walk.get(fields, key).map(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

preferences! {
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

impl Preference {
    /// Refuses a value that no operator can have meant.
    ///
    /// # Errors
    /// [`Invalid`] as [`Preferences::check_set`] says it.
    pub fn check(&self) -> Result<(), Invalid> {
        let mut preferences = Preferences::default();
        self.clone().put_in(&mut preferences);
        preferences.check_set()
    }
}

/// Its value, for people.
impl fmt::Display for Preference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CpuFraction(part)
            | Self::CpuTimeFraction(part)
            | Self::MemoryFraction(part)
            | Self::DiskFraction(part) => f.write_str(&show_fraction(*part)),
            Self::BufferMin(time)
            | Self::BufferAdditional(time)
            | Self::SchedulingPeriod(time)
            | Self::CheckpointPeriod(time)
            | Self::ConnectionInterval(time)
            | Self::IdleAfter(time) => f.write_str(&show_duration(*time)),
            Self::LeaveInMemory(yes)
            | Self::Suspended(yes)
            | Self::RunInUse(yes)
            | Self::RunGpuInUse(yes) => write!(f, "{yes}"),
            Self::DiskFreeMin(bytes) => f.write_str(&show_bytes(*bytes)),
            Self::ExcludedDevices(devices) => f.write_str(&Device::list(devices)),
            Self::RequiredLayers(layers) => f.write_str(&RequiredLayer::list(layers)),
            Self::JobsNetwork(None) => f.write_str("all"),
            Self::JobsNetwork(Some(projects)) if projects.is_empty() => f.write_str("none"),
            Self::JobsNetwork(Some(projects)) => {
                f.write_str(&projects.iter().map(MasterUrl::as_str).collect::<Vec<_>>().join(", "))
            }
            Self::Hours(hours) => write!(f, "{hours}"),
        }
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
    }
}
