//! Downloads: whole, in part, compressed, wrong.

use std::io::{ErrorKind, Read as _, Write};
use std::time::Duration;

use fallow_agent::input::Input;
use fallow_agent::transfer::USER_AGENT;
use fallow_boinc::signature::{PrivateKey, md5_hex};
use fallow_client::{Download, Event, RequiredSignature, TransferErrorKind};
use fallow_domain::Bytes;

use super::{Bench, Server, content, http, key, project};
use crate::hostile_jobs::{all_descriptors, as_ordinary_user};
use crate::support::{PATIENCE, put};

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
    let signature = private.sign_file(&md5_hex(content()), &mut random).unwrap();
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
async fn a_compressed_file_that_cannot_be_expanded_here_now_is_not_fetched_again() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(&content()).unwrap();
    let packed = encoder.finish().unwrap();
    let server = Server::start(move |_| http("200 OK", "", &packed));
    let mut bench = Bench::new();
    let wanted = Download { gzipped: true, ..Bench::wanted(server.url("file.gz"), &content()) };
    // No file can be made there.
    std::fs::create_dir_all(bench.partial()).unwrap();
    assert_eq!(bench.download(wanted.clone()).await.unwrap_err().kind, TransferErrorKind::LocalFile);
    std::fs::remove_dir(bench.partial()).unwrap();
    assert_eq!(bench.download(wanted).await, Ok(Bytes(100_000)));
    assert_eq!(server.asked().len(), 1);
    assert_eq!(std::fs::read_dir(bench.data.partial(&project())).unwrap().count(), 0);
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

#[tokio::test]
async fn a_cancelled_download_gives_no_event_and_keeps_its_part_from_the_project() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://127.0.0.1:{}/file", listener.local_addr().unwrap().port());
    let (begins, begun) = tokio::sync::oneshot::channel();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        stream.write_all(&http("200 OK", "", &content())[..500]).unwrap();
        begins.send(()).unwrap();
        // Until the agent hangs up.
        stream.read(&mut [0])
    });
    let mut bench = Bench::new();
    bench.transfers.download(Box::new(Bench::wanted(url, &content())));
    begun.await.unwrap();
    bench.transfers.cancel(&key("file"));
    let end = tokio::task::spawn_blocking(|| server.join().unwrap()).await.unwrap();
    assert!(!matches!(&end, Err(error) if error.kind() == ErrorKind::WouldBlock), "it goes on");
    // With its connection it is gone; its event would have been its last act.
    assert!(bench.events.try_recv().is_err());
    assert!(!bench.data.project(&project()).join("file").exists());
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

/// A server whose file has no end and no size.
fn endless() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://127.0.0.1:{}/file", listener.local_addr().unwrap().port());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = std::io::Read::read(&mut stream, &mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
            while stream.write_all(&[7; 65_536]).is_ok() {}
        }
    });
    url
}

#[tokio::test]
async fn r6_10_an_endless_download_ends_where_its_room_does_and_leaves_nothing() {
    let unknown =
        Download { nbytes: None, md5: None, limit: Bytes(3 << 20), ..Bench::wanted(endless(), b"") };
    let announced = Download { nbytes: Some(Bytes(2 << 20)), ..unknown.clone() };
    let packed = Download { gzipped: true, ..unknown.clone() };
    let at_most = Download { limited_by_host: false, ..unknown.clone() };
    // What is more than this host has room for may fit later; what is more than the project said never comes
    // right.
    let (no_space, wrong) = (TransferErrorKind::DiskFull, TransferErrorKind::WrongSize);
    for (wanted, kind, expected) in [
        (unknown, no_space, "3145728 bytes that it may have on this host"),
        (at_most, wrong, "3145728 bytes that it may have by what the project says"),
        (announced, wrong, "2097152 bytes that the project announced"),
        (packed, no_space, "bytes that it may have on this host"),
    ] {
        let mut bench = Bench::new();
        let error = bench.download(wanted).await.unwrap_err();
        assert!(error.kind == kind && error.what.contains(expected), "{error}");
        let left = std::fs::read_dir(bench.data.partial(&project())).unwrap().count();
        assert_eq!(left, 0, "{error}");
    }
}

#[tokio::test]
async fn r4_12_a_download_for_which_there_is_no_space_is_not_begun() {
    let server = Server::start(|_| http("200 OK", "", &content()));
    let mut bench = Bench::new();
    let wanted = Download { keep_free: Bytes(1 << 60), ..Bench::wanted(server.url("file"), &content()) };
    let error = bench.download(wanted).await.unwrap_err();
    assert!(error.kind == TransferErrorKind::DiskFull && error.what.contains("no space"), "{error}");
    assert!(server.asked().is_empty() && !bench.partial().exists());
}

#[tokio::test]
async fn r4_12_what_came_of_a_file_is_kept_while_there_is_no_space_and_not_for_ever() {
    let server = Server::start(|_| http("200 OK", "", &content()));
    let mut bench = Bench::new();
    put(&bench.partial(), &content()[..40_000]);
    let wanted = Download { keep_free: Bytes(1 << 60), ..Bench::wanted(server.url("file"), &content()) };
    let error = bench.download(wanted.clone()).await.unwrap_err();
    assert_eq!(error.kind, TransferErrorKind::DiskFull, "{error}");
    assert_eq!(std::fs::metadata(bench.partial()).unwrap().len(), 40_000, "it may be full for a moment only");
    let two_hours_ago = std::time::SystemTime::now() - Duration::from_hours(2);
    let file = std::fs::File::options().write(true).open(bench.partial()).unwrap();
    file.set_modified(two_hours_ago).unwrap();
    bench.download(wanted).await.unwrap_err();
    assert!(!bench.partial().exists(), "others may wait for its space");
}

#[tokio::test]
async fn r6_10_a_file_that_is_here_stays_while_the_agent_can_open_no_file() {
    let name = "transfers::downloads::r6_10_a_file_that_is_here_stays_while_the_agent_can_open_no_file";
    if as_ordinary_user(name) {
        return;
    }
    let mut bench = Bench::new();
    let place = bench.data.project(&project()).join("file");
    put(&place, &content());
    std::fs::create_dir_all(bench.data.partial(&project())).unwrap();
    let wanted = Bench::wanted("http://127.0.0.1:9/file".into(), &content());
    let all = all_descriptors();
    let error = bench.download(wanted.clone()).await.unwrap_err();
    drop(all);
    assert!(place.exists(), "{error}");
    assert_eq!(error.kind, TransferErrorKind::LocalFile, "{error}");
    assert_eq!(bench.download(wanted).await, Ok(Bytes(100_000)), "nobody is asked for it");
}
