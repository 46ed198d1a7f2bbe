//! The bodies of requests and answers, message by message: JSON on the outside, gRPC on the inside.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes, HttpBody as _};
use bytes::{Buf as _, BytesMut};
use futures_util::{StreamExt as _, stream};
use prost_reflect::MessageDescriptor;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tonic::{Code, Status};

use super::failure;
use super::message::{self, HEAD};
use crate::operator::{Kept, Turns, unblocked};

/// Bytes of a message in JSON: as many as gRPC may have for one.
const TEXT_MAX: usize = 64 << 20;
/// Bytes of a request that are read after it was refused, and for how long: less than may be read of one that
/// is not authenticated.
const PASSED_OVER: usize = 16 << 10;
const PASSING: Duration = Duration::from_secs(1);

/// The messages of a request for gRPC, each made in its turn. Nothing of it is read before the first one is
/// asked for. What was not read comes back in the end.
pub(super) fn request(
    body: Body,
    kind: MessageDescriptor,
    has_several: bool,
    turns: Turns,
) -> (Body, Unread) {
    let (back, unread) = oneshot::channel();
    let body = Lent { body: body.into_data_stream(), back: Some(back) };
    let reader = Texts { body, buffer: BytesMut::new(), has_several, is_over: false };
    let messages = Body::from_stream(stream::try_unfold(reader, move |mut reader| {
        let (kind, turns) = (kind.clone(), turns.clone());
        async move {
            let Some(text) = reader.next().await? else { return Ok::<_, Status>(None) };
            let turn = turns.turn(text.len()).await;
            // It may take a while, and the turn with it where the caller gives up meanwhile.
            let to_grpc = move || (message::to_grpc(&kind, &text), turn);
            let (bytes, turn) = unblocked(to_grpc).await?;
            turns.made(turn);
            Ok(Some((Bytes::from(bytes?), reader)))
        }
    }));
    (messages, Unread(unread))
}

/// The same of a request that nobody reads.
pub(super) fn unread(body: Body) -> (Body, Unread) {
    let (back, unread) = oneshot::channel();
    drop(Lent { body: body.into_data_stream(), back: Some(back) });
    (Body::empty(), Unread(unread))
}

/// What a request's reader has left of it.
pub(super) struct Unread(oneshot::Receiver<BodyDataStream>);

impl Unread {
    /// Reads the rest of a short request that was refused: a client whose request is cut off in the middle
    /// may not look at the answer.
    pub(super) async fn pass_over(self) {
        let pass_over = async {
            let Ok(mut body) = self.0.await else { return };
            let mut left = PASSED_OVER;
            while let Some(Ok(bytes)) = body.next().await {
                let Some(rest) = left.checked_sub(bytes.len()) else { return };
                left = rest;
            }
        };
        let _ = timeout(PASSING, pass_over).await;
    }
}

/// A body that is given back when its reader is done with it.
struct Lent {
    body: BodyDataStream,
    back: Option<oneshot::Sender<BodyDataStream>>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(back) = self.back.take() {
            let rest = std::mem::replace(&mut self.body, Body::empty().into_data_stream());
            // Nobody wants it where the request was served.
            let _ = back.send(rest);
        }
    }
}

/// The texts of a request, one a message.
struct Texts {
    body: Lent,
    buffer: BytesMut,
    /// Each line is one, and blank ones are none; else the whole body is.
    has_several: bool,
    is_over: bool,
}

impl Texts {
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        // Up to there is no end of a line.
        let mut looked = 0;
        loop {
            let end = self.buffer[looked..].iter().position(|&byte| byte == b'\n' && self.has_several);
            if let Some(end) = end {
                let line = self.buffer.split_to(looked + end);
                self.buffer.advance(1);
                looked = 0;
                match line.trim_ascii().is_empty() {
                    true => continue,
                    false => return Ok(Some(line.freeze())),
                }
            }
            looked = self.buffer.len();
            if looked > TEXT_MAX {
                return Err(Status::out_of_range(format!(
                    "a message is longer than {} MiB: send it in pieces",
                    TEXT_MAX >> 20
                )));
            }
            if self.is_over {
                return Ok(None);
            }
            match self.body.body.next().await {
                Some(Ok(bytes)) => self.buffer.extend_from_slice(&bytes),
                Some(Err(error)) => {
                    // Said by what bounds it, or by the connection.
                    let said = error.into_inner().downcast::<Status>().map(|status| *status);
                    return Err(said.unwrap_or_else(|error| {
                        Status::cancelled(format!("the request broke off: {error}"))
                    }));
                }
                None => {
                    self.is_over = true;
                    let rest = self.buffer.split().freeze();
                    let is_none = self.has_several && rest.trim_ascii().is_empty();
                    return Ok((!is_none).then_some(rest));
                }
            }
        }
    }
}

/// The messages of an answer of gRPC.
pub(super) struct Messages {
    body: Body,
    kind: MessageDescriptor,
    buffer: BytesMut,
}

impl Messages {
    pub(super) fn new(body: Body, kind: MessageDescriptor) -> Self {
        Self { body, kind, buffer: BytesMut::new() }
    }

    /// The next one as a line of JSON; none at the end, if that was a good one.
    ///
    /// # Errors
    /// The status with which the call ended.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, Status> {
        match self.next_in_grpc().await? {
            None => Ok(None),
            Some(message) => {
                let kind = self.kind.clone();
                unblocked(move || message::to_json(&kind, &message)).await?.map(Some)
            }
        }
    }

    /// The only one, for the caller whose call has taken that. What it takes in between counts.
    ///
    /// # Errors
    /// The status with which the call ended. None for want of room: what was asked for is done by now.
    pub(super) async fn only(&mut self, kept: &Kept) -> Result<Vec<u8>, Status> {
        let message = self.next_in_grpc().await?;
        let message = message.ok_or_else(|| Status::internal("the call ended without an answer"))?;
        let held = kept.share.made(message.len());
        // How it ended comes behind it.
        self.next_in_grpc().await?;
        // A list has its turn still.
        let turn = kept.share.turn_to_rewrite(message.len(), kept.making.is_some()).await;
        let kind = self.kind.clone();
        let kept = kept.clone();
        let rewrite = move || {
            let text = message::to_json(&kind, &message);
            // Also where the caller has given up meanwhile.
            drop((message, held, turn, kept));
            text
        };
        unblocked(rewrite).await?
    }

    async fn next_in_grpc(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(message) = self.whole() {
                return Ok(Some(message));
            }
            let frame = poll_fn(|context| Pin::new(&mut self.body).poll_frame(context)).await;
            let frame = match frame {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Err(Status::from_error(error.into())),
                None => return Err(Status::internal("the call ended without a word on how")),
            };
            match frame.into_data() {
                Ok(bytes) => self.buffer.extend_from_slice(&bytes),
                Err(frame) => {
                    let status = frame.trailers_ref().and_then(Status::from_header_map);
                    return match status {
                        Some(status) if status.code() != Code::Ok => Err(status),
                        _ => Ok(None),
                    };
                }
            }
        }
    }

    /// A message that has come whole. None is compressed, for nobody asked for that.
    fn whole(&mut self) -> Option<Bytes> {
        let length = u32::from_be_bytes(self.buffer.get(1..HEAD)?.try_into().ok()?);
        let end = HEAD.checked_add(usize::try_from(length).ok()?)?;
        if self.buffer.len() < end {
            return None;
        }
        let mut message = self.buffer.split_to(end);
        message.advance(HEAD);
        Some(message.freeze())
    }

    /// Every message, one a line. If the call comes to nothing in between, the last line says so:
    /// `{"error": {code, message}}`.
    pub(super) fn into_lines(self) -> Body {
        Body::from_stream(stream::unfold(Some(self), |messages| async {
            let mut messages = messages?;
            match messages.next().await {
                Ok(None) => None,
                Ok(Some(line)) => Some((Ok::<_, std::convert::Infallible>(line), Some(messages))),
                Err(status) => {
                    let line = format!("{}\n", serde_json::json!({ "error": failure::error(&status) }));
                    Some((Ok(line.into_bytes()), None))
                }
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(parts: &[&'static str], has_several: bool) -> Texts {
        let parts: Vec<_> = parts.iter().map(|part| Ok::<_, std::convert::Infallible>(*part)).collect();
        let body = Body::from_stream(stream::iter(parts)).into_data_stream();
        let body = Lent { body, back: None };
        Texts { body, buffer: BytesMut::new(), has_several, is_over: false }
    }

    async fn all(mut texts: Texts) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(text) = texts.next().await.unwrap() {
            all.push(String::from_utf8(text.to_vec()).unwrap());
        }
        all
    }

    #[tokio::test]
    async fn r6_11_a_body_is_one_message_or_one_a_line_however_it_comes() {
        let parts = ["{\"a\"", ": 1}\n", "\n \n{}", "\n{\"b\":\n", "3}"];
        assert_eq!(all(texts(&parts, true)).await, ["{\"a\": 1}", "{}", "{\"b\":", "3}"]);
        assert_eq!(all(texts(&parts, false)).await, [parts.concat()]);
        assert_eq!(all(texts(&[], true)).await, [""; 0]);
        assert_eq!(all(texts(&[], false)).await, [""]);
    }

    #[tokio::test]
    async fn r6_11_a_message_without_end_is_not_read_on() {
        static MIB: [u8; 1 << 20] = [b' '; 1 << 20];
        for has_several in [false, true] {
            let endless = stream::repeat(Ok::<_, std::convert::Infallible>(&MIB[..]));
            let body = Body::from_stream(endless).into_data_stream();
            let body = Lent { body, back: None };
            let mut texts = Texts { body, buffer: BytesMut::new(), has_several, is_over: false };
            let status = texts.next().await.unwrap_err();
            assert!(status.code() == Code::OutOfRange && status.message().contains("64 MiB"), "{status}");
        }
    }
}
