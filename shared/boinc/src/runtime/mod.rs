//! How a client and the application it runs talk: the channel in shared memory, and the small files of a
//! slot.
//!
//! Model: both ends stand on this module. The agent plays the client, the application library plays the
//! application; each brings the files and the shared memory, and this module says what the bytes mean. All of
//! it comes from another process and is untrusted: what cannot be read is absent, never a panic.
//!
//! Left out: SysV shared memory (`api_version` below 6.0), graphics requests, and the `boinc_task_state.xml`
//! of a client, which is private to each client (the agent keeps that in its store).

pub mod channel;
pub mod control;
pub mod exit;
pub mod files;
pub mod finish;
pub mod init_data;
pub mod message;
pub mod slot_names;
pub mod softlink;
mod text;
