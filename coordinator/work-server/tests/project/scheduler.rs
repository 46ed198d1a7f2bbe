//! Scheduler RPCs: by a simulated client, and with requests captured from the stock client.

use std::fs;
use std::path::Path;

use fallow_boinc::scheduler::{InProgressResult, OtherResult, ResultState, SchedulerReply, SchedulerRequest};
use fallow_boinc::signature::{PublicKey, md5_hex};
use fallow_domain::{AccountKey, Bytes, Duration, Flops, Instant};
use fallow_work_server::{
    NewAppVersion, NewWorkunit, Outcome, ProjectError, ProjectSettings, ServerState, Validation,
    WorkunitStatus, WorkunitView,
};

use crate::client::{Client, body_of};
use crate::fixture::{Fixture, PLATFORM, workunit};
use crate::http::post;
use crate::stalled::{Stalled, status_of};

/// A project with an application and so many workunits of 100 s each on a host of 10^9 FLOPS.
pub(crate) fn with_workunits(count: usize, quorum: u32) -> (Fixture, fallow_work_server::ProjectInfo) {
    let fixture = Fixture::start();
    let info = fixture.project("p");
    fixture.script("p", "app");
    fixture.server.submit("p", vec![workunit("app", "x", 1e11, quorum); count]).unwrap();
    (fixture, info)
}

pub(crate) fn only_workunit(fixture: &Fixture) -> WorkunitView {
    fixture.server.run_background_work().unwrap();
    let mut page = fixture.server.list_workunits("p", None, 0).unwrap();
    assert_eq!(page.items.len(), 1);
    page.items.remove(0)
}

pub(crate) fn messages(reply: &SchedulerReply) -> String {
    reply.messages.iter().map(|message| message.text.as_str()).collect::<Vec<_>>().join("\n")
}

pub(crate) fn raw(url: &str, body: &[u8]) -> SchedulerReply {
    let answer = post(&format!("{url}cgi"), body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    SchedulerReply::parse(&answer.body).unwrap()
}

#[test]
fn r6_8_every_captured_request_is_accepted_where_the_real_one_was() {
    let (_fixture, info) = with_workunits(3, 1);
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/boinc/fixtures/captures");
    let mut seen = 0;
    for entry in fs::read_dir(captures).unwrap() {
        let path = entry.unwrap().path();
        if !path.to_string_lossy().ends_with("cgi-cgi.request") {
            continue;
        }
        seen += 1;
        let bytes = fs::read(&path).unwrap();
        let text = String::from_utf8_lossy(body_of(&bytes)).into_owned();
        let key = text.split("<authenticator>").nth(1).unwrap().split('<').next().unwrap();
        let ours = text.replace(key, info.account_key.reveal());
        let request = SchedulerRequest::parse(ours.as_bytes()).unwrap();
        let reply = raw(info.url.as_str(), ours.as_bytes());
        // Host 1 of that project is found again here by its identity after the first of them.
        assert_eq!(reply.master_url.as_deref(), Some(info.url.as_str()));
        assert_eq!(reply.userid, Some(1));
        let reported: Vec<_> = request.results.iter().map(|result| result.name.clone()).collect();
        assert_eq!(reply.result_acks, reported, "{path:?}");
        // Jobs of another project's workunits are unknown here.
        let others = request.other_results.unwrap_or_default();
        assert_eq!(reply.result_aborts.len(), others.len(), "{path:?}");
        assert_eq!(reply.code_sign_key.is_some(), request.code_sign_key.is_none());
    }
    assert!(seen > 10, "{seen} captured requests");
}

#[test]
fn r6_8_a_wrong_account_key_is_refused_for_an_hour() {
    let (fixture, info) = with_workunits(1, 1);
    let mut client = Client::new(&fixture, &info, "a");
    client.request.authenticator = AccountKey::new("00000000000000000000000000000000");
    let reply = client.fetch(100.0);
    assert_eq!((reply.request_delay, reply.hostid), (Duration::from_hours(1), None));
    assert!(messages(&reply).contains("account key"));
    assert!(reply.results.is_empty());
}

#[test]
fn r6_8_an_unknown_platform_is_refused_for_a_day_and_a_known_one_is_told_the_reason() {
    let (fixture, info) = with_workunits(1, 1);
    let mut client = Client::new(&fixture, &info, "a");
    client.request.platform_name = "vax-dec-vms".into();
    let reply = client.fetch(100.0);
    assert_eq!(reply.request_delay, Duration::from_hours(24));
    client.request.platform_name = "windows_x86_64".into();
    let reply = client.fetch(100.0);
    assert!(messages(&reply).contains("No application of this project runs on this platform"), "{reply:?}");
    client.request.alt_platforms = vec!["x86_64-pc-linux-gnu".into()];
    assert_eq!(client.fetch(100.0).results.len(), 1);
}

#[test]
fn r6_8_bytes_that_are_no_request_get_a_message_and_never_an_error_of_ours() {
    let (fixture, info) = with_workunits(1, 1);
    let whole = Client::new(&fixture, &info, "a").request.write();
    for cut in [0, 1, 17, whole.len() / 2, whole.len() - 3] {
        let reply = raw(info.url.as_str(), &whole.as_bytes()[..cut]);
        assert!(reply.request_delay >= Duration::from_mins(1), "{cut}");
        assert!(!reply.messages.is_empty());
    }
    for bad in [&b"\0\0\0"[..], &[0xff; 4_000], b"<scheduler_request>", b"<a></a>", &b"<x>".repeat(5_000)] {
        assert!(!raw(info.url.as_str(), bad).messages.is_empty());
    }
}

#[test]
fn r6_8_a_host_is_registered_once_and_found_again() {
    let (_fixture, info) = with_workunits(0, 1);
    let mut client = Client::stock(&info, "a");
    assert_eq!(client.rpc().hostid, Some(1));
    assert_eq!(client.rpc().hostid, None, "told once");
    assert_eq!(client.rpc().hostid, None);
    // Attached again: the same machine, without its number.
    let mut again = Client::stock(&info, "a");
    assert_eq!(again.rpc().hostid, Some(1));
    assert_eq!(again.rpc().hostid, None);
    // Another machine, and one that shows a number that is not its own.
    assert_eq!(Client::stock(&info, "b").rpc().hostid, Some(2));
    let mut liar = Client::stock(&info, "c");
    liar.request.hostid = 999;
    assert_eq!(liar.rpc().hostid, Some(3));
}

#[test]
fn r6_8_a_copied_host_gets_a_number_of_its_own_and_the_original_keeps_its_jobs() {
    let (fixture, info) = with_workunits(2, 1);
    let mut original = Client::stock(&info, "a");
    original.rpc();
    let copied = original.request.clone();
    original.rpc();
    assert_eq!(original.fetch(100.0).results.len(), 1);
    let mut copy = Client::stock(&info, "a");
    copy.request = copied;
    assert_eq!(copy.rpc().hostid, Some(2));
    assert_eq!(original.rpc().hostid, None);
    assert_eq!(original.complete_all("x").result_acks.len(), 1);
    fixture.server.run_background_work().unwrap();
    assert_eq!(fixture.server.counts("p").unwrap().workunits_validated, 1);
}

#[test]
fn r6_8_a_request_that_http_repeats_is_not_taken_for_a_copied_host() {
    let (fixture, info) = with_workunits(1, 1);
    let mut client = Client::new(&fixture, &info, "a");
    client.rpc();
    client.rpc();
    client.request.cpu_req_secs = 10.0;
    let body = client.request.write();
    let (first, second) = (raw(&client.url, body.as_bytes()), raw(&client.url, body.as_bytes()));
    assert_eq!((first.hostid, second.hostid), (None, None));
    assert_eq!(first.results[0].name, second.results[0].name);
}

#[test]
fn r6_8_what_is_sent_can_be_verified_and_uploaded() {
    let (fixture, info) = with_workunits(1, 1);
    let mut client = Client::new(&fixture, &info, "a");
    let reply = client.fetch(1.0);
    let code_sign = PublicKey::parse(reply.code_sign_key.as_ref().unwrap()).unwrap();
    let version = &reply.app_versions[0];
    assert_eq!((version.version_num, version.api_version.as_deref()), (100, Some("8.3.0")));
    assert!(version.files[0].main_program);
    let program = reply.files.iter().find(|file| file.name == version.files[0].file_name).unwrap();
    let content = crate::http::get(&program.download_urls[0]).body;
    assert!(program.executable);
    assert!(code_sign.verify_file(&md5_hex(&content), program.file_signature.as_ref().unwrap()));
    let upload_key = fs::read_to_string(fixture.dir.path().join("projects/p/keys/upload_public")).unwrap();
    let output = reply.files.iter().find(|file| file.xml_signature.is_some()).unwrap();
    let permission = output.xml_signature.as_ref().unwrap();
    let upload_key = PublicKey::parse(&upload_key).unwrap();
    assert!(upload_key.verify_upload(&output.name, Bytes(1_000_000), permission));
    let job = &reply.results[0];
    assert!(job.report_immediately);
    assert_eq!(reply.workunits[0].name, job.wu_name);
    let input = reply.files.iter().find(|file| file.name == reply.workunits[0].files[0].file_name).unwrap();
    assert_eq!(crate::http::get(&input.download_urls[0]).body, b"x");
    assert_eq!(input.md5_cksum, Some(md5_hex(b"x")));
    assert!(client.rpc().code_sign_key.is_none(), "the key is sent once");
}

#[test]
fn r6_10_whether_an_application_needs_the_network_is_told_as_boinc_has_it() {
    let fixture = Fixture::start();
    let info = fixture.project("p");
    let program = fixture.dir.path().join("script");
    fs::write(&program, "#!/bin/sh\n").unwrap();
    for (application, needs_network) in [("asks", true), ("does-not", false)] {
        let version = NewAppVersion {
            application: application.to_owned(),
            version: 100,
            platform: PLATFORM.to_owned(),
            files: vec![program.clone()],
            needs_network,
            ..NewAppVersion::default()
        };
        fixture.server.add_app_version("p", &version).unwrap();
        fixture.server.submit("p", vec![workunit(application, "x", 1e11, 1)]).unwrap();
    }
    let mut client = Client::new(&fixture, &info, "a");
    let reply = client.fetch(1e6);
    let mut told: Vec<_> =
        reply.app_versions.iter().map(|one| (one.app_name.as_str(), one.needs_network)).collect();
    told.sort_unstable();
    assert_eq!(told, [("asks", true), ("does-not", false)]);
}

#[test]
fn r3_12_seconds_and_instances_are_filled_and_no_more() {
    let (fixture, info) = with_workunits(20, 1);
    let mut client = Client::new(&fixture, &info, "a");
    assert_eq!(client.fetch(250.0).results.len(), 3, "100 s each");
    client.request.cpu_req_instances = 2.0;
    assert_eq!(client.fetch(1.0).results.len(), 2, "an instance each");
    client.request.cpu_req_instances = 0.0;
    assert_eq!(client.fetch(0.0).results.len(), 0);
    client.request.work_req_seconds = 150.0;
    assert_eq!(client.rpc().results.len(), 2, "an old client knows the scalar only");
    client.request.dont_send_work = true;
    assert_eq!(client.fetch(100.0).results.len(), 0);
}

#[test]
fn r6_8_a_host_gets_one_job_of_a_workunit_and_the_next_host_another() {
    let (fixture, info) = with_workunits(2, 2);
    let (mut a, mut b) = (Client::new(&fixture, &info, "a"), Client::new(&fixture, &info, "b"));
    let of = |reply: &SchedulerReply| -> Vec<String> {
        reply.results.iter().map(|job| job.wu_name.clone()).collect()
    };
    let (first, second) = (a.fetch(1e6), b.fetch(1e6));
    assert_eq!(of(&first), of(&second));
    assert_eq!(first.results.len(), 2);
    // Nothing waits for anybody.
    assert!(messages(&a.fetch(1e6)).contains("Project has no tasks available"));
}

#[test]
fn r6_8_a_host_far_ahead_of_the_others_still_finds_work() {
    let fixture = Fixture::start();
    let info = fixture.project("p");
    fixture.script("p", "app");
    let plain = NewWorkunit { inputs: vec![], disk_bound: Bytes(1), ..workunit("app", "", 1e9, 2) };
    fixture.server.submit("p", vec![plain; 600]).unwrap();
    let mut client = Client::new(&fixture, &info, "a");
    let mut got = 0;
    for _ in 0..12 {
        got += client.fetch(1e6).results.len();
    }
    assert_eq!(got, 600);
}

#[test]
fn r6_8_agreeing_jobs_validate_and_their_output_is_kept() {
    let (fixture, info) = with_workunits(1, 2);
    let (mut a, mut b) = (Client::new(&fixture, &info, "a"), Client::new(&fixture, &info, "b"));
    a.fetch(1.0);
    b.fetch(1.0);
    a.complete_all("42\n");
    assert_eq!(only_workunit(&fixture).state, WorkunitStatus::Active);
    b.complete_all("42\n");
    let view = only_workunit(&fixture);
    assert_eq!((view.state, view.jobs[0].validation), (WorkunitStatus::Validated, Some(Validation::Valid)));
    assert_eq!(view.jobs[0].host_name, "a");
    assert_eq!(view.jobs[0].cpu_time, Duration::from_secs(12));
    let results = fixture.server.list_results("p", None, 0).unwrap().items;
    assert_eq!((results[0].agreeing_hosts, &results[0].outputs[0].content[..]), (2, &b"42\n"[..]));
    assert_eq!(results[0].outputs[0].open_name, "out");
    let counts = fixture.server.counts("p").unwrap();
    assert_eq!((counts.workunits_validated, counts.jobs_over, counts.jobs_in_progress), (1, 2, 0));
    // The other job's output and the input are gone.
    let files = |what: &str| {
        let dir = fixture.dir.path().join("projects/p").join(what);
        walk(&dir).into_iter().filter(|name| name.starts_with("app_0")).count()
    };
    assert_eq!((files("upload"), files("download")), (1, 0));
}

fn walk(dir: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => names.extend(walk(&entry.path())),
            false => names.push(entry.file_name().into_string().unwrap()),
        }
    }
    names
}

#[test]
fn r6_8_a_host_that_disagrees_is_found_out_by_a_third() {
    let (fixture, info) = with_workunits(1, 2);
    let mut hosts: Vec<_> = ["a", "b", "c"].iter().map(|name| Client::new(&fixture, &info, name)).collect();
    for (host, output) in hosts.iter_mut().zip(["right", "wrong", "right"]) {
        host.fetch(1.0);
        host.complete_all(output);
        fixture.server.run_background_work().unwrap();
    }
    let view = only_workunit(&fixture);
    let validations: Vec<_> = view.jobs.iter().map(|job| job.validation.unwrap()).collect();
    assert_eq!(validations, [Validation::Valid, Validation::Invalid, Validation::Valid]);
    assert_eq!(fixture.server.list_results("p", None, 0).unwrap().items[0].outputs[0].content, b"right");
}

#[test]
fn r6_8_repeated_and_unknown_reports_are_acknowledged_and_change_nothing() {
    let (fixture, info) = with_workunits(1, 1);
    let mut client = Client::new(&fixture, &info, "a");
    client.fetch(1.0);
    client.complete_all("x");
    let counts = fixture.server.counts("p").unwrap();
    client.report("app_00000001_0", ResultState::ComputeError, 1);
    client.report("nobody_knows_this_0", ResultState::Uploaded, 0);
    assert_eq!(client.rpc().result_acks, ["app_00000001_0", "nobody_knows_this_0"]);
    assert_eq!(only_workunit(&fixture).state, WorkunitStatus::Validated);
    assert_eq!(counts.workunits, fixture.server.counts("p").unwrap().workunits);
}

#[test]
fn r6_8_a_success_without_its_output_file_is_an_error() {
    let (fixture, info) = with_workunits(1, 1);
    let mut client = Client::new(&fixture, &info, "a");
    client.fetch(1.0);
    client.report("app_00000001_0", ResultState::Uploaded, 0);
    client.rpc();
    let view = only_workunit(&fixture);
    assert_eq!(view.jobs[0].outcome, Some(Outcome::Error));
    assert_eq!(view.jobs[1].state, ServerState::Unsent);
}

#[test]
fn r6_8_failed_and_aborted_jobs_are_told_apart_and_replaced() {
    let (fixture, info) = with_workunits(1, 1);
    for (name, state, exit, outcome) in [
        ("a", ResultState::ComputeError, 65, Outcome::Error),
        ("b", ResultState::Aborted, 203, Outcome::Aborted),
        ("c", ResultState::Downloading, -119, Outcome::Error),
    ] {
        let mut client = Client::new(&fixture, &info, name);
        let job = client.fetch(1.0).results[0].name.clone();
        client.report(&job, state, exit);
        client.rpc();
        let view = only_workunit(&fixture);
        let job = view.jobs.iter().find(|view| view.name == job).unwrap();
        assert_eq!((job.outcome, job.exit_status), (Some(outcome), exit));
        // After two of them it is put off.
        fixture.advance(Duration::from_secs(61));
    }
}

#[test]
fn r6_8_a_job_that_the_host_has_lost_is_sent_to_it_again_until_that_makes_no_sense() {
    let (fixture, info) = with_workunits(1, 1);
    let mut client = Client::new(&fixture, &info, "a");
    let first = client.fetch(1.0).results[0].clone();
    for _ in 0..4 {
        client.held.clear();
        fixture.advance(Duration::from_secs(60));
        let again = client.rpc();
        assert_eq!(again.results[0].name, first.name);
        assert!(again.results[0].report_deadline > first.report_deadline);
        assert!(again.files.iter().any(|file| file.xml_signature.is_some()), "with all that belongs to it");
    }
    client.held.clear();
    assert!(client.rpc().results.is_empty());
    let view = only_workunit(&fixture);
    assert_eq!((view.jobs[0].times_sent, view.jobs[0].outcome), (5, Some(Outcome::Late)));
    assert_eq!(view.jobs[1].state, ServerState::Unsent);
}

#[test]
fn r6_8_jobs_that_a_host_should_not_have_are_aborted() {
    let (fixture, info) = with_workunits(1, 1);
    let (mut a, mut b) = (Client::new(&fixture, &info, "a"), Client::new(&fixture, &info, "b"));
    let reply = a.fetch(1.0);
    let name = reply.results[0].name.clone();
    b.held.insert(name.clone(), reply.clone());
    b.held.insert("unknown_0".into(), reply);
    assert_eq!(b.rpc().result_aborts, [name.as_str(), "unknown_0"]);
    assert!(a.rpc().result_aborts.is_empty());
    drop(fixture);
}

#[test]
fn r6_8_a_passed_deadline_brings_another_copy_and_the_late_report_still_counts() {
    let (fixture, info) = with_workunits(1, 1);
    let (mut slow, mut fast) = (Client::new(&fixture, &info, "slow"), Client::new(&fixture, &info, "fast"));
    slow.fetch(1.0);
    fixture.advance(Duration::from_hours(23));
    assert_eq!(only_workunit(&fixture).jobs[0].state, ServerState::InProgress);
    fixture.advance(Duration::from_hours(2));
    let view = only_workunit(&fixture);
    assert_eq!((view.jobs[0].outcome, view.jobs[1].state), (Some(Outcome::Late), ServerState::Unsent));
    assert_eq!(slow.fetch(1.0).results.len(), 0, "the late host gets no second copy");
    assert_eq!(fast.fetch(1.0).results.len(), 1);
    assert!(slow.rpc().result_aborts.is_empty(), "its result is still welcome");
    slow.complete_all("x");
    assert_eq!(only_workunit(&fixture).canonical_job, "app_00000001_0");
    // The other one is not needed any more, but may finish if it has begun.
    assert_eq!(fast.rpc().result_aborts_if_not_started, ["app_00000001_1"]);
    fast.complete_all("x");
    assert_eq!(only_workunit(&fixture).jobs[1].validation, Some(Validation::Valid));
}

#[test]
fn r6_8_a_client_that_ignores_the_delay_gets_no_work() {
    let fixture = Fixture::start();
    let info = fixture.server.create_project("p", ProjectSettings::default()).unwrap();
    fixture.script("p", "app");
    fixture.server.submit("p", vec![workunit("app", "x", 1e11, 1); 2]).unwrap();
    let mut client = Client::new(&fixture, &info, "a");
    assert_eq!(client.fetch(1.0).request_delay, Duration::from_secs(7));
    let reply = client.fetch(1.0);
    assert!(messages(&reply).contains("too recent"), "{}", messages(&reply));
    fixture.advance(Duration::from_secs(7));
    assert_eq!(client.fetch(1.0).results.len(), 1);
}

#[test]
fn r6_8_a_host_that_is_too_small_is_told_what_it_lacks() {
    let fixture = Fixture::start();
    let info = fixture.project("p");
    fixture.script("p", "app");
    let big = NewWorkunit { memory_bound: Bytes(1 << 40), ..workunit("app", "x", 1e11, 1) };
    let wide = NewWorkunit { disk_bound: Bytes(1 << 50), ..workunit("app", "x", 1e11, 1) };
    fixture.server.submit("p", vec![big, wide]).unwrap();
    let text = messages(&Client::new(&fixture, &info, "a").fetch(1.0));
    assert!(text.contains("MB RAM but only") && text.contains("MB of disk space but only"), "{text}");
}

#[test]
fn r6_8_operators_are_told_why_the_last_host_got_nothing_until_a_job_is_sent() {
    let fixture = Fixture::start();
    let info = fixture.project("p");
    fixture.script("p", "app");
    let refusal = || fixture.server.project("p").unwrap().last_refusal;
    assert_eq!(refusal(), None);
    let wide = NewWorkunit { disk_bound: Bytes(1 << 50), ..workunit("app", "x", 1e11, 1) };
    fixture.server.submit("p", vec![wide]).unwrap();
    let mut client = Client::new(&fixture, &info, "lab1");
    client.fetch(1.0);
    let told = refusal().unwrap();
    assert!(told.host_name == "lab1" && told.reason.contains("MB of disk space but only"), "{told:?}");
    fixture.server.submit("p", vec![workunit("app", "x", 1e9, 1)]).unwrap();
    fixture.advance(Duration::from_mins(1));
    assert_eq!(client.fetch(1.0).results.len(), 1);
    assert_eq!(refusal(), None);
}

#[test]
fn r6_8_another_code_signing_key_means_no_work() {
    let (fixture, info) = with_workunits(1, 1);
    let mut client = Client::new(&fixture, &info, "a");
    client.request.code_sign_key = Some("1024\nff\n.".into());
    let reply = client.fetch(1.0);
    assert!(reply.results.is_empty() && messages(&reply).contains("code-signing key"), "{reply:?}");
}

#[test]
fn r5_6_a_job_that_would_be_late_on_this_host_is_not_sent_to_it() {
    let fixture = Fixture::start();
    let info = fixture.project("p");
    // WS3 tries one on a host that it does not know.
    fixture.set("p", "send", "WS2");
    fixture.script("p", "app");
    // An hour of work, due in 90 minutes.
    let tight = NewWorkunit {
        delay_bound: Duration::from_mins(90),
        flops_bound: Flops::new(1e14).unwrap(),
        ..workunit("app", "x", 3.6e12, 1)
    };
    fixture.server.submit("p", vec![tight; 2]).unwrap();
    let mut client = Client::new(&fixture, &info, "a");
    client.request.host_info.p_ncpus = 1;
    let now = Instant::from_micros(
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros() as i64,
    );
    client.request.in_progress_results = Some(vec![InProgressResult {
        name: "other_0".into(),
        report_deadline: now + Duration::from_hours(1),
        time_remaining: Duration::from_mins(50),
        avg_ncpus: 1.0,
        ..InProgressResult::default()
    }]);
    let reply = client.fetch(1e6);
    assert!(reply.send_full_workload);
    assert!(reply.results.is_empty() && messages(&reply).contains("won't finish in time"), "{reply:?}");
    client.request.in_progress_results = Some(Vec::new());
    assert_eq!(client.fetch(1e6).results.len(), 1, "one of the two fits");
}

#[test]
fn r5_6_a_workunit_that_no_host_can_finish_in_time_holds_up_none_behind_it() {
    let fixture = Fixture::start();
    let info = fixture.project("p");
    fixture.script("p", "app");
    let endless = NewWorkunit { flops_bound: Flops::new(1e300).unwrap(), ..workunit("app", "x", 1e18, 1) };
    fixture.server.submit("p", vec![endless]).unwrap();
    fixture.server.submit("p", vec![workunit("app", "x", 1e11, 1); 3]).unwrap();
    for held in [None, Some(Vec::new())] {
        let mut client = Client::new(&fixture, &info, &format!("host{}", held.is_some()));
        client.request.in_progress_results = held;
        let reply = client.fetch(1.0);
        assert_eq!(reply.results.len(), 1, "{reply:?}");
    }
}

#[test]
fn what_was_acknowledged_is_there_after_a_restart() {
    let (mut fixture, info) = with_workunits(1, 1);
    let mut client = Client::new(&fixture, &info, "a");
    client.fetch(1.0);
    client.complete_all("x");
    fixture.restart();
    assert_eq!(only_workunit(&fixture).state, WorkunitStatus::Validated);
    assert_eq!(client.rpc().hostid, None);
}

#[test]
fn what_submitters_get_wrong_is_said_and_nothing_is_stored() {
    let (fixture, _info) = with_workunits(0, 1);
    let good = || workunit("app", "x", 1e11, 1);
    let named = |name: &str| NewWorkunit { name: name.into(), ..good() };
    for (bad, said) in [
        (vec![NewWorkunit { application: "none".into(), ..good() }], "no version of an application"),
        (vec![NewWorkunit { comparator: "fuzzy".into(), ..good() }], "comparator"),
        (vec![named("a/b")], "workunit name"),
        (vec![named("twice"), named("twice")], "workunits 1 and 2 of the submission have the same name"),
        (vec![NewWorkunit { command_line: "a\nb".into(), ..good() }], "command line"),
        (vec![NewWorkunit { flops_bound: Flops::new(1.0).unwrap(), ..good() }], "bound"),
        (vec![NewWorkunit { delay_bound: Duration::ZERO, ..good() }], "latency bound"),
    ] {
        let error = fixture.server.submit("p", bad).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
    }
    assert_eq!(fixture.server.counts("p").unwrap().workunits, 0);
    let names = fixture.server.submit("p", vec![named("mine"), good()]).unwrap();
    assert_eq!(names[0], "mine");
    assert!(names[1].starts_with("app_"));
    let page = fixture.server.list_workunits("p", None, 1).unwrap();
    assert!(page.more);
    let rest = fixture.server.list_workunits("p", Some(&page.items[0].name), 1).unwrap();
    assert!(!rest.more && rest.items[0].name == "mine");
}

#[test]
fn clients_that_announce_much_and_send_nothing_keep_nobody_out() {
    let (fixture, info) = with_workunits(1, 1);
    // All that is announced together is more than there is memory for, for each budget.
    let mut stalled = Stalled::new(&info, 15 << 20, 0);
    for number in 0..16 {
        let client = Client::new(&fixture, &info, &format!("silent{number}"));
        stalled.begin(&client, 4);
        stalled.hold_all(|| status_of(&client, 0));
    }
    assert_eq!(Client::new(&fixture, &info, "a").fetch(1.0).results.len(), 1);
    assert_eq!(stalled.answered(), 0, "they are still waited for");
}

#[test]
fn r6_8_a_clock_that_is_set_back_keeps_no_host_from_work() {
    let fixture = Fixture::start();
    let settings = ProjectSettings { request_delay: Duration::from_secs(60), ..ProjectSettings::default() };
    let info = fixture.server.create_project("p", settings).unwrap();
    fixture.script("p", "app");
    fixture.server.submit("p", vec![workunit("app", "x", 1e11, 1); 2]).unwrap();
    let mut client = Client::new(&fixture, &info, "a");
    fixture.advance(Duration::from_hours(5));
    assert_eq!(client.fetch(1.0).results.len(), 1);
    fixture.advance(Duration::from_hours(-5));
    assert_eq!(client.fetch(1.0).results.len(), 1);
}

#[test]
fn r6_8_one_workunit_whose_files_cannot_be_deleted_holds_up_no_other() {
    let (fixture, info) = with_workunits(2, 1);
    let mut client = Client::new(&fixture, &info, "a");
    assert_eq!(client.fetch(1e6).results.len(), 2);
    for job in ["app_00000001_0", "app_00000002_0"] {
        assert_eq!(client.upload(job, b"x").status.code(), 0);
        client.report(job, ResultState::Uploaded, 0);
    }
    let project = fixture.dir.path().join("projects/p");
    // A directory where a file was expected.
    let output = "app_00000001_0_0";
    let fan = project.join("upload").join(&md5_hex(output.as_bytes())[..2]);
    fs::create_dir(fan.join(format!("{output}.part"))).unwrap();
    client.rpc();
    fixture.server.run_background_work().unwrap();
    let inputs: Vec<_> =
        walk(&project.join("download")).into_iter().filter(|name| name.contains("_in0")).collect();
    assert_eq!(inputs, ["app_00000001_in0"]);
}

#[test]
fn r6_9_who_runs_the_background_work_beside_its_thread_finds_it_done() {
    let (fixture, info) = with_workunits(20, 1);
    let mut client = Client::new(&fixture, &info, "a");
    assert_eq!(client.fetch(1e6).results.len(), 20);
    for job in client.held.keys().cloned().collect::<Vec<_>>() {
        assert_eq!(client.upload(&job, b"x").status.code(), 0);
        client.report(&job, ResultState::Uploaded, 0);
    }
    client.rpc();
    let left = std::thread::scope(|scope| {
        let run = || {
            fixture.server.run_background_work().unwrap();
            let download = fixture.dir.path().join("projects/p/download");
            walk(&download).into_iter().filter(|name| name.contains("_in0")).count()
        };
        [(); 4].map(|()| scope.spawn(run)).map(|run| run.join().unwrap())
    });
    assert_eq!(left, [0; 4]);
}

#[test]
fn r6_9_files_that_are_held_are_removed_when_they_are_not_any_more() {
    let (fixture, info) = with_workunits(1, 1);
    let mut client = Client::new(&fixture, &info, "a");
    assert_eq!(client.fetch(1e6).results.len(), 1);
    assert_eq!(client.upload("app_00000001_0", b"x").status.code(), 0);
    client.report("app_00000001_0", ResultState::Uploaded, 0);
    let is_there = || fixture.dir.path().join("projects/p/download/app_00000001_in0").exists();
    let held = fixture.server.hold_files();
    client.rpc();
    fixture.server.run_background_work().unwrap();
    assert_eq!((fixture.server.counts("p").unwrap().workunits_validated, is_there()), (1, true));
    drop(held);
    fixture.server.run_background_work().unwrap();
    assert!(!is_there());
}

#[test]
fn of_very_many_reports_in_one_request_the_rest_is_left_for_the_next() {
    let (fixture, info) = with_workunits(1, 1);
    let mut client = Client::new(&fixture, &info, "a");
    for number in 0..10_500 {
        client.report(&format!("unknown_{number}"), ResultState::Uploaded, 0);
    }
    let rest = client.request.results.split_off(10_000);
    client.request.results.extend(rest.clone());
    assert_eq!(client.rpc().result_acks.len(), 10_000);
    client.request.results = rest;
    assert_eq!(client.rpc().result_acks.len(), 500);
}

/// As BOINC's servers do with reports of jobs that they do not know.
#[test]
fn r6_8_a_report_whose_name_no_job_can_have_is_acknowledged_and_the_others_are_taken() {
    let (fixture, info) = with_workunits(1, 1);
    let mut client = Client::new(&fixture, &info, "a");
    let job = client.fetch(1.0).results[0].name.clone();
    let long = "x".repeat(300);
    let bad = ["a/b", "../x", long.as_str(), "no\u{1}job", "<a>"];
    bad.iter().for_each(|name| client.report(name, ResultState::Uploaded, 0));
    let held = bad.map(|name| OtherResult { name: name.to_owned(), ..OtherResult::default() });
    assert_eq!(client.upload(&job, b"x").status.code(), 0);
    client.report(&job, ResultState::Uploaded, 0);
    let reply = client.rpc_listing(held.to_vec());
    // Control characters cannot be written: that name comes without it.
    for name in [job.as_str(), "a/b", "../x", &long, "nojob", "<a>"] {
        assert!(reply.result_acks.iter().any(|ack| ack == name), "{name}: {:?}", reply.messages);
    }
    fixture.server.run_background_work().unwrap();
    assert_eq!(fixture.server.counts("p").unwrap().workunits_validated, 1);
}

#[test]
fn r6_8_operators_read_how_a_job_failed_and_its_last_words() {
    let (fixture, info) = with_workunits(1, 1);
    let mut client = Client::new(&fixture, &info, "a");
    let job = client.fetch(1.0).results[0].name.clone();
    client.report(&job, ResultState::ComputeError, 65);
    let said = &mut client.request.results[0].stderr_out;
    said.message = Some("process exited with code 65 (0x41)".into());
    said.stderr_txt = format!("{}\nno such table\n", "x".repeat(100_000));
    // As no honest client writes it.
    let body = client.request.write().replace("such table", "such \x1b[2Jtable");
    raw(&client.url, body.as_bytes());
    let report = fixture.server.job("p", &job).unwrap();
    assert_eq!((report.workunit.as_str(), report.version, report.job.exit_status), ("app_00000001", 100, 65));
    assert_eq!(report.job.outcome, Some(Outcome::Error));
    assert!(report.stderr.starts_with("process exited with code 65 (0x41)\nxxx"));
    assert!(report.stderr.ends_with("no such �[2Jtable") && report.stderr.len() < 6_000, "{}", report.stderr);
    for unknown in ["app_00000001_7", "app_00000009_0", "nothing", ""] {
        let error = fixture.server.job("p", unknown).unwrap_err();
        assert!(matches!(error, ProjectError::UnknownJob { .. }), "{error}");
    }
}
