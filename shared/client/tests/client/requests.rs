//! Requests of this client beside captured ones of the stock client 7.20.5.
//!
//! What is compared is the shape: which elements there are, in which order. Where ours differ:
//! - `<wsl_available>` is for Windows hosts, and today's clients send a list instead: not sent.
//! - `<final_peak_swap_size>` is not sent: an agent measures main memory only.
//! - `<is_wrapper>` stands where an application is a wrapper, as one of the captured project's is.
//! - Peaks of memory and disk stand where they were measured; the captured jobs ended before the first look at them.

use fallow_client::{Event, Phase};
use fallow_domain::{Duration, MasterUrl};

use crate::life::{document, small_buffers};
use crate::world::World;

/// The tags of a request as paths, each once, in order of first appearance.
fn shape(xml: &str) -> Vec<String> {
    let mut stack: Vec<String> = Vec::new();
    let mut paths = Vec::new();
    let mut rest = xml;
    while let Some(start) = rest.find('<') {
        rest = &rest[start..];
        if let Some(end) = rest.strip_prefix("<![CDATA[").and_then(|_| rest.find("]]>")) {
            rest = &rest[end + 3..];
            continue;
        }
        let end = rest.find('>').unwrap();
        let tag = rest[1..end].trim();
        if tag.starts_with('/') {
            stack.pop();
        } else {
            stack.push(tag.trim_end_matches('/').trim().to_owned());
            let path = stack.join("/");
            if !paths.contains(&path) {
                paths.push(path);
            }
            if tag.ends_with('/') {
                stack.pop();
            }
        }
        rest = &rest[end + 1..];
    }
    paths
}

fn captured(http: &[u8]) -> String {
    let text = String::from_utf8_lossy(http).into_owned();
    text[text.find("<scheduler_request>").unwrap()..].to_owned()
}

const NOT_OURS: [&str; 3] =
    ["/host_info/wsl_available", "/result/final_peak_swap_size", "/app_version/is_wrapper"];

#[track_caller]
fn check(ours: &str, theirs: &[u8], only_ours: &[&str]) {
    let keep = |path: &String, list: &[&str]| !list.iter().any(|end| path.ends_with(end));
    let theirs: Vec<String> =
        shape(&captured(theirs)).into_iter().filter(|path| keep(path, &NOT_OURS)).collect();
    let ours: Vec<String> = shape(ours).into_iter().filter(|path| keep(path, only_ours)).collect();
    assert_eq!(ours, theirs);
}

fn requests() -> Vec<String> {
    let mut world = World::new(20);
    world.add_project("a", 2, Duration::from_secs(30));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers())));
    let reportable = |w: &World| w.client.task_views().iter().any(|task| task.phase == Phase::ReadyToReport);
    world.run_until("a job to be reported", Duration::from_hours(1), reportable);
    world.event(Event::ContactRequested { url: MasterUrl::parse("http://127.0.0.1/a/").unwrap() });
    world.run_until("both jobs acknowledged", Duration::from_hours(3), |w| w.acknowledged("a") == 2);
    world.requests
}

#[test]
fn r6_2_the_first_request_has_the_shape_of_the_stock_clients() {
    check(
        &requests()[0],
        include_bytes!("../../../boinc/fixtures/captures/04_POST_anchor_cgi-cgi.request"),
        &[],
    );
}

#[test]
fn r6_2_a_request_that_reports_a_job_has_the_shape_of_the_stock_clients() {
    let requests = requests();
    let reporting = requests.iter().find(|request| request.contains("<result>")).unwrap();
    let theirs = include_bytes!("../../../boinc/fixtures/captures/46_POST_anchor_cgi-cgi.request");
    let measured = ["/result/final_peak_working_set_size", "/result/final_peak_disk_usage"];
    check(reporting, theirs, &measured);
}
