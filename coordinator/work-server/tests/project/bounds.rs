//! What strangers and accounts can hold of the server.

use std::sync::atomic::{AtomicBool, Ordering};

use fallow_boinc::scheduler::{ClientVersion, InProgressResult, OtherResult, ResultState, SchedulerReply};
use fallow_boinc::transfer::{DataServerReply, UploadHeader, UploadRequest, UploadStatus};
use fallow_domain::{Duration, Instant};

use crate::client::Client;
use crate::http::{answer, post};
use crate::scheduler::{messages, with_workunits};
use crate::stalled::{Stalled, announced, status_of};
use crate::wait::until;

#[test]
fn r6_10_who_has_no_account_is_refused_before_the_request_is_read() {
    let (_fixture, info) = with_workunits(1, 1);
    let reply = answer(announced(&info, "00000000000000000000000000000000", 60 << 20, 100_000));
    assert_eq!(reply.status, 200);
    let reply = SchedulerReply::parse(&reply.body).unwrap();
    assert!(messages(&reply).contains("account key"), "{reply:?}");
}

#[test]
fn r6_10_an_account_holds_so_many_requests_at_once_and_others_are_served_meanwhile() {
    let (fixture, info) = with_workunits(2, 1);
    let mut greedy = Client::new(&fixture, &info, "greedy");
    let mut stalled = Stalled::new(&info, 60 << 20, 10);
    stalled.begin(&greedy, 4);
    stalled.hold_all(|| status_of(&greedy, 0));
    assert_eq!(Client::new(&fixture, &info, "modest").fetch(1.0).results.len(), 1);
    drop(stalled);
    until("its places are free again", || status_of(&greedy, 0) == 200);
    assert_eq!(greedy.fetch(1.0).results.len(), 1);
}

#[test]
fn r6_10_a_request_whose_reading_takes_more_memory_than_there_is_is_not_read() {
    let (fixture, info) = with_workunits(1, 1);
    let client = Client::new(&fixture, &info, "a");
    let results = "<result></result>".repeat(1_500_000);
    let body =
        client.request.write().replace("</scheduler_request>", &format!("{results}</scheduler_request>"));
    assert_eq!(post(&format!("{}cgi", info.url), body.as_bytes()).status, 413);
}

#[test]
fn r6_10_another_key_further_on_in_a_request_is_not_taken() {
    let (fixture, info) = with_workunits(1, 1);
    let (own, other) = (Client::new(&fixture, &info, "own"), Client::new(&fixture, &info, "other"));
    let other = other.request.authenticator.reveal();
    let smuggled = format!("<authenticator>{other}</authenticator>\n</scheduler_request>");
    let body = own.request.write().replace("</scheduler_request>", &smuggled);
    let reply = crate::scheduler::raw(info.url.as_str(), body.as_bytes());
    // Whichever of the two counts, it is one account's request, and not the one's in the other's place.
    assert!(reply.hostid.is_none() || reply.userid.is_some(), "{reply:?}");
    assert!(messages(&reply).contains("account key") || reply.userid == Some(2), "{reply:?}");
}

#[test]
fn r6_10_unsigned_uploads_of_a_files_name_do_not_hold_up_its_owner() {
    let (fixture, info) = with_workunits(1, 1);
    let mut owner = Client::new(&fixture, &info, "owner");
    let job = owner.fetch(1.0).results[0].name.clone();
    let header = owner.upload_header(&job, b"0123456789");
    let unsigned = UploadRequest::Upload(UploadHeader { xml_signature: "00".into(), ..header }).write();
    let (url, over) = (format!("{}file_upload_handler", info.url), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let _ = post(&url, &[unsigned.as_bytes(), b"0123456789"].concat());
                }
            });
        }
        let statuses: Vec<_> = (0..60).map(|_| owner.upload(&job, b"0123456789").status).collect();
        over.store(true, Ordering::Relaxed);
        assert_eq!(statuses, [UploadStatus::Ok; 60]);
    });
}

#[test]
fn r6_10_sizes_are_told_of_jobs_in_progress_only() {
    let (fixture, info) = with_workunits(1, 1);
    let mut client = Client::new(&fixture, &info, "a");
    let job = client.fetch(1.0).results[0].name.clone();
    let size = |name: &str| {
        let question =
            UploadRequest::FileSize { client_version: ClientVersion::default(), name: name.to_owned() };
        let answer = post(&format!("{}file_upload_handler", info.url), question.write().as_bytes());
        DataServerReply::parse(&answer.body).unwrap().file_size.unwrap().0
    };
    assert_eq!(client.upload(&job, b"four").status, UploadStatus::Ok);
    assert_eq!(size(&format!("{job}_0")), 4);
    client.report(&job, ResultState::Uploaded, 0);
    client.rpc();
    fixture.server.run_background_work().unwrap();
    assert_eq!(fixture.server.counts("p").unwrap().workunits_validated, 1);
    for name in [format!("{job}_0"), "app_00000009_0_0".to_owned(), "nothing".to_owned()] {
        assert_eq!(size(&name), 0, "{name}");
    }
}

#[test]
fn r6_10_a_request_that_lists_more_jobs_than_any_host_holds_gets_none_and_loses_none() {
    let (fixture, info) = with_workunits(3, 1);
    let mut client = Client::new(&fixture, &info, "a");
    let held = client.fetch(1.0).results[0].name.clone();
    let others: Vec<OtherResult> =
        (0..10_001).map(|n| OtherResult { name: format!("y_{n}"), ..OtherResult::default() }).collect();
    client.request.cpu_req_secs = 1.0;
    let reply = client.rpc_listing(others);
    assert!(reply.results.is_empty() && reply.result_aborts.is_empty(), "{held} is not lost: {reply:?}");
    assert!(messages(&reply).contains("more than 10000 jobs"), "{reply:?}");
}

#[test]
fn r6_10_platforms_beyond_those_that_any_client_has_are_not_looked_at() {
    let (fixture, info) = with_workunits(1, 1);
    let mut client = Client::new(&fixture, &info, "a");
    let own = std::mem::replace(&mut client.request.platform_name, "windows_x86_64".into());
    let many = |count: usize| -> Vec<String> {
        (0..count).map(|number| format!("q{number}")).chain([own.clone()]).collect()
    };
    client.request.alt_platforms = many(20_000);
    let reply = client.fetch(1.0);
    assert!(messages(&reply).contains("No application of this project runs on this platform"), "{reply:?}");
    client.request.alt_platforms = many(20);
    assert_eq!(client.fetch(1.0).results.len(), 1);
}

#[test]
fn r6_10_an_identity_longer_than_any_client_has_is_none_and_takes_no_space() {
    let (mut fixture, info) = with_workunits(2, 1);
    let mut outside = Client::stock(&info, "outside");
    let mut agent = Client::new(&fixture, &info, "agent");
    for client in [&mut outside, &mut agent] {
        client.request.host_info.host_cpid = "x".repeat(200_000);
        assert_eq!(client.fetch(1.0).results.len(), 1);
    }
    fixture.stop();
    let entries = fixture.store().scan_prefix(b"project/p/").unwrap();
    let longest = entries.iter().map(|(key, value)| key.len() + value.len()).max();
    assert!(longest < Some(20_000), "{longest:?}");
}

#[test]
fn r6_10_a_host_full_of_another_projects_jobs_still_gets_work() {
    let (fixture, info) = with_workunits(1, 1);
    let mut client = Client::new(&fixture, &info, "a");
    // Due in a hundred years: this project's jobs are due first.
    let far = Instant::EPOCH + Duration::from_hours(800_000);
    let other = InProgressResult {
        name: "x".into(),
        report_deadline: far,
        time_remaining: Duration::from_secs(10),
        avg_ncpus: 1.0,
        ..InProgressResult::default()
    };
    client.request.in_progress_results = Some(vec![other; 30_000]);
    let reply = client.fetch(1.0);
    assert_eq!(reply.results.len(), 1, "{reply:?}");
}

#[test]
fn r6_10_long_requests_that_stall_keep_no_others_out() {
    let (fixture, info) = with_workunits(2, 1);
    // As much as may be on its way of long requests, from four accounts, and none of them goes on.
    let mut stalled = Stalled::new(&info, 60 << 20, 59 << 20);
    for n in 0..4 {
        stalled.begin(&Client::new(&fixture, &info, &format!("greedy{n}")), 1);
    }
    // A long one more is told to come again, and is taken when there is room.
    let long = Client::new(&fixture, &info, "long");
    let status = || status_of(&long, 40 << 20);
    stalled.hold_all(status);
    assert_eq!(Client::new(&fixture, &info, "modest").fetch(1.0).results.len(), 1);
    drop(stalled);
    until("there is room again", || status() == 200);
}
