//! Who is a host of the fleet: what a certificate permits, and how a host is taken out (R6.10).
//!
//! A certificate only says which agent and which key. Whether that agent is still one of the fleet stands in
//! its record, which is looked at with each call; a link that stands ends as soon as the record says so, or
//! when its agent's newest certificate has expired.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fallow_daemon::{clock, lock};
use fallow_domain::{AgentId, Duration, Instant, printable};
use fallow_proto::fleet::limits::TEXT_BYTES;
use fallow_store::{Batch, BatchResult, StoreError};
use fallow_tls::{HostCertificate, Peer};
use tonic::Status;

use super::enrol::{self, AgentRecord, EnrolError, Revocation};
use super::labels::UnknownHost;
use super::limits::RENEWAL;
use super::{Agent, Fleet, keys, token};
use crate::audit::{self, Action, Record};
use crate::document::Author;

/// A host is not taken out of the fleet, or not forgotten.
#[derive(Debug, thiserror::Error)]
pub enum MembershipError {
    /// No such host, or several.
    #[error(transparent)]
    Host(#[from] UnknownHost),
    /// It is there, and was not revoked.
    #[error(
        "host {0} is connected: revoke it first (`fallow hosts revoke`), or stop its agent, if it is to leave the fleet"
    )]
    Connected(String),
    /// Too long a reason.
    #[error("a reason has up to {TEXT_BYTES} bytes")]
    Reason,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A host that keeps a certificate for longer after its end than a clock is wrong is not renewing it.
const GRACE: Duration = Duration::from_secs(5);

/// A host that was taken out of the fleet.
#[derive(Debug)]
pub struct Revoked {
    /// Its agent.
    pub agent: AgentId,
    /// The id of the token that it enrolled with, if that still enrols: whoever has the machine may have it,
    /// too.
    pub open_token: Option<String>,
    /// Hosts of the fleet that were copies of it, or of its copies. They stay.
    pub copies: Vec<AgentId>,
}

/// Why the agent of this record may not be linked; none if it may.
pub(super) fn removed(record: &AgentRecord) -> Option<String> {
    let anew = "start its agent in another, empty directory with a new token if it is to join again";
    match &record.revoked {
        Some(Revocation { reason, .. }) if reason.is_empty() => {
            Some(format!("this host was taken out of the fleet by an operator: {anew}"))
        }
        Some(Revocation { reason, .. }) => {
            Some(format!("this host was taken out of the fleet by an operator ({reason}): {anew}"))
        }
        None if record.forgotten => Some(format!("this host was removed from the fleet: {anew}")),
        None => None,
    }
}

impl Agent {
    pub(super) fn is_member(&self) -> bool {
        self.removed.borrow().is_none()
    }

    /// Takes note of a certificate that it has.
    pub(super) fn certified(&self, certificate: &HostCertificate) {
        self.certificate_until.fetch_max(certificate.not_after.as_micros(), Ordering::Relaxed);
    }

    pub(super) fn certificate_until(&self) -> Instant {
        Instant::from_micros(self.certificate_until.load(Ordering::Relaxed))
    }

    /// Whether its newest certificate is not good any more.
    pub(super) fn has_expired(&self, now: Instant) -> bool {
        now > self.certificate_until() + GRACE
    }
}

impl Fleet {
    /// The host at the other end, if it is one of the fleet. Its certificate may have expired.
    pub(super) fn member(&self, peer: Option<&Arc<Peer>>) -> Result<(Arc<Agent>, HostCertificate), Status> {
        let Some(Peer::Host(certificate)) = peer.map(|peer| &**peer) else {
            return Err(Status::unauthenticated(
                "this call needs a host's certificate, which an agent gets when it enrols with a token",
            ));
        };
        let unknown = || {
            Status::permission_denied(
                "this coordinator does not know this host: delete identity.json in its agent's directory, and start it with a \
                 new token",
            )
        };
        let agent = self.agent(&certificate.agent.0).ok_or_else(unknown)?;
        if let Some(why) = &*agent.removed.borrow() {
            return Err(Status::permission_denied(why.clone()));
        }
        if agent.key != certificate.key.to_string() {
            return Err(Status::permission_denied(
                "this certificate is for a key that is not this host's: put its agent's identity.json and identity.key back \
                 from one copy, or delete both and start it with a new token",
            ));
        }
        Ok((agent, certificate.clone()))
    }

    /// Agents that were taken out of the fleet, or removed from it.
    pub fn removed(&self) -> Vec<AgentId> {
        let agents = self.agents.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        agents.values().filter(|agent| !agent.is_member()).map(|agent| agent.id.clone()).collect()
    }

    /// A newer certificate for a host of the fleet. Who asks again at once is given the same once more: it
    /// holds no secret, and whoever has a copy of a host's identity cannot keep the host from its own by
    /// asking without end.
    pub(super) fn renew(&self, peer: Option<&Arc<Peer>>, request: &[u8]) -> Result<Vec<u8>, Status> {
        let (agent, certificate) = self.member(peer)?;
        let bad = |error: EnrolError| Status::invalid_argument(fallow_daemon::causes::line(&error));
        if enrol::key_in(request).map_err(bad)? != certificate.key {
            return Err(Status::invalid_argument(
                "the request is for another key than the certificate: a host keeps its key",
            ));
        }
        let now = clock::now();
        let pause = self.issuer.life.mul_f64(0.01).min(RENEWAL);
        if let Some(der) = self.just_renewed(&agent.id, now, pause) {
            return Ok(der);
        }
        let issued = self.issuer.issue(request, &agent.id, now).map_err(bad)?;
        agent.certified(&issued.says);
        tracing::debug!(agent = agent.id.0, serial = issued.says.serial, "certificate renewed");
        lock(&self.renewed).insert(agent.id.clone(), (now, issued.der.clone()));
        Ok(issued.der)
    }

    /// The certificate that a host was given within the pause.
    fn just_renewed(&self, agent: &AgentId, now: Instant, pause: Duration) -> Option<Vec<u8>> {
        let mut renewed = lock(&self.renewed);
        // Those ahead of us are of a clock that was set back.
        renewed.retain(|_, (at, _)| *at <= now && now.since(*at) < pause);
        renewed.get(agent).map(|(_, der)| der.clone())
    }

    /// Takes a host out of the fleet for good. Its link ends at once.
    ///
    /// # Errors
    /// [`MembershipError`]. One that was taken out before stays as it is.
    pub fn revoke(
        &self,
        by: &Author,
        host: &str,
        reason: &str,
        now: Instant,
    ) -> Result<Revoked, MembershipError> {
        if reason.len() > TEXT_BYTES {
            return Err(MembershipError::Reason);
        }
        let agent = self.find(host)?;
        let reason = printable::line(reason, TEXT_BYTES);
        let mut done = by.record(Action::HostRevoked, &agent.said());
        if !reason.trim().is_empty() {
            done = done.because(&reason);
        }
        self.change(&agent, &done, |record| {
            record.revoked.get_or_insert(Revocation { at: now, reason });
        })?;
        tracing::info!(agent = agent.id.0, "a host was taken out of the fleet");
        self.let_go(&agent);
        let token = lock(&agent.record).token.clone();
        let is_open = token::is_open(&*self.store, &token, now)?;
        let copies = self.copies_of(&agent.id);
        Ok(Revoked { agent: agent.id.clone(), open_token: is_open.then_some(token), copies })
    }

    /// Removes a host that is not there from what is listed. What it computed counts on.
    ///
    /// # Errors
    /// [`MembershipError`].
    pub fn forget(&self, by: &Author, host: &str) -> Result<AgentId, MembershipError> {
        let agent = self.find(host)?;
        if agent.is_connected() && agent.is_member() {
            return Err(MembershipError::Connected(host.to_owned()));
        }
        let done = by.record(Action::HostForgotten, &agent.said());
        self.change(&agent, &done, |record| record.forgotten = true)?;
        tracing::info!(agent = agent.id.0, "a host was removed from the list");
        self.let_go(&agent);
        Ok(agent.id.clone())
    }

    /// Changes an agent's record, first in the store, with what is said of it in the audit log.
    fn change(
        &self,
        agent: &Agent,
        done: &Record,
        edit: impl FnOnce(&mut AgentRecord),
    ) -> Result<(), StoreError> {
        let _alone = lock(&self.changing);
        let mut record = lock(&agent.record).clone();
        edit(&mut record);
        let key = keys::agent(&agent.id);
        let batch = Batch::new().put(key.clone(), keys::AGENT.write(&key, &record)?);
        let BatchResult::Applied { .. } = audit::apply(&*self.store, &batch, done)? else {
            return Err(keys::AGENT.bad_value(&key, "it changed at the same time"));
        };
        agent.removed.send_replace(removed(&record));
        *lock(&agent.record) = record;
        Ok(())
    }
}
