//! The devices behind a kind of coprocessor, one by one (R3.15).

use serde::{Deserialize, Serialize};

use crate::{Bytes, Coprocessor, OpenClDevice, ResourceType, Speed};

/// One device as its driver shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoprocessorDevice {
    /// The number that its driver counts it by now, from 0 (BOINC: `device_num`). Numbers of others change
    /// when a device comes or goes.
    pub number: u32,
    /// Where it is, which tells it from others and does not change, such as `0000:01:00.0` for a bus.
    pub address: String,
    /// Model, as its driver names it.
    pub model: String,
    /// Peak floating-point operations per second.
    pub speed: Speed,
    /// Its memory, 0 if that is not known.
    pub memory: Bytes,
    /// What was free of it (BOINC: `available_ram`).
    pub free: Bytes,
    /// CUDA's compute capability, such as (8, 6), for NVIDIA.
    pub compute: Option<(u32, u32)>,
    /// Highest clock in kHz, 0 if it is not known (BOINC: `clockRate`).
    pub clock_khz: u32,
    /// Multiprocessors, 0 if that is not known (BOINC: `multiProcessorCount`).
    pub multiprocessors: u32,
    /// What OpenCL says of it, if that is known.
    #[serde(default)]
    pub opencl: Option<Box<OpenClDevice>>,
    /// Why no job can use it, if none can: it is there, and its driver lacks what projects' programs need.
    #[serde(default)]
    pub unfit: Option<String>,
}

impl CoprocessorDevice {
    /// Whether jobs can use it.
    pub fn is_fit(&self) -> bool {
        self.unfit.is_none()
    }
}

impl Coprocessor {
    /// A kind by its devices, each of which can do what is said of the kind: where they differ, that is what
    /// the weakest can. Those that no job can use count only where there are no others. None without devices.
    pub fn of_devices(
        kind: ResourceType,
        driver: &str,
        cuda_version: u32,
        devices: Vec<CoprocessorDevice>,
    ) -> Option<Self> {
        let fit = devices.iter().filter(|device| device.is_fit()).count();
        let counts = |device: &&CoprocessorDevice| fit == 0 || device.is_fit();
        let by_speed =
            |a: &&CoprocessorDevice, b: &&CoprocessorDevice| a.speed.get().total_cmp(&b.speed.get());
        let weakest = devices.iter().filter(counts).min_by(by_speed)?;
        Some(Self {
            kind,
            count: u32::try_from(fit).unwrap_or(u32::MAX),
            model: weakest.model.clone(),
            speed: weakest.speed,
            memory: devices.iter().filter(counts).map(|device| device.memory).min().unwrap_or_default(),
            driver: driver.to_owned(),
            cuda_version,
            devices,
        })
    }

    /// The same with some of its devices only; none if none of them is left.
    #[must_use]
    pub fn only(&self, keep: impl Fn(&CoprocessorDevice) -> bool) -> Option<Self> {
        let devices = self.devices.iter().filter(|device| keep(device)).cloned().collect();
        Self::of_devices(self.kind, &self.driver, self.cuda_version, devices)
    }

    /// The lowest compute capability of its devices, if all have one.
    pub fn compute(&self) -> Option<(u32, u32)> {
        let all: Option<Vec<(u32, u32)>> = self.devices.iter().map(|device| device.compute).collect();
        all?.into_iter().min()
    }

    /// What OpenCL says of those of its devices that jobs can use, if it says something of each: where they
    /// differ, what all of them can.
    pub fn opencl(&self) -> Option<OpenClDevice> {
        let fit = self.devices.iter().filter(|device| device.is_fit());
        let all: Option<Vec<&OpenClDevice>> = fit.map(|device| device.opencl.as_deref()).collect();
        let (first, others) = all.as_deref()?.split_first()?;
        Some(others.iter().fold((*first).clone(), |both, other| both.and(other)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(number: u32, flops: f64, memory: u64, compute: (u32, u32)) -> CoprocessorDevice {
        CoprocessorDevice {
            number,
            address: format!("0000:0{number}:00.0"),
            model: format!("model {number}"),
            speed: Speed::new(flops).unwrap(),
            memory: Bytes::from_mebibytes(memory),
            free: Bytes(0),
            compute: Some(compute),
            clock_khz: 1_000_000,
            multiprocessors: 2,
            opencl: None,
            unfit: None,
        }
    }

    #[test]
    fn r3_15_devices_that_no_job_can_use_do_not_count_beside_others() {
        let unfit = CoprocessorDevice { unfit: Some("no OpenCL".into()), ..device(0, 1e9, 128, (1, 0)) };
        let opencl = OpenClDevice { compute_units: 8, ..OpenClDevice::default() };
        let fit =
            CoprocessorDevice { opencl: Some(Box::new(opencl.clone())), ..device(1, 2e12, 8_192, (8, 6)) };
        let none = Coprocessor::of_devices(ResourceType::Amd, "", 0, vec![unfit.clone()]).unwrap();
        assert_eq!((none.count, none.model.as_str(), none.opencl()), (0, "model 0", None));
        let both = Coprocessor::of_devices(ResourceType::Amd, "", 0, vec![unfit, fit.clone()]).unwrap();
        assert_eq!((both.count, both.devices.len(), both.model.as_str()), (1, 2, "model 1"));
        assert_eq!((both.memory, both.opencl()), (Bytes::from_mebibytes(8_192), Some(opencl)));
        let silent = CoprocessorDevice { opencl: None, ..fit.clone() };
        let mixed = Coprocessor::of_devices(ResourceType::Nvidia, "", 0, vec![fit, silent]).unwrap();
        assert_eq!((mixed.count, mixed.opencl()), (2, None), "OpenCL does not know all of them");
    }

    #[test]
    fn r3_15_unlike_devices_are_described_by_what_each_of_them_can() {
        let devices = vec![device(0, 2e12, 4_096, (8, 6)), device(1, 1e12, 8_192, (7, 5))];
        let kind = Coprocessor::of_devices(ResourceType::Nvidia, "535.1", 12_020, devices).unwrap();
        assert_eq!((kind.count, kind.speed.get(), kind.model.as_str()), (2, 1e12, "model 1"));
        assert_eq!((kind.memory, kind.compute()), (Bytes::from_mebibytes(4_096), Some((7, 5))));
        let first = kind.only(|device| device.number == 0).unwrap();
        assert_eq!((first.count, first.speed.get(), first.compute()), (1, 2e12, Some((8, 6))));
        assert_eq!(kind.only(|_| false), None);
        assert_eq!(Coprocessor::of_devices(ResourceType::Nvidia, "", 0, Vec::new()), None);
    }

    #[test]
    fn r3_15_a_kind_of_before_devices_were_told_is_still_read() {
        let text = r#"{"kind":"Nvidia","count":2,"model":"m","speed":1e12,"memory":1,"driver":"1"}"#;
        let kind: Coprocessor = serde_json::from_str(text).unwrap();
        assert_eq!((kind.count, kind.devices.len(), kind.compute()), (2, 0, None));
    }
}
