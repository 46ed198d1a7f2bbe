//! A project whose jobs are real processes that heed what they are told, and an agent whose preferences are
//! those of BOINC's file.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use fallow_agent::proc;
use fallow_boinc::scheduler::{App, AppVersion, FileInfo, FileRef, ResultJob, SchedulerReply, Workunit};
use fallow_boinc::signature::{PrivateKey, md5_hex};
use fallow_domain::{Bytes, Duration, Flops, Instant};
use serde_json::Value;

use super::Host;
use crate::attach::status;
use crate::owner::Dev;
use crate::spinning;
use crate::support::{is_alive, wait_for};
use crate::transfers::{Server, http};
use crate::turns::{call, random, unknown};

/// A job: what it is counted with, and the words that its application is given.
#[derive(Clone, Copy)]
pub(super) struct Job {
    pub(super) cpus: f64,
    pub(super) words: &'static str,
    /// The limit on CPU time is none for it.
    pub(super) is_unlimited: bool,
    /// Memory that its project says it needs, in megabytes.
    pub(super) megabytes: u64,
}

/// A job that takes a CPU and next to no time of it, and never ends.
pub(super) const WAITS: Job = Job { cpus: 1.0, words: "wait", is_unlimited: false, megabytes: 10 };

/// A project that gives these jobs to the first host that asks for work, and no more.
pub(super) fn project(jobs: Vec<Job>) -> Server {
    let jobs = Mutex::new(Some(jobs));
    giving(move || jobs.lock().unwrap().take().unwrap_or_default())
}

/// A project that gives such a job at each request for work.
pub(super) fn endless(job: Job) -> Server {
    giving(move || vec![job])
}

fn giving(jobs: impl Fn() -> Vec<Job> + Send + 'static) -> Server {
    let program = application();
    let key = PrivateKey::generate(&mut random()).unwrap();
    let signature = key.sign_file(&md5_hex(program), &mut random()).unwrap();
    let sent = AtomicUsize::new(0);
    Server::start(move |asked| {
        let host = asked.head.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
        if asked.head.starts_with("get /p/program ") {
            return http("200 OK", "", program);
        }
        if asked.head.starts_with("get /p/ ") {
            let text = format!("<html><!-- <scheduler>http://{host}/p/cgi</scheduler> --></html>");
            return http("200 OK", "", text.as_bytes());
        }
        let Some(request) = call(asked) else { return unknown() };
        let mut reply = SchedulerReply {
            hostid: (request.hostid == 0).then_some(7),
            request_delay: Duration::from_secs(1),
            code_sign_key: Some(key.public_key().to_text()),
            result_acks: request.results.iter().map(|result| result.name.clone()).collect(),
            ..SchedulerReply::default()
        };
        if request.cpu_req_secs > 0.0 {
            reply.files.push(program_file(host, &signature));
            for job in jobs() {
                describe(&mut reply, &request.platform_name, sent.fetch_add(1, Ordering::Relaxed), &job);
            }
        }
        http("200 OK", "", reply.write().as_bytes())
    })
}

/// The file of a program that jobs run, which this server has.
pub(super) fn program_file(host: &str, signature: &str) -> FileInfo {
    FileInfo {
        name: "program".into(),
        download_urls: vec![format!("http://{host}/p/program")],
        executable: true,
        signature_required: true,
        file_signature: Some(signature.to_owned()),
        ..FileInfo::default()
    }
}

/// Each job has an application of its own, so that each may be counted otherwise.
pub(super) fn describe(reply: &mut SchedulerReply, platform: &str, number: usize, job: &Job) {
    let (app, name) = (format!("app{number}"), format!("job{number}"));
    reply.apps.push(App { name: app.clone(), ..App::default() });
    reply.app_versions.push(AppVersion {
        app_name: app.clone(),
        version_num: 1,
        platform: platform.to_owned(),
        api_version: Some("7.4.42".into()),
        avg_ncpus: job.cpus,
        dont_throttle: job.is_unlimited,
        files: vec![FileRef { file_name: "program".into(), main_program: true, ..FileRef::default() }],
        ..AppVersion::default()
    });
    reply.workunits.push(Workunit {
        name: name.clone(),
        app_name: app,
        command_line: job.words.to_owned(),
        rsc_fpops_est: Some(Flops::new(4e12).unwrap()),
        rsc_fpops_bound: Some(Flops::new(1e18).unwrap()),
        rsc_memory_bound: Some(Bytes(job.megabytes * 1_000_000)),
        ..Workunit::default()
    });
    reply.results.push(ResultJob {
        name: name.clone(),
        wu_name: name,
        report_deadline: Instant::from_secs_f64(4e9),
        platform: platform.to_owned(),
        version_num: 1,
        ..ResultJob::default()
    });
}

/// The program of such jobs, compiled from `application.c`.
fn application() -> &'static [u8] {
    static COMPILED: OnceLock<Vec<u8>> = OnceLock::new();
    COMPILED.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let (source, program) = (dir.path().join("application.c"), dir.path().join("application"));
        std::fs::write(&source, include_str!("application.c")).unwrap();
        let output = Command::new("cc").args(["-Wall", "-Werror", "-o"]).args([&program, &source]).output();
        let output = output.expect("a C compiler is needed, as CONTRIBUTING.md says");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::read(program).unwrap()
    })
}

impl Host {
    /// BOINC's file has these elements, and the agent knows.
    pub(super) fn over(&self, elements: &str) {
        self.write_over(elements);
        self.reload();
    }

    /// The same before an agent runs.
    pub(super) fn write_over(&self, elements: &str) {
        let text = format!("<global_preferences>\n{elements}\n</global_preferences>\n");
        self.write("global_prefs_override.xml", &text);
    }

    /// An agent that knows of people by this keyboard, and by nothing else.
    pub(super) fn watch(&mut self, dev: &Dev) {
        let devices = dev.path().to_owned();
        self.start_with(|run| {
            run.arg("--devices-dir").arg(devices).env_remove("FALLOW_NEVER_IN_USE").env_remove("DISPLAY");
            run.env_remove("WAYLAND_DISPLAY").env_remove("XDG_SESSION_ID");
            run.env("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nowhere/bus");
        });
    }

    /// The processes of so many tasks that run, once it is so many.
    pub(super) fn runs(&self, count: usize) -> Vec<u32> {
        wait_for(&format!("{count} tasks that run"), || self.running(count))
    }

    /// The same while somebody types all the time.
    pub(super) fn runs_beside(&self, dev: &mut Dev, count: usize) -> Vec<u32> {
        wait_for(&format!("{count} tasks that run while somebody types"), || {
            dev.key();
            self.running(count).filter(|_| status(self.path())["host"]["in_use"] == true)
        })
    }

    /// Those, if it is so many.
    pub(super) fn running(&self, count: usize) -> Option<Vec<u32>> {
        let pids = spinning::running(self.path());
        (pids.len() == count && pids.iter().all(|pid| is_alive(*pid))).then_some(pids)
    }

    /// The same once the agent knows that each of these tasks has saved its state.
    pub(super) fn saved(&self, count: usize) -> Vec<u32> {
        wait_for("tasks that have saved their state", || {
            let tasks = status(self.path())["tasks"].clone();
            let has_saved = |task: &&Value| task["checkpoint_cpu_time"].as_f64() > Some(0.0);
            let saved = tasks.as_array()?.iter().filter(has_saved).count();
            self.running(count).filter(|_| saved == count)
        })
    }
}

/// Waits until none of these processes is there any more.
pub(super) fn are_gone(pids: &[u32]) {
    wait_for("the end of processes", || pids.iter().all(|pid| !is_alive(*pid)).then_some(()));
}

/// The CPU time of a process, in clock ticks.
pub(super) fn ticks(pid: u32) -> u64 {
    proc::find(pid).unwrap().ticks
}
