//! The certificate authority of a fleet.
//!
//! Its key signs two kinds of certificates: the coordinator's own, for servers only, with the fixed name that
//! everybody looks for and the names and numbers under which it is reached; and hosts', for clients only,
//! each with one URI that names the agent. Neither passes for the other. Of a request only the key is taken.

use std::net::IpAddr;

use fallow_domain::{AgentId, Duration, Instant, hex};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType, SerialNumber,
};
use ring::rand::{SecureRandom as _, SystemRandom};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::certificate::URI;
use crate::{COORDINATOR_NAME, Fingerprint, HostCertificate, HostKey, TlsError};

/// A fleet's authority: its key and its certificate.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

/// A certificate that was just signed.
#[derive(Clone, Debug)]
pub struct Issued {
    /// In DER.
    pub der: Vec<u8>,
    /// What it says.
    pub says: HostCertificate,
}

/// How long an authority is valid. It is replaced by hand, which nobody wants to do often.
const AUTHORITY_DAYS: i64 = 20 * 365;
/// Certificates begin so long before they are made: clocks of hosts may be slow.
pub const BACKDATED: Duration = Duration::from_secs(3_600);
/// Longest request to be certified: one for a key of P-256 has a quarter of a kilobyte.
const REQUEST_MAX: usize = 8 << 10;

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authority({})", self.fingerprint())
    }
}

impl Authority {
    /// A new authority; with it what is to be kept of it: certificate and key, both PEM, the latter a secret.
    ///
    /// # Errors
    /// [`TlsError`] when the system gives no random numbers.
    pub fn create(now: Instant) -> Result<(Self, String, String), TlsError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = blank(now, Duration::from_secs(AUTHORITY_DAYS * 86_400))?;
        // A name of its own, so that nobody takes one authority for another by name.
        let number: String = hex(&random()?).chars().take(12).collect();
        params.distinguished_name.push(DnType::CommonName, format!("Fallow fleet {number}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?;
        let (pem, key_pem) = (certificate.pem(), key.serialize_pem());
        Ok((Self::from_pem(&pem, &key_pem)?, pem, key_pem))
    }

    /// From its certificate and key, both PEM.
    ///
    /// # Errors
    /// [`TlsError`] for what is none, or not one another's.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, TlsError> {
        let der = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(|_| TlsError::Foreign("it is not PEM"))?;
        let key = KeyPair::from_pem(key)?;
        let key_of = |der: &[u8]| {
            use x509_parser::prelude::FromDer as _;
            let (_, read) = x509_parser::prelude::X509Certificate::from_der(der).ok()?;
            read.is_ca().then(|| read.public_key().raw.to_vec())
        };
        match key_of(&der) {
            None => return Err(TlsError::Foreign("it is no authority's")),
            Some(public) if public != key.subject_public_key_info() => {
                return Err(TlsError::Foreign("the key is another certificate's"));
            }
            Some(_) => {}
        }
        Ok(Self { issuer: Issuer::from_ca_cert_der(&der, key)?, certificate: der })
    }

    /// What it is known by.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    pub(crate) const fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// A certificate for the coordinator's ports, with a key of its own; `hosts` are names and numbers under
    /// which it is reached besides. Those that fit into no certificate are left out.
    ///
    /// # Errors
    /// [`TlsError`].
    pub(crate) fn issue_coordinator(
        &self,
        hosts: &[String],
        now: Instant,
        life: Duration,
    ) -> Result<(CertificateDer<'static>, HostKey), TlsError> {
        let key = HostKey::generate()?;
        let mut params = blank(now, life)?;
        params.distinguished_name.push(DnType::CommonName, "Fallow coordinator");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let dns = |name: &str| name.to_owned().try_into().ok().map(SanType::DnsName);
        params.subject_alt_names = [COORDINATOR_NAME]
            .into_iter()
            .filter_map(dns)
            .chain(hosts.iter().filter_map(|host| match host.parse::<IpAddr>() {
                Ok(number) => Some(SanType::IpAddress(number)),
                Err(_) => dns(host),
            }))
            .collect();
        Ok((self.sign(params, key.public())?, key))
    }

    /// A certificate for an agent's key, valid for `life`.
    ///
    /// # Errors
    /// [`TlsError`] for a request that is none, or not signed with its own key.
    pub fn issue_host(
        &self,
        request: &[u8],
        agent: &AgentId,
        now: Instant,
        life: Duration,
    ) -> Result<Issued, TlsError> {
        if request.len() > REQUEST_MAX {
            return Err(TlsError::Foreign("the request is too long"));
        }
        let request = CertificateSigningRequestParams::from_der(&request.into())?;
        let mut params = blank(now, life)?;
        params.distinguished_name.push(DnType::CommonName, "Fallow host");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let uri = format!("{URI}{}", agent.0).try_into();
        params.subject_alt_names = vec![SanType::URI(uri?)];
        let der = self.sign(params, &request.public_key)?.to_vec();
        let says = HostCertificate::read(&der)?;
        Ok(Issued { der, says })
    }

    /// What a request's key is known by. That whoever made the request has the key is looked at.
    ///
    /// # Errors
    /// As [`Authority::issue_host`].
    pub fn key_in(request: &[u8]) -> Result<Fingerprint, TlsError> {
        if request.len() > REQUEST_MAX {
            return Err(TlsError::Foreign("the request is too long"));
        }
        let request = CertificateSigningRequestParams::from_der(&request.into())?;
        Ok(Fingerprint::of(&request.public_key.subject_public_key_info()))
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        key: &impl PublicKeyData,
    ) -> Result<CertificateDer<'static>, TlsError> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        Ok(params.signed_by(key, &self.issuer)?.der().clone())
    }
}

/// Valid from a while ago until `life` from now, with a number drawn at random: one that counts would begin
/// anew with a restored backup.
fn blank(now: Instant, life: Duration) -> Result<CertificateParams, TlsError> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.serial_number = Some(SerialNumber::from_slice(&random()?));
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + since_epoch(now - BACKDATED);
    params.not_after = epoch + since_epoch(now + life);
    Ok(params)
}

fn random() -> Result<[u8; 16], TlsError> {
    let mut bytes = [0; 16];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| TlsError::Certificate(rcgen::Error::RingUnspecified))?;
    // A positive number of full length.
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(bytes)
}

/// Whole seconds, as certificates have them, and within the years that they know, whatever the clock says.
fn since_epoch(at: Instant) -> std::time::Duration {
    const YEAR_9000: i64 = 221_845_392_000;
    std::time::Duration::from_secs((at.as_micros() / 1_000_000).clamp(0, YEAR_9000).unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn now() -> Instant {
        Instant::from_micros(1_790_000_000_000_000)
    }

    #[test]
    fn r6_10_a_hosts_certificate_names_the_agent_its_key_and_its_end_and_nothing_of_what_was_asked_for() {
        let (authority, ..) = Authority::create(now()).unwrap();
        let key = HostKey::generate().unwrap();
        let request = key.certificate_request().unwrap();
        let issued = authority.issue_host(&request, &AgentId("01J".into()), now(), DAY).unwrap();
        assert_eq!(issued.says.agent, AgentId("01J".into()));
        assert_eq!(issued.says.key, key.fingerprint());
        assert_eq!(Authority::key_in(&request).unwrap(), key.fingerprint());
        assert_eq!(issued.says.not_after, now() + DAY);
        assert_eq!(issued.says.not_before, now() - BACKDATED);
        let again = authority.issue_host(&request, &AgentId("01J".into()), now(), DAY).unwrap();
        assert_ne!(issued.says.serial, again.says.serial, "numbers are drawn");
    }

    #[test]
    fn r6_10_a_request_that_was_changed_or_is_none_is_refused() {
        let (authority, ..) = Authority::create(now()).unwrap();
        let request = HostKey::generate().unwrap().certificate_request().unwrap();
        let mut changed = request;
        let last = changed.len() - 5;
        changed[last] ^= 1;
        for bad in [Vec::new(), vec![0x30; 100], changed, vec![0; REQUEST_MAX + 1]] {
            assert!(authority.issue_host(&bad, &AgentId("a".into()), now(), DAY).is_err());
            assert!(Authority::key_in(&bad).is_err());
        }
    }

    #[test]
    fn r6_10_an_authority_comes_back_from_its_files_and_no_other_key_fits() {
        let (authority, certificate, key) = Authority::create(now()).unwrap();
        let again = Authority::from_pem(&certificate, &key).unwrap();
        assert_eq!(again.fingerprint(), authority.fingerprint());
        let (_, other, other_key) = Authority::create(now()).unwrap();
        assert!(Authority::from_pem(&certificate, &other_key).is_err());
        assert!(Authority::from_pem(&other, &key).is_err());
        assert!(Authority::from_pem("", &key).is_err() && Authority::from_pem(&certificate, "").is_err());
        assert!(!format!("{authority:?}").contains("KEY"));
    }

    #[test]
    fn r6_10_a_clock_that_is_absurd_makes_no_certificate_that_cannot_be_written() {
        for at in [Instant::from_micros(i64::MIN), Instant::EPOCH, Instant::FAR_FUTURE] {
            let (authority, ..) = Authority::create(at).unwrap();
            let request = HostKey::generate().unwrap().certificate_request().unwrap();
            assert!(authority.issue_host(&request, &AgentId("a".into()), at, DAY).is_ok());
        }
    }
}
