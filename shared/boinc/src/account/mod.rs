//! Accounts: how they are found and created, what a project says about itself, and a client's account files.
//!
//! The calls are `GET`s under the master URL; their replies are small documents that may follow warnings in HTML.

mod config;
mod file;
mod query;
mod reply;

pub use config::{ConfigPlatform, ProjectConfig};
pub use file::{AccountFile, resource_share};
pub(crate) use query::hex;
pub use query::{create_query, lookup_query, passwd_hash, percent_escape};
pub use reply::{AccountOut, error_num};
