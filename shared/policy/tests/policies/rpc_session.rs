//! R1.5, R1.7, R1.9, R1.10.

use fallow_domain::{Duration, ProjectId, ResourceType};
use fallow_policy::fetch::WorkRequest;
use fallow_policy::report_due::WhyDue;
use fallow_policy::rpc_session::{ASKS_PER_SESSION_MAX, AfterFailure, Ask, Candidate, Sessions, WhyAsk};
use proptest::prelude::*;

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
        fill: hours(1),
        due: None,
        requested: false,
    }
}
fn hungry(id: u32) -> Candidate {
    Candidate { request: hours(2), fill: hours(2), ..content(id) }
}
fn due(id: u32) -> Candidate {
    Candidate { due: Some(WhyDue::Waited), ..content(id) }
}
fn asked(ask: Option<Ask>) -> Option<(u32, usize, i64)> {
    ask.map(|ask| (ask.project.0, ask.scheduler, (ask.work.seconds[ResourceType::Cpu] / 3_600.0) as i64))
}

#[test]
fn r1_5_a_get_work_session_asks_in_order_of_debt_and_each_project_once_if_it_sends_nothing() {
    let mut sessions = Sessions::default();
    let blocked = Candidate { may_ask: false, ..hungry(3) };
    let candidates = [blocked, hungry(2), content(4), hungry(1)];
    let first = sessions.poll(&candidates).unwrap();
    assert_eq!((first.project, first.reason), (ProjectId(2), WhyAsk::NeedsWork { rank: 2 }));
    assert_eq!(sessions.poll(&candidates), None, "one RPC at a time");
    sessions.answered(ProjectId(2), 0);
    assert_eq!(asked(sessions.poll(&candidates)), Some((1, 0, 2)));
    sessions.answered(ProjectId(1), 5);
    assert_eq!(asked(sessions.poll(&candidates)), Some((1, 0, 2)), "it sent some and may have more");
    sessions.answered(ProjectId(1), 0);
    // The session is over. A new one may ask both again, unless their waits for work hold.
    let waiting = candidates.map(|c| Candidate { may_fetch: false, ..c });
    assert_eq!(sessions.poll(&waiting), None);
}

#[test]
fn r1_5_schedulers_are_tried_in_order_until_one_answers() {
    let mut sessions = Sessions::default();
    let candidates = [hungry(1), hungry(2)];
    assert_eq!(asked(sessions.poll(&candidates)), Some((1, 0, 2)));
    let Some(AfterFailure::NextScheduler(next)) = sessions.failed(ProjectId(1)) else { panic!() };
    assert_eq!((next.project, next.scheduler), (ProjectId(1), 1));
    assert_eq!(sessions.failed(ProjectId(1)), Some(AfterFailure::AllFailed));
    assert_eq!(asked(sessions.poll(&candidates)), Some((2, 0, 2)), "not again the one that failed");
}

#[test]
fn r1_7_a_report_session_asks_one_project() {
    let mut sessions = Sessions::default();
    let candidates = [content(1), due(2)];
    let ask = sessions.poll(&candidates).unwrap();
    assert_eq!(
        (ask.project, ask.work, ask.reason),
        (ProjectId(2), WorkRequest::default(), WhyAsk::Due(WhyDue::Waited))
    );
    sessions.answered(ProjectId(2), 0);
    assert_eq!(sessions.poll(&[content(1), content(2)]), None);
}

#[test]
fn r1_9_work_is_fetched_before_reports_and_rides_along_for_the_project_owed_most() {
    let mut sessions = Sessions::default();
    assert_eq!(asked(sessions.poll(&[due(1), hungry(2)])), Some((2, 0, 2)));
    let mut sessions = Sessions::default();
    assert_eq!(asked(sessions.poll(&[due(1), content(2)])), Some((1, 0, 1)));
    let mut sessions = Sessions::default();
    assert_eq!(asked(sessions.poll(&[Candidate { may_fetch: false, ..due(1) }])), Some((1, 0, 0)));
    let mut sessions = Sessions::default();
    let nobody = Candidate { may_ask: false, ..hungry(2) };
    assert_eq!(
        asked(sessions.poll(&[nobody, due(1)])),
        Some((1, 0, 0)),
        "no project with needs may be asked"
    );
}

#[test]
fn r1_8_a_near_deadline_is_reported_before_a_job_that_waited() {
    let urgent = Candidate { due: Some(WhyDue::DeadlineNear), ..content(2) };
    assert_eq!(asked(Sessions::default().poll(&[due(1), urgent])), Some((2, 0, 0)));
}

#[test]
fn r1_4_a_requested_rpc_goes_first() {
    let requested = Candidate { requested: true, ..content(2) };
    let ask = Sessions::default().poll(&[hungry(1), requested]).unwrap();
    assert_eq!((ask.project, ask.reason), (ProjectId(2), WhyAsk::Requested));
}

#[test]
fn a_project_without_schedulers_is_not_asked() {
    let lost = Candidate { schedulers: 0, due: Some(WhyDue::AtOnce), requested: true, ..hungry(1) };
    assert_eq!(Sessions::default().poll(&[lost]), None);
}

#[test]
fn an_answer_from_a_project_that_was_not_asked_is_ignored() {
    let mut sessions = Sessions::default();
    sessions.poll(&[hungry(1)]);
    sessions.answered(ProjectId(9), 1);
    assert_eq!(sessions.failed(ProjectId(9)), None);
    assert!(sessions.in_flight().is_some());
    sessions.abandon(ProjectId(1));
    assert!(sessions.in_flight().is_none());
}

proptest! {
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
        while let Some(ask) = sessions.poll(&candidates) {
            if ask.project.0 < last {
                break;
            }
            last = ask.project.0;
            asks += 1;
            match replies.next() {
                Some(0) => while sessions.failed(ask.project) != Some(AfterFailure::AllFailed) {},
                Some(jobs) => sessions.answered(ask.project, usize::from(jobs) - 1),
                None => break,
            }
            if last == projects && asks > ASKS_PER_SESSION_MAX * projects {
                break;
            }
        }
        prop_assert!(asks <= ASKS_PER_SESSION_MAX * projects + 1);
        if let Some(ask) = sessions.in_flight().copied() {
            sessions.answered(ask.project, 0);
        }
        prop_assert_eq!(sessions.poll(&quiet), None);
    }
}
