//! Several projects at once: what one withholds costs no other its turn, and the owner's word goes through.

use std::sync::Mutex;

use fallow_boinc::scheduler::{
    App, AppVersion, FileInfo, FileRef, ReportedResult, ResultJob, ResultState, SchedulerReply,
    SchedulerRequest, Workunit,
};
use fallow_boinc::signature::{PrivateKey, md5_hex};
use fallow_domain::{Duration, Flops, Instant};

use crate::attach::{RIGHT, WRONG, attach, project, status};
use crate::daemon::{Daemon, outcome};
use crate::support::wait_for;
use crate::transfers::{Asked, Server, http};

/// A program as short as can be: it says that it is done.
const PROGRAM: &[u8] = b"#!/bin/sh\necho 0 > boinc_finish_called\n";

fn page(asked: &Asked) -> Option<Vec<u8>> {
    let host = asked.head.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
    let text = format!("<html><!-- <scheduler>http://{host}/p/cgi</scheduler> --></html>");
    asked.head.starts_with("get /p/ ").then(|| http("200 OK", "", text.as_bytes()))
}

/// What a scheduler is asked. None for what another program sends, which knew this port for that of a server
/// which has gone.
pub(crate) fn call(asked: &Asked) -> Option<SchedulerRequest> {
    if !asked.head.starts_with("post /p/cgi ") {
        println!("not for this project: {} {}", asked.head, asked.text());
        return None;
    }
    let request = SchedulerRequest::parse(&asked.body);
    Some(request.unwrap_or_else(|error| panic!("{error}: {} {}", asked.head, asked.text())))
}

/// All that a scheduler was asked.
pub(crate) fn calls(server: &Server) -> Vec<SchedulerRequest> {
    posts(server).iter().filter_map(call).collect()
}

/// The answer to what is not known here.
pub(crate) fn unknown() -> Vec<u8> {
    http("404 Not Found", "", b"no such page")
}

/// A project whose scheduler takes a request and never answers.
fn hanging() -> Server {
    Server::start(|asked| match page(asked) {
        Some(page) => page,
        None => loop {
            std::thread::park();
        },
    })
}

/// Numbers for a key that guards nothing.
pub(crate) fn random() -> impl FnMut(&mut [u8]) {
    let mut state = 1_u64;
    move |bytes| {
        for byte in bytes {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (state >> 56) as u8;
        }
    }
}

/// A project that sends a job for each request, and wants its result at once.
pub(crate) fn working(program: &'static [u8]) -> Server {
    working_with(program, |_| ())
}

/// The same of a project that adds something to each reply.
pub(crate) fn working_with(program: &'static [u8], add: fn(&mut SchedulerReply)) -> Server {
    let key = PrivateKey::generate(&mut random()).unwrap();
    let signature = key.sign_file(&md5_hex(program), &mut random()).unwrap();
    let sent = Mutex::new(0);
    Server::start(move |asked| {
        if let Some(page) = page(asked) {
            return page;
        }
        if asked.head.starts_with("get /p/program ") {
            return http("200 OK", "", program);
        }
        let host = asked.head.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
        let Some(request) = call(asked) else { return unknown() };
        let mut sent = sent.lock().unwrap();
        *sent += 1;
        let signed = (key.public_key().to_text(), signature.clone());
        let mut reply = reply(&request, &format!("http://{host}/p/program"), signed, *sent);
        add(&mut reply);
        http("200 OK", "", reply.write().as_bytes())
    })
}

fn reply(
    request: &SchedulerRequest,
    program: &str,
    (key, signature): (String, String),
    number: u32,
) -> SchedulerReply {
    let platform = request.platform_name.clone();
    let refer = FileRef { file_name: "program".into(), main_program: true, ..FileRef::default() };
    let mut reply = SchedulerReply {
        hostid: (request.hostid == 0).then_some(7),
        request_delay: Duration::from_secs(1),
        code_sign_key: Some(key),
        result_acks: request.results.iter().map(|result| result.name.clone()).collect(),
        ..SchedulerReply::default()
    };
    if request.cpu_req_secs > 0.0 {
        reply.apps.push(App { name: "app".into(), ..App::default() });
        reply.files.push(FileInfo {
            name: "program".into(),
            download_urls: vec![program.to_owned()],
            executable: true,
            signature_required: true,
            file_signature: Some(signature),
            ..FileInfo::default()
        });
        reply.app_versions.push(AppVersion {
            app_name: "app".into(),
            version_num: 1,
            platform: platform.clone(),
            files: vec![refer],
            ..AppVersion::default()
        });
        let name = format!("job{number}");
        reply.workunits.push(Workunit {
            name: name.clone(),
            app_name: "app".into(),
            rsc_fpops_est: Some(Flops::new(1e9).unwrap()),
            ..Workunit::default()
        });
        reply.results.push(ResultJob {
            name: name.clone(),
            wu_name: name,
            report_deadline: Instant::from_secs_f64(4e9),
            platform,
            version_num: 1,
            report_immediately: true,
            ..ResultJob::default()
        });
    }
    reply
}

fn posts(server: &Server) -> Vec<Asked> {
    server.asked().into_iter().filter(|asked| asked.head.starts_with("post /p/cgi ")).collect()
}

/// All that was reported to a project.
pub(crate) fn reported(server: &Server) -> Vec<ReportedResult> {
    calls(server).into_iter().flat_map(|request| request.results).collect()
}

#[test]
fn r1_10_a_project_that_does_not_answer_keeps_another_ones_jobs_from_nothing() {
    let (hanging, working) = (hanging(), working(PROGRAM));
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let _daemon = Daemon::start(dir);
    assert_eq!(attach(dir, &hanging.url(""), RIGHT, &["--no-wait"]).0, 0);
    wait_for("the call that is not answered", || (posts(&hanging).len() == 1).then_some(()));
    assert_eq!(attach(dir, &working.url(""), RIGHT, &["--no-wait"]).0, 0);
    // It is waited for a while before the same work is asked of another.
    let results = wait_for("jobs to be fetched, computed and reported", || {
        Some(reported(&working)).filter(|results| results.len() >= 3)
    });
    let good = |result: &ReportedResult| result.state == ResultState::Uploaded && result.exit_status == 0;
    assert!(results.iter().all(good), "{results:?}");
    assert_eq!(posts(&hanging).len(), 1, "and still it is not answered");
}

#[test]
fn r1_4_an_update_goes_out_during_a_delay_that_the_project_asked_for_and_says_so() {
    let server = project();
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let _daemon = Daemon::start(dir);
    assert_eq!(attach(dir, &server.url(""), WRONG, &["--no-wait"]).0, 0);
    wait_for("the delay of an hour", || {
        status(dir)["projects"][0]["min_rpc"][1].as_str().filter(|why| why.contains("delay")).map(|_| ())
    });
    assert_eq!(posts(&server).len(), 1);
    let (code, text) = outcome(dir, &["update", &server.url("")]);
    assert!(code == 0 && text.contains("contacted now, although the project asked for a delay"), "{text}");
    wait_for("another contact", || (posts(&server).len() == 2).then_some(()));
}
