//! What BOINC's file and several projects' web sites say, and what projects are asked and told (R6.4, R1.11).

use fallow_boinc::scheduler::{SchedulerReply, SchedulerRequest};

use super::project::{self, endless};
use super::{Host, WAITS};
use crate::attach::{RIGHT, attach, status};
use crate::daemon::outcome;
use crate::support::wait_for;
use crate::turns::{calls, working_with};

/// By the policy that fills buffers, as BOINC does it: the agent's own one fetches just in time, and both
/// buffers are the most that it holds ahead.
#[test]
fn r1_11_r6_4_work_is_asked_for_as_far_as_both_buffers_of_the_override_reach() {
    let (server, mut host) = (endless(project::WAITS), Host::new());
    host.write_over("<max_ncpus_pct>0.1</max_ncpus_pct>");
    host.start_with(|run| {
        run.args(["--policy", "CS2_WF2"]);
    });
    host.begin(&server);
    let asks = |least: f64, more: f64| {
        host.over(&format!(
            "<max_ncpus_pct>0.1</max_ncpus_pct>\n<work_buf_min_days>{least}</work_buf_min_days>\n\
             <work_buf_additional_days>{more}</work_buf_additional_days>"
        ));
        wait_for("a request that tells of it", || {
            let tells = |request: &SchedulerRequest| {
                request.global_preferences.as_ref().is_some_and(|told| {
                    (told.work_buf_min_days, told.work_buf_additional_days) == (least, more)
                })
            };
            calls(&server).into_iter().rev().find(|request| request.cpu_req_secs > 0.0 && tells(request))
        })
    };
    let first = asks(1.0, 0.0);
    // Of the one CPU that may be used.
    let days = |request: &SchedulerRequest| request.cpu_req_secs / 86_400.0;
    println!("{} days", days(&first));
    // But for the few jobs that are here.
    assert!((0.8..1.1).contains(&days(&first)), "{}", days(&first));
    for (least, more) in [(1.0, 2.0), (3.0, 0.0)] {
        let part = days(&asks(least, more)) / days(&first);
        println!("{least} and {more}: {part} times as much");
        assert!((2.6..3.3).contains(&part), "{least} and {more}: {part}");
    }
    // Projects hear that the preferences are this host's own.
    assert!(first.global_preferences.unwrap().override_file_present);
}

/// Computing is allowed at no hour by what was edited then, or at all hours.
fn edited(reply: &mut SchedulerReply, mod_time: u32, start_hour: u32) {
    reply.global_preferences = Some(format!(
        "<source_project>http://elsewhere.example.org/</source_project>\n<mod_time>{mod_time}</mod_time>\n\
         <start_hour>{start_hour}</start_hour>\n<end_hour>0</end_hour>\n<run_on_batteries>1</run_on_batteries>\n\
         <suspend_cpu_usage>0</suspend_cpu_usage>"
    ));
}

#[test]
fn r6_4_of_two_web_sites_the_one_that_was_edited_last_says_when_tasks_run_until_its_project_is_detached() {
    let never = working_with(WAITS, |reply| edited(reply, 2_000, 24));
    let always = working_with(WAITS, |reply| edited(reply, 1_000, 0));
    let mut host = Host::new();
    host.start();
    host.begin(&always);
    let source = |key: &str| host.preference(key)["source"].as_str().unwrap().to_owned();
    assert!(source("run_on_batteries").contains(&always.url("")), "{}", source("run_on_batteries"));
    assert_eq!(attach(host.path(), &never.url(""), RIGHT, &["--no-wait"]).0, 0);
    host.stops("hours");
    // Who sent them is shown, whatever they say of where they were edited.
    assert!(source("hours").contains(&never.url("")), "{}", source("hours"));
    let (_, all) = outcome(host.path(), &["preferences", "--why"]);
    assert!(!all.contains("elsewhere"), "{all}");
    // Those that were edited before have come again and again since.
    let heard = calls(&always).len();
    assert_eq!(outcome(host.path(), &["update", &always.url("")]).0, 0);
    wait_for("another answer", || (calls(&always).len() > heard).then_some(()));
    assert_eq!(status(host.path())["host"]["suspended_by"], "hours");
    assert_eq!(outcome(host.path(), &["detach", &never.url("")]).0, 0);
    host.goes_on();
    assert!(source("run_on_batteries").contains(&always.url("")));
}
