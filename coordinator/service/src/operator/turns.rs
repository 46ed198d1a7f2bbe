//! How a request in JSON comes to its turn (R6.10): its text becomes a message where that is read, and what
//! the call may take is known where it is let in.

use std::sync::{Arc, OnceLock};

use fallow_daemon::lock;

use super::memory::{CallKind, Share, Working};
use super::metered::Room;

/// A text of so many bytes takes little memory also as a message. Each of its values may be three bytes long
/// and take a KiB.
const SHORT: usize = 8 << 10;

/// Of one call. Whoever lets it in says what it may take, before anything of it is read.
#[derive(Clone, Default)]
pub(crate) struct Turns(Arc<OnceLock<May>>);

struct May {
    share: Arc<Share>,
    /// Of a request of one message that is carried out when its turn comes, and where that turn is kept.
    works: Option<(CallKind, Room)>,
}

impl Turns {
    /// Says whose call it is. With a room for a long request of one message.
    pub(super) fn of(&self, share: &Arc<Share>, works: Option<(CallKind, Room)>) {
        // It is said once.
        let _ = self.0.set(May { share: share.clone(), works });
    }

    /// The turn to make a message of a text of so many bytes, which is there.
    pub(crate) async fn turn(&self, bytes: usize) -> Option<Working> {
        let may = self.0.get()?;
        match &may.works {
            Some((kind, room)) => {
                // It may have been longer, for all that was known.
                if let Some(held) = &mut lock(room).0 {
                    held.shrink_to(bytes);
                }
                may.share.turn_to_work(*kind).await
            }
            None if bytes > SHORT => may.share.turn_to_read().await,
            None => None,
        }
    }

    /// The message is made: where it is carried out in the same turn, that is kept until then.
    pub(crate) fn made(&self, turn: Option<Working>) {
        if let Some(May { works: Some((_, room)), .. }) = self.0.get() {
            lock(room).1 = turn;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::task::{Context, Poll};

    use futures_util::FutureExt as _;
    use tonic::body::Body;
    use tonic::codegen::http::{Request, Response};
    use tonic::server::NamedService;
    use tower::Service;

    use super::super::memory::Memory;
    use super::*;
    use crate::audit::AuditLog;
    use crate::operator::Guard;
    use crate::roles::{Caller, Operators};

    /// A service whose submissions never end once they are read.
    #[derive(Clone, Default)]
    struct Stuck {
        begun: Arc<AtomicUsize>,
    }

    impl NamedService for Stuck {
        const NAME: &'static str = "fallow.operator.v1.Operator";
    }

    impl Service<Request<Body>> for Stuck {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<Body>) -> Self::Future {
            let begun = self.begun.clone();
            Box::pin(async move {
                let is_submission = request.uri().path().ends_with("Submit");
                let body = axum::body::Body::new(request.into_body());
                axum::body::to_bytes(body, usize::MAX).await.unwrap();
                if is_submission {
                    begun.fetch_add(1, SeqCst);
                    std::future::pending::<()>().await;
                }
                Ok(Response::new(Body::empty()))
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn r6_5_orders_wait_behind_no_submission_however_long_it_takes_to_be_carried_out() {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn fallow_store::Store> =
            Arc::new(fallow_store::SledStore::open(dir.path()).unwrap());
        let operators = Arc::new(Operators::open(store.clone()).unwrap());
        let stuck = Stuck::default();
        let guard = Guard::new("right", operators, Arc::new(AuditLog::open(store).unwrap()));
        let guarded = guard.around(stuck.clone());
        let call = |method: &str| {
            let request = Request::post(format!("http://h/fallow.operator.v1.Operator/{method}"))
                .header("authorization", "Bearer right");
            let body = axum::body::Body::from(&[0, 0, 0, 0, 1, 7][..]);
            guarded.clone().call(request.body(Body::new(body)).unwrap())
        };
        let mut submissions = Vec::new();
        for _ in 0..6 {
            let mut submission = call("Submit");
            assert!((&mut submission).now_or_never().is_none());
            submissions.push(submission);
        }
        assert_eq!(stuck.begun.load(SeqCst), 4, "no more are carried out at once");
        for method in ["SignDocuments", "ChangeGroups"] {
            let answer = call(method).now_or_never().expect("it waits for nothing").unwrap();
            assert!(answer.headers().get("grpc-status").is_none(), "{method}");
        }
    }

    #[tokio::test]
    async fn r6_10_long_texts_of_json_become_messages_in_turn_and_short_ones_at_once() {
        let share = Memory::default().share(&Caller::Owner);
        let turns = Turns::default();
        turns.of(&share, None);
        let mut held = Vec::new();
        while let Some(turn) = turns.turn(SHORT + 1).now_or_never() {
            held.push(turn.unwrap());
        }
        assert_eq!(held.len(), 4);
        assert!(turns.turn(SHORT).now_or_never().expect("it waits for nothing").is_none());
        // One that is carried out keeps its turn until then, and waits for none of these. Before it came it
        // had as much room as it could need.
        let (long, room) = (Turns::default(), Room::default());
        lock(&room).0 = Some(share.read(CallKind::Long, 64 << 20).await.unwrap());
        long.of(&share, Some((CallKind::Long, room.clone())));
        long.made(long.turn(10).await);
        assert!(lock(&room).1.is_some());
        assert_eq!(share.taken(), 10);
        drop(lock(&room).0.take());
        assert_eq!(share.taken(), 0);
        turns.made(held.pop());
        drop(turns.turn(SHORT + 1).now_or_never().expect("one has ended"));
    }
}
