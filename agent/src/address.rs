//! The coordinator's address, and why it has to be one of this very host (R6.10).

use fallow_daemon::loopback;

use crate::error::AgentError;

/// Takes a coordinator's address: `http://` and a literal loopback address with its port, and nothing else.
///
/// # Errors
/// [`AgentError::BadInput`] for what is no such URL, and for an address elsewhere.
pub fn coordinator(url: &str) -> Result<String, AgentError> {
    let given = url.trim();
    let bad = |why: &str| {
        AgentError::bad_input(format!(
            "the coordinator's address {given:?} {why}: give it as http://127.0.0.1:PORT"
        ))
    };
    if given.to_ascii_lowercase().starts_with("https://") {
        return Err(bad("begins with https, which the fleet link does not speak yet"));
    }
    let rest = given.strip_prefix("http://").ok_or_else(|| bad("does not begin with http://"))?;
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains(['/', '?', '#', '@']) {
        return Err(bad("has more than host and port"));
    }
    let (host, port) = authority.rsplit_once(':').ok_or_else(|| bad("has no port"))?;
    if port.parse::<u16>().ok().filter(|&port| port != 0).is_none() {
        return Err(bad("has no port from 1 to 65535"));
    }
    if !loopback::is_address(host) {
        return Err(AgentError::bad_input(format!(
            "the coordinator's address {given} is not on this machine: without mutual TLS, which this version lacks, \
             agents connect to loopback addresses only (127.0.0.0/8 or [::1], as numbers). Use a tunnel that ends here"
        )));
    }
    Ok(format!("http://{authority}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_are_taken() {
        for url in ["http://127.0.0.1:4000", "http://127.3.2.1:1/", "http://[::1]:65535"] {
            assert!(coordinator(url).is_ok(), "{url}");
        }
    }

    /// Shows R6.10.
    #[test]
    fn anything_elsewhere_is_refused_with_the_reason() {
        for url in
            ["http://10.0.0.1:4000", "http://localhost:4000", "http://example.org:80", "http://[::2]:1"]
        {
            let error = coordinator(url).unwrap_err();
            assert!(matches!(error, AgentError::BadInput { .. }), "{url}");
            assert!(error.to_string().contains("mutual TLS"), "{error}");
        }
    }

    #[test]
    fn nonsense_is_bad_input_with_an_example() {
        for url in [
            "",
            "127.0.0.1:4000",
            "https://127.0.0.1:1",
            "http://127.0.0.1",
            "http://127.0.0.1:0",
            "http://a@127.0.0.1:1",
            "http://127.0.0.1:1/x",
        ] {
            let error = coordinator(url).unwrap_err();
            assert!(matches!(error, AgentError::BadInput { .. }), "{url}");
            assert!(error.to_string().contains("http://127.0.0.1:PORT"), "{error}");
        }
    }
}
