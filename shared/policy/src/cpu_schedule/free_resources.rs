//! What is free of the host while it is allocated: CPUs, memory, devices (R2.5, R3.14).
//!
//! CPU jobs are packed into the CPUs without overcommitting them. A GPU job spends most of its time waiting
//! for its device, so that the fractional part of its CPUs may exceed them, by less than one CPU in all.

use std::collections::BTreeMap;

use fallow_domain::{Bytes, PerType, ResourceType};

use super::{ScheduleHost, WhyNotRun};
use crate::job_queue::{Cpus, Devices, Instances, Needs};

/// What running tasks hold of the devices of a type, by number: those tasks about which nothing is decided
/// yet.
pub(super) type HeldDevices = BTreeMap<u32, Instances>;

/// All that the host has, while nothing runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    usable: Cpus,
    memory_limit: Bytes,
    devices: PerType<Devices>,
}

impl Capacity {
    pub(super) fn of(host: &ScheduleHost) -> Self {
        let on = host.usable > 0;
        Self {
            usable: Cpus::whole(host.usable),
            memory_limit: host.memory_limit,
            devices: host.devices.map(|_, devices| if on { *devices } else { Devices::NONE }),
        }
    }

    /// The devices of a type that a job may use.
    fn devices_for(&self, needs: &Needs, kind: ResourceType) -> Devices {
        self.devices[kind].without_all(needs.barred)
    }

    /// Why a job could not run even on the empty host.
    pub(super) fn can_never_run(&self, needs: &Needs) -> Option<WhyNotRun> {
        let over_one = needs.coprocessor.map_or(Cpus::ZERO, |_| needs.cpus.minus(needs.cpus.floor()));
        if needs.cpus.minus(over_one) > self.usable {
            return Some(WhyNotRun::CpusUsable { needed: needs.cpus, usable: self.usable });
        }
        if needs.memory > self.memory_limit {
            return Some(WhyNotRun::MemoryLimit { needed: needs.memory, limit: self.memory_limit });
        }
        let (kind, needed) = needs.coprocessor?;
        let usable = self.devices_for(needs, kind).count();
        (needed.devices() > usable).then_some(WhyNotRun::DevicesUsable { kind, needed, usable })
    }
}

/// What is left.
#[derive(Clone, Debug)]
pub(super) struct FreeResources {
    capacity: Capacity,
    /// CPUs of the CPU jobs taken.
    cpu_jobs: Cpus,
    /// CPUs of the GPU jobs taken, and of each the whole ones only.
    gpu_jobs: Cpus,
    gpu_jobs_whole: Cpus,
    memory: Bytes,
    /// What is taken of each device, by type and number, once something is.
    taken: PerType<HeldDevices>,
}

impl FreeResources {
    pub(super) fn new(host: &ScheduleHost) -> Self {
        Self {
            capacity: Capacity::of(host),
            cpu_jobs: Cpus::ZERO,
            gpu_jobs: Cpus::ZERO,
            gpu_jobs_whole: Cpus::ZERO,
            memory: host.memory_limit,
            taken: PerType::default(),
        }
    }

    /// See [`Capacity::can_never_run`].
    pub(super) fn can_never_run(&self, needs: &Needs) -> Option<WhyNotRun> {
        self.capacity.can_never_run(needs)
    }

    /// CPUs that a further CPU job could use.
    pub(super) fn cpus(&self) -> Cpus {
        let packed = self.capacity.usable.minus(self.cpu_jobs).minus(self.gpu_jobs_whole);
        packed.min(self.below_one_more().minus(self.cpu_jobs))
    }

    /// The sum of CPUs of the CPU jobs that the GPU jobs leave: all of them together exceed the CPUs by less
    /// than one.
    fn below_one_more(&self) -> Cpus {
        self.capacity.usable.plus(Cpus::ONE).minus(self.gpu_jobs).minus(Cpus::SMALLEST)
    }

    /// Instances of a type that no job was given.
    pub(super) fn idle(&self, kind: ResourceType) -> Instances {
        let devices = self.capacity.devices[kind].iter();
        match kind {
            ResourceType::Cpu => self.cpus(),
            _ => devices.fold(Instances::ZERO, |sum, device| sum.plus(self.left_of(kind, device))),
        }
    }

    fn left_of(&self, kind: ResourceType, device: u32) -> Instances {
        Instances::ONE.minus(self.taken[kind].get(&device).copied().unwrap_or_default())
    }

    /// Finds a place for a job: the devices that it is to run on, none for a CPU job. A running task keeps
    /// its devices (`keep`); any other takes from them what others hold only if there is nothing else.
    pub(super) fn place(
        &self,
        needs: &Needs,
        keep: Option<Devices>,
        held: &HeldDevices,
    ) -> Result<Devices, WhyNotRun> {
        if let Some(why) = self.can_never_run(needs) {
            return Err(why);
        }
        let left = match needs.coprocessor {
            None => self.cpus(),
            Some(_) => self.below_one_more().minus(self.cpu_jobs),
        };
        if needs.cpus > left {
            return Err(WhyNotRun::CpusLeft { needed: needs.cpus, left });
        }
        if needs.memory > self.memory {
            return Err(WhyNotRun::MemoryLeft { needed: needs.memory, left: self.memory });
        }
        let Some((kind, needed)) = needs.coprocessor else { return Ok(Devices::NONE) };
        let usable = self.capacity.devices_for(needs, kind);
        match keep {
            Some(devices) if !devices.are_within(usable) => Err(WhyNotRun::DeviceGone { devices }),
            Some(devices) if devices.count() == needed.devices() => {
                let part = needed.min(Instances::ONE);
                let has_room = devices.iter().all(|device| self.left_of(kind, device) >= part);
                if has_room { Ok(devices) } else { Err(WhyNotRun::DevicesLeft { kind, needed }) }
            }
            _ => self.free_devices(kind, usable, needed, held).ok_or(WhyNotRun::DevicesLeft { kind, needed }),
        }
    }

    /// A job that needs a part of a device takes the fullest that has room for it, so that whole ones stay
    /// free.
    fn free_devices(
        &self,
        kind: ResourceType,
        usable: Devices,
        needed: Instances,
        held: &HeldDevices,
    ) -> Option<Devices> {
        let part = needed.min(Instances::ONE);
        let mut fit: Vec<_> = usable
            .iter()
            .map(|device| (self.left_of(kind, device), device))
            .filter(|(left, _)| *left >= part)
            .map(|(left, device)| {
                let unclaimed = left.minus(held.get(&device).copied().unwrap_or_default());
                (unclaimed < part, unclaimed, device)
            })
            .collect();
        fit.sort_unstable();
        let count = needed.devices() as usize;
        (fit.len() >= count).then(|| fit.iter().take(count).map(|(_, _, device)| *device).collect())
    }

    pub(super) fn take(&mut self, needs: &Needs, devices: Devices) {
        self.change(needs, devices, Cpus::plus);
        self.memory = Bytes(self.memory.0.saturating_sub(needs.memory.0));
    }

    pub(super) fn give_back(&mut self, needs: &Needs, devices: Devices) {
        self.change(needs, devices, Cpus::minus);
        self.memory = self.memory.plus(needs.memory);
    }

    fn change(&mut self, needs: &Needs, devices: Devices, by: fn(Cpus, Cpus) -> Cpus) {
        let Some((kind, needed)) = needs.coprocessor else {
            self.cpu_jobs = by(self.cpu_jobs, needs.cpus);
            return;
        };
        self.gpu_jobs = by(self.gpu_jobs, needs.cpus);
        self.gpu_jobs_whole = by(self.gpu_jobs_whole, needs.cpus.floor());
        // More than one instance means that many devices for itself alone.
        for device in devices.iter() {
            let taken = self.taken[kind].entry(device).or_default();
            *taken = by(*taken, needed.min(Instances::ONE));
        }
    }
}
