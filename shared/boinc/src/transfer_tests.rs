use super::*;
use proptest::prelude::*;

fn header() -> UploadHeader {
    UploadHeader {
        client_version: ClientVersion { major: 8, minor: 3, release: 0 },
        name: "mersenne_1_0_r5_0".into(),
        xml_signature: "00ff\n11ee\n.".into(),
        max_nbytes: Bytes(5_000_000),
        nbytes: Bytes(100),
        md5_cksum: "73e5da23c1d0d225a6cbf8eec859a754".into(),
        offset: Bytes(40),
    }
}

fn complete(bytes: &[u8]) -> (UploadRequest, usize) {
    match UploadRequest::parse(bytes).unwrap() {
        Head::Complete { request, data_at } => (request, data_at),
        Head::Incomplete => panic!("incomplete"),
    }
}

#[test]
fn an_upload_is_complete_when_its_data_line_is_and_not_a_byte_before() {
    let head = UploadRequest::Upload(header()).write();
    let mut body = head.clone().into_bytes();
    body.extend_from_slice(b"\0\xff<name>not a head</name>\n");
    for len in 0..head.len() {
        assert_eq!(UploadRequest::parse(&body[..len]).unwrap(), Head::Incomplete, "{len} bytes");
    }
    for len in head.len()..=body.len() {
        assert_eq!(complete(&body[..len]), (UploadRequest::Upload(header()), head.len()));
    }
}

#[test]
fn a_signature_ends_on_the_line_of_its_last_dot() {
    assert!(
        UploadRequest::Upload(header()).write().contains("\n11ee\n.</xml_signature>\n<max_nbytes>5000000<")
    );
}

#[test]
fn a_question_for_a_size_reads_back() {
    let ask = UploadRequest::FileSize { client_version: header().client_version, name: "out_0".into() };
    let text = ask.write();
    assert_eq!(complete(text.as_bytes()).0, ask);
}

#[test]
fn a_head_that_is_not_laid_out_in_lines_is_refused() {
    let text = UploadRequest::Upload(header()).write().replace('\n', "") + "\n";
    // One line: nothing in it begins a line but the outermost element.
    assert_eq!(UploadRequest::parse(text.as_bytes()).unwrap(), Head::Incomplete);
    let padded = format!("{text}{}", " \n".repeat(HEAD_MAX));
    let error = UploadRequest::parse(padded.as_bytes()).unwrap_err();
    assert!(error.to_string().contains("a line <data> or <get_file_size>"), "{error}");
}

#[test]
fn what_is_missing_or_wrong_in_a_head_is_named() {
    let good = UploadRequest::Upload(header()).write();
    for (from, to, expected) in [
        ("<name>mersenne_1_0_r5_0</name>", "", "<name> on a line"),
        ("<name>mersenne_1_0_r5_0</name>", "<name>../../etc/passwd</name>", "without `..`"),
        ("<nbytes>100</nbytes>", "<nbytes>many</nbytes>", "a value for <nbytes>"),
        ("<nbytes>100</nbytes>", "<nbytes>10</nbytes>", "an offset within the file"),
        ("<max_nbytes>5000000</max_nbytes>", "", "<max_nbytes> on a line"),
        ("<offset>40</offset>", "", "<offset> on a line"),
    ] {
        let error = UploadRequest::parse(good.replace(from, to).as_bytes()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn answers_read_back_and_one_without_a_status_is_transient() {
    for status in [UploadStatus::Ok, UploadStatus::Transient, UploadStatus::Permanent] {
        let reply = DataServerReply {
            status,
            file_size: (status == UploadStatus::Ok).then_some(Bytes(42)),
            message: (status != UploadStatus::Ok).then(|| "no <space>".to_owned()),
        };
        assert_eq!(DataServerReply::parse(reply.write().as_bytes()).unwrap(), reply);
    }
    let empty = DataServerReply::parse(b"<data_server_reply>\n</data_server_reply>\n").unwrap();
    assert_eq!(empty.status, UploadStatus::Transient);
    assert!(DataServerReply::parse(b"<html>502 Bad Gateway</html>").is_err());
    assert!(DataServerReply::parse(b"<data_server_reply>\n    <status>0</status>").is_err());
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = UploadRequest::parse(&bytes);
        let _ = DataServerReply::parse(&bytes);
    }
}
