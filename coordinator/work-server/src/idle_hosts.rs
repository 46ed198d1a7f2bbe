//! Hosts that asked for work in vain, and when they are to come again (R3.7).
//!
//! A client that got nothing backs off, for up to a day. So that new work does not lie about while machines
//! idle, each such host is told to come again after the project's `poll` (BOINC: `next_rpc_delay`). Very many
//! idle hosts would then ask all the time: the delay grows with their number, so that all of them together
//! make [`POLLS_PER_SECOND`] at most. Agents of this coordinator's fleet need not wait for it: they are told
//! of new work over their links.
//!
//! Kept in memory only: after a restart hosts are counted again as they come.

use std::collections::BTreeMap;

use fallow_domain::{Duration, Instant};

/// Requests in vain that a project takes in a second at most, however many hosts wait. One costs a
/// millisecond or two of a CPU: this leaves the rest for hosts that compute. Up to 15,000 idle hosts it
/// changes nothing at the default poll of 5 minutes; 100,000 come every half an hour.
pub(crate) const POLLS_PER_SECOND: f64 = 50.0;
/// Never longer than this: a client's own backoff goes no further.
const DELAY_MAX: Duration = Duration::from_hours(24);

/// The hosts that wait for work.
#[derive(Debug, Default)]
pub(crate) struct IdleHosts {
    /// By when each is expected.
    due: BTreeMap<u64, Instant>,
    /// When those that never came were last dropped.
    swept: Option<Instant>,
}

impl IdleHosts {
    /// A host that asked in vain: when it is to come again. `jitter` from 0 to 1 spreads hosts that came
    /// together.
    pub(crate) fn wait(&mut self, host: u64, poll: Duration, now: Instant, jitter: f64) -> Option<Duration> {
        if !poll.is_positive() {
            return None;
        }
        self.sweep(poll, now);
        let hosts = self.due.len() + usize::from(!self.due.contains_key(&host));
        let spread = Duration::from_secs_f64(hosts as f64 / POLLS_PER_SECOND);
        // Clients come when the time is over, not before: the mean is what counts.
        let delay = poll.max(spread).mul_f64(0.75 + 0.5 * jitter.clamp(0.0, 1.0)).min(DELAY_MAX);
        self.due.insert(host, now + delay);
        Some(delay)
    }

    /// A host that has what it wants.
    pub(crate) fn served(&mut self, host: u64) {
        self.due.remove(&host);
    }

    /// Hosts that are long overdue are gone, or compute for others.
    fn sweep(&mut self, poll: Duration, now: Instant) {
        if self.swept.is_some_and(|swept| swept <= now && now.since(swept) < poll) {
            return;
        }
        self.swept = Some(now);
        self.due.retain(|_, due| now.since(*due) < poll * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r3_7_hosts_in_vain_come_again_soon_and_very_many_of_them_make_no_storm() {
        let (mut idle_hosts, poll, now) =
            (IdleHosts::default(), Duration::from_mins(5), Instant::EPOCH + Duration::from_secs(9));
        assert_eq!(idle_hosts.wait(0, poll, now, 0.5), Some(poll));
        let delays: Vec<Duration> =
            (0..100_000).filter_map(|host| idle_hosts.wait(host, poll, now, 0.5)).collect();
        assert_eq!(delays[10_000], poll);
        let last = delays.last().unwrap().as_secs_f64();
        assert!((last - 100_000.0 / POLLS_PER_SECOND).abs() < 1.0, "{last}");
        // They found work, all but a few.
        (10..100_000).for_each(|host| idle_hosts.served(host));
        assert_eq!(idle_hosts.wait(1, poll, now, 0.5), Some(poll));
    }

    #[test]
    fn r3_7_hosts_that_never_come_again_are_forgotten() {
        let (mut idle_hosts, poll) = (IdleHosts::default(), Duration::from_mins(5));
        for host in 0..50_000 {
            idle_hosts.wait(host, poll, Instant::EPOCH, 0.0);
        }
        let later = Instant::EPOCH + Duration::from_hours(24);
        assert_eq!(idle_hosts.wait(1, poll, later, 0.5), Some(poll));
        assert_eq!(idle_hosts.due.len(), 1);
    }

    #[test]
    fn a_poll_of_zero_leaves_it_to_the_client() {
        assert_eq!(IdleHosts::default().wait(1, Duration::ZERO, Instant::EPOCH, 0.5), None);
    }
}
