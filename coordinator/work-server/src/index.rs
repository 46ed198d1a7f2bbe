//! What follows from a workunit: its index entries and what it adds to the counts.
//!
//! Both are pure functions of the workunit, and a change writes the difference between before and after. So
//! no code path can forget an entry, and a test can compute all indexes anew and compare. So are the names
//! that its files have in the slot while it is open, which are counted by application: who adds a version
//! looks at them instead of all workunits.

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::Instant;
use fallow_store::Store;

use super::error::ProjectError;
use super::operator_types::{Counts, NewJobs};
use super::project::OWN_ACCOUNT;
use super::records::{Counters, Host, UnsentEntry};
use super::store_keys::Keys;
use super::txn::{Txn, decode, encode};
use super::workunit::{RetryBackoff, ServerState, Workunit, WorkunitState};

/// Workunits that are read at a time.
const PAGE: usize = 1_000;
/// What a count of a name is called in errors.
const OPEN_NAME: &str = "count of a file's name";

/// Reads a workunit. Jobs that were stored before they named an account get that of their host; of those who
/// had the account that all agents then had together nobody knows who computed, so they get none.
pub(crate) fn read(txn: &Txn<'_>, keys: &Keys, name: &str) -> Result<Option<Workunit>, ProjectError> {
    let mut workunit: Option<Workunit> = txn.get("workunit", &keys.workunit(name))?;
    let jobs = workunit.iter_mut().flat_map(|workunit| &mut workunit.jobs);
    for job in jobs.filter(|job| job.host != 0 && job.account == 0) {
        let host: Option<Host> = txn.get("host", &keys.host(job.host))?;
        job.account = host.map_or(0, |host| host.account);
        if job.account == OWN_ACCOUNT {
            job.account = 0;
        }
    }
    Ok(workunit)
}

/// When a workunit that failed is tried again, and how many agents are to be told then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryAt {
    pub(crate) at: Instant,
    /// The workunit's sequence number.
    pub(crate) workunit: u64,
    pub(crate) agents: u64,
}

impl RetryAt {
    /// As many agents are told as there are jobs; those that had a copy may be among them, so that as many
    /// more are told.
    pub(crate) fn of(workunit: &Workunit, at: Instant) -> Self {
        let agents = match counts(workunit).jobs_unsent {
            0 => 0,
            jobs => jobs + workunit.accounts().len() as u64,
        };
        Self { at, workunit: workunit.sequence, agents }
    }
}

/// Stores a workunit in place of `before`, with its index entries and counts.
pub(crate) fn write(
    txn: &mut Txn<'_>,
    keys: &Keys,
    before: Option<&Workunit>,
    after: &Workunit,
    now: Instant,
) -> Result<(), ProjectError> {
    let old = before.map(|workunit| entries(keys, workunit)).transpose()?.unwrap_or_default();
    let new = entries(keys, after)?;
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        txn.delete(key.clone());
    }
    for (key, value) in new {
        if old.get(&key) != Some(&value) {
            txn.put_raw(key, value);
        }
    }
    txn.put("workunit", keys.workunit(&after.name), after)?;
    let (old_names, new_names) = (before.map(open_names).unwrap_or_default(), open_names(after));
    for (is_output, name) in old_names.difference(&new_names) {
        count_name(txn, keys.open_name(&after.application, *is_output, name), |count| {
            count.saturating_sub(1)
        })?;
    }
    for (is_output, name) in new_names.difference(&old_names) {
        count_name(txn, keys.open_name(&after.application, *is_output, name), |count| count + 1)?;
    }
    let (minus, plus) = (before.map(counts).unwrap_or_default(), counts(after));
    note_new_jobs(txn, before, after, plus.jobs_unsent.saturating_sub(minus.jobs_unsent), now);
    if minus != plus {
        let mut counters: Counters = txn.get("counters", &keys.counters())?.unwrap_or_default();
        counters.counts = shift(counters.counts, minus, plus);
        txn.put("counters", keys.counters(), &counters)?;
    }
    Ok(())
}

/// Takes note of copies that now wait for a host: when somebody may have them ([`RetryAt`]). An error that
/// was reported late may put off copies that waited already.
fn note_new_jobs(txn: &mut Txn<'_>, before: Option<&Workunit>, after: &Workunit, jobs: u64, now: Instant) {
    let retry = after.retry_backoff(now);
    if jobs > 0 {
        let is_for_nobody = retry.is_some_and(|retry| retry.is_for_all);
        let agents = if is_for_nobody { 0 } else { jobs + after.accounts().len() as u64 };
        txn.note_new_jobs(NewJobs { jobs, agents });
    }
    let begins = |retry: &RetryBackoff| {
        before.and_then(|before| before.retry_backoff(now)).is_none_or(|before| before != *retry)
    };
    if let Some(retry) = retry.filter(|retry| jobs > 0 || begins(retry)) {
        txn.note_retry(RetryAt::of(after, retry.until));
    }
}

/// The index entries of a workunit.
fn entries(keys: &Keys, workunit: &Workunit) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, ProjectError> {
    let mut out = BTreeMap::new();
    let name = &workunit.name;
    if workunit.jobs.iter().any(|job| job.state == ServerState::Unsent) {
        let entry = UnsentEntry {
            workunit: name.clone(),
            application: workunit.application.clone(),
            accounts: workunit.having().map(|of| workunit.counts_as(of)).collect(),
            counts_voters: workunit.counts_voters(),
        };
        let key = keys.unsent(workunit.sequence);
        let value = encode("queue entry", &key, &entry)?;
        out.insert(key, value);
    }
    for job in workunit.jobs.iter().filter(|job| job.state == ServerState::InProgress) {
        out.insert(keys.held(job.host, name, job.index), Vec::new());
        if let Some(deadline) = job.deadline {
            out.insert(keys.deadline(deadline, name, job.index), Vec::new());
        }
    }
    if !workunit.to_compare().is_empty() {
        out.insert(keys.compare(name), Vec::new());
    }
    if matches!(workunit.state, WorkunitState::Validated { .. }) {
        out.insert(keys.validated(name), Vec::new());
    }
    let over = workunit.jobs.iter().all(|job| job.state == ServerState::Over);
    let decided = workunit.state != WorkunitState::Active && workunit.to_compare().is_empty();
    if over && decided && !workunit.files_deleted {
        out.insert(keys.cleanup(name), Vec::new());
    }
    Ok(out)
}

/// The names that files of a workunit have in the slot, while it is open; whether they are outputs.
pub(crate) fn open_names(workunit: &Workunit) -> BTreeSet<(bool, &str)> {
    if workunit.state != WorkunitState::Active {
        return BTreeSet::new();
    }
    let inputs = workunit.inputs.iter().map(|input| (false, input.open_name.as_str()));
    inputs.chain(workunit.outputs.iter().map(|output| (true, output.open_name.as_str()))).collect()
}

fn count_name(txn: &mut Txn<'_>, key: Vec<u8>, change: impl FnOnce(u64) -> u64) -> Result<(), ProjectError> {
    let count: Option<u64> = txn.get(OPEN_NAME, &key)?;
    match change(count.unwrap_or_default()) {
        0 => txn.delete(key),
        count => txn.put(OPEN_NAME, key, &count)?,
    }
    Ok(())
}

/// Counts the names of open workunits' files anew, in a store of an earlier version.
pub(crate) fn count_open_names(store: &dyn Store, keys: &Keys) -> Result<(), ProjectError> {
    let mut txn = Txn::new(store);
    let mut counters: Counters = txn.get("counters", &keys.counters())?.unwrap_or_default();
    if counters.has_open_names {
        return Ok(());
    }
    // A version that knows nothing of them may have been here since they were counted last.
    for (key, _) in txn.scan(&keys.all_open_names(), None, usize::MAX)? {
        txn.delete(key);
    }
    let (prefix, mut after) = (keys.workunits(), None);
    while let page = Txn::new(store).scan(&prefix, after.as_deref(), PAGE)?
        && !page.is_empty()
    {
        for (key, value) in page {
            let workunit: Workunit = decode("workunit", &key, &value)?;
            for (is_output, name) in open_names(&workunit) {
                count_name(&mut txn, keys.open_name(&workunit.application, is_output, name), |count| {
                    count + 1
                })?;
            }
            after = Some(key);
        }
    }
    counters.has_open_names = true;
    txn.put("counters", keys.counters(), &counters)?;
    let _ = store.apply_durable(txn.into_batch())?;
    Ok(())
}

/// What a workunit adds to the counts.
pub(crate) fn counts(workunit: &Workunit) -> Counts {
    let jobs = |state| workunit.jobs.iter().filter(|job| job.state == state).count() as u64;
    Counts {
        workunits: 1,
        workunits_validated: u64::from(matches!(workunit.state, WorkunitState::Validated { .. })),
        workunits_failed: u64::from(matches!(workunit.state, WorkunitState::Failed { .. })),
        jobs_unsent: jobs(ServerState::Unsent),
        jobs_in_progress: jobs(ServerState::InProgress),
        jobs_over: jobs(ServerState::Over),
    }
}

fn shift(total: Counts, minus: Counts, plus: Counts) -> Counts {
    let by = |total: u64, minus: u64, plus: u64| (total + plus).saturating_sub(minus);
    Counts {
        workunits: by(total.workunits, minus.workunits, plus.workunits),
        workunits_validated: by(
            total.workunits_validated,
            minus.workunits_validated,
            plus.workunits_validated,
        ),
        workunits_failed: by(total.workunits_failed, minus.workunits_failed, plus.workunits_failed),
        jobs_unsent: by(total.jobs_unsent, minus.jobs_unsent, plus.jobs_unsent),
        jobs_in_progress: by(total.jobs_in_progress, minus.jobs_in_progress, plus.jobs_in_progress),
        jobs_over: by(total.jobs_over, minus.jobs_over, plus.jobs_over),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fallow_domain::{Bytes, Duration};
    use fallow_store::{KeyRange, SledStore};
    use proptest::prelude::*;

    use super::*;
    use crate::operator_types::OutputSpec;
    use crate::workunit::tests::{report, workunit};
    use crate::workunit::{HostAccount, Outcome, Rules};

    /// All index entries as they follow from the workunits in the store.
    fn anew(store: &dyn Store, keys: &Keys) -> (BTreeMap<Vec<u8>, Vec<u8>>, Counts) {
        let (mut entries_of_all, mut total) = (BTreeMap::new(), Counts::default());
        let mut names = BTreeMap::<Vec<u8>, u64>::new();
        for (key, value) in store.scan(&KeyRange::prefix(&keys.workunits()), usize::MAX).unwrap() {
            let workunit: Workunit = crate::txn::decode("workunit", &key, &value).unwrap();
            total = shift(total, Counts::default(), counts(&workunit));
            entries_of_all.extend(entries(keys, &workunit).unwrap());
            for (is_output, name) in open_names(&workunit) {
                *names.entry(keys.open_name(&workunit.application, is_output, name)).or_default() += 1;
            }
        }
        entries_of_all.extend(names.into_iter().map(|(key, count)| {
            let value = encode(OPEN_NAME, &key, &count).unwrap();
            (key, value)
        }));
        (entries_of_all, total)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn the_indexes_kept_are_those_computed_anew(steps in prop::collection::vec((0_u64..3, 0_u64..6, 0_u8..4), 1..40)) {
            let dir = tempfile::tempdir().unwrap();
            let store = SledStore::open(dir.path()).unwrap();
            let keys = Keys::new("p");
            let rules = Rules { quorum: 2, initial_jobs: 2, max_error_jobs: 2, max_total_jobs: 5 };
            for (number, host, what) in steps {
                let mut txn = Txn::new(&store);
                let name = format!("w{number}");
                let before = read(&txn, &keys, &name).unwrap();
                let mut after = match before.clone() {
                    Some(workunit) => workunit,
                    None => {
                        let outputs = ["out", "also"].iter().take(number as usize);
                        let outputs = outputs.map(|name| OutputSpec { open_name: (*name).into(), max_bytes: Bytes(1) });
                        Workunit { name, sequence: number, outputs: outputs.collect(), ..workunit(rules) }
                    }
                };
                let now = Instant::EPOCH + Duration::from_secs(host as i64);
                let index = after.jobs.iter().find(|job| job.host == host).map(|job| job.index);
                let host_account = HostAccount { host: host + 1, account: host + 1, voter: host + 1 };
                let had = HostAccount { host, account: host, voter: host };
                match (what, index, after.unsent()) {
                    (0, _, Some(index)) => drop(after.send(index, host_account, now, 100, "p")),
                    (1, Some(index), _) => drop(after.report(index, had, report(Outcome::Success), now)),
                    (2, Some(index), _) => drop(after.report(index, had, report(Outcome::Error), now)),
                    (3, Some(index), _) => drop(after.give_up(index)),
                    _ => {}
                }
                write(&mut txn, &keys, before.as_ref(), &after, now).unwrap();
                prop_assert!(store.apply(txn.into_batch()).unwrap().is_applied());
            }
            let (expected, total) = anew(&store, &keys);
            let (workunits, counters) = (keys.workunits(), keys.counters());
            let kept: BTreeMap<_, _> = store.scan_prefix(b"project/p/").unwrap().into_iter()
                .filter(|(key, _)| !key.starts_with(&workunits) && *key != counters).collect();
            prop_assert_eq!(kept, expected);
            let kept: Counters = Txn::new(&store).get("counters", &counters).unwrap().unwrap();
            prop_assert_eq!(kept.counts, total);
        }
    }
}
