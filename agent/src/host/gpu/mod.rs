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
//! support others. AMD's and Intel's devices are those that the kernel shows (`sysfs`), with what OpenCL says
//! of them (`opencl`, which is asked by a process of its own again). A host where nothing hints at a GPU
//! ([`is_worth_looking`]) starts no such process.
//!
//! Left out: devices that are parted by MIG, which have no number of their own.

pub mod child;
mod fdinfo;
mod flops;
mod library;
mod nvml;
pub mod opencl;
mod others;
mod remembered;
mod shares;
mod sysfs;
mod unseen;
mod users;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fallow_domain::{Bytes, Coprocessor, CoprocessorDevice, OpenClDevice, ResourceType, Speed, printable};
use serde::{Deserialize, Serialize};

pub use library::{check as check_library, check_dir};
pub use unseen::unseen;
pub use users::strangers;

/// Where sysfs is.
pub const SYSFS: &str = "/sys";

/// Where devices are looked for.
#[derive(Clone, Debug)]
pub struct Sources {
    /// NVIDIA's management library, if not where the system's loader finds it.
    pub nvml: Option<PathBuf>,
    /// OpenCL's library, if not there.
    pub opencl: Option<PathBuf>,
    /// Where sysfs is.
    pub sysfs: PathBuf,
}

/// Longest line that the process says, in bytes.
pub const LINE_MAX: usize = 1 << 20;
/// Devices that are looked at; those that preferences can name.
const DEVICES_MAX: u32 = 64;
/// Processes that are looked at, on all devices together.
const PROCESSES_MAX: usize = 1_024;
/// Longest name of a device or address, in bytes.
const NAME_MAX: usize = 96;
/// Longest list of extensions, in bytes (BOINC has as much room).
const EXTENSIONS_MAX: usize = 2_047;
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
    /// How much of a device is used by all together, where that is known.
    #[serde(default)]
    pub loads: Vec<Load>,
    /// Why OpenCL could not be asked, if that was tried.
    #[serde(default)]
    pub opencl_trouble: Option<String>,
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

/// How much of a device is used, by whoever it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// The kind of device.
    pub kind: ResourceType,
    /// Where the device is.
    pub address: String,
    /// What is in use of the memory of its own.
    pub used: Option<Bytes>,
    /// How busy it was at each of the last two looks, of a hundred.
    pub busy: Option<u8>,
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
        let load = |one: Load| Load { address: printable::line(&one.address, NAME_MAX), ..one };
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
            loads: self.loads.into_iter().take(3 * DEVICES_MAX as usize).map(load).collect(),
            opencl_trouble: self.opencl_trouble.map(|why| printable::line(&why, 500)),
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
            for load in &mut rough.loads {
                load.used = load.used.map(|used| Bytes(used.0 >> 26));
                load.busy = load.busy.map(|busy| u8::from(busy >= unseen::BUSY));
            }
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
        opencl: device.opencl.as_deref().map(|opencl| Box::new(opencl_device(opencl))),
        unfit: device.unfit.as_ref().map(|why| printable::line(why, 600)),
    })
}

fn opencl_device(device: &OpenClDevice) -> OpenClDevice {
    let line = |text: &str| printable::line(text, NAME_MAX);
    let is_name = |word: &&str| word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let mut extensions = String::new();
    for word in device.extensions.split(' ').filter(|word| !word.is_empty()).filter(is_name) {
        if extensions.len() + word.len() < EXTENSIONS_MAX {
            extensions.push_str(if extensions.is_empty() { "" } else { " " });
            extensions.push_str(word);
        }
    }
    let memory = |bytes| if bytes > MEMORY_MAX { Bytes(0) } else { bytes };
    OpenClDevice {
        index: number(device.index),
        name: line(&device.name),
        vendor: line(&device.vendor),
        vendor_id: device.vendor_id,
        available: device.available,
        half: device.half,
        single: device.single,
        double: device.double,
        little_endian: device.little_endian,
        executes: device.executes,
        extensions,
        memory: memory(device.memory),
        local_memory: memory(device.local_memory),
        clock_mhz: number(device.clock_mhz),
        compute_units: number(device.compute_units),
        // BOINC has less room for it.
        platform_version: printable::line(&device.platform_version, 63),
        device_version: line(&device.device_version),
        driver_version: line(&device.driver_version),
    }
}

const fn number(number: u32) -> u32 {
    if number > NUMBER_MAX { 0 } else { number }
}

/// Whether something hints at a GPU that could be used: nobody has to be asked otherwise.
pub fn is_worth_looking(sources: &Sources) -> bool {
    const HINTS: [&str; 3] = ["/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/dxg"];
    sources.nvml.is_some()
        || HINTS.iter().any(|path| Path::new(path).exists())
        || sysfs::has_cards(&sources.sysfs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NVIDIA: ResourceType = ResourceType::Nvidia;

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
            opencl: Some(Box::new(OpenClDevice {
                name: "\u{1b}".repeat(1 << 16),
                extensions: format!("cl_khr_fp64 \"<x>\" {} {}", "y".repeat(3_000), "cl_z ".repeat(1 << 12)),
                memory: Bytes(u64::MAX),
                clock_mhz: u32::MAX,
                device_version: "\"".repeat(1 << 16),
                ..OpenClDevice::default()
            })),
            unfit: Some("\n".repeat(10_000)),
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
            coprocessors: [NVIDIA, NVIDIA, ResourceType::Cpu, ResourceType::Amd, ResourceType::Intel]
                .map(|kind| Coprocessor { kind, ..one.clone() })
                .to_vec(),
            processes: vec![process; 5_000],
            loads: vec![Load { kind: one.kind, address: "\n".into(), used: None, busy: Some(255) }; 5_000],
            opencl_trouble: Some("x".repeat(5_000)),
        };
        let look = look.cleaned();
        let [kind, _, _] = look.coprocessors.as_slice() else { panic!("{}", look.coprocessors.len()) };
        assert_eq!((kind.count, kind.devices.len(), kind.cuda_version), (0, 64, 0));
        let opencl = kind.devices[1].opencl.as_ref().unwrap();
        assert!(opencl.extensions.starts_with("cl_khr_fp64 cl_z cl_z ") && opencl.extensions.len() < 2_048);
        assert_eq!((opencl.memory, opencl.clock_mhz), (Bytes(0), 0));
        assert!(opencl.name.len() <= NAME_MAX && !opencl.name.contains('\u{1b}'));
        assert!(look.loads.len() <= 192 && look.opencl_trouble.as_ref().is_some_and(|why| why.len() == 500));
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
