//! Where connections come from, and how many of each source have sent nothing (R6.10). Pure.
//!
//! A laboratory is one address to a coordinator outside of it, so that connections of those who have shown
//! who they are, or have asked for something, are not counted here. The others are: one address has nothing
//! to say to a port on a thousand connections.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use tokio::time::Instant;

/// What is taken for one source: an IPv4 address, or the 64 bits of an IPv6 address that its network has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source(IpAddr);

impl Source {
    /// The source that an address is of. Whoever has an IPv6 network can have all addresses in it.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = address.to_bits() >> 64 << 64;
                IpAddr::V6(Ipv6Addr::from_bits(network))
            }
            v4 => v4,
        })
    }
}

/// Connections that have sent nothing complete, by where they come from.
#[derive(Debug, Default)]
pub(super) struct SilentBySource {
    /// By when they came to be so.
    of: BTreeMap<Source, BTreeSet<(Instant, u64)>>,
    /// The same, by how many there are.
    counts: BTreeSet<(usize, Source)>,
}

impl SilentBySource {
    pub(super) fn insert(&mut self, source: Source, at: (Instant, u64)) {
        self.change(source, |all| {
            all.insert(at);
        });
    }

    pub(super) fn remove(&mut self, source: Source, at: (Instant, u64)) {
        self.change(source, |all| {
            all.remove(&at);
        });
    }

    fn change(&mut self, source: Source, change: impl FnOnce(&mut BTreeSet<(Instant, u64)>)) {
        let all = self.of.entry(source).or_default();
        self.counts.remove(&(all.len(), source));
        change(all);
        match all.len() {
            0 => drop(self.of.remove(&source)),
            count => drop(self.counts.insert((count, source))),
        }
    }

    /// How many there are of a source, and the oldest.
    pub(super) fn of(&self, source: Source) -> Option<(usize, (Instant, u64))> {
        let all = self.of.get(&source)?;
        Some((all.len(), *all.first()?))
    }

    /// The same of the source that has most.
    pub(super) fn most(&self) -> Option<(usize, (Instant, u64))> {
        self.of(self.counts.last()?.1)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty() && self.counts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_an_ipv6_network_is_one_source_and_so_is_an_ipv4_address_however_it_is_written() {
        let source = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(source("2001:db8:0:7::1"), source("2001:db8:0:7:ffff::2"));
        assert_ne!(source("2001:db8:0:7::1"), source("2001:db8:0:8::1"));
        assert_eq!(source("::ffff:10.0.0.1"), source("10.0.0.1"));
        assert_ne!(source("10.0.0.1"), source("10.0.0.2"));
    }

    #[test]
    fn r6_10_the_source_with_most_is_known_whoever_comes_and_goes() {
        let [a, b] = ["10.0.0.1", "10.0.0.2"].map(|text| Source::of(text.parse().unwrap()));
        let (mut silent, now) = (SilentBySource::default(), Instant::now());
        silent.insert(a, (now, 0));
        silent.insert(b, (now, 1));
        silent.insert(b, (now, 2));
        assert_eq!(silent.most(), Some((2, (now, 1))));
        silent.remove(b, (now, 1));
        silent.remove(b, (now, 2));
        assert_eq!((silent.most(), silent.of(b)), (Some((1, (now, 0))), None));
        silent.remove(a, (now, 0));
        assert!(silent.is_empty() && silent.most().is_none());
    }
}
