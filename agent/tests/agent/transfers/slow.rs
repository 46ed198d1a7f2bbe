//! Servers that say nothing, or hardly anything. The bounds are shorter here, but the rules are the same.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use fallow_agent::transfer::Limits;
use fallow_boinc::scheduler::SchedulerRequest;
use fallow_client::{Event, TransferErrorKind};
use fallow_domain::{Bytes, MasterUrl, ProjectId};

use super::{Bench, Server, content, http};
use crate::support::PATIENCE;

fn limits() -> Limits {
    Limits {
        stall: Duration::from_secs(1),
        slowest: 1_000,
        line: 1_000_000,
        longest_call: Duration::from_secs(2),
        idle: Duration::from_millis(200),
    }
}

/// A server that sends a head and then a byte every 20 ms, for ever: as good as nothing, yet never silent.
fn dripping() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://127.0.0.1:{}/", listener.local_addr().unwrap().port());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
                while stream.write_all(b" ").is_ok() {
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
        }
    });
    url
}

#[tokio::test]
async fn a_page_a_reply_and_a_file_that_drip_are_given_up() {
    let url = dripping();
    let mut bench = Bench::with_limits(limits());
    let error = bench.call(url.clone(), &SchedulerRequest::default()).await.unwrap_err();
    assert!(error.kind == TransferErrorKind::Transient && error.what.contains("too slow"), "{error}");
    bench.transfers.fetch_master_page(ProjectId(1), MasterUrl::parse(&url).unwrap());
    let Event::MasterPageRead { outcome: Err(error), .. } = bench.event().await else { panic!("it ended") };
    assert!(error.what.contains("too slow"), "{error}");
    let error = bench.download(Bench::wanted(url, &content())).await.unwrap_err();
    assert!(error.kind == TransferErrorKind::Transient && error.what.contains("hardly any"), "{error}");
}

/// A server that takes bytes at some speed and never answers.
fn sipping(bytes: usize, pause: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://127.0.0.1:{}/", listener.local_addr().unwrap().port());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = vec![0; bytes];
        while stream.read(&mut buffer).is_ok_and(|read| read > 0) {
            std::thread::sleep(pause);
        }
    });
    url
}

#[tokio::test]
async fn an_upload_to_a_server_that_takes_nothing_is_given_up() {
    let mut bench = Bench::with_limits(limits());
    let error = bench.upload(&content()[..5_000], sipping(1, Duration::from_secs(1))).await.unwrap_err();
    assert!(error.kind == TransferErrorKind::Transient && error.what.contains("hardly any"), "{error}");
}

#[tokio::test]
async fn a_connection_that_is_not_used_any_more_is_closed_by_the_agent() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://127.0.0.1:{}/", listener.local_addr().unwrap().port());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n ").unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.read(&mut [0])
    });
    let mut bench = Bench::with_limits(Limits { idle: limits().idle, ..Limits::default() });
    bench.transfers.fetch_master_page(ProjectId(1), MasterUrl::parse(&url).unwrap());
    let _ = bench.event().await;
    let ended = tokio::task::spawn_blocking(|| server.join().unwrap()).await.unwrap();
    assert_eq!(ended.expect("it is closed"), 0);
}

/// Shows that the bytes of a second are shared; the lower bound of the time is the limit's own, whatever the
/// machine does.
#[tokio::test]
async fn r6_4_files_take_as_long_as_a_limit_on_bytes_a_second_says_and_the_server_is_not_blamed() {
    let file = vec![b'x'; 30_000];
    let body = file.clone();
    let server = Server::start(move |asked| match asked.head.starts_with("post ") {
        true => http("200 OK", "", b"<data_server_reply>\n<status>0</status>\n</data_server_reply>\n"),
        false => http("200 OK", "", &body),
    });
    let mut bench =
        Bench::with_limits(Limits { stall: Duration::from_secs(1), slowest: 1, ..Limits::default() });
    bench.transfers.limit(Some(Bytes(10_000)), Some(Bytes(10_000)));
    let began = std::time::Instant::now();
    bench.download(Bench::wanted(server.url("file"), &file)).await.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(2_900), "{:?}", began.elapsed());
    let began = std::time::Instant::now();
    bench.upload(&file[..20_000], server.url("upload")).await.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(1_900), "{:?}", began.elapsed());
    bench.transfers.limit(None, None);
    bench.download(Bench::wanted(server.url("file"), &file)).await.unwrap();
}
