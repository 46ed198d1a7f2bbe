//! A call as telemetry and the audit log see it.

use fallow_proto::operator::v1 as wire;
use fallow_telemetry::propagation;
use tonic::{Request, Status};
use tracing::Span;

use super::auth::AUTHOR;
use super::message;
use crate::audit::Actor;
use crate::audit::wire::address_of;
use crate::document::Author;
use crate::roles::Caller;

/// A method with its service, as OpenTelemetry names spans of calls.
pub(super) fn full_name(method: &str) -> String {
    format!("fallow.operator.v1.Operator/{method}")
}

/// A code as gRPC's text and OpenTelemetry have it: `INVALID_ARGUMENT`.
pub(crate) fn code_name(code: tonic::Code) -> String {
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

/// Who calls, as whoever let the call through says.
///
/// # Errors
/// A status where nobody did: such a call is refused, whatever it is.
pub(super) fn caller_of<T>(request: &Request<T>) -> Result<Caller, Status> {
    let caller = request.extensions().get::<Caller>().cloned();
    caller.ok_or_else(|| Status::internal("nobody has looked who calls, so that the call is refused"))
}

/// A document as this caller is told of it.
pub(super) fn document_for(caller: &Caller, mut reply: wire::DocumentReply) -> wire::DocumentReply {
    if !caller.sees_account_keys() {
        let projects = reply.document.iter_mut().flat_map(|document| &mut document.projects);
        projects.for_each(|project| project.account_key.clear());
    }
    reply
}

/// A project as this caller is told of it.
pub(super) fn project_for(caller: &Caller, mut project: wire::ProjectSummary) -> wire::ProjectSummary {
    if !caller.sees_account_keys() {
        project.account_key.clear();
    }
    project
}

/// What is said of who has the coordinator's own token: as his tool says, with an `@`, which no operator's
/// name has.
fn claimed(name: &str) -> Actor {
    let name: String = name.chars().filter(|c| !c.is_control()).take(128).collect();
    Actor::Operator(match name.as_str() {
        "" => "operator".to_owned(),
        name if name.contains('@') => name.to_owned(),
        name => format!("{name}@"),
    })
}

/// Who calls, for the audit record; in which trace, for the agents' spans.
pub(super) fn author_of<T>(request: &Request<T>, span: &Span) -> Author {
    let text =
        |key: &str| request.metadata().get(key).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let actor = match request.extensions().get::<Caller>() {
        Some(Caller::Owner) => claimed(text(AUTHOR)),
        Some(Caller::Named(operator)) => Actor::Named(operator.name.to_string()),
        None => Actor::Stranger,
    };
    // Without telemetry here the caller's own context still reaches the agents.
    let received: String = text("traceparent").chars().take(64).collect();
    let traceparent = propagation::traceparent_of(span).unwrap_or(received);
    let message = message::of(request);
    Author { actor, from: address_of(request), traceparent, message, ..Author::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_a_name_that_a_tool_claims_is_never_that_of_an_operators_token() {
        let named = |name: &str| match claimed(name) {
            Actor::Operator(name) => name,
            other => panic!("{other:?}"),
        };
        assert_eq!(["", "ann", "ann@lab", "a\nb"].map(named), ["operator", "ann@", "ann@lab", "ab@"]);
    }

    #[test]
    fn r6_10_a_call_that_nobody_has_looked_at_is_a_strangers_and_is_refused() {
        let mut request = Request::new(());
        request.metadata_mut().insert(AUTHOR, "ann@lab".parse().unwrap());
        assert_eq!(author_of(&request, &Span::none()).actor, Actor::Stranger);
        assert!(caller_of(&request).is_err());
        request.extensions_mut().insert(Caller::Owner);
        assert_eq!(author_of(&request, &Span::none()).actor, Actor::Operator("ann@lab".into()));
    }

    #[test]
    fn codes_and_methods_are_named_as_opentelemetry_does() {
        assert_eq!(code_name(tonic::Code::Ok), "OK");
        assert_eq!(code_name(tonic::Code::InvalidArgument), "INVALID_ARGUMENT");
        assert_eq!(full_name("SetShares"), "fallow.operator.v1.Operator/SetShares");
        assert!(is_own_failure(tonic::Code::Internal) && !is_own_failure(tonic::Code::NotFound));
    }
}
