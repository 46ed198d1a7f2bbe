//! Downloads, uploads and calls against a small HTTP server, which answers as each test says and keeps what
//! it was asked.

mod calls;
mod downloads;
mod encodings;
mod proxied;
mod redirects;
mod slow;
mod uploads;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use fallow_agent::dir::DataDir;
use fallow_agent::input::Input;
use fallow_agent::transfer::{Limits, Transfers, Web};
use fallow_boinc::scheduler::{ClientVersion, SchedulerReply, SchedulerRequest};
use fallow_boinc::signature::md5_hex;
use fallow_client::{Download, Event, FileKey, Traffic, TransferError, Upload};
use fallow_domain::{Bytes, MasterUrl, ProjectId};
use fallow_tls::Proxies;
use tokio::sync::mpsc;

use crate::support::{PATIENCE, put};

/// A request as it came: head (lower case) and body.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) head: String,
    body: Vec<u8>,
}

impl Asked {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A server that answers each request, one per connection, with what a closure makes of it.
pub(crate) struct Server {
    port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    pub(crate) fn start(answer: impl Fn(&Asked) -> Vec<u8> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, asked) = (listener.local_addr().unwrap().port(), Arc::new(Mutex::new(Vec::new())));
        let seen = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let Some(request) = read(&mut stream) else { continue };
                seen.lock().unwrap().push(request.clone());
                let _ = stream.write_all(&answer(&request));
            }
        });
        Self { port, asked }
    }
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/p/{path}", self.port)
    }
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn read(stream: &mut TcpStream) -> Option<Asked> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok())
                .unwrap_or(0);
            if bytes.len() >= end + 4 + length {
                return Some(Asked { head, body: bytes[end + 4..].to_vec() });
            }
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
        }
    }
}

pub(crate) fn http(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut answer =
        format!("HTTP/1.1 {status}\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n", body.len())
            .into_bytes();
    answer.extend_from_slice(body);
    answer
}

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
