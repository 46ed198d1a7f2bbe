//! Errors as statuses. The message says what to do; the code decides a tool's exit status.

use fallow_daemon::causes;
use fallow_domain::Invalid;
use fallow_fleet::ChangeError;
use fallow_rollout::OrderError;
use fallow_store::StoreError;
use fallow_work_server::ProjectError;
use tonic::Status;

use crate::document::DocumentError;
use crate::fleet::MembershipError;
use crate::fleet::labels::{LabelError, UnknownHost};
use crate::fleet::token::TokenError;
use crate::roles::{OperatorError, Refusal};

pub(super) fn of_store(error: &StoreError) -> Status {
    let text = causes::line(error);
    tracing::error!(error = text, "the store failed");
    match error {
        StoreError::Full { .. } => Status::resource_exhausted(text),
        StoreError::NotCopied { .. } => Status::unavailable(text),
        StoreError::Corrupted { .. } | StoreError::BadValue { .. } | StoreError::NewerFormat { .. } => {
            Status::data_loss(text)
        }
        _ => Status::internal(text),
    }
}

pub(super) fn of_invalid(error: &Invalid) -> Status {
    Status::invalid_argument(error.to_string())
}

pub(super) fn of_document(error: &DocumentError) -> Status {
    match error {
        DocumentError::UnknownProject { .. } | DocumentError::UnknownVersion(_) => {
            Status::not_found(error.to_string())
        }
        DocumentError::Groups(ChangeError::UnknownGroup { .. }) => Status::not_found(error.to_string()),
        DocumentError::NamedTwice { .. }
        | DocumentError::Nothing
        | DocumentError::Invalid(_)
        | DocumentError::Groups(ChangeError::Files(_)) => Status::invalid_argument(error.to_string()),
        // It is his name that is wrong, not what he asks for.
        DocumentError::Order(OrderError::SamePerson { .. }) => Status::permission_denied(error.to_string()),
        DocumentError::Conflict(_)
        | DocumentError::NotSigned(_)
        | DocumentError::Urgent(_)
        | DocumentError::UnderWay { .. }
        | DocumentError::Order(_)
        | DocumentError::NoRollout(_) => Status::failed_precondition(error.to_string()),
        DocumentError::Overtaken { .. } => Status::aborted(error.to_string()),
        DocumentError::Serialise(_) => Status::internal(causes::line(error)),
        DocumentError::Store(error) => of_store(error),
    }
}

pub(super) fn of_label(error: &LabelError) -> Status {
    match error {
        LabelError::Host(error) => of_unknown_host(error),
        LabelError::Enrolled { .. } | LabelError::Revoked(_) => {
            Status::failed_precondition(error.to_string())
        }
        LabelError::Invalid(error) => of_invalid(error),
        LabelError::Store(error) => of_store(error),
    }
}

pub(super) fn of_unknown_host(error: &UnknownHost) -> Status {
    match error {
        UnknownHost::None(_) => Status::not_found(error.to_string()),
        UnknownHost::Several { .. } => Status::invalid_argument(error.to_string()),
    }
}

pub(super) fn of_token(error: &TokenError) -> Status {
    match error {
        TokenError::Absurd(text) => Status::invalid_argument(text),
        TokenError::Unknown(_) => Status::not_found(error.to_string()),
        TokenError::Random(_) => Status::internal(causes::line(error)),
        TokenError::Store(error) => of_store(error),
    }
}

pub(super) fn of_refusal(refusal: &Refusal) -> Status {
    match refusal {
        Refusal::Role { .. }
        | Refusal::Project { .. }
        | Refusal::Expired { .. }
        | Refusal::Revoked { .. } => Status::permission_denied(refusal.to_string()),
        Refusal::Unknown { .. } => Status::unimplemented(refusal.to_string()),
    }
}

pub(super) fn of_operator(error: &OperatorError) -> Status {
    match error {
        OperatorError::Invalid(error) => of_invalid(error),
        OperatorError::NoProject | OperatorError::ManyProjects | OperatorError::Projects(_) => {
            Status::invalid_argument(error.to_string())
        }
        OperatorError::Taken(_) => Status::already_exists(error.to_string()),
        OperatorError::UnknownProject { .. } | OperatorError::Unknown(_) => {
            Status::not_found(error.to_string())
        }
        OperatorError::Full => Status::failed_precondition(error.to_string()),
        OperatorError::Random(_) => Status::internal(causes::line(error)),
        OperatorError::Store(error) => of_store(error),
    }
}

pub(super) fn of_member(error: &MembershipError) -> Status {
    match error {
        MembershipError::Host(error) => of_unknown_host(error),
        MembershipError::Reason => Status::invalid_argument(error.to_string()),
        MembershipError::Connected(_) => Status::failed_precondition(error.to_string()),
        MembershipError::Store(error) => of_store(error),
    }
}

pub(super) fn of_project(error: &ProjectError) -> Status {
    match error {
        ProjectError::AccountClosed { .. } => Status::failed_precondition(error.to_string()),
        ProjectError::OfWorkunit { position, source } => {
            let inner = of_project(source);
            Status::new(inner.code(), format!("workunit {position} of the submission: {}", inner.message()))
        }
        ProjectError::UnknownProject { .. }
        | ProjectError::UnknownApplication { .. }
        | ProjectError::UnknownJob { .. } => Status::not_found(error.to_string()),
        ProjectError::ProjectExists { .. }
        | ProjectError::VersionExists { .. }
        | ProjectError::WorkunitExists { .. }
        | ProjectError::KeyTaken { .. } => Status::already_exists(error.to_string()),
        ProjectError::PieceTooEarly { .. } | ProjectError::KeyElsewhere { .. } => {
            Status::failed_precondition(error.to_string())
        }
        ProjectError::WrongSignature { .. } => Status::invalid_argument(error.to_string()),
        ProjectError::Invalid(error) => of_invalid(error),
        ProjectError::WorkunitTwice { .. } | ProjectError::OpenName(_) | ProjectError::TakesPlace { .. } => {
            Status::invalid_argument(error.to_string())
        }
        ProjectError::File { source, .. } => match source.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::IsADirectory => {
                Status::invalid_argument(causes::line(error))
            }
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                Status::resource_exhausted(causes::line(error))
            }
            _ => Status::internal(causes::line(error)),
        },
        ProjectError::Store(error) => of_store(error),
        ProjectError::Key { .. } | ProjectError::UnknownPolicy { .. } => {
            Status::data_loss(causes::line(error))
        }
    }
}
