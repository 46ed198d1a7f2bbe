//! BOINC's preference files and what projects' web sites send, in our terms.
//!
//! What is read and has no preference here is listed in `docs/preferences.md`, with what is done instead.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use fallow_boinc::scheduler::{DayPreferences, PreferenceFile};
use fallow_domain::{Bytes, Duration, Fraction, Hours, LocalPreferences, Preferences};

use crate::keys::Said;

/// Minutes in a day and in a week.
const DAY: u32 = 24 * 60;
/// Bytes in a gigabyte of a preference, as BOINC counts it.
const GIGABYTE: f64 = 1024.0 * 1024.0 * 1024.0;
/// The same of a megabyte.
const MEGABYTE: f64 = 1024.0 * 1024.0;
const DAYS_MAX: i64 = LocalPreferences::TRANSFER_DAYS_MAX;

/// What a user set on a project's web site says, whole: of what is absent the stock client's default holds.
/// Of the charge and the heat of a battery and of WiFi it says only what is there: these defaults are for
/// telephones, and other hosts would never compute under them.
/// `note` hears of each value out of range, and what is taken instead.
pub fn of_site(file: &PreferenceFile, note: &mut dyn FnMut(String)) -> Said {
    let said = said(file, &|_| true, note);
    // Its days without a limit are not those of a limit that somebody else sets.
    let transfer_period = said.transfer_period.filter(|_| said.transfer_max.flatten().is_some());
    Said { transfer_period, ..said }
}

/// What `global_prefs_override.xml` says: only the elements that are there.
pub fn of_override(file: &PreferenceFile, note: &mut dyn FnMut(String)) -> Said {
    said(file, &|element| file.present.contains(element), note)
}

fn said(file: &PreferenceFile, has: &dyn Fn(&str) -> bool, note: &mut dyn FnMut(String)) -> Said {
    let in_use = file.values.to_domain_noting(note);
    let niu = {
        let mut values = file.values.clone();
        values.max_ncpus_pct = values.niu_max_ncpus_pct.unwrap_or(values.max_ncpus_pct);
        values.cpu_usage_limit = values.niu_cpu_usage_limit.unwrap_or(values.cpu_usage_limit);
        values.to_domain_noting(&mut |_| ())
    };
    let values = &file.values;
    let load = |percent: f64| {
        let limits = percent.is_finite() && percent > 0.0 && percent < 100.0;
        limits.then(|| Fraction::clamped((percent / 100.0).max(0.01)))
    };
    let rate = |bytes: f64| (bytes.is_finite() && bytes > 0.0).then(|| Bytes::from_f64(bytes.max(1_000.0)));
    let megabytes = |most: f64| {
        let limits = most.is_finite() && most > 0.0;
        limits.then(|| Bytes::from_f64(most * MEGABYTE).max(LocalPreferences::TRANSFER_MAX_LEAST))
    };
    let no_days = has("daily_xfer_period_days") && values.daily_xfer_period_days <= 0;
    let any = |elements: &[&str]| elements.iter().any(|element| has(element));
    // The older form, which a part of the CPUs replaces.
    let is_part = (values.max_ncpus_pct.is_finite() && values.max_ncpus_pct > 0.0)
        || values.niu_max_ncpus_pct.is_some_and(|percent| percent > 0.0);
    let cpus_max = values
        .max_cpus
        .and_then(|cpus| u32::try_from(cpus).ok())
        .and_then(NonZeroU32::new)
        .filter(|_| !is_part);
    let (cpus, limit) = (["max_ncpus_pct", "niu_max_ncpus_pct"], ["cpu_usage_limit", "niu_cpu_usage_limit"]);
    let loads = ["suspend_cpu_usage", "niu_suspend_cpu_usage"];
    let daily = (values.start_hour, values.end_hour);
    let net_daily = (values.net_start_hour, values.net_end_hour);
    let is_there = |element: &str| file.present.contains(element);
    let charge = |percent: f64| (percent > 0.0).then(|| Fraction::clamped((percent / 100.0).max(0.01)));
    let by_day = |of: fn(&DayPreferences) -> Option<(f64, f64)>| -> BTreeMap<u8, (f64, f64)> {
        file.days.iter().filter_map(|day| Some((day.day, of(day)?))).collect()
    };
    let (days, net_days) = (by_day(|day| day.hours), by_day(|day| day.net_hours));
    let when = |yes: bool| yes.then_some(());
    let Preferences { buffer_min, buffer_additional, scheduling_period, checkpoint_period, .. } = in_use;
    Said {
        // Hours from 24 to 0 are no hours at all, which `hours` says.
        suspended: None,
        required_layers: None,
        jobs_network: None,
        hours: when(any(&["start_hour", "end_hour"]) || !days.is_empty()).map(|()| hours(daily, &days)),
        run_in_use: when(has("run_if_user_active")).map(|()| values.run_if_user_active),
        run_gpu_in_use: when(has("run_gpu_if_user_active")).map(|()| values.run_gpu_if_user_active),
        idle_after: when(has("idle_time_to_run")).map(|()| in_use.idle_after),
        stop_without_input: when(has("suspend_if_no_recent_input")).map(|()| {
            let minutes = values.suspend_if_no_recent_input;
            let day = f64::from(DAY);
            (minutes > 0.0).then(|| Duration::from_secs_f64(minutes.clamp(1.0, day) * 60.0))
        }),
        run_on_batteries: when(has("run_on_batteries")).map(|()| values.run_on_batteries),
        battery_charge_min: when(is_there("battery_charge_min_pct"))
            .map(|()| charge(values.battery_charge_min_pct)),
        battery_temperature_max: when(is_there("battery_max_temperature"))
            .map(|()| battery_temperature(values.battery_max_temperature)),
        exclusive_programs: None,
        exclusive_gpu_programs: None,
        start_delay: None,
        other_load_max: when(any(&loads))
            .map(|()| load(values.niu_suspend_cpu_usage.unwrap_or(values.suspend_cpu_usage))),
        other_load_max_in_use: when(has("suspend_cpu_usage")).map(|()| load(values.suspend_cpu_usage)),
        cpus_max: when(has("max_cpus") || has("max_ncpus_pct")).map(|()| cpus_max),
        cpu_fraction: when(any(&cpus)).map(|()| niu.cpu_fraction),
        cpu_fraction_in_use: when(has("max_ncpus_pct")).map(|()| in_use.cpu_fraction),
        cpu_time_fraction: when(any(&limit)).map(|()| niu.cpu_time_fraction),
        cpu_time_fraction_in_use: when(has("cpu_usage_limit")).map(|()| in_use.cpu_time_fraction),
        memory_fraction: when(has("ram_max_used_idle_pct")).map(|()| in_use.memory_fraction),
        memory_fraction_in_use: when(has("ram_max_used_busy_pct")).map(|()| {
            let percent = values.ram_max_used_busy_pct;
            let all = percent.is_nan() || percent == 0.0;
            Fraction::clamped(if all { 1.0 } else { (percent / 100.0).max(0.001) })
        }),
        swap_fraction: when(has("vm_max_used_pct")).map(|()| {
            let percent = values.vm_max_used_pct;
            Fraction::clamped(if percent.is_nan() { 1.0 } else { percent / 100.0 })
        }),
        leave_in_memory: when(has("leave_apps_in_memory")).map(|()| values.leave_apps_in_memory),
        use_gpus: None,
        excluded_devices: None,
        excluded_of_projects: None,
        gpu_temperature_max: None,
        disk_fraction: when(has("disk_max_used_pct")).map(|()| in_use.disk_fraction),
        disk_max: when(has("disk_max_used_gb")).map(|()| {
            let gigabytes = values.disk_max_used_gb;
            (gigabytes > 0.0)
                .then(|| Bytes::from_f64(gigabytes * GIGABYTE).max(LocalPreferences::DISK_MAX_LEAST))
        }),
        disk_free_min: when(has("disk_min_free_gb")).map(|()| in_use.disk_free_min),
        checkpoint_period: when(has("disk_interval")).map(|()| checkpoint_period),
        network_hours: when(any(&["net_start_hour", "net_end_hour"]) || !net_days.is_empty())
            .map(|()| hours(net_daily, &net_days)),
        network_wifi_only: when(is_there("network_wifi_only")).map(|()| values.network_wifi_only),
        other_network_max: None,
        upload_max: when(has("max_bytes_sec_up")).map(|()| rate(values.max_bytes_sec_up)),
        download_max: when(has("max_bytes_sec_down")).map(|()| rate(values.max_bytes_sec_down)),
        // Without a limit the days mean nothing, and without days there is no limit.
        transfer_max: when(has("daily_xfer_limit_mb") || no_days)
            .map(|()| megabytes(values.daily_xfer_limit_mb).filter(|_| !no_days)),
        transfer_period: when(has("daily_xfer_period_days") && values.daily_xfer_period_days > 0)
            .map(|()| Duration::from_hours(24) * values.daily_xfer_period_days.min(DAYS_MAX)),
        files_at_once: None,
        files_at_once_of_project: None,
        report_at_once: None,
        buffer_min: when(has("work_buf_min_days")).map(|()| buffer_min),
        buffer_additional: when(has("work_buf_additional_days")).map(|()| buffer_additional),
        scheduling_period: when(has("cpu_scheduling_period_minutes")).map(|()| scheduling_period),
        connection_interval: None,
        lines: BTreeMap::new(),
    }
}

/// Whole degrees in the range that can be meant; nothing and less is no limit.
fn battery_temperature(degrees: f64) -> Option<NonZeroU32> {
    let (least, most) = LocalPreferences::BATTERY_TEMPERATURES.into_inner();
    let whole = degrees.floor().clamp(f64::from(least), f64::from(most));
    (degrees > 0.0).then_some(whole).and_then(|whole| NonZeroU32::new(whole as u32))
}

/// BOINC's hours as stretches of the week. A day begins and ends at midnight: hours from 18 to 8 are those
/// before 8 and those from 18 on, on each day for which they are said. Equal ones are the whole day, from 24
/// to 0 no hour.
fn hours(daily: (f64, f64), days: &BTreeMap<u8, (f64, f64)>) -> Hours {
    let minute = |hour: f64| if hour.is_nan() { 0 } else { (hour.clamp(0.0, 24.0) * 60.0).round() as u32 };
    Hours::of_minutes(|at| {
        // Weeks begin on Sunday there, and on Monday here.
        let day = u8::try_from((at / DAY + 1) % 7).unwrap_or(0);
        let (start, end) = days.get(&day).copied().unwrap_or(daily);
        let (start, end, now) = (minute(start), minute(end), at % DAY);
        match start.cmp(&end) {
            std::cmp::Ordering::Equal => true,
            std::cmp::Ordering::Less => (start..end).contains(&now),
            std::cmp::Ordering::Greater => now >= start || now < end,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Values;
    use crate::{Origin, Source, in_force};

    fn site(inside: &str) -> Said {
        of_site(&PreferenceFile::of_reply(inside, "").unwrap(), &mut |note| panic!("{note}"))
    }

    fn over(inside: &str) -> Said {
        let text = format!("<global_preferences>{inside}</global_preferences>");
        of_override(&PreferenceFile::parse(text.as_bytes(), "").unwrap(), &mut |note| panic!("{note}"))
    }

    fn values(said: Said) -> Values {
        in_force(&[Source::says(Origin::Override, said)]).values
    }

    #[test]
    fn r6_4_a_web_sites_preferences_are_whole_and_an_override_says_only_what_is_in_it() {
        let said = site("<work_buf_min_days>2</work_buf_min_days>");
        assert_eq!(said.buffer_min, Some(Duration::from_hours(48)));
        assert_eq!((said.run_in_use, said.run_on_batteries), (Some(false), Some(false)));
        assert_eq!(said.other_load_max, Some(Some(Fraction::clamped(0.25))));
        let said = over("<disk_max_used_gb>3</disk_max_used_gb><run_if_user_active>1</run_if_user_active>");
        let all = Said { disk_max: Some(Some(Bytes(3 << 30))), run_in_use: Some(true), ..Said::default() };
        assert_eq!(said, all);
        assert!(over("").is_empty());
    }

    #[test]
    fn r6_4_what_is_no_value_of_an_element_says_nothing_of_it() {
        let read = |inside: &str| PreferenceFile::of_reply(inside, "").unwrap();
        for inside in [
            "<max_ncpus_pct>fifty</max_ncpus_pct>",
            "<max_ncpus_pct/>",
            "<disk_max_used_gb>ten</disk_max_used_gb>",
        ] {
            let file = read(inside);
            assert!(of_override(&file, &mut |_| ()).is_empty(), "{inside}");
            assert_eq!((file.present.len(), file.unread.len()), (0, 1), "{inside}");
        }
        assert!(read("<run_on_batteries/>").present.contains("run_on_batteries"));
    }

    #[test]
    fn r6_4_no_file_leaves_projects_next_to_nothing_of_the_disk() {
        let said = over("<disk_max_used_gb>1e-9</disk_max_used_gb>");
        assert_eq!(said.disk_max, Some(Some(LocalPreferences::DISK_MAX_LEAST)));
        let local = LocalPreferences { disk_max: Some(Bytes(1)), ..LocalPreferences::default() };
        assert!(local.check().is_err());
    }

    #[test]
    fn r6_4_what_holds_in_use_and_what_holds_otherwise_are_apart_and_one_alone_is_for_both() {
        let said = over(
            "<max_ncpus_pct>25</max_ncpus_pct><niu_max_ncpus_pct>75</niu_max_ncpus_pct>\
             <cpu_usage_limit>40</cpu_usage_limit><suspend_cpu_usage>10</suspend_cpu_usage>\
             <niu_suspend_cpu_usage>0</niu_suspend_cpu_usage>\
             <ram_max_used_busy_pct>20</ram_max_used_busy_pct><ram_max_used_idle_pct>80</ram_max_used_idle_pct>",
        );
        let part = Fraction::clamped;
        let Values { fleet } = values(said);
        let local = fleet.local.clone();
        assert_eq!((fleet.cpu_fraction, local.cpu_fraction_in_use), (part(0.75), part(0.25)));
        assert_eq!((fleet.cpu_time_fraction, local.cpu_time_fraction_in_use), (part(0.4), part(0.4)));
        assert_eq!((fleet.memory_fraction, local.memory_fraction_in_use), (part(0.8), part(0.2)));
        assert_eq!((local.other_load_max, local.other_load_max_in_use), (None, Some(part(0.1))));
    }

    #[test]
    fn r6_4_what_may_be_transferred_in_days_is_a_limit_only_with_both_of_boincs_elements() {
        let (limit, days) = ("<daily_xfer_limit_mb>200</daily_xfer_limit_mb>", "<daily_xfer_period_days>");
        let of = |said: Said| {
            let local = values(said).fleet.local;
            (local.transfer_max, local.transfer_days())
        };
        let both = format!("{limit}{days}30</daily_xfer_period_days>");
        assert_eq!(of(site(&both)), (Some(Bytes(200 << 20)), 30));
        assert_eq!(of(over(&both)), (Some(Bytes(200 << 20)), 30));
        let off = format!("{limit}{days}0</daily_xfer_period_days>");
        assert_eq!((of(site(&off)), of(site(limit))), ((None, 1), (None, 1)));
        // The days of a web site that limits nothing are nobody's: an owner's limit is one of each day.
        assert_eq!(site(&format!("{days}30</daily_xfer_period_days>")).transfer_period, None);
        // An override tells of one what a web site said of the other.
        let one = over(&format!("{days}7</daily_xfer_period_days>"));
        assert_eq!((one.transfer_max, one.transfer_period), (None, Some(Duration::from_hours(7 * 24))));
        assert_eq!(over(&off).transfer_max, Some(None));
        assert_eq!(over("<daily_xfer_limit_mb>0</daily_xfer_limit_mb>").transfer_max, Some(None));
        assert_eq!(of(over(&format!("{limit}{days}9999</daily_xfer_period_days>"))).1, 365);
    }

    #[test]
    fn r6_4_the_older_number_of_cpus_holds_where_no_part_of_them_is_said() {
        let of = |said: Said| values(said).fleet.local.cpus_max.map(NonZeroU32::get);
        let (two, part) = ("<max_cpus>2</max_cpus>", "<max_ncpus_pct>50</max_ncpus_pct>");
        let none = "<max_ncpus_pct>0</max_ncpus_pct>";
        assert_eq!(
            (of(site(two)), of(over(two)), of(over(&format!("{none}{two}")))),
            (Some(2), Some(2), Some(2))
        );
        assert_eq!((of(site(part)), of(over(&format!("{part}{two}")))), (None, None));
        // An override that says a part takes the number's place.
        assert_eq!((over(part).cpus_max, over("<max_cpus>0</max_cpus>").cpus_max), (Some(None), Some(None)));
        assert_eq!(over("<run_on_batteries/>").cpus_max, None);
    }

    #[test]
    fn r6_4_boincs_part_of_the_swap_space_is_all_of_it_where_it_is_not_said() {
        let of = |said: Said| values(said).fleet.local.swap_fraction;
        assert_eq!(of(site("")), Fraction::ONE);
        assert_eq!(of(over("<vm_max_used_pct>75</vm_max_used_pct>")), Fraction::clamped(0.75));
    }

    #[test]
    fn r6_4_what_boinc_says_for_telephones_holds_only_where_it_is_said() {
        let of = |said: Said| {
            let local = values(said).fleet.local;
            let degrees = local.battery_temperature_max.map(NonZeroU32::get);
            (local.battery_charge_min, degrees, local.network_wifi_only)
        };
        let none = (None, None, false);
        assert_eq!((of(site("")), of(over(""))), (none, none));
        let said = "<battery_charge_min_pct>60</battery_charge_min_pct>\
                    <battery_max_temperature>45.7</battery_max_temperature><network_wifi_only/>";
        let all = (Some(Fraction::clamped(0.6)), Some(45), true);
        assert_eq!((of(site(said)), of(over(said))), (all, all));
        let off = "<battery_charge_min_pct>0</battery_charge_min_pct>\
                   <battery_max_temperature>0</battery_max_temperature>\
                   <network_wifi_only>0</network_wifi_only>";
        let said = over(off);
        assert_eq!((said.battery_charge_min, said.battery_temperature_max), (Some(None), Some(None)));
        assert_eq!(said.network_wifi_only, Some(false));
        let far = over("<battery_max_temperature>1e300</battery_max_temperature>");
        assert_eq!(of(far).1, Some(100));
    }

    #[test]
    fn r6_4_boincs_hours_are_those_of_each_day_and_a_days_own_go_before_them() {
        let shown = |inside: &str| over(inside).hours.unwrap().to_string();
        let daily = |start: &str, end: &str| {
            shown(&format!("<start_hour>{start}</start_hour><end_hour>{end}</end_hour>"))
        };
        assert_eq!(daily("18", "8"), "18:00-08:00");
        assert_eq!(daily("9.5", "17"), "09:30-17:00");
        assert_eq!((daily("0", "0").as_str(), daily("7", "7").as_str()), ("always", "always"));
        assert_eq!(daily("24", "0"), "never");
        let sunday = "<start_hour>18</start_hour><end_hour>8</end_hour><day_prefs><day_of_week>0</day_of_week>\
                      <start_hour>0</start_hour><end_hour>0</end_hour></day_prefs>";
        // All of Sunday; Saturday's evening and Monday's morning go on into it.
        let hours: Hours = over(sunday).hours.unwrap();
        let plain: Hours = "mon-sat 18:00-24:00, mon-sat 00:00-08:00, sun".parse().unwrap();
        assert_eq!(hours.and(&plain), hours);
        assert_eq!(plain.and(&hours), hours);
        let net = over("<net_start_hour>1</net_start_hour><net_end_hour>5</net_end_hour>");
        assert_eq!((net.network_hours.unwrap().to_string().as_str(), net.hours), ("01:00-05:00", None));
    }

    #[test]
    fn r6_4_whatever_a_file_says_is_brought_into_range() {
        for value in ["nan", "inf", "-1", "0", "1e-300", "1e300", "50", "x", ""] {
            let elements = [
                "max_ncpus_pct",
                "niu_max_ncpus_pct",
                "cpu_usage_limit",
                "niu_cpu_usage_limit",
                "suspend_cpu_usage",
                "niu_suspend_cpu_usage",
                "suspend_if_no_recent_input",
                "battery_charge_min_pct",
                "battery_max_temperature",
                "start_hour",
                "end_hour",
                "net_start_hour",
                "net_end_hour",
                "disk_max_used_gb",
                "disk_max_used_pct",
                "disk_min_free_gb",
                "vm_max_used_pct",
                "max_cpus",
                "ram_max_used_busy_pct",
                "ram_max_used_idle_pct",
                "idle_time_to_run",
                "max_bytes_sec_up",
                "max_bytes_sec_down",
                "daily_xfer_limit_mb",
                "daily_xfer_period_days",
                "work_buf_min_days",
                "disk_interval",
            ];
            let inside: String =
                elements.iter().map(|element| format!("<{element}>{value}</{element}>")).collect();
            let file = PreferenceFile::of_reply(&inside, "").unwrap();
            for said in [of_site(&file, &mut |_| ()), of_override(&file, &mut |_| ())] {
                assert_eq!(values(said).check(), Ok(()), "{value}");
            }
        }
    }
}
