//! The work that a request asks for, by resource type (R3.2, R3.12).

use fallow_boinc::scheduler::SchedulerRequest;
use fallow_domain::{Bytes, Duration, InstanceSeconds, PerType, ResourceType};
use fallow_policy::disk::passes::ReportedSpace;
use fallow_policy::send::Demand;

use crate::catalog::Catalog;
use crate::host_experience::HostExperience;
use crate::host_limits::{HostCapacity, HostLimits, OfTypes};
use crate::records::Version;
use crate::workunit::Workunit;

/// Idle instances of a type that a request can name.
const IDLE_MAX: f64 = 4_096.0;

/// A request for work.
pub(super) struct WorkRequest<'c> {
    pub(super) wanted: Demand,
    pub(super) capacity: HostCapacity,
    pub(super) disk: ReportedSpace,
    /// What the project has, as it was when the request came.
    pub(super) catalog: &'c Catalog,
    /// What jobs took on the host.
    experience: &'c HostExperience,
}

impl<'c> WorkRequest<'c> {
    /// What is asked for, if anything is.
    pub(super) fn of(
        request: &SchedulerRequest,
        catalog: &'c Catalog,
        experience: &'c HostExperience,
    ) -> Option<Self> {
        let wanted = wanted(request, 1.0);
        (!request.dont_send_work && wanted.is_open()).then(|| Self {
            wanted,
            capacity: HostCapacity::of(request, catalog),
            disk: disk(request),
            catalog,
            experience,
        })
    }

    /// What the host that asks can take, whatever it holds now. `delete_from_self` is the project's setting.
    pub(super) fn limits(&self, host: u64, delete_from_self: bool) -> HostLimits {
        let most = self.disk.passes(delete_from_self).last();
        HostLimits::of(host, self.capacity.clone(), most.map_or(Bytes(0), |(_, space)| space))
    }

    /// How long a job of a workunit takes on the host.
    pub(super) fn estimate(&self, workunit: &Workunit, version: &Version) -> Duration {
        self.experience.estimate(&self.capacity, workunit, version)
    }

    /// The types that are asked for.
    pub(super) fn types(&self) -> PerType<bool> {
        PerType::from_fn(|kind| self.wanted.wants(kind))
    }

    /// What there is of an application for the host: looked for once in a request, however many of its jobs
    /// wait.
    pub(super) fn versions(&self, application: &str) -> OfTypes<'c> {
        self.capacity.versions(self.catalog, application)
    }

    /// The version to send of those that there are: for a type that is still wanted and that the host has
    /// enough of. One for a coprocessor is preferred, as nothing else keeps that busy (R3.10).
    pub(super) fn choose(&self, versions: &OfTypes<'c>, still: &Demand) -> Option<&'c Version> {
        self.capacity.choose(versions, |kind| still.wants(kind))
    }
}

/// By type; a client that knows no types says one number. `times` as much: more is looked at than is wanted,
/// so that the policy can refuse some of it.
pub(super) fn wanted(request: &SchedulerRequest, times: f64) -> Demand {
    let (seconds, mut instances) = request.asked();
    instances[ResourceType::Cpu] = instances[ResourceType::Cpu].ceil();
    let seconds = seconds.map(|_, seconds| InstanceSeconds::new(*seconds) * times);
    let instances = instances.map(|_, idle| if *idle > IDLE_MAX { IDLE_MAX } else { *idle } * times);
    Demand::new(&seconds, &instances, InstanceSeconds::new(request.work_req_seconds) * times)
}

/// Disk space that jobs may take: what the client tells (R4.9); of one that tells but its share, that less
/// what it uses, within what is free.
fn disk(request: &SchedulerRequest) -> ReportedSpace {
    let usage = &request.disk_usage;
    if let Some(free) = usage.free {
        return ReportedSpace {
            free: free.now,
            with_offenders: free.with_offenders,
            with_self: free.with_self,
        };
    }
    let free = request.host_info.d_free.max(0.0);
    let share = usage.d_project_share.as_f64();
    // An old client or a fresh one says nothing about shares.
    let allowed = if share > 0.0 { share - usage.d_boinc_used_project.as_f64() } else { free };
    ReportedSpace::only(Bytes::from_f64(allowed.min(free).max(0.0)))
}
