//! Who is at the other end: certificates of a fleet, and TLS 1.3 between agents, operators and the
//! coordinator (R6.10).
//!
//! Model: each coordinator is the certificate authority of its fleet ([`Authority`]). It has a certificate of
//! its own for its ports, and signs one for each agent that enrols ([`HostCertificate`]); an agent's key
//! never leaves its host. Whoever connects knows the authority by the SHA-256 of its certificate
//! ([`Fingerprint`]), which stands in what an administrator hands over ([`AccessString`]); so nobody can sit
//! in the middle of the first contact either. Names and addresses prove nothing: the coordinator is known by
//! one fixed name in its certificate, so it may move.
//!
//! Nothing is resumed: a TLS session that is taken up again would be that of a certificate which was renewed
//! or revoked meanwhile. What a certificate permits is judged with each call, by whoever serves it, from
//! [`Peer`]; here it is only proved. A certificate that has expired is accepted as a proof of who somebody
//! is, and [`HostCertificate::not_after`] tells that it has: a host that was off for months may renew it.
//!
//! The way there may lead through an HTTP proxy ([`Proxies`]), which learns the address and nothing else.
//!
//! An exception among the rooms under `shared/`: it knows sockets and the clock, for it is about connections.
//! Omitted: intermediate authorities, revocation lists (the coordinator keeps who is revoked), a second
//! authority while one is replaced.

mod access_string;
mod address;
mod authority;
mod certificate;
mod client;
mod dial;
mod error;
mod fingerprint;
mod key;
mod loopback;
mod proxy;
mod server;

pub use access_string::{AccessString, AccessStringError, Purpose};
pub use address::{Address, AddressError};
pub use authority::{Authority, BACKDATED, Issued};
pub use certificate::{HostCertificate, Peer};
pub use client::{Connector, HostCredentials, web_config};
pub use dial::{Dialled, dial};
pub use error::{ConnectError, TlsError};
pub use fingerprint::{Fingerprint, NoFingerprint};
pub use key::HostKey;
pub use loopback::is_this_host;
pub use proxy::{BadProxies, Proxies, Proxy, ProxyFault};
pub use server::{
    CoordinatorCertificate, accept, accept_anybody, public_config, refused_certificate, server_config,
    speaks_http2,
};

/// The one name of a coordinator in its certificate. It stands for a role and is no host's: `.invalid` never
/// is.
pub const COORDINATOR_NAME: &str = "coordinator.fallow.invalid";
/// What agents and operators' tools speak on the fleet's port: gRPC's HTTP/2.
const ALPN: &[u8] = b"h2";
/// What is spoken on the projects' port, and on the fleet's by scripts that cannot speak HTTP/2.
const HTTP1: &[u8] = b"http/1.1";

fn provider() -> std::sync::Arc<rustls::crypto::CryptoProvider> {
    std::sync::Arc::new(rustls::crypto::ring::default_provider())
}
