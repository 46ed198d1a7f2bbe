//! How long jobs take (R5.7, R5.8): what is learned from those that ended, and what that makes of those that
//! are held.
//!
//! What was learned is kept for every completion policy, whichever is followed: for the day when it changes.

use fallow_domain::{Duration, JobId, ProjectId};
use fallow_policy::completion::{self, DurationCorrection, EndedJob, JobProgress, Learned, Progress};
use fallow_policy::rpc_timing::RpcState;

use crate::machine::Client;
use crate::record::Record;
use crate::state::{Job, Project};
use crate::versions::VersionKey;

impl Client {
    /// What a project's finished jobs took over what they were to take by their size (R5.8); 1 where it says
    /// so.
    fn learned(&self, id: ProjectId) -> DurationCorrection {
        let project = self.state.projects.get(&id).filter(|project| !project.dont_use_dcf);
        project.map_or(DurationCorrection::default(), |project| project.correction)
    }

    /// What estimates of a project's jobs depend on beside the jobs themselves.
    fn learned_of(&self, id: ProjectId) -> Learned {
        // To gather the numbers takes time, and they are asked for at each end of a job.
        let looks = self.config.composition.completion.looks_at_versions();
        let experience = self.ledger.experience_of(id).filter(|_| looks);
        Learned {
            correction: self.learned(id),
            by_quantile: experience.map(|experience| experience.of_project(self.now())).unwrap_or_default(),
            by_version: experience.map(|experience| experience.numbers().collect()).unwrap_or_default(),
            efficiency: self.ledger.cpu_efficiency(),
        }
    }

    /// The factor by which estimates of a project's jobs are corrected, whichever they are.
    pub(crate) fn correction(&self, id: ProjectId) -> DurationCorrection {
        let completion = self.config.composition.completion;
        completion.factor(completion.of_project(&self.learned_of(id)))
    }

    /// What a project's servers are told; 1 where it says so.
    pub(crate) fn told_correction(&self, project: &Project) -> DurationCorrection {
        if project.dont_use_dcf {
            return DurationCorrection::default();
        }
        self.config.composition.completion.of_project(&self.learned_of(project.id))
    }

    /// The running time of a whole job by its size, uncorrected: what a correction is learned against.
    pub(crate) fn estimated_total(&self, id: JobId) -> Duration {
        self.state.jobs.get(&id).map_or(Duration::ZERO, by_size)
    }

    /// The wall time that a job still needs while it runs with all that it uses (R5.7).
    pub(crate) fn running_time_left(&self, job: &Job) -> Duration {
        let progress = match job.usage.coprocessor {
            Some(_) => Progress::Coprocessor(running_time(job)),
            None => Progress::Cpu(running_time(job), self.ledger.cpu_efficiency()),
        };
        let completion = self.config.composition.completion;
        let job = JobProgress {
            by_size: by_size(job),
            fraction_done: fallow_domain::Fraction::clamped(job.run.fraction_done),
            progress,
            learned: self.learned(job.project),
            // To find a version takes time, and this is asked for every job that is placed.
            by_version: if completion.looks_at_versions() {
                self.by_version(job)
            } else {
                Default::default()
            },
        };
        completion.estimate(&job).left
    }

    /// What the last jobs of a job's version took over what they were to take.
    fn by_version(&self, job: &Job) -> DurationCorrection {
        let experience = self.ledger.experience_of(job.project);
        experience.map(|experience| experience.factor(&job.version, job.speed)).unwrap_or_default()
    }

    /// Learns from a finished job how wrong its estimate was (R5.8), and how much of its time on a CPU it
    /// computed.
    pub(crate) fn learn_estimate(&mut self, id: JobId, estimated: Duration) {
        let Some(job) = self.state.jobs.get(&id) else { return };
        let (project, actual, elapsed) = (job.project, running_time(job), job.run.elapsed);
        let (version, speed) = (job.version.clone(), job.speed);
        let is_news = job.usage.coprocessor.is_none() && self.ledger.learn_efficiency(actual, elapsed);
        let ended = EndedJob { by_size: estimated, actual: ran(job), speed };
        self.learn_experience(project, &version, ended);
        self.edit_correction(project, |correction| correction.learned(estimated, actual));
        self.edit_rpc(project, RpcState::on_job_success);
        // How much of its time a job computes is measured for the host, and holds for all of them.
        if is_news {
            let projects: Vec<ProjectId> = self.state.projects.keys().copied().collect();
            projects.into_iter().for_each(|project| self.estimates_changed(project));
        }
    }

    /// Learns from a job what those of its version take.
    pub(crate) fn learn_experience(&mut self, project: ProjectId, version: &VersionKey, job: EndedJob) {
        if self.config.learns_experience() {
            let now = self.now();
            self.ledger.learn_from(project, now, version, job);
            self.store_only(Record::Experience(project));
        }
        self.estimates_changed(project);
    }

    /// What a job takes in all if it is as short as the shortest of the last ones of its version; none if few
    /// are known.
    pub(crate) fn shortest(&self, job: &Job) -> Option<Duration> {
        let least = self.ledger.experience_of(job.project)?.least(&job.version, job.speed)?;
        Some(least.apply(by_size(job)))
    }

    /// Tells the queue when what a project's estimates depend on has moved away from what those that it holds
    /// were made from.
    pub(crate) fn estimates_changed(&mut self, id: ProjectId) {
        let completion = self.config.composition.completion;
        let basis = completion.depends_on(&self.learned_of(id));
        if !self.workload.estimate_by(id, basis, || completion.depends_on(&Learned::default())) {
            return;
        }
        let jobs: Vec<JobId> = self.jobs_of(id);
        for job in jobs {
            self.reassess(job);
        }
    }
}

/// The running time of a whole job by its size. The speed is that of all that it uses at once.
fn by_size(job: &Job) -> Duration {
    completion::by_size_of(job.flops_estimate, job.speed)
}

/// How long a job has run towards its result, by the clock. For how long its process was there is known only
/// as exactly as the client looks, so that a short one may have computed for longer.
pub(crate) fn ran(job: &Job) -> Duration {
    job.run.elapsed.max(running_time(job))
}

/// How long a job has run towards its result: by the CPU time that it used of each of its CPUs, or, if it is
/// a coprocessor's job, by the clock.
pub(crate) fn running_time(job: &Job) -> Duration {
    match job.usage.coprocessor {
        Some(_) => job.run.elapsed,
        None => job.run.cpu().mul_f64(1.0 / job.usage.cpus.max(0.01)),
    }
}
