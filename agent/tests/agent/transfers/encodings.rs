//! Answers that are compressed for the way.

use std::io::Write;

use fallow_boinc::scheduler::{SchedulerReply, SchedulerRequest};
use fallow_client::{Direction, Download, Event, TransferErrorKind};
use fallow_domain::{Bytes, MasterUrl, ProjectId};

use super::{Bench, Server, content, http};
use crate::support::put;

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

const GZIP: &str = "Content-Encoding: gzip\r\n";

#[tokio::test]
async fn r6_2_pages_replies_and_files_are_taken_compressed_as_the_stock_client_takes_them() {
    let server = Server::start(|asked| {
        assert!(asked.head.contains("accept-encoding: deflate, gzip"), "{}", asked.head);
        let plain = match () {
            () if asked.head.starts_with("post") => {
                SchedulerReply { hostid: Some(77), ..SchedulerReply::default() }.write().into_bytes()
            }
            () if asked.head.contains("/file") => content(),
            () => b"<scheduler>http://127.0.0.1:1/cgi</scheduler>".to_vec(),
        };
        http("200 OK", GZIP, &gzip(&plain))
    });
    let mut bench = Bench::new();
    let reply = bench.call(server.url("cgi"), &SchedulerRequest::default()).await;
    assert_eq!(reply.map(|reply| reply.hostid), Ok(Some(77)));
    bench.transfers.fetch_master_page(ProjectId(1), MasterUrl::parse(&server.url("")).unwrap());
    let Event::MasterPageRead { outcome, .. } = bench.event().await else { panic!("no page") };
    assert_eq!(outcome, Ok(vec!["http://127.0.0.1:1/cgi".to_owned()]));
    assert_eq!(bench.download(Bench::wanted(server.url("file"), &content())).await, Ok(Bytes(100_000)));
    assert_eq!(bench.place(), content());
}

#[tokio::test]
async fn a_rest_of_a_file_is_asked_for_as_it_is_and_never_appended_when_it_comes_compressed() {
    let server = Server::start(|asked| {
        assert!(!asked.head.contains("accept-encoding"), "{}", asked.head);
        let headers = format!("{GZIP}Content-Range: bytes 500-99999/100000\r\n");
        http("206 Partial Content", &headers, &gzip(&content()[500..]))
    });
    let mut bench = Bench::new();
    put(&bench.partial(), &content()[..500]);
    let error = bench.download(Bench::wanted(server.url("file"), &content())).await.unwrap_err();
    assert_eq!(error.kind, TransferErrorKind::Transient, "{error}");
    assert!(!bench.partial().exists());
}

#[tokio::test]
async fn r6_10_a_bomb_is_bounded_like_what_is_not_compressed() {
    let server = Server::start(|_| http("200 OK", GZIP, &gzip(&vec![b' '; 40 << 20])));
    let mut bench = Bench::new();
    let error = bench.call(server.url("cgi"), &SchedulerRequest::default()).await.unwrap_err();
    assert!(error.kind == TransferErrorKind::BadReply && error.what.contains("longer than"), "{error}");
    let error = bench.download(Bench::wanted(server.url("file"), &content())).await.unwrap_err();
    assert!(error.kind == TransferErrorKind::WrongSize && !bench.partial().exists(), "{error}");
}

#[tokio::test]
async fn r6_10_what_follows_a_compressed_answer_or_holds_nothing_is_refused_and_never_waited_for() {
    let followed = [gzip(SchedulerReply::default().write().as_bytes()), b"more".to_vec()].concat();
    // Ten megabytes of members without a byte in them.
    let hollow = gzip(b"").repeat(500_000);
    for (body, expected) in [(followed, "cannot be expanded"), (hollow, "only 0 were in them")] {
        let server = Server::start(move |_| http("200 OK", GZIP, &body));
        let mut bench = Bench::new();
        let error = bench.call(server.url("cgi"), &SchedulerRequest::default()).await.unwrap_err();
        assert!(error.kind == TransferErrorKind::Transient && error.what.contains(expected), "{error}");
        let error = bench.download(Bench::wanted(server.url("file"), &content())).await.unwrap_err();
        assert!(error.kind == TransferErrorKind::Transient && error.what.contains(expected), "{error}");
        let came: u64 = bench.traffic.iter().map(|part| part.bytes.0).sum();
        assert!(came < 4 << 20, "{came} bytes were taken");
    }
}

#[tokio::test]
async fn r6_2_an_empty_answer_that_is_said_to_be_compressed_is_an_empty_answer() {
    for headers in [GZIP, "Content-Encoding: deflate\r\n", ""] {
        let server = Server::start(move |_| http("200 OK", headers, b""));
        let mut bench = Bench::new();
        let error = bench.call(server.url("cgi"), &SchedulerRequest::default()).await.unwrap_err();
        assert!(error.kind == TransferErrorKind::BadReply && error.what.contains("is empty"), "{error}");
        bench.transfers.fetch_master_page(ProjectId(1), MasterUrl::parse(&server.url("")).unwrap());
        let Event::MasterPageRead { outcome, .. } = bench.event().await else { panic!("no page") };
        assert_eq!(outcome, Ok(vec![]), "{headers}");
        assert_eq!(bench.download(Bench::wanted(server.url("file"), b"")).await, Ok(Bytes(0)), "{headers}");
        assert_eq!(bench.place(), b"");
    }
}

#[tokio::test]
async fn an_answer_that_is_not_what_its_headers_say_is_a_failure_that_may_pass() {
    let server = Server::start(|_| http("200 OK", GZIP, b"this is no gzip"));
    let mut bench = Bench::new();
    let error = bench.download(Bench::wanted(server.url("file"), &content())).await.unwrap_err();
    assert_eq!(error.kind, TransferErrorKind::Transient, "{error}");
}

#[tokio::test]
async fn r6_2_how_fast_files_come_and_go_is_measured() {
    let server = Server::start(|asked| match asked.head.starts_with("get") {
        true => http("200 OK", "", &content()),
        false => http("200 OK", "", b"<data_server_reply>\n<status>0</status>\n</data_server_reply>\n"),
    });
    let mut bench = Bench::new();
    let wanted = Download { ..Bench::wanted(server.url("file"), &content()) };
    assert!(bench.download(wanted).await.is_ok());
    assert!(bench.upload(b"result", server.url("up")).await.is_ok());
    let measured: Vec<(Direction, bool)> =
        bench.traffic.iter().map(|part| (part.direction, part.bytes >= Bytes(100_000))).collect();
    assert_eq!(measured, [(Direction::Download, true), (Direction::Upload, false)]);
    assert!(bench.traffic.iter().all(|part| part.took.is_positive()));
}
