//! What is kept by difference when projects are edited, compared with what follows from them.

use std::collections::BTreeMap;

use fallow_domain::{AccountKey, Duration, KeyFingerprint, ProjectId, ResourceType, Share, Usage};
use fallow_policy::backoff::Wait;
use fallow_policy::completion::DurationCorrection;
use fallow_policy::composition::Composition;
use proptest::prelude::*;

use super::{NOW, client, id_of, put_job, wake_up};
use crate::described::Application;
use crate::machine::Client;
use crate::record::Record;
use crate::state::Project;
use crate::{Entity, Event, ProjectView};

/// Changes one thing of a project.
fn change(project: &mut Project, what: u8, n: u32) {
    let (secs, is_even) = (Duration::from_secs(i64::from(n)), n.is_multiple_of(2));
    match what {
        0 => project.name = format!("project {n}"),
        1 => project.account_key = AccountKey::new(format!("key{n}")),
        2 => project.share = Share::new(f64::from(n)).unwrap(),
        3 => project.chosen_share = is_even.then_some(Share::DEFAULT),
        4 => project.directory = is_even.then(|| format!("directory{n}")),
        5 => project.from_document = is_even,
        6 => project.detach_when_done = is_even,
        7 => project.scheduler_urls = vec![format!("http://127.0.0.1/{n}")],
        8 => project.rpc.on_request_delay(NOW, secs),
        9 => project.hostid = u64::from(n),
        10 => project.rpc_seqno = u64::from(n),
        11 => project.code_sign_key = is_even.then(|| format!("{n}")),
        12 => project.correction = DurationCorrection::new(f64::from(n) + 1.0),
        13 => project.dont_use_dcf = is_even,
        14 => project.send_full_workload = is_even,
        15 => project.contact_by = is_even.then(|| Wait::new(NOW, secs)),
        16 => project.identity.venue = format!("venue{n}"),
        17 => drop(project.apps.insert(format!("app{n}"), Application::default())),
        18 => project.lacks[ResourceType::Nvidia] = is_even,
        19 => project.required_key = is_even.then(|| KeyFingerprint::new([7; 32])),
        20 => project.without = is_even.then_some(ResourceType::Nvidia).into_iter().collect(),
        _ => project.job_time = is_even.then_some(secs),
    }
}

/// Which decisions have become due: what runs, what to fetch.
fn due(client: &mut Client) -> (bool, bool) {
    (client.schedule.take_wanted(), client.fetch.take_wanted())
}

/// What follows from an edit of a project: what runs and what to fetch are due, its record must survive a
/// power cut, who has to be shown anew.
fn follows(edit: impl FnOnce(&mut Client, ProjectId)) -> (bool, bool, bool, Vec<Entity>) {
    let mut client = client(0, &["a"]);
    let a = id_of(&client, "a");
    client.handle(NOW, Event::WakeUp);
    due(&mut client);
    edit(&mut client, a);
    let ((runs, fetch), step) = (due(&mut client), client.finish_step(None));
    (runs, fetch, step.durable, step.touched)
}

#[test]
fn an_edit_of_a_project_makes_due_what_follows_from_it() {
    let (a, host) = (Entity::Project(ProjectId(0)), Entity::Host);
    let edited = |edit: &dyn Fn(&mut Project)| {
        follows(|client, id| {
            client.edit_project(id, edit);
        })
    };
    let changed = |what: u8, n: u32| edited(&|project| change(project, what, n));
    assert_eq!(edited(&|_| {}), (false, false, false, vec![]));
    // A share, an account, whether it stays, who decides.
    let shares = (true, true, true, vec![host, a]);
    assert_eq!(changed(2, 7), shares);
    assert_eq!(changed(1, 7), shares);
    assert_eq!(changed(6, 2), shares);
    assert_eq!(edited(&|project| project.from_document = !project.from_document), shares);
    // When and for what it may be asked.
    let asks = (false, true, false, vec![a]);
    assert_eq!(changed(8, 7), (false, true, true, vec![a]), "its owner overrode a delay");
    assert_eq!(edited(&|project| project.web.without[ResourceType::Cpu] = true), asks);
    let left_out = |project: &mut Project| project.without = [ResourceType::Cpu].into_iter().collect();
    assert_eq!(edited(&left_out), (false, true, true, vec![a]), "the coordinator's word");
    let delayed = follows(|client, id| {
        client.edit_rpc(id, |rpc| rpc.on_request_delay(NOW, Duration::from_secs(9)));
    });
    assert_eq!(delayed, asks);
    // What a server would hold against us, what it says of itself, and what may be lost.
    assert_eq!(changed(10, 7), (false, false, true, vec![a]));
    assert_eq!(changed(16, 7), (false, false, true, vec![a]));
    assert_eq!(changed(15, 2), (false, false, false, vec![a]));
    // What is counted shows in its view and in the host's.
    let counted = follows(|client, id| client.count(id, |totals| totals.rpcs += 1));
    assert_eq!(counted, (false, false, false, vec![host, a]));
    assert_eq!(follows(|client, id| client.count(id, |_| {})), (false, false, false, vec![]));
}

#[test]
fn the_queue_follows_how_a_project_corrects_its_estimates() {
    let mut client = client(0, &["a"]);
    client.config.composition = Composition::base();
    let a = id_of(&client, "a");
    let id = put_job(&mut client, 1, a, Usage::ONE_CPU);
    let left = |client: &Client| client.workload.queue().get(id).unwrap().remaining.as_secs_f64();
    let uncorrected = left(&client);
    client.edit_correction(a, |_| DurationCorrection::new(3.0));
    assert!((left(&client) / uncorrected - 3.0).abs() < 1e-9);
    assert!(due(&mut client).1);
    client.edit_project(a, |project| project.dont_use_dcf = true);
    assert!((left(&client) / uncorrected - 1.0).abs() < 1e-9);
    client.edit_project(a, |project| project.dont_use_dcf = false);
    assert!((left(&client) / uncorrected - 3.0).abs() < 1e-9);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_is_stored_and_shown_of_projects_is_what_follows_from_them(
        steps in prop::collection::vec((0_u32..2, 0_u8..22, 0_u32..6), 1..60)
    ) {
        let mut client = client(0, &["a", "b"]);
        let mut records: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
        let mut views: BTreeMap<ProjectId, ProjectView> = BTreeMap::new();
        let all = |client: &Client| -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
            let changes = client.state.projects.keys().map(|id| Record::Project(*id).change(&client.state, &client.ledger));
            changes.map(|change| (change.key, change.value)).collect()
        };
        records.extend(all(&client));
        views.extend(client.project_views().into_iter().map(|view| (view.id, view)));
        for (number, what, n) in steps {
            let id = ProjectId(number);
            client.edit_project(id, |project| change(project, what, n));
            let step = client.finish_step(None);
            let stored = step.changes.into_iter().filter(|change| change.key.starts_with(b"project/"));
            records.extend(stored.map(|change| (change.key, change.value)));
            for entity in step.touched {
                if let Entity::Project(id) = entity {
                    views.insert(id, client.project_view(id).unwrap());
                }
            }
            prop_assert_eq!(&records, &all(&client));
            let shown: Vec<ProjectView> = views.values().cloned().collect();
            prop_assert_eq!(shown, client.project_views());
            let wake_up = client.next_wake_up();
            wake_up::check(&client, wake_up);
        }
    }
}
