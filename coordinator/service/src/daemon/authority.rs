//! The fleet's certificate authority in the coordinator's directory, and the certificate that its ports show
//! (R6.10).
//!
//! `authority.pem` is public: whoever wants to trust the coordinator's certificate gets it. `authority.key` is
//! what makes somebody the coordinator of this fleet. An administrator who has an authority for the fleet already
//! puts both there before the first start.

use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use fallow_daemon::{clock, file};
use fallow_domain::Duration;
use fallow_tls::{Address, Authority, CoordinatorCertificate};
use tokio::sync::watch;
use tokio::time::sleep;

use super::StartError;

/// Its certificate.
pub(super) const CERTIFICATE: &str = "authority.pem";
/// Its key.
pub(super) const KEY: &str = "authority.key";

/// Reads the authority, or makes it at the first start.
pub(super) fn open_or_create(dir: &Path) -> Result<Authority, StartError> {
    let (certificate, key) = (dir.join(CERTIFICATE), dir.join(KEY));
    let fail = |source| StartError::Directory { dir: dir.to_path_buf(), source };
    let read = |path: &Path| match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(fail(error)),
    };
    match (read(&certificate)?, read(&key)?) {
        (Some(pem), Some(secret)) => {
            let _ = file::close(&key, 0o077).map_err(fail)?;
            Authority::from_pem(&pem, &secret).map_err(|source| StartError::Authority {
                certificate,
                key,
                source,
            })
        }
        (None, None) => {
            let (authority, pem, secret) = Authority::create(clock::now()).map_err(StartError::Tls)?;
            // The key first: a certificate without its key is a loss, a key without its certificate is not yet.
            file::write_whole(&key, secret.as_bytes(), 0o600).map_err(fail)?;
            file::write_whole(&certificate, pem.as_bytes(), 0o644).map_err(fail)?;
            Ok(authority)
        }
        (Some(_), None) => Err(StartError::AuthorityMissing { there: certificate, missing: key }),
        (None, Some(_)) => {
            // A first start that was cut short: nobody can have trusted what was never shown.
            fs::remove_file(&key).map_err(fail)?;
            open_or_create(dir)
        }
    }
}

/// Where agents and operators' tools reach the coordinator: where it says that it is, or else where it listens.
pub(super) fn addresses(advertised: &[Address], listens: SocketAddr) -> Vec<Address> {
    if !advertised.is_empty() {
        return advertised.to_vec();
    }
    let at = match listens.ip().is_unspecified() {
        true => format!("{}:{}", rustix::system::uname().nodename().to_string_lossy(), listens.port()),
        false => listens.to_string(),
    };
    // A machine whose name is none is reached by whoever names it with `--advertise`.
    at.parse().ok().or_else(|| format!("127.0.0.1:{}", listens.port()).parse().ok()).into_iter().collect()
}

/// Names and numbers for the coordinator's certificate, for those who look for them there, as browsers do.
pub(super) fn names(addresses: &[Address], listens: &[SocketAddr], projects_url: &str) -> Vec<String> {
    let mut names: Vec<_> = addresses.iter().map(|address| address.host().to_owned()).collect();
    let numbers = listens.iter().map(SocketAddr::ip).filter(|ip| !ip.is_unspecified());
    names.extend(numbers.map(|ip| ip.to_string()));
    let rest = projects_url.split_once("://").map_or(projects_url, |(_, rest)| rest);
    names.extend(rest.split(['/', ':']).next().map(str::to_owned));
    names.extend(["localhost".to_owned(), "127.0.0.1".to_owned()]);
    names.sort();
    names.dedup();
    names
}

/// Renews the certificate of the ports when two thirds of its life are over, for as long as the coordinator runs.
pub(super) async fn keep_valid(
    certificate: Arc<CoordinatorCertificate>,
    issuer: Arc<crate::fleet::Issuer>,
    names: Vec<String>,
    mut stop: watch::Receiver<bool>,
) {
    let mut wait = renew_after(issuer.life);
    loop {
        tokio::select! {
            () = sleep(wait) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        match certificate.renew(&issuer.authority, &names, clock::now(), issuer.life) {
            Ok(()) => {
                tracing::debug!("the certificate of the coordinator's ports was renewed");
                wait = renew_after(issuer.life);
            }
            Err(error) => {
                let error = fallow_daemon::causes::line(&error);
                tracing::error!(
                    error,
                    "the certificate of the coordinator's ports cannot be renewed; trying again"
                );
                wait = renew_after(issuer.life) / 10;
            }
        }
    }
}

fn renew_after(life: Duration) -> std::time::Duration {
    std::time::Duration::from_micros(life.as_micros().max(0).unsigned_abs()) * 2 / 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_the_authority_is_made_once_and_its_key_is_for_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let made = open_or_create(dir.path()).unwrap().fingerprint();
        assert_eq!(open_or_create(dir.path()).unwrap().fingerprint(), made);
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &fs::metadata(dir.path().join(KEY)).unwrap().permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
        fs::remove_file(dir.path().join(KEY)).unwrap();
        let error = open_or_create(dir.path()).unwrap_err();
        assert!(error.to_string().contains("authority.key is missing"), "{error}");
        assert_eq!(error.exit_code().number(), 7);
        fs::write(dir.path().join(KEY), "garbage").unwrap();
        let error = open_or_create(dir.path()).unwrap_err();
        assert!(error.to_string().contains("authority.key"), "{error}");
        assert_eq!(error.exit_code().number(), 7);
    }

    #[test]
    fn r6_10_agents_are_told_where_the_coordinator_says_it_is_or_else_where_it_listens() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let shown = |advertised: &[Address], listens| {
            addresses(advertised, listens).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(&[], at("10.0.0.5:24001")), "10.0.0.5:24001");
        assert_eq!(shown(&[], at("[fd00::5]:1")), "[fd00::5]:1");
        assert!(shown(&[], at("0.0.0.0:24001")).ends_with(":24001"));
        let said = ["lab.example.org:443".parse().unwrap(), "10.0.0.5:24001".parse().unwrap()];
        assert_eq!(shown(&said, at("0.0.0.0:24001")), "lab.example.org:443 10.0.0.5:24001");
    }
}
