//! Addresses of this very machine, which no other machine and no proxy can reach.

use std::net::IpAddr;

/// True for `localhost`, and for `127.0.0.0/8` and `::1` as numbers, the latter in brackets or not: other
/// machines reach nothing there.
#[must_use]
pub fn is_this_host(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_this_machine_are_its_own() {
        for host in ["127.0.0.1", "127.8.0.1", "::1", "[::1]", "::ffff:127.0.0.1", "LocalHost"] {
            assert!(is_this_host(host), "{host}");
        }
        for host in ["", "10.0.0.1", "[::2]", "0.0.0.0", "localhost.example.org", "127.0.0.1.example.org"] {
            assert!(!is_this_host(host), "{host}");
        }
    }
}
