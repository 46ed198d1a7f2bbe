//! What hosts can take, by what their clients tell, and which of them are much alike.

use fallow_boinc::scheduler::SchedulerRequest;
use fallow_domain::{Bytes, Duration, PerType, ResourceType, Usage};

use super::catalog::Catalog;
use super::records::Version;
use super::workunit::Workunit;

/// CPUs that a host is believed to have at most: what it may hold grows with them.
pub(crate) const CPUS_MAX: u32 = 1_024;

/// What a host has for jobs.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostCapacity {
    /// Instances that its client may use.
    pub(crate) instances: PerType<u32>,
    /// Floating-point operations per second of one instance.
    speeds: PerType<f64>,
    /// Those of its platforms that the project has versions for, the primary one first.
    pub(crate) platforms: Vec<String>,
    /// Memory for a job.
    pub(crate) memory: Bytes,
}

/// What the hosts of an account that asks for work can take: the largest job.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostLimits {
    /// The host that asked last.
    host: u64,
    capacity: HostCapacity,
    /// The most space that there was for jobs: what holds jobs now is free after them.
    disk: Bytes,
}

/// A class of hosts that are much alike: of the same platforms and coprocessors, each speed and size within a
/// factor of four. BOINC has such classes too, for homogeneous redundancy; these only tell who could run a
/// job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostClass {
    platforms: Vec<String>,
    coprocessors: PerType<u32>,
    speeds: PerType<u32>,
    memory: u32,
    disk: u32,
}

/// Floating-point operations per second of one of the host's CPUs: what it measured, or BOINC's assumption
/// before that.
pub(crate) fn speed(request: &SchedulerRequest) -> f64 {
    let measured = request.host_info.p_fpops;
    if measured.is_finite() && measured > 0.0 { measured } else { 1e9 }
}

/// The newest version of an application for each type that a host has a platform for.
pub(crate) type OfTypes<'c> = PerType<Option<&'c Version>>;

impl HostLimits {
    /// Of the host that asks.
    pub(crate) fn of(host: u64, capacity: HostCapacity, disk: Bytes) -> Self {
        Self { host, capacity, disk }
    }

    /// Merges in what the latest request tells: replaces the limits of the same host, and takes the larger of
    /// each where it is another host of the account.
    pub(crate) fn renewed(self, now: Self) -> Self {
        let capacity = match self.host == now.host {
            true => now.capacity,
            false => self.capacity.or(now.capacity),
        };
        Self { host: now.host, capacity, disk: self.disk.max(now.disk) }
    }

    /// Whether a job of the workunit can be run, if nothing else is: of the types allowed, in memory, on the
    /// disk, and in time.
    pub(crate) fn can(
        &self,
        catalog: &Catalog,
        workunit: &Workunit,
        allowed: impl Fn(ResourceType) -> bool,
    ) -> bool {
        workunit.memory_bound <= self.capacity.memory
            && workunit.disk_bound <= self.disk
            && self.capacity.version(catalog, &workunit.application, allowed).is_some_and(|version| {
                self.capacity.estimate(workunit, version.usage) <= workunit.delay_bound
            })
    }
}

impl HostLimits {
    /// Its class.
    pub(crate) fn host_class(&self) -> HostClass {
        let HostCapacity { instances, speeds, platforms, memory } = &self.capacity;
        HostClass {
            platforms: platforms.clone(),
            // How many CPUs there are decides nothing here.
            coprocessors: instances.map(|kind, count| if kind.is_coprocessor() { *count } else { 0 }),
            speeds: speeds.map(|_, speed| rank(*speed as u64)),
            memory: rank(memory.0),
            disk: rank(self.disk.0),
        }
    }

    /// The sizes and speeds of which more is never worse, in numbers that have the same order.
    pub(crate) fn sizes(&self) -> [u64; SIZES] {
        let speeds = ResourceType::ALL.map(|kind| self.capacity.speeds[kind].max(0.0).to_bits());
        let mut speeds = speeds.into_iter();
        std::array::from_fn(|place| match place {
            0 => self.capacity.memory.0,
            1 => self.disk.0,
            _ => speeds.next().unwrap_or_default(),
        })
    }

    /// Puts another number in one place of its sizes.
    pub(crate) fn set_size(&mut self, place: usize, size: u64) {
        match (place, ResourceType::ALL.get(place.saturating_sub(2))) {
            (0, _) => self.capacity.memory = Bytes(size),
            (1, _) => self.disk = Bytes(size),
            (_, Some(kind)) => self.capacity.speeds[*kind] = f64::from_bits(size),
            (_, None) => {}
        }
    }
}

/// Memory, disk, and the speed of each resource type.
pub(crate) const SIZES: usize = 2 + ResourceType::ALL.len();

/// 0 for none, 1 from 1 to 3, 2 from 4 to 15, and so on.
fn rank(size: u64) -> u32 {
    size.checked_ilog2().map_or(0, |log| log / 2 + 1)
}

impl HostCapacity {
    /// The larger of each limit of two hosts. May allow what neither host could do alone.
    fn or(mut self, other: Self) -> Self {
        for kind in ResourceType::ALL {
            self.instances[kind] = self.instances[kind].max(other.instances[kind]);
            self.speeds[kind] = self.speeds[kind].max(other.speeds[kind]);
        }
        let new = other.platforms.into_iter().filter(|platform| !self.platforms.contains(platform));
        let new: Vec<String> = new.collect();
        self.platforms.extend(new);
        self.memory = self.memory.max(other.memory);
        self
    }

    pub(crate) fn of(request: &SchedulerRequest, catalog: &Catalog) -> Self {
        let cpus = request.host_info.p_ncpus.clamp(1, CPUS_MAX);
        let cpus =
            request.global_preferences.as_ref().map_or(cpus, |prefs| prefs.to_domain().usable_cpus(cpus));
        let mut instances = PerType::cpu(cpus);
        let mut speeds = PerType::cpu(speed(request));
        for coprocessors in &request.coprocs {
            let Some(kind) = coprocessors.resource_type() else { continue };
            instances[kind] = coprocessors.count.min(1_024);
            let peak = coprocessors.peak_flops;
            speeds[kind] = if peak.is_finite() && peak > 0.0 { peak } else { speed(request) };
        }
        let usable = request.global_preferences.as_ref().map_or(90.0, |prefs| {
            prefs.ram_max_used_busy_pct.max(prefs.ram_max_used_idle_pct).clamp(0.0, 100.0)
        });
        let memory = Bytes::from_f64(request.host_info.m_nbytes * usable / 100.0);
        let platforms = request.platforms().filter(|platform| catalog.knows_platform(platform));
        let platforms = platforms.map(str::to_owned).collect();
        Self { instances, speeds, platforms, memory }
    }

    /// The newest version that the host can run, for one of the types allowed.
    pub(crate) fn version<'c>(
        &self,
        catalog: &'c Catalog,
        application: &str,
        allowed: impl Fn(ResourceType) -> bool,
    ) -> Option<&'c Version> {
        self.choose(&self.versions(catalog, application), allowed)
    }

    pub(crate) fn versions<'c>(&self, catalog: &'c Catalog, application: &str) -> OfTypes<'c> {
        PerType::from_fn(|kind| catalog.version_for(application, &self.platforms, kind))
    }

    pub(crate) fn choose<'c>(
        &self,
        versions: &OfTypes<'c>,
        allowed: impl Fn(ResourceType) -> bool,
    ) -> Option<&'c Version> {
        let order = ResourceType::COPROCESSORS.into_iter().chain([ResourceType::Cpu]);
        let versions = order.filter(|kind| allowed(*kind)).filter_map(|kind| versions[kind]);
        versions.into_iter().find(|version| self.has(version.usage))
    }

    /// Whether the host has what a job uses. More CPUs than it has are WS2's to judge, as of a project's
    /// request.
    fn has(&self, usage: Usage) -> bool {
        usage.coprocessor.is_none_or(|(kind, count)| count <= f64::from(self.instances[kind]))
    }

    /// Floating-point operations per second of a job that uses this.
    pub(crate) fn speed_of(&self, usage: Usage) -> f64 {
        let types = ResourceType::ALL.into_iter();
        types.map(|kind| usage.of(kind) * self.speeds[kind]).sum::<f64>().max(1.0)
    }

    /// How long a job of the workunit takes.
    pub(crate) fn estimate(&self, workunit: &Workunit, usage: Usage) -> Duration {
        Duration::from_secs_f64(workunit.flops_estimate.get() / self.speed_of(usage))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl HostLimits {
        pub(crate) fn with_memory(memory: Bytes) -> Self {
            Self { capacity: HostCapacity { memory, ..HostCapacity::default() }, ..Self::default() }
        }
        pub(crate) fn with_disk(self, disk: Bytes) -> Self {
            Self { disk, ..self }
        }
        pub(crate) fn disk(&self) -> Bytes {
            self.disk
        }
        pub(crate) fn memory(&self) -> Bytes {
            self.capacity.memory
        }
    }

    #[test]
    fn r6_10_of_a_platform_that_a_request_names_very_often_one_name_is_kept() {
        let mut catalog = Catalog::default();
        for platform in ["a-b-c", "d-e-f"] {
            catalog.add_version(Version {
                application: "app".into(),
                version: 100,
                platform: platform.into(),
                api_version: None,
                files: Vec::new(),
                usage: Usage::ONE_CPU,
                needs_network: false,
            });
        }
        let of = |first: &str, others: &[&str]| {
            let others: String = others
                .iter()
                .cycle()
                .take(10_000)
                .map(|name| format!("<alt_platform><name>{name}</name></alt_platform>"))
                .collect();
            let body = format!(
                "<scheduler_request><platform_name>{first}</platform_name>\
                 <cpu_req_secs>9</cpu_req_secs>{others}</scheduler_request>"
            );
            let request = SchedulerRequest::parse(body.as_bytes()).unwrap();
            let capacity = HostCapacity::of(&request, &catalog);
            HostLimits { host: 1, capacity, ..HostLimits::default() }
        };
        let one = of("a-b-c", &["a-b-c"]);
        assert_eq!(one.host_class().platforms, ["a-b-c"]);
        let both = one.renewed(HostLimits { host: 2, ..of("x", &["d-e-f", "x", "a-b-c"]) });
        assert_eq!(both.host_class().platforms, ["a-b-c", "d-e-f"]);
    }

    #[test]
    fn sizes_have_the_order_of_what_they_stand_for_and_can_be_put_back() {
        let with = |speed, memory, disk| {
            let capacity = HostCapacity {
                speeds: PerType::from_fn(|_| speed),
                memory: Bytes(memory),
                ..HostCapacity::default()
            };
            HostLimits { capacity, disk: Bytes(disk), ..HostLimits::default() }
        };
        let rising = [(0.0, 0, 0), (0.5, 1, 2), (3.9, 7, 3), (1e9, 1 << 40, 4), (1e300, u64::MAX, u64::MAX)];
        let rising = rising.map(|(speed, memory, disk)| with(speed, memory, disk));
        for pair in rising.windows(2) {
            let (mut less, more) = (pair[0].clone(), &pair[1]);
            for (place, size) in more.sizes().into_iter().enumerate() {
                assert!(less.sizes()[place] < size, "{place}");
                less.set_size(place, size);
            }
            assert_eq!(format!("{less:?}"), format!("{more:?}"));
        }
    }
}
