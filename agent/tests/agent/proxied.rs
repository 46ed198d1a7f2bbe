//! An agent on a network that lets nobody out but through a proxy (R6.10).

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use fallow_tls::{AccessString, Purpose};
use serde_json::Value;

use crate::link::{Agent, Coordinator, GOOD, host};
use crate::proxy::{Manner, TestProxy};
use crate::support::{PATIENCE, agent, wait_for};

/// What proxies are told of alice, whose password is hunter2.
const ALICE: &str = "Basic YWxpY2U6aHVudGVyMg==";

/// A token for the coordinator under a name that nobody but the proxy knows.
fn token(coordinator: &Coordinator, port: u16) -> String {
    let access = AccessString {
        purpose: Purpose::Enrolment,
        addresses: vec![format!("lab.invalid:{port}").parse().unwrap()],
        authority: coordinator.authority(),
        secret: GOOD.repeat(64),
        organisation: Vec::new(),
    };
    access.reveal()
}

fn command(dir: &Path, proxy: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(agent());
    command.args(arguments).arg("--dir").arg(dir).stdin(Stdio::null());
    for name in
        ["http_proxy", "https_proxy", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY", "FALLOW_TOKEN"]
    {
        command.env_remove(name);
    }
    command.env("HTTPS_PROXY", proxy);
    command
}

/// Starts an agent that logs all there is to be logged.
fn start(dir: &Path, proxy: &str, token: &str, log: &Path) -> Agent {
    let mut command = command(dir, proxy, &["run"]);
    command.env("FALLOW_TOKEN", token).env("FALLOW_LOG", "trace").env_remove("OTEL_EXPORTER_OTLP_ENDPOINT");
    let log = File::create(log).unwrap();
    Agent(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
}

fn status(dir: &Path) -> Option<Value> {
    let output = command(dir, "", &["status", "--json"]).output().unwrap();
    output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
}

/// Waits until the last trouble of the link says this.
fn until_trouble_says(dir: &Path, what: &str) {
    wait_for(what, || {
        let status = status(dir)?;
        status["fleet"]["last_error"].as_str().filter(|error| error.contains(what)).map(drop)
    });
}

fn shows_no_secret(text: &str) {
    for secret in ["hunter2", "alice", ALICE] {
        assert!(!text.contains(secret), "{secret} in: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_10_an_agent_enrols_and_links_through_a_proxy_says_so_and_comes_back_when_the_proxy_lets_it() {
    let (dir, coordinator) = (tempfile::tempdir().unwrap(), Coordinator::default());
    let (address, serving) = coordinator.serve(None).await;
    let proxy = TestProxy::start(Manner::Wants(ALICE));
    let (at, log) = (proxy.address(), dir.path().join("log"));
    let place = dir.path().join("agent");
    let url = format!("http://alice:hunter2@{at}");
    let _process = start(&place, &url, &token(&coordinator, address.port()), &log);
    coordinator.until("the snapshot", host).await;
    let linked = || status(&place).filter(|status| status["fleet"]["connected"] == true);
    assert_eq!(wait_for("the link", linked)["fleet"]["proxy"], at.to_string());
    let text = command(&place, "", &["status"]).output().unwrap().stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains(&format!("through the proxy at {at}\n")), "{text}");
    // Once to enrol, once for the link, and never by another way.
    assert!(proxy.asked().len() >= 2);
    for asked in proxy.asked() {
        assert_eq!(asked, format!("CONNECT lab.invalid:{}", address.port()));
    }

    proxy.becomes(Manner::Says("HTTP/1.1 403 Forbidden\r\n\r\n"));
    serving.abort();
    let _ = serving.await;
    coordinator.0.lock().unwrap().lose();
    until_trouble_says(&place, &format!("the proxy at {at} (HTTPS_PROXY) refused CONNECT to lab.invalid"));
    assert_eq!(status(&place).unwrap()["fleet"]["proxy"], Value::Null);
    // The old port closes with the next connection.
    proxy.becomes(Manner::Wants(ALICE));
    let (_, _serving) = coordinator.serve(Some(address)).await;
    wait_for("the link after the refusal", linked);
    shows_no_secret(&std::fs::read_to_string(&log).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_10_a_proxy_that_says_nothing_holds_up_the_link_and_not_the_agent() {
    let (dir, coordinator) = (tempfile::tempdir().unwrap(), Coordinator::default());
    let (address, _serving) = coordinator.serve(None).await;
    let proxy = TestProxy::start(Manner::Open);
    let url = format!("http://{}", proxy.address());
    let (place, log) = (dir.path().join("agent"), dir.path().join("log"));
    let process = start(&place, &url, &token(&coordinator, address.port()), &log);
    coordinator.until("the snapshot", host).await;
    drop(process);

    proxy.becomes(Manner::Silent);
    let before = proxy.asked().len();
    let _process = start(&place, &url, "", &log);
    wait_for("the proxy to be asked", || (proxy.asked().len() > before).then_some(()));
    // The owner is answered while the link waits.
    let answered = wait_for("an answer to the owner", || status(&place));
    assert_eq!(answered["fleet"]["last_error"], Value::Null, "the answer came after the link had given up");
    assert!(command(&place, "", &["suspend"]).output().unwrap().status.success());
    until_trouble_says(&place, "said nothing within 15 s");
}

/// How a start ends that comes to nothing, and what it says.
async fn ends(proxy: String, token: String) -> (Option<i32>, String) {
    let run = move || {
        let dir = tempfile::tempdir().unwrap();
        let mut command = command(dir.path(), &proxy, &["run"]);
        let output = command.env("FALLOW_TOKEN", token).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    tokio::time::timeout(PATIENCE, tokio::task::spawn_blocking(run)).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_10_an_agent_that_a_proxy_does_not_let_out_says_why_and_one_with_a_bad_value_does_not_start() {
    let coordinator = Coordinator::default();
    let (address, _serving) = coordinator.serve(None).await;
    let token = token(&coordinator, address.port());
    let proxy = TestProxy::start(Manner::Wants("Basic of another"));
    let at = proxy.address();
    for (url, code, says) in [
        (format!("http://alice:hunter2@{at}"), 4, "does not take the user and the password in HTTPS_PROXY"),
        (format!("http://{at}"), 4, "(407): give them in HTTPS_PROXY, as http://USER:PASSWORD@"),
        (format!("socks5://alice:hunter2@{at}"), 3, "the environment variable HTTPS_PROXY cannot be used"),
        ("http://alice:hunter2@".to_owned(), 3, "the environment variable HTTPS_PROXY cannot be used"),
    ] {
        let (ended, text) = ends(url, token.clone()).await;
        assert!(ended == Some(code) && text.contains(says), "{ended:?}: {text}, not {says}");
        shows_no_secret(&text);
    }
    assert!(coordinator.0.lock().unwrap().hellos.is_empty());
}
