//! Which host record a request belongs to.
//!
//! **Agents.** An account that was made for an agent of the fleet has one host, whatever number, identity or name the
//! request claims: nobody else has its key. So no number can be stolen, and no agent can be two hosts.
//!
//! **Others** have as many hosts as they like under one account. A host shows its number and a count of its RPCs. A number
//! that is unknown, belongs to another account or comes with a count below the last one (a copy of the data directory
//! is in use twice) is not believed. Nor is one that comes with another identity than the host's own and with a count
//! that runs ahead: BOINC's client takes a new identity when any of its projects gives it a new number, and goes on
//! counting. (BOINC's own server believes the number and the count alone.) Then the host's own identity decides: a host
//! that attaches again gets its record back, and another one a new record. A *copied* host has the identity of the
//! original, so that a low count always makes a new record; the client then makes a new identity of its own. The count is
//! equal in a request that the client's HTTP library repeats, and that is no copy.
//!
//! All hosts of an account are one person's: what one does with another's number harms nobody else, as no two jobs of a
//! workunit go to one account.
//!
//! **Older stores**: agents had the project's own account together. An agent that comes with its own key for the first
//! time takes its record along, if it shows the identity that was registered with the number.

use fallow_boinc::scheduler::SchedulerRequest;
use fallow_domain::{AgentId, Instant};

use crate::printable;
use crate::project::error::ProjectError;
use crate::project::hosted::OWN_ACCOUNT;
use crate::project::keys::Keys;
use crate::project::records::{Account, Counters, Host};
use crate::project::txn::Txn;

/// The most that is kept of a host's name.
const NAME_MAX: usize = 255;
/// RPCs that a client may have begun without our hearing of them.
const AHEAD_MAX: u64 = 100;

/// Finds or makes the host's record. Says also whether the client has to be told its number.
pub(super) fn identify(
    txn: &mut Txn<'_>,
    keys: &Keys,
    request: &SchedulerRequest,
    account: &Account,
    now: Instant,
) -> Result<(Host, bool), ProjectError> {
    match &account.agent {
        Some(agent) => of_agent(txn, keys, request, account, agent, now),
        None => of_others(txn, keys, request, account, now),
    }
}

/// The one host of an agent.
fn of_agent(
    txn: &mut Txn<'_>,
    keys: &Keys,
    request: &SchedulerRequest,
    account: &Account,
    agent: &AgentId,
    now: Instant,
) -> Result<(Host, bool), ProjectError> {
    // As it is now: another request of the same agent may just have made the host.
    let key = keys.account(account.key.reveal());
    let mut account: Account = txn.get("account", &key)?.unwrap_or_else(|| account.clone());
    let known = match account.host {
        0 => inherited(txn, keys, request)?,
        id => txn.get("host", &keys.host(id))?,
    };
    let mut host = match known {
        Some(host) => host,
        None => fresh(txn, keys, account.id, now)?,
    };
    host.account = account.id;
    host.agent = Some(agent.clone());
    if account.host != host.id {
        account.host = host.id;
        txn.put("account", key, &account)?;
    }
    host.cpid.clone_from(&request.host_info.host_cpid);
    let is_told = host.id == request.hostid;
    Ok((seen(host, request, now), !is_told))
}

/// The record of a host that computed for the project's own account until it got its agent's.
fn inherited(
    txn: &mut Txn<'_>,
    keys: &Keys,
    request: &SchedulerRequest,
) -> Result<Option<Host>, ProjectError> {
    let cpid = &request.host_info.host_cpid;
    if request.hostid == 0 || cpid.is_empty() {
        return Ok(None);
    }
    let host: Option<Host> = txn.get("host", &keys.host(request.hostid))?;
    let is_its_own = |host: &Host| host.account == OWN_ACCOUNT && host.agent.is_none() && host.cpid == *cpid;
    let host = host.filter(is_its_own);
    if host.is_some() {
        txn.delete(keys.host_cpid(OWN_ACCOUNT, cpid));
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
    let cpid = &request.host_info.host_cpid;
    let mut is_copy = false;
    if request.hostid != 0 {
        let known: Option<Host> = txn.get("host", &keys.host(request.hostid))?;
        if let Some(host) = known.filter(|host| host.account == account.id) {
            is_copy = request.rpc_seqno < host.rpc_seqno;
            let is_ahead = request.rpc_seqno > host.rpc_seqno.saturating_add(AHEAD_MAX);
            let is_its_own = cpid.is_empty() || host.cpid.is_empty() || *cpid == host.cpid;
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
        cpid: String::new(),
        name: String::new(),
        agent: None,
        created_at: now,
        last_rpc: now,
        rpc_seqno: 0,
        last_request: None,
        ncpus: 1,
        search_from: 0,
        waiting: false,
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
    let info = &request.host_info;
    if host.cpid != info.host_cpid && !info.host_cpid.is_empty() {
        let key = keys.host_cpid(host.account, &info.host_cpid);
        // The identity of a copied host stays with the original.
        if !txn.contains(&key)? {
            txn.put("host identity", key, &host.id)?;
        }
        host.cpid.clone_from(&info.host_cpid);
    }
    Ok(seen(host, request, now))
}

/// Notes what a host says about itself.
fn seen(mut host: Host, request: &SchedulerRequest, now: Instant) -> Host {
    let info = &request.host_info;
    host.name = printable::line(&info.domain_name, NAME_MAX);
    host.ncpus = info.p_ncpus.clamp(1, 4_096);
    host.last_rpc = now;
    host.rpc_seqno = if request.hostid == host.id { request.rpc_seqno } else { 0 };
    host
}
