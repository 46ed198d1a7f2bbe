//! The workunits of the jobs held: looked at as a map, changed through one door, which has each change
//! stored.

use std::collections::BTreeMap;
use std::ops::Deref;

use fallow_domain::ProjectId;

use crate::FileKey;
use crate::described::Workunit;
use crate::machine::Client;
use crate::record::Record;

/// The workunits, to be looked at as a map.
#[derive(Debug, Default)]
pub(crate) struct Workunits {
    all: BTreeMap<FileKey, Workunit>,
}

impl Deref for Workunits {
    type Target = BTreeMap<FileKey, Workunit>;
    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl Workunits {
    /// A project's.
    pub(crate) fn of(&self, project: ProjectId) -> impl Iterator<Item = (&FileKey, &Workunit)> {
        let from = FileKey { project, name: String::new() };
        self.all.range(from..).take_while(move |(key, _)| key.project == project)
    }

    /// Takes in a workunit, as it was stored.
    pub(crate) fn insert(&mut self, key: FileKey, workunit: Workunit) {
        self.all.insert(key, workunit);
    }
}

impl Client {
    /// Takes in a new workunit.
    pub(crate) fn insert_workunit(&mut self, key: FileKey, workunit: Workunit) {
        self.state.workunits.insert(key.clone(), workunit);
        self.mark(Record::Workunit(key));
    }

    /// Takes out a workunit.
    pub(crate) fn remove_workunit(&mut self, key: FileKey) {
        self.state.workunits.all.remove(&key);
        self.mark(Record::Workunit(key));
    }
}
