//! What went wrong, as HTTP says it: gRPC's code as a status, and a body that names it.

use axum::body::Body;
use axum::http::{HeaderValue, Method, Response, StatusCode, header};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::operator::code_name;

/// Content of answers.
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Of answers line by line.
pub(super) const LINES: HeaderValue = HeaderValue::from_static("application/x-ndjson");

/// The HTTP status of a code, as Google's mapping has it, but that a method which does not exist is not
/// found.
pub(super) const fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound | Code::Unimplemented => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::Cancelled | Code::Unknown | Code::Internal | Code::DataLoss => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}

/// `{code, message}`.
pub(super) fn error(status: &Status) -> Value {
    json!({ "code": code_name(status.code()), "message": status.message() })
}

/// The answer to a request that came to nothing.
pub(super) fn answer(status: &Status) -> Response<Body> {
    let mut answer = answer_of(JSON, Body::from(format!("{}\n", error(status))));
    *answer.status_mut() = http_status(status.code());
    if status.code() == Code::Unauthenticated {
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    answer
}

/// The answer to whoever asks in another way than with this method of HTTP.
pub(super) fn only(method: &Method) -> Response<Body> {
    let mut answer = answer(&Status::unimplemented(format!("ask with {method}")));
    *answer.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    if let Ok(allowed) = HeaderValue::from_str(method.as_str()) {
        answer.headers_mut().insert(header::ALLOW, allowed);
    }
    answer
}

/// An answer that nobody on the way keeps: it may be a secret, and soon is another.
pub(super) fn answer_of(content: HeaderValue, body: Body) -> Response<Body> {
    let mut answer = Response::new(body);
    answer.headers_mut().insert(header::CONTENT_TYPE, content);
    answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
