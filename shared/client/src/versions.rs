//! The application versions that projects have sent: looked at as a map, changed through one door, which has
//! each change stored.

use std::collections::BTreeMap;
use std::ops::Deref;

use fallow_domain::ProjectId;
use serde::{Deserialize, Serialize};

use crate::described::ApplicationVersion;
use crate::machine::Client;
use crate::record::Record;

/// Names an application version: what a job asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct VersionKey {
    pub project: ProjectId,
    pub app: String,
    pub platform: String,
    pub plan_class: String,
    pub number: u32,
}

impl VersionKey {
    /// Of a version that a project sends.
    pub(crate) fn of(project: ProjectId, version: &ApplicationVersion) -> Self {
        Self {
            project,
            app: version.app.clone(),
            platform: version.platform.clone(),
            plan_class: version.plan_class.clone(),
            number: version.number,
        }
    }

    /// Before all of a project's.
    fn first(project: ProjectId) -> Self {
        let none = String::new;
        Self { project, app: none(), platform: none(), plan_class: none(), number: 0 }
    }

    /// Whether another is the same but for its number.
    fn is_in_line_with(&self, other: &Self) -> bool {
        (self.project, &self.app, &self.platform, &self.plan_class)
            == (other.project, &other.app, &other.platform, &other.plan_class)
    }
}

/// The versions, to be looked at as a map.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    all: BTreeMap<VersionKey, ApplicationVersion>,
}

impl Deref for Versions {
    type Target = BTreeMap<VersionKey, ApplicationVersion>;
    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl Versions {
    /// A project's, in order: versions of the same line by their numbers.
    pub(crate) fn of(&self, project: ProjectId) -> impl Iterator<Item = (&VersionKey, &ApplicationVersion)> {
        self.all.range(VersionKey::first(project)..).take_while(move |(key, _)| key.project == project)
    }

    /// The newest one that differs from `key` in its number at most.
    pub(crate) fn newest(&self, key: &VersionKey) -> Option<(&VersionKey, &ApplicationVersion)> {
        let numbered = |number| VersionKey { number, ..key.clone() };
        self.all.range(numbered(0)..=numbered(u32::MAX)).next_back()
    }

    /// Those of a project that have a newer one in their line.
    pub(crate) fn superseded(&self, project: ProjectId) -> impl Iterator<Item = &VersionKey> {
        let newer = self.of(project).skip(1).map(|(key, _)| key);
        let pairs = self.of(project).map(|(key, _)| key).zip(newer);
        pairs.filter(|(key, newer)| key.is_in_line_with(newer)).map(|(key, _)| key)
    }

    /// Takes in a version, as it was stored.
    pub(crate) fn insert(&mut self, key: VersionKey, version: ApplicationVersion) {
        self.all.insert(key, version);
    }
}

impl Client {
    /// Takes in a new version.
    pub(crate) fn insert_version(&mut self, key: VersionKey, version: ApplicationVersion) {
        let project = key.project;
        self.state.versions.insert(key.clone(), version);
        self.mark(Record::Version(key));
        self.limit_jobs(project);
    }

    /// A project sends a version anew: how it is run may be another then, its files are not.
    pub(crate) fn renew_version(&mut self, key: VersionKey, sent: ApplicationVersion) {
        if let Some(known) = self.state.versions.all.get_mut(&key) {
            let is_counted_anew = known.cpus != sent.cpus;
            known.cpus = sent.cpus;
            known.speed = sent.speed;
            known.command_line = sent.command_line;
            let project = key.project;
            self.mark(Record::Version(key));
            if is_counted_anew {
                self.limit_jobs(project);
            }
        }
    }

    /// Takes out a version.
    pub(crate) fn remove_version(&mut self, key: VersionKey) {
        let project = key.project;
        self.state.versions.all.remove(&key);
        self.mark(Record::Version(key));
        self.limit_jobs(project);
    }
}
