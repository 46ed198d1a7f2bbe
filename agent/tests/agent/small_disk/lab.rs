//! A project whose server sends what a test says, when it says so, and keeps what it was told.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use fallow_boinc::scheduler::{
    App, AppVersion, FileInfo, FileRef, ReportedResult, ResultJob, SchedulerReply, SchedulerRequest, Workunit,
};
use fallow_boinc::signature::{PrivateKey, md5_hex};
use fallow_domain::{Bytes, Duration, Flops};
use fallow_policy::disk::DeletionChoice;

use crate::daemon::{command, outcome};
use crate::support::wait_for;
use crate::transfers::{Asked, Server, http};
use crate::turns::random;

/// A request is asked for so often, whatever delay the project wants.
const ASKS_EVERY: std::time::Duration = std::time::Duration::from_millis(200);

/// A mebibyte: whole blocks of every file system.
pub(super) const MIB: u64 = 1 << 20;

/// An input, as its project describes it. Names are in lower case.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub(super) name: &'static str,
    pub(super) bytes: u64,
    pub(super) sticky: bool,
    pub(super) priority: Option<i64>,
    pub(super) exp_days: Option<f64>,
}

impl Input {
    /// One that goes with its job.
    pub(super) const fn passing(name: &'static str, bytes: u64) -> Self {
        Self { name, bytes, sticky: false, priority: None, exp_days: None }
    }

    /// One that is to be kept.
    pub(super) const fn kept(name: &'static str, bytes: u64) -> Self {
        Self { sticky: true, ..Self::passing(name, bytes) }
    }
}

/// A job, which reads its input and is done.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) name: &'static str,
    pub(super) input: Input,
    /// It runs until the test says that it may go on.
    pub(super) waits: bool,
    pub(super) cpus: f64,
    /// Its deadline is in so many days.
    pub(super) days: i64,
}

impl Job {
    /// One that takes next to nothing of the CPUs, so that all of its kind run.
    pub(super) const fn short(name: &'static str, input: Input) -> Self {
        Self { name, input, waits: false, cpus: 0.05, days: 1 }
    }

    /// The same of one that waits.
    pub(super) const fn waiting(name: &'static str, input: Input) -> Self {
        Self { waits: true, ..Self::short(name, input) }
    }

    fn result(&self) -> String {
        format!("{}_0", self.name)
    }
}

/// What a server says next.
#[derive(Default)]
pub(super) struct Order {
    pub(super) jobs: Vec<Job>,
    /// Files that need not be kept any longer.
    pub(super) unwanted: Vec<&'static str>,
    /// Jobs that are not wanted any longer.
    pub(super) aborted: Vec<&'static str>,
}

impl Order {
    pub(super) fn of(jobs: impl IntoIterator<Item = Job>) -> Self {
        Self { jobs: jobs.into_iter().collect(), ..Self::default() }
    }
}

type MakesOrder = Box<dyn FnOnce(&SchedulerRequest) -> Order + Send>;

#[derive(Default)]
struct Desk {
    next: Option<MakesOrder>,
    requests: Vec<SchedulerRequest>,
    files: BTreeMap<String, u64>,
}

/// What signs the program that all jobs run.
struct Program {
    content: Vec<u8>,
    signature: Option<String>,
    key: String,
}

/// The project.
pub(super) struct Lab {
    server: Server,
    desk: Arc<Mutex<Desk>>,
    pub(super) share: f64,
    pub(super) choice: DeletionChoice,
}

impl Lab {
    /// One with such a share, that wants its files deleted in such an order. Its jobs wait for the file `go`.
    pub(super) fn new(share: f64, choice: DeletionChoice, go: &Path) -> Self {
        let key = PrivateKey::generate(&mut random()).unwrap();
        let content = format!(
            "#!/bin/sh\nif [ \"$1\" = wait ]; then while [ ! -e {} ]; do sleep 0.1; done; fi\n\
             cat in >/dev/null || exit 9\necho 0 > boinc_finish_called\n",
            go.display()
        );
        let content = content.into_bytes();
        let signature = key.sign_file(&md5_hex(&content), &mut random()).ok();
        let program = Program { content, signature, key: key.public_key().to_text() };
        let desk = Arc::new(Mutex::new(Desk::default()));
        let at_desk = Arc::clone(&desk);
        let server = Server::start(move |asked| answer(asked, &at_desk, &program, choice));
        Self { server, desk, share, choice }
    }

    pub(super) fn url(&self) -> String {
        self.server.url("")
    }

    /// Attaches the agent in `dir` with the project's share.
    pub(super) fn attach(&self, dir: &Path) {
        let mut attach = command(dir, &["attach", &self.url(), "--share", &self.share.to_string()]);
        let output = attach.env("FALLOW_ACCOUNT_KEY", crate::attach::RIGHT).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Has the next request answered so.
    pub(super) fn says(&self, order: impl FnOnce(&SchedulerRequest) -> Order + Send + 'static) {
        self.desk.lock().unwrap().next = Some(Box::new(order));
    }

    /// Has the agent ask again and again until something is so.
    pub(super) fn asked_until<T>(
        &self,
        dir: &Path,
        what: &str,
        mut condition: impl FnMut() -> Option<T>,
    ) -> T {
        let mut last: Option<Instant> = None;
        wait_for(what, || {
            if last.is_none_or(|at| at.elapsed() > ASKS_EVERY) {
                last = Some(Instant::now());
                assert_eq!(outcome(dir, &["update", &self.url()]).0, 0);
            }
            condition()
        })
    }

    /// Sends these jobs, and waits until the agent has them.
    pub(super) fn sends(&self, dir: &Path, jobs: impl IntoIterator<Item = Job>) {
        let jobs: Vec<Job> = jobs.into_iter().collect();
        let names: Vec<String> = jobs.iter().map(Job::result).collect();
        self.says(|_| Order::of(jobs));
        self.asked_until(dir, "the jobs' coming", || {
            let held = self.last_request().other_results.unwrap_or_default();
            let is_known =
                |name: &&String| held.iter().any(|one| one.name == **name) || self.report(name).is_some();
            (self.is_said() && names.iter().all(|name| is_known(&name))).then_some(())
        });
    }

    /// Sends a job, and waits until it was done and the agent has heard that its report came.
    pub(super) fn has_done(&self, dir: &Path, job: Job) {
        let name = job.result();
        self.says(|_| Order::of([job]));
        self.asked_until(dir, "a report", || self.report(&name));
        self.hears(dir);
        let report = self.report(&name).unwrap();
        assert_eq!(report.exit_status, 0, "{report:?}");
    }

    /// Waits for a request that was made after everything that the agent was told by now.
    pub(super) fn hears(&self, dir: &Path) -> SchedulerRequest {
        // The first one may have been on its way.
        let asked = self.requests() + 2;
        self.asked_until(dir, "another request", || (self.requests() >= asked).then(|| self.last_request()))
    }

    /// Whether the last order was given out.
    pub(super) fn is_said(&self) -> bool {
        self.desk.lock().unwrap().next.is_none()
    }

    fn requests(&self) -> usize {
        self.desk.lock().unwrap().requests.len()
    }

    /// What the scheduler was told last.
    pub(super) fn last_request(&self) -> SchedulerRequest {
        self.desk.lock().unwrap().requests.last().unwrap().clone()
    }

    /// All that was reported, in order. An answer that an agent did not hear has it reported once more.
    pub(super) fn reports(&self) -> Vec<ReportedResult> {
        let mut reports: Vec<ReportedResult> = Vec::new();
        for report in self.desk.lock().unwrap().requests.iter().flat_map(|request| &request.results) {
            if !reports.iter().any(|other| other.name == report.name) {
                reports.push(report.clone());
            }
        }
        reports
    }

    /// What was reported of a result.
    pub(super) fn report(&self, name: &str) -> Option<ReportedResult> {
        self.reports().into_iter().find(|report| report.name == name)
    }
}

fn answer(asked: &Asked, desk: &Mutex<Desk>, program: &Program, choice: DeletionChoice) -> Vec<u8> {
    let host = asked.head.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
    let mut words = asked.head.split(' ');
    match (words.next(), words.next()) {
        (Some("get"), Some("/p/get_project_config.php")) => {
            let config = format!(
                "<project_config>\n<name>Lab</name>\n<master_url>http://{host}/p/</master_url>\n</project_config>\n"
            );
            http("200 OK", "", config.as_bytes())
        }
        (Some("get"), Some("/p/")) => {
            http("200 OK", "", format!("<scheduler>http://{host}/p/cgi</scheduler>").as_bytes())
        }
        (Some("get"), Some("/p/spin")) => http("200 OK", "", &program.content),
        (Some("post"), Some("/p/cgi")) => {
            let request = SchedulerRequest::parse(asked.text().as_bytes()).unwrap();
            let mut desk = desk.lock().unwrap();
            let order = desk.next.take().map(|order| order(&request)).unwrap_or_default();
            desk.files.extend(order.jobs.iter().map(|job| (job.input.name.to_owned(), job.input.bytes)));
            let reply = reply(&request, order, program, choice, host);
            desk.requests.push(request);
            http("200 OK", "", reply.write().as_bytes())
        }
        (Some("get"), Some(path)) => {
            let name = path.strip_prefix("/p/").unwrap_or_default();
            let bytes = desk.lock().unwrap().files.get(name).copied();
            match bytes {
                Some(bytes) => http("200 OK", "", &vec![1; usize::try_from(bytes).unwrap()]),
                None => http("404 Not Found", "", b"no such file"),
            }
        }
        _ => http("404 Not Found", "", b"no such page"),
    }
}

fn reply(
    request: &SchedulerRequest,
    order: Order,
    program: &Program,
    choice: DeletionChoice,
    host: &str,
) -> SchedulerReply {
    let mut reply = SchedulerReply {
        project_name: Some("Lab".into()),
        user_name: Some("Ada".into()),
        hostid: Some(7),
        request_delay: Duration::from_secs(1),
        code_sign_key: Some(program.key.clone()),
        result_acks: request.results.iter().map(|result| result.name.clone()).collect(),
        deletion_policy_priority: choice.priority,
        deletion_policy_expire: choice.expiration,
        deleted_files: order.unwanted.into_iter().map(str::to_owned).collect(),
        result_aborts: order.aborted.into_iter().map(|name| format!("{name}_0")).collect(),
        ..SchedulerReply::default()
    };
    for job in order.jobs {
        add(&mut reply, &job, program, (host, &request.platform_name));
    }
    reply
}

fn add(reply: &mut SchedulerReply, job: &Job, program: &Program, (host, platform): (&str, &str)) {
    let url = |name: &str| vec![format!("http://{host}/p/{name}")];
    let refer = |name: &str, open: &str, main_program| FileRef {
        file_name: name.into(),
        open_name: Some(open.into()),
        main_program,
        ..FileRef::default()
    };
    // One application for each amount of CPUs.
    let app = format!("spin{:.0}", 100.0 * job.cpus);
    reply.apps.push(App { name: app.clone(), ..App::default() });
    reply.app_versions.push(AppVersion {
        app_name: app.clone(),
        version_num: 100,
        platform: platform.into(),
        avg_ncpus: job.cpus,
        files: vec![refer("spin", "spin", true)],
        ..AppVersion::default()
    });
    let Input { name, bytes, sticky, priority, exp_days } = job.input.clone();
    reply.files.push(FileInfo {
        name: "spin".into(),
        download_urls: url("spin"),
        nbytes: Some(Bytes(program.content.len() as u64)),
        executable: true,
        file_signature: program.signature.clone(),
        ..FileInfo::default()
    });
    reply.files.push(FileInfo {
        name: name.into(),
        download_urls: url(name),
        nbytes: Some(Bytes(bytes)),
        sticky,
        priority,
        exp_days,
        ..FileInfo::default()
    });
    reply.workunits.push(Workunit {
        name: job.name.into(),
        app_name: app,
        rsc_fpops_est: Flops::new(1e12).ok(),
        rsc_fpops_bound: Flops::new(1e18).ok(),
        rsc_disk_bound: Some(Bytes(200_000_000)),
        command_line: if job.waits { "wait".into() } else { String::new() },
        files: vec![refer(name, "in", false)],
        ..Workunit::default()
    });
    reply.results.push(ResultJob {
        name: job.result(),
        wu_name: job.name.into(),
        report_deadline: fallow_daemon::clock::now() + Duration::from_hours(24 * job.days),
        platform: platform.into(),
        version_num: 100,
        report_immediately: true,
        ..ResultJob::default()
    });
}
