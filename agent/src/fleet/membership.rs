//! The agent as a host of its fleet: how it becomes one, connects as one, and keeps its certificate valid
//! (R6.10).

use std::sync::Arc;
use std::time::{Duration, Instant};

use fallow_daemon::causes;
use fallow_fleet::Trust;
use fallow_proto::fleet::v1::fleet_client::FleetClient;
use fallow_proto::fleet::v1::{EnrollReply, EnrollRequest, RenewRequest, SeparateRequest};
use fallow_tls::{
    AccessString, Address, ConnectError, Connector, Dialled, HostCredentials, HostKey, Proxies,
};
use rand::SeedableRng;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::backoff::Backoff;
use super::identity::{self, Identity};
use super::separation;
use crate::dir::DataDir;
use crate::error::AgentError;

/// How long a new agent waits for a coordinator that is just starting, and for an answer to each call.
const PATIENCE: Duration = Duration::from_secs(15);

/// An agent that has enrolled.
#[derive(Clone, Debug)]
pub struct Membership {
    identity: Identity,
    key: Arc<HostKey>,
    /// Shown by every connection that is made from now on.
    credentials: Arc<HostCredentials>,
    connector: Connector,
    dir: DataDir,
}

impl Membership {
    /// Of the agent in this directory, whose identity was read or just came. It connects through these
    /// proxies.
    ///
    /// # Errors
    /// [`AgentError::Damaged`] when its key is not there or another one.
    pub fn new(identity: Identity, dir: &DataDir, proxies: Proxies) -> Result<Self, AgentError> {
        let key = identity::read_key(dir)?.ok_or_else(|| {
            AgentError::damaged(format!(
                "the agent's key {} is missing, and its identity {} is there: restore it from a copy; or delete the identity, too, and \
                 enrol again with a new token",
                dir.identity_key().display(),
                dir.identity().display()
            ))
        })?;
        let misfit = |why: String| {
            AgentError::damaged(format!(
                "the agent's key in {} and its identity in {} do not fit ({why}): restore both from one copy; or delete both and enrol \
                 again with a new token",
                dir.identity_key().display(),
                dir.identity().display()
            ))
        };
        if identity.says.key != key.fingerprint() {
            return Err(misfit("the identity is for another key".to_owned()));
        }
        let credentials = Arc::new(HostCredentials::default());
        let line = |error: fallow_tls::TlsError| misfit(causes::line(&error));
        credentials.replace(&identity.certificate, &key).map_err(line)?;
        let connector = Connector::new(identity.authority, Some(credentials.clone())).map_err(line)?;
        let connector = connector.through(proxies);
        Ok(Self { identity, key: Arc::new(key), credentials, connector, dir: dir.clone() })
    }

    /// Who the agent is.
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Connects to the coordinator.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(&self) -> Result<Dialled, ConnectError> {
        fallow_tls::dial(&self.connector, &self.identity.addresses, &endpoint()).await
    }

    /// Connects to the coordinator at another address, which is kept from then on. False: nobody answers
    /// there now.
    ///
    /// # Errors
    /// [`AgentError`] when something else answers there.
    pub async fn move_to(&mut self, address: Address) -> Result<bool, AgentError> {
        match self.connector.connect(&address).await {
            Ok(_) => {
                self.identity.addresses = vec![address];
                self.identity.write(&self.dir.identity())?;
                Ok(true)
            }
            Err(error) if error.may_pass() => Ok(false),
            Err(error) => Err(of_connect(&error)),
        }
    }

    /// Takes note of where the coordinator's own projects are reached, if that is news.
    ///
    /// # Errors
    /// [`AgentError::System`] when it cannot be stored; it holds all the same.
    pub fn projects_are_at(&mut self, url: &str, behind_proxy: bool) -> Result<(), AgentError> {
        if self.identity.projects_url == url && self.identity.projects_behind_proxy == behind_proxy {
            return Ok(());
        }
        self.identity.projects_behind_proxy = behind_proxy;
        url.clone_into(&mut self.identity.projects_url);
        self.identity.write(&self.dir.identity())
    }

    /// Keeps what the host believes from now on, before it follows documents by it.
    ///
    /// # Errors
    /// [`AgentError::System`] when it cannot be stored; it does not hold then.
    pub fn trusts(&mut self, trust: Trust) -> Result<(), AgentError> {
        if self.identity.trust.as_ref() == Some(&trust) {
            return Ok(());
        }
        let newer = Identity { trust: Some(trust), ..self.identity.clone() };
        newer.write(&self.dir.identity())?;
        self.identity = newer;
        Ok(())
    }

    /// Gets a newer certificate over this connection, stores it and shows it from then on.
    ///
    /// # Errors
    /// What the coordinator said, or what failed here.
    pub async fn renew(&mut self, channel: Channel) -> Result<(), Status> {
        let certificate = self.newer_certificate(channel).await?;
        self.renewed(certificate).await
    }

    /// Gets a newer certificate over this connection, in DER.
    ///
    /// # Errors
    /// What the coordinator said, or what failed here.
    pub async fn newer_certificate(&self, channel: Channel) -> Result<Vec<u8>, Status> {
        let request =
            self.key.certificate_request().map_err(|error| Status::internal(causes::line(&error)))?;
        let mut client = FleetClient::new(channel);
        let reply = answered(client.renew(RenewRequest { certificate_request: request })).await?.into_inner();
        Ok(reply.certificate)
    }

    /// Stores a newer certificate and shows it from then on. All else stays as it is by then: a coordinator
    /// that takes its time with the certificate does not bring back what the host believed meanwhile.
    ///
    /// # Errors
    /// What is wrong with it, or what failed here.
    pub async fn renewed(&mut self, certificate: Vec<u8>) -> Result<(), Status> {
        let Identity { addresses, authority, projects_url, projects_behind_proxy, trust, .. } =
            self.identity.clone();
        let newer = Identity::new(addresses, authority, certificate, &self.key).map_err(Status::internal)?;
        let newer = Identity { projects_url, projects_behind_proxy, trust, ..newer };
        if newer.agent_id() != self.identity.agent_id() {
            return Err(Status::internal("the certificate is another host's"));
        }
        let (stored, path) = (newer.clone(), self.dir.identity());
        let written = tokio::task::spawn_blocking(move || stored.write(&path)).await;
        written
            .map_err(|died| Status::internal(died.to_string()))?
            .map_err(|error| Status::internal(causes::line(&error)))?;
        let shown = self.credentials.replace(&newer.certificate, &self.key);
        shown.map_err(|error| Status::internal(causes::line(&error)))?;
        self.identity = newer;
        Ok(())
    }

    /// Makes this agent, which is a copy of its host, a host of its own: decided on the disk, and to be
    /// finished by the agent's next start ([`separation`]). This membership stays the first one's.
    ///
    /// # Errors
    /// What the coordinator said, or what failed here.
    pub async fn separate(&self, channel: Channel, ticket: String, hostname: &str) -> Result<(), Status> {
        let failed = |error: AgentError| Status::internal(causes::line(&error));
        let died = |died: tokio::task::JoinError| Status::internal(died.to_string());
        let dir = self.dir.clone();
        let key = tokio::task::spawn_blocking(move || separation::key(&dir)).await;
        let key = key.map_err(died)?.map_err(failed)?;
        let request = key.certificate_request().map_err(|error| Status::internal(causes::line(&error)))?;
        let request = SeparateRequest { ticket, certificate_request: request, hostname: hostname.to_owned() };
        let mut client = FleetClient::new(channel);
        let reply = answered(client.separate(request)).await?.into_inner();
        let Identity { addresses, authority, projects_url, projects_behind_proxy, trust, .. } =
            self.identity.clone();
        let new = Identity::new(addresses, authority, reply.certificate, &key).map_err(Status::internal)?;
        let new = Identity { projects_url, projects_behind_proxy, trust, ..new };
        if new.agent_id() == self.identity.agent_id() {
            return Err(Status::internal("the certificate is the first host's"));
        }
        let dir = self.dir.clone();
        let decided = tokio::task::spawn_blocking(move || separation::decide(&dir, &new, &key)).await;
        decided.map_err(died)?.map_err(failed)
    }
}

/// Trades a use of a token for an identity.
///
/// # Errors
/// [`AgentError::Unreachable`] when no coordinator answers for fifteen seconds, or something else does;
/// [`AgentError::Refused`] when it does not take the token, or is another fleet's.
pub async fn enroll(
    access: &AccessString,
    dir: &DataDir,
    hostname: &str,
    proxies: Proxies,
) -> Result<Membership, AgentError> {
    let key = identity::key(dir)?;
    let setup = |error: fallow_tls::TlsError| {
        AgentError::system("cannot set up TLS", std::io::Error::other(causes::line(&error)))
    };
    let connector = Connector::new(access.authority, None).map_err(setup)?.through(proxies.clone());
    let request = EnrollRequest {
        token: access.secret.clone(),
        hostname: hostname.to_owned(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        certificate_request: key.certificate_request().map_err(setup)?,
    };
    let coordinator = access.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let give_up = Instant::now() + PATIENCE;
    let (mut backoff, mut rng) =
        (Backoff::default(), rand::rngs::StdRng::seed_from_u64(u64::from(std::process::id())));
    let mut said = None;
    let reply = loop {
        let why = match ask(&connector, &access.addresses, &request).await {
            Ok(reply) => break reply,
            Err(Failed::Now(why)) => why,
            Err(Failed::ForGood(error)) => return Err(error),
        };
        if Instant::now() >= give_up {
            return Err(AgentError::unreachable(format!(
                "the coordinator at {coordinator} does not answer ({why}): check that it runs and that the address is right"
            )));
        }
        if said.as_ref() != Some(&why) {
            tracing::info!(
                coordinator,
                why,
                "the coordinator does not answer yet; trying for {} s",
                PATIENCE.as_secs()
            );
            said = Some(why);
        }
        let left = give_up.saturating_duration_since(Instant::now());
        tokio::time::sleep(backoff.next(&mut rng).min(left)).await;
    };
    let nonsense = |why: String| {
        AgentError::refused(format!("the coordinator at {coordinator} did not enrol this agent: {why}"))
    };
    let identity = Identity::new(access.addresses.clone(), access.authority, reply.certificate, &key);
    let mut identity = identity.map_err(nonsense)?;
    if !access.organisation.is_empty() {
        identity.believe(access.organisation.clone());
    }
    identity.write(&dir.identity())?;
    Membership::new(identity, dir, proxies)
}

/// Why an agent was not enrolled.
enum Failed {
    /// It may be, a moment later.
    Now(String),
    /// It will not be.
    ForGood(AgentError),
}

async fn ask(
    connector: &Connector,
    addresses: &[Address],
    request: &EnrollRequest,
) -> Result<EnrollReply, Failed> {
    let dialled =
        fallow_tls::dial(connector, addresses, &endpoint()).await.map_err(|error| match &error {
            error if error.may_pass() => Failed::Now(causes::line(error)),
            _ => Failed::ForGood(of_connect(&error)),
        })?;
    let reply = answered(FleetClient::new(dialled.channel).enroll(request.clone())).await;
    reply.map(tonic::Response::into_inner).map_err(|status| match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Unknown | Code::Cancelled => {
            Failed::Now(status.message().to_owned())
        }
        _ => Failed::ForGood(AgentError::refused(format!(
            "the coordinator did not enrol this agent: {}",
            status.message()
        ))),
    })
}

/// As an error of the command line's.
fn of_connect(error: &ConnectError) -> AgentError {
    match error {
        ConnectError::OtherAuthority { .. } => AgentError::refused(error.to_string()),
        _ => AgentError::unreachable(causes::line(error)),
    }
}

/// Waits for an answer, but not for ever: somebody may wait for the agent to start.
async fn answered<T>(call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    let silent = |_| Err(Status::deadline_exceeded(format!("no answer within {} s", PATIENCE.as_secs())));
    tokio::time::timeout(PATIENCE, call).await.unwrap_or_else(silent)
}

/// How connections to a coordinator behave. Which address and who is there, the connector says, and it ends
/// those on which nothing gets through. That a coordinator is gone without a word, as when its machine lost
/// power, is noticed by heartbeats that do not come: pings of HTTP/2's would wake an idle host besides.
fn endpoint() -> Endpoint {
    Endpoint::from_static("http://coordinator.fallow.invalid").connect_timeout(Duration::from_secs(40))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_an_identity_without_its_key_or_with_another_one_is_damaged_and_no_key_is_made_for_it() {
        let place = tempfile::tempdir().unwrap();
        let dir = DataDir::at(place.path());
        let identity = identity::tests::sample(&HostKey::generate().unwrap());
        let error = Membership::new(identity.clone(), &dir, Proxies::default()).unwrap_err().to_string();
        assert!(error.contains("identity.key is missing"), "{error}");
        assert!(!dir.identity_key().exists());
        identity::key(&dir).unwrap();
        let error = Membership::new(identity, &dir, Proxies::default()).unwrap_err().to_string();
        assert!(error.contains("is for another key"), "{error}");
    }
}
