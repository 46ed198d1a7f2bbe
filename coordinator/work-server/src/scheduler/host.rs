//! Which host record a request belongs to.
//!
//! **Agents.** An account that was made for an agent of the fleet has one host, whatever number, identity or
//! name the request claims: nobody else has its key. So no number can be stolen, and no agent can be two
//! hosts.
//!
//! A count below the last one shows that the agent's directory was copied and runs twice, or that an older
//! copy was put back. An equal one shows nothing, as with BOINC's servers: the request was repeated, or the
//! agent's machine lost power before its count was on the disk, and what it was sent then is lost indeed.
//! Both copies stay this one host, so that nothing that either computes is lost. But for a day no job is
//! taken for lost: the copy that did not ask may have it. What is lost indeed is sent again after that, or
//! goes to another host after its deadline.
//!
//! **Others** have as many hosts as they like under one account. A host shows its number and a count of its
//! RPCs. A number that is unknown, belongs to another account or comes with a count below the last one (a
//! copy of the data directory is in use twice) is not believed. Nor is one that comes with another identity
//! than the host's own and with a count that runs ahead: BOINC's client takes a new identity when any of its
//! projects gives it a new number, and goes on counting. (BOINC's own server believes the number and the
//! count alone.) Then the host's own identity decides: a host that attaches again gets its record back, and
//! another one a new record. A *copied* host has the identity of the original, so that a low count always
//! makes a new record; the client then makes a new identity of its own. The count is equal in a request that
//! the client's HTTP library repeats, and that is no copy.
//!
//! All hosts of an account are one person's: what one does with another's number harms nobody else, as
//! results of one account count once towards a quorum.
//!
//! **Older stores**: agents had the project's own account together. An agent that comes with its own key for
//! the first time takes its record along, if it shows the identity that was registered with the number; a
//! copied machine does not, for its disk shows that of the first one. A project that never had such an
//! account leaves nothing to inherit: there the hosts of its own account are other people's.

use fallow_boinc::scheduler::SchedulerRequest;
use fallow_domain::{AgentId, Duration, Instant};
use fallow_policy::send::{TopUps, Trials};
use tracing::warn;

use crate::error::ProjectError;
use crate::host_limits::CPUS_MAX;
use crate::printable;
use crate::project::Project;
use crate::records::{Account, Counters, Host};
use crate::store_keys::Keys;
use crate::txn::Txn;

/// The most that is kept of a host's name.
const NAME_MAX: usize = 255;
/// RPCs that a client may have begun without our hearing of them.
const AHEAD_MAX: u64 = 100;

/// The longest identity of a host: BOINC's have 32 hexadecimal digits.
const IDENTITY_MAX: usize = 64;

/// The host's own identity, empty if it has none. One that no client can have is none.
fn identity(request: &SchedulerRequest) -> &str {
    let cpid = request.host_info.host_cpid.as_str();
    if cpid.len() <= IDENTITY_MAX { cpid } else { "" }
}

/// Finds or makes the host's record, for an account as it is in the store. Says also whether the client
/// has to be told its number.
pub(super) fn identify(
    project: &Project,
    txn: &mut Txn<'_>,
    request: &SchedulerRequest,
    account: &Account,
    now: Instant,
) -> Result<(Host, bool), ProjectError> {
    match &account.agent {
        Some(agent) => of_agent(project, txn, request, (account, agent), now),
        None => of_others(txn, &project.keys, request, account, now),
    }
}

/// The one host of an agent.
fn of_agent(
    project: &Project,
    txn: &mut Txn<'_>,
    request: &SchedulerRequest,
    (account, agent): (&Account, &AgentId),
    now: Instant,
) -> Result<(Host, bool), ProjectError> {
    let keys = &project.keys;
    let known = match account.host {
        // The number and the identity on a copy's disk are the first one's.
        0 if account.voter != 0 => None,
        0 => inherited(project, txn, request)?,
        id => txn.get("host", &keys.host(id))?,
    };
    let mut host = match known {
        Some(host) => host,
        None => fresh(txn, keys, account.id, now)?,
    };
    host.account = account.id;
    host.voter = account.voter;
    host.agent = Some(agent.clone());
    if account.host != host.id {
        let account = Account { host: host.id, ..account.clone() };
        txn.put("account", keys.account(account.key.reveal()), &account)?;
    }
    identity(request).clone_into(&mut host.cpid);
    // A sign of copies that lies ahead is from before the clock was set back: far ahead it says nothing any
    // more, else it counts from now on (and is none of this request's).
    let before = now + Duration::from_micros(-1);
    host.copied_at = host.copied_at.filter(|_| host.is_copied(now)).map(|at| at.min(before));
    let is_told = host.id == request.hostid;
    if is_told && request.rpc_seqno < host.rpc_seqno {
        if !host.is_copied(now) {
            warn_of_copies(project, agent, &host, request);
        }
        host.copied_at = Some(now);
    }
    Ok((seen(host, request, now), !is_told))
}

fn warn_of_copies(project: &Project, agent: &AgentId, host: &Host, request: &SchedulerRequest) {
    warn!(
        project = %project.name, agent = agent.0, host = host.id, name = %host.name, seqno = request.rpc_seqno,
        before = host.rpc_seqno,
        "the agent counts its requests from below where it was: its directory was copied and runs twice, or an older \
         copy of it was put back. Its jobs are not taken for lost for a day. If two run, stop one and enrol it anew \
         in an empty directory, with a token from `fallow tokens create`"
    );
}

/// The record of a host that computed for the project's own account until it got its agent's.
fn inherited(
    project: &Project,
    txn: &mut Txn<'_>,
    request: &SchedulerRequest,
) -> Result<Option<Host>, ProjectError> {
    let keys = &project.keys;
    let cpid = identity(request);
    if request.hostid == 0 || cpid.is_empty() {
        return Ok(None);
    }
    let host: Option<Host> = txn.get("host", &keys.host(request.hostid))?;
    let is_its_own =
        |host: &Host| project.was_shared(host.account) && host.agent.is_none() && host.cpid == cpid;
    let host = host.filter(is_its_own);
    if let Some(host) = &host {
        txn.delete(keys.host_cpid(host.account, cpid));
    }
    Ok(host)
}

/// One of the hosts of anybody else.
fn of_others(
    txn: &mut Txn<'_>,
    keys: &Keys,
    request: &SchedulerRequest,
    account: &Account,
    now: Instant,
) -> Result<(Host, bool), ProjectError> {
    let cpid = identity(request);
    let mut is_copy = false;
    if request.hostid != 0 {
        let known: Option<Host> = txn.get("host", &keys.host(request.hostid))?;
        if let Some(host) = known.filter(|host| host.account == account.id) {
            is_copy = request.rpc_seqno < host.rpc_seqno;
            let is_ahead = request.rpc_seqno > host.rpc_seqno.saturating_add(AHEAD_MAX);
            let is_its_own = cpid.is_empty() || host.cpid.is_empty() || host.cpid == cpid;
            if !is_copy && (is_its_own || !is_ahead) {
                return Ok((refresh(host, txn, keys, request, now)?, false));
            }
        }
    }
    if !is_copy && !cpid.is_empty() {
        let id: Option<u64> = txn.get("host identity", &keys.host_cpid(account.id, cpid))?;
        let known = id.map(|id| txn.get::<Host>("host", &keys.host(id))).transpose()?.flatten();
        if let Some(host) = known.filter(|host| host.account == account.id) {
            // Attached again: it counts from the beginning.
            let told = host.id != request.hostid;
            return Ok((refresh(host, txn, keys, request, now)?, told));
        }
    }
    let host = fresh(txn, keys, account.id, now)?;
    let mut host = refresh(host, txn, keys, request, now)?;
    if is_copy {
        // The client starts counting again once it is told its new number.
        host.rpc_seqno = 0;
    }
    Ok((host, true))
}

fn fresh(txn: &mut Txn<'_>, keys: &Keys, account: u64, now: Instant) -> Result<Host, ProjectError> {
    let mut counters: Counters = txn.get("counters", &keys.counters())?.unwrap_or_default();
    counters.last_host += 1;
    txn.put("counters", keys.counters(), &counters)?;
    Ok(Host {
        id: counters.last_host,
        account,
        voter: 0,
        cpid: String::new(),
        name: String::new(),
        agent: None,
        created_at: now,
        last_rpc: now,
        rpc_seqno: 0,
        last_request: None,
        ncpus: 1,
        told_delay: None,
        search_from: 0,
        waiting: false,
        copied_at: None,
        trials: Trials::default(),
        top_ups: TopUps::default(),
    })
}

/// Notes what a host says about itself, its identity included.
fn refresh(
    mut host: Host,
    txn: &mut Txn<'_>,
    keys: &Keys,
    request: &SchedulerRequest,
    now: Instant,
) -> Result<Host, ProjectError> {
    let cpid = identity(request);
    if host.cpid != cpid && !cpid.is_empty() {
        let key = keys.host_cpid(host.account, cpid);
        // The identity of a copied host stays with the original.
        if !txn.contains(&key)? {
            txn.put("host identity", key, &host.id)?;
        }
        cpid.clone_into(&mut host.cpid);
    }
    Ok(seen(host, request, now))
}

/// Notes what a host says about itself.
fn seen(mut host: Host, request: &SchedulerRequest, now: Instant) -> Host {
    let info = &request.host_info;
    host.name = printable::line(&info.domain_name, NAME_MAX);
    host.ncpus = info.p_ncpus.clamp(1, CPUS_MAX);
    host.last_rpc = now;
    host.rpc_seqno = if request.hostid == host.id { request.rpc_seqno } else { 0 };
    host
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fallow_store::{SledStore, Store};
    use tracing::Level;

    use super::*;
    use crate::scheduler::heard::Heard;
    use crate::settings::ProjectSettings;

    #[test]
    fn r6_8_a_copied_agent_is_warned_of_by_name_once_and_again_after_a_quiet_day() {
        let warnings = Heard::of(Level::WARN);
        let _listening = tracing::subscriber::set_default(warnings.clone());
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SledStore::open(dir.path().join("store")).unwrap());
        let now = Instant::EPOCH + Duration::from_hours(9);
        let (url, settings) = ("http://127.0.0.1:1", ProjectSettings::default());
        let project = Project::create(store, dir.path(), url, "p", settings, None, now).unwrap();
        let key = project.agent_key(&AgentId("the agent".into()), now).unwrap();
        let account = project.account(&key).unwrap().unwrap();
        let mut request = SchedulerRequest { authenticator: key, hostid: 1, ..SchedulerRequest::default() };
        request.platform_name = "x86_64-pc-linux-gnu".into();
        let mut ask = |seqno: u64, cpus: u32, now: Instant| {
            request.rpc_seqno = seqno;
            request.host_info.p_ncpus = cpus;
            project.scheduler_rpc(request.write().as_bytes(), &account, &project.url, now).unwrap();
            let said = warnings.lines();
            assert!(
                said.iter().all(|text| text.contains("the agent") && text.contains("copied")),
                "{said:?}"
            );
            said.len()
        };
        assert_eq!([ask(1, 1, now), ask(2, 1, now), ask(2, 1, now)], [0; 3], "the last one was repeated");
        assert_eq!(ask(2, 4, now), 0, "it lost power before its count was on the disk");
        assert_eq!([ask(1, 4, now), ask(3, 1, now), ask(3, 4, now), ask(1, 4, now)], [1; 4]);
        let later = now + Duration::from_hours(25);
        assert_eq!([ask(2, 4, later), ask(1, 1, later), ask(2, 4, later)], [1, 2, 2]);
    }
}
