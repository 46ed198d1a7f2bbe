//! What can be seen from inside only: accounts, what is stored of them, and what the parts ask of each other.

mod app_configs;
mod benchmarks;
mod comings;
mod confirmation;
mod debts;
mod devices;
mod disk;
mod disk_looks;
mod estimates;
mod hopeless;
mod host_edits;
mod job_edits;
mod known_devices;
mod limits;
mod looks;
mod policies;
mod project_edits;
mod separation;
mod stale_timers;
mod stored;
mod timers;
pub(crate) mod wake_up;
#[allow(dead_code, unused_imports, reason = "most of it is for the tests of the whole machine")]
#[path = "../../tests/client/world/mod.rs"]
mod world;

use fallow_boinc::scheduler::{
    AppVersion, ClientVersion, ResultJob, SchedulerReply, SchedulerRequest, Workunit,
};
use fallow_domain::{
    AccountKey, Bytes, Coprocessor, Duration, Flops, HostFacts, HostSpeed, InProgress, Instant, JobId,
    MasterUrl, PerType, ProjectId, ResourceType, Share, SlotId, Speed, Usage,
};
use fallow_policy::completion::DurationCorrection;
use fallow_policy::composition::Composition;
use fallow_policy::fetch::WorkRequest;
use fallow_policy::fetch::bounds::UnrunnableTypes;
use fallow_policy::plan_host::PlanHost;
use fallow_policy::send::Load;
use fallow_policy::type_backoff::ReplyForType;

use crate::described::JobDescription;
use crate::machine::Client;
use crate::record::Record;
use crate::state::{Given, Job, Process, Run, Stage};
use crate::versions::VersionKey;
use crate::{AttachRequest, Cause, ClientConfig, Effect, Event, Startup, Waiter};

const NOW: Instant = Instant::from_micros(1_800_000_000_000_000);

fn speed(flops: f64) -> Speed {
    Speed::new(flops).unwrap()
}

/// Two CPUs, and so many GPUs of twice the speed of a CPU.
fn host(gpus: u32) -> HostFacts {
    let gpu = Coprocessor {
        kind: ResourceType::Nvidia,
        count: gpus,
        model: "m".to_owned(),
        speed: speed(2e9),
        memory: Bytes::from_mebibytes(8_192),
        driver: "1".to_owned(),
        cuda_version: 0,
        devices: Vec::new(),
    };
    HostFacts {
        timezone: 0,
        domain_name: "host".to_owned(),
        ip_addr: "127.0.0.1".to_owned(),
        host_cpid: "0".repeat(32),
        ncpus: 2,
        cpu_vendor: "v".to_owned(),
        cpu_model: "m".to_owned(),
        cpu_features: String::new(),
        speed: HostSpeed { fpops: speed(1e9), iops: speed(1e9), membw: 1e9, measured_at: 0.0 },
        memory: Bytes::from_mebibytes(8_192),
        cache: Bytes::from_mebibytes(1),
        swap: Bytes(0),
        disk_total: Bytes(100_000_000_000),
        disk_free: Bytes(50_000_000_000),
        os_name: "Linux".to_owned(),
        os_version: "1".to_owned(),
        platforms: vec!["x86_64-pc-linux-gnu".to_owned()],
        coprocessors: if gpus > 0 { vec![gpu] } else { Vec::new() },
        virtualization: fallow_domain::Virtualization::default(),
    }
}

fn url(name: &str) -> MasterUrl {
    MasterUrl::parse(&format!("http://127.0.0.1/{name}/")).unwrap()
}

fn attach_unseen(url: MasterUrl, account_key: AccountKey, share: Option<Share>) -> Event {
    let account_key = Some(account_key);
    Event::Attach(AttachRequest { waiter: Waiter(0), url, account_key, share, unseen: true })
}

/// A client that is up and attached to projects of equal shares, 0, 1, ...
fn client(gpus: u32, projects: &[&str]) -> Client {
    let version = ClientVersion { major: 8, minor: 3, release: 0 };
    let mut client = Client::restore(ClientConfig::new(1, version), []).unwrap();
    let startup = Startup { host: host(gpus), slots: Vec::new(), files: Vec::new(), doomed: Vec::new() };
    client.handle(NOW, Event::Started(Box::new(startup)));
    for name in projects {
        let account_key = AccountKey::new("0123456789abcdef0123456789abcdef");
        client.handle(NOW, attach_unseen(url(name), account_key, Some(Share::DEFAULT)));
    }
    client
}

fn id_of(client: &Client, name: &str) -> ProjectId {
    client.project_of(&url(name)).unwrap()
}

/// A job of 1000 seconds on one of what it uses, held by the client.
fn put_job(client: &mut Client, id: u64, project: ProjectId, usage: Usage) -> JobId {
    client.insert_job(job(id, project, usage));
    client.reassess(JobId(id));
    JobId(id)
}

/// A job of 1000 seconds on one of what it uses.
pub(crate) fn job(id: u64, project: ProjectId, usage: Usage) -> Job {
    let id = JobId(id);
    let platform = "x86_64-pc-linux-gnu".to_owned();
    let version =
        VersionKey { project, app: "app".to_owned(), platform, plan_class: String::new(), number: 1 };
    let result = JobDescription {
        name: format!("job{}", id.0),
        workunit: format!("wu{}", id.0),
        report_deadline: NOW + Duration::from_hours(240),
        ..JobDescription::default()
    };
    Job {
        id,
        project,
        result,
        version,
        received_at: NOW,
        usage,
        declared: None,
        flops_estimate: Flops::new(1e12).unwrap(),
        speed: speed(1e9),
        elapsed_max: Duration::from_hours(1_000),
        stage: Stage::Runnable,
        slot: None,
        run: Run::default(),
        outcome: None,
        process: Process::None,
        given: Given::default(),
    }
}

#[test]
fn r3_6_who_is_left_alone_does_not_stay_in_debt_to_a_project_that_was_detached() {
    let mut client = client(0, &["a", "b"]);
    let (a, b) = (id_of(&client, "a"), id_of(&client, "b"));
    for project in [a, b] {
        let jobs = ReplyForType::Jobs(1);
        client.ledger.type_answered(project, ResourceType::Cpu, jobs, NOW, client.random.stream());
    }
    client.ledger.used(a, ResourceType::Cpu, Duration::from_hours(200));
    client.settle_long_term();
    let speeds = PlanHost::cpus(2).speeds;
    assert!(client.ledger.long_term().overall(a, &speeds).as_secs() < -300_000.0);
    client.handle(NOW + Duration::from_mins(1), Event::Detach { url: url("b") });
    client.handle(NOW + Duration::from_mins(3), Event::WakeUp);
    let debt = client.ledger.long_term().overall(a, &speeds).as_secs();
    assert!(debt.abs() < 1e-6, "over-served for ever, it would only be asked when a CPU idles: {debt}");
}

#[test]
fn r3_3_what_long_term_debts_were_not_settled_for_survives_a_restart() {
    let mut client = client(0, &["a", "b"]);
    let a = id_of(&client, "a");
    client.ledger.used(a, ResourceType::Cpu, Duration::from_hours(5));
    let stored = Record::Ledger.change(&client.state, &client.ledger);
    let mut restored =
        Client::restore(client.config.clone(), [(stored.key, stored.value.unwrap())]).unwrap().ledger;
    let used = restored.take_unsettled().unwrap();
    assert_eq!(used[&a], PerType::cpu(Duration::from_hours(5)));
}

#[test]
fn r2_7_a_job_that_can_never_run_earns_its_project_nothing_and_its_owner_is_told_once() {
    let mut client = client(0, &["a", "b"]);
    let (a, b) = (id_of(&client, "a"), id_of(&client, "b"));
    client.actions.take();
    let large = put_job(&mut client, 1, a, Usage::from_cpus(8.0));
    put_job(&mut client, 2, b, Usage::ONE_CPU);
    client.reassess(large);
    let told = client.actions.iter().filter(
        |action| matches!(&action.effect, Effect::Notice { text, .. } if text.contains("cannot run on this host")),
    );
    assert_eq!(told.count(), 1);
    assert!(!client.workload.queue().is_runnable(a) && client.workload.queue().is_runnable(b));
    assert!(client.workload.queue().get(large).is_none(), "nor does it keep other projects from being asked");
    assert!(client.task_view(large).is_some(), "it is held all the same");
    client.edit_host(HostFacts { ncpus: 8, ..host(0) });
    assert!(client.workload.queue().is_runnable(a), "now it can");
}

#[test]
fn a_job_that_waits_to_be_started_again_in_another_slot_is_not_forgotten() {
    let mut client = client(0, &["a"]);
    let a = id_of(&client, "a");
    let id = put_job(&mut client, 1, a, Usage::ONE_CPU);
    let until = NOW + Duration::from_secs(60);
    client.edit_job(id, |job| job.run.not_before = until);
    let wake_at = client.handle(NOW, Event::WakeUp).wake_at.unwrap();
    assert!(!client.workload.queue().is_runnable(a) && wake_at <= until);
    client.handle(until, Event::WakeUp);
    assert_eq!(client.state.jobs[&id].run.not_before, Instant::EPOCH);
    assert_eq!(client.workload.set_aside().counts(a), PerType::default());
}

#[test]
fn r2_16_a_project_whose_jobs_gather_is_asked_for_no_type_that_the_plan_leaves_out() {
    let mut client = client(1, &["a"]);
    let a = id_of(&client, "a");
    let mut gathered = PerType::default();
    gathered[ResourceType::Cpu] = 100;
    client.stalls.gather(a, UnrunnableTypes::of(&gathered, 2));
    let request = client.bounded(a, WorkRequest::cpu(Duration::from_hours(1), 1.0));
    assert!(request.is_none(), "{request:?}");
}

#[test]
fn r2_7_nothing_is_left_of_jobs_that_cannot_run_when_they_are_gone() {
    let mut client = client(0, &["a", "b"]);
    let (a, b) = (id_of(&client, "a"), id_of(&client, "b"));
    let [large, aborted, _] =
        [(1, a), (2, a), (3, b)].map(|(id, of)| put_job(&mut client, id, of, Usage::from_cpus(8.0)));
    let cpu = ResourceType::Cpu;
    let count = |client: &Client| {
        (client.workload.set_aside().counts(a)[cpu], client.workload.set_aside().counts(b)[cpu])
    };
    assert_eq!(count(&client), (2, 1));
    client.abort_job(aborted, 203, &Cause::AbortedByProject);
    assert_eq!(count(&client), (1, 1));
    client.handle(NOW, Event::Detach { url: url("b") });
    assert_eq!(count(&client), (1, 0));
    client.forget_job(large, false);
    assert_eq!(count(&client), (0, 0));
}

#[test]
fn r1_12_a_clock_that_is_set_back_takes_no_task_that_runs_for_one_that_waits() {
    let mut client = client(0, &["a"]);
    let a = id_of(&client, "a");
    let id = put_job(&mut client, 1, a, Usage::ONE_CPU);
    client.edit_job(id, |job| {
        job.process = Process::Executing(7);
        job.run.not_before = NOW + Duration::from_secs(60);
    });
    assert_eq!(
        (client.workload.set_aside().counts(a), client.workload.queue().running().count()),
        (PerType::default(), 1)
    );
}

#[test]
fn r5_7_what_is_learned_of_cpu_efficiency_holds_for_the_jobs_already_queued() {
    let mut client = client(0, &["a", "b"]);
    client.config.composition = Composition::base();
    let (a, b) = (id_of(&client, "a"), id_of(&client, "b"));
    let waiting = put_job(&mut client, 1, b, Usage::ONE_CPU);
    for n in 2..30 {
        let id = put_job(&mut client, n, a, Usage::ONE_CPU);
        let (elapsed, base) = (Duration::from_secs(2_000), Duration::from_secs(1_000));
        client.edit_job(id, |job| (job.run.elapsed, job.run.base) = (elapsed, base));
        client.learn_estimate(id, Duration::from_secs(1_000));
    }
    let now = client.running_time_left(&client.state.jobs[&waiting]).as_secs_f64();
    let queued = client.workload.queue().get(waiting).unwrap().remaining.as_secs_f64();
    assert!(now > 1_800.0 && (queued / now - 1.0).abs() < 0.03, "{queued} of {now}");
}

#[test]
fn what_happens_while_the_host_is_away_is_acted_on_when_it_is_back() {
    let mut client = client(0, &["a"]);
    client.handle(NOW, Event::HostAway);
    let page = Ok(vec!["http://127.0.0.1/cgi".to_owned()]);
    client.handle(NOW, Event::MasterPageRead { project: id_of(&client, "a"), outcome: page });
    let back = client.handle(NOW + Duration::from_millis(50), Event::HostBack);
    assert!(back.actions.iter().any(|action| matches!(action.effect, Effect::CallScheduler { .. })));
}

#[test]
fn r1_12_a_host_that_comes_back_with_its_clock_set_back_looks_what_is_due_at_once() {
    let mut client = client(0, &["a"]);
    client.handle(NOW, Event::HostAway);
    let back = NOW - Duration::from_hours(24 * 30);
    let wake_at = client.handle(back, Event::HostBack).wake_at.unwrap();
    assert!(wake_at <= back + Duration::from_hours(1), "{wake_at:?}");
}

#[test]
fn r3_3_a_backoff_that_ends_on_a_quiet_host_has_held_until_its_end() {
    let mut client = client(0, &["a", "b"]);
    let (a, b) = (id_of(&client, "a"), id_of(&client, "b"));
    let cpu = ResourceType::Cpu;
    for project in [a, b] {
        client.ledger.type_answered(project, cpu, ReplyForType::Jobs(1), NOW, client.random.stream());
    }
    client.ledger.type_answered(a, cpu, ReplyForType::NoneNow, NOW, client.random.stream());
    let until = NOW + client.ledger.type_backoffs().left(a, cpu, NOW);
    // Nobody looked in between.
    client.presence.set_due(until);
    client.presence.ask_for_call();
    client.ledger.used(b, ResourceType::Cpu, until.since(NOW) * 2);
    client.handle(until, Event::WakeUp);
    let debt = |client: &Client| client.ledger.long_term().of(a, cpu).as_secs();
    assert_eq!(debt(&client), 0.0, "while it was held back it earned nothing");
    let later = until + Duration::from_secs(30);
    client.ledger.used(b, ResourceType::Cpu, Duration::from_secs(60));
    client.handle(later, Event::WakeUp);
    client.settle_long_term();
    assert!((debt(&client) - 30.0).abs() < 1e-6, "from then on it does: {}", debt(&client));
}

#[test]
fn r5_6_a_job_that_is_being_aborted_is_no_work_that_a_server_plans_with() {
    let mut client = client(0, &["a"]);
    let a = id_of(&client, "a");
    let [aborted, kept] = [1, 2].map(|id| put_job(&mut client, id, a, Usage::ONE_CPU));
    client.edit_job(aborted, |job| (job.process, job.slot) = (Process::Executing(1), Some(SlotId(0))));
    client.abort_job(aborted, 197, &Cause::AbortedByProject);
    client.edit_project(a, |project| project.send_full_workload = true);
    let (mut request, _) = client.compose_request(a, &WorkRequest::default()).unwrap();
    client.list_jobs(a, &mut request);
    let planned = request.in_progress_results.unwrap();
    assert_eq!(planned.iter().map(|job| &job.name).collect::<Vec<_>>(), ["job2"]);
    assert_eq!(request.other_results.unwrap().len(), 2, "it is not lost either");
    assert!(client.workload.queue().get(kept).is_some());
}

#[test]
fn r5_6_only_who_plans_with_the_whole_workload_is_told_of_the_hosts_hours() {
    let mut client = client(0, &["a"]);
    let a = id_of(&client, "a");
    let written = |client: &Client| {
        let (mut request, _) = client.compose_request(a, &WorkRequest::default()).unwrap();
        client.list_jobs(a, &mut request);
        (request.write(), request.time_stats.fallow_on_time)
    };
    let (without, table) = written(&client);
    assert!(table.is_none() && !without.contains("on_time"), "{without}");
    client.edit_project(a, |project| project.send_full_workload = true);
    let (with, table) = written(&client);
    assert!(table.is_some_and(|table| table.possible(Duration::from_hours(24)) == Duration::from_hours(24)));
    assert!(with.contains("<fallow_on_time>1800:") && with.len() < without.len() + 1_000, "{with}");
}

/// The jobs in progress that a server which plans with them is told of.
fn told_workload(client: &Client) -> Vec<InProgress> {
    let mut request = SchedulerRequest::default();
    client.list_workload(&mut request);
    request.in_progress_results.unwrap().iter().map(InProgress::from).collect()
}

#[test]
fn r5_6_a_simulated_server_plans_with_the_times_that_the_client_plans_with() {
    let mut client = client(0, &["a"]);
    client.config.composition = Composition::base();
    let a = id_of(&client, "a");
    let id = put_job(&mut client, 1, a, Usage::ONE_CPU);
    assert_eq!(told_workload(&client)[0].remaining, Duration::from_secs(1_000));
    // A correction that moves by less than is worth planning anew for.
    client.edit_correction(a, |correction| DurationCorrection::new(correction.get() * 1.01));
    let queued = *client.workload.queue().get(id).unwrap();
    assert_eq!(
        told_workload(&client),
        [InProgress {
            deadline: NOW + Duration::from_hours(240),
            remaining: queued.remaining,
            usage: Usage::ONE_CPU,
        }]
    );
    assert_ne!(client.running_time_left(&client.state.jobs[&id]), queued.remaining);
    assert_eq!(client.workload_sums(), Load::of(&told_workload(&client)));
}

#[test]
fn r5_6_a_simulated_server_does_not_plan_with_jobs_that_keep_no_instance_busy() {
    let mut client = client(0, &["a"]);
    let a = id_of(&client, "a");
    let [waits, runs] = [1, 2].map(|id| put_job(&mut client, id, a, Usage::ONE_CPU));
    // One waits to be started again, one is too large for the host: others are to use what they leave idle.
    client.edit_job(waits, |job| job.run.not_before = NOW + Duration::from_hours(1));
    put_job(&mut client, 3, a, Usage::from_cpus(64.0));
    assert_eq!(told_workload(&client).len(), 1);
    assert_eq!(client.workload_sums(), Load::of(&told_workload(&client)));
    assert!(client.workload.queue().get(runs).is_some());
    client.edit_job(waits, |job| job.run.not_before = Instant::EPOCH);
    assert_eq!(told_workload(&client).len(), 2);
}

#[test]
fn r5_6_a_project_that_asks_for_the_workload_is_told_of_jobs_that_keep_no_instance_busy_too() {
    let mut client = client(0, &["a"]);
    let a = id_of(&client, "a");
    let [waits, _] = [1, 2].map(|id| put_job(&mut client, id, a, Usage::ONE_CPU));
    client.edit_job(waits, |job| job.run.not_before = NOW + Duration::from_hours(1));
    put_job(&mut client, 3, a, Usage::from_cpus(64.0));
    client.edit_project(a, |project| project.send_full_workload = true);
    let (mut request, _) = client.compose_request(a, &WorkRequest::default()).unwrap();
    client.list_jobs(a, &mut request);
    assert_eq!(request.in_progress_results.unwrap().len(), 3);
}

#[test]
fn r6_10_a_job_has_the_time_that_its_server_gave_it_however_little_of_a_cpu_it_names() {
    let mut client = client(0, &["a"]);
    let a = id_of(&client, "a");
    let (app_name, platform) = ("app".to_owned(), "x86_64-pc-linux-gnu".to_owned());
    let (name, wu_name) = ("job".to_owned(), "wu".to_owned());
    let version =
        AppVersion { app_name: app_name.clone(), version_num: 1, avg_ncpus: 0.1, ..AppVersion::default() };
    let bound = Flops::new(1e12).ok();
    let workunit =
        Workunit { name: wu_name.clone(), app_name, rsc_fpops_bound: bound, ..Workunit::default() };
    let result = ResultJob { name, wu_name, platform, version_num: 1, ..ResultJob::default() };
    let mut reply = SchedulerReply {
        app_versions: vec![version],
        workunits: vec![workunit],
        results: vec![result],
        ..SchedulerReply::default()
    };
    assert_eq!(client.take_work(a, &mut reply), PerType::cpu(1));
    let job = client.state.jobs.values().next().unwrap();
    assert_eq!(job.usage.cpus, 0.25, "it counts for more of a CPU than its server says");
    // 1e12 operations at a tenth of a CPU's 1e9 a second.
    assert_eq!(job.elapsed_max, Duration::from_secs(10_000));
}
