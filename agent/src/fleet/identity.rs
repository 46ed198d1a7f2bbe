//! Who the agent is in its fleet (R6.10): its key, its certificate, and what it knows its coordinator by.
//!
//! The key is made here and stays here, in `identity.key`; it is on the disk before anybody hears of it, so
//! that a try to enrol that was cut short is repeated with the same key, and the coordinator knows it again.
//! The rest is in `identity.json`.

use std::path::Path;

use fallow_domain::{AgentId, Duration, Instant, OrganisationKey, from_hex, hex};
use fallow_fleet::Trust;
use fallow_tls::{Address, Fingerprint, HostCertificate, HostKey};
use serde::{Deserialize, Serialize};

use crate::dir::{DataDir, write_atomically};
use crate::error::AgentError;

/// `identity.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Where the coordinator is reached, to be tried in this order.
    pub addresses: Vec<Address>,
    /// The fleet's authority, which the coordinator is known by.
    pub authority: Fingerprint,
    /// Under which the coordinator's own projects are reached; empty as long as it did not say so.
    pub projects_url: String,
    /// Another server may stand there: its certificate may also be one that the web trusts.
    pub projects_behind_proxy: bool,
    /// The certificate, in DER.
    pub certificate: Vec<u8>,
    /// What it says.
    pub says: HostCertificate,
    /// By which keys documents must be signed that the host follows; none where it follows any of its
    /// coordinator's.
    pub trust: Option<Trust>,
}

/// The file as it is written.
#[derive(Serialize, Deserialize)]
struct Stored {
    coordinator: Vec<String>,
    authority: String,
    #[serde(default)]
    projects_url: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    projects_behind_proxy: bool,
    /// For whoever looks: it stands in the certificate.
    agent_id: String,
    /// In DER, as hexadecimal digits.
    certificate: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    organisation: Option<Trust>,
}

impl Identity {
    /// From a certificate that just came.
    ///
    /// # Errors
    /// In words, when it is none, or for another key.
    pub fn new(
        addresses: Vec<Address>,
        authority: Fingerprint,
        certificate: Vec<u8>,
        key: &HostKey,
    ) -> Result<Self, String> {
        let says = HostCertificate::read(&certificate).map_err(|error| error.to_string())?;
        if says.key != key.fingerprint() {
            return Err("the certificate is for another key".to_owned());
        }
        let projects_url = String::new();
        let projects_behind_proxy = false;
        Ok(Self { addresses, authority, projects_url, projects_behind_proxy, certificate, says, trust: None })
    }

    /// The agent's name in its fleet.
    pub fn agent_id(&self) -> &AgentId {
        &self.says.agent
    }

    /// Where the coordinator is, for people.
    pub fn coordinator(&self) -> String {
        self.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    /// How long from now until the certificate is to be renewed: two thirds of its life after it was made,
    /// and no longer than that whatever the clock says.
    pub fn renews_in(&self, now: Instant) -> Duration {
        let after = self.says.renew_after();
        (self.says.made_at() + after - now).max(Duration::ZERO).min(after)
    }

    /// Reads the file; none if there is none.
    ///
    /// # Errors
    /// [`AgentError::Damaged`] for one that cannot be read, or is of an agent from before certificates.
    pub fn read(path: &Path) -> Result<Option<Self>, AgentError> {
        let bad = |why: String| {
            AgentError::damaged(format!(
                "the agent's identity in {} cannot be read ({why}): restore it, or delete it and enrol again with a new token",
                path.display()
            ))
        };
        match std::fs::read(path) {
            Ok(bytes) => Self::parse(&bytes).map(Some).map_err(bad),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(bad(error.to_string())),
        }
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        Self::from_json(serde_json::from_slice(bytes).map_err(|error| error.to_string())?)
    }

    /// From what the file holds.
    pub(super) fn from_json(value: serde_json::Value) -> Result<Self, String> {
        if value.get("agent_secret").is_some() {
            return Err("it is of an earlier version, from before hosts had certificates".to_owned());
        }
        let stored: Stored = serde_json::from_value(value).map_err(|error| error.to_string())?;
        let addresses =
            stored.coordinator.iter().map(|text| text.parse::<Address>()).collect::<Result<Vec<_>, _>>();
        let certificate = from_hex(&stored.certificate).ok_or("its certificate is not hexadecimal")?;
        let says = HostCertificate::read(&certificate).map_err(|error| error.to_string())?;
        Ok(Self {
            addresses: addresses.map_err(|error| error.to_string())?,
            authority: stored
                .authority
                .parse()
                .map_err(|error: fallow_tls::NoFingerprint| error.to_string())?,
            projects_url: stored.projects_url,
            projects_behind_proxy: stored.projects_behind_proxy,
            certificate,
            says,
            trust: stored.organisation,
        })
    }

    /// Writes the file, readable by its owner only.
    ///
    /// # Errors
    /// [`AgentError::System`].
    pub fn write(&self, path: &Path) -> Result<(), AgentError> {
        let fail = |error| unwritable(path, error);
        let text = serde_json::to_vec_pretty(&self.stored()).map_err(|error| fail(error.into()))?;
        // A use of the token is spent, so this must outlive a power cut.
        write_atomically(path, &text, 0o600).map_err(fail)
    }

    /// What the file holds.
    pub(super) fn to_json(&self) -> serde_json::Value {
        // Texts alone: nothing of it can fail.
        serde_json::to_value(self.stored()).unwrap_or_default()
    }

    fn stored(&self) -> Stored {
        Stored {
            coordinator: self.addresses.iter().map(ToString::to_string).collect(),
            authority: self.authority.to_string(),
            projects_url: self.projects_url.clone(),
            projects_behind_proxy: self.projects_behind_proxy,
            agent_id: self.says.agent.0.clone(),
            certificate: hex(&self.certificate),
            organisation: self.trust.clone(),
        }
    }

    /// The host follows what these keys have signed, and nothing else.
    pub fn believe(&mut self, keys: Vec<OrganisationKey>) {
        self.trust = Some(Trust::new(self.authority.to_string(), keys));
    }
}

fn unwritable(path: &Path, error: std::io::Error) -> AgentError {
    let what =
        format!("cannot write {}: check its directory's mode and the space on its volume", path.display());
    AgentError::system(what, error)
}

/// The agent's key; a new one if there is none.
///
/// # Errors
/// [`AgentError`]: it cannot be made, read or written.
pub fn key(dir: &DataDir) -> Result<HostKey, AgentError> {
    if let Some(key) = read_key(dir)? {
        return Ok(key);
    }
    let path = dir.identity_key();
    let fail = |error| unwritable(&path, error);
    let key = HostKey::generate().map_err(|error| fail(std::io::Error::other(error)))?;
    write_atomically(&path, key.to_pem().as_bytes(), 0o600).map_err(fail)?;
    Ok(key)
}

/// The agent's key; none if there is none. It is closed to others if it was not.
///
/// # Errors
/// [`AgentError::Damaged`] for one that cannot be read.
pub(super) fn read_key(dir: &DataDir) -> Result<Option<HostKey>, AgentError> {
    let path = dir.identity_key();
    let bad = |why: String| {
        AgentError::damaged(format!(
            "the agent's key in {} cannot be read ({why}): restore it, or delete it together with identity.json and enrol again with a \
             new token",
            path.display()
        ))
    };
    match std::fs::read_to_string(&path) {
        Ok(pem) => {
            let _ = fallow_daemon::file::close(&path, 0o077).map_err(|error| bad(error.to_string()))?;
            let key = HostKey::from_pem(&pem);
            key.map(Some).map_err(|error| bad(fallow_daemon::causes::line(&error)))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(bad(error.to_string())),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use fallow_tls::Authority;

    pub(crate) fn sample(key: &HostKey) -> Identity {
        let now = Instant::EPOCH + Duration::from_hours(1_000);
        let (authority, ..) = Authority::create(now).unwrap();
        let request = key.certificate_request().unwrap();
        let issued =
            authority.issue_host(&request, &AgentId("01J".into()), now, Duration::from_hours(30)).unwrap();
        let addresses = vec!["lab.example.org:4000".parse().unwrap(), "127.0.0.1:1".parse().unwrap()];
        Identity::new(addresses, authority.fingerprint(), issued.der, key).unwrap()
    }

    #[test]
    fn r6_10_an_identity_comes_back_and_is_for_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("identity.json");
        assert_eq!(Identity::read(&path).unwrap(), None);
        let identity = sample(&HostKey::generate().unwrap());
        // A use of the token is spent by then, whatever a job has put in the way.
        std::fs::create_dir_all(dir.path().join("identity.json.new/deeper")).unwrap();
        identity.write(&path).unwrap();
        assert_eq!(Identity::read(&path).unwrap(), Some(identity));
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn r6_10_a_certificate_for_another_key_is_not_taken() {
        let identity = sample(&HostKey::generate().unwrap());
        let other = HostKey::generate().unwrap();
        let taken = Identity::new(identity.addresses, identity.authority, identity.certificate, &other);
        assert!(taken.unwrap_err().contains("another key"));
    }

    #[test]
    fn r6_10_a_certificate_is_renewed_when_two_thirds_of_its_life_are_over_whatever_the_clock_says() {
        let identity = sample(&HostKey::generate().unwrap());
        let made_at = Instant::EPOCH + Duration::from_hours(1_000);
        let hours = |at: Instant| identity.renews_in(at).as_secs_f64() / 3_600.0;
        assert_eq!((hours(made_at), hours(made_at + Duration::from_hours(15))), (20.0, 5.0));
        // A clock that is far ahead, and one that is far behind.
        assert_eq!((hours(made_at + Duration::from_hours(500)), hours(Instant::EPOCH)), (0.0, 20.0));
    }

    #[test]
    fn an_identity_that_is_none_or_of_an_earlier_version_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("identity.json");
        for (text, said) in [
            ("{", "cannot be read"),
            (r#"{"coordinator":[],"authority":"","agent_id":"","certificate":"zz"}"#, "cannot be read"),
            (r#"{"coordinator":"http://127.0.0.1:1","agent_id":"a","agent_secret":"s"}"#, "earlier version"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = Identity::read(&path).unwrap_err();
            assert!(matches!(error, AgentError::Damaged { .. }), "{text}");
            let shown = error.to_string();
            assert!(shown.contains(said) && shown.contains("enrol again with a new token"), "{shown}");
        }
    }

    #[test]
    fn r6_10_a_key_is_made_once_and_is_for_its_owner_only() {
        let place = tempfile::tempdir().unwrap();
        let dir = DataDir::at(place.path());
        let made = key(&dir).unwrap().fingerprint();
        assert_eq!(key(&dir).unwrap().fingerprint(), made);
        let metadata = std::fs::metadata(dir.identity_key()).unwrap();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777, 0o600);
        std::fs::set_permissions(dir.identity_key(), std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .unwrap();
        key(&dir).unwrap();
        let metadata = std::fs::metadata(dir.identity_key()).unwrap();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777, 0o600);
        std::fs::write(dir.identity_key(), "garbage").unwrap();
        assert!(matches!(key(&dir), Err(AgentError::Damaged { .. })));
    }
}
