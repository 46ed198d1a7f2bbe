//! Changes that go out in waves, with agents that say exactly what a test wants said (R6.5).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

mod peers;

use std::path::Path;

use fallow_coordinator::daemon::{Coordinator, Options};
use fallow_proto::fleet::v1 as wire;
use fallow_proto::operator::v1::{
    ChangeGroupsRequest, CreateProjectRequest, ExplainHostRequest, GetDocumentRequest, GroupFile, HadVersion,
    LabelHostRequest, ListAuditRequest, ListHostsRequest, ListRolloutsRequest, OrderRolloutRequest, Rollout,
    RolloutOrder, RolloutPhase, RolloutPlan, SetPreferencesRequest, SetRolloutPlanRequest, TakenBackVersion,
};
use fallow_tls::AccessString;
use peers::{Agent, Client, Identity, PATIENCE, connect, enroll, hello, tokens};
use tokio::sync::watch;
use tonic::Code;
use wire::entry::Value;
use wire::from_coordinator::Body as Heard;

async fn start(dir: &Path) -> (Coordinator, Client) {
    let coordinator = Coordinator::start(Options::at(dir)).await.unwrap();
    let operator = connect(coordinator.access()).await.unwrap();
    (coordinator, operator)
}

/// How a host takes a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Well,
    /// With fewer than half of its CPUs, if there is less than a tenth for it.
    AsSaid,
    Not,
}

/// A host that follows the documents that it is sent, for as long as this is kept; it shows the versions that
/// it had, each once.
struct Follower {
    identity: Identity,
    had: watch::Receiver<Vec<u64>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Follower {
    async fn enrol(access: &AccessString, operator: &mut Client, takes: Takes) -> Self {
        let token = tokens(operator, 1).await.remove(0);
        let identity = enroll(access, &token).await.unwrap();
        Self::run(identity, takes, Vec::new()).await
    }

    async fn run(identity: Identity, takes: Takes, had: Vec<u64>) -> Self {
        let (tell, told) = watch::channel(had);
        let has = told.borrow().last().copied().unwrap_or_default();
        let mut agent = Agent::link(&identity, hello(&identity, &format!("epoch {has}"), has)).await.0;
        let task = tokio::spawn(async move {
            let mut sequence = 1;
            let mut state = wire::HostState {
                hostname: "host".into(),
                cpus: 8,
                usable_cpus: 8,
                idle_cpus: 8,
                document_version: has,
                ..Default::default()
            };
            let entry = |state: &wire::HostState| wire::Entry {
                key: "host".into(),
                value: Some(Value::Host(Box::new(state.clone()))),
            };
            agent.snapshot(sequence, vec![entry(&state)]).await;
            while let Ok(message) = agent.next().await {
                let Heard::Document(document) = message else { continue };
                let part = document.preferences.unwrap().cpu_fraction;
                if takes == Takes::Not && document.version > 1 {
                    state.document_refused_version = document.version;
                    state.document_refusal = "it is not to my taste".into();
                } else {
                    tell.send_modify(|had| had.push(document.version));
                    state.document_version = document.version;
                    if takes == Takes::AsSaid {
                        state.usable_cpus = ((8.0 * part) as u32).max(1);
                        state.idle_cpus = state.usable_cpus;
                    }
                }
                sequence += 1;
                agent.delta(sequence, vec![entry(&state)], &[]).await;
            }
        });
        Self { identity, had: told, task }
    }

    fn had(&self) -> Vec<u64> {
        self.had.borrow().clone()
    }

    async fn has(&mut self, version: u64) {
        let wait = self.had.wait_for(|had| had.contains(&version));
        tokio::time::timeout(PATIENCE, wait)
            .await
            .unwrap_or_else(|_| panic!("version {version} never came"))
            .unwrap();
    }
}

/// So many hosts, which all have the first version.
async fn followers(
    coordinator: &Coordinator,
    operator: &mut Client,
    count: usize,
    takes: Takes,
) -> Vec<Follower> {
    let mut hosts = Vec::new();
    for _ in 0..count {
        hosts.push(Follower::enrol(coordinator.access(), operator, takes).await);
    }
    for host in &mut hosts {
        host.has(1).await;
    }
    hosts
}

async fn plan(operator: &mut Client, waves: &str, approval_over: Option<u64>) {
    let plan =
        RolloutPlan { waves: waves.into(), soak_micros: 5_000_000, without_gates: Vec::new(), approval_over };
    let request = SetRolloutPlanRequest { plan: Some(plan), message: String::new() };
    operator.set_rollout_plan(request).await.unwrap();
}

async fn create(operator: &mut Client) {
    let request = CreateProjectRequest { name: "a".into(), share: 50.0, ..Default::default() };
    operator.create_project(request).await.unwrap();
}

/// Asks for other preferences: this part of the CPUs.
async fn cpu_fraction(
    operator: &mut Client,
    part: f64,
    emergency: bool,
) -> Result<(u64, u64), tonic::Status> {
    let asked = GetDocumentRequest { released: emergency };
    let document = operator.get_document(asked).await?.into_inner().document.unwrap();
    let preferences = wire::Preferences { cpu_fraction: part, ..document.preferences.unwrap() };
    let request = SetPreferencesRequest { preferences: Some(preferences), emergency, ..Default::default() };
    let reply = operator.set_preferences(request).await?.into_inner();
    Ok((reply.document.unwrap().version, reply.rollout))
}

async fn newest(operator: &mut Client) -> Rollout {
    let reply = operator.list_rollouts(ListRolloutsRequest { limit: 1 }).await.unwrap();
    reply.into_inner().rollouts.remove(0)
}

/// Waits until the newest rollout is in this phase; tells where it is instead, if it is over or stands still.
async fn until(operator: &mut Client, phase: RolloutPhase) -> Rollout {
    let begun = tokio::time::Instant::now();
    loop {
        let rollout = newest(operator).await;
        if rollout.phase() == phase {
            return rollout;
        }
        let goes_on = matches!(rollout.phase(), RolloutPhase::Watching | RolloutPhase::Waiting);
        assert!(goes_on && begun.elapsed() < PATIENCE, "{rollout:#?}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

async fn order(operator: &mut Client, order: RolloutOrder) -> Result<Rollout, tonic::Status> {
    meant(operator, order, 0, 0).await
}

/// The same for a rollout and a next wave as they were seen.
async fn meant(
    operator: &mut Client,
    order: RolloutOrder,
    rollout: u64,
    wave: u32,
) -> Result<Rollout, tonic::Status> {
    let request = OrderRolloutRequest { order: order.into(), message: "because".into(), rollout, wave };
    operator.order_rollout(request).await.map(tonic::Response::into_inner)
}

/// What is said of a host and of versions that were taken back.
async fn taken_back(operator: &mut Client, agent: String) -> Vec<TakenBackVersion> {
    let explained = operator.explain_host(ExplainHostRequest { host: agent }).await.unwrap();
    explained.into_inner().taken_back
}

/// What the audit log says of rollouts and documents, oldest first.
async fn story(operator: &mut Client) -> Vec<String> {
    let entries = operator.list_audit(ListAuditRequest::default()).await.unwrap().into_inner().entries;
    entries.into_iter().map(|entry| format!("{}: {}", entry.action, entry.object)).collect()
}

#[tokio::test]
async fn r6_5_a_change_goes_out_in_waves_and_is_that_of_all_hosts_in_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    create(&mut operator).await;
    let mut hosts = followers(&coordinator, &mut operator, 6, Takes::AsSaid).await;
    plan(&mut operator, "1,50%", None).await;
    assert_eq!(cpu_fraction(&mut operator, 0.75, false).await.unwrap(), (2, 1));

    let rollout = until(&mut operator, RolloutPhase::Watching).await;
    assert_eq!((rollout.version, rollout.base_version, rollout.changes_hosts, rollout.waves), (2, 1, 6, 3));
    // While it goes out nothing else is changed, and each host is asked for what was released to it.
    let refused = cpu_fraction(&mut operator, 0.5, false).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("rollout 1"), "{refused}");
    let wanted = async |operator: &mut Client| -> Vec<u64> {
        let listed = operator.list_hosts(ListHostsRequest::default()).await.unwrap().into_inner().hosts;
        listed.into_iter().map(|host| host.wanted_version).collect()
    };
    while newest(&mut operator).await.have_it == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(hosts.iter().filter(|host| host.had().contains(&2)).count(), 1);
    assert_eq!(wanted(&mut operator).await.iter().filter(|wanted| **wanted == 2).count(), 1);

    let rollout = until(&mut operator, RolloutPhase::Completed).await;
    for host in &mut hosts {
        host.has(2).await;
        assert_eq!(host.had(), [1, 2]);
    }
    assert_eq!(wanted(&mut operator).await, [2; 6]);
    let steps: Vec<_> = rollout.steps.iter().map(|step| step.what.as_str()).collect();
    assert!(steps[1].starts_with("wave 1 of 3 (1) is released"), "{steps:?}");
    assert!(steps.last().unwrap().starts_with("version 2 is that of all hosts"), "{steps:?}");
    let story = story(&mut operator).await;
    assert!(
        story
            .iter()
            .any(|line| line == "document changed: version 2: preferences cpu_fraction=75%, by rollout 1"),
        "{story:?}"
    );
    assert!(
        story.iter().any(|line| line.starts_with("rollout: rollout 1 of version 2: wave 1 of 3")),
        "{story:?}"
    );

    // Also after the end it can be taken back, as long as nothing newer was made.
    let back = order(&mut operator, RolloutOrder::TakeBack).await.unwrap();
    assert_eq!((back.phase(), back.taken_back_by, back.had_it), (RolloutPhase::TakenBack, 3, 6));
    for host in &mut hosts {
        host.has(3).await;
    }
    let again = order(&mut operator, RolloutOrder::TakeBack).await.unwrap_err();
    assert!(again.message().contains("was taken back by version 3"), "{again}");
}

#[tokio::test]
async fn r6_5_a_change_that_takes_the_cpus_away_reaches_one_host_and_is_taken_back_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    create(&mut operator).await;
    let mut hosts = followers(&coordinator, &mut operator, 6, Takes::AsSaid).await;
    plan(&mut operator, "1,50%", None).await;
    assert_eq!(cpu_fraction(&mut operator, 0.01, false).await.unwrap(), (2, 1));
    let rollout = until(&mut operator, RolloutPhase::TakenBack).await;
    assert!(rollout.stands.contains("gate offered"), "{}", rollout.stands);
    assert_eq!((rollout.taken_back_by, rollout.had_it, rollout.released_waves), (3, 1, 1));
    // Of each host it is said whether it had it.
    for host in &hosts {
        let taken_back = taken_back(&mut operator, host.identity.agent_id.clone()).await;
        let had = if host.had().contains(&2) { HadVersion::TakenBack } else { HadVersion::Never };
        assert_eq!(taken_back.len(), 1);
        let one = &taken_back[0];
        assert_eq!((one.rollout, one.version, one.by_version, one.had()), (1, 2, 3, had));
    }
    for host in &mut hosts {
        host.has(3).await;
    }
    assert_eq!(hosts.iter().filter(|host| host.had().contains(&2)).count(), 1);
    let document = operator.get_document(GetDocumentRequest::default()).await.unwrap().into_inner().document;
    assert_eq!(document.unwrap().preferences.unwrap().cpu_fraction, 1.0);
    let story = story(&mut operator).await;
    let taken_back = "rollout taken back: rollout 1 of version 2: version 2 is taken back, which 1 host had";
    assert!(story.iter().any(|line| line.starts_with(taken_back)), "{story:?}");
}

/// A slip in a URL reaches one host first, too, and one of those that it is about.
#[tokio::test]
async fn r6_5_a_group_whose_projects_address_alone_changes_goes_out_to_its_hosts_in_waves() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    create(&mut operator).await;
    let mut hosts = followers(&coordinator, &mut operator, 5, Takes::Well).await;
    for host in &hosts[..2] {
        let request =
            LabelHostRequest { host: host.identity.agent_id.clone(), changes: vec!["room=12".into()] };
        operator.label_host(request).await.unwrap();
    }
    let at = |port: u32| ChangeGroupsRequest {
        files: vec![GroupFile {
            name: "room.toml".into(),
            text: format!(
                "name = \"room\"\nprecedence = 1\nselector = \"room=12\"\n[projects.far]\nshare = 5\n\
                 url = \"http://127.0.0.1:{port}/far/\"\naccount_key = \"0123456789abcdef0123456789abcdef\"\n"
            ),
        }],
        ..Default::default()
    };
    operator.change_groups(at(9)).await.unwrap();
    for host in &mut hosts {
        host.has(2).await;
    }
    plan(&mut operator, "1", None).await;
    let changed = operator.change_groups(at(8)).await.unwrap().into_inner();
    assert_eq!((changed.document_version, changed.rollout), (3, 1));
    while newest(&mut operator).await.have_it == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(newest(&mut operator).await.changes_hosts, 2);
    let first = |hosts: &[Follower]| hosts.iter().filter(|host| host.had().contains(&3)).count();
    assert_eq!((first(&hosts[..2]), first(&hosts[2..])), (1, 0));
    until(&mut operator, RolloutPhase::Completed).await;
    for host in &mut hosts {
        host.has(3).await;
    }
}

#[tokio::test]
async fn r6_5_a_plan_that_means_nothing_is_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (_coordinator, mut operator) = start(dir.path()).await;
    let bad = [("no-such-room", 10, "no-such-room"), ("10%,5%", 10, "each larger"), ("1", 1, "5s to 30d")];
    for (waves, seconds, why) in bad {
        let plan =
            RolloutPlan { waves: waves.into(), soak_micros: seconds * 1_000_000, ..RolloutPlan::default() };
        let request = SetRolloutPlanRequest { plan: Some(plan), message: String::new() };
        let refused = operator.set_rollout_plan(request).await.unwrap_err();
        assert!(refused.message().contains(why), "{refused}");
    }
    let kept = operator.list_rollouts(ListRolloutsRequest { limit: 1 }).await.unwrap().into_inner();
    assert_eq!(kept.plan.unwrap(), RolloutPlan::default());
}

#[tokio::test]
async fn r6_5_an_order_for_another_rollout_or_another_wave_than_somebody_saw_does_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    create(&mut operator).await;
    let _hosts = followers(&coordinator, &mut operator, 4, Takes::Well).await;
    let waves = RolloutPlan { waves: "1,2,3".into(), soak_micros: 3_600_000_000, ..RolloutPlan::default() };
    let request = SetRolloutPlanRequest { plan: Some(waves), message: String::new() };
    operator.set_rollout_plan(request).await.unwrap();
    cpu_fraction(&mut operator, 0.75, false).await.unwrap();
    while newest(&mut operator).await.released_waves == 0 {
        tokio::task::yield_now().await;
    }
    for (rollout, wave, why) in [(2, 0, "rollout 1 is the newest"), (1, 1, "wave 1"), (0, 3, "wave 3")] {
        let refused = meant(&mut operator, RolloutOrder::Promote, rollout, wave).await.unwrap_err();
        assert!(
            refused.message().contains(why) && refused.message().contains("nothing was done"),
            "{refused}"
        );
    }
    assert_eq!(newest(&mut operator).await.released_waves, 1);
    // Two who promote what both saw release one wave.
    assert_eq!(meant(&mut operator, RolloutOrder::Promote, 1, 2).await.unwrap().released_waves, 2);
    assert!(meant(&mut operator, RolloutOrder::Promote, 1, 2).await.is_err());
    assert!(meant(&mut operator, RolloutOrder::TakeBack, 7, 0).await.is_err());
    assert_eq!(newest(&mut operator).await.released_waves, 2);
}

#[tokio::test]
async fn r6_5_a_group_that_the_plan_names_is_not_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (_coordinator, mut operator) = start(dir.path()).await;
    create(&mut operator).await;
    let text =
        "name = \"room\"\nprecedence = 1\nselector = \"room=12\"\n[preferences]\ncpu_fraction = \"50%\"\n";
    let text = text.to_owned();
    let files = vec![GroupFile { name: "room.toml".into(), text }];
    let changed = operator.change_groups(ChangeGroupsRequest { files, ..Default::default() }).await.unwrap();
    assert_eq!(changed.into_inner().document_version, 2);
    plan(&mut operator, "room", None).await;
    let remove = || ChangeGroupsRequest { remove: vec!["room".into()], ..Default::default() };
    let refused = operator.change_groups(remove()).await.unwrap_err();
    assert!(refused.message().contains("the plan for rollouts names group room"), "{refused}");
    let tried = operator.change_groups(ChangeGroupsRequest { dry_run: true, ..remove() }).await.unwrap_err();
    assert_eq!(tried.message(), refused.message());
    plan(&mut operator, "1", None).await;
    operator.change_groups(remove()).await.unwrap();
}

#[tokio::test]
async fn r6_5_a_version_that_hosts_refuse_goes_no_further() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    create(&mut operator).await;
    let _hosts = followers(&coordinator, &mut operator, 3, Takes::Not).await;
    plan(&mut operator, "1", None).await;
    cpu_fraction(&mut operator, 0.75, false).await.unwrap();
    let rollout = until(&mut operator, RolloutPhase::TakenBack).await;
    assert!(rollout.stands.contains("1 of 1 host refuse it"), "{}", rollout.stands);
    assert!(rollout.stands.contains("it is not to my taste"), "{}", rollout.stands);
}

#[tokio::test]
async fn r6_10_what_a_host_says_of_a_version_that_it_was_not_given_takes_nothing_back() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    create(&mut operator).await;
    let mut honest = followers(&coordinator, &mut operator, 2, Takes::Well).await;
    // It knows what the next version will be called, says so and goes.
    let liar = Follower::enrol(coordinator.access(), &mut operator, Takes::Well).await;
    let identity = liar.identity.clone();
    drop(liar);
    for rollout in 1..=2_u64 {
        let mut agent = Agent::link(&identity, hello(&identity, &format!("liar {rollout}"), 1)).await.0;
        let state = wire::HostState {
            hostname: "liar".into(),
            cpus: 8,
            usable_cpus: 8,
            document_version: 1,
            document_refused_version: rollout + 1,
            document_refusal: "I knew\n2026 INFO that it would come".into(),
            document_rolled_back_version: rollout + 1,
            document_rollback: "and went back".into(),
            ..Default::default()
        };
        agent
            .snapshot(1, vec![wire::Entry { key: "host".into(), value: Some(Value::Host(Box::new(state))) }])
            .await;
        agent.acknowledged(1).await;
        drop(agent);
        plan(&mut operator, "100%", None).await;
        cpu_fraction(&mut operator, 0.9 - 0.1 * rollout as f64, false).await.unwrap();
        for host in &mut honest {
            host.has(rollout + 1).await;
        }
        let completed = until(&mut operator, RolloutPhase::Completed).await;
        assert_eq!(completed.number, rollout);
    }
}

#[tokio::test]
async fn r6_5_who_began_a_large_change_does_not_approve_it_and_an_emergency_takes_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    create(&mut operator).await;
    let mut host = Follower::enrol(coordinator.access(), &mut operator, Takes::Well).await;
    host.has(1).await;
    plan(&mut operator, "1", Some(0)).await;
    cpu_fraction(&mut operator, 0.75, false).await.unwrap();
    assert_eq!(newest(&mut operator).await.phase(), RolloutPhase::Waiting);
    let asked = GetDocumentRequest { released: false };
    assert_eq!(operator.get_document(asked).await.unwrap().into_inner().rollout, 1, "nobody has it yet");
    let refused = order(&mut operator, RolloutOrder::Approve).await.unwrap_err();
    assert!(refused.message().contains("somebody else has to approve it"), "{refused}");
    // From what hosts have, and to all of them at once.
    assert_eq!(cpu_fraction(&mut operator, 0.25, true).await.unwrap(), (3, 0));
    host.has(3).await;
    assert_eq!(host.had(), [1, 3]);
    let rollout = newest(&mut operator).await;
    assert_eq!((rollout.phase(), rollout.taken_back_by), (RolloutPhase::TakenBack, 3));
    let story = story(&mut operator).await;
    let said = "document changed: version 3: preferences cpu_fraction=25%, an emergency, to all hosts at once, in place of rollout 1";
    assert!(story.iter().any(|line| line == said), "{story:?}");
}

#[tokio::test]
async fn r6_5_a_rollout_goes_on_after_the_coordinator_was_stopped_and_nobody_has_what_was_not_released() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    create(&mut operator).await;
    let hosts = followers(&coordinator, &mut operator, 3, Takes::Well).await;
    plan(&mut operator, "1", None).await;
    cpu_fraction(&mut operator, 0.75, false).await.unwrap();
    let wait = async {
        while newest(&mut operator).await.have_it == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap();
    let before: Vec<_> = hosts.iter().map(|host| (host.identity.clone(), host.had())).collect();
    drop(hosts);
    coordinator.stop().await.unwrap();

    let (coordinator, mut operator) = start(dir.path()).await;
    assert_eq!(newest(&mut operator).await.released_waves, 1);
    let mut hosts = Vec::new();
    for (identity, had) in before {
        let identity = Identity { access: coordinator.access().clone(), ..identity };
        hosts.push(Follower::run(identity, Takes::Well, had).await);
    }
    let with_it = |hosts: &[Follower]| hosts.iter().filter(|host| host.had().contains(&2)).count();
    assert_eq!(with_it(&hosts), 1);
    let rollout = until(&mut operator, RolloutPhase::Completed).await;
    assert_eq!(rollout.released_waves, 2);
    for host in &mut hosts {
        host.has(2).await;
    }
}

/// Three hosts, the first of which is in the group of the first wave and has version 3, and nobody else.
async fn one_of_a_room_has_it(coordinator: &Coordinator, operator: &mut Client) -> Vec<Follower> {
    create(operator).await;
    let mut hosts = followers(coordinator, operator, 3, Takes::Well).await;
    label(operator, &hosts[0], "room=12").await;
    let text =
        "name = \"room\"\nprecedence = 1\nselector = \"room=12\"\n[preferences]\nmemory_fraction = \"40%\"\n";
    let files = vec![GroupFile { name: "room.toml".into(), text: text.into() }];
    let changed = operator.change_groups(ChangeGroupsRequest { files, ..Default::default() }).await.unwrap();
    assert_eq!(changed.into_inner().document_version, 2);
    for host in &mut hosts {
        host.has(2).await;
    }
    let plan = RolloutPlan { waves: "room".into(), soak_micros: 3_600_000_000, ..Default::default() };
    let request = SetRolloutPlanRequest { plan: Some(plan), message: String::new() };
    operator.set_rollout_plan(request).await.unwrap();
    assert_eq!(cpu_fraction(operator, 0.75, false).await.unwrap(), (3, 1));
    hosts[0].has(3).await;
    hosts
}

async fn label(operator: &mut Client, host: &Follower, change: &str) {
    let request = LabelHostRequest { host: host.identity.agent_id.clone(), changes: vec![change.to_owned()] };
    operator.label_host(request).await.unwrap();
}

/// A host says this of itself, and that is stored.
async fn says(identity: &Identity, epoch: &str, state: wire::HostState) {
    let has = state.document_version;
    let mut agent = Agent::link(identity, hello(identity, epoch, has)).await.0;
    let state = wire::HostState { hostname: "host".into(), cpus: 8, usable_cpus: 8, ..state };
    agent
        .snapshot(1, vec![wire::Entry { key: "host".into(), value: Some(Value::Host(Box::new(state))) }])
        .await;
    agent.acknowledged(1).await;
}

fn went_back(from: u64) -> wire::HostState {
    wire::HostState {
        document_version: 2,
        document_rolled_back_version: from,
        document_rollback: "silence".into(),
        ..Default::default()
    }
}

#[tokio::test]
async fn r6_5_a_host_that_was_never_given_a_version_never_had_it_whatever_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    let mut hosts = one_of_a_room_has_it(&coordinator, &mut operator).await;
    let liar = hosts.pop().unwrap().identity.clone();
    says(&liar, "first", wire::HostState { document_version: 3, ..Default::default() }).await;
    let back = order(&mut operator, RolloutOrder::TakeBack).await.unwrap();
    assert_eq!((back.phase(), back.taken_back_by, back.had_it), (RolloutPhase::TakenBack, 4, 1));
    says(&liar, "second", went_back(3)).await;
    let had = async |operator: &mut Client, host: &str| -> Vec<HadVersion> {
        taken_back(operator, host.to_owned()).await.iter().map(TakenBackVersion::had).collect()
    };
    assert_eq!(had(&mut operator, &liar.agent_id).await, [HadVersion::Never]);
    assert_eq!(had(&mut operator, &hosts[0].identity.agent_id).await, [HadVersion::TakenBack]);
}

#[tokio::test]
async fn r6_5_what_a_host_says_of_the_version_that_it_kept_counts_after_a_restart_too() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, mut operator) = start(dir.path()).await;
    let hosts = one_of_a_room_has_it(&coordinator, &mut operator).await;
    while newest(&mut operator).await.have_it == 0 {
        tokio::task::yield_now().await;
    }
    // It moves to where the version is not released yet, and keeps it.
    label(&mut operator, &hosts[0], "room-").await;
    let identity = hosts[0].identity.clone();
    drop(hosts);
    coordinator.stop().await.unwrap();

    let (coordinator, mut operator) = start(dir.path()).await;
    let identity = Identity { access: coordinator.access().clone(), ..identity };
    says(&identity, "later", went_back(3)).await;
    let refusing = newest(&mut operator).await.refusing;
    assert_eq!(refusing.len(), 1, "{refusing:?}");
    assert!(refusing[0].agent_id == identity.agent_id && refusing[0].reason.contains("went back"));
    let back = order(&mut operator, RolloutOrder::TakeBack).await.unwrap();
    assert_eq!(back.had_it, 1);
}
