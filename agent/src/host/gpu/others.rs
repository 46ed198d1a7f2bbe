//! GPUs of AMD and Intel: what sysfs and OpenCL say of them put together (R3.15).
//!
//! Model: sysfs says which there are, and where. OpenCL, which projects' programs need, says what each can;
//! it is asked when there are other devices than before, and again after a while where it could not be. A
//! device that OpenCL does not know is shown with the reason, and no project is told of it, as BOINC does.
//! NVIDIA's devices are there without OpenCL, too; what it says of them is told beside.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use fallow_domain::{Bytes, Coprocessor, CoprocessorDevice, ResourceType};

use super::opencl::{self, Asked, Found};
use super::shares::Shares;
use super::sysfs::{self, Card, Place};
use super::{Load, Look, OnDevice, PROCESSES_MAX, fdinfo, flops};

/// After how long OpenCL is asked again where it could not be, or lacks devices.
const AGAIN: Duration = Duration::from_secs(600);

/// Who looks, and what OpenCL said last.
#[derive(Debug)]
pub(super) struct Others<'a> {
    library: Option<&'a Path>,
    sysfs: &'a Path,
    limit: Duration,
    shares: Shares,
    asked: Option<(BTreeSet<Place>, Instant, Asked)>,
}

/// What was seen without asking anybody.
#[derive(Debug, Default)]
pub(super) struct Seen {
    cards: Vec<Card>,
    processes: Vec<OnDevice>,
    loads: Vec<Load>,
}

impl<'a> Others<'a> {
    /// Nothing was seen yet. OpenCL has `limit` to answer.
    pub(super) fn new(library: Option<&'a Path>, sysfs: &'a Path, limit: Duration) -> Self {
        Self { library, sysfs, limit, shares: Shares::default(), asked: None }
    }

    /// Looks at what the kernel shows. Who is on the devices is looked at only where there are some.
    pub(super) fn look(&mut self) -> Seen {
        let cards = sysfs::cards(self.sysfs);
        if cards.is_empty() {
            return Seen::default();
        }
        let held = fdinfo::holders(Path::new("/proc"));
        let (processes, loads) = self.shares.seen(&cards, held, Instant::now());
        Seen { cards, processes, loads }
    }

    /// What was found of NVIDIA's devices with the others beside them.
    pub(super) fn beside(&mut self, mut look: Look, seen: Seen) -> Look {
        let nvidia = look.coprocessors.iter().flat_map(|one| &one.devices);
        let nvidia = nvidia.filter_map(|device| sysfs::place(&device.address));
        let places: BTreeSet<Place> = seen.cards.iter().map(|card| card.place).chain(nvidia).collect();
        if places.is_empty() {
            return look;
        }
        let asked = self.ask(places);
        for kind in look.coprocessors.iter_mut().filter(|one| one.kind == ResourceType::Nvidia) {
            add_opencl(&mut kind.devices, &found_of(asked, ResourceType::Nvidia));
        }
        for kind in [ResourceType::Amd, ResourceType::Intel] {
            look.coprocessors.extend(coprocessor(kind, &seen.cards, asked));
        }
        if let Asked::Trouble(why) = asked {
            look.opencl_trouble = Some(why.clone());
        }
        look.processes.extend(seen.processes);
        look.processes.truncate(PROCESSES_MAX);
        look.loads = seen.loads;
        look
    }

    fn ask(&mut self, places: BTreeSet<Place>) -> &Asked {
        let is_old = match &self.asked {
            None => true,
            Some((of, at, asked)) => {
                let lacks = !matches!(asked, Asked::Devices(found) if found.len() >= places.len());
                *of != places || (lacks && at.elapsed() >= AGAIN)
            }
        };
        if is_old {
            self.asked = None;
        }
        let (library, limit) = (self.library, self.limit);
        let asked = self.asked.get_or_insert_with(|| (places, Instant::now(), opencl::ask(library, limit)));
        &asked.2
    }
}

fn found_of(asked: &Asked, kind: ResourceType) -> Vec<&Found> {
    let Asked::Devices(all) = asked else { return Vec::new() };
    all.iter().filter(|one| one.kind == kind).collect()
}

/// For each place what OpenCL knows there: by the place if it says that, else by the order of the bus. Each
/// comes with its number among those of OpenCL, from 0.
fn matched<'a>(places: &[Option<Place>], found: &[&'a Found]) -> Vec<Option<(u32, &'a Found)>> {
    let numbered = || (0..).zip(found.iter().copied());
    let mut without = numbered().filter(|(_, one)| one.place.is_none());
    let by_place = |place: &Option<Place>| numbered().find(|(_, one)| place.is_some() && one.place == *place);
    let first: Vec<_> = places.iter().map(by_place).collect();
    first.into_iter().map(|one| one.or_else(|| without.next())).collect()
}

fn add_opencl(devices: &mut [CoprocessorDevice], found: &[&Found]) {
    let places: Vec<_> = devices.iter().map(|device| sysfs::place(&device.address)).collect();
    for (device, one) in devices.iter_mut().zip(matched(&places, found)) {
        device.opencl = one.map(|(_, one)| Box::new(one.device.clone()));
    }
}

fn coprocessor(kind: ResourceType, cards: &[Card], asked: &Asked) -> Option<Coprocessor> {
    let cards: Vec<&Card> = cards.iter().filter(|card| card.kind == kind).collect();
    let places: Vec<_> = cards.iter().map(|card| Some(card.place)).collect();
    let matched = matched(&places, &found_of(asked, kind));
    let devices = cards.iter().zip(&matched).filter_map(|(card, one)| device(card, *one, asked));
    let driver = matched.iter().flatten().map(|(_, one)| one.device.driver_version.clone()).next();
    let driver = driver.or_else(|| cards.first().map(|card| card.driver.clone())).unwrap_or_default();
    Coprocessor::of_devices(kind, &driver, 0, devices.collect())
}

fn device(card: &Card, found: Option<(u32, &Found)>, asked: &Asked) -> Option<CoprocessorDevice> {
    let opencl = found.map(|(_, one)| &one.device);
    // An integrated one has what OpenCL says of the machine's memory.
    let memory = opencl.map(|opencl| opencl.memory).or(card.memory).unwrap_or_default();
    let unfit = match (opencl, asked) {
        (Some(opencl), _) if opencl.available => None,
        (Some(_), _) => Some("OpenCL says that it is not available".to_owned()),
        (None, Asked::Absent) => Some("OpenCL is not installed (libOpenCL.so.1)".to_owned()),
        (None, Asked::Trouble(why)) => Some(format!("OpenCL cannot be asked: {why}")),
        (None, Asked::Devices(_)) => Some(
            "OpenCL does not know it: its driver for OpenCL is not installed, or may not open the device"
                .into(),
        ),
    };
    Some(CoprocessorDevice {
        number: found.map_or(0, |(number, _)| number),
        address: card.address(),
        model: opencl.map_or_else(|| card.model.clone(), |opencl| opencl.name.clone()),
        speed: found.map_or_else(flops::unknown, |(_, one)| Some(one.speed))?,
        memory,
        free: Bytes(memory.0.saturating_sub(card.used.unwrap_or_default().0)),
        compute: None,
        clock_khz: opencl.map_or(0, |opencl| opencl.clock_mhz.saturating_mul(1_000)),
        multiprocessors: opencl.map_or(0, |opencl| opencl.compute_units),
        opencl: opencl.map(|opencl| Box::new(opencl.clone())),
        unfit,
    })
}

#[cfg(test)]
mod tests {
    use fallow_domain::{OpenClDevice, Speed};

    use super::*;

    fn card(bus: u32) -> Card {
        Card {
            place: (0, bus, 0, 0),
            kind: ResourceType::Amd,
            driver: "amdgpu".into(),
            model: "AMD GPU 744c".into(),
            memory: Some(Bytes::from_mebibytes(8_000)),
            used: Some(Bytes::from_mebibytes(1_000)),
            busy: None,
        }
    }

    fn found(index: u32, bus: Option<u32>) -> Found {
        let memory = Bytes::from_mebibytes(8_000);
        Found {
            kind: ResourceType::Amd,
            place: bus.map(|bus| (0, bus, 0, 0)),
            speed: Speed::new(1e12).unwrap(),
            device: OpenClDevice {
                index,
                name: format!("Radeon {index}"),
                available: true,
                memory,
                ..OpenClDevice::default()
            },
        }
    }

    /// Model, number and place in OpenCL's order of each device.
    fn told(cards: &[Card], asked: &Asked) -> Vec<(String, u32, Option<u32>)> {
        let kind = coprocessor(ResourceType::Amd, cards, asked).unwrap();
        let of = |one: &CoprocessorDevice| {
            (one.model.clone(), one.number, one.opencl.as_ref().map(|opencl| opencl.index))
        };
        kind.devices.iter().map(of).collect()
    }

    #[test]
    fn r3_15_devices_of_opencl_are_matched_by_their_place_and_else_by_their_order() {
        let cards = [card(1), card(2), card(3)];
        let radeon = |index: u32, number| (format!("Radeon {index}"), number, Some(index));
        let unknown = || ("AMD GPU 744c".to_owned(), 0, None);
        let by_place = Asked::Devices(vec![found(5, Some(3)), found(6, Some(1))]);
        assert_eq!(told(&cards, &by_place), [radeon(6, 1), unknown(), radeon(5, 0)]);
        let by_order = Asked::Devices(vec![found(0, None), found(1, None)]);
        assert_eq!(told(&cards, &by_order), [radeon(0, 0), radeon(1, 1), unknown()]);
        let mixed = Asked::Devices(vec![found(0, None), found(1, Some(1))]);
        assert_eq!(told(&cards, &mixed), [radeon(1, 1), radeon(0, 0), unknown()]);
        let elsewhere = Asked::Devices(vec![found(0, Some(9))]);
        assert_eq!(told(&cards[..1], &elsewhere), [unknown()]);
    }

    #[test]
    fn r3_15_a_device_without_opencl_says_why_no_project_is_told_of_it() {
        let why = |asked: &Asked| {
            let kind = coprocessor(ResourceType::Amd, &[card(1)], asked).unwrap();
            assert_eq!(kind.count, u32::from(kind.devices[0].is_fit()));
            kind.devices[0].unfit.clone().unwrap_or_default()
        };
        assert_eq!(why(&Asked::Absent), "OpenCL is not installed (libOpenCL.so.1)");
        assert_eq!(why(&Asked::Trouble("it crashed".into())), "OpenCL cannot be asked: it crashed");
        assert!(why(&Asked::Devices(Vec::new())).contains("does not know it"));
        let mut off = found(0, Some(1));
        off.device.available = false;
        assert!(why(&Asked::Devices(vec![off])).contains("not available"));
        assert_eq!(why(&Asked::Devices(vec![found(0, Some(1))])), "");
    }

    #[test]
    fn r3_15_what_others_hold_of_a_devices_memory_is_not_free() {
        let kind = coprocessor(ResourceType::Amd, &[card(1)], &Asked::Devices(vec![found(0, None)])).unwrap();
        assert_eq!(kind.devices[0].free, Bytes::from_mebibytes(7_000));
    }
}
