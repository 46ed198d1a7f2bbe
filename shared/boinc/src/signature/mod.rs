//! Code-signing and upload keys, and what is signed with them.
//!
//! **Model.** RSA of at most 1024 bits. A signature is a PKCS#1 v1.5 type-1 block directly over the 32 ASCII
//! characters of an MD5 in lower-case hexadecimal, without the usual note of the hash's kind (no DigestInfo).
//! Projects sign three things: the files of application versions and new code-signing keys with the
//! code-signing key, permissions to upload with the upload key. This is the protection that BOINC's format
//! allows; it is weak by today's measure (MD5, 1024 bits), and the format has no room for another.
//!
//! **Text forms.** A public key is its number of bits on a line, then the modulus and the exponent, each
//! padded to the key's size, as hexadecimal in lines of 64 digits, then a line with a dot. A signature is
//! such lines and a dot. Readers here take other white space too; clients do not, so writers write exactly
//! this. Private keys are nobody else's business and are kept as PKCS#8 in PEM.
//!
//! Whoever signs hands in random bytes. The `rsa` crate's arithmetic takes a time that depends on the key
//! (RUSTSEC-2023-0071), and a server signs upload permissions while a client waits for its reply, so a client
//! could measure it. The random bytes mask what is computed; the signature is the same with any of them.
//! Verifying uses no secret.

mod key;
mod text;

pub use key::{GENERATED_BITS, KeyError, PrivateKey, PublicKey};

use std::io::{self, Read};

use fallow_domain::{Bytes, hex};
use md5::{Digest, Md5};

/// The MD5 of `bytes` as projects write it: 32 lower-case hexadecimal digits.
pub fn md5_hex(bytes: impl AsRef<[u8]>) -> String {
    hex(&Md5::digest(bytes))
}

/// The MD5 of what comes in parts.
#[derive(Clone, Debug, Default)]
pub struct Md5Sum(Md5);

impl Md5Sum {
    /// Takes in the next part.
    pub fn update(&mut self, part: impl AsRef<[u8]>) {
        self.0.update(part);
    }

    /// As projects write it: 32 lower-case hexadecimal digits.
    pub fn hex(self) -> String {
        hex(&self.0.finalize())
    }
}

/// The same of all that a reader gives, and how much that is.
///
/// # Errors
/// The reader's.
pub fn md5_of(mut reader: impl Read) -> io::Result<(String, Bytes)> {
    let (mut digest, mut buffer, mut size) = (Md5::new(), vec![0; 64 * 1024], 0);
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok((hex(&digest.finalize()), Bytes(size))),
            Ok(read) => {
                digest.update(buffer.get(..read).unwrap_or_default());
                size += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// What an upload permission signs: the file's name and its maximum size, without any white space.
fn upload_permission(name: &str, max_nbytes: Bytes) -> String {
    format!("<name>{name}</name><max_nbytes>{}</max_nbytes>", max_nbytes.0)
}

/// In all three `fill` fills a buffer with random bytes that nobody can guess.
impl PrivateKey {
    /// Signs a file of an application version, by its MD5.
    ///
    /// # Errors
    /// [`KeyError`] when `md5` is no MD5 or the key does not sign.
    pub fn sign_file(&self, md5: &str, fill: &mut dyn FnMut(&mut [u8])) -> Result<String, KeyError> {
        self.sign_md5(md5, fill)
    }

    /// Signs the permission to upload a file of this name with at most this many bytes (BOINC:
    /// `xml_signature`).
    ///
    /// # Errors
    /// [`KeyError`] when the key does not sign.
    pub fn sign_upload(
        &self,
        name: &str,
        max_nbytes: Bytes,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<String, KeyError> {
        self.sign_md5(&md5_hex(upload_permission(name, max_nbytes).as_bytes()), fill)
    }

    /// Signs a project's new code-signing key with the one before it (BOINC: `code_sign_key_signature`).
    ///
    /// # Errors
    /// [`KeyError`] when the key does not sign.
    pub fn sign_key(&self, new_key: &str, fill: &mut dyn FnMut(&mut [u8])) -> Result<String, KeyError> {
        self.sign_md5(&md5_hex(new_key.trim().as_bytes()), fill)
    }
}

impl PublicKey {
    /// True if `signature` is the project's signature of a file with this MD5.
    pub fn verify_file(&self, md5: &str, signature: &str) -> bool {
        self.verify_md5(md5, signature)
    }

    /// True if `signature` permits the upload of a file of this name with at most this many bytes.
    pub fn verify_upload(&self, name: &str, max_nbytes: Bytes, signature: &str) -> bool {
        self.verify_md5(&md5_hex(upload_permission(name, max_nbytes).as_bytes()), signature)
    }

    /// True if this key says that `new_key` takes its place. A client that holds a key accepts another one
    /// only so.
    pub fn verify_key(&self, new_key: &str, signature: &str) -> bool {
        self.verify_md5(&md5_hex(new_key.trim().as_bytes()), signature)
    }
}

#[cfg(test)]
mod tests;
