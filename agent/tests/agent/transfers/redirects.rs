//! Servers that send requests on to somewhere else.

use fallow_boinc::scheduler::{SchedulerReply, SchedulerRequest};
use fallow_client::TransferErrorKind;
use fallow_domain::{AccountKey, Bytes, ProjectId};

use super::{Asked, Bench, Server, content, http};
use crate::support::put;

fn sent_on(status: u16, to: &str) -> Vec<u8> {
    http(&format!("{status} Elsewhere"), &format!("Location: {to}\r\n"), b"gone")
}

fn request() -> SchedulerRequest {
    SchedulerRequest {
        authenticator: AccountKey::new("0123456789abcdef0123456789abcdef"),
        ..SchedulerRequest::default()
    }
}

fn reply() -> Vec<u8> {
    http("200 OK", "", SchedulerReply { hostid: Some(77), ..SchedulerReply::default() }.write().as_bytes())
}

fn is_whole(asked: &Asked) -> bool {
    asked.head.starts_with("post")
        && asked.head.contains("content-type: text/xml")
        && asked.text().contains("0123456789abcdef0123456789abcdef")
        && asked.text().contains("</scheduler_request>")
}

#[tokio::test]
async fn r6_2_a_moved_scheduler_is_still_posted_to() {
    for status in [301, 302, 307, 308] {
        let server =
            Server::start(
                move |asked| {
                    if asked.head.contains("/p/old") { sent_on(status, "/p/new") } else { reply() }
                },
            );
        let mut bench = Bench::new();
        let answer = bench.call(server.url("old"), &request()).await;
        assert_eq!(answer.map(|reply| reply.hostid), Ok(Some(77)), "{status}");
        let asked = server.asked();
        assert!(asked.len() == 2 && asked.iter().all(is_whole), "{status}: {asked:?}");
        assert!(bench.moved.is_empty(), "the host is the same: {:?}", bench.moved);
    }
}

#[tokio::test]
async fn r6_2_after_a_303_the_answer_is_fetched_and_nothing_is_sent_there() {
    let server =
        Server::start(|asked| if asked.head.contains("/p/old") { sent_on(303, "answer") } else { reply() });
    let mut bench = Bench::new();
    assert!(bench.call(server.url("old"), &request()).await.is_ok());
    let asked = server.asked();
    assert!(asked[1].head.starts_with("get /p/answer") && asked[1].text().is_empty(), "{asked:?}");
}

#[tokio::test]
async fn a_scheduler_that_moved_to_another_host_is_followed_and_that_is_said_once() {
    for status in [301, 302, 307, 308] {
        let new = Server::start(|_| reply());
        let to = new.url("cgi");
        let old = Server::start(move |_| sent_on(status, &to));
        let mut bench = Bench::new();
        for _ in 0..3 {
            assert!(bench.call(old.url("cgi"), &request()).await.is_ok(), "{status}");
        }
        assert!(new.asked().len() == 3 && new.asked().iter().all(is_whole));
        // Another port is another host.
        assert!(
            matches!(bench.moved.as_slice(), [text] if text.contains(&new.url("cgi"))),
            "{:?}",
            bench.moved
        );
    }
}

#[tokio::test]
async fn r6_10_a_project_that_moves_all_the_time_keeps_no_other_projects_move_from_being_said() {
    let hops = std::sync::atomic::AtomicU16::new(0);
    let mover = Server::start(move |_| {
        // Somewhere else each time, where nobody listens.
        let port = 1 + hops.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        sent_on(301, &format!("http://127.0.0.1:{port}/cgi"))
    });
    let new = Server::start(|_| reply());
    let to = new.url("cgi");
    let moved_once = Server::start(move |_| sent_on(301, &to));
    let mut bench = Bench::new();
    for _ in 0..120 {
        assert!(bench.call(mover.url("cgi"), &request()).await.is_err());
    }
    assert!((1..=10).contains(&bench.moved.len()), "{} moves of one project were said", bench.moved.len());
    bench.moved.clear();
    bench.transfers.call_scheduler(ProjectId(2), moved_once.url("cgi"), &request());
    bench.event().await;
    assert!(matches!(bench.moved.as_slice(), [text] if text.contains(&new.url("cgi"))), "{:?}", bench.moved);
    // The first one is attached anew, and looked at anew.
    bench.moved.clear();
    bench.transfers.cancel_project(ProjectId(1));
    assert!(bench.call(moved_once.url("cgi"), &request()).await.is_ok());
    assert_eq!(bench.moved.len(), 1);
}

#[tokio::test]
async fn r6_10_a_redirect_to_a_file_or_without_end_is_given_up() {
    for (to, expected) in
        [("file:///etc/passwd", TransferErrorKind::Permanent), ("/p/again", TransferErrorKind::Transient)]
    {
        let server = Server::start(move |_| sent_on(301, to));
        let mut bench = Bench::new();
        let error = bench.call(server.url("again"), &request()).await.unwrap_err();
        assert_eq!(error.kind, expected, "{error}");
        assert!(server.asked().len() <= 51, "{}", server.asked().len());
    }
}

#[tokio::test]
async fn r6_2_a_moved_upload_handler_gets_the_whole_result() {
    for status in [301, 302, 307, 308] {
        let server = Server::start(move |asked| {
            match () {
            () if asked.head.contains("/p/old") => sent_on(status, "/p/new"),
            () if asked.text().contains("get_file_size") => {
                http("200 OK", "", b"<data_server_reply>\n<status>0</status>\n<file_size>70000</file_size>\n</data_server_reply>\n")
            }
            () => http("200 OK", "", b"<data_server_reply>\n<status>0</status>\n</data_server_reply>\n"),
        }
        });
        let mut bench = Bench::new();
        assert_eq!(bench.upload(&content(), server.url("old")).await, Ok(()), "{status}");
        let asked = server.asked();
        let last = asked.last().unwrap();
        assert!(last.head.contains("/p/new") && last.body.ends_with(&content()[70_000..]), "{status}");
        assert_eq!(asked.len(), 4, "two questions, two times the rest");
    }
}

#[tokio::test]
async fn a_moved_file_is_downloaded_from_where_it_is_and_a_part_of_it_goes_on_there() {
    let mirror = Server::start(|asked| {
        assert!(asked.head.contains("range: bytes=500-"), "{}", asked.head);
        http("206 Partial Content", "Content-Range: bytes 500-99999/100000\r\n", &content()[500..])
    });
    let to = mirror.url("file");
    let server = Server::start(move |_| sent_on(302, &to));
    let mut bench = Bench::new();
    put(&bench.partial(), &content()[..500]);
    assert_eq!(bench.download(Bench::wanted(server.url("file"), &content())).await, Ok(Bytes(100_000)));
    // Nothing of ours went there.
    assert!(bench.moved.is_empty());
}
