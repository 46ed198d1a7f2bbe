//! Input files of submissions that were broken off and never repeated.
//!
//! A piece's files are written before the batch that stores its workunits (`submit`). If the server dies in
//! between, no record speaks of them; a repeated submission writes them anew. What nobody repeated for
//! [`ORPHAN_AFTER`] is removed, and with it the names go that such a submission would have kept for sticky
//! inputs. A file that any workunit reads stays.
//!
//! All names in the directory are looked at, with a look-up in the store for each, when the project has been
//! opened and every [`INTERVAL`] from then on. Which sticky inputs are in use is found by reading workunits
//! until each was seen in one, and remembered.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::time::UNIX_EPOCH;

use fallow_daemon::lock;
use fallow_domain::{Duration, Instant};
use tracing::info;

use super::error::ProjectError;
use super::layout::remove_if_there;
use super::project::Project;
use super::records::Counters;
use super::sticky_inputs::KEPT;
use super::submit::split_input_name;
use super::txn::decode;
use super::workunit::Workunit;

/// So long after a file was written its submission is not repeated any more.
const ORPHAN_AFTER: Duration = Duration::from_hours(24);
/// How often they are looked for.
const INTERVAL: Duration = Duration::from_hours(6);
/// Workunits that are read at a time.
const PAGE: usize = 1_000;

/// What is remembered from one look to the next.
#[derive(Debug, Default)]
pub(crate) struct OrphanSearch {
    last: Option<Instant>,
    /// Sticky inputs that workunits read.
    in_use: BTreeSet<String>,
}

impl Project {
    /// Looks for such files if it is time for that, and removes them. Gives their number.
    pub(crate) fn remove_orphans(&self, now: Instant) -> Result<usize, ProjectError> {
        let mut search = lock(&self.orphan_search);
        if search.last.is_some_and(|last| (last..last + INTERVAL).contains(&now)) {
            return Ok(0);
        }
        search.last = Some(now);
        let before = self.last_sequence()?;
        let (mut inputs, mut kept) = (Vec::new(), BTreeSet::new());
        let old = self.old_files(now)?;
        for name in old {
            if name.starts_with(KEPT) {
                kept.extend(Some(name).filter(|name| !search.in_use.contains(name)));
            } else if self.is_without_workunit(&name)? {
                inputs.push(name);
            }
        }
        search.in_use.extend(self.take_those_in_use(&mut kept)?);
        if inputs.is_empty() && kept.is_empty() {
            return Ok(0);
        }
        // Nobody adds workunits meanwhile. What was added since the search may read the sticky ones.
        let _alone = lock(&self.adding);
        if self.last_sequence()? != before {
            kept.clear();
        }
        let mut removed = 0;
        for name in inputs.iter().chain(&kept) {
            if kept.contains(name) || self.is_without_workunit(name)? {
                remove_if_there(&self.layout.download(name))?;
                self.fingerprints.forget(name);
                removed += 1;
            }
        }
        info!(project = %self.name, files = removed, "inputs of submissions that were broken off are removed");
        Ok(removed)
    }

    fn last_sequence(&self) -> Result<u64, ProjectError> {
        let counters: Option<Counters> = self.read().get("counters", &self.keys.counters())?;
        Ok(counters.unwrap_or_default().last_sequence)
    }

    /// The files for download, but for those of applications, that were written long ago.
    fn old_files(&self, now: Instant) -> Result<Vec<String>, ProjectError> {
        let dir = self.layout.downloads();
        let catalog = self.catalog();
        let mut old = Vec::new();
        for entry in fs::read_dir(&dir).map_err(ProjectError::file("read", &dir))? {
            let entry = entry.map_err(ProjectError::file("read", &dir))?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let is_input = name.starts_with(KEPT) || split_input_name(&name).is_some();
            if !is_input || catalog.files.contains_key(&name) {
                continue;
            }
            // One that is gone by now needs no removal.
            let written = entry.metadata().ok().filter(Metadata::is_file);
            let written = written.and_then(|metadata| metadata.modified().ok());
            let written = written.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            let written = written.map(|since| Instant::from_secs_f64(since.as_secs_f64()));
            old.extend(written.filter(|at| now.since(*at) >= ORPHAN_AFTER).map(|_| name));
        }
        Ok(old)
    }

    fn is_without_workunit(&self, name: &str) -> Result<bool, ProjectError> {
        match split_input_name(name) {
            Some(workunit) => Ok(!self.read().contains(&self.keys.workunit(workunit))?),
            None => Ok(false),
        }
    }

    /// Takes out of `kept` what workunits read, and gives it.
    fn take_those_in_use(&self, kept: &mut BTreeSet<String>) -> Result<Vec<String>, ProjectError> {
        let (prefix, mut after, mut in_use) = (self.keys.workunits(), None, Vec::new());
        while !kept.is_empty() {
            let page = self.read().scan(&prefix, after.as_deref(), PAGE)?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            for (key, value) in &page {
                let workunit: Workunit = decode("workunit", key, value)?;
                // All of them: a workunit's own name may begin in the same way.
                in_use.extend(workunit.inputs.iter().filter_map(|input| kept.take(&input.file_name)));
            }
        }
        Ok(in_use)
    }
}
