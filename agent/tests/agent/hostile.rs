//! A project whose server sends as much as it can: the owner is answered all the while, and pays with bounded
//! memory.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::daemon::{Daemon, command, outcome};
use crate::support::wait_for;
use crate::transfers::{Server, http};

/// A project whose scheduler answers with one of these after the other, and then with nothing; and how often
/// it was called.
pub(crate) fn project(replies: Vec<String>) -> (Server, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let server = Server::start(move |asked| {
        let host = asked.head.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
        let body = match &asked.head {
            head if head.starts_with("get /p/ ") => {
                format!("<html><!-- <scheduler>http://{host}/p/cgi</scheduler> --></html>")
            }
            head if head.starts_with("post /p/cgi ") => {
                let work = replies.get(counter.fetch_add(1, Ordering::SeqCst)).map_or("", String::as_str);
                format!(
                    "<scheduler_reply>\n<hostid>7</hostid>\n<user_name>Ada</user_name>\n{work}</scheduler_reply>\n"
                )
            }
            _ => return http("404 Not Found", "", b"no such page"),
        };
        http("200 OK", "", body.as_bytes())
    });
    (server, calls)
}

pub(crate) fn attach(dir: &Path, url: &str) {
    let mut command = command(dir, &["attach", url, "--no-wait"]);
    let output = command.env("FALLOW_ACCOUNT_KEY", "0123456789abcdef0123456789abcdef").output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

pub(crate) fn status(dir: &Path) -> serde_json::Value {
    let output = command(dir, &["status", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A figure of a process's memory in MiB, such as `VmHWM`, the most that it ever held.
fn memory(pid: u64, figure: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find(|line| line.starts_with(figure)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

fn job(name: &str, plan_class: &str) -> String {
    format!(
        "<file_info><name>{name}_in</name><url>http://127.0.0.1:9/p/{name}_in</url></file_info>\n\
         <workunit><name>{name}_wu</name><app_name>app</app_name><command_line>{name}</command_line>\
         <file_ref><file_name>{name}_in</file_name></file_ref></workunit>\n\
         <result><name>{name}</name><wu_name>{name}_wu</wu_name><report_deadline>4000000000</report_deadline>\
         <plan_class>{plan_class}</plan_class></result>\n"
    )
}

fn version(plan_class: &str) -> String {
    format!(
        "<app_version><app_name>app</app_name><version_num>1</version_num><plan_class>{plan_class}</plan_class>\
         <api_version>8.0.0</api_version></app_version>\n"
    )
}

#[test]
fn r6_10_a_reply_of_thirty_seven_thousand_versions_and_jobs_leaves_the_owner_answered_and_memory_bounded() {
    let classes: Vec<String> = (0..37_000).map(|number| format!("class{number}")).collect();
    let mut reply: String = classes.iter().map(|class| version(class)).collect();
    // The last ones of those that are kept first: whoever looked through all versions for each would take the
    // longest.
    let order = (0..1_000).rev().chain(1_000..37_000);
    reply.extend(order.map(|number| job(&format!("job{number}"), &classes[number])));
    let (server, calls) = project(vec![reply]);
    let dir = tempfile::tempdir().unwrap();
    let dir = &dir.path().join("agent");
    let _daemon = Daemon::start(dir);
    attach(dir, &server.url(""));
    wait_for("the scheduler's call", || (calls.load(Ordering::SeqCst) > 0).then_some(()));
    for request in ["suspend", "status", "resume", "suspend"] {
        let (code, text) = outcome(dir, &[request]);
        assert_eq!(code, 0, "{request}: {text}");
    }
    let after = wait_for("the jobs", || {
        Some(status(dir)).filter(|status| !status["tasks"].as_array().unwrap().is_empty())
    });
    assert_eq!(after["tasks"].as_array().unwrap().len(), 1_000, "those of the versions that are kept");
    assert_eq!(after["host"]["suspended_by"], "owner");
    let most = memory(after["pid"].as_u64().unwrap(), "VmHWM");
    assert!(most < 400, "{most} MiB");
}

#[test]
fn r6_10_ten_thousand_jobs_fit_into_a_status_and_a_detached_project_leaves_nothing_behind() {
    // Of each reply two thousand are taken, and of all together ten thousand.
    let jobs = |first: usize| (first..first + 3_000).map(|number| job(&format!("job{number}"), ""));
    let reply = |number: usize| {
        let name = format!("<project_name>reply {number}</project_name>\n");
        name + &version("") + &jobs(3_000 * number).collect::<String>()
    };
    let (server, calls) = project((0..6).map(reply).collect());
    let dir = tempfile::tempdir().unwrap();
    let dir = &dir.path().join("agent");
    let mut daemon = Daemon::start(dir);
    attach(dir, &server.url(""));
    let held = |status: &serde_json::Value| status["tasks"].as_array().unwrap().len();
    for (number, jobs) in [2_000, 4_000, 6_000, 8_000, 10_000].into_iter().enumerate() {
        wait_for("the jobs", || Some(status(dir)).filter(|status| held(status) >= jobs));
        assert_eq!((held(&status(dir)), calls.load(Ordering::SeqCst)), (jobs, number + 1));
        assert_eq!(outcome(dir, &["update", &server.url("")]).0, 0);
    }
    let has_all = |status: &serde_json::Value| status["projects"][0]["name"] == "reply 5";
    let full = wait_for("the last reply", || Some(status(dir)).filter(has_all));
    assert_eq!(held(&full), 10_000);
    let (code, text) = outcome(dir, &["status"]);
    assert!(code == 0 && text.lines().count() < 400, "{} lines", text.lines().count());
    let pid = full["pid"].as_u64().unwrap();
    let held = memory(pid, "VmRSS");
    assert!(held < 400, "{held} MiB");

    assert_eq!(outcome(dir, &["detach", &server.url("")]).0, 0);
    assert!(status(dir)["tasks"].as_array().unwrap().is_empty());
    let kept = memory(pid, "VmRSS");
    assert!(kept < 200, "{kept} MiB, of {held} before");
    daemon.kill();
    let records = fallow_agent::records::Records::open(&fallow_agent::dir::DataDir::at(dir)).unwrap();
    let left: Vec<String> =
        records.client().unwrap().iter().map(|(key, _)| String::from_utf8_lossy(key).into_owned()).collect();
    assert!(left.iter().all(|key| !key.contains('/')), "{left:?}");
}

#[test]
fn r6_10_what_a_project_says_forges_no_line_of_the_log_and_orders_no_terminal_about() {
    let forged = "2026-01-01T00:00:00.000000Z  INFO forged: all is well";
    let (server, calls) = project(vec![format!(
        "<project_name>p&#27;[2Jq&#xA;{forged}</project_name>\n\
         <message priority=\"notice\">see&#xA;{forged}&#27;[31m&#13;over \u{202e}txet</message>\n\
         <result><name>j\u{202e}ob</name><wu_name>none</wu_name></result>\n"
    )]);
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let dir = &dir.path().join("agent");
    let file = std::fs::File::create(&log).unwrap();
    let mut run = command(dir, &["run"]);
    run.stdout(std::process::Stdio::null()).stderr(file).env("FALLOW_LOG", "debug");
    let _daemon = Daemon::of(run, dir);
    attach(dir, &server.url(""));
    wait_for("the scheduler's call", || (calls.load(Ordering::SeqCst) > 0).then_some(()));
    let text = wait_for("the message", || {
        Some(std::fs::read_to_string(&log).unwrap()).filter(|text| text.contains("job j"))
    });
    assert!(text.contains("the project says: see"), "{text}");
    let printed = text + &outcome(dir, &["status"]).1;
    assert!(printed.contains("all is well"), "{printed}");
    assert!(!printed.lines().any(|line| line.starts_with(forged)), "{printed}");
    assert!(!printed.contains(['\u{1b}', '\r', '\u{202e}']), "{printed}");
}

#[test]
fn r6_10_detaching_a_project_leaves_alone_the_files_of_one_whose_name_would_be_the_same() {
    let (server, _) = project(Vec::new());
    let dir = tempfile::tempdir().unwrap();
    let dir = &dir.path().join("agent");
    let _daemon = Daemon::start(dir);
    let first = server.url("");
    // A path where the other has a port.
    let second = first.replacen("127.0.0.1:", "127.0.0.1/", 1);
    attach(dir, &first);
    attach(dir, &second);
    let stem = fallow_domain::MasterUrl::parse(&first).unwrap().stem();
    let own = dir.join("projects").join(&stem).join("app");
    let other = dir.join("projects").join(format!("{stem}.2")).join("app");
    crate::support::put(&own, b"the first one's");
    crate::support::put(&other, b"the second one's");
    assert_eq!(outcome(dir, &["detach", &second]).0, 0);
    wait_for("the second one's deletion", || (!other.exists()).then_some(()));
    assert!(own.exists());
    assert_eq!(outcome(dir, &["detach", &first]).0, 0);
    wait_for("the first one's deletion", || (!own.exists()).then_some(()));
}
