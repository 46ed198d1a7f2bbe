//! The end that is connected to: the coordinator.

use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use fallow_domain::Instant;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::client::certified;
use crate::{ALPN, Authority, BACKDATED, HTTP1, HostCertificate, Peer, TlsError, provider};

/// The certificate that a coordinator's ports show. It can be replaced while they are open: connections from
/// then on are shown the new one.
#[derive(Debug)]
pub struct CoordinatorCertificate {
    /// With when it was made.
    shown: RwLock<(Arc<CertifiedKey>, Instant)>,
}

impl CoordinatorCertificate {
    /// Makes one, valid for `life`, for a coordinator that is also reached under these names and numbers.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn issue(
        authority: &Authority,
        hosts: &[String],
        now: Instant,
        life: fallow_domain::Duration,
    ) -> Result<Self, TlsError> {
        Ok(Self { shown: RwLock::new((issue(authority, hosts, now, life)?, now)) })
    }

    /// Replaces it by a newer one.
    ///
    /// # Errors
    /// [`TlsError`]; the older one is shown on then.
    pub fn renew(
        &self,
        authority: &Authority,
        hosts: &[String],
        now: Instant,
        life: fallow_domain::Duration,
    ) -> Result<(), TlsError> {
        let newer = issue(authority, hosts, now, life)?;
        *self.shown.write().unwrap_or_else(PoisonError::into_inner) = (newer, now);
        Ok(())
    }

    /// Whether it is to be renewed: two thirds of its life are over, or the clock says that it is not valid
    /// yet.
    #[must_use]
    pub fn is_due(&self, now: Instant, life: fallow_domain::Duration) -> bool {
        let made_at = self.shown.read().unwrap_or_else(PoisonError::into_inner).1;
        now < made_at - BACKDATED || now >= made_at + life.mul_f64(2.0 / 3.0)
    }
}

fn issue(
    authority: &Authority,
    hosts: &[String],
    now: Instant,
    life: fallow_domain::Duration,
) -> Result<Arc<CertifiedKey>, TlsError> {
    let (certificate, key) = authority.issue_coordinator(hosts, now, life)?;
    // The authority goes with it: whoever connects for the first time knows only its fingerprint.
    certified(vec![certificate, authority.certificate().clone()], &key)
}

impl ResolvesServerCert for CoordinatorCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.shown.read().unwrap_or_else(PoisonError::into_inner).0.clone())
    }
}

/// Accepts who shows no certificate, and who shows one of this authority for hosts, expired or not.
#[derive(Debug)]
struct HostVerifier(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for HostVerifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let judged = self.0.verify_client_cert(end_entity, intermediates, now);
        match judged {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            )) => {
                // Whoever serves a call sees that it has expired, and says so in words.
                let read = HostCertificate::read(end_entity)
                    .map_err(|_| rustls::Error::InvalidCertificate(CertificateError::BadEncoding))?;
                let seconds = (read.not_after.as_micros() / 1_000_000 - 1).max(0).unsigned_abs();
                let then = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
                self.0.verify_client_cert(end_entity, intermediates, then)
            }
            judged => judged,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// How the fleet's port speaks TLS.
///
/// # Errors
/// [`TlsError`].
pub fn server_config(
    authority: &Authority,
    certificate: Arc<CoordinatorCertificate>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate().clone())?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .allow_unauthenticated()
        .build()
        .map_err(|error| rustls::Error::General(error.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(Arc::new(HostVerifier(verifier)))
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![ALPN.to_vec(), HTTP1.to_vec()];
    // A session that is taken up again would show who somebody was when it began.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}

/// How a port for everybody speaks TLS: who connects is not asked for a certificate.
///
/// # Errors
/// [`TlsError`].
pub fn public_config(certificate: Arc<CoordinatorCertificate>) -> Result<Arc<ServerConfig>, TlsError> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![HTTP1.to_vec()];
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}

/// What a client that was refused may take to read why.
const ALERT: Duration = Duration::from_millis(500);

/// Why the certificate that a client showed was refused, if that is why a handshake came to nothing.
#[must_use]
pub fn refused_certificate(error: &io::Error) -> Option<String> {
    let inner = error.get_ref()?;
    if let Some(foreign @ TlsError::Foreign(_)) = inner.downcast_ref() {
        return Some(foreign.to_string());
    }
    match inner.downcast_ref()? {
        rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => Some(OTHER_AUTHORITY.to_owned()),
        rustls::Error::InvalidCertificate(why) => {
            Some(format!("the certificate that was shown cannot be used ({why})"))
        }
        _ => None,
    }
}

/// An authority that has the same name is told apart by its signatures alone.
const OTHER_AUTHORITY: &str = "the certificate that was shown is of another authority than this fleet's, or was shown without \
    its key: a host of another fleet, or of this one before its authority was made anew, has to enrol again";

/// Shakes hands with whoever connected to the fleet's port. Who it is comes with the stream.
///
/// # Errors
/// What went wrong; the other end was told.
pub async fn accept<S>(config: Arc<ServerConfig>, stream: S) -> io::Result<(TlsStream<S>, Peer)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let stream = accept_anybody(config, stream).await?;
    let peer = match stream.get_ref().1.peer_certificates().and_then(<[_]>::first) {
        None => Peer::Anonymous,
        Some(shown) => Peer::Host(HostCertificate::read(shown).map_err(io::Error::other)?),
    };
    Ok((stream, peer))
}

/// Whether HTTP/2 was agreed on. Who names no protocol, as programs do that know one only, speaks HTTP/1.1.
#[must_use]
pub fn speaks_http2<S>(stream: &TlsStream<S>) -> bool {
    stream.get_ref().1.alpn_protocol() == Some(ALPN)
}

/// Shakes hands with whoever connected, and does not ask who it is.
///
/// # Errors
/// What went wrong; the other end was told.
pub async fn accept_anybody<S>(config: Arc<ServerConfig>, stream: S) -> io::Result<TlsStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match TlsAcceptor::from(config).accept(stream).into_fallible().await {
        Ok(stream) => Ok(stream),
        Err((error, mut stream)) => {
            // Closed at once, the connection would be reset before the reason is read.
            let _ = timeout(ALERT, async {
                stream.shutdown().await?;
                tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
            })
            .await;
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_a_certificate_that_is_refused_is_told_from_a_handshake_that_came_to_nothing() {
        let refused = |error: rustls::Error| refused_certificate(&io::Error::other(error));
        for other in [CertificateError::UnknownIssuer, CertificateError::BadSignature] {
            let why = refused(rustls::Error::InvalidCertificate(other)).unwrap();
            assert!(why.contains("of another authority"), "{why}");
        }
        let why = refused(rustls::Error::InvalidCertificate(CertificateError::InvalidPurpose)).unwrap();
        assert!(why.contains("cannot be used"), "{why}");
        let why = refused_certificate(&io::Error::other(TlsError::Foreign("it names nobody")));
        assert_eq!(why.unwrap(), "this is no certificate of a fleet (it names nobody)");
        // What the other end refused, or left.
        let alert = rustls::Error::AlertReceived(rustls::AlertDescription::UnknownCA);
        assert_eq!(refused(alert), None);
        assert_eq!(refused_certificate(&io::Error::from(io::ErrorKind::UnexpectedEof)), None);
    }
}
