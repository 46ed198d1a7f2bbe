//! What a request asks for, by resource type (R3.2, R3.12), and what its host can take.

use fallow_boinc::scheduler::SchedulerRequest;
use fallow_domain::{Bytes, Duration, PerType, ResourceType, Usage};
use fallow_policy::disk::passes::ThreeAmounts;
use fallow_policy::send::Wanted;

use super::speed;
use crate::catalog::Catalog;
use crate::records::Version;
use crate::workunit::Workunit;

/// Idle instances of a type that a request can name.
const IDLE_MAX: f64 = 4_096.0;

/// What the host is, and what a job needs of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Capacity {
    /// Instances that its client may use.
    pub(super) instances: PerType<u32>,
    /// Floating-point operations per second of one instance.
    speeds: PerType<f64>,
    /// Those of its platforms that the project has versions for, the primary one first.
    pub(super) platforms: Vec<String>,
    /// Memory for a job.
    pub(super) memory: Bytes,
}

/// What the hosts of an account that asks for work can take.
#[derive(Clone, Debug, Default)]
pub(crate) struct Means {
    /// The host that asked last.
    host: u64,
    capacity: Capacity,
    /// The most space that there was for jobs: what holds jobs now is free after them.
    disk: Bytes,
}

/// What accounts have in common whose hosts are much alike: platforms and coprocessors; each speed and size within a factor
/// of four.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Likeness {
    platforms: Vec<String>,
    coprocessors: PerType<u32>,
    speeds: PerType<u32>,
    memory: u32,
    disk: u32,
}

/// The newest version of an application for each type that a host has a platform for.
pub(super) type OfTypes<'c> = PerType<Option<&'c Version>>;

/// A request for work.
pub(super) struct Wish<'c> {
    pub(super) wanted: Wanted,
    pub(super) capacity: Capacity,
    pub(super) disk: ThreeAmounts,
    /// What the project has, as it was when the request came.
    pub(super) catalog: &'c Catalog,
}

impl<'c> Wish<'c> {
    /// What is asked for, if anything is.
    pub(super) fn of(request: &SchedulerRequest, catalog: &'c Catalog) -> Option<Self> {
        let wanted = wanted(request, 1.0);
        (!request.dont_send_work && wanted.is_open()).then(|| Self {
            wanted,
            capacity: Capacity::of(request, catalog),
            disk: disk(request),
            catalog,
        })
    }

    /// What the host that asks can take, whatever it holds now. `delete_from_self` is the project's setting.
    pub(super) fn means(&self, host: u64, delete_from_self: bool) -> Means {
        let most = self.disk.passes(delete_from_self).last();
        Means { host, capacity: self.capacity.clone(), disk: most.map_or(Bytes(0), |(_, space)| space) }
    }

    /// The types that are asked for.
    pub(super) fn types(&self) -> PerType<bool> {
        PerType::from_fn(|kind| self.wanted.wants(kind))
    }

    /// What there is of an application for the host: looked for once in a request, however many of its jobs wait.
    pub(super) fn versions(&self, application: &str) -> OfTypes<'c> {
        self.capacity.versions(self.catalog, application)
    }

    /// The version to send of those that there are: for a type that is still wanted and that the host has enough of. One
    /// for a coprocessor is preferred, as nothing else keeps that busy (R3.10).
    pub(super) fn choose(&self, versions: &OfTypes<'c>, still: &Wanted) -> Option<&'c Version> {
        self.capacity.choose(versions, |kind| still.wants(kind))
    }
}

impl Means {
    /// What is known after a host of the account asked: of another host, that both are there.
    pub(crate) fn renewed(self, now: Self) -> Self {
        let capacity = match self.host == now.host {
            true => now.capacity,
            false => self.capacity.or(now.capacity),
        };
        Self { host: now.host, capacity, disk: self.disk.max(now.disk) }
    }

    /// Whether a job of the workunit can be run, if nothing else is: of the types allowed, in memory, on the disk, and in
    /// time.
    pub(super) fn can(
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

impl Means {
    /// What is like it.
    pub(crate) fn likeness(&self) -> Likeness {
        let Capacity { instances, speeds, platforms, memory } = &self.capacity;
        Likeness {
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

impl Capacity {
    /// What one of two hosts has. What neither can do by itself may pass for possible.
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

    pub(super) fn of(request: &SchedulerRequest, catalog: &Catalog) -> Self {
        let cpus = request.host_info.p_ncpus.clamp(1, 4_096);
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
    pub(super) fn version<'c>(
        &self,
        catalog: &'c Catalog,
        application: &str,
        allowed: impl Fn(ResourceType) -> bool,
    ) -> Option<&'c Version> {
        self.choose(&self.versions(catalog, application), allowed)
    }

    fn versions<'c>(&self, catalog: &'c Catalog, application: &str) -> OfTypes<'c> {
        PerType::from_fn(|kind| catalog.version_for(application, &self.platforms, kind))
    }

    fn choose<'c>(
        &self,
        versions: &OfTypes<'c>,
        allowed: impl Fn(ResourceType) -> bool,
    ) -> Option<&'c Version> {
        let order = ResourceType::COPROCESSORS.into_iter().chain([ResourceType::Cpu]);
        let versions = order.filter(|kind| allowed(*kind)).filter_map(|kind| versions[kind]);
        versions.into_iter().find(|version| self.has(version.usage))
    }

    /// Whether the host has what a job uses. More CPUs than it has are WS2's to judge, as of a project's wish.
    fn has(&self, usage: Usage) -> bool {
        usage.coprocessor.is_none_or(|(kind, count)| count <= f64::from(self.instances[kind]))
    }

    /// Floating-point operations per second of a job that uses this.
    pub(super) fn speed_of(&self, usage: Usage) -> f64 {
        let types = ResourceType::ALL.into_iter();
        types.map(|kind| usage.of(kind) * self.speeds[kind]).sum::<f64>().max(1.0)
    }

    /// How long a job of the workunit takes.
    pub(super) fn estimate(&self, workunit: &Workunit, usage: Usage) -> Duration {
        Duration::from_secs_f64(workunit.flops_estimate.get() / self.speed_of(usage))
    }
}

/// By type; a client that knows no types says one number. `times` as much: more is looked at than is wanted, so that
/// the policy can refuse some of it.
pub(super) fn wanted(request: &SchedulerRequest, times: f64) -> Wanted {
    let (seconds, mut instances) = request.asked();
    instances[ResourceType::Cpu] = instances[ResourceType::Cpu].ceil();
    let seconds = seconds.map(|_, seconds| seconds * times);
    let instances = instances.map(|_, idle| if *idle > IDLE_MAX { IDLE_MAX } else { *idle } * times);
    Wanted::new(&seconds, &instances, request.work_req_seconds * times)
}

/// Disk space that jobs may take: what the client tells (R4.9); of one that tells but its share, that less what it uses,
/// within what is free.
fn disk(request: &SchedulerRequest) -> ThreeAmounts {
    let usage = &request.disk_usage;
    if let Some(free) = usage.free {
        return ThreeAmounts {
            free: free.now,
            with_offenders: free.with_offenders,
            with_self: free.with_self,
        };
    }
    let free = request.host_info.d_free.max(0.0);
    let share = usage.d_project_share.as_f64();
    // An old client or a fresh one says nothing about shares.
    let allowed = if share > 0.0 { share - usage.d_boinc_used_project.as_f64() } else { free };
    ThreeAmounts::only(Bytes::from_f64(allowed.min(free).max(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Means {
        pub(crate) fn with_memory(memory: Bytes) -> Self {
            Self { capacity: Capacity { memory, ..Capacity::default() }, ..Self::default() }
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
            Wish::of(&request, &catalog).unwrap().means(1, false)
        };
        let one = of("a-b-c", &["a-b-c"]);
        assert_eq!(one.likeness().platforms, ["a-b-c"]);
        let both = one.renewed(Means { host: 2, ..of("x", &["d-e-f", "x", "a-b-c"]) });
        assert_eq!(both.likeness().platforms, ["a-b-c", "d-e-f"]);
    }

    #[test]
    fn sizes_have_the_order_of_what_they_stand_for_and_can_be_put_back() {
        let with = |speed, memory, disk| {
            let capacity = Capacity {
                speeds: PerType::from_fn(|_| speed),
                memory: Bytes(memory),
                ..Capacity::default()
            };
            Means { capacity, disk: Bytes(disk), ..Means::default() }
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
