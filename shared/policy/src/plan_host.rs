//! The host as planning sees it: what may be used of each resource type, how fast that is, and how much of
//! the time.

use fallow_domain::{Fraction, HostFacts, PerType, Preferences, ResourceType, Speed};

/// What a host can compute with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanHost {
    /// Instances that may be used of each type: preferences and exclusions are taken off.
    pub instances: PerType<u32>,
    /// Speed of one instance relative to one CPU (R3.4): 1 for the CPU, peak FLOPS over peak FLOPS for the
    /// others.
    pub speeds: PerType<f64>,
    /// Measured share of time that computing is allowed and running (R2.12).
    pub active_fraction: Fraction,
}

impl PlanHost {
    /// A host with CPUs only, always on.
    pub fn cpus(count: u32) -> Self {
        Self { instances: PerType::cpu(count), speeds: PerType::cpu(1.0), active_fraction: Fraction::ONE }
    }

    /// From what is known of a host, under preferences, which may exclude devices (R3.14).
    pub fn new(facts: &HostFacts, preferences: &Preferences, active_fraction: Fraction) -> Self {
        let mut host = Self { active_fraction, ..Self::cpus(preferences.usable_cpus(facts.ncpus)) };
        for coprocessor in facts.coprocessors.iter().filter(|c| c.kind.is_coprocessor()) {
            let (kind, count) = (coprocessor.kind, coprocessor.count);
            let excluded = preferences.excluded(kind).filter(|device| *device < count);
            host.instances[kind] = excluded.fold(count, |left, _| left - 1);
            host.speeds[kind] = relative(coprocessor.speed, facts.speed.fpops);
        }
        host
    }

    /// The types that the host has instances of, the CPU first.
    pub fn types(&self) -> impl Iterator<Item = ResourceType> + '_ {
        self.instances.iter().filter(|(_, count)| **count > 0).map(|(kind, _)| kind)
    }
}

fn relative(speed: Speed, cpu: Speed) -> f64 {
    speed.get() / cpu.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r3_4_a_gpu_counts_by_its_peak_speed_relative_to_a_cpu() {
        let speed = |flops| Speed::new(flops).unwrap();
        assert_eq!(relative(speed(2e9), speed(1e9)), 2.0);
        let host = PlanHost::cpus(4);
        assert_eq!(host.types().collect::<Vec<_>>(), [ResourceType::Cpu]);
        assert_eq!(host.speeds[ResourceType::Cpu], 1.0);
    }
}
