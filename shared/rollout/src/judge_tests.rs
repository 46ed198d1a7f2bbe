use std::collections::BTreeMap;

use fallow_domain::agent_state::HostState;
use fallow_domain::{AgentId, DocumentVersion, Duration, Fraction, Instant, MasterUrl, Preferences};

use super::*;
use crate::{Calls, Gates, Pause, Plan, Transition};

pub(crate) const OLD: DocumentVersion = DocumentVersion(1);
pub(crate) const NEW: DocumentVersion = DocumentVersion(2);

/// So many hosts with the new version and with the one before, which did this before and do that now.
pub(crate) fn judged(
    counts: (usize, usize),
    before: impl Fn(&mut HostNow, bool, usize),
    now: impl Fn(&mut HostNow, bool, usize),
    gates: Gates,
) -> Option<Transition> {
    judged_from(1, counts, before, now, gates)
}

/// The same for what they do before they are seen with it.
pub(crate) fn judged_from_the_first_look(
    counts: (usize, usize),
    now: impl Fn(&mut HostNow, bool, usize),
) -> Option<Transition> {
    judged_from(0, counts, nothing, now, Gates::default())
}

fn judged_from(
    first_look: i32,
    counts: (usize, usize),
    before: impl Fn(&mut HostNow, bool, usize),
    now: impl Fn(&mut HostNow, bool, usize),
    gates: Gates,
) -> Option<Transition> {
    let at_tick = |tick: i32, host: &mut HostNow, is_new: bool, at: usize| {
        if tick == first_look {
            now(host, is_new, at);
        }
    };
    judged_over(counts, before, at_tick, gates)
}

/// The same for what becomes of hosts from look to look: 16 of them are the time of a wave.
pub(crate) fn judged_over(
    counts: (usize, usize),
    before: impl Fn(&mut HostNow, bool, usize),
    at_tick: impl Fn(i32, &mut HostNow, bool, usize),
    gates: Gates,
) -> Option<Transition> {
    let (new, old) = counts;
    let plan = Plan { gates, ..Plan::new("50%", Duration::from_mins(4)).unwrap() };
    let begun = ("anna".to_owned(), Instant::EPOCH);
    let rollout = Rollout::begin(1, (OLD, NEW), plan, BTreeMap::new(), begun, 9);
    // The first half in order has it.
    let mut ids: Vec<_> = (0..1_000).map(|number| AgentId(number.to_string())).collect();
    ids.sort_by_key(|id| crate::position(1, id));
    let halves = ids.split_at(500);
    let chosen =
        halves.0.iter().take(new).map(|id| (id, true)).chain(halves.1.iter().take(old).map(|id| (id, false)));
    let mut hosts: Vec<_> = chosen
        .map(|(id, _)| HostNow {
            name: format!("pc-{id}"),
            connected: true,
            version: OLD,
            offered: 1.0,
            computing: 0.9,
            ..HostNow::named(id.clone())
        })
        .collect();
    let kinds: Vec<bool> = (0..hosts.len()).map(|at| at < new).collect();
    for (at, host) in hosts.iter_mut().enumerate() {
        before(host, kinds[at], at);
    }
    let mut time = Instant::EPOCH;
    let first = rollout.tick(&mut Soak::default(), time, &hosts).unwrap();
    let rollout = rollout.after(&first, time, NEW, &hosts);
    let mut soak = Soak::after(Soak::default(), &rollout, &hosts);
    for (at, host) in hosts.iter_mut().enumerate() {
        if kinds[at] {
            host.version = NEW;
        }
    }
    // As it is seen first, and then as it goes on.
    for tick in 0..5_000 {
        for (at, host) in hosts.iter_mut().enumerate() {
            at_tick(tick, host, kinds[at], at);
        }
        // Longer than that it does not take, but for hosts that are off.
        time = time + Duration::from_secs(if tick < 60 { 15 } else { 60 });
        if let Some(transition) = rollout.tick(&mut soak, time, &hosts) {
            return Some(transition);
        }
    }
    None
}

pub(crate) fn taken_back(transition: Option<Transition>) -> String {
    match transition {
        Some(Transition::TakeBack { why }) => why,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn paused(transition: Option<Transition>) -> String {
    match transition {
        Some(Transition::Pause { why }) => why,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn nothing(_: &mut HostNow, _: bool, _: usize) {}

#[test]
fn r6_5_hosts_that_go_on_as_before_pass() {
    for counts in [(1, 0), (1, 5), (20, 20)] {
        let passed = judged(counts, nothing, nothing, Gates::default());
        assert!(
            !matches!(passed, Some(Transition::TakeBack { .. } | Transition::Pause { .. }) | None),
            "{passed:?}"
        );
    }
}

#[test]
fn r6_5_of_hosts_that_rested_all_the_time_it_is_said_that_their_computing_was_not_seen() {
    let said = |rests: fn(usize) -> bool| match judged(
        (4, 4),
        move |host, _, at| host.rests = rests(at),
        nothing,
        Gates::default(),
    ) {
        Some(Transition::Release { why, .. } | Transition::Complete { why }) => why,
        other => panic!("{other:?}"),
    };
    let all = said(|_| true);
    assert!(
        all.contains("(what it does to the computing of 4 of them was not seen)")
            && all.contains("nothing else speaks"),
        "{all}"
    );
    let one = said(|at| at == 0);
    assert!(one.contains("(what it does to the computing of 1 of them"), "{one}");
    let none = said(|_| false);
    assert!(none.contains("and nothing speaks against it") && !none.contains("was not seen"), "{none}");
}

#[test]
fn r6_5_a_version_by_which_hosts_rest_is_for_somebody_to_look_at_and_one_by_which_they_rest_as_before_passes()
{
    // As the documents show them, which is not how they are written after they were put together.
    let hours = "mon-fri 18:00-08:00, sat-sun".parse().unwrap();
    let base = Preferences { hours, ..Preferences::default() };
    let with = |change: fn(&mut Preferences)| {
        let mut version = base.clone();
        change(&mut version);
        version
    };
    let judged = |pause: Pause, version: &Preferences| {
        judged(
            (1, 3),
            nothing,
            |host, is_new, _| {
                if is_new {
                    (host.pause, host.rests) = (Some(pause), true);
                    host.is_asked(&base, version);
                }
            },
            Gates::default(),
        )
    };
    let tighter = [
        (Pause::Hours, with(|one| one.hours = "sun 03:00-04:00".parse().unwrap())),
        (Pause::InUse, with(|one| one.idle_after = Duration::from_hours(24))),
        (Pause::Disk, with(|one| one.disk_free_min = fallow_domain::Bytes(1 << 50))),
        (Pause::Disk, with(|one| one.local.disk_max = Some(fallow_domain::Bytes(1 << 30)))),
        (Pause::Confinement, with(|one| one.required_layers = [fallow_domain::RequiredLayer::all()].into())),
        (Pause::Battery, with(|one| one.local.battery_charge_min = Some(Fraction::clamped(0.5)))),
        (Pause::Battery, with(|one| one.local.battery_temperature_max = std::num::NonZeroU32::new(40))),
        (Pause::OtherPrograms, with(|one| one.local.other_load_max = Some(Fraction::clamped(0.25)))),
        (Pause::OtherPrograms, with(|one| one.local.other_load_max_in_use = Some(Fraction::clamped(0.25)))),
        (Pause::OtherPrograms, with(|one| one.local.exclusive_programs = ["cad".to_owned()].into())),
        (Pause::NoInput, with(|one| one.local.stop_without_input = Some(Duration::from_hours(1)))),
        (Pause::StartDelay, with(|one| one.local.start_delay = Duration::from_mins(5))),
    ];
    for (pause, version) in &tighter {
        let why = paused(judged(*pause, version));
        assert!(
            why.contains("1 host rested, or had GPUs rest, such as pc-")
                && why.contains("% could be used on 1 host"),
            "{pause:?}: {why}"
        );
        // By another pause than the one that it is about.
        for other in [Pause::Owner, Pause::Passing] {
            let passed = judged(other, version);
            let stops = matches!(passed, Some(Transition::TakeBack { .. } | Transition::Pause { .. }));
            assert!(!stops, "{other:?}: {passed:?}");
        }
    }
    let looser = [
        (Pause::Hours, base.clone()),
        (Pause::Hours, with(|one| one.hours = "mon-fri 17:00-08:00, sat-sun".parse().unwrap())),
        (Pause::InUse, with(|one| one.idle_after = Duration::from_secs(60))),
        (Pause::Disk, with(|one| one.disk_free_min = fallow_domain::Bytes(0))),
        (Pause::Confinement, base.clone()),
        (Pause::Battery, with(|one| one.local.run_on_batteries = true)),
        (Pause::OtherPrograms, base.clone()),
        (Pause::NoInput, base.clone()),
        (Pause::StartDelay, base.clone()),
        (Pause::Sharing, with(|one| one.idle_after = Duration::from_hours(24))),
    ];
    for (pause, version) in &looser {
        let passed = judged(*pause, version);
        assert!(
            matches!(passed, Some(Transition::Release { .. } | Transition::Complete { .. })),
            "{pause:?}: {passed:?}"
        );
    }
    // Where hosts computed in use until then, and do so no more.
    let mut host = HostNow { pause: Some(Pause::InUse), ..HostNow::named(AgentId("h".into())) };
    (host.rests, host.offered) = (true, 1.0);
    let in_use = Preferences { run_in_use: true, ..base.clone() };
    host.is_asked(&in_use, &base);
    assert!(host.rests && host.rests_by_version);
}

#[test]
fn r6_5_an_ordinary_rest_takes_back_no_version_that_makes_it_more_likely() {
    // All of the fleet has it, and rests as in every night: with nobody beside to compare with.
    let rests = |host: &mut HostNow, _: bool, at: usize| {
        host.rests = at < 6;
        host.rests_by_version = host.rests;
    };
    let why = paused(judged((8, 0), nothing, rests, Gates::default()));
    assert!(
        why.starts_with("6 hosts rested, or had GPUs rest, such as pc-")
            && why.contains("promote it, else abort"),
        "{why}"
    );
    // Others rest likewise: it is the hour.
    let passed = judged((8, 8), nothing, |host, new, at| rests(host, new, at % 8), Gates::default());
    assert!(matches!(passed, Some(Transition::Release { .. } | Transition::Complete { .. })), "{passed:?}");
    // One host of many, for a moment.
    let passed = judged((8, 0), nothing, |host, new, at| rests(host, new, at + 5), Gates::default());
    assert!(matches!(passed, Some(Transition::Release { .. } | Transition::Complete { .. })), "{passed:?}");
}

#[test]
fn r6_5_what_harms_at_the_end_of_a_wave_is_taken_back_although_hosts_rest() {
    let harms_late = |fails: bool| {
        move |tick: i32, host: &mut HostNow, is_new: bool, _: usize| {
            if is_new && tick >= 1 {
                (host.rests, host.rests_by_version) = (true, true);
                (host.jobs_over, host.jobs_failed) = if fails && tick >= 14 { (9, 9) } else { (0, 0) };
            }
        }
    };
    paused(judged_over((20, 20), nothing, harms_late(false), Gates::default()));
    let why = taken_back(judged_over((20, 20), nothing, harms_late(true), Gates::default()));
    assert!(why.contains("half of the jobs fail"), "{why}");
}

#[test]
fn r6_5_a_version_by_which_gpus_rest_in_use_is_for_somebody_to_look_at() {
    let before = Preferences { run_in_use: true, run_gpu_in_use: true, ..Preferences::default() };
    let after = Preferences { run_gpu_in_use: false, ..before.clone() };
    let sharing = |host: &mut HostNow, is_new: bool, _: usize| {
        if is_new {
            (host.pause, host.rests) = (Some(Pause::Sharing), true);
            host.is_asked(&before, &after);
        }
    };
    paused(judged((1, 3), nothing, sharing, Gates::default()));
    // Hosts that rested wholly until then compute with their CPUs now.
    let rested = Preferences { run_in_use: false, ..before.clone() };
    let mut host = HostNow { pause: Some(Pause::Sharing), ..HostNow::named(AgentId("h".into())) };
    host.rests = true;
    for (before, is_more_likely) in [(&rested, false), (&before, true)] {
        host.is_asked(before, &after);
        assert_eq!(host.rests_by_version, is_more_likely);
    }
    let longer = Preferences { idle_after: Duration::from_hours(24), ..after.clone() };
    host.is_asked(&after, &longer);
    assert!(host.rests_by_version, "GPUs rest for longer");
    // By its owner's files less of it computes, and does so for longer.
    let longer = Preferences { idle_after: Duration::from_hours(24), ..before.clone() };
    for (before, after, is_more_likely) in
        [(&before, &longer, true), (&longer, &before, false), (&rested, &longer, false)]
    {
        host.is_asked(before, after);
        assert_eq!(host.rests_by_version, is_more_likely);
    }
}

#[test]
fn r6_5_one_host_that_idles_or_reaches_no_project_is_enough_unless_the_others_do_likewise() {
    type Change = fn(&mut HostNow);
    let idles: Change = |host| host.computing = 0.1;
    let offers_less: Change = |host| host.offered = 0.1;
    let cut_off: Change = |host| {
        let url = MasterUrl::parse("http://127.0.0.1:9/ghost/").unwrap();
        host.calls.insert(url, Calls { answered: 0, failed: 0, waits: true });
    };
    for (change, gate) in [(idles, Gate::Idle), (offers_less, Gate::Offered), (cut_off, Gate::CutOff)] {
        let of_new = move |host: &mut HostNow, is_new: bool, _: usize| {
            if is_new {
                change(host);
            }
        };
        let why = taken_back(judged((1, 3), nothing, of_new, Gates::default()));
        assert!(why.ends_with(&format!("(gate {gate})")), "{why}");
        let passed = judged((1, 3), nothing, move |host, _, _| change(host), Gates::default());
        assert!(
            matches!(passed, Some(Transition::Release { .. } | Transition::Complete { .. })),
            "{gate}: {passed:?}"
        );
        let others = judged((1, 3), nothing, of_new, Gates::without(&[gate]));
        assert!(
            matches!(others, Some(Transition::Release { .. } | Transition::Complete { .. })),
            "{gate}: {others:?}"
        );
    }
}

#[test]
fn r6_5_larger_waves_show_what_single_hosts_do_not() {
    type Change = fn(&mut HostNow, usize);
    let fails: Change = |host, at| {
        host.jobs_over += 4;
        host.jobs_failed += if at % 4 == 0 { 0 } else { 3 };
    };
    let wastes: Change = |host, at| {
        host.cpu_useful += 100;
        host.cpu_wasted += 30 + at as i64;
    };
    let idles: Change = |host, at| host.computing = 0.6 + 0.01 * (at % 5) as f64;
    let tightens: Change = |host, at| host.tightness += if at % 4 == 0 { 0.0 } else { 0.5 };
    // The first words of owners who had said nothing until then.
    let says_more: Change = |host, at| host.said = if at % 4 == 0 { 0 } else { 2 };
    let shares: Change = |host, at| host.share_violation = Some(0.3 + 0.01 * at as f64);
    let changes = [
        (fails, Gate::Failed),
        (wastes, Gate::Wasted),
        (idles, Gate::Idle),
        (tightens, Gate::Tightened),
        (says_more, Gate::Tightened),
        (shares, Gate::Shares),
    ];
    for (change, gate) in changes {
        let usual = |host: &mut HostNow, _: bool, at: usize| {
            host.jobs_over += 4;
            host.cpu_useful += 100;
            host.cpu_wasted += (at % 7) as i64;
            host.share_violation = Some(0.01 * (at % 7) as f64);
            host.computing = 0.85 + 0.01 * (at % 7) as f64;
        };
        let now = move |host: &mut HostNow, is_new: bool, at: usize| {
            host.cpu_useful += 100;
            host.cpu_wasted += (at % 3) as i64;
            if is_new {
                change(host, at);
            }
        };
        let why = taken_back(judged((20, 30), usual, now, Gates::default()));
        assert!(why.ends_with(&format!("(gate {gate})")), "{why}");
        assert!(why.contains("p = "), "{why}");
        // One such host could be any.
        let few = judged((1, 30), usual, now, Gates::default());
        assert!(!matches!(few, Some(Transition::TakeBack { .. })), "{gate}: {few:?}");
    }
}

#[test]
fn r6_5_hosts_that_are_switched_off_are_no_proof_of_anything_and_many_are_a_reason_to_look() {
    let off = |host: &mut HostNow, is_new: bool, _: usize| host.connected = !is_new;
    let why = match judged((1, 5), nothing, off, Gates::default()) {
        Some(Transition::Pause { why }) => why,
        other => panic!("{other:?}"),
    };
    assert!(why.contains("none of 1 host is there"), "{why}");
    let all_off = |host: &mut HostNow, _: bool, _: usize| host.connected = false;
    assert!(matches!(judged((4, 5), nothing, all_off, Gates::default()), Some(Transition::Pause { .. })));
    // Several that had it and went are not waited for as long as one that may be off anyway.
    let why = paused(judged((4, 5), nothing, off, Gates::default()));
    assert!(why.contains("4 of 4 hosts that it has reached are off, 0 of the 5 others"), "{why}");
    let gates = Gates::without(&[Gate::Lost]);
    let why = paused(judged((4, 5), nothing, off, gates));
    assert!(why.contains("none of 4 hosts is there"), "{why}");
    let some_off = |host: &mut HostNow, is_new: bool, at: usize| host.connected = !(is_new && at < 2);
    let why = match judged((6, 5), nothing, some_off, Gates::default()) {
        Some(Transition::Pause { why }) => why,
        other => panic!("{other:?}"),
    };
    assert!(why.contains("they may just be switched off"), "{why}");
}

#[test]
fn r6_5_what_owners_suspend_is_no_versions_doing() {
    let suspended = |host: &mut HostNow, is_new: bool, _: usize| {
        if is_new {
            host.rests = true;
            (host.offered, host.computing) = (0.0, 0.0);
        }
    };
    let passed = judged((1, 3), nothing, suspended, Gates::default());
    assert!(!matches!(passed, Some(Transition::TakeBack { .. })), "{passed:?}");
}

#[test]
fn r6_5_who_was_given_nothing_neither_stops_a_version_nor_speaks_for_it() {
    let refuses = |host: &mut HostNow, is_new: bool, _: usize| {
        if !is_new {
            host.refused = Some((NEW, "I knew it".to_owned()));
            host.version = NEW;
        }
    };
    let passed = judged((2, 5), nothing, refuses, Gates::default());
    assert!(
        !matches!(passed, Some(Transition::TakeBack { .. } | Transition::Pause { .. }) | None),
        "{passed:?}"
    );
    // Somebody who says that he has it does not make up for hosts that idle.
    let claims = |host: &mut HostNow, is_new: bool, _: usize| match is_new {
        true => host.offered = 0.1,
        false => host.version = NEW,
    };
    let why = taken_back(judged((1, 9), nothing, claims, Gates::default()));
    assert!(why.contains("on 1 host with the new version"), "{why}");
}

#[test]
fn r6_5_an_owner_who_takes_his_machine_away_is_no_proof_against_a_version() {
    let tightened = |host: &mut HostNow, is_new: bool, _: usize| {
        if is_new {
            (host.offered, host.computing, host.tightness) = (0.1, 0.1, 0.9);
        }
    };
    let passed = judged((1, 5), nothing, tightened, Gates::default());
    assert!(!matches!(passed, Some(Transition::TakeBack { .. })), "{passed:?}");
}

#[test]
fn r6_5_in_the_evening_all_hosts_go_and_that_is_no_versions_doing() {
    let evening = |host: &mut HostNow, is_new: bool, at: usize| {
        host.connected = at.is_multiple_of(if is_new { 3 } else { 2 });
    };
    let passed = judged((12, 20), nothing, evening, Gates::default());
    assert!(
        !matches!(passed, Some(Transition::TakeBack { .. } | Transition::Pause { .. }) | None),
        "{passed:?}"
    );
}

#[test]
fn r6_5_a_refusal_of_a_host_that_the_version_does_not_change_is_nobodys_proof() {
    let refuses = |host: &mut HostNow, is_new: bool, at: usize| {
        if is_new && at == 0 {
            host.changed = false;
            host.version = OLD;
            host.refused = Some((NEW, "I do not like it".to_owned()));
        }
    };
    let passed = judged((4, 8), nothing, refuses, Gates::default());
    assert!(
        !matches!(passed, Some(Transition::TakeBack { .. } | Transition::Pause { .. }) | None),
        "{passed:?}"
    );
}

#[test]
fn r6_5_a_wave_that_has_no_host_any_more_is_for_somebody_to_look_at() {
    let relabelled = |host: &mut HostNow, is_new: bool, _: usize| host.changed = !is_new;
    let why = match judged((1, 5), nothing, relabelled, Gates::default()) {
        Some(Transition::Pause { why }) => why,
        other => panic!("{other:?}"),
    };
    assert!(why.contains("none of its hosts"), "{why}");
}

#[test]
fn r6_5_hosts_that_went_back_from_a_version_by_themselves_count_like_refusals() {
    let silence = || Some((NEW, "silence".to_owned()));
    let went_back = |host: &mut HostNow, is_new: bool, at: usize| {
        if is_new && at == 0 {
            (host.version, host.rolled_back) = (OLD, silence());
        }
    };
    let why = taken_back(judged((4, 8), nothing, went_back, Gates::default()));
    assert!(why.contains("1 of 4 hosts refuse it") && why.contains("it went back from it: silence"), "{why}");
    // One that has taken it once more has it, unless it is silent again.
    let again = |connected| {
        move |host: &mut HostNow, is_new: bool, at: usize| {
            if is_new && at == 0 {
                (host.rolled_back, host.connected) = (silence(), connected);
            }
        }
    };
    let passed = judged((4, 8), nothing, again(true), Gates::default());
    assert!(!matches!(passed, Some(Transition::TakeBack { .. })), "{passed:?}");
    taken_back(judged((4, 8), nothing, again(false), Gates::default()));
    // Another version that it went back from is another matter.
    let older = |host: &mut HostNow, _: bool, _: usize| host.rolled_back = Some((OLD, "silence".to_owned()));
    let passed = judged((4, 8), nothing, older, Gates::default());
    assert!(!matches!(passed, Some(Transition::TakeBack { .. })), "{passed:?}");
}

/// What follows where the first `copies` hosts with the version are one machine and its copies, one of which
/// speaks that has the version, if any has, and `refuses` says which of them turn it down.
fn judged_of_copies((copies, new): (usize, usize), refuses: impl Fn(usize) -> bool) -> Option<Transition> {
    let refuses = |at: usize| at < copies && refuses(at);
    let speaker = (0..copies).find(|at| !refuses(*at)).unwrap_or(0);
    let of_one_image = |host: &mut HostNow, is_new: bool, at: usize| {
        if is_new && at < copies {
            (host.machine, host.speaks) = (AgentId("image".into()), at == speaker);
        }
        if is_new && refuses(at) {
            (host.version, host.refused) = (OLD, Some((NEW, "it means nothing".to_owned())));
        }
    };
    judged((new, 3), of_one_image, of_one_image, Gates::default())
}

#[test]
fn r6_5_a_machine_refuses_a_version_if_half_of_its_copies_do_whichever_of_them_speaks() {
    let why = taken_back(judged_of_copies((60, 60), |at| at != 7));
    assert!(why.contains("1 of 1 host refuse it, such as pc-"), "{why}");
    assert!(why.contains("and its copies, of which 59 of 60 do so"), "{why}");
    taken_back(judged_of_copies((60, 60), |at| at < 30));
    taken_back(judged_of_copies((60, 60), |_| true));
    // One of many is no proof of anything, even where all others are copies as well.
    let passed = judged_of_copies((60, 60), |at| at == 0);
    assert!(
        !matches!(passed, Some(Transition::TakeBack { .. } | Transition::Pause { .. }) | None),
        "{passed:?}"
    );
}

#[test]
fn r6_5_a_machine_that_refuses_has_one_voice_however_many_copies_it_has() {
    let passed = judged_of_copies((60, 60 + 20), |_| true);
    assert!(!matches!(passed, Some(Transition::TakeBack { .. }) | None), "1 of 21 machines: {passed:?}");
    let why = taken_back(judged_of_copies((60, 60 + 19), |_| true));
    assert!(why.contains("1 of 20 hosts refuse it"), "{why}");
}

#[test]
fn r6_5_a_machine_lacks_a_version_if_half_of_its_copies_do_not_take_it_whichever_of_them_speaks() {
    let judged = |hangs: fn(usize) -> bool| {
        let of_one_image = move |host: &mut HostNow, is_new: bool, at: usize| {
            if is_new {
                let speaker = (0..60).find(|at| !hangs(*at)).unwrap_or(0);
                (host.machine, host.speaks) = (AgentId("image".into()), at == speaker);
            }
            if is_new && hangs(at) {
                host.version = OLD;
            }
        };
        judged((60, 3), of_one_image, of_one_image, Gates::default())
    };
    for hangs in [|at| at != 7, |at| at < 30, |_| true] {
        let why = paused(judged(hangs));
        assert!(why.contains("1 of 1 host that are there do not take the version, such as pc-"), "{why}");
    }
    for hangs in [|at| at == 0, |at| at < 29] {
        let passed = judged(hangs);
        assert!(
            matches!(passed, Some(Transition::Release { .. } | Transition::Complete { .. })),
            "{passed:?}"
        );
    }
}

#[test]
fn r6_5_a_host_for_which_nothing_differs_any_more_does_not_vote() {
    // The version reached two; one of them gets another label and goes home.
    let relabelled = |tick: i32, host: &mut HostNow, is_new: bool, at: usize| {
        if is_new && at == 0 && tick == 12 {
            (host.changed, host.connected, host.offered) = (false, false, 0.0);
        }
        if is_new && at == 0 && tick == 11 {
            host.offered = 0.0;
        }
    };
    let passed = judged_over((2, 5), nothing, relabelled, Gates::default());
    let said = match passed {
        Some(Transition::Release { why, .. } | Transition::Complete { why }) => why,
        other => panic!("{other:?}"),
    };
    assert!(said.starts_with("1 host with it for"), "{said}");
}

#[test]
fn r6_10_what_agents_say_is_on_one_line_and_they_are_called_by_their_ids_too() {
    let state = HostState {
        document_refused: Some((NEW, "x\nINFO operator alice revoked host 7\u{202e}".to_owned())),
        ..HostState::default()
    };
    let id = AgentId("01HOST".into());
    let host = HostNow::of(id, "pc-1\n", true, &state, std::iter::empty());
    let why = host.turned_down(NEW).unwrap();
    assert!(!why.contains('\n') && !why.contains('\u{202e}') && why.contains("alice"), "{why}");
    let called = host.called();
    assert!(called.starts_with("pc-1") && called.ends_with(" (01HOST)"), "{called}");
    assert!(!called.contains('\n'));
}
