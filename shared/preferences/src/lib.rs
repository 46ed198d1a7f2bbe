//! Which preferences are in force on a host, where each of them comes from, and what was overruled (R6.4).
//!
//! Model: a source ([`Source`]) says some preferences ([`Said`]). Sources stand in one order, and each of
//! them either *says* (what it says takes the place of what was said before) or *limits* (it only tightens:
//! what would loosen is not taken). [`in_force`] goes through them once and keeps, for every preference, the
//! value, where it comes from and what gave way.
//!
//! The order, which `docs/preferences.md` has for users:
//!
//! 1. the defaults;
//! 2. what a user set on a project's web site, as it holds at the host's venue; of several projects that
//!    which was edited last; not where a coordinator's document is followed;
//! 3. the document, whole;
//! 4. `global_prefs_override.xml`: without a document it says, beside one it limits;
//! 5. `cc_config.xml`, of which the options are read that have a preference here;
//! 6. the owner's commands (`fallow-agent suspend`, `exclude`), which limit;
//! 7. the owner's file ([`OwnerFile`]), which limits.
//!
//! Texts and values in, values out: this room opens no file. What hours and people who use the host make of
//! all that is the client's.
#![forbid(unsafe_code)]

mod boinc_file;
mod client_config;
mod explain;
mod keys;
mod merge;
mod owner_file;
mod tighter;

pub use boinc_file::{of_override, of_site};
pub use client_config::client_config;
pub use explain::{Explained, explain};
pub use keys::{KEYS, OWNER_KEYS, Said, Values};
pub use merge::{Entry, InForce, Origin, Other, Outdone, Place, Role, Source, in_force};
pub use owner_file::{OwnerFile, template};
