//! Labels and groups over real connections: who is sent what (R6.4).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

mod peers;

use std::path::Path;
use std::time::Duration;

use fallow_coordinator::daemon::{Coordinator, Options};
use fallow_coordinator::fleet::LinkSettings;
use fallow_domain::{LocalPreferences, Preferences};
use fallow_proto::fleet::{preferences, v1 as wire};
use fallow_proto::operator::v1::{
    ChangeGroupsReply, ChangeGroupsRequest, CreateProjectRequest, DocumentReply, ExplainHostReply,
    ExplainHostRequest, GroupFile, LabelHostRequest, ListDocumentsRequest, ListGroupsRequest,
    ListHostsRequest, ListProjectsRequest, SetPreferencesRequest,
};
use peers::{Agent, Client, Identity, connect, enroll, hello, tokens};
use tonic::Code;
use wire::entry::Value;
use wire::from_coordinator::Body as Heard;

const QUIET: &str =
    "name = \"quiet\"\nprecedence = 10\nselector = \"room=12\"\n[preferences]\ncpu_fraction = 0.5\n";

async fn start(dir: &Path) -> (Coordinator, Client) {
    // Agents here do not beat, and are not taken for gone, however long a test takes.
    let link = LinkSettings { heartbeat: Duration::from_hours(1), ..LinkSettings::default() };
    let options = Options { link, ..Options::at(dir) };
    let coordinator = Coordinator::start(options).await.unwrap();
    let operator = connect(coordinator.access()).await.unwrap();
    (coordinator, operator)
}

async fn create(operator: &mut Client, name: &str) {
    let request = CreateProjectRequest { name: name.into(), share: 50.0, ..Default::default() };
    operator.create_project(request).await.unwrap();
}

async fn identity(coordinator: &Coordinator, operator: &mut Client) -> Identity {
    let token = tokens(operator, 1).await.remove(0);
    enroll(coordinator.access(), &token).await.unwrap()
}

fn change(files: &[&str]) -> ChangeGroupsRequest {
    let file = |(at, text): (usize, &&str)| GroupFile { name: format!("{at}.toml"), text: (*text).into() };
    ChangeGroupsRequest { files: files.iter().enumerate().map(file).collect(), ..Default::default() }
}

async fn apply(operator: &mut Client, files: &[&str]) -> ChangeGroupsReply {
    let reply = operator.change_groups(change(files)).await.unwrap().into_inner();
    assert!(reply.findings.is_empty(), "{:?}", reply.findings);
    reply
}

async fn label(operator: &mut Client, host: &str, changes: &[&str]) -> Result<Vec<String>, tonic::Status> {
    let changes = changes.iter().map(|&change| change.to_owned()).collect();
    let request = LabelHostRequest { host: host.to_owned(), changes };
    operator.label_host(request).await.map(|reply| reply.into_inner().labels)
}

fn host(os: &str) -> wire::Entry {
    let host = wire::HostState {
        hostname: "host".into(),
        cpus: 2,
        usable_cpus: 2,
        os: os.into(),
        owner: Some(wire::OwnerLimits { suspended: true, ..Default::default() }),
        ..Default::default()
    };
    wire::Entry { key: "host".into(), value: Some(Value::Host(Box::new(host))) }
}

/// Reads on until a document comes: its version and its part of the CPUs.
async fn document(agent: &mut Agent) -> (u64, f64) {
    loop {
        if let Heard::Document(document) = agent.next().await.unwrap() {
            return (document.version, document.preferences.unwrap().cpu_fraction);
        }
    }
}

#[tokio::test]
async fn r6_4_what_a_group_says_reaches_the_hosts_that_it_chooses_at_once_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    create(&mut operator, "a").await;
    let identities =
        [identity(&coordinator, &mut operator).await, identity(&coordinator, &mut operator).await];
    let mut agents = Vec::new();
    for identity in &identities {
        let mut agent = Agent::link(identity, hello(identity, "e", 0)).await.0;
        agent.snapshot(1, vec![host("linux")]).await;
        assert_eq!(document(&mut agent).await, (1, 1.0));
        agents.push(agent);
    }
    let labels = label(&mut operator, &identities[0].agent_id, &["room=12", "rack=4"]).await.unwrap();
    assert_eq!(labels[0], format!("agent_id={}", identities[0].agent_id));
    assert_eq!(labels[1..], ["cores=2", "hostname=host", "os=linux", "rack=4", "room=12"]);

    let reply = apply(&mut operator, &[QUIET]).await;
    assert_eq!((reply.document_version, reply.put.as_slice()), (2, &["quiet".to_owned()][..]));
    assert_eq!((reply.hosts, reply.changed_hosts, reply.values[0].hosts), (2, 1, 1));
    assert_eq!(document(&mut agents[0]).await, (2, 0.5));
    assert_eq!(document(&mut agents[1]).await, (2, 1.0));
    // Labels by an operator, then facts that an agent reports: no new version, and at once.
    label(&mut operator, &identities[1].agent_id, &["room=12"]).await.unwrap();
    assert_eq!(document(&mut agents[1]).await, (2, 0.5));
    label(&mut operator, &identities[1].agent_id, &["room-"]).await.unwrap();
    assert_eq!(document(&mut agents[1]).await, (2, 1.0));
    let os = "name = \"os\"\nprecedence = 5\nselector = \"os=plan9\"\n[preferences]\ncpu_fraction = 0.25\n";
    apply(&mut operator, &[os]).await;
    assert_eq!(document(&mut agents[1]).await, (3, 1.0));
    agents[1].delta(2, vec![host("plan9")], &[]).await;
    assert_eq!(document(&mut agents[1]).await, (3, 0.25));

    let chosen = ListHostsRequest { selector: "room=12, os in (linux)".into() };
    let hosts = operator.list_hosts(chosen).await.unwrap().into_inner().hosts;
    assert_eq!(hosts.iter().map(|host| &host.agent_id).collect::<Vec<_>>(), [&identities[0].agent_id]);
    let groups = operator.list_groups(ListGroupsRequest {}).await.unwrap().into_inner().groups;
    let groups: Vec<_> = groups.iter().map(|group| (group.name.as_str(), group.hosts)).collect();
    assert_eq!(groups, [("quiet", 1), ("os", 1)]);
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_4_labels_and_groups_survive_a_restart_and_what_changed_meanwhile_is_sent_under_the_same_number() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    create(&mut operator, "a").await;
    let identity = identity(&coordinator, &mut operator).await;
    apply(&mut operator, &[QUIET]).await;
    let mut agent = Agent::link(&identity, hello(&identity, "e", 0)).await.0;
    agent.snapshot(1, vec![host("linux")]).await;
    assert_eq!(document(&mut agent).await, (2, 1.0));
    drop(agent);
    label(&mut operator, &identity.agent_id, &["room=12"]).await.unwrap();
    drop(operator);
    coordinator.stop().await.unwrap();

    let (coordinator, mut operator) = start(dir.path()).await;
    let mut agent = Agent::link(&identity, hello(&identity, "e", 2)).await.0;
    assert_eq!(document(&mut agent).await, (2, 0.5));
    let history =
        operator.list_documents(ListDocumentsRequest::default()).await.unwrap().into_inner().documents;
    assert_eq!(history.iter().map(|one| (one.version, one.groups)).collect::<Vec<_>>(), [(1, 0), (2, 1)]);
    coordinator.stop().await.unwrap();
}

/// Reads on until a document comes: its version and its content.
async fn content(agent: &mut Agent) -> (u64, String) {
    loop {
        if let Heard::Document(document) = agent.next().await.unwrap() {
            return (document.version, document.content);
        }
    }
}

/// Reads on until a document of this version comes: its content.
async fn content_of(agent: &mut Agent, version: u64) -> String {
    loop {
        let (offered, content) = content(agent).await;
        if offered == version {
            return content;
        }
    }
}

/// A host that follows this.
fn following((version, content): &(u64, String)) -> wire::Entry {
    let host = wire::HostState {
        hostname: "host".into(),
        document_version: *version,
        document_content: content.clone(),
        ..Default::default()
    };
    wire::Entry { key: "host".into(), value: Some(Value::Host(Box::new(host))) }
}

#[tokio::test]
async fn r6_5_a_host_that_follows_what_the_newest_version_said_to_its_old_labels_is_told_from_others() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    create(&mut operator, "a").await;
    let identity = identity(&coordinator, &mut operator).await;
    apply(&mut operator, &[QUIET]).await;
    let is_old = async |operator: &mut Client| {
        let hosts = operator.list_hosts(ListHostsRequest::default()).await.unwrap().into_inner().hosts;
        let explain = ExplainHostRequest { host: hosts[0].agent_id.clone() };
        let explained = operator.explain_host(explain).await.unwrap().into_inner().host.unwrap();
        assert_eq!(explained.has_old_content, hosts[0].has_old_content);
        hosts[0].has_old_content
    };
    let mut agent = Agent::link(&identity, hello(&identity, "e", 0)).await.0;
    agent.snapshot(1, vec![host("linux")]).await;
    let first = content(&mut agent).await;
    assert_eq!((first.0, first.1.len()), (2, 64));
    agent.delta(2, vec![following(&first)], &[]).await;
    agent.acknowledged(2).await;
    assert!(!is_old(&mut operator).await);
    // It is gone while it gets another label.
    drop(agent);
    label(&mut operator, &identity.agent_id, &["room=12"]).await.unwrap();
    assert!(is_old(&mut operator).await);

    let again = |content: &str| wire::Hello { document_content: content.into(), ..hello(&identity, "e", 2) };
    let mut agent = Agent::link(&identity, again(&first.1)).await.0;
    let second = content(&mut agent).await;
    assert!(second.0 == 2 && second.1 != first.1, "{first:?} {second:?}");
    agent.delta(3, vec![following(&second)], &[]).await;
    agent.acknowledged(3).await;
    assert!(!is_old(&mut operator).await);
    drop(agent);
    // What it has is not sent again, though there are groups: the next that it hears of is a newer version.
    let mut agent = Agent::link(&identity, again(&second.1)).await.0;
    apply(&mut operator, &[&QUIET.replace("0.5", "0.25")]).await;
    let third = content(&mut agent).await;
    assert!(third.0 == 3 && third.1 != second.1, "{third:?}");
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_4_a_host_is_explained_with_the_origin_of_each_value_and_what_its_owner_limits() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    create(&mut operator, "a").await;
    let identity = identity(&coordinator, &mut operator).await;
    let mut agent = Agent::link(&identity, hello(&identity, "e", 0)).await.0;
    agent.snapshot(1, vec![host("linux")]).await;
    agent.acknowledged(1).await;
    label(&mut operator, "host", &["room=12"]).await.unwrap();
    apply(&mut operator, &[QUIET]).await;
    let request = ExplainHostRequest { host: identity.agent_id.clone() };
    let explained = operator.explain_host(request).await.unwrap().into_inner();
    let value = |key: &str| {
        let found = explained.values.iter().find(|one| one.key == key).unwrap();
        format!("{} by {}", found.value, found.origin)
    };
    assert_eq!(value("projects.a"), "share 50 by fleet");
    assert_eq!(value("preferences.cpu_fraction"), "50% by group quiet");
    assert_eq!(value("preferences.suspended"), "true by owner");
    assert_eq!(value("preferences.buffer_min"), "2.4 h by default");
    assert_eq!(explained.groups, ["quiet"]);
    // What its owner says is told beside the document that it follows, and known of no other.
    let followed = (explained.document_version, content_of(&mut agent, explained.document_version).await);
    let place = |key: &str, line: u32| wire::OwnerPlace {
        key: key.into(),
        place: format!("preferences.toml, line {line}"),
    };
    let word = wire::OwnerWord {
        said: 3,
        preferences: Some(wire::Preferences {
            hours: "sat-sun".into(),
            cpu_fraction: 0.25,
            ..preferences::to_wire(&Preferences::default())
        }),
        places: vec![place("hours", 1), place("cpu_fraction", 2), place("of tomorrow", 3)],
    };
    let mut entry = following(&followed);
    if let Some(Value::Host(host)) = &mut entry.value {
        host.owner_word = Some(word);
    }
    agent.delta(2, vec![entry.clone()], &[]).await;
    agent.acknowledged(2).await;
    let request = ExplainHostRequest { host: identity.agent_id.clone() };
    let explained = operator.explain_host(request.clone()).await.unwrap().into_inner();
    let value = |explained: &ExplainHostReply, key: &str| {
        let found = explained.values.iter().find(|one| one.key == key).unwrap();
        let lost: Vec<_> = found.lost.iter().map(|one| format!("{} by {}", one.value, one.origin)).collect();
        format!("{} by {} over {}", found.value, found.origin, lost.join(", "))
    };
    let hours = value(&explained, "preferences.hours");
    assert!(hours.starts_with("sat-sun by owner (preferences.toml, line 1) over "), "{hours}");
    let cpus = value(&explained, "preferences.cpu_fraction");
    assert!(cpus.starts_with("25% by owner (preferences.toml, line 2) over 50% by group quiet"), "{cpus}");
    apply(&mut operator, &[&QUIET.replace("0.5", "0.1")]).await;
    let explained = operator.explain_host(request).await.unwrap().into_inner();
    assert!(value(&explained, "preferences.cpu_fraction").starts_with("10% by group quiet"));
    let unknown = ExplainHostRequest { host: "nobody".into() };
    assert_eq!(operator.explain_host(unknown).await.unwrap_err().code(), Code::NotFound);
    for (bad, code) in [("os=plan9", Code::InvalidArgument), ("room", Code::InvalidArgument)] {
        assert_eq!(label(&mut operator, "host", &[bad]).await.unwrap_err().code(), code, "{bad}");
    }
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_4_no_hour_at_all_is_nothing_that_operators_say() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    create(&mut operator, "a").await;
    let preferences = |hours: &str| SetPreferencesRequest {
        preferences: Some(wire::Preferences {
            hours: hours.into(),
            ..preferences::to_wire(&Preferences::default())
        }),
        ..Default::default()
    };
    let refused = operator.set_preferences(preferences("never")).await.unwrap_err();
    assert!(refused.code() == Code::InvalidArgument && refused.message().contains("suspended"), "{refused}");
    let local = wire::LocalPreferences { network_hours: "never".into(), ..Default::default() };
    let mut without_network = preferences("sat-sun");
    without_network.preferences.as_mut().unwrap().local = Some(local.into());
    let refused = operator.set_preferences(without_network).await.unwrap_err();
    assert!(
        refused.code() == Code::InvalidArgument && refused.message().contains("network hours"),
        "{refused}"
    );
    operator.set_preferences(preferences("sat-sun")).await.unwrap();
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_4_whoever_sets_preferences_and_knows_none_of_the_newer_ones_leaves_those_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    create(&mut operator, "a").await;
    let request =
        |preferences| SetPreferencesRequest { preferences: Some(preferences), ..Default::default() };
    let local = LocalPreferences { run_on_batteries: true, ..LocalPreferences::default() };
    let given = Preferences { local: local.clone(), ..Preferences::default() };
    operator.set_preferences(request(preferences::to_set(&given))).await.unwrap();
    let of = |reply: tonic::Response<DocumentReply>| {
        let said = reply.into_inner().document.unwrap().preferences.unwrap();
        preferences::from_wire(&said).unwrap()
    };
    // As an older command sends it.
    let older = Preferences { suspended: true, ..Preferences::default() };
    let older = wire::Preferences { local: None, ..preferences::to_wire(&older) };
    let now = of(operator.set_preferences(request(older)).await.unwrap());
    assert_eq!(now, Preferences { suspended: true, local, ..Preferences::default() });
    // One that knows them takes them back.
    let now = operator.set_preferences(request(preferences::to_set(&Preferences::default()))).await;
    assert_eq!(of(now.unwrap()), Preferences::default());
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_4_a_project_that_a_group_alone_names_is_sent_to_its_hosts_with_the_groups_account_and_is_listed()
{
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    create(&mut operator, "a").await;
    let identity = identity(&coordinator, &mut operator).await;
    let far = "name = \"far\"\nprecedence = 3\nselector = \"\"\n[projects.a]\nabsent = true\n[projects.far]\n\
        url = \"https://far.example.org/\"\naccount_key = \"group-key\"\nshare = 7\n";
    apply(&mut operator, &[far]).await;
    let mut agent = Agent::link(&identity, hello(&identity, "e", 0)).await.0;
    agent.snapshot(1, vec![host("linux")]).await;
    assert_eq!(agent.account_key().await, "group-key");
    let listed = operator.list_projects(ListProjectsRequest {}).await.unwrap().into_inner().projects;
    let listed: Vec<_> = listed.iter().map(|one| (one.name.as_str(), one.share, one.hosted)).collect();
    assert_eq!(listed, [("a", 50.0, true), ("far", 0.0, false)]);
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_5_a_change_that_is_only_tried_or_wrong_changes_nothing_and_says_all_that_it_would_or_that_is_wrong()
 {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    create(&mut operator, "a").await;
    let identity = identity(&coordinator, &mut operator).await;
    label(&mut operator, &identity.agent_id, &["room=12"]).await.unwrap();
    let tried = ChangeGroupsRequest { dry_run: true, per_host: true, ..change(&[QUIET]) };
    let tried = operator.change_groups(tried).await.unwrap().into_inner();
    assert_eq!((tried.document_version, tried.changed_hosts), (1, 1));
    let value = &tried.values[0];
    assert_eq!((value.key.as_str(), value.before.as_str()), ("preferences.cpu_fraction", "100%"));
    assert_eq!((value.after.as_str(), value.origin.as_str()), ("50%", "group quiet"));
    assert_eq!(value.agent_ids, [identity.agent_id]);

    let bad = QUIET.replace("0.5", "5");
    let wrong = operator.change_groups(change(&[&bad, "name = 1\n"])).await.unwrap().into_inner();
    let places: Vec<_> =
        wrong.findings.iter().map(|found| (found.file.as_str(), found.line, found.key.as_str())).collect();
    assert_eq!(places[0], ("0.toml", 5, "preferences.cpu_fraction"));
    assert!(
        places.contains(&("1.toml", 1, "name")) && places.contains(&("1.toml", 1, "selector")),
        "{places:?}"
    );
    let all_gone = ChangeGroupsRequest { prune: true, ..Default::default() };
    assert_eq!(operator.change_groups(all_gone).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(coordinator.documents().document().version.0, 1);
    coordinator.stop().await.unwrap();
}
