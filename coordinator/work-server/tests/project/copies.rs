//! Copied machines: a host that came of another one's disk, and the first one (R6.8, R6.10).

use fallow_boinc::scheduler::ResultState;
use fallow_boinc::transfer::{DataServerReply, UploadHeader, UploadRequest, UploadStatus};
use fallow_domain::{AgentId, Duration};
use fallow_work_server::{JobView, ProjectInfo, ServerState, WorkunitStatus};

use crate::client::Client;
use crate::fixture::{Fixture, workunit};
use crate::http::post;
use crate::scheduler::{messages, only_workunit, with_workunits};

fn agent(id: &str) -> AgentId {
    AgentId(id.to_owned())
}

/// The host of this agent, which is a copy of `first`'s.
fn copy(fixture: &Fixture, info: &ProjectInfo, id: &str, first: &str) -> Client {
    let key = fixture.server.copy_key(&info.name, &agent(id), &agent(first)).unwrap();
    Client::with_key(info, id, key)
}

fn fail(client: &mut Client) {
    let jobs: Vec<String> = client.held.keys().cloned().collect();
    assert_eq!(jobs.len(), 1);
    client.report(&jobs[0], ResultState::ComputeError, 65);
    client.rpc();
}

fn unsent(fixture: &Fixture) -> JobView {
    let jobs = only_workunit(fixture).jobs;
    jobs.into_iter().find(|job| job.state == ServerState::Unsent).unwrap()
}

fn validated(fixture: &Fixture, project: &str) -> u64 {
    fixture.server.run_background_work().unwrap();
    fixture.server.counts(project).unwrap().workunits_validated
}

#[test]
fn r6_8_where_one_result_is_enough_a_copy_computes_at_once_what_failed_on_the_first_one() {
    let (fixture, info) = with_workunits(1, 1);
    let mut first = Client::new(&fixture, &info, "first");
    let mut copy = copy(&fixture, &info, "copy", "first");
    assert_eq!(first.fetch(1.0).results.len(), 1);
    assert_eq!(copy.fetch(1.0).results.len(), 0);
    fail(&mut first);
    assert_eq!(unsent(&fixture).waits_for, "a host that has not failed it");
    assert_eq!(first.fetch(1.0).results.len(), 0);
    let reply = copy.fetch(1.0);
    assert_eq!(reply.results.len(), 1, "{}", messages(&reply));
    copy.complete_all("x");
    assert_eq!(only_workunit(&fixture).state, WorkunitStatus::Validated);
}

#[test]
fn r6_8_where_one_result_is_enough_copies_whose_first_one_is_gone_take_failed_jobs_of_each_other() {
    let (mut fixture, info) = with_workunits(1, 1);
    let mut copies = ["a", "b"].map(|id| copy(&fixture, &info, id, "first"));
    fixture.server.close_agent(&agent("first")).unwrap();
    assert_eq!(copies.each_mut().map(|copy| copy.fetch(1.0).results.len()), [1, 0]);
    fail(&mut copies[0]);
    fixture.restart();
    assert_eq!(copies.each_mut().map(|copy| copy.fetch(1.0).results.len()), [0, 1]);
    fail(&mut copies[1]);
    let told = messages(&copies[0].fetch(1.0));
    assert!(told.contains("1 job that failed is tried again in "), "two machines failed it: {told}");
}

#[test]
fn r6_8_where_several_must_agree_no_failed_job_waits_for_a_copy_that_never_counts_as_another_host() {
    for restarts in [false, true] {
        let (mut fixture, info) = with_workunits(1, 2);
        let mut first = Client::new(&fixture, &info, "first");
        let mut copy = copy(&fixture, &info, "copy", "first");
        assert_eq!(first.fetch(1.0).results.len(), 1);
        assert_eq!(copy.fetch(1.0).results.len(), 0, "the first one has a copy of it");
        fail(&mut first);
        if restarts {
            fixture.restart();
        }
        let told = messages(&copy.fetch(1.0));
        assert!(told.contains("1 job that failed is tried again in "), "{told}");
        fixture.advance(Duration::from_secs(31));
        let reply = first.fetch(1.0);
        assert_eq!(reply.results.len(), 1, "{}", messages(&reply));
        assert_eq!(copy.fetch(1.0).results.len(), 0);
        first.complete_all("x");
        assert_eq!(copy.fetch(1.0).results.len(), 0);
        assert_eq!(validated(&fixture, "p"), 0);
        let mut other = Client::new(&fixture, &info, "other");
        assert_eq!(other.fetch(1.0).results.len(), 1);
        other.complete_all("x");
        assert_eq!(validated(&fixture, "p"), 1);
    }
}

#[test]
fn r6_8_where_several_must_agree_a_busy_machine_is_waited_for_although_an_idle_copy_of_it_is_too_small() {
    let (fixture, info) = with_workunits(1, 1);
    let mut busy = Client::new(&fixture, &info, "busy");
    assert_eq!(busy.fetch(1.0).results.len(), 1);
    fixture.server.submit("p", vec![workunit("app", "y", 1e11, 2)]).unwrap();
    let mut broken = Client::new(&fixture, &info, "broken");
    let mut other = Client::new(&fixture, &info, "other");
    assert_eq!([broken.fetch(1.0), other.fetch(1.0)].map(|reply| reply.results.len()), [1, 1]);
    other.complete_all("y");
    fail(&mut broken);
    let mut small = copy(&fixture, &info, "small", "busy");
    small.request.host_info.m_nbytes = 1_000.0;
    // The busy one computes for hours, and asks for nothing meanwhile.
    for attempt in 1..=12 {
        let told = messages(&small.fetch(1.0));
        assert!(told.contains("MB RAM"), "{told}");
        fixture.advance(Duration::from_mins(31));
        assert_eq!(broken.fetch(1.0).results.len(), 0, "attempt {attempt}");
    }
    busy.complete_all("x");
    assert_eq!(busy.fetch(1.0).results.len(), 1);
    busy.complete_all("y");
    assert_eq!(validated(&fixture, "p"), 2);
}

#[test]
fn r6_8_the_credit_of_a_job_that_a_copy_computed_is_the_copys() {
    let (fixture, info) = with_workunits(1, 1);
    let mut first = Client::new(&fixture, &info, "first");
    let mut copy = copy(&fixture, &info, "copy", "first");
    assert_eq!(copy.fetch(1.0).results.len(), 1);
    fixture.advance(Duration::from_mins(1));
    copy.complete_all("42");
    assert_eq!(validated(&fixture, "p"), 1);
    let total = |client: &mut Client| {
        let reply = client.rpc();
        [reply.user_total_credit.unwrap(), reply.host_total_credit.unwrap()]
    };
    assert_eq!(total(&mut first), [0.0, 0.0]);
    let [of_user, of_host] = total(&mut copy);
    assert!(of_user > 0.0 && of_user == of_host, "{of_user} {of_host}");
}

#[test]
fn r6_8_copies_that_can_have_nothing_of_what_waits_leave_their_part_of_a_batch_to_other_hosts() {
    let (fixture, info) = with_workunits(40, 2);
    let mut machine = vec![Client::new(&fixture, &info, "first")];
    machine.extend((0..20).map(|id| copy(&fixture, &info, &format!("copy {id}"), "first")));
    while machine.iter_mut().map(|host| host.fetch(1e5).results.len()).sum::<usize>() > 0 {}
    assert_eq!(machine.iter().map(|host| host.held.len()).sum::<usize>(), 40);
    let mut other = Client::new(&fixture, &info, "other");
    let reply = other.fetch(1e5);
    assert!(reply.results.len() > 10, "{} jobs: {}", reply.results.len(), messages(&reply));
}

#[test]
fn r6_10_who_waits_for_another_host_is_told_that_copies_count_as_one_and_what_makes_them_count() {
    let (fixture, info) = with_workunits(1, 2);
    let mut first = Client::new(&fixture, &info, "first");
    let mut copies = ["a", "b"].map(|id| copy(&fixture, &info, id, "first"));
    assert_eq!(first.fetch(1.0).results.len(), 1);
    assert_eq!(unsent(&fixture).waits_for, "another host: 2 needed, 1 asks for work");
    let anew = "To make one count by itself, enrol it anew in an empty directory, with a token from `fallow tokens create`";
    for (copy, others) in copies.iter_mut().zip(["1 other", "2 others"]) {
        let told = messages(&copy.fetch(1.0));
        let count = format!(
            "This host and {others} are copies of one machine: where several hosts must agree, all count as one"
        );
        let has_one =
            "1 job waits for another host: this one, or one that it counts as one with, has a copy of it";
        for part in [&count, anew, has_one] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
    let waiting = unsent(&fixture);
    let said = "another host: 2 needed, 1 asks for work (2 copied hosts count as one with others)";
    assert_eq!((waiting.waits_for.as_str(), waiting.copied_hosts), (said, 2));
    // The first one is told so, too.
    first.complete_all("x");
    let told = messages(&first.fetch(1.0));
    assert!(told.contains("This host and 2 others are copies of one machine"), "{told}");
    // A host that has no copies is told of none.
    let mut other = Client::new(&fixture, &info, "other");
    assert_eq!(other.fetch(1.0).results.len(), 1);
    fixture.server.submit("p", vec![workunit("app", "y", 1e11, 3)]).unwrap();
    assert_eq!(other.fetch(1.0).results.len(), 1);
    let told = messages(&other.fetch(1.0));
    assert!(told.contains("waits for another host: this one has") && !told.contains("machine"), "{told}");
}

#[test]
fn r6_10_copies_that_were_taken_out_of_the_fleet_are_not_counted_and_the_machine_is_as_long_as_one_is_there()
{
    let (fixture, info) = with_workunits(1, 3);
    let mut other = Client::new(&fixture, &info, "other");
    assert_eq!(other.fetch(1.0).results.len(), 1);
    let mut first = Client::new(&fixture, &info, "first");
    let mut copies = ["a", "b"].map(|id| copy(&fixture, &info, id, "first"));
    for host in copies.iter_mut().chain([&mut first]) {
        host.request.host_info.m_nbytes = 1_000.0;
        assert_eq!(host.fetch(1.0).results.len(), 0);
    }
    let waits_for = || unsent(&fixture).waits_for;
    let said = ": 3 needed, 2 ask for work (2 copied hosts count as one with others)";
    assert_eq!(waits_for(), format!("another host{said}"));
    fixture.server.close_agent(&agent("first")).unwrap();
    let said = ": 3 needed, 2 ask for work (1 copied host counts as one with another)";
    assert_eq!(waits_for(), format!("another host{said}"));
    fixture.server.close_agent(&agent("a")).unwrap();
    assert_eq!(waits_for(), "another host: 3 needed, 2 ask for work");
    fixture.server.close_agent(&agent("b")).unwrap();
    assert_eq!(waits_for(), "another host: 3 needed, 1 asks for work");
}

#[test]
fn r6_10_a_copied_machine_and_the_first_one_write_no_outputs_of_each_other() {
    let (fixture, info) = with_workunits(2, 1);
    let mut first = Client::new(&fixture, &info, "first");
    let mut copy = copy(&fixture, &info, "copy", "first");
    let jobs = [&mut first, &mut copy].map(|client| client.fetch(1.0).results[0].name.clone());
    let [ours, theirs] = [first.upload_header(&jobs[0], b"right"), copy.upload_header(&jobs[1], b"right")];
    let send = |header: &UploadHeader, content: &[u8]| {
        let header = UploadHeader { nbytes: fallow_domain::Bytes(content.len() as u64), ..header.clone() };
        let head = UploadRequest::Upload(UploadHeader { md5_cksum: String::new(), ..header }).write();
        let answer = post(&format!("{}file_upload_handler", info.url), &[head.as_bytes(), content].concat());
        DataServerReply::parse(&answer.body).unwrap()
    };
    // Each has a permission of its own, which is for no file of the other.
    for (name, own) in [(&ours.name, &theirs), (&theirs.name, &ours)] {
        let reply = send(&UploadHeader { name: name.clone(), ..own.clone() }, b"spoilt");
        assert_eq!(
            (reply.status, reply.message.as_deref()),
            (UploadStatus::Permanent, Some("invalid signature"))
        );
    }
    for client in [&mut first, &mut copy] {
        client.complete_all("right");
    }
    // Nor does a permission that was on the copied disk change what is there.
    for header in [&ours, &theirs] {
        assert_eq!(send(header, b"spoilt").status, UploadStatus::Ok);
    }
    assert_eq!(validated(&fixture, "p"), 2);
    let results = fixture.server.list_results("p", None, 0).unwrap().items;
    assert!(results.iter().all(|result| result.outputs[0].content == b"right"), "{results:?}");
}

#[test]
fn r6_10_a_copy_of_a_copy_is_one_opinion_with_the_first_of_them_also_when_those_between_are_gone() {
    let (fixture, info) = with_workunits(1, 2);
    let mut first = Client::new(&fixture, &info, "first");
    let mut second = copy(&fixture, &info, "second", "first");
    let mut third = copy(&fixture, &info, "third", "second");
    fixture.server.close_agent(&agent("second")).unwrap();
    let mut fourth = copy(&fixture, &info, "fourth", "second");
    for posing in [&mut first, &mut third, &mut fourth] {
        posing.fetch(1.0);
        posing.complete_all("forged");
    }
    assert!(messages(&second.fetch(1.0)).contains("Invalid or missing account key"));
    assert_eq!(validated(&fixture, "p"), 0);
    let sent = only_workunit(&fixture).jobs.iter().filter(|job| job.host_id != 0).count();
    assert_eq!(sent, 1);
}

#[test]
fn r6_10_copies_are_one_opinion_in_a_project_that_came_after_the_first_one_was_taken_out() {
    let mut fixture = Fixture::start();
    fixture.project("before");
    fixture.server.agent_key("before", &agent("first")).unwrap();
    fixture.server.close_agent(&agent("first")).unwrap();
    let info = fixture.project("p");
    fixture.script("p", "app");
    fixture.server.submit("p", vec![workunit("app", "x", 1e11, 2)]).unwrap();
    let mut one = copy(&fixture, &info, "one", "first");
    one.fetch(1.0);
    one.complete_all("forged");
    fixture.restart();
    let mut two = copy(&fixture, &info, "two", "first");
    two.fetch(1.0);
    two.complete_all("forged");
    assert_eq!(validated(&fixture, "p"), 0);
}

#[test]
fn r6_10_a_copy_that_reports_or_lists_the_first_ones_job_by_its_name_changes_nothing_of_it() {
    let (fixture, info) = with_workunits(1, 1);
    let mut first = Client::new(&fixture, &info, "first");
    let mut copy = copy(&fixture, &info, "copy", "first");
    let job = first.fetch(1.0).results[0].name.clone();
    // As it was on the copied disk.
    copy.held = first.held.clone();
    let reply = copy.rpc();
    assert!(reply.result_aborts.contains(&job), "{reply:?}");
    copy.held = first.held.clone();
    copy.report(&job, ResultState::ComputeError, 1);
    copy.request.hostid = first.request.hostid;
    copy.rpc();
    assert_eq!(only_workunit(&fixture).jobs[0].state, ServerState::InProgress);
    first.complete_all("right");
    assert_eq!(validated(&fixture, "p"), 1);
}
