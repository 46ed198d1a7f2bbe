//! A call as telemetry and the audit log see it.

use fallow_telemetry::propagation;
use tonic::Request;
use tracing::Span;

use super::auth::AUTHOR;
use crate::audit::Actor;
use crate::audit::wire::address_of;
use crate::document::Author;

/// A method with its service, as OpenTelemetry names spans of calls.
pub(super) fn full_name(method: &str) -> String {
    format!("fallow.operator.v1.Operator/{method}")
}

/// A code as gRPC's text and OpenTelemetry have it: `INVALID_ARGUMENT`.
pub(super) fn code_name(code: tonic::Code) -> String {
    let mut name = String::new();
    for (at, letter) in format!("{code:?}").chars().enumerate() {
        if at > 0 && letter.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

/// The codes that mean a failure of the server to OpenTelemetry.
pub(super) fn is_own_failure(code: tonic::Code) -> bool {
    use tonic::Code;
    matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    )
}

/// The span of a call, in the caller's trace.
pub(super) fn span_of<T>(request: &Request<T>, method: &'static str) -> Span {
    let name = full_name(method);
    let span = tracing::info_span!(
        "operator",
        "otel.name" = name,
        "otel.kind" = "server",
        "otel.status_code" = tracing::field::Empty,
        "rpc.system.name" = "grpc",
        "rpc.method" = name,
        "rpc.response.status_code" = tracing::field::Empty,
    );
    propagation::extract_metadata(&span, request.metadata());
    span
}

/// Who calls, for the audit record; in which trace, for the agents' spans.
pub(super) fn author_of<T>(request: &Request<T>, span: &Span) -> Author {
    let text =
        |key: &str| request.metadata().get(key).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let name: String = text(AUTHOR).chars().filter(|c| !c.is_control()).take(128).collect();
    let name = if name.is_empty() { "operator".to_owned() } else { name };
    // Without telemetry here the caller's own context still reaches the agents.
    let received: String = text("traceparent").chars().take(64).collect();
    let traceparent = propagation::traceparent_of(span).unwrap_or(received);
    Author { actor: Actor::Operator(name), from: address_of(request), traceparent, ..Author::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_methods_are_named_as_opentelemetry_does() {
        assert_eq!(code_name(tonic::Code::Ok), "OK");
        assert_eq!(code_name(tonic::Code::InvalidArgument), "INVALID_ARGUMENT");
        assert_eq!(full_name("SetShares"), "fallow.operator.v1.Operator/SetShares");
        assert!(is_own_failure(tonic::Code::Internal) && !is_own_failure(tonic::Code::NotFound));
    }
}
