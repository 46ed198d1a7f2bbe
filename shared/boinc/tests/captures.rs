//! Everything that a stock client and a real server said to each other can be read, and what we write in a
//! client's place is what it wrote. The exchanges are in `fixtures/captures`, their origin in
//! `fixtures/README.md`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use fallow_boinc::account::{AccountFile, AccountOut, create_query, lookup_query};
use fallow_boinc::runtime::init_data::AppInitData;
use fallow_boinc::scheduler::{Priority, ResultState, SchedulerReply, SchedulerRequest};
use fallow_boinc::signature::{PublicKey, md5_hex};
use fallow_boinc::transfer::{DataServerReply, Head, UploadRequest, UploadStatus};
use fallow_domain::{Bytes, Duration, MasterUrl};

/// Lines of a stock client's request that ours lacks or writes otherwise, each with its reason. Beside them,
/// only white space differs: indentation, and blank lines in standard error.
///
/// - `wsl_available` (Windows Subsystem for Linux) is sent by client 7.20; client 8 no longer sends it, and
///   no agent of ours runs on Windows.
/// - `d_project_share` is a share of free space, which a stock client gives to fractions of a byte; ours are
///   whole.
const DIFFERENT: [&str; 2] = ["<wsl_available>", "<d_project_share>"];

fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

#[test]
fn every_captured_exchange_is_read_by_its_kind() {
    let mut kinds = BTreeMap::new();
    for (name, bytes) in fixtures() {
        let kind = match name.split_once('_').map_or("", |(_, rest)| rest) {
            "POST_anchor_cgi-cgi.request" => {
                SchedulerRequest::parse(body(&bytes)).map(|_| "scheduler request").unwrap()
            }
            "POST_anchor_cgi-cgi.response" => {
                SchedulerReply::parse(&dechunked(&bytes)).map(|_| "scheduler reply").unwrap()
            }
            "POST_anchor_cgi-file_upload_handler.request" => check_upload(&name, body(&bytes)),
            "POST_anchor_cgi-file_upload_handler.response" => {
                let reply = DataServerReply::parse(&dechunked(&bytes)).unwrap();
                assert_eq!(reply.status, UploadStatus::Ok, "{name}");
                "upload reply"
            }
            "GET_anchor-create_account.php.request" | "GET_anchor-lookup_account.php.request" => {
                "account query"
            }
            "GET_anchor-create_account.php.response" | "GET_anchor-lookup_account.php.response" => {
                let answer = AccountOut::parse(&dechunked(&bytes)).unwrap();
                assert!(matches!(answer, AccountOut::Authenticator(key) if key.reveal() == ACCOUNT_KEY));
                "account reply"
            }
            "127.0.0.1_8080_anchor.xml" => check_account_file(&name, &bytes),
            "data.xml" => check_init_data(&bytes),
            other => panic!("no test for {other}"),
        };
        *kinds.entry(kind).or_insert(0) += 1;
    }
    let expected = [
        ("account file", 1),
        ("account query", 2),
        ("account reply", 2),
        ("init_data", 1),
        ("scheduler reply", 15),
        ("scheduler request", 15),
        ("upload reply", 10),
        ("upload request", 10),
    ];
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), expected);
}

const ACCOUNT_KEY: &str = "dd53bc9df626e2c801c9de98d0629b14";

fn check_upload(name: &str, body: &[u8]) -> &'static str {
    let Head::Complete { request, data_at } = UploadRequest::parse(body).unwrap() else {
        panic!("{name}: the head is whole")
    };
    assert_eq!(
        request.write(),
        String::from_utf8_lossy(&body[..data_at]),
        "{name}: written back to the byte"
    );
    let UploadRequest::Upload(header) = request else { panic!("{name} uploads") };
    let data = &body[data_at..];
    assert_eq!(Bytes(data.len() as u64 + header.offset.0), header.nbytes, "{name}");
    assert_eq!(md5_hex(data), header.md5_cksum, "{name}");
    "upload request"
}

fn check_account_file(name: &str, bytes: &[u8]) -> &'static str {
    let account = AccountFile::parse(bytes).unwrap();
    assert_eq!(account.authenticator.reveal(), ACCOUNT_KEY);
    assert_eq!(account.project_name.as_deref(), Some("Anchor Test Project"));
    assert_eq!(lines(&account.write()), lines(std::str::from_utf8(bytes).unwrap()));
    assert_eq!(name, format!("account_{}.xml", MasterUrl::parse(&account.master_url).unwrap().stem()));
    "account file"
}

fn check_init_data(bytes: &[u8]) -> &'static str {
    AppInitData::read(bytes).unwrap();
    "init_data"
}

#[test]
fn scheduler_requests_that_we_write_are_the_captured_ones() {
    for (name, bytes) in fixtures().into_iter().filter(|(name, _)| name.ends_with("cgi-cgi.request")) {
        let theirs = std::str::from_utf8(body(&bytes)).unwrap();
        let ours = SchedulerRequest::parse(theirs.as_bytes()).unwrap().write();
        let same = |line: &&str| !DIFFERENT.iter().any(|start| line.starts_with(start));
        let theirs: Vec<&str> = lines(theirs).into_iter().filter(same).collect();
        let ours: Vec<&str> = lines(&ours).into_iter().filter(same).collect();
        let first = ours.iter().zip(&theirs).position(|(ours, theirs)| ours != theirs);
        if let Some(at) = first {
            panic!("{name}: line {at} is {:?} and was {:?}", ours[at], theirs[at]);
        }
        assert_eq!(ours.len(), theirs.len(), "{name}");
    }
}

#[test]
fn scheduler_replies_survive_writing_and_reading() {
    for (name, bytes) in fixtures().into_iter().filter(|(name, _)| name.ends_with("cgi-cgi.response")) {
        let theirs = dechunked(&bytes);
        let reply = SchedulerReply::parse(&theirs).unwrap();
        let ours = reply.write();
        assert_eq!(SchedulerReply::parse(ours.as_bytes()).unwrap(), reply, "{name}");
        // Nothing of it was dropped: our elements are theirs, in number and kind, but for the empty command
        // line that real servers put before the true one.
        let (mut theirs, ours) = (elements(std::str::from_utf8(&theirs).unwrap()), elements(&ours));
        if let Some(count) = theirs.get_mut("command_line") {
            *count = reply.workunits.iter().filter(|workunit| !workunit.command_line.is_empty()).count();
            if *count == 0 {
                theirs.remove("command_line");
            }
        }
        assert_eq!(ours, theirs, "{name}");
    }
}

#[test]
fn the_first_reply_gives_a_new_host_its_number_and_a_job() {
    let reply = SchedulerReply::parse(&dechunked(&fixture("04_POST_anchor_cgi-cgi.response"))).unwrap();
    assert_eq!(reply.hostid, Some(1));
    assert_eq!(reply.request_delay, Duration::from_secs(7));
    assert!(reply.dont_use_dcf);
    let key = PublicKey::parse(reply.code_sign_key.as_deref().unwrap()).unwrap();
    assert_eq!(Some(key.to_text()), reply.code_sign_key);
    let feeds = reply.rss_feeds.unwrap();
    assert_eq!(
        feeds[0].url,
        "http://127.0.0.1:8080/anchor/notices.php?userid=1&auth=1_717bbeef49f5c636174424fef23851cf"
    );
    assert_eq!((reply.apps.len(), reply.app_versions.len(), reply.workunits.len()), (1, 1, 1));
    assert_eq!(reply.results[0].wu_name, reply.workunits[0].name);
}

#[test]
fn a_reply_with_three_applications_is_read_whole() {
    let reply = SchedulerReply::parse(&dechunked(&fixture("08_POST_anchor_cgi-cgi.response"))).unwrap();
    assert_eq!(reply.workunits[0].command_line, "in1 in2 out");
    assert!(reply.workunits[0].files[1].copy_file);
    let file = |name: &str| reply.files.iter().find(|file| file.name == name).unwrap();
    let compressed = file("concat_1795227207257323205_1_b");
    assert_eq!(compressed.gzipped_nbytes, Some(Bytes(4_278)));
    let output = file(&reply.results[0].files[0].file_name);
    assert_eq!(output.upload_urls, ["http://127.0.0.1:8080/anchor_cgi/file_upload_handler"]);
    assert!(output.download_urls.is_empty() && output.gzip_when_done && output.xml_signature.is_some());
    assert!(reply.app_versions[1].is_wrapper && reply.app_versions[1].files[0].main_program);
}

#[test]
fn a_failed_an_aborted_and_a_cancelled_job_are_told_apart() {
    let request = SchedulerRequest::parse(body(&fixture("39_POST_anchor_cgi-cgi.request"))).unwrap();
    let job = |name: &str| request.results.iter().find(|job| job.name == name).unwrap();
    let failed = job("fail_1_0");
    assert_eq!((failed.state, failed.exit_status), (ResultState::ComputeError, 246));
    assert_eq!(failed.stderr_out.message.as_deref(), Some("process exited with code 246 (0xf6, -10)"));
    let aborted = job("long_1_0");
    assert_eq!((aborted.state, aborted.exit_status), (ResultState::Aborted, 203));
    assert_eq!(request.results.iter().filter(|job| job.is_success()).count(), 4);

    let reply = SchedulerReply::parse(&dechunked(&fixture("46_POST_anchor_cgi-cgi.response"))).unwrap();
    assert_eq!(reply.result_aborts, ["long_1_1"]);
    assert_eq!(reply.messages[0].priority, Priority::Low);
}

#[test]
fn account_queries_that_we_write_are_the_captured_ones() {
    let hash = "564082f4c128f999f6df6f16ad8c4996";
    for (name, query) in [
        ("01_GET_anchor-create_account.php.request", create_query("alice@example.org", hash, "Alice", None)),
        ("02_GET_anchor-lookup_account.php.request", lookup_query("alice@example.org", hash)),
    ] {
        assert!(fixture(name).starts_with(format!("GET /anchor/{query} HTTP/1.1").as_bytes()), "{name}");
    }
}

#[test]
fn an_upload_carries_the_permission_that_the_scheduler_gave() {
    let reply = SchedulerReply::parse(&dechunked(&fixture("08_POST_anchor_cgi-cgi.response"))).unwrap();
    let upload = fixture("18_POST_anchor_cgi-file_upload_handler.request");
    let Head::Complete { request: UploadRequest::Upload(header), .. } =
        UploadRequest::parse(body(&upload)).unwrap()
    else {
        panic!("an upload")
    };
    let file = reply.files.iter().find(|file| file.name == header.name).unwrap();
    assert_eq!(file.xml_signature.as_deref(), Some(header.xml_signature.as_str()));
    assert_eq!(file.max_nbytes, Some(header.max_nbytes));
}

/// How often each element starts.
fn elements(text: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for after in text.split('<').skip(1) {
        let name: String = after.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        if !name.is_empty() {
            *counts.entry(name).or_insert(0) += 1;
        }
    }
    counts
}

fn fixtures() -> Vec<(String, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/captures");
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names.into_iter().map(|name| (name.clone(), fixture(&name))).collect()
}

fn fixture(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/captures").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What follows an HTTP head.
fn body(message: &[u8]) -> &[u8] {
    let end = message.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    &message[end + 4..]
}

/// An HTTP message's body, put together if it came in chunks.
fn dechunked(message: &[u8]) -> Vec<u8> {
    let mut rest = body(message);
    let head = &message[..message.len() - rest.len()];
    if !String::from_utf8_lossy(head).to_lowercase().contains("transfer-encoding: chunked") {
        return rest.to_vec();
    }
    let mut whole = Vec::new();
    loop {
        let line = rest.windows(2).position(|window| window == b"\r\n").unwrap();
        let len = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
        if len == 0 {
            return whole;
        }
        whole.extend_from_slice(&rest[line + 2..line + 2 + len]);
        rest = &rest[line + 2 + len + 2..];
    }
}
