//! The agent: the shell that turns the client on a host.
pub mod clock;
pub mod dir;
pub mod error;
pub mod files;
pub mod guard;
pub mod proc;
pub mod supervise;
pub mod sys;
