//! What certificates of hosts say.

use fallow_domain::{AgentId, Duration, Instant, hex};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::{BACKDATED, Fingerprint, TlsError};

/// In front of an agent's id in its certificate's URI.
pub(crate) const URI: &str = "fallow://host/";

/// What a host's certificate says. Whoever has read one from a connection knows that the authority signed it
/// and that the other end has its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCertificate {
    /// Whose it is.
    pub agent: AgentId,
    /// Its number, drawn at random, in hexadecimal digits.
    pub serial: String,
    /// Of its public key, as [`crate::HostKey::fingerprint`].
    pub key: Fingerprint,
    /// When it was made, less some time for clocks that are slow.
    pub not_before: Instant,
    /// It proves nothing after this.
    pub not_after: Instant,
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Somebody without a certificate: a tool of operators, or an agent that is to enrol.
    Anonymous,
    /// A host of this fleet, for all that its certificate says.
    Host(HostCertificate),
}

impl HostCertificate {
    /// When it was made.
    #[must_use]
    pub fn made_at(&self) -> Instant {
        self.not_before + BACKDATED
    }

    /// How long after that it is to be renewed: two thirds of its life.
    #[must_use]
    pub fn renew_after(&self) -> Duration {
        (self.not_after - self.made_at()).mul_f64(2.0 / 3.0)
    }

    /// Reads one in DER. Who signed it is not looked at.
    ///
    /// # Errors
    /// [`TlsError::Foreign`] for what is no host's certificate.
    pub fn read(der: &[u8]) -> Result<Self, TlsError> {
        let bad = TlsError::Foreign;
        let (_, certificate) = X509Certificate::from_der(der).map_err(|_| bad("it cannot be read"))?;
        let names = certificate.subject_alternative_name().map_err(|_| bad("its names cannot be read"))?;
        let names = names.ok_or(bad("it names nobody"))?;
        let mut agents = names.value.general_names.iter().filter_map(|name| match name {
            GeneralName::URI(uri) => uri.strip_prefix(URI),
            _ => None,
        });
        let (Some(agent), None) = (agents.next(), agents.next()) else {
            return Err(bad("it does not name one host"));
        };
        let validity = certificate.validity();
        Ok(Self {
            agent: AgentId(agent.to_owned()),
            serial: hex(certificate.raw_serial()),
            key: Fingerprint::of(certificate.public_key().raw),
            not_before: instant(validity.not_before.timestamp()),
            not_after: instant(validity.not_after.timestamp()),
        })
    }
}

fn instant(seconds: i64) -> Instant {
    Instant::from_micros(seconds.saturating_mul(1_000_000))
}
