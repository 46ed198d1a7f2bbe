//! What is asked for.

use fallow_domain::{Duration, InstanceSeconds, PerType, ResourceType};

/// Whoever is asked for work at all is asked for at least this much, however small the buffer: a server
/// answers any request above zero with at least one job if it has one.
pub const REQUEST_MIN: Duration = Duration::from_secs(1);

/// Less than this of an instance does not count as idle: the CPU beside a GPU job that takes a hair of it is
/// no reason to ask for work.
pub const IDLE_MIN: f64 = 0.01;

/// What a request for work asks for (R3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkRequest {
    /// Processing of each type.
    pub seconds: PerType<InstanceSeconds>,
    /// Instances of each type that are idle now and should each get a job.
    pub instances: PerType<f64>,
}

impl WorkRequest {
    /// The same, but nothing of some types.
    #[must_use]
    pub fn without(mut self, types: &PerType<bool>) -> Self {
        for (kind, _) in types.iter().filter(|(_, left_out)| **left_out) {
            self.seconds[kind] = InstanceSeconds::ZERO;
            self.instances[kind] = 0.0;
        }
        self
    }

    /// A request for CPU seconds.
    pub fn cpu(seconds: Duration, idle: f64) -> Self {
        let seconds = InstanceSeconds::of_one(seconds.max(Duration::ZERO));
        Self { seconds: PerType::cpu(seconds), instances: PerType::cpu(idle) }
    }
    /// Whether it asks for work of a type.
    pub fn asks(&self, kind: ResourceType) -> bool {
        self.seconds[kind].is_positive() || self.instances[kind] > 0.0
    }
    /// The types that it asks for.
    pub fn types(&self) -> impl Iterator<Item = ResourceType> + '_ {
        ResourceType::ALL.into_iter().filter(|kind| self.asks(*kind))
    }
    /// Whether it asks for no work at all.
    pub fn is_none(&self) -> bool {
        self.types().next().is_none()
    }
    /// The one number that older servers understand: the largest of the seconds (R3.2).
    pub fn scalar(&self) -> InstanceSeconds {
        self.seconds.iter().map(|(_, seconds)| *seconds).fold(InstanceSeconds::ZERO, InstanceSeconds::max)
    }
}
