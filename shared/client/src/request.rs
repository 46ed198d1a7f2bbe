//! What a client says to a scheduler: who it is, what it has, what it finished, what it wants.
//!
//! Every job held is listed, finished or not, because a server takes one that is not for lost.

use std::collections::BTreeMap;

use fallow_boinc::scheduler::{
    AppVersionRef, Coprocessor as NamedCoprocessor, Cuda, DiskUsage, FreeSpace, GlobalPreferences,
    HostCoprocessors, HostInfo, InProgressResult, OtherResult, ReportedFile, ReportedResult, ResultState,
    SchedulerRequest, StderrOut, StickyFile, type_name,
};
use fallow_domain::{Bytes, Coprocessor, CoprocessorDevice, Duration, JobId, ProjectId, ResourceType, Usage};
use fallow_policy::disk::DiskReport;
use fallow_policy::disk::holders::FILES_PER_HOST_MAX;
use fallow_policy::fetch::WorkRequest;
use fallow_policy::job_queue::JobSnapshot;
use fallow_policy::on_time_told;
use fallow_policy::send::Load;

use crate::FileKey;
use crate::described::{ApplicationVersion, CoprocessorUse};
use crate::end_state::EndState;
use crate::machine::Client;
use crate::state::{FileStatus, Job, Project, Stage};
use crate::versions::VersionKey;

/// At most this many jobs are reported in one request, the others in the next: each can carry 64 KiB of
/// `stderr.txt`.
const REPORTS_MAX: usize = 256;

/// A kind of coprocessor with the work wanted for it (R3.2), and how many of them may be used.
fn coprocs(coprocessor: &Coprocessor, count: u32, wanted: &WorkRequest) -> HostCoprocessors {
    // The version of AMD's that BOINC names is that of its library before OpenCL.
    let is_nvidia = coprocessor.kind == ResourceType::Nvidia;
    let number = || Cuda::driver_number(&coprocessor.driver).map(|number| number.to_string());
    let least = |of: fn(&CoprocessorDevice) -> u32| coprocessor.devices.iter().map(of).min().unwrap_or(0);
    let cuda = coprocessor.compute().filter(|_| is_nvidia);
    HostCoprocessors {
        kind: type_name(coprocessor.kind).to_owned(),
        count,
        name: coprocessor.model.clone(),
        req_secs: wanted.seconds[coprocessor.kind].get(),
        req_instances: wanted.instances[coprocessor.kind],
        estimated_delay: Duration::ZERO,
        peak_flops: coprocessor.speed.get(),
        memory: coprocessor.memory,
        available: coprocessor.devices.iter().map(|device| device.free).min().unwrap_or_default(),
        driver: number().filter(|_| is_nvidia).unwrap_or_default(),
        cuda: cuda.map(|(major, minor)| Cuda {
            version: coprocessor.cuda_version,
            major,
            minor,
            clock_khz: least(|device| device.clock_khz),
            multiprocessors: least(|device| device.multiprocessors),
        }),
        opencl: coprocessor.opencl().map(|opencl| Box::new(opencl.into())),
    }
}

impl Client {
    /// Writes the request, and says which jobs it reports.
    pub(crate) fn compose_request(
        &self,
        id: ProjectId,
        wanted: &WorkRequest,
    ) -> Option<(SchedulerRequest, Vec<JobId>)> {
        let project = self.state.projects.get(&id)?;
        let host = self.state.host.facts()?;
        let reported =
            self.state.jobs.reporting().iter().filter(|job| self.state.jobs[job].project == id).copied();
        let reported: Vec<JobId> = reported.take(REPORTS_MAX).collect();
        let versions = self.state.versions.of(id);
        let request = SchedulerRequest {
            authenticator: project.account_key.clone(),
            hostid: project.hostid,
            rpc_seqno: project.rpc_seqno,
            client_version: self.config.version,
            resource_share_fraction: self.share_fraction(project, |_| true),
            rrs_fraction: self.share_fraction(project, |p| self.workload.queue().is_runnable(p.id)),
            prrs_fraction: self.share_fraction(project, |p| !p.detach_when_done),
            duration_correction_factor: self.told_correction(project).get(),
            allow_multiple_clients: true,
            dont_send_work: project.detach_when_done,
            work_req_seconds: wanted.scalar().get(),
            cpu_req_secs: wanted.seconds[ResourceType::Cpu].get(),
            cpu_req_instances: wanted.instances[ResourceType::Cpu],
            client_cap_plan_class: true,
            platform_name: host.platforms.first().cloned().unwrap_or_default(),
            alt_platforms: host.platforms.iter().skip(1).cloned().collect(),
            code_sign_key: project.code_sign_key.clone(),
            global_preferences: Some(self.told_preferences()),
            cross_project_id: project.identity.cross_project_id.clone(),
            time_stats: self.ledger.time_stats(self.now(), self.clock.started_at()),
            net_stats: self.net_stats(),
            host_info: HostInfo { n_usable_coprocs: self.coprocs_count(), ..HostInfo::from_facts(host) },
            disk_usage: self.disk_usage(id),
            coprocs: self.coprocs(wanted),
            results: reported.iter().filter_map(|job| self.report(&self.state.jobs[job])).collect(),
            trickles: self.trickles_for(id).into_iter().map(|(_, trickle)| trickle).collect(),
            app_versions: versions.map(|(_, version)| version_ref(version)).collect(),
            ..SchedulerRequest::default()
        };
        Some((request, reported))
    }

    /// The preferences in force, as projects and applications are told.
    pub(crate) fn told_preferences(&self) -> GlobalPreferences {
        GlobalPreferences::from_domain(self.preferences()).with_local(self.local_preferences())
    }

    fn coprocs_count(&self) -> u32 {
        let of = |kind| self.plan_host().instances[kind];
        ResourceType::COPROCESSORS.into_iter().map(of).fold(0, u32::saturating_add)
    }

    /// A server that knew of devices which nobody may use would send work for them (R3.14).
    fn coprocs(&self, wanted: &WorkRequest) -> Vec<HostCoprocessors> {
        let usable = self.plan_host().instances;
        let found = self.state.host.facts().into_iter().flat_map(|host| &host.coprocessors);
        let used = found.filter(|coprocessor| usable[coprocessor.kind] > 0);
        used.map(|all| {
            let count = usable[all.kind];
            let usable = |device: &CoprocessorDevice| self.may_use(all.kind, device);
            // What is free on a device is told as the client keeps it.
            let known = |mut one: Coprocessor| {
                for device in &mut one.devices {
                    device.free = self.most_free(one.kind, device);
                }
                one
            };
            all.only(usable)
                .map_or_else(|| coprocs(all, count, wanted), |one| coprocs(&known(one), count, wanted))
        })
        .collect()
    }

    pub(crate) fn share_fraction(&self, project: &Project, counts: impl Fn(&Project) -> bool) -> f64 {
        let sum: f64 = self.state.projects.values().filter(|p| counts(p)).map(|p| p.share.get()).sum();
        match () {
            () if sum <= 0.0 => 1.0,
            () if counts(project) => project.share.get() / sum,
            () => 0.0,
        }
    }

    fn disk_usage(&self, id: ProjectId) -> DiskUsage {
        if let Some(report) = self.disk.report(id) {
            let DiskReport { free, with_offenders, with_self, .. } = report;
            return DiskUsage {
                d_boinc_used_total: report.used_total,
                d_boinc_used_project: report.used_project,
                d_project_share: report.project_limit,
                free: Some(FreeSpace { now: free, with_offenders, with_self }),
            };
        }
        let used = |counts: &dyn Fn(&FileKey) -> bool| {
            let present = self
                .state
                .files
                .iter()
                .filter(|(key, file)| counts(key) && file.status == FileStatus::Present);
            present.fold(Bytes(0), |sum, (_, file)| {
                sum.plus(file.found.as_ref().map(|found| found.0).or(file.info.nbytes).unwrap_or_default())
            })
        };
        let total = used(&|_| true);
        let allowed = self.disk_allowed(total);
        let share =
            self.state.projects.get(&id).map_or(0.0, |project| self.share_fraction(project, |_| true));
        DiskUsage {
            d_boinc_used_total: total,
            d_boinc_used_project: used(&|key| key.project == id),
            d_project_share: Bytes::from_f64(allowed.as_f64() * share),
            ..DiskUsage::default()
        }
    }

    /// What the preferences leave to all projects together (R4.1).
    fn disk_allowed(&self, used: Bytes) -> Bytes {
        let Some(host) = self.state.host.facts() else { return Bytes(0) };
        let owner = self.owner_disk();
        let by_free = host.disk_free.as_f64() + used.as_f64() - owner.free_min.as_f64();
        Bytes::from_f64(owner.most_of(host.disk_total).as_f64().min(by_free).max(0.0))
    }

    fn report(&self, job: &Job) -> Option<ReportedResult> {
        let outcome = job.outcome.as_ref()?;
        let uploaded = |key: &FileKey| {
            let file = self.state.files.get(key)?;
            let (nbytes, md5) = file.found.clone()?;
            let error_msg = match &file.status {
                FileStatus::Failed(number, why) => Some(format!("upload failed with {number}: {why}")),
                _ => None,
            };
            Some(ReportedFile {
                name: key.name.clone(),
                nbytes,
                max_nbytes: file.info.max_nbytes.unwrap_or_default(),
                md5_cksum: md5,
                upload_urls: file.info.upload_urls.clone(),
                error_msg,
            })
        };
        let measured = |bytes: Bytes| (bytes > Bytes(0)).then_some(bytes);
        Some(ReportedResult {
            name: job.result.name.clone(),
            final_cpu_time: job.run.cpu(),
            final_elapsed_time: job.run.elapsed,
            exit_status: outcome.exit_status,
            state: result_state(outcome.state),
            platform: job.version.platform.clone(),
            version_num: job.version.number,
            plan_class: job.version.plan_class.clone(),
            final_peak_working_set_size: measured(job.run.peak_working_set),
            final_peak_swap_size: None,
            final_peak_disk_usage: measured(job.run.disk_usage),
            app_version_num: job.version.number,
            stderr_out: StderrOut {
                client_version: Some(self.config.version),
                message: outcome.message.clone(),
                stderr_txt: outcome.stderr.clone(),
            },
            files: job.output_files().iter().filter_map(uploaded).collect(),
        })
    }

    /// Completes a request of the last step, before it is written for a server: lists every job held and, for
    /// a project that asked for it, the whole workload. A request says so much about each of ten thousand
    /// jobs that only who sends it should pay for it.
    pub fn list_jobs(&self, id: ProjectId, request: &mut SchedulerRequest) {
        request.other_results = Some(self.other_results(id));
        request.sticky_files = self.sticky_files(id);
        let full = self.state.projects.get(&id).is_some_and(|project| project.send_full_workload);
        request.in_progress_results = full.then(|| self.in_progress());
        if full {
            self.tell_on_time(request);
        }
    }

    /// The files that the host keeps for a project, whether a job needs them or not (R4.11). BOINC's client
    /// lists them in every request as well.
    fn sticky_files(&self, id: ProjectId) -> Vec<StickyFile> {
        let from = FileKey { project: id, name: String::new() };
        let files = self.state.files.range(from..).take_while(|(key, _)| key.project == id);
        let sticky = files.filter(|(_, file)| file.info.sticky && file.info.upload_urls.is_empty());
        let listed = sticky.map(|(key, file)| StickyFile {
            name: key.name.clone(),
            nbytes: file.info.nbytes.unwrap_or_default(),
            status: match file.status {
                FileStatus::Present | FileStatus::Uploaded => 1,
                FileStatus::Absent => 0,
                FileStatus::Failed(number, _) => number,
            },
        });
        listed.take(FILES_PER_HOST_MAX).collect()
    }

    /// Tells how long the host computes within times to come: to a server that plans with it. Others pass it
    /// over.
    pub fn tell_on_time(&self, request: &mut SchedulerRequest) {
        request.time_stats.fallow_on_time = on_time_told::told(self.ledger.on_time(), self.now());
    }

    /// Completes a request for a simulated server, which knows no names of jobs: lists, without their names,
    /// the jobs that the client itself plans with, and the times that it plans with. That is what
    /// [`Client::list_jobs`] tells a project that asked for the whole workload (R5.6), but for jobs that keep
    /// no instance busy now: one that waits to be started again, that can never run here, or whose files do
    /// not come. A server that reckoned with them would leave the host idle; BOINC's client names them
    /// nevertheless.
    pub fn list_workload(&self, request: &mut SchedulerRequest) {
        request.in_progress_results = Some(self.queued());
    }

    /// What the list of [`Client::list_workload`] comes to, without making it: a server that is simulated
    /// needs no more of it, mostly.
    pub fn workload_sums(&self) -> Load {
        // Deadlines in the queue are a connection interval early.
        self.workload.queue().load().with_deadlines_later(self.preferences().connection_interval)
    }

    fn other_results(&self, id: ProjectId) -> Vec<OtherResult> {
        let versions = self.state.versions.of(id).map(|(key, _)| key);
        let index: BTreeMap<&VersionKey, u32> = versions.zip(0..).collect();
        let reported = self.carried.jobs(id);
        let here =
            |job: &&Job| job.project == id && !reported.is_some_and(|reported| reported.contains(&job.id));
        let held = self.state.jobs.values().filter(here);
        held.map(|job| OtherResult {
            name: job.result.name.clone(),
            app_version: index.get(&job.version).copied(),
            plan_class: job.version.plan_class.clone(),
        })
        .collect()
    }

    /// The whole workload of the host, for servers that plan with it (R5.6).
    fn in_progress(&self) -> Vec<InProgressResult> {
        // One that is being aborted is over, although its process may still be there.
        let goes_on =
            |job: &&Job| matches!(job.stage, Stage::Downloading | Stage::Runnable) && job.outcome.is_none();
        let listed = |job: &Job| in_progress_result(job, self.running_time_left(job), job.usage);
        self.state.jobs.values().filter(goes_on).map(listed).collect()
    }

    fn queued(&self) -> Vec<InProgressResult> {
        // Deadlines in the queue are that much early.
        let early = self.preferences().connection_interval;
        let listed = |job: &JobSnapshot| InProgressResult {
            name: String::new(),
            report_deadline: job.deadline + early,
            time_remaining: job.remaining,
            avg_ncpus: job.usage.cpus,
            coprocessor: job.usage.coprocessor,
        };
        self.workload.queue().iter().map(listed).collect()
    }
}

fn result_state(state: EndState) -> ResultState {
    match state {
        EndState::DownloadFailed => ResultState::Downloading,
        EndState::ComputeError => ResultState::ComputeError,
        EndState::Done => ResultState::Uploaded,
        EndState::Aborted => ResultState::Aborted,
        EndState::UploadFailed => ResultState::UploadFailed,
    }
}

/// An application version that the host has, in its project's words.
fn version_ref(version: &ApplicationVersion) -> AppVersionRef {
    AppVersionRef {
        app_name: version.app.clone(),
        version_num: version.number,
        platform: version.platform.clone(),
        avg_ncpus: version.cpus,
        flops: version.speed,
        plan_class: version.plan_class.clone(),
        api_version: version.api_version.clone(),
        cmdline: version.command_line.clone(),
        file_prefix: version.file_prefix.clone(),
        coproc: version.coprocessor.as_ref().map(named),
        dont_throttle: version.dont_throttle,
        is_wrapper: version.is_wrapper,
        needs_network: version.needs_network,
    }
}

fn named(used: &CoprocessorUse) -> NamedCoprocessor {
    NamedCoprocessor { kind: used.kind.clone(), count: used.count }
}

/// A job of the workload, with the wall time that it needs yet on what it uses.
fn in_progress_result(job: &Job, time_remaining: Duration, usage: Usage) -> InProgressResult {
    InProgressResult {
        name: job.result.name.clone(),
        report_deadline: job.result.report_deadline,
        time_remaining,
        avg_ncpus: usage.cpus,
        coprocessor: usage.coprocessor,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_of_a_job_is_reported_as_the_state_that_servers_know_it_by() {
        let reported = [
            (EndState::DownloadFailed, ResultState::Downloading),
            (EndState::ComputeError, ResultState::ComputeError),
            (EndState::Done, ResultState::Uploaded),
            (EndState::Aborted, ResultState::Aborted),
            (EndState::UploadFailed, ResultState::UploadFailed),
        ];
        for (end, state) in reported {
            assert_eq!(result_state(end), state, "{end:?}");
        }
    }
}
