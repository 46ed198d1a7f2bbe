//! Which hosts of a fleet are told of jobs that nobody takes, and when; by a clock that the tests turn.

use std::sync::atomic::Ordering;

use fallow_domain::agent_state::{Entry, HostState, SuspendedBy};
use fallow_domain::{AgentId, Labels};
use fallow_proto::fleet::v1 as wire;
use fallow_store::{SledStore, Store};
use fallow_tls::Authority;

use super::*;
use crate::document::Documents;
use crate::fleet::enrol::AgentRecord;
use crate::fleet::entry::read_all;
use crate::fleet::totals::Totals;
use crate::fleet::{CopyOf, Issuer, LinkSettings};

/// How often the coordinator looks.
const LOOK: u64 = 20;
const HOUR: u64 = 3_600;

fn url(number: u32) -> MasterUrl {
    MasterUrl::parse(&format!("http://127.0.0.1:1/p{number}/")).unwrap()
}

/// A fleet and a project.
struct World {
    fleet: Arc<Fleet>,
    url: MasterUrl,
    start: Instant,
    _dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SledStore::open(dir.path()).unwrap());
        let documents = Arc::new(Documents::open(store.clone()).unwrap());
        let (authority, ..) = Authority::create(fallow_domain::Instant::EPOCH).unwrap();
        let issuer = Arc::new(Issuer { authority, life: fallow_domain::Duration::from_hours(1) });
        let fleet = Fleet::open(store, documents, issuer, LinkSettings::default()).unwrap();
        Self { fleet, url: url(0), start: Instant::now(), _dir: dir }
    }

    /// So many hosts that are linked, idle and have the project.
    fn with_hosts(count: usize) -> Self {
        let world = Self::new();
        (0..count).for_each(|number| world.host(&format!("host{number:06}"), None));
        world
    }

    /// Takes in a host that is linked, idle and has the project; a copy of this one.
    fn host(&self, id: &str, first: Option<&str>) {
        let id = AgentId(id.into());
        let record = AgentRecord {
            key: String::new(),
            enrolled_at: fallow_domain::Instant::EPOCH,
            hostname: id.0.clone(),
            labels: Labels::default(),
            token: String::new(),
            revoked: None,
            forgotten: false,
            copy_of: first.map(|first| CopyOf { agent: AgentId(first.into()), note: String::new() }),
        };
        let agent = Arc::new(Agent::new(id.clone(), record));
        agent.connected.store(true, Ordering::Relaxed);
        let project = wire::ProjectState { url: self.url.to_string(), ..Default::default() };
        let project = wire::Entry {
            key: format!("project/{}", self.url),
            value: Some(wire::entry::Value::Project(project)),
        };
        for entry in read_all(vec![project]).unwrap().into_values() {
            lock(&agent.state).put(entry, &mut Totals::default());
        }
        self.fleet.agents.write().unwrap().insert(id.clone(), agent);
        self.says(&id.0, Some(1), None);
    }

    /// Has a host say how many of its CPUs idle and who suspended it; no CPUs: it is gone.
    fn says(&self, id: &str, idle_cpus: Option<u32>, suspended_by: Option<SuspendedBy>) {
        let agent = self.fleet.agent(id).unwrap();
        agent.connected.store(idle_cpus.is_some(), Ordering::Relaxed);
        let host = HostState { idle_cpus: idle_cpus.unwrap_or(0), suspended_by, ..HostState::default() };
        lock(&agent.state).put(Entry::Host(Box::new(host)), &mut Totals::default());
    }

    fn after(&self, second: u64) -> Instant {
        self.start + Duration::from_secs(second)
    }

    /// Jobs are submitted. Says who is told at once.
    fn submit(&self, second: u64, jobs: u64) -> Vec<String> {
        let now = self.after(second);
        self.fleet.contact_at(&self.url, jobs, jobs, now);
        self.told(now)
    }

    /// It is looked at this second whether jobs are left. Says who is told of them.
    fn look(&self, second: u64, unsent: u64) -> Vec<String> {
        let now = self.after(second);
        let unsent = Some((self.url.clone(), unsent)).filter(|(_, unsent)| *unsent > 0);
        self.fleet.contact_again_at(&unsent.into_iter().collect(), now);
        self.told(now)
    }

    /// It is looked so again and again, from a second to before another. Says when how many were told.
    fn looks(&self, from: u64, to: u64, unsent: u64) -> Vec<(u64, usize)> {
        let looks = (from..to).step_by(LOOK as usize).map(|second| (second, self.look(second, unsent).len()));
        looks.filter(|(_, told)| *told > 0).collect()
    }

    fn told(&self, now: Instant) -> Vec<String> {
        let agents = self.fleet.agents.read().unwrap();
        let told = agents.values().filter(|agent| lock(&agent.told).get(&self.url) == Some(&now));
        told.map(|agent| agent.id.0.clone()).collect()
    }
}

#[tokio::test]
async fn r1_4_of_jobs_that_nobody_takes_no_two_copies_of_a_machine_are_told_again_before_another_machine_is()
{
    let world = World::new();
    world.host("first", None);
    (1..59).for_each(|number| world.host(&format!("copy{number:02}"), Some("first")));
    world.host("other", None);
    assert_eq!(world.submit(0, 1).len(), 1);
    // The other one was told at once, or is told with one of the copies the next time that two are.
    let mut told = Vec::new();
    (20..=180).step_by(20).for_each(|second| told.extend(world.look(second, 1)));
    assert!(told.contains(&"other".to_owned()), "{told:?}");
    assert_eq!(told.len(), 3, "{told:?}");
}

#[tokio::test]
async fn r1_4_what_one_host_alone_can_compute_comes_to_its_ears_within_a_day() {
    let world = World::with_hosts(400);
    world.says("host000000", Some(0), None);
    world.submit(0, 1);
    let mut counts = Vec::new();
    let mut heard = None;
    for second in (20..24 * HOUR).step_by(LOOK as usize) {
        let told = world.look(second, 1);
        counts.extend(Some(told.len()).filter(|told| *told > 0));
        heard = heard.or_else(|| told.contains(&"host000000".to_owned()).then_some(second));
    }
    assert_eq!(counts[..10], [1, 2, 4, 8, 16, 32, 64, 128, 200, 200]);
    assert!(counts.len() < 30 && counts[10..].iter().all(|told| *told == 200), "{counts:?}");
    assert!(heard.is_some(), "it was never told");
}

#[tokio::test]
async fn r1_4_beside_a_job_that_nobody_can_take_others_hear_of_a_newer_one_after_a_minute() {
    let world = World::with_hosts(400);
    world.submit(0, 1);
    let before = world.looks(20, 10 * HOUR, 1);
    let &(last, many) = before.last().unwrap();
    assert!(many >= 64, "{before:?}");
    // Whoever is told does not ask.
    world.submit(last + 30, 1);
    assert_eq!(
        world.looks(last + 40, last + HOUR, 2),
        [(last + 100, 1)],
        "one other, for the newer one alone"
    );
    // Then both wait for the older one's turn.
    assert_eq!(world.looks(last + HOUR, last + 2 * HOUR, 2), [(last + HOUR, 200)]);
}

#[tokio::test]
async fn r1_4_where_nobody_could_be_told_of_jobs_it_is_tried_again_in_a_minute_however_long_they_waited() {
    let world = World::with_hosts(2);
    world.submit(0, 1);
    let before = world.looks(20, 10 * HOUR, 1);
    let &(last, _) = before.last().unwrap();
    let all = |idle, by| ["host000000", "host000001"].map(|id| world.says(id, idle, by));
    all(Some(1), Some(SuspendedBy::Owner));
    assert_eq!(world.looks(last + LOOK, last + HOUR + 200, 1), []);
    all(None, None);
    assert_eq!(world.looks(last + HOUR + 200, last + HOUR + 300, 1), []);
    all(Some(1), None);
    let after = world.looks(last + HOUR + 300, last + HOUR + 400, 1);
    assert_eq!(after.iter().map(|(_, told)| told).sum::<usize>(), 2, "{after:?}");
}

#[tokio::test]
async fn r1_4_a_backlog_that_hosts_draw_on_hides_no_job_for_longer_than_an_hour_and_few_are_told_of_it() {
    let world = World::with_hosts(400);
    world.submit(0, 5_000);
    let mut told = Vec::new();
    for second in (20..6 * HOUR).step_by(LOOK as usize) {
        let count = world.look(second, 5_000 - 2 * second / LOOK).len();
        told.extend(Some((second, count)).filter(|(_, told)| *told > 0));
    }
    let times: Vec<u64> = told.iter().map(|(second, _)| *second).collect();
    assert!(times[0] == HOUR && times.len() < 12, "{told:?}");
    assert!(times.iter().zip(&times[1..]).all(|(one, next)| next - one <= HOUR), "{told:?}");
    assert!(told.iter().all(|(_, count)| *count == 200), "{told:?}");
}

#[tokio::test]
async fn r1_4_calls_for_jobs_that_nobody_takes_stand_for_no_others() {
    let world = World::with_hosts(400);
    world.submit(0, 1);
    let &(last, many) = world.looks(20, 10 * HOUR, 1).last().unwrap();
    assert!(many >= 64);
    // Some were submitted while most are away; whoever comes back is told of them.
    let allowed = world.fleet.calls(&world.url, |calls| calls.allowed(51, world.after(last + 10)));
    assert_eq!(allowed, 50);
}

#[tokio::test]
async fn r1_4_no_project_loses_its_turn_to_those_of_whose_jobs_nobody_can_be_told() {
    // The first and the last in order.
    for mine in [0, 9] {
        let world = World { url: url(mine), ..World::new() };
        (0..5).for_each(|number| world.host(&format!("host{number}"), None));
        // Nobody has the others: each is tried every minute, and they are more than a minute has turns for.
        let all: BTreeMap<MasterUrl, u64> = (0..20).map(|number| (url(number), 1)).collect();
        let mut told = Vec::new();
        for second in (0..24 * HOUR).step_by(LOOK as usize) {
            world.fleet.contact_again_at(&all, world.after(second));
            told.extend(Some(second).filter(|_| !world.told(world.after(second)).is_empty()));
        }
        assert!(told[0] <= 200 && told.len() > 20, "{told:?}");
        assert!(told.iter().zip(&told[1..]).all(|(one, next)| next - one <= HOUR + 200), "{told:?}");
    }
}

#[tokio::test]
async fn r1_4_four_projects_at_most_are_told_of_again_at_one_look() {
    let mut world = World::new();
    for number in 0..20 {
        world.url = url(number);
        world.host(&format!("host{number:02}"), None);
    }
    let all: BTreeMap<MasterUrl, u64> = (0..20).map(|number| (url(number), 1)).collect();
    let told = (0..180).step_by(LOOK as usize).map(|second| {
        world.fleet.contact_again_at(&all, world.after(second));
        let agents = world.fleet.agents.read().unwrap();
        let at = Some(world.after(second));
        agents.values().filter(|agent| lock(&agent.told).values().max().copied() == at).count()
    });
    assert_eq!(told.collect::<Vec<_>>(), [0, 0, 0, 4, 4, 4, 4, 4, 0]);
}

#[tokio::test]
async fn r1_4_who_is_suspended_is_told_of_new_jobs_last_and_of_those_that_wait_not_at_all() {
    let world = World::with_hosts(3);
    world.says("host000001", Some(0), None);
    world.says("host000002", Some(1), Some(SuspendedBy::Owner));
    assert_eq!(world.submit(0, 1), ["host000000"]);
    assert_eq!(world.submit(100, 2), ["host000000", "host000001"]);
    assert_eq!(world.submit(200, 50).len(), 3);
    let told: Vec<_> = (300..2 * HOUR).step_by(LOOK as usize).map(|second| world.look(second, 50)).collect();
    assert!(told.iter().flatten().any(|id| id == "host000001"));
    assert!(!told.iter().flatten().any(|id| id == "host000002"));
}
