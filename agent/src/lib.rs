//! The agent: the shell that turns the client on a host.
pub mod address;
pub mod clock;
pub mod control;
pub mod dir;
pub mod error;
pub mod files;
pub mod fleet;
pub mod guard;
pub mod host;
pub mod proc;
pub mod records;
pub mod supervise;
pub mod sys;
pub mod transfer;
