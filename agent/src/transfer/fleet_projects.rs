//! HTTP to the projects of the agent's own coordinator (R6.10).
//!
//! Their server shows a certificate of the fleet's authority, which no other server's counts by: the
//! authority is trusted for the one host and port that the coordinator said, and there alone. Where another
//! server may stand in front of them, its certificate may also be one that this host trusts anywhere.

use std::sync::{Arc, RwLock};

use fallow_tls::{Fingerprint, Proxies};
use reqwest::{Client, Url};
use rustls::client::danger::ServerCertVerifier;

use super::pace::Limits;
use super::web;

/// The client for them, as soon as it is known where they are.
#[derive(Clone, Debug)]
pub struct FleetProjects {
    reached: Arc<RwLock<Option<Reached>>>,
    proxies: Proxies,
}

#[derive(Debug)]
struct Reached {
    host: String,
    port: Option<u16>,
    client: Client,
}

impl FleetProjects {
    /// Nobody knows yet where they are. They are reached through these proxies.
    pub(super) fn new(proxies: Proxies) -> Self {
        Self { reached: Arc::default(), proxies }
    }

    /// Takes note of where they are, if that was said.
    pub fn note(&self, url: &str, behind_proxy: bool, authority: Fingerprint) {
        if !url.is_empty()
            && let Err(why) = self.are_at(url, behind_proxy, authority)
        {
            tracing::warn!(
                url,
                why,
                "the coordinator's projects cannot be reached where it says that they are"
            );
        }
    }

    /// They are reached under this URL, with a certificate of this authority. Another URL than one with https
    /// needs no such client.
    ///
    /// # Errors
    /// In words, why they cannot be reached so.
    fn are_at(&self, url: &str, behind_proxy: bool, authority: Fingerprint) -> Result<(), String> {
        let reached = match Url::parse(url) {
            Ok(url) if url.scheme() == "https" => {
                let host = url.host_str().ok_or("it names no host")?.to_owned();
                // A host without CA certificates trusts nobody else.
                let others = behind_proxy.then(of_the_web).transpose().unwrap_or_else(|error| {
                    tracing::warn!(%error, "no CA certificates on this host: only the fleet's authority is trusted");
                    None
                });
                let config = fallow_tls::web_config(authority, others).map_err(|error| error.to_string())?;
                let builder = web::client(Limits::default(), &self.proxies).tls_backend_preconfigured(config);
                let client = builder.build().map_err(|error| error.to_string())?;
                Some(Reached { host, port: url.port_or_known_default(), client })
            }
            Ok(_) => None,
            Err(error) => return Err(error.to_string()),
        };
        *fallow_daemon::write(&self.reached) = reached;
        Ok(())
    }

    /// The client for a URL, if it is one of theirs.
    pub(super) fn client(&self, url: &Url) -> Option<Client> {
        let reached = fallow_daemon::read(&self.reached);
        let reached = reached.as_ref()?;
        let is_theirs = url.scheme() == "https"
            && url.host_str() == Some(reached.host.as_str())
            && url.port_or_known_default() == reached.port;
        is_theirs.then(|| reached.client.clone())
    }
}

/// Judges certificates as for any other server.
fn of_the_web() -> Result<Arc<dyn ServerCertVerifier>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(Arc::new(rustls_platform_verifier::Verifier::new(provider)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_the_fleets_authority_is_trusted_for_its_coordinators_projects_and_for_nobody_else() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let projects = FleetProjects::new(Proxies::default());
        let authority = Fingerprint::of(b"authority");
        let is_theirs = |url: &str| projects.client(&Url::parse(url).unwrap()).is_some();
        assert!(!is_theirs("https://lab.example.org:24002/primes/"));
        projects.are_at("https://lab.example.org:24002", false, authority).unwrap();
        assert!(is_theirs("https://lab.example.org:24002/primes/cgi"));
        for other in [
            "https://lab.example.org/primes/",
            "http://lab.example.org:24002/primes/",
            "https://lab.example.org:24003/",
            "https://other.example.org:24002/",
        ] {
            assert!(!is_theirs(other), "{other}");
        }
        projects.are_at("http://127.0.0.1:24002", false, authority).unwrap();
        assert!(!is_theirs("https://lab.example.org:24002/primes/cgi"), "they have moved");
        assert!(projects.are_at("nonsense", false, authority).is_err());
    }
}
