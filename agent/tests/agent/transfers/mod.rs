//! Downloads, uploads and calls against a small HTTP server, which answers as each test says and keeps what
//! it was asked.

mod calls;
mod downloads;
mod encodings;
mod proxied;
mod redirects;
pub(crate) mod server;
mod slow;
mod uploads;

use fallow_agent::dir::DataDir;
use fallow_agent::input::Input;
use fallow_agent::transfer::{Limits, Transfers, Web};
use fallow_boinc::scheduler::{ClientVersion, SchedulerReply, SchedulerRequest};
use fallow_boinc::signature::md5_hex;
use fallow_client::{Download, Event, FileKey, Traffic, TransferError, Upload};
use fallow_domain::{Bytes, MasterUrl, ProjectId};
use fallow_tls::Proxies;
use tokio::sync::mpsc;

pub(crate) use self::server::{Asked, Server, http};
use crate::support::{PATIENCE, put};

struct Bench {
    _dir: tempfile::TempDir,
    data: DataDir,
    transfers: Transfers,
    events: mpsc::Receiver<Input>,
    /// How long what uploads were before may be at the server.
    stale: Bytes,
    /// What was said about moves to other hosts.
    moved: Vec<String>,
    /// What was measured.
    traffic: Vec<Traffic>,
}

fn project() -> MasterUrl {
    crate::support::project()
}

fn key(name: &str) -> FileKey {
    FileKey { project: ProjectId(1), name: name.into() }
}

impl Bench {
    fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    fn with_limits(limits: Limits) -> Self {
        Self::behind(limits, Proxies::default())
    }

    fn behind(limits: Limits, proxies: Proxies) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::at(dir.path());
        let (sender, events) = mpsc::channel(8);
        let version = ClientVersion { major: 8, minor: 3, release: 0 };
        let transfers =
            Transfers::new(Web::with_limits(limits, proxies).unwrap(), data.clone(), version, sender);
        Self { _dir: dir, data, transfers, events, stale: Bytes(0), moved: Vec::new(), traffic: Vec::new() }
    }

    fn wanted(from: String, content: &[u8]) -> Download {
        Download {
            file: key("file"),
            url: project(),
            from,
            gzipped: false,
            nbytes: Some(Bytes(content.len() as u64)),
            limit: Bytes(1 << 30),
            limited_by_host: true,
            keep_free: Bytes(0),
            md5: Some(md5_hex(content)),
            signature: None,
            executable: false,
        }
    }

    fn partial(&self) -> std::path::PathBuf {
        self.data.partial(&project()).join("file")
    }

    async fn download(&mut self, wanted: Download) -> Result<Bytes, TransferError> {
        self.transfers.download(Box::new(wanted));
        match self.event().await {
            Event::DownloadEnded { file, outcome } => {
                assert_eq!(file, key("file"));
                outcome
            }
            other => panic!("{other:?}"),
        }
    }

    async fn upload(&mut self, content: &[u8], to: String) -> Result<(), TransferError> {
        put(&self.data.project(&project()).join("file"), content);
        self.upload_again(content, to).await
    }

    /// The same of the file as it lies there.
    async fn upload_again(&mut self, content: &[u8], to: String) -> Result<(), TransferError> {
        self.transfers.upload(Box::new(Upload {
            file: key("file"),
            url: project(),
            to,
            xml_signature: "0123\n.\n".into(),
            max_nbytes: 1e6,
            nbytes: Bytes(content.len() as u64),
            md5: md5_hex(content),
            stale: self.stale,
        }));
        match self.event().await {
            Event::UploadEnded { outcome, .. } => outcome,
            other => panic!("{other:?}"),
        }
    }

    async fn event(&mut self) -> Event {
        loop {
            match tokio::time::timeout(PATIENCE, self.events.recv()).await.unwrap().unwrap() {
                Input::Transferred(mut ticket, event) => {
                    self.traffic.extend(ticket.traffic());
                    assert!(self.transfers.settle(&ticket));
                    return *event;
                }
                Input::Remark { text, .. } => self.moved.push(text),
                other => panic!("{other:?}"),
            }
        }
    }

    async fn call(
        &mut self,
        url: String,
        request: &SchedulerRequest,
    ) -> Result<SchedulerReply, TransferError> {
        self.transfers.call_scheduler(ProjectId(1), url, request);
        match self.event().await {
            Event::SchedulerAnswered { outcome, .. } => outcome.map(|reply| *reply),
            other => panic!("{other:?}"),
        }
    }

    fn place(&self) -> Vec<u8> {
        std::fs::read(self.data.project(&project()).join("file")).unwrap()
    }
}

fn content() -> Vec<u8> {
    (0..100_000_u32).map(|n| (n * 7 % 251) as u8).collect()
}
