//! What the owner of the host says of single projects' applications (R6.4; BOINC: `app_config.xml`).
//!
//! It is his last word on this machine: a document does not take it back. How many jobs run at once is kept
//! by the policies ([`AtOnce`]), which know applications by their places in the file. What a version is
//! counted with is taken over into its jobs while they have no process; what the project said stays beside
//! it, for when the file says so no more.
//!
//! A file that cannot be read when the agent starts may be the one that forbids: until it is mended, nothing
//! of its project is begun or fetched. Others are not concerned.
//!
//! Files are read when the agent starts and when the owner says so: what he is about to write counts only
//! then. When a project is attached, its file is read too, and no other one is taken.
//!
//! Not stored: files are read anew at each start.

use std::collections::{BTreeMap, BTreeSet};

use fallow_boinc::app_config::{APP_CONFIG, AppConfig, Remark};
use fallow_domain::{Duration, JobId, PerType, ProjectId, ResourceType, Usage, printable};
use fallow_policy::fetch::{WorkRequest, bounds as fetch_bounds};
use fallow_policy::job_queue::{AtOnce, Instances};

use crate::machine::Client;
use crate::state::Process;
use crate::versions::VersionKey;
use crate::{Entity, FileKey, NoticeLevel};

/// Longest name in a text for people, in bytes.
const NAME_MAX: usize = 100;
/// Most names in such a text.
const NAMES_MAX: usize = 20;

/// One project's file, as it was found.
#[derive(Clone, Debug, PartialEq)]
pub enum AppConfigFound {
    /// It was read; what in it says nothing is told.
    Read(AppConfig, Vec<Remark>),
    /// What is wrong with it, each with the file and the line.
    Wrong(Vec<String>),
    /// It is none of the owner's ([`Client::has_sent_app_config`]), and says nothing.
    Sent,
}

/// What is in force of one project's file, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppConfigView {
    /// It cannot be read: nothing of the project is begun.
    pub is_wrong: bool,
    /// What it says.
    pub says: Vec<String>,
    /// What is wrong with it, or says nothing.
    pub remarks: Vec<String>,
}

/// The files of all projects that have one.
#[derive(Debug, Default)]
pub(crate) struct AppConfigs {
    found: BTreeMap<ProjectId, AppConfigFound>,
    /// The projects of which it was looked for one.
    looked: BTreeSet<ProjectId>,
}

impl AppConfigs {
    /// What a project's file says, if it has one that can be read.
    pub(crate) fn of(&self, project: ProjectId) -> Option<&AppConfig> {
        match self.found.get(&project)? {
            AppConfigFound::Read(file, _) => Some(file),
            AppConfigFound::Wrong(_) | AppConfigFound::Sent => None,
        }
    }

    /// Whether nothing of a project is to be begun, for its file cannot be read.
    pub(crate) fn is_wrong(&self, project: ProjectId) -> bool {
        matches!(self.found.get(&project), Some(AppConfigFound::Wrong(_)))
    }

    /// These are all there are. Returns the projects for which something else holds now.
    fn replace(&mut self, found: BTreeMap<ProjectId, AppConfigFound>) -> BTreeSet<ProjectId> {
        let before = std::mem::replace(&mut self.found, found);
        let all = before.keys().chain(self.found.keys());
        all.filter(|id| before.get(id) != self.found.get(id)).copied().collect()
    }

    /// Of projects that were never looked at there are these; what is known of others stays. Returns the
    /// projects for which something else holds now.
    fn add(&mut self, found: BTreeMap<ProjectId, AppConfigFound>) -> BTreeSet<ProjectId> {
        let new: Vec<_> = found.into_iter().filter(|(id, _)| !self.looked.contains(id)).collect();
        let ids = new.iter().map(|(id, _)| *id).collect();
        self.found.extend(new);
        ids
    }

    /// A project is detached, and its directory goes.
    pub(crate) fn forget(&mut self, project: ProjectId) {
        self.found.remove(&project);
        self.looked.remove(&project);
    }

    /// The number by which policies know a job's application, if its file limits that.
    pub(crate) fn number(&self, project: ProjectId, app: &str) -> Option<u32> {
        let place = self.of(project)?.apps.iter().rposition(|one| one.name == app)?;
        self.of(project)?.apps.get(place)?.max_concurrent?;
        u32::try_from(place).ok()
    }

    /// Whether finished jobs of an application are to be reported at once.
    pub(crate) fn reports_at_once(&self, project: ProjectId, app: &str) -> bool {
        let of_app = |file: &AppConfig| file.app(app).is_some_and(|one| one.report_results_immediately);
        self.of(project).is_some_and(|file| file.report_results_immediately || of_app(file))
    }

    /// What jobs of a version are started with in the place of what their project adds to the command line.
    pub(crate) fn command_line(&self, version: &VersionKey) -> Option<&str> {
        let mut said = self.of(version.project)?.version(&version.app, &version.plan_class);
        said.find_map(|one| one.cmdline.as_deref())
    }

    /// What a job of a version is counted with, where its project says `usage`.
    pub(crate) fn counted(&self, version: &VersionKey, usage: Usage) -> Usage {
        let Some(file) = self.of(version.project) else { return usage };
        let mut counted = usage;
        let gpu_versions = file.app(&version.app).and_then(|app| app.gpu_versions);
        if let Some((use_of, (kind, _))) = gpu_versions.zip(usage.coprocessor) {
            counted = Usage { cpus: use_of.cpu, coprocessor: Some((kind, use_of.gpu)) };
        }
        let said = || file.version(&version.app, &version.plan_class);
        if let Some(cpus) = said().find_map(|one| one.avg_ncpus) {
            counted.cpus = cpus;
        }
        if let Some((gpus, (kind, _))) = said().find_map(|one| one.ngpus).zip(usage.coprocessor) {
            counted.coprocessor = Some((kind, gpus));
        }
        counted
    }
}

/// The projects to which the owner's limits leave less of a type than their shares, each with the most
/// instances of it. There what they use says nothing about what they are owed: more could not be had.
#[derive(Clone, Debug, Default)]
pub(crate) struct BelowShare(BTreeMap<ProjectId, PerType<Option<LessThanShare>>>);

/// What limits leave a project of a type.
#[derive(Clone, Copy, Debug, PartialEq)]
struct LessThanShare {
    /// The most instances that it gets now.
    most: f64,
    /// Whether it is so whichever jobs it sends, for as long as the limits say so.
    for_good: bool,
}

impl BelowShare {
    /// The most instances of a type that such a project gets.
    pub(crate) fn most(&self, project: ProjectId, kind: ResourceType) -> Option<f64> {
        self.0.get(&project)?[kind].map(|held| held.most)
    }

    /// Whether such a project never gets more of a type, whichever jobs it sends.
    pub(crate) fn for_good(&self, project: ProjectId, kind: ResourceType) -> bool {
        self.0.get(&project).is_some_and(|held| held[kind].is_some_and(|held| held.for_good))
    }

    /// Whether a project is one of them.
    pub(crate) fn holds(&self, project: ProjectId, kind: ResourceType) -> bool {
        self.most(project, kind).is_some()
    }

    /// Whether there are none of a type.
    pub(crate) fn is_empty_of(&self, kind: ResourceType) -> bool {
        self.0.values().all(|held| held[kind].is_none())
    }

    /// What a project used, but for the types of which it is held below its share: there its account stands
    /// still, for more than it used could not be had, and less is not asked of it.
    pub(crate) fn but_of_held(&self, project: ProjectId, used: &PerType<Duration>) -> PerType<Duration> {
        used.map(|kind, used| if self.holds(project, kind) { Duration::ZERO } else { *used })
    }
}

impl Client {
    /// The files were read: all that there are.
    pub(crate) fn app_configs_read(&mut self, found: BTreeMap<ProjectId, AppConfigFound>) {
        let known = self.of_known(found);
        let changed = self.app_configs.replace(known);
        // By one that went while the agent was off, jobs are counted still.
        let counted = self.state.jobs.values().filter(|job| job.declared.is_some()).map(|job| job.project);
        let counted: BTreeSet<_> = counted.filter(|id| !changed.contains(id)).collect();
        self.app_configs_changed(changed);
        counted.into_iter().for_each(|id| self.count_jobs_anew(id));
    }

    /// They were read after a project was attached: those of others are as they were read before, whatever
    /// stands there now.
    pub(crate) fn new_app_configs_read(&mut self, found: BTreeMap<ProjectId, AppConfigFound>) {
        let known = self.of_known(found);
        let changed = self.app_configs.add(known);
        self.app_configs_changed(changed);
    }

    fn of_known(&self, found: BTreeMap<ProjectId, AppConfigFound>) -> BTreeMap<ProjectId, AppConfigFound> {
        found.into_iter().filter(|(id, _)| self.state.projects.contains_key(id)).collect()
    }

    fn app_configs_changed(&mut self, changed: BTreeSet<ProjectId>) {
        self.app_configs.looked = self.state.projects.keys().copied().collect();
        for id in changed {
            self.limit_jobs(id);
            self.count_jobs_anew(id);
            self.reports_changed();
            // Before the start all is worked out anyway once the host was measured.
            if self.state.host.facts().is_some() {
                self.shares_changed();
            }
            self.touch(Entity::Project(id));
            self.tell_app_config(id);
        }
    }

    /// Says in the log what holds now.
    fn tell_app_config(&mut self, id: ProjectId) {
        let Some(view) = self.app_config_view(id) else {
            let text = "it has no app_config.xml any more: what that said is over".to_owned();
            return self.announce(NoticeLevel::Info, Some(id), text);
        };
        for remark in &view.remarks {
            let (level, text) = match view.is_wrong {
                true => (
                    NoticeLevel::Error,
                    format!("nothing of this project is begun until its app_config.xml is mended: {remark}"),
                ),
                false => (NoticeLevel::Warn, format!("app_config.xml: {remark}")),
            };
            self.announce(level, Some(id), text);
        }
        if !view.is_wrong {
            let says = if view.says.is_empty() { "nothing".to_owned() } else { view.says.join("; ") };
            self.announce(NoticeLevel::Info, Some(id), format!("app_config.xml says: {says}"));
        }
    }

    /// Tells policies how many jobs of a project may run at once: its file or its versions may be others.
    pub(crate) fn limit_jobs(&mut self, id: ProjectId) {
        let limits = self.app_configs.of(id).map_or_else(AtOnce::default, |file| {
            let numbered = (0_u32..).zip(&file.apps);
            let counts =
                numbered.filter(|(number, app)| self.app_configs.number(id, &app.name) == Some(*number));
            let applications: BTreeMap<_, _> =
                counts.filter_map(|(number, app)| Some((number, app.max_concurrent?))).collect();
            let mut versions = self.state.versions.of(id).peekable();
            let limits_all = versions.peek().is_some()
                && versions.all(|(key, _)| self.app_configs.number(id, &key.app).is_some());
            AtOnce {
                project: file.project_max_concurrent,
                applications,
                limits_all,
                largest: self.largest_of(id),
            }
        });
        self.workload.limit(id, limits);
    }

    /// The most that jobs of a project's versions are counted with, by main type.
    fn largest_of(&self, id: ProjectId) -> PerType<Instances> {
        let mut largest = PerType::<Instances>::default();
        for (key, version) in self.state.versions.of(id) {
            let Ok(declared) = crate::arrival::usage(version) else { continue };
            let usage = self.app_configs.counted(key, declared);
            let kind = usage.main_type();
            largest[kind] = largest[kind].max(Instances::of_type(usage, kind));
        }
        largest
    }

    /// Jobs without a process are counted with what their versions use now; all are placed anew.
    fn count_jobs_anew(&mut self, id: ProjectId) {
        let own = self.state.jobs.values().filter(|job| job.project == id);
        let jobs: Vec<JobId> = own.map(|job| job.id).collect();
        for job in jobs {
            self.count_anew(job);
            self.reassess(job);
        }
    }

    /// Counts a job without a process with what its version uses now, for it is started with that next.
    pub(crate) fn count_anew(&mut self, id: JobId) {
        let Some(job) = self.state.jobs.get(&id) else { return };
        if job.process != Process::None || job.outcome.is_some() {
            return;
        }
        let declared = job.declared.unwrap_or(job.usage);
        let counted = self.app_configs.counted(&job.version, declared);
        if counted != job.usage {
            let declared = (counted != declared).then_some(declared);
            self.edit_job(id, |job| (job.usage, job.declared) = (counted, declared));
        }
    }

    /// The part of a request that a project may be asked for by what the owner lets run of it.
    pub(crate) fn within_places(&self, id: ProjectId, request: WorkRequest) -> WorkRequest {
        fetch_bounds::cut_to_places(request, |kind, asked| {
            let (host, window) = (self.plan_host(), self.window());
            fetch_bounds::within_places(self.workload.queue(), id, kind, &host, window, asked)
        })
    }

    /// The types of which as much of a project is held as the owner lets run within the buffer, and how many
    /// jobs of each wait behind those that are let run.
    pub(crate) fn beyond_places(&self, id: ProjectId) -> (PerType<bool>, PerType<usize>) {
        let queue = self.workload.queue();
        if queue.at_once(id).is_none() {
            return Default::default();
        }
        let (host, window) = (self.plan_host(), self.window());
        let full = PerType::from_fn(|kind| {
            let room = fetch_bounds::within_places(queue, id, kind, &host, window, 0);
            host.instances[kind] > 0 && room.is_some_and(|room| !room.seconds.is_positive())
        });
        let within = window.as_secs_f64() * host.active_fraction.get();
        (full, PerType::from_fn(|kind| queue.beyond_limits(id, kind, within)))
    }

    /// Of which projects the owner lets less run than their shares, as things stand now.
    pub(crate) fn held_below_share(&self) -> BelowShare {
        let (queue, host) = (self.workload.queue(), self.plan_host());
        let held = |id: ProjectId| {
            let project = self.state.projects.get(&id)?;
            let fraction = self.share_fraction(project, |other| !other.detach_when_done);
            let most = PerType::from_fn(|kind| {
                let most = queue.cut_to(id, kind, &host.instances)?;
                let share = fraction * f64::from(host.instances[kind]);
                let for_good = queue.lets_run(id, kind).is_some_and(|ever| ever < share);
                (most < share).then_some(LessThanShare { most, for_good })
            });
            (most != PerType::default()).then_some((id, most))
        };
        BelowShare(queue.limited().filter_map(held).collect())
    }

    /// Whether the file of that name is one that the project itself has sent, to an agent that did not refuse
    /// the name yet.
    pub fn has_sent_app_config(&self, project: ProjectId) -> bool {
        self.state.files.get(&FileKey { project, name: APP_CONFIG.to_owned() }).is_some()
    }

    /// What is in force of a project's file, if it has one.
    pub fn app_config_view(&self, id: ProjectId) -> Option<AppConfigView> {
        match self.app_configs.found.get(&id)? {
            AppConfigFound::Wrong(faults) => {
                Some(AppConfigView { is_wrong: true, says: Vec::new(), remarks: faults.clone() })
            }
            AppConfigFound::Sent => {
                let what = "the project has sent this file, which says nothing of its owner; a file of yours \
                            counts after you have detached the project and attached it again";
                Some(AppConfigView { remarks: vec![what.to_owned()], ..AppConfigView::default() })
            }
            AppConfigFound::Read(file, notes) => {
                let remarks = notes.iter().map(ToString::to_string).chain(self.unmatched(id, file));
                Some(AppConfigView { is_wrong: false, says: self.says(id, file), remarks: remarks.collect() })
            }
        }
    }

    /// What a file says of what the project does not have, as far as that is known.
    fn unmatched(&self, id: ProjectId, file: &AppConfig) -> Vec<String> {
        let known: BTreeSet<&str> = self.state.versions.of(id).map(|(key, _)| key.app.as_str()).collect();
        if known.is_empty() {
            return Vec::new();
        }
        let names: Vec<String> = known.iter().take(NAMES_MAX).map(|name| shown(name)).collect();
        let unknown = |line: usize, name: &str| {
            let (name, names) = (shown(name), names.join(", "));
            format!("line {line}: the project has sent no application {name}; it has sent {names}")
        };
        let apps = file.apps.iter().filter(|app| !known.contains(app.name.as_str()));
        let mut all: Vec<String> = apps.map(|app| unknown(app.line, &app.name)).collect();
        for one in &file.versions {
            let mut of_app =
                self.state.versions.of(id).map(|(key, _)| key).filter(|key| key.app == one.app_name);
            if !known.contains(one.app_name.as_str()) {
                all.push(unknown(one.line, &one.app_name));
            } else if !of_app.any(|key| key.plan_class == one.plan_class) {
                let (line, name) = (one.line, named(&one.app_name, &one.plan_class));
                all.push(format!("line {line}: the project has sent no version of {name}"));
            }
        }
        all.truncate(NAMES_MAX);
        all
    }

    /// What a file says, in words, with how many run of what it limits.
    fn says(&self, id: ProjectId, file: &AppConfig) -> Vec<String> {
        let running = self.state.jobs.values().filter(|job| job.project == id && job.process.computes());
        let mut by_app: BTreeMap<&str, usize> = BTreeMap::new();
        for job in running {
            *by_app.entry(&job.version.app).or_default() += 1;
        }
        let mut says = Vec::new();
        if let Some(most) = file.project_max_concurrent {
            let now: usize = by_app.values().sum();
            says.push(format!("at most {most} of its jobs at once ({now} now)"));
        }
        for app in &file.apps {
            let name = shown(&app.name);
            if file.app(&app.name) != Some(app) {
                continue;
            }
            if let Some(most) = app.max_concurrent {
                let now = by_app.get(app.name.as_str()).copied().unwrap_or_default();
                says.push(format!("{name} at most {most} at once ({now} now)"));
            }
            if let Some(of_job) = app.gpu_versions {
                says.push(format!("{name} on GPUs uses {} of one and {} CPUs", of_job.gpu, of_job.cpu));
            }
            if app.report_results_immediately {
                says.push(format!("{name} is reported at once"));
            }
            if app.fraction_done_exact {
                says.push(format!("{name} tells exactly how far it is"));
            }
        }
        for one in &file.versions {
            let mut what = Vec::new();
            what.extend(one.avg_ncpus.map(|cpus| format!("uses {cpus} CPUs")));
            what.extend(one.ngpus.map(|gpus| format!("uses {gpus} GPUs")));
            what.extend(
                one.cmdline.as_ref().map(|line| format!("is started with {}", printable::line(line, 255))),
            );
            if !what.is_empty() {
                says.push(format!("{} {}", named(&one.app_name, &one.plan_class), what.join(", ")));
            }
        }
        if file.report_results_immediately {
            says.push("its jobs are reported at once".to_owned());
        }
        says
    }
}

fn shown(name: &str) -> String {
    printable::line(name, NAME_MAX)
}

fn named(app: &str, plan_class: &str) -> String {
    match plan_class.is_empty() {
        true => shown(app),
        false => format!("{} ({})", shown(app), shown(plan_class)),
    }
}
