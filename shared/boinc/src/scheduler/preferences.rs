//! Preferences as they stand on the wire (BOINC: `global_preferences`).

use std::collections::BTreeSet;

use fallow_domain::{Bytes, Duration, Fraction, Hours, LocalPreferences, Preferences};

use crate::xml::elements;

/// Seconds in a day.
const DAY: f64 = 86_400.0;

/// Seconds in the longest time that a preference may name.
const MONTH: f64 = 31.0 * DAY;

/// What is a part of CPUs, memory or disk.
const PERCENT: (f64, f64) = (0.1, 100.0);

/// Bytes in the gigabyte of `disk_min_free_gb`, as BOINC counts it.
const GIGABYTE: f64 = 1024.0 * 1024.0 * 1024.0;

/// The same in the megabyte of `daily_xfer_limit_mb`.
const MEGABYTE: f64 = 1024.0 * 1024.0;

elements! {
/// BOINC's preferences, each under its element's name and in its element's unit. Percentages run from 0
/// to 100.
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
    /// The same while nobody uses the machine; as in use where it is not said.
    pub niu_suspend_cpu_usage: Option<f64>,
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
    /// The same while nobody uses the machine; as in use where it is not said.
    pub niu_max_ncpus_pct: Option<f64>,
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
    /// The same while nobody uses the machine; as in use where it is not said.
    pub niu_cpu_usage_limit: Option<f64>,
    /// Transfer at most so many megabytes ...
    pub daily_xfer_limit_mb: f64,
    /// ... in so many days, 0 for no limit.
    pub daily_xfer_period_days: i64,
    /// True if the host has preferences of its own.
    pub override_file_present: bool,
    /// Transfer files over wireless networks only.
    pub network_wifi_only: bool,
    /// The older form of a part of the CPUs: use at most so many of them, 0 for no limit.
    pub max_cpus: Option<i64>,
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
            niu_suspend_cpu_usage: None,
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
            niu_max_ncpus_pct: None,
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
            niu_cpu_usage_limit: None,
            daily_xfer_limit_mb: 0.0,
            daily_xfer_period_days: 0,
            override_file_present: false,
            network_wifi_only: false,
            max_cpus: None,
        }
    }
}

impl GlobalPreferences {
    /// Ours in BOINC's terms. That computing is suspended BOINC can say only as hours of the day: from 24 to
    /// 0, never. The connection interval and excluded devices have no element. Hours, and that somebody uses
    /// the machine, are seen to by the agent, which says "never" when it does not compute.
    pub fn from_domain(ours: &Preferences) -> Self {
        // By name, so that none is forgotten.
        let Preferences {
            cpu_fraction,
            cpu_time_fraction,
            buffer_min,
            buffer_additional,
            scheduling_period,
            checkpoint_period,
            leave_in_memory,
            suspended,
            memory_fraction,
            disk_fraction,
            disk_free_min,
            connection_interval: _,
            excluded_devices: _,
            required_layers: _,
            jobs_network: _,
            // Said beside, by `with_local`.
            local: _,
            hours: _,
            run_in_use,
            run_gpu_in_use,
            idle_after,
        } = ours;
        let (start_hour, end_hour) = if *suspended { (24.0, 0.0) } else { (0.0, 0.0) };
        Self {
            run_on_batteries: true,
            run_if_user_active: *run_in_use,
            run_gpu_if_user_active: *run_gpu_in_use,
            idle_time_to_run: idle_after.as_secs_f64() / 60.0,
            suspend_cpu_usage: 0.0,
            start_hour,
            end_hour,
            leave_apps_in_memory: *leave_in_memory,
            work_buf_min_days: buffer_min.as_days_f64(),
            work_buf_additional_days: buffer_additional.as_days_f64(),
            max_ncpus_pct: cpu_fraction.get() * 100.0,
            cpu_scheduling_period_minutes: scheduling_period.as_secs_f64() / 60.0,
            disk_interval: checkpoint_period.as_secs_f64(),
            disk_max_used_pct: disk_fraction.get() * 100.0,
            disk_min_free_gb: disk_free_min.as_f64() / GIGABYTE,
            ram_max_used_busy_pct: memory_fraction.get() * 100.0,
            ram_max_used_idle_pct: memory_fraction.get() * 100.0,
            cpu_usage_limit: cpu_time_fraction.get() * 100.0,
            override_file_present: true,
            ..Self::default()
        }
    }

    /// The same with what the host's own files and web sites say beside. Hours of the network that are not
    /// one stretch a day, and exclusive programs, have no element.
    #[must_use]
    pub fn with_local(self, local: &LocalPreferences) -> Self {
        // By name, so that none is forgotten.
        let LocalPreferences {
            // What holds in use is in the others while somebody uses the host.
            cpu_fraction_in_use: _,
            cpu_time_fraction_in_use: _,
            memory_fraction_in_use,
            swap_fraction,
            // In the part of the CPUs that may be used.
            cpus_max: _,
            // BOINC knows no such things.
            gpu_temperature_max: _,
            other_network_max: _,
            // These are in its other file, which no project is told.
            use_gpus: _,
            excluded_of_projects: _,
            exclusive_gpu_programs: _,
            start_delay: _,
            files_at_once: _,
            files_at_once_of_project: _,
            report_at_once: _,
            run_on_batteries,
            battery_charge_min,
            battery_temperature_max,
            other_load_max,
            other_load_max_in_use,
            exclusive_programs: _,
            stop_without_input,
            disk_max,
            network_hours: _,
            network_wifi_only,
            upload_max,
            download_max,
            transfer_max,
            transfer_period: _,
        } = local;
        let percent = |part: &Option<Fraction>| part.map_or(0.0, |part| part.get() * 100.0);
        let rate = |rate: &Option<Bytes>| rate.map_or(0.0, Bytes::as_f64);
        // Where nobody says a limit, BOINC's own stand there, which only telephones heed.
        let charge = battery_charge_min.map_or(self.battery_charge_min_pct, |part| part.get() * 100.0);
        let heat = battery_temperature_max.map_or(self.battery_max_temperature, |most| f64::from(most.get()));
        Self {
            run_on_batteries: *run_on_batteries,
            battery_charge_min_pct: charge,
            battery_max_temperature: heat,
            network_wifi_only: *network_wifi_only,
            suspend_cpu_usage: percent(&other_load_max_in_use.or(*other_load_max)),
            niu_suspend_cpu_usage: other_load_max.as_ref().map(|_| percent(other_load_max)),
            suspend_if_no_recent_input: stop_without_input.map_or(0.0, |time| time.as_secs_f64() / 60.0),
            ram_max_used_busy_pct: self.ram_max_used_busy_pct.min(memory_fraction_in_use.get() * 100.0),
            disk_max_used_gb: disk_max.map_or(0.0, |bytes| bytes.as_f64() / GIGABYTE),
            max_bytes_sec_up: rate(upload_max),
            max_bytes_sec_down: rate(download_max),
            vm_max_used_pct: swap_fraction.get() * 100.0,
            daily_xfer_limit_mb: transfer_max.map_or(0.0, |most| most.as_f64() / MEGABYTE),
            daily_xfer_period_days: transfer_max.map_or(0, |_| local.transfer_days()),
            ..self
        }
    }

    /// BOINC's in our terms. What we have no preference for (hours, batteries, transfer limits, other
    /// programs' load) is left out, except that hours from 24 to 0 mean suspended. Values out of range are
    /// brought into it, see [`GlobalPreferences::to_domain_noting`].
    pub fn to_domain(&self) -> Preferences {
        self.to_domain_noting(&mut |_| ())
    }

    /// The same, saying in a sentence for each value out of range what is taken instead: the nearest that is
    /// possible, or what the stock client takes where that is another (`max_ncpus_pct` of 0 is all CPUs,
    /// `cpu_scheduling_period_minutes` of 0 the usual period, a `cpu_usage_limit` that is no percentage
    /// none). Whatever stands in the elements, the result passes [`Preferences::check_set`].
    pub fn to_domain_noting(&self, note: &mut dyn FnMut(String)) -> Preferences {
        let mut within = |element: &str, value: f64, (low, high): (f64, f64), instead: f64| {
            let taken = if value < low || value.is_nan() { instead } else { value.min(high) };
            if taken != value {
                note(format!("{element} is {value:?}, outside {low:.3} to {high}: {taken} is used."));
            }
            taken
        };
        let fraction = |percent: f64| Fraction::clamped((percent / 100.0).max(PERCENT.0 / 100.0));
        let days = (0.0, MONTH / DAY);
        let minutes = (1.0 / 60.0, MONTH / 60.0);
        let idle = (10.0 / 60.0, DAY / 60.0);
        let cpus = if self.max_ncpus_pct == 0.0 { 100.0 } else { self.max_ncpus_pct };
        let all_or_least = |value: f64, least: f64| if value > 0.0 { least } else { 100.0 };
        let cpus = within("max_ncpus_pct", cpus, PERCENT, all_or_least(cpus, PERCENT.0));
        let limit = self.cpu_usage_limit;
        let limit = within("cpu_usage_limit", limit, (1.0, 100.0), all_or_least(limit, 1.0));
        let period = match self.cpu_scheduling_period_minutes {
            0.0 => 60.0,
            minutes => minutes,
        };
        let usual = if period >= 0.0001 { minutes.0 } else { 60.0 };
        let memory = self.ram_max_used_idle_pct;
        let memory = if memory == 0.0 { 100.0 } else { memory };
        Preferences {
            cpu_fraction: fraction(cpus),
            cpu_time_fraction: Fraction::clamped(limit / 100.0),
            buffer_min: Duration::from_days_f64(within(
                "work_buf_min_days",
                self.work_buf_min_days,
                days,
                0.0,
            )),
            buffer_additional: Duration::from_days_f64(within(
                "work_buf_additional_days",
                self.work_buf_additional_days,
                days,
                0.0,
            )),
            scheduling_period: Duration::from_secs_f64(
                within("cpu_scheduling_period_minutes", period, minutes, usual) * 60.0,
            ),
            checkpoint_period: Duration::from_secs_f64(
                within("disk_interval", self.disk_interval, (0.0, MONTH), 0.0).max(1.0),
            ),
            leave_in_memory: self.leave_apps_in_memory,
            suspended: self.start_hour >= 24.0 && self.end_hour <= 0.0,
            memory_fraction: fraction(within("ram_max_used_idle_pct", memory, PERCENT, PERCENT.0)),
            disk_fraction: fraction(within("disk_max_used_pct", self.disk_max_used_pct, PERCENT, PERCENT.0)),
            disk_free_min: Bytes::from_f64(self.disk_min_free_gb * GIGABYTE),
            connection_interval: Duration::ZERO,
            excluded_devices: BTreeSet::new(),
            required_layers: BTreeSet::new(),
            jobs_network: None,
            local: LocalPreferences::default(),
            hours: Hours::default(),
            run_in_use: self.run_if_user_active,
            run_gpu_in_use: self.run_gpu_if_user_active,
            idle_after: Duration::from_secs_f64(
                within("idle_time_to_run", self.idle_time_to_run, idle, idle.0) * 60.0,
            ),
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
                run_in_use: true,
                run_gpu_in_use: true,
                idle_after: Duration::from_mins(10),
                ..Preferences::default()
            },
        ] {
            assert_eq!(GlobalPreferences::from_domain(&ours).to_domain(), ours);
        }
    }

    #[test]
    fn what_is_out_of_range_becomes_what_is_possible_and_that_is_said() {
        let extremes = [
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            -1.0,
            -0.0,
            0.0,
            1e-300,
            1e-4,
            0.5,
            100.0,
            101.0,
            1e300,
        ];
        for value in extremes {
            let theirs = GlobalPreferences {
                max_ncpus_pct: value,
                cpu_usage_limit: value,
                work_buf_min_days: value,
                work_buf_additional_days: value,
                cpu_scheduling_period_minutes: value,
                disk_interval: value,
                ram_max_used_idle_pct: value,
                disk_max_used_pct: value,
                disk_min_free_gb: value,
                idle_time_to_run: value,
                ..GlobalPreferences::default()
            };
            assert_eq!(theirs.to_domain().check_set(), Ok(()), "{value:e}");
        }
        let theirs = GlobalPreferences {
            work_buf_min_days: 1_000.0,
            cpu_scheduling_period_minutes: 1e-6,
            cpu_usage_limit: 250.0,
            disk_interval: -5.0,
            max_ncpus_pct: -3.0,
            ..GlobalPreferences::default()
        };
        let mut notes = Vec::new();
        let ours = theirs.to_domain_noting(&mut |note| notes.push(note));
        assert_eq!(ours.buffer_min, Duration::from_days_f64(31.0));
        assert_eq!(ours.scheduling_period, Duration::from_mins(60));
        assert_eq!((ours.cpu_time_fraction, ours.cpu_fraction), (Fraction::ONE, Fraction::ONE));
        assert_eq!(notes.len(), 5, "{notes:#?}");
        assert!(
            notes
                .iter()
                .any(|note| note.contains("work_buf_min_days is 1000.0") && note.ends_with(": 31 is used."))
        );
        GlobalPreferences::default().to_domain_noting(&mut |note| panic!("{note}"));
    }

    #[test]
    fn no_percentage_of_cpus_means_all_of_them() {
        let theirs = GlobalPreferences { max_ncpus_pct: 0.0, ..GlobalPreferences::default() };
        assert_eq!(theirs.to_domain().cpu_fraction, Fraction::ONE);
    }
}
