//! R6.4: what the owner says of a project's applications, in the whole client.

use std::collections::BTreeMap;

use fallow_boinc::app_config::AppConfig;
use fallow_boinc::runtime::exit;
use fallow_domain::{
    AccountKey, Bytes, Duration, HostFacts, JobId, PerType, ProjectId, ResourceType, SlotId, Usage,
};
use fallow_policy::fetch::WorkRequest;
use fallow_policy::job_queue::Devices;
use fallow_policy::type_backoff::ReplyForType;

use super::comings::new_file;
use super::{NOW, attach_unseen, client, host, id_of, put_job, url};
use crate::described::{ApplicationVersion, FileReference, Workunit};
use crate::machine::Client;
use crate::state::{Process, Stage};
use crate::versions::VersionKey;
use crate::{AppConfigFound, Effect, Event, FileKey, StartFault, Step, TaskEnd};

const KEY: &str = "0123456789abcdef0123456789abcdef";

fn file(inside: &str) -> AppConfigFound {
    let text = format!("<app_config>\n{inside}\n</app_config>");
    let (file, notes) = AppConfig::parse(text.as_bytes()).unwrap();
    AppConfigFound::Read(file, notes)
}

/// It says this from now on; what follows is not decided yet.
fn say(client: &mut Client, files: &[(ProjectId, AppConfigFound)]) {
    client.app_configs_read(files.iter().cloned().collect());
}

fn tell(client: &mut Client, files: &[(ProjectId, AppConfigFound)]) -> Step {
    let found: BTreeMap<_, _> = files.iter().cloned().collect();
    client.handle(NOW, Event::AppConfigsRead(found))
}

fn counted(client: &Client, id: JobId) -> (f64, Option<f64>) {
    let usage = client.state.jobs[&id].usage;
    (usage.cpus, usage.coprocessor.map(|(_, count)| count))
}

fn gpu_job() -> Usage {
    Usage::from_cpus(1.0).with_coprocessor(ResourceType::Nvidia, 1.0)
}

#[test]
fn r6_4_jobs_are_counted_with_what_the_owner_says_until_he_says_so_no_more() {
    let mut client = client(0, &["a", "b"]);
    let (a, b) = (id_of(&client, "a"), id_of(&client, "b"));
    let cpu = put_job(&mut client, 1, a, Usage::ONE_CPU);
    let gpu = put_job(&mut client, 2, a, gpu_job());
    let other = put_job(&mut client, 3, b, Usage::ONE_CPU);
    let of_app = "<app><name>app</name><gpu_versions><gpu_usage>.5</gpu_usage><cpu_usage>.2</cpu_usage></gpu_versions></app>";
    say(&mut client, &[(a, file(of_app))]);
    assert_eq!((counted(&client, cpu), counted(&client, gpu)), ((1.0, None), (0.2, Some(0.5))));
    // What is said of a version goes before that.
    let of_version =
        "<app_version><app_name>app</app_name><avg_ncpus>3</avg_ncpus><ngpus>2</ngpus></app_version>";
    say(&mut client, &[(a, file(&format!("{of_app}{of_version}")))]);
    assert_eq!((counted(&client, cpu), counted(&client, gpu)), ((3.0, None), (3.0, Some(2.0))));
    assert_eq!(counted(&client, other), (1.0, None));
    assert_eq!(client.workload.queue().get(other).unwrap().usage, Usage::ONE_CPU);
    // One with a process keeps what it was begun with.
    client.set_process(gpu, Process::Executing(7));
    client.edit_job(gpu, |job| job.run.devices = Devices::first(1));
    say(&mut client, &[]);
    assert_eq!((counted(&client, cpu), counted(&client, gpu)), ((1.0, None), (3.0, Some(2.0))));
    client.set_process(gpu, Process::None);
    say(&mut client, &[(a, file(""))]);
    assert_eq!(counted(&client, gpu), (1.0, Some(1.0)));
    assert!(client.state.jobs.values().all(|job| job.declared.is_none()));
}

#[test]
fn r6_4_a_file_that_is_wrong_keeps_its_project_from_beginning_anything_and_no_other_one() {
    let mut client = client(0, &["a", "b"]);
    let (a, b) = (id_of(&client, "a"), id_of(&client, "b"));
    let wrong = AppConfigFound::Wrong(vec!["/dir/app_config.xml: line 3: no number".to_owned()]);
    let step = tell(&mut client, &[(a, wrong.clone())]);
    let told = step.actions.iter().any(|action| {
        matches!(&action.effect, Effect::Notice { text, project, .. } if *project == Some(a) && text.contains("line 3"))
    });
    assert!(told);
    // The same again says nothing.
    assert_eq!(tell(&mut client, &[(a, wrong)]).actions.len(), 0);
    for (id, project) in [(1, a), (2, b)] {
        put_job(&mut client, id, project, Usage::ONE_CPU);
    }
    assert!(
        client.workload.queue().get(JobId(1)).is_none() && client.workload.queue().get(JobId(2)).is_some()
    );
    client.look_what_is_enough();
    assert_eq!(client.why_enough(a).as_deref(), Some("what the owner says of it cannot be read"));
    assert_eq!(client.why_enough(b), None);
    let wants = WorkRequest::cpu(Duration::from_hours(1), 1.0);
    assert!(client.bounded(a, wants).is_none() && !client.bounded(b, wants).is_none());
    assert!(client.app_config_view(a).unwrap().is_wrong);
    // A file that is mended or gone lets it compute.
    say(&mut client, &[]);
    assert!(client.workload.queue().get(JobId(1)).is_some());
    assert_eq!(client.app_config_view(a), None);
}

#[test]
fn r6_4_a_project_is_asked_for_no_more_than_the_owner_lets_run_and_what_it_uses_is_not_held_against_it() {
    let mut client = client(0, &["a", "b"]);
    let (a, b) = (id_of(&client, "a"), id_of(&client, "b"));
    for id in 1..=40 {
        put_job(&mut client, id, a, Usage::from_cpus(0.5));
    }
    say(&mut client, &[(a, file("<project_max_concurrent>1</project_max_concurrent>"))]);
    client.look_what_is_enough();
    let why = client.why_enough(a).unwrap();
    assert!(why.contains("as much of its work is here as the owner lets run"), "{why}");
    assert!(client.bounded(a, WorkRequest::cpu(Duration::from_hours(9), 1.0)).is_none());
    assert!(!client.bounded(b, WorkRequest::cpu(Duration::from_hours(9), 1.0)).is_none());
    let cpus = client.plan_host().instances[ResourceType::Cpu];
    let held = client.held_below_share();
    assert!(cpus >= 2 && held.holds(a, ResourceType::Cpu) && !held.holds(b, ResourceType::Cpu));
    let used = PerType::cpu(Duration::from_secs(100));
    assert_eq!(held.but_of_held(a, &used), PerType::default());
    assert_eq!(held.but_of_held(b, &used), used);
    // A limit of one application leaves open what else comes, until its jobs gather. What is here can use
    // less than the project's share all the same.
    say(&mut client, &[(a, file("<app><name>app</name><max_concurrent>1</max_concurrent></app>"))]);
    client.look_what_is_enough();
    assert_eq!(client.held_below_share().most(a, ResourceType::Cpu), Some(0.5));
    let why = client.why_enough(a).unwrap();
    assert!(why.contains("of its jobs are here that cannot run now"), "{why}");
    say(&mut client, &[]);
    client.look_what_is_enough();
    assert_eq!(client.why_enough(a), None);
}

/// A version of project `id` that uses so many CPUs, with a file of it that is here.
fn send_version(client: &mut Client, id: ProjectId, app: &str, cpus: f64) {
    let program =
        FileReference { file_name: "program".to_owned(), main_program: true, ..FileReference::default() };
    let version = ApplicationVersion {
        app: app.to_owned(),
        number: 1,
        platform: "x86_64-pc-linux-gnu".to_owned(),
        plan_class: String::new(),
        api_version: None,
        files: vec![program],
        cpus,
        speed: None,
        command_line: String::new(),
        coprocessor: None,
        file_prefix: String::new(),
        dont_throttle: false,
        is_wrapper: false,
        needs_network: false,
    };
    client.insert_version(VersionKey::of(id, &version), version);
    client.insert_file(FileKey { project: id, name: "program".to_owned() }, new_file(false));
}

/// Nothing is owed for what the owner forbids, however long he does: else the project would have the host to
/// itself afterwards. Shows R2.7 and R3.6.
#[test]
fn r6_4_a_project_of_which_one_application_is_limited_is_owed_nothing_for_what_that_may_not_use() {
    const CPU: ResourceType = ResourceType::Cpu;
    let mut client = client(0, &["a", "b"]);
    client.edit_host(HostFacts { ncpus: 8, ..host(0) });
    let (a, b) = (id_of(&client, "a"), id_of(&client, "b"));
    for (id, app) in [(a, "app"), (a, "other"), (b, "app")] {
        send_version(&mut client, id, app, 1.0);
        client.ledger.type_answered(id, CPU, ReplyForType::Jobs(1), NOW, client.random.stream());
    }
    let (of_a, of_b) = (1..=200, 201..=240);
    for id in of_a.clone().chain(of_b) {
        put_job(&mut client, id, if of_a.contains(&id) { a } else { b }, Usage::ONE_CPU);
    }
    say(&mut client, &[(a, file("<app><name>app</name><max_concurrent>1</max_concurrent></app>"))]);
    client.look_what_is_enough();
    let hour = Duration::from_hours(1);
    let pass = |client: &mut Client, of_a: i64| {
        client.ledger.used(a, CPU, hour * of_a);
        client.ledger.used(b, CPU, hour * (8 - of_a));
        client.settle_long_term();
        let held = client.held_below_share();
        client.settle_debts(&held);
    };
    let owed = |client: &Client| {
        let overall = client.overall_debt(a, &client.plan_host()).as_secs();
        client.ledger.cpu_debt(a).as_secs().abs().max(overall.abs()) / 3_600.0
    };
    for _ in 0..240 {
        pass(&mut client, 1);
        assert!(owed(&client) <= 8.0, "{} CPU hours", owed(&client));
    }
    // As long as we do not ask it for more, nor does it earn anything while its jobs are still to come.
    let all_are = |client: &mut Client, stage| {
        for id in of_a.clone() {
            client.edit_job(JobId(id), |job| job.stage = stage);
        }
    };
    all_are(&mut client, Stage::Downloading);
    client.look_what_is_enough();
    assert!(client.gathered(a)[CPU] && !client.held_below_share().holds(a, CPU));
    for _ in 0..240 {
        pass(&mut client, 0);
    }
    assert!(owed(&client) <= 8.0, "{} CPU hours", owed(&client));
    all_are(&mut client, Stage::Runnable);
    say(&mut client, &[]);
    client.decide_what_runs();
    let begun = |id| client.state.jobs.values().filter(|job| job.project == id && job.run.starts > 0).count();
    assert_eq!((begun(a), begun(b)), (4, 4));
}

/// Two projects whose jobs come, on a host of 8 CPUs, with so many jobs of each.
fn with_jobs(of_a: u64, of_b: u64) -> (Client, ProjectId, ProjectId) {
    let mut client = client(0, &["a", "b"]);
    client.edit_host(HostFacts { ncpus: 8, ..host(0) });
    let (a, b) = (id_of(&client, "a"), id_of(&client, "b"));
    for id in [a, b] {
        send_version(&mut client, id, "app", 1.0);
        let kind = ResourceType::Cpu;
        client.ledger.type_answered(id, kind, ReplyForType::Jobs(1), NOW, client.random.stream());
    }
    for id in 1..=of_a + of_b {
        put_job(&mut client, id, if id <= of_a { a } else { b }, Usage::ONE_CPU);
    }
    (client, a, b)
}

/// What a project is owed over all after so many hours in which both used so many CPUs, in CPU hours.
fn owed_after(
    client: &mut Client,
    hours: i64,
    (a, of_a): (ProjectId, i64),
    (b, of_b): (ProjectId, i64),
) -> f64 {
    let hour = Duration::from_hours(1);
    for _ in 0..hours {
        client.ledger.used(a, ResourceType::Cpu, hour * of_a);
        client.ledger.used(b, ResourceType::Cpu, hour * of_b);
        client.settle_long_term();
    }
    client.overall_debt(a, &client.plan_host()).as_secs() / 3_600.0
}

/// One whose jobs fill all places that the owner leaves it is asked for no more, and pays for what it uses.
/// Shows R3.6.
#[test]
fn r6_4_a_project_that_has_all_its_places_and_more_than_its_share_owes_the_others() {
    let (mut client, a, b) = with_jobs(400, 20);
    say(&mut client, &[(a, file("<project_max_concurrent>6</project_max_concurrent>"))]);
    client.look_what_is_enough();
    let held = client.held_below_share();
    assert!(client.gathered(a)[ResourceType::Cpu] && !held.holds(a, ResourceType::Cpu));
    let owed = owed_after(&mut client, 48, (a, 6), (b, 2));
    assert!((owed + 96.0).abs() < 1.0, "{owed} CPU hours");
}

/// Where a third one sends nothing, its share is what it has beside those that do. Shows R3.6.
#[test]
fn r6_4_a_project_that_has_all_its_places_earns_nothing_while_another_one_sends_nothing() {
    let (mut client, a, b) = with_jobs(400, 20);
    client.handle(NOW, attach_unseen(url("c"), AccountKey::new(KEY), None));
    say(&mut client, &[(a, file("<project_max_concurrent>3</project_max_concurrent>"))]);
    client.look_what_is_enough();
    let held = client.held_below_share();
    assert!(client.gathered(a)[ResourceType::Cpu] && !held.holds(a, ResourceType::Cpu));
    let owed = owed_after(&mut client, 48, (a, 3), (b, 5));
    assert!(owed.abs() < 1e-6, "{owed} CPU hours");
}

/// Else one that had much and then is held to little would be asked last for ever, and one that was owed much
/// would have the host to itself when the limit goes. Shows R3.6.
#[test]
fn r6_4_a_project_that_the_owner_holds_below_its_share_owes_nothing_from_before_and_is_owed_nothing() {
    for (of_a, of_b) in [(8, 0), (0, 8)] {
        let (mut client, a, b) = with_jobs(4, 4);
        let before = owed_after(&mut client, 100, (a, of_a), (b, of_b));
        assert!(before.abs() > 300.0, "{before} CPU hours");
        say(&mut client, &[(a, file("<project_max_concurrent>1</project_max_concurrent>"))]);
        assert_eq!(owed_after(&mut client, 1, (a, 1), (b, 7)), 0.0);
        say(&mut client, &[]);
        let after = owed_after(&mut client, 1, (a, 4), (b, 4));
        assert!(after.abs() < 1.0, "{after} CPU hours");
    }
    // What is so only as long as its jobs are of one application keeps what is owed.
    let (mut client, a, b) = with_jobs(40, 4);
    let before = owed_after(&mut client, 100, (a, 8), (b, 0));
    say(&mut client, &[(a, file("<app><name>app</name><max_concurrent>1</max_concurrent></app>"))]);
    send_version(&mut client, a, "other", 1.0);
    assert!(client.held_below_share().holds(a, ResourceType::Cpu));
    assert_eq!(owed_after(&mut client, 1, (a, 1), (b, 7)), before);
}

/// Both would come, and have one place.
#[test]
fn r6_4_the_first_request_of_a_project_asks_for_a_place_once() {
    let mut client = client(1, &["a"]);
    let a = id_of(&client, "a");
    let all = |kind| u32::from(client.plan_host().instances[kind] > 0);
    let usable = PerType::from_fn(all);
    let wanted = WorkRequest {
        seconds: usable.map(|_, some| fallow_domain::InstanceSeconds::new(f64::from(*some) * 1e5)),
        instances: usable.map(|_, some| f64::from(*some)),
    };
    let types = |client: &Client| client.bounded(a, wanted).types().collect::<Vec<_>>();
    assert_eq!(types(&client), [ResourceType::Cpu, ResourceType::Nvidia]);
    say(&mut client, &[(a, file("<project_max_concurrent>1</project_max_concurrent>"))]);
    assert_eq!(types(&client), [ResourceType::Nvidia]);
    // The plan asks for CPU jobs alone, for it has none on GPUs, or may have none.
    let cpu = WorkRequest::cpu(Duration::from_hours(9), 1.0);
    assert_eq!(client.bounded(a, cpu).types().collect::<Vec<_>>(), [ResourceType::Cpu]);
    // Of types that the host has not nothing is told.
    client.look_what_is_enough();
    assert_eq!(client.why_enough(a), None);
}

/// What its jobs are counted with is stored; the file is not.
#[test]
fn r6_4_a_file_that_went_while_the_agent_was_off_counts_no_jobs_any_more() {
    let mut client = client(0, &["a"]);
    let a = id_of(&client, "a");
    let id = put_job(&mut client, 1, a, Usage::ONE_CPU);
    client.edit_job(id, |job| (job.usage, job.declared) = (Usage::from_cpus(2.0), Some(Usage::ONE_CPU)));
    assert_eq!(client.workload.queue().get(id).unwrap().usage, Usage::from_cpus(2.0));
    say(&mut client, &[]);
    assert_eq!((counted(&client, id), client.state.jobs[&id].declared), ((1.0, None), None));
    assert_eq!(client.workload.queue().get(id).unwrap().usage, Usage::ONE_CPU);
}

#[test]
fn r6_4_without_jobs_a_project_is_held_below_its_share_by_what_its_versions_use() {
    let mut client = client(0, &["a", "b"]);
    client.edit_host(HostFacts { ncpus: 16, ..host(0) });
    let a = id_of(&client, "a");
    say(&mut client, &[(a, file("<project_max_concurrent>1</project_max_concurrent>"))]);
    let most = |client: &Client| client.held_below_share().most(a, ResourceType::Cpu);
    assert_eq!(most(&client), Some(1.0), "nothing is known of it");
    send_version(&mut client, a, "app", 8.0);
    assert_eq!(most(&client), None, "one of them uses its share");
    // As large as the owner says they are.
    let counted = "<app_version><app_name>app</app_name><avg_ncpus>3</avg_ncpus></app_version>";
    let limited = format!("<project_max_concurrent>1</project_max_concurrent>{counted}");
    say(&mut client, &[(a, file(&limited))]);
    assert_eq!(most(&client), Some(3.0));
}

/// What it is started with is of the same file.
#[test]
fn r6_4_a_job_that_is_started_again_is_counted_with_what_the_file_says_then() {
    let mut client = client(0, &["a"]);
    let a = id_of(&client, "a");
    send_version(&mut client, a, "app", 1.0);
    let of_version = "<app_version><app_name>app</app_name><avg_ncpus>2</avg_ncpus></app_version>";
    let id = put_job(&mut client, 1, a, Usage::ONE_CPU);
    let workunit = FileKey { project: a, name: client.state.jobs[&id].result.workunit.clone() };
    client.insert_workunit(workunit, Workunit { app: "app".to_owned(), ..Workunit::default() });
    let runs = |client: &mut Client, process| {
        client.edit_job(id, |job| {
            (job.process, job.slot, job.run.begun) = (process, Some(SlotId(0)), true);
        });
    };
    let told = |client: &Client| {
        let setup = client.task_setup(id, SlotId(0), false).unwrap();
        assert_eq!(client.workload.queue().get(id).unwrap().usage, client.state.jobs[&id].usage);
        (counted(client, id).0, setup.init_data.ncpus)
    };
    // It leaves memory, and its process ends.
    runs(&mut client, Process::Quitting(Some(7)));
    say(&mut client, &[(a, file(of_version))]);
    assert_eq!(counted(&client, id), (1.0, None), "it runs as it was begun");
    let end = TaskEnd {
        exit: exit::Ended::Signal { number: 15, core_dumped: false },
        finish: None,
        temporary_exit: None,
        cpu_time: Duration::ZERO,
        is_charged: false,
        stderr: String::new(),
        outputs: Vec::new(),
        peak_working_set: Bytes(0),
        disk_usage: Bytes(0),
        made_room: None,
        memory_exceeded: None,
        killed: None,
    };
    client.task_ended(id, &end);
    assert_eq!(told(&client), (2.0, 2.0));
    // The same when the owner takes it back, and the start fails.
    runs(&mut client, Process::Starting);
    say(&mut client, &[]);
    assert_eq!(counted(&client, id), (2.0, None));
    client.task_start_failed(id, "no process".to_owned(), StartFault::Slot);
    assert_eq!(told(&client), (1.0, 1.0));
    // And when it was on its way out with the agent.
    runs(&mut client, Process::Executing(7));
    say(&mut client, &[(a, file(of_version))]);
    client.fall_back(id);
    assert_eq!(told(&client), (2.0, 2.0));
}

#[test]
fn r6_4_when_a_project_is_attached_the_files_of_others_stay_as_they_were_read() {
    let mut client = client(0, &["a", "b", "c"]);
    let [a, b, c] = ["a", "b", "c"].map(|name| id_of(&client, name));
    let limit = file("<project_max_concurrent>1</project_max_concurrent>");
    tell(&mut client, &[(a, limit.clone())]);
    let before = client.app_config_view(a);
    client.handle(NOW, attach_unseen(url("d"), AccountKey::new(KEY), None));
    let d = id_of(&client, "d");
    // Their owner is about to write them, or they cannot be read at this moment.
    let wrong = || AppConfigFound::Wrong(vec!["/dir/app_config.xml: line 3: no number".to_owned()]);
    let found = BTreeMap::from([(a, wrong()), (b, limit.clone()), (d, limit.clone())]);
    client.handle(NOW, Event::NewAppConfigsRead(found));
    assert_eq!((client.app_config_view(a), client.app_config_view(b)), (before, None));
    let id = put_job(&mut client, 1, a, Usage::ONE_CPU);
    assert!(client.workload.queue().get(id).is_some());
    client.forget_job(id, false);
    assert_eq!(client.app_config_view(d).unwrap().says, ["at most 1 of its jobs at once (0 now)"]);
    // One that is wrong from the beginning may forbid.
    client.handle(NOW, Event::Detach { url: url("d") });
    client.handle(NOW, attach_unseen(url("d"), AccountKey::new(KEY), None));
    let d = id_of(&client, "d");
    client.handle(NOW, Event::NewAppConfigsRead(BTreeMap::from([(d, wrong())])));
    assert!(client.app_config_view(d).unwrap().is_wrong);
    // The owner says when he is done.
    tell(&mut client, &[(b, limit)]);
    assert_eq!((client.app_config_view(a), client.app_config_view(c)), (None, None));
    assert!(client.app_config_view(b).is_some());
}

#[test]
fn r6_4_a_file_of_that_name_that_the_project_itself_has_sent_says_nothing_and_that_is_told() {
    let mut client = client(0, &["a"]);
    let a = id_of(&client, "a");
    assert!(!client.has_sent_app_config(a));
    client.insert_file(FileKey { project: a, name: "app_config.xml".to_owned() }, new_file(false));
    assert!(client.has_sent_app_config(a));
    let step = tell(&mut client, &[(a, AppConfigFound::Sent)]);
    let told = |action: &crate::Action| matches!(&action.effect, Effect::Notice { text, .. } if text.contains("the project has sent this file"));
    assert!(step.actions.iter().any(told));
    let view = client.app_config_view(a).unwrap();
    assert!(!view.is_wrong && view.says.is_empty() && view.remarks.len() == 1);
    let id = put_job(&mut client, 1, a, Usage::ONE_CPU);
    assert!(client.workload.queue().get(id).is_some() && client.workload.queue().at_once(a).is_none());
}

#[test]
fn r6_4_what_a_file_says_is_told_in_words_and_nothing_begins_beyond_it() {
    let mut client = client(0, &["a"]);
    let a = id_of(&client, "a");
    for id in 1..=3 {
        put_job(&mut client, id, a, Usage::ONE_CPU);
    }
    let said = "<app><name>app</name><max_concurrent>1</max_concurrent><report_results_immediately/></app>
        <bogus/><app_version><app_name>app</app_name><cmdline>-t 2</cmdline></app_version>
        <project_max_concurrent>2</project_max_concurrent>";
    say(&mut client, &[(a, file(said))]);
    let view = client.app_config_view(a).unwrap();
    let expected = [
        "at most 2 of its jobs at once (0 now)",
        "app at most 1 at once (0 now)",
        "app is reported at once",
        "app is started with -t 2",
    ];
    assert_eq!(view.says, expected);
    assert!(view.remarks.len() == 1 && view.remarks[0].starts_with("line 3: <bogus> is not known here"));
    let version = client.state.jobs[&JobId(1)].version.clone();
    assert_eq!(client.app_configs.command_line(&version), Some("-t 2"));
    assert!(client.app_configs.reports_at_once(a, "app") && !client.app_configs.reports_at_once(a, "other"));
}
