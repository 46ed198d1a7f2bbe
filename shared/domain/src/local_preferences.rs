//! What a host may do by what goes on in and around it: people, its battery, other programs, the network.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::{Bytes, Duration, Fraction, GpuExclusion, Hours, Invalid};

/// Most programs that are named as exclusive, and the longest name in bytes.
const PROGRAMS_MAX: usize = 100;
const PROGRAM_MAX: usize = 255;
/// Most exclusions of devices from projects.
const EXCLUSIONS_MAX: usize = 100;
/// The least that is transferred in a second, where that is limited: with less no file would come to an end.
const RATE_MIN: Bytes = Bytes(1_000);

/// Preferences that lie beside the others in [`crate::Preferences`] (R6.4). Each field names the BOINC
/// element it becomes on the wire. While somebody uses the host, what is said of that holds beside what
/// holds always: the tighter of the two. What a stored document leaves out is as the default is. What is as
/// the default is left out: so a new field changes no hash and no signature of documents that do not say it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LocalPreferences {
    /// Part of the CPUs while somebody uses the host (BOINC: `max_ncpus_pct`, beside `niu_max_ncpus_pct`).
    #[serde(skip_serializing_if = "is_whole")]
    pub cpu_fraction_in_use: Fraction,
    /// Part of each second that a CPU job may run then (BOINC: `cpu_usage_limit`, beside
    /// `niu_cpu_usage_limit`).
    #[serde(skip_serializing_if = "is_whole")]
    pub cpu_time_fraction_in_use: Fraction,
    /// Part of the memory that jobs may use then (BOINC: `ram_max_used_busy_pct`).
    #[serde(skip_serializing_if = "is_whole")]
    pub memory_fraction_in_use: Fraction,
    /// Part of the swap space that jobs may hold (BOINC: `vm_max_used_pct`).
    #[serde(skip_serializing_if = "is_whole")]
    pub swap_fraction: Fraction,
    /// The most CPUs that jobs may use (BOINC: `max_cpus`, of old).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus_max: Option<NonZeroU32>,
    /// No computing on a device that is hotter than so many degrees Celsius, until it has cooled by a few.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_temperature_max: Option<NonZeroU32>,
    /// Compute on coprocessors at all (BOINC: the contrary of `no_gpus` in `cc_config.xml`).
    #[serde(skip_serializing_if = "is_true")]
    pub use_gpus: bool,
    /// Devices that jobs of single projects leave alone (BOINC: `exclude_gpu` there).
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub excluded_of_projects: BTreeSet<GpuExclusion>,
    /// Compute while the host runs on its battery (BOINC: `run_on_batteries`).
    #[serde(skip_serializing_if = "is_false")]
    pub run_on_batteries: bool,
    /// No computing while the host's battery is charged to less than this, whatever feeds the host (BOINC:
    /// `battery_charge_min_pct`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub battery_charge_min: Option<Fraction>,
    /// No computing while the battery is hotter than so many degrees Celsius, until it has cooled by a few
    /// (BOINC: `battery_max_temperature`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub battery_temperature_max: Option<NonZeroU32>,
    /// No computing while other programs use more than this part of all CPUs (BOINC:
    /// `niu_suspend_cpu_usage`). Without it they may use what they like: jobs give way to them anyway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_load_max: Option<Fraction>,
    /// The same while somebody uses the host (BOINC: `suspend_cpu_usage`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_load_max_in_use: Option<Fraction>,
    /// No computing while one of these programs runs, named as their files are (BOINC: `exclusive_app` in
    /// `cc_config.xml`).
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub exclusive_programs: BTreeSet<String>,
    /// No computing on coprocessors while one of these runs, named likewise (BOINC: `exclusive_gpu_app`
    /// there).
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub exclusive_gpu_programs: BTreeSet<String>,
    /// No computing for so long after the agent was started (BOINC: `start_delay` there).
    #[serde(skip_serializing_if = "is_zero")]
    pub start_delay: Duration,
    /// No computing after so long without input, so that the host can go to sleep (BOINC:
    /// `suspend_if_no_recent_input`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_without_input: Option<Duration>,
    /// The most of the disk that may be used (BOINC: `disk_max_used_gb`), beside the part of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_max: Option<Bytes>,
    /// When projects may be contacted (BOINC: `net_start_hour`, `net_end_hour`).
    #[serde(skip_serializing_if = "Hours::is_always")]
    pub network_hours: Hours,
    /// Use the network only while the host is on a wireless one (BOINC: `network_wifi_only`).
    #[serde(skip_serializing_if = "is_false")]
    pub network_wifi_only: bool,
    /// No files are transferred while other programs of the host move more bytes than this in a second, sent
    /// and received together. BOINC knows no such thing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_network_max: Option<Bytes>,
    /// The most that is sent to projects in a second (BOINC: `max_bytes_sec_up`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload_max: Option<Bytes>,
    /// The most that is fetched from them in a second (BOINC: `max_bytes_sec_down`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub download_max: Option<Bytes>,
    /// The most that files may come to, both ways together, in the last days (BOINC: `daily_xfer_limit_mb`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer_max: Option<Bytes>,
    /// How many days these are, today among them (BOINC: `daily_xfer_period_days`).
    #[serde(skip_serializing_if = "is_day")]
    pub transfer_period: Duration,
    /// How many files are sent, and how many fetched, at once (BOINC: `max_file_xfers` in `cc_config.xml`).
    #[serde(skip_serializing_if = "is_usual_count")]
    pub files_at_once: NonZeroU32,
    /// The same of one project (BOINC: `max_file_xfers_per_project` there).
    #[serde(skip_serializing_if = "is_usual_count_of_project")]
    pub files_at_once_of_project: NonZeroU32,
    /// Report finished jobs at once (BOINC: `report_results_immediately` there).
    #[serde(skip_serializing_if = "is_false")]
    pub report_at_once: bool,
}

fn is_whole(part: &Fraction) -> bool {
    *part == Fraction::ONE
}

const fn is_true(yes: &bool) -> bool {
    *yes
}

const fn is_false(yes: &bool) -> bool {
    !*yes
}

fn is_zero(time: &Duration) -> bool {
    *time == Duration::ZERO
}

fn is_day(time: &Duration) -> bool {
    *time == LocalPreferences::TRANSFER_PERIOD
}

fn is_usual_count(count: &NonZeroU32) -> bool {
    *count == LocalPreferences::FILES_AT_ONCE
}

fn is_usual_count_of_project(count: &NonZeroU32) -> bool {
    *count == LocalPreferences::FILES_AT_ONCE_OF_PROJECT
}

impl LocalPreferences {
    /// The least that can be meant by a maximum of the disk: less than any project needs.
    pub const DISK_MAX_LEAST: Bytes = Bytes(100_000_000);
    /// The same of what other programs may move in a second: less than the broadcasts of a large network.
    pub const OTHER_NETWORK_MAX_LEAST: Bytes = Bytes(10_000);
    /// The same of a maximum of what is transferred in some days.
    pub const TRANSFER_MAX_LEAST: Bytes = Bytes(1_000_000);
    /// What can be meant by the highest temperature of a device, in degrees Celsius: one that is cooler than
    /// the least is in use by nobody, and all slow down by themselves before the highest.
    pub const TEMPERATURES: std::ops::RangeInclusive<u32> = 30..=110;
    /// The same of a battery: no room is hotter than the least, and none stands more than the highest.
    pub const BATTERY_TEMPERATURES: std::ops::RangeInclusive<u32> = 20..=100;
    /// The most days over which that is added up: so many are kept.
    pub const TRANSFER_DAYS_MAX: i64 = 365;
    /// Over how long it is added up where nobody says more.
    const TRANSFER_PERIOD: Duration = Duration::from_hours(24);
    /// How many files go at once in a direction where nobody says less, of all and of one project.
    pub const FILES_AT_ONCE: NonZeroU32 = NonZeroU32::new(8).expect("it is not 0");
    /// The same of one project.
    pub const FILES_AT_ONCE_OF_PROJECT: NonZeroU32 = NonZeroU32::new(2).expect("it is not 0");
    /// The longest that computing can be meant to wait after a start.
    pub const START_DELAY_MAX: Duration = Duration::from_hours(24);
}

impl Default for LocalPreferences {
    /// BOINC's defaults for batteries. Other programs' load is no limit: BOINC's 25 % is for jobs that do not
    /// give way.
    fn default() -> Self {
        Self {
            cpu_fraction_in_use: Fraction::ONE,
            cpu_time_fraction_in_use: Fraction::ONE,
            memory_fraction_in_use: Fraction::ONE,
            swap_fraction: Fraction::ONE,
            cpus_max: None,
            gpu_temperature_max: None,
            use_gpus: true,
            excluded_of_projects: BTreeSet::new(),
            run_on_batteries: false,
            battery_charge_min: None,
            battery_temperature_max: None,
            other_load_max: None,
            other_load_max_in_use: None,
            exclusive_programs: BTreeSet::new(),
            exclusive_gpu_programs: BTreeSet::new(),
            start_delay: Duration::ZERO,
            stop_without_input: None,
            disk_max: None,
            network_hours: Hours::default(),
            network_wifi_only: false,
            other_network_max: None,
            upload_max: None,
            download_max: None,
            transfer_max: None,
            transfer_period: Self::TRANSFER_PERIOD,
            files_at_once: Self::FILES_AT_ONCE,
            files_at_once_of_project: Self::FILES_AT_ONCE_OF_PROJECT,
            report_at_once: false,
        }
    }
}

impl LocalPreferences {
    /// Over how many days it is added up what is transferred.
    pub fn transfer_days(&self) -> i64 {
        self.transfer_period.as_days_f64().round() as i64
    }

    /// Whether nothing is said here: what a document without them means.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Refuses values that nobody can have meant, and lists that are too long for one source.
    ///
    /// # Errors
    /// [`Invalid`] for the first field out of range.
    pub fn check_set(&self) -> Result<(), Invalid> {
        self.check()?;
        if self.excluded_of_projects.len() > EXCLUSIONS_MAX {
            return Err(Invalid::new("exclusions", self.excluded_of_projects.len(), "at most 100 of them"));
        }
        let programs = [&self.exclusive_programs, &self.exclusive_gpu_programs];
        match programs.into_iter().find(|programs| programs.len() > PROGRAMS_MAX) {
            Some(many) => Err(Invalid::new("programs", many.len(), "at most 100 of them")),
            None => Ok(()),
        }
    }

    /// Refuses what a document cannot say, and an owner's file may: there it is no limit.
    ///
    /// # Errors
    /// [`Invalid`] for the first field out of range.
    pub fn check_document(&self) -> Result<(), Invalid> {
        if self.files_at_once > Self::FILES_AT_ONCE {
            return Err(Invalid::new("files at once", self.files_at_once, "from 1 to 8"));
        }
        if self.files_at_once_of_project > Self::FILES_AT_ONCE_OF_PROJECT {
            return Err(Invalid::new("files of a project at once", self.files_at_once_of_project, "1 or 2"));
        }
        Ok(())
    }

    /// Refuses values that nobody can have meant. Lists may be longer than one source may have them: what
    /// several name is in force together.
    ///
    /// # Errors
    /// [`Invalid`] for the first field out of range.
    pub fn check(&self) -> Result<(), Invalid> {
        for (what, part, least) in [
            ("fraction of CPUs", self.cpu_fraction_in_use, 0.001),
            ("CPU time limit", self.cpu_time_fraction_in_use, 0.01),
            ("fraction of the memory", self.memory_fraction_in_use, 0.001),
            ("load of other programs", self.other_load_max.unwrap_or(Fraction::ONE), 0.01),
            ("load of other programs", self.other_load_max_in_use.unwrap_or(Fraction::ONE), 0.01),
            ("charge of the battery", self.battery_charge_min.unwrap_or(Fraction::ONE), 0.01),
        ] {
            if part.get() < least {
                return Err(Invalid::new(what, part, "from 0.01 to 1 (of CPUs and memory from 0.001)"));
            }
        }
        let degrees = self.gpu_temperature_max.map(NonZeroU32::get);
        if let Some(degrees) = degrees.filter(|degrees| !Self::TEMPERATURES.contains(degrees)) {
            return Err(Invalid::new("highest temperature", degrees, "from 30 to 110 degrees Celsius"));
        }
        let degrees = self.battery_temperature_max.map(NonZeroU32::get);
        if let Some(degrees) = degrees.filter(|degrees| !Self::BATTERY_TEMPERATURES.contains(degrees)) {
            let range = "from 20 to 100 degrees Celsius";
            return Err(Invalid::new("highest temperature of the battery", degrees, range));
        }
        let (minute, day) = (Duration::from_mins(1), Duration::from_hours(24));
        if let Some(time) = self.stop_without_input.filter(|time| !(minute..=day).contains(time)) {
            return Err(Invalid::new("time without input", time, "from 1 min to 24 h"));
        }
        if !(Duration::ZERO..=Self::START_DELAY_MAX).contains(&self.start_delay) {
            return Err(Invalid::new("wait after a start", self.start_delay, "at most 24 h"));
        }
        for rate in [self.upload_max, self.download_max].into_iter().flatten() {
            if rate < RATE_MIN {
                return Err(Invalid::new("bytes in a second", rate, "at least 1 kB"));
            }
        }
        if let Some(rate) = self.other_network_max.filter(|rate| *rate < Self::OTHER_NETWORK_MAX_LEAST) {
            return Err(Invalid::new("bytes of other programs in a second", rate, "at least 10 kB"));
        }
        if let Some(most) = self.transfer_max.filter(|most| *most < Self::TRANSFER_MAX_LEAST) {
            return Err(Invalid::new("most that is transferred", most, "at least 1 MB"));
        }
        let (days, period) = (self.transfer_days(), self.transfer_period);
        if period != day * days || !(1..=Self::TRANSFER_DAYS_MAX).contains(&days) {
            return Err(Invalid::new("days of transfers", period, "whole days, from 1 to 365"));
        }
        if let Some(most) = self.disk_max.filter(|most| *most < Self::DISK_MAX_LEAST) {
            return Err(Invalid::new("most of the disk", most, "at least 100 MB"));
        }
        let is_bad = |name: &&String| {
            let bad = |c: char| c == '/' || c.is_control();
            name.trim().is_empty() || name.len() > PROGRAM_MAX || name.contains(bad)
        };
        match self.exclusive_programs.iter().chain(&self.exclusive_gpu_programs).find(is_bad) {
            Some(name) => Err(Invalid::new("program", name, "the name of its file, without a path")),
            None => Ok(()),
        }
    }
}
