//! What a host may do, when and how much: limits, never wishes.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{
    Bytes, Device, Duration, Fraction, Hours, Invalid, LocalPreferences, MasterUrl, RequiredLayer,
    ResourceType,
};

/// The least part of CPUs, memory or disk that is set: one CPU of a thousand.
const FRACTION_MIN: f64 = 0.001;

/// Effective preferences. Each field names the BOINC element it becomes on the wire.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Preferences {
    /// Part of the CPUs that may be used, at least one (BOINC: `max_ncpus_pct`).
    pub cpu_fraction: Fraction,
    /// Part of each second that a CPU job may run, to keep a machine cool (BOINC: `cpu_usage_limit`).
    pub cpu_time_fraction: Fraction,
    /// Keep at least this much work (BOINC: `work_buf_min_days`).
    pub buffer_min: Duration,
    /// And up to this much more (BOINC: `work_buf_additional_days`).
    pub buffer_additional: Duration,
    /// Switch between projects about this often (BOINC: `cpu_scheduling_period_minutes`).
    pub scheduling_period: Duration,
    /// Ask jobs to checkpoint at most this often (BOINC: `disk_interval`).
    pub checkpoint_period: Duration,
    /// Keep preempted tasks in memory (BOINC: `leave_apps_in_memory`).
    pub leave_in_memory: bool,
    /// No computing at all.
    pub suspended: bool,
    /// Part of the memory that jobs may use (BOINC: `ram_max_used_idle_pct`).
    pub memory_fraction: Fraction,
    /// Part of the disk that may be used (BOINC: `disk_max_used_pct`).
    pub disk_fraction: Fraction,
    /// Free space to leave on the disk (BOINC: `disk_min_free_gb`).
    pub disk_free_min: Bytes,
    /// Minimum time between periods of network activity, 0 for always connected (R1.13).
    pub connection_interval: Duration,
    /// Devices that must not be used (R3.14; BOINC: `ignore_nvidia_dev` and its like in `cc_config.xml`).
    /// Those that the host does not have make no difference.
    #[serde(default)]
    pub excluded_devices: BTreeSet<Device>,
    /// When the host may compute (BOINC: `start_hour`, `end_hour` and `day_prefs`, which hold one stretch a
    /// day).
    #[serde(default, skip_serializing_if = "Hours::is_always")]
    pub hours: Hours,
    /// Compute also while somebody uses the host (BOINC: `run_if_user_active`, which BOINC has on).
    #[serde(default, skip_serializing_if = "is_false")]
    pub run_in_use: bool,
    /// Use GPUs also then, where computing goes on at all (BOINC: `run_gpu_if_user_active`).
    #[serde(default, skip_serializing_if = "is_false")]
    pub run_gpu_in_use: bool,
    /// So long after the last input nobody uses the host any more (BOINC: `idle_time_to_run`).
    #[serde(default = "idle_after", skip_serializing_if = "is_idle_after")]
    pub idle_after: Duration,
    /// Layers of confinement without which nothing is computed (R6.10). BOINC knows no such thing.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub required_layers: BTreeSet<RequiredLayer>,
    /// Projects whose jobs may have the network, where the owner's agent lets jobs have it and their
    /// application asks for it (R6.10); none: all projects. BOINC knows no such thing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs_network: Option<BTreeSet<MasterUrl>>,
    /// By what goes on in and around the host.
    #[serde(default, skip_serializing_if = "LocalPreferences::is_default")]
    pub local: LocalPreferences,
}

/// BOINC's default of `idle_time_to_run`.
const IDLE_AFTER: Duration = Duration::from_mins(3);

const fn idle_after() -> Duration {
    IDLE_AFTER
}

fn is_idle_after(time: &Duration) -> bool {
    *time == IDLE_AFTER
}

const fn is_false(yes: &bool) -> bool {
    !*yes
}

impl Default for Preferences {
    /// BOINC's defaults where it has them; R5.15's buffers. Other than BOINC's, a host rests while somebody
    /// uses it: its owner is not to notice what it does for others.
    fn default() -> Self {
        Self {
            cpu_fraction: Fraction::ONE,
            cpu_time_fraction: Fraction::ONE,
            buffer_min: Duration::from_days_f64(0.1),
            buffer_additional: Duration::from_days_f64(0.25),
            scheduling_period: Duration::from_mins(60),
            checkpoint_period: Duration::from_secs(60),
            leave_in_memory: false,
            suspended: false,
            memory_fraction: Fraction::clamped(0.9),
            disk_fraction: Fraction::clamped(0.9),
            disk_free_min: Bytes::from_mebibytes(1024),
            connection_interval: Duration::ZERO,
            excluded_devices: BTreeSet::new(),
            hours: Hours::default(),
            run_in_use: false,
            run_gpu_in_use: false,
            idle_after: IDLE_AFTER,
            required_layers: BTreeSet::new(),
            jobs_network: None,
            local: LocalPreferences::default(),
        }
    }
}

impl Preferences {
    /// Most projects that are named of those whose jobs may have the network.
    pub const NETWORK_PROJECTS_MAX: usize = 64;

    /// The CPUs that may be used out of `ncpus`: the fraction rounded down, at least one (R2.6).
    pub fn usable_cpus(&self, ncpus: u32) -> u32 {
        // A hair of tolerance, so that 1/3 of 3 CPUs is one CPU whatever the rounding of 1/3.
        ((f64::from(ncpus) * self.cpu_fraction.get() + 1e-6) as u32).clamp(1, ncpus.max(1))
    }

    /// Numbers of the devices of a type that must not be used (R3.14), rising.
    pub fn excluded(&self, kind: ResourceType) -> impl Iterator<Item = u32> {
        self.excluded_devices.iter().filter(move |device| device.kind() == kind).map(|device| device.number())
    }

    /// Refuses values that no operator can have meant.
    ///
    /// # Errors
    /// [`Invalid`] for the first field out of range.
    pub fn check(&self) -> Result<(), Invalid> {
        let month = Duration::from_secs(31 * 86_400);
        let within = |what, value: Duration, low: Duration, high: Duration, expected| {
            if value < low || value > high { Err(Invalid::new(what, value, expected)) } else { Ok(()) }
        };
        if self.cpu_fraction.get() <= 0.0 {
            return Err(Invalid::new(
                "fraction of CPUs",
                self.cpu_fraction,
                "above 0, up to 1; use suspended for none",
            ));
        }
        if self.cpu_time_fraction.get() < 0.01 {
            return Err(Invalid::new("CPU time limit", self.cpu_time_fraction, "from 0.01 to 1"));
        }
        within("minimum work buffer", self.buffer_min, Duration::ZERO, month, "from 0 to 31 days")?;
        within("additional work buffer", self.buffer_additional, Duration::ZERO, month, "from 0 to 31 days")?;
        within("connection interval", self.connection_interval, Duration::ZERO, month, "from 0 to 31 days")?;
        let second = Duration::from_secs(1);
        within("scheduling period", self.scheduling_period, second, month, "from 1 s to 31 days")?;
        within("checkpoint period", self.checkpoint_period, second, month, "from 1 s to 31 days")?;
        let (least, day) = (Duration::from_secs(10), Duration::from_hours(24));
        within("time until the host is idle", self.idle_after, least, day, "from 10 s to 24 h")?;
        self.local.check()
    }

    /// Checks ranges of preferences that somebody sets. Narrower than [`Preferences::check`] at the lower
    /// end, which takes what was set before these bounds were: a part that is not nothing and next to nothing
    /// is a slip.
    ///
    /// # Errors
    /// [`Invalid`] for the first field out of range.
    pub fn check_set(&self) -> Result<(), Invalid> {
        self.check()?;
        self.local.check_set()?;
        let projects = self.jobs_network.as_ref().map_or(0, BTreeSet::len);
        if projects > Self::NETWORK_PROJECTS_MAX {
            return Err(Invalid::new(
                "projects whose jobs may have the network",
                projects,
                "at most 64 of them",
            ));
        }
        for layer in &self.required_layers {
            layer.name().parse::<RequiredLayer>()?;
        }
        for (what, fraction) in [
            ("fraction of CPUs", self.cpu_fraction),
            ("fraction of the memory", self.memory_fraction),
            ("fraction of the disk", self.disk_fraction),
        ] {
            if fraction.get() < FRACTION_MIN {
                let expected = "from 0.001 to 1: with less no job could run; use suspended for none";
                return Err(Invalid::new(what, format_args!("{:e}", fraction.get()), expected));
            }
        }
        Ok(())
    }

    /// Checks ranges of preferences that operators set for a fleet: as [`Preferences::check_set`], and what
    /// only owners may say is refused.
    ///
    /// # Errors
    /// [`Invalid`] for the first field out of range.
    pub fn check_document(&self) -> Result<(), Invalid> {
        self.check_set()?;
        self.local.check_document()
    }

    /// After how long without input computing stops, where that is before it begins: it never goes on then.
    #[must_use]
    pub fn stops_before_it_begins(&self) -> Option<Duration> {
        self.local.stop_without_input.filter(|stop| !self.run_in_use && *stop <= self.idle_after)
    }

    /// These preferences under an owner's limits: the tighter of the two in each respect (R6.4).
    #[must_use]
    pub fn tightened(&self, owner: &OwnerLimits) -> Self {
        let least = |a: Fraction, b: Option<Fraction>| match b {
            Some(b) if b < a => b,
            _ => a,
        };
        // By name, so that no limit is forgotten.
        let OwnerLimits {
            suspended,
            cpu_fraction,
            cpu_time_fraction,
            memory_fraction,
            disk_fraction,
            excluded_devices,
        } = owner;
        Self {
            cpu_fraction: least(self.cpu_fraction, *cpu_fraction),
            cpu_time_fraction: least(self.cpu_time_fraction, *cpu_time_fraction),
            memory_fraction: least(self.memory_fraction, *memory_fraction),
            disk_fraction: least(self.disk_fraction, *disk_fraction),
            suspended: self.suspended || *suspended,
            excluded_devices: self.excluded_devices.union(excluded_devices).copied().collect(),
            ..self.clone()
        }
    }
}

/// What the owner of a host said on the host itself. It only ever tightens what the coordinator proposes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnerLimits {
    /// No computing until the owner resumes it.
    pub suspended: bool,
    /// At most this part of the CPUs.
    pub cpu_fraction: Option<Fraction>,
    /// At most this part of each second.
    pub cpu_time_fraction: Option<Fraction>,
    /// At most this part of the memory.
    pub memory_fraction: Option<Fraction>,
    /// At most this part of the disk.
    pub disk_fraction: Option<Fraction>,
    /// Devices that must not be used (R3.14).
    #[serde(default)]
    pub excluded_devices: BTreeSet<Device>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_that_are_next_to_nothing_are_not_set_and_what_was_set_before_is_still_read() {
        let tiny = Fraction::clamped(1e-300);
        for bad in [
            Preferences { cpu_fraction: tiny, ..Preferences::default() },
            Preferences { memory_fraction: tiny, ..Preferences::default() },
            Preferences { disk_fraction: Fraction::ZERO, ..Preferences::default() },
        ] {
            assert!(bad.check().is_ok());
            let error = bad.check_set().unwrap_err().to_string();
            assert!(error.contains("from 0.001 to 1") && error.len() < 200, "{error}");
        }
        assert!(Preferences::default().check_set().is_ok());
    }

    #[test]
    fn r2_6_usable_cpus_follow_the_fraction_and_are_never_none() {
        let with = |f: f64, n| {
            Preferences { cpu_fraction: Fraction::clamped(f), ..Default::default() }.usable_cpus(n)
        };
        assert_eq!(with(0.5, 2), 1);
        assert_eq!(with(1.0 / 3.0, 3), 1);
        assert_eq!(with(0.01, 2), 1);
        assert_eq!(with(1.0, 16), 16);
        assert_eq!(with(0.75, 4), 3);
    }

    #[test]
    fn r3_14_a_device_that_either_excludes_is_excluded() {
        let devices = |names: &[&str]| names.iter().map(|name| name.parse::<Device>().unwrap()).collect();
        let fleet = Preferences { excluded_devices: devices(&["nvidia:0", "amd:1"]), ..Default::default() };
        let owner = OwnerLimits { excluded_devices: devices(&["nvidia:2"]), ..Default::default() };
        let effective = fleet.tightened(&owner);
        assert_eq!(effective.excluded(ResourceType::Nvidia).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(effective.excluded(ResourceType::Amd).collect::<Vec<_>>(), [1]);
        assert_eq!(effective.excluded(ResourceType::Intel).count(), 0);
    }

    #[test]
    fn r3_14_preferences_stored_before_devices_could_be_excluded_exclude_none() {
        let mut stored = serde_json::to_value(Preferences::default()).unwrap();
        assert!(stored.as_object_mut().unwrap().remove("excluded_devices").is_some());
        assert_eq!(serde_json::from_value::<Preferences>(stored).unwrap(), Preferences::default());
        let owner: OwnerLimits = serde_json::from_str("{\"suspended\":true}").unwrap();
        assert_eq!(owner, OwnerLimits { suspended: true, ..OwnerLimits::default() });
    }

    #[test]
    fn r6_4_preferences_stored_before_documents_had_a_word_for_all_are_as_by_default_and_written_likewise() {
        let stored = serde_json::to_value(Preferences::default()).unwrap();
        assert!(stored.get("local").is_none(), "what hosts have already would have another hash: {stored}");
        assert_eq!(serde_json::from_value::<Preferences>(stored).unwrap(), Preferences::default());
        let one = serde_json::json!({ "run_on_batteries": true });
        let local = LocalPreferences { run_on_batteries: true, ..LocalPreferences::default() };
        assert_eq!(serde_json::from_value::<LocalPreferences>(one).unwrap(), local);
        let said = Preferences { local, ..Preferences::default() };
        let again = serde_json::from_value::<Preferences>(serde_json::to_value(&said).unwrap());
        assert_eq!(again.unwrap(), said);
    }

    #[test]
    fn r6_4_of_what_goes_on_around_a_host_only_what_is_not_the_default_is_stored() {
        let stored = |local: &LocalPreferences| serde_json::to_value(local).unwrap();
        let said = LocalPreferences { run_on_batteries: true, ..LocalPreferences::default() };
        assert_eq!(stored(&said), serde_json::json!({ "run_on_batteries": true }));
        assert_eq!(stored(&LocalPreferences::default()), serde_json::json!({}));
    }

    #[test]
    fn r6_4_one_source_names_a_hundred_programs_at_most_and_several_together_more() {
        let programs = (0..101).map(|number| format!("program-{number}")).collect();
        let local = LocalPreferences { exclusive_programs: programs, ..LocalPreferences::default() };
        let many = Preferences { local, ..Preferences::default() };
        assert!(many.check().is_ok());
        assert!(many.check_set().unwrap_err().to_string().contains("at most 100"));
    }

    fn fraction() -> impl Strategy<Value = Fraction> {
        (0.0..=1.0).prop_map(Fraction::clamped)
    }

    proptest! {
        #[test]
        fn r6_4_an_owner_can_only_tighten(
            fleet in (fraction(), fraction(), any::<bool>()),
            owner in (prop::option::of(fraction()), prop::option::of(fraction()), any::<bool>()),
        ) {
            let fleet = Preferences { cpu_fraction: fleet.0, memory_fraction: fleet.1, suspended: fleet.2,
                ..Default::default() };
            let limits = OwnerLimits { cpu_fraction: owner.0, memory_fraction: owner.1, suspended: owner.2,
                ..Default::default() };
            let effective = fleet.tightened(&limits);
            prop_assert!(effective.cpu_fraction <= fleet.cpu_fraction);
            prop_assert!(effective.memory_fraction <= fleet.memory_fraction);
            prop_assert!(limits.cpu_fraction.is_none_or(|limit| effective.cpu_fraction <= limit));
            prop_assert_eq!(effective.suspended, fleet.suspended || limits.suspended);
        }
    }
}
