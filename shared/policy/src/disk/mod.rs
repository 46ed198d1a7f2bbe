//! Disk space: whose files may stay, whose go, in which order and why (R4; BOINC's design note on the
//! management of disk space).
//!
//! The owner's preferences and a measurement of the volume give one total limit ([`TotalLimit`], R4.1). What
//! the agent itself does not use of it is divided among projects by share (R4.2). A project may use more than
//! its part while others leave theirs. It is then an *offender*, and its files are the first to be deleted
//! (R4.3).
//!
//! [`DiskUse`] is the state. The caller tells it of every change: a file came, was used, grew or went; a job
//! came, ran or ended; a volume was measured. It keeps sums and orders by file, so the cost of an answer
//! grows with what the answer contains and not with what the disk holds. The state is derived: it is built
//! anew after a restart. The questions are:
//!
//! - may this file come, and what goes for it? [`DiskUse::admit`], R4.4;
//! - is the owner's limit exceeded, and what is to be done? [`DiskUse::shrink`], R4.8;
//! - what does the project's server have to know? [`DiskUse::report`], R4.9.
//!
//! Answers are plans, and every step says its reason (R4.13). A plan that cannot succeed names no deletion
//! (R4.4). Nothing here deletes: the shell carries a plan out and tells the state what happened.
//!
//! Beside it: [`passes`], the server's use of the three amounts (R4.10); [`reconcile`], what to believe after
//! a crash (R4.12); [`holders`], the server's knowledge of which host holds which file (R4.11).
//!
//! # Where that note leaves a choice
//! - *Levels rule.* Only files up to a priority that is raised step by step may be deleted (R4.4), for every
//!   project. The order that a project chose (R4.6) rules within a level.
//! - *Lesser offenders are safe.* No project takes from one that exceeds its limit by less than itself does;
//!   an offender that gives way to it stops losing when it has become the lesser one.
//! - *Files without bytes* are never deleted for room: nothing would be gained.
//!
//! The agent carries such plans out (`disk_edit.rs` in `shared/client`, `engine/disk` in `agent`); the work
//! server uses [`passes`] and [`holders`]. While an agent can store nothing at all, it gives files up by
//! simpler rules of its own (`room.rs` in `shared/client`).
//!
//! Not in here: walking real folders, deleting, and what a file system's blocks add to the sizes of files.

mod admit;
mod changes;
mod deletion_plan;
mod file;
#[cfg(test)]
mod histories;
pub mod holders;
mod limit;
#[cfg(test)]
mod model;
mod order;
pub mod passes;
#[cfg(test)]
mod properties;
mod reason;
pub mod reconcile;
mod report;
mod shrink;
mod sizes;
#[cfg(test)]
mod tests;
mod usage;

pub use admit::{Admission, WhyNotAdmitted};
pub use changes::DiskJob;
pub use file::{FileAttributes, FileId, Hold, JobStage, Priority, Protection};
pub use limit::{BIG_WRITE, Bound, MEASURE_PERIOD, MeasureReason, OwnerDisk, TotalLimit, Volume};
pub use order::{DeletionChoice, WhyNext};
pub use reason::{Deletion, DeletionRule, ReturnedJob};
pub use report::DiskReport;
pub use shrink::{DiskSuspension, ShrinkPlan, ShrinkStep};
pub use usage::DiskUse;
