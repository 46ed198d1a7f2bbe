//! Files that a project keeps compressed (BOINC: `gzipped_url`).

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use fallow_client::{TransferError, TransferErrorKind};
use fallow_domain::Bytes;

use super::local::failure;
use super::volume::VolumeWatch;

/// The most that a file of some size takes when it is compressed: gzip makes hardly longer what it cannot
/// make shorter.
pub(super) const fn packed_max(plain: u64) -> u64 {
    plain.saturating_add(plain / 1_000).saturating_add(64 * 1024)
}

/// Expands `packed` into `plain`, and gives what is longer than the limit the kind that is given with it. Of
/// bytes that cannot be expanded nothing stays; after a failure of this host `packed` does, for it says
/// nothing about its bytes.
pub(super) fn expand(
    packed: PathBuf,
    plain: PathBuf,
    (limit, excess): (u64, TransferErrorKind),
    keep_free: Bytes,
) -> impl FnOnce() -> Result<(), TransferError> {
    move || {
        let expanded = write(&packed, &plain, limit, keep_free);
        expanded.map_err(|fault| {
            let _ = fs::remove_file(&plain);
            let (kind, what) = match fault {
                Fault::Host(error) => return error,
                Fault::TooLong => (excess, format!("expands to more than {limit} bytes")),
                Fault::NoGzip(error) => {
                    (TransferErrorKind::WrongMd5, format!("not what gzip makes: {error}"))
                }
            };
            let _ = fs::remove_file(&packed);
            TransferError::new(kind, format!("{}: {what}", packed.display()))
        })
    }
}

/// Why a file is not expanded.
enum Fault {
    /// This host's trouble.
    Host(TransferError),
    TooLong,
    NoGzip(io::Error),
}

impl From<TransferError> for Fault {
    fn from(error: TransferError) -> Self {
        Self::Host(error)
    }
}

fn write(packed: &Path, plain: &Path, limit: u64, keep_free: Bytes) -> Result<(), Fault> {
    let source = fs::File::open(packed).map_err(failure("read", packed))?;
    let mut target = fs::File::create(plain).map_err(failure("create", plain))?;
    let source = flate2::read::MultiGzDecoder::new(io::BufReader::new(source));
    let mut unpacked = source.take(limit.saturating_add(1));
    let mut buffer = vec![0; 64 * 1024];
    let mut total = 0;
    let mut space = VolumeWatch::for_bytes(plain.parent().unwrap_or(plain), keep_free, None)?;
    loop {
        let read = match unpacked.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            // The system's error has a number, the decoder's has none.
            Err(error) if error.raw_os_error().is_some() => return Err(failure("read", packed)(error).into()),
            Err(error) => return Err(Fault::NoGzip(error)),
        };
        total += read as u64;
        if total > limit {
            return Err(Fault::TooLong);
        }
        space.note(read as u64)?;
        target.write_all(&buffer[..read]).map_err(failure("write", plain))?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_host_cannot_expand_now_is_kept_and_what_nobody_can_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (packed, plain) = (dir.path().join("packed"), dir.path().join("plain"));
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(&[7; 100_000]).unwrap();
        let whole = encoder.finish().unwrap();
        let run = |content: &[u8], limit| {
            fs::write(&packed, content).unwrap();
            let limits = (limit, TransferErrorKind::WrongSize);
            let error = expand(packed.clone(), plain.clone(), limits, Bytes(0))().unwrap_err();
            (error.kind, packed.exists(), plain.symlink_metadata().is_ok())
        };
        // A disk that is full for all that is written.
        std::os::unix::fs::symlink("/dev/full", &plain).unwrap();
        assert_eq!(run(&whole, 100_000), (TransferErrorKind::DiskFull, true, false));
        assert_eq!(run(&whole, 99_999), (TransferErrorKind::WrongSize, false, false));
        assert_eq!(run(&whole[..50], 100_000), (TransferErrorKind::WrongMd5, false, false));
    }
}
