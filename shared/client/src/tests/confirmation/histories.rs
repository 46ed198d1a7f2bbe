//! Whatever happens to a host, and in whatever order (R6.5).

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::{Device, Duration, FleetDocument, MasterUrl, ResourceType};
use proptest::prelude::*;

use super::{Host, LIMIT, LOOK, plain};
use crate::Event;
use crate::tests::url;

/// What can happen to a host.
#[derive(Clone, Debug)]
enum Happening {
    Offered(u64),
    Acknowledged,
    /// A report that was made earlier is acknowledged.
    AcknowledgedOld(usize),
    Up(i64),
    Asleep(i64),
    Killed(i64),
    ClockSetBack(i64),
    Suspended(bool),
    Excluded(bool),
    Detached,
    Joined(bool),
}

fn happenings() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => (1_u64..9).prop_map(Happening::Offered),
        2 => Just(Happening::Acknowledged),
        1 => any::<usize>().prop_map(Happening::AcknowledgedOld),
        6 => (1_i64..700).prop_map(Happening::Up),
        1 => (1_i64..1_000_000).prop_map(Happening::Asleep),
        2 => (0_i64..1_000_000).prop_map(Happening::Killed),
        1 => (1_i64..1_000_000).prop_map(Happening::ClockSetBack),
        1 => any::<bool>().prop_map(Happening::Suspended),
        1 => any::<bool>().prop_map(Happening::Excluded),
        1 => Just(Happening::Detached),
        1 => prop_oneof![9 => Just(false), 1 => Just(true)].prop_map(Happening::Joined),
    ]
}

/// What is known of the host from outside.
#[derive(Default)]
struct Outside {
    confirmed: Option<FleetDocument>,
    /// Time on since the candidate was taken, at most and at least.
    age: (Duration, Duration),
    taken: u32,
    acknowledged: bool,
    went_back: BTreeMap<u64, u32>,
    owner: (bool, bool),
    declined: BTreeSet<MasterUrl>,
}

impl Outside {
    fn passes(&mut self, at_least: Duration, at_most: Duration) {
        self.age = (self.age.0 + at_least, self.age.1 + at_most);
    }

    /// Looks at the host after something has happened, and what it followed before that.
    fn look(&mut self, host: &Host, before: Option<&FleetDocument>, was_on_trial: bool) {
        let is = host.client.state.host.document.as_ref();
        let version = |document: Option<&FleetDocument>| document.map(|document| document.version.0);
        if was_on_trial && version(is) < version(before) {
            let times = self.went_back.entry(version(before).unwrap()).or_default();
            *times += 1;
            assert!(*times <= 2 && self.age.1 >= LIMIT, "{times} {:?}", self.age);
            assert_eq!(version(is), version(self.confirmed.as_ref()), "to the one confirmed last");
        } else if version(is) != version(before) {
            self.taken += 1;
            (self.age, self.acknowledged) = Default::default();
            let times = self.went_back.get(&version(is).unwrap()).copied().unwrap_or_default();
            assert!(times < 2, "it went back from it twice");
        }
        match host.on_trial() {
            true => {
                assert!(self.age.0 <= LIMIT, "a candidate is younger than the limit: {:?}", self.age);
                assert_ne!(version(is), version(self.confirmed.as_ref()));
            }
            false => {
                let is_new = version(is) != version(self.confirmed.as_ref());
                assert!(!is_new || self.confirmed.is_none() || self.acknowledged, "confirmed by nothing");
                self.confirmed = is.cloned();
            }
        }
        let (suspended, excluded) = self.owner;
        let preferences = host.client.preferences();
        assert_eq!((preferences.suspended, !preferences.excluded_devices.is_empty()), (suspended, excluded));
        for url in &self.declined {
            assert!(host.client.project_of(url).is_none(), "the owner left it");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn r6_5_a_host_follows_what_is_confirmed_or_a_young_candidate_and_never_what_it_went_back_from_twice(
        happenings in proptest::collection::vec(happenings(), 1..80),
    ) {
        let mut host = Host::begin();
        let (mut outside, mut reports) = (Outside::default(), Vec::new());
        for happening in happenings {
            let before = host.client.state.host.document.clone();
            let was_on_trial = host.on_trial();
            match happening {
                Happening::Offered(version) => host.offer(plain(version)),
                Happening::Acknowledged => {
                    reports.push(host.report());
                    outside.acknowledged = true;
                    host.acknowledge();
                }
                Happening::AcknowledgedOld(place) => {
                    if let Some(report) = reports.get(place % reports.len().max(1)) {
                        // It may be of the present trial.
                        outside.acknowledged = true;
                        host.event(report.clone());
                    }
                }
                Happening::Up(secs) => {
                    let secs = Duration::from_secs(secs);
                    reports.push(host.report());
                    host.pass(secs);
                    outside.passes((secs - LOOK * 2).max(Duration::ZERO), secs + LOOK);
                }
                Happening::Asleep(secs) => {
                    host.sleep(Duration::from_secs(secs));
                    outside.passes(Duration::ZERO, LOOK * 2);
                }
                Happening::Killed(secs) => {
                    host.restart(Duration::from_secs(secs));
                    outside.passes(Duration::ZERO, LOOK * 2);
                }
                Happening::ClockSetBack(secs) => {
                    host.now = host.now - Duration::from_secs(secs);
                    host.event(Event::WakeUp);
                }
                Happening::Suspended(suspended) => {
                    host.event(Event::OwnerSuspended(suspended));
                    outside.owner.0 = suspended;
                }
                Happening::Excluded(excluded) => {
                    let device = Device::new(ResourceType::Nvidia, 0).unwrap();
                    let devices = BTreeSet::from_iter(excluded.then_some(device));
                    host.event(Event::OwnerExcludedDevices(devices));
                    outside.owner.1 = excluded;
                }
                Happening::Detached => {
                    if host.client.project_of(&url("a")).is_some() {
                        host.event(Event::Detach { url: url("a") });
                        outside.declined.insert(url("a"));
                    }
                }
                Happening::Joined(other) => {
                    if other {
                        // Another life.
                        host = Host::begin();
                        outside = Outside::default();
                        reports.clear();
                        continue;
                    }
                    host.event(Event::FleetJoined { authority: "one".into() });
                }
            }
            outside.look(&host, before.as_ref(), was_on_trial);
        }
    }
}
