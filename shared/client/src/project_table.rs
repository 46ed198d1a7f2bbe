//! The projects, with private fields: read as a map, changed through one door that says what follows.
//!
//! **Model.** An edit keeps the project as it was, and all that follows is found by comparing it with what it
//! becomes. Projects are few and seldom edited, so they are compared whole. What changes with each of its
//! jobs, which may be ten thousand, is a part of it that is edited and compared alone.

use std::collections::BTreeMap;
use std::ops::Deref;

use fallow_domain::{Duration, Instant, ProjectId, Share};
use fallow_policy::completion::DurationCorrection;
use fallow_policy::rpc_timing::RpcState;

use crate::state::Project;

/// The projects, to be looked at as a map.
#[derive(Debug, Default)]
pub(crate) struct Projects {
    all: BTreeMap<ProjectId, Project>,
    /// By id. Every decision is made from them, and they seldom change.
    shares: Vec<(ProjectId, Share)>,
}

/// What follows from an edit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Its record is to be written, and its view to be sent.
    pub store: bool,
    /// The record must survive a power cut: somebody was told, or would have to say it again.
    pub durable: bool,
    /// Others get another part of the host, or somebody else decides about it: a reason to decide what runs.
    pub shares: bool,
    /// It may be asked at another time, or for something else: a reason to check work fetch.
    pub asks: bool,
    /// It may be contacted at another time.
    pub waits: bool,
    /// Its jobs take another time than the queue reckons with.
    pub estimates: bool,
    /// It earns something else from now on: long-term debts are to be settled by what it was until now
    /// (R3.3).
    pub earns: bool,
}

impl Deref for Projects {
    type Target = BTreeMap<ProjectId, Project>;
    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl Projects {
    /// Takes in a project, in place of another of the same id.
    pub(crate) fn insert(&mut self, project: Project) {
        self.all.insert(project.id, project);
        self.list_shares();
    }

    pub(crate) fn remove(&mut self, id: ProjectId) -> Option<Project> {
        let removed = self.all.remove(&id);
        self.list_shares();
        removed
    }

    fn list_shares(&mut self) {
        self.shares.clear();
        self.shares.extend(self.all.values().map(|project| (project.id, project.share)));
    }

    /// The projects with their shares, by id.
    pub(crate) fn shares(&self) -> &[(ProjectId, Share)] {
        &self.shares
    }

    /// Changes a copy of a project, but for its id. Says what follows when the copy is [taken
    /// in](Self::insert), which is the moment until when the project is as it was.
    pub(crate) fn edited<T>(
        &self,
        id: ProjectId,
        change: impl FnOnce(&mut Project) -> T,
    ) -> Option<(T, Project, Difference)> {
        let project = self.all.get(&id)?;
        let mut after = project.clone();
        let told = change(&mut after);
        let found = Difference::between(project, &after);
        Some((told, after, found))
    }

    /// Changes a copy of when it may be asked, and nothing else of it. Says what follows when the copy is
    /// [taken in](Self::set_rpc).
    pub(crate) fn edited_rpc<T>(
        &self,
        id: ProjectId,
        change: impl FnOnce(&mut RpcState) -> T,
    ) -> Option<(T, RpcState, Difference)> {
        let rpc = &self.all.get(&id)?.rpc;
        let mut after = rpc.clone();
        let told = change(&mut after);
        let differs = *rpc != after;
        let earns = rpc.has_failed() != after.has_failed();
        let found =
            Difference { store: differs, asks: differs, waits: differs, earns, ..Difference::default() };
        Some((told, after, found))
    }

    /// Takes it in.
    pub(crate) fn set_rpc(&mut self, id: ProjectId, rpc: RpcState) {
        if let Some(project) = self.all.get_mut(&id) {
            project.rpc = rpc;
        }
    }

    /// Changes how its estimates are corrected, and nothing else of it.
    pub(crate) fn edit_correction(
        &mut self,
        id: ProjectId,
        change: impl FnOnce(DurationCorrection) -> DurationCorrection,
    ) -> Option<Difference> {
        let follows = Difference { store: true, estimates: true, ..Difference::default() };
        let change = |correction: &mut DurationCorrection| *correction = change(*correction);
        self.edit_part(id, |project| &mut project.correction, change, follows).map(|(_, found)| found)
    }

    /// Takes note of how long its jobs are, and changes nothing else of it.
    pub(crate) fn set_job_time(&mut self, id: ProjectId, time: Duration) -> Option<Difference> {
        let follows = Difference { store: true, ..Difference::default() };
        let edited = self.edit_part(id, |project| &mut project.job_time, |old| *old = Some(time), follows);
        edited.map(|(_, found)| found)
    }

    /// Gives an RPC its number: 0 until the project has given the host its own.
    pub(crate) fn number_rpc(&mut self, id: ProjectId) -> Option<Difference> {
        let is_known = self.all.get(&id)?.hostid != 0;
        let follows = Difference { store: true, durable: true, ..Difference::default() };
        let change = |number: &mut u64| *number = if is_known { *number + 1 } else { 0 };
        self.edit_part(id, |project| &mut project.rpc_seqno, change, follows).map(|(_, found)| found)
    }

    /// Changes a part of a project alone, from which so much follows if it changes at all.
    fn edit_part<P: Clone + PartialEq, T>(
        &mut self,
        id: ProjectId,
        part: impl FnOnce(&mut Project) -> &mut P,
        change: impl FnOnce(&mut P) -> T,
        follows: Difference,
    ) -> Option<(T, Difference)> {
        let part = part(self.all.get_mut(&id)?);
        let before = part.clone();
        let told = change(part);
        Some((told, if before == *part { Difference::default() } else { follows }))
    }

    /// Takes note of the time: no wait becomes longer by a clock that was set back. That follows from what is
    /// stored, and is no difference to anybody. Says whether one wants to hear of us by now.
    pub(crate) fn observe(&mut self, now: Instant) -> bool {
        let mut overdue = false;
        for project in self.all.values_mut() {
            project.rpc.observe(now);
            if let Some(wait) = &mut project.contact_by {
                wait.observe(now);
                overdue |= !wait.holds(now);
            }
        }
        overdue
    }
}

impl Difference {
    /// What follows when a project that was like this is like that.
    fn between(was: &Project, is: &Project) -> Self {
        let shares = |p: &Project| (p.share, p.detach_when_done, p.from_document);
        let store = was != is;
        let shares = shares(was) != shares(is) || was.account_key != is.account_key;
        Self {
            store,
            durable: !settled_alike(was, is),
            shares,
            asks: was.rpc != is.rpc || was.left_out() != is.left_out(),
            waits: was.rpc != is.rpc
                || was.contact_by != is.contact_by
                || was.scheduler_urls.is_empty() != is.scheduler_urls.is_empty(),
            estimates: was.correction != is.correction || was.dont_use_dcf != is.dont_use_dcf,
            earns: (was.share, was.detach_when_done) != (is.share, is.detach_when_done)
                || was.rpc.has_failed() != is.rpc.has_failed()
                || was.left_out() != is.left_out(),
        }
    }
}

/// Whether all is the same that was settled with the owner, the coordinator or the project. So are the
/// numbers of RPCs: a server takes a host whose numbers go back for a copy of another. And so is when it may
/// be asked: a delay that its owner has overridden does not come back. (Waits after failures alone are
/// changed by `edit_rpc`.)
fn settled_alike(was: &Project, is: &Project) -> bool {
    let short = |p: &Project| (p.share, p.chosen_share, p.from_document, p.detach_when_done, p.hostid);
    short(was) == short(is)
        && was.rpc == is.rpc
        && (&was.url, &was.directory, &was.name) == (&is.url, &is.directory, &is.name)
        && (&was.account_key, &was.code_sign_key, was.required_key, &was.without)
            == (&is.account_key, &is.code_sign_key, is.required_key, &is.without)
        && (was.rpc_seqno, &was.scheduler_urls, &was.identity)
            == (is.rpc_seqno, &is.scheduler_urls, &is.identity)
}
