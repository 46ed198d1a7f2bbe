//! Preferences by what goes on in and around a host: the part of a document that older ones are without.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::str::FromStr;

use fallow_domain::{Bytes, Duration, Fraction, Hours, Invalid, LocalPreferences};

use super::limits::LISTED;
use super::v1 as wire;

/// These preferences on the wire; nothing where all are as by default, as those leave it out who do not know
/// it.
#[must_use]
pub(super) fn to_wire(local: &LocalPreferences) -> Option<wire::LocalPreferences> {
    // By name, so that none is forgotten.
    let LocalPreferences {
        cpu_fraction_in_use,
        cpu_time_fraction_in_use,
        memory_fraction_in_use,
        swap_fraction,
        cpus_max,
        gpu_temperature_max,
        use_gpus,
        excluded_of_projects,
        run_on_batteries,
        battery_charge_min,
        battery_temperature_max,
        other_load_max,
        other_load_max_in_use,
        exclusive_programs,
        exclusive_gpu_programs,
        start_delay,
        stop_without_input,
        disk_max,
        network_hours,
        network_wifi_only,
        other_network_max,
        upload_max,
        download_max,
        transfer_max,
        transfer_period,
        files_at_once,
        files_at_once_of_project,
        report_at_once,
    } = local;
    let usual = LocalPreferences::default();
    let part = |part: &Fraction| (*part != Fraction::ONE).then(|| part.get());
    let number = |number: &Option<NonZeroU32>| number.map_or(0, NonZeroU32::get);
    let unless = |usual: NonZeroU32, number: &NonZeroU32| if *number == usual { 0 } else { number.get() };
    let bytes = |bytes: &Option<Bytes>| bytes.map_or(0, |bytes| bytes.0);
    (!local.is_default()).then(|| wire::LocalPreferences {
        cpu_fraction_in_use: part(cpu_fraction_in_use),
        cpu_time_fraction_in_use: part(cpu_time_fraction_in_use),
        memory_fraction_in_use: part(memory_fraction_in_use),
        swap_fraction: part(swap_fraction),
        cpus_max: number(cpus_max),
        gpu_temperature_max: number(gpu_temperature_max),
        no_gpus: !use_gpus,
        excluded_of_projects: texts(excluded_of_projects),
        run_on_batteries: *run_on_batteries,
        battery_charge_min: battery_charge_min.map(Fraction::get),
        battery_temperature_max: number(battery_temperature_max),
        other_load_max: other_load_max.map(Fraction::get),
        other_load_max_in_use: other_load_max_in_use.map(Fraction::get),
        exclusive_programs: texts(exclusive_programs),
        exclusive_gpu_programs: texts(exclusive_gpu_programs),
        start_delay_micros: start_delay.as_micros(),
        stop_without_input_micros: stop_without_input.map_or(0, Duration::as_micros),
        disk_max_bytes: bytes(disk_max),
        network_hours: if network_hours.is_always() { String::new() } else { network_hours.to_string() },
        network_wifi_only: *network_wifi_only,
        other_network_max_bytes: bytes(other_network_max),
        upload_max_bytes: bytes(upload_max),
        download_max_bytes: bytes(download_max),
        transfer_max_bytes: bytes(transfer_max),
        transfer_period_micros: match *transfer_period == usual.transfer_period {
            true => 0,
            false => transfer_period.as_micros(),
        },
        files_at_once: unless(usual.files_at_once, files_at_once),
        files_at_once_of_project: unless(usual.files_at_once_of_project, files_at_once_of_project),
        report_at_once: *report_at_once,
    })
}

/// A list, cut after as many as a document and the files of a host may name together.
fn texts<T: ToString>(list: &BTreeSet<T>) -> Vec<String> {
    list.iter().take(LISTED).map(ToString::to_string).collect()
}

/// These preferences from the wire, of which each is in its range by itself.
///
/// # Errors
/// [`Invalid`] for the first value that cannot be read.
pub(super) fn from_wire(wire: Option<&wire::LocalPreferences>) -> Result<LocalPreferences, Invalid> {
    let Some(wire) = wire else { return Ok(LocalPreferences::default()) };
    // By name, so that none is forgotten.
    let wire::LocalPreferences {
        cpu_fraction_in_use,
        cpu_time_fraction_in_use,
        memory_fraction_in_use,
        swap_fraction,
        cpus_max,
        gpu_temperature_max,
        no_gpus,
        excluded_of_projects,
        run_on_batteries,
        battery_charge_min,
        battery_temperature_max,
        other_load_max,
        other_load_max_in_use,
        exclusive_programs,
        exclusive_gpu_programs,
        start_delay_micros,
        stop_without_input_micros,
        disk_max_bytes,
        network_hours,
        network_wifi_only,
        other_network_max_bytes,
        upload_max_bytes,
        download_max_bytes,
        transfer_max_bytes,
        transfer_period_micros,
        files_at_once,
        files_at_once_of_project,
        report_at_once,
    } = wire;
    let usual = LocalPreferences::default();
    let limit = |part: &Option<f64>| part.map(Fraction::new).transpose();
    let part = |part: &Option<f64>| part.map_or(Ok(Fraction::ONE), Fraction::new);
    let bytes = |bytes: &u64| (*bytes > 0).then_some(Bytes(*bytes));
    let time = |micros: &i64| (*micros != 0).then(|| Duration::from_micros(*micros));
    Ok(LocalPreferences {
        cpu_fraction_in_use: part(cpu_fraction_in_use)?,
        cpu_time_fraction_in_use: part(cpu_time_fraction_in_use)?,
        memory_fraction_in_use: part(memory_fraction_in_use)?,
        swap_fraction: part(swap_fraction)?,
        cpus_max: NonZeroU32::new(*cpus_max),
        gpu_temperature_max: NonZeroU32::new(*gpu_temperature_max),
        use_gpus: !no_gpus,
        excluded_of_projects: list("exclusions", excluded_of_projects)?,
        run_on_batteries: *run_on_batteries,
        battery_charge_min: limit(battery_charge_min)?,
        battery_temperature_max: NonZeroU32::new(*battery_temperature_max),
        other_load_max: limit(other_load_max)?,
        other_load_max_in_use: limit(other_load_max_in_use)?,
        exclusive_programs: programs(exclusive_programs)?,
        exclusive_gpu_programs: programs(exclusive_gpu_programs)?,
        start_delay: Duration::from_micros(*start_delay_micros),
        stop_without_input: time(stop_without_input_micros),
        disk_max: bytes(disk_max_bytes),
        network_hours: match network_hours.is_empty() {
            true => Hours::default(),
            false => Hours::of_stored(network_hours)?,
        },
        network_wifi_only: *network_wifi_only,
        other_network_max: bytes(other_network_max_bytes),
        upload_max: bytes(upload_max_bytes),
        download_max: bytes(download_max_bytes),
        transfer_max: bytes(transfer_max_bytes),
        transfer_period: time(transfer_period_micros).unwrap_or(usual.transfer_period),
        files_at_once: NonZeroU32::new(*files_at_once).unwrap_or(usual.files_at_once),
        files_at_once_of_project: NonZeroU32::new(*files_at_once_of_project)
            .unwrap_or(usual.files_at_once_of_project),
        report_at_once: *report_at_once,
    })
}

fn programs(names: &[String]) -> Result<BTreeSet<String>, Invalid> {
    bounded("programs", names)?;
    // As files and the command line take them: no name has blanks around it.
    Ok(names.iter().map(|name| name.trim().to_owned()).collect())
}

fn list<T: FromStr<Err = Invalid> + Ord>(
    what: &'static str,
    texts: &[String],
) -> Result<BTreeSet<T>, Invalid> {
    bounded(what, texts)?;
    texts.iter().map(|text| text.parse()).collect()
}

fn bounded(what: &'static str, texts: &[String]) -> Result<(), Invalid> {
    match texts.len() {
        many if many > LISTED => Err(Invalid::new(what, many, "at most 300 of them")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use fallow_domain::Preferences;

    use super::super::preferences;
    use super::*;

    /// No two of a kind alike, and none of them the default: one that took another's place would show.
    fn unusual() -> LocalPreferences {
        let number = |number| NonZeroU32::new(number).unwrap();
        let names = |names: [&str; 2]| names.map(str::to_owned).into();
        LocalPreferences {
            cpu_fraction_in_use: Fraction::clamped(0.11),
            cpu_time_fraction_in_use: Fraction::clamped(0.12),
            memory_fraction_in_use: Fraction::clamped(0.13),
            swap_fraction: Fraction::clamped(0.14),
            cpus_max: Some(number(3)),
            gpu_temperature_max: Some(number(71)),
            use_gpus: false,
            excluded_of_projects: ["https://example.org/p/ nvidia:0".parse().unwrap()].into(),
            run_on_batteries: true,
            battery_charge_min: Some(Fraction::clamped(0.15)),
            battery_temperature_max: Some(number(41)),
            other_load_max: Some(Fraction::clamped(0.16)),
            other_load_max_in_use: Some(Fraction::clamped(0.17)),
            exclusive_programs: names(["blender", "steam"]),
            exclusive_gpu_programs: names(["game", "player"]),
            start_delay: Duration::from_secs(70),
            stop_without_input: Some(Duration::from_secs(71)),
            disk_max: Some(Bytes(200_000_001)),
            network_hours: "mon-fri 18:00-08:00, sun".parse().unwrap(),
            network_wifi_only: true,
            other_network_max: Some(Bytes(20_001)),
            upload_max: Some(Bytes(20_002)),
            download_max: Some(Bytes(20_003)),
            transfer_max: Some(Bytes(20_000_004)),
            transfer_period: Duration::from_hours(48),
            files_at_once: number(5),
            files_at_once_of_project: number(1),
            report_at_once: true,
        }
    }

    #[test]
    fn names_of_programs_are_taken_without_blanks_around_them() {
        let named = |name: &str| programs(&[name.to_owned()]).unwrap();
        assert_eq!(named(" blender\t"), named("blender"));
        assert_eq!(named("my game"), ["my game".to_owned()].into());
    }

    #[test]
    fn r6_4_preferences_of_what_goes_on_around_a_host_survive_the_wire_and_are_left_out_where_they_are_usual()
    {
        assert_eq!(from_wire(to_wire(&unusual()).as_ref()), Ok(unusual()));
        assert_eq!(to_wire(&LocalPreferences::default()), None);
        assert_eq!(from_wire(None), Ok(LocalPreferences::default()));
        // One by one, so that none counts as said only because another is.
        let said = wire::LocalPreferences { run_on_batteries: true, ..Default::default() };
        let expected = LocalPreferences { run_on_batteries: true, ..Default::default() };
        assert_eq!(from_wire(Some(&said)), Ok(expected));
        // What several files of an owner say may leave no hour, and be too long for one of them.
        let [night, day] = ["mon-fri 18:00-08:00", "mon-fri 09:00-17:00"].map(|hours| hours.parse().unwrap());
        let never = LocalPreferences { network_hours: Hours::and(&night, &day), ..Default::default() };
        assert_eq!(from_wire(to_wire(&never).as_ref()), Ok(never));
        let many = (0..=LISTED).map(|number| format!("program-{number:04}")).collect();
        let many = LocalPreferences { exclusive_programs: many, ..Default::default() };
        assert_eq!(from_wire(to_wire(&many).as_ref()).unwrap().exclusive_programs.len(), LISTED);
    }

    #[test]
    fn r6_4_preferences_of_what_goes_on_around_a_host_that_cannot_be_meant_are_refused() {
        let refused = |change: fn(&mut wire::LocalPreferences)| {
            let mut local = wire::LocalPreferences::default();
            change(&mut local);
            let usual = preferences::to_wire(&Preferences::default());
            let bad = wire::Preferences { local: Some(local.into()), ..usual };
            preferences::from_wire(&bad).unwrap_err().to_string()
        };
        for (said, part) in [
            (refused(|bad| bad.cpu_fraction_in_use = Some(1.5)), "1.5"),
            (refused(|bad| bad.battery_charge_min = Some(f64::NAN)), "NaN"),
            (refused(|bad| bad.gpu_temperature_max = 7), "from 30 to 110"),
            (refused(|bad| bad.battery_temperature_max = 7), "from 20 to 100"),
            (refused(|bad| bad.stop_without_input_micros = -1), "from 1 min to 24 h"),
            (refused(|bad| bad.start_delay_micros = -1), "at most 24 h"),
            (refused(|bad| bad.disk_max_bytes = 1), "at least 100 MB"),
            (refused(|bad| bad.network_hours = "18-8".to_owned()), "18-8"),
            (refused(|bad| bad.other_network_max_bytes = 1), "at least 10 kB"),
            (refused(|bad| bad.upload_max_bytes = 1), "at least 1 kB"),
            (refused(|bad| bad.download_max_bytes = 1), "at least 1 kB"),
            (refused(|bad| bad.transfer_max_bytes = 1), "at least 1 MB"),
            (refused(|bad| bad.transfer_period_micros = 1), "whole days"),
            (refused(|bad| bad.excluded_of_projects = vec!["gpu".to_owned()]), "project URL"),
            (refused(|bad| bad.exclusive_programs = vec!["/bin/a".to_owned()]), "without a path"),
            (refused(|bad| bad.exclusive_gpu_programs = vec!["a".to_owned(); LISTED + 1]), "at most 300"),
        ] {
            assert!(said.contains(part), "{part} in: {said}");
        }
    }
}
