//! R1.3, R1.4, R1.6, R1.12.

use fallow_domain::{Duration, Instant};
use fallow_policy::rpc_timing::{
    BACKOFF, MasterPage, PageReason, REQUEST_DELAY_MAX, RequestedBy, RpcState, WhyDeferred,
};
use proptest::prelude::*;
use rand::SeedableRng;
use rand_pcg::Pcg64;

use crate::world::at_min;

fn rng() -> Pcg64 {
    Pcg64::seed_from_u64(7)
}

fn cause(state: &RpcState, now: Instant) -> Option<WhyDeferred> {
    state.min_rpc_time(now, RequestedBy::Client).map(|not_before| not_before.cause)
}

#[test]
fn r1_3_of_several_causes_the_latest_time_wins() {
    let (mut state, now) = (RpcState::default(), at_min(0));
    assert_eq!(state.min_rpc_time(now, RequestedBy::Client), None);
    state.on_failure(now, &mut rng());
    assert_eq!(cause(&state, now), Some(WhyDeferred::SchedulerFailures(1)));
    state.on_request_delay(now, Duration::from_mins(3));
    assert_eq!(cause(&state, now), Some(WhyDeferred::RequestDelay));
    for _ in 0..5 {
        state.on_job_failure(now, &mut rng());
    }
    assert_eq!(cause(&state, now), Some(WhyDeferred::JobFailures(5)));
    assert_eq!(state.min_rpc_time(at_min(17), RequestedBy::Client), None);
}

#[test]
fn r5_35_a_project_is_known_to_be_down_until_it_answers_or_has_not_been_asked_for_hours() {
    let (mut state, now) = (RpcState::default(), at_min(0));
    assert!(!state.is_down(now));
    state.on_failure(now, &mut rng());
    assert!(state.is_down(at_min(239)) && !state.is_down(at_min(240)));
    let mut answers = state.clone();
    answers.on_success();
    assert!(!answers.is_down(at_min(1)));
    // It wants no contact for a day, as during maintenance.
    state.on_request_delay(now, Duration::from_hours(24));
    assert!(state.is_down(at_min(24 * 60 - 1)) && !state.is_down(at_min(24 * 60)));
    answers.on_request_delay(now, Duration::from_hours(24));
    assert!(answers.must_wait(at_min(1)) && !answers.is_down(at_min(1)));
}

#[test]
fn r1_4_the_owner_overrides_every_wait_and_the_coordinator_all_but_a_request_delay() {
    let now = at_min(0);
    let failing = |state: &mut RpcState| {
        state.on_failure(now, &mut rng());
    };
    let crashing = |state: &mut RpcState| {
        state.on_job_failure(now, &mut rng());
    };
    let delayed = |state: &mut RpcState| state.on_request_delay(now, Duration::from_hours(1));
    let all = |state: &mut RpcState| {
        failing(state);
        crashing(state);
        delayed(state);
    };
    type Hold<'a> = &'a dyn Fn(&mut RpcState);
    let holds: [(Hold<'_>, [bool; 3], usize); 5] = [
        // What holds; for the client itself, the coordinator, the owner; how many causes that is
        (&|_| {}, [false, false, false], 0),
        (&failing, [true, false, false], 1),
        (&crashing, [true, false, false], 1),
        (&delayed, [true, true, false], 1),
        (&all, [true, true, false], 3),
    ];
    for (case, (hold, expected, causes)) in holds.into_iter().enumerate() {
        let mut state = RpcState::default();
        hold(&mut state);
        let held = [RequestedBy::Client, RequestedBy::Fleet, RequestedBy::Owner]
            .map(|requested_by| state.min_rpc_time(now, requested_by).is_some());
        assert_eq!((held, state.held_by(now).len()), (expected, causes), "case {case}");
    }
}

#[test]
fn r1_4_the_owner_has_a_page_read_at_once_that_could_not_be_read() {
    let (mut state, now) = (RpcState::attached(), at_min(0));
    state.on_master_page(now, MasterPage::Unreadable, false, &mut rng());
    assert_eq!(state.master_page_due(now), None);
    state.on_owner_request();
    assert!(state.master_page_due(now).is_some());
}

#[test]
fn r1_5_an_answer_clears_the_failures_of_schedulers_only() {
    let (mut state, now) = (RpcState::default(), at_min(0));
    state.on_failure(now, &mut rng());
    state.on_job_failure(now, &mut rng());
    state.on_success();
    assert_eq!(state.clone().on_failure(now, &mut rng()).failures, 1, "counted anew");
    assert_eq!(cause(&state, now), Some(WhyDeferred::JobFailures(1)));
    state.on_job_success();
    assert_eq!(cause(&state, now), None);
}

#[test]
fn r1_6_every_tenth_failure_in_a_row_marks_the_master_page() {
    let (mut state, now, mut rng) = (RpcState::default(), at_min(0), rng());
    for n in 1..=30 {
        let failure = state.on_failure(now, &mut rng);
        assert_eq!((failure.failures, failure.reread_master_page), (n, n % 10 == 0));
        if n % 10 == 0 {
            assert_eq!(state.master_page_due(now), Some(PageReason::Failures(n)));
            assert!(state.on_master_page(now, MasterPage::KnownSchedulers, true, &mut rng).is_none());
        }
        assert_eq!(state.master_page_due(now), None);
    }
}

#[test]
fn r1_6_the_page_is_due_at_attach_and_stays_due_while_there_is_nobody_to_ask() {
    let (mut state, now, mut rng) = (RpcState::attached(), at_min(0), rng());
    assert_eq!(state.master_page_due(now), Some(PageReason::Attached));
    let failure = state.on_master_page(now, MasterPage::Unreadable, false, &mut rng).unwrap();
    assert_eq!(failure.failures, 1);
    assert_eq!(state.master_page_due(now), None);
    assert_eq!(state.master_page_due_at(now), Some(now + failure.wait));
    assert_eq!(state.master_page_due(at_min(1)), Some(PageReason::Attached));
    state.on_master_page(at_min(1), MasterPage::NewScheduler, true, &mut rng);
    assert_eq!(state.master_page_due_at(at_min(1)), None);
}

#[test]
fn r1_6_a_new_scheduler_clears_count_and_backoffs_but_never_a_request_delay() {
    let (mut state, now, mut rng) = (RpcState::default(), at_min(0), rng());
    state.on_failure(now, &mut rng);
    state.on_job_failure(now, &mut rng);
    state.on_request_delay(now, Duration::from_secs(5));
    state.on_master_page(now, MasterPage::NewScheduler, true, &mut rng);
    assert_eq!(state.clone().on_failure(now, &mut rng).failures, 1, "counted anew");
    assert_eq!(cause(&state, now), Some(WhyDeferred::RequestDelay));
    assert_eq!(cause(&state, at_min(1)), None);
}

#[test]
fn r1_6_an_unreadable_page_counts_as_a_failure_and_one_without_schedulers_changes_nothing() {
    let (mut state, now, mut rng) = (RpcState::default(), at_min(0), rng());
    state.on_failure(now, &mut rng);
    let before = state.clone();
    assert_eq!(state.on_master_page(now, MasterPage::NoSchedulers, true, &mut rng), None);
    assert_eq!(state.min_rpc_time(now, RequestedBy::Client), before.min_rpc_time(now, RequestedBy::Client));
    assert_eq!(cause(&state, now), Some(WhyDeferred::SchedulerFailures(1)));
    let failure = state.on_master_page(now, MasterPage::Unreadable, true, &mut rng).unwrap();
    assert_eq!(failure.failures, 2);
}

#[test]
fn a_reply_without_work_holds_back_requests_for_work_but_not_reports() {
    let (mut state, now, mut rng) = (RpcState::default(), at_min(0), rng());
    let wait = state.on_work_reply(now, 0, &mut rng).unwrap();
    assert!(wait >= Duration::from_secs(30) && wait <= Duration::from_secs(60));
    assert_eq!(state.min_rpc_time(now, RequestedBy::Client), None);
    assert_eq!(state.min_work_time(now).unwrap().cause, WhyDeferred::NoWork(1));
    assert_eq!(state.on_work_reply(now, 3, &mut rng), None);
    assert_eq!(state.min_work_time(now), None);
}

#[test]
fn r1_12_the_state_survives_being_stored() {
    let (mut state, now, mut rng) = (RpcState::attached(), at_min(0), rng());
    state.on_failure(now, &mut rng);
    state.on_request_delay(now, Duration::from_secs(90));
    let stored = serde_json::to_string(&state).unwrap();
    assert_eq!(serde_json::from_str::<RpcState>(&stored).unwrap(), state);
}

proptest! {
    #[test]
    fn r1_12_no_wait_is_longer_than_its_maximum_under_any_clock_jump(
        events in prop::collection::vec((0_u8..6, -1e9..1e9_f64), 1..60), seed in any::<u64>(),
    ) {
        let mut rng = Pcg64::seed_from_u64(seed);
        let (mut state, mut now) = (RpcState::attached(), at_min(0));
        let mut delayed = false;
        for (event, jump) in events {
            match event {
                0 => { state.on_failure(now, &mut rng); }
                1 => { state.on_job_failure(now, &mut rng); }
                2 => { state.on_work_reply(now, 0, &mut rng); }
                3 => { state.on_request_delay(now, Duration::MAX); delayed = true; }
                4 => { state.on_master_page(now, MasterPage::Unreadable, false, &mut rng); }
                _ => state.on_success(),
            }
            now = now + Duration::from_secs_f64(jump);
            let max = if delayed { REQUEST_DELAY_MAX } else { BACKOFF.max };
            for not_before in [state.min_rpc_time(now, RequestedBy::Client), state.min_work_time(now)].into_iter().flatten() {
                prop_assert!(not_before.at - now <= max);
            }
            state.observe(now);
            let later = now + max;
            prop_assert_eq!(state.min_rpc_time(later, RequestedBy::Client), None);
            prop_assert_eq!(state.min_work_time(later), None);
            prop_assert!(state.master_page_due_at(later).is_none_or(|at| at <= later));
        }
    }
}
