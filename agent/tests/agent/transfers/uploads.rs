//! Uploads: at once, in part, refused.

use fallow_boinc::signature::md5_hex;
use fallow_boinc::transfer::{Head, UploadRequest};
use fallow_client::{TransferError, TransferErrorKind};
use fallow_domain::Bytes;

use super::{Bench, Server, content, http, project};
use crate::support::put;

const DONE: &[u8] = b"<data_server_reply>\n    <status>0</status>\n</data_server_reply>\n";

const HAS: &[u8] =
    b"<data_server_reply>\n    <status>0</status>\n    <file_size>30000</file_size>\n</data_server_reply>\n";

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
            http("200 OK", "", HAS)
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

/// Shows R6.2.
#[tokio::test]
async fn an_output_that_has_changed_goes_on_only_where_the_server_has_more_than_it_was_before() {
    // The server has 30,000 bytes.
    for (stale, offset) in [(30_000, 0), (29_999, 30_000)] {
        let server = Server::start(|asked| {
            let asks = asked.body.windows(13).any(|window| window == b"get_file_size");
            http("200 OK", "", if asks { HAS } else { DONE })
        });
        let mut bench = Bench::new();
        bench.stale = Bytes(stale);
        assert_eq!(bench.upload(&content(), server.url("up")).await, Ok(()));
        let asked = server.asked();
        let last = &asked.last().unwrap().body;
        let Ok(Head::Complete { request: UploadRequest::Upload(header), data_at }) =
            UploadRequest::parse(last)
        else {
            panic!("{}", String::from_utf8_lossy(&last[..200]));
        };
        assert_eq!(header.offset, Bytes(offset), "{stale}");
        assert_eq!(last[data_at..], content()[usize::try_from(offset).unwrap()..]);
        // One that is no longer than it was is sent as a whole, whatever is there.
        let short = &content()[..usize::try_from(stale).unwrap()];
        assert_eq!(bench.upload(short, server.url("up")).await, Ok(()));
        assert_eq!(server.asked().len(), asked.len() + 1);
    }
}

#[tokio::test]
async fn r6_10_only_an_output_that_is_gone_or_another_is_given_up() {
    let server = Server::start(|_| http("200 OK", "", DONE));
    let mut bench = Bench::new();
    let place = bench.data.project(&project()).join("file");
    assert_eq!(bench.upload(b"result", server.url("up")).await, Ok(()));
    put(&place, b"another one");
    let kind = |outcome: Result<(), TransferError>| outcome.unwrap_err().kind;
    assert_eq!(kind(bench.upload_again(b"result", server.url("up")).await), TransferErrorKind::Changed);
    std::fs::remove_file(&place).unwrap();
    assert_eq!(kind(bench.upload_again(b"result", server.url("up")).await), TransferErrorKind::Changed);
    std::os::unix::fs::symlink("/etc/passwd", &place).unwrap();
    assert_eq!(kind(bench.upload_again(b"result", server.url("up")).await), TransferErrorKind::Changed);
}
