//! HTTP by hand: tests need broken requests too.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::wait::PATIENCE;

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned()).next()
    }
}

pub(crate) fn get(url: &str) -> Answer {
    request("GET", url, "", b"")
}

pub(crate) fn post(url: &str, body: &[u8]) -> Answer {
    request("POST", url, &format!("Content-Length: {}\r\n", body.len()), body)
}

/// Sends a request with these header lines and this body, and reads the answer to the end.
pub(crate) fn request(method: &str, url: &str, headers: &str, body: &[u8]) -> Answer {
    let mut stream = open(method, url, headers);
    // The server may answer and close before it has read everything.
    let _ = stream.write_all(body);
    answer(stream)
}

/// Sends a request's head only.
pub(crate) fn open(method: &str, url: &str, headers: &str) -> TcpStream {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!("{method} /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

pub(crate) fn answer(mut stream: TcpStream) -> Answer {
    let mut received = Vec::new();
    let _ = stream.read_to_end(&mut received);
    let at = received.windows(4).position(|window| window == b"\r\n\r\n").expect("an HTTP answer");
    let head = String::from_utf8_lossy(&received[..at]).into_owned();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let raw = &received[at + 4..];
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { unchunk(raw) } else { raw.to_vec() };
    Answer { status, head, body }
}

fn unchunk(mut raw: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = raw.windows(2).position(|window| window == b"\r\n") {
        let len = usize::from_str_radix(std::str::from_utf8(&raw[..end]).unwrap(), 16).unwrap();
        if len == 0 {
            break;
        }
        body.extend_from_slice(&raw[end + 2..end + 2 + len]);
        raw = &raw[end + 4 + len..];
    }
    body
}
