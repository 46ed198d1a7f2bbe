//! The disk for people: who uses what, what may be used and by which preference, what would go next, what
//! went and why.

use fallow_domain::{Bytes, Duration, Instant, ProjectId};
use fallow_policy::disk::WhyNext;

use crate::disk::DiskDeed;
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
        let of = |id: ProjectId| DiskProjectView {
            id,
            used: disk.project_usage(id),
            other: disk.other_usage(id),
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
            limit_why: limit.bound.to_string(),
            own: disk.own_usage(),
            trash: self.disk.trash(),
            used: disk.used_total(),
            free: disk.free(),
            over: disk.over(),
            suspended: self.disk.suspension().map(ToString::to_string),
            projects: self.state.projects.keys().map(|id| of(*id)).collect(),
            deeds: self.disk.deeds().cloned().collect(),
        })
    }
}
