//! The disk for people: who uses what, what may be used and by which preference, what would go next, what
//! went and why.

use std::collections::BTreeMap;

use fallow_domain::agent_state::{DiskDecision, DiskSpace};
use fallow_domain::{Bytes, Duration, Instant, ProjectId};
use fallow_policy::disk::{Bound, DiskSuspension, WhyNext};

use crate::disk::{DiskDeed, Done};
use crate::machine::Client;

/// How many files of a project are named that would go next.
const NEXT_MAX: usize = 5;

/// The disk of a host.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskView {
    /// When it was measured; none: not yet.
    pub measured_at: Option<Instant>,
    /// How long that took.
    pub took: Duration,
    /// The size of the volume.
    pub size: Bytes,
    /// What was free on it then.
    pub volume_free: Bytes,
    /// What agent and projects may use together.
    pub limit: Bytes,
    /// Which of the owner's preferences says so, in words.
    pub limit_why: String,
    /// What the agent itself uses.
    pub own: Bytes,
    /// What waits to be removed, and counts as nobody's.
    pub trash: Bytes,
    /// What agent and projects use, with what is kept for files on their way.
    pub used: Bytes,
    /// What projects may still use.
    pub free: Bytes,
    /// By how much the limit is exceeded.
    pub over: Bytes,
    /// Why computing is suspended for want of space, if it is.
    pub suspended: Option<String>,
    /// The projects.
    pub projects: Vec<DiskProjectView>,
    /// What was done of late, the last at the end.
    pub deeds: Vec<DiskDeed>,
}

/// What one project has of it.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskProjectView {
    /// The project.
    pub id: ProjectId,
    /// What it uses.
    pub used: Bytes,
    /// Of that, what is no file of it: slots, files that nobody owns.
    pub other: Bytes,
    /// What it may use while all use theirs.
    pub limit: Bytes,
    /// What deletions in it could free.
    pub deletable: Bytes,
    /// The files that would go first, if any had to.
    pub next: Vec<(String, Bytes, WhyNext)>,
}

impl Client {
    /// The disk as it is known; none where nothing was measured yet.
    pub fn disk_view(&mut self) -> Option<DiskView> {
        self.settle_disk();
        let (disk, volume) = (self.disk.books()?, self.disk.volume()?);
        let limit = disk.total_limit()?;
        let grown = self.grown();
        let more_of = |id: ProjectId| grown.get(&id).copied().unwrap_or_default();
        let more = grown.values().fold(Bytes(0), |all, one| all.plus(*one));
        let of = |id: ProjectId| DiskProjectView {
            id,
            used: disk.project_usage(id).plus(more_of(id)),
            other: disk.other_usage(id).plus(more_of(id)),
            limit: disk.project_limit(id),
            deletable: disk.deletable(id),
            next: disk.next_deletions(id, NEXT_MAX),
        };
        Some(DiskView {
            measured_at: Some(volume.at()),
            took: self.disk.took(),
            size: volume.size(),
            volume_free: volume.free(),
            limit: limit.bytes,
            limit_why: format!("{}: {}", limit.bound, self.said_of(limit.bound)),
            own: disk.own_usage(),
            trash: self.disk.trash(),
            used: disk.used_total().plus(more),
            free: Bytes(disk.free().0.saturating_sub(more.0)),
            over: disk.over(),
            suspended: self.disk.suspension().map(|why| self.disk_suspended(why)),
            projects: self.state.projects.keys().map(|id| of(*id)).collect(),
            deeds: self.disk.deeds().cloned().collect(),
        })
    }

    /// How it stands with the disk, as it was known at the end of the last event; none where nothing was
    /// measured yet.
    pub fn disk_space(&self) -> Option<DiskSpace> {
        let disk = self.disk.books()?;
        let limit = disk.total_limit()?;
        let Done { deleted_files, deleted, jobs_given_back } = self.disk.done();
        let over = disk.over();
        Some(DiskSpace {
            limit: limit.bytes,
            limited_by: format!("{}: {}", limit.bound, self.said_of(limit.bound)),
            used: disk.used_total(),
            // Also what others take of the space that is to stay free.
            missing: if over > Bytes(0) { over.plus(limit.short()) } else { Bytes(0) },
            is_suspended: self.disk.suspension().is_some(),
            deleted_files,
            deleted,
            jobs_given_back,
        })
    }

    /// What was decided about the disk of late, the last at the end (R4.13).
    pub fn disk_decisions(&self) -> impl ExactSizeIterator<Item = &DiskDecision> {
        self.disk.decisions().iter()
    }

    /// Which preference a limit comes from, its value, and who has said it.
    fn said_of(&self, bound: Bound) -> String {
        let key = bound.preference();
        let said = self.preferences_in_force().entries.iter().find(|one| one.key == key);
        said.map_or_else(|| key.to_owned(), |one| format!("{key} = {}, {}", one.value, one.place))
    }

    /// Why computing is suspended for want of space, and who has set the limit.
    pub(crate) fn disk_suspended(&self, why: &DiskSuspension) -> String {
        format!("{why} ({})", self.said_of(why.limit.bound))
    }

    /// What the slots of each project's jobs have grown by since the disk was measured.
    fn grown(&self) -> BTreeMap<ProjectId, Bytes> {
        let mut grown: BTreeMap<ProjectId, Bytes> = BTreeMap::new();
        for (slot, id) in self.state.jobs.slots() {
            let Some(job) = self.state.jobs.get(id) else { continue };
            let measured = self.disk.measured_in(*slot, *id);
            let more = job.run.disk_held.all.0.saturating_sub(measured.0);
            let all = grown.entry(job.project).or_default();
            *all = all.plus(Bytes(more));
        }
        grown
    }
}
