//! Labels of agents, and what each is sent for them (R6.4).
//!
//! What an agent was enrolled with stands in its record, what operators say of it beside that, and what it
//! reports follows from its own entry. Each source has its own names, or gives way to enrolment
//! ([`Labels::merged`]).

use std::sync::Arc;

use fallow_daemon::lock;
use fallow_domain::agent_state::HostState;
use fallow_domain::{Invalid, Labels};
use fallow_fleet::{ContentHash, DocumentSet, Effective, GroupName, LabelEdit, labels_of};
use fallow_store::{Batch, StoreError};

use super::{Agent, Fleet, Host, keys};
use crate::audit::{self, Action};
use crate::document::{Author, Release};

/// Labels that are not changed.
#[derive(Debug, thiserror::Error)]
pub enum LabelError {
    /// No such host, or several.
    #[error(transparent)]
    Host(#[from] UnknownHost),
    /// The label is one that the host was enrolled with.
    #[error(
        "{host} was enrolled with {label}: a label of enrolment cannot be changed; enrol the host anew with another"
    )]
    Enrolled {
        /// The host.
        host: String,
        /// The label.
        label: String,
    },
    /// The host was taken out of the fleet.
    #[error("{0} was taken out of the fleet: its labels are of no use any more, and were left as they are")]
    Revoked(String),
    /// A label that is none.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A host that cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum UnknownHost {
    /// There is none.
    #[error(
        "there is no host {0:?}: name one by its agent's id, its name or its host name, as `fallow hosts` lists them"
    )]
    None(String),
    /// There are several.
    #[error("{name:?} is the name of several hosts, of agents {agents}: name one by its agent's id")]
    Several {
        /// The name.
        name: String,
        /// Ids of some of their agents.
        agents: String,
    },
}

/// Ids that are said where a name is not unique.
const SAID: usize = 5;

impl Agent {
    /// The labels that it has now.
    pub(super) fn labels(&self) -> Labels {
        let unknown = HostState::default();
        let facts = labels_of(&self.id, lock(&self.state).host().unwrap_or(&unknown));
        Labels::merged(&self.enrolled_with, &lock(&self.given_labels), &facts)
    }

    /// Whether this is the name that it is listed by, or its host name.
    fn is_called(&self, host: &str) -> bool {
        self.name() == host || lock(&self.state).host().is_some_and(|said| said.hostname == host)
    }

    /// What it is asked for.
    pub(super) fn effective(&self, set: &DocumentSet) -> Effective {
        Effective::of(set, &self.labels())
    }
}

/// Labels in words.
pub(super) fn said(labels: &Labels) -> String {
    labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

/// What a host is asked for, and why.
#[derive(Debug)]
pub struct Explained {
    /// The host.
    pub host: Host,
    /// The documents that it is to have.
    pub set: DocumentSet,
    /// The labels that it was enrolled with.
    pub enrolled_with: Labels,
    /// The labels that operators gave it.
    pub given_labels: Labels,
    /// The groups that it is in, from the lowest precedence to the highest.
    pub groups: Vec<GroupName>,
    /// What it is asked for, under the limits of its owner.
    pub effective: Effective,
}

impl Fleet {
    /// What a host is asked for by what is released to it, and why.
    ///
    /// # Errors
    /// [`UnknownHost`].
    pub fn explain(&self, host: &str, release: &Release) -> Result<Explained, UnknownHost> {
        let agent = self.find(host)?;
        let host = agent.host();
        let set = host.set(release);
        let set = &set;
        let asked = Effective::of(set, &host.labels);
        // By what an owner says beside another document, nothing is known of him under this one.
        let HostState { document_version, document_content, owner, owner_word, .. } = &host.state;
        let wanted = ContentHash::of_document(&asked.document(set)).ok();
        let follows = *document_version == set.fleet.version
            && wanted.is_some_and(|wanted| wanted.as_str() == document_content);
        let effective = asked.tightened(owner);
        let effective = match owner_word {
            Some(word) if follows => effective.by_owner(word),
            _ => effective,
        };
        Ok(Explained {
            enrolled_with: agent.enrolled_with.clone(),
            given_labels: lock(&agent.given_labels).clone(),
            groups: set.groups.of(&host.labels).into_iter().map(|(name, _)| name.clone()).collect(),
            effective: effective.without(&host.state.declined, set),
            set: set.clone(),
            host,
        })
    }

    /// Changes what operators say of a host, and gives all labels that it then has. What it is asked for
    /// follows at once.
    ///
    /// # Errors
    /// [`LabelError`]; nothing is changed then.
    pub async fn relabel(&self, by: &Author, host: &str, edit: &LabelEdit) -> Result<Labels, LabelError> {
        let agent = self.find(host)?;
        if !agent.is_member() {
            return Err(LabelError::Revoked(host.to_owned()));
        }
        let alone = self.relabelling.clone().lock_owned().await;
        let enrolled = |name: &&fallow_domain::LabelName| agent.enrolled_with.get(name.as_str()).is_some();
        if let Some(name) = edit.names().find(enrolled) {
            let value = agent.enrolled_with.get(name.as_str());
            let label = value.map_or_else(|| name.to_string(), |value| format!("{name}={value}"));
            return Err(LabelError::Enrolled { host: host.to_owned(), label });
        }
        let before = lock(&agent.given_labels).clone();
        let labels = edit.applied(&before)?;
        let record = by.record(Action::HostLabelled, &agent.said()).changed(&said(&before), &said(&labels));
        let key = keys::labels(&agent.id);
        let value = keys::LABELS.write(&key, &labels)?;
        let store = self.store.clone();
        let relabelled = agent.clone();
        // Stored and taken over in one go, whether or not the caller goes away meanwhile.
        let stored = tokio::task::spawn_blocking(move || {
            let _alone = alone;
            let _ = audit::apply(&*store, &Batch::new().put(key, value), &record)?;
            *lock(&relabelled.given_labels) = labels;
            relabelled.relabelled.notify_one();
            Ok::<(), StoreError>(())
        });
        stored.await.unwrap_or_else(|died| std::panic::resume_unwind(died.into_panic()))?;
        tracing::info!(agent = agent.id.0, by = by.actor.name(), "labels changed");
        Ok(agent.labels())
    }

    /// The host that somebody means: by the id of its agent, its name, or its host name. Names are the
    /// agents' own word: where one calls itself as another host is called, both are found, and neither is
    /// meant.
    pub(crate) fn find(&self, host: &str) -> Result<Arc<Agent>, UnknownHost> {
        if let Some(agent) = self.agent(host).filter(|agent| !lock(&agent.record).forgotten) {
            return Ok(agent);
        }
        let agents = self.all();
        let found: Vec<_> = agents.iter().filter(|agent| agent.is_called(host)).collect();
        match found.as_slice() {
            [one] => Ok(Arc::clone(one)),
            [] => Err(UnknownHost::None(host.to_owned())),
            several => {
                let ids: Vec<&str> = several.iter().take(SAID).map(|agent| agent.id.0.as_str()).collect();
                Err(UnknownHost::Several { name: host.to_owned(), agents: ids.join(", ") })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fallow_domain::agent_state::Entry;
    use fallow_domain::{AgentId, Instant};
    use fallow_store::{SledStore, Store};

    use super::*;
    use crate::document::Documents;
    use crate::fleet::enrol::AgentRecord;
    use crate::fleet::totals::Totals;
    use crate::fleet::{Issuer, LinkSettings};
    use fallow_tls::Authority;

    /// A fleet with two hosts of the same name, enrolled with `room=12`.
    fn fleet(dir: &std::path::Path) -> Arc<Fleet> {
        let store: Arc<dyn Store> = Arc::new(SledStore::open(dir).unwrap());
        for id in ["A", "B"] {
            let record = AgentRecord {
                key: id.repeat(64),
                enrolled_at: Instant::EPOCH,
                hostname: "lab".into(),
                labels: Labels::read(["room=12"]).unwrap(),
                token: String::new(),
                revoked: None,
                forgotten: false,
                copy_of: None,
            };
            let key = keys::agent(&AgentId(id.into()));
            let value = keys::AGENT.write(&key, &record).unwrap();
            let _ = store.apply(Batch::new().put(key, value)).unwrap();
        }
        let documents = Arc::new(Documents::open(store.clone()).unwrap());
        let (authority, ..) = Authority::create(Instant::EPOCH).unwrap();
        let issuer = Arc::new(Issuer { authority, life: fallow_domain::Duration::from_hours(1) });
        Fleet::open(store, documents, issuer, LinkSettings::default()).unwrap()
    }

    #[tokio::test]
    async fn r6_4_a_label_of_enrolment_is_not_changed_by_operators_and_others_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        {
            let fleet = fleet(dir.path());
            for change in ["room=13", "room-"] {
                let refused = fleet
                    .relabel(&Author::default(), "A", &LabelEdit::read([change]).unwrap())
                    .await
                    .unwrap_err();
                assert!(refused.to_string().contains("enrolled with room=12"), "{refused}");
            }
            let labels =
                fleet.relabel(&Author::default(), "A", &LabelEdit::read(["rack=4"]).unwrap()).await.unwrap();
            assert_eq!(labels.to_string(), "agent_id=A rack=4 room=12");
        }
        assert_eq!(fleet(dir.path()).find("A").unwrap().labels().to_string(), "agent_id=A rack=4 room=12");
    }

    #[tokio::test]
    async fn r6_4_a_host_is_named_so_that_it_can_be_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let fleet = fleet(dir.path());
        let of =
            |name: &str| fleet.find(name).map(|agent| agent.id.0.clone()).map_err(|error| error.to_string());
        assert_eq!(of("B"), Ok("B".into()));
        assert!(of("lab").unwrap_err().contains("of agents A, B: name one by its agent's id"));
        assert!(of("nobody").unwrap_err().contains("`fallow hosts`"));
    }

    /// Has an agent say that it is called so, on this host.
    fn report(fleet: &Fleet, id: &str, name: &str, hostname: &str) {
        let said = HostState { name: name.into(), hostname: hostname.into(), ..HostState::default() };
        let agent = fleet.agent(id).unwrap();
        lock(&agent.state).put(Entry::Host(Box::new(said)), &mut Totals::default());
    }

    #[tokio::test]
    async fn r6_4_an_agent_that_calls_itself_as_another_host_is_called_does_not_take_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let fleet = fleet(dir.path());
        report(&fleet, "A", "", "lab-pc-7");
        report(&fleet, "B", "lab-pc-7", "elsewhere");
        let several = "of agents A, B: name one by its agent's id";
        let of = |name: &str| {
            fleet.find(name).map(|agent| agent.id.0.clone()).unwrap_or_else(|error| error.to_string())
        };
        assert!(of("lab-pc-7").contains(several), "{}", of("lab-pc-7"));
        let edit = LabelEdit::read(["rack=4"]).unwrap();
        let refused = fleet.relabel(&Author::default(), "lab-pc-7", &edit).await.unwrap_err().to_string();
        assert!(refused.contains(several), "{refused}");
        let refused =
            fleet.revoke(&Author::default(), "lab-pc-7", "", Instant::EPOCH).unwrap_err().to_string();
        assert!(refused.contains(several), "{refused}");
        assert_eq!(fleet.enrolled(), 2);
        // One whose name and host name are the same is one host.
        report(&fleet, "B", "elsewhere", "elsewhere");
        assert_eq!((of("elsewhere"), of("lab-pc-7")), ("B".to_owned(), "A".to_owned()));
    }

    #[tokio::test]
    async fn r6_5_hosts_that_were_taken_out_of_the_fleet_are_not_counted_in_previews_and_groups() {
        let dir = tempfile::tempdir().unwrap();
        let fleet = fleet(dir.path());
        fleet.revoke(&Author::default(), "B", "", Instant::EPOCH).unwrap();
        let before = fleet.documents.set();
        let mut after = before.clone();
        after.fleet.preferences.suspended = true;
        let preview = fleet.preview(&before, &after);
        assert_eq!((preview.hosts, preview.changed_hosts), (1, 1));
        let agents: Vec<_> = preview.values.into_values().flatten().map(|id| id.0).collect();
        assert_eq!(agents, ["A"]);
        let [room, other] = ["room=12", "!room"].map(|selector| selector.parse().unwrap());
        assert_eq!(fleet.chosen(&[&room, &other, &room]), [1, 0, 1]);
    }
}
