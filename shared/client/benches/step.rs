//! What one turn of the machine costs, by the policy and the number of jobs held: 8 CPUs, two projects.
//!
//! Run with `cargo bench -p fallow-client`. What happens every second (`tasks_sampled`, `wake_up`) must not
//! depend on the number of jobs. `job_finished` is the end of a task and of its upload with all that follows,
//! the start of the next task included; `jobs_on_their_way` looks at the clock while as many downloads wait
//! for their turn.

use std::fmt;

use divan::{Bencher, black_box};
use fallow_boinc::runtime::exit::Ended;
use fallow_boinc::runtime::finish::Finish;
use fallow_boinc::runtime::message::AppStatus;
use fallow_boinc::scheduler::{
    App, AppVersion, ClientVersion, FileInfo, FileRef, ResultJob, SchedulerReply, Workunit,
};
use fallow_client::{
    AttachRequest, Client, ClientConfig, Effect, Event, FileKey, OutputFound, Startup, Step, TaskEnd,
    TaskSample, Waiter,
};
use fallow_domain::{
    AccountKey, Bytes, Duration, Flops, HostFacts, HostSpeed, Instant, JobId, MasterUrl, ProjectId, Share,
    Speed,
};
use fallow_policy::confinement::TaskLayers;

const CASES: [Case; 6] = [
    Case("published", 100),
    Case("default", 100),
    Case("published", 1_000),
    Case("default", 1_000),
    Case("published", 10_000),
    Case("default", 10_000),
];
const PLATFORM: &str = "x86_64-pc-linux-gnu";

fn main() {
    divan::main();
}

#[divan::bench(args = CASES)]
fn tasks_sampled(bencher: Bencher<'_, '_>, case: Case) {
    let mut host = Host::with_jobs(case, false);
    bencher.bench_local(|| {
        let samples = host.samples();
        black_box(host.event(Event::TasksSampled(samples)))
    });
}

#[divan::bench(args = CASES)]
fn wake_up(bencher: Bencher<'_, '_>, case: Case) {
    let mut host = Host::with_jobs(case, false);
    bencher.bench_local(|| black_box(host.event(Event::WakeUp)));
}

#[divan::bench(args = CASES, sample_count = 50, sample_size = 1)]
fn job_finished(bencher: Bencher<'_, '_>, case: Case) {
    let mut host = Host::with_jobs(case, false);
    bencher.bench_local(|| host.finish_one());
}

#[divan::bench(args = CASES)]
fn jobs_on_their_way(bencher: Bencher<'_, '_>, case: Case) {
    let mut host = Host::with_jobs(case, true);
    bencher.bench_local(|| black_box(host.event(Event::WakeUp)));
}

/// A policy by its name, and how many jobs are held.
#[derive(Clone, Copy)]
struct Case(&'static str, u64);

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(policy, jobs) = self;
        write!(f, "{jobs:>6}, {policy}")
    }
}

/// A client with work, and what it has running.
struct Host {
    client: Client,
    now: Instant,
    running: Vec<(JobId, String)>,
    cpu: Duration,
    called: Option<ProjectId>,
    served: Vec<ProjectId>,
}

impl Host {
    fn with_jobs(Case(policy, jobs): Case, downloads_hang: bool) -> Self {
        let version = ClientVersion { major: 8, minor: 3, release: 0 };
        let composition = policy.parse().expect("a policy");
        let config = ClientConfig { composition, ..ClientConfig::new(1, version) };
        let client = Client::restore(config, []).expect("an empty store");
        let now = Instant::from_secs_f64(1.8e9);
        let mut host =
            Self { client, now, running: Vec::new(), cpu: Duration::ZERO, called: None, served: Vec::new() };
        host.turn(Event::Started(Box::new(Startup {
            host: facts(),
            slots: Vec::new(),
            files: Vec::new(),
            doomed: Vec::new(),
        })));
        for project in 0..2 {
            let url = MasterUrl::parse(&format!("http://127.0.0.1/{project}/")).expect("a URL");
            let account_key = Some(AccountKey::new("0123456789abcdef0123456789abcdef"));
            let (waiter, share) = (Waiter(0), Some(Share::DEFAULT));
            host.turn(Event::Attach(AttachRequest { waiter, url, account_key, share, unseen: true }));
        }
        for project in 0..2 {
            let outcome = Ok(vec![format!("http://127.0.0.1/{project}/cgi")]);
            host.turn(Event::MasterPageRead { project: ProjectId(project), outcome });
        }
        while let Some(project) = host.called.take() {
            let reply = if host.served.contains(&project) { 0 } else { jobs / 2 };
            host.served.push(project);
            let outcome = Ok(Box::new(self::reply(reply, host.now)));
            let step = host.turn(Event::SchedulerAnswered { project, outcome });
            host.download(&step, downloads_hang);
        }
        assert_eq!(host.running.len(), if downloads_hang { 0 } else { 8 });
        host
    }

    /// A turn; schedulers that it calls have no work.
    fn event(&mut self, event: Event) -> Step {
        let step = self.turn(event);
        if let Some(project) = self.called.take() {
            let outcome = Ok(Box::new(reply(0, self.now)));
            self.turn(Event::SchedulerAnswered { project, outcome });
        }
        step
    }

    /// Whatever downloads begin end well, and what follows from that likewise.
    fn download(&mut self, step: &Step, hang: bool) {
        let mut wanted = downloads(step);
        while let (Some(file), false) = (wanted.pop(), hang) {
            let step = self.turn(Event::DownloadEnded { file, outcome: Ok(Bytes(10)) });
            wanted.extend(downloads(&step));
        }
    }

    fn turn(&mut self, event: Event) -> Step {
        self.now = self.now + Duration::from_secs(1);
        let step = self.client.handle(self.now, event);
        let mut started = Vec::new();
        for action in &step.actions {
            if let Effect::StartTask(setup) = &action.effect {
                started.push(setup.job);
                self.running.push((setup.job, setup.files[setup.files.len() - 1].name.clone()));
            }
        }
        self.called = called(&step).or(self.called);
        for job in started {
            self.client
                .handle(self.now, Event::TaskStarted { job, pid: 1_000, without: TaskLayers::default() });
        }
        step
    }

    fn samples(&mut self) -> Vec<TaskSample> {
        self.cpu += Duration::from_secs(1);
        let sample = |(job, _): &(JobId, String)| TaskSample {
            job: *job,
            cpu_time: self.cpu,
            working_set: Bytes::from_mebibytes(10),
            swap: None,
            threads: 1,
            disk: None,
            status: Some(AppStatus { current_cpu_time: self.cpu, ..AppStatus::default() }),
        };
        self.running.iter().map(sample).collect()
    }

    fn finish_one(&mut self) {
        let (job, output) = self.running.remove(0);
        let end = TaskEnd {
            exit: Ended::Code(0),
            finish: Some(Finish::SUCCESS),
            temporary_exit: None,
            cpu_time: self.cpu,
            is_charged: false,
            stderr: String::new(),
            outputs: vec![OutputFound { name: output, nbytes: Bytes(10), md5: "0".repeat(32) }],
            peak_working_set: Bytes(0),
            disk_usage: Bytes(0),
            made_room: None,
            memory_exceeded: None,
            killed: None,
        };
        let step = self.event(Event::TaskEnded { job, end: Box::new(end) });
        let uploads: Vec<FileKey> = step.actions.iter().filter_map(|action| upload(&action.effect)).collect();
        for file in uploads {
            self.event(Event::UploadEnded { file, outcome: Ok(()) });
        }
    }
}

fn called(step: &Step) -> Option<ProjectId> {
    step.actions.iter().find_map(|action| match &action.effect {
        Effect::CallScheduler { project, .. } => Some(*project),
        _ => None,
    })
}

fn downloads(step: &Step) -> Vec<FileKey> {
    let file = |effect: &Effect| match effect {
        Effect::Download(download) => Some(download.file.clone()),
        _ => None,
    };
    step.actions.iter().filter_map(|action| file(&action.effect)).collect()
}

fn upload(effect: &Effect) -> Option<FileKey> {
    match effect {
        Effect::Upload(upload) => Some(upload.file.clone()),
        _ => None,
    }
}

fn reply(jobs: u64, now: Instant) -> SchedulerReply {
    let refer = |name: &str, main| FileRef {
        file_name: name.to_owned(),
        open_name: Some(name.to_owned()),
        main_program: main,
        ..FileRef::default()
    };
    let download = |name: &str| FileInfo {
        name: name.to_owned(),
        download_urls: vec![format!("http://127.0.0.1/download/{name}")],
        ..FileInfo::default()
    };
    let mut reply = SchedulerReply { hostid: Some(7), ..SchedulerReply::default() };
    reply.apps.push(App { name: "app".to_owned(), ..App::default() });
    reply.files.push(download("app"));
    reply.app_versions.push(AppVersion {
        app_name: "app".to_owned(),
        version_num: 100,
        platform: PLATFORM.to_owned(),
        files: vec![refer("app", true)],
        flops: Speed::new(1e9).ok(),
        ..AppVersion::default()
    });
    for number in 0..jobs {
        let (stem, input, output) =
            (format!("work_{number}"), format!("in_{number}"), format!("out_{number}"));
        reply.files.push(download(&input));
        reply.files.push(FileInfo {
            name: output.clone(),
            upload_urls: vec!["http://127.0.0.1/file_upload_handler".to_owned()],
            max_nbytes: Some(Bytes(1_000)),
            ..FileInfo::default()
        });
        reply.workunits.push(Workunit {
            name: stem.clone(),
            app_name: "app".to_owned(),
            rsc_fpops_est: Flops::new(3.6e15).ok(),
            rsc_fpops_bound: Flops::new(3.6e18).ok(),
            files: vec![refer(&input, false)],
            ..Workunit::default()
        });
        reply.results.push(ResultJob {
            name: format!("{stem}_0"),
            wu_name: stem,
            report_deadline: now + Duration::from_hours(24 * 60),
            files: vec![refer(&output, false)],
            platform: PLATFORM.to_owned(),
            version_num: 100,
            ..ResultJob::default()
        });
    }
    reply
}

fn facts() -> HostFacts {
    let speed = Speed::new(1e9).expect("a speed");
    HostFacts {
        timezone: 0,
        domain_name: "host".to_owned(),
        ip_addr: "127.0.0.1".to_owned(),
        host_cpid: "0".repeat(32),
        ncpus: 8,
        cpu_vendor: "v".to_owned(),
        cpu_model: "m".to_owned(),
        cpu_features: String::new(),
        speed: HostSpeed { fpops: speed, iops: speed, membw: 1e9, measured_at: 0.0 },
        memory: Bytes::from_mebibytes(8_192),
        cache: Bytes::from_mebibytes(1),
        swap: Bytes(0),
        disk_total: Bytes(100_000_000_000),
        disk_free: Bytes(50_000_000_000),
        os_name: "Linux".to_owned(),
        os_version: "1".to_owned(),
        platforms: vec![PLATFORM.to_owned()],
        coprocessors: Vec::new(),
        virtualization: fallow_domain::Virtualization::default(),
    }
}
