//! Downloads and uploads against a small HTTP server, which answers as each test says and keeps what it was asked.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fallow_agent::dir::DataDir;
use fallow_agent::engine::Input;
use fallow_agent::transfer::{Transfers, USER_AGENT, Web};
use fallow_boinc::scheduler::{ClientVersion, SchedulerReply, SchedulerRequest};
use fallow_boinc::signature::{PrivateKey, md5_hex};
use fallow_boinc::transfer::{Head, UploadRequest};
use fallow_client::{Download, Event, FileKey, RequiredSignature, TransferError, TransferErrorKind, Upload};
use fallow_domain::{Bytes, MasterUrl, ProjectId};
use tokio::sync::mpsc;

use crate::support::put;

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
    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn read(stream: &mut TcpStream) -> Option<Asked> {
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
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
}

fn project() -> MasterUrl {
    crate::support::project()
}

fn key(name: &str) -> FileKey {
    FileKey { project: ProjectId(1), name: name.into() }
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::at(dir.path());
        let (sender, events) = mpsc::channel(8);
        let version = ClientVersion { major: 8, minor: 3, release: 0 };
        let transfers = Transfers::new(Web::new().unwrap(), data.clone(), version, sender);
        Self { _dir: dir, data, transfers, events }
    }

    fn wanted(from: String, content: &[u8]) -> Download {
        Download {
            file: key("file"),
            url: project(),
            from,
            gzipped: false,
            nbytes: Some(Bytes(content.len() as u64)),
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
        self.transfers.upload(Box::new(Upload {
            file: key("file"),
            url: project(),
            to,
            xml_signature: "0123\n.\n".into(),
            max_nbytes: 1e6,
            nbytes: Bytes(content.len() as u64),
            md5: md5_hex(content),
        }));
        match self.event().await {
            Event::UploadEnded { outcome, .. } => outcome,
            other => panic!("{other:?}"),
        }
    }

    async fn event(&mut self) -> Event {
        match tokio::time::timeout(Duration::from_secs(20), self.events.recv()).await.unwrap().unwrap() {
            Input::Transferred(ticket, event) => {
                assert!(self.transfers.settle(&ticket));
                *event
            }
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

#[tokio::test]
async fn a_file_arrives_verified_executable_and_as_boinc_asks_for_it() {
    use std::os::unix::fs::PermissionsExt;
    let server = Server::start(|_| http("200 OK", "", &content()));
    let mut bench = Bench::new();
    let wanted = Download { executable: true, ..Bench::wanted(server.url("file"), &content()) };
    assert_eq!(bench.download(wanted).await, Ok(Bytes(100_000)));
    assert_eq!(bench.place(), content());
    assert!(!bench.partial().exists());
    let mode = std::fs::metadata(bench.data.project(&project()).join("file")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    let head = &server.asked()[0].head;
    assert!(
        head.contains(&format!("user-agent: {}", USER_AGENT.to_lowercase())) && !head.contains("range:"),
        "{head}"
    );
}

#[tokio::test]
async fn an_interrupted_download_goes_on_where_it_stopped() {
    let server = Server::start(|asked| {
        if asked.head.contains("range: bytes=40000-") {
            http("206 Partial Content", "Content-Range: bytes 40000-99999/100000\r\n", &content()[40_000..])
        } else {
            // Announces everything, sends a part and hangs up.
            let mut answer = http("200 OK", "", &content());
            answer.truncate(answer.len() - 60_000);
            answer
        }
    });
    let mut bench = Bench::new();
    let error = bench.download(Bench::wanted(server.url("file"), &content())).await.unwrap_err();
    assert_eq!(error.kind, TransferErrorKind::Transient, "{error}");
    assert_eq!(std::fs::metadata(bench.partial()).unwrap().len(), 40_000);
    assert_eq!(bench.download(Bench::wanted(server.url("file"), &content())).await, Ok(Bytes(100_000)));
    assert_eq!(bench.place(), content());
}

#[tokio::test]
async fn a_server_without_ranges_sends_the_whole_file_again() {
    let server = Server::start(|_| http("200 OK", "", &content()));
    let mut bench = Bench::new();
    put(&bench.partial(), &content()[..500]);
    assert!(bench.download(Bench::wanted(server.url("file"), &content())).await.is_ok());
    assert_eq!(bench.place(), content());
}

#[tokio::test]
async fn a_part_longer_than_the_servers_file_is_thrown_away() {
    let server = Server::start(|asked| {
        if asked.head.contains("range:") {
            http("416 Range Not Satisfiable", "", b"")
        } else {
            http("200 OK", "", b"short")
        }
    });
    let mut bench = Bench::new();
    put(&bench.partial(), &content());
    let wanted = Download { nbytes: None, ..Bench::wanted(server.url("file"), b"short") };
    assert_eq!(bench.download(wanted).await, Ok(Bytes(5)));
    assert_eq!(server.asked().len(), 2);
}

#[tokio::test]
async fn another_range_than_asked_for_is_not_appended() {
    let server =
        Server::start(|_| http("206 Partial Content", "Content-Range: bytes 0-99999/100000\r\n", &content()));
    let mut bench = Bench::new();
    put(&bench.partial(), &content()[..500]);
    let error = bench.download(Bench::wanted(server.url("file"), &content())).await.unwrap_err();
    assert_eq!(error.kind, TransferErrorKind::Transient);
    assert!(!bench.partial().exists());
}

#[tokio::test]
async fn wrong_bytes_are_refused_and_deleted() {
    let wrong = |change: fn(&mut Download)| {
        let mut wanted = Bench::wanted(String::new(), &content());
        change(&mut wanted);
        wanted
    };
    let cases = [
        (wrong(|w| w.md5 = Some(md5_hex(b"other"))), TransferErrorKind::WrongMd5),
        (wrong(|w| w.nbytes = Some(Bytes(99_999))), TransferErrorKind::WrongSize),
        (wrong(|w| w.nbytes = Some(Bytes(100_001))), TransferErrorKind::WrongSize),
        (
            wrong(|w| w.signature = Some(RequiredSignature { signature: String::new(), key: String::new() })),
            TransferErrorKind::WrongSignature,
        ),
        (
            wrong(|w| {
                w.signature = Some(RequiredSignature { signature: "00\n.\n".into(), key: "no key".into() });
            }),
            TransferErrorKind::WrongSignature,
        ),
    ];
    for (mut wanted, kind) in cases {
        let server = Server::start(|_| http("200 OK", "", &content()));
        wanted.from = server.url("file");
        let mut bench = Bench::new();
        let error = bench.download(wanted).await.unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.what.contains("file"), "{error}");
        assert!(!bench.partial().exists() && !bench.data.project(&project()).join("file").exists());
    }
}

#[tokio::test]
async fn a_file_with_the_projects_signature_is_taken_whatever_its_md5_says_and_a_changed_one_is_not() {
    let mut state = 1_u64;
    let mut random = move |bytes: &mut [u8]| {
        for byte in bytes {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (state >> 56) as u8;
        }
    };
    let private = PrivateKey::generate(&mut random).unwrap();
    let signature = private.sign_file(&md5_hex(&content()), &mut random).unwrap();
    let required = RequiredSignature { signature, key: private.public_key().to_text() };
    for (sent, is_good) in [(content(), true), ([&content()[1..], b"x"].concat(), false)] {
        let server = Server::start(move |_| http("200 OK", "", &sent));
        let mut bench = Bench::new();
        let wanted = Download {
            signature: Some(required.clone()),
            md5: Some(md5_hex(b"something else")),
            ..Bench::wanted(server.url("file"), &content())
        };
        let outcome = bench.download(wanted).await;
        match is_good {
            true => assert_eq!(outcome, Ok(Bytes(100_000))),
            false => assert_eq!(outcome.unwrap_err().kind, TransferErrorKind::WrongSignature),
        }
    }
}

#[tokio::test]
async fn a_compressed_file_is_expanded_and_verified_as_plain() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(&content()).unwrap();
    let packed = encoder.finish().unwrap();
    let server = Server::start(move |_| http("200 OK", "", &packed));
    let mut bench = Bench::new();
    let wanted = Download { gzipped: true, ..Bench::wanted(server.url("file.gz"), &content()) };
    assert_eq!(bench.download(wanted.clone()).await, Ok(Bytes(100_000)));
    assert!(!server.asked()[0].head.contains("accept-encoding: gzip"));
    // A bomb: expands to more than announced.
    let mut bench = Bench::new();
    let bomb = Download { nbytes: Some(Bytes(10)), ..wanted };
    assert_eq!(bench.download(bomb).await.unwrap_err().kind, TransferErrorKind::WrongSize);
}

#[tokio::test]
async fn statuses_mean_what_boinc_takes_them_for() {
    for (status, kind) in [
        ("404 Not Found", TransferErrorKind::Permanent),
        ("403 Forbidden", TransferErrorKind::Permanent),
        ("429 Too Many Requests", TransferErrorKind::Transient),
        ("503 Service Unavailable", TransferErrorKind::Transient),
    ] {
        let server = Server::start(move |_| http(status, "", b"no"));
        let mut bench = Bench::new();
        assert_eq!(
            bench.download(Bench::wanted(server.url("file"), b"x")).await.unwrap_err().kind,
            kind,
            "{status}"
        );
        // A result is too good to be given up for a status.
        assert_eq!(
            bench.upload(b"x", server.url("up")).await.unwrap_err().kind,
            TransferErrorKind::Transient
        );
    }
    let mut bench = Bench::new();
    let closed = "http://127.0.0.1:9/file".to_owned();
    assert_eq!(
        bench.download(Bench::wanted(closed, b"x")).await.unwrap_err().kind,
        TransferErrorKind::Transient
    );
    let bad = "ftp://127.0.0.1/file".to_owned();
    assert_eq!(
        bench.download(Bench::wanted(bad, b"x")).await.unwrap_err().kind,
        TransferErrorKind::Permanent
    );
}

const DONE: &[u8] = b"<data_server_reply>\n    <status>0</status>\n</data_server_reply>\n";

#[tokio::test]
async fn a_small_file_is_uploaded_at_once() {
    let server = Server::start(|_| http("200 OK", "", DONE));
    let mut bench = Bench::new();
    assert_eq!(bench.upload(b"result", server.url("up")).await, Ok(()));
    let asked = server.asked();
    assert_eq!(asked.len(), 1);
    assert!(
        asked[0].head.contains("content-type: text/xml") && !asked[0].head.contains("chunked"),
        "{}",
        asked[0].head
    );
    let Ok(Head::Complete { request: UploadRequest::Upload(header), data_at }) =
        UploadRequest::parse(&asked[0].body)
    else {
        panic!("{}", String::from_utf8_lossy(&asked[0].body));
    };
    assert_eq!(&asked[0].body[data_at..], b"result");
    assert_eq!((header.name.as_str(), header.nbytes, header.offset), ("file", Bytes(6), Bytes(0)));
    assert_eq!((header.max_nbytes, header.md5_cksum), (Bytes(1_000_000), md5_hex(b"result")));
}

#[tokio::test]
async fn a_large_upload_goes_on_where_the_server_says() {
    let server = Server::start(|asked| {
        if asked.body.windows(13).any(|window| window == b"get_file_size") {
            http("200 OK", "", b"<data_server_reply>\n    <status>0</status>\n    <file_size>30000</file_size>\n</data_server_reply>\n")
        } else {
            http("200 OK", "", DONE)
        }
    });
    let mut bench = Bench::new();
    assert_eq!(bench.upload(&content(), server.url("up")).await, Ok(()));
    let body = &server.asked()[1].body;
    let Ok(Head::Complete { request: UploadRequest::Upload(header), data_at }) = UploadRequest::parse(body)
    else {
        panic!()
    };
    assert_eq!(header.offset, Bytes(30_000));
    assert_eq!(body[data_at..], content()[30_000..]);
    // All of it is there already.
    assert_eq!(bench.upload(&content()[..20_000], server.url("up")).await, Ok(()));
    assert_eq!(server.asked().len(), 3);
}

#[tokio::test]
async fn an_upload_handlers_refusals_are_told_apart() {
    for (body, kind) in [
        (
            "<data_server_reply>\n<status>1</status>\n<message>busy</message>\n</data_server_reply>\n",
            TransferErrorKind::Transient,
        ),
        (
            "<data_server_reply>\n<status>-1</status>\n<message>bad key</message>\n</data_server_reply>\n",
            TransferErrorKind::Permanent,
        ),
        ("<html>hello</html>", TransferErrorKind::BadReply),
    ] {
        let server = Server::start(move |_| http("200 OK", "", body.as_bytes()));
        let mut bench = Bench::new();
        assert_eq!(bench.upload(b"x", server.url("up")).await.unwrap_err().kind, kind, "{body}");
    }
}

#[tokio::test]
async fn master_pages_and_scheduler_replies_are_read_or_refused() {
    let server = Server::start(|asked| {
        if asked.head.starts_with("get") {
            http("200 OK", "", b"<!-- <scheduler>http://127.0.0.1:1/cgi</scheduler> -->")
        } else if asked.head.contains("/good") {
            http("200 OK", "", SchedulerReply::default().write().as_bytes())
        } else {
            http("200 OK", "", b"<scheduler_reply>\n<request_delay>7")
        }
    });
    let mut bench = Bench::new();
    bench.transfers.fetch_master_page(ProjectId(1), MasterUrl::parse(&server.url("")).unwrap());
    match bench.event().await {
        Event::MasterPageRead { outcome, .. } => {
            assert_eq!(outcome, Ok(vec!["http://127.0.0.1:1/cgi".to_owned()]));
        }
        other => panic!("{other:?}"),
    }
    for (path, is_good) in [("good", true), ("cut", false)] {
        bench.transfers.call_scheduler(ProjectId(1), server.url(path), &SchedulerRequest::default());
        match (bench.event().await, is_good) {
            (Event::SchedulerAnswered { outcome: Ok(_), .. }, true) => {}
            (Event::SchedulerAnswered { outcome: Err(error), .. }, false) => {
                assert_eq!(error.kind, TransferErrorKind::BadReply);
            }
            (other, _) => panic!("{other:?}"),
        }
    }
    assert!(SchedulerRequest::parse(&server.asked()[1].body).is_ok());
}

#[tokio::test]
async fn a_cancelled_download_gives_no_event_and_keeps_its_part_from_the_project() {
    let server = Server::start(|_| {
        let mut answer = http("200 OK", "", &content());
        answer.truncate(500);
        std::thread::sleep(Duration::from_millis(300));
        answer
    });
    let mut bench = Bench::new();
    bench.transfers.download(Box::new(Bench::wanted(server.url("file"), &content())));
    bench.transfers.cancel(&key("file"));
    assert!(tokio::time::timeout(Duration::from_millis(600), bench.events.recv()).await.is_err());
}

#[tokio::test]
async fn an_end_that_was_on_its_way_when_its_transfer_was_given_up_is_not_that_of_the_next() {
    let server = Server::start(|_| http("404 Not Found", "", b""));
    let mut bench = Bench::new();
    bench.transfers.download(Box::new(Bench::wanted(server.url("file"), &content())));
    // It is in the queue when the client gives it up, and begins another one.
    let Some(Input::Transferred(late, _)) = bench.events.recv().await else { panic!("no end") };
    bench.transfers.cancel(&key("file"));
    assert!(!bench.transfers.settle(&late));
    bench.transfers.download(Box::new(Bench::wanted(server.url("file"), &content())));
    assert!(!bench.transfers.settle(&late));
    assert!(matches!(bench.event().await, Event::DownloadEnded { .. }));
}

#[tokio::test]
async fn a_size_of_zero_is_no_size() {
    let server = Server::start(|_| http("200 OK", "", &content()));
    let mut bench = Bench::new();
    let wanted = Download { nbytes: Some(Bytes(0)), ..Bench::wanted(server.url("file"), &content()) };
    assert_eq!(bench.download(wanted).await.unwrap(), Bytes(content().len() as u64));
}
