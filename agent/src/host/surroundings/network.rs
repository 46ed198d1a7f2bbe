//! How many bytes all programs of the machine have moved over the network, by the kernel's counters of its
//! interfaces (`/proc/net/dev`), and how many of them the agent has moved itself.
//!
//! Model: what a virtual machine sends passes an interface that is made up, often a bridge too, and then the
//! one with the cable. So only those count that are devices of the machine. Where there is none, as in a
//! container, all count but loopback, which leads nowhere. Of two of which one passes on what it gets to the
//! other, as where a virtual machine has a card of its own (`lower_*` in `/sys/class/net`), the lower one
//! counts.
//!
//! It is looked every five seconds as long as the client wants that, and once more after two, for files wait
//! for the second look.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration as StdDuration, Instant};

use fallow_client::Event;
use fallow_domain::Bytes;
use fallow_policy::other_network::NetworkMoved;
use tokio::sync::watch as channel;

use super::own_sockets::{self, OwnSockets};
use crate::host::owner::{SensorStatus, Tell};
use crate::host::work;
use crate::proc;

/// More than the lines of thousands of interfaces.
const TEXT_MAX: u64 = 1 << 20;

/// Says how many bytes the agent itself has read and written over the network so far.
pub type OwnTraffic = Arc<dyn Fn() -> Bytes + Send + Sync>;

/// Where it is told.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    /// What went over each interface: `/proc/net/dev`.
    pub(super) traffic: PathBuf,
    /// Which are devices, and which lead to others: `/sys/class/net`.
    pub(super) interfaces: PathBuf,
}

/// Looks as long as that is wanted, twice as often as `every`: that is how often it is looked at what else
/// there is at this machine.
pub(super) async fn watch(
    counters: Counters,
    every: StdDuration,
    own: OwnTraffic,
    tell: Tell,
    mut wanted: channel::Receiver<bool>,
) {
    let began = Instant::now();
    let (mut sockets, mut has_failed) = (OwnSockets::default(), false);
    while wanted.wait_for(|is_wanted| *is_wanted).await.is_ok() {
        let mut nap = every / 5;
        while *wanted.borrow_and_update() {
            let looked = work::done({
                let (counters, own) = (counters.clone(), Arc::clone(&own));
                let mut sockets = std::mem::take(&mut sockets);
                move || (look(&counters, began, &own, &mut sockets), sockets)
            });
            // After one that failed another one comes: files wait for that only for some seconds.
            let moved = match looked.await {
                Ok((moved, after)) => {
                    (sockets, has_failed) = (after, false);
                    moved
                }
                Err(error) => {
                    if !std::mem::replace(&mut has_failed, true) {
                        tracing::warn!(%error, "a look at what goes over the network has failed: another one is made");
                    }
                    None
                }
            };
            if let Some(moved) = moved {
                // Where the engine has no room for it, another look comes.
                tell(Event::NetworkMoved(moved));
            }
            tokio::select! {
                () = tokio::time::sleep(nap) => {}
                changed = wanted.changed() => if changed.is_err() { return },
            }
            nap = every / 2;
        }
    }
}

/// What an interface is.
#[derive(Default)]
struct Kind {
    /// A device of the machine, and not one that is made up.
    is_device: bool,
    /// It passes on to these what it gets.
    lower: Vec<String>,
}

/// None where the kernel does not say it.
fn look(
    counters: &Counters,
    began: Instant,
    own: &OwnTraffic,
    sockets: &mut OwnSockets,
) -> Option<NetworkMoved> {
    let at = began.elapsed().into();
    // In this order: what crosses meanwhile is rather taken for the agent's than for others'.
    let (interfaces, all) = counters.read().ok()?;
    let uncounted = sockets.take(own_sockets::held());
    let ours = own().0.saturating_add(uncounted.came).saturating_sub(uncounted.to_go);
    Some(NetworkMoved { at, interfaces, all, ours: Bytes(ours) })
}

impl Counters {
    /// The interfaces that count, and what went over them since they are there, received and sent together.
    fn read(&self) -> io::Result<(BTreeSet<String>, Bytes)> {
        let text = proc::start_of(&self.traffic, TEXT_MAX)?;
        let text = String::from_utf8_lossy(&text);
        let mut all: Vec<(&str, Bytes)> =
            text.lines().filter_map(interface).filter(|(name, _)| *name != "lo").collect();
        let kinds: HashMap<&str, Kind> = all.iter().map(|(name, _)| (*name, self.kind(name))).collect();
        if kinds.values().any(|kind| kind.is_device) {
            all.retain(|(name, _)| kinds[name].is_device);
        }
        let names: HashSet<&str> = all.iter().map(|(name, _)| *name).collect();
        all.retain(|(name, _)| !kinds[name].lower.iter().any(|lower| names.contains(lower.as_str())));
        let moved = all.iter().map(|(_, bytes)| *bytes).reduce(Bytes::plus);
        let moved = moved.ok_or_else(|| io::Error::other("no interface but loopback"))?;
        Ok((all.iter().map(|(name, _)| (*name).to_owned()).collect(), moved))
    }

    /// What the kernel says of an interface by the names in its directory.
    fn kind(&self, name: &str) -> Kind {
        let mut kind = Kind::default();
        for entry in fs::read_dir(self.interfaces.join(name)).into_iter().flatten().flatten() {
            let entry = entry.file_name();
            match entry.to_str() {
                Some("device") => kind.is_device = true,
                Some(entry) => kind.lower.extend(entry.strip_prefix("lower_").map(str::to_owned)),
                None => {}
            }
        }
        kind
    }

    /// How it stands, for `fallow-agent status`.
    pub(super) fn status(&self) -> SensorStatus {
        let (on, what) = match self.read() {
            Ok((names, _)) => (true, names.into_iter().collect::<Vec<_>>().join(", ")),
            Err(why) => (false, format!("{}: {why}", self.traffic.display())),
        };
        SensorStatus { sensor: "network traffic".to_owned(), on, what }
    }
}

/// The name of an interface, and what went over it. Behind the name eight figures tell what was received, and
/// as many what was sent; the first ones of both are bytes.
fn interface(line: &str) -> Option<(&str, Bytes)> {
    let (name, figures) = line.split_once(':')?;
    let mut figures = figures.split_whitespace().map(|figure| figure.parse::<u64>());
    let (received, sent) = (figures.next()?.ok()?, figures.nth(7)?.ok()?);
    Some((name.trim(), Bytes(received).plus(Bytes(sent))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "Inter-|   Receive                                                |  Transmit\n \
        face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs\n";

    fn line(name: &str, received: u64, sent: u64) -> String {
        format!("{name:>8}: {received} 11 0 0 0 0 0 7 {sent} 5 0 0 0 0 0 0\n")
    }

    /// Where the kernel says that, and has these entries of interfaces.
    fn host(text: &str, entries: &[&str]) -> (tempfile::TempDir, Counters) {
        let dir = tempfile::tempdir().unwrap();
        let counters = Counters { traffic: dir.path().join("dev"), interfaces: dir.path().join("net") };
        entries.iter().for_each(|entry| fs::create_dir_all(counters.interfaces.join(entry)).unwrap());
        fs::write(&counters.traffic, text).unwrap();
        (dir, counters)
    }

    /// The names that count, and what is read of them.
    fn found(text: &str, entries: &[&str]) -> Option<(String, u64)> {
        let (_dir, counters) = host(text, entries);
        let (names, bytes) = counters.read().ok()?;
        Some((names.into_iter().collect::<Vec<_>>().join(" "), bytes.0))
    }

    #[test]
    fn r6_4_what_crosses_the_machines_own_interfaces_counts_both_ways_and_once() {
        let (lo, cable) = (line("lo", 1_000_000, 1_000_000), line("enp3s0", 100, 20));
        let (radio, bridge) = (line("wlan0", 3, 0), line("docker0", 40, 40));
        let pair = line("veth12345678", 40, 40);
        let machine = [HEAD, &lo, &cable, &radio, &bridge, &pair].concat();
        let read = |names: &str, bytes| Some((names.to_owned(), bytes));
        assert_eq!(found(&machine, &["enp3s0/device", "wlan0/device"]), read("enp3s0 wlan0", 123));
        // A container has none of its own.
        assert_eq!(found(&[HEAD, &lo, &pair].concat(), &[]), read("veth12345678", 80));
        assert_eq!(found(&[HEAD, &lo].concat(), &[]), None);
        assert_eq!(found("", &[]), None);
        let wrong = "eth0: 1 2 3\neth1: much 1 1 1 1 1 1 1 1\nno line\n: \n";
        assert_eq!(found(wrong, &[]), None);
        assert_eq!(found(&line("eth0", u64::MAX, 1), &[]), read("eth0", u64::MAX));
    }

    #[test]
    fn r6_4_of_an_interface_and_the_one_below_it_the_lower_one_counts() {
        let (above, below) = (line("eth0", 100, 20), line("enP1s2", 90, 10));
        let both = ["eth0/device", "enP1s2/device"];
        let read = |names: &str, bytes| Some((names.to_owned(), bytes));
        let text = [above, below].concat();
        assert_eq!(found(&text, &[&both[..], &["eth0/lower_enP1s2"]].concat()), read("enP1s2", 100));
        // Not where the one below counts for nothing.
        assert_eq!(found(&text, &["eth0/device", "eth0/lower_enP1s2"]), read("eth0", 120));
        assert_eq!(found(&text, &["eth0/lower_enP1s2"]), read("enP1s2", 100));
        assert_eq!(found(&text, &both), read("enP1s2 eth0", 220));
    }

    #[test]
    fn r6_4_where_traffic_is_not_told_it_is_said_so_with_the_reason() {
        let (dir, counters) = host(&line("eth0", 1, 1), &[]);
        let status = counters.status();
        assert_eq!((status.on, status.what.as_str()), (true, "eth0"));
        fs::write(dir.path().join("dev"), line("lo", 1, 1)).unwrap();
        let status = counters.status();
        assert!(!status.on && status.what.ends_with("dev: no interface but loopback"), "{status:?}");
        fs::remove_file(dir.path().join("dev")).unwrap();
        let status = counters.status();
        assert!(!status.on && status.what.contains("dev: "), "{status:?}");
    }
}
