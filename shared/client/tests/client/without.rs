//! Types of resource of which a project is asked for no jobs, as the coordinator's document says (R6.4).

use fallow_boinc::scheduler::{SchedulerReply, SchedulerRequest};
use fallow_client::Event;
use fallow_domain::{DocumentVersion, Duration, FleetDocument, Preferences, ResourceType, ResourceTypes};

use crate::hand::{Bench, add_job, add_version};
use crate::life::document;

/// A document by which the project is asked for no jobs of these types.
fn offered(version: u64, without: &[ResourceType]) -> FleetDocument {
    let mut document = document(version, &[("p", 1.0)], Preferences::default());
    document.projects[0].without = without.iter().copied().collect::<ResourceTypes>();
    document
}

fn answered(bench: &mut Bench) -> SchedulerRequest {
    bench.answer(&SchedulerReply::default())
}

#[test]
fn r6_4_a_project_is_asked_for_no_jobs_of_types_that_the_document_takes_from_it_and_is_again_when_it_says_so()
{
    let mut bench = Bench::new();
    bench.turn(Event::DocumentOffered(offered(1, &[ResourceType::Cpu]).into()));
    // The request on its way was made before.
    answered(&mut bench);
    for round in 0..4 {
        let request = answered(&mut bench);
        assert_eq!(request.work_req_seconds, 0.0, "request {round}");
        assert_eq!(request.cpu_req_secs, 0.0, "request {round}");
    }
    bench.restart();
    assert_eq!(answered(&mut bench).work_req_seconds, 0.0, "after a restart");
    bench.turn(Event::DocumentOffered(offered(2, &[ResourceType::Nvidia]).into()));
    let until = bench.now + Duration::from_hours(2);
    while bench.request.is_none() && bench.now < until {
        bench.now = bench.now + Duration::from_mins(1);
        bench.turn(Event::WakeUp);
    }
    let asked = bench.request.clone().expect("it asks by itself");
    assert!(asked.work_req_seconds > 0.0, "{asked:?}");
}

#[test]
fn r6_4_jobs_that_are_there_already_are_computed_to_their_ends() {
    let mut bench = Bench::new();
    bench.downloads_end = true;
    bench.turn(Event::DocumentOffered(offered(1, &[]).into()));
    let mut reply = SchedulerReply::default();
    add_version(&mut reply, "app", 1);
    add_job(&mut reply, "app", 1, "job");
    bench.answer(&reply);
    assert_eq!(bench.started.len(), 1, "{:?}", bench.notices);
    bench.turn(Event::DocumentOffered(offered(2, &[ResourceType::Cpu]).into()));
    assert_eq!(bench.client.task_views().len(), 1);
    if bench.request.is_some() {
        // One that was made before.
        answered(&mut bench);
    }
    assert_eq!(answered(&mut bench).work_req_seconds, 0.0);
}

#[test]
fn r6_5_a_project_that_refused_is_asked_within_minutes_when_a_new_term_names_it() {
    let mut bench = Bench::new();
    bench.turn(Event::DocumentOffered(offered(1, &[]).into()));
    answered(&mut bench);
    // As if a restored coordinator did not know the account.
    let refused = SchedulerReply { request_delay: Duration::from_hours(1), ..SchedulerReply::default() };
    bench.answer(&refused);
    let asks = |bench: &mut Bench| {
        for _ in 0..10 {
            bench.now = bench.now + Duration::from_mins(1);
            bench.turn(Event::WakeUp);
        }
        bench.request.is_some()
    };
    assert!(!asks(&mut bench));
    bench.turn(Event::DocumentOffered(offered(2, &[]).into()));
    assert!(!asks(&mut bench), "a version of the same term says nothing of it");
    bench.turn(Event::DocumentOffered(offered(DocumentVersion::first_of(1).0, &[]).into()));
    assert!(asks(&mut bench), "a new term begins");
}
