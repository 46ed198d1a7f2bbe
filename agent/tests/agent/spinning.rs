//! A project whose jobs run a script, two of them on one CPU, and what becomes of names that it chooses
//! badly.

use std::path::Path;

use fallow_boinc::scheduler::{App, AppVersion, FileInfo, FileRef, ResultJob, SchedulerReply, Workunit};
use fallow_boinc::signature::{PrivateKey, md5_hex};
use fallow_domain::{Bytes, Duration, Flops};

use crate::daemon::{Daemon, command, outcome};
use crate::support::{PATIENCE, is_alive, wait_for};
use crate::transfers::{Server, http};

const KEY: &str = "0123456789abcdef0123456789abcdef";
const PLATFORM: &str =
    if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-gnu" } else { "x86_64-pc-linux-gnu" };

/// A project called `name` that gives two jobs, each of which runs `script` with half a CPU. Their names end
/// in `mark`.
pub(crate) fn project(name: &str, script: &str, mark: &str) -> Server {
    serve(name, script, mark, Bytes(10_000_000))
}

/// One whose jobs' files may hold so much.
pub(crate) fn bounded(script: &str, bound: Bytes) -> Server {
    serve("Bounded", script, "", bound)
}

fn serve(name: &str, script: &str, mark: &str, bound: Bytes) -> Server {
    let mut state = 1_u64;
    let mut random = move |bytes: &mut [u8]| {
        for byte in bytes {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (state >> 56) as u8;
        }
    };
    let key = PrivateKey::generate(&mut random).unwrap();
    let script = format!("#!/bin/sh\n{script}\n").into_bytes();
    let program = FileInfo {
        name: "spin".into(),
        nbytes: Some(Bytes(script.len() as u64)),
        executable: true,
        file_signature: key.sign_file(&md5_hex(&script), &mut random).ok(),
        ..FileInfo::default()
    };
    let (name, mark, sign_key) = (name.to_owned(), mark.to_owned(), key.public_key().to_text());
    Server::start(move |asked| {
        let host = asked.head.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
        let reply = match &asked.head {
            head if head.starts_with("get /p/get_project_config.php ") => {
                let config = format!(
                    "<project_config>\n<name>{name}</name>\n<master_url>http://{host}/p/</master_url>\n</project_config>\n"
                );
                return http("200 OK", "", config.as_bytes());
            }
            head if head.starts_with("get /p/ ") => {
                let page = format!("<scheduler>http://{host}/p/cgi</scheduler>");
                return http("200 OK", "", page.as_bytes());
            }
            head if head.starts_with("get /p/spin ") => return http("200 OK", "", &script),
            head if head.starts_with("post /p/cgi ") => SchedulerReply {
                project_name: Some(name.clone()),
                user_name: Some("Ada".into()),
                hostid: Some(7),
                request_delay: Duration::from_secs(3_600),
                code_sign_key: Some(sign_key.clone()),
                ..SchedulerReply::default()
            },
            _ => return http("404 Not Found", "", b"no such page"),
        };
        let url = format!("http://{host}/p/spin");
        let reply = with_jobs(reply, FileInfo { download_urls: vec![url], ..program.clone() }, &mark, bound);
        http("200 OK", "", reply.write().as_bytes())
    })
}

fn with_jobs(mut reply: SchedulerReply, program: FileInfo, mark: &str, bound: Bytes) -> SchedulerReply {
    reply.apps.push(App { name: "spin".into(), ..App::default() });
    reply.app_versions.push(AppVersion {
        app_name: "spin".into(),
        version_num: 100,
        platform: PLATFORM.into(),
        avg_ncpus: 0.5,
        files: vec![FileRef { file_name: "spin".into(), main_program: true, ..FileRef::default() }],
        ..AppVersion::default()
    });
    reply.files.push(program);
    for number in [1, 2] {
        let name = format!("spin_{number}{mark}");
        reply.workunits.push(Workunit {
            name: name.clone(),
            app_name: "spin".into(),
            rsc_fpops_est: Flops::new(1e12).ok(),
            rsc_fpops_bound: Flops::new(1e18).ok(),
            rsc_disk_bound: Some(bound),
            ..Workunit::default()
        });
        reply.files.push(FileInfo {
            name: format!("{name}_0_0"),
            upload_urls: vec!["http://127.0.0.1:9/up".into()],
            max_nbytes: Some(Bytes(1_000)),
            ..FileInfo::default()
        });
        reply.results.push(ResultJob {
            name: format!("{name}_0"),
            wu_name: name.clone(),
            report_deadline: fallow_daemon::clock::now() + Duration::from_secs(86_400),
            files: vec![FileRef {
                file_name: format!("{name}_0_0"),
                open_name: Some("out".into()),
                ..FileRef::default()
            }],
            platform: PLATFORM.into(),
            version_num: 100,
            ..ResultJob::default()
        });
    }
    reply
}

/// Attaches a project to the agent in `dir`.
pub(crate) fn attach(dir: &Path, project: &Server) {
    let output = command(dir, &["attach", &project.url("")]).env("FALLOW_ACCOUNT_KEY", KEY).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The processes of the tasks that run.
pub(crate) fn running(dir: &Path) -> Vec<u32> {
    let output = command(dir, &["status", "--json"]).output().unwrap();
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let tasks = status["tasks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let tasks = tasks.iter().filter(|task| task["phase"] == "running");
    tasks.filter_map(|task| u32::try_from(task["pid"].as_u64()?).ok()).collect()
}

#[test]
fn r6_2_tasks_are_suspended_while_the_cpus_are_measured_and_resumed_after_it() {
    // Where the tasks were not up when the CPUs were measured, nothing is shown: it is tried with a later
    // measurement.
    let shown = [8, 40, 200].into_iter().any(are_suspended_while_the_cpus_are_measured);
    assert!(shown, "no task was suspended");
}

/// Has the CPUs measured so many seconds after the agent's start. False if no task was suspended.
fn are_suspended_while_the_cpus_are_measured(after_secs: u64) -> bool {
    let server = project("spinning", "sleep 1000", "");
    let dir = tempfile::tempdir().unwrap();
    let agent_dir = dir.path().join("agent");
    let log = dir.path().join("log");
    let after = (1_000 * after_secs).to_string();
    let mut run =
        command(&agent_dir, &["run", "--benchmark-after-ms", &after, "--benchmark-phase-ms", "1000"]);
    run.env("FALLOW_LOG", "debug").stdout(std::process::Stdio::null());
    run.stderr(std::fs::File::create(&log).unwrap());
    let _daemon = Daemon::of(run, &agent_dir);
    attach(&agent_dir, &server);
    let said = wait_for("the measurement's end", || {
        let said = std::fs::read_to_string(&log).unwrap();
        said.contains("the CPU benchmarks are over").then_some(said)
    });
    let tasks = ["spin_1_0", "spin_2_0"];
    if !tasks.iter().all(|task| said.contains(&format!("suspending task {task}"))) {
        return false;
    }
    let at = |text: &str| said.find(text).unwrap_or_else(|| panic!("{text:?} is not said: {said}"));
    for task in tasks {
        assert!(at(&format!("suspending task {task}")) < at(&format!("resuming task {task} in memory")));
    }
    assert_eq!(outcome(&agent_dir, &["stop"]).0, 0);
    true
}

#[test]
fn r6_2_the_first_job_of_a_new_agent_begins_before_the_cpus_are_measured() {
    // On a busy machine nothing may come of measuring, and then it is tried much later: another agent is.
    assert!((0..4).any(|_| is_measured_after_its_first_job()), "the CPUs were never measured");
}

/// Whether the CPUs are measured beside tasks of a new agent, of which none waits for that.
fn is_measured_after_its_first_job() -> bool {
    let server = project("first", "sleep 1000", "");
    let dir = tempfile::tempdir().unwrap();
    let agent_dir = dir.path().join("agent");
    let log = dir.path().join("log");
    let mut run = command(&agent_dir, &["run", "--benchmark-phase-ms", "1000"]);
    run.stdout(std::process::Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
    let _daemon = Daemon::of(run, &agent_dir);
    attach(&agent_dir, &server);
    let said = || std::fs::read_to_string(&log).unwrap();
    let measured = "measured the speed of the CPUs";
    wait_for("a task", || {
        assert!(!said().contains(measured), "it waits for the CPUs to be measured");
        running(&agent_dir).first().copied()
    });
    let is_measured = wait_for("the measurement", || {
        let said = said();
        let failed = said.contains("the speed of the CPUs could not be measured");
        (said.contains(measured) || failed).then(|| said.contains(measured))
    });
    assert_eq!(outcome(&agent_dir, &["stop"]).0, 0);
    is_measured
}

#[test]
fn r6_10_names_that_turn_letters_around_do_not_reach_the_log_as_they_are() {
    let server = project("names", "exit 0", "\u{202e}gnp");
    let dir = tempfile::tempdir().unwrap();
    let agent_dir = dir.path().join("agent");
    let log = dir.path().join("log");
    let mut run = command(&agent_dir, &["run"]);
    run.env("FALLOW_LOG", "debug").stdout(std::process::Stdio::null());
    run.stderr(std::fs::File::create(&log).unwrap());
    let _daemon = Daemon::of(run, &agent_dir);
    attach(&agent_dir, &server);
    let said = wait_for("the jobs' ends", || {
        let said = std::fs::read_to_string(&log).unwrap();
        (said.matches("left with exit code 0").count() >= 2 && said.contains("an output is not there"))
            .then_some(said)
    });
    let raw: Vec<&str> = said.lines().filter(|line| line.contains('\u{202e}')).collect();
    assert!(raw.is_empty(), "{raw:#?}");
    assert!(said.contains("spin_1\u{fffd}gnp"));
    assert_eq!(outcome(&agent_dir, &["stop"]).0, 0);
}

#[test]
fn r6_10_a_process_without_session_and_mark_ends_after_a_kill_of_the_agent() {
    let dir = tempfile::tempdir().unwrap();
    let noted = dir.path().join("stray");
    let script =
        format!("env -i setsid sh -c 'echo $$ >> {}; while :; do :; done' & sleep 1000", noted.display());
    let server = project("strays", &script, "");
    let agent_dir = dir.path().join("agent");
    let mut daemon = Daemon::unconfined(&agent_dir);
    attach(&agent_dir, &server);
    let strays = wait_for("the strays", || {
        let text = std::fs::read_to_string(&noted).ok()?;
        let strays: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        (strays.len() == 2).then_some(strays)
    });
    // What they compute is counted, so they were seen: the tasks themselves only wait.
    let computed = |task: &serde_json::Value| task["cpu_time"].as_f64().is_some_and(|secs| secs > 0.5);
    wait_for("a look at them", || {
        let output = command(&agent_dir, &["status", "--json"]).output().unwrap();
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (status["tasks"].as_array()?.iter().filter(|task| computed(task)).count() == 2).then_some(())
    });
    daemon.kill();
    let end = std::time::Instant::now() + PATIENCE;
    let left = || strays.iter().copied().filter(|&pid| is_alive(pid)).collect::<Vec<u32>>();
    while !left().is_empty() && std::time::Instant::now() < end {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let left = left();
    fallow_agent::proc::kill(left.iter().filter_map(|&pid| fallow_agent::proc::find(pid)));
    assert_eq!(left, [0_u32; 0], "of {strays:?}");
}
