//! A project whose jobs leave large files behind. End-to-end tests have it, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fallow_boinc::scheduler::{
    App, AppVersion, FileInfo, FileRef, ReportedResult, ResultJob, SchedulerReply, SchedulerRequest, Workunit,
};
use fallow_boinc::signature::{PrivateKey, md5_hex};
use fallow_domain::{Bytes, Duration, Flops};

use crate::transfers::{Server, http};

/// What an input holds.
pub(crate) const INPUT: usize = 20 << 20;
const PLATFORM: &str =
    if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-gnu" } else { "x86_64-pc-linux-gnu" };

/// A project that gives a job with each answer, up to so many, with a large input that is to be kept.
pub(crate) struct Keeper {
    pub(crate) server: Server,
    reported: Arc<AtomicUsize>,
    /// How many jobs it gives.
    pub(crate) supply: Arc<AtomicUsize>,
}

impl Keeper {
    pub(crate) fn new(script: &str, supply: usize) -> Self {
        let mut state = 7_u64;
        let mut random = move |bytes: &mut [u8]| {
            for byte in bytes {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *byte = (state >> 56) as u8;
            }
        };
        let key = PrivateKey::generate(&mut random).unwrap();
        let script = format!("#!/bin/sh\n{script}\n").into_bytes();
        let signature = key.sign_file(&md5_hex(&script), &mut random).ok();
        let sign_key = key.public_key().to_text();
        let (sent, reported) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
        let supply = Arc::new(AtomicUsize::new(supply));
        let (told, has) = (Arc::clone(&reported), Arc::clone(&supply));
        let server = Server::start(move |asked| {
            let host = asked.head.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
            let url = |name: &str| vec![format!("http://{host}/p/{name}")];
            match &asked.head {
                head if head.starts_with("get /p/get_project_config.php ") => {
                    let config = format!(
                        "<project_config>\n<name>Keeper</name>\n<master_url>http://{host}/p/</master_url>\n</project_config>\n"
                    );
                    return http("200 OK", "", config.as_bytes());
                }
                head if head.starts_with("get /p/ ") => {
                    let page = format!("<scheduler>http://{host}/p/cgi</scheduler>");
                    return http("200 OK", "", page.as_bytes());
                }
                head if head.starts_with("get /p/spin ") => return http("200 OK", "", &script),
                head if head.starts_with("get /p/keep_") => return http("200 OK", "", &vec![1; INPUT]),
                head if head.starts_with("post /p/cgi ") => {}
                _ => return http("404 Not Found", "", b"no such page"),
            }
            let request = SchedulerRequest::parse(asked.text().as_bytes()).unwrap();
            told.fetch_add(request.results.len(), Ordering::Relaxed);
            let mut reply = SchedulerReply {
                project_name: Some("Keeper".into()),
                user_name: Some("Ada".into()),
                hostid: Some(7),
                request_delay: Duration::from_secs(1),
                code_sign_key: Some(sign_key.clone()),
                result_acks: request.results.iter().map(|result| result.name.clone()).collect(),
                ..SchedulerReply::default()
            };
            let number = sent.load(Ordering::Relaxed);
            if number < has.load(Ordering::Relaxed) && request.cpu_req_secs > 0.0 {
                sent.fetch_add(1, Ordering::Relaxed);
                let program = FileInfo {
                    name: "spin".into(),
                    download_urls: url("spin"),
                    nbytes: Some(Bytes(script.len() as u64)),
                    executable: true,
                    file_signature: signature.clone(),
                    ..FileInfo::default()
                };
                let input = format!("keep_{number}_in");
                let input = FileInfo {
                    download_urls: url(&input),
                    name: input,
                    nbytes: Some(Bytes(INPUT as u64)),
                    sticky: true,
                    ..FileInfo::default()
                };
                add_job(&mut reply, number, program, input);
            }
            http("200 OK", "", reply.write().as_bytes())
        });
        Self { server, reported, supply }
    }

    pub(crate) fn reported(&self) -> usize {
        self.reported.load(Ordering::Relaxed)
    }

    /// All that was reported.
    pub(crate) fn reports(&self) -> Vec<ReportedResult> {
        let asked = self.server.asked();
        let calls = asked.iter().filter(|asked| asked.head.starts_with("post /p/cgi "));
        calls.flat_map(|asked| SchedulerRequest::parse(asked.text().as_bytes()).unwrap().results).collect()
    }

    /// What was said to the scheduler last.
    pub(crate) fn last_request(&self) -> String {
        let asked = self.server.asked();
        asked.iter().rfind(|asked| asked.head.starts_with("post /p/cgi ")).unwrap().text()
    }
}

fn add_job(reply: &mut SchedulerReply, number: usize, program: FileInfo, input: FileInfo) {
    let refer = |name: &str, open: &str, main_program| FileRef {
        file_name: name.into(),
        open_name: Some(open.into()),
        main_program,
        ..FileRef::default()
    };
    reply.apps.push(App { name: "spin".into(), ..App::default() });
    reply.app_versions.push(AppVersion {
        app_name: "spin".into(),
        version_num: 100,
        platform: PLATFORM.into(),
        avg_ncpus: 1.0,
        files: vec![refer("spin", "spin", true)],
        ..AppVersion::default()
    });
    let name = format!("keep_{number}");
    reply.workunits.push(Workunit {
        name: name.clone(),
        app_name: "spin".into(),
        rsc_fpops_est: Flops::new(1e12).ok(),
        rsc_fpops_bound: Flops::new(1e18).ok(),
        rsc_disk_bound: Some(Bytes(100_000_000)),
        files: vec![refer(&input.name, "in", false)],
        ..Workunit::default()
    });
    reply.files.extend([program, input]);
    reply.results.push(ResultJob {
        name: format!("{name}_0"),
        wu_name: name,
        report_deadline: fallow_daemon::clock::now() + Duration::from_secs(86_400),
        platform: PLATFORM.into(),
        version_num: 100,
        ..ResultJob::default()
    });
}
