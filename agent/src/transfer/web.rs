//! HTTP as projects speak it: who we say we are, how long we wait, how much we take.

use std::time::Duration;

use fallow_client::{TransferError, TransferErrorKind};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use tokio::time::Instant;

/// What projects see. It is the stock client's name, because project servers gate features, and some of them service,
/// by the version in it; the protocol spoken is that version's.
#[cfg(not(target_arch = "aarch64"))]
pub const USER_AGENT: &str = "BOINC client (x86_64-pc-linux-gnu 8.3.0)";
/// What projects see. It is the stock client's name, because project servers gate features, and some of them service,
/// by the version in it; the protocol spoken is that version's.
#[cfg(target_arch = "aarch64")]
pub const USER_AGENT: &str = "BOINC client (aarch64-unknown-linux-gnu 8.3.0)";

/// How long a connection may take to stand.
const CONNECT: Duration = Duration::from_secs(30);
/// How long the other side may say nothing (BOINC: `http_transfer_timeout`).
pub(super) const STALL: Duration = Duration::from_secs(300);

/// The least that must come within [`STALL`] (BOINC: 10 bytes a second).
const SLOWEST: usize = 3_000;

/// Longest master page and account answer.
pub(super) const PAGE_MAX: usize = 1 << 20;
/// Longest scheduler reply: a thousand jobs are about 3 MB.
pub(super) const REPLY_MAX: usize = 32 << 20;

/// HTTP clients: one that honours the environment's proxies, and one for this very host, which no proxy can reach.
#[derive(Clone, Debug)]
pub struct Web {
    far: Client,
    near: Client,
}

impl Web {
    /// Builds the clients.
    ///
    /// # Errors
    /// In words, when TLS cannot be set up.
    pub fn new() -> Result<Self, String> {
        // Fails only if some provider is installed already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let base = || {
            Client::builder()
                .user_agent(USER_AGENT)
                .connect_timeout(CONNECT)
                .referer(false)
                .pool_max_idle_per_host(2)
        };
        // A host without CA certificates can still talk to projects over plain HTTP.
        let build = |no_proxy: bool| {
            let with = |builder: reqwest::ClientBuilder| if no_proxy { builder.no_proxy() } else { builder };
            with(base()).build().or_else(|error| {
                tracing::warn!(%error, "no CA certificates on this host: projects with https cannot be reached");
                with(base()).tls_certs_only([]).build()
            })
        };
        let fail = |error: reqwest::Error| format!("cannot set up HTTP: {}", chain(&error));
        Ok(Self { far: build(false).map_err(fail)?, near: build(true).map_err(fail)? })
    }

    /// A GET.
    pub(super) fn get(&self, url: &str) -> Result<RequestBuilder, TransferError> {
        let url = parse(url)?;
        Ok(self.client(&url).get(url))
    }

    /// A POST of BOINC's kind.
    pub(super) fn post(&self, url: &str) -> Result<RequestBuilder, TransferError> {
        let url = parse(url)?;
        Ok(self.client(&url).post(url).header(CONTENT_TYPE, "text/xml"))
    }

    /// GETs a small document.
    ///
    /// # Errors
    /// [`TransferError`].
    pub async fn page(&self, url: &str) -> Result<Vec<u8>, TransferError> {
        body(send(self.get(url)?, url, STALL).await?, url, PAGE_MAX).await
    }

    fn client(&self, url: &Url) -> &Client {
        let near = url.host_str().is_some_and(crate::address::is_this_host);
        if near { &self.near } else { &self.far }
    }
}

fn parse(url: &str) -> Result<Url, TransferError> {
    let permanent = |why: String| TransferError::new(TransferErrorKind::Permanent, why);
    let parsed = Url::parse(url).map_err(|error| permanent(format!("{url:?} is no URL: {error}")))?;
    match parsed.scheme() {
        "http" | "https" => Ok(parsed),
        other => {
            Err(permanent(format!("{url}: the scheme {other} is not supported, only http and https are")))
        }
    }
}

/// Sends a request and waits for the head of the answer, whatever its status.
pub(super) async fn answer(
    request: RequestBuilder,
    url: &str,
    within: Duration,
) -> Result<Response, TransferError> {
    match tokio::time::timeout(within, request.send()).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) => Err(failed(url, &error)),
        Err(_) => Err(stalled(url, within)),
    }
}

/// As [`answer`]; a status other than success is an error.
pub(super) async fn send(
    request: RequestBuilder,
    url: &str,
    within: Duration,
) -> Result<Response, TransferError> {
    let response = answer(request, url, within).await?;
    if response.status().is_success() { Ok(response) } else { Err(refused(url, response.status())) }
}

/// Reads a body of at most `max` bytes.
pub(super) async fn body(mut response: Response, url: &str, max: usize) -> Result<Vec<u8>, TransferError> {
    let (mut bytes, mut pace) = (Vec::new(), Pace::new(Instant::now()));
    while let Some(chunk) = chunk(&mut response, url, &mut pace).await? {
        if bytes.len() + chunk.len() > max {
            return Err(TransferError::new(
                TransferErrorKind::BadReply,
                format!("{url}: the answer is longer than {max} bytes"),
            ));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// Whether a body comes fast enough. One that drips, a byte every now and then, would otherwise keep all other
/// projects waiting, for there is one scheduler RPC at a time.
#[derive(Debug)]
pub(super) struct Pace {
    until: Instant,
    got: usize,
}

impl Pace {
    /// It begins now.
    pub(super) fn new(now: Instant) -> Self {
        Self { until: now + STALL, got: 0 }
    }

    fn note(&mut self, now: Instant, bytes: usize) {
        self.got += bytes;
        if self.got >= SLOWEST {
            *self = Self::new(now);
        }
    }
}

/// The next piece of a body; none at its end.
pub(super) async fn chunk(
    response: &mut Response,
    url: &str,
    pace: &mut Pace,
) -> Result<Option<bytes::Bytes>, TransferError> {
    match tokio::time::timeout_at(pace.until, response.chunk()).await {
        Ok(Ok(chunk)) => {
            pace.note(Instant::now(), chunk.as_ref().map_or(0, bytes::Bytes::len));
            Ok(chunk)
        }
        Ok(Err(error)) => Err(failed(url, &error)),
        Err(_) => Err(stalled(url, STALL)),
    }
}

/// What a status means for a download: 4xx is for good, but for those that say "later".
pub(super) fn refused(url: &str, status: StatusCode) -> TransferError {
    let later = matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
    let kind = if status.is_client_error() && !later {
        TransferErrorKind::Permanent
    } else {
        TransferErrorKind::Transient
    };
    TransferError::new(kind, format!("{url}: HTTP status {status}"))
}

fn failed(url: &str, error: &reqwest::Error) -> TransferError {
    TransferError::new(TransferErrorKind::Transient, format!("{url}: {}", chain(error)))
}

fn stalled(url: &str, after: Duration) -> TransferError {
    TransferError::new(
        TransferErrorKind::Transient,
        format!("{url}: no answer, or hardly any, for {} s", after.as_secs()),
    )
}

/// An error with all its causes: the outermost one of HTTP libraries says little.
fn chain(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut next: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = next {
        let part = error.to_string();
        // The URL stands in front of the whole message already, and causes repeat each other.
        if !text.contains(&part) && !part.starts_with("error sending request for url") {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&part);
        }
        next = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_drips_has_no_more_time_than_one_that_stopped() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        for second in 1..300 {
            pace.note(start + Duration::from_secs(second), 9);
        }
        assert_eq!(pace.until, start + STALL);
        pace.note(start + Duration::from_secs(299), SLOWEST);
        assert_eq!(pace.until, start + Duration::from_secs(299) + STALL);
    }
}
