//! The disk of the host: has it measured, tells the client what was found, and answers who asks about it.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Instant;

use fallow_client::{DiskFound, Event, FileFound, FileKey};
use fallow_daemon::clock;
use fallow_domain::Bytes;
use rustix::io::Errno;
use tokio::sync::mpsc;

use super::Engine;
use super::full_disk::SOON;
use crate::control::disk::DiskStatus;
use crate::control::protocol::Response;
use crate::error::AgentError;
use crate::input::Input;
use crate::scan::{self, Places};
use crate::sys::{self, Urgency};

/// Looks at the disk in a thread of its own, one at a time, and says what it found.
#[derive(Debug)]
pub(super) struct DiskLooks {
    inputs: mpsc::Sender<Input>,
    /// There is one as long as a look is under way.
    running: Weak<UnderWay>,
    /// What was free on the volume when the client was told last.
    told: Bytes,
}

/// A look that is under way.
#[derive(Debug)]
struct UnderWay;

/// So many files that go together are named in the log.
const NAMED_MAX: usize = 20;

/// So much more or less is free, and the client is told.
const NEWS: u64 = 1 << 20;

impl DiskLooks {
    pub(super) const fn new(inputs: mpsc::Sender<Input>) -> Self {
        Self { inputs, running: Weak::new(), told: Bytes(0) }
    }

    /// Begins, unless the last look goes on: it may take long, or hang where a disk does not answer.
    fn begin(&mut self, places: Places) {
        if self.running.strong_count() > 0 {
            tracing::warn!("measuring the disk takes long; it goes on");
            return;
        }
        let (inputs, under_way) = (self.inputs.clone(), Arc::new(UnderWay));
        self.running = Arc::downgrade(&under_way);
        let look = move || {
            sys::lower(Urgency::Idle);
            let found = places.scan();
            // Before that is told: the next look may be asked for before this thread has ended, for which it
            // may have to wait long on a busy machine.
            drop(under_way);
            // Where the engine has ended, nobody is left who could be told.
            let _ = inputs.blocking_send(Input::DiskFound(found.map(Box::new)));
        };
        if let Err(error) = std::thread::Builder::new().name("disk".into()).spawn(look) {
            let why = format!("no thread can be had for it: {error}");
            // Where the queue is full the client hears nothing, and asks again.
            let _ = self.inputs.try_send(Input::DiskFound(Err(why)));
        }
    }
}

impl DiskLooks {
    /// What is free on the volume of the directory `dir`, if that is news to the client.
    pub(super) fn news(&mut self, dir: &Path) -> Option<Bytes> {
        let free = scan::free(dir)?;
        let is_news = free.0.abs_diff(self.told.0) >= NEWS;
        is_news.then(|| {
            self.told = free;
            free
        })
    }
}

impl Engine {
    /// Begins a measurement.
    pub(super) fn measure_disk(&mut self) {
        let projects = self.client.project_views();
        let projects = projects.into_iter().map(|view| (view.id, self.dir.project(&view.url))).collect();
        self.disk.begin(Places::new(self.dir.clone(), projects, self.client.known_files()));
    }

    /// Takes in what was found. The look took a while, in which files may have come, grown or gone: what
    /// seems to be missing or is on its way is looked at once more, now that nothing is decided meanwhile.
    /// Else what they take would be missing from the volume and not be theirs, and the limit would be less by
    /// it. What is free is asked for before that: what a download grows by in between makes the limit a
    /// little larger, until the free space is next looked at, and costs no file. And it is asked for after
    /// the news: what the client deletes because the volume is short has gone from what was found, and so has
    /// to be free.
    pub(super) async fn disk_found(
        &mut self,
        found: Result<Box<DiskFound>, String>,
    ) -> Result<(), AgentError> {
        self.tell_news().await?;
        let found = found.map(|mut found| {
            found.free = scan::free(self.dir.path()).unwrap_or(found.free).min(found.size);
            let mut now = BTreeMap::new();
            for key in self.client.doubtful_files(&found) {
                match self.look_at(&key) {
                    Ok(files) => drop(now.insert(key, files)),
                    Err(error) => {
                        if found.unsure.is_empty() {
                            let file = crate::files::shown(&key.name);
                            tracing::warn!(file, %error, "cannot look at files; until that is mended, their records are believed");
                        }
                        found.unsure.insert(key);
                    }
                }
            }
            found.put(now);
            for view in found.unseen.iter().filter_map(|id| self.client.project_view(*id)) {
                let path = self.dir.project(&view.url);
                tracing::warn!(path = crate::files::shown_path(&path), "cannot read a project's directory; until that is mended, its records are believed");
            }
            found
        });
        self.turn_only(Event::DiskMeasured(found), None).await
    }

    fn look_at(&self, key: &FileKey) -> Result<Vec<FileFound>, Errno> {
        let Some(url) = self.client.project_view(key.project).map(|view| view.url) else {
            return Ok(Vec::new());
        };
        tokio::task::block_in_place(|| scan::look_again(&self.dir.project(&url), key))
    }

    /// What is told to somebody who asks about the disk.
    pub(super) fn answer_disk(&mut self) -> Response {
        let mut disk = DiskStatus::of(&mut self.client);
        // What others write shows at once.
        if let Some(free) = scan::free(self.dir.path()) {
            disk.volume_free = free.0;
        }
        Response::Done { text: String::new(), for_people: None, status: None, disk: Some(Box::new(disk)) }
    }

    /// While nothing can be stored: deletes some files that the client gives up. Says how much they took, or
    /// that there were none.
    pub(super) fn give_up_unneeded(&mut self) -> Option<Bytes> {
        let end = Instant::now() + SOON;
        loop {
            let keys = self.client.give_up_files(clock::now());
            if keys.is_empty() {
                return None;
            }
            let freed = self.delete_unneeded(keys);
            // Where none of many can be deleted, whoever asks is answered before the next ones are tried.
            if freed.is_some() || Instant::now() >= end {
                return Some(freed.unwrap_or_default());
            }
        }
    }

    /// Deletes these. Says how much they took, if one is gone.
    fn delete_unneeded(&self, keys: Vec<FileKey>) -> Option<Bytes> {
        let place = |key: FileKey| {
            let url = self.client.project_view(key.project)?.url;
            let is_name = fallow_boinc::names::is_file_name(&key.name);
            is_name.then(|| (self.dir.project(&url).join(&key.name), key.name, url))
        };
        let (mut gone, mut stuck, mut freed) = (0, 0, Bytes(0));
        tokio::task::block_in_place(|| {
            for (path, name, url) in keys.into_iter().filter_map(place) {
                let Some(data) = path.symlink_metadata().ok().filter(std::fs::Metadata::is_file) else {
                    continue;
                };
                let file = crate::files::shown(&name);
                match self.dir.trash().take(&path) {
                    Ok(()) => {
                        gone += 1;
                        freed = freed.plus(Bytes(data.blocks().saturating_mul(512)));
                        if gone <= NAMED_MAX {
                            tracing::warn!(file, project = %url, "deleted a file that no job needs, for there is no space to store anything");
                        } else {
                            tracing::debug!(file, project = %url, "deleted a file that no job needs");
                        }
                    }
                    Err(error) => {
                        stuck += 1;
                        if stuck <= NAMED_MAX {
                            tracing::warn!(path = crate::files::shown_path(&path), %error, "cannot delete a file");
                        }
                    }
                }
            }
        });
        let more = |count: usize| count.checked_sub(NAMED_MAX).filter(|more| *more > 0);
        if let Some(more) = more(gone) {
            tracing::warn!(more, "likewise of other files, for there is no space to store anything");
        }
        if let Some(more) = more(stuck) {
            tracing::warn!(more, "cannot delete other files either");
        }
        (gone > 0).then_some(freed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::dir::DataDir;

    #[test]
    fn r4_8_a_look_that_has_passed_keeps_none_from_beginning_while_it_is_told_of_or_its_thread_ends() {
        let dir = tempfile::tempdir().unwrap();
        let places = || Places::new(DataDir::at(dir.path()), Vec::new(), BTreeMap::new());
        // There is no room for what the first one says, so its thread stays.
        let (inputs, mut outputs) = mpsc::channel(1);
        inputs.try_send(Input::FilesMoved).unwrap();
        let mut looks = DiskLooks::new(inputs);
        looks.begin(places());
        let end = Instant::now() + Duration::from_secs(60);
        while looks.running.strong_count() > 0 {
            assert!(Instant::now() < end, "the look does not pass");
            std::thread::sleep(Duration::from_millis(1));
        }
        looks.begin(places());
        drop(looks);
        let mut found = 0;
        while let Some(input) = outputs.blocking_recv() {
            found += usize::from(matches!(input, Input::DiskFound(Ok(_))));
        }
        assert_eq!(found, 2);
    }
}
