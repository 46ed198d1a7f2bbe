//! How often a host's certificate is renewed (R6.10): a decision, without clock or connection.
//!
//! Whoever has a copy of a host's identity can ask without end. So each place (IPv4 address, or network of
//! IPv6) has a pause of its own, and who is refused puts nothing off.

use std::collections::BTreeMap;

use fallow_domain::{Duration, Instant};
use fallow_work_server::connections::Source;

/// Places of which it is kept that they had one within the pause.
const PLACES: usize = 64;

/// When a host's certificate was renewed last.
#[derive(Debug, Default)]
pub(super) struct Renewals(BTreeMap<Option<Source>, Instant>);

impl Renewals {
    /// Whether it is renewed for whoever asks from there, which counts then.
    pub(super) fn allow(&mut self, from: Option<Source>, now: Instant, pause: Duration) -> bool {
        // Those behind us are of a clock that was set back.
        self.0.retain(|_, last| *last <= now && now.since(*last) < pause);
        let is_due = self.0.len() < PLACES && !self.0.contains_key(&from);
        if is_due {
            self.0.insert(from, now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_who_asks_for_certificates_without_end_puts_no_renewal_off_and_none_of_those_elsewhere() {
        let mut renewals = Renewals::default();
        let at = |tenths: i64| Instant::from_micros(1_000_000_000 + 100_000 * tenths);
        let [copy, host] = [1, 2].map(|last: u8| Some(Source::of([192, 0, 2, last].into())));
        let mut renew = |from, tenths| renewals.allow(from, at(tenths), Duration::from_secs(1));
        let renewed: Vec<_> = (0..31).filter(|tenths| renew(copy, *tenths)).collect();
        assert_eq!(renewed, [0, 10, 20, 30]);
        assert!(renew(host, 31) && !renew(host, 32) && !renew(copy, 32));
        assert!(renew(host, -5), "the clock was set back");
        // However many places ask, few are kept.
        let other = |number: u8| Some(Source::of([198, 51, 100, number].into()));
        assert_eq!((0..=255).filter(|number| renew(other(*number), 100)).count(), PLACES);
        assert!(renew(host, 111));
    }
}
