//! HTTP as projects speak it: who we say we are, how much we take.
//!
//! How long we wait is said in `pace`, where a request may be sent on to in `redirect`.

use std::sync::Arc;
use std::time::Duration;

use fallow_client::{Direction, TransferError, TransferErrorKind};
use fallow_daemon::causes;
use fallow_tls::{Proxies, Proxy};
use reqwest::header::{ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, RANGE};
use reqwest::{Body, Client, RequestBuilder, Response, StatusCode, Url};
use tokio::time::{Instant, timeout_at};

use super::encoding::{self, Decoder};
use super::fleet_projects::FleetProjects;
use super::moved::Moved;
use super::notes::TransferLog;
use super::pace::{Kind, Limits, Pace};
use super::rate::{Rate, Rates};
use super::redirect::{self, HOPS_MAX, Method};

/// What projects see. It is the stock client's name, because project servers gate features, and some of them
/// service, by the version in it; the protocol spoken is that version's.
#[cfg(not(target_arch = "aarch64"))]
pub const USER_AGENT: &str = "BOINC client (x86_64-pc-linux-gnu 8.3.0)";
/// What projects see. It is the stock client's name, because project servers gate features, and some of them
/// service, by the version in it; the protocol spoken is that version's.
#[cfg(target_arch = "aarch64")]
pub const USER_AGENT: &str = "BOINC client (aarch64-unknown-linux-gnu 8.3.0)";

/// How long a connection may take to stand.
const CONNECT: Duration = Duration::from_secs(30);

/// What a request and its answer take beside their contents: their heads, and what it takes to begin and end
/// a connection.
const HEADS: u64 = 4_000;

/// Longest master page and account answer.
const PAGE_MAX: usize = 1 << 20;
/// Longest scheduler reply: a thousand jobs are about 3 MB.
pub(super) const REPLY_MAX: usize = 32 << 20;

/// HTTP clients, through the proxies that lead to each host: one for all, and one for the projects of the
/// agent's coordinator.
#[derive(Clone, Debug)]
pub struct Web {
    client: Client,
    fleet: FleetProjects,
    proxies: Proxies,
    limits: Limits,
    rates: Rates,
}

/// What every HTTP client of the agent's is like.
pub(super) fn client(limits: Limits, proxies: &Proxies) -> reqwest::ClientBuilder {
    let proxies = proxies.clone();
    let chosen = move |url: &Url| proxy(&proxies, url).map(|proxy| proxy.secret_url().to_owned());
    Client::builder()
        // Those alone, and not what it would read of the environment by itself.
        .no_proxy()
        .proxy(reqwest::Proxy::custom(chosen))
        .user_agent(USER_AGENT)
        .connect_timeout(CONNECT)
        .referer(false)
        .redirect(reqwest::redirect::Policy::none())
        .pool_max_idle_per_host(2)
        .pool_idle_timeout(limits.idle)
}

/// The proxy that leads to a URL.
fn proxy(proxies: &Proxies, url: &Url) -> Option<Proxy> {
    proxies.towards(url.scheme(), url.host_str()?)
}

/// An HTTP request.
pub(super) struct HttpRequest<'a> {
    pub(super) url: &'a str,
    pub(super) kind: Kind,
    /// A GET's first byte.
    pub(super) from: u64,
    /// The answer may be compressed for the way.
    pub(super) may_encode: bool,
    /// What a POST sends.
    pub(super) content: Option<&'a dyn Content>,
    pub(super) log: &'a TransferLog,
}

/// What a POST sends: made anew each time that it is sent on.
pub(super) trait Content: Sync {
    /// The body.
    fn body(&self) -> Result<Body, TransferError>;
    /// Its length.
    fn length(&self) -> u64;
    /// How much of it has gone, for all that is known.
    fn gone(&self) -> u64 {
        0
    }
}

/// A text as content.
impl Content for bytes::Bytes {
    fn body(&self) -> Result<Body, TransferError> {
        Ok(self.clone().into())
    }
    fn length(&self) -> u64 {
        self.len() as u64
    }
}

/// What came back.
pub(super) struct Answer<'a> {
    response: Response,
    /// Where it came from, for messages.
    pub(super) place: String,
    pace: Pace,
    /// How fast its body may come; none where that is no file's.
    rate: Option<Arc<Rate>>,
    /// Where it is counted otherwise.
    moved: Arc<Moved>,
    decoder: Decoder,
    /// Of the last piece, what is still to be expanded.
    rest: bytes::Bytes,
    is_over: bool,
    meter: Meter<'a>,
}

/// Measures what crosses the wire for one answer. As in the stock client a POST counts by what goes, a GET by
/// what comes.
struct Meter<'a> {
    direction: Direction,
    since: Instant,
    bytes: u64,
    log: &'a TransferLog,
}

impl Drop for Meter<'_> {
    fn drop(&mut self) {
        self.log.measured(self.direction, self.bytes, self.since.elapsed());
    }
}

impl Web {
    /// Builds the clients.
    ///
    /// # Errors
    /// In words, when TLS cannot be set up.
    pub fn new(proxies: Proxies) -> Result<Self, String> {
        Self::with_limits(Limits::default(), proxies)
    }

    /// The same, with other bounds on time.
    ///
    /// # Errors
    /// As [`Web::new`].
    pub fn with_limits(limits: Limits, proxies: Proxies) -> Result<Self, String> {
        // Fails only if some provider is installed already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let base = || client(limits, &proxies);
        // A host without CA certificates can still talk to projects over plain HTTP.
        let built = base().build().or_else(|error| {
            tracing::warn!(%error, "no CA certificates on this host: projects with https cannot be reached");
            base().tls_certs_only([]).build()
        });
        let client = built.map_err(|error| format!("cannot set up HTTP: {}", chain(&error)))?;
        let fleet = FleetProjects::new(proxies.clone());
        Ok(Self { client, fleet, proxies, limits, rates: Rates::default() })
    }

    /// How fast files are moved at most.
    pub(super) const fn rates(&self) -> &Rates {
        &self.rates
    }

    /// Where the projects of the agent's coordinator are, once that is known.
    pub fn fleet_projects(&self) -> FleetProjects {
        self.fleet.clone()
    }

    /// GETs a small document.
    ///
    /// # Errors
    /// [`TransferError`].
    pub async fn page(&self, url: &str) -> Result<Vec<u8>, TransferError> {
        self.read_page(url, &TransferLog::default()).await
    }

    /// The same, taking notes.
    pub(super) async fn read_page(&self, url: &str, log: &TransferLog) -> Result<Vec<u8>, TransferError> {
        let request = HttpRequest { url, kind: Kind::Call, from: 0, may_encode: true, content: None, log };
        self.send(&request).await?.succeeded()?.whole(PAGE_MAX).await
    }

    /// Asks, follows where it is sent on to, and waits for the head of the answer, whatever its status.
    pub(super) async fn send<'a>(&self, request: &HttpRequest<'a>) -> Result<Answer<'a>, TransferError> {
        let mut pace = Pace::new(self.limits, request.kind, Instant::now());
        if let Some(content) = request.content.filter(|_| request.kind == Kind::Call) {
            // A long request over a slow line takes its time too.
            pace.note(Instant::now(), content.length());
        }
        // A file is counted as it goes.
        let content = request.content.filter(|_| request.kind == Kind::Call).map(Content::length);
        let beside = HEADS + content.unwrap_or_default();
        let (mut url, mut place) = (parse(request.url)?, request.url.to_owned());
        let mut method = if request.content.is_some() { Method::Post } else { Method::Get };
        for _ in 0..=HOPS_MAX {
            let sent = Instant::now();
            self.rates.moved.note_beside(beside);
            let proxy = proxy(&self.proxies, &url);
            let response = self.head(self.builder(request, method, &url)?, request, &place, &mut pace).await;
            let response = response.map_err(|error| through(error, proxy.as_ref()))?;
            if let Some(proxy) = &proxy
                && response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED
            {
                return Err(user_wanted(&place, proxy));
            }
            let next = redirect::next(&url, method, response.status(), response.headers());
            let Some(hop) = next.map_err(|why| permanent(format!("{place}: {why}")))? else {
                let decoder = match request.may_encode {
                    true => Decoder::of(response.headers()),
                    false => Ok(Decoder::plain()),
                };
                let decoder = decoder.map_err(|why| garbled(&place, &why))?;
                let direction = match method {
                    Method::Get => Direction::Download,
                    Method::Post => Direction::Upload,
                };
                let (since, bytes) = match request.content.filter(|_| direction == Direction::Upload) {
                    Some(content) => (sent, content.length()),
                    None => (Instant::now(), 0),
                };
                let meter = Meter { direction, since, bytes, log: request.log };
                let rest = bytes::Bytes::new();
                let is_file = request.kind == Kind::File && direction == Direction::Download;
                let rate = is_file.then(|| Arc::clone(&self.rates.down));
                let moved = Arc::clone(&self.rates.moved);
                return Ok(Answer {
                    response,
                    place,
                    pace,
                    rate,
                    moved,
                    decoder,
                    rest,
                    is_over: false,
                    meter,
                });
            };
            if hop.leaves_host {
                request.log.moved(&url, &hop.url);
            }
            place = format!("{}, where {} sends on to", short(&hop.url), request.url);
            (url, method) = (hop.url, hop.method);
        }
        let what = format!("{place}: sent on more than {HOPS_MAX} times");
        Err(TransferError::new(TransferErrorKind::Transient, what))
    }

    fn builder(
        &self,
        request: &HttpRequest<'_>,
        method: Method,
        url: &Url,
    ) -> Result<RequestBuilder, TransferError> {
        let of_fleet = self.fleet.client(url);
        let client = of_fleet.as_ref().unwrap_or(&self.client);
        let builder = match (method, request.content) {
            (Method::Post, Some(content)) => {
                let builder = client.post(url.clone()).header(CONTENT_TYPE, "text/xml");
                builder.header(CONTENT_LENGTH, content.length()).body(content.body()?)
            }
            _ if request.from > 0 => {
                client.get(url.clone()).header(RANGE, format!("bytes={}-", request.from))
            }
            _ => client.get(url.clone()),
        };
        Ok(if request.may_encode { builder.header(ACCEPT_ENCODING, encoding::ACCEPTED) } else { builder })
    }

    /// Sends one request, for as long as it goes fast enough.
    async fn head(
        &self,
        builder: RequestBuilder,
        request: &HttpRequest<'_>,
        place: &str,
        pace: &mut Pace,
    ) -> Result<Response, TransferError> {
        let sending = builder.send();
        tokio::pin!(sending);
        let gone = || request.content.map_or(0, Content::gone);
        let mut seen = gone();
        loop {
            let until = pace.until();
            match timeout_at(until, &mut sending).await {
                Ok(sent) => return sent.map_err(|error| failed(place, &error)),
                Err(_) => {
                    let now = Instant::now();
                    pace.note(now, gone().saturating_sub(std::mem::replace(&mut seen, gone())));
                    if pace.until() <= now {
                        return Err(stalled(place, pace));
                    }
                }
            }
        }
    }
}

impl Answer<'_> {
    pub(super) fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub(super) fn headers(&self) -> &reqwest::header::HeaderMap {
        self.response.headers()
    }

    /// How many bytes are to come, where that is known and they come as they are.
    pub(super) fn length(&self) -> Option<u64> {
        self.response.content_length().filter(|_| self.decoder.is_plain())
    }

    /// A status other than success is an error.
    pub(super) fn succeeded(self) -> Result<Self, TransferError> {
        if self.status().is_success() { Ok(self) } else { Err(refused(&self.place, self.status())) }
    }

    /// The next piece of the body, expanded; none at its end.
    pub(super) async fn chunk(&mut self) -> Result<Option<bytes::Bytes>, TransferError> {
        loop {
            if !self.rest.is_empty() {
                let piece = self.rest.split_to(self.rest.len().min(encoding::PIECE));
                let plain = self.decoder.expand(&piece).map_err(|error| garbled(&self.place, &error))?;
                if !plain.is_empty() {
                    return Ok(Some(plain.into()));
                }
                continue;
            }
            match self.received().await? {
                Some(chunk) if self.decoder.is_plain() => return Ok(Some(chunk)),
                Some(chunk) => self.rest = chunk,
                None if self.is_over => return Ok(None),
                None => {
                    self.is_over = true;
                    let last = self.decoder.finish().map_err(|error| garbled(&self.place, &error))?;
                    return Ok(Some(last.into()).filter(|last: &bytes::Bytes| !last.is_empty()));
                }
            }
        }
    }

    /// The next piece as it crossed the wire.
    async fn received(&mut self) -> Result<Option<bytes::Bytes>, TransferError> {
        if self.is_over {
            return Ok(None);
        }
        match timeout_at(self.pace.until(), self.response.chunk()).await {
            Ok(Ok(chunk)) => {
                let bytes = chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
                self.pace.note(Instant::now(), bytes);
                match &self.rate {
                    // The other side is not to blame for that.
                    Some(rate) => self.pace.pause(rate.pass(bytes).await),
                    None => self.moved.note_beside(bytes),
                }
                if self.meter.direction == Direction::Download {
                    self.meter.bytes += bytes;
                }
                Ok(chunk)
            }
            Ok(Err(error)) => Err(failed(&self.place, &error)),
            Err(_) => Err(stalled(&self.place, &self.pace)),
        }
    }

    /// The whole body, of at most `max` bytes.
    pub(super) async fn whole(mut self, max: usize) -> Result<Vec<u8>, TransferError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            if bytes.len() + chunk.len() > max {
                let what = format!("{}: the answer is longer than {max} bytes", self.place);
                return Err(TransferError::new(TransferErrorKind::BadReply, what));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }
}

/// What came is not what its headers say.
fn garbled(place: &str, why: &dyn std::fmt::Display) -> TransferError {
    TransferError::new(TransferErrorKind::Transient, format!("{place}: the answer cannot be expanded: {why}"))
}

fn permanent(why: String) -> TransferError {
    TransferError::new(TransferErrorKind::Permanent, why)
}

fn parse(url: &str) -> Result<Url, TransferError> {
    let parsed = Url::parse(url).map_err(|error| permanent(format!("{url:?} is no URL: {error}")))?;
    match parsed.scheme() {
        "http" | "https" => Ok(parsed),
        other => {
            Err(permanent(format!("{url}: the scheme {other} is not supported, only http and https are")))
        }
    }
}

/// A URL that a server made up, for people.
pub(super) fn short(url: &Url) -> String {
    const MOST: usize = 200;
    let text: String = url.as_str().chars().take(MOST).collect();
    if text.len() < url.as_str().len() { text + "..." } else { text }
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

/// The proxy has a part in what fails before an answer comes.
fn through(error: TransferError, proxy: Option<&Proxy>) -> TransferError {
    let Some(proxy) = proxy else { return error };
    let what = format!("{} (through the proxy at {proxy}, which {} names)", error.what, proxy.variable());
    TransferError::new(error.kind, what)
}

/// Never for good, as other refusals are: it is not the project that refuses.
fn user_wanted(place: &str, proxy: &Proxy) -> TransferError {
    let variable = proxy.variable();
    let what = format!(
        "{place}: the proxy at {proxy} wants a user and a password that it knows (HTTP status 407): give them in {variable}, as \
         http://USER:PASSWORD@{proxy}"
    );
    TransferError::new(TransferErrorKind::Transient, what)
}

fn failed(url: &str, error: &reqwest::Error) -> TransferError {
    TransferError::new(TransferErrorKind::Transient, format!("{url}: {}", chain(error)))
}

fn stalled(url: &str, pace: &Pace) -> TransferError {
    TransferError::new(TransferErrorKind::Transient, format!("{url}: {}", pace.why(Instant::now())))
}

/// An error with all its causes: the outermost one of HTTP libraries says little.
fn chain(error: &reqwest::Error) -> String {
    // The URL stands in front of the whole message already.
    let mut texts = causes::texts(error);
    texts.retain(|text| !text.starts_with("error sending request for url"));
    texts.join(": ")
}
