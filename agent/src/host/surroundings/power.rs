//! Whether the machine runs on its battery, how far that is charged and how hot it is: what the kernel says
//! of its power supplies, in `sysfs`.
//!
//! A machine is on its battery when it has one of its own (that of a mouse is none) and nothing feeds it from
//! outside. Where the kernel knows no such feed, the battery itself says that it is being emptied. Of several
//! batteries the mean of their charges counts, and the hottest one.

use std::fs;
use std::path::Path;

use fallow_domain::Fraction;

/// Most supplies that are looked at.
const SUPPLIES_MAX: usize = 64;

/// What one supply says.
#[derive(Debug)]
struct Supply {
    kind: String,
    /// It belongs to a device, such as a mouse.
    is_of_device: bool,
    status: String,
    is_online: bool,
    /// Percent.
    capacity: Option<u32>,
    /// Tenths of a degree Celsius.
    temperature: Option<i32>,
}

fn supplies(dir: &Path) -> Vec<Supply> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().take(SUPPLIES_MAX);
    let supply = |path: &Path| {
        let read = |name| fs::read_to_string(path.join(name)).unwrap_or_default().trim().to_owned();
        Supply {
            kind: read("type"),
            is_of_device: read("scope") == "Device",
            status: read("status"),
            is_online: !matches!(read("online").as_str(), "" | "0"),
            capacity: read("capacity").parse().ok(),
            temperature: read("temp").parse().ok(),
        }
    };
    entries.map(|entry| supply(&entry.path())).filter(|one| !one.is_of_device).collect()
}

fn is_battery(supply: &Supply) -> bool {
    supply.kind == "Battery"
}

/// Whether the machine has a battery of its own.
pub(super) fn has_battery(dir: &Path) -> bool {
    supplies(dir).iter().any(is_battery)
}

/// Whether it runs on it.
pub(super) fn is_on_battery(dir: &Path) -> bool {
    let all = supplies(dir);
    let mut feeds =
        all.iter().filter(|one| matches!(one.kind.as_str(), "Mains" | "USB" | "Wireless")).peekable();
    if !all.iter().any(is_battery) {
        return false;
    }
    match feeds.peek() {
        // Some feeds never say that they are there: a battery that is being filled knows better.
        Some(_) => {
            let fills = all.iter().any(|one| is_battery(one) && one.status == "Charging");
            !fills && !feeds.any(|feed| feed.is_online)
        }
        None => all.iter().filter(|one| is_battery(one)).any(|one| one.status == "Discharging"),
    }
}

/// How far the machine's battery is charged, if it has one that tells it.
pub(super) fn charge(dir: &Path) -> Option<Fraction> {
    let told: Vec<u32> =
        supplies(dir).iter().filter(|one| is_battery(one)).filter_map(|one| one.capacity).collect();
    let sum: f64 = told.iter().map(|percent| f64::from((*percent).min(100))).sum();
    (!told.is_empty()).then(|| Fraction::clamped(sum / told.len() as f64 / 100.0))
}

/// How hot it is in degrees Celsius, rounded up; nothing is colder than 0.
pub(super) fn temperature(dir: &Path) -> Option<u32> {
    let hottest =
        supplies(dir).iter().filter(|one| is_battery(one)).filter_map(|one| one.temperature).max()?;
    Some(u32::try_from(hottest).unwrap_or(0).div_ceil(10))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with these supplies: name, and the files that it has.
    fn machine(supplies: &[(&str, &[(&str, &str)])]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, files) in supplies {
            let place = dir.path().join(name);
            fs::create_dir(&place).unwrap();
            files.iter().for_each(|(file, text)| fs::write(place.join(file), format!("{text}\n")).unwrap());
        }
        dir
    }

    #[test]
    fn r6_4_a_machine_is_on_its_battery_when_nothing_feeds_it_from_outside() {
        let battery = |status| [("type", "Battery"), ("status", status)];
        let (empties, full, fills) = (battery("Discharging"), battery("Full"), battery("Charging"));
        let mains = |online| [("type", "Mains"), ("online", online)];
        let (on, off) = (mains("1"), mains("0"));
        let mouse = [("type", "Battery"), ("scope", "Device"), ("status", "Discharging")];
        for (supplies, expected) in [
            (vec![], false),
            (vec![("AC", &on[..])], false),
            (vec![("AC", &off[..])], false),
            (vec![("AC", &on[..]), ("BAT0", &empties[..])], false),
            (vec![("AC", &off[..]), ("BAT0", &full[..])], true),
            (vec![("USB", &[("type", "USB"), ("online", "0")][..]), ("BAT0", &fills[..])], false),
            (vec![("BAT0", &empties[..])], true),
            (vec![("BAT0", &full[..])], false),
            (vec![("hid", &mouse[..])], false),
            (vec![("AC", &on[..]), ("hid", &mouse[..])], false),
            (
                vec![
                    ("AC", &off[..]),
                    ("USB", &[("type", "USB"), ("online", "2")][..]),
                    ("BAT0", &empties[..]),
                ],
                false,
            ),
        ] {
            let dir = machine(&supplies);
            assert_eq!(is_on_battery(dir.path()), expected, "{supplies:?}");
        }
        assert!(!is_on_battery(Path::new("/nowhere")) && !has_battery(Path::new("/nowhere")));
    }

    #[test]
    fn r6_4_the_charge_and_the_heat_are_those_of_the_machines_own_batteries() {
        let battery = |capacity, temp| [("type", "Battery"), ("capacity", capacity), ("temp", temp)];
        let (low, high) = (battery("40", "301"), battery("80", "455"));
        let mouse = [("type", "Battery"), ("scope", "Device"), ("capacity", "3"), ("temp", "900")];
        let mains = [("type", "Mains"), ("capacity", "7"), ("temp", "700")];
        let (odd, silent) = (battery("lots", "hot"), [("type", "Battery")]);
        let (over, cold) = (battery("101", "400"), battery("-1", "-50"));
        for (supplies, charge, degrees) in [
            (vec![], None, None),
            (vec![("BAT0", &low[..])], Some(0.4), Some(31)),
            (vec![("BAT0", &low[..]), ("BAT1", &high[..])], Some(0.6), Some(46)),
            (vec![("BAT0", &low[..]), ("BAT1", &silent[..])], Some(0.4), Some(31)),
            (vec![("BAT0", &low[..]), ("hid", &mouse[..]), ("AC", &mains[..])], Some(0.4), Some(31)),
            (vec![("BAT0", &odd[..])], None, None),
            (vec![("BAT0", &over[..])], Some(1.0), Some(40)),
            (vec![("BAT0", &cold[..])], None, Some(0)),
        ] {
            let dir = machine(&supplies);
            let found = (super::charge(dir.path()), temperature(dir.path()));
            assert_eq!(found, (charge.map(Fraction::clamped), degrees), "{supplies:?}");
        }
    }
}
