//! R1.5, R1.7, R1.9, R1.10.

use fallow_domain::{Duration, Instant, ProjectId, ResourceType};
use fallow_policy::fetch::WorkRequest;
use fallow_policy::report_due::WhyDue;
use fallow_policy::rpc_session::{
    ASKS_PER_SESSION_MAX, AfterRpcFailure, BESIDE_AFTER, Candidate, HANGS_AFTER, IN_FLIGHT_MAX, SchedulerRpc,
    Sessions, WhyRpc,
};
use proptest::prelude::*;

const NOW: Instant = Instant::from_micros(1_800_000_000_000_000);

fn hours(hours: i64) -> WorkRequest {
    WorkRequest::cpu(Duration::from_hours(hours), 0.0)
}

/// A project that has enough work and nothing to report.
fn content(id: u32) -> Candidate {
    Candidate {
        project: ProjectId(id),
        schedulers: 2,
        may_ask: true,
        may_fetch: true,
        request: WorkRequest::default(),
        piggyback: hours(1),
        due: None,
        requested: false,
        by_owner: None,
    }
}
fn hungry(id: u32) -> Candidate {
    Candidate { request: hours(2), piggyback: hours(2), ..content(id) }
}
fn due(id: u32) -> Candidate {
    Candidate { due: Some(WhyDue::Waited), ..content(id) }
}
fn asked(ask: Option<SchedulerRpc>) -> Option<(u32, usize, i64)> {
    ask.map(|ask| {
        (ask.project.0, ask.scheduler, (ask.work.seconds[ResourceType::Cpu].get() / 3_600.0) as i64)
    })
}

#[test]
fn r1_5_a_get_work_session_asks_in_order_of_debt_and_each_project_once_if_it_sends_nothing() {
    let mut sessions = Sessions::default();
    let blocked = Candidate { may_ask: false, ..hungry(3) };
    let candidates = [blocked, hungry(2), content(4), hungry(1)];
    let first = sessions.poll(&candidates, NOW).unwrap();
    assert_eq!((first.project, first.reason), (ProjectId(2), WhyRpc::NeedsWork { rank: 2 }));
    assert_eq!(sessions.poll(&candidates, NOW), None, "one request for work at a time");
    sessions.answered(ProjectId(2), 0);
    assert_eq!(asked(sessions.poll(&candidates, NOW)), Some((1, 0, 2)));
    sessions.answered(ProjectId(1), 5);
    assert_eq!(asked(sessions.poll(&candidates, NOW)), Some((1, 0, 2)), "it sent some and may have more");
    sessions.answered(ProjectId(1), 0);
    // The session is over. A new one may ask both again, unless their waits for work hold.
    let waiting = candidates.map(|c| Candidate { may_fetch: false, ..c });
    assert_eq!(sessions.poll(&waiting, NOW), None);
}

#[test]
fn r1_5_schedulers_are_tried_in_order_until_one_answers() {
    let mut sessions = Sessions::default();
    let candidates = [hungry(1), hungry(2)];
    assert_eq!(asked(sessions.poll(&candidates, NOW)), Some((1, 0, 2)));
    let Some(AfterRpcFailure::NextScheduler(next)) = sessions.failed(ProjectId(1)) else { panic!() };
    assert_eq!((next.project, next.scheduler), (ProjectId(1), 1));
    assert_eq!(sessions.failed(ProjectId(1)), Some(AfterRpcFailure::AllFailed));
    assert_eq!(asked(sessions.poll(&candidates, NOW)), Some((2, 0, 2)), "not again the one that failed");
}

#[test]
fn r1_7_a_report_session_asks_one_project() {
    let mut sessions = Sessions::default();
    let candidates = [content(1), due(2)];
    let ask = sessions.poll(&candidates, NOW).unwrap();
    assert_eq!(
        (ask.project, ask.work, ask.reason),
        (ProjectId(2), WorkRequest::default(), WhyRpc::Due(WhyDue::Waited))
    );
    sessions.answered(ProjectId(2), 0);
    assert_eq!(sessions.poll(&[content(1), content(2)], NOW), None);
}

#[test]
fn r1_9_work_is_fetched_before_reports_and_rides_along_for_the_project_owed_most() {
    let mut sessions = Sessions::default();
    assert_eq!(asked(sessions.poll(&[due(1), hungry(2)], NOW)), Some((2, 0, 2)));
    let mut sessions = Sessions::default();
    assert_eq!(asked(sessions.poll(&[due(1), content(2)], NOW)), Some((1, 0, 1)));
    let mut sessions = Sessions::default();
    assert_eq!(asked(sessions.poll(&[Candidate { may_fetch: false, ..due(1) }], NOW)), Some((1, 0, 0)));
    let mut sessions = Sessions::default();
    let nobody = Candidate { may_ask: false, ..hungry(2) };
    assert_eq!(
        asked(sessions.poll(&[nobody, due(1)], NOW)),
        Some((1, 0, 0)),
        "no project with needs may be asked"
    );
}

#[test]
fn r1_8_a_near_deadline_is_reported_before_a_job_that_waited() {
    let urgent = Candidate { due: Some(WhyDue::DeadlineNear), ..content(2) };
    assert_eq!(asked(Sessions::default().poll(&[due(1), urgent], NOW)), Some((2, 0, 0)));
}

#[test]
fn r1_4_a_requested_rpc_goes_first() {
    let requested = Candidate { requested: true, ..content(2) };
    let ask = Sessions::default().poll(&[hungry(1), requested], NOW).unwrap();
    assert_eq!((ask.project, ask.reason), (ProjectId(2), WhyRpc::Requested));
}

#[test]
fn a_project_without_schedulers_is_not_asked() {
    let lost = Candidate { schedulers: 0, due: Some(WhyDue::AtOnce), requested: true, ..hungry(1) };
    assert_eq!(Sessions::default().poll(&[lost], NOW), None);
}

#[test]
fn an_answer_from_a_project_that_was_not_asked_is_ignored() {
    let mut sessions = Sessions::default();
    sessions.poll(&[hungry(1)], NOW);
    sessions.answered(ProjectId(9), 1);
    assert_eq!(sessions.failed(ProjectId(9)), None);
    assert!(sessions.in_flight(ProjectId(1)).is_some());
    sessions.abandon(ProjectId(1));
    assert!(!sessions.any_in_flight());
}

/// One second later than the RPCs so far: they have not only just begun.
fn later(now: Instant) -> Instant {
    now + BESIDE_AFTER
}

#[test]
fn r1_10_reports_and_requests_go_beside_a_request_for_work_and_no_second_one_does() {
    let requested = |id| Candidate { requested: true, ..content(id) };
    let reports = Candidate { may_fetch: false, ..due(3) };
    let table = [
        // What else there is; what goes beside a request for work to project 1, for how many hours of work
        (hungry(2), None),
        (content(2), None),
        (due(2), Some((2, 0, 0))),
        (requested(2), Some((2, 0, 0))),
        (Candidate { requested: true, ..hungry(2) }, Some((2, 0, 0))),
        (Candidate { due: Some(WhyDue::AtOnce), ..hungry(2) }, Some((2, 0, 0))),
        (Candidate { may_ask: false, ..due(2) }, None),
        (reports, Some((3, 0, 0))),
    ];
    for (other, expected) in table {
        let mut sessions = Sessions::default();
        assert_eq!(asked(sessions.poll(&[hungry(1)], NOW)), Some((1, 0, 2)));
        assert_eq!(sessions.poll(&[hungry(1), other], NOW), None, "an answer may come at once");
        assert_eq!(asked(sessions.poll(&[hungry(1), other], later(NOW))), expected, "{other:?}");
    }
}

#[test]
fn r1_4_what_the_owner_asks_for_comes_before_a_session_and_asks_for_work_where_something_idles() {
    for (least, expected) in [(hours(3), 3), (WorkRequest::default(), 0)] {
        let owners = Candidate { requested: true, by_owner: Some(least), may_fetch: false, ..content(9) };
        let candidates = [hungry(1), hungry(2), owners];
        let mut sessions = Sessions::default();
        assert_eq!(asked(sessions.poll(&[hungry(1), hungry(2)], NOW)), Some((1, 0, 2)));
        // The first one's answer is awaited; then it has answered, and the session would go on.
        let mut answered = sessions.clone();
        assert_eq!(asked(sessions.poll(&candidates, later(NOW))), Some((9, 0, expected)));
        answered.answered(ProjectId(1), 0);
        assert_eq!(asked(answered.poll(&candidates, later(NOW))).map(|(id, ..)| id), Some(9));
        answered.answered(ProjectId(9), 0);
        let others = answered.poll(&candidates[..2], later(NOW)).unwrap();
        assert_eq!(others.project, ProjectId(2), "the session goes on where it was");
    }
}

#[test]
fn r1_10_a_project_that_hung_is_known_as_such_until_it_answers() {
    let mut sessions = Sessions::default();
    let (one, hangs) = (ProjectId(1), NOW + HANGS_AFTER);
    sessions.poll(&[hungry(1)], NOW);
    assert!(!sessions.has_hung(one));
    sessions.observe(hangs);
    assert!(sessions.has_hung(one));
    sessions.abandon(one);
    assert!(sessions.has_hung(one), "it was given up, and has not answered");
    sessions.poll(&[hungry(1)], hangs);
    sessions.answered(one, 0);
    assert!(!sessions.has_hung(one));
}

#[test]
fn r1_10_that_a_project_hung_is_forgotten_after_an_hour() {
    let mut sessions = Sessions::default();
    let (one, hangs) = (ProjectId(1), NOW + HANGS_AFTER);
    let hour = Duration::from_hours(1);
    sessions.poll(&[hungry(1)], NOW);
    sessions.observe(hangs);
    sessions.abandon(one);
    sessions.observe(hangs + hour - Duration::from_secs(1));
    assert!(sessions.has_hung(one));
    sessions.observe(hangs + hour);
    assert!(!sessions.has_hung(one));
    // It hangs again, and the clock is set back (R1.12).
    sessions.poll(&[hungry(1)], hangs + hour);
    sessions.observe(hangs + hour + HANGS_AFTER);
    sessions.observe(NOW - hour * 24);
    assert!(sessions.has_hung(one));
    sessions.observe(NOW - hour * 23);
    assert!(!sessions.has_hung(one), "the wait is no longer for it");
}

#[test]
fn r1_10_at_most_one_rpc_a_project_is_in_flight() {
    let mut sessions = Sessions::default();
    let both = Candidate { requested: true, due: Some(WhyDue::AtOnce), ..hungry(1) };
    assert!(sessions.poll(&[both], NOW).is_some());
    for seconds in [1, 29, 30, 3_600] {
        assert_eq!(sessions.poll(&[both], NOW + Duration::from_secs(seconds)), None, "after {seconds} s");
    }
}

#[test]
fn r1_10_a_request_for_work_that_hangs_is_left_behind_and_the_session_goes_on() {
    let mut sessions = Sessions::default();
    let candidates = [hungry(1), hungry(2)];
    sessions.poll(&candidates, NOW);
    let soon = NOW + HANGS_AFTER - Duration::from_secs(1);
    assert!(!sessions.observe(soon) && sessions.poll(&candidates, soon).is_none());
    let hangs = NOW + HANGS_AFTER;
    assert_eq!(sessions.next_change(soon), Some(hangs));
    assert!(sessions.observe(hangs), "the need for work is looked at again");
    assert_eq!(asked(sessions.poll(&candidates, hangs)), Some((2, 0, 2)));
    sessions.answered(ProjectId(2), 0);
    assert_eq!(sessions.poll(&[hungry(1)], later(hangs)), None, "its answer may come yet");
    sessions.answered(ProjectId(1), 3);
    assert_eq!(asked(sessions.poll(&candidates, later(hangs))), Some((1, 0, 2)));
}

#[test]
fn r1_12_a_clock_that_is_set_back_lets_no_rpc_hold_anything_for_longer() {
    let mut sessions = Sessions::default();
    let candidates = [hungry(1), hungry(2)];
    sessions.poll(&candidates, NOW);
    let back = NOW - Duration::from_hours(24 * 365);
    sessions.observe(back);
    assert_eq!(sessions.poll(&candidates, back), None);
    assert_eq!(asked(sessions.poll(&candidates, back + HANGS_AFTER)), Some((2, 0, 2)));
}

#[test]
fn r1_10_when_all_places_are_taken_the_one_that_hung_longest_is_given_up_for_the_next() {
    let mut sessions = Sessions::default();
    let candidates: Vec<_> = (1..=9).map(hungry).collect();
    let mut now = NOW;
    for _ in 0..IN_FLIGHT_MAX {
        assert!(sessions.poll(&candidates, now).is_some());
        now = now + HANGS_AFTER;
    }
    sessions.observe(now - Duration::from_secs(1));
    assert_eq!(sessions.poll(&candidates, now - Duration::from_secs(1)), None);
    assert_eq!(sessions.crowded_out(&candidates[..8]), None, "nobody wants its place");
    sessions.observe(now);
    assert_eq!(sessions.poll(&candidates, now), None, "there is no room");
    assert_eq!(sessions.crowded_out(&candidates), Some(ProjectId(1)));
    assert_eq!(sessions.crowded_out(&candidates), None, "now there is");
    let waits = [vec![Candidate { may_ask: false, ..hungry(1) }], candidates[1..].to_vec()].concat();
    assert_eq!(asked(sessions.poll(&waits, now)), Some((9, 0, 2)));
}

proptest! {
    /// Shows R1.10 as well.
    #[test]
    fn r1_5_a_session_ends_whatever_servers_do(
        replies in prop::collection::vec(0_u8..4, 200), projects in 1_u32..6,
    ) {
        let candidates: Vec<_> = (1..=projects).map(hungry).collect();
        let quiet: Vec<_> = (1..=projects).map(content).collect();
        let mut sessions = Sessions::default();
        let mut asks = 0;
        let mut replies = replies.into_iter();
        // The first poll after the session's last ask starts another; so count until the order starts over.
        let mut last = 0;
        while let Some(ask) = sessions.poll(&candidates, NOW) {
            if ask.project.0 < last {
                break;
            }
            last = ask.project.0;
            asks += 1;
            match replies.next() {
                Some(0) => while sessions.failed(ask.project) != Some(AfterRpcFailure::AllFailed) {},
                Some(jobs) => sessions.answered(ask.project, usize::from(jobs) - 1),
                None => break,
            }
            if last == projects && asks > ASKS_PER_SESSION_MAX * projects {
                break;
            }
        }
        prop_assert!(asks <= ASKS_PER_SESSION_MAX * projects + 1);
        (1..=projects).for_each(|id| sessions.answered(ProjectId(id), 0));
        prop_assert_eq!(sessions.poll(&quiet, NOW), None);
    }
}

#[test]
fn r1_10_what_others_were_asked_for_meanwhile_is_not_asked_of_a_second_scheduler() {
    let mut sessions = Sessions::default();
    let candidates = [hungry(1), hungry(2)];
    assert_eq!(asked(sessions.poll(&candidates, NOW)), Some((1, 0, 2)));
    let late = NOW + HANGS_AFTER;
    assert_eq!(asked(sessions.poll(&candidates, late)), Some((2, 0, 2)), "the first is left behind");
    let Some(AfterRpcFailure::NextScheduler(next)) = sessions.failed(ProjectId(1)) else { panic!() };
    assert_eq!(asked(Some(next)), Some((1, 1, 0)));
}
