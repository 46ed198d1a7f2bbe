//! How fast files go, as BOINC's file says it, and that they wait for people: a real program that comes, and
//! a real output that is sent (R6.4).

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fallow_boinc::scheduler::{FileInfo, FileRef, SchedulerReply};
use fallow_boinc::signature::{PrivateKey, md5_hex};
use fallow_domain::Bytes;

use super::Host;
use super::project::{WAITS, describe, program_file};
use crate::attach::{RIGHT, attach, status};
use crate::daemon::outcome;
use crate::support::wait_for;
use crate::transfers::{Server, http};
use crate::turns::{call, random, unknown};

/// What the program and its output hold each.
const LENGTH: usize = 500_000;

/// A job that makes an output and is done.
fn program() -> Vec<u8> {
    let mut program =
        format!("#!/bin/sh\nhead -c {LENGTH} /dev/zero >out\necho 0 >boinc_finish_called\nexit\n");
    program.extend(std::iter::repeat_n('#', LENGTH - program.len()));
    program.into_bytes()
}

/// When what was asked, by the first words of each request, as far as they are told here.
type Heard = Arc<Mutex<Vec<(&'static str, Instant)>>>;

/// A project with one such job.
fn project(heard: Heard) -> Server {
    let program = program();
    let key = PrivateKey::generate(&mut random()).unwrap();
    let signature = key.sign_file(&md5_hex(&program), &mut random()).unwrap();
    Server::start(move |asked| {
        let host = asked.head.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
        let hear = |what| heard.lock().unwrap().push((what, Instant::now()));
        match &asked.head {
            head if head.starts_with("get /p/program ") => {
                hear("program");
                http("200 OK", "", &program)
            }
            head if head.starts_with("post /p/up ") => {
                hear(if asked.text().contains("get_file_size") { "asks" } else { "output" });
                let text = "<data_server_reply>\n<status>0</status>\n<file_size>0</file_size>\n</data_server_reply>\n";
                http("200 OK", "", text.as_bytes())
            }
            head if head.starts_with("get /p/ ") => {
                let text = format!("<html><!-- <scheduler>http://{host}/p/cgi</scheduler> --></html>");
                http("200 OK", "", text.as_bytes())
            }
            _ => {
                let Some(request) = call(asked) else { return unknown() };
                hear("call");
                let mut reply = SchedulerReply {
                    hostid: Some(7),
                    request_delay: fallow_domain::Duration::from_secs(1),
                    code_sign_key: Some(key.public_key().to_text()),
                    result_acks: request.results.iter().map(|result| result.name.clone()).collect(),
                    ..SchedulerReply::default()
                };
                if request.hostid == 0 {
                    reply.files.push(program_file(host, &signature));
                    describe(&mut reply, &request.platform_name, 0, &WAITS);
                    reply.files.push(FileInfo {
                        name: "output".into(),
                        upload_urls: vec![format!("http://{host}/p/up")],
                        max_nbytes: Some(Bytes(1_000_000)),
                        ..FileInfo::default()
                    });
                    let out = FileRef {
                        file_name: "output".into(),
                        open_name: Some("out".into()),
                        ..FileRef::default()
                    };
                    reply.results[0].files.push(FileRef { copy_file: true, ..out });
                }
                http("200 OK", "", reply.write().as_bytes())
            }
        }
    })
}

/// That it takes no shorter is the limit's own doing, whatever the machine does.
#[test]
fn r6_4_a_program_comes_and_an_output_goes_no_faster_than_the_override_says() {
    let (heard, mut host) = (Heard::default(), Host::new());
    let server = project(Arc::clone(&heard));
    host.write_over(
        "<max_bytes_sec_down>100000</max_bytes_sec_down>\n<max_bytes_sec_up>120000</max_bytes_sec_up>",
    );
    host.start();
    assert_eq!(attach(host.path(), &server.url(""), RIGHT, &["--no-wait"]).0, 0);
    let when = |what: &str| {
        let heard = heard.lock().unwrap();
        heard.iter().find(|(is, _)| *is == what).map(|(_, when)| *when)
    };
    let sent = wait_for("the output", || when("output"));
    let (came, asks) = (when("program").unwrap(), when("asks").unwrap());
    let (down, up) = (asks - came, sent - asks);
    println!("{LENGTH} bytes: {down:?} down and computing, {up:?} up");
    // Of five and of four seconds; what is under way in buffers is not yet seen to be.
    assert!(down >= Duration::from_secs(4) && up >= Duration::from_secs(3), "{down:?} {up:?}");
}

/// What somebody at this machine does not want while he has it for himself: BOINC's client uses no network
/// at all then, where `run_if_user_active` is 0.
#[test]
fn r6_2_a_program_that_comes_is_broken_off_by_a_pause_and_comes_whole_when_that_is_over() {
    let (heard, mut host) = (Heard::default(), Host::new());
    let server = project(Arc::clone(&heard));
    host.write_over("<max_bytes_sec_down>50000</max_bytes_sec_down>");
    host.start();
    assert_eq!(attach(host.path(), &server.url(""), RIGHT, &["--no-wait"]).0, 0);
    let count = |what: &str| heard.lock().unwrap().iter().filter(|(is, _)| *is == what).count();
    // Of ten seconds.
    wait_for("a program that comes", || (count("program") == 1).then_some(()));
    assert_eq!(outcome(host.path(), &["snooze", "1h"]).0, 0);
    wait_for("files that wait", || {
        let why = status(host.path())["host"]["files_wait"].as_str()?.to_owned();
        (why == "somebody has paused computing").then_some(())
    });
    // Its project is contacted all the same.
    let calls = count("call");
    assert_eq!(outcome(host.path(), &["update", &server.url("")]).0, 0);
    wait_for("a call", || (count("call") > calls).then_some(()));
    assert_eq!((count("program"), count("asks")), (1, 0));
    assert_eq!(outcome(host.path(), &["snooze", "off"]).0, 0);
    wait_for("the output", || (count("output") > 0).then_some(()));
    assert_eq!(count("program"), 2);
    assert!(status(host.path())["host"]["files_wait"].is_null());
}
