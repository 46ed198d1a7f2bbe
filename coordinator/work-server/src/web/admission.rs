//! What an account may hold of the scheduler: so many requests at once, so many bytes that have come of them.
//!
//! Whoever asks is known before his request is read, so that what he holds is his own part: others are served
//! meanwhile.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use fallow_daemon::lock;

use crate::records::Account;

/// Requests at once of an agent's account: one, and those that its HTTP library gave up and repeated.
const AGENT_REQUESTS: u32 = 4;
/// Of another account, under which there may be many hosts.
pub(super) const OTHER_REQUESTS: u32 = 32;

/// A project's name and the number of an account in it.
type Whose = (String, u64);

/// What accounts hold now.
#[derive(Debug, Default)]
pub(super) struct Admission(Mutex<BTreeMap<Whose, Held>>);

#[derive(Debug, Default)]
struct Held {
    requests: u32,
    bytes: usize,
}

/// An account's place for one request, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    admission: Arc<Admission>,
    whose: Whose,
    bytes: usize,
}

impl Admission {
    /// A place for a request; none if the account has as many as it may.
    pub(super) fn enter(self: &Arc<Self>, project: &str, account: &Account) -> Option<Place> {
        let most = if account.agent.is_some() { AGENT_REQUESTS } else { OTHER_REQUESTS };
        let whose = (project.to_owned(), account.id);
        let mut all = lock(&self.0);
        let held = all.entry(whose.clone()).or_default();
        if held.requests >= most {
            return None;
        }
        held.requests += 1;
        Some(Place { admission: self.clone(), whose, bytes: 0 })
    }
}

impl Place {
    /// So many bytes more have come. Whether all requests of the account together stay within `most`.
    pub(super) fn take(&mut self, bytes: usize, most: usize) -> bool {
        let mut all = lock(&self.admission.0);
        let Some(held) = all.get_mut(&self.whose) else { return false };
        if held.bytes.saturating_add(bytes) > most {
            return false;
        }
        held.bytes += bytes;
        self.bytes += bytes;
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = lock(&self.admission.0);
        let Some(held) = all.get_mut(&self.whose) else { return };
        held.requests -= 1;
        held.bytes -= self.bytes;
        if held.requests == 0 {
            all.remove(&self.whose);
        }
    }
}
