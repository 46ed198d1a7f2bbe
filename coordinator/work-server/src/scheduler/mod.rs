//! The scheduler RPC: who asks, what is reported, what is lost, what is sent (BOINC: `cgi`).
//!
//! **Order.** Account, host, reports, jobs that the host has lost or should not have, then new jobs. All of
//! it changes records in one transaction. The reply is written after it: signing upload permissions takes
//! longer than everything else, and needs no lock.
//!
//! **Errors** go to the client as BOINC's servers put them: status 200, a message, and a delay.

#[cfg(test)]
mod heard;
mod host;
mod logged_names;
mod lost_jobs;
mod reply;
mod report;
mod send;
mod spread;
mod work_request;

use fallow_boinc::scheduler::{Message, Priority, SchedulerReply, SchedulerRequest};
use fallow_boinc::signature::md5_hex;
use fallow_domain::{AccountKey, Duration, Instant, MasterUrl};
use fallow_telemetry::RateLimit;
use tracing::{debug, info, warn};

use self::logged_names::LoggedNames;
use super::credit::{self, Credit};
use super::error::ProjectError;
use super::host_experience::HostExperience;
use super::project::Project;
use super::records::{Account, Host, Version};
use super::workunit::{HostAccount, Workunit};
use crate::printable;

/// Version 8.3: what clients take our replies to be like. Newer features depend on it.
const SCHEDULER_VERSION: u32 = 803;
/// After a request that cannot be read. It may be a network's fault.
const UNREADABLE_DELAY: Duration = Duration::from_mins(10);
/// After a wrong account key: a person has to do something first.
const BAD_KEY_DELAY: Duration = Duration::from_hours(1);
/// After a platform that nobody has heard of.
const PLATFORM_DELAY: Duration = Duration::from_hours(24);

/// What an agent is told whose RPCs do not count on.
const COPIED: &str = "This agent's directory was copied and runs twice, or an older copy of it was put back: if two run, \
    stop one and enrol it anew in an empty directory";

/// Bytes of a text from outside that are logged.
const TEXT_MAX: usize = 255;
/// Jobs that are looked at of those that a request lists as held. Clients hold some thousands of a project at
/// most; the time that a longer list takes would be other hosts' time.
const LISTED_MAX: usize = 10_000;
static UNREADABLE: RateLimit = RateLimit::new();

/// A job that goes into the reply.
pub(super) struct SentJob {
    pub(super) workunit: Workunit,
    pub(super) index: u32,
    pub(super) version: Version,
}

/// What a request led to, of which the reply is made.
pub(super) struct ReplyContent {
    pub(super) host: Host,
    /// What jobs took on it.
    pub(super) experience: HostExperience,
    /// The host's record is new to it, or another than it thought.
    pub(super) tell_host_id: bool,
    pub(super) acks: Vec<String>,
    /// Those of the acknowledged reports that were taken.
    pub(super) reported: Vec<String>,
    /// The others: repeated, of another host's job, or of one that nobody knows.
    pub(super) not_taken: LoggedNames,
    pub(super) aborts: Vec<String>,
    pub(super) aborts_if_not_started: Vec<String>,
    pub(super) jobs: Vec<SentJob>,
    pub(super) messages: Vec<Message>,
    /// The host has its part of a batch, and comes again soon: each of its jobs is reported at once.
    pub(super) is_part: bool,
    /// Something came to be compared.
    pub(super) to_compare: bool,
    /// What the account and the host were granted.
    pub(super) credit: (Credit, Credit),
}

/// Whether a request lists more jobs of this project than are looked at: nothing is concluded from it then.
/// What it holds of other projects is not its fault (`send::earliest`).
fn lists_too_many(request: &SchedulerRequest) -> bool {
    request.other_results.as_ref().is_some_and(|held| held.len() > LISTED_MAX)
}

impl ReplyContent {
    /// The host that asks, and its account.
    pub(super) fn host_account(&self) -> HostAccount {
        self.host.host_account()
    }
}

impl Project {
    /// Answers a request that came to the project under this URL. Says also whether outputs are to be
    /// compared now.
    ///
    /// # Errors
    /// Failures of the store, after which the client should try again; whatever is wrong with the request is
    /// said in the reply.
    pub(crate) fn scheduler_rpc(
        &self,
        body: &[u8],
        account: &Account,
        url: &MasterUrl,
        now: Instant,
    ) -> Result<(String, bool), ProjectError> {
        let request = match SchedulerRequest::parse(body) {
            Ok(request) => request,
            Err(problem) => {
                if let Some(times) = UNREADABLE.allow() {
                    let error = printable::line(&problem.to_string(), TEXT_MAX);
                    warn!(project = %self.name, account = account.id, error, times, "a scheduler request cannot be read");
                }
                return Ok((self.refusal(problem.to_string(), UNREADABLE_DELAY), false));
            }
        };
        // It was admitted by the key in its first bytes.
        if request.authenticator != account.key {
            return Ok((self.refuse_key(), false));
        }
        if !reply::is_known_platform(&request, &self.catalog()) {
            let text = format!("This project does not support computers of type {}", request.platform_name);
            return Ok((self.refusal(text, PLATFORM_DELAY), false));
        }
        let Some(reply) = self.carry_out(&request, account, now)? else {
            return Ok((self.refuse_key(), false));
        };
        self.log(&request, &reply);
        let to_compare = reply.to_compare;
        Ok((reply::write(self, &request, account, reply, url, now)?, to_compare))
    }

    /// The account with this key.
    pub(crate) fn account(&self, key: &AccountKey) -> Result<Option<Account>, ProjectError> {
        self.read().get("account", &self.keys.account(key.reveal()))
    }

    /// The answer to a key that nobody has.
    pub(crate) fn refuse_key(&self) -> String {
        let text = "Invalid or missing account key. To fix, remove and add this project.";
        self.refusal(text.to_owned(), BAD_KEY_DELAY)
    }

    /// The answer to a request that does not begin with a key: it may have been broken on its way.
    pub(crate) fn refuse_without_key(&self) -> String {
        let text = "The request does not begin with an account key";
        self.refusal(text.to_owned(), UNREADABLE_DELAY)
    }

    /// All that a request changes, in one transaction; durable if something was acknowledged. Nothing if
    /// the account was closed while the request was on its way.
    fn carry_out(
        &self,
        request: &SchedulerRequest,
        account: &Account,
        now: Instant,
    ) -> Result<Option<ReplyContent>, ProjectError> {
        let reply = self.transact(|txn| {
            txn.leave_space();
            // As it is now: another request of the same agent may just have made the host.
            let account: Option<Account> = txn.get("account", &self.keys.account(account.key.reveal()))?;
            let Some(account) = account else { return Ok(None) };
            let (host, tell_host_id) = host::identify(self, txn, request, &account, now)?;
            let experience = HostExperience::read(txn, &self.keys, host.id)?;
            let mut reply = ReplyContent {
                host,
                experience,
                tell_host_id,
                acks: Vec::new(),
                reported: Vec::new(),
                not_taken: LoggedNames::default(),
                aborts: Vec::new(),
                aborts_if_not_started: Vec::new(),
                jobs: Vec::new(),
                messages: Vec::new(),
                is_part: false,
                to_compare: false,
                credit: (Credit::default(), Credit::default()),
            };
            reply.credit = credit::of(txn, &self.keys, reply.host.account, reply.host.id)?;
            report::take(self, txn, request, &mut reply, now)?;
            lost_jobs::check(self, txn, request, &mut reply, now)?;
            self.take_file_list(txn, request, reply.host.id)?;
            send::send(self, txn, request, &mut reply, now)?;
            if reply.host.copied_at == Some(now) {
                reply.messages.push(note(COPIED));
            }
            txn.put("host", self.keys.host(reply.host.id), &reply.host)?;
            Ok(Some(reply))
        })?;
        // An acknowledged report is forgotten by the client: it must survive here, whatever happens.
        if reply.as_ref().is_some_and(|reply| !reply.acks.is_empty()) {
            self.store.flush()?;
        }
        Ok(reply)
    }

    fn refusal(&self, text: String, delay: Duration) -> String {
        debug!(project = %self.name, %text, "request refused");
        let message = Message { priority: Priority::High, text };
        SchedulerReply {
            scheduler_version: Some(SCHEDULER_VERSION),
            project_name: Some(self.long_name()),
            request_delay: delay,
            messages: vec![message],
            ..SchedulerReply::default()
        }
        .write()
    }

    fn log(&self, request: &SchedulerRequest, reply: &ReplyContent) {
        let (host, limits) = (reply.host.id, &self.log_limits);
        if reply.tell_host_id
            && let Some(times) = limits.registered.allow()
        {
            let (name, before) = (&reply.host.name, request.hostid);
            info!(project = %self.name, host, %name, before, times, "host registered");
        }
        for job in &reply.reported {
            info!(project = %self.name, host, %job, "reported");
        }
        if reply.not_taken.count() > 0
            && let Some(times) = limits.not_awaited.allow()
        {
            let (jobs, names) = (reply.not_taken.count(), &reply.not_taken);
            info!(project = %self.name, host, jobs, %names, times, "reported, but not awaited from this host");
        }
        for sent in &reply.jobs {
            info!(project = %self.name, host, job = %sent.workunit.job_name(sent.index), "sent");
        }
        let aborts = LoggedNames::of(&reply.aborts);
        if aborts.count() > 0
            && let Some(times) = limits.aborts.allow()
        {
            let (jobs, names) = (aborts.count(), &aborts);
            info!(project = %self.name, host, jobs, %names, times, "told to abort: this host should not have them");
        }
        debug!(
            project = %self.name, host, seqno = request.rpc_seqno, wanted_secs = request.cpu_req_secs,
            wanted_instances = request.cpu_req_instances, sent = reply.jobs.len(), "scheduler RPC"
        );
    }
}

/// A message for the event log of the client.
fn note(text: impl Into<String>) -> Message {
    Message { priority: Priority::Low, text: text.into() }
}

/// A host's identity for others: they must not learn the one that it shows to us.
fn external_cpid(account: &Account) -> String {
    md5_hex(format!("{}{}", account.cross_project_id, account.email))
}
