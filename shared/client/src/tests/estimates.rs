//! What is learned of how long jobs take, by application version.

use std::collections::BTreeMap;

use fallow_domain::{Duration, JobId, ProjectId, Usage};
use fallow_policy::fetch::WorkRequest;

use super::{NOW, client, id_of, put_job};
use crate::machine::Client;
use crate::record::{Record, RestoreError, restore};
use crate::state::State;
use crate::{ClientConfig, Event};

/// A client that follows a completion policy.
fn following(completion: &str, projects: &[&str]) -> Client {
    let mut client = client(0, projects);
    client.config.composition = completion.parse().unwrap();
    client
}

/// A job of a version ends that was to take 1000 s.
fn ended(client: &mut Client, project: ProjectId, version: u32, took: i64) {
    let id = JobId(1_000 + client.state.jobs.len() as u64);
    put_job(client, id.0, project, Usage::ONE_CPU);
    client.edit_job(id, |job| {
        job.version.number = version;
        (job.run.elapsed, job.run.base) = (Duration::from_secs(took), Duration::from_secs(took));
    });
    client.learn_estimate(id, Duration::from_secs(1_000));
}

fn left(client: &Client, id: JobId) -> f64 {
    client.workload.queue().get(id).unwrap().remaining.as_secs_f64()
}

fn told(client: &Client, project: ProjectId) -> f64 {
    client.compose_request(project, &WorkRequest::default()).unwrap().0.duration_correction_factor
}

#[test]
fn under_jc3_jobs_held_follow_the_quantile_of_their_version_and_no_single_job() {
    let mut client = following("JC3", &["a", "b"]);
    let [a, b] = ["a", "b"].map(|name| id_of(&client, name));
    let [first, second, other] =
        [(1, a), (2, a), (3, b)].map(|(id, of)| put_job(&mut client, id, of, Usage::ONE_CPU));
    client.edit_job(second, |job| job.version.number = 2);
    client.reassess(second);
    (0..10).for_each(|_| ended(&mut client, a, 2, 1_000));
    (0..10).for_each(|_| ended(&mut client, a, 1, 3_000));
    let all = |client: &Client| [first, second, other].map(|id| left(client, id));
    assert_eq!(all(&client), [3_000.0, 1_000.0, 1_000.0]);
    ended(&mut client, a, 2, 100_000);
    assert_eq!(all(&client), [3_000.0, 1_000.0, 1_000.0]);
    assert_eq!((told(&client, a), told(&client, b)), (3.0, 1.0));
}

/// A host may hold ten thousand jobs: they are not all looked at whenever one ends.
#[test]
fn jobs_of_many_versions_in_turn_do_not_make_all_that_are_held_be_estimated_anew() {
    let mut client = following("JC3", &["a"]);
    let a = id_of(&client, "a");
    let turn = |client: &mut Client| {
        (1..=20).for_each(|version| ended(client, a, version, 1_000 * (1 + i64::from(version % 3))));
    };
    (0..30).for_each(|_| turn(&mut client));
    let held = put_job(&mut client, 1, a, Usage::ONE_CPU);
    client.edit_job(held, |job| job.version.number = 10);
    client.reassess(held);
    assert_eq!(left(&client, held), 2_000.0, "by its own version");
    // Past the door, so that it shows whether it is looked at.
    client.state.jobs.edit(held, |job| job.version.number = 11);
    turn(&mut client);
    assert_eq!(left(&client, held), 2_000.0);
    client.reassess(held);
    assert_eq!(left(&client, held), 3_000.0);
}

/// Shows R5.8.
#[test]
fn servers_are_told_the_correction_factor_under_jc1_and_jc2_and_under_jc3_the_quantile() {
    let mut told_under = BTreeMap::new();
    for completion in ["JC1", "JC2", "JC3"] {
        let mut client = following(completion, &["a"]);
        let a = id_of(&client, "a");
        for took in [1_000, 1_000, 1_000, 1_000, 1_000, 1_000, 1_000, 1_000, 1_000, 50_000] {
            ended(&mut client, a, 1, took);
        }
        told_under.insert(completion, told(&client, a));
        client.edit_project(a, |project| project.dont_use_dcf = true);
        assert_eq!(told(&client, a), 1.0, "{completion}");
    }
    assert_eq!(told_under, BTreeMap::from([("JC1", 50.0), ("JC2", 50.0), ("JC3", 1.0)]));
}

/// CPU time and efficiency, one figure of the host that follows slowly, would make next to nothing of them.
#[test]
fn under_jc3_jobs_that_mostly_wait_take_as_long_as_the_last_of_them_ran() {
    let mut client = following("JC3", &["a"]);
    let a = id_of(&client, "a");
    let held = put_job(&mut client, 1, a, Usage::ONE_CPU);
    for n in 0..10 {
        let id = JobId(1_000 + n);
        put_job(&mut client, id.0, a, Usage::ONE_CPU);
        let (elapsed, cpu) = (Duration::from_secs(2_000), Duration::from_secs(2));
        client.edit_job(id, |job| (job.run.elapsed, job.run.base) = (elapsed, cpu));
        client.learn_estimate(id, Duration::from_secs(1_000));
        let left = left(&client, held);
        assert!((1_000.0..=2_000.0).contains(&left), "{left} after {n}");
    }
    assert_eq!((left(&client, held), told(&client, a)), (2_000.0, 2.0));
    let shortest = client.shortest(&client.state.jobs[&held]);
    assert_eq!(shortest, Some(Duration::from_secs(2_000)), "by which jobs are given up");
}

/// Most projects want no correction factor, since they correct speeds themselves: by the mean.
#[test]
fn under_jc3_a_project_that_wants_no_correction_factor_is_learned_from_all_the_same() {
    let mut client = following("JC3", &["a"]);
    let a = id_of(&client, "a");
    client.edit_project(a, |project| project.dont_use_dcf = true);
    let id = put_job(&mut client, 1, a, Usage::ONE_CPU);
    (0..10).for_each(|_| ended(&mut client, a, 1, 2_000));
    assert_eq!(left(&client, id), 2_000.0);
}

#[test]
fn what_was_learned_by_another_client_is_followed_under_jc3_too() {
    let mut client = following("JC3", &["a"]);
    let a = id_of(&client, "a");
    let id = put_job(&mut client, 1, a, Usage::ONE_CPU);
    client.adopt_correction(a, 2.5);
    assert_eq!((left(&client, id), told(&client, a)), (2_500.0, 2.5));
}

/// Shows R6.2.
#[test]
fn what_was_learned_of_jobs_is_stored_restored_and_if_damaged_learned_anew() {
    let mut client = following("JC3", &["a", "b"]);
    let [a, b] = ["a", "b"].map(|name| id_of(&client, name));
    (0..10).for_each(|_| ended(&mut client, a, 1, 2_000));
    ended(&mut client, b, 1, 2_000);
    let changes = client.handle(NOW, Event::WakeUp).changes;
    let stored = |id| changes.iter().find(|change| change.key == Record::Experience(id).key().into_bytes());
    let (of_a, of_b) = (stored(a).unwrap(), stored(b).unwrap());
    let ledger = Record::Ledger.change(&client.state, &client.ledger);
    for order in [[of_a, &ledger, of_b], [&ledger, of_b, of_a]] {
        let records = order.map(|change| (change.key.clone(), change.value.clone().unwrap()));
        let again = Client::restore(ClientConfig::new(1, client.config.version), records).unwrap();
        assert_eq!(again.ledger.experience(), client.ledger.experience());
    }
    let text = String::from_utf8(of_a.value.clone().unwrap()).unwrap();
    let absurd = text.replace("\"factor\":2.0", "\"factor\":-2.0");
    assert_ne!(absurd, text);
    for damaged in [absurd.as_str(), "1[1,{}]", "1nonsense", "1"] {
        let (mut state, mut ledger) = (State::default(), Default::default());
        restore(&mut state, &mut ledger, &of_a.key, damaged.as_bytes()).unwrap();
        assert!(ledger.experience().is_empty(), "{damaged}");
    }
    let newer = restore(&mut State::default(), &mut Default::default(), &of_a.key, b"2[]");
    assert!(matches!(newer, Err(RestoreError::Newer { .. })));
}

/// Shows R1.12.
#[test]
fn what_servers_are_told_fades_from_now_on_after_the_clock_was_ahead_and_that_is_stored() {
    let mut client = following("JC3", &["a"]);
    let a = id_of(&client, "a");
    let week = Duration::from_hours(24 * 7);
    client.handle(NOW + week * 52, Event::WakeUp);
    (0..10).for_each(|_| ended(&mut client, a, 1, 16_000));
    client.handle(NOW + week * 52, Event::WakeUp);
    let changes = client.handle(NOW, Event::WakeUp).changes;
    let stored = changes.into_iter().find(|change| change.key == Record::Experience(a).key().into_bytes());
    restore(&mut State::default(), &mut client.ledger, b"experience", &stored.unwrap().value.unwrap())
        .unwrap();
    let told_at = |client: &mut Client, at| {
        client.handle(at, Event::WakeUp);
        told(client, a)
    };
    assert_eq!((told_at(&mut client, NOW), told_at(&mut client, NOW + week)), (16.0, 4.0));
}

#[test]
fn of_a_project_that_is_detached_nothing_learned_stays() {
    let mut client = following("JC3", &["a"]);
    let a = id_of(&client, "a");
    ended(&mut client, a, 1, 2_000);
    client
        .state
        .jobs
        .keys()
        .copied()
        .collect::<Vec<_>>()
        .into_iter()
        .for_each(|id| client.forget_job(id, true));
    let changes = client.handle(NOW, Event::Detach { url: super::url("a") }).changes;
    let key = Record::Experience(a).key().into_bytes();
    assert!(changes.iter().any(|change| change.key == key && change.value.is_none()));
    assert!(client.ledger.experience().is_empty());
}
