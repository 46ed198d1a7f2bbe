//! Machines with very many copies beside honest hosts, whatever becomes of them (R6.8, R6.10).

use std::collections::BTreeMap;

use fallow_boinc::scheduler::ResultState;
use fallow_domain::{AgentId, Duration};
use fallow_work_server::{ProjectInfo, WorkunitStatus};

use crate::client::Client;
use crate::fixture::{Fixture, workunit};
use crate::scheduler::with_workunits;

fn agent(id: &str) -> AgentId {
    AgentId(id.to_owned())
}

fn copy(fixture: &Fixture, info: &ProjectInfo, id: &str) -> Client {
    let key = fixture.server.copy_key(&info.name, &agent(id), &agent("first")).unwrap();
    Client::with_key(info, id, key)
}

/// What a host does with the jobs that it is sent.
#[derive(Clone, Copy, Debug)]
enum With {
    Result(&'static str),
    State(ResultState),
    /// Lists them until they are late.
    Hold,
    /// Lists none of them.
    Lose,
}

fn work(client: &mut Client, with: With) {
    client.fetch(1e5);
    match with {
        With::Result(content) => drop(client.complete_all(content)),
        With::State(state) => {
            let jobs: Vec<String> = client.held.keys().cloned().collect();
            jobs.iter().for_each(|job| client.report(job, state, 65));
            client.rpc();
        }
        With::Hold => {}
        With::Lose => client.held.clear(),
    }
}

/// Minutes until two honest hosts have validated all that fifty copies take part in.
fn minutes(with: With, steps: impl IntoIterator<Item = i64>) -> i64 {
    let (fixture, info) = with_workunits(6, 2);
    let mut machine = vec![Client::new(&fixture, &info, "first")];
    machine.extend((0..50).map(|number| copy(&fixture, &info, &format!("copy {number}"))));
    let mut honest = ["one", "two"].map(|id| Client::new(&fixture, &info, id));
    let mut passed = 0;
    for step in steps {
        machine.iter_mut().for_each(|client| work(client, with));
        honest.iter_mut().for_each(|client| work(client, With::Result("right")));
        fixture.server.run_background_work().unwrap();
        let all = fixture.server.list_workunits("p", None, 0).unwrap().items;
        if all.iter().all(|workunit| workunit.state == WorkunitStatus::Validated) {
            let results = fixture.server.list_results("p", None, 0).unwrap().items;
            assert!(results.iter().all(|result| result.outputs[0].content == b"right"), "{with:?}");
            return passed;
        }
        fixture.advance(Duration::from_mins(step));
        // As it is done every second.
        fixture.server.run_background_work().unwrap();
        passed += step;
    }
    panic!("{with:?}: {:?}", fixture.server.list_workunits("p", None, 0).unwrap().items);
}

#[test]
fn r6_8_whatever_fifty_copies_of_a_machine_do_with_jobs_two_honest_hosts_validate_all() {
    for with in [
        With::Result("right"),
        With::Result("forged"),
        With::State(ResultState::ComputeError),
        With::State(ResultState::Aborted),
        With::Lose,
    ] {
        assert!(minutes(with, [1; 30]) < 30, "{with:?}");
    }
    let day = [5, 7 * 60, 8 * 60, 8 * 60 + 30];
    assert!(minutes(With::Hold, day.into_iter().chain([5; 24])) < 25 * 60);
}

/// Numbers that look random.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// A machine whose copies come, are taken out, and ask in any order, in projects that are made meanwhile.
#[derive(Default)]
struct Lab {
    /// Whether each of its hosts is there; the first one is the first.
    hosts: Vec<bool>,
    projects: Vec<ProjectInfo>,
    clients: BTreeMap<(usize, usize), Client>,
    /// Of each project, somebody else.
    honest: Vec<Client>,
}

fn name(host: usize) -> String {
    if host == 0 { "first".to_owned() } else { format!("copy {host}") }
}

impl Lab {
    fn step(&mut self, fixture: &mut Fixture, draws: &mut Draws) {
        let there = self.hosts.iter().filter(|there| **there).count();
        match draws.below(12) {
            0 | 1 if self.hosts.len() < 12 => self.hosts.push(true),
            2 if there > 1 => {
                let host = draws.below(self.hosts.len());
                self.hosts[host] = false;
                fixture.server.close_agent(&agent(&name(host))).unwrap();
            }
            3 if self.projects.len() < 3 => {
                let project = format!("p{}", self.projects.len());
                let info = fixture.project(&project);
                fixture.script(&project, "app");
                let workunits = vec![workunit("app", "x", 1e11, 2 + draws.below(2) as u32); 3];
                fixture.server.submit(&project, workunits).unwrap();
                self.honest.push(Client::new(fixture, &info, "honest"));
                self.projects.push(info);
            }
            4 => fixture.restart(),
            5 => fixture.advance(Duration::from_hours(1 + draws.below(30) as i64)),
            6 if !self.projects.is_empty() => {
                let project = draws.below(self.projects.len());
                work(&mut self.honest[project], With::Result("right"));
            }
            _ if !self.projects.is_empty() => {
                let (host, project) = (draws.below(self.hosts.len()), draws.below(self.projects.len()));
                if self.hosts[host] {
                    self.ask(fixture, draws, (host, project));
                }
            }
            _ => {}
        }
    }

    fn ask(&mut self, fixture: &Fixture, draws: &mut Draws, (host, project): (usize, usize)) {
        let info = &self.projects[project];
        let client = self.clients.entry((host, project)).or_insert_with(|| match host {
            0 => Client::new(fixture, info, "first"),
            copied => copy(fixture, info, &name(copied)),
        });
        if draws.below(3) == 0 {
            client.request.hostid = draws.below(8) as u64;
            client.request.host_info.host_cpid = format!("{:032x}", draws.below(4));
        }
        match draws.below(5) {
            0 => work(client, With::Hold),
            1 => work(client, With::State(ResultState::ComputeError)),
            2 => work(client, With::Lose),
            _ => {
                client.fetch(1e5);
                for job in client.held.keys().cloned().collect::<Vec<_>>() {
                    client.upload(&job, b"forged");
                    client.report(&job, ResultState::Uploaded, 0);
                }
                client.rpc();
            }
        }
    }
}

#[test]
fn r6_10_in_whatever_order_copies_come_and_go_a_machine_and_they_are_one_opinion() {
    for seed in 1..=8 {
        let (mut fixture, mut draws) = (Fixture::start(), Draws(seed * 7_919));
        let mut lab = Lab { hosts: vec![true], ..Lab::default() };
        for step in 0..70 {
            lab.step(&mut fixture, &mut draws);
            fixture.server.run_background_work().unwrap();
            for info in &lab.projects {
                // Who is honest never agrees with the machine.
                let counts = fixture.server.counts(&info.name).unwrap();
                assert_eq!(counts.workunits_validated, 0, "seed {seed}, step {step}, {}", info.name);
            }
        }
        assert!(!lab.clients.is_empty(), "seed {seed}");
    }
}
