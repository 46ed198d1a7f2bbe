//! Long-term debts are settled by what projects were and had until now, before that changes (R3.3).

use fallow_domain::{
    AccountKey, DocumentVersion, Duration, FleetDocument, Fraction, HostFacts, Preferences, ProjectId,
    ResourceType, Share,
};
use fallow_policy::type_backoff::ReplyForType;

use super::{NOW, client, host, id_of, url};
use crate::machine::Client;
use crate::record::Record;
use crate::state::Project;
use crate::{Event, Startup};

const CPU: ResourceType = ResourceType::Cpu;

fn share(share: f64) -> Share {
    Share::new(share).unwrap()
}

/// A client whose projects have these shares, and have used so many hours of its two CPUs, which are not
/// settled.
fn unsettled(projects: &[(&str, f64, i64)]) -> Client {
    let names: Vec<&str> = projects.iter().map(|(name, ..)| *name).collect();
    let mut client = client(0, &names);
    for (name, of, _) in projects {
        let id = id_of(&client, name);
        client.ledger.type_answered(id, CPU, ReplyForType::Jobs(1), NOW, client.random.stream());
        client.edit_project(id, |project| project.share = share(*of));
    }
    client.settle_long_term();
    for (name, _, hours) in projects {
        client.ledger.used(id_of(&client, name), CPU, Duration::from_hours(*hours));
    }
    client
}

/// The debt of a project in hours, when all is settled.
fn settled(client: &mut Client, name: &str) -> i64 {
    client.settle_long_term();
    (client.ledger.long_term().of(id_of(client, name), CPU).as_secs() / 3600.0).round() as i64
}

/// What is owed to a project of three quarters that has had one half of 200 hours, if so much is changed of
/// it or of the host.
fn owed(change: impl FnOnce(&mut Client, ProjectId)) -> i64 {
    let mut client = unsettled(&[("a", 300.0, 100), ("b", 100.0, 100)]);
    let a = id_of(&client, "a");
    change(&mut client, a);
    settled(&mut client, "a")
}

#[test]
fn r3_3_what_a_project_earned_until_its_share_changed_or_it_was_stopped_it_has_earned() {
    let edited = |change: fn(&mut Project)| {
        owed(|client, id| {
            client.edit_project(id, change);
        })
    };
    assert_eq!(edited(|_| {}), 50);
    assert_eq!(edited(|project| project.share = share(100.0)), 50);
    assert_eq!(edited(|project| project.detach_when_done = true), 50);
    assert_eq!(edited(|project| project.web.without[CPU] = true), 50);
}

#[test]
fn r3_3_what_projects_earned_of_a_host_before_it_changed_they_have_earned() {
    let half = Preferences { cpu_fraction: Fraction::clamped(0.5), ..Preferences::default() };
    let document = FleetDocument {
        content: String::new(),
        version: DocumentVersion(1),
        preferences: half,
        projects: Vec::new(),
    };
    assert_eq!(owed(|client, _| client.offer_document(document)), 50);
    assert_eq!(owed(|client, _| client.edit_host(HostFacts { ncpus: 1, ..host(0) })), 50);
}

#[test]
fn r3_3_what_a_project_did_not_earn_while_it_was_held_back_it_does_not_earn_with_a_new_account() {
    let debt = owed(|client, id| {
        let (now, none) = (client.now(), ReplyForType::NoneNow);
        client.ledger.type_answered(id, CPU, none, now, client.random.stream());
        let account_key = AccountKey::new("fedcba9876543210fedcba9876543210");
        client.attach(url("a"), account_key, Some(share(300.0)));
    });
    assert_eq!(debt, 0);
}

#[test]
fn r3_5_a_project_that_is_known_to_be_down_earns_nothing_and_keeps_what_it_had_earned() {
    let mut client = unsettled(&[("a", 300.0, 100), ("b", 100.0, 100)]);
    let a = id_of(&client, "a");
    client.with_rpc(a, |rpc, rng| rpc.on_failure(NOW, rng));
    assert_eq!(settled(&mut client, "a"), 50);
    client.ledger.used(id_of(&client, "b"), CPU, Duration::from_hours(200));
    assert_eq!(settled(&mut client, "a"), 50);
    client.edit_rpc(a, |rpc| rpc.on_success());
    client.ledger.used(id_of(&client, "b"), CPU, Duration::from_hours(200));
    // Of the 150 hours that it was due, half is in what the other owes more.
    assert_eq!(settled(&mut client, "a"), 175, "it answers again");
}

#[test]
fn r3_3_what_projects_earned_beside_one_that_leaves_they_have_earned_beside_it() {
    let mut client = unsettled(&[("a", 300.0, 75), ("b", 100.0, 25), ("c", 400.0, 100)]);
    client.handle(NOW, Event::Detach { url: url("c") });
    assert_eq!(settled(&mut client, "a"), 0);
}

#[test]
fn r3_3_what_is_not_settled_of_an_earlier_life_is_settled_by_the_host_that_is_found() {
    let client = unsettled(&[("a", 300.0, 100), ("b", 100.0, 100)]);
    let projects = client.state.projects.keys().map(|id| Record::Project(*id));
    let stored = projects.chain([Record::Meta, Record::Ledger]).map(|record| {
        let change = record.change(&client.state, &client.ledger);
        (change.key, change.value.unwrap())
    });
    let records: Vec<_> = stored.collect();
    let mut again = Client::restore(client.config, records).unwrap();
    again.start(Startup { host: host(0), slots: Vec::new(), files: Vec::new(), doomed: Vec::new() });
    assert_eq!(settled(&mut again, "a"), 50);
}
