//! Kinds of processing resources, and how much of them a job uses (R3.1).

use std::fmt;
use std::ops::{Index, IndexMut};

use serde::{Deserialize, Serialize};

use crate::{Bytes, CoprocessorDevice, Speed};

/// A kind of processing resource (BOINC: processor resource). A host has a number of *instances* of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ResourceType {
    /// The CPUs of the host.
    Cpu,
    /// NVIDIA GPUs (BOINC: `NVIDIA`, and `CUDA` in older formats).
    Nvidia,
    /// AMD GPUs (BOINC: `ATI`).
    Amd,
    /// Intel GPUs (BOINC: `intel_gpu`).
    Intel,
    /// Apple GPUs (BOINC: `apple_gpu`).
    Apple,
}

impl ResourceType {
    /// All of them, the CPU first.
    pub const ALL: [Self; 5] = [Self::Cpu, Self::Nvidia, Self::Amd, Self::Intel, Self::Apple];
    /// All but the CPU.
    pub const COPROCESSORS: [Self; 4] = [Self::Nvidia, Self::Amd, Self::Intel, Self::Apple];

    /// Whether it is a coprocessor.
    pub const fn is_coprocessor(self) -> bool {
        !matches!(self, Self::Cpu)
    }

    /// The word for it in scenarios, tables and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Nvidia => "nvidia",
            Self::Amd => "amd",
            Self::Intel => "intel",
            Self::Apple => "apple",
        }
    }

    /// From the word for it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for ResourceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cpu => "CPU",
            Self::Nvidia => "NVIDIA GPU",
            Self::Amd => "AMD GPU",
            Self::Intel => "Intel GPU",
            Self::Apple => "Apple GPU",
        })
    }
}

/// One value for each resource type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PerType<T>([T; ResourceType::ALL.len()]);

impl<T> PerType<T> {
    /// From a function of the type.
    pub fn from_fn(value: impl FnMut(ResourceType) -> T) -> Self {
        Self(ResourceType::ALL.map(value))
    }
    /// Each type with its value, the CPU first.
    pub fn iter(&self) -> impl Iterator<Item = (ResourceType, &T)> {
        ResourceType::ALL.into_iter().zip(&self.0)
    }
    /// Each type with its value, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (ResourceType, &mut T)> {
        ResourceType::ALL.into_iter().zip(&mut self.0)
    }
    /// The same for values made from these.
    pub fn map<U>(&self, mut value: impl FnMut(ResourceType, &T) -> U) -> PerType<U> {
        PerType::from_fn(|kind| value(kind, &self[kind]))
    }
}

impl<T: Default> PerType<T> {
    /// A value for the CPU, the default for all others.
    pub fn cpu(value: T) -> Self {
        let mut all = Self::from_fn(|_| T::default());
        all[ResourceType::Cpu] = value;
        all
    }
}

impl<T> Index<ResourceType> for PerType<T> {
    type Output = T;
    fn index(&self, kind: ResourceType) -> &T {
        &self.0[kind as usize]
    }
}

impl<T> IndexMut<ResourceType> for PerType<T> {
    fn index_mut(&mut self, kind: ResourceType) -> &mut T {
        &mut self.0[kind as usize]
    }
}

/// A kind of coprocessor of a host, with its instances, which are taken to be alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Coprocessor {
    /// Its kind; never the CPU.
    pub kind: ResourceType,
    /// Instances that jobs can use.
    pub count: u32,
    /// Model, as its driver names it.
    pub model: String,
    /// Peak floating-point operations per second of one instance (BOINC: `peak_flops`).
    pub speed: Speed,
    /// Memory of one instance.
    pub memory: Bytes,
    /// Version of its driver, as it names itself.
    pub driver: String,
    /// The CUDA version that the driver has, such as 12040 for 12.4; 0 if there is none (BOINC:
    /// `cudaVersion`).
    #[serde(default)]
    pub cuda_version: u32,
    /// Each of them, where that is known, also those that no job can use.
    #[serde(default)]
    pub devices: Vec<CoprocessorDevice>,
}

/// What a job holds while it runs; it does not change while it does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// CPUs, possibly a fraction of one or several (BOINC: `avg_ncpus`). Finite, not negative.
    pub cpus: f64,
    /// The coprocessor type that it uses, if any, and how many instances, possibly a fraction of one.
    #[serde(default)]
    pub coprocessor: Option<(ResourceType, f64)>,
}

impl Usage {
    /// One CPU.
    pub const ONE_CPU: Self = Self { cpus: 1.0, coprocessor: None };

    /// From what a server says; anything that is not a sensible number of CPUs becomes one CPU.
    pub fn from_cpus(cpus: f64) -> Self {
        if cpus.is_finite() && cpus > 0.0 && cpus <= 1e6 {
            Self { cpus, coprocessor: None }
        } else {
            Self::ONE_CPU
        }
    }

    /// The same with so many instances of a coprocessor; what is not a sensible number of them becomes one.
    #[must_use]
    pub fn with_coprocessor(self, kind: ResourceType, count: f64) -> Self {
        let count = if count.is_finite() && count > 0.0 && count <= 1e3 { count } else { 1.0 };
        Self { coprocessor: kind.is_coprocessor().then_some((kind, count)), ..self }
    }

    /// The type that the job counts for: its coprocessor's, or the CPU (R3.1). Requests, debts and backoffs
    /// are by it.
    #[inline]
    pub fn main_type(self) -> ResourceType {
        self.coprocessor.map_or(ResourceType::Cpu, |(kind, _)| kind)
    }

    /// Instances of one type that it uses.
    pub fn of(self, kind: ResourceType) -> f64 {
        match (kind, self.coprocessor) {
            (ResourceType::Cpu, _) => self.cpus,
            (kind, Some((used, count))) if used == kind => count,
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r3_1_a_job_counts_for_its_coprocessor_and_still_uses_cpus() {
        let usage = Usage::from_cpus(0.2).with_coprocessor(ResourceType::Nvidia, 0.5);
        assert_eq!(usage.main_type(), ResourceType::Nvidia);
        assert_eq!(
            (usage.of(ResourceType::Cpu), usage.of(ResourceType::Nvidia), usage.of(ResourceType::Amd)),
            (0.2, 0.5, 0.0)
        );
        assert_eq!(Usage::ONE_CPU.main_type(), ResourceType::Cpu);
    }

    #[test]
    fn nonsense_from_a_server_becomes_one_instance() {
        for bad in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            assert_eq!(Usage::from_cpus(bad), Usage::ONE_CPU);
            let usage = Usage::ONE_CPU.with_coprocessor(ResourceType::Amd, bad);
            assert_eq!(usage.of(ResourceType::Amd), 1.0);
        }
    }

    #[test]
    fn every_type_has_a_place_and_a_word() {
        let numbered = PerType::from_fn(|kind| kind as usize);
        assert!(numbered.iter().enumerate().all(|(i, (_, value))| i == *value));
        assert!(ResourceType::ALL.into_iter().all(|kind| ResourceType::from_name(kind.name()) == Some(kind)));
    }
}
