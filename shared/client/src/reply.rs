//! What a scheduler's reply means, taken whole and in BOINC's order: who we are there, messages, key, applications, files,
//! versions, workunits, jobs, acknowledgements, aborts.
//!
//! Passed over: preferences that a project sends (the coordinator's document and the owner decide here), feeds, links
//! for graphical tools, trickles, and a change of the master URL other than a notice.

use std::collections::BTreeMap;

use fallow_boinc::runtime::exit;
use fallow_boinc::scheduler::{AppVersion, Priority, ResultJob, SchedulerReply, Workunit, type_of};
use fallow_boinc::signature::PublicKey;
use fallow_domain::{Duration, Flops, PerType, ProjectId, ResourceType, Speed, Usage};
use fallow_policy::backoff::Wait;

use crate::machine::Client;
use crate::record::Record;
use crate::state::{FileStatus, Job, Process, Run, Stage, VersionKey};
use crate::{FileKey, NoticeLevel};

/// BOINC's size of a job whose server says nothing.
const FLOPS_ESTIMATE: f64 = 6.048e14;
/// BOINC's bound likewise.
const FLOPS_BOUND: f64 = 2.4192e15;
/// A bound shorter than this is taken for a mistake of the project ...
const ELAPSED_SENSIBLE: Duration = Duration::from_secs(120);
/// ... and replaced by this.
const ELAPSED_DEFAULT: Duration = Duration::from_secs(43_200);

impl Client {
    /// Acts on a reply. Returns how many new jobs it brought, by the type that they count for.
    pub(crate) fn apply_reply(&mut self, id: ProjectId, reply: SchedulerReply) -> PerType<u32> {
        self.apply_messages(id, &reply);
        self.apply_identity(id, &reply);
        self.apply_key(id, &reply);
        if let Some(project) = self.state.projects.get_mut(&id) {
            for app in &reply.apps {
                project.apps.insert(app.name.clone(), app.clone());
            }
        }
        let described: Vec<FileKey> =
            reply.files.iter().map(|info| FileKey { project: id, name: info.name.clone() }).collect();
        for info in reply.files {
            self.put_file(id, info);
        }
        for name in reply.deleted_files {
            self.unstick(&FileKey { project: id, name });
        }
        for version in reply.app_versions {
            self.put_version(id, version);
        }
        let workunits: BTreeMap<String, Workunit> =
            reply.workunits.into_iter().map(|workunit| (workunit.name.clone(), workunit)).collect();
        let mut arrived = PerType::default();
        for result in reply.results {
            if let Some(kind) = self.put_job(id, result, &workunits) {
                arrived[kind] += 1;
            }
        }
        self.drop_unused_files(&described);
        self.apply_acks(id, &reply.result_acks);
        for name in reply.result_aborts {
            self.abort_by_project(id, name, false);
        }
        for name in reply.result_aborts_if_not_started {
            self.abort_by_project(id, name, true);
        }
        self.drop_old_versions(id);
        self.mark_durable(Record::Project(id));
        arrived
    }

    fn apply_messages(&mut self, id: ProjectId, reply: &SchedulerReply) {
        for message in &reply.messages {
            let level = if message.priority == Priority::Low { NoticeLevel::Info } else { NoticeLevel::Warn };
            self.notice(level, Some(id), format!("the project says: {}", message.text));
        }
    }

    fn apply_identity(&mut self, id: ProjectId, reply: &SchedulerReply) {
        let now = self.now;
        let Some(project) = self.state.projects.get_mut(&id) else { return };
        fn set<T: Clone>(place: &mut T, value: Option<&T>) {
            if let Some(value) = value {
                *place = value.clone();
            }
        }
        // The coordinator's name for a project stays; a project attached by hand takes its own.
        if !project.from_document {
            set(&mut project.name, reply.project_name.as_ref().filter(|name| !name.is_empty()));
        }
        let who = &mut project.identity;
        set(&mut who.user_id, reply.userid.as_ref());
        set(&mut who.team_id, reply.teamid.as_ref());
        set(&mut who.user_name, reply.user_name.as_ref());
        set(&mut who.team_name, reply.team_name.as_ref());
        set(&mut who.cross_project_id, reply.cross_project_id.as_ref());
        set(&mut who.user_total_credit, reply.user_total_credit.as_ref());
        set(&mut who.user_expavg_credit, reply.user_expavg_credit.as_ref());
        set(&mut who.host_total_credit, reply.host_total_credit.as_ref());
        set(&mut who.host_expavg_credit, reply.host_expavg_credit.as_ref());
        set(&mut who.venue, reply.host_venue.as_ref());
        set(&mut who.project_preferences, reply.project_preferences.as_ref());
        if let Some(hostid) = reply.hostid.filter(|hostid| *hostid != 0) {
            project.hostid = hostid;
            project.rpc_seqno = 0;
        }
        project.dont_use_dcf = reply.dont_use_dcf;
        self.estimates_changed(id);
        let Some(project) = self.state.projects.get_mut(&id) else { return };
        project.send_full_workload |= reply.send_full_workload;
        project.lacks = PerType::default();
        for kind in reply.no_rsc_apps.iter().filter_map(|name| type_of(name)) {
            project.lacks[kind] = true;
        }
        // None at all is no wish to hear of us at once, and then again at once (BOINC).
        let delay = reply.next_rpc_delay.filter(|delay| delay.is_positive());
        project.contact_by = delay.map(|delay| Wait::new(now, delay));
        let (ours, theirs) = (project.url.clone(), reply.master_url.as_ref());
        if let Some(theirs) =
            theirs.filter(|url| fallow_domain::MasterUrl::parse(url).is_ok_and(|u| u != ours))
        {
            let text = format!(
                "the project calls itself {theirs}, but is attached as {ours}: attach to the new URL"
            );
            self.notice(NoticeLevel::Warn, Some(id), text);
        }
    }

    /// The first code-signing key is taken on trust; a later one only with a signature by the one held.
    fn apply_key(&mut self, id: ProjectId, reply: &SchedulerReply) {
        let Some(offered) = &reply.code_sign_key else { return };
        let Some(project) = self.state.projects.get_mut(&id) else { return };
        let signature = reply.code_sign_key_signature.as_deref().unwrap_or_default();
        let accepted = match &project.code_sign_key {
            None => true,
            Some(held) => held.trim() == offered.trim() || replaces(held, offered, signature),
        };
        if accepted {
            project.code_sign_key = Some(offered.clone());
        } else {
            let text = "the project sent another code-signing key without a signature by the one held; the old key stays";
            self.notice(NoticeLevel::Error, Some(id), text);
        }
    }

    /// Files that came with a job that was dropped, or with nothing: no job would ever take them away again.
    fn drop_unused_files(&mut self, described: &[FileKey]) {
        for key in described {
            if !self.state.file_users.contains_key(key) {
                self.use_file(key);
                self.unuse_file(key);
            }
        }
    }

    fn unstick(&mut self, key: &FileKey) {
        if let Some(file) = self.state.files.get_mut(key) {
            file.info.sticky = false;
            if !self.state.file_users.contains_key(key) {
                // Counted up and down again, so that it goes the way of every file without users.
                self.use_file(key);
                self.unuse_file(key);
            } else {
                self.mark(Record::File(key.clone()));
            }
        }
    }

    fn put_version(&mut self, id: ProjectId, mut version: AppVersion) {
        if version.platform.is_empty() {
            version.platform = self.primary_platform();
        }
        let key = VersionKey {
            project: id,
            app: version.app_name.clone(),
            platform: version.platform.clone(),
            plan_class: version.plan_class.clone(),
            number: version.version_num,
        };
        if let Some(known) = self.state.versions.get_mut(&key) {
            known.avg_ncpus = version.avg_ncpus;
            known.flops = version.flops;
            known.cmdline = version.cmdline;
        } else {
            self.state.versions.insert(key.clone(), version);
            for file in self.version_files(&key) {
                if let Some(file) = self.state.files.get_mut(&file) {
                    // What came as a mere input was not checked for a signature; it must not become a program so.
                    if !file.signed && file.status == FileStatus::Present {
                        file.status = FileStatus::Absent;
                    }
                    file.signed = true;
                }
                self.use_file(&file);
                self.mark(Record::File(file));
            }
        }
        self.mark(Record::Version(key));
    }

    fn primary_platform(&self) -> String {
        let platforms = self.state.host.as_ref().map(|host| host.platforms.as_slice()).unwrap_or_default();
        platforms.first().cloned().unwrap_or_default()
    }

    /// Takes in a job; says what type it counts for, if it is a new one.
    fn put_job(
        &mut self,
        id: ProjectId,
        result: ResultJob,
        workunits: &BTreeMap<String, Workunit>,
    ) -> Option<ResourceType> {
        let name = FileKey { project: id, name: result.name.clone() };
        if let Some(&known) = self.state.job_names.get(&name) {
            if let Some(job) = self.state.jobs.get_mut(&known) {
                job.result.report_deadline = result.report_deadline;
            }
            self.net.reports_due = None;
            self.requeue(known);
            self.mark(Record::Job(known));
            return None;
        }
        match self.new_job(id, result, workunits) {
            Ok(job) => {
                let (id, kind) = (job.id, job.usage.main_type());
                let missing = self.missing_coprocessor(&job);
                self.add_job(job);
                if let Some(kind) = missing {
                    let why = format!("it needs an {kind}, and this host has none");
                    self.job_failed(id, exit::MISSING_COPROC, 3, why);
                }
                Some(kind)
            }
            Err(why) => {
                self.notice(NoticeLevel::Error, Some(id), format!("job {} is dropped: {why}", name.name));
                None
            }
        }
    }

    fn missing_coprocessor(&self, job: &Job) -> Option<ResourceType> {
        let (kind, _) = job.usage.coprocessor?;
        let here =
            self.state.host.as_ref().is_some_and(|host| host.coprocessors.iter().any(|c| c.kind == kind));
        (!here).then_some(kind)
    }

    fn new_job(
        &mut self,
        id: ProjectId,
        result: ResultJob,
        workunits: &BTreeMap<String, Workunit>,
    ) -> Result<Job, String> {
        let key = FileKey { project: id, name: result.wu_name.clone() };
        // One that jobs hold already stays as it is: their files are counted by it.
        let known = self.state.workunits.get(&key);
        let workunit = known
            .or_else(|| workunits.get(&result.wu_name))
            .cloned()
            .ok_or_else(|| format!("its workunit {} did not come with it", result.wu_name))?;
        let version_key = self.version_for(id, &workunit, &result)?;
        let version = self.state.versions.get(&version_key).ok_or("its application version is unknown")?;
        let Some(host) = &self.state.host else { return Err("the host is not known yet".to_owned()) };
        let usage = usage(version)?;
        let speed = version.flops.unwrap_or_else(|| {
            Speed::new(host.speed.fpops.get() * usage.cpus.max(0.01)).unwrap_or(host.speed.fpops)
        });
        let flops =
            |given: Option<Flops>, default| given.filter(|f| f.get() > 0.0).map_or(default, Flops::get);
        let bound = Duration::from_secs_f64(flops(workunit.rsc_fpops_bound, FLOPS_BOUND) / speed.get());
        let estimate = Flops::new(flops(workunit.rsc_fpops_est, FLOPS_ESTIMATE)).unwrap_or_default();
        self.state.workunits.insert(key.clone(), workunit);
        self.mark(Record::Workunit(key));
        let job = fallow_domain::JobId(self.state.meta.next_job);
        self.state.meta.next_job += 1;
        Ok(Job {
            id: job,
            project: id,
            result,
            version: version_key,
            received_at: self.now,
            usage,
            flops_estimate: estimate,
            speed,
            elapsed_max: if bound < ELAPSED_SENSIBLE { ELAPSED_DEFAULT } else { bound },
            stage: Stage::Downloading,
            slot: None,
            run: Run::default(),
            outcome: None,
            process: Process::None,
        })
    }

    /// The version that a job names; without a platform, the newest one for this host's own.
    fn version_for(
        &self,
        id: ProjectId,
        workunit: &Workunit,
        result: &ResultJob,
    ) -> Result<VersionKey, String> {
        let platforms = self.state.host.as_ref().map(|host| host.platforms.as_slice()).unwrap_or_default();
        let platform =
            if result.platform.is_empty() { self.primary_platform() } else { result.platform.clone() };
        if !platforms.contains(&platform) {
            return Err(format!("this host does not run programs for {platform}"));
        }
        let fits = |key: &&VersionKey| {
            key.project == id
                && key.app == workunit.app_name
                && key.platform == platform
                && key.plan_class == result.plan_class
                && (result.platform.is_empty() || key.number == result.version_num)
        };
        self.state.versions.keys().filter(fits).max_by_key(|key| key.number).cloned().ok_or_else(|| {
            format!("there is no version {} of {} for {platform}", result.version_num, workunit.app_name)
        })
    }

    fn apply_acks(&mut self, id: ProjectId, names: &[String]) {
        let reported = std::mem::take(&mut self.net.reporting);
        for name in names {
            let key = FileKey { project: id, name: name.clone() };
            let Some(&job) = self.state.job_names.get(&key) else { continue };
            // An acknowledgement of something that was not reported is a server's mistake that would cost a job.
            if reported.contains(&job) {
                self.forget_job(job);
            }
        }
    }

    fn abort_by_project(&mut self, id: ProjectId, name: String, unless_started: bool) {
        let Some(&job) = self.state.job_names.get(&FileKey { project: id, name }) else { return };
        let begun = self.state.jobs.get(&job).is_some_and(|job| job.run.begun);
        if !(unless_started && begun) {
            self.abort_job(job, exit::ABORTED_BY_PROJECT, "aborted by the project");
        }
    }

    /// A version that a newer one supersedes goes when no job needs it.
    fn drop_old_versions(&mut self, id: ProjectId) {
        if self.state.versions.keys().filter(|key| key.project == id).nth(1).is_none() {
            return;
        }
        let line = |key: &VersionKey| (key.app.clone(), key.platform.clone(), key.plan_class.clone());
        let mut newest = BTreeMap::new();
        for key in self.state.versions.keys().filter(|key| key.project == id) {
            let number = newest.entry(line(key)).or_insert(key.number);
            *number = key.number.max(*number);
        }
        let superseded = |key: &&VersionKey| {
            key.project == id && newest.get(&line(key)).is_some_and(|newest| *newest > key.number)
        };
        let old: Vec<VersionKey> = self.state.versions.keys().filter(superseded).cloned().collect();
        for key in old {
            if !self.state.jobs.values().any(|job| job.version == key) {
                for file in self.version_files(&key) {
                    self.unuse_file(&file);
                }
                self.state.versions.remove(&key);
                self.mark(Record::Version(key));
            }
        }
    }
}

/// What a job of a version uses (R3.1). A GPU application may need no more than a sliver of a CPU.
fn usage(version: &AppVersion) -> Result<Usage, String> {
    let Some(coproc) = &version.coproc else { return Ok(Usage::from_cpus(version.avg_ncpus)) };
    let kind = type_of(&coproc.kind).filter(|kind| kind.is_coprocessor());
    let kind = kind.ok_or_else(|| format!("it needs a coprocessor {:?}, unknown here", coproc.kind))?;
    Ok(Usage::from_cpus(version.avg_ncpus).with_coprocessor(kind, coproc.count))
}

/// Whether the key held says that the new one takes its place.
fn replaces(held: &str, new: &str, signature: &str) -> bool {
    PublicKey::parse(held).is_ok_and(|key| key.verify_key(new, signature))
}
