//! What a client says about its machine (BOINC: `host_info`).

use fallow_domain::{
    Bytes, ContainerEngine, ContainerEngineKind, HostFacts, HostSpeed, Installed, Invalid, Speed,
    Virtualization,
};

use crate::xml::elements;

/// The speed of a CPU about which nothing is known, in operations per second, as BOINC assumes it.
const UNKNOWN_SPEED: f64 = 1e9;
/// Kinds of what runs containers, as BOINC numbers them (`DOCKER_TYPE`).
const DOCKER: i32 = 1;
const PODMAN: i32 = 2;

elements! {
/// A machine, in BOINC's terms. Sizes are floating-point numbers of bytes, as on the wire.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostInfo {
    /// Seconds east of UTC.
    pub timezone: i64,
    /// The host's name.
    pub domain_name: String,
    /// Its address as it sees it.
    pub ip_addr: String,
    /// A random identity of 32 hexadecimal digits, made once per host.
    pub host_cpid: String,
    /// Logical CPUs.
    pub p_ncpus: u32,
    /// CPU vendor.
    pub p_vendor: String,
    /// CPU model.
    pub p_model: String,
    /// CPU features, separated by blanks.
    pub p_features: String,
    /// Floating-point operations per second of one CPU.
    pub p_fpops: f64,
    /// Integer operations per second of one CPU.
    pub p_iops: f64,
    /// Memory bandwidth, bytes per second.
    pub p_membw: f64,
    /// When these were measured, seconds since the epoch.
    pub p_calculated: f64,
    /// True if virtual machines cannot use the CPU's extensions for them.
    pub p_vm_extensions_disabled: bool,
    /// Main memory in bytes.
    pub m_nbytes: f64,
    /// CPU cache in bytes.
    pub m_cache: f64,
    /// Swap space in bytes.
    pub m_swap: f64,
    /// Size of the data volume in bytes.
    pub d_total: f64,
    /// Free space there in bytes.
    pub d_free: f64,
    /// Operating system.
    pub os_name: String,
    /// Its version.
    pub os_version: String,
    /// Coprocessors that jobs can use.
    pub n_usable_coprocs: u32,
    /// Version of the program that runs containers, if jobs can use one.
    pub docker_version: Option<String>,
    /// Which program that is: 1 for Docker, 2 for Podman.
    pub docker_type: Option<i32>,
    /// Version of VirtualBox, if jobs can use it.
    pub virtualbox_version: Option<String>,
}
}

impl HostInfo {
    /// A machine as BOINC sees it. Its platforms are elsewhere in the request.
    pub fn from_facts(facts: &HostFacts) -> Self {
        let Virtualization { engine, virtualbox, .. } = &facts.virtualization;
        // Of what jobs cannot use BOINC says nothing either: it runs a container first, to see that it can.
        let engine = engine.as_ref().filter(|engine| engine.installed.for_jobs);
        let virtualbox = virtualbox.as_ref().filter(|installed| installed.for_jobs);
        Self {
            timezone: facts.timezone,
            domain_name: facts.domain_name.clone(),
            ip_addr: facts.ip_addr.clone(),
            host_cpid: facts.host_cpid.clone(),
            p_ncpus: facts.ncpus,
            p_vendor: facts.cpu_vendor.clone(),
            p_model: facts.cpu_model.clone(),
            p_features: facts.cpu_features.clone(),
            p_fpops: facts.speed.fpops.get(),
            p_iops: facts.speed.iops.get(),
            p_membw: facts.speed.membw,
            p_calculated: facts.speed.measured_at,
            p_vm_extensions_disabled: false,
            m_nbytes: facts.memory.as_f64(),
            m_cache: facts.cache.as_f64(),
            m_swap: facts.swap.as_f64(),
            d_total: facts.disk_total.as_f64(),
            d_free: facts.disk_free.as_f64(),
            os_name: facts.os_name.clone(),
            os_version: facts.os_version.clone(),
            n_usable_coprocs: 0,
            docker_version: engine.map(|engine| engine.installed.version.clone()),
            docker_type: engine.map(|engine| match engine.kind {
                ContainerEngineKind::Docker => DOCKER,
                ContainerEngineKind::Podman => PODMAN,
            }),
            virtualbox_version: virtualbox.map(|installed| installed.version.clone()),
        }
    }

    /// The facts in it, with the platforms that the request names. A host that says it has no CPU has one,
    /// and a speed that is none becomes BOINC's assumption of 10^9 operations per second.
    ///
    /// # Errors
    /// None today: the assumption is a speed.
    pub fn to_facts(&self, platforms: Vec<String>) -> Result<HostFacts, Invalid> {
        let speed = |value| Speed::new(value).or_else(|_| Speed::new(UNKNOWN_SPEED));
        Ok(HostFacts {
            timezone: self.timezone,
            domain_name: self.domain_name.clone(),
            ip_addr: self.ip_addr.clone(),
            host_cpid: self.host_cpid.clone(),
            ncpus: self.p_ncpus.max(1),
            cpu_vendor: self.p_vendor.clone(),
            cpu_model: self.p_model.clone(),
            cpu_features: self.p_features.clone(),
            speed: HostSpeed {
                fpops: speed(self.p_fpops)?,
                iops: speed(self.p_iops)?,
                membw: self.p_membw,
                measured_at: self.p_calculated,
            },
            memory: Bytes::from_f64(self.m_nbytes),
            cache: Bytes::from_f64(self.m_cache),
            swap: Bytes::from_f64(self.m_swap),
            disk_total: Bytes::from_f64(self.d_total),
            disk_free: Bytes::from_f64(self.d_free),
            os_name: self.os_name.clone(),
            os_version: self.os_version.clone(),
            platforms,
            coprocessors: Vec::new(),
            virtualization: Virtualization {
                engine: self.engine(),
                virtualbox: self.virtualbox_version.as_deref().and_then(installed),
                ..Virtualization::default()
            },
        })
    }

    /// What runs containers. One of a kind that is not known might be anything.
    fn engine(&self) -> Option<ContainerEngine> {
        let kind = match self.docker_type? {
            DOCKER => ContainerEngineKind::Docker,
            PODMAN => ContainerEngineKind::Podman,
            _ => return None,
        };
        Some(ContainerEngine { kind, installed: installed(self.docker_version.as_deref()?)? })
    }
}

/// A program of which a client speaks, which it does if its jobs can use it.
fn installed(version: &str) -> Option<Installed> {
    (!version.is_empty()).then(|| Installed { version: version.to_owned(), for_jobs: true })
}

impl From<&HostFacts> for HostInfo {
    fn from(facts: &HostFacts) -> Self {
        Self::from_facts(facts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_survive_the_way_to_boincs_terms_and_back() {
        let info = HostInfo { p_ncpus: 4, p_fpops: 3e9, p_iops: 9e9, d_free: 1e9, ..HostInfo::default() };
        let facts = info.to_facts(vec!["x86_64-pc-linux-gnu".into()]).unwrap();
        assert_eq!(HostInfo::from_facts(&facts), info);
    }

    #[test]
    fn r6_2_projects_are_told_of_what_runs_other_systems_only_where_jobs_can_use_it() {
        let with = |for_jobs| {
            let installed = |version: &str| Installed { version: version.to_owned(), for_jobs };
            let facts = HostInfo::default().to_facts(Vec::new()).unwrap();
            let engine = ContainerEngine { kind: ContainerEngineKind::Podman, installed: installed("4.9.3") };
            let virtualization = Virtualization {
                hypervisor: "kvm".into(),
                container: "docker".into(),
                engine: Some(engine),
                virtualbox: Some(installed("7.0.20")),
            };
            HostInfo::from_facts(&HostFacts { virtualization, ..facts })
        };
        let told = with(true);
        assert_eq!((told.docker_version.as_deref(), told.docker_type), (Some("4.9.3"), Some(PODMAN)));
        assert_eq!(told.virtualbox_version.as_deref(), Some("7.0.20"));
        assert_eq!(HostInfo::from_facts(&told.to_facts(Vec::new()).unwrap()), told);
        let silent = with(false);
        assert_eq!(
            (silent.docker_version, silent.docker_type, silent.virtualbox_version),
            (None, None, None)
        );
    }

    #[test]
    fn of_what_runs_containers_only_what_has_a_version_and_a_known_kind_is_believed() {
        for (version, kind, known) in [
            (Some("24.0.7"), Some(1), true),
            (Some("24.0.7"), Some(3), false),
            (Some("24.0.7"), None, false),
            (Some(""), Some(1), false),
            (None, Some(1), false),
        ] {
            let version = version.map(str::to_owned);
            let info = HostInfo { docker_version: version, docker_type: kind, ..HostInfo::default() };
            assert_eq!(info.to_facts(Vec::new()).unwrap().virtualization.engine.is_some(), known, "{info:?}");
        }
    }

    #[test]
    fn a_host_that_says_nothing_about_its_cpus_has_a_usual_one() {
        let facts = HostInfo::default().to_facts(Vec::new()).unwrap();
        assert_eq!((facts.ncpus, facts.speed.fpops.get()), (1, 1e9));
    }
}
