//! The scheduler RPC: who asks, what is reported, what is lost, what is sent (BOINC: `cgi`).
//!
//! **Order.** Account, host, reports, jobs that the host has lost or should not have, then new jobs. All of it changes
//! records in one transaction. The reply is written after it: signing upload permissions takes longer than everything
//! else, and needs no lock.
//!
//! **Errors** go to the client as BOINC's servers put them: status 200, a message, and a delay.

mod held;
mod host;
mod reply;
mod report;
mod send;
mod wish;

use fallow_boinc::scheduler::{Message, Priority, SchedulerReply, SchedulerRequest};
use fallow_domain::{Duration, Instant};
use tracing::{debug, info, warn};

use super::error::ProjectError;
use super::hosted::Project;
use super::keys::md5_hex;
use super::records::{Account, Host, Version};
use super::workunit::Workunit;

/// Version 8.3: what clients take our replies to be like. Newer features depend on it.
const SCHEDULER_VERSION: u32 = 803;
/// After a request that cannot be read. It may be a network's fault.
const UNREADABLE_DELAY: Duration = Duration::from_mins(10);
/// After a wrong account key: a person has to do something first.
const BAD_KEY_DELAY: Duration = Duration::from_hours(1);
/// After a platform that nobody has heard of.
const PLATFORM_DELAY: Duration = Duration::from_hours(24);

/// A job that goes into the reply.
pub(super) struct SentJob {
    pub(super) workunit: Workunit,
    pub(super) index: u32,
    pub(super) version: Version,
}

/// What a request led to; the reply is made of it.
pub(super) struct Outcome {
    pub(super) host: Host,
    /// The host's record is new to it, or another than it thought.
    pub(super) tell_host_id: bool,
    pub(super) acks: Vec<String>,
    pub(super) aborts: Vec<String>,
    pub(super) aborts_if_not_started: Vec<String>,
    pub(super) jobs: Vec<SentJob>,
    pub(super) messages: Vec<Message>,
    /// Something came to be compared.
    pub(super) to_compare: bool,
}

impl Project {
    /// Answers a request. Says also whether outputs are to be compared now.
    ///
    /// # Errors
    /// Failures of the store, after which the client should try again; whatever is wrong with the request is said in
    /// the reply.
    pub(crate) fn scheduler_rpc(&self, body: &[u8], now: Instant) -> Result<(String, bool), ProjectError> {
        let request = match SchedulerRequest::parse(body) {
            Ok(request) => request,
            Err(problem) => {
                warn!(project = %self.name, error = &problem as &dyn std::error::Error, "a scheduler request cannot be read");
                return Ok((self.refusal(problem.to_string(), UNREADABLE_DELAY), false));
            }
        };
        let key = self.keys.account(request.authenticator.reveal());
        let account: Option<Account> = self.read().get("account", &key)?;
        let Some(account) = account else {
            let text = "Invalid or missing account key. To fix, remove and add this project.";
            return Ok((self.refusal(text.to_owned(), BAD_KEY_DELAY), false));
        };
        if !reply::is_known_platform(&request, &self.catalog()) {
            let text = format!("This project does not support computers of type {}", request.platform_name);
            return Ok((self.refusal(text, PLATFORM_DELAY), false));
        }
        let outcome = self.carry_out(&request, &account, now)?;
        self.log(&request, &outcome);
        let to_compare = outcome.to_compare;
        Ok((reply::write(self, &request, &account, outcome, now)?, to_compare))
    }

    /// All that a request changes, in one transaction; durable if something was acknowledged.
    fn carry_out(
        &self,
        request: &SchedulerRequest,
        account: &Account,
        now: Instant,
    ) -> Result<Outcome, ProjectError> {
        let outcome = self.transact(|txn| {
            let (host, tell_host_id) = host::identify(txn, &self.keys, request, account, now)?;
            let mut outcome = Outcome {
                host,
                tell_host_id,
                acks: Vec::new(),
                aborts: Vec::new(),
                aborts_if_not_started: Vec::new(),
                jobs: Vec::new(),
                messages: Vec::new(),
                to_compare: false,
            };
            report::take(self, txn, request, &mut outcome, now)?;
            held::check(self, txn, request, &mut outcome, now)?;
            self.take_file_list(txn, request, outcome.host.id)?;
            send::send(self, txn, request, &mut outcome, now)?;
            txn.put("host", self.keys.host(outcome.host.id), &outcome.host)?;
            Ok(outcome)
        })?;
        // An acknowledged report is forgotten by the client: it must survive here, whatever happens.
        if !outcome.acks.is_empty() {
            self.store.flush()?;
        }
        Ok(outcome)
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

    fn log(&self, request: &SchedulerRequest, outcome: &Outcome) {
        let host = outcome.host.id;
        if outcome.tell_host_id {
            info!(project = %self.name, host, name = %outcome.host.name, before = request.hostid, "host registered");
        }
        for name in &outcome.acks {
            info!(project = %self.name, host, job = %name, "reported");
        }
        for sent in &outcome.jobs {
            info!(project = %self.name, host, job = %sent.workunit.job_name(sent.index), "sent");
        }
        for name in &outcome.aborts {
            info!(project = %self.name, host, job = %name, "told to abort: this host should not have it");
        }
        debug!(
            project = %self.name, host, seqno = request.rpc_seqno, wanted_secs = request.cpu_req_secs,
            wanted_instances = request.cpu_req_instances, sent = outcome.jobs.len(), "scheduler RPC"
        );
    }
}

/// A message for the event log of the client.
fn note(text: impl Into<String>) -> Message {
    Message { priority: Priority::Low, text: text.into() }
}

/// Floating-point operations per second of one of the host's CPUs: what it measured, or BOINC's assumption before that.
fn speed(request: &SchedulerRequest) -> f64 {
    let measured = request.host_info.p_fpops;
    if measured.is_finite() && measured > 0.0 { measured } else { 1e9 }
}

/// A host's identity for others: they must not learn the one that it shows to us.
fn external_cpid(account: &Account) -> String {
    md5_hex(format!("{}{}", account.cross_project_id, account.email))
}
