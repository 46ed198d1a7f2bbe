//! One attempt at an upload.

use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fallow_boinc::names;
use fallow_boinc::scheduler::ClientVersion;
use fallow_boinc::transfer::{DataServerReply, UploadHeader, UploadRequest, UploadStatus};
use fallow_client::{TransferError, TransferErrorKind, Upload};
use fallow_domain::Bytes;
use futures_util::StreamExt;
use reqwest::Body;
use tokio::io::AsyncReadExt;
use tokio_util::io::ReaderStream;

use super::local::failure;
use super::notes::TransferLog;
use super::pace::Kind;
use super::rate::Rate;
use super::web::{Content, HttpRequest, Web};
use crate::dir::DataDir;
use crate::files::{is_its_own, open_own};

/// From this size on the server is asked first how much it has (BOINC's figure).
const ASK_FROM: u64 = 8192;
/// Longest answer of an upload handler.
const ANSWER_MAX: usize = 64 * 1024;

/// Sends one file, from where the server says that it stopped.
pub(super) async fn upload(
    web: &Web,
    dir: &DataDir,
    wanted: &Upload,
    version: ClientVersion,
    log: &TransferLog,
) -> Result<(), TransferError> {
    let name = &wanted.file.name;
    if !names::is_file_name(name) {
        return Err(TransferError::new(
            TransferErrorKind::Permanent,
            format!("{name:?} is no name for a file"),
        ));
    }
    dir.open_project(&wanted.url);
    let mut offset = 0;
    if wanted.nbytes.0 >= ASK_FROM && wanted.nbytes > wanted.stale {
        let question = UploadRequest::FileSize { client_version: version, name: name.clone() };
        let answer = post(web, &wanted.to, Kind::Call, &bytes::Bytes::from(question.write()), log).await?;
        let there = succeeded(&wanted.to, answer)?.file_size.unwrap_or_default();
        // If the server has more than an earlier version of the file could have left there, what it has is
        // the beginning of the present version. Otherwise the upload begins anew.
        offset = if there > wanted.stale { there.0 } else { 0 };
        if offset >= wanted.nbytes.0 {
            return Ok(());
        }
    }
    let header = UploadHeader {
        client_version: version,
        name: name.clone(),
        xml_signature: wanted.xml_signature.clone(),
        max_nbytes: Bytes::from_f64(wanted.max_nbytes),
        nbytes: wanted.nbytes,
        md5_cksum: wanted.md5.clone(),
        offset: Bytes(offset),
    };
    let content = Rest {
        path: dir.project(&wanted.url).join(name),
        nbytes: wanted.nbytes.0,
        offset,
        head: UploadRequest::Upload(header).write().into(),
        gone: Arc::default(),
        rate: Arc::clone(&web.rates().up),
    };
    let answer = post(web, &wanted.to, Kind::File, &content, log).await?;
    succeeded(&wanted.to, answer).map(drop)
}

/// Why a file cannot be sent: for good, where it is gone or something else by now.
fn unreadable(path: &Path) -> impl Fn(io::Error) -> TransferError {
    move |error| match is_its_own(&error) {
        true => TransferError::new(
            TransferErrorKind::Changed,
            format!("{} is not there as it was: {error}", path.display()),
        ),
        false => failure("read", path)(error),
    }
}

/// What an upload sends: its head, then the file from an offset on.
struct Rest {
    path: PathBuf,
    nbytes: u64,
    offset: u64,
    head: bytes::Bytes,
    gone: Arc<AtomicU64>,
    /// How fast it may go.
    rate: Arc<Rate>,
}

impl Content for Rest {
    fn body(&self) -> Result<Body, TransferError> {
        let path = &self.path;
        let mut file = open_own(path).map_err(unreadable(path))?;
        if file.metadata().map_err(failure("read", path))?.len() != self.nbytes {
            let what = format!("{} has changed its size since it was made", path.display());
            return Err(TransferError::new(TransferErrorKind::Changed, what));
        }
        file.seek(SeekFrom::Start(self.offset)).map_err(failure("read", path))?;
        // Exactly as many bytes as announced, also if somebody appends meanwhile.
        let rest = tokio::fs::File::from_std(file).take(self.nbytes - self.offset);
        let head = self.head.clone();
        let head = futures_util::stream::once(async move { Ok(head) });
        let gone = Arc::clone(&self.gone);
        let rate = Arc::clone(&self.rate);
        // Small pieces where each has to wait for its time.
        let piece = if rate.is_limited() { 8 * 1024 } else { 64 * 1024 };
        let counted = head.chain(ReaderStream::with_capacity(rest, piece)).then(move |piece| {
            let (gone, rate) = (Arc::clone(&gone), Arc::clone(&rate));
            async move {
                let bytes = piece.as_ref().map_or(0, |piece| piece.len() as u64);
                rate.pass(bytes).await;
                gone.fetch_add(bytes, Ordering::Relaxed);
                piece
            }
        });
        Ok(Body::wrap_stream(counted))
    }
    fn length(&self) -> u64 {
        self.head.len() as u64 + self.nbytes - self.offset
    }
    fn gone(&self) -> u64 {
        self.gone.load(Ordering::Relaxed)
    }
}

async fn post(
    web: &Web,
    url: &str,
    kind: Kind,
    content: &dyn Content,
    log: &TransferLog,
) -> Result<DataServerReply, TransferError> {
    let request = HttpRequest { url, kind, from: 0, may_encode: true, content: Some(content), log };
    let answer = web.send(&request).await.map_err(later)?.succeeded().map_err(later)?;
    read(url, &answer.whole(ANSWER_MAX).await?)
}

fn read(url: &str, answer: &[u8]) -> Result<DataServerReply, TransferError> {
    DataServerReply::parse(answer)
        .map_err(|error| TransferError::new(TransferErrorKind::BadReply, format!("{url}: {error}")))
}

/// A result is worth more than a wrong HTTP status: whatever it is, it may be another one later (BOINC
/// likewise).
fn later(error: TransferError) -> TransferError {
    match error.kind {
        TransferErrorKind::Permanent => TransferError::new(TransferErrorKind::Transient, error.what),
        _ => error,
    }
}

fn succeeded(url: &str, reply: DataServerReply) -> Result<DataServerReply, TransferError> {
    let kind = match reply.status {
        UploadStatus::Ok => return Ok(reply),
        UploadStatus::Transient => TransferErrorKind::Transient,
        UploadStatus::Permanent => TransferErrorKind::Permanent,
    };
    let why = reply.message.as_deref().unwrap_or("no reason given");
    Err(TransferError::new(kind, format!("{url}: the upload handler refused the file: {why}")))
}
