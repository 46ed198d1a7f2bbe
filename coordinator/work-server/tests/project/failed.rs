//! Jobs that fail: who gets them next, who is told what, and how it ends.

use fallow_boinc::scheduler::{DiskUsage, ResultState};
use fallow_domain::{AgentId, Bytes, Duration};
use fallow_work_server::{NewWorkunit, Rules, ServerState, WorkunitStatus};

use crate::client::Client;
use crate::fixture::{Fixture, workunit};
use crate::scheduler::{messages, only_workunit, with_workunits};
use crate::types::{gpu_client, with_both};

fn fail(client: &mut Client) {
    let jobs: Vec<String> = client.held.keys().cloned().collect();
    assert_eq!(jobs.len(), 1);
    client.report(&jobs[0], ResultState::ComputeError, 65);
    client.request.results[0].stderr_out.stderr_txt = "no such table".into();
    client.rpc();
}

/// New jobs since the last call, and how many agents are to be told.
fn told(fixture: &Fixture) -> (u64, u64) {
    let new = fixture.server.take_new_jobs();
    new.iter().fold((0, 0), |(jobs, agents), (_, new)| (jobs + new.jobs, agents + new.agents))
}

#[test]
fn r6_8_the_only_host_gets_a_failed_job_again_until_the_workunit_ends_with_its_reason() {
    let (fixture, info) = with_workunits(1, 1);
    let mut client = Client::new(&fixture, &info, "only");
    for (attempt, pause) in [(1, 0), (2, 30), (3, 60), (4, 120)] {
        fixture.advance(Duration::from_secs(pause + 1));
        assert_eq!(client.fetch(1.0).results.len(), 1, "attempt {attempt}");
        fail(&mut client);
    }
    let view = only_workunit(&fixture);
    let reason = "4 jobs in error, 3 allowed; the last ended with exit status 65: no such table";
    assert_eq!((view.state, view.error.as_str()), (WorkunitStatus::Failed, reason));
    assert!(messages(&client.fetch(1.0)).contains("Project has no tasks available"));
}

/// It gets each copy five times over, then the next after a while, as after an error. Another host gets one
/// at once.
#[test]
fn r6_10_a_host_that_lists_none_of_its_jobs_uses_up_no_workunit_in_minutes() {
    let (fixture, info) = with_workunits(1, 1);
    let mut forgetful = Client::new(&fixture, &info, "forgetful");
    let copies = |fixture: &Fixture| {
        let view = only_workunit(fixture);
        assert_eq!(view.state, WorkunitStatus::Active, "{}", view.error);
        view.jobs.len()
    };
    for _ in 0..60 {
        forgetful.fetch(1.0);
        forgetful.held.clear();
        fixture.advance(Duration::from_secs(10));
    }
    assert!((3..=5).contains(&copies(&fixture)), "{}", copies(&fixture));
    while only_workunit(&fixture).jobs.iter().all(|job| job.state != ServerState::Unsent) {
        forgetful.fetch(1.0);
        forgetful.held.clear();
    }
    let reply = forgetful.fetch(1.0);
    assert!(reply.results.is_empty(), "{:?}", reply.results);
    let mut sound = Client::new(&fixture, &info, "sound");
    assert_eq!(sound.fetch(1.0).results.len(), 1);
}

/// Losses of two accounts, as errors of two, put a workunit off for everybody; and none of them uses it up.
#[test]
fn r6_10_accounts_that_list_none_of_their_jobs_use_up_no_workunit_together() {
    let (fixture, info) = with_workunits(1, 1);
    let mut forgetful = ["a", "b", "c", "d", "e", "f"].map(|name| Client::new(&fixture, &info, name));
    for _ in 0..15 {
        for client in &mut forgetful {
            client.fetch(1.0);
            client.held.clear();
        }
    }
    let view = only_workunit(&fixture);
    assert_eq!((view.state, view.jobs.len()), (WorkunitStatus::Active, 3), "{}", view.error);
    let mut sound = Client::new(&fixture, &info, "sound");
    let told = messages(&sound.fetch(1.0));
    assert!(told.contains("1 job that failed is tried again in "), "{told}");
    fixture.advance(Duration::from_secs(61));
    assert_eq!(sound.fetch(1.0).results.len(), 1);
}

#[test]
fn r6_10_a_loss_and_an_error_of_two_accounts_put_a_workunit_off_for_everybody() {
    let (fixture, info) = with_workunits(1, 1);
    let [mut forgetful, mut broken, mut sound] =
        ["forgetful", "broken", "sound"].map(|name| Client::new(&fixture, &info, name));
    for _ in 0..6 {
        forgetful.fetch(1.0);
        forgetful.held.clear();
    }
    assert_eq!(broken.fetch(1.0).results.len(), 1);
    fail(&mut broken);
    let told = messages(&sound.fetch(1.0));
    assert!(told.contains("1 job that failed is tried again in "), "{told}");
    fixture.advance(Duration::from_secs(61));
    assert_eq!(sound.fetch(1.0).results.len(), 1);
}

/// One owner who does not want it leaves it to the next at once. Two of them put it off for everybody.
#[test]
fn r6_10_accounts_whose_owners_abort_a_job_use_up_no_workunit_at_once() {
    let (fixture, info) = with_workunits(1, 1);
    let mut unwilling = ["a", "b", "c", "d"].map(|name| Client::new(&fixture, &info, name));
    let mut had = 0;
    for client in &mut unwilling {
        client.fetch(1.0);
        for job in client.held.keys().cloned().collect::<Vec<_>>() {
            had += 1;
            client.report(&job, ResultState::Aborted, 203);
            client.rpc();
        }
    }
    assert_eq!((had, only_workunit(&fixture).state), (2, WorkunitStatus::Active));
    let mut willing = Client::new(&fixture, &info, "willing");
    let told = messages(&willing.fetch(1.0));
    assert!(told.contains("1 job that failed is tried again in "), "{told}");
    fixture.advance(Duration::from_secs(61));
    assert_eq!(willing.fetch(1.0).results.len(), 1);
}

#[test]
fn r6_8_a_failed_job_goes_to_another_host_first_and_who_waits_for_that_is_told_so() {
    let (fixture, info) = with_workunits(1, 1);
    let (mut broken, mut sound) =
        (Client::new(&fixture, &info, "broken"), Client::new(&fixture, &info, "sound"));
    assert_eq!(broken.fetch(1.0).results.len(), 1);
    assert_eq!(sound.fetch(1.0).results.len(), 0);
    fail(&mut broken);
    let reply = broken.fetch(1.0);
    let reason = "1 job waits for a host that has not failed it";
    assert!(reply.results.is_empty() && messages(&reply).contains(reason), "{}", messages(&reply));
    assert!(!messages(&reply).contains("no tasks"), "{}", messages(&reply));
    assert_eq!(fixture.server.project("p").unwrap().last_refusal.unwrap().reason, reason);
    let waiting = |fixture: &Fixture| {
        let view = only_workunit(fixture);
        let job = view.jobs.into_iter().find(|job| job.state == ServerState::Unsent).unwrap();
        job.waits_for
    };
    assert_eq!(waiting(&fixture), "a host that has not failed it");
    // The other one is gone. After a day nobody waits for it any more.
    fixture.advance(Duration::from_hours(25));
    assert_eq!(waiting(&fixture), "");
    assert_eq!(broken.fetch(1.0).results.len(), 1);
    fail(&mut broken);
    assert_eq!(sound.fetch(1.0).results.len(), 1);
    sound.complete_all("x");
    assert_eq!(only_workunit(&fixture).state, WorkunitStatus::Validated);
}

#[test]
fn r6_8_a_failed_job_waits_for_no_host_that_was_taken_out_of_the_fleet() {
    for restarts in [false, true] {
        let (mut fixture, info) = with_workunits(1, 1);
        let [mut broken, mut gone] = ["broken", "gone"].map(|name| Client::new(&fixture, &info, name));
        assert_eq!([broken.fetch(1.0), gone.fetch(1.0)].map(|reply| reply.results.len()), [1, 0]);
        fail(&mut broken);
        fixture.server.close_agent(&AgentId("gone".into())).unwrap();
        if restarts {
            fixture.restart();
        }
        fixture.advance(Duration::from_secs(31));
        let view = only_workunit(&fixture);
        assert_eq!(view.jobs[1].waits_for, "");
        let reply = broken.fetch(1.0);
        assert_eq!(reply.results.len(), 1, "{}", messages(&reply));
    }
}

#[test]
fn r6_8_a_job_that_fails_wherever_it_is_tried_pauses_longer_each_time_and_a_restart_forgets_nothing() {
    let (mut fixture, info) = with_workunits(1, 1);
    let clients = ["a", "b", "fresh"].map(|name| Client::new(&fixture, &info, name));
    let [mut a, mut b, mut fresh] = clients;
    assert_eq!((a.fetch(1.0).results.len(), b.fetch(1.0).results.len()), (1, 0));
    fail(&mut a);
    assert_eq!(b.fetch(1.0).results.len(), 1, "another host tries it at once");
    fail(&mut b);
    for pause in [60, 120] {
        fixture.advance(Duration::from_secs(pause - 20));
        fixture.restart();
        for client in [&mut a, &mut b, &mut fresh] {
            let reply = client.fetch(1.0);
            assert!(reply.results.is_empty(), "{}", messages(&reply));
            assert!(
                messages(&reply).contains("1 job that failed is tried again in "),
                "{}",
                messages(&reply)
            );
        }
        let view = only_workunit(&fixture);
        let waiting = view.jobs.iter().find(|job| job.state == ServerState::Unsent).unwrap();
        assert!(waiting.waits_for.starts_with("its next attempt in "), "{}", waiting.waits_for);
        fixture.advance(Duration::from_secs(20));
        let mut had = Vec::new();
        for client in [&mut a, &mut b, &mut fresh] {
            had.extend((client.fetch(1.0).results.len() == 1).then_some(client));
        }
        assert_eq!(had.len(), 1);
        fail(had[0]);
    }
    assert_eq!(only_workunit(&fixture).state, WorkunitStatus::Failed);
}

#[test]
fn r6_8_agents_are_told_when_a_job_that_failed_may_be_had_again() {
    let (fixture, info) = with_workunits(1, 1);
    let told = || told(&fixture);
    let mut clients = ["a", "b"].map(|name| Client::new(&fixture, &info, name));
    assert_eq!(told(), (1, 1), "as it is submitted");
    assert_eq!(clients[0].fetch(1.0).results.len(), 1);
    fail(&mut clients[0]);
    assert_eq!(
        (told(), told()),
        ((1, 2), (0, 0)),
        "another one may try it at once: this one may be told in vain"
    );
    fixture.advance(Duration::from_secs(32));
    assert_eq!((told(), told()), ((0, 2), (0, 0)), "the same one too, if there is no other");
    assert_eq!(clients[1].fetch(1.0).results.len(), 1);
    fail(&mut clients[1]);
    assert_eq!(told(), (1, 0), "it is put off");
    fixture.advance(Duration::from_secs(62));
    assert_eq!((told(), told()), ((0, 3), (0, 0)));
}

#[test]
fn r6_8_agents_are_told_of_the_end_of_a_rest_that_a_restart_forgot() {
    let (mut fixture, info) = with_workunits(1, 1);
    let [mut a, mut b] = ["a", "b"].map(|name| Client::new(&fixture, &info, name));
    for client in [&mut a, &mut b] {
        assert_eq!(client.fetch(1.0).results.len(), 1);
        fail(client);
    }
    fixture.restart();
    assert_eq!(told(&fixture), (0, 0));
    // Those who come back ask at once, in vain, and more than once.
    assert_eq!([&mut a, &mut b].map(|client| client.fetch(1.0).results.len()), [0, 0]);
    assert_eq!(a.fetch(1.0).results.len(), 0);
    assert_eq!(told(&fixture), (0, 0), "it is put off");
    fixture.advance(Duration::from_secs(62));
    assert_eq!((told(&fixture), told(&fixture)), ((0, 3), (0, 0)));
}

#[test]
fn r6_8_agents_are_told_of_the_end_of_a_rest_that_an_error_reported_late_has_begun() {
    let (fixture, info) = with_workunits(1, 1);
    let mut late = Client::new(&fixture, &info, "late");
    assert_eq!(late.fetch(1.0).results.len(), 1);
    fixture.advance(Duration::from_hours(25));
    fixture.server.run_background_work().unwrap();
    assert_eq!(told(&fixture).0, 2, "as it is submitted, and once more");
    fail(&mut late);
    assert_eq!(told(&fixture), (0, 0));
    fixture.advance(Duration::from_secs(32));
    assert_eq!(told(&fixture), (0, 2));
}

#[test]
fn r6_8_a_job_waits_for_no_time_to_come_when_the_clock_was_set_back() {
    let (fixture, info) = with_workunits(1, 1);
    let mut only = Client::new(&fixture, &info, "only");
    assert_eq!(only.fetch(1.0).results.len(), 1);
    fail(&mut only);
    assert_eq!(only.fetch(1.0).results.len(), 0);
    fixture.advance(Duration::from_hours(-24 * 365));
    assert_eq!(only.fetch(1.0).results.len(), 1);
    // Nor for a host that cannot take it and asks all the time.
    let (fixture, info) = with_workunits(1, 1);
    let [mut able, mut small] = ["able", "small"].map(|name| Client::new(&fixture, &info, name));
    small.request.host_info.m_nbytes = 1_000.0;
    assert_eq!(able.fetch(1.0).results.len(), 1);
    fail(&mut able);
    assert_eq!(small.fetch(1.0).results.len(), 0);
    fixture.advance(Duration::from_hours(-24 * 365));
    assert_eq!(small.fetch(1.0).results.len(), 0);
    let reply = able.fetch(1.0);
    assert_eq!(reply.results.len(), 1, "{}", messages(&reply));
    // From then on it is as ever.
    fail(&mut able);
    let told = messages(&able.fetch(1.0));
    assert!(told.contains("1 job waits for a host that has not failed it"), "{told}");
    fixture.advance(Duration::from_mins(31));
    assert_eq!(small.fetch(1.0).results.len(), 0);
    assert_eq!(able.fetch(1.0).results.len(), 1);
}

#[test]
fn r6_8_a_failed_job_backs_off_after_the_clock_was_set_back_as_before() {
    let (fixture, info) = with_workunits(1, 1);
    let mut only = Client::new(&fixture, &info, "only");
    assert_eq!(only.fetch(1.0).results.len(), 1);
    fail(&mut only);
    fixture.advance(Duration::from_hours(-24 * 365));
    assert_eq!(only.fetch(1.0).results.len(), 1);
    fail(&mut only);
    let told = messages(&only.fetch(1.0));
    assert!(told.contains("1 job that failed is tried again in "), "{told}");
    fixture.advance(Duration::from_secs(61));
    assert_eq!(only.fetch(1.0).results.len(), 1);
}

#[test]
fn r6_8_agents_are_told_once_of_a_copy_that_comes_long_after_the_last_error() {
    let (fixture, info) = with_workunits(1, 1);
    let [mut failed, mut gone] = ["failed", "gone"].map(|name| Client::new(&fixture, &info, name));
    assert_eq!(failed.fetch(1.0).results.len(), 1);
    fail(&mut failed);
    assert_eq!(gone.fetch(1.0).results.len(), 1);
    fixture.advance(Duration::from_mins(1));
    assert_eq!(told(&fixture), (2, 1 + 2 + 2), "as it is submitted, at once, and after its backoff");
    fixture.advance(Duration::from_hours(30 * 24));
    fixture.server.run_background_work().unwrap();
    assert_eq!((told(&fixture), told(&fixture)), ((1, 3), (0, 0)));
}

#[test]
fn r6_11_a_job_of_a_quorum_that_cannot_be_met_yet_says_how_many_hosts_there_are() {
    let (fixture, info) = with_workunits(0, 1);
    let rules = Rules { quorum: 20, initial_jobs: 20, max_error_jobs: 3, max_total_jobs: 30 };
    let many = NewWorkunit { rules, ..workunit("app", "x", 1e11, 1) };
    fixture.server.submit("p", vec![many]).unwrap();
    assert_eq!(only_workunit(&fixture).jobs[0].waits_for, "", "any host");
    let clients = ["a", "b"].map(|name| Client::new(&fixture, &info, name));
    for mut client in clients {
        assert_eq!(client.fetch(1.0).results.len(), 1);
    }
    assert_eq!(fixture.server.accounts_outside("p").unwrap(), 0);
    let view = only_workunit(&fixture);
    let waiting = view.jobs.iter().find(|job| job.state == ServerState::Unsent).unwrap();
    assert_eq!(waiting.waits_for, "another host: 20 needed, 2 ask for work");
    let mut outside = Client::stock(&info, "c");
    assert_eq!(outside.fetch(1.0).results.len(), 1);
    assert_eq!(fixture.server.accounts_outside("p").unwrap(), 1);
    fixture.advance(Duration::from_hours(25));
    assert_eq!(fixture.server.accounts_outside("p").unwrap(), 0);
}

#[test]
fn r6_11_a_job_of_a_quorum_does_not_count_hosts_that_failed_it_and_are_gone() {
    let (fixture, info) = with_workunits(1, 2);
    let [mut failed, mut sound] = ["failed", "sound"].map(|name| Client::new(&fixture, &info, name));
    assert_eq!([failed.fetch(1.0), sound.fetch(1.0)].map(|reply| reply.results.len()), [1, 1]);
    fail(&mut failed);
    sound.complete_all("x");
    fixture.advance(Duration::from_hours(25));
    assert_eq!(sound.fetch(1.0).results.len(), 0);
    let waiting = || only_workunit(&fixture).jobs[2].waits_for.clone();
    assert_eq!(waiting(), "a host that has not failed it: 2 needed, 1 asks for work");
    assert_eq!(failed.fetch(1.0).results.len(), 1, "there is nobody else");
    fail(&mut failed);
    fixture.advance(Duration::from_mins(2));
    let jobs = only_workunit(&fixture).jobs;
    assert_eq!(jobs[3].waits_for, "", "it is there again");
}

#[test]
fn r6_10_a_host_that_is_always_first_to_ask_does_not_use_up_the_attempts_of_one_that_failed_once() {
    let (fixture, info) = with_workunits(1, 1);
    let [mut broken, mut unlucky] = ["broken", "unlucky"].map(|name| Client::new(&fixture, &info, name));
    assert_eq!([broken.fetch(1.0), unlucky.fetch(1.0)].map(|reply| reply.results.len()), [1, 0]);
    fail(&mut broken);
    assert_eq!(unlucky.fetch(1.0).results.len(), 1);
    fail(&mut unlucky);
    for _ in 0..100 {
        fixture.advance(Duration::from_secs(20));
        if broken.fetch(1.0).results.len() == 1 {
            fail(&mut broken);
        }
    }
    let view = only_workunit(&fixture);
    assert_eq!((view.state, view.jobs.len()), (WorkunitStatus::Active, 4), "{}", view.error);
    let told = messages(&broken.fetch(1.0));
    assert!(told.contains("1 job waits for a host that has failed it less often"), "{told}");
    let jobs = only_workunit(&fixture).jobs;
    let unsent = jobs.iter().find(|job| job.state == ServerState::Unsent).unwrap();
    assert_eq!(unsent.waits_for, "a host that has failed it less often");
    assert_eq!(unlucky.fetch(1.0).results.len(), 1);
    unlucky.complete_all("x");
    assert_eq!(only_workunit(&fixture).state, WorkunitStatus::Validated);
}

#[test]
fn r6_8_a_broken_host_that_is_always_idle_does_not_end_workunits_while_sound_hosts_are_busy() {
    let (fixture, info) = with_workunits(1, 1);
    let (mut broken, mut sound) =
        (Client::new(&fixture, &info, "broken"), Client::new(&fixture, &info, "sound"));
    assert_eq!(sound.fetch(1.0).results.len(), 1);
    fixture.server.submit("p", vec![workunit("app", "y", 1e11, 1)]).unwrap();
    assert_eq!(broken.fetch(1.0).results.len(), 1);
    fail(&mut broken);
    // The sound one computes for hours, and asks for nothing meanwhile.
    for attempt in 1..=12 {
        fixture.advance(Duration::from_mins(31));
        assert_eq!(broken.fetch(1.0).results.len(), 0, "attempt {attempt}");
    }
    sound.complete_all("x");
    assert_eq!(sound.fetch(1.0).results.len(), 1);
    sound.complete_all("y");
    fixture.server.run_background_work().unwrap();
    assert_eq!(fixture.server.counts("p").unwrap().workunits_validated, 2);
}

#[test]
fn r6_8_a_busy_host_is_waited_for_also_while_it_asks_for_its_gpu_alone() {
    let (fixture, info) = with_both(0);
    fixture.server.submit("p", vec![workunit("cpu", "x", 1e11, 1)]).unwrap();
    let mut busy = gpu_client(&fixture, &info, "busy", 0.0, 0.0);
    assert_eq!(busy.fetch(1.0).results.len(), 1);
    fixture.server.submit("p", vec![workunit("cpu", "y", 1e11, 1)]).unwrap();
    let mut broken = Client::new(&fixture, &info, "broken");
    assert_eq!(broken.fetch(1.0).results.len(), 1);
    fail(&mut broken);
    busy.request.coprocs[0].req_secs = 1.0;
    busy.request.coprocs[0].req_instances = 1.0;
    for attempt in 1..=12 {
        assert_eq!(busy.rpc().results.len(), 0, "its CPUs have enough");
        fixture.advance(Duration::from_mins(5));
        assert_eq!(broken.fetch(1.0).results.len(), 0, "attempt {attempt}");
    }
    busy.complete_all("x");
    assert_eq!(busy.fetch(1.0).results.len(), 1);
}

#[test]
fn r6_8_a_failed_job_waits_half_an_hour_for_an_idle_host_that_cannot_take_it() {
    let (fixture, info) = with_workunits(1, 1);
    let (mut broken, mut small) =
        (Client::new(&fixture, &info, "broken"), Client::new(&fixture, &info, "small"));
    small.request.host_info.m_nbytes = 1_000.0;
    assert_eq!(broken.fetch(1.0).results.len(), 1);
    fail(&mut broken);
    fixture.advance(Duration::from_mins(5));
    let told = messages(&small.fetch(1.0));
    assert!(told.contains("MB RAM"), "{told}");
    assert_eq!(broken.fetch(1.0).results.len(), 0);
    fixture.advance(Duration::from_mins(31));
    assert_eq!(broken.fetch(1.0).results.len(), 1);
}

#[test]
fn r6_10_who_loses_a_job_again_and_again_does_not_put_off_who_waits_to_try_a_failed_one_again() {
    let (fixture, info) = with_workunits(0, 1);
    let long = NewWorkunit { delay_bound: Duration::from_hours(24 * 30), ..workunit("app", "x", 1e11, 2) };
    fixture.server.submit("p", vec![long]).unwrap();
    let [mut forgetful, mut failed, mut small] =
        ["forgetful", "failed", "small"].map(|name| Client::new(&fixture, &info, name));
    assert_eq!([forgetful.fetch(1.0), failed.fetch(1.0)].map(|reply| reply.results.len()), [1, 1]);
    fail(&mut failed);
    small.request.host_info.m_nbytes = 1_000.0;
    for _ in 0..2 {
        fixture.advance(Duration::from_mins(16));
        assert_eq!(small.fetch(1.0).results.len(), 0);
        forgetful.held.clear();
        assert_eq!(forgetful.rpc().results.len(), 1, "sent again");
    }
    let reply = failed.fetch(1.0);
    assert_eq!(reply.results.len(), 1, "{}", messages(&reply));
}

#[test]
fn r6_8_a_failed_gpu_job_waits_half_an_hour_for_hosts_without_a_gpu_that_get_other_work() {
    let (fixture, info) = with_both(1);
    fixture.server.submit("p", vec![workunit("cpu", "x", 1e11, 1); 9]).unwrap();
    let mut only = gpu_client(&fixture, &info, "only", 1.0, 0.0);
    let mut without = Client::new(&fixture, &info, "without");
    assert_eq!(without.fetch(1.0).results.len(), 1);
    assert_eq!(only.rpc().results.len(), 1);
    fail(&mut only);
    for _ in 0..6 {
        assert_eq!(only.rpc().results.len(), 0);
        assert_eq!(without.fetch(1.0).results.len(), 1, "it gets work of its own");
        fixture.advance(Duration::from_mins(5));
    }
    let reply = only.rpc();
    assert_eq!(reply.results.len(), 1, "{}", messages(&reply));
}

#[test]
fn r6_8_a_failed_job_waits_half_an_hour_for_a_host_with_too_little_memory_that_has_enough_to_do() {
    let (fixture, info) = with_workunits(1, 1);
    fixture.set("p", "jobs-per-cpu", "1");
    let (mut broken, mut small) =
        (Client::new(&fixture, &info, "broken"), Client::new(&fixture, &info, "small"));
    small.request.host_info.m_nbytes = 1_000.0;
    small.request.host_info.p_ncpus = 1;
    assert_eq!(broken.fetch(1.0).results.len(), 1);
    fail(&mut broken);
    let light = NewWorkunit { memory_bound: Bytes(100), ..workunit("app", "y", 1e11, 1) };
    fixture.server.submit("p", vec![light]).unwrap();
    assert_eq!(small.fetch(1.0).results.len(), 1);
    assert_eq!(broken.fetch(1.0).results.len(), 0);
    fixture.advance(Duration::from_mins(31));
    let told = messages(&small.fetch(1.0));
    assert!(told.contains("limit on tasks in progress"), "{told}");
    assert_eq!(broken.fetch(1.0).results.len(), 1);
}

#[test]
fn r6_8_a_failed_job_waits_for_a_host_whose_disk_is_full_of_jobs_as_for_any_busy_one() {
    let (fixture, info) = with_workunits(1, 1);
    let (mut broken, mut busy) =
        (Client::new(&fixture, &info, "broken"), Client::new(&fixture, &info, "busy"));
    assert_eq!(busy.fetch(1.0).results.len(), 1);
    fixture.server.submit("p", vec![workunit("app", "y", 1e11, 1)]).unwrap();
    assert_eq!(broken.fetch(1.0).results.len(), 1);
    fail(&mut broken);
    // What it holds takes all of its disk.
    let free = std::mem::replace(&mut busy.request.host_info.d_free, 0.0);
    busy.request.disk_usage = DiskUsage::default();
    for _ in 0..8 {
        let told = messages(&busy.fetch(1.0));
        assert!(told.contains("of disk space"), "{told}");
        fixture.advance(Duration::from_mins(5));
        assert_eq!(broken.fetch(1.0).results.len(), 0);
    }
    busy.request.host_info.d_free = free;
    busy.complete_all("x");
    assert_eq!(busy.fetch(1.0).results.len(), 1);
}

#[test]
fn r6_8_hosts_of_one_account_outside_the_fleet_are_told_of_the_account() {
    let (fixture, info) = with_workunits(1, 2);
    let (mut first, mut second) = (Client::stock(&info, "first"), Client::stock(&info, "second"));
    assert_eq!(first.fetch(1.0).results.len(), 1);
    let told = messages(&second.fetch(1.0));
    let reason = "1 job waits for another account: this one has a copy of it, or has computed one";
    assert!(told.contains(reason), "{told}");
    assert_eq!(only_workunit(&fixture).jobs[1].waits_for, "another account: 2 needed, 1 asks for work");
    fail(&mut first);
    fixture.advance(Duration::from_mins(1));
    assert_eq!(
        only_workunit(&fixture).jobs[1].waits_for,
        "an account that has not failed it: 2 needed, 1 asks for work"
    );
}

#[test]
fn r6_8_a_job_that_waits_for_a_second_opinion_says_so() {
    let (fixture, info) = with_workunits(1, 2);
    let mut client = Client::new(&fixture, &info, "only");
    client.fetch(1.0);
    client.complete_all("42");
    let told = messages(&client.fetch(1.0));
    assert!(told.contains("1 job waits for another host"), "{told}");
    assert_eq!(only_workunit(&fixture).jobs[1].waits_for, "another host: 2 needed, 1 asks for work");
}

#[test]
fn r6_8_whoever_asks_first_does_not_use_up_the_attempts_beside_a_host_that_cannot_run_the_job() {
    let (fixture, info) = with_both(1);
    fixture.server.submit("p", vec![workunit("cpu", "x", 1e11, 1); 99]).unwrap();
    let mut broken = gpu_client(&fixture, &info, "broken", 1.0, 0.0);
    let mut unlucky = gpu_client(&fixture, &info, "unlucky", 1.0, 0.0);
    let mut without = Client::new(&fixture, &info, "without");
    assert_eq!(without.fetch(1.0).results.len(), 1);
    for host in [&mut broken, &mut unlucky] {
        assert_eq!(host.rpc().results.len(), 1);
        fail(host);
    }
    let (mut got, mut rounds) = (Vec::new(), 0);
    while !got.contains(&"unlucky") && rounds < 60 {
        fixture.advance(Duration::from_mins(5));
        rounds += 1;
        for host in [&mut broken, &mut unlucky] {
            if host.rpc().results.len() == 1 {
                got.push(host.request.host_info.domain_name.clone().leak());
                fail(host);
            }
        }
        without.fetch(1.0);
    }
    let of_broken = got.iter().filter(|name| **name == "broken").count();
    assert!(of_broken <= 1 && got.contains(&"unlucky"), "{got:?}");
}

#[test]
fn r6_8_a_host_that_failed_a_job_less_often_and_would_be_late_is_waited_for_two_hours_and_no_longer() {
    let (fixture, info) = with_workunits(0, 1);
    let rules = Rules { quorum: 1, initial_jobs: 1, max_error_jobs: 9, max_total_jobs: 20 };
    let one = NewWorkunit { rules, ..workunit("app", "x", 1e11, 1) };
    fixture.server.submit("p", vec![one]).unwrap();
    let [mut often, mut once] = ["often", "once"].map(|name| Client::new(&fixture, &info, name));
    for host in [&mut often, &mut once] {
        host.request.host_info.p_fpops = 4e6;
        assert_eq!(host.fetch(1.0).results.len(), 1);
        fail(host);
    }
    fixture.advance(Duration::from_secs(61));
    assert_eq!(often.fetch(1.0).results.len(), 1);
    fail(&mut often);
    // It holds another job, so that nothing is tried on it.
    fixture.server.submit("p", vec![workunit("app", "y", 1e6, 1)]).unwrap();
    assert_eq!(once.fetch(0.1).results.len(), 1);
    once.request.time_stats.on_frac = 0.1;
    let mut waited = 0;
    while often.fetch(1.0).results.is_empty() {
        assert_eq!(once.fetch(1.0).results.len(), 0);
        fixture.advance(Duration::from_mins(10));
        waited += 10;
        assert!(waited <= 130, "it waits for a host that does not get it");
    }
    assert!(waited >= 110, "{waited}");
}

#[test]
fn r6_8_a_job_is_not_said_to_wait_for_a_host_that_may_have_it_now() {
    let (fixture, info) = with_workunits(1, 1);
    let [mut often, mut once] = ["often", "once"].map(|name| Client::new(&fixture, &info, name));
    for wait in [0, 31] {
        fixture.advance(Duration::from_secs(wait));
        assert_eq!(often.fetch(1.0).results.len(), 1);
        fail(&mut often);
    }
    assert_eq!(once.fetch(1.0).results.len(), 1);
    fail(&mut once);
    fixture.advance(Duration::from_mins(6));
    assert_eq!(only_workunit(&fixture).jobs[3].waits_for, "a host that has failed it less often");
    fixture.server.close_agent(&AgentId("often".into())).unwrap();
    assert_eq!(only_workunit(&fixture).jobs[3].waits_for, "");
    assert_eq!(once.fetch(1.0).results.len(), 1);
}
