//! Who counts as whom: agents with accounts of their own, and others.

use fallow_boinc::account::{AccountOut, create_query, passwd_hash};
use fallow_boinc::scheduler::ResultState;
use fallow_domain::{AccountKey, AgentId, Duration};
use fallow_work_server::NewWorkunit;

use crate::client::Client;
use crate::fixture::{Fixture, workunit};
use crate::http::get;
use crate::scheduler::{only_workunit, with_workunits};

fn validated(fixture: &Fixture) -> u64 {
    fixture.server.run_background_work().unwrap();
    fixture.server.counts("p").unwrap().workunits_validated
}

#[test]
fn r6_10_an_agent_that_poses_as_many_hosts_forges_no_quorum() {
    let (fixture, info) = with_workunits(1, 2);
    let key = fixture.server.agent_key("p", &AgentId("evil".into())).unwrap();
    for (name, hostid) in [("one", 0), ("two", 0), ("three", 77), ("four", 1)] {
        let mut posing = Client::with_key(&info, name, key.clone());
        posing.request.hostid = hostid;
        posing.fetch(1.0);
        posing.complete_all("forged");
    }
    assert_eq!(validated(&fixture), 0);
    let view = only_workunit(&fixture);
    assert_eq!(view.jobs.iter().filter(|job| job.host_id != 0).count(), 1, "{view:?}");
    // Two that are two still validate.
    for name in ["a", "b"] {
        let mut honest = Client::new(&fixture, &info, name);
        honest.fetch(1.0);
        honest.complete_all("right");
        fixture.server.run_background_work().unwrap();
    }
    assert_eq!(fixture.server.list_results("p", None, 0).unwrap().items[0].outputs[0].content, b"right");
}

#[test]
fn r6_10_whoever_copies_his_machine_is_one_opinion_also_after_the_first_one_was_taken_out() {
    let (fixture, info) = with_workunits(1, 2);
    let agent = |id: &str| AgentId(id.into());
    let first = fixture.server.agent_key("p", &agent("evil")).unwrap();
    let copy = |id: &str| fixture.server.copy_key("p", &agent(id), &agent("evil")).unwrap();
    let keys = [first, copy("evil2"), copy("evil3")];
    assert!(keys[0] != keys[1] && keys[1] != keys[2]);
    for (name, key) in ["one", "two", "three"].into_iter().zip(&keys) {
        let mut posing = Client::with_key(&info, name, key.clone());
        posing.fetch(1.0);
        posing.complete_all("forged");
    }
    assert_eq!(validated(&fixture), 0);
    let view = only_workunit(&fixture);
    assert_eq!(view.jobs.iter().filter(|job| job.host_id != 0).count(), 1, "{view:?}");
    fixture.server.close_agent(&agent("evil")).unwrap();
    let late = copy("evil4");
    for (name, key) in ["two", "four"].into_iter().zip([keys[1].clone(), late]) {
        let mut posing = Client::with_key(&info, name, key);
        posing.fetch(1.0);
        posing.complete_all("forged");
    }
    assert_eq!(validated(&fixture), 0);
    // The same after a restart, and honest hosts are two.
    assert_eq!(copy("evil2"), keys[1]);
    for name in ["a", "b"] {
        let mut honest = Client::new(&fixture, &info, name);
        honest.fetch(1.0);
        honest.complete_all("right");
        fixture.server.run_background_work().unwrap();
    }
    assert_eq!(fixture.server.list_results("p", None, 0).unwrap().items[0].outputs[0].content, b"right");
}

#[test]
fn r6_10_a_copied_machine_and_the_first_one_end_no_jobs_of_each_other() {
    let (fixture, info) = with_workunits(2, 1);
    let agent = |id: &str| AgentId(id.into());
    let first = fixture.server.agent_key("p", &agent("first")).unwrap();
    let copy = fixture.server.copy_key("p", &agent("copy"), &agent("first")).unwrap();
    let mut first = Client::with_key(&info, "first", first);
    let mut copy = Client::with_key(&info, "copy", copy);
    let jobs = [first.fetch(1.0).results, copy.fetch(1.0).results];
    assert_eq!(jobs.each_ref().map(Vec::len), [1, 1], "{jobs:?}");
    std::mem::swap(&mut first.held, &mut copy.held);
    for client in [&mut first, &mut copy] {
        client.complete_all("spoilt");
    }
    assert_eq!(validated(&fixture), 0);
}

#[test]
fn r6_10_hosts_of_one_account_outside_the_fleet_are_one_opinion_and_two_accounts_are_two() {
    let (fixture, info) = with_workunits(1, 2);
    fixture.set("p", "account-creation", "true");
    let account = |email: &str| -> AccountKey {
        let query = create_query(email, &passwd_hash("secret", email), "Somebody", None);
        match AccountOut::parse(&get(&format!("{}{query}", info.url)).body).unwrap() {
            AccountOut::Authenticator(key) => key,
            other => panic!("{other:?}"),
        }
    };
    let alice = account("alice@example.org");
    for name in ["alice1", "alice2"] {
        let mut client = Client::with_key(&info, name, alice.clone());
        client.fetch(1.0);
        client.complete_all("42");
    }
    assert_eq!(validated(&fixture), 0);
    let mut bob = Client::with_key(&info, "bob", account("bob@example.org"));
    bob.fetch(1.0);
    bob.complete_all("42");
    assert_eq!(validated(&fixture), 1);
}

#[test]
fn r6_10_another_agents_host_number_is_of_no_use() {
    let (fixture, info) = with_workunits(2, 1);
    let mut victim = Client::new(&fixture, &info, "victim");
    victim.rpc();
    let job = victim.fetch(1.0).results[0].name.clone();
    let mut thief = Client::new(&fixture, &info, "thief");
    thief.request.hostid = victim.request.hostid;
    thief.request.rpc_seqno = 1_000_000;
    // It lists nothing: a host that has lost its jobs would be sent them again.
    let got: Vec<String> = thief.fetch(1.0).results.iter().map(|job| job.name.clone()).collect();
    assert!(!got.contains(&job), "{got:?}");
    assert_ne!(thief.request.hostid, victim.request.hostid, "it is told its own number");
    let header = victim.held[&job].clone();
    thief.held.insert(job.clone(), header);
    thief.report(&job, ResultState::ComputeError, 1);
    thief.rpc();
    assert_eq!(victim.rpc().hostid, None, "the victim is still who it was");
    victim.complete_all("right");
    fixture.server.run_background_work().unwrap();
    let results = fixture.server.list_results("p", None, 0).unwrap().items;
    assert_eq!((results.len(), results[0].job.as_str()), (1, job.as_str()));
}

#[test]
fn r6_10_under_one_account_a_host_number_with_another_identity_and_a_count_that_runs_ahead_is_not_believed() {
    let (_fixture, info) = with_workunits(0, 1);
    let mut first = Client::stock(&info, "a");
    assert_eq!(first.rpc().hostid, Some(1));
    let mut other = Client::stock(&info, "b");
    other.request.hostid = 1;
    other.request.rpc_seqno = 1_000_000;
    assert_eq!(other.rpc().hostid, Some(2));
    assert_eq!(first.rpc().hostid, None);
    // A client that was given a new identity by another project goes on counting.
    first.request.host_info.host_cpid = "0123456789abcdef0123456789abcdef".into();
    assert_eq!(first.rpc().hostid, None);
}

#[test]
fn r6_10_an_agent_inherits_nothing_from_a_client_that_was_attached_by_hand() {
    let (fixture, info) = with_workunits(2, 1);
    let mut by_hand = Client::stock(&info, "lab1");
    by_hand.rpc();
    let job = by_hand.fetch(1.0).results[0].name.clone();
    let mut agent = Client::new(&fixture, &info, "agent");
    agent.request.hostid = by_hand.request.hostid;
    agent.request.host_info.host_cpid = by_hand.request.host_info.host_cpid.clone();
    let got: Vec<String> = agent.fetch(1.0).results.iter().map(|job| job.name.clone()).collect();
    assert!(!got.contains(&job), "{got:?}");
    assert_eq!(by_hand.rpc().hostid, None, "the client is still who it was");
    assert_eq!(by_hand.complete_all("right").result_acks, [job]);
}

/// What the second of two copies of an agent's directory is: the same in all that a project sees.
fn copy_of(client: &Client) -> Client {
    Client { url: client.url.clone(), request: client.request.clone(), held: client.held.clone() }
}

#[test]
fn r6_8_copies_of_an_agents_directory_that_both_run_take_no_jobs_from_each_other() {
    let (fixture, info) = with_workunits(4, 1);
    let mut one = Client::new(&fixture, &info, "agent");
    one.rpc();
    one.rpc();
    let mut other = copy_of(&one);
    other.request.host_info.domain_name = "lab2".to_owned();
    let of_one = one.fetch(1.0).results[0].name.clone();
    one.rpc();
    // It counts on from where both began: below where the first is by now.
    let first = other.fetch(1.0);
    let of_other = first.results[0].name.clone();
    assert_ne!(of_one, of_other);
    assert!(first.messages.iter().any(|note| note.text.contains("copied")), "{:?}", first.messages);
    for client in [&mut one, &mut other] {
        for _ in 0..8 {
            let reply = client.rpc();
            assert!(reply.results.is_empty() && reply.result_aborts.is_empty(), "{reply:?}");
        }
    }
    for client in [&mut one, &mut other] {
        client.complete_all("42");
    }
    fixture.server.run_background_work().unwrap();
    let done = fixture.server.list_results("p", None, 0).unwrap().items;
    let done: Vec<_> = done.iter().map(|item| item.job.as_str()).collect();
    assert_eq!(done.len(), 2, "{done:?}");
    assert!(done.contains(&of_one.as_str()) && done.contains(&of_other.as_str()), "{done:?}");
}

#[test]
fn r6_8_a_stock_client_restored_from_an_older_copy_gets_a_new_number_and_its_work_still_counts() {
    let (fixture, info) = with_workunits(3, 1);
    let mut client = Client::stock(&info, "lab");
    client.rpc();
    let mut restored = copy_of(&client);
    let done = client.fetch(1.0).results[0].name.clone();
    let running = client.fetch(1.0).results[0].name.clone();
    // Its jobs came before the copy was made, and its count from another project's disk.
    restored.held = client.held.clone();
    restored.request.code_sign_key = client.request.code_sign_key.clone();
    assert_eq!(restored.upload(&done, b"42").status.code(), 0);
    restored.report(&done, ResultState::Uploaded, 0);
    let reply = restored.rpc();
    assert_eq!((reply.hostid, reply.result_acks), (Some(2), vec![done]));
    assert!(reply.result_aborts.is_empty(), "{:?}", reply.result_aborts);
    assert_eq!(validated(&fixture), 1);
    assert!(restored.held.contains_key(&running));
    restored.complete_all("43");
    assert_eq!(validated(&fixture), 2);
    // Another account has no say in it.
    let other = restored.fetch(1.0).results[0].name.clone();
    let mut stranger = Client::new(&fixture, &info, "stranger");
    stranger.held.insert(other.clone(), restored.held[&other].clone());
    assert_eq!(stranger.rpc().result_aborts, [other.as_str()]);
    stranger.report(&other, ResultState::ComputeError, 1);
    stranger.rpc();
    restored.complete_all("44");
    assert_eq!(validated(&fixture), 3);
}

#[test]
fn r6_8_an_agent_that_asks_under_its_last_number_again_after_a_power_cut_is_no_copy() {
    let (fixture, info) = with_workunits(2, 1);
    let mut agent = Client::new(&fixture, &info, "agent");
    agent.rpc();
    agent.rpc();
    let mut after = copy_of(&agent);
    let lost = agent.fetch(1.0).results[0].name.clone();
    // Neither its count nor its job reached the disk.
    after.request.host_info.domain_name = "renamed".to_owned();
    let reply = after.rpc();
    assert!(reply.messages.is_empty(), "{:?}", reply.messages);
    assert_eq!(reply.results[0].name, lost, "sent again at once");
    assert_eq!(after.complete_all("42").result_acks, [lost]);
    assert_eq!(validated(&fixture), 1);
}

#[test]
fn r6_8_a_job_that_a_restored_agent_has_lost_is_sent_again_when_no_copy_has_shown_for_a_day() {
    let (fixture, info) = with_workunits(0, 1);
    let day = fallow_domain::Duration::from_hours(24);
    let long = NewWorkunit { delay_bound: day * 30, ..workunit("app", "x", 1e11, 1) };
    fixture.server.submit("p", vec![long]).unwrap();
    let mut agent = Client::new(&fixture, &info, "agent");
    agent.rpc();
    agent.rpc();
    let mut restored = copy_of(&agent);
    let lost = agent.fetch(1.0).results[0].name.clone();
    agent.rpc();
    assert!(restored.rpc().results.is_empty());
    assert!(restored.rpc().results.is_empty());
    fixture.advance(fallow_domain::Duration::from_hours(23));
    assert!(restored.rpc().results.is_empty());
    fixture.advance(fallow_domain::Duration::from_hours(2));
    assert_eq!(restored.rpc().results[0].name, lost);
}

#[test]
fn r6_8_a_sign_of_a_copy_from_before_the_clock_was_set_back_keeps_no_lost_job_from_being_sent_again() {
    let (fixture, info) = with_workunits(0, 1);
    let year = fallow_domain::Duration::from_hours(24 * 365);
    let mut agent = Client::new(&fixture, &info, "agent");
    agent.rpc();
    agent.rpc();
    let mut restored = copy_of(&agent);
    agent.rpc();
    agent.rpc();
    fixture.advance(year);
    let told = restored.rpc().messages;
    assert!(told.iter().any(|note| note.text.contains("copied")), "{told:?}");
    fixture.advance(year * -1);
    fixture.server.submit("p", vec![workunit("app", "x", 1e11, 1)]).unwrap();
    let lost = restored.fetch(1.0).results[0].name.clone();
    restored.held.clear();
    assert_eq!(restored.rpc().results[0].name, lost);
}

#[test]
fn r6_8_copies_that_run_when_the_clock_is_set_back_a_little_take_no_jobs_from_each_other() {
    let (fixture, info) = with_workunits(2, 1);
    let mut one = Client::new(&fixture, &info, "agent");
    one.rpc();
    one.rpc();
    let mut other = copy_of(&one);
    assert_eq!(one.fetch(1.0).results.len(), 1);
    one.rpc();
    let told = other.fetch(1.0);
    assert!(told.messages.iter().any(|note| note.text.contains("copied")), "{:?}", told.messages);
    assert_eq!(told.results.len(), 1);
    fixture.advance(fallow_domain::Duration::from_mins(-10));
    let reply = one.rpc();
    assert!(reply.results.is_empty() && reply.result_aborts.is_empty(), "{reply:?}");
}

#[test]
fn r6_10_an_agents_key_is_the_same_after_a_restart_and_nobody_elses() {
    let (mut fixture, info) = with_workunits(1, 1);
    fixture.project("q");
    let key = |fixture: &Fixture, project: &str, agent: &str| {
        fixture.server.agent_key(project, &AgentId(agent.into())).unwrap()
    };
    let before = [key(&fixture, "p", "a"), key(&fixture, "p", "b"), key(&fixture, "q", "a")];
    assert!(before.iter().all(|key| key.reveal().len() == 32 && *key != info.account_key));
    assert!(before[0] != before[1] && before[0] != before[2]);
    let mut client = Client::new(&fixture, &info, "a");
    client.fetch(1.0);
    fixture.restart();
    assert_eq!(before, [key(&fixture, "p", "a"), key(&fixture, "p", "b"), key(&fixture, "q", "a")]);
    assert_eq!(client.rpc().hostid, None);
}

#[test]
fn r6_10_jobs_of_a_host_that_was_taken_out_of_the_fleet_go_to_others_before_their_deadlines() {
    let (fixture, info) = with_workunits(1, 1);
    let (mut stolen, mut other) = (Client::new(&fixture, &info, "a"), Client::new(&fixture, &info, "b"));
    assert_eq!(stolen.fetch(1.0).results.len(), 1);
    assert!(other.fetch(1.0).results.is_empty(), "it is on its way on the other");
    fixture.server.close_agent(&AgentId("a".into())).unwrap();
    // A copy that is lost rests, as one that failed does; long before the deadline it is sent.
    fixture.advance(fallow_domain::Duration::from_hours(2));
    assert_eq!(other.fetch(1.0).results.len(), 1);
}

#[test]
fn r6_8_credit_is_granted_for_valid_work_and_told_to_its_host() {
    let fixture = Fixture::start();
    let info = fixture.project("p");
    fixture.script("p", "app");
    fixture.server.submit("p", vec![workunit("app", "x", 1e11, 2)]).unwrap();
    let (mut a, mut b) = (Client::new(&fixture, &info, "a"), Client::new(&fixture, &info, "b"));
    a.request.host_info.p_fpops = 2e9;
    b.request.host_info.p_fpops = 3e9;
    for client in [&mut a, &mut b] {
        client.fetch(1.0);
        fixture.advance(fallow_domain::Duration::from_mins(1));
        assert_eq!(client.complete_all("42").user_total_credit, Some(0.0));
    }
    assert_eq!(validated(&fixture), 1);
    // 12 s of CPU time on two GFLOPS, the lower of the two claims.
    let granted = 12.0 / 86_400.0 * 2.0 * 200.0;
    for client in [&mut a, &mut b] {
        let reply = client.rpc();
        for total in [reply.user_total_credit, reply.host_total_credit] {
            assert!((total.unwrap() - granted).abs() < 1e-5, "{reply:?}");
        }
        let average = reply.host_expavg_credit.unwrap();
        assert!(average > 0.0 && average < granted, "{average}");
    }
}

#[test]
fn r6_8_a_sign_of_a_copy_that_lies_ahead_lasts_no_longer_than_one_of_now() {
    let (fixture, info) = with_workunits(0, 1);
    let mut agent = Client::new(&fixture, &info, "agent");
    agent.rpc();
    agent.rpc();
    let mut restored = copy_of(&agent);
    agent.rpc();
    agent.rpc();
    fixture.advance(Duration::from_hours(23));
    let told = restored.rpc().messages;
    assert!(told.iter().any(|note| note.text.contains("copied")), "{told:?}");
    fixture.advance(Duration::from_hours(-23));
    let long = NewWorkunit { delay_bound: Duration::from_hours(30 * 24), ..workunit("app", "x", 1e11, 1) };
    fixture.server.submit("p", vec![long]).unwrap();
    let lost = restored.fetch(1.0).results[0].name.clone();
    restored.held.clear();
    let mut hours = 0;
    while restored.rpc().results.first().is_none_or(|job| job.name != lost) {
        hours += 1;
        fixture.advance(Duration::from_hours(1));
        assert!(hours <= 25, "a lost job is not sent again");
    }
}
