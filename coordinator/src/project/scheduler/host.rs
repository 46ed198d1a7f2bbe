//! Which host record a request belongs to.
//!
//! A host shows its number and a count of its RPCs. A number that is unknown, belongs to another account or comes with a
//! count below the last one (a copy of the data directory is in use twice) is not believed. Then the host's own
//! identity decides: a host that attaches again gets its record back, and another one a new record. A *copied* host has
//! the identity of the original, so that a low count always makes a new record; the client then makes a new identity
//! of its own. The count is equal in a request that the client's HTTP library repeats, and that is no copy.

use fallow_boinc::scheduler::SchedulerRequest;
use fallow_domain::Instant;

use crate::project::error::ProjectError;
use crate::project::keys::Keys;
use crate::project::records::{Account, Counters, Host};
use crate::project::txn::Txn;

/// The most that is kept of a host's name.
const NAME_MAX: usize = 255;

/// Finds or makes the host's record. Says also whether the client has to be told its number.
pub(super) fn identify(
    txn: &mut Txn<'_>,
    keys: &Keys,
    request: &SchedulerRequest,
    account: &Account,
    now: Instant,
) -> Result<(Host, bool), ProjectError> {
    let mut is_copy = false;
    if request.hostid != 0 {
        let known: Option<Host> = txn.get("host", &keys.host(request.hostid))?;
        if let Some(host) = known.filter(|host| host.account == account.id) {
            is_copy = request.rpc_seqno < host.rpc_seqno;
            if !is_copy {
                return Ok((refresh(host, txn, keys, request, now)?, false));
            }
        }
    }
    let cpid = &request.host_info.host_cpid;
    if !is_copy && !cpid.is_empty() {
        let id: Option<u64> = txn.get("host identity", &keys.host_cpid(account.id, cpid))?;
        let known = id.map(|id| txn.get::<Host>("host", &keys.host(id))).transpose()?.flatten();
        if let Some(host) = known {
            // Attached again: it counts from the beginning.
            let told = host.id != request.hostid;
            return Ok((refresh(host, txn, keys, request, now)?, told));
        }
    }
    let mut counters: Counters = txn.get("counters", &keys.counters())?.unwrap_or_default();
    counters.last_host += 1;
    txn.put("counters", keys.counters(), &counters)?;
    let host = Host {
        id: counters.last_host,
        account: account.id,
        cpid: String::new(),
        name: String::new(),
        created_at: now,
        last_rpc: now,
        rpc_seqno: 0,
        last_request: None,
        ncpus: 1,
        search_from: 0,
        waiting: false,
    };
    let mut host = refresh(host, txn, keys, request, now)?;
    if is_copy {
        // The client starts counting again once it is told its new number.
        host.rpc_seqno = 0;
    }
    Ok((host, true))
}

/// Notes what the host says about itself.
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
    let name = &info.domain_name;
    host.name = name[..name.floor_char_boundary(NAME_MAX)].to_owned();
    host.ncpus = info.p_ncpus.clamp(1, 4_096);
    host.last_rpc = now;
    host.rpc_seqno = if request.hostid == host.id { request.rpc_seqno } else { 0 };
    Ok(host)
}
