//! Changes that wait to be signed: by whom and how they go out then.

use crate::audit::log::Query;
use fallow_rollout::{Order, Phase};

use super::*;

fn by(name: &str) -> Author {
    Author { actor: Actor::Operator(name.to_owned()), ..Author::default() }
}

/// Signed documents of which hosts have version 1. Changes go out in waves, and a second person has to
/// approve them.
async fn signed(dir: &std::path::Path, reach: &Arc<dyn Reach>) -> Arc<Documents> {
    let documents = Documents::open(Arc::new(SledStore::open(dir).unwrap())).unwrap();
    documents.set_reach(Arc::downgrade(reach));
    documents.set_organisation(by("adm"), Instant::EPOCH, vec![organisation().public()]).await.unwrap();
    documents.put_project(by("adm"), Instant::EPOCH, assignment("a")).await.unwrap();
    assert_eq!(sign(&documents, 1).await, DocumentVersion(1));
    let mut plan = Plan::new("50%,100%", fallow_domain::Duration::from_mins(10)).unwrap();
    plan.approval_over = Some(0);
    documents.set_plan(by("adm"), Some(plan)).await.unwrap();
    Arc::new(documents)
}

/// A change of a share.
async fn change(documents: &Documents, author: Author, share: f64) -> Result<u64, DocumentError> {
    let change = FleetChange::Shares(vec![("a".to_owned(), share)]);
    documents.change_fleet_wide(author, Instant::EPOCH, change).await.map(|(_, set)| set.fleet.version.0)
}

async fn approve(documents: &Documents, name: &str) -> Result<Arc<Rollout>, String> {
    let order = documents.order(by(name), Instant::EPOCH, Order::Approve, (None, None));
    order.await.map_err(|error| error.to_string())
}

fn share_of(published: &Published) -> f64 {
    published.audited.set.fleet.projects[0].share.get()
}

#[tokio::test]
async fn r6_5_nobody_approves_a_change_that_he_made_himself_whoever_brings_its_signature() {
    let (dir, reach) = (tempfile::tempdir().unwrap(), Arc::new(One::default()) as Arc<dyn Reach>);
    let documents = signed(dir.path(), &reach).await;
    change(&documents, by("ann"), 2.0).await.unwrap();
    change(&documents, by("eve"), 3.0).await.unwrap();
    sign_as(&documents, by("bob"), 2).await;
    let rollout = documents.release().rollout.clone().unwrap();
    assert_eq!((rollout.begun_by.as_str(), &rollout.phase), ("bob", &Phase::Waiting));
    for (name, what) in [
        ("ann", "made a change that goes out with"),
        ("eve", "made a change that goes out with"),
        ("bob", "began"),
    ] {
        let why = approve(&documents, name).await.unwrap_err();
        assert!(why.contains(&format!("{name} {what} rollout 1: somebody else")), "{why}");
    }
    // What was signed before is nobody's any more.
    assert_eq!(approve(&documents, "adm").await.unwrap().phase, Phase::Watching);
}

#[tokio::test]
async fn r6_5_where_nothing_is_signed_any_more_what_waited_goes_out_by_the_plan() {
    let (dir, reach) = (tempfile::tempdir().unwrap(), Arc::new(One::default()) as Arc<dyn Reach>);
    let documents = signed(dir.path(), &reach).await;
    change(&documents, by("ann"), 2.0).await.unwrap();
    documents.set_organisation(by("adm"), Instant::EPOCH, Vec::new()).await.unwrap();
    let host = fallow_domain::AgentId("h".into());
    for documents in [documents.clone(), Arc::new(Documents::open(documents.store.clone()).unwrap())] {
        let release = documents.release();
        let (rollout, base) = release.open().expect("it goes out in waves");
        assert_eq!((&rollout.phase, rollout.candidate), (&Phase::Waiting, DocumentVersion(2)));
        assert_eq!(base.audited.set.fleet.version, DocumentVersion(1));
        let has = release.of(&host, DocumentVersion(1), |_| None, Default::default).unwrap();
        assert_eq!(has.audited.set.fleet.version, DocumentVersion(1));
    }
    assert!(approve(&documents, "ann").await.is_err());
    assert_eq!(approve(&documents, "bob").await.unwrap().phase, Phase::Watching);
    let log = crate::audit::AuditLog::open(documents.store.clone()).unwrap();
    let entries = log.page(&Query { limit: 100, ..Default::default() }).unwrap().entries;
    let said = "version 2, which waited, goes out, by rollout 1";
    assert!(entries.iter().any(|entry| format!("{entry:?}").contains(said)), "{entries:?}");
}

#[tokio::test]
async fn r6_5_what_a_new_term_says_again_is_what_hosts_have_not_what_waits_to_be_signed() {
    let (dir, reach) = (tempfile::tempdir().unwrap(), Arc::new(One::default()) as Arc<dyn Reach>);
    let documents = signed(dir.path(), &reach).await;
    change(&documents, by("ann"), 2.0).await.unwrap();
    let term = documents.clone().begin_term(by("adm"), Instant::EPOCH, 1, "as the first of a term".into());
    assert_eq!(term.await.unwrap(), DocumentVersion::first_of(1));
    let release = documents.release();
    let newest = release.newest.as_ref().unwrap();
    assert_eq!((release.is_held, share_of(newest)), (false, Share::DEFAULT.get()));
    let said = "version 1 again, as the first of a term, without version 2, which had not gone out to all";
    assert_eq!(newest.audited.change, said);
    // The change is made again, and waits for a second person as ever.
    change(&documents, by("ann"), 2.0).await.unwrap();
    sign_as(&documents, by("bob"), 3).await;
    assert_eq!(documents.release().open().unwrap().0.phase, Phase::Waiting);
}

#[tokio::test]
async fn r6_5_no_change_rides_with_an_emergency_that_waits_to_be_signed() {
    let (dir, reach) = (tempfile::tempdir().unwrap(), Arc::new(One::default()) as Arc<dyn Reach>);
    let documents = signed(dir.path(), &reach).await;
    change(&documents, Author { emergency: true, ..by("adm") }, 2.0).await.unwrap();
    let why = change(&documents, by("ann"), 3.0).await.unwrap_err().to_string();
    assert!(why.contains("version 2 waits to be signed") && why.contains("--emergency"), "{why}");
    sign(&documents, 2).await;
    assert!(documents.release().open().is_none(), "an emergency goes to all at once");
    change(&documents, by("ann"), 3.0).await.unwrap();
    sign(&documents, 3).await;
    assert_eq!(documents.release().open().unwrap().0.phase, Phase::Waiting);
}

#[tokio::test]
async fn r6_5_keys_that_are_renewed_while_a_change_waits_say_that_it_is_not_among_them() {
    let (dir, reach) = (tempfile::tempdir().unwrap(), Arc::new(One::default()) as Arc<dyn Reach>);
    let documents = signed(dir.path(), &reach).await;
    change(&documents, by("ann"), 2.0).await.unwrap();
    documents.renew(by("adm"), Instant::EPOCH, "accounts anew", &[]).await.unwrap();
    let newest = documents.release().newest.clone().unwrap();
    assert_eq!(share_of(&newest), Share::DEFAULT.get());
    assert_eq!(newest.audited.change, "accounts anew, without version 2, which had not gone out to all");
}
