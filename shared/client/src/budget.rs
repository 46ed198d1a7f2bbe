//! What one project may make a host keep (R6.10): so many jobs, application versions and files, of so many
//! bytes.
//!
//! A server says as much as it likes, and everything it says is kept in memory, stored and told on. So each
//! project has a budget of its own, far above what real ones use; what exceeds it is refused whole, never
//! half a job, and the owner is told once per reply. The server learns of it as of any lost job: the next
//! request does not list it.
//!
//! Workunits and applications need no figure of their own: a workunit is kept with a job only, an application
//! with a version only.

use std::fmt;

use fallow_domain::ProjectId;

use crate::FileKey;
use crate::described::{
    Application, ApplicationVersion, FileDescription, FileReference, JobDescription, Workunit,
};
use crate::state::State;

/// Jobs of a project. BOINC's client asks no project of which it holds a thousand runnable ones; ten times as
/// many are room for those that wait, upload or are to be reported.
pub(crate) const JOBS_MAX: usize = 10_000;
/// Application versions of a project. The largest projects have some hundred over all platforms and plan
/// classes.
pub(crate) const VERSIONS_MAX: usize = 1_000;
/// Files of a project, present or to come: six for each job.
pub(crate) const FILES_MAX: usize = 60_000;
/// Weight of all that a project's server said about these. A usual job with its files weighs about 4 kB.
const BYTES_MAX: usize = 64 << 20;
/// Weight of one of them. A real version with a hundred files weighs 20 kB.
const ENTITY_MAX: usize = 64 << 10;

/// How much memory something holds, nearly: its own size and that of its texts.
pub(crate) trait Weigh: Sized {
    /// Of its texts.
    fn texts(&self) -> usize;
    /// Of all of it.
    fn weight(&self) -> usize {
        std::mem::size_of::<Self>() + self.texts()
    }
    /// Whether it is larger than any real one.
    fn is_oversized(&self) -> bool {
        self.weight() > ENTITY_MAX
    }
}

fn text(text: Option<&String>) -> usize {
    text.map_or(0, String::len)
}

fn list(texts: &[String]) -> usize {
    texts.iter().map(|text| std::mem::size_of::<String>() + text.len()).sum()
}

fn refs(files: &[FileReference]) -> usize {
    let one = |file: &FileReference| {
        std::mem::size_of::<FileReference>() + file.file_name.len() + text(file.open_name.as_ref())
    };
    files.iter().map(one).sum()
}

impl Weigh for FileDescription {
    fn texts(&self) -> usize {
        let signatures = text(self.signature.as_ref()) + text(self.xml_signature.as_ref());
        let urls = list(&self.download_urls) + list(&self.upload_urls) + list(&self.gzipped_urls);
        self.name.len() + text(self.md5.as_ref()) + signatures + urls
    }
}

impl Weigh for ApplicationVersion {
    fn texts(&self) -> usize {
        let names = self.app.len() + self.platform.len() + self.plan_class.len();
        let coprocessor = self.coprocessor.as_ref().map_or(0, |used| used.kind.len());
        let rest = text(self.api_version.as_ref()) + self.command_line.len() + self.file_prefix.len();
        names + rest + coprocessor + refs(&self.files)
    }
}

impl Weigh for Workunit {
    fn texts(&self) -> usize {
        self.name.len() + self.app.len() + self.command_line.len() + refs(&self.files)
    }
}

impl Weigh for JobDescription {
    fn texts(&self) -> usize {
        let version = self.platform.len() + self.plan_class.len();
        self.name.len() + self.workunit.len() + version + refs(&self.files)
    }
}

impl Weigh for Application {
    fn texts(&self) -> usize {
        self.name.len() + self.user_friendly_name.len()
    }
}

/// What is left of a project's budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    jobs: usize,
    versions: usize,
    files: usize,
    bytes: usize,
}

/// What something would take of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    pub jobs: usize,
    pub versions: usize,
    pub files: usize,
    pub bytes: usize,
}

impl Room {
    /// For a reply that brings nothing.
    pub(crate) const NONE: Self = Self { jobs: 0, versions: 0, files: 0, bytes: 0 };

    /// What a project has left.
    pub(crate) fn of(state: &State, project: ProjectId) -> Self {
        let mut held = Need::default();
        let all = state.jobs.len() + state.workunits.len() + state.versions.len() + state.files.len();
        // With so few of everything nobody can be near the limit, and there is nothing to be counted.
        if all * ENTITY_MAX > BYTES_MAX {
            held = holds(state, project);
        }
        Self {
            jobs: JOBS_MAX.saturating_sub(held.jobs),
            versions: VERSIONS_MAX.saturating_sub(held.versions),
            files: FILES_MAX.saturating_sub(held.files),
            bytes: BYTES_MAX.saturating_sub(held.bytes),
        }
    }

    /// Takes what is needed, all or nothing, and says which.
    pub(crate) fn take(&mut self, need: Need) -> bool {
        let fits = need.jobs <= self.jobs
            && need.versions <= self.versions
            && need.files <= self.files
            && need.bytes <= self.bytes;
        if fits {
            self.jobs -= need.jobs;
            self.versions -= need.versions;
            self.files -= need.files;
            self.bytes -= need.bytes;
        }
        fits
    }
}

fn holds(state: &State, project: ProjectId) -> Need {
    let mut held = Need::default();
    let from = FileKey { project, name: String::new() };
    for (_, file) in state.files.range(from..).take_while(|(key, _)| key.project == project) {
        held.files += 1;
        held.bytes += file.info.weight();
    }
    for (_, workunit) in state.workunits.of(project) {
        held.bytes += workunit.weight();
    }
    for id in state.jobs.of(project) {
        held.jobs += 1;
        held.bytes += state.jobs.get(&id).map_or(0, |job| job.result.weight());
    }
    for (_, version) in state.versions.of(project) {
        held.versions += 1;
        held.bytes += version.weight();
    }
    held
}

/// How much of a reply was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refused {
    pub jobs: usize,
    pub versions: usize,
    pub files: usize,
}

impl Refused {
    /// Whether there is something to tell.
    pub(crate) fn any(self) -> bool {
        self != Self::default()
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the project sent more than a host keeps for one project; refused: {} jobs, {} application versions, {} files \
             (the most are {JOBS_MAX} jobs, {VERSIONS_MAX} versions, {FILES_MAX} files, {} MiB in all and {} KiB for each)",
            self.jobs,
            self.versions,
            self.files,
            BYTES_MAX >> 20,
            ENTITY_MAX >> 10,
        )
    }
}
