use super::*;

const PATIENCE: Patience = Patience {
    grace: Duration::from_secs(2),
    stall: Duration::from_secs(10),
    answer: Duration::from_secs(60),
};

/// Who went, of these, when each could.
fn all_go(guests: &Guests, mut goes: Vec<(&'static str, oneshot::Receiver<()>)>) -> Vec<&'static str> {
    let later = Instant::now() + Duration::from_secs(3_600);
    let mut went = Vec::new();
    while guests.state().send_away(PATIENCE, guests.0.start, later) == Turn::Went {
        let position = goes.iter_mut().position(|(_, goes)| goes.try_recv().is_ok()).unwrap();
        went.push(goes.remove(position).0);
    }
    went
}

#[test]
fn r6_10_who_does_nothing_gives_way_before_who_waits_for_something() {
    let guests = Guests::new(Open::ToAll, PATIENCE);
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
    takes.takes();
    let [known_call, stalled_call, takes_call, asks_call, idle_call] = calls;
    drop(idle_call);
    assert_eq!(all_go(&guests, goes), ["silent", "newer", "idle", "asks", "stalled", "takes"]);
    assert_eq!(guests.state().send_away(PATIENCE, guests.0.start, Instant::now()), Turn::Nobody);
    drop((known_call, stalled_call, takes_call, asks_call));
    // With its call the known one is a guest again, and those that went are none.
    let turn = guests.state().send_away(PATIENCE, guests.0.start, Instant::now());
    assert!(matches!(turn, Turn::At(_)), "{turn:?}");
}

#[test]
fn r6_10_guests_are_left_some_time_and_longer_while_they_take_what_they_asked_for() {
    let guests = Guests::new(Open::ToAll, PATIENCE);
    let begin = Instant::now();
    let after =
        |seconds| guests.state().send_away(PATIENCE, guests.0.start, begin + Duration::from_secs(seconds));
    let (guest, _goes) = guests.enter();
    assert!(matches!(after(1), Turn::At(at) if at >= begin + PATIENCE.grace));
    let call = guest.begins();
    guest.is_answered();
    assert!(matches!(after(9), Turn::At(at) if at >= begin + PATIENCE.stall));
    // It takes something half a minute later, so it seems, and goes for its age all the same.
    guest.took.store(30_000_000, Ordering::Relaxed);
    assert!(matches!(after(35), Turn::At(at) if at >= begin + Duration::from_secs(39)));
    guest.took.store(58_000_000, Ordering::Relaxed);
    assert!(matches!(after(59), Turn::At(at) if at >= begin + PATIENCE.answer));
    assert_eq!(after(61), Turn::Went);
    drop(call);
    assert_eq!(after(100), Turn::Nobody, "whoever was sent away is not sent again");
}

#[test]
fn r6_10_an_account_keeps_so_many_places_and_only_while_it_asks() {
    let guests = Guests::new(Open::ToAll, PATIENCE);
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
    assert!(guests.state().known.is_empty());
    entered.iter().for_each(|(guest, _)| guest.leaves());
    let state = guests.state();
    assert!(state.all.is_empty() && state.lines.iter().all(BTreeSet::is_empty) && state.answered.is_empty());
}

#[test]
fn r6_10_at_the_fleets_port_who_asks_without_a_token_is_as_silent_as_before() {
    let guests = Guests::new(Open::ToMembers, PATIENCE);
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
fn r6_10_a_few_who_have_just_come_do_not_keep_those_who_take_nothing() {
    let guests = Guests::new(Open::ToAll, PATIENCE);
    let begin = Instant::now();
    let after =
        |seconds| guests.state().send_away(PATIENCE, guests.0.start, begin + Duration::from_secs(seconds));
    let (stalled, _silent) = ([guests.enter(), guests.enter()], guests.enter());
    let calls = [&stalled[0].0, &stalled[1].0].map(Guest::begins);
    for (guest, _) in &stalled {
        guest.is_answered();
    }
    let newest = guests.state().next - 1;
    guests.state().stand(newest, Some((Rank::Silent, begin + Duration::from_secs(10))));
    assert_eq!(after(11), Turn::Went);
    stalled[0].0.leaves();
    // Half of all are silent by now: the next place comes from them.
    assert_eq!(after(11), Turn::At(begin + Duration::from_secs(12)));
    drop(calls);
}
