//! Who is turned away at a port before he has asked for anything (R6.10): he does not speak TLS where it is
//! spoken, or shows a certificate that is not of this fleet.
//!
//! He is told why, the log tells of it once in a while, and it stands in the audit log, so many times an
//! hour. No connection waits for any of that but his own. A connection that ends in the middle of a
//! handshake, or refuses *this* coordinator, was not turned away: the log alone tells of it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use fallow_daemon::causes;
use fallow_telemetry::RateLimit;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::port::HANDSHAKE;
use crate::audit::{Action, Actor, Record};

/// What somebody is told who does not speak TLS where it is spoken, and why.
const NO_TLS: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nThis port speaks TLS only: ";
const FLEET_WANTS_TLS: &str = "it is for agents and operators' tools of the fleet.\n";
const PROJECTS_WANT_TLS: &str = "use https. BOINC clients need the certificate of the fleet's authority for it \
    (authority.pem), or the coordinator has to allow plain HTTP (--allow-plain-http).\n";
/// Bytes that are read of what he says, so that he hears the answer.
const HEARD: u64 = 64 << 10;

static NOT_GREETED: RateLimit = RateLimit::new();

/// Which port it is.
#[derive(Clone, Copy)]
pub(super) enum Port {
    /// For agents and operators' tools.
    Fleet,
    /// For clients of the projects.
    Projects,
}

impl Port {
    const fn object(self) -> &'static str {
        match self {
            Self::Fleet => "a connection to the fleet's port",
            Self::Projects => "a connection to the projects' port",
        }
    }

    const fn wants_tls(self) -> &'static str {
        match self {
            Self::Fleet => FLEET_WANTS_TLS,
            Self::Projects => PROJECTS_WANT_TLS,
        }
    }
}

/// Turns away whom a port does not serve, and keeps it on record.
#[derive(Clone)]
pub(super) struct Refusals {
    port: Port,
    keep: Arc<dyn Fn(Record) + Send + Sync>,
}

impl Refusals {
    /// `keep` gets each of them, and must not wait for anything: it limits what is kept.
    pub(super) fn new(port: Port, keep: impl Fn(Record) + Send + Sync + 'static) -> Self {
        Self { port, keep: Arc::new(keep) }
    }

    /// What came of a handshake.
    pub(super) fn greeted<T>(
        &self,
        accepted: Result<io::Result<T>, Elapsed>,
        from: Option<SocketAddr>,
    ) -> Option<T> {
        match accepted {
            Ok(Ok(greeted)) => Some(greeted),
            Ok(Err(error)) => {
                if let Some(why) = fallow_tls::refused_certificate(&error) {
                    self.record(Action::CertificateRefused, from, &why);
                }
                if let Some(times) = NOT_GREETED.allow() {
                    let error = causes::line(&error);
                    tracing::warn!(?from, error, times, "a TLS connection came to nothing");
                }
                None
            }
            Err(_) => {
                tracing::trace!("closed: the handshake took too long");
                None
            }
        }
    }

    /// Says to whoever speaks without TLS that it takes that.
    pub(super) async fn plain(&self, mut stream: TcpStream, from: Option<SocketAddr>) {
        self.record(Action::PlainRefused, from, "it speaks without TLS, and this port speaks TLS only");
        if let Some(times) = NOT_GREETED.allow() {
            tracing::warn!(?from, times, "refused: somebody speaks without TLS where it is spoken");
        }
        let told = format!("{NO_TLS}{}", self.port.wants_tls());
        let _ = timeout(HANDSHAKE, async {
            stream.write_all(told.as_bytes()).await?;
            stream.shutdown().await?;
            // Closed with something unread, the connection would be reset before the answer is read.
            tokio::io::copy(&mut (&mut stream).take(HEARD), &mut tokio::io::sink()).await
        })
        .await;
    }

    /// Who was turned away is known by his address alone.
    fn record(&self, action: Action, from: Option<SocketAddr>, why: &str) {
        let from = from.map(|from| from.to_string()).unwrap_or_default();
        (self.keep)(Record::new(Actor::Stranger, &from, action, self.port.object()).refused(why));
    }
}
