//! The bodies of answers while they are taken (R6.10).
//!
//! HTTP/2 lets a client ask for an answer and then give no room for it, as long as it likes. So an answer
//! counts in its caller's share of the memory until it was handed over, and ends when the caller takes
//! nothing of it for a minute. It is handed over in parts, so that it shows whether he does. Only what waits
//! for him counts: a call that has nothing to say yet is not his doing.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use fallow_daemon::lock;
use futures_util::FutureExt as _;
use hyper::HeaderMap;
use hyper::body::{Frame, SizeHint};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};
use tonic::Status;
use tonic::body::Body;

use super::memory::{Held, Place, Share};

/// How long a caller may take nothing of an answer. What he takes earns more, up to that.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes in a second for which it does not run out: as for requests.
const RATE: u32 = 4 << 10;
/// Bytes that are handed over at once.
const PART: usize = 64 << 10;

/// The body of an answer, which ends where nobody takes it.
pub(crate) struct Taken {
    answer: Arc<Mutex<Answer>>,
    waits: Arc<Waits>,
    watching: AbortHandle,
}

/// How the caller is waited for.
struct Waits(Mutex<Waiting>);

struct Waiting {
    /// Since when; none while there is nothing for him.
    since: Option<Instant>,
    /// For how long at most.
    patience: Duration,
}

impl Waits {
    fn begin(&self) {
        lock(&self.0).since.get_or_insert_with(Instant::now);
    }

    /// He asks for more.
    fn end(&self) {
        let mut waiting = lock(&self.0);
        if let Some(since) = waiting.since.take() {
            waiting.patience = waiting.patience.saturating_sub(since.elapsed());
        }
    }

    /// He was given so many bytes.
    fn earn(&self, bytes: usize) {
        let mut waiting = lock(&self.0);
        let earned = Duration::from_secs(bytes as u64) / RATE;
        waiting.patience = (waiting.patience + earned).min(PATIENCE);
    }

    /// How long he may still be silent.
    fn left(&self) -> Duration {
        let waiting = lock(&self.0);
        let waited = waiting.since.map_or(Duration::ZERO, |since| since.elapsed());
        // While there is nothing for him it is looked again later.
        if waiting.since.is_none() { PATIENCE } else { waiting.patience.saturating_sub(waited) }
    }
}

struct Answer {
    share: Arc<Share>,
    /// None once it was given up.
    left: Option<Left>,
    is_told: bool,
}

/// What is still to be handed over.
struct Left {
    rest: Bytes,
    held: Option<Held>,
    /// What comes behind that, where it was asked for already.
    next: Option<Option<Result<Frame<Bytes>, Status>>>,
    body: Body,
    _place: Place,
}

impl Taken {
    /// An answer to whoever has this share and, until it is over, this place.
    pub(crate) fn new(mut body: Body, share: Arc<Share>, place: Place) -> Self {
        // An answer that is there already is written out now: in memory it takes less like that.
        let first = match body.is_end_stream() {
            true => None,
            false => poll_fn(|context| Pin::new(&mut body).poll_frame(context)).now_or_never(),
        };
        let mut left = Left { rest: Bytes::new(), held: None, next: first, body, _place: place };
        if let Some(Some(Ok(frame))) = left.next.take_if(|next| is_data(next)) {
            left.keep(frame.into_data().unwrap_or_default(), &share);
        }
        let answer = Arc::new(Mutex::new(Answer { share, left: Some(left), is_told: false }));
        let waiting = Waiting { since: Some(Instant::now()), patience: PATIENCE };
        let waits = Arc::new(Waits(Mutex::new(waiting)));
        let watching = tokio::spawn(watch(Arc::downgrade(&answer), waits.clone())).abort_handle();
        Self { answer, waits, watching }
    }
}

fn is_data(next: &Option<Result<Frame<Bytes>, Status>>) -> bool {
    matches!(next, Some(Ok(frame)) if frame.is_data())
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl Left {
    fn keep(&mut self, bytes: Bytes, share: &Share) {
        self.held = (bytes.len() > PART).then(|| share.made(bytes.len()));
        self.rest = bytes;
    }

    fn part(&mut self) -> Option<Bytes> {
        if self.rest.is_empty() {
            return None;
        }
        let part = self.rest.split_to(self.rest.len().min(PART));
        if self.rest.is_empty() {
            self.held = None;
        }
        Some(part)
    }
}

/// Gives an answer up that its caller does not take.
async fn watch(answer: Weak<Mutex<Answer>>, waits: Arc<Waits>) {
    loop {
        let left = waits.left();
        if left.is_zero() {
            if let Some(answer) = answer.upgrade() {
                lock(&answer).left = None;
            }
            return;
        }
        sleep(left).await;
    }
}

/// Notes that there is something for the caller, and wakes whoever hands it over.
struct Noting {
    waits: Arc<Waits>,
    waker: Waker,
}

impl Wake for Noting {
    fn wake(self: Arc<Self>) {
        self.waits.begin();
        self.waker.wake_by_ref();
    }
}

impl HttpBody for Taken {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &*self;
        let mut answer = lock(&this.answer);
        let answer = &mut *answer;
        this.waits.end();
        let Some(left) = &mut answer.left else {
            let is_told = std::mem::replace(&mut answer.is_told, true);
            return Poll::Ready((!is_told).then(given_up));
        };
        if left.rest.is_empty() && left.next.is_none() {
            let noting = Noting { waits: this.waits.clone(), waker: context.waker().clone() };
            let waker = Waker::from(Arc::new(noting));
            match Pin::new(&mut left.body).poll_frame(&mut Context::from_waker(&waker)) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(frame))) if frame.is_data() => {
                    left.keep(frame.into_data().unwrap_or_default(), &answer.share);
                }
                Poll::Ready(next) => left.next = Some(next),
            }
        }
        this.waits.begin();
        match left.part() {
            Some(part) => {
                this.waits.earn(part.len());
                Poll::Ready(Some(Ok(Frame::data(part))))
            }
            None => match left.next.take() {
                Some(next) => Poll::Ready(next),
                // An empty part.
                None => Poll::Ready(Some(Ok(Frame::data(Bytes::new())))),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        let answer = lock(&self.answer);
        match &answer.left {
            Some(left) if !left.rest.is_empty() => false,
            Some(left) => left.next.as_ref().map_or_else(|| left.body.is_end_stream(), Option::is_none),
            None => answer.is_told,
        }
    }

    fn size_hint(&self) -> SizeHint {
        let answer = lock(&self.answer);
        let Some(left) = &answer.left else { return SizeHint::default() };
        let (hint, rest) = (left.body.size_hint(), left.rest.len() as u64);
        let mut all = SizeHint::new();
        all.set_lower(hint.lower() + rest);
        if let Some(upper) = hint.upper() {
            all.set_upper(upper + rest);
        }
        all
    }
}

/// What comes in place of the rest.
fn given_up() -> Result<Frame<Bytes>, Status> {
    let status = Status::deadline_exceeded(format!(
        "nothing of the answer was taken for {} s, so that the rest was given up: ask again",
        PATIENCE.as_secs()
    ));
    let mut trailers = HeaderMap::new();
    status.add_header(&mut trailers)?;
    Ok(Frame::trailers(trailers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::memory::Memory;
    use crate::roles::Caller;
    use futures_util::stream;
    use tokio::time::timeout;
    use tonic::Code;

    fn place() -> Place {
        Arc::new(Arc::new(tokio::sync::Semaphore::new(1)).try_acquire_owned().unwrap())
    }

    fn answer(bytes: usize) -> (Arc<Share>, Taken) {
        let share = Memory::default().share(&Caller::Owner);
        let body = Body::new(axum::body::Body::from(vec![7; bytes]));
        (share.clone(), Taken::new(body, share, place()))
    }

    async fn next(taken: &mut Taken) -> Option<Result<Frame<Bytes>, Status>> {
        poll_fn(|context| Pin::new(&mut *taken).poll_frame(context)).await
    }

    #[tokio::test(start_paused = true)]
    async fn r6_10_an_answer_of_which_nothing_is_taken_for_a_minute_ends_and_leaves_the_memory() {
        let (share, mut taken) = answer(10 * PART);
        assert_eq!(share.taken(), 10 * PART);
        assert!(next(&mut taken).await.unwrap().unwrap().is_data());
        // A part now and then is enough, if it is as much as a slow line takes.
        for _ in 0..3 {
            sleep(Duration::from_secs(16)).await;
            assert!(next(&mut taken).await.unwrap().unwrap().is_data());
        }
        sleep(PATIENCE - Duration::from_secs(1)).await;
        assert_eq!(share.taken(), 10 * PART);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(share.taken(), 0);
        let end = next(&mut taken).await.unwrap().unwrap().into_trailers().unwrap();
        let status = Status::from_header_map(&end).unwrap();
        assert!(status.code() == Code::DeadlineExceeded && status.message().contains("60 s"), "{status}");
        assert!(next(&mut taken).await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn r6_10_an_answer_of_which_a_part_is_taken_a_minute_is_not_kept_for_hours() {
        let (share, mut taken) = answer(100 * PART);
        let mut parts = 0;
        while next(&mut taken).await.unwrap().unwrap().is_data() {
            parts += 1;
            sleep(PATIENCE - Duration::from_secs(1)).await;
        }
        assert!(parts < 4 && share.taken() == 0, "{parts}");
    }

    /// A refusal of gRPC is a head without a body, and tools look whether there is one.
    #[tokio::test]
    async fn r6_11_an_answer_without_a_body_is_over_with_its_head() {
        let share = Memory::default().share(&Caller::Owner);
        assert!(Taken::new(Body::empty(), share, place()).is_end_stream());
        assert!(!answer(1).1.is_end_stream());
    }

    #[tokio::test]
    async fn r6_10_an_answer_that_is_taken_comes_whole_and_leaves_the_memory_with_its_last_part() {
        let (share, mut taken) = answer(3 * PART + 5);
        assert_eq!(taken.size_hint().exact(), Some(3 * PART as u64 + 5));
        let mut bytes = 0;
        while let Some(frame) = next(&mut taken).await {
            bytes += frame.unwrap().into_data().unwrap().len();
        }
        assert_eq!((bytes, share.taken()), (3 * PART + 5, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn r6_10_an_answer_that_has_nothing_to_say_for_long_does_not_end_and_one_that_is_not_taken_then_does()
     {
        let share = Memory::default().share(&Caller::Owner);
        let (say, heard) = tokio::sync::mpsc::unbounded_channel::<Bytes>();
        let parts = stream::unfold(heard, |mut heard| async move {
            heard.recv().await.map(|part| (Ok::<_, std::convert::Infallible>(part), heard))
        });
        let body = Body::new(axum::body::Body::from_stream(parts));
        let mut taken = Taken::new(body, share, place());
        let silent = timeout(60 * PATIENCE, next(&mut taken)).await;
        assert!(silent.is_err(), "it is over");
        say.send(Bytes::from_static(b"one")).unwrap();
        assert!(next(&mut taken).await.unwrap().unwrap().is_data());
        // As hyper does: it asks, and then not again before there is room.
        assert!(timeout(Duration::from_secs(1), next(&mut taken)).await.is_err());
        say.send(Bytes::from_static(b"two")).unwrap();
        sleep(PATIENCE + Duration::from_secs(1)).await;
        assert!(next(&mut taken).await.unwrap().unwrap().is_trailers());
    }
}
