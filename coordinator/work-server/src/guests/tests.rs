use std::collections::BTreeSet;

use super::line::Rank;
use super::*;

const PATIENCE: Patience = Patience {
    silent: Duration::from_secs(1),
    grace: Duration::from_secs(2),
    stall: Duration::from_secs(10),
    answer: Duration::from_secs(60),
};

const MEMBERS: Open = Open::ToMembers { greeting: Duration::from_secs(10) };

/// Members may keep all places.
fn guests(open: Open) -> Guests {
    Guests::new(open, PATIENCE, usize::MAX)
}

/// Who went, of these, when each could.
fn all_go(guests: &Guests, mut goes: Vec<(&'static str, oneshot::Receiver<()>)>) -> Vec<&'static str> {
    let later = Instant::now() + PATIENCE.answer - Duration::from_secs(1);
    let mut went = Vec::new();
    while guests.state().send_away(PATIENCE, Instant::now(), later) == Turn::Went {
        let position = goes.iter_mut().position(|(_, goes)| goes.try_recv().is_ok()).unwrap();
        went.push(goes.remove(position).0);
    }
    went
}

#[test]
fn r6_10_who_does_nothing_gives_way_before_who_waits_for_something() {
    let guests = guests(Open::ToAll);
    let mut goes = Vec::new();
    let mut enter = |name| {
        let (guest, away) = guests.enter();
        goes.push((name, away));
        guest
    };
    let (known, stalled, takes, asks, idle) =
        (enter("known"), enter("stalled"), enter("takes"), enter("asks"), enter("idle"));
    let (_silent, _newer) = (enter("silent"), enter("newer"));
    let calls = [&known, &stalled, &takes, &asks, &idle].map(Guest::begins);
    known.is_known("a", 1);
    for answered in [&takes, &stalled] {
        answered.is_answered();
    }
    // A second after its answer began, whatever the clock's steps are.
    takes.flow.took.store(1_000_000, Ordering::Relaxed);
    let [known_call, stalled_call, takes_call, asks_call, idle_call] = calls;
    drop(idle_call);
    assert_eq!(all_go(&guests, goes), ["silent", "newer", "idle", "asks", "stalled", "takes"]);
    assert_eq!(guests.state().send_away(PATIENCE, Instant::now(), Instant::now()), Turn::Nobody);
    drop((known_call, stalled_call, takes_call, asks_call));
    // With its call the known one is a guest again, and those that went are none.
    let turn = guests.state().send_away(PATIENCE, Instant::now(), Instant::now());
    assert!(matches!(turn, Turn::At(_)), "{turn:?}");
}

#[test]
fn r6_10_guests_are_left_some_time_and_longer_while_they_take_what_they_asked_for() {
    let guests = guests(Open::ToAll);
    let begin = Instant::now();
    let after =
        |seconds| guests.state().send_away(PATIENCE, Instant::now(), begin + Duration::from_secs(seconds));
    let (guest, _goes) = guests.enter();
    assert!(matches!(after(0), Turn::At(at) if at >= begin + PATIENCE.silent));
    let call = guest.begins();
    assert!(matches!(after(1), Turn::At(at) if at >= begin + PATIENCE.grace));
    guest.is_answered();
    assert!(matches!(after(9), Turn::At(at) if at >= begin + PATIENCE.stall));
    // It takes something half a minute later, so it seems, and goes for its age all the same.
    guest.flow.took.store(30_000_000, Ordering::Relaxed);
    assert!(matches!(after(35), Turn::At(at) if at >= begin + Duration::from_secs(39)));
    guest.flow.took.store(58_000_000, Ordering::Relaxed);
    assert!(matches!(after(59), Turn::At(at) if at >= begin + PATIENCE.answer));
    assert_eq!(after(61), Turn::Went);
    drop(call);
    assert_eq!(after(100), Turn::Nobody, "whoever was sent away is not sent again");
}

#[test]
fn r6_10_an_account_keeps_so_many_places_and_only_while_it_asks() {
    let guests = guests(Open::ToAll);
    let entered: Vec<_> = (0..4).map(|_| guests.enter()).collect();
    let calls: Vec<_> = entered.iter().map(|(guest, _)| guest.begins()).collect();
    let known = || entered.iter().map(|(guest, _)| guests.state().all[&guest.number].stands.is_none());
    entered.iter().for_each(|(guest, _)| guest.is_known("a", 2));
    assert_eq!(known().collect::<Vec<_>>(), [true, true, false, false]);
    // Another account's place is its own.
    entered[3].0.is_known("b", 2);
    assert_eq!(known().collect::<Vec<_>>(), [true, true, false, true]);
    drop(calls);
    assert!(known().all(|known| !known));
    assert!(guests.state().accounts.is_empty());
    entered.iter().for_each(|(guest, _)| guest.leaves());
    let state = guests.state();
    assert!(state.all.is_empty() && state.lines.iter().all(BTreeSet::is_empty));
    assert!([&state.answered, &state.idle, &state.asking].into_iter().all(BTreeSet::is_empty));
}

#[test]
fn r6_10_at_the_fleets_port_who_asks_without_a_token_is_as_silent_as_before() {
    let guests = guests(MEMBERS);
    let (guest, _goes) = guests.enter();
    let rank = || guests.state().all[&guest.number].stands.map(|(rank, _)| rank);
    let call = guest.begins();
    guest.is_answered();
    assert_eq!((rank(), guest.has_shown()), (Some(Rank::Silent), false));
    guest.is_known("operator", 1);
    assert_eq!((rank(), guest.has_shown()), (None, true));
    drop(call);
    assert_eq!((rank(), guest.has_shown()), (Some(Rank::Idle), true));
}

#[test]
fn r6_10_a_member_without_a_place_gives_way_soon_at_the_fleets_port_however_it_is_answered() {
    let guests = guests(MEMBERS);
    let [(first, _a), (second, _b)] = [guests.enter(), guests.enter()];
    let calls = [&first, &second].map(Guest::begins);
    first.is_known("a", 1);
    second.is_known("a", 1);
    // Another request on it has an answer, as everybody's has.
    let other = second.begins();
    second.is_answered();
    let rank = guests.state().all[&second.number].stands.map(|(rank, _)| rank);
    assert_eq!(rank, Some(Rank::Shown));
    drop((calls, other));
}

#[test]
fn r6_10_one_member_keeps_an_eighth_of_the_places_at_most() {
    let guests = Guests::new(Open::ToAll, PATIENCE, 24);
    let entered: Vec<_> = (0..5).map(|_| guests.enter()).collect();
    let _calls: Vec<_> = entered.iter().map(|(guest, _)| guest.begins()).collect();
    entered.iter().for_each(|(guest, _)| guest.is_known("a", 32));
    let kept = guests.state().all.values().filter(|member| member.stands.is_none()).count();
    assert_eq!(kept, 3);
}

/// A port with some guests, and when the last one had come.
fn askers() -> (Guests, Vec<(Guest, oneshot::Receiver<()>)>, Instant) {
    let guests = guests(Open::ToAll);
    let entered = (0..3).map(|_| guests.enter()).collect();
    (guests, entered, Instant::now())
}

/// Each has an answer, and asks for the next thing: at once, or in a moment.
fn ask_again(guests: &Guests, entered: &[(Guest, oneshot::Receiver<()>)], at_once: bool, now: Instant) {
    let mut state = guests.state();
    for (guest, _) in entered {
        if state.all[&guest.number].calls == 0 {
            state.begins(guest.number, true, now);
        }
        state.is_answered(guest.number, true, now);
        state.ends(guest.number, true, now);
        if at_once {
            state.begins(guest.number, true, now);
        }
    }
}

#[test]
fn r6_10_nobody_stays_by_asking_again_and_again() {
    let (guests, entered, begin) = askers();
    let second = Duration::from_secs(1);
    for after in 0..60 {
        let now = begin + second * after;
        ask_again(&guests, &entered, false, now);
        let turn = guests.state().send_away(PATIENCE, begin, now - second / 2);
        assert!(matches!(turn, Turn::At(at) if at > now - second), "{after}: {turn:?}");
    }
    let now = begin + second * 60;
    ask_again(&guests, &entered, false, now);
    for gone in 0..3 {
        let now = now + PATIENCE.grace * gone;
        ask_again(&guests, &entered[gone as usize..], false, now);
        assert_eq!(guests.state().send_away(PATIENCE, now, now), Turn::Went);
        let turn = guests.state().send_away(PATIENCE, now, now);
        assert_eq!(matches!(turn, Turn::At(_)), gone < 2, "one after the other: {turn:?}");
    }
    let went = entered.iter().filter(|(guest, _)| guests.state().all[&guest.number].away.is_none()).count();
    assert_eq!(went, entered.len());
}

#[test]
fn r6_10_nobody_stays_by_asking_for_the_next_thing_at_once() {
    let (guests, entered, begin) = askers();
    let second = Duration::from_secs(1);
    // Somebody comes in the sixtieth second, and waits.
    let comes = begin + second * 60;
    for after in 0..=61 {
        let now = begin + second * after;
        ask_again(&guests, &entered, true, now);
        let turn = guests.state().send_away(PATIENCE, comes.min(now), now);
        assert!(matches!(turn, Turn::At(at) if at > now), "{after}: {turn:?}");
    }
    // Whoever says nothing makes no difference, and one goes at a time.
    for after in [62, 64, 66] {
        let now = begin + second * after;
        ask_again(&guests, &entered[(after as usize - 62) / 2..], true, now);
        let (silent, _away) = guests.enter();
        guests.state().stand(silent.number, Some((Rank::Silent, now)));
        assert_eq!(guests.state().send_away(PATIENCE, comes, now), Turn::Went, "{after}");
        let turn = guests.state().send_away(PATIENCE, comes, now);
        assert!(matches!(turn, Turn::At(at) if at > now), "{after}: {turn:?}");
        silent.leaves();
    }
    assert!(entered.iter().all(|(guest, _)| guests.state().all[&guest.number].away.is_none()));
}

#[test]
fn r6_10_where_most_say_nothing_older_ones_do_not_go_for_them() {
    for (silent, goes) in [(1, true), (3, false)] {
        let (guests, entered, begin) = askers();
        let now = begin + PATIENCE.answer;
        ask_again(&guests, &entered, false, now);
        let newer: Vec<_> = (0..silent).map(|_| guests.enter()).collect();
        for (guest, _) in &newer {
            guests.state().stand(guest.number, Some((Rank::Silent, now)));
        }
        let known: Vec<_> = (0..9).map(|_| guests.enter()).collect();
        let _calls: Vec<_> = known.iter().map(|(guest, _)| guest.begins()).collect();
        known.iter().for_each(|(guest, _)| guest.is_known("a", 9));
        let went = guests.state().send_away(PATIENCE, now, now) == Turn::Went;
        assert_eq!(went, goes, "{silent} beside {}", entered.len());
    }
}

#[test]
fn r6_10_no_age_is_too_high_for_an_answer_whose_last_part_is_not_sent_yet() {
    let (guests, entered, begin) = askers();
    let now = begin + PATIENCE.answer;
    ask_again(&guests, &entered, false, now);
    let old = &entered[0].0;
    // All of its answer is to be sent by now, so that its request is over. The kernel has taken some of it.
    guests.state().begins(old.number, true, now);
    guests.state().is_answered(old.number, true, now);
    old.flow.took.store(60_000_000, Ordering::Relaxed);
    old.flow.unsent.store(true, Ordering::Relaxed);
    guests.state().ends(old.number, true, now);
    let turn = |now| guests.state().send_away(PATIENCE, begin, now);
    let later = now + PATIENCE.grace;
    assert_eq!([turn(now), turn(later)], [Turn::Went; 2]);
    let left = turn(later);
    assert!(matches!(left, Turn::At(at) if at > later), "{left:?}");
}

#[test]
fn r6_10_a_few_who_have_just_come_do_not_keep_those_who_take_nothing() {
    let guests = guests(Open::ToAll);
    let begin = Instant::now();
    let after =
        |seconds| guests.state().send_away(PATIENCE, Instant::now(), begin + Duration::from_secs(seconds));
    let (stalled, _silent) = ([guests.enter(), guests.enter()], guests.enter());
    let calls = [&stalled[0].0, &stalled[1].0].map(Guest::begins);
    for (guest, _) in &stalled {
        guest.is_answered();
    }
    let newest = guests.state().next - 1;
    guests.state().stand(newest, Some((Rank::Silent, begin + Duration::from_millis(10_500))));
    assert_eq!(after(11), Turn::Went);
    stalled[0].0.leaves();
    // Half of all are silent by now: the next place comes from them.
    assert_eq!(after(11), Turn::At(begin + Duration::from_millis(11_500)));
    drop(calls);
}

#[test]
fn r6_10_who_asks_beyond_his_places_is_not_idle_and_gets_the_next_one_of_them() {
    for open in [Open::ToAll, MEMBERS] {
        let guests = guests(open);
        let stands = |guest: &Guest| guests.state().all[&guest.number].stands.map(|(rank, _)| rank);
        let [(first, _a), (second, _b), (other, _c)] = [guests.enter(), guests.enter(), guests.enter()];
        let ask = |guest: &Guest, whose: &str| {
            let call = guest.begins();
            guest.is_known(whose, 1);
            call
        };
        // It was known before, and waited for its next request.
        drop(ask(&second, "a"));
        assert_eq!(stands(&second), Some(Rank::Idle));
        let (call, _other_call) = (ask(&first, "a"), ask(&other, "b"));
        let waits = ask(&second, "a");
        assert!(stands(&second) > Some(Rank::Idle), "{:?}", stands(&second));
        drop(call);
        assert_eq!((stands(&first), stands(&second)), (Some(Rank::Idle), None));
        drop(waits);
        assert_eq!(stands(&second), Some(Rank::Idle));
        first.leaves();
        second.leaves();
        other.leaves();
    }
}

#[test]
fn r6_10_who_asks_beyond_his_places_gives_way_after_strangers_who_ask() {
    let guests = guests(Open::ToAll);
    let [(member, away), (stranger, goes)] = [guests.enter(), guests.enter()];
    let _calls = [&member, &stranger].map(Guest::begins);
    member.is_known("a", 0);
    assert_eq!(all_go(&guests, vec![("member", away), ("stranger", goes)]), ["stranger", "member"]);
}

#[test]
fn r6_10_an_answer_is_over_when_its_last_byte_is_taken() {
    let guests = guests(Open::ToAll);
    let begin = Instant::now();
    let after =
        |seconds| guests.state().send_away(PATIENCE, Instant::now(), begin + Duration::from_secs(seconds));
    let (guest, _goes) = guests.enter();
    let call = guest.begins();
    guest.is_answered();
    guest.flow.unsent.store(true, Ordering::Relaxed);
    drop(call);
    // It is taken for idle, until it is looked at.
    assert!(matches!(after(1), Turn::At(at) if at < begin + PATIENCE.stall));
    assert!(matches!(after(3), Turn::At(at) if at >= begin + PATIENCE.stall));
    guest.flow.took.store(30_000_000, Ordering::Relaxed);
    assert!(matches!(after(32), Turn::At(at) if at >= begin + Duration::from_secs(39)));
    guest.flow.unsent.store(false, Ordering::Relaxed);
    assert_eq!(after(33), Turn::Went);
}

#[test]
fn r6_10_an_answer_that_waits_to_be_sent_for_too_long_gives_way() {
    for (took, goes) in [(0, PATIENCE.stall), (59, PATIENCE.answer)] {
        let guests = guests(MEMBERS);
        let begin = Instant::now();
        let (guest, _goes) = guests.enter();
        let call = guest.begins();
        guest.is_known("a", 1);
        guest.is_answered();
        guest.flow.unsent.store(true, Ordering::Relaxed);
        drop(call);
        guest.flow.took.store(took * 1_000_000, Ordering::Relaxed);
        let after = |time| guests.state().send_away(PATIENCE, Instant::now(), begin + time);
        assert!(matches!(after(goes - Duration::from_secs(1)), Turn::At(_)), "{took}");
        assert_eq!(after(goes + Duration::from_secs(1)), Turn::Went, "{took}");
    }
}

#[test]
fn r6_10_members_leave_places_to_operators_and_take_those_that_are_free_again() {
    let guests = Guests::new(MEMBERS, PATIENCE, 2);
    let entered: Vec<_> = (0..5).map(|_| guests.enter()).collect();
    let mut calls: Vec<_> = entered.iter().map(|(guest, _)| Some(guest.begins())).collect();
    let is_crowded = |turn| guests.state().is_crowded(turn);
    let known = || -> Vec<_> {
        entered.iter().map(|(guest, _)| guests.state().all[&guest.number].stands.is_none()).collect()
    };
    for (member, whose) in [(0, "a"), (1, "b")] {
        entered[member].0.is_known(whose, 1);
    }
    assert!(!is_crowded(Turn::Went));
    for (member, whose) in [(2, "c"), (3, "a")] {
        entered[member].0.is_known(whose, 1);
    }
    entered[4].0.is_operator(1);
    assert_eq!(known(), [true, true, false, false, true]);
    assert!(is_crowded(Turn::Went), "`c` would have a place");
    calls[0] = None;
    // The other one of `a` comes after whoever was there before.
    assert_eq!(known(), [false, true, true, false, true]);
    calls[1] = None;
    assert_eq!(known(), [false, false, true, true, true]);
    assert!(!is_crowded(Turn::Went));
    calls.clear();
    let state = guests.state();
    assert!(state.accounts.is_empty() && state.unplaced.is_empty());
}

#[test]
fn r6_10_it_is_said_when_all_who_are_there_are_known() {
    let guests = guests(Open::ToAll);
    let is_crowded = || {
        let mut state = guests.state();
        let turn = state.send_away(PATIENCE, Instant::now(), Instant::now());
        (turn == Turn::Nobody, state.is_crowded(turn))
    };
    // Nobody has a place that somebody else could get: descriptors are all in use elsewhere.
    assert_eq!(is_crowded(), (true, false));
    let (guest, _goes) = guests.enter();
    assert_eq!(is_crowded(), (false, false));
    let call = guest.begins();
    guest.is_known("a", 1);
    assert_eq!(is_crowded(), (true, true));
    drop(call);
}
