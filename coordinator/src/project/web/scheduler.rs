//! The scheduler RPC over HTTP.

use std::time::Duration;

use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::{Path, State};
use axum::response::Response;
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
    // As much memory as the body says it needs: many clients that dribble small bodies do not keep others out.
    let announced = body.size_hint().upper().unwrap_or(BODY_MAX as u64);
    let kib = u32::try_from(announced.div_ceil(1_024).max(1)).map_err(|_| Failure::TooLarge)?;
    if announced > BODY_MAX as u64 {
        return Err(Failure::TooLarge);
    }
    let memory = web.scheduler_memory.clone().acquire_many_owned(kib);
    let Ok(Ok(memory)) = timeout(BODY_TIMEOUT, memory).await else { return Err(Failure::Ours) };
    let body = timeout(BODY_TIMEOUT, to_bytes(body, BODY_MAX)).await.map_err(|_| Failure::Timeout)?;
    let body = body.map_err(|_| Failure::TooLarge)?;
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
