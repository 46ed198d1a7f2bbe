//! Preferences as they stand on the wire (BOINC: `global_preferences`).

use fallow_domain::{Bytes, Duration, Fraction, Preferences};

use crate::xml::elements;

/// Bytes in the gigabyte of `disk_min_free_gb`, as BOINC counts it.
const GIGABYTE: f64 = 1024.0 * 1024.0 * 1024.0;

elements! {
/// BOINC's preferences, each under its element's name and in its element's unit. Percentages run from 0 to 100.
#[derive(Clone, Debug, PartialEq)]
pub struct GlobalPreferences {
    /// The project whose site they were edited on.
    pub source_project: String,
    /// When they were edited, seconds since the epoch.
    pub mod_time: f64,
    /// Do not compute below this charge, percent.
    pub battery_charge_min_pct: f64,
    /// Do not compute above this battery temperature, degrees Celsius.
    pub battery_max_temperature: f64,
    /// Compute while on batteries.
    pub run_on_batteries: bool,
    /// Compute while somebody uses the machine.
    pub run_if_user_active: bool,
    /// Use GPUs while somebody uses the machine.
    pub run_gpu_if_user_active: bool,
    /// Stop after so many minutes without input, 0 for never.
    pub suspend_if_no_recent_input: f64,
    /// Stop while other programs use more than this of the CPUs, percent, 0 for never.
    pub suspend_cpu_usage: f64,
    /// Compute from this hour of the day ...
    pub start_hour: f64,
    /// ... to this one; equal means always, 24 to 0 never.
    pub end_hour: f64,
    /// Use the network from this hour of the day ...
    pub net_start_hour: f64,
    /// ... to this one.
    pub net_end_hour: f64,
    /// Keep preempted tasks in memory.
    pub leave_apps_in_memory: bool,
    /// Ask before dialling.
    pub confirm_before_connecting: bool,
    /// Hang up when done.
    pub hangup_if_dialed: bool,
    /// Do not check images.
    pub dont_verify_images: bool,
    /// Keep at least this much work, days.
    pub work_buf_min_days: f64,
    /// And up to this much more, days.
    pub work_buf_additional_days: f64,
    /// Use at most this part of the CPUs, percent.
    pub max_ncpus_pct: f64,
    /// Switch between projects about this often, minutes.
    pub cpu_scheduling_period_minutes: f64,
    /// Let applications write to disk at most this often, seconds.
    pub disk_interval: f64,
    /// Use at most this much disk, gigabytes, 0 for no limit.
    pub disk_max_used_gb: f64,
    /// Use at most this part of the disk, percent.
    pub disk_max_used_pct: f64,
    /// Leave this much free, gigabytes.
    pub disk_min_free_gb: f64,
    /// Use at most this part of the swap space, percent.
    pub vm_max_used_pct: f64,
    /// Use at most this part of the memory while somebody uses the machine, percent.
    pub ram_max_used_busy_pct: f64,
    /// And while nobody does, percent.
    pub ram_max_used_idle_pct: f64,
    /// Nobody uses the machine after so many minutes without input.
    pub idle_time_to_run: f64,
    /// Upload at most so many bytes per second, 0 for no limit.
    pub max_bytes_sec_up: f64,
    /// Download at most so many bytes per second, 0 for no limit.
    pub max_bytes_sec_down: f64,
    /// Run at most this part of each second, percent.
    pub cpu_usage_limit: f64,
    /// Transfer at most so many megabytes ...
    pub daily_xfer_limit_mb: f64,
    /// ... in so many days, 0 for no limit.
    pub daily_xfer_period_days: i64,
    /// True if the host has preferences of its own.
    pub override_file_present: bool,
    /// Transfer files over wireless networks only.
    pub network_wifi_only: bool,
}
}

impl Default for GlobalPreferences {
    /// What BOINC's client does without any preferences.
    fn default() -> Self {
        Self {
            source_project: String::new(),
            mod_time: 0.0,
            battery_charge_min_pct: 90.0,
            battery_max_temperature: 40.0,
            run_on_batteries: false,
            run_if_user_active: true,
            run_gpu_if_user_active: false,
            suspend_if_no_recent_input: 0.0,
            suspend_cpu_usage: 25.0,
            start_hour: 0.0,
            end_hour: 0.0,
            net_start_hour: 0.0,
            net_end_hour: 0.0,
            leave_apps_in_memory: false,
            confirm_before_connecting: true,
            hangup_if_dialed: false,
            dont_verify_images: false,
            work_buf_min_days: 0.1,
            work_buf_additional_days: 0.5,
            max_ncpus_pct: 0.0,
            cpu_scheduling_period_minutes: 60.0,
            disk_interval: 60.0,
            disk_max_used_gb: 0.0,
            disk_max_used_pct: 90.0,
            disk_min_free_gb: 0.1,
            vm_max_used_pct: 100.0,
            ram_max_used_busy_pct: 50.0,
            ram_max_used_idle_pct: 90.0,
            idle_time_to_run: 3.0,
            max_bytes_sec_up: 0.0,
            max_bytes_sec_down: 0.0,
            cpu_usage_limit: 100.0,
            daily_xfer_limit_mb: 0.0,
            daily_xfer_period_days: 0,
            override_file_present: false,
            network_wifi_only: false,
        }
    }
}

impl GlobalPreferences {
    /// Ours in BOINC's terms. An agent computes whether or not somebody is at the machine unless it is suspended, which
    /// BOINC can say only as hours of the day: from 24 to 0, never. The connection interval has no element.
    pub fn from_domain(ours: &Preferences) -> Self {
        let (start_hour, end_hour) = if ours.suspended { (24.0, 0.0) } else { (0.0, 0.0) };
        Self {
            run_on_batteries: true,
            run_gpu_if_user_active: true,
            suspend_cpu_usage: 0.0,
            start_hour,
            end_hour,
            leave_apps_in_memory: ours.leave_in_memory,
            work_buf_min_days: ours.buffer_min.as_days_f64(),
            work_buf_additional_days: ours.buffer_additional.as_days_f64(),
            max_ncpus_pct: ours.cpu_fraction.get() * 100.0,
            cpu_scheduling_period_minutes: ours.scheduling_period.as_secs_f64() / 60.0,
            disk_interval: ours.checkpoint_period.as_secs_f64(),
            disk_max_used_pct: ours.disk_fraction.get() * 100.0,
            disk_min_free_gb: ours.disk_free_min.as_f64() / GIGABYTE,
            ram_max_used_busy_pct: ours.memory_fraction.get() * 100.0,
            ram_max_used_idle_pct: ours.memory_fraction.get() * 100.0,
            cpu_usage_limit: ours.cpu_time_fraction.get() * 100.0,
            override_file_present: true,
            ..Self::default()
        }
    }

    /// BOINC's in our terms. What we have no preference for (hours, batteries, transfer limits, other programs' load)
    /// is left out, except that hours from 24 to 0 mean suspended. `max_ncpus_pct` of 0 means all CPUs.
    pub fn to_domain(&self) -> Preferences {
        let percent = |value: f64| Fraction::clamped(value / 100.0);
        Preferences {
            cpu_fraction: if self.max_ncpus_pct > 0.0 { percent(self.max_ncpus_pct) } else { Fraction::ONE },
            cpu_time_fraction: percent(self.cpu_usage_limit),
            buffer_min: Duration::from_days_f64(self.work_buf_min_days),
            buffer_additional: Duration::from_days_f64(self.work_buf_additional_days),
            scheduling_period: Duration::from_secs_f64(self.cpu_scheduling_period_minutes * 60.0),
            checkpoint_period: Duration::from_secs_f64(self.disk_interval),
            leave_in_memory: self.leave_apps_in_memory,
            suspended: self.start_hour >= 24.0 && self.end_hour <= 0.0,
            memory_fraction: percent(self.ram_max_used_idle_pct),
            disk_fraction: percent(self.disk_max_used_pct),
            disk_free_min: Bytes::from_f64(self.disk_min_free_gb * GIGABYTE),
            connection_interval: Duration::ZERO,
            ..Preferences::default()
        }
    }
}

impl From<&Preferences> for GlobalPreferences {
    fn from(ours: &Preferences) -> Self {
        Self::from_domain(ours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_preferences_survive_the_way_to_boincs_terms_and_back() {
        for ours in [
            Preferences::default(),
            Preferences {
                suspended: true,
                cpu_fraction: Fraction::clamped(0.5),
                leave_in_memory: true,
                ..Preferences::default()
            },
        ] {
            assert_eq!(GlobalPreferences::from_domain(&ours).to_domain(), ours);
        }
    }

    #[test]
    fn no_percentage_of_cpus_means_all_of_them() {
        let theirs = GlobalPreferences { max_ncpus_pct: 0.0, ..GlobalPreferences::default() };
        assert_eq!(theirs.to_domain().cpu_fraction, Fraction::ONE);
    }
}
