//! Where a request goes when a server says that what is asked for lies elsewhere.
//!
//! Model, after the stock client (curl with 301 kept as POST, at most 50 hops):
//!
//! | status | a GET | a POST |
//! | --- | --- | --- |
//! | 301, 302, 307, 308 | goes there | goes there as a POST, with its body |
//! | 303 | goes there | goes there as a GET, without a body |
//!
//! The stock client makes a GET of a POST after a 302 too. No scheduler and no upload handler answers one, so
//! here the body goes along: a project that moves for a time stays reachable.
//!
//! A body holds the account key or a result. It follows within a host, from http to https, and, as with the
//! stock client, to another host; that is said in a notice, for it hands the key to somebody else. It never
//! goes from https to http, where everybody on the way could read it. Another port is another host, but for
//! the move from the usual port of http to that of https.
//!
//! Left out: a memory of permanent moves. Each RPC begins at the URL that the master page gives.

use reqwest::header::{HeaderMap, LOCATION};
use reqwest::{StatusCode, Url};

/// So often a request is sent on (the stock client's figure).
pub(super) const HOPS_MAX: usize = 50;

/// How something is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Post,
}

/// The next place to request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hop {
    pub(super) url: Url,
    pub(super) method: Method,
    /// A body goes to another host.
    pub(super) leaves_host: bool,
}

/// Where an answer sends a request; none when the answer stands.
///
/// # Errors
/// In words, when it sends it where it must not go.
pub(super) fn next(
    from: &Url,
    method: Method,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<Option<Hop>, String> {
    let method = match status.as_u16() {
        301 | 302 | 307 | 308 => method,
        303 => Method::Get,
        _ => return Ok(None),
    };
    let Some(location) = headers.get(LOCATION) else { return Ok(None) };
    let location = String::from_utf8_lossy(location.as_bytes());
    let url = from.join(&location).map_err(|error| format!("it is sent on to what is no URL: {error}"))?;
    match (from.scheme(), url.scheme()) {
        ("https", "http") if method == Method::Post => Err(format!(
            "it is sent on to {url}, without encryption: what goes there holds the account key or a result, and is kept back"
        )),
        (_, "http" | "https") => {
            let leaves_host = method == Method::Post && !is_same_host(from, &url);
            Ok(Some(Hop { url, method, leaves_host }))
        }
        (_, other) => {
            Err(format!("it is sent on to the scheme {other}, and only http and https are supported"))
        }
    }
}

fn is_same_host(one: &Url, other: &Url) -> bool {
    let usual = |url: &Url| url.port().is_none();
    one.host_str() == other.host_str()
        && (one.port_or_known_default() == other.port_or_known_default() || (usual(one) && usual(other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(from: &str, method: Method, status: u16, to: &'static str) -> Result<Option<Hop>, String> {
        let mut headers = HeaderMap::new();
        headers.insert(LOCATION, to.parse().unwrap());
        next(&Url::parse(from).unwrap(), method, StatusCode::from_u16(status).unwrap(), &headers)
    }

    #[test]
    fn a_post_keeps_its_body_but_after_a_303() {
        for (status, method) in [
            (301, Some(Method::Post)),
            (302, Some(Method::Post)),
            (303, Some(Method::Get)),
            (307, Some(Method::Post)),
            (308, Some(Method::Post)),
            (300, None),
            (304, None),
            (200, None),
        ] {
            let hop = after("http://h/cgi", Method::Post, status, "/new").unwrap();
            assert_eq!(hop.as_ref().map(|hop| hop.method), method, "{status}");
            assert!(hop.is_none_or(|hop| hop.url.as_str() == "http://h/new" && !hop.leaves_host), "{status}");
        }
    }

    #[test]
    fn a_move_to_https_on_the_same_host_is_none_to_another_host() {
        for (to, leaves) in [
            ("https://h/cgi", false),
            ("http://h:80/x", false),
            ("https://h:8443/cgi", true),
            ("http://h:81/cgi", true),
            ("http://other/cgi", true),
            ("//h.evil/cgi", true),
        ] {
            let hop = after("http://h/cgi", Method::Post, 301, to).unwrap().unwrap();
            assert_eq!(hop.leaves_host, leaves, "{to}");
        }
        assert!(!after("http://h/f", Method::Get, 301, "http://mirror/f").unwrap().unwrap().leaves_host);
    }

    #[test]
    fn r6_10_a_body_never_goes_from_https_to_http() {
        for status in [301, 302, 307, 308] {
            let error = after("https://h/cgi", Method::Post, status, "http://h/cgi").unwrap_err();
            assert!(error.contains("without encryption"), "{error}");
        }
        // Nothing is given away by these.
        assert!(after("https://h/cgi", Method::Post, 303, "http://h/cgi").is_ok());
        assert!(after("https://h/f", Method::Get, 302, "http://mirror/f").is_ok());
    }

    #[test]
    fn other_schemes_are_refused() {
        assert!(after("http://h/f", Method::Get, 301, "ftp://h/f").is_err());
        assert!(after("http://h/f", Method::Get, 301, "file:///etc/passwd").is_err());
        assert!(after("http://h/f", Method::Get, 301, "http://[").is_err());
    }
}
