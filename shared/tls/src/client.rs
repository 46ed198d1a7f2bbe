//! The end that connects: an agent or an operator's tool.

use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::client::ResolvesClientCert;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme,
};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::proxy::{self, Proxies, Proxy, ProxyFault};
use crate::{ALPN, Address, COORDINATOR_NAME, ConnectError, Fingerprint, HostKey, TlsError, provider};

/// What was sent has to be taken by the other side within so many milliseconds.
const TAKEN_WITHIN_MS: u32 = 30_000;
/// A connection has to stand within so long.
pub(crate) const CONNECT: Duration = Duration::from_secs(5);
/// How long the handshake over it may take. A coordinator that is flooded with connections takes them one
/// after the other, each for a moment: whoever waits comes to his turn.
const HANDSHAKE: Duration = Duration::from_secs(30);
/// How long a proxy may take to answer: it resolves the name and connects meanwhile.
const PROXY: Duration = Duration::from_secs(15);

/// The certificate that an agent shows. It can be replaced while the agent runs: connections from then on
/// show the new one.
#[derive(Debug, Default)]
pub struct HostCredentials(RwLock<Option<Arc<CertifiedKey>>>);

impl HostCredentials {
    /// Shows this certificate from now on. It is in DER.
    ///
    /// # Errors
    /// [`TlsError`] when the key is not the certificate's.
    pub fn replace(&self, certificate: &[u8], key: &HostKey) -> Result<(), TlsError> {
        let certified = certified(vec![certificate.to_vec().into()], key)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(certified);
        Ok(())
    }
}

pub(crate) fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: &HostKey,
) -> Result<Arc<CertifiedKey>, TlsError> {
    Ok(Arc::new(CertifiedKey::from_der(chain, key.to_der(), &provider())?))
}

impl ResolvesClientCert for HostCredentials {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn has_certs(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

/// The certificate that was shown is not of the authority that was told.
#[derive(Debug, thiserror::Error)]
#[error("its certificate is not of the authority {0}")]
struct OfAnotherAuthority(Fingerprint);

/// Accepts the coordinator of one fleet: the authority is among the certificates that it sends and has the
/// fingerprint that was told, and it signed a coordinator's certificate.
#[derive(Debug)]
struct FleetVerifier(Fingerprint);

impl ServerCertVerifier for FleetVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let other = || {
            let error = OtherError(Arc::new(OfAnotherAuthority(self.0)));
            rustls::Error::InvalidCertificate(CertificateError::Other(error))
        };
        let authority = intermediates.iter().find(|sent| Fingerprint::of(sent) == self.0);
        let mut roots = RootCertStore::empty();
        roots.add(authority.ok_or_else(other)?.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        // The authority itself is the root, and no link of the chain.
        match verifier.verify_server_cert(end_entity, &[], server_name, ocsp_response, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature,
            )) => Err(other()),
            judged => judged,
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        // Not asked: only TLS 1.3 is offered.
        Err(rustls::Error::General("TLS 1.2 is not spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            cert,
            dss,
            &provider().signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

/// How an HTTP client speaks TLS with servers of one fleet, under the names and numbers by which they are
/// reached. What shows no certificate of the fleet's authority is judged by `others`, where there are any:
/// another server may stand in front of one of the fleet's.
///
/// # Errors
/// [`TlsError`] when TLS cannot be set up.
pub fn web_config(
    authority: Fingerprint,
    others: Option<Arc<dyn ServerCertVerifier>>,
) -> Result<ClientConfig, TlsError> {
    let fleet = FleetVerifier(authority);
    let versions: &[_] = match others {
        None => &[&rustls::version::TLS13],
        Some(_) => rustls::ALL_VERSIONS,
    };
    let verifier: Arc<dyn ServerCertVerifier> = match others {
        None => Arc::new(fleet),
        Some(others) => Arc::new(EitherVerifier { fleet, others }),
    };
    Ok(ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth())
}

/// Accepts a server of one fleet, and whom somebody else accepts.
#[derive(Debug)]
struct EitherVerifier {
    fleet: FleetVerifier,
    others: Arc<dyn ServerCertVerifier>,
}

impl ServerCertVerifier for EitherVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let of_fleet =
            self.fleet.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        of_fleet.or_else(|_| {
            self.others.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.others.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.fleet.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.fleet.supported_verify_schemes()
    }
}

/// Connects to the coordinator of one fleet.
#[derive(Clone, Debug)]
pub struct Connector {
    config: Arc<ClientConfig>,
    proxies: Proxies,
}

impl Connector {
    /// To the fleet of this authority; `credentials` are shown, if there are any.
    ///
    /// # Errors
    /// [`TlsError`] when TLS cannot be set up.
    pub fn new(authority: Fingerprint, credentials: Option<Arc<HostCredentials>>) -> Result<Self, TlsError> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(FleetVerifier(authority)));
        let mut config = match credentials {
            Some(credentials) => builder.with_client_cert_resolver(credentials),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Self { config: Arc::new(config), proxies: Proxies::default() })
    }

    /// The same, through these proxies. Without, it connects directly.
    #[must_use]
    pub fn through(self, proxies: Proxies) -> Self {
        Self { proxies, ..self }
    }

    /// The proxy through which an address is reached.
    pub(crate) fn proxy(&self, address: &Address) -> Option<Proxy> {
        self.proxies.towards("https", address.host())
    }

    /// A connection to an address, or through a proxy to it.
    ///
    /// # Errors
    /// [`ConnectError`]: nobody answers, or not the fleet's coordinator, or a proxy does not lead there.
    pub async fn connect(&self, address: &Address) -> Result<TlsStream<TcpStream>, ConnectError> {
        let unreachable = |source| ConnectError::Unreachable { address: address.clone(), source };
        let proxy = self.proxy(address);
        let stream = match &proxy {
            None => reach_in_time(address).await.map_err(unreachable)?,
            Some(proxy) => tunnel(proxy, address).await.map_err(|fault| ConnectError::Proxy {
                proxy: proxy.clone(),
                address: address.clone(),
                fault,
            })?,
        };
        // Messages are small and waited for.
        let _ = stream.set_nodelay(true);
        // The kernel ends what takes nothing any more, also where the other side lives and reads nothing.
        // That wakes nobody.
        let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, TAKEN_WITHIN_MS);
        let name =
            ServerName::try_from(COORDINATOR_NAME).map_err(|error| unreachable(io::Error::other(error)))?;
        let handshake = TlsConnector::from(self.config.clone()).connect(name, stream);
        let stream = timeout(HANDSHAKE, handshake).await.unwrap_or_else(|_| Err(silent(HANDSHAKE)));
        let stream = stream.map_err(|source| judge(address, proxy, source))?;
        match stream.get_ref().1.alpn_protocol() {
            Some(ALPN) => Ok(stream),
            _ => Err(ConnectError::NoCoordinator {
                address: address.clone(),
                source: io::Error::other("it does not speak HTTP/2"),
            }),
        }
    }
}

fn silent(within: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", within.as_secs()))
}

async fn tunnel(proxy: &Proxy, address: &Address) -> Result<TcpStream, ProxyFault> {
    let stream = reach_in_time(proxy.address()).await.map_err(ProxyFault::Unreachable)?;
    proxy::open(stream, address, proxy.credentials(), PROXY).await
}

async fn reach_in_time(address: &Address) -> io::Result<TcpStream> {
    timeout(CONNECT, reach(address)).await.unwrap_or_else(|_| Err(silent(CONNECT)))
}

/// Connects to the first of a host's numbers that answers. Each has its part of the time: one whose packets
/// are dropped on the way, as of a network that is only half there, must not use up that of the others.
async fn reach(address: &Address) -> io::Result<TcpStream> {
    let numbers: Vec<_> = tokio::net::lookup_host((address.host(), address.port())).await?.collect();
    let each = CONNECT / u32::try_from(numbers.len().max(1)).unwrap_or(u32::MAX);
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no number");
    for number in numbers {
        match timeout(each, TcpStream::connect(number)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failed = error,
            Err(_) => failed = io::Error::new(io::ErrorKind::TimedOut, format!("{number} does not answer")),
        }
    }
    Err(failed)
}

/// What a handshake that failed means.
fn judge(address: &Address, proxy: Option<Proxy>, source: io::Error) -> ConnectError {
    let address = address.clone();
    let tls = source.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls {
        Some(rustls::Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        )) => match tls.cloned() {
            Some(source) => ConnectError::NotValidNow { address, source },
            None => ConnectError::Unreachable { address, source },
        },
        Some(rustls::Error::InvalidCertificate(_)) => ConnectError::OtherAuthority { address, proxy },
        Some(_) => ConnectError::NoCoordinator { address, source },
        // It may just be ending, or have no place.
        None => match proxy {
            Some(proxy) => ConnectError::Proxy { proxy, address, fault: ProxyFault::Cut(source) },
            None => ConnectError::Unreachable { address, source },
        },
    }
}
