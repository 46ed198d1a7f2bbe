//! Downloads that stall, and what is enough of a project (R2.16, R3.2).
//!
//! A job whose files do not come keeps no instance busy, however much work it is said to be. Its downloads
//! stall when one of its files has failed and not come since, or when downloads of its project are under way
//! and none of them has ended within [`NO_END_WITHIN`], or in the time that files so large take here. CPU
//! jobs are passed over sooner, while CPUs idle that could run them and another project could have jobs too
//! (`under_way`). Such jobs are held, and no work that plans reckon with; their project is asked for no more
//! (BOINC's rule) until the files come.

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::{Bytes, Duration, Instant, JobId, PerType, ProjectId, ResourceType};
use fallow_policy::fetch::bounds::{self as fetch_bounds, FetchLimit, ProjectHoldings, UnrunnableTypes};
use fallow_policy::fetch::{TypicalJob, WorkRequest};
use fallow_policy::job_queue::Cpus;

use crate::machine::Client;
use crate::state::{File, FileStatus, Job, Stage};
use crate::timers::Timer;
use crate::under_way::{DownloadsNow, UnderWay};
use crate::{Direction, FileKey};

/// Downloads of a project that are under way are expected to bring a file in this time: 100 MB over a line of
/// a megabit a second.
const NO_END_WITHIN: Duration = Duration::from_mins(15);
/// Large files take longer, and are waited for no longer than this: their project only says how large they
/// are.
const NO_END_EVER_WITHIN: Duration = Duration::from_hours(2);
/// So much longer than at the usual speed they may take.
const SLACK: f64 = 2.0;
/// Where no speed was measured yet: a megabit a second.
const SPEED_UNKNOWN: f64 = 125_000.0;

/// What is held of downloads under way, and of which projects enough is held. Not stored.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    /// Downloads under way, by project.
    downloads: BTreeMap<ProjectId, UnderWay>,
    /// Projects that are asked for no more work, by the last look.
    enough: BTreeMap<ProjectId, FetchLimit>,
    /// Types that a project is asked for no more of, likewise.
    gathered: BTreeMap<ProjectId, UnrunnableTypes>,
}

impl Stalls {
    /// A project is detached.
    pub(crate) fn forget(&mut self, project: ProjectId) {
        self.downloads.remove(&project);
        self.enough.remove(&project);
        self.gathered.remove(&project);
    }

    #[cfg(test)]
    pub(crate) fn gather(&mut self, project: ProjectId, gathered: UnrunnableTypes) {
        self.gathered.insert(project, gathered);
    }
}

/// What a further CPU job could use.
#[derive(Clone, Copy, Debug)]
struct Room {
    cpus: f64,
    memory: Bytes,
}

/// In which time one of several files, of so many bytes together, is expected at so many bytes a second.
fn patience(bytes: f64, speed: f64) -> Duration {
    let speed = if speed > 0.0 { speed } else { SPEED_UNKNOWN };
    let secs = (SLACK * bytes / speed).min(NO_END_EVER_WITHIN.as_secs_f64());
    Duration::from_secs_f64(secs).max(NO_END_WITHIN)
}

fn has_failed(file: &File) -> bool {
    file.transfer
        .as_ref()
        .is_some_and(|transfer| transfer.direction == Direction::Download && transfer.backoff.failures() > 0)
}

impl Client {
    /// Whether a job's files do not come.
    pub(crate) fn is_stalled(&self, job: &Job) -> bool {
        job.stage == Stage::Downloading
            && self.downloads_stall(job.project)
            && (self.come_to_nothing(job)
                || self.input_files(job).iter().any(|key| self.state.files.get(key).is_some_and(has_failed)))
    }

    /// Whether a job waits for downloads that come to nothing. Idle CPUs are no reason to give up a job of a
    /// GPU.
    fn come_to_nothing(&self, job: &Job) -> bool {
        let on_cpus = job.usage.main_type() == ResourceType::Cpu;
        let under_way = self.stalls.downloads.get(&job.project);
        under_way.is_some_and(|found| found.is_late() || on_cpus && found.is_passed_over())
    }

    /// Whether a download of a project stalls.
    fn downloads_stall(&self, project: ProjectId) -> bool {
        let under_way = self.stalls.downloads.get(&project);
        let mut failed = self.state.transfers.downloads_in_trouble(project);
        under_way.is_some_and(|found| found.is_late() || found.is_passed_over())
            || failed.any(|key| self.state.files.get(key).is_some_and(has_failed))
    }

    /// Tells the policies of the jobs that wait for a file which has failed, or has come after it had.
    pub(crate) fn stall_changed(&mut self, waiting: impl IntoIterator<Item = JobId>) {
        let waits = |id: &JobId| {
            self.state
                .jobs
                .get(id)
                .is_some_and(|job| job.stage == Stage::Downloading && job.outcome.is_none())
        };
        let waiting: Vec<JobId> = waiting.into_iter().filter(waits).collect();
        for job in waiting {
            self.reassess(job);
        }
    }

    /// Looks which downloads are under way, and which of them come to nothing.
    pub(crate) fn poll_stalls(&mut self) {
        let now = self.now();
        if self.stalls.downloads.is_empty()
            && self.state.transfers.active(Direction::Download).next().is_none()
        {
            return;
        }
        let seen = self.downloads_seen();
        let mut changed: Vec<ProjectId> = Vec::new();
        let mut waits_else = false;
        self.stalls.downloads.retain(|project, under_way| {
            let goes_on = seen.contains_key(project);
            if !goes_on && (under_way.is_late() || under_way.is_passed_over()) {
                changed.push(*project);
            }
            waits_else |= !goes_on;
            goes_on
        });
        for (project, seen) in seen {
            let under_way = self.stalls.downloads.entry(project).or_insert_with(|| UnderWay::new(now));
            let before = under_way.next();
            if under_way.look(now, seen) {
                changed.push(project);
            }
            waits_else |= under_way.next() != before;
        }
        if waits_else {
            self.timers.stale(Timer::Stall);
        }
        for project in changed {
            let jobs = self.jobs_of(project);
            self.stall_changed(jobs);
            self.want_fetch();
        }
    }

    /// What is seen of the downloads under way, by project.
    fn downloads_seen(&self) -> BTreeMap<ProjectId, DownloadsNow> {
        let mut by_project: BTreeMap<ProjectId, (BTreeSet<FileKey>, f64)> = BTreeMap::new();
        for key in self.state.transfers.active(Direction::Download) {
            let nbytes = self.state.files.get(key).and_then(|file| file.info.nbytes);
            let (files, bytes) = by_project.entry(key.project).or_default();
            files.insert(key.clone());
            *bytes += nbytes.map_or(0.0, Bytes::as_f64);
        }
        if by_project.is_empty() {
            return BTreeMap::new();
        }
        let (speed, room) = (self.ledger.net_rates().down.speed, self.idle_room());
        let seen = by_project.into_iter().map(|(project, (files, bytes))| {
            let before = self.stalls.downloads.get(&project).into_iter().flat_map(UnderWay::files);
            let came = before.filter(|key| !files.contains(key)).any(|key| self.is_here(key));
            let cpus_wait =
                room.is_some_and(|room| self.workload.incoming().any_fits(project, room.cpus, room.memory));
            (project, DownloadsNow { files, came, patience: patience(bytes, speed), cpus_wait })
        });
        seen.collect()
    }

    fn is_here(&self, key: &FileKey) -> bool {
        self.state.files.get(key).is_some_and(|file| file.status == FileStatus::Present)
    }

    /// What is left beside the tasks that run, if that is a CPU and another project could have jobs for it.
    fn idle_room(&self) -> Option<Room> {
        if self.state.projects.len() < 2 || self.preferences().suspended {
            return None;
        }
        let mut room = Room { cpus: f64::from(self.usable_cpus()), memory: self.memory_limit() };
        for job in self.workload.queue().running() {
            let cpus = Cpus::of(job.usage).as_f64();
            // Of a GPU job only whole CPUs are kept from others, as when it is decided what runs.
            room.cpus -= if job.usage.main_type() == ResourceType::Cpu { cpus } else { cpus.floor() };
            room.memory = Bytes(room.memory.0.saturating_sub(job.working_set.0));
        }
        (room.cpus > 0.0).then_some(room)
    }

    /// When downloads under way are next found to come to nothing.
    pub(crate) fn next_stall(&self) -> Option<Instant> {
        let ends = self.stalls.downloads.values().map(UnderWay::next);
        ends.filter(|at| *at > self.now()).min()
    }

    /// Whether a result could not be sent when that was tried. Other results of a host that is connected now
    /// and then (R1.13) wait for its next period, and say nothing about their project.
    fn is_not_taken(&self, job: &Job) -> bool {
        let transfer = |key| self.state.files.get(key)?.transfer.as_ref();
        job.output_files().iter().filter_map(transfer).any(|transfer| transfer.backoff.failures() > 0)
    }

    /// Looks of which projects enough is held.
    pub(crate) fn look_what_is_enough(&mut self) {
        let mut uploading: BTreeMap<ProjectId, usize> = BTreeMap::new();
        let gathers = self.preferences().connection_interval.is_positive();
        let sends = |job: &&Job| !gathers || self.is_not_taken(job);
        for job in self.state.jobs.uploading().iter().filter_map(|id| self.state.jobs.get(id)).filter(sends) {
            *uploading.entry(job.project).or_default() += 1;
        }
        let instances = self.state.host.facts().map_or(1, |host| {
            host.coprocessors.iter().map(|coprocessor| coprocessor.count).fold(host.ncpus, u32::max)
        });
        let enough = |id: ProjectId| -> Option<FetchLimit> {
            if self.app_configs.is_wrong(id) {
                return Some(FetchLimit::Unread);
            }
            fetch_bounds::fetch_limit(&ProjectHoldings {
                jobs: self.workload.queue().count(id),
                uploading: uploading.get(&id).copied().unwrap_or_default(),
                downloads_stall: self.downloads_stall(id),
                instances,
            })
        };
        let gathered = |id: ProjectId| {
            let aside = self.workload.set_aside().counts(id);
            let (full, beyond) = self.beyond_places(id);
            let jobs = aside.map(|kind, jobs| jobs + beyond[kind]);
            if jobs == PerType::default() && full == PerType::default() {
                return None;
            }
            let of = UnrunnableTypes::of(&jobs, instances).and_full(&full);
            Some((id, of)).filter(|(_, of)| !of.is_empty())
        };
        let projects = || self.state.projects.keys().copied();
        let enough = projects().filter_map(|id| Some((id, enough(id)?))).collect();
        let gathered = projects().filter_map(gathered).collect();
        (self.stalls.enough, self.stalls.gathered) = (enough, gathered);
    }

    /// Why a project is asked for no more work now, if it is not.
    pub(crate) fn enough_of(&self, project: ProjectId) -> Option<FetchLimit> {
        self.stalls.enough.get(&project).copied()
    }

    /// The types of which a project is asked for no more, since its jobs of them gather and cannot run.
    pub(crate) fn gathered(&self, project: ProjectId) -> PerType<bool> {
        self.stalls.gathered.get(&project).map(UnrunnableTypes::types).unwrap_or_default()
    }

    /// The same of all types or of some, in words.
    pub(crate) fn why_enough(&self, project: ProjectId) -> Option<String> {
        let of_some = || self.stalls.gathered.get(&project).map(ToString::to_string);
        self.enough_of(project).map(|why| why.to_string()).or_else(of_some)
    }

    /// What a project is asked for instead of what the plan says: nothing where enough is held, little where
    /// its jobs are not known, and never more than there are places for jobs. A host that is connected now
    /// and then (R1.13) could not come back for the rest a moment later, so its first request is not made
    /// smaller.
    pub(crate) fn bounded(&self, id: ProjectId, request: WorkRequest) -> WorkRequest {
        if request.is_none() || self.enough_of(id).is_some() {
            return WorkRequest::default();
        }
        let request = self.within_places(id, request.without(&self.gathered(id)));
        if request.is_none() {
            return request;
        }
        match self.state.projects.get(&id).and_then(|project| project.job_time) {
            Some(job) => {
                // The server counts its jobs by their sizes; whether it corrects them by what it is told is
                // its own business. What takes longer than by its size is not to come in thousands.
                let job = self.correction(id).apply(job).min(job);
                fetch_bounds::within_job_limit(request, self.workload.queue().count(id), job)
            }
            None if self.preferences().connection_interval.is_positive() => request,
            None => {
                let first = fetch_bounds::first_request(&self.plan_host().instances);
                let first = first.without(&self.gathered(id));
                // A place is for a type of which it may have jobs, as the plan has it: it is asked for once.
                let is_limited = self.workload.queue().at_once(id).is_some();
                let unasked = PerType::from_fn(|kind| is_limited && !request.asks(kind));
                self.within_places(id, first.without(&unasked))
            }
        }
    }

    /// Learns how long a project's jobs are, from those that came since `first`.
    pub(crate) fn learn_job_time(&mut self, id: ProjectId, first: JobId) {
        let new = self.state.jobs.range(first..).map(|(_, job)| job).filter(|job| job.project == id);
        let times: Vec<f64> = new.map(|job| self.job_time(job).as_secs_f64()).collect();
        self.remember_jobs(id, first);
        if !times.is_empty() {
            let mean = times.iter().sum::<f64>() / times.len() as f64;
            self.edit_job_time(id, Duration::from_secs_f64(mean));
        }
    }

    /// Remembers what new jobs of a project are like.
    fn remember_jobs(&mut self, id: ProjectId, first: JobId) {
        let now = self.now();
        let new = self.state.jobs.range(first..).map(|(_, job)| job).filter(|job| job.project == id);
        let like: Vec<(ResourceType, TypicalJob)> = new
            .map(|job| {
                let kind = job.usage.main_type();
                let like = TypicalJob {
                    running_time: self.running_time_left(job),
                    latency_bound: job.result.report_deadline.since(now),
                    instances: job.usage.of(kind),
                };
                (kind, like)
            })
            .collect();
        like.into_iter().for_each(|(kind, like)| self.ledger.job_came(id, now, kind, like));
    }

    /// The instance time of a whole job by its size, uncorrected.
    fn job_time(&self, job: &Job) -> Duration {
        let instances = match job.usage.main_type() {
            ResourceType::Cpu => job.usage.cpus,
            kind => job.usage.of(kind),
        };
        self.estimated_total(job.id).mul_f64(instances.max(0.01))
    }
}
