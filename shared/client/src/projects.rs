//! Which projects this host serves: attach, detach, the coordinator's document, the owner's word.

use std::collections::{BTreeMap, BTreeSet};

use fallow_boinc::scheduler::WebPreferences;
use fallow_domain::{
    AccountKey, Device, DocumentVersion, Duration, FleetDocument, MasterUrl, PerType, ProjectAssignment,
    ProjectId, ResourceTypes, Share,
};
use fallow_policy::completion::{DurationCorrection, Experience};
use fallow_policy::rpc_timing::{RequestedBy, RpcState};
use rand_pcg::rand_core::Rng as _;

use crate::confirmation::{self, Trial};
use crate::machine::Client;
use crate::state::{Deletes, Identity, Process, Project};
use crate::timers::Timer;
use crate::{Cause, Effect, Entity, NoticeLevel};

/// A project that asks for a longer delay than this has refused something.
const REFUSED: Duration = Duration::from_mins(10);

impl Client {
    /// Takes over what another client has learned of a project's estimates (R5.8): of a host that is
    /// simulated as it stands.
    pub fn adopt_correction(&mut self, id: ProjectId, factor: f64) {
        let factor = DurationCorrection::new(factor);
        self.ledger.restore_experience(id, Experience::adopted(factor));
        self.edit_correction(id, |_| factor);
        self.estimates_changed(id);
    }

    pub(crate) fn project_of(&self, url: &MasterUrl) -> Option<ProjectId> {
        self.state.projects.values().find(|project| project.url == *url).map(|project| project.id)
    }

    /// Attaches, or gives an attached project its new key and share. One that the document lists is taken as
    /// the document has it; the owner's word is then that he does not decline it any more.
    pub(crate) fn attach(&mut self, url: MasterUrl, account_key: AccountKey, share: Option<Share>) {
        self.edit_meta(|meta| meta.declined.remove(&url));
        if let Some(assigned) = self.assigned(&url).cloned() {
            return self.put_project(&assigned, true);
        }
        // Nothing that held a project back which never took this host in has to do with what the owner gives
        // now.
        let stuck =
            self.project_of(&url).filter(|id| self.state.projects.get(id).is_some_and(|p| p.hostid == 0));
        if let Some(id) = stuck {
            self.contact_anew(id);
        }
        let known = self.project_of(&url).and_then(|id| self.state.projects.get(&id));
        let chosen = share.or(known.and_then(|project| project.chosen_share));
        let now = chosen.or(known.map(|project| project.share)).unwrap_or(Share::DEFAULT);
        let wanted = ProjectAssignment {
            name: url.stem(),
            url,
            account_key,
            share: now,
            code_sign_key: None,
            without: ResourceTypes::default(),
        };
        self.put_project(&wanted, false);
        let Some(id) = self.project_of(&wanted.url) else { return };
        let share = self.edit_project(id, |project| {
            // The coordinator had dropped it: now it is the owner's.
            project.from_document = false;
            project.required_key = None;
            project.without = ResourceTypes::default();
            project.chosen_share = chosen;
            project.settle_share().then_some(project.share)
        });
        if let Some(share) = share.flatten() {
            self.tell_share(id, share);
        }
    }

    pub(crate) fn tell_share(&mut self, id: ProjectId, share: Share) {
        self.notice(NoticeLevel::Info, Some(id), format!("its share is {} now", share.get()));
    }

    /// Works out what is not stored of projects, and settles what older versions stored otherwise.
    pub(crate) fn rebuild_projects(&mut self) {
        self.renew_urls();
        let mut taken = BTreeSet::new();
        for id in self.project_ids() {
            self.edit_project(id, |project| {
                let unchosen = project.chosen_share.is_none() && !project.from_document;
                if unchosen && project.share != Share::DEFAULT && project.web.share != Some(project.share) {
                    // Only the owner can have given it.
                    project.chosen_share = Some(project.share);
                }
                if taken.contains(&project.directory()) {
                    // The first one keeps what lies there; the other's files are fetched again.
                    project.directory = Some(other_directory(&project.url, &taken));
                }
                taken.insert(project.directory());
            });
        }
    }

    fn project_ids(&self) -> Vec<ProjectId> {
        self.state.projects.keys().copied().collect()
    }

    /// Gives the URLs of an older store the form that URLs have now, by which the coordinator and the owner
    /// name them. A project keeps its form where it was attached twice under two, or has a directory that is
    /// not BOINC's name.
    fn renew_urls(&mut self) {
        self.edit_meta(|meta| {
            meta.declined = meta.declined.iter().map(MasterUrl::renewed).collect();
            let on_trial = meta
                .trial
                .iter_mut()
                .flat_map(|trial| trial.before.projects.iter_mut().chain(&mut trial.taken_over));
            let followed = meta.document.iter_mut().flat_map(|document| &mut document.projects);
            for project in followed.chain(on_trial) {
                project.url = project.url.renewed();
            }
        });
        let mut taken: BTreeSet<_> =
            self.state.projects.values().map(|project| project.url.clone()).collect();
        for id in self.project_ids() {
            self.edit_project(id, |project| {
                let url = project.url.renewed();
                if project.directory.is_none() && url != project.url && taken.insert(url.clone()) {
                    project.directory = Some(project.directory());
                    project.url = url;
                }
            });
        }
    }

    /// A directory for a new project, where BOINC's name for it is another's: ports and paths, `http` and
    /// `https` can give the same name.
    fn free_directory(&self, url: &MasterUrl) -> Option<String> {
        let taken: BTreeSet<String> = self.state.projects.values().map(Project::directory).collect();
        taken.contains(&url.stem()).then(|| other_directory(url, &taken))
    }

    /// What the document in force says of a project.
    pub(crate) fn assigned(&self, url: &MasterUrl) -> Option<&ProjectAssignment> {
        self.state.host.document.as_ref()?.projects.iter().find(|project| project.url == *url)
    }

    /// As after a first attachment: the master page is due, and no earlier failure or delay holds.
    pub(crate) fn contact_anew(&mut self, id: ProjectId) {
        self.edit_project(id, |project| {
            project.rpc = RpcState::attached();
            project.contact_by = None;
        });
        self.clear_type_backoffs(id);
        // An answer on its way is about the earlier contact.
        if self.sessions.in_flight(id).is_some() {
            self.give_up_rpc(id, Cause::AccountChanged);
        }
    }

    /// What a project refused for long it may have refused as it was not yet what it is again since a
    /// restore. Not at once: all hosts hear of a new term in the same moment.
    fn ask_again_soon(&mut self, url: &MasterUrl) {
        let Some(id) = self.project_of(url) else { return };
        let (now, is_asked) = (self.now(), self.sessions.in_flight(id).is_some());
        let refused = |project: &Project| {
            let wait = project.rpc.min_rpc_time(now, RequestedBy::Fleet);
            wait.is_some_and(|wait| wait.at > now + REFUSED)
        };
        if !is_asked && self.state.projects.get(&id).is_some_and(refused) {
            self.with_rpc(id, |rpc, rng| {
                let part = f64::from(rng.next_u32()) / f64::from(u32::MAX);
                rpc.on_request_delay(now, Duration::from_secs_f64(part * REFUSED.as_secs_f64()));
            });
        }
    }

    fn put_project(&mut self, wanted: &ProjectAssignment, from_document: bool) {
        let id = match self.project_of(&wanted.url) {
            Some(id) => id,
            None => self.new_project(wanted, from_document),
        };
        let before =
            self.state.projects.get(&id).map(|project| (project.account_key.clone(), project.required_key));
        let is_other_key =
            from_document && before.as_ref().is_some_and(|(_, key)| *key != wanted.code_sign_key);
        if is_other_key || before.is_some_and(|(key, _)| key != wanted.account_key) {
            // A wrong key is answered with a long delay, which is not meant for the right one.
            self.contact_anew(id);
        }
        self.edit_project(id, |project| {
            project.share = wanted.share;
            project.account_key = wanted.account_key.clone();
            project.detach_when_done = false;
            project.from_document |= from_document;
            if from_document {
                project.name = wanted.name.clone();
                project.require_key(wanted.code_sign_key);
                project.without.clone_from(&wanted.without);
            }
        });
        if is_other_key {
            self.renounce_unsigned(id);
        }
    }

    fn new_project(&mut self, wanted: &ProjectAssignment, from_document: bool) -> ProjectId {
        let id = self.new_project_id();
        let directory = self.free_directory(&wanted.url);
        let project = Project::attached(id, wanted, directory, from_document);
        self.insert_project(project);
        self.bar_projects();
        self.notice(NoticeLevel::Info, Some(id), format!("attached to {}", wanted.url));
        id
    }

    /// Detaches at once: somebody at this host wants rid of it.
    pub(crate) fn detach_url(&mut self, url: &MasterUrl) {
        match self.project_of(url) {
            Some(id) => {
                if self.assigned(url).is_some() {
                    self.edit_meta(|meta| meta.declined.insert(url.clone()));
                }
                self.detach(id, Cause::DetachedByOwner);
            }
            None => {
                self.notice(NoticeLevel::Warn, None, format!("cannot detach from {url}: not attached to it"));
            }
        }
    }

    fn detach(&mut self, id: ProjectId, why: Cause) {
        let jobs: Vec<_> =
            self.state.jobs.values().filter(|job| job.project == id).map(|job| job.id).collect();
        for job in jobs {
            if self.state.jobs.get(&job).is_some_and(|job| job.process.exists()) {
                self.act(Effect::AbortTask { job }, why.clone());
                self.set_process(job, Process::Aborting(None));
            }
            self.forget_job(job, false);
        }
        let files: Vec<_> = self.state.files.keys().filter(|key| key.project == id).cloned().collect();
        for key in files {
            if self.state.files.get(&key).and_then(|file| file.transfer.as_ref()).is_some_and(|t| t.active) {
                self.act(Effect::CancelTransfer { file: key.clone() }, why.clone());
            }
            self.remove_file(&key);
        }
        let versions: Vec<_> = self.state.versions.of(id).map(|(key, _)| key.clone()).collect();
        versions.into_iter().for_each(|key| self.remove_version(key));
        let workunits: Vec<_> = self.state.workunits.of(id).map(|(key, _)| key.clone()).collect();
        workunits.into_iter().for_each(|key| self.remove_workunit(key));
        self.app_configs.forget(id);
        self.workload.forget_project(id);
        self.sessions_mut().forget(id);
        self.hearings.forget(id);
        self.carried.forget(id);
        self.wanted_mut().forget(id);
        self.state.trickles.forget(id);
        self.stalls.forget(id);
        self.timers.stale(Timer::Stall);
        self.pages_mut().end(id);
        self.held_back.forget(id);
        if let Some(project) = self.remove_project(id) {
            self.forget_attaching(id, &project.url);
            self.notice(NoticeLevel::Info, Some(id), format!("{why}: {}", project.url));
            self.act(Effect::DeleteProject { project: id, url: project.url }, why);
        }
    }

    fn has_jobs(&self, project: ProjectId) -> bool {
        self.state.jobs.of(project).next().is_some()
    }

    /// Projects that the document dropped leave when their last job is reported, so that no finished work is
    /// lost.
    pub(crate) fn drop_finished_projects(&mut self) {
        let leaving: Vec<_> =
            self.state.projects.values().filter(|project| project.detach_when_done).map(|p| p.id).collect();
        for id in leaving {
            if !self.has_jobs(id) && self.sessions.in_flight(id).is_none() {
                self.detach(id, Cause::DroppedByCoordinator);
            }
        }
    }

    /// Takes note of the fleet. Another one counts its documents by itself: the one that is followed is
    /// older than any of them, and followed until one comes.
    pub(crate) fn join_fleet(&mut self, authority: String) {
        let is_other = self.state.host.fleet.as_ref().is_some_and(|fleet| *fleet != authority);
        if is_other {
            // Who could confirm what is on trial is not this fleet's coordinator.
            self.follow_confirmed();
        }
        self.edit_meta(|meta| {
            meta.fleet = Some(authority);
            if is_other {
                meta.rolled_back.clear();
                meta.document_refused = None;
            }
            if let Some(document) = meta.document.as_mut().filter(|_| is_other) {
                document.version = DocumentVersion(0);
            }
        });
    }

    /// Follows the coordinator's document, whole or not at all (R6.1).
    pub(crate) fn offer_document(&mut self, document: FleetDocument) {
        let version = document.version;
        let current =
            self.state.host.document.as_ref().map_or(DocumentVersion(0), |document| document.version);
        if version < current {
            return self
                .refuse_document(version, format!("older than version {current}, which this host follows"));
        }
        if let Err(invalid) = document.check() {
            return self.refuse_document(version, invalid.to_string());
        }
        if self.state.host.document.as_ref() == Some(&document) {
            // Whoever offered another one before is not heard any more.
            if self.state.host.document_refused.is_some() {
                self.edit_meta(|meta| meta.document_refused = None);
            }
            return self.touch(Entity::Host);
        }
        if let Some(why) = confirmation::refusal(&self.state.host.rolled_back, &document) {
            return self.refuse_document(version, why);
        }
        let trial = self.trial_of(&document);
        if trial.is_none() {
            self.confirmed_at_once(&document);
        }
        self.follow_document(document, trial);
        self.notice(
            NoticeLevel::Info,
            None,
            format!("following version {version} of the coordinator's document"),
        );
    }

    /// Follows a document from now on, which is on trial if there is one.
    pub(crate) fn follow_document(&mut self, document: FleetDocument, trial: Option<Trial>) {
        self.give_back_to_owner(&document);
        // What the owner detached stays so (R6.1: the owner keeps the last word).
        let declined = self.state.host.declined.clone();
        let is_new_term = self
            .state
            .host
            .document
            .as_ref()
            .is_some_and(|before| before.version.term() < document.version.term());
        for project in document.projects.iter().filter(|project| !declined.contains(&project.url)) {
            self.put_project(project, true);
            if is_new_term {
                self.ask_again_soon(&project.url);
            }
        }
        let dropped: Vec<_> = self
            .state
            .projects
            .values()
            .filter(|p| {
                p.from_document && !p.detach_when_done && !document.projects.iter().any(|d| d.url == p.url)
            })
            .map(|p| p.id)
            .collect();
        for id in dropped {
            self.edit_project(id, |project| project.detach_when_done = true);
            self.notice(
                NoticeLevel::Info,
                Some(id),
                "dropped by the coordinator: finishing its jobs, fetching none",
            );
        }
        let now = self.now();
        self.edit_meta(|meta| {
            (meta.document, meta.document_applied_at) = (Some(document), now);
            (meta.document_refused, meta.trial) = (None, trial);
        });
        self.watch_anew();
    }

    /// Projects of the owner's that a document took over which was on trial are again as they were, unless
    /// the next one names them too. What he detached meanwhile stays so.
    fn give_back_to_owner(&mut self, next: &FleetDocument) {
        let trial = self.state.host.trial.as_ref();
        let taken_over = trial.map(|trial| trial.taken_over.clone()).unwrap_or_default();
        for was in taken_over.iter().filter(|was| next.projects.iter().all(|one| one.url != was.url)) {
            let Some(id) = self.project_of(&was.url) else { continue };
            self.put_project(was, false);
            self.edit_project(id, |project| {
                project.from_document = false;
                project.required_key = None;
                project.without = ResourceTypes::default();
                project.name.clone_from(&was.name);
                project.settle_share()
            });
        }
    }

    /// Devices that the owner wants to be left alone (R3.14): the whole set, stored before anything follows
    /// from it.
    pub(crate) fn owner_excludes(&mut self, devices: BTreeSet<Device>) {
        if self.state.host.owner.excluded_devices != devices {
            self.edit_meta(|meta| meta.owner.excluded_devices = devices);
            self.spare_tasks();
            let all = &self.preferences().excluded_devices;
            let text = match all.is_empty() {
                true => "all devices may be used".to_owned(),
                false => format!("devices that are not used: {}", Device::list(all)),
            };
            self.notice(NoticeLevel::Info, None, text);
        }
    }

    pub(crate) fn refuse_document(&mut self, version: DocumentVersion, reason: String) {
        self.notice(
            NoticeLevel::Warn,
            None,
            format!("version {version} of the coordinator's document is refused: {reason}"),
        );
        self.edit_meta(|meta| meta.document_refused = Some((version, reason)));
        // Whoever offered it is answered, also for the second time.
        self.touch(Entity::Host);
    }

    /// The owner keeps the last word: it is stored before anything follows from it, and holds until taken
    /// back.
    pub(crate) fn owner_suspends(&mut self, suspended: bool) {
        if self.state.host.owner.suspended != suspended {
            self.edit_meta(|meta| meta.owner.suspended = suspended);
            self.spare_tasks();
            let what = if suspended { "suspended" } else { "resumed" };
            self.notice(NoticeLevel::Info, None, format!("computing {what} by the owner"));
        }
    }
}

impl Project {
    /// A project as it is when it was just attached: nothing was heard of it.
    pub(crate) fn attached(
        id: ProjectId,
        wanted: &ProjectAssignment,
        directory: Option<String>,
        from_document: bool,
    ) -> Self {
        Self {
            id,
            url: wanted.url.clone(),
            name: wanted.name.clone(),
            account_key: wanted.account_key.clone(),
            share: wanted.share,
            chosen_share: None,
            directory,
            from_document,
            detach_when_done: false,
            scheduler_urls: Vec::new(),
            rpc: RpcState::attached(),
            hostid: 0,
            rpc_seqno: 0,
            code_sign_key: None,
            required_key: wanted.code_sign_key,
            without: wanted.without.clone(),
            correction: DurationCorrection::default(),
            dont_use_dcf: false,
            send_full_workload: false,
            contact_by: None,
            identity: Identity::default(),
            apps: BTreeMap::new(),
            lacks: PerType::default(),
            web: WebPreferences::default(),
            barred: PerType::default(),
            job_time: None,
            deletes: Deletes::default(),
        }
    }
}

/// A name for a project's directory that no other has.
fn other_directory(url: &MasterUrl, taken: &BTreeSet<String>) -> String {
    let stem = url.stem();
    let names = (2..).map(|number: u32| format!("{stem}.{number}"));
    names.into_iter().find(|name| !taken.contains(name)).unwrap_or(stem)
}
