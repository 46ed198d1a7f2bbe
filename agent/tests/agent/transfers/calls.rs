//! Master pages and scheduler RPCs.

use fallow_boinc::scheduler::{SchedulerReply, SchedulerRequest};
use fallow_client::{Event, TransferErrorKind};
use fallow_domain::{MasterUrl, ProjectId};

use super::{Bench, Server, http};

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
