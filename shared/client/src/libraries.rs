//! Files that a dynamic loader may take for libraries, where the fleet's documents name the key that signs a
//! project's programs (R6.10). The loader looks into the project's directory, whichever job a file came for.

use fallow_domain::ProjectId;

use crate::machine::Client;
use crate::state::{File, FileStatus, Project, Transfer};
use crate::{Cause, Direction, Effect, FileKey};

/// Whether a dynamic loader may take a file of this name for a library: `libm.so`, `libm.so.6`, `x.so2`.
pub(crate) fn could_be_library(name: &str) -> bool {
    let ends = |rest: &str| rest.is_empty() || rest.starts_with(|c: char| c == '.' || c.is_ascii_digit());
    name.split('/').any(|part| part.split(".so").skip(1).any(ends))
}

impl Client {
    /// A project's programs must be signed by a key from now on, or by another one than before. What came as
    /// a library without that key's signature goes, and comes again with it where a job needs it. What is on
    /// its way to be checked by the key until now is checked by the new one.
    pub(crate) fn renounce_unsigned(&mut self, id: ProjectId) {
        let Some(project) = self.state.projects.get(&id).filter(|project| project.required_key.is_some())
        else {
            return;
        };
        let url = project.url.clone();
        let from = FileKey { project: id, name: String::new() };
        let files = self.state.files.range(from..).take_while(|(key, _)| key.project == id);
        let concerned = |(key, file): (&FileKey, &File)| {
            let is_library = could_be_library(&key.name) && !is_proven(project, file);
            let is_coming = file.signed && is_on_its_way(file);
            (is_library || is_coming).then(|| (key.clone(), is_library))
        };
        let concerned: Vec<_> = files.filter_map(concerned).collect();
        for (key, is_library) in concerned {
            let stopped = self.edit_file(&key, |file| {
                let stopped =
                    file.transfer.as_mut().is_some_and(|transfer| std::mem::take(&mut transfer.active));
                file.signed |= is_library;
                if is_library && file.status == FileStatus::Present && file.found.is_none() {
                    file.status = FileStatus::Absent;
                }
                stopped
            });
            if stopped == Some(true) {
                self.act(Effect::CancelTransfer { file: key.clone() }, Cause::KeyNamed);
            }
            if is_library {
                self.give_up_output(&key);
                self.act(Effect::DeleteFile { file: key, url: url.clone() }, Cause::KeyNamed);
            }
        }
    }

    /// An output that a loader could take for a library is not kept, whatever became of it so far.
    fn give_up_output(&mut self, key: &FileKey) {
        let is_unsent = self
            .state
            .files
            .get(key)
            .is_some_and(|file| file.found.is_some() && file.status == FileStatus::Present);
        if is_unsent {
            self.fail_file(
                key,
                crate::files::error::NO_SIGNATURE,
                "it could be loaded as a library, and nobody has signed it",
            );
        }
    }
}

/// Whether a file was accepted by the key that is required.
fn is_proven(project: &Project, file: &File) -> bool {
    file.status == FileStatus::Present
        && file.proof.as_ref().is_some_and(|proof| project.may_sign(&proof.key))
}

fn is_on_its_way(file: &File) -> bool {
    let is_active = |transfer: &Transfer| transfer.active && transfer.direction == Direction::Download;
    file.transfer.as_ref().is_some_and(is_active)
}
