//! What can be seen of the host's devices from outside: which there are, which job runs where, and why one is
//! not used (R3.14).

use std::fmt;

use fallow_domain::{Bytes, Device, JobId, Preferences, ResourceType};

use crate::devices::devices_of;
use crate::known_devices::Standing;
use crate::machine::Client;

/// One device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceView {
    /// Its name.
    pub device: Device,
    /// Model, as its driver names it.
    pub model: String,
    /// Where it is, such as `0000:01:00.0`.
    pub address: String,
    /// Its memory, 0 if that is not known.
    pub memory: Bytes,
    /// Version of its driver.
    pub driver: String,
    /// Its temperature in degrees Celsius when it was looked at last; none where it is not told.
    pub temperature: Option<u32>,
    /// How it stands.
    pub state: DeviceState,
    /// The jobs that have a process on it.
    pub jobs: Vec<JobId>,
}

/// How a device stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceState {
    /// It may be used.
    Usable,
    /// The owner of the host excludes it.
    ExcludedByOwner,
    /// The fleet's preferences exclude it.
    ExcludedByFleet,
    /// A program uses it that is none of our tasks', or did so until a moment ago.
    InUse(String),
    /// It is hotter than preferences allow, or was and has yet to cool.
    TooHot(String),
    /// It is not there any more, or its driver does not answer.
    Gone,
    /// No job can use it, for the reason that stands here.
    Unfit(String),
}

impl fmt::Display for DeviceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usable => f.write_str("usable"),
            Self::ExcludedByOwner => f.write_str("excluded by the owner"),
            Self::ExcludedByFleet => f.write_str("excluded by the fleet's preferences"),
            Self::InUse(how) | Self::TooHot(how) | Self::Unfit(how) => f.write_str(how),
            Self::Gone => f.write_str("gone"),
        }
    }
}

impl Client {
    /// The devices of the host that are known one by one, also those that are gone.
    pub fn device_views(&self) -> Vec<DeviceView> {
        let of = |kind| self.known_devices.all(kind).map(move |(number, device)| (kind, number, device));
        let all = ResourceType::COPROCESSORS.into_iter().flat_map(of);
        all.filter_map(|(kind, number, device)| {
            let facts = self.state.host.facts().into_iter().flat_map(|host| &host.coprocessors);
            Some(DeviceView {
                device: Device::new(kind, number).ok()?,
                model: device.model.clone(),
                address: device.address.clone(),
                memory: device.memory,
                driver: facts.filter(|one| one.kind == kind).map(|one| one.driver.clone()).collect(),
                temperature: self.known_devices.degrees(kind, number),
                state: self.device_state(Device::new(kind, number).ok()?),
                jobs: self.jobs_on(kind, number),
            })
        })
        .collect()
    }

    /// How a device stands. One that is excluded is said to be so whatever else is true of it.
    pub(crate) fn device_state(&self, device: Device) -> DeviceState {
        let Preferences { excluded_devices, .. } = self.preferences();
        let standing = self.known_devices.standing(device.kind(), device.number());
        match standing {
            Some(Standing::Gone) => DeviceState::Gone,
            Some(unfit @ Standing::Unfit(_)) => DeviceState::Unfit(unfit.to_string()),
            _ if self.state.host.owner.excluded_devices.contains(&device) => DeviceState::ExcludedByOwner,
            _ if !self.local_preferences().use_gpus => match self.state.host.is_of_document("use_gpus") {
                true => DeviceState::ExcludedByFleet,
                false => DeviceState::ExcludedByOwner,
            },
            _ if excluded_devices.contains(&device) => DeviceState::ExcludedByFleet,
            _ if let Some(why) = self.state.host.devices_stopped_for() => DeviceState::InUse(why.to_owned()),
            Some(used @ (Standing::InUse(_) | Standing::Held(_))) => DeviceState::InUse(used.to_string()),
            Some(hot @ Standing::Hot(..)) => DeviceState::TooHot(hot.to_string()),
            Some(Standing::Free) | None => DeviceState::Usable,
        }
    }

    fn jobs_on(&self, kind: ResourceType, number: u32) -> Vec<JobId> {
        let held = self.state.jobs.slots().values().filter_map(|id| self.state.jobs.get(id));
        let on = held.filter(|job| {
            job.process.exists()
                && devices_of(job).is_some_and(|(of, devices)| of == kind && devices.contains(number))
        });
        on.map(|job| job.id).collect()
    }

    /// The devices that a job has a process on, by name.
    pub(crate) fn devices_held(&self, id: JobId) -> Vec<Device> {
        let Some(job) = self.state.jobs.get(&id).filter(|job| job.process.exists()) else {
            return Vec::new();
        };
        let Some((kind, devices)) = devices_of(job) else { return Vec::new() };
        devices.iter().filter_map(|number| Device::new(kind, number).ok()).collect()
    }
}
