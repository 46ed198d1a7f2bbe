//! What a host keeps that was a copy of another one (R6.10).

use std::collections::BTreeMap;

use fallow_domain::{DocumentVersion, ProjectId, Share};
use serde_json::Value;

use crate::accounts::Ledger;
use crate::record::restore;
use crate::separate;
use crate::state::{Identity, State};

/// One record of every kind; the project is the owner's, or of the coordinator's document.
fn stored(from_document: bool) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut stored: BTreeMap<String, Value> = serde_json::from_str(include_str!("stored.json")).unwrap();
    stored.get_mut("project/0000000003").unwrap()["from_document"] = from_document.into();
    stored.into_iter().map(|(key, value)| (key.into_bytes(), format!("1{value}").into_bytes())).collect()
}

/// The records as they are afterwards.
fn separated(mut stored: BTreeMap<Vec<u8>, Vec<u8>>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    for change in separate(stored.clone()).unwrap() {
        match change.value {
            Some(value) => stored.insert(change.key, value),
            None => stored.remove(&change.key),
        };
    }
    stored
}

fn restored(stored: &BTreeMap<Vec<u8>, Vec<u8>>) -> State {
    let (mut state, mut ledger) = (State::default(), Ledger::default());
    for (key, value) in stored {
        restore(&mut state, &mut ledger, key, value).unwrap();
    }
    state
}

#[test]
fn r6_10_a_host_that_was_a_copy_keeps_its_owners_word_and_projects_and_nothing_that_was_given_to_the_first() {
    let before = restored(&stored(false));
    let after = separated(stored(false));
    assert_eq!(after.keys().collect::<Vec<_>>(), [&b"meta"[..], b"project/0000000003"]);
    let state = restored(&after);
    let (was, is) = (&before.host, &state.host);
    assert_eq!((&is.owner, &is.declined), (&was.owner, &was.declined));
    assert_eq!((is.next_job, is.next_project), (was.next_job, was.next_project));
    // What the coordinator permits holds until it says it anew; its projects come with that.
    let [old, new] = [was, is].map(|host| host.document.clone().unwrap());
    assert_eq!((new.version, new.projects.len()), (DocumentVersion(0), 0));
    assert_eq!(new.preferences, old.preferences);
    assert!(is.document_refused.is_none());

    let id = ProjectId(3);
    let (was, is) = (&before.projects[&id], &state.projects[&id]);
    assert_eq!((&is.url, &is.account_key, &is.directory), (&was.url, &was.account_key, &was.directory));
    assert_eq!((is.chosen_share, is.share), (was.chosen_share, Share::new(30.0).unwrap()));
    // To the project it is a host that was never seen.
    assert_eq!((is.hostid, is.rpc_seqno, is.identity.clone()), (0, 0, Identity::default()));
    assert!(is.code_sign_key.is_none() && is.scheduler_urls.is_empty() && is.apps.is_empty());
}

#[test]
fn r6_10_a_host_that_was_a_copy_has_the_fleets_projects_only_when_a_document_gives_them_again() {
    let after = separated(stored(true));
    assert_eq!(after.keys().collect::<Vec<_>>(), [&b"meta"[..]]);
    // To say it twice changes nothing more.
    assert_eq!(separated(after.clone()), after);
    assert_eq!(separated(BTreeMap::new()).len(), 1);
}

#[test]
fn r6_10_what_is_wrong_with_the_jobs_of_the_first_keeps_no_copy_from_being_rid_of_them() {
    let mut damaged = stored(false);
    for (key, value) in &mut damaged {
        if !key.starts_with(b"meta") && !key.starts_with(b"project/") {
            *value = b"1{".to_vec();
        }
    }
    assert_eq!(separated(damaged).len(), 2);
    let mut damaged = stored(false);
    damaged.insert(b"meta".to_vec(), b"1{".to_vec());
    assert!(separate(damaged).is_err(), "the owner's word is not lost without a word");
}

#[test]
fn r6_5_a_host_that_was_a_copy_keeps_no_preferences_that_were_on_trial() {
    let mut first = stored(false);
    let meta: Value = serde_json::from_slice(&first[&b"meta"[..]][1..]).unwrap();
    let mut on_trial = meta.clone();
    on_trial["document"]["preferences"]["leave_in_memory"] = true.into();
    on_trial["trial"] = serde_json::json!({
        "before": meta["document"], "used": 0, "acknowledged": false, "taken_over": [],
        "stake": { "tasks": false, "aborted": false, "projects": false, "accepted": false, "failed": false },
    });
    first.insert(b"meta".to_vec(), format!("1{on_trial}").into_bytes());
    assert!(restored(&first).host.preferences().leave_in_memory);
    let state = restored(&separated(first));
    assert!(!state.host.preferences().leave_in_memory && state.host.trial.is_none());
}
