//! The trial of a document that was just taken (R6.5): what `confirmation.rs` decides by is gathered here,
//! and what follows is done.

use fallow_boinc::scheduler::SchedulerReply;
use fallow_domain::{
    DocumentVersion, Duration, FleetDocument, Instant, ProjectAssignment, ProjectId, ResourceTypes,
};

use crate::attaching::is_accepted;
use crate::confirmation::{self, Fault, Seen, Stake, Trial, Verdict};
use crate::machine::Client;
use crate::state::{Job, Stage};
use crate::timers::Timer;
use crate::{Cause, Effect, NoticeLevel};

/// What is known of a trial in this life of the agent alone. Not stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    looked_at: Instant,
    /// How long the agent has been up with the candidate.
    up: Duration,
}

impl Default for Watch {
    fn default() -> Self {
        Self { looked_at: Instant::EPOCH, up: Duration::ZERO }
    }
}

impl Client {
    /// The trial that a document begins that is about to be taken; none where there is nothing to go back
    /// to, or nothing is different.
    pub(crate) fn trial_of(&self, offered: &FleetDocument) -> Option<Trial> {
        self.config.confirm_within?;
        let host = &self.state.host;
        let before = host.trial.as_ref().map(|trial| &trial.before).or(host.document.as_ref())?;
        let is_same = (&before.projects, &before.preferences) == (&offered.projects, &offered.preferences);
        // The version 0 is another fleet's, or another host's.
        if is_same || before.version == DocumentVersion(0) {
            return None;
        }
        let mut taken_over = host.trial.as_ref().map(|trial| trial.taken_over.clone()).unwrap_or_default();
        taken_over.extend(self.owners_among(&offered.projects));
        Some(Trial {
            before: before.clone(),
            used: Duration::ZERO,
            acknowledged: false,
            stake: self.stake(before, offered),
            taken_over,
        })
    }

    /// Projects of a list that the owner attached himself, as they are.
    fn owners_among(&self, projects: &[ProjectAssignment]) -> Vec<ProjectAssignment> {
        let known = projects.iter().filter_map(|one| self.state.projects.get(&self.project_of(&one.url)?));
        known
            .filter(|project| !project.from_document)
            .map(|project| ProjectAssignment {
                name: project.name.clone(),
                url: project.url.clone(),
                account_key: project.account_key.clone(),
                share: project.share,
                code_sign_key: None,
                without: ResourceTypes::default(),
            })
            .collect()
    }

    fn stake(&self, before: &FleetDocument, offered: &FleetDocument) -> Stake {
        let had_work = |one: &ProjectAssignment| {
            let project = self.project_of(&one.url).and_then(|id| self.state.projects.get(&id));
            project.is_some_and(|project| project.hostid != 0)
        };
        let mut wanted =
            offered.projects.iter().filter(|one| !self.state.host.declined.contains(&one.url)).peekable();
        let is_known = |one: &ProjectAssignment| {
            let project = self.project_of(&one.url).and_then(|id| self.state.projects.get(&id));
            project.is_some_and(|project| {
                project.account_key == one.account_key && project.shows_key(one.code_sign_key)
            })
        };
        Stake {
            tasks: !self.preferences().suspended && self.workload.queue().iter().next().is_some(),
            projects: wanted.peek().is_some()
                && !wanted.any(is_known)
                && before.projects.iter().any(had_work),
            ..Stake::default()
        }
    }

    /// A document is taken or left: what was seen of a trial in this life is not of the next one.
    pub(crate) fn watch_anew(&mut self) {
        self.watch = Watch { looked_at: self.now(), up: Duration::ZERO };
        self.timers.stale(Timer::Trial);
    }

    /// The agent is up: the time that its last life used since its last look at the clock is not known, and
    /// taken to be what lies between two.
    pub(crate) fn resume_trial(&mut self) {
        self.watch_anew();
        if let Some(limit) = self.config.confirm_within
            && self.state.host.trial.is_some()
        {
            self.use_time(confirmation::look_period(limit));
            self.conclude_trial(limit);
        }
    }

    fn use_time(&mut self, time: Duration) {
        self.edit_trial(|trial| trial.used += time);
    }

    fn edit_trial(&mut self, change: impl FnOnce(&mut Trial)) {
        self.edit_meta(|meta| meta.trial.as_mut().map(change));
    }

    /// Looks at the clock, if that is due, and concludes the trial if it has come to something.
    pub(crate) fn poll_trial(&mut self) {
        let (Some(limit), Some(_)) = (self.config.confirm_within, &self.state.host.trial) else { return };
        let since = self.now() - self.watch.looked_at;
        if since >= Duration::ZERO && since < confirmation::look_period(limit) {
            return;
        }
        let counted = confirmation::counted(limit, since);
        self.watch = Watch { looked_at: self.now(), up: self.watch.up + counted };
        self.timers.stale(Timer::Trial);
        self.use_time(counted);
        self.conclude_trial(limit);
    }

    /// When that is due.
    pub(crate) fn next_trial(&self) -> Option<Instant> {
        let limit = self.config.confirm_within.filter(|_| self.state.host.trial.is_some())?;
        Some(self.watch.looked_at + confirmation::look_period(limit))
    }

    /// The coordinator has acknowledged a report that names this version as the one that the host follows
    /// since then, or said that the report came and cannot be stored.
    pub(crate) fn document_acknowledged(&mut self, version: DocumentVersion, taken_at: Instant) {
        let host = &self.state.host;
        let is_followed = host.document_applied_at == taken_at
            && host.document.as_ref().is_some_and(|document| document.version == version);
        if !is_followed {
            return self.acknowledged_late(version, taken_at);
        }
        let Some(limit) = self.config.confirm_within else { return };
        if confirmation::is_settled(limit, self.watch.up) && self.state.host.trial.is_some() {
            self.edit_trial(|trial| trial.acknowledged = true);
            self.conclude_trial(limit);
        }
    }

    fn acknowledged_late(&mut self, version: DocumentVersion, taken_at: Instant) {
        let is_news = self.edit_meta(|meta| {
            let failed = meta
                .rolled_back
                .iter_mut()
                .find(|one| one.version == version && one.taken_at == taken_at && !one.late)?;
            failed.late = true;
            failed.why.push_str(" (it was acknowledged when this host had gone back)");
            Some(())
        });
        if is_news.is_some() {
            let text = format!(
                "version {version} of the coordinator's document was acknowledged when this host had gone back from it: too late"
            );
            self.notice(NoticeLevel::Warn, None, text);
        }
    }

    /// Contact with a project has failed, so that it gives no work.
    pub(crate) fn note_contact_failed(&mut self, id: ProjectId) {
        self.note_contact(id, |stake| stake.failed = true);
    }

    /// A scheduler has answered: whether it accepts the account that the host has there, and shows the key
    /// that the document names. With another one nothing of it is run.
    pub(crate) fn note_answer(&mut self, id: ProjectId, reply: &SchedulerReply) {
        let project = self.state.projects.get(&id);
        let may_sign = |key: &String| project.is_none_or(|project| project.may_sign(key));
        let accepts = is_accepted(reply) && reply.code_sign_key.as_ref().is_none_or(may_sign);
        self.note_contact(id, |stake| match accepts {
            true => stake.accepted = true,
            false => stake.failed = true,
        });
    }

    fn note_contact(&mut self, id: ProjectId, change: impl FnOnce(&mut Stake)) {
        let matters = self.state.host.trial.as_ref().is_some_and(|trial| trial.stake.projects);
        let url = self.state.projects.get(&id).map(|project| project.url.clone());
        if matters && url.is_some_and(|url| self.assigned(&url).is_some()) {
            self.edit_trial(|trial| change(&mut trial.stake));
        }
    }

    /// A task was aborted for more memory than this host permits.
    pub(crate) fn note_forbidden(&mut self) {
        self.edit_trial(|trial| trial.stake.aborted = true);
    }

    /// The owner changes his limits: what may run now is his word, too.
    pub(crate) fn spare_tasks(&mut self) {
        self.edit_trial(|trial| trial.stake.tasks = false);
    }

    fn seen(&self) -> Seen {
        let waits = |job: &&Job| job.stage == Stage::Runnable && job.outcome.is_none();
        let mut waiting = self.state.jobs.values().filter(waits).peekable();
        let host = &self.state.host;
        let suspends =
            |document: &FleetDocument| document.preferences.suspended || host.lacks_layers_of(document);
        Seen {
            halted: host.document.as_ref().is_some_and(suspends)
                && host.trial.as_ref().is_some_and(|trial| !suspends(&trial.before)),
            computes: self.state.jobs.values().any(|job| job.process.computes()),
            suspended: self.preferences().suspended,
            forbidden: waiting.peek().is_some() && waiting.all(|job| self.may_never_run(job)),
        }
    }

    fn conclude_trial(&mut self, limit: Duration) {
        let Some(verdict) = self.state.host.trial.as_ref().map(|trial| trial.verdict(limit, self.seen()))
        else {
            return;
        };
        match verdict {
            Verdict::Open => {}
            Verdict::Confirmed => self.confirm_document(),
            Verdict::GoBack(fault) => self.go_back(fault, limit),
        }
    }

    fn confirm_document(&mut self) {
        let version = self.edit_meta(|meta| {
            meta.trial = None;
            let document = meta.document.as_ref()?;
            confirmation::forget(&mut meta.rolled_back, document);
            Some(document.version)
        });
        self.timers.stale(Timer::Trial);
        if let Some(version) = version {
            let text = format!("version {version} of the coordinator's document is confirmed");
            self.notice(NoticeLevel::Info, None, text);
        }
    }

    /// A version that needs no trial is as good as confirmed: what it makes void is told no more.
    pub(crate) fn confirmed_at_once(&mut self, document: &FleetDocument) {
        self.edit_meta(|meta| confirmation::forget(&mut meta.rolled_back, document));
    }

    fn go_back(&mut self, fault: Fault, limit: Duration) {
        let now = self.now();
        let taken_at = self.state.host.document_applied_at;
        let Some(candidate) = self.state.host.document.clone() else { return };
        self.edit_meta(|meta| {
            confirmation::remember(&mut meta.rolled_back, &candidate, (taken_at, now), fault, limit);
        });
        let Some(version) = self.follow_confirmed() else { return };
        let text = format!(
            "went back from version {} of the coordinator's document to version {version}: {}",
            candidate.version,
            fault.said(limit)
        );
        self.notice(NoticeLevel::Warn, None, text);
        self.act(Effect::LinkAnew, Cause::WentBack);
    }

    /// Ends a trial by following the confirmed document. Says which version that is.
    pub(crate) fn follow_confirmed(&mut self) -> Option<DocumentVersion> {
        let before = self.state.host.trial.as_ref().map(|trial| trial.before.clone())?;
        let version = before.version;
        self.follow_document(before, None);
        Some(version)
    }
}
