//! Secrets that prove who somebody is: how they are made, what is kept of them, how they are compared.
//!
//! A secret is 256 random bits, so its SHA-256 needs neither salt nor stretching: nobody can try them all.
//! Only the hash is stored; the comparison takes the same time wherever two hashes differ.

use fallow_domain::{from_hex, hex};
use rand::TryRng as _;
use rand::rngs::SysRng;

/// The hash of a secret: what is stored.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretHash([u8; 32]);

/// The system's random generator does not answer. Nothing secret can be made then.
#[derive(Debug, thiserror::Error)]
#[error("the system gives no random numbers, so no secret can be made")]
pub struct NoRandomness(#[source] rand::rngs::SysError);

/// A new secret of 64 hexadecimal digits.
///
/// # Errors
/// [`NoRandomness`] when the system gives none.
pub fn generate() -> Result<String, NoRandomness> {
    let mut bytes = [0_u8; 32];
    SysRng.try_fill_bytes(&mut bytes).map_err(NoRandomness)?;
    Ok(hex(&bytes))
}

impl SecretHash {
    /// The hash of `secret`, whatever that is.
    #[must_use]
    pub fn of(secret: &str) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, secret.as_bytes());
        let mut hash = [0; 32];
        hash.copy_from_slice(digest.as_ref());
        Self(hash)
    }

    /// Whether `secret` is the one, in a time that does not tell how much of it is right.
    #[must_use]
    pub fn admits(&self, secret: &str) -> bool {
        let given = Self::of(secret);
        let differences = self.0.iter().zip(given.0).fold(0_u8, |all, (ours, theirs)| all | (ours ^ theirs));
        std::hint::black_box(differences) == 0
    }

    /// As hexadecimal digits, for the store.
    #[must_use]
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }

    /// From hexadecimal digits.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        from_hex(text)?.try_into().ok().map(Self)
    }
}

impl std::fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretHash(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_admitted_by_its_own_hash_and_no_other() {
        let (one, other) = (generate().unwrap(), generate().unwrap());
        let stored = SecretHash::from_hex(&SecretHash::of(&one).to_hex()).unwrap();
        assert!(stored.admits(&one));
        assert!(!stored.admits(&other) && !stored.admits("") && !stored.admits(&one[1..]));
    }

    #[test]
    fn a_stored_hash_that_is_none_is_noticed() {
        for bad in ["", "00", &"g".repeat(64), &"é".repeat(32)] {
            assert!(SecretHash::from_hex(bad).is_none(), "{bad}");
        }
    }
}
