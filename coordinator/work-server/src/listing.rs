//! Lists for operators, in pages ordered by name.

use std::collections::BTreeMap;
use std::fs;

use fallow_daemon::lock;
use fallow_domain::{AgentId, Duration, Instant};

use super::error::ProjectError;
use super::index;
use super::names::output_name;
use super::operator_types::{
    CanonicalResult, JobReport, JobView, OutputContent, Page, WorkunitStatus, WorkunitView,
};
use super::project::Project;
use super::records::Host;
use super::store_keys::{split_job_name, tail};
use super::txn::{Txn, decode};
use super::workunit::{CopyHistory, Job, Outcome, ServerState, Workunit, WorkunitState};
use crate::printable;

/// The most workunits on a page.
pub const PAGE_MAX: usize = 1_000;
/// Output files on a page of results hold at most this much together, but for a single workunit that holds
/// more.
const PAGE_BYTES: usize = 2 << 20;

impl Project {
    pub(crate) fn list_workunits(
        &self,
        after: Option<&str>,
        limit: usize,
        now: Instant,
    ) -> Result<Page<WorkunitView>, ProjectError> {
        let txn = self.read();
        let limit = page_size(limit);
        let after = after.map(|name| self.keys.workunit(name));
        let mut entries = txn.scan(&self.keys.workunits(), after.as_deref(), limit + 1)?;
        let more = entries.len() > limit;
        entries.truncate(limit);
        let mut hosts = BTreeMap::new();
        let mut items = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let workunit: Workunit = decode("workunit", &key, &value)?;
            items.push(self.view(&txn, &workunit, &mut hosts, now)?);
        }
        Ok(Page { items, more })
    }

    /// All that is known of a job.
    pub(crate) fn job(&self, name: &str, now: Instant) -> Result<JobReport, ProjectError> {
        let unknown = || ProjectError::UnknownJob { project: self.name.clone(), name: name.to_owned() };
        let txn = self.read();
        let (workunit, index) = split_job_name(name).ok_or_else(unknown)?;
        let workunit = index::read(&txn, &self.keys, workunit)?.ok_or_else(unknown)?;
        let job = workunit.jobs.get(index as usize).ok_or_else(unknown)?;
        let view = self.view(&txn, &workunit, &mut BTreeMap::new(), now)?;
        let shown = view.jobs.into_iter().nth(index as usize).ok_or_else(unknown)?;
        Ok(JobReport {
            job: shown,
            workunit: view.name,
            workunit_state: view.state,
            workunit_error: view.error,
            application: view.application,
            command_line: workunit.command_line.clone(),
            version: job.version,
            platform: job.platform.clone(),
            // Stored by an earlier version as it came.
            stderr: printable::lines(&job.stderr, usize::MAX),
        })
    }

    pub(crate) fn list_results(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<CanonicalResult>, ProjectError> {
        let txn = self.read();
        let limit = page_size(limit);
        let prefix = self.keys.all_validated();
        let after = after.map(|name| self.keys.validated(name));
        let mut entries = txn.scan(&prefix, after.as_deref(), limit + 1)?;
        let mut more = entries.len() > limit;
        entries.truncate(limit);
        let mut items = Vec::with_capacity(entries.len());
        let mut bytes = 0;
        for (key, _) in entries {
            let Some(workunit) = index::read(&txn, &self.keys, tail(&key, &prefix))? else { continue };
            let Some(result) = self.canonical(&workunit)? else { continue };
            bytes += result.outputs.iter().map(|output| output.content.len()).sum::<usize>();
            if bytes > PAGE_BYTES && !items.is_empty() {
                more = true;
                break;
            }
            items.push(result);
        }
        Ok(Page { items, more })
    }

    fn view(
        &self,
        txn: &Txn<'_>,
        workunit: &Workunit,
        hosts: &mut BTreeMap<u64, Named>,
        now: Instant,
    ) -> Result<WorkunitView, ProjectError> {
        let (state, error, canonical_job) = match &workunit.state {
            WorkunitState::Active => (WorkunitStatus::Active, String::new(), String::new()),
            WorkunitState::Validated { canonical } => {
                (WorkunitStatus::Validated, String::new(), workunit.job_name(*canonical))
            }
            WorkunitState::Failed { reason } => (WorkunitStatus::Failed, reason.clone(), String::new()),
        };
        let mut jobs = Vec::with_capacity(workunit.jobs.len());
        for job in &workunit.jobs {
            if job.host != 0 && !hosts.contains_key(&job.host) {
                let host: Option<Host> = txn.get("host", &self.keys.host(job.host))?;
                hosts.insert(job.host, host.map(|host| (host.name, host.agent)).unwrap_or_default());
            }
            let host = hosts.get(&job.host).cloned().unwrap_or_default();
            jobs.push(job_view(workunit, job, host));
        }
        let of_agents = hosts_of(workunit).all(|id| hosts.get(&id).is_some_and(|(_, agent)| agent.is_some()));
        if workunit.unsent().is_some() {
            let retry = self.retry_at(workunit, now);
            let (waits_for, copied_hosts) = match retry {
                Some(until) => (format!("its next attempt in {}", in_seconds(until.since(now))), 0),
                None => {
                    let (lacking, copied_hosts) = self.lacking(workunit, now);
                    let waits_for = self.waits_for(workunit, of_agents, lacking.is_empty(), now);
                    (format!("{waits_for}{lacking}"), copied_hosts)
                }
            };
            for job in jobs.iter_mut().filter(|job| job.state == ServerState::Unsent) {
                (job.waits_until, job.waits_for, job.copied_hosts) = (retry, waits_for.clone(), copied_hosts);
            }
        }
        Ok(WorkunitView {
            name: workunit.name.clone(),
            application: workunit.application.clone(),
            state,
            error,
            quorum: workunit.rules.quorum,
            canonical_job,
            jobs,
        })
    }

    /// When a workunit is tried again by whoever asks, if it is put off for all of them: for those alone who
    /// have failed it, while there are others.
    fn retry_at(&self, workunit: &Workunit, now: Instant) -> Option<Instant> {
        let for_all = workunit.retry_at(CopyHistory::None, now);
        for_all.or_else(|| {
            let for_some = workunit.retry_at(CopyHistory::Failed, now)?;
            let others = lock(&self.requesters).counted(workunit).has_others(&workunit.accounts(), now);
            (!others).then_some(for_some)
        })
    }

    /// What is said of a workunit that waits for a quorum of more accounts than there are, and how many hosts
    /// are there that count as one with others.
    fn lacking(&self, workunit: &Workunit, now: Instant) -> (String, u64) {
        let quorum = workunit.rules.quorum as usize;
        if workunit.had().next().is_none() || quorum < 2 || workunit.unsent().is_none() {
            return (String::new(), 0);
        }
        let having = workunit.having().map(|of| workunit.counts_as(of)).collect();
        let mut requesters = lock(&self.requesters);
        let asking = match requesters.counted(workunit).count(&having, now) {
            there if there >= quorum => return (String::new(), 0),
            1 => "1 asks for work".to_owned(),
            there => format!("{there} ask for work"),
        };
        let copied = requesters.uncounted(workunit, now);
        let beside = match copied {
            0 => String::new(),
            1 => " (1 copied host counts as one with another)".to_owned(),
            copied => format!(" ({copied} copied hosts count as one with others)"),
        };
        (format!(": {quorum} needed, {asking}{beside}"), copied as u64)
    }

    /// What an unsent job of the workunit waits for; nothing where those may have it that have failed it. An
    /// agent is its account's only host; where others had a copy, the account is what counts. `is_enough`
    /// says whether there are as many as its quorum needs.
    fn waits_for(&self, workunit: &Workunit, of_agents: bool, is_enough: bool, now: Instant) -> &'static str {
        let had: Vec<&Job> = workunit.jobs.iter().filter(|job| job.host != 0).collect();
        let has_failed = |job: &&Job| job.state == ServerState::Over && job.outcome != Some(Outcome::Success);
        match (had.iter().any(has_failed), of_agents) {
            _ if had.is_empty() => "",
            (true, _) if is_enough && self.is_for_anybody(workunit, &workunit.accounts(), now) => {
                // Of those that may come for it again, the one that failed it most often waits if any does.
                let failed = had.iter().filter(|job| has_failed(job)).map(|job| job.host_account());
                let mut requesters = lock(&self.requesters);
                let there = failed.filter(|of| requesters.knows(of.account, now));
                let most = there.max_by_key(|of| workunit.copies_of(workunit.counts_as(*of)));
                drop(requesters);
                let waits = most.is_some_and(|of| !self.is_for_again(workunit, of, now));
                match (waits, of_agents) {
                    (true, true) => "a host that has failed it less often",
                    (true, false) => "an account that has failed it less often",
                    (false, _) => "",
                }
            }
            (true, true) => "a host that has not failed it",
            (true, false) => "an account that has not failed it",
            (false, true) => "another host",
            (false, false) => "another account",
        }
    }

    fn canonical(&self, workunit: &Workunit) -> Result<Option<CanonicalResult>, ProjectError> {
        let WorkunitState::Validated { canonical } = workunit.state else { return Ok(None) };
        let job = workunit.job_name(canonical);
        let mut outputs = Vec::with_capacity(workunit.outputs.len());
        for (position, output) in workunit.outputs.iter().enumerate() {
            let path = self.layout.upload(&output_name(&job, position));
            let content = fs::read(&path).map_err(ProjectError::file("read", &path))?;
            outputs.push(OutputContent { open_name: output.open_name.clone(), content });
        }
        let agreeing_hosts = workunit.agreeing();
        Ok(Some(CanonicalResult { workunit: workunit.name.clone(), job, agreeing_hosts, outputs }))
    }
}

fn page_size(limit: usize) -> usize {
    if limit == 0 { PAGE_MAX } else { limit.min(PAGE_MAX) }
}

/// A time in whole seconds, such as `1m 30s`.
pub(super) fn in_seconds(time: Duration) -> impl std::fmt::Display {
    humantime::format_duration(std::time::Duration::from_secs(time.as_secs_f64().ceil() as u64))
}

/// A host's own name, and the agent on it.
type Named = (String, Option<AgentId>);

/// The hosts that have or had a job of the workunit.
fn hosts_of(workunit: &Workunit) -> impl Iterator<Item = u64> {
    workunit.jobs.iter().map(|job| job.host).filter(|host| *host != 0)
}

fn job_view(workunit: &Workunit, job: &Job, (host_name, agent): Named) -> JobView {
    JobView {
        waits_for: String::new(),
        copied_hosts: 0,
        waits_until: None,
        agent,
        name: workunit.job_name(job.index),
        state: job.state,
        outcome: job.outcome,
        validation: job.validation,
        host_id: job.host,
        host_name,
        sent_at: job.sent_at,
        deadline: job.deadline,
        received_at: job.received_at,
        cpu_time: job.cpu_time,
        exit_status: job.exit_status,
        times_sent: job.times_sent,
    }
}
