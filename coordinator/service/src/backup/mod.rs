//! Backups of a coordinator, and how one is put back in its place (R6.5, R6.9).
//!
//! A backup is one file: a tar archive of all records and of the files that they speak of (`archive.rs`). It
//! is made while the coordinator works, and is of one instant ([`make`]): records are copied while others
//! write (`fallow_store`'s copy), and no file of a project is removed until its own are in.
//!
//! A backup is put back in two steps, so that a crash at any time leaves the old state or the new one:
//!
//! 1. It is unpacked into `restored/` in the coordinator's directory, and is whole when the file
//!    `unpacked.json` is there ([`unpack`]). Nothing else is touched; a coordinator may be at work. Nothing
//!    follows from it by itself: whoever may put a backup back says so then ([`arm`]), and that file becomes
//!    `complete.json`. Where he does not, it is of no effect.
//! 2. Before the coordinator starts the next time, what is there gives way to it ([`settle`]): it is moved
//!    to `replaced-` and its id, and nothing is deleted. If it turns out to be unusable before anything was
//!    moved, the coordinator goes on with what is there. What has happened to the fleet's identities since
//!    the backup holds on (hosts, tokens, operators, the audit log), as far as the old records can be read:
//!    who was taken out of the fleet does not come back. Documents begin a new term: agents that follow a
//!    newer version than the backup's take what this coordinator says from then on.
//!
//! Omitted: a backup has no passphrase. It holds the fleet's keys, as the directory does; its file is for its
//! owner only.

mod archive;
mod error;
mod make;
mod settle;
mod unpack;

pub use error::BackupError;
pub use make::{Source, make};
pub(crate) use settle::next_term;
pub use settle::{Settled, replaced, settle};
pub use unpack::{Pending, Restored, arm, disarm, pending, unpack};

/// Where a backup lies that is to take the coordinator's place.
const RESTORED: &str = "restored";
/// In there: it is whole.
const UNPACKED: &str = "unpacked.json";
/// In there: it is to take the coordinator's place.
const COMPLETE: &str = "complete.json";
/// What a backup has of a coordinator's directory, besides its store. `daemon.json` is of a process.
const FILES: &[&str] = &["authority.key", "authority.pem", "operator.token", "instance"];
/// The projects' directories.
const PROJECTS: &str = "projects";
/// The store.
const STORE: &str = "store";
