//! What jobs hold while they run: instances, memory, devices.

use std::fmt;

use fallow_domain::{Bytes, ResourceType, Usage};

/// Instances of a resource type in millionths, so that sums are exact. A fraction is rounded down: three
/// thirds fit on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instances(u64);

/// Instances of the CPU.
pub type Cpus = Instances;

impl Instances {
    /// None.
    pub const ZERO: Self = Self(0);
    /// One CPU.
    pub const ONE: Self = Self(1_000_000);
    /// A millionth of a CPU.
    pub(crate) const SMALLEST: Self = Self(1);
    /// A job counts for at least a hundredth of a CPU, so that no server can have processes started without
    /// bound by declaring that they use nothing.
    pub const USAGE_MIN: Self = Self(10_000);

    /// Whole CPUs.
    pub const fn whole(cpus: u32) -> Self {
        Self(cpus as u64 * 1_000_000)
    }
    /// CPUs that a job uses.
    pub fn of(usage: Usage) -> Self {
        Self::of_type(usage, ResourceType::Cpu)
    }
    /// Instances of one type that a job uses: at least `USAGE_MIN` of its main type and of the CPU.
    pub fn of_type(usage: Usage, kind: ResourceType) -> Self {
        if usage.of(kind) == 1.0 {
            return Self::ONE;
        }
        // `as` rounds down, saturates, and takes NaN for 0.
        let used = Self((usage.of(kind) * 1e6) as u64);
        if kind == ResourceType::Cpu || kind == usage.main_type() { used.max(Self::USAGE_MIN) } else { used }
    }
    /// As a number of instances.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
    pub(crate) const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
    pub(crate) const fn times(self, count: usize) -> Self {
        Self(self.0.saturating_mul(count as u64))
    }
    /// The whole instances of it.
    pub(crate) const fn floor(self) -> Self {
        Self(self.0 / 1_000_000 * 1_000_000)
    }
    /// So many of these fit in so much, where each is on a device of its own or on a part of one.
    pub(crate) fn fitting(self, room: Self) -> usize {
        (room.0 / self.occupied().0) as usize
    }
    /// What of devices it leaves to none that is like it: two thirds of one leave the third to nobody.
    pub(crate) fn occupied(self) -> Self {
        match self.0.max(1) {
            part @ 1..=1_000_000 => Self(1_000_000 / (1_000_000 / part)),
            _ => Self::whole(self.devices()),
        }
    }
    /// How many devices it takes: whole ones, or a part of one.
    pub(crate) const fn devices(self) -> u32 {
        self.0.div_ceil(1_000_000) as u32
    }
}

impl fmt::Display for Instances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpus = self.as_f64();
        write!(f, "{cpus} CPU{}", if cpus == 1.0 { "" } else { "s" })
    }
}

/// What a job must find free to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Needs {
    /// CPUs.
    pub cpus: Cpus,
    /// Memory.
    pub memory: Bytes,
    /// Instances of its coprocessor type, if it uses one.
    pub coprocessor: Option<(ResourceType, Instances)>,
    /// The application of whose places it needs one, where these are limited.
    pub application: Option<u32>,
    /// Devices of that type that are not for it.
    pub barred: Devices,
}

impl Needs {
    /// Instances of one type.
    pub fn of(&self, kind: ResourceType) -> Instances {
        match (kind, self.coprocessor) {
            (ResourceType::Cpu, _) => self.cpus,
            (kind, Some((used, count))) if used == kind => count,
            _ => Instances::ZERO,
        }
    }
}

/// Devices of one coprocessor type, by number (R3.14): up to 64 of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Devices(u64);

impl Devices {
    /// None.
    pub const NONE: Self = Self(0);

    /// The first `count` devices: 0, 1, ...
    pub const fn first(count: u32) -> Self {
        Self(if count >= 64 { u64::MAX } else { (1 << count) - 1 })
    }
    /// With one more; a number above 63 is left out.
    #[must_use]
    pub const fn with(self, device: u32) -> Self {
        if device < 64 { Self(self.0 | 1 << device) } else { self }
    }
    /// Without one.
    #[must_use]
    pub const fn without(self, device: u32) -> Self {
        if device < 64 { Self(self.0 & !(1 << device)) } else { self }
    }
    /// Whether it is among them.
    pub const fn contains(self, device: u32) -> bool {
        device < 64 && self.0 >> device & 1 == 1
    }
    /// Without any of these.
    #[must_use]
    pub const fn without_all(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }
    /// Whether any of these is among others.
    pub const fn meet(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }
    /// Whether all of these are among others.
    pub const fn are_within(self, others: Self) -> bool {
        self.0 & !others.0 == 0
    }
    /// How many.
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }
    /// True without any.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// Their numbers, rising.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let device = left.trailing_zeros();
            left &= left.checked_sub(1)?;
            Some(device)
        })
    }
}

impl FromIterator<u32> for Devices {
    fn from_iter<I: IntoIterator<Item = u32>>(devices: I) -> Self {
        devices.into_iter().fold(Self::NONE, Self::with)
    }
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, device) in self.iter().enumerate() {
            write!(f, "{}{device}", if place == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
