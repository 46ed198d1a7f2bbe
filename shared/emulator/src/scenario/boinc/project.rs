//! The projects of a BOINC client and their queued jobs.

use std::collections::{BTreeMap, BTreeSet};

use fallow_boinc::client_state::{
    ClientState, StateProject, StateResult, StateTask, StateVersion, StateWorkunit,
};
use fallow_boinc::scheduler::type_of;
use fallow_domain::{Bytes, Duration, Flops, Fraction, Instant, Share, Speed};

use super::super::check::CENTURY;
use super::super::{
    ApplicationModel, Availability, CoprocessorKind, CoprocessorUse, HostModel, ProjectModel, QueuedJob,
    QueuedState, TrueFlops, Uses,
};
use super::name_of;

/// What BOINC takes for a workunit that does not say how large it is.
const SIZE: f64 = 6.048e14;
/// Shorter jobs than this, in seconds, would make a run of days endless.
const JOB_MIN: f64 = 0.1;
/// A longer delay between requests is a backoff, not a project's wish.
const DELAY_MAX: Duration = Duration::from_hours(1);

/// States of a result, as BOINC numbers them.
const FAILED: u32 = 3;
const UPLOADING: u32 = 4;
const UPLOADED: u32 = 5;
/// State of a task that runs.
const EXECUTING: u32 = 1;

/// All projects that compute.
pub(super) fn projects(state: &ClientState, host: &HostModel, notes: &mut Vec<String>) -> Vec<ProjectModel> {
    let mut names = BTreeSet::new();
    let now = state.written_at();
    let mut projects = Vec::new();
    for theirs in &state.projects {
        let name = match theirs.project_name.trim() {
            "" => theirs.master_url.split_once("://").map_or("", |(_, rest)| rest.trim_end_matches('/')),
            name => name,
        };
        let name = name_of(name, "project", &mut names);
        if theirs.suspended_via_gui {
            notes.push(format!("Project {name} is suspended and left out."));
            continue;
        }
        projects.push(Reading { theirs, host, now, name: &name, notes }.project());
    }
    projects
}

/// One project as it is read.
struct Reading<'a> {
    theirs: &'a StateProject,
    host: &'a HostModel,
    now: Instant,
    name: &'a str,
    notes: &'a mut Vec<String>,
}

/// A job with what describes it.
struct Job<'a> {
    result: &'a StateResult,
    workunit: &'a StateWorkunit,
    application: String,
    uses: Uses,
    /// Its size in our terms: what the host does in the time that BOINC estimates.
    size: f64,
    /// How long it is estimated to run.
    time: f64,
}

impl<'a> Reading<'a> {
    fn project(mut self) -> ProjectModel {
        let theirs = self.theirs;
        let jobs = self.jobs();
        let correction = self.correction();
        let mut applications = self.applications(&jobs, correction);
        let queue = jobs.iter().map(|job| self.queued(job, correction)).collect();
        if applications.is_empty() {
            self.notes.push(format!(
                "Project {} has no jobs queued: jobs of the base scenario are assumed.",
                self.name
            ));
            applications.push(ApplicationModel::base(self.name, 1));
        }
        if theirs.dont_request_more_work {
            self.notes.push(format!("Project {} sends no more work.", self.name));
            for application in &mut applications {
                application.jobs = Some(0);
            }
        }
        let delay = theirs.min_rpc_time.since(theirs.last_rpc_time);
        ProjectModel {
            name: self.name.to_owned(),
            share: Share::new(theirs.resource_share).unwrap_or_default(),
            available: Availability::Always,
            request_delay: if theirs.nrpc_failures == 0 && delay <= DELAY_MAX {
                delay
            } else {
                Duration::ZERO
            },
            spread: false,
            correction,
            applications,
            queue,
        }
    }

    fn correction(&self) -> f64 {
        let factor = self.theirs.duration_correction_factor;
        if self.theirs.dont_use_dcf || !factor.is_finite() { 1.0 } else { factor.clamp(0.01, 100.0) }
    }

    /// The jobs that have something left to do, each name once.
    fn jobs(&mut self) -> Vec<Job<'a>> {
        let theirs = self.theirs;
        let workunits: BTreeMap<&str, &StateWorkunit> =
            theirs.workunits.iter().map(|workunit| (workunit.name.as_str(), workunit)).collect();
        let mut names = BTreeSet::new();
        let (mut ended, mut suspended, mut unknown) = (0_u32, 0_u32, 0_u32);
        let mut jobs = Vec::new();
        for result in &theirs.results {
            let failed = matches!(result.state, FAILED) || result.state > UPLOADED;
            match workunits.get(result.wu_name.as_str()) {
                _ if failed => ended += 1,
                _ if result.suspended_via_gui => suspended += 1,
                Some(workunit) if names.insert(&result.name) => jobs.push(self.job(result, workunit)),
                _ => unknown += 1,
            }
        }
        for (count, what) in [
            (ended, "failed or aborted"),
            (suspended, "suspended by the owner"),
            (unknown, "without a workunit of their own"),
        ] {
            if count > 0 {
                self.notes.push(format!("Project {}: jobs left out as {what}: {count}.", self.name));
            }
        }
        jobs
    }

    fn job(&self, result: &'a StateResult, workunit: &'a StateWorkunit) -> Job<'a> {
        let version = self.version(result, workunit);
        let uses = version.map_or(Uses::ONE_CPU, uses);
        let said = workunit.rsc_fpops_est.map_or(SIZE, Flops::get);
        let ours = self.host.speed_for(uses).unwrap_or(self.host.flops).get();
        // BOINC's estimate of the run time: the size over what the server says that this version achieves
        // here.
        let achieved = version.and_then(|version| version.flops).map_or(ours, Speed::get);
        let time = (said / achieved).clamp(JOB_MIN, CENTURY.as_secs_f64() / 200.0);
        let application = format!("{} {}", workunit.app_name, result.plan_class);
        let application = name_of(&application, "jobs", &mut BTreeSet::new());
        Job { result, workunit, application, uses, size: time * ours, time }
    }

    /// The version that computes a job: the one it names, or any of its application.
    fn version(&self, result: &StateResult, workunit: &StateWorkunit) -> Option<&'a StateVersion> {
        let of_application =
            || self.theirs.versions.iter().filter(|version| version.app_name == workunit.app_name);
        of_application()
            .find(|version| {
                version.version_num == result.version_num && version.plan_class == result.plan_class
            })
            .or_else(|| of_application().next())
    }

    /// The kinds of jobs in the queue, each with the mean of its jobs' figures.
    fn applications(&self, jobs: &[Job<'a>], correction: f64) -> Vec<ApplicationModel> {
        let files: BTreeMap<&str, Bytes> =
            self.theirs.files.iter().map(|file| (file.name.as_str(), file.nbytes)).collect();
        // In the order of their names, which are those of the jobs.
        let mut kinds: BTreeMap<&str, Vec<&Job<'_>>> = BTreeMap::new();
        for job in jobs {
            kinds.entry(&job.application).or_default().push(job);
        }
        let mut applications = Vec::new();
        for (name, jobs) in kinds {
            let Some(first) = jobs.first() else { continue };
            let mean = |of: &dyn Fn(&Job<'_>) -> f64| {
                jobs.iter().map(|job| of(job)).sum::<f64>() / jobs.len() as f64
            };
            let latency =
                mean(&|job| job.result.report_deadline.since(job.result.received_time).as_secs_f64());
            let latency = Duration::from_secs_f64(latency.round()).clamp(Duration::from_secs(1), CENTURY);
            let bytes = |names: &[String]| -> f64 {
                names.iter().filter_map(|name| files.get(name.as_str())).map(|bytes| bytes.as_f64()).sum()
            };
            let size = mean(&|job| job.size);
            applications.push(ApplicationModel {
                weight: jobs.len() as f64,
                latency_bound: latency,
                estimated_flops: Flops::new(size).unwrap_or_default(),
                true_flops: TrueFlops::all(Flops::new(size * correction).unwrap_or_default()),
                uses: first.uses,
                input: bounded(mean(&|job| bytes(&job.workunit.files))),
                output: bounded(mean(&|job| bytes(&job.result.files))),
                memory: bounded(mean(&|job| job.workunit.rsc_memory_bound.as_f64())),
                ..ApplicationModel::base(name, 1)
            });
        }
        applications
    }

    fn queued(&self, job: &Job<'_>, correction: f64) -> QueuedJob {
        let result = job.result;
        // A clock that was set back leaves jobs from the future.
        let since = |time: Instant| (time - self.now).clamp(-CENTURY, CENTURY);
        let finished = matches!(result.state, UPLOADING | UPLOADED);
        let task = result.task.as_ref().filter(|_| !finished);
        let done = task.map_or(0.0, |task| Fraction::clamped(task.fraction_done).get());
        let estimate = job.time * correction;
        let (state, elapsed, left) = match task {
            _ if finished => (QueuedState::Finished, result.final_elapsed_time, 0.0),
            None => (QueuedState::Waiting, Duration::ZERO, estimate),
            Some(task) => {
                let runs = task.active_task_state == EXECUTING;
                let state = if runs { QueuedState::Running } else { QueuedState::Preempted };
                (state, task.elapsed_time, remaining(task, done, estimate))
            }
        };
        QueuedJob {
            name: result.name.clone(),
            application: job.application.clone(),
            received: since(result.received_time).min(Duration::ZERO),
            deadline: since(result.report_deadline),
            fraction_done: if finished { Fraction::ONE } else { Fraction::clamped(done) },
            elapsed: elapsed.clamp(Duration::ZERO, CENTURY),
            remaining: Some(Duration::from_secs_f64(left).clamp(Duration::ZERO, CENTURY)),
            state,
        }
    }
}

/// What is left of a job that was started: as its progress has it, the more so the further it is, and else as
/// estimated (R5.7).
fn remaining(task: &StateTask, done: f64, estimate: f64) -> f64 {
    let by_estimate = estimate * (1.0 - done);
    if done <= 0.0 {
        return by_estimate;
    }
    let by_progress = task.elapsed_time.as_secs_f64() * (1.0 - done) / done;
    done * by_progress + (1.0 - done) * by_estimate
}

fn bounded(bytes: f64) -> Bytes {
    Bytes::from_f64(bytes.clamp(0.0, 1e15))
}

fn uses(version: &StateVersion) -> Uses {
    let sensible = |count: f64| count.is_finite() && count > 0.0 && count <= 1e6;
    let coprocessor = version.coproc.as_ref().filter(|used| sensible(used.count)).and_then(|used| {
        let kind = type_of(&used.kind).and_then(CoprocessorKind::from_resource)?;
        Some(CoprocessorUse { kind, instances: used.count })
    });
    let cpus = match version.avg_ncpus {
        cpus if sensible(cpus) => cpus,
        _ if coprocessor.is_some() => 0.0,
        _ => 1.0,
    };
    Uses { cpus, coprocessor }
}
