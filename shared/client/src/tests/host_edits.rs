//! What follows when something of the host as a whole is edited.

use fallow_domain::agent_state::NetworkRest;
use fallow_domain::{
    Bytes, Device, DocumentVersion, Duration, FleetDocument, Fraction, HostFacts, MasterUrl, Preferences,
    ResourceType, Usage,
};

use super::{NOW, client, host, id_of, put_job};
use crate::machine::Client;
use crate::state::Meta;
use crate::{DeviceState, Entity, Event, Surroundings};

/// A client that runs a job, knows a GPU, and has nothing due.
fn settled() -> Client {
    let mut client = client(1, &["a"]);
    let a = id_of(&client, "a");
    put_job(&mut client, 1, a, Usage::ONE_CPU);
    put_job(&mut client, 2, a, Usage::from_cpus(0.1).with_coprocessor(ResourceType::Nvidia, 1.0));
    client.handle(NOW, Event::WakeUp);
    assert!(client.reports.next().is_some());
    client.finish_step(None);
    client.schedule.take_wanted();
    client.fetch.take_wanted();
    client
}

/// What follows: a decision about tasks, a check of work fetch, another look at reports, the record survives
/// a power cut, who is shown anew.
fn follows(edit: impl FnOnce(&mut Client)) -> (bool, bool, bool, bool, Vec<Entity>) {
    let mut client = settled();
    edit(&mut client);
    let (runs, fetch, reports) =
        (client.schedule.is_wanted(), client.fetch.is_wanted(), client.reports.next().is_none());
    let step = client.finish_step(None);
    let touched = step.touched.into_iter().filter(|entity| *entity == Entity::Host).collect();
    (runs, fetch, reports, step.durable, touched)
}

fn edited(edit: impl FnOnce(&mut Meta)) -> (bool, bool, bool, bool, Vec<Entity>) {
    follows(|client| client.edit_meta(edit))
}

fn document(preferences: Preferences) -> Option<FleetDocument> {
    Some(FleetDocument {
        content: String::new(),
        version: DocumentVersion(1),
        preferences,
        projects: Vec::new(),
    })
}

#[test]
fn an_edit_of_the_host_makes_due_what_follows_from_it() {
    let host = vec![Entity::Host];
    assert_eq!(edited(|_| {}), (false, false, false, false, vec![]));
    assert_eq!(edited(|meta| meta.owner.suspended = true), (true, true, false, true, host.clone()));
    let followed = edited(|meta| meta.document = document(Preferences::default()));
    assert_eq!(followed, (true, true, true, true, host.clone()));
    let url = MasterUrl::parse("http://127.0.0.1/a/").unwrap();
    let declined = follows(|client| {
        client.edit_meta(|meta| meta.declined.insert(url));
    });
    assert_eq!(declined, (false, false, false, true, host.clone()));
    let refused = edited(|meta| meta.document_refused = Some((DocumentVersion(1), "why".to_owned())));
    assert_eq!(refused, (false, false, false, false, host));
    // A number is given out, and stored.
    let mut client = settled();
    let (job, project) = (client.new_job_id(), client.new_project_id());
    assert!(client.new_job_id() > job && client.new_project_id() > project);
    assert!(client.finish_step(None).changes.iter().any(|change| change.key == b"meta"));
    client.note_draw();
    let step = client.finish_step(None);
    assert!(step.changes.iter().any(|change| change.key == b"meta") && step.touched.is_empty());
}

#[test]
fn what_was_measured_is_decided_by_if_it_is_another_machine() {
    let measured = |change: fn(&mut HostFacts)| {
        follows(|client| {
            let mut facts = host(1);
            change(&mut facts);
            client.edit_host(facts);
        })
    };
    let touched = vec![Entity::Host];
    assert_eq!(
        measured(|facts| facts.disk_free = facts.disk_total),
        (false, false, false, false, touched.clone())
    );
    assert_eq!(measured(|facts| facts.ncpus = 7), (true, true, false, false, touched));
}

#[test]
fn jobs_are_queued_by_the_preferences_in_force() {
    let queued = |client: &Client| client.workload.queue().iter().count();
    let mut client = settled();
    assert_eq!(queued(&client), 2);
    let excluded: std::collections::BTreeSet<_> = [Device::new(ResourceType::Nvidia, 0).unwrap()].into();
    client.edit_meta(|meta| meta.owner.excluded_devices = excluded.clone());
    assert_eq!((queued(&client), client.preferences().excluded_devices.len()), (1, 1), "it could not run");
    client.edit_meta(|meta| meta.owner.excluded_devices.clear());
    assert_eq!(queued(&client), 2);
    // So with any of what decides whether a job fits.
    let none = Fraction::clamped(0.0);
    let preferences = Preferences { memory_fraction: none, ..Preferences::default() };
    client.edit_meta(|meta| meta.document = document(preferences));
    assert_eq!(queued(&client), 0);
    client.edit_meta(|meta| meta.document = None);
    client.edit_host(host(0));
    assert_eq!(queued(&client), 1, "there is no GPU any more");
    let interval = Preferences { connection_interval: Duration::from_hours(1), ..Preferences::default() };
    client.edit_meta(|meta| meta.document = document(interval));
    assert_eq!(client.workload.queue().iter().next().unwrap().deadline, NOW + Duration::from_hours(239));
}

#[test]
fn r6_5_a_host_whose_devices_rest_while_somebody_uses_it_says_that_less_of_it_computes() {
    for (gpus, is_less) in [(1, true), (0, false)] {
        let mut client = client(gpus, &["a"]);
        let wished = document(Preferences { run_in_use: true, ..Preferences::default() });
        client.edit_meta(|meta| meta.document = wished);
        assert!(!client.host_view().is_less_in_use);
        client.handle(NOW, Event::OwnerInput { ago: Duration::ZERO });
        assert_eq!(client.host_view().is_less_in_use, is_less, "{gpus} GPUs");
        let excluded = [Device::new(ResourceType::Nvidia, 0).unwrap()].into();
        client.handle(NOW, Event::OwnerExcludedDevices(excluded));
        assert!(!client.host_view().is_less_in_use, "{gpus} GPUs that are left alone in any case");
    }
}

#[test]
fn r6_4_gpus_that_a_document_takes_from_all_jobs_or_from_a_projects_are_so_at_once_and_come_back_with_the_next()
 {
    let queued = |client: &Client| client.workload.queue().iter().count();
    let mut client = settled();
    let (a, gpu) = (id_of(&client, "a"), Device::new(ResourceType::Nvidia, 0).unwrap());
    let mut without = Preferences::default();
    without.local.use_gpus = false;
    client.edit_meta(|meta| meta.document = document(without));
    assert_eq!((queued(&client), client.device_state(gpu)), (1, DeviceState::ExcludedByFleet));
    client.edit_meta(|meta| meta.document = document(Preferences::default()));
    assert_eq!((queued(&client), client.device_state(gpu)), (2, DeviceState::Usable));
    let mut barred = Preferences::default();
    let url = client.state.projects[&a].url.clone();
    barred.local.excluded_of_projects = [format!("{url} all").parse().unwrap()].into();
    client.edit_meta(|meta| meta.document = document(barred));
    assert!(client.state.projects[&a].barred[ResourceType::Nvidia]);
    client.edit_meta(|meta| meta.document = None);
    assert!(!client.state.projects[&a].barred[ResourceType::Nvidia]);
}

#[test]
fn r6_4_network_hours_of_a_document_close_and_open_the_network_and_its_word_for_batteries_lets_the_host_compute()
 {
    let mut client = settled();
    assert_eq!(client.network_rests(), None);
    let mut closed = Preferences::default();
    // Its clock shows a Friday.
    closed.local.network_hours = "sun 12:00-13:00".parse().unwrap();
    client.edit_meta(|meta| meta.document = document(closed));
    assert!(client.network_rests().unwrap().contains("sun 12:00-13:00"));
    let around = Surroundings { on_battery: true, ..Surroundings::default() };
    client.handle(NOW, Event::SurroundingsSeen(around));
    assert!(client.preferences().suspended);
    let mut open = Preferences::default();
    open.local.run_on_batteries = true;
    client.edit_meta(|meta| meta.document = document(open));
    assert!(client.network_rests().is_none() && !client.preferences().suspended);
}

#[test]
fn r6_4_that_a_host_contacts_no_project_is_told_when_it_begins_and_when_it_ends() {
    let mut client = settled();
    let closed = |hours: &str| {
        let mut preferences = Preferences::default();
        preferences.local.network_hours = hours.parse().unwrap();
        document(preferences)
    };
    let tells = |client: &mut Client| {
        let step = client.handle(NOW, Event::VolumeSeen { free: Bytes(1 << 40) });
        (step.touched.contains(&Entity::Host), client.host_view().network_rest)
    };
    tells(&mut client);
    assert_eq!(tells(&mut client), (false, None));
    client.edit_meta(|meta| meta.document = closed("sun 12:00-13:00"));
    client.finish_step(None);
    assert_eq!(tells(&mut client), (true, Some(NetworkRest::Hours)));
    // What else follows from the document is told as well.
    tells(&mut client);
    assert_eq!(tells(&mut client), (false, Some(NetworkRest::Hours)));
    client.edit_meta(|meta| meta.document = closed("always"));
    client.finish_step(None);
    assert_eq!(tells(&mut client), (true, None));
    // It is woken for both.
    for hours in ["fri 00:00-23:59", "sun 12:00-13:00"] {
        client.edit_meta(|meta| meta.document = closed(hours));
        let is_closed = |at| client.state.host.network_closed_until(at).is_some();
        let change = client.next_hours().unwrap();
        assert!(
            is_closed(NOW) != is_closed(change)
                && is_closed(change - Duration::from_secs(1)) == is_closed(NOW)
        );
    }
}
