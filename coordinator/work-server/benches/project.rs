//! What a scheduler RPC costs the work server, with few and with many workunits in the store: it must not
//! grow with them.
//!
//! In process, without sockets: parsing, the transaction in sled, one RSA signature per job sent, writing the
//! reply.
#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::{Body, to_bytes};
use axum::http::Request;
use divan::{Bencher, counter::ItemsCount};
use fallow_boinc::scheduler::{SchedulerReply, SchedulerRequest};
use fallow_domain::{Bytes, Duration, Flops};
use fallow_store::SledStore;
use fallow_work_server::{
    NewAppVersion, NewWorkunit, OutputSpec, ProjectServer, ProjectSettings, SUBMIT_MAX,
};
use tower::Service;

fn main() {
    divan::main();
}

struct Project {
    _dir: tempfile::TempDir,
    _server: ProjectServer,
    router: axum::Router,
    runtime: tokio::runtime::Runtime,
    request: SchedulerRequest,
    hosts: AtomicU64,
}

impl Project {
    fn with(workunits: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(SledStore::open(dir.path().join("store")).unwrap());
        let server =
            ProjectServer::open(store, &dir.path().join("projects"), "http://127.0.0.1:8080").unwrap();
        let settings = ProjectSettings { request_delay: Duration::ZERO, ..ProjectSettings::default() };
        let info = server.create_project("p", settings).unwrap();
        let program = dir.path().join("program");
        std::fs::write(&program, "API_VERSION_8.3.0").unwrap();
        let version = NewAppVersion {
            application: "app".into(),
            version: 100,
            platform: "x86_64-pc-linux-gnu".into(),
            files: vec![program],
            ..NewAppVersion::default()
        };
        server.add_app_version("p", &version).unwrap();
        let workunit = NewWorkunit {
            outputs: vec![OutputSpec { open_name: "out".into(), max_bytes: Bytes(1_000) }],
            disk_bound: Bytes(1),
            memory_bound: Bytes(1),
            ..NewWorkunit::new("app", Flops::new(1e12).unwrap())
        };
        for from in (0..workunits).step_by(SUBMIT_MAX) {
            server.submit("p", vec![workunit.clone(); SUBMIT_MAX.min(workunits - from)]).unwrap();
        }
        let mut request = SchedulerRequest { authenticator: info.account_key, ..SchedulerRequest::default() };
        request.platform_name = "x86_64-pc-linux-gnu".into();
        request.host_info.m_nbytes = 1e9;
        request.host_info.d_free = 1e9;
        request.host_info.p_fpops = 1e9;
        request.other_results = Some(Vec::new());
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let router = server.router();
        Self { _dir: dir, _server: server, router, runtime, request, hosts: AtomicU64::new(0) }
    }

    /// One RPC of a host that was never there before.
    fn rpc(&self, wanted: f64) -> SchedulerReply {
        let host = self.hosts.fetch_add(1, Ordering::Relaxed);
        let mut request = self.request.clone();
        request.host_info.host_cpid = format!("{host:032x}");
        request.cpu_req_secs = wanted;
        let request = Request::post("/p/cgi").body(Body::from(request.write())).unwrap();
        let mut router = self.router.clone();
        let body = self.runtime.block_on(async move {
            let response = router.call(request).await.unwrap();
            to_bytes(response.into_body(), usize::MAX).await.unwrap()
        });
        SchedulerReply::parse(&body).unwrap()
    }
}

#[divan::bench(args = [1_000, 10_000, 100_000], sample_count = 50, sample_size = 10)]
fn rpc_that_is_sent_a_job(bencher: Bencher, workunits: usize) {
    let project = Project::with(workunits);
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| {
        assert_eq!(project.rpc(1.0).results.len(), 1);
    });
}

#[divan::bench(args = [1_000, 100_000], sample_count = 50, sample_size = 10)]
fn rpc_that_asks_for_nothing(bencher: Bencher, workunits: usize) {
    let project = Project::with(workunits);
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| {
        assert!(project.rpc(0.0).results.is_empty());
    });
}

#[divan::bench(sample_count = 10, sample_size = 1)]
fn submission_of_10_000_workunits(bencher: Bencher) {
    bencher.counter(ItemsCount::new(10_000_u32)).bench_local(|| Project::with(10_000));
}
