//! BOINC's formats: bytes in, typed values out, and back (R6.2).
//!
//! Each module holds one family of messages, for both directions: the agent writes requests and reads
//! replies, a work server reads requests and writes replies, so every message here can be written and read.
//! [`client_state`] and [`app_config`] are only read.
//!
//! Nothing here opens files or sockets, reads clocks or draws random numbers, and nothing decides: what a
//! reply *means* for a client is the client's business. Bad bytes give a [`FormatError`] that names where
//! they are.
//!
//! - [`xml`] · the dialect that all of them are written in.
//! - [`scheduler`] · scheduler request and reply.
//! - [`master`] · the scheduler's URL on a project's master page.
//! - [`account`] · finding and creating accounts, project configuration, account files.
//! - [`transfer`] · uploads.
//! - [`signature`] · code-signing and upload keys.
//! - [`names`] · names that may become files.
//! - [`app_config`] · what a host's owner says of a project's applications.
//! - [`client_state`] · the file in which a stock client keeps its state.
//! - [`runtime`] · what a client and a running application say to each other.
#![forbid(unsafe_code)]

pub mod account;
pub mod app_config;
pub mod client_state;
mod error;
pub mod master;
pub mod names;
pub mod runtime;
pub mod scheduler;
pub mod signature;
pub mod transfer;
pub mod xml;

pub use error::{FormatError, Place};
