//! The operator's token: made at first start, readable by its owner only, checked with every call (R6.10).

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use fallow_daemon::file;
use fallow_work_server::connections::ConnectionHandle;
use tonic::service::Interceptor;
use tonic::{Request, Status};

use crate::secret::{self, NoRandomness, SecretHash};

/// Metadata key under which a tool says for whom it acts: for the audit record, not for any right.
pub const AUTHOR: &str = "fallow-operator";

/// Connections that operators' tools can keep at once; further ones are served as long as there are places.
const CALLS: usize = 256;

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
        "{0} does not hold an operator's token, 64 hexadecimal digits: restore it, or delete it and the next start of the coordinator makes a new one"
    )]
    NoToken(PathBuf),
    /// No secret could be made.
    #[error(transparent)]
    Random(#[from] NoRandomness),
}

/// The file that holds the token.
#[derive(Debug)]
pub struct TokenFile;

impl TokenFile {
    /// The token in `path`, which is made with mode 0600 if there is none.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn open_or_create(path: &Path) -> Result<String, TokenError> {
        if path.exists() {
            let token = Self::read(path)?;
            let fail = |source| TokenError::File { action: "close", path: path.to_path_buf(), source };
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(fail)?;
            return Ok(token);
        }
        let fail = |source| TokenError::File { action: "make", path: path.to_path_buf(), source };
        let token = secret::generate()?;
        file::write_whole(path, format!("{token}\n").as_bytes(), 0o600).map_err(fail)?;
        Ok(token)
    }

    /// The token in `path`.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn read(path: &Path) -> Result<String, TokenError> {
        let fail = |source| TokenError::File { action: "read", path: path.to_path_buf(), source };
        let mut bytes = Vec::new();
        File::open(path).map_err(fail)?.take(1_024).read_to_end(&mut bytes).map_err(fail)?;
        let token = std::str::from_utf8(&bytes).unwrap_or_default().trim();
        match SecretHash::from_hex(token) {
            Some(_) => Ok(token.to_owned()),
            None => Err(TokenError::NoToken(path.to_path_buf())),
        }
    }
}

/// Lets only calls with the token through.
#[derive(Clone, Debug)]
pub struct Authorised(SecretHash);

impl Authorised {
    /// For this token.
    #[must_use]
    pub fn new(token: &str) -> Self {
        Self(SecretHash::of(token))
    }
}

impl Interceptor for Authorised {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let given = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
        let token = given.and_then(|value| value.strip_prefix("Bearer "));
        match token {
            Some(token) if self.0.admits(token.trim()) => {
                if let Some(guest) = request.extensions().get::<ConnectionHandle>() {
                    guest.authenticated_as_operator(CALLS);
                }
                Ok(request)
            }
            Some(_) => Err(Status::permission_denied(
                "the operator's token is another coordinator's, or an old one: the right one is in operator.token in this coordinator's directory; name that file with --operator-token-file, or the directory with --dir",
            )),
            None => Err(Status::unauthenticated(
                "the call carries no operator's token (authorization: Bearer TOKEN)",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_made_once_and_readable_by_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("operator.token");
        let token = TokenFile::open_or_create(&path).unwrap();
        assert_eq!(TokenFile::open_or_create(&path).unwrap(), token);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        TokenFile::open_or_create(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_file_that_holds_no_token_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("operator.token");
        std::fs::write(&path, "hello").unwrap();
        let text = TokenFile::read(&path).unwrap_err().to_string();
        assert!(text.contains("operator.token does not hold"), "{text}");
        assert!(TokenFile::read(&dir.path().join("none")).unwrap_err().to_string().contains("cannot read"));
    }

    /// Shows R6.10.
    #[test]
    fn a_call_without_the_token_is_refused() {
        let mut check = Authorised::new("right");
        let with = |value: &str| {
            let mut request = Request::new(());
            request.metadata_mut().insert("authorization", value.parse().unwrap());
            request
        };
        assert!(check.call(with("Bearer right")).is_ok());
        assert_eq!(check.call(with("Bearer wrong")).unwrap_err().code(), tonic::Code::PermissionDenied);
        for bad in [with("right"), Request::new(())] {
            assert_eq!(check.call(bad).unwrap_err().code(), tonic::Code::Unauthenticated);
        }
    }
}
