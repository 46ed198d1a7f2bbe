//! GPUs of this host: which there are, and who is on them (R3.15).
//!
//! Model: drivers crash, hang and write over memory. So all that talks to one is a process of its own
//! (`fallow-agent gpus`, [`child`]), which says on its standard output what it found, a line of JSON each
//! time (`Said`). The agent reads lines of bounded length, waits a bounded time, and believes of what it
//! reads only what can be ([`Look::cleaned`]); where the process ends badly, the host has no GPUs, and all
//! else goes on.
//!
//! NVIDIA's management library (NVML) is loaded at run time, from where the system's loader finds it or from
//! where the owner of the host says. Every call of it is optional: drivers lack some, and cards do not
//! support others. A host where nothing hints at a GPU ([`is_worth_looking`]) starts no such process.
//!
//! Left out: devices that are parted by MIG, which have no number of their own.

pub mod child;
mod flops;
mod library;
mod nvml;
mod users;

use std::collections::BTreeSet;
use std::path::Path;

use fallow_domain::{Bytes, Coprocessor, CoprocessorDevice, ResourceType, Speed, printable};
use serde::{Deserialize, Serialize};

pub use library::check as check_library;
pub use users::strangers;

/// Longest line that the process says, in bytes.
pub const LINE_MAX: usize = 1 << 20;
/// Devices that are looked at; those that preferences can name.
const DEVICES_MAX: u32 = 64;
/// Processes that are looked at, on all devices together.
const PROCESSES_MAX: usize = 1_024;
/// Longest name of a device or address, in bytes.
const NAME_MAX: usize = 96;
/// More memory than this no device has: what says so says nonsense.
const MEMORY_MAX: Bytes = Bytes(1 << 46);
/// Higher temperatures than this no device has, in degrees Celsius: it would have switched itself off.
const DEGREES_MAX: u32 = 150;
/// A temperature is told again when it has changed by so many degrees: it goes up and down by one all the
/// time.
const DEGREES_TOLD: u32 = 2;
/// Higher numbers than this of anything else are nonsense.
const NUMBER_MAX: u32 = 1_000_000_000;

/// What the process says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// It looked.
    Look(Look),
    /// It could not, for this reason.
    Trouble(String),
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// The devices by kind.
    pub coprocessors: Vec<Coprocessor>,
    /// The processes on them, ours too.
    pub processes: Vec<OnDevice>,
    /// How hot those of them are that tell it.
    #[serde(default)]
    pub temperatures: Vec<Temperature>,
}

/// How hot a device is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Temperature {
    /// The kind of device.
    pub kind: ResourceType,
    /// Where the device is.
    pub address: String,
    /// Degrees Celsius.
    pub degrees: u32,
}

/// A process on a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OnDevice {
    /// The kind of device.
    pub kind: ResourceType,
    /// Where the device is.
    pub address: String,
    /// The process.
    pub pid: u32,
    /// It only draws; else it computes.
    pub draws: bool,
    /// What it holds of the device's memory.
    pub memory: Option<Bytes>,
}

impl Look {
    /// What of it can be: no more devices and processes than are looked at, each device once, names that can
    /// be shown, amounts that exist.
    #[must_use]
    pub fn cleaned(self) -> Self {
        let mut kinds = BTreeSet::new();
        let real = self.coprocessors.into_iter().filter(|one| one.kind.is_coprocessor());
        let coprocessors = real.filter(|one| kinds.insert(one.kind)).filter_map(|one| {
            let mut addresses = BTreeSet::new();
            let devices = one.devices.iter().take(DEVICES_MAX as usize).filter_map(device);
            let devices = devices.filter(|device| addresses.insert(device.address.clone())).collect();
            let driver = printable::line(&one.driver, NAME_MAX);
            Coprocessor::of_devices(one.kind, &driver, number(one.cuda_version), devices)
        });
        let shown = |one: OnDevice| OnDevice { address: printable::line(&one.address, NAME_MAX), ..one };
        Self {
            coprocessors: coprocessors.collect(),
            processes: self.processes.into_iter().take(PROCESSES_MAX).map(shown).collect(),
            temperatures: self
                .temperatures
                .into_iter()
                .filter(|one| one.degrees <= DEGREES_MAX)
                .take(DEVICES_MAX as usize)
                .map(|one| Temperature { address: printable::line(&one.address, NAME_MAX), ..one })
                .collect(),
        }
    }

    /// Whether it is not worth being said after another one, which was said last. What is free is not, and
    /// what processes hold and how hot devices are is only roughly.
    fn tells_as_much_as(&self, other: &Self) -> bool {
        let rough = |look: &Self| {
            let mut rough = look.clone();
            let devices = rough.coprocessors.iter_mut().flat_map(|one| &mut one.devices);
            devices.for_each(|device| device.free = Bytes(0));
            let held = rough.processes.iter_mut().filter_map(|one| one.memory.as_mut());
            held.for_each(|memory| memory.0 >>= 26);
            rough.temperatures.clear();
            rough
        };
        rough(self) == rough(other) && self.is_as_hot_as(other)
    }

    fn is_as_hot_as(&self, other: &Self) -> bool {
        let near = |(one, other): (&Temperature, &Temperature)| {
            one.address == other.address && one.degrees.abs_diff(other.degrees) < DEGREES_TOLD
        };
        self.temperatures.len() == other.temperatures.len()
            && self.temperatures.iter().zip(&other.temperatures).all(near)
    }
}

fn device(device: &CoprocessorDevice) -> Option<CoprocessorDevice> {
    let memory = if device.memory > MEMORY_MAX { Bytes(0) } else { device.memory };
    Some(CoprocessorDevice {
        number: number(device.number),
        address: printable::line(&device.address, NAME_MAX),
        model: printable::line(&device.model, NAME_MAX),
        speed: Speed::new(device.speed.get()).ok()?,
        memory,
        free: if device.free > memory { memory } else { device.free },
        compute: device.compute.filter(|(major, minor)| *major < 1_000 && *minor < 1_000),
        clock_khz: number(device.clock_khz),
        multiprocessors: number(device.multiprocessors),
    })
}

const fn number(number: u32) -> u32 {
    if number > NUMBER_MAX { 0 } else { number }
}

/// Whether something hints at a GPU that could be used: nobody has to be asked otherwise. `library` is where
/// the owner says that NVML is.
pub fn is_worth_looking(library: Option<&Path>) -> bool {
    const HINTS: [&str; 3] = ["/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/dxg"];
    library.is_some() || HINTS.iter().any(|path| Path::new(path).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nonsense(number: u32) -> CoprocessorDevice {
        CoprocessorDevice {
            number,
            address: format!("0000:{number:02x}:00.0\u{1b}[2J"),
            model: format!("\u{202e}{}", "x".repeat(1 << 20)),
            speed: Speed::new(1e12).unwrap(),
            memory: Bytes(u64::MAX),
            free: Bytes(u64::MAX),
            compute: Some((u32::MAX, 0)),
            clock_khz: u32::MAX,
            multiprocessors: 1,
        }
    }

    #[test]
    fn r3_15_of_nonsense_only_what_can_be_is_believed() {
        let one = Coprocessor::of_devices(
            ResourceType::Nvidia,
            "\u{7}1",
            u32::MAX,
            (0..200).chain(0..200).map(nonsense).collect(),
        )
        .unwrap();
        let process = OnDevice { kind: one.kind, address: "\n".into(), pid: 7, draws: false, memory: None };
        let temperature = |degrees| Temperature { kind: one.kind, address: "\n".into(), degrees };
        let look = Look {
            temperatures: (0..500).map(temperature).collect(),
            coprocessors: vec![one.clone(), one.clone(), Coprocessor { kind: ResourceType::Cpu, ..one }],
            processes: vec![process; 5_000],
        };
        let look = look.cleaned();
        let [kind] = look.coprocessors.as_slice() else { panic!("{}", look.coprocessors.len()) };
        assert_eq!((kind.count, kind.devices.len(), kind.cuda_version), (64, 64, 0));
        let device = &kind.devices[1];
        assert_eq!(
            (device.memory, device.free, device.compute, device.clock_khz),
            (Bytes(0), Bytes(0), None, 0)
        );
        assert!(device.model.len() <= NAME_MAX && !device.model.contains('\u{202e}'));
        assert_eq!(device.address, "0000:01:00.0\u{fffd}[2J");
        assert_eq!(look.processes.len(), PROCESSES_MAX);
        assert_eq!(look.temperatures.len(), DEVICES_MAX as usize);
        assert!(look.temperatures.iter().all(|one| one.degrees <= DEGREES_MAX && one.address != "\n"));
        assert!(serde_json::to_string(&look).unwrap().len() < LINE_MAX);
    }

    #[test]
    fn r3_15_a_temperature_is_told_again_when_it_has_changed_by_two_degrees() {
        let at = |degrees: Option<u32>| Look {
            temperatures: degrees
                .map(|degrees| Temperature { kind: ResourceType::Nvidia, address: "1".into(), degrees })
                .into_iter()
                .collect(),
            ..Look::default()
        };
        let told = at(Some(60));
        for (degrees, is_as_much) in
            [(Some(59), true), (Some(61), true), (Some(58), false), (Some(62), false), (None, false)]
        {
            assert_eq!(told.tells_as_much_as(&at(degrees)), is_as_much, "{degrees:?}");
        }
    }
}
