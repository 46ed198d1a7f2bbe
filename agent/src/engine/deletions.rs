//! Which deletions are under way, so that a `kill -9` leaves no file without an owner (R4.12).
//!
//! Model: a file's record goes with the step that decides its deletion, and the file goes after that. In
//! between nobody would know whose it is, and it would stay for the time that such files have. So the same
//! batch stores its name apart, and the next batch takes the name away: by then the deletion was tried. What
//! is stored at the next start was perhaps not done any more, and the client is told of it.
//!
//! A step that stores nothing else takes no record away, and its deletions are found by looking at the disk.
//! That holds for those that make space where nothing can be stored. A project that goes takes all its files
//! along, and is known by its directory's name until that is gone.

use std::collections::BTreeSet;

use fallow_boinc::names::is_file_name;
use fallow_client::{Effect, FileKey, Step};
use fallow_domain::ProjectId;

/// The deletions whose names are stored.
#[derive(Debug, Default)]
pub(super) struct Deletions {
    /// They were decided by the present step.
    begun: Vec<FileKey>,
    /// They were tried: what is left then is looked for on the disk.
    over: Vec<FileKey>,
}

impl Deletions {
    /// Those that a step decides.
    pub(super) fn of(step: &Step) -> Vec<FileKey> {
        if step.changes.is_empty() {
            return Vec::new();
        }
        let effects = || step.actions.iter().map(|action| &action.effect);
        let leaving: BTreeSet<ProjectId> = effects()
            .filter_map(|effect| match effect {
                Effect::DeleteProject { project, .. } => Some(*project),
                _ => None,
            })
            .collect();
        let deletion = |effect: &Effect| match effect {
            Effect::DeleteFile { file, .. }
                if is_file_name(&file.name) && !leaving.contains(&file.project) =>
            {
                Some(file.clone())
            }
            _ => None,
        };
        effects().filter_map(deletion).collect()
    }

    /// Those whose names need not be stored any longer.
    pub(super) const fn over(&self) -> &[FileKey] {
        self.over.as_slice()
    }

    /// A batch was stored that has the names of these, and has taken away the names of those that are over.
    pub(super) fn stored(&mut self, begun: Vec<FileKey>) {
        self.over.clear();
        self.begun = begun;
    }

    /// Those of the present step were tried.
    pub(super) fn tried(&mut self) {
        self.over.append(&mut self.begun);
    }

    /// Those that were found at the start have been seen to.
    pub(super) fn seen_to(&mut self, found: Vec<FileKey>) {
        self.over.extend(found);
    }
}
