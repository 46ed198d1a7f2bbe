//! Facts about this machine.

pub mod alarm;
mod benchmark;
pub mod clock_set;
mod cpu;
mod dhrystone;
pub mod gpu;
pub mod local_time;
pub mod owner;
pub mod surroundings;
pub mod virtualization;
mod whetstone;
mod work;

use std::fs;
use std::net::UdpSocket;
use std::path::Path;

use cpu::{Cpu, value_of};
use fallow_domain::{Bytes, Coprocessor, HostFacts, HostSpeed, Virtualization};

use crate::cgroup;

pub use benchmark::{PHASE, glance, measure};

/// How old a measured speed may be before it is measured again, in seconds.
pub const SPEED_AGE_MAX: f64 = 30.0 * 86_400.0;

/// The BOINC platforms that this build's machine runs, the primary one first.
pub const PLATFORMS: &[&str] =
    if cfg!(target_arch = "aarch64") { &["aarch64-unknown-linux-gnu"] } else { &["x86_64-pc-linux-gnu"] };

/// What was found of the machine elsewhere than in [`facts`].
#[derive(Clone, Debug)]
pub struct Found {
    /// How fast its CPUs are ([`measure`]).
    pub speed: HostSpeed,
    /// Its GPUs ([`gpu`]).
    pub coprocessors: Vec<Coprocessor>,
    /// Whether it is a machine of its own ([`virtualization`]).
    pub virtualization: Virtualization,
}

/// Looks at the machine. `dir` is the data directory, whose volume counts.
pub fn facts(dir: &Path, host_cpid: &str, found: Found) -> HostFacts {
    let Found { speed, coprocessors, virtualization } = found;
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let (cpuinfo, meminfo) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
    let cpu = Cpu::read(&cpuinfo, cfg!(any(target_arch = "aarch64", target_arch = "arm")));
    let uname = rustix::system::uname();
    let (disk_total, disk_free) = disk(dir);
    let (os_name, os_version) = os(&uname.release().to_string_lossy());
    HostFacts {
        timezone: jiff::Zoned::now().offset().seconds().into(),
        domain_name: uname.nodename().to_string_lossy().into_owned(),
        ip_addr: ip_addr(),
        host_cpid: host_cpid.to_owned(),
        ncpus: ncpus(),
        cpu_vendor: cpu.vendor,
        cpu_model: cpu.model,
        cpu_features: cpu.features,
        speed,
        memory: memory(kibibytes(&meminfo, "MemTotal"), cgroup::own_ceiling(cgroup::MEMORY)),
        cache: kibibytes(&cpuinfo, "cache size"),
        swap: kibibytes(&meminfo, "SwapTotal"),
        disk_total,
        disk_free,
        os_name,
        os_version,
        platforms: PLATFORMS.iter().map(|&name| name.to_owned()).collect(),
        coprocessors,
        virtualization,
    }
}

/// The memory that there is for a job: not all of the machine's where the agent's control group, or one above
/// that, has less. More would be given to no job, and one that was begun for it would be killed.
fn memory(total: Bytes, ceiling: Option<u64>) -> Bytes {
    ceiling.map_or(total, |ceiling| total.min(Bytes(cgroup::memory_of_a_task(ceiling))))
}

/// The CPUs that this process may use.
fn ncpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
}

/// Size of, and what an ordinary user may still write to, the volume that holds `dir`.
fn disk(dir: &Path) -> (Bytes, Bytes) {
    match rustix::fs::statvfs(dir) {
        Ok(volume) => {
            let of = |blocks: u64| Bytes(blocks.saturating_mul(volume.f_frsize));
            (of(volume.f_blocks), of(volume.f_bavail))
        }
        Err(_) => (Bytes(0), Bytes(0)),
    }
}

/// As BOINC writes it: `Linux Debian`, and the distribution's long name with the versions of the kernel and
/// of the C library, as in `Debian GNU/Linux 12 (bookworm) [6.1.0-37-amd64|libc 2.36]`. Servers read all
/// three out of it, and send nothing that needs a newer library than they find there.
fn os(kernel: &str) -> (String, String) {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
        Some(line.trim().trim_matches('"').to_owned()).filter(|value| !value.is_empty())
    };
    let distribution = value("NAME").unwrap_or_default();
    let distribution = distribution.split(' ').next().unwrap_or_default();
    let name = format!("Linux {distribution}").trim_end().to_owned();
    let libc = crate::sys::libc_version().map(|version| format!("libc {version}"));
    // Without a distribution the kernel is the system.
    let (system, kernel) = match value("PRETTY_NAME") {
        Some(distribution) => (distribution, Some(kernel.to_owned())),
        None => (kernel.to_owned(), None),
    };
    let more: Vec<String> = kernel.into_iter().chain(libc).collect();
    (name, if more.is_empty() { system } else { format!("{system} [{}]", more.join("|")) })
}

/// The address that this host would use towards the outside. Connecting a datagram socket sends nothing.
fn ip_addr() -> String {
    let socket = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    socket.map_or_else(|_| "127.0.0.1".to_owned(), |address| address.ip().to_string())
}

/// A line of so many kB, in bytes; nothing if there is none.
fn kibibytes(text: &str, key: &str) -> Bytes {
    let value = value_of(text, key).unwrap_or_default();
    let number = value.split(' ').next().and_then(|number| number.parse::<u64>().ok());
    Bytes(number.unwrap_or(0).saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fallow_domain::Speed;

    #[test]
    fn this_machine_has_cpus_memory_and_a_disk() {
        let speed = HostSpeed {
            fpops: Speed::new(1e9).unwrap(),
            iops: Speed::new(1e9).unwrap(),
            membw: 1e9,
            measured_at: 0.0,
        };
        let virtualization = virtualization::look(Path::new("/"));
        let facts = facts(Path::new("/"), "00", Found { speed, coprocessors: Vec::new(), virtualization });
        assert!(facts.ncpus > 0 && facts.memory.0 > 1 << 20 && facts.disk_total.0 > 0, "{facts:?}");
        assert!(!facts.domain_name.is_empty() && facts.os_name.starts_with("Linux"), "{facts:?}");
    }

    #[test]
    fn r6_10_a_host_has_no_more_memory_than_a_job_gets_in_the_agents_control_group() {
        let gib = |gib: u64| gib << 30;
        // A job's group leaves something to the agent and the other jobs.
        let cases = [(None, gib(4)), (Some(gib(1)), gib(1) - (128 << 20)), (Some(256 << 20), 128 << 20)];
        for (ceiling, expected) in cases.into_iter().chain([(Some(gib(100)), gib(4))]) {
            assert_eq!(memory(Bytes(gib(4)), ceiling), Bytes(expected), "{ceiling:?}");
        }
    }

    #[test]
    fn lines_with_colons_are_found_by_their_key() {
        let text = "model name\t: A : B\nMemTotal:  16 kB\n";
        assert_eq!(value_of(text, "model name").as_deref(), Some("A : B"));
        assert_eq!(kibibytes(text, "MemTotal"), Bytes(16 * 1024));
        assert_eq!(kibibytes(text, "absent"), Bytes(0));
    }
}
