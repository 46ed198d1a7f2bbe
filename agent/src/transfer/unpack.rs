//! Files that a project keeps compressed (BOINC: `gzipped_url`).

use std::fs;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use fallow_client::{TransferError, TransferErrorKind};
use fallow_domain::Bytes;

use super::local::failure;
use super::space::Space;

/// The most that a file of some size takes when it is compressed: gzip makes hardly longer what it cannot make shorter.
pub(super) const fn packed_max(plain: u64) -> u64 {
    plain.saturating_add(plain / 1_000).saturating_add(64 * 1024)
}

/// Expands `packed` into `plain` and deletes it. With the limit goes what more than that is.
pub(super) fn expand(
    packed: PathBuf,
    plain: PathBuf,
    (limit, excess): (u64, TransferErrorKind),
    keep_free: Bytes,
) -> impl FnOnce() -> Result<(), TransferError> {
    move || {
        let source = fs::File::open(&packed).map_err(failure("read", &packed))?;
        let mut target = fs::File::create(&plain).map_err(failure("create", &plain))?;
        let mut unpacked =
            flate2::read::MultiGzDecoder::new(io::BufReader::new(source)).take(limit.saturating_add(1));
        let mut buffer = vec![0; 64 * 1024];
        let mut total = 0;
        let dir = plain.parent().unwrap_or(&plain);
        let mut space = Space::for_bytes(dir, keep_free, None)?;
        let result = loop {
            match unpacked.read(&mut buffer) {
                Ok(0) => break Ok(()),
                Ok(read) => {
                    total += read as u64;
                    if total > limit {
                        let what = format!("{}: expands to more than {limit} bytes", packed.display());
                        break Err(TransferError::new(excess, what));
                    }
                    let written = space.note(read as u64);
                    let written = written
                        .and_then(|()| target.write_all(&buffer[..read]).map_err(failure("write", &plain)));
                    if let Err(error) = written {
                        break Err(error);
                    }
                }
                Err(error) => {
                    let what = format!("{}: not what gzip makes: {error}", packed.display());
                    break Err(TransferError::new(TransferErrorKind::WrongMd5, what));
                }
            }
        };
        let _ = fs::remove_file(&packed);
        if result.is_err() {
            let _ = fs::remove_file(&plain);
        }
        result
    }
}
