//! Whether file transfers wait for other programs that use the network (R6.4: `other_network_max`; BOINC has
//! no such preference).
//!
//! Model: while files are transferred, or wait because of this, the shell looks every few seconds how many
//! bytes all programs of the host have moved so far, and how many of them were the agent's. The rest is
//! others'. It goes into a bucket, which empties as fast as others may move bytes. When there are four
//! megabytes in it, transfers wait. So much use is seen at once, a little too much after some looks, and a
//! page that somebody opens breaks nothing off. Transfers go on when no look has found too much for twenty
//! seconds, so that they do not come and go with each pause of the others. Waits that follow each other soon
//! last about twice as long each time, twelve and a half minutes at most. They do not ask for so long a time
//! of quiet: others that use the network for a moment every few minutes would keep files from going for ever.
//!
//! When nobody has looked for a minute, files that could begin wait until two looks are there, which takes a
//! few seconds. Then little is forgiven: nothing has to be broken off, and the agent moves hardly anything.
//!
//! What is not counted of the agent's own would look like others', and the agent would wait for itself. So
//! its own is taken for a tenth more than it counts, and the bucket has room for what is received and not
//! counted yet. What is counted before it crosses leaves the bucket below empty, so that it is made up for
//! when it crosses. The price: while the agent moves files fast, others may move a tenth of that more before
//! it is seen.

use std::collections::BTreeSet;
use std::fmt;

use fallow_domain::{Bytes, Duration, Instant};

/// So much more than they may is forgiven to others. The HTTP client holds up to 420 kB of each connection
/// that is read slowly, which nobody has counted yet; eight of them come to 3.4 MB. Ten more may be opened in
/// one turn where so many projects have waited for five minutes behind others: then the agent may wait for
/// itself once.
const FORGIVEN: f64 = 4e6;
/// So much is forgiven before any file begins.
const FORGIVEN_BEFORE: f64 = 2e5;
/// What the agent moves takes this many times as much on the wire. Of a full frame 5 % are headers, and
/// acknowledgements and TLS add 2 % each, as a rule.
const ON_THE_WIRE: f64 = 1.1;
/// Transfers go on when it was quiet for so long. The first wait lasts as long at least.
const QUIET: Duration = Duration::from_secs(20);
/// Waits that follow each other soon last so long at the most, or up to a quarter longer, if it is quiet by
/// then.
const LEAST_MAX: Duration = Duration::from_mins(10);
/// So soon after a wait another one follows soon.
const SOON: Duration = LEAST_MAX;
/// So soon after a look another one says nothing: a moment is no measure of what goes on in a second.
const TOO_SOON: Duration = Duration::from_secs(2);
/// A longer time between two looks says nothing: nobody looked meanwhile.
const LOOKS_APART: Duration = Duration::from_secs(60);
/// Files wait for looks no longer than this: it may be that nobody can look.
const LOOKS_WITHIN: Duration = Duration::from_secs(10);

/// What was moved over the network so far, received and sent together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkMoved {
    /// When it was looked, by a clock that nobody sets; from when that counts makes no difference.
    pub at: Duration,
    /// The interfaces that were looked at.
    pub interfaces: BTreeSet<String>,
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
    /// How long they wait at least.
    least: Duration,
}

/// What has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Transfers wait from now on.
    Wait(OthersUse),
    /// They may go on, after this.
    GoOn(OthersUse),
}

/// What is known of it. Not to be stored: it is of the last seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OtherNetwork {
    last: Option<NetworkMoved>,
    /// When a look was compared with the one before.
    compared: Option<Instant>,
    /// Until when files wait for looks at the most.
    awaited_until: Option<Instant>,
    /// What others moved beyond what they may. Below zero, what was counted as the agent's and has yet to
    /// cross.
    balance: f64,
    wait: Option<OthersUse>,
    /// The wait by the last decision.
    decided: Option<OthersUse>,
    /// When the last wait was over, and how long it was to last at least.
    over: Option<(Instant, Duration)>,
}

/// A wait of about that length, up to a quarter longer. Two agents of one machine that stop each other would
/// go on together after waits of the same length, and stop each other again; what they have counted differs.
fn apart(wait: Duration, counted: Bytes) -> Duration {
    // This byte of the product depends on every digit of what was counted (Knuth 1973, multiplicative
    // hashing).
    let part = i64::from(counted.0.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]);
    wait + Duration::from_micros(wait.as_micros() / 4 * part / 256)
}

impl NetworkMoved {
    /// What others moved since an earlier look; less than nothing where the agent's own was counted before it
    /// crossed. None where the looks cannot be compared: other interfaces are there, or a counter began anew.
    fn others_since(&self, before: &Self) -> Option<f64> {
        let is_same = self.interfaces == before.interfaces && self.all >= before.all;
        let all = self.all.as_f64() - before.all.as_f64();
        let ours = self.ours.as_f64() - before.ours.as_f64();
        is_same.then_some(all - ours * ON_THE_WIRE)
    }
}

impl OthersUse {
    /// Whether no other wait was over shortly before this one.
    #[must_use]
    pub fn is_news(&self) -> bool {
        self.least == QUIET
    }
}

impl OtherNetwork {
    /// Takes in a look. Others may move `most` bytes a second.
    pub fn look(&mut self, now: Instant, moved: NetworkMoved, most: Bytes) {
        let Some(before) = &self.last else {
            self.last = Some(moved);
            return;
        };
        let (time, others) = (moved.at - before.at, moved.others_since(before));
        if time < TOO_SOON {
            return;
        }
        let counted = moved.all.plus(moved.ours);
        self.last = Some(moved);
        let Some(others) = others.filter(|_| time <= LOOKS_APART) else {
            self.balance = 0.0;
            return;
        };
        self.compared = Some(now);
        let is_before = self.awaited_until.take().is_some_and(|until| now <= until);
        let forgiven = if is_before { FORGIVEN_BEFORE } else { FORGIVEN };
        let allowed = most.as_f64() * time.as_secs_f64();
        if let Some(wait) = &mut self.wait {
            if others > allowed {
                wait.until = wait.until.max(now + QUIET);
            }
            return;
        }
        // What crossed before the last wait was over says nothing of what is beside files now. Or a burst at
        // its end would begin the next one before any file has gone on.
        if !is_before && self.over.is_some_and(|(at, _)| now - time < at) {
            return;
        }
        self.balance += others;
        if self.balance > 0.0 {
            self.balance = (self.balance - allowed).max(0.0);
        }
        self.balance = self.balance.max(-FORGIVEN);
        if self.balance > forgiven {
            let least = match self.over {
                Some((at, least)) if now - at <= SOON => apart((least * 2).min(LEAST_MAX), counted),
                _ => QUIET,
            };
            let rate = Bytes::from_f64(others / time.as_secs_f64());
            self.balance = 0.0;
            self.wait = Some(OthersUse { rate, most, until: now + least, least });
        }
    }

    /// Decides whether transfers wait, by the looks so far; without `most` they never do. Where others may
    /// use more than before, a wait ends. Says what is other than by the last decision.
    pub fn decide(&mut self, now: Instant, most: Option<Bytes>) -> Option<Change> {
        match (most, &mut self.wait) {
            (None, _) => *self = Self { decided: self.decided, ..Self::default() },
            (Some(most), Some(wait)) if most > wait.most => (self.wait, self.over) = (None, None),
            (Some(most), Some(wait)) => wait.most = most,
            (Some(_), None) => {}
        }
        if let Some(over) = self.wait.take_if(|wait| wait.until <= now) {
            self.over = Some((now, over.least));
        }
        match (std::mem::replace(&mut self.decided, self.wait), self.wait) {
            (None, Some(wait)) => Some(Change::Wait(wait)),
            (Some(over), None) => Some(Change::GoOn(over)),
            _ => None,
        }
    }

    /// Why transfers wait, by the last decision, if they do.
    #[must_use]
    pub const fn waits(&self) -> Option<OthersUse> {
        self.wait
    }

    /// Files could begin and none is under way. Says whether they wait for looks.
    pub fn await_looks(&mut self, now: Instant) -> bool {
        if self.compared.is_some_and(|at| now - at <= LOOKS_APART) {
            return false;
        }
        let awaited = self.awaited_until.filter(|until| now - *until <= LOOKS_APART);
        now < *self.awaited_until.insert(awaited.unwrap_or(now + LOOKS_WITHIN))
    }

    /// Whether files wait, for others or for looks.
    #[must_use]
    pub fn holds(&self, now: Instant) -> bool {
        self.next_change(now).is_some()
    }

    /// When they wait no longer, if nothing is seen until then.
    #[must_use]
    pub fn next_change(&self, now: Instant) -> Option<Instant> {
        let ends = [self.wait.map(|wait| wait.until), self.awaited_until];
        ends.into_iter().flatten().filter(|until| *until > now).min()
    }

    /// The clock was set back: nothing waits longer by that.
    pub fn observe(&mut self, now: Instant) {
        if let Some(wait) = &mut self.wait {
            wait.until = wait.until.min(now + wait.least);
        }
        self.compared = self.compared.map(|at| at.min(now));
        self.awaited_until = self.awaited_until.map(|until| until.min(now + LOOKS_WITHIN));
        self.over = self.over.map(|(at, least)| (at.min(now), least));
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
        /// So much of the agent's own has crossed and is not counted yet; less than nothing the other way
        /// round.
        ahead: i64,
        most: Bytes,
        network: OtherNetwork,
    }

    impl Host {
        fn new() -> Self {
            let interfaces = BTreeSet::from(["eth0".to_owned()]);
            let (all, ours) = (Bytes(7_000_000_000), Bytes(10_000_000));
            let moved = NetworkMoved { at: Duration::from_secs(50), interfaces, all, ours };
            let mut host = Self { now: 0, moved, ahead: 0, most: MOST, network: OtherNetwork::default() };
            host.look();
            host
        }

        fn look(&mut self) -> Option<Change> {
            let ours = Bytes(self.moved.ours.0.checked_add_signed(-self.ahead).unwrap());
            self.network.look(at(self.now), NetworkMoved { ours, ..self.moved.clone() }, self.most);
            self.network.decide(at(self.now), Some(self.most))
        }

        fn time_passes(&mut self, seconds: i64) {
            self.now += seconds;
            self.moved.at += Duration::from_secs(seconds);
        }

        /// Five seconds on, in which others and the agent move so many kilobytes each second, the latter with
        /// so many per cent of headers.
        fn goes_on(&mut self, others: u64, ours: u64, headers: u64) -> Option<Change> {
            self.time_passes(5);
            let (others, ours) = (others * 5_000, ours * 5_000);
            self.moved.all = Bytes(self.moved.all.0 + others + ours + ours * headers / 100);
            self.moved.ours = self.moved.ours.plus(Bytes(ours));
            self.look()
        }

        /// Others use much for five seconds, and then nothing until transfers go on. Says what was told of
        /// it, and for how long transfers waited.
        fn waits_once(&mut self) -> ((bool, bool), i64) {
            let began = self.goes_on(5_000, 0, 0);
            let Some(Change::Wait(wait)) = began else { panic!("{began:?}") };
            let from = self.now;
            let over = loop {
                if let Some(Change::GoOn(over)) = self.goes_on(0, 0, 0) {
                    break over;
                }
            };
            ((wait.is_news(), over.is_news()), self.now - from)
        }
    }

    #[test]
    fn r6_4_transfers_wait_when_others_move_more_than_they_may_and_go_on_when_it_was_quiet() {
        // Kilobytes a second of others in stretches of five seconds, and whether transfers wait after each.
        for (others, expected) in [
            (&[1_000, 1_000, 1_000, 1_000, 1_000, 1_000][..], "go go go go go go"),
            // Much is seen at once, a little too much later.
            (&[5_000, 0], "wait wait"),
            (&[1_300, 1_300, 1_300, 0], "go go wait wait"),
            // One page is forgiven, and the next one after a pause.
            (&[1_700, 0, 1_700, 0, 1_700], "go go go go go"),
            // It goes on when no look has found too much for twenty seconds.
            (&[5_000, 900, 900, 900, 900, 900], "wait wait wait wait go go"),
            (
                &[5_000, 900, 900, 900, 1_100, 900, 900, 900, 900],
                "wait wait wait wait wait wait wait wait go",
            ),
            // After that it takes as much as at first.
            (&[5_000, 0, 0, 0, 0, 1_700, 1_700], "wait wait wait wait go go wait"),
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
        assert_eq!(wait, OthersUse { rate: Bytes(5_000_000), most: MOST, until: at(25), least: QUIET });
        assert_eq!(
            wait.to_string(),
            "other programs use the network: 5 MB a second, and `other_network_max` is 1 MB"
        );
        assert_eq!(host.goes_on(9_000, 0, 0), None);
        assert_eq!(host.network.next_change(at(10)), Some(at(30)));
        // It ends by time alone, where nobody looks any more.
        assert_eq!(host.network.decide(at(29), Some(MOST)), None);
        assert!(matches!(host.network.decide(at(30), Some(MOST)), Some(Change::GoOn(_))));
        assert_eq!(host.network.decide(at(31), Some(MOST)), None);
    }

    #[test]
    fn r6_4_waits_that_follow_each_other_soon_become_longer_and_only_the_first_is_news() {
        let mut host = Host::new();
        let waits: Vec<_> = (0..7).map(|_| host.waits_once()).collect();
        let times: Vec<i64> = waits.iter().map(|(_, time)| *time).collect();
        assert_eq!(times[0], 20);
        for two in times.windows(2) {
            // Up to a quarter longer than twice as long, and the look after that.
            let about = (2 * two[0]).min(600);
            assert!((about - 10..=about * 5 / 4 + 5).contains(&two[1]), "{times:?}");
        }
        assert!(
            (600..=755).contains(&times[6]) && times.windows(2).any(|two| two[1] > 2 * two[0]),
            "{times:?}"
        );
        let news: Vec<(bool, bool)> = waits.iter().map(|(news, _)| *news).collect();
        let none = (false, false);
        assert_eq!(news, [(true, true), none, none, none, none, none, none]);
        host.time_passes(601);
        host.look();
        assert_eq!(host.waits_once(), ((true, true), 20));
    }

    /// Others move thirty megabytes in five seconds each time so many seconds have passed. Looks come a few
    /// milliseconds late, and files go on exactly when a wait is over, as in the agent.
    #[test]
    fn r6_4_files_go_again_and_again_beside_others_that_use_less_than_they_may_in_bursts() {
        for every in [60, 61, 130, 300, 550, 600] {
            let mut host = Host::new();
            let (began, all) = (host.moved.at, host.moved.all);
            let (end, mut look) = (at(20_000), at(0));
            let (mut now, mut went) = (at(0), Some(at(0)));
            let mut goes = Vec::new();
            while now < end {
                let next_look = look + Duration::from_millis(5_004);
                let ends = host.network.next_change(now).filter(|ends| *ends < next_look);
                now = ends.unwrap_or(next_look);
                if ends.is_none() {
                    look = now;
                    let passed = (now - at(0)).as_secs_f64();
                    let bursts = (passed / f64::from(every)).floor();
                    let bursts = bursts + (passed - bursts * f64::from(every)).min(5.0) / 5.0;
                    let bytes = Bytes::from_f64(bursts * 30e6);
                    let moved = NetworkMoved {
                        at: began + (now - at(0)),
                        all: Bytes(all.0 + bytes.0),
                        ..host.moved.clone()
                    };
                    host.network.look(now, moved, MOST);
                }
                match host.network.decide(now, Some(MOST)) {
                    Some(Change::Wait(_)) => goes.push((went.take().unwrap(), now)),
                    Some(Change::GoOn(_)) => went = Some(now),
                    None => {}
                }
            }
            assert!(goes.len() > 10, "every {every} s: {} waits", goes.len());
            for (from, to) in &goes {
                assert!(*to - *from > Duration::from_secs(4), "every {every} s: for {:?}", *to - *from);
            }
            let last = went.unwrap_or(end);
            let begun = goes.iter().skip(1).map(|(from, _)| *from).chain([last]);
            let longest = begun.zip(&goes).map(|(next, (_, to))| next - *to).max().unwrap();
            assert!(longest <= LEAST_MAX * 2, "every {every} s: nothing for {longest:?}");
        }
    }

    #[test]
    fn r6_4_a_wait_ends_when_others_may_use_more_and_goes_on_when_they_may_use_less() {
        let mut host = Host::new();
        host.waits_once();
        let began = host.goes_on(6_000, 0, 0);
        assert!(matches!(began, Some(Change::Wait(wait)) if !wait.is_news()), "{began:?}");
        let until = host.network.waits().unwrap().until;
        host.most = Bytes(500_000);
        assert_eq!(host.goes_on(700, 0, 0), None);
        let waits = host.network.waits().unwrap();
        assert_eq!((waits.most, waits.until), (host.most, until));
        host.most = Bytes(10_000_000);
        let now = at(host.now + 1);
        assert!(matches!(host.network.decide(now, Some(host.most)), Some(Change::GoOn(_))));
        // It is compared with the look before: nothing has to be awaited. And the next wait is a first one.
        assert!(!host.network.await_looks(now));
        assert_eq!(host.goes_on(9_000, 0, 0), None);
        let began = host.goes_on(11_000, 0, 0);
        assert!(matches!(began, Some(Change::Wait(wait)) if wait.is_news()), "{began:?}");
    }

    /// Two agents of one machine, each of which is one of the others to the other one.
    #[test]
    fn r6_4_two_agents_of_one_machine_do_not_keep_each_others_files_waiting_for_long() {
        /// What one of them moves in a second while its files go.
        const RATE: f64 = 5e6;
        for phase in 0..40 {
            let mut networks = [OtherNetwork::default(), OtherNetwork::default()];
            // The other one's looks come so much later.
            let mut looks = [at(0), at(0) + Duration::from_millis(60 + 125 * phase)];
            let mut ours = [1e6 + f64::from(u32::try_from(phase).unwrap()), 3e6];
            let (mut all, mut now, mut gone) = (7e9, at(0), 0.0);
            let end = at(10_000);
            while now < end {
                let ends = networks.each_ref().map(|network| network.next_change(now));
                let next = looks.into_iter().chain(ends.into_iter().flatten()).min().unwrap();
                let passed = (next - now).as_secs_f64();
                // Somebody looks at a film at first, so that both wait.
                all += if now < at(1_000) { 5e6 * passed } else { 0.0 };
                let goes = networks.each_ref().map(|network| network.waits().is_none());
                for which in [0, 1].into_iter().filter(|which| goes[*which]) {
                    ours[which] += RATE * passed;
                    all += 1.06 * RATE * passed;
                }
                if now > at(2_000) && goes.contains(&true) {
                    gone += passed;
                }
                now = next;
                for which in [0, 1] {
                    if looks[which] == now {
                        let moved = NetworkMoved {
                            at: now - at(-50),
                            interfaces: BTreeSet::from(["eth0".to_owned()]),
                            all: Bytes::from_f64(all),
                            ours: Bytes::from_f64(ours[which]),
                        };
                        networks[which].look(now, moved, MOST);
                        looks[which] = now + Duration::from_millis(5_004);
                    }
                    networks[which].decide(now, Some(MOST));
                }
            }
            assert!(gone > 4_000.0, "{phase}: files go in {gone} s of 8,000");
        }
    }

    /// The engine lets files go on at the very end of a wait, and the look of that moment comes after.
    #[test]
    fn r6_4_a_burst_at_the_end_of_a_wait_begins_no_other_before_files_have_gone_on() {
        let mut host = Host::new();
        assert!(host.goes_on(5_000, 0, 0).is_some());
        let until = host.network.waits().unwrap().until;
        for _ in 0..3 {
            host.goes_on(0, 0, 0);
        }
        host.time_passes(5);
        assert!(matches!(host.network.decide(until, Some(MOST)), Some(Change::GoOn(_))));
        host.moved.at += Duration::from_millis(4);
        host.moved.all = Bytes(host.moved.all.0 + 25_000_000);
        assert_eq!(host.look(), None);
        let began = host.goes_on(5_000, 0, 0);
        assert!(
            matches!(began, Some(Change::Wait(wait)) if (QUIET * 2..QUIET * 3).contains(&wait.least)),
            "{began:?}"
        );
    }

    #[test]
    fn r6_4_without_the_preference_nothing_waits_and_what_was_seen_is_forgotten() {
        let mut host = Host::new();
        host.goes_on(5_000, 0, 0);
        assert!(matches!(host.network.decide(at(6), None), Some(Change::GoOn(_))));
        assert_eq!(host.network, OtherNetwork::default());
    }

    #[test]
    fn r6_4_what_says_nothing_of_others_is_not_taken_for_their_use() {
        // Nobody looked for long.
        let mut host = Host::new();
        host.time_passes(100);
        assert_eq!(host.goes_on(500_000, 0, 0), None);
        // A counter began anew.
        host.moved.all = Bytes(5);
        assert_eq!(host.goes_on(0, 0, 0), None);
        // An interface with another past came beside it, or went.
        for interfaces in [&["eth0", "wlan0"][..], &["eth0"]] {
            host.moved.interfaces = interfaces.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(host.goes_on(500_000, 0, 0), None);
            assert_eq!(host.goes_on(0, 0, 0), None);
        }
        // A look a moment after another one: the next one counts what came since the one before.
        host.time_passes(1);
        host.moved.all = Bytes(host.moved.all.0 + 8_500_000);
        assert_eq!(host.look(), None);
        host.time_passes(-1);
        assert_eq!(host.goes_on(0, 0, 0), None);
        assert!(matches!(host.goes_on(5_000, 0, 0), Some(Change::Wait(_))));
    }

    #[test]
    fn r6_4_whether_the_clock_is_set_makes_no_difference_to_what_is_seen_and_no_wait_longer() {
        let mut host = Host::new();
        for by in [10_000, -20_000] {
            host.now += by;
            host.network.observe(at(host.now));
            assert_eq!(host.goes_on(1_000, 0, 0), None);
        }
        // The engine hears late of a look: what counts is when it was made.
        host.moved.at += Duration::from_secs(5);
        assert_eq!(host.goes_on(2_000, 0, 0), None);
        assert!(matches!(host.goes_on(5_000, 0, 0), Some(Change::Wait(_))));
        host.now -= 10_000;
        host.network.observe(at(host.now));
        assert_eq!(host.network.waits().unwrap().until, at(host.now + 20));
    }

    #[test]
    fn r6_4_files_wait_for_two_looks_if_none_was_made_for_a_minute_but_not_for_long() {
        // Kilobytes a second of others before any file begins.
        for (others, waits) in [(1_000, false), (1_090, false), (1_110, true)] {
            let mut host = Host::new();
            host.goes_on(0, 0, 0);
            assert!(!host.network.await_looks(at(host.now)), "it was just looked");
            host.time_passes(61);
            assert!(host.network.await_looks(at(host.now)));
            assert_eq!(host.network.next_change(at(host.now)), Some(at(host.now + 10)));
            host.look();
            assert!(host.network.await_looks(at(host.now)));
            host.time_passes(2);
            host.moved.all = Bytes(host.moved.all.0 + others * 2_000);
            assert_eq!(host.look().is_some(), waits, "{others}");
            assert!(!host.network.await_looks(at(host.now)));
            assert_eq!(host.network.holds(at(host.now)), waits);
        }
        // Where nobody can look, they begin.
        let mut network = OtherNetwork::default();
        assert!(network.await_looks(at(0)) && network.await_looks(at(9)) && network.holds(at(9)));
        assert!(!network.await_looks(at(10)) && !network.holds(at(10)));
        assert!(!network.await_looks(at(70)) && network.await_looks(at(71)));
        network.observe(at(-1_000));
        assert_eq!(network.next_change(at(-1_000)), Some(at(-990)));
    }

    #[test]
    fn r6_4_what_was_counted_before_it_crossed_hides_no_more_of_others_than_is_forgiven_to_them() {
        let mut host = Host::new();
        // A hundred megabytes that never cross, as to a project on this machine.
        host.ahead = -100_000_000;
        host.goes_on(0, 0, 0);
        assert_eq!(host.goes_on(1_700, 0, 0), None);
        assert!(matches!(host.goes_on(2_000, 0, 0), Some(Change::Wait(_))));
    }

    proptest! {
        /// Also where some of it is on the wire before it is counted, or is counted before, now more and now
        /// less.
        #[test]
        fn r6_4_the_agent_never_waits_for_what_it_moves_itself(
            stretches in prop::collection::vec((0_u64..50_000, 0_u64..10, -3_600_000_i64..3_600_000), 1..60),
        ) {
            let mut host = Host::new();
            host.most = Bytes(10_000);
            for (ours, headers, ahead) in stretches {
                host.ahead = ahead;
                prop_assert_eq!(host.goes_on(0, ours, headers), None);
            }
        }

        #[test]
        fn r6_4_whatever_the_agent_moves_others_that_go_on_using_too_much_are_seen(
            ours in 0_u64..50_000,
            beyond in 200_u64..10_000,
        ) {
            let mut host = Host::new();
            // What is taken for headers of the agent's own may be others'.
            let others = 1_001 + ours / 10 + beyond;
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
            let longest = (LEAST_MAX * 2).as_micros() / Duration::from_secs(5).as_micros();
            changes.extend((0..longest).filter_map(|_| host.goes_on(0, 0, 0)));
            prop_assert!(host.network.waits().is_none());
            // By turns, beginning with a wait.
            for (number, change) in changes.iter().enumerate() {
                prop_assert_eq!(matches!(change, Change::Wait(_)), number % 2 == 0);
            }
            prop_assert_eq!(changes.len() % 2, 0);
        }
    }
}
