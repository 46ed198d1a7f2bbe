//! How long the first message of an agent's call may be (R6.10).
//!
//! A link's later messages may be long, and gRPC knows one bound for all of them. The first one is a Hello,
//! and it is read before it is known whether the caller gets the link: many may be on their way at once, of
//! hosts of the fleet and of whoever wants to become one. So its announced length is looked at as it comes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Bytes, HttpBody};
use axum::http::Request;
use hyper::body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tower::Service;

use super::limits::FIRST_BYTES;

/// What comes before each message in gRPC: whether it is compressed, and its length in four bytes.
const HEAD: usize = 5;

/// The fleet's service, which reads no long first message.
#[derive(Clone, Debug)]
pub struct ShortFirst<S>(S);

impl<S> ShortFirst<S> {
    /// Around a service.
    #[must_use]
    pub const fn new(service: S) -> Self {
        Self(service)
    }
}

impl<S: NamedService> NamedService for ShortFirst<S> {
    const NAME: &'static str = S::NAME;
}

impl<S: Service<Request<Body>>> Service<Request<Body>> for ShortFirst<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> S::Future {
        self.0.call(request.map(|body| Body::new(Opening { body, head: Head::default() })))
    }
}

/// A request's body, which ends with an error where its first message is too long.
struct Opening {
    body: Body,
    head: Head,
}

impl HttpBody for Opening {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
            && let Err(status) = self.head.look(data)
        {
            return Poll::Ready(Some(Err(status)));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// As much as has come of what is before the first message.
#[derive(Default)]
struct Head {
    bytes: [u8; HEAD],
    come: usize,
}

impl Head {
    fn look(&mut self, data: &[u8]) -> Result<(), Status> {
        let missing = self.bytes.get_mut(self.come..).unwrap_or_default();
        let new = missing.len().min(data.len());
        if new == 0 {
            return Ok(());
        }
        missing.iter_mut().zip(data).for_each(|(to, from)| *to = *from);
        self.come += new;
        let [_, length @ ..] = self.bytes;
        let length = u32::from_be_bytes(length) as usize;
        if self.come == HEAD && length > FIRST_BYTES {
            let text = format!("the first message has {length} bytes, more than {FIRST_BYTES}");
            return Err(Status::resource_exhausted(text));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_the_first_message_alone_is_bounded_however_its_head_comes() {
        let head = |length: usize| [&[0][..], &u32::try_from(length).unwrap().to_be_bytes()].concat();
        for parts in 1..=7 {
            let looked = |bytes: &[u8]| {
                let mut looked = Head::default();
                bytes.chunks(parts).try_for_each(|part| looked.look(part))
            };
            let status = looked(&head(FIRST_BYTES + 1)).unwrap_err();
            assert_eq!(status.code(), tonic::Code::ResourceExhausted);
            let second = [head(3), vec![1, 2, 3], head(8 << 20)].concat();
            assert!(looked(&second).is_ok() && looked(&head(FIRST_BYTES)).is_ok());
        }
    }
}
