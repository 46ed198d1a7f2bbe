//! A good project: it gives short jobs that compute in earnest, one more whenever it is asked, and takes
//! their outputs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fallow_boinc::names::api_version;
use fallow_boinc::scheduler::{
    App, AppVersion, FileInfo, FileRef, ResultJob, SchedulerReply, SchedulerRequest, Workunit,
};
use fallow_boinc::signature::{PrivateKey, md5_hex};
use fallow_boinc::transfer::{DataServerReply, Head, UploadRequest, UploadStatus};
use fallow_domain::{Bytes, Duration, Flops, Instant};
use fallow_e2e::binary;

use crate::http::{Answer, Request, Server};

/// Longer than any test: what a change of jobs costs is not what hostile projects cost.
const LONG: &str = "from=2 to=20000";
/// Some hundredths of a second, where it matters that jobs end.
const SHORT: &str = "from=2 to=1000";
const PROGRAM: &str = "mersenne_1.00";
const PLATFORM: &str =
    if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-gnu" } else { "x86_64-pc-linux-gnu" };

/// The project, as long as the test's process lives.
pub(crate) struct Good {
    server: Server,
    path: &'static str,
}

/// What the project does with outputs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Uploads {
    /// They are many, for its jobs are short.
    Taken,
    /// It is busy with long jobs, and takes them all the same.
    Few,
    /// They are read, and never answered.
    Hung,
}

struct Offer {
    program: Vec<u8>,
    signature: String,
    key: PrivateKey,
    jobs: AtomicU64,
    random: Mutex<u64>,
    uploads: Uploads,
}

impl Good {
    pub(crate) fn start() -> Self {
        Self::start_as("good/", Uploads::Few)
    }

    /// Starts it under another path, and perhaps not so good.
    pub(crate) fn start_as(path: &'static str, uploads: Uploads) -> Self {
        let offer = Arc::new(Offer::new(uploads));
        let server = Server::start(1, move |request, address| offer.answer(request, address, path));
        Self { server, path }
    }

    /// How many outputs came.
    pub(crate) fn uploads(&self) -> usize {
        self.server.asked(&format!("{}file_upload_handler", self.path)).len()
    }

    pub(crate) fn url(&self) -> String {
        self.server.url(self.path)
    }
}

/// Random bytes, good enough for a test.
pub(crate) fn random(state: &mut u64, bytes: &mut [u8]) {
    for byte in bytes {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *byte = (*state >> 56) as u8;
    }
}

impl Offer {
    fn new(uploads: Uploads) -> Self {
        let mut state = 1;
        let key = PrivateKey::generate(&mut |bytes| random(&mut state, bytes)).unwrap();
        let program = std::fs::read(binary("mersenne")).unwrap();
        let signature = key.sign_file(&md5_hex(&program), &mut |bytes| random(&mut state, bytes)).unwrap();
        Self { program, signature, key, jobs: AtomicU64::new(0), random: Mutex::new(state), uploads }
    }

    fn answer(&self, request: &Request, address: &str, path: &str) -> Answer {
        let url = format!("http://{address}/{path}");
        let Some(rest) = request.path.strip_prefix(path) else { return Answer::Status(404, String::new()) };
        match rest {
            "" => Answer::text(fallow_boinc::master::write("Good", "", &[format!("{url}cgi")])),
            "cgi" => Answer::text(self.reply(&request.body, &url)),
            "download/in" => Answer::text(self.input()),
            "download/mersenne_1.00" => Answer::Body(self.program.clone()),
            "file_upload_handler" if self.uploads == Uploads::Hung => Answer::Silence,
            "file_upload_handler" => Answer::text(upload(&request.body)),
            _ => Answer::Status(404, String::new()),
        }
    }

    fn input(&self) -> &'static str {
        if self.uploads == Uploads::Few { LONG } else { SHORT }
    }

    fn reply(&self, body: &[u8], url: &str) -> String {
        let Ok(request) = SchedulerRequest::parse(body) else { return String::new() };
        let mut reply = SchedulerReply {
            scheduler_version: Some(803),
            dont_use_dcf: true,
            request_delay: Duration::from_secs(1),
            project_name: Some("Good".to_owned()),
            hostid: (request.hostid == 0).then_some(1),
            code_sign_key: request.code_sign_key.is_none().then(|| self.key.public_key().to_text()),
            result_acks: request.results.iter().map(|result| result.name.clone()).collect(),
            ..SchedulerReply::default()
        };
        let wants = request.cpu_req_secs > 0.0 || request.cpu_req_instances > 0.0;
        let cpus = request.host_info.p_ncpus as usize;
        // Enough in hand for the time of a test.
        let held = request.other_results.as_ref().map_or(0, Vec::len);
        if wants && held < 20 * cpus {
            self.add_version(url, &mut reply);
            for _ in 0..4 * cpus {
                self.add_job(url, request.host_info.p_fpops, &mut reply);
            }
        }
        reply.write()
    }

    fn add_version(&self, url: &str, reply: &mut SchedulerReply) {
        reply.apps.push(App { name: "mersenne".into(), ..App::default() });
        reply.files.push(FileInfo {
            name: PROGRAM.into(),
            download_urls: vec![format!("{url}download/{PROGRAM}")],
            nbytes: Some(Bytes(self.program.len() as u64)),
            executable: true,
            file_signature: Some(self.signature.clone()),
            ..FileInfo::default()
        });
        reply.app_versions.push(AppVersion {
            app_name: "mersenne".into(),
            version_num: 100,
            platform: PLATFORM.into(),
            api_version: api_version(&self.program).map(str::to_owned),
            files: vec![FileRef { file_name: PROGRAM.into(), main_program: true, ..FileRef::default() }],
            ..AppVersion::default()
        });
        reply.files.push(FileInfo {
            name: "in".into(),
            download_urls: vec![format!("{url}download/in")],
            nbytes: Some(Bytes(self.input().len() as u64)),
            md5_cksum: Some(md5_hex(self.input().as_bytes())),
            ..FileInfo::default()
        });
    }

    fn add_job(&self, url: &str, fpops: f64, reply: &mut SchedulerReply) {
        let name = format!("good_{}", self.jobs.fetch_add(1, Ordering::Relaxed));
        let (job, output, max) = (format!("{name}_0"), format!("{name}_0_0"), Bytes(100_000));
        let mut state = self.random.lock().unwrap();
        let permission = self.key.sign_upload(&output, max, &mut |bytes| random(&mut state, bytes)).unwrap();
        reply.workunits.push(Workunit {
            name: name.clone(),
            app_name: "mersenne".into(),
            rsc_fpops_est: Flops::new(600.0 * fpops).ok(),
            rsc_fpops_bound: Flops::new(600_000.0 * fpops).ok(),
            files: vec![reference("in", "in")],
            ..Workunit::default()
        });
        reply.files.push(FileInfo {
            name: output.clone(),
            upload_urls: vec![format!("{url}file_upload_handler")],
            max_nbytes: Some(max),
            xml_signature: Some(permission),
            ..FileInfo::default()
        });
        reply.results.push(ResultJob {
            name: job,
            wu_name: name,
            report_deadline: now() + Duration::from_secs(14 * 86_400),
            files: vec![reference(&output, "out")],
            platform: PLATFORM.into(),
            version_num: 100,
            ..ResultJob::default()
        });
    }
}

fn reference(file_name: &str, open_name: &str) -> FileRef {
    FileRef { file_name: file_name.into(), open_name: Some(open_name.into()), ..FileRef::default() }
}

pub(crate) fn now() -> Instant {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap();
    Instant::from_secs_f64(since.as_secs_f64())
}

/// Takes whatever is uploaded.
fn upload(body: &[u8]) -> String {
    let file_size = match UploadRequest::parse(body) {
        Ok(Head::Complete { request: UploadRequest::FileSize { .. }, .. }) => Some(Bytes(0)),
        _ => None,
    };
    DataServerReply { status: UploadStatus::Ok, file_size, message: None }.write()
}
