//! Whether file transfers wait for other programs that use the network (R6.4: `other_network_max`; BOINC has
//! no such preference).
//!
//! Model: while files are transferred, or wait because of this, the shell looks every few seconds how many
//! bytes all programs of the host have moved so far, and how many of them were the agent's. The rest is
//! others'. It goes into a bucket, which empties as fast as others may move bytes. When there are two
//! megabytes in it, transfers wait. So much use is seen at once, a little too much after some looks, and a
//! page that somebody opens breaks nothing off. Transfers go on when no look has found too much for twenty
//! seconds, so that they do not come and go with each pause of the others.
//!
//! What is not counted of the agent's own would look like others', and the agent would wait for itself. So
//! its own is taken for a fifth more than it counts, and the bucket has room for what connections have
//! received before it is read and counted. The price: while the agent moves files fast, others may move that
//! much more before it is seen.

use std::fmt;

use fallow_domain::{Bytes, Duration, Instant};

/// So much more than they may is forgiven to others. A connection that is read slowly, by a limit on
/// downloads, holds some 130 kB that nobody has read yet; sixteen of them come to that.
const FORGIVEN: Bytes = Bytes(2_000_000);
/// What the agent moves takes one part in so many more on the wire. Of a full frame 5 % are headers,
/// acknowledgements add 4 % at most, TLS 2 %, a tunnel 6 %; some packets are sent twice.
const OVERHEAD_PARTS: u64 = 5;
/// Transfers go on when it was quiet for so long.
const QUIET: Duration = Duration::from_secs(20);
/// So soon after a look another one says nothing: a moment is no measure of what goes on in a second.
const TOO_SOON: Duration = Duration::from_secs(2);
/// A longer time between two looks says nothing: the host slept, or nobody looked.
const LOOKS_APART: Duration = Duration::from_secs(60);

/// What was moved over the network so far, received and sent together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkMoved {
    /// By all programs of the host, with all headers; from when that is counted makes no difference.
    pub all: Bytes,
    /// By the agent, as far as it counts it: without the headers below HTTP.
    pub ours: Bytes,
}

/// Other programs use the network too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OthersUse {
    /// So many bytes a second when that was seen first.
    pub rate: Bytes,
    /// So many they may use.
    pub most: Bytes,
    /// Transfers wait until then, and longer if a look before finds too much again.
    pub until: Instant,
}

/// What has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Transfers wait from now on.
    Wait(OthersUse),
    /// They may go on.
    GoOn,
}

/// What is known of it. Not to be stored: it is of the last seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherNetwork {
    last: Option<(Instant, NetworkMoved)>,
    /// What others moved beyond what they may.
    excess: Bytes,
    wait: Option<OthersUse>,
    /// Whether the last decision was to wait.
    is_decided: bool,
}

impl NetworkMoved {
    /// What others moved since an earlier look; none where a counter began anew, as when an interface goes.
    fn others_since(self, before: Self) -> Option<Bytes> {
        let all = self.all.0.checked_sub(before.all.0)?;
        let ours = self.ours.0.checked_sub(before.ours.0)?;
        Some(Bytes(all.saturating_sub(ours.saturating_add(ours / OVERHEAD_PARTS))))
    }
}

impl OtherNetwork {
    /// Takes in a look. Others may move `most` bytes a second.
    pub fn look(&mut self, now: Instant, moved: NetworkMoved, most: Bytes) {
        if self.last.is_some_and(|(at, _)| at <= now && now - at < TOO_SOON) {
            return;
        }
        let Some((at, before)) = self.last.replace((now, moved)) else { return };
        let is_near = at < now && now - at <= LOOKS_APART;
        let Some(others) = moved.others_since(before).filter(|_| is_near) else {
            self.excess = Bytes(0);
            return;
        };
        let seconds = (now - at).as_secs_f64();
        let allowed = Bytes::from_f64(most.as_f64() * seconds);
        if let Some(wait) = &mut self.wait {
            if others > allowed {
                wait.until = now + QUIET;
            }
            return;
        }
        self.excess = Bytes(self.excess.plus(others).0.saturating_sub(allowed.0));
        if self.excess > FORGIVEN {
            let rate = Bytes::from_f64(others.as_f64() / seconds);
            self.excess = Bytes(0);
            self.wait = Some(OthersUse { rate, most, until: now + QUIET });
        }
    }

    /// Decides whether transfers wait, by the looks so far; without `most` they never do. Says what is other
    /// than by the last decision.
    pub fn decide(&mut self, now: Instant, most: Option<Bytes>) -> Option<Change> {
        if most.is_none() {
            *self = Self { is_decided: self.is_decided, ..Self::default() };
        }
        self.wait = self.wait.filter(|wait| now < wait.until);
        let was = std::mem::replace(&mut self.is_decided, self.wait.is_some());
        match self.wait {
            Some(wait) if !was => Some(Change::Wait(wait)),
            None if was => Some(Change::GoOn),
            _ => None,
        }
    }

    /// Why transfers wait, by the last decision, if they do.
    #[must_use]
    pub const fn waits(&self) -> Option<OthersUse> {
        self.wait
    }

    /// The clock was set back: nothing waits longer by that.
    pub fn observe(&mut self, now: Instant) {
        self.last = None;
        if let Some(wait) = &mut self.wait {
            wait.until = wait.until.min(now + QUIET);
        }
    }
}

impl fmt::Display for OthersUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rate, most, .. } = self;
        write!(f, "other programs use the network: {rate} a second, and `other_network_max` is {most}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: Instant = Instant::from_micros(1_800_000_000_000_000);
    const MOST: Bytes = Bytes(1_000_000);

    fn at(seconds: i64) -> Instant {
        START + Duration::from_secs(seconds)
    }

    /// A host, looked at every five seconds.
    struct Host {
        now: i64,
        moved: NetworkMoved,
        network: OtherNetwork,
    }

    impl Host {
        fn new() -> Self {
            let moved = NetworkMoved { all: Bytes(7_000_000_000), ours: Bytes(0) };
            let mut host = Self { now: 0, moved, network: OtherNetwork::default() };
            host.look();
            host
        }

        fn look(&mut self) -> Option<Change> {
            self.network.look(at(self.now), self.moved, MOST);
            self.network.decide(at(self.now), Some(MOST))
        }

        /// Five seconds on, in which others and the agent move so many kilobytes each second, the latter with
        /// so many per cent of headers.
        fn goes_on(&mut self, others: u64, ours: u64, headers: u64) -> Option<Change> {
            self.now += 5;
            let (others, ours) = (others * 5_000, ours * 5_000);
            self.moved.all = Bytes(self.moved.all.0 + others + ours + ours * headers / 100);
            self.moved.ours = self.moved.ours.plus(Bytes(ours));
            self.look()
        }
    }

    #[test]
    fn r6_4_transfers_wait_when_others_move_more_than_they_may_and_go_on_when_it_was_quiet() {
        // Kilobytes a second of others in stretches of five seconds, and whether transfers wait after each.
        for (others, expected) in [
            (&[1_000, 1_000, 1_000, 1_000, 1_000, 1_000][..], "go go go go go go"),
            // Much is seen at once, a little too much later.
            (&[5_000, 0], "wait wait"),
            (&[1_200, 1_200, 1_200, 0], "go go wait wait"),
            // One page is forgiven, and the next one after a pause.
            (&[1_300, 0, 1_300, 0, 1_300], "go go go go go"),
            // It goes on when no look has found too much for twenty seconds.
            (&[5_000, 900, 900, 900, 900, 900], "wait wait wait wait go go"),
            (
                &[5_000, 900, 900, 900, 1_100, 900, 900, 900, 900],
                "wait wait wait wait wait wait wait wait go",
            ),
            // After that it takes as much as at first.
            (&[5_000, 0, 0, 0, 0, 1_300, 1_300], "wait wait wait wait go go wait"),
        ] {
            let mut host = Host::new();
            let mut said = Vec::new();
            for &kilobytes in others {
                host.goes_on(kilobytes, 0, 0);
                said.push(if host.network.waits().is_some() { "wait" } else { "go" });
            }
            assert_eq!(said.join(" "), expected, "{others:?}");
        }
    }

    #[test]
    fn r6_4_a_change_is_told_once_with_its_figures() {
        let mut host = Host::new();
        let began = host.goes_on(5_000, 0, 0);
        let Some(Change::Wait(wait)) = began else { panic!("{began:?}") };
        assert_eq!(wait, OthersUse { rate: Bytes(5_000_000), most: MOST, until: at(25) });
        assert_eq!(
            wait.to_string(),
            "other programs use the network: 5 MB a second, and `other_network_max` is 1 MB"
        );
        assert_eq!(host.goes_on(9_000, 0, 0), None);
        assert_eq!(host.network.waits().unwrap().until, at(30));
        // It ends by time alone, where nobody looks any more.
        assert_eq!(host.network.decide(at(29), Some(MOST)), None);
        assert_eq!(host.network.decide(at(30), Some(MOST)), Some(Change::GoOn));
        assert_eq!(host.network.decide(at(31), Some(MOST)), None);
    }

    #[test]
    fn r6_4_without_the_preference_nothing_waits_and_what_was_seen_is_forgotten() {
        let mut host = Host::new();
        host.goes_on(5_000, 0, 0);
        assert_eq!(host.network.decide(at(6), None), Some(Change::GoOn));
        assert_eq!(host.network, OtherNetwork::default());
    }

    #[test]
    fn r6_4_what_says_nothing_of_others_is_not_taken_for_their_use() {
        // After a sleep of the host.
        let mut host = Host::new();
        host.now += 100;
        assert_eq!(host.goes_on(500_000, 0, 0), None);
        // An interface went, and one with another past came.
        host.moved.all = Bytes(5);
        assert_eq!(host.goes_on(0, 0, 0), None);
        // A look a moment after another one: the next one counts what came since the one before.
        host.now += 1;
        host.moved.all = Bytes(6_500_000);
        assert_eq!(host.look(), None);
        host.now -= 1;
        assert_eq!(host.goes_on(0, 0, 0), None);
        // The clock was set back, by hours.
        host.now -= 10_000;
        host.network.observe(at(host.now));
        assert_eq!(host.goes_on(500_000, 0, 0), None);
        assert!(matches!(host.goes_on(5_000, 0, 0), Some(Change::Wait(_))));
        host.now -= 10_000;
        host.network.observe(at(host.now));
        assert_eq!(host.network.waits().unwrap().until, at(host.now + 20));
    }

    proptest! {
        /// Also where some of it is on the wire long before it is counted.
        #[test]
        fn r6_4_the_agent_never_waits_for_what_it_moves_itself(
            stretches in prop::collection::vec((0_u64..50_000, 0_u64..20), 1..60),
            ahead in 0_u64..2_000_000,
        ) {
            let mut host = Host::new();
            host.moved.all = host.moved.all.plus(Bytes(ahead));
            for (ours, headers) in stretches {
                prop_assert_eq!(host.goes_on(0, ours, headers), None);
            }
        }

        #[test]
        fn r6_4_whatever_the_agent_moves_others_that_go_on_using_too_much_are_seen(
            ours in 0_u64..50_000,
            beyond in 100_u64..10_000,
        ) {
            let mut host = Host::new();
            // What is taken for headers of the agent's own may be others'.
            let others = 1_000 + ours / OVERHEAD_PARTS + beyond;
            let waits = (0..5).any(|_| host.goes_on(others, ours, 0).is_some());
            prop_assert!(waits);
        }

        #[test]
        fn r6_4_transfers_that_wait_go_on_at_the_latest_when_others_have_stopped_for_so_long(
            stretches in prop::collection::vec(0_u64..20_000, 0..60),
        ) {
            let mut host = Host::new();
            let mut changes = Vec::new();
            changes.extend(stretches.into_iter().filter_map(|others| host.goes_on(others, 0, 0)));
            changes.extend((0..4).filter_map(|_| host.goes_on(0, 0, 0)));
            prop_assert!(host.network.waits().is_none());
            // By turns, beginning with a wait.
            for (number, change) in changes.iter().enumerate() {
                prop_assert_eq!(matches!(change, Change::Wait(_)), number % 2 == 0);
            }
            prop_assert_eq!(changes.len() % 2, 0);
        }
    }
}
