//! Files from clients (BOINC: `file_upload_handler`).
//!
//! **Model.** A file grows as `NAME.part` and becomes `NAME` when it is whole, its MD5 is what the client
//! said, and it is on the medium: the client deletes its own copy upon our answer. What arrived of a broken
//! upload is kept, and the client asks for its size and goes on from there. Everything can be repeated: a
//! file that is there, or that nobody needs any more, is taken again with the same answer.
//!
//! **Who may.** Whoever shows the project's own signature of the file's name and largest size, for a job that
//! this project knows. That is looked at first: whoever cannot show it neither writes nor keeps anybody
//! waiting. Only the host that is sent a job is given it; a copied machine has none for jobs that the first
//! one gets after the copy was made, nor the other way round. Not told apart: a disk that is copied while its
//! machine holds a job has that job's permission twice, and the file is whose comes first. Once it is whole,
//! nobody changes it.
//!
//! **Sizes.** BOINC's clients ask how much is there without a signature, and its own server tells of any
//! file. Here only that of a job in progress is told, to which its host comes back; of everything else there
//! is nothing.
//!
//! **Answers**: 0 it is there, 1 try again, -1 never.

use std::io::SeekFrom;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, BodyDataStream};
use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes as Chunk;
use fallow_boinc::signature::md5_of;
use fallow_boinc::transfer::{DataServerReply, Head, UploadHeader, UploadRequest, UploadStatus};
use fallow_daemon::{file, lock};
use fallow_domain::Bytes;
use fallow_telemetry::RateLimit;
use futures_util::StreamExt;
use tokio::fs::{File, OpenOptions};
use tokio::io::{AsyncSeekExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use super::{Failure, Holder, Web, blocking, known, xml};
use crate::connections::ConnectionHandle;
use crate::error::ProjectError;
use crate::index;
use crate::layout::remove_if_there;
use crate::names::split_output_name;
use crate::printable;
use crate::project::Project;
use crate::workunit::{Outcome, ServerState};

/// A client that sends nothing for so long is gone. Clients give up after the same time.
const IDLE_MAX: Duration = Duration::from_secs(300);

/// How long the whole header may take to come, however it comes: whose it is is not known before.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// What is still read of an upload that is refused, at most this much ...
const REFUSED_BYTES: u64 = 256 << 20;
/// ... for this long.
const REFUSED_TIME: Duration = Duration::from_secs(10);

/// Bytes of a text from outside that are logged.
const TEXT_MAX: usize = 255;
static UNREADABLE: RateLimit = RateLimit::new();
static REFUSED: RateLimit = RateLimit::new();
static FULL: RateLimit = RateLimit::new();
/// Uploads that look at once whether the disk has room for a new file, and make it.
static BEGINNING: Semaphore = Semaphore::const_new(16);

/// What becomes of an upload's bytes.
enum Use {
    /// They are wanted, from whoever has the job.
    Keep(Holder),
    /// They are there already, or not needed: taken from whoever had the job, and dropped.
    Drop(Holder),
    Refuse(&'static str),
}

pub(super) async fn handle(
    State(web): State<Web>,
    Path(project): Path<String>,
    connection: Option<Extension<ConnectionHandle>>,
    body: Body,
) -> Result<Response, Failure> {
    let project = web.project(&project)?;
    let mut stream = body.into_data_stream();
    let mut received = Vec::new();
    let (request, data_at) = match head(&mut stream, &mut received, HEAD_TIMEOUT).await? {
        Ok(head) => head,
        Err(problem) => {
            if let Some(times) = UNREADABLE.allow() {
                let error = printable::line(&problem, TEXT_MAX);
                warn!(project = %project.name, error, times, "an upload cannot be read");
            }
            return Ok(answer(UploadStatus::Permanent, &problem));
        }
    };
    match request {
        UploadRequest::FileSize { name, .. } => file_size(project, name).await,
        UploadRequest::Upload(header) => {
            let first = Chunk::from(received.split_off(data_at.min(received.len())));
            upload(project, connection, header, first, stream).await
        }
    }
}

/// What is asked and where the data begin, or why that cannot be read. It has to be there within `limit`.
async fn head(
    stream: &mut BodyDataStream,
    received: &mut Vec<u8>,
    limit: Duration,
) -> Result<Result<(UploadRequest, usize), String>, Failure> {
    let whole = async {
        let (mut looked, mut is_over) = (0, false);
        loop {
            if is_over || is_due(received.len(), looked) {
                looked = received.len();
                match UploadRequest::parse(received) {
                    Ok(Head::Complete { request, data_at }) => return Ok(Ok((request, data_at))),
                    Ok(Head::Incomplete) if is_over => return Ok(Err("no command".to_owned())),
                    Ok(Head::Incomplete) => {}
                    Err(problem) => return Ok(Err(problem.to_string())),
                }
            }
            match next(stream).await? {
                Some(chunk) => received.extend_from_slice(&chunk),
                None => is_over = true,
            }
        }
    };
    timeout(limit, whole).await.map_err(|_| Failure::Timeout)?
}

/// Whether a head of which so much was there at the last look is looked at again. It may come byte by byte,
/// and is looked through from its begin each time: so not before there is twice as much, or a KiB more.
pub(super) fn is_due(received: usize, looked: usize) -> bool {
    received >= looked + looked.min(1 << 10)
}

async fn file_size(project: Arc<Project>, name: String) -> Result<Response, Failure> {
    let size = blocking(move || {
        let is_awaited = matches!(project.find_output(&name)?, Output::Awaited(_));
        let whole = std::fs::metadata(project.layout.upload(&name));
        let part = || std::fs::metadata(project.layout.partial(&name));
        let there = whole.or_else(|_| part()).map_or(0, |metadata| metadata.len());
        Ok::<u64, ProjectError>(if is_awaited { there } else { 0 })
    })
    .await??;
    let reply = DataServerReply { status: UploadStatus::Ok, file_size: Some(Bytes(size)), message: None };
    Ok(xml(reply.write()))
}

async fn upload(
    project: Arc<Project>,
    connection: Option<Extension<ConnectionHandle>>,
    header: UploadHeader,
    first: Chunk,
    stream: BodyDataStream,
) -> Result<Response, Failure> {
    let (judge, asked) = (project.clone(), header.clone());
    let wanted = blocking(move || judge.use_of(&asked)).await??;
    if let Use::Keep(holder) | Use::Drop(holder) = wanted {
        known(connection, &project.name, holder);
    }
    match wanted {
        Use::Refuse(reason) => {
            if let Some(times) = REFUSED.allow() {
                let file = printable::line(&header.name, TEXT_MAX);
                warn!(project = %project.name, file, reason, times, "upload refused");
            }
            // A client that is still sending would see a broken connection instead of the refusal, and come
            // again for months.
            drop_refused(first, stream, REFUSED_TIME).await;
            Ok(answer(UploadStatus::Permanent, reason))
        }
        Use::Drop(_) => take_again(&project, &header, first, stream).await,
        Use::Keep(_) => {
            let Some(claim) = Claim::take(project.clone(), &header.name) else {
                return Ok(answer(UploadStatus::Transient, "another connection is uploading this file"));
            };
            // Another connection may have finished it since we looked.
            let path = project.layout.upload(&header.name);
            if blocking(move || path.is_file()).await? {
                drop(claim);
                return take_again(&project, &header, first, stream).await;
            }
            keep(&project, &header, claim, first, stream).await
        }
    }
}

/// Takes the bytes of a file that is there, or that nobody needs, and drops them.
async fn take_again(
    project: &Project,
    header: &UploadHeader,
    first: Chunk,
    stream: BodyDataStream,
) -> Result<Response, Failure> {
    debug!(project = %project.name, file = %header.name, "upload taken again, or not needed");
    drain(header.nbytes.0.saturating_sub(header.offset.0), first, stream).await?;
    Ok(answer(UploadStatus::Ok, ""))
}

/// What a file's name stands for.
enum Output {
    /// An output of a job that is in progress, or late; who has it.
    Awaited(Holder),
    /// Of one that is over.
    Over(Holder),
    /// Of none: why not.
    Unknown(&'static str),
}

impl Project {
    fn use_of(&self, header: &UploadHeader) -> Result<Use, ProjectError> {
        if !self.signing_keys.permits_upload(&header.name, header.max_nbytes, &header.xml_signature) {
            return Ok(Use::Refuse("invalid signature"));
        }
        if header.nbytes > header.max_nbytes {
            return Ok(Use::Refuse("file size exceeds limit"));
        }
        Ok(match self.find_output(&header.name)? {
            Output::Unknown(why) => Use::Refuse(why),
            Output::Awaited(holder) if !self.layout.upload(&header.name).is_file() => Use::Keep(holder),
            Output::Awaited(holder) | Output::Over(holder) => Use::Drop(holder),
        })
    }

    fn find_output(&self, name: &str) -> Result<Output, ProjectError> {
        let Some((workunit, index, position)) = split_output_name(name) else {
            return Ok(Output::Unknown("not an output file"));
        };
        let Some(workunit) = index::read(&self.read(), &self.keys, workunit)? else {
            return Ok(Output::Unknown("no such job"));
        };
        let Some(job) = workunit.jobs.get(index as usize).filter(|_| position < workunit.outputs.len())
        else {
            return Ok(Output::Unknown("no such job"));
        };
        let awaited = job.state == ServerState::InProgress || job.outcome == Some(Outcome::Late);
        let holder = Holder::of(job);
        Ok(if awaited { Output::Awaited(holder) } else { Output::Over(holder) })
    }
}

/// The client keeps its file and comes again.
fn put_off(project: &Project) -> Response {
    if let Some(times) = FULL.allow() {
        warn!(project = %project.name, times, "uploads are put off: the disk is almost full, or has room for few more files, and the rest is for operators");
    }
    answer(UploadStatus::Transient, "cannot store the file now")
}

/// Stores the bytes; when they are all there, makes the file final.
async fn keep(
    project: &Arc<Project>,
    header: &UploadHeader,
    claim: Claim,
    first: Chunk,
    mut stream: BodyDataStream,
) -> Result<Response, Failure> {
    let part = project.layout.partial(&header.name);
    // It, and a directory for it. Where that cannot be said, the write says what is wrong.
    let beginning = BEGINNING.acquire().await.ok();
    let has_room = fallow_store::leaves_enough(&project.layout.downloads(), 0, 2).unwrap_or(true);
    if !has_room && !part.exists() {
        return Ok(put_off(project));
    }
    let opened = open_part(&part, header.offset.0).await;
    drop(beginning);
    let mut file = match opened.map_err(ours("open", &part))? {
        Some(file) => file,
        None => return Ok(answer(UploadStatus::Transient, "there is less of the file than the offset says")),
    };
    let mut at = header.offset.0;
    let mut chunk = first;
    loop {
        at += chunk.len() as u64;
        if at > header.nbytes.0 {
            drop(file);
            remove_if_there(&part)?;
            return Ok(answer(UploadStatus::Transient, "more bytes than the file has"));
        }
        // Where that cannot be said, the write says what is wrong.
        if !fallow_store::leaves_enough(&part, chunk.len() as u64, 0).unwrap_or(true) {
            file.flush().await.map_err(ours("write", &part))?;
            return Ok(put_off(project));
        }
        if let Err(problem) = file.write_all(&chunk).await {
            // A full disk, most likely: the client keeps its file and comes again.
            let problem = ProjectError::file("write", &part)(problem);
            warn!(project = %project.name, error = &problem as &dyn std::error::Error, "upload not stored");
            return Ok(answer(UploadStatus::Transient, "cannot store the file now"));
        }
        match next(&mut stream).await {
            Ok(Some(more)) => chunk = more,
            Ok(None) => break,
            Err(failure) => {
                // Keep what arrived, for the next attempt.
                file.flush().await.map_err(ours("write", &part))?;
                return Err(failure);
            }
        }
    }
    file.flush().await.map_err(ours("write", &part))?;
    if at < header.nbytes.0 {
        return Ok(answer(UploadStatus::Transient, "the file did not arrive whole"));
    }
    file.sync_all().await.map_err(ours("write", &part))?;
    drop(file);
    finish(project.clone(), header.clone(), claim, part).await
}

async fn finish(
    project: Arc<Project>,
    header: UploadHeader,
    claim: Claim,
    part: PathBuf,
) -> Result<Response, Failure> {
    let done = blocking(move || {
        // The file is this connection's until it has its name, even if the client goes away before the
        // answer.
        let _claim = claim;
        let path = project.layout.upload(&header.name);
        let (md5, _) =
            std::fs::File::open(&part).and_then(md5_of).map_err(ProjectError::file("read", &part))?;
        if !header.md5_cksum.is_empty() && !md5.eq_ignore_ascii_case(&header.md5_cksum) {
            // Some of it belongs to another attempt. From the beginning, then.
            remove_if_there(&part)?;
            return Ok(answer(UploadStatus::Transient, "the file's MD5 is another one"));
        }
        std::fs::rename(&part, &path).map_err(ProjectError::file("rename", &part))?;
        file::sync_directory_of(&path).map_err(ProjectError::file("write", &path))?;
        info!(project = %project.name, file = %header.name, bytes = header.nbytes.0, "uploaded");
        Ok::<_, ProjectError>(answer(UploadStatus::Ok, ""))
    });
    Ok(done.await??)
}

/// Opens the partial file at `offset`, or gives none if there is less of it than that. What lies behind is
/// dropped.
async fn open_part(part: &FsPath, offset: u64) -> std::io::Result<Option<File>> {
    if let Some(directory) = part.parent().filter(|directory| !directory.is_dir()) {
        tokio::fs::create_dir_all(directory).await?;
        // A file is on the medium only if its directory is.
        if let Some(parent) = directory.parent() {
            File::open(parent).await?.sync_all().await?;
        }
    }
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(part).await?;
    if file.metadata().await?.len() < offset {
        return Ok(None);
    }
    file.set_len(offset).await?;
    file.seek(SeekFrom::Start(offset)).await?;
    Ok(Some(file))
}

/// Reads on for a while, for the sake of the refusal.
async fn drop_refused(first: Chunk, stream: BodyDataStream, limit: Duration) {
    let _ = timeout(limit, drain(REFUSED_BYTES, first, stream)).await;
}

async fn drain(expected: u64, first: Chunk, mut stream: BodyDataStream) -> Result<(), Failure> {
    let mut got = first.len() as u64;
    while let Some(chunk) = next(&mut stream).await? {
        got += chunk.len() as u64;
        if got > expected {
            return Err(Failure::TooLarge);
        }
    }
    Ok(())
}

async fn next(stream: &mut BodyDataStream) -> Result<Option<Chunk>, Failure> {
    match timeout(IDLE_MAX, stream.next()).await {
        Ok(Some(Ok(chunk))) => Ok(Some(chunk)),
        Ok(None) => Ok(None),
        Ok(Some(Err(_))) => Err(Failure::Broken),
        Err(_) => Err(Failure::Timeout),
    }
}

/// The right to write to a file, until it is dropped.
struct Claim {
    project: Arc<Project>,
    name: String,
}

impl Claim {
    fn take(project: Arc<Project>, name: &str) -> Option<Self> {
        let fresh = lock(&project.uploading).insert(name.to_owned());
        fresh.then(|| Self { project, name: name.to_owned() })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock(&self.project.uploading).remove(&self.name);
    }
}

fn answer(status: UploadStatus, message: &str) -> Response {
    let message = (!message.is_empty()).then(|| message.to_owned());
    xml(DataServerReply { status, file_size: None, message }.write())
}

fn ours(action: &'static str, path: &FsPath) -> impl FnOnce(std::io::Error) -> Failure {
    let path = path.to_path_buf();
    move |problem| ProjectError::file(action, &path)(problem).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;

    const SOON: Duration = Duration::from_secs(120);
    const LIMIT: Duration = Duration::from_millis(200);

    /// These bytes, each a while after the one before, and then silence.
    fn slow(text: &'static str) -> BodyDataStream {
        let bytes = stream::iter(text.bytes()).then(|byte| async move {
            tokio::time::sleep(LIMIT / 4).await;
            Ok::<_, std::io::Error>(Chunk::from(vec![byte]))
        });
        Body::from_stream(bytes.chain(stream::pending())).into_data_stream()
    }

    #[test]
    fn r6_10_a_head_that_comes_byte_by_byte_is_looked_through_a_few_times_only() {
        let mut looks = Vec::new();
        for received in 1..=100_000 {
            if is_due(received, looks.last().copied().unwrap_or_default()) {
                looks.push(received);
            }
        }
        // A look for each KiB costs as much as so many bytes that come in one piece.
        assert!(looks.len() < 110 && looks[..20].iter().sum::<usize>() < 100_000, "{looks:?}");
        // What is there soon after a look is found as soon, however slowly more comes.
        assert!(looks.windows(2).all(|pair| pair[1] - pair[0] <= 1 << 10), "{looks:?}");
    }

    #[tokio::test]
    async fn r6_8_a_head_that_comes_byte_by_byte_is_read_as_any_other() {
        let lines = "<a>\n".repeat(4_000);
        let whole = "<file_info>\n<name>f</name>\n<max_nbytes>9</max_nbytes>\n<nbytes>3</nbytes>\n<offset>0</offset>\n<data>\nabc";
        for (text, is_good) in [(lines.as_str(), false), (whole, true)] {
            let bytes: Vec<_> =
                text.bytes().map(|byte| Ok::<_, std::io::Error>(Chunk::from(vec![byte]))).collect();
            let mut stream = Body::from_stream(stream::iter(bytes)).into_data_stream();
            let mut received = Vec::new();
            let Ok(read) = head(&mut stream, &mut received, SOON).await else { panic!("it broke") };
            assert_eq!(read.is_ok(), is_good);
            assert!(!is_good || received.ends_with(b"abc"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn r6_10_an_upload_of_a_stranger_that_sends_nothing_or_a_byte_now_and_then_ends_soon() {
        for text in ["<data_", "<data_server_request>\n    <core_client_major_version>7</core_client_major"] {
            let mut stream = slow(text);
            let mut received = Vec::new();
            let ended = timeout(SOON, head(&mut stream, &mut received, LIMIT)).await.expect("it ends");
            assert!(matches!(ended, Err(Failure::Timeout)), "{text}");
            assert!(text.as_bytes().starts_with(&received) && received.len() < text.len());
            // The same for what follows a refused header.
            timeout(SOON, drop_refused(Chunk::new(), slow(text), LIMIT)).await.expect("it ends");
        }
    }
}
