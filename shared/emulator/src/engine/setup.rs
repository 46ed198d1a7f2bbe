//! What a client is given at the beginning: itself, its host, and the addresses of its projects.

use fallow_boinc::scheduler::ClientVersion;
use fallow_client::{Client, ClientConfig};
use fallow_domain::{Bytes, Coprocessor, HostFacts, HostSpeed, MasterUrl};
use fallow_policy::composition::Composition;

use super::random::Stream;
use super::server::PLATFORM;
use crate::scenario::HostModel;

/// Memory or disk of a host that has enough for everything.
const ENOUGH: Bytes = Bytes(1 << 60);

/// The URL of the project at a place in the scenario.
pub(super) fn url(index: usize) -> String {
    format!("http://{index}.invalid/")
}

/// The place in the scenario of the project with a URL.
pub(super) fn place(url: &MasterUrl) -> Option<usize> {
    url.as_str().strip_prefix("http://")?.split('.').next()?.parse().ok()
}

/// The random numbers of something of a host, by the host's place. The first host draws what it would draw
/// alone.
pub(super) fn stream_of(seed: u64, host: usize, what: &[&str]) -> Stream {
    match host {
        0 => Stream::named(seed, what),
        _ => Stream::named(seed, &[&["hosts", &(host + 1).to_string()], what].concat()),
    }
}

/// A client as it is on a host that never had one.
pub(super) fn new_client(seed: u64, host: usize, composition: Composition) -> Client {
    let seed = stream_of(seed, host, &["client"]).bits();
    let version = ClientVersion { major: 8, minor: 3, release: 0 };
    // It ends with the run, and is never told to follow another policy.
    let known =
        ClientConfig { tells_away: true, may_change_policy: false, ..ClientConfig::new(seed, version) };
    let config = ClientConfig { composition, ..known };
    #[allow(clippy::expect_used, reason = "there are no records that could be unreadable")]
    Client::restore(config, []).expect("a client without records begins anew").without_records()
}

/// The host as its client finds it.
pub(super) fn facts(host: &HostModel) -> HostFacts {
    let speed = host.flops;
    HostFacts {
        timezone: 0,
        domain_name: String::new(),
        ip_addr: String::new(),
        host_cpid: String::new(),
        ncpus: host.cpus.get(),
        cpu_vendor: String::new(),
        cpu_model: String::new(),
        cpu_features: String::new(),
        speed: HostSpeed { fpops: speed, iops: speed, membw: 1e9, measured_at: 0.0 },
        memory: host.memory.unwrap_or(ENOUGH),
        cache: Bytes(0),
        swap: Bytes(0),
        disk_total: host.disk.unwrap_or(ENOUGH),
        disk_free: host.disk.unwrap_or(ENOUGH),
        os_name: String::new(),
        os_version: String::new(),
        platforms: vec![PLATFORM.to_owned()],
        coprocessors: host
            .coprocessors
            .iter()
            .map(|own| Coprocessor {
                kind: own.kind.resource(),
                count: own.count.get(),
                model: own.kind.to_string(),
                speed: own.flops,
                memory: ENOUGH,
                driver: String::new(),
                cuda_version: 0,
                devices: Vec::new(),
            })
            .collect(),
        virtualization: fallow_domain::Virtualization::default(),
    }
}
