//! R6.4: what the owner says of a project's applications, in the whole client.

use std::collections::BTreeMap;

use fallow_boinc::app_config::AppConfig;
use fallow_domain::{Duration, JobId, PerType, ProjectId, ResourceType, Usage};
use fallow_policy::fetch::WorkRequest;
use fallow_policy::job_queue::Devices;

use super::{NOW, client, id_of, put_job};
use crate::machine::Client;
use crate::state::Process;
use crate::{AppConfigFound, Effect, Event, Step};

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
    let held =
        |client: &Client, id| client.is_held_below_share(&client.state.projects[&id], ResourceType::Cpu);
    let cpus = client.plan_host().instances[ResourceType::Cpu];
    assert!(cpus >= 2 && held(&client, a) && !held(&client, b));
    let used = PerType::cpu(Duration::from_secs(100));
    assert_eq!(client.but_of_held(&client.state.projects[&a], &used), PerType::default());
    assert_eq!(client.but_of_held(&client.state.projects[&b], &used), used);
    // A limit of one application leaves open what else comes, until its jobs gather.
    say(&mut client, &[(a, file("<app><name>app</name><max_concurrent>1</max_concurrent></app>"))]);
    client.look_what_is_enough();
    assert!(!held(&client, a));
    let why = client.why_enough(a).unwrap();
    assert!(why.contains("of its jobs are here that cannot run now"), "{why}");
    say(&mut client, &[]);
    client.look_what_is_enough();
    assert_eq!(client.why_enough(a), None);
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
