//! How many jobs of a project may run at once, as the owner of the host says (BOINC: `max_concurrent` of
//! `app_config.xml`).
//!
//! Model: a job that runs takes one place of its project, and one of its application where that has a limit
//! of its own, whatever else it uses. Without a place a job waits, and others are tried. Jobs that need the
//! same but are of different applications are told apart by [`Needs`](super::Needs), so that the first of one
//! that has no place hides nobody.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use fallow_domain::{ProjectId, ResourceType};

use super::{Instances, JobQueue, JobSnapshot};

/// How many jobs of one project may run at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AtOnce {
    /// Of all its applications together.
    pub project: Option<NonZeroU32>,
    /// Of single applications, by the numbers that their jobs have ([`JobSnapshot::application`]).
    pub applications: BTreeMap<u32, NonZeroU32>,
    /// All its applications that are known have such a limit: more of its jobs than these come to together
    /// never run, whichever come.
    pub limits_all: bool,
}

/// A limit that leaves no place for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlace {
    /// So many jobs of its project run.
    OfProject(u32),
    /// So many jobs of its application run.
    OfApplication(u32),
}

impl AtOnce {
    /// Whether nothing is limited.
    pub fn is_nothing(&self) -> bool {
        self.project.is_none() && self.applications.is_empty()
    }

    fn of(&self, application: Option<u32>) -> Option<u32> {
        application.and_then(|number| self.applications.get(&number)).map(|most| most.get())
    }

    /// The most jobs of the project that ever run, whichever come; none where one may come whose application
    /// has no limit, and the project has none.
    fn jobs(&self) -> Option<u32> {
        let of_all = || self.applications.values().fold(0_u32, |sum, most| sum.saturating_add(most.get()));
        let all = self.limits_all.then(of_all);
        let project = self.project.map(NonZeroU32::get);
        all.into_iter().chain(project).min()
    }

    /// Of jobs with these instances of one type, what may be used at once. It is the most that it can be:
    /// the largest go first.
    fn most_of(&self, jobs: impl Iterator<Item = (Option<u32>, Instances)>) -> Instances {
        let mut by_application: BTreeMap<Option<u32>, Vec<Instances>> = BTreeMap::new();
        for (application, instances) in jobs {
            let counted = application.filter(|number| self.applications.contains_key(number));
            by_application.entry(counted).or_default().push(instances);
        }
        let first = |mut jobs: Vec<Instances>, most: Option<u32>| {
            jobs.sort_unstable_by(|a, b| b.cmp(a));
            jobs.truncate(most.map_or(usize::MAX, |most| most as usize));
            jobs
        };
        let each = by_application.into_iter().flat_map(|(of, jobs)| first(jobs, self.of(of))).collect();
        let all = first(each, self.project.map(NonZeroU32::get));
        all.into_iter().fold(Instances::ZERO, Instances::plus)
    }
}

/// The places that are taken while it is decided what runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    projects: BTreeMap<ProjectId, u32>,
    applications: BTreeMap<(ProjectId, u32), u32>,
}

impl Places {
    /// Why there is none left for a job, if there is none.
    pub(crate) fn none_for(&self, queue: &JobQueue, job: &JobSnapshot) -> Option<NoPlace> {
        let limits = queue.at_once(job.project)?;
        let taken = self.projects.get(&job.project).copied().unwrap_or_default();
        if let Some(most) = limits.project.map(NonZeroU32::get).filter(|most| taken >= *most) {
            return Some(NoPlace::OfProject(most));
        }
        let most = limits.of(job.application)?;
        let taken = self.applications.get(&(job.project, job.application?)).copied().unwrap_or_default();
        (taken >= most).then_some(NoPlace::OfApplication(most))
    }

    /// A job runs.
    pub(crate) fn take(&mut self, queue: &JobQueue, job: &JobSnapshot) {
        if queue.at_once(job.project).is_none() {
            return;
        }
        *self.projects.entry(job.project).or_default() += 1;
        if let Some(application) = job.application {
            *self.applications.entry((job.project, application)).or_default() += 1;
        }
    }
}

impl JobQueue {
    /// Says how many jobs of a project may run at once from now on.
    pub fn limit(&mut self, project: ProjectId, limits: AtOnce) {
        let before = match limits.is_nothing() {
            true => self.limits.remove(&project),
            false => self.limits.insert(project, limits),
        };
        if before.as_ref() != self.limits.get(&project) {
            self.changed();
        }
    }

    /// How many jobs of a project may run at once, where that is limited.
    pub fn at_once(&self, project: ProjectId) -> Option<&AtOnce> {
        // Mostly nothing is.
        if self.limits.is_empty() { None } else { self.limits.get(&project) }
    }

    /// Instances of a type that jobs of a project with that main type could use at once by its limits; none
    /// where it has no limits. Of the jobs only those count that `counts` says.
    pub(crate) fn usable_at_once(
        &self,
        project: ProjectId,
        kind: ResourceType,
        counts: impl Fn(&JobSnapshot) -> bool,
    ) -> Option<Instances> {
        let limits = self.at_once(project)?;
        let Some(subqueue) = self.subqueue(project, kind) else { return Some(Instances::ZERO) };
        let entries = subqueue.tasks().chain(subqueue.queued.iter().map(|entry| entry.id));
        let jobs = entries.filter_map(|id| self.get(id)).filter(|job| counts(job));
        Some(limits.most_of(jobs.map(|job| (job.application, job.main_instances()))))
    }

    /// The most instances of a type that jobs of a project could ever use at once by its limits, whichever it
    /// sends; none where these leave that open. How large its jobs are is taken from those that are held.
    pub fn never_more(&self, project: ProjectId, kind: ResourceType) -> Option<f64> {
        let jobs = f64::from(self.at_once(project)?.jobs()?);
        let held = self.subqueue(project, kind).map(|subqueue| {
            let entries = subqueue.tasks().chain(subqueue.queued.iter().map(|entry| entry.id));
            entries.filter_map(|id| self.get(id)).map(JobSnapshot::main_instances).max()
        });
        Some(jobs * held.flatten().map_or(1.0, Instances::as_f64))
    }

    /// How many jobs of a project and main type would not even begin within so much computing, since their
    /// applications may run so few at once.
    pub fn beyond_limits(&self, project: ProjectId, kind: ResourceType, within_secs: f64) -> usize {
        let Some(limits) = self.at_once(project).filter(|limits| !limits.applications.is_empty()) else {
            return 0;
        };
        let Some(subqueue) = self.subqueue(project, kind) else { return 0 };
        let entries = subqueue.tasks().chain(subqueue.queued.iter().map(|entry| entry.id));
        let mut before: BTreeMap<u32, (u32, f64)> = BTreeMap::new();
        let mut beyond = 0;
        for job in entries.filter_map(|id| self.get(id)) {
            let Some((number, most)) = job.application.zip(limits.of(job.application)) else { continue };
            let (count, secs) = before.entry(number).or_default();
            if *count >= most && *secs >= within_secs.max(0.0) * f64::from(most) {
                beyond += 1;
            }
            *count += 1;
            *secs += job.left().as_secs_f64();
        }
        beyond
    }
}
