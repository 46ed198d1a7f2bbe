//! A project server on a free loopback port, with a clock that tests can move.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::SystemTime;

use fallow_domain::{Bytes, Duration, Flops, Instant, Usage};
use fallow_store::{SledStore, Store};
use fallow_work_server::{
    NewAppVersion, NewInput, NewWorkunit, OutputSpec, ProjectError, ProjectInfo, ProjectServer,
    ProjectSettings, Rules,
};
use tempfile::TempDir;

use crate::wait::until;

pub(crate) const PLATFORM: &str = "x86_64-pc-linux-gnu";

pub(crate) struct Fixture {
    pub(crate) dir: TempDir,
    pub(crate) base: String,
    pub(crate) server: ProjectServer,
    address: SocketAddr,
    ahead: Arc<AtomicI64>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Fixture {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let base = format!("http://{address}");
        let ahead = Arc::new(AtomicI64::new(0));
        let (server, runtime) = serve(dir.path(), &base, listener, ahead.clone());
        Self { dir, base, server, address, ahead, runtime: Some(runtime) }
    }

    /// Ends the service and lets go of the store.
    pub(crate) fn stop(&mut self) {
        drop(self.runtime.take());
        // The last handle keeps the store: swap it for one on an empty directory.
        let elsewhere = self.dir.path().join("elsewhere");
        let store = Arc::new(SledStore::open(elsewhere.join("store")).unwrap());
        self.server = ProjectServer::open(store, &elsewhere, &self.base).unwrap();
    }

    /// Ends the service and starts it on the same directory and port.
    pub(crate) fn restart(&mut self) {
        self.stop();
        // A port that was left may be that of somebody's connection for a moment.
        let mut listener = None;
        until("its port is free", || {
            listener = TcpListener::bind(self.address).ok();
            listener.is_some()
        });
        let (server, runtime) = serve(self.dir.path(), &self.base, listener.unwrap(), self.ahead.clone());
        self.server = server;
        self.runtime = Some(runtime);
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::new(SledStore::open(self.dir.path().join("store")).unwrap())
    }

    /// Lets time pass at once.
    pub(crate) fn advance(&self, by: Duration) {
        self.ahead.fetch_add(by.as_micros(), Ordering::SeqCst);
    }

    pub(crate) fn project(&self, name: &str) -> ProjectInfo {
        let settings = ProjectSettings { request_delay: Duration::ZERO, ..ProjectSettings::default() };
        self.server.create_project(name, settings).unwrap()
    }

    /// An application of one file; gives its name.
    pub(crate) fn application(
        &self,
        project: &str,
        name: &str,
        main_program: PathBuf,
    ) -> Result<String, ProjectError> {
        let version = NewAppVersion {
            application: name.to_owned(),
            friendly_name: String::new(),
            version: 100,
            platform: PLATFORM.to_owned(),
            files: vec![main_program],
            ..NewAppVersion::default()
        };
        Ok(self.server.add_app_version(project, &version)?.remove(0))
    }

    /// A version of an application that uses a coprocessor.
    pub(crate) fn gpu_script(&self, project: &str, name: &str, usage: Usage) {
        let program = self.dir.path().join("gpu-script");
        std::fs::write(&program, "#!/bin/sh\n# for a GPU\n").unwrap();
        let version = NewAppVersion {
            application: name.to_owned(),
            version: 100,
            platform: PLATFORM.to_owned(),
            files: vec![program],
            usage,
            ..NewAppVersion::default()
        };
        self.server.add_app_version(project, &version).unwrap();
    }

    /// Changes a setting of a project.
    pub(crate) fn set(&self, project: &str, key: &str, value: &str) {
        self.server.change_settings(project, &[(key.to_owned(), value.to_owned())]).unwrap();
    }

    /// An application that is a shell script.
    pub(crate) fn script(&self, project: &str, name: &str) -> String {
        self.try_script(project, name).unwrap()
    }

    pub(crate) fn try_script(&self, project: &str, name: &str) -> Result<String, ProjectError> {
        let program = self.dir.path().join("script");
        std::fs::write(&program, "#!/bin/sh\n# API_VERSION_8.3.0\n").unwrap();
        self.application(project, name, program)
    }
}

fn serve(
    dir: &Path,
    base: &str,
    listener: TcpListener,
    ahead: Arc<AtomicI64>,
) -> (ProjectServer, tokio::runtime::Runtime) {
    let clock = move || {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        Instant::from_micros(since.as_micros() as i64 + ahead.load(Ordering::SeqCst))
    };
    let store: Arc<dyn Store> = Arc::new(SledStore::open(dir.join("store")).unwrap());
    let server = ProjectServer::open_with_clock(store, &dir.join("projects"), base, Arc::new(clock)).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let router = server.router();
    listener.set_nonblocking(true).unwrap();
    runtime.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        axum::serve(listener, router).await
    });
    (server, runtime)
}

/// A workunit that reads `in` and writes `out`.
pub(crate) fn workunit(application: &str, input: &str, flops: f64, quorum: u32) -> NewWorkunit {
    NewWorkunit {
        inputs: vec![NewInput {
            open_name: "in".to_owned(),
            content: input.as_bytes().to_vec(),
            ..NewInput::default()
        }],
        outputs: vec![OutputSpec { open_name: "out".to_owned(), max_bytes: Bytes(1_000_000) }],
        rules: Rules { quorum, initial_jobs: quorum, max_error_jobs: 3, max_total_jobs: 6 },
        delay_bound: Duration::from_hours(24),
        ..NewWorkunit::new(application, Flops::new(flops).unwrap())
    }
}
