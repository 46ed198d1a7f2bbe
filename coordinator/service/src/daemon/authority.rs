//! The fleet's certificate authority in the coordinator's directory, and the certificate that its ports show
//! (R6.10).
//!
//! `authority.key` is what makes somebody the coordinator of this fleet; it holds the certificate, too, so
//! that neither is lost without the other. `authority.pem` is the certificate alone, which is public: whoever
//! wants to trust the coordinator's certificate gets it. An administrator who has an authority for the fleet
//! already puts both files there before the first start. Which authority it is stands in the store: another
//! one would be another fleet's, and no host would trust it.

use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use fallow_daemon::{clock, file};
use fallow_store::{Batch, Format, Store, StoreError, no_migration};
use fallow_tls::{Address, Authority, CoordinatorCertificate};
use tokio::sync::watch;
use tokio::time::sleep;

use super::StartError;

/// Its certificate.
pub(super) const CERTIFICATE: &str = "authority.pem";
/// Its key.
pub(super) const KEY: &str = "authority.key";

/// In the store: which authority this fleet has.
const FORMAT: Format = Format { name: "authority", version: 1, migrate: no_migration };
const STORED: &[u8] = b"daemon/authority";
/// What a certificate begins with in PEM.
const BEGIN_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

/// Reads the authority, or makes it at the first start.
///
/// # Errors
/// [`StartError`] for files that are missing, damaged, or of another authority than the store names.
pub(super) fn open_or_create(dir: &Path, store: &dyn Store) -> Result<Authority, StartError> {
    let stored = stored(store)?;
    let authority = read(dir, stored.is_none())?;
    let fingerprint = authority.fingerprint().to_string();
    match stored {
        Some(stored) if stored != fingerprint => {
            Err(StartError::OtherAuthority { certificate: dir.join(CERTIFICATE), key: dir.join(KEY) })
        }
        Some(_) => Ok(authority),
        None => {
            let batch = Batch::new().put(STORED, FORMAT.write(STORED, &fingerprint)?);
            let _ = store.apply_durable(batch)?;
            Ok(authority)
        }
    }
}

/// The fingerprint of the authority that a coordinator's store names; none in a new one.
pub(super) fn stored(store: &dyn Store) -> Result<Option<String>, StoreError> {
    store.get(STORED)?.map(|value| FORMAT.read(STORED, &value)).transpose()
}

/// The fingerprint of the authority whose files are in a coordinator's directory; none where there are none,
/// or they are damaged.
pub(super) fn fingerprint(dir: &Path) -> Option<String> {
    read(dir, false).ok().map(|authority| authority.fingerprint().to_string())
}

fn read(dir: &Path, may_create: bool) -> Result<Authority, StartError> {
    let (certificate, key) = (dir.join(CERTIFICATE), dir.join(KEY));
    let fail = |source| StartError::Directory { dir: dir.to_path_buf(), source };
    let text = |path: &Path| match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(fail(error)),
    };
    let Some(secret) = text(&key)? else {
        if !may_create || certificate.exists() {
            return Err(StartError::AuthorityMissing { missing: key });
        }
        let (authority, pem, secret) = Authority::create(clock::now()).map_err(StartError::Tls)?;
        file::write_whole(&key, format!("{secret}{pem}").as_bytes(), 0o600).map_err(fail)?;
        file::write_whole(&certificate, pem.as_bytes(), 0o644).map_err(fail)?;
        return Ok(authority);
    };
    let _ = file::close(&key, 0o077).map_err(fail)?;
    let pem = match (text(&certificate)?, secret.find(BEGIN_CERTIFICATE)) {
        (Some(pem), _) => pem,
        (None, Some(begin)) => {
            let pem = secret.get(begin..).unwrap_or_default().to_owned();
            file::write_whole(&certificate, pem.as_bytes(), 0o644).map_err(fail)?;
            pem
        }
        (None, None) => return Err(StartError::AuthorityMissing { missing: certificate }),
    };
    Authority::from_pem(&pem, &secret).map_err(|source| StartError::Authority { certificate, key, source })
}

/// Where agents and operators' tools reach the coordinator: where it says that it is, or else where it
/// listens.
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

/// Renews the certificate of the ports in time, for as long as the coordinator runs. That is looked for now
/// and then and not waited for: a clock that is set, or a machine that slept, makes it due.
pub(super) async fn keep_valid(
    certificate: Arc<CoordinatorCertificate>,
    issuer: Arc<crate::fleet::Issuer>,
    names: Vec<String>,
    mut stop: watch::Receiver<bool>,
) {
    let life = std::time::Duration::from(issuer.life);
    let look = (life / 30).clamp(std::time::Duration::from_millis(100), std::time::Duration::from_secs(60));
    loop {
        tokio::select! {
            () = sleep(look) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        if !certificate.is_due(clock::now(), issuer.life) {
            continue;
        }
        match certificate.renew(&issuer.authority, &names, clock::now(), issuer.life) {
            Ok(()) => tracing::info!("the certificate of the coordinator's ports was renewed"),
            Err(error) => {
                let error = fallow_daemon::causes::line(&error);
                tracing::error!(
                    error,
                    "the certificate of the coordinator's ports cannot be renewed; trying again"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fallow_store::SledStore;

    fn store(dir: &Path) -> SledStore {
        SledStore::open(dir.join("store")).unwrap()
    }

    #[test]
    fn r6_10_the_authority_is_made_once_and_its_key_is_for_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let made = open_or_create(dir.path(), &store).unwrap().fingerprint();
        assert_eq!(open_or_create(dir.path(), &store).unwrap().fingerprint(), made);
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &fs::metadata(dir.path().join(KEY)).unwrap().permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
        // The public file comes back by itself.
        fs::remove_file(dir.path().join(CERTIFICATE)).unwrap();
        assert_eq!(open_or_create(dir.path(), &store).unwrap().fingerprint(), made);
        assert!(dir.path().join(CERTIFICATE).exists());
    }

    #[test]
    fn r6_10_a_fleet_whose_authority_is_gone_or_another_one_is_not_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        open_or_create(dir.path(), &store).unwrap();
        let key = fs::read(dir.path().join(KEY)).unwrap();
        let refused = || {
            let error = open_or_create(dir.path(), &store).unwrap_err();
            assert_eq!(error.exit_code().number(), 7);
            error.to_string()
        };
        fs::remove_file(dir.path().join(KEY)).unwrap();
        assert!(refused().contains("authority.key is missing"));
        fs::remove_file(dir.path().join(CERTIFICATE)).unwrap();
        assert!(refused().contains("authority.key is missing"));
        fs::write(dir.path().join(KEY), "garbage").unwrap();
        assert!(refused().contains("authority.pem is missing"));
        let (_, pem, secret) = Authority::create(clock::now()).unwrap();
        fs::write(dir.path().join(KEY), secret).unwrap();
        assert!(refused().contains("authority.pem is missing"));
        assert!(dir.path().join(KEY).exists(), "what somebody put there is left alone");
        fs::write(dir.path().join(CERTIFICATE), pem).unwrap();
        assert!(refused().contains("another authority"));
        fs::write(dir.path().join(KEY), &key).unwrap();
        assert!(refused().contains("are not the certificate and the key"));
        fs::remove_file(dir.path().join(CERTIFICATE)).unwrap();
        open_or_create(dir.path(), &store).unwrap();
    }

    #[test]
    fn r6_10_an_administrators_own_authority_is_taken_at_the_first_start() {
        let dir = tempfile::tempdir().unwrap();
        let (theirs, pem, secret) = Authority::create(clock::now()).unwrap();
        fs::write(dir.path().join(CERTIFICATE), pem).unwrap();
        // Keys of tools come in several forms.
        let other = "-----BEGIN EC PRIVATE KEY-----\nMA==\n-----END EC PRIVATE KEY-----\n";
        fs::write(dir.path().join(KEY), other).unwrap();
        let refused = open_or_create(dir.path(), &store(dir.path())).unwrap_err().to_string();
        assert!(refused.contains("openssl pkcs8 -topk8 -nodes"), "{refused}");
        fs::write(dir.path().join(KEY), secret).unwrap();
        let taken = open_or_create(dir.path(), &store(dir.path())).unwrap();
        assert_eq!(taken.fingerprint(), theirs.fingerprint());
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
