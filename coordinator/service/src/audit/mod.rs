//! The audit log: what operators did, which hosts joined, and who was refused, as a chain that shows when it
//! was changed (R6.5, R6.10).
//!
//! - [`record`]: what is said of one deed. [`chain`]: the entries and how each holds the one before it, pure.
//! - [`refusals`]: how many refusals are recorded, pure. [`log`]: entries in the store.
//!
//! A change that the fleet or the documents make is stored in one batch with its entry. What a hosted project
//! stores by itself (its making, its settings, versions of applications, submissions) is recorded right after
//! it, also for good, before the operator is answered: a coordinator that is killed between the two, or has
//! no space left then, has done something that is not in the log.
//!
//! Bounds: nothing is ever removed. The log grows by one entry of at most some kilobytes with each change of
//! an operator and each host that enrols, which an operator's token permits; and by so many refusals an hour
//! ([`refusals::AN_HOUR`]), whoever asks how often. How many were not recorded is in memory until the next
//! one is: a restart forgets it.
//!
//! Omitted: a seal against whoever can write the coordinator's store. He can make a whole chain anew; who
//! keeps the hash of an entry elsewhere (`fallow audit --check` prints it) can tell.

pub mod chain;
pub mod log;
pub mod record;
pub mod refusals;
pub mod wire;

pub use chain::{Chain, ChainBroken, Entry, Head};
pub use log::{AuditLog, apply};
pub use record::{Action, Actor, Outcome, Record};
