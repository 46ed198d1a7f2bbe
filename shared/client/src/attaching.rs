//! Attaching a project at the owner's word: nothing is kept that the project does not accept.
//!
//! Model: the project is attached and asked at once. What its page and its scheduler say is judged as it
//! comes in. When the scheduler takes this host in, the attachment stays. When it does not know the account,
//! or nobody answers in time, the attachment is taken back: a new project is detached, and one that was
//! attached before gets back what it had. Whoever waits is told a verdict either way. BOINC's servers have no
//! other check of an account key that all of them offer.
//!
//! Left out: what waits is not stored. A client that is killed in the middle keeps the attachment, as if it
//! had been made unseen; its project's view shows what the project says. A clock that is set forward, or a
//! host that sleeps, shortens the time that a project has.

use std::collections::BTreeMap;

use fallow_boinc::scheduler::SchedulerReply;
use fallow_domain::{AccountKey, Duration, Instant, MasterUrl, ProjectId, Share, printable};
use fallow_policy::backoff::Wait;
use fallow_policy::rpc_timing::RequestedBy;

use crate::machine::Client;
use crate::reply::NAME_MAX;
use crate::state::Project;
use crate::timers::Timer;
use crate::{AttachRequest, Cause, Effect, TransferError, TransferErrorKind, Waiter};

/// How long a project may take to answer. The owner sits before his terminal meanwhile, and what asks for him
/// waits no longer than 90 s.
const PATIENCE: Duration = Duration::from_secs(60);

/// Messages of a project that are told to whoever attaches it.
const SAID_MAX: usize = 5;

/// What came of the owner's wish for a project.
pub type Verdict = Result<Attached, NotAttached>;

/// Why a project is attached.
#[derive(Clone, Debug, PartialEq)]
pub enum Attached {
    /// It took this host in.
    Accepted {
        /// What it calls the user, if it says.
        user: Option<String>,
        /// What it has to say besides.
        said: Vec<String>,
    },
    /// It had taken this host in with this account before, so it is not asked again. At most its share is
    /// another now.
    Known {
        /// Its share.
        share: Share,
    },
    /// It was not asked.
    Unseen,
    /// It is the coordinator's, with the account and the share of the document.
    Managed {
        /// The owner had detached it, and takes it again.
        again: bool,
    },
}

/// Why a project is not attached, or not with what the owner gave.
#[derive(Clone, Debug, PartialEq)]
pub enum NotAttached {
    /// Nothing was done: what the project says of an earlier wish is being waited for.
    BeingAttached,
    /// Nothing was done: the project is the coordinator's, whose document names another account or share.
    Managed,
    /// Nothing was done: no account is given, and none is known.
    NoAccount,
    /// Taken back: the project does not know the account, or does not want this host.
    Refused {
        /// What it says.
        said: Vec<String>,
    },
    /// Taken back: the project says that it is down.
    Down {
        /// What it says.
        said: Vec<String>,
    },
    /// Taken back: the page names no scheduler.
    NoScheduler,
    /// Taken back: what answers is no project.
    NoProject(TransferError),
    /// Taken back: nobody answers.
    NoAnswer(TransferError),
    /// Taken back: the project has said nothing for so long.
    Silent(Duration),
    /// Taken back: the agent ends, and nobody would see what the project says.
    Ending,
    /// The project was detached meanwhile.
    Detached,
}

/// Projects that somebody waits for. Not stored: nobody waits longer than the agent lives.
#[derive(Debug, Default)]
pub(crate) struct Attachments {
    waiting: BTreeMap<ProjectId, Attaching>,
}

impl Attachments {
    /// Whether anybody waits.
    pub(crate) fn any_waits(&self) -> bool {
        !self.waiting.is_empty()
    }
}

/// Somebody waits for what a project says.
#[derive(Debug)]
struct Attaching {
    waiter: Waiter,
    /// What it had before, if it was attached.
    before: Option<Before>,
    patience: Wait,
}

/// What a project had before it was attached anew, as far as attaching changes it.
#[derive(Debug)]
struct Before {
    account_key: AccountKey,
    share: Share,
    chosen_share: Option<Share>,
    from_document: bool,
    detach_when_done: bool,
}

impl Before {
    fn of(project: &Project) -> Self {
        Self {
            account_key: project.account_key.clone(),
            share: project.share,
            chosen_share: project.chosen_share,
            from_document: project.from_document,
            detach_when_done: project.detach_when_done,
        }
    }

    fn give_back(self, project: &mut Project) {
        let Self { account_key, share, chosen_share, from_document, detach_when_done } = self;
        project.account_key = account_key;
        project.share = share;
        project.chosen_share = chosen_share;
        project.from_document = from_document;
        project.detach_when_done = detach_when_done;
    }
}

impl Client {
    /// Does what the owner wants (R6.2), and says at once what came of it unless the project has to be asked.
    pub(crate) fn attach_for(&mut self, request: AttachRequest) {
        let (waiter, url) = (request.waiter, request.url.clone());
        if let Some(verdict) = self.fulfil(request) {
            self.tell_verdict(waiter, url, verdict);
        }
    }

    fn fulfil(&mut self, request: AttachRequest) -> Option<Verdict> {
        let AttachRequest { waiter, url, account_key, share, unseen } = request;
        let known = self.project_of(&url).and_then(|id| self.state.projects.get(&id));
        if known.is_some_and(|project| self.attaching.waiting.contains_key(&project.id)) {
            return Some(Err(NotAttached::BeingAttached));
        }
        if let Some(assigned) = self.assigned(&url).cloned() {
            let is_other = account_key.is_some_and(|key| key != assigned.account_key)
                || share.is_some_and(|share| share != assigned.share);
            if is_other {
                return Some(Err(NotAttached::Managed));
            }
            let again = known.is_none();
            self.attach(url, assigned.account_key, Some(assigned.share));
            return Some(Ok(Attached::Managed { again }));
        }
        let (before, is_accepted) = (known.map(Before::of), known.is_some_and(|project| project.hostid != 0));
        let known_key = before.as_ref().map(|before| &before.account_key);
        let Some(account_key) = account_key.or_else(|| known_key.cloned()) else {
            return Some(Err(NotAttached::NoAccount));
        };
        let is_known = is_accepted && known_key == Some(&account_key);
        self.attach(url.clone(), account_key, share);
        let Some(project) = self.project_of(&url).and_then(|id| self.state.projects.get(&id)) else {
            return Some(Err(NotAttached::Detached));
        };
        if is_known {
            return Some(Ok(Attached::Known { share: project.share }));
        }
        if unseen {
            return Some(Ok(Attached::Unseen));
        }
        let patience = Wait::new(self.now(), PATIENCE);
        let id = project.id;
        self.attaching_mut().insert(id, Attaching { waiter, before, patience });
        self.request_contact(&url, RequestedBy::Owner);
        None
    }

    /// Who waits, to be changed.
    fn attaching_mut(&mut self) -> &mut BTreeMap<ProjectId, Attaching> {
        self.timers.stale(Timer::Attachment);
        &mut self.attaching.waiting
    }

    /// Whoever waited has gone: the attachment stays, whatever the project says.
    pub(crate) fn attach_unseen(&mut self, waiter: Waiter) {
        self.attaching_mut().retain(|_, waiting| waiting.waiter != waiter);
    }

    /// What a project's page means for whoever attaches it. One that names schedulers decides nothing yet.
    pub(crate) fn judge_page(
        &self,
        id: ProjectId,
        outcome: &Result<Vec<String>, TransferError>,
    ) -> Option<Verdict> {
        self.attaching.waiting.get(&id)?;
        match outcome {
            Ok(schedulers) if schedulers.is_empty() => Some(Err(NotAttached::NoScheduler)),
            Ok(_) => None,
            Err(error) => Some(Err(failed(error))),
        }
    }

    /// What a scheduler's answer means for whoever attaches its project.
    pub(crate) fn judge_answer(
        &self,
        id: ProjectId,
        outcome: &Result<Box<SchedulerReply>, TransferError>,
    ) -> Option<Verdict> {
        self.attaching.waiting.get(&id)?;
        Some(match outcome {
            Ok(reply) => of_reply(reply),
            Err(error) => Err(failed(error)),
        })
    }

    /// To be called when what came in has been seen to: another scheduler may have been asked since.
    pub(crate) fn conclude_attaching(&mut self, id: ProjectId, verdict: Verdict) {
        let may_come_yet = matches!(verdict, Err(NotAttached::Down { .. } | NotAttached::NoAnswer(_)));
        if !(may_come_yet && self.is_being_asked(id)) {
            self.end_attaching(id, verdict);
        }
    }

    /// Whether something is still to be heard of a project: from its page, from a scheduler, or from one that
    /// is asked as soon as it has its turn.
    fn is_being_asked(&self, id: ProjectId) -> bool {
        let has_schedulers =
            || self.state.projects.get(&id).is_some_and(|project| !project.scheduler_urls.is_empty());
        self.pages.is_being_read(id)
            || self.sessions.in_flight(id).is_some()
            || (self.wanted.has(id) && has_schedulers())
    }

    /// Tells who waits, and takes back what the project does not accept.
    fn end_attaching(&mut self, id: ProjectId, verdict: Verdict) {
        let Some(Attaching { waiter, before, .. }) = self.attaching_mut().remove(&id) else { return };
        let Some(url) = self.state.projects.get(&id).map(|project| project.url.clone()) else { return };
        // A document that came meanwhile may have made it the coordinator's.
        if verdict.is_err() && self.assigned(&url).is_none() {
            match before {
                Some(before) => {
                    self.contact_anew(id);
                    self.edit_project(id, |project| before.give_back(project));
                }
                None => self.detach_url(&url),
            }
        }
        self.tell_verdict(waiter, url, verdict);
    }

    /// A project is gone, and not because it did not accept what the owner gave.
    pub(crate) fn forget_attaching(&mut self, id: ProjectId, url: &MasterUrl) {
        if let Some(Attaching { waiter, .. }) = self.attaching_mut().remove(&id) {
            self.tell_verdict(waiter, url.clone(), Err(NotAttached::Detached));
        }
    }

    /// Gives up what took too long. Only when the shell has nothing else to tell: an answer that came in time
    /// may have waited for it, as for space on a full disk.
    pub(crate) fn give_up_attaching(&mut self) {
        let late = self.attaching.waiting.iter().filter(|(_, waiting)| !waiting.patience.holds(self.now()));
        let late: Vec<ProjectId> = late.map(|(id, _)| *id).collect();
        for id in late {
            self.end_attaching(id, Err(NotAttached::Silent(PATIENCE)));
        }
    }

    /// When the next one is to be given up.
    pub(crate) fn next_attachment(&self) -> Option<Instant> {
        self.attaching.waiting.values().map(|waiting| self.now() + waiting.patience.left(self.now())).min()
    }

    /// Nobody waits longer because the clock was set back (R1.12).
    pub(crate) fn observe_attaching(&mut self) {
        for waiting in self.attaching.waiting.values_mut() {
            waiting.patience.observe(self.clock.now());
        }
    }

    /// The agent ends: nobody will see what the projects say.
    pub(crate) fn stop_attaching(&mut self) {
        let all: Vec<ProjectId> = self.attaching.waiting.keys().copied().collect();
        for id in all {
            self.end_attaching(id, Err(NotAttached::Ending));
        }
    }

    fn tell_verdict(&mut self, waiter: Waiter, url: MasterUrl, verdict: Verdict) {
        self.act(Effect::TellVerdict { waiter, url, verdict }, Cause::OwnerWaits);
    }
}

/// A host that is taken in gets its number, and every known account's user a name. A refusal has neither.
/// Whether a scheduler accepts the account that it was told.
pub(crate) fn is_accepted(reply: &SchedulerReply) -> bool {
    of_reply(reply).is_ok()
}

fn of_reply(reply: &SchedulerReply) -> Verdict {
    let said = reply.messages.iter().take(SAID_MAX).map(|message| message.text.clone()).collect();
    if reply.project_is_down {
        return Err(NotAttached::Down { said });
    }
    let user = reply.user_name.as_deref().map(|name| printable::line(name, NAME_MAX));
    let user = user.filter(|name| !name.is_empty());
    if reply.hostid.is_none() && reply.userid.is_none() && user.is_none() {
        return Err(NotAttached::Refused { said });
    }
    Ok(Attached::Accepted { user, said })
}

fn failed(error: &TransferError) -> NotAttached {
    match error.kind {
        TransferErrorKind::Permanent | TransferErrorKind::BadReply => NotAttached::NoProject(error.clone()),
        _ => NotAttached::NoAnswer(error.clone()),
    }
}
