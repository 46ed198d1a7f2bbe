//! Keys: generating them, their text forms, signing and verifying.

use fallow_domain::KeyFingerprint;
use ring::digest::{SHA256, digest};
use rsa::pkcs1v15::Pkcs1v15Sign;
use rsa::pkcs8::{DecodePrivateKey, EncodePrivateKey, LineEnding};
use rsa::rand_core::{CryptoRng, RngCore};
use rsa::traits::PublicKeyParts;
use rsa::{BigUint, RsaPrivateKey, RsaPublicKey};

use super::text::{put_lines, take_hex};
use crate::FormatError;

/// Bits of a new key: the most that BOINC's clients hold.
pub const GENERATED_BITS: usize = 1024;

/// Fewest bits of a key that is accepted: what BOINC's tools make, and the most that its clients hold.
/// Shorter ones are broken within hours (512 bits were in 1999), and no project has one.
const BITS_MIN: usize = GENERATED_BITS;
/// Bits of an exponent. All projects have 65537; a huge one only costs time.
const EXPONENT_BITS_MAX: usize = 32;

/// A key that cannot be made, stored, read or used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The arithmetic refuses.
    #[error("the RSA key cannot be used")]
    Rsa(#[from] rsa::Error),
    /// The stored form is none.
    #[error("the private key is not PKCS#8 in PEM: restore it from a backup, or make new keys")]
    Pem(#[from] rsa::pkcs8::Error),
    /// Something else than an MD5 is to be signed.
    #[error("only an MD5 of 32 lower-case hexadecimal digits can be signed")]
    NoMd5,
}

/// A private key. It does not show in logs.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey(RsaPrivateKey);

impl std::fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PrivateKey(…)")
    }
}

/// A public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey(RsaPublicKey);

impl PrivateKey {
    /// Makes a new key of [`GENERATED_BITS`] bits. `fill` fills a buffer with random bytes and must be fit
    /// for secrets.
    ///
    /// # Errors
    /// [`KeyError`] when no key comes of it.
    pub fn generate(fill: &mut dyn FnMut(&mut [u8])) -> Result<Self, KeyError> {
        Ok(Self(RsaPrivateKey::new(&mut Random(fill), GENERATED_BITS)?))
    }

    /// Reads a key from its stored form.
    ///
    /// # Errors
    /// [`KeyError`] when `pem` does not hold a private key in PKCS#8.
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        Ok(Self(RsaPrivateKey::from_pkcs8_pem(pem)?))
    }

    /// The key's stored form: PKCS#8 in PEM. A secret.
    ///
    /// # Errors
    /// [`KeyError`] when it cannot be encoded.
    pub fn to_pem(&self) -> Result<String, KeyError> {
        Ok(self.0.to_pkcs8_pem(LineEnding::LF)?.to_string())
    }

    /// The public key that goes with it.
    pub fn public_key(&self) -> PublicKey {
        PublicKey(self.0.to_public_key())
    }

    /// Signs with the arithmetic masked by random numbers, so that the time it takes tells nothing of the
    /// key.
    pub(super) fn sign_md5(&self, md5: &str, fill: &mut dyn FnMut(&mut [u8])) -> Result<String, KeyError> {
        if !is_md5(md5) {
            return Err(KeyError::NoMd5);
        }
        let scheme = Pkcs1v15Sign::new_unprefixed();
        let signature = self.0.sign_with_rng(&mut Random(fill), scheme, md5.as_bytes())?;
        let mut text = String::new();
        put_lines(&signature, &mut text);
        text.push('.');
        Ok(text)
    }
}

impl PublicKey {
    /// Reads a key from its text form.
    ///
    /// # Errors
    /// [`FormatError`] when it is none, or no key of 1024 bits with an odd exponent from 3 to 2^32.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        let error = |expected: &str| FormatError::new("public key", text.as_bytes(), 0, "", expected);
        let (bits, digits) =
            text.trim().split_once('\n').ok_or_else(|| error("a line with the number of bits"))?;
        let bits: usize = bits.trim().parse().map_err(|_| error("a line with the number of bits"))?;
        if !(BITS_MIN..=GENERATED_BITS).contains(&bits) {
            return Err(error("1024 bits, as BOINC's keys have"));
        }
        let size = bits / 8;
        let numbers =
            take_hex(digits, 2 * size).filter(|numbers| numbers.len() == 2 * size).ok_or_else(|| {
                error("modulus and exponent in hexadecimal, each of the key's size, then a dot")
            })?;
        let modulus = BigUint::from_bytes_be(&numbers[..size]);
        let odd = numbers[size - 1] & 1 == 1;
        // A modulus that is shorter or even is no product of two large primes, and could upset the
        // arithmetic.
        if modulus.bits() != bits || !odd {
            return Err(error("an odd modulus of as many bits as the first line says"));
        }
        let exponent = BigUint::from_bytes_be(&numbers[size..]);
        // With an exponent of 1 everything is its own signature.
        let is_sound = (2..=EXPONENT_BITS_MAX).contains(&exponent.bits()) && numbers[2 * size - 1] & 1 == 1;
        if !is_sound {
            return Err(error("an odd exponent from 3 to 2^32, such as 65537"));
        }
        RsaPublicKey::new(modulus, exponent).map(Self).map_err(|_| error("an exponent that RSA can use"))
    }

    /// The key's text form, as a `code_sign_key` holds it, without a line end at its end.
    pub fn to_text(&self) -> String {
        let size = self.0.size();
        let mut text = format!("{}\n", size * 8);
        for number in [self.0.n(), self.0.e()] {
            let bytes = number.to_bytes_be();
            let mut padded = vec![0; size.saturating_sub(bytes.len())];
            padded.extend(bytes);
            put_lines(&padded, &mut text);
        }
        text.push('.');
        text
    }

    /// Its name in documents: SHA-256 of its text form.
    pub fn fingerprint(&self) -> KeyFingerprint {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, self.to_text().as_bytes()).as_ref());
        KeyFingerprint::new(hash)
    }

    pub(super) fn verify_md5(&self, md5: &str, signature: &str) -> bool {
        let size = self.0.size();
        let Some(signature) = take_hex(signature, size) else { return false };
        is_md5(md5) && self.0.verify(Pkcs1v15Sign::new_unprefixed(), md5.as_bytes(), &signature).is_ok()
    }
}

fn is_md5(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Random bytes from outside, in the shape that the `rsa` crate asks for.
struct Random<'a>(&'a mut dyn FnMut(&mut [u8]));

impl RngCore for Random<'_> {
    fn next_u32(&mut self) -> u32 {
        let mut bytes = [0; 4];
        (self.0)(&mut bytes);
        u32::from_le_bytes(bytes)
    }
    fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        (self.0)(&mut bytes);
        u64::from_le_bytes(bytes)
    }
    fn fill_bytes(&mut self, dest: &mut [u8]) {
        (self.0)(dest);
    }
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), rsa::rand_core::Error> {
        (self.0)(dest);
        Ok(())
    }
}

impl CryptoRng for Random<'_> {}
