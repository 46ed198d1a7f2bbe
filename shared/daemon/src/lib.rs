//! What every process of Fallow needs of the machine that it runs on, once for all of them.
//!
//! The lock that makes a directory one process's own, the file by which a daemon is found, files that are
//! there whole or not at all, what the kernel says of processes, the clock, freed memory, and an error's text
//! with its causes. Agent, coordinator, store and applications each have their own rules about what they do
//! with it.
//!
//! An exception in `shared/`: this room is about files, processes and the clock, and waits for a lock for a
//! bounded time. It opens no sockets, starts no threads and knows no async runtime; its calls block. Pure
//! rooms do not build on it.

pub mod causes;
pub mod clock;
#[cfg(feature = "daemon-file")]
mod daemon_file;
pub mod file;
pub mod file_lock;
#[cfg(feature = "memory")]
mod memory;
mod mutex;
pub mod proc;

#[cfg(feature = "daemon-file")]
pub use daemon_file::DaemonFile;
#[cfg(feature = "memory")]
pub use memory::give_back_memory;
pub use mutex::{lock, read, write};
pub use proc::ProcessId;
