//! Documents that an organisation has signed (R6.10).
//!
//! Who breaks into a coordinator could tell all hosts to attach to a project of his own, and so make them
//! run his programs. Where an organisation keeps a key elsewhere and signs its documents with it, hosts that
//! were given the public part follow nothing else.
//!
//! What is signed is a [`Statement`] about a whole [`DocumentSet`], never a single group: nobody can mix old
//! groups with new ones. Selectors stand inside; each host works out by itself what the set says to it. A
//! statement names the fleet, the content, the content that it may be taken back to, the keys that are good
//! from now on, and two times: when it was signed, by which older ones are told from newer ones, and until
//! when a host may begin to follow it. The reasons are those of J. Samuel, N. Mathewson, J. Cappos and
//! R. Dingledine, "Survivable Key Compromise in Software Update Systems" (2010).
//!
//! Not signed, because coordinators make or learn them later: the number of a version, account keys, and
//! labels that operators give. Who has the coordinator can choose among the groups of what is signed by
//! labels, can hold newer documents back, and can have work credited to another account.

mod key_pair;
mod said;
mod statement;
#[cfg(test)]
mod tests;
mod trust;

use fallow_domain::{AccountKey, DocumentVersion, FleetDocument};
use ring::digest::{SHA256, digest};

pub use key_pair::{KeyPair, KeyPairError};
pub use said::{NotSignable, SaidDifference, said_differences, signable, values_of};
pub use statement::{SIGNED_KEYS_MAX, Statement, StatementError};
pub use trust::{Accepted, NotAccepted, Trust, is_signed_by};

use crate::{ContentHash, DocumentSet};

/// The most that signed documents take, in bytes: more than 256 groups of the usual size.
pub const SIGNED_BYTES_MAX: usize = 2 << 20;

/// A set as it is signed: without its version and without account keys.
///
/// # Errors
/// What the serialisation says, where a value cannot be written.
pub fn signed_form(set: &DocumentSet) -> Result<String, serde_json::Error> {
    let DocumentSet { fleet, groups } = set;
    let mut groups = groups.clone();
    let said = groups.0.values_mut().flat_map(|group| group.projects.values_mut());
    for place in said.filter_map(|project| project.foreign.as_mut()) {
        place.account_key = AccountKey::new("");
    }
    let mut projects = fleet.projects.clone();
    projects.iter_mut().for_each(|project| project.account_key = AccountKey::new(""));
    let preferences = fleet.preferences.clone();
    let fleet = FleetDocument { version: DocumentVersion(0), content: String::new(), projects, preferences };
    serde_json::to_string(&DocumentSet { fleet, groups })
}

/// The name of signed documents: SHA-256 of their text.
#[must_use]
pub fn content_of(documents: &str) -> ContentHash {
    ContentHash::from_bytes(digest(&SHA256, documents.as_bytes()).as_ref())
}
