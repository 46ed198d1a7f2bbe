//! What a reply brings: files, application versions, workunits, jobs. Each is taken in with all that it
//! refers to, or not at all: a job never comes without its workunit and the files that the project has
//! described for it (R6.10).

use std::collections::{BTreeMap, BTreeSet};

use fallow_boinc::runtime::exit;
use fallow_boinc::scheduler::{SchedulerReply, type_of};
use fallow_domain::{Bytes, Duration, Flops, PerType, ProjectId, ResourceType, Speed, Usage};

use crate::budget::{Need, Refused, Room, Weigh};
use crate::described::{
    Application, ApplicationVersion, FileDescription, FileReference, JobDescription, Workunit,
};
use crate::dropped::Dropped;
use crate::end_state::EndState;
use crate::machine::Client;
use crate::state::{FileStatus, Given, Job, Process, Run, Stage};
use crate::versions::VersionKey;
use crate::{Cause, FileKey, NoticeLevel};

/// BOINC's size of a job whose server says nothing.
const FLOPS_ESTIMATE: f64 = 6.048e14;
/// BOINC's bound likewise.
const FLOPS_BOUND: f64 = 2.4192e15;
/// A bound shorter than this is taken for a mistake of the project ...
const ELAPSED_SENSIBLE: Duration = Duration::from_secs(120);
/// ... and replaced by this.
const ELAPSED_DEFAULT: Duration = Duration::from_secs(43_200);

/// What a reply describes and nothing has taken yet, and how much of it may be.
struct Offer {
    files: BTreeMap<String, FileDescription>,
    workunits: BTreeMap<String, Workunit>,
    room: Room,
    /// Files that are too large to be kept: nothing that needs one is taken.
    oversized: BTreeSet<String>,
    refused: Refused,
    /// Jobs that cannot be had here: how many, and of the first its name and what is wrong.
    dropped: Option<(usize, String, Dropped)>,
}

impl Offer {
    /// What taking these files would need, or nothing if one of them cannot be taken.
    fn need_of(&self, refs: &[&[FileReference]]) -> Option<Need> {
        let mut need = Need::default();
        let mut seen = BTreeSet::new();
        for file in refs.iter().flat_map(|refs| refs.iter()) {
            let name = file.file_name.as_str();
            if self.oversized.contains(name) {
                return None;
            }
            if let Some(info) = self.files.get(name).filter(|_| seen.insert(name)) {
                need.files += 1;
                need.bytes += info.weight();
            }
        }
        Some(need)
    }
}

impl Client {
    /// Takes in the work of a reply. Returns how many new jobs it brought, by the type that they count for.
    pub(crate) fn take_work(&mut self, id: ProjectId, reply: &mut SchedulerReply) -> PerType<u32> {
        let mut offer = self.offer(id, reply);
        let unkept = std::mem::take(&mut reply.deleted_files);
        let unkept = unkept.into_iter().map(|name| FileKey { project: id, name }).collect();
        self.unstick(unkept, &Cause::ProjectKeepsNoMore);
        for version in std::mem::take(&mut reply.app_versions) {
            self.put_version(id, version.into(), &mut offer);
        }
        self.put_apps(id, std::mem::take(&mut reply.apps).into_iter().map(Application::from).collect());
        let mut arrived = PerType::default();
        for result in std::mem::take(&mut reply.results) {
            if let Some(kind) = self.put_job(id, result.into(), &mut offer) {
                arrived[kind] += 1;
            }
        }
        self.keep_sticky_files(id, &mut offer);
        self.tell_refused(id, &offer);
        arrived
    }

    /// Sorts what a reply describes. What is known already is renewed at once.
    fn offer(&mut self, id: ProjectId, reply: &mut SchedulerReply) -> Offer {
        let brings = !(reply.files.is_empty() && reply.app_versions.is_empty() && reply.results.is_empty());
        let workunits = std::mem::take(&mut reply.workunits).into_iter().map(Workunit::from);
        let mut offer = Offer {
            files: BTreeMap::new(),
            workunits: workunits.map(|workunit| (workunit.name.clone(), workunit)).collect(),
            room: if brings { Room::of(&self.state, id) } else { Room::NONE },
            oversized: BTreeSet::new(),
            refused: Refused::default(),
            dropped: None,
        };
        for info in std::mem::take(&mut reply.files) {
            self.offer_file(id, info.into(), &mut offer);
        }
        offer
    }

    fn offer_file(&mut self, id: ProjectId, info: FileDescription, offer: &mut Offer) {
        if info.is_oversized() {
            offer.refused.files += 1;
            offer.oversized.insert(info.name);
            return;
        }
        let key = FileKey { project: id, name: info.name.clone() };
        let known = self.state.files.get(&key).map(|file| file.info.weight());
        // A file that is used may not have been described before.
        if known.is_none() && !self.state.file_use.is_used(&key) {
            offer.files.insert(info.name.clone(), info);
            return;
        }
        let bytes = info.weight().saturating_sub(known.unwrap_or(0));
        if offer.room.take(Need { files: usize::from(known.is_none()), bytes, ..Need::default() }) {
            self.put_file(id, info);
        } else {
            offer.refused.files += 1;
        }
    }

    /// Takes files of the offer that somebody is about to use.
    fn put_files(&mut self, id: ProjectId, refs: &[FileReference], offer: &mut Offer) {
        for file in refs {
            if let Some(info) = offer.files.remove(&file.file_name) {
                self.put_file(id, info);
            }
        }
    }

    fn put_version(&mut self, id: ProjectId, mut version: ApplicationVersion, offer: &mut Offer) {
        if version.platform.is_empty() {
            version.platform = self.primary_platform();
        }
        let key = VersionKey::of(id, &version);
        if version.is_oversized() {
            offer.refused.versions += 1;
            return;
        }
        if self.state.versions.contains_key(&key) {
            return self.renew_version(key, version);
        }
        let need = offer.need_of(&[&version.files]);
        let need = need.map(|files| Need { versions: 1, bytes: files.bytes + version.weight(), ..files });
        if !need.is_some_and(|need| offer.room.take(need)) {
            offer.refused.versions += 1;
            return;
        }
        self.put_files(id, &version.files, offer);
        self.insert_version(key.clone(), version);
        for file in self.version_files(&key) {
            self.edit_file(&file, |file| {
                // What came as a mere input was not checked for a signature; it must not become a program so.
                if !file.signed && file.status == FileStatus::Present {
                    file.status = FileStatus::Absent;
                }
                file.signed = true;
            });
            self.use_file(&file);
        }
    }

    /// Applications are kept as long as one of their versions is.
    fn put_apps(&mut self, id: ProjectId, apps: Vec<Application>) {
        let used: BTreeSet<&str> = self.state.versions.of(id).map(|(key, _)| key.app.as_str()).collect();
        let is_used = |name: &String| used.contains(name.as_str());
        let all_used = self.state.projects.get(&id).is_none_or(|project| project.apps.keys().all(is_used));
        if apps.is_empty() && all_used {
            return;
        }
        let used: BTreeSet<String> = used.into_iter().map(str::to_owned).collect();
        self.edit_project(id, |project| {
            for app in apps.into_iter().filter(|app| used.contains(&app.name) && !app.is_oversized()) {
                project.apps.insert(app.name.clone(), app);
            }
            project.apps.retain(|name, _| used.contains(name));
        });
    }

    pub(crate) fn primary_platform(&self) -> String {
        let platforms = self.state.host.facts().map(|host| host.platforms.as_slice()).unwrap_or_default();
        platforms.first().cloned().unwrap_or_default()
    }

    /// Takes in a job; says what type it counts for, if it is a new one.
    fn put_job(&mut self, id: ProjectId, result: JobDescription, offer: &mut Offer) -> Option<ResourceType> {
        let name = FileKey { project: id, name: result.name.clone() };
        if let Some(known) = self.state.jobs.named(&name) {
            self.edit_job(known, |job| job.result.report_deadline = result.report_deadline);
            return None;
        }
        match self.new_job(id, result, offer) {
            Ok(Some(job)) => {
                let (id, kind) = (job.id, job.usage.main_type());
                let refused = self.beyond_host(&job);
                self.add_job(job);
                if let Some((exit_status, why)) = refused {
                    self.job_failed(id, exit_status, EndState::ComputeError, why);
                }
                Some(kind)
            }
            Ok(None) => {
                offer.refused.jobs += 1;
                None
            }
            Err(why) => {
                let first = || (0, name.name, why);
                offer.dropped.get_or_insert_with(first).0 += 1;
                None
            }
        }
    }

    /// What a job needs that this host does not have, whatever its owner allows: how it is reported, so that
    /// its project gives it to another host, and why.
    fn beyond_host(&self, job: &Job) -> Option<(i32, String)> {
        let host = self.state.host.facts()?;
        if let Some((kind, _)) = job.usage.coprocessor
            && !host.coprocessors.iter().any(|coprocessor| coprocessor.kind == kind && coprocessor.count > 0)
        {
            return Some((exit::MISSING_COPROC, format!("it needs an {kind}, and this host has none")));
        }
        let (needs, has) = (self.memory_estimate(job), host.memory);
        let why = || format!("it needs {needs} of memory, and this host has {has}");
        (needs > has).then(|| (exit::MEM_LIMIT_EXCEEDED, why()))
    }

    /// A job with its workunit and files; nothing if there is no room for all of them together.
    fn new_job(
        &mut self,
        id: ProjectId,
        result: JobDescription,
        offer: &mut Offer,
    ) -> Result<Option<Job>, Dropped> {
        let key = FileKey { project: id, name: result.workunit.clone() };
        // One that jobs hold already stays as it is: their files are counted by it.
        let known = self.state.workunits.get(&key);
        let workunit = known
            .or_else(|| offer.workunits.get(&result.workunit))
            .cloned()
            .ok_or_else(|| Dropped::NoWorkunit(result.workunit.clone()))?;
        let is_new = known.is_none();
        let (version_key, version) = self.version_for(id, &workunit, &result)?;
        let host = self.state.host.facts().ok_or(Dropped::NoHost)?;
        let declared = usage(version)?;
        let usage = self.app_configs.counted(&version_key, declared);
        let speed = version.speed.unwrap_or_else(|| {
            // By the CPUs that the server reckons with: it bounded the job's running time by them.
            let cpus = Usage::from_cpus(version.cpus).cpus.max(0.01);
            Speed::new(host.speed.fpops.get() * cpus).unwrap_or(host.speed.fpops)
        });
        let flops =
            |given: Option<Flops>, default| given.filter(|f| f.get() > 0.0).map_or(default, Flops::get);
        let bound = Duration::from_secs_f64(flops(workunit.flops_bound, FLOPS_BOUND) / speed.get());
        let estimate = Flops::new(flops(workunit.flops_estimate, FLOPS_ESTIMATE)).unwrap_or_default();

        let oversized = workunit.is_oversized() || result.is_oversized();
        let need = offer.need_of(&[&workunit.files, &result.files]).filter(|_| !oversized);
        let Some(need) = need else { return Ok(None) };
        let bytes = need.bytes + result.weight() + if is_new { workunit.weight() } else { 0 };
        if !offer.room.take(Need { jobs: 1, bytes, ..need }) {
            return Ok(None);
        }
        self.put_files(id, &workunit.files, offer);
        self.put_files(id, &result.files, offer);
        if is_new {
            self.insert_workunit(key, workunit);
        }
        Ok(Some(Job {
            id: self.new_job_id(),
            project: id,
            result,
            version: version_key,
            received_at: self.now(),
            usage,
            declared: (usage != declared).then_some(declared),
            flops_estimate: estimate,
            speed,
            elapsed_max: if bound < ELAPSED_SENSIBLE { ELAPSED_DEFAULT } else { bound },
            stage: Stage::Downloading,
            slot: None,
            run: Run::default(),
            outcome: None,
            process: Process::None,
            given: Given::default(),
        }))
    }

    /// The version that a job names; without a platform, the newest one for this host's own.
    fn version_for(
        &self,
        id: ProjectId,
        workunit: &Workunit,
        result: &JobDescription,
    ) -> Result<(VersionKey, &ApplicationVersion), Dropped> {
        let platforms = self.state.host.facts().map(|host| host.platforms.as_slice()).unwrap_or_default();
        let platform =
            if result.platform.is_empty() { self.primary_platform() } else { result.platform.clone() };
        if !platforms.contains(&platform) {
            return Err(Dropped::Platform(platform));
        }
        let key = VersionKey {
            project: id,
            app: workunit.app.clone(),
            platform: platform.clone(),
            plan_class: result.plan_class.clone(),
            number: result.version_number,
        };
        let found = match result.platform.is_empty() {
            true => self.state.versions.newest(&key),
            false => self.state.versions.get_key_value(&key),
        };
        let found = found.map(|(key, version)| (key.clone(), version));
        let (number, app) = (result.version_number, workunit.app.clone());
        found.ok_or(Dropped::NoVersion { number, app, platform })
    }

    /// Files that the project wants to be kept although nothing refers to them. All others that nothing
    /// refers to are passed over: no job would ever take them away again.
    fn keep_sticky_files(&mut self, id: ProjectId, offer: &mut Offer) {
        for (_, info) in std::mem::take(&mut offer.files) {
            if !info.sticky {
                continue;
            }
            if offer.room.take(Need { files: 1, bytes: info.weight(), ..Need::default() }) {
                self.put_file(id, info);
            } else {
                offer.refused.files += 1;
            }
        }
    }

    fn tell_refused(&mut self, id: ProjectId, offer: &Offer) {
        if let Some((count, name, why)) = &offer.dropped {
            let others = if *count > 1 { format!(" (so are {} others)", count - 1) } else { String::new() };
            self.announce(NoticeLevel::Error, Some(id), format!("job {name} is dropped: {why}{others}"));
        }
        if offer.refused.any() {
            self.announce(NoticeLevel::Error, Some(id), offer.refused.to_string());
        }
    }

    /// Files need not be kept any longer: they go when no job needs them. Those that go at once are told.
    pub(crate) fn unstick(&mut self, keys: Vec<FileKey>, why: &Cause) {
        let mut gone: BTreeMap<ProjectId, Vec<(String, Bytes)>> = BTreeMap::new();
        for key in keys {
            let was_kept = self.edit_file(&key, |file| {
                let is_here = matches!(file.status, FileStatus::Present | FileStatus::Uploaded);
                std::mem::replace(&mut file.info.sticky, false) && is_here
            });
            let Some(was_kept) = was_kept.filter(|_| !self.state.file_use.is_used(&key)) else { continue };
            if was_kept {
                gone.entry(key.project).or_default().push((key.name.clone(), self.file_bytes(&key)));
            }
            // Counted up and down again, so that it goes the way of every file without users.
            self.use_file(&key);
            self.unuse_file(&key);
        }
        for (project, files) in gone {
            self.kept_no_more(project, &files, why);
        }
    }

    /// A version that a newer one supersedes goes when no job needs it.
    pub(crate) fn drop_old_versions(&mut self, id: ProjectId) {
        let old: Vec<VersionKey> = self.state.versions.superseded(id).cloned().collect();
        if old.is_empty() {
            return;
        }
        let used = self.versions_in_use(id);
        for key in old.into_iter().filter(|key| !used.contains(key)) {
            for file in self.version_files(&key) {
                self.unuse_file(&file);
            }
            self.remove_version(key);
        }
    }

    fn versions_in_use(&self, id: ProjectId) -> BTreeSet<VersionKey> {
        let mut used = BTreeSet::new();
        for job in self.state.jobs.of(id).filter_map(|job| self.state.jobs.get(&job)) {
            if !used.contains(&job.version) {
                used.insert(job.version.clone());
            }
        }
        used
    }
}

/// The least part of a CPU that a job without a coprocessor is taken to use. A server may say next to
/// nothing, and hundreds of tasks would then share a CPU: each has the lowest priority, and all together
/// would crowd out the owner's programs.
const CPUS_MIN: f64 = 0.25;

/// The least part of a GPU that a job is taken to use, for the same reason. Projects that share a GPU among
/// many tasks go down to about a tenth.
const COPROCESSOR_MIN: f64 = 1.0 / 16.0;

/// What a job of a version uses (R3.1). A GPU application may need no more than a sliver of a CPU.
pub(crate) fn usage(version: &ApplicationVersion) -> Result<Usage, Dropped> {
    let Some(used) = &version.coprocessor else {
        let usage = Usage::from_cpus(version.cpus);
        return Ok(Usage { cpus: usage.cpus.max(CPUS_MIN), ..usage });
    };
    let kind = type_of(&used.kind).filter(|kind| kind.is_coprocessor());
    let kind = kind.ok_or_else(|| Dropped::Coprocessor(used.kind.clone()))?;
    let usage = Usage::from_cpus(version.cpus).with_coprocessor(kind, used.count);
    let coprocessor = usage.coprocessor.map(|(kind, count)| (kind, count.max(COPROCESSOR_MIN)));
    Ok(Usage { coprocessor, ..usage })
}
