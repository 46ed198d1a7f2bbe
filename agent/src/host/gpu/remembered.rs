//! What OpenCL said before, for when it cannot be asked (R3.15).

use fallow_domain::{Coprocessor, CoprocessorDevice};

use super::Look;

impl Look {
    /// The same with what OpenCL said of devices at an earlier look, where it says nothing now: a driver that
    /// hangs once takes no device from the tasks on it.
    #[must_use]
    pub fn remembering(mut self, before: &[Coprocessor]) -> Self {
        for kind in &mut self.coprocessors {
            let old = before.iter().filter(|old| old.kind == kind.kind).flat_map(|old| &old.devices);
            let old: Vec<&CoprocessorDevice> = old.filter(|old| old.opencl.is_some()).collect();
            for device in kind.devices.iter_mut().filter(|device| device.opencl.is_none()) {
                match old.iter().find(|old| old.address == device.address) {
                    Some(old) if device.unfit.is_some() => *device = (*old).clone(),
                    Some(old) => device.opencl.clone_from(&old.opencl),
                    None => {}
                }
            }
            let devices = std::mem::take(&mut kind.devices);
            if let Some(again) = Coprocessor::of_devices(kind.kind, &kind.driver, kind.cuda_version, devices)
            {
                *kind = again;
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use fallow_domain::{Bytes, OpenClDevice, ResourceType, Speed};

    use super::*;

    fn look(devices: &[(u32, bool)]) -> Look {
        let device = |(bus, has_opencl): &(u32, bool)| CoprocessorDevice {
            number: *bus,
            address: format!("0000:0{bus}:00.0"),
            model: String::new(),
            speed: Speed::new(1e12).unwrap(),
            memory: Bytes(1),
            free: Bytes(1),
            compute: None,
            clock_khz: 0,
            multiprocessors: 0,
            opencl: has_opencl.then(Box::<OpenClDevice>::default),
            unfit: (!has_opencl).then(|| "it hangs".to_owned()),
        };
        let kind = Coprocessor::of_devices(ResourceType::Amd, "1", 0, devices.iter().map(device).collect());
        Look { coprocessors: kind.into_iter().collect(), ..Look::default() }
    }

    #[test]
    fn r3_15_a_device_that_opencl_knew_stays_what_it_was_while_it_cannot_be_asked() {
        let before = look(&[(1, true), (2, false)]);
        let now = look(&[(1, false), (2, false), (3, false)]).remembering(&before.coprocessors);
        let fit: Vec<bool> = now.coprocessors[0].devices.iter().map(CoprocessorDevice::is_fit).collect();
        assert_eq!((fit, now.coprocessors[0].count), (vec![true, false, false], 1));
        let gone = look(&[(2, false)]).remembering(&before.coprocessors);
        assert_eq!(gone, look(&[(2, false)]), "one that is gone stays so");
    }
}
