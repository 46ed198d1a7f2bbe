//! Who the agent is in its fleet, and how it became that: enrolment by a token that works once.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use fallow_daemon::causes;
use fallow_proto::fleet::v1::fleet_client::FleetClient;
use fallow_proto::fleet::v1::{EnrollReply, EnrollRequest};
use rand::SeedableRng;
use serde::{Deserialize, Serialize};
use tonic::Code;
use tonic::transport::Endpoint;

use super::backoff::Backoff;
use crate::dir::write_atomically;
use crate::error::AgentError;

/// How long a new agent waits for a coordinator that is just starting.
const PATIENCE: Duration = Duration::from_secs(15);

/// `identity.json`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Where the coordinator is.
    pub coordinator: String,
    /// The agent's name in its fleet.
    pub agent_id: String,
    /// Proves that it is this agent. A secret.
    agent_secret: String,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity")
            .field("coordinator", &self.coordinator)
            .field("agent_id", &self.agent_id)
            .finish_non_exhaustive()
    }
}

impl Identity {
    /// The secret itself, for the wire only.
    pub(super) fn secret(&self) -> &str {
        &self.agent_secret
    }

    /// Reads the file; none if there is none.
    ///
    /// # Errors
    /// [`AgentError::Damaged`] for one that cannot be read, [`AgentError::BadInput`] for an address elsewhere
    /// in it.
    pub fn read(path: &Path) -> Result<Option<Self>, AgentError> {
        let bad = |why: String| {
            AgentError::damaged(format!(
                "the agent's identity in {} cannot be read ({why}): restore it, or delete it and enrol again with a new token",
                path.display()
            ))
        };
        match std::fs::read(path) {
            Ok(bytes) => {
                let identity: Self =
                    serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
                // Somebody may have edited it.
                crate::address::coordinator(&identity.coordinator)?;
                Ok(Some(identity))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(bad(error.to_string())),
        }
    }

    /// Writes the file, readable by its owner only.
    ///
    /// # Errors
    /// [`AgentError::System`].
    pub fn write(&self, path: &Path) -> Result<(), AgentError> {
        let fail = |error| AgentError::system(format!("cannot write {}", path.display()), error);
        let text = serde_json::to_vec_pretty(self).map_err(|error| fail(error.into()))?;
        // The token is spent, so this must outlive a power cut.
        write_atomically(path, &text, 0o600).map_err(fail)
    }

    /// Trades a token for an identity.
    ///
    /// # Errors
    /// [`AgentError::Unreachable`] when no coordinator answers for fifteen seconds, or something else does;
    /// [`AgentError::Refused`] when it does not take the token.
    pub async fn enroll(coordinator: &str, token: &str, hostname: &str) -> Result<Self, AgentError> {
        let endpoint = endpoint(coordinator)?;
        let give_up = Instant::now() + PATIENCE;
        let (mut backoff, mut rng) =
            (Backoff::default(), rand::rngs::StdRng::seed_from_u64(u64::from(std::process::id())));
        let (mut said, mut strange) = (None, false);
        loop {
            let status = match ask(&endpoint, token, hostname).await {
                Ok(reply) => {
                    return Ok(Self {
                        coordinator: coordinator.to_owned(),
                        agent_id: reply.agent_id,
                        agent_secret: reply.agent_secret,
                    });
                }
                Err(status) => status,
            };
            let waits = matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded);
            if is_no_coordinator(&status) {
                // Twice, for a connection may also break because a coordinator ends.
                if strange || Instant::now() >= give_up {
                    return Err(AgentError::unreachable(no_coordinator(coordinator)));
                }
            } else if !waits {
                return Err(AgentError::refused(format!(
                    "the coordinator at {coordinator} did not enrol this agent: {}",
                    status.message()
                )));
            } else if Instant::now() >= give_up {
                return Err(AgentError::unreachable(format!(
                    "the coordinator at {coordinator} does not answer ({}): check that it runs and that the address is right",
                    status.message()
                )));
            }
            strange = !waits;
            if waits && said.as_deref() != Some(status.message()) {
                tracing::info!(
                    coordinator,
                    why = status.message(),
                    "the coordinator does not answer yet; trying for {} s",
                    PATIENCE.as_secs()
                );
                said = Some(status.message().to_owned());
            }
            let left = give_up.saturating_duration_since(Instant::now());
            tokio::time::sleep(backoff.next(&mut rng).min(left)).await;
        }
    }

    /// Sees whether a coordinator answers at the address. False: nobody does, now.
    ///
    /// # Errors
    /// [`AgentError::Unreachable`] when something else answers there.
    pub async fn probe(coordinator: &str) -> Result<bool, AgentError> {
        let endpoint = endpoint(coordinator)?;
        // A coordinator refuses a token that is none.
        let refusal = ask(&endpoint, "", "").await.err();
        match refusal {
            Some(status) if is_no_coordinator(&status) => {
                Err(AgentError::unreachable(no_coordinator(coordinator)))
            }
            Some(status) => Ok(!matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded)),
            None => Ok(true),
        }
    }
}

async fn ask(endpoint: &Endpoint, token: &str, hostname: &str) -> Result<EnrollReply, tonic::Status> {
    let channel =
        endpoint.connect().await.map_err(|error| tonic::Status::unavailable(causes::line(&error)))?;
    let request = EnrollRequest {
        token: token.to_owned(),
        hostname: hostname.to_owned(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    answered(FleetClient::new(channel).enroll(request)).await.map(tonic::Response::into_inner)
}

/// Whether what answered the first call speaks something else than gRPC, or serves something else. Only a
/// status that was made on this side has a cause, and one made of a plain HTTP answer says so.
pub(super) fn is_no_coordinator(status: &tonic::Status) -> bool {
    let by_http = || status.message().contains("grpc-status header missing");
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded => false,
        Code::Unknown | Code::Unimplemented => true,
        _ => status.source().is_some() || by_http(),
    }
}

/// What to do about that.
pub(super) fn no_coordinator(address: &str) -> String {
    format!(
        "{address}: something answers there, but it is not a coordinator's gRPC port: a coordinator has another port for its projects; \
         daemon.json in its directory names both, the right one as \"fleet\""
    )
}

/// Waits for an answer, but not for ever: somebody may wait for the agent to start.
async fn answered<T>(call: impl Future<Output = Result<T, tonic::Status>>) -> Result<T, tonic::Status> {
    let silent =
        |_| Err(tonic::Status::deadline_exceeded(format!("no answer within {} s", PATIENCE.as_secs())));
    tokio::time::timeout(PATIENCE, call).await.unwrap_or_else(silent)
}

/// A connection to be made to a coordinator on this machine.
///
/// # Errors
/// [`AgentError`] for an address that is not one.
pub(super) fn endpoint(coordinator: &str) -> Result<Endpoint, AgentError> {
    let address = crate::address::coordinator(coordinator)?;
    let endpoint = Endpoint::from_shared(address).map_err(|error| {
        AgentError::bad_input(format!("the coordinator's address {coordinator:?}: {error}"))
    })?;
    Ok(endpoint
        .connect_timeout(Duration::from_secs(5))
        .tcp_nodelay(true)
        // A coordinator that is gone without a word, as when its machine lost power, is noticed after half a
        // minute.
        .http2_keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(10))
        .keep_alive_while_idle(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_comes_back_and_its_secret_does_not_show() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("identity.json");
        assert_eq!(Identity::read(&path).unwrap(), None);
        let identity = Identity {
            coordinator: "http://127.0.0.1:4000".into(),
            agent_id: "a".into(),
            agent_secret: "hush".into(),
        };
        // The token is spent by then, whatever a job has put in the way.
        std::fs::create_dir_all(dir.path().join("identity.json.new/deeper")).unwrap();
        identity.write(&path).unwrap();
        assert_eq!(Identity::read(&path).unwrap(), Some(identity.clone()));
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600, "for its owner only");
        assert!(!format!("{identity:?}").contains("hush"));
    }

    #[test]
    fn an_identity_that_points_elsewhere_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("identity.json");
        std::fs::write(&path, r#"{"coordinator":"http://10.0.0.1:4000","agent_id":"a","agent_secret":"s"}"#)
            .unwrap();
        assert!(matches!(Identity::read(&path), Err(AgentError::BadInput { .. })));
        std::fs::write(&path, "{").unwrap();
        assert!(matches!(Identity::read(&path), Err(AgentError::Damaged { .. })));
    }
}
