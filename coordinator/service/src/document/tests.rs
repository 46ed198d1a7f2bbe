use super::*;
mod waiting;

use fallow_domain::{ResourceTypes, Share};
use fallow_fleet::GroupText;
use fallow_store::{Batch, BatchResult, Format, SledStore};
use std::sync::atomic::{AtomicUsize, Ordering};

fn assignment(name: &str) -> ProjectAssignment {
    ProjectAssignment {
        name: name.into(),
        url: MasterUrl::parse(&format!("http://127.0.0.1:1/{name}/")).unwrap(),
        account_key: AccountKey::new("key"),
        share: Share::DEFAULT,
        code_sign_key: None,
        without: ResourceTypes::default(),
    }
}

async fn shares(documents: &Documents, shares: &[(&str, f64)]) -> Result<u64, DocumentError> {
    let shares: Vec<_> = shares.iter().map(|(name, share)| ((*name).to_owned(), *share)).collect();
    let author = Author { actor: Actor::Operator("tester".into()), ..Author::default() };
    let change = FleetChange::Shares(shares);
    documents.change_fleet_wide(author, Instant::EPOCH, change).await.map(|(_, set)| set.fleet.version.0)
}

#[tokio::test]
async fn r6_5_every_version_is_kept_with_who_made_it_and_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    {
        let documents = Documents::open(Arc::new(SledStore::open(dir.path()).unwrap())).unwrap();
        assert!(documents.current().is_none());
        documents.put_project(Author::default(), Instant::EPOCH, assignment("a")).await.unwrap();
        assert_eq!(shares(&documents, &[("a", 75.0)]).await.unwrap(), 2);
        // The same again changes nothing, so it makes no version.
        assert_eq!(shares(&documents, &[("a", 75.0)]).await.unwrap(), 2);
    }
    let documents = Documents::open(Arc::new(SledStore::open(dir.path()).unwrap())).unwrap();
    assert_eq!(documents.document().version.0, 2);
    let history = documents.history(100).unwrap();
    assert_eq!(history.len(), 2);
    assert_eq!((history[1].made_by.as_str(), history[1].change.as_str()), ("tester", "shares a=75"));
}

#[tokio::test]
async fn r6_10_a_renewed_document_names_a_projects_new_key_and_leaves_other_projects_alone() {
    let dir = tempfile::tempdir().unwrap();
    let documents = Documents::open(Arc::new(SledStore::open(dir.path()).unwrap())).unwrap();
    for name in ["a", "b"] {
        documents.put_project(Author::default(), Instant::EPOCH, assignment(name)).await.unwrap();
    }
    let keys = [(assignment("a").url, AccountKey::new("new"))];
    let renewed = documents.renew(Author::default(), Instant::EPOCH, "keys", &keys).await.unwrap();
    assert_eq!(renewed.version.0, 3);
    let held: Vec<_> = renewed.projects.iter().map(|project| project.account_key.reveal()).collect();
    assert_eq!(held, ["new", "key"]);
}

#[tokio::test]
async fn a_change_whose_caller_goes_away_is_published_and_the_next_one_follows_it() {
    let dir = tempfile::tempdir().unwrap();
    let documents = Documents::open(Arc::new(SledStore::open(dir.path()).unwrap())).unwrap();
    documents.put_project(Author::default(), Instant::EPOCH, assignment("a")).await.unwrap();
    let mut newest = documents.watch();
    newest.mark_unchanged();
    {
        let call = std::pin::pin!(shares(&documents, &[("a", 1.0)]));
        // Polled once: the change is on its way to the store. Then the caller goes.
        assert!(futures_util::poll!(call).is_pending());
    }
    assert_eq!(shares(&documents, &[("a", 2.0)]).await.unwrap(), 3);
    assert_eq!(documents.history(100).unwrap().len(), 3);
    assert!(newest.has_changed().unwrap());
}

fn group(name: &str, precedence: u32, rest: &str) -> Change {
    let text = format!("name = \"{name}\"\nprecedence = {precedence}\nselector = \"room=12\"\n{rest}");
    let file = GroupText { file: format!("{name}.toml"), text };
    Change { files: vec![file], ..Change::default() }
}

#[tokio::test]
async fn r6_5_the_history_counts_the_groups_that_it_has_no_room_to_name_and_names_those_that_are_gone_first()
{
    let dir = tempfile::tempdir().unwrap();
    let documents = Documents::open(Arc::new(SledStore::open(dir.path()).unwrap())).unwrap();
    let change = |change| documents.change_groups(Author::default(), Instant::EPOCH, change);
    change(group("zzz", 999, "")).await.unwrap();
    let files = (1..51).flat_map(|number| group(&format!("room-{number:0>30}"), number, "").files).collect();
    change(Change { files, remove: vec!["zzz".into()], ..Change::default() }).await.unwrap();
    let said = documents.history(100).unwrap().pop().unwrap().change;
    assert!(said.starts_with("groups zzz removed, room-0000"), "{said}");
    assert!(said.ends_with(" more") && said.len() < 1_100, "{said}");
    let named = said.matches("room-").count();
    assert!(named > 20 && said.contains(&format!("and {} more", 50 - named)), "{said}");
}

#[tokio::test]
async fn r6_5_a_change_of_groups_is_a_version_with_hash_and_message_and_the_same_again_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let documents = Documents::open(Arc::new(SledStore::open(dir.path()).unwrap())).unwrap();
    documents.put_project(Author::default(), Instant::EPOCH, assignment("a")).await.unwrap();
    let tester = Actor::Operator("tester".into());
    let author = || Author { actor: tester.clone(), message: "quiet\nroom".into(), ..Author::default() };
    let change = group("quiet", 5, "[preferences]\ncpu_fraction = 0.5\n");
    for _ in 0..2 {
        let (_, set) = documents.change_groups(author(), Instant::EPOCH, change.clone()).await.unwrap();
        assert_eq!((set.fleet.version.0, set.groups.0.len()), (2, 1));
    }
    let removal = Change { remove: vec!["quiet".into()], ..Change::default() };
    documents.change_groups(Author::default(), Instant::EPOCH, removal).await.unwrap();
    let history = documents.history(100).unwrap();
    let said = (history[1].change.as_str(), history[1].message.as_str());
    assert_eq!(said, ("groups quiet", "quiet\u{fffd}room"));
    assert_eq!(history[2].change, "groups quiet removed");
    assert_eq!((history[1].groups, history[2].groups), (1, 0));
    // What is back to what it was has its hash again.
    assert_eq!((history[0].hash == history[2].hash, history[0].hash == history[1].hash), (true, false));
    assert_eq!(documents.history(1).unwrap(), history[2..]);
}

/// Many files of groups are read while somebody else changes documents.
async fn change_while_files_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let documents = Documents::open(Arc::new(SledStore::open(dir.path()).unwrap())).unwrap();
    documents.put_project(Author::default(), Instant::EPOCH, assignment("a")).await.unwrap();
    let long = format!("{}\n", "# a remark of some length\n".repeat(2_400));
    let groups = (1..=200).map(|number| group(&format!("g{number}"), number, &long));
    let change = Change { files: groups.flat_map(|one| one.files).collect(), ..Change::default() };
    let mut call = std::pin::pin!(documents.change_groups(Author::default(), Instant::EPOCH, change));
    // Polled once: it has begun.
    assert!(futures_util::poll!(&mut call).is_pending());
    assert_eq!(shares(&documents, &[("a", 2.0)]).await.unwrap(), 2);
    let (before, set) = call.await.unwrap();
    assert_eq!((before.fleet.version.0, before.groups.0.len()), (2, 0));
    assert_eq!((set.fleet.version.0, set.fleet.projects[0].share.get(), set.groups.0.len()), (3, 2.0, 200));
}

#[tokio::test]
async fn r6_5_while_files_of_groups_are_read_nobody_else_who_changes_documents_waits() {
    change_while_files_are_read().await;
}

#[test]
fn r6_10_where_there_is_one_thread_for_them_all_who_change_documents_come_to_an_end() {
    let mut one = tokio::runtime::Builder::new_current_thread();
    let runtime = one.max_blocking_threads(1).enable_time().build().unwrap();
    let time = std::time::Duration::from_secs(60);
    let ended = runtime.block_on(async {
        tokio::time::timeout(time, change_while_files_are_read()).await.map_err(|_| "groups")?;
        let dir = tempfile::tempdir().unwrap();
        let documents = Arc::new(Documents::open(Arc::new(SledStore::open(dir.path()).unwrap())).unwrap());
        documents.put_project(Author::default(), Instant::EPOCH, assignment("a")).await.unwrap();
        // Whoever changes the documents has his turn already when the term begins.
        let turn = documents.changing.clone().lock_owned().await;
        let term = documents.clone().begin_term(Author::default(), Instant::EPOCH, 1, "again".into());
        let mut term = std::pin::pin!(term);
        assert!(futures_util::poll!(&mut term).is_pending());
        tokio::time::timeout(time, blocking(|| drop(turn))).await.map_err(|_| "work")?;
        tokio::time::timeout(time, term).await.map_err(|_| "a term").map(drop)
    });
    // Whoever waits on the thread for ever is left there.
    runtime.shutdown_background();
    ended.unwrap();
}

#[tokio::test]
async fn r6_4_a_project_that_a_group_has_elsewhere_is_not_put_into_the_fleets_document() {
    let dir = tempfile::tempdir().unwrap();
    let documents = Documents::open(Arc::new(SledStore::open(dir.path()).unwrap())).unwrap();
    let far = "[projects.far]\nurl = \"https://far.example.org/\"\naccount_key = \"k\"\n";
    documents.change_groups(Author::default(), Instant::EPOCH, group("g", 1, far)).await.unwrap();
    let put = documents.put_project(Author::default(), Instant::EPOCH, assignment("far")).await;
    assert!(put.unwrap_err().to_string().contains("group g: projects.far.url"));
    assert_eq!(documents.document().version.0, 1);
}

/// A store that notes how many entries it was asked for at once, and how many values it gave.
struct Watched {
    store: SledStore,
    most: AtomicUsize,
    given: AtomicUsize,
}

impl Store for Watched {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.store.get(key)
    }
    fn scan(&self, range: &KeyRange, limit: usize) -> Result<Vec<fallow_store::Entry>, StoreError> {
        let found = self.store.scan(range, limit)?;
        let _ = self.most.fetch_max(found.len(), Ordering::Relaxed);
        let _ = self.given.fetch_add(found.len(), Ordering::Relaxed);
        Ok(found)
    }
    fn apply(&self, batch: Batch) -> Result<BatchResult, StoreError> {
        self.store.apply(batch)
    }
    fn apply_durable(&self, batch: Batch) -> Result<BatchResult, StoreError> {
        self.store.apply_durable(batch)
    }
    fn copy(&self, take: &mut fallow_store::TakeCopied<'_>) -> Result<(), StoreError> {
        self.store.copy(take)
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.store.flush()
    }
}

#[test]
fn r6_5_a_start_and_a_list_of_versions_hold_few_of_them_in_memory_however_many_there_are() {
    let dir = tempfile::tempdir().unwrap();
    let store = SledStore::open(dir.path()).unwrap();
    let (most, given) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let watched = Arc::new(Watched { store, most, given });
    let mut set = empty();
    // The first ones may be gone, and one after another of all numbers is the newest.
    for version in 3..=500 {
        set.fleet.version = DocumentVersion(version);
        let audited = Audited {
            set: set.clone(),
            hash: set.hash().unwrap(),
            made_at: Instant::EPOCH,
            made_by: "somebody".into(),
            change: "preferences".into(),
            message: String::new(),
        };
        let key = key(set.fleet.version);
        let value = FORMAT.write(&key, &audited).unwrap();
        // What stands behind the versions is none of them.
        let batch = Batch::new().put(key, value).put("documented", "x").put("documen", "x");
        assert!(watched.apply(batch).unwrap().is_applied());
        watched.given.store(0, Ordering::Relaxed);
        let documents = Documents::open(watched.clone()).unwrap();
        assert_eq!(documents.document().version.0, version);
        assert!(watched.given.load(Ordering::Relaxed) <= 30, "{version}: {:?}", watched.given);
    }
    let documents = Documents::open(watched.clone()).unwrap();
    let history = documents.history(400).unwrap();
    let versions: Vec<u64> = history.iter().map(|head| head.version.0).collect();
    assert_eq!(versions, (101..=500).collect::<Vec<_>>());
    assert_eq!(documents.history(1_000).unwrap().len(), 498);
    assert!(watched.most.load(Ordering::Relaxed) <= PAGE, "{:?}", watched.most);
}

#[test]
fn r6_5_a_document_stored_before_there_were_groups_is_a_set_without_any() {
    let old = Format { name: "document", version: 1, migrate: fallow_store::no_migration };
    let stored = serde_json::json!({
        "document": { "version": 3, "projects": [assignment("a")], "preferences": Preferences::default() },
        "made_at": 5, "made_by": "somebody", "change": "shares a=1",
    });
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(SledStore::open(dir.path()).unwrap());
    let key = key(DocumentVersion(3));
    let batch = Batch::new().put(key.clone(), old.write(&key, &stored).unwrap());
    assert!(matches!(store.apply_durable(batch).unwrap(), BatchResult::Applied { .. }));
    let documents = Documents::open(store).unwrap();
    let read = documents.current().unwrap().audited.clone();
    let (set, by) = (&read.set, read.made_by.as_str());
    assert_eq!((set.fleet.version.0, set.groups.0.len(), by), (3, 0, "somebody"));
    assert_eq!((read.hash.as_str().len(), read.message.as_str()), (64, ""));
    let history = documents.history(100).unwrap();
    assert_eq!((history.len(), history[0].version.0, history[0].groups), (1, 3, 0));
    assert_eq!((&history[0].hash, history[0].made_by.as_str()), (&read.hash, "somebody"));
}

#[tokio::test]
async fn r6_5_versions_of_a_new_term_follow_all_others_and_are_listed_behind_them() {
    let dir = tempfile::tempdir().unwrap();
    let documents = Arc::new(Documents::open(Arc::new(SledStore::open(dir.path()).unwrap())).unwrap());
    let begin = async |term| {
        let begun = documents.clone().begin_term(Author::default(), Instant::EPOCH, term, "again".into());
        begun.await.unwrap()
    };
    documents.put_project(Author::default(), Instant::EPOCH, assignment("a")).await.unwrap();
    for share in 1..=3 {
        let _ = shares(&documents, &[("a", f64::from(share) * 10.0)]).await.unwrap();
    }
    assert_eq!(begin(1).await.to_string(), "1.1");
    let _ = shares(&documents, &[("a", 50.0)]).await.unwrap();
    assert_eq!(begin(4).await.to_string(), "4.1");
    let _ = shares(&documents, &[("a", 60.0)]).await.unwrap();
    let documents = Documents::open(documents.store.clone()).unwrap();
    assert_eq!(documents.document().version.to_string(), "4.2");
    let said = |limit| {
        let heads = documents.history(limit).unwrap();
        heads.iter().map(|head| head.version.to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(said(100), "1 2 3 4 1.1 1.2 4.1 4.2");
    assert_eq!((said(1), said(2), said(3)), ("4.2".into(), "4.1 4.2".into(), "1.2 4.1 4.2".into()));
    assert_eq!((said(5), said(8)), ("4 1.1 1.2 4.1 4.2".into(), said(100)));
}

#[tokio::test]
async fn shares_that_mean_nothing_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let documents = Documents::open(Arc::new(SledStore::open(dir.path()).unwrap())).unwrap();
    documents.put_project(Author::default(), Instant::EPOCH, assignment("a")).await.unwrap();
    for (bad, said) in [
        (vec![("a", -1.0)], "resource share \"-1\" is not valid"),
        (vec![("a", f64::NAN)], "resource share"),
        (vec![("a", 1e12)], "from 0.001 to 1,000,000,000"),
        (vec![("a", 1.0), ("b", 1.0)], "no project \"b\" in the fleet (there is: a)"),
        (vec![("a", 1.0), ("a", 2.0)], "named twice"),
        (vec![], "nothing to change"),
    ] {
        let text = shares(&documents, &bad).await.unwrap_err().to_string();
        assert!(text.contains(said), "{text}");
    }
    assert_eq!(documents.document().version.0, 1);
    assert_eq!(documents.document().projects[0].share, Share::DEFAULT);
}

/// One host, for which every change makes a difference. It says that it follows these versions.
#[derive(Default)]
struct One(Vec<DocumentVersion>);

impl Reach for One {
    fn changed_hosts(&self, _: &DocumentSet, _: &DocumentSet) -> u64 {
        1
    }

    fn followed(&self) -> Vec<DocumentVersion> {
        self.0.clone()
    }

    fn hosts_now(&self, _: &Rollout) -> Vec<fallow_rollout::HostNow> {
        Vec::new()
    }
}

/// One host, at the first look at which somebody else pauses the rollout.
struct PausedMeanwhile {
    documents: std::sync::OnceLock<std::sync::Weak<Documents>>,
    is_first: std::sync::atomic::AtomicBool,
}

impl Reach for PausedMeanwhile {
    fn changed_hosts(&self, _: &DocumentSet, _: &DocumentSet) -> u64 {
        1
    }

    fn followed(&self) -> Vec<DocumentVersion> {
        Vec::new()
    }

    fn hosts_now(&self, _: &Rollout) -> Vec<fallow_rollout::HostNow> {
        let documents = self.documents.get().and_then(std::sync::Weak::upgrade);
        if let Some(documents) = documents
            && self.is_first.swap(false, std::sync::atomic::Ordering::Relaxed)
        {
            let pause = documents.order(
                Author::default(),
                Instant::EPOCH,
                fallow_rollout::Order::Pause,
                (None, None),
            );
            drop(tokio::runtime::Handle::current().block_on(pause).unwrap());
        }
        Vec::new()
    }
}

#[tokio::test]
async fn r6_5_an_order_to_stop_holds_whatever_else_becomes_of_the_rollout_at_that_moment() {
    let dir = tempfile::tempdir().unwrap();
    let documents = Arc::new(Documents::open(Arc::new(SledStore::open(dir.path()).unwrap())).unwrap());
    let meanwhile = Arc::new(PausedMeanwhile {
        documents: std::sync::OnceLock::new(),
        is_first: std::sync::atomic::AtomicBool::new(false),
    });
    let reach = meanwhile.clone() as Arc<dyn Reach>;
    documents.set_reach(Arc::downgrade(&reach));
    meanwhile.documents.set(Arc::downgrade(&documents)).unwrap();
    documents.put_project(Author::default(), Instant::EPOCH, assignment("a")).await.unwrap();
    let plan = Plan::new("50%,100%", fallow_domain::Duration::from_mins(10)).unwrap();
    documents.set_plan(Author::default(), Some(plan)).await.unwrap();
    assert_eq!(shares(&documents, &[("a", 2.0)]).await.unwrap(), 2);
    let order = |order| documents.order(Author::default(), Instant::EPOCH, order, (None, None));
    meanwhile.is_first.store(true, std::sync::atomic::Ordering::Relaxed);
    let error = order(fallow_rollout::Order::Promote).await.unwrap_err();
    assert!(error.to_string().contains("has just gone on"), "nothing but that is meant anyway: {error}");
    order(fallow_rollout::Order::Resume).await.unwrap();
    meanwhile.is_first.store(true, std::sync::atomic::Ordering::Relaxed);
    let rollout = order(fallow_rollout::Order::TakeBack).await.unwrap();
    assert!(matches!(rollout.phase, fallow_rollout::Phase::TakenBack { .. }), "{:?}", rollout.phase);
}

const AUTHORITY: &str = "ab";

/// The first key of RFC 8032, section 7.1.
fn organisation() -> fallow_fleet::KeyPair {
    let seed = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
    let der = fallow_domain::from_hex(&format!("302e020100300506032b657004220420{seed}")).unwrap();
    fallow_fleet::KeyPair::from_der(&der).unwrap()
}

/// Signs the newest version at a second.
async fn sign(documents: &Documents, second: i64) -> DocumentVersion {
    sign_as(documents, Author::default(), second).await
}

async fn sign_as(documents: &Documents, author: Author, second: i64) -> DocumentVersion {
    let now = Instant::EPOCH + fallow_domain::Duration::from_secs(second);
    let ToSign { version, documents: text, before, .. } = documents.to_sign().unwrap().unwrap();
    let statement = fallow_fleet::Statement {
        authority: AUTHORITY.into(),
        content: fallow_fleet::content_of(&text),
        before: before.map(|before| fallow_fleet::content_of(&before.documents)),
        keys: vec![organisation().public()],
        signed_at: now,
        good_until: now + fallow_domain::Duration::from_hours(1),
    };
    let signed = organisation().sign(&statement, &text);
    documents.sign(author, now, AUTHORITY.into(), version, signed).await.unwrap()
}

/// Signed documents of which version 3 goes out, in waves.
async fn going_out(store: Arc<dyn Store>, reach: &Arc<dyn Reach>) -> Documents {
    let documents = Documents::open(store).unwrap();
    documents.set_reach(Arc::downgrade(reach));
    documents
        .set_organisation(Author::default(), Instant::EPOCH, vec![organisation().public()])
        .await
        .unwrap();
    documents.put_project(Author::default(), Instant::EPOCH, assignment("a")).await.unwrap();
    assert_eq!(sign(&documents, 1).await, DocumentVersion(1));
    let plan = Plan::new("50%,100%", fallow_domain::Duration::from_mins(10)).unwrap();
    documents.set_plan(Author::default(), Some(plan)).await.unwrap();
    assert_eq!(shares(&documents, &[("a", 2.0)]).await.unwrap(), 2);
    assert_eq!(sign(&documents, 2).await, DocumentVersion(2));
    assert!(documents.release().open().is_some());
    documents
}

/// What a host that has taken the newest statement would say to a version.
fn take(host: &fallow_fleet::Trust, version: &Published) -> Result<fallow_fleet::Trust, String> {
    let now = Instant::EPOCH + fallow_domain::Duration::from_secs(10);
    let accepted = host.accept(version.signed.as_deref(), now);
    accepted.map(|accepted| accepted.trust).map_err(|error| error.to_string())
}

#[tokio::test]
async fn r6_10_an_emergency_that_waits_for_its_signature_takes_hosts_back_from_what_goes_out() {
    let (dir, reach) = (tempfile::tempdir().unwrap(), Arc::new(One::default()) as Arc<dyn Reach>);
    let store: Arc<dyn Store> = Arc::new(SledStore::open(dir.path()).unwrap());
    let documents = going_out(store.clone(), &reach).await;
    let host = fallow_fleet::Trust::new(AUTHORITY.into(), vec![organisation().public()]);
    let host = take(&host, documents.release().newest.as_ref().unwrap()).unwrap();
    let author = Author { emergency: true, ..Author::default() };
    let suspended = Preferences { suspended: true, ..Preferences::default() };
    let change = FleetChange::Preferences(suspended, None);
    documents.change_fleet_wide(author, Instant::EPOCH, change).await.unwrap();
    let released = |documents: &Documents| {
        let release = documents.release();
        let has = DocumentVersion(2);
        let released = release
            .of(&fallow_domain::AgentId("h".into()), has, |_| None, Default::default)
            .cloned()
            .unwrap();
        (release, released)
    };
    let (release, back) = released(&documents);
    assert!(release.is_held && release.open().is_none());
    // Newer than what the host has, of the same statement, and as it was before.
    assert_eq!(back.audited.set.fleet.version, DocumentVersion(3));
    assert_eq!(back.audited.set.fleet.projects[0].share, Share::DEFAULT);
    let host = take(&host, &back).unwrap();
    assert_eq!(release.newest.as_ref().unwrap().audited.set.fleet.version, DocumentVersion(4));
    // So it is after a restart, and the emergency goes out when it is signed.
    let again = Documents::open(store.clone()).unwrap();
    let (release, followed) = released(&again);
    assert_eq!((release.is_held, followed.audited.set.fleet.version), (true, DocumentVersion(3)));
    assert_eq!(followed.signed, back.signed);
    assert_eq!(sign(&again, 3).await, DocumentVersion(4));
    let newest = again.release().newest.clone().unwrap();
    assert!(newest.audited.set.fleet.preferences.suspended && take(&host, &newest).is_ok());
}

#[tokio::test]
async fn r6_10_an_emergency_that_only_goes_back_is_taken_by_hosts_that_have_what_goes_out() {
    let (dir, reach) = (tempfile::tempdir().unwrap(), Arc::new(One::default()) as Arc<dyn Reach>);
    let documents = going_out(Arc::new(SledStore::open(dir.path()).unwrap()), &reach).await;
    let host = fallow_fleet::Trust::new(AUTHORITY.into(), vec![organisation().public()]);
    let host = take(&host, documents.release().newest.as_ref().unwrap()).unwrap();
    // As after a restore: the same again, in a term of its own.
    let documents = Arc::new(documents);
    let term = documents.clone().begin_term(Author::default(), Instant::EPOCH, 1, "again".into());
    assert_eq!(term.await.unwrap(), DocumentVersion::first_of(1));
    let release = documents.release();
    assert!(!release.is_held);
    assert!(take(&host, release.newest.as_ref().unwrap()).is_ok());
}

#[tokio::test]
async fn r6_5_a_change_beside_one_that_waits_for_its_signature_lets_no_host_have_that() {
    let (dir, reach) = (tempfile::tempdir().unwrap(), Arc::new(One::default()) as Arc<dyn Reach>);
    let store: Arc<dyn Store> = Arc::new(SledStore::open(dir.path()).unwrap());
    let documents = Documents::open(store.clone()).unwrap();
    documents.set_reach(Arc::downgrade(&reach));
    documents.put_project(Author::default(), Instant::EPOCH, assignment("a")).await.unwrap();
    documents
        .set_organisation(Author::default(), Instant::EPOCH, vec![organisation().public()])
        .await
        .unwrap();
    shares(&documents, &[("a", 1.0)]).await.unwrap();
    sign(&documents, 1).await;
    let followed = documents.document();
    let plan = Plan::new("50%,100%", fallow_domain::Duration::from_mins(10)).unwrap();
    documents.set_plan(Author::default(), Some(plan)).await.unwrap();
    // This waits for its signature; it is said back, and the key of an account is not what is signed.
    shares(&documents, &[("a", 20.0)]).await.unwrap();
    assert!(documents.release().is_held);
    let back = ProjectAssignment { account_key: AccountKey::new("another"), ..followed.projects[0].clone() };
    documents.put_project(Author::default(), Instant::EPOCH, back).await.unwrap();
    let release = documents.release();
    let (rollout, base) = release.open().expect("it goes out in waves");
    assert_eq!((rollout.base, base.audited.set.fleet.version), (followed.version, followed.version));
    let unreached = (0..100).map(|number| fallow_domain::AgentId(number.to_string()));
    for host in unreached.filter(|host| !rollout.is_released_to(host, &[])) {
        let has = release.of(&host, followed.version, |_| None, Default::default).unwrap();
        assert_eq!(has.audited.set.fleet.version, followed.version);
    }
}

#[tokio::test]
async fn r6_5_who_says_that_it_has_a_version_that_it_was_not_given_is_not_sent_it_for_that() {
    let (dir, reach) = (tempfile::tempdir().unwrap(), Arc::new(One::default()) as Arc<dyn Reach>);
    let documents = Documents::open(Arc::new(SledStore::open(dir.path()).unwrap())).unwrap();
    documents.set_reach(Arc::downgrade(&reach));
    documents.put_project(Author::default(), Instant::EPOCH, assignment("a")).await.unwrap();
    let plan = Plan::new("1,100%", fallow_domain::Duration::from_mins(10)).unwrap();
    documents.set_plan(Author::default(), Some(plan)).await.unwrap();
    assert_eq!(shares(&documents, &[("a", 2.0)]).await.unwrap(), 2);
    let release = documents.release();
    let (rollout, base) = release.open().unwrap();
    let versions = (base.audited.set.fleet.version, rollout.candidate);
    assert_eq!(versions, (DocumentVersion(1), DocumentVersion(2)));
    let host = fallow_domain::AgentId("h".into());
    assert!(!rollout.is_released_to(&host, &[]));
    // It is believed where it was given it, as before it had another label, or where that was not kept.
    for (was_given, version) in [(Some(true), 2), (None, 2), (Some(false), 1)] {
        let has = release.of(&host, rollout.candidate, |_| was_given, Default::default).unwrap();
        assert_eq!(has.audited.set.fleet.version, DocumentVersion(version), "{was_given:?}");
    }
}

#[tokio::test]
async fn r6_5_a_new_version_follows_those_that_hosts_know_and_this_coordinator_does_not() {
    let followed = [2, 7, 5_000, u64::MAX].map(DocumentVersion).to_vec();
    let (dir, reach) = (tempfile::tempdir().unwrap(), Arc::new(One(followed)) as Arc<dyn Reach>);
    let documents = Documents::open(Arc::new(SledStore::open(dir.path()).unwrap())).unwrap();
    documents.put_project(Author::default(), Instant::EPOCH, assignment("a")).await.unwrap();
    // As after its disk was put back: hosts follow versions that are not there.
    documents.set_reach(Arc::downgrade(&reach));
    let plan = Plan::new("1,100%", fallow_domain::Duration::from_mins(10)).unwrap();
    documents.set_plan(Author::default(), Some(plan)).await.unwrap();
    assert_eq!(shares(&documents, &[("a", 2.0)]).await.unwrap(), 8);
    let release = documents.release();
    let (rollout, _) = release.open().unwrap();
    let unreached: Vec<_> = (0..100)
        .map(|number| fallow_domain::AgentId(number.to_string()))
        .filter(|host| !rollout.is_released_to(host, &[]))
        .collect();
    assert!(unreached.len() >= 99);
    for host in unreached {
        let has = release.of(&host, DocumentVersion(7), |_| None, Default::default).unwrap();
        assert_eq!(has.audited.set.fleet.version, DocumentVersion(1));
    }
    // Also where numbers are missing all versions are listed.
    let versions =
        |limit| documents.history(limit).unwrap().iter().map(|head| head.version.0).collect::<Vec<_>>();
    assert_eq!((versions(10), versions(2), versions(1)), (vec![1, 8], vec![1, 8], vec![8]));
}

#[tokio::test]
async fn r6_5_preferences_that_were_made_from_an_older_version_undo_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let documents = Documents::open(Arc::new(SledStore::open(dir.path()).unwrap())).unwrap();
    documents.put_project(Author::default(), Instant::EPOCH, assignment("a")).await.unwrap();
    let set = |preferences: &Preferences, from: u64| {
        let from = Some(DocumentVersion(from)).filter(|from| from.0 > 0);
        let change = FleetChange::Preferences(preferences.clone(), from);
        let changed = documents.change_fleet_wide(Author::default(), Instant::EPOCH, change);
        async { changed.await.map(|(_, set)| set.fleet) }
    };
    let half = fallow_domain::Fraction::clamped(0.5);
    let annas = Preferences { cpu_fraction: half, ..Preferences::default() };
    assert_eq!(set(&annas, 1).await.unwrap().version, DocumentVersion(2));
    // Bob read version 1, too.
    let bobs = Preferences { suspended: true, ..Preferences::default() };
    let error = set(&bobs, 1).await.unwrap_err();
    assert!(
        error.to_string().contains("made from version 1 of the document, and version 2 is there"),
        "{error}"
    );
    assert_eq!(documents.document().preferences, annas);
    let both = Preferences { suspended: true, ..annas };
    assert_eq!(set(&both, 2).await.unwrap().preferences, both);
    // Whoever does not say from which replaces all.
    assert_eq!(set(&bobs, 0).await.unwrap().preferences, bobs);
}
