//! What is left of a client's records when its host becomes another one (R6.10): it was a copy of a host that
//! goes on, and is to have nothing of that one's.
//!
//! The owner's word stays: his limits, the projects of the fleet that he declined, and those that he attached
//! himself, as just attached, with the account and the share that he gave them. Of the coordinator's document
//! what it permits stays, as of no version, until one comes for the new host; its projects come with that,
//! and accounts in them. Jobs, files, what projects said, and all that was counted and learned are the first
//! host's, and go.

use fallow_domain::{DocumentVersion, FleetDocument, Instant, ProjectAssignment, ResourceTypes, Share};

use crate::Change;
use crate::accounts::Ledger;
use crate::record::{self, Record, RestoreError};
use crate::state::{Meta, Project, State};

/// What is to be changed in a client's records, in one batch, so that they are those of a host that has
/// nothing of the one that it was a copy of.
///
/// # Errors
/// [`RestoreError`] for a record of what stays that is newer than this program or cannot be read.
pub fn separate(records: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<Vec<Change>, RestoreError> {
    let (mut was, mut ledger) = (State::default(), Ledger::default());
    let mut changes = Vec::new();
    for (key, value) in records {
        // No other is read: what is wrong with it goes with it.
        if key == b"meta" || key.starts_with(b"project/") {
            record::restore(&mut was, &mut ledger, &key, &value)?;
        }
        changes.push(Change { key, value: None });
    }
    let (mut is, ledger) = (State::default(), Ledger::default());
    is.host = meta(&was.host).into();
    for project in was.projects.values().filter(|project| !project.from_document) {
        is.projects.insert(attached_anew(project));
    }
    let kept = is.projects.keys().map(|id| Record::Project(*id));
    changes.extend([Record::Meta].into_iter().chain(kept).map(|record| record.change(&is, &ledger)));
    Ok(changes)
}

fn meta(was: &Meta) -> Meta {
    // Not what a version permits that may yet be gone back from.
    let confirmed = was.trial.as_ref().map(|trial| &trial.before).or(was.document.as_ref());
    let permitted = confirmed.map(|document| FleetDocument {
        version: DocumentVersion(0),
        content: String::new(),
        projects: Vec::new(),
        preferences: document.preferences.clone(),
    });
    Meta {
        // Numbers are not given out twice: what lies on the disk may bear them.
        next_project: was.next_project,
        next_job: was.next_job,
        owner: was.owner.clone(),
        document: permitted,
        document_applied_at: Instant::EPOCH,
        document_refused: None,
        declined: was.declined.clone(),
        fleet: was.fleet.clone(),
        trial: None,
        rolled_back: Vec::new(),
        snoozed_until: was.snoozed_until,
        draws: 0,
    }
}

fn attached_anew(was: &Project) -> Project {
    let wanted = ProjectAssignment {
        name: was.name.clone(),
        url: was.url.clone(),
        account_key: was.account_key.clone(),
        share: was.chosen_share.unwrap_or(Share::DEFAULT),
        code_sign_key: None,
        without: ResourceTypes::default(),
    };
    let chosen_share = was.chosen_share;
    Project { chosen_share, ..Project::attached(was.id, &wanted, was.directory.clone(), false) }
}
