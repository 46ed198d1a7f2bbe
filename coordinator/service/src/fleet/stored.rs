//! Entries as they are stored.
//!
//! A format of our own: what agents and coordinators say to each other can change without a stored byte.
//! Version 1 was an entry as it had come over the link, in protobuf. Such a one is read like one that comes;
//! it is stored anew when the agent next says something of it.

use fallow_domain::agent_state::Entry;
use fallow_domain::{AgentId, DocumentVersion};
use fallow_proto::fleet::{entry, v1 as wire};
use fallow_store::{Format, KeyRange, Store, StoreError};
use prost::Message as _;

use super::enrol::AgentRecord;
use super::keys;
use super::membership::removed;

const ENTRY: Format = Format { name: "entry of an agent", version: 2, migrate };

pub(super) fn write(key: &[u8], entry: &Entry) -> Result<Vec<u8>, StoreError> {
    ENTRY.write(key, entry)
}

pub(super) fn read(key: &[u8], stored: &[u8]) -> Result<Entry, StoreError> {
    ENTRY.read(key, stored)
}

/// The version of the documents that each host of the fleet follows, as it said last. What somebody says who
/// was taken out of it counts for nothing.
///
/// # Errors
/// What the store says.
pub(crate) fn followed(store: &dyn Store) -> Result<Vec<DocumentVersion>, StoreError> {
    let mut versions = Vec::new();
    store.for_each(&KeyRange::prefix(keys::ENTRIES), &mut |key, value| {
        if let Some((id, "host")) = keys::split(keys::ENTRIES, &key)
            && is_member(store, &id)?
            && let Entry::Host(host) = read(&key, &value)?
        {
            versions.push(host.document_version);
        }
        Ok(())
    })?;
    Ok(versions)
}

fn is_member(store: &dyn Store, id: &AgentId) -> Result<bool, StoreError> {
    let key = keys::agent(id);
    let record: Option<AgentRecord> =
        store.get(&key)?.map(|value| keys::AGENT.read(&key, &value)).transpose()?;
    Ok(record.is_some_and(|record| removed(&record).is_none()))
}

fn migrate(found: u16, bytes: &[u8]) -> Result<Vec<u8>, String> {
    if found != 1 {
        return Err(format!("version {found} was never written"));
    }
    let wire = wire::Entry::decode(bytes).map_err(|error| error.to_string())?;
    let entry = entry::from_wire(wire).map_err(|error| error.to_string())?;
    serde_json::to_vec(&entry).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fallow_domain::agent_state::{Metrics, Phase, SuspendedBy};
    use fallow_domain::{AgentId, Duration, Fraction, Instant, Labels, MasterUrl, Share};
    use fallow_store::{Batch, SledStore, Store, no_migration};
    use fallow_tls::Authority;
    use wire::entry::Value;

    use super::*;
    use crate::document::Documents;
    use crate::fleet::enrol::{AgentRecord, Issuer};
    use crate::fleet::state::Position;
    use crate::fleet::totals::ProjectTotals;
    use crate::fleet::{Fleet, LinkSettings, keys};

    const URL: &str = "http://127.0.0.1:1/a/";
    const BEFORE: Format = Format { name: "entry of an agent", version: 1, migrate: no_migration };

    /// What an agent had told a coordinator that stored protobuf.
    fn told() -> [wire::Entry; 3] {
        let host = wire::HostState {
            hostname: "h".into(),
            cpus: 4,
            usable_cpus: 3,
            idle_cpus: 1,
            suspended_by: "owner".into(),
            document_version: 7,
            day: Some(wire::Metrics { idleness: Some(0.25), ..Default::default() }),
            ..Default::default()
        };
        let project = wire::ProjectState {
            url: URL.into(),
            name: "a".into(),
            share: 75.0,
            debt_seconds: -1.5,
            cpu_time_micros: 100,
            cpu_contested_micros: 50,
            min_rpc_time_micros: 60,
            min_rpc_reason: "it asked for it".into(),
            ..Default::default()
        };
        let task = wire::TaskState {
            project_url: URL.into(),
            name: "a_1".into(),
            phase: wire::TaskPhase::Running.into(),
            cpu_time_micros: 30,
            fraction_done: 0.5,
            ..Default::default()
        };
        let entry = |key: String, value| wire::Entry { key, value: Some(value) };
        [
            entry("host".into(), Value::Host(Box::new(host))),
            entry(format!("project/{URL}"), Value::Project(project)),
            entry(format!("task/{URL}/a_1"), Value::Task(task)),
        ]
    }

    fn store(entries: &[wire::Entry]) -> (tempfile::TempDir, Arc<dyn Store>) {
        let dir = tempfile::tempdir().unwrap();
        let store = SledStore::open(dir.path()).unwrap();
        let id = AgentId("A".into());
        let record = AgentRecord {
            key: "ab".repeat(32),
            enrolled_at: Instant::EPOCH,
            hostname: "h".to_owned(),
            labels: Labels::default(),
            token: String::new(),
            revoked: None,
            forgotten: false,
            copy_of: None,
        };
        let position = Position { epoch: "e".into(), sequence: 9, at: Instant::from_micros(12) };
        let (agent_key, position_key) = (keys::agent(&id), keys::position(&id));
        let mut batch = Batch::new()
            .put(agent_key.clone(), keys::AGENT.write(&agent_key, &record).unwrap())
            .put(position_key.clone(), keys::POSITION.write(&position_key, &position).unwrap());
        for entry in entries {
            let key = [keys::ENTRIES, b"A/", entry.key.as_bytes()].concat();
            batch = batch.put(key, BEFORE.wrap(&entry.encode_to_vec()));
        }
        assert!(store.apply(batch).unwrap().is_applied());
        (dir, Arc::new(store))
    }

    fn open(store: &Arc<dyn Store>) -> Result<Arc<Fleet>, String> {
        let documents = Arc::new(Documents::open(store.clone()).unwrap());
        let (authority, ..) = Authority::create(Instant::EPOCH).unwrap();
        let issuer = Arc::new(Issuer { authority, life: Duration::from_hours(1) });
        Fleet::open(store.clone(), documents, issuer, LinkSettings::default())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_store_from_when_entries_were_kept_in_protobuf_is_read() {
        let (_dir, store) = store(&told());
        let fleet = open(&store).unwrap();
        let host = fleet.hosts().next().unwrap();
        assert_eq!((host.applied_sequence, host.last_seen), (9, Instant::from_micros(12)));
        let state = host.state;
        assert_eq!((state.cpus, state.usable_cpus, state.idle_cpus), (4, 3, 1));
        assert_eq!(state.suspended_by, Some(SuspendedBy::Owner));
        let idleness = Some(Fraction::clamped(0.25));
        assert_eq!(state.metrics[0], Metrics { idleness, ..Metrics::default() });
        let [project] = &host.projects[..] else { panic!("{:?}", host.projects) };
        assert_eq!((project.url.as_str(), project.share), (URL, Share::new(75.0).unwrap()));
        assert_eq!(project.debt, Duration::from_millis(-1_500));
        assert_eq!(project.min_rpc_time, Some((Instant::from_micros(60), "it asked for it".to_owned())));
        let [task] = &host.tasks[..] else { panic!("{:?}", host.tasks) };
        assert_eq!((task.name.as_str(), task.phase), ("a_1", Some(Phase::Running)));
        let amounts = fleet.project_totals(&MasterUrl::parse(URL).unwrap());
        assert_eq!(amounts, ProjectTotals { cpu: 100, contested: 50, debt: -1_500_000 });
    }

    #[test]
    fn r6_10_the_jobs_of_hosts_that_are_no_members_leave_the_store_at_the_start_and_what_they_computed_counts_on()
     {
        let (_dir, store) = store(&told());
        let id = AgentId("A".into());
        let (key, prefix) = (keys::agent(&id), [keys::ENTRIES, b"A/"].concat());
        let record: AgentRecord = keys::AGENT.read(&key, &store.get(&key).unwrap().unwrap()).unwrap();
        let forgotten = AgentRecord { forgotten: true, ..record };
        let batch = Batch::new().put(key.clone(), keys::AGENT.write(&key, &forgotten).unwrap());
        assert!(store.apply(batch).unwrap().is_applied());
        // The second time there is nothing to remove.
        for _ in 0..2 {
            let fleet = open(&store).unwrap();
            let host = fleet.agent("A").unwrap().host();
            assert_eq!((host.state.cpus, host.projects.len(), host.tasks.len()), (4, 0, 0));
            let keys: Vec<_> = store.scan_prefix(&prefix).unwrap().into_iter().map(|(key, _)| key).collect();
            assert_eq!(keys, [[&prefix[..], b"host"].concat()]);
            let amounts = fleet.project_totals(&MasterUrl::parse(URL).unwrap());
            assert_eq!(amounts, ProjectTotals { cpu: 100, contested: 50, debt: 0 });
        }
    }

    #[test]
    fn r6_10_of_a_host_of_before_it_is_known_what_it_is_given_from_now_on() {
        let (_dir, store) = store(&told());
        let fleet = open(&store).unwrap();
        let agent = fleet.agent("A").unwrap();
        let was_given = || [6, 7, 8].map(|version| agent.was_given(DocumentVersion(version)));
        assert_eq!(was_given(), [None; 3]);
        assert!(agent.give(DocumentVersion(7)).is_some() && agent.give(DocumentVersion(7)).is_none());
        assert_eq!(was_given(), [None, Some(true), Some(false)]);
    }

    #[test]
    fn a_stored_entry_comes_back_as_it_was_and_is_no_message_of_the_link() {
        for wire in told() {
            let entry = entry::from_wire(wire).unwrap();
            let stored = write(b"k", &entry).unwrap();
            assert_eq!(read(b"k", &stored).unwrap(), entry);
            assert!(matches!(BEFORE.open(b"k", &stored), Err(StoreError::NewerFormat { found: 2, .. })));
        }
    }

    #[test]
    fn the_figures_of_a_stored_entry_come_back_to_the_last_bit() {
        let [_, project, _] = told();
        for share in (1..2_000).map(|n| f64::from(n) / 7.3) {
            let mut wire = project.clone();
            let Some(Value::Project(state)) = &mut wire.value else { panic!("{wire:?}") };
            state.share = share;
            let entry = entry::from_wire(wire).unwrap();
            assert_eq!(read(b"k", &write(b"k", &entry).unwrap()).unwrap(), entry, "{share:?}");
        }
    }

    #[test]
    fn an_old_entry_that_means_nothing_is_an_error_that_names_it() {
        let [host, mut project, _] = told();
        project.key = "project/http://127.0.0.1:1/b/".into();
        let (_dir, store) = store(&[host, project]);
        let error = open(&store).map(drop).unwrap_err();
        assert!(
            error.contains("project/http://127.0.0.1:1/b/") && error.contains("holds the value of"),
            "{error}"
        );
        assert!(
            read(b"k", &BEFORE.wrap(b"\xff")).unwrap_err().to_string().contains("migration from version 1")
        );
    }
}
