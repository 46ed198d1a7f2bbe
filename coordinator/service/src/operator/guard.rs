//! Who may call what: looked at before anything of a request but its head is read (R6.10).
//!
//! A call shows a secret. It is the coordinator's own token, an operator's, or nobody's; what an operator may
//! call is [`crate::roles::rights`]' matter. Whoever is refused hears why, and it is in the audit log, so
//! many times an hour. What depends on what a request says, such as its project, its handler asks of the
//! [`Caller`] that is handed on with it.
//!
//! A call of an operator ends when his token does: it is given up where it waits, so that an upload of hours
//! does not outlive a revocation. What it has begun to change by then is changed whole.

use std::borrow::Cow;
use std::convert::Infallible;
use std::future::{Future, poll_fn, ready};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Bytes, HttpBody};
use bytes::BytesMut;
use fallow_daemon::{clock, lock};
use fallow_proto::operator::v1::operator_server::SERVICE_NAME;
use fallow_tls::{AccessString, Purpose};
use fallow_work_server::connections::ConnectionHandle;
use hyper::HeaderMap;
use hyper::body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tonic::transport::server::TcpConnectInfo;
use tower::Service;

use super::memory::{CallKind, Kept, Memory, Share};
use super::metered::{LONGEST, Metered, Room};
use super::pace::LONG;
use super::{IsPaced, Paced, Taken, Turns, status};
use crate::audit::{Action, Actor, AuditLog, Record};
use crate::kept::keeping;
use crate::roles::registry::Admitted;
use crate::roles::rights::{self, Right};
use crate::roles::{Caller, Operators, Refusal, Role};
use crate::secret::SecretHash;

/// Connections that tools with the coordinator's own token can keep at once; further ones are served as long
/// as there are places.
const CALLS: usize = 256;
/// The same of one operator.
const CALLS_EACH: usize = 16;

/// The method whose requests are many messages, each of them taken as it comes. Of every other long request
/// few of one operator's are carried out at once.
const STREAMED: &str = "AddAppVersion";

/// Lets those through who may.
#[derive(Clone)]
pub struct Guard(Arc<Gate>);

/// A service that only those reach who may.
#[derive(Clone)]
pub struct Guarded<S> {
    inner: S,
    gate: Arc<Gate>,
}

struct Gate {
    owner: SecretHash,
    operators: Arc<Operators>,
    audit: Arc<AuditLog>,
    memory: Memory,
}

/// Who is let through, and what ends it.
struct Entered {
    caller: Caller,
    admitted: Option<Admitted>,
}

impl Guard {
    /// For the coordinator's own token and these operators.
    #[must_use]
    pub fn new(token: &str, operators: Arc<Operators>, audit: Arc<AuditLog>) -> Self {
        let memory = Memory::default();
        Self(Arc::new(Gate { owner: SecretHash::of(token), operators, audit, memory }))
    }

    /// The service, for those who may call it.
    #[must_use]
    pub fn around<S>(&self, inner: S) -> Guarded<S> {
        Guarded { inner, gate: self.0.clone() }
    }
}

/// What is asked for at a path, as the table of rights calls it: a method of the operators' service by its
/// name alone, everything else by its whole path.
fn method_of(path: &str) -> &str {
    let own = path.strip_prefix('/').and_then(|path| path.strip_prefix(SERVICE_NAME)?.strip_prefix('/'));
    own.unwrap_or(path)
}

impl Gate {
    fn enter<T>(&self, method: &str, request: &Request<T>) -> Result<Entered, Status> {
        let from = address_of(request);
        let refused = |actor: Actor, action: Action, status: Status| {
            let record = Record::new(actor, &from, action, method);
            self.audit.refused(record.refused(status.message()));
            status
        };
        let given = request.headers().get("authorization").and_then(|value| value.to_str().ok());
        let Some(secret) = given.and_then(|value| value.strip_prefix("Bearer ")).map(secret_of) else {
            let text = "the call carries no operator's token (authorization: Bearer TOKEN)";
            return Err(refused(Actor::Stranger, Action::OperatorRefused, Status::unauthenticated(text)));
        };
        let entered = if self.owner.admits(&secret) {
            Entered { caller: Caller::Owner, admitted: None }
        } else if let Some(admitted) = self.operators.find(&secret) {
            Entered { caller: Caller::Named(admitted.operator.clone()), admitted: Some(admitted) }
        } else {
            let text = "the operator's token is wrong, or an old one: the right one is in operator.token in this coordinator's directory; name that file with --operator-token-file, or the directory with --dir; or ask an administrator for a token of your own (`fallow operators create`)";
            return Err(refused(Actor::Stranger, Action::OperatorRefused, Status::permission_denied(text)));
        };
        if let Err(refusal) = entered.caller.may_call(method, clock::now()) {
            let status = status::of_refusal(&refusal);
            return Err(match (&entered.caller, action_of(&refusal)) {
                (Caller::Named(operator), Some(action)) => {
                    refused(Actor::Named(operator.name.to_string()), action, status)
                }
                _ => status,
            });
        }
        if let Some(connection) = request.extensions().get::<ConnectionHandle>() {
            keep_place(connection, &entered.caller);
        }
        Ok(entered)
    }

    /// An operator's token came to its end while he was in a call.
    fn ended(&self, operator: &str, from: &str, method: &str, refusal: &Refusal) -> Status {
        let status = status::of_refusal(refusal);
        let action = action_of(refusal).unwrap_or(Action::OperatorRefused);
        let record = Record::new(Actor::Named(operator.to_owned()), from, action, method);
        self.audit.refused(record.refused(status.message()));
        status
    }
}

/// The secret in what is shown: the whole line that an operator was given, or the secret alone.
fn secret_of(shown: &str) -> Cow<'_, str> {
    match AccessString::parse(shown, Purpose::Operator) {
        Ok(access) => Cow::Owned(access.secret),
        Err(_) => Cow::Borrowed(shown.trim()),
    }
}

/// As what a refusal is recorded; none for what no operator may.
fn action_of(refusal: &Refusal) -> Option<Action> {
    match refusal {
        Refusal::Expired { .. } | Refusal::Revoked { .. } => Some(Action::OperatorRefused),
        Refusal::Role { .. } | Refusal::Project { .. } => Some(Action::NotAllowed),
        Refusal::Unknown { .. } => None,
    }
}

/// Whoever runs the fleet may keep a place that its members leave. Others are as members are.
fn keep_place(connection: &ConnectionHandle, caller: &Caller) {
    match caller {
        Caller::Owner => connection.authenticated_as_operator("operator", CALLS),
        Caller::Named(operator) => {
            let whose = format!("operator {}", operator.name);
            match operator.role {
                Role::Operator | Role::Administrator => {
                    connection.authenticated_as_operator(&whose, CALLS_EACH);
                }
                Role::Viewer | Role::Submitter => connection.authenticated_as(&whose, CALLS_EACH),
            }
        }
    }
}

/// Where a request comes from; empty where that is not known.
fn address_of<T>(request: &Request<T>) -> String {
    let address = request.extensions().get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr);
    address.map(|address| address.to_string()).unwrap_or_default()
}

impl<S: NamedService> NamedService for Guarded<S> {
    const NAME: &'static str = S::NAME;
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl<S> Service<Request<Body>> for Guarded<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Answering {
        let method = method_of(request.uri().path()).to_owned();
        let Entered { caller, admitted } = match self.gate.enter(&method, &request) {
            Ok(entered) => entered,
            Err(status) => return Box::pin(ready(Ok(status.into_http()))),
        };
        let from = address_of(&request);
        let share = self.gate.memory.share(&caller);
        request.extensions_mut().insert(caller);
        // Of one in JSON, what comes from outside is paced, and not what is made of it.
        let in_json = request.extensions().get::<IsPaced>().copied();
        if in_json.is_none() {
            request = request.map(|body| Body::new(Paced::new(body, &method)));
        }
        // The one that was found ready.
        let fresh = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, fresh);
        let reading = Reading::of(&method, in_json);
        let takes_turns = method != STREAMED;
        let answer = async move {
            let answer = within_share(inner, request, share, reading, takes_turns).await;
            Ok(answer.unwrap_or_else(Status::into_http))
        };
        match admitted {
            None => Box::pin(answer),
            Some(admitted) => Box::pin(until_over(answer, admitted, self.gate.clone(), from, method)),
        }
    }
}

/// How a request is read.
#[derive(Clone, Copy)]
enum Reading {
    /// Whole, before anything is made of it: it is short.
    Whole(CallKind),
    /// In gRPC's form, message by message.
    Messages(CallKind),
    /// The same, made of a text of so many bytes.
    Text(CallKind, usize),
    /// As it is asked for: of what stands beside the operators' service.
    Beside,
}

impl Reading {
    fn of(method: &str, in_json: Option<IsPaced>) -> Self {
        match in_json {
            _ if method.starts_with('/') => Self::Beside,
            _ if !LONG.contains(&method) => match rights::needed(method) {
                // Operators and what a change would mean can be as long as the lists are.
                _ if method.starts_with("List") || method.starts_with("Preview") => {
                    Self::Whole(CallKind::Look)
                }
                // It goes on for as long as its caller takes it.
                _ if method == "Backup" => Self::Whole(CallKind::Long),
                Some(Right::Operate | Right::Administer | Right::Own) => Self::Whole(CallKind::Change),
                _ => Self::Whole(CallKind::Look),
            },
            None => Self::Messages(Self::kind_of_long(method)),
            Some(IsPaced(length)) => {
                let length = length.and_then(|length| usize::try_from(length).ok()).unwrap_or(LONGEST);
                Self::Text(Self::kind_of_long(method), length.min(LONGEST))
            }
        }
    }

    /// Uploads of those who submit are in the way of no order.
    fn kind_of_long(method: &str) -> CallKind {
        match rights::needed(method) {
            Some(Right::Submit) => CallKind::Long,
            _ => CallKind::Change,
        }
    }

    fn kind(self) -> CallKind {
        match self {
            Self::Whole(kind) | Self::Messages(kind) | Self::Text(kind, _) => kind,
            Self::Beside => CallKind::Look,
        }
    }
}

/// The answer to a call that waits for its place, and for room for what is read and made; where it
/// `takes_turns`, its only message waits for that to be carried out. Of a call in JSON another answer is made
/// of it, which has what the call has taken ([`Kept`]) in its extensions.
async fn within_share<S>(
    mut inner: S,
    mut request: Request<Body>,
    share: Arc<Share>,
    reading: Reading,
    takes_turns: bool,
) -> Result<Response<Body>, Status>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    let place = share.place(reading.kind()).await?;
    let turns = request.extensions_mut().remove::<Turns>();
    let in_json = turns.is_some();
    let turns = turns.unwrap_or_default();
    let (head, body) = request.into_parts();
    let (mut making, mut room) = (None, None);
    let body = match reading {
        Reading::Whole(kind) => {
            turns.of(&share, None);
            // What is made of JSON on a thread keeps the place, also where the caller gives up.
            let whole = keeping(Arc::new((share.clone(), place.clone())), whole(body)).await?;
            // A change's answer is short: it waits behind no list.
            if kind == CallKind::Look {
                making = Some(share.make().await?);
            }
            Body::new(axum::body::Body::from(whole))
        }
        Reading::Messages(kind) => {
            let (metered, of_it) = Metered::new(body, share.clone(), kind, takes_turns);
            room = Some(of_it);
            Body::new(metered)
        }
        Reading::Text(kind, length) => {
            let of_it = Room::default();
            lock(&of_it).0 = Some(share.read(kind, length).await?);
            // Its values take much more than its length.
            turns.of(&share, takes_turns.then(|| (kind, of_it.clone())));
            room = Some(of_it);
            body
        }
        Reading::Beside => body,
    };
    // Work that goes on when the caller gives up keeps all of it until it is done.
    let kept = Arc::new((share.clone(), place.clone(), making.clone(), room));
    let call = inner.call(Request::from_parts(head, body));
    let Ok(mut answer) = keeping(kept, call).await;
    if in_json {
        let kept = Kept { share: share.clone(), place: place.clone(), making: making.clone() };
        answer.extensions_mut().insert(kept);
    }
    let answer = answer.map(|body| Body::new(Taken::new(body, share, place)));
    drop(making);
    Ok(answer)
}

/// All of a short request, in one piece: each of its frames may have a byte, and takes more by itself.
async fn whole(mut body: Body) -> Result<Bytes, Status> {
    let mut whole = BytesMut::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        if let Ok(bytes) = frame?.into_data() {
            whole.extend_from_slice(&bytes);
        }
    }
    Ok(whole.freeze())
}

/// The answer to an operator, or what ended his token meanwhile.
async fn until_over(
    answer: impl Future<Output = Result<Response<Body>, Infallible>> + Send,
    admitted: Admitted,
    gate: Arc<Gate>,
    from: String,
    method: String,
) -> Result<Response<Body>, Infallible> {
    let mut over: Pin<Box<dyn Future<Output = Status> + Send>> = Box::pin(async move {
        let name = admitted.operator.name.to_string();
        let refusal = admitted.over().await;
        gate.ended(&name, &from, &method, &refusal)
    });
    tokio::select! {
        answer = answer => answer.map(|answer| answer.map(|body| Body::new(UntilOver { body, over: Some(over) }))),
        status = &mut over => Ok(status.into_http()),
    }
}

/// The body of an answer to an operator, which ends when his token does.
struct UntilOver {
    body: Body,
    /// None once it is.
    over: Option<Pin<Box<dyn Future<Output = Status> + Send>>>,
}

impl HttpBody for UntilOver {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let Some(over) = &mut this.over else { return Poll::Ready(None) };
        if let Poll::Ready(status) = over.as_mut().poll(context) {
            this.over = None;
            let mut trailers = HeaderMap::new();
            return Poll::Ready(Some(match status.add_header(&mut trailers) {
                Ok(()) => Ok(Frame::trailers(trailers)),
                Err(status) => Err(status),
            }));
        }
        pin!(&mut this.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.over.is_none() || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Author;
    use crate::roles::OperatorTerms;
    use fallow_domain::Duration;

    /// A service whose answers begin, and then go on without a word.
    #[derive(Clone)]
    struct Endless;

    impl NamedService for Endless {
        const NAME: &'static str = "fallow.operator.v1.Operator";
    }

    impl Service<Request<Body>> for Endless {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<Body>) -> Self::Future {
            assert!(request.extensions().get::<Caller>().is_some(), "it is said who calls");
            let nothing = futures_util::stream::pending::<Result<Bytes, Infallible>>();
            ready(Ok(Response::new(Body::new(axum::body::Body::from_stream(nothing)))))
        }
    }

    fn guarded() -> (tempfile::TempDir, Arc<Operators>, Guarded<Endless>) {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn fallow_store::Store> =
            Arc::new(fallow_store::SledStore::open(dir.path()).unwrap());
        let operators = Arc::new(Operators::open(store.clone()).unwrap());
        let audit = Arc::new(AuditLog::open(store).unwrap());
        (dir, operators.clone(), Guard::new("right", operators, audit).around(Endless))
    }

    async fn call<S>(guarded: &mut Guarded<S>, path: &str, authorization: &str) -> Response<Body>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send + 'static,
    {
        let request = Request::post(format!("http://h{path}")).header("authorization", authorization);
        guarded.call(request.body(Body::empty()).unwrap()).await.unwrap()
    }

    fn code(answer: &Response<Body>) -> Option<tonic::Code> {
        Status::from_header_map(answer.headers()).map(|status| status.code())
    }

    const LIST_HOSTS: &str = "/fallow.operator.v1.Operator/ListHosts";

    #[tokio::test]
    async fn r6_10_a_call_without_a_token_or_of_no_method_is_refused() {
        use tonic::Code::{PermissionDenied, Unauthenticated, Unimplemented};
        let (_dir, _operators, mut guarded) = guarded();
        for (path, authorization, expected) in [
            (LIST_HOSTS, "Bearer right", None),
            (LIST_HOSTS, "Bearer wrong", Some(PermissionDenied)),
            (LIST_HOSTS, "Bearer ", Some(PermissionDenied)),
            (LIST_HOSTS, "right", Some(Unauthenticated)),
            (LIST_HOSTS, "", Some(Unauthenticated)),
            ("/fallow.operator.v1.Operator/x/ListHosts", "Bearer right", Some(Unimplemented)),
            ("/fallow.operator.v1.Operator/", "Bearer right", Some(Unimplemented)),
            ("/ListHosts", "Bearer right", Some(Unimplemented)),
        ] {
            let answer = call(&mut guarded, path, authorization).await;
            assert_eq!(code(&answer), expected, "{path} {authorization}");
        }
    }

    /// A service that reads its request to the end.
    #[derive(Clone)]
    struct Reading;

    impl NamedService for Reading {
        const NAME: &'static str = "fallow.operator.v1.Operator";
    }

    impl Service<Request<Body>> for Reading {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<Body>) -> Self::Future {
            Box::pin(async {
                let body = axum::body::Body::new(request.into_body());
                Ok(match axum::body::to_bytes(body, usize::MAX).await {
                    Ok(_) => Response::new(Body::empty()),
                    Err(error) => Status::from_error(error.into_inner()).into_http(),
                })
            })
        }
    }

    #[tokio::test]
    async fn r6_10_a_viewers_request_is_not_kept_however_long_it_is_said_to_be() {
        let (_dir, _operators, guarded) = guarded();
        let guarded = Guarded { inner: Reading, gate: guarded.gate };
        let request = |method: &str| {
            let path = format!("http://h/fallow.operator.v1.Operator/{method}");
            let message = [&[0][..], &(2_u32 << 20).to_be_bytes(), &vec![0; 2 << 20]].concat();
            let body = axum::body::Body::from(message);
            Request::post(path).header("authorization", "Bearer right").body(Body::new(body)).unwrap()
        };
        for (method, expected) in [("ListHosts", Some(tonic::Code::OutOfRange)), ("Submit", None)] {
            let answer = guarded.clone().call(request(method)).await.unwrap();
            assert_eq!(code(&answer), expected, "{method}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn r6_5_an_emergency_waits_behind_no_list_and_is_not_refused_for_the_answers_that_nobody_takes() {
        let (_dir, _operators, mut guarded) = guarded();
        let share = guarded.gate.memory.share(&Caller::Owner);
        // So many answers are there that no other list has room, and as many lists wait for it as may.
        let answers = share.made(1 << 30);
        let mut waiting = Vec::new();
        for _ in 0..63 {
            waiting.push(share.place(CallKind::Look).await.unwrap());
        }
        let list = call(&mut guarded, LIST_HOSTS, "Bearer right").await;
        assert_eq!(code(&list), Some(tonic::Code::ResourceExhausted));
        waiting.push(share.place(CallKind::Look).await.unwrap());
        let began = tokio::time::Instant::now();
        for method in ["SetPreferences", "RevokeHost", "OrderRollout", "SetShares"] {
            let path = format!("/fallow.operator.v1.Operator/{method}");
            assert_eq!(code(&call(&mut guarded, &path, "Bearer right").await), None, "{method}");
        }
        assert_eq!(began.elapsed(), std::time::Duration::ZERO);
        drop((answers, waiting));
    }

    /// A service that makes its answers on threads, each when it is let.
    #[derive(Clone)]
    struct Slow {
        begun: Arc<std::sync::atomic::AtomicUsize>,
        may_end: Arc<tokio::sync::Mutex<()>>,
    }

    impl NamedService for Slow {
        const NAME: &'static str = "fallow.operator.v1.Operator";
    }

    impl Service<Request<Body>> for Slow {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            let Self { begun, may_end } = self.clone();
            Box::pin(async move {
                let list = move || {
                    begun.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    drop(may_end.blocking_lock());
                };
                super::super::unblocked(list).await.unwrap();
                Ok(Response::new(Body::empty()))
            })
        }
    }

    #[tokio::test]
    async fn r6_10_lists_whose_callers_have_given_up_take_their_places_until_they_are_made() {
        use std::sync::atomic::Ordering::SeqCst;
        let (_dir, _operators, guarded) = guarded();
        let slow = Slow { begun: Arc::default(), may_end: Arc::default() };
        let mut guarded = Guarded { inner: slow.clone(), gate: guarded.gate };
        let share = guarded.gate.memory.share(&Caller::Owner);
        let held = slow.may_end.lock().await;
        // Each is given up as soon as it has begun, or waits where it cannot begin.
        for number in 1..=20 {
            let call = call(&mut guarded, LIST_HOSTS, "Bearer right");
            let begins = async {
                while slow.begun.load(SeqCst) < number.min(8) {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! { biased; _ = call => panic!("nothing ends"), () = begins => {} }
        }
        assert_eq!(slow.begun.load(SeqCst), 8, "no more are made at once");
        drop(held);
        // All of them end, and what they had is there again.
        for _ in 0..8 {
            drop(share.make().await.unwrap());
        }
        assert_eq!(code(&call(&mut guarded, LIST_HOSTS, "Bearer right").await), None);
        assert_eq!(slow.begun.load(SeqCst), 9);
    }

    #[tokio::test]
    async fn r6_10_submissions_whose_callers_have_given_up_take_their_places_until_they_are_done() {
        use std::sync::atomic::Ordering::SeqCst;
        const SUBMIT: &str = "/fallow.operator.v1.Operator/Submit";
        let (_dir, _operators, guarded) = guarded();
        let slow = Slow { begun: Arc::default(), may_end: Arc::default() };
        let mut guarded = Guarded { inner: slow.clone(), gate: guarded.gate };
        let held = slow.may_end.lock().await;
        for number in 1..=70 {
            let call = call(&mut guarded, SUBMIT, "Bearer right");
            let begins = async {
                while slow.begun.load(SeqCst) < number.min(64) {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! { biased; _ = call => panic!("nothing ends"), () = begins => {} }
        }
        // They are in the way of nothing else.
        let share = guarded.gate.memory.share(&Caller::Owner);
        drop((share.place(CallKind::Look).await.unwrap(), share.place(CallKind::Change).await.unwrap()));
        drop(held);
        drop(share.place(CallKind::Long).await.unwrap());
        assert_eq!(code(&call(&mut guarded, SUBMIT, "Bearer right").await), None);
        assert_eq!(slow.begun.load(SeqCst), 65, "no more were begun");
    }

    #[tokio::test]
    async fn r6_10_an_answer_that_goes_on_ends_when_the_token_is_revoked_with_the_reason() {
        let (_dir, operators, mut guarded) = guarded();
        let terms = OperatorTerms {
            name: "ann".into(),
            role: Role::Viewer,
            projects: Vec::new(),
            life: Duration::from_hours(1),
        };
        let by = Author::default();
        let (secret, _) = operators.create(&by, clock::now(), terms, &[]).unwrap();
        let answer = call(&mut guarded, LIST_HOSTS, &format!("Bearer {secret}")).await;
        assert_eq!(code(&answer), None, "it is let in");
        let mut body = pin!(answer.into_body());
        assert!(futures_util::poll!(poll_fn(|context| body.as_mut().poll_frame(context))).is_pending());
        operators.revoke(&by, "ann", clock::now()).unwrap();
        let frame = poll_fn(|context| body.as_mut().poll_frame(context));
        let frame = tokio::time::timeout(std::time::Duration::from_secs(120), frame).await;
        let trailers = frame.expect("it ends").unwrap().unwrap().into_trailers().unwrap();
        let status = Status::from_header_map(&trailers).unwrap();
        assert_eq!(status.code(), tonic::Code::PermissionDenied);
        assert!(status.message().contains("token of ann was revoked"), "{status}");
        let after = poll_fn(|context| body.as_mut().poll_frame(context)).await;
        assert!(after.is_none(), "nothing comes after it");
    }
}
