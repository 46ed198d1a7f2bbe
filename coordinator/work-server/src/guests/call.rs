//! One request on a connection, from its whole head to the end of its answer.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use axum::Extension;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

use super::Guest;

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
    let call = guest.begins();
    let answer = next.run(request).await;
    guest.is_answered();
    answer.map(|body| Body::new(Answer { body, call }))
}

/// An answer's body. It is asked for its next part when there is room for that.
struct Answer {
    body: Body,
    call: Call,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = pin!(&mut self.body).poll_frame(context);
        if frame.is_ready() {
            self.call.0.takes();
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
