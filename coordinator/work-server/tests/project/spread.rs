//! A small batch is spread over the hosts that ask, whatever client it is (R6.8).

use fallow_boinc::scheduler::{DiskUsage, ResultState};
use fallow_domain::Duration;
use fallow_work_server::{NewWorkunit, ProjectInfo, ProjectSettings, SUBMIT_MAX};

use crate::client::Client;
use crate::fixture::{Fixture, workunit};
use crate::scheduler::messages;

/// A project with so many jobs of a second, and so many hosts of one CPU that have asked for work in vain.
fn with_fleet(hosts: usize, jobs: usize, settings: ProjectSettings) -> (Fixture, Vec<Client>) {
    let fixture = Fixture::start();
    let info = fixture.server.create_project("p", settings).unwrap();
    fixture.script("p", "app");
    let mut clients: Vec<Client> =
        (0..hosts).map(|host| one_cpu(&fixture, &info, &format!("host-{host}"))).collect();
    clients.iter_mut().for_each(|client| assert!(client.fetch(1.0).results.is_empty()));
    submit(&fixture, &workunit("app", "x", 1e9, 1), jobs);
    (fixture, clients)
}

/// Submits so many that are alike, in as many pieces as it takes.
fn submit(fixture: &Fixture, workunit: &NewWorkunit, count: usize) {
    for from in (0..count).step_by(SUBMIT_MAX) {
        fixture.server.submit("p", vec![workunit.clone(); SUBMIT_MAX.min(count - from)]).unwrap();
    }
}

fn one_cpu(fixture: &Fixture, info: &ProjectInfo, name: &str) -> Client {
    let mut client = Client::new(fixture, info, name);
    client.request.host_info.p_ncpus = 1;
    client.request.host_info.p_fpops = 1e9;
    client.request.global_preferences = None;
    client.request.host_info.d_free = 1e13;
    client.request.disk_usage = DiskUsage::default();
    client
}

/// New hosts of one CPU of the project's own account, each another one to the server.
fn outside(info: &ProjectInfo, number: usize) -> Client {
    let mut client = Client::stock(info, &format!("outside-{number}"));
    client.request.host_info.host_cpid = String::new();
    client.request.host_info.p_ncpus = 1;
    client.request.host_info.p_fpops = 1e9;
    client.request.global_preferences = None;
    client.request.host_info.d_free = 1e13;
    client.request.disk_usage = DiskUsage::default();
    client
}

fn without_delay() -> ProjectSettings {
    ProjectSettings { request_delay: Duration::ZERO, ..ProjectSettings::default() }
}

/// More work than there is: what a client with the default buffer asks for.
const HALF_A_DAY: f64 = 43_200.0;

#[test]
fn r6_8_every_host_of_a_fleet_has_a_part_of_a_small_batch() {
    let (_fixture, mut clients) = with_fleet(30, 600, without_delay());
    let given: Vec<usize> = clients.iter_mut().map(|client| client.fetch(HALF_A_DAY).results.len()).collect();
    assert_eq!((given[0], given[29]), (10, 6), "{given:?}");
    assert!(given.is_sorted_by(|a, b| a >= b), "{given:?}");
    // Who asks often gets no more than who asks once.
    assert!(clients.iter_mut().all(|client| client.fetch(HALF_A_DAY).results.is_empty()));
}

#[test]
fn r6_8_a_host_that_gets_less_than_it_asked_for_is_told_so_and_has_more_when_its_jobs_are_done() {
    let (_fixture, mut clients) = with_fleet(30, 600, without_delay());
    let first = &mut clients[0];
    let told = messages(&first.fetch(HALF_A_DAY));
    let part =
        "This computer has its part: it may hold 10 of the 600 jobs that wait, as 30 hosts ask for work";
    assert_eq!(told, part);
    let again = first.fetch(HALF_A_DAY);
    assert!(again.results.is_empty() && again.gives_a_part(), "{:?}", again.messages);
    let held: Vec<String> = first.held.keys().cloned().collect();
    held.iter().take(4).for_each(|job| first.report(job, ResultState::ComputeError, 1));
    let more = first.fetch(HALF_A_DAY).results.len();
    assert_eq!(more, 4, "a part of what waits, less the six that it holds");
    first.request.cpu_req_instances = 1.0;
    assert_eq!(first.fetch(HALF_A_DAY).results.len(), 1, "an instance that idles has a job in any case");
}

#[test]
fn r6_8_the_last_job_of_a_batch_goes_to_whoever_is_free() {
    let (_fixture, mut clients) = with_fleet(3, 5, without_delay());
    let mut given = |client: usize| clients[client].fetch(HALF_A_DAY).results.len();
    assert_eq!([given(0), given(1), given(0), given(0)], [1, 1, 0, 0]);
    assert_eq!([given(2), given(2)], [1, 0]);
}

#[test]
fn r6_8_where_there_is_enough_for_all_requests_are_filled_as_ever() {
    let settings = ProjectSettings { max_in_progress_per_cpu: 1_000, ..without_delay() };
    let (_fixture, mut clients) = with_fleet(3, 400, settings);
    let reply = clients[0].fetch(HALF_A_DAY);
    assert_eq!((reply.results.len(), messages(&reply).as_str()), (100, ""));
    // 300 are left.
    assert_eq!(clients[1].fetch(HALF_A_DAY).results.len(), 100);
    // 200 are left for three hosts that ask for a hundred each.
    assert_eq!(clients[2].fetch(HALF_A_DAY).results.len(), 34);
    // Who asks for little has it.
    assert_eq!(clients[2].fetch(20.0).results.len(), 20);
}

#[test]
fn r6_8_an_operator_can_have_batches_sent_as_asked_for() {
    let (fixture, mut clients) = with_fleet(30, 600, without_delay());
    fixture.set("p", "spread", "false");
    assert_eq!(clients[0].fetch(HALF_A_DAY).results.len(), 100);
    fixture.set("p", "spread", "true");
    assert_eq!(clients[1].fetch(HALF_A_DAY).results.len(), 9);
}

#[test]
fn r1_3_a_host_with_little_to_do_is_told_to_come_again_soon_and_may() {
    let usual = Duration::from_secs(7);
    let (fixture, mut clients) = with_fleet(30, 600, ProjectSettings::default());
    fixture.advance(usual);
    let first = &mut clients[0];
    let reply = first.fetch(HALF_A_DAY);
    assert_eq!((reply.results.len(), reply.request_delay), (10, Duration::from_micros(500_000)));
    assert!(reply.results.iter().all(|job| job.report_immediately));
    fixture.advance(reply.request_delay);
    let reply = first.rpc();
    assert_eq!(reply.request_delay, Duration::from_micros(500_000), "who reports may come again as soon");
    fixture.advance(reply.request_delay);
    let reply = first.fetch(HALF_A_DAY);
    assert!(reply.gives_a_part(), "it was not too soon: {:?}", reply.messages);
    // What it had is done, and nothing is left.
    fixture.set("p", "spread", "false");
    clients[1..8].iter_mut().for_each(|client| drop(client.fetch(HALF_A_DAY)));
    fixture.set("p", "spread", "true");
    let first = &mut clients[0];
    first.complete_all("x");
    fixture.advance(usual);
    assert_eq!(first.fetch(HALF_A_DAY).request_delay, usual);
}

#[test]
fn r6_8_hosts_that_have_not_asked_for_long_have_no_part() {
    let (fixture, mut clients) = with_fleet(30, 600, without_delay());
    fixture.advance(Duration::from_mins(11));
    assert_eq!(clients[0].fetch(HALF_A_DAY).results.len(), 100, "it is alone");
    assert_eq!(clients[1].fetch(HALF_A_DAY).results.len(), 100, "there is enough for two");
}

#[test]
fn r6_8_after_a_restart_a_batch_is_spread_over_the_same_hosts() {
    let (mut fixture, mut clients) = with_fleet(30, 600, without_delay());
    fixture.restart();
    assert_eq!(clients[0].fetch(HALF_A_DAY).results.len(), 10);
}

/// Both have asked before the batch came. What it claims to have gives a host no more than half of a batch.
#[test]
fn r6_8_a_host_that_claims_a_million_cpus_and_asks_for_years_leaves_others_their_part() {
    let (fixture, mut clients) = with_fleet(2, 0, without_delay());
    let [greedy, modest] = &mut clients[..] else { panic!("two hosts") };
    greedy.request.host_info.p_ncpus = 1_000_000;
    greedy.request.cpu_req_instances = 1e6;
    assert!(greedy.fetch(1e9).results.is_empty());
    submit(&fixture, &workunit("app", "x", 1e9, 1), 1_200);
    for contact in 0..30 {
        greedy.fetch(1e9);
        if contact % 5 == 4 {
            let given = modest.fetch(1e9).results.len();
            assert!(given > 0, "contact {contact}: {} of 1200 are with the other", greedy.held.len());
            modest.complete_all("x");
        }
    }
    // A part, and once a job for each instance that it calls idle.
    assert!(greedy.held.len() <= 600 + 128, "{}", greedy.held.len());
}

#[test]
fn r3_2_a_host_that_reports_what_it_was_sent_has_a_job_for_each_instance_that_idles_again() {
    let (_fixture, mut clients) = with_fleet(30, 600, without_delay());
    let first = &mut clients[0];
    assert_eq!(first.fetch(HALF_A_DAY).results.len(), 10, "its part");
    first.request.cpu_req_instances = 1.0;
    let given: [usize; 3] = std::array::from_fn(|_| first.fetch(HALF_A_DAY).results.len());
    assert_eq!(given, [1, 0, 0], "one instance has one job");
    let done: String = first.held.keys().next().unwrap().clone();
    assert_eq!(first.upload(&done, b"x").status.code(), 0);
    first.report(&done, ResultState::Uploaded, 0);
    assert_eq!(first.fetch(HALF_A_DAY).results.len(), 1);
}

/// It names all of its instances as idle in each request, and returns nothing or failures only.
#[test]
fn r6_8_what_a_host_that_returns_nothing_gets_for_idle_instances_comes_at_longer_and_longer_intervals() {
    let (mut fixture, mut clients) = with_fleet(2, 0, without_delay());
    let [greedy, modest] = &mut clients[..] else { panic!("two hosts") };
    greedy.request.host_info.p_ncpus = 8;
    greedy.request.cpu_req_instances = 8.0;
    assert!(greedy.fetch(1e9).results.is_empty());
    submit(&fixture, &workunit("app", "x", 1e9, 1), 1_200);
    for contact in 0..36 {
        if contact == 20 {
            fixture.restart();
        }
        modest.request.cpu_req_instances = 1.0;
        assert_eq!(modest.fetch(1.0).results.len(), 1);
        modest.complete_all("x");
        (0..if contact == 0 { 8 } else { 2 }).for_each(|_| drop(greedy.fetch(1e9)));
        // What it was sent first fails: that is no reason for more.
        if contact % 6 == 5 {
            let failed: Vec<String> = greedy.held.keys().take(4).cloned().collect();
            failed.iter().for_each(|job| greedy.report(job, ResultState::ComputeError, 1));
        }
        fixture.advance(Duration::from_mins(10));
    }
    // Half of the batch, and a job for each instance after 0, 10, 30, 70, 150 and 310 minutes.
    assert!(greedy.held.len() <= 600 + 6 * 8, "{}", greedy.held.len());
}

#[test]
fn r6_10_of_the_cpus_that_a_host_claims_a_thousand_count() {
    let (fixture, mut clients) = with_fleet(1, 1_100, without_delay());
    fixture.set("p", "spread", "false");
    fixture.set("p", "jobs-per-cpu", "1");
    let greedy = &mut clients[0];
    greedy.request.host_info.p_ncpus = 1_000_000;
    for _ in 0..12 {
        greedy.fetch(1e9);
    }
    assert_eq!(greedy.held.len(), 1_024);
}

#[test]
fn r6_8_hosts_without_room_for_any_job_leave_their_part_to_others() {
    let (fixture, mut clients) = with_fleet(2, 300, without_delay());
    let info = fixture.server.project("p").unwrap();
    for host in 0..60 {
        let mut full = Client::stock(&info, &format!("full-{host}"));
        full.request.host_info.d_free = 0.0;
        full.request.disk_usage = DiskUsage::default();
        let told = messages(&full.fetch(HALF_A_DAY));
        assert!(told.contains("of disk space"), "{told}");
    }
    assert_eq!(clients[0].fetch(HALF_A_DAY).results.len(), 100, "there is enough for two");
    let told = messages(&clients[1].fetch(HALF_A_DAY));
    assert!(told.is_empty() || told.contains("as 2 hosts ask"), "{told}");
}

/// One account with a new host number in every request.
#[test]
fn r6_8_made_up_hosts_of_one_account_have_the_part_of_one_host_and_leave_others_theirs() {
    let (fixture, mut clients) = with_fleet(30, 600, ProjectSettings::default());
    let info = fixture.server.project("p").unwrap();
    fixture.advance(Duration::from_secs(7));
    let ghosts = 200;
    let mut told = String::new();
    let given: Vec<usize> = (0..ghosts)
        .map(|number| {
            let mut ghost = outside(&info, number);
            (ghost.request.host_info.p_ncpus, ghost.request.cpu_req_instances) = (16, 16.0);
            let reply = ghost.fetch(HALF_A_DAY);
            told = messages(&reply);
            reply.results.len()
        })
        .collect();
    assert!(told.contains("Not sending work - many computers of this account"), "{told}");
    let taken: usize = given.iter().sum();
    // A part of one host of 128 instances, and a job for each of the 64 that may come at once.
    let part = (600_usize * 128).div_ceil(2 * 158);
    assert!(taken <= part + 64, "{given:?}");
    let given = clients[0].fetch(HALF_A_DAY);
    let left = 600 - taken;
    assert_eq!(given.results.len(), left.div_ceil(2 * 158), "{}", messages(&given));
    fixture.advance(Duration::from_mins(5));
    let taken: usize = (0..20).map(|ghost| outside(&info, ghost).fetch(HALF_A_DAY).results.len()).sum();
    assert_eq!(taken, 1, "one more each minute, and no rest for those that came in vain");
}

#[test]
fn r6_10_made_up_hosts_wait_for_their_turn_where_batches_are_sent_as_asked_for_too() {
    let (fixture, _) = with_fleet(1, 600, ProjectSettings::default());
    fixture.set("p", "spread", "false");
    let info = fixture.server.project("p").unwrap();
    let ask = |number: usize| outside(&info, number).fetch(1.0).results.len();
    assert_eq!((0..70).map(ask).sum::<usize>(), 64);
    // They asked long ago, but hold what they were sent.
    fixture.advance(Duration::from_mins(30));
    assert_eq!((70..140).map(ask).sum::<usize>(), 1);
}

#[test]
fn r3_7_made_up_hosts_that_are_not_let_in_delay_nobody_who_waits_for_work() {
    let poll = Duration::from_secs(1);
    let (fixture, mut clients) = with_fleet(1, 0, ProjectSettings { poll, ..without_delay() });
    let info = fixture.server.project("p").unwrap();
    for number in 0..300 {
        assert!(outside(&info, number).fetch(1.0).results.is_empty());
    }
    // 50 hosts may come in a second: the 64 that were let in, the others as one, and this one.
    let most = Duration::from_secs_f64(66.0 / 50.0 * 1.25);
    let told = clients[0].fetch(1.0).next_rpc_delay;
    assert!(told.is_some_and(|told| told <= most), "{told:?}");
}

/// What a researcher has who attaches the machines of a room with the project's own account.
#[test]
fn r6_8_each_of_fifty_machines_of_one_account_gets_work_and_more_with_its_first_valid_result() {
    let fixture = Fixture::start();
    let info = fixture.server.create_project("p", ProjectSettings::default()).unwrap();
    fixture.script("p", "app");
    fixture.server.submit("p", vec![workunit("app", "x", 1e9, 1); 1_000]).unwrap();
    let mut room: Vec<Client> = (0..50)
        .map(|number| {
            let mut client = outside(&info, number);
            client.request.host_info.host_cpid = format!("{number:032x}");
            client.request.host_info.p_ncpus = 4;
            client
        })
        .collect();
    let given: Vec<usize> = room.iter_mut().map(|client| client.fetch(HALF_A_DAY).results.len()).collect();
    assert_eq!(given, [4; 50]);
    let reply = room[0].complete_all("x");
    assert_eq!(reply.result_acks.len(), 4);
    fixture.server.run_background_work().unwrap();
    fixture.advance(Duration::from_secs(7));
    let given = [0, 1].map(|number: usize| {
        let reply = room[number].fetch(HALF_A_DAY);
        (reply.results.len(), messages(&reply))
    });
    assert!(given[0].0 > 4, "{given:?}");
    let told =
        "This computer has its part: it may hold 4 jobs until a result that it returned is found valid";
    assert_eq!(given[1], (0, told.to_owned()));
}

#[test]
fn r6_8_after_a_restart_new_hosts_are_no_newer_than_they_were() {
    let (mut fixture, _) = with_fleet(2, 600, ProjectSettings::default());
    let info = fixture.server.project("p").unwrap();
    let ask = |number: usize| outside(&info, number).fetch(HALF_A_DAY).results.len();
    assert_eq!((0..70).map(ask).sum::<usize>(), 64);
    fixture.restart();
    assert_eq!((70..140).map(ask).sum::<usize>(), 1);
}

/// So many new hosts that asked for work and have some.
fn let_in(info: &ProjectInfo, hosts: usize) -> Vec<Client> {
    let mut ghosts: Vec<Client> = (0..hosts).map(|number| outside(info, number)).collect();
    ghosts.iter_mut().for_each(|ghost| assert_eq!(ghost.fetch(1.0).results.len(), 1));
    ghosts
}

/// How many of so many more get work.
fn more(info: &ProjectInfo, hosts: usize) -> usize {
    (0..hosts).map(|number| outside(info, 1_000 + number).fetch(1.0).results.len()).sum()
}

#[test]
fn r6_10_a_new_host_that_says_it_has_no_room_keeps_its_place_as_long_as_it_holds_jobs() {
    let (fixture, _clients) = with_fleet(1, 600, without_delay());
    let info = fixture.server.project("p").unwrap();
    let mut ghosts = let_in(&info, 64);
    for (number, ghost) in ghosts.iter_mut().enumerate() {
        let full = &mut ghost.request;
        if number < 32 {
            full.host_info.m_nbytes = 1.0;
        } else {
            full.host_info.d_free = 0.0;
        }
        assert!(ghost.fetch(1.0).results.is_empty());
    }
    assert_eq!(more(&info, 32), 0);
}

#[test]
fn r6_10_jobs_that_fail_on_new_hosts_at_once_make_no_room_for_more_of_them() {
    what_returns_at_once_makes_no_room(ResultState::ComputeError);
}

#[test]
fn r6_10_nonsense_that_new_hosts_return_at_once_makes_no_room_for_more_of_them() {
    what_returns_at_once_makes_no_room(ResultState::Uploaded);
}

/// Of a batch whose results are compared with another account's.
fn what_returns_at_once_makes_no_room(state: ResultState) {
    let (fixture, mut clients) = with_fleet(1, 0, without_delay());
    fixture.server.submit("p", vec![workunit("app", "x", 1e9, 2); 600]).unwrap();
    let info = fixture.server.project("p").unwrap();
    let mut ghosts = let_in(&info, 64);
    let mut taken = 64;
    for round in 0..30 {
        for ghost in &mut ghosts {
            let held: Vec<String> = ghost.held.keys().cloned().collect();
            for job in held {
                if state == ResultState::Uploaded {
                    ghost.upload(&job, b"nonsense");
                }
                ghost.report(&job, state, 0);
            }
            let reply = ghost.fetch(1.0);
            taken += reply.results.len();
            if round == 0 && state == ResultState::ComputeError {
                let told = messages(&reply);
                assert!(
                    told.contains("none of its results was found valid yet; it may have more in"),
                    "{told}"
                );
            }
        }
        taken += more(&info, 4);
        fixture.advance(Duration::from_secs(50));
    }
    // In 25 minutes: the 64 at once and after ten minutes, one more host a minute, and the first results that
    // look well.
    let believed = if state == ResultState::Uploaded { (64 + 26) * 4 } else { 0 };
    assert!((64..=64 * 2 + 26 + believed).contains(&taken), "{taken}");
    assert!(!clients[0].fetch(HALF_A_DAY).results.is_empty());
}

#[test]
fn r6_8_a_new_host_whose_result_is_valid_makes_room_for_another_without_asking_again() {
    let (fixture, _clients) = with_fleet(1, 600, without_delay());
    let info = fixture.server.project("p").unwrap();
    let mut ghosts = let_in(&info, 64);
    assert_eq!(more(&info, 1), 0);
    ghosts[0].complete_all("x");
    fixture.server.run_background_work().unwrap();
    assert_eq!(more(&info, 2), 1, "valid");
}

/// One CPU or many: what is sent to a host in any case comes once a round.
#[test]
fn r6_10_new_hosts_of_many_cpus_whose_jobs_fail_at_once_have_the_part_of_one_host() {
    let (fixture, mut clients) = with_fleet(8, 0, ProjectSettings::default());
    submit(&fixture, &workunit("app", "x", 1e9, 2), 1_200);
    let info = fixture.server.project("p").unwrap();
    fixture.advance(Duration::from_secs(10));
    for client in &mut clients {
        client.request.host_info.p_ncpus = 128;
        client.fetch(1.0);
    }
    let mut ghosts: Vec<Client> = (0..64).map(|number| outside(&info, number)).collect();
    let mut taken = 0;
    for _ in 0..12 {
        for ghost in &mut ghosts {
            ghost.request.host_info.p_ncpus = 128;
            let held: Vec<String> = ghost.held.keys().cloned().collect();
            held.iter().for_each(|job| ghost.report(job, ResultState::ComputeError, 1));
            taken += ghost.fetch(1e6).results.len();
        }
        fixture.advance(Duration::from_secs(7));
    }
    // The part of one host of 128 instances, and one job each.
    assert!((64..=128 + 2 * 64).contains(&taken), "{taken}");
}

#[test]
fn r6_10_a_job_that_another_host_of_the_account_reports_was_held_by_the_one_that_was_sent_it() {
    let (fixture, _clients) = with_fleet(1, 600, without_delay());
    let info = fixture.server.project("p").unwrap();
    let mut reporter = outside(&info, 9_999);
    reporter.rpc();
    let taken: [usize; 3] = std::array::from_fn(|round| {
        let mut of_round = 0;
        for number in 0..70 {
            let mut ghost = outside(&info, round * 100 + number);
            of_round += ghost.fetch(1.0).results.len();
            ghost.held.keys().for_each(|job| reporter.report(job, ResultState::ComputeError, 1));
            reporter.rpc();
            ghost.held.clear();
            ghost.rpc();
            ghost.request.host_info.m_nbytes = 1.0;
            ghost.fetch(1.0);
        }
        fixture.advance(Duration::from_mins(11));
        of_round
    });
    assert_eq!(taken, [64, 1, 1]);
}

#[test]
fn r6_8_a_new_host_that_reports_its_first_results_and_asks_at_once_has_more() {
    let (fixture, _clients) = with_fleet(3, 600, ProjectSettings::default());
    let info = fixture.server.project("p").unwrap();
    fixture.advance(Duration::from_secs(20));
    let mut host = outside(&info, 1);
    assert_eq!(host.fetch(HALF_A_DAY).results.len(), 1);
    for job in host.held.keys().cloned().collect::<Vec<_>>() {
        host.upload(&job, b"x");
        host.report(&job, ResultState::Uploaded, 0);
    }
    fixture.advance(Duration::from_secs(10));
    assert_eq!(host.fetch(HALF_A_DAY).results.len(), 1);
}
