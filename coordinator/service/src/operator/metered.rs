//! Messages of long requests: none is read before there is room for it (R6.10).

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use axum::body::{Bytes, HttpBody};
use fallow_daemon::lock;
use hyper::body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;

use super::memory::{CallKind, Held, Share, Working};

/// What comes before each message in gRPC: whether it is compressed, and its length in four bytes.
const HEAD: usize = 5;
/// Bytes of the longest message. A longer one is refused by its reader.
pub(super) const LONGEST: usize = 64 << 20;

/// Room for what is read of a request, and the turn to carry it out, as long as they are kept.
pub(super) type Room = Arc<Mutex<(Option<Held>, Option<Working>)>>;

type WaitsForRoom = Pin<Box<dyn Future<Output = Result<Held, Status>> + Send>>;
type WaitsForTurn = Pin<Box<dyn Future<Output = Option<Working>> + Send>>;

/// The body of a request in gRPC's form.
pub(super) struct Metered {
    body: Body,
    share: Arc<Share>,
    /// For the message that is on its way, or came last.
    room: Room,
    head: Vec<u8>,
    /// Bytes of that message that have still to come.
    left: usize,
    /// What has come and waits for room.
    waiting: Option<(Bytes, WaitsForRoom)>,
    /// Of what kind the call is.
    kind: CallKind,
    /// It is one message, which is carried out when the turn comes for calls of its kind.
    takes_turns: bool,
    /// That message has come to its end.
    is_over: bool,
    /// Its last bytes, which are held back: first until the request has ended, then until its turn comes.
    last: Option<(Bytes, Option<WaitsForTurn>)>,
    is_done: bool,
}

impl Metered {
    /// With `takes_turns` for a request of one message, which may become many times as long.
    pub(super) fn new(body: Body, share: Arc<Share>, kind: CallKind, takes_turns: bool) -> (Self, Room) {
        let room = Room::default();
        let metered = Self {
            body,
            share,
            room: room.clone(),
            head: Vec::with_capacity(HEAD),
            left: 0,
            waiting: None,
            kind,
            takes_turns,
            is_over: false,
            last: None,
            is_done: false,
        };
        (metered, room)
    }

    /// How much room the message needs that begins in these bytes and does not end in them.
    fn begins(&mut self, mut bytes: &[u8]) -> Result<Option<usize>, Status> {
        let mut begun = None;
        while !bytes.is_empty() {
            if self.is_over {
                return Err(more_than_one());
            }
            if self.left > 0 {
                let passed = self.left.min(bytes.len());
                self.left -= passed;
                bytes = &bytes[passed..];
                self.is_over = self.takes_turns && self.left == 0;
                continue;
            }
            let (head, rest) = bytes.split_at(bytes.len().min(HEAD - self.head.len()));
            self.head.extend_from_slice(head);
            bytes = rest;
            if let [_, length @ ..] = &self.head[..]
                && let Ok(length) = <[u8; 4]>::try_from(length)
            {
                self.left = u32::from_be_bytes(length) as usize;
                self.head.clear();
                self.is_over = self.takes_turns && self.left == 0;
                begun = Some(self.left);
            }
        }
        Ok(begun.filter(|_| self.left > 0))
    }
}

fn more_than_one() -> Status {
    Status::invalid_argument("a request of this call is one message, and more came behind it")
}

impl HttpBody for Metered {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        loop {
            if this.is_done {
                return Poll::Ready(None);
            }
            if let Some((bytes, turn)) = &mut this.last {
                let Some(turn) = turn else {
                    match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                        None => {
                            let (share, kind) = (this.share.clone(), this.kind);
                            *turn = Some(Box::pin(async move { share.turn_to_work(kind).await }));
                        }
                        Some(Ok(frame)) if frame.data_ref().is_none_or(Bytes::is_empty) => {}
                        Some(Ok(_)) => return Poll::Ready(Some(Err(more_than_one()))),
                        Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                    }
                    continue;
                };
                lock(&this.room).1 = ready!(turn.as_mut().poll(context));
                let bytes = std::mem::take(bytes);
                this.last = None;
                this.is_done = true;
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            if let Some((bytes, room)) = &mut this.waiting {
                let held = ready!(room.as_mut().poll(context));
                let bytes = std::mem::take(bytes);
                this.waiting = None;
                return Poll::Ready(Some(held.map(|held| {
                    lock(&this.room).0 = Some(held);
                    Frame::data(bytes)
                })));
            }
            let frame = match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            let bytes = match frame.into_data() {
                Ok(bytes) => bytes,
                Err(frame) => return Poll::Ready(Some(Ok(frame))),
            };
            match this.begins(&bytes)? {
                None if this.is_over => this.last = Some((bytes, None)),
                None => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Some(length) => {
                    // The one before is not kept by whoever reads several.
                    lock(&this.room).0 = None;
                    let (share, kind) = (this.share.clone(), this.kind);
                    let room = async move { share.read(kind, length.min(LONGEST)).await };
                    this.waiting = Some((bytes, Box::pin(room)));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let is_held_back = self.waiting.is_some() || self.last.is_some();
        self.is_done || (!is_held_back && self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::memory::Memory;
    use crate::roles::Caller;
    use futures_util::{StreamExt as _, stream};

    fn message(length: usize) -> Vec<u8> {
        let length = u32::try_from(length).unwrap();
        [&[0][..], &length.to_be_bytes(), &vec![1; length as usize]].concat()
    }

    #[tokio::test]
    async fn r6_10_each_message_of_a_request_has_room_from_its_head_on_however_it_comes() {
        let all = [message(3), message(0), message(100_000), message(70_000), message(2)].concat();
        for size in [1, 4, 1_000, all.len()] {
            let share = Memory::default().share(&Caller::Owner);
            let parts: Vec<_> =
                all.chunks(size).map(|part| Ok::<_, Status>(Bytes::copy_from_slice(part))).collect();
            let body = Body::new(axum::body::Body::from_stream(stream::iter(parts)));
            let (metered, room) = Metered::new(body, share.clone(), CallKind::Long, false);
            let mut came = axum::body::Body::new(metered).into_data_stream();
            let (mut read, mut most) = (Vec::new(), 0);
            while let Some(part) = came.next().await {
                read.extend_from_slice(&part.unwrap());
                most = most.max(share.taken());
            }
            assert_eq!(read, all);
            // What has come whole at once needs no room of its own.
            assert_eq!(most, if size == all.len() { 0 } else { 100_000 }, "{size}");
            drop(room);
            drop(came);
            assert_eq!(share.taken(), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn r6_10_a_request_that_is_there_waits_for_its_turn_and_keeps_it_until_it_was_carried_out() {
        let share = Memory::default().share(&Caller::Owner);
        let request = |size: usize| {
            let parts: Vec<_> = message(100_000).chunks(size).map(Bytes::copy_from_slice).collect();
            let body = stream::iter(parts.into_iter().map(Ok::<_, Status>));
            let (metered, room) = Metered::new(
                Body::new(axum::body::Body::from_stream(body)),
                share.clone(),
                CallKind::Long,
                true,
            );
            (axum::body::Body::new(metered).into_data_stream(), room)
        };
        for size in [7, 60_000, 100_005] {
            let mut at_work = Vec::new();
            loop {
                let (mut came, room) = request(size);
                let whole = async {
                    let mut read = 0;
                    while read < 100_005 {
                        read += came.next().await.unwrap().unwrap().len();
                    }
                };
                if tokio::time::timeout(std::time::Duration::from_hours(1), whole).await.is_err() {
                    break;
                }
                // Its body is not needed any more, but what was made of it is there.
                at_work.push(room);
            }
            assert_eq!(at_work.len(), 4, "{size}");
        }
        assert_eq!(share.taken(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn r6_10_a_request_of_one_message_is_read_and_has_its_turn_when_it_has_ended_and_not_before() {
        let share = Memory::default().share(&Caller::Owner);
        let request = |parts: Vec<Vec<u8>>, has_end: bool| {
            let parts = stream::iter(parts.into_iter().map(|part| Ok::<_, Status>(Bytes::from(part))));
            let body = match has_end {
                true => axum::body::Body::from_stream(parts),
                false => axum::body::Body::from_stream(parts.chain(stream::pending())),
            };
            let (metered, room) = Metered::new(Body::new(body), share.clone(), CallKind::Long, true);
            (axum::body::Body::new(metered).into_data_stream(), room)
        };
        for (length, behind) in [100_000, 0]
            .into_iter()
            .flat_map(|length| [vec![0], message(0), message(7), vec![]].map(|behind| (length, behind)))
        {
            let has_end = !behind.is_empty();
            let all = [message(length), behind.clone()].concat();
            for size in [3, length + HEAD, length + HEAD + 1, all.len()] {
                let parts = all.chunks(size).map(<[u8]>::to_vec).collect();
                let (mut came, room) = request(parts, has_end);
                let mut read = 0;
                let end = loop {
                    match tokio::time::timeout(std::time::Duration::from_hours(1), came.next()).await {
                        Ok(Some(Ok(part))) => read += part.len(),
                        end => break end,
                    }
                };
                assert!(read < length + HEAD, "{read} of {length} with {behind:?} behind, {size} at a time");
                assert!(lock(&room).1.is_none());
                match end {
                    Ok(Some(Err(error))) => assert!(error.to_string().contains("one message"), "{error}"),
                    end => {
                        assert!(end.is_err() && !has_end, "{end:?} with {behind:?} behind, {size} at a time");
                    }
                }
            }
        }
        // Empty frames are no more of it.
        let (mut came, room) = request(vec![vec![], message(9), vec![], vec![]], true);
        let mut read = Vec::new();
        while let Some(part) = came.next().await {
            read.extend_from_slice(&part.unwrap());
        }
        assert!(read == message(9) && lock(&room).1.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn r6_10_a_message_for_which_there_is_no_room_is_refused_before_it_is_read() {
        let share = Memory::default().share(&Caller::Owner);
        let others = [
            share.read(CallKind::Long, LONGEST).await.unwrap(),
            share.read(CallKind::Long, LONGEST).await.unwrap(),
        ];
        let begun = Bytes::copy_from_slice(&message(1 << 20)[..100]).to_vec();
        let longest = [&[0][..], &u32::try_from(LONGEST).unwrap().to_be_bytes()].concat();
        for (head, is_read) in [(begun, true), (longest, false)] {
            let head = stream::iter([Ok::<_, Status>(Bytes::from(head))]);
            let body = Body::new(axum::body::Body::from_stream(head));
            let (metered, _room) = Metered::new(body, share.clone(), CallKind::Long, false);
            let first = axum::body::Body::new(metered).into_data_stream().next().await.unwrap();
            assert_eq!(first.is_ok(), is_read, "{first:?}");
        }
        drop(others);
    }
}
