//! A disk that agents and submitters have filled, and operators who have to stop them (R6.10).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

mod peers;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fallow_coordinator::daemon::{Coordinator, Options};
use fallow_coordinator::fleet::LinkSettings;
use fallow_proto::fleet::v1 as wire;
use fallow_proto::operator::v1::add_app_version_part::Part;
use fallow_proto::operator::v1::{
    AddAppVersionPart, AddAppVersionRequest, AppFile, CreateProjectRequest, ForgetHostRequest,
    GetDocumentRequest, InputFile, ListHostsRequest, ListRolloutsRequest, NewWorkunit, RevokeHostRequest,
    RolloutPlan, SetPreferencesRequest, SetRolloutPlanRequest, SubmitRequest,
};
use peers::{Agent, Client, Identity, add_app_version, connect, enroll, hello, host, tokens};
use tonic::{Code, Status};
use wire::entry::Value;
use wire::from_agent::Body as Said;
use wire::from_coordinator::Body as Heard;

const CHILD: &str = "FALLOW_FULL_DISK_TEST_DIR";
const URL: &str = "http://127.0.0.1:1/a/";

/// Run as a child only, in a mount namespace of its own with a small volume.
#[tokio::test]
async fn child_on_a_small_volume() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    // Long enough for an operator on a busy machine.
    let (heartbeat, unstored) = (Duration::from_hours(1), Duration::from_secs(50));
    let link = LinkSettings { heartbeat, unstored, ..LinkSettings::default() };
    let options = Options { link, ..Options::at(Path::new(&dir).join("coordinator")) };
    let coordinator = Coordinator::start(options).await.unwrap();
    let mut operator = connect(coordinator.access()).await.unwrap();
    let project = CreateProjectRequest { name: "a".into(), share: 50.0, ..Default::default() };
    operator.create_project(project).await.unwrap();
    add_app_version(&mut operator, "a", "app").await;
    let mut hosts = Vec::new();
    for token in tokens(&mut operator, 13).await {
        hosts.push(enroll(coordinator.access(), &token).await.unwrap());
    }
    let last = hosts.pop().unwrap();
    begin_rollout(&mut operator).await;
    // Where there is no room for much, there may be some for little.
    let mut sizes = [1_000, 100, 10, 1].into_iter().peekable();
    for identity in hosts {
        let Some(size) = sizes.peek() else { break };
        if let Err(status) = fill(&identity, *size).await {
            assert_eq!(status.code(), Code::Unavailable, "{status}");
            assert!(status.message().contains("no space left"), "{status}");
            sizes.next();
        }
    }
    assert!(sizes.peek().is_none(), "the disk is not full");
    submit_all_there_is_room_for(&mut operator).await;
    let process = |boot: u8| wire::Hello { boot: vec![boot; 16], ..hello(&last, "e", 0) };
    let (mut agent, _) = Agent::link(&last, process(1)).await;
    // Whether the first report finds space or not: the second one finds none.
    agent.snapshot(1, vec![host()]).await;
    answered(&mut agent, 1).await;
    agent.delta(2, (0..1_000).map(job).collect(), &[]).await;
    assert!(matches!(answered(&mut agent, 2).await, Heard::Received(_)), "it is stored");
    // So this is the link of which nothing can be stored. A rollout sees nothing of such a host.
    let rollouts =
        operator.list_rollouts(ListRolloutsRequest { limit: 1 }).await.unwrap().into_inner().rollouts;
    assert_eq!((rollouts[0].hosts, rollouts[0].off), (13, 13), "{}", rollouts[0].stands);
    let mut received = 0;
    let suspended = async {
        loop {
            match agent.next().await {
                Ok(Heard::Document(document))
                    if document.preferences.as_ref().is_some_and(|said| said.suspended) =>
                {
                    agent.delta(3, vec![host()], &[]).await;
                }
                Ok(Heard::Received(message)) => received = message.sequence,
                Ok(_) => {}
                Err(status) => break status,
            }
        }
    };
    let (refused, ()) = tokio::join!(suspended, stop_them(&mut operator, &last));
    // It learns that it was heard when it said that it has the document.
    assert_eq!(received, 3, "{refused}");
    assert!(refused.message().contains("no space left"), "{refused}");
    // A copy of it that is quicker to come has no link by that.
    let mut copy = Agent::open(&last, process(2)).await;
    let (mut agent, _) = Agent::link(&last, process(1)).await;
    let told = async {
        let heard = copy.next().await.unwrap();
        assert!(matches!(heard, Heard::Copied(_)), "{heard:?}");
    };
    let answers = async {
        loop {
            if let Heard::Probe(probe) = agent.next().await.unwrap() {
                agent.say(Said::ProbeAnswer(wire::ProbeAnswer { number: probe.number })).await;
            }
        }
    };
    tokio::select! {
        () = told => {}
        () = answers => {}
    }
    coordinator.stop().await.unwrap();
    println!("\nthey were stopped");
}

/// The same on a volume that has room for much in few files.
#[tokio::test]
async fn child_on_a_volume_of_few_files() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let options = Options::at(Path::new(&dir).join("coordinator"));
    let coordinator = Coordinator::start(options.clone()).await.unwrap();
    let mut operator = connect(coordinator.access()).await.unwrap();
    let project = CreateProjectRequest { name: "a".into(), share: 50.0, ..Default::default() };
    operator.create_project(project).await.unwrap();
    add_app_version(&mut operator, "a", "app").await;
    begin_versions(&operator, dir.as_ref()).await;
    for workunits in [20, 1] {
        let input = InputFile { content: vec![7], open_name: "in".into(), ..Default::default() };
        let workunit = NewWorkunit {
            application: "app".into(),
            flops_estimate: 1e9,
            inputs: vec![input],
            ..Default::default()
        };
        let workunits = vec![workunit; workunits];
        let request = SubmitRequest { project: "a".into(), workunits, ..Default::default() };
        let refused = loop {
            if let Err(status) = operator.submit(request.clone()).await {
                break status;
            }
        };
        assert!(refused.message().to_lowercase().contains("no space left"), "{refused}");
    }
    coordinator.stop().await.unwrap();
    Coordinator::start(options).await.unwrap().stop().await.unwrap();
    println!("\nit has started again");
}

/// Submissions to several projects at once, on a volume that has room for the files of one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_on_a_volume_for_one_of_two() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let options = Options::at(Path::new(&dir).join("coordinator"));
    let coordinator = Coordinator::start(options).await.unwrap();
    let mut operator = connect(coordinator.access()).await.unwrap();
    let mut submissions = Vec::new();
    for project in ["a", "b"] {
        let request = CreateProjectRequest { name: project.into(), share: 50.0, ..Default::default() };
        operator.create_project(request).await.unwrap();
        add_app_version(&mut operator, project, "app").await;
        let input = |number: usize| InputFile {
            open_name: format!("in{number}"),
            content: vec![7],
            ..Default::default()
        };
        let workunit = NewWorkunit {
            application: "app".into(),
            flops_estimate: 1e9,
            inputs: (0..100).map(input).collect(),
            ..Default::default()
        };
        let workunits = vec![workunit; 49];
        let request = SubmitRequest { project: project.into(), workunits, ..Default::default() };
        let mut operator = operator.clone();
        submissions.push(tokio::spawn(async move { operator.submit(request).await.map(drop) }));
    }
    let mut refused = 0;
    for submission in submissions {
        if let Err(status) = submission.await.unwrap() {
            assert!(status.message().to_lowercase().contains("no space left"), "{status}");
            refused += 1;
        }
    }
    assert!(refused > 0, "there was room for both");
    let free = rustix::fs::statvfs(&*dir).unwrap().f_favail;
    assert!(free >= 1_000, "{free} files are left");
    coordinator.stop().await.unwrap();
    println!("\nenough was left");
}

/// Several versions that are begun one after the other: for each of them there is room, but not for all.
async fn begin_versions(operator: &Client, dir: &Path) {
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let file = |name: String, size: u64| AppFile {
        name,
        size_bytes: size,
        sha256: empty.into(),
        executable: true,
        signature: String::new(),
    };
    let mut calls = Vec::new();
    for version in 1..=4 {
        let first = AppFile {
            sha256: "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881".into(),
            ..file("first".into(), 1)
        };
        let many = (0..40).map(|number| file(format!("f{number}"), 0));
        let files = std::iter::once(first).chain(many).chain([file("last".into(), 9)]).collect();
        let request = AddAppVersionRequest {
            project: "a".into(),
            application: "app".into(),
            version,
            platform: "x86_64-pc-linux-gnu".into(),
            files,
            ..Default::default()
        };
        let (parts, read) = tokio::sync::mpsc::channel(2);
        parts.send(AddAppVersionPart { part: Some(Part::Version(request)) }).await.unwrap();
        let mut operator = operator.clone();
        let read = tokio_stream::wrappers::ReceiverStream::new(read);
        let call = tokio::spawn(async move { operator.add_app_version(read).await });
        calls.push((parts, call));
    }
    let incoming = dir.join("coordinator/projects/a/incoming");
    let have = |file: &str| {
        let versions = std::fs::read_dir(&incoming).unwrap();
        versions.filter(|version| version.as_ref().unwrap().path().join(file).exists()).count()
    };
    // All are let in, and have made their first file.
    while have("0/first") < calls.len() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for (parts, _) in &calls {
        parts.send(AddAppVersionPart { part: Some(Part::Content(b"x".to_vec())) }).await.unwrap();
    }
    // Each waits for its last file then, or is refused.
    let refused = || calls.iter().filter(|(_, call)| call.is_finished()).count();
    while have("41/last") + refused() < calls.len() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(refused() > 0, "there was room for all");
    let volume = rustix::fs::statvfs(dir).unwrap();
    assert!(volume.f_favail >= volume.f_files / 8, "{} files are left", volume.f_favail);
    for (parts, call) in calls {
        drop(parts);
        let status = call.await.unwrap().unwrap_err();
        let why = ["no space left", "is not what was announced"];
        assert!(why.iter().any(|why| status.message().to_lowercase().contains(why)), "{status}");
    }
}

/// A job with a long name.
fn job(number: u64) -> wire::Entry {
    let name = format!("{number:0>255}");
    let task = wire::TaskState { project_url: URL.into(), name: name.clone(), ..Default::default() };
    wire::Entry { key: format!("task/{URL}/{name}"), value: Some(Value::Task(task)) }
}

/// An agent that says as much as it may, so many jobs at a time.
async fn fill(identity: &Identity, size: u64) -> Result<(), Status> {
    let (mut agent, _) = Agent::link(identity, hello(identity, "e", 0)).await;
    for sequence in 1..8_000 / size {
        let jobs: Vec<_> = (sequence * size..(sequence + 1) * size).map(job).collect();
        match sequence {
            1 => agent.snapshot(1, [vec![host()], jobs].concat()).await,
            _ => agent.delta(sequence, jobs, &[]).await,
        }
        while !matches!(agent.next().await?, Heard::Acknowledge(_)) {}
    }
    Ok(())
}

/// Jobs with inputs, until there is no room for the smallest.
async fn submit_all_there_is_room_for(operator: &mut Client) {
    // Many small files take more than they hold.
    let mut sizes = [(1, 100, 49), (256 << 10, 1, 1), (16 << 10, 1, 1), (1, 1, 1)].into_iter().peekable();
    while let Some(&(size, inputs, workunits)) = sizes.peek() {
        let input = |number: usize| InputFile {
            content: vec![7; size],
            open_name: format!("in{number}"),
            ..Default::default()
        };
        let workunit = NewWorkunit {
            application: "app".into(),
            flops_estimate: 1e9,
            inputs: (0..inputs).map(input).collect(),
            ..Default::default()
        };
        let request =
            SubmitRequest { project: "a".into(), workunits: vec![workunit; workunits], ..Default::default() };
        if let Err(status) = operator.submit(request).await {
            assert!(status.message().to_lowercase().contains("no space left"), "{status}");
            sizes.next();
        }
    }
}

/// A version that is released to all hosts at once and watched for an hour.
async fn begin_rollout(operator: &mut Client) {
    let plan = RolloutPlan { waves: "100%".into(), soak_micros: 3_600_000_000, ..Default::default() };
    let request = SetRolloutPlanRequest { plan: Some(plan), message: String::new() };
    operator.set_rollout_plan(request).await.unwrap();
    let document = operator.get_document(GetDocumentRequest::default()).await.unwrap().into_inner().document;
    let preferences = document.unwrap().preferences.unwrap();
    let preferences = Some(wire::Preferences { cpu_fraction: 0.5, ..preferences });
    let request = SetPreferencesRequest { preferences, ..Default::default() };
    operator.set_preferences(request).await.unwrap();
}

/// Reads on until this report is acknowledged, or said to have come.
async fn answered(agent: &mut Agent, report: u64) -> Heard {
    loop {
        let heard = agent.next().await.unwrap();
        match &heard {
            Heard::Acknowledge(answer) if answer.sequence == report => return heard,
            Heard::Received(answer) if answer.sequence == report => return heard,
            _ => {}
        }
    }
}

/// What an operator does then.
async fn stop_them(operator: &mut Client, last: &Identity) {
    let document = operator.get_document(GetDocumentRequest::default()).await.unwrap().into_inner().document;
    let preferences = document.unwrap().preferences.unwrap();
    let request = SetPreferencesRequest {
        preferences: Some(wire::Preferences { suspended: true, ..preferences }),
        emergency: true,
        ..Default::default()
    };
    operator.set_preferences(request).await.unwrap();
    let hosts = operator.list_hosts(ListHostsRequest::default()).await.unwrap().into_inner().hosts;
    assert!(!hosts.is_empty());
    for host in hosts.into_iter().filter(|host| host.agent_id != last.agent_id) {
        let revoke = RevokeHostRequest { host: host.agent_id.clone(), reason: "full".into() };
        operator.revoke_host(revoke).await.unwrap();
        operator.forget_host(ForgetHostRequest { host: host.agent_id }).await.unwrap();
    }
    let left = operator.list_hosts(ListHostsRequest::default()).await.unwrap().into_inner().hosts;
    assert_eq!(left.len(), 1);
}

#[test]
fn r6_10_operators_suspend_the_fleet_and_take_hosts_out_when_agents_and_submitters_have_filled_the_disk() {
    on_a_volume("size=32m", "child_on_a_small_volume", "they were stopped");
}

#[test]
fn r6_10_a_coordinator_starts_again_when_submitters_have_made_all_the_files_that_they_may() {
    on_a_volume("size=64m,nr_inodes=300", "child_on_a_volume_of_few_files", "it has started again");
}

#[test]
fn r6_10_submissions_to_several_projects_at_once_leave_the_files_for_the_next_start_too() {
    on_a_volume("size=256m,nr_inodes=9000", "child_on_a_volume_for_one_of_two", "enough was left");
}

/// Runs a test of this program on a volume of its own, which says that in the end.
fn on_a_volume(options: &str, child: &str, expected: &str) {
    let dir = tempfile::tempdir().unwrap();
    let script = format!(r#"mount -t tmpfs -o {options} none "$1" && shift && exec "$@""#);
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", &script, "sh"])
        .arg(dir.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", child, "--nocapture", "--test-threads=1"])
        .env(CHILD, dir.path())
        .output();
    let Ok(output) = output else {
        println!("skipped: there is no `unshare` to make a small volume with");
        return;
    };
    let (said, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !said.contains("running 1 test") {
        println!("skipped: no small volume can be mounted here: {log}");
        return;
    }
    assert!(said.contains(expected), "{log}{said}");
}
