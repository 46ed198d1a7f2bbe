//! Whether the machine runs on its battery: what the kernel says of its power supplies, in `sysfs`.
//!
//! A machine is on its battery when it has one of its own (that of a mouse is none) and nothing feeds it from
//! outside. Where the kernel knows no such feed, the battery itself says that it is being emptied.

use std::fs;
use std::path::Path;

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
}
