//! What leads from this machine to the network: WiFi, or something else (R6.4).
//!
//! Model: the default routes of the kernel (`/proc/net/route`, `/proc/net/ipv6_route`), of each family the
//! one that it takes, name interfaces. One is WiFi if `/sys/class/net` has `wireless` or `phy80211` for it.
//! One that is made up is what it stands on (`lower_*` there); of a tunnel that says nothing of that, such as
//! a VPN's, all devices of the machine count that have a route. All of them have to be WiFi.
//!
//! Left out: whether that costs anything. The network of a telephone that others share is WiFi, too.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use fallow_client::NetworkOver;

use crate::proc;

/// More than the lines of thousands of routes.
const TEXT_MAX: u64 = 1 << 20;
/// An interface stands on few others, which stand on few.
const DEPTH_MAX: u32 = 4;
/// Of a route: it refuses what would take it (the kernel's `RTF_REJECT`), or it is in use (`RTF_UP`).
const REFUSES: u32 = 0x200;
const IS_UP: u32 = 1;

/// Where it is told.
pub(super) struct Routes<'a> {
    /// The lists of routes: `/proc/net`.
    pub(super) lists: &'a Path,
    /// What each interface is: `/sys/class/net`.
    pub(super) interfaces: &'a Path,
}

/// A route of one family.
#[derive(Debug, PartialEq, Eq)]
struct Route {
    interface: String,
    is_default: bool,
    /// The lower, the sooner it is taken.
    metric: u32,
}

impl Routes<'_> {
    /// What leads to the network.
    pub(super) fn over(&self) -> NetworkOver {
        let families = [self.read("route", ipv4), self.read("ipv6_route", ipv6)];
        let ways: BTreeSet<&str> = families.iter().flat_map(|family| default_ways(family)).collect();
        if ways.is_empty() {
            return NetworkOver::Nothing;
        }
        let all = families.iter().flatten().map(|route| route.interface.as_str());
        let devices: BTreeSet<&str> = all.filter(|name| self.has(name, "device")).collect();
        match ways.iter().find(|way| !self.is_wifi(way, &devices, DEPTH_MAX)) {
            Some(way) => NetworkOver::Other((*way).to_owned()),
            None => NetworkOver::Wifi,
        }
    }

    fn is_wifi(&self, name: &str, devices: &BTreeSet<&str>, depth: u32) -> bool {
        if self.has(name, "wireless") || self.has(name, "phy80211") {
            return true;
        }
        if self.has(name, "device") || depth == 0 {
            return false;
        }
        let lower = self.lower(name);
        match lower.is_empty() {
            true => !devices.is_empty() && devices.iter().all(|device| self.is_wifi(device, devices, 0)),
            false => lower.iter().all(|one| self.is_wifi(one, devices, depth - 1)),
        }
    }

    /// The interfaces that one stands on.
    fn lower(&self, name: &str) -> Vec<String> {
        let entries = fs::read_dir(self.place(name)).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter_map(|name| name.strip_prefix("lower_").map(str::to_owned)).collect()
    }

    fn has(&self, name: &str, entry: &str) -> bool {
        self.place(name).join(entry).exists()
    }

    fn place(&self, name: &str) -> PathBuf {
        self.interfaces.join(name)
    }

    /// The routes of a family; none where the kernel does not list them.
    fn read(&self, list: &str, parse: fn(&str) -> Option<Route>) -> Vec<Route> {
        let text = proc::start_of(self.lists.join(list), TEXT_MAX).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        text.lines().filter_map(parse).filter(|route| route.interface != "lo").collect()
    }
}

/// The interfaces of the default routes that are taken: of several as good as each other any may be.
fn default_ways(routes: &[Route]) -> impl Iterator<Item = &str> {
    let defaults = || routes.iter().filter(|route| route.is_default);
    let least = defaults().map(|route| route.metric).min();
    defaults().filter(move |route| Some(route.metric) == least).map(|route| route.interface.as_str())
}

fn number(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 16).ok()
}

fn is_used(flags: u32) -> bool {
    flags & IS_UP != 0 && flags & REFUSES == 0
}

/// A name that is a directory of its own below the list of interfaces.
fn interface(name: &str) -> Option<String> {
    (!matches!(name, "" | "." | "..") && !name.contains('/')).then(|| name.to_owned())
}

/// A line of `/proc/net/route`: interface, destination, gateway, flags, two counts, metric, mask. Addresses
/// and flags are hexadecimal.
fn ipv4(line: &str) -> Option<Route> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [name, to, _, flags, _, _, metric, mask, ..] = fields[..] else { return None };
    let is_default = number(to)? == 0 && number(mask)? == 0;
    let route = Route { interface: interface(name)?, is_default, metric: metric.parse().ok()? };
    is_used(number(flags)?).then_some(route)
}

/// A line of `/proc/net/ipv6_route`: destination and its length, source and its length, gateway, metric, two
/// counts, flags, interface. All but the last is hexadecimal.
fn ipv6(line: &str) -> Option<Route> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, length, _, _, _, metric, _, _, flags, name] = fields[..] else { return None };
    let is_default = number(length)? == 0;
    let route = Route { interface: interface(name)?, is_default, metric: number(metric)? };
    is_used(number(flags)?).then_some(route)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";
    const ANY6: &str = "00000000000000000000000000000000";

    fn by4(name: &str, metric: u32) -> String {
        format!("{name}\t00000000\t0100A8C0\t0003\t0\t0\t{metric}\t00000000\t0\t0\t0\n")
    }

    /// One to the network that an interface is in.
    fn near4(name: &str) -> String {
        format!("{name}\t0000A8C0\t00000000\t0001\t0\t0\t600\t00FFFFFF\t0\t0\t0\n")
    }

    fn by6(name: &str, flags: &str) -> String {
        format!(
            "{ANY6} 00 {ANY6} 00 fe800000000000000000000000000001 00000400 00000001 00000000 {flags} {name:>8}\n"
        )
    }

    fn over(v4: &str, v6: &str, entries: &[&str]) -> NetworkOver {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("route"), format!("{HEAD}{v4}")).unwrap();
        fs::write(dir.path().join("ipv6_route"), v6).unwrap();
        let interfaces = dir.path().join("net");
        entries.iter().for_each(|entry| fs::create_dir_all(interfaces.join(entry)).unwrap());
        Routes { lists: dir.path(), interfaces: &interfaces }.over()
    }

    const MACHINE: [&str; 4] = ["wlan0/wireless", "wlan0/device", "eth0/device", "wlp1s0/phy80211"];

    fn other(name: &str) -> NetworkOver {
        NetworkOver::Other(name.to_owned())
    }

    #[test]
    fn r6_4_a_machine_is_on_wifi_when_all_routes_to_the_network_that_are_taken_are_wireless() {
        let (cable, radio) = (by4("eth0", 100), by4("wlan0", 600));
        for (v4, v6, expected) in [
            (radio.clone(), String::new(), NetworkOver::Wifi),
            (by4("wlp1s0", 0), String::new(), NetworkOver::Wifi),
            (cable.clone(), String::new(), other("eth0")),
            // The kernel takes the one with the lower metric, and any of equal ones.
            (format!("{radio}{cable}"), String::new(), other("eth0")),
            (format!("{}{}", by4("eth0", 700), radio), String::new(), NetworkOver::Wifi),
            (format!("{}{}", by4("eth0", 600), radio), String::new(), other("eth0")),
            // What leads to neighbours leads no further.
            (format!("{}{radio}", near4("eth0")), String::new(), NetworkOver::Wifi),
            (near4("wlan0"), String::new(), NetworkOver::Nothing),
            (String::new(), String::new(), NetworkOver::Nothing),
            // Both families are used.
            (radio.clone(), by6("wlan0", "00450003"), NetworkOver::Wifi),
            (radio.clone(), by6("eth0", "00450003"), other("eth0")),
            (String::new(), by6("wlan0", "00450003"), NetworkOver::Wifi),
            // One that refuses, or that is down, leads nowhere.
            (radio.clone(), by6("lo", "00200200"), NetworkOver::Wifi),
            (radio.clone(), by6("eth0", "00000201"), NetworkOver::Wifi),
            (radio, by6("eth0", "00450002"), NetworkOver::Wifi),
            ("eth0 0 0\n\nno route\n../x 0 0 1 0 0 0 0\n".to_owned(), "x\n".to_owned(), NetworkOver::Nothing),
        ] {
            assert_eq!(over(&v4, &v6, &MACHINE), expected, "{v4}{v6}");
        }
        let nowhere = Path::new("/nowhere");
        assert_eq!(Routes { lists: nowhere, interfaces: nowhere }.over(), NetworkOver::Nothing);
    }

    #[test]
    fn r6_4_an_interface_that_is_made_up_is_what_it_stands_on() {
        let with = |entry: &[&'static str]| [&MACHINE[..], entry].concat();
        let bridge = by4("br0", 0);
        assert_eq!(over(&bridge, "", &with(&["br0/lower_eth0"])), other("br0"));
        assert_eq!(over(&bridge, "", &with(&["br0/lower_wlan0"])), NetworkOver::Wifi);
        assert_eq!(over(&bridge, "", &with(&["br0/lower_wlan0", "br0/lower_eth0"])), other("br0"));
        // In a circle, too.
        assert_eq!(over(&bridge, "", &with(&["br0/lower_br0"])), other("br0"));
        let tunnel = by4("tun0", 50);
        assert_eq!(over(&format!("{tunnel}{}", near4("wlan0")), "", &with(&["tun0"])), NetworkOver::Wifi);
        let both = format!("{tunnel}{}{}", near4("wlan0"), near4("eth0"));
        assert_eq!(over(&both, "", &with(&["tun0"])), other("tun0"));
        assert_eq!(over(&tunnel, "", &with(&["tun0"])), other("tun0"));
    }
}
