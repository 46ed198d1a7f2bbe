//! Where a coordinator is reached.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// A host, by name or number, and a port: `lab.example.org:24001`, `10.0.0.5:24001`, `[fd00::5]:24001`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    host: String,
    port: u16,
}

/// It is no address of a coordinator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the coordinator's address {given:?} {why}: give it as HOST:PORT, such as lab.example.org:24001")]
pub struct AddressError {
    given: String,
    why: &'static str,
}

/// Longest name of a host (RFC 1035).
const NAME_MAX: usize = 253;

impl Address {
    /// The host, a number of IPv6 without its brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    /// `https://` in front and a slash behind are taken for what people copy along.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let given = text.trim();
        let bad = |why| AddressError { given: given.chars().take(100).collect(), why };
        if given.starts_with("http://") {
            return Err(bad("begins with http://, and the fleet's port speaks TLS only"));
        }
        let rest = given.strip_prefix("https://").unwrap_or(given);
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#', '@', ',']) {
            return Err(bad("has more than host and port"));
        }
        let (host, port) = rest.rsplit_once(':').ok_or_else(|| bad("has no port"))?;
        let port = port.bytes().all(|byte| byte.is_ascii_digit()).then(|| port.parse().ok()).flatten();
        let port = port.filter(|&port| port != 0).ok_or_else(|| bad("has no port from 1 to 65535"))?;
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(number) if number.parse::<Ipv6Addr>().is_ok() => number,
            Some(_) => return Err(bad("has no IPv6 number within its brackets")),
            None => host,
        };
        let is_number = host.parse::<Ipv6Addr>().is_ok() && rest.starts_with('[');
        let is_name = !host.is_empty()
            && host.len() <= NAME_MAX
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
        match is_number || is_name {
            true => Ok(Self { host: host.to_ascii_lowercase(), port }),
            false => Err(bad("has no host, by name or number")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_addresses_come_back_as_they_are_written() {
        for (text, shown) in [
            ("lab.example.org:24001", "lab.example.org:24001"),
            (" https://10.0.0.5:1/\n", "10.0.0.5:1"),
            ("[fd00::5]:65535", "[fd00::5]:65535"),
            ("Lab_PC-1:80", "lab_pc-1:80"),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), shown);
        }
        assert_eq!("[::1]:2".parse::<Address>().unwrap().host(), "::1");
    }

    #[test]
    fn r6_10_what_is_no_address_is_refused_with_an_example() {
        for bad in [
            "",
            ":1",
            "host",
            "host:0",
            "host:65536",
            "host:",
            "host:+1",
            "::1:4",
            "[::1]",
            "[x]:1",
            "a b:1",
            "a/b:1",
            "http://10.0.0.1:4000",
            "u@h:1",
            "a,b:1",
            "h:1:2",
        ] {
            let error = bad.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains("such as lab.example.org:24001"), "{bad:?}: {error}");
        }
        assert!("http://h:1".parse::<Address>().unwrap_err().to_string().contains("TLS only"));
    }
}
