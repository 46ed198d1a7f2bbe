//! The bodies of operators' requests while they come: how long one may be, and how slow (R6.10).
//!
//! Whoever has a token, even one that may only look, could otherwise have the coordinator keep tens of
//! mebibytes of requests of which the end never comes. Only what is waited for counts: a service that takes
//! its time with what has come is not the caller's doing.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::BoxError;
use axum::body::{Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};
use tonic::Status;

/// Calls that carry files, texts and signatures of any number. Each of their messages is bounded by its
/// reader.
pub(super) const LONG: &[&str] = &["Submit", "AddAppVersion", "ChangeGroups", "SignDocuments"];
/// Bytes of a request of any other call.
const SHORT_MAX: u64 = 1 << 20;
/// How long a caller may be silent in the middle of a request.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes in a second for which that does not run out: as a slow telephone line has.
const RATE: u64 = 4 << 10;

/// On a request whose body is a [`Paced`] one already: how long that is, where it is said.
#[derive(Clone, Copy)]
pub(crate) struct IsPaced(pub(crate) Option<u64>);

/// The body of a request, which ends with an error where it is too long or does not come.
pub(crate) struct Paced<B> {
    body: B,
    method: String,
    /// Bytes that may still come; none where there is no bound.
    left: Option<u64>,
    /// How long may be waited now. What comes earns more.
    patience: Duration,
    /// Since when it is waited, and until when.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl<B> Paced<B> {
    /// The body of a call of this method of the operators' service, or of something beside it.
    pub(crate) fn new(body: B, method: &str) -> Self {
        let left = (!LONG.contains(&method)).then_some(SHORT_MAX);
        Self { body, method: method.to_owned(), left, patience: PATIENCE, waiting: None }
    }

    fn too_long(&self) -> BoxError {
        let (method, most) = (&self.method, SHORT_MAX >> 20);
        Status::out_of_range(format!("a request to {method} has at most {most} MiB, and this one is longer"))
            .into()
    }

    /// So many bytes have come.
    fn came(&mut self, bytes: u64) -> Result<(), BoxError> {
        if let Some((since, _)) = self.waiting.take() {
            self.patience = self.patience.saturating_sub(since.elapsed());
        }
        let earned = Duration::from_micros(bytes.saturating_mul(1_000_000) / RATE);
        self.patience = (self.patience + earned).min(PATIENCE);
        if let Some(left) = self.left {
            self.left = Some(left.checked_sub(bytes).ok_or_else(|| self.too_long())?);
        }
        Ok(())
    }

    /// Nothing has come.
    fn wait(&mut self, context: &mut Context<'_>) -> Poll<BoxError> {
        let patience = self.patience;
        let (_, sleep) = self.waiting.get_or_insert_with(|| (Instant::now(), Box::pin(sleep(patience))));
        ready!(sleep.as_mut().poll(context));
        Poll::Ready(
            Status::deadline_exceeded(format!(
                "the rest of the request did not come: at most {} s of silence are waited for, and fewer where little comes at a time; \
                 send it again",
                PATIENCE.as_secs()
            ))
            .into(),
        )
    }
}

impl<B> HttpBody for Paced<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        // Where its length is said beforehand, nothing of it is read.
        if this.left.is_some_and(|left| this.body.size_hint().lower() > left) {
            return Poll::Ready(Some(Err(this.too_long())));
        }
        match Pin::new(&mut this.body).poll_frame(context) {
            Poll::Pending => this.wait(context).map(|error| Some(Err(error))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, |bytes| bytes.len() as u64);
                Poll::Ready(Some(this.came(bytes).map(|()| frame)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use futures_util::{StreamExt as _, stream};
    use tonic::Code;

    use super::*;

    /// Reads a body of which a part comes after each of these times. Gives how much came, how long that
    /// took, and what went wrong.
    async fn read(
        method: &str,
        parts: usize,
        bytes: usize,
        after: Duration,
    ) -> (usize, Duration, Option<Code>) {
        let part = Bytes::from(vec![b' '; bytes]);
        let parts = stream::iter(0..parts).then(move |_| {
            let part = part.clone();
            async move {
                sleep(after).await;
                Ok::<_, std::convert::Infallible>(part)
            }
        });
        let began = Instant::now();
        let mut body = Body::new(Paced::new(Body::from_stream(parts), method)).into_data_stream();
        let mut count = 0;
        loop {
            match body.next().await {
                None => return (count, began.elapsed(), None),
                Some(Ok(bytes)) => count += bytes.len(),
                Some(Err(error)) => {
                    let status = error.into_inner().downcast::<Status>().unwrap();
                    return (count, began.elapsed(), Some(status.code()));
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn r6_10_a_request_whose_rest_does_not_come_ends_and_one_that_comes_slowly_does_not() {
        let late = Some(Code::DeadlineExceeded);
        let hour = Duration::from_hours(1);
        let (count, time, code) = read("Submit", 1, 1, hour).await;
        assert_eq!((count, time.as_secs(), code), (0, PATIENCE.as_secs(), late));
        // A byte now and then is no way around that.
        let (_, time, code) = read("Submit", 100_000, 1, Duration::from_millis(800)).await;
        assert!(code == late && time < 2 * PATIENCE, "{code:?} after {time:?}");
        // Two hours, at the pace of a slow line, with pauses.
        let (count, time, code) = read("Submit", 240, 160 << 10, Duration::from_secs(30)).await;
        assert_eq!((count, code), (240 * (160 << 10), None));
        assert!(time >= 2 * hour, "{time:?}");
    }

    #[tokio::test]
    async fn r6_10_only_requests_that_carry_files_may_be_long() {
        const PART: usize = 64 << 10;
        let long = Some(Code::OutOfRange);
        for (method, parts, code) in [
            ("ListHosts", 16, None),
            ("ListHosts", 17, long),
            ("/grpc.health.v1.Health/Watch", 17, long),
            ("Submit", 17, None),
        ] {
            assert_eq!(read(method, parts, PART, Duration::ZERO).await.2, code, "{method} {parts}");
        }
        // Said beforehand.
        let whole = Body::from(vec![b' '; 17 * PART]);
        let mut body = Body::new(Paced::new(whole, "ListHosts")).into_data_stream();
        let error = body.next().await.unwrap().unwrap_err();
        assert!(error.to_string().contains("ListHosts has at most 1 MiB"), "{error}");
    }

    #[test]
    fn r6_10_calls_that_may_be_long_are_methods_that_viewers_may_not_call() {
        use crate::roles::Role;
        for method in LONG {
            let right = crate::roles::rights::needed(method).unwrap();
            assert!(!Role::Viewer.has(right), "{method}");
        }
    }
}
