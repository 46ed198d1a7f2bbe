//! The coordinator's own operator's token: made at first start, readable by its owner only (R6.10). Whoever
//! can read it is an administrator.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use fallow_daemon::file;
use fallow_tls::{AccessString, AccessStringError, Purpose};

use crate::secret::{self, NoRandomness, SecretHash};

/// Metadata key under which a tool with the coordinator's own token says for whom it acts: for the audit
/// record, not for any right. Of operators with tokens of their own it is not read.
pub const AUTHOR: &str = "fallow-operator";

/// The token file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It cannot be read or made.
    #[error("cannot {action} the operator's token in {path}: check its owner and mode")]
    File {
        /// What was being done.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// It holds something else.
    #[error(
        "{path} does not hold an operator's token: restore it, or delete it and the next start of the coordinator makes a new one"
    )]
    NoToken {
        /// The file.
        path: PathBuf,
        /// What it holds.
        #[source]
        source: AccessStringError,
    },
    /// No secret could be made.
    #[error(transparent)]
    Random(#[from] NoRandomness),
}

/// The file that holds the token.
#[derive(Debug)]
pub struct TokenFile;

impl TokenFile {
    /// The secret in the token in `path`; a new one if there is no file. One that an earlier version wrote is
    /// the secret alone.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn secret(path: &Path) -> Result<String, TokenError> {
        let text = match Self::text(path) {
            Ok(text) => text,
            Err(TokenError::File { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Ok(secret::generate()?);
            }
            Err(error) => return Err(error),
        };
        if SecretHash::from_hex(&text).is_some() {
            return Ok(text);
        }
        let read = AccessString::parse(&text, Purpose::Operator);
        read.map(|access| access.secret)
            .map_err(|source| TokenError::NoToken { path: path.to_path_buf(), source })
    }

    /// Writes the token, readable by its owner only.
    ///
    /// # Errors
    /// [`TokenError::File`].
    pub fn write(path: &Path, access: &AccessString) -> Result<(), TokenError> {
        let fail = |source| TokenError::File { action: "write", path: path.to_path_buf(), source };
        let line = format!("{}\n", access.reveal());
        if std::fs::read(path).is_ok_and(|held| held == line.as_bytes()) {
            return std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(fail);
        }
        file::write_whole(path, line.as_bytes(), 0o600).map_err(fail)
    }

    /// The token in `path`.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn read(path: &Path) -> Result<AccessString, TokenError> {
        AccessString::parse(&Self::text(path)?, Purpose::Operator)
            .map_err(|source| TokenError::NoToken { path: path.to_path_buf(), source })
    }

    fn text(path: &Path) -> Result<String, TokenError> {
        let fail = |source| TokenError::File { action: "read", path: path.to_path_buf(), source };
        // A pipe is not waited for when it is opened, nor a device read.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = File::options().read(true).custom_flags(flags).open(path).map_err(fail)?;
        if !file.metadata().map_err(fail)?.is_file() {
            let what = "it is a pipe, a device or a directory: put the token into a file";
            return Err(fail(std::io::Error::new(std::io::ErrorKind::InvalidInput, what)));
        }
        let mut bytes = Vec::new();
        file.take(8_192).read_to_end(&mut bytes).map_err(fail)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(secret: &str) -> AccessString {
        AccessString {
            purpose: Purpose::Operator,
            addresses: vec!["127.0.0.1:4000".parse().unwrap()],
            authority: fallow_tls::Fingerprint::of(b"authority"),
            secret: secret.to_owned(),
            organisation: Vec::new(),
        }
    }

    #[test]
    fn r6_10_the_secret_is_made_once_and_its_file_is_for_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("operator.token");
        let made = access(&TokenFile::secret(&path).unwrap());
        TokenFile::write(&path, &made).unwrap();
        assert_eq!(TokenFile::secret(&path).unwrap(), made.secret);
        assert_eq!(TokenFile::read(&path).unwrap(), made);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        TokenFile::write(&path, &made).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn r6_10_a_pipe_or_a_device_in_place_of_a_token_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [&pipe, Path::new("/dev/zero"), dir.path()] {
            let Err(TokenError::File { source, .. }) = TokenFile::read(path) else { panic!("{path:?}") };
            assert!(source.to_string().contains("put the token into a file"), "{source}");
        }
    }

    #[test]
    fn a_token_of_an_earlier_version_keeps_its_secret() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("operator.token");
        let secret = secret::generate().unwrap();
        std::fs::write(&path, format!("{secret}\n")).unwrap();
        assert_eq!(TokenFile::secret(&path).unwrap(), secret);
    }

    #[test]
    fn a_file_that_holds_no_token_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("operator.token");
        std::fs::write(&path, "hello").unwrap();
        for text in [
            TokenFile::read(&path).unwrap_err().to_string(),
            TokenFile::secret(&path).unwrap_err().to_string(),
        ] {
            assert!(text.contains("operator.token does not hold"), "{text}");
        }
        assert!(TokenFile::read(&dir.path().join("none")).unwrap_err().to_string().contains("cannot read"));
    }
}
