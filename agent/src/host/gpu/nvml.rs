//! What NVIDIA's management library says. Runs in a process of its own (see [`super::child`]).

use std::path::Path;

use fallow_domain::{Bytes, Coprocessor, CoprocessorDevice, ResourceType};
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};

use super::{DEVICES_MAX, Look, OnDevice, PROCESSES_MAX, Temperature, flops};

/// The library, loaded and set up.
pub(super) struct Library(Nvml);

/// Loads it: from where the system's loader finds it, or from `path`. None where there is none, or no driver
/// behind it.
///
/// # Errors
/// In words, why it could not be set up.
pub(super) fn load(path: Option<&Path>) -> Result<Option<Library>, String> {
    let loaded = match path {
        Some(path) => Nvml::builder().lib_path(path.as_os_str()).init(),
        None => Nvml::init(),
    };
    match loaded {
        Ok(nvml) => Ok(Some(Library(nvml))),
        Err(NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound) if path.is_none() => Ok(None),
        Err(NvmlError::DriverNotLoaded) => Ok(None),
        Err(error) => Err(format!("NVIDIA's management library cannot be set up: {error}")),
    }
}

impl Library {
    /// Looks at all devices and at who is on them.
    ///
    /// # Errors
    /// In words, why it is not known how many there are.
    pub(super) fn look(&self) -> Result<Look, String> {
        let Self(nvml) = self;
        let count =
            nvml.device_count().map_err(|error| format!("NVIDIA's devices cannot be counted: {error}"))?;
        let mut processes = Vec::new();
        let (mut devices, mut temperatures) = (Vec::new(), Vec::new());
        // One that cannot be had is gone, or not ours to use.
        for device in (0..count.min(DEVICES_MAX)).filter_map(|index| nvml.device_by_index(index).ok()) {
            let Some(found) = described(&device) else { continue };
            for (draws, one) in on(&device) {
                let memory = match one.used_gpu_memory {
                    UsedGpuMemory::Used(bytes) => Some(Bytes(bytes)),
                    UsedGpuMemory::Unavailable => None,
                };
                let address = found.1.address.clone();
                processes.push(OnDevice { kind: ResourceType::Nvidia, address, pid: one.pid, draws, memory });
            }
            // Not every card tells it.
            if let Ok(degrees) = device.temperature(TemperatureSensor::Gpu) {
                let address = found.1.address.clone();
                temperatures.push(Temperature { kind: ResourceType::Nvidia, address, degrees });
            }
            devices.push(found);
        }
        processes.truncate(PROCESSES_MAX);
        // CUDA counts them by the bus where it is told to; NVML does always.
        devices.sort_by_key(|(place, _)| *place);
        let numbered = (0..).zip(devices).map(|(number, (_, device))| CoprocessorDevice { number, ..device });
        let driver = nvml.sys_driver_version().unwrap_or_default();
        let cuda = nvml.sys_cuda_driver_version().ok().and_then(|version| u32::try_from(version).ok());
        let kind =
            Coprocessor::of_devices(ResourceType::Nvidia, &driver, cuda.unwrap_or(0), numbered.collect());
        Ok(Look { coprocessors: kind.into_iter().collect(), processes, temperatures, ..Look::default() })
    }
}

/// A device with its place on the bus. None for one that has none, or that is lost.
fn described(device: &Device<'_>) -> Option<((u32, u32, u32), CoprocessorDevice)> {
    let pci = device.pci_info().ok()?;
    let compute = device.cuda_compute_capability().ok();
    let compute = compute.and_then(|of| Some((u32::try_from(of.major).ok()?, u32::try_from(of.minor).ok()?)));
    let clock_khz = device.max_clock_info(Clock::SM).map_or(0, |mhz| mhz.saturating_mul(1_000));
    let cores = device.num_cores().unwrap_or(0);
    let multiprocessors = compute.map_or(0, |compute| flops::multiprocessors(cores, compute));
    let memory = device.memory_info().ok();
    let model = device.name().ok().filter(|name| !name.is_empty());
    Some((
        (pci.domain, pci.bus, pci.device),
        CoprocessorDevice {
            number: 0,
            address: format!("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device),
            model: model.unwrap_or_else(|| "NVIDIA GPU".to_owned()),
            speed: flops::peak(clock_khz, multiprocessors, compute.unwrap_or((0, 0)))?,
            memory: memory.as_ref().map_or(Bytes(0), |memory| Bytes(memory.total)),
            free: memory.map_or(Bytes(0), |memory| Bytes(memory.free)),
            compute,
            clock_khz,
            multiprocessors,
            opencl: None,
            unfit: None,
        },
    ))
}

/// The processes on a device, and whether each only draws. One that does both computes.
fn on(device: &Device<'_>) -> Vec<(bool, ProcessInfo)> {
    // What drivers of before R510 have instead.
    let computing = match device.running_compute_processes() {
        Err(NvmlError::FailedToLoadSymbol(_)) => device.running_compute_processes_v2(),
        other => other,
    };
    let drawing = match device.running_graphics_processes() {
        Err(NvmlError::FailedToLoadSymbol(_)) => device.running_graphics_processes_v2(),
        other => other,
    };
    let (computing, drawing) = (computing.unwrap_or_default(), drawing.unwrap_or_default());
    let also = |one: &ProcessInfo| computing.iter().any(|other| other.pid == one.pid);
    let drawing: Vec<_> = drawing.into_iter().filter(|one| !also(one)).map(|one| (true, one)).collect();
    computing.into_iter().map(|one| (false, one)).chain(drawing).collect()
}
