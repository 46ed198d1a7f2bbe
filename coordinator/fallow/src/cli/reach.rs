//! What is handed out by a coordinator that other machines do not reach is of no use there: that is said when
//! it is made, for later may be too late.

use fallow_tls::{AccessString, Address, Purpose, is_this_host};

use super::warn;

/// Of a token.
pub(super) fn tell_of_token(token: &str, purpose: Purpose) {
    let Ok(token) = AccessString::parse(token, purpose) else { return };
    if let Some(address) = token.addresses.first()
        && token.addresses.iter().all(|address| is_this_host(address.host()))
    {
        warn(&format!(
            "only this machine can use it, for it leads to {address}: for others, start the coordinator with --listen and --advertise \
             first (`fallow coordinator run --help`)"
        ));
    }
}

/// Of a project that was made, by its URL.
pub(super) fn tell_of_project(url: &str) {
    let host = url.split_once("://").and_then(|(_, rest)| rest.split('/').next()?.parse::<Address>().ok());
    if host.is_some_and(|address| is_this_host(address.host())) {
        warn(
            "only this machine reaches it there, and its URL is for good: a fleet on a network begins anew with a coordinator that is \
             started with --http and --advertise (`fallow coordinator run --help`)",
        );
    }
}
