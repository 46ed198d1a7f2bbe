//! Accounts: how they are found and created, what a project says about itself, and a client's account files.
//!
//! The calls are `GET`s under the master URL; their replies are small documents that may follow warnings in
//! HTML.

mod config;
mod file;
mod query;
mod reply;

pub use config::{ConfigPlatform, ProjectConfig};
pub use file::{AccountFile, resource_share};
pub use query::{create_query, lookup_query, passwd_hash, percent_escape};
pub use reply::{AccountOut, error_num};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_harm_the_readers(
            start in "(<account_out>|<error>|<project_config>|<account>|<error_num>)?",
            bytes in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let body = [start.as_bytes(), &bytes].concat();
            let _ = AccountOut::parse(&body);
            let _ = ProjectConfig::parse(&body);
            let _ = AccountFile::parse(&body);
            let _ = resource_share(&String::from_utf8_lossy(&body));
            let _ = crate::master::scheduler_urls(&body);
        }
    }
}
