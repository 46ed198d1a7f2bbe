//! What is told to the coordinator of the disk: what was decided, once each, and how it stands.

use fallow_proto::fleet::v1::{DiskAct, DiskDecision, Document, entry, from_coordinator};

use crate::link::{Agent, Coordinator, GOOD, Held, document, host, token};

/// A version of the document that leaves so many bytes of the disk free.
fn leaving(version: u64, bytes: u64) -> from_coordinator::Body {
    let mut body = document(version, 75.0);
    if let from_coordinator::Body::Document(Document { preferences: Some(preferences), .. }) = &mut body {
        preferences.disk_free_min_bytes = bytes;
    }
    body
}

/// What the coordinator holds of what was decided, once that is so much.
fn decided(held: &Held, count: usize) -> Option<Vec<DiskDecision>> {
    match held.entries.get("disk")?.value.clone()? {
        entry::Value::Disk(disk) => Some(disk.decisions).filter(|all| all.len() == count),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r4_13_decisions_about_the_disk_are_told_once_each_and_only_to_a_coordinator_that_takes_them() {
    let (dir, coordinator) = (tempfile::tempdir().unwrap(), Coordinator::default());
    let (address, _serving) = coordinator.serve(None).await;
    let token = token(&coordinator, address, GOOD);
    let _agent = Agent::start_with(dir.path(), &token, &["--measure-disk-ms", "500"]);
    let stands = |held: &Held| host(held)?.disk;
    let space = coordinator.until("a measurement", stands).await;
    assert!(space.limit_bytes > 0 && space.used_bytes > 0 && !space.suspended, "{space:?}");
    // No volume has so much: computing is suspended. An older coordinator hears that, and no more.
    coordinator.send(leaving(1, 1 << 60), "").await;
    let space =
        coordinator.until("the suspension", |held| stands(held).filter(|space| space.suspended)).await;
    assert!(space.missing_bytes > 0 && space.limited_by.contains("disk_free_min"), "{space:?}");
    assert!(!coordinator.0.lock().unwrap().entries.contains_key("disk"));
    // One that takes the place of it hears the rest, without another snapshot.
    {
        let mut held = coordinator.0.lock().unwrap();
        held.takes_disk = true;
        held.lose();
    }
    let decisions = coordinator.until("what was decided", |held| decided(held, 1)).await;
    let [decision] = &decisions[..] else { panic!("{decisions:?}") };
    assert_eq!((decision.act(), decision.rule.as_str()), (DiskAct::Suspended, "R4.8"));
    assert!(decision.why.contains("computing is suspended") && decision.bytes > 0, "{decision:?}");
    // The host says much else meanwhile, and is measured again and again.
    for version in 2..=5 {
        coordinator.send(leaving(version, 1 << 60), "").await;
        let follows = |held: &Held| (host(held)?.document_version == version).then_some(());
        coordinator.until("another version", follows).await;
    }
    {
        let held = coordinator.0.lock().unwrap();
        assert_eq!((held.disk_told, held.snapshots), (1, 1));
    }
    coordinator.send(leaving(6, 0), "").await;
    let decisions = coordinator.until("the end of it", |held| decided(held, 2)).await;
    assert_eq!(
        decisions.iter().map(DiskDecision::act).collect::<Vec<_>>(),
        [DiskAct::Suspended, DiskAct::Resumed]
    );
    let space =
        coordinator.until("that it goes on", |held| stands(held).filter(|space| !space.suspended)).await;
    assert_eq!((space.missing_bytes, coordinator.0.lock().unwrap().disk_told), (0, 2));
}
