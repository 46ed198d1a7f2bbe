//! Local failures of a transfer, in the client's terms.

use std::io;
use std::path::Path;

use fallow_client::{TransferError, TransferErrorKind};

/// A failure to `action` the file at `path`.
pub(super) fn failure(action: &'static str, path: &Path) -> impl Fn(io::Error) -> TransferError {
    move |error| {
        let kind = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => TransferErrorKind::DiskFull,
            _ => TransferErrorKind::LocalFile,
        };
        TransferError::new(kind, format!("cannot {action} {}: {error}", path.display()))
    }
}
