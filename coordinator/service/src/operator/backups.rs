//! Backups over the API, and new terms of the documents.

use std::io::{self, Write};
use std::sync::Arc;

use fallow_daemon::{causes, clock};
use fallow_proto::operator::v1 as wire;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, future, stream};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::{status, unblocked};
use crate::audit::{Action, AuditLog};
use crate::backup::{self, BackupError, Source};
use crate::document::{Author, Documents};
use crate::fleet::Fleet;

/// Bytes of a part.
const PART: usize = 256 << 10;
/// Parts that wait for a slow reader.
const WAITING: usize = 4;

pub(super) type Parts = BoxStream<'static, Result<wire::BackupPart, Status>>;

/// Begins to make a backup. That is on record before the first byte goes out: it holds the fleet's keys.
pub(super) fn begin(source: Source, author: Author, audit: Arc<AuditLog>) -> Parts {
    let (parts, receiver) = mpsc::channel(WAITING);
    let (say_end, end) = oneshot::channel();
    let _detached = tokio::task::spawn_blocking(move || {
        let now = clock::now();
        let mut out = PartWriter { parts, waiting: Vec::with_capacity(PART) };
        let record = author.record(Action::BackedUp, &format!("begun at {}", fallow_fleet::utc(now)));
        let recorded = audit.done(&record).map_err(BackupError::Store);
        let made = recorded.and_then(|()| backup::make(&source, now, &mut out));
        match &made {
            Ok(()) => tracing::info!(by = author.actor.name(), "a backup was made"),
            Err(error) => {
                let text = causes::line(error);
                tracing::warn!(error = text, "no backup was made");
            }
        }
        // Nobody may listen any more.
        let _ = say_end.send(made.map_err(|error| of_backup(&error)));
    });
    whole(receiver, end)
}

/// All parts, and then how it ended: whoever takes them is never to take half of a backup for one.
fn whole(parts: mpsc::Receiver<wire::BackupPart>, end: oneshot::Receiver<Result<(), Status>>) -> Parts {
    let broken_off = || Status::internal("the backup broke off: the coordinator's log says more");
    let end = async move { end.await.unwrap_or_else(|_| Err(broken_off())).err().map(Err) };
    ReceiverStream::new(parts).map(Ok).chain(stream::once(end).filter_map(future::ready)).boxed()
}

/// Hands on what is written, in parts. Whoever takes nothing for long is cut off, as with any call.
struct PartWriter {
    parts: mpsc::Sender<wire::BackupPart>,
    waiting: Vec<u8>,
}

impl Write for PartWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = bytes.len().min(PART - self.waiting.len());
        self.waiting.extend_from_slice(bytes.get(..room).unwrap_or_default());
        if self.waiting.len() == PART {
            self.flush()?;
        }
        Ok(room)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::replace(&mut self.waiting, Vec::with_capacity(PART));
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "nobody takes it any more");
        self.parts.blocking_send(wire::BackupPart { bytes }).map_err(gone)
    }
}

/// Why there is no backup, or none is put back.
pub(super) fn of_backup(error: &BackupError) -> Status {
    match error {
        BackupError::Store(error) => status::of_store(error),
        BackupError::Document(error) => status::of_document(error),
        BackupError::BrokenOff(_) => Status::cancelled(causes::line(error)),
        _ => Status::internal(causes::line(error)),
    }
}

/// Begins a new term of the documents.
pub(super) async fn begin_term(
    documents: Arc<Documents>,
    fleet: Arc<Fleet>,
    author: Author,
) -> Result<wire::BeginTermReply, Status> {
    let newest = documents.document().version;
    // What somebody says who was taken out of the fleet counts for nothing.
    let followed = move || {
        let members = fleet.hosts().filter(|host| host.revoked.is_none());
        members.map(|host| host.state.document_version).collect::<Vec<_>>()
    };
    let followed = unblocked(followed).await?;
    if newest.0 == 0 && followed.iter().all(|version| version.0 == 0) {
        return Ok(wire::BeginTermReply::default());
    }
    let term = backup::next_term(newest, followed);
    let release = documents.release();
    let is_out = release.base().is_none_or(|base| base.audited.set.fleet.version == newest);
    let without_version = if is_out { 0 } else { newest.0 };
    let begun =
        documents.begin_term(author, clock::now(), term, "as the first of a new term".to_owned()).await;
    let version = begun.map_err(|error| status::of_document(&error))?;
    Ok(wire::BeginTermReply { document_version: version.0, without_version })
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[tokio::test]
    async fn r6_10_half_of_a_backup_is_never_taken_for_one() {
        type End = Result<(), Status>;
        let all = async |end: Option<End>| {
            let (parts, receiver) = mpsc::channel(WAITING);
            let (say_end, ended) = oneshot::channel();
            parts.send(wire::BackupPart { bytes: vec![7] }).await.unwrap();
            drop(parts);
            match end {
                Some(end) => say_end.send(end).unwrap(),
                // Whoever made it has panicked.
                None => drop(say_end),
            }
            let all: Vec<_> = whole(receiver, ended).collect().await;
            let said =
                |part: Result<wire::BackupPart, Status>| part.map(|part| part.bytes).map_err(|s| s.code());
            all.into_iter().map(said).collect::<Vec<_>>()
        };
        assert_eq!(all(Some(Ok(()))).await, [Ok(vec![7])]);
        assert_eq!(all(Some(Err(Status::cancelled("slow")))).await, [Ok(vec![7]), Err(Code::Cancelled)]);
        assert_eq!(all(None).await, [Ok(vec![7]), Err(Code::Internal)]);
    }
}
