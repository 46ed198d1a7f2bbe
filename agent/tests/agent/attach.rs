//! Attaching at the owner's word: a key is recorded when the project takes it, and not otherwise; what the
//! coordinator manages stays the coordinator's; what the owner detached stays detached.

use std::path::Path;

use fallow_agent::dir::DataDir;
use fallow_agent::fleet::identity::{self, Identity};
use fallow_agent::records::{Records, Stored};
use fallow_boinc::scheduler::ClientVersion;
use fallow_client::{Client, ClientConfig, Event};
use fallow_daemon::clock;
use fallow_domain::{
    AccountKey, AgentId, DocumentVersion, Duration, FleetDocument, Instant, MasterUrl, Preferences,
    ProjectAssignment, ResourceTypes, Share,
};
use fallow_tls::Authority;

use crate::daemon::{Daemon, command, outcome};
use crate::support::wait_for;
use crate::transfers::{Asked, Server, http};

pub(crate) const RIGHT: &str = "0123456789abcdef0123456789abcdef";
pub(crate) const WRONG: &str = "ffffffffffffffffffffffffffffffff";

/// A project that knows one account, and answers another key as BOINC's servers do.
pub(crate) fn project() -> Server {
    Server::start(answer)
}

fn answer(asked: &Asked) -> Vec<u8> {
    let host = asked.head.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
    let body = match &asked.head {
        head if head.starts_with("get /p/get_project_config.php ") => format!(
            "<project_config>\n<name>test</name>\n<master_url>http://{host}/p/</master_url>\n</project_config>\n"
        ),
        head if head.starts_with("get /p/ ") => {
            format!("<html><!-- <scheduler>http://{host}/p/cgi</scheduler> --></html>")
        }
        head if head.starts_with("post /p/cgi ") => {
            let known = asked.text().contains(&format!("<authenticator>{RIGHT}</authenticator>"));
            let said = match known {
                true => "<request_delay>1</request_delay>\n<user_name>Ada</user_name>\n<hostid>7</hostid>\n",
                false => {
                    "<request_delay>3600</request_delay>\n<message priority=\"low\">Invalid or missing account key.  \
                     To fix, remove and add this project.</message>\n"
                }
            };
            format!("<scheduler_reply>\n<project_name>test</project_name>\n{said}</scheduler_reply>\n")
        }
        _ => return http("404 Not Found", "", b"no such page"),
    };
    http("200 OK", "", body.as_bytes())
}

/// One whose scheduler takes a request and never answers.
fn hanging() -> Server {
    Server::start(|asked| match asked.head.starts_with("post ") {
        true => loop {
            std::thread::park();
        },
        false => answer(asked),
    })
}

/// Exit code and what was said.
pub(crate) fn attach(dir: &Path, url: &str, key: &str, more: &[&str]) -> (i32, String) {
    let mut command = command(dir, &["attach", url]);
    command.args(more).env_remove("FALLOW_ACCOUNT_KEY");
    if !key.is_empty() {
        command.env("FALLOW_ACCOUNT_KEY", key);
    }
    let output = command.output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap(), text)
}

/// On a busy machine an agent may not answer in time: it is asked again.
pub(crate) fn status(dir: &Path) -> serde_json::Value {
    wait_for("a status", || {
        let output = command(dir, &["status", "--json"]).output().unwrap();
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        (status["running"] != false).then_some(status)
    })
}

fn attached(dir: &Path) -> usize {
    status(dir)["projects"].as_array().unwrap().len()
}

#[test]
fn a_project_is_attached_when_it_takes_the_account_and_else_nothing_is_kept() {
    let server = project();
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let _daemon = Daemon::start(dir);
    let url = server.url("");

    let (code, text) = attach(dir, &url, WRONG, &[]);
    assert!(code == 5 && text.contains("Invalid or missing account key"), "{code}: {text}");
    for key in ["0123abcd", "not a key", &format!("{RIGHT}0")] {
        let (code, text) = attach(dir, &url, key, &[]);
        assert!(code == 3 && text.contains("32 hexadecimal digits"), "{code}: {text}");
    }
    let (code, text) = attach(dir, &server.url("elsewhere/"), RIGHT, &[]);
    assert!(code == 3 && text.contains("404"), "{code}: {text}");
    let (code, text) = attach(dir, "http://127.0.0.1:9/p/", RIGHT, &[]);
    assert!(code == 4 && text.contains("--no-wait"), "{code}: {text}");
    let (code, text) = attach(dir, &url, "", &[]);
    assert!(code == 3 && text.contains("--account-key-file"), "{code}: {text}");
    assert_eq!(attached(dir), 0);
    assert!(!dir.join("projects").join(MasterUrl::parse(&url).unwrap().stem()).exists());

    let (code, text) = attach(dir, &url, RIGHT, &["--share", "30"]);
    assert!(code == 0 && text.contains("as Ada"), "{code}: {text}");
    assert_eq!(attached(dir), 1);

    // A wrong key afterwards leaves the right one in its place.
    let (code, text) = attach(dir, &url, WRONG, &["--share", "40"]);
    assert_eq!(code, 5, "{text}");
    assert_eq!(status(dir)["projects"][0]["share"], 30.0);
    let (code, text) = attach(dir, &url, "", &["--share", "50"]);
    assert_eq!(code, 0, "the share of an attached project takes no key: {text}");
    assert_eq!(status(dir)["projects"][0]["share"], 50.0);
    let (code, text) = attach(dir, &url, RIGHT, &[]);
    assert_eq!(code, 0, "{text}");
}

#[test]
fn an_agent_that_ends_tells_whoever_attaches_a_project_and_keeps_nothing_of_it() {
    let server = hanging();
    let dir = tempfile::tempdir().unwrap();
    let (dir, url) = (dir.path(), server.url(""));
    let daemon = Daemon::start(dir);
    let (at, to) = (dir.to_owned(), url.clone());
    let attaching = std::thread::spawn(move || attach(&at, &to, RIGHT, &[]));
    wait_for("the scheduler to be asked", || {
        server.asked().iter().any(|asked| asked.head.starts_with("post ")).then_some(())
    });
    // Without a key the tool asks the agent alone.
    let (code, text) = attach(dir, &url, "", &[]);
    assert!(code == 5 && text.contains("just being attached"), "{code}: {text}");
    let (code, text) = outcome(dir, &["stop"]);
    assert_eq!(code, 0, "{text}");
    let (code, text) = attaching.join().unwrap();
    assert!(code == 4 && text.contains("nothing was attached"), "{code}: {text}");
    drop(daemon);
    let _daemon = Daemon::start(dir);
    assert_eq!(attached(dir), 0);
}

#[test]
fn a_wrong_key_that_was_recorded_unseen_holds_the_right_one_back_for_no_moment() {
    let server = project();
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let _daemon = Daemon::start(dir);
    let (code, text) = attach(dir, &server.url(""), WRONG, &["--no-wait"]);
    assert_eq!(code, 0, "{text}");
    wait_for("the refusal", || {
        let status = status(dir);
        status["projects"][0]["min_rpc"][0].as_f64().filter(|at| *at > 0.0)
    });
    let (code, text) = attach(dir, &server.url(""), RIGHT, &[]);
    assert_eq!(code, 0, "{text}");
    let status = status(dir);
    let wait = status["projects"][0]["min_rpc"][0].as_f64().unwrap_or(0.0)
        - fallow_daemon::clock::now().as_secs_f64();
    assert!(wait < 120.0, "next contact in {wait} s");
}

#[test]
fn a_share_that_is_no_number_from_0_on_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for share in ["nan", "inf", "-inf", "1e400", "-1"] {
        let share = format!("--share={share}");
        let (code, text) = attach(dir.path(), "http://127.0.0.1:9/p/", RIGHT, &[&share]);
        assert!(code == 3 && text.contains("share"), "{share}: {code}: {text}");
    }
    let (code, text) = attach(dir.path(), "http://127.0.0.1:9/p/", RIGHT, &["--share", "much"]);
    assert_eq!(code, 2, "{text}");
}

#[test]
fn r6_10_a_project_attached_under_another_spelling_of_its_address_is_the_same() {
    let server = project();
    let dir = tempfile::tempdir().unwrap();
    let (dir, url) = (dir.path(), server.url(""));
    let _daemon = Daemon::start(dir);
    let spelling = url.replace("127.0.0.1:", "127.1:0");
    for url in [&spelling, &url] {
        let (code, text) = attach(dir, url, RIGHT, &[]);
        assert_eq!(code, 0, "{text}");
    }
    let projects = status(dir)["projects"].clone();
    assert_eq!((projects.as_array().unwrap().len(), &projects[0]["url"]), (1, &url.as_str().into()));
    let (code, text) = outcome(dir, &["detach", &spelling]);
    assert_eq!((code, attached(dir)), (0, 0), "{text}");
}

/// A directory of an agent that follows a document with one project.
fn follow_document(dir: &Path, url: &str) {
    let records = Records::open(&DataDir::at(dir)).unwrap();
    let host_identity = records.host_identity().unwrap();
    let config = ClientConfig::new(host_identity.seed, ClientVersion { major: 8, minor: 3, release: 0 });
    let mut client = Client::restore(config, []).unwrap();
    let project = ProjectAssignment {
        name: "fleet".into(),
        url: MasterUrl::parse(url).unwrap(),
        account_key: AccountKey::new(RIGHT),
        share: Share::new(75.0).unwrap(),
        code_sign_key: None,
        without: ResourceTypes::default(),
    };
    let document = FleetDocument {
        content: String::new(),
        version: DocumentVersion(1),
        projects: vec![project],
        preferences: Preferences::default(),
    };
    let step = client.handle(Instant::EPOCH, Event::DocumentOffered(document.into()));
    records.apply(&Stored { changes: &step.changes, ..Stored::default() }, true).unwrap();
    // Its coordinator is nowhere.
    let (authority, ..) = Authority::create(clock::now()).unwrap();
    let data = DataDir::at(dir);
    let key = identity::key(&data).unwrap();
    let life = Duration::from_hours(1);
    let issued =
        authority.issue_host(&key.certificate_request().unwrap(), &AgentId("a".into()), clock::now(), life);
    let nowhere = vec!["127.0.0.1:9".parse().unwrap()];
    let identity = Identity::new(nowhere, authority.fingerprint(), issued.unwrap().der, &key).unwrap();
    identity.write(&data.identity()).unwrap();
}

#[test]
fn r6_1_what_the_coordinator_manages_keeps_its_key_and_the_owner_can_do_without_it() {
    let server = project();
    let dir = tempfile::tempdir().unwrap();
    let (dir, url) = (dir.path(), server.url(""));
    follow_document(dir, &url);
    let daemon = Daemon::start(dir);
    for (key, more) in [(WRONG, &[][..]), (RIGHT, &["--share", "5"])] {
        let (code, text) = attach(dir, &url, key, more);
        assert!(code == 5 && text.contains("managed by the coordinator"), "{code}: {text}");
    }
    let (code, text) = outcome(dir, &["detach", &url]);
    assert!(code == 0 && text.contains("until you attach it again"), "{code}: {text}");
    drop(daemon);
    let _daemon = Daemon::start(dir);
    assert_eq!(attached(dir), 0);
    assert_eq!(status(dir)["host"]["declined"][0], url.as_str());
    let (_, text) = outcome(dir, &["status"]);
    assert!(text.contains("detached by the owner"), "{text}");
    let (code, text) = attach(dir, &url, "", &[]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(status(dir)["projects"][0]["share"], 75.0);
    assert_eq!(status(dir)["projects"][0]["from_document"], true);
}
