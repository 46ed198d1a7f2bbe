//! What a request asks for.

use fallow_domain::{Duration, InstanceSeconds, PerType, ResourceType, Usage};

/// A fraction of an instance that rounding leaves wants no job.
const HAIR: f64 = 1e-6;

/// What is wanted of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct TypeDemand {
    seconds: f64,
    instances: f64,
}

/// What a request asks for (R3.12), less what was sent for it so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    types: PerType<TypeDemand>,
    /// The seconds of a client that knows no types.
    scalar: Option<f64>,
}

impl Demand {
    /// From a request: seconds and idle instances per type, and the scalar beside them. A client that fills
    /// in no type is an old one, whose scalar counts. What is not a number above zero is nothing.
    pub fn new(
        seconds: &PerType<InstanceSeconds>,
        instances: &PerType<f64>,
        scalar: InstanceSeconds,
    ) -> Self {
        let scalar = scalar.get();
        let sane = |value: f64| if value > 0.0 { value.min(1e12) } else { 0.0 };
        let types = PerType::from_fn(|kind| TypeDemand {
            seconds: sane(seconds[kind].get()),
            instances: sane(instances[kind]),
        });
        let old = types.iter().all(|(_, demand)| !demand.is_open()) && sane(scalar) > 0.0;
        Self { types, scalar: old.then(|| sane(scalar)) }
    }

    /// Work for CPUs only.
    pub fn cpu(seconds: Duration, instances: u32) -> Self {
        let seconds = InstanceSeconds::of_one(seconds);
        Self::new(&PerType::cpu(seconds), &PerType::cpu(f64::from(instances)), InstanceSeconds::ZERO)
    }

    /// Whether jobs of a type are wanted. Versions of applications are chosen for such types only.
    pub fn wants(&self, kind: ResourceType) -> bool {
        self.scalar.map_or_else(|| self.types[kind].is_open(), |seconds| seconds > 0.0)
    }

    /// Whether instances of a type are told to be idle, and jobs for them are still to be sent.
    pub fn names_idle(&self, kind: ResourceType) -> bool {
        self.scalar.is_none() && self.types[kind].instances > HAIR
    }

    /// Instances of a type that are told to be idle, and for which jobs are still to be sent.
    pub fn idle(&self, kind: ResourceType) -> f64 {
        if self.names_idle(kind) { self.types[kind].instances } else { 0.0 }
    }

    /// Whether anything is wanted.
    pub fn is_open(&self) -> bool {
        ResourceType::ALL.into_iter().any(|kind| self.wants(kind))
    }

    /// Takes note of a job that is sent.
    pub fn fill(&mut self, usage: Usage, estimate: Duration) {
        let kind = usage.main_type();
        let running = estimate.max(Duration::ZERO).as_secs_f64();
        if let Some(seconds) = &mut self.scalar {
            *seconds -= running;
            return;
        }
        let demand = &mut self.types[kind];
        demand.seconds -= running * usage.of(kind);
        demand.instances -= usage.of(kind);
    }

    /// Whether a project has something for any of the types wanted, given those that it has versions for. If
    /// not, its reply says so for each of them (R3.5's third state), and not just that there is no work.
    pub fn is_supported(&self, has_versions: &PerType<bool>) -> bool {
        ResourceType::ALL.into_iter().any(|kind| self.wants(kind) && has_versions[kind])
    }

    /// The types wanted that a project has no versions for.
    pub fn unsupported(&self, has_versions: &PerType<bool>) -> PerType<bool> {
        PerType::from_fn(|kind| self.scalar.is_none() && self.wants(kind) && !has_versions[kind])
    }
}

impl TypeDemand {
    fn is_open(&self) -> bool {
        self.seconds > HAIR || self.instances > HAIR
    }
}
