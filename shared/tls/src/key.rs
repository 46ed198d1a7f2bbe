//! The private key of a host: made on it, and never leaves it.

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData as _};
use rustls::pki_types::PrivateKeyDer;

use crate::{Fingerprint, TlsError};

/// A key of ECDSA over P-256.
pub struct HostKey(KeyPair);

impl std::fmt::Debug for HostKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostKey({})", self.fingerprint())
    }
}

impl HostKey {
    /// A new one.
    ///
    /// # Errors
    /// [`TlsError`] when the system gives no random numbers.
    pub fn generate() -> Result<Self, TlsError> {
        Ok(Self(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?))
    }

    /// From PEM, as [`HostKey::to_pem`] wrote it.
    ///
    /// # Errors
    /// [`TlsError`] for anything else.
    pub fn from_pem(pem: &str) -> Result<Self, TlsError> {
        Ok(Self(KeyPair::from_pem(pem)?))
    }

    /// As PEM. A secret.
    #[must_use]
    pub fn to_pem(&self) -> String {
        self.0.serialize_pem()
    }

    /// SHA-256 of its public part (SubjectPublicKeyInfo in DER): what the coordinator knows the key by.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.0.subject_public_key_info())
    }

    /// A request to certify the key (PKCS#10 in DER), which shows that whoever sends it has the key. It says
    /// nothing else: who it is for is for the coordinator to say.
    ///
    /// # Errors
    /// [`TlsError`] when it cannot be signed.
    pub fn certificate_request(&self) -> Result<Vec<u8>, TlsError> {
        let request = CertificateParams::new(Vec::new())?.serialize_request(&self.0)?;
        Ok(request.der().to_vec())
    }

    pub(crate) const fn public(&self) -> &impl rcgen::PublicKeyData {
        &self.0
    }

    pub(crate) fn to_der(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.0.serialize_der().into())
    }
}
