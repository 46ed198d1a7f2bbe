use fallow_domain::Duration;
use proptest::prelude::*;

use super::*;

fn host(number: usize) -> AgentId {
    AgentId(format!("{number:05}"))
}

/// A rollout that was taken back when so many hosts had its version, and 5 did not.
fn taken_back(had: usize) -> Rollout {
    let versions = (DocumentVersion(1), DocumentVersion(2));
    let plan = Plan::new("1,100%", Duration::from_mins(4)).unwrap();
    let begun = ("anna".to_owned(), Instant::EPOCH);
    let rollout = Rollout::begin(1, versions, plan, BTreeMap::new(), begun, 9);
    let now = |number| {
        let version = DocumentVersion(if number < had { 2 } else { 1 });
        // The first one went back from it by itself.
        let went_back = (DocumentVersion(2), "silence".to_owned());
        match number {
            0 => HostNow {
                rolled_back: Some(went_back),
                version: DocumentVersion(1),
                ..HostNow::named(host(0))
            },
            _ => HostNow { version, ..HostNow::named(host(number)) },
        }
    };
    let hosts: Vec<_> = (0..had + 5).map(now).collect();
    let transition = Transition::TakeBack { why: "it harms".into() };
    rollout.after(&transition, Instant::EPOCH, DocumentVersion(3), &hosts)
}

#[test]
fn r6_5_hosts_that_a_version_was_taken_from_are_told_from_those_that_never_had_it() {
    let rollout = taken_back(3);
    let text = serde_json::to_string(&rollout).unwrap();
    let stored: Rollout = serde_json::from_str(&text).unwrap();
    assert_eq!(stored, rollout);
    let taken = [0, 2, 3, 7, 99].map(|number| stored.was_taken_from(&host(number)));
    assert_eq!(taken, [Some(true), Some(true), Some(false), Some(false), Some(false)]);
    assert_eq!([0, 2, 3].map(|number| stored.went_back(&host(number))), [true, false, false]);
    let Phase::TakenBack { had, .. } = stored.phase else { panic!("{stored:?}") };
    assert_eq!(had, 3);
    let begun = Rollout { phase: Phase::Watching, ..rollout };
    assert_eq!(begun.was_taken_from(&host(0)), None);
}

#[test]
fn r6_5_a_rollout_that_was_stored_before_it_was_kept_when_its_wave_was_released_is_read() {
    let rollout = Rollout { released_at: Some(Instant::EPOCH), ..taken_back(3) };
    let mut stored = serde_json::to_value(&rollout).unwrap();
    assert!(stored.as_object_mut().unwrap().remove("released_at").is_some());
    let read: Rollout = serde_json::from_value(stored).unwrap();
    assert_eq!(read, Rollout { released_at: None, ..rollout });
}

#[test]
fn r6_5_who_says_that_it_had_a_version_which_it_was_not_given_did_not() {
    let says = |number, given, went_back: bool| {
        let candidate = DocumentVersion(2);
        HostNow {
            given,
            version: if went_back { DocumentVersion(1) } else { candidate },
            rolled_back: went_back.then(|| (candidate, "silence".to_owned())),
            ..HostNow::named(host(number))
        }
    };
    let hosts = [
        says(0, Some(true), false),
        says(1, Some(true), true),
        says(2, Some(false), false),
        says(3, Some(false), true),
        says(4, None, false),
    ];
    let begun = Rollout { phase: Phase::Watching, ..taken_back(0) };
    let transition = Transition::TakeBack { why: "it harms".into() };
    let rollout = begun.after(&transition, Instant::EPOCH, DocumentVersion(3), &hosts);
    let had: Vec<_> = (0..5).map(|number| rollout.was_taken_from(&host(number)).unwrap()).collect();
    assert_eq!(had, [true, true, false, false, true]);
    assert!(rollout.went_back(&host(1)) && !rollout.went_back(&host(3)));
}

#[test]
fn r6_5_of_very_many_hosts_some_are_kept_and_of_the_others_nothing_is_said() {
    let rollout = taken_back(HAD_KEPT + 1);
    let Phase::TakenBack { had, had_by, .. } = &rollout.phase else { panic!("{rollout:?}") };
    assert_eq!((*had, had_by.len()), (HAD_KEPT as u64 + 1, HAD_KEPT));
    let others = (0..HAD_KEPT + 6).filter(|number| rollout.was_taken_from(&host(*number)).is_none());
    assert_eq!(others.count(), 6);
}

#[test]
fn r6_5_a_rollout_that_was_stored_before_hosts_were_kept_is_read_and_says_nothing_of_them() {
    let read = |phase: &str| Rollout { phase: serde_json::from_str(phase).unwrap(), ..taken_back(0) };
    let older = read(r#"{"taken_back":{"by":3,"why":"it harms","had":2}}"#);
    assert_eq!(older.was_taken_from(&host(0)), None);
    let nobody = read(r#"{"taken_back":{"by":3,"why":"it harms","had":0}}"#);
    assert_eq!(nobody.was_taken_from(&host(0)), Some(false));
}

#[test]
fn r6_5_what_hosts_did_before_is_kept_of_those_that_speak() {
    let versions = (DocumentVersion(1), DocumentVersion(2));
    let plan = Plan::new("100%", Duration::from_mins(4)).unwrap();
    let begun = ("anna".to_owned(), Instant::EPOCH);
    let rollout = Rollout::begin(1, versions, plan, BTreeMap::new(), begun, 9);
    // 300 copies of one machine, and five others behind them.
    let now = |number: usize| HostNow {
        machine: host(if number < 300 { 0 } else { number }),
        speaks: number == 0 || number >= 300,
        connected: true,
        version: DocumentVersion(1),
        ..HostNow::named(host(number))
    };
    let hosts: Vec<_> = (0..305).map(now).collect();
    let all = rollout.order(Order::Promote, "bob", &hosts).unwrap();
    let rollout = rollout.after(&all, Instant::EPOCH, DocumentVersion(3), &hosts);
    let kept: BTreeSet<_> = rollout.before.keys().cloned().collect();
    assert_eq!(kept, [0, 300, 301, 302, 303, 304].map(host).into());
}

#[test]
fn r6_5_what_a_host_did_before_is_kept_of_the_copy_that_a_wave_reaches() {
    let versions = (DocumentVersion(1), DocumentVersion(2));
    let plan = Plan::new("1,100%", Duration::from_mins(4)).unwrap();
    let begun = ("anna".to_owned(), Instant::EPOCH);
    let rollout = Rollout::begin(1, versions, plan, BTreeMap::new(), begun, 9);
    // The first copy speaks for all as long as nobody has the version.
    let now = |number: usize| HostNow {
        machine: host(0),
        speaks: number == 0,
        connected: true,
        version: DocumentVersion(1),
        ..HostNow::named(host(number))
    };
    let hosts: Vec<_> = (0..100).map(now).collect();
    let first = rollout.order(Order::Promote, "bob", &hosts).unwrap();
    let Transition::Release { counted, .. } = &first else { panic!("{first:?}") };
    let rollout = rollout.after(&first, Instant::EPOCH, DocumentVersion(3), &hosts);
    assert!(counted.iter().all(|host| rollout.before.contains_key(host)), "{:?}", rollout.before);
    assert!(counted.len() == 1 && rollout.before.len() == 2);
}

#[test]
fn r6_5_a_version_that_concerns_no_host_of_the_first_waves_is_tried_by_one_before_all_get_it() {
    let versions = (DocumentVersion(1), DocumentVersion(2));
    let lab: GroupName = "lab".parse().unwrap();
    for waves in ["lab,100%", "0.000001%,100%", "lab,0.000001%,100%", "lab,2,100%"] {
        let plan = Plan::new(waves, Duration::from_mins(4)).unwrap();
        let groups = BTreeMap::from([(lab.clone(), "room=12".parse().unwrap())]);
        let begun = ("anna".to_owned(), Instant::EPOCH);
        let mut rollout = Rollout::begin(1, versions, plan, groups, begun, 9);
        // The lab's own five hosts, and twenty that the version concerns, of which some are there.
        let now = |number: usize| HostNow {
            changed: number >= 5,
            connected: number > 15,
            groups: if number < 5 { vec![lab.clone()] } else { Vec::new() },
            ..HostNow::named(host(number))
        };
        let hosts: Vec<_> = (0..25).map(now).collect();
        let mut reached = Vec::new();
        while rollout.phase != Phase::Completed {
            let next = rollout.order(Order::Promote, "bob", &hosts).unwrap();
            rollout = rollout.after(&next, Instant::EPOCH, DocumentVersion(3), &hosts);
            let has_it = |host: &&HostNow| rollout.is_released_to(&host.id, &host.groups);
            let concerned = hosts.iter().filter(|host| host.changed).filter(has_it);
            reached.push(concerned.cloned().collect::<Vec<_>>());
        }
        assert!(reached[0].len() == 1 && reached[0][0].connected, "{waves}: {:?}", reached[0]);
        let counts: Vec<_> = reached.iter().map(Vec::len).collect();
        let expected: &[usize] = if waves.contains(",2,") { &[1, 2, 20, 20] } else { &[1, 20, 20] };
        assert_eq!(counts, expected, "{waves}");
        let text = serde_json::to_string(&rollout.steps).unwrap();
        assert!(text.contains("wave 1 of") && text.contains("so another one tries it"), "{text}");
    }
}

proptest! {
    /// Waves of all kinds, a fleet that grows between them, and hosts of any names.
    #[test]
    fn r6_5_every_host_gets_a_version_in_exactly_one_wave_however_the_fleet_grows(
        number in 1_u64..1_000,
        fleets in prop::collection::vec(0_usize..60, 1..7),
        waves in prop::sample::select(vec!["1,10%,100%", "3", "2,5,50%", "lab,30%,60%", "10%,lab,80%", "50%"]),
        in_lab in prop::collection::vec(any::<bool>(), 400),
    ) {
        let versions = (DocumentVersion(1), DocumentVersion(2));
        let plan = Plan::new(waves, Duration::from_mins(4)).unwrap();
        let lab: GroupName = "lab".parse().unwrap();
        let groups = BTreeMap::from([(lab.clone(), "room=12".parse().unwrap())]);
        let begun = ("anna".to_owned(), Instant::EPOCH);
        let mut rollout = Rollout::begin(number, versions, plan, groups, begun, 9);
        let mut hosts: Vec<HostNow> = Vec::new();
        let mut wave_of: BTreeMap<AgentId, usize> = BTreeMap::new();
        let grow = |hosts: &mut Vec<HostNow>, count: usize| {
            for at in hosts.len()..hosts.len() + count {
                let groups = if in_lab[at % 400] { vec![lab.clone()] } else { Vec::new() };
                // Half of them are copies of a few.
                let machine = host(if at % 2 == 0 { at } else { at % 6 });
                hosts.push(HostNow { groups, machine, connected: at % 3 != 0, ..HostNow::named(host(at)) });
            }
        };
        for step in 0.. {
            grow(&mut hosts, fleets.get(step).copied().unwrap_or(0));
            let before = rollout.released;
            let transition = rollout.order(Order::Promote, "bob", &hosts).unwrap();
            rollout = rollout.after(&transition, Instant::EPOCH, DocumentVersion(3), &hosts);
            prop_assert!(rollout.released > before || rollout.phase == Phase::Completed);
            for host in &hosts {
                let is_released = rollout.is_released_to(&host.id, &host.groups);
                match wave_of.get(&host.id) {
                    // Nobody who has it loses it, and a fleet that grows moves nobody.
                    Some(_) => prop_assert!(is_released, "{} was moved", host.id.0),
                    None if is_released => drop(wave_of.insert(host.id.clone(), rollout.released)),
                    None => {}
                }
                // Who comes later is in one of the waves, too, and in the same one whoever else comes.
                let wave = rollout.wave_of(&host.id, &host.groups);
                prop_assert_eq!(is_released, rollout.phase == Phase::Completed || wave < rollout.released);
            }
            if rollout.phase == Phase::Completed {
                break;
            }
        }
        prop_assert_eq!(wave_of.len(), hosts.len());
    }
}
