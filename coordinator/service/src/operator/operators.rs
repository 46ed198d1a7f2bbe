//! Operators with tokens of their own: what administrators ask of them (R6.10).

use fallow_daemon::clock;
use fallow_domain::Duration;
use fallow_proto::operator::v1 as wire;
use fallow_tls::{AccessString, Purpose};
use fallow_work_server::ProjectServer;
use tonic::Status;

use super::status;
use crate::document::Author;
use crate::roles::{Operator, OperatorTerms, Operators, Role};

/// The life of a token where none is asked for.
const LIFE: Duration = Duration::from_hours(90 * 24);

/// Makes one, and what he reaches the coordinator by.
pub(super) fn create(
    operators: &Operators,
    author: &Author,
    projects: &ProjectServer,
    access: &AccessString,
    request: wire::CreateOperatorRequest,
) -> Result<wire::CreateOperatorReply, Status> {
    let role = role(request.role())?;
    let wire::CreateOperatorRequest { name, projects: named, life_micros, .. } = request;
    let life = if life_micros == 0 { LIFE } else { Duration::from_micros(life_micros) };
    let hosted: Vec<_> = projects.projects().into_iter().map(|info| info.name).collect();
    let terms = OperatorTerms { name, role, projects: named, life };
    let made = operators.create(author, clock::now(), terms, &hosted);
    let (secret, operator) = made.map_err(|error| status::of_operator(&error))?;
    tracing::info!(name = %operator.name, %role, by = author.actor.name(), "somebody became an operator");
    let access = AccessString { purpose: Purpose::Operator, secret, ..access.clone() };
    Ok(wire::CreateOperatorReply { operator: Some(to_wire(&operator)), access: access.reveal() })
}

/// All of them.
pub(super) fn list(operators: &Operators) -> wire::ListOperatorsReply {
    wire::ListOperatorsReply { operators: operators.list().iter().map(|one| to_wire(one)).collect() }
}

fn to_wire(operator: &Operator) -> wire::NamedOperator {
    let Operator { name, role, projects, made_at, made_by, expires_at, revoked_at } = operator;
    wire::NamedOperator {
        name: name.to_string(),
        role: match role {
            Role::Viewer => wire::OperatorRole::Viewer,
            Role::Submitter => wire::OperatorRole::Submitter,
            Role::Operator => wire::OperatorRole::Operator,
            Role::Administrator => wire::OperatorRole::Administrator,
        }
        .into(),
        projects: projects.clone(),
        made_at_micros: made_at.as_micros(),
        made_by: made_by.clone(),
        expires_at_micros: expires_at.as_micros(),
        revoked_at_micros: revoked_at.map_or(0, |at| at.as_micros()),
    }
}

fn role(role: wire::OperatorRole) -> Result<Role, Status> {
    match role {
        wire::OperatorRole::Viewer => Ok(Role::Viewer),
        wire::OperatorRole::Submitter => Ok(Role::Submitter),
        wire::OperatorRole::Operator => Ok(Role::Operator),
        wire::OperatorRole::Administrator => Ok(Role::Administrator),
        wire::OperatorRole::Unspecified => Err(Status::invalid_argument(
            "the request names no role that is known here (there is: viewer, submitter, operator, administrator)",
        )),
    }
}
