//! What OpenCL says of GPUs, which projects' programs for AMD's and Intel's need (R3.15).
//!
//! Model: OpenCL is whatever drivers are installed, in one library's process. So it is asked by a process of
//! its own (`fallow-agent opencl`), once, with a limit of time: if it crashes or hangs, what else was found
//! is as it was.
//!
//! Of several platforms that know a device the first counts, as for a program that BOINC's library finds its
//! device for: that takes the first platform whose device at the place that the client names is of the
//! wanted maker. One that it would not find is not told of.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use fallow_domain::{Bytes, OpenClDevice, ResourceType, Speed};
use serde::{Deserialize, Serialize};

use super::flops;
use super::sysfs::Place;
use super::{DEVICES_MAX, LINE_MAX};
use crate::sys::opencl::{Device, OpenCl};
use crate::sys::{self, Urgency};

/// A GPU that OpenCL knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Found {
    pub(super) kind: ResourceType,
    /// Where it is, if OpenCL says that.
    pub(super) place: Option<Place>,
    /// Its peak speed as BOINC reckons it.
    pub(super) speed: Speed,
    pub(super) device: OpenClDevice,
}

/// What came of asking, which is also what the process says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Asked {
    /// OpenCL knows these, in its order.
    Devices(Vec<Found>),
    /// It is not installed.
    Absent,
    /// It could not be asked, for this reason.
    Trouble(String),
}

/// Asks, and says what was found on standard output: what the process does.
///
/// # Errors
/// An I/O error of the operating system, when nobody can be told.
pub fn run(library: Option<&Path>) -> io::Result<()> {
    let mut said = super::child::only_output()?;
    std::thread::spawn(|| {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        sys::exit_at_once(0);
    });
    let checked = library.map_or(Ok(()), super::check_library);
    let answer = match checked.and_then(|()| OpenCl::load(library)) {
        Ok(Some(opencl)) => devices(&opencl).map_or_else(Asked::Trouble, Asked::Devices),
        Ok(None) => Asked::Absent,
        Err(why) => Asked::Trouble(why),
    };
    said.write_all(serde_json::to_string(&answer)?.as_bytes())?;
    said.flush()?;
    // What drivers do at the end of a process is nobody's business.
    sys::exit_at_once(0)
}

/// Has a process ask. It has so long to answer.
pub(super) fn ask(library: Option<&Path>, limit: Duration) -> Asked {
    match answer(library, limit) {
        Ok(Asked::Trouble(why)) | Err(why) => Asked::Trouble(fallow_domain::printable::line(&why, 500)),
        Ok(answer) => answer,
    }
}

fn answer(library: Option<&Path>, limit: Duration) -> Result<Asked, String> {
    let fail = |error: io::Error| format!("the process that asks it: {error}");
    // The very program that runs, also when its file was replaced meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.arg("opencl").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    if let Some(library) = library {
        command.arg("--opencl-library").arg(library);
    }
    sys::isolate(&mut command, Urgency::Low, None);
    let mut child = command.spawn().map_err(fail)?;
    // Held open until it has ended: by its end it knows that nobody waits any more.
    let line = child.stdin.take();
    let out = child.stdout.take().ok_or("it has no output")?;
    let (to, said) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = out.take(LINE_MAX as u64).read_to_end(&mut bytes);
        let _ = to.send(bytes);
    });
    let bytes = said.recv_timeout(limit);
    drop(line);
    if bytes.as_ref().is_ok_and(Vec::is_empty) {
        let status = child.wait().map_err(fail)?;
        return Err(format!("the process that asks it ended with {status}"));
    }
    let _ = child.kill();
    // A driver may keep it from ending. Nobody waits for that.
    std::thread::spawn(move || child.wait());
    let bytes = bytes.map_err(|_| format!("it has not answered for {} s", limit.as_secs_f32()))?;
    serde_json::from_slice(&bytes).map_err(|error| format!("what it says is nonsense: {error}"))
}

fn devices(opencl: &OpenCl) -> Result<Vec<Found>, String> {
    let platforms = opencl.platforms().map_err(|error| format!("it tells no platforms: error {error}"))?;
    let mut all: Vec<Found> = Vec::new();
    for platform in platforms {
        let version = opencl.platform_text(platform, PLATFORM_VERSION).unwrap_or_default();
        // One that cannot say which devices it has is no reason not to ask the others.
        for (index, device) in (0..).zip(opencl.gpus(platform).unwrap_or_default()) {
            let Some(found) = found(opencl, device, index, &version) else { continue };
            let is_known = |other: &Found| other.place.is_some() && other.place == found.place;
            let is_hidden = |other: &Found| other.kind == found.kind && other.device.index == index;
            let is_new = !all.iter().any(|other| is_known(other) || is_hidden(other));
            if is_new && all.len() < 3 * DEVICES_MAX as usize {
                all.push(found);
            }
        }
    }
    Ok(all)
}

const PLATFORM_VERSION: u32 = 0x0901;
const VENDOR_ID: u32 = 0x1001;
const MAX_COMPUTE_UNITS: u32 = 0x1002;
const MAX_CLOCK_FREQUENCY: u32 = 0x100c;
const SINGLE_FP_CONFIG: u32 = 0x101b;
const GLOBAL_MEM_SIZE: u32 = 0x101f;
const LOCAL_MEM_SIZE: u32 = 0x1023;
const ENDIAN_LITTLE: u32 = 0x1026;
const AVAILABLE: u32 = 0x1027;
const EXECUTION_CAPABILITIES: u32 = 0x1029;
const NAME: u32 = 0x102b;
const VENDOR: u32 = 0x102c;
const DRIVER_VERSION: u32 = 0x102d;
const VERSION: u32 = 0x102f;
const EXTENSIONS: u32 = 0x1030;
const DOUBLE_FP_CONFIG: u32 = 0x1032;
const HALF_FP_CONFIG: u32 = 0x1033;
/// Of extension `cl_khr_pci_bus_info`: four numbers.
const PCI_BUS_INFO: u32 = 0x410f;
/// Of `cl_nv_device_attribute_query`.
const NV_PCI_BUS: u32 = 0x4008;
const NV_PCI_SLOT: u32 = 0x4009;
const NV_PCI_DOMAIN: u32 = 0x400a;
/// Of `cl_amd_device_attribute_query`: a number that is 1 for the bus, 17 bytes, bus, device and function.
const AMD_TOPOLOGY: u32 = 0x4037;
const AMD_BOARD_NAME: u32 = 0x4038;
const AMD_SIMD_PER_COMPUTE_UNIT: u32 = 0x4040;
const AMD_SIMD_WIDTH: u32 = 0x4041;
const AMD_SIMD_INSTRUCTION_WIDTH: u32 = 0x4042;

/// What a device says, if it is one of a maker that projects have programs for.
fn found(opencl: &OpenCl, device: Device, index: u32, platform_version: &str) -> Option<Found> {
    let text = |what| opencl.device_text(device, what);
    let small = |what| opencl.device_bytes(device, what).map(u32::from_ne_bytes);
    let large = |what| opencl.device_bytes(device, what).map(u64::from_ne_bytes);
    let vendor = text(VENDOR)?;
    let kind = maker(&vendor)?;
    let extensions = text(EXTENSIONS).unwrap_or_default();
    let has = |name: &str| extensions.split(' ').any(|one| one == name);
    let queries_amd = has("cl_amd_device_attribute_query");
    let board = queries_amd.then(|| text(AMD_BOARD_NAME)).flatten().filter(|name| !name.is_empty());
    let place = if has("cl_khr_pci_bus_info") {
        opencl.device_bytes(device, PCI_BUS_INFO).map(of_bus_info)
    } else if has("cl_nv_device_attribute_query") {
        let slot = small(NV_PCI_SLOT).map(|slot| (slot >> 3, slot & 7));
        small(NV_PCI_BUS)
            .zip(slot)
            .map(|(bus, (slot, function))| (small(NV_PCI_DOMAIN).unwrap_or(0), bus, slot, function))
    } else if queries_amd {
        opencl.device_bytes(device, AMD_TOPOLOGY).and_then(of_topology)
    } else {
        None
    };
    let said = OpenClDevice {
        index,
        name: board.or_else(|| text(NAME)).filter(|name| !name.is_empty())?,
        vendor,
        vendor_id: small(VENDOR_ID).unwrap_or(0),
        available: small(AVAILABLE).is_some_and(|is_so| is_so != 0),
        half: large(HALF_FP_CONFIG).unwrap_or(0),
        single: large(SINGLE_FP_CONFIG).unwrap_or(0),
        double: large(DOUBLE_FP_CONFIG).unwrap_or(0),
        little_endian: small(ENDIAN_LITTLE).is_some_and(|is_so| is_so != 0),
        executes: large(EXECUTION_CAPABILITIES).unwrap_or(0),
        extensions: extensions.trim().to_owned(),
        memory: Bytes(large(GLOBAL_MEM_SIZE).unwrap_or(0)),
        local_memory: Bytes(large(LOCAL_MEM_SIZE).unwrap_or(0)),
        clock_mhz: small(MAX_CLOCK_FREQUENCY).unwrap_or(0),
        compute_units: small(MAX_COMPUTE_UNITS).unwrap_or(0),
        platform_version: platform_version.to_owned(),
        device_version: text(VERSION).unwrap_or_default(),
        driver_version: text(DRIVER_VERSION).unwrap_or_default(),
    };
    let simd = queries_amd
        .then(|| {
            Some([
                small(AMD_SIMD_PER_COMPUTE_UNIT)?,
                small(AMD_SIMD_WIDTH)?,
                small(AMD_SIMD_INSTRUCTION_WIDTH)?,
            ])
        })
        .flatten();
    let in_a_cycle = match kind {
        ResourceType::Amd => flops::amd_in_a_cycle(simd),
        _ => flops::INTEL_IN_A_CYCLE,
    };
    let speed = flops::of_opencl(said.clock_mhz, said.compute_units, in_a_cycle)?;
    Some(Found { kind, place, speed, device: said })
}

/// Whose a device is by the name of its maker, as BOINC's library for applications tells it.
fn maker(vendor: &str) -> Option<ResourceType> {
    let lower = vendor.to_lowercase();
    match () {
        () if vendor.contains("AMD") || vendor.contains("Advanced Micro Devices, Inc.") => {
            Some(ResourceType::Amd)
        }
        () if lower.contains("nvidia") => Some(ResourceType::Nvidia),
        () if lower.contains("intel") => Some(ResourceType::Intel),
        () => None,
    }
}

fn of_bus_info(bytes: [u8; 16]) -> Place {
    let number = |at: usize| {
        let [a, b, c, d] = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        u32::from_ne_bytes([a, b, c, d])
    };
    (number(0), number(4), number(8), number(12))
}

fn of_topology(bytes: [u8; 24]) -> Option<Place> {
    let [a, b, c, d, .., bus, device, function] = bytes;
    (u32::from_ne_bytes([a, b, c, d]) == 1).then(|| (0, bus.into(), device.into(), function.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r3_15_makers_are_told_by_the_words_that_applications_look_for() {
        for (vendor, kind) in [
            ("Advanced Micro Devices, Inc.", Some(ResourceType::Amd)),
            ("AMD", Some(ResourceType::Amd)),
            ("Intel(R) Corporation", Some(ResourceType::Intel)),
            ("NVIDIA Corporation", Some(ResourceType::Nvidia)),
            ("The pocl project", None),
        ] {
            assert_eq!(maker(vendor), kind, "{vendor}");
        }
    }

    #[test]
    fn r3_15_places_are_read_from_what_extensions_say() {
        let mut bytes = [0; 24];
        (bytes[0], bytes[21], bytes[22], bytes[23]) = (1, 0xc3, 2, 1);
        assert_eq!(of_topology(bytes), Some((0, 0xc3, 2, 1)));
        bytes[0] = 2;
        assert_eq!(of_topology(bytes), None, "it is none of the bus");
        let mut info = [0; 16];
        (info[0], info[4], info[8], info[12]) = (1, 0xc3, 2, 1);
        assert_eq!(of_bus_info(info), (1, 0xc3, 2, 1));
    }
}
