//! One attempt at an upload.

use std::time::Duration;

use fallow_boinc::names;
use fallow_boinc::scheduler::ClientVersion;
use fallow_boinc::transfer::{DataServerReply, UploadHeader, UploadRequest, UploadStatus};
use fallow_client::{TransferError, TransferErrorKind, Upload};
use fallow_domain::Bytes;
use futures_util::StreamExt;
use reqwest::Body;
use reqwest::header::CONTENT_LENGTH;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio_util::io::ReaderStream;

use super::local::failure;
use super::web::{STALL, Web, body, send};
use crate::dir::DataDir;
use crate::files::open_plain;

/// From this size on the server is asked first how much it has (BOINC's figure).
const ASK_FROM: u64 = 8192;
/// Longest answer of an upload handler.
const ANSWER_MAX: usize = 64 * 1024;
/// Slower than this is as good as stalled.
const BYTES_PER_SECOND_MIN: u64 = 1_000;

/// Sends one file, from where the server says that it stopped.
pub(super) async fn upload(
    web: &Web,
    dir: &DataDir,
    wanted: &Upload,
    version: ClientVersion,
) -> Result<(), TransferError> {
    let name = &wanted.file.name;
    if !names::is_file_name(name) {
        return Err(TransferError::new(
            TransferErrorKind::Permanent,
            format!("{name:?} is no name for a file"),
        ));
    }
    let mut offset = 0;
    if wanted.nbytes.0 >= ASK_FROM {
        let question = UploadRequest::FileSize { client_version: version, name: name.clone() };
        let answer = ask(web, &wanted.to, question.write().into(), STALL).await?;
        offset = succeeded(&wanted.to, answer)?.file_size.unwrap_or_default().0;
        if offset >= wanted.nbytes.0 {
            return Ok(());
        }
    }
    let path = dir.project(&wanted.url).join(name);
    let file = open_plain(&path).map_err(failure("read", &path))?;
    if file.metadata().map_err(failure("read", &path))?.len() != wanted.nbytes.0 {
        let what = format!("{} has changed its size since it was made", path.display());
        return Err(TransferError::new(TransferErrorKind::LocalFile, what));
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
    let head = UploadRequest::Upload(header).write();
    let rest = wanted.nbytes.0 - offset;
    let mut file = tokio::fs::File::from_std(file);
    file.seek(std::io::SeekFrom::Start(offset)).await.map_err(failure("read", &path))?;
    let length = head.len() as u64 + rest;
    let head = futures_util::stream::once(async move { Ok(bytes::Bytes::from(head)) });
    // Exactly as many bytes as announced, also if somebody appends meanwhile.
    let content = Body::wrap_stream(head.chain(ReaderStream::with_capacity(file.take(rest), 64 * 1024)));
    let within = STALL + Duration::from_secs(rest / BYTES_PER_SECOND_MIN);
    let request = web.post(&wanted.to)?.header(CONTENT_LENGTH, length).body(content);
    let answer =
        body(send(request, &wanted.to, within).await.map_err(later)?, &wanted.to, ANSWER_MAX).await?;
    succeeded(&wanted.to, read(&wanted.to, &answer)?).map(drop)
}

async fn ask(
    web: &Web,
    url: &str,
    question: Body,
    within: Duration,
) -> Result<DataServerReply, TransferError> {
    let response = send(web.post(url)?.body(question), url, within).await.map_err(later)?;
    read(url, &body(response, url, ANSWER_MAX).await?)
}

fn read(url: &str, answer: &[u8]) -> Result<DataServerReply, TransferError> {
    DataServerReply::parse(answer)
        .map_err(|error| TransferError::new(TransferErrorKind::BadReply, format!("{url}: {error}")))
}

/// A result is worth more than a wrong HTTP status: whatever it is, it may be another one later (BOINC likewise).
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
