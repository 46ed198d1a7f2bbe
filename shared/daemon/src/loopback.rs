//! Addresses of this very machine. Until there is mutual TLS nothing is said to any other (R6.10).

use std::net::IpAddr;

/// True for `127.0.0.0/8` and `::1` as numbers, the latter in brackets or not.
pub fn is_address(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The same, and true for `localhost`.
pub fn is_this_host(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || is_address(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_only_addresses_of_this_machine_are_loopback() {
        for host in ["127.0.0.1", "127.8.0.1", "::1", "[::1]"] {
            assert!(is_address(host) && is_this_host(host), "{host}");
        }
        assert!(is_this_host("LocalHost") && !is_address("localhost"));
        for host in ["", "10.0.0.1", "[::2]", "0.0.0.0", "localhost.example.org", "127.0.0.1.example.org"] {
            assert!(!is_this_host(host), "{host}");
        }
    }
}
