//! A project's keys: made once, kept in files that only this user can read.
//!
//! Four files: `code_sign_private`, `code_sign_public`, `upload_private`, `upload_public`; public keys in
//! BOINC's text form, private ones in PEM.
//!
//! **Who can read `code_sign_private` can run programs on every attached host.** A production lab keeps that
//! file on another machine and gives only the public key here (`fallow project create --code-sign-key`); then
//! versions of applications come with their signatures, and everything else is as ever.

use std::fs;
use std::path::{Path, PathBuf};

use fallow_boinc::signature::{PrivateKey, PublicKey};
use fallow_domain::{Bytes, KeyFingerprint};
use rand::Rng;

use super::error::ProjectError;
use super::layout::{close, write_whole};
use super::random::generator;

/// The keys of one project.
#[derive(Debug)]
pub(crate) struct SigningKeys {
    code_sign: Option<PrivateKey>,
    code_sign_path: PathBuf,
    code_sign_public: PublicKey,
    /// The same in the form that clients hold.
    code_sign_text: String,
    upload: PrivateKey,
    upload_public: PublicKey,
}

impl SigningKeys {
    /// Opens the keys in `dir`, making those that were never made: of a code-signing key that is kept
    /// elsewhere the public part alone.
    pub(crate) fn open_or_create(dir: &Path, elsewhere: Option<&PublicKey>) -> Result<Self, ProjectError> {
        if let Some(key) = elsewhere {
            let path = dir.join("code_sign_public");
            let has_private = dir.join("code_sign_private").exists();
            if !path.exists() && !has_private {
                write_whole(&path, format!("{}\n", key.to_text()).as_bytes(), 0o644)?;
            }
            if has_private || public(&path, None)? != *key {
                let text =
                    "an earlier attempt to make this project left another key: remove its directory first";
                return Err(bad(&path)(std::io::Error::new(std::io::ErrorKind::AlreadyExists, text)));
            }
        }
        if elsewhere.is_none()
            && dir.join("code_sign_public").exists()
            && !dir.join("code_sign_private").exists()
        {
            let text = "an earlier attempt to make this project named a key that is kept elsewhere: name it again, or remove its directory";
            let path = dir.join("code_sign_public");
            return Err(bad(&path)(std::io::Error::new(std::io::ErrorKind::AlreadyExists, text)));
        }
        for kind in ["code_sign", "upload"] {
            let (private, public) = (dir.join(format!("{kind}_private")), dir.join(format!("{kind}_public")));
            // The public key is written last: if it is there, the pair was whole once, and its loss is not
            // repaired by another pair.
            if !public.exists() {
                let mut random = generator()?;
                let key =
                    PrivateKey::generate(&mut |bytes| random.fill_bytes(bytes)).map_err(bad(&private))?;
                write_whole(&private, key.to_pem().map_err(bad(&private))?.as_bytes(), 0o600)?;
                write_whole(&public, format!("{}\n", key.public_key().to_text()).as_bytes(), 0o644)?;
            }
        }
        Self::open(dir)
    }

    /// Opens the keys in `dir`. A public key must be that of its private one: clients hold the one and check
    /// with it what is signed with the other.
    pub(crate) fn open(dir: &Path) -> Result<Self, ProjectError> {
        let code_sign_path = dir.join("code_sign_private");
        let code_sign = if code_sign_path.exists() { Some(private(&code_sign_path)?) } else { None };
        let code_sign_public = public(&dir.join("code_sign_public"), code_sign.as_ref())?;
        let upload = private(&dir.join("upload_private"))?;
        let upload_public = public(&dir.join("upload_public"), Some(&upload))?;
        Ok(Self {
            code_sign,
            code_sign_path,
            code_sign_text: code_sign_public.to_text(),
            code_sign_public,
            upload,
            upload_public,
        })
    }

    /// The code-signing key in the form that clients hold.
    pub(crate) fn code_sign_public(&self) -> &str {
        &self.code_sign_text
    }

    /// Its name in documents.
    pub(crate) fn code_sign_fingerprint(&self) -> KeyFingerprint {
        self.code_sign_public.fingerprint()
    }

    /// Whether files of applications can be signed here.
    pub(crate) const fn signs_files(&self) -> bool {
        self.code_sign.is_some()
    }

    /// The signature of a file of an application with this MD5: the one that is given, if it is right, else a
    /// new one. `name` is the file's, for who is told of it.
    pub(crate) fn signature(&self, name: &str, md5: &str, given: &str) -> Result<String, ProjectError> {
        let fingerprint = self.code_sign_fingerprint();
        if !given.is_empty() {
            let is_right = self.code_sign_public.verify_file(md5, given);
            let wrong = || ProjectError::WrongSignature { file: name.to_owned(), fingerprint };
            return is_right.then(|| given.to_owned()).ok_or_else(wrong);
        }
        let key = self.code_sign.as_ref().ok_or(ProjectError::KeyElsewhere { fingerprint })?;
        let mut random = generator()?;
        key.sign_file(md5, &mut |bytes| random.fill_bytes(bytes)).map_err(bad(&self.code_sign_path))
    }

    /// Permits the upload of a file of at most this size.
    pub(crate) fn sign_upload(&self, name: &str, max: Bytes) -> Result<String, ProjectError> {
        let mut random = generator()?;
        let fill = &mut |bytes: &mut [u8]| random.fill_bytes(bytes);
        self.upload.sign_upload(name, max, fill).map_err(bad(&self.code_sign_path))
    }

    /// Whether that permission is this project's.
    pub(crate) fn permits_upload(&self, name: &str, max: Bytes, signature: &str) -> bool {
        self.upload_public.verify_upload(name, max, signature)
    }
}

fn private(path: &Path) -> Result<PrivateKey, ProjectError> {
    let text = text(path)?;
    close(path)?;
    PrivateKey::from_pem(&text).map_err(bad(path))
}

fn public(path: &Path, private: Option<&PrivateKey>) -> Result<PublicKey, ProjectError> {
    let key = PublicKey::parse(&text(path)?).map_err(bad(path))?;
    if private.is_some_and(|private| private.public_key() != key) {
        let other = std::io::Error::new(std::io::ErrorKind::InvalidData, "it belongs to another private key");
        return Err(bad(path)(other));
    }
    Ok(key)
}

/// A key file's text. One that is gone or holds no text is a lost key; one that may not be read is not.
fn text(path: &Path) -> Result<String, ProjectError> {
    use std::io::ErrorKind::{InvalidData, IsADirectory, NotFound};
    fs::read_to_string(path).map_err(|error| match error.kind() {
        NotFound | InvalidData | IsADirectory => bad(path)(error),
        _ => ProjectError::file("read", path)(error),
    })
}

fn bad<E>(path: &Path) -> impl FnOnce(E) -> ProjectError
where
    E: std::error::Error + Send + Sync + 'static,
{
    let path = path.to_path_buf();
    move |source| ProjectError::Key { path, source: Box::new(source) }
}
