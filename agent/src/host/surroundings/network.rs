//! How many bytes all programs of the machine have moved over the network: the kernel's counters of its
//! interfaces, `/proc/net/dev`.
//!
//! What a container or a virtual machine sends passes an interface that is made up, often a bridge too, and
//! then the one with the cable. So only those count that are devices of the machine. Where there is none, as
//! in a container, all count but loopback, which leads nowhere.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use fallow_domain::Bytes;

/// More than the lines of thousands of interfaces.
const TEXT_MAX: u64 = 1 << 20;

/// Received and sent together, since the interfaces are there; none where the kernel does not say.
/// `counters` is `/proc/net/dev`, and `interfaces` is `/sys/class/net`, where those of devices lead to them.
pub(super) fn moved(counters: &Path, interfaces: &Path) -> Option<Bytes> {
    let mut text = String::new();
    File::open(counters).ok()?.take(TEXT_MAX).read_to_string(&mut text).ok()?;
    let all: Vec<(&str, Bytes)> = text.lines().filter_map(read).filter(|(name, _)| *name != "lo").collect();
    let is_device = |name: &str| interfaces.join(name).join("device").exists();
    let sum = |counts: &dyn Fn(&str) -> bool| {
        let those = all.iter().filter(|(name, _)| counts(name));
        those.map(|(_, bytes)| *bytes).reduce(Bytes::plus)
    };
    sum(&is_device).or_else(|| sum(&|_| true))
}

/// The name of an interface, and what went over it. Behind the name eight figures tell what was received, and
/// as many what was sent; the first ones of both are bytes.
fn read(line: &str) -> Option<(&str, Bytes)> {
    let (name, figures) = line.split_once(':')?;
    let mut figures = figures.split_whitespace().map(|figure| figure.parse::<u64>());
    let (received, sent) = (figures.next()?.ok()?, figures.nth(7)?.ok()?);
    Some((name.trim(), Bytes(received).plus(Bytes(sent))))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const HEAD: &str = "Inter-|   Receive                                                |  Transmit\n \
        face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs\n";

    fn line(name: &str, received: u64, sent: u64) -> String {
        format!("{name:>8}: {received} 11 0 0 0 0 0 7 {sent} 5 0 0 0 0 0 0\n")
    }

    /// What is read where the kernel says that, and these interfaces are devices.
    fn found(text: &str, devices: &[&str]) -> Option<Bytes> {
        let dir = tempfile::tempdir().unwrap();
        devices.iter().for_each(|name| fs::create_dir_all(dir.path().join(name).join("device")).unwrap());
        fs::write(dir.path().join("dev"), text).unwrap();
        moved(&dir.path().join("dev"), dir.path())
    }

    #[test]
    fn r6_4_what_crosses_the_machines_own_interfaces_counts_both_ways_and_once() {
        let (lo, cable) = (line("lo", 1_000_000, 1_000_000), line("enp3s0", 100, 20));
        let (radio, bridge) = (line("wlan0", 3, 0), line("docker0", 40, 40));
        let pair = line("veth12345678", 40, 40);
        let machine = [HEAD, &lo, &cable, &radio, &bridge, &pair].concat();
        assert_eq!(found(&machine, &["enp3s0", "wlan0"]), Some(Bytes(123)));
        // A container has none of its own.
        assert_eq!(found(&[HEAD, &lo, &pair].concat(), &[]), Some(Bytes(80)));
        assert_eq!(found(&[HEAD, &lo].concat(), &[]), None);
        assert_eq!(found("", &[]), None);
        let wrong = "eth0: 1 2 3\neth1: much 1 1 1 1 1 1 1 1\nno line\n: \n";
        assert_eq!(found(wrong, &[]), None);
        assert_eq!(found(&line("eth0", u64::MAX, 1), &[]), Some(Bytes(u64::MAX)));
        assert_eq!(moved(Path::new("/nowhere"), Path::new("/nowhere")), None);
    }
}
