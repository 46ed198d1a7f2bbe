//! GPUs of AMD and Intel as the kernel shows them below `/sys/class/drm` (R3.15). Only reads: no driver is
//! called on but by what sysfs shows, and nothing is read that would wake a card which sleeps.
//!
//! Left out: cards of other makers, those that only show pictures (`ast`, `mgag200`) and those of virtual
//! machines (`bochs`, `virtio`) among them; and what is no device of the bus.

use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use fallow_domain::{Bytes, ResourceType, printable};

use super::{DEVICES_MAX, MEMORY_MAX, NAME_MAX};

/// Names in the directory of cards that are looked at: connectors of screens stand there, too.
const NAMES_MAX: usize = 1_024;
/// Longest file that is read, in bytes.
const FILE_MAX: u64 = 4_096;

/// Where a device is on the bus: domain, bus, device, function.
pub(super) type Place = (u32, u32, u32, u32);

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Card {
    pub(super) place: Place,
    pub(super) kind: ResourceType,
    /// The kernel's driver, with its version where it has one of its own.
    pub(super) driver: String,
    /// As the kernel names it, or its number.
    pub(super) model: String,
    /// The memory of its own; none where it has none, or nothing says so.
    pub(super) memory: Option<Bytes>,
    /// What is in use of it, by whoever it is.
    pub(super) used: Option<Bytes>,
    /// How busy it is, of a hundred. None while it sleeps.
    pub(super) busy: Option<u8>,
}

impl Card {
    /// The name of its place, such as `0000:03:00.0`.
    pub(super) fn address(&self) -> String {
        let (domain, bus, device, function) = self.place;
        format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

/// Reads the name of a place.
pub(super) fn place(address: &str) -> Option<Place> {
    let (domain, rest) = address.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let number = |text: &str, digits: usize| {
        let is_short =
            !text.is_empty() && text.len() <= digits && text.bytes().all(|b| b.is_ascii_hexdigit());
        is_short.then(|| u32::from_str_radix(text, 16).ok()).flatten()
    };
    Some((number(domain, 8)?, number(bus, 2)?, number(device, 2)?, number(function, 1)?))
}

/// The GPUs of AMD and Intel in the order of the bus. `root` is where sysfs is.
pub(super) fn cards(root: &Path) -> Vec<Card> {
    let mut cards: Vec<Card> = devices(root).filter_map(|device| card(root, &device)).collect();
    cards.sort_by_key(|card| card.place);
    cards.dedup_by_key(|card| card.place);
    cards.truncate(DEVICES_MAX as usize);
    cards
}

/// Whether there is one.
pub(super) fn has_cards(root: &Path) -> bool {
    devices(root).any(|device| card(root, &device).is_some())
}

/// The devices behind what are cards by their names.
fn devices(root: &Path) -> impl Iterator<Item = std::path::PathBuf> {
    let names = fs::read_dir(root.join("class/drm")).into_iter().flatten().take(NAMES_MAX).flatten();
    names.filter_map(|entry| {
        let name = entry.file_name();
        let number = name.to_str()?.strip_prefix("card")?;
        let is_card = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        is_card.then(|| entry.path().join("device"))
    })
}

fn card(root: &Path, device: &Path) -> Option<Card> {
    // What the kernel tells of it, a line each: driver, maker and model, place.
    let told = text(&device.join("uevent"))?;
    let of = |key: &str| told.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let (maker, model) = of("PCI_ID")?.split_once(':')?;
    let kind = match maker {
        "1002" => ResourceType::Amd,
        "8086" => ResourceType::Intel,
        _ => return None,
    };
    let place = place(of("PCI_SLOT_NAME")?)?;
    // Without a driver nobody computes on it.
    let driver = printable::line(of("DRIVER")?, NAME_MAX / 2);
    let version = Some(&driver).filter(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'));
    let version = version.and_then(|name| text(&root.join("module").join(name).join("version")));
    let named = text(&device.join("product_name")).filter(|name| !name.is_empty());
    let sleeps = text(&device.join("power/runtime_status")).is_some_and(|status| status == "suspended");
    let awake = |name: &str| if sleeps { None } else { number(&device.join(name)) };
    let memory = number(&device.join("mem_info_vram_total")).map(Bytes);
    Some(Card {
        place,
        kind,
        model: named.unwrap_or_else(|| format!("{kind} {}", printable::line(model, 4).to_lowercase())),
        driver: match version {
            Some(version) => printable::line(&format!("{driver} {version}"), NAME_MAX),
            None => driver,
        },
        memory: memory.filter(|bytes| *bytes > Bytes(0) && *bytes <= MEMORY_MAX),
        used: awake("mem_info_vram_used").map(Bytes).filter(|bytes| *bytes <= MEMORY_MAX),
        busy: awake("gpu_busy_percent").and_then(|part| u8::try_from(part).ok()).filter(|part| *part <= 100),
    })
}

fn number(path: &Path) -> Option<u64> {
    text(path)?.parse().ok()
}

/// The text of a file of sysfs, without blanks around it. None for what is no file, and for one that is too
/// long to be one of sysfs.
pub(super) fn text(path: &Path) -> Option<String> {
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits();
    let file = OpenOptions::new().read(true).custom_flags(nonblock.cast_signed()).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(FILE_MAX + 1).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8(bytes).ok().filter(|text| text.len() as u64 <= FILE_MAX)?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A card as the kernel shows it: its directory with these files, and a link to it.
    fn put(root: &Path, card: &str, slot: &str, id: &str, driver: &str, files: &[(&str, &str)]) {
        let device = root.join("devices/pci0000:00").join(slot);
        fs::create_dir_all(device.join("power")).unwrap();
        let told = format!("DRIVER={driver}\nPCI_CLASS=30000\nPCI_ID={id}\nPCI_SLOT_NAME={slot}\n");
        fs::write(device.join("uevent"), told).unwrap();
        for (name, text) in files {
            fs::write(device.join(name), text).unwrap();
        }
        let place = root.join("class/drm").join(card);
        fs::create_dir_all(&place).unwrap();
        symlink(device, place.join("device")).unwrap();
    }

    #[test]
    fn r3_15_cards_of_amd_and_intel_are_told_in_the_order_of_the_bus_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        assert_eq!(cards(root), [], "there is nothing");
        let amd = [
            ("mem_info_vram_total", "17163091968\n"),
            ("mem_info_vram_used", "30000000\n"),
            ("gpu_busy_percent", "7\n"),
            ("product_name", "Radeon Pro W7900\n"),
        ];
        put(root, "card1", "0000:c3:00.0", "1002:744C", "amdgpu", &amd);
        put(root, "card0", "0000:00:02.0", "8086:A780", "i915", &[]);
        for (card, slot, id, driver) in [
            ("card2", "0000:02:00.0", "1234:1111", "bochs-drm"),
            ("card3", "0000:04:00.0", "1AF4:1050", "virtio-pci"),
            ("card4", "0000:05:00.0", "1A03:2000", "ast"),
            ("card5", "0000:06:00.0", "102B:0522", "mgag200"),
            ("card6", "0000:07:00.0", "10DE:2204", "nvidia"),
        ] {
            put(root, card, slot, id, driver, &[]);
        }
        // A connector of a screen, and a node: not the card again.
        put(root, "card1-DP-1", "0000:c4:00.0", "1002:744C", "amdgpu", &[]);
        put(root, "renderD128", "0000:c5:00.0", "1002:744C", "amdgpu", &[]);
        fs::create_dir_all(root.join("module/amdgpu")).unwrap();
        fs::write(root.join("module/amdgpu/version"), "6.8.5\n").unwrap();
        let [intel, amd]: [Card; 2] = cards(root).try_into().unwrap();
        assert_eq!((intel.address().as_str(), intel.kind), ("0000:00:02.0", ResourceType::Intel));
        assert_eq!((intel.model.as_str(), intel.memory, intel.busy), ("Intel GPU a780", None, None));
        assert_eq!((amd.address().as_str(), amd.kind), ("0000:c3:00.0", ResourceType::Amd));
        assert_eq!((amd.model.as_str(), amd.driver.as_str()), ("Radeon Pro W7900", "amdgpu 6.8.5"));
        assert_eq!(
            (amd.memory, amd.used, amd.busy),
            (Some(Bytes(17_163_091_968)), Some(Bytes(30_000_000)), Some(7))
        );
        assert!(has_cards(root));
    }

    #[test]
    fn r3_15_a_card_that_sleeps_is_not_asked_what_it_does() {
        let dir = tempfile::tempdir().unwrap();
        let files =
            [("mem_info_vram_used", "5"), ("gpu_busy_percent", "5"), ("power/runtime_status", "suspended\n")];
        put(dir.path(), "card0", "0000:03:00.0", "1002:744c", "amdgpu", &files);
        let [card]: [Card; 1] = cards(dir.path()).try_into().unwrap();
        assert_eq!((card.used, card.busy), (None, None));
    }

    #[test]
    fn r3_15_nonsense_in_sysfs_is_no_card_and_ends() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let huge = "9".repeat(60);
        let files = [
            ("mem_info_vram_total", huge.as_str()),
            ("mem_info_vram_used", "-1"),
            ("gpu_busy_percent", "250"),
            ("product_name", "\u{1b}[2J"),
        ];
        put(root, "card0", "0000:01:00.0", "1002:1", "amdgpu", &files);
        put(root, "card1", "../../etc", "1002:1", "amdgpu", &[]);
        put(root, "card2", "0000:02:00.0", "1002", "amdgpu", &[]);
        put(root, "card99999999999999999999", "0000:03:00.0", "8086:1", "../../etc", &[]);
        let drm = root.join("class/drm");
        // A link in a circle, a directory and a pipe in place of the file, a file in place of the card.
        symlink(drm.join("card3"), drm.join("card3")).unwrap();
        fs::create_dir_all(drm.join("card4/device/uevent")).unwrap();
        fs::create_dir_all(drm.join("card5/device")).unwrap();
        let pipe = rustix::fs::CWD;
        rustix::fs::mknodat(
            pipe,
            drm.join("card5/device/uevent"),
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        fs::write(drm.join("card6"), "").unwrap();
        fs::create_dir_all(drm.join("card7/device")).unwrap();
        fs::write(drm.join("card7/device/uevent"), "PCI_ID=1002:1\n".repeat(1 << 16)).unwrap();
        let found = cards(root);
        let places: Vec<String> = found.iter().map(Card::address).collect();
        assert_eq!(places, ["0000:01:00.0", "0000:03:00.0"]);
        assert_eq!((found[0].memory, found[0].used, found[0].busy), (None, None, None));
    }

    #[test]
    fn r3_15_of_ten_thousand_cards_no_more_are_looked_at_than_can_be_named() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..10_000_u32 {
            let slot = format!("{:04x}:{:02x}:00.0", number / 256, number % 256);
            put(dir.path(), &format!("card{number}"), &slot, "1002:744c", "amdgpu", &[]);
        }
        let begun = std::time::Instant::now();
        assert_eq!(cards(dir.path()).len(), DEVICES_MAX as usize);
        assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{:?}", begun.elapsed());
    }

    #[test]
    fn r3_15_places_are_read_as_the_kernel_writes_them() {
        assert_eq!(place("0000:c3:00.1"), Some((0, 0xc3, 0, 1)));
        for bad in ["", "0000:c3:00", "c3:00.0", "0000:c3c:00.0", "0000:+3:00.0", "0000:c3:00.0.0"] {
            assert_eq!(place(bad), None, "{bad}");
        }
    }
}
