//! The scheduler RPC over HTTP.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{Path, State};
use axum::response::Response;
use futures_util::StreamExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::{Failure, Web, blocking, xml};

/// The largest request. One with a thousand reported jobs and their standard error is about as large.
const BODY_MAX: usize = 64 << 20;
/// How long a request may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(120);

/// Whatever the content type says: clients of one version say this, of another that.
pub(super) async fn rpc(
    State(web): State<Web>,
    Path(project): Path<String>,
    body: Body,
) -> Result<Response, Failure> {
    let project = web.project(&project)?;
    let received = timeout(BODY_TIMEOUT, receive(body, web.scheduler_memory.clone())).await;
    let (body, memory) = received.map_err(|_| Failure::Timeout)??;
    let shared = web.shared().clone();
    let answer = blocking(move || {
        let (reply, to_compare) = project.scheduler_rpc(&body, shared.now())?;
        if to_compare {
            shared.bell.ring();
        }
        Ok::<_, crate::project::ProjectError>(reply)
    })
    .await?;
    drop(memory);
    Ok(xml(answer?))
}

/// Reads a body, with memory for what has come of it and not for what is announced: whoever announces much and sends
/// little keeps nobody out.
async fn receive(
    body: Body,
    memory: Arc<Semaphore>,
) -> Result<(Vec<u8>, Option<OwnedSemaphorePermit>), Failure> {
    if body.size_hint().lower() > BODY_MAX as u64 {
        return Err(Failure::TooLarge);
    }
    let (mut received, mut held) = (Vec::new(), None::<OwnedSemaphorePermit>);
    let mut stream = body.into_data_stream();
    while let Some(chunk) = stream.next().await {
        received.extend_from_slice(&chunk.map_err(|_| Failure::Broken)?);
        if received.len() > BODY_MAX {
            return Err(Failure::TooLarge);
        }
        let has = held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = u32::try_from(received.len().div_ceil(1_024).saturating_sub(has)).unwrap_or(u32::MAX);
        if more > 0 {
            let more = memory.clone().acquire_many_owned(more).await.map_err(|_| Failure::Ours)?;
            match &mut held {
                Some(held) => held.merge(more),
                None => held = Some(more),
            }
        }
    }
    Ok((received, held))
}
