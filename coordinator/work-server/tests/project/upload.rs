//! Uploads: permission, resume, repetition, concurrency, corruption.

use std::io::Write;

use fallow_boinc::scheduler::ClientVersion;
use fallow_boinc::transfer::{DataServerReply, UploadHeader, UploadRequest, UploadStatus};
use fallow_domain::Bytes;
use fallow_work_server::ProjectInfo;

use crate::client::{Client, body_of};
use crate::fixture::{Fixture, workunit};
use crate::http::{open, post};
use crate::wait::until;

const JOB: &str = "app_00000001_0";

fn one_job() -> (Fixture, ProjectInfo, Client) {
    let fixture = Fixture::start();
    let info = fixture.project("p");
    fixture.script("p", "app");
    fixture.server.submit("p", vec![workunit("app", "x", 1e11, 1)]).unwrap();
    let mut client = Client::new(&fixture, &info, "a");
    assert_eq!(client.fetch(1.0).results.len(), 1);
    (fixture, info, client)
}

fn send(client: &Client, header: UploadHeader, data: &[u8]) -> DataServerReply {
    let head = UploadRequest::Upload(header).write();
    raw(client, &[head.as_bytes(), data].concat())
}

fn raw(client: &Client, body: &[u8]) -> DataServerReply {
    let answer = post(&format!("{}file_upload_handler", client.url), body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    DataServerReply::parse(&answer.body).unwrap()
}

fn size(client: &Client, name: &str) -> u64 {
    let question =
        UploadRequest::FileSize { client_version: ClientVersion::default(), name: name.to_owned() };
    let reply = raw(client, question.write().as_bytes());
    assert_eq!(reply.status, UploadStatus::Ok);
    reply.file_size.unwrap().0
}

/// What the server has of the job's output in the end.
fn canonical(fixture: &Fixture, client: &mut Client) -> Vec<u8> {
    client.report(JOB, fallow_boinc::scheduler::ResultState::Uploaded, 0);
    client.rpc();
    fixture.server.run_background_work().unwrap();
    let mut results = fixture.server.list_results("p", None, 0).unwrap().items;
    results.remove(0).outputs.remove(0).content
}

#[test]
fn r6_8_a_broken_upload_goes_on_where_it_broke() {
    let (fixture, _info, mut client) = one_job();
    let content: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    let header = client.upload_header(JOB, &content);
    let name = header.name.clone();
    assert_eq!(size(&client, &name), 0);
    // The connection breaks after 150,000 bytes of the body.
    let head = UploadRequest::Upload(header.clone()).write();
    let length = format!("Content-Length: {}\r\n", head.len() + content.len());
    let mut stream = open("POST", &format!("{}file_upload_handler", client.url), &length);
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&content[..150_000]).unwrap();
    drop(stream);
    until("what was sent is there", || size(&client, &name) == 150_000);
    let rest = UploadHeader { offset: Bytes(150_000), ..header };
    let reply = send(&client, rest, &content[150_000..]);
    assert_eq!(reply.status, UploadStatus::Ok, "{reply:?}");
    assert_eq!(size(&client, &name), content.len() as u64);
    assert_eq!(canonical(&fixture, &mut client), content);
}

#[test]
fn r6_8_a_repeated_upload_is_answered_alike_and_changes_nothing() {
    let (fixture, _info, mut client) = one_job();
    assert_eq!(client.upload(JOB, b"first").status, UploadStatus::Ok);
    assert_eq!(client.upload(JOB, b"first").status, UploadStatus::Ok);
    assert_eq!(client.upload(JOB, b"other").status, UploadStatus::Ok);
    let header = client.upload_header(JOB, b"first");
    assert_eq!(canonical(&fixture, &mut client), b"first");
    // Even after the job is over.
    assert_eq!(send(&client, header, b"first").status, UploadStatus::Ok);
}

#[test]
fn r6_8_without_the_projects_permission_nothing_is_taken() {
    let (fixture, _info, client) = one_job();
    let good = client.upload_header(JOB, b"data");
    let bigger = UploadHeader { max_nbytes: Bytes(2_000_000), ..good.clone() };
    let renamed = UploadHeader { name: "app_00000001_0_1".into(), ..good.clone() };
    let unsigned = UploadHeader { xml_signature: String::new(), ..good.clone() };
    let too_long = UploadHeader { nbytes: Bytes(1_000_001), ..good.clone() };
    for bad in [bigger, renamed, unsigned, too_long] {
        let reply = send(&client, bad.clone(), b"data");
        assert_eq!(reply.status, UploadStatus::Permanent, "{bad:?}: {reply:?}");
        assert!(reply.message.is_some());
    }
    assert_eq!(size(&client, &good.name), 0);
    // Another project's permission is none here.
    let other = fixture.project("q");
    let mut elsewhere = Client::new(&fixture, &other, "a");
    elsewhere.rpc();
    elsewhere.held = client.held;
    assert_eq!(elsewhere.upload(JOB, b"data").status, UploadStatus::Permanent);
}

#[test]
fn r6_8_a_file_whose_md5_is_another_one_is_started_over() {
    let (fixture, _info, mut client) = one_job();
    let header = client.upload_header(JOB, b"what was meant");
    assert_eq!(send(&client, header.clone(), b"what  arrived!").status, UploadStatus::Transient);
    assert_eq!(size(&client, &header.name), 0);
    assert_eq!(send(&client, header.clone(), b"too short").status, UploadStatus::Transient);
    assert_eq!(size(&client, &header.name), 9);
    let beyond = UploadHeader { offset: Bytes(12), ..header.clone() };
    assert_eq!(send(&client, beyond, b"nt").status, UploadStatus::Transient);
    assert_eq!(
        send(&client, header.clone(), b"much more than was announced").status,
        UploadStatus::Transient
    );
    assert_eq!(send(&client, header, b"what was meant").status, UploadStatus::Ok);
    assert_eq!(canonical(&fixture, &mut client), b"what was meant");
}

#[test]
fn r6_8_of_several_connections_one_writes_and_the_file_is_whole() {
    let (fixture, _info, mut client) = one_job();
    let content: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    let header = client.upload_header(JOB, &content);
    let body = [UploadRequest::Upload(header).write().as_bytes(), &content].concat();
    let url = format!("{}file_upload_handler", client.url);
    let statuses: Vec<UploadStatus> = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| DataServerReply::parse(&post(&url, &body).body).unwrap().status))
            .collect();
        senders.into_iter().map(|sender| sender.join().unwrap()).collect()
    });
    assert!(statuses.contains(&UploadStatus::Ok), "{statuses:?}");
    assert!(!statuses.contains(&UploadStatus::Permanent), "{statuses:?}");
    assert_eq!(canonical(&fixture, &mut client), content);
}

#[test]
fn r6_8_an_upload_in_progress_keeps_others_out_and_frees_its_place_when_it_breaks() {
    let (_fixture, _info, client) = one_job();
    let header = client.upload_header(JOB, b"0123456789");
    let name = header.name.clone();
    let head = UploadRequest::Upload(header).write();
    let length = format!("Content-Length: {}\r\n", head.len() + 10);
    let mut slow = open("POST", &format!("{}file_upload_handler", client.url), &length);
    slow.write_all(head.as_bytes()).unwrap();
    slow.write_all(b"01234").unwrap();
    // It has its place once some of it is there.
    until("the slow one has begun", || size(&client, &name) == 5);
    let upload = || client.upload(JOB, b"0123456789").status;
    assert_eq!(upload(), UploadStatus::Transient);
    drop(slow);
    until("its place is free", || upload() == UploadStatus::Ok);
}

#[test]
fn r6_8_what_is_no_upload_is_refused_for_good() {
    let (_fixture, _info, client) = one_job();
    for bad in
        [&b""[..], b"<data_server_request></data_server_request>", &[b'x'; 40_000], b"\0\xff\n\n<data>\n"]
    {
        assert_eq!(raw(&client, bad).status, UploadStatus::Permanent);
    }
    let captured = include_bytes!(
        "../../../../shared/boinc/fixtures/captures/09_POST_anchor_cgi-file_upload_handler.request"
    );
    let reply = raw(&client, body_of(captured));
    assert_eq!(
        (reply.status, reply.message.as_deref()),
        (UploadStatus::Permanent, Some("invalid signature"))
    );
}

#[test]
fn r6_8_a_connection_without_permission_keeps_nobody_out() {
    let (fixture, _info, mut client) = one_job();
    let header = client.upload_header(JOB, b"0123456789");
    let head = UploadRequest::Upload(UploadHeader { xml_signature: "00".into(), ..header }).write();
    let length = format!("Content-Length: {}\r\n", head.len() + 1_000);
    let mut stranger = open("POST", &format!("{}file_upload_handler", client.url), &length);
    stranger.write_all(head.as_bytes()).unwrap();
    stranger.write_all(b"01234").unwrap();
    // The stranger goes on for as long as it likes; the host is told to come again for a moment at most.
    until("the host is served", || client.upload(JOB, b"0123456789").status == UploadStatus::Ok);
    assert_eq!(canonical(&fixture, &mut client), b"0123456789");
    drop(stranger);
}
