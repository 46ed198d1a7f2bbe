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

use super::{Guest, Open};

/// What is read on one connection, at a port for members, of all its requests that have not shown whose they are. An agent's
/// first message has some hundred bytes.
pub(super) const GREETING_BYTES: usize = 32 << 10;

/// A request in progress, until it is dropped.
#[derive(Debug)]
pub struct Call(pub(super) Guest);

impl Drop for Call {
    fn drop(&mut self) {
        self.0.ends();
    }
}

/// Serves a request and goes with its answer. A layer around all that a port serves.
pub async fn attend(Extension(guest): Extension<Guest>, request: Request, next: Next) -> Response {
    let guest = guest.in_request();
    let call = guest.begins();
    let mut request = match guest.all.0.open {
        Open::ToAll => request,
        Open::ToMembers { greeting } => {
            request.map(|body| Body::new(Greeting::new(body, guest.clone(), greeting)))
        }
    };
    request.extensions_mut().insert(guest.clone());
    let answer = next.run(request).await;
    guest.is_answered();
    answer.map(|body| Body::new(Answer { body, _call: call }))
}

/// The body of a request, of which little is read, and not for long, until it is known whose it is.
struct Greeting {
    body: Body,
    guest: Guest,
    /// What it has of its connection's allowance.
    took: usize,
    /// None once it is known.
    late: Option<Pin<Box<Sleep>>>,
}

/// Why a request of nobody is not read on.
#[derive(Debug, thiserror::Error)]
enum Unknown {
    #[error("whose this request is was not shown in time")]
    Late,
    #[error("whose requests are has to be shown within the first {} KiB of them", GREETING_BYTES >> 10)]
    Long,
}

impl Greeting {
    fn new(body: Body, guest: Guest, time: Duration) -> Self {
        Self { body, guest, took: 0, late: Some(Box::pin(sleep(time))) }
    }

    /// Takes so much of the connection's allowance, if there is so much.
    fn takes(&mut self, bytes: usize) -> Result<(), Unknown> {
        let less = |left: usize| left.checked_sub(bytes);
        self.guest
            .greets
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .map_err(|_| Unknown::Long)?;
        self.took += bytes;
        Ok(())
    }

    fn gives_back(&mut self) {
        self.guest.greets.fetch_add(std::mem::take(&mut self.took), Ordering::Relaxed);
    }
}

impl Drop for Greeting {
    fn drop(&mut self) {
        self.gives_back();
    }
}

impl HttpBody for Greeting {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        if this.guest.shown.load(Ordering::Relaxed) {
            this.late = None;
            this.gives_back();
        }
        let refuse = |why: Unknown| Poll::Ready(Some(Err(axum::Error::new(why))));
        if let Some(late) = &mut this.late
            && late.as_mut().poll(context).is_ready()
        {
            return refuse(Unknown::Late);
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
