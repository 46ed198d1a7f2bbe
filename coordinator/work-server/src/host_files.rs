//! Which host holds which sticky file (R4.11), stored apart from jobs: `project-files/NAME/HOST`.
//!
//! Clients list their sticky files in a request; what they are sent in between is noted too. A list replaces
//! what was known. A request without any says nothing, unless the project asked for a list: then the host
//! holds none.

use std::collections::{BTreeMap, BTreeSet};

use fallow_boinc::scheduler::SchedulerRequest;
use fallow_daemon::lock;
use fallow_domain::Bytes;
use fallow_policy::disk::holders::{FILES_PER_HOST_MAX, FileHolders};
use serde::{Deserialize, Serialize};

use super::error::ProjectError;
use super::project::Project;
use super::store_keys::{Keys, tail};
use super::txn::{Txn, decode};

/// A sticky file that is there (BOINC: `status` of a `file_info`).
const PRESENT: i32 = 1;

/// What is stored of a host.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct HostFiles {
    files: BTreeMap<String, u64>,
    to_delete: BTreeSet<String>,
    list_wanted: bool,
}

/// Reads what is known.
pub(crate) fn load(txn: &Txn<'_>, keys: &Keys) -> Result<FileHolders<u64>, ProjectError> {
    let mut holders = FileHolders::default();
    let prefix = keys.all_host_files();
    for (key, value) in txn.scan(&prefix, None, usize::MAX)? {
        let Ok(host) = u64::from_str_radix(tail(&key, &prefix), 16) else { continue };
        let host_files: HostFiles = decode("sticky files of a host", &key, &value)?;
        holders.listed(&host, host_files.files.into_iter().map(|(name, bytes)| (name, Bytes(bytes))));
        host_files.to_delete.iter().for_each(|name| holders.want_deleted_by(&host, name));
        if host_files.list_wanted {
            holders.want_list(&host);
        }
    }
    Ok(holders)
}

impl Project {
    /// Takes in what a host says that it holds.
    pub(crate) fn take_file_list(
        &self,
        txn: &mut Txn<'_>,
        request: &SchedulerRequest,
        host: u64,
    ) -> Result<(), ProjectError> {
        let mut holders = lock(&self.holders);
        if request.sticky_files.is_empty() && !holders.is_list_wanted(&host) {
            return Ok(());
        }
        let present = request.sticky_files.iter().filter(|file| file.status == PRESENT);
        let present = present.take(FILES_PER_HOST_MAX);
        holders.listed(&host, present.map(|file| (file.name.clone(), file.nbytes)));
        self.save_host_files(txn, &holders, host)
    }

    /// Notes files that a host is sent and keeps.
    pub(crate) fn note_sent_files<'f>(
        &self,
        txn: &mut Txn<'_>,
        host: u64,
        files: impl Iterator<Item = (&'f str, Bytes)>,
    ) -> Result<(), ProjectError> {
        let mut holders = lock(&self.holders);
        let mut changed = false;
        for (name, bytes) in files {
            holders.got(&host, name, bytes);
            changed = true;
        }
        if changed { self.save_host_files(txn, &holders, host) } else { Ok(()) }
    }

    /// Asks all hosts that hold a sticky file to delete it, from their next requests on. Gives their number.
    pub(crate) fn delete_on_hosts(&self, name: &str) -> Result<usize, ProjectError> {
        let mut holders = lock(&self.holders);
        holders.want_deleted(name);
        let hosts: Vec<u64> = holders.holders(name).copied().collect();
        drop(holders);
        self.transact_durably(|txn| {
            let holders = lock(&self.holders);
            hosts.iter().try_for_each(|host| self.save_host_files(txn, &holders, *host))
        })?;
        Ok(hosts.len())
    }

    fn save_host_files(
        &self,
        txn: &mut Txn<'_>,
        holders: &FileHolders<u64>,
        host: u64,
    ) -> Result<(), ProjectError> {
        let host_files = HostFiles {
            files: holders.files(&host).map(|(name, bytes)| (name.to_owned(), bytes.0)).collect(),
            to_delete: holders.to_delete(&host).map(str::to_owned).collect(),
            list_wanted: holders.is_list_wanted(&host),
        };
        txn.put("sticky files of a host", self.keys.host_files(host), &host_files)
    }
}
