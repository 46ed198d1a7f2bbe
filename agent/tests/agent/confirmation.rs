//! A version of the document that the coordinator does not acknowledge, by a real agent over the real link
//! (R6.5).

use fallow_proto::fleet::v1::HostState;

use crate::link::{Agent, Coordinator, GOOD, Held, document, host, host_of, token};

/// Long enough for a loaded machine to acknowledge in.
const CONFIRM_WITHIN: &str = "--confirm-within-ms=12000";

fn follows(version: u64) -> impl Fn(&Held) -> Option<HostState> {
    move |held| host(held).filter(|host| host.document_version == version)
}

/// The coordinator's silence begins or ends: a link that stands was not silent.
fn is_silent(coordinator: &Coordinator, is_silent: bool) {
    coordinator.0.lock().unwrap().is_silent = is_silent;
}

/// So many heartbeats come, of which each takes 0.2 s.
async fn heartbeats(coordinator: &Coordinator, count: u32) {
    let before = coordinator.0.lock().unwrap().heartbeats;
    coordinator.until("heartbeats", |held| (held.heartbeats >= before + count).then_some(())).await;
}

fn links(held: &Held) -> usize {
    held.hellos.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_5_an_agent_goes_back_from_what_is_not_acknowledged_also_when_it_is_killed_and_refuses_it_after_the_second_time()
 {
    let (dir, coordinator) = (tempfile::tempdir().unwrap(), Coordinator::default());
    let (address, _serving) = coordinator.serve(None).await;
    let token = token(&coordinator, address, GOOD);
    let start = || Agent::start_with(dir.path(), &token, &[CONFIRM_WITHIN]);
    let process = start();
    coordinator.until("the snapshot", |held| host(held).map(drop)).await;
    coordinator.send(document(1, 75.0), "").await;
    coordinator.until("version 1", follows(1)).await;

    // Nothing is acknowledged. It is killed in the middle, and what it had used of the time is used.
    is_silent(&coordinator, true);
    coordinator.send(document(2, 50.0), "").await;
    coordinator.until("version 2", follows(2)).await;
    heartbeats(&coordinator, 10).await;
    let before = links(&coordinator.0.lock().unwrap());
    drop(process);
    let process = start();
    let hello = coordinator.until("another life", |held| held.hellos.get(before).cloned()).await;
    assert_eq!(hello.document_version, 2);
    let back = coordinator.until("version 1 again", follows(1)).await;
    let silence = "the coordinator acknowledged nothing for 12 s of time on";
    assert_eq!(back.document_rolled_back_version, 2);
    // The next link may tell already that the coordinator had heard of it: too late.
    assert!(back.document_rollback.starts_with(silence), "{}", back.document_rollback);
    assert!(back.document_rolled_back_at_micros > 0 && back.document_refusal.is_empty());

    // The link is begun anew, and says which version is followed. What is offered over it is taken once more.
    let linked =
        |held: &Held| held.hellos.iter().skip(before + 1).any(|one| one.document_version == 1).then_some(());
    coordinator.until("another link", linked).await;
    coordinator.send(document(2, 50.0), "").await;
    coordinator.until("version 2 once more", follows(2)).await;
    let before = links(&coordinator.0.lock().unwrap());
    coordinator.until("version 1 for good", follows(1)).await;
    coordinator.until("another link", |held| (links(held) > before).then_some(())).await;
    is_silent(&coordinator, false);
    coordinator.send(document(2, 50.0), "").await;
    let refused = coordinator
        .until("the refusal", |held| host(held).filter(|host| !host.document_refusal.is_empty()))
        .await;
    assert_eq!((refused.document_version, refused.document_refused_version), (1, 2));
    assert!(refused.document_refusal.contains("this host went back from it"), "{refused:?}");

    // A newer version is another matter, and is confirmed; so it is after another kill.
    coordinator.send(document(3, 50.0), "").await;
    let confirmed = |held: &Held| follows(3)(held).filter(|host| host.document_rolled_back_version == 0);
    coordinator.until("version 3 to be confirmed", confirmed).await;
    drop(process);
    is_silent(&coordinator, true);
    let before = links(&coordinator.0.lock().unwrap());
    let _process = start();
    coordinator.until("another life", |held| (links(held) > before).then_some(())).await;
    heartbeats(&coordinator, 100).await;
    assert!(follows(3)(&coordinator.0.lock().unwrap()).is_some(), "what is confirmed needs nobody");
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_5_an_agent_keeps_a_version_when_its_coordinator_says_that_it_has_no_space_to_store_the_report() {
    let (dir, coordinator) = (tempfile::tempdir().unwrap(), Coordinator::default());
    let (address, _serving) = coordinator.serve(None).await;
    let token = token(&coordinator, address, GOOD);
    let _process = Agent::start_with(dir.path(), &token, &[CONFIRM_WITHIN]);
    coordinator.until("the snapshot", |held| host(held).map(drop)).await;
    coordinator.send(document(1, 75.0), "").await;
    coordinator.until("version 1", follows(1)).await;

    coordinator.0.lock().unwrap().is_full = true;
    coordinator.send(document(2, 50.0), "").await;
    let says = |version: u64| {
        move |held: &Held| {
            let host = held.unstored.iter().rev().find_map(host_of)?;
            (host.document_version == version).then_some(())
        }
    };
    coordinator.until("version 2", says(2)).await;
    // What is said in the same breath counts for nothing, and no link lasts on which nothing is stored.
    {
        let mut held = coordinator.0.lock().unwrap();
        held.unstored.clear();
        held.lose();
    }
    coordinator.until("version 2 over another link", says(2)).await;
    heartbeats(&coordinator, 10).await;

    // For longer than it would have waited.
    is_silent(&coordinator, true);
    let before = {
        let mut held = coordinator.0.lock().unwrap();
        held.is_full = false;
        held.lose();
        links(&held)
    };
    let hello = coordinator.until("another link", |held| held.hellos.get(before).cloned()).await;
    assert_eq!(hello.document_version, 2);
    coordinator.until("version 2", follows(2)).await;
    heartbeats(&coordinator, 100).await;
    let held = coordinator.0.lock().unwrap();
    assert!(follows(2)(&held).is_some_and(|host| host.document_rolled_back_version == 0));
}
