//! The audit log: what operators ask of it, and how it says what they did (R6.5, R6.10).

use fallow_domain::Instant;
use fallow_proto::operator::v1 as wire;
use fallow_work_server::{NewAppVersion, ProjectInfo, SubmissionPiece};
use tonic::Status;

use super::incoming::Received;
use crate::audit::Action;
use crate::audit::log::{PAGE_MAX, Page, Query};
use crate::audit::wire::to_wire;

/// Which entries are asked for.
pub(super) fn query(request: wire::ListAuditRequest) -> Result<Query, Status> {
    let wire::ListAuditRequest { after, limit, action, actor, since_micros } = request;
    let action = match action.as_str() {
        "" => None,
        words => Some(Action::from_words(words).ok_or_else(|| {
            let known: Vec<_> = Action::ALL.iter().map(|action| action.words()).collect();
            Status::invalid_argument(format!(
                "no action is called {words:?} (there is: {})",
                known.join(", ")
            ))
        })?),
    };
    let limit = if limit == 0 { PAGE_MAX } else { limit as usize };
    let since = Some(Instant::from_micros(since_micros)).filter(|since| *since > Instant::EPOCH);
    Ok(Query { after, limit, action, actor, since })
}

/// The answer.
pub(super) fn page(page: Page) -> wire::ListAuditReply {
    let Page { entries, more, head } = page;
    wire::ListAuditReply {
        entries: entries.into_iter().map(to_wire).collect(),
        more,
        head_sequence: head.sequence,
        head_hash: head.hash.to_hex(),
    }
}

/// Settings of a project, those of these keys, as operators write them.
pub(super) fn said(info: &ProjectInfo, changes: &[(String, String)]) -> String {
    let is_changed = |key: &str| changes.iter().any(|(changed, _)| changed == key);
    let settings = info.settings.list().into_iter().filter(|(key, _)| is_changed(key));
    settings.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

/// A version of an application.
pub(super) fn version(received: &Received) -> String {
    let NewAppVersion { application, version, platform, .. } = &received.version;
    app_version(&received.project, application, *version, platform)
}

/// A version of an application that comes.
pub(super) fn announced(announced: &wire::AddAppVersionRequest) -> String {
    let wire::AddAppVersionRequest { project, application, version, platform, .. } = announced;
    app_version(project, application, *version, platform)
}

fn app_version(project: &str, application: &str, version: u32, platform: &str) -> String {
    let (major, minor) = (version / 100, version % 100);
    // As `fallow app add --version` takes it: 1.0, 1.7 and 1.07.
    let number =
        if minor % 10 == 0 { format!("{major}.{}", minor / 10) } else { format!("{major}.{minor:02}") };
    format!("{application} {number} of project {project}, for {platform}")
}

/// A submission, or a piece of one.
pub(super) fn piece(piece: &SubmissionPiece) -> String {
    let SubmissionPiece { key, total, offset, workunits, .. } = piece;
    let key = if key.is_empty() { String::new() } else { format!(", key {key}") };
    let last = offset.saturating_add(workunits.len() as u64);
    format!("workunits {} to {last} of {total}{key}", offset.saturating_add(1))
}
