//! Work by resource type, by disk space and by setting: what is sent to whom, and when to come again.

use fallow_boinc::scheduler::{
    FreeSpace, HostCoprocessors, InProgressResult, ResultState, SchedulerReply, StickyFile,
};
use fallow_domain::{Bytes, Duration, Instant, OnTimeTable, OnTimeWithin, ResourceType, Usage};
use fallow_work_server::{NewJobs, NewWorkunit, ProjectInfo};

use crate::client::Client;
use crate::fixture::{Fixture, workunit};

/// Half an NVIDIA GPU and a tenth of a CPU.
fn half_a_gpu() -> Usage {
    Usage::from_cpus(0.1).with_coprocessor(ResourceType::Nvidia, 0.5)
}

/// A host with an NVIDIA GPU as fast as nine CPUs, of which this is wanted.
pub(crate) fn gpu_client(
    fixture: &Fixture,
    info: &ProjectInfo,
    name: &str,
    seconds: f64,
    instances: f64,
) -> Client {
    let mut client = Client::new(fixture, info, name);
    client.request.host_info.p_fpops = 1e9;
    client.request.coprocs = vec![HostCoprocessors {
        kind: "NVIDIA".to_owned(),
        count: 1,
        req_secs: seconds,
        req_instances: instances,
        peak_flops: 9e9,
        ..HostCoprocessors::default()
    }];
    client
}

/// A project with two applications, `cpu` and `gpu`, and so many workunits of 10^11 FLOPs for each in turn.
pub(crate) fn with_both(count: usize) -> (Fixture, ProjectInfo) {
    let fixture = Fixture::start();
    let info = fixture.project("p");
    fixture.script("p", "cpu");
    fixture.gpu_script("p", "gpu", half_a_gpu());
    for _ in 0..count {
        let both = vec![workunit("cpu", "x", 1e11, 1), workunit("gpu", "x", 1e11, 1)];
        fixture.server.submit("p", both).unwrap();
    }
    (fixture, info)
}

fn apps(reply: &SchedulerReply) -> Vec<&str> {
    reply.workunits.iter().map(|workunit| workunit.app_name.as_str()).collect()
}

fn messages(reply: &SchedulerReply) -> String {
    reply.messages.iter().map(|message| message.text.as_str()).collect::<Vec<_>>().join("\n")
}

// ---- resource types ----

#[test]
fn r3_12_jobs_are_sent_for_the_types_asked_for_and_each_is_filled() {
    let (fixture, info) = with_both(10);
    let mut client = gpu_client(&fixture, &info, "a", 0.0, 2.0);
    let reply = client.rpc();
    // Two idle instances, half of one each.
    assert_eq!(apps(&reply), ["gpu"; 4]);
    let version = &reply.app_versions[0];
    assert_eq!((version.plan_class.as_str(), version.avg_ncpus), ("nvidia", 0.1));
    let coproc = version.coproc.as_ref().unwrap();
    assert_eq!((coproc.kind.as_str(), coproc.count), ("NVIDIA", 0.5));
    assert_eq!(version.flops.unwrap().get(), 0.5 * 9e9 + 0.1 * 1e9);
    assert_eq!(reply.results[0].plan_class, "nvidia");
    // CPU seconds bring CPU jobs only: 100 s each.
    client.request.coprocs[0].req_instances = 0.0;
    assert_eq!(apps(&client.fetch(250.0)), ["cpu"; 3]);
    // Both: 10^11 / 4.6 10^9 FLOPS is 21.7 s on half an instance, that is 10.9 instance-seconds.
    client.request.coprocs[0].req_secs = 20.0;
    let reply = client.fetch(100.0);
    let mut both = apps(&reply);
    both.sort_unstable();
    assert_eq!(both, ["cpu", "gpu", "gpu"]);
}

#[test]
fn r3_12_the_scalar_of_an_old_client_is_filled_from_whatever_types_its_host_has() {
    let (fixture, info) = with_both(2);
    let mut with_gpu = gpu_client(&fixture, &info, "a", 0.0, 0.0);
    with_gpu.request.work_req_seconds = 1e6;
    let reply = with_gpu.rpc();
    let mut all = apps(&reply);
    all.sort_unstable();
    assert_eq!(all, ["cpu", "cpu", "gpu", "gpu"]);
    let (fixture, info) = with_both(2);
    let mut without = Client::new(&fixture, &info, "a");
    without.request.coprocs.clear();
    without.request.work_req_seconds = 1e6;
    assert_eq!(apps(&without.rpc()), ["cpu", "cpu"]);
}

#[test]
fn r3_12_a_project_says_which_types_it_has_no_programs_for() {
    let fixture = Fixture::start();
    let info = fixture.project("p");
    fixture.script("p", "cpu");
    let mut client = gpu_client(&fixture, &info, "a", 100.0, 1.0);
    let reply = client.rpc();
    assert_eq!(reply.no_rsc_apps, ["NVIDIA", "ATI", "intel_gpu", "apple_gpu"]);
    assert!(messages(&reply).contains("No application of this project uses NVIDIA"), "{}", messages(&reply));
    assert_eq!(reply.next_rpc_delay, None, "nothing to come again for");
    fixture.gpu_script("p", "gpu", half_a_gpu());
    assert_eq!(client.rpc().no_rsc_apps, ["ATI", "intel_gpu", "apple_gpu"]);
}

#[test]
fn r3_12_a_job_that_uses_more_of_a_gpu_than_the_host_has_is_not_sent_to_it() {
    let fixture = Fixture::start();
    let info = fixture.project("p");
    fixture.gpu_script("p", "gpu", Usage::ONE_CPU.with_coprocessor(ResourceType::Nvidia, 2.0));
    fixture.server.submit("p", vec![workunit("gpu", "x", 1e11, 1)]).unwrap();
    let mut client = gpu_client(&fixture, &info, "a", 100.0, 1.0);
    assert!(client.rpc().results.is_empty());
    client.request.coprocs[0].count = 2;
    assert_eq!(client.rpc().results.len(), 1);
}

// ---- settings ----

#[test]
fn r5_6_the_send_policy_is_a_setting_that_holds_at_once() {
    let fixture = Fixture::start();
    let info = fixture.project("p");
    fixture.script("p", "cpu");
    // 100 s each, within 150 s: a host of one CPU makes one of them in time.
    let tight = NewWorkunit { delay_bound: Duration::from_secs(150), ..workunit("cpu", "x", 1e11, 1) };
    fixture.server.submit("p", vec![tight; 40]).unwrap();
    let sent = |name: &str, held: bool| {
        let mut client = Client::new(&fixture, &info, name);
        client.request.host_info.p_fpops = 1e9;
        client.request.host_info.p_ncpus = 1;
        client.request.global_preferences = None;
        client.request.time_stats.on_frac = 1.0;
        client.request.time_stats.active_frac = 1.0;
        let none: Vec<InProgressResult> = Vec::new();
        client.request.in_progress_results = held.then_some(none);
        let reply = client.fetch(300.0);
        (reply.results.len(), reply.send_full_workload)
    };
    assert_eq!(sent("improved", true), (1, true));
    fixture.set("p", "send", "ws2=published");
    // Each is judged alone.
    assert_eq!(sent("published", true), (3, true));
    fixture.set("p", "send", "WS1");
    assert_eq!(sent("ws1", true), (3, false));
}

/// WS3: the host of both clients is on for half of the time.
#[test]
fn r5_6_a_host_that_tells_its_hours_is_sent_what_they_let_it_finish() {
    let fixture = Fixture::start();
    let info = fixture.project("p");
    fixture.script("p", "cpu");
    fixture.set("p", "send", "WS3");
    let job = |hours: i64| NewWorkunit {
        delay_bound: Duration::from_hours(24),
        ..workunit("cpu", "x", hours as f64 * 3_600e9, 1)
    };
    fixture.server.submit("p", vec![job(8); 20]).unwrap();
    let sent = |name: &str, (sure, possible): (i64, i64), idle: f64| {
        let mut client = Client::new(&fixture, &info, name);
        // As long as it holds a job, none is tried on it.
        assert_eq!(client.fetch(1.0).results.len(), 1);
        fixture.advance(Duration::from_mins(10));
        client.request.host_info.p_fpops = 1e9;
        client.request.host_info.p_ncpus = 1;
        client.request.global_preferences = None;
        (client.request.time_stats.on_frac, client.request.time_stats.active_frac) = (0.5, 1.0);
        client.request.in_progress_results = Some(Vec::new());
        client.request.cpu_req_instances = idle;
        let [length, sure, possible] = [24, sure, possible].map(Duration::from_hours);
        let row = OnTimeWithin { length, sure, possible };
        client.request.time_stats.fallow_on_time = OnTimeTable::new(vec![row]);
        let reply = client.fetch(1.0);
        (reply.results.len(), reply.send_full_workload)
    };
    assert_eq!(sent("days", (0, 24), 0.0), (0, true), "work ahead has to be sure");
    assert_eq!(sent("days idle", (0, 24), 1.0), (1, true), "whoever idles may try");
    assert_eq!(sent("minutes", (10, 13), 0.0), (1, true));
    assert_eq!(sent("hopeless", (0, 7), 1.0), (0, true));
    // One that tells nothing, or nonsense, is judged by its mean.
    assert_eq!(sent("nonsense", (12, 3), 0.0), (1, true));
}

/// WS3: a job of an hour that is said to take ten has nine hours. It is tried, and once a few were in time
/// the server knows.
#[test]
fn r5_6_a_job_whose_estimate_is_far_too_high_is_tried_until_the_server_knows_how_long_it_takes() {
    let fixture = Fixture::start();
    let info = fixture.project("p");
    fixture.script("p", "cpu");
    fixture.set("p", "send", "WS3");
    fixture.set("p", "spread", "false");
    let job = NewWorkunit { delay_bound: Duration::from_hours(9), ..workunit("cpu", "x", 10.0 * 3_600e9, 1) };
    fixture.server.submit("p", vec![job; 40]).unwrap();
    let mut client = Client::new(&fixture, &info, "a");
    client.request.host_info.p_fpops = 1e9;
    client.request.host_info.p_ncpus = 2;
    client.request.global_preferences = None;
    (client.request.time_stats.on_frac, client.request.time_stats.active_frac) = (1.0, 1.0);
    client.request.in_progress_results = Some(Vec::new());
    let ask = |client: &mut Client| {
        fixture.advance(Duration::from_mins(70));
        let reply = client.fetch(7_200.0);
        let bound = reply.workunits.first().and_then(|workunit| workunit.rsc_fpops_bound);
        (reply.results.len(), reply.app_versions.first().and_then(|version| version.flops), bound)
    };
    let in_an_hour = |client: &mut Client| {
        for (job, reply) in client.held.clone() {
            client.upload(&job, b"x");
            client.report(&job, ResultState::Uploaded, 0);
            let (sent, result) = (&reply.results[0], client.request.results.last_mut().unwrap());
            (result.platform, result.version_num) = (sent.platform.clone(), sent.version_num);
            result.final_elapsed_time = Duration::from_hours(1);
        }
    };
    assert_eq!(ask(&mut client).0, 1, "one is tried");
    assert_eq!(ask(&mut client).0, 0, "and no other as long as it is there");
    let mut sent = Vec::new();
    for _ in 0..6 {
        in_an_hour(&mut client);
        sent.push(ask(&mut client));
    }
    let counts: Vec<usize> = sent.iter().map(|(count, ..)| *count).collect();
    assert_eq!(counts, [1, 1, 1, 1, 2, 2], "{sent:?}");
    let flops = sent[5].1.unwrap().get();
    assert!((9.5e9..10.5e9).contains(&flops), "the client is told the speed that it has by this: {flops}");
    // A client ends a job that takes longer than its bound at its speed: that time stays the same.
    let times: Vec<f64> =
        sent.iter().map(|(_, flops, bound)| bound.unwrap().get() / flops.unwrap().get()).collect();
    assert!(times.iter().all(|time| (time / times[0] - 1.0).abs() < 1e-9), "{times:?}");
}

#[test]
fn settings_are_stored_and_refused_as_a_whole() {
    let mut fixture = Fixture::start();
    fixture.project("p");
    fixture.set("p", "poll", "90s");
    let change = [("jobs-per-cpu", "3"), ("poll", "soon")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    fixture.server.change_settings("p", &change).unwrap_err();
    fixture.restart();
    let settings = fixture.server.project("p").unwrap().settings;
    assert_eq!((settings.poll, settings.max_in_progress_per_cpu), (Duration::from_secs(90), 1_000));
}

// ---- coming again ----

#[test]
fn r3_7_a_host_that_asked_in_vain_comes_again_within_the_poll_until_it_has_work() {
    let fixture = Fixture::start();
    let info = fixture.project("p");
    fixture.script("p", "cpu");
    let mut client = Client::new(&fixture, &info, "a");
    assert_eq!(client.rpc().next_rpc_delay, None, "it did not ask");
    let about = |reply: SchedulerReply, poll: f64| {
        let delay = reply.next_rpc_delay.unwrap().as_secs_f64();
        assert!((0.75 * poll..=1.25 * poll).contains(&delay), "{delay}");
    };
    about(client.fetch(100.0), 300.0);
    // What it says in between does not let it be forgotten.
    about(client.rpc(), 300.0);
    fixture.set("p", "poll", "20s");
    about(client.fetch(100.0), 20.0);
    fixture.server.submit("p", vec![workunit("cpu", "x", 1e11, 1)]).unwrap();
    let reply = client.fetch(10.0);
    assert_eq!((reply.results.len(), reply.next_rpc_delay), (1, None));
    assert_eq!(client.rpc().next_rpc_delay, None);
    fixture.set("p", "poll", "0s");
    assert_eq!(client.fetch(100.0).next_rpc_delay, None);
}

#[test]
fn r1_4_new_jobs_are_counted_when_they_are_submitted_and_when_they_are_to_be_done_again() {
    let fixture = Fixture::start();
    let info = fixture.project("p");
    fixture.script("p", "cpu");
    assert!(fixture.server.take_new_jobs().is_empty());
    fixture.server.submit("p", vec![workunit("cpu", "x", 1e11, 2); 3]).unwrap();
    assert_eq!(fixture.server.take_new_jobs(), [(info.url.clone(), NewJobs { jobs: 6, agents: 6 })]);
    let mut client = Client::new(&fixture, &info, "a");
    assert_eq!(client.fetch(1.0).results.len(), 1);
    assert!(fixture.server.take_new_jobs().is_empty());
    fixture.advance(Duration::from_hours(25));
    fixture.server.run_background_work().unwrap();
    assert_eq!(fixture.server.take_new_jobs(), [(info.url, NewJobs { jobs: 1, agents: 2 })]);
}

// ---- disk ----

#[test]
fn r4_10_a_pass_with_more_space_is_made_only_if_the_one_before_sends_nothing() {
    let fixture = Fixture::start();
    let info = fixture.project("p");
    fixture.script("p", "cpu");
    let of = |megabytes: u64| NewWorkunit {
        disk_bound: Bytes(megabytes * 1_000_000),
        ..workunit("cpu", "x", 1e11, 1)
    };
    fixture.server.submit("p", [50, 15, 25, 5].map(of).to_vec()).unwrap();
    let mut client = Client::new(&fixture, &info, "a");
    client.request.disk_usage.free = Some(FreeSpace {
        now: Bytes(10_000_000),
        with_offenders: Bytes(20_000_000),
        with_self: Bytes(30_000_000),
    });
    let mut bound = || {
        let reply = client.fetch(1e6);
        let bounds: Vec<u64> =
            reply.workunits.iter().map(|workunit| workunit.rsc_disk_bound.unwrap().0 / 1_000_000).collect();
        (bounds, messages(&reply))
    };
    assert_eq!(bound().0, [5], "what is free");
    assert_eq!(bound().0, [15], "what offenders would give");
    let (none, why) = bound();
    assert!(none.is_empty() && why.contains("only 20.00 MB is available"), "{why}");
    fixture.set("p", "delete-from-self", "true");
    assert_eq!(bound().0, [25], "what the project's own files would give");
    assert!(bound().1.contains("only 30.00 MB is available"));
}

#[test]
fn r4_11_jobs_go_where_their_inputs_are_and_a_file_is_deleted_where_it_is_asked_for() {
    let mut fixture = Fixture::start();
    let info = fixture.project("p");
    fixture.script("p", "cpu");
    let reads = |file: &str| {
        let mut workunit = workunit("cpu", file, 1e11, 1);
        workunit.inputs[0].keep_as = file.to_owned();
        workunit
    };
    let order = ["maize", "rice", "maize", "maize", "rice"];
    fixture.server.submit("p", order.map(reads).to_vec()).unwrap();
    let inputs = |reply: &SchedulerReply| -> Vec<String> {
        reply.workunits.iter().map(|workunit| workunit.files[0].file_name.clone()).collect()
    };
    let mut client = Client::new(&fixture, &info, "a");
    // It has the one from elsewhere; the other comes first in the queue.
    let list = |name: &str, status| StickyFile {
        name: name.to_owned(),
        nbytes: Bytes(name.len() as u64 - 5),
        status,
    };
    client.request.sticky_files = vec![list("kept_rice", 1), list("kept_maize", 0)];
    let reply = client.fetch(1.0);
    assert_eq!(inputs(&reply), ["kept_rice"]);
    assert!(reply.files.iter().any(|file| file.name == "kept_rice" && file.sticky));
    client.request.sticky_files.clear();
    // What was sent is known without a list, over a restart too.
    fixture.restart();
    assert_eq!(inputs(&client.fetch(1.0)), ["kept_rice"]);
    assert_eq!(inputs(&client.fetch(1.0)), ["kept_maize"]);
    // A changed file under an old name is refused.
    let mut other = reads("rice");
    other.inputs[0].content = b"another".to_vec();
    fixture.server.submit("p", vec![other]).unwrap_err();
    // Deletion is asked for until the list no longer has it.
    assert_eq!(fixture.server.delete_on_hosts("p", "kept_rice").unwrap(), 1);
    client.request.sticky_files = vec![list("kept_rice", 1), list("kept_maize", 1)];
    let reply = client.rpc();
    assert_eq!(reply.deleted_files, ["kept_rice"]);
    fixture.restart();
    client.request.sticky_files = vec![list("kept_maize", 1)];
    let reply = client.rpc();
    assert!(reply.deleted_files.is_empty() && !reply.request_file_list);
    // The file of validated workunits stays for those to come.
    client.complete_all("x");
    fixture.server.run_background_work().unwrap();
    assert!(fixture.dir.path().join("projects/p/download").exists());
    let url = format!("{}download/kept_maize", client.url);
    assert_eq!(crate::http::get(&url).body, b"maize");
}

#[test]
fn r4_6_a_project_tells_its_clients_which_files_to_delete_first() {
    let fixture = Fixture::start();
    let info = fixture.project("p");
    let mut client = Client::new(&fixture, &info, "a");
    let mut flags = || {
        let reply = client.rpc();
        (reply.deletion_policy_priority, reply.deletion_policy_expire)
    };
    assert_eq!(flags(), (false, false));
    fixture.set("p", "deletion-policy", "priority");
    assert_eq!(flags(), (true, false));
    fixture.set("p", "deletion-policy", "expire");
    assert_eq!(flags(), (false, true));
}

#[test]
fn r5_6_the_gpu_jobs_of_a_host_are_counted_on_its_gpu() {
    let (fixture, info) = with_both(1);
    let mut client = gpu_client(&fixture, &info, "a", 1e6, 0.0);
    // Its only GPU is busy past the deadline of a day; the CPU is free.
    client.request.in_progress_results = Some(vec![InProgressResult {
        name: "other".to_owned(),
        report_deadline: Instant::FAR_FUTURE,
        time_remaining: Duration::from_hours(48),
        avg_ncpus: 0.1,
        coprocessor: Some((ResourceType::Nvidia, 1.0)),
    }]);
    client.request.in_progress_results.as_mut().unwrap()[0].report_deadline =
        client_time() + Duration::from_hours(12);
    let reply = client.fetch(10.0);
    assert_eq!(apps(&reply), ["cpu"]);
}

fn client_time() -> Instant {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Instant::from_micros(since.as_micros() as i64)
}
