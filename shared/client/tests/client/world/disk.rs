//! The modelled disk: a volume that others fill as well, and the files that are on it.
//!
//! Whatever is deleted is looked at first: what a job needs must never go.

use std::collections::BTreeMap;

use fallow_client::{Cause, DiskFound, Event, FileFound, FileKey, Phase, Why};
use fallow_domain::agent_state::SuspendedBy;
use fallow_domain::{Bytes, Duration, Instant, ProjectId};

use super::World;

/// What the agent itself takes.
const OWN: Bytes = Bytes(7);

/// A volume.
#[derive(Debug, Default)]
pub(crate) struct ModelVolume {
    pub(crate) size: u64,
    /// What others have written to it.
    pub(crate) foreign: u64,
    /// Lengths that are not 10.
    pub(crate) lengths: BTreeMap<FileKey, u64>,
    /// When files came that no record tells of.
    pub(crate) changed: BTreeMap<FileKey, Instant>,
    /// What the client was told last that is free.
    pub(crate) told: Option<u64>,
    /// How often it was measured.
    pub(crate) looks: usize,
}

impl World {
    fn length(&self, key: &FileKey) -> u64 {
        self.volume.as_ref().and_then(|volume| volume.lengths.get(key)).copied().unwrap_or(10)
    }

    /// What lies in the projects' directories.
    pub(crate) fn on_disk(&self) -> u64 {
        self.files.iter().map(|key| self.length(key)).sum()
    }

    /// A look at the disk, as it is now.
    pub(super) fn look_at_disk(&mut self) -> Option<DiskFound> {
        let now = self.now;
        self.volume.as_mut()?.looks += 1;
        let files: Vec<FileFound> = self.files.iter().map(|key| self.look_at(key, now)).collect();
        let mut projects: BTreeMap<ProjectId, Bytes> = BTreeMap::new();
        for file in &files {
            let sum = projects.entry(file.key.project).or_default();
            *sum = sum.plus(file.blocks);
        }
        let ours = self.on_disk() + OWN.0;
        let (size, free) = (Bytes(self.volume.as_ref()?.size), Bytes(self.free()?));
        let (projects, slots) = (projects.into_iter().collect(), Vec::new());
        let took = Duration::from_micros(1_000);
        Some(DiskFound {
            size,
            free,
            ours: Bytes(ours),
            own: OWN,
            projects,
            files,
            slots,
            took,
            ..DiskFound::default()
        })
    }

    fn look_at(&self, key: &FileKey, now: Instant) -> FileFound {
        let changed = self.volume.as_ref().and_then(|volume| volume.changed.get(key)).copied();
        let length = Bytes(self.length(key));
        let changed = changed.unwrap_or(now);
        FileFound { key: key.clone(), blocks: length, length, changed, is_part: false }
    }

    /// What is free, if there is a volume.
    fn free(&self) -> Option<u64> {
        let volume = self.volume.as_ref()?;
        Some(volume.size.saturating_sub(volume.foreign + self.on_disk() + OWN.0))
    }

    /// As a shell does: what seems to be missing is looked at once more, and what is free by now.
    pub(super) fn look_again(&self, event: &mut Event) {
        let Event::DiskMeasured(Ok(found)) = event else { return };
        found.free = self.free().map_or(found.free, Bytes);
        let looked = self.client.doubtful_files(found).into_iter().map(|key| {
            let here = self.files.contains(&key).then(|| self.look_at(&key, self.now));
            (key, here.into_iter().collect())
        });
        found.put(looked.collect());
    }

    /// As a shell does in every turn: the client is told when another amount is free than before.
    pub(super) fn see_volume(&mut self) {
        let (Some(free), Some(volume)) = (self.free(), &mut self.volume) else { return };
        if volume.told != Some(free) {
            volume.told = Some(free);
            self.event(Event::VolumeSeen { free: Bytes(free) });
        }
    }

    /// A file is about to be deleted for this reason.
    pub(super) fn assert_may_go(&self, key: &FileKey, why: &Why) {
        let by_disk = match why {
            // What is not what it was is of no use to anybody.
            Why::Own(Cause::NotAsRecorded) => false,
            Why::Own(Cause::Deleted(_) | Cause::Orphan(_) | Cause::FileNotNeeded) => true,
            _ => false,
        };
        if self.volume.is_none() || !by_disk {
            return;
        }
        let used = self.tasks.values().any(|task| {
            let inputs = task.setup.files.iter().map(|file| &file.name);
            let application = task.setup.application.iter().map(|file| &file.name);
            let name = task.setup.name.rsplit_once('_').map(|(stem, _)| stem.to_owned()).unwrap_or_default();
            let is_its_own = key.name.starts_with(&format!("{name}_"));
            is_its_own && inputs.chain(application).any(|name| *name == key.name)
        });
        assert!(!used, "{} goes, and a task uses it: {why}", key.name);
        for task in self.client.task_views() {
            let Some((stem, _)) = task.name.rsplit_once('_') else { continue };
            let Some((project, _)) = stem.split_once('_') else { continue };
            let reads = [format!("{project}_app"), format!("{stem}_in"), format!("{stem}_out")];
            let needs = task.project == key.project && reads.contains(&key.name);
            let over = matches!(task.phase, Phase::Failed);
            assert!(
                !needs || over,
                "{} goes, and {} ({:?}) needs it: {why}",
                key.name,
                task.name,
                task.phase
            );
        }
    }

    /// After a measurement or a look at the volume: who is over the limit rests. Who no longer is since then
    /// may rest until the next one.
    pub(super) fn assert_rests_for_space(&mut self) {
        let Some(view) = self.client.disk_view() else { return };
        assert!(view.suspended.is_some() || view.over == Bytes(0), "{view:?}");
        if view.suspended.is_some() {
            let by = self.client.host_view().suspended_by;
            assert!(by.is_some(), "{view:?}");
        }
        assert!(view.projects.iter().map(|project| project.limit.0).sum::<u64>() <= view.limit.0);
    }

    /// Whether computing rests for want of space, and nothing else.
    pub(crate) fn is_short(&self) -> bool {
        self.client.host_view().suspended_by == Some(SuspendedBy::Disk)
    }

    /// kill -9 and a new start, while no answer of a server is under way: one that is lost takes its jobs
    /// along, and these servers send none twice.
    pub(crate) fn crash(&mut self) {
        let is_reply = |(_, event): &(Instant, Event)| matches!(event, Event::SchedulerAnswered { .. });
        while self.queue.iter().any(is_reply) {
            self.run_for(Duration::from_secs(1));
        }
        self.restart();
    }

    /// Others fill the volume so far, or leave it.
    pub(crate) fn fill(&mut self, foreign: u64) {
        self.volume.as_mut().unwrap().foreign = foreign;
    }

    /// Somebody deletes a file, or makes it another length, behind the client's back.
    pub(crate) fn spoil(&mut self, key: &FileKey, length: Option<u64>) {
        match length {
            Some(length) => {
                self.volume.as_mut().unwrap().lengths.insert(key.clone(), length);
            }
            None => {
                self.files.remove(key);
            }
        }
    }

    /// Somebody puts a file into a project's directory.
    pub(crate) fn stray(&mut self, key: FileKey, length: u64) {
        let now = self.now;
        let volume = self.volume.as_mut().unwrap();
        volume.lengths.insert(key.clone(), length);
        volume.changed.insert(key.clone(), now);
        self.files.insert(key);
    }
}
