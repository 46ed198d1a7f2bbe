//! A BOINC client as far as a server sees it: keeps its host number, counts its RPCs, lists what it holds.

use std::collections::BTreeMap;

use fallow_boinc::scheduler::{
    OtherResult, ReportedFile, ReportedResult, ResultState, SchedulerReply, SchedulerRequest,
};
use fallow_boinc::signature::md5_hex;
use fallow_boinc::transfer::{DataServerReply, UploadHeader, UploadRequest};
use fallow_domain::{AccountKey, AgentId, Bytes, Duration};
use fallow_work_server::ProjectInfo;

use crate::fixture::Fixture;
use crate::http::post;

pub(crate) const FIRST_RPC: &[u8] =
    include_bytes!("../../../../shared/boinc/fixtures/captures/04_POST_anchor_cgi-cgi.request");

/// The body of a captured HTTP message.
pub(crate) fn body_of(capture: &[u8]) -> &[u8] {
    let at = capture.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    &capture[at + 4..]
}

pub(crate) struct Client {
    pub(crate) url: String,
    pub(crate) request: SchedulerRequest,
    /// Jobs held, with the reply that brought them.
    pub(crate) held: BTreeMap<String, SchedulerReply>,
}

impl Client {
    /// A host of this name with an agent of the fleet, which has an account of its own. Its request is a
    /// captured one in all else.
    pub(crate) fn new(fixture: &Fixture, info: &ProjectInfo, name: &str) -> Self {
        let key = fixture.server.agent_key(&info.name, &AgentId(name.to_owned())).unwrap();
        Self::with_key(info, name, key)
    }

    /// A host outside the fleet, attached with the project's own account.
    pub(crate) fn stock(info: &ProjectInfo, name: &str) -> Self {
        Self::with_key(info, name, info.account_key.clone())
    }

    /// A host of this name with this account key.
    pub(crate) fn with_key(info: &ProjectInfo, name: &str, key: AccountKey) -> Self {
        let mut request = SchedulerRequest::parse(body_of(FIRST_RPC)).unwrap();
        request.authenticator = key;
        request.host_info.domain_name = name.to_owned();
        request.host_info.host_cpid = md5_hex(name.as_bytes());
        request.work_req_seconds = 0.0;
        request.cpu_req_secs = 0.0;
        Self { url: info.url.to_string(), request, held: BTreeMap::new() }
    }

    /// One scheduler RPC, with what a client does before and after it.
    pub(crate) fn rpc(&mut self) -> SchedulerReply {
        let other = |name: &String| OtherResult { name: name.clone(), ..OtherResult::default() };
        self.rpc_listing(self.held.keys().map(other).collect())
    }

    /// One scheduler RPC of a client that says it holds these jobs.
    pub(crate) fn rpc_listing(&mut self, held: Vec<OtherResult>) -> SchedulerReply {
        self.request.other_results = Some(held);
        let answer = post(&format!("{}cgi", self.url), self.request.write().as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text());
        let reply = SchedulerReply::parse(&answer.body).unwrap();
        self.request.rpc_seqno += 1;
        if let Some(id) = reply.hostid {
            self.request.hostid = id;
            self.request.rpc_seqno = 0;
        }
        if let Some(key) = &reply.code_sign_key {
            self.request.code_sign_key.get_or_insert_with(|| key.clone());
        }
        for job in &reply.results {
            self.held.insert(job.name.clone(), reply.clone());
        }
        self.request.results.clear();
        reply
    }

    /// Asks for this many seconds of work.
    pub(crate) fn fetch(&mut self, seconds: f64) -> SchedulerReply {
        self.request.cpu_req_secs = seconds;
        self.request.work_req_seconds = seconds;
        let reply = self.rpc();
        self.request.cpu_req_secs = 0.0;
        self.request.work_req_seconds = 0.0;
        reply
    }

    /// The head of the upload of a job's only output.
    pub(crate) fn upload_header(&self, job: &str, content: &[u8]) -> UploadHeader {
        let reply = &self.held[job];
        let name = &reply.results.iter().find(|result| result.name == job).unwrap().files[0].file_name;
        let file = reply.files.iter().find(|file| &file.name == name).unwrap();
        UploadHeader {
            name: name.clone(),
            xml_signature: file.xml_signature.clone().unwrap(),
            max_nbytes: file.max_nbytes.unwrap(),
            nbytes: Bytes(content.len() as u64),
            md5_cksum: md5_hex(content),
            ..UploadHeader::default()
        }
    }

    /// Uploads a job's output.
    pub(crate) fn upload(&self, job: &str, content: &[u8]) -> DataServerReply {
        let head = UploadRequest::Upload(self.upload_header(job, content)).write();
        let answer = post(&format!("{}file_upload_handler", self.url), &[head.as_bytes(), content].concat());
        DataServerReply::parse(&answer.body).unwrap()
    }

    /// Puts a job's report into the next request.
    pub(crate) fn report(&mut self, job: &str, state: ResultState, exit_status: i32) {
        self.held.remove(job);
        let cpu = Duration::from_secs(12);
        let file = ReportedFile { name: format!("{job}_0"), ..ReportedFile::default() };
        self.request.results.push(ReportedResult {
            name: job.to_owned(),
            final_cpu_time: cpu,
            final_elapsed_time: cpu,
            exit_status,
            state,
            files: vec![file],
            ..ReportedResult::default()
        });
    }

    /// Computes all jobs held: uploads `content` for each and reports success.
    pub(crate) fn complete_all(&mut self, content: &str) -> SchedulerReply {
        for job in self.held.keys().cloned().collect::<Vec<_>>() {
            let status = self.upload(&job, content.as_bytes()).status;
            assert_eq!(status.code(), 0, "{job}");
            self.report(&job, ResultState::Uploaded, 0);
        }
        self.rpc()
    }
}
