//! A fleet on a network (R6.8, R6.10): coordinator and agents on two machines with addresses of their own,
//! which are network namespaces here, TLS between them, and an unmodified BOINC client beside the agents. And
//! an agent behind a proxy, one that was away until its certificate had expired, and one whose machine others
//! use the network of (`others`).
//!
//! Namespaces need root and Debian's iproute2; without them tests that have two machines say so and pass,
//! unless `FALLOW_REQUIRE_PEERS=1`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

mod machines;
mod others;
#[path = "../../../shared/tls/tests/support/proxy.rs"]
mod proxy;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fallow_e2e::{PATIENCE, binary, command, fallow_json, free_port, peers_required, wait_for};
use machines::{Killed, Machines, SERVER, fallow, logged, on, said};
use proxy::{Manner, TestProxy};
use serde_json::Value;
use tempfile::TempDir;

const BATCH: &str = "[[workunits]]\napplication = \"mersenne\"\ninputs = [{ open_name = \"in\", text = \"from=2 to=300\\n\" }]\n\
    outputs = [{ open_name = \"out\" }]\nflops = 1e9\nquorum = 3\n";

#[test]
fn r6_10_a_fleet_computes_across_a_network_over_tls_and_a_stock_client_beside_it() {
    let Some(machines) = Machines::new() else { return };
    if Command::new("boinc").arg("--version").output().is_err() {
        assert!(!peers_required(), "boinc is not installed (e2e/peers/install.sh)");
        eprintln!("no boinc: that it computes beside the agents is not tried");
        return;
    }
    let (server, clients) = (machines.server.as_str(), machines.clients.as_str());
    let dir = tempfile::Builder::new().prefix("fallow-e2e-").tempdir().unwrap();
    let lab = dir.path().join("coordinator");
    // As the README has it; plain HTTP is for the stock client.
    let (fleet, any, http) = (format!("{SERVER}:24001"), "0.0.0.0:24001", "0.0.0.0:24002");
    let run = ["coordinator", "run", "--listen", any, "--http", http, "--advertise", &fleet];
    let run = [&run[..], &["--allow-plain-http"]].concat();
    let mut running = vec![logged(on(server, &fallow(&lab, &run)), &dir.path().join("coordinator.log"))];
    wait_for("the coordinator to answer", PATIENCE, || {
        on(server, &fallow(&lab, &["hosts"])).output().unwrap().status.success().then_some(())
    });
    let json = |arguments: &[&str]| -> Value {
        serde_json::from_str(&said(server, &fallow(&lab, &[arguments, &["--json"]].concat()))).unwrap()
    };
    let made = json(&["project", "create", "primes", "--request-delay", "1s"]);
    assert_eq!(made["url"], format!("https://{SERVER}:24002/primes/"));
    json(&["project", "set", "primes", "account-creation=true", "report-immediately=true"]);
    let program = binary("mersenne");
    json(&["app", "add", "primes", "mersenne", program.to_str().unwrap(), "--version", "1.0"]);
    let batch = dir.path().join("batch.toml");
    fs::write(&batch, BATCH).unwrap();
    json(&["submit", "primes", "--file", batch.to_str().unwrap()]);

    // The agents get a token and nothing else.
    let token = dir.path().join("token");
    let create = ["tokens", "create", "--uses", "400", "--expires", "7d", "--label", "room=12"];
    fs::write(&token, said(server, &fallow(&lab, &create))).unwrap();
    for number in 1..=2 {
        let mut agent = command("fallow-agent");
        agent.arg("run").arg("--dir").arg(dir.path().join(format!("agent-{number}")));
        agent.arg("--token-file").arg(&token);
        running.push(logged(on(clients, &agent), &dir.path().join(format!("agent-{number}.log"))));
    }
    // Whoever is on the way reads nothing and is told nothing: plain text is refused at the fleet's port.
    let mut plain = Command::new("curl");
    plain.args(["-s", "-m", "20"]).arg(format!("http://{SERVER}:24001/"));
    assert!(said(clients, &plain).contains("speaks TLS only"));

    // A stock client comes without TLS, and is told URLs of that kind.
    let boinc = Boinc::start(clients, dir.path());
    let url = format!("http://{SERVER}:24002/primes/");
    let created = boinc.cmd(&["--create_account", &url, "alice@example.org", "secret1", "Alice"]);
    let key = created.split("account key: ").nth(1).unwrap_or_else(|| panic!("no account: {created}"));
    boinc.cmd(&["--project_attach", &url, key.trim()]);
    let project = wait_for("the workunit to be validated by all three", Duration::from_mins(10), || {
        let project = json(&["projects"])["projects"][0].clone();
        (project["workunits_validated"] == 1).then_some(project)
    });
    assert_eq!(project["workunits_failed"], 0, "{project}");
    let result = json(&["results", "primes"])["results"][0].clone();
    assert_eq!(result["agreeing_hosts"], 3, "{result}");
    let hosts = json(&["hosts"]);
    let linked = hosts["hosts"].as_array().unwrap().iter().filter(|host| host["connected"] == true);
    assert_eq!(linked.count(), 2, "{hosts}");
    let in_room = json(&["hosts", "--selector", "room=12"]);
    assert_eq!(in_room["hosts"].as_array().unwrap().len(), 2, "{hosts}");
}

/// BOINC's own client on a machine.
struct Boinc<'a> {
    machine: &'a str,
    dir: TempDir,
    port: u16,
    process: Option<Killed>,
}

impl<'a> Boinc<'a> {
    fn start(machine: &'a str, beside: &Path) -> Self {
        let dir = tempfile::Builder::new().prefix("fallow-boinc-").tempdir().unwrap();
        fs::write(dir.path().join("gui_rpc_auth.cfg"), "secret").unwrap();
        let mut boinc = Self { machine, dir, port: free_port(), process: None };
        let mut client = fallow_e2e::boinc();
        client.args(["--dir", "."]).current_dir(boinc.dir.path());
        client.args(["--gui_rpc_port", &boinc.port.to_string(), "--no_gpus", "--skip_cpu_benchmarks"]);
        boinc.process = Some(logged(on(machine, &client), &beside.join("boinc.log")));
        wait_for("boinc to answer", PATIENCE, || boinc.try_cmd(&["--get_state"]));
        boinc
    }

    fn try_cmd(&self, arguments: &[&str]) -> Option<String> {
        let mut tool = Command::new("boinccmd");
        tool.args(["--host", &format!("127.0.0.1:{}", self.port), "--passwd", "secret"]).args(arguments);
        tool.current_dir(self.dir.path());
        let output = on(self.machine, &tool).output().unwrap();
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn cmd(&self, arguments: &[&str]) -> String {
        wait_for("boinccmd to succeed", PATIENCE, || self.try_cmd(arguments))
    }
}

#[test]
fn r6_10_an_agent_that_comes_back_with_an_expired_certificate_renews_it_and_is_linked_at_once() {
    let dir = tempfile::Builder::new().prefix("fallow-e2e-").tempdir().unwrap();
    let lab = dir.path().join("coordinator");
    let run = ["coordinator", "run", "--certificate-life", "10s", "--heartbeat", "2s"];
    let _coordinator = logged(fallow(&lab, &run), &dir.path().join("coordinator.log"));
    wait_for("the coordinator to answer", PATIENCE, || {
        fallow(&lab, &["hosts"]).output().unwrap().status.success().then_some(())
    });
    let token = fallow_json(&lab, &["tokens", "create"])["tokens"][0].as_str().unwrap().to_owned();
    let place = dir.path().join("agent");
    let start = |log: &Path| {
        let mut agent = command("fallow-agent");
        agent.arg("run").arg("--dir").arg(&place).env("FALLOW_TOKEN", &token);
        logged(agent, log)
    };
    let host = || fallow_json(&lab, &["hosts"])["hosts"][0].clone();
    let agent = start(&dir.path().join("first.log"));
    wait_for("the agent's link", PATIENCE, || (host()["connected"] == true).then_some(()));
    drop(agent);
    let certificate = || {
        let text = fs::read_to_string(place.join("identity.json")).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["certificate"].clone()
    };
    let before = certificate();
    // Time has to pass until the certificate is good no more.
    std::thread::sleep(Duration::from_secs(12));
    let log = dir.path().join("second.log");
    let _agent = start(&log);
    wait_for("the agent's link", PATIENCE, || (host()["connected"] == true).then_some(()));
    assert_ne!(certificate(), before);
    let said = fs::read_to_string(&log).unwrap();
    assert!(!said.contains("no link to the coordinator"), "it was refused first: {said}");
    // The link outlives the next certificates: each is good for ten seconds, with five of grace.
    let said = wait_for("three renewals under one link", PATIENCE, || {
        let said = fs::read_to_string(&log).unwrap();
        (said.matches("certificate was renewed").count() >= 4).then_some(said)
    });
    assert!(!said.contains("no link to the coordinator"), "{said}");
}

/// Nobody but the proxy knows the name of the coordinator's machine: whatever comes there came through it.
#[test]
fn r6_10_an_agent_behind_a_proxy_joins_computes_and_reports_through_it_alone() {
    let dir = tempfile::Builder::new().prefix("fallow-e2e-").tempdir().unwrap();
    let lab = dir.path().join("coordinator");
    let (fleet, http) = (free_port(), free_port());
    let (listen, http_at) = (format!("127.0.0.1:{fleet}"), format!("0.0.0.0:{http}"));
    let advertised = format!("lab.invalid:{fleet}");
    let run = ["coordinator", "run", "--listen", &listen, "--http", &http_at, "--advertise", &advertised];
    let _coordinator = logged(fallow(&lab, &run), &dir.path().join("coordinator.log"));
    wait_for("the coordinator to answer", PATIENCE, || {
        fallow(&lab, &["hosts"]).output().unwrap().status.success().then_some(())
    });
    let json = |arguments: &[&str]| fallow_json(&lab, arguments);
    let made = json(&["project", "create", "primes", "--request-delay", "1s"]);
    assert_eq!(made["url"], format!("https://lab.invalid:{http}/primes/"));
    json(&["project", "set", "primes", "report-immediately=true"]);
    let program = binary("mersenne");
    json(&["app", "add", "primes", "mersenne", program.to_str().unwrap(), "--version", "1.0"]);
    let batch = dir.path().join("batch.toml");
    fs::write(&batch, BATCH.replace("quorum = 3", "quorum = 1")).unwrap();
    json(&["submit", "primes", "--file", batch.to_str().unwrap()]);

    // As alice, whose password is hunter2.
    let proxy = TestProxy::start(Manner::Wants("Basic YWxpY2U6aHVudGVyMg=="));
    let token = json(&["tokens", "create"])["tokens"][0].as_str().unwrap().to_owned();
    let (place, log) = (dir.path().join("agent"), dir.path().join("agent.log"));
    let mut agent = command("fallow-agent");
    agent.arg("run").arg("--dir").arg(&place).args(["--benchmark-after-ms", "3600000"]);
    agent.env("FALLOW_TOKEN", &token).env("FALLOW_LOG", "trace");
    agent.env("HTTPS_PROXY", format!("http://alice:hunter2@{}", proxy.address()));
    let _agent = logged(agent, &log);
    wait_for("the workunit to be validated", Duration::from_mins(10), || {
        (json(&["projects"])["projects"][0]["workunits_validated"] == 1).then_some(())
    });
    assert_eq!(json(&["hosts"])["hosts"][0]["connected"], true);
    // An operator's tools too, from the same network.
    let operator = |proxy: &str| {
        let mut hosts = fallow(&lab, &["hosts", "--coordinator", &advertised]);
        hosts.env("HTTPS_PROXY", proxy).output().unwrap()
    };
    let through = operator(&format!("http://alice:hunter2@{}", proxy.address()));
    assert!(through.status.success(), "{}", String::from_utf8_lossy(&through.stderr));
    let refused = operator("http://alice:hunter2@");
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(
        refused.status.code() == Some(3) && text.contains("HTTPS_PROXY") && !text.contains("hunter2"),
        "{text}"
    );
    let asked = proxy.asked();
    let [to_fleet, to_projects] = [fleet, http].map(|port| format!("CONNECT lab.invalid:{port}"));
    assert!(asked.contains(&to_fleet) && asked.contains(&to_projects), "{asked:?}");
    assert!(asked.iter().all(|line| *line == to_fleet || *line == to_projects), "{asked:?}");
    let said = fs::read_to_string(&log).unwrap();
    for secret in ["hunter2", "alice", "YWxpY2U6aHVudGVyMg"] {
        assert!(!said.contains(secret), "the log holds {secret}");
    }
}

/// A server in front of another one: it shows its own certificate and passes on what is said.
const IN_FRONT: &str = "
import socket, ssl, sys, threading
port, behind, certificate = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate)
listener = socket.create_server(('127.0.0.1', port))
def copy(source, to):
    try:
        while data := source.recv(65536):
            to.sendall(data)
    except OSError:
        pass
    for end in (source, to):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
def serve(client):
    try:
        client = context.wrap_socket(client, server_side=True)
        server = socket.create_connection(('127.0.0.1', behind))
    except OSError:
        return
    threading.Thread(target=copy, args=(client, server), daemon=True).start()
    copy(server, client)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
";

/// A certificate for this machine with its key, in one file, and the file of the authority that issued it:
/// none of Fallow's.
fn certificate_of_another_authority(dir: &Path) -> (std::path::PathBuf, std::path::PathBuf) {
    let openssl = |arguments: &[&str]| {
        let output = Command::new("openssl").args(arguments).current_dir(dir).output().unwrap();
        assert!(
            output.status.success(),
            "openssl {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    let new =
        ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
    let ca = ["-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=A campus"];
    openssl(&[&new[..], &ca[..], &["-addext", "keyUsage=critical,keyCertSign"]].concat());
    let server = ["-keyout", "server.key", "-out", "server.pem", "-subj", "/CN=a server", "-CA", "ca.pem"];
    let names = ["-CAkey", "ca.key", "-addext", "subjectAltName=IP:127.0.0.1"];
    let no_ca = ["-addext", "basicConstraints=critical,CA:FALSE"];
    openssl(&[&new[..], &server[..], &names[..], &no_ca[..]].concat());
    let both = ["server.pem", "server.key"].map(|name| fs::read_to_string(dir.join(name)).unwrap()).concat();
    fs::write(dir.join("both.pem"), both).unwrap();
    (dir.join("both.pem"), dir.join("ca.pem"))
}

/// Where the web's certificates are not trusted, nothing is asked of the server in front; where they are,
/// agents compute for projects behind it.
#[test]
fn r6_8_projects_behind_a_server_with_a_certificate_of_its_own_are_reached_by_agents_that_trust_it() {
    let dir = tempfile::Builder::new().prefix("fallow-e2e-").tempdir().unwrap();
    let (both, ca) = certificate_of_another_authority(dir.path());
    let lab = dir.path().join("coordinator");
    let [fleet, http, front] = [free_port(), free_port(), free_port()];
    let mut in_front = Command::new("python3");
    in_front.args(["-c", IN_FRONT, &front.to_string(), &http.to_string()]).arg(&both);
    let _in_front = logged(in_front, &dir.path().join("front.log"));
    let (listen, http_at) = (format!("127.0.0.1:{fleet}"), format!("127.0.0.1:{http}"));
    let url = format!("https://127.0.0.1:{front}");
    let run = ["coordinator", "run", "--listen", &listen, "--http", &http_at, "--projects-url", &url];
    let run = [&run[..], &["--projects-behind-proxy"]].concat();
    let _coordinator = logged(fallow(&lab, &run), &dir.path().join("coordinator.log"));
    wait_for("the coordinator to answer", PATIENCE, || {
        fallow(&lab, &["hosts"]).output().unwrap().status.success().then_some(())
    });
    let json = |arguments: &[&str]| fallow_json(&lab, arguments);
    let made = json(&["project", "create", "primes", "--request-delay", "1s"]);
    assert_eq!(made["url"], format!("{url}/primes/"));
    json(&["project", "set", "primes", "report-immediately=true"]);
    let program = binary("mersenne");
    json(&["app", "add", "primes", "mersenne", program.to_str().unwrap(), "--version", "1.0"]);
    let batch = dir.path().join("batch.toml");
    fs::write(&batch, BATCH.replace("quorum = 3", "quorum = 1")).unwrap();
    json(&["submit", "primes", "--file", batch.to_str().unwrap()]);
    let start = |name: &str, trusted: &Path| {
        let token = json(&["tokens", "create"])["tokens"][0].as_str().unwrap().to_owned();
        let mut agent = command("fallow-agent");
        agent.arg("run").arg("--dir").arg(dir.path().join(name)).args(["--benchmark-after-ms", "3600000"]);
        agent.env("FALLOW_TOKEN", &token).env("SSL_CERT_FILE", trusted);
        let log = dir.path().join(format!("{name}.log"));
        (logged(agent, &log), log)
    };
    // An authority that has nothing to do with it.
    let (stranger, _) = {
        let place = dir.path().join("elsewhere");
        fs::create_dir(&place).unwrap();
        let (_, ca) = certificate_of_another_authority(&place);
        start("stranger", &ca)
    };
    let failures = |status: &Value| status["projects"][0]["scheduler_failures"].as_u64();
    let status = |name: &str| -> Option<Value> {
        let mut status = command("fallow-agent");
        let output = status.args(["status", "--json", "--dir"]).arg(dir.path().join(name)).output().unwrap();
        serde_json::from_slice(&output.stdout).ok()
    };
    wait_for("the stranger to have asked in vain", PATIENCE, || {
        let said = fs::read_to_string(dir.path().join("stranger.log")).unwrap();
        (said.contains("certificate") || failures(&status("stranger")?)? > 0).then_some(())
    });
    assert_eq!(json(&["projects"])["projects"][0]["workunits_validated"], 0);
    drop(stranger);
    let (_agent, _) = start("agent", &ca);
    wait_for("the workunit to be validated", Duration::from_mins(10), || {
        (json(&["projects"])["projects"][0]["workunits_validated"] == 1).then_some(())
    });
}
