//! How a change goes out: by the plan for rollouts, or to all hosts at once.

use clap::Args;
use fallow_domain::DocumentVersion;
use fallow_proto::operator::v1::{
    GetDocumentRequest, GetOrganisationRequest, ListRolloutsRequest, Rollout, RolloutPhase,
};
use tonic::{Response, Status};

use super::connect::Client;
use super::table;
use super::warn;

/// Of commands that change documents.
#[derive(Args, Debug)]
pub(super) struct GoingOut {
    /// To all hosts at once, past the plan for rollouts (fallow rollout plan); what goes out now is taken
    /// back.
    #[arg(long)]
    pub(super) emergency: bool,
}

/// Says by which rollout a change goes out, if it is one. What cannot be asked is not worth a failure: the
/// change was made.
pub(super) async fn tell(client: &mut Client, rollout: u64) {
    if rollout == 0 {
        return tell_waiting(client).await;
    }
    let begun = newest(client).await.ok().flatten().filter(|begun| begun.number == rollout);
    if begun.as_ref().is_some_and(|begun| begun.phase() == RolloutPhase::Waiting) {
        return warn(&format!(
            "no host gets it yet: rollout {rollout} waits until somebody else approves it with `fallow rollout approve`"
        ));
    }
    let (hosts, waves) = begun.map_or((String::new(), String::new()), |begun| {
        let hosts = format!(" to {}", table::counted(begun.changes_hosts, "host"));
        (hosts, format!(" in waves of {}", begun.plan.unwrap_or_default().waves))
    });
    warn(&format!(
        "it goes out{hosts}{waves}, as rollout {rollout}: `fallow rollout watch` shows how it fares"
    ));
}

/// What is said of a change that changes nothing.
const UNCHANGED: &str = "nothing was changed: it is so already";

/// The same of a change that may have changed nothing.
pub(super) async fn tell_change(client: &mut Client, rollout: u64, unchanged: bool) {
    if unchanged {
        warn(UNCHANGED);
    }
    tell(client, rollout).await;
}

/// Names the rollout that an emergency which was just made has taken the place of: what it brought is gone,
/// and who began it may not know.
async fn tell_overtaken(client: &mut Client) {
    let Ok(Some(newest)) = newest(client).await else { return };
    if newest.phase() != RolloutPhase::TakenBack {
        return;
    }
    let Ok(reply) = client.get_document(GetDocumentRequest::default()).await else { return };
    let made = reply.into_inner().document.map(|document| document.version);
    // What waits for its signature has a version of its own, after the one that takes hosts back.
    let is_next = made == Some(newest.taken_back_by + 1) && waiting(client).await.is_some();
    if made == Some(newest.taken_back_by) || is_next {
        let (number, version) = (newest.number, DocumentVersion(newest.version));
        warn(&format!(
            "it took the place of rollout {number}, which {} began: what version {version} said is taken back with it",
            newest.begun_by
        ));
    }
}

/// The newest rollout, if there is one.
async fn newest(client: &mut Client) -> Result<Option<Rollout>, Status> {
    let listed = client.list_rollouts(ListRolloutsRequest { limit: 1 }).await?.into_inner();
    Ok(listed.rollouts.into_iter().next())
}

/// Says how the newest version goes out, unless all hosts are to have it at once.
pub(super) async fn tell_of_newest(client: &mut Client) {
    if waiting(client).await.is_some() {
        return tell_waiting(client).await;
    }
    if let Some(open) = newest(client).await.ok().flatten().filter(|newest| {
        matches!(newest.phase(), RolloutPhase::Waiting | RolloutPhase::Watching | RolloutPhase::Paused)
    }) {
        tell(client, open.number).await;
    }
}

/// The same of a version that has just begun to go out, as it waits for its signature no more.
pub(super) async fn tell_newest(client: &mut Client, version: DocumentVersion) {
    match rollout_of(version, newest(client).await) {
        Some(0) => warn("it goes to all hosts at once"),
        Some(rollout) => tell(client, rollout).await,
        None => {}
    }
}

/// The number of the rollout by which a version goes out, 0 where it goes to all hosts at once; none where
/// that could not be asked.
fn rollout_of(version: DocumentVersion, newest: Result<Option<Rollout>, Status>) -> Option<u64> {
    let rollout = newest.ok()?.filter(|rollout| rollout.version == version.0);
    Some(rollout.map_or(0, |rollout| rollout.number))
}

/// A change that reached so many hosts at once is told to have done so.
const MANY: u64 = 10;

/// Says to how many hosts a change went at once that was no emergency, if they were many and there is no
/// plan for rollouts; of an emergency, what it has taken the place of.
pub(super) async fn tell_at_once(client: &mut Client, rollout: u64, hosts: u64, how: &GoingOut) {
    if how.emergency && hosts > 0 {
        tell_overtaken(client).await;
    }
    if rollout != 0 || hosts < MANY || how.emergency || waiting(client).await.is_some() {
        return;
    }
    let listed = client.list_rollouts(ListRolloutsRequest { limit: 1 }).await.map(Response::into_inner);
    if listed.is_ok_and(|reply| reply.plan.unwrap_or_default().waves.is_empty()) {
        warn(&format!(
            "it went to {hosts} hosts at once: after `fallow rollout plan --waves 1,10%,100%` changes go out in waves, and are taken back where they harm"
        ));
    }
}

/// Says that a change waits until an organisation has signed it, if it does.
pub(super) async fn tell_waiting(client: &mut Client) {
    if let Some(version) = waiting(client).await {
        warn(&format!(
            "no host gets it yet: version {version} waits until it is signed: `fallow organisation sign --key FILE`"
        ));
    }
}

/// The version that waits until an organisation has signed it, if one does.
pub(super) async fn waiting(client: &mut Client) -> Option<DocumentVersion> {
    let request = GetOrganisationRequest { briefly: true };
    let organisation = client.get_organisation(request).await.ok()?.into_inner();
    organisation.waits.then_some(DocumentVersion(organisation.document_version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_5_that_a_version_goes_to_all_hosts_at_once_is_not_said_where_it_cannot_be_asked() {
        let rollout = Rollout { number: 3, version: 7, ..Rollout::default() };
        let of = |newest| rollout_of(DocumentVersion(7), newest);
        assert_eq!(of(Ok(Some(rollout.clone()))), Some(3));
        assert_eq!(of(Ok(Some(Rollout { version: 6, ..rollout }))), Some(0));
        assert_eq!(of(Ok(None)), Some(0));
        assert_eq!(of(Err(Status::unavailable("the coordinator is gone"))), None);
    }
}
