//! Whether a file that came is the wanted one.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use fallow_boinc::signature::PublicKey;
use fallow_client::{Download, TransferError, TransferErrorKind};
use fallow_domain::Bytes;

use super::local::failure;
use crate::files::md5_of;

/// Looks whether the file is the wanted one, makes it executable if asked, and puts it on the disk for good.
pub(super) fn check(
    wanted: &Download,
    path: &Path,
) -> impl FnOnce() -> Result<Bytes, TransferError> + Send + 'static {
    let (wanted, path) = (wanted.clone(), path.to_path_buf());
    move || {
        let (md5, size) = md5_of(&path).map_err(failure("read", &path))?;
        is_right(&wanted, &md5, size)?;
        let mode = if wanted.executable { 0o755 } else { 0o644 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))
            .map_err(failure("set the mode of", &path))?;
        fs::File::open(&path).and_then(|file| file.sync_all()).map_err(failure("sync", &path))?;
        Ok(size)
    }
}

/// The size if it is known; then the signature, or the MD5 where none is needed (BOINC compares no MD5 of
/// signed files).
fn is_right(wanted: &Download, md5: &str, size: Bytes) -> Result<(), TransferError> {
    let name = &wanted.file.name;
    let wrong =
        |kind, what: String| Err(TransferError::new(kind, format!("{name} from {}: {what}", wanted.from)));
    if let Some(nbytes) = wanted.nbytes.filter(|&nbytes| nbytes != size && nbytes.0 != 0) {
        return wrong(TransferErrorKind::WrongSize, format!("{} bytes instead of {}", size.0, nbytes.0));
    }
    if let Some(required) = &wanted.signature {
        if required.signature.trim().is_empty() {
            return wrong(
                TransferErrorKind::WrongSignature,
                "it has to be signed, and its project gave no signature of it".into(),
            );
        }
        return match PublicKey::parse(&required.key) {
            Err(_) if required.key.trim().is_empty() => {
                let text =
                    "it has to be signed, and the project has shown no code-signing key that may sign it";
                wrong(TransferErrorKind::WrongSignature, text.to_owned())
            }
            Err(error) => wrong(TransferErrorKind::WrongSignature, format!("the project's key: {error}")),
            Ok(key) if key.verify_file(md5, &required.signature) => Ok(()),
            Ok(_) => wrong(TransferErrorKind::WrongSignature, "the signature is not this file's".into()),
        };
    }
    match &wanted.md5 {
        Some(expected) if !expected.eq_ignore_ascii_case(md5) => {
            wrong(TransferErrorKind::WrongMd5, format!("MD5 {md5} instead of {expected}"))
        }
        _ => Ok(()),
    }
}
