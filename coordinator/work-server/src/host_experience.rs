//! What a project's jobs took on a host over what they were to take by their sizes, by application version.
//!
//! A workunit's estimate is its submitter's, and may be wrong by far; it may also fit one kind of machine and
//! not another. Whether a job is in time on a host is judged by what the last jobs of its version took there,
//! as clients do for themselves (`fallow_policy::completion`, JC3). A client is told the version's speed by
//! that measure, and so estimates alike.
//!
//! What a host reports counts for its own jobs alone: one that lies harms nobody else.

use fallow_boinc::scheduler::ReportedResult;
use fallow_domain::{Duration, Instant, ResourceType, Speed};
use fallow_policy::completion::{EndedJob, Experience};
use serde::{Deserialize, Serialize};

use crate::catalog::Catalog;
use crate::error::ProjectError;
use crate::host_limits::HostCapacity;
use crate::records::Version;
use crate::store_keys::Keys;
use crate::txn::Txn;
use crate::workunit::Workunit;

/// A version, by all that tells it from others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct VersionName {
    application: String,
    version: u32,
    platform: String,
    plan_class: String,
}

impl VersionName {
    fn of(version: &Version) -> Self {
        Self {
            application: version.application.clone(),
            version: version.version,
            platform: version.platform.clone(),
            plan_class: version.plan_class().to_owned(),
        }
    }
}

/// The experience with one host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct HostExperience(Experience<VersionName>);

impl HostExperience {
    /// What is stored of a host; none of one that has finished nothing.
    pub(crate) fn read(txn: &Txn<'_>, keys: &Keys, host: u64) -> Result<Self, ProjectError> {
        let stored: Option<Self> = txn.get("host experience", &keys.host_experience(host))?;
        // What is damaged is learned again.
        Ok(stored.filter(|stored| stored.0.is_sound()).unwrap_or_default())
    }

    pub(crate) fn write(&self, txn: &mut Txn<'_>, keys: &Keys, host: u64) -> Result<(), ProjectError> {
        txn.put("host experience", keys.host_experience(host), self)
    }

    /// Learns from a job that was computed to its end. Says whether there was something to learn: a version
    /// that is not sent any more says nothing about others.
    pub(crate) fn learn(
        &mut self,
        catalog: &Catalog,
        capacity: &HostCapacity,
        workunit: &Workunit,
        result: &ReportedResult,
        now: Instant,
    ) -> bool {
        let by_class =
            |kind: &ResourceType| kind.is_coprocessor() && kind.name() == result.plan_class.as_str();
        let kind = ResourceType::ALL.into_iter().find(by_class).unwrap_or(ResourceType::Cpu);
        let platform = std::slice::from_ref(&result.platform);
        let version = catalog.version_for(&workunit.application, platform, kind);
        let Some(version) = version.filter(|version| version.version == result.version_num) else {
            return false;
        };
        let Ok(speed) = Speed::new(capacity.speed_of(version.usage)) else { return false };
        let by_size = capacity.estimate(workunit, version.usage);
        let actual = result.final_elapsed_time;
        if !by_size.is_positive() || !actual.is_positive() {
            return false;
        }
        self.0.learn(now, &VersionName::of(version), EndedJob { by_size, actual, speed });
        true
    }

    /// How fast a job of a version runs on the host, by its size.
    pub(crate) fn speed(&self, capacity: &HostCapacity, version: &Version) -> f64 {
        let by_benchmark = capacity.speed_of(version.usage);
        let factor =
            Speed::new(by_benchmark).map(|speed| self.0.factor(&VersionName::of(version), speed).get());
        (by_benchmark / factor.unwrap_or(1.0)).max(1.0)
    }

    /// How long a job of a workunit takes there.
    pub(crate) fn estimate(
        &self,
        capacity: &HostCapacity,
        workunit: &Workunit,
        version: &Version,
    ) -> Duration {
        Duration::from_secs_f64(workunit.flops_estimate.get() / self.speed(capacity, version))
    }
}
