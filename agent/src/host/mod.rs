//! Facts about this machine.

mod benchmark;

use std::fs;
use std::net::UdpSocket;
use std::path::Path;

use fallow_domain::{Bytes, HostFacts, HostSpeed};

pub use benchmark::measure;

/// How old a measured speed may be before it is measured again, in seconds.
pub const SPEED_AGE_MAX: f64 = 30.0 * 86_400.0;

/// The BOINC platforms that this build's machine runs, the primary one first.
pub const PLATFORMS: &[&str] =
    if cfg!(target_arch = "aarch64") { &["aarch64-unknown-linux-gnu"] } else { &["x86_64-pc-linux-gnu"] };

/// Looks at the machine. `dir` is the data directory, whose volume counts.
pub fn facts(dir: &Path, host_cpid: &str, speed: HostSpeed) -> HostFacts {
    let cpu = Colons::read("/proc/cpuinfo");
    let memory = Colons::read("/proc/meminfo");
    let uname = rustix::system::uname();
    let (disk_total, disk_free) = disk(dir);
    let (os_name, os_version) = os(&uname.release().to_string_lossy());
    HostFacts {
        timezone: jiff::Zoned::now().offset().seconds().into(),
        domain_name: uname.nodename().to_string_lossy().into_owned(),
        ip_addr: ip_addr(),
        host_cpid: host_cpid.to_owned(),
        ncpus: std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX)),
        cpu_vendor: cpu.get(&["vendor_id", "CPU implementer"]),
        cpu_model: cpu.get(&["model name", "CPU part"]),
        cpu_features: cpu.get(&["flags", "Features"]),
        speed,
        memory: kibibytes(&memory.get(&["MemTotal"])),
        cache: kibibytes(&cpu.get(&["cache size"])),
        swap: kibibytes(&memory.get(&["SwapTotal"])),
        disk_total,
        disk_free,
        os_name,
        os_version,
        platforms: PLATFORMS.iter().map(|&name| name.to_owned()).collect(),
        coprocessors: Vec::new(),
    }
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

/// As BOINC writes it: `Linux Debian`, and the distribution's long name with the kernel's version.
fn os(kernel: &str) -> (String, String) {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
        Some(line.trim().trim_matches('"').to_owned()).filter(|value| !value.is_empty())
    };
    let distribution = value("NAME").unwrap_or_default();
    let distribution = distribution.split(' ').next().unwrap_or_default();
    let name = format!("Linux {distribution}").trim_end().to_owned();
    (name, format!("{} [{kernel}]", value("PRETTY_NAME").unwrap_or_else(|| "unknown".to_owned())))
}

/// The address that this host would use towards the outside. Connecting a datagram socket sends nothing.
fn ip_addr() -> String {
    let socket = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    socket.map_or_else(|_| "127.0.0.1".to_owned(), |address| address.ip().to_string())
}

/// A file of `key : value` lines.
struct Colons(String);

impl Colons {
    fn read(path: &str) -> Self {
        Self(fs::read_to_string(path).unwrap_or_default())
    }

    /// The value of the first of `keys` that there is; empty if there is none.
    fn get(&self, keys: &[&str]) -> String {
        let of = |key: &str| {
            self.0.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                (name.trim() == key).then(|| value.trim().to_owned())
            })
        };
        keys.iter().find_map(|key| of(key)).unwrap_or_default()
    }
}

fn kibibytes(text: &str) -> Bytes {
    Bytes(
        text.split(' ')
            .next()
            .and_then(|number| number.parse::<u64>().ok())
            .unwrap_or(0)
            .saturating_mul(1024),
    )
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
        let facts = facts(Path::new("/"), "00", speed);
        assert!(facts.ncpus > 0 && facts.memory.0 > 1 << 20 && facts.disk_total.0 > 0, "{facts:?}");
        assert!(!facts.domain_name.is_empty() && facts.os_name.starts_with("Linux"), "{facts:?}");
    }

    #[test]
    fn lines_with_colons_are_found_by_their_key() {
        let colons = Colons("model name\t: A : B\nMemTotal:  16 kB\n".into());
        assert_eq!(colons.get(&["none", "model name"]), "A : B");
        assert_eq!(kibibytes(&colons.get(&["MemTotal"])), Bytes(16 * 1024));
        assert_eq!(kibibytes(&colons.get(&["absent"])), Bytes(0));
    }
}
