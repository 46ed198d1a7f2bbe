//! Serves requests: each becomes a call of gRPC's service in this process.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, Version, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::any;
use fallow_proto::operator::v1::operator_server;
use tonic::{Code, Status};
use tower::Service;

use super::body::{self, Messages};
use super::contract::{self, Contract, DESCRIPTION};
use super::failure::{self, answer_of};
use super::openapi::openapi;
use crate::operator::{AUTHOR, Guard, Guarded, IsPaced, Kept, MESSAGE, Paced, Taken, Turns};

/// What of a request's head is said to the service: who calls, for whom, and in which trace.
const HANDED_ON: [&str; 5] = ["authorization", AUTHOR, MESSAGE, "traceparent", "tracestate"];

struct Api {
    contract: Contract,
    grpc: Router,
    description: Guarded<Description>,
}

/// Gives out the description of the API.
#[derive(Clone)]
struct Description(Bytes);

impl Service<Request<tonic::body::Body>> for Description {
    type Response = axum::http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<tonic::body::Body>) -> Self::Future {
        let text = tonic::body::Body::new(Body::from(self.0.clone()));
        ready(Ok(answer_of(failure::JSON, Body::empty()).map(|_| text)))
    }
}

/// What `grpc` serves, over HTTP/2, and the JSON API of its services beside it, whose description is for
/// those whom `guard` lets through.
pub fn router(contract: Contract, grpc: Router, guard: &Guard) -> Router {
    let description = format!("{:#}\n", openapi(&contract));
    let description = guard.around(Description(description.into()));
    let api = Arc::new(Api { contract, grpc: grpc.clone(), description });
    Router::new()
        .route(&format!("{}{{*method}}", contract::ROOT), any(serve).with_state(api))
        .fallback_service(grpc.layer(middleware::from_fn(over_http2)))
}

/// Refuses gRPC over HTTP/1.1: nothing of gRPC's speaks it, and its bounds are made for HTTP/2.
async fn over_http2(request: Request, next: Next) -> Response {
    if request.version() >= Version::HTTP_2 {
        return next.run(request).await;
    }
    let text = "there is nothing at this path over HTTP/1.1: the JSON API is at /v1/METHOD, and gRPC is spoken over HTTP/2";
    failure::answer(&Status::not_found(text))
}

async fn serve(State(api): State<Arc<Api>>, request: Request) -> Response {
    match answer(&api, request).await {
        Ok(answer) => answer,
        Err(status) => failure::answer(&status),
    }
}

async fn described(api: &Api, request: Request) -> Result<Response, Status> {
    if request.method() != Method::GET {
        return Ok(failure::only(&Method::GET));
    }
    let Ok(answer) = api.description.clone().call(request.map(tonic::body::Body::new)).await;
    match refused(&answer) {
        Some(status) => Err(status),
        None => Ok(answer.map(Body::new)),
    }
}

/// Why a call ended with the head of its answer.
fn refused<T>(answer: &axum::http::Response<T>) -> Option<Status> {
    Status::from_header_map(answer.headers()).filter(|status| status.code() != Code::Ok)
}

async fn answer(api: &Api, request: Request) -> Result<Response, Status> {
    if request.uri().path() == DESCRIPTION {
        return described(api, request).await;
    }
    let (head, body) = request.into_parts();
    if head.method != Method::POST {
        return Ok(failure::only(&Method::POST));
    }
    let path = head.uri.path();
    let method = api.contract.find(path);
    // What does not exist is asked for as well: so whoever has no token hears that, and nothing else.
    let name = path.strip_prefix(contract::ROOT).unwrap_or(path);
    let unknown = || format!("/{}/{name}", operator_server::SERVICE_NAME);
    let grpc_path = method.as_ref().map_or_else(unknown, contract::grpc_path);
    let turns = Turns::default();
    let (body, unread) = match &method {
        Some(method) => {
            let body = Body::new(Paced::new(body, method.name()));
            body::request(body, method.input(), method.is_client_streaming(), turns.clone())
        }
        None => body::unread(body),
    };
    let mut call = Request::new(body);
    *call.method_mut() = Method::POST;
    *call.version_mut() = Version::HTTP_2;
    *call.uri_mut() = grpc_path.parse().map_err(|_| Status::unimplemented("there is no such path"))?;
    for name in HANDED_ON {
        if let Some(value) = head.headers.get(name) {
            call.headers_mut().insert(name, value.clone());
        }
    }
    call.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    call.headers_mut().insert(header::TE, HeaderValue::from_static("trailers"));
    // The connection, and the address at its other end.
    *call.extensions_mut() = head.extensions;
    call.extensions_mut().insert(IsPaced(length_of(&head.headers)));
    call.extensions_mut().insert(turns);
    let Ok(mut answer) = api.grpc.clone().call(call).await;
    if let Some(status) = refused(&answer) {
        unread.pass_over().await;
        return Err(status);
    }
    let method = method.ok_or_else(|| Status::internal("a method that does not exist was answered"))?;
    let kept = answer.extensions_mut().remove::<Kept>();
    let kept = kept.ok_or_else(|| Status::internal("nobody has looked what the answer may take"))?;
    let mut messages = Messages::new(answer.into_body(), method.output());
    if method.is_server_streaming() {
        return Ok(answer_of(failure::LINES, messages.into_lines()));
    }
    let message = messages.only(&kept).await?;
    let Kept { share, place, making } = kept;
    let body = Taken::new(tonic::body::Body::new(Body::from(message)), share, place);
    drop(making);
    Ok(answer_of(failure::JSON, Body::new(body)))
}

/// How long a request says that it is.
fn length_of(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
