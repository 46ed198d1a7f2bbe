//! One attempt at a download.
//!
//! Model: the bytes go to a file in `.partial/`, from where an earlier attempt stopped; what is there stays there when
//! the attempt fails in the middle. A complete file is verified as a whole, made durable, and only then gets its name.
//! A file that proves wrong is deleted, for going on from wrong bytes cannot make them right.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use fallow_boinc::names;
use fallow_boinc::signature::PublicKey;
use fallow_client::{Download, TransferError, TransferErrorKind};
use fallow_domain::Bytes;
use reqwest::StatusCode;
use reqwest::header::{CONTENT_RANGE, RANGE};
use tokio::io::AsyncWriteExt;

use super::local::failure;
use super::web::{Pace, STALL, Web, answer, chunk, refused};
use crate::dir::DataDir;
use crate::files::md5_of;

/// The most that a compressed file of unknown size may become.
const EXPANDED_MAX: u64 = 16 << 30;

/// Gets, verifies and puts into its place one file. Returns its size.
pub(super) async fn download(web: &Web, dir: &DataDir, wanted: &Download) -> Result<Bytes, TransferError> {
    let name = &wanted.file.name;
    if !names::is_file_name(name) {
        return Err(TransferError::new(
            TransferErrorKind::Permanent,
            format!("{name:?} is no name for a file"),
        ));
    }
    // BOINC: a size of 0 is none.
    let nbytes = wanted.nbytes.filter(|nbytes| nbytes.0 > 0);
    let place = dir.project(&wanted.url).join(name);
    let partial = dir.partial(&wanted.url).join(name);
    fs::create_dir_all(dir.partial(&wanted.url)).map_err(failure("create", &partial))?;
    if fs::symlink_metadata(&place).is_ok() {
        // An earlier life of the agent may have ended between the last step and the client's knowing of it.
        if let Ok(size) = blocking(check(wanted, &place)).await {
            return Ok(size);
        }
        fs::remove_file(&place).map_err(failure("replace", &place))?;
    }
    if wanted.gzipped {
        let packed = dir.partial(&wanted.url).join(format!("{name}.gzt"));
        fetch(web, &wanted.from, &packed, None).await?;
        let limit = nbytes.map_or(EXPANDED_MAX, |nbytes| nbytes.0);
        blocking(expand(packed, partial.clone(), limit)).await?;
    } else {
        fetch(web, &wanted.from, &partial, nbytes).await?;
    }
    let size = blocking(check(wanted, &partial)).await.inspect_err(|error| {
        // A local failure says nothing about the bytes.
        if !matches!(error.kind, TransferErrorKind::LocalFile | TransferErrorKind::DiskFull) {
            let _ = fs::remove_file(&partial);
        }
    })?;
    // Last and not on another thread: a cancelled download must not appear after its cancellation.
    fs::rename(&partial, &place).map_err(failure("rename to", &place))?;
    Ok(size)
}

/// Gets bytes into `partial`, from where it ends on.
async fn fetch(web: &Web, url: &str, partial: &Path, nbytes: Option<Bytes>) -> Result<(), TransferError> {
    let mut have = fs::metadata(partial).map_or(0, |data| data.len());
    match nbytes {
        Some(nbytes) if have == nbytes.0 && have > 0 => return Ok(()),
        Some(nbytes) if have > nbytes.0 => have = 0,
        _ => {}
    }
    let mut response = answer(with_range(web, url, have)?, url, STALL).await?;
    if response.status() == StatusCode::RANGE_NOT_SATISFIABLE && have > 0 {
        // The file is not as long as what we have of it, so what we have is of another file. BOINC gives up here.
        have = 0;
        response = answer(with_range(web, url, 0)?, url, STALL).await?;
    }
    match response.status() {
        StatusCode::PARTIAL_CONTENT if starts_at(&response, have) => {}
        StatusCode::PARTIAL_CONTENT => {
            let _ = fs::remove_file(partial);
            return Err(TransferError::new(
                TransferErrorKind::Transient,
                format!("{url}: another range than asked for"),
            ));
        }
        // The whole file, asked for or not.
        status if status.is_success() => have = 0,
        status => return Err(refused(url, status)),
    }
    let mut file = tokio::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(have == 0)
        .open(partial)
        .await
        .map_err(failure("open", partial))?;
    tokio::io::AsyncSeekExt::seek(&mut file, io::SeekFrom::Start(have))
        .await
        .map_err(failure("write", partial))?;
    let copied =
        copy(&mut response, &mut file, url, partial, nbytes.map(|nbytes| nbytes.0.saturating_sub(have)))
            .await;
    // Also after a failure: what came is kept for the next attempt.
    file.flush().await.map_err(failure("write", partial))?;
    copied.inspect_err(|error| {
        if error.kind == TransferErrorKind::WrongSize {
            let _ = fs::remove_file(partial);
        }
    })
}

fn with_range(web: &Web, url: &str, from: u64) -> Result<reqwest::RequestBuilder, TransferError> {
    let request = web.get(url)?;
    Ok(if from > 0 { request.header(RANGE, format!("bytes={from}-")) } else { request })
}

fn starts_at(response: &reqwest::Response, have: u64) -> bool {
    let range = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
    range.and_then(|range| range.trim().strip_prefix("bytes ")?.split_once('-')?.0.trim().parse().ok())
        == Some(have)
}

async fn copy(
    response: &mut reqwest::Response,
    file: &mut tokio::fs::File,
    url: &str,
    partial: &Path,
    limit: Option<u64>,
) -> Result<(), TransferError> {
    let (mut got, mut pace) = (0, Pace::new(tokio::time::Instant::now()));
    while let Some(bytes) = chunk(response, url, &mut pace).await? {
        got += bytes.len() as u64;
        if let Some(limit) = limit.filter(|&limit| got > limit) {
            let what = format!("{url}: more than the {limit} bytes that the project announced");
            return Err(TransferError::new(TransferErrorKind::WrongSize, what));
        }
        file.write_all(&bytes).await.map_err(failure("write", partial))?;
    }
    Ok(())
}

/// Expands `packed` into `plain` and deletes it.
fn expand(packed: PathBuf, plain: PathBuf, limit: u64) -> impl FnOnce() -> Result<(), TransferError> {
    move || {
        let source = fs::File::open(&packed).map_err(failure("read", &packed))?;
        let mut target = fs::File::create(&plain).map_err(failure("create", &plain))?;
        let mut unpacked =
            flate2::read::MultiGzDecoder::new(io::BufReader::new(source)).take(limit.saturating_add(1));
        let mut buffer = vec![0; 64 * 1024];
        let mut total = 0;
        let result = loop {
            match unpacked.read(&mut buffer) {
                Ok(0) => break Ok(()),
                Ok(read) => {
                    total += read as u64;
                    if total > limit {
                        let what = format!("{}: expands to more than {limit} bytes", packed.display());
                        break Err(TransferError::new(TransferErrorKind::WrongSize, what));
                    }
                    target.write_all(&buffer[..read]).map_err(failure("write", &plain))?;
                }
                Err(error) => {
                    let what = format!("{}: not what gzip makes: {error}", packed.display());
                    break Err(TransferError::new(TransferErrorKind::WrongMd5, what));
                }
            }
        };
        let _ = fs::remove_file(&packed);
        result
    }
}

/// Looks whether the file is the wanted one, makes it executable if asked, and puts it on the disk for good.
fn check(wanted: &Download, path: &Path) -> impl FnOnce() -> Result<Bytes, TransferError> + Send + 'static {
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

/// The size if it is known; then the signature, or the MD5 where none is needed (BOINC compares no MD5 of signed files).
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
                "the project gave no signature of this application file".into(),
            );
        }
        return match PublicKey::parse(&required.key) {
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

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TransferError> + Send + 'static,
) -> Result<T, TransferError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(TransferError::new(TransferErrorKind::LocalFile, format!("a worker thread failed: {error}")))
    })
}
