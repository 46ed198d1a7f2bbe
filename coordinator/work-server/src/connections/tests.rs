use std::collections::BTreeSet;

use super::eviction_queue::EvictionClass;
use super::*;

const TIMEOUTS: Timeouts = Timeouts {
    silent: Duration::from_secs(1),
    grace: Duration::from_secs(2),
    stall: Duration::from_secs(10),
    answer: Duration::from_secs(60),
};

const AUTHENTICATED: Access = Access::Authenticated { within: Duration::from_secs(10) };

/// Members may keep all places.
fn connections(access: Access) -> Connections {
    Connections::new(access, TIMEOUTS, usize::MAX, usize::MAX)
}

/// Which of these were evicted, in this order, when each could be.
fn all_go(
    connections: &Connections,
    mut evicted: Vec<(&'static str, oneshot::Receiver<()>)>,
) -> Vec<&'static str> {
    let later = Instant::now() + TIMEOUTS.answer - Duration::from_secs(1);
    let mut went = Vec::new();
    while connections.queue().evict(TIMEOUTS, Instant::now(), later) == Eviction::Done {
        let position = evicted.iter_mut().position(|(_, evicted)| evicted.try_recv().is_ok()).unwrap();
        went.push(evicted.remove(position).0);
    }
    went
}

#[test]
fn r6_10_who_does_nothing_gives_way_before_who_waits_for_something() {
    let connections = connections(Access::Public);
    let mut evicted = Vec::new();
    let mut enter = |name| {
        let (handle, evict) = connections.enter(None);
        evicted.push((name, evict));
        handle
    };
    let (known, stalled, takes, asks, idle) =
        (enter("known"), enter("stalled"), enter("takes"), enter("asks"), enter("idle"));
    let (_silent, _newer) = (enter("silent"), enter("newer"));
    let calls = [&known, &stalled, &takes, &asks, &idle].map(ConnectionHandle::begins);
    known.authenticated_as("a", 1);
    for answered in [&takes, &stalled] {
        answered.is_answered();
    }
    // A second after its answer began, whatever the clock's steps are.
    takes.flow.took.store(1_000_000, Ordering::Relaxed);
    let [known_call, stalled_call, takes_call, asks_call, idle_call] = calls;
    drop(idle_call);
    assert_eq!(all_go(&connections, evicted), ["silent", "newer", "idle", "asks", "stalled", "takes"]);
    assert_eq!(connections.queue().evict(TIMEOUTS, Instant::now(), Instant::now()), Eviction::None);
    drop((known_call, stalled_call, takes_call, asks_call));
    // With its request over the authenticated one can be evicted again; those that were evicted cannot.
    let eviction = connections.queue().evict(TIMEOUTS, Instant::now(), Instant::now());
    assert!(matches!(eviction, Eviction::At(_)), "{eviction:?}");
}

#[test]
fn r6_10_connections_are_left_some_time_and_longer_while_they_take_what_they_asked_for() {
    let connections = connections(Access::Public);
    let begin = Instant::now();
    let after =
        |seconds| connections.queue().evict(TIMEOUTS, Instant::now(), begin + Duration::from_secs(seconds));
    let (handle, _goes) = connections.enter(None);
    assert!(matches!(after(0), Eviction::At(at) if at >= begin + TIMEOUTS.silent));
    let call = handle.begins();
    assert!(matches!(after(1), Eviction::At(at) if at >= begin + TIMEOUTS.grace));
    handle.is_answered();
    assert!(matches!(after(9), Eviction::At(at) if at >= begin + TIMEOUTS.stall));
    // It takes something half a minute later, so it seems, and is evicted for its age all the same.
    handle.flow.took.store(30_000_000, Ordering::Relaxed);
    assert!(matches!(after(35), Eviction::At(at) if at >= begin + Duration::from_secs(39)));
    handle.flow.took.store(58_000_000, Ordering::Relaxed);
    assert!(matches!(after(59), Eviction::At(at) if at >= begin + TIMEOUTS.answer));
    assert_eq!(after(61), Eviction::Done);
    drop(call);
    assert_eq!(after(100), Eviction::None, "one that was evicted is not evicted again");
}

#[test]
fn r6_10_an_account_keeps_so_many_places_and_only_while_it_asks() {
    let connections = connections(Access::Public);
    let entered: Vec<_> = (0..4).map(|_| connections.enter(None)).collect();
    let calls: Vec<_> = entered.iter().map(|(handle, _)| handle.begins()).collect();
    let known = || entered.iter().map(|(handle, _)| connections.queue().all[&handle.number].queued.is_none());
    entered.iter().for_each(|(handle, _)| handle.authenticated_as("a", 2));
    assert_eq!(known().collect::<Vec<_>>(), [true, true, false, false]);
    // Another account's place is its own.
    entered[3].0.authenticated_as("b", 2);
    assert_eq!(known().collect::<Vec<_>>(), [true, true, false, true]);
    drop(calls);
    assert!(known().all(|known| !known));
    assert!(connections.queue().accounts.is_empty());
    entered.iter().for_each(|(handle, _)| handle.leaves());
    let queue = connections.queue();
    assert!(queue.all.is_empty() && queue.queues.iter().all(BTreeSet::is_empty));
    assert!([&queue.answered, &queue.idle, &queue.asking].into_iter().all(BTreeSet::is_empty));
}

#[test]
fn r6_10_at_the_fleets_port_who_asks_without_a_token_is_as_silent_as_before() {
    let connections = connections(AUTHENTICATED);
    let (handle, _goes) = connections.enter(None);
    let class = || connections.queue().all[&handle.number].queued.map(|(class, _)| class);
    let call = handle.begins();
    handle.is_answered();
    assert_eq!((class(), handle.was_authenticated()), (Some(EvictionClass::Silent), false));
    handle.authenticated_as("operator", 1);
    assert_eq!((class(), handle.was_authenticated()), (None, true));
    drop(call);
    assert_eq!((class(), handle.was_authenticated()), (Some(EvictionClass::Idle), true));
}

#[test]
fn r6_10_a_member_without_a_place_gives_way_soon_at_the_fleets_port_however_it_is_answered() {
    let connections = connections(AUTHENTICATED);
    let [(first, _a), (second, _b)] = [connections.enter(None), connections.enter(None)];
    let calls = [&first, &second].map(ConnectionHandle::begins);
    first.authenticated_as("a", 1);
    second.authenticated_as("a", 1);
    // Another request on it has an answer, as everybody's has.
    let other = second.begins();
    second.is_answered();
    let class = connections.queue().all[&second.number].queued.map(|(class, _)| class);
    assert_eq!(class, Some(EvictionClass::Authenticated));
    drop((calls, other));
}

#[test]
fn r6_10_one_member_keeps_an_eighth_of_the_places_at_most() {
    let connections = Connections::new(Access::Public, TIMEOUTS, 24, 24);
    let entered: Vec<_> = (0..5).map(|_| connections.enter(None)).collect();
    let _calls: Vec<_> = entered.iter().map(|(handle, _)| handle.begins()).collect();
    entered.iter().for_each(|(handle, _)| handle.authenticated_as("a", 32));
    let kept = connections.queue().all.values().filter(|connection| connection.queued.is_none()).count();
    assert_eq!(kept, 3);
}

/// A port with some connections, and when the last one had come.
fn askers() -> (Connections, Vec<(ConnectionHandle, oneshot::Receiver<()>)>, Instant) {
    let connections = connections(Access::Public);
    let entered = (0..3).map(|_| connections.enter(None)).collect();
    (connections, entered, Instant::now())
}

/// Each has an answer, and asks for the next thing: at once, or in a moment.
fn ask_again(
    connections: &Connections,
    entered: &[(ConnectionHandle, oneshot::Receiver<()>)],
    at_once: bool,
    now: Instant,
) {
    let mut queue = connections.queue();
    for (handle, _) in entered {
        if queue.all[&handle.number].calls == 0 {
            queue.begins(handle.number, true, now);
        }
        queue.is_answered(handle.number, true, now);
        queue.ends(handle.number, true, now);
        if at_once {
            queue.begins(handle.number, true, now);
        }
    }
}

#[test]
fn r6_10_nobody_stays_by_asking_again_and_again() {
    let (connections, entered, begin) = askers();
    let second = Duration::from_secs(1);
    for after in 0..60 {
        let now = begin + second * after;
        ask_again(&connections, &entered, false, now);
        let eviction = connections.queue().evict(TIMEOUTS, begin, now - second / 2);
        assert!(matches!(eviction, Eviction::At(at) if at > now - second), "{after}: {eviction:?}");
    }
    let now = begin + second * 60;
    ask_again(&connections, &entered, false, now);
    for gone in 0..3 {
        let now = now + TIMEOUTS.grace * gone;
        ask_again(&connections, &entered[gone as usize..], false, now);
        assert_eq!(connections.queue().evict(TIMEOUTS, now, now), Eviction::Done);
        let eviction = connections.queue().evict(TIMEOUTS, now, now);
        assert_eq!(matches!(eviction, Eviction::At(_)), gone < 2, "one after the other: {eviction:?}");
    }
    let went =
        entered.iter().filter(|(handle, _)| connections.queue().all[&handle.number].evict.is_none()).count();
    assert_eq!(went, entered.len());
}

#[test]
fn r6_10_nobody_stays_by_asking_for_the_next_thing_at_once() {
    let (connections, entered, begin) = askers();
    let second = Duration::from_secs(1);
    // Somebody comes in the sixtieth second, and waits.
    let comes = begin + second * 60;
    for after in 0..=61 {
        let now = begin + second * after;
        ask_again(&connections, &entered, true, now);
        let eviction = connections.queue().evict(TIMEOUTS, comes.min(now), now);
        assert!(matches!(eviction, Eviction::At(at) if at > now), "{after}: {eviction:?}");
    }
    // Silent ones make no difference, and one is evicted at a time.
    for after in [62, 64, 66] {
        let now = begin + second * after;
        ask_again(&connections, &entered[(after as usize - 62) / 2..], true, now);
        let (silent, _away) = connections.enter(None);
        connections.queue().requeue(silent.number, Some((EvictionClass::Silent, now)));
        assert_eq!(connections.queue().evict(TIMEOUTS, comes, now), Eviction::Done, "{after}");
        let eviction = connections.queue().evict(TIMEOUTS, comes, now);
        assert!(matches!(eviction, Eviction::At(at) if at > now), "{after}: {eviction:?}");
        silent.leaves();
    }
    assert!(entered.iter().all(|(handle, _)| connections.queue().all[&handle.number].evict.is_none()));
}

#[test]
fn r6_10_where_most_say_nothing_older_ones_do_not_go_for_them() {
    for (silent, evicted) in [(1, true), (3, false)] {
        let (connections, entered, begin) = askers();
        let now = begin + TIMEOUTS.answer;
        ask_again(&connections, &entered, false, now);
        let newer: Vec<_> = (0..silent).map(|_| connections.enter(None)).collect();
        for (handle, _) in &newer {
            connections.queue().requeue(handle.number, Some((EvictionClass::Silent, now)));
        }
        let known: Vec<_> = (0..9).map(|_| connections.enter(None)).collect();
        let _calls: Vec<_> = known.iter().map(|(handle, _)| handle.begins()).collect();
        known.iter().for_each(|(handle, _)| handle.authenticated_as("a", 9));
        let went = connections.queue().evict(TIMEOUTS, now, now) == Eviction::Done;
        assert_eq!(went, evicted, "{silent} beside {}", entered.len());
    }
}

#[test]
fn r6_10_no_age_is_too_high_for_an_answer_whose_last_part_is_not_sent_yet() {
    let (connections, entered, begin) = askers();
    let now = begin + TIMEOUTS.answer;
    ask_again(&connections, &entered, false, now);
    let old = &entered[0].0;
    // All of its answer is to be sent by now, so that its request is over. The kernel has taken some of it.
    connections.queue().begins(old.number, true, now);
    connections.queue().is_answered(old.number, true, now);
    old.flow.took.store(60_000_000, Ordering::Relaxed);
    old.flow.unsent.store(true, Ordering::Relaxed);
    connections.queue().ends(old.number, true, now);
    let eviction = |now| connections.queue().evict(TIMEOUTS, begin, now);
    let later = now + TIMEOUTS.grace;
    assert_eq!([eviction(now), eviction(later)], [Eviction::Done; 2]);
    let left = eviction(later);
    assert!(matches!(left, Eviction::At(at) if at > later), "{left:?}");
}

#[test]
fn r6_10_a_few_who_have_just_come_do_not_keep_those_who_take_nothing() {
    let connections = connections(Access::Public);
    let begin = Instant::now();
    let after =
        |seconds| connections.queue().evict(TIMEOUTS, Instant::now(), begin + Duration::from_secs(seconds));
    let (stalled, _silent) = ([connections.enter(None), connections.enter(None)], connections.enter(None));
    let calls = [&stalled[0].0, &stalled[1].0].map(ConnectionHandle::begins);
    for (handle, _) in &stalled {
        handle.is_answered();
    }
    let newest = connections.queue().next - 1;
    connections.queue().requeue(newest, Some((EvictionClass::Silent, begin + Duration::from_millis(10_500))));
    assert_eq!(after(11), Eviction::Done);
    stalled[0].0.leaves();
    // Half of all are silent by now: the next place comes from them.
    assert_eq!(after(11), Eviction::At(begin + Duration::from_millis(11_500)));
    drop(calls);
}

#[test]
fn r6_10_who_asks_beyond_his_places_is_not_idle_and_gets_the_next_one_of_them() {
    for access in [Access::Public, AUTHENTICATED] {
        let connections = connections(access);
        let queued = |handle: &ConnectionHandle| {
            connections.queue().all[&handle.number].queued.map(|(class, _)| class)
        };
        let [(first, _a), (second, _b), (other, _c)] =
            [connections.enter(None), connections.enter(None), connections.enter(None)];
        let ask = |handle: &ConnectionHandle, whose: &str| {
            let call = handle.begins();
            handle.authenticated_as(whose, 1);
            call
        };
        // It was authenticated before, and waited for its next request.
        drop(ask(&second, "a"));
        assert_eq!(queued(&second), Some(EvictionClass::Idle));
        let (call, _other_call) = (ask(&first, "a"), ask(&other, "b"));
        let waits = ask(&second, "a");
        assert!(queued(&second) > Some(EvictionClass::Idle), "{:?}", queued(&second));
        drop(call);
        assert_eq!((queued(&first), queued(&second)), (Some(EvictionClass::Idle), None));
        drop(waits);
        assert_eq!(queued(&second), Some(EvictionClass::Idle));
        first.leaves();
        second.leaves();
        other.leaves();
    }
}

#[test]
fn r6_10_who_asks_beyond_his_places_gives_way_after_strangers_who_ask() {
    let connections = connections(Access::Public);
    let [(connection, evict), (stranger, evicted)] = [connections.enter(None), connections.enter(None)];
    let _calls = [&connection, &stranger].map(ConnectionHandle::begins);
    connection.authenticated_as("a", 0);
    assert_eq!(
        all_go(&connections, vec![("connection", evict), ("stranger", evicted)]),
        ["stranger", "connection"]
    );
}

#[test]
fn r6_10_an_answer_is_over_when_its_last_byte_is_taken() {
    let connections = connections(Access::Public);
    let begin = Instant::now();
    let after =
        |seconds| connections.queue().evict(TIMEOUTS, Instant::now(), begin + Duration::from_secs(seconds));
    let (handle, _goes) = connections.enter(None);
    let call = handle.begins();
    handle.is_answered();
    handle.flow.unsent.store(true, Ordering::Relaxed);
    drop(call);
    // It is taken for idle, until it is looked at.
    assert!(matches!(after(1), Eviction::At(at) if at < begin + TIMEOUTS.stall));
    assert!(matches!(after(3), Eviction::At(at) if at >= begin + TIMEOUTS.stall));
    handle.flow.took.store(30_000_000, Ordering::Relaxed);
    assert!(matches!(after(32), Eviction::At(at) if at >= begin + Duration::from_secs(39)));
    handle.flow.unsent.store(false, Ordering::Relaxed);
    assert_eq!(after(33), Eviction::Done);
}

#[test]
fn r6_10_an_answer_that_waits_to_be_sent_for_too_long_gives_way() {
    for (took, evicted) in [(0, TIMEOUTS.stall), (59, TIMEOUTS.answer)] {
        let connections = connections(AUTHENTICATED);
        let begin = Instant::now();
        let (handle, _goes) = connections.enter(None);
        let call = handle.begins();
        handle.authenticated_as("a", 1);
        handle.is_answered();
        handle.flow.unsent.store(true, Ordering::Relaxed);
        drop(call);
        handle.flow.took.store(took * 1_000_000, Ordering::Relaxed);
        let after = |time| connections.queue().evict(TIMEOUTS, Instant::now(), begin + time);
        assert!(matches!(after(evicted - Duration::from_secs(1)), Eviction::At(_)), "{took}");
        assert_eq!(after(evicted + Duration::from_secs(1)), Eviction::Done, "{took}");
    }
}

#[test]
fn r6_10_members_leave_places_to_operators_and_take_those_that_are_free_again() {
    let connections = Connections::new(AUTHENTICATED, TIMEOUTS, 24, 2);
    let entered: Vec<_> = (0..5).map(|_| connections.enter(None)).collect();
    let mut calls: Vec<_> = entered.iter().map(|(handle, _)| Some(handle.begins())).collect();
    let is_crowded = |eviction| connections.queue().is_crowded(eviction);
    let known = || -> Vec<_> {
        entered.iter().map(|(handle, _)| connections.queue().all[&handle.number].queued.is_none()).collect()
    };
    for (connection, whose) in [(0, "a"), (1, "b")] {
        entered[connection].0.authenticated_as(whose, 1);
    }
    assert!(!is_crowded(Eviction::Done));
    for (connection, whose) in [(2, "c"), (3, "a")] {
        entered[connection].0.authenticated_as(whose, 1);
    }
    entered[4].0.authenticated_as_operator("operator", 1);
    assert_eq!(known(), [true, true, false, false, true]);
    assert!(is_crowded(Eviction::Done), "`c` would have a place");
    calls[0] = None;
    // The other one of `a` comes after whoever was there before.
    assert_eq!(known(), [false, true, true, false, true]);
    calls[1] = None;
    assert_eq!(known(), [false, false, true, true, true]);
    assert!(!is_crowded(Eviction::Done));
    calls.clear();
    let queue = connections.queue();
    assert!(queue.accounts.is_empty() && queue.unplaced.is_empty());
}

#[test]
fn r6_10_it_is_said_when_all_who_are_there_are_known() {
    let connections = connections(Access::Public);
    let is_crowded = || {
        let mut queue = connections.queue();
        let eviction = queue.evict(TIMEOUTS, Instant::now(), Instant::now());
        (eviction == Eviction::None, queue.is_crowded(eviction))
    };
    // There is no place that a newcomer could get: descriptors are all in use elsewhere.
    assert_eq!(is_crowded(), (true, false));
    let (handle, _goes) = connections.enter(None);
    assert_eq!(is_crowded(), (false, false));
    let call = handle.begins();
    handle.authenticated_as("a", 1);
    assert_eq!(is_crowded(), (true, true));
    drop(call);
}

/// A port of forty places: one address may have ten connections that say nothing.
fn forty() -> Connections {
    Connections::new(AUTHENTICATED, TIMEOUTS, 40, 32)
}

fn many(
    connections: &Connections,
    from: &str,
    count: usize,
) -> Vec<(ConnectionHandle, oneshot::Receiver<()>)> {
    (0..count).map(|_| connections.enter(Some(from.parse().unwrap()))).collect()
}

/// How many of these were evicted.
fn gone(entered: &mut [(ConnectionHandle, oneshot::Receiver<()>)]) -> usize {
    entered.iter_mut().filter_map(|(_, evicted)| evicted.try_recv().ok()).count()
}

#[test]
fn r6_10_one_address_that_floods_a_port_gives_way_at_once_and_others_that_say_nothing_stay() {
    let connections = forty();
    let mut older = many(&connections, "10.0.0.1", 5);
    let mut flood = many(&connections, "10.0.0.2", 35);
    let now = Instant::now();
    // All are young: nobody else would have to go yet.
    for _ in 0..25 {
        assert_eq!(connections.queue().evict(TIMEOUTS, now, now), Eviction::Done);
    }
    assert_eq!((gone(&mut flood), gone(&mut older)), (25, 0));
    assert!(matches!(connections.queue().evict(TIMEOUTS, now, now), Eviction::At(at) if at > now));
    // Nor do others go for it when they may: it has most.
    let later = Instant::now() + TIMEOUTS.silent;
    for _ in 0..5 {
        assert_eq!(connections.queue().evict(TIMEOUTS, now, later), Eviction::Done);
    }
    assert_eq!((gone(&mut flood), gone(&mut older)), (5, 0));
}

#[test]
fn r6_10_an_address_keeps_a_quarter_of_the_places_by_saying_nothing_though_others_are_free() {
    let connections = forty();
    let mut flood = many(&connections, "2001:db8::1", 20);
    let source = Source::of("2001:db8::2".parse().unwrap());
    connections.queue().thin_out(source, TIMEOUTS, Instant::now());
    assert_eq!(gone(&mut flood), 0, "each is left some time first");
    connections.queue().thin_out(source, TIMEOUTS, Instant::now() + TIMEOUTS.silent);
    assert_eq!(gone(&mut flood), 11, "ten with the one that comes");
}

#[test]
fn r6_10_an_address_may_have_any_number_of_connections_that_are_authenticated() {
    let connections = forty();
    let mut laboratory = many(&connections, "10.0.0.1", 30);
    let _calls: Vec<_> = laboratory
        .iter()
        .enumerate()
        .map(|(host, (handle, _))| {
            let call = handle.begins();
            handle.authenticated_as(&format!("host {host}"), 1);
            call
        })
        .collect();
    let mut flood = many(&connections, "10.0.0.1", 10);
    let later = Instant::now() + TIMEOUTS.silent;
    let newcomer = connections.enter(Some("10.0.0.1".parse().unwrap()));
    connections.queue().thin_out(Source::of("10.0.0.1".parse().unwrap()), TIMEOUTS, later);
    assert_eq!((gone(&mut laboratory), gone(&mut flood)), (0, 2));
    laboratory.into_iter().chain(flood).for_each(|(handle, _)| handle.leaves());
    newcomer.0.leaves();
    assert!(connections.queue().silent.is_empty());
}
