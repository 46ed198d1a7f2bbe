//! The scheduler RPC over HTTP.

use std::time::Duration;

use axum::body::{Body, to_bytes};
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
    let slot = web.scheduler_slots.clone().acquire_owned();
    let Ok(Ok(slot)) = timeout(BODY_TIMEOUT, slot).await else { return Err(Failure::Ours) };
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
    drop(slot);
    Ok(xml(answer?))
}
