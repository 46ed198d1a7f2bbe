//! One request on a connection, from its whole head to the end of its answer.

use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use super::{Access, ConnectionHandle};

/// Bytes that are read on one connection, at a port for members, of all its requests that are not
/// authenticated. An agent's first message has some hundred.
pub(super) const UNAUTHENTICATED_MAX: usize = 32 << 10;

/// A request in progress, until it is dropped.
#[derive(Debug)]
pub struct Call(pub(super) ConnectionHandle);

impl Drop for Call {
    fn drop(&mut self) {
        self.0.ends();
    }
}

/// Tracks a request up to the end of its answer. A layer around all that a port serves.
pub async fn attend(
    Extension(handle): Extension<ConnectionHandle>,
    request: Request,
    next: Next,
) -> Response {
    let handle = handle.in_request();
    let call = handle.begins();
    let mut request = match handle.all.0.access {
        Access::Public => request,
        Access::Authenticated { within } => {
            request.map(|body| Body::new(UnauthenticatedBody::new(body, handle.clone(), within)))
        }
    };
    request.extensions_mut().insert(handle.clone());
    let answer = next.run(request).await;
    handle.is_answered();
    answer.map(|body| Body::new(Answer { body, _call: call }))
}

/// The body of a request, of which little is read, and not for long, until the request is authenticated.
struct UnauthenticatedBody {
    body: Body,
    handle: ConnectionHandle,
    /// Bytes that it has of its connection's allowance.
    took: usize,
    /// When it is too late to authenticate; none once that is done.
    late: Option<Pin<Box<Sleep>>>,
}

/// Why a request that is not authenticated is not read on.
#[derive(Debug, thiserror::Error)]
enum NotAuthenticated {
    #[error("the request was not authenticated in time")]
    Late,
    #[error("the first {} KiB of a connection must authenticate it", UNAUTHENTICATED_MAX >> 10)]
    Long,
}

impl UnauthenticatedBody {
    fn new(body: Body, handle: ConnectionHandle, time: Duration) -> Self {
        Self { body, handle, took: 0, late: Some(Box::pin(sleep(time))) }
    }

    /// Takes so much of the connection's allowance, if there is so much.
    fn takes(&mut self, bytes: usize) -> Result<(), NotAuthenticated> {
        let less = |left: usize| left.checked_sub(bytes);
        self.handle
            .allowance
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .map_err(|_| NotAuthenticated::Long)?;
        self.took += bytes;
        Ok(())
    }

    fn gives_back(&mut self) {
        self.handle.allowance.fetch_add(std::mem::take(&mut self.took), Ordering::Relaxed);
    }
}

impl Drop for UnauthenticatedBody {
    fn drop(&mut self) {
        self.gives_back();
    }
}

impl HttpBody for UnauthenticatedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        if this.handle.is_authenticated.load(Ordering::Relaxed) {
            this.late = None;
            this.gives_back();
        }
        let refuse = |why: NotAuthenticated| Poll::Ready(Some(Err(axum::Error::new(why))));
        if let Some(late) = &mut this.late
            && late.as_mut().poll(context).is_ready()
        {
            return refuse(NotAuthenticated::Late);
        }
        let frame = pin!(&mut this.body).poll_frame(context);
        if this.late.is_some()
            && let Poll::Ready(Some(Ok(part))) = &frame
            && let Some(data) = part.data_ref()
            && let Err(why) = this.takes(data.len())
        {
            return refuse(why);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An answer's body.
struct Answer {
    body: Body,
    _call: Call,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        pin!(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
