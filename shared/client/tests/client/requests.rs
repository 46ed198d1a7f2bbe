//! Requests of this client beside captured ones of the stock client 7.20.5.
//!
//! What is compared is the shape: which elements there are, in which order. Where ours differ:
//! - `<wsl_available>` is for Windows hosts, and today's clients send a list instead: not sent.
//! - `<final_peak_swap_size>` is not sent: an agent measures main memory only.
//! - `<is_wrapper>` stands where an application is a wrapper, as one of the captured project's is.
//! - Peaks of memory and disk stand where they were measured; the captured jobs ended before the first look
//!   at them.

use fallow_client::{Direction, Event, Phase, RequestedBy, Traffic};
use fallow_domain::{Bytes, Duration, MasterUrl};

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

/// Elements that hold no others, with what stands in them, each once.
fn values(xml: &str) -> std::collections::BTreeMap<String, String> {
    let mut stack: Vec<&str> = Vec::new();
    let mut values = std::collections::BTreeMap::new();
    for piece in xml.split('<').skip(1) {
        let Some((tag, text)) = piece.split_once('>') else { continue };
        if tag.starts_with('/') {
            stack.pop();
        } else if !tag.ends_with('/') {
            stack.push(tag.trim());
            values.insert(stack.join("/"), text.trim().to_owned());
        }
    }
    values
}

/// Whether something is said, more than that nothing is known.
fn says_something(value: &str) -> bool {
    !value.is_empty() && value.parse::<f64>().map_or(true, |number| number != 0.0 && number != -1.0)
}

/// Elements of the stock client's request that say something while ours say nothing, each with its reason.
const SAY_NOTHING: [&str; 11] = [
    // Hosts rest on their batteries unless somebody says otherwise.
    "run_on_batteries",
    // Preferences that an agent has none of: it never stops for programs of others, nor for a full swap
    // space.
    "disk_max_used_gb",
    "battery_charge_min_pct",
    // What the captured host has and the modelled one lacks.
    "host_info/p_features",
    "host_info/p_calculated",
    "host_info/timezone",
    // The version that is spoken is 8.3.0.
    "core_client_release",
    // Nothing is idle at that moment, no job is held, and the modelled project gives no such id.
    "cpu_req_instances",
    "other_result/name",
    "cross_project_id",
    // The modelled host's has only zeros.
    "host_info/host_cpid",
];

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
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    let reportable = |w: &World| w.client.task_views().iter().any(|task| task.phase == Phase::ReadyToReport);
    world.run_until("a job to be reported", Duration::from_hours(1), reportable);
    world.event(Event::ContactRequested {
        url: MasterUrl::parse("http://127.0.0.1/a/").unwrap(),
        by: RequestedBy::Fleet,
    });
    world.run_until("both jobs acknowledged", Duration::from_hours(3), |w| w.acknowledged("a") == 2);
    world.requests
}

/// Shows R3.2 as well.
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

#[test]
fn r6_2_what_the_stock_client_tells_of_itself_we_tell_too() {
    let mut world = World::new(20);
    world.add_project("a", 8, Duration::from_secs(600));
    // As it is unless its user says otherwise.
    let preferences = fallow_domain::Preferences { run_in_use: true, ..small_buffers() };
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], preferences).into()));
    let done = |w: &World| w.acknowledged("a") >= 1;
    world.run_until("a job acknowledged", Duration::from_hours(3), done);
    world.restart();
    world.run_for(Duration::from_mins(5));
    let part = |direction| Traffic { direction, bytes: Bytes(400_000), took: Duration::from_secs(4) };
    world.event(Event::TrafficMeasured(Direction::BOTH.map(part).to_vec()));
    world.event(Event::ContactRequested {
        url: MasterUrl::parse("http://127.0.0.1/a/").unwrap(),
        by: RequestedBy::Fleet,
    });
    let before = world.requests.len();
    world.run_until("another request", Duration::from_hours(3), |w| w.requests.len() > before);
    let ours = values(world.requests.last().unwrap());
    let theirs = include_bytes!("../../../boinc/fixtures/captures/46_POST_anchor_cgi-cgi.request");
    let theirs = values(&captured(theirs));
    let silent: Vec<&String> = theirs
        .iter()
        .filter(|(path, value)| says_something(value) && !path.contains("/result/") && !path.contains("wsl"))
        .filter(|(path, _)| !ours.get(*path).is_some_and(|value| says_something(value)))
        .map(|(path, _)| path)
        .filter(|path| !SAY_NOTHING.iter().any(|end| path.ends_with(end)))
        .collect();
    assert_eq!(silent, Vec::<&String>::new());
    for ours_only in ["previous_uptime", "bwdown", "avg_down", "session_gpu_active_duration"] {
        let (path, value) = ours.iter().find(|(path, _)| path.ends_with(ours_only)).unwrap();
        assert!(says_something(value), "{path}: {value}");
    }
}
