//! One attempt at a download.
//!
//! Model: the bytes go to a file in `.partial/`, from where an earlier attempt stopped; what is there stays
//! there when the attempt fails in the middle. A complete file is verified as a whole, made durable, and only
//! then gets its name. A file that proves wrong is deleted, for going on from wrong bytes cannot make them
//! right. One that comes compressed is kept so until it is verified and has its name: what fails at this host
//! then is not fetched again.
//!
//! A file never takes more than the client allows it, whatever its server sends, and never the space that has
//! to stay free. What has to stop for want of space stays for a while, if its size is known; then it is
//! deleted, as it would keep others waiting for the space that it holds.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fallow_boinc::names;
use fallow_client::{Download, TransferError, TransferErrorKind};
use fallow_domain::Bytes;
use reqwest::StatusCode;
use reqwest::header::{CONTENT_ENCODING, CONTENT_RANGE};
use tokio::io::AsyncWriteExt;

use super::local::failure;
use super::notes::TransferLog;
use super::pace::Kind;
use super::unpack::{expand, packed_max};
use super::verify::check;
use super::volume::VolumeWatch;
use super::web::{Answer, HttpRequest, Web, refused};
use crate::dir::{DataDir, make_closed, packed_name};

/// So long what came of a file waits for space: a disk may be full for a moment only. Two that wait for each
/// other's space end by it.
const WAITS_FOR_SPACE: Duration = Duration::from_hours(1);

/// Gets, verifies and puts into its place one file. Returns its size.
pub(super) async fn download(
    web: &Web,
    dir: &DataDir,
    wanted: &Download,
    log: &TransferLog,
) -> Result<Bytes, TransferError> {
    let name = &wanted.file.name;
    if !names::is_file_name(name) {
        return Err(TransferError::new(
            TransferErrorKind::Permanent,
            format!("{name:?} is no name for a file"),
        ));
    }
    // BOINC: a size of 0 is none.
    let nbytes = wanted.nbytes.filter(|nbytes| nbytes.0 > 0).map(|nbytes| nbytes.0);
    let place = dir.project(&wanted.url).join(name);
    let partial = dir.partial(&wanted.url).join(name);
    dir.open_project(&wanted.url);
    make_closed(&dir.partial(&wanted.url)).map_err(failure("create", &partial))?;
    if let Ok(found) = fs::symlink_metadata(&place) {
        // An earlier life of the agent may have ended between the last step and the client's knowing of it.
        match blocking(check(wanted, &place)).await {
            Ok(size) => return Ok(size),
            // That says nothing about its bytes.
            Err(error) if is_local(&error) && found.is_file() => return Err(error),
            Err(_) => {}
        }
        fs::remove_file(&place).map_err(failure("replace", &place))?;
    }
    let limit = nbytes.unwrap_or(wanted.limit.0);
    let excess = match nbytes.is_none() && wanted.limited_by_host {
        true => TransferErrorKind::DiskFull,
        false => TransferErrorKind::WrongSize,
    };
    let keep_free = wanted.keep_free;
    let part = |to, nbytes, limit| Part { url: &wanted.from, to, nbytes, limit, excess, keep_free };
    let packed = dir.partial(&wanted.url).join(packed_name(name));
    if wanted.gzipped {
        if !fs::symlink_metadata(&packed).is_ok_and(|data| data.is_file()) {
            let coming = dir.partial(&wanted.url).join(format!("{name}.gzt"));
            fetch(web, &part(&coming, None, packed_max(limit)), log).await?;
            fs::rename(&coming, &packed).map_err(failure("rename to", &packed))?;
        }
        let expanded = blocking(expand(packed.clone(), partial.clone(), (limit, excess), keep_free)).await;
        expanded.inspect_err(|error| {
            if error.kind == TransferErrorKind::DiskFull && is_old(&packed) {
                let _ = fs::remove_file(&packed);
            }
        })?;
    } else {
        fetch(web, &part(&partial, nbytes, limit), log).await?;
    }
    let size = blocking(check(wanted, &partial)).await.inspect_err(|error| {
        // A local failure says nothing about the bytes.
        if !is_local(error) {
            let _ = fs::remove_file(&partial);
            let _ = fs::remove_file(&packed);
        }
    })?;
    // Last and not on another thread: a cancelled download must not appear after its cancellation.
    fs::rename(&partial, &place).map_err(failure("rename to", &place))?;
    let _ = fs::remove_file(&packed);
    Ok(size)
}

fn is_local(error: &TransferError) -> bool {
    matches!(error.kind, TransferErrorKind::LocalFile | TransferErrorKind::DiskFull)
}

/// What is to be fetched, and how much of it at the most.
struct Part<'a> {
    url: &'a str,
    to: &'a Path,
    /// Its size, if that is known.
    nbytes: Option<u64>,
    limit: u64,
    /// What more than that is.
    excess: TransferErrorKind,
    keep_free: Bytes,
}

impl Part<'_> {
    fn too_long(&self, place: &str) -> TransferError {
        let why = match self.nbytes {
            Some(nbytes) => format!("the {nbytes} bytes that the project announced"),
            None if self.excess == TransferErrorKind::DiskFull => {
                format!("the {} bytes that it may have on this host", self.limit)
            }
            None => format!("the {} bytes that it may have by what the project says", self.limit),
        };
        TransferError::new(self.excess, format!("{place}: more than {why}"))
    }
    /// Where to the file goes.
    fn dir(&self) -> PathBuf {
        self.to.parent().unwrap_or(self.to).to_path_buf()
    }
    /// A file that is compressed already is not compressed for the way (the stock client's rule, by its
    /// name).
    fn may_encode(&self) -> bool {
        let name = self.to.to_string_lossy();
        ![".gz", ".gzt", ".tgz"].iter().any(|end| name.ends_with(end))
    }
}

/// Gets bytes into a file, from where it ends on.
async fn fetch(web: &Web, part: &Part<'_>, log: &TransferLog) -> Result<(), TransferError> {
    let fetched = fetch_rest(web, part, log).await;
    fetched.inspect_err(|error| {
        let is_useless = match error.kind {
            TransferErrorKind::WrongSize => true,
            TransferErrorKind::DiskFull => part.nbytes.is_none() || is_old(part.to),
            _ => false,
        };
        if is_useless {
            let _ = fs::remove_file(part.to);
        }
    })
}

/// Whether nothing has come to a file for [`WAITS_FOR_SPACE`].
fn is_old(path: &Path) -> bool {
    let modified = fs::metadata(path).and_then(|data| data.modified()).ok();
    modified.and_then(|at| at.elapsed().ok()).is_some_and(|age| age >= WAITS_FOR_SPACE)
}

async fn fetch_rest(web: &Web, part: &Part<'_>, log: &TransferLog) -> Result<(), TransferError> {
    let Part { url, to, nbytes, limit, .. } = *part;
    let mut have = fs::metadata(to).map_or(0, |data| data.len());
    if nbytes.is_some_and(|nbytes| have == nbytes) && have > 0 {
        return Ok(());
    }
    if have > limit {
        have = 0;
    }
    let dir = part.dir();
    VolumeWatch::for_bytes(&dir, part.keep_free, nbytes.map(|nbytes| nbytes - have))?;
    let request = |from| HttpRequest {
        url,
        kind: Kind::File,
        from,
        may_encode: from == 0 && part.may_encode(),
        content: None,
        log,
    };
    let mut answer = web.send(&request(have)).await?;
    if answer.status() == StatusCode::RANGE_NOT_SATISFIABLE && have > 0 {
        // The file is not as long as what we have of it, so what we have is of another file. BOINC gives up
        // here.
        have = 0;
        answer = web.send(&request(0)).await?;
    }
    match answer.status() {
        StatusCode::PARTIAL_CONTENT if starts_at(&answer, have) && !is_encoded(&answer) => {}
        StatusCode::PARTIAL_CONTENT => {
            let _ = fs::remove_file(to);
            return Err(TransferError::new(
                TransferErrorKind::Transient,
                format!("{url}: the server answered with another byte range than the one requested"),
            ));
        }
        // The whole file, asked for or not.
        status if status.is_success() => have = 0,
        status => return Err(refused(&answer.place, status)),
    }
    if answer.length().is_some_and(|length| length > limit - have) {
        return Err(part.too_long(&answer.place));
    }
    let space = VolumeWatch::for_bytes(&dir, part.keep_free, answer.length())?;
    let mut file = tokio::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(have == 0)
        .open(to)
        .await
        .map_err(failure("open", to))?;
    tokio::io::AsyncSeekExt::seek(&mut file, io::SeekFrom::Start(have))
        .await
        .map_err(failure("write", to))?;
    let copied = copy(&mut answer, &mut file, part, have, space).await;
    // Also after a failure: what came is kept for the next attempt.
    file.flush().await.map_err(failure("write", to))?;
    copied
}

fn starts_at(answer: &Answer<'_>, have: u64) -> bool {
    let range = answer.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
    range.and_then(|range| range.trim().strip_prefix("bytes ")?.split_once('-')?.0.trim().parse().ok())
        == Some(have)
}

/// A part of what was compressed for the way cannot be appended to what was expanded.
fn is_encoded(answer: &Answer<'_>) -> bool {
    answer.headers().get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity")
}

async fn copy(
    answer: &mut Answer<'_>,
    file: &mut tokio::fs::File,
    part: &Part<'_>,
    have: u64,
    mut space: VolumeWatch<'_>,
) -> Result<(), TransferError> {
    let mut size = have;
    while let Some(bytes) = answer.chunk().await? {
        size += bytes.len() as u64;
        if size > part.limit {
            return Err(part.too_long(&answer.place));
        }
        space.note(bytes.len() as u64)?;
        file.write_all(&bytes).await.map_err(failure("write", part.to))?;
    }
    Ok(())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TransferError> + Send + 'static,
) -> Result<T, TransferError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(TransferError::new(TransferErrorKind::LocalFile, format!("a worker thread failed: {error}")))
    })
}
