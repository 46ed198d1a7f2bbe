//! The key itself, which signs. It is used where the organisation keeps it, and never by a coordinator.

use fallow_domain::{OrganisationKey, SignedDocuments};
use ring::signature::{Ed25519KeyPair, KeyPair as _};

use super::Statement;

/// An Ed25519 key pair. Its private part is a secret: it shows in no output.
#[derive(Debug)]
pub struct KeyPair(Ed25519KeyPair);

/// Why there is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyPairError {
    /// The bytes are no private key.
    #[error(
        "it is no Ed25519 key in PKCS#8, as `fallow organisation new-key` or `openssl genpkey -algorithm ed25519` makes it"
    )]
    NoKey,
}

impl KeyPair {
    /// From PKCS#8 in DER, with or without the public part.
    ///
    /// # Errors
    /// [`KeyPairError::NoKey`].
    pub fn from_der(der: &[u8]) -> Result<Self, KeyPairError> {
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).map(Self).map_err(|_| KeyPairError::NoKey)
    }

    /// The public part.
    #[must_use]
    pub fn public(&self) -> OrganisationKey {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.0.public_key().as_ref());
        OrganisationKey::new(bytes)
    }

    /// Signs a statement about documents.
    #[must_use]
    pub fn sign(&self, statement: &Statement, documents: &str) -> SignedDocuments {
        let statement = statement.text();
        let signature = self.0.sign(statement.as_bytes()).as_ref().to_vec();
        SignedDocuments { statement, signature, documents: documents.to_owned() }
    }
}
