use std::num::NonZeroU32;

use fallow_policy::transfer_backoff::TransferBackoff;
use proptest::prelude::*;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

use super::*;

fn t0() -> Instant {
    Instant::from_secs_f64(1.8e9)
}

fn key(project: u32, name: &str) -> FileKey {
    FileKey { project: ProjectId(project), name: name.to_owned() }
}

fn rank(purpose: Use, hours: i64, job: u64) -> Rank {
    Rank { purpose, deadline: t0() + Duration::from_hours(hours), left: Duration::ZERO, job: JobId(job) }
}

fn fresh() -> Transfer {
    Transfer {
        direction: Direction::Download,
        url_index: 0,
        backoff: TransferBackoff::new(t0()),
        active: false,
    }
}

fn failed(at: Instant) -> Transfer {
    let mut transfer = fresh();
    transfer.backoff.on_failure(at, &mut Pcg64Mcg::seed_from_u64(1));
    transfer
}

/// Begins whatever may begin, and says what.
fn begin(transfers: &mut Transfers, now: Instant) -> Vec<String> {
    let mut begun = Vec::new();
    transfers.of(Direction::Download).wake(now);
    while let Some((key, rank)) = transfers.of(Direction::Download).next(now, |_| false) {
        let before = if key.name.starts_with("failed") { failed(t0()) } else { fresh() };
        transfers.place(&key, Some(&Transfer { active: true, ..before }), Some(rank), now);
        begun.push(key.name);
    }
    begun
}

fn end(transfers: &mut Transfers, key: &FileKey, now: Instant) {
    transfers.place(key, None, None, now);
}

#[test]
fn files_begin_by_what_they_are_for_then_by_their_jobs() {
    let mut transfers = Transfers::default();
    for (name, rank) in [
        ("a_late_input", rank(Use::Job, 9, 1)),
        ("b_nobodys", Rank::LAST),
        ("c_second_application", rank(Use::Application, 9, 1)),
        ("d_urgent_input", rank(Use::Job, 2, 7)),
        ("e_first_application", rank(Use::Application, 2, 7)),
    ] {
        transfers.place(&key(1, name), Some(&fresh()), Some(rank), t0());
    }
    // A job that came later is due first of all.
    transfers.hasten(&key(1, "a_late_input"), rank(Use::Job, 1, 9));
    transfers.hasten(&key(1, "d_urgent_input"), rank(Use::Job, 5, 10));
    let mut order = Vec::new();
    loop {
        let begun = begin(&mut transfers, t0());
        let Some(last) = begun.last().cloned() else { break };
        order.extend(begun);
        end(&mut transfers, &key(1, &last), t0());
    }
    let expected =
        ["e_first_application", "c_second_application", "a_late_input", "d_urgent_input", "b_nobodys"];
    assert_eq!(order, expected);
}

#[test]
fn of_a_projects_two_places_one_is_for_files_that_failed_before() {
    let now = t0() + Duration::from_hours(7);
    let mut transfers = Transfers::default();
    for n in 0..3 {
        transfers.place(&key(1, &format!("fresh{n}")), Some(&fresh()), Some(Rank::LAST), now);
        transfers.place(&key(1, &format!("failed{n}")), Some(&failed(t0())), Some(Rank::LAST), now);
    }
    assert_eq!(begin(&mut transfers, now), ["fresh0", "failed0"]);
    end(&mut transfers, &key(1, "fresh0"), now);
    assert_eq!(begin(&mut transfers, now), ["fresh1"]);
    end(&mut transfers, &key(1, "failed0"), now);
    assert_eq!(begin(&mut transfers, now), ["failed1"]);
}

#[test]
fn one_that_failed_waits_and_is_not_looked_at_before() {
    let mut transfers = Transfers::default();
    transfers.place(&key(1, "f"), Some(&failed(t0())), Some(Rank::LAST), t0());
    assert!(begin(&mut transfers, t0()).is_empty());
    let at = transfers.next_wake_up(t0(), |_, _| t0()).unwrap();
    assert!(at >= t0() + Duration::from_secs(120) && at <= t0() + Duration::from_secs(240), "{at:?}");
    assert_eq!(
        transfers.next_wake_up(t0(), |_, _| t0() + Duration::from_hours(1)),
        Some(t0() + Duration::from_hours(1))
    );
    assert_eq!(begin(&mut transfers, at), ["f"]);
}

#[test]
fn places_beside_the_eight_are_given_out_when_none_became_free_for_minutes() {
    let mut transfers = Transfers::default();
    for project in 1..=5 {
        for n in 0..4 {
            transfers.place(&key(project, &format!("{project}{n}")), Some(&fresh()), Some(Rank::LAST), t0());
        }
    }
    assert_eq!(begin(&mut transfers, t0()).len(), Places::default().all);
    // Turns are taken: the fifth project had one of the eight, and when that is over it is the fourth's turn.
    end(&mut transfers, &key(5, "50"), t0());
    for n in 0..4 {
        transfers.place(&key(6, &format!("6{n}")), Some(&fresh()), Some(Rank::LAST), t0());
    }
    assert_eq!(begin(&mut transfers, t0()), ["41"]);
    let at = transfers.next_wake_up(t0(), |_, _| t0()).unwrap();
    assert_eq!(at, t0() + STUCK);
    assert!(begin(&mut transfers, t0() + Duration::from_mins(4)).is_empty());
    assert_eq!(begin(&mut transfers, at), ["51", "60"]);
    assert_eq!(transfers.next_wake_up(at, |_, _| at), None);
}

fn places(all: u32, of_project: u32) -> Places {
    let [files_at_once, files_at_once_of_project] =
        [all, of_project].map(|count| NonZeroU32::new(count).unwrap());
    Places::under(&LocalPreferences {
        files_at_once,
        files_at_once_of_project,
        ..LocalPreferences::default()
    })
}

#[test]
fn r6_4_no_preferences_have_more_files_go_at_once_than_usual() {
    assert_eq!(places(50, 3), Places::default());
    assert_eq!(places(50, 1), Places { of_project: 1, ..Places::default() });
    assert_eq!(places(4, 3), Places { all: 4, with_beside: 4, ..Places::default() });
}

#[test]
fn r6_4_an_owner_who_says_how_many_files_go_at_once_gets_none_beside_and_what_is_under_way_ends_first() {
    let mut transfers = Transfers::default();
    for project in 1..=3 {
        for n in 0..4 {
            transfers.place(&key(project, &format!("{project}{n}")), Some(&fresh()), Some(Rank::LAST), t0());
        }
    }
    transfers.set_places(places(2, 1), t0());
    assert_eq!(begin(&mut transfers, t0()), ["10", "20"]);
    let later = t0() + STUCK * 2;
    assert_eq!(transfers.next_wake_up(t0(), |_, _| t0()), None);
    assert_eq!(begin(&mut transfers, later), Vec::<String>::new());
    transfers.set_places(places(1, 1), later);
    end(&mut transfers, &key(1, "10"), later);
    assert_eq!(begin(&mut transfers, later), Vec::<String>::new());
    end(&mut transfers, &key(2, "20"), later);
    assert_eq!(begin(&mut transfers, later), ["30"]);
    transfers.set_places(Places::default(), later);
    assert_eq!(begin(&mut transfers, later).len(), 5, "two of each project");
}

proptest! {
    #[test]
    fn places_are_kept_and_no_project_with_room_is_passed_over(
        steps in prop::collection::vec((1_u32..6, 0_u32..30, any::<bool>(), 0_i64..50), 1..200),
        (all, of_project) in (1_u32..=8, 1_u32..=2),
    ) {
        let mut transfers = Transfers::default();
        let places = places(all, of_project);
        transfers.set_places(places, t0());
        let mut active: Vec<FileKey> = Vec::new();
        let mut waiting: BTreeSet<FileKey> = BTreeSet::new();
        for (project, number, ends, hours) in steps {
            let key = key(project, &number.to_string());
            if ends && !active.is_empty() {
                let gone = active.remove(number as usize % active.len());
                end(&mut transfers, &gone, t0());
            } else if !active.contains(&key) {
                transfers.place(&key, Some(&fresh()), Some(rank(Use::Job, hours, 1)), t0());
                waiting.insert(key);
            }
            while let Some((key, _)) = transfers.of(Direction::Download).next(t0(), |_| false) {
                transfers.place(&key, Some(&Transfer { active: true, ..fresh() }), None, t0());
                prop_assert!(waiting.remove(&key));
                active.push(key);
            }
            let of = |project: ProjectId| active.iter().filter(|key| key.project == project).count();
            prop_assert!(active.len() <= places.all);
            prop_assert!(active.iter().all(|key| of(key.project) <= places.of_project));
            // Work conserving: with a place free, whoever waits has both of its own.
            if active.len() < places.all {
                prop_assert!(waiting.iter().all(|key| of(key.project) == places.of_project));
            }
        }
    }
}

#[test]
fn r6_4_a_transfer_could_begin_if_it_waits_for_no_time_and_its_project_is_not_held_back() {
    let later = t0() + Duration::from_hours(7);
    for (transfer, now, held, expected) in [
        (Some(fresh()), t0(), true, true),
        (Some(failed(t0())), t0(), false, false),
        (Some(failed(t0())), later, false, true),
        (Some(failed(t0())), later, true, false),
        (Some(Transfer { active: true, ..fresh() }), t0(), false, false),
        (None, t0(), false, false),
    ] {
        let mut transfers = Transfers::default();
        transfers.place(&key(1, "file"), transfer.as_ref(), None, t0());
        let is_ready = |transfers: &Transfers| transfers.any_ready(Direction::Download, now, |_| held);
        assert_eq!(is_ready(&transfers), expected, "{transfer:?} {held}");
        // By the time when it was looked last as well.
        transfers.of(Direction::Download).wake(now);
        assert_eq!(is_ready(&transfers), expected, "{transfer:?} {held}");
        assert!(!transfers.any_ready(Direction::Upload, now, |_| false));
        assert_eq!(transfers.any_active(), transfer.is_some_and(|transfer| transfer.active));
    }
}
