//! Who is seen, waited for, and not seen.

use std::collections::BTreeMap;

use fallow_domain::{AgentId, Duration, Instant};

use crate::judge::tests::{
    NEW, OLD, judged, judged_from_the_first_look, judged_over, nothing, paused, taken_back,
};
use crate::{Gates, HostNow, Plan, Rollout, Soak, Transition};

#[test]
fn r6_5_of_a_large_fleet_a_part_is_watched_one_by_one_and_the_first_wave_wholly() {
    let plan = Plan::new("3", Duration::from_mins(4)).unwrap();
    let begun = ("anna".to_owned(), Instant::EPOCH);
    let rollout = Rollout::begin(1, (OLD, NEW), plan, BTreeMap::new(), begun, 9);
    let host = |number: u32| HostNow {
        connected: true,
        version: OLD,
        ..HostNow::named(AgentId(number.to_string()))
    };
    let mut hosts: Vec<_> = (0..40_000).map(host).collect();
    let first = rollout.tick(&mut Soak::default(), Instant::EPOCH, &hosts).unwrap();
    let rollout = rollout.after(&first, Instant::EPOCH, NEW, &hosts);
    for host in &mut hosts {
        if rollout.is_released_to(&host.id, &host.groups) {
            host.version = NEW;
        }
    }
    let mut soak = Soak::default();
    assert_eq!(rollout.tick(&mut soak, Instant::EPOCH, &hosts), None);
    let (new, old): (Vec<_>, Vec<_>) = soak.tracks().partition(|(_, track)| track.is_new);
    assert_eq!(new.len(), 3);
    assert!((4_500..5_500).contains(&old.len()), "{}", old.len());
}

#[test]
fn r6_5_a_host_that_comes_back_late_has_time_to_take_the_version() {
    // It is off when the wave reaches it and for long after that.
    let late = |takes: bool| {
        move |tick: i32, host: &mut HostNow, is_new: bool, _: usize| {
            if is_new {
                host.connected = tick >= 100;
                let has = if takes && tick >= 101 { NEW } else { OLD };
                host.version = has;
            }
        }
    };
    let said = match judged_over((1, 5), nothing, late(true), Gates::default()) {
        Some(Transition::Release { why, .. } | Transition::Complete { why }) => why,
        other => panic!("{other:?}"),
    };
    assert!(said.starts_with("1 host with it for"), "{said}");
    let why = paused(judged_over((1, 5), nothing, late(false), Gates::default()));
    assert!(why.contains("1 of 1 host that are there do not take the version"), "{why}");
}

#[test]
fn r6_5_what_a_host_did_that_rested_when_it_got_the_version_was_not_seen_and_is_not_said_to_be() {
    let rested = |host: &mut HostNow, is_new: bool, _: usize| host.rests = is_new;
    let wakes = |host: &mut HostNow, is_new: bool, _: usize| {
        if is_new {
            (host.rests, host.offered, host.computing) = (false, 0.01, 0.01);
        }
    };
    match judged((1, 3), rested, wakes, Gates::default()) {
        Some(Transition::Release { why, .. } | Transition::Complete { why }) => {
            assert!(why.contains("(what it does to the computing of 1 of them"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn r6_5_a_host_that_computed_for_a_moment_and_rested_then_was_not_seen() {
    let moment = |host: &mut HostNow, is_new: bool, _: usize| host.rests = is_new;
    // It is seen once before it rests.
    let said = match judged((1, 3), nothing, moment, Gates::default()) {
        Some(Transition::Release { why, .. } | Transition::Complete { why }) => why,
        other => panic!("{other:?}"),
    };
    assert!(said.contains("(what it does to the computing of 1 of them was not seen)"), "{said}");
}

#[test]
fn r6_5_hosts_that_die_before_they_tell_anything_are_missed() {
    // One of ten comes as far as to say that it has the version; also after the coordinator starts anew.
    let dies = |host: &mut HostNow, is_new: bool, at: usize| {
        if is_new && at > 0 {
            host.connected = false;
            host.version = OLD;
        }
    };
    let why = match judged_from_the_first_look((10, 30), dies) {
        Some(Transition::Pause { why }) => why,
        other => panic!("{other:?}"),
    };
    assert!(why.contains("9 of 10 hosts that it has reached are off, 0 of the 30 others"), "{why}");
}

#[test]
fn r6_5_what_hosts_did_before_another_rollout_is_not_what_they_did_before_this_one() {
    let host = |offered: f64, rests: bool| HostNow {
        connected: true,
        version: OLD,
        offered,
        rests,
        ..HostNow::named(AgentId("a".into()))
    };
    let rollout = |number: u64| {
        let plan = Plan::new("1", Duration::from_mins(4)).unwrap();
        Rollout::begin(number, (OLD, NEW), plan, BTreeMap::new(), ("anna".to_owned(), Instant::EPOCH), 9)
    };
    let id = AgentId("a".into());
    let first = Soak::after(Soak::default(), &rollout(1), &[host(1.0, false)]);
    assert_eq!(first.before(&id).map(|load| load.offered), Some(1.0));
    // Meanwhile it was given less on purpose, and now it rests.
    let resting = [host(0.4, true)];
    let next_wave = Soak::after(first.clone(), &rollout(1), &resting);
    assert!(next_wave.before(&id).is_some(), "it rests in the second wave of the same rollout");
    assert_eq!(Soak::after(first, &rollout(2), &resting).before(&id), None);
}

#[test]
fn r6_5_who_took_a_version_and_went_off_is_one_that_it_was_given_to() {
    // At night 30 that took it are off, 5 are there, and 1 refuses it: 1 of 36.
    let night = |host: &mut HostNow, is_new: bool, at: usize| match (is_new, at) {
        (true, 0..30) => host.connected = false,
        (true, 35) => (host.version, host.refused) = (OLD, Some((NEW, "I do not like it".to_owned()))),
        _ => {}
    };
    let passed = judged((36, 5), nothing, night, Gates::default());
    assert!(!matches!(passed, Some(Transition::TakeBack { .. }) | None), "{passed:?}");
    // Those that were off before it could reach them are no proof that others took it.
    let never_there = |host: &mut HostNow, is_new: bool, at: usize| {
        night(host, is_new, at);
        if is_new && at < 30 {
            host.version = OLD;
        }
    };
    let why = taken_back(judged((36, 5), nothing, never_there, Gates::default()));
    assert!(why.contains("1 of 6 hosts refuse it"), "{why}");
}

#[test]
fn r6_5_what_a_host_does_whose_owner_said_something_meanwhile_was_not_seen_and_is_not_said_to_be() {
    let says_more = |tick: i32, host: &mut HostNow, is_new: bool, _: usize| {
        if is_new && tick == 1 {
            host.offered = 0.01;
            host.said += 1;
        }
    };
    match judged_over((1, 3), nothing, says_more, Gates::default()) {
        Some(Transition::Release { why, .. } | Transition::Complete { why }) => {
            assert!(why.contains("(what it does to the computing of 1 of them was not seen)"), "{why}");
            assert!(why.contains("nothing else speaks"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn r6_5_few_hosts_that_a_version_concerns_are_watched_however_large_the_fleet() {
    let plan = Plan::new("100%", Duration::from_mins(4)).unwrap();
    let begun = ("anna".to_owned(), Instant::EPOCH);
    let host = |number: u32| HostNow {
        connected: true,
        version: OLD,
        changed: number.is_multiple_of(5_000),
        ..HostNow::named(AgentId(number.to_string()))
    };
    let mut hosts: Vec<_> = (0..10_000).map(host).collect();
    for number in 1..=50 {
        let rollout = Rollout::begin(number, (OLD, NEW), plan.clone(), BTreeMap::new(), begun.clone(), 2);
        let all = rollout.tick(&mut Soak::default(), Instant::EPOCH, &hosts).unwrap();
        let rollout = rollout.after(&all, Instant::EPOCH, NEW, &hosts);
        let mut soak = Soak::after(Soak::default(), &rollout, &hosts);
        hosts.iter_mut().for_each(|host| host.version = NEW);
        let passed = (0..=4).find_map(|minute| {
            let now = Instant::EPOCH + Duration::from_mins(minute);
            rollout.tick(&mut soak, now, &hosts)
        });
        let Some(Transition::Complete { why }) = passed else { panic!("rollout {number}: {passed:?}") };
        assert!(why.starts_with("2 hosts with it for"), "{why}");
        hosts.iter_mut().for_each(|host| host.version = OLD);
    }
}

#[test]
fn r6_5_hosts_that_come_and_go_and_never_take_a_version_are_not_overlooked() {
    // One has it, beside one whose link is cut again and again within a minute.
    let cut = |tick: i32, host: &mut HostNow, is_new: bool, at: usize| {
        if is_new && at == 1 {
            (host.connected, host.version) = (tick % 3 != 0, OLD);
        }
    };
    let why = paused(judged_over((2, 5), nothing, cut, Gates::default()));
    assert!(why.contains("1 of 2 hosts that are there do not take the version, such as pc-"), "{why}");
    // One that was there for a moment and is off for long may just be switched off.
    let moment = |tick: i32, host: &mut HostNow, is_new: bool, at: usize| {
        if is_new && at == 4 {
            (host.connected, host.version) = (tick < 8, OLD);
        }
    };
    let passed = judged_over((5, 5), nothing, moment, Gates::default());
    let Some(Transition::Release { why, .. } | Transition::Complete { why }) = passed else {
        panic!("{passed:?}")
    };
    assert!(why.starts_with("4 hosts with it for"), "{why}");
}

#[test]
fn r6_5_a_host_that_comes_to_say_that_it_has_what_it_was_not_given_is_nothing_to_compare_with() {
    // It was seen with the version before. It says that it has the new one, and idles to make it look well.
    let claims = |tick: i32, host: &mut HostNow, is_new: bool, _: usize| {
        if tick >= 2 {
            host.offered = 0.1;
            host.version = NEW;
        }
        assert!(is_new || host.version == if tick >= 2 { NEW } else { OLD });
    };
    let why = taken_back(judged_over((1, 3), nothing, claims, Gates::default()));
    assert!(why.ends_with("(gate offered)") && !why.contains("with the version before"), "{why}");
}

#[test]
fn r6_5_copies_that_speak_in_turn_are_seen_as_if_one_spoke_all_the_time() {
    // Eight copies, each of which speaks for the machine at every eighth look.
    let in_turn = |tick: i32, host: &mut HostNow, is_new: bool, at: usize| {
        if is_new {
            (host.machine, host.speaks) = (AgentId("machine".into()), tick as usize % 8 == at);
        }
    };
    let passed = judged_over((8, 3), nothing, in_turn, Gates::default());
    let Some(Transition::Release { why, .. } | Transition::Complete { why }) = passed else {
        panic!("{passed:?}")
    };
    assert!(why.starts_with("1 host with it for 4 min") && why.contains("and nothing speaks"), "{why}");
    let idle = |tick: i32, host: &mut HostNow, is_new: bool, at: usize| {
        in_turn(tick, host, is_new, at);
        host.computing = if is_new { 0.1 } else { 0.9 };
    };
    let why = taken_back(judged_over((8, 3), nothing, idle, Gates::default()));
    assert!(why.contains("on 1 host with the new version"), "{why}");
}
