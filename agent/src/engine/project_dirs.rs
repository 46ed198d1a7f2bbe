//! The directories of projects, as an earlier life of the agent left them.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use fallow_boinc::app_config::APP_CONFIG;
use fallow_client::{Client, FileKey};
use fallow_domain::Bytes;

use crate::dir::{DataDir, PARTIAL};
use crate::error::AgentError;
use crate::records::Records;
use crate::{owner, taking};

/// Deletes the directories of projects that the client does not have: they were to be deleted, and the agent
/// went down before.
///
/// What else lies there was not made by this agent, and is left alone.
pub(super) fn delete_forsaken(
    dir: &DataDir,
    records: &Records,
    stems: &BTreeSet<String>,
) -> Result<(), AgentError> {
    let known = records.stems()?;
    for entry in std::fs::read_dir(dir.projects()).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if stems.contains(&name) {
            continue;
        }
        if !known.contains(&name) {
            tracing::warn!(
                path = crate::files::shown_path(&path),
                "left alone: no project of this agent has or had it"
            );
            continue;
        }
        match dir.trash().take(&path) {
            Ok(()) => {
                tracing::info!(path = %path.display(), "deleted the files of a project that is detached");
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot delete a project's directory");
            }
        }
    }
    for stem in known.difference(stems).filter(|stem| !dir.projects().join(stem).exists()) {
        records.forget_stem(stem)?;
    }
    Ok(())
}

/// Takes a file that a job's user has made there: an earlier life was killed after it had moved it there. One
/// that others could change goes. What cannot be looked at now stays, and is no file of the project.
fn taken(dir: &DataDir, path: &Path) -> bool {
    let shown = crate::files::shown_path(path);
    match taking::take_over_at(path) {
        Ok(true) => return true,
        Ok(false) => {
            tracing::warn!(path = shown, "deleting what others than the agent could change");
            if let Err(error) = dir.trash().take(path) {
                tracing::error!(path = shown, %error, "cannot delete it");
            }
        }
        Err(error) => tracing::warn!(path = shown, %error, "cannot take this from its job's user"),
    }
    false
}

/// Every complete file in the directories of the client's projects. All are the agent's own then.
pub(super) fn complete_files(dir: &DataDir, client: &Client) -> Vec<(FileKey, Bytes)> {
    let mut found = Vec::new();
    for project in client.project_views() {
        dir.open_project(&project.url);
        crate::dir::remove_copies(&dir.partial(&project.url));
        for entry in std::fs::read_dir(dir.project(&project.url)).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            match entry.metadata() {
                Ok(data) if data.is_file() && name != PARTIAL && name != APP_CONFIG => {
                    if owner::is_jobs(data.uid()) && !taken(dir, &entry.path()) {
                        continue;
                    }
                    found.push((FileKey { project: project.id, name }, Bytes(data.len())));
                }
                _ => {}
            }
        }
    }
    found
}
