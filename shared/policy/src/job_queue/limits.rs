//! How many jobs of a project may run at once, as the owner of the host says (BOINC: `max_concurrent` of
//! `app_config.xml`).
//!
//! Model: a job that runs takes one place of its project, and one of its application where that has a limit
//! of its own, whatever else it uses. Without a place a job waits, and others are tried. Jobs that need the
//! same but are of different applications are told apart by [`Needs`](super::Needs), so that the first of one
//! that has no place hides nobody.
//!
//! Jobs on GPUs are chosen before those on CPUs ([`crate::cpu_schedule`]). So the places that they take are
//! none of the CPU jobs', for as long as they are held and there are GPUs for them.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use fallow_domain::{PerType, ProjectId, ResourceType};

use super::{Instances, JobQueue, JobSnapshot, Needs};

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
    /// The most that a job of its known versions uses of its main type, by that; none where no version is
    /// known. So large its next jobs may be while none is held.
    pub largest: PerType<Instances>,
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
}

/// Jobs of one application that use as much of their main type each.
#[derive(Clone, Copy, Debug)]
struct Alike {
    size: Instances,
    application: Option<u32>,
    count: usize,
}

/// The places of one project while its jobs are counted through, type by type.
struct Counted<'a> {
    limits: &'a AtOnce,
    taken: usize,
    by_application: BTreeMap<u32, usize>,
}

impl<'a> Counted<'a> {
    /// Of a type's jobs count those that have a place when jobs of the types before it have theirs.
    fn before(
        limits: &'a AtOnce,
        kind: ResourceType,
        instances: &PerType<u32>,
        jobs: impl Fn(ResourceType) -> Vec<Alike>,
    ) -> Self {
        let mut counted = Self { limits, taken: 0, by_application: BTreeMap::new() };
        for before in ResourceType::COPROCESSORS.into_iter().take_while(|before| *before != kind) {
            counted.take(jobs(before), Some(Instances::whole(instances[before])));
        }
        counted
    }

    /// Gives places to jobs, the largest first, as far as they fit in `room`. Returns what they use: it is
    /// the most that it can be.
    fn take(&mut self, mut jobs: Vec<Alike>, mut room: Option<Instances>) -> Instances {
        jobs.sort_unstable_by_key(|alike| std::cmp::Reverse(alike.size));
        let mut used = Instances::ZERO;
        for Alike { size, application, count } in jobs {
            let of_its = application.zip(self.limits.of(application));
            let places = self.limits.project.map_or(usize::MAX, |most| most.get() as usize);
            let places_of_its = of_its.map_or(usize::MAX, |(number, most)| {
                let taken = self.by_application.get(&number).copied().unwrap_or_default();
                (most as usize).saturating_sub(taken)
            });
            let fitting = room.map_or(usize::MAX, |room| size.fitting(room));
            let count = count.min(places.saturating_sub(self.taken)).min(places_of_its).min(fitting);
            if let Some((number, _)) = of_its {
                *self.by_application.entry(number).or_default() += count;
            }
            room = room.map(|room| room.minus(size.occupied().times(count)));
            self.taken += count;
            used = used.plus(size.times(count));
        }
        used
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

    /// The projects of which it is limited.
    pub fn limited(&self) -> impl Iterator<Item = ProjectId> {
        self.limits.keys().copied()
    }

    /// Of the jobs that could run and of which `counts` says so, those of a project and main type.
    fn runnable_alike(
        &self,
        project: ProjectId,
        kind: ResourceType,
        counts: &impl Fn(&Needs) -> bool,
    ) -> Vec<Alike> {
        let Some(subqueue) = self.subqueue(project, kind) else { return Vec::new() };
        let tasks = subqueue.tasks().filter_map(|id| self.get(id)).map(|job| (job.needs(), 1));
        let unstarted = subqueue.unstarted.iter().map(|(needs, bucket)| (*needs, bucket.len()));
        let all = tasks.chain(unstarted).filter(|(needs, _)| counts(needs));
        all.map(|(needs, count)| Alike { size: needs.of(kind), application: needs.application, count })
            .collect()
    }

    /// All jobs of a project and main type.
    fn alike(&self, project: ProjectId, kind: ResourceType) -> Vec<Alike> {
        let sizes = self.subqueue(project, kind).into_iter().flat_map(|subqueue| &subqueue.sizes);
        sizes
            .map(|((size, application), count)| Alike {
                size: *size,
                application: *application,
                count: *count,
            })
            .collect()
    }

    /// Instances of a type that the jobs of a project with that main type could use at once by its limits,
    /// on a host of so many `instances`; none where it has no limits.
    pub(crate) fn usable_at_once(
        &self,
        project: ProjectId,
        kind: ResourceType,
        instances: &PerType<u32>,
    ) -> Option<Instances> {
        let limits = self.at_once(project)?;
        let jobs = |kind| self.alike(project, kind);
        Some(Counted::before(limits, kind, instances, jobs).take(jobs(kind), None))
    }

    /// The same of the jobs that could run now and of whose needs `counts` says so.
    pub(crate) fn usable_now(
        &self,
        project: ProjectId,
        kind: ResourceType,
        instances: &PerType<u32>,
        counts: impl Fn(&Needs) -> bool,
    ) -> Option<Instances> {
        let limits = self.at_once(project)?;
        let jobs = |kind| self.runnable_alike(project, kind, &counts);
        Some(Counted::before(limits, kind, instances, jobs).take(jobs(kind), None))
    }

    /// The most instances of a type that jobs of a project could ever use at once by its limits, whichever it
    /// sends, beside the jobs on GPUs that are held; none where these leave that open. How large its jobs are
    /// is taken from those that are held, or from its versions where there are none.
    pub fn never_more(
        &self,
        project: ProjectId,
        kind: ResourceType,
        instances: &PerType<u32>,
    ) -> Option<f64> {
        let (size, jobs) = self.places_left(project, kind, instances)?;
        Some(size.times(jobs).as_f64())
    }

    /// The same as how much one job uses and how many jobs.
    pub(crate) fn places_left(
        &self,
        project: ProjectId,
        kind: ResourceType,
        instances: &PerType<u32>,
    ) -> Option<(Instances, usize)> {
        let (limits, size, jobs) = self.most_alike(project, kind)?;
        let taken = Counted::before(limits, kind, instances, |kind| self.alike(project, kind)).taken;
        Some((size, jobs.saturating_sub(taken)))
    }

    /// How much one job of a project and main type uses, and how many of its jobs ever run at once, if its
    /// limits say so.
    fn most_alike(&self, project: ProjectId, kind: ResourceType) -> Option<(&AtOnce, Instances, usize)> {
        let limits = self.at_once(project)?;
        let jobs = limits.jobs()? as usize;
        let held = self.subqueue(project, kind).and_then(|subqueue| subqueue.sizes.last_key_value());
        let known = Some(limits.largest[kind]).filter(|size| *size > Instances::ZERO);
        let size = held.map(|((size, _), _)| *size).or(known).unwrap_or(Instances::ONE);
        Some((limits, size, jobs))
    }

    /// The most instances of a type that jobs of a project ever use at once by its limits, whichever of its
    /// versions they are of, had it no jobs of other types; none where these leave that open.
    pub fn lets_run(&self, project: ProjectId, kind: ResourceType) -> Option<f64> {
        let (limits, held, jobs) = self.most_alike(project, kind)?;
        Some(held.max(limits.largest[kind]).times(jobs).as_f64())
    }

    /// The most instances of a type that the limits of a project leave it beside its jobs on GPUs that could
    /// run: ever, or as long as more of the jobs that could run have no place than that. None where they take
    /// nothing from it.
    pub fn cut_to(&self, project: ProjectId, kind: ResourceType, instances: &PerType<u32>) -> Option<f64> {
        let now = self.usable_now(project, kind, instances, |_| true);
        let now = now.filter(|now| *now < self.runnable_instances(project, kind)).map(Instances::as_f64);
        let ever = self.most_alike(project, kind).map(|(limits, size, jobs)| {
            let runnable = |kind| self.runnable_alike(project, kind, &|_| true);
            let taken = Counted::before(limits, kind, instances, runnable).taken;
            size.times(jobs.saturating_sub(taken)).as_f64()
        });
        ever.into_iter().chain(now).reduce(f64::min)
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
