//! Lists of hosts that hold very much (R6.10). A program of its own: it takes memory, which others measure.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

mod peers;

use fallow_coordinator::daemon::{Coordinator, Options};
use fallow_proto::fleet::v1 as wire;
use fallow_proto::operator::v1::ListHostsRequest;
use peers::{Agent, connect, enroll, hello, host, tokens};
use wire::entry::Value;

fn task(name: &str) -> wire::Entry {
    let url = "http://127.0.0.1:1/a/";
    let state = wire::TaskState { project_url: url.into(), name: name.into(), ..Default::default() };
    wire::Entry { key: format!("task/{url}/{name}"), value: Some(Value::Task(state)) }
}

#[tokio::test]
async fn r6_10_a_host_that_holds_very_much_keeps_no_operator_from_listing_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(Options::at(dir.path())).await.unwrap();
    let mut operator = connect(coordinator.access()).await.unwrap();
    let mut links = Vec::new();
    // As much as one may hold, nearly; together more than a list holds.
    for _ in 0..16 {
        let token = tokens(&mut operator, 1).await.remove(0);
        let identity = enroll(coordinator.access(), &token).await.unwrap();
        let (mut agent, _) = Agent::link(&identity, hello(&identity, "e", 0)).await;
        agent.snapshot(1, vec![host()]).await;
        let long = "x".repeat(230);
        let entries = (0..9_000).map(|number| task(&format!("{long}_{number}"))).collect();
        agent.delta(2, entries, &[]).await;
        agent.acknowledged(2).await;
        links.push(agent);
    }
    let listed = operator.list_hosts(ListHostsRequest::default()).await.unwrap().into_inner().hosts;
    assert_eq!(listed.len(), 16);
    assert!(listed.iter().all(|host| host.tasks_held == 9_000));
    let cut: Vec<_> = listed.iter().map(|host| (host.is_cut, host.tasks.len())).collect();
    assert_eq!((cut[0], cut[15]), ((false, 9_000), (true, 0)), "{cut:?}");
    drop(links);
    coordinator.stop().await.unwrap();
}
