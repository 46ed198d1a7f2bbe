//! Whether the files of applications are still what was signed.
//!
//! Somebody may have changed one behind the project's back, or a disk lost part of it. Clients find out by
//! its MD5 and fail their jobs, again and again: so such a file is not given out, and the log says which it
//! is and what to do.
//!
//! All of a file is read when the project is opened; its size is looked at with every download. Inputs of
//! workunits are not looked at: they are small, many, and there for a while only.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use fallow_boinc::signature::md5_of;
use fallow_domain::Bytes;
use tracing::error;

use super::catalog::Catalog;
use super::layout::Layout;
use super::project::Project;

/// Files of applications that are not what was signed, by reading all of them. Each is told to the log.
pub(crate) fn damaged(project: &str, catalog: &Catalog, layout: &Layout) -> BTreeSet<String> {
    let mut damaged = BTreeSet::new();
    for (name, (nbytes, md5)) in &catalog.files {
        let path = layout.download(name);
        let found = File::open(&path).and_then(md5_of);
        if found.as_ref().is_ok_and(|found| *found == (md5.clone(), Bytes(*nbytes))) {
            continue;
        }
        let found = found
            .map_or_else(|error| error.to_string(), |(md5, Bytes(size))| format!("{size} bytes, MD5 {md5}"));
        tell(project, &path, &found, &format!("{nbytes} bytes, MD5 {md5}"));
        damaged.insert(name.clone());
    }
    damaged
}

fn tell(project: &str, path: &Path, found: &str, expected: &str) {
    error!(
        project, file = %path.display(), found, expected,
        "a file of an application is not what was signed and is not given out: restore it from a copy and restart the coordinator, or add a higher version of the application"
    );
}

impl Project {
    /// Whether a file may be given out: any but one of an application that is not what was signed.
    pub(crate) fn is_intact(&self, name: &str) -> bool {
        let catalog = self.catalog();
        let Some((nbytes, _)) = catalog.files.get(name) else { return true };
        if self.damaged.contains(name) {
            return false;
        }
        let path = self.layout.download(name);
        let found = std::fs::metadata(&path).map(|metadata| metadata.len());
        if found.as_ref().is_ok_and(|found| found == nbytes) {
            return true;
        }
        let found = found.map_or_else(|error| error.to_string(), |size| format!("{size} bytes"));
        tell(&self.name, &path, &found, &format!("{nbytes} bytes"));
        false
    }
}
