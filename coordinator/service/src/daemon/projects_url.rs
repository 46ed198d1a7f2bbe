//! Under which URL the projects are known, and how they are served (R6.8, R6.10).
//!
//! On loopback that is plain HTTP, as it has been. On any other address TLS is spoken, with a certificate of
//! the fleet's authority, which agents trust. Stock BOINC clients do not, unless its certificate is added to
//! theirs; where they are to attach all the same, plain HTTP is allowed beside it: whoever is on the way can
//! then read and change what these clients say and get, account keys included, but not the programs, which
//! are signed. What a client is told to contact is reached in the same way as it came.

use std::net::SocketAddr;

use fallow_domain::MasterUrl;
use fallow_tls::Address;

use super::StartError;

/// How the projects are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Served {
    /// The URL under which they are known, without a slash at its end.
    pub(super) url: String,
    /// What clients that come without TLS are told instead; none where they are told the same, or refused.
    pub(super) plain_url: Option<String>,
    /// Whether clients may come without TLS.
    pub(super) allows_plain: bool,
    /// A server in front of this process may show a certificate of its own.
    pub(super) behind_proxy: bool,
}

/// What was asked for, and where they are served.
pub(super) struct Wanted<'a> {
    /// The URL that was asked for, or kept from an earlier start.
    pub(super) url: Option<&'a str>,
    /// Where the port listens.
    pub(super) listens: SocketAddr,
    /// Where agents reach the coordinator.
    pub(super) advertised: &'a [Address],
    /// Plain HTTP is allowed on any address.
    pub(super) plain: bool,
    /// Another server stands where the URL leads to. It is said and never guessed: agents trust more there.
    pub(super) behind_proxy: bool,
}

/// Decides it.
///
/// # Errors
/// [`StartError::ProjectsUrl`] for a URL that BOINC clients cannot use.
pub(super) fn served(wanted: &Wanted<'_>) -> Result<Served, StartError> {
    let Wanted { listens, advertised, plain, behind_proxy, .. } = *wanted;
    let port = listens.port();
    let host = || match advertised.first() {
        Some(address) if listens.ip().is_unspecified() => address.host().to_owned(),
        _ if listens.ip().is_unspecified() => {
            rustix::system::uname().nodename().to_string_lossy().to_lowercase()
        }
        _ => listens.ip().to_string(),
    };
    let url = match wanted.url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None if listens.ip().is_loopback() => format!("http://{listens}"),
        None => format!("https://{}:{port}", host()),
    };
    let bad = |why: String| StartError::ProjectsUrl { url: url.clone(), why };
    MasterUrl::parse(&format!("{url}/project/")).map_err(|error| bad(error.to_string()))?;
    if behind_proxy && !url.starts_with("https://") {
        return Err(bad("--projects-behind-proxy is for a URL with https".to_owned()));
    }
    let Some(rest) = url.strip_prefix("https://") else {
        return Ok(Served { url, plain_url: None, allows_plain: true, behind_proxy });
    };
    let name = rest.split(['/', ':']).next().unwrap_or_default();
    let plain_url = plain.then(|| format!("http://{name}:{port}"));
    Ok(Served { plain_url, allows_plain: plain || listens.ip().is_loopback(), behind_proxy, url })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(
        url: Option<&str>,
        listens: &str,
        advertised: &[&str],
        plain: bool,
    ) -> Result<Served, StartError> {
        let advertised: Vec<Address> = advertised.iter().map(|text| text.parse().unwrap()).collect();
        let listens = listens.parse().unwrap();
        served(&Wanted { url, listens, advertised: &advertised, plain, behind_proxy: false })
    }

    #[test]
    fn r6_10_projects_are_served_by_plain_http_on_loopback_and_with_tls_anywhere_else() {
        let loopback = decided(None, "127.0.0.1:8080", &[], false).unwrap();
        assert_eq!((loopback.url.as_str(), loopback.allows_plain), ("http://127.0.0.1:8080", true));
        let lab = decided(None, "10.0.0.5:8080", &[], false).unwrap();
        assert_eq!(
            (lab.url.as_str(), lab.allows_plain, lab.plain_url),
            ("https://10.0.0.5:8080", false, None)
        );
        let any = decided(None, "0.0.0.0:8080", &["lab.example.org:24001"], false).unwrap();
        assert_eq!(any.url, "https://lab.example.org:8080");
    }

    #[test]
    fn r6_10_stock_clients_come_without_tls_only_where_that_is_allowed() {
        let lab = decided(None, "10.0.0.5:8080", &[], true).unwrap();
        assert_eq!((lab.allows_plain, lab.plain_url.as_deref()), (true, Some("http://10.0.0.5:8080")));
    }

    #[test]
    fn r6_8_behind_a_reverse_proxy_projects_are_known_by_its_url() {
        let proxied = decided(Some("https://lab.example.org/boinc/"), "127.0.0.1:8080", &[], false).unwrap();
        assert_eq!((proxied.url.as_str(), proxied.allows_plain), ("https://lab.example.org/boinc", true));
        assert!(!proxied.behind_proxy, "agents trust nobody more unless that is said");
        let behind = |url| {
            let listens = "127.0.0.1:8080".parse().unwrap();
            served(&Wanted { url, listens, advertised: &[], plain: false, behind_proxy: true })
        };
        assert!(behind(Some("https://lab.example.org")).unwrap().behind_proxy);
        for url in [None, Some("http://lab.example.org")] {
            let error = behind(url).unwrap_err().to_string();
            assert!(error.contains("--projects-behind-proxy is for a URL with https"), "{error}");
        }
    }

    #[test]
    fn r6_8_a_url_that_clients_cannot_use_is_refused_with_what_to_do() {
        for bad in ["lab", "https://lab", "ftp://lab.example.org"] {
            let error = decided(Some(bad), "127.0.0.1:1", &[], false).unwrap_err();
            assert_eq!(error.exit_code().number(), 3);
            assert!(error.to_string().contains("--projects-url"), "{error}");
        }
    }
}
