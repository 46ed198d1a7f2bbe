//! Who needs which file: jobs and application versions that refer to it, and jobs that wait for it.
//!
//! Derived state: it is worked out again after a restart.

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::JobId;

use crate::FileKey;

/// Who needs which file.
#[derive(Debug, Default)]
pub(crate) struct FileUse {
    /// How many jobs and versions refer to it.
    users: BTreeMap<FileKey, u32>,
    waiting: BTreeMap<FileKey, BTreeSet<JobId>>,
}

impl FileUse {
    /// One more refers to a file.
    pub(crate) fn add_user(&mut self, key: &FileKey) {
        *self.users.entry(key.clone()).or_default() += 1;
    }

    /// One less does. Says whether nobody does any more.
    pub(crate) fn remove_user(&mut self, key: &FileKey) -> bool {
        if let Some(users) = self.users.get_mut(key) {
            *users -= 1;
            if *users > 0 {
                return false;
            }
        }
        self.users.remove(key);
        true
    }

    /// Whether anybody refers to a file.
    pub(crate) fn is_used(&self, key: &FileKey) -> bool {
        self.users.contains_key(key)
    }

    /// A job waits for a file.
    pub(crate) fn wait(&mut self, key: FileKey, job: JobId) {
        self.waiting.entry(key).or_default().insert(job);
    }

    /// It does not any more.
    pub(crate) fn wait_no_more(&mut self, key: &FileKey, job: JobId) {
        if let Some(waiting) = self.waiting.get_mut(key) {
            waiting.remove(&job);
        }
    }

    pub(crate) fn is_awaited_by(&self, key: &FileKey, job: JobId) -> bool {
        self.waiting.get(key).is_some_and(|jobs| jobs.contains(&job))
    }

    /// The jobs that wait for a file.
    pub(crate) fn waiting(&self, key: &FileKey) -> impl Iterator<Item = JobId> + '_ {
        self.waiting.get(key).into_iter().flatten().copied()
    }

    /// A file has come, or was given up: the jobs that have waited for it.
    pub(crate) fn end_wait(&mut self, key: &FileKey) -> BTreeSet<JobId> {
        self.waiting.remove(key).unwrap_or_default()
    }

    /// A file is gone. Nobody has to do with it any more.
    pub(crate) fn forget(&mut self, key: &FileKey) {
        self.users.remove(key);
        self.waiting.remove(key);
    }

    /// Whether as many refer to each file as in another, and nobody waits for one that nobody refers to.
    #[cfg(test)]
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.users == other.users && self.waiting.keys().all(|key| self.is_used(key))
    }
}
