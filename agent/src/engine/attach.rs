//! Attaching a project at the owner's word: nothing is kept that the project does not accept.
//!
//! Model: the client is told to attach and to make contact at once. What the project's page and scheduler say is looked at
//! as it comes in. When the scheduler takes this host in, whoever asked is told so; when it does not know the account, or
//! nobody answers, the attachment is taken back, as if the owner had detached the project, or given its old key again.
//! BOINC's servers have no other check of an account key that all of them offer.
//!
//! Left out: an agent that is killed in the middle keeps the attachment, which `status` shows.

use std::collections::BTreeMap;
use std::time::Duration as StdDuration;

use fallow_boinc::scheduler::SchedulerReply;
use fallow_client::{Asker, Event, TransferError, TransferErrorKind};
use fallow_domain::{AccountKey, MasterUrl, ProjectId, Share, printable};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Engine;
use crate::control::protocol::Response;
use crate::error::AgentError;

/// How long a project may take to answer.
const PATIENCE: StdDuration = StdDuration::from_secs(60);

/// Messages of a project that are told to whoever attaches it.
const SAID_MAX: usize = 5;

/// Somebody waits for what a project says.
#[derive(Debug)]
pub(super) struct Attaching {
    url: MasterUrl,
    /// What it was attached with before.
    before: Option<(AccountKey, Option<Share>)>,
    give_up: Instant,
    reply: oneshot::Sender<Response>,
}

/// Those who wait.
pub(super) type Attachments = BTreeMap<ProjectId, Attaching>;

/// What an answer of a project means for somebody who attaches it.
type Verdict = Result<String, AgentError>;

/// What is wanted, its values looked through.
struct Wish {
    url: MasterUrl,
    account_key: Option<AccountKey>,
    share: Option<Share>,
}

impl Engine {
    /// Attaches, and answers when it is clear what came of it.
    pub(super) async fn attach(
        &mut self,
        (url, account_key, share): (String, Option<AccountKey>, Option<f64>),
        no_wait: bool,
    ) -> Result<(), AgentError> {
        let answer = match wish(&url, account_key, share) {
            Ok(wish) => self.fulfil(wish, no_wait).await?,
            Err(error) => Answer::Now(Response::failed(&error)),
        };
        match answer {
            Answer::Now(response) => self.respond(response),
            Answer::Later { project, url, before } => {
                // Answered already when the disk is full: then it is as with --no-wait.
                let Some((_, reply)) = self.asking.take() else { return Ok(()) };
                let give_up = Instant::now() + PATIENCE;
                self.attaching.insert(project, Attaching { url, before, give_up, reply });
            }
        }
        Ok(())
    }

    async fn fulfil(&mut self, wish: Wish, no_wait: bool) -> Result<Answer, AgentError> {
        let Wish { url, account_key, share } = wish;
        let known = self.client.standing(&url);
        if known.attached.is_some_and(|id| self.attaching.contains_key(&id)) {
            let what = format!("{url} is just being attached: wait for what the project says");
            return Ok(Answer::Now(Response::failed(&AgentError::refused(what))));
        }
        if let Some(assigned) = known.assigned {
            let other_key = account_key.is_some_and(|key| key != assigned.account_key);
            if other_key || share.is_some_and(|share| share != assigned.share) {
                let error = AgentError::refused(format!(
                    "{url} is managed by the coordinator, whose document gives its account and its share: change them there, \
                     or detach the project to have none of it (attaching it again takes neither key nor share)"
                ));
                return Ok(Answer::Now(Response::failed(&error)));
            }
            let text = match known.attached {
                Some(_) => format!("{url} is attached already, by the coordinator"),
                None => format!(
                    "attached to {url} again, with the account and the share of the coordinator's document"
                ),
            };
            let (account_key, share) = (assigned.account_key, assigned.share);
            self.turn(Event::Attach { url, account_key, share: Some(share) }, None).await?;
            return Ok(Answer::Now(Response::done(text)));
        }
        let Some(account_key) = account_key.or_else(|| known.account_key.clone()) else {
            return Ok(Answer::Now(Response::failed(&AgentError::bad_input(format!(
                "no account is named for {url}: give --account-key-file FILE, or FALLOW_ACCOUNT_KEY, or --email and --password-file"
            )))));
        };
        let is_known = known.accepted && known.account_key.as_ref() == Some(&account_key);
        // Taken back, the share is what it was.
        let share_before = share.and(known.chosen_share.or(known.share));
        let before = known.account_key.map(|key| (key, share_before));
        self.turn(Event::Attach { url: url.clone(), account_key, share }, None).await?;
        if is_known || no_wait {
            let text = match is_known {
                true => {
                    let share = self.client.standing(&url).share.unwrap_or(Share::DEFAULT);
                    format!("{url} is attached with this account already; its share is {}", share.get())
                }
                false => format!(
                    "attached to {url}, which was not asked yet: see `fallow-agent status` for what it says"
                ),
            };
            return Ok(Answer::Now(Response::done(text)));
        }
        self.turn(Event::ContactRequested { url: url.clone(), by: Asker::Owner }, None).await?;
        Ok(match self.client.standing(&url).attached {
            Some(project) => Answer::Later { project, url, before },
            // Its page was asked for and its share taken back in one go: cannot be, and is no reason to hang.
            None => Answer::Now(Response::failed(&AgentError::refused(format!("{url} was detached again")))),
        })
    }

    /// What an event means for those who wait for its project. To be asked before the client is told.
    pub(super) fn verdict(&self, event: &Event) -> Option<(ProjectId, Verdict)> {
        let (project, verdict) = match event {
            Event::MasterPageRead { project, outcome } => {
                (*project, of_page(&self.attaching.get(project)?.url, outcome))
            }
            Event::SchedulerAnswered { project, outcome } => {
                (*project, Some(of_scheduler(&self.attaching.get(project)?.url, outcome)))
            }
            _ => return None,
        };
        Some((project, verdict?))
    }

    /// Tells who waits, and takes back what the project does not accept. To be called when the client was told.
    pub(super) async fn conclude(&mut self, project: ProjectId, verdict: Verdict) -> Result<(), AgentError> {
        if matches!(verdict, Err(AgentError::Unreachable { .. })) && self.transfers.is_talking(project) {
            // There is another scheduler to ask.
            return Ok(());
        }
        let Some(Attaching { url, before, reply, .. }) = self.attaching.remove(&project) else {
            return Ok(());
        };
        match verdict {
            Ok(text) => drop(reply.send(Response::done(text))),
            Err(error) => {
                tracing::warn!(project = %url, %error, "taking an attachment back");
                // A document that came meanwhile may have made it the coordinator's.
                if self.client.standing(&url).assigned.is_none() {
                    let undo = match before {
                        Some((account_key, share)) => Event::Attach { url, account_key, share },
                        None => Event::Detach { url },
                    };
                    self.turn(undo, None).await?;
                }
                let _ = reply.send(Response::failed(&error));
            }
        }
        Ok(())
    }

    /// Gives up those whose projects took too long.
    pub(super) async fn give_up_attaching(&mut self) -> Result<(), AgentError> {
        let now = Instant::now();
        let late = self.attaching.iter().filter(|(_, waiting)| waiting.give_up <= now);
        let late: Vec<_> = late.map(|(id, waiting)| (*id, waiting.url.clone())).collect();
        for (id, url) in late {
            self.transfers.cancel_project(id);
            let error = AgentError::unreachable(format!(
                "{url} has not said within {} s whether it accepts the account: nothing is kept; try again, or attach it \
                 unseen with --no-wait",
                PATIENCE.as_secs()
            ));
            self.conclude(id, Err(error)).await?;
        }
        Ok(())
    }

    /// The agent ends: nobody will see what the projects say.
    pub(super) async fn stop_attaching(&mut self) -> Result<(), AgentError> {
        let all: Vec<ProjectId> = self.attaching.keys().copied().collect();
        for id in all {
            let error = AgentError::unreachable("the agent is just ending: nothing was attached");
            self.conclude(id, Err(error)).await?;
        }
        Ok(())
    }

    /// The owner detached a project before it had answered.
    pub(super) fn forget_attaching(&mut self, project: ProjectId) {
        if let Some(waiting) = self.attaching.remove(&project) {
            let error = AgentError::refused(format!("{} was detached meanwhile", waiting.url));
            let _ = waiting.reply.send(Response::failed(&error));
        }
    }

    /// When the next one is to be given up.
    pub(super) fn attaching_until(&self) -> Option<Instant> {
        self.attaching.values().map(|waiting| waiting.give_up).min()
    }
}

/// A message of a project, fit to be shown within a sentence.
fn one_line(message: &str) -> String {
    printable::joined(message.trim().trim_end_matches('.'), 1_000)
}

enum Answer {
    Now(Response),
    Later { project: ProjectId, url: MasterUrl, before: Option<(AccountKey, Option<Share>)> },
}

fn wish(url: &str, account_key: Option<AccountKey>, share: Option<f64>) -> Result<Wish, AgentError> {
    let bad = |invalid: fallow_domain::Invalid| AgentError::bad_input(invalid.to_string());
    Ok(Wish {
        url: MasterUrl::parse(url).map_err(bad)?,
        account_key: account_key.map(|key| crate::account::checked(key.reveal())).transpose()?,
        share: share.map(Share::given).transpose().map_err(bad)?,
    })
}

/// A page that names schedulers decides nothing yet.
fn of_page(url: &MasterUrl, outcome: &Result<Vec<String>, TransferError>) -> Option<Verdict> {
    match outcome {
        Ok(schedulers) if !schedulers.is_empty() => None,
        Ok(_) => Some(Err(AgentError::bad_input(format!(
            "{url} is no project's URL: its page names no scheduler. Nothing is attached"
        )))),
        Err(error) => Some(Err(failed(url, error))),
    }
}

fn of_scheduler(url: &MasterUrl, outcome: &Result<Box<SchedulerReply>, TransferError>) -> Verdict {
    let reply = match outcome {
        Ok(reply) => reply,
        Err(error) => return Err(failed(url, error)),
    };
    let said: Vec<String> =
        reply.messages.iter().take(SAID_MAX).map(|message| one_line(&message.text)).collect();
    let said = if said.is_empty() {
        "it does not say why".to_owned()
    } else {
        format!("it says: {}", said.join(" / "))
    };
    if reply.project_is_down {
        return Err(AgentError::unreachable(format!("{url} is down: nothing is attached; {said}")));
    }
    // A host that is taken in gets its number, and every known account's user a name. A refusal has neither.
    let user =
        reply.user_name.as_deref().map(|name| printable::line(name, 255)).filter(|name| !name.is_empty());
    if reply.hostid.is_none() && reply.userid.is_none() && user.is_none() {
        return Err(AgentError::refused(format!(
            "{url} does not accept this account or this host: nothing is attached; {said}. Check the account key on your \
             account page there"
        )));
    }
    let user = user.map(|name| format!(" as {name}")).unwrap_or_default();
    let said = if reply.messages.is_empty() { String::new() } else { format!("; {said}") };
    Ok(format!("attached to {url}{user}{said}"))
}

fn failed(url: &MasterUrl, error: &TransferError) -> AgentError {
    match error.kind {
        TransferErrorKind::Permanent | TransferErrorKind::BadReply => AgentError::bad_input(format!(
            "{url} does not answer as a project does ({error}): nothing is attached"
        )),
        _ => AgentError::unreachable(format!(
            "{url} does not answer ({error}): nothing is attached; check the URL and the network, or attach it unseen with --no-wait"
        )),
    }
}
