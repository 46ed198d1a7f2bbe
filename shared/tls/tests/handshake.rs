//! Handshakes over real sockets: who gets in, who does not, and what each end is told (R6.10).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]
#![allow(clippy::disallowed_methods, reason = "the handshake itself reads the clock")]

#[path = "handshake/proxied.rs"]
mod proxied;
#[path = "support/proxy.rs"]
mod proxy;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use fallow_domain::{AgentId, Duration, Instant};
use fallow_tls::{
    Address, Authority, ConnectError, Connector, CoordinatorCertificate, Fingerprint, HostCredentials,
    HostKey, Peer, accept, server_config,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

const DAY: Duration = Duration::from_secs(86_400);

fn now() -> Instant {
    let micros = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
    Instant::from_micros(i64::try_from(micros).unwrap())
}

fn month_ago() -> Instant {
    now() - Duration::from_secs(30 * 86_400)
}

struct Fleet {
    authority: Authority,
    certificate: Arc<CoordinatorCertificate>,
    address: Address,
    accepted: mpsc::UnboundedReceiver<Result<Peer, String>>,
}

impl Fleet {
    /// A port that answers each connection with "hello".
    async fn start(at: Instant) -> Self {
        let (authority, ..) = Authority::create(at).unwrap();
        let certificate = Arc::new(CoordinatorCertificate::issue(&authority, &[], at, DAY).unwrap());
        let config = server_config(&authority, certificate.clone()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string().parse().unwrap();
        let (say, accepted) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (config, say) = (config.clone(), say.clone());
                tokio::spawn(async move {
                    match accept(config, stream).await {
                        Ok((mut stream, peer)) => {
                            say.send(Ok(peer)).unwrap();
                            let _ = stream.write_all(b"hello").await;
                            let _ = stream.shutdown().await;
                        }
                        Err(error) => say.send(Err(error.to_string())).unwrap(),
                    }
                });
            }
        });
        Self { authority, certificate, address, accepted }
    }

    fn issue(&self, key: &HostKey, at: Instant) -> Vec<u8> {
        let request = key.certificate_request().unwrap();
        self.authority.issue_host(&request, &AgentId("01J".into()), at, DAY).unwrap().der
    }

    fn host(&self, key: &HostKey, at: Instant) -> Arc<HostCredentials> {
        let credentials = Arc::new(HostCredentials::default());
        credentials.replace(&self.issue(key, at), key).unwrap();
        credentials
    }

    fn connector(&self, credentials: Option<Arc<HostCredentials>>) -> Connector {
        Connector::new(self.authority.fingerprint(), credentials).unwrap()
    }

    async fn greeted(&mut self, connector: &Connector) -> Peer {
        let mut stream = connector.connect(&self.address).await.unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).await.unwrap();
        assert_eq!(said, "hello");
        self.accepted.recv().await.unwrap().unwrap()
    }
}

#[tokio::test]
async fn r6_10_a_host_is_known_by_its_certificate_and_a_stranger_is_nobody() {
    let mut fleet = Fleet::start(now()).await;
    assert_eq!(fleet.greeted(&fleet.connector(None)).await, Peer::Anonymous);
    let key = HostKey::generate().unwrap();
    let host = fleet.connector(Some(fleet.host(&key, now())));
    let Peer::Host(shown) = fleet.greeted(&host).await else { panic!("nobody") };
    assert_eq!((shown.agent.0.as_str(), shown.key), ("01J", key.fingerprint()));
}

#[tokio::test]
async fn r6_10_the_newest_certificates_are_shown_by_every_connection() {
    let mut fleet = Fleet::start(now()).await;
    let key = HostKey::generate().unwrap();
    let credentials = fleet.host(&key, now());
    let host = fleet.connector(Some(credentials.clone()));
    let mut serials = BTreeSet::new();
    for _ in 0..5 {
        let Peer::Host(shown) = fleet.greeted(&host).await else { panic!("nobody") };
        assert!(serials.insert(shown.serial), "an older certificate was shown");
        credentials.replace(&fleet.issue(&key, now()), &key).unwrap();
        fleet.certificate.renew(&fleet.authority, &[], now(), DAY).unwrap();
    }
}

/// A client that would take up a session again, as clients do by default: it would be who it was then.
#[tokio::test]
async fn r6_10_no_session_is_taken_up_again_whatever_a_client_offers() {
    let mut fleet = Fleet::start(now()).await;
    let key = HostKey::generate().unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority_of(&fleet).await.into()).unwrap();
    assert_eq!(fleet.accepted.recv().await.unwrap(), Ok(Peer::Anonymous));
    let credentials = fleet.host(&key, now());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    // One for all connections: sessions are taken up again under the same settings only.
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_cert_resolver(credentials.clone());
    config.alpn_protocols = vec![b"h2".to_vec()];
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut serials = BTreeSet::new();
    for _ in 0..3 {
        let to = (fleet.address.host().to_owned(), fleet.address.port());
        let stream = TcpStream::connect(to).await.unwrap();
        let name = fallow_tls::COORDINATOR_NAME.try_into().unwrap();
        let mut stream = connector.connect(name, stream).await.unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).await.unwrap();
        assert_eq!(stream.get_ref().1.handshake_kind(), Some(rustls::HandshakeKind::Full));
        let Ok(Peer::Host(shown)) = fleet.accepted.recv().await.unwrap() else { panic!("nobody") };
        assert!(serials.insert(shown.serial), "an older certificate counts");
        credentials.replace(&fleet.issue(&key, now()), &key).unwrap();
    }
}

#[tokio::test]
async fn r6_10_an_expired_certificate_still_says_whose_it_was() {
    let mut fleet = Fleet::start(now()).await;
    let key = HostKey::generate().unwrap();
    let host = fleet.connector(Some(fleet.host(&key, month_ago())));
    let Peer::Host(shown) = fleet.greeted(&host).await else { panic!("nobody") };
    assert!(shown.not_after < now());
}

#[tokio::test]
async fn r6_10_who_sits_in_the_middle_is_no_coordinator() {
    let (ours, theirs) = (Fleet::start(now()).await, Fleet::start(now()).await);
    let error = ours.connector(None).connect(&theirs.address).await.unwrap_err();
    assert!(matches!(error, ConnectError::OtherAuthority { .. }), "{error}");
    assert!(error.to_string().contains("is of another authority"), "{error}");
    assert!(ours.connector(None).connect(&ours.address).await.is_ok());
}

/// A port that shows these certificates.
async fn impostor(chain: Vec<Vec<u8>>, key: &HostKey) -> Address {
    let pem = key.to_pem();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).unwrap());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain.into_iter().map(Into::into).collect(), key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string().parse().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let _ = tokio_rustls::TlsAcceptor::from(Arc::new(config)).accept(stream).await;
    });
    address
}

/// The authority's own certificate is public: it is sent to everybody.
async fn authority_of(fleet: &Fleet) -> Vec<u8> {
    let stream = fleet.connector(None).connect(&fleet.address).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[1].to_vec()
}

#[tokio::test]
async fn r6_10_neither_a_hosts_certificate_nor_one_of_another_authority_makes_a_coordinator() {
    let (fleet, other) = (Fleet::start(now()).await, Fleet::start(now()).await);
    let authority = authority_of(&fleet).await;
    let key = HostKey::generate().unwrap();
    for certificate in [fleet.issue(&key, now()), other.issue(&key, now())] {
        let at = impostor(vec![certificate, authority.clone()], &key).await;
        let error = fleet.connector(None).connect(&at).await.unwrap_err();
        assert!(matches!(error, ConnectError::OtherAuthority { .. }), "{error}");
    }
}

#[tokio::test]
async fn r6_10_a_host_of_another_fleet_is_refused_and_both_ends_are_told_why() {
    let (mut ours, theirs) = (Fleet::start(now()).await, Fleet::start(now()).await);
    let key = HostKey::generate().unwrap();
    let connector = ours.connector(Some(theirs.host(&key, now())));
    // The client has ended its part of the handshake before it is judged.
    let error = match connector.connect(&ours.address).await {
        Err(error) => error.to_string(),
        Ok(mut stream) => stream.read(&mut [0; 8]).await.unwrap_err().to_string(),
    };
    assert!(error.contains("UnknownCA") || error.contains("DecryptError"), "{error}");
    let said = ours.accepted.recv().await.unwrap().unwrap_err();
    assert!(said.contains("invalid peer certificate"), "{said}");
}

#[tokio::test]
async fn r6_10_a_coordinator_whose_certificate_is_not_valid_now_is_told_with_clocks_as_a_reason() {
    let fleet = Fleet::start(month_ago()).await;
    let error = fleet.connector(None).connect(&fleet.address).await.unwrap_err();
    assert!(matches!(error, ConnectError::NotValidNow { .. }), "{error}");
    assert!(error.to_string().contains("clocks"), "{error}");
}

#[tokio::test]
async fn r6_10_silence_and_other_services_are_told_apart() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody: Address = closed.local_addr().unwrap().to_string().parse().unwrap();
    drop(closed);
    let connector = Connector::new(Fingerprint::of(b""), None).unwrap();
    let error = connector.connect(&nobody).await.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error}");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let http: Address = listener.local_addr().unwrap().to_string().parse().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        let _ = stream.read(&mut [0; 512]).await;
    });
    let error = connector.connect(&http).await.unwrap_err();
    assert!(matches!(error, ConnectError::NoCoordinator { .. }), "{error}");
}

/// A port whose one connection is handed over, and that says nothing.
async fn silent() -> (Address, oneshot::Receiver<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string().parse().unwrap();
    let (meet, met) = oneshot::channel();
    tokio::spawn(async move { meet.send(listener.accept().await.unwrap().0) });
    (address, met)
}

fn dial(
    connector: Connector,
    addresses: [Address; 2],
) -> JoinHandle<Result<fallow_tls::Dialled, ConnectError>> {
    let endpoint = tonic::transport::Endpoint::from_static("http://coordinator.fallow.invalid");
    tokio::spawn(async move { fallow_tls::dial(&connector, &addresses, &endpoint).await })
}

/// Passes on to a fleet what comes over a connection, which had been silent so far.
async fn pass_on(mut held: TcpStream, fleet: &mut Fleet) {
    let to = (fleet.address.host().to_owned(), fleet.address.port());
    tokio::spawn(async move {
        let mut behind = TcpStream::connect(to).await.unwrap();
        tokio::io::copy_bidirectional(&mut held, &mut behind).await
    });
    assert_eq!(fleet.accepted.recv().await.unwrap(), Ok(Peer::Anonymous));
}

#[tokio::test]
async fn r6_10_an_address_that_says_nothing_does_not_keep_the_next_one_waiting_for_its_end() {
    let mut fleet = Fleet::start(now()).await;
    let ((first, met), (second, also_met)) = (silent().await, silent().await);
    let _dialled = dial(fleet.connector(None), [first, second]);
    let mut held = met.await.unwrap();
    let until_its_end = async { while held.read(&mut [0; 512]).await.unwrap() > 0 {} };
    tokio::select! {
        () = until_its_end => panic!("the first was given up before the second was begun"),
        second = also_met => pass_on(second.unwrap(), &mut fleet).await,
    }
}

#[tokio::test]
async fn r6_10_an_address_that_answers_late_is_taken_although_another_was_tried_meanwhile() {
    let mut fleet = Fleet::start(now()).await;
    let ((first, met), (second, also_met)) = (silent().await, silent().await);
    let _dialled = dial(fleet.connector(None), [first, second]);
    let (held, _silent) = (met.await.unwrap(), also_met.await.unwrap());
    pass_on(held, &mut fleet).await;
}
