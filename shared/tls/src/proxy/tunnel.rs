//! A tunnel through a proxy (RFC 9110, section 9.3.6).
//!
//! Spoken here and not by hyper-util's `Tunnel`, which keeps to itself what status a proxy refuses with.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;
use tonic::codegen::http::HeaderValue;

use crate::Address;

/// Longest head of an answer, in bytes: a status and what proxies say of themselves.
const HEAD_MAX: usize = 8 << 10;

/// What is wrong with a proxy, or with what it leads to.
#[derive(Debug)]
pub enum ProxyFault {
    /// It cannot be connected to.
    Unreachable(io::Error),
    /// It was asked and did not answer within so long.
    Silent(Duration),
    /// It was asked, and the connection ended.
    Ended(io::Error),
    /// What it answers is not HTTP, or has no end.
    NotHttp(&'static str),
    /// It answers with another status than 2xx.
    Refused {
        /// The status.
        status: u16,
        /// A user and a password were sent to it.
        knew_user: bool,
    },
    /// It opened the tunnel, and the connection ended before it was known who is at the other end.
    Cut(io::Error),
}

impl ProxyFault {
    /// True when asking again may help without anybody's doing: 5xx says that the proxy did not get through.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Silent(_) | Self::Ended(_) | Self::Cut(_) => true,
            Self::NotHttp(_) => false,
            Self::Refused { status, .. } => *status >= 500,
        }
    }
}

/// Asks the proxy at the other end of `stream` for a tunnel to `address`, which it has to answer within
/// `patience`.
pub(crate) async fn open<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    address: &Address,
    credentials: Option<&HeaderValue>,
    patience: Duration,
) -> Result<S, ProxyFault> {
    let mut request = format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n").into_bytes();
    if let Some(credentials) = credentials {
        request.extend_from_slice(b"Proxy-Authorization: ");
        request.extend_from_slice(credentials.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    let asked = async {
        stream.write_all(&request).await.map_err(ProxyFault::Ended)?;
        head(&mut stream).await
    };
    let head = timeout(patience, asked).await.unwrap_or(Err(ProxyFault::Silent(patience)))?;
    match status(&head) {
        Some(200..=299) => Ok(stream),
        Some(status) => Err(ProxyFault::Refused { status, knew_user: credentials.is_some() }),
        None => Err(ProxyFault::NotHttp("what it answers is not HTTP")),
    }
}

/// The answer up to the empty line. Not a byte more is read: what follows belongs to the tunnel.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> Result<Vec<u8>, ProxyFault> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && !head.ends_with(b"\n\n") {
        if head.len() == HEAD_MAX {
            return Err(ProxyFault::NotHttp("the head of its answer has no end"));
        }
        head.push(stream.read_u8().await.map_err(ProxyFault::Ended)?);
    }
    Ok(head)
}

/// The status that a head begins with.
fn status(head: &[u8]) -> Option<u16> {
    let line = head.split(|&byte| byte == b'\n').next()?;
    let mut words = std::str::from_utf8(line).ok()?.trim_end().splitn(3, ' ');
    words.next().filter(|version| matches!(*version, "HTTP/1.0" | "HTTP/1.1"))?;
    let digits = words.next().filter(|word| word.len() == 3 && word.bytes().all(|b| b.is_ascii_digit()))?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of the answer of a proxy that goes on or not, and what it was asked.
    async fn asked(answer: &[u8], goes_on: bool) -> (Result<Vec<u8>, ProxyFault>, String) {
        let (ours, mut theirs) = tokio::io::duplex(64 << 10);
        theirs.write_all(answer).await.unwrap();
        if !goes_on {
            theirs.shutdown().await.unwrap();
        }
        let address = "lab.example.org:24001".parse().unwrap();
        let mut credentials = HeaderValue::from_static("Basic YTpi");
        credentials.set_sensitive(true);
        let opened = open(ours, &address, Some(&credentials), Duration::from_millis(100)).await;
        let mut request = vec![0; 1000];
        let read = theirs.read(&mut request).await.unwrap();
        let request = String::from_utf8_lossy(&request[..read]).into_owned();
        theirs.shutdown().await.unwrap();
        let rest = match opened {
            Ok(mut stream) => {
                let mut rest = Vec::new();
                stream.read_to_end(&mut rest).await.unwrap();
                Ok(rest)
            }
            Err(fault) => Err(fault),
        };
        (rest, request)
    }

    #[tokio::test]
    async fn r6_10_a_tunnel_is_asked_for_by_name_and_what_follows_the_head_is_left_to_it() {
        let (rest, request) = asked(b"HTTP/1.1 200 Connection established\r\nVia: p\r\n\r\nrest", true).await;
        assert_eq!(rest.unwrap(), b"rest");
        assert_eq!(
            request,
            "CONNECT lab.example.org:24001 HTTP/1.1\r\nHost: lab.example.org:24001\r\nProxy-Authorization: Basic YTpi\r\n\r\n"
        );
        for good in ["HTTP/1.0 200\r\n\r\n", "HTTP/1.1 204 \n\n"] {
            assert!(asked(good.as_bytes(), true).await.0.is_ok(), "{good:?}");
        }
    }

    #[tokio::test]
    async fn r6_10_a_proxy_that_does_not_open_a_tunnel_is_told_from_one_that_does_not_answer() {
        let check = async |answer: &[u8], goes_on, expected: &str, may_pass| {
            let fault = asked(answer, goes_on).await.0.unwrap_err();
            let shown = format!("{fault:?}");
            assert!(shown.starts_with(expected), "{shown}, not {expected}");
            assert_eq!(fault.may_pass(), may_pass, "{shown}");
        };
        check(b"", true, "Silent(100ms)", true).await;
        check(b"HTTP/1.1 200 OK\r\nVia: p\r\n", true, "Silent", true).await;
        check(b"HTTP/1.1 200 OK\r\nVia: p\r\n", false, "Ended", true).await;
        check(b"HTTP/1.1 403 Forbidden\r\n\r\n", true, "Refused { status: 403, knew_user: true }", false)
            .await;
        check(b"HTTP/1.1 504 Gateway Timeout\r\n\r\n", true, "Refused { status: 504", true).await;
        check(b"HTTP/1.1 302 Found\r\n\r\n", true, "Refused { status: 302", false).await;
        check(b"SSH-2.0-OpenSSH_9.2\r\n\r\n", true, "NotHttp", false).await;
        check(b"HTTP/1.1 2000 OK\r\n\r\n", true, "NotHttp", false).await;
        check(b"HTTP/1.1\r\n\r\n", true, "NotHttp", false).await;
        check(&b"HTTP/1.1 200 OK\r\nx: y\r\n".repeat(2_000), true, "NotHttp", false).await;
    }
}
